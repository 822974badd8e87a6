//! A bounded mailbox with many senders and one worker, which reads it when `Woken` is delivered.
//! In: `Sender::send` from any thread. Out: `Mailbox::take` in the worker.
//! Never: blocks, grows, or makes a system call to wake a worker that is awake.
//! Limits: the length given at construction (`MAILBOX_LENGTH_MAX`). A full mailbox returns the message.
//! Invariant: a sender stores its message before it wakes the worker, so a worker that takes messages until
//! the mailbox is empty misses no message.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::waker::Waker;

/// The worker's end of a mailbox.
pub struct Mailbox<T> {
    /// The waiting messages, shared with all senders.
    queue: Arc<ArrayQueue<T>>,
    /// Wakes the worker that owns this mailbox.
    waker: Waker,
}

/// A sender's end of a mailbox; cheap to clone.
pub struct Sender<T> {
    /// The waiting messages, shared with the mailbox.
    queue: Arc<ArrayQueue<T>>,
    /// Wakes the worker that owns the mailbox.
    waker: Waker,
}

impl<T> Mailbox<T> {
    /// Creates an empty mailbox for the worker that `waker` wakes. It holds up to `length_max` messages, and
    /// at least one.
    #[must_use]
    pub fn new(length_max: usize, waker: Waker) -> Self {
        Self { queue: Arc::new(ArrayQueue::new(length_max.max(1))), waker }
    }

    /// Creates a sender to this mailbox.
    #[must_use]
    pub fn sender(&self) -> Sender<T> {
        Sender { queue: Arc::clone(&self.queue), waker: self.waker.clone() }
    }

    /// Takes the oldest message. A worker that stops before the mailbox is empty must call `ring_again`.
    #[must_use]
    pub fn take(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Makes the reactor deliver `Woken` again in the next turn, for a worker that reads its messages in portions.
    pub fn ring_again(&self) {
        self.waker.wake();
    }

    /// The number of waiting messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no message is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl<T> Sender<T> {
    /// Stores `mail` and wakes the worker if it is asleep.
    ///
    /// # Errors
    /// Returns the message itself if the mailbox is full.
    pub fn send(&self, mail: T) -> Result<(), T> {
        self.queue.push(mail)?;
        self.waker.wake();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { queue: Arc::clone(&self.queue), waker: self.waker.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_mailbox_returns_the_message() {
        let mailbox = Mailbox::new(1, Waker::without_event());
        let sender = mailbox.sender();
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(sender.clone().send(2), Err(2));
        assert_eq!((mailbox.take(), mailbox.take()), (Some(1), None));
        assert!(mailbox.is_empty());
    }
}
