//! The action `push`: connects clients with a hub.
//!
//! - `subscribe.rs`: subscriptions by URL, over WebSocket, as a stream of events, or by long polls; `url_token.rs`: their tokens
//! - `client.rs`: clients that speak Centrifugo's client protocol
//! - `emulation.rs`: clients that speak it without WebSocket, over HTTP streaming or streams of events
//! - `backend.rs`, `lua_backend.rs`: events of clients that are sent to the application's backend
//! - `request.rs`: requests whose body must arrive; `api.rs`: those of the application to the server API
//! - `delivery.rs`: publications on their way to the subscribers of this worker, a slice each turn
//! - `ages.rs`: connections with a maximum age
//! - `instruct.rs`: instructions of the application about clients
//! - `post.rs`: mail between the workers
//! - `lua.rs`: calls of Lua applications
//!
//! In: requests of a push route; events of their requesters; publications. Out: responses, messages, mail.
//! Never: decides which subscribers get a publication (`tidegate_push` does).
//! Limits: `DELIVERY_BYTES_PER_TURN_MAX`; for commands of clients `PUSH_EFFORT_PER_TURN_MAX` over WebSocket, and
//! `PUSH_SPAN_MAX` in requests; `TOKENS_SPAN_MAX` for signatures by public keys; the hub's settings.
//! Invariant: every session has a requester or belongs to a WebSocket connection; its subscriptions end with it.

mod ages;
mod api;
mod backend;
mod client;
mod delivery;
mod emulation;
mod instruct;
mod lua;
mod lua_backend;
mod post;
mod request;
mod subscribe;
mod url_token;

use core::num::NonZeroU32;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_base::limits::PUSH_EFFORT_PER_TURN_MAX;
use tidegate_base::{Id, Moment, Slab, Span};
use tidegate_config::model::{PathPattern, PushRoute};
use tidegate_gate::access::Cause;
use tidegate_gate::denial::Denial;
use tidegate_push::ages::Ages;
use tidegate_push::api::ApiCall;
use tidegate_push::client::{Connection, Disconnect};
use tidegate_push::emulation::Framing;
use tidegate_push::hub::{Hub, HubFigures, Instance};
use tidegate_push::local::SubscriptionId;
use tidegate_push::position::Position;
use tidegate_push::queue::Queue;
use tidegate_push::settings::Hubs;
use tidegate_push::token::Verifier;
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;

use crate::action::intake::Intake;
use crate::action::push::backend::BackendCalls;
use crate::action::push::emulation::{Stream, WaitingCommands};
use crate::action::push::request::Purpose;
use crate::action::push::url_token::Unverified;
use crate::action::websocket::WebSocket;
use crate::answer::Answer;
use crate::carrier::internal_request::InternalRequests;
use crate::checked_slab::CheckedSlab;
use crate::record::CLIENT_LEFT;
use crate::requester::Requester;
use crate::turn_share::{PUSH_SPAN_MAX, TOKENS_SPAN_MAX, TurnShare};
use crate::worker::Worker;

pub(crate) use backend::HubCall;
pub(crate) use lua::LuaCall;
pub(crate) use lua_backend::LuaEvent;
pub use post::{PUSH_MAILS_MAX, PushMail, PushPost, no_bytes_in_flight};

/// The parameter of the query that contains the token of a client that subscribes by URL.
pub(crate) const TOKEN_PARAMETER: &str = "token";

/// Clients of a hub that were refused together are spread over `retry` times this factor.
const RETRY_SPREAD: u64 = 4;

