//! Events of push clients that go to the user's own backend (`[push.NAME.backend]`), as requests of Tidegate's own.
//! In: questions of sessions, responses of the backend, clients that have left, channels without subscribers. Out: requests
//! to a pool; verdicts for sessions, which then go on with their commands.
//! Never: decides what a response means (`tidegate_push::client::asking` does); sends an event again.
//! Limits: `calls-max` and `calls-per-address-max` of the hub for questions on their way, one of each session; `reply-max`;
//! `FIELDS_BYTES_MAX` of fields that a session keeps; `VERDICTS_PER_TURN_MAX`. Of events without a verdict,
//! `NOTICES_MAX` wait for each path, up to `NOTICES_PER_REQUEST_MAX` are in a request, and one request is on its way.
//! Invariant: each call belongs to a session whose connection asks, and to a request that names the session.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use tidegate_base::Id;
use tidegate_config::model::{BackendEvent, PushBackend};
use tidegate_gate::chain::client_address;
use tidegate_gate::own;
use tidegate_lua::Response;
use tidegate_push::backend::{Failure, encode_departure, encode_empty_channel};
use tidegate_push::client::asking::{Parting, Question};
use tidegate_push::client::{Connection, Disconnect};
use tidegate_reactor::Reactor;
use tidegate_wire::message::RequestHead;

use crate::action::push::{Key, Kind, Link, PushSession, PushState, Receiver};
use crate::carrier::own::{Caller, NO_MEMORY, OwnRequest, OwnRequests};
use crate::live::Live;
use crate::password_queue::Origin;
use crate::requester::Requester;
use crate::worker::Worker;

/// The most bytes of fields that a session keeps.
const FIELDS_BYTES_MAX: usize = 8 * 1024;
/// The most verdicts that are carried out in a turn.
const VERDICTS_PER_TURN_MAX: usize = 64;
/// The most events without a verdict that wait for a path.
const NOTICES_MAX: usize = 4096;
/// The most events in a request.
const NOTICES_PER_REQUEST_MAX: usize = 64;

const CONTENT_TYPE: &[u8] = b"content-type: application/json\n";
const CLIENT: &[u8] = b"x-forwarded-for: ";

/// The calls of a worker to backends.
#[derive(Default)]
pub(super) struct BackendCalls {
    /// Questions that were asked in this turn.
    wanted: VecDeque<(Id<PushSession>, Question)>,
    /// By session: the call on its way.
    calls: BTreeMap<Key, Call>,
    /// How many calls are on their way, by hub and by the address of the client.
    places: BTreeMap<(u16, Origin), u32>,
    /// Responses that their sessions have not taken yet.
    done: VecDeque<(Id<PushSession>, Reply)>,
    /// Requests whose sessions have ended.
    unwanted: Vec<Id<OwnRequest>>,
    /// By hub and event: events without a verdict.
    notices: BTreeMap<(u16, BackendEvent), Notices>,
}

/// The body of a response, or why there is none.
type Reply = Result<Vec<u8>, Failure>;

/// A call on its way.
struct Call {
    request: Id<OwnRequest>,
    /// The hub, and the address of the client.
    place: (u16, Origin),
}

/// Events without a verdict.
#[derive(Default)]
struct Notices {
    /// Those that wait, encoded.
    waiting: VecDeque<Vec<u8>>,
    /// How many are on their way.
    sent: usize,
}

/// The request that asks a backend.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HubCall {
    /// The question of a session.
    Question(Key),
    /// A list of events of a hub.
    Notices(u16, BackendEvent),
}

impl BackendCalls {
    /// Whether something is to be done before the worker waits.
    pub(super) fn is_busy(&self) -> bool {
        !self.wanted.is_empty()
            || !self.done.is_empty()
            || !self.unwanted.is_empty()
            || self.notices.values().any(|notices| notices.sent == 0 && !notices.waiting.is_empty())
    }

    /// Everything that is under way.
    pub(super) fn len(&self) -> usize {
        self.wanted.len() + self.calls.len() + self.done.len() + self.unwanted.len()
    }

    /// A session asks.
    pub(super) fn ask(&mut self, id: Id<PushSession>, question: Question) {
        self.wanted.push_back((id, question));
    }

    /// A session has ended: nobody waits for its verdict.
    pub(super) fn forget(&mut self, key: Key) {
        if let Some(call) = self.calls.remove(&key) {
            self.release(call.place);
            self.unwanted.push(call.request);
        }
    }

