//! One proxied request and its response: the state shared by the two connections that carry it.
//! In: what `downstream`, `upstream` and `dispatch` record. Out: the same state, read by these modules.
//! Never: touches a socket. Limits: up to `REPLAY_BYTES_MAX` of a request are kept for a retry.
//! Invariant: `up` is a live connection in every stage except `Buffering`, `Queued` and `Paused`; the server counts this exchange in
//! its load from the moment it was chosen until the attempt ends.

use tidegate_base::limits::{HEAD_BYTES_MAX, READ_BUFFER_BYTES};
use tidegate_base::{Moment, Span};
use tidegate_gate::balance::Tried;
use tidegate_reactor::SockId;
use tidegate_wire::http1::{BodyDecoder, BodyFraming};
use tidegate_wire::message::Version;

/// The most bytes kept of a request (head, then body) so that it can be sent again. A head with the fields
/// that the proxy adds always fits, because the length of its host is bounded (`HOST_BYTES_MAX`).
pub(crate) const REPLAY_BYTES_MAX: usize = 4 * HEAD_BYTES_MAX;
const _: () = assert!(REPLAY_BYTES_MAX <= READ_BUFFER_BYTES);

/// How far an exchange has progressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Waiting for the beginning of the request body (`request-buffer`). There is no upstream connection, and
    /// no place in the queue.
    Buffering,
    /// Waiting for a server with a free connection. There is no upstream connection.
    Queued,
    /// Waiting, after failed attempts with all servers, until they are tried again (`retry-pause`). There is no
    /// upstream connection, and no place in the queue. The deadline of the downstream connection ends it.
    Paused,
    /// Connecting to the server. The request is in the connection's output already.
    Connecting,
    /// Waiting for the head of the response.
    ExpectResponse,
    /// Relaying the body of the response.
    ExpectBody,
    /// The response was early: it is complete and relayed, and the rest of the request body is forwarded.
    ExpectRequestEnd,
    /// Relaying bytes in both directions after 101 (Switching Protocols).
    Tunnel,
}

/// How a body is framed when it is sent.
pub(crate) type Framing = BodyFraming;

/// One proxied request and its response. `Worker::exchanges` holds it from the routing of the request until
/// the response is complete, failed or abandoned.
pub(crate) struct Exchange {
    /// The client's connection. It is live as long as the exchange exists, and its state names this exchange.
    pub(crate) down: SockId,
    /// The server's connection; `SockId::NONE` while `stage` is `Buffering`, `Queued` or `Paused`. Its `exchange` names this exchange.
    pub(crate) up: SockId,
    /// How far the exchange has progressed. Each attempt begins at `Connecting`, or at `ExpectResponse` on a
    /// reused connection.
    pub(crate) stage: Stage,
    /// Index of the pool in the configuration. Never changes.
    pub(crate) pool: u16,
    /// Index of the chosen server in the pool. Meaningless while `stage` is `Queued` or `Paused`.
    pub(crate) server: u16,
    /// Index of the listener that accepted the client's connection. Never changes.
    pub(crate) listener: u16,

