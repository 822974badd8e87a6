//! `tidegate bench ws`: messages to a WebSocket server that sends each of them back.
//! In: arguments. Out: a report: messages per second, latencies, CPU time per message; an exit code.
//! Never: counts an echo that differs from its message; sends before all connections are established or have failed;
//! measures the latency of an open loop from a later time than the planned one.
//! Limits: those of `args.rs` and `message.rs`.
//! Invariant: one message is one echo: a message sent, and the same message received, within the measured time.

mod args;
mod message;
mod report;
mod talk;

pub use args::EchoArgs;
pub use report::EchoReport;

use crate::compare::load::{Counted, Round};
use crate::fleet;
use crate::handshake::Handshake;
use crate::histogram::{COMPARED, Times};
use crate::interrupt;
use crate::machine::{self, Spent};
use crate::plan::Plan;
use crate::report::sockets::ThreadTime;
use crate::target::Url;
use crate::tls::TlsOptions;
use core::net::SocketAddr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};
use core::time::Duration;
use message::Message;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;
use talk::Talk;
use tidegate_wire::tls::Connector;
use tidegate_wire::websocket::{DeflateSettings, Kind, Offer};

/// How often the main thread checks the others.
const POLL_EVERY: Duration = Duration::from_millis(1);

/// The plan of a load.
#[derive(Clone, Debug)]
pub struct EchoPlan {
    /// Connections, threads and source addresses.
    connections: Plan,
    /// Number of threads.
    threads: u16,
    /// The echoes, which connections take in turn.
    targets: Vec<EchoTarget>,
    /// Messages are compressed if the server agrees.
    compresses: bool,
    /// How certificates are verified.
    tls: TlsOptions,
    message: Message,
    /// Frames of a message.
    fragments: usize,
    /// Messages without an echo on each connection.
    outstanding: u16,
    pace: Pace,
    /// The part of the run that is not measured.
    warm_up: Duration,
    /// The measured part.
    duration: Duration,
    timeout: Duration,
}

/// An echo.
#[derive(Clone, Debug)]
struct EchoTarget {
    url: Url,
    address: SocketAddr,
}

/// The handshakes of connections to one target: WebSocket, and TLS if its URL has the scheme wss.
struct TargetHandshake {
    handshake: Handshake,
    /// `None` without TLS.
    tls: Option<(Connector, String)>,
}

impl TargetHandshake {
    fn new(plan: &EchoPlan, target: &EchoTarget, fields: &[String]) -> Result<Self, String> {
        let deflate = plan.compresses.then(DeflateSettings::default);
        let offer = Offer { deflate, ..Offer::default() };
        let seed = std::process::id().into();
        let tls = match target.url.is_secure {
            true => {
                let name = plan.tls.name_for(&target.url)?;
                let (connector, _) = plan.tls.connector(plan.connections.connections)?;
                Some((connector, name))
            }
            false => None,
        };
        Ok(Self { handshake: Handshake::new(&target.url, fields, offer, seed)?, tls })
    }
}

/// When messages are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each after an echo.
    Closed,
    /// At planned times: so many per second over all connections.
    Rate(f64),
}

/// The state that the threads share. Times are nanoseconds from `start`; `u64::MAX`: not yet known.
struct Shared {
    start: Instant,
    /// When the first messages are sent.
    begin: AtomicU64,
    /// The measured time.
    counted_from: AtomicU64,
    end: AtomicU64,
    /// A signal or a failed thread has ended the run.
    is_stopped: AtomicBool,
    /// A thread has failed, so the run ends.
    has_failed: AtomicBool,
    /// Connections that were established, or could not be.
    opened: AtomicU64,
    failed: AtomicU64,
}

