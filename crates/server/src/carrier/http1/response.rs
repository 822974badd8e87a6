//! Responses over HTTP/1: the implementation of the interface to clients (`carrier/client.rs`) on such a connection.
//! In: complete responses; heads, pieces of bodies and ends of responses. Out: bytes in the connection's
//! output; the connection ready for its next request, or closed.
//! Never: depends on the action that a response comes from.
//! Invariant: `Http1Request::sent` only advances: `Nothing`, `Head`, `All`.

use tidegate_gate::filter::Filtered;
use tidegate_gate::forward;
use tidegate_gate::handling::FilterId;
use tidegate_gate::respond;
use tidegate_gate::switching;
use tidegate_gate::websocket;
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http1::{self, ResponseEncoder};
use tidegate_wire::message::{ResponseHead, Version};

use crate::action::Running;
use crate::answer::{Answer, Head, Switch};
use crate::captured::head_fields;
use crate::carrier::http1::Framing;
use crate::carrier::http1::client::{Phase, Sent};
use crate::carrier::http1::framing::send_framed;
use crate::carrier::output::{check_span, is_blocked};
use crate::carrier::{Progress, Rest};
use crate::requester::Requester;
use crate::worker::{Work, Worker};

/// How the carrier encodes a complete response.
pub(super) struct AnswerForm {
    pub(super) version: Version,
    pub(super) is_head: bool,
    /// The connection closes after the response.
    pub(super) close: bool,
    pub(super) filters: FilterId,
}

/// Complete responses.
impl Worker {
    /// Records which action serves the current request.
    pub(in crate::carrier) fn set_http1_action(&mut self, sock: SockId, action: Running) {
        match self.http1_request(sock) {
            Some(request) => request.action = action,
            None => self.note_absent(sock),
        }
    }

    /// Records the filters of the response.
    pub(in crate::carrier) fn set_http1_filters(&mut self, sock: SockId, filters: FilterId) {
        match self.http1_request(sock) {
            Some(request) => request.filters = filters,
            None => self.note_absent(sock),
        }
    }

    /// Sends a complete response, and makes the connection ready for its next request or closes it. The action
    /// has ended. `closes`: the connection must close after the response.
    pub(in crate::carrier) fn answer_http1<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        answer: &Answer<'_>,
        closes: bool,
    ) {
        let stopping = self.stopping;
        let Some(http1) = self.http1_client(sock) else { return self.note_bug(reactor, sock) };
        let is_done = http1.body.is_done();
        let Some(request) = http1.request() else { return self.note_bug(reactor, sock) };
        let is_rest_costly = request.is_rest_costly && !is_done;
        let form = AnswerForm {
            version: request.version,
            is_head: request.is_head,
            close: closes || answer.closes() || !request.keep || stopping || is_rest_costly,
            filters: request.filters,
        };
        let (status, bytes) = self.encode_answer(reactor, sock, answer, &form);
        self.note_answer(Requester::connection(sock), status, bytes);
        self.capture_http1_response(reactor, sock, bytes);
        self.expect_next(reactor, sock, form.close);
    }

    /// Appends a complete response to the connection's output. Returns its status and length; 0 if the connection
    /// has failed.
    pub(super) fn encode_answer<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        answer: &Answer<'_>,
        form: &AnswerForm,
    ) -> (u16, usize) {
        self.date.update(reactor.unix_seconds());
        let to = Requester::connection(sock);
        let era = self.era_of(to);
        let context = self.settings.answer_context(self.date.as_bytes(), form.is_head);
        let values = self.values.of(to);
        let filters = self.settings.of(era).handlings.filters(form.filters, values);
        let Some(out) = reactor.output(sock) else { return (0, 0) };
        let before = out.len();
        let encoder = &mut ResponseEncoder::new(out, form.version, form.close);
        let status = match answer {
            Answer::Prepared(prepared) if answer.filters(filters).is_empty() => {
                respond::encode_respond(encoder, prepared, &context);
                prepared.status()
            }
            _ => answer.encode(encoder, form.version, filters, &context),
        };
        self.accounts.counters.count_answer(status);
        (status, out.len() - before)
    }

    /// The response has ended and its action, too: expects the next head, discards the rest of an unwanted body,
    /// or closes the connection.
    pub(super) fn expect_next<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, close: bool) {
        let Some(request) = self.http1_request(sock) else { return self.note_bug(reactor, sock) };
        let was_running = core::mem::replace(&mut request.action, Running::None) != Running::None;
        if close {
            self.end_record(reactor, Requester::connection(sock));
            return self.close_client(reactor, sock);
        }
        let blocked = is_blocked(reactor, sock);
        let Some(http1) = self.http1_client(sock) else { return self.note_bug(reactor, sock) };
        http1.blocked = blocked;
        http1.end_request();
        // If the client does not take the response, the exchange ends when it has.
        if !blocked {
            self.end_record(reactor, Requester::connection(sock));
        }
        // If the action ended in the call that began it, the loop that decoded the request continues.
        if was_running {
            self.work.push(Work::Resume(Requester::connection(sock)));
        }
    }
}

