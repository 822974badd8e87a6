//! Synthetic responses: status, size, delays and chunks as the URL orders, holding at most one piece at a
//! time.
//! In: a request on a synthetic route. Out: its response, as fast as the client reads it.
//! Never: keeps a body; waits in any other way than by the connection's deadline (for the order's delays, or
//! for the request body).
//! Limits: each response sends up to `SHARE_BYTES` a turn, so that other connections get their share.

use tidegate_base::{Id, Moment};
use tidegate_gate::synthetic::{self, Synthetic};
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http1::{self, BodyDecoder, BodyFraming};
use tidegate_wire::message::{BodyLength, RequestHead};

use crate::carrier::http1::client::{Answering, is_blocked, look_span};
use crate::connection::DownstreamState;
use crate::worker::{Work, Worker};

/// Bytes that are collected before they are handed to the reactor.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes one response may send in a turn.
const SHARE_BYTES: usize = 4 * PIECE_BYTES;

/// A synthetic response in progress.
pub(crate) struct SyntheticResponse {
    /// The client's connection. It is live as long as the response exists, and its state names this response.
    down: SockId,
    /// The response as the URL orders it.
    order: Synthetic,
    /// How the body is framed.
    framing: BodyFraming,
    /// The connection closes after the response.
    close: bool,
    /// Bytes of the body sent so far, without framing. At most `order.size`.
    sent: u64,
    /// The seed of a random body; `None` for the fixed pattern.
    seed: Option<u64>,
    /// Decodes the body of the request, which is discarded.
    body: BodyDecoder,
    /// Bytes of the request body that must still arrive before the response begins.
    body_awaited: u64,
    /// What the response is doing now.
    phase: Phase,
    /// The encoded response head. Empty once it has been sent.
    head: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for the request body, as far as the order requires it.
    ExpectBody,
    /// Waiting for the end of the order's delay.
    Delay(Moment),
    /// Sending the body.
    Send,
    /// Waiting for the end of the order's pause after the response.
    Pause(Moment),
}

