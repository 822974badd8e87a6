//! capacity-syn-backlog: handshakes that may be half done.

use crate::finding::Finding;
use crate::floor::at_least;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Risk, Scope};
use crate::items::capacity_somaxconn::wanted;
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-syn-backlog",
    group: Group::Capacity,
    title: "queue of half-open connections",
    mechanism: "tcp_max_syn_backlog bounds handshakes under way when SYN cookies are off, and how many the kernel remembers \
        before it sends cookies. Over a long way, connections a second times the round trip must fit.",
    avoid: "Never; an entry takes 300 bytes.",
    gain: Gain { benefit: Benefit::Capacity, percent: 5.0, source: MILLION },
    risk: Risk::None,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    at_least(host, "/proc/sys/net/ipv4/tcp_max_syn_backlog", wanted(workload).min(16_384))
}
