//! locality-reuseport: whether connections can be steered to the worker of their CPU.

use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::{data_interfaces, interrupt_cpus};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "locality-reuseport",
    group: Group::Locality,
    title: "connections to the CPU of their packets",
    mechanism: "Tidegate opens a listener per worker in CPU order and can attach a two-instruction program that picks the \
        listener of the CPU that received the packet. It pays only when interrupts reach every worker's CPU; else it \
        would pile all connections onto one worker, so Tidegate looks at the interrupts first.",
    avoid: "On loopback, or with fewer queues than workers: leave `server.steer-by-cpu` at \"auto\".",
    gain: Gain { benefit: Benefit::Throughput, percent: 10.0, source: NINE_STEPS },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let cpus = allowed_cpus(host);
    let (mut reached, mut queues) = (Vec::<u32>::new(), 0);
    for interface in data_interfaces(host, workload)? {
        // Only those that receive: the first of each pair.
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
        return Ok(Finding::good("one usable CPU: nothing to steer"));
    }
    if reached.is_empty() {
        return Ok(Finding::skipped("no interrupt of a card can be read; steering stays off"));
    }
    Ok(Finding::good_if(
        covered == cpus.len(),
        format!(
            "{found}; steering by CPU {}",
            if covered == cpus.len() { "is possible" } else { "stays off" }
        ),
    )
    .because("until interrupts reach every worker's CPU, steering would starve some workers")
    .advise(if queues < cpus.len() {
        format!(
            "{queues} queue interrupts cannot reach {} CPUs: more queues (locality-queues) where the card has them, \
             else RPS (locality-rps) spreads packets in software",
            cpus.len()
        )
    } else {
        "first: tidegate tune apply locality-irq-affinity".to_owned()
    })
    .by_itself())
}
