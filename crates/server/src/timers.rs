//! The timers of a worker, which belong to no connection.
//! In: the time at which something must happen. Out: a number for the reactor, and back.
//! Invariant: each timer has a handler, because the list is matched exhaustively (`flow.rs`).

use tidegate_base::Moment;
use tidegate_reactor::Reactor;

/// The purpose of a timer. Its number in the reactor is its place in this list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkerTimer {
    /// The end of the grace period of a stop.
    Grace,
    /// A stop closes idle connections.
    Idle,
    /// A stop closes the listeners.
    Listeners,
    /// Messages about permits that a full mailbox refused are sent again.
    Permits,
    /// Requests that wait for room for a connection try again.
    Slots,
    /// Idle connections of removed listeners are closed.
    RemovedListeners,
    /// Messages about channels that a full mailbox refused are sent again.
    Push,
    /// A callback of a Lua application continues, or a timer of a Lua application expires.
    Lua,
    /// A message of a conflated channel is due.
    Conflation,
    /// The deadline of a request that Tidegate itself sends has passed.
    OwnRequests,
    /// Bodies whose bandwidth is limited continue.
    Bandwidth,
    /// A name server has not answered in time.
    Names,
    /// A server is no longer avoided after a failure, while requests wait.
    Avoidance,
}

impl WorkerTimer {
    const ALL: [Self; 13] = [
        Self::Grace,
        Self::Idle,
        Self::Listeners,
        Self::Permits,
        Self::Slots,
        Self::RemovedListeners,
        Self::Push,
        Self::Lua,
        Self::Conflation,
        Self::OwnRequests,
        Self::Bandwidth,
        Self::Names,
        Self::Avoidance,
    ];

    /// The timer with this number in the reactor.
    pub(crate) fn of(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Sets the timer. Replaces the time that was set before.
    pub(crate) fn set<R: Reactor>(self, reactor: &mut R, at: Moment) {
        reactor.set_timer(self as u32, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_names_its_timer() {
        for timer in WorkerTimer::ALL {
            assert_eq!(WorkerTimer::of(timer as u32), Some(timer));
        }
        assert_eq!(WorkerTimer::of(WorkerTimer::ALL.len() as u32), None);
    }
}
