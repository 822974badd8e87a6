//! Events of push clients that are sent to the application's backend (`[push.NAME.backend]`) in requests that Tidegate itself makes.
//! In: requests of sessions, responses of the backend, clients that have left, channels without subscribers. Out: requests
//! to a pool, or events for an application in Lua (`lua_backend.rs`); decisions for sessions, which then continue with their commands.
//! Never: decides what a response means (`tidegate_push::client::backend_requests` does); sends an event again.
//! Limits: `calls-max` and `calls-per-address-max` of the hub for requests in flight about commands, at most one for each
//! session, and the same limits again for requests about expired connections and subscriptions; `reply-max`;
//! `FIELDS_BYTES_MAX` of fields that a session keeps;
//! `REQUESTS_PER_TURN_MAX`; `PUSH_EFFORT_PER_TURN_MAX` for the decisions of a turn. Events that need no decision: up to
//! `NOTICES_MAX` wait for each path, a request contains up to `NOTICES_PER_REQUEST_MAX`, and each path has one request in flight.
//! Invariant: each call belongs to a session whose connection asks, and to a request that names the session.

use std::collections::{BTreeMap, VecDeque};

use tidegate_base::limits::PUSH_EFFORT_PER_TURN_MAX;
use tidegate_base::{Id, Slab};
use tidegate_config::model::{BackendEvent, BackendTarget, PushBackend};
use tidegate_gate::internal_request;
use tidegate_lua::Response;
use tidegate_push::backend::{Failure, encode_departure, encode_empty_channel};
use tidegate_push::client::backend_requests::{BackendRequest, BackendRequestKind, Disconnection};
use tidegate_push::client::{Connection, Disconnect};
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;

use crate::action::push::lua_backend::LuaEvent;
use crate::action::push::{Key, Kind, Link, PushSession, PushState, Receiver};
use crate::carrier::internal_request::{Caller, InternalRequest, InternalRequests, NO_MEMORY};
use crate::checked_slab::CheckedSlab;
use crate::password_queue::Origin;
use crate::requester::Requester;
use crate::worker::Worker;

/// Maximum size in bytes of fields that a session keeps.
const FIELDS_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of requests that are sent in a turn.
const REQUESTS_PER_TURN_MAX: usize = 64;
/// Maximum number of events without a decision that wait for a path.
const NOTICES_MAX: usize = 4096;
/// The fewest channels without subscribers that are noted in a turn, however much of the turn other work has taken.
const EMPTIED_PER_TURN_MIN: usize = 16;
/// Maximum number of events in a request.
const NOTICES_PER_REQUEST_MAX: usize = 64;

const CONTENT_TYPE: &[u8] = b"content-type: application/json\n";
const CLIENT: &[u8] = b"x-forwarded-for: ";

/// The calls of a worker to backends.
#[derive(Default)]
pub(super) struct BackendCalls {
    /// Requests that are to be sent.
    wanted: VecDeque<(Id<PushSession>, BackendRequest)>,
    /// The calls on their way.
    calls: BTreeMap<(Key, BackendRequestKind), Call>,
    /// The numbers of `calls` by hub, kind and address.
    places: CallCounts,
    /// Responses that their sessions have not taken yet.
    done: VecDeque<(Id<PushSession>, BackendRequestKind, Reply)>,
    /// Requests whose sessions have ended.
    unwanted: Vec<CallId>,
    /// By hub and event: events without a decision.
    notices: BTreeMap<(u16, BackendEvent), Notices>,
}

/// The body of a response, or why there is none.
pub(super) type Reply = Result<Vec<u8>, Failure>;

/// A call on its way.
struct Call {
    request: CallId,
    place: CallOwner,
}

/// A request to a pool, or an event for an application in Lua.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallId {
    /// A request to a pool.
    Own(Id<InternalRequest>),
    /// An event for an application.
    Lua(Id<LuaEvent>),
}

/// What a call counts for: a hub, a kind of request, and the address of the client. Requests about expiry are counted
/// separately, so that commands cannot delay the end of a client that has expired.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CallOwner {
    hub: u16,
    request_kind: BackendRequestKind,
    origin: Origin,
}

