//! pressure-numa-misses: memory allocated on the wrong node.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "pressure-numa-misses",
    group: Group::Pressure,
    title: "memory from the wrong node",
    mechanism: "numa_miss counts memory pages that a node provided although another node was preferred, \
        because the preferred one was full. Access to such memory takes about half as long again, for as \
        long as the memory is in use.",
    avoid: "This item only reports and changes nothing. Do not set zone_reclaim_mode: it stalls allocations.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 3.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let folder = "/sys/devices/system/node";
    let (mut hits, mut misses, mut nodes) = (0u64, 0u64, 0);
    for name in host.list(folder)? {
        let Ok(text) = host.read(&format!("{folder}/{name}/numastat")) else {
            continue;
        };
        let field = |key: &str| -> u64 {
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
        };
        nodes += 1;
        hits = hits.saturating_add(field("numa_hit "));
        misses = misses.saturating_add(field("numa_miss "));
    }
    if nodes < 2 {
        return Ok(Finding::good("one memory node"));
    }
    let per_mille =
        (misses.saturating_mul(1000)).checked_div(hits.saturating_add(misses)).unwrap_or(0);
    Ok(Finding::good_if(
        per_mille < 10,
        format!("{misses} of {} pages came from the wrong node", hits.saturating_add(misses)),
    )
    .because("the memory of one node was full when memory was requested")
    .advise("run the server with numactl --interleave=all, or plan fewer connections per node: see app-numa"))
}
