//! The response of a server on its way to the client, and its failures.
//! In: messages and events of connections to servers (`carrier/server.rs`). Out: messages for the requester; the
//! exchange ended, or its request sent again.
//! Never: sends a request again once the client has got a byte of the final response.
//! Invariant: after each of the failures here, the exchange has ended or has begun another attempt.

use std::rc::Rc;

use tidegate_base::Id;
use tidegate_gate::access::Cause;
use tidegate_gate::connection_auth;
use tidegate_gate::eject::is_failure;
use tidegate_gate::retry::FailurePoint;
use tidegate_reactor::{CloseReason, OutputProgress, Reactor};
use tidegate_wire::http2::ErrorCode;
use tidegate_wire::message::{BodyLength, ResponseHead};

use crate::action::lua::response::HookedHead;
use crate::action::proxy::Failure;
use crate::action::proxy::dispatch::NO_CONNECT;
use crate::action::proxy::exchange::{ClientSession, Exchange, Stage};
use crate::action::proxy::tunnel::Side;
use crate::answer::Head;
use crate::carrier::output::next_check_after;
use crate::carrier::{Progress, Rest};
use crate::paces::BodyDirection;
use crate::responder::Responder;
use crate::snapshot::Snapshot;
use crate::worker::{Work, Worker};

/// The status of a response that requests the body of the request (RFC 9110 section 15.2.1).
const CONTINUE: u16 = 100;

