//! Observes outputs that peers take slowly: whether the peer has taken bytes since the last check.
//! In: the bytes handed to the kernel; at a deadline, the bytes that the kernel holds. Out: when the peer was last seen to
//! take any.
//! Never: costs anything for an output that its peer takes in time: the table has no entry for it. Derives progress from the size of
//! the output: the output of a peer that reads slowly may be filled faster than it shrinks.
//! Limits: one entry for each connection. It is removed with the connection, or once nothing is pending.
//! Invariant: an entry's `in_kernel` is the result of the latest check of that output, and `handed_over` counts from then.

use std::collections::BTreeMap;

use tidegate_base::Moment;

use super::Loop;
use super::slots::SendSide;
use crate::interface::OutputProgress;
use crate::kernel::Kernel;

/// The latest check of one output.
struct Look {
    /// Bytes in the kernel that the peer had not acknowledged.
    in_kernel: usize,
    /// Bytes handed to the kernel since this look.
    handed_over: usize,
    /// The time of the latest check that found bytes acknowledged since the check before it, or of the first check.
    moved_at: Moment,
}

/// The latest looks, by slot index. A side table, so that connections without slow output hold no more bytes.
#[derive(Default)]
pub(super) struct Looks {
    by_slot: BTreeMap<u32, Look>,
}

impl Looks {
    /// Records a check of an output with `pending` bytes, of whose connection the kernel holds `in_kernel` bytes that the peer
    /// has not acknowledged. Returns the result of the check.
    fn note(
        &mut self,
        index: u32,
        pending: usize,
        in_kernel: usize,
        now: Moment,
    ) -> OutputProgress {
        if pending + in_kernel == 0 {
            return match self.by_slot.remove(&index) {
                Some(_) => OutputProgress::Emptied,
                None => OutputProgress::Idle,
            };
        }
        let first = Look { in_kernel, handed_over: 0, moved_at: now };
        let look = self.by_slot.entry(index).or_insert(first);
        let has_moved = in_kernel < look.in_kernel + look.handed_over;
        let moved_at = if has_moved { now } else { look.moved_at };
        *look = Look { in_kernel, handed_over: 0, moved_at };
        OutputProgress::Pending { moved_at }
    }

    /// Records that the kernel has taken `count` bytes of the output of slot `index`.
    pub(super) fn note_handed_over(&mut self, index: u32, count: usize) {
        if self.by_slot.is_empty() {
            return;
        }
        if let Some(look) = self.by_slot.get_mut(&index) {
            look.handed_over = look.handed_over.saturating_add(count);
        }
    }

    /// Whether the output of slot `index` was checked since it became pending.
    pub(super) fn contains(&self, index: u32) -> bool {
        self.by_slot.contains_key(&index)
    }

    /// Forgets the checks of the output of slot `index`: its peer has taken everything, or is gone.
    pub(super) fn forget(&mut self, index: u32) {
        if !self.by_slot.is_empty() {
            self.by_slot.remove(&index);
        }
    }
}

impl<K: Kernel> Loop<K> {
    /// Checks the output of slot `index`, and records the result. A FIN does not count as output.
    pub(super) fn look(&mut self, index: u32) -> OutputProgress {
        let slot = self.slots.at(index);
        let in_kernel = slot.handle.as_ref().map_or(0, |handle| self.kernel.unacknowledged(handle));
        let in_kernel = in_kernel.saturating_sub(usize::from(slot.send_side == SendSide::Finished));
        let pending = self.outputs.pending_bytes(slot.output);
        self.looks.note(index, pending, in_kernel, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a check, for output that last progressed at `nanos`.
    fn pending(nanos: u64) -> OutputProgress {
        OutputProgress::Pending { moved_at: Moment::from_nanos(nanos) }
    }

    #[test]
    fn only_acknowledged_bytes_count_as_movement() {
        let mut looks = Looks::default();
        // (bytes handed over before the check, pending bytes, bytes in the kernel, time of the check, its result)
        for (handed_over, waiting, in_kernel, now, seen) in [
            (0, 0, 0, 5, OutputProgress::Idle),
            (0, 60, 40, 10, pending(10)),
            (0, 60, 40, 20, pending(10)),
            (1, 59, 40, 30, pending(30)),
            (0, 150, 40, 40, pending(30)),
            (9, 141, 49, 50, pending(30)),
            (0, 141, 48, 60, pending(60)),
            (0, 0, 48, 70, pending(60)),
            (0, 0, 0, 80, OutputProgress::Emptied),
            (0, 0, 0, 90, OutputProgress::Idle),
            (0, 149, 0, 95, pending(95)),
        ] {
            looks.note_handed_over(3, handed_over);
            let sees = looks.note(3, waiting, in_kernel, Moment::from_nanos(now));
            assert_eq!(sees, seen, "look at {now}");
        }
        assert!(looks.contains(3) && !looks.contains(4));
        looks.forget(3);
        looks.note_handed_over(3, 20);
        let sees = looks.note(3, 149, 0, Moment::from_nanos(100));
        assert_eq!(sees, pending(100), "a first look");
    }

    #[test]
    fn output_that_grows_while_the_peer_reads_is_movement() {
        let mut looks = Looks::default();
        for look in 1..50_usize {
            // The peer reads 10 bytes, the kernel's buffer stays full, and producers add 30 bytes.
            looks.note_handed_over(3, 10);
            let now = look as u64 * 10;
            let sees = looks.note(3, look * 20, 100, Moment::from_nanos(now));
            assert_eq!(sees, pending(now), "look {look}");
        }
    }
}
