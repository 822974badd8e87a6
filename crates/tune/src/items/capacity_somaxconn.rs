//! capacity-somaxconn: connections that may wait to be accepted.

use crate::finding::Finding;
use crate::floor::at_least;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-somaxconn",
    group: Group::Capacity,
    title: "queue of connections to be accepted",
    mechanism: "A listener's backlog is cut to net.core.somaxconn. When the queue is full, handshakes are dropped and the \
        client tries again after one second, then three: a mass reconnect turns into a storm of retries.",
    avoid: "A queue longer than what can be accepted in a second only hides overload; 65535 is for mass reconnects.",
    gain: Gain { benefit: Benefit::Capacity, percent: 15.0, source: MILLION },
    risk: Risk::None,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    at_least(host, "/proc/sys/net/core/somaxconn", wanted(workload))
}

/// 4096 (the kernel's default since 5.4) as the least, 65535 where many may come back at once.
pub(crate) fn wanted(workload: &Workload) -> u64 {
    if workload.connections() >= 100_000 { 65_535 } else { 4_096 }
}
