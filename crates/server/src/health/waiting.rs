//! Checks that wait for a resource of this process, and connections that can give up theirs.
//! In: targets whose checks lacked a slot, a descriptor or memory; connections whose checks have ended. Out: the check that is
//! tried next; the connection that gives up its slot first.
//! Limits: one place for each target; two lines of the log each `LOG_SPAN`.
//! Invariant: checks are tried in the order in which they began to wait. A check that was tried and lacks memory goes to the end of the
//! queue, and so does one whose connect was begun and then failed for lack of a resource.

use std::collections::{BTreeMap, VecDeque};

use tidegate_base::{Moment, Span};
use tidegate_reactor::SockId;

/// How often the log says that checks wait.
const LOG_SPAN: Span = Span::from_secs(60);

/// The place of a check among those that wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place(u64);

/// See above.
#[derive(Debug, Default)]
pub(super) struct WaitingChecks {
    /// The numbers of the targets, by their places.
    targets: BTreeMap<Place, usize>,
    /// How many checks have waited.
    count: u64,
    /// When the log may state that checks wait, for a port and for another resource.
    log_at: [Moment; 2],
    /// The connections whose checks have ended, oldest first. Some may have ended themselves.
    leaving: VecDeque<SockId>,
}

impl WaitingChecks {
    /// A check begins to wait. Returns its place.
    pub(super) fn add(&mut self, number: usize) -> Place {
        let place = Place(self.count);
        self.count += 1;
        self.targets.insert(place, number);
        place
    }

    /// Whether the log is to state now that checks wait, for a port or for another resource.
    pub(super) fn is_to_be_logged(&mut self, lacks_port: bool, now: Moment) -> bool {
        let log_at = &mut self.log_at[usize::from(lacks_port)];
        let is_logged = now >= *log_at;
        if is_logged {
            *log_at = now.after(LOG_SPAN);
        }
        is_logged
    }

    /// A check waits no longer.
    pub(super) fn remove(&mut self, place: Place) {
        self.targets.remove(&place);
    }

    /// The target at this place has another number now.
    pub(super) fn renumber(&mut self, place: Place, number: usize) {
        self.targets.insert(place, number);
    }

    /// Forgets all numbers, which are given again.
    pub(super) fn forget_numbers(&mut self) {
        self.targets.clear();
    }

    /// The target that has waited longest.
    pub(super) fn first(&self) -> Option<usize> {
        self.targets.first_key_value().map(|(_, number)| *number)
    }

    /// Adds a connection whose check has ended. `is_open`: whether an earlier one has not ended yet.
    pub(super) fn add_leaving(&mut self, sock: SockId, is_open: impl Fn(SockId) -> bool) {
        while self.leaving.pop_front_if(|oldest| !is_open(*oldest)).is_some() {}
        self.leaving.push_back(sock);
    }

    /// Takes the connection whose check ended longest ago. It may have ended itself.
    pub(super) fn take_leaving(&mut self) -> Option<SockId> {
        self.leaving.pop_front()
    }
}
