//! A complete run on real sockets: the threads, their reactors, and the CPU time that client and server used.
//! In: a `Job`. Out: an `Outcome`, and a `Tick` a few times a second for the progress display.
//! Never: starts a run without enough descriptors or ports for it.
//! Limits: `plan::THREADS_MAX`. Invariant: every thread has its own descriptor table where the kernel allows
//! it.

use crate::client::{Client, ClientOutcome, PUBLISH_EVERY, Shared};
use crate::machine::{self, Spent};
use crate::plan::{Arrivals, Pace, Plan, Protocol, THREADS_MAX};
use crate::quantity::counted;
use crate::tally::{Interval, Tally};
use crate::target::{RequestMix, Target};
use crate::verdict::Verdict;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Arc, mpsc};
use std::thread;
use tidegate_base::{Address, Moment};
use tidegate_reactor::worker;
use tidegate_reactor::{EpollReactor, Waker, make_wakers};
use tidegate_secure::{TlsLayer, TlsPlan};

/// Descriptors that a thread needs in addition to the connections of the plan.
const DESCRIPTORS_SPARE: u64 = 64;
/// A server that sent no response during at least this last part of the run has stopped responding.
const SILENCE_MIN: Duration = Duration::from_millis(1000);
/// A server that is silent for this many times its longest response time has stopped responding.
const SILENCE_FACTOR: u32 = 20;
/// A run up to this long has a point for each tick in its curves; a longer run has one for each second.
const SHORT_MAX: Duration = Duration::from_secs(12);
/// Time between the threads' publishing and the tick that reads the published figures.
const TICK_AFTER: Duration = Duration::from_millis(60);
/// Time from the threads' start to the plan's start, so that all threads begin together.
const HEAD_START: Duration = Duration::from_millis(2);
/// The same with TLS: the library takes up to a tenth of a second to generate a thread's first random numbers.
const TLS_HEAD_START: Duration = Duration::from_millis(250);

/// Everything that a run needs.
#[derive(Clone, Debug)]
pub struct Job {
    /// The load.
    pub plan: Plan,
    /// The requests.
    pub mix: RequestMix,
    /// The servers, indexed by the authorities of the mix.
    pub targets: Vec<Target>,
    /// The TLS settings; `None` if no target uses TLS.
    pub tls: Option<TlsPlan>,
    /// CPUs to which the threads are pinned in turn; empty: not pinned.
    pub cpus: Vec<usize>,
    /// The probe that runs alongside the load.
    pub reference: Option<Reference>,
    /// Whether the first error ends the run.
    pub stops_at_error: bool,
    /// Server processes whose CPU time and memory are measured.
    pub server_pids: Vec<u32>,
    /// CPUs whose entire busy time is attributed to the servers.
    pub server_cpus: Vec<usize>,
}

/// A probe: a low constant rate directly to another server while the load runs.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The requests.
    pub mix: RequestMix,
    /// The servers, indexed by the authorities of the mix.
    pub targets: Vec<Target>,
    /// The TLS settings; `None` if no target uses TLS.
    pub tls: Option<TlsPlan>,
    /// Requests per second.
    pub per_second: f64,
}

/// The time that one client thread used.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadUse {
    /// CPU time, without the time spent spinning.
    pub cpu: Duration,
    /// Time during which it was ready to run but waited for a CPU.
    pub run_delay: Duration,
    /// Wall-clock time since the plan's start.
    pub wall: Duration,
    /// Complete responses, including those of the warm-up.
    pub answered: u64,
}

impl ThreadUse {
    /// The fraction of its time that it was busy.
    pub(crate) fn busy(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }

