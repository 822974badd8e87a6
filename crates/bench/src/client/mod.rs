//! The client of one thread: carries out its share of a plan on any reactor.
//! In: completions, and the reactor's clock. Out: requests, and a `Tally`.
//! Never: reports times or response bytes of the warm-up or the ramp; waits forever.
//! Limits: `plan::PIPELINE_MAX`, `DRAIN_MAX`, the plan's timeout, `UNREACHABLE_MAX`.
//! Invariant: `outstanding` is the sum of the lengths of all lanes' `pending`. Each request counts once in
//! the tally: as response, failure or unanswered. If the plan has a number of requests, the requests of warm-up
//! and ramp do not count. `out` is empty except while one connection is served.

mod events;
mod http2;
mod lane;
pub mod reader;

use crate::histogram::Times;
use crate::plan::{Pace, Plan, Schedule, Share};
use crate::tally::{Interval, Tally};
use crate::target::{RequestMix, Target};
use core::cmp::Reverse;
use core::sync::atomic::{AtomicBool, Ordering};
use events::SWEEP_MAX;
use lane::{Lane, Phase, Sent};
use reader::Template;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex};
use tidegate_base::{Moment, Prng, Span};
use tidegate_reactor::{Driver, Reactor, SockId};
use tidegate_secure::{TlsLayer, TlsObserver};
use tidegate_wire::http2::Scratch;
use tidegate_wire::tls::Fault;

/// How long the client waits for responses after the plan's end. If a number of requests ended the plan, each
/// request has the plan's timeout instead.
pub const DRAIN_MAX: Span = Span::from_secs(2);
/// A run without an open connection ends after this time, or a little after the plan's timeout if that is longer,
/// so that a hanging connection attempt fails first.
pub const UNREACHABLE_MAX: Span = Span::from_secs(10);
/// Interval at which a thread publishes its figures for the progress display.
pub const PUBLISH_EVERY: Span = Span::from_millis(250);
/// Time before a planned send during which the client spins: the kernel's waits have a resolution of
/// milliseconds and end late.
const SPIN: Span = Span::from_millis(2);

/// State that the client shares with the thread that monitors the run.
#[derive(Debug, Default)]
pub struct Shared {
    /// If set, the client sends no more requests, waits for pending responses, and ends.
    pub stop: AtomicBool,
    /// The figures since the monitor last collected them.
    pub interval: Mutex<Interval>,
    /// Set by the first error of any thread of the run, after which no thread sends a request; `None` if errors do not end
    /// the run.
    pub had_error: Option<Arc<AtomicBool>>,
}

impl Shared {
    /// Notes an error.
    pub(crate) fn note_error(&self) {
        if let Some(had_error) = &self.had_error {
            had_error.store(true, Ordering::Relaxed);
        }
    }

    /// Whether an error has ended the run.
    pub(crate) fn is_ended_by_error(&self) -> bool {
        self.had_error.as_ref().is_some_and(|had_error| had_error.load(Ordering::Relaxed))
    }
}

/// The result of a thread's share.
#[derive(Clone, Debug)]
pub struct ClientOutcome {
    /// The counts.
    pub tally: Tally,
    /// Length of the measured time. It begins after warm-up and ramp, or at the start of the run if the run ended
    /// before that. It ends when sending ends; if a number of requests ended the run, it ends with the last
    /// response, or with the run if there was no response.
    pub counted: Span,
    /// Whether the measured time had begun; if not, the tally covers only warm-up and ramp.
    pub has_counted: bool,
    /// Time spent spinning while waiting for planned sends.
    pub spun: Span,
    /// Complete responses, including those of warm-up and ramp.
    pub answered_ever: u64,
}

