//! locality-rps: distribution of received packets over CPUs in software.

use crate::action::Action;
use crate::cpu_list::{mask_text, parse_mask};
use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "locality-rps",
    group: Group::Locality,
    title: "receive steering in software (RPS, RFS)",
    mechanism: "RPS distributes the packets of one queue over several CPUs, with an interrupt between \
        CPUs. RFS picks the CPU on which the reader of the connection runs. Both help if the network card \
        has fewer queues than there are CPUs, and only cost time if it has enough.",
    avoid: "Do not enable this with as many queues as CPUs, or if one CPU can process all packets.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 10.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Card,
    kinds: EVERY_KIND,
    detect,
};

/// Flows in the RFS table, over all queues.
const FLOWS: u64 = 32_768;

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let cpus = allowed_cpus(host);
    let table = "/proc/sys/net/core/rps_sock_flow_entries";
    let (mut lines, mut actions, mut looked) = (Vec::new(), Vec::new(), false);
    for interface in data_interfaces(host, workload)? {
        let queues = interface.rx_queues;
        let enough = queues >= cpus.len();
        for queue in 0..queues {
            let mask_path = interface.path(&format!("queues/rx-{queue}/rps_cpus"));
            let Ok(mask) = host.read(&mask_path) else {
                continue;
            };
            let on = parse_mask(&mask).is_some_and(|cpus| !cpus.is_empty());
            looked = true;
            if queue == 0 {
                let state = if on { "on" } else { "off" };
                lines.push(format!(
                    "{}: queues {queues}, CPUs {}, RPS {state}",
                    interface.name,
                    cpus.len()
                ));
            }
            if enough && on {
                actions.push(Action::setting(mask_path, 0));
            } else if !enough && !on {
                actions.push(Action::setting(mask_path, mask_text(&cpus)));
                let flows = interface.path(&format!("queues/rx-{queue}/rps_flow_cnt"));
                if host.exists(&flows) {
                    // The kernel rounds up to a power of two. Write the rounded value, so that it reads back
                    // unchanged.
                    let each = (FLOWS / queues.max(1) as u64).next_power_of_two();
                    actions.push(Action::setting(flows, each));
                }
            }
        }
    }
    if !looked {
        return Ok(Finding::skipped("no receive queue supports RPS (kernel without CONFIG_RPS)"));
    }
    let turns_on = actions.iter().any(|action| !action.command_text().starts_with("echo 0 "));
    let finding = Finding::good_if(actions.is_empty(), lines.join("; "));
    let finding = actions.into_iter().fold(finding, Finding::action);
    if turns_on && host.read_number(table).is_ok_and(|entries| entries < FLOWS) {
        return Ok(finding.action(Action::setting(table, FLOWS)));
    }
    Ok(finding)
}
