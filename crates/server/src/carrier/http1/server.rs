//! HTTP/1 on server connections: decodes responses.
//! In: bytes and the end of a connection that serves an exchange. Out: messages for `action/proxy/response.rs`.
//! Never: derives a response's framing a second time.
//! Invariant: bytes after a complete response are never taken for the next one; they end the connection.

use tidegate_base::Id;
use tidegate_gate::{forward, websocket};
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http1::{BodyDecoder, HeadDecoder, ResponseLimits};
use tidegate_wire::message::{BodyLength, FieldName, RequestKind, ResponseHead, ResponseStorage};

use crate::action::proxy::exchange::{Exchange, Stage};
use crate::action::proxy::tunnel::Side;
use crate::buffers::Input;
use crate::connection::Upstream;
use crate::malformed::FaultPlace;
use crate::worker::{Work, Worker};

/// The reason in the proxy's response if a response of the server cannot be decoded.
const MALFORMED: &str = "the server's response is malformed";
/// The reason in `show errors` for bytes that arrive on an idle connection.
const UNREQUESTED: &str = "bytes from a server before a request was sent";

/// The HTTP/1 state of a connection to a server.
pub(crate) struct Http1Server {
    /// Decodes the next response head. Reset after each head.
    decoder: HeadDecoder,
    /// Decodes the body of the current response. Replaced when its head arrives.
    body: BodyDecoder,
    /// Bytes received but not processed yet: the beginning of a response head, or a part of a body that waits for the
    /// bandwidth of the route. Empty while idle.
    pub(crate) input: Input,
}

impl Http1Server {
    /// A connection that was just begun.
    pub(crate) fn new() -> Self {
        Self {
            decoder: HeadDecoder::default(),
            body: BodyDecoder::new(BodyLength::None),
            input: Input::default(),
        }
    }
}

