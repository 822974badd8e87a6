//! HTTP/2 on server connections: connections that many exchanges share, the data received on them, and their end.
//! In: bytes and events of connections to servers. Out: messages for `action/proxy/response.rs`; credit for the bytes that
//! clients have taken.
//! Never: lets one stream whose client is slow stop the others; gives a request to a connection that its server closes.
//! Limits: `wire::http2::Config`; the pool's `http2` and `reuse`.
//! Invariant: each stream in `streams` names its exchange, whose attempt names the stream. The connection is in its
//! pool's `shared` until it takes no more requests.

use tidegate_base::{Id, Moment, Span};
use tidegate_gate::shared_connections::Stall;
use tidegate_reactor::{CloseReason, Reactor, SockId};
use tidegate_wire::http2::{self, Connection, Event, ResetCause, Scratch};
use tidegate_wire::message::{Fields, ResponseHead};
use tidegate_wire::tls::TlsSession;

use crate::action::proxy::exchange::Exchange;
use crate::action::proxy::exchange::Stage;
use crate::carrier::http1::server::Http1Server;
use crate::carrier::http2::links::{GATHERED_BYTES_MAX, settle_server_later};
use crate::carrier::http2::server_stream::ServerStream;
use crate::carrier::http2::server_tunnel::ConnectSupport;
use crate::carrier::http2::servers::{HeadArrival, Opening};
use crate::carrier::output::is_blocked;
use crate::connection::ServerCarrier;
use crate::malformed::FaultPlace;
use crate::responder::Responder;
use crate::worker::Worker;

/// How long a connection without streams keeps its compression tables and buffers.
const SHRINK_SPAN: Span = Span::from_secs(1);
/// Maximum number of requests on one connection. Its stream ids are used up after twice as many (RFC 9113 section 5.1.1).
pub(super) const REQUESTS_MAX: u32 = 1 << 29;
/// The reason in the proxy's response if a response of the server is malformed.
const MALFORMED: &str = "the server's response is malformed";

/// How far the start of a connection has progressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The connect or the TLS handshake is in progress.
    Connecting,
    /// The server's SETTINGS are missing, so only one request is sent.
    Greeting,
    /// The connection is in use.
    Open,
}

/// How a connection was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// It failed, was reset or ended.
    Closed(CloseReason),
    /// The server ended its direction.
    Finished,
    /// The server has violated the protocol. GOAWAY is in the output.
    Misbehaved,
    /// The connection was not established in time.
    ConnectTimeout,
}

/// The HTTP/2 state of a connection to a server.
pub(crate) struct Http2Server {
    /// The protocol.
    pub(super) connection: Connection,
    /// How far the start has progressed.
    phase: Phase,
    /// The server is known to speak HTTP/2, without a handshake (`h2c`).
    has_prior_knowledge: bool,
    /// The handshake has chosen a protocol other than HTTP/2, or none.
    is_http1: bool,
    /// The streams of requests whose attempts are in progress.
    pub(super) streams: Vec<Id<ServerStream>>,
    /// The streams in `streams` that wait to be opened, in order of arrival.
    pub(super) waiting: Vec<Id<ServerStream>>,
    /// When bytes of the server last arrived.
    last_byte_at: Moment,
    /// The deadline of the connection: the earliest of its streams, `reuse.idle-timeout` without streams.
    pub(super) due_at: Moment,
    /// The time at which the last stream ended. `NEVER` while there is a stream.
    pub(super) idle_since: Moment,
    /// The connection takes no more requests, and closes after those that it has.
    is_retired: bool,
    /// Since when nothing is sent, as its pool's `shared` knows.
    pub(super) stall: Stall,
    /// `settle_http2_server` will be called for the connection.
    pub(super) is_settling: bool,
    /// `send_gathered_requests` will be called for the connection at the end of the turn.
    is_gathering: bool,
}

