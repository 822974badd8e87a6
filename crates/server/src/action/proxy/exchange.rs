//! One proxied request and its response: the state that joins a requester and a connection to a server.
//! In: what the files of this folder record. Out: the same state. Never: touches a socket; knows a protocol.
//! Limits: up to `REPLAY_BYTES_MAX` of a request are kept for a retry (`stored.rs`).
//! Invariant: `attempt.up` is a live connection in every stage except `Buffering`, `Queued` and `Paused`; the
//! server counts this exchange in its load from the moment it was chosen until the attempt ends.

use tidegate_base::{Moment, Span};
use tidegate_config::arrange::Generation;
use tidegate_config::model::RouteTimeouts;
use tidegate_gate::balance::PoolState;
use tidegate_gate::sticky::Session;

use crate::action::intake::Intake;
use crate::action::lua::body::ExchangeHook;
use crate::action::lua::frames::FrameHook;
use crate::action::lua::response::ResponseHook;
use crate::action::proxy::attempts::{Attempt, Attempts};
use crate::action::proxy::auth_request::AuthRequest;
use crate::action::proxy::authorization::Authorization;
use crate::action::proxy::mirror::{Duplicate, Mirrored};
use crate::action::proxy::stored::StoredRequest;
use crate::action::proxy::websocket_tunnel::TunnelFrames;
use crate::buffers::BufferPool;
use crate::paces::{BodyDirection, Pace};
use crate::requester::Requester;
use crate::settings::Era;

/// How far an exchange has progressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Waiting until the password of the user is verified. There is no upstream connection, and no place in the queue.
    /// The deadline of the action ends it.
    Authorizing,
    /// Waiting for the beginning of the request body (`request-buffer`). There is no upstream connection, and
    /// no place in the queue.
    Buffering,
    /// Waiting for a server with a free connection. There is no upstream connection.
    Queued,
    /// Waiting, after failed attempts with all servers, until they are tried again (`retry-pause`). There is no
    /// upstream connection, and no place in the queue. The deadline of the action ends it.
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

/// Facts about a request. They change only with the end of an authentication request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestFacts {
    /// There is no request: the connection of the client is forwarded without HTTP (TCP mode).
    pub(crate) is_tcp: bool,
    /// The method is HEAD, so the response has no body (RFC 9110 section 9.3.2).
    pub(crate) is_head: bool,
    /// The request was forwarded with an Upgrade field, so the server may answer 101.
    pub(crate) upgrades: bool,
    /// The request is an extended CONNECT (RFC 8441).
    pub(crate) connects: bool,
    /// The method is idempotent (RFC 9110 section 9.2.2), so the request may be retried after a reused
    /// connection was reset.
    pub(crate) is_idempotent: bool,
    /// The request leaves no bytes on the upstream connection that the server could take for another request, so the response
    /// alone decides whether that connection is reused.
    pub(crate) is_reusable: bool,
    /// The request has credentials that authenticate the upstream connection.
    pub(crate) authenticates: bool,
    /// The request takes a server only after the beginning of its body has arrived.
    pub(crate) buffers: bool,
    /// Trailers of the request are not forwarded to any server.
    pub(crate) drops_trailers: bool,
    /// No intermediary may put a field of the request into a compression table (RFC 7541 section 7.1.3).
    pub(crate) is_sensitive: bool,
    /// Hash of the request's key for hash balancing; `None` if the pool balances in another way or the
    /// request has no such key. Retries use the same hash.
    pub(crate) key_hash: Option<u64>,
    /// The session of the client, as its cookie says. Retries prefer its server, too.
    pub(crate) session: Option<ClientSession>,
    /// The key whose requests stay with a server; `None`: the request has no key.
    pub(crate) stay: Option<u64>,
}

impl RequestFacts {
    /// The facts before there is a request.
    pub(crate) const NONE: Self = Self {
        is_tcp: false,
        is_head: false,
        upgrades: false,
        connects: false,
        is_idempotent: false,
        is_reusable: false,
        authenticates: false,
        buffers: false,
        drops_trailers: false,
        is_sensitive: false,
        key_hash: None,
        session: None,
        stay: None,
    };
}