impl Worker {
    /// Parses the order in the URL and begins its response.
    pub(crate) fn begin_synthetic<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        head: &RequestHead<'_>,
    ) {
        let close = self.must_close(sock, head);
        let order = match synthetic::parse(head.query, &mut self.prng) {
            Ok(order) => order,
            Err(text) => return self.answer_error(reactor, sock, head, 400, text, false),
        };
        let seed = order.random.then(|| self.prng.next_u64());
        let answering = self.answering(reactor, sock, head, close);
        let length = order.body_length(answering.context.is_head);
        let framing = BodyFraming::of(length, answering.version);
        let close = answering.close || order.asks_to_close() || framing == BodyFraming::UntilClose;
        let mut bytes = Vec::new();
        if order.help {
            synthetic::encode_help(&mut answering.sink(&mut bytes), &answering.context);
            reactor.send(sock, &bytes);
            return self.after_answer(reactor, sock, head, 200, close);
        }
        let Answering { context, version, .. } = answering;
        let answering = Answering { close, ..answering };
        if let (BodyFraming::Length, Some(out)) = (framing, reactor.output(sock))
            && can_send_at_once(&order)
        {
            let sink = &mut answering.sink(out);
            synthetic::encode_synthetic_head(sink, &order, version, &context);
            synthetic::fill(out, 0, order.size as usize, seed);
            return self.after_answer(reactor, sock, head, order.status, close);
        }
        let sink = &mut answering.sink(&mut bytes);
        synthetic::encode_synthetic_head(sink, &order, version, &context);
        let body_awaited = match head.length {
            BodyLength::None | BodyLength::Length(0) => 0,
            _ => order.body_read_max.unwrap_or(0),
        };
        let response = SyntheticResponse {
            down: sock,
            framing,
            close,
            sent: 0,
            seed,
            body: BodyDecoder::new(head.length),
            body_awaited,
            phase: Phase::ExpectBody,
            head: bytes,
            order,
        };
        match self.synthetics.insert(response) {
            Ok(id) => {
                if let Some(down) = self.conns.downstream(sock) {
                    down.state = DownstreamState::Synthetic(id);
                }
                if body_awaited == 0 {
                    self.begin_delay(reactor, id);
                } else if head.expect_continue {
                    // RFC 9110 section 10.1.1: a recipient that wants the body must request it with 100.
                    reactor.send(sock, b"HTTP/1.1 100 Continue\r\n\r\n");
                }
            }
            Err(_) => {
                let text = "the proxy is handling too many requests";
                self.answer_error(reactor, sock, head, 503, text, true);
            }
        }
    }

    /// Reads and discards the request body. Begins the response once enough of the body has arrived.
    pub(crate) fn feed_synthetic<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<SyntheticResponse>,
        bytes: &[u8],
    ) -> usize {
        let Some(response) = self.synthetics.get_mut(id) else { return 0 };
        if response.body.is_done() {
            return 0;
        }
        let Ok(step) = response.body.decode(bytes) else {
            self.refuse_synthetic(reactor, id, 400, "the request body is malformed");
            return bytes.len();
        };
        response.body_awaited = response.body_awaited.saturating_sub(step.data.len() as u64);
        let enough = step.done || response.body_awaited == 0;
        if enough && response.phase == Phase::ExpectBody {
            self.begin_delay(reactor, id);
        }
        step.consumed
    }

    /// Whether the response waits for more of the request body.
    pub(crate) fn awaits_body(&self, id: Id<SyntheticResponse>) -> bool {
        self.synthetics.get(id).is_some_and(|response| response.phase == Phase::ExpectBody)
    }

    /// The connection's deadline expired: the delay or pause of the order has ended, or the body timed out.
    pub(crate) fn synthetic_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<SyntheticResponse>) {
        if self.awaits_body(id) {
            self.accounts.counters.body_timeouts.add(1);
            let text = "timed out reading the request body";
            return self.refuse_synthetic(reactor, id, 408, text);
        }
        self.pump(reactor, id);
    }

    /// Rejects a request whose body is malformed or late, and ends its connection.
    fn refuse_synthetic<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<SyntheticResponse>,
        status: u16,
        text: &str,
    ) {
        let Some(response) = self.synthetics.remove(id) else { return };
        let down = response.down;
        if let Some(conn) = self.conns.downstream(down) {
            conn.state = DownstreamState::ExpectHead;
        }
        let bodyless = response.framing == BodyFraming::None;
        self.refuse_with(reactor, down, status, text, bodyless);
    }

    /// Begins the delay of the order.
    fn begin_delay<R: Reactor>(&mut self, reactor: &mut R, id: Id<SyntheticResponse>) {
        let Some(response) = self.synthetics.get_mut(id) else { return };
        response.phase = Phase::Delay(reactor.now().after(response.order.delay));
        self.pump(reactor, id);
    }

    /// Advances a response as far as its delays and the client allow.
    pub(crate) fn pump<R: Reactor>(&mut self, reactor: &mut R, id: Id<SyntheticResponse>) {
        let Some(response) = self.synthetics.get_mut(id) else { return };
        let down = response.down;
        match response.phase {
            Phase::ExpectBody => {}
            Phase::Delay(until) if reactor.now() < until => reactor.set_deadline(down, until),
            Phase::Delay(_) => {
                response.phase = Phase::Send;
                let status = response.order.status;
                let head = core::mem::take(&mut response.head);
                reactor.send(down, &head);
                self.accounts.counters.count_answer(status);
                self.send_pieces(reactor, id);
            }
            Phase::Send => self.send_pieces(reactor, id),
            Phase::Pause(until) if reactor.now() < until => reactor.set_deadline(down, until),
            Phase::Pause(_) => self.end_synthetic(reactor, id),
        }
    }

    /// Continues the responses that had used up their share of the turn.
    pub(crate) fn continue_yielded<R: Reactor>(&mut self, reactor: &mut R) {
        for id in core::mem::take(&mut self.yielded) {
            self.pump(reactor, id);
        }
        self.settle(reactor);
    }

    /// Sends pieces of the body until it is complete, the client is too slow, or the share of the turn is
    /// used up.
    fn send_pieces<R: Reactor>(&mut self, reactor: &mut R, id: Id<SyntheticResponse>) {
        let mut piece = core::mem::take(&mut self.piece);
        let mut share = SHARE_BYTES;
        while let Some(response) = self.synthetics.get_mut(id) {
            let down = response.down;
            piece.clear();
            response.fill_piece(&mut piece);
            reactor.send(down, &piece);
            if response.is_whole() {
                self.begin_pause(reactor, id);
                break;
            }
            if is_blocked(reactor, down) {
                self.hold_downstream(reactor, down);
                break;
            }
            share = share.saturating_sub(piece.len());
            if share == 0 {
                self.yielded.push(id);
                break;
            }
        }
        self.piece = piece;
    }

    /// Suspends output to a client that does not read fast enough, until its output has drained.
    pub(crate) fn hold_downstream<R: Reactor>(&mut self, reactor: &mut R, down: SockId) {
        let Some(conn) = self.conns.downstream(down) else { return };
        conn.blocked = true;
        let listener = &self.snapshot.config.listeners[usize::from(conn.listener)];
        reactor.set_deadline(down, reactor.now().after(look_span(listener.timeouts.body)));
    }

    /// Begins the pause of the order.
    fn begin_pause<R: Reactor>(&mut self, reactor: &mut R, id: Id<SyntheticResponse>) {
        let Some(response) = self.synthetics.get_mut(id) else { return };
        response.phase = Phase::Pause(reactor.now().after(response.order.pause));
        self.pump(reactor, id);
    }

    /// Ends the response, and closes its connection or expects the next request.
    fn end_synthetic<R: Reactor>(&mut self, reactor: &mut R, id: Id<SyntheticResponse>) {
        let Some(response) = self.synthetics.remove(id) else { return };
        let down = response.down;
        let blocked = is_blocked(reactor, down);
        let Some(conn) = self.conns.downstream(down) else { return };
        conn.blocked = blocked;
        // If the response did not announce that the connection closes, the rest of the body is discarded.
        conn.state = DownstreamState::discarding(response.body);
        if response.close {
            self.close_downstream(reactor, down);
        } else {
            self.work.push(Work::Resume(down));
        }
    }
}

