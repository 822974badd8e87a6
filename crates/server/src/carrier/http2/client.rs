//! HTTP/2 on client connections: requests on streams, their deadlines, the graceful stop.
//! In: bytes and events of client connections. Out: requests for actions; credit for the bytes that they take.
//! Never: lets one stream that its action or its client holds up stop the others.
//! Limits: `wire::http2::Config`; the listener's limits and timeouts.
//! Invariant: each open stream's token names its `Http2Stream`. The connection's deadline is at most the earliest
//! of its streams.

use tidegate_base::{Id, Moment, Span};
use tidegate_gate::access::Cause;
use tidegate_gate::grpc;
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http2::bounds::STREAMS_DEFAULT;
use tidegate_wire::http2::{self, Connection, ErrorCode, Event, Request, ResetCause, Scratch};
use tidegate_wire::message::Method;

use crate::action::Running;
use crate::carrier::Progress;
use crate::carrier::http2::clients::{Arrival, Piece};
use crate::carrier::http2::limits;
use crate::carrier::http2::links::{GATHERED_BYTES_MAX, settle_client_later};
use crate::carrier::http2::stream::{Connect, Http2Stream};
use crate::carrier::output::{check_span, is_blocked, is_flooded, next_output_check};
use crate::connection::ClientCarrier;
use crate::malformed::FaultPlace;
use crate::record::{CLIENT_LEFT, SLOW_CLIENT};
use crate::requester::Requester;
use crate::worker::Worker;

/// How long a connection without streams keeps its compression tables and buffers.
const SHRINK_SPAN: Span = Span::from_secs(1);
/// How long a stop waits for the reply that fixes the last stream.
const STOP_REPLY_SPAN: Span = Span::from_secs(1);
/// A slow client must take this much of a response within `timeouts.body`, or all of the pending data. Window updates of single
/// bytes do not keep a response in memory (CVE-2026-49975).
const PROGRESS_BYTES_MIN: usize = 1024;

/// The HTTP/2 state of a client connection.
pub(crate) struct Http2Client {
    /// The protocol.
    pub(super) connection: Connection,
    /// The streams whose actions run or whose responses are not sent completely. `connection` may have forgotten
    /// some of them already.
    streams: Vec<Id<Http2Stream>>,
    /// The deadline of the connection: `timeouts.head` before the first request, `timeouts.idle` without streams,
    /// the earliest deadline of its streams otherwise.
    pub(super) due_at: Moment,
    /// The time at which the last stream ended. `NEVER` while there is a stream.
    idle_since: Moment,
    /// When the header block that has begun must have ended. `NEVER` between header blocks.
    block_due_at: Moment,
    /// When a graceful stop becomes final although the client has not replied. `NEVER` without a stop, and once
    /// it is final.
    final_at: Moment,
    /// The client does not take the connection's output. It is checked next at `due_at` or before.
    pub(super) is_blocked: bool,
    /// Received bytes that are decoded when the output has drained. Until then, nothing is received.
    postponed: Vec<u8>,
    /// Nothing is received, because the client does not take the output.
    is_paused: bool,
    /// The client has ended its direction of the connection.
    has_finished: bool,
    /// `settle_http2` will be called for the connection.
    pub(super) is_settling: bool,
    /// `send_gathered` will be called for the connection at the end of the turn.
    is_gathering: bool,
}

impl Http2Client {
    /// A connection whose preface is still to come. `due_at`: when the first request must have arrived.
    pub(crate) fn new(config: http2::Config, now: Moment, due_at: Moment) -> Self {
        Self {
            connection: Connection::new(config, now),
            streams: Vec::new(),
            due_at,
            idle_since: Moment::NEVER,
            block_due_at: Moment::NEVER,
            final_at: Moment::NEVER,
            is_blocked: false,
            postponed: Vec::new(),
            is_paused: false,
            has_finished: false,
            is_settling: false,
            is_gathering: false,
        }
    }

    /// Begins the graceful stop: GOAWAY, and a PING whose reply shows that the client has received it.
    fn stop(&mut self, now: Moment, out: &mut Vec<u8>) {
        if !self.connection.is_stopping() {
            self.connection.stop(out);
            self.final_at = now.after(STOP_REPLY_SPAN);
        }
        self.due_at = self.due_at.min(self.final_at);
    }

