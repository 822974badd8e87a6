//! Carriers: each translates between the bytes of a connection and messages. One folder for each protocol.
//!
//! A message is a head, pieces of a body, trailers and an end. A request belongs to a [`Requester`], not to a
//! socket. Carriers and actions meet at two interfaces only:
//!
//! - `client.rs`: what actions send to a requester; what happens to client connections.
//! - `server.rs`: what the action `proxy` sends over connections to servers; what happens to those connections.
//!
//! For requests and responses, carriers call the actions in `action/mod.rs` (requests) and `action/proxy/response.rs` (responses of
//! servers). Backpressure: a receiver reports how much it takes (`body_room`), or that its output is blocked
//! (`is_client_blocked`, `is_server_blocked`); the producer pauses its source and is resumed by the receiver's
//! `drained`. Cancellation: the carrier calls `cancel` if the requester is gone; the action calls
//! `cut_response` or `abandon_server` if it gives up.
//!
//! In: bytes and events of connections. Out: requests for actions, responses for clients.
//! Never: depends on the action that serves a request.
//!
//! [`Requester`]: crate::requester::Requester

pub(crate) mod client;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod internal_request;
pub(crate) mod output;
pub(crate) mod server;
pub(crate) mod tcp;

/// What happens to the rest of a request whose response begins before the request is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// The action takes the rest.
    Taken,
    /// The action does not take the rest. The carrier may discard it to keep the connection.
    Discarded,
    /// The action does not take the rest, and the carrier must not wait for its end.
    Unwanted,
}

/// How far a response has progressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// The final head has not been sent.
    Expected,
    /// The final head has been sent. An error can no longer be reported by a status; the response is cut off
    /// instead.
    Begun,
    /// The response is complete.
    Ended,
}
