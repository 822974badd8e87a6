//! Reuse of upstream connections: which idle connection a request may take.
//! In: requests that were assigned to a server. Out: an idle connection to the server, if one may be used. A request that
//! cannot be retried never takes a connection that the server may be about to close (`reuse.unretriable`);
//! gate/src/idle.rs decides.
//! Never: hands out a connection on which the server has already sent something.
//! Invariant: a connection that is handed out is guarded (`Reactor::guard_send`), so bytes that were received
//! before the request was sent are never taken for its response.

use tidegate_base::{Id, Moment, Span};
use tidegate_gate::sticky_keys::StickyChange;
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::message::ResponseHead;

use crate::action::proxy::exchange::Exchange;
use crate::requester::Requester;
use crate::worker::Worker;

/// The proof that an idle connection needs before a request may use it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// None: the request can be retried, or the operator accepts the risk.
    None,
    /// Other connections to the server were open at a higher idle age.
    Age,
    /// No proof is accepted.
    Impossible,
}

/// An idle connection that was taken for a request.
#[derive(Clone, Copy)]
pub(crate) struct Reused {
    pub(crate) sock: SockId,
    /// How long it had been idle; `None` if it was kept for this client.
    pub(crate) age: Option<Span>,
}

impl Worker {
    /// The server to which the exchange should go, if the exchange can be sent to it now: the server that its hook prefers (the
    /// choice of `on_balance`), the server of the client's session,
    /// the server of the sticky key, or the server that has authenticated the connection that is kept for this client (the
    /// handshake of NTLM takes three requests on one connection).
    pub(crate) fn kept_server(&mut self, id: Id<Exchange>, now: Moment) -> Option<usize> {
        let exchange = self.exchanges.get(id)?;
        let state = &self.pools[usize::from(exchange.pool)].state;
        if let Some(server) = exchange.preferred.map(usize::from)
            && state.has_room_at(server, exchange.attempts.tried(), now)
        {
            return Some(server);
        }
        if let Some(server) = exchange.facts.session.and_then(|own| own.server_in(state))
            && state.can_keep(server, now, exchange.attempts.tried())
        {
            return Some(server);
        }
        if let Some(key) = exchange.facts.stay
            && let Some(stays) = self.settings.newest().stays(exchange.pool)
            && let Some(server) = stays.server_of(key, now)
            && self.pools[usize::from(exchange.pool)].state.can_keep(
                server,
                now,
                exchange.attempts.tried(),
            )
        {
            return Some(server);
        }
        let client = exchange.requester.sock;
        if exchange.requester.as_own().is_some() {
            return None;
        }
        let Some(down) = self.conns.downstream(client) else {
            self.note_absent(client);
            return None;
        };
        // Most clients have no kept connection.
        let kept = down.facts.as_deref()?.kept()?;
        let Some(up) = self.conns.upstream(kept) else {
            self.note_absent(client);
            return None;
        };
        if !up.authenticated {
            return None;
        }
        let server = usize::from(up.server);
        let state = &self.pools[usize::from(exchange.pool)].state;
        let usable = up.pool == exchange.pool && !exchange.attempts.needs_fresh();
        (usable && state.can_continue(server, exchange.attempts.tried())).then_some(server)
    }

