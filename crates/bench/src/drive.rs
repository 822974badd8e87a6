//! A whole run on real sockets: threads, their reactors, and what was spent meanwhile.
//! In: a `Job`. Out: an `Outcome`, and a `Tick` a few times a second for those who watch.
//! Never: starts a run that descriptors or ports do not suffice for.
//! Limits: `plan::THREADS_MAX`. Invariant: every thread has a descriptor table of its own.

use crate::client::{Carried, Client, PUBLISH_EVERY, Shared};
use crate::machine::{self, Spent};
use crate::plan::{Arrivals, Pace, Plan, THREADS_MAX};
use crate::quantity::counted;
use crate::tally::{Interval, Tally};
use crate::target::{RequestMix, Target};
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::mpsc;
use std::thread;
use tidegate_base::{Address, Moment};
use tidegate_reactor::worker;
use tidegate_reactor::{EpollReactor, Waker, make_wakers};
use tidegate_secure::{TlsLayer, TlsPlan};

/// Descriptors of a thread that are not connections of the plan.
const DESCRIPTORS_SPARE: u64 = 64;
/// A thread that was busy for more than this part of its time limited the figures.
const BUSY_MAX: f64 = 0.95;
/// An open loop whose sends were later than this (p99) did not keep its plan.
const LATE_MAX_US: f64 = 1000.0;
/// An open loop that never sent more than this part of its plan did not keep it, whoever held it up.
const UNSENT_MAX: f64 = 0.01;
/// A run up to this long has a point of its curves with each tick instead of each second.
const SHORT_MAX: Duration = Duration::from_secs(12);
/// How long after the threads' beat is looked for what they published.
const TICK_AFTER: Duration = Duration::from_millis(60);
/// From the threads' start to the plan's start, so that all begin together.
const HEAD_START: Duration = Duration::from_millis(2);
/// The same with TLS: a thread's first random numbers take the library up to a tenth of a second.
const TLS_HEAD_START: Duration = Duration::from_millis(250);

/// All that a run needs.
#[derive(Clone, Debug)]
pub struct Job {
    /// The load.
    pub plan: Plan,
    /// What is asked for.
    pub mix: RequestMix,
    /// Where, by authority of the mix.
    pub targets: Vec<Target>,
    /// How TLS is spoken; `None`: nowhere.
    pub tls: Option<TlsPlan>,
    /// CPUs of the threads, in turn; empty: any.
    pub cpus: Vec<usize>,
    /// The probe that runs beside the load.
    pub reference: Option<Reference>,
    /// Servers whose CPU time and memory are read.
    pub server_pids: Vec<u32>,
    /// CPUs all of whose busy time is the servers'.
    pub server_cpus: Vec<usize>,
}

/// A low constant rate straight to another place while the load runs.
#[derive(Clone, Debug)]
pub struct Reference {
    /// What is asked for.
    pub mix: RequestMix,
    /// Where, by authority of the mix.
    pub targets: Vec<Target>,
    /// How TLS is spoken; `None`: nowhere.
    pub tls: Option<TlsPlan>,
    /// Requests a second.
    pub per_second: f64,
}

/// What one client thread used.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadUse {
    /// CPU time, without what was spun through.
    pub cpu: Duration,
    /// Time it was ready but had to wait for a CPU.
    pub run_delay: Duration,
    /// Time it ran.
    pub wall: Duration,
    /// Whole answers, warm-up included.
    pub answered: u64,
}

/// A run, done.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What all threads counted.
    pub tally: Tally,
    /// What the reference probe counted.
    pub reference: Option<Tally>,
    /// Time that figures counted for.
    pub counted: Duration,
    /// What each thread used.
    pub threads: Vec<ThreadUse>,
    /// What the servers spent meanwhile: by process, and by busy CPU.
    pub server: Option<Spent>,
    /// Busy time of the CPUs that were named.
    pub server_busy: Option<Duration>,
    /// Why the client itself limited the figures; empty: it did not.
    pub saturated: Vec<String>,
    /// Figures over time: a point each second, or more often in a short run.
    pub points: Vec<Point>,
    /// Whether the operator ended it.
    pub was_stopped: bool,
    /// Whether figures counted when it ended; else all of them are of warm-up and ramp.
    pub has_counted: bool,
}

