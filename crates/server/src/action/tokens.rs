//! Requests of routes that need a token (`auth` with `jwt`).
//! In: a request and its route. Out: its action begun with the claims of the token, or a response that refuses it.
//! Never: verifies more tokens in a turn than the share of tokens allows (tokens of requests behind a hook count for the
//! share of hooks); loses the head of a request whose token has to wait.
//! Limits: those of `gate::jwt`; the share of a turn (`TurnShare`); `WAIT_MAX`. A token costs up to 0.6 ms for each key
//! that is tried.
//! Invariant: no part of a waiting request has reached its action. It begins under the settings under which it was admitted, or
//! is judged again from the start.

use std::rc::Rc;

use tidegate_base::{Id, Moment, Span};
use tidegate_config::arrange::Generation;
use tidegate_gate::access::Cause;
use tidegate_gate::handling::RouteHandling;
use tidegate_gate::jwt::{TokenFault, TokenGuard, Tokens};
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::Values;
use tidegate_reactor::Reactor;
use tidegate_wire::jwt::Claims;
use tidegate_wire::message::{OwnedHead, RequestHead};

use crate::action::Running;
use crate::action::handled::Stage;
use crate::action::intake::Intake;
use crate::carrier::Progress;
use crate::checked_slab::CheckedSlab;
use crate::requester::Requester;
use crate::turn_share::{TOKENS_SPAN_MAX, TurnShare};
use crate::worker::Worker;

/// How long a request may wait until its token is verified.
const WAIT_MAX: Span = Span::from_secs(10);
/// The reason in the log and the error response of a request whose token cannot be verified in time.
const NO_KEYS: &str = "the token keys are being fetched";
const TOO_MANY: &str = "too many tokens wait for verification";

/// A request whose token is verified in a later turn.
pub(crate) struct TokenRequest {
    /// The requester that gets the response.
    requester: Requester,
    /// The head of the request.
    head: OwnedHead,
    /// The route that has admitted the request; `None` if the request has got other settings since.
    route: Option<usize>,
    /// The settings that admitted the request.
    generation: Generation,
    /// The scheme by which the client sent the request.
    scheme: Scheme,
    /// The random number of the request.
    random: u128,
    /// The progress of the request body, of which nothing is taken.
    intake: Intake,
    /// The values for the edits of the response, as far as they do not depend on the token.
    values: Vec<u8>,
}

impl TokenRequest {
    /// The requester of the response.
    pub(crate) fn requester(&self) -> Requester {
        self.requester
    }

    /// The progress of the request body.
    pub(super) fn intake(&mut self) -> &mut Intake {
        &mut self.intake
    }

    /// The request continues under other settings, so that its route has to be found again.
    pub(crate) fn forget_route(&mut self) {
        self.route = None;
    }
}

/// The verification of tokens.
pub(crate) struct TokenRequests {
    /// The requests whose tokens are verified in a later turn. Each one belongs to exactly one requester.
    pub(crate) requests: CheckedSlab<TokenRequest>,
    /// The rest of the turn's share for the verification, and the requests that wait for the next turn.
    share: TurnShare<TokenRequest>,
    /// Tokens that were verified or refused recently.
    known: Tokens,
}

impl TokenRequests {
    /// No request waits; up to `requests_max` may.
    pub(crate) fn new(requests_max: usize) -> Self {
        Self {
            requests: CheckedSlab::new(requests_max),
            share: TurnShare::new(TOKENS_SPAN_MAX),
            known: Tokens::default(),
        }
    }

    /// Whether a request waits for the next turn.
    pub(crate) fn has_waiting(&self) -> bool {
        self.share.has_waiting()
    }
}

