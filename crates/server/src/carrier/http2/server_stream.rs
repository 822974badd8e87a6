//! One stream of a connection to a server: the remaining steps of its request and its response.
//! In: the records of `server.rs` and `request.rs`. Out: the same state.
//! Never: outlives its exchange; holds a buffer unless its client or its server is slow.
//! Limits: `input` holds at most the stream's receive window, `output` at most one piece of the request's body.
//! Invariant: `exchange` exists, and its attempt names this stream.

use tidegate_base::{Id, Moment};
use tidegate_reactor::SockId;
use tidegate_wire::message::OwnedResponse;

use crate::action::proxy::exchange::Exchange;
use crate::buffers::{BufferPool, Input};
use crate::carrier::http2::server_tunnel::Connect;

/// One stream. `Http2Servers` holds it from the choice of its connection until the attempt ends. It may
/// outlive the connection while a client has not taken a complete response.
pub(crate) struct ServerStream {
    /// The connection.
    pub(crate) sock: SockId,
    /// The exchange whose request is sent.
    pub(crate) exchange: Id<Exchange>,
    /// The number of the stream on the connection; 0 while the request waits to be sent.
    pub(super) number: u32,
    /// Whether the stream belongs to a tunnel.
    pub(super) connect: Connect,
    /// The connection has no such stream any more, or does not exist.
    pub(super) is_gone: bool,
    /// The client does not take the response fast enough: received data waits in `input`.
    pub(super) is_held: bool,
    /// The response has ended, although its end may follow `input`.
    pub(super) is_response_done: bool,
    /// The head of a response that cannot have a body, until the server has ended the response: data would make it
    /// malformed, which the client can only learn instead of the head.
    pub(super) head: Option<Box<OwnedResponse>>,
    /// Bytes of the response body that the client does not take yet.
    pub(super) input: Input,
    /// The trailers of the response, as lines; behind `input`.
    pub(super) trailers: Vec<u8>,
    /// Bytes of the response body that were handed over, and for which the server has not got its window back.
    pub(super) unreleased: usize,
    /// Bytes of the request body that the server's windows do not admit yet.
    pub(super) output: Input,
    /// When the server's windows last admitted bytes of `output`, or when bytes began to wait.
    pub(super) moved_at: Moment,
    /// Bytes were waiting in `output` at the last look.
    pub(super) was_pending: bool,
    /// When something must have happened.
    pub(super) due_at: Moment,
}

impl ServerStream {
    /// A stream whose request is still to be sent.
    pub(super) fn new(sock: SockId, exchange: Id<Exchange>) -> Self {
        Self {
            sock,
            exchange,
            number: 0,
            connect: Connect::No,
            is_gone: false,
            is_held: false,
            is_response_done: false,
            head: None,
            input: Input::default(),
            trailers: Vec::new(),
            unreleased: 0,
            output: Input::default(),
            moved_at: Moment::ZERO,
            was_pending: false,
            due_at: Moment::NEVER,
        }
    }

    /// Whether no part of the request was given to the connection.
    pub(super) fn is_waiting(&self) -> bool {
        self.number == 0
    }

    /// Whether the server has not taken all of the request that was sent.
    pub(super) fn is_behind(&self) -> bool {
        !self.output.is_empty() && !self.is_gone
    }

    /// Whether the response is complete, and only the client must still take it.
    pub(crate) fn is_response_done(&self) -> bool {
        self.is_response_done
    }

    /// Bytes that wait for the client or for the server.
    pub(super) fn held_bytes(&self) -> usize {
        self.input.len() + self.output.len()
    }

    /// Returns the buffers to the pool.
    pub(in crate::carrier) fn release(&mut self, buffers: &mut BufferPool) {
        self.input.release(buffers);
        self.output.release(buffers);
    }
}
