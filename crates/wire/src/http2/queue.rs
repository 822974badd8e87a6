//! The streams that have something to send and could not send it all: which one is next.
//! In: streams that wait, their priorities and windows. Out: the next stream.
//! Never: returns a stream whose window is closed, or starves a more urgent one.
//! Limits: each stream is in the queue at most once.
//!
//! The most urgent streams are first (RFC 9218 section 10). Among streams of one urgency the queue is served in turn, until the
//! client sends a priority. From then on, streams that are not incremental are served one after the other, in the order of their
//! ids, before incremental ones. A client that never sends a priority does not mean that: by the default of the RFC, every
//! response would wait for the previous one.

use super::flow::enough;
use super::table::{Slot, Streams};

/// The streams that wait to send.
#[derive(Debug)]
pub(super) struct WriteQueue {
    /// Their slots, in the order in which they began to wait.
    waiting: Vec<Slot>,
}

impl WriteQueue {
    pub(super) const fn new() -> Self {
        Self { waiting: Vec::new() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a stream to the end, unless it waits already.
    pub(super) fn push(&mut self, slot: Slot, streams: &mut Streams) {
        if let Some(stream) = streams.at_mut(slot)
            && !stream.is_queued
        {
            stream.is_queued = true;
            self.waiting.push(slot);
        }
    }

    /// Removes and returns the next stream whose window is open. `initial_window` is the peer's; `connection_window` is the
    /// number of bytes that the connection may send. `uses_priorities` says whether the client has sent any.
    pub(super) fn pop(
        &mut self,
        streams: &mut Streams,
        initial_window: u32,
        connection_window: usize,
        uses_priorities: bool,
    ) -> Option<u32> {
        // The peer may have lowered its initial window since a stream began to wait.
        let enough = enough(initial_window);
        let mut best: Option<(usize, (u8, bool, u32))> = None;
        for (at, &slot) in self.waiting.iter().enumerate() {
            let Some(stream) = streams.at(slot) else { continue };
            let window = stream.send.available(initial_window).min(connection_window);
            if window < usize::from(stream.wanted_window).min(enough) {
                continue;
            }
            let shares = stream.priority.incremental || !uses_priorities;
            let key = (stream.priority.urgency, shares, if shares { 0 } else { stream.id });
            if best.is_none_or(|(_, least)| key < least) {
                best = Some((at, key));
            }
        }
        let (at, _) = best?;
        let slot = self.waiting.remove(at);
        let stream = streams.at_mut(slot)?;
        stream.is_queued = false;
        Some(stream.id)
    }

    /// Removes a stream that ends. Call it before the stream leaves the table.
    pub(super) fn remove(&mut self, slot: Slot) {
        self.waiting.retain(|&waiting| waiting != slot);
    }

    /// Frees memory that is not in use.
    pub(super) fn shrink(&mut self) {
        if self.waiting.is_empty() {
            self.waiting = Vec::new();
        }
    }

    /// Bytes of memory on the heap.
    pub(super) const fn held_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Slot>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::priority::Priority;
    use crate::http2::stream::{Expected, Stream};

    /// Queues streams 1, 3, 5, ... with these priorities and serves each of them until nothing waits; a
    /// stream waits again until it was served `turns` times.
    fn order(priorities: &[&str], uses_priorities: bool, turns: usize) -> Vec<u32> {
        let (mut streams, mut queue) = (Streams::new(), WriteQueue::new());
        for (index, value) in priorities.iter().enumerate() {
            let mut stream = Stream::new(2 * index as u32 + 1, 0, Expected::Body, 1);
            stream.priority = Priority::parse(value.as_bytes());
            let slot = streams.add(stream);
            queue.push(slot, &mut streams);
            queue.push(slot, &mut streams);
        }
        let mut served = Vec::new();
        while let Some(id) = queue.pop(&mut streams, 100, 100, uses_priorities) {
            served.push(id);
            if served.iter().filter(|&&earlier| earlier == id).count() < turns {
                let slot = streams.find(id).unwrap();
                queue.push(slot, &mut streams);
            }
        }
        assert!(queue.is_empty());
        served
    }

    #[test]
    fn streams_are_served_by_urgency_then_one_by_one_then_in_turn() {
        assert_eq!(order(&["", "", ""], false, 2), [1, 3, 5, 1, 3, 5]);
        assert_eq!(order(&["", "", ""], true, 2), [1, 1, 3, 3, 5, 5]);
        assert_eq!(order(&["i", "i", ""], true, 2), [5, 5, 1, 3, 1, 3]);
        assert_eq!(order(&["u=5", "u=0", "u=3, i"], true, 2), [3, 3, 5, 5, 1, 1]);
        assert_eq!(order(&["i"], true, 3), [1, 1, 1]);
    }

    #[test]
    fn stream_with_a_closed_window_waits_without_blocking_the_others() {
        let (mut streams, mut queue) = (Streams::new(), WriteQueue::new());
        for id in [1, 3] {
            let slot = streams.add(Stream::new(id, 0, Expected::Body, 1));
            queue.push(slot, &mut streams);
        }
        streams.get_mut(1).unwrap().send.take(100);
        assert_eq!(queue.pop(&mut streams, 100, 100, false), Some(3));
        assert_eq!(queue.pop(&mut streams, 100, 100, false), None);
        assert_eq!(queue.pop(&mut streams, 101, 0, false), None);
        assert_eq!(queue.pop(&mut streams, 101, 1, false), Some(1));
    }
}