/// The client of one thread.
#[derive(Debug)]
pub struct Client<'a> {
    plan: &'a Plan,
    mix: &'a RequestMix,
    /// The servers, indexed by authority (an authority is a host and port of the request mix).
    targets: &'a [Target],
    shared: &'a Shared,
    /// When the plan begins.
    start: Moment,
    /// The connections of this thread; other fields refer to them by index.
    lanes: Vec<Lane>,
    /// Number of this thread's first connection, counted over all threads of the plan.
    connection_first: u32,
    /// The lane of each socket index; `u32::MAX` if there is none.
    lane_by_socket: Vec<u32>,
    /// Connections that wait for a planned send, the longest waiting first.
    idle: VecDeque<u32>,
    /// Connections of a closed loop whose response arrived in the current turn.
    ready: Vec<u32>,
    /// When a lane needs attention: to connect, after a pause, or for a planned send.
    wakes: BinaryHeap<Reverse<(Moment, u32)>>,
    /// The thread's schedule, if the pace is a total rate.
    schedule: Option<Schedule>,
    /// The next planned send of `schedule`; `NEVER` without a schedule.
    next_arrival: Moment,
    /// Requests that may still be sent.
    quota: u64,
    /// Requests that may be sent in the measured time.
    requests: u64,
    /// Requests that were sent and are neither answered nor failed.
    outstanding: u64,
    /// Open connections.
    open: u64,
    /// The last response head of each request of the mix.
    templates: Vec<Template>,
    prng: Prng,
    /// The counts since measuring began, or since the start before that.
    tally: Tally,
    /// The counts since the last publishing.
    interval: Interval,
    /// Whether the measured time has begun.
    is_counting: bool,
    /// When sending ended; `None` before.
    draining_since: Option<Moment>,
    /// When a connection was last open. Before the first connection: when that connection is due to be opened.
    last_reached: Moment,
    /// When timeouts are checked next.
    next_sweep: Moment,
    /// When figures are published next.
    next_publish: Moment,
    /// Lengths of spinning turns: turns that did not wait and had nothing to do.
    spins: Times,
    /// When the last turn began, if it was a spinning turn.
    spin_began: Option<Moment>,
    /// Complete responses, including those that are not counted.
    answered_ever: u64,
    /// When the last response was complete.
    answered_last: Moment,
    /// Number of completions and sends so far. A turn that does not change it had nothing to do.
    busy_marks: u64,
    /// The TLS fault of the connection that is about to be reported as closed.
    fault: Option<(SockId, Fault)>,
    /// HTTP/2 frames of the connection that is being served.
    out: Vec<u8>,
    /// Memory for the fields of an HTTP/2 response.
    scratch: Scratch,
}

impl<'a> Client<'a> {
    /// Creates the client of `share`. The plan begins at `start`; `targets` are the servers, indexed by the
    /// authorities of the mix.
    #[must_use]
    pub fn new(
        plan: &'a Plan,
        share: Share,
        mix: &'a RequestMix,
        targets: &'a [Target],
        shared: &'a Shared,
        start: Moment,
    ) -> Self {
        let mut schedule = plan.schedule(share.thread);
        let next_arrival = schedule
            .as_mut()
            .map_or(Moment::NEVER, |schedule| start.after(schedule.next_arrival()));
        let counts_at_once = plan.counted_from().is_zero();
        let requests = share.requests.unwrap_or(u64::MAX);
        let mut client = Self {
            plan,
            mix,
            targets,
            shared,
            start,
            lanes: Vec::with_capacity(share.connections as usize),
            connection_first: share.connection_first,
            lane_by_socket: Vec::new(),
            idle: VecDeque::new(),
            ready: Vec::new(),
            wakes: BinaryHeap::with_capacity(share.connections as usize),
            schedule,
            next_arrival,
            quota: if counts_at_once { requests } else { u64::MAX },
            requests,
            outstanding: 0,
            open: 0,
            templates: vec![Template::default(); mix.len()],
            prng: Prng::new(plan.seed.wrapping_add(u64::from(share.thread))),
            tally: Tally::default(),
            interval: Interval::default(),
            is_counting: counts_at_once,
            draining_since: None,
            last_reached: start.after(plan.opened_at(share.connection_first)),
            next_sweep: start,
            next_publish: start.after(PUBLISH_EVERY),
            spins: Times::coarse(),
            spin_began: None,
            answered_ever: 0,
            answered_last: start,
            busy_marks: 0,
            fault: None,
            out: Vec::new(),
            scratch: Scratch::new(),
        };
        for number in 0..share.connections {
            let connection = share.connection_first + number;
            let opened_at = start.after(plan.opened_at(connection));
            let authority = mix.authority_of(connection, plan.connections);
            let schedule = plan.connection_schedule(connection);
            client.lanes.push(Lane::new(authority, schedule, opened_at));
            client.wake_at(number, opened_at);
        }
        client
    }

