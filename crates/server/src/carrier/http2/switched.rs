//! Streams that belong to an action after an extended CONNECT (RFC 8441): what the port towards clients
//! (`carrier/client.rs`) does on a stream for switched requesters.
//! In: DATA of the client; bytes of the action. Out: the same bytes on the other side.
//! Never: hands over a byte before the action has switched the stream; knows what the bytes mean.
//! Limits: what waits for the action is bounded by the stream's receive window; what waits for the client, as for
//! responses.
//! Invariant: the action learns the end of the client's direction once, after all bytes before it.

use tidegate_base::{Moment, Span};
use tidegate_gate::filter::Filtered;
use tidegate_gate::respond::AnswerContext;
use tidegate_gate::switching;
use tidegate_gate::websocket;
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http2::ErrorCode;

use crate::action::Running;
use crate::answer::Switch;
use crate::carrier::Progress;
use crate::carrier::http2::stream::Connect;
use crate::carrier::output::{is_blocked, look_span};
use crate::requester::Requester;
use crate::worker::{Work, Worker};

/// Messages of actions.
impl Worker {
    /// Sends the response 200; from then on, the stream belongs to the action `running`.
    pub(in crate::carrier) fn switch_http2<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        switch: &Switch<'_>,
        running: Running,
    ) {
        self.date.update(reactor.unix_seconds());
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        debug_assert_eq!(stream.connect, Connect::Requested, "an extended CONNECT");
        stream.connect = Connect::Switched { is_paused: false };
        stream.action = running;
        stream.progress = Progress::Begun;
        let (number, era, filters) = (stream.number, stream.era, stream.filters);
        let mut head = core::mem::take(&mut self.http2_head);
        head.clear();
        let settings = &self.settings.newest().config.server;
        match switch {
            Switch::Relayed(response) | Switch::Connected(response, _) => {
                switching::encode_connected(&mut head, response, &settings.via);
            }
            Switch::WebSocket(accept) => {
                let context = AnswerContext {
                    date: self.date.as_bytes(),
                    server: &settings.server_name,
                    is_head: false,
                };
                let filters = self.settings.of(era).handlings.filters(filters, self.values.of(to));
                websocket::encode_switch(&mut Filtered::new(&mut head, filters), accept, &context);
            }
        }
        self.accounts.counters.count_answer(head.status());
        let bytes = self.send_http2_head(reactor, to.sock, number, &head, false);
        self.note_head(to, head.status(), bytes, reactor.now());
        self.http2_head = head;
        self.work.push(Work::Resume(to));
        self.settle_later(to.sock);
    }

    /// Sends bytes of the action.
    pub(in crate::carrier) fn send_http2_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        bytes: &[u8],
    ) {
        self.send_http2_data(reactor, to, bytes);
        self.settle_later(to.sock);
    }

    /// Sends the bytes that `encode` appends. Returns how many.
    pub(in crate::carrier) fn encode_http2_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let mut bytes = self.buffers.take();
        encode(&mut bytes);
        self.send_http2_switched(reactor, to, &bytes);
        let count = bytes.len();
        self.buffers.put(bytes);
        count
    }

    /// Pauses or resumes what a duplex action gets.
    pub(in crate::carrier) fn pause_http2_switched(&mut self, to: Requester, is_paused: bool) {
        if let Some(stream) = self.streams.get_mut(to.stream) {
            stream.connect = Connect::Switched { is_paused };
            if !is_paused {
                self.work.push(Work::Resume(to));
            }
        }
    }

    /// Makes the carrier call the action's `client_drained` once the client has taken what was sent. The deadline of
    /// the stream stays that of the action.
    pub(in crate::carrier) fn await_http2_drain(&mut self, to: Requester) {
        if let Some(stream) = self.streams.get_mut(to.stream) {
            stream.is_held = true;
        }
        self.settle_later(to.sock);
    }

    /// Ends the direction towards the client.
    pub(in crate::carrier) fn finish_http2_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
    ) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        if core::mem::replace(&mut stream.progress, Progress::Ended) != Progress::Ended {
            self.send_on_stream(reactor, to, b"", true);
            self.settle_later(to.sock);
        }
    }

    /// The action has ended: the stream ends after everything that was sent.
    pub(in crate::carrier) fn end_http2_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
    ) {
        self.finish_http2_switched(reactor, to);
        self.release_http2(reactor, to);
    }

    /// The action has failed: the stream is reset.
    pub(in crate::carrier) fn abort_http2_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
    ) {
        if let Some(stream) = self.streams.get_mut(to.stream) {
            stream.action = Running::None;
        }
        self.reset_http2_stream(reactor, to, ErrorCode::CANCEL);
    }
}

/// Bytes and events of the client.
impl Worker {
    /// Hands the action what the client has sent, as far as the action takes it.
    pub(super) fn resume_switched<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        let running = stream.action;
        let is_waiting = stream.is_held && !running.is_duplex();
        if is_waiting || stream.connect != (Connect::Switched { is_paused: false }) {
            return;
        }
        if !stream.input.is_empty() {
            let mut input = core::mem::take(&mut stream.input);
            let taken = self.take_switched_bytes(reactor, running, input.as_mut_slice());
            self.note_bytes_in(to, taken);
            self.release_window(reactor, to, taken);
            input.consume(taken);
            match self.streams.get_mut(to.stream) {
                Some(stream) if !input.is_empty() && !stream.is_released => stream.input = input,
                _ => input.release(&mut self.buffers),
            }
        }
        self.settle_later(to.sock);
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        if stream.has_request_ended && !stream.is_request_done && stream.input.is_empty() {
            stream.is_request_done = true;
            let running = stream.action;
            self.switched_finished(reactor, running);
        }
    }

    /// The client has ended its direction of the connection, and with it that of the stream.
    pub(super) fn end_switched_input<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        if let Some(stream) = self.streams.get_mut(to.stream) {
            stream.has_request_ended = true;
            self.resume_switched(reactor, to);
        }
    }

    /// When to look again whether the client takes a stream's output. `None` if the client's windows have admitted
    /// nothing for `timeout`. While the connection itself takes nothing, its own deadline decides.
    pub(in crate::carrier) fn look_at_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        timeout: Span,
    ) -> Option<Moment> {
        let stream = self.streams.get(to.stream)?;
        let (now, expires_at) = (reactor.now(), stream.moved_at.after(timeout));
        let is_conn_blocked = !stream.is_behind() && is_blocked(reactor, to.sock);
        let look_at = now.after(look_span(timeout));
        match expires_at > now {
            true => Some(expires_at.min(look_at)),
            false => is_conn_blocked.then_some(look_at),
        }
    }

    /// Asks the actions of the connection's switched streams to end them. Part of a stop.
    pub(in crate::carrier) fn stop_switched_streams<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        let list = self.list_streams(sock);
        for &id in &list {
            let stream = self.streams.get(id).filter(|stream| stream.is_switched());
            if let Some(running) = stream.map(|stream| stream.running()) {
                self.stop_switched(reactor, running);
            }
        }
        self.stream_list = list;
    }
}
