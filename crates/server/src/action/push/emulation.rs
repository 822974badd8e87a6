//! Clients that speak the client protocol without WebSocket: clients receive in one endless response, and send in requests to
//! `emulation`.
//! In: requests that begin a connection; requests with commands, which may reach any worker. Out: sessions; commands for the
//! worker of their session; pieces of the response.
//! Never: lets a page of another origin read a response; tells a request whether its session exists.
//! Limits: `message-max` of `[websocket]`; `queue-max` of the hub for commands that wait for a session, whose client is
//! disconnected beyond it; `COMMANDS_BYTES_MAX` between workers; `PUSH_SPAN_MAX` of a turn.
//! Invariant: the session is the action of the requester of the endless response, and ends with it. Its commands run in order,
//! and only while its client reads and has received all earlier publications. A request is answered when the worker of its
//! session has its commands, so that the next request of the client cannot overtake it.

use std::collections::VecDeque;

use tidegate_base::{Id, Moment};
use tidegate_gate::parameters::{decoded, find_parameter};
use tidegate_gate::websocket::EndpointId;
use tidegate_push::client::codec::{Codec, Push};
use tidegate_push::client::{Connection, Disconnect};
use tidegate_push::emulation::{Framing, Request, Secret, SessionName};
use tidegate_push::mail::ReplyTo;
use tidegate_reactor::Reactor;
use tidegate_wire::message::{Method, RequestHead};

use crate::action::push::request::Purpose;
use crate::action::push::{HubRequest, Key, Kind, Link, PushSession, PushState, Receiver};
use crate::answer::{Answer, Head};
use crate::carrier::Rest;
use crate::requester::Requester;
use crate::worker::Worker;

/// The cost of each piece of waiting commands in addition to its bytes.
const PIECE_BYTES: usize = 64;

/// Commands that wait for their session, or for an earlier command of it.
#[derive(Default)]
pub(super) struct WaitingCommands {
    /// The data of requests, or the rest of messages.
    pieces: VecDeque<Piece>,
    /// The bytes of `pieces`, with `PIECE_BYTES` for each.
    bytes: usize,
    /// The session waits for its turn, in `Worker::push_share` or `PushState::tokens`.
    is_listed: bool,
}

/// Commands that came together.
pub(super) struct Piece {
    data: Box<[u8]>,
    /// How many bytes of it were handled.
    used: usize,
}

impl Piece {
    pub(super) const fn new(data: Box<[u8]>) -> Self {
        Self { data, used: 0 }
    }

    fn cost_bytes(&self) -> usize {
        self.data.len() + PIECE_BYTES
    }
}

/// The response with the messages for a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) framing: Framing,
    /// The settings.
    pub(super) endpoint: EndpointId,
    /// A ping was sent since the client's last request.
    awaits_pong: bool,
}

