//! Subscriptions by URL: over WebSocket (raw mode), as a stream of events, or by long polls.
//! In: requests that name a channel. Out: sessions, and WebSocket connections of `Service::Raw`.
//! Never: subscribes a client that the namespace does not allow, or a page that `origins` does not allow.

use std::sync::Arc;

use tidegate_base::{Id, Moment, Span};
use tidegate_gate::access::Cause;
use tidegate_push::events;
use tidegate_push::local::SubscriptionId;
use tidegate_push::mail::Subscribed;
use tidegate_push::poll;
use tidegate_push::position::Since;
use tidegate_push::publication::{Form, Publication, count_within};
use tidegate_push::queue::Next;
use tidegate_push::settings::Error;
use tidegate_push::stream::Recovered;
use tidegate_reactor::Reactor;
use tidegate_wire::message::{Method, RequestHead};
use tidegate_wire::websocket::{Close, CloseCode};

use crate::action::push::{Key, Kind, Poll, PushSession, PushState};
use crate::action::service::Service;
use crate::action::websocket::WebSocket;
use crate::answer::{Answer, Head};
use crate::carrier::Rest;
use crate::requester::Requester;
use crate::worker::Worker;

impl Worker {
    /// Subscribes a client to `channel`: over WebSocket, as an event stream or by a long poll, as its request specifies.
    pub(super) fn begin_subscription<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, hub): (usize, u16),
        channel: &str,
    ) {
        self.subscribe_by_url(reactor, to, head, (route, hub), (channel, true));
    }

    /// As [`Self::begin_subscription`]. `can_wait`: the token of the request may be verified in a later turn.
    pub(super) fn subscribe_by_url<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, hub): (usize, u16),
        (channel, can_wait): (&str, bool),
    ) {
        let Some(origin) = self.admit_page(reactor, to, head, route) else { return };
        let stated = (channel, can_wait);
        let Some(end) = self.permit_by_url(reactor, to, head, (route, hub), stated) else { return };
        if head.upgrade || head.find_named("sec-websocket-key").is_some() {
            return self.begin_raw(reactor, to, head, (route, hub), (channel, end));
        }
        if !matches!(head.method, Method::Get) {
            return self.answer_error(reactor, to, 405, "use GET", false);
        }
        if self.stopping {
            let retry = self.retry_of(hub);
            return self.answer_later(reactor, to, retry, "the server is stopping", true);
        }
        let since = stated_position(head);
        if accepts_events(head) {
            self.begin_events(reactor, to, (hub, channel), (origin, end), since);
        } else {
            self.begin_poll(reactor, to, (hub, channel), (origin, end), since);
        }
    }

    /// Checks whether the page that sends the request may read the response. Returns the origin of the page; `None` if the
    /// request was answered here, because it was refused or is a preflight request.
    pub(super) fn admit_page<'h, R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'h>,
        route: usize,
    ) -> Option<Option<&'h str>> {
        let snapshot = self.settings_of(to);
        let origin = head.find_named("origin");
        let endpoint = snapshot.websockets.get(snapshot.websockets.of_route(route));
        if !endpoint.policy.origins.allows(origin, head.host) {
            let text = "pages of this origin may not subscribe";
            self.answer_error(reactor, to, 403, text, false);
            return None;
        }
        let origin = origin.and_then(|origin| core::str::from_utf8(origin).ok());
        if matches!(head.method, Method::Options) {
            let headers = head.find_named("access-control-request-headers").unwrap_or_default();
            self.answer(reactor, to, &Answer::Preflight { origin, headers }, false);
            return None;
        }
        Some(origin)
    }

    fn begin_raw<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, hub): (usize, u16),
        (channel, end): (&str, Moment),
    ) {
        let service = Service::Raw(None);
        let Some(id) = self.open_websocket(reactor, to, head, route, service) else { return };
        let key = Key::of_raw(id);
        match self.subscribe(reactor, (hub, channel), key, None) {
            Ok((place, reply)) => {
                self.set_service(id, Service::Raw(Some(place)));
                self.begin_age(reactor, hub, key, end);
                if let Some(reply) = reply {
                    self.confirm_raw(reactor, id, &reply);
                }
            }
            Err(_) => {
                let code = CloseCode::TRY_AGAIN_LATER;
                self.close_websocket(reactor, id, Close { code, reason: "limit exceeded" });
            }
        }
    }

    /// The subscription of a client in raw mode is confirmed: in a namespace with `cache`, it gets the newest message.
    pub(super) fn confirm_raw<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<WebSocket>,
        reply: &Subscribed,
    ) {
        for publication in reply.recovered.iter().flat_map(Recovered::encodable) {
            self.deliver_to(reactor, Key::of_raw(id), &publication);
        }
    }

    /// The connection of a client in raw mode has ended.
    pub(in crate::action) fn end_raw(&mut self, id: Id<WebSocket>, place: Option<SubscriptionId>) {
        let key = Key::of_raw(id);
        if let Some(place) = place {
            let PushState { hub, settings, .. } = &mut self.push;
            hub.unsubscribe(settings, place, key, None);
            self.accounts.counters.push_subscriptions_now.sub(1);
        }
        self.forget_queue(key);
        self.push.ages.forget(key);
    }

    fn begin_events<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (hub, channel): (u16, &str),
        (origin, end): (Option<&str>, Moment),
        since: Option<Since>,
    ) {
        let kind = Kind::Events { place: None };
        let Some(id) = self.insert_session(reactor, to, hub, kind) else { return };
        match self.subscribe(reactor, (hub, channel), Key::of_session(id), since) {
            Ok((place, reply)) => {
                self.set_place(id, place);
                self.begin_age(reactor, hub, Key::of_session(id), end);
                self.begin_response(reactor, to, &Head::Events { origin }, Rest::Unwanted);
                let retry = self.push.settings.get(hub).map_or(Span::ZERO, |hub| hub.push.retry);
                let spread = self.prng.below((retry.as_millis() as u64 / 2).max(1));
                let mut start = self.buffers.take();
                events::encode_start(&mut start, retry.as_millis() as u64 + spread);
                self.send_data(reactor, to, &start);
                self.buffers.put(start);
                self.arm_heartbeat(reactor, id);
                if let Some(reply) = reply {
                    self.confirm_session(reactor, id, &reply);
                }
            }
            Err(error) => {
                self.forget_session(id);
                self.refuse_subscription(reactor, to, hub, error);
            }
        }
    }

    fn begin_poll<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (hub, channel): (u16, &str),
        (origin, end): (Option<&str>, Moment),
        since: Option<Since>,
    ) {
        let poll = Poll { place: None, position: None, origin: origin.map(Into::into) };
        let kind = Kind::Poll(Box::new(poll));
        let Some(id) = self.insert_session(reactor, to, hub, kind) else { return };
        match self.subscribe(reactor, (hub, channel), Key::of_session(id), since) {
            Ok((place, reply)) => {
                self.set_place(id, place);
                let settings = self.push.settings.get(hub).map(|hub| &hub.push);
                let timeout = settings.map_or(Span::ZERO, |push| push.poll_timeout);
                let age_max = settings.and_then(|push| push.connection_age_max);
                let span = age_max.map_or(timeout, |most| timeout.min(most));
                let at = reactor.now().after(span).min(end);
                self.set_action_deadline(reactor, to, at);
                if let Some(reply) = reply {
                    self.confirm_session(reactor, id, &reply);
                }
            }
            Err(error) => {
                self.forget_session(id);
                self.refuse_subscription(reactor, to, hub, error);
            }
        }
    }

    /// Answers a request whose subscription is refused.
    pub(super) fn refuse_subscription<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        hub: u16,
        error: Error,
    ) {
        match refusal(error) {
            (503, text) => self.answer_later(reactor, to, self.retry_of(hub), text, false),
            (status, text) => self.answer_error(reactor, to, status, text, false),
        }
    }

    /// Subscribes to a channel; the reply is `None` if the owner of the channel is another worker.
    fn subscribe<R: Reactor>(
        &mut self,
        reactor: &R,
        channel: (u16, &str),
        key: Key,
        since: Option<Since>,
    ) -> Result<(SubscriptionId, Option<Subscribed>), Error> {
        let at = self.instance(reactor);
        let hubs = &self.push.settings;
        let subscription = self.push.hub.subscribe(hubs, channel, key, (since, None), at)?;
        self.accounts.counters.push_subscriptions.add(1);
        self.accounts.counters.push_subscriptions_now.add(1);
        Ok((subscription.place, subscription.reply))
    }

    fn set_place(&mut self, id: Id<PushSession>, new: SubscriptionId) {
        match self.push.sessions.get_mut(id).map(|session| &mut session.kind) {
            Some(Kind::Events { place }) => *place = Some(new),
            Some(Kind::Poll(poll)) => poll.place = Some(new),
            Some(
                Kind::Request { .. }
                | Kind::ApiCall(_)
                | Kind::Commands { .. }
                | Kind::Unverified(_)
                | Kind::Client { .. },
            )
            | None => {}
        }
    }

    /// The subscription of a session is confirmed: the client gets what it missed.
    pub(super) fn confirm_session<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        reply: &Subscribed,
    ) {
        let Some(session) = self.push.sessions.get_mut(id) else { return };
        let to = session.requester;
        let is_lost = reply.recovered.as_ref().is_some_and(|recovered| !recovered.is_whole);
        let missed = reply.recovered.as_ref().map_or(&[][..], |found| &found.publications);
        let limits = self.push.settings.get(session.hub).map(|hub| &hub.queue);
        match &mut session.kind {
            Kind::Events { .. } => {
                // A client that does not read yet must not be disconnected because of what it recovers: it would come back with
                // the same position.
                let fits = limits.is_some_and(|limits| limits.admits(missed));
                let recovered = reply.recovered.as_ref().filter(|_| fits);
                let mut out = self.buffers.take();
                if is_lost || !fits {
                    out.extend_from_slice(events::LOST);
                }
                match &reply.position {
                    Some(position) if missed.is_empty() || !fits => {
                        events::encode_position(&mut out, position);
                    }
                    Some(_) | None => {}
                }
                self.send_data(reactor, to, &out);
                self.buffers.put(out);
                for publication in recovered.into_iter().flat_map(Recovered::encodable) {
                    self.deliver_to(reactor, Key::of_session(id), &publication);
                }
            }
            Kind::Poll(poll) => {
                poll.position = reply.position;
                // The next poll begins after the last publication of the response.
                let room = limits.map_or(0, |limits| limits.bytes_max);
                let count = count_within(missed, room).max(missed.len().min(1));
                if is_lost || !missed.is_empty() {
                    self.answer_poll(reactor, id, &missed[..count], is_lost);
                }
            }
            Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_)
            | Kind::Client { .. } => {}
        }
    }

    /// Ends a session whose subscription failed after the session had begun.
    pub(super) fn refuse_session<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let (to, retry) = (session.requester, self.retry_of(session.hub));
        match &session.kind {
            Kind::Poll { .. } => {
                self.forget_session(id);
                self.answer_later(reactor, to, retry, "limit exceeded", false);
            }
            Kind::Events { .. } => {
                self.abandon_client(reactor, to, Cause::Limit, "limit exceeded");
            }
            Kind::Request { .. }
            | Kind::ApiCall(_)
            | Kind::Commands { .. }
            | Kind::Unverified(_)
            | Kind::Client { .. } => {}
        }
    }

    /// Responds to a long poll and ends its subscription.
    pub(super) fn answer_poll<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        publications: &[Arc<Publication>],
        is_lost: bool,
    ) {
        let Some(session) = self.push.sessions.get_mut(id) else { return };
        let to = session.requester;
        let Kind::Poll(poll) = &mut session.kind else { return };
        let last = publications.last().and_then(|publication| publication.position);
        let (position, origin) = (last.or(poll.position), poll.origin.take());
        let mut body = self.buffers.take();
        poll::encode(&mut body, publications, position, is_lost);
        self.forget_session(id);
        let answer = Answer::Json { status: 200, body: &body, origin: origin.as_deref() };
        self.answer(reactor, to, &answer, false);
        self.buffers.put(body);
    }

    /// Sends a publication over a stream of events.
    pub(super) fn send_event<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        publication: &Publication,
    ) {
        self.send_data(reactor, to, publication.frame(Form::Event));
    }

    /// Sends a publication that has waited, with the event `lost` where messages are missing.
    pub(super) fn send_next_event<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        next: &Next,
    ) {
        if next.follows_gap {
            self.send_data(reactor, to, events::LOST);
        }
        self.send_event(reactor, to, &next.publication);
        if next.precedes_gap {
            self.send_data(reactor, to, events::LOST);
        }
    }

    /// Sends a comment, so that the stream of events stays alive.
    pub(super) fn send_heartbeat<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let to = session.requester;
        self.send_data(reactor, to, events::HEARTBEAT);
        self.arm_heartbeat(reactor, id);
    }

    pub(super) fn arm_heartbeat<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let (to, hub) = (session.requester, session.hub);
        let every = self.push.settings.get(hub).and_then(|hub| hub.push.heartbeat);
        if let Some(every) = every {
            self.set_action_deadline(reactor, to, reactor.now().after(every));
        }
    }
}

