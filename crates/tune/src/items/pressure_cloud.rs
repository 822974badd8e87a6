//! pressure-cloud-allowance: packets that a cloud's network dropped for its limits.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "pressure-cloud-allowance",
    group: Group::Pressure,
    title: "a cloud's network allowances",
    mechanism: "Instances have allowances for bandwidth, packets a second and tracked connections; beyond them the network \
        queues or drops. ENA's driver counts each kind. In the founding article the packet allowance was the last wall.",
    avoid: "Never wrong to know; the mend is another instance type, fewer packets, or security groups that do not track.",
    gain: Gain { benefit: Benefit::Latency, percent: 10.0, source: NINE_STEPS },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let (mut lines, mut over) = (Vec::new(), 0);
    for interface in data_interfaces(host, workload)? {
        if interface.driver != "ena" {
            continue;
        }
        let text = host.ask(&["ethtool", "-S", &interface.name])?;
        for line in text.lines().filter(|line| line.contains("_allowance_exceeded")) {
            let Some((name, count)) = line.trim().split_once(':') else {
                continue;
            };
            let count: u64 = count.trim().parse().unwrap_or(0);
            over = count.saturating_add(over);
            if count > 0 {
                lines.push(format!("{} {name}: {count}", interface.name));
            }
        }
    }
    if over == 0 && lines.is_empty() {
        return Ok(Finding::good("no card counts an allowance as exceeded"));
    }
    Ok(Finding::costs(lines.join("; "))
        .because("packets were queued or dropped outside of this host")
        .advise("a larger or network-optimised instance; for conntrack: security groups that allow all both ways"))
}
