//! One round of real load: a server and a client pinned to different CPUs; measures the CPU time per request.
//! In: the commands to start, or the URL of a running server. Out: a `Sample`.
//! Never: starts a server on a port in use; leaves a started process behind.
//! Invariant: CPU time is all non-idle time of the server CPUs (/proc/stat), so soft interrupts that run in kernel
//! threads are included.

use crate::host::{Host, find_tool};
use crate::prove::trial::{Measure, Sample};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for a server to listen, and to exit.
const SERVER_WAIT: Duration = Duration::from_secs(10);
/// Microseconds per clock tick in /proc/stat (fixed for user space on Linux).
const TICK_US: f64 = 10_000.0;
/// Minimum number of requests of a valid round.
const REQUESTS_MIN: u64 = 100;

/// The program that creates the load.
#[derive(Clone, Debug)]
pub enum Client {
    /// A command with the output format of `tidegate bench http --json`, for example one that ssh runs on another
    /// host; `{url}`, `{connections}` and `{seconds}` in it are replaced.
    Command(String),
    /// `tidegate bench http` of this binary.
    Own(PathBuf),
    /// The load generator wrk.
    Wrk(PathBuf),
}

/// The server under load.
#[derive(Clone, Debug)]
pub enum Server {
    /// A command started for each round, in which `{port}` is replaced by the port, and the path of the URL.
    Started(Vec<String>, String),
    /// A running server at this URL.
    Running(String),
}

/// The load of one round.
#[derive(Debug)]
pub struct Load {
    /// The server under load.
    pub server: Server,
    /// The load client.
    pub client: Client,
    /// CPUs of the server.
    pub server_cpus: Vec<u32>,
    /// CPUs of the client.
    pub client_cpus: Vec<u32>,
    /// Connections kept open.
    pub connections: u32,
    /// Seconds per round.
    pub duration_s: u32,
}

impl Measure for Load {
    fn round(&mut self) -> Result<Sample, String> {
        match &self.server {
            Server::Running(url) => self.run_client(url),
            Server::Started(argv, path) => {
                let port = free_port()?;
                let argv: Vec<String> =
                    argv.iter().map(|word| word.replace("{port}", &port.to_string())).collect();
                let mut server = start(&argv, &self.server_cpus)?;
                let sample = wait_until_it_listens(port, &mut server)
                    .and_then(|()| self.run_client(&format!("http://127.0.0.1:{port}{path}")));
                stop(&mut server);
                sample
            }
        }
    }
}

impl Load {
    fn run_client(&self, url: &str) -> Result<Sample, String> {
        let argv = match &self.client {
            Client::Command(command) => command
                .replace("{url}", url)
                .replace("{connections}", &self.connections.to_string())
                .replace("{seconds}", &self.duration_s.to_string()),
            Client::Own(binary) => format!(
                "{} bench http {url} --connections {} --duration {}s --json",
                binary.display(),
                self.connections,
                self.duration_s
            ),
            Client::Wrk(binary) => format!(
                "{} -t{} -c{} -d{}s --latency {url}",
                binary.display(),
                self.client_cpus.len().max(1),
                self.connections,
                self.duration_s
            ),
        };
        let argv: Vec<String> = argv.split(' ').map(str::to_owned).collect();
        let before = busy_ticks(&self.server_cpus)?;
        let mut client = start(&argv, &self.client_cpus)?;
        let mut output = String::new();
        if let Some(stdout) = client.stdout.as_mut() {
            let _ = stdout.read_to_string(&mut output);
        }
        let status = client.wait().map_err(|error| error.to_string())?;
        let after = busy_ticks(&self.server_cpus)?;
        let counts = match &self.client {
            Client::Command(_) | Client::Own(_) => read_own(&output),
            Client::Wrk(_) => read_wrk(&output),
        };
        let counts = counts.ok_or_else(|| {
            format!("`{}` exited with {status} and printed no valid report", argv.join(" "))
        })?;
        if let Some(errors) = counts.errors {
            return Err(format!(
                "the server did not answer all requests correctly, so the cost per request is not \
                    meaningful: {errors} at {url}"
            ));
        }
        if counts.requests < REQUESTS_MIN {
            return Err(format!(
                "only {} requests were answered at {url}; a round needs at least {REQUESTS_MIN}",
                counts.requests
            ));
        }
        let cpu_us = after.saturating_sub(before) as f64 * TICK_US;
        Ok(Sample {
            cpu_us_per_request: cpu_us / counts.requests as f64,
            requests_per_s: counts.requests as f64 / f64::from(self.duration_s.max(1)),
            p99_us: counts.p99_us,
        })
    }
}

/// The figures that a client reports.
#[derive(Debug, PartialEq)]
struct ClientCounts {
    requests: u64,
    p99_us: Option<f64>,
    /// The kinds of errors with their counts; `None` if there were none.
    errors: Option<String>,
}

fn read_own(output: &str) -> Option<ClientCounts> {
    let report: serde_json::Value = serde_json::from_str(output).ok()?;
    Some(ClientCounts {
        requests: report.get("requests")?.as_u64()?,
        p99_us: report.get("latency_us").and_then(|latency| latency.get("p99")?.as_f64()),
        errors: errors_of(&report),
    })
}

/// The classes of errors that occurred, each with its count and its first message.
fn errors_of(report: &serde_json::Value) -> Option<String> {
    let first = report.get("first_error");
    let occurred: Vec<String> = report
        .get("errors")?
        .as_object()?
        .iter()
        .filter_map(|(class, count)| Some((class, count.as_u64().filter(|count| *count > 0)?)))
        .map(|(class, count)| match first.and_then(|notes| notes.get(class)?.as_str()) {
            Some(note) => format!("{count} × {class} ({note})"),
            None => format!("{count} × {class}"),
        })
        .collect();
    (!occurred.is_empty()).then(|| occurred.join(", "))
}

