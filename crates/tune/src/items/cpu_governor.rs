//! cpu-governor: whether CPUs run at full clock under load.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "cpu-governor",
    group: Group::Cpu,
    title: "frequency governor",
    mechanism: "Governors such as powersave and ondemand raise the clock only after some load was seen. Short requests \
        with pauses between them run at a low clock, and the tail shows the climb.",
    avoid: "On batteries, and where power or heat is what limits: a CPU that is always hot may turbo less.",
    gain: Gain { benefit: Benefit::Latency, percent: 10.0, source: KERNEL_DOCS },
    risk: Risk::Trade,
    scope: Scope::Hardware,
    kinds: EVERY_KIND,
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let mut slow = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for cpu in host.list("/sys/devices/system/cpu")? {
        let path = format!("/sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor");
        let Ok(governor) = host.read(&path) else {
            continue;
        };
        // intel_pstate's and amd_pstate's powersave with a performance preference is as good.
        let preference =
            format!("/sys/devices/system/cpu/{cpu}/cpufreq/energy_performance_preference");
        let preferred = host.read(&preference).unwrap_or_default();
        if governor != "performance" && preferred != "performance" {
            slow.push(path);
        }
        if !names.contains(&governor) {
            names.push(governor);
        }
    }
    if names.is_empty() {
        return Ok(Finding::skipped(
            "no CPU shows a frequency governor (usual in virtual machines)",
        ));
    }
    let finding = Finding::good_if(slow.is_empty(), format!("governor: {}", names.join(", ")))
        .because("requests after a pause start at a low clock");
    Ok(slow
        .into_iter()
        .fold(finding, |finding, path| finding.action(Action::setting(path, "performance"))))
}
