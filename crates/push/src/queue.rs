//! The messages that wait for a client that does not read: bounded in number and size.
//! In: publications. Out: publications in order, or the effect of the policy if they are too many.
//! Limits: `queue-messages-max` and `queue-max` of the hub. A message always fits into an empty queue.
//! Invariant: `bytes` is the sum of the costs of `entries`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tidegate_config::model::Slow;

use crate::publication::{Content, Publication};

/// The part of a queue that is free at least after it was conflated.
const CONFLATED_FREE_PART: usize = 4;

/// The bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Maximum number of messages.
    pub messages_max: u32,
    /// Maximum number of bytes.
    pub bytes_max: usize,
    /// The effect of exceeding these limits.
    pub slow: Slow,
}

/// The messages that wait for a client.
#[derive(Debug, Default)]
pub struct Queue {
    /// The messages, oldest first.
    entries: VecDeque<Entry>,
    /// The sum of their costs.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    publication: Arc<Publication>,
    /// The memory of the publication, with the encoded and compressed forms that existed when it was appended.
    cost_bytes: usize,
}

/// The result of adding a message to a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queued {
    /// It waits.
    Waits,
    /// It waits, and this number of older messages was dropped for it.
    DroppedOlder(u32),
    /// It was dropped.
    Dropped,
    /// The client is too slow and must be disconnected.
    Overflow,
}

impl Queue {
    /// Appends a message.
    pub fn push(&mut self, publication: Arc<Publication>, limits: &QueueLimits) -> Queued {
        let cost = publication.held_bytes();
        let mut dropped = 0;
        if !self.fits(cost, limits) {
            match limits.slow {
                Slow::Disconnect => return Queued::Overflow,
                Slow::DropNewest => return Queued::Dropped,
                Slow::DropOldest => {}
                Slow::Conflate => dropped += self.conflate(&publication, limits),
            }
        }
        while !self.fits(cost, limits) {
            self.pop();
            dropped += 1;
        }
        self.bytes += cost;
        self.entries.push_back(Entry { publication, cost_bytes: cost });
        if dropped > 0 { Queued::DroppedOlder(dropped) } else { Queued::Waits }
    }

    /// Takes the oldest message.
    pub fn pop(&mut self) -> Option<Arc<Publication>> {
        let oldest = self.entries.pop_front()?;
        self.bytes -= oldest.cost_bytes;
        Some(oldest.publication)
    }

    /// Drops the messages of a channel: its subscription has ended.
    pub fn forget(&mut self, channel: &str) {
        self.entries.retain(|entry| *entry.publication.channel != *channel);
        self.bytes = self.entries.iter().map(|entry| entry.cost_bytes).sum();
    }

    /// Whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops the messages that a newer one of their channel follows, `next` included, and then the oldest ones until a part of
    /// the queue is free, so that a queue of many channels is not looked through for each message. Returns how many.
    fn conflate(&mut self, next: &Publication, limits: &QueueLimits) -> u32 {
        let before = self.entries.len();
        let mut newest: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut is_newest = |one: &Publication| {
            one.content != Content::Message || newest.insert(Arc::clone(&one.channel))
        };
        is_newest(next);
        // The newest message of a channel is the first one from the end.
        let mut kept: VecDeque<Entry> = VecDeque::with_capacity(before);
        for entry in self.entries.drain(..).rev() {
            if is_newest(&entry.publication) {
                kept.push_front(entry);
            }
        }
        self.entries = kept;
        self.bytes = self.entries.iter().map(|entry| entry.cost_bytes).sum();
        let part = |most: usize| most - most / CONFLATED_FREE_PART;
        while self.entries.len() > part(limits.messages_max as usize)
            || self.bytes > part(limits.bytes_max)
        {
            self.pop();
        }
        (before - self.entries.len()) as u32
    }

