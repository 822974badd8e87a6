//! capacity-epoll-watches: the limit of sockets that one user may register with epoll.

use crate::capacity::Needs;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::minimum::at_least;
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-epoll-watches",
    group: Group::Capacity,
    title: "sockets watched by epoll",
    mechanism: "fs.epoll.max_user_watches limits how many sockets one user may register in all its epoll \
        instances. The default is 4 % of low memory (about 250000 per GiB). Beyond the limit, \
        EPOLL_CTL_ADD fails with ENOSPC and the connection cannot be served.",
    avoid: "No known drawback: a registration takes 160 bytes, and an unused allowance takes none.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 15.0,
        source: MILLION,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    at_least(host, "/proc/sys/fs/epoll/max_user_watches", Needs::of(host, workload).files)
}