/// The state of the push hubs of a worker.
pub(crate) struct PushState {
    /// The settings of the hubs, which stay as they were at the start of the worker, except for keys.
    settings: Arc<Hubs>,
    /// The requests to hubs. Each one belongs to exactly one requester.
    pub(crate) sessions: CheckedSlab<PushSession>,
    /// The rest of the turn's share for requests to hubs and the client commands in them, and the sessions that wait for
    /// the next turn.
    pub(crate) share: TurnShare<PushSession>,
    /// Channels and subscribers.
    hub: Hub<Key>,
    /// The messages that wait for clients that do not read. Never contains an empty queue.
    queues: BTreeMap<Key, Queue>,
    /// The commands that wait: those of sessions without WebSocket, and the rest of a message of a session whose earlier
    /// command waits for the backend, or whose next one has a token that is verified later. Never contains an empty one.
    commands: BTreeMap<Key, WaitingCommands>,
    /// When connections with a maximum age end.
    ages: Ages<Key>,
    /// The number of sessions so far that got a secret.
    secrets: u64,
    /// Scratch space for the subscribers of a slice. Empty between two slices.
    keys: Vec<Key>,
    /// The cost of the compressions for all subscribers since the end of the last slice, in bytes that the kernel copies in the
    /// same time.
    compression_cost_bytes: usize,
    /// The exchange of mail with other workers; `None` if this is the only worker.
    post: Option<PushPost>,
    /// When the next sweep is due. `NEVER` if there is no hub.
    sweep_at: Moment,
    /// When a message of a conflated channel is due or a connection must end, as set in the reactor.
    due_at: Moment,
    /// The effort of all commands of clients so far, modulo 2^32.
    effort: u32,
    /// The calls to the users' own backends.
    backend: BackendCalls,
    /// A hub has a backend.
    has_backends: bool,
    /// A hub lets commands of clients wait.
    lets_commands_wait: bool,
    /// The verifier of the tokens of clients.
    verifier: Verifier,
    /// The rest of the turn's share for the verification of signatures by public keys, and the sessions that wait for the
    /// next turn.
    tokens: TurnShare<PushSession>,
}

/// Names the receiver of publications or replies of a hub. In 8 bytes, and with a value left for `None`, because a channel may
/// have millions of subscribers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The index in its table, with the bit of the table.
    index: u32,
    generation: NonZeroU32,
}

const _: () = assert!(size_of::<Option<Key>>() <= 8);

/// The receiver that a [`Key`] names.
enum Receiver {
    /// A WebSocket connection in raw mode.
    Raw(Id<WebSocket>),
    /// A session.
    Session(Id<PushSession>),
    /// A call of a Lua application, which gets replies only.
    Call(Id<LuaCall>),
}

impl Key {
    /// The bit of a session. Tables have far fewer places.
    const SESSION: u32 = 1 << 31;
    /// The bit of a call.
    const CALL: u32 = 1 << 30;

    const fn of_raw(id: Id<WebSocket>) -> Self {
        Self::new(id.index & !(Self::SESSION | Self::CALL), id.generation)
    }

    const fn of_session(id: Id<PushSession>) -> Self {
        Self::new(id.index | Self::SESSION, id.generation)
    }

    const fn of_call(id: Id<LuaCall>) -> Self {
        Self::new(id.index & !Self::SESSION | Self::CALL, id.generation)
    }

    /// The key with these parts, which a client may have made up.
    const fn new(index: u32, generation: u32) -> Self {
        match NonZeroU32::new(generation) {
            Some(generation) => Self { index, generation },
            // The id names nothing. No table has this place.
            None => Self { index: u32::MAX, generation: NonZeroU32::MIN },
        }
    }

    const fn parts(self) -> (u32, u32) {
        (self.index, self.generation.get())
    }

    const fn receiver(self) -> Receiver {
        let index = self.index & !(Self::SESSION | Self::CALL);
        let generation = self.generation.get();
        if self.index & Self::SESSION != 0 {
            Receiver::Session(Id::new(index, generation))
        } else if self.index & Self::CALL != 0 {
            Receiver::Call(Id::new(index, generation))
        } else {
            Receiver::Raw(Id::new(index, generation))
        }
    }
}

/// A client of a hub, other than one in raw mode.
pub(crate) struct PushSession {
    /// The requester. It exists as long as the session, and its carrier refers to the session.
    requester: Requester,
    /// Index of the hub.
    hub: u16,
    /// How much of the request body has arrived.
    pub(crate) intake: Intake,
    /// The purpose of the request.
    kind: Kind,
}

/// The purpose of a request to a hub.
enum Kind {
    /// A request whose body arrives.
    Request(Box<HubRequest>),
    /// A request to the API that waits for replies.
    ApiCall(Box<ApiCall>),
    /// A request whose commands are on their way to the worker of their session. `origin`: of the page that may read the
    /// response.
    Commands { origin: Option<Box<str>> },
    /// A subscription by URL whose token is verified in a later turn.
    Unverified(Box<Unverified>),
    /// A stream of events. `place` is `None` until the subscription exists.
    Events { place: Option<SubscriptionId> },
    /// A long poll.
    Poll(Box<Poll>),
    /// A client that speaks the client protocol. At `check_at` its tokens are checked, whatever it sends until then.
    Client { link: Link, connection: Box<Connection>, check_at: Moment },
}

