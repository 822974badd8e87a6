//! `tidegate bench compare`: compares Tidegate with the floor and other servers in paired rounds of a workload.
//! In: the workload. Out: a table, and one JSON line for the record.
//! Never: decides by requests per second where CPU time per request can be measured.
//! Limits: `ROUNDS_MAX`. Invariant: all contenders run during all rounds and take turns. When the comparison
//! ends, also by a signal, the contenders are stopped and the scratch directory is removed.

mod certificate;
mod contender;
mod fetch;
mod flood;
mod goals;
pub(crate) mod load;
mod push;
mod record;
mod rounds;
mod single;

use crate::scratch::Scratch;
use crate::{interrupt, machine};
use certificate::Key;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use contender::{Contender, OwnPrograms, Work};
use core::net::SocketAddr;
use core::time::Duration;
use load::{Client, Reuse};
use record::Record;
use rounds::Load;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Largest number of rounds of one comparison.
pub const ROUNDS_MAX: u32 = 1000;
/// Size of a body of `bodies`.
const LARGE_BODY_BYTES: usize = 1024 * 1024;
/// Size of a body of `tls-bodies`.
const SECURE_BODY_BYTES: usize = 64 * 1024;
/// Requests in flight on each connection of `pipeline`.
const PIPELINE_DEPTH: u16 = 16;

/// Streams on each connection of `h2-json` and `h2-client`.
const HTTP2_JSON_STREAMS: u16 = 32;
/// Streams on each connection of `h2-proxy`.
const HTTP2_PROXY_STREAMS: u16 = 8;

/// The workloads that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Responses with 27 bytes of JSON: CPU time per request
    Json,
    /// The same responses through a proxy with one origin: CPU time per request
    Proxy,
    /// As `proxy`, with nginx and HAProxy adding the header fields that Tidegate always adds
    ProxyFields,
    /// 1 MiB bodies through a proxy: CPU time per KiB
    Bodies,
    /// 13 bytes of text, 16 requests in flight on each connection: CPU time per request
    Pipeline,
    /// p99.9 through a proxy at half the capacity of the slowest proxy
    Latency,
    /// Memory per open idle connection
    Memory,
    /// Time from start to first response, and memory at that time
    Start,
    /// Load generators that send to the same server: client CPU time per request
    Client,
    /// `proxy` over TLS 1.3, and Tidegate without TLS (`plain`): CPU time per request
    TlsProxy,
    /// Full TLS 1.3 handshakes with ECDSA P-256: CPU time per handshake
    TlsHandshakes,
    /// Full TLS 1.3 handshakes with RSA-2048: CPU time per handshake
    TlsHandshakesRsa,
    /// Resumed TLS 1.3 handshakes: CPU time per handshake
    TlsResumed,
    /// 64 KiB bodies through a proxy with TLS 1.3: CPU time per KiB
    TlsBodies,
    /// Memory per open idle TLS connection
    TlsMemory,
    /// p99 of established TLS connections during a flood of handshakes, divided by the p99 without it
    TlsFlood,
    /// Responses with 27 bytes of JSON over HTTP/2 with TLS 1.3, 32 streams on each connection: CPU time per request
    #[value(name = "h2-json")]
    Http2Json,
    /// HTTP/2 without TLS, 8 streams on each connection, through a proxy to an HTTP/1.1 origin: CPU time per request
    #[value(name = "h2-proxy")]
    Http2Proxy,
    /// Memory per open idle HTTP/2 connection with TLS
    #[value(name = "h2-memory")]
    Http2Memory,
    /// Load generators that send to nginx over HTTP/2, 32 streams on each connection: client CPU time per request
    #[value(name = "h2-client")]
    Http2Client,
    /// WebSocket messages that the server sends back: CPU time per message
    Ws,
    /// Messages to all subscribers of a channel of a push server: CPU time per message that a subscriber receives
    Push,
}

