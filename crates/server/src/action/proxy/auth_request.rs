//! Requests that an authentication server must admit before they go to their own server (`auth = { ask = ... }`).
//! In: requests of routes with `ask`; the answers. Out: the same requests on their way to their own servers, or the answer
//! relayed to the client.
//! Never: sends a byte of the client's body to the authentication server; forwards a request that was not admitted.
//! Limits: `ANSWER_BYTES_MAX` for the body of an answer that admits a request; what waits of the request is bounded as for
//! any request without a server (`stored.rs`).
//! Invariant: as long as an exchange has an authentication request, `Exchange::request` is the request to the authentication server, and
//! `AuthRequest::request` is the client's request. The exchange belongs to the pool of the authentication server, whose queue,
//! timeouts, retries and counters apply. Both pools count it, so that a reload does not give their indexes to other pools.

use tidegate_base::Id;
use tidegate_gate::ask::Asker;
use tidegate_gate::connection_auth;
use tidegate_reactor::Reactor;
use tidegate_wire::message::{BodyLength, ResponseHead};

use crate::action::proxy::Failure;
use crate::action::proxy::attempts::Attempt;
use crate::action::proxy::exchange::{Choice, Exchange, RequestFacts, Stage};
use crate::action::proxy::stored::{StoredRequest, WAITING_PIECE_BYTES_MAX};
use crate::worker::Worker;

/// The most bytes of the body of an answer that are received to keep the connection.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A request that waits for the answer to the question about it.
pub(crate) struct AuthRequest {
    /// The index of the route in the settings of the exchange; `None` if the exchange has got other settings since.
    route: Option<usize>,
    /// The request.
    pub(crate) request: StoredRequest,
    /// The index of its own pool.
    pool: u16,
    /// Its facts.
    facts: RequestFacts,
    /// What the answer says.
    verdict: AuthDecision,
}

/// The decision in the response of the authentication server.
enum AuthDecision {
    /// There is no answer yet.
    Awaited,
    /// The request is served, once the answer is complete.
    Granted {
        /// The lines that the request gets from the answer.
        lines: Vec<u8>,
        /// How much of the answer's body has arrived.
        body_bytes: usize,
    },
    /// The client gets the answer. The rest of its request is dropped.
    Refused,
}

impl AuthRequest {
    /// The index of the request's own pool.
    pub(super) fn pool(&self) -> u16 {
        self.pool
    }

    /// The exchange continues under other settings.
    pub(super) fn forget_route(&mut self) {
        self.route = None;
    }

    /// How many bytes of the client's body are taken now.
    pub(super) fn body_room(&self) -> usize {
        match self.verdict {
            AuthDecision::Refused => usize::MAX,
            AuthDecision::Awaited | AuthDecision::Granted { .. } => {
                match self.request.has_waiting_room() {
                    true => WAITING_PIECE_BYTES_MAX,
                    false => 0,
                }
            }
        }
    }

    /// Takes a piece of the client's body; `end` contains the trailers once the body is complete.
    pub(super) fn take_body(&mut self, data: &[u8], end: Option<&[u8]>) {
        match self.verdict {
            AuthDecision::Refused => {}
            AuthDecision::Awaited | AuthDecision::Granted { .. } => self.request.push(data),
        }
        if let Some(trailers) = end {
            self.request.end(if self.facts.drops_trailers { b"" } else { trailers });
        }
    }

    /// Whether the request is granted, and the answer not complete.
    const fn is_granted(&self) -> bool {
        matches!(self.verdict, AuthDecision::Granted { .. })
    }
}

/// Makes the question the request of a new exchange. `bytes` is the head of the question; `choice` is what the balancing of
/// the pool that is asked needs; `is_sensitive` applies to the question (`RequestFacts::is_sensitive`).
pub(super) fn ask_first(
    exchange: &mut Exchange,
    asker: &Asker,
    bytes: Vec<u8>,
    Choice { key_hash, session }: Choice,
    is_sensitive: bool,
) {
    let question = StoredRequest::new(bytes, BodyLength::None);
    let own = exchange.facts;
    let facts = RequestFacts {
        is_head: own.is_head,
        is_idempotent: true,
        is_reusable: true,
        authenticates: own.authenticates,
        drops_trailers: true,
        is_sensitive,
        key_hash,
        session,
        ..RequestFacts::NONE
    };
    exchange.auth_request = Some(Box::new(AuthRequest {
        route: Some(asker.route()),
        request: core::mem::replace(&mut exchange.request, question),
        pool: core::mem::replace(&mut exchange.pool, asker.pool()),
        facts: core::mem::replace(&mut exchange.facts, facts),
        verdict: AuthDecision::Awaited,
    }));
    exchange.stage = Stage::Queued;
}

