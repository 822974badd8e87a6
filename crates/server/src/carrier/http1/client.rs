//! HTTP/1 on client connections: decodes requests, encodes responses, keeps or closes the connection.
//! In: bytes and events of client connections; responses of actions. Out: requests for actions; bytes.
//! Never: decides framing (`wire`), where a request goes (`gate`) or what the response is (`action`).
//! Limits: up to `DISCARD_BYTES_MAX` of an unwanted body are read to keep the connection. While a client does
//! not read its responses (`OUTPUT_PAUSE_BYTES`), no further request is decoded; only the body of a request whose
//! action runs is still read, at the speed of the action.
//! Invariant: the requests of a connection are answered in order: nothing after a request is decoded until its
//! action has released the connection.

use tidegate_base::Moment;
use tidegate_gate::access::Cause;
use tidegate_gate::handling::FilterId;
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http1::{BodyDecoder, HeadDecoder, HeadLimits};
use tidegate_wire::http2::PREFACE;
use tidegate_wire::message::{BodyLength, Fault, FieldStorage, Method, RequestHead, Version};

use crate::action::Running;
use crate::answer::Answer;
use crate::buffers::Input;
use crate::carrier::http1::Framing;
use crate::carrier::http1::response::AnswerForm;
use crate::carrier::output::{check_span, next_output_check};
use crate::connection::Downstream;
use crate::malformed::FaultPlace;
use crate::record::{CLIENT_LEFT, Refusal, SLOW_CLIENT};
use crate::requester::Requester;
use crate::worker::Worker;

/// An unwanted body is read up to this many bytes to keep its connection. After a longer one the connection
/// is closed.
const DISCARD_BYTES_MAX: u32 = 64 * 1024;

/// The HTTP/1 state of a client connection.
pub(crate) struct Http1Client {
    /// Decodes the next request head, and counts harmless violations.
    pub(super) decoder: HeadDecoder,
    /// Bytes received but not processed yet. Empty (and without a buffer) while the connection is idle.
    pub(crate) input: Input,
    /// Decodes the body of the current request, which an action takes or the carrier discards.
    pub(super) body: BodyDecoder,
    /// The client does not read its responses fast enough. No further request is decoded until the output has
    /// drained. The deadline is the next check of the output (`next_output_check`), except in a tunnel.
    pub(crate) blocked: bool,
    /// The client has ended its direction of the connection.
    pub(crate) finished: bool,
    /// The next expected input of the connection.
    pub(crate) phase: Phase,
}

/// The next expected input of a client connection.
pub(crate) enum Phase {
    /// The PROXY header, before anything else.
    ProxyHeader,
    /// The preface of HTTP/2, which the TLS handshake has chosen.
    Http2,
    /// The head of the next request. `is_started`: part of it is in `input`, and the head timeout is running.
    Head { is_started: bool },
    /// The rest of an unwanted body, up to `left` bytes of it, and then the next head.
    Discard { left: u32 },
    /// The rest of the body of the current request, while its action runs.
    Request(Http1Request),
    /// Bytes for the action that the connection belongs to after 101 (Switching Protocols).
    Switched(Running),
}

/// The current request of a connection, and how far its response has progressed.
pub(crate) struct Http1Request {
    /// The action that serves the request. `Running::None` until the action has begun something that lasts.
    pub(super) action: Running,
    /// The filters of the response.
    pub(in crate::carrier) filters: FilterId,
    /// The version of the request. It decides which framing the client can receive.
    pub(super) version: Version,
    /// The method is HEAD, so the response has no body (RFC 9110 section 9.3.2).
    pub(super) is_head: bool,
    /// The connection may carry another request after this one. Once false, it stays false.
    pub(crate) keep: bool,
    /// Closing the connection is cheaper than discarding the body, unless the action reads the body.
    pub(super) is_rest_costly: bool,
    /// The client waits for 100 (Continue), which was not sent, and no byte of the body has arrived. Whether
    /// the body will follow a final response is unknown.
    pub(super) awaits_continue: bool,
    /// How far the response has progressed.
    pub(super) sent: Sent,
}

