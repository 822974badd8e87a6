//! The arguments of `tidegate bench http`, and the plan that they describe.
//! In: text. Out: a `Plan`, URLs and request options; or an error with the correct form.
//! Never: resolves contradicting arguments silently.

use crate::plan::{Arrivals, CONNECTIONS_MAX, PIPELINE_MAX, Pace, Plan, Protocol, THREADS_MAX};
use crate::quantity::{Sources, parse_duration, parse_rate, parse_sources};
use crate::target::{RequestOptions, Url};
use crate::tls::TlsOptions;
use core::time::Duration;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Default duration of a run.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);
/// Default duration of a round of a comparison.
const ROUND_DEFAULT: Duration = Duration::from_secs(2);
/// Default number of rounds of a comparison.
const ROUNDS_DEFAULT: u32 = 5;

/// Largest content of a request. Each request is kept in memory twice.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Arguments of `tidegate bench http`.
#[derive(clap::Args, Debug)]
pub struct HttpArgs {
    /// The URL to request: http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required_unless_present = "vs", conflicts_with = "vs")]
    url: Option<String>,
    /// Number of connections that are open at the same time
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    connections: u32,
    /// Number of client threads
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(THREADS_MAX)))]
    threads: u16,
    /// How long to send requests: 10s, 500ms, 2m [default: 10s; with --vs 2s per round]
    #[arg(short, long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How many requests to send, instead of --duration; with both, the first limit reached ends the run
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Open loop: total requests per second over all connections, e.g. 20000/s
    #[arg(short = 'R', long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// Open loop: requests per second on each connection
    #[arg(long, value_parser = parse_rate, conflicts_with = "rate")]
    rate_per_connection: Option<f64>,
    /// Space the requests of an open loop randomly, as independent users would, instead of evenly
    #[arg(long)]
    poisson: bool,
    /// Increase connections and rate gradually over this time; measuring begins after it
    #[arg(short = 's', long, value_parser = parse_duration, default_value = "0s")]
    ramp: Duration,
    /// Exclude this first part of the run from the figures
    #[arg(long, value_parser = parse_duration, default_value = "0s")]
    warm_up: Duration,
    /// Close each connection after N requests and open a new one
    #[arg(short = 'r', long, value_parser = clap::value_parser!(u64).range(1..))]
    requests_per_connection: Option<u64>,
    /// Open a new connection for each request
    #[arg(long, conflicts_with = "requests_per_connection")]
    close: bool,
    /// Pause of a connection after each response (closed loop), ±3 %
    #[arg(short = 'T', long, value_parser = parse_duration, default_value = "0s")]
    think: Duration,
    /// Number of requests in flight on each connection (HTTP/1.1 pipelining)
    #[arg(long, default_value_t = 1, conflicts_with = "http2",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(PIPELINE_MAX)))]
    pipeline: u16,
    /// Use HTTP/2: https:// requires that the server negotiates h2, http:// assumes it (prior knowledge)
    #[arg(long)]
    pub(super) http2: bool,
    /// Number of requests in flight on each HTTP/2 connection, as h2load -m
    #[arg(long, value_name = "N", default_value_t = 1, requires = "http2",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(PIPELINE_MAX)))]
    streams: u16,
    /// Time limit for a request and for a connection attempt
    #[arg(short = 'w', long, value_parser = parse_duration, default_value = "10s")]
    timeout: Duration,
    /// Request method
    #[arg(short = 'X', short_alias = 'm', long, default_value = "GET")]
    method: String,
    /// The same as --method HEAD
    #[arg(short = 'I', long, conflicts_with = "method")]
    head: bool,
    /// Additional header field, 'name: value'; may be repeated
    #[arg(short = 'H', long, value_name = "FIELD")]
    header: Vec<String>,
    /// Request content
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,
    /// Request content, from a file
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// A mix of requests from a file: lines of [WEIGHT] [METHOD] PATH-OR-URL
    #[arg(long = "urls", value_name = "FILE")]
    pub(super) urls_file: Option<PathBuf>,
    /// Local addresses that connections use in turn: ADDR or ADDR-ADDR, comma-separated
    #[arg(long, value_name = "ADDR[,ADDR..]", value_parser = parse_sources)]
    source: Option<Sources>,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// CPUs to which the client's threads are pinned in turn, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub(super) client_cpus: Vec<usize>,
    /// Probe this URL at a low constant rate during the load, for example the origin behind a proxy
    #[arg(long, value_name = "URL")]
    pub(super) reference: Option<String>,
    /// Requests per second of the probe
    #[arg(long, value_parser = parse_rate, default_value = "100/s", requires = "reference")]
    pub(super) reference_rate: f64,
    /// Report the CPU time and memory of this process and its children; may be repeated
    #[arg(long = "server-pid", value_name = "PID")]
    pub(super) server_pids: Vec<u32>,
    /// Attribute all non-idle time of this CPU to the server; with --start, run the server on it
    #[arg(long = "cpu", value_delimiter = ',', value_name = "N")]
    pub(super) server_cpus: Vec<usize>,
    /// Compare candidates in alternating rounds: [NAME=]URL of one candidate; repeat for each
    #[arg(long, value_name = "[NAME=]URL")]
    vs: Vec<String>,
    /// Command that starts a candidate (it is stopped at the end); repeat in the order of --vs
    #[arg(long, value_name = "COMMAND")]
    pub(super) start: Vec<String>,
    /// Rounds of a comparison, after a warm-up round [default: 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Print a line of raw values each second (-ll does the same)
    #[arg(short = 'l', long, action = clap::ArgAction::Count, conflicts_with = "json")]
    pub(super) lines: u8,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Write the report as a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the percentile curve as text for plotting scripts
    #[arg(long, value_name = "FILE")]
    pub(super) percentiles: Option<PathBuf>,
    /// Send no more requests after the first error, including responses with a status of 400 or more
    #[arg(short = 'e', long)]
    pub(super) stop_at_error: bool,
    /// Also exit with 1 if the client itself or a disturbed host limited the figures, or the plan was not kept
    #[arg(long)]
    pub(super) strict: bool,
    #[command(flatten)]
    pub(super) tls: TlsOptions,
    /// New connection and TLS handshake for each request; with --tls-resumption off, all handshakes are full
    #[arg(long, conflicts_with_all = ["close", "requests_per_connection"], help_heading = "TLS (https:// URLs)")]
    handshake_every_request: bool,
}