impl SyntheticResponse {
    fn is_whole(&self) -> bool {
        self.framing == BodyFraming::None || self.sent >= self.order.size
    }

    /// Appends the next piece of the body, framed. After the last piece, appends the end of the body.
    fn fill_piece(&mut self, out: &mut Vec<u8>) {
        if self.framing == BodyFraming::None {
            return;
        }
        while out.len() < PIECE_BYTES && self.sent < self.order.size {
            let left = self.order.size - self.sent;
            let room = PIECE_BYTES.min(self.order.piece_bytes) as u64;
            let amount = left.min(room) as usize;
            if self.framing == BodyFraming::Chunked {
                http1::encode_chunk_head(out, amount);
                synthetic::fill(out, self.sent, amount, self.seed);
                http1::encode_chunk_tail(out);
            } else {
                synthetic::fill(out, self.sent, amount, self.seed);
            }
            self.sent += amount as u64;
        }
        if self.framing == BodyFraming::Chunked && self.is_whole() {
            http1::encode_last_chunk(out, b"");
        }
    }
}

/// Whether the whole response can be sent at once.
fn can_send_at_once(order: &Synthetic) -> bool {
    order.delay.is_zero()
        && order.pause.is_zero()
        && order.size <= PIECE_BYTES as u64
        && order.body_read_max.is_none()
}