/// Responses whose bodies follow in pieces.
impl Worker {
    /// Sends the final head of a response. `rest`: how the rest of the request is handled.
    pub(in crate::carrier) fn begin_http1_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        head: &Head<'_>,
        rest: Rest,
    ) {
        self.date.update(reactor.unix_seconds());
        let stopping = self.stopping;
        let Some(http1) = self.http1_client(sock) else { return self.note_bug(reactor, sock) };
        let is_done = http1.body.is_done();
        let Some(request) = http1.request() else { return self.note_bug(reactor, sock) };
        debug_assert_eq!(request.sent, Sent::Nothing, "a second final head");
        // A client that gets a final response instead of 100 (Continue) may omit the body.
        let is_rest_known = match rest {
            Rest::Taken => is_done || !request.awaits_continue,
            Rest::Unwanted => is_done,
            Rest::Discarded => !request.is_rest_costly,
        };
        request.keep &= is_rest_known && !stopping && !head.closes();
        let framing = Framing::of(head.length(request.is_head), request.version);
        request.keep &= framing != Framing::UntilClose;
        request.sent = Sent::Head(framing);
        let (version, is_head, keep) = (request.version, request.is_head, request.keep);
        let filters = request.filters;
        let to = Requester::connection(sock);
        let era = self.era_of(to);
        let values = self.values.of(to);
        let filters = self.settings.of(era).handlings.filters(filters, values);
        // The reactor has no output for a connection that failed just now. `Closed` follows.
        let Some(out) = reactor.output(sock) else { return };
        let before = out.len();
        let mut encoder = ResponseEncoder::new(out, version, !keep);
        let context = self.settings.answer_context(self.date.as_bytes(), is_head);
        let forwarding = self.settings.response_context(self.date.as_bytes(), is_head);
        head.encode(&mut encoder, version, filters, &context, &forwarding);
        debug_assert_eq!((encoder.framing(), encoder.closes()), (framing, !keep));
        let bytes = out.len() - before;
        self.accounts.counters.count_answer(head.status());
        self.note_head(Requester::connection(sock), head.status(), bytes, reactor.now());
        self.capture_http1_response(reactor, sock, bytes);
    }

    /// Copies the response fields that the access log contains, from the response whose head was just appended to the output,
    /// perhaps with its content: the last `bytes` of the output.
    #[inline]
    fn capture_http1_response<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, bytes: usize) {
        if !self.recorder.captures_responses() {
            return;
        }
        let Some(record) = self.conns.downstream(sock).map(|down| down.record()) else { return };
        let Some(out) = reactor.output(sock) else { return };
        let response = out.len().checked_sub(bytes).map(|start| &out[start..]).unwrap_or_default();
        self.recorder.capture_response(record, head_fields(response));
    }

    /// Relays an interim response (1xx other than 101).
    pub(in crate::carrier) fn send_http1_interim<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        head: &ResponseHead<'_>,
    ) {
        let Some(request) = self.http1_request(sock) else { return self.note_bug(reactor, sock) };
        request.awaits_continue &= head.status != 100;
        let filters = request.filters;
        let era = self.era_of(Requester::connection(sock));
        let Some(request) = self.http1_request(sock) else { return self.note_bug(reactor, sock) };
        // RFC 9110 section 15.2: HTTP/1.0 clients do not know interim responses.
        if request.version >= Version::Http11
            && let Some(out) = reactor.output(sock)
        {
            let encoder = &mut ResponseEncoder::new(out, request.version, false);
            let filters = self.settings.of(era).handlings.filters(filters, b"").for_interim();
            let sink = &mut Filtered::new(encoder, filters);
            forward::encode_interim(sink, head, &self.settings.newest().config.server.via);
            self.accounts.counters.count_answer(head.status);
        }
    }

    /// Asks the client for the body of its request (RFC 9110 section 10.1.1).
    pub(in crate::carrier) fn send_http1_continue<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        reactor.send(sock, b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    /// Sends a piece of the response body.
    pub(in crate::carrier) fn send_http1_data<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        data: &[u8],
    ) {
        let Some(request) = self.http1_request(sock) else { return self.note_bug(reactor, sock) };
        let Sent::Head(framing) = request.sent else { return self.note_bug(reactor, sock) };
        send_framed(reactor, sock, framing, data);
    }

    /// Ends the response.
    pub(in crate::carrier) fn end_http1_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        data: &[u8],
        trailers: &[u8],
    ) {
        self.send_http1_data(reactor, sock, data);
        let Some(request) = self.http1_request(sock) else { return self.note_bug(reactor, sock) };
        let sent = core::mem::replace(&mut request.sent, Sent::All);
        if sent == Sent::Head(Framing::Chunked)
            && let Some(out) = reactor.output(sock)
        {
            http1::encode_last_chunk(out, trailers);
        }
    }

    /// The action has ended, after its response.
    pub(in crate::carrier) fn release_http1<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let stopping = self.stopping;
        let Some(http1) = self.http1_client(sock) else { return self.note_bug(reactor, sock) };
        let is_done = http1.body.is_done();
        let Some(request) = http1.request() else { return self.note_bug(reactor, sock) };
        debug_assert_eq!(request.sent, Sent::All, "a response without an end");
        let close = !request.keep || (stopping && !is_done);
        self.expect_next(reactor, sock, close);
    }

    /// Ends a truncated response in such a way that the client cannot take it for complete. The action has
    /// ended.
    pub(in crate::carrier) fn cut_http1_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        let Some(request) = self.http1_request(sock) else { return self.note_bug(reactor, sock) };
        request.action = Running::None;
        let sent = request.sent;
        self.accounts.counters.upstream_truncations.add(1);
        match sent {
            // The missing bytes or the missing last chunk reveal the truncation. The relayed part is delivered.
            Sent::Head(Framing::Length | Framing::Chunked) => self.close_client(reactor, sock),
            Sent::Head(Framing::None | Framing::UntilClose) | Sent::Nothing | Sent::All => {
                self.drop_client(reactor, sock);
                reactor.abort(sock);
            }
        }
    }

    /// Suspends the response until the client's output has drained.
    pub(in crate::carrier) fn hold_http1<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return };
        let timeout = self.settings.of(down.era()).listener(down.listener).timeouts.body;
        if let Some(http1) = down.http1() {
            http1.blocked = true;
        }
        reactor.set_deadline(sock, reactor.now().after(check_span(timeout)));
    }

    /// Whether the response is suspended.
    pub(in crate::carrier) fn is_http1_held(&mut self, sock: SockId) -> bool {
        self.http1_client(sock).is_some_and(|http1| http1.blocked)
    }

    /// Whether the final head has been sent.
    pub(in crate::carrier) fn http1_progress(&mut self, sock: SockId) -> Progress {
        let Some(request) = self.http1_request(sock) else {
            self.note_absent(sock);
            return Progress::Ended;
        };
        match request.sent {
            Sent::Nothing => Progress::Expected,
            Sent::Head(_) => Progress::Begun,
            Sent::All => Progress::Ended,
        }
    }

    /// Whether the client may not send the body, because it waits for 100 (Continue).
    pub(in crate::carrier) fn http1_awaits_continue(&mut self, sock: SockId) -> bool {
        let Some(request) = self.http1_request(sock) else {
            self.note_absent(sock);
            return false;
        };
        request.awaits_continue
    }

    /// Whether the connection stays open after the response.
    pub(in crate::carrier) fn http1_stays_open(&mut self, sock: SockId) -> bool {
        let Some(request) = self.http1_request(sock) else {
            self.note_absent(sock);
            return false;
        };
        request.keep
    }

    /// Sends a 101 response; from then on, the connection belongs to the action `running`.
    pub(in crate::carrier) fn switch_http1<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        switch: &Switch<'_>,
        running: Running,
    ) {
        self.date.update(reactor.unix_seconds());
        let Some(http1) = self.http1_client(sock) else { return self.note_bug(reactor, sock) };
        let filters = http1.request().map_or(0, |request| request.filters);
        http1.phase = Phase::Switched(running);
        let to = Requester::connection(sock);
        let era = self.era_of(to);
        if let Some(out) = reactor.output(sock) {
            let before = out.len();
            let encoder = &mut ResponseEncoder::new(out, Version::Http11, false);
            let status = match switch {
                Switch::Relayed(head) => {
                    let filters = self.settings.of(era).handlings.filters(filters, b"");
                    forward::encode_interim(
                        &mut Filtered::new(encoder, filters.for_interim()),
                        head,
                        &self.settings.newest().config.server.via,
                    );
                    head.status
                }
                Switch::Connected(head, key) => {
                    let filters = self.settings.of(era).handlings.filters(filters, b"");
                    switching::encode_switched(
                        &mut Filtered::new(encoder, filters.for_interim()),
                        head,
                        key,
                        &self.settings.newest().config.server.via,
                    );
                    101
                }
                Switch::WebSocket(accept) => {
                    let context = self.settings.answer_context(self.date.as_bytes(), false);
                    let values = self.values.of(to);
                    let filters = self.settings.of(era).handlings.filters(filters, values);
                    let sink = &mut Filtered::new(encoder, filters);
                    websocket::encode_switch(sink, accept, &context);
                    101
                }
            };
            let bytes = out.len() - before;
            self.accounts.counters.count_answer(status);
            self.note_head(Requester::connection(sock), status, bytes, reactor.now());
            self.capture_http1_response(reactor, sock, bytes);
        }
        reactor.set_receiving(sock, true);
        self.work.push(Work::Resume(Requester::connection(sock)));
    }

    /// The action that the connection belongs to has ended. The caller closes the connection.
    pub(in crate::carrier) fn detach_http1(&mut self, sock: SockId) {
        match self.http1_client(sock) {
            Some(http1) => http1.phase = Phase::NEXT_HEAD,
            None => self.note_absent(sock),
        }
    }
}
