//! locality-reuseport: checks whether connections can be steered to the worker on the receiving CPU.

use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::{data_interfaces, interrupt_cpus};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "locality-reuseport",
    group: Group::Locality,
    title: "connections on the CPU that receives their packets",
    mechanism: "Tidegate opens one listener per worker in CPU order and can attach a two-instruction \
        program that picks the listener of the CPU that received the packet. This only helps if interrupts \
        reach the CPU of every worker. Otherwise it would put all connections on one worker, so Tidegate \
        checks the interrupts first.",
    avoid: "Leave `server.steer-by-cpu` at \"auto\" on loopback, or with fewer queues than workers.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 10.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(38.0),
    },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let cpus = allowed_cpus(host);
    let (mut reached, mut queues) = (Vec::<u32>::new(), 0);
    for interface in data_interfaces(host, workload)? {
        // Only receive interrupts: the first of each queue pair.
        let placed = interrupt_cpus(host, &interface);
        let receiving = placed.iter().step_by(interface.interrupts_per_pair());
        queues += receiving.len();
        reached.extend(receiving.filter_map(|(_, on)| on.first().copied()));
    }
    reached.sort_unstable();
    reached.dedup();
    let covered = cpus.iter().filter(|cpu| reached.contains(cpu)).count();
    let found = format!("interrupts reach {covered} of {} usable CPUs", cpus.len());
    if cpus.len() < 2 {
        return Ok(Finding::good("one usable CPU, nothing to steer"));
    }
    if reached.is_empty() {
        return Ok(Finding::skipped(
            "no interrupt of a network card can be read; steering by CPU stays off",
        ));
    }
    Ok(Finding::good_if(
        covered == cpus.len(),
        format!(
            "{found}; steering by CPU {}",
            if covered == cpus.len() { "is possible" } else { "stays off" }
        ),
    )
    .because("until interrupts reach the CPU of every worker, steering would leave some workers without \
        connections")
    .advise(if queues < cpus.len() {
        format!(
            "{queues} queue interrupts cannot reach {} CPUs: add queues (locality-queues) if the card has more, \
             or distribute packets in software with RPS (locality-rps)",
            cpus.len()
        )
    } else {
        "first: tidegate tune apply locality-irq-affinity --yes".to_owned()
    })
    .applied_by_tidegate())
}