/// The workloads that the command line selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    /// The workloads in `ALL`.
    All,
    /// The workloads in `TLS`.
    Tls,
    /// The workloads in `HTTP2`.
    Http2,
    One(What),
}

/// The workloads of `all`, with their numbers of connections. They take less than ten minutes with the default
/// number of rounds.
const ALL: [(What, u32); 12] = [
    (What::Json, 64),
    (What::Json, 4000),
    (What::Proxy, 64),
    (What::Proxy, 4000),
    (What::ProxyFields, 64),
    (What::Bodies, 16),
    (What::Pipeline, 64),
    (What::Latency, 64),
    (What::Memory, 18_000),
    (What::Start, 1),
    (What::Client, 64),
    (What::Client, 4000),
];

/// The workloads of `tls`. Separate from `ALL`, because both together take more than ten minutes.
const TLS: [(What, u32); 7] = [
    (What::TlsProxy, 64),
    (What::TlsHandshakes, 64),
    (What::TlsHandshakesRsa, 64),
    (What::TlsResumed, 64),
    (What::TlsBodies, 16),
    (What::TlsMemory, 15_000),
    (What::TlsFlood, 64),
];

/// The workloads of `h2`.
const HTTP2: [(What, u32); 4] = [
    (What::Http2Json, 16),
    (What::Http2Proxy, 64),
    (What::Http2Memory, 15_000),
    (What::Http2Client, 16),
];

/// The workloads that are in no group: they are selected only by name.
const OTHERS: [(What, u32); 2] = [(What::Ws, 100), (What::Push, 15_000)];

/// How the server's CPU time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// All non-idle time of the server's CPU: complete, but needs an otherwise idle machine
    Cpu,
    /// User and system time of the server's processes: usable while other programs run
    Process,
}

/// Arguments of `tidegate bench compare`.
#[derive(clap::Args, Debug)]
pub struct CompareArgs {
    /// The workload to compare
    #[arg(default_value = "all", value_parser = selection())]
    what: Selection,
    /// Measured rounds, after a warm-up round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX)))]
    rounds: u32,
    /// Length of a round in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of connections; a comma-separated list gives a table for each [default: depends on the workload]
    #[arg(long, value_delimiter = ',')]
    connections: Vec<u32>,
    /// Bytes of each message of `ws` and `push`; a comma-separated list gives a table for each
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "128")]
    size: Vec<usize>,
    /// The load generator [default: tidegate; for tls-proxy and tls-bodies wrk, if installed]
    #[arg(long, value_enum)]
    client: Option<Client>,
    /// Run only these contenders, comma-separated: tidegate, floor, nginx, haproxy, plain, h2o, bun, fastwebsockets,
    /// actix-ws, node, python, raw, centrifugo, nchan. With WHAT `client` or `h2-client`: the server that the load generators send to
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Path of the tidegate binary [default: the running program, or tidegate in its build directory]
    #[arg(long, value_name = "PATH")]
    ours: Option<PathBuf>,
    /// How the server's CPU time is measured
    #[arg(long, value_enum, default_value = "cpu")]
    by: By,
    /// CPU of the servers
    #[arg(long, default_value_t = 0, value_name = "N")]
    server_cpu: usize,
    /// CPU of the client and of the origin
    #[arg(long, default_value_t = 1, value_name = "N")]
    client_cpu: usize,
    /// Directory for the record: a line is appended to WHAT.jsonl in it
    #[arg(long, value_name = "FOLDER", default_value = "benches/results")]
    results: PathBuf,
    /// Print the record as JSON instead of the table, and do not append it to the file
    #[arg(long)]
    json: bool,
}

/// The settings that all workloads of a comparison share.
#[derive(Clone)]
struct Bench {
    own: OwnPrograms,
    folder: Arc<Scratch>,
    server_cpus: Vec<usize>,
    client_cpus: Vec<usize>,
    rounds: u32,
    duration: Duration,
    client: Option<Client>,
    only: Vec<String>,
    by: By,
}

