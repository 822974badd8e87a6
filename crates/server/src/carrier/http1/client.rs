//! Client connections: decode request heads, route them, respond or begin an exchange, close.
//! In: bytes and events of downstream connections. Out: responses in their output; new exchanges.
//! Never: decides framing (wire) or where a request goes (gate).
//! Limits: up to `DISCARD_BYTES_MAX` of an unwanted body are read to keep the connection. While a client does
//! not read its responses (`OUTPUT_PAUSE_BYTES`), no further request is decoded; only the body of a proxied request
//! in progress is still read, at the speed of its server.
//! Invariant: the requests of a connection are answered in order: nothing after a request with an exchange is
//! decoded until that exchange ends.

use std::rc::Rc;

use tidegate_base::limits::OUTPUT_PAUSE_BYTES;
use tidegate_base::{Moment, Span};
use tidegate_config::model::{Action, HttpsRedirect, Listener};
use tidegate_gate::filter::Filtered;
use tidegate_gate::filter::hsts::Hsts;
use tidegate_gate::respond::{self, AnswerContext};
use tidegate_gate::router::{self, Routed};
use tidegate_gate::scheme::{Scheme, request_scheme};
use tidegate_reactor::{ListenerId, OutputLook, Peer, Reactor, SockId};
use tidegate_wire::http1::{BodyDecoder, HeadDecoder, HeadLimits, ResponseEncoder};
use tidegate_wire::message::{BodyLength, Fault, FieldStorage, Method, RequestHead, Version};

use crate::action::proxy::exchange::Stage;
use crate::action::proxy::tunnel::Side;
use crate::client::begins_with_header;
use crate::connection::{Downstream, DownstreamState};
use crate::worker::Worker;

/// An unwanted body is read up to this many bytes to keep its connection. After a longer one the connection
/// is closed.
const DISCARD_BYTES_MAX: u64 = 64 * 1024;

/// Whether `sock` has output that its peer does not read fast enough.
pub(crate) fn is_blocked<R: Reactor>(reactor: &mut R, sock: SockId) -> bool {
    if reactor.output_pending(sock) < OUTPUT_PAUSE_BYTES {
        return false;
    }
    reactor.flush(sock);
    reactor.output_pending(sock) > 0
}

/// How often blocked output is looked at within its timeout.
const LOOKS_PER_TIMEOUT: u32 = 4;

/// The time until the next look at blocked output, whose peer must take some of it within `timeout`.
pub(crate) fn look_span(timeout: Span) -> Span {
    timeout / LOOKS_PER_TIMEOUT
}

/// Looks at output that its peer is slow to take. Returns when to look again, or `None` if the peer has taken
/// nothing for `timeout` or nothing is pending. What happened before the first look is unknown, so the timeout
/// expires up to a quarter late.
pub(crate) fn next_look<R: Reactor>(
    reactor: &mut R,
    sock: SockId,
    timeout: Span,
) -> Option<Moment> {
    look_again_at(reactor.look_at_output(sock), reactor.now(), timeout)
}

/// As `next_look`, after the look.
pub(crate) fn look_again_at(look: OutputLook, now: Moment, timeout: Span) -> Option<Moment> {
    match look {
        OutputLook::Idle => None,
        OutputLook::Emptied => Some(now.after(timeout)),
        OutputLook::Pending { moved_at } => {
            let expires_at = moved_at.after(timeout);
            (expires_at > now).then(|| expires_at.min(now.after(look_span(timeout))))
        }
    }
}

/// How a response by this process is encoded for its client.
#[derive(Clone, Copy)]
pub(crate) struct Answering<'a> {
    /// What the response contains.
    pub(crate) context: AnswerContext<'a>,
    /// The version of the request.
    pub(crate) version: Version,
    /// The connection closes after the response.
    pub(crate) close: bool,
    /// The value of Strict-Transport-Security. Empty if the field is not sent.
    pub(crate) hsts: &'a str,
}