impl Outcome {
    /// Whole answers a second.
    #[must_use]
    pub fn rate_per_s(&self) -> f64 {
        let seconds = self.counted.as_secs_f64();
        if seconds > 0.0 { self.tally.in_time as f64 / seconds } else { 0.0 }
    }

    /// Takes in another round of the same candidate.
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
        self.saturated = saturation(&self.tally, &self.threads, self.reference.as_ref());
        let offset = self.points.last().map_or(0.0, |point| point.at_s);
        self.points
            .extend(other.points.iter().map(|point| Point { at_s: point.at_s + offset, ..*point }));
        self.was_stopped |= other.was_stopped;
        self.has_counted &= other.has_counted;
    }

    /// CPU time of the client for each answer, µs; what was spun through is not in it. Without an answer
    /// there is none.
    #[must_use]
    pub fn client_cpu_us_per_request(&self) -> Option<f64> {
        let cpu: Duration = self.threads.iter().map(|thread| thread.cpu).sum();
        let answered: u64 = self.threads.iter().map(|thread| thread.answered).sum();
        (answered > 0).then(|| cpu.as_secs_f64() * 1e6 / answered as f64)
    }
}

/// A stretch of a run, reduced to what a curve shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Its end, seconds since the start.
    pub at_s: f64,
    /// Answers a second.
    pub rate_per_s: f64,
    /// Failures a second.
    pub errors_per_s: f64,
    /// Median latency, µs.
    pub p50_us: f64,
    /// µs.
    pub p99_us: f64,
    /// µs.
    pub p99_9_us: f64,
    /// µs.
    pub max_us: f64,
}

/// What has happened since the last tick.
#[derive(Debug)]
pub struct Tick<'a> {
    /// Since the start.
    pub at: Duration,
    /// Time since the last tick.
    pub over: Duration,
    /// What happened in that time.
    pub interval: &'a Interval,
    /// Whether figures count already.
    pub is_counting: bool,
    /// Whether this tick ends a second.
    pub second: Option<(&'a Interval, Duration)>,
}

/// Runs `job` to its end; `stop` ends it early, `watch` is called a few times a second.
///
/// # Errors
/// A sentence for the operator, when the run cannot begin.
pub fn run(
    job: &Job,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&Tick<'_>),
) -> Result<Outcome, String> {
    check_room(job)?;
    let plan = &job.plan;
    let shares: Vec<Shared> = (0..=plan.threads).map(|_| Shared::default()).collect();
    let wakers = make_wakers(usize::from(plan.threads) + 1)
        .map_err(|error| format!("cannot make the threads' wakers: {error}"))?;
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
                // The receiver lives until all have sent.
                let _ = sender.send((false, load.carry(number, shared, start, waker, cpu)));
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
                let _ = sender.send((true, load.carry(0, shared, start, waker, None)));
            });
        }
        drop(sender);
        Overseer::new(job, start).oversee(&shares, stop, &results, watch)
    })
}

/// What one thread carries out.
struct Load<'a> {
    plan: &'a Plan,
    mix: &'a RequestMix,
    targets: &'a [Target],
    tls: &'a Option<TlsPlan>,
}

impl Load<'_> {
    fn carry(
        &self,
        number: u16,
        shared: &Shared,
        start: Moment,
        waker: Waker,
        cpu: Option<usize>,
    ) -> Result<(Carried, ThreadUse), String> {
        if let Some(cpu) = cpu {
            worker::pin_to_cpu(cpu).map_err(|error| format!("CPU {cpu}: {error}"))?;
        }
        // With a shared table every call on a descriptor costs more, but the run is right.
        let _ = worker::unshare_descriptor_table();
        if let Some(plan) = self.tls {
            draw_first_random(plan);
        }
        let share = self.plan.share(number);
        // As many again may be closing while their successors connect.
        let socks_max = share.connections as usize * 2 + 1024;
        let mut reactor = EpollReactor::new(socks_max, waker)
            .map_err(|error| format!("no epoll instance: {error}"))?;
        let client = Client::new(self.plan, share, self.mix, self.targets, shared, start);
        let cpu_before = machine::thread_cpu_time();
        let delay_before = machine::thread_run_delay();
        let carried = match self.tls {
            None => client.run(&mut reactor),
            Some(plan) => {
                client.run_secured(&mut reactor, &mut TlsLayer::new(plan, Vec::new(), ()))
            }
        };
        let cpu = machine::thread_cpu_time().saturating_sub(cpu_before);
        let thread_use = ThreadUse {
            cpu: cpu.saturating_sub(carried.spun),
            run_delay: machine::thread_run_delay().saturating_sub(delay_before),
            // What was waited before the plan's start says nothing of how busy the thread was.
            wall: monotonic_now().since(start),
            answered: carried.answered_ever,
        };
        Ok((carried, thread_use))
    }
}

