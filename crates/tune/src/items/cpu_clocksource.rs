//! cpu-clocksource: whether reading the time enters the kernel.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "cpu-clocksource",
    group: Group::Cpu,
    title: "clock source",
    mechanism: "With tsc, kvm-clock, hyperv or arch_sys_counter the time is read in user space in some 20 ns. With hpet, \
        acpi_pm or xen each reading is a system call of half a microsecond and more; event loops and the kernel's own \
        TCP timers read it many times a request.",
    avoid: "When the kernel itself turned away from tsc as unstable (see dmesg): then time would jump.",
    gain: Gain { benefit: Benefit::Throughput, percent: 5.0, source: KERNEL_DOCS },
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
        None => Ok(finding.advise("no faster one is offered: see dmesg for why (tsc unstable?)")),
    }
}
