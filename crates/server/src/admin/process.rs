//! The kernel's figures about this process, as the metrics that Prometheus client libraries define for every program.
//! In: files of /proc. Out: families of metrics. A value that the kernel does not report is left out.
//! Limits: takes the same time whatever the number of connections: open descriptors are counted by the kernel (Linux 6.2 or
//! newer), in the table of each thread that has its own.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::exposition::{Exposition, Kind, Labels};

/// Adds the metrics.
pub(super) fn add(metrics: &mut Exposition) {
    let mut metric = |name: &str, kind: Kind, help: &str, value: Option<f64>| {
        let Some(value) = value else { return };
        metrics.begin(name, kind, help);
        metrics.sample(&Labels::default(), value);
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    // Lines such as "VmRSS:	    7384 kB".
    let bytes = |field: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(field))?;
        Some(value.split_whitespace().next()?.parse::<u64>().ok()? as f64 * 1024.0)
    };
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9;
    metric(
        "process_cpu_seconds",
        Kind::Counter,
        "CPU time of the process in seconds.",
        Some(seconds),
    );
    metric(
        "process_resident_memory_bytes",
        Kind::Gauge,
        "Resident memory of the process.",
        bytes("VmRSS:"),
    );
    metric(
        "process_virtual_memory_bytes",
        Kind::Gauge,
        "Virtual memory of the process.",
        bytes("VmSize:"),
    );
    let tables = descriptor_tables();
    let open: u64 = tables.iter().sum();
    let known = (open > 0).then_some(open as f64);
    metric(
        "process_open_fds",
        Kind::Gauge,
        "Open file descriptors of the main thread and of all workers.",
        known,
    );
    // The limit is that of each table.
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map(|limit| limit as f64 * tables.len() as f64);
    metric(
        "process_max_fds",
        Kind::Gauge,
        "Limit of open file descriptors of the main thread and of all workers together; each may have an equal part.",
        limit,
    );
}

/// How many descriptors each table has: that of the main thread, which most threads share, and that of each worker. 0 before
/// Linux 6.2, where the size of the folder is 0.
fn descriptor_tables() -> Vec<u64> {
    let length = |table: &Path| fs::metadata(table).map_or(0, |folder| folder.size());
    let mut tables = vec![length(Path::new("/proc/self/fd"))];
    for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if name.starts_with("worker-") {
            tables.push(length(&thread.path().join("fd")));
        }
    }
    tables
}
