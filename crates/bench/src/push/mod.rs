//! `tidegate bench push`: many WebSocket subscribers, and a publisher, on one clock.
//! In: arguments. Out: a report: connections, messages, latencies, memory, CPU time; an exit code.
//! Never: publishes before all connections are established or have failed; hides a lost message.
//! Limits: those of `plan`; the first `TRACKED_MAX` publications have separate figures.
//! Invariant: each established subscriber of a channel expects every publication that was accepted in the channel. All
//! times are from one clock of this process. Latencies begin with the publish call.

mod args;
mod fairness;
mod payload;
mod publisher;
mod report;
mod secured;
mod sequence;
mod subscribers;
mod talkers;

pub use args::PushArgs;
pub use fairness::Fairness;
pub use payload::Payload;
pub use report::{Memory, PushReport};
pub use sequence::{RECENT_MAX, Receipt, Receipts, SequenceWindow};
pub use subscribers::{Spread, SubscribersOutcome};
pub use talkers::Talks;

use crate::fleet;
use crate::handshake::Handshake;
use crate::histogram::Times;
use crate::interrupt;
use crate::machine::{self, NetworkUse, Spent};
use crate::plan::{Plan, Share};
use crate::target::Url;
use crate::tls::TlsOptions;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use core::time::Duration;
use publisher::Publisher;
use secured::SubscriberTls;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;
use subscribers::Subscribers;
use tidegate_wire::websocket::Offer;

/// How many publications are tracked one by one.
const TRACKED_MAX: u32 = 1000;
/// How often the counts of the threads are read.
const POLL_EVERY: Duration = Duration::from_millis(2);
/// How often progress is shown.
const TICK: Duration = Duration::from_secs(1);

/// The plan of a load.
#[derive(Clone, Debug)]
pub struct PushPlan {
    /// Connections, threads and source addresses.
    connections: Plan,
    /// Number of threads.
    threads: u16,
    /// Number of channels.
    channels: u32,
    /// The subscribers' URL.
    url: Url,
    /// Its target, with `{}` for the number of the channel.
    target: String,
    address: SocketAddr,
    publish_url: Url,
    /// The channel in the server API, with `{}` for its number.
    channel: String,
    api_key: Option<String>,
    /// Whether the body of a publish request is only the message.
    publishes_body: bool,
    setup_rate: Option<f64>,
    /// Available memory in bytes below which no more connections are opened.
    memory_min: u64,
    timeout: Duration,
    settle: Duration,
    pace: Pace,
    /// Maximum number of publications.
    publications: u32,
    payload: Payload,
    /// The messages that subscribers send; `None`: no messages.
    talk: Option<TalkPlan>,
    /// How the server's certificate is verified.
    tls: TlsOptions,
    /// The subscribers speak the client protocol of Centrifugo, in JSON; `None`: the URL subscribes.
    client_protocol: Option<ClientProtocol>,
    /// Whether subscribers are plain TCP connections without a WebSocket handshake (`bench floor --push`).
    is_plain: bool,
}

/// The messages that subscribers send themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TalkPlan {
    /// The share of the subscribers that talks.
    share: f64,
    /// How often each of them sends a message.
    every: Duration,
    /// Bytes of a message.
    bytes: usize,
}

/// How subscribers of the client protocol begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientProtocol {
    /// Their token; empty: they connect without one.
    token: String,
}

/// When publications are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each publication is sent after a pause, once all subscribers have received the previous publication.
    Broadcasts {
        /// The number of publications.
        count: u32,
        /// The pause.
        pause: Duration,
    },
    /// At planned times.
    Rate {
        /// Publications per second over all channels.
        per_second: f64,
        /// For how long.
        duration: Duration,
    },
}

impl PushPlan {
    fn share(&self, thread: u16) -> Share {
        self.connections.share(thread)
    }

    fn source(&self, connection: u32) -> Option<IpAddr> {
        self.connections.source(connection)
    }

    /// The first message of connection number `connection` in the client protocol: it connects and subscribes.
    fn commands_of(&self, connection: u32, protocol: &ClientProtocol) -> String {
        let channel = self.channel.replace("{}", &(connection % self.channels).to_string());
        let connect = match protocol.token.as_str() {
            "" => json!({}),
            token => json!({ "token": token }),
        };
        format!(
            "{}\n{}",
            json!({ "id": 1, "connect": connect }),
            json!({ "id": 2, "subscribe": { "channel": channel } })
        )
    }

