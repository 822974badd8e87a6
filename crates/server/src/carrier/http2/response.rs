//! Responses over HTTP/2: the implementation of the interface to clients (`carrier/client.rs`) on a stream.
//! In: complete responses; heads and ends of responses; resets. Out: encoded heads for `clients.rs`, which sends them.
//! Never: depends on the action that a response comes from.

use tidegate_gate::denial::Denial;
use tidegate_gate::filter::Filtered;
use tidegate_gate::forward;
use tidegate_reactor::Reactor;
use tidegate_wire::http2::{ErrorCode, FieldWriter};
use tidegate_wire::message::{ResponseHead, Version};

use crate::action::Running;
use crate::answer::{Answer, Head};
use crate::carrier::Progress;
use crate::carrier::output::is_blocked;
use crate::requester::Requester;
use crate::worker::Worker;

/// Messages of actions.
impl Worker {
    /// Sends a complete response. The action has ended.
    pub(in crate::carrier) fn answer_http2<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        answer: &Answer<'_>,
    ) {
        self.date.update(reactor.unix_seconds());
        let Some(stream) = self.http2_clients.get_mut(to.stream) else { return };
        stream.progress = Progress::Ended;
        let is_head = stream.is_head;
        let of_call;
        let error = match *answer {
            Answer::Error { status, text } => Some(Denial::new(status, text)),
            Answer::Denied(denial) => Some(denial),
            _ => None,
        };
        let answer = match error.filter(|_| stream.is_call) {
            Some(Denial { status, text, retry_after, .. }) => {
                of_call = Answer::CallError { status, text, retry_after };
                &of_call
            }
            None => answer,
        };
        let context = self.settings.answer_context(self.date.as_bytes(), is_head);
        let filters =
            self.settings.of(stream.era).handlings.filters(stream.filters, self.values.of(to));
        let head = &mut self.http2_clients.head;
        head.clear();
        let status = answer.encode(head, Version::Http2, filters, &context);
        self.accounts.counters.count_answer(status);
        self.capture_http2_response(to);
        let (clients, mut links) = self.client_streams(reactor);
        let bytes = clients.send_answer(&mut links, to);
        self.note_answer(to, status, bytes);
        self.release_http2(reactor, to);
    }

    /// Sends the final head of a response.
    pub(in crate::carrier) fn begin_http2_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        response: &Head<'_>,
    ) {
        self.date.update(reactor.unix_seconds());
        let Some(stream) = self.http2_clients.get_mut(to.stream) else { return };
        debug_assert_eq!(stream.progress, Progress::Expected, "a second final head");
        stream.progress = Progress::Begun;
        let is_head = stream.is_head;
        let filters =
            self.settings.of(stream.era).handlings.filters(stream.filters, self.values.of(to));
        let head = &mut self.http2_clients.head;
        head.clear();
        let answer = self.settings.answer_context(self.date.as_bytes(), is_head);
        let forwarding = self.settings.response_context(self.date.as_bytes(), is_head);
        response.encode(head, Version::Http2, filters, &answer, &forwarding);
        let (status, has_no_body) = (head.status(), head.has_no_body());
        self.accounts.counters.count_answer(status);
        self.capture_http2_response(to);
        // The end of a response without a body is sent by `end_http2_response`, except that a head which must
        // end the stream does so by itself.
        let now = reactor.now();
        let (clients, mut links) = self.client_streams(reactor);
        let bytes = clients.send_head(&mut links, to, has_no_body);
        self.note_head(to, status, bytes, now);
    }

    /// Copies the response fields that the access log contains, from the response whose head is in the buffer of the worker.
    #[inline]
    pub(super) fn capture_http2_response(&mut self, to: Requester) {
        if !self.recorder.captures_responses() {
            return;
        }
        let Some(stream) = self.http2_clients.get(to.stream) else { return };
        let (record, fields) = (stream.record(), self.http2_clients.head.fields());
        let parts = fields.map(|field| (field.name.as_bytes(), field.value));
        self.recorder.capture_response(record, parts);
    }

    /// Relays an interim response.
    pub(in crate::carrier) fn send_http2_interim<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        interim: &ResponseHead<'_>,
    ) {
        if interim.status != 100 && is_blocked(reactor, to.sock) {
            // The client does not read, and may do without it.
            return;
        }
        let Some(stream) = self.http2_clients.get_mut(to.stream) else { return };
        stream.awaits_continue &= interim.status != 100;
        let filters = self.settings.of(stream.era).handlings.filters(stream.filters, b"");
        let head = &mut self.http2_clients.head;
        head.clear();
        let sink = &mut Filtered::new(&mut *head, filters.for_interim());
        forward::encode_interim(sink, interim, &self.settings.newest().config.server.via);
        self.accounts.counters.count_answer(head.status());
        let (clients, mut links) = self.client_streams(reactor);
        clients.send_head(&mut links, to, false);
    }

    /// The action has ended, after its response.
    pub(in crate::carrier) fn release_http2<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let (clients, mut links) = self.client_streams(reactor);
        if clients.release(&mut links, to) {
            self.drop_stream(reactor, to.stream);
        }
    }

    /// Cuts off a response that cannot be completed. The action has ended.
    pub(in crate::carrier) fn cut_http2_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
    ) {
        self.accounts.counters.upstream_truncations.add(1);
        if let Some(stream) = self.http2_clients.get_mut(to.stream) {
            stream.action = Running::None;
        }
        self.reset_http2_stream(reactor, to, ErrorCode::INTERNAL_ERROR);
    }

    /// Resets a response with the code of its server. The action has ended.
    pub(in crate::carrier) fn reset_http2_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        code: ErrorCode,
    ) {
        self.accounts.counters.upstream_truncations.add(1);
        if let Some(stream) = self.http2_clients.get_mut(to.stream) {
            stream.action = Running::None;
        }
        self.reset_http2_stream(reactor, to, code);
    }
}

/// Writes trailers, which are lines as in HTTP/1.
pub(super) fn write_lines(writer: &mut FieldWriter<'_>, lines: &[u8]) {
    for line in lines.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let Ok(name) = core::str::from_utf8(name) {
            writer.field(name, value);
        }
    }
}
