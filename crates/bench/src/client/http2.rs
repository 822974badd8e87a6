//! HTTP/2 on the client's connections: sends requests as streams, counts responses, refusals and resets.
//! In: the bytes of a connection. Out: frames in `Client::out`, counts in the tally.
//! Never: sends a request before the server's SETTINGS, or more requests at once than the server allows.
//! Limits: `WINDOW_BYTES`, the plan's number of streams, the bounds of `wire::http2`.
//! Invariant: entry `i` of a session's `exchanges` belongs to entry `i` of its lane's `pending`; both are in the
//! order of sending, so stream ids increase.

use super::Client;
use super::events::{Failure, TLS_ALERT, in_words};
use super::lane::Phase;
use super::reader::Answer;
use crate::target::Request;
use crate::tls::ALPN_HTTP2;
use std::collections::VecDeque;
use tidegate_base::{Moment, Span};
use tidegate_reactor::Reactor;
use tidegate_wire::http2::{
    Config, Connection, ErrorCode, Event, Fault, RepeatedHead, RequestLine, ResetCause,
};

/// Receive window of each stream and of each connection: flow control of this side never slows a server down.
const WINDOW_BYTES: u32 = 1 << 30;
/// The table for the fields of requests. A repeated field takes one byte on the wire.
const ENCODER_TABLE_BYTES: u32 = 4096;
/// The first bytes of a response of HTTP/1.
const HTTP1: &[u8] = b"HTTP/1.";

/// The HTTP/2 connection on a socket.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    /// The responses of the requests that are pending, in the order of sending.
    exchanges: VecDeque<Exchange>,
    /// Received bytes that belong to no stream yet. The next event of a stream takes them.
    unassigned_bytes: u64,
    /// When bytes were last received.
    received_at: Moment,
    /// Whether a response was complete.
    has_answered: bool,
    /// Whether no further request could be sent after the last one.
    was_full: bool,
    /// The head of the last request.
    repeated: RepeatedHead,
    /// The number of the last request.
    repeated_request: u16,
}

/// The part of a response that has been received.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    /// The stream.
    stream: u32,
    /// The status; 0 until the head arrives.
    status: u16,
    /// When the first byte arrived; `ZERO` until then.
    first_byte_at: Moment,
    /// Bytes of the body.
    body_bytes: u64,
    /// Bytes of the request's content that were sent.
    sent_bytes: usize,
}

/// The meaning of an event for the client, without the fields and data.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The head of a response.
    Head { stream: u32, status: u16, ends: bool },
    /// Part of a body.
    Data { stream: u32, count: usize, ends: bool },
    /// Trailers, which end a response.
    Trailers { stream: u32 },
    /// A stream was reset.
    Reset { stream: u32, cause: ResetCause },
    /// The server ends the connection.
    GoAway,
    /// No effect on requests.
    Other,
}

impl Step {
    fn of(event: &Event<'_>) -> Self {
        match *event {
            Event::Response { stream, ref head, ends, .. } => {
                Self::Head { stream, status: if head.is_interim() { 0 } else { head.status }, ends }
            }
            Event::Data { stream, bytes, ends, .. } => {
                Self::Data { stream, count: bytes.len(), ends }
            }
            Event::Trailers { stream, .. } => Self::Trailers { stream },
            Event::Reset { stream, cause, .. } => Self::Reset { stream, cause },
            Event::GoAway { .. } => Self::GoAway,
            Event::Settings
            | Event::Pong { .. }
            | Event::Request { .. }
            | Event::RequestTooLarge { .. }
            | Event::Rejected { .. } => Self::Other,
        }
    }
}

impl Session {
    fn new(streams: u16, now: Moment) -> Self {
        let config = Config {
            streams_max: u32::from(streams),
            stream_window: WINDOW_BYTES,
            stream_window_ceiling: WINDOW_BYTES,
            window_pool: 0,
            connection_window: WINDOW_BYTES,
            encoder_table_bytes: ENCODER_TABLE_BYTES,
            // The server's windows bound the output.
            output_pause_bytes: u32::MAX,
            ..Config::client()
        };
        Self {
            connection: Connection::new(config, now),
            exchanges: VecDeque::new(),
            unassigned_bytes: 0,
            received_at: now,
            has_answered: false,
            was_full: false,
            repeated: RepeatedHead::default(),
            repeated_request: 0,
        }
    }