/// Begins a session that nobody uses, so that the thread's random numbers are ready before the plan starts.
fn draw_first_random(plan: &TlsPlan) {
    if let Some(pool) = plan.pools.iter().flatten().next()
        && let Some(server) = pool.servers.first()
    {
        // A connection that needs it finds out what is wrong.
        let _ = pool.connector.connect(&server.name);
    }
}

type ThreadResult = (bool, Result<(Carried, ThreadUse), String>);

/// Watches a run from outside of its threads.
struct Overseer<'a> {
    job: &'a Job,
    start: Moment,
    is_counting: bool,
    server_before: Option<Spent>,
    busy_before: Option<Duration>,
    second: Interval,
    second_began: Duration,
    /// End of the last stretch that was taken.
    ticked: Duration,
    points: Vec<Point>,
}

impl<'a> Overseer<'a> {
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
            points: Vec::new(),
        }
    }

    fn oversee(
        mut self,
        shares: &[Shared],
        stop: &AtomicBool,
        results: &mpsc::Receiver<ThreadResult>,
        watch: &mut dyn FnMut(&Tick<'_>),
    ) -> Result<Outcome, String> {
        let (mut carried, mut threads) = (Vec::new(), Vec::new());
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
                    carried.push(one);
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
            let load_is_over = carried.len() == usize::from(self.job.plan.threads);
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
            None => Ok(self.outcome(carried, threads, reference, was_stopped)),
        }
    }

    fn begin_counting(&mut self) {
        self.is_counting = true;
        self.server_before = spent_by_all(&self.job.server_pids);
        self.busy_before =
            (!self.job.server_cpus.is_empty()).then(|| machine::busy_time(&self.job.server_cpus));
    }

    /// Takes what the threads published since the last look, if they did. The stretch is as long as they
    /// say: a look that came late would stretch or squeeze it.
    fn tick(&mut self, shares: &[Shared], is_last: bool, watch: &mut dyn FnMut(&Tick<'_>)) {
        let mut interval = Interval::default();
        for shared in shares {
            // A thread that panicked leaves numbers that are still right.
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
        self.second.add(&interval);
        self.second.connections = interval.connections;
        let second_over = now - self.second_began;
        // What is left at the end is told all the same, so that sums over all seconds are whole.
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
            // A rate over a few milliseconds would be a spike that never was.
            if !is_short && second_over >= PUBLISH_EVERY / 2 {
                self.points.push(Point::new(&self.second, now, second_over));
            }
            self.second.clear();
            self.second_began = now;
        }
    }

    fn outcome(
        self,
        mut carried: Vec<Carried>,
        threads: Vec<ThreadUse>,
        reference: Option<Tally>,
        was_stopped: bool,
    ) -> Outcome {
        let has_counted = carried.iter().any(|one| one.has_counted);
        // A thread that was stopped just before its figures counted has none beside those that did.
        carried.retain(|one| one.has_counted == has_counted);
        let mut tally = Tally::default();
        for one in &carried {
            tally.add(&one.tally);
        }
        if self.job.plan.pace == Pace::Closed {
            // Without a plan for each send both are the same.
            tally.latency = tally.service.clone();
        }
        let counted = carried.iter().map(|one| one.counted).max().unwrap_or_default();
        let server = match (self.server_before, spent_by_all(&self.job.server_pids)) {
            (Some(before), Some(after)) if has_counted => Some(after.since(before)),
            _ => None,
        };
        let server_busy = self
            .busy_before
            .filter(|_| has_counted)
            .map(|before| machine::busy_time(&self.job.server_cpus).saturating_sub(before));
        let saturated = saturation(&tally, &threads, reference.as_ref());
        Outcome {
            tally,
            reference,
            counted,
            threads,
            server,
            server_busy,
            saturated,
            points: self.points,
            was_stopped,
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
            p50_us: interval.latency.percentile_us(50.0),
            p99_us: interval.latency.percentile_us(99.0),
            p99_9_us: interval.latency.percentile_us(99.9),
            max_us: interval.latency.max_us(),
        }
    }
}