// There may be a million clients, which are of the kind `Client`. Other kinds are in boxes.
const _: () = assert!(size_of::<PushSession>() <= 72);

/// A request whose body arrives.
struct HubRequest {
    purpose: Purpose,
    body: Vec<u8>,
}

/// A long poll.
struct Poll {
    /// The subscription; `None` until it exists.
    place: Option<SubscriptionId>,
    /// The position after which the next poll continues.
    position: Option<Position>,
    /// The origin of the page that may read the response.
    origin: Option<Box<str>>,
}

/// The connection that carries the messages for a client of the client protocol.
#[derive(Clone, Copy, Debug)]
enum Link {
    /// A WebSocket connection, to which the requester belongs.
    Socket(Id<WebSocket>),
    /// The endless response to the requester.
    Stream(Stream),
}

impl PushState {
    /// The timer of conflated channels and of the ages of connections has expired, so that it must be set again, also to the same time.
    pub(crate) fn forget_due(&mut self) {
        self.due_at = Moment::NEVER;
    }

    /// The state of a worker. `place` is its number and the number of workers. It holds at most `sessions_max` sessions.
    pub(crate) fn new(settings: Arc<Hubs>, sessions_max: usize, place: (u16, u16)) -> Self {
        let (own, workers) = place;
        let has_backends = settings.has_backends();
        let lets_commands_wait = settings.lets_commands_wait();
        let verifier = Verifier::new(&settings);
        let sweep_at = if settings.is_empty() { Moment::NEVER } else { Moment::ZERO };
        Self {
            sessions: CheckedSlab::reserved(sessions_max),
            share: TurnShare::new(PUSH_SPAN_MAX),
            hub: Hub::new(&settings, own, workers),
            settings,
            queues: BTreeMap::new(),
            commands: BTreeMap::new(),
            ages: Ages::default(),
            secrets: 0,
            keys: Vec::new(),
            compression_cost_bytes: 0,
            post: None,
            sweep_at,
            due_at: Moment::NEVER,
            effort: 0,
            backend: BackendCalls::default(),
            has_backends,
            lets_commands_wait,
            verifier,
            tokens: TurnShare::new(TOKENS_SPAN_MAX),
        }
    }

    /// Takes over the keys of tokens and of the server API, if these are settings of the same hubs.
    pub(crate) fn change_keys(&mut self, settings: &Arc<Hubs>) {
        if !settings.has_hubs_of(&self.settings) {
            return;
        }
        self.verifier = Verifier::new(settings);
        // Commands may wait already.
        self.lets_commands_wait |= settings.lets_commands_wait();
        self.settings = Arc::clone(settings);
    }

