//! lock-contention: signs that CPUs wait for each other or for a turn.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "lock-contention",
    group: Group::Locks,
    title: "signs of contention",
    mechanism: "Tasks that are ready but wait for a CPU show in /proc/pressure/cpu; contended kernel locks show in \
        /proc/lock_stat where the kernel was built with it. Both mean that more of the same hardware would help, or \
        that two threads share what each should have alone.",
    avoid: "Never wrong to know. lock_stat itself costs: it belongs on test machines only.",
    gain: Gain { benefit: Benefit::Latency, percent: 5.0, source: KERNEL_DOCS },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

/// Share of the last minute, in percent, in which some task waited for a CPU.
const WAIT_PERCENT_MAX: f64 = 20.0;

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let pressure = host.read("/proc/pressure/cpu")?;
    let waited: f64 = pressure
        .split_whitespace()
        .find_map(|word| word.strip_prefix("avg60=")?.parse().ok())
        .ok_or_else(|| Unreadable::odd("/proc/pressure/cpu", &pressure))?;
    let locks = if host.exists("/proc/lock_stat") { "; lock_stat is on, which costs" } else { "" };
    let found = format!("in {waited:.1} % of the last minute a task waited for a CPU{locks}");
    Ok(Finding::good_if(waited < WAIT_PERCENT_MAX && locks.is_empty(), found)
        .because("when this is high at your usual load, the workers share their CPUs with others")
        .advise("top -H; then pin the others away, or run fewer workers"))
}
