//! What every worker must get, in spite of mailboxes that are full: the newest of it, as often as it takes.
//! In: something to bring. Out: mail; how many workers still wait for theirs.
//! Never: blocks; brings what something newer has taken the place of.
//! Invariant: a worker either had the newest put into its mailbox or is owed it.

use std::sync::Mutex;

use tidegate_reactor::Sender;

/// One kind of mail, owed to each of several workers.
pub(crate) struct Delivery<M> {
    workers: Mutex<Vec<Owed<M>>>,
}

struct Owed<M> {
    sender: Sender<M>,
    mail: Option<M>,
}

impl<M: Clone> Delivery<M> {
    pub(crate) fn new(senders: Vec<Sender<M>>) -> Self {
        let owed = |sender| Owed { sender, mail: None };
        Self { workers: Mutex::new(senders.into_iter().map(owed).collect()) }
    }

    /// Brings `mail` to every worker whose mailbox has room, and owes it to the others.
    pub(crate) fn bring(&self, mail: &M) {
        let Ok(mut workers) = self.workers.lock() else { return };
        for worker in workers.iter_mut() {
            worker.mail = Some(mail.clone());
        }
        drop(workers);
        self.try_again();
    }

    /// Brings what is owed where there is room now; returns to how many workers it still is.
    pub(crate) fn try_again(&self) -> usize {
        let Ok(mut workers) = self.workers.lock() else { return 0 };
        for worker in workers.iter_mut() {
            if let Some(mail) = worker.mail.take() {
                worker.mail = worker.sender.send(mail).err();
            }
        }
        workers.iter().filter(|worker| worker.mail.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_reactor::{Mailbox, make_wakers};

    #[test]
    fn a_full_mailbox_gets_the_newest_once_it_has_room() {
        let wakers = make_wakers(2).expect("two wakers");
        let boxes: Vec<_> = wakers.into_iter().map(|waker| Mailbox::new(1, waker)).collect();
        let delivery = Delivery::new(boxes.iter().map(Mailbox::sender).collect());
        delivery.bring(&1);
        assert_eq!(delivery.try_again(), 0);
        assert_eq!(boxes[0].take(), Some(1));
        // The second one stands still.
        delivery.bring(&2);
        delivery.bring(&3);
        assert_eq!(boxes[0].take(), Some(2));
        assert_eq!(delivery.try_again(), 1, "the second is still full");
        assert_eq!(boxes[0].take(), Some(3));
        assert_eq!(boxes[1].take(), Some(1));
        assert_eq!(delivery.try_again(), 0);
        assert_eq!((boxes[0].take(), boxes[1].take()), (None, Some(3)), "2 was overtaken");
    }
}