/// Whether the client itself limited the figures, in words.
fn saturation(tally: &Tally, threads: &[ThreadUse], reference: Option<&Tally>) -> Vec<String> {
    let mut reasons = Vec::new();
    for (number, thread) in threads.iter().enumerate() {
        let wall = thread.wall.as_secs_f64().max(1e-9);
        let busy = thread.cpu.as_secs_f64() / wall;
        let delayed = thread.run_delay.as_secs_f64() / wall;
        if busy > BUSY_MAX {
            reasons.push(format!("thread {number} was busy {:.0} % of the time", busy * 100.0));
        } else if busy + delayed > BUSY_MAX && delayed > 0.05 {
            reasons.push(format!(
                "thread {number} was busy {:.0} % and waited for its CPU {:.0} % of the time",
                busy * 100.0,
                delayed * 100.0
            ));
        }
    }
    let late_us = tally.schedule_error.percentile_us(99.0);
    if late_us > LATE_MAX_US {
        reasons.push(format!("1 % of the sends were {late_us:.0} µs or more behind their plan"));
    }
    let planned = tally.issued + tally.unsent;
    if tally.unsent as f64 > UNSENT_MAX * planned as f64 {
        reasons.push(format!(
            "{} of {planned} planned requests were never sent, for want of a free connection: give more \
             --connections or a lower --rate",
            tally.unsent
        ));
    }
    let late_us = reference.map_or(0.0, |probe| probe.schedule_error.percentile_us(99.0));
    if late_us > LATE_MAX_US {
        reasons.push(format!(
            "1 % of the probe's sends were {late_us:.0} µs or more behind their plan: what it is compared \
             with is the client's own delay"
        ));
    }
    reasons
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

/// The probe's plan: as long as the load's, at its own low rate.
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
        pipeline: 1,
        timeout: plan.timeout,
        // The probe may go to another network than the load.
        sources: Vec::new(),
        seed: plan.seed,
    }
}