impl<'a> Answering<'a> {
    /// The sink of the response, with its filters.
    pub(crate) fn sink<'o>(&self, out: &'o mut Vec<u8>) -> Filtered<'a, ResponseEncoder<'o>> {
        Filtered::new(ResponseEncoder::new(out, self.version, self.close), self.hsts)
    }
}

impl DownstreamState {
    /// The state that reads and discards the rest of an unwanted body, or expects a head if there is no rest.
    pub(crate) fn discarding(body: BodyDecoder) -> Self {
        match body.is_done() {
            true => Self::ExpectHead,
            false => Self::ExpectDiscard { body, left: DISCARD_BYTES_MAX },
        }
    }
}

impl Worker {
    /// A listener accepted a connection.
    pub(crate) fn accept<R: Reactor>(
        &mut self,
        reactor: &mut R,
        listener: ListenerId,
        sock: SockId,
        peer: Peer,
    ) {
        let counters = &self.accounts.counters;
        counters.accepted.add(1);
        counters.downstream_now.add(1);
        let listener = self.listener_index(listener).unwrap_or_default();
        let settings = &self.snapshot.config.listeners[usize::from(listener)];
        // On a listener with TLS, the PROXY header precedes the handshake, and the TLS layer reads it.
        let state = match settings.tls.is_none() && begins_with_header(settings, peer) {
            true => DownstreamState::ExpectProxyHeader,
            false => DownstreamState::ExpectHead,
        };
        let head_timeout = settings.timeouts.head;
        let scheme = Scheme::of_connection(settings.tls.is_some());
        self.conns.insert_downstream(
            sock,
            Downstream::new(
                peer,
                listener,
                scheme,
                self.snapshot.hsts.of_listener(usize::from(listener), scheme),
                state,
                reactor.now(),
            ),
        );
        // The first head is subject to the head timeout. The idle timeout applies only after it.
        reactor.set_deadline(sock, reactor.now().after(head_timeout));
    }

