//! Observes outputs that peers take slowly: whether the peer has taken bytes since the last check.
//! In: the bytes that a peer has not acknowledged, at a deadline. Out: when the peer was last seen to take any.
//! Never: costs anything for an output that its peer takes in time: the table has no entry for it.
//! Limits: one entry for each connection. It is removed with the connection, or once nothing is pending.
//! Invariant: an entry's `unacknowledged` is the result of the latest look at that output.

use std::collections::BTreeMap;

use tidegate_base::Moment;

use super::Loop;
use super::slots::SendSide;
use crate::interface::OutputProgress;
use crate::kernel::Kernel;

/// The latest look at one output.
struct Look {
    /// Bytes that the peer had not acknowledged: in the output and in the kernel. Never 0.
    unacknowledged: usize,
    /// The time of the latest look that saw fewer such bytes than the look before it, or of the first look.
    moved_at: Moment,
}

/// The latest looks, by slot index. A side table, so that connections without slow output hold no more bytes.
#[derive(Default)]
pub(super) struct Looks {
    by_slot: BTreeMap<u32, Look>,
}

impl Looks {
    /// Records a look and returns it.
    fn note(&mut self, index: u32, unacknowledged: usize, now: Moment) -> OutputProgress {
        if unacknowledged == 0 {
            return match self.by_slot.remove(&index) {
                Some(_) => OutputProgress::Emptied,
                None => OutputProgress::Idle,
            };
        }
        let first = Look { unacknowledged, moved_at: now };
        let look = self.by_slot.entry(index).or_insert(first);
        if unacknowledged < look.unacknowledged {
            look.moved_at = now;
        }
        look.unacknowledged = unacknowledged;
        OutputProgress::Pending { moved_at: look.moved_at }
    }

    /// Whether there was a look at the output of slot `index` since it became pending.
    pub(super) fn contains(&self, index: u32) -> bool {
        self.by_slot.contains_key(&index)
    }

    /// Forgets the looks at the output of slot `index`: its peer has taken everything, or is gone.
    pub(super) fn forget(&mut self, index: u32) {
        if !self.by_slot.is_empty() {
            self.by_slot.remove(&index);
        }
    }
}

impl<K: Kernel> Loop<K> {
    /// Looks at the output of slot `index`, and records what it sees. A FIN does not count as output.
    pub(super) fn look(&mut self, index: u32) -> OutputProgress {
        let slot = self.slots.at(index);
        let in_kernel = slot.handle.as_ref().map_or(0, |handle| self.kernel.unacknowledged(handle));
        let in_kernel = in_kernel.saturating_sub(usize::from(slot.send_side == SendSide::Finished));
        let pending = self.outputs.pending_bytes(slot.output);
        self.looks.note(index, pending + in_kernel, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fewer_bytes_count_as_movement() {
        let at = Moment::from_nanos;
        let pending = |moved| OutputProgress::Pending { moved_at: at(moved) };
        let mut looks = Looks::default();
        // (unacknowledged bytes, time of the look, what it sees)
        for (bytes, now, seen) in [
            (0, 5, OutputProgress::Idle),
            (100, 10, pending(10)),
            (100, 20, pending(10)),
            (99, 30, pending(30)),
            (150, 40, pending(30)),
            (150, 50, pending(30)),
            (149, 60, pending(60)),
            (0, 70, OutputProgress::Emptied),
            (0, 80, OutputProgress::Idle),
            (149, 90, pending(90)),
        ] {
            assert_eq!(looks.note(3, bytes, at(now)), seen, "look at {now}");
        }
        assert!(looks.contains(3) && !looks.contains(4));
        looks.forget(3);
        assert_eq!(looks.note(3, 149, at(100)), pending(100), "a first look");
    }
}
