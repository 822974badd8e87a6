//! app-smt-siblings: reports hardware threads that share a core.

use crate::cpu_list::{list_text, parse_list};
use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "app-smt-siblings",
    group: Group::Application,
    title: "hardware threads that share a core",
    mechanism: "Two hardware threads of a core share its caches and execution units. Together they do \
        roughly a quarter more work than one thread alone, and each runs slower while the other is busy. \
        One worker per hardware thread gives the most requests; one worker per core gives the steadiest \
        latency.",
    avoid: "Do not follow this if throughput matters most: the default of one worker per hardware thread \
        is right.",
    gain: Gain {
        benefit: Benefit::Latency,
        percent: 2.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Process,
    kinds: &[For::Json, For::Proxy],
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let allowed = allowed_cpus(host);
    let mut cores = Vec::new();
    for cpu in &allowed {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let text = host.read(&path)?;
        let siblings = parse_list(&text).ok_or_else(|| Unreadable::unexpected(&path, &text))?;
        if siblings.first() == Some(cpu) || !siblings.iter().any(|other| allowed.contains(other)) {
            cores.push(*cpu);
        }
    }
    if cores.len() >= allowed.len() {
        return Ok(Finding::good(format!("{} usable CPUs, each a core of its own", allowed.len())));
    }
    Ok(Finding::good(format!(
        "{} usable CPUs on {} cores; for the steadiest latency: taskset -c {} tidegate run",
        allowed.len(),
        cores.len(),
        list_text(&cores)
    )))
}
