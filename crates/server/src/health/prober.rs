//! Checks servers: opens connections, sends the requests of checks, and reads the responses, all on one reactor.
//! In: targets, completions. Out: results for the roster.
//! Never: runs on a worker; lets a server hold a check beyond its timeout; counts a shortage of this process as a failure
//! of a server.
//! Limits: one check of a server at a time; `SHORTAGE_PAUSE` before a check that lacked a descriptor or memory is tried
//! again; a connection whose check has ended is kept for the server's FIN for up to `LEAVE_SPAN` and `LEAVE_BYTES_MAX`
//! bytes of the rest of its response.
//! Invariant: timer `n` belongs to target `n`: it is the time of the next check while the target waits, and the timeout
//! of the check while one is under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_base::{Moment, Prng, Span};
use tidegate_config::model::CheckKind;
use tidegate_gate::health::{self, Outcome, Stage};
use tidegate_gate::probe::ResponseReader;
use tidegate_reactor::{CloseReason, Completion, Reactor, SockId};
use tidegate_secure::LayerHandler;
use tidegate_wire::tls::Fault;

use super::target::Target;
use super::{Roster, ServerId};

/// How long a check that lacked a resource of this process waits.
const SHORTAGE_PAUSE: Span = Span::from_millis(100);
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
    /// A server went up or down since the workers were told.
    is_changed: bool,
}

/// A target and the state of its check.
struct Watched {
    /// What is checked.
    target: Target,
    /// When its timer is due.
    at: Moment,
    /// The check under way; `None`: it waits for the next one.
    probe: Option<Probe>,
    /// The address that is tried first, modulo their number.
    preferred: usize,
}

/// A check under way.
struct Probe {
    /// The connection.
    sock: SockId,
    /// When the check began.
    began: Moment,
    /// How far the check has come.
    stage: Stage,
    /// How many addresses were tried before this one.
    tried: usize,
    /// Why TLS failed, if it has.
    fault: Option<Fault>,
    /// Reads the response.
    reader: ResponseReader,
}

/// What a connection is for.
#[derive(Clone, Copy, Default)]
enum Use {
    /// The place is free.
    #[default]
    None,
    /// The check of this target.
    Probe(SockId, usize),
    /// Its check has ended. The number of bytes that it may still receive.
    Leaving(SockId, usize),
}

impl Prober {
    /// A prober without targets.
    pub(crate) fn new(roster: Arc<Roster>, seed: u64) -> Self {
        let prng = Prng::new(seed);
        Self { roster, targets: Vec::new(), socks: Vec::new(), prng, is_changed: false }
    }

    /// Checks these targets from now on. A target that stays keeps its check under way and the time of the next one.
    pub(crate) fn change<R: Reactor>(&mut self, reactor: &mut R, targets: Vec<Target>) {
        let earlier = core::mem::take(&mut self.targets);
        let count = earlier.len();
        let mut known: BTreeMap<ServerId, Watched> =
            earlier.into_iter().map(|watched| (watched.target.id, watched)).collect();
        for target in targets {
            let number = self.targets.len();
            let watched = match known.remove(&target.id) {
                Some(watched) if watched.target == target => watched,
                other => {
                    // Its settings have changed.
                    other.into_iter().for_each(|watched| self.give_up(reactor, watched));
                    let delay = health::first_delay(&target.check, self.prng.next_u64());
                    let at = reactor.now().after(delay);
                    Watched { target, at, probe: None, preferred: 0 }
                }
            };
            if let Some(probe) = &watched.probe {
                self.use_for(probe.sock, Use::Probe(probe.sock, number));
            }
            reactor.set_timer(number as u32, watched.at);
            self.targets.push(watched);
        }
        known.into_values().for_each(|watched| self.give_up(reactor, watched));
        for number in self.targets.len()..count {
            reactor.set_timer(number as u32, Moment::NEVER);
        }
    }