impl Worker {
    /// Begins the action of a request whose token is valid. `values` are without its claims.
    pub(super) fn begin_with_token<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, handling): (usize, &RouteHandling),
        guard: &TokenGuard,
        values: &Values<'_>,
        stage: Stage<'_>,
    ) {
        let (can_wait, hook) = match stage {
            Stage::New => (true, None),
            Stage::Waited(_) => (false, None),
            Stage::Hooked(changes, _) => (false, Some(changes)),
        };
        let claims = match self.claims_of(reactor, guard, values.head, can_wait) {
            Some(Ok(claims)) => claims,
            Some(Err(fault)) => {
                let counters = &self.accounts.counters;
                let (counter, reason) = match fault {
                    TokenFault::Unavailable => (&counters.keyless_requests, NO_KEYS),
                    _ => (&counters.unauthenticated_requests, "the request has no valid token"),
                };
                counter.add(1);
                return self.deny(reactor, to, guard.denial(fault), reason, false);
            }
            None => return self.put_off_token(reactor, to, route, values),
        };
        let values = &Values { user: claims.text("sub"), claims: Some(&*claims), ..*values };
        if !self.render_values(reactor, to, handling, values) {
            return;
        }
        // If the hook was called, the limits have counted the request already.
        if hook.is_none() && !self.admit_rate(reactor, to, (route, handling), values) {
            return;
        }
        self.begin_admitted(reactor, to, (route, handling), values, hook);
    }

    /// The claims of the token of a request; `None` if the token has to wait for a later turn.
    fn claims_of<R: Reactor>(
        &mut self,
        reactor: &R,
        guard: &TokenGuard,
        head: &RequestHead<'_>,
        can_wait: bool,
    ) -> Option<Result<Rc<Claims>, TokenFault>> {
        let token = match guard.token(head) {
            Ok(token) => token,
            Err(fault) => return Some(Err(fault)),
        };
        let (key, unix_seconds) = (guard.key(token, &self.secret), reactor.unix_seconds());
        if let Some(known) = self.tokens.known.find(key, unix_seconds) {
            return Some(known);
        }
        if can_wait && self.tokens.share.is_used_up() {
            return None;
        }
        self.accounts.counters.tokens_verified.add(1);
        let began = reactor.read_clock();
        let verified = match guard.verify(token, unix_seconds) {
            Ok(claims) => Ok(self.tokens.known.insert(key, claims, guard.leeway(), unix_seconds)),
            Err(fault) => {
                self.tokens.known.refuse(key, fault);
                Err(fault)
            }
        };
        self.tokens.share.note_call(reactor.read_clock().since(began));
        Some(verified)
    }

    /// Lets a request wait until its token is verified.
    fn put_off_token<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        route: usize,
        values: &Values<'_>,
    ) {
        let mut head = OwnedHead::default();
        head.keep(values.head);
        let request = TokenRequest {
            requester: to,
            head,
            route: Some(route),
            generation: self.settings_of(to).generation,
            scheme: values.scheme,
            random: values.identity.random(),
            intake: Intake::NONE,
            values: self.values.take(to),
        };
        let Ok(id) = self.tokens.requests.insert(request) else {
            self.accounts.counters.token_refusals.add(1);
            return self.answer_error(reactor, to, 503, TOO_MANY, true);
        };
        self.accounts.counters.tokens_put_off.add(1);
        self.tokens.share.put_off(to.sock, id);
        self.set_running(to, Running::Token(id));
        self.set_action_deadline(reactor, to, reactor.now().after(WAIT_MAX));
    }

    /// Whether a request that began with earlier settings waits for its token.
    pub(crate) fn is_earlier_token_waiting(&self) -> bool {
        let newest = self.settings.newest().generation;
        let mut waiting = self.tokens.requests.iter().map(|(_, request)| request);
        waiting.any(|request| request.route.is_some() && request.generation != newest)
    }

    /// Verifies tokens that had to wait, within their share of the turn.
    pub(crate) fn verify_waiting_tokens<R: Reactor>(&mut self, reactor: &mut R) {
        self.tokens.share.renew();
        if !self.tokens.share.has_waiting() {
            return;
        }
        while !self.tokens.share.is_used_up()
            && let Some(id) = self.tokens.share.take_next()
        {
            self.resume_token(reactor, id);
        }
        // The requests after them in the queue belong to the same share.
        self.settle(reactor);
        self.tokens.share.renew();
    }

    /// Continues a request whose token has waited.
    fn resume_token<R: Reactor>(&mut self, reactor: &mut R, id: Id<TokenRequest>) {
        // Its client may have disconnected while it waited.
        if self.tokens.requests.find(id).is_none() {
            return;
        }
        let Some(request) = self.tokens.requests.remove(id) else { return };
        let to = request.requester;
        self.mark_requester(to);
        self.set_running(to, Running::None);
        self.set_action_deadline(reactor, to, Moment::NEVER);
        let head = request.head.lend();
        match request.route {
            Some(route) => {
                self.recall_values(to, request.values);
                let route = (route, request.scheme);
                self.begin_handled(reactor, to, &head, route, Stage::Waited(request.random));
            }
            None => self.begin_request(reactor, to, &head),
        }
        // The body follows.
        self.resume_request(to);
    }

    /// A request has waited for too long.
    pub(super) fn token_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<TokenRequest>) {
        let Some(request) = self.tokens.requests.remove(id) else { return };
        let to = request.requester;
        self.set_running(to, Running::None);
        self.recall_values(to, request.values);
        self.accounts.counters.token_refusals.add(1);
        self.blame(to, Cause::Refused, TOO_MANY);
        match self.progress(to) {
            Progress::Expected => self.answer_error(reactor, to, 503, TOO_MANY, true),
            Progress::Begun | Progress::Ended => self.cut_response(reactor, to),
        }
    }
}