/// The data of a request that the balancing of a pool needs. See the fields of [`RequestFacts`].
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Choice {
    /// `RequestFacts::key_hash`.
    pub(super) key_hash: Option<u64>,
    /// `RequestFacts::session`.
    pub(super) session: Option<ClientSession>,
}

/// The session that the cookie of a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientSession {
    pub(crate) session: Session,
    /// The generation in which its server was added: a later configuration may give the index to another server.
    pub(crate) since: Generation,
}

impl ClientSession {
    /// The server of the session, unless another server has its index now.
    pub(crate) fn server_in(&self, state: &PoolState) -> Option<usize> {
        let server = usize::from(self.session.server);
        state.names(server, self.since).then_some(server)
    }
}

/// The directions of a tunnel that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct EndedSides {
    /// The client has ended its direction.
    pub(crate) client: bool,
    /// The server has ended its direction.
    pub(crate) server: bool,
}

/// One proxied request and its response. `Worker::exchanges` holds it from the routing of the request until
/// the response is complete, failed or abandoned.
pub(crate) struct Exchange {
    /// The requester. It exists as long as the exchange, and its carrier refers to this exchange. `Requester::NONE` if the
    /// exchange is `mirrored`.
    pub(crate) requester: Requester,
    /// How far the exchange has progressed. Each attempt begins at `Connecting`, or at `ExpectResponse` on a
    /// reused connection.
    pub(crate) stage: Stage,
    /// The generation of settings that the request began with, which is that of its requester.
    pub(crate) era: Era,
    /// Index of the pool in the configuration. Changes only with the end of an authentication request.
    pub(crate) pool: u16,
    /// Index of the listener that accepted the client's connection. Never changes.
    pub(crate) listener: u16,
    /// The timeouts of the route, if it has its own. Copied, because the route may be another one in later settings.
    pub(crate) timeouts: Option<RouteTimeouts>,
    /// Facts about the request.
    pub(crate) facts: RequestFacts,
    /// The current attempt.
    pub(crate) attempt: Attempt,
    /// The number of attempts, the servers that they tried, and how the earlier ones failed.
    pub(crate) attempts: Attempts,
    /// The number of the request among the proxied requests of its worker. A retry keeps it, and so its place in
    /// the queue.
    pub(crate) arrival: u64,
    /// In `Stage::Queued`: the queue of this worker is full, and the request only waits for a permit of another worker.
    pub(super) exceeds_queue: bool,
    /// How much of the request body has arrived.
    pub(crate) intake: Intake,
    /// The request in the form in which it is sent to a server.
    pub(crate) request: StoredRequest,
    /// The directions that have ended, in `Stage::Tunnel`.
    pub(crate) ended: EndedSides,
    /// `Some` in `Stage::Tunnel`, if the tunnel is a WebSocket.
    pub(crate) frames: Option<Box<TunnelFrames>>,
    /// What the request needs once its password is verified. `Some` in `Stage::Authorizing`.
    pub(crate) authorization: Option<Box<Authorization>>,
    /// The client's request while an authentication server decides about it (`auth` with `ask`). `None` otherwise.
    pub(crate) auth_request: Option<Box<AuthRequest>>,
    /// The copy of the request for another pool (`mirror`), until the copy is complete. `None` without a copy.
    pub(crate) copy: Option<Box<Duplicate>>,
    /// `Some` if this exchange is a copy (`mirror`), which has no client.
    pub(crate) mirrored: Option<Box<Mirrored>>,
    /// The bandwidth limits of the route under which the request began; `None` if it had none. A reload does not change them.
    pub(crate) pace: Option<Box<Pace>>,
    /// The values for the edits of the response; empty if there are none, and once the response begins.
    pub(crate) values: Vec<u8>,
    /// The hook counts the response as a failure of its server.
    pub(crate) is_marked: bool,
    /// The server that the hook of the request prefers for the next attempt.
    pub(crate) preferred: Option<u16>,
    /// The hook that chooses servers and changes the head of the response; `None` without one, and once the response begins.
    pub(crate) response_hook: Option<Box<ResponseHook>>,
    /// The hook that changes the body of the response; `None` without one, before the head, and once it has ended.
    pub(crate) body_hook: Option<ExchangeHook>,
}

