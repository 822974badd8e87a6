//! The interface to servers: connections used, kept idle and closed; requests for servers.
//! In: completions of connections to servers; requests of the action `proxy`. Out: calls of the connection's
//! carrier and of `action/proxy/response.rs`.
//! Never: encodes or decodes a byte of a protocol; reuses a connection if the end of its last response is in
//! doubt.
//! Invariant: an idle connection of HTTP/1 (`exchange` is `Id::NONE`) is either in its pool's idle list or kept for
//! one client (client.rs), never both. Any byte received while idle, or before the next request has begun to be
//! sent, closes it. Connections of HTTP/2 are in their pool's `shared`.

use tidegate_base::{Id, Moment, Span};
use tidegate_reactor::{CloseReason, OutputProgress, Reactor, SockId};

use crate::action::proxy::exchange::Exchange;
use crate::carrier::output::is_blocked;
use crate::connection::{ServerCarrier, ServerProtocol};
use crate::requester::Requester;
use crate::responder::Responder;
use crate::worker::Worker;

/// Events of connections to servers, handed to the protocol of the connection.
impl Worker {
    /// A connect succeeded.
    pub(crate) fn upstream_connected<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        match up.carrier {
            ServerCarrier::Http1(_) => {
                let id = up.exchange;
                self.server_connected(reactor, id);
            }
            ServerCarrier::Http2(_) => self.http2_server_connected(reactor, sock),
        }
    }

    /// A server sent bytes.
    pub(crate) fn upstream_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) {
        match self.conns.server_protocol(sock) {
            Some(ServerProtocol::Http1) => self.http1_server_received(reactor, sock, bytes),
            Some(ServerProtocol::Http2) => self.http2_server_received(reactor, sock, bytes),
            None => self.note_bug(reactor, sock),
        }
    }

    /// A server ended its direction of the connection.
    pub(crate) fn upstream_finished<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        match self.conns.server_protocol(sock) {
            Some(ServerProtocol::Http1) => self.http1_server_finished(reactor, sock),
            Some(ServerProtocol::Http2) => self.http2_server_finished(reactor, sock),
            None => self.note_bug(reactor, sock),
        }
    }

    /// A connection to a server failed, was reset or ended.
    pub(crate) fn upstream_closed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        reason: CloseReason,
    ) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let id = up.exchange;
        match up.carrier {
            ServerCarrier::Http2(_) => self.http2_server_closed(reactor, sock, reason),
            ServerCarrier::Http1(_) if id.is_none() => {
                self.accounts.counters.upstream_idle_closes.add(1);
                self.lose_idle(reactor, sock);
            }
            ServerCarrier::Http1(_) => self.server_closed(reactor, id, reason),
        }
    }

    /// The blocked output to a server has drained.
    pub(crate) fn upstream_drained<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let id = up.exchange;
        match up.carrier {
            ServerCarrier::Http2(_) => self.http2_server_drained(reactor, sock),
            // An idle connection may drain after its exchange has ended.
            ServerCarrier::Http1(_) if id.is_none() => {}
            ServerCarrier::Http1(_) => self.server_drained(reactor, id),
        }
    }

    /// The deadline of a connection to a server expired.
    pub(crate) fn upstream_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let id = up.exchange;
        match up.carrier {
            ServerCarrier::Http2(_) => self.http2_server_due(reactor, sock),
            ServerCarrier::Http1(_) if id.is_none() => self.retire_upstream(reactor, sock),
            ServerCarrier::Http1(_) => self.server_due(reactor, id),
        }
    }
}

