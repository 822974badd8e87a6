//! capacity-huge-pages: checks transparent huge pages, which waste memory with many small objects.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-huge-pages",
    group: Group::Capacity,
    title: "transparent huge pages",
    mechanism: "With `always`, the kernel backs any large enough memory area with 2 MiB pages. A heap of \
        small scattered objects then holds far more memory than it uses, and threads pause while the \
        kernel compacts memory. With `madvise`, only areas that request huge pages get them, as an \
        allocator may do for its large areas.",
    avoid: "Do not change this where other programs on the host gain from `always` (some databases and \
        virtual machines do).",
    gain: Gain {
        benefit: Benefit::Latency,
        percent: 2.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = host.read(path)?;
    let defrag = host.read("/sys/kernel/mm/transparent_hugepage/defrag").unwrap_or_default();
    Ok(Finding::good_if(!text.contains("[always]"), format!("enabled: {text}; defrag: {defrag}"))
        .action(Action::setting(path, "madvise")))
}
