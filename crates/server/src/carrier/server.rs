//! The port towards servers: connections used, kept idle and closed; requests for servers.
//! In: completions of connections to servers; requests of the action `proxy`. Out: calls of the connection's
//! carrier and of `action/proxy/response.rs`.
//! Never: encodes or decodes a byte of a protocol; reuses a connection if the end of its last response is in
//! doubt.
//! Invariant: an idle connection (`exchange` is `Id::NONE`) is either in its pool's idle list or kept for one
//! client (client.rs), never both. Any byte received while idle, or before the next request has begun to be
//! sent, closes it.

use tidegate_base::{Id, Moment, Span};
use tidegate_reactor::{CloseReason, Reactor, SockId};

use crate::action::proxy::exchange::Exchange;
use crate::carrier::output::is_blocked;
use crate::connection::ServerCarrier;
use crate::requester::Requester;
use crate::worker::Worker;

/// Events of connections to servers.
impl Worker {
    /// A connect succeeded.
    pub(crate) fn upstream_connected<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let id = up.exchange;
        self.server_connected(reactor, id);
    }

    /// A server sent bytes.
    pub(crate) fn upstream_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        if up.exchange.is_none() {
            // No request is in progress. The bytes must not be taken for the response to the next request.
            self.accounts.counters.upstream_faults.add(1);
            self.lose_idle(reactor, sock);
            return reactor.abort(sock);
        }
        if reactor.is_guarded(sock) {
            // The server cannot have seen the request, so the bytes are not the response to it.
            self.accounts.counters.upstream_faults.add(1);
            let id = up.exchange;
            return self.request_not_sent(reactor, sock, id);
        }
        self.http1_server_received(reactor, sock, bytes);
    }

    /// A server ended its direction of the connection.
    pub(crate) fn upstream_finished<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        if up.exchange.is_none() {
            self.accounts.counters.upstream_idle_closes.add(1);
            self.lose_idle(reactor, sock);
            return reactor.close(sock);
        }
        self.http1_server_finished(reactor, sock);
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
        if id.is_none() {
            self.accounts.counters.upstream_idle_closes.add(1);
            return self.lose_idle(reactor, sock);
        }
        self.server_closed(reactor, sock, id, reason);
    }

    /// The blocked output to a server has drained.
    pub(crate) fn upstream_drained<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let id = up.exchange;
        // An idle connection may drain after its exchange has ended.
        if !id.is_none() {
            self.server_drained(reactor, id);
        }
    }

    /// The deadline of a connection to a server expired.
    pub(crate) fn upstream_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let id = up.exchange;
        match id.is_none() {
            true => self.retire_upstream(reactor, sock),
            false => self.server_due(reactor, sock, id),
        }
    }
}

/// Requests for servers. The action `proxy` calls these.
impl Worker {
    /// Sends the stored request of an exchange over the connection of its attempt.
    pub(crate) fn send_request<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        self.send_http1_request(reactor, id);
    }

    /// Sends a piece of the request body, and its end if the request is complete.
    pub(crate) fn send_request_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        data: &[u8],
    ) {
        self.send_http1_request_body(reactor, id, data);
    }

    /// Whether the server does not take the request fast enough.
    pub(crate) fn is_server_blocked<R: Reactor>(&self, reactor: &mut R, up: SockId) -> bool {
        is_blocked(reactor, up)
    }

    /// Gives up an attempt: its connection is reset, because it may be in the middle of a message.
    pub(crate) fn abandon_server<R: Reactor>(&mut self, reactor: &mut R, up: SockId) {
        self.drop_upstream(up);
        reactor.abort(up);
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
        let may_keep = self.settings.newest().may_keep(pool, server, up.generation);
        let settings = self.settings.newest().pool(pool);
        let reuse = settings.reuse;
        let is_private = settings.proxy_protocol.is_some() || up.authenticated;
        if !core::mem::replace(&mut up.exchange, Id::NONE).is_none() {
            self.attached -= 1;
        }
        let is_used_up = reuse.requests_max.is_some_and(|most| up.requests >= most);
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
        self.attached -= usize::from(!up.exchange.is_none());
        if !up.owner.is_none() {
            self.pools[usize::from(up.pool)].kept[usize::from(up.server)] -= 1;
        }
        match up.carrier {
            ServerCarrier::Http1(mut http1) => http1.input.release(&mut self.buffers),
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
        let server = self.conns.upstream(sock).map(|up| (up.pool, up.server));
        if let (Some((pool, server)), Some(age)) = (server, self.take_from_idle(sock, now)) {
            self.pools[usize::from(pool)].idle.note_open(usize::from(server), age);
        }
        self.close_upstream(reactor, sock);
    }

    /// Resets an upstream connection. Removes it from where it is kept if it is idle.
    pub(crate) fn discard_upstream<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        if up.exchange.is_none() {
            let now = reactor.now();
            self.take_from_idle(sock, now);
        }
        self.drop_upstream(sock);
        reactor.abort(sock);
    }

    /// Removes an idle connection from the pool's idle list or from its owner. Returns how long it was in the
    /// list.
    pub(crate) fn take_from_idle(&mut self, sock: SockId, now: Moment) -> Option<Span> {
        let Some(up) = self.conns.upstream(sock) else {
            self.note_absent(sock);
            return None;
        };
        let (pool, server, owner) = (up.pool, up.server, up.owner);
        if owner.is_none() {
            // `take_idle` has taken it from the list already if it is not open.
            return self.pools[usize::from(pool)].idle.remove(usize::from(server), sock, now);
        }
        self.forget_kept(owner);
        None
    }
}