    /// Carries the plan out.
    pub fn run<R: Driver>(mut self, reactor: &mut R) -> ClientOutcome {
        while self.step(reactor, Span::MAX) {}
        self.finish(reactor.read_clock())
    }

    /// Carries the plan out, with TLS for targets that use it.
    pub fn run_secured<R: Driver, L: TlsObserver>(
        mut self,
        reactor: &mut R,
        layer: &mut TlsLayer<L>,
    ) -> ClientOutcome {
        while self.step_secured(reactor, layer, Span::MAX) {}
        self.finish(reactor.read_clock())
    }

    /// Does all work that is due, then one turn that waits up to `wait_max`; false once the plan is finished.
    pub fn step<R: Driver>(&mut self, reactor: &mut R, wait_max: Span) -> bool {
        let now = reactor.read_clock();
        self.end_spin(now);
        self.advance(reactor, now);
        if self.is_finished(now) {
            return false;
        }
        let (wait, marks) = (self.wait(now), self.busy_marks);
        reactor.turn(self, wait.min(wait_max));
        self.serve_ready(reactor);
        self.begin_spin(now, wait, marks);
        true
    }

    /// As `step`, through the TLS layer `layer`.
    pub fn step_secured<R: Driver, L: TlsObserver>(
        &mut self,
        reactor: &mut R,
        layer: &mut TlsLayer<L>,
        wait_max: Span,
    ) -> bool {
        let now = reactor.read_clock();
        self.end_spin(now);
        layer.between_turns(reactor, self, |client, view| client.advance(view, now));
        if self.is_finished(now) {
            return false;
        }
        let (wait, marks) = (self.wait(now), self.busy_marks);
        layer.turn(reactor, self, wait.min(wait_max));
        self.begin_spin(now, wait, marks);
        true
    }

    fn end_spin(&mut self, now: Moment) {
        if let Some(begun) = self.spin_began.take() {
            self.spins.record(now.since(begun));
        }
    }

    /// Notes a spinning turn: a turn that did not wait and had nothing to do.
    fn begin_spin(&mut self, now: Moment, wait: Span, marks_before: u64) {
        if wait.is_zero() && marks_before == self.busy_marks {
            self.spin_began = Some(now);
        }
    }

    /// Ends the client at `now`, after the last step, and returns its result.
    #[must_use]
    pub fn finish(mut self, now: Moment) -> ClientOutcome {
        let mut until = self.draining_since.unwrap_or(now);
        if self.quota == 0 {
            until = until.max(if self.answered_ever > 0 { self.answered_last } else { now });
        }
        self.end(now);
        ClientOutcome {
            counted: until.since(self.times_count_from()),
            has_counted: self.is_counting,
            spun: spinning_time(&self.spins),
            answered_ever: self.answered_ever,
            tally: self.tally,
        }
    }

    /// The time of a response is recorded only if the request was planned at this moment or later. During warm-up
    /// and ramp all times are recorded, for the progress display.
    fn times_count_from(&self) -> Moment {
        if self.is_counting { self.start.after(self.plan.counted_from()) } else { self.start }
    }