impl Http2Server {
    /// A connection whose connect was just begun.
    fn new(config: http2::Config, has_prior_knowledge: bool, now: Moment) -> Self {
        Self {
            connection: Connection::new(config, now),
            phase: Phase::Connecting,
            has_prior_knowledge,
            is_http1: false,
            streams: Vec::new(),
            waiting: Vec::new(),
            last_byte_at: now,
            due_at: Moment::NEVER,
            idle_since: Moment::NEVER,
            is_retired: false,
            stall: Stall::NONE,
            is_settling: false,
            is_gathering: false,
        }
    }

    /// Whether output waits for the end of the turn.
    pub(crate) fn is_gathering(&self) -> bool {
        self.is_gathering
    }

    /// Whether no request uses the connection.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether the connect or the handshake is in progress.
    pub(crate) fn is_connecting(&self) -> bool {
        self.phase == Phase::Connecting
    }

    /// Whether the connection is idle and nothing is received on it at the moment, so that its server may have closed
    /// it.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_idle() && !self.is_connecting() && !self.is_settling
    }

    /// The streams of requests whose attempts are in progress.
    pub(crate) fn streams(&self) -> &[Id<ServerStream>] {
        &self.streams
    }

    /// Takes all streams from a connection that ends.
    pub(crate) fn take_streams(&mut self) -> Vec<Id<ServerStream>> {
        self.waiting.clear();
        core::mem::take(&mut self.streams)
    }

    /// Checks that the protocol has no stream whose exchange is gone.
    pub(crate) fn check_streams(&self) {
        let open = self.connection.open_streams();
        assert!(open == 0 || !self.streams.is_empty(), "{open} streams have no exchange");
    }

    /// Whether another stream may be opened now. One request is sent without a wait for the server's SETTINGS; with
    /// more, the server might have to refuse some. Before the end of a handshake, it is not known whether the server
    /// speaks HTTP/2.
    fn may_open(&self) -> bool {
        match self.phase {
            Phase::Connecting if !self.has_prior_knowledge => false,
            Phase::Connecting | Phase::Greeting => self.connection.open_streams() == 0,
            Phase::Open => self.connection.available_streams() > 0,
        }
    }
}

/// The token of a stream in `Connection`.
pub(super) fn token_of(id: Id<ServerStream>) -> u64 {
    u64::from(id.index) << 32 | u64::from(id.generation)
}

/// The stream of a token.
pub(super) fn id_of(token: u64) -> Id<ServerStream> {
    Id::new((token >> 32) as u32, token as u32)
}