    /// Whether the server accepts another request now.
    pub(super) fn has_room(&self) -> bool {
        self.connection.available_streams() > 0
    }

    /// Whether a part of a response was received.
    pub(super) fn has_started(&self) -> bool {
        self.exchanges.iter().any(|exchange| exchange.first_byte_at != Moment::ZERO)
    }

    /// Forgets the requests after they have failed together with the connection.
    pub(super) fn forget_exchanges(&mut self) {
        self.exchanges.clear();
    }

    /// Sends the head of a request, and as much of its content as the server accepts. `has_room` must be true.
    pub(super) fn send(
        &mut self,
        (number, request): (u16, &Request),
        is_secure: bool,
        now: Moment,
        out: &mut Vec<u8>,
    ) {
        let content = request.content();
        if number != self.repeated_request {
            self.repeated_request = number;
            self.repeated.forget();
        }
        let stream = match self.connection.repeat_request(out, &mut self.repeated) {
            Some(stream) => stream,
            None => self.send_head(request, is_secure, out),
        };
        let mut sent_bytes = 0;
        if !content.is_empty() {
            sent_bytes =
                self.connection.send_data(now, out, stream, content, true).unwrap_or_default();
        }
        self.exchanges.push_back(Exchange {
            stream,
            status: 0,
            first_byte_at: Moment::ZERO,
            body_bytes: 0,
            sent_bytes,
        });
        self.was_full = !self.has_room();
    }

    /// Encodes and sends the head of a request.
    fn send_head(&mut self, request: &Request, is_secure: bool, out: &mut Vec<u8>) -> u32 {
        let head = &request.head;
        let line = RequestLine {
            method: &head.method,
            scheme: if is_secure { "https" } else { "http" },
            authority: &head.authority,
            path: &head.path,
            protocol: None,
        };
        let ends = request.content().is_empty();
        let repeated = &mut self.repeated;
        let sent = self.connection.send_repeated_request(out, (&line, ends), repeated, |fields| {
            for (name, value) in &head.fields {
                fields.field(name, value.as_bytes());
            }
        });
        debug_assert!(sent.is_ok(), "a request was sent without room");
        sent.unwrap_or_default()
    }

    /// The position of a stream among the pending requests. Servers often respond in order.
    fn position(&self, stream: u32) -> Option<usize> {
        match self.exchanges.front() {
            Some(first) if first.stream == stream => Some(0),
            _ => self.exchanges.binary_search_by_key(&stream, |exchange| exchange.stream).ok(),
        }
    }
}