    /// Does all due work that does not depend on a completion.
    fn advance<R: Reactor>(&mut self, reactor: &mut R, now: Moment) {
        if !self.is_counting && now >= self.start.after(self.plan.counted_from()) {
            self.begin_counting();
        }
        self.check_end(now);
        while let Some(&Reverse((at, lane))) = self.wakes.peek()
            && at <= now
        {
            self.wakes.pop();
            self.handle_wake(reactor, lane, now);
        }
        self.serve_arrivals(reactor, now);
        if now >= self.next_sweep {
            self.sweep(reactor, now);
        }
        if now >= self.next_publish {
            self.publish(now);
        }
    }

    fn begin_counting(&mut self) {
        self.is_counting = true;
        self.quota = self.requests;
        let notes = core::mem::take(&mut self.tally.notes);
        let negotiated = self.tally.negotiated.take();
        let streams_allowed = self.tally.streams_allowed;
        self.tally = Tally { notes, negotiated, streams_allowed, ..Tally::default() };
        for lane in &mut self.lanes {
            lane.answered = 0;
        }
    }

    fn check_end(&mut self, now: Moment) {
        if self.draining_since.is_some() {
            return;
        }
        let over = self.plan.ends_at().is_some_and(|end| now >= self.start.after(end));
        let is_stopped =
            self.shared.stop.load(Ordering::Relaxed) || self.shared.is_ended_by_error();
        if self.open > 0 {
            self.last_reached = now;
        }
        let is_unreachable = now.since(self.last_reached) > unreachable_max(self.plan);
        if over || self.quota == 0 || is_unreachable || is_stopped {
            self.draining_since = Some(now);
            self.tally.gave_up = is_unreachable && !over && self.quota > 0 && !is_stopped;
        }
    }

    fn is_finished(&self, now: Moment) -> bool {
        self.draining_since
            .is_some_and(|since| self.outstanding == 0 || now.since(since) > self.drain_max())
    }

    fn drain_max(&self) -> Span {
        if self.quota == 0 && !self.shared.stop.load(Ordering::Relaxed) {
            // By then, the timeout sweep has failed every request without a response.
            return self.plan.timeout.saturating_add(SWEEP_MAX * 2);
        }
        DRAIN_MAX
    }

    fn end(&mut self, now: Moment) {
        self.publish(now);
        if let Some(ends_at) = self.plan.ends_at() {
            // This code runs slightly after the plan's end. Requests planned in between are not part of the plan.
            let end = self.draining_since.unwrap_or(now).min(self.start.after(ends_at));
            self.tally.unsent += self.due_before(end).min(self.quota);
        }
        let pending = self.lanes.iter().flat_map(|lane| &lane.pending);
        self.tally.unanswered += pending.filter(|sent| sent.is_counted).count() as u64;
        let is_unconnected = |lane: &&Lane| {
            let is_attempt =
                matches!(lane.phase, Phase::Connecting | Phase::Handshaking | Phase::Greeting);
            !lane.was_open && is_attempt
        };
        self.tally.unconnected += self.lanes.iter().filter(is_unconnected).count() as u64;
        let answered = self.lanes.iter().map(|lane| lane.answered);
        self.tally.fairness = answered.clone().min().zip(answered.max());
    }

    /// Number of unsent requests that are planned before `end`.
    fn due_before(&self, end: Moment) -> u64 {
        let due = |schedule: &Schedule, next: Moment, began: Moment| {
            if next < end { 1 + schedule.arrivals_before(end.since(began)) } else { 0 }
        };
        let own = self.lanes.iter().filter_map(|lane| {
            Some(due(lane.schedule.as_deref()?, lane.next_planned, lane.schedule_began))
        });
        let common = self.schedule.as_ref();
        own.sum::<u64>() + common.map_or(0, |schedule| due(schedule, self.next_arrival, self.start))
    }

