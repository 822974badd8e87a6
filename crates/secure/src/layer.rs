//! TLS between the reactor and the handler: received records become plain bytes, output becomes records.
//! In: completions of the reactor, operations of the handler. Out: the same, with plain bytes above and
//! records below. Never: used by a worker without TLS, which runs on the bare reactor.
//! Limits: `HANDSHAKES_PER_TURN_MAX`; a handshake must end within its listener's timeout.
//! Invariant: a slot belongs to the connection with the reactor's id, and its session is freed with that
//! connection. Output that the handler queues before the handshake is done, and the end of its output, are
//! sent after the handshake. The handler receives plain bytes only after the handshake.
//! Cost: on a worker with TLS, a plain connection pays 240 more instructions for each request that Tidegate
//! answers by itself and 590 for each proxied one (callgrind, opt-level 3 without LTO, simulated sockets).

mod choosing;
mod view;

use std::collections::VecDeque;

use tidegate_base::limits::{POOLED_BUFFERS_MAX, SMALL_BUFFER_BYTES};
use tidegate_base::{Moment, Span};
use tidegate_reactor::{
    CloseReason, Completion, Driver, Handler, ListenerId, Peer, Reactor, Room, ServerKey, Shortage,
    SockId,
};
use tidegate_wire::message::DateField;
use tidegate_wire::tls::{Ending, Fault, Progress, TlsSession};

use crate::handler::{Event, LayerHandler, Refused, TlsObserver};
use crate::plan::{ListenerPlan, PoolPlan, ServerPlan, TlsPlan};
use crate::refusals::{ClientForLog, RefusalLog};
use choosing::Choosing;

/// Handshake steps of accepted connections that a worker performs in one turn; the others wait for a later turn.
const HANDSHAKES_PER_TURN_MAX: u32 = 8;
/// Once a turn has lasted this long, it begins no handshake step. A step with an RSA key costs 1 ms (2048 bits) to 40 ms (8192 bits),
/// so established connections wait for this time and one step at most.
const HANDSHAKE_SPAN_MAX: Span = Span::from_millis(4);
/// Plain output of one connection is gathered up to this many bytes before it is sealed.
const GATHERED_BYTES_MAX: usize = 4 * SMALL_BUFFER_BYTES;
/// Faults of servers are logged at most once in this time. Refused clients have a separate limit of the same length,
/// because any client can cause a refusal, which must not hide a server's fault.
pub(crate) const LOG_EVERY: Span = Span::from_secs(1);

/// The response to plain HTTP on a TLS port: the part before the date and the part after it.
const PLAIN_HTTP_RESPONSE: [&[u8]; 2] = [
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 56\r\nDate: ",
    b"\r\nConnection: close\r\n\r\nthis port speaks TLS: write https:// instead of http://\n",
];

/// The TLS sessions of one worker.
pub struct TlsLayer<O> {
    /// The settings of sessions that begin from now on.
    plan: TlsPlan,
    /// The worker's listeners, each with its index in `plan.listeners`.
    listeners: Vec<(ListenerId, u16)>,
    /// Receives events and log lines.
    observer: O,
    /// The connections, by the index of the reactor's id.
    slots: Vec<Slot>,
    /// Connections with plain output that is not sealed yet.
    dirty: Vec<SockId>,
    /// Connections whose output could not be sealed, with the fault. Nothing more can be sent on them, so
    /// `settle` closes them.
    unsealed: Vec<(SockId, Fault)>,
    /// Connections that resumed receiving after the peer's end had arrived. `Finished` has to be
    /// handed over for each.
    ended: Vec<SockId>,
    /// Connections that were flushed during the handshake: `Drained` has to be handed
    /// over for each whose output has left.
    drained: Vec<SockId>,
    /// Connections whose handshake was postponed to a later turn, in the order of arrival.
    waiting: VecDeque<SockId>,
    /// Connections whose certificate was chosen and whose handshake has not continued.
    chosen: Vec<SockId>,
    /// Handshake steps that this turn may still perform; at most `HANDSHAKES_PER_TURN_MAX`.
    handshakes_left: u32,
    /// Empty buffers for plain output, kept for reuse; at most `POOLED_BUFFERS_MAX`.
    spare: Vec<Vec<u8>>,
    /// Reused buffer for the plain bytes of one read.
    plain: Vec<u8>,
    /// When a fault of a server was last logged.
    logged: Option<Moment>,
    refusals: RefusalLog,
}

