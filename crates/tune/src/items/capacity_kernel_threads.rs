//! capacity-kernel-threads: the CPUs on which the kernel's work queues run.

use crate::action::Action;
use crate::cpu_list::{list_text, mask_text, parse_mask};
use crate::environment::{Environment, allowed_cpus};
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "capacity-kernel-threads",
    group: Group::Capacity,
    title: "CPUs of the kernel's work queues",
    mechanism: "Unbound kernel work queues (write-back, some drivers, RCU callbacks) run on any CPU in \
        their mask. If some CPUs are reserved for workers, restricting the mask to the other CPUs shortens \
        the tail latency of the workers.",
    avoid: "Do not apply this if the workers use all CPUs: the work queues then have no other CPU to run on.",
    gain: Gain {
        benefit: Benefit::Latency,
        percent: 1.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let path = "/sys/devices/virtual/workqueue/cpumask";
    let text = host.read(path)?;
    let mask = parse_mask(&text).ok_or_else(|| Unreadable::unexpected(path, &text))?;
    let workers = allowed_cpus(host);
    let others: Vec<u32> =
        Environment::of(host).cpus.into_iter().filter(|cpu| !workers.contains(cpu)).collect();
    let found =
        format!("work queues on CPUs {}, workers on {}", list_text(&mask), list_text(&workers));
    if others.is_empty() {
        return Ok(Finding::good(format!("{found}; no CPU is reserved for the kernel")));
    }
    Ok(Finding::good_if(!mask.iter().any(|cpu| workers.contains(cpu)), found)
        .action(Action::setting(path, mask_text(&others))))
}
