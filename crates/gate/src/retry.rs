//! Whether a request whose attempt failed may be sent again. RFC 9110 section 9.2.2, RFC 9112
//! section 9.3.1.
//! In: where the attempt failed, the kind of request, how much of it was sent. Out: yes or no.
//! Never: picks the server (balance) or the error response (server crate).
//! Limits: retries are a share of the requests of a pool (`Budget`), if its settings say so.
//! Invariant: a request that a server may have executed is repeated only if it is idempotent, and
//! only exactly as it was sent the first time. A request of which nothing was sent is never lost.

use tidegate_base::{Moment, Span};
use tidegate_config::model::{RetryBudget, RetryOn};

/// The stage at which an exchange with a server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePoint {
    /// The connect failed: refused, unreachable or timed out.
    Connect,
    /// A reused connection had received bytes, its end or a reset before the first byte of the request was
    /// sent. The server has not received the request.
    NotSent,
    /// The server has stated that it did not process the request: REFUSED_STREAM, or a GOAWAY that excludes its
    /// stream (RFC 9113 section 8.7).
    Refused,
    /// A reused connection was closed or reset before the first byte of the response. Most likely the
    /// server closed the idle connection while the request was on its way.
    ReusedReset,
    /// A fresh connection was closed or reset before the first byte of the response. The server stopped while the
    /// connection waited to be accepted, or it closed it in reaction to the request.
    FreshReset,
    /// The `response-head` timeout expired. The server may still be executing the request.
    ResponseTimeout,
    /// The head of the response was malformed or cut off. The client has got nothing of it.
    Malformed,
    /// The attempt failed after the first byte of the response.
    InResponse,
    /// The head of the response arrived, with this status. The client has got nothing of it.
    Status(u16),
}

/// The facts about a failed attempt that the decision needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAttempt<'a> {
    /// The stage at which the attempt failed.
    pub point: FailurePoint,
    /// The method is idempotent (RFC 9110 section 9.2.2).
    pub idempotent: bool,
    /// Bytes of the request body were received from the client.
    pub body_sent: bool,
    /// All of these bytes were kept and can be sent again.
    pub body_replayable: bool,
    /// An earlier attempt has ended as `FreshReset` or `Malformed`: the request itself may have caused that.
    pub broken_before: bool,
    /// The number of attempts so far, including this one; at least 1.
    pub attempts: u32,
    /// The pool's `retries`.
    pub retries_max: u32,
    /// The pool's `retry-on`.
    pub retry_on: &'a RetryOn,
}

/// The requests and retries of a pool in one worker, of the last one or two spans of `BUDGET_SPAN`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// When the current span began.
    began: Moment,
    /// Requests and retries in the current span.
    now: (u32, u32),
    /// Requests and retries in the span before it.
    before: (u32, u32),
}

/// Half of the time over which requests and retries are counted.
const BUDGET_SPAN: Span = Span::from_secs(5);

impl Budget {
    /// A request is sent for the first time.
    pub fn note_request(&mut self, now: Moment) {
        self.advance(now);
        self.now.0 = self.now.0.saturating_add(1);
    }

    /// A request is sent again.
    pub fn note_retry(&mut self, now: Moment) {
        self.advance(now);
        self.now.1 = self.now.1.saturating_add(1);
    }

    /// Whether another retry is allowed at `now`, in one of `workers` workers.
    #[must_use]
    pub fn has_room(&self, settings: Option<&RetryBudget>, workers: usize, now: Moment) -> bool {
        let Some(settings) = settings else { return true };
        let counts = self.at(now);
        let requests = u64::from(counts.now.0) + u64::from(counts.before.0);
        let retries = u64::from(counts.now.1) + u64::from(counts.before.1);
        let least = u64::from(settings.min).div_ceil(workers.max(1) as u64);
        retries < least.max(requests * u64::from(settings.percent) / 100)
    }

    fn advance(&mut self, now: Moment) {
        *self = self.at(now);
    }

    /// The same counts at a later moment, when spans may have ended.
    fn at(&self, now: Moment) -> Self {
        let passed = now.since(self.began);
        if passed < BUDGET_SPAN {
            return *self;
        }
        let before = if passed < BUDGET_SPAN * 2 { self.now } else { (0, 0) };
        Self { began: now, now: (0, 0), before }
    }
}

