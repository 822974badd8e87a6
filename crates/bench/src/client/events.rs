//! Handles the client's completions: counts responses, classifies failures, reopens connections.
//! In: `Completion`s. Out: calls on the reactor, counts in the tally.
//! Invariant: a failure counts once for each request that it affects, or once for a connection without
//! requests.

use super::Client;
use super::lane::{Phase, Sent};
use super::reader::Answer;
use crate::plan::{Pace, Protocol};
use crate::target::Target;
use crate::tls;
use core::time::Duration;
use tidegate_base::{Moment, Span};
use tidegate_reactor::{CloseReason, Completion, Handler, Reactor, Shortage, SockId};
use tidegate_secure::{LayerHandler, ServerKey};
use tidegate_wire::tls::{Fault, TlsSession};

/// Number of checks for timeouts within one timeout.
const SWEEPS_PER_TIMEOUT: u32 = 16;
const SWEEP_MIN: Span = Span::from_millis(5);
/// Longest time between two checks for timeouts.
pub(super) const SWEEP_MAX: Span = Span::from_millis(250);
/// First pause before a failed connection is opened again; it doubles up to 64 times this value.
const PAUSE_FIRST: Span = Span::from_millis(10);

/// Classes of failures that end a connection; the names are those of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The connection was not established.
    Connect,
    /// The server reset the connection or the stream.
    Reset,
    /// The server refused a stream (HTTP/2), which it did not process.
    Refused,
    /// The server closed the connection before the end of a response.
    Closed,
    /// A response, or the connection, took too long.
    Timeout,
    /// The server's bytes are not valid HTTP.
    Framing,
    /// TLS failed, or did not verify the server.
    Tls,
}

/// The first bytes of a TLS alert record: type alert, version 3.x (RFC 8446 section 5.1).
pub(super) const TLS_ALERT: &[u8] = &[21, 3];

impl<R: Reactor> Handler<R> for Client<'_> {
    fn handle(&mut self, reactor: &mut R, completion: Completion<'_>) {
        self.busy_marks += 1;
        match completion {
            Completion::Received { sock, bytes } => {
                if let Some(number) = self.lane_of(sock) {
                    let now = reactor.read_clock();
                    self.handle_received(reactor, number, bytes, now);
                }
            }
            Completion::Connected { sock } => {
                if let Some(number) = self.lane_of(sock) {
                    let now = reactor.read_clock();
                    self.handle_connected(reactor, number, now);
                }
            }
            Completion::Finished { sock } => {
                if let Some(number) = self.lane_of(sock) {
                    let now = reactor.read_clock();
                    self.handle_finished(reactor, number, now);
                }
            }
            Completion::Closed { sock, reason } => {
                if let Some(number) = self.lane_of(sock) {
                    self.handle_closed(reactor, number, reason);
                }
            }
            Completion::Accepted { .. }
            | Completion::Relayed { .. }
            | Completion::AcceptPaused { .. }
            | Completion::Datagram { .. }
            | Completion::DatagramFailed { .. }
            | Completion::Drained { .. }
            | Completion::Due { .. }
            | Completion::HungUp { .. }
            | Completion::Timer { .. }
            | Completion::Woken => {}
        }
    }
}

/// The client above the TLS layer, for targets that use TLS.
impl LayerHandler for Client<'_> {
    fn handle<R: Reactor>(&mut self, reactor: &mut R, completion: Completion<'_>) {
        Handler::handle(self, reactor, completion);
    }

    fn continue_after_turn<R: Reactor>(&mut self, reactor: &mut R) {
        self.serve_ready(reactor);
    }

    fn handle_reached(&mut self, sock: SockId, now: Moment) {
        let Some(number) = self.lane_of(sock) else { return };
        let lane = &mut self.lanes[number as usize];
        lane.phase = Phase::Handshaking;
        lane.handshake_at = now;
        self.tally.connect.record(now.since(lane.connect_at));
    }

    fn handle_established(&mut self, sock: SockId, session: &mut TlsSession) {
        let Some(facts) = session.facts() else { return };
        let is_http2 = facts.alpn == Some(tls::ALPN_HTTP2.as_bytes());
        if let Some(number) = self.lane_of(sock) {
            let lane = &mut self.lanes[number as usize];
            lane.lacks_http2 = self.plan.protocol == Protocol::Http2 && !is_http2;
        }
        if facts.resumed {
            self.tally.handshakes_resumed += 1;
        } else {
            self.tally.handshakes_full += 1;
        }
        if self.tally.negotiated.is_none() {
            self.tally.negotiated = Some(tls::facts_in_words(&facts));
        }
    }

    fn handle_fault(&mut self, sock: SockId, fault: Fault) {
        self.fault = Some((sock, fault));
    }
}

