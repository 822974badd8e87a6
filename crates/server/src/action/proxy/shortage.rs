//! Requests that wait for a free slot for a connection, not for a server: in the queue of their pool, or in the queue
//! of first requests (eviction.rs has the reasons).
//! In: connects that found no room, first requests. Out: the queues served again when a slot is free, at the end
//! of each turn (one pool), or after `ROOM_RETRY`.
//! Never: picks the connection to close (eviction.rs); keeps a request longer than `timeouts.queue`.
//! Limits: the queue of a pool has up to `queue-max` requests (dispatch.rs). A first request is queued only if fewer than
//! `queue-max` requests of its pool wait in both queues together. First requests take no slots from returning clients.
//! Invariant: a pool whose `is_short` is set is in `short_pools` once. `WorkerTimer::Slots` is set while anything waits
//! here, or `found_no_room` of a pool is set.

use std::collections::VecDeque;

use tidegate_base::{Id, Span};
use tidegate_gate::queue::WaitQueue;
use tidegate_reactor::{Reactor, Shortage};

use crate::action::proxy::dispatch::{NO_SERVER, SHORTAGE};
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::timers::WorkerTimer;
use crate::worker::{Worker, WorkerPool};

/// How often queued requests look for room for a connection if no slot becomes free.
const ROOM_RETRY: Span = Span::from_millis(20);

/// The requests that wait for room for a connection, and when they are tried again.
pub(crate) struct RoomWaits {
    /// Pools whose queued requests wait for room for a connection, not for a server. Each is in it once.
    short_pools: VecDeque<u16>,
    /// The first request of each client connection that waits because the worker has no slot for a connection to a
    /// server; in order of arrival. Each of them is in `Stage::Queued`.
    held: WaitQueue<Id<Exchange>>,
    /// `WorkerTimer::Slots` is set.
    is_timer_set: bool,
    /// A shortage of something other than slots prevented the last connect, which is tried again at
    /// `WorkerTimer::Slots`.
    is_short_of_other_resources: bool,
}

impl RoomWaits {
    /// Nothing waits; up to `held_max` first requests may.
    pub(crate) fn new(held_max: usize) -> Self {
        Self {
            short_pools: VecDeque::new(),
            held: WaitQueue::new(held_max),
            is_timer_set: false,
            is_short_of_other_resources: false,
        }
    }

    /// The first requests of connections that wait.
    pub(crate) fn held(&self) -> &WaitQueue<Id<Exchange>> {
        &self.held
    }

    /// How often `short_pools` contains a pool.
    pub(crate) fn count_pool(&self, pool: usize) -> usize {
        self.short_pools.iter().filter(|other| usize::from(**other) == pool).count()
    }

    /// Whether `WorkerTimer::Slots` is set.
    pub(crate) fn is_timer_set(&self) -> bool {
        self.is_timer_set
    }

    /// Whether anything waits.
    fn is_empty(&self) -> bool {
        self.short_pools.is_empty() && self.held.is_empty()
    }

    /// Puts a pool into `short_pools`, unless it is there.
    fn add_pool(&mut self, pools: &mut [WorkerPool], index: u16) {
        if !core::mem::replace(&mut pools[usize::from(index)].is_short, true) {
            self.short_pools.push_back(index);
        }
    }

    /// Takes the pool that has waited longest.
    fn take_pool(&mut self, pools: &mut [WorkerPool]) -> Option<u16> {
        let pool = self.short_pools.pop_front()?;
        pools[usize::from(pool)].is_short = false;
        Some(pool)
    }

    /// `WorkerTimer::Slots` has expired: all pools that found no room wait in `short_pools`. Returns how many there are.
    fn expire(&mut self, pools: &mut [WorkerPool]) -> usize {
        self.is_timer_set = false;
        self.is_short_of_other_resources = false;
        for at in 0..pools.len() {
            if core::mem::take(&mut pools[at].found_no_room) {
                self.add_pool(pools, at as u16);
            }
        }
        self.short_pools.len()
    }

    /// Sets `WorkerTimer::Slots` unless it is set.
    fn set_timer<R: Reactor>(&mut self, reactor: &mut R) {
        if !core::mem::replace(&mut self.is_timer_set, true) {
            let at = reactor.now().after(ROOM_RETRY);
            WorkerTimer::Slots.set(reactor, at);
        }
    }
}

impl Worker {
    /// Notes that queued exchanges of the pool wait for room for a connection.
    pub(crate) fn note_short_pool<R: Reactor>(
        &mut self,
        reactor: &mut R,
        pool_index: u16,
        shortage: Shortage,
    ) {
        self.eviction.waits.is_short_of_other_resources |= shortage != Shortage::Slots;
        let pool = &mut self.pools[usize::from(pool_index)];
        if pool.queue.is_empty() {
            return;
        }
        pool.found_no_room = true;
        self.eviction.waits.add_pool(&mut self.pools, pool_index);
        self.eviction.waits.set_timer(reactor);
    }