#[derive(Default)]
struct Slot {
    /// The generation of the reactor's id.
    generation: u32,
    /// `None` for a connection without TLS.
    conn: Option<Box<Conn>>,
}

struct Conn {
    /// The codec: handshake state and keys.
    session: TlsSession,
    /// Plain output that is not sealed yet. After the handshake it owns no memory between turns.
    output: Vec<u8>,
    /// Received bytes that wait for the rest of a preface, for the choice of a certificate or for the handshake's next turn.
    input: Vec<u8>,
    /// The certificate is not chosen yet; `None` for a connection whose certificate the requested name selects.
    choosing: Option<Box<Choosing>>,
    /// The handler's deadline, relative to the end of the handshake, if it was set before that.
    deadline_span: Span,
    /// The server of an outgoing connection; `None` for an accepted connection.
    server_key: Option<ServerKey>,
    /// The `Acceptor::trust` or `Connector::trust` by which the peer is verified.
    trust: u32,
    /// A PROXY header must precede the handshake; the part received so far is in `input`.
    expects_preface: bool,
    /// The handler receives plain bytes now; false while it has paused receiving.
    receiving: bool,
    peer_end: PeerEnd,
    /// The handler flushed output before the handshake was done, so `Drained` has to be handed over.
    owes_drained: bool,
    /// The handshake was postponed to a later turn; the connection is in `TlsLayer::waiting`.
    waits_for_turn: bool,
    /// The handler ended the sending side.
    write_ended: bool,
}

impl Conn {
    /// Whether a part of a record or of a handshake message was received.
    fn holds_part(&self) -> bool {
        self.session.held_bytes() > 0
    }
}

/// How a secured connection began.
enum Secured {
    /// A client has connected. The rules of its listener have this `Acceptor::trust`.
    Accepted { trust: u32 },
    /// The worker has connected to this server. The rules of its pool have this `Connector::trust`.
    Outgoing { server: ServerKey, trust: u32 },
}

/// Whether the end of the peer's bytes has arrived and been handed over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PeerEnd {
    /// The end has not arrived.
    Open,
    /// The end has arrived, but the handler does not receive now.
    Held,
    /// `Finished` was handed over, or is in `TlsLayer::ended`.
    Delivered,
}

impl<O: TlsObserver> TlsLayer<O> {
    /// Creates the layer of one worker. `listeners` are its listeners in the configuration's order.
    #[must_use]
    pub fn new(plan: &TlsPlan, listeners: Vec<ListenerId>, observer: O) -> Self {
        let mut layer = Self {
            plan: TlsPlan::default(),
            listeners: (0..).zip(listeners).map(|(index, id)| (id, index)).collect(),
            observer,
            slots: Vec::new(),
            dirty: Vec::new(),
            unsealed: Vec::new(),
            ended: Vec::new(),
            drained: Vec::new(),
            waiting: VecDeque::new(),
            chosen: Vec::new(),
            handshakes_left: 0,
            spare: Vec::new(),
            plain: Vec::new(),
            logged: None,
            refusals: RefusalLog::default(),
        };
        layer.replace_plan(plan);
        layer
    }

    /// Uses `plan` for sessions that begin from now on. Existing sessions keep their settings.
    pub fn replace_plan(&mut self, plan: &TlsPlan) {
        self.plan = plan.clone();
        for pool in self.plan.pools.iter_mut().flatten() {
            pool.connector = pool.connector.with_own_sessions();
        }
        for listener in self.plan.listeners.iter_mut().flatten() {
            listener.acceptor = listener.acceptor.with_own_refusals();
        }
    }

