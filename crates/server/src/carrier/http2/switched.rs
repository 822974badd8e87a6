//! Streams that belong to an action after an extended CONNECT (RFC 8441): the implementation of the interface to clients
//! (`carrier/client.rs`) on a stream for switched requesters.
//! In: DATA of the client; bytes of the action. Out: the same bytes on the other side.
//! Never: hands over a byte before the action has switched the stream; interprets the bytes.
//! Limits: the data that waits for the action is bounded by the stream's receive window; the data that waits for the client, as
//! for responses.
//! Invariant: the action is notified of the end of the client's direction once, after all bytes before it.

use tidegate_gate::filter::Filtered;
use tidegate_gate::switching;
use tidegate_gate::websocket;
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http2::ErrorCode;
use tidegate_wire::websocket::Close;

use crate::action::Running;
use crate::answer::Switch;
use crate::carrier::Progress;
use crate::carrier::http2::links::settle_client_later;
use crate::carrier::http2::stream::Connect;
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
        let Some(stream) = self.http2_clients.get_mut(to.stream) else { return };
        debug_assert_eq!(stream.connect, Connect::Requested, "an extended CONNECT");
        stream.connect = Connect::Switched { is_paused: false };
        stream.action = running;
        stream.progress = Progress::Begun;
        let (era, filters) = (stream.era, stream.filters);
        let head = &mut self.http2_clients.head;
        head.clear();
        let settings = &self.settings.newest().config.server;
        match switch {
            Switch::Relayed(response) | Switch::Connected(response, _) => {
                switching::encode_connected(head, response, &settings.via);
            }
            Switch::WebSocket(accept) => {
                let context = self.settings.answer_context(self.date.as_bytes(), false);
                let filters = self.settings.of(era).handlings.filters(filters, self.values.of(to));
                websocket::encode_switch(&mut Filtered::new(&mut *head, filters), accept, &context);
            }
        }
        let (status, now) = (head.status(), reactor.now());
        self.accounts.counters.count_answer(status);
        self.capture_http2_response(to);
        let (clients, mut links) = self.client_streams(reactor);
        let bytes = clients.send_head(&mut links, to, false);
        links.work.push(Work::Resume(to));
        links.settle_client_later(to.sock);
        self.note_head(to, status, bytes, now);
    }

    /// The action has ended: the stream ends after everything that was sent.
    pub(in crate::carrier) fn end_http2_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
    ) {
        let (clients, mut links) = self.client_streams(reactor);
        clients.finish_switched(&mut links, to);
        self.release_http2(reactor, to);
    }

    /// The action has failed: the stream is reset.
    pub(in crate::carrier) fn abort_http2_switched<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
    ) {
        if let Some(stream) = self.http2_clients.get_mut(to.stream) {
            stream.action = Running::None;
        }
        self.reset_http2_stream(reactor, to, ErrorCode::CANCEL);
    }
}

/// Bytes and events of the client.
impl Worker {
    /// Hands the action the bytes that the client has sent, while the action reads them.
    pub(super) fn resume_switched<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let Some(stream) = self.http2_clients.get_mut(to.stream) else { return };
        let running = stream.action;
        let is_waiting = stream.is_held && !running.is_duplex();
        if is_waiting || stream.connect != (Connect::Switched { is_paused: false }) {
            return;
        }
        if !stream.input.is_empty() {
            let mut input = core::mem::take(&mut stream.input);
            let taken = self.take_switched_bytes(reactor, running, input.as_mut_slice());
            self.note_bytes_in(to, taken);
            let (clients, mut links) = self.client_streams(reactor);
            clients.release_window(&mut links, to, taken);
            clients.put_back(links.buffers, to.stream, input, taken);
        }
        settle_client_later(&mut self.conns, &mut self.work, to.sock);
        let Some(stream) = self.http2_clients.get_mut(to.stream) else { return };
        if stream.has_request_ended && !stream.is_request_done && stream.input.is_empty() {
            stream.is_request_done = true;
            let running = stream.action;
            self.switched_finished(reactor, running);
        }
    }

    /// The client has ended its direction of the connection, and with it that of the stream.
    pub(super) fn end_switched_input<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        if let Some(stream) = self.http2_clients.get_mut(to.stream) {
            stream.has_request_ended = true;
            self.resume_switched(reactor, to);
        }
    }

    /// Asks the actions of the connection's switched streams to end them, as far as `close_of` returns a close for them.
    pub(crate) fn stop_switched_streams<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        close_of: impl Fn(&Self, Running) -> Option<Close<'static>>,
    ) {
        let list = self.http2_clients.list(&mut self.conns, sock);
        for &id in &list {
            let stream = self.http2_clients.get(id).filter(|stream| stream.is_switched());
            if let Some(running) = stream.map(|stream| stream.running())
                && let Some(close) = close_of(self, running)
            {
                self.stop_switched(reactor, running, close);
            }
        }
        self.http2_clients.put_list(list);
    }
}
