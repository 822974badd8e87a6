//! `tidegate bench compare`: paired rounds of one work against its floor and its peers (MEASURE.md).
//! In: which work. Out: a table, and one JSON line for the record.
//! Never: decides on requests per second where CPU time per request can be measured.
//! Limits: `ROUNDS_MAX`. Invariant: all contenders are up during all rounds and take turns; they and the
//! scratch folder are gone when it is over, also by a signal.

mod ask;
mod certificate;
mod contender;
mod flood;
mod goals;
mod load;
mod record;
mod rounds;
mod single;

use crate::scratch::Scratch;
use crate::{interrupt, machine};
use certificate::Key;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use contender::{Contender, Ours, Work};
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

/// Rounds of one comparison.
pub const ROUNDS_MAX: u32 = 1000;
/// Body of the `bodies` case.
const LARGE_BODY_BYTES: usize = 1024 * 1024;
/// Body of the `tls-bodies` case.
const SECURE_BODY_BYTES: usize = 64 * 1024;
/// Depth of the `pipeline` case.
const PIPELINE_DEPTH: u16 = 16;

/// The works that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// A 27-byte JSON answer: CPU time per request
    Json,
    /// The same through a proxy with one origin: CPU time per request
    Proxy,
    /// `proxy` with peers that add the same header fields as Tidegate always does
    ProxyFields,
    /// 1 MiB bodies through a proxy: bytes per CPU second
    Bodies,
    /// 13 bytes of text, 16 requests in flight on each connection: CPU time per request
    Pipeline,
    /// p99.9 through a proxy at half of the slowest one's load
    Latency,
    /// Memory for each idle connection that is kept open
    Memory,
    /// Time from the start to the first answer, and memory then
    Start,
    /// Clients: requests per client CPU second on the same server
    Client,
    /// `proxy` over TLS 1.3, and our own plain proxy beside it: CPU time per request
    TlsProxy,
    /// Full TLS 1.3 handshakes, ECDSA P-256: CPU time for each
    TlsHandshakes,
    /// The same with RSA-2048
    TlsHandshakesRsa,
    /// Resumed TLS 1.3 handshakes: CPU time for each
    TlsResumed,
    /// 64 KiB bodies through a proxy with TLS 1.3: bytes per CPU second
    TlsBodies,
    /// Memory for each idle TLS connection that is kept open
    TlsMemory,
    /// p99 of established TLS connections while handshakes flood in, over its quiet value
    TlsFlood,
}

/// Which works are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    /// `ALL`.
    All,
    /// `TLS`.
    Tls,
    One(What),
}

/// What `all` runs, and on how many connections; in less than ten minutes with the default rounds.
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

/// What `tls` runs; together with `ALL` it would take more than ten minutes.
const TLS: [(What, u32); 7] = [
    (What::TlsProxy, 64),
    (What::TlsHandshakes, 64),
    (What::TlsHandshakesRsa, 64),
    (What::TlsResumed, 64),
    (What::TlsBodies, 16),
    (What::TlsMemory, 15_000),
    (What::TlsFlood, 64),
];

/// Whose CPU time decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// All that the server's CPU did while it was not idle: the whole truth on a quiet machine
    Cpu,
    /// User and system time of the server's processes: usable beside other programs
    Process,
}

/// Arguments of `tidegate bench compare`.
#[derive(clap::Args, Debug)]
pub struct CompareArgs {
    /// What is compared
    #[arg(default_value = "all", value_parser = selection())]
    what: Selection,
    /// Rounds that count, after one that warms up
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX)))]
    rounds: u32,
    /// Seconds of a round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Connections; several, with commas, make several tables [default: what suits each work]
    #[arg(long, value_delimiter = ',')]
    connections: Vec<u32>,
    /// Who sends the requests [default: tidegate; wrk where requests go over kept TLS connections]
    #[arg(long, value_enum)]
    client: Option<Client>,
    /// Take only these, with commas: tidegate, floor, nginx, haproxy, plain; for `client`: the server that answers
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The tidegate binary [default: the one that runs, or the one beside it]
    #[arg(long, value_name = "PATH")]
    ours: Option<PathBuf>,
    /// Whose CPU time decides
    #[arg(long, value_enum, default_value = "cpu")]
    by: By,
    /// CPU of the servers
    #[arg(long, default_value_t = 0, value_name = "N")]
    server_cpu: usize,
    /// CPU of the client and of the origin
    #[arg(long, default_value_t = 1, value_name = "N")]
    client_cpu: usize,
    /// Folder for the record; one line is appended to WHAT.jsonl in it
    #[arg(long, value_name = "FOLDER", default_value = "benches/results")]
    results: PathBuf,
    /// Print the record instead of the table, and append nothing
    #[arg(long)]
    json: bool,
}

