//! locality-queues: compares the receive queues of the network card with the CPUs.

use crate::action::Action;
use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Cause, Host, Unreadable};
use crate::interfaces::{Interface, data_interfaces, interrupts_of};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "locality-queues",
    group: Group::Locality,
    title: "queues of the network card",
    mechanism: "The network card distributes connections over its receive queues by a hash (RSS), and one \
        CPU serves each queue. With fewer queues than CPUs, some CPUs receive no packets; more queues than \
        CPUs only add interrupts.",
    avoid: "Do not apply this while traffic flows: most drivers drop the link for a moment when the number \
        of queues changes.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 20.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(38.0),
    },
    risk: Risk::Trade,
    scope: Scope::Card,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let cpus = allowed_cpus(host).len();
    let (mut lines, mut good, mut actions) = (Vec::new(), true, Vec::new());
    let mut unknown = None;
    for interface in data_interfaces(host, workload)? {
        let name = &interface.name;
        let shown = host.ask(&["ethtool", "-l", name]);
        let seen = interface.rx_queues;
        if let Err(error) = &shown
            && error.cause == Cause::MissingTool
            && seen < cpus
        {
            unknown = Some(format!(
                "{name}: receive queues {seen}, CPUs {cpus}; reading the maximum of the card requires \
                 the tool ethtool, which is not installed"
            ));
        }
        let Some((max, present, kind)) = shown.ok().and_then(|text| channels(&text)) else {
            lines.push(format!("{name}: receive queues {seen}, CPUs {cpus}"));
            continue;
        };
        lines.push(format!("{name}: {present} of at most {max} receive queues, for {cpus} CPUs"));
        let reachable = cpus.min(max);
        if present >= reachable {
            continue;
        }
        good = false;
        actions.extend(set_by_driver(host, &interface));
        actions.push(Action::run(
            &format!("ethtool -L {name} {kind} {reachable}"),
            &format!("ethtool -L {name} {kind} {present}"),
            &format!("ethtool -l {name}"),
        ));
    }
    if let Some(reason) = unknown.filter(|_| good) {
        return Ok(Finding::skipped(reason));
    }
    let finding = Finding::good_if(good, lines.join("; "))
        .because("CPUs without a queue receive packets only through another CPU");
    Ok(actions.into_iter().fold(finding, Finding::action))
}

/// Saves the settings that a driver may overwrite when the number of queues changes.
fn set_by_driver(host: &Host, interface: &Interface) -> Vec<Action> {
    // Includes the interrupts of queues that are turned off: the driver places them when it turns them on.
    let interrupts = interrupts_of(host, &interface.name)
        .into_iter()
        .map(|(number, _)| format!("/proc/irq/{number}/smp_affinity_list"));
    let senders = (0..interface.tx_queues)
        .map(|queue| interface.path(&format!("queues/tx-{queue}/xps_cpus")));
    interrupts
        .chain(senders)
        .filter(|path| host.read(path).is_ok())
        .map(|path| Action::SideEffect { path })
        .collect()
}

/// the maximum and the current number of queues, and the kind of channel, from `ethtool -l`.
fn channels(text: &str) -> Option<(usize, usize, &'static str)> {
    for (label, kind) in [("Combined:", "combined"), ("RX:", "rx")] {
        let numbers: Vec<usize> =
            text.lines().filter_map(|line| line.strip_prefix(label)?.trim().parse().ok()).collect();
        if let [max, present] = numbers[..]
            && max > 0
        {
            return Some((max, present, kind));
        }
    }
    None
}
