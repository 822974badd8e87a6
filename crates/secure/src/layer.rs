//! TLS between the reactor and the worker: received records become plain bytes, output becomes records.
//! In: completions of the reactor, operations of the worker. Out: the same, with plain bytes above and
//! records below. Never: seen by a worker without TLS, which runs on the bare reactor.
//! Limits: `HANDSHAKES_PER_TURN_MAX`; a handshake must end within its listener's timeout.
//! Invariant: a slot's connection is that of the reactor's id; when it is gone, so is the session. What the
//! worker says, or ends, before a handshake is done goes out after it; what a peer says comes after it.
//! Cost: a plain connection under the layer pays 240 instructions an answered request, 590 a proxied one
//! (callgrind, opt-level 3 without LTO, simulated sockets).

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_base::limits::{OUTPUT_HIGH_BYTES, POOLED_BUFFERS_MAX, SMALL_BUFFER_BYTES};
use tidegate_base::{Address, Moment, Span};
use tidegate_reactor::{
    CloseReason, Completion, Driver, Handler, LeavingListeners, ListenError, ListenOptions,
    ListenerId, Peer, Reactor, Shortage, SockId,
};
use tidegate_wire::http1::DateField;
use tidegate_wire::tls::{Acceptor, Connector, Ending, Fault, Progress, TlsClock, TlsSession};

use crate::user::{Event, Ledger, Refused, User};

/// Steps of handshakes that a worker makes in one turn before it serves who is through with theirs. One
/// costs up to a millisecond (RSA), so established connections wait a few at most.
const HANDSHAKES_PER_TURN_MAX: u32 = 8;
/// Plain bytes that are sealed without being gathered first.
const GATHERED_BYTES_MAX: usize = 4 * SMALL_BUFFER_BYTES;
/// Faults towards servers are logged at most once in this time, and so are, by themselves, refused clients:
/// anybody can be refused, and must not hide what is wrong with a server.
const LOG_EVERY: Span = Span::from_secs(1);

/// Answer to plain HTTP on a port for TLS, up to its date and from there on.
const PLAIN_HTTP_ANSWER: [&[u8]; 2] = [
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 56\r\nDate: ",
    b"\r\nConnection: close\r\n\r\nthis port speaks TLS: write https:// instead of http://\n",
];

/// What a worker's TLS is made of; cheap to clone, immutable.
#[derive(Clone, Debug, Default)]
pub struct TlsPlan {
    /// By listener: `None` speaks plain HTTP.
    pub listeners: Vec<Option<ListenerPlan>>,
    /// By pool: `None` is spoken to in plain HTTP.
    pub pools: Vec<Option<PoolPlan>>,
    /// The clock that certificates are judged by.
    pub clock: TlsClock,
}

/// TLS of one listener.
#[derive(Clone, Debug)]
pub struct ListenerPlan {
    /// Begins its sessions.
    pub acceptor: Acceptor,
    /// From accept to the end of the handshake.
    pub handshake_timeout: Span,
}

/// TLS of one pool.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// The pool's name, for the log.
    pub name: String,
    /// Begins sessions with its servers.
    pub connector: Connector,
    /// By index in the pool.
    pub servers: Vec<ServerPlan>,
}

/// TLS of one server.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// The name that is asked for and verified.
    pub name: String,
    /// Where it is, for the log.
    pub place: String,
}

impl TlsPlan {
    /// Whether anything of it is TLS at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listeners.iter().all(Option::is_none) && self.pools.iter().all(Option::is_none)
    }
}

/// The number by which a connection to that server is secured.
#[must_use]
pub fn profile(pool: u16, server: usize) -> u32 {
    u32::from(pool) << 16 | server as u32
}

/// One worker's sessions.
pub struct TlsLayer<L> {
    plan: TlsPlan,
    listeners: Vec<ListenerId>,
    ledger: L,
    slots: Vec<Slot>,
    /// Connections with plain output to be sealed.
    dirty: Vec<SockId>,
    /// Connections whose end is to be handed over now that they receive again.
    ended: Vec<SockId>,
    /// Connections whose output went before it could be said that it was stuck.
    drained: Vec<SockId>,
    /// Handshakes that wait for the next turn.
    waiting: VecDeque<SockId>,
    handshakes_left: u32,
    spare: Vec<Vec<u8>>,
    /// Room for the plain bytes of one read.
    plain: Vec<u8>,
    logged: Option<Moment>,
    refusals: RefusalLog,
}

