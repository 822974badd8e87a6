//! Responses of servers that have switched to the protocol of a tunnel, for a client of another version of HTTP.
//! In: the head of a server's response. Out: the same, given to the client's sink.
//! Never: decides whether the server has agreed.
//! Limits: those of the response.

use tidegate_wire::message::{ResponseHead, ResponseSink};

use crate::forward::{encode_response_fields, encode_via};
use crate::websocket::{self, AcceptedKey};

/// Gives the response to an extended CONNECT to the client's sink, whose server has switched protocols: the status is
/// 200, and the key of the server's hop is not accepted to the client (RFC 8441 section 5).
pub fn encode_connected(sink: &mut impl ResponseSink, head: &ResponseHead<'_>, via: &str) {
    sink.begin(200, "");
    encode_response_fields(sink, head, false, |field| {
        !field.name.eq_ignore_ascii_case("sec-websocket-accept")
    });
    sink.field_with("Via", |out| encode_via(out, head.fields(), head.version, via));
    sink.end();
}

/// Gives a client of HTTP/1.1 the 101 response to its request for a WebSocket, to which a server of HTTP/2 has agreed: the
/// key of the client is accepted here (RFC 8441 section 5).
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
