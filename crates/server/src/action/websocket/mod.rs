//! WebSocket connections that an action serves: handshake, frames, pings, timeouts and the close.
//! In: a request, the bytes of the connection after 101, its deadline. Out: messages and events for the action (`service.rs`);
//! frames.
//! Never: knows which version of HTTP carries the connection; allocates for a message that arrives in one read.
//! Limits: those of `[websocket]`; `WEBSOCKET_FRAMES_PER_TURN_MAX` frames of a connection in a turn. While a client does not
//! read, nothing is read from it, so its output holds at most one message beyond `OUTPUT_PAUSE_BYTES`.
//! Invariant: an idle connection without compression holds 40 bytes here (asserted) and no buffer; the state of a message in
//! progress and of compression is in `Actives`.
//!
//! `service.rs` explains how to add an action over WebSocket.

pub(crate) mod compression;

use std::rc::Rc;

use tidegate_base::limits::WEBSOCKET_FRAMES_PER_TURN_MAX;
use tidegate_base::{Id, Moment, Prng, Span};
use tidegate_gate::access::Cause;
use tidegate_gate::websocket::{Endpoint, EndpointId, check_request};
use tidegate_push::client::Disconnect;
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;
use tidegate_wire::websocket::{
    Accept, Close, CloseCode, Closing, Decoder, Fault, FrameHead, FrameRules, Incoming, Inflater,
    Kind, Opcode, Policy, Role, encode_close, encode_close_reply, encode_message, encode_ping,
    encode_pong,
};

use crate::action::Running;
use crate::action::lua::socket::LuaClient;
use crate::action::push::PushSession;
use crate::action::service::Service;
use crate::action::websocket::compression::{
    Compression, Compressor, Packing, SharedCodecs, keeps_any_context,
};
use crate::answer::{Answer, Switch};
use crate::checked_slab::CheckedSlab;
use crate::requester::Requester;
use crate::worker::Worker;

/// Longer messages are handed to the kernel without a copy, if it takes them.
const DIRECT_BYTES_MIN: usize = 4096;
/// The interval to a Ping is shortened at random, by up to `ping-every` divided by this.
const JITTER_PART: u32 = 4;
/// After this time, a deadline that passed while the action took no messages is checked again.
const FULL_RECHECK: Span = Span::from_secs(1);

/// The minimum time that a refused client waits before it tries to connect again.
const RETRY: Span = Span::from_secs(2);

/// The reason for closing a connection whose client does not reply to a Ping or a Close frame.
const NO_REPLY: &str = "the client did not reply in time";

/// A WebSocket connection.
pub(crate) struct WebSocket {
    /// The requester. It exists as long as the connection.
    requester: Requester,
    /// The place in `Actives`, or `NOT_ACTIVE`.
    active: u32,
    /// When the last message was complete, in milliseconds of the reactor's clock, modulo 2^32.
    message_ms: u32,
    /// The action that the connection belongs to.
    pub(super) service: Service,
    /// The settings.
    endpoint: EndpointId,
    /// What the connection waits for.
    state: State,
    /// The connection is in `Worker::yielded`.
    yielded: bool,
}

const _: () = assert!(size_of::<WebSocket>() <= 40);

/// What a connection waits for. The meaning of its deadline depends on this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Frames. The deadline is the next Ping, or the end of the idle timeout.
    Open,
    /// Any byte after a Ping. The deadline is the end of the pong timeout, or of the idle timeout.
    Pinged,
    /// The client's Close frame, after that of this side. The deadline is the end of the pong timeout. Messages are
    /// ignored.
    Closing,
}

/// What a connection needs only during a message, or for compression.
struct Active {
    /// Decodes the frames of the client.
    decoder: Decoder,
    /// The message in progress, if it arrives in pieces. Without capacity between messages.
    message: Vec<u8>,
    /// `None` if compression was not negotiated.
    compression: Option<Box<Compression>>,
}

/// The WebSocket connections of a worker that actions serve.
pub(crate) struct WebSockets {
    /// The connections. Each one belongs to exactly one downstream connection or stream.
    pub(crate) sessions: CheckedSlab<WebSocket>,
    /// What connections need during a message, or for compression.
    pub(crate) actives: Actives,
    /// The compressors that connections share.
    pub(crate) codecs: SharedCodecs,
}