    /// Whether output waits for the end of the turn.
    pub(crate) fn is_gathering(&self) -> bool {
        self.is_gathering
    }

    /// Whether no stream is open, and no request waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.connection.open_streams() == 0 && !self.is_paused
    }

    /// Bytes that were received and not decoded.
    pub(crate) fn postponed_bytes(&self) -> usize {
        self.postponed.len()
    }

    /// Checks that the protocol has no stream whose action is gone.
    pub(crate) fn check_streams(&self) {
        let open = self.connection.open_streams();
        assert!(open == 0 || !self.streams.is_empty(), "{open} streams have no action");
    }

    /// Whether the client has ended its direction of the connection.
    pub(crate) fn has_finished(&self) -> bool {
        self.has_finished
    }

    /// The streams whose actions run or whose responses are not sent completely.
    pub(crate) fn streams(&self) -> &[Id<Http2Stream>] {
        &self.streams
    }

    /// Lists a stream that has begun.
    pub(super) fn begin_stream(&mut self, id: Id<Http2Stream>) {
        self.streams.push(id);
        self.idle_since = Moment::NEVER;
    }

    /// Lists a stream no longer.
    pub(super) fn end_stream(&mut self, id: Id<Http2Stream>) {
        if let Some(at) = self.streams.iter().position(|other| *other == id) {
            self.streams.swap_remove(at);
        }
    }
}

/// The token of a stream in `Connection`.
pub(super) fn token_of(id: Id<Http2Stream>) -> u64 {
    u64::from(id.index) << 32 | u64::from(id.generation)
}

/// The stream of a token.
pub(super) fn id_of(token: u64) -> Id<Http2Stream> {
    Id::new((token >> 32) as u32, token as u32)
}

