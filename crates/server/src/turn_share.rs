//! The share of a turn that a kind of slow work may take, and the requests that wait for a later turn.
//! In: the time that the work took; requests that are ready. Out: the request whose turn it is.
//! Never: reads a clock or does the work.
//! Limits: the span and the calls of half a turn, exceeded by one call at most, which has its own bound.
//! Invariant: connections take turns: a connection with many requests delays another connection by one request.

use std::collections::{BTreeMap, VecDeque};

use tidegate_base::{Id, Span};
use tidegate_reactor::SockId;

/// How long Lua callbacks may run in each half of a turn: while events are handled, and after them.
pub(crate) const LUA_SPAN_MAX: Span = Span::from_millis(5);
/// How long tokens may be verified in each half of a turn. One token takes from a few microseconds to a few milliseconds,
/// and clients without a valid one choose how many there are.
pub(crate) const TOKENS_SPAN_MAX: Span = Span::from_millis(1);
/// How long requests to push hubs, and the commands in them, may be carried out in each half of a turn.
pub(crate) const PUSH_SPAN_MAX: Span = Span::from_millis(2);
/// How many calls may be made in each half of a turn. Bounds turns in which no time passes, as in the simulator.
const CALLS_MAX: u32 = 256;

/// The share of one kind of work of one worker; see the module header.
pub(crate) struct TurnShare<T> {
    /// How long the work may take until `renew`.
    span_max: Span,
    /// How long it has taken since `renew`.
    spent: Span,
    /// How many calls there were since `renew`.
    calls: u32,
    /// By the slot of their connection: requests that wait. Some may have ended. No queue is empty.
    waiting: BTreeMap<u32, VecDeque<Id<T>>>,
    /// The slot of the connection that was served last.
    served: Option<u32>,
    /// How many requests wait that waited at the last `mark`, if older ones are taken first.
    marked: usize,
    /// How many requests wait.
    count: usize,
}

impl<T> TurnShare<T> {
    /// A share of `span_max` of each half of a turn.
    pub(crate) fn new(span_max: Span) -> Self {
        let waiting = BTreeMap::new();
        Self { span_max, spent: Span::ZERO, calls: 0, waiting, served: None, marked: 0, count: 0 }
    }

    /// Begins a new share.
    pub(crate) fn renew(&mut self) {
        (self.spent, self.calls) = (Span::ZERO, 0);
    }

    /// A call has ended.
    pub(crate) fn note_call(&mut self, span: Span) {
        self.spent += span;
        self.calls += 1;
    }

    /// Whether further calls have to wait.
    pub(crate) fn is_used_up(&self) -> bool {
        self.spent >= self.span_max || self.calls >= CALLS_MAX
    }

    /// Whether a request waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a request of this connection waits, so that a later one must not be served before it.
    pub(crate) fn has_waiting_of(&self, sock: SockId) -> bool {
        self.waiting.contains_key(&sock.index)
    }

    /// Lets a request wait.
    pub(crate) fn put_off(&mut self, sock: SockId, id: Id<T>) {
        self.waiting.entry(sock.index).or_default().push_back(id);
        self.count += 1;
    }

    /// Begins to measure how long the requests wait that wait now.
    pub(crate) fn mark(&mut self) {
        self.marked = self.count;
    }

    /// Whether as many requests were taken since the last `mark` as waited then.
    pub(crate) fn has_served_marked(&self) -> bool {
        self.marked == 0
    }

    /// Takes the next request: the oldest request of the connection after the one that was served last.
    pub(crate) fn take_next(&mut self) -> Option<Id<T>> {
        let after = self.served.and_then(|served| {
            let later = (core::ops::Bound::Excluded(served), core::ops::Bound::Unbounded);
            self.waiting.range(later).next()
        });
        let (&slot, _) = after.or_else(|| self.waiting.first_key_value())?;
        self.served = Some(slot);
        let queue = self.waiting.get_mut(&slot)?;
        let next = queue.pop_front();
        self.count -= 1;
        self.marked = self.marked.saturating_sub(1);
        if queue.is_empty() {
            self.waiting.remove(&slot);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(index: u32) -> Id<()> {
        Id::new(index, 1)
    }

    #[test]
    fn connections_take_turns() {
        let mut share = TurnShare::new(LUA_SPAN_MAX);
        let socks: Vec<SockId> = (0..3).map(|index| SockId::new(index, 1)).collect();
        for index in 0..4 {
            share.put_off(socks[0], request(index));
        }
        share.put_off(socks[2], request(10));
        share.put_off(socks[1], request(20));
        share.put_off(socks[1], request(21));
        assert!(share.has_waiting_of(socks[1]) && !share.has_waiting_of(SockId::new(9, 1)));
        let order: Vec<_> = core::iter::from_fn(|| share.take_next()).map(|id| id.index).collect();
        assert_eq!(order, [0, 20, 10, 1, 21, 2, 3]);
        assert!(!share.has_waiting());
    }

    #[test]
    fn marked_requests_are_served_when_as_many_were_taken() {
        let mut share = TurnShare::new(LUA_SPAN_MAX);
        share.mark();
        assert!(share.has_served_marked());
        (0..2).for_each(|index| share.put_off(SockId::new(index, 1), request(index)));
        assert!(share.has_served_marked(), "nothing waited at the mark");
        share.mark();
        share.put_off(SockId::new(2, 1), request(2));
        share.take_next();
        assert!(!share.has_served_marked());
        share.take_next();
        assert!(share.has_served_marked() && share.has_waiting());
    }

    #[test]
    fn share_of_a_turn_ends_by_time_or_by_number() {
        let mut share = TurnShare::<()>::new(LUA_SPAN_MAX);
        share.note_call(Span::from_millis(4));
        assert!(!share.is_used_up());
        share.note_call(Span::from_millis(1));
        assert!(share.is_used_up());
        share.renew();
        (1..CALLS_MAX).for_each(|_| share.note_call(Span::ZERO));
        assert!(!share.is_used_up());
        share.note_call(Span::ZERO);
        assert!(share.is_used_up());
    }
}
