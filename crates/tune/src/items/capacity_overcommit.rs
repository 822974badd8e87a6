//! capacity-overcommit: whether the kernel counts every mapping against a fixed limit.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-overcommit",
    group: Group::Capacity,
    title: "memory overcommit",
    mechanism: "With vm.overcommit_memory=2 every memory mapping counts against a fixed limit, whether it \
        is used or not. Thread stacks and allocator reserves then fail even if memory is free.",
    avoid: "Do not change this on hosts (often with databases) that must never run into the out-of-memory \
        killer.",
    gain: Gain {
        benefit: Benefit::Stability,
        percent: 3.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let path = "/proc/sys/vm/overcommit_memory";
    let mode = host.read_number(path)?;
    let swappiness = host.read_number("/proc/sys/vm/swappiness").unwrap_or(60);
    let word = match mode {
        0 => "heuristic",
        1 => "always",
        _ => "strict",
    };
    Ok(Finding::good_if(mode < 2, format!("mode {mode} ({word}), swappiness {swappiness}"))
        .action(Action::setting(path, 0)))
}
