//! The messages that wait for a client that does not read: bounded in number and size.
//! In: publications. Out: publications in order, or the effect of the policy if they are too many; where messages are missing,
//! and the channels with a history that have lost messages.
//! Limits: `queue-messages-max` and `queue-max` of the hub. A message always fits into an empty queue.
//! Invariant: `bytes` is the sum of the costs of `entries`. Each message of a history that was dropped is before an entry that
//! `follows_gap`, or at the end of a queue that `ends_in_gap`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tidegate_config::model::Slow;

use crate::publication::{Content, Publication, count_within};

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

impl QueueLimits {
    /// Whether an empty queue takes these messages, which have no encoded form.
    #[must_use]
    pub fn admits(&self, publications: &[Arc<Publication>]) -> bool {
        publications.len() <= 1
            || publications.len() <= self.messages_max as usize
                && count_within(publications, self.bytes_max) == publications.len()
    }
}

/// The messages that wait for a client.
#[derive(Debug, Default)]
pub struct Queue {
    /// The messages, oldest first.
    entries: VecDeque<Entry>,
    /// The sum of their costs.
    bytes: usize,
    /// Messages with a position were dropped after the last entry.
    ends_in_gap: bool,
    /// The channels of messages with a position that were dropped since the last call of `take_lost`.
    lost: Vec<Arc<str>>,
}

#[derive(Debug)]
struct Entry {
    publication: Arc<Publication>,
    /// The memory of the publication, with the encoded and compressed forms that existed when it was appended.
    cost_bytes: usize,
    /// Messages with a position were dropped before this one.
    follows_gap: bool,
}

