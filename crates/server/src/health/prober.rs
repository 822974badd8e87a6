//! Checks servers and queries their agents: opens connections, sends requests, and reads the responses, all on one reactor.
//! In: targets, completions. Out: results for the roster.
//! Never: runs on a worker; lets a server hold a check beyond its timeout; counts a shortage of this process as a failure
//! of a server.
//! Limits: one check of a server and one of its agent at a time; `SHORTAGE_PAUSE` before checks that lacked a slot, a descriptor
//! or memory are tried again, unless a connection of a check ends before that; the same before a check is tried again for whose
//! addresses there is no local port, then twice as long each time, up to `every`; `BEGUN_MAX` waiting checks begun in a turn; a
//! connection whose check has ended is kept for the server's FIN for up to `LEAVE_SPAN` and `LEAVE_BYTES_MAX` bytes of the rest of its
//! response, unless a check needs its slot; connections that are kept for further checks: `kept.rs`.
//! Invariant: timer `n` belongs to target `n`: it is the time of the next check while the target waits, and the timeout
//! of the check while one is in progress. Of the checks in `waiting.rs`, only the timer of the first one is set.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_base::{Moment, Prng, Span};
use tidegate_config::model::CheckKind;
use tidegate_gate::agent::{Failure, Statement, TextReader};
use tidegate_gate::health::{self, Outcome, Stage};
use tidegate_gate::probe::{self, RestReader, Talk, TalkStart};
use tidegate_reactor::{CloseReason, Completion, Reactor, Shortage, SockId};
use tidegate_secure::LayerHandler;
use tidegate_wire::tls::Fault;

use super::kept::{Kept, KeptBound};
use super::target::{Job, Target};
use super::waiting::{Place, WaitingChecks};
use super::{Roster, ServerId};
use crate::log;

/// How long a check that lacked a resource of this process waits.
const SHORTAGE_PAUSE: Span = Span::from_millis(100);
/// How many of the checks that waited are begun in a turn.
const BEGUN_MAX: usize = 256;
/// For how many times `keep-alive` checks use new connections after a timeout over a kept one.
const UNKEPT_SPANS: u32 = 10;
/// How long the prober waits for a server to close after its response, so that the server's side of the connection keeps
/// the port (TIME_WAIT), not this process.
const LEAVE_SPAN: Span = Span::from_secs(1);
/// How many bytes of a response are read after the check has its result.
const LEAVE_BYTES_MAX: usize = 256 * 1024;

/// Checks all targets.
pub(crate) struct Prober {
    /// Receives the results.
    roster: Arc<Roster>,
    /// By the number of the timer.
    targets: Vec<Watched>,
    /// By the index of the connection.
    socks: Vec<Use>,
    /// Random numbers for the times of checks.
    prng: Prng,
    /// How many connections are kept between checks.
    bound: KeptBound,
    /// The checks that lack a resource of this process.
    waiting: WaitingChecks,
    /// Waiting checks may be tried: one of them has begun, or a connection has ended.
    may_begin: bool,
    /// The time of the last turn in which waiting checks were begun, and their number.
    begun: (Moment, usize),
    /// A server has gone up or down since the last message to the workers.
    is_changed: bool,
}

/// A target and the state of its check.
struct Watched {
    /// The target.
    target: Target,
    /// When its timer is due.
    at: Moment,
    /// The check in progress; `None`: it waits for the next one. Boxed, because few of many targets are checked at a time.
    probe: Option<Box<Probe>>,
    /// The connection that was kept after the last check.
    kept: Option<Kept>,
    /// The address that is tried first, modulo their number.
    preferred: usize,
    /// Until when each check uses a new connection. Set after a timeout over a kept one: a path to the server may drop
    /// connections that were idle.
    unkept_until: Moment,
    /// The check lacks a resource of this process: its place among those that wait.
    place: Option<Place>,
    /// The check in progress, or the next one, has been counted as waiting.
    is_counted: bool,
    /// How long the check has waited last, because there is no local port for its connection; zero if it has not waited.
    pause: Span,
    /// Why an address that was tried earlier in this check cannot be reached.
    refused: Option<Outcome>,
}

