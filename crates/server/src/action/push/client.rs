//! Clients that speak Centrifugo's client protocol, over WebSocket or (`emulation.rs`) over HTTP.
//! In: messages of a WebSocket connection, replies of the hub, pings that are due. Out: lines for the client.
//! Never: decides what a client may do (`tidegate_push::client` does).
//! Invariant: a session and its WebSocket connection name each other, and end together.

use tidegate_base::{Id, Moment, Span};
use tidegate_gate::parameters::parameters;
use tidegate_gate::websocket::{EndpointId, HUB_PROTOBUF};
use tidegate_push::client::codec::Codec;
use tidegate_push::client::{Connection, Context, Disconnect};
use tidegate_push::local::SubscriptionId;
use tidegate_push::mail::{Reply, Subscribed};
use tidegate_push::settings::Error;
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;
use tidegate_wire::websocket::{Close, CloseCode, Kind as MessageKind, Message};

use crate::action::intake::Intake;
use crate::action::push::emulation::Piece;
use crate::action::push::{Key, Kind, Link, PushSession, PushState};
use crate::action::service::Service;
use crate::action::websocket::{Outlet, WebSocket, jittered};
use crate::requester::Requester;
use crate::worker::Worker;

/// The name and version of this program, as clients see it.
const VERSION: &str = concat!("tidegate ", env!("CARGO_PKG_VERSION"));

/// How long a client may take to send `connect`.
const CONNECT_SPAN_MAX: Span = Span::from_secs(10);
/// How often the tokens of a client that gets no pings are checked.
const CHECK_EVERY: Span = Span::from_secs(30);