impl HttpArgs {
    /// The plan of the load.
    ///
    /// # Errors
    /// A message about arguments that contradict each other.
    pub(super) fn plan(&self) -> Result<Plan, String> {
        let arrivals = if self.poisson { Arrivals::Poisson } else { Arrivals::Constant };
        let pace = match (self.rate, self.rate_per_connection) {
            (Some(per_second), _) => Pace::Total { per_second, arrivals },
            (None, Some(per_second)) => Pace::PerConnection { per_second, arrivals },
            (None, None) => Pace::Closed,
        };
        if self.poisson && pace == Pace::Closed {
            return Err("--poisson needs an open loop; give --rate too".to_owned());
        }
        if pace != Pace::Closed && !self.think.is_zero() {
            return Err(
                "--think applies to a closed loop only; remove it, or remove --rate".to_owned()
            );
        }
        if self.connections < u32::from(self.threads) {
            return Err(format!(
                "--connections {} is less than --threads {}; use --threads {} or fewer",
                self.connections, self.threads, self.connections
            ));
        }
        if self.timeout.is_zero() {
            return Err("--timeout 0 would fail every request; give a longer time".to_owned());
        }
        let default = if self.vs.len() > 1 { ROUND_DEFAULT } else { DURATION_DEFAULT };
        let duration = match (self.duration, self.requests) {
            (None, Some(_)) => None,
            (given, _) => Some(given.unwrap_or(default)),
        };
        if duration.is_some_and(|duration| duration.is_zero()) {
            return Err("--duration 0 would send nothing; give a longer time".to_owned());
        }
        Ok(Plan {
            connections: self.connections,
            threads: self.threads,
            duration,
            requests: self.requests,
            warm_up: self.warm_up,
            ramp: self.ramp,
            pace,
            requests_per_connection: if self.closes() {
                Some(1)
            } else {
                self.requests_per_connection
            },
            think: self.think,
            protocol: if self.http2 { Protocol::Http2 } else { Protocol::Http1 },
            pipeline: if self.http2 { self.streams } else { self.pipeline },
            timeout: self.timeout,
            sources: self.source.as_ref().map_or_else(Vec::new, |sources| sources.0.clone()),
            seed: self.seed,
        })
    }

    /// URL and name of each candidate.
    ///
    /// # Errors
    /// A message about an invalid URL, or about arguments that do not fit the candidates.
    pub(super) fn urls(&self) -> Result<Vec<(Url, String)>, String> {
        let mut urls = Vec::new();
        if let Some(text) = &self.url {
            urls.push((Url::parse(text)?, text.clone()));
        }
        for text in &self.vs {
            let (name, url) = match text.split_once('=') {
                Some((name, url)) if !name.contains("://") => (name, url),
                _ => (text.as_str(), text.as_str()),
            };
            urls.push((Url::parse(url)?, name.to_owned()));
        }
        if !self.start.is_empty() && self.start.len() != urls.len() {
            return Err(format!(
                "{} candidates but {} --start options; give one --start for each candidate, in the same order, \
                 or none",
                urls.len(),
                self.start.len()
            ));
        }
        if self.handshake_every_request && !urls.iter().any(|(url, _)| url.is_secure) {
            return Err("--handshake-every-request needs an https:// URL; for http:// use --close"
                .to_owned());
        }
        if self.rounds.is_some() && self.vs.is_empty() {
            return Err("--rounds applies to comparisons only; give at least two --vs".to_owned());
        }
        if urls.len() == 1 && !self.vs.is_empty() {
            return Err("a comparison needs at least two --vs".to_owned());
        }
        Ok(urls)
    }

    /// Number of measured rounds.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(ROUNDS_DEFAULT)
    }

    /// The options that all requests share.
    ///
    /// # Errors
    /// A message about a field that is not `name: value`, or about a file that cannot be read.
    pub(super) fn request_options(&self) -> Result<RequestOptions, String> {
        let mut headers = Vec::new();
        for field in &self.header {
            let (name, value) = field
                .split_once(':')
                .ok_or_else(|| format!("--header {field}: no colon; write 'name: value'"))?;
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let body = match (&self.body, &self.body_file) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(path)) => {
                read_body(path).map_err(|why| format!("--body-file {}: {why}", path.display()))?
            }
            (None, None) => Vec::new(),
        };
        let method = if self.head { "HEAD".to_owned() } else { self.method.clone() };
        Ok(RequestOptions { method, headers, body, close: self.closes() })
    }

    /// Whether each connection carries one request.
    fn closes(&self) -> bool {
        self.close || self.handshake_every_request
    }
}

/// Reads a request's content from a file, which may be endless (a device, a pipe).
fn read_body(path: &Path) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(BODY_BYTES_MAX + 1).read_to_end(&mut body).map_err(|error| error.to_string())?;
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(format!(
            "larger than {} MiB, the limit for a request's content; give a smaller file",
            BODY_BYTES_MAX / (1024 * 1024)
        ));
    }
    Ok(body)
}
