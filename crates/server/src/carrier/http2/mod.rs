//! HTTP/2: many exchanges at a time on a connection, one for each stream.
//!
//! - `client.rs`: bytes and events of a client connection; deadlines; the graceful stop
//! - `stream.rs`: one stream: the rest of a request that its action does not take yet, the rest of a response that
//!   the client's windows do not admit yet
//! - `response.rs`: messages of actions, sent on a stream
//! - `limits.rs`: the limits of a listener, applied to heads
//! - `head.rs`: the head of a response on its way into a header block
//!
//! In: bytes and events of connections; messages. Out: messages; frames.
//! Never: decides what a frame means (`wire::http2` has decided it); asks which action serves a stream.

pub(crate) mod client;
mod head;
mod limits;
mod response;
pub(crate) mod stream;

pub(crate) use head::HeadBuffer;