/// A check in progress.
struct Probe {
    /// The connection.
    sock: SockId,
    /// When the check began.
    began: Moment,
    /// Until when the connection may be kept for further checks; `None`: the request asks the server to close it.
    keep_until: Option<Moment>,
    /// The connection was kept after an earlier check.
    is_reused: bool,
    /// How far the check has progressed.
    stage: Stage,
    /// How many addresses were tried before this one.
    tried: usize,
    /// Why TLS failed, if it has.
    fault: Option<Fault>,
    /// Reads the response.
    talk: Talk,
    /// Reads the text of an agent.
    text: TextReader,
}

/// How the prober ends the connection of a check.
#[derive(Clone, Copy)]
enum Parting {
    /// The server is expected to close it.
    Await,
    /// It is closed.
    Close,
    /// It is reset, which leaves no connection behind, in this host or in the server's.
    Reset,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Default)]
enum Use {
    /// The place is free.
    #[default]
    None,
    /// The check of this target.
    Probe(SockId, usize),
    /// The next check of this target.
    Kept(SockId, usize),
    /// Its check has ended. The number of bytes that it may still receive.
    Leaving(SockId, usize),
}

impl Prober {
    /// A prober without targets, for a reactor with this many slots.
    pub(crate) fn new(roster: Arc<Roster>, seed: u64, slots: usize) -> Self {
        let (prng, bound) = (Prng::new(seed), KeptBound::new(slots));
        Self {
            roster,
            targets: Vec::new(),
            socks: Vec::new(),
            prng,
            bound,
            waiting: WaitingChecks::default(),
            may_begin: false,
            begun: (Moment::ZERO, 0),
            is_changed: false,
        }
    }

    /// Checks these targets from now on. A target that was checked before keeps its check in progress and the time of the next one.
    pub(crate) fn change<R: Reactor>(&mut self, reactor: &mut R, targets: Vec<Target>) {
        let earlier = core::mem::take(&mut self.targets);
        let count = earlier.len();
        let place = |target: &Target| (target.id, target.job.is_agent());
        let mut known: BTreeMap<(ServerId, bool), Watched> =
            earlier.into_iter().map(|watched| (place(&watched.target), watched)).collect();
        self.waiting.forget_numbers();
        for target in targets {
            let number = self.targets.len();
            let watched = match known.remove(&place(&target)) {
                Some(watched) if watched.target == target => watched,
                other => {
                    // Its settings have changed.
                    other.into_iter().for_each(|watched| self.give_up(reactor, watched));
                    let delay = health::first_delay(target.job.every(), self.prng.next_u64());
                    let at = reactor.now().after(delay);
                    Watched {
                        target,
                        at,
                        probe: None,
                        kept: None,
                        preferred: 0,
                        unkept_until: Moment::ZERO,
                        place: None,
                        is_counted: false,
                        pause: Span::ZERO,
                        refused: None,
                    }
                }
            };
            if let Some(place) = watched.place {
                self.waiting.renumber(place, number);
            }
            if let Some(probe) = &watched.probe {
                self.use_for(probe.sock, Use::Probe(probe.sock, number));
            }
            if let Some(kept) = &watched.kept {
                self.use_for(kept.sock, Use::Kept(kept.sock, number));
            }
            reactor.set_timer(number as u32, watched.at);
            self.targets.push(watched);
        }
        known.into_values().for_each(|watched| self.give_up(reactor, watched));
        for number in self.targets.len()..count {
            reactor.set_timer(number as u32, Moment::NEVER);
        }
        self.may_begin = true;
        self.begin_waiting(reactor);
    }

    /// Tells the workers if a server went up or down. Returns whether a worker is still to be notified.
    pub(crate) fn publish(&mut self) -> bool {
        if core::mem::take(&mut self.is_changed) {
            self.roster.publish();
        }
        self.roster.deliver()
    }

    /// Ends the check of a target that is not checked any more.
    fn give_up<R: Reactor>(&mut self, reactor: &mut R, watched: Watched) {
        if let Some(probe) = watched.probe {
            self.use_for(probe.sock, Use::None);
            reactor.abort(probe.sock);
        }
        if let Some(kept) = watched.kept {
            self.bound.count -= 1;
            self.leave(reactor, kept.sock, Parting::Close);
        }
    }

