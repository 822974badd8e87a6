//! capacity-source-addresses: further local addresses for outgoing connections.

use core::net::IpAddr;

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-source-addresses",
    group: Group::Capacity,
    title: "local addresses for outgoing connections",
    mechanism: "An outgoing connection is identified by its addresses and ports, so one local address has at \
        most one connection for each of its ports to one server address and port. A proxy with one server, or \
        a load generator, needs a further local address for each 28232 connections (64512 with \
        capacity-port-range).",
    avoid: "Use only addresses that belong to this host's network and that no other machine uses: a duplicate \
        address disturbs both. In a cloud, assign them to the network card first.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 10.0,
        source: MILLION,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::NetNamespace,
    kinds: &[For::Proxy],
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    if !workload.source_addresses.is_empty() {
        return detect_missing(host, workload);
    }
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    let numbers = host.read_numbers(path, 2)?;
    let ports = match numbers[..] {
        [low, high, ..] => high.saturating_add(1).saturating_sub(low).max(1),
        _ => return Err(Unreadable::unexpected(path, "fewer than two numbers")),
    };
    let connections = workload.connections();
    let needed = connections.div_ceil(ports);
    let found = format!(
        "{connections} connections to one server address need {needed} local addresses with {ports} ports each"
    );
    Ok(Finding::good_if(workload.requested_connections.is_none() || needed <= 1, found).advise(
        "choose free addresses and name them: tidegate tune apply capacity-source-addresses --source \
         FIRST-LAST --interface NAME (on loopback all of 127.0.0.0/8 can be used as it is)",
    ))
}

/// The named addresses that the interface does not have yet.
fn detect_missing(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let interfaces = data_interfaces(host, workload)?;
    let [interface] = &interfaces[..] else {
        return Ok(Finding::skipped("name the interface for the addresses: --interface NAME"));
    };
    let name = &interface.name;
    let shown = host.ask(&["ip", "-oneline", "address", "show"])?;
    let present = addresses_of(&shown);
    let missing: Vec<IpAddr> =
        workload.source_addresses.iter().copied().filter(|one| !present.contains(one)).collect();
    let found = format!(
        "{} of {} named addresses are present",
        workload.source_addresses.len() - missing.len(),
        workload.source_addresses.len()
    );
    let finding = Finding::good_if(missing.is_empty(), found).because(
        "each further local address allows as many connections again to each server address",
    );
    Ok(missing.iter().fold(finding, |finding, address| {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        finding.action(Action::run(
            &format!("ip address add {address}/{bits} dev {name}"),
            &format!("ip address del {address}/{bits} dev {name}"),
            &format!("ip -oneline address show dev {name} to {address}/{bits}"),
        ))
    }))
}

/// The addresses in the output of `ip -oneline address show`: `2: eth0 inet 192.0.2.1/24 brd ...`.
fn addresses_of(shown: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let mut words =
            line.split_whitespace().skip_while(|word| !matches!(*word, "inet" | "inet6"));
        let (address, _) = words.nth(1)?.split_once('/')?;
        address.parse().ok()
    };
    shown.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_the_output_of_ip() {
        let shown = "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever\n\
                     2: eth0    inet 192.0.2.1/24 brd 192.0.2.255 scope global eth0\n\
                     2: eth0    inet6 2001:db8::1/64 scope global\n3: odd\n";
        let wanted: Vec<IpAddr> = ["127.0.0.1", "192.0.2.1", "2001:db8::1"]
            .map(|text| text.parse().expect("an address"))
            .to_vec();
        assert_eq!(addresses_of(shown), wanted);
    }
}
