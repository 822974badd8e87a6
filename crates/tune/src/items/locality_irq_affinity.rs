//! locality-irq-affinity: which CPUs the card interrupts.

use crate::action::Action;
use crate::cpu_list::list_text;
use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::{data_interfaces, interrupt_cpus};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "locality-irq-affinity",
    group: Group::Locality,
    title: "interrupts over the CPUs",
    mechanism: "The CPU that a queue's interrupt goes to also runs the receive path of its packets. With one queue per CPU, \
        each interrupt on its own CPU and the connection's worker there too, a packet never changes CPUs. \
        The whole step (with XPS and reuseport steering) was 38 % in the founding article.",
    avoid: "On hosts whose interrupts were placed by hand for other work. irqbalance undoes it: see locality-irqbalance.",
    gain: Gain { benefit: Benefit::Throughput, percent: 20.0, source: NINE_STEPS },
    risk: Risk::None,
    scope: Scope::Card,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let cpus = allowed_cpus(host);
    if cpus.len() < 2 {
        return Ok(Finding::good("one usable CPU: nothing to spread"));
    }
    let (mut lines, mut actions) = (Vec::new(), Vec::new());
    for interface in data_interfaces(host, workload)? {
        let placed = interrupt_cpus(host, &interface);
        if placed.len() < 2 {
            continue;
        }
        let pairs = interface.interrupts_per_pair();
        // What counts is where packets come in: of each pair, the interrupt of receiving.
        let receiving = placed.iter().step_by(pairs);
        let mut used: Vec<u32> = receiving.flat_map(|(_, on)| on.first().copied()).collect();
        used.sort_unstable();
        used.dedup();
        let reachable = placed.len().div_ceil(pairs).min(cpus.len());
        lines.push(format!(
            "{}: {} interrupts, {} CPUs {}",
            interface.name,
            placed.len(),
            if pairs > 1 { "those of receiving on" } else { "on" },
            list_text(&used)
        ));
        if used.len() >= reachable {
            continue;
        }
        for (position, (interrupt, _)) in placed.iter().enumerate() {
            if let Some(cpu) = cpus.get(position / pairs % cpus.len()) {
                actions
                    .push(Action::setting(format!("/proc/irq/{interrupt}/smp_affinity_list"), cpu));
            }
        }
    }
    if lines.is_empty() {
        return Ok(Finding::skipped("no card with more than one queue interrupt that can be read"));
    }
    let finding = Finding::good_if(actions.is_empty(), lines.join("; "))
        .because("the CPUs that take all interrupts are full while others wait");
    Ok(actions.into_iter().fold(finding, Finding::action))
}