    /// Keeps no connection that uses TLS any longer, because its settings may have changed.
    pub(crate) fn drop_secured<R: Reactor>(&mut self, reactor: &mut R) {
        for number in 0..self.targets.len() {
            if self.targets[number].target.key().is_none() {
                continue;
            }
            self.drop_kept(reactor, number, Parting::Close);
            if let Some(probe) = &mut self.targets[number].probe {
                probe.keep_until = None;
            }
        }
        self.begin_waiting(reactor);
    }

    /// Notes the purpose of a connection.
    fn use_for(&mut self, sock: SockId, purpose: Use) {
        let at = sock.index as usize;
        if at >= self.socks.len() {
            self.socks.resize(at + 1, Use::None);
        }
        self.socks[at] = purpose;
    }

    /// The target whose check uses the connection.
    fn number_of(&self, sock: SockId) -> Option<usize> {
        match self.socks.get(sock.index as usize) {
            Some(Use::Probe(own, number)) if *own == sock => Some(*number),
            _ => None,
        }
    }

    /// The check that uses the connection.
    fn probe_of(&mut self, sock: SockId) -> Option<&mut Probe> {
        let number = self.number_of(sock)?;
        self.targets.get_mut(number)?.probe.as_deref_mut()
    }

    /// The target for whose next check the connection is kept.
    fn keeper_of(&self, sock: SockId) -> Option<usize> {
        match self.socks.get(sock.index as usize) {
            Some(Use::Kept(own, number)) if *own == sock => Some(*number),
            _ => None,
        }
    }

    /// Takes the kept connection of a target out of its place.
    fn take_kept(&mut self, number: usize) -> Option<Kept> {
        let kept = self.targets.get_mut(number)?.kept.take()?;
        self.bound.count -= 1;
        self.use_for(kept.sock, Use::None);
        Some(kept)
    }

    /// Closes the kept connection of a target, if there is one.
    fn drop_kept<R: Reactor>(&mut self, reactor: &mut R, number: usize, parting: Parting) {
        if let Some(kept) = self.take_kept(number) {
            self.leave(reactor, kept.sock, parting);
        }
    }

    /// The timer of a target is due.
    fn handle_timer<R: Reactor>(&mut self, reactor: &mut R, number: usize) {
        let Some(watched) = self.targets.get_mut(number) else { return };
        match watched.probe.as_ref().map(|probe| probe.stage) {
            None => match self.take_kept(number) {
                Some(kept) if kept.rest.is_none() && reactor.is_live(kept.sock) => {
                    self.begin_reused(reactor, number, &kept);
                }
                other => {
                    // The server still sends the last response.
                    other
                        .into_iter()
                        .for_each(|kept| self.leave(reactor, kept.sock, Parting::Reset));
                    match self.waiting.first().is_some_and(|first| first != number) {
                        true => self.postpone(reactor, number, None),
                        false => self.begin(reactor, number, (reactor.now(), 0)),
                    }
                }
            },
            Some(stage) => {
                if stage == Stage::Connect {
                    watched.preferred = watched.preferred.wrapping_add(1);
                }
                self.end(reactor, number, Outcome::TimedOut(stage));
            }
        }
    }

