//! pressure-softnet: packets that the kernel could not process in time.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "pressure-softnet",
    group: Group::Pressure,
    title: "receive path overloaded (softnet)",
    mechanism: "/proc/net/softnet_stat counts, for each CPU, the packets dropped because its backlog was \
        full, and the polls that ended with work left (time_squeeze) because netdev_budget or its time \
        limit was used up.",
    avoid: "Larger budgets let packets delay all other work on that CPU. Distribute the interrupts first.",
    gain: Gain {
        benefit: Benefit::Stability,
        percent: 5.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

/// Polls cut short, per million packets, from which a larger budget is advised.
const SQUEEZED_PPM_MAX: u64 = 100;

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let text = host.read("/proc/net/softnet_stat")?;
    let (mut packets, mut dropped, mut squeezed) = (0u64, 0u64, 0u64);
    for line in text.lines() {
        let mut columns =
            line.split_whitespace().map(|word| u64::from_str_radix(word, 16).unwrap_or(0));
        packets = packets.saturating_add(columns.next().unwrap_or(0));
        dropped = dropped.saturating_add(columns.next().unwrap_or(0));
        squeezed = squeezed.saturating_add(columns.next().unwrap_or(0));
    }
    let ppm = (squeezed.saturating_mul(1_000_000)).checked_div(packets).unwrap_or(0);
    let found = format!(
        "{packets} packets, {dropped} dropped, {squeezed} polls cut short ({ppm} per million packets)"
    );
    let mut finding =
        Finding::good_if(dropped == 0 && (ppm <= SQUEEZED_PPM_MAX || squeezed < 100), found)
            .because("the counters run since boot: check again under your usual load");
    let mut double = |path: &str| {
        if let Ok(present) = host.read_number(path) {
            finding = finding.clone().action(Action::setting(path, present.saturating_mul(2)));
        }
    };
    if dropped > 0 {
        double("/proc/sys/net/core/netdev_max_backlog");
    }
    if ppm > SQUEEZED_PPM_MAX {
        double("/proc/sys/net/core/netdev_budget");
        double("/proc/sys/net/core/netdev_budget_usecs");
    }
    Ok(finding)
}
