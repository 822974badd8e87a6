//! Responses of servers that have switched to the protocol of a tunnel, for a client of another version of HTTP.
//! In: the head of a server's response. Out: the head of the response to the client, written to its sink.
//! Never: decides whether the server has accepted the tunnel.
//! Limits: those of the response.

use tidegate_wire::message::{ResponseHead, ResponseSink};

use crate::forward::{encode_response_fields, encode_via};
use crate::websocket::{self, AcceptedKey};

/// Writes the response to an extended CONNECT whose server has switched protocols: the status is 200. The server's
/// Sec-WebSocket-Accept is not forwarded, because HTTP/2 clients send no key (RFC 8441 section 5).
pub fn encode_connected(sink: &mut impl ResponseSink, head: &ResponseHead<'_>, via: &str) {
    sink.begin(200, "");
    encode_response_fields(sink, head, false, |field| {
        !field.name.eq_ignore_ascii_case("sec-websocket-accept")
    });
    sink.field_with("Via", |out| encode_via(out, head.fields(), head.version, via));
    sink.end();
}

/// Writes the 101 response to an HTTP/1.1 client whose WebSocket an HTTP/2 server has accepted. `key` is the
/// Sec-WebSocket-Accept for the client's key, which the server did not get (RFC 8441 section 5).
pub fn encode_switched(
    sink: &mut impl ResponseSink,
    head: &ResponseHead<'_>,
    key: &AcceptedKey,
    via: &str,
) {
    sink.begin(101, "Switching Protocols");
    encode_response_fields(sink, head, false, |field| {
        !field.name.eq_ignore_ascii_case("sec-websocket-accept")
    });
    sink.field_with("Via", |out| encode_via(out, head.fields(), head.version, via));
    sink.field("Sec-WebSocket-Accept", key);
    sink.switch(core::iter::once(websocket::PROTOCOL.as_bytes()));
    sink.end();
}
