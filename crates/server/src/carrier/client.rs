//! The interface to clients: connections accepted, served and closed; messages for requesters.
//! In: completions of client connections; responses of actions. Out: calls of the connection's carrier.
//! Never: encodes or decodes a byte of a protocol.
//! Invariant: each request whose connection lasts gets exactly one response. It is sent whole (`answer`); begun,
//! ended and released; or cut.

use std::rc::Rc;

use tidegate_base::{Moment, Span};
use tidegate_gate::access::{Cause, Phase as RecordPhase};
use tidegate_gate::handling::FilterId;
use tidegate_gate::scheme::Scheme;
use tidegate_reactor::{ListenerId, Peer, Reactor, SockId};
use tidegate_wire::http2::ErrorCode;
use tidegate_wire::message::ResponseHead;

use crate::action::Running;
use crate::answer::{Answer, Head, Switch};
use crate::carrier::http1::client::{Http1Client, Phase};
use crate::carrier::http2::stream::Http2Stream;
use crate::carrier::output::{is_blocked, next_output_check};
use crate::carrier::{Progress, Rest};
use crate::client::begins_with_header;
use crate::connection::{ClientCarrier, ClientProtocol, Downstream};
use crate::requester::Requester;
use crate::settings::Era;
use crate::snapshot::Snapshot;
use crate::timers::WorkerTimer;
use crate::worker::{Work, Worker};

/// Connections of clients.
impl Worker {
    /// A listener accepted a connection.
    pub(crate) fn accept<R: Reactor>(
        &mut self,
        reactor: &mut R,
        listener: ListenerId,
        sock: SockId,
        peer: Peer,
    ) {
        self.accounts.counters.accepted.add(1);
        let listener = self.listener_index(listener).unwrap_or_default();
        let has_header = begins_with_header(self.settings.newest().listener(listener), peer);
        // A PROXY header names the client whose connection counts.
        if !has_header && !self.admit_connection(listener, sock, peer) {
            return reactor.abort(sock);
        }
        if !self.admit_to_listener(reactor, listener, sock) {
            self.listening.held_places.end(sock);
            return reactor.abort(sock);
        }
        self.accounts.counters.downstream_now.add(1);
        let settings = self.settings.newest().listener(listener);
        // On a listener with TLS, the PROXY header precedes the handshake, and the TLS layer reads it.
        let has_header = has_header && settings.tls.is_none();
        let phase = if has_header { Phase::ProxyHeader } else { Phase::NEXT_HEAD };
        let head_timeout = settings.timeouts.head;
        let scheme = Scheme::of_connection(settings.tls.is_some());
        let tcp = settings.forward.as_ref().and_then(|_| self.tcp_carrier(listener, has_header));
        let is_tcp = tcp.is_some();
        let carrier = tcp.unwrap_or_else(|| ClientCarrier::Http1(Http1Client::new(phase)));
        let era = self.settings.begin_use();
        self.note_listener_user(listener);
        let down = Downstream::new(peer, era, listener, scheme, carrier, reactor.now());
        self.conns.insert_downstream(sock, down);
        // The first head is subject to the head timeout. The idle timeout applies only after it.
        reactor.set_deadline(sock, reactor.now().after(head_timeout));
        if is_tcp {
            // A server may send the first bytes.
            self.resume_tcp_client(reactor, sock);
        }
    }

