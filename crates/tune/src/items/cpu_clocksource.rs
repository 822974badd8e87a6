//! cpu-clocksource: checks whether reading the time enters the kernel.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "cpu-clocksource",
    group: Group::Cpu,
    title: "clock source",
    mechanism: "With tsc, kvm-clock, hyperv or arch_sys_counter the time is read in user space in about 20 \
        ns. With hpet, acpi_pm or xen each reading is a system call of half a microsecond or more. Event \
        loops and the kernel's TCP timers read the time many times per request.",
    avoid: "Do not apply this if the kernel itself rejected tsc as unstable (see dmesg): the time would \
        jump.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 5.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Kernel,
    kinds: EVERY_KIND,
    detect,
};

const FAST: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "s390"];

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let current = format!("{folder}/current_clocksource");
    let present = host.read(&current)?;
    let available = host.read(&format!("{folder}/available_clocksource")).unwrap_or_default();
    if FAST.contains(&present.as_str()) {
        return Ok(Finding::good(format!("{present} (read in user space)")));
    }
    let finding = Finding::costs(format!("{present}; available: {available}"))
        .because("each reading of the time is a system call");
    match FAST.iter().find(|fast| available.split_whitespace().any(|name| name == **fast)) {
        Some(fast) => Ok(finding.action(Action::setting(current, fast))),
        None => Ok(finding.advise(
            "the kernel offers no faster clock source; dmesg shows the reason \
            (often: tsc unstable)",
        )),
    }
}
