//! Server connections: decode responses, relay them, keep or close the connection.
//! In: bytes and events of upstream connections. Out: responses in the output of downstream connections.
//! Never: derives a response's framing a second time; reuses a connection if the end of its last response is
//! in doubt.
//! Invariant: an idle connection (`exchange` is `Id::NONE`) is either in its pool's idle list or kept for one
//! client (client.rs), never both. Any byte received while idle, or before the next request has begun to be
//! sent, closes it.

use std::rc::Rc;

use tidegate_base::{Id, Moment, Span};
use tidegate_gate::connection_auth;
use tidegate_gate::filter::hsts::Hsts;
use tidegate_gate::forward::{self, ResponseContext};
use tidegate_gate::retry::FailurePoint;
use tidegate_reactor::{CloseReason, OutputLook, Reactor, SockId};
use tidegate_wire::http1::{self, BodyDecoder, HeadDecoder, ResponseEncoder, ResponseLimits};
use tidegate_wire::message::{
    BodyLength, FieldName, RequestKind, ResponseHead, ResponseStorage, Version,
};

use crate::action::proxy::dispatch::{Failure, NO_CONNECT, send_framed};
use crate::action::proxy::exchange::{Exchange, Framing, Stage};
use crate::action::proxy::tunnel::Side;
use crate::carrier::http1::client::{is_blocked, look_again_at, next_look};
use crate::connection::DownstreamState;
use crate::worker::{Work, Worker};