/// The numbers of calls in flight. A count that falls to 0 is removed.
#[derive(Default)]
struct CallCounts {
    by_owner: BTreeMap<CallOwner, u32>,
    by_hub: BTreeMap<(u16, BackendRequestKind), u32>,
}

impl CallCounts {
    /// Whether one more call may be sent.
    fn has_room(&self, backend: &PushBackend, place: CallOwner) -> bool {
        let own = self.by_owner.get(&place).copied().unwrap_or(0);
        let all = self.by_hub.get(&(place.hub, place.request_kind)).copied().unwrap_or(0);
        own < backend.calls_per_address_max && all < backend.calls_max
    }

    fn take(&mut self, place: CallOwner) {
        *self.by_owner.entry(place).or_default() += 1;
        *self.by_hub.entry((place.hub, place.request_kind)).or_default() += 1;
    }

    fn release(&mut self, place: CallOwner) {
        release(&mut self.by_owner, &place);
        release(&mut self.by_hub, &(place.hub, place.request_kind));
    }

    /// The number of calls.
    fn len(&self) -> usize {
        self.by_owner.values().map(|count| *count as usize).sum()
    }
}

fn release<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    let Some(count) = counts.get_mut(key) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

/// Events without a decision.
#[derive(Default)]
struct Notices {
    /// The events that wait, encoded.
    waiting: VecDeque<Vec<u8>>,
    /// How many are on their way.
    sent: usize,
}

/// The purpose of a request to a backend.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HubCall {
    /// The request of a session.
    BackendRequest(Key, BackendRequestKind),
    /// A list of events of a hub.
    Notices(u16, BackendEvent),
}

impl BackendCalls {
    /// The events without a decision that wait or are on their way.
    pub(super) fn notices(&self) -> usize {
        self.notices.values().map(|notices| notices.sent + notices.waiting.len()).sum()
    }

    /// Drops the events that wait. Returns how many there were.
    fn drop_notices(&mut self) -> usize {
        self.notices.values_mut().map(|notices| core::mem::take(&mut notices.waiting).len()).sum()
    }

    /// Whether something is to be done before the worker waits.
    pub(super) fn is_busy(&self) -> bool {
        !self.wanted.is_empty()
            || !self.done.is_empty()
            || !self.unwanted.is_empty()
            || self.notices.values().any(|notices| notices.sent == 0 && !notices.waiting.is_empty())
    }

    /// Everything that is in progress.
    pub(super) fn len(&self) -> usize {
        self.wanted.len() + self.calls.len() + self.done.len() + self.unwanted.len()
    }

    /// Queues a request of a session.
    pub(super) fn ask(&mut self, id: Id<PushSession>, request: BackendRequest) {
        self.wanted.push_back((id, request));
    }

    /// A session has ended: its decisions are not needed.
    pub(super) fn forget(&mut self, key: Key) {
        for request_kind in [BackendRequestKind::Command, BackendRequestKind::Expiry] {
            if let Some(call) = self.calls.remove(&(key, request_kind)) {
                self.places.release(call.place);
                self.unwanted.push(call.request);
            }
        }
    }

    /// Keeps an event for the next request to its path. Returns false if too many wait.
    fn note(&mut self, hub: u16, event: BackendEvent, encoded: Vec<u8>) -> bool {
        let notices = self.notices.entry((hub, event)).or_default();
        let has_room = notices.waiting.len() < NOTICES_MAX;
        if has_room {
            notices.waiting.push_back(encoded);
        }
        has_room
    }

    /// Whether every call belongs to a session that asks, for checks.
    pub(super) fn is_consistent(
        &self,
        sessions: &CheckedSlab<PushSession>,
        (own, events): (&InternalRequests, &Slab<LuaEvent>),
    ) -> bool {
        self.places.len() == self.calls.len()
            && self.calls.iter().all(|((key, request_kind), call)| {
                let Receiver::Session(id) = key.receiver() else { return false };
                let asks = sessions.find(id).is_some_and(|session| session.asks(*request_kind));
                let is_on_its_way = match call.request {
                    CallId::Own(request) => own.running(request).is_some(),
                    CallId::Lua(event) => events.get(event).is_some(),
                };
                asks && is_on_its_way
            })
    }
}

