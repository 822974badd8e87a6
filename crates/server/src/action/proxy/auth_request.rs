//! Requests that an authentication server must admit before they go to their own server, or their action begins
//! (`auth = { ask = ... }`).
//! In: requests of routes with `ask`; the answers. Out: the same requests on their way to their own servers or actions, or the
//! answer relayed to the client.
//! Never: sends a byte of the client's body to the authentication server; forwards a request that was not admitted, nor begins its
//! action.
//! Limits: `ANSWER_BYTES_MAX` for the body of an answer that admits a request; the stored part of the request is bounded as
//! for any request without a server (`stored.rs`).
//! Invariant: as long as an exchange has an authentication request, `Exchange::request` is the request to the authentication server, and
//! `AuthRequest::request` is the client's request. The exchange belongs to the pool of the authentication server, whose queue,
//! timeouts, retries and counters apply. Both pools count it, so that a reload does not give their indexes to other pools.
//! The body of a request for an action that is not `proxy` is not taken before that action begins.

use tidegate_base::{Id, Moment};
use tidegate_config::model::UpstreamHost;
use tidegate_gate::ask::AuthRequestEncoder;
use tidegate_gate::changes::Changes;
use tidegate_gate::connection_auth;
use tidegate_gate::forward::{ForwardFault, RequestContext};
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::Values;
use tidegate_reactor::Reactor;
use tidegate_wire::message::{BodyLength, OwnedHead, ResponseHead};

use crate::action::handled::Stage as HandlingStage;
use crate::action::proxy::attempts::Attempt;
use crate::action::proxy::exchange::{Choice, Exchange, RequestFacts, Stage};
use crate::action::proxy::stored::{StoredRequest, WAITING_PIECE_BYTES_MAX};
use crate::action::proxy::{Failure, facts_of, hash_key, is_sensitive, session_of};
use crate::action::{Running, is_trusted};
use crate::answer::Answer;
use crate::requester::Requester;
use crate::worker::Worker;

/// Maximum number of bytes of an answer's body that are received to keep the connection.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The reason in the error response of a request whose route is no longer known.
const OUTDATED: &str =
    "the configuration changed while the request waited for the authentication server";

/// A client's request that waits for the decision of the authentication server.
pub(crate) struct AuthRequest {
    /// The index of the route in the settings of the exchange; `None` if the exchange has other settings by now.
    route: Option<usize>,
    /// The request in the form for a server; without head if it is not for a server.
    pub(crate) request: StoredRequest,
    /// What follows if the request is admitted.
    admitted: Admitted,
    /// The decision so far.
    verdict: AuthDecision,
}

/// What follows once a request is admitted.
enum Admitted {
    /// The request is sent to a server.
    Forward {
        /// The index of the pool.
        pool: u16,
        /// The facts of the request.
        facts: RequestFacts,
    },
    /// An action of Tidegate begins.
    Serve(Box<AskedRequest>),
}

/// A request for an action other than `proxy`.
struct AskedRequest {
    /// The head. The fields that are copied from the response have replaced those of the client once the request is admitted.
    head: OwnedHead,
    /// The scheme by which the client sent the request.
    scheme: Scheme,
    /// The random number of the request.
    random: u128,
}

/// The decision in the response of the authentication server.
enum AuthDecision {
    /// The head of the response has not arrived yet.
    Awaited,
    /// The request is admitted. It is sent to its server once the response is complete.
    Granted {
        /// The header lines that are copied from the response into the request.
        lines: Vec<u8>,
        /// How much of the answer's body has arrived.
        body_bytes: usize,
    },
    /// The request is refused: the response is relayed to the client, and the rest of the request is dropped.
    Refused,
}

impl AuthRequest {
    /// The index of the request's own pool; `None` if the request is not for a server.
    pub(super) fn pool(&self) -> Option<u16> {
        match &self.admitted {
            Admitted::Forward { pool, .. } => Some(*pool),
            Admitted::Serve(_) => None,
        }
    }

