//! Answers made to the URL's order: delayed, large or in pieces, without holding more than one piece.
//! In: a request on a synthetic route. Out: its answer, as fast as the client takes it.
//! Never: keeps a body; waits in any way but by the connection's deadline (of the order's delays, or of the
//! body it waits for).
//! Limits: `SHARE_BYTES` a turn, then the others have theirs.

use tidegate_base::{Id, Moment};
use tidegate_gate::synthetic::{self, Synthetic, SyntheticFraming};
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http1::{self, BodyDecoder, BodyLength, RequestHead};

use crate::connection::DownstreamState;
use crate::downstream::is_blocked;
use crate::worker::{Work, Worker};

/// Bytes put together before they are handed to the reactor.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes one production may send in a turn.
const SHARE_BYTES: usize = 4 * PIECE_BYTES;

/// A synthetic answer under way.
pub(crate) struct Produce {
    down: SockId,
    order: Synthetic,
    framing: SyntheticFraming,
    close: bool,
    sent: u64,
    seed: Option<u64>,
    /// The request's body, read and forgotten as it comes.
    body: BodyDecoder,
    /// Bytes of it that still have to come before the answer.
    body_awaited: u64,
    phase: Phase,
    head: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The request's body, as far as the order wants it.
    ExpectBody,
    /// The order's delay.
    Delay(Moment),
    /// The answer flows.
    Send,
    /// The order's pause after the answer.
    Pause(Moment),
}

impl Worker {
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
        let context = self.answer_context(reactor, sock, head, close);
        let close = order.closes(&context);
        let framing = order.framing(&context);
        let mut bytes = Vec::new();
        if order.help {
            synthetic::encode_help(&mut bytes, &context);
            reactor.send(sock, &bytes);
            return self.after_answer(reactor, sock, head, 200, close);
        }
        if let (SyntheticFraming::Length, Some(out)) = (framing, reactor.output(sock))
            && is_simple(&order)
        {
            synthetic::encode_synthetic_head(out, &order, &context);
            synthetic::fill(out, 0, order.size as usize, seed);
            return self.after_answer(reactor, sock, head, order.status, close);
        }
        synthetic::encode_synthetic_head(&mut bytes, &order, &context);
        let body_awaited = match head.length {
            BodyLength::None | BodyLength::Length(0) => 0,
            _ => order.body_read_max.unwrap_or(0),
        };
        let production = Produce {
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
        match self.productions.insert(production) {
            Ok(id) => {
                if let Some(down) = self.conns.downstream(sock) {
                    down.state = DownstreamState::Produce(id);
                }
                if body_awaited == 0 {
                    self.begin_delay(reactor, id);
                } else if head.expect_continue {
                    // RFC 9110 section 10.1.1: who wants the body must say so.
                    reactor.send(sock, b"HTTP/1.1 100 Continue\r\n\r\n");
                }
            }
            Err(_) => {
                let text = "this server has too many requests under way";
                self.answer_error(reactor, sock, head, 503, text, true);
            }
        }
    }

