//! Requests to a hub whose body must arrive before they are carried out: to the server API, and those of clients without
//! WebSocket.
//! In: a head, pieces of its body. Out: a call of the handler for the purpose of the request, with the whole body.
//! Never: reads a body beyond the limit of its kind.
//! Limits: `API_BODY_BYTES_MAX`; `message-max` of `[websocket]` for commands of clients; `PUSH_SPAN_MAX` in each half of a
//! turn, shared by the connections in rotation.

use tidegate_base::Id;
use tidegate_gate::websocket::EndpointId;
use tidegate_push::client::codec::Codec;
use tidegate_push::emulation::Framing;
use tidegate_reactor::Reactor;
use tidegate_wire::message::{BodyLength, RequestHead};

use crate::action::push::{HubRequest, Kind, PushSession};
use crate::requester::Requester;
use crate::worker::Worker;

/// The largest body of a request to the API; a larger one gets a 413 response. A batch may contain many messages.
const API_BODY_BYTES_MAX: usize = 8 << 20;
/// The text of the response to a body beyond its limit.
const TOO_LARGE: &str = "the request body exceeds the limit for this kind of request";

/// The purpose of a request.
pub(super) enum Purpose {
    /// A method of the server API.
    Api(Box<str>),
    /// To begin a connection of the client protocol: the body has the first commands.
    Stream {
        framing: Framing,
        origin: Option<Box<str>>,
        endpoint: EndpointId,
        /// The fields that events to the backend repeat.
        fields: Box<[u8]>,
    },
    /// To hand commands to a connection.
    Commands { codec: Codec, origin: Option<Box<str>>, endpoint: EndpointId },
}

impl Worker {
    /// Begins a request whose body is needed.
    pub(super) fn begin_with_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        hub: u16,
        purpose: Purpose,
    ) {
        let most = self.body_max(&purpose);
        let request = HubRequest { purpose, body: self.buffers.take() };
        let kind = Kind::Request(Box::new(request));
        let Some(id) = self.insert_session(reactor, to, hub, kind) else { return };
        match head.length {
            BodyLength::None | BodyLength::Length(0) => self.finish_hub_request(reactor, id),
            BodyLength::Length(length) if length > most as u64 => {
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

    /// The largest body of a request.
    fn body_max(&self, purpose: &Purpose) -> usize {
        match purpose {
            Purpose::Api(_) => API_BODY_BYTES_MAX,
            Purpose::Stream { endpoint, .. } | Purpose::Commands { endpoint, .. } => {
                self.settings.newest().websockets.get(*endpoint).limits.message_bytes_max as usize
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
        let Some(session) = self.push.sessions.get(id) else { return };
        let to = session.requester;
        let Kind::Request(request) = &session.kind else { return };
        if request.body.len() + data.len() > self.body_max(&request.purpose) {
            self.forget_session(id);
            return self.answer_error(reactor, to, 413, TOO_LARGE, true);
        }
        if let Some(PushSession { kind: Kind::Request(request), .. }) =
            self.push.sessions.get_mut(id)
        {
            request.body.extend_from_slice(data);
        }
        if is_end {
            self.finish_hub_request(reactor, id);
        }
    }

    /// The request is complete: it is carried out now, or in a later turn.
    fn finish_hub_request<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get(id) else { return };
        let sock = session.requester.sock;
        if self.push.share.is_used_up() || self.push.share.has_waiting_of(sock) {
            return self.push.share.put_off(sock, id);
        }
        self.run_hub_request(reactor, id);
    }

    /// Carries out the deferred requests, commands and verifications of tokens, within their shares of the turn.
    pub(crate) fn run_waiting_hub_requests<R: Reactor>(&mut self, reactor: &mut R) {
        self.push.share.renew();
        self.push.tokens.renew();
        if !self.push.share.has_waiting() && !self.push.tokens.has_waiting() {
            return;
        }
        while !self.push.share.is_used_up()
            && let Some(id) = self.push.share.take_next()
        {
            self.mark_session(id);
            // Its client may have disconnected while it waited.
            let Some(session) = self.push.sessions.find(id) else { continue };
            match session.kind {
                Kind::Request { .. } => self.run_hub_request(reactor, id),
                Kind::Client { .. } => self.resume_commands(reactor, id),
                Kind::ApiCall(_)
                | Kind::Commands { .. }
                | Kind::Unverified(_)
                | Kind::Events { .. }
                | Kind::Poll { .. } => {}
            }
        }
        while !self.push.tokens.is_used_up()
            && let Some(id) = self.push.tokens.take_next()
        {
            self.mark_session(id);
            match self.push.sessions.find(id).map(|session| &session.kind) {
                Some(Kind::Unverified(_)) => self.resume_subscription(reactor, id),
                Some(
                    Kind::Client { .. }
                    | Kind::Request { .. }
                    | Kind::ApiCall(_)
                    | Kind::Commands { .. }
                    | Kind::Events { .. }
                    | Kind::Poll { .. },
                ) => self.resume_commands(reactor, id),
                None => {}
            }
        }
        // Requests that follow on the same connections count toward the same share.
        self.settle(reactor);
        self.push.share.renew();
        self.push.tokens.renew();
    }

    fn run_hub_request<R: Reactor>(&mut self, reactor: &mut R, id: Id<PushSession>) {
        let Some(session) = self.push.sessions.get_mut(id) else { return };
        let Kind::Request(request) = &mut session.kind else { return };
        let body = core::mem::take(&mut request.body);
        let purpose = core::mem::replace(&mut request.purpose, Purpose::Api(Box::default()));
        let began = reactor.read_clock();
        match purpose {
            Purpose::Api(method) => self.run_api(reactor, id, &method, &body),
            Purpose::Stream { framing, origin, endpoint, fields } => {
                let with = (framing, endpoint, fields);
                self.begin_stream(reactor, id, with, origin.as_deref(), &body);
            }
            Purpose::Commands { codec, origin, .. } => {
                self.hand_over_commands(reactor, id, codec, origin.as_deref(), &body);
            }
        }
        self.buffers.put(body);
        self.push.share.note_call(reactor.read_clock().since(began));
    }
}
