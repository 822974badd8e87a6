//! Delivers a message to every worker, and retries if mailboxes are full.
//! In: a message. Out: mail; how many workers have not received the newest message yet.
//! Never: blocks; delivers a message that a newer one has replaced.
//! Invariant: the newest message is in a worker's mailbox (or was taken from it), or is pending for that
//! worker.

use std::sync::Mutex;

use tidegate_reactor::Sender;

/// Delivers one kind of message to several workers.
pub(crate) struct Delivery<M> {
    /// The workers, in their order of creation.
    workers: Mutex<Vec<Recipient<M>>>,
}

/// One worker, and the message that it has not received yet.
struct Recipient<M> {
    /// The way to the mailbox of the worker.
    sender: Sender<M>,
    /// The message that did not fit into the mailbox yet.
    pending: Option<M>,
}

impl<M: Clone> Delivery<M> {
    pub(crate) fn new(senders: Vec<Sender<M>>) -> Self {
        let delivery = Self { workers: Mutex::default() };
        delivery.connect(senders);
        delivery
    }

    /// Delivers to these workers from now on.
    pub(crate) fn connect(&self, senders: Vec<Sender<M>>) {
        let Ok(mut workers) = self.workers.lock() else { return };
        *workers = senders.into_iter().map(|sender| Recipient { sender, pending: None }).collect();
    }

    /// Sends `mail` to every worker whose mailbox has room, and keeps it pending for the other workers.
    pub(crate) fn send_to_all(&self, mail: &M) {
        let Ok(mut workers) = self.workers.lock() else { return };
        for worker in workers.iter_mut() {
            worker.pending = Some(mail.clone());
        }
        drop(workers);
        self.retry();
    }

    /// Forgets the messages that are pending, because other mail replaces them.
    pub(crate) fn forget_pending(&self) {
        let Ok(mut workers) = self.workers.lock() else { return };
        workers.iter_mut().for_each(|worker| worker.pending = None);
    }

    /// Sends pending messages to mailboxes that have room now. Returns for how many workers a message is
    /// still pending.
    pub(crate) fn retry(&self) -> usize {
        let Ok(mut workers) = self.workers.lock() else { return 0 };
        for worker in workers.iter_mut() {
            if let Some(mail) = worker.pending.take() {
                worker.pending = worker.sender.send(mail).err();
            }
        }
        workers.iter().filter(|worker| worker.pending.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_reactor::{Mailbox, make_wakers};

    #[test]
    fn full_mailbox_receives_the_newest_message_later() {
        let wakers = make_wakers(2).expect("two wakers");
        let boxes: Vec<_> = wakers.into_iter().map(|waker| Mailbox::new(1, waker)).collect();
        let delivery = Delivery::new(boxes.iter().map(Mailbox::sender).collect());
        delivery.send_to_all(&1);
        assert_eq!(delivery.retry(), 0);
        assert_eq!(boxes[0].take(), Some(1));
        // The second mailbox is not emptied.
        delivery.send_to_all(&2);
        delivery.send_to_all(&3);
        assert_eq!(boxes[0].take(), Some(2));
        assert_eq!(delivery.retry(), 1, "the second mailbox is still full");
        assert_eq!(boxes[0].take(), Some(3));
        assert_eq!(boxes[1].take(), Some(1));
        assert_eq!(delivery.retry(), 0);
        assert_eq!(
            (boxes[0].take(), boxes[1].take()),
            (None, Some(3)),
            "message 3 replaced message 2"
        );
    }
}