impl PushSession {
    /// Whether a command of the session waits for a decision, or for the owners of channels.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(&self.kind, Kind::Client { connection, .. } if connection.is_waiting())
    }

    /// Whether the reply to `connect` waits for the owners of channels, so that the client gets nothing until then.
    pub(super) fn is_connect_reply_pending(&self) -> bool {
        matches!(&self.kind, Kind::Client { connection, .. } if connection.is_connect_reply_pending())
    }

    /// Whether a request of the session waits for its decision.
    fn asks(&self, request_kind: BackendRequestKind) -> bool {
        matches!(&self.kind, Kind::Client { connection, .. } if connection.asks(request_kind))
    }
}

/// The first request of a client.
impl Worker {
    /// The fields of a client's first request that its events repeat; empty if the hub has no backend. `None` if they are
    /// too large; then the request was refused.
    pub(super) fn repeated_fields<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        hub: u16,
    ) -> Option<Box<[u8]>> {
        let settings = std::sync::Arc::clone(&self.push.settings);
        let Some(backend) = settings.get(hub).and_then(|hub| hub.push.backend.as_ref()) else {
            return Some(Box::default());
        };
        let mut fields = Vec::new();
        if let Some(address) = self.client_ip(to, head) {
            fields.extend_from_slice(CLIENT);
            fields.extend_from_slice(address.to_string().as_bytes());
            fields.push(b'\n');
        }
        for field in head.fields() {
            if backend.fields.iter().any(|name| field.name.eq_ignore_ascii_case(name)) {
                fields.extend_from_slice(field.name.as_bytes());
                fields.extend_from_slice(b": ");
                fields.extend_from_slice(field.value);
                fields.push(b'\n');
            }
        }
        if fields.len() > FIELDS_BYTES_MAX {
            self.accounts.counters.push_refusals.add(1);
            let text = "the fields that the application needs are too large";
            self.answer_error(reactor, to, 431, text, false);
            return None;
        }
        Some(fields.into_boxed_slice())
    }

    /// Adds to the connection of a client the fields that its requests to the backend repeat, if the hub has a backend.
    pub(super) fn with_backend_fields(
        &self,
        connection: Connection,
        hub: u16,
        (transport, fields): (&'static str, Box<[u8]>),
    ) -> Connection {
        let has_backend = self.push.settings.get(hub).is_some_and(|hub| hub.push.backend.is_some());
        if has_backend { connection.with_backend(transport, fields) } else { connection }
    }
}

/// Calls.
impl Worker {
    /// The work for backends at the end of a turn: cancels requests whose session has ended, carries out decisions, sends
    /// requests and events.
    pub(super) fn serve_backend_calls<R: Reactor>(&mut self, reactor: &mut R) {
        for request in core::mem::take(&mut self.push.backend.unwanted) {
            match request {
                CallId::Own(request) => self.cancel_own(reactor, request),
                CallId::Lua(event) => self.cancel_lua_event(event),
            }
        }
        let before = self.push.effort;
        while self.push.effort.wrapping_sub(before) < PUSH_EFFORT_PER_TURN_MAX
            && let Some((id, request_kind, body)) = self.push.backend.done.pop_front()
        {
            self.take_backend_reply(reactor, (id, request_kind), &body);
        }
        // Callbacks of `on_push` have a share of the turn of their own.
        self.lua.share.renew();
        for _ in 0..REQUESTS_PER_TURN_MAX {
            if self.lua.share.is_used_up() {
                break;
            }
            let Some((id, request)) = self.push.backend.wanted.pop_front() else { break };
            let request_kind = request.request_kind();
            // The session may have ended since its request.
            if self.push.sessions.find(id).is_some()
                && let Err(failure) = self.begin_backend_call(reactor, id, request)
            {
                self.accounts.counters.push_backend_failures.add(1);
                self.push.backend.done.push_back((id, request_kind, Err(failure)));
            }
        }
        self.note_empty_channels(reactor);
        self.send_notices(reactor);
        self.settle(reactor);
    }