    /// Opens the connection of a check that began at `began`, after `tried` addresses were tried.
    fn begin<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: usize,
        (began, tried): (Moment, usize),
    ) {
        if tried == 0 {
            self.targets[number].refused = None;
        }
        let (sock, tried) = match self.open(reactor, (number, tried)) {
            Ok(begun) => begun,
            Err(Shortage::Ports) => return self.pause(reactor, number, began),
            Err(shortage) => return self.postpone(reactor, number, Some(shortage)),
        };
        let now = reactor.now();
        let Some(watched) = self.targets.get_mut(number) else { return };
        if let Some(place) = watched.place.take() {
            self.waiting.remove(place);
            self.may_begin = true;
        }
        let target = &watched.target;
        if !target.preface.is_empty() {
            reactor.send_bare(sock, &target.preface);
        }
        let is_trusted = now >= watched.unkept_until;
        let keep_alive = target.job.keep_alive().filter(|_| is_trusted && self.bound.has_room(now));
        let keep_until =
            keep_alive.map(|span| now.after(health::connection_span(span, self.prng.next_u64())));
        let mut first = Vec::new();
        let talk = match &target.job {
            Job::Agent(_) => Talk::default(),
            Job::Health(check) => {
                let random = [self.prng.next_u64(), self.prng.next_u64()];
                let (host, is_secured) = (&*target.host, check.is_secured);
                let start = TalkStart { host, is_secured, random, now };
                Talk::begin(&check.kind, &start, &mut first)
            }
        };
        if !first.is_empty() {
            reactor.send(sock, &first);
        }
        let (is_reused, stage, fault) = (false, Stage::Connect, None);
        let text = TextReader::default();
        let probe = Probe { sock, began, keep_until, is_reused, stage, tried, fault, talk, text };
        self.send_request(reactor, number, probe);
    }

    /// Opens a connection to a target, after `tried` addresses were tried. Returns also how many were tried before this one. Ports run
    /// out for one address only, so the next one is tried; for another resource, one connection whose check has ended gives up its own.
    fn open<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (number, mut tried): (usize, usize),
    ) -> Result<(SockId, usize), Shortage> {
        let mut may_reset = true;
        loop {
            match self.connect(reactor, (number, tried)) {
                Ok(sock) => return Ok((sock, tried)),
                Err(Shortage::Ports) if self.has_address_after(number, tried) => tried += 1,
                Err(Shortage::Ports) => return Err(Shortage::Ports),
                Err(_) if may_reset && self.drop_oldest_leaving(reactor) => may_reset = false,
                Err(shortage) => return Err(shortage),
            }
        }
    }

    /// Whether the target has another address after the one that follows `tried` others.
    fn has_address_after(&self, number: usize, tried: usize) -> bool {
        self.targets.get(number).is_some_and(|of| tried + 1 < of.target.addresses.len())
    }

    /// Begins a connect to a target, to the address after `tried` others.
    fn connect<R: Reactor>(
        &self,
        reactor: &mut R,
        (number, tried): (usize, usize),
    ) -> Result<SockId, Shortage> {
        let watched = &self.targets[number];
        let addresses = &watched.target.addresses;
        let address = &addresses[watched.preferred.wrapping_add(tried) % addresses.len()];
        match watched.target.key() {
            None => reactor.connect(address),
            Some(key) => reactor.connect_secured(address, key),
        }
    }

    /// Resets the connection whose check ended longest ago, because a check needs its slot. Returns false if there is none.
    fn drop_oldest_leaving<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        while let Some(sock) = self.waiting.take_leaving() {
            if is_leaving(&self.socks, sock) {
                self.use_for(sock, Use::None);
                reactor.abort(sock);
                return true;
            }
        }
        false
    }

    /// Begins checks that wait, in their order, until one lacks a resource again.
    fn begin_waiting<R: Reactor>(&mut self, reactor: &mut R) {
        let now = reactor.now();
        if self.begun.0 != now {
            self.begun = (now, 0);
        }
        while core::mem::take(&mut self.may_begin)
            && let Some(number) = self.waiting.first()
        {
            if self.begun.1 >= BEGUN_MAX {
                return self.try_first(reactor, now);
            }
            self.begun.1 += 1;
            self.begin(reactor, number, (now, 0));
        }
    }

    /// Lets the check that has waited longest be tried at `at`, unless it is tried earlier.
    fn try_first<R: Reactor>(&mut self, reactor: &mut R, at: Moment) {
        if let Some(number) = self.waiting.first()
            && let Some(watched) = self.targets.get_mut(number)
            && at < watched.at
        {
            watched.at = at;
            reactor.set_timer(number as u32, at);
        }
    }

    /// Begins a check over a connection that was kept.
    fn begin_reused<R: Reactor>(&mut self, reactor: &mut R, number: usize, kept: &Kept) {
        let began = reactor.now();
        let keeps = began < kept.until && self.bound.has_room(began);
        let (talk, text) = (Talk::default(), TextReader::default());
        let probe = Probe {
            sock: kept.sock,
            began,
            keep_until: keeps.then_some(kept.until),
            is_reused: true,
            stage: Stage::Response,
            tried: 0,
            fault: None,
            talk,
            text,
        };
        self.send_request(reactor, number, probe);
    }

    /// Sends the request of a check, and waits for its result.
    fn send_request<R: Reactor>(&mut self, reactor: &mut R, number: usize, probe: Probe) {
        let Some(watched) = self.targets.get_mut(number) else { return };
        let (sock, request) = (probe.sock, &watched.target.request);
        match probe.keep_until {
            Some(_) => probe::keeping(request).iter().for_each(|piece| reactor.send(sock, piece)),
            None if request.is_empty() => {}
            None => reactor.send(sock, request),
        }
        watched.at = probe.began.after(watched.target.job.timeout());
        reactor.set_timer(number as u32, watched.at);
        watched.probe = Some(Box::new(probe));
        self.use_for(sock, Use::Probe(sock, number));
    }

    /// Lets a check wait for its turn, because this process lacks a resource for it, or (`None`) others wait for one.
    fn postpone<R: Reactor>(&mut self, reactor: &mut R, number: usize, shortage: Option<Shortage>) {
        let now = reactor.now();
        self.bound.note_shortage(now);
        let Some(watched) = self.targets.get_mut(number) else { return };
        watched.probe = None;
        // The cause may be the route to one address (ENOBUFS), and this check must not hold up the others for ever.
        if let Some(place) = watched.place.filter(|_| shortage == Some(Shortage::Memory)) {
            self.waiting.remove(place);
            watched.place = None;
        }
        if watched.place.is_none() {
            watched.place = Some(self.waiting.add(number));
            let is_counted = core::mem::replace(&mut watched.is_counted, true);
            let count = self.roster.note_postponed(!is_counted);
            if self.waiting.is_to_be_logged(false, now) {
                log::warning(format_args!(
                    "health checks wait, because this process lacks descriptors or memory for their connections; checks that have \
                     waited so far: {count}; help: raise the limit of open files (RLIMIT_NOFILE) or `every`"
                ));
            }
        }
        watched.at = Moment::NEVER;
        reactor.set_timer(number as u32, Moment::NEVER);
        self.try_first(reactor, now.after(SHORTAGE_PAUSE));
    }

    /// Lets a check alone wait, because there is no local port or address for a connection to its server. If another address of
    /// the server cannot be reached, the check has failed.
    fn pause<R: Reactor>(&mut self, reactor: &mut R, number: usize, began: Moment) {
        let now = reactor.now();
        let Some(watched) = self.targets.get_mut(number) else { return };
        watched.probe = None;
        if let Some(place) = watched.place.take() {
            self.waiting.remove(place);
            self.may_begin = true;
        }
        if let Some(outcome) = watched.refused.take() {
            return self.end_unconnected(reactor, number, (began, outcome));
        }
        let is_counted = core::mem::replace(&mut watched.is_counted, true);
        let count = self.roster.note_postponed(!is_counted);
        if self.waiting.is_to_be_logged(true, now) {
            let address = &watched.target.addresses[0];
            log::warning(format_args!(
                "a health check waits, because this machine has no local port or address for a connection to {address}; checks that \
                 have waited so far: {count}; help: check net.ipv4.ip_local_port_range, and whether the machine has IPv6"
            ));
        }
        let longest = watched.target.job.every().max(SHORTAGE_PAUSE);
        watched.pause = watched.pause.saturating_mul(2).clamp(SHORTAGE_PAUSE, longest);
        watched.at = now.after(watched.pause);
        reactor.set_timer(number as u32, watched.at);
    }

    /// A check has failed, and has no connection.
    fn end_unconnected<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: usize,
        (began, outcome): (Moment, Outcome),
    ) {
        let Some(watched) = self.targets.get_mut(number) else { return };
        let (id, took) = (watched.target.id, reactor.now().since(began));
        let every = watched.target.job.every();
        let interval = match &watched.target.job {
            Job::Health(check) => self.roster.note(id, outcome, took).map(|(health, changed)| {
                self.is_changed |= changed;
                health.interval(check, self.prng.next_u64())
            }),
            Job::Agent(_) => {
                let result = Err(Failure::Connection(outcome));
                self.roster.note_agent(id, result, took).map(|changed| {
                    self.is_changed |= changed;
                    health::delay(every, self.prng.next_u64())
                })
            }
        };
        self.await_next(reactor, number, (began, interval));
    }

    /// A check has its result.
    fn end<R: Reactor>(&mut self, reactor: &mut R, number: usize, outcome: Outcome) {
        let Some(watched) = self.targets.get_mut(number) else { return };
        let Job::Health(check) = &watched.target.job else {
            return self.end_agent(reactor, number, Err(Failure::Connection(outcome)));
        };
        let Some(probe) = watched.probe.take() else { return };
        let is_timeout = matches!(outcome, Outcome::TimedOut(_));
        if probe.is_reused && !outcome.is_success() && !is_timeout {
            // The cause may be the connection, which the server may have closed: only a new one can fail a check at once.
            self.leave(reactor, probe.sock, Parting::Reset);
            return self.begin(reactor, number, (probe.began, 0));
        }
        if probe.is_reused
            && is_timeout
            && let Some(span) = watched.target.job.keep_alive()
        {
            watched.unkept_until = reactor.now().after(span * UNKEPT_SPANS);
        }
        let took = reactor.now().since(probe.began);
        let noted = self.roster.note(watched.target.id, outcome, took);
        let interval = noted.map(|(health, changed)| {
            self.is_changed |= changed;
            health.interval(check, self.prng.next_u64())
        });
        self.await_next(reactor, number, (probe.began, interval));
        let Probe { sock, keep_until, talk, .. } = *probe;
        let is_http = matches!(talk, Talk::Http(_));
        let rest = keep_until.and_then(|until| Some((until, talk.into_rest()?)));
        let parting = match (outcome, rest) {
            (Outcome::Passed(_), Some(rest)) if self.bound.has_room(reactor.now()) => {
                return self.keep(reactor, number, sock, rest);
            }
            (Outcome::Passed(_) | Outcome::Status(_) | Outcome::Body(_), Some(_))
            | (Outcome::Serving | Outcome::NotServing | Outcome::GrpcStatus(_), _)
            | (Outcome::Connected { is_secured: true }, _) => Parting::Close,
            // The request of a WebSocket handshake does not ask the server to close the connection after a refusal.
            (Outcome::Status(_), None) if !is_http => Parting::Close,
            (Outcome::Passed(_) | Outcome::Status(_) | Outcome::Body(_), None) => Parting::Await,
            (
                Outcome::Connected { is_secured: false }
                | Outcome::Malformed
                | Outcome::NotGrpc
                | Outcome::BadHandshake
                | Outcome::NotClosed
                | Outcome::Refused
                | Outcome::Unreachable
                | Outcome::Closed(_)
                | Outcome::TimedOut(_)
                | Outcome::Tls(_),
                _,
            ) => Parting::Reset,
        };
        self.leave(reactor, sock, parting);
    }

    /// Keeps the connection of a check that has passed, and reads the rest of its response.
    fn keep<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: usize,
        sock: SockId,
        (until, rest): (Moment, RestReader),
    ) {
        let rest = (!rest.is_done()).then(|| Box::new((rest, LEAVE_BYTES_MAX)));
        if rest.is_some() {
            reactor.set_deadline(sock, reactor.now().after(LEAVE_SPAN));
        }
        self.targets[number].kept = Some(Kept { sock, until, rest });
        self.bound.count += 1;
        self.use_for(sock, Use::Kept(sock, number));
    }

    /// Takes bytes from a kept connection: the rest of a response, or bytes that were not requested.
    fn handle_rest<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        (number, bytes): (usize, &[u8]),
    ) {
        let Some(kept) = &mut self.targets[number].kept else { return };
        let is_usable = kept.rest.as_deref_mut().is_some_and(|(reader, left)| {
            *left = left.saturating_sub(bytes.len());
            *left > 0 && reader.read(bytes)
        });
        if !is_usable {
            return self.drop_kept(reactor, number, Parting::Reset);
        }
        if kept.rest.as_deref().is_some_and(|(reader, _)| reader.is_done()) {
            kept.rest = None;
            reactor.set_deadline(sock, Moment::NEVER);
        }
    }

    /// An agent has stated something, or failed to.
    fn end_agent<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: usize,
        result: Result<Statement, Failure>,
    ) {
        let Some(watched) = self.targets.get_mut(number) else { return };
        let Some(probe) = watched.probe.take() else { return };
        let took = reactor.now().since(probe.began);
        let parting = match &result {
            Ok(_) | Err(Failure::UnknownWord) => Parting::Await,
            Err(Failure::TooLong | Failure::Connection(_)) => Parting::Reset,
        };
        let (id, every) = (watched.target.id, watched.target.job.every());
        let interval = self.roster.note_agent(id, result, took).map(|changed| {
            self.is_changed |= changed;
            health::delay(every, self.prng.next_u64())
        });
        self.await_next(reactor, number, (probe.began, interval));
        self.leave(reactor, probe.sock, parting);
    }

    /// Sets the timer of the next check after one that began at `began`. Without an interval, the server was removed, and a
    /// notification of that waits for the prober.
    fn await_next<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: usize,
        (began, interval): (Moment, Option<Span>),
    ) {
        let Some(watched) = self.targets.get_mut(number) else { return };
        (watched.is_counted, watched.pause) = (false, Span::ZERO);
        let next = |interval| began.after(interval).max(reactor.now());
        watched.at = interval.map_or(Moment::NEVER, next);
        reactor.set_timer(number as u32, watched.at);
    }

    /// Ends the connection of a check.
    fn leave<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, parting: Parting) {
        self.use_for(sock, Use::None);
        match parting {
            Parting::Await => {
                let socks = &self.socks;
                self.waiting.add_leaving(sock, |other| is_leaving(socks, other));
                self.use_for(sock, Use::Leaving(sock, LEAVE_BYTES_MAX));
                reactor.set_deadline(sock, reactor.now().after(LEAVE_SPAN));
            }
            Parting::Close => reactor.close_at_once(sock),
            Parting::Reset => reactor.abort(sock),
        }
        // The connection has freed a slot, or gives it up.
        self.may_begin = true;
    }

    /// A connection is open, with TLS if the check uses it.
    fn handle_connected<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(number) = self.number_of(sock) else { return };
        match &self.targets[number].target.job {
            Job::Health(check) if check.kind == CheckKind::Tcp => {
                let is_secured = check.is_secured;
                self.end(reactor, number, Outcome::Connected { is_secured });
            }
            Job::Health(_) | Job::Agent(_) => {
                if let Some(probe) = self.probe_of(sock) {
                    probe.stage = Stage::Response;
                }
            }
        }
    }

    fn handle_bytes<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, bytes: &[u8]) {
        let Some(number) = self.number_of(sock) else {
            return match self.keeper_of(sock) {
                Some(number) => self.handle_rest(reactor, sock, (number, bytes)),
                None => self.discard(reactor, sock, bytes.len()),
            };
        };
        let watched = &mut self.targets[number];
        let Some(probe) = &mut watched.probe else { return };
        match &watched.target.job {
            Job::Agent(_) => {
                if let Some(result) = probe.text.read(bytes) {
                    self.end_agent(reactor, number, result);
                }
            }
            Job::Health(check) => {
                let mut reply = Vec::new();
                let outcome = probe.talk.read(&check.kind, reactor.now(), bytes, &mut reply);
                if !reply.is_empty() {
                    reactor.send(sock, &reply);
                }
                if let Some(outcome) = outcome {
                    self.end(reactor, number, outcome);
                }
            }
        }
    }

    /// Discards bytes of a response whose check has its result.
    fn discard<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, count: usize) {
        let Some(Use::Leaving(own, left)) = self.socks.get_mut(sock.index as usize) else { return };
        if *own != sock {
            return;
        }
        match left.checked_sub(count) {
            Some(rest) => *left = rest,
            None => self.drop_leaving(reactor, sock, true),
        }
    }

    /// Closes a connection without a check.
    fn drop_leaving<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, resets: bool) {
        if let Some(number) = self.keeper_of(sock) {
            let parting = if resets { Parting::Reset } else { Parting::Close };
            return self.drop_kept(reactor, number, parting);
        }
        if let Some(Use::Leaving(own, _)) = self.socks.get(sock.index as usize)
            && *own == sock
        {
            self.use_for(sock, Use::None);
            match resets {
                true => reactor.abort(sock),
                false => reactor.close_at_once(sock),
            }
            self.may_begin = true;
        }
    }

    /// A connection has ended without this process's doing.
    fn handle_closed<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, reason: CloseReason) {
        let Some(number) = self.number_of(sock) else {
            if let Some(number) = self.keeper_of(sock) {
                self.take_kept(number);
            }
            if let Some(place) = self.socks.get_mut(sock.index as usize)
                && matches!(place, Use::Leaving(own, _) if *own == sock)
            {
                *place = Use::None;
            }
            self.may_begin = true;
            return;
        };
        let Some(probe) = &self.targets[number].probe else { return };
        let (began, tried, stage) = (probe.began, probe.tried, probe.stage);
        let outcome = match (probe.fault, reason) {
            (Some(fault), _) => Outcome::Tls(fault),
            (None, CloseReason::ConnectRefused) => Outcome::Refused,
            (None, CloseReason::ConnectUnreachable) => Outcome::Unreachable,
            (None, CloseReason::ConnectShortage(shortage)) => {
                return self.handle_late_shortage(reactor, (number, sock), shortage);
            }
            (None, CloseReason::Reset | CloseReason::Ended | CloseReason::Unsent) => {
                self.closed_outcome(number, stage)
            }
        };
        let is_connect = matches!(outcome, Outcome::Refused | Outcome::Unreachable);
        if is_connect && self.has_address_after(number, tried) {
            self.targets[number].probe = None;
            self.targets[number].refused = Some(outcome);
            self.use_for(sock, Use::None);
            return self.begin(reactor, number, (began, tried + 1));
        }
        self.end(reactor, number, outcome);
    }

    /// A connect that was begun lacks a resource of this process.
    fn handle_late_shortage<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (number, sock): (usize, SockId),
        shortage: Shortage,
    ) {
        self.use_for(sock, Use::None);
        let Some(probe) = self.targets[number].probe.take() else { return };
        match shortage {
            Shortage::Ports if self.has_address_after(number, probe.tried) => {
                self.begin(reactor, number, (probe.began, probe.tried + 1));
            }
            Shortage::Ports => {
                self.pause(reactor, number, probe.began);
                self.may_begin = true;
            }
            _ => self.postpone(reactor, number, Some(shortage)),
        }
    }

    /// The server has ended its direction.
    fn handle_finish<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        match self.number_of(sock) {
            None => self.drop_leaving(reactor, sock, false),
            Some(number) => {
                let stage = self.probe_of(sock).map_or(Stage::Connect, |probe| probe.stage);
                let outcome = self.closed_outcome(number, stage);
                self.end(reactor, number, outcome);
            }
        }
    }

    /// The result of a check whose connection was closed at this stage.
    fn closed_outcome(&self, number: usize, stage: Stage) -> Outcome {
        let watched = self.targets.get(number);
        match watched.and_then(|watched| watched.probe.as_ref()) {
            Some(probe) if stage == Stage::Response => probe.talk.ended(),
            _ => Outcome::Closed(stage),
        }
    }
}

