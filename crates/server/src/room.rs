//! Room for those who have something to ask: idle clients cannot hold every slot.
//! In: a new connection while few slots are free. Out: an idle client's connection, closed in order.
//! Never: closes a connection on which a request or an answer is under way, or that has not asked yet.
//! Limits: one is closed for each new connection; `LOOKS_MAX` slots are looked at for it.

use tidegate_reactor::Reactor;

use crate::worker::{Work, Worker};

/// One slot of this many is kept free of idle clients.
const FREE_PART: usize = 16;
/// How many slots one search looks at, so that a new connection costs the same in a full table.
const LOOKS_MAX: usize = 256;

impl Worker {
    /// Notes that a connection has come or was begun.
    pub(crate) fn note_new_connection<R: Reactor>(&mut self, reactor: &R) {
        let slots = self.slots_max();
        if reactor.sock_count() > slots - slots / FREE_PART {
            self.work.push(Work::MakeRoom);
        }
    }

    /// Closes the idle client whose turn it is, if there is one near by.
    pub(crate) fn make_room<R: Reactor>(&mut self, reactor: &mut R) {
        if let Some(sock) = self.conns.next_idle_downstream(LOOKS_MAX) {
            self.accounts.counters.idle_closes_for_room.add(1);
            self.close_downstream(reactor, sock);
        }
    }
}
