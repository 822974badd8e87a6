//! Requests of the application to the server API of a hub.
//! In: `POST api/METHOD` with a key. Out: its response, after the replies of all workers that it concerns.
//! Never: reads the body of a request without a valid key.
//! Limits: `API_BODY_BYTES_MAX`.

use std::sync::Arc;

use tidegate_base::Id;
use tidegate_push::api::{Exchange, Node};
use tidegate_push::mail::{Reply, ReplyTo};
use tidegate_push::settings::is_api_key;
use tidegate_reactor::Reactor;
use tidegate_wire::message::{BodyLength, Method, RequestHead};

use crate::action::push::{Key, Kind, PushSession};
use crate::answer::Answer;
use crate::requester::Requester;
use crate::worker::Worker;

/// The largest body of a request to the API; a larger one gets a 413 response. A batch may contain many messages.
const API_BODY_BYTES_MAX: usize = 8 << 20;

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
            return self.answer_error(reactor, to, 401, "", false);
        }
        if !matches!(head.method, Method::Post) {
            return self.answer_error(reactor, to, 405, "", false);
        }
        let body = self.buffers.take();
        let kind = Kind::Request { method: method.into(), body };
        let Some(id) = self.insert_session(reactor, to, hub, kind) else { return };
        match head.length {
            BodyLength::None | BodyLength::Length(0) => self.run_api(reactor, id),
            BodyLength::Length(length) if length > API_BODY_BYTES_MAX as u64 => {
                self.forget_session(id);
                self.answer_error(reactor, to, 413, TOO_LARGE, true);
            }
            BodyLength::Length(_) | BodyLength::Streamed | BodyLength::UntilClose => {
                if head.expect_continue {
                    self.send_continue(reactor, to);
                }
            }
        }
    }

    /// A part of the request body has arrived.
    pub(in crate::action) fn feed_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<PushSession>,
        data: &[u8],
        is_end: bool,
    ) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let to = session.requester;
        let Kind::Request { body, .. } = &mut session.kind else { return };
        if body.len() + data.len() > API_BODY_BYTES_MAX {
            self.forget_session(id);
            return self.answer_error(reactor, to, 413, TOO_LARGE, true);
        }
        body.extend_from_slice(data);
        if is_end {
            self.run_api(reactor, id);
        }
    }

    /// The request is complete.
    fn run_api<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let hubs = Arc::clone(&self.push.settings);
        let Some(session) = self.sessions.get_mut(id) else { return };
        let (to, hub) = (session.requester, session.hub);
        let Kind::Request { method, body } = &mut session.kind else { return };
        let (method, body) = (core::mem::take(method), core::mem::take(body));
        let text = core::str::from_utf8(&body).ok();
        let begun = text
            .zip(hubs.get(hub))
            .and_then(|(text, settings)| Exchange::begin((hub, settings), &method, text).ok());
        self.buffers.put(body);
        let Some((mut exchange, calls)) = begun else {
            self.forget_session(id);
            let text = "the body is not JSON of the form that this method takes";
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
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.kind = Kind::Exchange(Box::new(exchange));
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
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Kind::Exchange(exchange) = &mut session.kind else { return };
        exchange.take(number, reply);
        if exchange.is_complete() {
            self.answer_exchange(reactor, id);
        }
    }

    pub(super) fn count_reply(&self, reply: &Reply) {
        match reply {
            Reply::Published(_) => self.accounts.counters.push_publications.add(1),
            Reply::Failed(_) => self.accounts.counters.push_failures.add(1),
            Reply::Subscribed(_)
            | Reply::History { .. }
            | Reply::Done
            | Reply::Presence(_)
            | Reply::PresenceStats { .. }
            | Reply::Channels(_)
            | Reply::Info(_) => {}
        }
    }

    fn answer_exchange<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.sessions.get(id) else { return };
        let to = session.requester;
        let Kind::Exchange(exchange) = &session.kind else { return };
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

const TOO_LARGE: &str = "the request exceeds 8 MiB";

/// The key that a request states, as Centrifugo's clients do.
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
