//! Encoded entries on their way from workers to a thread that writes or sends them: lines of the access log, spans.
//! In: entries of a turn. Out: batches for the thread; the number of lost entries.
//! Never: blocks a worker: a worker leaves the entries of a turn in its `SharedBatch`, unless the thread holds the lock at that
//! moment. Then the entries wait for the next turn. Never copies entries: a turn borrows a small batch and continues it in
//! place.
//! Limits: `BATCH_BYTES_MAX` bytes of each worker wait for the thread; further entries are lost.
//! Invariant: a batch contains whole entries only. A thread that finds a batch borrowed is woken at the end of that turn, and
//! no turn borrows it again before the thread has taken it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of bytes of one worker that wait for the thread.
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
pub struct SharedBatch(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    batch: Batch,
    /// The worker continues the batch in this turn, so there are no entries here.
    is_borrowed: bool,
    /// The thread came for the entries while the batch was borrowed.
    is_wanted: bool,
}

impl SharedBatch {
    /// Moves the entries to `into`, whose own entries are dropped. Returns whether the worker has borrowed the entries. Then
    /// `into` is empty, and the worker wakes the thread when it returns the entries.
    pub(crate) fn take(&self, into: &mut Batch) -> bool {
        into.clear();
        let mut waiting = self.lock();
        waiting.is_wanted = waiting.is_borrowed;
        core::mem::swap(&mut waiting.batch, into);
        waiting.is_borrowed
    }

    /// Takes the entries as a string. For tests.
    #[must_use]
    pub fn take_string(&self) -> String {
        String::from_utf8_lossy(&self.take_bytes()).into_owned()
    }