impl WebSockets {
    /// No connections. Address space for `sessions_max` is reserved.
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self {
            sessions: CheckedSlab::reserved(sessions_max),
            actives: Actives::default(),
            codecs: SharedCodecs::default(),
        }
    }
}

/// The place of a connection that is not in `Actives`.
const NOT_ACTIVE: u32 = u32::MAX;

/// The connections that need more than a `WebSocket`. Each place belongs to one connection.
#[derive(Default)]
pub(crate) struct Actives {
    /// By place: the state of the connection that has the place.
    places: Vec<Option<Active>>,
    /// The places that are `None`.
    free: Vec<u32>,
}

impl Actives {
    fn put(&mut self, active: Active) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = Some(active);
                at
            }
            None => {
                self.places.push(Some(active));
                (self.places.len() - 1) as u32
            }
        }
    }

    fn take(&mut self, at: u32) -> Option<Active> {
        let active = self.places.get_mut(at as usize)?.take();
        if active.is_some() {
            self.free.push(at);
        }
        active
    }

    /// Takes what is at a place, which stays reserved until `put_back`.
    fn lift(&mut self, at: u32) -> Option<Active> {
        self.places.get_mut(at as usize)?.take()
    }

    /// Puts back what `lift` took.
    fn put_back(&mut self, at: u32, active: Active) {
        if let Some(place) = self.places.get_mut(at as usize) {
            *place = Some(active);
        }
    }

    fn get(&self, at: u32) -> Option<&Active> {
        self.places.get(at as usize)?.as_ref()
    }

    /// Whether this place belongs to a connection.
    pub(crate) fn is_taken(&self, at: u32) -> bool {
        self.places.get(at as usize).is_some_and(Option::is_some)
    }

    /// The number of connections that need more than a `WebSocket`.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

/// Where an action sends its messages.
pub(super) struct Outlet<'c> {
    to: Requester,
    compressor: Option<&'c mut Compressor>,
}

impl Outlet<'_> {
    /// The outlet for one of several messages.
    pub(super) fn reborrow(&mut self) -> Outlet<'_> {
        Outlet { to: self.to, compressor: self.compressor.as_deref_mut() }
    }
}

/// How far the frames of a read were handled, and why no further.
enum Outcome {
    /// All of them were handled.
    Done,
    /// The client does not read; the rest waits until its output has drained.
    Held,
    /// The action takes no more messages; the rest waits for `resume_request`.
    Full,
    /// The share of the turn is used up; the rest waits for the next turn.
    Yielded,
    /// The client has sent its Close frame.
    Closed,
    /// The client violated the protocol or exceeded a limit.
    Failed(Fault),
}

