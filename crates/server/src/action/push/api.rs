//! Requests of the application to the server API of a hub.
//! In: `POST api/METHOD` with a key. Out: its response, after the replies of all workers that it concerns.
//! Never: reads the body of a request without a valid key.
//! Limits: those of `request.rs`.

use std::sync::Arc;

use tidegate_base::Id;
use tidegate_push::api::{ApiCall, Node};
use tidegate_push::mail::{Reply, ReplyTo};
use tidegate_push::settings::is_api_key;
use tidegate_reactor::Reactor;
use tidegate_wire::message::{Method, RequestHead};

use crate::action::push::request::Purpose;
use crate::action::push::{Key, Kind, PushSession};
use crate::answer::Answer;
use crate::requester::Requester;
use crate::worker::Worker;

impl Worker {
    /// Begins a request to the API.
    pub(super) fn begin_api<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        hub: u16,
        method: &str,
    ) {
        let hubs = Arc::clone(&self.push.settings);
        let Some(settings) = hubs.get(hub) else {
            self.note_absent(to.sock);
            return self.answer_error(reactor, to, 500, "this hub does not exist", false);
        };
        if !is_api_key(&settings.push, stated_key(head)) {
            self.accounts.counters.push_refusals.add(1);
            let text = "the request has no valid API key; send X-API-Key: KEY or Authorization: apikey KEY";
            return self.answer_error(reactor, to, 401, text, false);
        }
        if !matches!(head.method, Method::Post) {
            return self.answer_error(reactor, to, 405, "use POST", false);
        }
        self.begin_with_body(reactor, to, head, hub, Purpose::Api(method.into()));
    }

    /// Carries out a complete request.
    pub(super) fn run_api<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        method: &str,
        body: &[u8],
    ) {
        let hubs = Arc::clone(&self.push.settings);
        let Some(session) = self.push.sessions.get(id) else { return };
        let (to, hub) = (session.requester, session.hub);
        let text = core::str::from_utf8(body).ok();
        let begun = text
            .zip(hubs.get(hub))
            .and_then(|(text, settings)| ApiCall::begin((hub, settings), method, text).ok());
        let Some((mut exchange, calls)) = begun else {
            self.forget_session(id);
            let text = "the body is not JSON of the form that this method requires";
            return self.answer_error(reactor, to, 400, text, false);
        };
        let key = Key::of_session(id);
        for (number, call) in calls.into_iter().enumerate() {
            exchange.expect(self.push.hub.replies_of(&call));
            let at = self.instance(reactor);
            let number = number as u32;
            let waiter = ReplyTo::Caller { key, number };
            if let Some(reply) = self.push.hub.call(&hubs, waiter, call, at) {
                self.count_reply(&reply);
                exchange.take(number, reply);
            }
        }
        let is_complete = exchange.is_complete();
        let Some(session) = self.push.sessions.get_mut(id) else { return };
        session.kind = Kind::ApiCall(Box::new(exchange));
        if is_complete {
            self.answer_exchange(reactor, id);
        }
    }

    /// Another worker has replied to a call.
    pub(super) fn take_reply<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        number: u32,
        reply: Reply,
    ) {
        self.count_reply(&reply);
        let Some(session) = self.push.sessions.get_mut(id) else { return };
        match &mut session.kind {
            Kind::ApiCall(exchange) => {
                exchange.take(number, reply);
                if exchange.is_complete() {
                    self.answer_exchange(reactor, id);
                }
            }
            Kind::Commands { .. } => self.confirm_commands(reactor, id),
            Kind::Request { .. }
            | Kind::Unverified(_)
            | Kind::Events { .. }
            | Kind::Poll { .. }
            | Kind::Client { .. } => {}
        }
    }

    pub(super) fn count_reply(&self, reply: &Reply) {
        match reply {
            Reply::Published { .. } => self.accounts.counters.push_publications.add(1),
            Reply::Failed(_) => self.accounts.counters.push_failures.add(1),
            Reply::Subscribed(_)
            | Reply::History { .. }
            | Reply::Done
            | Reply::Presence(_)
            | Reply::PresenceStats { .. }
            | Reply::Channels(_)
            | Reply::Info(_)
            | Reply::Delivered(_) => {}
        }
    }

    fn answer_exchange<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let to = session.requester;
        let Kind::ApiCall(exchange) = &session.kind else { return };
        let node = Node {
            name: &self.settings.newest().config.server.via,
            version: env!("CARGO_PKG_VERSION"),
        };
        let mut body = self.buffers.take();
        exchange.encode(&mut body, &node);
        self.forget_session(id);
        let answer = Answer::Json { status: 200, body: &body, origin: None };
        self.answer(reactor, to, &answer, false);
        self.buffers.put(body);
    }
}

/// The API key of a request, in a field that Centrifugo's clients use; empty if there is none.
fn stated_key<'h>(head: &RequestHead<'h>) -> &'h [u8] {
    if let Some(key) = head.find_named("x-api-key") {
        return key;
    }
    let scheme = b"apikey ";
    match head.find_named("authorization") {
        Some(value) if value.len() > scheme.len() => match value.split_at(scheme.len()) {
            (name, key) if name.eq_ignore_ascii_case(scheme) => key,
            _ => b"",
        },
        _ => b"",
    }
}
