//! One round of real load: a server pinned to its CPUs, a client pinned to others, CPU per request.
//! In: what to start, or where a running server listens. Out: a `Sample`.
//! Never: starts on a port that is taken; leaves a process of its own behind.
//! Invariant: CPU time is all non-idle time of the server's CPUs (/proc/stat), so soft interrupts that
//! run in the kernel's threads are counted too.

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

/// How long a server may take to listen, and to end.
const SERVER_WAIT: Duration = Duration::from_secs(10);
/// Clock ticks a second in /proc/stat (fixed for user space on Linux).
const TICK_US: f64 = 10_000.0;
/// Requests below this make a round worthless.
const REQUESTS_MIN: u64 = 100;

/// What puts load on the server.
#[derive(Clone, Debug)]
pub enum Client {
    /// A command that prints what `tidegate bench http --json` prints, such as one run by ssh on another
    /// host; `{url}`, `{connections}` and `{seconds}` in it are replaced.
    Command(String),
    /// `tidegate bench http` of this binary.
    Own(PathBuf),
    /// wrk, a foreign one.
    Wrk(PathBuf),
}

/// What answers.
#[derive(Clone, Debug)]
pub enum Server {
    /// Started for each round; `{port}` in a word is the port. Then the URL's path.
    Started(Vec<String>, String),
    /// Runs already, at this URL.
    Running(String),
}

/// Real load.
#[derive(Debug)]
pub struct Load {
    /// What answers.
    pub server: Server,
    /// What asks.
    pub client: Client,
    /// CPUs of the server.
    pub server_cpus: Vec<u32>,
    /// CPUs of the client.
    pub client_cpus: Vec<u32>,
    /// Connections held.
    pub connections: u32,
    /// Seconds of one round.
    pub duration_s: u32,
}

impl Measure for Load {
    fn round(&mut self) -> Result<Sample, String> {
        match &self.server {
            Server::Running(url) => self.ask(url),
            Server::Started(argv, path) => {
                let port = free_port()?;
                let argv: Vec<String> =
                    argv.iter().map(|word| word.replace("{port}", &port.to_string())).collect();
                let mut server = start(&argv, &self.server_cpus)?;
                let sample = wait_until_it_listens(port, &mut server)
                    .and_then(|()| self.ask(&format!("http://127.0.0.1:{port}{path}")));
                stop(&mut server);
                sample
            }
        }
    }
}

impl Load {
    fn ask(&self, url: &str) -> Result<Sample, String> {
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
        let seen = match &self.client {
            Client::Command(_) | Client::Own(_) => read_own(&output),
            Client::Wrk(_) => read_wrk(&output),
        };
        let seen =
            seen.ok_or_else(|| format!("`{}` ended with {status} and no figures", argv.join(" ")))?;
        if let Some(errors) = seen.errors {
            return Err(format!(
                "the load is not answered as it should be, so its cost says nothing: {errors} at {url}"
            ));
        }
        if seen.requests < REQUESTS_MIN {
            return Err(format!("only {} requests were answered at {url}", seen.requests));
        }
        let cpu_us = after.saturating_sub(before) as f64 * TICK_US;
        Ok(Sample {
            cpu_us_per_request: cpu_us / seen.requests as f64,
            requests_per_s: seen.requests as f64 / f64::from(self.duration_s.max(1)),
            p99_us: seen.p99_us,
        })
    }
}

/// What a client counted.
#[derive(Debug, PartialEq)]
struct Seen {
    requests: u64,
    p99_us: Option<f64>,
    /// What went wrong with some of them, with the numbers.
    errors: Option<String>,
}

fn read_own(output: &str) -> Option<Seen> {
    let report: serde_json::Value = serde_json::from_str(output).ok()?;
    Some(Seen {
        requests: report.get("requests")?.as_u64()?,
        p99_us: report.get("latency_us").and_then(|latency| latency.get("p99")?.as_f64()),
        errors: errors_of(&report),
    })
}

/// The classes of errors that happened, each with its number and what was first said of it.
fn errors_of(report: &serde_json::Value) -> Option<String> {
    let first = report.get("first_error");
    let happened: Vec<String> = report
        .get("errors")?
        .as_object()?
        .iter()
        .filter_map(|(class, count)| Some((class, count.as_u64().filter(|count| *count > 0)?)))
        .map(|(class, count)| match first.and_then(|notes| notes.get(class)?.as_str()) {
            Some(note) => format!("{count} × {class} ({note})"),
            None => format!("{count} × {class}"),
        })
        .collect();
    (!happened.is_empty()).then(|| happened.join(", "))
}

fn read_wrk(output: &str) -> Option<Seen> {
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
    Some(Seen { requests, p99_us, errors })
}

/// Ticks in which these CPUs did not idle: proc(5), all columns but idle and iowait.
fn busy_ticks(cpus: &[u32]) -> Result<u64, String> {
    let text = Host::live().read("/proc/stat").map_err(|error| error.to_string())?;
    let mut ticks = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let number = words.next().and_then(|name| name.strip_prefix("cpu")?.parse::<u32>().ok());
        if number.is_some_and(|cpu| cpus.contains(&cpu)) {
            let columns: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            // user nice system | idle iowait | irq softirq steal | guest times are inside user's
            ticks += columns.iter().take(3).chain(columns.iter().skip(5).take(3)).sum::<u64>();
        }
    }
    Ok(ticks)
}

/// Starts a program on the given CPUs: the thread's own CPUs are inherited, so they are set around it.
fn start(argv: &[String], cpus: &[u32]) -> Result<Child, String> {
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let tool = find_tool(name).ok_or_else(|| format!("{name} is not installed"))?;
    // What a kill of this process leaves is ended by the kernel, where setpriv (util-linux) can ask for it.
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

/// A port nobody listens on. With SO_REUSEPORT a forgotten server would silently take half of the load.
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
            return Err(format!("the server ended at once ({status})"));
        }
        if Instant::now() > deadline {
            return Err(format!("the server does not listen on port {port}"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clients_reports_are_read() {
        let own = r#"{"requests": 1234, "latency_us": {"p99": 350.5}}"#;
        assert_eq!(read_own(own), Some(Seen { requests: 1234, p99_us: Some(350.5), errors: None }));
        let wrk = "  Latency Distribution\n     99%    2.05ms\n  209 requests in 2.00s, 3MB read\n";
        assert_eq!(read_wrk(wrk), Some(Seen { requests: 209, p99_us: Some(2050.0), errors: None }));
        assert_eq!(read_wrk("unable to connect"), None);
        assert_eq!(read_own("{}"), None);
    }

    #[test]
    fn errors_of_both_clients_are_seen() {
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
    fn a_round_with_errors_is_no_round() {
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