/// Start and end of a connection.
impl Worker {
    /// Checks a request for a WebSocket on `route`, and switches its connection, which from then on belongs to
    /// `service`. Returns `None` if the request was refused.
    pub(super) fn open_websocket<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        route: usize,
        service: Service,
    ) -> Option<Id<WebSocket>> {
        let snapshot = self.settings_of(to);
        let endpoint = snapshot.websockets.of_route(route);
        let policy = &snapshot.websockets.get(endpoint).policy;
        let accept = self.check_websocket(reactor, to, head, policy)?;
        self.switch_websocket(reactor, to, endpoint, &accept, service)
    }

    /// Checks a request for a WebSocket. Returns `None` if the request was refused.
    pub(super) fn check_websocket<'p, R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        policy: &'p Policy,
    ) -> Option<Accept<'p>> {
        match check_request(policy, head) {
            Ok(mut accept) => {
                // A client may open many streams, but there are at most as many contexts as connections.
                if accept.deflate.is_some_and(keeps_any_context)
                    && self.websockets.codecs.keepers() >= self.slots_max()
                {
                    self.accounts.counters.websocket_uncompressed.add(1);
                    accept.deflate = None;
                }
                Some(accept)
            }
            Err(refusal) => {
                self.accounts.counters.websocket_refusals.add(1);
                self.answer(reactor, to, &Answer::WebSocketRefusal(refusal), false);
                None
            }
        }
    }

    /// Switches a connection whose request was accepted. Returns `None` if there is no room for it.
    pub(super) fn switch_websocket<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        endpoint: EndpointId,
        accept: &Accept<'_>,
        service: Service,
    ) -> Option<Id<WebSocket>> {
        if self.stopping {
            self.answer_later(reactor, to, RETRY, "the server is stopping", true);
            return None;
        }
        let message_ms = millis(reactor.now());
        let state = State::Open;
        let (active, yielded) = (NOT_ACTIVE, false);
        let socket =
            WebSocket { requester: to, active, message_ms, service, endpoint, state, yielded };
        let Ok(id) = self.websockets.sessions.insert(socket) else {
            let text = "the proxy is handling too many requests";
            self.answer_later(reactor, to, RETRY, text, true);
            return None;
        };
        if let (Some(parameters), Some(socket)) =
            (accept.deflate, self.websockets.sessions.get_mut(id))
        {
            let compression = Some(Box::new(Compression::new(parameters, &self.websockets.codecs)));
            let decoder = new_decoder(true);
            socket.active =
                self.websockets.actives.put(Active { decoder, message: Vec::new(), compression });
        }
        self.accounts.counters.websockets.add(1);
        self.accounts.counters.websockets_now.add(1);
        self.switch_client(reactor, to, &Switch::WebSocket(accept), Running::WebSocket(id));
        self.arm_websocket(reactor, id);
        Some(id)
    }

    /// Sends a Close frame, and waits for that of the client. The action gets no more messages.
    pub(super) fn close_websocket<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        close: Close<'_>,
    ) {
        let Some(socket) = self.websockets.sessions.get_mut(id) else { return };
        if socket.state == State::Closing {
            return;
        }
        socket.state = State::Closing;
        let (to, service) = (socket.requester, socket.service);
        self.encode_switched(reactor, to, |out| encode_close(out, Some(close), None));
        if let Service::Lua(client) = service {
            self.note_lua_closing(client);
        }
        // The Close frame of the client may come after messages that were not read because the service was full.
        self.resume_request(to);
        if !self.is_client_held(to) {
            self.arm_websocket(reactor, id);
        }
    }

    /// The process stops.
    pub(super) fn stop_websocket<R: Reactor>(&mut self, reactor: &mut R, id: Id<WebSocket>) {
        let close = match self.websockets.sessions.get(id).map(|socket| socket.service) {
            Some(Service::Client(_)) => close_of(Disconnect::SHUTDOWN),
            Some(Service::Echo | Service::Lua(_) | Service::Raw(_)) | None => {
                Close::new(CloseCode::GOING_AWAY)
            }
        };
        self.close_websocket(reactor, id, close);
    }

    /// Ends the connection after all queued data was sent.
    fn end_websocket<R: Reactor>(&mut self, reactor: &mut R, id: Id<WebSocket>) {
        let Some(socket) = self.websockets.sessions.get(id) else { return };
        let to = socket.requester;
        self.forget_websocket(id);
        self.end_switched(reactor, to);
    }

    /// Releases everything that the connection holds here.
    pub(super) fn forget_websocket(&mut self, id: Id<WebSocket>) {
        let Some(socket) = self.websockets.sessions.remove(id) else { return };
        self.accounts.counters.websockets_now.sub(1);
        if let Some(active) = self.websockets.actives.take(socket.active) {
            self.buffers.put(active.message);
        }
        self.end_service(id, socket.service);
    }

    /// The client has ended its direction of the connection, after all that it sent was handled.
    pub(super) fn websocket_finished<R: Reactor>(&mut self, reactor: &mut R, id: Id<WebSocket>) {
        self.end_websocket(reactor, id);
    }
}