    /// The target of connection number `connection`.
    fn target_of(&self, connection: u32) -> std::borrow::Cow<'_, str> {
        if self.channels == 1 && !self.target.contains("{}") {
            return self.target.as_str().into();
        }
        self.target.replace("{}", &(connection % self.channels).to_string()).into()
    }

    fn tracked(&self) -> usize {
        self.publications.min(TRACKED_MAX) as usize
    }
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Connections are established.
    Setup,
    /// Publications are sent and received.
    Publishing,
    /// Threads end.
    Over,
}

/// State that the threads share.
struct Shared {
    /// The start of all times.
    start: Instant,
    phase: AtomicU8,
    /// Whether no more connections are to be opened, because memory is short.
    is_full: AtomicBool,
    /// Whether a thread has failed. The run then ends.
    has_failed: AtomicBool,
    /// When the publications begin, in nanoseconds from the start; `u64::MAX`: not yet.
    publishing_from: AtomicU64,
    /// The counts of each thread.
    counts: Vec<Counts>,
    /// When each publication was sent, in nanoseconds from the start; 0: not yet.
    published: Vec<AtomicU64>,
}

/// Counts of one thread, in a separate cache line.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    begun: AtomicU64,
    opened: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
    received: AtomicU64,
}

/// The sum of all threads' counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    begun: u64,
    opened: u64,
    failed: u64,
    lost: u64,
    received: u64,
}

impl Shared {
    fn new(plan: &PushPlan) -> Self {
        Self {
            start: Instant::now(),
            phase: AtomicU8::new(0),
            is_full: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            publishing_from: AtomicU64::new(u64::MAX),
            counts: (0..plan.threads).map(|_| Counts::default()).collect(),
            published: (0..plan.publications).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Setup,
            1 => Phase::Publishing,
            _ => Phase::Over,
        }
    }

    /// When the publications begin; `None` before.
    fn publishing_from(&self) -> Option<Duration> {
        let nanos = self.publishing_from.load(Relaxed);
        (nanos < u64::MAX).then(|| Duration::from_nanos(nanos))
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// When a publication was sent; `None` if it was not.
    fn published_at(&self, number: u32) -> Option<u64> {
        let at = self.published.get(number as usize)?.load(Relaxed);
        (at > 0).then_some(at)
    }

    /// Notes that a publication is sent now. Returns the time since the start.
    fn note_publication(&self, number: u32) -> Duration {
        let now = self.start.elapsed();
        if let Some(at) = self.published.get(number as usize) {
            at.store(now.as_nanos() as u64, Relaxed);
        }
        now
    }

    fn sum(&self) -> Sum {
        self.counts.iter().fold(Sum::default(), |sum, counts| Sum {
            begun: sum.begun + counts.begun.load(Relaxed),
            opened: sum.opened + counts.opened.load(Relaxed),
            failed: sum.failed + counts.failed.load(Relaxed),
            lost: sum.lost + counts.lost.load(Relaxed),
            received: sum.received + counts.received.load(Relaxed),
        })
    }
}

/// Runs `tidegate bench push`.
#[must_use]
pub fn run(args: &PushArgs) -> ExitCode {
    match run_plan(args) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("tidegate: {why}");
            ExitCode::from(2)
        }
    }
}