    /// Whether the client's body is taken while the response is awaited.
    pub(super) fn takes_body(&self) -> bool {
        match (&self.verdict, &self.admitted) {
            (AuthDecision::Refused, _) | (_, Admitted::Forward { .. }) => true,
            (AuthDecision::Awaited | AuthDecision::Granted { .. }, Admitted::Serve(_)) => false,
        }
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
                match self.takes_body() && self.request.has_waiting_room() {
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
            let keeps = match &self.admitted {
                Admitted::Forward { facts, .. } => !facts.drops_trailers,
                // The response is relayed, and the body is dropped.
                Admitted::Serve(_) => false,
            };
            self.request.end(if keeps { trailers } else { b"" });
        }
    }

    /// Whether the request is admitted and the rest of the response still arrives.
    const fn is_granted(&self) -> bool {
        matches!(self.verdict, AuthDecision::Granted { .. })
    }
}

/// Makes the authentication request the current request of a new exchange. `bytes` is its head; `choice` is what the balancing
/// of the authentication server's pool needs; `is_sensitive` is a fact of the authentication request.
pub(super) fn begin_auth_request(
    exchange: &mut Exchange,
    asker: &AuthRequestEncoder,
    bytes: Vec<u8>,
    Choice { key_hash, session }: Choice,
    is_sensitive: bool,
) {
    let facts = facts_of_question(&exchange.facts, Choice { key_hash, session }, is_sensitive);
    let question = StoredRequest::new(bytes, BodyLength::None);
    exchange.auth_request = Some(Box::new(AuthRequest {
        route: Some(asker.route()),
        request: core::mem::replace(&mut exchange.request, question),
        admitted: Admitted::Forward {
            pool: core::mem::replace(&mut exchange.pool, asker.pool()),
            facts: core::mem::replace(&mut exchange.facts, facts),
        },
        verdict: AuthDecision::Awaited,
    }));
    exchange.stage = Stage::Queued;
}

/// The facts of the authentication request about a request with the facts `own`.
fn facts_of_question(
    own: &RequestFacts,
    Choice { key_hash, session }: Choice,
    is_sensitive: bool,
) -> RequestFacts {
    RequestFacts {
        is_head: own.is_head,
        is_idempotent: true,
        is_reusable: true,
        authenticates: own.authenticates,
        drops_trailers: true,
        is_sensitive,
        key_hash,
        session,
        ..RequestFacts::NONE
    }
}

