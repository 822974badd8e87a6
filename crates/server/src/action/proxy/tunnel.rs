//! Tunnels after 101 (Switching Protocols): bytes are relayed between two connections, with backpressure.
//! In: bytes and ends of both connections. Out: the same on the other connection.
//! Never: begins before the server has sent 101 (early bytes of the client wait; RFC 9110 section 7.8).
//! Limits: a tunnel ends if no byte is transferred in either direction for `timeouts.tunnel`. A byte that a slow
//! peer takes out of blocked output counts.

use std::rc::Rc;

use tidegate_base::Id;
use tidegate_gate::forward;
use tidegate_reactor::Reactor;
use tidegate_wire::http1::ResponseEncoder;
use tidegate_wire::message::ResponseHead;

use crate::action::proxy::exchange::{Exchange, Stage};
use crate::carrier::http1::client::{is_blocked, look_span, next_look};
use crate::connection::DownstreamState;
use crate::worker::{Work, Worker};

/// A side of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The downstream connection.
    Client,
    /// The upstream connection.
    Server,
}

impl Worker {
    /// Relays the 101 response and turns the exchange into a tunnel.
    pub(crate) fn begin_tunnel<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        head: &ResponseHead<'_>,
    ) {
        let snapshot = Rc::clone(&self.snapshot);
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        exchange.stage = Stage::Tunnel;
        exchange.response_relayed = true;
        let down = exchange.down;
        if let Some(out) = reactor.output(down) {
            let encoder = &mut ResponseEncoder::new(out, exchange.client_version, false);
            forward::encode_interim(encoder, head, &snapshot.config.server.via);
        }
        let counters = &self.accounts.counters;
        counters.count_answer(head.status);
        counters.tunnels.add(1);
        if let Some(conn) = self.conns.downstream(down) {
            conn.state = DownstreamState::Tunnel(id);
            reactor.set_receiving(down, true);
            self.work.push(Work::Resume(down));
        }
        self.arm_tunnel(reactor, id);
    }

    /// Relays bytes of one side to the other. Returns how many were processed.
    pub(crate) fn tunnel_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        from: Side,
        bytes: &[u8],
    ) -> usize {
        let Some(exchange) = self.exchanges.get(id) else { return bytes.len() };
        let (from, to) = match from {
            Side::Client => (exchange.down, exchange.up),
            Side::Server => (exchange.up, exchange.down),
        };
        reactor.send(to, bytes);
        if is_blocked(reactor, to) {
            reactor.set_receiving(from, false);
        }
        self.arm_tunnel(reactor, id);
        bytes.len()
    }

    /// One side ended its direction: ends the same direction on the other side. After both directions have
    /// ended, closes both connections.
    pub(crate) fn tunnel_finished<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        by: Side,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        match by {
            Side::Client => {
                exchange.down_finished = true;
                reactor.finish(exchange.up);
            }
            Side::Server => {
                exchange.up_finished = true;
                reactor.finish(exchange.down);
            }
        }
        if exchange.down_finished && exchange.up_finished {
            let (down, up) = (exchange.down, exchange.up);
            self.end_tunnel(id);
            self.drop_upstream(up);
            reactor.close(up);
            self.close_downstream(reactor, down);
        }
    }

    /// Resets both connections, because one of them was reset or the tunnel timed out.
    pub(crate) fn reset_tunnel<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (down, up) = (exchange.down, exchange.up);
        self.end_tunnel(id);
        self.drop_upstream(up);
        reactor.abort(up);
        self.drop_downstream(reactor, down);
        reactor.abort(down);
    }

    /// The deadline of either connection expired. Unless one of them still takes the output that is pending
    /// for it, the tunnel has timed out.
    pub(crate) fn tunnel_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let timeout = self.snapshot.config.pools[usize::from(exchange.pool)].timeouts.tunnel;
        let socks = [exchange.down, exchange.up];
        let looks = socks.map(|sock| next_look(reactor, sock, timeout));
        if let Some(at) = looks.into_iter().flatten().min() {
            return socks.into_iter().for_each(|sock| reactor.set_deadline(sock, at));
        }
        self.accounts.counters.tunnel_timeouts.add(1);
        self.reset_tunnel(reactor, id);
    }

    /// Sets the deadlines of both connections: to the tunnel timeout, or to the first look at blocked output.
    pub(crate) fn arm_tunnel<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (down, up) = (exchange.down, exchange.up);
        let timeout = self.snapshot.config.pools[usize::from(exchange.pool)].timeouts.tunnel;
        let blocked = is_blocked(reactor, down) || is_blocked(reactor, up);
        let wait = if blocked { look_span(timeout) } else { timeout };
        let at = reactor.now().after(wait);
        reactor.set_deadline(down, at);
        reactor.set_deadline(up, at);
    }

    /// Ends the exchange and detaches it from the downstream connection's state.
    fn end_tunnel(&mut self, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (down, pool, server) = (exchange.down, exchange.pool, exchange.server);
        self.release_server(pool, server);
        self.forget_exchange(id);
        if let Some(conn) = self.conns.downstream(down) {
            conn.state = DownstreamState::ExpectHead;
        }
    }
}
