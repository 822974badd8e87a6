//! Requests over HTTP/2: what the port towards servers (`carrier/server.rs`) does on a stream.
//! In: stored requests, pieces of their bodies, what the action `proxy` decides. Out: frames in the connection's
//! output, as far as the server's windows admit them; the rest waits in the stream.
//! Never: sends a request in another form than the stored one; sends a field of HTTP/1's connections.
//! Invariant: a stream that is behind is in the connection's write queue, so `send_admitted_to_server` returns to it.

use tidegate_base::limits::OUTPUT_FLUSH_BYTES;
use tidegate_base::{Id, Moment};
use tidegate_gate::shared::Place;
use tidegate_gate::websocket;
use tidegate_reactor::{OutputLook, Reactor, SockId};
use tidegate_wire::http1::StoredHead;
use tidegate_wire::http2::{ErrorCode, FieldWriter, RequestLine};
use tidegate_wire::message::FieldName;

use crate::action::proxy::exchange::{Exchange, Stage};
use crate::carrier::http2::response::write_lines;
use crate::carrier::http2::server::{REQUESTS_MAX, id_of, token_of};
use crate::carrier::http2::server_stream::ServerStream;
use crate::carrier::http2::server_tunnel::Connect;
use crate::carrier::output::is_blocked;
use crate::connection::ServerCarrier;
use crate::responder::Responder;
use crate::worker::{Work, Worker};

/// The most bytes of a body that are put into the output at once. Then the output is sent, if it can be.
const SEND_BYTES_MAX: usize = OUTPUT_FLUSH_BYTES;

/// Connections for requests.
impl Worker {
    /// Finds a connection of HTTP/2 for a request to `server`. A connection that turns out to be closed is removed.
    /// `since`: see `SharedConnections::choose`.
    pub(crate) fn choose_shared<R: Reactor>(
        &mut self,
        reactor: &mut R,
        pool: u16,
        server: usize,
        since: Moment,
    ) -> Place<SockId> {
        loop {
            let place = self.pools[usize::from(pool)].shared.choose(server, since);
            let Place::On(sock) = place else { return place };
            let Some(http2) = self.http2_server(sock) else {
                self.note_bug(reactor, sock);
                return Place::New;
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
        let mut stream = ServerStream::new(sock, id);
        if self.opens_websocket(id) {
            stream.connect = Connect::Requested;
        }
        let stream = self.server_streams.insert(stream).ok()?;
        let up = self.conns.upstream(sock)?;
        let (pool, server) = (up.pool, up.server);
        let requests_max = self.settings.newest().pool(pool).reuse.requests_max;
        let is_used_up = up.requests >= requests_max.unwrap_or(REQUESTS_MAX);
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return None };
        self.attached += usize::from(http2.streams.is_empty());
        http2.streams.push(stream);
        http2.idle_since = Moment::NEVER;
        self.pools[usize::from(pool)].shared.note_start(usize::from(server), sock);
        self.note_shared(pool, server);
        if is_used_up {
            self.retire_http2_server(sock);
        }
        Some(Responder { sock, stream })
    }

    /// Whether the connection of a stream is not established yet.
    pub(crate) fn is_http2_connecting(&mut self, sock: SockId) -> bool {
        self.http2_server(sock).is_some_and(|http2| http2.is_connecting())
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
        self.settle_server_later(up.sock);
    }

    /// Opens a stream and sends the request as far as it has arrived.
    pub(super) fn open_server_stream<R: Reactor>(&mut self, reactor: &mut R, id: Id<ServerStream>) {
        let Some(stream) = self.server_streams.get(id) else { return };
        let (sock, exchange_id, connects) = (stream.sock, stream.exchange, stream.is_connect());
        let Some(exchange) = self.exchanges.get(exchange_id) else { return };
        let (to, request) = (exchange.requester, &exchange.request);
        let is_sensitive = exchange.facts.is_sensitive;
        let Some(head) = StoredHead::parse(request.head()) else {
            return self.note_bug(reactor, sock);
        };
        let (is_done, has_body) = (request.is_done(), !request.body().is_empty());
        let ends = is_done && !has_body && request.trailers().is_empty() && !connects;
        let is_secure = self
            .conns
            .upstream(sock)
            .is_some_and(|up| self.settings.newest().pool(up.pool).tls.is_some());
        let host = head.fields().find(|field| field.id == FieldName::Host);
        let line = RequestLine {
            method: if connects { "CONNECT" } else { head.method },
            // That of the connection: several servers reject another one. X-Forwarded-Proto states the client's.
            scheme: if is_secure { "https" } else { "http" },
            authority: host.map_or("", |host| core::str::from_utf8(host.value).unwrap_or_default()),
            path: head.target,
            protocol: connects.then_some(websocket::PROTOCOL),
        };
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return };
        let Some(out) = reactor.output(sock) else { return };
        let opened = http2.connection.send_request(out, token_of(id), &line, ends, |writer| {
            for field in head.fields().filter(|field| !connects || !websocket::is_key(field)) {
                match is_sensitive {
                    true => writer.sensitive(field.name, field.value),
                    false => writer.field(field.name, field.value),
                }
            }
        });
        let Ok(number) = opened else {
            // The ids are used up, or the server is closing the connection.
            self.retire_http2_server(sock);
            return self.request_not_sent(reactor, exchange_id);
        };
        if let Some(stream) = self.server_streams.get_mut(id) {
            stream.number = number;
        }
        if connects {
            // What follows is the tunnel.
            return;
        }
        if has_body || (is_done && !ends) {
            let Some(exchange) = self.exchanges.get_mut(exchange_id) else { return };
            let (bytes, start) = exchange.request.lend();
            self.send_on_server_stream(reactor, id, &bytes[start..]);
            if let Some(exchange) = self.exchanges.get_mut(exchange_id) {
                exchange.request.restore(bytes);
            }
        }
        if !is_done {
            self.resume_request(to);
        }
    }