/// The response is relayed.
impl Worker {
    /// The connection to the server is established.
    pub(crate) fn server_connected<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        debug_assert_eq!(exchange.stage, Stage::Connecting, "a connection that was open");
        exchange.stage = Stage::ExpectResponse;
        let (pool, server, to) = (exchange.pool, exchange.attempt.server, exchange.requester);
        let is_tcp = exchange.facts.is_tcp;
        self.note_connected(to, reactor.now());
        if self.pools[usize::from(pool)].state.note_connect_success(usize::from(server)) {
            self.note_unserved(pool);
        }
        if is_tcp {
            self.note_result((pool, server), (false, None), reactor.now());
            return self.begin_tcp_tunnel(reactor, id);
        }
        self.arm_upstream(reactor, id);
    }

    /// Relays an interim response (1xx other than 101), unless the final head may yet be that of another server because this one
    /// turns out to be malformed: an interim response of a broken server would then precede it. 100 (Continue) is relayed in any
    /// case, because the client waits for it, and it contains nothing else.
    pub(crate) fn relay_interim<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        head: &ResponseHead<'_>,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        debug_assert_eq!(exchange.stage, Stage::ExpectResponse, "an interim response");
        if exchange.auth_request.is_some() || exchange.mirrored.is_some() {
            // The client asked another server.
            return;
        }
        if head.status != CONTINUE && self.may_retry_malformed(exchange, reactor.now()) {
            return;
        }
        let to = exchange.requester;
        self.send_interim(reactor, to, head);
        // The deadline of the final head is not extended, so that interim responses cannot defer it forever.
        if self.is_client_blocked(reactor, to) {
            self.hold_server(reactor, id);
        }
    }

    /// Relays the final head. `ends`: the response ends with it. `more_follows`: bytes follow the head, so a response
    /// that ends is too long.
    pub(crate) fn relay_head<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        head: &ResponseHead<'_>,
        ends: bool,
        more_follows: bool,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        debug_assert_eq!(exchange.stage, Stage::ExpectResponse, "the head of a response");
        if exchange.mirrored.is_some() {
            return self.take_mirrored_head(reactor, id, head, ends, more_follows);
        }
        if exchange.facts.connects && matches!(head.status, 200..=299) {
            // To the client, the response would open the tunnel that the server has not opened.
            let text = "the server did not switch to the protocol that the client requested";
            return self.server_misbehaved(reactor, id, text);
        }
        if self.retry_status(reactor, id, head.status) {
            return;
        }
        let verdict = self.take_auth_decision(id, head);
        if verdict == Some(true) {
            return self.take_auth_admission(reactor, id, head, ends, more_follows);
        }
        // What the hook changes is for the client; the server is judged by what it has sent.
        let Ok(hooked) = self.change_response(reactor, id, head, !ends) else { return };
        let rest = match verdict {
            Some(_) => Rest::Discarded,
            // If the response is early, the rest of the request is still forwarded; but a server that closes will
            // not take it.
            None if head.persistent => Rest::Taken,
            None => Rest::Unwanted,
        };
        self.note_head_of(reactor, id, (head, &hooked));
        self.begin_relayed(reactor, id, (head, hooked), rest);
        if ends {
            self.finish_response(reactor, id, b"", b"", more_follows);
        } else {
            self.arm_upstream(reactor, id);
        }
    }

    /// Notes what the head of a response says about its server.
    fn note_head_of<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        (head, hooked): (&ResponseHead<'_>, &HookedHead),
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let (up, pool, server) = (exchange.attempt.up, exchange.pool, exchange.attempt.server);
        let took = exchange.server_time(reactor.now());
        exchange.attempt.note_head(
            exchange.facts.is_reusable && head.persistent && head.length != BodyLength::UntilClose,
        );
        exchange.stage = Stage::ExpectBody;
        let result = (is_failure(head.status) || exchange.is_marked, took);
        match hooked {
            HookedHead::Held => self.keep_held_result(id, (pool, server), result),
            HookedHead::Unchanged | HookedHead::Changed(_) => {
                self.note_result((pool, server), result, reactor.now());
            }
        }
        self.note_sticky_answered(id, Some(head), reactor.now());
        if connection_auth::response_authenticates(head) {
            self.note_authenticated(reactor, up);
        }
    }

    /// Begins the response, or keeps its head for the hook that waits.
    fn begin_relayed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        (received, hooked): (&ResponseHead<'_>, HookedHead),
        rest: Rest,
    ) {
        let changed = match &hooked {
            HookedHead::Changed(changed) => Some(changed.lend_after(received)),
            HookedHead::Unchanged | HookedHead::Held => None,
        };
        let head = changed.as_ref().unwrap_or(received);
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let (to, pool) = (exchange.requester, usize::from(exchange.pool));
        let values = core::mem::take(&mut exchange.values);
        // The index of the server is that of the newest settings: the request may have begun before its server was added.
        let snapshot = self.settings.newest();
        let has_sessions = snapshot.sessions.get(pool).is_some_and(Option::is_some);
        let snapshot = has_sessions.then(|| Rc::clone(snapshot));
        let mut cookie = Vec::new();
        if let Some(snapshot) = &snapshot {
            cookie = self.buffers.take();
            self.write_session_cookie(reactor, id, head, snapshot, &mut cookie);
        }
        // `Sessions` writes ASCII.
        let text = core::str::from_utf8(&cookie).unwrap_or_default();
        match hooked {
            HookedHead::Held => self.complete_held_head(id, values, (text, rest)),
            HookedHead::Unchanged | HookedHead::Changed(_) => {
                self.recall_values(to, values);
                self.begin_response(reactor, to, &Head::Relayed(head, text), rest);
            }
        }
        self.buffers.put(cookie);
    }

    /// Appends the value of the Set-Cookie field that names the server of the response. Nothing if the client's cookie names it
    /// already and is not due for renewal, or names another server that is only busy, and the server does not replace the
    /// cookie by its own.
    fn write_session_cookie<R: Reactor>(
        &self,
        reactor: &R,
        id: Id<Exchange>,
        head: &ResponseHead<'_>,
        snapshot: &Snapshot,
        out: &mut Vec<u8>,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let pool = usize::from(exchange.pool);
        let Some(Some(sessions)) = snapshot.sessions.get(pool) else { return };
        let state = &self.pools[pool].state;
        let is_kept = |own: ClientSession| {
            let is_lost = |server| state.has_lost(server, reactor.now());
            let server = own.server_in(state);
            server.is_some_and(|at| at == usize::from(exchange.attempt.server) || !is_lost(at))
        };
        let now = reactor.unix_seconds();
        match exchange.facts.session {
            Some(own) if is_kept(own) => {
                let session = own.session;
                if session.is_due || head.fields().any(|own| sessions.is_set_by(&own)) {
                    sessions.write(out, session.server, session.began_at, now);
                }
            }
            Some(_) | None => sessions.write(out, exchange.attempt.server, now, now),
        }
    }

    /// Relays a piece of the response body.
    pub(crate) fn relay_data<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        data: &[u8],
    ) {
        if self.skip_auth_body(reactor, id, data.len()) {
            return;
        }
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        debug_assert_eq!(exchange.stage, Stage::ExpectBody, "a piece of a response");
        if exchange.mirrored.is_some() {
            return self.skip_mirrored(reactor, id, data.len());
        }
        let to = exchange.requester;
        if let Some(pace) = &mut exchange.pace {
            pace.spend(BodyDirection::Down, reactor.now(), data.len());
        }
        if let Some(hook) = exchange.body_hook {
            self.feed_body_hook(hook.request, data, None);
            return self.arm_upstream(reactor, id);
        }
        self.send_data(reactor, to, data);
        if self.is_client_blocked(reactor, to) {
            self.hold_server(reactor, id);
        }
        self.arm_upstream(reactor, id);
    }

    /// Relays the last piece of the response body, if there is one, and the end of the response. Ends the
    /// exchange, unless the rest of the request body must still be forwarded.
    pub(crate) fn finish_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        data: &[u8],
        trailers: &[u8],
        more_follows: bool,
    ) {
        if self.finish_auth_response(reactor, id, more_follows) {
            return;
        }
        let Some(exchange) = self.exchanges.get(id) else { return };
        debug_assert_eq!(exchange.stage, Stage::ExpectBody, "the end of a response");
        if exchange.mirrored.is_some() {
            return self.end_mirror(reactor, id, more_follows);
        }
        let (to, up) = (exchange.requester, exchange.attempt.up);
        let is_done = exchange.request.is_done();
        match exchange.body_hook {
            Some(hook) => self.feed_body_hook(hook.request, data, Some(trailers)),
            None => self.end_response(reactor, to, data, trailers),
        }
        if more_follows {
            self.accounts.counters.upstream_faults.add(1);
        }
        let is_sent = is_done && !(up.is_stream() && self.is_server_behind(reactor, up));
        if is_sent || self.awaits_continue(to) {
            return self.end_exchange(reactor, id, more_follows);
        }
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        exchange.stage = Stage::ExpectRequestEnd;
        // A server that answers early may take the rest of the body for the next request.
        exchange.attempt.forbid_reuse();
        if more_follows {
            return self.give_up_request(reactor, id);
        }
        self.set_server_receiving(reactor, up, true);
        self.arm_upstream(reactor, id);
        self.resume_request(to);
    }

    /// Stops reading from the server until the client's output has drained.
    pub(in crate::action) fn hold_server<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        self.set_server_receiving(reactor, up, false);
        self.hold_client(reactor, to);
    }

    /// Reads from the server again, after the client's output has drained.
    pub(in crate::action) fn resume_server<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
    ) {
        self.body_hook_drained(id);
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (stage, up) = (exchange.stage, exchange.attempt.up);
        if exchange.is_response_paced() {
            // Its turn resumes it.
            return self.arm_upstream(reactor, id);
        }
        if exchange.frame_hook().is_some() {
            return self.continue_frames(reactor, id);
        }
        self.set_server_receiving(reactor, up, true);
        if self.has_undecoded_body(id) {
            self.work.push(Work::ResumeServer(up));
        }
        match stage {
            Stage::Tunnel => self.arm_tunnel(reactor, id),
            Stage::Authorizing
            | Stage::Buffering
            | Stage::Queued
            | Stage::Paused
            | Stage::Connecting
            | Stage::ExpectResponse
            | Stage::ExpectBody
            | Stage::ExpectRequestEnd => self.arm_upstream(reactor, id),
        }
    }

    /// The server takes the request body again.
    pub(crate) fn server_drained<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, stage) = (exchange.requester, exchange.stage);
        if exchange.frame_hook().is_some() {
            self.continue_frames(reactor, id);
            self.end_tunnel_if_over(reactor, id);
        } else if stage == Stage::Tunnel {
            self.pause_switched(reactor, to, false);
            self.arm_tunnel(reactor, id);
            self.end_tunnel_if_over(reactor, id);
        } else {
            self.arm_upstream(reactor, id);
        }
        self.resume_request(to);
    }
}