    /// Whether the clients of this place may have another call on its way.
    fn has_room(&self, backend: &PushBackend, (hub, origin): (u16, Origin)) -> bool {
        let own = self.places.get(&(hub, origin)).copied().unwrap_or(0);
        let all: u32 = self.places.iter().filter(|((of, _), _)| *of == hub).map(|(_, n)| n).sum();
        own < backend.calls_per_address_max && all < backend.calls_max
    }

    fn release(&mut self, place: (u16, Origin)) {
        if let Some(count) = self.places.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.places.remove(&place);
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
    pub(super) fn is_consistent(&self, sessions: &Live<PushSession>, own: &OwnRequests) -> bool {
        let counted: u32 = self.places.values().sum();
        counted as usize == self.calls.len()
            && self.calls.iter().all(|(key, call)| {
                let Receiver::Session(id) = key.receiver() else { return false };
                let asks = sessions.find(id).is_some_and(PushSession::is_asking);
                asks && own.running(call.request).is_some()
            })
    }
}

impl PushSession {
    /// Whether a question of the session waits for its verdict.
    pub(super) fn is_asking(&self) -> bool {
        matches!(&self.kind, Kind::Client { connection, .. } if connection.is_asking())
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
        if let Some(address) = self.address_of(to, head) {
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

    /// The address of the client of a request.
    fn address_of(&mut self, to: Requester, head: &RequestHead<'_>) -> Option<IpAddr> {
        let snapshot = self.settings_of(to);
        let down = self.conns.downstream(to.sock)?;
        let (peer, listener) = (down.peer().ip(), snapshot.listener(down.listener));
        client_address(head, peer, &listener.trusted)
    }

    /// A connection of a client, with what events to the backend of its hub need.
    pub(super) fn backed(
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
    /// Does what a turn leaves for backends: requests that nobody waits for end, verdicts are carried out, questions and
    /// events are sent.
    pub(super) fn serve_backend_calls<R: Reactor>(&mut self, reactor: &mut R) {
        for request in core::mem::take(&mut self.push.backend.unwanted) {
            self.cancel_own(reactor, request);
        }
        for _ in 0..VERDICTS_PER_TURN_MAX {
            let Some((id, body)) = self.push.backend.done.pop_front() else { break };
            self.take_backend_reply(reactor, id, &body);
        }
        while let Some((id, question)) = self.push.backend.wanted.pop_front() {
            // The session may have ended in the turn in which it asked.
            if self.sessions.find(id).is_some()
                && let Err(failure) = self.begin_backend_call(reactor, id, question)
            {
                self.accounts.counters.push_backend_failures.add(1);
                self.push.backend.done.push_back((id, Err(failure)));
            }
        }
        self.note_empty_channels(reactor);
        self.send_notices(reactor);
        self.settle(reactor);
    }

    /// Sends the question of a session.
    fn begin_backend_call<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        Question { event, body }: Question,
    ) -> Result<(), Failure> {
        let Some(PushSession { hub, kind: Kind::Client { connection, .. }, .. }) =
            self.sessions.find(id)
        else {
            return Err(Failure::Down);
        };
        let repeated = connection.repeated_fields();
        let (hub, place) = (*hub, (*hub, origin_of(repeated)));
        let fields = [CONTENT_TYPE, repeated].concat();
        let key = Key::of_session(id);
        let settings = std::sync::Arc::clone(&self.push.settings);
        let backend = settings.get(hub).and_then(|hub| hub.push.backend.as_ref());
        let backend = backend.ok_or(Failure::Down)?;
        if !self.push.backend.has_room(backend, place) {
            self.accounts.counters.push_backend_refused.add(1);
            return Err(Failure::Busy);
        }
        let call = HubCall::Question(key);
        self.open_backend_call(
            reactor,
            (backend, event),
            call,
            (&fields, body),
            |calls, request| {
                *calls.places.entry(place).or_default() += 1;
                calls.calls.insert(key, Call { request, place });
            },
        )
    }

    /// Sends a request to a backend, which `keep` is told of before it may end.
    fn open_backend_call<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (backend, event): (&PushBackend, BackendEvent),
        call: HubCall,
        (fields, body): (&[u8], Vec<u8>),
        keep: impl FnOnce(&mut BackendCalls, Id<OwnRequest>),
    ) -> Result<(), Failure> {
        let is_ending = self.stopping && self.conns.downstream_count() == 0;
        let pool = self.pool_named(&backend.pool).filter(|_| !is_ending).ok_or(Failure::Down)?;
        let parts = own::OwnRequest {
            method: "POST",
            target: backend.path(event).ok_or(Failure::Down)?,
            host: "",
            fields,
            length: Some(body.len() as u64),
        };
        let by = reactor.now().after(backend.timeout);
        let request = OwnRequest::new(Caller::Hub(call), body, backend.reply_bytes_max, by);
        let Some(id) = self.open_own(reactor, request) else {
            self.accounts.counters.push_backend_refused.add(1);
            return Err(Failure::Busy);
        };
        self.accounts.counters.push_backend_calls.add(1);
        keep(&mut self.push.backend, id);
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
        let counters = &self.accounts.counters;
        let backend = &mut self.push.backend;
        match call {
            HubCall::Question(key) => {
                let Receiver::Session(id) = key.receiver() else { return };
                // A session that has ended has no call.
                let Some(ended) = backend.calls.remove(&key) else { return };
                backend.release(ended.place);
                counters.push_backend_failures.add(u64::from(body.is_err()));
                backend.done.push_back((id, body));
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

    /// Hands a session the response of the backend, and goes on with its commands.
    fn take_backend_reply<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        body: &Reply,
    ) {
        let Some(session) = self.sessions.find(id) else { return };
        if self.is_client_parting(session) {
            return;
        }
        let was_stale = session.is_stale();
        let mut out = self.buffers.take();
        let room = self.room_of_client(reactor, id);
        let body = body.as_deref().map_err(|failure| *failure);
        let result = self.with_client(reactor, id, room, |connection, context| {
            connection.take_verdict(context, body, &mut out)
        });
        self.send_to_client(reactor, id, &out);
        self.buffers.put(out);
        if let Some(Err(parting)) = result {
            return match parting {
                Parting::Own(Disconnect { code, reason }) => {
                    self.part_client(reactor, id, code, reason);
                }
                Parting::Application(code, reason) => self.part_client(reactor, id, code, &reason),
            };
        }
        if was_stale && self.sessions.find(id).is_some_and(|session| !session.is_stale()) {
            self.postpone_check(reactor, id);
            self.arm_client(reactor, id);
        }
        self.end_failed_stream(reactor, id);
        self.run_waiting_commands(reactor, id);
    }

    /// Whether this side has closed the WebSocket connection of a session.
    pub(super) fn is_client_parting(&self, session: &PushSession) -> bool {
        let socket = session.socket().and_then(|socket| self.websockets.find(socket));
        socket.is_some_and(|socket| socket.is_closing())
    }
}

/// Events without a verdict.
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

    fn note_empty_channels<R: Reactor>(&mut self, reactor: &R) {
        while let Some((hub, channel)) = self.push.hub.take_emptied() {
            let PushState { settings, backend, .. } = &mut self.push;
            let known = settings.get(hub).and_then(|hub| hub.channel(&channel).ok());
            if !known.is_some_and(|known| known.sends(BackendEvent::ChannelEmpty)) {
                continue;
            }
            let mut encoded = Vec::new();
            encode_empty_channel(
                &mut encoded,
                &channel,
                reactor.unix_seconds().saturating_mul(1000),
            );
            if !backend.note(hub, BackendEvent::ChannelEmpty, encoded) {
                self.accounts.counters.push_lost_events.add(1);
            }
        }
    }

    /// Sends a list of events to each path that has none on its way.
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
            let backend = settings.get(hub).and_then(|hub| hub.push.backend.as_ref());
            let begun = backend.ok_or(Failure::Down).and_then(|backend| {
                let with = (CONTENT_TYPE, body);
                self.open_backend_call(reactor, (backend, event), call, with, |_, _| {})
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
    /// Sets the deadline of a client again.
    fn arm_client<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.sessions.find(id) else { return };
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
    fn address_is_that_of_the_first_line() {
        let address = Origin::of("192.0.2.7".parse().ok());
        assert_eq!(origin_of(b"x-forwarded-for: 192.0.2.7\ncookie: a=b\n"), address);
        let unknown = Origin::of(None);
        assert_eq!(origin_of(b""), unknown);
        assert_eq!(origin_of(b"cookie: a=b\nx-forwarded-for: 192.0.2.7\n"), unknown);
    }
}