fn run_plan(args: &PushArgs) -> Result<ExitCode, String> {
    let plan = args.plan()?;
    for &pid in &args.server_pids {
        if machine::spent(pid).is_none() {
            return Err(format!("--server-pid {pid}: no such process"));
        }
    }
    let handshake =
        Handshake::new(&plan.url, &args.header, Offer::default(), std::process::id().into())?;
    let tls = SubscriberTls::new(&plan)?;
    let stop = interrupt::stop_on_signal();
    let shared = Shared::new(&plan);
    let mut outcome = SubscribersOutcome::new(plan.channels as usize, plan.tracked());
    let mut course = PushRun::new(&plan, &shared, args, stop);
    thread::scope(|scope| -> Result<(), String> {
        let mut threads = Vec::new();
        for number in 0..plan.threads {
            let (plan, shared) = (&plan, &shared);
            let entry = (&handshake, tls.as_ref());
            let cpus = &args.client_cpus;
            threads.push(scope.spawn(move || {
                let run = || -> Result<SubscribersOutcome, String> {
                    fleet::begin_thread(cpus, number)?;
                    let crowd = Subscribers::new(plan, shared, number, plan.address, entry);
                    crowd.and_then(Subscribers::run).map_err(|why| why.to_string())
                };
                let outcome = run();
                shared.has_failed.fetch_or(outcome.is_err(), Relaxed);
                outcome
            }));
        }
        course.run();
        shared.enter(Phase::Over);
        for thread in threads {
            match thread.join() {
                Ok(Ok(some)) => outcome.add(&some),
                Ok(Err(error)) => return Err(format!("a client thread failed: {error}")),
                Err(_) => return Err("a client thread panicked".to_owned()),
            }
        }
        Ok(())
    })?;
    let report = PushReport::new(&plan, outcome, course, &shared);
    let text = if args.json { format!("{:#}\n", report.to_json()) } else { report.to_text() };
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| format!("could not write the report to stdout: {error}"))?;
    Ok(if report.is_successful() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The main thread's part of a run: it publishes, waits and measures.
struct PushRun<'a> {
    plan: &'a PushPlan,
    shared: &'a Shared,
    args: &'a PushArgs,
    stop: &'a AtomicBool,
    /// When the next line of progress is due.
    tick_at: Duration,
    network: NetworkUse,
    /// The time and the counts of the last line of progress.
    shown: (Duration, Sum),
    /// Publications that the server accepted, by number.
    accepted: Vec<u32>,
    /// Publications that failed, by reason.
    failed: BTreeMap<String, u64>,
    /// How long the accepted calls took.
    calls: Times,
    /// How late publications were sent. Only measured with a planned rate.
    lag: Times,
    /// Memory before the connections, and with all of them idle.
    memory: (Memory, Memory),
    /// The resources that the server used until three moments: before the connections, with all connections, after the last
    /// message.
    server: Option<[Spent; 3]>,
    /// This process's CPU time at the same moments.
    client: [Duration; 3],
    /// From the first publication to the last message.
    span: Duration,
    was_stopped: bool,
}

