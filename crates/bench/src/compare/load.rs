//! The load of one round on one server, from Tidegate's or another load generator.
//! In: the server, the number of connections, the duration. Out: the client's counts.
//! Never: mixes load generators within a comparison.

use crate::drive::{self, Job, Outcome};
use crate::histogram::{COMPARED, carries};
use crate::plan::{Arrivals, Pace, Plan, Protocol};
use crate::target::{RequestMix, RequestOptions, Target, Url};
use crate::tls::TlsOptions;
use crate::{machine, process, ws};
use core::net::SocketAddr;
use core::sync::atomic::AtomicBool;
use core::time::Duration;
use std::path::Path;
use std::process::Command;

/// The load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Client {
    /// `tidegate bench http`
    Tidegate,
    /// wrk, as an independent load generator
    Wrk,
    /// h2load of nghttp2 (with --h1 for HTTP/1.1)
    H2load,
    /// hey
    Hey,
}

/// What happens to a connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// The next request uses the same connection.
    Keep,
    /// The next request uses a new connection with a new TLS session.
    Full,
    /// The next request uses a new connection that resumes the TLS session.
    Resumed,
}

/// The load of a round.
#[derive(Clone, Debug)]
pub(crate) struct Round<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) is_secure: bool,
    pub(crate) reuse: Reuse,
    pub(crate) path: &'a str,
    pub(crate) connections: u32,
    /// Requests in flight on each connection.
    pub(crate) pipeline: u16,
    pub(crate) protocol: Protocol,
    pub(crate) duration: Duration,
    /// Requests per second of an open loop; `None`: a closed loop.
    pub(crate) rate_per_s: Option<f64>,
    /// Bytes of each WebSocket message; `None`: HTTP requests.
    pub(crate) message_bytes: Option<usize>,
    pub(crate) cpus: &'a [usize],
    /// Directory for the scripts of other load generators.
    pub(crate) folder: &'a Path,
}

impl Round<'_> {
    fn url(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}{}", self.address, self.path)
    }

    /// The duration for other load generators, which accept whole seconds only.
    fn whole_seconds(&self) -> u64 {
        self.duration.as_secs().max(1)
    }
}

/// The client's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    pub(crate) body_bytes: u64,
    /// p50, p99 and p99.9 in microseconds; `None` if the client does not report it, or if there are too few responses for it.
    pub(crate) latency_us: [Option<f64>; 3],
    /// CPU time of the client, seconds.
    pub(crate) client_cpu_s: f64,
    pub(crate) saturated: bool,
}

impl Client {
    /// All load generators.
    pub(crate) fn all() -> [Self; 4] {
        [Self::Tidegate, Self::Wrk, Self::H2load, Self::Hey]
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Wrk => "wrk",
            Self::H2load => "h2load",
            Self::Hey => "hey",
        }
    }

    /// The version, as the program prints it.
    pub(crate) fn version(self) -> String {
        let flag = match self {
            Self::Tidegate => return concat!("tidegate ", env!("CARGO_PKG_VERSION")).to_owned(),
            Self::Wrk => "-v",
            Self::H2load => "--version",
            // hey has no such option.
            Self::Hey => return "unknown".to_owned(),
        };
        let program = self.program().and_then(process::find_program);
        program.map_or_else(|| "unknown".to_owned(), |program| process::version_of(&program, flag))
    }

    /// Whether the load generator speaks HTTP/2 with and without TLS. hey speaks HTTP/2 only with TLS.
    pub(crate) fn speaks_http2(self) -> bool {
        match self {
            Self::Tidegate | Self::H2load => true,
            Self::Wrk | Self::Hey => false,
        }
    }

    /// The program that must be installed; `None` for Tidegate's own load generator.
    pub(crate) fn program(self) -> Option<&'static str> {
        match self {
            Self::Tidegate => None,
            Self::Wrk | Self::H2load | Self::Hey => Some(self.name()),
        }
    }

    /// Sends load to one server for one round.
    ///
    /// # Errors
    /// A message for the operator.
    pub(crate) fn run(self, round: &Round<'_>) -> Result<Counted, String> {
        if round.reuse != Reuse::Keep && self != Self::Tidegate {
            return Err(format!(
                "{} cannot open a new connection for each request; use --client tidegate",
                self.name()
            ));
        }
        if round.protocol == Protocol::Http2 && !self.speaks_http2() {
            return Err(format!(
                "{} is not used for HTTP/2; use --client tidegate or h2load",
                self.name()
            ));
        }
        if round.message_bytes.is_some() && self != Self::Tidegate {
            return Err(format!("{} does not speak WebSocket; use --client tidegate", self.name()));
        }
        match (self, round.message_bytes) {
            (Self::Tidegate, Some(bytes)) => ws::run_round(round, bytes),
            (Self::Tidegate, None) => run_own(round),
            (Self::Wrk, _) => run_wrk(round),
            (Self::H2load, _) => run_h2load(round),
            (Self::Hey, _) => run_hey(round),
        }
    }
}