    /// Sends the request of a session.
    fn begin_backend_call<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        request: BackendRequest,
    ) -> Result<(), Failure> {
        let request_kind = request.request_kind();
        let BackendRequest { event, body } = request;
        let Some(PushSession { hub, kind: Kind::Client { connection, .. }, .. }) =
            self.push.sessions.find(id)
        else {
            return Err(Failure::Down);
        };
        let repeated = connection.repeated_fields();
        let place = CallOwner { hub: *hub, request_kind, origin: origin_of(repeated) };
        let fields = [CONTENT_TYPE, repeated].concat();
        let key = Key::of_session(id);
        let settings = std::sync::Arc::clone(&self.push.settings);
        let settings = settings.get(place.hub).ok_or(Failure::Down)?;
        let backend = settings.push.backend.as_ref().ok_or(Failure::Down)?;
        if !self.push.backend.places.has_room(backend, place) {
            self.accounts.counters.push_backend_refused.add(1);
            return Err(Failure::Busy);
        }
        let call = HubCall::BackendRequest(key, request_kind);
        self.open_backend_call(
            reactor,
            (backend, event, &settings.push.name),
            call,
            (&fields, body),
            |calls, request| {
                calls.places.take(place);
                calls.calls.insert((key, request_kind), Call { request, place });
            },
        )
    }

    /// Sends a request to a backend. `keep` records the request before it can end.
    fn open_backend_call<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (backend, event, hub): (&PushBackend, BackendEvent, &str),
        call: HubCall,
        (fields, body): (&[u8], Vec<u8>),
        keep: impl FnOnce(&mut BackendCalls, CallId),
    ) -> Result<(), Failure> {
        let is_ending = match call {
            HubCall::BackendRequest(..) => self.stopping && self.conns.downstream_count() == 0,
            HubCall::Notices(..) => self.stop.is_grace_over(),
        };
        if is_ending {
            return Err(Failure::Down);
        }
        let pool = match &backend.target {
            BackendTarget::Pool(name) => self.pool_named(name).ok_or(Failure::Down)?,
            BackendTarget::Lua(app) => {
                let of = (backend, event, hub);
                return self.begin_lua_event(reactor, app, of, call, (fields, &body), keep);
            }
        };
        let parts = internal_request::InternalRequest {
            method: "POST",
            target: backend.path(event).ok_or(Failure::Down)?,
            host: "",
            fields,
            length: Some(body.len() as u64),
        };
        let by = reactor.now().after(backend.timeout);
        let request = InternalRequest::new(Caller::Hub(call), body, backend.reply_bytes_max, by);
        let Some(id) = self.open_own(reactor, request) else {
            self.accounts.counters.push_backend_refused.add(1);
            return Err(Failure::Busy);
        };
        self.accounts.counters.push_backend_calls.add(1);
        keep(&mut self.push.backend, CallId::Own(id));
        self.begin_own_exchange(reactor, id, &parts, pool);
        Ok(())
    }

    /// A request to a backend has ended.
    pub(crate) fn end_backend_call(
        &mut self,
        call: HubCall,
        result: Result<Response, &'static str>,
    ) {
        let body = match result {
            Ok(response) if response.status == 200 => Ok(response.body),
            Err(NO_MEMORY) => Err(Failure::Busy),
            Ok(_) | Err(_) => Err(Failure::Down),
        };
        self.finish_backend_call(call, body);
    }

    /// A call of a backend has ended.
    pub(super) fn finish_backend_call(&mut self, call: HubCall, body: Reply) {
        let counters = &self.accounts.counters;
        let backend = &mut self.push.backend;
        match call {
            HubCall::BackendRequest(key, request_kind) => {
                let Receiver::Session(id) = key.receiver() else { return };
                // A session that has ended has no call.
                let Some(ended) = backend.calls.remove(&(key, request_kind)) else { return };
                backend.places.release(ended.place);
                counters.push_backend_failures.add(u64::from(body.is_err()));
                backend.done.push_back((id, request_kind, body));
            }
            HubCall::Notices(hub, event) => {
                let Some(notices) = backend.notices.get_mut(&(hub, event)) else { return };
                let sent = core::mem::take(&mut notices.sent);
                if body.is_err() {
                    counters.push_backend_failures.add(1);
                    counters.push_lost_events.add(sent as u64);
                }
            }
        }
    }

    /// Hands a session the response of the backend, and continues with the session's commands.
    fn take_backend_reply<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (id, request_kind): (Id<PushSession>, BackendRequestKind),
        body: &Reply,
    ) {
        let Some(session) = self.push.sessions.find(id) else { return };
        if self.is_client_closing(session) {
            return;
        }
        let was_stale = session.is_stale();
        let mut out = self.buffers.take();
        let room = self.room_of_client(reactor, id);
        let body = body.as_deref().map_err(|failure| *failure);
        let result = self.with_client(reactor, id, room, |connection, context| {
            connection.take_decision(context, request_kind, body, &mut out)
        });
        self.send_to_client(reactor, id, &out);
        self.buffers.put(out);
        if let Some(Err(parting)) = result {
            return match parting {
                Disconnection::Own(Disconnect { code, reason }) => {
                    self.close_push_client(reactor, id, code, reason);
                }
                Disconnection::Application(code, reason) => {
                    self.close_push_client(reactor, id, code, &reason)
                }
            };
        }
        self.continue_client(reactor, id, was_stale);
    }

    /// Resumes a client that had a waiting command. `was_stale`: the client had not completed `connect` before.
    pub(super) fn continue_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        was_stale: bool,
    ) {
        if was_stale && self.push.sessions.find(id).is_some_and(|session| !session.is_stale()) {
            self.schedule_check(reactor, id);
            self.arm_client(reactor, id);
        }
        self.end_failed_stream(reactor, id);
        self.send_kept(reactor, id);
        self.run_waiting_commands(reactor, id);
    }

    /// Whether this side has closed the WebSocket connection of a session.
    pub(super) fn is_client_closing(&self, session: &PushSession) -> bool {
        let socket = session.socket().and_then(|socket| self.websockets.sessions.find(socket));
        socket.is_some_and(|socket| socket.is_closing())
    }
}

