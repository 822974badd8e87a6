//! Facts about this machine from the kernel: CPU time, memory, limits, environment.
//! In: files of /proc and /sys. Out: numbers and short strings; zero, empty or "unknown" if a file is missing.
//! Never: changes anything except this thread's CPUs and this process's soft descriptor limit.

use rustix::process::{Resource, Rlimit};
use rustix::thread::CpuSet;
use std::fs;
use std::time::Duration;

/// Ticks per second of the times in /proc (USER_HZ, which Linux fixes at 100 for user space).
const TICKS_PER_SECOND: u64 = 100;

/// Traffic of all network interfaces, loopback included, and the soft interrupts of the network, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkUse {
    /// Packets received.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Bytes received, including link-layer headers.
    pub bytes_in: u64,
    /// Bytes sent, including link-layer headers.
    pub bytes_out: u64,
    /// Soft interrupts for receiving and sending (NET_RX, NET_TX), on all CPUs.
    pub soft_interrupts: u64,
}

impl NetworkUse {
    /// The current counts; zero where a file is missing.
    #[must_use]
    pub fn now() -> Self {
        let devices = fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let soft = fs::read_to_string("/proc/softirqs").unwrap_or_default();
        Self::parse(&devices, &soft)
    }

    fn parse(devices: &str, soft_interrupts: &str) -> Self {
        let mut sum = Self::default();
        for (_, numbers) in devices.lines().filter_map(|line| line.split_once(':')) {
            let numbers: Vec<u64> =
                numbers.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
            // Columns (proc(5)): 8 for received packets (bytes, packets, ...), then 8 for sent packets.
            if let [bytes_in, packets_in, _, _, _, _, _, _, bytes_out, packets_out, ..] =
                numbers[..]
            {
                sum.bytes_in += bytes_in;
                sum.packets_in += packets_in;
                sum.bytes_out += bytes_out;
                sum.packets_out += packets_out;
            }
        }
        sum.soft_interrupts = soft_interrupts
            .lines()
            .filter_map(|line| line.trim_start().split_once(':'))
            .filter(|(name, _)| matches!(*name, "NET_RX" | "NET_TX"))
            .flat_map(|(_, counts)| counts.split_ascii_whitespace())
            .filter_map(|count| count.parse::<u64>().ok())
            .sum();
        sum
    }

    /// The counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            packets_in: self.packets_in.saturating_sub(earlier.packets_in),
            packets_out: self.packets_out.saturating_sub(earlier.packets_out),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            soft_interrupts: self.soft_interrupts.saturating_sub(earlier.soft_interrupts),
        }
    }
}

/// Time since boot during which `cpus` were not idle: user, nice, system, interrupts and stolen time of all
/// processes. Resolution: 10 ms.
#[must_use]
pub fn busy_time(cpus: &[usize]) -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    ticks(busy_ticks(&text, cpus))
}

/// The CPUs that are online; empty if /proc/stat cannot be read.
#[must_use]
pub fn online_cpus() -> Vec<usize> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let number = |line: &str| line.split_once(' ')?.0.strip_prefix("cpu")?.parse().ok();
    text.lines().filter_map(number).collect()
}

fn busy_ticks(stat: &str, cpus: &[usize]) -> u64 {
    stat.lines()
        .filter_map(|line| {
            let (name, numbers) = line.split_once(' ')?;
            let cpu: usize = name.strip_prefix("cpu")?.parse().ok()?;
            let numbers: Vec<u64> =
                numbers.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
            // Columns (proc(5)): user nice system idle iowait irq softirq steal.
            cpus.contains(&cpu).then(|| {
                [0, 1, 2, 5, 6, 7].iter().filter_map(|&column| numbers.get(column)).sum::<u64>()
            })
        })
        .sum::<u64>()
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * (1000 / TICKS_PER_SECOND))
}

/// CPU time, memory and context switches of a process and its descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// User and system time, including children that ended and were waited for. Resolution: 10 ms.
    pub cpu: Duration,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Number of times that a thread gave up or lost its CPU.
    pub context_switches: u64,
}

