//! Carriers: each translates between the bytes of a connection and messages. One folder for each protocol.
//! In: bytes and events of connections. Out: requests for actions, responses for clients.
//! Never: asks which action serves a request.

pub(crate) mod http1;