    /// Closes the connection gracefully: pending output is still sent.
    pub(crate) fn close_client<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.drop_client(reactor, sock);
        reactor.close(sock);
    }

    /// Removes a client connection and cancels everything in progress for it. The caller closes the socket.
    pub(crate) fn drop_client<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(mut down) = self.conns.remove_downstream(sock) else {
            return self.note_absent(sock);
        };
        self.accounts.counters.downstream_now.sub(1);
        self.listening.held_places.end(sock);
        let record = down.record();
        self.settings.end_use(down.era());
        self.end_listener_user(&down);
        self.release_kept(reactor, &mut down);
        match down.carrier {
            ClientCarrier::Http1(mut http1) => {
                let running = http1.running();
                http1.input.release(&mut self.buffers);
                self.cancel(reactor, running);
                self.finish_record(reactor, record);
            }
            ClientCarrier::Http2(http2) => {
                for &id in http2.streams() {
                    self.drop_stream(reactor, id);
                }
            }
            ClientCarrier::Tcp(mut tcp) => {
                tcp.input.release(&mut self.buffers);
                self.cancel(reactor, tcp.running());
                self.finish_record(reactor, record);
            }
        }
    }

    /// Closes all idle connections, and requests that the actions of switched connections end them. Part of a stop.
    pub(crate) fn close_idle<R: Reactor>(&mut self, reactor: &mut R) {
        self.end_waiting_sessions(reactor);
        self.end_tarpits(reactor);
        self.end_mirrors(reactor);
        let close = self.stop.drain.close();
        // Closing one connection may close another.
        for sock in self.conns.downstream_ids() {
            let Some(down) = self.conns.downstream(sock) else { continue };
            match &down.carrier {
                ClientCarrier::Http2(_) => {
                    if self.stop.drain.is_due(sock) {
                        self.stop_switched_streams(reactor, sock, |_, _| Some(close));
                    }
                    self.stop_http2_client(reactor, sock);
                }
                ClientCarrier::Http1(_) | ClientCarrier::Tcp(_) if down.has_nothing_under_way() => {
                    self.close_client(reactor, sock);
                }
                // The protocol of the connection is unknown, so it lasts until the end of the grace period.
                ClientCarrier::Tcp(_) => {}
                ClientCarrier::Http1(http1) => {
                    if let Some(running) =
                        http1.switched_to().filter(|_| self.stop.drain.is_due(sock))
                    {
                        self.stop_switched(reactor, running, close);
                    }
                }
            }
        }
        self.retire_idle_servers(reactor);
        if let Some(wait) = self.stop.drain.advance() {
            WorkerTimer::Idle.set(reactor, reactor.now().after(wait));
        }
    }
}

/// Events of client connections, handed to the protocol of the connection.
impl Worker {
    /// A client sent bytes.
    pub(crate) fn client_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &mut [u8],
    ) {
        match self.conns.client_protocol(sock) {
            Some(ClientProtocol::Http1) => self.http1_client_received(reactor, sock, bytes),
            Some(ClientProtocol::Http2) => self.http2_client_received(reactor, sock, bytes),
            Some(ClientProtocol::Tcp) => self.tcp_client_received(reactor, sock, bytes),
            None => self.note_bug(reactor, sock),
        }
    }

    /// A client ended its direction of the connection.
    pub(crate) fn client_finished<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        match self.conns.client_protocol(sock) {
            Some(ClientProtocol::Http1) => self.http1_client_finished(reactor, sock),
            Some(ClientProtocol::Http2) => self.http2_client_finished(reactor, sock),
            Some(ClientProtocol::Tcp) => self.tcp_client_finished(reactor, sock),
            None => self.note_bug(reactor, sock),
        }
    }

    /// A client ended its direction of the connection; bytes before the end are still unread.
    pub(crate) fn client_hung_up<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        match self.conns.client_protocol(sock) {
            Some(ClientProtocol::Http1) => self.http1_client_hung_up(reactor, sock),
            Some(ClientProtocol::Http2) => self.http2_client_hung_up(reactor, sock),
            Some(ClientProtocol::Tcp) => self.tcp_client_hung_up(reactor, sock),
            None => self.note_bug(reactor, sock),
        }
    }

    /// A client connection was reset or ended.
    pub(crate) fn client_closed<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        match self.conns.client_protocol(sock) {
            Some(ClientProtocol::Http1) => self.http1_client_closed(reactor, sock),
            Some(ClientProtocol::Http2) => self.http2_client_closed(reactor, sock),
            Some(ClientProtocol::Tcp) => self.tcp_client_closed(reactor, sock),
            None => self.note_bug(reactor, sock),
        }
    }

    /// The output to a client that was blocked has drained.
    pub(crate) fn client_output_drained<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        match self.conns.client_protocol(sock) {
            Some(ClientProtocol::Http1) => self.http1_client_drained(reactor, sock),
            Some(ClientProtocol::Http2) => self.http2_client_drained(reactor, sock),
            Some(ClientProtocol::Tcp) => self.tcp_client_drained(reactor, sock),
            None => self.note_bug(reactor, sock),
        }
    }

    /// The deadline of a client connection expired.
    pub(crate) fn client_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        match self.conns.client_protocol(sock) {
            Some(ClientProtocol::Http1) => self.http1_client_due(reactor, sock),
            Some(ClientProtocol::Http2) => self.http2_client_due(reactor, sock),
            Some(ClientProtocol::Tcp) => self.tcp_client_due(reactor, sock),
            None => self.note_bug(reactor, sock),
        }
    }

    /// Hands the action of a requester more of the request body, or decodes the next request.
    pub(crate) fn resume_client<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        if let Some(id) = to.as_own() {
            return self.resume_own(reactor, id);
        }
        if to.is_stream() {
            return self.resume_http2_stream(reactor, to);
        }
        match self.conns.client_protocol(to.sock) {
            Some(ClientProtocol::Http1) => self.resume_http1_client(reactor, to.sock),
            Some(ClientProtocol::Tcp) => self.resume_tcp_client(reactor, to.sock),
            // An earlier step has closed the connection, or begun HTTP/2 on it.
            Some(ClientProtocol::Http2) | None => {}
        }
    }
}

