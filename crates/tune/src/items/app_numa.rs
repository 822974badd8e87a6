//! app-numa: checks whether workers run on another memory node than the network card.

use crate::cpu_list::{list_text, parse_list};
use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "app-numa",
    group: Group::Application,
    title: "memory nodes of the workers and the network card",
    mechanism: "The network card writes packets into the memory of its own NUMA node. A worker on another \
        node reads every byte over the link between the CPU sockets, and takes locks and updates counters \
        across that link.",
    avoid: "Do not follow this if the CPUs of one node cannot carry the load: CPUs on another node are \
        slower, but better than too few CPUs.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 10.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let nodes: Vec<String> = host
        .list("/sys/devices/system/node")?
        .into_iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()))
        .collect();
    if nodes.len() < 2 {
        return Ok(Finding::good("one memory node"));
    }
    let allowed = allowed_cpus(host);
    let interfaces = data_interfaces(host, workload)?;
    let placed: Vec<(&str, u32)> = interfaces
        .iter()
        .filter_map(|interface| Some((interface.name.as_str(), interface.node?)))
        .collect();
    let Some((name, node)) = placed.first().copied() else {
        return Ok(Finding::skipped(format!(
            "{} memory nodes, but no network card reports its node",
            nodes.len()
        )));
    };
    if placed.iter().any(|(_, other)| *other != node) {
        let named: Vec<String> =
            placed.iter().map(|(name, node)| format!("{name} is on node {node}")).collect();
        return Ok(Finding::good(format!(
            "{} nodes; {}; run one Tidegate per node, listening on the address of that node's card",
            nodes.len(),
            named.join(", ")
        )));
    }
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    let text = host.read(&path)?;
    let local = parse_list(&text).ok_or_else(|| Unreadable::unexpected(&path, &text))?;
    let remote: Vec<u32> = allowed.iter().copied().filter(|cpu| !local.contains(cpu)).collect();
    let found = format!(
        "{} nodes; {name} is on node {node} (CPUs {text}); {} of {} usable CPUs are on other nodes",
        nodes.len(),
        remote.len(),
        allowed.len()
    );
    Ok(Finding::good_if(remote.is_empty(), found)
        .because("packets for workers on other nodes cross the link between the CPU sockets")
        .advise(format!("numactl --membind={node} --cpunodebind={node} tidegate run"))
        .advise(format!("or: taskset -c {} tidegate run", list_text(&local))))
}