fn run_own(round: &Round<'_>) -> Result<Counted, String> {
    let cpu_before = machine::process_cpu_time();
    let outcome = drive::run(&round.job()?, &AtomicBool::new(false), &mut |_| {})?;
    // The CPU time of the whole process, as for other load generators. A closed loop does not spin.
    let cpu = machine::process_cpu_time().saturating_sub(cpu_before);
    let mut counted = Counted::of(&outcome)?;
    counted.client_cpu_s = cpu.as_secs_f64();
    // A closed loop keeps its CPU busy by design. Only an open loop can fall behind its plan.
    counted.saturated &= round.rate_per_s.is_some();
    let tally = &outcome.tally;
    if round.reuse == Reuse::Resumed && tally.handshakes_resumed * 5 < tally.handshakes() * 4 {
        return Err(format!(
            "only {} of {} handshakes were resumed, too few for this comparison",
            tally.handshakes_resumed,
            tally.handshakes()
        ));
    }
    Ok(counted)
}

impl Round<'_> {
    /// The round as a job for Tidegate's load generator.
    ///
    /// # Errors
    /// A message for the operator.
    pub(crate) fn job(&self) -> Result<Job, String> {
        let url = Url::parse(&self.url())?;
        let pace = match self.rate_per_s {
            Some(per_second) => Pace::Total { per_second, arrivals: Arrivals::Poisson },
            None => Pace::Closed,
        };
        let closes = self.reuse != Reuse::Keep;
        let options = RequestOptions { close: closes, ..RequestOptions::default() };
        let mix = RequestMix::single(&url, &options)?;
        let tls = TlsOptions::of_comparison(self.reuse == Reuse::Resumed);
        let tls = match self.protocol {
            Protocol::Http1 => tls,
            Protocol::Http2 => tls.for_http2(),
        };
        let tls = tls.plan(mix.authorities(), self.connections)?;
        Ok(Job {
            plan: Plan {
                connections: self.connections,
                duration: Some(self.duration),
                pipeline: self.pipeline,
                protocol: self.protocol,
                pace,
                requests_per_connection: closes.then_some(1),
                ..Plan::default()
            },
            targets: vec![Target { address: url.resolve()?, is_secure: url.is_secure }],
            tls,
            mix,
            cpus: self.cpus.to_vec(),
            reference: None,
            stops_at_error: false,
            server_pids: Vec::new(),
            server_cpus: Vec::new(),
        })
    }
}

impl Counted {
    /// The counts of Tidegate's load generator, without its CPU time.
    ///
    /// # Errors
    /// If no response arrived.
    pub(crate) fn of(outcome: &Outcome) -> Result<Self, String> {
        let tally = &outcome.tally;
        if tally.requests == 0 {
            let failures =
                tally.failures().map(|(class, count, words)| format!("{class} {count}: {words}"));
            let words: Vec<String> = failures.chain(tally.left_over_in_words()).collect();
            return Err(format!("no response arrived; {}", words.join("; ")));
        }
        Ok(Self {
            requests: tally.requests,
            errors: tally.errors.total(),
            seconds: outcome.counted.as_secs_f64(),
            body_bytes: tally.body_bytes,
            latency_us: COMPARED.map(|at| tally.latency.reportable_us(at)),
            client_cpu_s: 0.0,
            saturated: !outcome.saturated.is_empty(),
        })
    }
}

/// A script for wrk: prints one line that is easy to parse; sends several requests at once if DEPTH is above 1.
const WRK_SCRIPT: &str = "\
local depth = tonumber(os.getenv('DEPTH')) or 1
if depth > 1 then
  function init(args)
    local all = {}
    for i = 1, depth do all[i] = wrk.format() end
    joined = table.concat(all)
  end
  function request() return joined end
