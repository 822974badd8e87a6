//! app-pinning: compares the CPUs that this process may use with the online CPUs.

use crate::cpu_list::list_text;
use crate::environment::{Environment, allowed_cpus};
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "app-pinning",
    group: Group::Application,
    title: "CPUs that the workers may use",
    mechanism: "One pinned worker per CPU keeps the state of a connection in one cache, and threads do not \
        migrate. A CPU that the process may not use serves no requests. In the nine-steps article, using \
        all CPUs instead of half of them gave 25 % more requests.",
    avoid: "Do not widen the CPU set if some CPUs are reserved on purpose for interrupts, the origin \
        server or other programs.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 25.0,
        source: NINE_STEPS,
        published: Published::PartOfStep(38.0),
    },
    risk: Risk::None,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let online = Environment::of(host).cpus;
    let allowed = allowed_cpus(host);
    if online.is_empty() || allowed.is_empty() {
        return Ok(Finding::skipped("neither /proc nor /sys lists the CPUs"));
    }
    let found = format!(
        "{} of {} online CPUs are usable ({})",
        allowed.len(),
        online.len(),
        list_text(&allowed)
    );
    Ok(Finding::good_if(allowed.len() >= online.len(), found)
        .because("taskset, a cpuset or CPUAffinity= in systemd excludes the other CPUs")
        .advise("if the other CPUs are idle, start the server without taskset or widen the cpuset")
        .applied_by_tidegate())
}