    /// The fraction of its time that it was ready to run but waited for a CPU.
    pub(crate) fn delayed(&self) -> f64 {
        self.run_delay.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The sum of all threads' counts.
    pub tally: Tally,
    /// The counts of the reference probe.
    pub reference: Option<Tally>,
    /// Length of the measured time.
    pub counted: Duration,
    /// The time that each thread used.
    pub threads: Vec<ThreadUse>,
    /// CPU time, memory and context switches of the server processes during the measured time.
    pub server: Option<Spent>,
    /// Busy time of `Job::server_cpus` during the measured time.
    pub server_busy: Option<Duration>,
    /// Reasons why the client itself limited the figures; empty if it did not.
    pub saturated: Vec<String>,
    /// Reasons why other users of the host delayed the client; empty if the client ran undisturbed.
    pub disturbed: Vec<String>,
    /// Reasons why requests of the plan were not sent although the client had time; empty if there were none.
    pub blocked: Vec<String>,
    /// When the last response arrived, since the start, if the server was silent from then to the end of the
    /// run (`SILENCE_MIN` or longer; less if it also refused connections).
    pub silent_since: Option<Duration>,
    /// Figures over time: a point for each second, or more in a short run.
    pub points: Vec<Point>,
    /// Whether the operator or an error ended the run early.
    pub was_stopped: bool,
    /// Whether the first error ended the run (`Job::stops_at_error`).
    pub had_fatal_error: bool,
    /// Whether the run reached its measured time; if not, the figures cover only warm-up and ramp.
    pub has_counted: bool,
}

impl Outcome {
    /// Complete responses per second.
    #[must_use]
    pub fn rate_per_s(&self) -> f64 {
        let seconds = self.counted.as_secs_f64();
        if seconds > 0.0 { self.tally.in_time as f64 / seconds } else { 0.0 }
    }

    /// Adds another round of the same candidate.
    pub fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        self.counted += other.counted;
        for (sum, thread) in self.threads.iter_mut().zip(&other.threads) {
            sum.cpu += thread.cpu;
            sum.run_delay += thread.run_delay;
            sum.wall += thread.wall;
            sum.answered += thread.answered;
        }
        if let (Some(sum), Some(server)) = (&mut self.server, other.server) {
            sum.cpu += server.cpu;
            sum.context_switches += server.context_switches;
            sum.resident_bytes = server.resident_bytes;
        }
        if let (Some(sum), Some(busy)) = (&mut self.server_busy, other.server_busy) {
            *sum += busy;
        }
        if let (Some(sum), Some(reference)) = (&mut self.reference, &other.reference) {
            sum.add(reference);
        }
        self.silent_since = self.silent_since.or(other.silent_since);
        let verdict =
            Verdict::new(&self.tally, &self.threads, self.reference.as_ref(), self.silent_since);
        self.saturated = verdict.saturated;
        self.disturbed = verdict.disturbed;
        self.blocked = verdict.blocked;
        let offset = self.points.last().map_or(0.0, |point| point.at_s);
        self.points
            .extend(other.points.iter().map(|point| Point { at_s: point.at_s + offset, ..*point }));
        self.was_stopped |= other.was_stopped;
        self.had_fatal_error |= other.had_fatal_error;
        self.has_counted &= other.has_counted;
    }

    /// The sentence about a server that stopped responding during the run.
    #[must_use]
    pub fn silence_in_words(&self) -> Option<String> {
        self.silent_since.map(|since| {
            format!(
                "Server silent: no response arrived after {:.1} s; the figures include the time after that.",
                since.as_secs_f64()
            )
        })
    }

    /// CPU time of the client per response, µs, without the time spent spinning. `None` without a response.
    #[must_use]
    pub fn client_cpu_us_per_request(&self) -> Option<f64> {
        let cpu: Duration = self.threads.iter().map(|thread| thread.cpu).sum();
        let answered: u64 = self.threads.iter().map(|thread| thread.answered).sum();
        (answered > 0).then(|| cpu.as_secs_f64() * 1e6 / answered as f64)
    }
}

/// An interval of a run, reduced to the figures that the curves show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// End of the interval, seconds since the start.
    pub at_s: f64,
    /// Responses per second.
    pub rate_per_s: f64,
    /// Failures per second.
    pub errors_per_s: f64,
    /// Median latency, µs; like the other percentiles `None` if there are too few responses for it.
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency, µs.
    pub p99_us: Option<f64>,
    /// 99.9th percentile of the latency, µs.
    pub p99_9_us: Option<f64>,
    /// Largest latency, µs.
    pub max_us: f64,
}

/// The figures since the last tick.
#[derive(Debug)]
pub struct Tick<'a> {
    /// Time since the start.
    pub at: Duration,
    /// Time since the last tick.
    pub over: Duration,
    /// The figures of that time.
    pub interval: &'a Interval,
    /// Whether the measured time has begun.
    pub is_counting: bool,
    /// The figures and the length of the second that this tick ends; `None` within a second.
    pub second: Option<(&'a Interval, Duration)>,
}

