//! locality-irqbalance: a daemon that moves interrupts between CPUs.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "locality-irqbalance",
    group: Group::Locality,
    title: "irqbalance",
    mechanism: "irqbalance moves interrupts between CPUs every ten seconds according to load. It undoes a \
        placement that matches workers and queues, and with it the steering of connections by CPU.",
    avoid: "Keep irqbalance on hosts with changing mixed work where interrupts are not placed by hand.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 5.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(38.0),
    },
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
        return Ok(Finding::good("irqbalance is not running"));
    };
    let finding = Finding::costs(format!("irqbalance runs (process {pid})"));
    if host.exists("/run/systemd/system") {
        return Ok(finding
            .action(Action::run(
                "systemctl stop irqbalance.service",
                "systemctl start irqbalance.service",
                "systemctl show -p ActiveState irqbalance.service",
            ))
            .advise("to keep it stopped after a reboot: systemctl disable irqbalance"));
    }
    Ok(finding.advise(
        "stop it in the service manager that starts it, or exclude the interrupts of the card: \
            irqbalance --banirq=N",
    ))
}
