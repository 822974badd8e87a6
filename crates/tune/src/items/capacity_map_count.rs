//! capacity-map-count: memory areas of one process.

use crate::capacity::Needs;
use crate::finding::Finding;
use crate::floor::at_least;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, Gain, Group, Item, MILLION, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-map-count",
    group: Group::Capacity,
    title: "memory areas of a process",
    mechanism: "vm.max_map_count bounds the areas a process has mapped. Allocators under many small pieces, and Lua machines \
        with their code areas, make many; at the limit mmap fails although memory is free.",
    avoid: "Never; an area takes 200 bytes only once it is used.",
    gain: Gain { benefit: Benefit::Stability, percent: 3.0, source: MILLION },
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