    fn fits(&self, cost: usize, limits: &QueueLimits) -> bool {
        self.entries.is_empty()
            || (self.entries.len() < limits.messages_max as usize
                && self.bytes + cost <= limits.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Arc<Publication> {
        message_in("a", text)
    }

    fn message_in(channel: &str, text: &str) -> Arc<Publication> {
        Arc::new(Publication::new(0, channel.into(), text, None))
    }

    fn contents(queue: &mut Queue) -> Vec<String> {
        core::iter::from_fn(|| queue.pop()).map(|entry| entry.data.to_string()).collect()
    }

    #[test]
    fn each_policy_of_slow_is_applied_at_the_limit_of_messages() {
        for (slow, outcome, left) in [
            (Slow::Disconnect, Queued::Overflow, ["1", "2"]),
            (Slow::DropNewest, Queued::Dropped, ["1", "2"]),
            (Slow::DropOldest, Queued::DroppedOlder(1), ["2", "3"]),
        ] {
            let limits = QueueLimits { messages_max: 2, bytes_max: 1 << 20, slow };
            let mut queue = Queue::default();
            assert_eq!(queue.push(message("1"), &limits), Queued::Waits);
            assert_eq!(queue.push(message("2"), &limits), Queued::Waits);
            assert_eq!(queue.push(message("3"), &limits), outcome);
            assert_eq!(contents(&mut queue), left);
            assert_eq!(queue.bytes, 0);
        }
    }

    #[test]
    fn conflated_queue_keeps_the_newest_message_of_each_channel_in_order() {
        let slow = Slow::Conflate;
        let limits = QueueLimits { messages_max: 8, bytes_max: 1 << 20, slow };
        let mut queue = Queue::default();
        let join = Publication::visit(0, "a".into(), Content::Join, "{}");
        assert_eq!(queue.push(Arc::new(join), &limits), Queued::Waits);
        for (channel, text) in
            [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("a", "5"), ("b", "6"), ("a", "7")]
        {
            assert_eq!(queue.push(message_in(channel, text), &limits), Queued::Waits);
        }
        // All messages of channel a but the new one are dropped, and all of b but the newest.
        assert_eq!(queue.push(message_in("a", "8"), &limits), Queued::DroppedOlder(5));
        assert_eq!(contents(&mut queue), ["", "4", "6", "8"]);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn conflated_queue_of_many_channels_drops_the_oldest() {
        let limits = QueueLimits { messages_max: 8, bytes_max: 1 << 20, slow: Slow::Conflate };
        let mut queue = Queue::default();
        let names: Vec<String> = (0..100).map(|number| format!("channel{number}")).collect();
        let mut conflations = 0;
        for name in &names {
            let queued = queue.push(message_in(name, name), &limits);
            conflations += usize::from(queued != Queued::Waits);
            assert!(queue.len() <= 8);
        }
        let left = contents(&mut queue);
        assert!(left.len() >= 6 && names.ends_with(&left), "{left:?}");
        assert!(conflations <= 50, "it is not looked through for each message: {conflations}");
    }

    #[test]
    fn messages_of_a_channel_are_forgotten_and_the_others_stay_in_order() {
        let limits = QueueLimits { messages_max: 9, bytes_max: 1 << 20, slow: Slow::Disconnect };
        let mut queue = Queue::default();
        for (channel, text) in [("a", "1"), ("b", "2"), ("a", "3"), ("b", "4")] {
            assert_eq!(queue.push(message_in(channel, text), &limits), Queued::Waits);
        }
        queue.forget("a");
        assert_eq!(contents(&mut queue), ["2", "4"]);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn bytes_are_bounded_and_one_message_always_fits() {
        let limits = QueueLimits { messages_max: 100, bytes_max: 1, slow: Slow::DropOldest };
        let mut queue = Queue::default();
        assert_eq!(queue.push(message("1"), &limits), Queued::Waits);
        assert_eq!(queue.push(message("2"), &limits), Queued::DroppedOlder(1));
        assert_eq!(contents(&mut queue), ["2"]);
    }
}