    /// Sends a piece of the request body, and its end if the request is complete.
    pub(in crate::carrier) fn send_http2_request_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
        data: &[u8],
    ) {
        let Some(stream) = self.server_streams.get_mut(up.stream) else { return };
        if stream.is_waiting() || stream.is_gone {
            // The store has it, or the server takes no more of it.
            return;
        }
        if !stream.output.is_empty() {
            return stream.output.push(data, &mut self.buffers);
        }
        self.send_on_server_stream(reactor, up.stream, data);
        self.settle_server_later(up.sock);
    }

    /// Sends bytes of the body, and the end of the request if it is complete. What the windows do not admit waits.
    pub(super) fn send_on_server_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ServerStream>,
        data: &[u8],
    ) {
        let Some(admitted) = self.admit_to_server(reactor, id, data) else { return };
        let now = reactor.now();
        let Some(stream) = self.server_streams.get_mut(id) else { return };
        stream.moved_at = now;
        if admitted < data.len() {
            stream.output.push(&data[admitted..], &mut self.buffers);
        }
    }

    /// Sends as much of `data` as the windows and the output admit, and the end of the request after it. Returns how
    /// many bytes that were; `None` if the stream cannot send any more.
    fn admit_to_server<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ServerStream>,
        data: &[u8],
    ) -> Option<usize> {
        let now = reactor.now();
        let stream = self.server_streams.get(id)?;
        let (sock, number) = (stream.sock, stream.number);
        let request = &self.exchanges.get(stream.exchange)?.request;
        let (is_done, has_trailers) = match stream.connect {
            Connect::No => (request.is_done(), !request.trailers().is_empty()),
            Connect::Requested | Connect::Open => (false, false),
            Connect::Finished => (true, false),
        };
        let mut admitted = 0;
        loop {
            let piece = &data[admitted..data.len().min(admitted + SEND_BYTES_MAX)];
            let is_last = admitted + piece.len() == data.len();
            let is_full = is_blocked(reactor, sock);
            let http2 = self.http2_server(sock)?;
            let out = reactor.output(sock)?;
            if is_full && !piece.is_empty() {
                http2.connection.wait_writable(number);
                return Some(admitted);
            }
            let ends = is_done && is_last && !has_trailers;
            let sent = match piece.is_empty() && !ends {
                true => 0,
                false => http2.connection.send_data(now, out, number, piece, ends)?,
            };
            admitted += sent;
            if sent < piece.len() {
                return Some(admitted);
            }
            if is_last {
                break;
            }
        }
        if is_done && has_trailers {
            self.send_request_trailers(reactor, id);
        }
        Some(admitted)
    }

    /// Sends the trailers of a request, which end it.
    fn send_request_trailers<R: Reactor>(&mut self, reactor: &mut R, id: Id<ServerStream>) {
        let Some(stream) = self.server_streams.get(id) else { return };
        let (sock, number) = (stream.sock, stream.number);
        let Some(exchange) = self.exchanges.get(stream.exchange) else { return };
        let fields =
            &self.settings.of(exchange.era).client_address_fields[usize::from(exchange.listener)];
        let Some(up) = self.conns.upstream(sock) else { return };
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return };
        let Some(out) = reactor.output(sock) else { return };
        let trailers = exchange.request.trailers();
        http2.connection.send_trailers(out, number, |writer: &mut FieldWriter<'_>| {
            for line in fields.admitted_lines(trailers) {
                write_lines(writer, line);
            }
        });
    }

    /// Sends what waits on the connection's streams, as far as windows and output admit it.
    pub(super) fn send_admitted_to_server<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        // The output of a connection that is blocked goes on when it has drained.
        while !is_blocked(reactor, sock) {
            let Some(http2) = self.http2_server(sock) else { return };
            let Some(out) = reactor.output(sock) else { return };
            let Some(number) = http2.connection.poll_writable(out) else { return };
            let id = http2.connection.token(number).map_or(Id::NONE, id_of);
            let Some(stream) = self.server_streams.get_mut(id) else { continue };
            let mut output = core::mem::take(&mut stream.output);
            let admitted = self.admit_to_server(reactor, id, output.as_slice());
            output.consume(admitted.unwrap_or(output.len()));
            let now = reactor.now();
            let Some(stream) = self.server_streams.get_mut(id) else {
                output.release(&mut self.buffers);
                continue;
            };
            if admitted.is_some_and(|bytes| bytes > 0) {
                stream.moved_at = now;
            }
            if !output.is_empty() {
                stream.output = output;
                continue;
            }
            output.release(&mut self.buffers);
            self.note_server_drained(reactor, id);
        }
    }

    /// The server takes the body of this stream's request again.
    pub(super) fn note_server_drained<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ServerStream>,
    ) {
        let Some(stream) = self.server_streams.get(id) else { return };
        if stream.is_behind() || stream.is_waiting() {
            return;
        }
        let exchange_id = stream.exchange;
        let Some(exchange) = self.exchanges.get(exchange_id) else { return };
        if exchange.stage == Stage::ExpectRequestEnd && exchange.request.is_done() {
            return self.end_exchange(reactor, exchange_id, false);
        }
        self.server_drained(reactor, exchange_id);
    }
}

