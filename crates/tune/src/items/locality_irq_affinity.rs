//! locality-irq-affinity: which CPUs receive the interrupts of the network card.

use crate::action::Action;
use crate::cpu_list::list_text;
use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::{data_interfaces, interrupt_cpus};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "locality-irq-affinity",
    group: Group::Locality,
    title: "distribution of interrupts over the CPUs",
    mechanism: "The CPU that receives the interrupt of a queue also runs the receive path of its packets. \
        With one queue per CPU, each interrupt on its own CPU, and the worker of the connection on that \
        CPU, a packet never moves between CPUs. The whole step (with XPS and reuseport steering) gained 38 \
        % in the nine-steps article.",
    avoid: "Do not apply this where interrupts were placed by hand for other work. irqbalance undoes the \
        placement: see locality-irqbalance.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 20.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(38.0),
    },
    risk: Risk::None,
    scope: Scope::Card,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let allowed = allowed_cpus(host);
    if allowed.len() < 2 {
        return Ok(Finding::good("one usable CPU, nothing to distribute"));
    }
    let apart: Vec<u32> =
        allowed.iter().copied().filter(|cpu| !workload.worker_cpus.contains(cpu)).collect();
    if apart.is_empty() {
        return Ok(Finding::skipped(
            "the workers use all usable CPUs (--worker-cpus): no CPU is left for interrupts",
        ));
    }
    let cpus = if workload.worker_cpus.is_empty() { allowed } else { apart };
    let (mut lines, mut actions) = (Vec::new(), Vec::new());
    for interface in data_interfaces(host, workload)? {
        let placed = interrupt_cpus(host, &interface);
        if placed.len() < 2 {
            continue;
        }
        let pairs = interface.interrupts_per_pair();
        // Only the receive interrupt of each queue pair matters, because its CPU processes the packets.
        let receiving = placed.iter().step_by(pairs);
        let mut used: Vec<u32> = receiving.flat_map(|(_, on)| on.first().copied()).collect();
        used.sort_unstable();
        used.dedup();
        let reachable = placed.len().div_ceil(pairs).min(cpus.len());
        lines.push(format!(
            "{}: {} interrupts, {} CPUs {}",
            interface.name,
            placed.len(),
            if pairs > 1 { "the receive interrupts on" } else { "on" },
            list_text(&used)
        ));
        // Without --worker-cpus, interrupts may be handled by every CPU.
        let is_apart = used.iter().all(|cpu| !workload.worker_cpus.contains(cpu));
        if used.len() >= reachable && is_apart {
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
        return Ok(Finding::skipped("no network card has more than one readable queue interrupt"));
    }
    let finding = Finding::good_if(actions.is_empty(), lines.join("; "))
        .because("the CPUs that take all interrupts are saturated while other CPUs are idle");
    Ok(actions.into_iter().fold(finding, Finding::action))
}
