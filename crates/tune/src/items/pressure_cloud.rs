//! pressure-cloud-allowance: packets that the cloud's network queued or dropped because of its limits.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "pressure-cloud-allowance",
    group: Group::Pressure,
    title: "network allowances of the cloud",
    mechanism: "Cloud instances have allowances for bandwidth, packets per second and tracked connections. \
        Beyond an allowance, the network queues or drops packets. The ENA driver counts each kind. In the \
        nine-steps article the packet allowance was the last limit.",
    avoid: "This item only reports and changes nothing. The fix is another instance type, fewer packets, \
        or security groups without connection tracking.",
    gain: Gain {
        benefit: Benefit::Latency,
        percent: 10.0,
        source: NINE_STEPS,
        published: Published::No,
    },
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
        return Ok(Finding::good("no network card reports an exceeded allowance"));
    }
    Ok(Finding::costs(lines.join("; "))
        .because("packets were queued or dropped outside of this host")
        .advise(
            "use a larger or network-optimised instance; for conntrack: use security groups that \
            allow all traffic both ways",
        ))
}
