//! Requests that wait until the password of their user is verified.
//! In: requests in `Stage::Authorizing`, verdicts. Out: the same requests on their way to a server, or refused.
//! Never: takes a server or a place in a queue for a request whose user is not verified.
//! Limits: `VERIFICATION_MAX` for a verdict.

use tidegate_base::Id;
use tidegate_gate::basic::CredentialKey;
use tidegate_gate::denial::Denial;
use tidegate_reactor::Reactor;

use crate::action::Running;
use crate::action::handled::NO_PASSWORD;
use crate::action::proxy::Failure;
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::action::unverified::{TOO_MANY_PASSWORDS, VERIFICATION_MAX};
use crate::password_queue::{Origin, Place};
use crate::passwords::{Finding, Job, Submitted, Task};
use crate::requester::Requester;
use crate::worker::Worker;

const TOO_MANY: Failure = Failure::new(503, TOO_MANY_PASSWORDS);

/// The data of a request that are needed after the verdict.
pub(crate) struct Authorization {
    /// The route, whose response refuses a wrong password.
    route: usize,
    /// The credentials, to remember them.
    key: CredentialKey,
    /// The place of the password in the queue, which is free again when the request ends; `None` once the verdict is
    /// known without waiting.
    place: Option<Place<Task>>,
    /// The values for the edits of the response to a wrong password, if they differ: those without the user.
    values: Option<Vec<u8>>,
}

/// The request that the verdict is about.
pub(in crate::action) struct PasswordCheck {
    /// The route of the request.
    pub(in crate::action) route: usize,
    /// The credentials.
    pub(in crate::action) key: CredentialKey,
    /// The origin of the request.
    pub(in crate::action) origin: Origin,
    /// The values for the edits of the response if the password is right, in case they differ.
    pub(in crate::action) values: Option<Vec<u8>>,
}

impl Worker {
    /// The exchange of a requester that waits for a verdict.
    pub(in crate::action) fn waiting_exchange(&mut self, to: Requester) -> Option<Id<Exchange>> {
        let running = match self.http2_clients.get(to.stream) {
            Some(stream) => stream.running(),
            None => self.conns.downstream(to.sock)?.running(),
        };
        match running {
            Running::Proxy(id) => {
                let exchange = self.exchanges.find(id)?;
                (exchange.stage == Stage::Authorizing).then_some(id)
            }
            Running::None
            | Running::Synthetic(_)
            | Running::WebSocket(_)
            | Running::Lua(_)
            | Running::Unverified(_)
            | Running::Tarpit(_)
            | Running::Push(_) => None,
        }
    }

    /// Has the password of a request verified.
    pub(in crate::action) fn await_verdict<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        question: PasswordCheck,
        job: Job,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let PasswordCheck { route, key, origin, values } = question;
        let values = values.map(|right| core::mem::replace(&mut exchange.values, right));
        let mut authorization = Box::new(Authorization { route, key, place: None, values });
        let to = exchange.requester;
        self.accounts.counters.password_checks.add(1);
        let submitted = self.passwords.submit(origin, job);
        match submitted {
            Submitted::Waits(place) => {
                authorization.place = Some(place);
                exchange.authorization = Some(authorization);
                let at = reactor.now().after(VERIFICATION_MAX);
                self.set_action_deadline(reactor, to, at);
                self.leave_queue_if_gone(reactor, id);
            }
            Submitted::Judged(verdict) => {
                exchange.authorization = Some(authorization);
                self.apply_verdict(reactor, id, verdict.finding);
            }
            Submitted::Refused => {
                exchange.authorization = Some(authorization);
                self.accounts.counters.auth_refusals.add(1);
                self.fail(reactor, id, TOO_MANY);
            }
        }
    }

    /// Sends the request of a right password to a server, and refuses any other one.
    pub(in crate::action) fn apply_verdict<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        finding: Finding,
    ) {
        // The client may have disconnected.
        let Some(exchange) = self.exchanges.find_mut(id) else { return };
        if exchange.authorization.is_some() && finding == Finding::Displaced {
            self.accounts.counters.auth_refusals.add(1);
            return self.fail(reactor, id, TOO_MANY);
        }
        let Some(authorization) = exchange.authorization.take() else { return };
        let (to, is_done) = (exchange.requester, exchange.request.is_done());
        if finding == Finding::Right {
            exchange.stage = Stage::Buffering;
            self.passwords.verified.insert(authorization.key, reactor.now());
            self.dispatch_buffered(reactor, id);
            return self.resume_request(to);
        }
        self.accounts.counters.unauthenticated_requests.add(1);
        let values = core::mem::take(&mut exchange.values);
        self.recall_values(to, authorization.values.unwrap_or(values));
        self.forget_exchange(id);
        let snapshot = self.settings_of(to);
        let handling = snapshot.handlings.of_route(authorization.route);
        let guard = handling.and_then(|handling| handling.auth.as_ref());
        let denial = guard.map_or(Denial::new(401, ""), |guard| guard.denial());
        self.deny(reactor, to, denial, NO_PASSWORD, !is_done);
    }
}
