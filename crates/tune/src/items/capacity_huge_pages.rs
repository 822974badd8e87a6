//! capacity-huge-pages: transparent huge pages under many small objects.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-huge-pages",
    group: Group::Capacity,
    title: "transparent huge pages",
    mechanism: "With `always`, the kernel backs any large enough area by 2 MiB pages: a heap of small scattered pieces then \
        holds far more than it uses, and the kernel stops threads to compact memory. With `madvise` only those get them \
        that ask, as the allocator may for its large areas.",
    avoid: "Where other programs of the host gain from `always` (some databases and virtual machines).",
    gain: Gain { benefit: Benefit::Latency, percent: 2.0, source: KERNEL_DOCS },
    risk: Risk::Trade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = host.read(path)?;
    let defrag = host.read("/sys/kernel/mm/transparent_hugepage/defrag").unwrap_or_default();
    Ok(Finding::good_if(!text.contains("[always]"), format!("{text}; defrag: {defrag}"))
        .action(Action::setting(path, "madvise")))
}
