//! app-pinning: the CPUs this process may use against those that are online.

use crate::cpu_list::list_text;
use crate::environment::{Environment, allowed_cpus};
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "app-pinning",
    group: Group::Application,
    title: "CPUs that the workers may use",
    mechanism: "One pinned worker per CPU keeps a connection's state in one cache and lets nothing migrate. A CPU that \
        the process may not use serves nothing. In the founding article, using all CPUs instead of half gave a quarter more.",
    avoid: "CPUs that are left to interrupts, to the origin server or to other programs on purpose.",
    gain: Gain { benefit: Benefit::Throughput, percent: 25.0, source: NINE_STEPS },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let online = Environment::of(host).cpus;
    let allowed = allowed_cpus(host);
    if online.is_empty() || allowed.is_empty() {
        return Ok(Finding::skipped("neither /proc nor /sys says which CPUs there are"));
    }
    let found = format!(
        "{} of {} online CPUs are usable ({})",
        allowed.len(),
        online.len(),
        list_text(&allowed)
    );
    Ok(Finding::good_if(allowed.len() >= online.len(), found)
        .because("taskset, a cpuset or systemd's CPUAffinity= keeps the others away")
        .advise("start the server without taskset, or widen the cpuset, if the others are idle")
        .by_itself())
}