end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format('COUNTED %d %d %d %d %.1f %.1f %.1f\\n', summary.requests,
    e.connect + e.read + e.write + e.status + e.timeout, summary.duration, summary.bytes,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
";

fn run_wrk(round: &Round<'_>) -> Result<Counted, String> {
    if round.rate_per_s.is_some() {
        return Err("wrk cannot send at a fixed rate; use --client tidegate".to_owned());
    }
    let script = round.folder.join("wrk.lua");
    std::fs::write(&script, WRK_SCRIPT)
        .map_err(|error| format!("{}: {error}", script.display()))?;
    let mut command = installed("wrk")?;
    command
        .arg("-t1")
        .arg(format!("-c{}", round.connections))
        .arg(format!("-d{}s", round.whole_seconds()))
        .arg("-s")
        .arg(script)
        .arg(round.url())
        .env("DEPTH", round.pipeline.to_string());
    let (text, client_cpu_s) = output_of(&mut command, round.cpus)?;
    let mut counted =
        parse_counted(&text).ok_or_else(|| format!("cannot parse the output of wrk: {text}"))?;
    counted.client_cpu_s = client_cpu_s;
    Ok(counted)
}

fn run_h2load(round: &Round<'_>) -> Result<Counted, String> {
    let mut command = installed("h2load")?;
    if round.protocol == Protocol::Http1 {
        command.arg("--h1");
    }
    command
        .arg("-t1")
        .arg(format!("-c{}", round.connections))
        .arg(format!("-m{}", round.pipeline))
        .arg(format!("-D{}", round.whole_seconds()))
        .arg(round.url());
    let (text, client_cpu_s) = output_of(&mut command, round.cpus)?;
    // "requests: 1 total, 1 started, 1 done, 1 succeeded, 0 failed, 0 errored, 0 timeout"
    let line = text.lines().find_map(|line| line.strip_prefix("requests: "));
    let number = |word: &str| {
        line.and_then(|line| line.split(", ").find_map(|part| part.strip_suffix(word)))
            .and_then(|number| number.trim().parse::<u64>().ok())
    };
    let requests =
        number("succeeded").ok_or_else(|| format!("cannot parse the output of h2load: {text}"))?;
    Ok(Counted {
        requests,
        errors: number("failed").unwrap_or(0),
        seconds: round.whole_seconds() as f64,
        client_cpu_s,
        ..Counted::default()
    })
}

fn run_hey(round: &Round<'_>) -> Result<Counted, String> {
    let mut command = installed("hey")?;
    command
        .args(["-cpus", "1"])
        .arg(format!("-c={}", round.connections))
        .arg(format!("-z={}s", round.whole_seconds()))
        .arg(round.url());
    let (text, client_cpu_s) = output_of(&mut command, round.cpus)?;
    // Lines "  [200]	12345 responses", one for each status.
    let requests = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix('[')?.split_once(']'))
        .filter_map(|(_, rest)| rest.trim().strip_suffix(" responses")?.parse::<u64>().ok())
        .sum();
    Ok(Counted {
        requests,
        seconds: round.whole_seconds() as f64,
        client_cpu_s,
        ..Counted::default()
    })
}

fn installed(program: &str) -> Result<Command, String> {
    let path = process::find_program(program).ok_or_else(|| {
        let package = if program == "h2load" { "nghttp2-client" } else { program };
        format!("{program} is not installed; install the package {package}")
    })?;
    Ok(Command::new(path))
}

/// Runs another load generator and returns its output and its CPU time in seconds.
fn output_of(command: &mut Command, cpus: &[usize]) -> Result<(String, f64), String> {
    let children_before = machine::children_cpu_time();
    let (has_succeeded, stdout, stderr) =
        process::Running::output(command, cpus).map_err(|error| error.to_string())?;
    let spent = machine::children_cpu_time().saturating_sub(children_before);
    if has_succeeded { Ok((stdout, spent.as_secs_f64())) } else { Err(stderr) }
}

fn parse_counted(text: &str) -> Option<Counted> {
    let line = text.lines().find_map(|line| line.strip_prefix("COUNTED "))?;
    let numbers: Vec<f64> = line.split(' ').map_while(|number| number.parse().ok()).collect();
    let [requests, errors, micros, bytes, p50_us, p99_us, p99_9_us] = numbers[..] else {
        return None;
    };
    Some(Counted {
        requests: requests as u64,
        errors: errors as u64,
        seconds: micros / 1e6,
        body_bytes: bytes as u64,
        latency_us: core::array::from_fn(|at| {
            carries(requests as u64, COMPARED[at]).then_some([p50_us, p99_us, p99_9_us][at])
        }),
        client_cpu_s: 0.0,
        saturated: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::{Floor, Role};

    #[test]
    fn other_clients_run_for_whole_seconds() {
        let role = Role::Answer { content_type: "text/plain".to_owned(), body: b"ok".to_vec() };
        let floor = Floor::listen("127.0.0.1:0".parse().unwrap(), role).unwrap();
        let address = floor.address();
        std::thread::spawn(move || floor.serve());
        let round = Round {
            address,
            is_secure: false,
            reuse: Reuse::Keep,
            path: "/",
            connections: 1,
            pipeline: 1,
            protocol: Protocol::Http1,
            duration: Duration::from_millis(500),
            rate_per_s: None,
            message_bytes: None,
            cpus: &machine::allowed_cpus(),
            folder: Path::new("/nowhere"),
        };
        let counted = Client::H2load.run(&round).unwrap();
        assert!((counted.seconds - 1.0).abs() < 1e-9 && counted.requests > 0, "{counted:?}");
    }

    #[test]
    fn line_of_wrk_is_parsed() {
        let text = "Running 2s test\nCOUNTED 1000 2 2000000 5000 10.0 20.5 30.0\n";
        let counted = parse_counted(text).unwrap();
        assert_eq!((counted.requests, counted.errors, counted.body_bytes), (1000, 2, 5000));
        assert!(
            (counted.seconds - 2.0).abs() < 1e-9
                && counted.latency_us == [Some(10.0), Some(20.5), None]
        );
        assert_eq!(parse_counted("COUNTED 1 2"), None);
        assert_eq!(parse_counted(""), None);
    }
}