/// When a refused client was logged last, and how many were not since.
#[derive(Default)]
struct RefusalLog {
    logged: Option<Moment>,
    left_out: u64,
}

impl RefusalLog {
    /// Whether one may be logged now, and how many were not before it.
    fn admit(&mut self, now: Moment) -> Option<u64> {
        if self.logged.is_some_and(|at| now.since(at) < LOG_EVERY) {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.logged = Some(now);
        Some(core::mem::take(&mut self.left_out))
    }
}

#[derive(Default)]
struct Slot {
    generation: u32,
    conn: Option<Box<Conn>>,
}

struct Conn {
    session: TlsSession,
    /// Plain output that is not sealed yet. Without memory between turns.
    output: Vec<u8>,
    /// Received bytes of a handshake that waits for its turn.
    input: Vec<u8>,
    /// How long the deadline leaves that runs once the handshake is done, from then on.
    deadline_span: Span,
    profile: Option<u32>,
    /// The PROXY header comes before the handshake; what came of it is in `input`.
    expects_preface: bool,
    receiving: bool,
    end: End,
    /// Output was found stuck before it could be sealed.
    owes_drained: bool,
    waits_for_turn: bool,
    write_ended: bool,
}

/// What the worker knows of the end of a peer's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// It has come, but the worker does not receive.
    Held,
    Said,
}

impl<L: Ledger> TlsLayer<L> {
    /// The layer of one worker; `listeners` are its listeners in the configuration's order.
    #[must_use]
    pub fn new(plan: &TlsPlan, listeners: Vec<ListenerId>, ledger: L) -> Self {
        let mut layer = Self {
            plan: TlsPlan::default(),
            listeners,
            ledger,
            slots: Vec::new(),
            dirty: Vec::new(),
            ended: Vec::new(),
            drained: Vec::new(),
            waiting: VecDeque::new(),
            handshakes_left: 0,
            spare: Vec::new(),
            plain: Vec::new(),
            logged: None,
            refusals: RefusalLog::default(),
        };
        layer.replace_plan(plan);
        layer
    }

    /// Begins sessions by `plan` from now on; those that exist go on as they are.
    pub fn replace_plan(&mut self, plan: &TlsPlan) {
        self.plan = plan.clone();
        for pool in self.plan.pools.iter_mut().flatten() {
            pool.connector = pool.connector.with_own_sessions();
        }
        for listener in self.plan.listeners.iter_mut().flatten() {
            listener.acceptor = listener.acceptor.with_own_refusals();
        }
    }