/// Says before the run what would break in the middle of it.
fn check_room(job: &Job) -> Result<(), String> {
    let plan = &job.plan;
    let limit = machine::raise_descriptor_limit();
    let each = u64::from(plan.connections.div_ceil(u32::from(plan.threads.max(1))));
    let needed = each + DESCRIPTORS_SPARE;
    if needed > limit {
        return Err(format!(
            "{} on {}: a thread needs {needed} descriptors and the limit is {limit}; \
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

/// Which argument makes do with `limit` descriptors a thread, where one does.
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

/// Whether there are as many local ports as `connections` to one address need.
fn check_ports(plan: &Plan, connections: u64) -> Result<(), String> {
    let ports = machine::local_ports().max(1);
    let sources = plan.sources.len().max(1) as u64;
    if connections <= ports * sources {
        return Ok(());
    }
    let needed = connections.div_ceil(ports);
    Err(format!(
        "{connections} connections to one address need as many local ports and there are {ports} for each \
         source address; use --connections {}, give {needed} addresses (--source 127.0.0.2-127.0.0.{} \
         on loopback, say) or widen net.ipv4.ip_local_port_range",
        ports * sources,
        needed + 1
    ))
}

/// Tries each source address before the run: connects that fail in the middle of it say less.
fn check_sources(sources: &[IpAddr], destination: IpAddr) -> Result<(), String> {
    for &source in sources {
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(format!(
                "--source {source}: {destination} is of the other IP version; give a source of the same one"
            ));
        }
        // Nothing is sent: a datagram socket shows whether the address is this host's.
        std::net::UdpSocket::bind((source, 0)).map_err(|error| {
            format!("--source {source}: {error}; `ip address` shows the addresses of this host")
        })?;
    }
    Ok(())
}

/// The clock of the reactors (CLOCK_MONOTONIC), read without one.
fn monotonic_now() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Moment::from_nanos(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::{Floor, JSON_BODY, Role};
    use crate::target::{RequestOptions, Url};

    fn job(address: std::net::SocketAddr, plan: Plan) -> Job {
        let url = Url::parse(&format!("http://{address}/json")).unwrap();
        Job {
            plan,
            mix: RequestMix::single(&url, &RequestOptions::default()).unwrap(),
            targets: vec![Target { address: url.resolve().unwrap(), is_secure: false }],
            tls: None,
            cpus: Vec::new(),
            reference: None,
            server_pids: Vec::new(),
            server_cpus: Vec::new(),
        }
    }

    fn floor() -> std::net::SocketAddr {
        let role =
            Role::Answer { content_type: "application/json".to_owned(), body: JSON_BODY.into() };
        let floor = Floor::listen("127.0.0.1:0".parse().unwrap(), role).unwrap();
        let address = floor.address();
        thread::spawn(move || floor.serve());
        address
    }

    #[test]
    fn a_number_of_requests_is_sent_exactly() {
        let plan = Plan {
            connections: 7,
            threads: 3,
            requests: Some(1000),
            duration: None,
            ..Plan::default()
        };
        let outcome = run(&job(floor(), plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert_eq!(outcome.tally.requests, 1000);
        assert_eq!(outcome.tally.issued, 1000);
        assert_eq!(outcome.tally.errors.total(), 0);
        assert_eq!(outcome.tally.body_bytes, 27_000);
        assert_eq!(outcome.tally.connects, 7);
    }

    #[test]
    fn pipelined_requests_are_all_answered() {
        let plan = Plan {
            connections: 3,
            requests: Some(5000),
            duration: None,
            pipeline: 16,
            ..Plan::default()
        };
        let outcome = run(&job(floor(), plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert_eq!((outcome.tally.requests, outcome.tally.errors.total()), (5000, 0));
    }

    #[test]
    fn a_port_where_nobody_listens_ends_with_connect_errors() {
        let address = crate::process::free_address().unwrap();
        let plan =
            Plan { connections: 2, duration: Some(Duration::from_millis(300)), ..Plan::default() };
        let outcome = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert_eq!(outcome.tally.requests, 0);
        assert!(outcome.tally.errors.connect > 0);
        assert!(outcome.tally.notes[0].1.contains("refused"), "{:?}", outcome.tally.notes);
    }

    #[test]
    fn connections_come_from_the_sources_that_were_given() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = thread::spawn(move || {
            let mut seen: Vec<IpAddr> = (0..4).map(|_| listener.accept().unwrap().1.ip()).collect();
            seen.sort();
            seen
        });
        let sources: Vec<IpAddr> = vec![[127, 0, 0, 8].into(), [127, 0, 0, 9].into()];
        let plan = Plan {
            connections: 4,
            duration: Some(Duration::from_millis(300)),
            sources: sources.clone(),
            timeout: Duration::from_millis(200),
            ..Plan::default()
        };
        let outcome = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert!(outcome.tally.connects >= 4);
        assert_eq!(seen.join().unwrap(), [sources[0], sources[0], sources[1], sources[1]]);
    }

    #[test]
    fn a_plan_of_which_a_part_was_never_sent_is_told_and_its_last_send_is_not() {
        let left = |issued, unsent| {
            let tally = Tally { issued, unsent, ..Tally::default() };
            saturation(&tally, &[], None)
        };
        assert_eq!(left(10_000, 0), [""; 0]);
        assert_eq!(left(10_000, 3), [""; 0]);
        assert!(left(9000, 1000)[0].starts_with("1000 of 10000 planned requests were never sent"));
    }

    #[test]
    fn a_source_that_is_not_ours_is_refused_before_the_run() {
        for source in ["203.0.113.7", "::1"] {
            let plan = Plan { sources: vec![source.parse().unwrap()], ..Plan::default() };
            let address = crate::process::free_address().unwrap();
            let error = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap_err();
            assert!(error.contains(&format!("--source {source}: ")), "{error}");
        }
    }

    #[test]
    fn only_arguments_that_would_do_are_proposed_for_too_few_descriptors() {
        let plan = Plan { connections: 100_000, threads: 2, ..Plan::default() };
        for (limit, words) in
            [(1064, "use --threads 100 or "), (164, "use --connections 200 or "), (64, ""), (8, "")]
        {
            assert_eq!(within_limit(&plan, limit), words, "{limit}");
        }
    }

    #[test]
    fn too_many_connections_are_refused_with_the_number_that_would_do() {
        let plan = Plan { connections: 3_000_000, ..Plan::default() };
        let address = crate::process::free_address().unwrap();
        let error = run(&job(address, plan), &AtomicBool::new(false), &mut |_| {}).unwrap_err();
        assert!(error.contains("use --"), "{error}");
    }
}
