//! Tests of the WebSocket codec: tables of the rules and of Autobahn's cases, properties, and an oracle.

mod allocation;
mod autobahn;
mod deflate;
mod framing;
mod handshake;
mod negotiation;
mod oracle;
mod properties;
mod transcript;
