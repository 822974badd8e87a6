//! The attempts of one exchange to get a response: the current attempt, and the results of the earlier ones.
//! In: the events of attempts. Out: the destination of the next attempt.
//! Never: decides whether there is another attempt (`gate::retry` does).
//! Limits: the pool's `retries`.

use tidegate_base::{Moment, Span};
use tidegate_gate::balance::Tried;
use tidegate_gate::retry::FailurePoint;

use crate::responder::Responder;

/// The current attempt to get a response from a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attempt {
    /// The server's connection or stream; `Responder::NONE` before the first attempt and between two attempts. Its
    /// `exchange` names this exchange.
    pub(crate) up: Responder,
    /// Index of the chosen server in the pool. Meaningless before the first attempt.
    pub(crate) server: u16,
    /// When the server was chosen.
    began: Moment,
    /// The connection had carried a request before this one.
    is_reused: bool,
    /// How long the reused connection had been idle; `None` if it was kept for this client, or is fresh.
    idle_age: Option<Span>,
    /// The first byte of the response has arrived. After that, another attempt is made only for a status or a malformed
    /// head, if `retry-on` contains it.
    has_response: bool,
    /// The connection may carry another request after this one, by the response. Set when the response head arrives.
    keeps: bool,
    /// The connection must not carry another request after this one, whatever the response says. Once true, it stays true.
    is_last: bool,
    /// The server has ended its direction while a part of the body, which it sent before, waits for the bandwidth.
    has_ended: bool,
}

impl Attempt {
    /// No attempt is in progress.
    pub(crate) const NONE: Self = Self {
        up: Responder::NONE,
        server: 0,
        began: Moment::ZERO,
        is_reused: false,
        idle_age: None,
        has_response: false,
        keeps: false,
        is_last: false,
        has_ended: false,
    };

    /// An attempt with `server`, whose connection is still to be chosen.
    pub(super) fn with(server: u16, now: Moment) -> Self {
        Self { server, began: now, ..Self::NONE }
    }

    /// When the server was chosen.
    pub(crate) fn began(&self) -> Moment {
        self.began
    }

    /// The request is sent over `up`. `idle_age`: how long that connection had been idle.
    pub(super) fn use_connection(
        &mut self,
        up: Responder,
        is_reused: bool,
        idle_age: Option<Span>,
    ) {
        (self.up, self.is_reused, self.idle_age) = (up, is_reused, idle_age);
    }

    /// The first byte of the response has arrived, or no other server may be tried for another reason.
    pub(crate) fn note_response(&mut self) {
        self.has_response = true;
    }

    /// The head of the response has arrived. `keeps`: the connection may carry another request.
    pub(super) fn note_head(&mut self, keeps: bool) {
        self.keeps = keeps;
    }

    /// The connection carries no other request after this one.
    pub(crate) fn forbid_reuse(&mut self) {
        self.is_last = true;
    }

    /// The server has ended its direction while a part of the body waits.
    pub(crate) fn note_end(&mut self) {
        (self.has_ended, self.keeps) = (true, false);
    }

    /// Whether the first byte of the response has arrived.
    pub(crate) fn has_response(&self) -> bool {
        self.has_response
    }

    /// Whether the connection may carry another request after this one.
    pub(super) fn keeps(&self) -> bool {
        self.keeps && !self.is_last
    }

    /// Whether the server has ended its direction while a part of the body waits.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the connection had carried a request before this one.
    pub(super) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// How long the reused connection had been idle.
    pub(super) fn idle_age(&self) -> Option<Span> {
        self.idle_age
    }
}

/// The results of the attempts of an exchange so far.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// Attempts made so far, the current one included. An attempt that sent nothing over a reused connection
    /// does not count. Bounded by the pool's `retries` plus one.
    count: u32,
    /// Servers that attempts were made with. They are not picked again. If every server was tried, this is cleared:
    /// at once if only a reused connection had failed, otherwise after a pause.
    tried: Tried,
    /// When an attempt was last lost with its connection. Shared connections that were silent since are avoided.
    lost_at: Moment,
    /// An attempt failed, so the next one uses a fresh connection: other idle connections may have been
    /// closed by their server, too. Once true, it stays true.
    needs_fresh: bool,
    /// The server accepts no tunnels over HTTP/2, so the request is sent over an HTTP/1.1 connection. Once true, it stays true.
    needs_http1: bool,
    /// The server of the attempt closes its connections, so another one is tried first. Set until the attempt has ended.
    is_server_leaving: bool,
    /// A fresh connection was reset before the first byte of a response, or the head of a response was malformed. Once true,
    /// it stays true.
    is_broken: bool,
}

impl Attempts {
    /// No attempt was made.
    pub(super) fn new() -> Self {
        Self {
            count: 0,
            tried: Tried::default(),
            lost_at: Moment::ZERO,
            needs_fresh: false,
            needs_http1: false,
            is_server_leaving: false,
            is_broken: false,
        }
    }

    /// Another attempt begins. Returns how many there are now.
    pub(super) fn begin(&mut self, server: usize) -> u32 {
        self.tried.insert(server);
        self.count += 1;
        self.count
    }

    /// The current attempt has failed.
    pub(super) fn note_failed(&mut self, point: FailurePoint, now: Moment) {
        if matches!(
            point,
            FailurePoint::Connect | FailurePoint::ReusedReset | FailurePoint::FreshReset
        ) {
            self.lost_at = now;
        }
        self.needs_fresh = true;
    }

