//! locality-irqbalance: a daemon that moves interrupts about.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "locality-irqbalance",
    group: Group::Locality,
    title: "irqbalance",
    mechanism: "irqbalance moves interrupts to other CPUs every ten seconds by their load. It undoes a placement that \
        matches workers and queues, and with it the steering of connections by CPU.",
    avoid: "On hosts with changing mixed work, where nobody places interrupts by hand.",
    gain: Gain { benefit: Benefit::Throughput, percent: 5.0, source: NINE_STEPS },
    risk: Risk::Trade,
    scope: Scope::Card,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let pids = host.list("/proc")?;
    let running = pids
        .iter()
        .filter(|pid| pid.parse::<u32>().is_ok())
        .find(|pid| host.read(&format!("/proc/{pid}/comm")).as_deref() == Ok("irqbalance"));
    let Some(pid) = running else {
        return Ok(Finding::good("it does not run"));
    };
    let finding = Finding::costs(format!("it runs (process {pid})"));
    if host.exists("/run/systemd/system") {
        return Ok(finding
            .action(Action::run(
                "systemctl stop irqbalance.service",
                "systemctl start irqbalance.service",
                "systemctl show -p ActiveState irqbalance.service",
            ))
            .advise("to keep it off: systemctl disable irqbalance"));
    }
    Ok(finding
        .advise("stop it where it is started, or ban the card's interrupts: irqbalance --banirq=N"))
}
