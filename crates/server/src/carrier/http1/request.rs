//! HTTP/1 on server connections: encodes requests.
//! In: the stored request of an exchange, further pieces of its body. Out: bytes in the connection's output.
//! Never: frames a body in another way than the head that was sent announces; leaves a connection that has carried chunks
//! to another request, unless `reuse.after-chunked-body` permits it.

use tidegate_base::Id;
use tidegate_gate::client_fields::ClientAddressFields;
use tidegate_gate::framing::{encode_length, split_at_chunked};
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::message::BodyLength;

use crate::action::proxy::exchange::Exchange;
use crate::action::proxy::stored::StoredRequest;
use crate::carrier::http1::framing::{Framing, send_framed};
use crate::worker::Worker;

impl Worker {
    /// Sends the stored request: its head, the body as far as it has arrived, and its end.
    pub(in crate::carrier) fn send_http1_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (up, request) = (exchange.attempt.up.sock, &exchange.request);
        let pool = self.settings.of(exchange.era).pool(exchange.pool);
        let trailers = if pool.trailers { request.trailers() } else { b"" };
        let reuses_after_chunks = pool.reuse.after_chunked_body;
        let framing = send_head(reactor, up, request, !trailers.is_empty());
        send_framed(reactor, up, framing, request.body());
        if request.is_done() {
            let fields = &self.settings.of(exchange.era).client_address_fields
                [usize::from(exchange.listener)];
            end_body(reactor, up, framing, trailers, fields);
        }
        if framing == Framing::Chunked
            && !reuses_after_chunks
            && let Some(exchange) = self.exchanges.get_mut(id)
        {
            exchange.attempt.forbid_reuse();
        }
    }

    /// Sends a piece of the request body, and its end if the request is complete.
    pub(in crate::carrier) fn send_http1_request_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        data: &[u8],
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (up, request) = (exchange.attempt.up.sock, &exchange.request);
        send_framed(reactor, up, framing_of(request), data);
        if request.is_done() {
            let fields = &self.settings.of(exchange.era).client_address_fields
                [usize::from(exchange.listener)];
            let takes_trailers = self.settings.of(exchange.era).pool(exchange.pool).trailers;
            let trailers = if takes_trailers { request.trailers() } else { b"" };
            end_body(reactor, up, framing_of(request), trailers, fields);
        }
    }
}

/// How the body is framed for the server if it is not complete when its head is sent.
fn framing_of(request: &StoredRequest) -> Framing {
    match request.length() {
        BodyLength::None => Framing::None,
        BodyLength::Length(_) => Framing::Length,
        BodyLength::Streamed | BodyLength::UntilClose => Framing::Chunked,
    }
}

/// Sends the head. Returns its framing of the body. A complete body of unknown length gets a
/// Content-Length, unless trailers follow: a server whose application does not read the body may discard a body with a
/// length and leave chunks on the connection, where they are taken for the next request (Cheroot 11).
fn send_head<R: Reactor>(
    reactor: &mut R,
    up: SockId,
    request: &StoredRequest,
    has_trailers: bool,
) -> Framing {
    let framing = framing_of(request);
    if framing == Framing::Chunked
        && let Some(length) = request.whole_body_bytes().filter(|_| !has_trailers)
        && let Some((before, after)) = split_at_chunked(request.head())
    {
        reactor.send(up, before);
        if let Some(out) = reactor.output(up) {
            encode_length(out, BodyLength::Length(length));
        }
        reactor.send(up, after);
        return Framing::Length;
    }
    reactor.send(up, request.head());
    framing
}

/// Sends the end of a chunked body.
fn end_body<R: Reactor>(
    reactor: &mut R,
    up: SockId,
    framing: Framing,
    trailers: &[u8],
    client_address_fields: &ClientAddressFields,
) {
    if framing == Framing::Chunked
        && let Some(out) = reactor.output(up)
    {
        client_address_fields.encode_last_chunk(out, trailers);
    }
}
