//! Encoded entries on their way from workers to a thread that writes or sends them: lines of the access log, spans.
//! In: entries of a turn. Out: batches for the thread; how many entries were lost.
//! Never: blocks a worker: a worker adds the entries of a turn to its `SharedBatch`, unless the thread holds the lock at that
//! moment. Then they wait for the next turn.
//! Limits: `BATCH_BYTES_MAX` bytes of each worker wait for the thread; further entries are lost.
//! Invariant: a batch contains whole entries only.

use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of one worker that wait for the thread.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 20;
/// A batch with this many bytes wakes the thread at once.
const BATCH_BYTES_URGENT: usize = BATCH_BYTES_MAX / 4;

/// Encoded entries, one after another.
#[derive(Default)]
pub(crate) struct Batch {
    /// The entries.
    pub(crate) bytes: Vec<u8>,
    /// The number of entries.
    pub(crate) entries: u64,
}

impl Batch {
    /// Removes the entries. The buffer is kept.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries = 0;
    }

    /// Adds the entries of another batch.
    pub(crate) fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.entries += other.entries;
    }
}

/// The entries of one worker that wait for the thread.
#[derive(Default)]
pub struct SharedBatch(Mutex<Batch>);

impl SharedBatch {
    /// Moves the entries to `into`, whose own entries are dropped.
    pub(crate) fn take(&self, into: &mut Batch) {
        into.clear();
        let mut batch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        core::mem::swap(&mut *batch, into);
    }

    /// Takes the entries as text. For tests.
    #[must_use]
    pub fn take_text(&self) -> String {
        String::from_utf8_lossy(&self.take_bytes()).into_owned()
    }

    /// Takes the entries. For tests.
    #[must_use]
    pub fn take_bytes(&self) -> Vec<u8> {
        let mut batch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = batch.bytes.clone();
        batch.clear();
        bytes
    }
}

/// What became of the entries of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    /// There are no entries, or they wait for the next turn.
    Nothing,
    /// The thread can take the entries. `is_urgent`: the thread should take them at once.
    Done { is_urgent: bool },
    /// The number of entries that were lost, because the thread is too slow.
    Lost(u64),
}

/// A worker's side: the entries of this turn, and where the thread finds them.
#[derive(Default)]
pub(crate) struct BatchSender {
    /// The entries of this turn.
    pub(crate) batch: Batch,
    shared: Arc<SharedBatch>,
}

impl BatchSender {
    /// A sender without entries.
    pub(crate) fn new(shared: Arc<SharedBatch>) -> Self {
        Self { batch: Batch::default(), shared }
    }

    /// Whether entries wait to be handed over.
    pub(crate) fn has_entries(&self) -> bool {
        self.batch.entries > 0
    }

    /// Hands the entries over.
    pub(crate) fn deliver(&mut self) -> Delivery {
        if self.batch.entries == 0 {
            return Delivery::Nothing;
        }
        let Ok(mut waiting) = self.shared.0.try_lock() else {
            return match self.batch.bytes.len() > BATCH_BYTES_MAX {
                true => self.lose(),
                false => Delivery::Nothing,
            };
        };
        let before = waiting.bytes.len();
        let after = before + self.batch.bytes.len();
        if before == 0 {
            core::mem::swap(&mut *waiting, &mut self.batch);
        } else if after <= BATCH_BYTES_MAX {
            waiting.append(&self.batch);
        } else {
            drop(waiting);
            return self.lose();
        }
        drop(waiting);
        self.batch.clear();
        let is_urgent = before < BATCH_BYTES_URGENT && after >= BATCH_BYTES_URGENT;
        Delivery::Done { is_urgent }
    }

    /// Hands over the last entries. May wait for the thread.
    pub(crate) fn deliver_last(&mut self) {
        let mut waiting = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.append(&self.batch);
        drop(waiting);
        self.batch.clear();
    }

    #[cold]
    fn lose(&mut self) -> Delivery {
        let lost = self.batch.entries;
        self.batch.clear();
        Delivery::Lost(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(sender: &mut BatchSender, bytes: usize) {
        sender.batch.bytes.extend(std::iter::repeat_n(b'a', bytes));
        sender.batch.entries += 1;
    }

    #[test]
    fn entries_beyond_the_bound_are_lost_and_counted() {
        let shared = Arc::new(SharedBatch::default());
        let mut sender = BatchSender::new(Arc::clone(&shared));
        assert_eq!(sender.deliver(), Delivery::Nothing);
        add(&mut sender, 10);
        assert_eq!(sender.deliver(), Delivery::Done { is_urgent: false });
        add(&mut sender, BATCH_BYTES_URGENT);
        assert_eq!(sender.deliver(), Delivery::Done { is_urgent: true });
        add(&mut sender, BATCH_BYTES_MAX);
        add(&mut sender, 1);
        assert_eq!(sender.deliver(), Delivery::Lost(2));
        let mut taken = Batch::default();
        shared.take(&mut taken);
        assert_eq!((taken.bytes.len(), taken.entries), (10 + BATCH_BYTES_URGENT, 2));
    }

    #[test]
    fn entries_wait_while_the_thread_holds_the_batch() {
        let shared = Arc::new(SharedBatch::default());
        let mut sender = BatchSender::new(Arc::clone(&shared));
        let held = shared.0.lock().expect("no other holder");
        add(&mut sender, 10);
        assert_eq!((sender.deliver(), sender.has_entries()), (Delivery::Nothing, true));
        add(&mut sender, BATCH_BYTES_MAX);
        assert_eq!(sender.deliver(), Delivery::Lost(2));
        add(&mut sender, 3);
        drop(held);
        assert_eq!(sender.deliver(), Delivery::Done { is_urgent: false });
        assert_eq!(shared.take_text(), "aaa");
    }
}
