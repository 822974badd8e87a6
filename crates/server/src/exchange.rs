//! One proxied request and its answer: all that is remembered between the two connections.
//! In: what `downstream`, `upstream` and `dispatch` note. Out: the same, and what may still be done.
//! Never: touches a socket. Limits: `REPLAY_BYTES_MAX` of a request are kept to be sent again.
//! Invariant: `up` is live exactly in the stages from `Connecting` on; `server` counts this exchange
//! among its load exactly as long as `up` was chosen.

use tidegate_base::limits::{HEAD_BYTES_MAX, READ_BUFFER_BYTES};
use tidegate_gate::balance::Tried;
use tidegate_reactor::SockId;
use tidegate_wire::http1::{BodyDecoder, Version};

/// A request's head and the body bytes that follow it are kept up to this to be sent again; a head
/// with its added fields always fits, for its host is bounded (`HOST_BYTES_MAX`).
pub(crate) const REPLAY_BYTES_MAX: usize = 4 * HEAD_BYTES_MAX;
const _: () = assert!(REPLAY_BYTES_MAX <= READ_BUFFER_BYTES);

/// How far an exchange has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Waits for a server with room.
    Queued,
    /// Its connection to the server does not stand yet; the request lies in its output.
    Connecting,
    /// The answer's head is awaited.
    ExpectResponse,
    /// The answer's body flows.
    ExpectBody,
    /// Both sides only pass bytes on.
    Tunnel,
}

/// How a body is framed on its way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    /// There is none.
    None,
    /// Content-Length said how long it is.
    Length,
    /// In chunks.
    Chunked,
    /// Until the connection ends.
    UntilClose,
}

/// One proxied request and its answer.
pub(crate) struct Exchange {
    pub(crate) down: SockId,
    pub(crate) up: SockId,
    pub(crate) stage: Stage,
    pub(crate) pool: u16,
    pub(crate) server: u16,
    pub(crate) listener: u16,

    pub(crate) client_version: Version,
    pub(crate) is_head: bool,
    pub(crate) upgrade: bool,
    pub(crate) idempotent: bool,
    /// The downstream connection may carry another request after this one.
    pub(crate) keep_downstream: bool,
    /// The request leaves nothing that its server might take for another request, so the answer decides
    /// whether the upstream connection is reused.
    pub(crate) reusable: bool,
    /// The upstream connection may carry another request after this one.
    pub(crate) keep_upstream: bool,
    /// The upstream connection had carried a request before this one.
    pub(crate) reused: bool,
    /// The first byte of the answer has come.
    pub(crate) response_started: bool,
    /// The answer's (final) head has been relayed.
    pub(crate) response_relayed: bool,
    /// The tunnel's ends that will send no more.
    pub(crate) down_finished: bool,
    pub(crate) up_finished: bool,

    pub(crate) key_hash: Option<u64>,
    pub(crate) attempts: u32,
    pub(crate) tried: Tried,

    pub(crate) request_body: BodyDecoder,
    pub(crate) request_framing: Framing,
    pub(crate) request_done: bool,
    /// Body bytes of the request so far.
    pub(crate) request_bytes: u64,
    /// The canonical head, and the framed body bytes after it while `replay_whole`.
    pub(crate) replay: Vec<u8>,
    /// Everything that went upstream so far is in `replay`.
    pub(crate) replay_whole: bool,

    pub(crate) response_body: BodyDecoder,
    pub(crate) response_framing: Framing,
}
