//! locality-queues: receive queues of the card against the CPUs.

use crate::action::Action;
use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Cause, Host, Unreadable};
use crate::interfaces::{Interface, data_interfaces, interrupts_of};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "locality-queues",
    group: Group::Locality,
    title: "queues of the card",
    mechanism: "The card spreads connections over its receive queues by a hash (RSS), and each queue is served by one CPU. \
        Fewer queues than CPUs leave CPUs without packets; more than CPUs only add interrupts.",
    avoid: "While traffic flows: most drivers drop the link for a moment when the number changes.",
    gain: Gain { benefit: Benefit::Throughput, percent: 20.0, source: NINE_STEPS },
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
                "{name}: {seen} receive queues for {cpus} CPUs; whether the card has more, the tool ethtool \
                 says (not installed)"
            ));
        }
        let Some((max, present, kind)) = shown.ok().and_then(|text| channels(&text)) else {
            lines.push(format!("{name}: {seen} receive queues for {cpus} CPUs"));
            continue;
        };
        lines.push(format!("{name}: {present} receive queues of {max} for {cpus} CPUs"));
        let reachable = cpus.min(max);
        if present >= reachable {
            continue;
        }
        good = false;
        actions.extend(placed_anew(host, &interface));
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
        .because("CPUs without a queue get packets only through another CPU");
    Ok(actions.into_iter().fold(finding, Finding::action))
}

/// What a driver may set anew when the number of queues changes, whoever had set it.
fn placed_anew(host: &Host, interface: &Interface) -> Vec<Action> {
    // Those of queues that are turned off too: the driver places them when it turns them on.
    let interrupts = interrupts_of(host, &interface.name)
        .into_iter()
        .map(|(number, _)| format!("/proc/irq/{number}/smp_affinity_list"));
    let senders = (0..interface.tx_queues)
        .map(|queue| interface.path(&format!("queues/tx-{queue}/xps_cpus")));
    interrupts
        .chain(senders)
        .filter(|path| host.read(path).is_ok())
        .map(|path| Action::Beside { path })
        .collect()
}

/// The highest and the present number of queues, and the kind that counts, from `ethtool -l`.
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