/// Whether the check of a connection has ended, and the connection has not.
fn is_leaving(socks: &[Use], sock: SockId) -> bool {
    let purpose = socks.get(sock.index as usize);
    matches!(purpose, Some(Use::Leaving(own, _)) if *own == sock)
}

impl LayerHandler for Prober {
    fn handle<R: Reactor>(&mut self, reactor: &mut R, completion: Completion<'_>) {
        match completion {
            Completion::Timer { timer } => self.handle_timer(reactor, timer as usize),
            Completion::Connected { sock } => self.handle_connected(reactor, sock),
            Completion::Received { sock, bytes } => self.handle_bytes(reactor, sock, bytes),
            Completion::Finished { sock } => self.handle_finish(reactor, sock),
            Completion::Closed { sock, reason } => self.handle_closed(reactor, sock, reason),
            Completion::Due { sock } => self.drop_leaving(reactor, sock, true),
            // The prober never pauses receiving, relays nothing, waits for no output, listens on no address and has no datagrams.
            Completion::Relayed { .. }
            | Completion::Datagram { .. }
            | Completion::DatagramFailed { .. }
            | Completion::HungUp { .. }
            | Completion::Drained { .. }
            | Completion::Woken
            | Completion::Accepted { .. }
            | Completion::AcceptPaused { .. } => {}
        }
        self.begin_waiting(reactor);
    }

    fn handle_reached(&mut self, sock: SockId, _now: Moment) {
        if let Some(probe) = self.probe_of(sock) {
            probe.stage = Stage::Handshake;
        }
    }

    fn handle_fault(&mut self, sock: SockId, fault: Fault) {
        if let Some(probe) = self.probe_of(sock) {
            probe.fault = Some(fault);
        }
    }
}