/// What all cases of a comparison share.
#[derive(Clone)]
struct Bench {
    ours: Ours,
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
    interrupt::end_on_signal("tidegate bench compare");
    let bench = match Bench::new(args) {
        Ok(bench) => bench,
        Err(why) => {
            eprintln!("tidegate bench compare: {why}");
            return ExitCode::from(2);
        }
    };
    let mut code = ExitCode::SUCCESS;
    let mut records = Vec::new();
    for (what, connections) in cases(args) {
        match bench.compare(what, connections) {
            Ok(record) => {
                if !publish(&record, args) {
                    code = ExitCode::FAILURE;
                }
                records.push(record);
            }
            Err(why) => {
                eprintln!("tidegate bench compare: {why}");
                code = ExitCode::FAILURE;
            }
        }
    }
    if !matches!(args.what, Selection::One(_)) && !args.json {
        // A reader that went away has what it wanted.
        let _ = writeln!(io::stdout(), "{}", goals::summary(&records));
    }
    code
}

/// Measures the floor alone, as an answering server and as a bare proxy, and prints both.
#[must_use]
pub fn measure_floor(json: bool) -> ExitCode {
    let cpus = machine::allowed_cpus();
    let [server_cpu, .., client_cpu] = cpus[..] else {
        eprintln!("tidegate bench floor: one CPU for the server and one for the client are needed");
        return ExitCode::from(2);
    };
    let args = CompareArgs {
        what: Selection::One(What::Json),
        rounds: 3,
        seconds: 2.0,
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
    interrupt::end_on_signal("tidegate bench floor");
    let records = Bench::new(&args).and_then(|bench| {
        let [answering, proxying] = [What::Json, What::Proxy].map(|what| bench.compare(what, 64));
        Ok([answering?, proxying?])
    });
    let records = match records {
        Ok(records) => records,
        Err(why) => {
            eprintln!("tidegate bench floor: {why}");
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

/// `all`, or the name of one work.
fn selection() -> impl TypedValueParser<Value = Selection> {
    let all = PossibleValue::new("all")
        .help("All of those without TLS, one after the other, and what was asked");
    let tls = PossibleValue::new("tls").help("All of those with TLS, and what was asked");
    let each = What::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    PossibleValuesParser::new([all, tls].into_iter().chain(each)).map(|name| {
        let every = if name == "tls" { Selection::Tls } else { Selection::All };
        What::from_str(&name, false).map_or(every, Selection::One)
    })
}

/// Each work that is asked for, with its connections.
fn cases(args: &CompareArgs) -> Vec<(What, u32)> {
    let is_meant = |what: What| match args.what {
        Selection::All => ALL.iter().any(|(one, _)| *one == what),
        Selection::Tls => TLS.iter().any(|(one, _)| *one == what),
        Selection::One(only) => only == what,
    };
    let is_one = matches!(args.what, Selection::One(_));
    let each = ALL.into_iter().chain(TLS).filter(|&(what, _)| is_meant(what));
    if args.connections.is_empty() {
        // One work alone is measured in its base case.
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
            eprintln!("tidegate bench compare: {}: {error}", args.results.display());
            false
        }
    }
}

fn append(folder: &Path, what: &str, line: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{what}.jsonl"));
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
    // In one piece: a signal may end the process between two.
    file.write_all(format!("{line}\n").as_bytes())
}

impl Bench {
    fn new(args: &CompareArgs) -> Result<Self, String> {
        let allowed = machine::allowed_cpus();
        for cpu in [args.server_cpu, args.client_cpu] {
            if !allowed.contains(&cpu) {
                return Err(format!("CPU {cpu} is not one that may be used here: {allowed:?}"));
            }
        }
        for name in &args.only {
            if !contender::NAMES.contains(&name.as_str()) {
                let names = contender::NAMES.join(", ");
                return Err(format!("unknown contender `{name}`; there are {names}"));
            }
        }
        if !(0.1..=3600.0).contains(&args.seconds) {
            return Err(format!("--seconds {}: a round takes 0.1 to 3600 seconds", args.seconds));
        }
        // The limit that stays is checked where descriptors are needed.
        let _ = machine::raise_descriptor_limit();
        Ok(Self {
            ours: find_ours(args.ours.clone())?,
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

    fn compare(&self, what: What, connections: u32) -> Result<Record, String> {
        match what {
            What::Json => self.cpu_rounds("json", Work::Json, "/json", connections, 1),
            What::Pipeline => self.cpu_rounds(
                "pipeline",
                Work::Plaintext,
                "/plaintext",
                connections,
                PIPELINE_DEPTH,
            ),
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
            What::Client => self.client_rounds(connections),
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
        }
    }

    /// Rounds of proxies that speak TLS with the client, loaded by somebody else's TLS where there is one.
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

    /// Rounds of connections that carry a handshake and one request each.
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

    /// Starts all that can take part; says on stderr who cannot, and why.
    fn start_all(&self, work: Work) -> Result<Vec<Contender>, String> {
        let mut contenders = Vec::new();
        for &name in work.names() {
            if !self.takes_part(name) {
                continue;
            }
            match contender::start(name, work, &self.ours, self.folder.path(), &self.server_cpus) {
                Ok(contender) => contenders.push(contender),
                Err(why) => eprintln!("not compared: {why}"),
            }
        }
        if contenders.is_empty() {
            return Err("there is nobody to compare".to_owned());
        }
        Ok(contenders)
    }

    fn takes_part(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Starts the floor server that stands behind the proxies, on the client's CPU.
    fn start_origin(&self, arguments: &[&str]) -> Result<Contender, String> {
        let failed = |error: io::Error| format!("origin: {error}");
        let address: SocketAddr = crate::process::free_address().map_err(failed)?;
        let mut command = contender::floor(Work::Json, &self.ours, address);
        command.args(arguments);
        let running =
            crate::process::Running::start(&command, &self.client_cpus).map_err(failed)?;
        contender::wait_until_listening(&running, "origin", address)?;
        let (name, version, is_secure) = ("origin", String::new(), false);
        Ok(Contender { name, version, address, is_secure, running })
    }
}

/// Our own programs: this one, and the `tidegate` binary, which may be the same or lie beside it.
fn find_ours(given: Option<PathBuf>) -> Result<Ours, String> {
    let bench = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    if let Some(path) = given {
        if !path.is_file() {
            return Err(format!("--ours {}: no such file", path.display()));
        }
        return Ok(Ours { tidegate: Some(path), bench });
    }
    let is_tidegate = bench.file_name().is_some_and(|name| name == "tidegate");
    let beside = bench.parent().and_then(Path::parent).map(|folder| folder.join("tidegate"));
    let tidegate =
        if is_tidegate { Some(bench.clone()) } else { beside.filter(|path| path.is_file()) };
    Ok(Ours { tidegate, bench })
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
    fn all_is_what_runs_when_nothing_is_chosen() {
        assert_eq!(cases_of(""), ALL);
        assert_eq!(cases_of("all"), ALL);
        assert_eq!(cases_of("tls"), TLS);
        for what in What::value_variants() {
            let both = ALL.iter().chain(&TLS);
            assert_eq!(both.filter(|(one, _)| one == what).count().min(1), 1, "{what:?}");
        }
    }

    #[test]
    fn one_work_has_its_own_connections_or_those_that_are_given() {
        assert_eq!(cases_of("bodies"), [(What::Bodies, 16)]);
        assert_eq!(cases_of("json"), [(What::Json, 64)]);
        assert_eq!(cases_of("json --connections 1,512"), [(What::Json, 1), (What::Json, 512)]);
    }
}