/// Frames of the client.
impl Worker {
    /// Handles bytes of the client. Returns how many were handled; the others wait for `resume_request`.
    pub(super) fn websocket_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        bytes: &mut [u8],
    ) -> usize {
        let Some(socket) = self.websockets.sessions.get_mut(id) else { return bytes.len() };
        let place = core::mem::replace(&mut socket.active, NOT_ACTIVE);
        let (to, service, is_closing, endpoint) =
            (socket.requester, socket.service, socket.state == State::Closing, socket.endpoint);
        if socket.state == State::Pinged {
            socket.state = State::Open;
        }
        let snapshot = Rc::clone(self.settings.newest());
        let endpoint = snapshot.websockets.get(endpoint);
        let mut active = self.websockets.actives.take(place).unwrap_or_else(|| Active {
            decoder: new_decoder(false),
            message: Vec::new(),
            compression: None,
        });
        if active.message.capacity() == 0 {
            active.message = self.buffers.take();
        }
        if is_closing {
            active.decoder.note_close_sent();
        }
        let owner = (id, to, service);
        let (used, outcome) = self.handle_frames(reactor, owner, endpoint, &mut active, bytes);
        self.keep_active(id, active);
        // The action may have closed the connection while it handled a message.
        let is_closing =
            self.websockets.sessions.get(id).is_some_and(|socket| socket.state == State::Closing);
        match outcome {
            Outcome::Done | Outcome::Full => {
                if !is_closing {
                    self.arm_websocket(reactor, id);
                }
            }
            Outcome::Held => self.hold_client(reactor, to),
            Outcome::Yielded => {
                if !is_closing {
                    self.arm_websocket(reactor, id);
                }
                if let Some(socket) = self.websockets.sessions.get_mut(id)
                    && !core::mem::replace(&mut socket.yielded, true)
                {
                    self.yielded.push(Running::WebSocket(id));
                }
            }
            Outcome::Closed => self.end_websocket(reactor, id),
            Outcome::Failed(fault) => {
                self.accounts.counters.websocket_faults.add(1);
                self.blame(
                    to,
                    Cause::Refused,
                    "the client violated the WebSocket protocol or exceeded a limit",
                );
                if !is_closing {
                    self.encode_switched(reactor, to, |out| {
                        encode_close(out, Some(fault.close()), None);
                    });
                }
                self.end_websocket(reactor, id);
                return bytes.len();
            }
        }
        used
    }

    /// Handles frames until the end of `bytes`, or until there is a reason to stop.
    fn handle_frames<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (id, to, service): (Id<WebSocket>, Requester, Service),
        endpoint: &Endpoint,
        active: &mut Active,
        bytes: &mut [u8],
    ) -> (usize, Outcome) {
        let Active { decoder, message: buffer, compression } = active;
        let mut is_closing = decoder.closing() != Closing::No;
        let mut shared = None;
        let (mut inflater, mut compressor) = match compression.as_deref_mut() {
            None => (None, None),
            Some(Compression { inflater: Some(own), compressor, .. }) => {
                (Some(own), Some(compressor))
            }
            Some(Compression { inflater: None, compressor, .. }) => {
                let codec = self.websockets.codecs.inflater.take();
                let codec = codec.unwrap_or_else(|| Box::new(Inflater::shared()));
                (Some(&mut **shared.insert(codec)), Some(compressor))
            }
        };
        let (mut used, mut messages) = (0, 0);
        let effort_before = self.push.effort();
        let mut outcome = Outcome::Yielded;
        for _ in 0..WEBSOCKET_FRAMES_PER_TURN_MAX {
            if used == bytes.len() {
                outcome = Outcome::Done;
                break;
            }
            if !is_closing && self.is_service_full(service) {
                outcome = Outcome::Full;
                break;
            }
            if self.must_service_yield(service, effort_before) {
                break;
            }
            let rest = &mut bytes[used..];
            let decoded =
                decoder.decode_message(rest, &endpoint.limits, buffer, inflater.as_deref_mut());
            let step = match decoded {
                Ok(step) => step,
                Err(fault) => {
                    outcome = Outcome::Failed(fault);
                    break;
                }
            };
            used += step.consumed;
            match step.incoming {
                None | Some(Incoming::Pong(_)) => continue,
                Some(Incoming::Message(_) | Incoming::Ping(_)) if is_closing => continue,
                Some(Incoming::Message(message)) => {
                    messages += 1;
                    let outlet = Outlet { to, compressor: compressor.as_deref_mut() };
                    self.serve_message(reactor, id, service, outlet, &message);
                    if self
                        .websockets
                        .sessions
                        .get(id)
                        .is_none_or(|socket| socket.state == State::Closing)
                    {
                        decoder.note_close_sent();
                        is_closing = true;
                    }
                }
                Some(Incoming::Ping(payload)) => {
                    self.encode_switched(reactor, to, |out| {
                        let sent = encode_pong(out, payload, None);
                        debug_assert!(sent.is_ok(), "a Ping that was received fits into a Pong");
                    });
                }
                Some(Incoming::Close(close)) => {
                    self.note_service_close(service, close);
                    if !is_closing {
                        self.encode_switched(reactor, to, |out| {
                            encode_close_reply(out, close, None);
                        });
                    }
                    outcome = Outcome::Closed;
                    break;
                }
            }
            if self.is_client_blocked(reactor, to) {
                outcome = Outcome::Held;
                break;
            }
        }
        if used == bytes.len() && matches!(outcome, Outcome::Yielded) {
            outcome = Outcome::Done;
        }
        if shared.is_some() {
            self.websockets.codecs.inflater = shared;
        }
        if messages > 0 {
            self.accounts.counters.websocket_messages.add(messages);
            if let Some(socket) = self.websockets.sessions.get_mut(id) {
                socket.message_ms = millis(reactor.now());
            }
        }
        (used, outcome)
    }

    /// Keeps the state that the connection needs for its next bytes, and releases the rest.
    fn keep_active(&mut self, id: Id<WebSocket>, mut active: Active) {
        active.decoder.release();
        if !active.decoder.is_in_message() {
            self.buffers.put(core::mem::take(&mut active.message));
        }
        let Some(socket) = self.websockets.sessions.get_mut(id) else { return };
        if active.compression.is_some() || !active.decoder.is_between_messages() {
            socket.active = self.websockets.actives.put(active);
        }
    }

    /// Continues with the bytes that had to wait because the share of the turn was used up.
    pub(super) fn continue_websocket(&mut self, id: Id<WebSocket>) {
        // The client may have left since.
        if let Some(socket) = self.websockets.sessions.find_mut(id) {
            socket.yielded = false;
            let to = socket.requester;
            self.mark_requester(to);
            self.resume_request(to);
        }
    }
}

