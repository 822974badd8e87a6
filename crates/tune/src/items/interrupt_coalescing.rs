//! interrupt-coalescing: how long an interrupt waits for more packets.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "interrupt-coalescing",
    group: Group::Interrupts,
    title: "interrupt moderation",
    mechanism: "Each interrupt costs one or two microseconds and evicts cache lines. Moderation lets the \
        card wait for more packets before it interrupts. Adaptive moderation waits long under load and not \
        at all when idle. Together with busy polling, this step gained 28 % in the nine-steps article; \
        static values for a known load gave a little more (ethtool -C IF adaptive-rx off rx-usecs N).",
    avoid: "Where single packets at low load must be fast and the driver adapts badly, use small static \
        values instead.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 20.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(28.0),
    },
    risk: Risk::Trade,
    scope: Scope::Card,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let (mut lines, mut actions, mut reason) = (Vec::new(), Vec::new(), None);
    for interface in data_interfaces(host, workload)? {
        let name = &interface.name;
        let text = match host.ask(&["ethtool", "-c", name]) {
            Ok(text) => text,
            Err(error) => {
                reason = Some(error);
                continue;
            }
        };
        let adaptive = adaptive_rx(&text);
        let usecs = field(&text, "rx-usecs:");
        lines.push(format!(
            "{name} ({}): adaptive {}, {} us",
            interface.driver,
            adaptive.unwrap_or("not supported"),
            usecs.map_or_else(|| "n/a".to_owned(), |usecs| usecs.to_string())
        ));
        if adaptive == Some("off") && usecs.is_some_and(|usecs| usecs < 50) {
            actions.push(Action::run(
                &format!("ethtool -C {name} adaptive-rx on"),
                &format!("ethtool -C {name} adaptive-rx off"),
                &format!("ethtool -c {name}"),
            ));
        }
    }
    match (lines.is_empty(), reason) {
        (true, Some(error)) => Err(error),
        _ => {
            let finding = Finding::good_if(actions.is_empty(), lines.join("; "));
            Ok(actions.into_iter().fold(finding, Finding::action))
        }
    }
}

fn adaptive_rx(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("Adaptive RX:"))?;
    line.split_whitespace().nth(2).filter(|word| *word == "on" || *word == "off")
}

fn field(text: &str, label: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(label)?.trim().parse().ok())
}