/// Messages for requesters. An action calls these; each works for every protocol.
impl Worker {
    /// The generation of settings that the request began with.
    pub(crate) fn era_of(&mut self, to: Requester) -> Era {
        match self.http2_clients.get(to.stream) {
            Some(stream) => stream.era,
            None => self.conns.downstream(to.sock).map_or(self.settings.era(), |down| down.era()),
        }
    }

    /// The settings that the request began with.
    pub(crate) fn settings_of(&mut self, to: Requester) -> Rc<Snapshot> {
        let era = self.era_of(to);
        Rc::clone(self.settings.of(era))
    }

    /// Records which action serves the request, so that the carrier can hand it the body and cancel it.
    pub(crate) fn set_running(&mut self, to: Requester, action: Running) {
        if let Some(id) = to.as_own() {
            return self.set_own_action(id, action);
        }
        match self.http2_clients.get_mut(to.stream) {
            Some(stream) => stream.set_action(action),
            None => self.set_http1_action(to.sock, action),
        }
    }

    /// Records the filters for the response.
    pub(crate) fn set_filters(&mut self, to: Requester, filters: FilterId) {
        match self.http2_clients.get_mut(to.stream) {
            Some(stream) => stream.set_filters(filters),
            None => self.set_http1_filters(to.sock, filters),
        }
    }