impl<'a> PushRun<'a> {
    fn new(
        plan: &'a PushPlan,
        shared: &'a Shared,
        args: &'a PushArgs,
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            plan,
            shared,
            args,
            stop,
            tick_at: TICK,
            network: NetworkUse::now(),
            shown: (Duration::ZERO, Sum::default()),
            accepted: Vec::new(),
            failed: BTreeMap::new(),
            calls: Times::fine(),
            lag: Times::fine(),
            memory: (Memory::default(), Memory::default()),
            server: None,
            client: [Duration::ZERO; 3],
            span: Duration::ZERO,
            was_stopped: false,
        }
    }

    fn run(&mut self) {
        if self.args.lines {
            // A closed pipe is not a failure: the reader wanted no more output.
            let _ = writeln!(io::stdout(), "{}", report::lines_header());
        }
        let before = (self.server_use(), machine::process_cpu_time());
        self.memory.0 = Memory::now(&self.args.server_pids);
        let total = u64::from(self.plan.connections.connections);
        let (plan, shared) = (self.plan, self.shared);
        let mut check_at = TICK;
        self.wait_until(None, |sum| {
            let now = shared.start.elapsed();
            if plan.memory_min > 0 && now >= check_at {
                check_at = now + TICK / 4;
                if machine::available_bytes() < plan.memory_min {
                    shared.is_full.store(true, Relaxed);
                }
            }
            sum.opened + sum.failed >= if shared.is_full.load(Relaxed) { sum.begun } else { total }
        });
        self.wait_until(Some(self.plan.settle), |_| false);
        let mut publisher = Publisher::new(self.plan);
        if self.shared.sum().opened > 0 {
            publisher.await_subscriptions();
        }
        self.memory.1 = Memory::now(&self.args.server_pids);
        let settled = (self.server_use(), machine::process_cpu_time());
        let begun = self.shared.start.elapsed();
        self.shared.publishing_from.store(begun.as_nanos() as u64, Relaxed);
        self.shared.enter(Phase::Publishing);
        if self.shared.sum().opened > 0 {
            match self.plan.pace {
                Pace::Broadcasts { count, pause } => {
                    self.publish_broadcasts(&mut publisher, count, pause)
                }
                Pace::Rate { per_second, duration } => {
                    self.publish_at_rate(&mut publisher, per_second, duration)
                }
            }
        }
        self.span = self.shared.start.elapsed().saturating_sub(begun);
        let after = (self.server_use(), machine::process_cpu_time());
        self.server = before.0.zip(settled.0).zip(after.0).map(|((a, b), c)| [a, b, c]);
        self.client = [before.1, settled.1, after.1];
        self.was_stopped = self.stop.load(Relaxed);
    }

    fn publish_broadcasts(&mut self, publisher: &mut Publisher<'_>, count: u32, pause: Duration) {
        let mut target = 0;
        for number in 0..count {
            if number > 0 {
                self.wait_until(Some(pause), |_| false);
            }
            if self.stop.load(Relaxed) || self.shared.has_failed.load(Relaxed) {
                break;
            }
            let sum = self.shared.sum();
            if self.publish(publisher, number) {
                target += self.reach(sum, number);
            }
            self.wait_for_messages(target);
        }
    }

    fn publish_at_rate(
        &mut self,
        publisher: &mut Publisher<'_>,
        per_second: f64,
        duration: Duration,
    ) {
        let begun = self.shared.start.elapsed();
        let mut target = 0;
        for number in 0..self.plan.publications {
            let planned = Duration::from_secs_f64(f64::from(number) / per_second);
            if planned >= duration {
                break;
            }
            let due = begun + planned;
            let now = self.shared.start.elapsed();
            self.wait_until(Some(due.saturating_sub(now)), |_| false);
            if self.stop.load(Relaxed) || self.shared.has_failed.load(Relaxed) {
                break;
            }
            self.lag.record(self.shared.start.elapsed().saturating_sub(due));
            let sum = self.shared.sum();
            if self.publish(publisher, number) {
                target += self.reach(sum, number);
            }
        }
        self.wait_for_messages(target);
    }

    /// How many subscribers a publication is expected to reach now. Only an estimate if connections have failed or were
    /// lost while there are several channels.
    fn reach(&self, sum: Sum, number: u32) -> u64 {
        let channels = u64::from(self.plan.channels);
        let first = u64::from(number) % channels;
        let open = sum.opened - sum.lost;
        open / channels + u64::from(first < open % channels)
    }

    /// Publishes; true if the server accepted it.
    fn publish(&mut self, publisher: &mut Publisher<'_>, number: u32) -> bool {
        match publisher.publish(number, self.shared) {
            Ok(took) => {
                self.calls.record(took);
                self.accepted.push(number);
                true
            }
            Err(why) => {
                *self.failed.entry(why).or_default() += 1;
                false
            }
        }
    }

    /// Waits until `target` messages have been received in all, or until no message has arrived for `--timeout`.
    fn wait_for_messages(&mut self, target: u64) {
        let mut seen = (self.shared.sum().received, Instant::now());
        let timeout = self.plan.timeout;
        self.wait_until(None, |sum| {
            if sum.received != seen.0 {
                seen = (sum.received, Instant::now());
            }
            sum.received >= target || seen.1.elapsed() >= timeout
        });
    }

    /// Waits for the condition, the end of `span`, or a signal, and shows progress.
    fn wait_until(&mut self, span: Option<Duration>, mut is_met: impl FnMut(Sum) -> bool) {
        let begun = Instant::now();
        while !self.stop.load(Relaxed) && !self.shared.has_failed.load(Relaxed) {
            let sum = self.shared.sum();
            let left = span.map(|span| span.saturating_sub(begun.elapsed()));
            if is_met(sum) || left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let now = self.shared.start.elapsed();
            if now >= self.tick_at {
                self.tick_at = now + TICK;
                self.show(now, sum);
            }
            thread::sleep(left.unwrap_or(POLL_EVERY).min(POLL_EVERY * 10));
        }
    }

    fn show(&mut self, now: Duration, sum: Sum) {
        let network = NetworkUse::now();
        if self.args.lines {
            let line = report::line(self.shown, (now, sum), network.since(self.network));
            let _ = writeln!(io::stdout(), "{line}");
        }
        self.network = network;
        self.shown = (now, sum);
    }

    fn server_use(&self) -> Option<Spent> {
        let pids = &self.args.server_pids;
        let uses = pids.iter().filter_map(|pid| machine::spent(*pid));
        let sum = uses.fold(Spent::default(), Spent::plus);
        (!pids.is_empty()).then_some(sum)
    }
}
