//! last-offloads: joining and splitting packets (GRO, GSO, TSO).

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "last-offloads",
    group: Group::LastPercent,
    title: "segmentation offloads (GRO, GSO, TSO)",
    mechanism: "TSO and GSO let the network stack process large segments that the card (or the last \
        step of the stack) splits. Without them, sending bodies costs several times more CPU time. GRO \
        joins received packets; if each request is a single packet, it does useless work, which was \
        part of the last 4 % in the nine-steps article.",
    avoid: "Turning GRO off only pays for tiny requests; with uploads, or large responses through a proxy, \
        it costs far more than it gains.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 2.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(4.0),
    },
    risk: Risk::Trade,
    scope: Scope::Card,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let (mut lines, mut actions, mut large) = (Vec::new(), Vec::new(), false);
    for interface in data_interfaces(host, workload)? {
        let name = &interface.name;
        let text = host.ask(&["ethtool", "-k", name])?;
        let gro = feature(&text, "generic-receive-offload");
        let gso = feature(&text, "generic-segmentation-offload");
        let tso = feature(&text, "tcp-segmentation-offload");
        lines.push(format!("{name}: gro {}, gso {}, tso {}", word(gro), word(gso), word(tso)));
        let mut switch = |flag: &str, from: &str, to: &str| {
            actions.push(Action::run(
                &format!("ethtool -K {name} {flag} {to}"),
                &format!("ethtool -K {name} {flag} {from}"),
                &format!("ethtool -k {name}"),
            ));
        };
        for (flag, value) in [("gso", gso), ("tso", tso)] {
            if value == Some((false, false)) {
                large = true;
                switch(flag, "off", "on");
            }
        }
        if workload.kind == For::Json && gro == Some((true, false)) {
            switch("gro", "on", "off");
        }
    }
    let finding = Finding::good_if(actions.is_empty(), lines.join("; "));
    let finding = if large { finding.percent(10.0) } else { finding };
    Ok(actions.into_iter().fold(finding, Finding::action))
}

/// Whether a feature is on, and whether it is fixed.
fn feature(text: &str, name: &str) -> Option<(bool, bool)> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
    Some((value.trim().starts_with("on"), value.contains("[fixed]")))
}

fn word(value: Option<(bool, bool)>) -> &'static str {
    match value {
        Some((true, _)) => "on",
        Some((false, true)) => "off (fixed)",
        Some((false, false)) => "off",
        None => "unknown",
    }
}