impl Client<'_> {
    /// Begins HTTP/2 on a connection that was established.
    pub(super) fn begin_session<R: Reactor>(&mut self, reactor: &mut R, number: u32, now: Moment) {
        let lane = &mut self.lanes[number as usize];
        if lane.lacks_http2 {
            self.fail(number, Failure::Tls, || {
                format!(
                    "the server did not negotiate HTTP/2 (ALPN {ALPN_HTTP2}); use the command without --http2"
                )
            });
            return self.reconnect(reactor, number, now, false);
        }
        let mut session = Box::new(Session::new(self.plan.pipeline, now));
        session.connection.start(&mut self.out);
        lane.session = Some(session);
        lane.phase = Phase::Greeting;
        lane.handshake_at = now;
        self.send_frames(reactor, number);
    }

    /// Hands the frames of a connection to the reactor, which sends them at the end of the turn.
    pub(super) fn send_frames<R: Reactor>(&mut self, reactor: &mut R, number: u32) {
        if !self.out.is_empty() {
            reactor.send(self.lanes[number as usize].sock, &self.out);
            self.out.clear();
        }
    }

    /// Handles bytes received on an HTTP/2 connection.
    pub(super) fn handle_frames<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: u32,
        bytes: &[u8],
        now: Moment,
    ) {
        let lane = &mut self.lanes[number as usize];
        let Some(session) = &mut lane.session else { return };
        session.received_at = now;
        if reactor.output_pending(lane.sock) == 0 {
            session.connection.output_drained();
        }
        let mut input = bytes;
        loop {
            let Some(session) = &mut self.lanes[number as usize].session else { return };
            let before = input.len();
            let event =
                session.connection.receive(now, &mut input, &mut self.scratch, &mut self.out);
            session.unassigned_bytes += (before - input.len()) as u64;
            match event {
                Ok(None) => break,
                Ok(Some(event)) => {
                    let step = Step::of(&event);
                    self.take_step(number, step, now);
                }
                Err(fault) => return self.handle_fault_of(reactor, number, bytes, fault, now),
            }
        }
        self.send_contents(number, now);
        self.schedule_session(reactor, number, now);
    }

    /// Acts after input: opens the connection for requests, sends more of them, or ends the connection.
    fn schedule_session<R: Reactor>(&mut self, reactor: &mut R, number: u32, now: Moment) {
        let is_used_up = self.is_used_up(number);
        let lane = &mut self.lanes[number as usize];
        let Some(session) = &mut lane.session else { return };
        let is_new = lane.phase == Phase::Greeting && session.connection.has_peer_settings();
        if is_new {
            let allowed = session.connection.peer_settings().streams_max;
            let allowed = allowed.filter(|allowed| *allowed < u32::from(self.plan.pipeline));
            self.tally.note_streams_allowed(allowed);
        }
        if session.was_full && session.has_room() {
            session.was_full = false;
            lane.free_since = now;
        }
        if session.connection.is_finished() || is_used_up {
            // A connection that the server ends without any response is opened again with growing pauses.
            if !session.has_answered {
                lane.failures = lane.failures.saturating_add(1);
            }
            session.connection.stop(&mut self.out);
            self.send_frames(reactor, number);
            return self.reconnect(reactor, number, now, true);
        }
        self.send_frames(reactor, number);
        if is_new {
            self.open(reactor, number, now);
        } else {
            self.schedule_next_request(reactor, number, now);
        }
    }

    fn take_step(&mut self, number: u32, step: Step, now: Moment) {
        let lane = &mut self.lanes[number as usize];
        let Some(session) = &mut lane.session else { return };
        let (stream, ends) = match step {
            Step::Head { stream, ends, .. } | Step::Data { stream, ends, .. } => (stream, ends),
            Step::Trailers { stream } => (stream, true),
            Step::Reset { stream, .. } => (stream, false),
            Step::GoAway => {
                self.tally.goaways += 1;
                return;
            }
            Step::Other => return,
        };
        let wire_bytes = core::mem::take(&mut session.unassigned_bytes);
        // A stream whose request has timed out is not pending.
        let Some(at) = session.position(stream) else { return };
        let exchange = &mut session.exchanges[at];
        if exchange.first_byte_at == Moment::ZERO {
            exchange.first_byte_at = now;
        }
        match step {
            Step::Head { status, .. } => exchange.status = status,
            Step::Data { count, ends, .. } => {
                exchange.body_bytes += count as u64;
                if !ends {
                    session.connection.release(&mut self.out, stream, count);
                }
            }
            Step::Trailers { .. } | Step::Reset { .. } | Step::GoAway | Step::Other => {}
        }
        if lane.pending.get(at).is_some_and(|sent| sent.is_counted) || !self.is_counting {
            self.count_bytes(wire_bytes as usize);
        }
        if let Step::Reset { cause, .. } = step {
            self.fail_reset(number, at, cause);
        } else if ends {
            self.complete(number, at, now);
        }
    }

    /// Counts the complete response to the pending request at `at`.
    fn complete(&mut self, number: u32, at: usize, now: Moment) {
        let lane = &mut self.lanes[number as usize];
        let Some(session) = &mut lane.session else { return };
        let (Some(exchange), Some(sent)) = (session.exchanges.remove(at), lane.pending.remove(at))
        else {
            return;
        };
        session.has_answered = true;
        if exchange.sent_bytes < self.mix.request(sent.number).content().len() {
            // The server has responded before the whole content: the rest is not sent.
            session.connection.reset(&mut self.out, exchange.stream, ErrorCode::CANCEL);
        }
        let answer = Answer {
            status: exchange.status,
            is_persistent: true,
            wire_bytes: 0,
            body_bytes: exchange.body_bytes,
        };
        self.count_answer(number, sent, exchange.first_byte_at, answer, now);
    }

    fn fail_reset(&mut self, number: u32, at: usize, cause: ResetCause) {
        match cause {
            ResetCause::GoneAway => self.fail_one(number, at, Failure::Refused, || {
                "the server ended the connection (GOAWAY) and did not process the request"
                    .to_owned()
            }),
            ResetCause::Peer(ErrorCode::REFUSED_STREAM) => {
                self.fail_one(number, at, Failure::Refused, || {
                    "the server refused the request (REFUSED_STREAM)".to_owned()
                });
            }
            ResetCause::Peer(ErrorCode::HTTP_1_1_REQUIRED) => {
                self.fail_one(number, at, Failure::Reset, || {
                    "the server requires HTTP/1.1 for the request".to_owned()
                });
            }
            ResetCause::Peer(code) => self.fail_one(number, at, Failure::Reset, || {
                format!("the server reset the stream with error code {}", code.0)
            }),
            ResetCause::Fault(fault) => self.fail_one(number, at, Failure::Framing, || {
                format!("the response is not valid HTTP/2: {}", fault.reason())
            }),
        }
    }

    /// Fails one pending request; the connection continues.
    fn fail_one(
        &mut self,
        number: u32,
        at: usize,
        failure: Failure,
        words: impl FnOnce() -> String,
    ) {
        let lane = &mut self.lanes[number as usize];
        if let Some(session) = &mut lane.session {
            session.exchanges.remove(at);
        }
        let Some(sent) = lane.pending.remove(at) else { return };
        self.outstanding -= 1;
        let is_counted = sent.is_counted || !self.is_counting;
        self.count_failures(failure, u64::from(is_counted), words);
    }

    /// Continues contents that the server's windows held back.
    fn send_contents(&mut self, number: u32, now: Moment) {
        let lane = &mut self.lanes[number as usize];
        let Some(session) = &mut lane.session else { return };
        while let Some(stream) = session.connection.poll_writable(&self.out) {
            let Some(at) = session.position(stream) else { continue };
            let Some(sent) = lane.pending.get(at) else { continue };
            let content = self.mix.request(sent.number).content();
            let exchange = &mut session.exchanges[at];
            let rest = content.get(exchange.sent_bytes..).unwrap_or_default();
            let accepted = session.connection.send_data(now, &mut self.out, stream, rest, true);
            exchange.sent_bytes += accepted.unwrap_or_default();
        }
    }

    /// Ends a connection on which the server violated the protocol.
    fn handle_fault_of<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: u32,
        bytes: &[u8],
        fault: Fault,
        now: Moment,
    ) {
        let is_new = self.lanes[number as usize].phase == Phase::Greeting;
        self.fail(number, Failure::Framing, || {
            if is_new && bytes.starts_with(HTTP1) {
                "the server responded with HTTP/1; it does not support HTTP/2 on this port"
                    .to_owned()
            } else if is_new && bytes.starts_with(TLS_ALERT) {
                "the server responded with TLS; use https://".to_owned()
            } else {
                format!("the server's bytes are not valid HTTP/2: {}", fault.reason())
            }
        });
        self.send_frames(reactor, number);
        self.reconnect(reactor, number, now, false);
    }

    /// Cancels the requests of an HTTP/2 connection that took longer than the timeout. False if the caller
    /// must decide about the connection as a whole: nothing was received on it within the timeout, it is not open
    /// for requests, or it uses HTTP/1.1.
    pub(super) fn cancel_overdue<R: Reactor>(
        &mut self,
        reactor: &mut R,
        number: u32,
        now: Moment,
    ) -> bool {
        let timeout: Span = self.plan.timeout;
        let lane = &self.lanes[number as usize];
        let Some(session) = &lane.session else { return false };
        if lane.phase != Phase::Open || now.since(session.received_at) >= timeout {
            return false;
        }
        let mut is_changed = false;
        loop {
            let lane = &mut self.lanes[number as usize];
            let (Some(session), Some(sent)) = (&mut lane.session, lane.pending.front()) else {
                break;
            };
            if now.since(sent.at) < timeout {
                break;
            }
            if let Some(exchange) = session.exchanges.front() {
                session.connection.reset(&mut self.out, exchange.stream, ErrorCode::CANCEL);
            }
            is_changed = true;
            self.fail_one(number, 0, Failure::Timeout, || {
                format!("a request took longer than {}", in_words(timeout))
            });
        }
        if is_changed {
            self.schedule_session(reactor, number, now);
        }
        true
    }
}
