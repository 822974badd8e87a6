//! capacity-epoll-watches: sockets that one user may have in epolls.

use crate::capacity::Needs;
use crate::finding::Finding;
use crate::floor::at_least;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-epoll-watches",
    group: Group::Capacity,
    title: "sockets watched by epoll",
    mechanism: "fs.epoll.max_user_watches bounds what one user has registered over all its epolls; the default is 4 % of low \
        memory (about 250000 a GiB). Beyond it, EPOLL_CTL_ADD fails with ENOSPC and the connection cannot be served.",
    avoid: "Never; each watch takes 160 bytes only once it is used.",
    gain: Gain { benefit: Benefit::Capacity, percent: 15.0, source: MILLION },
    risk: Risk::None,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    at_least(host, "/proc/sys/fs/epoll/max_user_watches", Needs::of(host, workload).files)
}
