//! How WebSocket connections, and at a stop the streams of push hubs, end with a stop, an upgrade or a reload: over time, so that their
//! clients do not all connect again at the same moment.
//! In: the time for it. Out: which connections are to be closed by now, and the close codes for their clients.
//! Never: closes a connection with another HTTP exchange, which ends with its response.
//! Limits: `STEPS` steps.

use tidegate_base::Span;
use tidegate_reactor::SockId;
use tidegate_wire::websocket::{Close, CloseCode};

/// In how many steps connections are closed.
const STEPS: u32 = 20;

/// See above.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// The time of all steps together; zero if all connections are closed at once.
    span: Span,
    /// The step that is due. From `STEPS - 1` on, every connection is.
    step: u32,
    /// The Close frame for clients of forwarded WebSockets.
    close: Close<'static>,
}

/// The process or the listener is stopping.
pub const LEAVES: Close<'static> =
    Close { code: CloseCode::GOING_AWAY, reason: "the service stops here, connect again" };
/// A connection that is opened now reaches another process or server.
pub(crate) const RESTARTS: Close<'static> =
    Close { code: CloseCode::SERVICE_RESTART, reason: "the service restarts, connect again" };

impl Default for Drain {
    /// All at once.
    fn default() -> Self {
        Self { span: Span::ZERO, step: STEPS - 1, close: LEAVES }
    }
}

impl Drain {
    /// Spread over `span`.
    #[must_use]
    pub fn over(span: Span, close: Close<'static>) -> Self {
        let step = if span.is_zero() { STEPS - 1 } else { 0 };
        Self { span, step, close }
    }

    /// The Close frame for clients of forwarded WebSockets.
    pub(crate) fn close(self) -> Close<'static> {
        self.close
    }

    /// Whether the connection is to be closed by now.
    pub(crate) fn is_due(self, sock: SockId) -> bool {
        sock.index % STEPS <= self.step
    }

    /// Ends the step. Returns the time until the next one, if there is one.
    pub(crate) fn advance(&mut self) -> Option<Span> {
        (self.step + 1 < STEPS).then(|| {
            self.step += 1;
            self.span / STEPS
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_is_due_after_the_last_step_and_not_before_its_own() {
        let sock = |index| SockId::new(index, 1);
        assert!((0..100).all(|index| Drain::default().is_due(sock(index))));
        assert_eq!(Drain::default().advance(), None);
        assert_eq!(Drain::over(Span::ZERO, LEAVES).advance(), None);
        let mut drain = Drain::over(Span::from_secs(20), RESTARTS);
        let count = |drain: Drain| (0..100).filter(|&index| drain.is_due(sock(index))).count();
        for step in 1..STEPS as usize {
            assert_eq!(count(drain), 5 * step);
            assert_eq!(drain.advance(), Some(Span::from_secs(1)));
        }
        assert_eq!((count(drain), drain.advance()), (100, None));
    }
}
