//! capacity-syn-backlog: the limit of half-open connections.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::items::capacity_somaxconn::wanted;
use crate::minimum::at_least;
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-syn-backlog",
    group: Group::Capacity,
    title: "queue of half-open connections",
    mechanism: "tcp_max_syn_backlog limits the handshakes in progress when SYN cookies are off, and the \
        number that the kernel remembers before it sends cookies. It must hold the new connections per \
        second times the round-trip time.",
    avoid: "No known drawback: an entry takes 300 bytes.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 5.0,
        source: MILLION,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    at_least(host, "/proc/sys/net/ipv4/tcp_max_syn_backlog", wanted(workload).min(16_384))
}
