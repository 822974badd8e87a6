//! Responses over HTTP/2: what the port towards clients (`carrier/client.rs`) does on a stream.
//! In: complete responses; heads, pieces of bodies and ends of responses. Out: frames in the connection's output,
//! as far as the client's windows admit them; the rest waits in the stream.
//! Never: knows which action a response comes from.
//! Invariant: a stream that is behind is in the connection's write queue, so `send_admitted` returns to it.

use tidegate_base::Id;
use tidegate_base::limits::OUTPUT_FLUSH_BYTES;
use tidegate_gate::filter::Filtered;
use tidegate_gate::forward::{self, ResponseContext};
use tidegate_gate::respond::AnswerContext;
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http2::{ErrorCode, FieldWriter};
use tidegate_wire::message::{ResponseHead, Version};

use crate::action::Running;
use crate::answer::{Answer, Head};
use crate::carrier::Progress;
use crate::carrier::http2::client::id_of;
use crate::carrier::http2::stream::Http2Stream;
use crate::carrier::output::is_blocked;
use crate::requester::Requester;
use crate::worker::{Work, Worker};

/// The most bytes of a body that are put into the output at once. Then the output is sent, if it can be.
const SEND_BYTES_MAX: usize = OUTPUT_FLUSH_BYTES;

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
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        stream.progress = Progress::Ended;
        let (number, is_head) = (stream.number, stream.is_head);
        let of_call;
        let answer = match *answer {
            Answer::Error { status, text } if stream.is_call => {
                of_call = Answer::CallError { status, text };
                &of_call
            }
            _ => answer,
        };
        let context = AnswerContext {
            date: self.date.as_bytes(),
            server: &self.settings.newest().config.server.server_name,
            is_head,
        };
        let filters =
            self.settings.of(stream.era).handlings.filters(stream.filters, self.values.of(to));
        let mut head = core::mem::take(&mut self.http2_head);
        head.clear();
        let status = answer.encode(&mut head, Version::Http2, filters, &context);
        self.accounts.counters.count_answer(status);
        let has_content = !head.content().is_empty();
        let bytes = self.send_http2_head(reactor, to.sock, number, &head, !has_content);
        self.note_answer(to, status, bytes + head.content().len());
        if has_content {
            self.send_on_stream(reactor, to, head.content(), true);
        }
        self.http2_head = head;
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
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        debug_assert_eq!(stream.progress, Progress::Expected, "a second final head");
        stream.progress = Progress::Begun;
        let (number, is_head) = (stream.number, stream.is_head);
        let filters =
            self.settings.of(stream.era).handlings.filters(stream.filters, self.values.of(to));
        let mut head = core::mem::take(&mut self.http2_head);
        head.clear();
        let answer = AnswerContext {
            date: self.date.as_bytes(),
            server: &self.settings.newest().config.server.server_name,
            is_head,
        };
        let forwarding = ResponseContext {
            date: self.date.as_bytes(),
            via: &self.settings.newest().config.server.via,
            request_is_head: is_head,
            cookie: "",
        };
        response.encode(&mut head, Version::Http2, filters, &answer, &forwarding);
        self.accounts.counters.count_answer(head.status());
        // The end of a response without a body is sent by `end_http2_response`, except that a head which must
        // end the stream does so by itself.
        let bytes = self.send_http2_head(reactor, to.sock, number, &head, head.has_no_body());
        self.note_head(to, head.status(), bytes, reactor.now());
        self.http2_head = head;
    }

    /// Relays an interim response.
    pub(in crate::carrier) fn send_http2_interim<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        interim: &ResponseHead<'_>,
    ) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        stream.awaits_continue &= interim.status != 100;
        let number = stream.number;
        let filters = self.settings.of(stream.era).handlings.filters(stream.filters, b"");
        let mut head = core::mem::take(&mut self.http2_head);
        head.clear();
        let sink = &mut Filtered::new(&mut head, filters.for_interim());
        forward::encode_interim(sink, interim, &self.settings.newest().config.server.via);
        self.accounts.counters.count_answer(head.status());
        self.send_http2_head(reactor, to.sock, number, &head, false);
        self.http2_head = head;
    }

    /// Asks the client for the body of its request (RFC 9110 section 10.1.1).
    pub(in crate::carrier) fn send_http2_continue<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
    ) {
        let Some(stream) = self.streams.get(to.stream) else { return };
        let number = stream.number;
        if let Some(http2) = self.http2_client(to.sock)
            && let Some(out) = reactor.output(to.sock)
        {
            http2.connection.send_response(out, number, 100, false, |_| {});
        }
    }

    /// Sends a head. Returns how many bytes it has.
    pub(super) fn send_http2_head<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        number: u32,
        head: &super::HeadBuffer,
        ends: bool,
    ) -> usize {
        let Some(http2) = self.http2_client(sock) else { return 0 };
        let Some(out) = reactor.output(sock) else { return 0 };
        let before = out.len();
        http2.connection.send_response(out, number, head.status(), ends, |writer| {
            for (name, value, is_sensitive) in head.fields() {
                match is_sensitive {
                    true => writer.sensitive(name, value),
                    false => writer.field(name, value),
                }
            }
        });
        out.len() - before
    }

    /// Sends a piece of the response body.
    pub(in crate::carrier) fn send_http2_data<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        data: &[u8],
    ) {
        self.send_on_stream(reactor, to, data, false);
    }

    /// Sends the last piece of the response body, and ends the response.
    pub(in crate::carrier) fn end_http2_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        data: &[u8],
        trailers: &[u8],
    ) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        stream.progress = Progress::Ended;
        stream.response_trailers.extend_from_slice(trailers);
        self.send_on_stream(reactor, to, data, true);
    }

    /// The action has ended, after its response.
    pub(in crate::carrier) fn release_http2<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        stream.action = Running::None;
        stream.is_released = true;
        stream.is_request_done = true;
        let unread = stream.input.len();
        let mut input = core::mem::take(&mut stream.input);
        input.release(&mut self.buffers);
        if unread > 0 {
            self.release_window(reactor, to, unread);
        }
        self.forget_if_done(reactor, to);
        self.settle_later(to.sock);
    }

    /// Cuts off a response that cannot be completed. The action has ended.
    pub(in crate::carrier) fn cut_http2_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
    ) {
        self.accounts.counters.upstream_truncations.add(1);
        if let Some(stream) = self.streams.get_mut(to.stream) {
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
        if let Some(stream) = self.streams.get_mut(to.stream) {
            stream.action = Running::None;
        }
        self.reset_http2_stream(reactor, to, code);
    }

    /// Resets a stream and cancels its action.
    pub(in crate::carrier) fn reset_http2_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        code: ErrorCode,
    ) {
        let Some(stream) = self.streams.get(to.stream) else { return };
        let number = stream.number;
        if let Some(http2) = self.http2_client(to.sock)
            && let Some(out) = reactor.output(to.sock)
        {
            http2.connection.reset(out, number, code);
        }
        self.drop_stream(reactor, to.stream);
        self.settle_later(to.sock);
    }

    /// Whether the client does not take its response fast enough.
    pub(in crate::carrier) fn is_http2_blocked<R: Reactor>(
        &self,
        reactor: &mut R,
        to: Requester,
    ) -> bool {
        self.streams.get(to.stream).is_some_and(Http2Stream::is_behind)
            || is_blocked(reactor, to.sock)
    }

    /// Suspends a response until the client has taken what was sent.
    pub(in crate::carrier) fn hold_http2<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let Some(down) = self.conns.downstream(to.sock) else { return };
        let timeout = self.settings.of(down.era()).listener(down.listener).timeouts.body;
        let at = reactor.now().after(timeout);
        if let Some(stream) = self.streams.get_mut(to.stream) {
            stream.is_held = true;
            stream.admitted_bytes = 0;
        }
        self.set_stream_deadline(reactor, to, at);
        self.settle_later(to.sock);
    }
}