    /// Picks a server for a request that was not sent before, and then for its copy, if the copy is complete. While the
    /// authentication server decides about the request, no copy is sent: a refused request is not copied.
    pub(crate) fn dispatch_new<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let listener = exchange.listener;
        let copy = match exchange.copy {
            None => None,
            Some(_) if exchange.auth_request.is_some() => None,
            Some(_) => self.take_complete_copy(id),
        };
        self.dispatch_first(reactor, id);
        if let Some(copy) = copy {
            self.send_copy(reactor, listener, *copy);
        }
    }

    /// Picks a server for a request that was not sent before. The first request of a connection waits if there is
    /// no room for another first request.
    fn dispatch_first<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, era, pool_index) = (exchange.requester, exchange.era, usize::from(exchange.pool));
        if to.as_own().is_some() {
            return self.dispatch(reactor, id, NO_SERVER);
        }
        let Some(down) = self.conns.downstream(to.sock) else {
            return self.note_bug(reactor, to.sock);
        };
        let is_first = down.requests == 1;
        if !is_first
            || self.eviction.waits.held.is_empty() && self.make_room_for_first_request(reactor)
        {
            return self.dispatch(reactor, id, NO_SERVER);
        }
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        exchange.stage = Stage::Queued;
        self.leave_queue_if_gone(reactor, id);
        // The client may have disconnected.
        let Some(exchange) = self.exchanges.find(id) else { return };
        let pool = &mut self.pools[pool_index];
        let has_place = pool.held + pool.queue.len() < pool.queue.length_max();
        if !has_place || !self.eviction.waits.held.push(id, exchange.arrival) {
            self.accounts.counters.queue_refusals.add(1);
            return self.fail(reactor, id, SHORTAGE);
        }
        let is_alone = pool.held == 0 && pool.queue.is_empty();
        pool.held += 1;
        self.accounts.counters.slot_waits.add(1);
        self.accounts.counters.queued.add(1);
        let place = (era, pool_index as u16);
        let wait = self.wait_in_queue(reactor, place, is_alone);
        self.note_standing(place, wait);
        self.set_action_deadline(reactor, to, reactor.now().after(wait));
        self.eviction.waits.set_timer(reactor);
    }

    /// Serves the first request of a client that has waited longest, if one waits.
    fn serve_held<R: Reactor>(&mut self, reactor: &mut R) {
        let Some(id) = self.eviction.waits.held.front() else { return };
        self.mark_exchange(id);
        self.leave_queues(id);
        self.arrivals += 1;
        if let Some(exchange) = self.exchanges.get_mut(id) {
            // If the request must wait in the queue of its pool, it joins that queue at the end.
            exchange.arrival = self.arrivals;
        }
        self.dispatch(reactor, id, NO_SERVER);
    }

    /// Removes an exchange from the queue in which it waits.
    pub(crate) fn leave_queues(&mut self, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let pool_index = exchange.pool;
        let pool = &mut self.pools[usize::from(pool_index)];
        if self.eviction.waits.held.remove(id) {
            pool.held -= 1;
        } else if pool.queue.remove(id) {
            self.note_queue_length(pool_index);
        }
    }

    /// Serves requests that wait for room, if a slot is free or a connection to a server is idle. Returns whether
    /// one may have been served.
    pub(crate) fn serve_waiting<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        let free =
            !self.eviction.waits.is_short_of_other_resources && self.has_room_for_server(reactor);
        if free && let Some(pool) = self.eviction.waits.take_pool(&mut self.pools) {
            self.pools[usize::from(pool)].found_no_room = false;
            self.serve_queue(reactor, pool);
            return true;
        }
        let serves =
            !self.eviction.waits.held.is_empty() && self.make_room_for_first_request(reactor);
        if serves {
            self.serve_held(reactor);
        }
        serves
    }

    /// Serves the queue of one pool that waits for room: connections may have become idle that can be closed
    /// for it.
    pub(crate) fn retry_after_turn<R: Reactor>(&mut self, reactor: &mut R) {
        if !self.eviction.waits.is_short_of_other_resources
            && let Some(pool) = self.eviction.waits.take_pool(&mut self.pools)
        {
            self.serve_queue(reactor, pool);
            self.settle(reactor);
        }
    }

    /// Serves the queues of all pools that wait for room: connections may be quiet for long enough to be closed for them, or
    /// another shortage may have ended. The pools may request permits again.
    pub(crate) fn retry_short_pools<R: Reactor>(&mut self, reactor: &mut R) {
        for _ in 0..self.eviction.waits.expire(&mut self.pools) {
            let Some(pool) = self.eviction.waits.take_pool(&mut self.pools) else { break };
            self.serve_queue(reactor, pool);
        }
        while !self.eviction.waits.held.is_empty() && self.make_room_for_first_request(reactor) {
            self.serve_held(reactor);
        }
        if !self.eviction.waits.is_empty() {
            self.eviction.waits.set_timer(reactor);
        }
    }
}
