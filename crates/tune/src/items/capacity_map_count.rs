//! capacity-map-count: the limit of memory areas of one process.

use crate::capacity::Needs;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, Gain, Group, Item, MILLION, Published, Risk, Scope};
use crate::minimum::at_least;
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-map-count",
    group: Group::Capacity,
    title: "memory areas of a process",
    mechanism: "vm.max_map_count limits the memory areas that a process may map. Allocators with many \
        small objects, and Lua states with their code areas, create many. At the limit mmap fails even if \
        memory is free.",
    avoid: "No known drawback: an area takes 200 bytes, and an unused allowance takes none.",
    gain: Gain {
        benefit: Benefit::Stability,
        percent: 3.0,
        source: MILLION,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::Kernel,
    kinds: &[For::Push],
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let needs = Needs::of(host, workload);
    let wanted = 65_530.max(needs.connections / 8 + needs.workers * 64);
    at_least(host, "/proc/sys/vm/max_map_count", wanted)
}
