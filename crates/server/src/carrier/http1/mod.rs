//! HTTP/1.0 and HTTP/1.1: one exchange at a time on a connection.
//!
//! - to clients: `client.rs` decodes requests, `response.rs` encodes responses
//! - to servers: `server.rs` decodes responses, `request.rs` encodes requests
//!
//! In: bytes and events of connections; messages. Out: messages; bytes.
//! Never: derives the framing of a message a second time (`wire::http1` has decided it).

pub(crate) mod client;
mod framing;
mod glitches;
mod request;
mod response;
pub(crate) mod server;

pub(crate) use framing::Framing;