    /// Another attempt follows the one that has failed. `all_tried`: no server is left that was not tried.
    pub(super) fn prepare_next(&mut self, point: FailurePoint, all_tried: bool) {
        self.is_broken |= matches!(point, FailurePoint::FreshReset | FailurePoint::Malformed);
        let is_leaving = core::mem::take(&mut self.is_server_leaving);
        if point == FailurePoint::NotSent {
            // The first attempt sent nothing, so it does not count.
            self.count -= 1;
        }
        let may_repeat = match point {
            // A server that is leaving is tried again only if there is no other one.
            FailurePoint::NotSent => all_tried || !is_leaving,
            // Every server was tried, but a fresh connection to this server was not.
            FailurePoint::ReusedReset => all_tried,
            FailurePoint::Connect
            | FailurePoint::Refused
            | FailurePoint::FreshReset
            | FailurePoint::ResponseTimeout
            | FailurePoint::Malformed
            | FailurePoint::InResponse
            | FailurePoint::Status(_) => false,
        };
        if may_repeat {
            self.forget_tried();
        }
    }

    /// All servers may be picked again.
    pub(super) fn forget_tried(&mut self) {
        self.tried = Tried::default();
    }

    /// The request goes to another pool: the results of the attempts do not concern it.
    pub(super) fn start_again(&mut self) {
        (self.count, self.lost_at) = (0, Moment::ZERO);
        (self.needs_fresh, self.is_broken) = (false, false);
        self.forget_tried();
    }

    /// The server of the current attempt closes its connections.
    pub(super) fn note_leaving(&mut self) {
        self.is_server_leaving = true;
    }

    /// The request is sent over HTTP/1.1 connections only.
    pub(super) fn require_http1(&mut self) {
        self.needs_http1 = true;
    }

    /// Whether no attempt was made yet.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && !self.needs_fresh
    }

    /// Attempts made so far.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Servers that attempts were made with.
    pub(crate) fn tried(&self) -> &Tried {
        &self.tried
    }

    /// When an attempt was last lost with its connection.
    pub(super) fn lost_at(&self) -> Moment {
        self.lost_at
    }

    /// Whether the next attempt uses a fresh connection.
    pub(crate) fn needs_fresh(&self) -> bool {
        self.needs_fresh
    }

    /// Whether the request is sent over HTTP/1.1 connections only.
    pub(super) fn needs_http1(&self) -> bool {
        self.needs_http1
    }

    /// Whether a fresh connection was reset before the first byte of a response, or the head of a response was malformed.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_cannot_permit_a_reuse_that_the_request_forbids() {
        let mut attempt = Attempt::with(0, Moment::ZERO);
        attempt.note_head(true);
        assert!(attempt.keeps());
        attempt.forbid_reuse();
        attempt.note_head(true);
        assert!(!attempt.keeps());
        assert!(!Attempt::with(0, Moment::ZERO).is_last, "the next attempt has another connection");
    }

    fn tried_one() -> Attempts {
        let mut attempts = Attempts::new();
        assert_eq!(attempts.begin(0), 1);
        attempts
    }

    #[test]
    fn request_that_was_not_sent_does_not_count() {
        let mut attempts = tried_one();
        attempts.note_failed(FailurePoint::NotSent, Moment::from_nanos(5));
        attempts.prepare_next(FailurePoint::NotSent, false);
        assert_eq!((attempts.count(), attempts.lost_at()), (0, Moment::ZERO));
        assert!(attempts.needs_fresh() && attempts.tried().is_empty() && !attempts.is_empty());
    }

    #[test]
    fn server_that_leaves_is_tried_again_only_if_it_is_the_last() {
        for (all_tried, is_forgotten) in [(false, false), (true, true)] {
            let mut attempts = tried_one();
            attempts.note_leaving();
            attempts.note_failed(FailurePoint::NotSent, Moment::ZERO);
            attempts.prepare_next(FailurePoint::NotSent, all_tried);
            assert_eq!(attempts.tried().is_empty(), is_forgotten, "{all_tried}");
        }
    }

    #[test]
    fn reset_of_a_fresh_connection_is_remembered() {
        let mut attempts = tried_one();
        attempts.note_failed(FailurePoint::FreshReset, Moment::from_nanos(5));
        attempts.prepare_next(FailurePoint::FreshReset, true);
        assert!(attempts.is_broken() && !attempts.tried().is_empty());
        assert_eq!((attempts.count(), attempts.lost_at()), (1, Moment::from_nanos(5)));
        attempts.start_again();
        assert!(!attempts.is_broken() && attempts.tried().is_empty() && attempts.is_empty());
    }

    #[test]
    fn malformed_head_is_remembered_as_a_reset_is() {
        for (point, is_broken) in [
            (FailurePoint::Malformed, true),
            (FailurePoint::FreshReset, true),
            (FailurePoint::ReusedReset, false),
            (FailurePoint::Status(503), false),
        ] {
            let mut attempts = tried_one();
            attempts.note_failed(point, Moment::ZERO);
            attempts.prepare_next(point, true);
            assert_eq!(attempts.is_broken(), is_broken, "{point:?}");
        }
    }
}