/// The response fails.
impl Worker {
    /// The server has violated its protocol, as `text` describes. Its connection cannot be used any more.
    pub(crate) fn server_misbehaved<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        text: &'static str,
    ) {
        self.accounts.counters.upstream_faults.add(1);
        self.response_broken(reactor, id, text);
    }

    /// The rest of the response cannot be read. If no part of it was sent to the client, not even the head, the request may be
    /// sent again.
    fn response_broken<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        text: &'static str,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let failure = Failure::new(502, text);
        if exchange.stage != Stage::ExpectResponse {
            return self.upstream_failed(reactor, id, failure);
        }
        let up = exchange.attempt.up;
        self.abandon_server(reactor, up);
        self.attempt_failed(reactor, id, FailurePoint::Malformed, failure);
    }

    /// The server has reset the stream of the exchange before its response was complete.
    pub(crate) fn server_reset<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        code: ErrorCode,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        if exchange.mirrored.is_some() {
            let text = "the server reset the request";
            return self.upstream_failed(reactor, id, Failure::new(502, text));
        }
        let (to, pool, attempt) = (exchange.requester, exchange.pool, exchange.attempt);
        if self.progress(to) != Progress::Begun && !self.is_call(to) {
            let text = "the server reset the request";
            return self.upstream_failed(reactor, id, Failure::new(502, text));
        }
        self.blame(to, Cause::Server, "the server reset the request");
        self.release_server(pool, attempt.server);
        self.abandon_server(reactor, attempt.up);
        self.forget_exchange(id);
        // Other codes concern the connection to the server, or would make the client try again.
        let code = match code {
            ErrorCode::CANCEL | ErrorCode::ENHANCE_YOUR_CALM => code,
            _ => ErrorCode::INTERNAL_ERROR,
        };
        self.reset_response(reactor, to, code);
    }

    /// The server has certainly not processed the request: it goes to another connection. If that happens again, it
    /// counts as a failed attempt, so that a server which refuses everything does not get the request forever.
    pub(crate) fn request_unprocessed<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        if !exchange.attempts.needs_fresh() {
            return self.request_not_sent(reactor, id);
        }
        let up = exchange.attempt.up;
        self.abandon_server(reactor, up);
        let text = "the server refused the request";
        self.attempt_failed(reactor, id, FailurePoint::Refused, Failure::new(503, text));
    }

    /// The server takes no tunnel over HTTP/2 (RFC 8441). The request is sent over an HTTP/1.1 connection if the pool may use
    /// HTTP/1.1.
    pub(crate) fn tunnel_unsupported<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let (pool, attempt) = (exchange.pool, exchange.attempt);
        exchange.attempts.require_http1();
        if self.settings.newest().pool(pool).may_speak_http1() {
            return self.request_not_sent(reactor, id);
        }
        self.release_server(pool, attempt.server);
        self.abandon_server(reactor, attempt.up);
        let text = "the server does not support WebSocket over HTTP/2 (RFC 8441)";
        self.fail(reactor, id, Failure::new(502, text));
    }

    /// The server closes the connection of a request (GOAWAY), and has certainly not processed it: another server gets the
    /// request, if there is one, so that all such requests do not follow a server that stops.
    pub(crate) fn server_leaves<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        if let Some(exchange) = self.exchanges.get_mut(id) {
            exchange.attempts.note_leaving();
            self.request_unprocessed(reactor, id);
        }
    }

    /// A reused connection failed before the first byte of the request was sent: the request goes to another
    /// connection.
    pub(crate) fn request_not_sent<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let up = exchange.attempt.up;
        self.abandon_server(reactor, up);
        let text = "the server closed the connection before the request was sent";
        let failure = Failure::new(502, text);
        self.attempt_failed(reactor, id, FailurePoint::NotSent, failure);
    }

    /// The server ended its direction before its response was complete.
    pub(crate) fn server_finished<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let up = exchange.attempt.up;
        match exchange.stage {
            Stage::Tunnel => self.tunnel_finished(reactor, id, Side::Server),
            Stage::ExpectRequestEnd => self.give_up_request(reactor, id),
            Stage::Authorizing
            | Stage::Buffering
            | Stage::Queued
            | Stage::Paused
            | Stage::Connecting
            | Stage::ExpectResponse
            | Stage::ExpectBody => {
                if reactor.is_guarded(up.sock) {
                    self.accounts.counters.upstream_idle_closes.add(1);
                    self.request_not_sent(reactor, id);
                } else {
                    self.server_ended_early(reactor, id);
                }
            }
        }
    }

    /// The connection to the server failed, was reset or ended.
    pub(crate) fn server_closed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        reason: CloseReason,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let up = exchange.attempt.up;
        match (exchange.stage, reason) {
            (Stage::Tunnel, _) => self.tunnel_lost(reactor, id),
            (Stage::ExpectRequestEnd, _) => self.give_up_request(reactor, id),
            (Stage::Connecting, CloseReason::ConnectShortage(shortage)) => {
                self.note_connect_failure(up);
                self.abandon_server(reactor, up);
                self.attempt_hit_shortage(reactor, id, shortage);
            }
            (
                Stage::Connecting,
                CloseReason::ConnectRefused
                | CloseReason::ConnectUnreachable
                | CloseReason::Reset
                | CloseReason::Unsent,
            ) => {
                self.note_connect_failure(up);
                self.abandon_server(reactor, up);
                self.attempt_failed(reactor, id, FailurePoint::Connect, NO_CONNECT);
            }
            (_, CloseReason::Unsent) => {
                self.accounts.counters.upstream_idle_closes.add(1);
                self.request_not_sent(reactor, id);
            }
            (
                Stage::Authorizing
                | Stage::Buffering
                | Stage::Queued
                | Stage::Paused
                | Stage::Connecting
                | Stage::ExpectResponse
                | Stage::ExpectBody,
                _,
            ) => self.server_ended_early(reactor, id),
        }
    }

    /// Counts a failed connect, unless the connection is shared, whose carrier counts it.
    fn note_connect_failure(&self, up: Responder) {
        if !up.is_stream() {
            self.accounts.counters.upstream_connect_failures.add(1);
        }
    }

    /// The server ended the connection before its response was complete.
    pub(crate) fn server_ended_early<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let attempt = exchange.attempt;
        if attempt.has_response() {
            let text = "the server closed the connection in the middle of its response";
            return self.response_broken(reactor, id, text);
        }
        let point = match attempt.is_reused() {
            true => FailurePoint::ReusedReset,
            false => FailurePoint::FreshReset,
        };
        self.abandon_server(reactor, attempt.up);
        let text = "the server closed the connection without sending a response";
        self.attempt_failed(reactor, id, point, Failure::new(502, text));
    }

    /// The attempt failed and must not be repeated: the request may have been executed.
    fn upstream_failed<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, failure: Failure) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (pool, attempt) = (exchange.pool, exchange.attempt);
        self.note_result((pool, attempt.server), (true, None), reactor.now());
        self.release_server(pool, attempt.server);
        self.abandon_server(reactor, attempt.up);
        self.fail(reactor, id, failure);
    }

    /// Fails an exchange whose server has done nothing wrong.
    pub(crate) fn fail_served<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        failure: Failure,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (pool, attempt) = (exchange.pool, exchange.attempt);
        self.note_result((pool, attempt.server), (false, None), reactor.now());
        self.release_server(pool, attempt.server);
        self.abandon_server(reactor, attempt.up);
        self.fail(reactor, id, failure);
    }

    /// The deadline of a connection to a server expired while it served an exchange.
    pub(crate) fn server_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        match exchange.stage {
            Stage::Tunnel => self.tunnel_due(reactor, id),
            Stage::Connecting => self.connect_timed_out(reactor, id),
            Stage::Authorizing
            | Stage::Buffering
            | Stage::Queued
            | Stage::Paused
            | Stage::ExpectResponse => {
                self.response_due(reactor, id);
            }
            Stage::ExpectRequestEnd => self.request_end_due(reactor, id),
            Stage::ExpectBody => self.response_body_due(reactor, id),
        }
    }

    /// The connection to the server was not established in time.
    pub(crate) fn connect_timed_out<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let up = exchange.attempt.up;
        self.accounts.counters.connect_timeouts.add(1);
        self.note_connect_failure(up);
        self.abandon_server(reactor, up);
        let text = "timed out connecting to the server";
        let failure = Failure::new(504, text);
        self.attempt_failed(reactor, id, FailurePoint::Connect, failure);
    }

    /// The head of the response has not arrived in time.
    fn response_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let timeouts = self.timeouts_of(exchange);
        let up = exchange.attempt.up;
        let (is_done, has_sent_body) = (exchange.request.is_done(), exchange.intake.bytes > 0);
        let is_pending = self.request_pending(reactor, up) > 0;
        if !is_done && !self.is_request_held_up(reactor, up) {
            // The client sends its body slowly. The downstream deadline covers that.
            return self.arm_upstream(reactor, id);
        }
        if is_pending || has_sent_body {
            let progress = self.check_request_output(reactor, up);
            if progress == OutputProgress::Emptied {
                // The time for the response begins when the server has the whole request.
                return self.arm_upstream(reactor, id);
            }
            if let Some(at) = next_check_after(progress, reactor.now(), timeouts.body) {
                return self.set_server_deadline(reactor, up, at);
            }
        }
        self.accounts.counters.response_timeouts.add(1);
        self.note_silence(reactor, up, timeouts.response_head);
        let text = "timed out waiting for the server's response";
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (pool, attempt) = (exchange.pool, exchange.attempt);
        let took = exchange.server_time(reactor.now());
        self.note_result((pool, attempt.server), (true, took), reactor.now());
        self.abandon_server(reactor, attempt.up);
        let point = match attempt.has_response() {
            true => FailurePoint::InResponse,
            false => FailurePoint::ResponseTimeout,
        };
        self.attempt_failed(reactor, id, point, Failure::new(504, text));
    }

    /// The server has not taken the rest of the request in time, although it has sent the whole response.
    fn request_end_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let timeout = self.timeouts_of(exchange).body;
        let up = exchange.attempt.up;
        if !self.is_request_held_up(reactor, up) {
            // The client sends its body slowly. The downstream deadline covers that.
            return self.arm_upstream(reactor, id);
        }
        let progress = self.check_request_output(reactor, up);
        if let Some(at) = next_check_after(progress, reactor.now(), timeout) {
            return self.set_server_deadline(reactor, up, at);
        }
        self.accounts.counters.body_timeouts.add(1);
        self.give_up_request(reactor, id);
    }

    /// The response body has not progressed in time.
    fn response_body_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let timeout = self.timeouts_of(exchange).body;
        let (to, has_sent_body) = (exchange.requester, exchange.intake.bytes > 0);
        let up = exchange.attempt.up;
        let is_paced = exchange.is_response_paced();
        if is_paced || self.is_client_held(to) {
            return self.arm_upstream(reactor, id);
        }
        let progress = if has_sent_body {
            self.check_request_output(reactor, up)
        } else {
            OutputProgress::Idle
        };
        if let Some(at) = next_check_after(progress, reactor.now(), timeout) {
            // The response is early, and the server still takes the rest of the request.
            return self.set_server_deadline(reactor, up, at);
        }
        self.accounts.counters.body_timeouts.add(1);
        self.note_silence(reactor, up, timeout);
        let text = "the server stopped sending its response";
        self.upstream_failed(reactor, id, Failure::new(504, text));
    }
}