    /// Tells the workers if a server went up or down. Returns whether a worker is still to be told.
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
    }

    /// Notes what a connection is for.
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
        self.targets.get_mut(number)?.probe.as_mut()
    }

    /// The timer of a target is due.
    fn handle_timer<R: Reactor>(&mut self, reactor: &mut R, number: usize) {
        let Some(watched) = self.targets.get_mut(number) else { return };
        match watched.probe.as_ref().map(|probe| probe.stage) {
            None => self.begin(reactor, number, (reactor.now(), 0)),
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
        let Some(watched) = self.targets.get_mut(number) else { return };
        let target = &watched.target;
        let addresses = &target.addresses;
        let address = &addresses[watched.preferred.wrapping_add(tried) % addresses.len()];
        let begun = match target.key() {
            None => reactor.connect(address),
            Some(key) => reactor.connect_secured(address, key),
        };
        let Ok(sock) = begun else { return self.postpone(reactor, number) };
        if !target.preface.is_empty() {
            reactor.send_bare(sock, &target.preface);
        }
        if !target.request.is_empty() {
            reactor.send(sock, &target.request);
        }
        watched.at = began.after(target.check.timeout);
        reactor.set_timer(number as u32, watched.at);
        let (stage, fault, reader) = (Stage::Connect, None, ResponseReader::default());
        watched.probe = Some(Probe { sock, began, stage, tried, fault, reader });
        self.use_for(sock, Use::Probe(sock, number));
    }

    /// Tries a check again later, because this process lacks a resource for it.
    fn postpone<R: Reactor>(&mut self, reactor: &mut R, number: usize) {
        let Some(watched) = self.targets.get_mut(number) else { return };
        watched.probe = None;
        watched.at = reactor.now().after(SHORTAGE_PAUSE);
        reactor.set_timer(number as u32, watched.at);
    }

    /// A check has its result.
    fn end<R: Reactor>(&mut self, reactor: &mut R, number: usize, outcome: Outcome) {
        let Some(watched) = self.targets.get_mut(number) else { return };
        let Some(probe) = watched.probe.take() else { return };
        let took = reactor.now().since(probe.began);
        let target = &watched.target;
        let noted = self.roster.note(target.id, outcome, took);
        watched.at = match noted {
            Some((health, changed)) => {
                self.is_changed |= changed;
                let interval = health.interval(&target.check, self.prng.next_u64());
                probe.began.after(interval).max(reactor.now())
            }
            // The server was removed, which the prober learns next.
            None => Moment::NEVER,
        };
        reactor.set_timer(number as u32, watched.at);
        self.leave(reactor, probe.sock, outcome);
    }

    /// Ends the connection of a check.
    fn leave<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, outcome: Outcome) {
        self.use_for(sock, Use::None);
        match outcome {
            Outcome::Passed(_) | Outcome::Status(_) => {
                self.use_for(sock, Use::Leaving(sock, LEAVE_BYTES_MAX));
                reactor.set_deadline(sock, reactor.now().after(LEAVE_SPAN));
            }
            Outcome::Connected { is_secured: true } => reactor.close_at_once(sock),
            // A reset leaves no connection behind, in this host or in the server's.
            _ => reactor.abort(sock),
        }
    }

    /// A connection is open, with TLS if the check uses it.
    fn handle_connected<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(number) = self.number_of(sock) else { return };
        let check = &self.targets[number].target.check;
        match check.kind {
            CheckKind::Tcp => {
                let is_secured = check.is_secured;
                self.end(reactor, number, Outcome::Connected { is_secured });
            }
            CheckKind::Http(_) => {
                if let Some(probe) = self.probe_of(sock) {
                    probe.stage = Stage::Response;
                }
            }
        }
    }

    fn handle_bytes<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, bytes: &[u8]) {
        let Some(number) = self.number_of(sock) else {
            return self.discard(reactor, sock, bytes.len());
        };
        let watched = &mut self.targets[number];
        let Some(probe) = &mut watched.probe else { return };
        let outcome = match &watched.target.check.kind {
            // Such a check ends when the connection is open.
            CheckKind::Tcp => None,
            CheckKind::Http(http) => probe.reader.read(http, bytes),
        };
        if let Some(outcome) = outcome {
            self.end(reactor, number, outcome);
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

    /// Closes a connection whose check has its result.
    fn drop_leaving<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, resets: bool) {
        if let Some(Use::Leaving(own, _)) = self.socks.get(sock.index as usize)
            && *own == sock
        {
            self.use_for(sock, Use::None);
            match resets {
                true => reactor.abort(sock),
                false => reactor.close_at_once(sock),
            }
        }
    }

    /// A connection has ended without this process's doing.
    fn handle_closed<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, reason: CloseReason) {
        let Some(number) = self.number_of(sock) else {
            if let Some(place) = self.socks.get_mut(sock.index as usize)
                && matches!(place, Use::Leaving(own, _) if *own == sock)
            {
                *place = Use::None;
            }
            return;
        };
        let watched = &mut self.targets[number];
        let Some(probe) = &watched.probe else { return };
        let (began, tried, stage) = (probe.began, probe.tried, probe.stage);
        let outcome = match (probe.fault, reason) {
            (Some(fault), _) => Outcome::Tls(fault),
            (None, CloseReason::ConnectRefused) => Outcome::Refused,
            (None, CloseReason::ConnectUnreachable) => Outcome::Unreachable,
            (None, CloseReason::ConnectShortage(_)) => {
                self.use_for(sock, Use::None);
                return self.postpone(reactor, number);
            }
            (None, CloseReason::Reset | CloseReason::Ended | CloseReason::Unsent) => {
                Outcome::Closed(stage)
            }
        };
        let is_connect = matches!(outcome, Outcome::Refused | Outcome::Unreachable);
        if is_connect && tried + 1 < watched.target.addresses.len() {
            watched.probe = None;
            self.use_for(sock, Use::None);
            return self.begin(reactor, number, (began, tried + 1));
        }
        self.end(reactor, number, outcome);
    }

    /// The server has ended its direction.
    fn handle_finish<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        match self.number_of(sock) {
            None => self.drop_leaving(reactor, sock, false),
            Some(number) => {
                let stage = self.probe_of(sock).map_or(Stage::Connect, |probe| probe.stage);
                self.end(reactor, number, Outcome::Closed(stage));
            }
        }
    }
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
            // The prober never pauses receiving, waits for no output and listens on no address.
            Completion::HungUp { .. }
            | Completion::Drained { .. }
            | Completion::Woken
            | Completion::Accepted { .. }
            | Completion::AcceptPaused { .. } => {}
        }
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