    /// The settings of sessions that begin from now on.
    #[must_use]
    pub fn plan(&self) -> TlsPlan {
        self.plan.clone()
    }

    /// Sets the worker's listeners, each with its index in `TlsPlan::listeners`.
    pub fn set_listeners(&mut self, listeners: Vec<(ListenerId, u16)>) {
        self.listeners = listeners;
    }

    /// The number of sessions, for tests.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.conn.is_some()).count()
    }

    fn conn(&mut self, sock: SockId) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(sock.index as usize)?;
        if slot.generation == sock.generation { slot.conn.as_deref_mut() } else { None }
    }

    fn peek(&self, sock: SockId) -> Option<&Conn> {
        let slot = self.slots.get(sock.index as usize)?;
        slot.conn.as_deref().filter(|_| slot.generation == sock.generation)
    }

    fn is_secure(&self, sock: SockId) -> bool {
        self.peek(sock).is_some()
    }

    /// See `Reactor::is_outdated`.
    fn is_outdated(&self, sock: SockId, listener: u16) -> bool {
        let plan = self.plan.listeners.get(usize::from(listener)).and_then(Option::as_ref);
        let secured = self.peek(sock).map(|conn| conn.trust);
        plan.is_some_and(|plan| secured != Some(plan.acceptor.trust()))
    }

    /// See `Reactor::is_server_outdated`.
    fn is_server_outdated(&self, sock: SockId) -> bool {
        let Some(conn) = self.peek(sock) else { return false };
        let pool =
            conn.server_key.and_then(|key| self.plan.pools.get(usize::from(key.pool))?.as_ref());
        pool.is_some_and(|pool| pool.connector.trust() != conn.trust)
    }

    fn insert(&mut self, sock: SockId, session: TlsSession, secured: Secured) {
        let (server_key, trust) = match secured {
            Secured::Accepted { trust } => (None, trust),
            Secured::Outgoing { server, trust } => (Some(server), trust),
        };
        let index = sock.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let conn = Conn {
            session,
            output: Vec::new(),
            input: Vec::new(),
            choosing: None,
            deadline_span: Span::MAX,
            server_key,
            trust,
            expects_preface: false,
            receiving: true,
            peer_end: PeerEnd::Open,
            owes_drained: false,
            waits_for_turn: false,
            write_ended: false,
        };
        self.slots[index] = Slot { generation: sock.generation, conn: Some(Box::new(conn)) };
        self.observer.count(Event::SessionBegun);
    }

    fn remove(&mut self, sock: SockId) -> Option<Box<Conn>> {
        let slot = self.slots.get_mut(sock.index as usize)?;
        if slot.generation != sock.generation {
            return None;
        }
        let mut conn = slot.conn.take()?;
        self.observer.count(Event::SessionGone);
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
        let (_, index) = self.listeners.iter().find(|(id, _)| *id == listener)?;
        self.plan.listeners.get(usize::from(*index))?.as_ref()
    }

    fn connector(&self, key: ServerKey) -> Option<(&PoolPlan, &ServerPlan)> {
        let pool = self.plan.pools.get(usize::from(key.pool))?.as_ref()?;
        Some((pool, pool.servers.get(usize::from(key.server))?))
    }

    /// Seals the gathered plain output of `sock` into its output below.
    fn seal<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let Some(conn) = self.conn(sock) else { return };
        if !conn.session.is_established() {
            return;
        }
        // The handler may have asked for the buffer without writing into it. An idle connection must not keep it.
        let plain = core::mem::take(&mut conn.output);
        if !plain.is_empty() {
            self.seal_bytes(inner, sock, &plain);
        }
        self.put_spare(plain);
    }

    /// Seals the pending output of `sock`, adds close_notify, and drops the session.
    fn end_session<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        self.seal(inner, sock);
        if let Some(mut conn) = self.remove(sock)
            && let Some(out) = inner.output(sock)
        {
            conn.session.close_notify(out);
        }
    }

    /// Seals `plain` into the output of `sock`. If that fails, the connection is marked to be closed.
    fn seal_bytes<R: Reactor>(&mut self, inner: &mut R, sock: SockId, plain: &[u8]) {
        let Some(conn) = self.conn(sock) else { return };
        if let Some(out) = inner.output(sock)
            && let Err(fault) = conn.session.seal(plain, out)
        {
            // TLS 1.2 only: the keys have encrypted as much as they may. rustls renews the keys of TLS 1.3.
            self.unsealed.push((sock, fault));
        }
    }

    /// Sends close_notify and FIN if the handler has ended the sending side. During the handshake this waits,
    /// because the handshake itself still has bytes to send.
    fn end_writing<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let Some(conn) = self.conn(sock) else { return };
        if conn.write_ended && conn.session.is_established() {
            if let Some(out) = inner.output(sock) {
                conn.session.close_notify(out);
            }
            inner.finish(sock);
        }
    }

    fn log(&mut self, now: Moment, server_key: ServerKey, fault: Fault) {
        let due = self.logged.is_none_or(|at| now.since(at) >= LOG_EVERY);
        if let Some((pool, server)) = self.connector(server_key)
            && due
        {
            let (pool, address) = (&pool.name, &server.place);
            self.observer.log(format_args!("pool {pool}: server {address}: {}", fault.text()));
            self.logged = Some(now);
        }
    }
}

