//! capacity-memory: compares the memory that the connections need with the memory of the host.

use crate::capacity::{Needs, gib};
use crate::environment::Environment;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-memory",
    group: Group::Capacity,
    title: "memory for the connections",
    mechanism: "An idle TCP connection takes about 3.7 KiB of kernel memory and a few hundred bytes of \
        Tidegate's memory. Connections with data in transit also take buffers. The plan (--connections N) \
        shows the sum.",
    avoid: "This item only reports and changes nothing.",
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
    let needs = Needs::of(host, workload);
    let total = Environment::of(host).memory_bytes;
    if total == 0 {
        return Ok(Finding::skipped("/proc/meminfo does not report the total memory"));
    }
    let limit = cgroup_limit(host);
    let usable = limit.unwrap_or(total).min(total);
    let bound = limit
        .filter(|limit| *limit < total)
        .map_or_else(String::new, |limit| format!(", limited by the cgroup to {}", gib(limit)));
    let found = format!(
        "{} connections need {}; the host has {}{bound}",
        needs.connections,
        gib(needs.bytes()),
        gib(total)
    );
    // A fifth of the memory is reserved for everything else.
    Ok(Finding::good_if(needs.bytes() < usable / 5 * 4, found)
        .because(
            "the kernel would drop connections or kill processes before this number of connections \
            is reached",
        )
        .advise(
            "add memory, raise the cgroup limit (docker --memory, MemoryMax=), or plan fewer \
            connections per host",
        ))
}

/// The smallest memory limit between the cgroup of the process and the root; supports cgroup v2 and v1.
fn cgroup_limit(host: &Host) -> Option<u64> {
    let groups = host.read(&host.process_path("cgroup")).ok()?;
    let mut tightest: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let mut folder = path.trim_end_matches('/');
        loop {
            let file = if controllers.is_empty() {
                format!("/sys/fs/cgroup{folder}/memory.max")
            } else if controllers == "memory" {
                format!("/sys/fs/cgroup/memory{folder}/memory.limit_in_bytes")
            } else {
                break;
            };
            tightest = tightest.into_iter().chain(host.read_number(&file).ok()).min();
            match folder.rsplit_once('/') {
                Some((parent, _)) => folder = parent,
                None => break,
            }
        }
    }
    tightest
}