impl Worker {
    /// A connect succeeded.
    pub(crate) fn upstream_connected<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return };
        let id = up.exchange;
        if let Some(exchange) = self.exchanges.get_mut(id) {
            exchange.stage = Stage::ExpectResponse;
            let (pool, server) = (exchange.pool, exchange.server);
            self.pools[usize::from(pool)].state.note_connect_success(usize::from(server));
            self.arm_upstream(reactor, id);
        }
    }

    /// A server sent bytes.
    pub(crate) fn upstream_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) {
        let Some(up) = self.conns.upstream(sock) else { return };
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
        if up.input.is_empty() {
            let used = self.decode_upstream(reactor, sock, bytes);
            if let Some(up) = self.conns.upstream(sock)
                && used < bytes.len()
            {
                up.input.push(&bytes[used..], &mut self.buffers);
            }
            return;
        }
        let mut input = core::mem::take(&mut up.input);
        input.push(bytes, &mut self.buffers);
        let used = self.decode_upstream(reactor, sock, input.as_slice());
        input.consume(used);
        match self.conns.upstream(sock) {
            Some(up) if !input.is_empty() => up.input = input,
            _ => input.release(&mut self.buffers),
        }
    }

    /// Decodes `bytes` of a response. Bytes that it leaves unprocessed are the beginning of a head.
    fn decode_upstream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let Some(up) = self.conns.upstream(sock) else { return bytes.len() };
            let id = up.exchange;
            let Some(exchange) = self.exchanges.get_mut(id) else {
                // More bytes follow a complete response.
                self.accounts.counters.upstream_faults.add(1);
                self.discard_upstream(reactor, sock);
                return bytes.len();
            };
            exchange.response_started = true;
            let rest = &bytes[used..];
            let step = match exchange.stage {
                Stage::Buffering
                | Stage::Queued
                | Stage::Paused
                | Stage::Connecting
                | Stage::ExpectResponse => self.decode_response(reactor, sock, id, rest),
                Stage::ExpectBody => self.relay_body(reactor, sock, id, rest),
                Stage::ExpectRequestEnd => {
                    // More bytes follow a complete response.
                    self.accounts.counters.upstream_faults.add(1);
                    self.give_up_request(reactor, id);
                    return bytes.len();
                }
                Stage::Tunnel => self.tunnel_received(reactor, id, Side::Server, rest),
            };
            if step == 0 {
                break;
            }
            used += step;
        }
        used
    }

    /// Decodes one response head and relays it. Returns 0 if the head is not complete yet.
    fn decode_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        id: Id<Exchange>,
        bytes: &[u8],
    ) -> usize {
        let Some(exchange) = self.exchanges.get(id) else { return bytes.len() };
        let kind = RequestKind {
            is_head: exchange.is_head,
            is_connect: false,
            upgrade_asked: exchange.upgrade,
        };
        let is_strict = self.snapshot.config.pools[usize::from(exchange.pool)].strict;
        let limits = ResponseLimits { is_strict, ..ResponseLimits::default() };
        let Some(up) = self.conns.upstream(sock) else { return bytes.len() };
        let mut storage = ResponseStorage::new();
        match up.decoder.decode_response(bytes, &limits, kind, &mut storage) {
            Ok(None) => 0,
            Ok(Some((head, head_bytes))) => {
                up.decoder = HeadDecoder::default();
                match head.status {
                    101 if !self.is_switch_requested(id, &head) => {
                        self.accounts.counters.upstream_faults.add(1);
                        let text =
                            "the server switched to a protocol that the client did not request";
                        self.upstream_failed(reactor, sock, id, Failure { status: 502, text });
                        return bytes.len();
                    }
                    101 => self.begin_tunnel(reactor, id, &head),
                    100..=199 => self.relay_interim(reactor, id, &head),
                    _ => {
                        let over = bytes.len() > head_bytes;
                        self.relay_head(reactor, id, &head, over);
                    }
                }
                head_bytes
            }
            Err(_) => {
                self.accounts.counters.upstream_faults.add(1);
                let text = "the server's response is malformed";
                self.upstream_failed(reactor, sock, id, Failure { status: 502, text });
                bytes.len()
            }
        }
    }

    /// Whether a 101 response matches the request, whose head is at the start of `replay`.
    fn is_switch_requested(&self, id: Id<Exchange>, head: &ResponseHead<'_>) -> bool {
        let exchange = self.exchanges.get(id);
        exchange.is_some_and(|exchange| forward::switches_as_requested(&exchange.replay, head))
    }

    fn relay_interim<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        head: &ResponseHead<'_>,
    ) {
        let snapshot = Rc::clone(&self.snapshot);
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        exchange.awaits_continue &= head.status != 100;
        let (down, up) = (exchange.down, exchange.up);
        // RFC 9110 section 15.2: HTTP/1.0 clients do not know interim responses.
        if exchange.client_version > Version::Http10
            && let Some(out) = reactor.output(down)
        {
            let encoder = &mut ResponseEncoder::new(out, exchange.client_version, false);
            forward::encode_interim(encoder, head, &snapshot.config.server.via);
            self.accounts.counters.count_answer(head.status);
        }
        // The deadline of the final head is not extended, so that interim responses cannot defer it forever.
        if is_blocked(reactor, down) {
            self.hold_upstream(reactor, up, down);
        }
    }

    /// Relays the final head. `more_follows`: bytes follow the head, so a response without a body is too
    /// long.
    fn relay_head<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        head: &ResponseHead<'_>,
        more_follows: bool,
    ) {
        let snapshot = Rc::clone(&self.snapshot);
        let stopping = self.stopping;
        self.date.update(reactor.unix_seconds());
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if connection_auth::response_authenticates(head)
            && let Some(up) = self.conns.upstream(exchange.up)
        {
            up.authenticated = true;
        }
        let hsts = self.conns.downstream(exchange.down).map_or(0, |down| down.hsts);
        let has_connection = head.has(FieldName::Connection);
        let drops_trailers = forward::names_fields(head.fields(), has_connection);
        let is_strict = snapshot.config.pools[usize::from(exchange.pool)].strict;
        exchange.response_body = BodyDecoder::new(head.length)
            .dropping_trailers(drops_trailers)
            .accepting_blanks(!is_strict);
        exchange.keep_upstream =
            exchange.reusable && head.persistent && head.length != BodyLength::UntilClose;
        // If the response is early, the rest of the request is still forwarded, and the next request follows
        // it. But a client that gets a final response instead of 100 (Continue) may omit the body, and a
        // server that closes will not take the rest.
        let rest_follows = !exchange.awaits_continue && head.persistent;
        exchange.keep_downstream &= (exchange.request_done || rest_follows) && !stopping;
        exchange.response_relayed = true;
        exchange.stage = Stage::ExpectBody;
        let context = ResponseContext {
            date: self.date.as_bytes(),
            via: &snapshot.config.server.via,
            request_is_head: exchange.is_head,
        };
        if let Some(out) = reactor.output(exchange.down) {
            let close = !exchange.keep_downstream;
            let mut encoder = ResponseEncoder::new(out, exchange.client_version, close);
            match snapshot.hsts.value(hsts) {
                "" => forward::encode_downstream_response(&mut encoder, head, &context),
                hsts => {
                    let sink = &mut Hsts::new(&mut encoder, hsts);
                    forward::encode_downstream_response(sink, head, &context);
                }
            }
            exchange.response_framing = encoder.framing();
            exchange.keep_downstream = !encoder.closes();
        }
        self.accounts.counters.count_answer(head.status);
        if matches!(head.length, BodyLength::None | BodyLength::Length(0)) {
            self.finish_exchange(reactor, id, more_follows);
        } else {
            self.arm_upstream(reactor, id);
        }
    }

    /// Relays bytes of the response body to the client. Returns how many of `bytes` were processed.
    fn relay_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        id: Id<Exchange>,
        bytes: &[u8],
    ) -> usize {
        let Some(exchange) = self.exchanges.get_mut(id) else { return bytes.len() };
        let Ok(step) = exchange.response_body.decode(bytes) else {
            self.accounts.counters.upstream_faults.add(1);
            let text = "the server's response is malformed";
            self.upstream_failed(reactor, sock, id, Failure { status: 502, text });
            return bytes.len();
        };
        let (down, framing) = (exchange.down, exchange.response_framing);
        send_framed(reactor, down, framing, step.data);
        if step.done {
            self.finish_exchange(reactor, id, step.consumed < bytes.len());
            return step.consumed;
        }
        if is_blocked(reactor, down) {
            self.hold_upstream(reactor, sock, down);
        }
        self.arm_upstream(reactor, id);
        step.consumed
    }

    /// Stops reading from the server until the client's output has drained.
    pub(crate) fn hold_upstream<R: Reactor>(&mut self, reactor: &mut R, up: SockId, down: SockId) {
        reactor.set_receiving(up, false);
        self.hold_downstream(reactor, down);
    }

    /// Reads from the server again, after the client's output has drained.
    pub(crate) fn resume_upstream_of<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        if let Some(exchange) = self.exchanges.get(id) {
            let stage = exchange.stage;
            reactor.set_receiving(exchange.up, true);
            match stage {
                Stage::Tunnel => self.arm_tunnel(reactor, id),
                _ => self.arm_upstream(reactor, id),
            }
        }
    }

    /// The response is complete. Ends the exchange, unless the rest of the request body must still be forwarded.
    fn finish_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        more_follows: bool,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let (down, up) = (exchange.down, exchange.up);
        if exchange.response_framing == Framing::Chunked
            && let Some(out) = reactor.output(down)
        {
            http1::encode_last_chunk(out, exchange.response_body.trailers());
        }
        if more_follows {
            self.accounts.counters.upstream_faults.add(1);
        }
        if exchange.request_done || exchange.awaits_continue {
            return self.end_exchange(reactor, id, more_follows);
        }
        exchange.stage = Stage::ExpectRequestEnd;
        // A server that answers early may take the rest of the body for the next request.
        exchange.keep_upstream = false;
        if more_follows {
            return self.give_up_request(reactor, id);
        }
        reactor.set_receiving(up, true);
        self.arm_upstream(reactor, id);
        self.work.push(Work::Resume(down));
    }

    /// Ends an exchange whose response is complete and whose request will not be forwarded any further. Keeps or
    /// closes each of the two connections.
    pub(crate) fn end_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        more_follows: bool,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (down, up) = (exchange.down, exchange.up);
        let (pool, server) = (exchange.pool, exchange.server);
        let keep_downstream = exchange.keep_downstream;
        // A server that responds before it has read the whole request may leave the rest unread.
        let request_sent = exchange.request_done && reactor.output_pending(up) == 0;
        let keep_upstream = exchange.keep_upstream && request_sent && !more_follows;
        // A reset would destroy the part of the request body that the server has not read yet.
        let has_body = exchange.request_done && exchange.request_bytes > 0 && !more_follows;
        self.release_server(pool, server);
        self.forget_exchange(id);
        if keep_upstream && !self.stopping {
            self.keep_idle(reactor, up, down, keep_downstream);
        } else if has_body {
            self.close_upstream(reactor, up);
        } else {
            self.discard_upstream(reactor, up);
        }
        if keep_downstream {
            self.expect_next(reactor, down);
        } else {
            if let Some(conn) = self.conns.downstream(down) {
                conn.state = DownstreamState::ExpectHead;
            }
            self.close_downstream(reactor, down);
        }
    }

    /// The server takes no more of a request whose response is complete. The rest of the body is discarded to
    /// keep the client's connection, or the connection is closed. Does nothing in other stages.
    pub(crate) fn give_up_request<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if exchange.stage != Stage::ExpectRequestEnd {
            return;
        }
        let (down, up) = (exchange.down, exchange.up);
        let (pool, server) = (exchange.pool, exchange.server);
        let keep_downstream = exchange.keep_downstream && !self.stopping;
        let nothing = BodyDecoder::new(BodyLength::None);
        let rest = core::mem::replace(&mut exchange.request_body, nothing);
        self.release_server(pool, server);
        self.forget_exchange(id);
        self.discard_upstream(reactor, up);
        let blocked = is_blocked(reactor, down);
        let Some(conn) = self.conns.downstream(down) else { return };
        conn.blocked = blocked;
        conn.state = DownstreamState::discarding(rest);
        if keep_downstream {
            self.work.push(Work::Resume(down));
        } else {
            self.close_downstream(reactor, down);
        }
    }

    /// Makes an upstream connection idle, or closes it if it may not be reused. A connection that began with
    /// a PROXY header, or that is authenticated, is kept for its client only, if the client's connection stays open (`down_stays`).
    fn keep_idle<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        down: SockId,
        down_stays: bool,
    ) {
        let Some(up) = self.conns.upstream(sock) else { return };
        let (pool, server) = (up.pool, up.server);
        let settings = &self.snapshot.config.pools[usize::from(pool)];
        let reuse = settings.reuse;
        let private = settings.proxy_protocol.is_some() || up.authenticated;
        if !core::mem::replace(&mut up.exchange, Id::NONE).is_none() {
            self.attached -= 1;
        }
        up.decoder = HeadDecoder::default();
        let used_up = reuse.requests_max.is_some_and(|most| up.requests >= most);
        if used_up || reuse.idle_max == 0 || (private && !down_stays) {
            return self.close_upstream(reactor, sock);
        }
        reactor.set_receiving(sock, true);
        let now = reactor.now();
        reactor.set_deadline(sock, now.after(reuse.idle_timeout));
        if private {
            return self.keep_for_client(reactor, sock, down);
        }
        let idle = &mut self.pools[usize::from(pool)].idle;
        if let Some(oldest) = idle.push(usize::from(server), sock, now) {
            self.close_upstream(reactor, oldest);
        }
    }

    /// A server ended its direction of the connection.
    pub(crate) fn upstream_finished<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return };
        let id = up.exchange;
        let Some(exchange) = self.exchanges.get_mut(id) else {
            self.accounts.counters.upstream_idle_closes.add(1);
            self.lose_idle(reactor, sock);
            return reactor.close(sock);
        };
        match exchange.stage {
            Stage::Tunnel => self.tunnel_finished(reactor, id, Side::Server),
            Stage::ExpectBody if exchange.response_body.handle_end().is_ok() => {
                self.finish_exchange(reactor, id, false);
                self.give_up_request(reactor, id);
            }
            Stage::ExpectRequestEnd => self.give_up_request(reactor, id),
            _ if reactor.is_guarded(sock) => {
                self.accounts.counters.upstream_idle_closes.add(1);
                self.request_not_sent(reactor, sock, id);
            }
            _ => self.upstream_ended_early(reactor, sock, id),
        }
    }

    /// A connection to a server failed, was reset or ended.
    pub(crate) fn upstream_closed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        reason: CloseReason,
    ) {
        let Some(up) = self.conns.upstream(sock) else { return };
        let id = up.exchange;
        let Some(exchange) = self.exchanges.get(id) else {
            self.accounts.counters.upstream_idle_closes.add(1);
            self.lose_idle(reactor, sock);
            return reactor.abort(sock);
        };
        match exchange.stage {
            Stage::Tunnel => self.reset_tunnel(reactor, id),
            Stage::ExpectRequestEnd => self.give_up_request(reactor, id),
            Stage::Connecting if reason != CloseReason::Ended => {
                self.accounts.counters.upstream_connect_failures.add(1);
                self.drop_upstream(sock);
                match reason {
                    CloseReason::ConnectShortage(shortage) => {
                        self.attempt_hit_shortage(reactor, id, shortage);
                    }
                    _ => self.attempt_failed(reactor, id, FailurePoint::Connect, NO_CONNECT),
                }
            }
            _ if reason == CloseReason::Unsent => {
                self.accounts.counters.upstream_idle_closes.add(1);
                self.request_not_sent(reactor, sock, id);
            }
            _ => self.upstream_ended_early(reactor, sock, id),
        }
    }

    /// A reused connection failed before the first byte of the request was sent: the request goes to another
    /// connection.
    fn request_not_sent<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, id: Id<Exchange>) {
        self.drop_upstream(sock);
        reactor.abort(sock);
        let text = "the server closed the connection before the request was sent";
        let failure = Failure { status: 502, text };
        self.attempt_failed(reactor, id, FailurePoint::NotSent, failure);
    }

    /// The server ended the connection before its response was complete.
    fn upstream_ended_early<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        id: Id<Exchange>,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        if exchange.response_started {
            let text = "the server closed the connection in the middle of its response";
            return self.upstream_failed(reactor, sock, id, Failure { status: 502, text });
        }
        let point =
            if exchange.reused { FailurePoint::ReusedReset } else { FailurePoint::FreshReset };
        self.drop_upstream(sock);
        reactor.abort(sock);
        let text = "the server closed the connection without sending a response";
        let failure = Failure { status: 502, text };
        self.attempt_failed(reactor, id, point, failure);
    }

    /// The attempt failed and must not be repeated: the request may have been executed.
    fn upstream_failed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        id: Id<Exchange>,
        failure: Failure,
    ) {
        if let Some(exchange) = self.exchanges.get(id) {
            let (pool, server) = (exchange.pool, exchange.server);
            self.release_server(pool, server);
        }
        self.drop_upstream(sock);
        reactor.abort(sock);
        self.fail(reactor, id, failure);
    }

    /// The blocked output to a server has drained.
    pub(crate) fn upstream_drained<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return };
        let id = up.exchange;
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (down, stage) = (exchange.down, exchange.stage);
        if stage == Stage::Tunnel {
            reactor.set_receiving(down, true);
            self.arm_tunnel(reactor, id);
        } else {
            self.arm_upstream(reactor, id);
        }
        self.work.push(Work::Resume(down));
    }

    /// The deadline of a connection to a server expired.
    pub(crate) fn upstream_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return };
        let id = up.exchange;
        let Some(exchange) = self.exchanges.get(id) else {
            return self.retire_upstream(reactor, sock);
        };
        let (request_bytes, request_done) = (exchange.request_bytes, exchange.request_done);
        let timeout = self.snapshot.config.pools[usize::from(exchange.pool)].timeouts.body;
        let counters = &self.accounts.counters;
        match exchange.stage {
            Stage::Tunnel => self.tunnel_due(reactor, id),
            Stage::Connecting => {
                counters.connect_timeouts.add(1);
                counters.upstream_connect_failures.add(1);
                self.drop_upstream(sock);
                reactor.abort(sock);
                let text = "timed out connecting to the server";
                let failure = Failure { status: 504, text };
                self.attempt_failed(reactor, id, FailurePoint::Connect, failure);
            }
            Stage::Buffering | Stage::Queued | Stage::Paused | Stage::ExpectResponse => {
                let pending = reactor.output_pending(sock) > 0;
                if !request_done && !pending {
                    // The client sends its body slowly. The downstream deadline covers that.
                    return self.arm_upstream(reactor, id);
                }
                if pending || request_bytes > 0 {
                    let look = reactor.look_at_output(sock);
                    if look == OutputLook::Emptied {
                        // The time for the response begins when the server has the whole request.
                        return self.arm_upstream(reactor, id);
                    }
                    if let Some(at) = look_again_at(look, reactor.now(), timeout) {
                        return reactor.set_deadline(sock, at);
                    }
                }
                let counters = &self.accounts.counters;
                counters.response_timeouts.add(1);
                let text = "timed out waiting for the server's response";
                self.upstream_failed(reactor, sock, id, Failure { status: 504, text });
            }
            Stage::ExpectRequestEnd => {
                if reactor.output_pending(sock) == 0 {
                    // The client sends its body slowly. The downstream deadline covers that.
                    return self.arm_upstream(reactor, id);
                }
                if let Some(at) = next_look(reactor, sock, timeout) {
                    return reactor.set_deadline(sock, at);
                }
                self.accounts.counters.body_timeouts.add(1);
                self.give_up_request(reactor, id);
            }
            Stage::ExpectBody => {
                let down = exchange.down;
                if self.conns.downstream(down).is_some_and(|down| down.blocked) {
                    return self.arm_upstream(reactor, id);
                }
                if request_bytes > 0
                    && let Some(at) = next_look(reactor, sock, timeout)
                {
                    // The response is early, and the server still takes the rest of the request.
                    return reactor.set_deadline(sock, at);
                }
                self.accounts.counters.body_timeouts.add(1);
                let text = "the server stopped sending its response";
                self.upstream_failed(reactor, sock, id, Failure { status: 504, text });
            }
        }
    }

    /// Removes an upstream connection. The caller closes the socket.
    pub(crate) fn drop_upstream(&mut self, sock: SockId) {
        if let Some(mut up) = self.conns.remove_upstream(sock) {
            self.accounts.counters.upstream_now.sub(1);
            self.attached -= usize::from(!up.exchange.is_none());
            if !up.owner.is_none() {
                self.pools[usize::from(up.pool)].kept[usize::from(up.server)] -= 1;
            }
            up.input.release(&mut self.buffers);
        }
    }

    /// Closes in order an upstream connection that has no response in progress.
    pub(crate) fn close_upstream<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.drop_upstream(sock);
        reactor.close(sock);
    }

    /// Removes an idle upstream connection from where it is kept, and closes it in order.
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
        let Some(up) = self.conns.upstream(sock) else { return };
        if up.exchange.is_none() {
            let now = reactor.now();
            self.take_from_idle(sock, now);
        }
        self.drop_upstream(sock);
        reactor.abort(sock);
    }

    /// Removes an idle connection from the pool's idle list or from its owner. Returns how long it was in the list.
    pub(crate) fn take_from_idle(&mut self, sock: SockId, now: Moment) -> Option<Span> {
        let up = self.conns.upstream(sock)?;
        let (pool, server, owner) = (up.pool, up.server, up.owner);
        if owner.is_none() {
            return self.pools[usize::from(pool)].idle.remove(usize::from(server), sock, now);
        }
        self.forget_kept(owner);
        None
    }
}
