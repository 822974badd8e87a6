//! `show info`: the process.
//! In: the counters of the workers. Out: the fields of HAProxy's `show info`, by name and in its order, and all counters. A field
//! that has no meaning here is 0.

use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::Operations;
use super::rates::Rate;

/// The date of the release, in HAProxy's form: this version has none.
const RELEASE_DATE: &str = "0000/00/00";

/// The rates of the process.
struct ProcessRates {
    connections: Rate,
    requests: Rate,
    handshakes: Rate,
    bytes_out: Rate,
    /// The share of the workers' time in which they did nothing, in percent.
    idle_pct: u64,
}

impl ProcessRates {
    fn of(operations: &Operations, count: impl Fn(&str) -> u64, bytes_out: u64) -> Self {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        let spent_us = spent.tv_sec as u64 * 1_000_000 + spent.tv_nsec as u64 / 1000;
        let counts = [
            ("connections", count("accepted")),
            ("requests", count("requests")),
            ("handshakes", count("tls_handshakes")),
            ("bytes_out", bytes_out),
            ("cpu_us", spent_us),
        ];
        let counts = counts.map(|(name, count)| (name.to_owned(), count)).into();
        let rates = operations.process_rates.of(counts, Instant::now());
        let rate = |name: &str| rates.get(name).copied().unwrap_or_default();
        let workers_us = operations.accounts.len().max(1) as u64 * 1_000_000;
        let busy_pct = rate("cpu_us").last.saturating_mul(100) / workers_us;
        Self {
            connections: rate("connections"),
            requests: rate("requests"),
            handshakes: rate("handshakes"),
            bytes_out: rate("bytes_out"),
            idle_pct: 100_u64.saturating_sub(busy_pct),
        }
    }
}

/// The uptime in HAProxy's form.
fn uptime_text(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    format!("{days}d {hours}h{:02}m{:02}s", seconds / 60 % 60, seconds % 60)
}

/// The fields, in HAProxy's order.
fn fields(operations: &Operations) -> Vec<(&'static str, String)> {
    let counters = operations.counters();
    let count = |name: &str| counters.get(name).copied().unwrap_or(0);
    let config = operations.config();
    let bytes_out = operations.registry.bytes_out();
    let rates = ProcessRates::of(operations, count, bytes_out);
    let uptime = operations.started.0.elapsed().as_secs();
    let start = operations.started.1.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // Each worker has its own table of descriptors.
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(0);
    let descriptors = descriptors.saturating_mul(operations.accounts.len() as u64);
    let maxconn = config.server.connections_max.map_or(descriptors, u64::from);
    let tls_now = count("tls_sessions_now");
    let resumed = count("tls_resumptions").saturating_mul(100);
    let resumed_pct = resumed.checked_div(count("tls_handshakes")).unwrap_or(0);
    let names = operations.names.all();
    let failed_resolutions = names.iter().map(|(_, name)| name.failures).sum();
    let is_stopping = operations.is_stopping.load(Ordering::SeqCst);
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let memory_max = operations.process().memory.measured().map_or(0, |(_, max)| max);
    let text = |name, value: &str| (name, value.to_owned());
    let number = |name, value: u64| (name, value.to_string());
    vec![
        text("Name", "Tidegate"),
        text("Version", env!("CARGO_PKG_VERSION")),
        text("Release_date", RELEASE_DATE),
        number("Nbthread", operations.accounts.len() as u64),
        number("Nbproc", 1),
        number("Process_num", 1),
        number("Pid", std::process::id().into()),
        ("Uptime", uptime_text(uptime)),
        number("Uptime_sec", uptime),
        number("Memmax_MB", memory_max >> 20),
        number("PoolAlloc_MB", 0),
        number("PoolUsed_MB", 0),
        number("PoolFailed", 0),
        number("Ulimit-n", descriptors),
        number("Maxsock", descriptors),
        number("Maxconn", maxconn),
        number("Hard_maxconn", maxconn),
        number("CurrConns", count("downstream_now")),
        number("CumConns", count("accepted")),
        number("CumReq", count("requests")),
        number("MaxSslConns", 0),
        number("CurrSslConns", tls_now),
        number("CumSslConns", count("tls_handshakes")),
        number("Maxpipes", 0),
        number("PipesUsed", 0),
        number("PipesFree", 0),
        number("ConnRate", rates.connections.last),
        number("ConnRateLimit", 0),
        number("MaxConnRate", rates.connections.max),
        number("SessRate", rates.requests.last),
        number("SessRateLimit", 0),
        number("MaxSessRate", rates.requests.max),
        number("SslRate", rates.handshakes.last),
        number("SslRateLimit", 0),
        number("MaxSslRate", rates.handshakes.max),
        number("SslFrontendKeyRate", 0),
        number("SslFrontendMaxKeyRate", 0),
        number("SslFrontendSessionReuse_pct", resumed_pct),
        number("SslBackendKeyRate", 0),
        number("SslBackendMaxKeyRate", 0),
        number("SslCacheLookups", 0),
        number("SslCacheMisses", 0),
        number("CompressBpsIn", 0),
        number("CompressBpsOut", 0),
        number("CompressBpsRateLim", 0),
        number("ZlibMemUsage", 0),
        number("MaxZlibMemUsage", 0),
        number("Tasks", count("exchanges_now")),
        number("Run_queue", 0),
        number("Idle_pct", rates.idle_pct),
        ("node", node),
        number("Stopping", is_stopping.into()),
        number("Jobs", count("downstream_now") + config.listeners.len() as u64),
        number("Unstoppable Jobs", 0),
        number("Listeners", config.listeners.len() as u64),
        number("ActivePeers", 0),
        number("ConnectedPeers", 0),
        number("DroppedLogs", count("access_lines_lost")),
        number("BusyPolling", 0),
        number("FailedResolutions", failed_resolutions),
        number("TotalBytesOut", bytes_out),
        number("TotalSplicedBytesOut", 0),
        number("BytesOutRate", rates.bytes_out.last),
        number("DebugCommandsIssued", 0),
        number("CumRecvLogs", 0),
        text("Build info", env!("CARGO_PKG_VERSION")),
        number("Memmax_bytes", memory_max),
        number("PoolAlloc_bytes", 0),
        number("PoolUsed_bytes", 0),
        number("Start_time_sec", start.as_secs()),
        number("Tainted", 0),
        number("TotalWarnings", 0),
        number("MaxconnReached", 0),
        number("Niced_tasks", 0),
    ]
}

/// The fields as lines.
pub(super) fn text(operations: &Operations) -> String {
    let fields = fields(operations);
    let known = fields.into_iter().map(|(name, value)| format!("{name}: {value}\n"));
    let counters = operations.counters();
    let own = counters.into_iter().map(|(name, value)| format!("{name}: {value}\n"));
    known.chain(own).collect()
}

/// The fields as a JSON object. Numbers are numbers; the counters are in a separate member.
pub(super) fn json(operations: &Operations) -> String {
    let member = |name: &str, value: &str| match value.parse::<u64>() {
        Ok(number) => format!("\"{name}\":{number}"),
        Err(_) => format!("\"{name}\":{}", quoted(value)),
    };
    let fields = fields(operations);
    let known: Vec<String> = fields.iter().map(|(name, value)| member(name, value)).collect();
    let counters = operations.counters();
    let own: Vec<String> =
        counters.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{},\"counters\":{{{}}}}}", known.join(","), own.join(","))
}

/// A JSON string of a name from the configuration.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            _ if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => quoted.push(c),
        }
    }
    quoted + "\""
}
