//! Closes idle client connections when few slots are free, so that idle clients cannot occupy every slot.
//! In: a new connection while few slots are free. Out: one idle client connection, closed in order.
//! Never: closes a connection that has a request or a response in progress, or whose client has not sent a
//! first request yet.
//! Limits: each new connection closes at most one idle connection; the search looks at up to
//! `SCAN_SLOTS_MAX` slots.

use tidegate_reactor::Reactor;

use crate::worker::{Work, Worker};

/// One slot in this many is kept free of idle clients.
const FREE_SLOTS_DIVISOR: usize = 16;
/// How many slots one search looks at. The bound keeps the cost of a new connection constant, also when
/// the table is full.
const SCAN_SLOTS_MAX: usize = 256;

impl Worker {
    /// Schedules an eviction if the worker is short of free slots. Called for each new connection, accepted
    /// or begun by the worker.
    pub(crate) fn note_new_connection<R: Reactor>(&mut self, reactor: &R) {
        let slots = self.slots_max();
        if reactor.sock_count() > slots - slots / FREE_SLOTS_DIVISOR {
            self.work.push(Work::EvictIdle);
        }
    }

    /// Closes the next idle client connection that the search finds, if there is one.
    pub(crate) fn evict_idle<R: Reactor>(&mut self, reactor: &mut R) {
        if let Some(sock) = self.conns.next_idle_downstream(SCAN_SLOTS_MAX) {
            self.accounts.counters.idle_evictions.add(1);
            self.close_downstream(reactor, sock);
        }
    }
}