/// A message that has waited.
#[derive(Debug)]
pub struct Next {
    /// The message.
    pub publication: Arc<Publication>,
    /// Messages with a position were dropped before it.
    pub follows_gap: bool,
    /// It was the last one, and messages with a position were dropped after it.
    pub precedes_gap: bool,
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
                Slow::DropNewest => {
                    self.ends_in_gap |= self.note_dropped(&publication);
                    return Queued::Dropped;
                }
                Slow::DropOldest => {}
                Slow::Conflate => dropped += self.conflate(&publication, limits),
            }
        }
        while !self.fits(cost, limits) {
            self.drop_oldest();
            dropped += 1;
        }
        self.bytes += cost;
        let follows_gap = core::mem::take(&mut self.ends_in_gap);
        self.entries.push_back(Entry { publication, cost_bytes: cost, follows_gap });
        if dropped > 0 { Queued::DroppedOlder(dropped) } else { Queued::Waits }
    }

    /// Takes the oldest message.
    pub fn pop(&mut self) -> Option<Next> {
        let Entry { publication, cost_bytes, follows_gap } = self.entries.pop_front()?;
        self.bytes -= cost_bytes;
        let precedes_gap = self.entries.is_empty() && core::mem::take(&mut self.ends_in_gap);
        Some(Next { publication, follows_gap, precedes_gap })
    }

    /// The channels with a history of which messages were dropped since the last call.
    pub fn take_lost(&mut self) -> Vec<Arc<str>> {
        core::mem::take(&mut self.lost)
    }

    /// Notes that a message is dropped. Returns whether it has a position, so that its absence leaves a gap.
    fn note_dropped(&mut self, publication: &Publication) -> bool {
        let leaves_gap = publication.position.is_some();
        if leaves_gap && !self.lost.contains(&publication.channel) {
            self.lost.push(Arc::clone(&publication.channel));
        }
        leaves_gap
    }

    fn drop_oldest(&mut self) {
        let Some(oldest) = self.entries.pop_front() else { return };
        self.bytes -= oldest.cost_bytes;
        let leaves_gap = self.note_dropped(&oldest.publication) || oldest.follows_gap;
        match self.entries.front_mut() {
            Some(next) => next.follows_gap |= leaves_gap,
            None => self.ends_in_gap |= leaves_gap,
        }
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
        let stays: Vec<bool> =
            self.entries.iter().rev().map(|entry| is_newest(&entry.publication)).collect();
        let entries = core::mem::take(&mut self.entries);
        let mut follows_gap = false;
        for (mut entry, stays) in entries.into_iter().zip(stays.into_iter().rev()) {
            follows_gap |= entry.follows_gap;
            if stays {
                entry.follows_gap = core::mem::take(&mut follows_gap);
                self.entries.push_back(entry);
            } else {
                follows_gap |= self.note_dropped(&entry.publication);
            }
        }
        self.ends_in_gap |= follows_gap;
        self.bytes = self.entries.iter().map(|entry| entry.cost_bytes).sum();
        let part = |most: usize| most - most / CONFLATED_FREE_PART;
        while self.entries.len() > part(limits.messages_max as usize)
            || self.bytes > part(limits.bytes_max)
        {
            self.drop_oldest();
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
    use crate::position::{Epoch, Position};

    fn message(text: &str) -> Arc<Publication> {
        message_in("a", text)
    }

    fn message_in(channel: &str, text: &str) -> Arc<Publication> {
        Arc::new(Publication::new(0, channel.into(), text, None))
    }

    fn contents(queue: &mut Queue) -> Vec<String> {
        core::iter::from_fn(|| queue.pop()).map(|next| next.publication.data.to_string()).collect()
    }

    /// Appends what a client gets: the data of the message, and "-" where messages are missing.
    fn note(next: Option<Next>, found: &mut Vec<String>) {
        let Some(Next { publication, follows_gap, precedes_gap }) = next else { return };
        found.extend(follows_gap.then(|| "-".to_owned()));
        found.push(publication.data.to_string());
        found.extend(precedes_gap.then(|| "-".to_owned()));
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
    fn gaps_are_where_messages_of_a_history_were_dropped() {
        let epoch = Epoch::from_random(1);
        let of_history = |offset: u64| {
            let position = Position { epoch, offset };
            Arc::new(Publication::new(0, "h".into(), &offset.to_string(), Some(position)))
        };
        for (slow, expected) in [
            (Slow::DropNewest, &["1", "2", "3", "-", "6", "-"][..]),
            (Slow::DropOldest, &["-", "3", "-", "6", "7", "8"]),
            (Slow::Conflate, &["-", "4", "-", "8"]),
        ] {
            let limits = QueueLimits { messages_max: 3, bytes_max: 1 << 20, slow };
            let mut queue = Queue::default();
            let push = |queue: &mut Queue, offset| {
                let is_whole = queue.push(of_history(offset), &limits) == Queued::Waits;
                let lost = queue.take_lost();
                assert_eq!(lost.len(), usize::from(!is_whole), "{slow:?} {offset}");
                assert!(lost.iter().all(|channel| **channel == *"h"));
            };
            (1..=5).for_each(|offset| push(&mut queue, offset));
            let mut found = Vec::new();
            note(queue.pop(), &mut found);
            (6..=8).for_each(|offset| push(&mut queue, offset));
            while !queue.is_empty() {
                note(queue.pop(), &mut found);
            }
            assert_eq!(found, expected, "{slow:?}");
        }
        let limits = QueueLimits { messages_max: 1, bytes_max: 1 << 20, slow: Slow::DropOldest };
        let mut queue = Queue::default();
        assert_eq!(queue.push(message("1"), &limits), Queued::Waits);
        assert_eq!(queue.push(message("2"), &limits), Queued::DroppedOlder(1));
        assert!(queue.take_lost().is_empty(), "the channel has no history");
        assert!(queue.pop().is_some_and(|next| !next.follows_gap && !next.precedes_gap));
    }

    #[test]
    fn conflated_queue_keeps_the_newest_message_of_each_channel_in_order() {
        let slow = Slow::Conflate;
        let limits = QueueLimits { messages_max: 8, bytes_max: 1 << 20, slow };
        let mut queue = Queue::default();
        let join = Publication::visit(0, "a".into(), Content::Join, "c".into(), "{}");
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
