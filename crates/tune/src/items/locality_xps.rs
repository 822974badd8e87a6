//! locality-xps: which CPU sends on which transmit queue.

use crate::action::Action;
use crate::cpu_list::{mask_text, parse_mask};
use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "locality-xps",
    group: Group::Locality,
    title: "transmit steering (XPS)",
    mechanism: "XPS assigns each transmit queue to CPUs, so that a CPU sends on its own queue. CPUs then \
        share no queue lock, and the interrupt that frees sent packets arrives at the CPU that sent \
        them.",
    avoid: "Not needed if the driver already assigns queues to CPUs; this item then reports it as good.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 8.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(38.0),
    },
    risk: Risk::None,
    scope: Scope::Card,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let cpus = allowed_cpus(host);
    let (mut lines, mut actions) = (Vec::new(), Vec::new());
    let mut skipped = Vec::new();
    for interface in data_interfaces(host, workload)? {
        let queues = interface.tx_queues;
        let masks: Vec<(String, String)> = (0..queues)
            .map(|queue| interface.path(&format!("queues/tx-{queue}/xps_cpus")))
            .filter_map(|path| host.read(&path).ok().map(|mask| (path, mask)))
            .collect();
        if queues < 2 || masks.len() < queues {
            skipped.push(format!(
                "{}: {queues} transmit queue(s), of which XPS can steer {}",
                interface.name,
                masks.len()
            ));
            continue;
        }
        let tied = masks
            .iter()
            .filter(|(_, mask)| parse_mask(mask).is_some_and(|cpus| !cpus.is_empty()))
            .count();
        lines.push(format!(
            "{}: {tied} of {queues} transmit queues are assigned to CPUs",
            interface.name
        ));
        if tied == queues {
            continue;
        }
        for (queue, (path, _)) in masks.into_iter().enumerate() {
            let own: Vec<u32> = cpus.iter().copied().skip(queue).step_by(queues).collect();
            if !own.is_empty() {
                actions.push(Action::setting(path, mask_text(&own)));
            }
        }
    }
    if lines.is_empty() {
        return Ok(Finding::skipped(skipped.join("; ")));
    }
    let finding = Finding::good_if(actions.is_empty(), lines.join("; "));
    Ok(actions.into_iter().fold(finding, Finding::action))
}
