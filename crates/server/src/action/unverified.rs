//! Requests whose token or password is verified before their action begins.
//! In: a request and its route; the moment of the verification, or its result. Out: the request on its way to its action, or a
//! response that refuses it.
//! Never: gives a part of the request to its action before the verification; loses the head of a request that waits.
//! Limits: `VERIFICATION_MAX` for the result of a password; `WAIT_MAX` of `tokens.rs` for a token.
//! Invariant: a request begins under the settings under which it was admitted, or is judged again from the start.
//!
//! A route with the action `proxy` is an exception: its requests wait for their passwords as exchanges, so that their
//! bodies can be buffered meanwhile (`proxy/authorization.rs`).

use tidegate_base::{Id, Moment, Span};
use tidegate_config::arrange::Generation;
use tidegate_gate::access::Cause;
use tidegate_gate::basic::CredentialKey;
use tidegate_gate::denial::Denial;
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::Values;
use tidegate_reactor::Reactor;
use tidegate_wire::message::OwnedHead;

use crate::action::Running;
use crate::action::handled::{NO_PASSWORD, Stage};
use crate::action::intake::Intake;
use crate::carrier::Progress;
use crate::password_queue::{Origin, Place};
use crate::passwords::{Finding, Job, PasswordResult, Submitted, Task, Ticket};
use crate::record::CLIENT_LEFT;
use crate::requester::Requester;
use crate::worker::Worker;

/// How long a request waits for the result of its password.
pub(super) const VERIFICATION_MAX: Span = Span::from_secs(30);
/// The reasons in the log and the error response of a request that cannot be verified in time.
pub(super) const TOO_MANY_PASSWORDS: &str = "too many passwords are being verified";
const TOO_MANY_TOKENS: &str = "too many tokens wait for verification";

/// A request whose token or password is being verified. Its action has not begun.
pub(crate) struct UnverifiedRequest {
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
    /// The values for the edits of the response, as far as they do not depend on the user.
    values: Vec<u8>,
    /// What the request waits for.
    awaited: Awaited,
}

/// What is verified.
pub(super) enum Awaited {
    /// The token, in a later turn.
    Token,
    /// The password, by a thread.
    Password {
        /// The credentials, to remember them.
        key: CredentialKey,
        /// The place of the password in the queue, which is free again when the request ends; `None` until it is there.
        place: Option<Place<Task>>,
    },
}

impl Awaited {
    /// Why a request is refused whose verification takes too long.
    const fn refusal(&self) -> &'static str {
        match self {
            Self::Token => TOO_MANY_TOKENS,
            Self::Password { .. } => TOO_MANY_PASSWORDS,
        }
    }
}

impl UnverifiedRequest {
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

impl Worker {
    /// Lets a request wait for its verification until `due`. `None`: there is no room, and the request has been answered.
    pub(super) fn put_off<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (to, route): (Requester, usize),
        values: &Values<'_>,
        awaited: Awaited,
        due: Moment,
    ) -> Option<Id<UnverifiedRequest>> {
        let mut head = OwnedHead::default();
        head.keep(values.head);
        let request = UnverifiedRequest {
            requester: to,
            head,
            route: Some(route),
            generation: self.settings_of(to).generation,
            scheme: values.scheme,
            random: values.identity.random(),
            intake: Intake::NONE,
            values: self.values.take(to),
            awaited,
        };
        match self.unverified.insert(request) {
            Ok(id) => {
                self.set_running(to, Running::Unverified(id));
                self.set_action_deadline(reactor, to, due);
                Some(id)
            }
            Err(request) => {
                self.note_unverifiable(&request.awaited);
                self.answer_error(reactor, to, 503, request.awaited.refusal(), true);
                None
            }
        }
    }

