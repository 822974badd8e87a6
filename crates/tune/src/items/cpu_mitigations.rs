//! cpu-mitigations: lists the active protections against CPU bugs and the cost of each.

use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "cpu-mitigations",
    group: Group::Cpu,
    title: "protections against CPU bugs",
    mechanism: "The kernel protects its entries, exits and indirect calls against speculative execution \
        attacks. A server enters the kernel several times per request and pays for each protection. The \
        nine-steps article gained 28 % on a 2017 CPU by disabling them; CPUs since 2019 fix the most \
        expensive bugs in hardware.",
    avoid: "Keep the protections wherever code of other people runs on the same machine (shared hosting, \
        containers of other users, Lua of tenants), and whenever you are not sure. Tidegate never disables \
        them itself.",
    gain: Gain {
        benefit: Benefit::Throughput,
        percent: 28.0,
        source: NINE_STEPS,
        published: Published::Step(28.0),
    },
    risk: Risk::SecurityTrade,
    scope: Scope::Boot,
    kinds: EVERY_KIND,
    detect,
};

/// File name, cost in percent (from how the nine-steps article divides its 28 %, where it gives a figure), boot
/// parameter. Protections without a published cost under network load count as 0.
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
        format!("; not protected: {}", vulnerable.join(", "))
    };
    if active.is_empty() {
        return Ok(Finding::good(format!("no protection is active{open}")));
    }
    Ok(Finding::costs(format!("active: {}{open}", active.join(", ")))
        .percent(percent)
        .because(
            "the shares are those of the nine-steps article on its CPU; measure on your CPU before \
            you decide",
        )
        .advise(format!("boot parameters: {} (or mitigations=off)", words.join(" ")))
        .advise("add them to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub, reboot"))
}