/// Whether the request may be sent again.
///
/// If nothing was sent, the request is sent over another connection in any case. That is not a retry, and the caller must not
/// repeat it on a reused connection, so that it happens once. After a failed connect, every method is retried, because no server
/// has received the request. The same holds if the server has refused the request before any processing. After a reset of a
/// reused connection, only idempotent methods are retried, because the server may have executed the request before it closed. The
/// same holds for a reset of a fresh connection, as at the restart of a server, but only once: the request itself may be what
/// crashes servers, and it must not crash a whole pool. A timeout, a malformed head or a status is retried only if the pool wants
/// it, and only for idempotent methods. Resets of fresh connections and malformed heads count together, because a server that
/// crashes while it sends a head has sent a malformed one, and a request may make an application write one: each counts as a
/// failure of its server (`eject`). A request is never retried after the client has got a byte of the final response, nor if it
/// cannot be sent exactly as it was sent the first time.
#[must_use]
pub fn may_retry(failed: &FailedAttempt<'_>) -> bool {
    let whole = !failed.body_sent || failed.body_replayable;
    let allowed = failed.attempts <= failed.retries_max;
    let on = failed.retry_on;
    let (safe, wanted) = match failed.point {
        FailurePoint::NotSent => return whole,
        FailurePoint::Connect | FailurePoint::Refused => (true, on.connect),
        FailurePoint::ReusedReset => (failed.idempotent, on.reset),
        FailurePoint::FreshReset => (failed.idempotent && !failed.broken_before, on.reset),
        FailurePoint::ResponseTimeout => (failed.idempotent, on.timeout),
        FailurePoint::Malformed => (failed.idempotent && !failed.broken_before, on.malformed),
        FailurePoint::Status(status) => (failed.idempotent, on.statuses.contains(&status)),
        FailurePoint::InResponse => (false, false),
    };
    whole && allowed && safe && wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_requests_and_a_few_more() {
        let settings = Some(&RetryBudget { percent: 20, min: 4 });
        let at = |seconds: u64| Moment::ZERO.after(Span::from_secs(100 + seconds));
        let mut budget = Budget::default();
        let take = |budget: &mut Budget, at: Moment, workers: usize| {
            let mut count = 0;
            while count < 1000 && budget.has_room(settings, workers, at) {
                budget.note_retry(at);
                count += 1;
            }
            count
        };
        budget.note_request(at(0));
        assert_eq!(take(&mut budget, at(0), 2), 2, "half of `min`");
        assert_eq!(take(&mut budget, at(1), 1), 2, "the rest of it");
        (0..99).for_each(|_| budget.note_request(at(2)));
        assert_eq!(take(&mut budget, at(2), 1), 16, "20 of 100");
        // After 5 s they still count, after 10 s they do not.
        budget.note_request(at(6));
        assert_eq!(take(&mut budget, at(6), 1), 0);
        budget.note_request(at(12));
        budget.note_request(at(30));
        assert_eq!(take(&mut budget, at(30), 1), 4);
        assert!(!budget.has_room(settings, 1, at(34)));
        assert!(
            budget.has_room(settings, 1, at(40)),
            "the counts are over, although no request came"
        );
        assert!(budget.has_room(None, 1, at(30)), "no setting, no limit");
    }

    #[test]
    fn unsent_request_is_sent_again_whatever_its_method() {
        for (idempotent, retries_max) in [(true, 0), (false, 0), (false, 3)] {
            let failed = FailedAttempt {
                point: FailurePoint::NotSent,
                idempotent,
                body_sent: false,
                body_replayable: false,
                broken_before: true,
                attempts: 1,
                retries_max,
                retry_on: &RetryOn::default(),
            };
            assert!(may_retry(&failed));
            assert!(may_retry(&FailedAttempt { body_sent: true, body_replayable: true, ..failed }));
            assert!(!may_retry(&FailedAttempt { body_sent: true, ..failed }));
        }
    }

    #[test]
    fn retries_follow_the_truth_table() {
        use FailurePoint::{
            Connect, FreshReset, InResponse, Malformed, Refused, ResponseTimeout, ReusedReset,
            Status,
        };
        // (idempotent, body_sent, body_replayable) -> may retry, while retries are left
        let shapes = [
            (true, false, false),
            (true, true, true),
            (true, true, false),
            (false, false, false),
            (false, true, true),
            (false, true, false),
        ];
        let table = [
            (Connect, [true, true, false, true, true, false]),
            (Refused, [true, true, false, true, true, false]),
            (ReusedReset, [true, true, false, false, false, false]),
            (FreshReset, [true, true, false, false, false, false]),
            (ResponseTimeout, [true, true, false, false, false, false]),
            (Malformed, [true, true, false, false, false, false]),
            (Status(503), [true, true, false, false, false, false]),
            (Status(500), [false; 6]),
            (InResponse, [false; 6]),
        ];
        let on =
            RetryOn { timeout: true, malformed: true, statuses: vec![503], ..RetryOn::default() };
        for (point, expected) in table {
            for ((idempotent, body_sent, body_replayable), expected) in
                shapes.into_iter().zip(expected)
            {
                for (attempts, retries_max) in [(1, 0), (1, 1), (2, 1), (3, 3), (4, 3)] {
                    let failed = FailedAttempt {
                        point,
                        idempotent,
                        body_sent,
                        body_replayable,
                        broken_before: false,
                        attempts,
                        retries_max,
                        retry_on: &on,
                    };
                    let left = attempts <= retries_max;
                    assert_eq!(may_retry(&failed), expected && left, "{failed:?}");
                    let retry_on = &RetryOn { connect: false, reset: false, ..RetryOn::default() };
                    assert!(!may_retry(&FailedAttempt { retry_on, ..failed }), "{failed:?}");
                    // Only a second reset of a fresh connection, or a second malformed head, makes a difference.
                    let again = FailedAttempt { broken_before: true, ..failed };
                    let expected = expected && left && !matches!(point, FreshReset | Malformed);
                    assert_eq!(may_retry(&again), expected, "{again:?}");
                }
            }
        }
    }
}