/// Windows.
impl Worker {
    /// The action of a stream goes on, because the client has taken what was sent.
    pub(crate) fn stream_drained<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        // The stream may have ended after the work was queued.
        let Some(stream) = self.streams.get(to.stream) else { return };
        let (running, is_switched) = (stream.action, stream.is_switched());
        self.client_drained(reactor, running);
        if is_switched {
            self.resume_switched(reactor, to);
        }
        self.settle_later(to.sock);
    }

    /// Makes the current handler call settle the connection.
    pub(super) fn settle_later(&mut self, sock: SockId) {
        if let Some(http2) = self.http2_client(sock)
            && !core::mem::replace(&mut http2.is_settling, true)
        {
            self.work.push(Work::Settle(sock));
        }
    }

    /// Sends bytes on a stream; `ends`: they are the last ones. What the windows do not admit waits.
    pub(super) fn send_on_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        data: &[u8],
        ends: bool,
    ) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        let number = stream.number;
        if !stream.output.is_empty() {
            return stream.output.push(data, &mut self.buffers);
        }
        let ends_with_data = ends && stream.response_trailers.is_empty();
        let admitted = self.admit_data(reactor, to.sock, number, data, ends_with_data);
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        stream.note_admitted(admitted, reactor.now());
        if admitted < data.len() {
            stream.output.push(&data[admitted..], &mut self.buffers);
            self.note_behind(reactor, to);
            return self.settle_later(to.sock);
        }
        if ends && !ends_with_data {
            self.send_http2_trailers(reactor, to);
        }
    }

    /// Sends as much of `data` as the windows and the output admit. Returns how many bytes that were; all of them if
    /// the stream cannot send any more, because a head has ended it or the client has reset it.
    fn admit_data<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        number: u32,
        data: &[u8],
        ends: bool,
    ) -> usize {
        let now = reactor.now();
        let mut admitted = 0;
        loop {
            let piece = &data[admitted..data.len().min(admitted + SEND_BYTES_MAX)];
            let is_last = admitted + piece.len() == data.len();
            let is_full = is_blocked(reactor, sock);
            let Some(http2) = self.http2_client(sock) else { return data.len() };
            let Some(out) = reactor.output(sock) else { return data.len() };
            if is_full && !piece.is_empty() {
                http2.connection.wait_writable(number);
                return admitted;
            }
            let sent = http2.connection.send_data(now, out, number, piece, ends && is_last);
            let Some(sent) = sent else { return data.len() };
            admitted += sent;
            if is_last || sent < piece.len() {
                return admitted;
            }
        }
    }

    /// Gives a stream that has just fallen behind its deadline.
    fn note_behind<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let Some(down) = self.conns.downstream(to.sock) else { return };
        let at =
            reactor.now().after(self.settings.of(down.era()).listener(down.listener).timeouts.body);
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        stream.admitted_bytes = 0;
        stream.moved_at = reactor.now();
        // The action has set the deadline of a tunnel.
        if !stream.is_tunnel() {
            self.set_stream_deadline(reactor, to, at);
        }
    }

    /// Sends the trailers of a response, which end it.
    fn send_http2_trailers<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        let (number, lines) = (stream.number, core::mem::take(&mut stream.response_trailers));
        if let Some(http2) = self.http2_client(to.sock)
            && let Some(out) = reactor.output(to.sock)
        {
            http2.connection.send_trailers(out, number, |writer| write_lines(writer, &lines));
        }
    }

    /// Sends what waits on the connection's streams, as far as windows and output admit it.
    pub(super) fn send_admitted<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        // The output of a connection that is blocked goes on when it has drained.
        while !is_blocked(reactor, sock) {
            let Some(http2) = self.http2_client(sock) else { return };
            let Some(out) = reactor.output(sock) else { return };
            let Some(number) = http2.connection.poll_writable(out) else { return };
            let id = http2.connection.token(number).map_or(Id::NONE, id_of);
            let Some(stream) = self.streams.get_mut(id) else { continue };
            let ends = stream.progress == Progress::Ended && stream.response_trailers.is_empty();
            let mut output = core::mem::take(&mut stream.output);
            let admitted = self.admit_data(reactor, sock, number, output.as_slice(), ends);
            output.consume(admitted);
            let is_empty = output.is_empty();
            let Some(stream) = self.streams.get_mut(id) else { return };
            stream.note_admitted(admitted, reactor.now());
            let to = Requester { sock, stream: id };
            if !is_empty {
                stream.output = output;
                continue;
            }
            output.release(&mut self.buffers);
            if stream.progress == Progress::Ended && !ends {
                self.send_http2_trailers(reactor, to);
            }
            self.forget_if_done(reactor, to);
            self.note_stream_drained(to);
        }
    }

    /// Forgets a stream whose action has ended and whose response is sent. A client that still sends its request
    /// is told to stop, and keeps the response (RFC 9113 section 8.1).
    fn forget_if_done<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let Some(stream) = self.streams.get(to.stream) else { return };
        if !stream.is_released || stream.is_behind() {
            return;
        }
        let (number, has_ended) = (stream.number, stream.has_request_ended);
        if !has_ended
            && let Some(http2) = self.http2_client(to.sock)
            && let Some(out) = reactor.output(to.sock)
        {
            http2.connection.reset(out, number, ErrorCode::NO_ERROR);
        }
        self.drop_stream(reactor, to.stream);
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
