//! Reuse of upstream connections: which idle connection a request may take.
//! In: requests that were assigned to a server. Out: an idle connection to it, or none.
//! Never: hands out a connection on which the server has already sent something.
//! Invariant: a connection that is handed out is guarded (`Reactor::guard_send`), so bytes that were received
//! before the request was sent are never taken for its response.

use tidegate_reactor::{Reactor, SockId};

use crate::worker::Worker;

impl Worker {
    /// Takes an idle connection to `server` for a request of the client at `down`.
    pub(crate) fn take_idle<R: Reactor>(
        &mut self,
        reactor: &mut R,
        down: SockId,
        pool: u16,
        server: usize,
    ) -> Option<SockId> {
        loop {
            let sock = match self.snapshot.config.pools[usize::from(pool)].proxy_protocol {
                None => self.pools[usize::from(pool)].idle.pop(server)?,
                Some(_) => self.take_kept(down, pool, server)?,
            };
            if reactor.guard_send(sock) {
                return Some(sock);
            }
            self.accounts.counters.upstream_idle_closes.add(1);
            self.discard_upstream(reactor, sock);
        }
    }
}