/// Requests.
impl Worker {
    /// Begins a connection over a stream of events: the commands are in the query, or in the body of a POST.
    pub(super) fn ask_events<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, hub): (usize, u16),
    ) {
        if !matches!(head.method, Method::Get) {
            return self.ask_stream(reactor, to, head, (route, hub), Framing::Events);
        }
        let Some(origin) = self.admit_page(reactor, to, head, route) else { return };
        let stated = find_parameter(head.query.unwrap_or_default(), "cf_connect");
        let commands: Vec<u8> = stated.map(|text| decoded(text).collect()).unwrap_or_default();
        if commands.is_empty() {
            let text = "the parameter cf_connect with the connect command of the client is missing";
            return self.answer_error(reactor, to, 400, text, false);
        }
        let endpoint = self.settings_of(to).websockets.of_route(route);
        let Some(fields) = self.repeated_fields(reactor, to, head, hub) else { return };
        let nothing = Box::default();
        let framing = Framing::Events;
        let purpose = Purpose::Stream { framing, origin: None, endpoint, fields: nothing };
        let kind = Kind::Request(Box::new(HubRequest { purpose, body: Vec::new() }));
        let Some(id) = self.insert_session(reactor, to, hub, kind) else { return };
        self.begin_stream(reactor, id, (framing, endpoint, fields), origin, &commands);
    }

    /// Begins a connection whose first commands are in the body of the request.
    pub(super) fn ask_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, hub): (usize, u16),
        framing: Framing,
    ) {
        let Some(origin) = self.admit_page(reactor, to, head, route) else { return };
        if !matches!(head.method, Method::Post) {
            return self.answer_error(reactor, to, 405, "use POST", false);
        }
        let framing = match codec_of(head) {
            Codec::Protobuf if framing == Framing::Lines => Framing::Protobuf,
            Codec::Protobuf | Codec::Json => framing,
        };
        let endpoint = self.settings_of(to).websockets.of_route(route);
        let Some(fields) = self.repeated_fields(reactor, to, head, hub) else { return };
        let origin = origin.map(Into::into);
        let purpose = Purpose::Stream { framing, origin, endpoint, fields };
        self.begin_with_body(reactor, to, head, hub, purpose);
    }

    /// Begins a request with commands of a client.
    pub(super) fn ask_commands<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, hub): (usize, u16),
    ) {
        let Some(origin) = self.admit_page(reactor, to, head, route) else { return };
        if !matches!(head.method, Method::Post) {
            return self.answer_error(reactor, to, 405, "use POST", false);
        }
        let endpoint = self.settings_of(to).websockets.of_route(route);
        let origin = origin.map(Into::into);
        let purpose = Purpose::Commands { codec: codec_of(head), origin, endpoint };
        self.begin_with_body(reactor, to, head, hub, purpose);
    }

    /// Hands the commands of a complete request to the worker of their session.
    pub(super) fn hand_over_commands<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        codec: Codec,
        origin: Option<&str>,
        body: &[u8],
    ) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let (to, retry) = (session.requester, self.retry_of(session.hub));
        let Ok(request) = Request::decode(codec, body) else {
            self.forget_session(id);
            let text = "the body must contain `session`, `node` and `data`";
            return self.answer_error(reactor, to, 400, text, false);
        };
        let Some(worker) = request.node.parse().ok().filter(|worker| self.is_worker(*worker))
        else {
            self.forget_session(id);
            return self.answer_error(reactor, to, 404, "there is no such node", false);
        };
        if let Some(session) = self.push.sessions.get_mut(id) {
            session.kind = Kind::Commands { origin: origin.map(Into::into) };
        }
        let Some(SessionName { key: (index, generation), secret }) =
            SessionName::parse(&request.session)
        else {
            return self.confirm_commands(reactor, id);
        };
        let client = Key::new(index, generation);
        let data = request.data.into_boxed_slice();
        if worker == self.push.hub.worker() {
            self.confirm_commands(reactor, id);
            return self.take_commands(reactor, client, secret, data);
        }
        if !self.forward_commands(worker, Key::of_session(id), (client, secret), data) {
            self.forget_session(id);
            self.accounts.counters.push_refused_commands.add(1);
            self.answer_later(reactor, to, retry, "too many requests", false);
        }
    }

    /// Sends commands to another worker, which replies to `from`. Returns false if too many are on their way.
    fn forward_commands(
        &mut self,
        worker: u16,
        from: Key,
        to: (Key, Secret),
        data: Box<[u8]>,
    ) -> bool {
        let PushState { hub, post: Some(post), .. } = &mut self.push else { return false };
        if !post.reserve_bytes(worker, &data) {
            return false;
        }
        let from = ReplyTo::Caller { key: from, number: 0 };
        hub.forward(worker, from, to, data)
            .map_err(|data| post.release_bytes(worker, &data))
            .is_ok()
    }

    /// Answers a request whose commands have reached the worker of their session. The response does not reveal whether the
    /// session exists.
    pub(super) fn confirm_commands<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get_mut(id) else { return };
        let to = session.requester;
        let Kind::Commands { origin } = &mut session.kind else { return };
        let origin = origin.take();
        self.forget_session(id);
        let answer = Answer::Json { status: 204, body: b"", origin: origin.as_deref() };
        self.answer(reactor, to, &answer, false);
    }

    fn is_worker(&self, worker: u16) -> bool {
        worker == self.push.hub.worker()
            || self.push.post.as_ref().is_some_and(|post| usize::from(worker) < post.workers())
    }
}