/// The protocol that the first bytes of a connection show.
enum Preface {
    /// A request of HTTP/1.
    None,
    /// Bytes that could be either.
    Part,
    /// HTTP/2 (RFC 9113 section 3.4).
    Http2,
}

/// After this many bytes of the preface of HTTP/2, the connection is not one of HTTP/1: its method would be PRI.
const PREFACE_BYTES_MIN: usize = 4;

/// How far a response has progressed on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// No final head.
    Nothing,
    /// The final head, with this framing of the body.
    Head(Framing),
    /// The whole response.
    All,
}

impl Http1Client {
    /// A connection that was just accepted, which begins in `phase`.
    pub(crate) fn new(phase: Phase) -> Self {
        Self {
            decoder: HeadDecoder::default(),
            input: Input::default(),
            body: BodyDecoder::new(BodyLength::None),
            blocked: false,
            finished: false,
            phase,
        }
    }

    /// Whether decoding is suspended until the client reads its responses.
    pub(crate) fn is_held(&self) -> bool {
        self.blocked
            && match &self.phase {
                Phase::ProxyHeader | Phase::Http2 | Phase::Head { .. } | Phase::Discard { .. } => {
                    true
                }
                Phase::Request(request) => !request.action.is_duplex(),
                Phase::Switched(running) => !running.is_duplex(),
            }
    }

    /// Whether the client has received all its responses, and has not sent another complete head.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Head { .. }) && !self.blocked
    }

    /// Whether the current request has ended, although the client may not have received the whole response.
    fn has_ended_request(&self) -> bool {
        matches!(self.phase, Phase::Head { .. } | Phase::Discard { .. })
    }

    /// Whether the client has sent no part of a request.
    pub(crate) fn has_nothing_under_way(&self) -> bool {
        matches!(self.phase, Phase::ProxyHeader | Phase::Http2 | Phase::Head { .. })
            && self.input.is_empty()
    }

    /// Whether a part of the next head has arrived.
    pub(crate) fn has_started_head(&self) -> bool {
        matches!(self.phase, Phase::Head { is_started: true })
    }

    /// The action that the connection belongs to after 101 (Switching Protocols).
    pub(crate) fn switched_to(&self) -> Option<Running> {
        match self.phase {
            Phase::Switched(running) => Some(running),
            Phase::ProxyHeader
            | Phase::Http2
            | Phase::Head { .. }
            | Phase::Discard { .. }
            | Phase::Request(_) => None,
        }
    }

    /// The current request.
    pub(super) fn request(&mut self) -> Option<&mut Http1Request> {
        match &mut self.phase {
            Phase::Request(request) => Some(request),
            Phase::ProxyHeader
            | Phase::Http2
            | Phase::Head { .. }
            | Phase::Discard { .. }
            | Phase::Switched(_) => None,
        }
    }

    /// Reads and discards the rest of the body, or expects a head if there is no rest.
    pub(super) fn end_request(&mut self) {
        self.phase = match self.body.is_done() {
            true => Phase::NEXT_HEAD,
            false => Phase::Discard { left: DISCARD_BYTES_MAX },
        };
    }

    /// The action that serves the current request.
    pub(crate) fn running(&self) -> Running {
        match &self.phase {
            Phase::Request(request) => request.action,
            Phase::Switched(running) => *running,
            Phase::ProxyHeader | Phase::Http2 | Phase::Head { .. } | Phase::Discard { .. } => {
                Running::None
            }
        }
    }
}

impl Phase {
    /// Expects a head of which nothing has arrived.
    pub(crate) const NEXT_HEAD: Self = Self::Head { is_started: false };
}

