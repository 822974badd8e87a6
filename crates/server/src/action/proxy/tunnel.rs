//! Tunnels after 101 (Switching Protocols): bytes are relayed between a client (a connection, or a stream of HTTP/2) and
//! the connection to its server, with backpressure.
//! In: bytes and ends of both connections. Out: the same on the other connection.
//! Never: begins before the server has sent 101 (early bytes of the client wait; RFC 9110 section 7.8).
//! Limits: a tunnel ends if no byte is transferred in either direction for `timeouts.tunnel`. A byte that a slow
//! peer takes out of blocked output counts.

use tidegate_base::Id;
use tidegate_gate::access::Cause;
use tidegate_reactor::Reactor;
use tidegate_wire::message::ResponseHead;

use crate::action::Running;
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::answer::Switch;
use crate::carrier::output::{is_blocked, look_span, next_look};
use crate::worker::Worker;

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
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        debug_assert_eq!(exchange.stage, Stage::ExpectResponse, "a switch of protocols");
        exchange.stage = Stage::Tunnel;
        let (to, pool, server) = (exchange.requester, exchange.pool, exchange.attempt.server);
        self.note_result(pool, server, false, reactor.now());
        self.accounts.counters.tunnels.add(1);
        self.switch_client(reactor, to, &Switch::Relayed(head), Running::Proxy(id));
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
        let (client, up) = (exchange.requester, exchange.attempt.up.sock);
        match from {
            Side::Client => {
                reactor.send(up, bytes);
                if is_blocked(reactor, up) {
                    self.pause_switched(reactor, client, true);
                }
            }
            Side::Server => {
                self.send_switched(reactor, client, bytes);
                if self.is_client_blocked(reactor, client) {
                    reactor.set_receiving(up, false);
                    self.await_client_drain(client);
                }
            }
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
                exchange.ended.client = true;
                reactor.finish(exchange.attempt.up.sock);
            }
            Side::Server => {
                exchange.ended.server = true;
                let to = exchange.requester;
                self.finish_switched(reactor, to);
            }
        }
        let Some(exchange) = self.exchanges.get(id) else { return };
        if exchange.ended.client && exchange.ended.server {
            let (to, up) = (exchange.requester, exchange.attempt.up.sock);
            self.end_tunnel(id);
            self.drop_upstream(up);
            reactor.close(up);
            self.end_switched(reactor, to);
        }
    }

    /// Resets both connections, because one of them was reset or the tunnel timed out.
    pub(crate) fn reset_tunnel<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up.sock);
        self.end_tunnel(id);
        self.drop_upstream(up);
        reactor.abort(up);
        self.abort_switched(reactor, to);
    }

    /// The deadline of either connection expired. Unless one of them still takes the output that is pending
    /// for it, the tunnel has timed out.
    pub(crate) fn tunnel_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let timeout = self.timeouts_of(exchange).tunnel;
        let (to, up) = (exchange.requester, exchange.attempt.up.sock);
        let looks = [self.look_at_client(reactor, to, timeout), next_look(reactor, up, timeout)];
        if let Some(at) = looks.into_iter().flatten().min() {
            self.set_action_deadline(reactor, to, at);
            return reactor.set_deadline(up, at);
        }
        self.accounts.counters.tunnel_timeouts.add(1);
        self.blame(to, Cause::ClientTimeout, "no byte was transferred in the tunnel");
        self.reset_tunnel(reactor, id);
    }

    /// Sets the deadlines of both connections: to the tunnel timeout, or to the first look at blocked output.
    pub(crate) fn arm_tunnel<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up.sock);
        let timeout = self.timeouts_of(exchange).tunnel;
        let blocked = self.is_client_blocked(reactor, to) || is_blocked(reactor, up);
        let wait = if blocked { look_span(timeout) } else { timeout };
        let at = reactor.now().after(wait);
        self.set_action_deadline(reactor, to, at);
        reactor.set_deadline(up, at);
    }

    /// Ends the exchange. The caller ends both connections.
    fn end_tunnel(&mut self, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (pool, server) = (exchange.pool, exchange.attempt.server);
        self.release_server(pool, server);
        self.forget_exchange(id);
    }
}
