//! last-mtu: how much fits into a packet.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, Gain, Group, Item, KERNEL_DOCS, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "last-mtu",
    group: Group::LastPercent,
    title: "packet size (MTU)",
    mechanism: "With 9000 bytes a packet, large bodies take a sixth of the packets, and clouds that bound packets per \
        second bound you later. Answers that fit into one packet gain nothing.",
    avoid: "Unless every switch and host of the link has it: else packets vanish. Towards the internet it stays 1500.",
    gain: Gain { benefit: Benefit::Throughput, percent: 1.0, source: KERNEL_DOCS },
    risk: Risk::Trade,
    scope: Scope::Card,
    kinds: &[For::Proxy],
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let (mut lines, mut bad) = (Vec::new(), Vec::new());
    for interface in data_interfaces(host, workload)? {
        let mtu = host.read_number(&interface.path("mtu"))?;
        lines.push(format!("{}: {mtu} bytes", interface.name));
        if mtu < 1500 {
            bad.push(format!(
                "{}: {mtu} is below 1500 (a tunnel?): more packets per answer",
                interface.name
            ));
        }
    }
    Ok(Finding::good_if(bad.is_empty(), lines.join("; "))
        .because(bad.join("; "))
        .advise("ip link set IF mtu 1500, if the link carries it"))
}