/// Bytes and events of a client connection.
impl Worker {
    /// Makes an accepted connection one of HTTP/2, before its first byte is decoded.
    pub(crate) fn become_http2<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let now = reactor.now();
        let streams_max = self.streams_allowed(now);
        let Some(down) = self.conns.downstream(sock) else { return self.note_bug(reactor, sock) };
        let listener = self.settings.of(down.era()).listener(down.listener);
        let config = limits::connection_config(&listener.limits, streams_max);
        let mut http2 = Box::new(Http2Client::new(config, now, reactor.deadline(sock)));
        if let Some(out) = reactor.output(sock) {
            http2.connection.start(out);
        }
        down.carrier = ClientCarrier::Http2(http2);
    }

    /// A client sent bytes.
    pub(crate) fn http2_client_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
    ) {
        self.conns.note_bytes(sock);
        let mut scratch = core::mem::take(&mut self.http2_clients.scratch);
        self.receive_http2(reactor, sock, bytes, &mut scratch);
        self.http2_clients.scratch = scratch;
        self.note_http2_glitches(reactor, sock);
        self.limit_http2_block(reactor.now(), sock);
        self.settle_http2(reactor, sock);
    }

    /// Gives a header block that has begun the time of a head. Nothing else is received before its end.
    fn limit_http2_block(&mut self, now: Moment, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return };
        let timeout = self.settings.of(down.era()).listener(down.listener).timeouts.head;
        let ClientCarrier::Http2(http2) = &mut down.carrier else { return };
        if !http2.connection.is_inside_block() || http2.is_paused {
            http2.block_due_at = Moment::NEVER;
            return;
        }
        http2.block_due_at = http2.block_due_at.min(now.after(timeout));
        http2.due_at = http2.due_at.min(http2.block_due_at);
    }

    fn receive_http2<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) {
        let now = reactor.now();
        let mut input = bytes;
        if let Some(http2) = self.conns.http2_client(sock) {
            http2.is_settling = true;
        }
        loop {
            if is_flooded(reactor, sock) {
                return self.postpone_http2_input(reactor, sock, input);
            }
            // An event may have closed the connection.
            let Some(http2) = self.conns.http2_client(sock) else { return };
            let Some(out) = reactor.output(sock) else { return };
            match http2.connection.receive(now, &mut input, scratch, out) {
                Ok(None) => return,
                Ok(Some(event)) => self.handle_http2_event(reactor, sock, event),
                Err(fault) => {
                    let place = FaultPlace::At(bytes.len() - input.len());
                    self.keep_malformed(reactor, sock, (fault.reason(), place), bytes);
                    self.note_http2_glitches(reactor, sock);
                    self.accounts.counters.requests_refused.add(1);
                    self.blame_connection(sock, Cause::Refused, fault.reason());
                    self.drop_client(reactor, sock);
                    return match fault.is_flood() {
                        true => reactor.close_unread(sock),
                        false => reactor.close(sock),
                    };
                }
            }
        }
    }

    /// Receives nothing until the output has drained: a client that sends requests and does not read would fill the memory with
    /// responses, as those without a body need no window. Frames that the client sends while it does not read are not urgent:
    /// windows and resets matter only once the output drains.
    fn postpone_http2_input<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, input: &[u8]) {
        let Some(http2) = self.conns.http2_client(sock) else { return };
        http2.postponed.extend_from_slice(input);
        http2.is_paused = true;
        reactor.set_receiving(sock, false);
    }

    /// Continues to receive from a client that has taken the output.
    fn resume_http2_input<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(http2) = self.conns.http2_client(sock) else { return };
        if !core::mem::take(&mut http2.is_paused) {
            return;
        }
        let input = core::mem::take(&mut http2.postponed);
        reactor.set_receiving(sock, true);
        // This may pause it again.
        self.http2_client_received(reactor, sock, &input);
    }

    /// Counts the harmless violations of a client, and bounds the graceful stop that many of them begin.
    fn note_http2_glitches<R: Reactor>(&mut self, reactor: &R, sock: SockId) {
        let now = reactor.now();
        let Some(http2) = self.conns.http2_client(sock) else { return };
        let count = http2.connection.take_glitches();
        if count == 0 {
            return;
        }
        let has_stopped = http2.connection.has_announced_stop() && http2.final_at == Moment::NEVER;
        if has_stopped {
            http2.final_at = now.after(STOP_REPLY_SPAN);
            http2.due_at = http2.due_at.min(http2.final_at);
        }
        self.accounts.counters.glitches.add(u64::from(count));
        self.accounts.counters.glitch_closes.add(u64::from(has_stopped));
    }

    fn handle_http2_event<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, event: Event<'_>) {
        if self.route_marks.are_on() {
            let stream = stream_of(&event);
            self.mark_requester(Requester { sock, stream });
        }
        match event {
            Event::Request { stream, request, ends } => {
                self.begin_http2_request(reactor, sock, stream, &request, ends);
            }
            Event::RequestTooLarge { stream, status } => {
                if let Some(to) = self.add_stream(reactor, sock, stream, false, false) {
                    self.begin_record(reactor, to, None);
                    self.reject_http2_head(reactor, to, status);
                }
            }
            Event::Data { token, bytes, ends, .. } => {
                let id = id_of(token);
                let arrival = self.http2_clients.take_data(&mut self.buffers, id, bytes, ends);
                self.take_arrival(reactor, arrival, bytes.len());
            }
            Event::Trailers { token, fields, .. } => {
                let arrival = self.http2_clients.take_trailers(id_of(token), fields);
                self.take_arrival(reactor, arrival, 0);
            }
            Event::Reset { token, cause, .. } => {
                let to = Requester { sock, stream: id_of(token) };
                if let ResetCause::Fault(fault) = cause {
                    self.accounts.counters.requests_refused.add(1);
                    self.blame(to, Cause::Refused, fault.reason());
                } else {
                    self.accounts.counters.client_aborts.add(1);
                    self.blame(to, Cause::Client, CLIENT_LEFT);
                }
                self.drop_stream(reactor, to.stream);
            }
            Event::Rejected { fault, .. } => {
                // Its fields were compressed.
                let what = (fault.reason(), FaultPlace::Unknown);
                self.keep_malformed(reactor, sock, what, b"");
                self.accounts.counters.requests_refused.add(1);
                self.record_refused_stream(reactor, sock, fault.reason());
            }
            // A server sees no responses, and learns nothing from these that it acts on.
            Event::Response { .. }
            | Event::GoAway { .. }
            | Event::Settings
            | Event::Pong { .. } => {}
        }
    }

    /// Begins the action of a request.
    fn begin_http2_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        number: u32,
        request: &Request<'_>,
        ends: bool,
    ) {
        self.conns.note_request(sock);
        self.accounts.counters.requests.add(1);
        let is_head = matches!(request.head.method, Method::Head);
        let Some(to) = self.add_stream(reactor, sock, number, is_head, ends) else {
            return self.record_refused_stream(reactor, sock, "the worker has too many streams");
        };
        self.begin_record(reactor, to, Some(&request.head));
        if let Some(stream) = self.http2_clients.get_mut(to.stream) {
            stream.awaits_continue = request.head.expect_continue;
            stream.is_call = grpc::is_call(&request.head);
            if request.head.protocol.is_some() {
                stream.connect = Connect::Requested;
            }
        }
        self.limit_http2_requests(reactor, sock);
        let Some(down) = self.conns.downstream(sock) else { return };
        let limits = &self.settings.of(down.era()).listener(down.listener).limits;
        match limits::reject_status(limits, &request.head) {
            Some(status) => self.reject_http2_head(reactor, to, status),
            None => self.begin_request(reactor, to, &request.head),
        }
        self.settle_stream(reactor, to);
    }

    /// Rejects a request whose head is too large.
    fn reject_http2_head<R: Reactor>(&mut self, reactor: &mut R, to: Requester, status: u16) {
        self.accounts.counters.requests_refused.add(1);
        self.count_refused(reactor, to);
        let text = "the request head exceeds this listener's limits";
        self.answer_error(reactor, to, status, text, true);
    }

    /// Begins to stop a connection that has had as many requests as the listener allows. Requests may arrive before the client is
    /// notified of that, but no more than fit into the connection at once.
    fn limit_http2_requests<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let now = reactor.now();
        let Some(down) = self.conns.downstream(sock) else { return };
        let most = self.settings.of(down.era()).listener(down.listener).requests_per_connection_max;
        let Some(most) = most.filter(|&most| down.requests >= most) else { return };
        let is_beyond = down.requests >= most + STREAMS_DEFAULT;
        let ClientCarrier::Http2(http2) = &mut down.carrier else { return };
        let Some(out) = reactor.output(sock) else { return };
        if is_beyond {
            http2.connection.stop_now(out);
        } else {
            http2.stop(now, out);
        }
    }

    /// Creates the state of a stream. If there is no room for it, the stream is refused, and the client may retry.
    fn add_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        number: u32,
        is_head: bool,
        ends: bool,
    ) -> Option<Requester> {
        let stream = Http2Stream::new(sock, self.settings.era(), number, is_head, ends);
        let (clients, mut links) = self.client_streams(reactor);
        let to = clients.add(&mut links, stream)?;
        self.settings.begin_use();
        Some(to)
    }

    /// Bytes, or the end, of a request arrived. `bytes`: how many bytes there were.
    fn take_arrival<R: Reactor>(&mut self, reactor: &mut R, arrival: Arrival, bytes: usize) {
        match arrival {
            Arrival::Stale => {}
            Arrival::Unwanted(to) => self.release_window(reactor, to, bytes),
            Arrival::Waits(to) => self.resume_http2_stream(reactor, to),
        }
    }

    /// Hands the action as much of the request body as it takes.
    pub(crate) fn resume_http2_stream<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let stream = self.http2_clients.get(to.stream);
        if stream.is_some_and(|stream| stream.connect != Connect::No) {
            return self.resume_switched(reactor, to);
        }
        // The stream may have ended after the work was queued, or in one of the steps.
        while let Some(running) = self.http2_clients.awaited(to.stream) {
            let room = self.body_room(reactor, running);
            if room == 0 {
                break;
            }
            self.hand_over_body(reactor, to, running, room);
        }
        self.settle_stream(reactor, to);
    }

    /// Hands the action up to `room` bytes of the request body, and its end if that has arrived.
    fn hand_over_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        running: Running,
        room: usize,
    ) {
        let Some(piece) = self.http2_clients.take_piece(to.stream, room) else { return };
        let Piece { input, count, end } = piece;
        if self.admit_body(to, running, count, count) {
            self.take_body(reactor, running, &input.as_slice()[..count], end.as_deref());
            self.release_window(reactor, to, count);
        } else {
            let text = "the request body exceeds this listener's limit";
            self.reject_http2_request(reactor, to, 413, text);
        }
        self.http2_clients.put_back(&mut self.buffers, to.stream, input, count);
    }

    /// Lets the client send more on the stream.
    fn release_window<R: Reactor>(&mut self, reactor: &mut R, to: Requester, bytes: usize) {
        let (clients, mut links) = self.client_streams(reactor);
        clients.release_window(&mut links, to, bytes);
    }

    /// Rejects a request whose body is too long, late or incomplete.
    fn reject_http2_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        status: u16,
        text: &'static str,
    ) {
        self.accounts.counters.requests_refused.add(1);
        self.blame(to, Cause::of_status(status), text);
        let Some(stream) = self.http2_clients.get_mut(to.stream) else { return };
        stream.is_request_done = true;
        let running = core::mem::replace(&mut stream.action, Running::None);
        let progress = stream.progress;
        self.cancel(reactor, running);
        match progress {
            Progress::Expected => self.answer_error(reactor, to, status, text, true),
            Progress::Begun => self.cut_response(reactor, to),
            Progress::Ended => self.release_requester(reactor, to),
        }
    }

    /// Forgets a stream and cancels its action.
    pub(crate) fn drop_stream<R: Reactor>(&mut self, reactor: &mut R, id: Id<Http2Stream>) {
        let departed = self.http2_clients.remove(&mut self.conns, &mut self.buffers, id);
        let Some(departed) = departed else { return };
        self.settings.end_use(departed.era);
        self.note_departure(departed.action);
        self.cancel(reactor, departed.action);
        self.finish_record(reactor, departed.record);
    }

    /// Resets a stream and cancels its action.
    pub(in crate::carrier) fn reset_http2_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        code: ErrorCode,
    ) {
        let (clients, mut links) = self.client_streams(reactor);
        clients.reset(&mut links, to, code);
        links.settle_client_later(to.sock);
        self.drop_stream(reactor, to.stream);
    }

    /// The action of a stream continues, because the output of the stream has drained.
    pub(crate) fn stream_drained<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        // The stream may have ended after the work was queued.
        let Some(stream) = self.http2_clients.get(to.stream) else { return };
        let (running, is_switched) = (stream.action, stream.is_switched());
        self.client_drained(reactor, running);
        if is_switched {
            self.resume_switched(reactor, to);
        }
        settle_client_later(&mut self.conns, &mut self.work, to.sock);
    }

    /// A client ended its direction of the connection. Streams whose requests are complete still get their responses, but
    /// gRPC calls are cancelled: they may be quiet for hours, and gRPC libraries close connections only with all calls.
    pub(crate) fn http2_client_finished<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(http2) = self.conns.http2_client(sock) else {
            return self.note_bug(reactor, sock);
        };
        http2.has_finished = true;
        let list = self.http2_clients.list(&mut self.conns, sock);
        for &id in &list {
            self.mark_requester(Requester { sock, stream: id });
            let Some(stream) = self.http2_clients.get(id) else { continue };
            let running = stream.action;
            if stream.is_switched() {
                self.end_switched_input(reactor, Requester { sock, stream: id });
            } else if !stream.is_call
                && (stream.has_request_ended || !self.needs_whole_body(running))
            {
                // An action that switches the stream later is notified then.
                let awaits_switch = stream.connect == Connect::Requested;
                if let Some(stream) = self.http2_clients.get_mut(id) {
                    stream.has_request_ended |= awaits_switch;
                }
                self.client_half_closed(reactor, running);
            } else {
                self.accounts.counters.client_aborts.add(1);
                self.blame(Requester { sock, stream: id }, Cause::Client, CLIENT_LEFT);
                // The protocol must forget the stream too: the rest of its request never arrives.
                self.reset_http2_stream(reactor, Requester { sock, stream: id }, ErrorCode::CANCEL);
            }
        }
        self.http2_clients.put_list(list);
        self.settle_http2(reactor, sock);
    }

    /// A client ended its direction of the connection; bytes before the end are still unread.
    pub(crate) fn http2_client_hung_up<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let list = self.http2_clients.list(&mut self.conns, sock);
        for &id in &list {
            if let Some(stream) = self.http2_clients.get(id) {
                let running = stream.action;
                self.mark_requester(Requester { sock, stream: id });
                self.client_half_closed(reactor, running);
            }
        }
        self.http2_clients.put_list(list);
    }

    /// A client connection was reset or ended.
    pub(crate) fn http2_client_closed<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(http2) = self.conns.http2_client(sock) else {
            return self.note_bug(reactor, sock);
        };
        let aborted = http2.connection.open_streams() as u64;
        self.accounts.counters.client_aborts.add(aborted);
        self.blame_connection(sock, Cause::Client, CLIENT_LEFT);
        self.drop_client(reactor, sock);
    }

    /// The blocked output to a client has drained.
    pub(crate) fn http2_client_drained<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(http2) = self.conns.http2_client(sock) else {
            return self.note_bug(reactor, sock);
        };
        http2.is_blocked = false;
        http2.connection.output_drained();
        let list = self.http2_clients.list(&mut self.conns, sock);
        for &id in &list {
            self.http2_clients.note_drained(&mut self.work, Requester { sock, stream: id });
        }
        self.http2_clients.put_list(list);
        self.settle_http2(reactor, sock);
        self.resume_http2_input(reactor, sock);
    }

    /// Sends as much as the windows and the output allow, and sets the deadline of the connection. Called after anything has
    /// happened on it.
    pub(crate) fn settle_http2<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.send_admitted(reactor, sock);
        self.cut_endless_streams(reactor, sock);
        self.tell_streams_allowed(reactor, sock);
        let stopping = self.stopping;
        // Events on the connection may have closed it.
        let Some(down) = self.conns.downstream(sock) else { return };
        let timeouts = self.settings.of(down.era()).listener(down.listener).timeouts;
        let requests = down.requests;
        let ClientCarrier::Http2(http2) = &mut down.carrier else { return };
        http2.is_settling = false;
        let is_idle = http2.is_idle();
        // All that the streams have sent is in the output, and nothing more of the client arrives.
        let is_answered = http2.has_finished && http2.streams.is_empty();
        if http2.connection.is_finished() || is_answered {
            return self.close_client(reactor, sock);
        }
        let now = reactor.now();
        if is_idle && requests > 0 && http2.idle_since == Moment::NEVER {
            http2.idle_since = now;
            let wait = if stopping { STOP_REPLY_SPAN } else { SHRINK_SPAN.min(timeouts.idle) };
            http2.due_at = now.after(wait);
        }
        // The responses of several streams are sent in one system call and one TLS record. Replies are sent at once, because
        // their number is limited while the client does not take them.
        let pending = reactor.output_pending(sock);
        if (1..GATHERED_BYTES_MAX).contains(&pending) && !http2.connection.has_replies() {
            if !core::mem::replace(&mut http2.is_gathering, true) {
                self.http2_clients.note_gathering(sock);
            }
            return reactor.set_deadline(sock, http2.due_at);
        }
        self.flush_http2(reactor, sock);
    }

    /// Resets the streams whose data waits for a window on a connection whose client has ended its direction: a window is never
    /// extended any more. Called after everything was sent that the windows allow.
    fn cut_endless_streams<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let has_finished = self.conns.http2_client(sock).is_some_and(|http2| http2.has_finished);
        if !has_finished || is_blocked(reactor, sock) {
            return;
        }
        let list = self.http2_clients.list(&mut self.conns, sock);
        for &id in &list {
            let to = Requester { sock, stream: id };
            if self.http2_clients.get(id).is_some_and(|stream| !stream.output.is_empty()) {
                self.mark_requester(to);
                self.accounts.counters.client_aborts.add(1);
                self.blame(to, Cause::Client, CLIENT_LEFT);
                self.reset_http2_stream(reactor, to, ErrorCode::CANCEL);
            }
        }
        self.http2_clients.put_list(list);
    }

    /// Sends the data that was gathered for connections in this turn.
    pub(crate) fn send_gathered<R: Reactor>(&mut self, reactor: &mut R) {
        while let Some(sock) = self.http2_clients.take_gathering() {
            if let Some(http2) = self.conns.http2_client(sock) {
                http2.is_gathering = false;
                self.mark_gathered(sock);
                self.flush_http2(reactor, sock);
            }
        }
    }

    /// Sends the output of a connection, and sets its deadline.
    fn flush_http2<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(down) = self.conns.downstream(sock) else { return };
        let timeouts = self.settings.of(down.era()).listener(down.listener).timeouts;
        let ClientCarrier::Http2(http2) = &mut down.carrier else { return };
        if reactor.output_pending(sock) > 0 && !http2.is_blocked {
            reactor.flush(sock);
            if reactor.output_pending(sock) > 0 {
                http2.is_blocked = true;
                http2.due_at = http2.due_at.min(reactor.now().after(check_span(timeouts.body)));
            }
        }
        if reactor.output_pending(sock) == 0 {
            // Most output is taken at once, and then no completion reports that.
            http2.connection.output_drained();
        }
        reactor.set_deadline(sock, http2.due_at);
    }

    /// Sets the deadline of a stream after its request has progressed.
    fn settle_stream<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let Some(stream) = self.http2_clients.get(to.stream) else { return };
        if stream.connect != Connect::No {
            // The bytes that follow are not a body.
            return;
        }
        let (running, is_waiting) = (stream.action, stream.input.is_empty());
        let expects_body = is_waiting && !stream.is_request_done && self.expects_body(running);
        let Some(down) = self.conns.downstream(to.sock) else { return };
        let timeout = self.settings.of(down.era()).listener(down.listener).timeouts.body;
        let by = reactor.now().after(timeout);
        let Some(intake) = self.intake(running) else { return };
        if !expects_body {
            intake.deadline = Moment::NEVER;
            return;
        }
        intake.deadline = intake.deadline.min(by);
        let at = intake.deadline;
        self.set_stream_deadline(reactor, to, at);
    }

    /// Sets the deadline of a stream.
    pub(in crate::carrier) fn set_stream_deadline<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        at: Moment,
    ) {
        let (clients, mut links) = self.client_streams(reactor);
        clients.set_deadline(&mut links, to, at);
    }

    /// Sends the data that waits on the connection's streams, as far as the windows and the output allow.
    fn send_admitted<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        loop {
            let (clients, mut links) = self.client_streams(reactor);
            let Some(to) = clients.send_admitted(&mut links, sock) else { return };
            self.drop_stream(reactor, to.stream);
        }
    }

    /// The deadline of a client connection expired: that of the connection, or of some of its streams.
    pub(crate) fn http2_client_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let now = reactor.now();
        let Some(down) = self.conns.downstream(sock) else { return self.note_bug(reactor, sock) };
        let timeouts = self.settings.of(down.era()).listener(down.listener).timeouts;
        let ClientCarrier::Http2(http2) = &mut down.carrier else { return };
        if http2.is_blocked && reactor.output_pending(sock) > 0 {
            match next_output_check(reactor, sock, timeouts.body) {
                Some(at) => http2.due_at = at,
                None => {
                    self.accounts.counters.body_timeouts.add(1);
                    self.blame_connection(sock, Cause::ClientTimeout, SLOW_CLIENT);
                    self.drop_client(reactor, sock);
                    return reactor.abort(sock);
                }
            }
        } else {
            http2.due_at = Moment::NEVER;
        }
        if http2.final_at <= now {
            http2.final_at = Moment::NEVER;
            if let Some(out) = reactor.output(sock) {
                http2.connection.stop_now(out);
            }
        }
        if http2.block_due_at <= now {
            return self.refuse_slow_block(reactor, sock);
        }
        http2.due_at = http2.due_at.min(http2.final_at).min(http2.block_due_at);
        if http2.is_idle() {
            return self.idle_http2_due(reactor, sock);
        }
        let list = self.http2_clients.list(&mut self.conns, sock);
        for &id in &list {
            if self.http2_clients.get(id).is_some_and(|stream| stream.due_at <= now) {
                self.stream_due(reactor, Requester { sock, stream: id });
            }
            let due_at = self.http2_clients.get(id).map_or(Moment::NEVER, |stream| stream.due_at);
            if let Some(http2) = self.conns.http2_client(sock) {
                http2.due_at = http2.due_at.min(due_at);
            }
        }
        self.http2_clients.put_list(list);
        self.settle_http2(reactor, sock);
    }

    /// A header block has not ended in time.
    fn refuse_slow_block<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.accounts.counters.head_timeouts.add(1);
        self.blame_connection(sock, Cause::ClientTimeout, "timed out reading the request head");
        if let Some(http2) = self.conns.http2_client(sock)
            && let Some(out) = reactor.output(sock)
        {
            http2.connection.fail(out, ErrorCode::ENHANCE_YOUR_CALM);
        }
        self.drop_client(reactor, sock);
        reactor.close(sock);
    }

    /// The deadline of a connection without streams expired.
    fn idle_http2_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let (now, stopping) = (reactor.now(), self.stopping);
        let Some(down) = self.conns.downstream(sock) else { return };
        let timeouts = self.settings.of(down.era()).listener(down.listener).timeouts;
        let requests = down.requests;
        let ClientCarrier::Http2(http2) = &mut down.carrier else { return };
        let idle_until = match requests {
            0 => now,
            _ => http2.idle_since.after(timeouts.idle),
        };
        if now < idle_until && !stopping && !http2.connection.is_stopping() {
            http2.connection.shrink();
            http2.due_at = idle_until;
            return reactor.set_deadline(sock, idle_until);
        }
        let counters = &self.accounts.counters;
        let counter = if requests == 0 { &counters.head_timeouts } else { &counters.idle_timeouts };
        counter.add(1);
        if let Some(out) = reactor.output(sock) {
            http2.connection.stop_now(out);
        }
        self.close_client(reactor, sock);
    }

    /// The deadline of a stream expired.
    fn stream_due<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        self.mark_requester(to);
        let Some(stream) = self.http2_clients.get_mut(to.stream) else { return };
        stream.due_at = Moment::NEVER;
        let (running, is_behind, is_held) = (stream.action, stream.is_behind(), stream.is_held);
        let (is_switched, is_tunnel) = (stream.is_switched(), stream.is_tunnel());
        if (is_behind || is_held) && !is_tunnel {
            return self.slow_stream_due(reactor, to);
        }
        let is_done = stream.is_request_done || stream.connect != Connect::No;
        let is_input_empty = stream.input.is_empty();
        if is_switched || !self.expects_body(running) {
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
        self.reject_http2_request(reactor, to, 408, "timed out reading the request body");
    }

    /// The client has not taken all of a response in time.
    fn slow_stream_due<R: Reactor>(&mut self, reactor: &mut R, to: Requester) {
        let Some(down) = self.conns.downstream(to.sock) else { return };
        let timeout = self.settings.of(down.era()).listener(down.listener).timeouts.body;
        let Some(stream) = self.http2_clients.get_mut(to.stream) else { return };
        let is_progress = core::mem::take(&mut stream.admitted_bytes) >= PROGRESS_BYTES_MIN;
        // While the client does not read at all, the connection's own deadline decides.
        if is_progress || !stream.is_behind() {
            let at = reactor.now().after(timeout);
            return self.set_stream_deadline(reactor, to, at);
        }
        self.accounts.counters.body_timeouts.add(1);
        self.blame(to, Cause::ClientTimeout, SLOW_CLIENT);
        self.reset_http2_stream(reactor, to, ErrorCode::CANCEL);
    }

    /// Begins the graceful stop of a connection.
    pub(crate) fn stop_http2_client<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let now = reactor.now();
        let Some(http2) = self.conns.http2_client(sock) else { return };
        if let Some(out) = reactor.output(sock) {
            http2.stop(now, out);
        }
        self.settle_http2(reactor, sock);
    }

    /// Bytes of bodies that all streams hold, because an action or a client is slow. For tests.
    #[must_use]
    pub fn stream_bytes_held(&self) -> usize {
        self.http2_clients.held_bytes() + self.http2_servers.held_bytes()
    }
}

/// The stream of an event, unless its request has no route yet.
fn stream_of(event: &Event<'_>) -> Id<Http2Stream> {
    match event {
        Event::Data { token, .. } | Event::Trailers { token, .. } | Event::Reset { token, .. } => {
            id_of(*token)
        }
        Event::Request { .. }
        | Event::RequestTooLarge { .. }
        | Event::Rejected { .. }
        | Event::Response { .. }
        | Event::GoAway { .. }
        | Event::Settings
        | Event::Pong { .. } => Id::NONE,
    }
}