/// Bytes and events of a client connection.
impl Worker {
    /// A client sent bytes.
    pub(crate) fn http1_client_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &mut [u8],
    ) {
        let Some(down) = self.conns.downstream(sock) else { return self.note_bug(reactor, sock) };
        let Some(http1) = down.http1() else { return self.note_bug(reactor, sock) };
        if !http1.input.is_empty() || http1.is_held() {
            http1.input.push(bytes, &mut self.buffers);
            self.resume_http1_client(reactor, sock);
            return;
        }
        let used = self.decode_client(reactor, sock, bytes);
        if let Some(http1) = self.conns.downstream(sock).and_then(Downstream::http1)
            && used < bytes.len()
        {
            http1.input.push(&bytes[used..], &mut self.buffers);
        }
        self.conns.note_bytes(sock);
        self.settle_client(reactor, sock);
    }

    /// Decodes the bytes in the connection's input, as far as its phase allows.
    pub(crate) fn resume_http1_client<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        // The connection may have been closed after the work was queued.
        let Some(http1) = self.http1_client(sock) else { return };
        if !http1.is_held() && !http1.input.is_empty() {
            let mut input = core::mem::take(&mut http1.input);
            let used = self.decode_client(reactor, sock, input.as_mut_slice());
            input.consume(used);
            match self.http1_client(sock) {
                Some(http1) if !input.is_empty() => http1.input = input,
                _ => input.release(&mut self.buffers),
            }
        }
        self.settle_client(reactor, sock);
    }

    /// Sets receiving and the deadline according to the connection's phase.
    fn settle_client<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.renew_between_requests(sock);
        // Decoding may have closed the connection.
        let Some(down) = self.conns.downstream(sock) else { return };
        let timeouts = &self.settings.of(down.era()).listener(down.listener).timeouts;
        let now = reactor.now();
        let requests = down.requests;
        let Some(http1) = down.http1() else { return };
        if http1.is_held() {
            reactor.set_receiving(sock, false);
            reactor.set_deadline(sock, now.after(check_span(timeouts.body)));
            return;
        }
        let finished = http1.finished;
        match &mut http1.phase {
            // The deadline was set at accept. Receiving single bytes does not extend it.
            Phase::ProxyHeader | Phase::Http2 => reactor.set_receiving(sock, true),
            Phase::Head { is_started } => {
                reactor.set_receiving(sock, true);
                if http1.input.is_empty() {
                    *is_started = false;
                    let wait = if requests == 0 { timeouts.head } else { timeouts.idle };
                    reactor.set_deadline(sock, now.after(wait));
                } else if !*is_started {
                    *is_started = true;
                    reactor.set_deadline(sock, now.after(timeouts.head));
                }
            }
            Phase::Discard { .. } => {
                reactor.set_receiving(sock, true);
                reactor.set_deadline(sock, now.after(timeouts.body));
            }
            Phase::Request(request) => {
                let (running, is_done) = (request.action, http1.body.is_done());
                let is_waiting = http1.input.is_empty();
                let by = now.after(timeouts.body);
                reactor.set_receiving(sock, is_waiting);
                let expects_body = is_waiting && !is_done && self.expects_body(running);
                let Some(intake) = self.intake(running) else {
                    return self.note_bug(reactor, sock);
                };
                if expects_body {
                    intake.deadline = intake.deadline.min(by);
                    reactor.set_deadline(sock, intake.deadline);
                } else {
                    intake.deadline = Moment::NEVER;
                }
                return;
            }
            Phase::Switched(running) => {
                if !running.is_duplex() {
                    let is_waiting = http1.input.is_empty();
                    reactor.set_receiving(sock, is_waiting);
                }
                return;
            }
        }
        if finished {
            self.close_client(reactor, sock);
        }
    }

    /// Decodes `bytes` as far as the connection's phase allows. Returns how many were processed.
    fn decode_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &mut [u8],
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            // The last step may have closed the connection.
            let Some(http1) = self.http1_client(sock) else { return bytes.len() };
            if http1.is_held() {
                break;
            }
            let rest = &mut bytes[used..];
            let step = match &http1.phase {
                Phase::ProxyHeader => self.handle_proxy_header(reactor, sock, rest),
                Phase::Http2 => return self.continue_as_http2(reactor, sock, rest) + used,
                Phase::Head { .. } => match self.detect_preface(sock, rest) {
                    Preface::None => self.decode_request(reactor, sock, rest),
                    Preface::Part => 0,
                    Preface::Http2 => return self.continue_as_http2(reactor, sock, rest) + used,
                },
                Phase::Discard { .. } => self.discard_body(reactor, sock, rest),
                Phase::Request(_) => self.decode_request_body(reactor, sock, rest),
                Phase::Switched(running) => {
                    let running = *running;
                    let taken = self.take_switched_bytes(reactor, running, rest);
                    self.note_bytes_in(Requester::connection(sock), taken);
                    used += taken;
                    break;
                }
            };
            if step == 0 {
                break;
            }
            used += step;
        }
        used
    }

    /// Whether the client begins with the preface of HTTP/2, on a listener that accepts HTTP/2 without TLS.
    fn detect_preface(&mut self, sock: SockId, bytes: &[u8]) -> Preface {
        let Some(down) = self.conns.downstream(sock) else { return Preface::None };
        if down.requests > 0 || !self.settings.of(down.era()).listener(down.listener).h2c {
            return Preface::None;
        }
        let count = bytes.len().min(PREFACE.len());
        match bytes[..count] == PREFACE[..count] {
            // No method of HTTP/1 begins with these bytes.
            true if count >= PREFACE_BYTES_MIN => Preface::Http2,
            true => Preface::Part,
            false => Preface::None,
        }
    }

    /// Hands the connection and its first bytes to HTTP/2. Returns how many were processed, which is all.
    fn continue_as_http2<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) -> usize {
        self.become_http2(reactor, sock);
        self.http2_client_received(reactor, sock, bytes);
        bytes.len()
    }

    /// Decodes one head and hands its request to an action. Returns 0 if the head is not complete yet.
    fn decode_request<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, bytes: &[u8]) -> usize {
        let Some(down) = self.conns.downstream(sock) else {
            self.note_bug(reactor, sock);
            return bytes.len();
        };
        if down.era() != self.settings.era() {
            self.renew_client(sock);
        }
        let Some(down) = self.conns.downstream(sock) else { return bytes.len() };
        let listener = self.settings.of(down.era()).listener(down.listener);
        let limits = HeadLimits {
            request_line_bytes_max: listener.limits.request_line_bytes_max,
            head_bytes_max: listener.limits.head_bytes_max,
            header_fields_max: listener.limits.header_fields_max,
        };
        let Some(http1) = down.http1() else { return bytes.len() };
        let glitches = http1.decoder.glitches();
        let mut storage = FieldStorage::new();
        match http1.decoder.decode_request(bytes, &limits, &mut storage) {
            Ok(None) => 0,
            Ok(Some((head, head_bytes))) => {
                self.note_head_glitches(sock, glitches);
                self.conns.note_request(sock);
                self.accounts.counters.requests.add(1);
                self.begin_http1_request(reactor, sock, &head);
                self.begin_request(reactor, Requester::connection(sock), &head);
                head_bytes
            }
            Err(fault) => {
                let place = FaultPlace::Head(fault.kind);
                self.keep_malformed(reactor, sock, (fault.reason(), place), bytes);
                self.refuse_head(reactor, sock, fault, is_head_request(bytes));
                bytes.len()
            }
        }
    }

    /// Records the properties of the request that the carrier needs until its response has ended.
    fn begin_http1_request<R: Reactor>(
        &mut self,
        reactor: &R,
        sock: SockId,
        head: &RequestHead<'_>,
    ) {
        self.begin_http1_record(reactor, sock, head);
        let stopping = self.stopping;
        let Some(down) = self.conns.downstream(sock) else { return self.note_absent(sock) };
        let most = self.settings.of(down.era()).listener(down.listener).requests_per_connection_max;
        let is_gone = self.settings.of(down.era()).is_listener_gone(down.listener);
        let is_last = is_gone || most.is_some_and(|most| down.requests >= most);
        let Some(http1) = down.http1() else { return };
        let may_stay = head.persistent && !stopping && !is_last;
        let is_glitchy = http1.is_glitchy();
        http1.body = BodyDecoder::new(head.length);
        http1.phase = Phase::Request(Http1Request {
            action: Running::None,
            filters: 0,
            version: head.version,
            is_head: matches!(head.method, Method::Head),
            keep: may_stay && !is_glitchy,
            is_rest_costly: is_cheaper_to_close(head),
            awaits_continue: head.expect_continue,
            sent: Sent::Nothing,
        });
        if may_stay && is_glitchy {
            self.accounts.counters.glitch_closes.add(1);
        }
    }

    /// Decodes bytes of the request body and hands them to the action, as far as it takes them. Returns how many
    /// were processed.
    fn decode_request_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            // The action may have released the connection, which then expects something else.
            let Some(down) = self.conns.downstream(sock) else { break };
            let Some(http1) = down.http1() else { break };
            let Phase::Request(request) = &http1.phase else { break };
            if http1.body.is_done() {
                break;
            }
            let running = request.action;
            let room = self.body_room(reactor, running);
            if room == 0 {
                break;
            }
            let piece = &bytes[used..bytes.len().min(used.saturating_add(room))];
            let Some(down) = self.conns.downstream(sock) else { break };
            let Some(http1) = down.http1() else { break };
            if let Phase::Request(request) = &mut http1.phase {
                request.awaits_continue = false;
            }
            let step = match http1.body.decode(piece) {
                Ok(step) => step,
                Err(fault) => {
                    let what = (fault.reason(), FaultPlace::Unknown);
                    self.keep_malformed(reactor, sock, what, piece);
                    self.reject_http1_request(reactor, sock, fault.status(), fault.reason());
                    return bytes.len();
                }
            };
            used += step.consumed;
            let end = step.done.then(|| http1.body.trailers().to_vec());
            let to = Requester::connection(sock);
            if !self.admit_body(to, running, step.consumed, step.data.len()) {
                let text = "the request body exceeds this listener's limit";
                self.reject_http1_request(reactor, sock, 413, text);
                return bytes.len();
            }
            self.take_body(reactor, running, step.data, end.as_deref());
        }
        used
    }

    /// Reads and discards an unwanted body.
    fn discard_body<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, bytes: &[u8]) -> usize {
        let Some(down) = self.conns.downstream(sock) else { return bytes.len() };
        let Some(http1) = down.http1() else { return bytes.len() };
        let Phase::Discard { left } = &mut http1.phase else { return 0 };
        match http1.body.decode(bytes) {
            Ok(step) if step.consumed <= *left as usize => {
                *left -= step.consumed as u32;
                if step.done {
                    http1.phase = Phase::NEXT_HEAD;
                }
                step.consumed
            }
            // The response has been sent already, so an error can only be reported by closing.
            Ok(_) | Err(_) => {
                self.close_client(reactor, sock);
                bytes.len()
            }
        }
    }

    /// A client ended its direction of the connection.
    pub(crate) fn http1_client_finished<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return self.note_bug(reactor, sock) };
        let Some(http1) = down.http1() else { return self.note_bug(reactor, sock) };
        http1.finished = true;
        match &http1.phase {
            Phase::ProxyHeader | Phase::Http2 | Phase::Head { .. } | Phase::Discard { .. } => {
                self.close_client(reactor, sock);
            }
            Phase::Request(request) => {
                let (running, is_done) = (request.action, http1.body.is_done());
                if !is_done && self.needs_whole_body(running) {
                    // The rest of the request will not arrive.
                    self.blame(Requester::connection(sock), Cause::Client, CLIENT_LEFT);
                    self.note_departure(running);
                    self.accounts.counters.client_aborts.add(1);
                    self.close_client(reactor, sock);
                } else {
                    self.client_half_closed(reactor, running);
                }
            }
            Phase::Switched(running) => {
                let running = *running;
                self.switched_finished(reactor, running);
            }
        }
    }

    /// A client ended its direction of the connection; bytes before the end are still unread.
    pub(crate) fn http1_client_hung_up<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(http1) = self.http1_client(sock) else { return self.note_bug(reactor, sock) };
        if let Phase::Request(request) = &http1.phase {
            let running = request.action;
            self.client_half_closed(reactor, running);
        }
    }

    /// A client connection was reset or ended.
    pub(crate) fn http1_client_closed<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.blame(Requester::connection(sock), Cause::Client, CLIENT_LEFT);
        let Some(http1) = self.http1_client(sock) else { return self.note_bug(reactor, sock) };
        match &http1.phase {
            Phase::ProxyHeader | Phase::Http2 | Phase::Head { .. } => {}
            Phase::Request(request) => {
                let running = request.action;
                self.note_departure(running);
                self.accounts.counters.client_aborts.add(1);
            }
            Phase::Discard { .. } | Phase::Switched(_) => {
                self.accounts.counters.client_aborts.add(1);
            }
        }
        self.drop_client(reactor, sock);
    }

    /// The blocked output to a client has drained.
    pub(crate) fn http1_client_drained<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return self.note_bug(reactor, sock) };
        let Some(http1) = down.http1() else { return self.note_bug(reactor, sock) };
        http1.blocked = false;
        let running = http1.running();
        let has_ended = http1.has_ended_request();
        if has_ended {
            self.end_record(reactor, Requester::connection(sock));
        }
        self.client_drained(reactor, running);
        self.resume_http1_client(reactor, sock);
    }

    /// The deadline of a client connection expired.
    pub(crate) fn http1_client_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return self.note_bug(reactor, sock) };
        let requests = down.requests;
        let Some(http1) = down.http1() else { return self.note_bug(reactor, sock) };
        let is_duplex = matches!(http1.phase, Phase::Switched(running) if running.is_duplex());
        if http1.blocked && !is_duplex {
            return self.blocked_client_due(reactor, sock);
        }
        let counters = &self.accounts.counters;
        match &http1.phase {
            Phase::ProxyHeader | Phase::Http2 => {
                counters.head_timeouts.add(1);
                self.close_client(reactor, sock);
            }
            Phase::Head { is_started: true } => {
                counters.head_timeouts.add(1);
                let is_head = is_head_request(http1.input.as_slice());
                let text = "timed out reading the request head";
                self.refuse(reactor, sock, 408, text, is_head);
            }
            Phase::Head { is_started: false } => {
                let counter =
                    if requests == 0 { &counters.head_timeouts } else { &counters.idle_timeouts };
                counter.add(1);
                self.close_client(reactor, sock);
            }
            Phase::Discard { .. } => {
                counters.body_timeouts.add(1);
                self.close_client(reactor, sock);
            }
            Phase::Request(_) => self.request_due(reactor, sock),
            Phase::Switched(running) => {
                let running = *running;
                self.action_due(reactor, running);
            }
        }
    }

    /// The deadline of a client expired that does not read its responses fast enough.
    fn blocked_client_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return self.note_bug(reactor, sock) };
        let timeout = self.settings.of(down.era()).listener(down.listener).timeouts.body;
        if reactor.output_pending(sock) == 0 {
            // `Drained` is on its way.
            return reactor.set_deadline(sock, reactor.now().after(check_span(timeout)));
        }
        if let Some(at) = next_output_check(reactor, sock, timeout) {
            return reactor.set_deadline(sock, at);
        }
        self.accounts.counters.body_timeouts.add(1);
        self.blame(Requester::connection(sock), Cause::ClientTimeout, SLOW_CLIENT);
        self.drop_client(reactor, sock);
        reactor.abort(sock);
    }

    /// The deadline of a client expired while an action serves its request.
    fn request_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return self.note_bug(reactor, sock) };
        let Some(http1) = down.http1() else { return self.note_bug(reactor, sock) };
        let is_input_empty = http1.input.is_empty();
        let (running, is_done) = (http1.running(), http1.body.is_done());
        if !self.expects_body(running) {
            return self.action_due(reactor, running);
        }
        if is_done {
            return;
        }
        if !is_input_empty || self.is_body_stuck(reactor, running) {
            // The action does not take the body. A deadline of the action covers that.
            if let Some(intake) = self.intake(running) {
                intake.deadline = Moment::NEVER;
            }
            return;
        }
        self.accounts.counters.body_timeouts.add(1);
        self.reject_http1_request(reactor, sock, 408, "timed out reading the request body");
    }

    /// Rejects a request whose body is malformed, too long or incomplete, and ends the connection.
    fn reject_http1_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        status: u16,
        text: &'static str,
    ) {
        self.accounts.counters.requests_refused.add(1);
        self.blame(Requester::connection(sock), Cause::of_status(status), text);
        let Some(request) = self.http1_request(sock) else { return self.note_bug(reactor, sock) };
        let running = core::mem::replace(&mut request.action, Running::None);
        let sent = request.sent;
        self.cancel(reactor, running);
        match sent {
            Sent::Nothing => {
                self.answer_http1(reactor, sock, &Answer::Error { status, text }, true);
            }
            Sent::Head(_) => self.cut_http1_response(reactor, sock),
            Sent::All => self.close_client(reactor, sock),
        }
    }

    /// Rejects a malformed head and ends the connection, because the start of the next message is unknown.
    fn refuse_head<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        fault: Fault,
        is_head: bool,
    ) {
        self.accounts.counters.requests_refused.add(1);
        self.refuse(reactor, sock, fault.status(), fault.reason(), is_head);
    }

    /// Sends an error response for an incomplete or malformed head, and ends the connection. `is_head`: the
    /// method is HEAD, as far as the bytes show (RFC 9110 section 9.3.2).
    fn refuse<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        status: u16,
        text: &'static str,
        is_head: bool,
    ) {
        let Some(down) = self.conns.downstream(sock) else { return self.note_bug(reactor, sock) };
        let handlings = &self.settings.of(down.era()).handlings;
        let filters = handlings.listener_filters(usize::from(down.listener), down.scheme);
        let form = AnswerForm { version: Version::Http11, is_head, close: true, filters };
        let (sent, bytes) =
            self.encode_answer(reactor, sock, &Answer::Error { status, text }, &form);
        // Nothing is sent if the client has reset the connection.
        let status = (sent != 0).then_some(sent);
        let refusal = Refusal { version: Version::Http11, status, bytes, reason: text };
        self.record_refusal(reactor, sock, &refusal);
        self.close_client(reactor, sock);
    }

    /// Lets a connection without a request use the current settings.
    fn renew_between_requests(&mut self, sock: SockId) {
        let era = self.settings.era();
        let Some(down) = self.conns.downstream(sock).filter(|down| down.era() != era) else {
            return;
        };
        if down.http1().is_some_and(|http1| matches!(http1.phase, Phase::Head { .. })) {
            self.renew_client(sock);
        }
    }

    /// The HTTP/1 state of the connection; `None` if the connection has been closed.
    pub(crate) fn http1_client(&mut self, sock: SockId) -> Option<&mut Http1Client> {
        self.conns.downstream(sock)?.http1()
    }

    /// The current request of the connection; `None` if the connection or its request has ended.
    pub(in crate::carrier) fn http1_request(&mut self, sock: SockId) -> Option<&mut Http1Request> {
        self.http1_client(sock)?.request()
    }
}

/// Whether a request that cannot be decoded begins with the method HEAD, so that the response has no body.
fn is_head_request(bytes: &[u8]) -> bool {
    bytes.strip_prefix(b"\r\n").unwrap_or(bytes).starts_with(b"HEAD ")
}

/// Whether closing the connection is cheaper than discarding the body of this request. A client that waits
/// for 100 (Continue) may or may not send its body, and a long body costs more than a new connection.
fn is_cheaper_to_close(head: &RequestHead<'_>) -> bool {
    match head.length {
        BodyLength::None => false,
        BodyLength::Length(length) => head.expect_continue || length > u64::from(DISCARD_BYTES_MAX),
        BodyLength::Streamed | BodyLength::UntilClose => head.expect_continue,
    }
}
