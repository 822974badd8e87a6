//! capacity-time-wait: closed connections that still hold their ports.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-time-wait",
    group: Group::Capacity,
    title: "connections in TIME_WAIT",
    mechanism: "The side that closes first keeps the pair of ports for 60 seconds. A proxy that opens a \
        connection per request runs out of ports at about 470 connections per second to one server. With \
        tcp_tw_reuse=1, outgoing connections may reuse such a port after one second; TCP timestamps make \
        this safe. Keeping connections open for several requests is better still.",
    avoid: "Do not apply this towards servers that mishandle TCP timestamps. Never use tcp_tw_recycle from \
        old guides (removed in Linux 4.12).",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 8.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::NetNamespace,
    kinds: &[For::Proxy],
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let path = "/proc/sys/net/ipv4/tcp_tw_reuse";
    let reuse = host.read_number(path)?;
    let most = host.read_number("/proc/sys/net/ipv4/tcp_max_tw_buckets").unwrap_or(0);
    let waiting: u64 = host
        .read("/proc/net/sockstat")
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with("TCP:"))
        .find_map(|line| {
            line.split_whitespace().skip_while(|word| *word != "tw").nth(1)?.parse().ok()
        })
        .unwrap_or(0);
    let meaning = match reuse {
        0 => "never",
        1 => "always",
        _ => "on loopback only",
    };
    let found = format!(
        "{waiting} of at most {most} connections in TIME_WAIT; outgoing connections reuse their ports: {meaning}"
    );
    Ok(Finding::good_if(reuse == 1, found)
        .because("a port stays in use for 60 s after each connection that Tidegate closes")
        .action(Action::setting(path, 1)))
}