/// The beginning of a connection.
impl Worker {
    /// Makes a connection whose connect was just begun one of HTTP/2. With TLS, the handshake may still choose HTTP/1.1.
    pub(crate) fn begin_http2_server<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let now = reactor.now();
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let (pool, server) = (up.pool, up.server);
        let settings = self.settings.newest().pool(pool);
        let config = http2::Config {
            streams_max: settings.http2.streams_max,
            // `request.rs` watches the output.
            output_pause_bytes: u32::MAX,
            ..http2::Config::client()
        };
        let mut http2 = Box::new(Http2Server::new(config, settings.h2c, now));
        if settings.h2c
            && let Some(out) = reactor.output(sock)
        {
            http2.connection.start(out);
        }
        up.carrier = ServerCarrier::Http2(http2);
        self.pools[usize::from(pool)].shared.add(usize::from(server), sock);
    }

    /// Records which protocol the handshake with a server has chosen.
    pub(crate) fn note_server_session(&mut self, sock: SockId, session: &TlsSession) {
        let is_http2 = session.facts().is_some_and(|facts| facts.alpn == Some(b"h2"));
        if let Some(http2) = self.conns.http2_server(sock) {
            http2.is_http1 = !is_http2;
        }
    }

    /// The connect succeeded.
    pub(in crate::carrier) fn http2_server_connected<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        let now = reactor.now();
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let (pool, server) = (up.pool, usize::from(up.server));
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return };
        let is_http1 = http2.is_http1;
        let shared = &mut self.pools[usize::from(pool)].shared;
        shared.note_protocol(server, is_http1);
        if is_http1 {
            return self.fall_back_to_http1(reactor, sock);
        }
        http2.phase = Phase::Greeting;
        http2.last_byte_at = now;
        shared.note_heard(server, sock, now);
        if !self.settings.newest().pool(pool).h2c
            && let Some(out) = reactor.output(sock)
        {
            http2.connection.start(out);
        }
        let list = self.http2_servers.list(&mut self.conns, sock);
        for &id in &list {
            if let Some(exchange) = self.http2_servers.exchange(id) {
                self.mark_exchange(exchange);
                self.server_connected(reactor, exchange);
            }
        }
        self.http2_servers.put_list(list);
        self.settle_http2_server(reactor, sock);
    }

    /// The handshake has not chosen HTTP/2: the first request takes the connection, the others need separate connections.
    fn fall_back_to_http1<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let (pool, server) = (up.pool, up.server);
        if !self.settings.newest().pool(pool).may_speak_http1() {
            return self.fail_http2_server(
                reactor,
                sock,
                Loss::Closed(CloseReason::ConnectRefused),
            );
        }
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return };
        let streams = http2.take_streams();
        up.carrier = ServerCarrier::Http1(Http1Server::new());
        self.pools[usize::from(pool)].shared.remove(usize::from(server), sock);
        self.note_shared(pool, server);
        let Some((&first, others)) = streams.split_first() else {
            return self.discard_upstream(reactor, sock);
        };
        let Some((exchange, _)) = self.http2_servers.remove(&mut self.buffers, first) else {
            return self.note_bug(reactor, sock);
        };
        if let Some(up) = self.conns.upstream(sock) {
            up.exchange = exchange;
            up.requests = 1;
        }
        if let Some(state) = self.exchanges.get_mut(exchange) {
            state.attempt.up = Responder::connection(sock);
            let to = state.requester;
            self.mark_requester(to);
            self.send_request(reactor, exchange);
            self.server_connected(reactor, exchange);
            self.resume_request(to);
        }
        for &id in others {
            // The end of the first request may have ended other requests of its client.
            if let Some(exchange) = self.http2_servers.exchange(id) {
                self.mark_exchange(exchange);
                self.request_not_sent(reactor, exchange);
            }
        }
    }
}