/// Events without a decision.
impl Worker {
    /// A client has left.
    pub(super) fn tell_departure(&mut self, hub: u16, connection: &Connection) {
        let PushState { settings, backend, .. } = &mut self.push;
        let Some(known) = settings.get(hub).and_then(|hub| hub.push.backend.as_ref()) else {
            return;
        };
        let Some(subject) = connection.subject().filter(|_| connection.is_connected()) else {
            return;
        };
        if known.path(BackendEvent::Disconnect).is_none() {
            return;
        }
        let mut encoded = Vec::new();
        encode_departure(&mut encoded, &subject);
        if !backend.note(hub, BackendEvent::Disconnect, encoded) {
            self.accounts.counters.push_lost_events.add(1);
        }
    }

    /// Notes channels without subscribers, within the share of the turn. The other channels follow in the next turn.
    fn note_empty_channels<R: Reactor>(&mut self, reactor: &R) {
        let lost = self.push.hub.take_lost_emptied();
        self.accounts.counters.push_lost_events.add(lost);
        let unix_ms = reactor.unix_seconds().saturating_mul(1000);
        let mut noted = 0;
        while (noted < EMPTIED_PER_TURN_MIN || !self.push.share.is_used_up())
            && let Some((hub, channel)) = self.push.hub.take_emptied()
        {
            let began = reactor.read_clock();
            let mut encoded = Vec::new();
            encode_empty_channel(&mut encoded, &channel, unix_ms);
            if !self.push.backend.note(hub, BackendEvent::ChannelEmpty, encoded) {
                self.accounts.counters.push_lost_events.add(1);
            }
            self.push.share.note_call(reactor.read_clock().since(began));
            noted += 1;
        }
    }

    /// Whether events of clients that have left, and of channels without subscribers, are still to be sent.
    pub(crate) fn has_unsent_events(&self) -> bool {
        let PushState { hub, backend, has_backends, .. } = &self.push;
        let is_on_its_way = || hub.has_mail() || self.has_push_mail() || hub.has_emptied();
        *has_backends && !self.stop.is_grace_over() && (backend.notices() > 0 || is_on_its_way())
    }

    /// The process ends: the events that wait are lost.
    pub(crate) fn drop_events(&mut self) {
        let lost = self.push.backend.drop_notices();
        self.accounts.counters.push_lost_events.add(lost as u64);
    }

