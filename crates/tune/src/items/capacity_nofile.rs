//! capacity-nofile: descriptors that a worker may open.

use crate::capacity::{Needs, limit_of};
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-nofile",
    group: Group::Capacity,
    title: "descriptors of a process (RLIMIT_NOFILE)",
    mechanism: "Every connection is a descriptor. The soft limit is what counts, and Tidegate raises it to the hard limit at \
        start; each of its workers has a table of its own, so the limit counts per worker. At the limit, accepting stops.",
    avoid: "A very large soft limit makes old programs slow that close every possible descriptor at start; Tidegate does not.",
    gain: Gain { benefit: Benefit::Capacity, percent: 30.0, source: MILLION },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let path = host.process_path("limits");
    let (soft, hard) = limit_of(host, "Max open files")
        .ok_or_else(|| Unreadable::odd(&path, "no line Max open files"))?;
    let needs = Needs::of(host, workload);
    let wanted = needs.files_per_worker;
    let found = format!(
        "soft {soft}, hard {hard}; a worker needs {wanted} for its share of {} connections",
        needs.connections
    );
    let workers = (needs.sockets * 11 / 10).div_ceil(hard.saturating_sub(256).max(1));
    Ok(Finding::good_if(hard >= wanted, found)
        .because(format!(
            "beyond the hard limit a worker cannot accept; {workers} workers would do with it"
        ))
        .advise(format!("shell, as root: ulimit -n {wanted}; docker: --ulimit nofile={wanted}"))
        .advise(format!("or, without a higher limit: tidegate run --workers {workers}"))
        .keep(
            "/etc/systemd/system/tidegate.service.d/90-tidegate-nofile.conf",
            format!("[Service]\nLimitNOFILE={wanted}\n"),
        )
        .by_itself())
}
