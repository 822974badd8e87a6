//! capacity-somaxconn: the limit of connections that wait to be accepted.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::minimum::at_least;
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-somaxconn",
    group: Group::Capacity,
    title: "queue of connections waiting to be accepted",
    mechanism: "The kernel caps the backlog of a listener at net.core.somaxconn. When the accept queue is \
        full, handshakes are dropped and clients retry after one second, then after three: a mass \
        reconnect turns into a storm of retries.",
    avoid: "A queue longer than what the server accepts in a second only hides overload. 65535 is meant \
        for mass reconnects.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 15.0,
        source: MILLION,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::NetNamespace,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    at_least(host, "/proc/sys/net/core/somaxconn", wanted(workload))
}

/// The minimum: 4096 (the kernel's default since 5.4), or 65535 if 100,000 or more clients may reconnect at once.
pub(crate) fn wanted(workload: &Workload) -> u64 {
    if workload.connections() >= 100_000 { 65_535 } else { 4_096 }
}
