//! The timers of a worker, which belong to no connection.
//! In: the time at which something must happen. Out: a number for the reactor, and back.
//! Never: fails to name what an expired timer is for; the list is matched exhaustively (`flow.rs`).

use tidegate_base::Moment;
use tidegate_reactor::Reactor;

/// What a timer is for. Its number in the reactor is its place in this list.
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
    /// Requests look for room for a connection again.
    Room,
    /// Idle connections of removed listeners are closed.
    Leave,
    /// Messages about channels that a full mailbox refused are sent again.
    Push,
    /// A callback of a Lua application continues, or a timer of one begins.
    Lua,
    /// A message of a conflated channel is due.
    Conflation,
    /// A deadline of a request of Tidegate's own has passed.
    Own,
    /// Bodies whose bandwidth is limited continue.
    Pace,
    /// A name server has not answered in time.
    Names,
}

impl WorkerTimer {
    const ALL: [Self; 12] = [
        Self::Grace,
        Self::Idle,
        Self::Listeners,
        Self::Permits,
        Self::Room,
        Self::Leave,
        Self::Push,
        Self::Lua,
        Self::Conflation,
        Self::Own,
        Self::Pace,
        Self::Names,
    ];

    /// The timer with this number in the reactor.
    pub(crate) fn of(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Sets the timer, in place of the time before.
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
