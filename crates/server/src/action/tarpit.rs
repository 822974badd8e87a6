//! Requests above their route's rate limit that wait before they are refused (`then = "tarpit"` of `rate`).
//! In: a refused request. Out: its 429 response, after a time.
//! Never: holds a connection to a server, a request head or a body; delays a request of another client.
//! Limits: `waiting-max` of the limit, in all workers together; `SHARE` of the connections of a worker. The requests
//! above them get their response at once (`tarpits_full`). A request waits for up to 60 s.
//! Invariant: each waiting request has one place of its limit, and gives it back at its end.

use tidegate_base::{Id, Moment, Span};
use tidegate_gate::bounded_places::Place;
use tidegate_gate::denial::Denial;
use tidegate_gate::rate::RateTable;
use tidegate_reactor::Reactor;

use crate::action::Running;
use crate::action::intake::Intake;
use crate::requester::Requester;
use crate::worker::Worker;

/// The part of a worker's connections that may wait: one in `SHARE`, at least one.
const SHARE: usize = 4;
/// The text of the response, and the reason in the access log.
const TOO_MANY: &str = "too many requests";

/// A request that waits for its refusal.
pub(crate) struct TarpitRequest {
    /// The requester that gets the response.
    requester: Requester,
    /// When the next request would be admitted, as known when this one was refused.
    admitted_at: Moment,
    /// The progress of the request body, of which nothing is taken.
    intake: Intake,
    /// The values for the edits of the response; empty if there are none.
    values: Vec<u8>,
    /// The place among the requests that wait because of the same limit.
    _place: Place,
}

impl TarpitRequest {
    /// The requester of the response.
    pub(crate) fn requester(&self) -> Requester {
        self.requester
    }

    /// The progress of the request body.
    pub(super) fn intake(&mut self) -> &mut Intake {
        &mut self.intake
    }
}

impl Worker {
    /// Refuses a request because of its rate. The next one would be admitted after `until_next`.
    pub(super) fn deny_rate<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        until_next: Span,
    ) {
        let retry_after = until_next.as_millis().div_ceil(1000) as u64;
        let denial = Denial { retry_after, ..Denial::new(429, TOO_MANY) };
        self.deny(reactor, to, denial, TOO_MANY, false);
    }

    /// Lets a request wait for `wait` before it is refused.
    pub(super) fn tarpit<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        table: &RateTable,
        (wait, until_next): (Span, Span),
    ) {
        let is_full = self.tarpits.len() >= (self.slots_max() / SHARE).max(1) || self.stopping;
        let Some(place) = table.tarpit.take().filter(|_| !is_full) else {
            self.accounts.counters.tarpits_full.add(1);
            return self.deny_rate(reactor, to, until_next);
        };
        let request = TarpitRequest {
            requester: to,
            admitted_at: reactor.now().after(until_next),
            intake: Intake::NONE,
            values: self.values.take(to),
            _place: place,
        };
        match self.tarpits.insert(request) {
            Ok(id) => {
                self.accounts.counters.tarpitted_requests.add(1);
                self.set_running(to, Running::Tarpit(id));
                self.set_action_deadline(reactor, to, reactor.now().after(wait));
            }
            Err(request) => {
                self.recall_values(to, request.values);
                self.accounts.counters.tarpits_full.add(1);
                self.deny_rate(reactor, to, until_next);
            }
        }
    }

    /// The wait of the request is over: sends its response.
    pub(super) fn tarpit_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<TarpitRequest>) {
        let Some(request) = self.tarpits.remove(id) else { return };
        let to = request.requester;
        self.set_running(to, Running::None);
        self.set_action_deadline(reactor, to, Moment::NEVER);
        self.recall_values(to, request.values);
        let until_next = request.admitted_at.since(reactor.now()).max(Span::from_secs(1));
        self.deny_rate(reactor, to, until_next);
        // The body, or the next request, may have arrived meanwhile.
        self.resume_request(to);
    }

    /// Refuses all requests that wait. Part of a stop.
    pub(crate) fn end_tarpits<R: Reactor>(&mut self, reactor: &mut R) {
        let waiting: Vec<_> = self.tarpits.iter().map(|(id, _)| id).collect();
        for id in waiting {
            // The end of one request may have ended another one.
            if self.tarpits.find(id).is_some() {
                self.tarpit_due(reactor, id);
            }
        }
    }
}