impl Shared {
    fn new() -> Self {
        let never = || AtomicU64::new(u64::MAX);
        Self {
            start: Instant::now(),
            begin: never(),
            counted_from: never(),
            end: never(),
            is_stopped: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            opened: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// When the first messages are sent; `None` until that is known.
    fn begin(&self) -> Option<Duration> {
        let nanos = self.begin.load(Relaxed);
        (nanos < u64::MAX).then(|| Duration::from_nanos(nanos))
    }

    fn counted_from(&self) -> Duration {
        Duration::from_nanos(self.counted_from.load(Relaxed))
    }

    fn end(&self) -> Duration {
        Duration::from_nanos(self.end.load(Relaxed))
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }
}

/// The results of the connections of one thread, or of all threads.
#[derive(Debug)]
pub struct EchoOutcome {
    /// Connections that were established.
    opened: u64,
    /// Connections that could not be established, by reason.
    failed: BTreeMap<String, u64>,
    /// Connections that ended before the run did, by reason.
    lost: BTreeMap<String, u64>,
    /// Messages without an echo on these.
    lost_messages: u64,
    /// Messages without an echo when the run ended.
    unanswered: u64,
    /// Messages of an open loop that were due and not sent.
    unsent: u64,
    /// Echoes in the measured time.
    messages: u64,
    /// The results of compression.
    compression: Compression,
    /// Of each connection that was open at the end.
    per_connection: Vec<u32>,
    /// When the last connection was established, from the start.
    opened_last: Duration,
    /// Connection attempt to the end of the handshake.
    setup: Times,
    /// From the time at which a message was due to its echo.
    latency: Times,
    /// Open loop: from the time at which a message was sent to its echo.
    service: Times,
    /// Time that the threads used in the measured time.
    used: ThreadTime,
    /// The largest part of its time that one thread was on a CPU.
    busiest: f64,
}

/// Messages on connections whose server has agreed to compression, during the whole run.
#[derive(Clone, Copy, Debug, Default)]
struct Compression {
    /// These connections.
    connections: u64,
    /// Messages that were sent, and their bytes with the heads of their frames.
    sent: u64,
    sent_bytes: u64,
    /// Echoes that were received, those of them that were compressed, and the bytes of all payloads.
    received: u64,
    received_deflated: u64,
    received_bytes: u64,
}

impl Compression {
    fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.received_deflated += other.received_deflated;
        self.received_bytes += other.received_bytes;
    }
}

impl EchoOutcome {
    fn new() -> Self {
        Self {
            opened: 0,
            failed: BTreeMap::new(),
            lost: BTreeMap::new(),
            lost_messages: 0,
            unanswered: 0,
            unsent: 0,
            messages: 0,
            compression: Compression::default(),
            per_connection: Vec::new(),
            opened_last: Duration::ZERO,
            setup: Times::fine(),
            latency: Times::fine(),
            service: Times::fine(),
            used: ThreadTime::default(),
            busiest: 0.0,
        }
    }

    /// Adds the outcome of another thread.
    fn add(&mut self, other: Self) {
        self.opened += other.opened;
        for (all, some) in [(&mut self.failed, other.failed), (&mut self.lost, other.lost)] {
            for (reason, count) in some {
                *all.entry(reason).or_default() += count;
            }
        }
        self.lost_messages += other.lost_messages;
        self.unanswered += other.unanswered;
        self.unsent += other.unsent;
        self.messages += other.messages;
        self.compression.add(other.compression);
        self.per_connection.extend(other.per_connection);
        self.opened_last = self.opened_last.max(other.opened_last);
        self.setup.add(&other.setup);
        self.latency.add(&other.latency);
        self.service.add(&other.service);
        self.used.cpu += other.used.cpu;
        self.used.delay += other.used.delay;
        self.used.wall += other.used.wall;
        self.busiest = self.busiest.max(other.busiest);
    }
}

/// Runs `tidegate bench ws`.
#[must_use]
pub fn run(args: &EchoArgs) -> ExitCode {
    match run_args(args) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("tidegate: {why}");
            ExitCode::from(2)
        }
    }
}

fn run_args(args: &EchoArgs) -> Result<ExitCode, String> {
    let plan = args.plan()?;
    for &pid in &args.server_pids {
        if machine::spent(pid).is_none() {
            return Err(format!("--server-pid {pid}: no such process"));
        }
    }
    let stop = interrupt::stop_on_signal();
    let report = run_plan(&plan, &args.header, &args.server_pids, &args.client_cpus, stop)?;
    let text = if args.json { format!("{:#}\n", report.to_json()) } else { report.to_text() };
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| format!("could not write the report to stdout: {error}"))?;
    Ok(if report.is_successful() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a load.
///
/// # Errors
/// A message for the operator.
fn run_plan<'a>(
    plan: &'a EchoPlan,
    fields: &[String],
    server_pids: &[u32],
    cpus: &[usize],
    stop: &AtomicBool,
) -> Result<EchoReport<'a>, String> {
    let handshakes = plan.targets.iter().map(|target| TargetHandshake::new(plan, target, fields));
    let handshakes: Vec<TargetHandshake> = handshakes.collect::<Result<_, _>>()?;
    let shared = Shared::new();
    let mut outcome = EchoOutcome::new();
    let mut course = None;
    thread::scope(|scope| -> Result<(), String> {
        let mut threads = Vec::new();
        for number in 0..plan.threads {
            let (shared, handshakes) = (&shared, handshakes.as_slice());
            threads.push(scope.spawn(move || {
                let run = || -> Result<EchoOutcome, String> {
                    fleet::begin_thread(cpus, number)?;
                    let talk = Talk::new(plan, shared, number, handshakes);
                    talk.and_then(Talk::run).map_err(|why| why.to_string())
                };
                let outcome = run();
                shared.has_failed.fetch_or(outcome.is_err(), Relaxed);
                outcome
            }));
        }
        course = Some(Course::run(plan, &shared, server_pids, stop));
        for thread in threads {
            match thread.join() {
                Ok(Ok(some)) => outcome.add(some),
                Ok(Err(error)) => return Err(format!("a client thread failed: {error}")),
                Err(_) => return Err("a client thread panicked".to_owned()),
            }
        }
        Ok(())
    })?;
    let course = course.unwrap_or_default();
    Ok(EchoReport::new(plan, outcome, course))
}