/// Messages of the action.
impl Worker {
    /// Sends a message that is not a reply to a message of the client. Does nothing after a Close frame. The action pauses its
    /// source while `is_websocket_held`.
    pub(super) fn notify_websocket<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        kind: Kind,
        data: &[u8],
    ) {
        let Some(socket) = self.websockets.sessions.get(id) else { return };
        if socket.state == State::Closing {
            return;
        }
        let (to, place) = (socket.requester, socket.active);
        let mut active = self.websockets.actives.lift(place);
        let compression = active.as_mut().and_then(|active| active.compression.as_deref_mut());
        let compressor = compression.map(|compression| &mut compression.compressor);
        self.send_message(reactor, Outlet { to, compressor }, kind, data);
        if let Some(active) = active {
            self.websockets.actives.put_back(place, active);
        }
    }

    /// How a connection gets a message for several connections. `count_bytes` returns the size of the message.
    pub(super) fn packing_for(
        &self,
        id: Id<WebSocket>,
        count_bytes: impl FnOnce() -> usize,
    ) -> Packing {
        let Some(place) = self.websockets.sessions.find(id).and_then(WebSocket::place) else {
            return Packing::Plain;
        };
        let compression =
            self.websockets.actives.get(place).and_then(|active| active.compression.as_deref());
        compression.map_or(Packing::Plain, |compression| compression.packing_for(count_bytes()))
    }

    /// Sends a frame that was encoded for several connections. Does nothing after a Close frame.
    pub(super) fn send_frame<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        frame: &[u8],
    ) {
        let Some(socket) = self.websockets.sessions.get(id) else { return };
        if socket.state != State::Closing {
            let to = socket.requester;
            self.send_switched(reactor, to, frame);
        }
    }

    /// Changes the action that a connection belongs to.
    pub(super) fn set_service(&mut self, id: Id<WebSocket>, service: Service) {
        if let Some(socket) = self.websockets.sessions.get_mut(id) {
            socket.service = service;
        }
    }

    /// Whether the output of the action must wait for `resume_service`, because the client does not read. Suspends
    /// the connection if the client has just stopped reading.
    pub(super) fn is_websocket_held<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
    ) -> bool {
        let Some(socket) = self.websockets.sessions.get(id) else { return false };
        let to = socket.requester;
        let is_held = self.is_client_held(to);
        if !is_held && self.is_client_blocked(reactor, to) {
            self.hold_client(reactor, to);
            return true;
        }
        is_held
    }

    /// The client's output has drained.
    pub(super) fn websocket_drained<R: Reactor>(&mut self, reactor: &mut R, id: Id<WebSocket>) {
        self.arm_websocket(reactor, id);
        if let Some(Service::Client(session)) =
            self.websockets.sessions.get(id).map(|socket| socket.service)
            && self.is_client_check_due(reactor, session)
        {
            // The time in which the client may read has replaced the deadline of the check.
            self.push_client_due(reactor, (id, session));
        }
        if let Some(socket) = self.websockets.sessions.get(id)
            && socket.state != State::Closing
        {
            self.resume_service(reactor, id, socket.service);
        }
    }

    /// Sends a message. The action pauses its source while `is_client_blocked`.
    pub(super) fn send_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        outlet: Outlet<'_>,
        kind: Kind,
        data: &[u8],
    ) {
        let to = outlet.to;
        if let Some(compressor) = outlet.compressor
            && self.send_deflated(reactor, to, compressor, kind, data)
        {
            return;
        }
        if data.len() < DIRECT_BYTES_MIN {
            return self.encode_switched(reactor, to, |out| encode_message(out, kind, data, None));
        }
        let opcode = match kind {
            Kind::Text => Opcode::Text,
            Kind::Binary => Opcode::Binary,
        };
        let length = data.len() as u64;
        let head = FrameHead { is_final: true, is_deflated: false, opcode, length, key: None };
        self.encode_switched(reactor, to, |out| head.encode(out));
        self.send_switched(reactor, to, data);
    }
}