    /// Notes that a request with the key of the exchange is sent to `server`.
    pub(super) fn note_sticky_sent(&mut self, id: Id<Exchange>, server: usize, now: Moment) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (pool, Some(key)) = (exchange.pool, exchange.facts.stay) else { return };
        let Some(stays) = self.settings.newest().stays(pool) else { return };
        let state = &self.pools[usize::from(pool)].state;
        let noted = stays.note_sent(key, server, now, |lost| state.has_lost(lost, now));
        self.count_sticky(noted);
    }

    /// Notes that the server of the exchange has responded with `head`, or that the connection to it was opened (TCP mode).
    /// Later requests with the same sticky key go to this server, unless the server of the key was only busy; so do requests
    /// with a cookie that the response sets.
    pub(super) fn note_sticky_answered(
        &mut self,
        id: Id<Exchange>,
        head: Option<&ResponseHead<'_>>,
        now: Moment,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let Some(stays) = self.settings.newest().stays(exchange.pool) else { return };
        let server = usize::from(exchange.attempt.server);
        let set = head.and_then(|head| stays.key_set_by(head));
        if let Some(key) = exchange.facts.stay.filter(|own| Some(*own) != set) {
            let state = &self.pools[usize::from(exchange.pool)].state;
            let noted = stays.note_answered(key, server, now, |lost| state.has_lost(lost, now));
            self.count_sticky(noted);
        }
        if let Some(key) = set {
            self.count_sticky(stays.note_set(key, server, now));
        }
    }

    fn count_sticky(&self, noted: StickyChange) {
        let counters = &self.accounts.counters;
        match noted {
            StickyChange::Kept | StickyChange::New => {}
            StickyChange::Displaced => counters.sticky_evictions.add(1),
            StickyChange::Moved => counters.sticky_moves.add(1),
        }
    }

    /// Takes an idle connection to `server` for a request of the client `to`. A connection that is kept for this client
    /// needs no proof, because the server may have authenticated it.
    pub(crate) fn take_idle<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        pool: u16,
        server: usize,
        need: Proof,
    ) -> Option<Reused> {
        let now = reactor.now();
        loop {
            let is_shared = self.settings.newest().pool(pool).proxy_protocol.is_none();
            let (sock, age) = match self.take_kept(to.sock, pool, server) {
                Some(kept) => (kept, None),
                None if is_shared && self.has_proof(reactor, pool, server, need) => {
                    let (sock, age) = self.pools[usize::from(pool)].idle.pop(server, now)?;
                    (sock, Some(age))
                }
                None => return None,
            };
            let is_open = reactor.guard_send(sock);
            if let Some(age) = age {
                let idle = &mut self.pools[usize::from(pool)].idle;
                match is_open {
                    true => idle.note_open(server, age),
                    false => idle.note_lost(server, age, now),
                }
            }
            if is_open {
                return Some(Reused { sock, age });
            }
            self.accounts.counters.upstream_idle_closes.add(1);
            self.discard_upstream(reactor, sock);
        }
    }

    /// Whether the connection to `server` that became idle last has the proof that a request needs. If not, it is
    /// closed unless it is the only one: the fresh connection of the request takes its place, so that the number of
    /// idle connections does not grow with the requests. The older connections stay open, and
    /// show how long the server keeps idle connections.
    fn has_proof<R: Reactor>(
        &mut self,
        reactor: &mut R,
        pool: u16,
        server: usize,
        need: Proof,
    ) -> bool {
        let now = reactor.now();
        let idle = &mut self.pools[usize::from(pool)].idle;
        let count = idle.count(server);
        let is_proven = match need {
            Proof::None => true,
            Proof::Age => idle.is_proven(server, now),
            Proof::Impossible => false,
        };
        if is_proven || count == 0 {
            return is_proven;
        }
        self.accounts.counters.spared_requests.add(1);
        if count > 1
            && let Some((sock, _)) = idle.pop(server, now)
        {
            // A reset leaves no local port in TIME_WAIT.
            self.drop_upstream(sock);
            reactor.abort(sock);
        }
        false
    }

    /// Removes an idle connection that the server has closed, or on which the server has sent something, and notes its idle
    /// age. The caller closes the socket.
    pub(crate) fn lose_idle<R: Reactor>(&mut self, reactor: &R, sock: SockId) {
        let now = reactor.now();
        let Some((pool, server)) = self.conns.upstream(sock).map(|up| (up.pool, up.server)) else {
            return self.note_absent(sock);
        };
        if let Some(age) = self.take_from_idle(sock, now) {
            self.pools[usize::from(pool)].idle.note_lost(usize::from(server), age, now);
        }
        self.drop_upstream(sock);
    }
}