/// The handler's view of the reactor: the same operations, with plain bytes.
pub struct SecureView<'a, R, O> {
    inner: &'a mut R,
    layer: &'a mut TlsLayer<O>,
}

impl<O: TlsObserver> TlsLayer<O> {
    /// Runs one turn of the reactor with `handler` above this layer.
    pub fn turn<R: Driver, H: LayerHandler>(
        &mut self,
        reactor: &mut R,
        handler: &mut H,
        wait_max: Span,
    ) {
        self.plan.clock.set(reactor.unix_seconds());
        self.handshakes_left = HANDSHAKES_PER_TURN_MAX;
        let mut stack = Stack { layer: self, handler };
        stack.continue_handshakes(reactor);
        let busy = !stack.layer.waiting.is_empty();
        let wait = if busy { Span::ZERO } else { stack.handler.wait(wait_max) };
        reactor.turn(&mut stack, wait);
        stack.with_handler(reactor, |handler, view| handler.continue_after_turn(view));
        // This may have resumed connections whose bytes had been decrypted before.
        while stack.with_handler(reactor, |handler, view| handler.send_after_turn(view)) {}
        stack.handler.note_next(None);
        let has_work = !stack.layer.waiting.is_empty() || stack.handler.wait(Span::MAX).is_zero();
        reactor.note_due(has_work);
    }

    /// Ends the handshake steps of a turn that has lasted too long since it `began`.
    fn limit_handshakes(&mut self, began: Moment, now: Moment) {
        if now >= began.after(HANDSHAKE_SPAN_MAX) {
            self.handshakes_left = 0;
        }
    }

    /// Calls `act` with the handler and its view between two turns (for example, to begin a stop).
    pub fn between_turns<R: Reactor, H: LayerHandler, T>(
        &mut self,
        reactor: &mut R,
        handler: &mut H,
        act: impl FnOnce(&mut H, &mut SecureView<'_, R, O>) -> T,
    ) -> T {
        Stack { layer: self, handler }.with_handler(reactor, act)
    }
}

/// The layer and the handler above it, for the time of a turn.
struct Stack<'a, O, H> {
    layer: &'a mut TlsLayer<O>,
    handler: &'a mut H,
}