    /// How long the next turn may wait.
    fn wait(&self, now: Moment) -> Span {
        let mut next = self.next_sweep.min(self.next_publish);
        if let Some(end) = self.plan.ends_at()
            && self.draining_since.is_none()
        {
            next = next.min(self.start.after(end));
        }
        let coarse = next.since(now);
        let mut planned = Moment::NEVER;
        if !self.idle.is_empty() && self.draining_since.is_none() {
            planned = planned.min(self.next_arrival);
        }
        if let Some(&Reverse((at, _))) = self.wakes.peek() {
            planned = planned.min(at);
        }
        let planned = planned.since(now);
        if self.plan.pace == Pace::Closed {
            return coarse.min(planned);
        }
        coarse.min(planned.saturating_sub(SPIN))
    }

    fn wake_at(&mut self, number: u32, at: Moment) {
        if let Some(lane) = self.lanes.get_mut(number as usize)
            && !lane.has_wake
        {
            lane.has_wake = true;
            self.wakes.push(Reverse((at, number)));
        }
    }

    fn handle_wake<R: Reactor>(&mut self, reactor: &mut R, number: u32, now: Moment) {
        let lane = &mut self.lanes[number as usize];
        lane.has_wake = false;
        match lane.phase {
            Phase::Absent if self.draining_since.is_some() => lane.phase = Phase::Over,
            Phase::Absent => self.connect(reactor, number, now),
            Phase::Open => self.fill(reactor, number, now),
            Phase::Connecting | Phase::Handshaking | Phase::Greeting | Phase::Over => {}
        }
    }

    /// Sends the next requests of a closed loop and records each send time. All receives of a turn precede all sends: alternating
    /// between them takes 5 % more CPU time per request.
    fn serve_ready<R: Reactor>(&mut self, reactor: &mut R) {
        let mut ready = core::mem::take(&mut self.ready);
        for number in ready.drain(..) {
            let now = reactor.read_clock();
            self.fill(reactor, number, now);
        }
        self.ready = ready;
    }

    /// Sends all requests that the pace allows on a connection now, or schedules its next wake-up.
    fn fill<R: Reactor>(&mut self, reactor: &mut R, number: u32, now: Moment) {
        if self.draining_since.is_some() {
            return;
        }
        let issued = self.tally.issued;
        self.fill_by_pace(reactor, number, now);
        if self.tally.issued != issued {
            self.flush(reactor, number);
        }
    }

    fn fill_by_pace<R: Reactor>(&mut self, reactor: &mut R, number: u32, now: Moment) {
        match self.plan.pace {
            Pace::Closed => {
                while self.has_room(number) {
                    self.send(reactor, number, now, now);
                }
            }
            Pace::Total { .. } => {
                if self.idle.is_empty() {
                    // Send the requests that became due while every connection was busy.
                    while self.next_arrival <= now && self.has_room(number) {
                        self.tally.waited_for_connection += 1;
                        self.send(reactor, number, self.next_arrival, now);
                        self.step_schedule();
                    }
                }
                self.list_idle(number);
            }
            Pace::PerConnection { .. } => self.fill_by_own_schedule(reactor, number, now),
        }
    }

    fn fill_by_own_schedule<R: Reactor>(&mut self, reactor: &mut R, number: u32, now: Moment) {
        while self.has_room(number) {
            let lane = &mut self.lanes[number as usize];
            let planned = lane.next_planned;
            if planned > now {
                return self.wake_at(number, planned);
            }
            let Some(schedule) = &mut lane.schedule else {
                return;
            };
            lane.next_planned = lane.schedule_began.after(schedule.next_arrival());
            // The clock is read again, because the sends on other connections took time.
            let now = reactor.read_clock();
            if planned < lane.free_since {
                self.tally.waited_for_connection += 1;
            } else {
                self.tally.schedule_error.record(now.since(planned));
            }
            self.send(reactor, number, planned, now);
        }
    }

    fn has_room(&self, number: u32) -> bool {
        let lane = &self.lanes[number as usize];
        let socket_is_used_up = self
            .plan
            .requests_per_connection
            .is_some_and(|requests_max| lane.sent_on_socket >= requests_max);
        self.quota > 0
            && !self.shared.is_ended_by_error()
            && lane.phase == Phase::Open
            && !socket_is_used_up
            && lane.pending.len() < usize::from(self.plan.pipeline)
            && lane.session.as_ref().is_none_or(|session| session.has_room())
    }

