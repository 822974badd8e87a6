//! cpu-steal: CPU time that the hypervisor gave to other guests.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "cpu-steal",
    group: Group::Cpu,
    title: "CPU time stolen by the hypervisor",
    mechanism: "Steal is the time in which a virtual CPU was ready to run and could not, because the \
        hypervisor ran another guest. It appears as latency that no setting in the guest can remove.",
    avoid: "This item only reports and changes nothing. The fix is another instance type or host.",
    gain: Gain {
        benefit: Benefit::Latency,
        percent: 10.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

/// Share of the busy time, in thousandths, from which steal is reported as a cost.
const STEAL_PER_MILLE: u64 = 10;

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let text = host.read("/proc/stat")?;
    let ticks: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal: proc(5).
    let [user, nice, system, _, _, irq, softirq, steal, ..] = ticks[..] else {
        return Ok(Finding::skipped("/proc/stat has no steal column"));
    };
    let busy = [user, nice, system, irq, softirq, steal].into_iter().fold(0, u64::saturating_add);
    let per_mille = steal.saturating_mul(1000).checked_div(busy).unwrap_or(0);
    let found = format!(
        "{}.{} % of the busy CPU time since boot was stolen",
        per_mille / 10,
        per_mille % 10
    );
    Ok(Finding::good_if(per_mille < STEAL_PER_MILLE, found)
        .because("other guests on the same machine use the CPUs of this guest")
        .advise("use an instance type without shared CPUs, or a dedicated host"))
}