    /// Has the password of a request verified whose action keeps no request that waits.
    pub(super) fn await_password<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (to, route): (Requester, usize),
        values: &Values<'_>,
        key: CredentialKey,
        job: impl FnOnce(Ticket) -> Job,
    ) {
        let due = reactor.now().after(VERIFICATION_MAX);
        let awaited = Awaited::Password { key, place: None };
        let Some(id) = self.put_off(reactor, (to, route), values, awaited, due) else { return };
        self.accounts.counters.password_checks.add(1);
        let ticket = Ticket::Request(id);
        match self.passwords.submit(Origin::of(values.client()), job(ticket)) {
            Submitted::Waits(taken) => {
                if let Some(request) = self.unverified.get_mut(id)
                    && let Awaited::Password { place, .. } = &mut request.awaited
                {
                    *place = Some(taken);
                }
                if self.has_client_finished(reactor, to) {
                    self.leave_verification(reactor, id);
                }
            }
            Submitted::Judged(result) => self.apply_password_result(reactor, id, result.finding),
            Submitted::Refused => self.verification_due(reactor, id),
        }
    }

    /// The client has ended its direction of the connection, and has probably left: the work of the threads would be wasted.
    pub(super) fn leave_verification<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<UnverifiedRequest>,
    ) {
        let Some(request) = self.unverified.get(id) else { return };
        match request.awaited {
            Awaited::Token => {}
            Awaited::Password { .. } => {
                let to = request.requester;
                self.accounts.counters.client_aborts.add(1);
                self.abandon_client(reactor, to, Cause::Client, CLIENT_LEFT);
            }
        }
    }

    /// A thread has verified a password. Called between two turns.
    pub(crate) fn receive_password_result<R: Reactor>(
        &mut self,
        reactor: &mut R,
        result: PasswordResult,
    ) {
        match result.ticket {
            Ticket::Exchange(id) => {
                self.mark_exchange(id);
                self.apply_verdict(reactor, id, result.finding);
            }
            Ticket::Request(id) => {
                // The client may have disconnected.
                if let Some(to) = self.unverified.find(id).map(UnverifiedRequest::requester) {
                    self.mark_requester(to);
                    self.apply_password_result(reactor, id, result.finding);
                }
            }
        }
        self.settle(reactor);
    }

    /// Continues a request whose password is right, and refuses any other one.
    fn apply_password_result<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<UnverifiedRequest>,
        finding: Finding,
    ) {
        let Some(request) = self.unverified.find(id) else { return };
        let Awaited::Password { key, .. } = request.awaited else { return };
        match finding {
            Finding::Right => {
                self.passwords.verified.insert(key, reactor.now());
                self.resume_unverified(reactor, id);
            }
            Finding::Wrong => self.deny_unverified(reactor, id),
            Finding::Displaced => self.verification_due(reactor, id),
        }
    }

    /// Continues a request that can be verified now.
    pub(super) fn resume_unverified<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<UnverifiedRequest>,
    ) {
        // Its client may have disconnected while it waited.
        if self.unverified.find(id).is_none() {
            return;
        }
        let Some(request) = self.take_unverified(reactor, id) else { return };
        let to = request.requester;
        self.mark_requester(to);
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

    /// Refuses a request whose password is wrong.
    fn deny_unverified<R: Reactor>(&mut self, reactor: &mut R, id: Id<UnverifiedRequest>) {
        let Some(request) = self.take_unverified(reactor, id) else { return };
        let to = request.requester;
        self.accounts.counters.unauthenticated_requests.add(1);
        self.recall_values(to, request.values);
        let snapshot = self.settings_of(to);
        let handling = request.route.and_then(|route| snapshot.handlings.of_route(route));
        let guard = handling.and_then(|handling| handling.auth.as_ref());
        let denial = guard.map_or(Denial::new(401, ""), |guard| guard.denial());
        self.deny(reactor, to, denial, NO_PASSWORD, false);
        self.resume_request(to);
    }

    /// A request has waited for too long, or has no place in the queue.
    pub(super) fn verification_due<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<UnverifiedRequest>,
    ) {
        let Some(request) = self.take_unverified(reactor, id) else { return };
        let (to, refusal) = (request.requester, request.awaited.refusal());
        self.recall_values(to, request.values);
        self.note_unverifiable(&request.awaited);
        self.blame(to, Cause::Refused, refusal);
        match self.progress(to) {
            Progress::Expected => self.answer_error(reactor, to, 503, refusal, true),
            Progress::Begun | Progress::Ended => self.cut_response(reactor, to),
        }
    }

    /// Ends the wait of a request.
    fn take_unverified<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<UnverifiedRequest>,
    ) -> Option<UnverifiedRequest> {
        let request = self.unverified.remove(id)?;
        self.set_running(request.requester, Running::None);
        self.set_action_deadline(reactor, request.requester, Moment::NEVER);
        Some(request)
    }

    fn note_unverifiable(&mut self, awaited: &Awaited) {
        let counters = &self.accounts.counters;
        match awaited {
            Awaited::Token => counters.token_refusals.add(1),
            Awaited::Password { .. } => counters.auth_refusals.add(1),
        }
    }

    /// Whether a request that began with earlier settings waits to be verified.
    pub(crate) fn is_earlier_request_unverified(&self) -> bool {
        let newest = self.settings.newest().generation;
        let mut waiting = self.unverified.iter().map(|(_, request)| request);
        waiting.any(|request| request.route.is_some() && request.generation != newest)
    }
}
