//! Requests of routes that need a token (`auth` with `jwt`).
//! In: a request and its route. Out: its action begun with the claims of the token, or a response that refuses it.
//! Limits: those of `gate::jwt`. A token costs up to 0.1 ms for each key that is tried, once on each worker.

use std::rc::Rc;

use tidegate_gate::changes::HookChanges;
use tidegate_gate::handling::RouteHandling;
use tidegate_gate::jwt::{TokenFault, TokenGuard};
use tidegate_gate::template::Values;
use tidegate_reactor::Reactor;
use tidegate_wire::jwt::Claims;
use tidegate_wire::message::RequestHead;

use crate::requester::Requester;
use crate::worker::Worker;

impl Worker {
    /// Begins the action of a request whose token is valid. `values` are without its claims.
    pub(super) fn begin_with_token<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, handling): (usize, &RouteHandling),
        guard: &TokenGuard,
        values: &Values<'_>,
        hook: Option<HookChanges<'_>>,
    ) {
        let claims = match self.claims_of(guard, values.head, reactor.unix_seconds()) {
            Ok(claims) => claims,
            Err(fault) => {
                self.accounts.counters.unauthenticated_requests.add(1);
                let reason = "the request has no valid token";
                return self.deny(reactor, to, guard.denial(fault), reason, false);
            }
        };
        let values = &Values { user: claims.text("sub"), claims: Some(&*claims), ..*values };
        if !self.render_values(reactor, to, handling, values) {
            return;
        }
        self.begin_admitted(reactor, to, (route, handling), values, hook);
    }

    /// The claims of the token of a request.
    fn claims_of(
        &mut self,
        guard: &TokenGuard,
        head: &RequestHead<'_>,
        unix_seconds: u64,
    ) -> Result<Rc<Claims>, TokenFault> {
        let token = guard.token(head)?;
        let key = guard.key(token, &self.secret);
        if let Some(known) = self.tokens.find(key, unix_seconds) {
            return Ok(known);
        }
        self.accounts.counters.tokens_verified.add(1);
        let claims = guard.verify(token, unix_seconds)?;
        Ok(self.tokens.insert(key, claims, token.len(), guard.leeway()))
    }
}