    /// Sends a complete response. The action has ended: it holds nothing for the request any more. `closes`:
    /// the rest of the connection cannot be trusted.
    pub(crate) fn answer<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        answer: &Answer<'_>,
        closes: bool,
    ) {
        match (to.is_stream(), to.as_own()) {
            (true, _) => self.answer_http2(reactor, to, answer),
            (false, None) => self.answer_http1(reactor, to.sock, answer, closes),
            (false, Some(id)) => self.answer_own(reactor, id, answer),
        }
    }

    /// Sends an error response with a short text.
    pub(crate) fn answer_error<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        status: u16,
        text: &'static str,
        closes: bool,
    ) {
        self.blame(to, Cause::of_status(status), text);
        self.answer(reactor, to, &Answer::Error { status, text }, closes);
    }

    /// Sends the head of a response whose body follows in pieces.
    pub(crate) fn begin_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &Head<'_>,
        rest: Rest,
    ) {
        match (to.is_stream(), to.as_own()) {
            (true, _) => self.begin_http2_response(reactor, to, head),
            (false, None) => self.begin_http1_response(reactor, to.sock, head, rest),
            (false, Some(id)) => self.begin_own_response(reactor, id, head),
        }
    }

    /// Relays an interim response.
    pub(crate) fn send_interim<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &ResponseHead<'_>,
    ) {
        match (to.is_stream(), to.as_own()) {
            (true, _) => self.send_http2_interim(reactor, to, head),
            (false, None) => self.send_http1_interim(reactor, to.sock, head),
            (false, Some(_)) => {}
        }
    }

    /// Asks for the body of a request that expects 100 (Continue).
    pub(crate) fn send_continue<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        match to.is_stream() {
            true => {
                let (clients, mut links) = self.client_streams(reactor);
                clients.send_continue(&mut links, to);
            }
            false => self.send_http1_continue(reactor, to.sock),
        }
    }

    /// Sends a piece of the response body. The caller pauses its source while `is_client_blocked`.
    pub(crate) fn send_data<R: Reactor>(&mut self, reactor: &mut R, to: Requester, data: &[u8]) {
        self.note_bytes_out(to, data.len());
        match (to.is_stream(), to.as_own()) {
            (true, _) => {
                let (clients, mut links) = self.client_streams(reactor);
                clients.send(&mut links, to, data, false);
            }
            (false, None) => self.send_http1_data(reactor, to.sock, data),
            (false, Some(id)) => self.take_own_data(id, data),
        }
    }

    /// Sends the last piece of the response body, which may be empty, and ends the response. The action may still
    /// take the rest of the request.
    pub(crate) fn end_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        data: &[u8],
        trailers: &[u8],
    ) {
        self.note_bytes_out(to, data.len());
        self.note_phase(to, RecordPhase::Last);
        if let Some(id) = to.as_own() {
            return self.end_own_response(id, data);
        }
        let kept = self.kept_trailers(to, trailers);
        let trailers = kept.as_deref().unwrap_or(trailers);
        match to.is_stream() {
            true => {
                let (clients, mut links) = self.client_streams(reactor);
                clients.end(&mut links, to, data, trailers);
            }
            false => self.end_http1_response(reactor, to.sock, data, trailers),
        }
    }

    /// The trailers without the fields that the route removes from responses; `None`: unchanged.
    fn kept_trailers(&mut self, to: Requester, trailers: &[u8]) -> Option<Vec<u8>> {
        if trailers.is_empty() {
            return None;
        }
        let filters = match self.http2_clients.get(to.stream) {
            Some(stream) => stream.filters,
            None => self.http1_request(to.sock)?.filters,
        };
        let era = self.era_of(to);
        let settings = self.settings.of(era);
        settings.handlings.filters(filters, b"").kept_trailers(trailers)
    }

    /// The action has ended, after the end of its response.
    pub(crate) fn release_requester<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        match (to.is_stream(), to.as_own()) {
            (true, _) => self.release_http2(reactor, to),
            (false, None) => self.release_http1(reactor, to.sock),
            (false, Some(id)) => self.release_own(reactor, id),
        }
    }

    /// Cuts off a response that cannot be completed. The action has ended.
    pub(crate) fn cut_response<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        match (to.is_stream(), to.as_own()) {
            (true, _) => self.cut_http2_response(reactor, to),
            (false, None) => self.cut_http1_response(reactor, to.sock),
            (false, Some(id)) => self.cut_own(reactor, id),
        }
    }

    /// Passes on that the server has reset a response, with its code if the protocol has codes. The action has ended.
    pub(crate) fn reset_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        code: ErrorCode,
    ) {
        match (to.is_stream(), to.as_own()) {
            (true, _) => self.reset_http2_response(reactor, to, code),
            (false, None) => self.cut_http1_response(reactor, to.sock),
            (false, Some(id)) => self.cut_own(reactor, id),
        }
    }

    /// Whether the request is a call of gRPC, whose client reads the codes of resets.
    pub(crate) fn is_call(&self, to: Requester) -> bool {
        self.http2_clients.get(to.stream).is_some_and(Http2Stream::is_call)
    }

    /// How far the response to the requester has progressed.
    pub(crate) fn progress(&mut self, to: Requester) -> Progress {
        if let Some(id) = to.as_own() {
            return self.own_progress(id);
        }
        match self.http2_clients.get(to.stream) {
            Some(stream) => stream.progress(),
            None => self.http1_progress(to.sock),
        }
    }

    /// Whether the rest of the request may never arrive, because the client waits for 100 (Continue).
    pub(crate) fn awaits_continue(&mut self, to: Requester) -> bool {
        // Once the response is complete, no caller waits for the end of its request.
        if to.as_own().is_some() {
            return true;
        }
        match self.http2_clients.get(to.stream) {
            Some(stream) => stream.awaits_continue(),
            None => self.http1_awaits_continue(to.sock),
        }
    }

    /// Whether the client's connection stays open after the response.
    pub(crate) fn stays_open(&mut self, to: Requester) -> bool {
        to.is_stream() || to.as_own().is_none() && self.http1_stays_open(to.sock)
    }

    /// Whether the client does not read its response fast enough.
    pub(crate) fn is_client_blocked<R: Reactor>(&self, reactor: &mut R, to: Requester) -> bool {
        match (to.is_stream(), to.as_own()) {
            (true, _) => self.http2_clients.is_blocked(reactor, to),
            (false, None) => is_blocked(reactor, to.sock),
            (false, Some(id)) => self.own.is_full(id),
        }
    }

    /// Bytes that wait for the client: on its stream, because its windows do not admit them, and in the output of its connection.
    pub(crate) fn client_pending<R: Reactor>(&self, reactor: &R, to: Requester) -> usize {
        let of_stream = self.http2_clients.get(to.stream).map_or(0, Http2Stream::pending);
        of_stream + reactor.output_pending(to.sock)
    }

    /// Suspends a response until the client's output has drained; then the action's `client_drained` is called.
    pub(crate) fn hold_client<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        match to.is_stream() {
            true => {
                let (clients, mut links) = self.client_streams(reactor);
                clients.hold(&mut links, to);
            }
            false => self.hold_http1(reactor, to.sock),
        }
    }

    /// Whether the response is suspended.
    pub(crate) fn is_client_held(&mut self, to: Requester) -> bool {
        if to.as_own().is_some() {
            return false;
        }
        match self.http2_clients.get(to.stream) {
            Some(stream) => stream.is_held(),
            None => self.is_http1_held(to.sock),
        }
    }

    /// Whether the client has ended its direction of the connection.
    pub(crate) fn has_client_finished<R: Reactor>(&mut self, reactor: &R, to: Requester) -> bool {
        let down = self.conns.downstream(to.sock);
        let finished = down.is_some_and(|down| down.has_finished());
        finished || reactor.has_hung_up(to.sock)
    }

    /// Sets when `action_due` is called, for an action that does not wait for the request body.
    pub(crate) fn set_action_deadline<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        at: Moment,
    ) {
        match (to.is_stream(), to.as_own()) {
            (true, _) => self.set_stream_deadline(reactor, to, at),
            (false, None) => reactor.set_deadline(to.sock, at),
            (false, Some(id)) => self.set_own_deadline(reactor, id, at),
        }
    }

    /// Makes the carrier hand over more of the request body, as far as the action has room for it.
    pub(crate) fn resume_request(&mut self, to: Requester) {
        self.work.push(Work::Resume(to));
    }

    /// Ends a requester whose action has not ended: the action is cancelled. `cause` and `reason` are those of the
    /// record, unless an earlier cause was noted.
    pub(crate) fn abandon_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        cause: Cause,
        reason: &'static str,
    ) {
        self.blame(to, cause, reason);
        match to.is_stream() {
            true => self.reset_http2_stream(reactor, to, ErrorCode::CANCEL),
            false => self.close_client(reactor, to.sock),
        }
    }
}