/// The position in Last-Event-ID, or in the query, which pages use for their first request. If it is malformed, such as the id of
/// another server, the client is told that it has missed messages.
fn stated_position(head: &RequestHead<'_>) -> Option<Since> {
    let of_field = head.find_named("last-event-id").and_then(|id| core::str::from_utf8(id).ok());
    let pairs = head.query.unwrap_or_default().split('&');
    let of_query = pairs.filter_map(|pair| pair.split_once('=')).find_map(|(name, value)| {
        matches!(name, "since" | "last-event-id" | "lastEventId").then_some(value)
    });
    let text = of_field.or(of_query).filter(|text| !text.is_empty())?;
    let parsed = super::decode_percent(text).and_then(|id| Since::parse_id(&id));
    Some(parsed.unwrap_or(Since::UNKNOWN))
}

/// Whether the client requests an event stream.
fn accepts_events(head: &RequestHead<'_>) -> bool {
    let accept = head.find_named("accept").unwrap_or_default();
    let kinds = accept.split(|byte| matches!(byte, b',' | b';'));
    kinds.map(<[u8]>::trim_ascii).any(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
}

/// The status and text for a subscription that is refused.
fn refusal(error: Error) -> (u16, &'static str) {
    match error {
        Error::UnknownChannel => (404, "the channel's namespace does not exist"),
        Error::PermissionDenied => {
            (403, "the client may not subscribe to this channel without a token that names it")
        }
        Error::BadRequest => (400, "the channel's name is empty, too long or not visible ASCII"),
        Error::ChannelPattern => (400, Error::ChannelPattern.message()),
        Error::LimitExceeded | Error::TooManyRequests => (503, "limit exceeded"),
        Error::Internal
        | Error::MethodNotFound
        | Error::TokenExpired
        | Error::AlreadySubscribed
        | Error::Expired
        | Error::NotAvailable
        | Error::UnrecoverablePosition => (500, "the subscription failed"),
    }
}