/// Runs `tidegate bench compare`.
#[must_use]
pub fn run(args: &CompareArgs) -> ExitCode {
    interrupt::end_on_signal();
    let bench = match Bench::new(args) {
        Ok(bench) => bench,
        Err(why) => {
            eprintln!("tidegate: {why}");
            return ExitCode::from(2);
        }
    };
    let mut code = ExitCode::SUCCESS;
    let mut records = Vec::new();
    for (what, connections, message_bytes) in sized_cases(args) {
        match bench.compare(what, connections, message_bytes) {
            Ok(record) => {
                if !publish(&record, args) {
                    code = ExitCode::FAILURE;
                }
                records.push(record);
            }
            Err(why) => {
                eprintln!("tidegate: {why}");
                code = ExitCode::FAILURE;
            }
        }
    }
    let has_goals = |what| matches!(what, What::Ws | What::Push);
    let has_summary = !matches!(args.what, Selection::One(what) if !has_goals(what));
    if has_summary && !args.json {
        // A closed pipe is not a failure: the reader wanted no more output.
        let _ = writeln!(io::stdout(), "{}", goals::summary(&records));
    }
    code
}

/// Measures only the floor, first as a server that responds itself, then as a bare proxy, and prints both figures.
#[must_use]
pub fn measure_floor(json: bool) -> ExitCode {
    let cpus = machine::allowed_cpus();
    let [server_cpu, .., client_cpu] = cpus[..] else {
        eprintln!(
            "tidegate: bench floor needs two CPUs, one for the server and one for the client; allow this \
             process a second CPU (taskset -c)"
        );
        return ExitCode::from(2);
    };
    let args = CompareArgs {
        what: Selection::One(What::Json),
        rounds: 3,
        seconds: 2.0,
        size: Vec::new(),
        connections: vec![64],
        client: Some(Client::Tidegate),
        by: By::Cpu,
        only: vec!["floor".to_owned()],
        ours: None,
        server_cpu,
        client_cpu,
        results: PathBuf::new(),
        json,
    };
    interrupt::end_on_signal();
    let records = Bench::new(&args).and_then(|bench| {
        let [answering, proxying] =
            [What::Json, What::Proxy].map(|what| bench.compare(what, 64, 0));
        Ok([answering?, proxying?])
    });
    let records = match records {
        Ok(records) => records,
        Err(why) => {
            eprintln!("tidegate: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut stdout = io::stdout().lock();
    for record in records {
        let written = if json {
            writeln!(stdout, "{}", record.to_json())
        } else {
            writeln!(stdout, "{record}")
        };
        if written.is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Parses `all`, `tls`, `h2` or the name of one workload.
fn selection() -> impl TypedValueParser<Value = Selection> {
    let all = PossibleValue::new("all")
        .help("All workloads without TLS, one after the other, and a table of goals");
    let tls = PossibleValue::new("tls").help("All workloads with TLS, and a table of goals");
    let http2 = PossibleValue::new("h2").help("All workloads with HTTP/2, and a table of goals");
    let each = What::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    PossibleValuesParser::new([all, tls, http2].into_iter().chain(each)).map(|name| {
        let every = match name.as_str() {
            "tls" => Selection::Tls,
            "h2" => Selection::Http2,
            _ => Selection::All,
        };
        What::from_str(&name, false).map_or(every, Selection::One)
    })
}

/// The selected workloads, with their numbers of connections.
fn cases(args: &CompareArgs) -> Vec<(What, u32)> {
    let is_selected = |what: What| match args.what {
        Selection::All => ALL.iter().any(|(one, _)| *one == what),
        Selection::Tls => TLS.iter().any(|(one, _)| *one == what),
        Selection::Http2 => HTTP2.iter().any(|(one, _)| *one == what),
        Selection::One(only) => only == what,
    };
    let is_one = matches!(args.what, Selection::One(_));
    let each = ALL
        .into_iter()
        .chain(TLS)
        .chain(HTTP2)
        .chain(OTHERS)
        .filter(|&(what, _)| is_selected(what));
    if args.connections.is_empty() {
        // A single workload is measured only with its first number of connections.
        return each.take(if is_one { 1 } else { usize::MAX }).collect();
    }
    let mut cases = Vec::new();
    for (what, _) in each {
        for &connections in &args.connections {
            if !cases.contains(&(what, connections)) {
                cases.push((what, connections));
            }
        }
    }
    cases
}

/// The cases, each with its size of messages: every size for `ws` and `push`, 0 for other workloads.
fn sized_cases(args: &CompareArgs) -> Vec<(What, u32, usize)> {
    let mut sized = Vec::new();
    for (what, connections) in cases(args) {
        let has_sizes = matches!(what, What::Ws | What::Push);
        let sizes: &[usize] = if has_sizes { &args.size } else { &[0] };
        sized.extend(sizes.iter().map(|&size| (what, connections, size)));
    }
    sized
}

fn publish(record: &Record, args: &CompareArgs) -> bool {
    let mut stdout = io::stdout().lock();
    let line = record.to_json();
    if args.json {
        return writeln!(stdout, "{line}").is_ok();
    }
    if writeln!(stdout, "{record}").is_err() {
        return false;
    }
    match append(&args.results, record.what, &line.to_string()) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("tidegate: cannot append the record in {}: {error}", args.results.display());
            false
        }
    }
}

fn append(folder: &Path, what: &str, line: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{what}.jsonl"));
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
    // One write, because a signal could end the process between two writes.
    file.write_all(format!("{line}\n").as_bytes())
}

impl Bench {
    fn new(args: &CompareArgs) -> Result<Self, String> {
        let allowed = machine::allowed_cpus();
        for cpu in [args.server_cpu, args.client_cpu] {
            if !allowed.contains(&cpu) {
                return Err(format!(
                    "this process may not use CPU {cpu}; allowed: {allowed:?} (--server-cpu, --client-cpu)"
                ));
            }
        }
        for name in &args.only {
            if !contender::NAMES.contains(&name.as_str()) {
                let names = contender::NAMES.join(", ");
                return Err(format!("--only: unknown contender `{name}`; allowed: {names}"));
            }
        }
        if !(0.1..=3600.0).contains(&args.seconds) {
            return Err(format!("--seconds {}: out of range; allowed: 0.1 to 3600", args.seconds));
        }
        // If this fails, the limit stays lower; code that needs many descriptors checks it.
        let _ = machine::raise_descriptor_limit();
        Ok(Self {
            own: find_own_programs(args.ours.clone())?,
            folder: Arc::new(Scratch::new()?),
            server_cpus: vec![args.server_cpu],
            client_cpus: vec![args.client_cpu],
            rounds: args.rounds,
            duration: Duration::from_secs_f64(args.seconds),
            client: args.client,
            only: args.only.clone(),
            by: args.by,
        })
    }

    /// Compares all contenders. `message_bytes`: the size of the messages of `ws` and `push`.
    fn compare(
        &self,
        what: What,
        connections: u32,
        message_bytes: usize,
    ) -> Result<Record, String> {
        match what {
            What::Json => self.cpu_rounds("json", Work::Json, "/json", connections, 1),
            What::Pipeline => self.cpu_rounds(
                "pipeline",
                Work::Plaintext,
                "/plaintext",
                connections,
                PIPELINE_DEPTH,
            ),
            What::Ws => {
                let message_bytes = Some(message_bytes);
                let load = Load { message_bytes, ..Load::new("/echo", connections) };
                self.cpu_rounds_of("ws", Work::Echo, &load)
            }
            What::Push => self.push_rounds(connections, message_bytes),
            What::Proxy => {
                let origin = self.start_origin(&[])?;
                self.cpu_rounds("proxy", Work::Proxy(origin.address), "/json", connections, 1)
            }
            What::ProxyFields => {
                let origin = self.start_origin(&[])?;
                let work = Work::ProxyFields(origin.address);
                self.cpu_rounds("proxy-fields", work, "/json", connections, 1)
            }
            What::Bodies => {
                let origin = self.start_origin(&["--body-bytes", &LARGE_BODY_BYTES.to_string()])?;
                self.cpu_rounds("bodies", Work::Proxy(origin.address), "/body", connections, 1)
            }
            What::Latency => {
                let origin = self.start_origin(&[])?;
                self.latency_rounds(origin.address, connections)
            }
            What::Memory => self.memory(connections),
            What::Start => self.start_times(),
            What::Client => {
                let load = Load::new("/json", connections);
                self.client_rounds("client", Work::Json, "floor", &load)
            }
            What::TlsProxy => self.secure_proxy("tls-proxy", connections, None),
            What::TlsBodies => {
                self.secure_proxy("tls-bodies", connections, Some(SECURE_BODY_BYTES))
            }
            What::TlsHandshakes => {
                self.handshakes("tls-handshakes", connections, Key::Ecdsa, Reuse::Full)
            }
            What::TlsHandshakesRsa => {
                self.handshakes("tls-handshakes-rsa", connections, Key::Rsa, Reuse::Full)
            }
            What::TlsResumed => {
                self.handshakes("tls-resumed", connections, Key::Ecdsa, Reuse::Resumed)
            }
            What::TlsMemory => self.secure_memory(connections),
            What::TlsFlood => self.flood_rounds(connections),
            What::Http2Json => {
                let work = Work::SecureHttp2Json;
                self.cpu_rounds("h2-json", work, "/json", connections, HTTP2_JSON_STREAMS)
            }
            What::Http2Proxy => {
                let origin = self.start_origin(&[])?;
                let work = Work::Http2Proxy(origin.address);
                self.cpu_rounds("h2-proxy", work, "/json", connections, HTTP2_PROXY_STREAMS)
            }
            What::Http2Memory => self.http2_memory(connections),
            What::Http2Client => {
                let pipeline = HTTP2_JSON_STREAMS;
                let load = Load { pipeline, ..Load::new("/json", connections) };
                self.client_rounds("h2-client", Work::Http2Json, "nginx", &load)
            }
        }
    }

    /// Rounds of proxies with TLS towards the client. wrk sends the load, if installed, so that client and
    /// Tidegate do not share a TLS library.
    fn secure_proxy(
        &self,
        what: &'static str,
        connections: u32,
        body_bytes: Option<usize>,
    ) -> Result<Record, String> {
        let mut bench = self.clone();
        if bench.client.is_none() && crate::process::find_program("wrk").is_some() {
            bench.client = Some(Client::Wrk);
        }
        let bytes = body_bytes.map(|bytes| bytes.to_string());
        let arguments = bytes.as_ref().map_or_else(Vec::new, |bytes| vec!["--body-bytes", bytes]);
        let origin = bench.start_origin(&arguments)?;
        bench.cpu_rounds(what, Work::SecureProxy(origin.address), "/json", connections, 1)
    }

    /// Rounds of connections with a handshake and one request each.
    fn handshakes(
        &self,
        what: &'static str,
        connections: u32,
        key: Key,
        reuse: Reuse,
    ) -> Result<Record, String> {
        let load = Load { reuse, ..Load::new("/json", connections) };
        self.cpu_rounds_of(what, Work::SecureJson(key), &load)
    }

    fn client(&self) -> Client {
        self.client.unwrap_or(Client::Tidegate)
    }

    /// Starts all contenders of `work`. Prints on stderr which contenders are left out, and why.
    fn start_all(&self, work: Work) -> Result<Vec<Contender>, String> {
        let mut contenders = Vec::new();
        for &name in work.names() {
            if !self.takes_part(name) {
                continue;
            }
            match contender::start(name, work, &self.own, self.folder.path(), &self.server_cpus) {
                Ok(contender) => contenders.push(contender),
                Err(why) => eprintln!("tidegate: left out of the comparison: {why}"),
            }
        }
        if contenders.is_empty() {
            return Err(
                "no contender could be started; see the messages above and --only".to_owned()
            );
        }
        Ok(contenders)
    }

    fn takes_part(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Starts the floor server that is the origin of the proxies, on the client's CPU.
    fn start_origin(&self, arguments: &[&str]) -> Result<Contender, String> {
        let failed = |error: io::Error| format!("origin: {error}");
        let address: SocketAddr = crate::process::free_address().map_err(failed)?;
        let mut command = contender::floor(Work::Json, &self.own, address);
        command.args(arguments);
        let running =
            crate::process::Running::start(&command, &self.client_cpus).map_err(failed)?;
        contender::wait_until_listening(&running, "origin", address)?;
        let (name, version) = ("origin", String::new());
        Ok(Contender { name, version, address, is_secure: false, is_http2: false, running })
    }
}

/// Finds the project's own programs: the running program, and the `tidegate` binary, which may be the same or
/// in the directory above.
fn find_own_programs(given: Option<PathBuf>) -> Result<OwnPrograms, String> {
    let bench = std::env::current_exe()
        .map_err(|error| format!("cannot find the path of this program: {error}"))?;
    if let Some(path) = given {
        if !path.is_file() {
            return Err(format!("--ours {}: no such file", path.display()));
        }
        return Ok(OwnPrograms { tidegate: Some(path), bench });
    }
    let is_tidegate = bench.file_name().is_some_and(|name| name == "tidegate");
    let beside = bench.parent().and_then(Path::parent).map(|folder| folder.join("tidegate"));
    let tidegate =
        if is_tidegate { Some(bench.clone()) } else { beside.filter(|path| path.is_file()) };
    Ok(OwnPrograms { tidegate, bench })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: CompareArgs,
    }

    fn cases_of(line: &str) -> Vec<(What, u32)> {
        let words = core::iter::once("compare").chain(line.split_ascii_whitespace());
        cases(&<Line as clap::Parser>::parse_from(words).args)
    }

    #[test]
    fn default_selection_is_all() {
        assert_eq!(cases_of(""), ALL);
        assert_eq!(cases_of("all"), ALL);
        assert_eq!(cases_of("tls"), TLS);
        assert_eq!(cases_of("h2"), HTTP2);
        for what in What::value_variants() {
            let each = ALL.iter().chain(&TLS).chain(&HTTP2).chain(&OTHERS);
            assert_eq!(each.filter(|(one, _)| one == what).count().min(1), 1, "{what:?}");
        }
    }

    #[test]
    fn messages_have_every_size_with_every_number_of_connections() {
        let sized = |line: &str| {
            let words = core::iter::once("compare").chain(line.split_ascii_whitespace());
            sized_cases(&<Line as clap::Parser>::parse_from(words).args)
        };
        assert_eq!(sized("ws"), [(What::Ws, 100, 128)]);
        assert_eq!(
            sized("ws --connections 1,2 --size 20,128"),
            [(What::Ws, 1, 20), (What::Ws, 1, 128), (What::Ws, 2, 20), (What::Ws, 2, 128)]
        );
        assert_eq!(sized("push --size 13"), [(What::Push, 15_000, 13)]);
        assert_eq!(sized("json --size 20,128"), [(What::Json, 64, 0)]);
    }

    #[test]
    fn connections_default_to_those_of_the_workload() {
        assert_eq!(cases_of("bodies"), [(What::Bodies, 16)]);
        assert_eq!(cases_of("json"), [(What::Json, 64)]);
        assert_eq!(cases_of("json --connections 1,512"), [(What::Json, 1), (What::Json, 512)]);
    }
}
