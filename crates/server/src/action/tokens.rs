//! Requests of routes that need a token (`auth` with `jwt`).
//! In: a request and its route. Out: its action begun with the claims of the token, or a response that refuses it.
//! Never: verifies more tokens in a turn than the share of tokens allows (tokens of requests behind a hook count for the
//! share of hooks). A request whose token has to wait is kept by `unverified.rs`.
//! Limits: those of `gate::jwt`; the share of a turn (`TurnShare`); `WAIT_MAX`. A token costs up to 0.6 ms for each key
//! that is tried.

use std::rc::Rc;

use tidegate_base::Span;
use tidegate_gate::handling::RouteHandling;
use tidegate_gate::jwt::{TokenFault, TokenGuard, Tokens};
use tidegate_gate::template::Values;
use tidegate_reactor::Reactor;
use tidegate_wire::jwt::Claims;
use tidegate_wire::message::RequestHead;

use crate::action::handled::Stage;
use crate::action::unverified::{Awaited, UnverifiedRequest};
use crate::requester::Requester;
use crate::turn_share::{TOKENS_SPAN_MAX, TurnShare};
use crate::worker::Worker;

/// How long a request may wait until its token is verified.
const WAIT_MAX: Span = Span::from_secs(10);
/// The reason in the log of a request whose token cannot be verified yet.
const NO_KEYS: &str = "the token keys are being fetched";

/// The verification of tokens.
pub(crate) struct TokenRequests {
    /// The rest of the turn's share for the verification, and the requests that wait for the next turn.
    pub(crate) share: TurnShare<UnverifiedRequest>,
    /// Tokens that were verified or refused recently.
    known: Tokens,
}

impl TokenRequests {
    /// No request waits.
    pub(crate) fn new() -> Self {
        Self { share: TurnShare::new(TOKENS_SPAN_MAX), known: Tokens::default() }
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
        let (can_wait, is_counted) = match stage {
            Stage::New => (true, false),
            Stage::Waited(_) => (false, false),
            Stage::Admitted(_) | Stage::Hooked(..) => (false, true),
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
        // The limits have counted the request before its hook was called.
        if !is_counted && !self.admit_rate(reactor, to, (route, handling), values) {
            return;
        }
        self.begin_admitted(reactor, to, (route, handling), values, stage);
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
        let due = reactor.now().after(WAIT_MAX);
        if let Some(id) = self.put_off(reactor, (to, route), values, Awaited::Token, due) {
            self.accounts.counters.tokens_put_off.add(1);
            self.tokens.share.put_off(to.sock, id);
        }
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
            self.resume_unverified(reactor, id);
        }
        // The requests after them in the queue belong to the same share.
        self.settle(reactor);
        self.tokens.share.renew();
    }
}