/// What the action `proxy` asks of a stream.
impl Worker {
    /// Whether nothing of the request was sent, so that all of it must be kept.
    pub(in crate::carrier) fn is_http2_unsent<R: Reactor>(
        &self,
        reactor: &R,
        up: Responder,
    ) -> bool {
        let stream = self.server_streams.get(up.stream);
        stream.is_some_and(ServerStream::is_waiting) || reactor.is_guarded(up.sock)
    }

    /// Whether the server has not taken all of the request that was sent.
    pub(in crate::carrier) fn is_http2_server_behind(&self, up: Responder) -> bool {
        self.server_streams.get(up.stream).is_some_and(ServerStream::is_behind)
    }

    /// Bytes of the request that the server has not taken.
    pub(in crate::carrier) fn http2_request_pending(&self, up: Responder) -> usize {
        let stream = self.server_streams.get(up.stream).filter(|stream| !stream.is_gone);
        stream.map_or(0, |stream| stream.output.len())
    }

    /// Whether the part of the request that has arrived waits: for a stream, the stream's window or the connection.
    pub(in crate::carrier) fn is_http2_request_held_up<R: Reactor>(
        &self,
        reactor: &R,
        up: Responder,
    ) -> bool {
        let stream = self.server_streams.get(up.stream);
        stream.is_some_and(|stream| stream.is_waiting() || stream.is_behind())
            || reactor.output_pending(up.sock) > 0
    }

