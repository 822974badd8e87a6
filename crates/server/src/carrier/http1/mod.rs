//! HTTP/1.0 and HTTP/1.1: one exchange at a time on a connection.
//! In: bytes and events of connections. Out: messages. Never: decides framing (`wire::http1`).

pub(crate) mod client;
pub(crate) mod server;