    /// How many sessions there are, for tests.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.conn.is_some()).count()
    }

    fn conn(&mut self, sock: SockId) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(sock.index as usize)?;
        if slot.generation == sock.generation { slot.conn.as_deref_mut() } else { None }
    }

    fn is_secure(&self, sock: SockId) -> bool {
        let slot = self.slots.get(sock.index as usize);
        slot.is_some_and(|slot| slot.generation == sock.generation && slot.conn.is_some())
    }

    fn insert(&mut self, sock: SockId, session: TlsSession, profile: Option<u32>) {
        let index = sock.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let conn = Conn {
            session,
            output: Vec::new(),
            input: Vec::new(),
            deadline_span: Span::MAX,
            profile,
            expects_preface: false,
            receiving: true,
            end: End::NotYet,
            owes_drained: false,
            waits_for_turn: false,
            write_ended: false,
        };
        self.slots[index] = Slot { generation: sock.generation, conn: Some(Box::new(conn)) };
        self.ledger.count(Event::SessionBegun);
    }

    fn remove(&mut self, sock: SockId) -> Option<Box<Conn>> {
        let slot = self.slots.get_mut(sock.index as usize)?;
        if slot.generation != sock.generation {
            return None;
        }
        let mut conn = slot.conn.take()?;
        self.ledger.count(Event::SessionGone);
        let output = core::mem::take(&mut conn.output);
        self.put_spare(output);
        Some(conn)
    }

    fn put_spare(&mut self, mut buffer: Vec<u8>) {
        let kept = 1..=GATHERED_BYTES_MAX;
        if kept.contains(&buffer.capacity()) && self.spare.len() < POOLED_BUFFERS_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    fn acceptor(&self, listener: ListenerId) -> Option<&ListenerPlan> {
        let index = self.listeners.iter().position(|id| *id == listener)?;
        self.plan.listeners.get(index)?.as_ref()
    }

    fn connector(&self, profile: u32) -> Option<(&PoolPlan, &ServerPlan)> {
        let pool = self.plan.pools.get((profile >> 16) as usize)?.as_ref()?;
        Some((pool, pool.servers.get((profile & 0xffff) as usize)?))
    }

    /// Seals what is gathered for `sock` into its output.
    fn seal<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let Some(conn) = self.conn(sock) else { return };
        if conn.output.is_empty() || !conn.session.is_established() {
            return;
        }
        let plain = core::mem::take(&mut conn.output);
        if let Some(out) = inner.output(sock)
            && conn.session.seal(&plain, out).is_err()
        {
            // Only used-up keys are left as a reason, and renewing them is the library's work.
            self.ledger.count(Event::Bug);
        }
        self.put_spare(plain);
    }

    /// Says that this side sends no more, where its user has ended that; in the middle of a handshake there
    /// is still more to send than the user knows.
    fn end_writing<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let Some(conn) = self.conn(sock) else { return };
        if conn.write_ended && conn.session.is_established() {
            if let Some(out) = inner.output(sock) {
                conn.session.close_notify(out);
            }
            inner.finish(sock);
        }
    }

    fn log(&mut self, now: Moment, profile: u32, fault: Fault) {
        let due = self.logged.is_none_or(|at| now.since(at) >= LOG_EVERY);
        if let Some((pool, server)) = self.connector(profile)
            && due
        {
            let (pool, place) = (&pool.name, &server.place);
            self.ledger.log(format_args!("pool {pool}: server {place}: {}", fault.text()));
            self.logged = Some(now);
        }
    }
}

/// A client's address for the log.
struct Place(Peer);

impl core::fmt::Display for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Peer::Tcp(address) => write!(f, "client {address}"),
            Peer::Local => f.write_str("a client of the unix socket"),
        }
    }
}

/// What the worker sees instead of the reactor: the same operations, with plain bytes.
pub struct SecureView<'a, R, L> {
    inner: &'a mut R,
    layer: &'a mut TlsLayer<L>,
}