/// Deadlines.
impl Worker {
    /// Sets the deadline of the connection's state, as if the last byte had arrived now.
    pub(super) fn arm_websocket<R: Reactor>(&mut self, reactor: &mut R, id: Id<WebSocket>) {
        let Some(socket) = self.websockets.sessions.get(id) else { return };
        let endpoint = self.settings.newest().websockets.get(socket.endpoint);
        let (now, to) = (reactor.now(), socket.requester);
        let of_state = match socket.state {
            State::Open => self.client_check_at(socket.service).or_else(|| {
                let every = endpoint.ping_every?;
                Some(now.after(jittered(every, &mut self.prng)))
            }),
            State::Pinged | State::Closing => Some(now.after(endpoint.pong_timeout)),
        };
        let of_idle = endpoint
            .idle_timeout
            .filter(|_| socket.state != State::Closing)
            .map(|most| now.after(most.saturating_sub(socket.quiet_span(now))));
        let at = of_state.into_iter().chain(of_idle).min().unwrap_or(Moment::NEVER);
        self.set_action_deadline(reactor, to, at);
    }

    /// The deadline of a client of a push hub has passed.
    fn push_client_due<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (id, session): (Id<WebSocket>, Id<PushSession>),
    ) {
        if self.is_client_check_due(reactor, session)
            && self.check_client(reactor, session)
            && let Some(socket) = self.websockets.sessions.get_mut(id)
        {
            socket.state = State::Pinged;
        }
        self.arm_websocket(reactor, id);
    }

    /// The deadline has passed.
    pub(super) fn websocket_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<WebSocket>) {
        let Some(socket) = self.websockets.sessions.get_mut(id) else { return };
        let endpoint = self.settings.newest().websockets.get(socket.endpoint);
        let (now, to) = (reactor.now(), socket.requester);
        let is_idle = endpoint.idle_timeout.is_some_and(|most| socket.quiet_span(now) >= most);
        let (service, state) = (socket.service, socket.state);
        let is_closing = state == State::Closing;
        if !is_closing && self.is_service_full(service) {
            if let (State::Open, Service::Client(session)) = (state, service)
                && self.client_check_at(service) <= Some(now)
            {
                return self.push_client_due(reactor, (id, session));
            }
            // The client's Pong or message may be among the bytes that were not read.
            return self.set_action_deadline(reactor, to, now.after(FULL_RECHECK));
        }
        let Some(socket) = self.websockets.sessions.get_mut(id) else { return };
        match socket.state {
            State::Open | State::Pinged if is_idle => {
                self.accounts.counters.websocket_timeouts.add(1);
                let close = Close { code: CloseCode::GOING_AWAY, reason: "idle timeout" };
                self.close_websocket(reactor, id, close);
            }
            State::Open => {
                if let Service::Client(session) = socket.service {
                    return self.push_client_due(reactor, (id, session));
                }
                socket.state = State::Pinged;
                self.encode_switched(reactor, to, |out| {
                    let sent = encode_ping(out, b"", None);
                    debug_assert!(sent.is_ok(), "an empty Ping fits");
                });
                self.arm_websocket(reactor, id);
            }
            State::Pinged => {
                self.accounts.counters.websocket_timeouts.add(1);
                self.blame(to, Cause::ClientTimeout, NO_REPLY);
                let close = match service {
                    Service::Client(_) => close_of(Disconnect::NO_PONG),
                    Service::Echo | Service::Lua(_) | Service::Raw(_) => {
                        Close { code: CloseCode::INTERNAL_ERROR, reason: "pong timeout" }
                    }
                };
                self.encode_switched(reactor, to, |out| encode_close(out, Some(close), None));
                self.end_websocket(reactor, id);
            }
            State::Closing => {
                self.accounts.counters.websocket_timeouts.add(1);
                self.blame(to, Cause::ClientTimeout, NO_REPLY);
                self.end_websocket(reactor, id);
            }
        }
    }
}

