//! Reuse of upstream connections: which idle connection a request may take.
//! In: requests that were assigned to a server. Out: an idle connection to it, or none.
//! Never: hands out a connection on which the server has already sent something.
//! Invariant: a connection that is handed out is guarded (`Reactor::guard_send`), so bytes that were received
//! before the request was sent are never taken for its response.

use tidegate_base::Id;
use tidegate_reactor::{Reactor, SockId};

use crate::action::proxy::exchange::Exchange;
use crate::worker::Worker;

impl Worker {
    /// The server that has authenticated a connection which is kept for the client of the exchange, if the
    /// exchange could be sent to it now. The handshake of NTLM takes three requests on one connection.
    pub(crate) fn kept_server(&mut self, id: Id<Exchange>) -> Option<usize> {
        let exchange = self.exchanges.get(id)?;
        let kept = self.conns.downstream(exchange.down)?.facts.as_deref()?.kept()?;
        let up = self.conns.upstream(kept).filter(|up| up.authenticated)?;
        let server = usize::from(up.server);
        let state = &self.pools[usize::from(exchange.pool)].state;
        let usable = up.pool == exchange.pool && !exchange.needs_fresh;
        (usable && state.has_room_at(server, &exchange.tried)).then_some(server)
    }

    /// Takes an idle connection to `server` for a request of the client at `down`.
    pub(crate) fn take_idle<R: Reactor>(
        &mut self,
        reactor: &mut R,
        down: SockId,
        pool: u16,
        server: usize,
    ) -> Option<SockId> {
        loop {
            let is_shared = self.snapshot.config.pools[usize::from(pool)].proxy_protocol.is_none();
            let sock = match self.take_kept(down, pool, server) {
                Some(kept) => kept,
                None if is_shared => self.pools[usize::from(pool)].idle.pop(server)?,
                None => return None,
            };
            if reactor.guard_send(sock) {
                return Some(sock);
            }
            self.accounts.counters.upstream_idle_closes.add(1);
            self.discard_upstream(reactor, sock);
        }
    }
}
