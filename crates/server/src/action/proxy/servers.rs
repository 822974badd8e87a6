//! Servers that take no requests for a time: their checks fail, or an operator has taken them out.
//! In: what the process knows about its servers. Out: the states of the pools; queued requests that can go on.
//! Never: ends an exchange: those with a server that goes down are completed.

use tidegate_reactor::Reactor;

use crate::health::Standings;
use crate::worker::Worker;

impl Worker {
    /// Applies what the process knows about its servers.
    pub(crate) fn stand<R: Reactor>(&mut self, reactor: &mut R, standings: &Standings) {
        for (pool, standings) in standings.iter().enumerate() {
            if self.pools.get_mut(pool).is_some_and(|pool| pool.state.stand(standings)) {
                self.note_unserved(pool as u16);
            }
        }
        self.settle(reactor);
    }
}
