//! The report about the delivery of a publication, which the request that published it may wait for (`wait`).
//! In: the outcome for each subscriber. Out: the counts of a worker, addressed to the caller.
//! Invariant: each worker that a publication with a waiter is handed to reports once, after its last subscriber, or when
//! its last subscriber has left.

use std::sync::Arc;

use crate::mail::ReplyTo;
use crate::publication::Publication;

/// The caller that waits for the reports about a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiter<K> {
    /// The worker of the caller.
    pub worker: u16,
    /// The caller.
    pub to: ReplyTo<K>,
}

/// The counts of a delivery: how many subscribers had which outcome.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Delivery {
    /// Subscribers whose connection has taken the message.
    pub reached: u64,
    /// Subscribers that do not read: the message waits in their queues.
    pub queued: u64,
    /// Messages, this one or older ones, that were dropped from full queues.
    pub dropped: u64,
    /// Subscribers that were disconnected because their queues were full.
    pub slow: u64,
}

/// The outcome of the delivery of a message to one subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handed {
    /// The subscriber gets no messages of this kind, or has left.
    Nothing,
    /// Its connection has taken the message.
    Sent,
    /// The message waits in its queue, from which this number of older ones was dropped.
    Queued {
        /// Older messages.
        dropped: u32,
    },
    /// The queue is full, and the message was dropped.
    Dropped,
    /// The queue is full, and the subscriber was disconnected.
    Slow,
}

impl Delivery {
    /// Counts one subscriber.
    pub fn note(&mut self, handed: Handed) {
        match handed {
            Handed::Nothing => {}
            Handed::Sent => self.reached += 1,
            Handed::Queued { dropped } => {
                self.queued += 1;
                self.dropped += u64::from(dropped);
            }
            Handed::Dropped => self.dropped += 1,
            Handed::Slow => self.slow += 1,
        }
    }

    /// Adds the counts of other subscribers.
    pub fn add(&mut self, other: Self) {
        self.reached += other.reached;
        self.queued += other.queued;
        self.dropped += other.dropped;
        self.slow += other.slow;
    }
}

/// The report of one worker while it delivers a publication.
#[derive(Clone, Copy, Debug)]
pub struct Report<K> {
    /// The caller that gets it.
    pub waiter: Waiter<K>,
    /// The counts of the delivery so far.
    pub delivery: Delivery,
}

/// A part of the subscribers of a publication.
#[derive(Debug)]
#[must_use = "the report of the delivery continues with `Hub::end_slice`"]
pub struct Slice<K> {
    /// The publication.
    pub publication: Arc<Publication>,
    /// Number of the channel on this worker.
    pub(crate) channel: u32,
    /// The report; `None` if no caller waits for it.
    pub(crate) report: Option<Box<Report<K>>>,
    /// The slice contains the first subscriber.
    pub is_first: bool,
    /// The slice contains the last subscriber.
    pub(crate) is_last: bool,
}
