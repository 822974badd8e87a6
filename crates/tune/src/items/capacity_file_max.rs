//! capacity-file-max: the file descriptor limit of the host, and the maximum of the per-process limit.

use crate::action::Action;
use crate::capacity::Needs;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-file-max",
    group: Group::Capacity,
    title: "file descriptors of the host (file-max, nr_open)",
    mechanism: "fs.file-max limits the open files of all processes together. fs.nr_open is the highest \
        limit that even root may set for one process (1048576 by default; a worker with more than a \
        million connections needs more).",
    avoid: "No known drawback: both are limits, and no memory is allocated for them.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 25.0,
        source: MILLION,
        published: Published::No,
    },
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