fn read_wrk(output: &str) -> Option<ClientCounts> {
    let requests =
        output.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok())?;
    let p99_us = output.lines().find_map(|line| {
        let value = line.trim().strip_prefix("99%")?.trim();
        let split = value.find(|c: char| c.is_ascii_alphabetic())?;
        let number: f64 = value.get(..split)?.parse().ok()?;
        match value.get(split..)? {
            "us" => Some(number),
            "ms" => Some(number * 1e3),
            "s" => Some(number * 1e6),
            _ => None,
        }
    });
    let errors: Vec<&str> = output
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("Socket errors:") || line.starts_with("Non-2xx or 3xx"))
        .collect();
    let errors = (!errors.is_empty()).then(|| errors.join(", "));
    Some(ClientCounts { requests, p99_us, errors })
}

/// Non-idle ticks of these CPUs: all columns except idle and iowait, see proc(5).
fn busy_ticks(cpus: &[u32]) -> Result<u64, String> {
    let text = Host::live().read("/proc/stat").map_err(|error| error.to_string())?;
    let mut ticks = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let number = words.next().and_then(|name| name.strip_prefix("cpu")?.parse::<u32>().ok());
        if number.is_some_and(|cpu| cpus.contains(&cpu)) {
            let columns: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            // user nice system | idle iowait | irq softirq steal | guest times are included in user
            ticks += columns.iter().take(3).chain(columns.iter().skip(5).take(3)).sum::<u64>();
        }
    }
    Ok(ticks)
}

/// Starts a program on the given CPUs. A child inherits the affinity of the thread, so it is set around the start.
fn start(argv: &[String], cpus: &[u32]) -> Result<Child, String> {
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let tool = find_tool(name).ok_or_else(|| format!("{name} is not installed"))?;
    // If this process is killed, the kernel ends the child, provided that setpriv (util-linux) is installed.
    let mut command = match find_tool("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM", "--"]).arg(tool);
            command
        }
        None => Command::new(tool),
    };
    let own = sched_getaffinity(None).map_err(|error| error.to_string())?;
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize);
    }
    sched_setaffinity(None, &set).map_err(|error| format!("CPUs {cpus:?}: {error}"))?;
    let child = command
        .args(argv.iter().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    sched_setaffinity(None, &own).map_err(|error| error.to_string())?;
    child.map_err(|error| format!("{name}: {error}"))
}

fn stop(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Instant::now() + SERVER_WAIT;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// A free port. On a port in use, a server left running with SO_REUSEPORT would silently take half of the load.
fn free_port() -> Result<u16, String> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| error.to_string())
}

fn wait_until_it_listens(port: u16, server: &mut Child) -> Result<(), String> {
    let deadline = Instant::now() + SERVER_WAIT;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("the server exited before it listened ({status})"));
        }
        if Instant::now() > deadline {
            return Err(format!("timed out waiting for the server to listen on port {port}"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_both_clients_are_parsed() {
        let own = r#"{"requests": 1234, "latency_us": {"p99": 350.5}}"#;
        assert_eq!(
            read_own(own),
            Some(ClientCounts { requests: 1234, p99_us: Some(350.5), errors: None })
        );
        let wrk = "  Latency Distribution\n     99%    2.05ms\n  209 requests in 2.00s, 3MB read\n";
        assert_eq!(
            read_wrk(wrk),
            Some(ClientCounts { requests: 209, p99_us: Some(2050.0), errors: None })
        );
        assert_eq!(read_wrk("unable to connect"), None);
        assert_eq!(read_own("{}"), None);
    }

    #[test]
    fn errors_of_both_clients_are_reported() {
        let own = r#"{"requests": 9, "errors": {"status": 7, "connect": 0, "timeout": 2},
            "first_error": {"status": "404 Not Found"}}"#;
        let errors = read_own(own).unwrap().errors.unwrap();
        assert_eq!(errors, "7 × status (404 Not Found), 2 × timeout");
        let none = r#"{"requests": 9, "errors": {"status": 0}, "first_error": {}}"#;
        assert_eq!(read_own(none).unwrap().errors, None);
        let wrk = "  209 requests in 2.00s, 3MB read\n  Socket errors: connect 0, read 3, write 0, timeout 0\n  \
            Non-2xx or 3xx responses: 209\n";
        let errors = read_wrk(wrk).unwrap().errors.unwrap();
        assert_eq!(
            errors,
            "Socket errors: connect 0, read 3, write 0, timeout 0, Non-2xx or 3xx responses: 209"
        );
    }

    #[test]
    fn round_with_errors_fails() {
        let report = r#"{"requests":1000,"errors":{"status":1000},"latency_us":{"p99":1.0}}"#;
        let mut load = Load {
            server: Server::Running("http://127.0.0.1/nope".to_owned()),
            client: Client::Command(format!("printf %s {report}")),
            server_cpus: Vec::new(),
            client_cpus: crate::environment::allowed_cpus(&Host::live()),
            connections: 1,
            duration_s: 1,
        };
        let error = load.round().unwrap_err();
        assert!(error.contains("1000 × status at http://127.0.0.1/nope"), "{error}");
        load.client = Client::Command(format!("printf %s {}", report.replace(":1000}", ":0}")));
        assert!(load.round().is_ok());
    }
}
