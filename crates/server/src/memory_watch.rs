//! Measures the memory of the process every second while there is a `memory-max`, on a separate thread.
//! In: files of /proc and of control groups (cgroup v2). Out: measurements for all workers; log lines.
//! Never: runs on a worker.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use tidegate_gate::memory::{Memory, MemoryUse};

use crate::events::{self, EventKind};
use crate::log;
use crate::threads;

/// How often the memory is measured.
const EVERY: Duration = Duration::from_secs(1);
/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// The thread.
#[derive(Default)]
pub(crate) struct MemoryWatch {
    /// The thread runs. It measures nothing while there is no limit.
    runs: bool,
}

impl MemoryWatch {
    /// Starts the thread when there is a first limit.
    ///
    /// # Errors
    /// The kernel refused the thread.
    pub(crate) fn follow(&mut self, memory: &Memory) -> io::Result<()> {
        if self.runs || memory.max().is_none() {
            return Ok(());
        }
        let memory = memory.clone();
        threads::spawn("memory", move || {
            let mut has_failed = false;
            loop {
                if memory.max().is_some() {
                    measure_and_note(&memory, &mut has_failed);
                }
                thread::sleep(EVERY);
            }
        })?;
        self.runs = true;
        Ok(())
    }
}

/// `has_failed`: an earlier measurement has failed, and the log says so.
fn measure_and_note(memory: &Memory, has_failed: &mut bool) {
    let read = |path: &str| fs::read_to_string(path).ok();
    let Some(usage) = measure(read) else {
        if !core::mem::replace(has_failed, true) {
            log::warning(format_args!(
                "cannot read the memory of the process in /proc/self/status; memory-max has no effect"
            ));
        }
        return;
    };
    let change = memory.note(usage);
    let Some((used, max)) = memory.measured() else { return };
    let (used, max) = (used >> 20, max >> 20);
    match change {
        None => {}
        Some(true) => {
            log::warning(format_args!(
                "{used} MiB of memory are in use, more than memory-max ({max} MiB): new requests are refused"
            ));
            events::note(
                EventKind::Process,
                format_args!("memory in use: {used} MiB, more than memory-max: {max} MiB"),
            );
        }
        Some(false) => {
            log::info(format_args!("{used} MiB of memory are in use: requests are served again"));
            events::note(EventKind::Process, format_args!("memory in use: {used} MiB again"));
        }
    }
}

/// Measures. `read` reads a file.
fn measure(read: impl Fn(&str) -> Option<String>) -> Option<MemoryUse> {
    let bytes = |file: &str, name: &str| field(&read(file)?, name)?.checked_mul(1024);
    let resident = bytes("/proc/self/status", "VmRSS:")?;
    let of_machine = || Some((resident, bytes("/proc/meminfo", "MemTotal:")?));
    let shared = fullest_group(&read).or_else(of_machine);
    Some(MemoryUse { resident, shared: shared.unwrap_or_default() })
}

/// The use and the limit of that control group of the process that has the least room; `None` if no group has a limit.
fn fullest_group(read: impl Fn(&str) -> Option<String>) -> Option<(u64, u64)> {
    let groups = read("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // In a container the folder of the outermost group may be that of the own group.
    let ends = own.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| at);
    let folders = ends.chain([own.len()]).map(|end| own[..end].trim_end_matches('/'));
    let group = |folder: &str| {
        let number = |file: &str| {
            let text = read(&format!("{GROUPS}{folder}/{file}"))?;
            text.trim().parse::<u64>().ok()
        };
        let (max, current) = (number("memory.max")?, number("memory.current")?);
        let stat = read(&format!("{GROUPS}{folder}/memory.stat")).unwrap_or_default();
        let cached = ["inactive_file", "active_file"].map(|name| field(&stat, name).unwrap_or(0));
        Some((current.saturating_sub(cached.iter().sum()), max))
    };
    folders.filter_map(group).min_by_key(|(used, max)| max.saturating_sub(*used))
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut line = lines.find(|words| words.clone().next() == Some(name))?;
    line.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(files: &[(&str, &str)]) -> Option<MemoryUse> {
        let read = |path: &str| {
            let file = files.iter().find(|(known, _)| *known == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        measure(read)
    }

    const STATUS: (&str, &str) =
        ("/proc/self/status", "Name:\ttidegate\nVmHWM:\t    2000 kB\nVmRSS:\t    1000 kB\n");
    const MEMINFO: (&str, &str) =
        ("/proc/meminfo", "MemTotal:       16000 kB\nMemFree:         8000 kB\n");

    #[test]
    fn machine_is_the_limit_without_groups() {
        let resident = 1000 * 1024;
        for groups in ["0::/a\n", "4:memory:/a\n", ""] {
            let usage = measured(&[STATUS, MEMINFO, ("/proc/self/cgroup", groups)]);
            let shared = (resident, 16000 * 1024);
            assert_eq!(usage, Some(MemoryUse { resident, shared }), "{groups}");
        }
        assert_eq!(measured(&[STATUS]), Some(MemoryUse { resident, shared: (0, 0) }));
        assert_eq!(measured(&[MEMINFO]), None);
        assert_eq!(measured(&[("/proc/self/status", "VmRSS: x kB")]), None);
    }

    #[test]
    fn group_with_the_least_room_is_the_limit() {
        let usage = measured(&[
            STATUS,
            MEMINFO,
            ("/proc/self/cgroup", "1:cpu:/other\n0::/outer/own\n"),
            ("/sys/fs/cgroup/outer/own/memory.max", "max\n"),
            ("/sys/fs/cgroup/outer/own/memory.current", "70\n"),
            ("/sys/fs/cgroup/outer/memory.max", "1000\n"),
            ("/sys/fs/cgroup/outer/memory.current", "900\n"),
            (
                "/sys/fs/cgroup/outer/memory.stat",
                "anon 100\nfile 600\ninactive_file 300\nactive_file 200\nslab 1\n",
            ),
            ("/sys/fs/cgroup/memory.max", "5000\n"),
            ("/sys/fs/cgroup/memory.current", "1000\n"),
        ]);
        assert_eq!(usage.map(|usage| usage.shared), Some((400, 1000)));
    }

    #[test]
    fn folder_of_a_container_is_that_of_its_group() {
        let usage = measured(&[
            STATUS,
            ("/proc/self/cgroup", "0::/system.slice/docker-1.scope\n"),
            ("/sys/fs/cgroup/memory.max", "2000\n"),
            ("/sys/fs/cgroup/memory.current", "500\n"),
        ]);
        assert_eq!(usage.map(|usage| usage.shared), Some((500, 2000)));
        let usage = measured(&[
            STATUS,
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "2000\n"),
            ("/sys/fs/cgroup/memory.current", "600\n"),
        ]);
        assert_eq!(usage.map(|usage| usage.shared), Some((600, 2000)));
    }

    #[test]
    fn memory_of_this_process_is_measured() {
        let usage = measure(|path| fs::read_to_string(path).ok());
        let usage = usage.expect("/proc is mounted");
        assert!(usage.resident > 1 << 20 && usage.shared.1 > usage.shared.0, "{usage:?}");
    }
}
