//! lock-qdisc: the queueing discipline, and the lock around it.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "lock-qdisc",
    group: Group::Locks,
    title: "queueing discipline",
    mechanism: "Packets to be sent pass a queueing discipline under a lock. One root discipline on a card with several \
        queues is one lock for all CPUs; `mq` has one per queue, and `noqueue` below it none at all (2 % in the \
        founding article).",
    avoid: "With bbr pacing on kernels before 4.13 keep fq; where traffic is shaped, the discipline is the point; \
        noqueue drops what the card cannot take at once.",
    gain: Gain { benefit: Benefit::Throughput, percent: 2.0, source: NINE_STEPS },
    risk: Risk::Trade,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let shown = host.ask(&["tc", "qdisc", "show"])?;
    let default = host.read("/proc/sys/net/core/default_qdisc").unwrap_or_default();
    let (mut lines, mut actions) = (Vec::new(), Vec::new());
    for interface in data_interfaces(host, workload)? {
        let name = &interface.name;
        let Some(root) = root_of(&shown, name) else {
            continue;
        };
        lines.push(format!("{name}: {root}, {} transmit queues", interface.tx_queues));
        let plain = ["pfifo_fast", "pfifo", "fq_codel", "fq"].contains(&root.as_str());
        if interface.tx_queues > 1 && plain {
            actions.push(Action::run(
                &format!("tc qdisc replace dev {name} root mq"),
                &format!("tc qdisc replace dev {name} root {root}"),
                &format!("tc qdisc show dev {name}"),
            ));
        }
    }
    if lines.is_empty() {
        return Ok(Finding::skipped("tc shows no root discipline for the cards in the path"));
    }
    lines.push(format!("default: {default}"));
    let finding = Finding::good_if(actions.is_empty(), lines.join("; "))
        .because("all CPUs take one lock to send");
    Ok(actions.into_iter().fold(finding, Finding::action))
}

/// The kind of an interface's root discipline, from `tc qdisc show`.
fn root_of(shown: &str, name: &str) -> Option<String> {
    shown.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let on_device = words.windows(2).any(|pair| pair == ["dev", name]);
        let kind = words.get(1).filter(|_| on_device && words.contains(&"root"))?;
        Some((*kind).to_owned())
    })
}