    /// Sends a list of events to each path that has no request in flight.
    fn send_notices<R: Reactor>(&mut self, reactor: &mut R) {
        let ready = |(place, notices): (&(u16, BackendEvent), &Notices)| {
            (notices.sent == 0 && !notices.waiting.is_empty()).then_some(*place)
        };
        let places: Vec<_> = self.push.backend.notices.iter().filter_map(ready).collect();
        for (hub, event) in places {
            let Some(notices) = self.push.backend.notices.get_mut(&(hub, event)) else { continue };
            let count = notices.waiting.len().min(NOTICES_PER_REQUEST_MAX);
            let mut body = b"{\"events\":[".to_vec();
            for (index, encoded) in notices.waiting.drain(..count).enumerate() {
                if index > 0 {
                    body.push(b',');
                }
                body.extend_from_slice(&encoded);
            }
            body.extend_from_slice(b"]}");
            notices.sent = count;
            let settings = std::sync::Arc::clone(&self.push.settings);
            let call = HubCall::Notices(hub, event);
            let push = settings.get(hub).map(|hub| &hub.push);
            let backend = push.and_then(|push| Some((push.backend.as_ref()?, &push.name)));
            let begun = backend.ok_or(Failure::Down).and_then(|(backend, name)| {
                let with = (CONTENT_TYPE, body);
                self.open_backend_call(reactor, (backend, event, name), call, with, |_, _| {})
            });
            if begun.is_err() {
                self.end_backend_call(call, Err(NO_MEMORY));
            }
        }
    }
}

/// The address of the client whose first request had these fields.
fn origin_of(fields: &[u8]) -> Origin {
    let line =
        fields.strip_prefix(CLIENT).and_then(|rest| rest.split(|byte| *byte == b'\n').next());
    let text = line.and_then(|line| core::str::from_utf8(line).ok());
    Origin::of(text.and_then(|text| text.parse().ok()))
}

impl Worker {
    /// Rearms the deadline of a client.
    fn arm_client<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.find(id) else { return };
        let Kind::Client { link, .. } = &session.kind else { return };
        match *link {
            Link::Socket(socket) => self.arm_websocket(reactor, socket),
            Link::Stream(_) => self.arm_stream(reactor, id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_by_address_and_hub_for_each_matter() {
        let text = "[[listener]]\nbind = \"127.0.0.1:0\"\n[pool.app]\nservers = [\"127.0.0.1:1\"]\n[push.p.backend]\n\
                    pool = \"app\"\ncalls-max = 3\ncalls-per-address-max = 2\n";
        let config = tidegate_config::parse(text, "the test").unwrap_or_else(|e| panic!("{e}"));
        let backend = config.push[0].backend.as_ref().expect("a backend");
        let place = |last: u8, request_kind| {
            let origin = Origin::of(Some([192, 0, 2, last].into()));
            CallOwner { hub: 0, request_kind, origin }
        };
        let mut places = CallCounts::default();
        for last in [1, 1, 2] {
            let command = place(last, BackendRequestKind::Command);
            assert!(places.has_room(backend, command));
            places.take(command);
            assert!(places.has_room(backend, place(last, BackendRequestKind::Expiry)));
        }
        assert!(
            !places.has_room(backend, place(3, BackendRequestKind::Command)),
            "the hub has no more"
        );
        places.release(place(2, BackendRequestKind::Command));
        assert!(places.has_room(backend, place(3, BackendRequestKind::Command)));
        assert!(
            !places.has_room(backend, place(1, BackendRequestKind::Command)),
            "the address has no more"
        );
        places.release(place(1, BackendRequestKind::Command));
        places.release(place(1, BackendRequestKind::Command));
        assert_eq!((places.len(), places.by_owner.len(), places.by_hub.len()), (0, 0, 0));
    }

    #[test]
    fn address_is_that_of_the_first_line() {
        let address = Origin::of("192.0.2.7".parse().ok());
        assert_eq!(origin_of(b"x-forwarded-for: 192.0.2.7\ncookie: a=b\n"), address);
        let unknown = Origin::of(None);
        assert_eq!(origin_of(b""), unknown);
        assert_eq!(origin_of(b"cookie: a=b\nx-forwarded-for: 192.0.2.7\n"), unknown);
    }
}