impl Spent {
    /// The usage of two processes.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            resident_bytes: self.resident_bytes + other.resident_bytes,
            context_switches: self.context_switches + other.context_switches,
        }
    }

    /// The CPU time and context switches since `earlier`, and the current memory.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            resident_bytes: self.resident_bytes,
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
        }
    }
}

/// The usage of `pid` and all its descendants so far; `None` if there is no such process.
#[must_use]
pub fn spent(pid: u32) -> Option<Spent> {
    let mut sum = Spent::default();
    let mut found = false;
    for pid in process_tree(pid) {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        found = true;
        sum.cpu += ticks(ticks_with_ended_children(&stat));
        sum.resident_bytes += resident_bytes(pid);
        sum.context_switches += context_switches(pid);
    }
    found.then_some(sum)
}

/// The sum of fields 14 to 17 of proc(5): utime and stime, of the process and of its children that ended and were
/// waited for. Without the children, the time of a worker process would be lost when it ends (some servers
/// replace their workers).
fn ticks_with_ended_children(stat: &str) -> u64 {
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return 0;
    };
    // `rest` begins with field 3, so field 14 is 11 fields later.
    let fields = rest.split_ascii_whitespace().skip(11).take(4);
    fields.filter_map(|text| text.parse::<u64>().ok()).sum()
}

fn process_tree(pid: u32) -> Vec<u32> {
    let mut tree = vec![pid];
    let mut next = 0;
    while let Some(&pid) = tree.get(next) {
        next += 1;
        for task in task_ids(pid) {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{task}/children"));
            let children = children.unwrap_or_default();
            tree.extend(children.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    tree
}

fn task_ids(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Resident memory of one process, bytes; 0 if the process does not exist.
#[must_use]
pub fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status_number(&status, "VmRSS:") * 1024
}

/// Memory of the kernel's objects (`Slab` of /proc/meminfo), bytes.
#[must_use]
pub fn slab_bytes() -> u64 {
    status_number(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "Slab:") * 1024
}

/// Memory that programs can still use (`MemAvailable` of /proc/meminfo), bytes.
#[must_use]
pub fn available_bytes() -> u64 {
    status_number(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemAvailable:") * 1024
}

/// Memory that the buffers of all TCP sockets hold (`mem` of /proc/net/sockstat), bytes.
#[must_use]
pub fn socket_bytes() -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let page_bytes = status_number(&maps, "KernelPageSize:") * 1024;
    socket_pages(&fs::read_to_string("/proc/net/sockstat").unwrap_or_default()) * page_bytes
}

fn socket_pages(sockstat: &str) -> u64 {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap_or_default();
    let mut words = line.split_ascii_whitespace().skip_while(|word| *word != "mem");
    words.nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

fn context_switches(pid: u32) -> u64 {
    task_ids(pid)
        .iter()
        .map(|task| {
            let status =
                fs::read_to_string(format!("/proc/{pid}/task/{task}/status")).unwrap_or_default();
            status_number(&status, "voluntary_ctxt_switches:")
                + status_number(&status, "nonvoluntary_ctxt_switches:")
        })
        .sum()
}

fn status_number(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// CPU time of the calling thread. Resolution: 1 ns.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    clock(rustix::time::ClockId::ThreadCPUTime)
}

/// CPU time of this process. Resolution: 1 ns.
#[must_use]
pub fn process_cpu_time() -> Duration {
    clock(rustix::time::ClockId::ProcessCPUTime)
}

fn clock(id: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(id);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of this process's children that ended and were waited for.
#[must_use]
pub fn children_cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return Duration::ZERO;
    };
    // Fields 16 and 17 of proc(5): cutime and cstime. `rest` begins with field 3.
    let fields = rest.split_ascii_whitespace().skip(13).take(2);
    ticks(fields.filter_map(|text| text.parse::<u64>().ok()).sum())
}

/// Time since the calling thread's start during which it was ready to run but waited for a CPU.
#[must_use]
pub fn thread_run_delay() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_ascii_whitespace().nth(1).and_then(|number| number.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Pins the calling thread, and the threads and processes that it starts later, to `cpus`.
///
/// # Errors
/// If this process may use none of `cpus`.
pub fn pin(cpus: &[usize]) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu < CpuSet::MAX_CPU {
            set.set(cpu);
        }
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The CPUs that the calling thread may use.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    rustix::thread::sched_getaffinity(None).map_or_else(
        |_| vec![0],
        |set| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
    )
}

/// Raises the soft descriptor limit to the hard limit and returns it; `u64::MAX` means no limit.
#[must_use]
pub fn raise_descriptor_limit() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if rustix::process::setrlimit(Resource::Nofile, raised).is_ok() {
        limit.maximum.unwrap_or(u64::MAX)
    } else {
        limit.current.unwrap_or(u64::MAX)
    }
}

/// Number of local ports that the kernel can use for one destination address and one source address.
#[must_use]
pub fn local_ports() -> u64 {
    let text = read_line("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse::<u64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(first), Some(last)) if last >= first => last - first + 1,
        _ => 28_232,
    }
}

/// The properties of the machine that matter for its figures, as name and text.
#[must_use]
pub fn environment() -> Vec<(&'static str, String)> {
    let mut environment = vec![("kernel", kernel()), ("cpus", cpus()), ("memory", memory())];
    let files = [
        ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        ("clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ("congestion control", "/proc/sys/net/ipv4/tcp_congestion_control"),
        ("smt", "/sys/devices/system/cpu/smt/control"),
    ];
    for (name, path) in files {
        environment.push((name, read_line(path).unwrap_or_else(|| "unknown".to_owned())));
    }
    environment.push(("mitigations", mitigations()));
    environment
}

fn kernel() -> String {
    let uname = rustix::system::uname();
    format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy())
}

fn cpus() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown model", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let virtual_machine = if text.contains(" hypervisor") { ", virtual" } else { "" };
    format!("{} × {model}{virtual_machine}", allowed_cpus().len())
}

fn memory() -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    format!("{} MiB", status_number(&text, "MemTotal:") / 1024)
}

