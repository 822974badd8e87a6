//! Connections that are forwarded without HTTP (TCP mode): an exchange without a request, which is a tunnel as soon as a
//! server is connected.
//! In: a client and its pool (`carrier/tcp.rs`). Out: an exchange in `dispatch.rs`; then a tunnel (`tunnel.rs`).
//! Never: sends a byte of the client before the connect has succeeded, so that another server can be tried; reuses a
//! connection, or keeps one for reuse.
//! Limits: as for requests: the pool's queue, attempts and timeouts.

use tidegate_base::prng::hash_bytes;
use tidegate_base::{Id, Moment};
use tidegate_config::model::{Balance, HashKey};
use tidegate_gate::access::{Cause, Phase};
use tidegate_reactor::{Peer, Reactor, SockId};
use tidegate_wire::message::BodyLength;

use crate::action::proxy::exchange::{Exchange, RequestFacts, Stage};
use crate::action::proxy::stored::StoredRequest;
use crate::action::proxy::tunnel::Side;
use crate::carrier::tcp::TcpStage;
use crate::requester::Requester;
use crate::worker::Worker;

impl Worker {
    /// Begins to forward the connection of a client, which requested the server `name`, to a server of `pool`.
    pub(crate) fn begin_forward<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        pool: u16,
        name: Option<&str>,
    ) {
        let to = Requester::connection(sock);
        self.conns.note_request(sock);
        self.begin_tcp_record(reactor, sock, name);
        self.accounts.counters.tcp_connections.add(1);
        // The kernel keeps the client's bytes until a server takes them.
        reactor.set_receiving(sock, false);
        reactor.set_deadline(sock, Moment::NEVER);
        let Some(exchange) = self.exchange_without_request(reactor, to, pool) else { return };
        match self.exchanges.insert(exchange) {
            Ok(id) => {
                if let Some(tcp) = self.tcp_client(sock) {
                    tcp.stage = TcpStage::Forwarded(id);
                }
                self.accounts.counters.exchanges_now.add(1);
                self.pools[usize::from(pool)].exchanges += 1;
                self.dispatch_new(reactor, id);
            }
            Err(exchange) => {
                exchange.request.release(&mut self.buffers);
                self.blame(to, Cause::Limit, "the proxy is handling too many requests");
                self.end_switched(reactor, to);
            }
        }
    }

    /// The exchange of a connection in TCP mode.
    fn exchange_without_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        pool: u16,
    ) -> Option<Exchange> {
        let era = self.era_of(to);
        let Some(down) = self.conns.downstream(to.sock) else {
            self.note_bug(reactor, to.sock);
            return None;
        };
        let (listener, peer) = (down.listener, down.peer());
        self.arrivals += 1;
        let facts = RequestFacts {
            is_tcp: true,
            key_hash: hash_peer(&self.settings.of(era).pool(pool).balance, peer),
            stay: self
                .settings
                .of(era)
                .stays(pool)
                .and_then(|stays| stays.key_of_connection(peer.ip())),
            ..RequestFacts::NONE
        };
        let request = StoredRequest::new(Vec::new(), BodyLength::None);
        Some(Exchange::new(to, era, (listener, pool), self.arrivals, facts, request))
    }

    /// The server is connected: relays the bytes that wait, and everything that follows.
    pub(in crate::action::proxy) fn begin_tcp_tunnel<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        exchange.stage = Stage::Tunnel;
        // Once a server is connected, no other server is tried.
        exchange.attempt.note_response();
        let (to, up) = (exchange.requester, exchange.attempt.up.sock);
        self.note_sticky_answered(id, None, reactor.now());
        self.accounts.counters.tunnels.add(1);
        self.note_phase(to, Phase::Data);
        if let Some(own) = to.as_own() {
            return self.begin_socket_tunnel(reactor, id, own);
        }
        let Some(tcp) = self.tcp_client(to.sock) else { return self.note_bug(reactor, to.sock) };
        let (mut input, finished) = (core::mem::take(&mut tcp.input), tcp.finished);
        reactor.set_receiving(to.sock, true);
        reactor.set_receiving(up, true);
        if !input.is_empty() {
            let taken = self.tunnel_received(reactor, id, Side::Client, input.as_slice());
            self.note_bytes_in(to, taken);
        }
        input.release(&mut self.buffers);
        if finished {
            self.tunnel_finished(reactor, id, Side::Client);
        }
        self.arm_tunnel(reactor, id);
    }
}

impl Worker {
    /// The kernel has moved bytes of a connection to the other one of its tunnel.
    pub(crate) fn tcp_relayed<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, count: usize) {
        if let Some(up) = self.conns.upstream(sock) {
            let id = up.exchange;
            return self.tunnel_relayed(reactor, id, Side::Server, count);
        }
        self.conns.note_bytes(sock);
        self.conns.note_tunnel_bytes(sock);
        match self.tcp_client(sock).map(|tcp| tcp.stage) {
            Some(TcpStage::Forwarded(id)) => {
                self.tunnel_relayed(reactor, id, Side::Client, count);
            }
            Some(_) | None => self.note_bug(reactor, sock),
        }
    }
}

/// The hash of the client's address for hash balancing; `None` if the pool balances in another way.
fn hash_peer(balance: &Balance, peer: Peer) -> Option<u64> {
    match (balance, peer.ip()?) {
        (Balance::Hash(HashKey::ClientAddress), core::net::IpAddr::V4(ip)) => {
            Some(hash_bytes(&ip.octets()))
        }
        (Balance::Hash(HashKey::ClientAddress), core::net::IpAddr::V6(ip)) => {
            Some(hash_bytes(&ip.octets()))
        }
        _ => None,
    }
}
