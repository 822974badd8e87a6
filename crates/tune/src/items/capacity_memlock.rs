//! capacity-memlock: the limit of memory that a process may lock.

use crate::capacity::limit_of;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-memlock",
    group: Group::Capacity,
    title: "lockable memory (RLIMIT_MEMLOCK)",
    mechanism: "io_uring before Linux 5.12, its registered buffers, and BPF programs before Linux 5.11 \
        count against RLIMIT_MEMLOCK. Serving with epoll locks no memory.",
    avoid: "No action is needed unless a later I/O driver requires locked memory.",
    gain: Gain {
        benefit: Benefit::Stability,
        percent: 1.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

/// Bytes that the two-instruction steering program needs on old kernels.
const BYTES_MIN: u64 = 64 * 1024;

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let path = host.process_path("limits");
    let (soft, hard) = limit_of(host, "Max locked memory")
        .ok_or_else(|| Unreadable::unexpected(&path, "no line `Max locked memory`"))?;
    let word = |bytes: u64| {
        if bytes == u64::MAX { "unlimited".to_owned() } else { format!("{bytes} B") }
    };
    Ok(Finding::good_if(
        hard >= BYTES_MIN,
        format!("soft {}, hard {}; epoll locks no memory", word(soft), word(hard)),
    )
    .advise("systemd: LimitMEMLOCK=8M in the unit; Docker: --ulimit memlock=-1:-1"))
}