impl<R: Reactor, O: TlsObserver, H: LayerHandler> Handler<R> for Stack<'_, O, H> {
    fn handle(&mut self, inner: &mut R, completion: Completion<'_>) {
        match completion {
            Completion::Accepted { listener, sock, peer } => {
                self.accept(inner, listener, sock, peer);
            }
            Completion::Received { sock, bytes } if self.layer.is_secure(sock) => {
                self.receive(inner, sock, bytes);
            }
            Completion::Connected { sock } if self.layer.is_secure(sock) => {
                self.handler.handle_reached(sock, inner.read_clock());
                // Send the first flight. `Connected` is handed over when the handshake is done.
                self.process(inner, sock, &mut []);
            }
            Completion::Finished { sock } if self.layer.is_secure(sock) => {
                self.handle_finish(inner, sock);
            }
            Completion::Drained { sock } if self.is_handshaking(sock) => {}
            Completion::Due { sock } if self.is_accepting(sock) => {
                self.layer.observer.count(Event::HandshakeTimedOut);
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

    fn note_next(&mut self, sock: Option<SockId>) {
        self.handler.note_next(sock);
    }

    fn has_room(&self, inner: &R) -> bool {
        self.handler.has_room(inner)
    }

    fn make_room(&mut self, inner: &mut R, shortage: Shortage) -> Room {
        self.with_handler(inner, |handler, view| handler.make_room(view, shortage))
    }
}

impl<O: TlsObserver, H: LayerHandler> Stack<'_, O, H> {
    /// Hands a completion to the handler.
    fn pass<R: Reactor>(&mut self, inner: &mut R, completion: Completion<'_>) {
        let mut view = SecureView { inner, layer: self.layer };
        self.handler.handle(&mut view, completion);
    }

    fn with_handler<R: Reactor, T>(
        &mut self,
        inner: &mut R,
        act: impl FnOnce(&mut H, &mut SecureView<'_, R, O>) -> T,
    ) -> T {
        let mut view = SecureView { inner, layer: self.layer };
        let done = act(self.handler, &mut view);
        self.settle(inner);
        done
    }

    /// Seals the handler's pending output and hands over the completions that are due, until no work is left.
    fn settle<R: Reactor>(&mut self, inner: &mut R) {
        loop {
            while let Some(sock) = self.layer.dirty.pop() {
                self.handler.note_next(Some(sock));
                self.layer.seal(inner, sock);
            }
            if let Some((sock, fault)) = self.layer.unsealed.pop() {
                self.fail(inner, sock, fault);
            } else if let Some(sock) = self.layer.ended.pop() {
                // The handler may have closed the connection after it resumed receiving.
                if self.layer.is_secure(sock) {
                    self.pass(inner, Completion::Finished { sock });
                }
            } else if let Some(sock) = self.layer.chosen.pop() {
                self.continue_chosen(inner, sock);
            } else if let Some(sock) = self.layer.drained.pop() {
                if self.layer.is_secure(sock) && inner.output_pending(sock) == 0 {
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
        conn.is_some_and(|conn| conn.server_key.is_none() && !conn.session.is_established())
    }

    fn accept<R: Reactor>(
        &mut self,
        inner: &mut R,
        listener: ListenerId,
        sock: SockId,
        peer: Peer,
    ) {
        let plan = self.layer.acceptor(listener);
        let trust = plan.map_or(0, |plan| plan.acceptor.trust());
        let begun = plan.map(|plan| {
            (plan.acceptor.accept(), Choosing::of(&plan.acceptor), plan.handshake_timeout)
        });
        let timeout = match begun {
            None => None,
            Some((Ok(session), choosing, timeout)) => {
                self.layer.insert(sock, session, Secured::Accepted { trust });
                if let Some(conn) = self.layer.conn(sock) {
                    conn.choosing = choosing;
                }
                Some(timeout)
            }
            Some((Err(_), ..)) => {
                self.layer.observer.count(Event::Bug);
                return inner.abort(sock);
            }
        };
        self.pass(inner, Completion::Accepted { listener, sock, peer });
        if let Some(timeout) = timeout {
            let expects = self.handler.expects_preface(listener, peer);
            if let Some(conn) = self.layer.conn(sock) {
                conn.expects_preface = expects;
            }
            inner.set_deadline(sock, inner.now().after(timeout));
        }
    }

    /// Takes received bytes. Bytes of an accepted connection's handshake wait for a later turn if this
    /// turn's budget for handshakes is used up.
    fn receive<R: Reactor>(&mut self, inner: &mut R, sock: SockId, bytes: &mut [u8]) {
        let budget = self.layer.handshakes_left;
        let Some(conn) = self.layer.conn(sock) else { return };
        if conn.session.is_established() || conn.server_key.is_some() {
            return self.process(inner, sock, bytes);
        }
        self.handler.handle_handshake_bytes(sock);
        let Some(conn) = self.layer.conn(sock) else { return };
        if conn.expects_preface {
            return self.receive_preface(inner, sock, bytes);
        }
        if conn.choosing.is_some() {
            return self.receive_hello(inner, sock, bytes);
        }
        if budget > 0 && !conn.waits_for_turn {
            self.layer.handshakes_left -= 1;
            self.process(inner, sock, bytes);
            return self.layer.limit_handshakes(inner.now(), inner.read_clock());
        }
        conn.input.extend_from_slice(bytes);
        self.postpone(inner, sock);
    }

    /// Lets the handshake of `sock` wait for a later turn.
    fn postpone<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        inner.set_receiving(sock, false);
        let Some(conn) = self.layer.conn(sock) else { return };
        if !core::mem::replace(&mut conn.waits_for_turn, true) {
            self.layer.waiting.push_back(sock);
            self.layer.observer.count(Event::HandshakePostponed);
        }
    }

    /// Passes the bytes before the handshake to the handler, and processes the bytes that follow them.
    fn receive_preface<R: Reactor>(&mut self, inner: &mut R, sock: SockId, bytes: &mut [u8]) {
        let Some(conn) = self.layer.conn(sock) else { return };
        let mut gathered = core::mem::take(&mut conn.input);
        let bytes = if gathered.is_empty() {
            bytes
        } else {
            gathered.extend_from_slice(bytes);
            &mut gathered
        };
        let preface_bytes = match self.handler.handle_preface(sock, bytes) {
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

    /// Continues the handshakes that earlier turns postponed.
    fn continue_handshakes<R: Reactor>(&mut self, inner: &mut R) {
        if self.layer.waiting.is_empty() {
            return;
        }
        let began = inner.read_clock();
        while self.layer.handshakes_left > 0 {
            let Some(sock) = self.layer.waiting.pop_front() else { return };
            let Some(conn) = self.layer.conn(sock) else { continue };
            conn.waits_for_turn = false;
            let mut input = core::mem::take(&mut conn.input);
            self.layer.handshakes_left -= 1;
            self.handler.note_next(None);
            inner.set_receiving(sock, true);
            self.process(inner, sock, &mut input);
            self.settle(inner);
            self.layer.limit_handshakes(began, inner.read_clock());
        }
    }

    /// Passes received bytes through the session, and the plain bytes in them to the handler.
    fn process<R: Reactor>(&mut self, inner: &mut R, sock: SockId, bytes: &mut [u8]) {
        let mut plain = core::mem::take(&mut self.layer.plain);
        plain.clear();
        let Some(conn) = self.layer.conn(sock) else { return };
        let was_established = conn.session.was_established();
        let outcome = match inner.output(sock) {
            Some(out) => conn.session.handle_bytes(bytes, &mut plain, out),
            // This side has ended sending, so replies to the peer's key updates are dropped.
            None => conn.session.handle_bytes(bytes, &mut plain, &mut Vec::new()),
        };
        // These bytes may have completed the handshake, contained plain bytes and then caused a fault.
        if !was_established && conn.session.was_established() {
            self.establish(inner, sock);
        }
        if !plain.is_empty() && self.layer.is_secure(sock) {
            self.pass(inner, Completion::Received { sock, bytes: &mut plain });
        }
        self.layer.plain = plain;
        if inner.is_guarded(sock) && self.layer.conn(sock).is_some_and(|conn| conn.holds_part()) {
            // The rest of the record may be application data, and would be sent after the guarded output.
            return self.give_up(inner, sock, CloseReason::Unsent);
        }
        match outcome {
            Ok(Progress { peer_closed: true, .. }) => self.end(inner, sock),
            Ok(_) => {}
            Err(fault) => self.fail(inner, sock, fault),
        }
    }

    /// Continues everything that waited for the handshake, which is done now.
    fn establish<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let slot = self.layer.slots.get_mut(sock.index as usize);
        let Some(conn) = slot.and_then(|slot| slot.conn.as_deref_mut()) else { return };
        let resumed = conn.session.facts().is_some_and(|facts| facts.resumed);
        self.layer.observer.count(Event::HandshakeDone { resumed });
        inner.set_receiving(sock, conn.receiving);
        self.handler.handle_established(sock, &mut conn.session);
        let (owes, accepted) = (core::mem::take(&mut conn.owes_drained), conn.server_key.is_none());
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

    /// Handles close_notify: the peer sends no more.
    fn end<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let Some(conn) = self.layer.conn(sock) else { return };
        if !conn.session.is_established() {
            return self.give_up(inner, sock, CloseReason::Reset);
        }
        if !conn.receiving {
            conn.peer_end = PeerEnd::Held;
            return self.pass(inner, Completion::HungUp { sock });
        }
        conn.peer_end = PeerEnd::Delivered;
        self.pass(inner, Completion::Finished { sock });
    }

    /// Handles the peer's FIN.
    fn handle_finish<R: Reactor>(&mut self, inner: &mut R, sock: SockId) {
        let Some(conn) = self.layer.conn(sock) else { return };
        if conn.session.ending() == Ending::Clean {
            return;
        }
        let cut = conn.session.is_established();
        self.layer.observer.count(if cut { Event::Truncated } else { Event::HandshakeLeft });
        // RFC 8446 section 6.1: without close_notify, the data may have been truncated.
        self.give_up(inner, sock, CloseReason::Reset);
    }

    /// Handles a fault of TLS: sends the pending alert to the peer and reports the fault and `Closed`.
    fn fail<R: Reactor>(&mut self, inner: &mut R, sock: SockId, fault: Fault) {
        let Some(conn) = self.layer.conn(sock) else { return };
        let server_key = conn.server_key;
        self.layer.observer.count(Event::Failed(fault));
        let unix_seconds = inner.unix_seconds();
        if fault == Fault::PlainHttp
            && let Some(out) = inner.output(sock)
        {
            let [before, after] = PLAIN_HTTP_RESPONSE;
            // RFC 9110 section 6.6.1 requires a Date field.
            let date = DateField::new(unix_seconds);
            out.extend_from_slice(before);
            out.extend_from_slice(date.as_bytes());
            out.extend_from_slice(after);
        }
        match server_key {
            Some(server_key) => self.layer.log(inner.now(), server_key, fault),
            None => self.log_refusal(inner.now(), sock, fault),
        }
        self.handler.handle_fault(sock, fault);
        self.give_up(inner, sock, CloseReason::ConnectUnreachable);
    }

    /// Logs a client whose certificate was refused.
    fn log_refusal(&mut self, now: Moment, sock: SockId, fault: Fault) {
        if !matches!(fault, Fault::Certificate(_)) {
            return;
        }
        let Some(left_out) = self.layer.refusals.admit(now) else { return };
        let refused = self.layer.conn(sock).and_then(|conn| conn.session.take_refused());
        let Some((listener, peer)) = self.handler.client_of(sock) else { return };
        let (client, what, mut details) = (ClientForLog(peer), fault.text(), String::new());
        if let Some(refused) = refused {
            let (subject, fingerprint) = (&refused.subject, refused.fingerprint_hex());
            details = format!(": subject \"{subject}\", SHA-256 {fingerprint}");
        }
        if left_out > 0 {
            details.push_str(&format!(
                " (refused clients not logged since the last line: {left_out})"
            ));
        }
        self.layer.observer.log(format_args!("listener {listener}: {client}: {what}{details}"));
    }

    /// Closes the connection below and reports `Closed` to the handler.
    fn give_up<R: Reactor>(&mut self, inner: &mut R, sock: SockId, reason: CloseReason) {
        self.layer.remove(sock);
        let reason = if inner.is_guarded(sock) { CloseReason::Unsent } else { reason };
        inner.close(sock);
        self.pass(inner, Completion::Closed { sock, reason });
    }
}
