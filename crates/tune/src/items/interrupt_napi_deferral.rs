//! interrupt-napi-deferral: deferring interrupts while the kernel polls the card.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::interfaces::data_interfaces;
use crate::item::{Benefit, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "interrupt-napi-deferral",
    group: Group::Interrupts,
    title: "deferred hard interrupts (NAPI)",
    mechanism: "napi_defer_hard_irqs keeps the interrupt of the card masked for a number of empty polls, \
        and gro_flush_timeout is the timer that polls in the meantime. Under load, packets then arrive in \
        batches without interrupts, and generic receive offload joins more of them.",
    avoid: "Do not apply this where single packets at low load must be fast: a packet may wait for the \
        timer (20 microseconds with the values here).",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 5.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Card,
    kinds: &[For::Json, For::Proxy],
    detect,
};

const FLUSH_NS: u64 = 20_000;
const EMPTY_POLLS: u64 = 2;

fn detect(host: &Host, workload: &Workload) -> Result<Finding, Unreadable> {
    let (mut lines, mut actions) = (Vec::new(), Vec::new());
    for interface in data_interfaces(host, workload)? {
        let (defer, flush) =
            (interface.path("napi_defer_hard_irqs"), interface.path("gro_flush_timeout"));
        let (polls, timeout_ns) = (host.read_number(&defer)?, host.read_number(&flush)?);
        lines.push(format!("{}: {polls} empty polls, timer {timeout_ns} ns", interface.name));
        if polls == 0 || timeout_ns == 0 {
            // Set the timer first: deferring without it would leave packets waiting.
            actions.push(Action::setting(flush, FLUSH_NS));
            actions.push(Action::setting(defer, EMPTY_POLLS));
        }
    }
    let finding = Finding::good_if(actions.is_empty(), lines.join("; "));
    Ok(actions.into_iter().fold(finding, Finding::action))
}
