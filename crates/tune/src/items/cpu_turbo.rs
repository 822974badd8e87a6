//! cpu-turbo: checks whether CPUs may run above their nominal clock.

use crate::action::Action;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, Gain, Group, Item, KERNEL_DOCS, Published, Risk, Scope};
use crate::workload::{For, Workload};

/// The item.
pub const ITEM: Item = Item {
    id: "cpu-turbo",
    group: Group::Cpu,
    title: "turbo",
    mechanism: "Turbo lets busy cores run above their nominal clock frequency while power and heat allow, \
        often by a third when few cores are busy.",
    avoid: "Keep turbo off for benchmarks that must be repeatable: with turbo, figures depend on heat and \
        on the load of other cores.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 10.0,
        source: KERNEL_DOCS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Hardware,
    kinds: &[For::Json, For::Proxy],
    detect,
};

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let intel = "/sys/devices/system/cpu/intel_pstate/no_turbo";
    let others = "/sys/devices/system/cpu/cpufreq/boost";
    let (path, on) = match host.read(intel) {
        Ok(no_turbo) => (intel, no_turbo == "0"),
        Err(_) => match host.read(others) {
            Ok(boost) => (others, boost == "1"),
            Err(_) => {
                return Ok(Finding::skipped("neither intel_pstate nor cpufreq has a turbo switch"));
            }
        },
    };
    let wanted = if path == intel { 0 } else { 1 };
    Ok(Finding::good_if(on, if on { "turbo is on" } else { "turbo is off" })
        .action(Action::setting(path, wanted)))
}