    /// Whether publications are being delivered, instructions carried out, or tokens waiting, so that the next turn must not
    /// wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.hub.is_delivering()
            || self.hub.is_instructing()
            || self.backend.is_busy()
            || self.hub.has_emptied()
            || self.tokens.has_waiting()
    }

    /// The effort of all commands of clients so far, for `must_yield`.
    pub(crate) const fn effort(&self) -> u32 {
        self.effort
    }

    /// Whether a client of the client protocol must wait for the next turn. `effort_before`: `effort` when the client
    /// began to be served in this turn.
    pub(crate) fn must_yield(&self, effort_before: u32) -> bool {
        let is_much_mail = || {
            let waits = self.post.as_ref().map_or(0, |post| post.mailbox.len());
            waits >= PUSH_MAILS_MAX / 2 || self.hub.is_congested()
        };
        self.must_pause(effort_before) || is_much_mail()
    }

    /// Whether the commands since `effort_before` have taken so much effort that other clients are served first.
    fn must_pause(&self, effort_before: u32) -> bool {
        self.effort.wrapping_sub(effort_before) >= PUSH_EFFORT_PER_TURN_MAX
    }

    /// The worker's figures of each hub.
    pub(crate) fn figures(&self) -> Vec<HubFigures> {
        (0..self.settings.len() as u16).map(|hub| self.hub.figures(hub)).collect()
    }

    /// The number of connected clients of the client protocol.
    pub(crate) fn clients(&self) -> usize {
        self.hub.clients()
    }

    /// The number of subscriptions.
    pub(crate) fn subscriptions(&self) -> usize {
        self.hub.subscriptions()
    }

    /// The number of events for backends that wait or are on their way.
    pub(crate) fn events(&self) -> usize {
        self.backend.notices()
    }

    /// Whether all commands that wait are those of clients, for checks.
    pub(crate) fn has_waiting_commands_only_of(&self, sessions: &CheckedSlab<PushSession>) -> bool {
        self.commands.keys().all(|key| match key.receiver() {
            Receiver::Session(id) => sessions.find(id).is_some_and(PushSession::is_client),
            Receiver::Raw(_) | Receiver::Call(_) => false,
        })
    }

    /// Whether all connections with a maximum age exist, for checks.
    pub(crate) fn has_ages_only_of(
        &self,
        sessions: &CheckedSlab<PushSession>,
        sockets: &CheckedSlab<WebSocket>,
    ) -> bool {
        self.ages.keys().all(|key| match key.receiver() {
            Receiver::Session(id) => sessions.find(id).is_some(),
            Receiver::Raw(id) => sockets.find(id).is_some(),
            Receiver::Call(_) => false,
        })
    }

    /// Whether the calls to backends belong to sessions that wait for them, for checks.
    pub(crate) fn has_consistent_calls(
        &self,
        sessions: &CheckedSlab<PushSession>,
        others: (&InternalRequests, &Slab<LuaEvent>),
    ) -> bool {
        self.backend.is_consistent(sessions, others)
    }

    /// The number of clients for which messages wait, whose commands wait, which wait for a backend, or which have a maximum
    /// age.
    pub(crate) fn queues(&self) -> usize {
        self.queues.len() + self.commands.len() + self.backend.len() + self.ages.keys().count()
    }
}

impl PushSession {
    /// The requester of the session.
    pub(crate) fn requester(&self) -> Requester {
        self.requester
    }

    /// The number of channels that the session is subscribed to.
    pub(crate) fn subscriptions(&self) -> usize {
        match &self.kind {
            Kind::Client { connection, .. } => connection.subscriptions(),
            Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_)
            | Kind::Events { .. }
            | Kind::Poll { .. } => usize::from(self.place().is_some()),
        }
    }

    /// The WebSocket connection of the session.
    pub(crate) fn socket(&self) -> Option<Id<WebSocket>> {
        match &self.kind {
            Kind::Client { link: Link::Socket(socket), .. } => Some(*socket),
            Kind::Client { link: Link::Stream(_), .. }
            | Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_)
            | Kind::Events { .. }
            | Kind::Poll { .. } => None,
        }
    }

    /// Whether the session is that of a client of the client protocol.
    pub(crate) fn is_client(&self) -> bool {
        matches!(self.kind, Kind::Client { .. })
    }

    /// Whether an instruction for the session of this name concerns the client; empty: for all sessions.
    fn is_concerned(&self, name: &str) -> bool {
        let is_named = |connection: &Connection| name.is_empty() || connection.is_session(name);
        matches!(&self.kind, Kind::Client { connection, .. } if is_named(connection))
    }

    /// Whether `connect` of the client has failed.
    fn has_failed(&self) -> bool {
        matches!(&self.kind, Kind::Client { connection, .. } if connection.has_failed())
    }

    /// Whether the client has not completed `connect` of the client protocol.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(&self.kind, Kind::Client { connection, .. } if !connection.is_connected())
    }

    fn place(&self) -> Option<SubscriptionId> {
        match &self.kind {
            Kind::Events { place } => *place,
            Kind::Poll(poll) => poll.place,
            Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_)
            | Kind::Client { .. } => None,
        }
    }
}

