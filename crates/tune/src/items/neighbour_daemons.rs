//! neighbour-daemons: other processes that wake often on the CPUs of the workers.

use crate::cpu_list::parse_list;
use crate::environment::allowed_cpus;
use crate::finding::Finding;
use crate::host::{Host, Unreadable};
use crate::item::{Benefit, EVERY_KIND, Gain, Group, Item, NINE_STEPS, Published, Risk, Scope};
use crate::workload::Workload;

/// The item.
pub const ITEM: Item = Item {
    id: "neighbour-daemons",
    group: Group::Neighbours,
    title: "daemons that wake often",
    mechanism: "A daemon that wakes on the CPU of a worker interrupts that worker and leaves cold \
        caches, which increases the highest latency percentiles. Cloud agents, monitoring and package \
        updaters are the usual cause.",
    avoid: "Do not stop services that the host needs: give them CPUs of their own instead (CPUAffinity= in \
        systemd).",
    gain: Gain {
        benefit: Benefit::Latency,
        percent: 2.0,
        source: NINE_STEPS,
        published: Published::No,
    },
    risk: Risk::Trade,
    scope: Scope::Process,
    kinds: EVERY_KIND,
    detect,
};

/// A process is listed if it wakes this often per second, averaged over its life.
const WAKES_PER_S_MIN: u64 = 20;
/// Minimum age of a process for its average to be meaningful.
const LIFE_S_MIN: u64 = 60;
/// Clock ticks per second in /proc/PID/stat (fixed for user space on Linux).
const TICKS_PER_S: u64 = 100;

fn detect(host: &Host, _: &Workload) -> Result<Finding, Unreadable> {
    let uptime = host.read("/proc/uptime")?;
    let now_s: u64 = uptime.split('.').next().and_then(|s| s.parse().ok()).unwrap_or(0);
    let workers = allowed_cpus(host);
    let (mut busy, mut seen) = (Vec::new(), 0);
    for pid in host.list("/proc")? {
        if pid.parse::<u32>().is_err() {
            continue;
        }
        let Ok(status) = host.read(&format!("/proc/{pid}/status")) else {
            continue;
        };
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
        };
        // Kernel threads have no VmSize; capacity-kernel-threads checks them.
        if field("VmSize").is_none() {
            continue;
        }
        seen += 1;
        let wakes: u64 = field("voluntary_ctxt_switches").and_then(|n| n.parse().ok()).unwrap_or(0);
        let here = field("Cpus_allowed_list")
            .and_then(parse_list)
            .is_some_and(|cpus| cpus.iter().any(|cpu| workers.contains(cpu)));
        let life_s = now_s.saturating_sub(started_s(host, &pid).unwrap_or(now_s));
        let rate = wakes.checked_div(life_s).unwrap_or(0);
        if here && life_s >= LIFE_S_MIN && rate >= WAKES_PER_S_MIN {
            busy.push((rate, format!("{} ({pid}) {rate}/s", field("Name").unwrap_or("?"))));
        }
    }
    busy.sort_by(|one, other| other.cmp(one));
    if busy.is_empty() {
        return Ok(Finding::good(format!(
            "none of {seen} processes wakes {WAKES_PER_S_MIN} times or more per second on average"
        )));
    }
    let named: Vec<String> = busy.iter().take(5).map(|(_, name)| name.clone()).collect();
    Ok(Finding::costs(format!(
        "processes that wake often on the CPUs of the workers: {}",
        named.join(", ")
    ))
    .advise(
        "stop services that you do not need, or restrict them to another CPU: systemctl \
            set-property NAME.service AllowedCPUs=0",
    ))
}

/// Start time of a process, in seconds after boot: field 22 of /proc/PID/stat.
fn started_s(host: &Host, pid: &str) -> Option<u64> {
    let stat = host.read(&format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks: u64 = after_name.split_whitespace().nth(19)?.parse().ok()?;
    Some(ticks / TICKS_PER_S)
}