/// A span up to a quarter shorter than `every`, so that connections that were opened together get their pings at different times.
pub(super) fn jittered(every: Span, prng: &mut Prng) -> Span {
    let jitter = (every / JITTER_PART).as_nanos() as u64;
    every - Span::from_nanos(prng.below(jitter.max(1)))
}

impl WebSocket {
    /// Whether this side has sent its Close frame.
    pub(super) fn is_closing(&self) -> bool {
        self.state == State::Closing
    }

    /// The requester of the connection.
    pub(crate) fn requester(&self) -> Requester {
        self.requester
    }

    /// The settings.
    pub(crate) fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    /// The client of a Lua application that the connection belongs to.
    pub(crate) fn lua_client(&self) -> Option<Id<LuaClient>> {
        match self.service {
            Service::Lua(client) => Some(client),
            Service::Echo | Service::Raw(_) | Service::Client(_) => None,
        }
    }

    /// The session of a push hub that the connection belongs to.
    pub(crate) fn session(&self) -> Option<Id<PushSession>> {
        match self.service {
            Service::Client(session) => Some(session),
            Service::Echo | Service::Lua(_) | Service::Raw(_) => None,
        }
    }

    /// Whether the connection is subscribed to a channel.
    pub(crate) fn is_subscribed(&self) -> bool {
        matches!(self.service, Service::Raw(Some(_)))
    }

    /// The place in `Actives`, if the connection has one.
    pub(crate) fn place(&self) -> Option<u32> {
        (self.active != NOT_ACTIVE).then_some(self.active)
    }

    /// The time since the last message, in whole milliseconds. Exact within 49 days.
    fn quiet_span(&self, now: Moment) -> Span {
        Span::from_millis(u64::from(millis(now).wrapping_sub(self.message_ms)))
    }
}

/// The decoder of a connection between two messages.
fn new_decoder(allows_deflate: bool) -> Decoder {
    Decoder::new(FrameRules { role: Role::Server, allows_deflate })
}

/// The Close frame of a disconnect of the client protocol.
fn close_of(Disconnect { code, reason }: Disconnect) -> Close<'static> {
    Close { code: CloseCode::new(code).unwrap_or(CloseCode::INTERNAL_ERROR), reason }
}

fn millis(at: Moment) -> u32 {
    (at.as_nanos() / 1_000_000) as u32
}
