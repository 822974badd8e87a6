//! Requests over HTTP/2: the implementation of the interface to servers (`carrier/server.rs`) on a stream.
//! In: requests that need a connection; what the action `proxy` decides. Out: streams of `servers.rs`, which sends the
//! requests; for the action, requests that a connection does not take.
//! Never: sends a request in another form than the stored one; sends a connection-specific field (RFC 9113 section 8.2.2).

use tidegate_base::{Id, Moment};
use tidegate_gate::shared_connections::{Demand, SharedChoice};
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http2::ErrorCode;

use crate::action::proxy::exchange::Exchange;
use crate::carrier::http2::links::settle_server_later;
use crate::carrier::http2::server::REQUESTS_MAX;
use crate::connection::ServerCarrier;
use crate::responder::Responder;
use crate::worker::Worker;

/// Connections for requests.
impl Worker {
    /// Finds an HTTP/2 connection for a request to `server`. A connection that turns out to be closed is removed.
    pub(crate) fn choose_shared<R: Reactor>(
        &mut self,
        reactor: &mut R,
        pool: u16,
        server: usize,
        demand: &Demand,
    ) -> SharedChoice<SockId> {
        loop {
            let place = self.pools[usize::from(pool)].shared.choose(server, demand);
            let SharedChoice::On(sock) = place else { return place };
            let Some(http2) = self.conns.http2_server(sock) else {
                self.note_bug(reactor, sock);
                return SharedChoice::New;
            };
            let is_quiet = http2.is_quiet() && reactor.output_pending(sock) == 0;
            // The server may be closing a connection that has been idle.
            if !is_quiet || reactor.is_guarded(sock) || reactor.guard_send(sock) {
                return place;
            }
            self.accounts.counters.upstream_idle_closes.add(1);
            self.discard_upstream(reactor, sock);
        }
    }

    /// Attaches a request to a connection. `None` if there is no room for another stream.
    pub(crate) fn attach_stream(&mut self, sock: SockId, id: Id<Exchange>) -> Option<Responder> {
        let opens_tunnel = self.opens_websocket(id);
        let stream = self.http2_servers.add(sock, id, opens_tunnel)?;
        let up = self.conns.upstream(sock)?;
        let (pool, server) = (up.pool, up.server);
        let requests_max = self.settings.newest().pool(pool).reuse.requests_max;
        let is_used_up = up.requests >= requests_max.unwrap_or(REQUESTS_MAX);
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return None };
        let is_first = http2.streams.is_empty();
        http2.streams.push(stream);
        http2.idle_since = Moment::NEVER;
        if is_first {
            self.conns.note_attached();
        }
        self.pools[usize::from(pool)].shared.note_start(usize::from(server), sock);
        self.note_shared(pool, server);
        if is_used_up {
            self.retire_http2_server(sock);
        }
        Some(Responder { sock, stream })
    }

    /// Whether the connection of a stream is not established yet.
    pub(crate) fn is_http2_connecting(&mut self, sock: SockId) -> bool {
        self.conns.http2_server(sock).is_some_and(|http2| http2.is_connecting())
    }
}

/// Messages of the action `proxy`.
impl Worker {
    /// Sends the stored request of an exchange as soon as the connection takes it.
    pub(in crate::carrier) fn send_http2_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
    ) {
        self.add_waiting(reactor, up.stream);
        settle_server_later(&mut self.conns, &mut self.work, up.sock);
    }

    /// Ends a stream: its attempt has ended. If it is not complete, the server is told to stop.
    pub(in crate::carrier) fn close_server_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
    ) {
        let removed = self.http2_servers.remove(&mut self.buffers, up.stream);
        let Some((_, number)) = removed else { return self.note_bug(reactor, up.sock) };
        let Some(conn) = self.conns.upstream(up.sock) else { return };
        let (pool, server) = (conn.pool, conn.server);
        let ServerCarrier::Http2(http2) = &mut conn.carrier else { return };
        let Some(at) = http2.streams.iter().position(|other| *other == up.stream) else { return };
        http2.streams.swap_remove(at);
        http2.waiting.retain(|other| *other != up.stream);
        if number != 0
            && let Some(out) = reactor.output(up.sock)
        {
            // Without effect if both directions have ended.
            http2.connection.reset(out, number, ErrorCode::CANCEL);
        }
        let (is_idle, is_connecting) = (http2.is_idle(), http2.is_connecting());
        if is_idle {
            self.conns.note_detached();
        }
        self.pools[usize::from(pool)].shared.note_end(usize::from(server), up.sock);
        self.note_shared(pool, server);
        if is_idle && is_connecting {
            // No request needs the connection.
            self.drop_upstream(up.sock);
            return reactor.abort(up.sock);
        }
        settle_server_later(&mut self.conns, &mut self.work, up.sock);
    }
}