impl Exchange {
    /// How long the server has taken for the attempt so far; `None` if the client may have delayed the response by sending a body
    /// slowly.
    pub(crate) fn server_time(&self, now: Moment) -> Option<Span> {
        (self.intake.bytes == 0).then(|| now.since(self.attempt.began()))
    }

    /// An exchange in `Stage::Queued`: it begins, and may take a server.
    pub(super) fn new(
        requester: Requester,
        era: Era,
        (listener, pool): (u16, u16),
        arrival: u64,
        facts: RequestFacts,
        request: StoredRequest,
    ) -> Self {
        Self {
            requester,
            stage: Stage::Queued,
            era,
            pool,
            listener,
            timeouts: None,
            facts,
            attempt: Attempt::NONE,
            attempts: Attempts::new(),
            arrival,
            exceeds_queue: false,
            intake: Intake::NONE,
            request,
            ended: EndedSides::default(),
            frames: None,
            authorization: None,
            auth_request: None,
            copy: None,
            mirrored: None,
            pace: None,
            values: Vec::new(),
            is_marked: false,
            preferred: None,
            response_hook: None,
            body_hook: None,
        }
    }

    /// The pool of the request after the authentication server has admitted it; `None` without `ask`, and if no pool follows.
    pub(crate) fn own_pool(&self) -> Option<u16> {
        self.auth_request.as_ref()?.pool()
    }

    /// The pools that count the exchange among their requests.
    pub(crate) fn pools(&self) -> impl Iterator<Item = u16> + use<> {
        let copy = self.copy.as_ref().map(|copy| copy.pool());
        [Some(self.pool), self.own_pool(), copy].into_iter().flatten()
    }

    /// The exchange continues under the settings of `era`. The indexes of its pools keep their meaning; that of its
    /// route does not.
    pub(crate) fn adopt(&mut self, era: Era) {
        self.era = era;
        if let Some(auth_request) = &mut self.auth_request {
            auth_request.forget_route();
        }
    }

    /// Returns the buffers.
    pub(super) fn release(self, buffers: &mut BufferPool) {
        buffers.put(self.values);
        if let Some(auth_request) = self.auth_request {
            auth_request.request.release(buffers);
        }
        if let Some(copy) = self.copy {
            copy.release(buffers);
        }
        self.request.release(buffers);
    }

    /// Whether the response waits for the bandwidth of the route, or for its hook.
    pub(crate) fn is_response_paced(&self) -> bool {
        self.pace.as_ref().is_some_and(|pace| pace.waits(BodyDirection::Down))
            || self.body_hook.is_some_and(|hook| hook.is_full)
    }

    /// Whether `response_room` limits how much of the response's body is relayed at once.
    pub(crate) fn may_pace_response(&self) -> bool {
        self.pace.is_some() || self.body_hook.is_some()
    }

    /// The hook of a tunnel that sees its messages.
    pub(crate) fn frame_hook(&self) -> Option<&FrameHook> {
        self.frames.as_ref()?.hook.as_deref()
    }

    /// When a tunnel ends at the latest, because its client was notified that it ends.
    pub(crate) fn ends_at(&self) -> Option<Moment> {
        self.frames.as_ref()?.ends_at()
    }

    /// Whether no attempt was made yet, so that the exchange has no earlier place in the queue.
    pub(crate) fn is_new(&self) -> bool {
        self.attempts.is_empty()
    }

    /// Whether the request of the client has arrived completely.
    pub(crate) fn has_whole_request(&self) -> bool {
        self.auth_request
            .as_ref()
            .map_or(&self.request, |auth_request| &auth_request.request)
            .is_done()
    }

    /// Whether the exchange has a connection to a server.
    pub(crate) fn has_server(&self) -> bool {
        match self.stage {
            Stage::Authorizing | Stage::Buffering | Stage::Queued | Stage::Paused => false,
            Stage::Connecting
            | Stage::ExpectResponse
            | Stage::ExpectBody
            | Stage::ExpectRequestEnd
            | Stage::Tunnel => true,
        }
    }
}
