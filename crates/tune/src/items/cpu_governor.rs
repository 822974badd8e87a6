//! cpu-governor: checks whether the frequency governor keeps CPUs at a low clock.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "cpu-governor",
    group: Group::Cpu,
    title: "frequency governor",
    mechanism: "Governors such as powersave and ondemand raise the clock frequency only after they \
        have seen load. Short requests with pauses between them run at a low frequency, which \
        increases the tail latency.",
    avoid: "Do not apply this on battery power, or where power or heat is the limit: a CPU that is always \
        hot may use less turbo.",
    gain: Gain {
        benefit: Benefit::Latency,
        percent: 10.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
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
        // powersave of intel_pstate and amd_pstate with a performance preference is equally good.
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
        return Ok(Finding::skipped("no CPU has a frequency governor (usual in virtual machines)"));
    }
    let finding = Finding::good_if(slow.is_empty(), format!("governor: {}", names.join(", ")))
        .because("requests after a pause start at a low clock frequency");
    Ok(slow
        .into_iter()
        .fold(finding, |finding, path| finding.action(Action::setting(path, "performance"))))
}
