//! cpu-mitigations: protections against CPU bugs, by name, with what each costs.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "cpu-mitigations",
    group: Group::Cpu,
    title: "protections against CPU bugs",
    mechanism: "The kernel guards its entries, exits and indirect calls against speculative attacks. A server enters the \
        kernel some times per request, so it pays for each guard. The founding article gained 28 % on a 2017 CPU by \
        leaving them off; CPUs since 2019 fix the dearest ones in hardware.",
    avoid: "Wherever code of others runs on the same machine (shared hosting, containers of strangers, Lua of tenants), \
        and wherever you are not sure. Tidegate never does it for you.",
    gain: Gain { benefit: Benefit::Throughput, percent: 28.0, source: NINE_STEPS },
    risk: Risk::SecurityTrade,
    scope: Scope::Boot,
    kinds: EVERY_KIND,
    detect,
};

/// File name, percent (of the founding article's split of its 28 %, where it names one), boot word.
/// Those without a published cost on a network load count nothing.
const COSTS: [(&str, f64, &str); 11] = [
    ("spectre_v2", 15.0, "spectre_v2=off"),
    ("meltdown", 6.0, "nopti"),
    ("mds", 6.0, "mds=off"),
    ("tsx_async_abort", 0.0, "tsx_async_abort=off"),
    ("spectre_v1", 1.5, "nospectre_v1"),
    ("retbleed", 0.0, "retbleed=off"),
    ("mmio_stale_data", 0.0, "mmio_stale_data=off"),
    ("spec_rstack_overflow", 0.0, "spec_rstack_overflow=off"),
    ("gather_data_sampling", 0.0, "gather_data_sampling=off"),
    ("reg_file_data_sampling", 0.0, "reg_file_data_sampling=off"),
    ("indirect_target_selection", 0.0, "indirect_target_selection=off"),
];

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    let names = host.list(folder)?;
    let (mut active, mut percent, mut words, mut vulnerable) = (vec![], 0.0, vec![], vec![]);
    for name in &names {
        let Ok(state) = host.read(&format!("{folder}/{name}")) else {
            continue;
        };
        if state.starts_with("Mitigation") {
            let cost = COSTS.iter().find(|(known, ..)| known == name);
            let cheap = state.contains("Enhanced") || state.contains("Automatic IBRS");
            let share = cost.map_or(0.0, |(_, share, _)| if cheap { 1.0 } else { *share });
            percent += share;
            active.push(if share > 0.0 { format!("{name} (~{share} %)") } else { name.clone() });
            words.extend(cost.map(|(_, _, word)| *word));
        } else if state.starts_with("Vulnerable") {
            vulnerable.push(name.as_str());
        }
    }
    let open = if vulnerable.is_empty() {
        String::new()
    } else {
        format!("; unprotected: {}", vulnerable.join(", "))
    };
    if active.is_empty() {
        return Ok(Finding::good(format!("no protection is active{open}")));
    }
    Ok(Finding::costs(format!("active: {}{open}", active.join(", ")))
        .percent(percent)
        .because("the share of each is the founding article's on its CPU; measure it on yours before you decide")
        .advise(format!("boot parameters: {} (or mitigations=off)", words.join(" ")))
        .advise("write them to GRUB_CMDLINE_LINUX, run update-grub, restart"))
}
