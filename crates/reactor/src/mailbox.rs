//! A bounded mailbox: many senders, one worker that reads it when `Woken` comes.
//! In: `Sender::send` from any thread. Out: `Mailbox::take` in the worker.
//! Never: blocks, grows, or wakes a worker that is awake.
//! Limits: the length given at construction (`MAILBOX_LENGTH_MAX`); a full box gives the mail back.
//! Invariant: mail is put in before the waker rings, so a worker that takes until empty misses none.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::waker::Waker;

/// The worker's end.
pub struct Mailbox<T> {
    queue: Arc<ArrayQueue<T>>,
    waker: Waker,
}

/// A sender's end; cheap to clone.
pub struct Sender<T> {
    queue: Arc<ArrayQueue<T>>,
    waker: Waker,
}

impl<T> Mailbox<T> {
    /// An empty box for the worker that `waker` wakes, holding at most `length_max` mails (at least 1).
    #[must_use]
    pub fn new(length_max: usize, waker: Waker) -> Self {
        Self { queue: Arc::new(ArrayQueue::new(length_max.max(1))), waker }
    }

    /// A new sender to this box.
    #[must_use]
    pub fn sender(&self) -> Sender<T> {
        Sender { queue: Arc::clone(&self.queue), waker: self.waker.clone() }
    }

    /// The oldest mail. A worker that stops before the box is empty calls `ring_again`.
    #[must_use]
    pub fn take(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Makes `Woken` come again in the next turn: for a worker that reads its mail in portions.
    pub fn ring_again(&self) {
        self.waker.ring();
    }

    /// Mails that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no mail waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl<T> Sender<T> {
    /// Puts `mail` in and wakes the worker if it sleeps.
    ///
    /// # Errors
    /// The mail itself, when the box is full.
    pub fn send(&self, mail: T) -> Result<(), T> {
        self.queue.push(mail)?;
        self.waker.ring();
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
    fn a_full_box_gives_the_mail_back() {
        let mailbox = Mailbox::new(1, Waker::without_event());
        let sender = mailbox.sender();
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(sender.clone().send(2), Err(2));
        assert_eq!((mailbox.take(), mailbox.take()), (Some(1), None));
        assert!(mailbox.is_empty());
    }
}
