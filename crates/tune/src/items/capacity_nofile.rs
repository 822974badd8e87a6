//! capacity-nofile: the limit of file descriptors that a worker may open.

use crate::capacity::{Needs, limit_of};
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-nofile",
    group: Group::Capacity,
    title: "file descriptors of a process (RLIMIT_NOFILE)",
    mechanism: "Every connection takes a file descriptor. The soft limit is the effective one, and \
        Tidegate raises it to the hard limit at start. Each worker has a descriptor table of its own, so \
        the limit applies per worker. A worker at its limit stops accepting.",
    avoid: "A very large soft limit slows down old programs that close every possible descriptor at start. \
        Tidegate does not do this.",
    gain: Gain {
        benefit: Benefit::Capacity,
        percent: 30.0,
        source: MILLION,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let path = host.process_path("limits");
    let (soft, hard) = limit_of(host, "Max open files")
        .ok_or_else(|| Unreadable::unexpected(&path, "no line `Max open files`"))?;
    let needs = Needs::of(host, workload);
    let wanted = needs.files_per_worker;
    let found = format!(
        "soft {soft}, hard {hard}; a worker needs {wanted} for its share of {} connections",
        needs.connections
    );
    let workers = (needs.sockets * 11 / 10).div_ceil(hard.saturating_sub(256).max(1));
    Ok(Finding::good_if(hard >= wanted, found)
        .because(format!(
            "a worker at the hard limit cannot accept connections; with {workers} workers, each would stay \
                below the current limit"
        ))
        .advise(format!("shell, as root: ulimit -n {wanted}; Docker: --ulimit nofile={wanted}"))
        .advise(format!("or, without raising the limit: tidegate run --workers {workers}"))
        .keep(
            "/etc/systemd/system/tidegate.service.d/90-tidegate-nofile.conf",
            format!("[Service]\nLimitNOFILE={wanted}\n"),
        )
        .applied_by_tidegate())
}