/// Runs `job` to its end. Setting `stop` ends it early; `watch` is called a few times a second.
///
/// # Errors
/// A message for the operator if the run cannot start.
pub fn run(
    job: &Job,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&Tick<'_>),
) -> Result<Outcome, String> {
    check_capacity(job)?;
    let plan = &job.plan;
    let had_error: Option<Arc<AtomicBool>> = job.stops_at_error.then(Arc::default);
    // Errors of the reference probe, whose share is the last one, do not end the run.
    let error_of = |number| had_error.clone().filter(|_| number < plan.threads);
    let share_of = |number| Shared { had_error: error_of(number), ..Shared::default() };
    let shares: Vec<Shared> = (0..=plan.threads).map(share_of).collect();
    let wakers = make_wakers(usize::from(plan.threads) + 1)
        .map_err(|error| format!("cannot create the threads' wakers: {error}"))?;
    let reference_plan = job.reference.as_ref().map(|reference| reference_plan(plan, reference));
    let (sender, results) = mpsc::channel();
    let is_secure =
        job.tls.is_some() || job.reference.as_ref().is_some_and(|one| one.tls.is_some());
    let start = monotonic_now().after(if is_secure { TLS_HEAD_START } else { HEAD_START });
    thread::scope(|scope| {
        for (number, waker) in (0..plan.threads).zip(&wakers) {
            let (sender, shared, waker) =
                (sender.clone(), &shares[usize::from(number)], waker.clone());
            scope.spawn(move || {
                let cpu =
                    (!job.cpus.is_empty()).then(|| job.cpus[usize::from(number) % job.cpus.len()]);
                let (mix, targets, tls) = (&job.mix, &job.targets, &job.tls);
                let load = Load { plan, mix, targets, tls };
                // The receiver lives until all threads have sent.
                let _ = sender.send((false, load.run(number, shared, start, waker, cpu)));
            });
        }
        if let (Some(reference), Some(plan)) = (&job.reference, &reference_plan) {
            let (sender, shared, waker) = (
                sender.clone(),
                &shares[usize::from(job.plan.threads)],
                wakers[usize::from(job.plan.threads)].clone(),
            );
            scope.spawn(move || {
                let (mix, targets, tls) = (&reference.mix, &reference.targets, &reference.tls);
                let load = Load { plan, mix, targets, tls };
                let _ = sender.send((true, load.run(0, shared, start, waker, None)));
            });
        }
        drop(sender);
        Monitor::new(job, start).run(&shares, stop, &results, watch)
    })
}

/// The load of one thread.
struct Load<'a> {
    plan: &'a Plan,
    mix: &'a RequestMix,
    targets: &'a [Target],
    tls: &'a Option<TlsPlan>,
}

impl Load<'_> {
    fn run(
        &self,
        number: u16,
        shared: &Shared,
        start: Moment,
        waker: Waker,
        cpu: Option<usize>,
    ) -> Result<(ClientOutcome, ThreadUse), String> {
        if let Some(cpu) = cpu {
            worker::pin_to_cpu(cpu)
                .map_err(|error| format!("cannot pin a thread to CPU {cpu}: {error}"))?;
        }
        // With a shared table each call on a descriptor costs more, but the run is still correct.
        let _ = worker::unshare_descriptor_table();
        if let Some(plan) = self.tls {
            draw_first_random(plan);
        }
        let share = self.plan.share(number);
        // While new connections are established, as many old ones may still be closing.
        let socks_max = share.connections as usize * 2 + 1024;
        let mut reactor = EpollReactor::new(socks_max, waker)
            .map_err(|error| format!("cannot create an epoll instance: {error}"))?;
        let client = Client::new(self.plan, share, self.mix, self.targets, shared, start);
        let cpu_before = machine::thread_cpu_time();
        let delay_before = machine::thread_run_delay();
        let finished = match self.tls {
            None => client.run(&mut reactor),
            Some(plan) => {
                client.run_secured(&mut reactor, &mut TlsLayer::new(plan, Vec::new(), ()))
            }
        };
        let cpu = machine::thread_cpu_time().saturating_sub(cpu_before);
        let thread_use = ThreadUse {
            cpu: cpu.saturating_sub(finished.spun),
            run_delay: machine::thread_run_delay().saturating_sub(delay_before),
            // The wait before the plan's start is not part of the thread's load.
            wall: monotonic_now().since(start),
            answered: finished.answered_ever,
        };
        Ok((finished, thread_use))
    }
}