/// Sessions.
impl Worker {
    /// Begins the endless response of a client whose request, which is the session `id`, is complete.
    pub(super) fn begin_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        (framing, endpoint, fields): (Framing, EndpointId, Box<[u8]>),
        origin: Option<&str>,
        commands: &[u8],
    ) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let (to, retry) = (session.requester, self.retry_of(session.hub));
        if self.stopping {
            self.forget_session(id);
            return self.answer_later(reactor, to, retry, "the server is stopping", true);
        }
        self.push.secrets += 1;
        let secret = Secret(self.secret.secret_of_session(self.push.secrets));
        let name = SessionName { key: Key::of_session(id).parts(), secret };
        let random = [self.prng.next_u64(), self.prng.next_u64()];
        let worker = self.push.hub.worker();
        let connection = Connection::new(framing.codec(), random).emulated(&name, worker);
        let transport = if framing == Framing::Events { "sse" } else { "http_stream" };
        let hub = self.push.sessions.find(id).map_or(0, |session| session.hub);
        let connection = self.with_backend_fields(connection, hub, (transport, fields));
        let link = Link::Stream(Stream { framing, endpoint, awaits_pong: false });
        let check_at = self.next_check_at(reactor, endpoint);
        let Some(session) = self.push.sessions.get_mut(id) else { return };
        session.kind = Kind::Client { link, connection: Box::new(connection), check_at };
        let hub = session.hub;
        self.accounts.counters.push_clients_now.add(1);
        self.begin_age(reactor, hub, Key::of_session(id), Moment::NEVER);
        let content_type = framing.content_type();
        self.begin_response(reactor, to, &Head::Stream { content_type, origin }, Rest::Unwanted);
        if !framing.start().is_empty() {
            self.send_data(reactor, to, framing.start());
        }
        self.add_commands(reactor, id, commands.into());
    }

    /// Commands for a client of this worker have arrived, perhaps through another worker.
    pub(super) fn take_commands<R: Reactor>(
        &mut self,
        reactor: &mut R,
        key: Key,
        secret: Secret,
        commands: Box<[u8]>,
    ) {
        let Receiver::Session(id) = key.receiver() else { return };
        let Some(session) = self.push.sessions.find_mut(id) else { return };
        if let Kind::Client { link: Link::Stream(stream), connection, .. } = &mut session.kind
            && connection.is_named_by(secret)
        {
            stream.awaits_pong = false;
            self.add_commands(reactor, id, commands);
        }
    }

    /// Queues commands after those that wait already, and runs them if it is their turn.
    fn add_commands<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        commands: Box<[u8]>,
    ) {
        if commands.is_empty() {
            return;
        }
        let Some(session) = self.push.sessions.get(id) else { return };
        let of = session.hub;
        let bytes_max = self.push.settings.get(of).map_or(0, |hub| hub.queue.bytes_max);
        let waiting = self.push.commands.entry(Key::of_session(id)).or_default();
        let piece = Piece::new(commands);
        let bytes = waiting.bytes + piece.cost_bytes();
        if !waiting.pieces.is_empty() && bytes > bytes_max {
            self.count_slow_close(of);
            return self.disconnect_slow(reactor, Key::of_session(id));
        }
        waiting.bytes = bytes;
        waiting.pieces.push_back(piece);
        self.run_waiting_commands(reactor, id);
    }

    /// The turn of a session whose commands have waited.
    pub(super) fn resume_commands<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        if let Some(waiting) = self.push.commands.get_mut(&Key::of_session(id)) {
            waiting.is_listed = false;
        }
        self.run_waiting_commands(reactor, id);
    }

    /// Runs the commands that wait for a session, while its client reads and within their share of the turn.
    pub(super) fn run_waiting_commands<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
    ) {
        let key = Key::of_session(id);
        while let Some(session) = self.push.sessions.find(id) {
            let to = session.requester;
            if self.is_client_closing(session) {
                self.push.commands.remove(&key);
                return;
            }
            // The decision, or the last owner, continues.
            if session.is_waiting() {
                return;
            }
            let is_socket = session.socket().is_some();
            // `resume_session` continues.
            if self.is_client_held(to) || self.push.queues.contains_key(&key) {
                return;
            }
            let Some(waiting) = self.push.commands.get_mut(&key) else {
                if is_socket {
                    // Messages after them were not read.
                    self.resume_request(to);
                }
                return;
            };
            if waiting.is_listed {
                return;
            }
            if self.push.share.is_used_up() {
                waiting.is_listed = true;
                return self.push.share.put_off(to.sock, id);
            }
            let Some(piece) = waiting.pieces.pop_front() else { return };
            waiting.bytes -= piece.cost_bytes();
            if waiting.pieces.is_empty() {
                self.push.commands.remove(&key);
            }
            let began = reactor.read_clock();
            self.run_commands(reactor, id, piece);
            self.push.share.note_call(reactor.read_clock().since(began));
        }
    }

    fn run_commands<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>, mut piece: Piece) {
        let mut out = self.buffers.take();
        let room = self.room_of_client(reactor, id);
        let effort_before = self.push.effort();
        let result = self.with_client(reactor, id, room, |connection, context| {
            connection.receive(context, &piece.data[piece.used..], &mut out)
        });
        self.send_to_client(reactor, id, &out);
        self.buffers.put(out);
        match result {
            Some(Err(disconnect)) => return self.disconnect_client(reactor, id, disconnect),
            Some(Ok(used)) => {
                piece.used += used;
                if piece.used < piece.data.len() {
                    self.keep_commands(id, piece);
                    self.await_push_turn(id, effort_before);
                }
            }
            None => return,
        }
        self.end_failed_stream(reactor, id);
        if self.push.sessions.find(id).is_some() {
            self.arm_stream(reactor, id);
        }
    }

    /// Keeps the rest of a message after a command that waits.
    pub(super) fn keep_commands(&mut self, id: Id<PushSession>, rest: Piece) {
        let waiting = self.push.commands.entry(Key::of_session(id)).or_default();
        waiting.bytes += rest.cost_bytes();
        waiting.pieces.push_front(rest);
        self.push.lets_commands_wait = true;
    }

    /// Lets a session wait for its turn, unless a command before it waits: its commands have taken much effort since
    /// `effort_before`, or the next one has a token.
    pub(super) fn await_push_turn(&mut self, id: Id<PushSession>, effort_before: u32) {
        let must_pause = self.push.must_pause(effort_before);
        let PushState { sessions, commands, share, tokens, .. } = &mut self.push;
        let Some(session) = sessions.find(id).filter(|session| !session.is_waiting()) else {
            return;
        };
        let Some(waiting) = commands.get_mut(&Key::of_session(id)) else { return };
        if core::mem::replace(&mut waiting.is_listed, true) {
            return;
        }
        match must_pause {
            true => share.put_off(session.requester.sock, id),
            false => {
                tokens.put_off(session.requester.sock, id);
                self.accounts.counters.tokens_put_off.add(1);
            }
        }
    }

    /// Ends the response to a client whose `connect` has failed.
    pub(super) fn end_failed_stream<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.find(id) else { return };
        // The reply is an error, such as that of an expired token. The client begins another connection.
        if session.has_failed()
            && let Some(framing) = self.framing_of(id)
        {
            self.end_stream(reactor, id, framing, None);
        }
    }

    /// The framing of a client without WebSocket.
    pub(super) fn framing_of(&self, id: Id<PushSession>) -> Option<Framing> {
        match &self.push.sessions.get(id)?.kind {
            Kind::Client { link: Link::Stream(stream), .. } => Some(stream.framing),
            Kind::Client { link: Link::Socket(_), .. }
            | Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_)
            | Kind::Events { .. }
            | Kind::Poll { .. } => None,
        }
    }

    /// Sends messages of the codec over a stream.
    pub(super) fn send_to_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        framing: Framing,
        messages: &[u8],
    ) {
        let mut piece = self.buffers.take();
        framing.encode(&mut piece, messages);
        self.send_data(reactor, to, &piece);
        self.buffers.put(piece);
        if !self.is_client_held(to) && self.is_client_blocked(reactor, to) {
            self.hold_client(reactor, to);
        }
    }

    /// Tells the client why its connection ends, unless a reply has already done so, and ends it.
    pub(super) fn end_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        framing: Framing,
        why: Option<(u16, &str)>,
    ) {
        let Some(to) = self.push.sessions.get(id).map(PushSession::requester) else { return };
        self.forget_session(id);
        let (mut push, mut piece) = (self.buffers.take(), self.buffers.take());
        if let Some((code, reason)) = why {
            framing.codec().encode_push(&mut push, &Push::Disconnected { code, reason });
            framing.encode(&mut piece, &push);
        }
        self.end_response(reactor, to, &piece, b"");
        self.release_requester(reactor, to);
        self.buffers.put(push);
        self.buffers.put(piece);
    }

    /// The deadline of a stream has passed: the client gets a ping, unless it has not answered the last one.
    pub(super) fn ping_stream<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get_mut(id) else { return };
        let Kind::Client { link: Link::Stream(stream), check_at, .. } = &mut session.kind else {
            return;
        };
        if stream.awaits_pong {
            self.accounts.counters.websocket_timeouts.add(1);
            return self.disconnect_client(reactor, id, Disconnect::NO_PONG);
        }
        if reactor.now() >= *check_at
            && self.check_client(reactor, id)
            && let Some(session) = self.push.sessions.find_mut(id)
            && let Kind::Client { link: Link::Stream(stream), .. } = &mut session.kind
        {
            stream.awaits_pong = true;
        }
        if self.push.sessions.find(id).is_some() {
            self.arm_stream(reactor, id);
        }
    }

    /// The client of a stream reads again: checks its tokens if that is due, because the time in which the client may read has
    /// replaced the deadline of the check. Whether it has answered the last ping is not known, because the ping may wait for it.
    pub(super) fn check_resumed_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
    ) {
        if self.is_client_check_due(reactor, id)
            && self.check_client(reactor, id)
            && let Some(session) = self.push.sessions.find_mut(id)
            && let Kind::Client { link: Link::Stream(stream), .. } = &mut session.kind
        {
            stream.awaits_pong = true;
        }
        if self.push.sessions.find(id).is_some() {
            self.arm_stream(reactor, id);
        }
    }

    /// Sets the deadline of a stream: the next ping, or the end of the wait for a pong.
    pub(super) fn arm_stream<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let to = session.requester;
        let Kind::Client { link: Link::Stream(stream), check_at, .. } = &session.kind else {
            return;
        };
        let (Stream { endpoint, awaits_pong, .. }, check_at) = (*stream, *check_at);
        // The carrier's deadline limits how long a client may not read.
        if self.is_client_held(to) {
            return;
        }
        let endpoint = self.settings.newest().websockets.get(endpoint);
        // Messages of the client do not postpone the check.
        let at = if awaits_pong { reactor.now().after(endpoint.pong_timeout) } else { check_at };
        self.set_action_deadline(reactor, to, at);
    }
}

/// The encoding of a request.
fn codec_of(head: &RequestHead<'_>) -> Codec {
    match head.find_named("content-type") {
        Some(kind) if kind.eq_ignore_ascii_case(b"application/octet-stream") => Codec::Protobuf,
        Some(_) | None => Codec::Json,
    }
}
