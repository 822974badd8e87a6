//! HTTP/2: many exchanges at a time on a connection, one for each stream.
//!
//! - `client.rs`: bytes and events of a client connection; deadlines; the graceful stop
//! - `clients.rs`: the owner of the streams of all clients; its methods return what concerns actions
//! - `stream.rs`: one stream: the rest of a request that its action does not take yet, the rest of a response that
//!   the client's windows do not admit yet
//! - `links.rs`: the parts of the worker through which streams reach their connections
//! - `response.rs`: messages of actions, sent on a stream
//! - `limits.rs`: the limits of a listener, applied to heads
//! - `elastic.rs`: how many streams a client may have open, by the load of the worker
//! - `head.rs`: the head of a response on its way into a header block
//! - `server.rs`: bytes and events of a connection to a server; its begin and end
//! - `servers.rs`: the owner of the streams to all servers; its methods return what concerns exchanges
//! - `server_stream.rs`: one stream of such a connection: the data that its client or its server does not read yet
//! - `server_tunnel.rs`: tunnels to servers (RFC 8441), which WebSockets need
//! - `stall.rs`: connections to servers that send nothing
//! - `request.rs`: requests of the action `proxy`, sent on a stream
//!
//! In: bytes and events of connections; messages. Out: messages; frames.
//! Never: interprets frames (`wire::http2` does); depends on the action that serves a stream.

pub(crate) mod client;
pub(crate) mod clients;
mod elastic;
mod head;
mod limits;
pub(crate) mod links;
mod request;
mod response;
pub(crate) mod server;
pub(crate) mod server_stream;
mod server_tunnel;
pub(crate) mod servers;
mod stall;
pub(crate) mod stream;
mod switched;
