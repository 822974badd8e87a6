//! cpu-idle-states: checks how long an idle CPU takes to wake.

use crate::action::Action;
use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "cpu-idle-states",
    group: Group::Cpu,
    title: "deep idle states",
    mechanism: "A CPU enters deeper idle states the longer it is idle. The deepest states take 100 \
        microseconds or more to leave, and the first packet after a pause waits for that time.",
    avoid: "Do not apply this where power use matters, or where turbo matters: cores in deep idle states \
        leave power to the busy ones.",
    gain: Gain {
        benefit: Benefit::Latency,
        percent: 3.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Hardware,
    kinds: EVERY_KIND,
    detect,
};

/// Idle states with a wake-up time up to this stay enabled.
const LATENCY_US_MAX: u64 = 20;

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let (mut slow, mut worst_us, mut seen) = (Vec::new(), 0, 0);
    for cpu in allowed_cpus(host) {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
        for state in host.list(&folder).unwrap_or_default() {
            let Ok(latency_us) = host.read_number(&format!("{folder}/{state}/latency")) else {
                continue;
            };
            seen += 1;
            let disable = format!("{folder}/{state}/disable");
            if latency_us > LATENCY_US_MAX && host.read(&disable).as_deref() == Ok("0") {
                worst_us = worst_us.max(latency_us);
                slow.push(disable);
            }
        }
    }
    if seen == 0 {
        return Ok(Finding::skipped("no CPU has idle states (usual in virtual machines)"));
    }
    if slow.is_empty() {
        return Ok(Finding::good(format!(
            "no idle state takes more than {LATENCY_US_MAX} us to leave"
        )));
    }
    let finding = Finding::costs(format!("the deepest idle state takes {worst_us} us to leave"));
    Ok(slow.into_iter().fold(finding, |finding, path| finding.action(Action::setting(path, 1))))
}