    /// The HTTP version of the request. It decides which framing the client can receive.
    pub(crate) client_version: Version,
    /// The request's method is HEAD, so the response has no body (RFC 9110 section 9.3.2).
    pub(crate) is_head: bool,
    /// The request was forwarded with an Upgrade field, so the server may answer 101.
    pub(crate) upgrade: bool,
    /// The request's method is idempotent (RFC 9110 section 9.2.2), so the request may be retried after a
    /// reused connection was reset.
    pub(crate) idempotent: bool,
    /// The request has an Expect field with 100-continue, and neither 100 (Continue) nor a byte of the body has
    /// come. Whether the body will follow a final response is unknown.
    pub(crate) awaits_continue: bool,
    /// The downstream connection may carry another request after this one. Once false, it stays false.
    pub(crate) keep_downstream: bool,
    /// The request leaves nothing on the upstream connection that the server could take for another request,
    /// so the response alone decides whether that connection is reused.
    pub(crate) reusable: bool,
    /// The request has credentials that authenticate the upstream connection.
    pub(crate) authenticates: bool,
    /// The upstream connection may carry another request after this one. Set when the response head arrives.
    pub(crate) keep_upstream: bool,
    /// The upstream connection had carried a request before this one. Set for each attempt.
    pub(crate) reused: bool,
    /// How long the reused connection had been idle; `None` if it was kept for this client, or is fresh. Set for each
    /// attempt.
    pub(crate) idle_age: Option<Span>,
    /// The whole body will fit into `replay`, as far as the head tells. Never changes.
    pub(crate) body_fits: bool,
    /// An attempt failed, so the next one uses a fresh connection: other idle connections may have been
    /// closed by their server, too. Once true, it stays true.
    pub(crate) needs_fresh: bool,
    /// The first byte of the response has arrived. After that, no other attempt is made.
    pub(crate) response_started: bool,
    /// The final head of the response has been sent to the client. After that, an error can no longer be
    /// reported by a status; the response is cut off instead.
    pub(crate) response_relayed: bool,
    /// Tunnel only: the client has ended its direction.
    pub(crate) down_finished: bool,
    /// Tunnel only: the server has ended its direction.
    pub(crate) up_finished: bool,

    /// The number of the request among the proxied requests of its worker. Never changes; a retry keeps its
    /// place in the queue.
    pub(crate) arrival: u64,
    /// Hash of the request's key for hash balancing; `None` if the pool balances in another way or the
    /// request has no such key. Retries use the same hash.
    pub(crate) key_hash: Option<u64>,
    /// Attempts made so far, the current one included. An attempt that sent nothing over a reused connection
    /// does not count. Bounded by the pool's `retries` plus one.
    pub(crate) attempts: u32,
    /// A fresh connection was reset before the first byte of a response. Once true, it stays true.
    pub(crate) was_reset: bool,
    /// Servers that attempts were made with. They are not picked again. If every server was tried, this is cleared:
    /// at once if only a reused connection had failed, otherwise after a pause.
    pub(crate) tried: Tried,

    /// Decodes the body of the request.
    pub(crate) request_body: BodyDecoder,
    /// How the body of the request is framed towards the server. Never changes.
    pub(crate) request_framing: Framing,
    /// The whole request has been received and forwarded (or stored in `replay`).
    pub(crate) request_done: bool,
    /// When the client has sent its body too slowly: each byte puts it off by `limits.body-rate-min`, to
    /// `timeouts.body` from now at most. `NEVER` while the client is not waited for.
    pub(crate) body_by: Moment,
    /// Bytes of the request body received so far, without framing. Checked against the listener's
    /// `limits.body`.
    pub(crate) request_bytes: u64,
    /// The canonical head, followed by the framed body as long as `replay_whole` is true. At most
    /// `REPLAY_BYTES_MAX` bytes.
    pub(crate) replay: Vec<u8>,
    /// `replay` holds everything that was forwarded so far, so that the request can be sent again. Once
    /// false, it stays false.
    pub(crate) replay_whole: bool,

    /// Decodes the body of the response. Replaced when the response head arrives.
    pub(crate) response_body: BodyDecoder,
    /// How the body of the response is framed towards the client. Set when the response head arrives.
    pub(crate) response_framing: Framing,
}

impl Exchange {
    /// Puts off `body_by` by the time that `count` bytes of the body may take. Without a minimum rate, the
    /// time begins again.
    pub(crate) fn note_body(&mut self, count: usize, rate_min: usize) {
        self.body_by = match rate_min {
            0 => Moment::NEVER,
            rate => self.body_by.after(Span::from_secs(count as u64) / rate as u32),
        };
    }

    /// Whether no attempt was made yet, so that the exchange has no earlier place in the queue.
    pub(crate) fn is_new(&self) -> bool {
        self.attempts == 0 && !self.needs_fresh
    }
}
