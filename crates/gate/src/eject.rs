//! Which servers are avoided for a while because their requests fail (`eject`).
//! In: the result of each request, times. Out: how long a server is avoided.
//! Never: examines a response, or shares its counts with another worker.
//! Limits: `TIMES_MAX` times `for` is the longest time; at most `ejected-max` of the servers are avoided at once.
//! Invariant: the failures of a window are at most its requests.

use tidegate_base::{Moment, Span};
use tidegate_config::model::Eject;

/// Failure rates are those of windows of this length.
const WINDOW: Span = Span::from_secs(10);
/// The fewest requests in a window whose failure rate counts.
const REQUESTS_MIN: u32 = 20;
/// A server is slow only if its responses take at least so much longer.
const SLOWER_MIN: Span = Span::from_millis(20);
/// After how many responses a server is compared with the others.
const COMPARED_EVERY: u32 = 8;
/// A server that is ejected again is avoided once more as long, up to this many times `for`.
const TIMES_MAX: u32 = 10;

/// Whether a response with this status counts as a failure of its server. 501, 505 and 511 (Not Implemented, HTTP
/// Version Not Supported, Network Authentication Required) say something about the request: any client could
/// provoke them until the server is ejected.
#[must_use]
pub fn is_failure(status: u16) -> bool {
    status >= 500 && !matches!(status, 501 | 505 | 511)
}

/// Why a server is ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectReason {
    /// Its requests fail.
    Failures,
    /// Its responses take much longer than those of the other servers.
    Latency,
}

/// The rest of an ejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ejection {
    /// How long the server is still avoided.
    pub left: Span,
    /// How often in a row it was ejected.
    pub times: u32,
}

/// The results of a server's requests, as one worker has seen them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// Failures since the last success.
    in_row: u32,
    /// When the window began.
    began: Moment,
    /// Requests in the window that have ended.
    requests: u32,
    /// Requests that failed.
    failures: u32,
    /// Responses whose time is known.
    timed: u32,
    /// The sum of these times, in microseconds.
    times_us: u64,
    /// The server is avoided until then.
    until: Moment,
    /// How often in a row it was ejected. A window without an ejection counts one less.
    times: u32,
}

impl Record {
    /// Notes the result of a request. Returns whether the server deserves to be ejected.
    pub fn note(&mut self, eject: &Eject, failed: bool, now: Moment) -> bool {
        if now.since(self.began) >= WINDOW {
            if now.since(self.until) >= WINDOW {
                self.times = self.times.saturating_sub(1);
            }
            self.begin_window(now);
        }
        self.requests = self.requests.saturating_add(1);
        if !failed {
            self.in_row = 0;
            return false;
        }
        self.in_row = self.in_row.saturating_add(1);
        self.failures = self.failures.saturating_add(1);
        let rate = u64::from(self.failures) * 100 / u64::from(self.requests);
        let is_too_often = eject
            .errors
            .is_some_and(|most| self.requests >= REQUESTS_MIN && rate >= u64::from(most));
        let is_too_many = eject.failures.is_some_and(|most| self.in_row >= most);
        (is_too_often || is_too_many) && !self.is_ejected(now)
    }

    fn begin_window(&mut self, now: Moment) {
        (self.began, self.requests, self.failures) = (now, 0, 0);
        (self.timed, self.times_us) = (0, 0);
    }

    /// Notes how long a response took, after `note` of its result. Returns whether the server is to be compared with the others.
    pub fn note_time(&mut self, took: Span) -> bool {
        self.timed = self.timed.saturating_add(1);
        self.times_us = self.times_us.saturating_add(took.as_micros() as u64);
        self.timed >= REQUESTS_MIN && self.timed.is_multiple_of(COMPARED_EVERY)
    }

    /// Whether the responses of this server take much longer than those of the `others`.
    pub fn is_slow<'a>(
        &self,
        eject: &Eject,
        others: impl Iterator<Item = &'a Self>,
        now: Moment,
    ) -> bool {
        let Some(factor) = eject.latency else { return false };
        let known = others.filter(|other| now.since(other.began) < WINDOW);
        let (count, sum) = known.fold((0, 0), |(count, sum): (u64, u64), other| {
            (count + u64::from(other.timed), sum.saturating_add(other.times_us))
        });
        if count < u64::from(REQUESTS_MIN) || self.timed < REQUESTS_MIN || self.is_ejected(now) {
            return false;
        }
        let (own, theirs) = (self.times_us / u64::from(self.timed), sum / count);
        let slower = own.saturating_sub(theirs);
        slower >= SLOWER_MIN.as_micros() as u64 && own >= theirs.saturating_mul(factor.into())
    }

    /// Ejects the server. Returns for how long.
    pub fn eject(&mut self, eject: &Eject, now: Moment) -> Span {
        self.times = (self.times + 1).min(TIMES_MAX);
        let span = eject.span.saturating_mul(self.times);
        self.until = now.after(span);
        self.in_row = 0;
        self.begin_window(now);
        span
    }

    /// The rest of an ejection; `None` if the server is not avoided.
    #[must_use]
    pub fn ejection(&self, now: Moment) -> Option<Ejection> {
        self.is_ejected(now).then(|| Ejection { left: self.until.since(now), times: self.times })
    }

    /// Continues an ejection by an earlier process, for no longer than an ejection can take.
    pub fn resume(&mut self, eject: &Eject, ejection: Ejection, now: Moment) {
        self.times = ejection.times.clamp(1, TIMES_MAX);
        self.until = now.after(ejection.left.min(eject.span.saturating_mul(self.times)));
        self.in_row = 0;
        self.begin_window(now);
    }

    /// Whether the server is avoided.
    #[must_use]
    pub fn is_ejected(&self, now: Moment) -> bool {
        self.until > now
    }

    /// The time until which the server is avoided.
    #[must_use]
    pub fn until(&self) -> Moment {
        self.until
    }
}

/// Whether another server of a pool may be ejected if `ejected` of its `all` usable servers are ejected already.
#[must_use]
pub fn has_room(eject: &Eject, ejected: usize, all: usize) -> bool {
    (ejected + 1) * 100 <= all * usize::from(eject.ejected_max)
}