/// Requests for servers. The action `proxy` calls these; each works for every protocol.
impl Worker {
    /// Sends the stored request of an exchange over the connection of its attempt.
    pub(crate) fn send_request<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let up = exchange.attempt.up;
        match up.is_stream() {
            true => self.send_http2_request(reactor, up),
            false => self.send_http1_request(reactor, id),
        }
    }

    /// Sends a piece of the request body, and its end if the request is complete.
    pub(crate) fn send_request_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        data: &[u8],
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let up = exchange.attempt.up;
        match up.is_stream() {
            true => {
                let (servers, mut links) = self.server_streams(reactor);
                servers.send_after(&mut links, up, data);
            }
            false => self.send_http1_request_body(reactor, id, data),
        }
    }

    /// Sends bytes of a tunnel.
    pub(crate) fn send_tunnel<R: Reactor>(&mut self, reactor: &mut R, up: Responder, bytes: &[u8]) {
        match up.is_stream() {
            true => {
                let (servers, mut links) = self.server_streams(reactor);
                servers.send_after(&mut links, up, bytes);
            }
            false => reactor.send(up.sock, bytes),
        }
    }

    /// Ends a tunnel's direction to the server.
    pub(crate) fn finish_tunnel<R: Reactor>(&mut self, reactor: &mut R, up: Responder) {
        match up.is_stream() {
            true => {
                let (servers, mut links) = self.server_streams(reactor);
                servers.finish_tunnel(&mut links, up);
            }
            false => reactor.finish(up.sock),
        }
    }

    /// Ends the server's side of a tunnel whose directions have both ended.
    pub(crate) fn close_tunnel<R: Reactor>(&mut self, reactor: &mut R, up: Responder) {
        match up.is_stream() {
            true => self.close_server_stream(reactor, up),
            false => self.close_upstream(reactor, up.sock),
        }
    }

    /// Whether the server has received no byte of the request, so that all of it must be kept.
    pub(crate) fn is_request_unsent<R: Reactor>(&self, reactor: &R, up: Responder) -> bool {
        match up.is_stream() {
            true => self.http2_servers.is_unsent(reactor, up),
            false => reactor.is_guarded(up.sock),
        }
    }

    /// Whether the server, or its connection, does not take the request fast enough.
    pub(crate) fn is_server_blocked<R: Reactor>(&self, reactor: &mut R, up: Responder) -> bool {
        up.is_stream() && self.http2_servers.is_behind(up) || is_blocked(reactor, up.sock)
    }

    /// Whether the server does not take this request fast enough.
    pub(crate) fn is_server_behind<R: Reactor>(&self, reactor: &mut R, up: Responder) -> bool {
        match up.is_stream() {
            true => self.http2_servers.is_behind(up),
            false => is_blocked(reactor, up.sock),
        }
    }

    /// Bytes of the request that the server has not taken, as far as is known without a look.
    pub(crate) fn request_pending<R: Reactor>(&self, reactor: &R, up: Responder) -> usize {
        match up.is_stream() {
            true => self.http2_servers.pending(up),
            false => reactor.output_pending(up.sock),
        }
    }

    /// Whether the part of the request that has arrived waits for the server or for its connection.
    pub(crate) fn is_request_held_up<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
    ) -> bool {
        match up.is_stream() {
            true => {
                self.flush_http2_server(reactor, up.sock);
                self.http2_servers.is_held_up(reactor, up)
            }
            false => reactor.output_pending(up.sock) > 0,
        }
    }

    /// Checks whether the server takes the request.
    pub(crate) fn check_request_output<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
    ) -> OutputProgress {
        match up.is_stream() {
            true => {
                self.flush_http2_server(reactor, up.sock);
                let exchange = self.http2_servers.exchange(up.stream);
                let exchange = exchange.and_then(|id| self.exchanges.get(id));
                let has_rest = exchange.is_some_and(|exchange| !exchange.request.is_done());
                self.http2_servers.look(reactor, up, has_rest)
            }
            false => reactor.check_output_progress(up.sock),
        }
    }

    /// Sets when `server_due` is called.
    pub(crate) fn set_server_deadline<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
        at: Moment,
    ) {
        match up.is_stream() {
            true => {
                let (servers, mut links) = self.server_streams(reactor);
                servers.set_deadline(&mut links, up, at);
            }
            false => reactor.set_deadline(up.sock, at),
        }
    }

    /// Pauses or resumes the response data for the action.
    pub(crate) fn set_server_receiving<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
        receives: bool,
    ) {
        match up.is_stream() {
            true => self.http2_servers.set_receiving(&mut self.work, up, receives),
            false => reactor.set_receiving(up.sock, receives),
        }
    }

    /// Hands over the bytes that have waited for the client, or for the bandwidth of the route. Called by the worker's queue.
    pub(crate) fn resume_response<R: Reactor>(&mut self, reactor: &mut R, up: Responder) {
        match up.is_stream() {
            true => self.resume_server_stream(reactor, up),
            false => self.resume_http1_server(reactor, up.sock),
        }
    }

    /// Notes that the server authenticates the connection instead of the request.
    pub(crate) fn note_authenticated<R: Reactor>(&mut self, reactor: &mut R, up: Responder) {
        if up.is_stream() {
            // Clients share the connection, so no further request may use it.
            return self.retire_http2_server(up.sock);
        }
        match self.conns.upstream(up.sock) {
            Some(up) => up.authenticated = true,
            None => self.note_bug(reactor, up.sock),
        }
    }

    /// Notes that the server has not responded within `span`.
    pub(crate) fn note_silence<R: Reactor>(&mut self, reactor: &mut R, up: Responder, span: Span) {
        if up.is_stream() {
            self.retire_silent_http2_server(reactor, up.sock, span);
        }
    }

    /// Gives up an attempt: its connection or its stream is reset, because it may be in the middle of a message.
    pub(crate) fn abandon_server<R: Reactor>(&mut self, reactor: &mut R, up: Responder) {
        if up.is_stream() {
            return self.close_server_stream(reactor, up);
        }
        self.drop_upstream(up.sock);
        reactor.abort(up.sock);
    }
}