fn mitigations() -> String {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return "unknown".to_owned();
    };
    let mut active: Vec<String> = entries
        .flatten()
        .filter(|entry| {
            read_line(&entry.path().to_string_lossy())
                .is_some_and(|line| line.starts_with("Mitigation"))
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    active.sort();
    if active.is_empty() { "none active".to_owned() } else { active.join(", ") }
}

fn read_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 1 20 5000 7 3 4 5 0 0\n\
                        cpu1 200 0 0 0 0 0 0 0 0 0\nintr 5\n";

    #[test]
    fn busy_time_excludes_idle_and_iowait() {
        assert_eq!(busy_ticks(STAT, &[0]), 133);
        assert_eq!(busy_ticks(STAT, &[0, 1]), 333);
        assert_eq!(busy_ticks(STAT, &[7]), 0);
        assert_eq!(busy_ticks("", &[0]), 0);
    }

    #[test]
    fn traffic_of_all_interfaces_is_added_up() {
        let devices = "Inter-|   Receive   |  Transmit\n face |bytes packets errs\n\
                       \x20   lo: 100 2 0 0 0 0 0 0 100 2 0 0 0 0 0 0\n  eth0: 5 1 0 0 0 0 0 0 70 3 0 0 0 0 0 0\n";
        let soft = "          CPU0 CPU1\n  HI: 9 9\n NET_TX: 1 2\n NET_RX: 30 40\n";
        let found = NetworkUse::parse(devices, soft);
        let wanted = NetworkUse {
            packets_in: 3,
            packets_out: 5,
            bytes_in: 105,
            bytes_out: 170,
            soft_interrupts: 73,
        };
        assert_eq!(found, wanted);
        assert_eq!(NetworkUse::parse("", ""), NetworkUse::default());
    }

    #[test]
    fn usage_is_known_for_existing_processes_only() {
        let spent = spent(std::process::id()).unwrap();
        assert!(spent.resident_bytes > 0);
        assert_eq!(super::spent(u32::MAX), None);
    }

    #[test]
    fn time_of_ended_children_counts_for_their_parent() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 9 9 9 9 100 20 3000 400 20 0 1 0 5 6 7\n";
        assert_eq!(ticks_with_ended_children(stat), 3520);
        assert_eq!(ticks_with_ended_children(""), 0);
    }

    #[test]
    fn environment_has_no_empty_text() {
        for (name, text) in environment() {
            assert!(!text.is_empty(), "{name}");
        }
    }
}