/// Switched requesters: after 101 (Switching Protocols), or 200 to an extended CONNECT of HTTP/2, the bytes of both
/// directions belong to the action.
impl Worker {
    /// Sends the response after which the connection belongs to the action `running`. From then on the action gets
    /// the client's bytes (`take_switched_bytes`).
    pub(crate) fn switch_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        switch: &Switch<'_>,
        running: Running,
    ) {
        match to.is_stream() {
            true => self.switch_http2(reactor, to, switch, running),
            false => self.switch_http1(reactor, to.sock, switch, running),
        }
    }

    /// Sends bytes. The action pauses its source while `is_client_blocked`.
    pub(crate) fn send_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        bytes: &[u8],
    ) {
        self.note_bytes_out(to, bytes.len());
        match to.is_stream() {
            true => {
                let (clients, mut links) = self.client_streams(reactor);
                clients.send_switched(&mut links, to, bytes);
            }
            false => match to.as_own() {
                Some(id) => self.take_socket_bytes(id, bytes),
                None => reactor.send(to.sock, bytes),
            },
        }
    }

    /// Sends the bytes that `encode` appends, without a copy if the protocol allows that.
    pub(crate) fn encode_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        if to.is_stream() {
            let (clients, mut links) = self.client_streams(reactor);
            let bytes = clients.encode_switched(&mut links, to, encode);
            self.note_bytes_out(to, bytes);
        } else if let Some(out) = reactor.output(to.sock) {
            let before = out.len();
            encode(out);
            let bytes = out.len() - before;
            self.note_bytes_out(to, bytes);
        }
    }

    /// Pauses or resumes receiving, for an action that is duplex.
    pub(crate) fn pause_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        is_paused: bool,
    ) {
        match (to.is_stream(), to.as_own()) {
            (true, _) => self.http2_clients.pause(&mut self.work, to, is_paused),
            (false, None) => reactor.set_receiving(to.sock, !is_paused),
            (false, Some(id)) => self.pause_socket(id, is_paused),
        }
    }

    /// Makes the carrier call `client_drained` for a duplex action whose client is blocked.
    pub(crate) fn await_client_drain(&mut self, to: Requester) {
        // The output of a connection reports that by itself.
        if to.is_stream() {
            self.http2_clients.await_drain(&mut self.conns, &mut self.work, to);
        }
    }

    /// Checks output that the client of a duplex action is slow to take: when to check again, or `None` if the client has taken
    /// nothing for `timeout` or nothing is pending.
    pub(crate) fn check_client_output<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        timeout: Span,
    ) -> Option<Moment> {
        match (to.is_stream(), to.as_own()) {
            (true, _) => self.http2_clients.look(reactor, to, timeout),
            (false, None) => next_output_check(reactor, to.sock, timeout),
            // A script that reads nothing for so long has forgotten its socket.
            (false, Some(_)) => None,
        }
    }

    /// Ends the direction to the client.
    pub(crate) fn finish_switched<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        match to.is_stream() {
            true => {
                let (clients, mut links) = self.client_streams(reactor);
                clients.finish_switched(&mut links, to);
            }
            false => match to.as_own() {
                Some(id) => self.finish_socket(id),
                None => reactor.finish(to.sock),
            },
        }
    }

    /// The action has ended: closes its connection after everything that was sent.
    pub(crate) fn end_switched<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        self.note_phase(to, RecordPhase::Last);
        if to.is_stream() {
            return self.end_http2_switched(reactor, to);
        }
        if let Some(id) = to.as_own() {
            return self.end_own_socket(reactor, id);
        }
        self.detach_client(to.sock);
        self.close_client(reactor, to.sock);
    }

    /// The action has failed: resets its connection.
    pub(crate) fn abort_switched<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        if to.is_stream() {
            return self.abort_http2_switched(reactor, to);
        }
        if let Some(id) = to.as_own() {
            return self.end_own_socket(reactor, id);
        }
        self.detach_client(to.sock);
        self.drop_client(reactor, to.sock);
        reactor.abort(to.sock);
    }

    /// The connection belongs to no action any more.
    fn detach_client(&mut self, sock: SockId) {
        match self.conns.client_protocol(sock) {
            Some(ClientProtocol::Http1) => self.detach_http1(sock),
            Some(ClientProtocol::Tcp) => self.detach_tcp(sock),
            Some(ClientProtocol::Http2) | None => self.note_absent(sock),
        }
    }
}