impl Worker {
    /// Asks the authentication server of a route about a request whose action is not `proxy`. The action begins once the request is
    /// admitted.
    pub(in crate::action) fn ask_before_action<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        asker: &AuthRequestEncoder,
        values: &Values<'_>,
    ) {
        let (era, snapshot, head) = (self.era_of(to), self.settings_of(to), values.head);
        let Some(down) = self.conns.downstream(to.sock) else {
            return self.note_bug(reactor, to.sock);
        };
        let index = down.listener;
        let listener = snapshot.listener(index);
        let (peer, asked) = (down.peer().ip(), snapshot.pool(asker.pool()));
        let context = RequestContext {
            peer,
            trusted: is_trusted(down.peer(), listener),
            client_address_fields: &snapshot.client_address_fields[usize::from(index)],
            scheme: down.scheme,
            client_certificate: down.facts.as_ref().and_then(|facts| facts.certificate()),
            via: &snapshot.config.server.via,
            host: &UpstreamHost::Keep,
            trailers: false,
            close: false,
            websocket_key: None,
            changes: None,
        };
        let changes =
            Changes { path: None, edits: None, values, waits: false, hook: None, ask: None };
        let mut question = self.buffers.take();
        if let Err(fault) = asker.encode(&mut question, head, &context, &changes) {
            self.buffers.put(question);
            return match fault {
                ForwardFault::AnswerHere => {
                    self.answer(reactor, to, &Answer::Recipient(head), false)
                }
                fault => self.answer_error(reactor, to, fault.status(), fault.text(), false),
            };
        }
        let choice = Choice {
            key_hash: hash_key(&asked.balance, head, None, (peer, listener)),
            session: session_of(reactor, &snapshot, usize::from(asker.pool()), head),
        };
        let facts =
            facts_of_question(&facts_of(head, None, choice), choice, is_sensitive(asked, head));
        self.arrivals += 1;
        let place = (index, asker.pool());
        let question = StoredRequest::new(question, BodyLength::None);
        let mut exchange = Exchange::new(to, era, place, self.arrivals, facts, question);
        exchange.values = self.values.take(to);
        let mut kept = OwnedHead::default();
        kept.keep(head);
        let (scheme, random) = (values.scheme, values.identity.random());
        exchange.auth_request = Some(Box::new(AuthRequest {
            route: Some(asker.route()),
            request: StoredRequest::new(Vec::new(), head.length),
            admitted: Admitted::Serve(Box::new(AskedRequest { head: kept, scheme, random })),
            verdict: AuthDecision::Awaited,
        }));
        self.insert_exchange(reactor, exchange);
    }

    /// Takes the decision from the head of the authentication server's response. Returns whether the request is admitted;
    /// otherwise the response is relayed to the client. `None`: the exchange has no authentication request.
    pub(super) fn take_auth_decision(
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
        self.accounts.counters.auth_requests.add(1);
        self.accounts.counters.auth_request_refusals.add(u64::from(!is_granted));
        Some(is_granted)
    }

    /// Takes the head of a response that admits the request.
    pub(super) fn take_auth_admission<R: Reactor>(
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
            // After many reloads, the exchange continued with newer settings (`adopt_requests`), and its route is unknown.
            return self.end_outdated(reactor, id);
        };
        let snapshot = self.settings.of(exchange.era);
        let handling = snapshot.handlings.of_route(route);
        let asker = handling.and_then(|handling| handling.ask.as_ref());
        let AuthDecision::Granted { lines, .. } = &mut auth_request.verdict else { return };
        let fits = asker.is_some_and(|asker| match &mut auth_request.admitted {
            Admitted::Forward { .. } => asker.copy_fields(head, lines),
            Admitted::Serve(asked) => asker.replace_fields(head, &mut asked.head),
        });
        exchange.attempt.note_head(head.persistent && head.length != BodyLength::UntilClose);
        exchange.stage = Stage::ExpectBody;
        let (pool, attempt) = (exchange.pool, exchange.attempt);
        if !fits {
            let text =
                "the authentication server's response has fields that are too long to be copied";
            return self.server_misbehaved(reactor, id, text);
        }
        self.note_result((pool, attempt.server), (false, None), reactor.now());
        if connection_auth::response_authenticates(head) {
            self.note_authenticated(reactor, attempt.up);
        }
        match ends {
            true => self.end_auth_request(reactor, id, more_follows),
            false => self.arm_upstream(reactor, id),
        }
    }

    /// Ends an exchange whose authentication response cannot be used, because the settings of its route are gone.
    fn end_outdated<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (pool, attempt) = (exchange.pool, exchange.attempt);
        self.release_server(pool, attempt.server);
        self.abandon_server(reactor, attempt.up);
        self.fail(reactor, id, Failure::new(503, OUTDATED));
    }

    /// Drops a piece of the body of a response that admits the request. Returns false if the exchange has no such response.
    pub(super) fn skip_auth_body<R: Reactor>(
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
            // The decision is known, and a new connection costs less than the rest of the body.
            self.end_auth_request(reactor, id, true);
        } else {
            self.arm_upstream(reactor, id);
        }
        true
    }

    /// If the response admits the client's request: ends the authentication request, and sends the client's request to its
    /// server. Otherwise returns false. `more_follows`: the connection cannot be kept.
    pub(super) fn finish_auth_response<R: Reactor>(
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
        let AuthRequest { route, request, admitted, verdict } = *auth_request;
        let (pool, facts) = match admitted {
            Admitted::Forward { pool, facts } => (pool, facts),
            Admitted::Serve(asked) => {
                self.forget_exchange(id);
                return self.serve_admitted(reactor, to, route, *asked);
            }
        };
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

    /// Begins the action of a request that the authentication server has admitted.
    fn serve_admitted<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        route: Option<usize>,
        asked: AskedRequest,
    ) {
        self.set_running(to, Running::None);
        self.set_action_deadline(reactor, to, Moment::NEVER);
        match route {
            Some(route) => {
                let (head, stage) = (asked.head.lend(), HandlingStage::Admitted(asked.random));
                self.begin_handled(reactor, to, &head, (route, asked.scheme), stage);
            }
            // The rest of the response has outlasted many reloads (`adopt_requests`).
            None => self.answer_error(reactor, to, 503, OUTDATED, false),
        }
        // The body follows.
        self.resume_request(to);
    }
}
