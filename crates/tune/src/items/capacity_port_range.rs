//! capacity-port-range: the ports for outgoing connections.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-port-range",
    group: Group::Capacity,
    title: "ports for outgoing connections",
    mechanism: "An outgoing connection takes a port of net.ipv4.ip_local_port_range, once per destination \
        address and port. The default range has 28232 ports: a proxy with one server, or a load generator, \
        stops at that number of connections.",
    avoid: "Services that start later and listen on ports from 1024 up may find their port taken. Reserve \
        these ports in net.ipv4.ip_local_reserved_ports.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 15.0,
        source: MILLION,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::NetNamespace,
    kinds: &[For::Proxy],
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    let numbers = host.read_numbers(path, 2)?;
    let [low, high, ..] = numbers[..] else {
        return Err(Unreadable::unexpected(path, "fewer than two numbers"));
    };
    let ports = high.saturating_add(1).saturating_sub(low);
    let reserved = host.read("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
    let kept = if reserved.is_empty() { String::new() } else { format!(", reserved: {reserved}") };
    Ok(Finding::good_if(
        ports >= 60_000,
        format!("{low} to {high}: {ports} ports per destination{kept}"),
    )
    .because("beyond this number, connections to one destination fail with EADDRNOTAVAIL")
    .action(Action::setting(path, "1024 65535"))
    .advise(
        "each further server, server port or source address adds the same number of connections",
    ))
}