impl Worker {
    /// A server sent bytes.
    pub(in crate::carrier) fn http1_server_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let id = up.exchange;
        if id.is_none() {
            // No request is in progress. The bytes must not be taken for the response to the next request.
            self.accounts.counters.upstream_faults.add(1);
            self.keep_malformed(reactor, sock, (UNREQUESTED, FaultPlace::At(0)), bytes);
            self.lose_idle(reactor, sock);
            return reactor.abort(sock);
        }
        if reactor.is_guarded(sock) {
            // The server cannot have seen the request, so the bytes are not the response to it.
            self.accounts.counters.upstream_faults.add(1);
            self.keep_malformed(reactor, sock, (UNREQUESTED, FaultPlace::At(0)), bytes);
            return self.request_not_sent(reactor, id);
        }
        let Some(http1) = up.http1() else { return self.note_bug(reactor, sock) };
        let mut input = core::mem::take(&mut http1.input);
        if input.is_empty() {
            let used = self.decode_server(reactor, sock, bytes);
            // Decoding may have closed the connection.
            if let Some(http1) = self.conns.upstream(sock).and_then(Upstream::http1)
                && used < bytes.len()
            {
                http1.input.push(&bytes[used..], &mut self.buffers);
            }
            return;
        }
        input.push(bytes, &mut self.buffers);
        let used = self.decode_server(reactor, sock, input.as_slice());
        input.consume(used);
        match self.conns.upstream(sock).and_then(Upstream::http1) {
            Some(http1) if !input.is_empty() => http1.input = input,
            _ => input.release(&mut self.buffers),
        }
    }

    /// Decodes the bytes that waited for the bandwidth of the route. Called for an entry of the worker's queue of work.
    pub(in crate::carrier) fn resume_http1_server<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        // The connection may have ended, or become idle, after the work was queued.
        let Some(http1) = self.conns.upstream(sock).and_then(Upstream::http1) else { return };
        let mut input = core::mem::take(&mut http1.input);
        let used = self.decode_server(reactor, sock, input.as_slice());
        input.consume(used);
        match self.conns.upstream(sock).and_then(Upstream::http1) {
            Some(http1) if !input.is_empty() => http1.input = input,
            _ => input.release(&mut self.buffers),
        }
        self.end_deferred(reactor, sock);
    }

    /// Decodes `bytes` of a response. Bytes that it leaves unprocessed are the beginning of a head, or exceed the
    /// bandwidth of the route.
    fn decode_server<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            // The last step may have closed the connection or ended the exchange.
            let Some(up) = self.conns.upstream(sock) else { return bytes.len() };
            let id = up.exchange;
            let Some(exchange) = self.exchanges.find_mut(id) else {
                // More bytes follow a complete response. The end of the response has ended the exchange.
                self.accounts.counters.upstream_faults.add(1);
                self.discard_upstream(reactor, sock);
                return bytes.len();
            };
            exchange.attempt.note_response();
            let rest = &bytes[used..];
            let step = match exchange.stage {
                Stage::Authorizing
                | Stage::Buffering
                | Stage::Queued
                | Stage::Paused
                | Stage::Connecting
                | Stage::ExpectResponse => self.decode_response(reactor, sock, id, rest),
                Stage::ExpectBody => {
                    let is_paced = exchange.may_pace_response();
                    let room = if is_paced { self.response_room(reactor, id) } else { usize::MAX };
                    if room == 0 {
                        break;
                    }
                    self.decode_response_body(reactor, sock, id, rest, room)
                }
                Stage::ExpectRequestEnd => {
                    // More bytes follow a complete response.
                    self.accounts.counters.upstream_faults.add(1);
                    self.give_up_request(reactor, id);
                    return bytes.len();
                }
                Stage::Tunnel => self.tunnel_received(reactor, id, Side::Server, rest),
            };
            if step == 0 {
                break;
            }
            used += step;
        }
        used
    }

    /// Decodes one response head and hands it over. Returns 0 if the head is not complete yet.
    fn decode_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        id: Id<Exchange>,
        bytes: &[u8],
    ) -> usize {
        let Some(exchange) = self.exchanges.get(id) else { return bytes.len() };
        let kind = RequestKind {
            is_head: exchange.facts.is_head,
            is_connect: false,
            upgrade_asked: exchange.facts.upgrades,
        };
        let is_strict = self.settings.of(exchange.era).pool(exchange.pool).strict;
        let limits = ResponseLimits { is_strict, ..ResponseLimits::default() };
        let Some(http1) = self.conns.upstream(sock).and_then(Upstream::http1) else {
            self.note_bug(reactor, sock);
            return bytes.len();
        };
        let mut storage = ResponseStorage::new();
        let (head, head_bytes) =
            match http1.decoder.decode_response(bytes, &limits, kind, &mut storage) {
                Ok(None) => return 0,
                Ok(Some(decoded)) => decoded,
                Err(fault) => {
                    let what = (fault.reason(), FaultPlace::Head(fault.kind));
                    self.keep_malformed(reactor, sock, what, bytes);
                    self.server_misbehaved(reactor, id, MALFORMED);
                    return bytes.len();
                }
            };
        http1.decoder = HeadDecoder::default();
        if !matches!(head.status, 100..=199) {
            let has_connection = head.has(FieldName::Connection);
            http1.body = BodyDecoder::new(head.length)
                .dropping_trailers(forward::names_fields(head.fields(), has_connection))
                .accepting_blanks(!is_strict);
        }
        match head.status {
            101 if !self.is_switch_requested(id, &head) => {
                let text = "the server switched to a protocol that the client did not request";
                self.server_misbehaved(reactor, id, text);
                return bytes.len();
            }
            101 => self.begin_tunnel(reactor, id, &head),
            100..=199 => self.relay_interim(reactor, id, &head),
            _ => {
                let ends = matches!(head.length, BodyLength::None | BodyLength::Length(0));
                self.relay_head(reactor, id, &head, ends, bytes.len() > head_bytes);
            }
        }
        head_bytes
    }

    /// Whether a 101 response matches the request.
    fn is_switch_requested(&self, id: Id<Exchange>, head: &ResponseHead<'_>) -> bool {
        let exchange = self.exchanges.get(id);
        exchange.is_some_and(|exchange| {
            let request = exchange.request.head();
            forward::switches_as_requested(request, head)
                && (!exchange.facts.connects || websocket::accepts_key(request, head))
        })
    }

    /// Decodes up to `room` bytes of the response body and hands them over. Returns how many were processed.
    fn decode_response_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        id: Id<Exchange>,
        bytes: &[u8],
        room: usize,
    ) -> usize {
        let Some(http1) = self.conns.upstream(sock).and_then(Upstream::http1) else {
            self.note_bug(reactor, sock);
            return bytes.len();
        };
        let body = &mut http1.body;
        let step = match body.decode(&bytes[..bytes.len().min(room)]) {
            Ok(step) => step,
            Err(fault) => {
                let what = (fault.reason(), FaultPlace::Unknown);
                self.keep_malformed(reactor, sock, what, bytes);
                self.server_misbehaved(reactor, id, MALFORMED);
                return bytes.len();
            }
        };
        if step.done {
            let trailers = body.trailers().to_vec();
            let more_follows = step.consumed < bytes.len();
            self.finish_response(reactor, id, step.data, &trailers, more_follows);
        } else {
            self.relay_data(reactor, id, step.data);
        }
        step.consumed
    }

    /// A server ended its direction of a connection.
    pub(in crate::carrier) fn http1_server_finished<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let id = up.exchange;
        if id.is_none() {
            self.accounts.counters.upstream_idle_closes.add(1);
            self.lose_idle(reactor, sock);
            return reactor.close(sock);
        }
        if !self.defer_end(id) {
            self.end_http1_server(reactor, sock, id);
        }
    }

    /// Whether the connection holds a part of the response's body, or its end, that was received while the bandwidth of the route
    /// or a hook held the body back. That may have ended since. HTTP/2 streams have a separate queue for this.
    pub(crate) fn has_undecoded_body(&mut self, id: Id<Exchange>) -> bool {
        let Some(exchange) = self.exchanges.find(id) else { return false };
        let (up, has_ended) = (exchange.attempt.up, exchange.attempt.has_ended());
        if exchange.stage != Stage::ExpectBody || up.is_stream() {
            return false;
        }
        let http1 = self.conns.upstream(up.sock).and_then(Upstream::http1);
        http1.is_some_and(|http1| has_ended || !http1.input.is_empty())
    }

    /// Whether the end of the connection must wait, because a part of the response's body is not decoded yet. Reading is
    /// paused then, but TLS reports the end together with the last bytes. Notes the end and queues the rest.
    fn defer_end(&mut self, id: Id<Exchange>) -> bool {
        if !self.has_undecoded_body(id) {
            return false;
        }
        let Some(exchange) = self.exchanges.find_mut(id) else { return false };
        exchange.attempt.note_end();
        self.work.push(Work::ResumeServer(exchange.attempt.up));
        true
    }

    /// Handles the end that `defer_end` deferred, once all bytes before the end are decoded.
    fn end_deferred<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return };
        let id = up.exchange;
        let is_empty = up.http1().is_none_or(|http1| http1.input.is_empty());
        let Some(exchange) = self.exchanges.find(id) else { return };
        if exchange.attempt.has_ended() && (is_empty || !exchange.is_response_paced()) {
            self.end_http1_server(reactor, sock, id);
        }
    }

    /// Handles the end of the server's direction of a connection with an exchange, once all bytes before the end are decoded.
    fn end_http1_server<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, id: Id<Exchange>) {
        let expects_body =
            self.exchanges.get(id).is_some_and(|exchange| exchange.stage == Stage::ExpectBody);
        let http1 = self.conns.upstream(sock).and_then(Upstream::http1);
        if expects_body && http1.is_some_and(|http1| http1.body.handle_end().is_ok()) {
            self.finish_response(reactor, id, b"", b"", false);
            self.give_up_request(reactor, id);
        } else {
            self.server_finished(reactor, id);
        }
    }
}