    /// A client sent bytes.
    pub(crate) fn downstream_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) {
        let Some(down) = self.conns.downstream(sock) else { return };
        if !down.input.is_empty() || down.is_held() {
            down.input.push(bytes, &mut self.buffers);
            self.resume_downstream(reactor, sock);
            return;
        }
        let used = self.decode_downstream(reactor, sock, bytes);
        if let Some(down) = self.conns.downstream(sock)
            && used < bytes.len()
        {
            down.input.push(&bytes[used..], &mut self.buffers);
        }
        self.conns.note_bytes(sock);
        self.settle_downstream(reactor, sock);
    }

    /// Decodes the bytes in the connection's input, as far as its state allows.
    pub(crate) fn resume_downstream<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return };
        if !down.is_held() && !down.input.is_empty() {
            let mut input = core::mem::take(&mut down.input);
            let used = self.decode_downstream(reactor, sock, input.as_slice());
            input.consume(used);
            match self.conns.downstream(sock) {
                Some(down) if !input.is_empty() => down.input = input,
                _ => input.release(&mut self.buffers),
            }
        }
        self.settle_downstream(reactor, sock);
    }

    /// Sets receiving and the deadline according to the connection's state.
    fn settle_downstream<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return };
        let timeouts = &self.snapshot.config.listeners[usize::from(down.listener)].timeouts;
        let now = reactor.now();
        if down.is_held() {
            reactor.set_receiving(sock, false);
            reactor.set_deadline(sock, now.after(look_span(timeouts.body)));
            return;
        }
        match down.state {
            DownstreamState::ExpectProxyHeader => {
                // The deadline was set at accept. Receiving single bytes does not extend it.
                reactor.set_receiving(sock, true);
                if down.finished {
                    self.close_downstream(reactor, sock);
                }
            }
            DownstreamState::ExpectHead => {
                reactor.set_receiving(sock, true);
                if down.input.is_empty() {
                    down.head_started = false;
                    let wait = if down.requests == 0 { timeouts.head } else { timeouts.idle };
                    reactor.set_deadline(sock, now.after(wait));
                } else if !down.head_started {
                    down.head_started = true;
                    reactor.set_deadline(sock, now.after(timeouts.head));
                }
                if down.finished {
                    self.close_downstream(reactor, sock);
                }
            }
            DownstreamState::ExpectDiscard { .. } => {
                reactor.set_receiving(sock, true);
                reactor.set_deadline(sock, now.after(timeouts.body));
                if down.finished {
                    self.close_downstream(reactor, sock);
                }
            }
            DownstreamState::Exchange(id) => {
                let waits = down.input.is_empty();
                let Some(exchange) = self.exchanges.get_mut(id) else { return };
                reactor.set_receiving(sock, waits);
                let waits_for_server = matches!(exchange.stage, Stage::Queued | Stage::Paused);
                if exchange.request_done || waits_for_server || !waits {
                    exchange.body_by = Moment::NEVER;
                } else {
                    exchange.body_by = exchange.body_by.min(now.after(timeouts.body));
                    reactor.set_deadline(sock, exchange.body_by);
                }
            }
            DownstreamState::Synthetic(id) => {
                reactor.set_receiving(sock, down.input.is_empty());
                if self.awaits_body(id) {
                    reactor.set_deadline(sock, now.after(timeouts.body));
                }
            }
            DownstreamState::Tunnel(_) => {}
        }
    }

    /// Decodes `bytes` as far as the connection's state allows. Returns how many were processed.
    fn decode_downstream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let Some(down) = self.conns.downstream(sock) else { return bytes.len() };
            if down.is_held() {
                break;
            }
            let rest = &bytes[used..];
            let step = match &mut down.state {
                DownstreamState::ExpectProxyHeader => self.handle_proxy_header(reactor, sock, rest),
                DownstreamState::ExpectHead => self.decode_request(reactor, sock, rest),
                DownstreamState::ExpectDiscard { .. } => self.discard_body(reactor, sock, rest),
                DownstreamState::Exchange(id) => {
                    let id = *id;
                    self.forward_request_body(reactor, id, rest)
                }
                DownstreamState::Synthetic(id) => {
                    let id = *id;
                    self.feed_synthetic(reactor, id, rest)
                }
                DownstreamState::Tunnel(id) => {
                    let id = *id;
                    self.tunnel_received(reactor, id, Side::Client, rest)
                }
            };
            if step == 0 {
                break;
            }
            used += step;
        }
        used
    }

    /// Decodes one head and handles its request. Returns 0 if the head is not complete yet.
    fn decode_request<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, bytes: &[u8]) -> usize {
        let snapshot = Rc::clone(&self.snapshot);
        let Some(down) = self.conns.downstream(sock) else { return bytes.len() };
        let listener = &snapshot.config.listeners[usize::from(down.listener)];
        let limits = HeadLimits {
            request_line_bytes_max: listener.limits.request_line_bytes_max,
            head_bytes_max: listener.limits.head_bytes_max,
            header_fields_max: listener.limits.header_fields_max,
        };
        let mut storage = FieldStorage::new();
        match down.decoder.decode_request(bytes, &limits, &mut storage) {
            Ok(None) => 0,
            Ok(Some((head, head_bytes))) => {
                down.decoder = HeadDecoder::default();
                down.head_started = false;
                self.conns.note_request(sock);
                self.accounts.counters.requests.add(1);
                self.handle_request(reactor, sock, listener, &head);
                head_bytes
            }
            Err(fault) => {
                self.refuse(reactor, sock, fault, is_head_request(bytes));
                bytes.len()
            }
        }
    }

    /// Finds the route of the request and performs its action.
    fn handle_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        listener: &Listener,
        head: &RequestHead<'_>,
    ) {
        let snapshot = Rc::clone(&self.snapshot);
        let trusted = self.is_trusted(sock, listener);
        let Some(down) = self.conns.downstream(sock) else { return };
        let scheme = request_scheme(head, down.scheme, trusted);
        down.hsts = snapshot.hsts.of_listener(usize::from(down.listener), scheme);
        if matches!(head.method, Method::Connect) {
            let text = "the CONNECT method is not supported";
            return self.answer_error(reactor, sock, head, 501, text, true);
        }
        if router::is_misdirected(head, scheme) && !trusted {
            let text = "an https URI requires an encrypted connection";
            return self.answer_error(reactor, sock, head, 421, text, false);
        }
        if let (BodyLength::Length(length), Some(most)) =
            (head.length, listener.limits.body_bytes_max)
            && length > most
        {
            let text = "the request body exceeds this listener's limit";
            return self.answer_error(reactor, sock, head, 413, text, true);
        }
        if scheme == Scheme::Http
            && let Some(redirect) = listener.redirect_to_https
        {
            return self.redirect_to_https(reactor, sock, head, redirect);
        }
        let Some(down) = self.conns.downstream(sock) else { return };
        let listener_index = usize::from(down.listener);
        let mut path_scratch = core::mem::take(&mut self.path_scratch);
        let certificate = down.facts.as_ref().and_then(|facts| facts.certificate());
        match snapshot.router.route(listener_index, head, certificate, &mut path_scratch) {
            Routed::Route(index) => {
                down.hsts = snapshot.hsts.of_route(listener_index, index, scheme);
                match &snapshot.config.routes[index].action {
                    Action::Respond(_) => self.respond(reactor, sock, head, index),
                    Action::Redirect(redirect) => {
                        let close = self.must_close(sock, head);
                        let answering = self.answering(reactor, sock, head, close);
                        let Some(out) = reactor.output(sock) else { return };
                        let (sink, context) = (&mut answering.sink(out), &answering.context);
                        let status =
                            respond::encode_redirect(sink, redirect, head, scheme, context);
                        self.after_answer(reactor, sock, head, status, close);
                    }
                    Action::Synthetic => self.begin_synthetic(reactor, sock, head),
                    Action::Proxy(proxy) => {
                        self.begin_exchange(reactor, sock, head, proxy);
                    }
                }
            }
            Routed::NoRoute => self.answer_unrouted(reactor, sock, head),
            Routed::Refused(text) => self.answer_error(reactor, sock, head, 400, text, false),
        }
        self.path_scratch = path_scratch;
    }

    /// Redirects a plain request to https.
    fn redirect_to_https<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        head: &RequestHead<'_>,
        redirect: HttpsRedirect,
    ) {
        let close = self.must_close(sock, head);
        let answering = self.answering(reactor, sock, head, close);
        let Some(out) = reactor.output(sock) else { return };
        let (sink, context) = (&mut answering.sink(out), &answering.context);
        let status = respond::encode_https_redirect(sink, redirect, head, context);
        self.after_answer(reactor, sock, head, status, close);
    }

    /// Sends the fixed response of a route.
    fn respond<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        head: &RequestHead<'_>,
        route: usize,
    ) {
        let snapshot = Rc::clone(&self.snapshot);
        let close = self.must_close(sock, head);
        let Answering { context, version, close: announced, hsts } =
            self.answering(reactor, sock, head, close);
        let Some(prepared) = snapshot.answers.prepared(route) else { return };
        if let Some(out) = reactor.output(sock) {
            let mut encoder = ResponseEncoder::new(out, version, announced);
            if hsts.is_empty() || prepared.has_hsts() {
                respond::encode_respond(&mut encoder, prepared, &context);
            } else {
                let sink = &mut Hsts::new(encoder, hsts);
                respond::encode_respond_parts(sink, prepared, &context);
            }
        }
        self.after_answer(reactor, sock, head, prepared.status(), close);
    }

    /// Responds to a request that no route matches.
    fn answer_unrouted<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        head: &RequestHead<'_>,
    ) {
        if head.path == "*" {
            // RFC 9110 section 9.3.7: OPTIONS * applies to the server as a whole.
            return self.answer_error(reactor, sock, head, 200, "", false);
        }
        self.answer_error(reactor, sock, head, 404, "no route matches this request", false);
    }

    /// Responds to a request whose Max-Forwards is 0, as its final recipient.
    pub(crate) fn answer_as_recipient<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        head: &RequestHead<'_>,
    ) {
        let close = self.must_close(sock, head);
        let answering = self.answering(reactor, sock, head, close);
        if let Some(out) = reactor.output(sock) {
            let sink = &mut answering.sink(out);
            respond::encode_final_recipient(sink, head, &answering.context);
        }
        self.after_answer(reactor, sock, head, 200, close);
    }

    /// Sends an error response with a short text. `close` ends the connection even if the client wants to
    /// keep it.
    pub(crate) fn answer_error<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        head: &RequestHead<'_>,
        status: u16,
        text: &str,
        close: bool,
    ) {
        let close = close || self.must_close(sock, head);
        let answering = self.answering(reactor, sock, head, close);
        if let Some(out) = reactor.output(sock) {
            respond::encode_error(&mut answering.sink(out), status, text, &answering.context);
        }
        self.after_answer(reactor, sock, head, status, close);
    }

    /// Whether the listener trusts the forwarding fields (such as X-Forwarded-Proto) of this client.
    fn is_trusted(&mut self, sock: SockId, listener: &Listener) -> bool {
        match self.conns.downstream(sock).map(|down| &down.peer) {
            Some(Peer::Tcp(address)) => {
                listener.trusted.iter().any(|net| net.contains(address.ip()))
            }
            Some(Peer::Local) | None => false,
        }
    }

    /// Whether the connection must end after the response to this request.
    pub(crate) fn must_close(&mut self, sock: SockId, head: &RequestHead<'_>) -> bool {
        let stopping = self.stopping;
        let Some(down) = self.conns.downstream(sock) else { return true };
        let listener = &self.snapshot.config.listeners[usize::from(down.listener)];
        !head.persistent
            || stopping
            || listener.requests_per_connection_max.is_some_and(|most| down.requests >= most)
    }

    /// How a response by this process to the request `head` is encoded.
    pub(crate) fn answering<R: Reactor>(
        &mut self,
        reactor: &R,
        sock: SockId,
        head: &RequestHead<'_>,
        close: bool,
    ) -> Answering<'_> {
        let is_head = matches!(head.method, Method::Head);
        let close = close || is_cheaper_to_close(head);
        self.answering_as(reactor, sock, is_head, head.version, close)
    }

    /// How a response by this process is encoded, by the facts of the request.
    pub(crate) fn answering_as<R: Reactor>(
        &mut self,
        reactor: &R,
        sock: SockId,
        is_head: bool,
        version: Version,
        close: bool,
    ) -> Answering<'_> {
        self.date.update(reactor.unix_seconds());
        let hsts = self.conns.downstream(sock).map_or(0, |down| down.hsts);
        let context = AnswerContext {
            date: self.date.as_bytes(),
            server: &self.snapshot.config.server.server_name,
            is_head,
        };
        Answering { context, version, close, hsts: self.snapshot.hsts.value(hsts) }
    }

    /// Called after a complete response was put into the output: expects the next head, discards the rest of
    /// an unwanted body, or closes the connection.
    pub(crate) fn after_answer<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        head: &RequestHead<'_>,
        status: u16,
        close: bool,
    ) {
        self.accounts.counters.count_answer(status);
        if close || is_cheaper_to_close(head) {
            return self.close_downstream(reactor, sock);
        }
        let blocked = is_blocked(reactor, sock);
        let Some(down) = self.conns.downstream(sock) else { return };
        down.blocked = blocked;
        down.state = DownstreamState::discarding(BodyDecoder::new(head.length));
    }

    /// Reads and discards an unwanted body.
    fn discard_body<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, bytes: &[u8]) -> usize {
        let Some(down) = self.conns.downstream(sock) else { return bytes.len() };
        let DownstreamState::ExpectDiscard { body, left } = &mut down.state else { return 0 };
        match body.decode(bytes) {
            Ok(step) if step.consumed as u64 <= *left => {
                *left -= step.consumed as u64;
                if step.done {
                    down.state = DownstreamState::ExpectHead;
                }
                step.consumed
            }
            // The response has been sent already, so an error can only be reported by closing.
            Ok(_) | Err(_) => {
                self.close_downstream(reactor, sock);
                bytes.len()
            }
        }
    }

    /// Rejects a malformed head and ends the connection, because the start of the next message is unknown.
    fn refuse<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, fault: Fault, is_head: bool) {
        self.accounts.counters.requests_refused.add(1);
        if let Some(down) = self.conns.downstream(sock) {
            let listener = usize::from(down.listener);
            down.hsts = self.snapshot.hsts.of_listener(listener, down.scheme);
        }
        self.refuse_with(reactor, sock, fault.status(), fault.reason(), is_head);
    }

    /// Sends an error response for an incomplete or malformed request, and ends the connection. `is_head`:
    /// the method is HEAD, as far as the bytes show (RFC 9110 section 9.3.2).
    pub(crate) fn refuse_with<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        status: u16,
        text: &str,
        is_head: bool,
    ) {
        let answering = self.answering_as(reactor, sock, is_head, Version::Http11, true);
        if let Some(out) = reactor.output(sock) {
            respond::encode_error(&mut answering.sink(out), status, text, &answering.context);
        }
        self.accounts.counters.count_answer(status);
        self.close_downstream(reactor, sock);
    }

    /// Closes the connection in order: pending output is still sent.
    pub(crate) fn close_downstream<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.drop_downstream(reactor, sock);
        reactor.close(sock);
    }

    /// Removes a downstream connection and everything in progress for it. The caller closes the socket.
    pub(crate) fn drop_downstream<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(mut down) = self.conns.remove_downstream(sock) else { return };
        self.accounts.counters.downstream_now.sub(1);
        down.input.release(&mut self.buffers);
        self.release_kept(reactor, &mut down);
        match down.state {
            DownstreamState::Exchange(id) | DownstreamState::Tunnel(id) => {
                self.abort_exchange(reactor, id);
            }
            DownstreamState::Synthetic(id) => {
                self.synthetics.remove(id);
            }
            DownstreamState::ExpectProxyHeader
            | DownstreamState::ExpectHead
            | DownstreamState::ExpectDiscard { .. } => {}
        }
    }

    /// A client ended its direction of the connection.
    pub(crate) fn downstream_finished<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return };
        down.finished = true;
        match down.state {
            DownstreamState::ExpectProxyHeader
            | DownstreamState::ExpectHead
            | DownstreamState::ExpectDiscard { .. } => {
                self.close_downstream(reactor, sock);
            }
            DownstreamState::Exchange(id) => {
                let unfinished = self.exchanges.get(id).is_none_or(|e| !e.request_done);
                // A client may end its direction after a complete request and still read the response.
                if unfinished {
                    self.note_departure(id);
                    self.accounts.counters.client_aborts.add(1);
                    self.close_downstream(reactor, sock);
                } else {
                    self.leave_queue(reactor, id);
                }
            }
            DownstreamState::Synthetic(id) => {
                // The body that the response waits for will not arrive.
                if self.awaits_body(id) {
                    self.accounts.counters.client_aborts.add(1);
                    self.close_downstream(reactor, sock);
                }
            }
            DownstreamState::Tunnel(id) => self.tunnel_finished(reactor, id, Side::Client),
        }
    }

    /// A client ended its direction of the connection; bytes before the end are still unread.
    pub(crate) fn downstream_hung_up<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        if let Some(down) = self.conns.downstream(sock)
            && let DownstreamState::Exchange(id) = down.state
        {
            self.leave_queue(reactor, id);
        }
    }

    /// A client connection was reset or ended.
    pub(crate) fn downstream_closed<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        if let Some(down) = self.conns.downstream(sock)
            && let DownstreamState::Exchange(id) = down.state
        {
            self.note_departure(id);
        }
        if let Some(down) = self.conns.downstream(sock)
            && !matches!(
                down.state,
                DownstreamState::ExpectProxyHeader | DownstreamState::ExpectHead
            )
        {
            self.accounts.counters.client_aborts.add(1);
        }
        self.drop_downstream(reactor, sock);
    }

    /// The blocked output to a client has drained.
    pub(crate) fn downstream_drained<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return };
        down.blocked = false;
        match down.state {
            DownstreamState::Exchange(id) | DownstreamState::Tunnel(id) => {
                self.resume_upstream_of(reactor, id);
            }
            DownstreamState::Synthetic(id) => self.pump(reactor, id),
            DownstreamState::ExpectProxyHeader
            | DownstreamState::ExpectHead
            | DownstreamState::ExpectDiscard { .. } => {}
        }
        self.resume_downstream(reactor, sock);
    }

    /// The deadline of a client connection expired.
    pub(crate) fn downstream_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return };
        let counters = &self.accounts.counters;
        if down.blocked && !matches!(down.state, DownstreamState::Tunnel(_)) {
            let listener = &self.snapshot.config.listeners[usize::from(down.listener)];
            let timeout = listener.timeouts.body;
            if reactor.output_pending(sock) == 0 {
                // `Drained` is on its way.
                let at = reactor.now().after(look_span(timeout));
                return reactor.set_deadline(sock, at);
            }
            if let Some(at) = next_look(reactor, sock, timeout) {
                return reactor.set_deadline(sock, at);
            }
            counters.body_timeouts.add(1);
            self.drop_downstream(reactor, sock);
            return reactor.abort(sock);
        }
        match down.state {
            DownstreamState::ExpectProxyHeader => {
                counters.head_timeouts.add(1);
                self.close_downstream(reactor, sock);
            }
            DownstreamState::ExpectHead if down.head_started || down.requests == 0 => {
                counters.head_timeouts.add(1);
                if down.head_started {
                    let text = "timed out reading the request head";
                    let is_head = is_head_request(down.input.as_slice());
                    self.refuse_with(reactor, sock, 408, text, is_head);
                } else {
                    self.close_downstream(reactor, sock);
                }
            }
            DownstreamState::ExpectHead => {
                counters.idle_timeouts.add(1);
                self.close_downstream(reactor, sock);
            }
            DownstreamState::ExpectDiscard { .. } => {
                counters.body_timeouts.add(1);
                self.close_downstream(reactor, sock);
            }
            DownstreamState::Exchange(id) => self.exchange_client_due(reactor, id),
            DownstreamState::Synthetic(id) => self.synthetic_due(reactor, id),
            DownstreamState::Tunnel(id) => self.tunnel_due(reactor, id),
        }
    }

    /// Closes all idle connections. Part of a stop.
    pub(crate) fn close_idle<R: Reactor>(&mut self, reactor: &mut R) {
        for sock in self.conns.downstream_ids() {
            if let Some(down) = self.conns.downstream(sock)
                && matches!(
                    down.state,
                    DownstreamState::ExpectProxyHeader | DownstreamState::ExpectHead
                )
                && down.input.is_empty()
            {
                self.close_downstream(reactor, sock);
            }
        }
        for sock in self.conns.upstream_ids() {
            if self.conns.upstream(sock).is_some_and(|up| up.exchange.is_none()) {
                self.retire_upstream(reactor, sock);
            }
        }
    }
}

/// Whether a request that cannot be decoded begins with the method HEAD, so that the response has no body.
fn is_head_request(bytes: &[u8]) -> bool {
    bytes.strip_prefix(b"\r\n").unwrap_or(bytes).starts_with(b"HEAD ")
}

/// Whether closing the connection is cheaper than discarding the body of this request. A client that waits
/// for 100 (Continue) may or may not send its body, and a long body costs more than a new connection.
fn is_cheaper_to_close(head: &RequestHead<'_>) -> bool {
    match head.length {
        BodyLength::None => false,
        BodyLength::Length(length) => head.expect_continue || length > DISCARD_BYTES_MAX,
        BodyLength::Streamed | BodyLength::UntilClose => head.expect_continue,
    }
}