    fn list_idle(&mut self, number: u32) {
        if self.has_room(number) && !self.lanes[number as usize].is_listed {
            self.lanes[number as usize].is_listed = true;
            self.idle.push_back(number);
        }
    }

    /// Sends the due requests on idle connections.
    fn serve_arrivals<R: Reactor>(&mut self, reactor: &mut R, now: Moment) {
        if self.schedule.is_none() || self.draining_since.is_some() {
            return;
        }
        while self.next_arrival <= now && self.quota > 0 {
            let Some(number) = self.idle.pop_front() else {
                return;
            };
            self.lanes[number as usize].is_listed = false;
            if !self.has_room(number) {
                continue;
            }
            // The clock is read again, because the earlier sends took time.
            let now = reactor.read_clock();
            self.tally.schedule_error.record(now.since(self.next_arrival));
            self.send(reactor, number, self.next_arrival, now);
            self.flush(reactor, number);
            self.step_schedule();
            self.list_idle(number);
        }
    }

    fn step_schedule(&mut self) {
        self.next_arrival = match &mut self.schedule {
            Some(schedule) => self.start.after(schedule.next_arrival()),
            None => Moment::NEVER,
        };
    }

    fn send<R: Reactor>(&mut self, reactor: &mut R, number: u32, planned: Moment, now: Moment) {
        let lane = &mut self.lanes[number as usize];
        let choice = self.mix.pick(lane.authority, &mut self.prng);
        let request = self.mix.request(choice);
        lane.sent_on_socket += 1;
        if let Some(session) = &mut lane.session {
            let is_secure = self.targets[usize::from(lane.authority)].is_secure;
            session.send((choice, request), is_secure, now, &mut self.out);
        } else {
            let is_last = self.plan.requests_per_connection == Some(lane.sent_on_socket);
            let bytes = if is_last { &request.closing_bytes } else { &request.bytes };
            reactor.send(lane.sock, bytes);
        }
        // If the plan has a number of requests, those of warm-up and ramp are not counted.
        let is_counted = self.is_counting || self.plan.requests.is_none();
        lane.pending.push_back(Sent { planned, at: now, number: choice, is_counted });
        self.quota -= 1;
        self.outstanding += 1;
        self.tally.issued += 1;
        self.busy_marks += 1;
    }

    /// Sends the requests of a connection now: a flush at the end of the turn would send later than the
    /// recorded send time.
    fn flush<R: Reactor>(&mut self, reactor: &mut R, number: u32) {
        self.send_frames(reactor, number);
        reactor.flush(self.lanes[number as usize].sock);
    }

    fn publish(&mut self, now: Moment) {
        // Publish at fixed times. The monitor reads between two of them, so it finds exactly one interval.
        while self.next_publish <= now {
            self.next_publish = self.next_publish.after(PUBLISH_EVERY);
        }
        self.interval.until = now.since(self.start);
        self.interval.connections = self.open;
        // The figures are still correct if the monitor panicked.
        let mut shared = match self.shared.interval.lock() {
            Ok(shared) => shared,
            Err(poisoned) => poisoned.into_inner(),
        };
        shared.add(&self.interval);
        shared.connections = self.interval.connections;
        drop(shared);
        self.interval.clear();
    }
}

/// How long a run of `plan` continues without an open connection.
#[must_use]
pub fn unreachable_max(plan: &Plan) -> Span {
    UNREACHABLE_MAX.max(plan.timeout.saturating_add(SWEEP_MAX * 2))
}

/// CPU time spent spinning. Much longer turns are excluded, because another process had the CPU in them.
fn spinning_time(spins: &Times) -> Span {
    let usual = Span::from_secs_f64(spins.percentile_us(50.0) / 1e6);
    spins.sum_up_to(usual * 16)
}