/// Begins an unused TLS session, so that the thread's random numbers are ready before the plan starts.
fn draw_first_random(plan: &TlsPlan) {
    if let Some(pool) = plan.pools.iter().flatten().next()
        && let Some(server) = pool.servers.first()
    {
        // An error is reported by the connections of the plan.
        let _ = pool.connector.connect(&server.name);
    }
}

type ThreadResult = (bool, Result<(ClientOutcome, ThreadUse), String>);

/// Monitors a run from outside its threads.
struct Monitor<'a> {
    job: &'a Job,
    /// When the plan begins.
    start: Moment,
    /// Whether the measured time has begun.
    is_counting: bool,
    /// The servers' usage when the measured time began.
    server_before: Option<Spent>,
    /// The busy time of `Job::server_cpus` when the measured time began.
    busy_before: Option<Duration>,
    /// The figures of the current second.
    second: Interval,
    /// When the current second began, since the start.
    second_began: Duration,
    /// End of the last interval that was collected, since the start.
    ticked: Duration,
    /// End of the last interval with a response, since the start.
    responded: Duration,
    /// After the last response, an interval had failures, and at its end no connection was open.
    is_down: bool,
    /// The points of the curves so far.
    points: Vec<Point>,
    /// The first error has ended the run.
    had_fatal_error: bool,
}

impl<'a> Monitor<'a> {
    fn new(job: &'a Job, start: Moment) -> Self {
        Self {
            job,
            start,
            is_counting: false,
            server_before: None,
            busy_before: None,
            second: Interval::default(),
            second_began: Duration::ZERO,
            ticked: Duration::ZERO,
            responded: Duration::ZERO,
            is_down: false,
            points: Vec::new(),
            had_fatal_error: false,
        }
    }