/// Received data.
impl Worker {
    /// A server sent bytes.
    pub(in crate::carrier) fn http2_server_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) {
        let now = reactor.now();
        let Some(up) = self.conns.upstream(sock) else { return self.note_bug(reactor, sock) };
        let (pool, server) = (usize::from(up.pool), usize::from(up.server));
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return };
        http2.last_byte_at = now;
        http2.is_settling = true;
        self.pools[pool].shared.note_heard(server, sock, now);
        let mut scratch = core::mem::take(&mut self.http2_servers.scratch);
        self.receive_from_http2_server(reactor, sock, bytes, &mut scratch);
        self.http2_servers.scratch = scratch;
        self.settle_http2_server(reactor, sock);
    }

    fn receive_from_http2_server<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) {
        let now = reactor.now();
        let mut input = bytes;
        loop {
            // An event may have closed the connection.
            let Some(http2) = self.conns.http2_server(sock) else { return };
            let Some(out) = reactor.output(sock) else { return };
            match http2.connection.receive(now, &mut input, scratch, out) {
                Ok(None) => return,
                Ok(Some(event)) => self.handle_http2_server_event(reactor, sock, event),
                Err(fault) => {
                    let place = FaultPlace::At(bytes.len() - input.len());
                    self.keep_malformed(reactor, sock, (fault.reason(), place), bytes);
                    return self.fail_http2_server(reactor, sock, Loss::Misbehaved);
                }
            }
        }
    }

    fn handle_http2_server_event<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        event: Event<'_>,
    ) {
        if let Event::Response { token, .. }
        | Event::Data { token, .. }
        | Event::Trailers { token, .. }
        | Event::Reset { token, .. } = &event
        {
            self.mark_server_stream(id_of(*token));
        }
        match event {
            Event::Response { token, head, ends, .. } => {
                self.take_server_head(reactor, id_of(token), &head, ends);
            }
            Event::Data { token, bytes, ends, .. } => {
                self.take_server_data(reactor, (sock, id_of(token)), bytes, ends);
            }
            Event::Trailers { token, fields, .. } => {
                self.take_server_trailers(reactor, (sock, id_of(token)), fields);
            }
            Event::Reset { token, cause, .. } => {
                self.take_server_reset(reactor, id_of(token), cause);
            }
            Event::GoAway { .. } => {
                self.retire_http2_server(sock);
                self.send_waiting_elsewhere(reactor, sock);
            }
            Event::Settings => self.take_server_settings(reactor, sock),
            // A client sees no requests, and sends no PING.
            Event::Pong { .. }
            | Event::Request { .. }
            | Event::RequestTooLarge { .. }
            | Event::Rejected { .. } => {}
        }
    }

    /// The head of a response arrived.
    fn take_server_head<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ServerStream>,
        head: &ResponseHead<'_>,
        ends: bool,
    ) {
        let arrival = self.http2_servers.take_head(id, head, ends);
        let Some(exchange_id) = self.http2_servers.exchange(id) else { return };
        let Some(exchange) = self.exchanges.get_mut(exchange_id) else { return };
        exchange.attempt.note_response();
        match arrival {
            HeadArrival::Stale | HeadArrival::Kept => {}
            HeadArrival::Interim => self.relay_interim(reactor, exchange_id, head),
            HeadArrival::Tunnel => self.open_server_tunnel(reactor, id, head, ends),
            HeadArrival::Final => self.relay_head(reactor, exchange_id, head, ends, false),
        }
    }

    /// Bytes of a response body arrived.
    fn take_server_data<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (sock, id): (SockId, Id<ServerStream>),
        bytes: &[u8],
        ends: bool,
    ) {
        if let Some(kept) = self.http2_servers.note_data(id, ends) {
            self.relay_head(reactor, kept.exchange, &kept.head.lend(), kept.is_whole, false);
            self.http2_servers.put_head(kept.head);
            if kept.is_whole {
                return;
            }
        }
        let Some(exchange) = self.http2_servers.exchange(id) else { return };
        let exchange = self.exchanges.find(exchange);
        let is_paced = exchange.is_some_and(Exchange::may_pace_response);
        if !self.http2_servers.keep_data(&mut self.buffers, id, bytes, is_paced) {
            self.hand_over_data(reactor, id, bytes, ends);
        } else if is_paced {
            self.resume_server_stream(reactor, Responder { sock, stream: id });
        }
    }

    /// The trailers of a response arrived, which ends with them.
    fn take_server_trailers<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (sock, id): (SockId, Id<ServerStream>),
        fields: Fields<'_>,
    ) {
        self.http2_servers.take_trailers(id, fields);
        self.take_server_data(reactor, (sock, id), b"", true);
    }

    /// Hands the action a piece of the response body, and the end of the response if `ends`.
    fn hand_over_data<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ServerStream>,
        bytes: &[u8],
        ends: bool,
    ) {
        let handed = self.http2_servers.note_handed(id, bytes.len());
        let Some((exchange, is_tunnel)) = handed else { return };
        if is_tunnel {
            return self.hand_over_tunnel(reactor, id, bytes, ends);
        }
        if !ends {
            self.relay_data(reactor, exchange, bytes);
            return self.release_server_window(reactor, id);
        }
        let trailers = self.http2_servers.end_response(id);
        self.finish_response(reactor, exchange, bytes, &trailers, false);
        // The request may still be on its way.
        if self.http2_servers.get(id).is_some_and(|stream| stream.is_gone) {
            self.give_up_request(reactor, exchange);
        }
    }

    /// Lets the server send more on a stream whose client keeps up.
    fn release_server_window<R: Reactor>(&mut self, reactor: &mut R, id: Id<ServerStream>) {
        let (servers, mut links) = self.server_streams(reactor);
        servers.release_window(&mut links, id);
    }

    /// Hands over the bytes that have waited for the client, while the client reads. Called by the worker's queue.
    pub(crate) fn resume_server_stream<R: Reactor>(&mut self, reactor: &mut R, up: Responder) {
        // The stream may have ended after the work was queued, or in one of the steps.
        while let Some(ready) = self.http2_servers.ready(up.stream) {
            let is_ended = self.exchanges.find(ready.exchange).is_none_or(|exchange| {
                matches!(exchange.stage, Stage::ExpectRequestEnd | Stage::ExpectResponse)
                    || exchange.ended.server
            });
            if is_ended {
                // The end of the response was handed over already.
                break;
            }
            let room = match ready.is_limited {
                true => self.response_room(reactor, ready.exchange),
                false => usize::MAX,
            };
            if room == 0 {
                break;
            }
            let Some(piece) = self.http2_servers.take_piece(up.stream, room) else { break };
            let bytes = &piece.input.as_slice()[..piece.count];
            self.hand_over_data(reactor, up.stream, bytes, piece.ends);
            self.http2_servers.put_back(&mut self.buffers, up.stream, piece);
        }
        self.release_server_window(reactor, up.stream);
        settle_server_later(&mut self.conns, &mut self.work, up.sock);
    }

    /// The server has reset a stream, or violated the protocol on it.
    fn take_server_reset<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ServerStream>,
        cause: ResetCause,
    ) {
        let Some(lost) = self.http2_servers.note_gone(id) else { return };
        let (exchange_id, is_done) = (lost.exchange, lost.is_response_done);
        if lost.is_tunnel {
            return self.lose_tunnel(reactor, lost);
        }
        let Some(exchange) = self.exchanges.get(exchange_id) else { return };
        let has_response = exchange.attempt.has_response();
        if is_done {
            // The response is complete: only the rest of the request is unwanted (RFC 9113 section 8.1).
            return self.give_up_request(reactor, exchange_id);
        }
        match cause {
            ResetCause::GoneAway if !has_response => self.server_leaves(reactor, exchange_id),
            _ if cause.is_unprocessed() && !has_response => {
                self.request_unprocessed(reactor, exchange_id);
            }
            ResetCause::Fault(_) => self.server_misbehaved(reactor, exchange_id, MALFORMED),
            ResetCause::Peer(code) => self.server_reset(reactor, exchange_id, code),
            ResetCause::GoneAway => self.server_ended_early(reactor, exchange_id),
        }
    }

    /// The server's SETTINGS are in force.
    fn take_server_settings<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return };
        let (pool, server) = (up.pool, up.server);
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return };
        http2.phase = Phase::Open;
        let streams_max = http2.connection.peer_settings().streams_max;
        let shared = &mut self.pools[usize::from(pool)].shared;
        shared.note_limit(usize::from(server), sock, streams_max);
        self.note_shared(pool, server);
        self.open_waiting(reactor, sock);
        // More requests wait than the server allows: they need another connection.
        self.send_waiting_elsewhere(reactor, sock);
    }

    /// Gives the requests that wait on a connection to other connections.
    fn send_waiting_elsewhere<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        while let Some(id) = self.conns.http2_server(sock).and_then(|http2| http2.waiting.pop()) {
            if let Some(exchange) = self.http2_servers.exchange(id) {
                self.mark_exchange(exchange);
                self.request_not_sent(reactor, exchange);
            }
        }
    }
}