impl<R: Reactor, L: Ledger> Reactor for SecureView<'_, R, L> {
    fn now(&self) -> Moment {
        self.inner.now()
    }

    fn unix_seconds(&self) -> u64 {
        self.inner.unix_seconds()
    }

    fn read_clock(&self) -> Moment {
        self.inner.read_clock()
    }

    fn listen(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> Result<ListenerId, ListenError> {
        self.inner.listen(address, options)
    }

    fn listener_address(&self, listener: ListenerId) -> Option<Address> {
        self.inner.listener_address(listener)
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        self.inner.stop_listening(listener);
    }

    fn steer_away(&mut self, listener: ListenerId, own: &Arc<LeavingListeners>) {
        self.inner.steer_away(listener, own);
    }

    fn listener_count(&self) -> usize {
        self.inner.listener_count()
    }

    fn connect(&mut self, address: &Address) -> Result<SockId, Shortage> {
        self.inner.connect(address)
    }

    fn connect_from(
        &mut self,
        address: &Address,
        source: Option<IpAddr>,
    ) -> Result<SockId, Shortage> {
        self.inner.connect_from(address, source)
    }

    fn connect_secured_from(
        &mut self,
        address: &Address,
        source: Option<IpAddr>,
        number: u32,
    ) -> Result<SockId, Shortage> {
        // A name that is none was refused at start.
        let Some(Ok(session)) =
            self.layer.connector(number).map(|(pool, server)| pool.connector.connect(&server.name))
        else {
            self.layer.ledger.count(Event::Bug);
            return Err(Shortage::Slots);
        };
        let sock = self.inner.connect_from(address, source)?;
        self.layer.insert(sock, session, Some(number));
        Ok(sock)
    }

    fn output(&mut self, sock: SockId) -> Option<&mut Vec<u8>> {
        if !self.layer.is_secure(sock) {
            return self.inner.output(sock);
        }
        let TlsLayer { slots, dirty, spare, .. } = &mut *self.layer;
        let conn = slots.get_mut(sock.index as usize)?.conn.as_deref_mut()?;
        if conn.write_ended {
            return None;
        }
        if conn.output.is_empty() {
            dirty.push(sock);
            if conn.output.capacity() == 0 {
                conn.output = spare.pop().unwrap_or_else(|| Vec::with_capacity(SMALL_BUFFER_BYTES));
            }
        }
        Some(&mut conn.output)
    }

    fn send(&mut self, sock: SockId, bytes: &[u8]) {
        if !self.layer.is_secure(sock) {
            return self.inner.send(sock, bytes);
        }
        let Some(conn) = self.layer.conn(sock) else { return };
        let gather =
            !conn.session.is_established() || conn.output.len() + bytes.len() <= GATHERED_BYTES_MAX;
        if gather || conn.write_ended {
            if let Some(out) = self.output(sock) {
                out.extend_from_slice(bytes);
            }
            return;
        }
        self.layer.seal(self.inner, sock);
        if let Some(conn) = self.layer.conn(sock)
            && let Some(out) = self.inner.output(sock)
            && conn.session.seal(bytes, out).is_err()
        {
            self.layer.ledger.count(Event::Bug);
        }
        if self.inner.output_pending(sock) >= OUTPUT_HIGH_BYTES {
            self.inner.flush(sock);
        }
    }

    fn flush(&mut self, sock: SockId) {
        self.layer.seal(self.inner, sock);
        if let Some(conn) = self.layer.conn(sock)
            && !conn.output.is_empty()
        {
            conn.owes_drained = true;
        }
        self.inner.flush(sock);
    }

    fn output_pending(&self, sock: SockId) -> usize {
        let slot = self.layer.slots.get(sock.index as usize);
        let conn = slot.filter(|slot| slot.generation == sock.generation);
        let unsealed = conn.and_then(|slot| slot.conn.as_ref()).map_or(0, |conn| conn.output.len());
        self.inner.output_pending(sock) + unsealed
    }

    fn set_receiving(&mut self, sock: SockId, receiving: bool) {
        let Some(conn) = self.layer.conn(sock) else {
            return self.inner.set_receiving(sock, receiving);
        };
        conn.receiving = receiving;
        if !conn.session.is_established() {
            return;
        }
        if receiving && conn.end == End::Held {
            conn.end = End::Said;
            self.layer.ended.push(sock);
        }
        self.inner.set_receiving(sock, receiving);
    }

    fn finish(&mut self, sock: SockId) {
        self.layer.seal(self.inner, sock);
        match self.layer.conn(sock) {
            None => self.inner.finish(sock),
            Some(conn) => {
                conn.write_ended = true;
                self.layer.end_writing(self.inner, sock);
            }
        }
    }

    fn close(&mut self, sock: SockId) {
        self.layer.seal(self.inner, sock);
        if let Some(mut conn) = self.layer.remove(sock)
            && let Some(out) = self.inner.output(sock)
        {
            conn.session.close_notify(out);
        }
        self.inner.close(sock);
    }

    fn abort(&mut self, sock: SockId) {
        self.layer.remove(sock);
        self.inner.abort(sock);
    }

    fn set_deadline(&mut self, sock: SockId, at: Moment) {
        let now = self.inner.now();
        match self.layer.conn(sock) {
            // Until then the handshake's own deadline runs.
            Some(conn) if conn.profile.is_none() && !conn.session.is_established() => {
                conn.deadline_span = if at == Moment::NEVER { Span::MAX } else { at.since(now) };
            }
            _ => self.inner.set_deadline(sock, at),
        }
    }

    fn set_timer(&mut self, timer: u32, at: Moment) {
        self.inner.set_timer(timer, at);
    }

    fn sock_count(&self) -> usize {
        self.inner.sock_count()
    }

    fn local_address(&self, sock: SockId) -> Option<SocketAddr> {
        self.inner.local_address(sock)
    }

    fn send_bare(&mut self, sock: SockId, bytes: &[u8]) {
        self.inner.send_bare(sock, bytes);
    }

    fn is_live(&self, sock: SockId) -> bool {
        self.inner.is_live(sock)
    }
}