/// Connections without an exchange.
impl Worker {
    /// Makes an upstream connection idle, or closes it if it may not be reused. A connection that began with
    /// a PROXY header, or that is authenticated, is kept for its client only, if the client's connection stays
    /// open.
    pub(crate) fn keep_idle<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        client: Requester,
        client_stays: bool,
    ) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let (pool, server) = (up.pool, up.server);
        let may_keep =
            !up.is_outdated && self.settings.newest().may_keep(pool, server, up.generation);
        let settings = self.settings.newest().pool(pool);
        let reuse = settings.reuse;
        let is_private = settings.proxy_protocol.is_some() || up.authenticated;
        let is_used_up = reuse.requests_max.is_some_and(|most| up.requests >= most);
        if !core::mem::replace(&mut up.exchange, Id::NONE).is_none() {
            self.conns.note_detached();
        }
        if is_used_up || !may_keep || reuse.idle_max == 0 || (is_private && !client_stays) {
            return self.close_upstream(reactor, sock);
        }
        reactor.set_receiving(sock, true);
        let now = reactor.now();
        reactor.set_deadline(sock, now.after(reuse.idle_timeout));
        if is_private {
            return self.keep_for_client(reactor, sock, client.sock);
        }
        let idle = &mut self.pools[usize::from(pool)].idle;
        if let Some(oldest) = idle.push(usize::from(server), sock, now) {
            self.close_upstream(reactor, oldest);
        }
    }

    /// Removes an upstream connection. The caller closes the socket.
    pub(crate) fn drop_upstream(&mut self, sock: SockId) {
        let Some(up) = self.conns.remove_upstream(sock) else { return self.note_absent(sock) };
        self.accounts.counters.upstream_now.sub(1);
        if !up.owner.is_none() {
            self.pools[usize::from(up.pool)].kept[usize::from(up.server)] -= 1;
        }
        match up.carrier {
            ServerCarrier::Http1(mut http1) => http1.input.release(&mut self.buffers),
            ServerCarrier::Http2(http2) => {
                for &id in http2.streams() {
                    self.http2_servers.remove(&mut self.buffers, id);
                }
                let shared = &mut self.pools[usize::from(up.pool)].shared;
                shared.remove(usize::from(up.server), sock);
                self.note_shared(up.pool, up.server);
            }
        }
    }

    /// Gracefully closes an upstream connection that has no response in progress.
    pub(crate) fn close_upstream<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.drop_upstream(sock);
        reactor.close(sock);
    }

    /// Removes an idle upstream connection from where it is kept, and closes it gracefully.
    pub(crate) fn retire_upstream<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let now = reactor.now();
        if self.conns.server_protocol(sock) == Some(ServerProtocol::Http2) {
            self.send_goaway(reactor, sock);
            return self.close_upstream(reactor, sock);
        }
        let server = self.conns.upstream(sock).map(|up| (up.pool, up.server));
        if let (Some((pool, server)), Some(age)) = (server, self.take_from_idle(sock, now)) {
            self.pools[usize::from(pool)].idle.note_open(usize::from(server), age);
        }
        self.close_upstream(reactor, sock);
    }

    /// Resets an upstream connection. Removes it from where it is kept if it is idle.
    pub(crate) fn discard_upstream<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        if up.is_idle() {
            let now = reactor.now();
            self.take_from_idle(sock, now);
        }
        self.drop_upstream(sock);
        reactor.abort(sock);
    }

    /// Closes all idle connections to servers. Part of a stop.
    pub(crate) fn retire_idle_servers<R: Reactor>(&mut self, reactor: &mut R) {
        for sock in self.conns.upstream_ids() {
            if self.conns.upstream(sock).is_some_and(|up| up.is_idle()) {
                self.retire_upstream(reactor, sock);
            }
        }
    }

    /// Removes an idle connection from the pool's idle list or from its owner. Returns how long it was in the
    /// list.
    pub(crate) fn take_from_idle(&mut self, sock: SockId, now: Moment) -> Option<Span> {
        let Some(up) = self.conns.upstream(sock) else {
            self.note_absent(sock);
            return None;
        };
        let (pool, server, owner) = (up.pool, up.server, up.owner);
        if matches!(up.carrier, ServerCarrier::Http2(_)) {
            // It is in no list of idle connections; `drop_upstream` removes it from the shared ones.
            return None;
        }
        if owner.is_none() {
            // `take_idle` has taken it from the list already if it is not open.
            return self.pools[usize::from(pool)].idle.remove(usize::from(server), sock, now);
        }
        self.forget_kept(owner);
        None
    }
}