impl Worker {
    /// Begins a connection of the client protocol.
    pub(super) fn begin_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, hub): (usize, u16),
    ) {
        let snapshot = self.settings_of(to);
        let endpoint = snapshot.websockets.of_route(route);
        let policy = &snapshot.websockets.get(endpoint).hub_policy;
        let Some(accept) = self.check_websocket(reactor, to, head, policy) else { return };
        let Some(fields) = self.repeated_fields(reactor, to, head, hub) else { return };
        let codec = choose_codec(accept.subprotocol, head.query);
        let service = Service::Client(Id::NONE);
        let socket = self.switch_websocket(reactor, to, endpoint, &accept, service);
        let Some(socket) = socket else { return };
        let connection = Connection::new(codec, [self.prng.next_u64(), self.prng.next_u64()]);
        let connection = self.with_backend_fields(connection, hub, ("websocket", fields));
        // By then the client must have sent `connect`.
        let check_at = reactor.now().after(CONNECT_SPAN_MAX);
        let link = Link::Socket(socket);
        let kind = Kind::Client { link, connection: Box::new(connection), check_at };
        let session = PushSession { requester: to, hub, intake: Intake::NONE, kind };
        match self.push.sessions.insert(session) {
            Ok(id) => {
                self.set_service(socket, Service::Client(id));
                self.arm_websocket(reactor, socket);
                self.accounts.counters.push_clients_now.add(1);
                self.begin_age(reactor, hub, Key::of_session(id), Moment::NEVER);
            }
            Err(_) => {
                let code = CloseCode::TRY_AGAIN_LATER;
                self.close_websocket(reactor, socket, Close { code, reason: "limit exceeded" });
            }
        }
    }

    /// Handles a message of a client.
    pub(in crate::action) fn client_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (socket, id): (Id<WebSocket>, Id<PushSession>),
        outlet: Outlet<'_>,
        message: &Message<'_>,
    ) {
        let Some(codec) = self.codec_of(id) else { return };
        if message.kind() != kind_of(codec) {
            return self.disconnect(reactor, socket, Disconnect::INAPPROPRIATE_PROTOCOL);
        }
        let was_stale = self.push.sessions.find(id).is_some_and(PushSession::is_stale);
        let mut out = self.buffers.take();
        let room = self.room_of_client(reactor, id);
        let effort_before = self.push.effort();
        let result = self.with_client(reactor, id, room, |connection, context| {
            connection.receive(context, message.bytes(), &mut out)
        });
        if was_stale && self.push.sessions.find(id).is_some_and(|session| !session.is_stale()) {
            self.schedule_check(reactor, id);
        }
        if !out.is_empty() {
            self.send_message(reactor, outlet, kind_of(codec), &out);
        }
        self.buffers.put(out);
        match result {
            Some(Ok(used)) if used < message.bytes().len() => {
                self.keep_commands(id, Piece::new(message.bytes()[used..].into()));
                self.await_push_turn(id, effort_before);
            }
            Some(Err(disconnect)) => self.disconnect(reactor, socket, disconnect),
            Some(Ok(_)) | None => {}
        }
    }

    /// Whether an earlier command of a client waits, so that nothing more is read from it.
    pub(in crate::action) fn is_client_waiting(&self, id: Id<PushSession>) -> bool {
        self.push.lets_commands_wait
            && (self.push.commands.contains_key(&Key::of_session(id))
                || self.push.sessions.find(id).is_some_and(PushSession::is_waiting))
    }

    /// When the tokens of a client are checked next. Bytes of the client do not postpone it.
    pub(in crate::action) fn client_check_at(&self, service: Service) -> Option<Moment> {
        let Service::Client(id) = service else { return None };
        match self.push.sessions.find(id)?.kind {
            Kind::Client { check_at, .. } => Some(check_at),
            Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_)
            | Kind::Events { .. }
            | Kind::Poll { .. } => None,
        }
    }

    /// Whether the tokens of a client must be checked now.
    pub(in crate::action) fn is_client_check_due<R: Reactor>(
        &self,
        reactor: &R,
        id: Id<PushSession>,
    ) -> bool {
        self.client_check_at(Service::Client(id)).is_some_and(|at| at <= reactor.now())
    }

    /// The next time for a check: that of the next ping, if clients get pings.
    pub(super) fn next_check_at<R: Reactor>(
        &mut self,
        reactor: &R,
        endpoint: EndpointId,
    ) -> Moment {
        let every = self.settings.newest().websockets.get(endpoint).ping_every;
        let every = every.unwrap_or(CHECK_EVERY);
        reactor.now().after(jittered(every, &mut self.prng))
    }

    /// The settings of a client.
    fn endpoint_of(&self, id: Id<PushSession>) -> Option<EndpointId> {
        match &self.push.sessions.find(id)?.kind {
            Kind::Client { link: Link::Socket(socket), .. } => {
                self.websockets.sessions.get(*socket).map(WebSocket::endpoint)
            }
            Kind::Client { link: Link::Stream(stream), .. } => Some(stream.endpoint),
            Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_)
            | Kind::Events { .. }
            | Kind::Poll { .. } => None,
        }
    }

    /// Sets the time of the next check of a client.
    pub(super) fn schedule_check<R: Reactor>(&mut self, reactor: &R, id: Id<PushSession>) {
        let Some(endpoint) = self.endpoint_of(id) else { return };
        let next = self.next_check_at(reactor, endpoint);
        if let Some(session) = self.push.sessions.get_mut(id)
            && let Kind::Client { check_at, .. } = &mut session.kind
        {
            *check_at = next;
        }
    }

    /// Checks the tokens of a client, which is disconnected if they have expired; sends a ping if clients get pings.
    /// Returns whether the client must send a Pong.
    pub(in crate::action) fn check_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
    ) -> bool {
        let Some(codec) = self.codec_of(id) else { return false };
        let mut out = self.buffers.take();
        let checked = self
            .with_client(reactor, id, 0, |connection, context| connection.check(context, &mut out));
        self.send_to_client(reactor, id, &out);
        self.buffers.put(out);
        match checked {
            Some(Ok(())) => {
                self.schedule_check(reactor, id);
                let endpoint = self.endpoint_of(id);
                let has_ping = endpoint.is_some_and(|endpoint| {
                    self.settings.newest().websockets.get(endpoint).ping_every.is_some()
                });
                if has_ping {
                    self.send_to_client(reactor, id, codec.ping());
                }
                has_ping
            }
            Some(Err(disconnect)) => {
                self.disconnect_client(reactor, id, disconnect);
                false
            }
            None => false,
        }
    }

    /// A subscription of a client is confirmed.
    pub(super) fn confirm_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        place: SubscriptionId,
        reply: &Subscribed,
    ) {
        let was_waiting = self.is_connect_reply_pending(id);
        self.tell_client(reactor, id, |connection, context, out| {
            connection.confirm(context, place, reply, out);
        });
        if was_waiting && !self.is_connect_reply_pending(id) {
            self.continue_client(reactor, id, true);
        }
    }

    fn is_connect_reply_pending(&self, id: Id<PushSession>) -> bool {
        self.push.sessions.find(id).is_some_and(PushSession::is_connect_reply_pending)
    }

    /// A subscription of a client has failed.
    pub(super) fn refuse_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        place: SubscriptionId,
        error: Error,
    ) {
        let was_waiting = self.is_connect_reply_pending(id);
        self.tell_client(reactor, id, |connection, context, out| {
            connection.refuse(context, place, error, out);
        });
        if was_waiting && !self.is_connect_reply_pending(id) {
            self.continue_client(reactor, id, true);
        }
    }

    /// The hub has replied to a command of a client.
    pub(super) fn reply_to_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        number: u32,
        reply: &Reply,
    ) {
        self.tell_client(reactor, id, |connection, context, out| {
            connection.take_reply(context.room, number, reply, out);
        });
    }

    pub(super) fn tell_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        work: impl FnOnce(&mut Connection, &mut Context<'_, Key>, &mut Vec<u8>),
    ) {
        let mut out = self.buffers.take();
        let room = self.room_of_client(reactor, id);
        self.with_client(reactor, id, room, |connection, context| {
            work(connection, context, &mut out);
        });
        self.send_to_client(reactor, id, &out);
        self.buffers.put(out);
    }

    /// Sends encoded messages to a client. Does nothing if `messages` is empty.
    pub(super) fn send_to_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        messages: &[u8],
    ) {
        if messages.is_empty() {
            return;
        }
        let Some(session) = self.push.sessions.get(id) else { return };
        let to = session.requester;
        let Kind::Client { link, connection, .. } = &session.kind else { return };
        match *link {
            Link::Socket(socket) => {
                let kind = kind_of(connection.codec());
                self.notify_websocket(reactor, socket, kind, messages);
            }
            Link::Stream(stream) => self.send_to_stream(reactor, to, stream.framing, messages),
        }
    }

    /// The encoding of a client.
    pub(super) fn codec_of(&self, id: Id<PushSession>) -> Option<Codec> {
        match &self.push.sessions.get(id)?.kind {
            Kind::Client { connection, .. } => Some(connection.codec()),
            Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_)
            | Kind::Events { .. }
            | Kind::Poll { .. } => None,
        }
    }

    /// How many bytes of replies a client may be sent now: the size of the hub's queue, or 0 while the client does not read.
    pub(super) fn room_of_client<R: Reactor>(&self, reactor: &mut R, id: Id<PushSession>) -> usize {
        let Some(session) = self.push.sessions.get(id) else { return 0 };
        let hub = self.push.settings.get(session.hub);
        let is_blocked = self.is_client_blocked(reactor, session.requester);
        hub.filter(|_| !is_blocked).map_or(0, |hub| hub.queue.bytes_max)
    }

    /// Runs `work` on the connection of a client, with access to the hub. `room`: how many bytes of replies may be sent.
    pub(super) fn with_client<R: Reactor, T>(
        &mut self,
        reactor: &R,
        id: Id<PushSession>,
        room: usize,
        work: impl FnOnce(&mut Connection, &mut Context<'_, Key>) -> T,
    ) -> Option<T> {
        let at = self.instance(reactor);
        let PushState {
            sessions,
            hub,
            settings,
            queues,
            verifier,
            tokens,
            backend,
            effort: efforts,
            ..
        } = &mut self.push;
        let session = sessions.get_mut(id)?;
        let Kind::Client { link, connection, .. } = &mut session.kind else { return None };
        let endpoint = match link {
            Link::Socket(socket) => self.websockets.sessions.get(*socket).map(WebSocket::endpoint),
            Link::Stream(stream) => Some(stream.endpoint),
        };
        let known = &self.settings.newest().websockets;
        let ping_every = endpoint.and_then(|endpoint| known.get(endpoint).ping_every);
        let key = Key::of_session(id);
        let may_verify = !tokens.is_used_up();
        let is_slow = settings.get(session.hub).is_some_and(|hub| hub.keys.is_slow());
        let began = is_slow.then(|| reactor.read_clock());
        let mut context = Context {
            hub,
            settings,
            verifier,
            may_verify,
            index: session.hub,
            key,
            queue: queues.get_mut(&key),
            at,
            unix_seconds: reactor.unix_seconds(),
            ping_seconds: ping_every.map(|every| every.as_millis().div_ceil(1000) as u64),
            version: VERSION,
            room,
            effort: 0,
            over_rate: 0,
            request: None,
            is_reply_invalid: false,
        };
        let before = connection.subscriptions() as u64;
        let result = work(connection, &mut context);
        let Context { effort, over_rate, request, is_reply_invalid, queue, .. } = context;
        if let Some(began) = began.filter(|_| may_verify && !context.may_verify) {
            tokens.note_call(reactor.read_clock().since(began));
            self.accounts.counters.tokens_verified.add(1);
        }
        let is_emptied = queue.is_some_and(|queue| queue.is_empty());
        if is_emptied {
            queues.remove(&key);
        }
        *efforts = efforts.wrapping_add(effort);
        if let Some(request) = request {
            backend.ask(id, request);
        }
        let after = connection.subscriptions() as u64;
        let counters = &self.accounts.counters;
        counters.push_over_rate.add(over_rate);
        counters.push_backend_failures.add(is_reply_invalid.into());
        counters.push_subscriptions.add(after.saturating_sub(before));
        counters.push_subscriptions_now.add(after.saturating_sub(before));
        counters.push_subscriptions_now.sub(before.saturating_sub(after));
        Some(result)
    }

    /// Ends the subscriptions of a client, but not its connection.
    pub(super) fn leave_channels<R: Reactor>(&mut self, reactor: &R, id: Id<PushSession>) {
        let key = Key::of_session(id);
        self.with_client(reactor, id, 0, |connection, context| {
            connection.leave_all(context.hub, context.settings, (context.index, key));
        });
    }

    /// Ends the connection of a client of the client protocol with a code.
    pub(super) fn disconnect_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        disconnect: Disconnect,
    ) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let Kind::Client { link, .. } = &session.kind else { return };
        match *link {
            Link::Socket(socket) => self.disconnect(reactor, socket, disconnect),
            Link::Stream(stream) => {
                let Disconnect { code, reason } = disconnect;
                self.end_stream(reactor, id, stream.framing, Some((code, reason)));
            }
        }
    }

    /// Ends the connection and the subscriptions of a client with a code and a reason.
    pub(super) fn close_push_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        code: u16,
        reason: &str,
    ) {
        self.forget_queue(Key::of_session(id));
        self.leave_channels(reactor, id);
        let socket = self.push.sessions.find(id).and_then(PushSession::socket);
        match (socket, self.framing_of(id)) {
            (Some(socket), _) => {
                let code = CloseCode::new(code).unwrap_or(CloseCode::INTERNAL_ERROR);
                self.close_websocket(reactor, socket, Close { code, reason });
            }
            (None, Some(framing)) => self.end_stream(reactor, id, framing, Some((code, reason))),
            (None, None) => {}
        }
    }

    /// Ends a WebSocket connection with a code.
    pub(super) fn disconnect<R: Reactor>(
        &mut self,
        reactor: &mut R,
        socket: Id<WebSocket>,
        Disconnect { code, reason }: Disconnect,
    ) {
        let code = CloseCode::new(code).unwrap_or(CloseCode::INTERNAL_ERROR);
        self.close_websocket(reactor, socket, Close { code, reason });
    }
}