impl<L: Ledger> TlsLayer<L> {
    /// One turn of the reactor with `worker` above this layer.
    pub fn turn<R: Driver, U: User>(&mut self, reactor: &mut R, worker: &mut U, wait_max: Span) {
        self.plan.clock.set(reactor.unix_seconds());
        self.handshakes_left = HANDSHAKES_PER_TURN_MAX;
        let mut corridor = Corridor { layer: self, worker };
        corridor.continue_handshakes(reactor);
        let busy = !corridor.layer.waiting.is_empty();
        let wait = if busy { Span::ZERO } else { corridor.worker.wait(wait_max) };
        reactor.turn(&mut corridor, wait);
        corridor.with_worker(reactor, |worker, view| worker.continue_after_turn(view));
    }

    /// Lets `act` use the worker's operations between two turns (to begin a stop, for one).
    pub fn between_turns<R: Reactor, U: User, T>(
        &mut self,
        reactor: &mut R,
        worker: &mut U,
        act: impl FnOnce(&mut U, &mut SecureView<'_, R, L>) -> T,
    ) -> T {
        Corridor { layer: self, worker }.with_worker(reactor, act)
    }
}

/// The layer and the worker above it, for the time of a turn.
struct Corridor<'a, L, U> {
    layer: &'a mut TlsLayer<L>,
    worker: &'a mut U,
}

impl<R: Reactor, L: Ledger, U: User> Handler<R> for Corridor<'_, L, U> {
    fn handle(&mut self, inner: &mut R, completion: Completion<'_>) {
        match completion {
            Completion::Accepted { listener, sock, peer } => {
                self.accept(inner, listener, sock, peer);
            }
            Completion::Received { sock, bytes } if self.layer.is_secure(sock) => {
                self.receive(inner, sock, bytes);
            }
            Completion::Connected { sock } if self.layer.is_secure(sock) => {
                self.worker.handle_reached(sock, inner.read_clock());
                // The first flight; the worker learns that it is connected when the handshake is done.
                self.process(inner, sock, &mut []);
            }
            Completion::Finished { sock } if self.layer.is_secure(sock) => {
                self.handle_finish(inner, sock);
            }
            Completion::Drained { sock } if self.is_handshaking(sock) => {}
            Completion::Due { sock } if self.is_accepting(sock) => {
                self.layer.ledger.count(Event::HandshakeTimedOut);
                self.give_up(inner, sock, CloseReason::Reset);
            }
            Completion::Closed { sock, reason } => {
                self.layer.remove(sock);
                self.pass(inner, Completion::Closed { sock, reason });
            }
            completion => self.pass(inner, completion),
        }
        self.settle(inner);
    }
}