/// Requests and events of their requesters.
impl Worker {
    /// Begins a request on a push route.
    pub(super) fn begin_push<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        route: usize,
        push: &PushRoute,
    ) {
        self.hide_token(to);
        let snapshot = self.settings_of(to);
        // The channels of a hub outlive the generation of settings that the route belongs to.
        let name = snapshot.config.push.get(push.hub).map_or("", |hub| &hub.name);
        let Some(hub) = self.push.settings.find(name) else {
            let text = "this hub is available only after a restart of the process";
            return self.answer_error(reactor, to, 503, text, false);
        };
        if let Some(channel) = &push.channel {
            return self.begin_subscription(reactor, to, head, (route, hub), channel);
        }
        let rest = rest_of_path(&snapshot.route(route).paths, head.path);
        if let Some(channel) = rest.strip_prefix("subscribe/") {
            match decode_percent(channel) {
                Some(channel) => {
                    self.begin_subscription(reactor, to, head, (route, hub), &channel);
                }
                None => self.answer_error(
                    reactor,
                    to,
                    400,
                    "the name of the channel is not valid percent-encoded UTF-8",
                    false,
                ),
            }
        } else if rest == "connection/websocket" {
            self.begin_client(reactor, to, head, (route, hub));
        } else if rest == "connection/http_stream" {
            self.ask_stream(reactor, to, head, (route, hub), Framing::Lines);
        } else if rest == "connection/sse" {
            self.ask_events(reactor, to, head, (route, hub));
        } else if rest == "emulation" {
            self.ask_commands(reactor, to, head, (route, hub));
        } else if let Some(method) = rest.strip_prefix("api/") {
            self.begin_api(reactor, to, head, hub, method);
        } else {
            let text = "this hub serves connection/{websocket,http_stream,sse}, emulation, subscribe/CHANNEL and api/METHOD";
            self.answer_error(reactor, to, 404, text, false);
        }
    }

    /// Refuses a request that may succeed later. Retry-After spreads the clients that were refused together.
    pub(super) fn answer_later<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        retry: Span,
        text: &'static str,
        closes: bool,
    ) {
        let retry_ms = retry.as_millis() as u64;
        let spread_ms = self.prng.below((RETRY_SPREAD * retry_ms).max(1));
        let retry_after = (retry_ms + spread_ms).div_ceil(1000);
        self.blame(to, Cause::of_status(503), text);
        let denial = Denial { retry_after, ..Denial::new(503, text) };
        self.answer(reactor, to, &Answer::Denied(denial), closes);
    }

    /// How long clients of a hub wait at least before they try again.
    fn retry_of(&self, hub: u16) -> Span {
        self.push.settings.get(hub).map_or(Span::ZERO, |hub| hub.push.retry)
    }

    /// Stores a session and makes it the action of its requester.
    fn insert_session<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        hub: u16,
        kind: Kind,
    ) -> Option<Id<PushSession>> {
        let session = PushSession { requester: to, hub, intake: Intake::NONE, kind };
        let Ok(id) = self.push.sessions.insert(session) else {
            let text = "the proxy is handling too many requests";
            self.answer_later(reactor, to, self.retry_of(hub), text, true);
            return None;
        };
        self.set_running(to, super::Running::Push(id));
        Some(id)
    }

    /// Whether the session waits for the request body.
    pub(super) fn session_expects_body(&self, id: Id<PushSession>) -> bool {
        self.push
            .sessions
            .get(id)
            .is_some_and(|session| matches!(session.kind, Kind::Request { .. }))
    }

    /// The deadline of a session has passed.
    pub(super) fn session_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get(id) else { return };
        match &session.kind {
            Kind::Events { .. } => self.send_heartbeat(reactor, id),
            Kind::Poll { .. } => self.answer_poll(reactor, id, &[], false),
            Kind::Unverified(_) => self.unverified_due(reactor, id),
            Kind::Client { .. } => self.ping_stream(reactor, id),
            Kind::Request { .. } | Kind::ApiCall(_) | Kind::Commands { .. } => {}
        }
    }

    /// The client has ended its direction of the connection: a client that waits for events has disconnected.
    pub(super) fn session_half_closed<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let to = session.requester;
        match &session.kind {
            Kind::Events { .. }
            | Kind::Poll { .. }
            | Kind::Unverified(_)
            | Kind::Client { link: Link::Stream(_), .. } => {
                self.abandon_client(reactor, to, Cause::Client, CLIENT_LEFT);
            }
            Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Client { link: Link::Socket(_), .. } => {}
        }
    }

    /// The process stops: streams end and long polls return without a message, so that their clients connect to the
    /// process that takes over, with the position that they have reached. Streams, like WebSocket connections, end when it is
    /// their turn, so that their clients do not all connect again at the same moment.
    pub(crate) fn end_waiting_sessions<R: Reactor>(&mut self, reactor: &mut R) {
        let waiting: Vec<_> = self.push.sessions.iter().map(|(id, _)| id).collect();
        for id in waiting {
            // The end of one session may have ended another one.
            let Some(session) = self.push.sessions.find(id) else { continue };
            let is_due = self.stop.drain.is_due(session.requester.sock);
            match &session.kind {
                Kind::Events { .. } if is_due => self.end_events(reactor, id),
                Kind::Poll { .. } => self.answer_poll(reactor, id, &[], false),
                Kind::Unverified(_) => self.unverified_due(reactor, id),
                Kind::Client { link: Link::Stream(_), .. } if is_due => {
                    self.disconnect_client(reactor, id, Disconnect::SHUTDOWN);
                }
                Kind::Events { .. } | Kind::Client { link: Link::Stream(_), .. } => {}
                // Their WebSocket connection is closed.
                Kind::Client { link: Link::Socket(_), .. } => {}
                Kind::Request { .. } | Kind::ApiCall(_) | Kind::Commands { .. } => {}
            }
        }
    }

    /// Ends a stream of events, so that its client begins another one with the position that it has reached.
    fn end_events<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(to) = self.push.sessions.get(id).map(PushSession::requester) else { return };
        self.forget_session(id);
        self.end_response(reactor, to, b"", b"");
        self.release_requester(reactor, to);
    }

    /// Gives back everything that a session holds.
    pub(super) fn forget_session(&mut self, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.remove(id) else { return };
        let key = Key::of_session(id);
        let counters = &self.accounts.counters;
        counters.push_subscriptions_now.sub(session.subscriptions() as u64);
        let PushState { hub, settings, .. } = &mut self.push;
        if let Some(place) = session.place() {
            hub.unsubscribe(settings, place, key, None);
        }
        match session.kind {
            Kind::Request(request) => self.buffers.put(request.body),
            Kind::Client { mut connection, .. } => {
                counters.push_clients_now.sub(1);
                connection.leave_all(hub, settings, (session.hub, key));
                self.push.backend.forget(key);
                self.tell_departure(session.hub, &connection);
            }
            Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_)
            | Kind::Events { .. }
            | Kind::Poll { .. } => {}
        }
        self.forget_queue(key);
        self.push.ages.forget(key);
        self.push.commands.remove(&key);
    }

    /// The time, and random bits.
    fn instance<R: Reactor>(&mut self, reactor: &R) -> Instance {
        (reactor.now(), self.prng.next_u64())
    }
}

