//! lock-contention: signs that tasks wait for CPUs or for locks.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "lock-contention",
    group: Group::Locks,
    title: "signs of contention",
    mechanism: "/proc/pressure/cpu counts the time during which tasks are ready but wait for a CPU. \
        /proc/lock_stat lists contended kernel locks, if the kernel was built with it. Both mean that \
        more CPUs would help, or that two threads share a resource that each should have alone.",
    avoid: "This item only reports and changes nothing. lock_stat itself costs performance: enable it only \
        on test machines.",
    gain: Gain {
        benefit: Benefit::Latency,
        percent: 5.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

/// Percentage of the last minute in which a task waited for a CPU, from which it counts as a cost.
const WAIT_PERCENT_MAX: f64 = 20.0;

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let pressure = host.read("/proc/pressure/cpu")?;
    let waited: f64 = pressure
        .split_whitespace()
        .find_map(|word| word.strip_prefix("avg60=")?.parse().ok())
        .ok_or_else(|| Unreadable::unexpected("/proc/pressure/cpu", &pressure))?;
    let locks =
        if host.exists("/proc/lock_stat") { "; lock_stat is on and costs performance" } else { "" };
    let found = format!("a task waited for a CPU in {waited:.1} % of the last minute{locks}");
    Ok(Finding::good_if(waited < WAIT_PERCENT_MAX && locks.is_empty(), found)
        .because("if this is high at your usual load, other programs compete with the workers for their CPUs")
        .advise("find the other programs with top -H, then move them to other CPUs or run fewer workers"))
}