impl<L: Ledger, U: User> Corridor<'_, L, U> {
    /// Hands a completion to the worker.
    fn pass<R: Reactor>(&mut self, inner: &mut R, completion: Completion<'_>) {
        let mut view = SecureView { inner, layer: self.layer };
        self.worker.handle(&mut view, completion);
    }

    fn with_worker<R: Reactor, T>(
        &mut self,
        inner: &mut R,
        act: impl FnOnce(&mut U, &mut SecureView<'_, R, L>) -> T,
    ) -> T {
        let mut view = SecureView { inner, layer: self.layer };
        let done = act(self.worker, &mut view);
        self.settle(inner);
        done
    }

    /// Seals what the worker left, and tells it what it is owed, until nothing is left.
    fn settle<R: Reactor>(&mut self, inner: &mut R) {
        loop {
            while let Some(sock) = self.layer.dirty.pop() {
                self.layer.seal(inner, sock);
            }
            if let Some(sock) = self.layer.ended.pop() {
                self.pass(inner, Completion::Finished { sock });
            } else if let Some(sock) = self.layer.drained.pop() {
                if inner.output_pending(sock) == 0 {
                    self.pass(inner, Completion::Drained { sock });
                }
            } else {
                return;
            }
        }
    }

    fn is_handshaking(&mut self, sock: SockId) -> bool {
        self.layer.conn(sock).is_some_and(|conn| !conn.session.is_established())
    }

    fn is_accepting(&mut self, sock: SockId) -> bool {
        let conn = self.layer.conn(sock);
        conn.is_some_and(|conn| conn.profile.is_none() && !conn.session.is_established())
    }

    fn accept<R: Reactor>(
        &mut self,
        inner: &mut R,
        listener: ListenerId,
        sock: SockId,
        peer: Peer,
    ) {
        let plan = self.layer.acceptor(listener);
        let begun = plan.map(|plan| (plan.acceptor.accept(), plan.handshake_timeout));
        let timeout = match begun {
            None => None,
            Some((Ok(session), timeout)) => {
                self.layer.insert(sock, session, None);
                Some(timeout)
            }
            Some((Err(_), _)) => {
                self.layer.ledger.count(Event::Bug);
                return inner.abort(sock);
            }
        };
        self.pass(inner, Completion::Accepted { listener, sock, peer });
        if let Some(timeout) = timeout {
            let expects = self.worker.expects_preface(listener, peer);
            if let Some(conn) = self.layer.conn(sock) {
                conn.expects_preface = expects;
            }
            inner.set_deadline(sock, inner.now().after(timeout));
        }
    }

    /// Takes received bytes; those of a handshake only while the turn has room for one.
    fn receive<R: Reactor>(&mut self, inner: &mut R, sock: SockId, bytes: &mut [u8]) {
        let budget = self.layer.handshakes_left;
        let Some(conn) = self.layer.conn(sock) else { return };
        if conn.session.is_established() || conn.profile.is_some() {
            return self.process(inner, sock, bytes);
        }
        if conn.expects_preface {
            return self.receive_preface(inner, sock, bytes);
        }
        if budget > 0 && !conn.waits_for_turn {
            self.layer.handshakes_left -= 1;
            return self.process(inner, sock, bytes);
        }
        conn.input.extend_from_slice(bytes);
        inner.set_receiving(sock, false);
        if !core::mem::replace(&mut conn.waits_for_turn, true) {
            self.layer.waiting.push_back(sock);
            self.layer.ledger.count(Event::HandshakePutOff);
        }
    }

    /// Has the user take what comes before the handshake, and passes on what follows it.
    fn receive_preface<R: Reactor>(&mut self, inner: &mut R, sock: SockId, bytes: &mut [u8]) {
        let Some(conn) = self.layer.conn(sock) else { return };
        let mut gathered = core::mem::take(&mut conn.input);
        let bytes = if gathered.is_empty() {
            bytes
        } else {
            gathered.extend_from_slice(bytes);
            &mut gathered
        };
        let preface_bytes = match self.worker.handle_preface(sock, bytes) {
            Ok(Some(preface_bytes)) => preface_bytes,
            Ok(None) => {
                if let Some(conn) = self.layer.conn(sock) {
                    conn.input = bytes.to_vec();
                }
                return;
            }
            Err(Refused) => return self.give_up(inner, sock, CloseReason::Reset),
        };
        if let Some(conn) = self.layer.conn(sock) {
            conn.expects_preface = false;
        }
        let rest = bytes.get_mut(preface_bytes..).unwrap_or_default();
        if !rest.is_empty() {
            self.receive(inner, sock, rest);
        }
    }

    /// Goes on with handshakes that an earlier turn had no room for.
    fn continue_handshakes<R: Reactor>(&mut self, inner: &mut R) {
        while self.layer.handshakes_left > 0 {
            let Some(sock) = self.layer.waiting.pop_front() else { return };
            let Some(conn) = self.layer.conn(sock) else { continue };
            conn.waits_for_turn = false;
            let mut input = core::mem::take(&mut conn.input);
            self.layer.handshakes_left -= 1;
            inner.set_receiving(sock, true);
            self.process(inner, sock, &mut input);
            self.settle(inner);
        }
    }

    fn process<R: Reactor>(&mut self, inner: &mut R, sock: SockId, bytes: &mut [u8]) {
        let mut plain = core::mem::take(&mut self.layer.plain);
        plain.clear();
        let Some(conn) = self.layer.conn(sock) else { return };
        let was_established = conn.session.was_established();
        let outcome = match inner.output(sock) {
            Some(out) => conn.session.handle_bytes(bytes, &mut plain, out),
            // This side has said that it sends no more: answers to the peer's key updates are dropped.
            None => conn.session.handle_bytes(bytes, &mut plain, &mut Vec::new()),
        };
        // These bytes may have ended the handshake, brought plain bytes and then met a fault.
        if !was_established && conn.session.was_established() {
            self.establish(inner, sock);
        }
        if !plain.is_empty() && self.layer.is_secure(sock) {
            self.pass(inner, Completion::Received { sock, bytes: &mut plain });
        }
        self.layer.plain = plain;
        match outcome {
            Ok(Progress { peer_closed: true, .. }) => self.end(inner, sock),
            Ok(_) => {}
            Err(fault) => self.fail(inner, sock, fault),
        }
    }

    /// The handshake is done: what waited for it goes on.
    fn establish<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let slot = self.layer.slots.get_mut(sock.index as usize);
        let Some(conn) = slot.and_then(|slot| slot.conn.as_deref_mut()) else { return };
        let resumed = conn.session.facts().is_some_and(|facts| facts.resumed);
        self.layer.ledger.count(Event::HandshakeDone { resumed });
        inner.set_receiving(sock, conn.receiving);
        self.worker.handle_established(sock, &mut conn.session);
        let (owes, accepted) = (core::mem::take(&mut conn.owes_drained), conn.profile.is_none());
        if accepted {
            inner.set_deadline(sock, inner.now().after(conn.deadline_span));
        }
        self.layer.seal(inner, sock);
        self.layer.end_writing(inner, sock);
        if !accepted {
            self.pass(inner, Completion::Connected { sock });
        }
        if owes && self.layer.is_secure(sock) {
            inner.flush(sock);
            self.layer.drained.push(sock);
        }
    }

    /// The peer said that it sends no more.
    fn end<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let Some(conn) = self.layer.conn(sock) else { return };
        if !conn.session.is_established() {
            return self.give_up(inner, sock, CloseReason::Reset);
        }
        if !conn.receiving {
            conn.end = End::Held;
            return;
        }
        conn.end = End::Said;
        self.pass(inner, Completion::Finished { sock });
    }

    /// The peer's bytes end.
    fn handle_finish<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let Some(conn) = self.layer.conn(sock) else { return };
        if conn.session.ending() == Ending::Clean {
            return;
        }
        let cut = conn.session.is_established();
        self.layer.ledger.count(if cut { Event::Truncated } else { Event::HandshakeLeft });
        // RFC 8446 section 6.1: without close_notify nobody knows whether something was cut off.
        self.give_up(inner, sock, CloseReason::Reset);
    }

    /// A fault of TLS: the peer is told, the worker sees the connection gone.
    fn fail<R: Reactor>(&mut self, inner: &mut R, sock: SockId, fault: Fault) {
        let Some(conn) = self.layer.conn(sock) else { return };
        let profile = conn.profile;
        self.layer.ledger.count(Event::Failed(fault));
        let unix_seconds = inner.unix_seconds();
        if fault == Fault::PlainHttp
            && let Some(out) = inner.output(sock)
        {
            let [before, after] = PLAIN_HTTP_ANSWER;
            // RFC 9110 section 6.6.1.
            let date = DateField::new(unix_seconds);
            out.extend_from_slice(before);
            out.extend_from_slice(date.as_bytes());
            out.extend_from_slice(after);
        }
        match profile {
            Some(profile) => self.layer.log(inner.now(), profile, fault),
            None => self.log_refusal(inner.now(), sock, fault),
        }
        self.worker.handle_fault(sock, fault);
        self.give_up(inner, sock, CloseReason::ConnectUnreachable);
    }

    /// Logs that a client's certificate was refused.
    fn log_refusal(&mut self, now: Moment, sock: SockId, fault: Fault) {
        if !matches!(fault, Fault::Certificate(_)) {
            return;
        }
        let Some(left_out) = self.layer.refusals.admit(now) else { return };
        let refused = self.layer.conn(sock).and_then(|conn| conn.session.take_refused());
        let Some((listener, peer)) = self.worker.client_of(sock) else { return };
        let (place, what, mut shown) = (Place(peer), fault.text(), String::new());
        if let Some(refused) = refused {
            let (subject, fingerprint) = (&refused.subject, refused.fingerprint_hex());
            shown = format!(": subject \"{subject}\", SHA-256 {fingerprint}");
        }
        if left_out > 0 {
            shown.push_str(&format!(" ({left_out} refused since the last line are not shown)"));
        }
        self.layer.ledger.log(format_args!("listener {listener}: {place}: {what}{shown}"));
    }

    /// Ends the connection below, and tells the worker that it is gone.
    fn give_up<R: Reactor>(&mut self, inner: &mut R, sock: SockId, reason: CloseReason) {
        self.layer.remove(sock);
        inner.close(sock);
        self.pass(inner, Completion::Closed { sock, reason });
    }
}
