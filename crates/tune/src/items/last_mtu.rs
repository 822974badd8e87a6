//! last-mtu: how many bytes fit into a packet.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "last-mtu",
    group: Group::LastPercent,
    title: "packet size (MTU)",
    mechanism: "With an MTU of 9000 bytes, large bodies take a sixth of the packets, and a cloud's limit \
        of packets per second is reached later. Responses that fit into one packet gain nothing.",
    avoid: "Raise the MTU above 1500 only if every switch and host of the link supports it, or packets are \
        lost. Towards the internet keep 1500.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 1.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
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
                "{}: an MTU of {mtu}, below 1500 (a tunnel?), takes more packets per response",
                interface.name
            ));
        }
    }
    Ok(Finding::good_if(bad.is_empty(), lines.join("; "))
        .because(bad.join("; "))
        .advise("if the link supports it: ip link set IF mtu 1500"))
}