    fn run(
        mut self,
        shares: &[Shared],
        stop: &AtomicBool,
        results: &mpsc::Receiver<ThreadResult>,
        watch: &mut dyn FnMut(&Tick<'_>),
    ) -> Result<Outcome, String> {
        let (mut finished, mut threads) = (Vec::new(), Vec::new());
        let mut reference = None;
        let mut failure = None;
        let mut next_tick = PUBLISH_EVERY + TICK_AFTER;
        let counted_from = self.job.plan.counted_from();
        let mut was_stopped = false;
        loop {
            let now = monotonic_now().since(self.start);
            if !self.is_counting && now >= counted_from {
                self.begin_counting();
            }
            let mut next = next_tick;
            if !self.is_counting {
                next = next.min(counted_from);
            }
            match results.recv_timeout(next.saturating_sub(now)) {
                Ok((is_reference, Ok((one, _)))) if is_reference => reference = Some(one.tally),
                Ok((_, Ok((one, thread_use)))) => {
                    finished.push(one);
                    threads.push(thread_use);
                }
                Ok((_, Err(why))) => {
                    failure = Some(why);
                    stop.store(true, Ordering::Relaxed);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    self.tick(&shares[..shares.len() - 1], true, watch);
                    break;
                }
            }
            let load_is_over = finished.len() == usize::from(self.job.plan.threads);
            // The threads have stopped sending by themselves.
            if shares.first().is_some_and(Shared::is_ended_by_error) {
                self.had_fatal_error = true;
                was_stopped = true;
                stop.store(true, Ordering::Relaxed);
            }
            if stop.load(Ordering::Relaxed) || load_is_over {
                was_stopped |= !load_is_over;
                for shared in shares {
                    shared.stop.store(true, Ordering::Relaxed);
                }
            }
            let now = monotonic_now().since(self.start);
            if now >= next_tick {
                self.tick(&shares[..shares.len() - 1], false, watch);
            }
            while next_tick <= now {
                next_tick += PUBLISH_EVERY;
            }
        }
        match failure {
            Some(why) => Err(why),
            None => Ok(self.outcome(finished, threads, reference, was_stopped)),
        }
    }

    fn begin_counting(&mut self) {
        self.is_counting = true;
        self.server_before = spent_by_all(&self.job.server_pids);
        self.busy_before =
            (!self.job.server_cpus.is_empty()).then(|| machine::busy_time(&self.job.server_cpus));
    }

    /// Collects the figures that the threads published since the last tick, if any. The threads measure the length of the
    /// interval, because this tick may be late.
    fn tick(&mut self, shares: &[Shared], is_last: bool, watch: &mut dyn FnMut(&Tick<'_>)) {
        let mut interval = Interval::default();
        for shared in shares {
            // The figures of a thread that panicked are still correct.
            let mut taken = match shared.interval.lock() {
                Ok(taken) => taken,
                Err(poisoned) => poisoned.into_inner(),
            };
            interval.add(&taken);
            interval.connections += taken.connections;
            taken.clear();
        }
        let now = interval.until;
        if now <= self.ticked {
            return;
        }
        let over = now - core::mem::replace(&mut self.ticked, now);
        if interval.requests > 0 {
            (self.responded, self.is_down) = (now, false);
        } else if interval.errors > 0 && interval.connections == 0 {
            self.is_down = true;
        }
        self.second.add(&interval);
        self.second.connections = interval.connections;
        let second_over = now - self.second_began;
        // The rest at the end is reported too, so that the sums over all seconds are complete.
        let ends_second = is_last || second_over + PUBLISH_EVERY / 2 >= Duration::from_secs(1);
        watch(&Tick {
            at: now,
            over,
            interval: &interval,
            is_counting: self.is_counting,
            second: ends_second.then_some((&self.second, second_over)),
        });
        let is_short = self.job.plan.ends_at().is_some_and(|end| end <= SHORT_MAX);
        if is_short && over >= PUBLISH_EVERY / 2 {
            self.points.push(Point::new(&interval, now, over));
        }
        if ends_second {
            // A rate over a few milliseconds would show a spike that did not happen.
            if !is_short && second_over >= PUBLISH_EVERY / 2 {
                self.points.push(Point::new(&self.second, now, second_over));
            }
            self.second.clear();
            self.second_began = now;
        }
    }

    /// When the last response arrived, if the server then sent no response until the end of the run.
    fn silent_since(&self, tally: &Tally, was_stopped: bool) -> Option<Duration> {
        let silence = self.ticked.saturating_sub(self.responded);
        let errors = &tally.errors;
        let failed =
            errors.connect + errors.reset + errors.closed + errors.timeout + errors.tls > 0;
        // A server that responds within the timeout is slow, unless it had never been that slow before.
        let longest = Duration::from_secs_f64(tally.latency.max_us() / 1e6);
        let silence_max = (longest * SILENCE_FACTOR).min(self.job.plan.timeout);
        let hangs = tally.unanswered > 0 && silence >= silence_max;
        // A server that refuses connections does not only pause.
        let refuses = errors.connect > 0 && self.is_down;
        let is_silent = refuses || silence >= SILENCE_MIN && (failed || hangs);
        let is_gone = tally.requests > 0 && !was_stopped && is_silent;
        is_gone.then_some(self.responded)
    }

    fn outcome(
        self,
        mut finished: Vec<ClientOutcome>,
        threads: Vec<ThreadUse>,
        reference: Option<Tally>,
        was_stopped: bool,
    ) -> Outcome {
        let has_counted = finished.iter().any(|one| one.has_counted);
        // If some threads reached the measured time, threads that were stopped before it are left out.
        finished.retain(|one| one.has_counted == has_counted);
        let mut tally = Tally::default();
        for one in &finished {
            tally.add(&one.tally);
        }
        if self.job.plan.pace == Pace::Closed {
            // A closed loop has no planned send times, so latency equals service time.
            tally.latency = tally.service.clone();
        }
        let counted = finished.iter().map(|one| one.counted).max().unwrap_or_default();
        let server = match (self.server_before, spent_by_all(&self.job.server_pids)) {
            (Some(before), Some(after)) if has_counted => Some(after.since(before)),
            _ => None,
        };
        let server_busy = self
            .busy_before
            .filter(|_| has_counted)
            .map(|before| machine::busy_time(&self.job.server_cpus).saturating_sub(before));
        let silent_since = self.silent_since(&tally, was_stopped);
        let verdict = Verdict::new(&tally, &threads, reference.as_ref(), silent_since);
        Outcome {
            tally,
            reference,
            counted,
            threads,
            server,
            server_busy,
            saturated: verdict.saturated,
            disturbed: verdict.disturbed,
            blocked: verdict.blocked,
            silent_since,
            points: self.points,
            was_stopped,
            had_fatal_error: self.had_fatal_error,
            has_counted,
        }
    }
}

impl Point {
    fn new(interval: &Interval, at: Duration, over: Duration) -> Self {
        let seconds = over.as_secs_f64().max(1e-3);
        Self {
            at_s: at.as_secs_f64(),
            rate_per_s: interval.requests as f64 / seconds,
            errors_per_s: interval.errors as f64 / seconds,
            p50_us: interval.latency.reportable_us(50.0),
            p99_us: interval.latency.reportable_us(99.0),
            p99_9_us: interval.latency.reportable_us(99.9),
            max_us: interval.latency.max_us(),
        }
    }
}

fn spent_by_all(pids: &[u32]) -> Option<Spent> {
    let mut sum = None::<Spent>;
    for &pid in pids {
        let one = machine::spent(pid)?;
        let all = sum.get_or_insert_default();
        all.cpu += one.cpu;
        all.resident_bytes += one.resident_bytes;
        all.context_switches += one.context_switches;
    }
    sum
}

/// The probe's plan: as long as the load, at its own low rate.
fn reference_plan(plan: &Plan, reference: &Reference) -> Plan {
    Plan {
        connections: 2,
        threads: 1,
        requests: None,
        duration: Some(plan.duration.unwrap_or(Duration::from_secs(86_400 * 365))),
        warm_up: plan.counted_from(),
        ramp: Duration::ZERO,
        pace: Pace::Total { per_second: reference.per_second, arrivals: Arrivals::Constant },
        requests_per_connection: None,
        think: Duration::ZERO,
        // The origin behind a proxy often supports HTTP/1.1 only.
        protocol: Protocol::Http1,
        pipeline: 1,
        timeout: plan.timeout,
        // The probe may use a different network than the load.
        sources: Vec::new(),
        seed: plan.seed,
    }
}

/// Checks before the run that there are enough descriptors and ports.
fn check_capacity(job: &Job) -> Result<(), String> {
    let plan = &job.plan;
    let limit = machine::raise_descriptor_limit();
    let each = u64::from(plan.connections.div_ceil(u32::from(plan.threads.max(1))));
    let needed = each + DESCRIPTORS_SPARE;
    if needed > limit {
        return Err(format!(
            "{} on {}: each thread needs {needed} descriptors but the limit is {limit}; \
             {}raise the hard limit (ulimit -Hn {needed})",
            counted(u64::from(plan.connections), "connection"),
            counted(u64::from(plan.threads), "thread"),
            within_limit(plan, limit)
        ));
    }
    let connections = job.mix.connections_of(plan.connections)?;
    for (target, connections) in job.targets.iter().zip(connections) {
        let Address::Tcp(address) = target.address else { continue };
        check_sources(&plan.sources, address.ip())?;
        check_ports(plan, u64::from(connections))?;
    }
    Ok(())
}

/// Suggests an argument with which `limit` descriptors per thread are enough; empty if there is none.
fn within_limit(plan: &Plan, limit: u64) -> String {
    let room = limit.saturating_sub(DESCRIPTORS_SPARE);
    if room == 0 {
        return String::new();
    }
    match u64::from(plan.connections).div_ceil(room) {
        threads if threads <= u64::from(THREADS_MAX) => format!("use --threads {threads} or "),
        _ => format!("use --connections {} or ", room * u64::from(plan.threads)),
    }
}

/// Checks that there are enough local ports for `connections` to one address.
fn check_ports(plan: &Plan, connections: u64) -> Result<(), String> {
    let ports = machine::local_ports().max(1);
    let sources = plan.sources.len().max(1) as u64;
    if connections <= ports * sources {
        return Ok(());
    }
    let needed = connections.div_ceil(ports);
    Err(format!(
        "{connections} connections to one address need as many local ports, but each source address has \
         {ports}; use --connections {}, use {needed} source addresses (on loopback for example --source \
         127.0.0.2-127.0.0.{}) or widen net.ipv4.ip_local_port_range",
        ports * sources,
        needed + 1
    ))
}

/// Checks each source address before the run, where the error can be specific.
fn check_sources(sources: &[IpAddr], destination: IpAddr) -> Result<(), String> {
    for &source in sources {
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(format!(
                "--source {source}: the server's address {destination} has another IP version; give a source \
                 address of the same version"
            ));
        }
        // Binding a datagram socket shows whether the address belongs to this host, without sending anything.
        std::net::UdpSocket::bind((source, 0)).map_err(|error| {
            format!("--source {source}: {error}; `ip address` lists the addresses of this host")
        })?;
    }
    Ok(())
}

/// The clock of the reactors (CLOCK_MONOTONIC), read without a reactor.
fn monotonic_now() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Moment::from_nanos(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests;