    /// Checks whether the server takes the request. Bytes in the output of the connection count as taken, unless the
    /// request is incomplete: its client may be waiting until the output has drained.
    pub(in crate::carrier) fn look_at_http2_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
    ) -> OutputLook {
        let Some(stream) = self.server_streams.get_mut(up.stream) else { return OutputLook::Idle };
        let exchange = self.exchanges.get(stream.exchange);
        let has_rest = exchange.is_some_and(|exchange| !exchange.request.is_done());
        if has_rest && !stream.is_behind() && reactor.output_pending(up.sock) > 0 {
            return reactor.look_at_output(up.sock);
        }
        let is_pending = stream.is_behind();
        match core::mem::replace(&mut stream.was_pending, is_pending) {
            _ if is_pending => OutputLook::Pending { moved_at: stream.moved_at },
            true => OutputLook::Emptied,
            false => OutputLook::Idle,
        }
    }

    /// Sets when `server_due` is called.
    pub(in crate::carrier) fn set_server_stream_deadline<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
        at: Moment,
    ) {
        let Some(stream) = self.server_streams.get_mut(up.stream) else { return };
        stream.due_at = at;
        if let Some(http2) = self.http2_server(up.sock)
            && at < http2.due_at
        {
            http2.due_at = at;
            reactor.set_deadline(up.sock, at);
        }
    }

    /// Pauses or resumes what the action gets of a response.
    pub(in crate::carrier) fn set_server_stream_receiving(
        &mut self,
        up: Responder,
        receives: bool,
    ) {
        let Some(stream) = self.server_streams.get_mut(up.stream) else { return };
        if core::mem::replace(&mut stream.is_held, !receives) && receives {
            self.work.push(Work::ResumeServer(up));
        }
    }

    /// Ends a stream: its attempt has ended. If it is not complete, the server is told to stop.
    pub(in crate::carrier) fn close_server_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
    ) {
        let Some(mut stream) = self.server_streams.remove(up.stream) else {
            return self.note_bug(reactor, up.sock);
        };
        stream.release(&mut self.buffers);
        let Some(conn) = self.conns.upstream(up.sock) else { return };
        let (pool, server) = (conn.pool, conn.server);
        let ServerCarrier::Http2(http2) = &mut conn.carrier else { return };
        let Some(at) = http2.streams.iter().position(|other| *other == up.stream) else { return };
        http2.streams.swap_remove(at);
        http2.waiting.retain(|other| *other != up.stream);
        if stream.number != 0
            && let Some(out) = reactor.output(up.sock)
        {
            // Without effect if both directions have ended.
            http2.connection.reset(out, stream.number, ErrorCode::CANCEL);
        }
        let (is_idle, is_connecting) = (http2.is_idle(), http2.is_connecting());
        self.attached -= usize::from(is_idle);
        self.pools[usize::from(pool)].shared.note_end(usize::from(server), up.sock);
        self.note_shared(pool, server);
        if is_idle && is_connecting {
            // No request needs the connection.
            self.drop_upstream(up.sock);
            return reactor.abort(up.sock);
        }
        self.settle_server_later(up.sock);
    }
}