    /// Takes the entries. For tests.
    #[must_use]
    pub fn take_bytes(&self) -> Vec<u8> {
        let mut waiting = self.lock();
        let bytes = waiting.batch.bytes.clone();
        waiting.batch.clear();
        bytes
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A worker's side: the entries of this turn, and the batch that is shared with the thread.
#[derive(Default)]
pub(crate) struct BatchSender {
    /// The entries of this turn, after those of the borrowed batch.
    batch: Batch,
    /// The bytes and entries of the borrowed batch.
    borrowed: Option<(usize, u64)>,
    shared: Arc<SharedBatch>,
}

impl BatchSender {
    /// A sender without entries.
    pub(crate) fn new(shared: Arc<SharedBatch>) -> Self {
        Self { shared, ..Self::default() }
    }

    /// The batch to which the next entry is appended.
    #[inline]
    pub(crate) fn batch(&mut self) -> &mut Batch {
        if self.batch.entries == 0 {
            self.borrow_waiting();
        }
        &mut self.batch
    }

    /// The first entry of a turn: borrows the entries that wait, unless the thread should take them soon.
    fn borrow_waiting(&mut self) {
        let Ok(mut waiting) = self.shared.0.try_lock() else { return };
        let (bytes, entries) = (waiting.batch.bytes.len(), waiting.batch.entries);
        if bytes > 0 && bytes < BATCH_BYTES_URGENT && !waiting.is_wanted {
            core::mem::swap(&mut waiting.batch, &mut self.batch);
            waiting.is_borrowed = true;
            self.borrowed = Some((bytes, entries));
        }
    }

    /// Whether entries wait to be handed over.
    pub(crate) fn has_entries(&self) -> bool {
        self.batch.entries > 0
    }

    /// Hands the entries over.
    #[inline]
    pub(crate) fn deliver(&mut self) -> Delivery {
        match self.batch.entries {
            0 => Delivery::Nothing,
            _ => self.deliver_entries(),
        }
    }

    fn deliver_entries(&mut self) -> Delivery {
        let Self { batch, borrowed, shared } = self;
        let Ok(mut waiting) = shared.0.try_lock() else {
            return match batch.bytes.len() > BATCH_BYTES_MAX {
                true => Delivery::Lost(lose(batch, *borrowed)),
                false => Delivery::Nothing,
            };
        };
        // The bytes that the thread knows about. Nothing waits beside a borrowed batch.
        let known = borrowed.map_or(waiting.batch.bytes.len(), |(bytes, _)| bytes);
        // If nothing waits, the thread is not late, so even a turn with more bytes than the limit is accepted.
        let is_full = waiting.batch.bytes.len() + batch.bytes.len() > BATCH_BYTES_MAX;
        let lost = if known > 0 && is_full { lose(batch, *borrowed) } else { 0 };
        if waiting.batch.bytes.is_empty() {
            core::mem::swap(&mut waiting.batch, batch);
        } else {
            waiting.batch.append(batch);
        }
        let is_due = core::mem::take(&mut waiting.is_borrowed) && waiting.is_wanted;
        let after = waiting.batch.bytes.len();
        drop(waiting);
        batch.clear();
        *borrowed = None;
        match lost {
            0 => {
                let is_urgent = known < BATCH_BYTES_URGENT && after >= BATCH_BYTES_URGENT;
                Delivery::Done { is_urgent: is_urgent || is_due }
            }
            lost => Delivery::Lost(lost),
        }
    }

    /// Hands over the last entries. May wait for the thread.
    pub(crate) fn deliver_last(&mut self) {
        let mut waiting = self.shared.lock();
        waiting.is_borrowed = false;
        waiting.batch.append(&self.batch);
        drop(waiting);
        self.batch.clear();
        self.borrowed = None;
    }
}

/// Drops the entries of this turn, but not those of the borrowed batch. Returns how many.
#[cold]
fn lose(batch: &mut Batch, borrowed: Option<(usize, u64)>) -> u64 {
    let (bytes, entries) = borrowed.unwrap_or_default();
    let lost = batch.entries - entries;
    batch.bytes.truncate(bytes);
    batch.entries = entries;
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(sender: &mut BatchSender, bytes: usize) {
        let batch = sender.batch();
        batch.bytes.extend(std::iter::repeat_n(b'a', bytes));
        batch.entries += 1;
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
        assert_eq!(shared.take_string(), "aaa");
    }

    #[test]
    fn turn_continues_the_waiting_entries_in_place() {
        let shared = Arc::new(SharedBatch::default());
        let mut sender = BatchSender::new(Arc::clone(&shared));
        let mut taken = Batch::default();
        add(&mut sender, 10);
        assert_eq!(sender.deliver(), Delivery::Done { is_urgent: false });
        add(&mut sender, 5);
        assert!(shared.take(&mut taken), "it is borrowed");
        assert_eq!((taken.entries, sender.batch.entries), (0, 2));
        // The thread came too early, and is woken.
        assert_eq!(sender.deliver(), Delivery::Done { is_urgent: true });
        // The thread has not come again, so the entries stay where they are.
        add(&mut sender, 1);
        assert_eq!(sender.batch.entries, 1);
        assert_eq!(sender.deliver(), Delivery::Done { is_urgent: false });
        assert!(!shared.take(&mut taken));
        assert_eq!((taken.bytes.len(), taken.entries), (16, 3));
        add(&mut sender, 1);
        assert_eq!(sender.deliver(), Delivery::Done { is_urgent: false });
        add(&mut sender, 1);
        assert_eq!(sender.batch.entries, 2, "borrowed again");
    }

    #[test]
    fn borrowed_entries_are_not_lost_with_those_of_the_turn() {
        let shared = Arc::new(SharedBatch::default());
        let mut sender = BatchSender::new(Arc::clone(&shared));
        for is_locked in [false, true] {
            add(&mut sender, 10);
            assert_eq!(sender.deliver(), Delivery::Done { is_urgent: false });
            add(&mut sender, BATCH_BYTES_MAX);
            let held = is_locked.then(|| shared.lock());
            assert_eq!(sender.deliver(), Delivery::Lost(1));
            drop(held);
            sender.deliver_last();
            assert_eq!(shared.take_string(), "a".repeat(10), "{is_locked}");
        }
    }

    #[test]
    fn large_turn_is_accepted_if_nothing_waits() {
        let shared = Arc::new(SharedBatch::default());
        let mut sender = BatchSender::new(Arc::clone(&shared));
        add(&mut sender, BATCH_BYTES_MAX + 1);
        assert_eq!(sender.deliver(), Delivery::Done { is_urgent: true });
        add(&mut sender, 1);
        assert_eq!(sender.deliver(), Delivery::Lost(1));
        assert_eq!(shared.take_string().len(), BATCH_BYTES_MAX + 1);
    }

    #[test]
    fn large_batch_waits_for_the_thread_while_turns_go_on() {
        let shared = Arc::new(SharedBatch::default());
        let mut sender = BatchSender::new(Arc::clone(&shared));
        add(&mut sender, BATCH_BYTES_URGENT);
        assert_eq!(sender.deliver(), Delivery::Done { is_urgent: true });
        add(&mut sender, 1);
        assert_eq!(sender.batch.entries, 1, "not borrowed");
        let mut taken = Batch::default();
        assert!(!shared.take(&mut taken));
        assert_eq!((taken.entries, sender.deliver()), (1, Delivery::Done { is_urgent: false }));
    }

    #[test]
    fn entries_arrive_once_and_in_order_while_the_thread_takes_them() {
        const ENTRIES: u64 = 20_000;
        let shared = Arc::new(SharedBatch::default());
        let mut sender = BatchSender::new(Arc::clone(&shared));
        let thread = std::thread::spawn(move || {
            let (mut taken, mut next) = (Batch::default(), 0);
            while next < ENTRIES {
                shared.take(&mut taken);
                for bytes in taken.bytes.as_chunks().0 {
                    assert_eq!(u64::from_le_bytes(*bytes), next);
                    next += 1;
                }
                std::thread::yield_now();
            }
        });
        for number in 0..ENTRIES {
            let batch = sender.batch();
            batch.bytes.extend(number.to_le_bytes());
            batch.entries += 1;
            if number % 3 == 0 {
                assert!(!matches!(sender.deliver(), Delivery::Lost(_)));
            }
        }
        sender.deliver_last();
        thread.join().expect("all entries arrived");
    }
}