    /// Reads and forgets the request's body; begins the answer once enough of it has come.
    pub(crate) fn feed_production<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Produce>,
        bytes: &[u8],
    ) -> usize {
        let Some(production) = self.productions.get_mut(id) else { return 0 };
        if production.body.is_done() {
            return 0;
        }
        let Ok(step) = production.body.decode(bytes) else {
            self.refuse_production(reactor, id, 400, "the request's body is malformed");
            return bytes.len();
        };
        production.body_awaited = production.body_awaited.saturating_sub(step.data.len() as u64);
        let enough = step.done || production.body_awaited == 0;
        if enough && production.phase == Phase::ExpectBody {
            self.begin_delay(reactor, id);
        }
        step.consumed
    }

    /// Whether the answer waits for bytes that the client still has to send.
    pub(crate) fn awaits_body(&self, id: Id<Produce>) -> bool {
        self.productions.get(id).is_some_and(|production| production.phase == Phase::ExpectBody)
    }

    /// The connection's deadline came: the order's own time is over, or the body's.
    pub(crate) fn production_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<Produce>) {
        if self.awaits_body(id) {
            self.accounts.counters.body_timeouts.add(1);
            let text = "the request's body did not come in time";
            return self.refuse_production(reactor, id, 408, text);
        }
        self.pump(reactor, id);
    }

    /// Answers a request whose body is not what it should be, and ends its connection.
    fn refuse_production<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Produce>,
        status: u16,
        text: &str,
    ) {
        let Some(production) = self.productions.remove(id) else { return };
        let down = production.down;
        if let Some(conn) = self.conns.downstream(down) {
            conn.state = DownstreamState::ExpectHead;
        }
        let bodyless = production.framing == SyntheticFraming::None;
        self.refuse_with(reactor, down, status, text, bodyless);
    }

    fn begin_delay<R: Reactor>(&mut self, reactor: &mut R, id: Id<Produce>) {
        let Some(production) = self.productions.get_mut(id) else { return };
        production.phase = Phase::Delay(reactor.now().after(production.order.delay));
        self.pump(reactor, id);
    }

    /// Carries a production on as far as time and the client allow.
    pub(crate) fn pump<R: Reactor>(&mut self, reactor: &mut R, id: Id<Produce>) {
        let Some(production) = self.productions.get_mut(id) else { return };
        let down = production.down;
        match production.phase {
            Phase::ExpectBody => {}
            Phase::Delay(until) if reactor.now() < until => reactor.set_deadline(down, until),
            Phase::Delay(_) => {
                production.phase = Phase::Send;
                let status = production.order.status;
                let head = core::mem::take(&mut production.head);
                reactor.send(down, &head);
                self.accounts.counters.count_answer(status);
                self.send_pieces(reactor, id);
            }
            Phase::Send => self.send_pieces(reactor, id),
            Phase::Pause(until) if reactor.now() < until => reactor.set_deadline(down, until),
            Phase::Pause(_) => self.end_production(reactor, id),
        }
    }

    /// Continues the productions that had used up their share of the last turn.
    pub(crate) fn continue_yielded<R: Reactor>(&mut self, reactor: &mut R) {
        for id in core::mem::take(&mut self.yielded) {
            self.pump(reactor, id);
        }
        self.settle(reactor);
    }

    fn send_pieces<R: Reactor>(&mut self, reactor: &mut R, id: Id<Produce>) {
        let mut piece = core::mem::take(&mut self.piece);
        let mut share = SHARE_BYTES;
        while let Some(production) = self.productions.get_mut(id) {
            let down = production.down;
            piece.clear();
            production.fill_piece(&mut piece);
            reactor.send(down, &piece);
            if production.is_whole() {
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

    /// The client does not take its answer: nothing more for it until it does.
    pub(crate) fn hold_downstream<R: Reactor>(&mut self, reactor: &mut R, down: SockId) {
        let Some(conn) = self.conns.downstream(down) else { return };
        conn.blocked = true;
        let listener = &self.snapshot.config.listeners[usize::from(conn.listener)];
        reactor.set_deadline(down, reactor.now().after(listener.timeouts.body));
    }

    fn begin_pause<R: Reactor>(&mut self, reactor: &mut R, id: Id<Produce>) {
        let Some(production) = self.productions.get_mut(id) else { return };
        production.phase = Phase::Pause(reactor.now().after(production.order.pause));
        self.pump(reactor, id);
    }

    fn end_production<R: Reactor>(&mut self, reactor: &mut R, id: Id<Produce>) {
        let Some(production) = self.productions.remove(id) else { return };
        let down = production.down;
        let blocked = is_blocked(reactor, down);
        let Some(conn) = self.conns.downstream(down) else { return };
        conn.blocked = blocked;
        // The answer did not say that the connection ends: what is left of the body is read on.
        conn.state = DownstreamState::discarding(production.body);
        if production.close {
            self.close_downstream(reactor, down);
        } else {
            self.work.push(Work::Resume(down));
        }
    }
}

impl Produce {
    fn is_whole(&self) -> bool {
        self.framing == SyntheticFraming::None || self.sent >= self.order.size
    }

    /// Appends the next bytes of the answer, framed; with the last of them its end.
    fn fill_piece(&mut self, out: &mut Vec<u8>) {
        if self.framing == SyntheticFraming::None {
            return;
        }
        while out.len() < PIECE_BYTES && self.sent < self.order.size {
            let left = self.order.size - self.sent;
            let room = PIECE_BYTES.min(self.order.piece_bytes) as u64;
            let amount = left.min(room) as usize;
            if self.framing == SyntheticFraming::Chunked {
                http1::encode_chunk_head(out, amount);
                synthetic::fill(out, self.sent, amount, self.seed);
                http1::encode_chunk_tail(out);
            } else {
                synthetic::fill(out, self.sent, amount, self.seed);
            }
            self.sent += amount as u64;
        }
        if self.framing == SyntheticFraming::Chunked && self.is_whole() {
            http1::encode_last_chunk(out, b"");
        }
    }
}

/// Whether the order can be answered at once, whole.
fn is_simple(order: &Synthetic) -> bool {
    order.delay.is_zero()
        && order.pause.is_zero()
        && order.size <= PIECE_BYTES as u64
        && order.body_read_max.is_none()
}