/// The encoding that a client has chosen with its subprotocol, or else in its URL.
fn choose_codec(subprotocol: Option<&str>, query: Option<&str>) -> Codec {
    let states = |name| parameters(query.unwrap_or_default(), name).any(|v| v == "protobuf");
    let is_protobuf = match subprotocol {
        Some(name) => name == HUB_PROTOBUF,
        None => states("cf_protocol") || states("format"),
    };
    if is_protobuf { Codec::Protobuf } else { Codec::Json }
}

/// The kind of WebSocket messages that an encoding uses.
const fn kind_of(codec: Codec) -> MessageKind {
    match codec {
        Codec::Json => MessageKind::Text,
        Codec::Protobuf => MessageKind::Binary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_is_that_of_the_subprotocol_or_of_the_url() {
        for (subprotocol, query, expected) in [
            (None, None, Codec::Json),
            (None, Some("cf_protocol_version=v2"), Codec::Json),
            (None, Some("cf_protocol=protobuf"), Codec::Protobuf),
            (None, Some("a=b&format=protobuf"), Codec::Protobuf),
            (None, Some("format=json"), Codec::Json),
            (Some("centrifuge-json"), Some("format=protobuf"), Codec::Json),
            (Some("centrifuge-protobuf"), None, Codec::Protobuf),
        ] {
            assert_eq!(choose_codec(subprotocol, query), expected, "{subprotocol:?} {query:?}");
        }
    }
}