/// Events of a connection.
impl Worker {
    /// A server ended its direction of the connection.
    pub(in crate::carrier) fn http2_server_finished<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        self.fail_http2_server(reactor, sock, Loss::Finished);
    }

    /// A connection to a server failed, was reset or ended.
    pub(in crate::carrier) fn http2_server_closed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        reason: CloseReason,
    ) {
        self.fail_http2_server(reactor, sock, Loss::Closed(reason));
    }

    /// The blocked output to a server has drained.
    pub(in crate::carrier) fn http2_server_drained<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        if let Some(http2) = self.conns.http2_server(sock) {
            http2.connection.output_drained();
        }
        let list = self.http2_servers.list(&mut self.conns, sock);
        for &id in &list {
            self.note_server_drained(reactor, id);
        }
        self.http2_servers.put_list(list);
        self.settle_http2_server(reactor, sock);
    }

    /// The deadline of a connection expired: its own, or that of some of its streams.
    pub(in crate::carrier) fn http2_server_due<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        let now = reactor.now();
        let Some(http2) = self.conns.http2_server(sock) else {
            return self.note_bug(reactor, sock);
        };
        if http2.is_connecting() {
            return self.fail_http2_server(reactor, sock, Loss::ConnectTimeout);
        }
        if http2.is_idle() {
            return self.idle_http2_server_due(reactor, sock);
        }
        http2.due_at = Moment::NEVER;
        let list = self.http2_servers.list(&mut self.conns, sock);
        for &id in &list {
            if let Some(exchange) = self.http2_servers.take_due(id, now) {
                self.mark_exchange(exchange);
                self.server_due(reactor, exchange);
            }
            let due_at = self.http2_servers.get(id).map_or(Moment::NEVER, |stream| stream.due_at);
            if let Some(http2) = self.conns.http2_server(sock) {
                http2.due_at = http2.due_at.min(due_at);
            }
        }
        self.http2_servers.put_list(list);
        self.settle_http2_server(reactor, sock);
    }

    /// The deadline of a connection without streams expired.
    fn idle_http2_server_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let now = reactor.now();
        let Some(up) = self.conns.upstream(sock) else { return };
        let timeout = self.settings.newest().pool(up.pool).reuse.idle_timeout;
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return };
        let idle_until = http2.idle_since.after(timeout);
        if now >= idle_until {
            return self.retire_upstream(reactor, sock);
        }
        http2.connection.shrink();
        http2.due_at = idle_until;
        reactor.set_deadline(sock, idle_until);
    }

    /// Sends GOAWAY on a connection without streams.
    pub(in crate::carrier) fn send_goaway<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        if let Some(http2) = self.conns.http2_server(sock)
            && let Some(out) = reactor.output(sock)
        {
            http2.connection.stop_now(out);
        }
    }

    /// The connection takes no more requests. Its current requests continue.
    pub(crate) fn retire_http2_server(&mut self, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return };
        let (pool, server) = (up.pool, up.server);
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return };
        http2.is_retired = true;
        self.pools[usize::from(pool)].shared.remove(usize::from(server), sock);
        self.note_shared(pool, server);
        settle_server_later(&mut self.conns, &mut self.work, sock);
    }

    /// Retires a connection on which no byte arrived for `span`: its server may be unreachable.
    pub(in crate::carrier) fn retire_silent_http2_server<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        span: Span,
    ) {
        let now = reactor.now();
        if self.conns.http2_server(sock).is_some_and(|http2| http2.last_byte_at.after(span) <= now)
        {
            self.retire_http2_server(sock);
        }
    }

    /// Ends a lost connection, with the unfinished exchanges of its streams.
    pub(super) fn fail_http2_server<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        loss: Loss,
    ) {
        let Some(http2) = self.conns.http2_server(sock) else {
            return self.note_bug(reactor, sock);
        };
        let was_connecting = http2.is_connecting();
        let streams = http2.take_streams();
        let is_unsent = reactor.is_guarded(sock) || loss == Loss::Closed(CloseReason::Unsent);
        let counters = &self.accounts.counters;
        match loss {
            Loss::Misbehaved => counters.upstream_faults.add(1),
            _ if was_connecting => counters.upstream_connect_failures.add(1),
            _ if streams.is_empty() || is_unsent => counters.upstream_idle_closes.add(1),
            Loss::Closed(_) | Loss::Finished | Loss::ConnectTimeout => {}
        }
        if !streams.is_empty() {
            self.conns.note_detached();
        }
        // Another connection may get the same slot.
        self.drop_upstream(sock);
        match loss {
            Loss::Closed(_) => reactor.abort(sock),
            Loss::Misbehaved | Loss::Finished => reactor.close(sock),
            Loss::ConnectTimeout => reactor.abort(sock),
        }
        for id in streams {
            self.fail_server_stream(reactor, id, loss, was_connecting, is_unsent);
        }
    }

    /// Ends the unfinished exchange of a stream of a lost connection.
    fn fail_server_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ServerStream>,
        loss: Loss,
        was_connecting: bool,
        is_unsent: bool,
    ) {
        let Some(lost) = self.http2_servers.note_gone(id) else { return };
        let exchange = lost.exchange;
        self.mark_exchange(exchange);
        if lost.is_tunnel {
            return self.lose_tunnel(reactor, lost);
        }
        if lost.is_response_done {
            return self.give_up_request(reactor, exchange);
        }
        match loss {
            Loss::ConnectTimeout => self.connect_timed_out(reactor, exchange),
            Loss::Closed(reason) if was_connecting => self.server_closed(reactor, exchange, reason),
            _ if lost.was_waiting => self.request_not_sent(reactor, exchange),
            _ if is_unsent => self.request_unprocessed(reactor, exchange),
            Loss::Misbehaved => self.server_misbehaved(reactor, exchange, MALFORMED),
            Loss::Closed(_) | Loss::Finished => self.server_ended_early(reactor, exchange),
        }
    }

    /// Sends as much as the windows and the output allow, opens waiting streams, and sets the deadline of the connection. Called
    /// after anything has happened on it.
    pub(crate) fn settle_http2_server<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.open_waiting(reactor, sock);
        self.send_admitted_to_server(reactor, sock);
        let stopping = self.stopping;
        // Events on the connection may have closed it.
        let Some(up) = self.conns.upstream(sock) else { return };
        let reuse = self.settings.newest().pool(up.pool).reuse;
        let ServerCarrier::Http2(http2) = &mut up.carrier else { return };
        http2.is_settling = false;
        if http2.connection.is_stopping() && !http2.is_retired {
            self.retire_http2_server(sock);
            self.send_waiting_elsewhere(reactor, sock);
        }
        let Some(http2) = self.conns.http2_server(sock) else { return };
        let is_ending = http2.is_retired || stopping || reuse.idle_max == 0;
        let is_over = http2.connection.is_finished() && http2.connection.open_streams() == 0;
        if http2.is_idle() && (is_ending || is_over) {
            return self.retire_upstream(reactor, sock);
        }
        let now = reactor.now();
        if http2.is_idle() && http2.idle_since == Moment::NEVER {
            http2.idle_since = now;
            http2.due_at = now.after(SHRINK_SPAN.min(reuse.idle_timeout));
        }
        reactor.set_deadline(sock, http2.due_at);
        // The requests of several exchanges, and pieces of their bodies, are sent in one system call. Replies are sent at once,
        // because their number is limited while the server does not take them.
        let pending = reactor.output_pending(sock);
        if !(1..GATHERED_BYTES_MAX).contains(&pending) || http2.connection.has_replies() {
            return self.flush_http2_server(reactor, sock);
        }
        if !core::mem::replace(&mut http2.is_gathering, true) {
            self.http2_servers.note_gathering(sock);
        }
    }

    /// Sends the data that was gathered for connections in this turn.
    pub(crate) fn send_gathered_requests<R: Reactor>(&mut self, reactor: &mut R) {
        while let Some(sock) = self.http2_servers.take_gathering() {
            if let Some(http2) = self.conns.http2_server(sock) {
                http2.is_gathering = false;
                self.mark_gathered(sock);
                self.flush_http2_server(reactor, sock);
            }
        }
    }

    /// Sends the output of a connection. If data is pending after that, the server does not read it.
    pub(in crate::carrier) fn flush_http2_server<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        let Some(http2) = self.conns.http2_server(sock) else { return };
        let may_send = !http2.is_connecting() && !reactor.is_guarded(sock);
        if reactor.output_pending(sock) > 0 && may_send {
            reactor.flush(sock);
        }
        let pending = reactor.output_pending(sock);
        if pending == 0 {
            // Most output is taken at once, and then no completion reports that.
            http2.connection.output_drained();
        }
        let now = reactor.now();
        self.note_server_output(now, sock, if may_send { pending } else { 0 });
    }

    /// Opens the streams that wait, as far as the server allows. While the server does not take the output, they wait: a stream
    /// that ended early would leave its head in the output, and give its place to another one.
    fn open_waiting<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        while let Some(http2) = self.conns.http2_server(sock)
            && !http2.waiting.is_empty()
            && http2.may_open()
            && !is_blocked(reactor, sock)
        {
            let Some(&id) = http2.waiting.first() else { return };
            let connects = self.http2_servers.get(id).is_some_and(ServerStream::is_connect);
            let support = match connects {
                true => self.connect_support(sock),
                false => ConnectSupport::Announced,
            };
            if support == ConnectSupport::Unknown {
                // The server's SETTINGS decide.
                return;
            }
            if let Some(http2) = self.conns.http2_server(sock) {
                http2.waiting.remove(0);
            }
            match support {
                ConnectSupport::Absent => self.refuse_connect(reactor, id),
                ConnectSupport::Unknown | ConnectSupport::Announced => {
                    // Another exchange may have put its request behind those that wait.
                    let earlier = self.current_mark();
                    self.mark_server_stream(id);
                    self.open_server_stream(reactor, id);
                    self.restore_mark(earlier);
                }
            }
        }
    }

    /// Opens a stream and sends the request as far as it has arrived.
    fn open_server_stream<R: Reactor>(&mut self, reactor: &mut R, id: Id<ServerStream>) {
        let (servers, mut links) = self.server_streams(reactor);
        match servers.open(&mut links, id) {
            Opening::Stale | Opening::Sent => {}
            Opening::Broken(sock) => self.note_bug(reactor, sock),
            Opening::Refused(sock, exchange) => {
                self.retire_http2_server(sock);
                self.request_not_sent(reactor, exchange);
            }
            Opening::Begun(exchange) => {
                if let Some(exchange) = self.exchanges.get(exchange) {
                    let to = exchange.requester;
                    self.resume_request(to);
                }
            }
        }
    }

    /// Sends the data that waits on the connection's streams, as far as the windows and the output allow.
    fn send_admitted_to_server<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        loop {
            let (servers, mut links) = self.server_streams(reactor);
            let Some(id) = servers.send_admitted(&mut links, sock) else { return };
            self.note_server_drained(reactor, id);
        }
    }

    /// The server takes the body of this stream's request again.
    fn note_server_drained<R: Reactor>(&mut self, reactor: &mut R, id: Id<ServerStream>) {
        let Some(exchange_id) = self.http2_servers.caught_up(id) else { return };
        self.mark_exchange(exchange_id);
        let Some(exchange) = self.exchanges.get(exchange_id) else { return };
        if exchange.stage == Stage::ExpectRequestEnd && exchange.request.is_done() {
            return self.end_exchange(reactor, exchange_id, false);
        }
        self.server_drained(reactor, exchange_id);
    }

    /// Puts a stream at the end of those that wait, and opens it if that is possible at once.
    pub(super) fn add_waiting<R: Reactor>(&mut self, reactor: &mut R, id: Id<ServerStream>) {
        let Some(sock) = self.http2_servers.get(id).map(|stream| stream.sock) else { return };
        let Some(http2) = self.conns.http2_server(sock) else {
            return self.note_bug(reactor, sock);
        };
        http2.waiting.push(id);
        self.open_waiting(reactor, sock);
    }

    /// Records whether the connections to a server take more requests.
    pub(in crate::carrier) fn note_shared(&mut self, pool: u16, server: u16) {
        let state = &mut self.pools[usize::from(pool)];
        let server = usize::from(server);
        let is_full = state.shared.is_full(server);
        let was_full = state.state.is_full(server);
        state.state.set_full(server, is_full);
        if was_full && !is_full {
            self.note_unserved(pool);
        }
    }
}