impl Worker {
    /// Judges the answer to a question by its head. Returns whether the request is granted; otherwise the client gets the
    /// answer. `None`: the exchange asks no question.
    pub(super) fn judge_answer(
        &mut self,
        id: Id<Exchange>,
        head: &ResponseHead<'_>,
    ) -> Option<bool> {
        let exchange = self.exchanges.get_mut(id)?;
        let auth_request = exchange.auth_request.as_mut()?;
        let is_granted = matches!(head.status, 200..=299);
        auth_request.verdict = match is_granted {
            true => AuthDecision::Granted { lines: Vec::new(), body_bytes: 0 },
            false => AuthDecision::Refused,
        };
        self.accounts.counters.inquiries.add(1);
        self.accounts.counters.inquiry_refusals.add(u64::from(!is_granted));
        Some(is_granted)
    }

    /// Takes the head of an answer that grants the request.
    pub(super) fn take_grant<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        head: &ResponseHead<'_>,
        ends: bool,
        more_follows: bool,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let Some(auth_request) = &mut exchange.auth_request else { return };
        let Some(route) = auth_request.route else {
            // So many reloads have happened that the exchange has got other settings (`adopt_requests`).
            return self.end_outdated(reactor, id);
        };
        let snapshot = self.settings.of(exchange.era);
        let handling = snapshot.handlings.of_route(route);
        let asker = handling.and_then(|handling| handling.ask.as_ref());
        let AuthDecision::Granted { lines, .. } = &mut auth_request.verdict else { return };
        let fits = asker.is_some_and(|asker| asker.copy_fields(head, lines));
        exchange.attempt.note_head(head.persistent && head.length != BodyLength::UntilClose);
        exchange.stage = Stage::ExpectBody;
        let (pool, attempt) = (exchange.pool, exchange.attempt);
        if !fits {
            let text =
                "the response of the server of `ask` has fields that are too long to be copied";
            return self.server_misbehaved(reactor, id, text);
        }
        self.note_result(pool, attempt.server, false, reactor.now());
        if connection_auth::response_authenticates(head) {
            self.note_authenticated(reactor, attempt.up);
        }
        match ends {
            true => self.end_auth_request(reactor, id, more_follows),
            false => self.arm_upstream(reactor, id),
        }
    }

    /// Ends an exchange whose answer cannot be used, because the settings that say how are gone.
    fn end_outdated<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (pool, attempt) = (exchange.pool, exchange.attempt);
        self.release_server(pool, attempt.server);
        self.abandon_server(reactor, attempt.up);
        let text = "the configuration has changed while the request waited";
        self.fail(reactor, id, Failure { status: 503, text });
    }

    /// Drops a piece of the body of an answer that grants the request. Returns false if the exchange has no such answer.
    pub(super) fn skip_answer<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        bytes: usize,
    ) -> bool {
        let Some(exchange) = self.exchanges.get_mut(id) else { return false };
        let verdict = exchange.auth_request.as_mut().map(|auth_request| &mut auth_request.verdict);
        let Some(AuthDecision::Granted { body_bytes, .. }) = verdict else { return false };
        *body_bytes += bytes;
        if *body_bytes > ANSWER_BYTES_MAX {
            // The verdict is known, and a new connection costs less than the rest of the body.
            self.end_auth_request(reactor, id, true);
        } else {
            self.arm_upstream(reactor, id);
        }
        true
    }

    /// Ends the question if it is granted, and sends the request to its own server. Returns false if the exchange has no
    /// such answer. `more_follows`: the connection cannot be kept.
    pub(super) fn finish_answer<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        more_follows: bool,
    ) -> bool {
        let auth_request =
            self.exchanges.get(id).and_then(|exchange| exchange.auth_request.as_ref());
        let is_granted = auth_request.is_some_and(|auth_request| auth_request.is_granted());
        if is_granted {
            self.end_auth_request(reactor, id, more_follows);
        }
        is_granted
    }

    fn end_auth_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        more_follows: bool,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, asked, attempt) = (exchange.requester, exchange.pool, exchange.attempt);
        let stays_open = self.stays_open(to);
        self.release_server(asked, attempt.server);
        if attempt.up.is_stream() {
            self.abandon_server(reactor, attempt.up);
        } else if attempt.keeps() && !more_follows && !self.stopping {
            self.keep_idle(reactor, attempt.up.sock, to, stays_open);
        } else {
            self.discard_upstream(reactor, attempt.up.sock);
        }
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let Some(auth_request) = exchange.auth_request.take() else { return };
        let AuthRequest { request, pool, facts, verdict, .. } = *auth_request;
        let question = core::mem::replace(&mut exchange.request, request);
        if let AuthDecision::Granted { lines, .. } = verdict {
            exchange.request.add_lines(&lines);
            if let Some(copy) = &mut exchange.copy {
                copy.add_lines(&lines);
            }
        }
        (exchange.pool, exchange.facts) = (pool, facts);
        exchange.attempt = Attempt::NONE;
        exchange.attempts.start_again();
        exchange.stage = Stage::Buffering;
        question.release(&mut self.buffers);
        self.pools[usize::from(asked)].exchanges -= 1;
        self.dispatch_buffered(reactor, id);
        self.resume_request(to);
    }
}
