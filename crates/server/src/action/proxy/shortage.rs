//! Requests in the queues of their pools that wait for room for a connection, not for a server.
//! In: connects that found no room. Out: the queues served again when a slot is free, or after `ROOM_RETRY`.
//! Never: makes room (eviction.rs); keeps a request longer than `timeouts.queue`, or more of them than
//! `queue-max` (dispatch.rs).
//! Invariant: a pool whose `is_short` is set is in `short_pools` once, and `TIMER_ROOM` is set.

use tidegate_base::Span;
use tidegate_reactor::{Reactor, Shortage};

use crate::worker::{TIMER_ROOM, Worker};

/// How often queued requests look for room for a connection if no slot falls free.
const ROOM_RETRY: Span = Span::from_millis(20);

impl Worker {
    /// Notes that queued exchanges of the pool wait for room for a connection.
    pub(crate) fn note_short_pool<R: Reactor>(
        &mut self,
        reactor: &mut R,
        pool_index: u16,
        shortage: Shortage,
    ) {
        self.short_of_others |= shortage != Shortage::Slots;
        let pool = &mut self.pools[usize::from(pool_index)];
        if pool.queue.is_empty() || core::mem::replace(&mut pool.is_short, true) {
            return;
        }
        if self.short_pools.is_empty() {
            reactor.set_timer(TIMER_ROOM, reactor.now().after(ROOM_RETRY));
        }
        self.short_pools.push_back(pool_index);
    }

    /// Serves the queues of pools that wait for room, if a slot is free. Returns whether one was served.
    pub(crate) fn serve_short_pools<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        let free = !self.short_of_others && reactor.sock_count() < self.slots_max();
        if self.short_pools.is_empty() || !free {
            return false;
        }
        let Some(pool) = self.short_pools.pop_front() else { return false };
        self.pools[usize::from(pool)].is_short = false;
        self.serve_queue(reactor, pool);
        true
    }

    /// Serves the queues of all pools that wait for room: connections may have become idle that can be closed
    /// for them, or another shortage may have ended.
    pub(crate) fn retry_short_pools<R: Reactor>(&mut self, reactor: &mut R) {
        self.short_of_others = false;
        for _ in 0..self.short_pools.len() {
            let Some(pool) = self.short_pools.pop_front() else { return };
            self.pools[usize::from(pool)].is_short = false;
            self.serve_queue(reactor, pool);
        }
        if !self.short_pools.is_empty() {
            reactor.set_timer(TIMER_ROOM, reactor.now().after(ROOM_RETRY));
        }
    }
}