/// One round of a comparison: a closed loop of binary messages on connections to one server.
///
/// # Errors
/// A message for the operator.
pub(crate) fn run_round(round: &Round<'_>, bytes: usize) -> Result<Counted, String> {
    let scheme = if round.is_secure { "https" } else { "http" };
    let url = Url::parse(&format!("{scheme}://{}{}", round.address, round.path))?;
    let threads = fleet::threads(round.connections, None)?;
    let sources = fleet::sources(round.connections, None, round.address)?;
    let plan = EchoPlan {
        connections: Plan { connections: round.connections, threads, sources, ..Plan::default() },
        threads,
        targets: vec![EchoTarget { url, address: round.address }],
        compresses: false,
        tls: TlsOptions::of_comparison(true),
        message: Message::new(Kind::Binary, bytes, 1),
        fragments: 1,
        outstanding: round.pipeline,
        pace: round.rate_per_s.map_or(Pace::Closed, Pace::Rate),
        warm_up: Duration::ZERO,
        duration: round.duration,
        timeout: Duration::from_secs(10),
    };
    let before = machine::process_cpu_time();
    let report = run_plan(&plan, &[], &[], round.cpus, &AtomicBool::new(false))?;
    let spent = machine::process_cpu_time().saturating_sub(before);
    let outcome = &report.outcome;
    let failed = outcome.failed.iter().chain(&outcome.lost);
    let words: Vec<String> = failed.map(|(reason, count)| format!("{count}: {reason}")).collect();
    if outcome.messages == 0 {
        return Err(format!("no echo arrived; {}", words.join("; ")));
    }
    let latency = &outcome.latency;
    Ok(Counted {
        requests: outcome.messages,
        errors: outcome.failed.values().chain(outcome.lost.values()).sum::<u64>()
            + outcome.unanswered,
        seconds: report.course.span.as_secs_f64(),
        body_bytes: outcome.messages * bytes as u64,
        latency_us: COMPARED.map(|at| latency.reportable_us(at)),
        client_cpu_s: spent.as_secs_f64(),
        // A closed loop keeps the CPU of the slower side busy by design.
        saturated: false,
    })
}

/// The measurements of the main thread.
#[derive(Clone, Debug, Default)]
struct Course {
    /// The measured time.
    span: Duration,
    /// The server's use in the measured time; `None` if no process was named.
    server: Option<Spent>,
    /// CPU time of this process in the measured time.
    client: Duration,
    was_stopped: bool,
}

impl Course {
    /// Steers the run: waits for the connections, sets the times of the run, and measures between them.
    fn run(plan: &EchoPlan, shared: &Shared, server_pids: &[u32], stop: &AtomicBool) -> Self {
        let total = u64::from(plan.connections.connections);
        let wait_until = |is_met: &dyn Fn() -> bool| {
            let is_given_up = || stop.load(Relaxed) || shared.has_failed.load(Relaxed);
            while !is_met() && !is_given_up() {
                thread::sleep(POLL_EVERY);
            }
        };
        let counts = || (shared.opened.load(Relaxed), shared.failed.load(Relaxed));
        wait_until(&|| counts().0 + counts().1 >= total);
        let has_failed = || shared.has_failed.load(Relaxed);
        let from = if counts().0 > 0 && !stop.load(Relaxed) && !has_failed() {
            let begin = shared.start.elapsed();
            let from = begin + plan.warm_up;
            shared.counted_from.store(from.as_nanos() as u64, Relaxed);
            shared.end.store((from + plan.duration).as_nanos() as u64, Relaxed);
            shared.begin.store(begin.as_nanos() as u64, Relaxed);
            from
        } else {
            shared.is_stopped.store(true, Relaxed);
            shared.end.store(0, Relaxed);
            return Self { was_stopped: stop.load(Relaxed), ..Self::default() };
        };
        let use_of_server = || -> Option<Spent> {
            let uses = server_pids.iter().filter_map(|pid| machine::spent(*pid));
            let sum = uses.fold(Spent::default(), Spent::plus);
            (!server_pids.is_empty()).then_some(sum)
        };
        wait_until(&|| shared.start.elapsed() >= from);
        let before = (use_of_server(), machine::process_cpu_time(), shared.start.elapsed());
        wait_until(&|| shared.start.elapsed() >= shared.end());
        let was_stopped = stop.load(Relaxed);
        let now = shared.start.elapsed();
        if was_stopped || has_failed() {
            shared.end.store(now.as_nanos() as u64, Relaxed);
            shared.is_stopped.store(true, Relaxed);
        }
        let after = (use_of_server(), machine::process_cpu_time());
        Self {
            span: shared.end().saturating_sub(from),
            server: before.0.zip(after.0).map(|(before, after)| after.since(before)),
            client: after.1.saturating_sub(before.1),
            was_stopped,
        }
    }
}
