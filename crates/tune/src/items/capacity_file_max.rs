//! capacity-file-max: descriptors of the whole host, and the ceiling of the per-process limit.

use crate::action::Action;
use crate::capacity::Needs;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-file-max",
    group: Group::Capacity,
    title: "descriptors of the host (file-max, nr_open)",
    mechanism: "fs.file-max bounds open files over all processes; fs.nr_open is how far even root may raise a process's \
        limit (1048576 by default, which a worker of more than a million connections needs to pass).",
    avoid: "Never: both are bounds, nothing is allocated for them.",
    gain: Gain { benefit: Benefit::Capacity, percent: 25.0, source: MILLION },
    risk: Risk::None,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let needs = Needs::of(host, workload);
    let (max_path, open_path) = ("/proc/sys/fs/file-max", "/proc/sys/fs/nr_open");
    let (max, open) = (host.read_number(max_path)?, host.read_number(open_path)?);
    let used = host.read_numbers("/proc/sys/fs/file-nr", 1).ok().and_then(|n| n.first().copied());
    let used = used.unwrap_or(0);
    let wanted_max = (needs.files + 10_000).saturating_add(used);
    let found = format!(
        "file-max {max} (wanted {wanted_max}, {used} in use), nr_open {open} (wanted {})",
        needs.files_per_worker
    );
    let mut finding = Finding::good_if(max >= wanted_max && open >= needs.files_per_worker, found);
    if max < wanted_max {
        finding = finding.action(Action::setting(max_path, wanted_max));
    }
    if open < needs.files_per_worker {
        finding = finding.action(Action::setting(open_path, needs.files_per_worker));
    }
    Ok(finding)
}