/// The path after the prefix of the pattern that matches it; without patterns, the path without its first slash.
fn rest_of_path<'p>(patterns: &[PathPattern], path: &'p str) -> &'p str {
    let after = |pattern: &PathPattern| match pattern {
        PathPattern::Below(prefix) => path.strip_prefix(prefix.as_str()),
        PathPattern::Exact(_) | PathPattern::Segments { .. } => None,
    };
    match patterns {
        [] => path.strip_prefix('/').unwrap_or_default(),
        patterns => patterns.iter().find_map(after).unwrap_or_default(),
    }
}

/// Decodes the percent-encoding of a path; `None` if the result is not text.
fn decode_percent(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = core::str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_contains_the_id_that_it_was_made_from() {
        for (index, generation) in [(0, 1), (7, 3), (Key::CALL - 1, u32::MAX)] {
            let raw = Key::of_raw(Id::new(index, generation));
            let session = Key::of_session(Id::new(index, generation));
            assert_ne!(raw, session);
            assert!(
                matches!(raw.receiver(), Receiver::Raw(id) if id == Id::new(index, generation))
            );
            assert!(
                matches!(session.receiver(), Receiver::Session(id) if id == Id::new(index, generation))
            );
        }
        // No table has that many places.
        assert_eq!(Key::of_raw(Id::NONE).index, u32::MAX);
        assert_eq!(Key::of_session(Id::NONE).index, u32::MAX);
    }

    #[test]
    fn percent_encoding_is_decoded_or_rejected() {
        for (text, expected) in [
            ("news", Some("news")),
            ("chat%3Aroom%2d1", Some("chat:room-1")),
            ("%", None),
            ("%4", None),
            ("%+4", None),
            ("%zz", None),
            ("%ff", None),
        ] {
            assert_eq!(decode_percent(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn rest_of_a_path_begins_after_the_pattern() {
        let below = [PathPattern::Below("/live/".to_owned())];
        assert_eq!(rest_of_path(&below, "/live/api/info"), "api/info");
        assert_eq!(rest_of_path(&below, "/live"), "");
        assert_eq!(rest_of_path(&[], "/api/info"), "api/info");
    }
}