impl Client<'_> {
    fn lane_of(&self, sock: SockId) -> Option<u32> {
        let number = *self.lane_by_socket.get(sock.index as usize)?;
        (self.lanes.get(number as usize)?.sock == sock).then_some(number)
    }

    pub(super) fn connect<R: Reactor>(&mut self, reactor: &mut R, number: u32, now: Moment) {
        let source = self.plan.source(self.connection_first + number);
        let authority = self.lanes[number as usize].authority;
        let target = &self.targets[usize::from(authority)];
        let connecting = if target.is_secure {
            let server = ServerKey { pool: 0, server: authority, http1_only: false };
            reactor.connect_secured_from(&target.address, source, server)
        } else {
            reactor.connect_from(&target.address, source)
        };
        match connecting {
            Ok(sock) => {
                let at = sock.index as usize;
                if self.lane_by_socket.len() <= at {
                    self.lane_by_socket.resize(at + 1, u32::MAX);
                }
                self.lane_by_socket[at] = number;
                let lane = &mut self.lanes[number as usize];
                lane.sock = sock;
                lane.phase = Phase::Connecting;
                lane.connect_at = now;
            }
            Err(shortage) => {
                self.fail(number, Failure::Connect, || shortage_in_words(shortage));
                self.connect_later(number, now);
            }
        }
    }

    fn handle_connected<R: Reactor>(&mut self, reactor: &mut R, number: u32, now: Moment) {
        let lane = &self.lanes[number as usize];
        match lane.phase {
            Phase::Handshaking => self.tally.handshake.record(now.since(lane.handshake_at)),
            _ => self.tally.connect.record(now.since(lane.connect_at)),
        }
        match self.plan.protocol {
            Protocol::Http1 => self.open(reactor, number, now),
            Protocol::Http2 => self.begin_session(reactor, number, now),
        }
    }

    /// Begins to send requests on a connection.
    pub(super) fn open<R: Reactor>(&mut self, reactor: &mut R, number: u32, now: Moment) {
        let lane = &mut self.lanes[number as usize];
        lane.phase = Phase::Open;
        lane.free_since = now;
        lane.was_open = true;
        self.open += 1;
        self.tally.connects += 1;
        self.interval.connects += 1;
        self.fill(reactor, number, now);
    }

    fn handle_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: u32,
        bytes: &[u8],
        now: Moment,
    ) {
        let mut rest = bytes;
        self.interval.bytes += bytes.len() as u64;
        if self.plan.protocol == Protocol::Http2 {
            return self.handle_frames(reactor, number, bytes, now);
        }
        while !rest.is_empty() {
            let lane = &mut self.lanes[number as usize];
            let Some(sent) = lane.pending.front() else {
                let excess = rest.len();
                self.count_bytes(excess);
                self.fail(number, Failure::Framing, || {
                    format!("the server sent {excess} bytes without a request")
                });
                return self.reconnect(reactor, number, now, false);
            };
            if lane.first_byte_at == Moment::ZERO {
                lane.first_byte_at = now;
            }
            let choice = sent.number;
            let is_counted = sent.is_counted || !self.is_counting;
            let is_head = self.mix.request(choice).is_head;
            let template = &mut self.templates[usize::from(choice)];
            match lane.reader.read(rest, is_head, template) {
                Ok((taken, answer)) => {
                    rest = &rest[taken..];
                    if is_counted {
                        self.count_bytes(taken);
                    }
                    if let Some(answer) = answer {
                        if answer.status == 400 {
                            self.note_plain_to_tls(number, bytes);
                        }
                        if !self.count(number, answer, now) {
                            return self.end_of_socket(reactor, number, !rest.is_empty(), now);
                        }
                    }
                }
                Err(fault) => {
                    if is_counted {
                        self.count_bytes(rest.len());
                    }
                    self.fail(number, Failure::Framing, || {
                        if bytes.starts_with(TLS_ALERT) {
                            return "the server responded with TLS; use https://".to_owned();
                        }
                        // The decoder's messages speak of "this server".
                        let reason = fault.reason().replace("this server", "this client");
                        format!("the response is not valid HTTP/1.1: {reason}")
                    });
                    return self.reconnect(reactor, number, now, false);
                }
            }
        }
        self.schedule_next_request(reactor, number, now);
    }

    pub(super) fn count_bytes(&mut self, count: usize) {
        self.tally.bytes_received += count as u64;
        if self.is_in_time() {
            self.tally.bytes_in_time += count as u64;
        }
    }

    /// Whether a response that arrives now counts in `Tally::in_time`.
    fn is_in_time(&self) -> bool {
        self.draining_since.is_none() || self.quota == 0
    }

    /// Notes a 400 that mentions HTTPS: many TLS servers send it in response to plain HTTP, with various
    /// texts.
    fn note_plain_to_tls(&mut self, number: u32, bytes: &[u8]) {
        let mentions_https = [&b"HTTPS"[..], b"https://"]
            .iter()
            .any(|word| memchr::memmem::find(bytes, word).is_some());
        if mentions_https && !self.target(number).is_secure {
            self.tally.note("status", || {
                "the first such response was a 400 that mentions HTTPS: the port expects TLS; use https://"
                    .to_owned()
            });
        }
    }

    pub(super) fn target(&self, number: u32) -> &Target {
        &self.targets[usize::from(self.lanes[number as usize].authority)]
    }

    /// Counts a complete response; false if its connection must not be used again.
    fn count(&mut self, number: u32, answer: Answer, now: Moment) -> bool {
        let lane = &mut self.lanes[number as usize];
        let first_byte_at = core::mem::replace(&mut lane.first_byte_at, Moment::ZERO);
        let Some(sent) = lane.pending.pop_front() else {
            return false;
        };
        if lane.pending.len() + 1 == usize::from(self.plan.pipeline) {
            lane.free_since = now;
        }
        self.count_answer(number, sent, first_byte_at, answer, now);
        answer.is_persistent && !self.is_used_up(number)
    }

    /// Whether a connection has sent as many requests as it may, and all responses have arrived.
    pub(super) fn is_used_up(&self, number: u32) -> bool {
        let lane = &self.lanes[number as usize];
        let requests_max = self.plan.requests_per_connection;
        lane.pending.is_empty()
            && requests_max.is_some_and(|requests_max| lane.sent_on_socket >= requests_max)
    }

    /// Counts the complete response to `sent`, which is no longer pending.
    pub(super) fn count_answer(
        &mut self,
        number: u32,
        sent: Sent,
        first_byte_at: Moment,
        answer: Answer,
        now: Moment,
    ) {
        let lane = &mut self.lanes[number as usize];
        lane.failures = 0;
        lane.answered += u64::from(sent.is_counted);
        self.outstanding -= 1;
        self.answered_ever += 1;
        self.answered_last = now;
        // During warm-up and ramp all responses are counted too, for the progress display.
        if sent.is_counted || !self.is_counting {
            self.count_figures(sent, first_byte_at, answer, now);
        }
    }

    fn count_figures(&mut self, sent: Sent, first_byte_at: Moment, answer: Answer, now: Moment) {
        let service = now.since(sent.at);
        let first_byte = first_byte_at.since(sent.at);
        let is_closed = self.plan.pace == Pace::Closed;
        let latency = if is_closed { service } else { now.since(sent.planned) };
        self.tally.requests += 1;
        self.tally.in_time += u64::from(self.is_in_time());
        // A response that arrives after the warm-up counts; its time counts only if the request was also planned
        // after the warm-up.
        if sent.planned >= self.times_count_from() {
            self.tally.service.record(service);
            self.tally.first_byte.record(first_byte);
            if !is_closed {
                self.tally.latency.record(latency);
            }
        }
        self.tally.body_bytes += answer.body_bytes;
        let class = usize::from(answer.status / 100);
        self.tally.statuses[class.min(5)] += 1;
        if answer.status >= 400 {
            self.tally.errors.status += 1;
            self.interval.errors += 1;
            self.shared.note_error();
            self.tally
                .note("status", || format!("the first such response had status {}", answer.status));
        }
        self.interval.requests += 1;
        self.interval.statuses[class.min(5)] += 1;
        self.interval.first_byte_sum += first_byte;
        self.interval.latency.record(latency);
    }

    /// Called after a response: sends the next request at once, after the pause, or when it is planned.
    pub(super) fn schedule_next_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: u32,
        now: Moment,
    ) {
        if !self.has_room(number) {
            return;
        }
        if self.plan.pace != Pace::Closed {
            return self.fill(reactor, number, now);
        }
        if self.plan.think.is_zero() {
            return self.ready.push(number);
        }
        // ±3 %, so that connections that began together drift apart.
        let jitter = self.prng.below(60_001) as f64 / 1e6 - 0.03;
        let rest = self.plan.think.mul_f64(1.0 + jitter);
        self.wake_at(number, now.after(rest));
    }

    /// Handles a connection that ends after a complete response. Further requests in flight on it get no response.
    fn end_of_socket<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: u32,
        has_excess: bool,
        now: Moment,
    ) {
        let unanswered = !self.lanes[number as usize].pending.is_empty();
        if has_excess && !unanswered {
            self.fail(number, Failure::Framing, || {
                "the server sent bytes after the last response of the connection".to_owned()
            });
        } else if unanswered {
            self.fail(number, Failure::Closed, || {
                "the server closed the connection while requests were waiting for a response"
                    .to_owned()
            });
        }
        self.reconnect(reactor, number, now, true);
    }

    fn handle_finished<R: Reactor>(&mut self, reactor: &mut R, number: u32, now: Moment) {
        let lane = &mut self.lanes[number as usize];
        if lane.phase == Phase::Greeting {
            self.fail(number, Failure::Closed, greeting_in_words);
            return self.reconnect(reactor, number, now, true);
        }
        let is_http2 = lane.session.is_some();
        let has_started = match &lane.session {
            Some(session) => session.has_started(),
            None => lane.reader.has_started(),
        };
        if let Ok(Some(answer)) = lane.reader.finish() {
            self.count(number, answer, now);
        }
        let lane = &mut self.lanes[number as usize];
        if lane.pending.is_empty() {
            // The server may close an idle connection. If it was never used, it is reopened with
            // growing pauses.
            if lane.sent_on_socket == 0 {
                lane.failures += 1;
            }
        } else {
            let rules_out_tls = is_http2
                || self.tally.bytes_received > 0
                || self.answered_ever > 0
                || self.target(number).is_secure;
            self.fail(number, Failure::Closed, || {
                if has_started {
                    "the server closed the connection in the middle of a response".to_owned()
                } else if rules_out_tls {
                    "the server closed the connection without a response".to_owned()
                } else {
                    "the server closed the connection without a response; if the port expects TLS, use \
                     https://"
                        .to_owned()
                }
            });
        }
        self.reconnect(reactor, number, now, true);
    }

    fn handle_closed<R: Reactor>(&mut self, reactor: &mut R, number: u32, reason: CloseReason) {
        let now = reactor.read_clock();
        let lane = &self.lanes[number as usize];
        let was_open = lane.phase == Phase::Open;
        let fault = self.fault.take().filter(|(sock, _)| *sock == lane.sock);
        if let Some((_, fault)) = fault {
            self.fail(number, Failure::Tls, || tls::fault_in_words(fault));
        } else if lane.phase == Phase::Handshaking {
            self.fail(number, Failure::Tls, || {
                "the server closed the connection during the TLS handshake".to_owned()
            });
        } else if lane.phase == Phase::Connecting {
            let address = &self.targets[usize::from(lane.authority)].address;
            self.fail(number, Failure::Connect, || match reason {
                CloseReason::ConnectRefused => format!("{address} refused the connection"),
                CloseReason::ConnectUnreachable => format!("no route to {address}"),
                CloseReason::ConnectShortage(shortage) => shortage_in_words(shortage),
                CloseReason::Reset | CloseReason::Ended | CloseReason::Unsent => {
                    format!("{address} closed the connection while it was being established")
                }
            });
        } else if lane.phase == Phase::Greeting {
            self.fail(number, Failure::Reset, greeting_in_words);
        } else if !lane.pending.is_empty() {
            self.fail(number, Failure::Reset, || "the server reset the connection".to_owned());
        } else if lane.sent_on_socket == 0 {
            // A connection that was never used is reopened with growing pauses.
            self.lanes[number as usize].failures += 1;
        }
        if was_open {
            self.open -= 1;
        }
        self.lanes[number as usize].reset_socket_state();
        self.connect_later(number, now);
    }

    /// Closes the socket (`gracefully`) or resets it, and opens another one if there are more requests to send.
    pub(super) fn reconnect<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: u32,
        now: Moment,
        gracefully: bool,
    ) {
        let lane = &mut self.lanes[number as usize];
        if lane.phase == Phase::Open {
            self.open -= 1;
        }
        if gracefully {
            reactor.close(lane.sock);
        } else {
            reactor.abort(lane.sock);
        }
        lane.reset_socket_state();
        if lane.failures == 0 && self.draining_since.is_none() && self.quota > 0 && !lane.has_wake {
            return self.connect(reactor, number, now);
        }
        self.connect_later(number, now);
    }

    fn connect_later(&mut self, number: u32, now: Moment) {
        let failures = self.lanes[number as usize].failures;
        let pause = match failures {
            0 => Span::ZERO,
            failures => PAUSE_FIRST * (1 << (failures - 1).min(6)),
        };
        self.wake_at(number, now.after(pause));
    }

    /// Counts a failure once for each pending request, or once if there is none.
    pub(super) fn fail(&mut self, number: u32, failure: Failure, words: impl FnOnce() -> String) {
        let lane = &mut self.lanes[number as usize];
        let lost = lane.pending.len() as u64;
        let counted = match lost {
            0 => 1,
            _ => lane.pending.iter().filter(|sent| sent.is_counted || !self.is_counting).count()
                as u64,
        };
        lane.failures = lane.failures.saturating_add(1);
        lane.pending.clear();
        lane.first_byte_at = Moment::ZERO;
        if let Some(session) = &mut lane.session {
            session.forget_exchanges();
        }
        self.outstanding -= lost;
        self.count_failures(failure, counted, words);
    }

    /// Counts `counted` failures of one class.
    pub(super) fn count_failures(
        &mut self,
        failure: Failure,
        counted: u64,
        words: impl FnOnce() -> String,
    ) {
        let errors = &mut self.tally.errors;
        let (count, class) = match failure {
            Failure::Connect => (&mut errors.connect, "connect"),
            Failure::Reset => (&mut errors.reset, "reset"),
            Failure::Refused => (&mut errors.refused, "refused"),
            Failure::Closed => (&mut errors.closed, "closed"),
            Failure::Timeout => (&mut errors.timeout, "timeout"),
            Failure::Framing => (&mut errors.framing, "framing"),
            Failure::Tls => (&mut errors.tls, "tls"),
        };
        *count += counted;
        self.interval.errors += counted;
        if counted > 0 {
            self.shared.note_error();
            self.tally.note(class, words);
        }
    }

    /// Fails requests and connection attempts that took longer than the timeout.
    pub(super) fn sweep<R: Reactor>(&mut self, reactor: &mut R, now: Moment) {
        let timeout = self.plan.timeout;
        let every = (timeout / SWEEPS_PER_TIMEOUT).clamp(SWEEP_MIN, SWEEP_MAX);
        self.next_sweep = now.after(every);
        for number in 0..self.lanes.len() as u32 {
            if self.cancel_overdue(reactor, number, now) {
                continue;
            }
            let lane = &self.lanes[number as usize];
            let since = match lane.phase {
                Phase::Connecting => lane.connect_at,
                Phase::Handshaking | Phase::Greeting => lane.handshake_at,
                Phase::Open => match lane.pending.front() {
                    Some(sent) => sent.at,
                    None => continue,
                },
                Phase::Absent | Phase::Over => continue,
            };
            if now.since(since) < timeout {
                continue;
            }
            let what = match lane.phase {
                Phase::Connecting => "connection attempt",
                Phase::Handshaking => "TLS handshake",
                Phase::Greeting => "wait for the server's HTTP/2 SETTINGS",
                _ => "request",
            };
            self.fail(number, Failure::Timeout, || {
                format!("a {what} took longer than {}", in_words(timeout))
            });
            self.reconnect(reactor, number, now, false);
        }
    }
}

/// Why a connection ended before the server's SETTINGS.
fn greeting_in_words() -> String {
    "the server closed the connection before it sent its HTTP/2 SETTINGS; it may not support HTTP/2 on this port"
        .to_owned()
}

pub(super) fn in_words(span: Duration) -> String {
    if span >= Duration::from_secs(1) {
        format!("{} s", span.as_secs_f64())
    } else {
        format!("{} ms", span.as_millis())
    }
}

fn shortage_in_words(shortage: Shortage) -> String {
    match shortage {
        Shortage::WorkerDescriptors => {
            "out of file descriptors: raise the limit (ulimit -n) or use fewer connections"
                .to_owned()
        }
        Shortage::SystemDescriptors => {
            "the system is out of file descriptors: raise fs.file-max".to_owned()
        }
        Shortage::Memory => "the kernel is out of memory for sockets".to_owned(),
        Shortage::Ports => "out of local ports: widen net.ipv4.ip_local_port_range, use fewer \
                            connections or keep them open longer"
            .to_owned(),
        Shortage::Slots => "too many connections are closing at the same time".to_owned(),
    }
}
