//! Tunnels after 101 (Switching Protocols), or after an extended CONNECT: bytes are relayed between a client and its server,
//! each of which is a connection or a stream of HTTP/2, with backpressure.
//! In: bytes and ends of both sides. Out: the same on the other side.
//! Never: begins before the server has switched (early bytes of the client wait; RFC 9110 section 7.8).
//! Limits: a tunnel ends if no byte is transferred in either direction for `timeouts.tunnel`. A byte that a slow
//! peer takes out of blocked output counts, and the time does not pass while a call of `on_frame` waits.

use tidegate_base::Id;
use tidegate_gate::access::Cause;
use tidegate_gate::websocket;
use tidegate_reactor::Reactor;
use tidegate_wire::message::ResponseHead;

use crate::action::Running;
use crate::action::lua::frames::FrameHook;
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::action::proxy::websocket_tunnel::TunnelFrames;
use crate::answer::Switch;
use crate::carrier::output::{check_span, next_check_after};
use crate::worker::Worker;

/// From this size of a piece on, the kernel moves the next pieces of a connection in TCP mode without a copy. Measured: at 16 KiB
/// a relayed piece costs about 15 % less CPU time than a copied one; small pieces cost the same or more.
const RELAY_BYTES_MIN: usize = 8 << 10;

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
        let is_websocket = websocket::is_requested(exchange.request.head());
        let mut frame_hook = None;
        if let Some(hook) = exchange.response_hook.take() {
            match self.hook_frames(id, *hook, is_websocket) {
                Ok(hook) => frame_hook = hook,
                Err(failure) => return self.fail_served(reactor, id, failure),
            }
        }
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        exchange.stage = Stage::Tunnel;
        exchange.frames = is_websocket.then(|| Box::new(TunnelFrames::new(frame_hook)));
        let (to, pool, attempt) = (exchange.requester, exchange.pool, exchange.attempt);
        let accepted = match attempt.up.is_stream() {
            true => websocket::accepted_key(exchange.request.head()),
            false => None,
        };
        self.note_result((pool, attempt.server), (false, None), reactor.now());
        self.note_sticky_answered(id, Some(head), reactor.now());
        self.accounts.counters.tunnels.add(1);
        let switch = match &accepted {
            Some(key) => Switch::Connected(head, key),
            None => Switch::Relayed(head),
        };
        self.switch_client(reactor, to, &switch, Running::Proxy(id));
        self.arm_tunnel(reactor, id);
        self.stop_late_tunnel(reactor, id);
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
        let up = exchange.attempt.up;
        if exchange.frame_hook().is_some() {
            self.frames_received(reactor, id, from, bytes);
            return bytes.len();
        }
        match from {
            Side::Client => self.send_tunnel(reactor, up, bytes),
            Side::Server => self.relay_to_client(reactor, id, bytes),
        }
        if bytes.len() >= RELAY_BYTES_MIN {
            self.set_relay(reactor, id, from, true);
        }
        self.pause_if_blocked(reactor, id, from);
        self.arm_tunnel(reactor, id);
        bytes.len()
    }

    /// The kernel has moved bytes of one side to the other.
    pub(crate) fn tunnel_relayed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        from: Side,
        count: usize,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let client = exchange.requester;
        match from {
            Side::Client => self.note_bytes_in(client, count),
            Side::Server => self.note_bytes_out(client, count),
        }
        if count < RELAY_BYTES_MIN / 2 {
            self.set_relay(reactor, id, from, false);
        }
        self.pause_if_blocked(reactor, id, from);
        self.arm_tunnel(reactor, id);
    }

    /// Lets the kernel move the bytes of one side to the other, or ends that. Only in TCP mode: other tunnels may have layers on
    /// either side.
    fn set_relay<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        from: Side,
        relays: bool,
    ) {
        let Some(exchange) = self.exchanges.get(id).filter(|exchange| exchange.facts.is_tcp) else {
            return;
        };
        let (client, server) = (exchange.requester.sock, exchange.attempt.up.sock);
        let (source, target) = match from {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        reactor.relay_to(source, relays.then_some(target));
    }

    /// Stops reading one side while the other one does not take its bytes.
    fn pause_if_blocked<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, from: Side) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let is_closing = exchange.ends_at().is_some();
        let (client, up) = (exchange.requester, exchange.attempt.up);
        match from {
            Side::Client => {
                if self.is_server_blocked(reactor, up) {
                    self.pause_switched(reactor, client, true);
                }
            }
            Side::Server => {
                // What follows a Close frame is dropped.
                if !is_closing && self.is_client_blocked(reactor, client) {
                    self.set_server_receiving(reactor, up, false);
                    self.await_client_drain(client);
                }
            }
        }
    }

    /// One side ended its direction: ends the same direction on the other side. After both directions have
    /// ended, closes both connections.
    pub(crate) fn tunnel_finished<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        by: Side,
    ) {
        if self.has_frame_hook(id) && self.frames_finished(reactor, id, by) {
            return;
        }
        // The last bytes before the end may have ended the tunnel.
        let Some(exchange) = self.exchanges.find_mut(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        match by {
            Side::Client => {
                exchange.ended.client = true;
                self.finish_tunnel(reactor, up);
            }
            Side::Server => {
                exchange.ended.server = true;
                self.finish_switched(reactor, to);
            }
        }
        self.end_tunnel_if_over(reactor, id);
    }

    /// Closes both connections if both directions have ended. A stream ends once the server has taken what waits on it.
    pub(super) fn end_tunnel_if_over<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.find(id) else { return };
        let (to, up, ended) = (exchange.requester, exchange.attempt.up, exchange.ended);
        let is_behind = up.is_stream() && self.is_server_behind(reactor, up);
        if ended.client && ended.server && !is_behind {
            self.end_tunnel(id);
            self.close_tunnel(reactor, up);
            self.end_switched(reactor, to);
        }
    }

    /// The server's side of a tunnel was reset or lost.
    pub(crate) fn tunnel_lost<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let to = exchange.requester;
        self.blame(to, Cause::Server, "the server reset the tunnel");
        self.reset_tunnel(reactor, id);
    }

    /// Resets both connections, because one of them was reset or the tunnel timed out.
    pub(crate) fn reset_tunnel<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        self.end_tunnel(id);
        self.abandon_server(reactor, up);
        self.abort_switched(reactor, to);
    }

    /// The deadline of either connection expired. Unless a peer still takes the output that is pending for it, the tunnel has
    /// timed out.
    pub(crate) fn tunnel_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        if exchange.ends_at().is_some_and(|at| at <= reactor.now()) {
            return self.end_closed_tunnel(reactor, id);
        }
        let (timeout, ends_at) = (self.timeouts_of(exchange).tunnel, exchange.ends_at());
        let (to, up) = (exchange.requester, exchange.attempt.up);
        let at_server = self.check_request_output(reactor, up);
        let at_server = next_check_after(at_server, reactor.now(), timeout);
        let checks = [self.check_client_output(reactor, to, timeout), at_server];
        if let Some(at) = checks.into_iter().flatten().min() {
            let at = ends_at.map_or(at, |end| end.min(at));
            self.set_action_deadline(reactor, to, at);
            return self.set_server_deadline(reactor, up, at);
        }
        let exchange = self.exchanges.get(id);
        if exchange.and_then(Exchange::frame_hook).is_some_and(FrameHook::is_waiting) {
            // Tidegate itself reads nothing meanwhile.
            return self.arm_tunnel(reactor, id);
        }
        self.accounts.counters.tunnel_timeouts.add(1);
        self.blame(to, Cause::ClientTimeout, "timed out: the tunnel was idle");
        self.reset_tunnel(reactor, id);
    }

    /// Sets the deadlines of both connections: to the tunnel timeout, or to the first check of blocked output.
    pub(crate) fn arm_tunnel<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        let (timeout, ends_at) = (self.timeouts_of(exchange).tunnel, exchange.ends_at());
        let blocked = self.is_client_blocked(reactor, to) || self.is_server_blocked(reactor, up);
        let wait = if blocked { check_span(timeout) } else { timeout };
        let at = reactor.now().after(wait);
        let at = ends_at.map_or(at, |end| end.min(at));
        self.set_action_deadline(reactor, to, at);
        self.set_server_deadline(reactor, up, at);
    }

    /// Ends the exchange. The caller ends both connections.
    pub(super) fn end_tunnel(&mut self, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (pool, server) = (exchange.pool, exchange.attempt.server);
        self.release_server(pool, server);
        self.forget_exchange(id);
    }
}
