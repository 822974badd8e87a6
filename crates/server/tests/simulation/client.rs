//! Clients: scripts of requests sent whole or in pieces, answers read and checked, leavings.
//! In: a script. Out: bytes; notes in the ledger.
//! Never: takes an answer on trust: its id, hash, length and every byte of its body are checked.
//! Invariant: `waiting` are the requests begun and not answered, in their order.

use core::net::IpAddr;
use std::collections::VecDeque;

use tidegate_base::{Address, Moment, Span};
use tidegate_reactor::{Peer, SimNet};
use tidegate_wire::tls::Connector;

use crate::ledger::{Ledger, Wants};
use crate::line::Line;
use crate::peer::body;
use crate::peer::reader::{Framing, Head, Piece, Reader, response_framing};
use crate::plan::BODY_BYTES_MAX;

/// How long a client waits for its connection to stand.
const CONNECT_PATIENCE: Span = Span::from_secs(10);

/// One step of a client's script.
pub enum Op {
    /// Sends; the first bytes of request `id` are among them.
    Send { id: Option<u64>, bytes: Vec<u8> },
    /// Waits for 100 (Continue), any final answer, or a second.
    AwaitContinue,
    /// Waits until every request begun is answered.
    AwaitAnswers,
    /// Sends through the tunnel, once (or, when early, before) it is open; else the script ends.
    Tunnel { bytes: Vec<u8>, early: bool },
    /// Lets time pass.
    Pause(Span),
    /// Bytes that come before TLS, where there is TLS.
    Bare(Vec<u8>),
    /// Bytes in place of the PROXY header that is none: from here on no answer will do.
    Intrude(Vec<u8>),
    /// Bytes that are no request: from here on any answer will do, but for an origin's.
    Garbage(Vec<u8>),
    /// Ends the sending side.
    Finish,
    /// Leaves in order.
    Leave,
    /// Leaves with a reset.
    Reset,
}

/// What is particular to one client.
pub struct Habits {
    pub start_at: Moment,
    /// Bytes sent at once at most.
    pub piece_bytes: usize,
    /// Ends TLS without saying so.
    pub is_rude: bool,
    /// Takes so many bytes each time that so much time passed; else all at once.
    pub reads: Option<(usize, Span)>,
}

/// A client and its one connection.
pub struct Client {
    index: usize,
    address: Address,
    ops: VecDeque<Op>,
    habits: Habits,
    connector: Option<Connector>,
    peer: Option<Line>,
    reader: Reader,
    answer: Option<Answer>,
    waiting: VecDeque<u64>,
    write_at: Moment,
    read_at: Moment,
    give_up_at: Moment,
    continued: bool,
    continue_by: Option<Moment>,
    /// Bytes sent for the tunnel, open or not.
    tunnel_sent: u64,
    garbage: bool,
    intruded: bool,
    closing: bool,
    /// The server had a reason to close before all was answered.
    excused: bool,
    tunnel: Option<Tunnel>,
    pub ended: bool,
}

/// An answer whose body is being read.
struct Answer {
    id: u64,
    head: Head,
    bytes: u64,
    text: Vec<u8>,
}

/// What has come back through a tunnel.
struct Tunnel {
    id: u64,
    back: u64,
}

/// Each client has an address of its own, by which origins tell whose a connection is.
pub fn ip_of(client: usize) -> IpAddr {
    [10, 20, (client >> 8) as u8, client as u8].into()
}

impl Client {
    /// A client that speaks TLS, where there is a connector.
    pub fn new(
        index: usize,
        address: Address,
        (ops, habits): (Vec<Op>, Habits),
        connector: Option<Connector>,
    ) -> Self {
        Self {
            index,
            address,
            ops: ops.into(),
            write_at: habits.start_at,
            habits,
            connector,
            peer: None,
            reader: Reader::default(),
            answer: None,
            waiting: VecDeque::new(),
            read_at: Moment::ZERO,
            give_up_at: Moment::ZERO,
            continued: false,
            continue_by: None,
            tunnel_sent: 0,
            garbage: false,
            intruded: false,
            closing: false,
            excused: false,
            tunnel: None,
            ended: false,
        }
    }

    /// When, after `now`, this client does something of its own accord.
    pub fn next_at(&self, now: Moment) -> Option<Moment> {
        if self.ended {
            return None;
        }
        let patience = self.is_left_hanging().then_some(self.give_up_at);
        let write = (!self.ops.is_empty()).then_some(self.continue_by.unwrap_or(self.write_at));
        let waits = self.peer.as_ref().is_some_and(|peer| peer.has_bytes());
        let read = (waits && self.habits.reads.is_some()).then_some(self.read_at);
        [write, read, patience].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// Does what can be done now; whether anything was.
    pub fn step(&mut self, net: &SimNet, ledger: &mut Ledger) -> bool {
        if self.ended || ledger.now < self.habits.start_at {
            return false;
        }
        if self.peer.is_none() {
            let port = 1024 + (ledger.now.as_nanos() / 1_000_000 % 60_000) as u16;
            let own = Peer::Tcp((ip_of(self.index), port).into());
            let peer = net.dial_as(&self.address, own);
            self.peer = peer.map(|peer| {
                let session = self.connector.as_ref().map(|tls| tls.connect("a.example"));
                let session = session.map(|begun| begun.expect("a session"));
                let is_held = matches!(self.ops.front(), Some(Op::Bare(_) | Op::Intrude(_)));
                Line::new(peer, session, is_held, self.habits.is_rude)
            });
            self.give_up_at = ledger.now.after(CONNECT_PATIENCE);
            ledger.trace(|| format!("c{} connects: {}", self.index, self.peer.is_some()));
            if self.peer.is_none() {
                self.end(ledger, "nobody listens");
                return true;
            }
        }
        if self.is_left_hanging() && ledger.now >= self.give_up_at {
            self.end(ledger, "its connection never stood");
            return true;
        }
        let mut moved = self.receive(ledger);
        if !self.ended {
            moved |= self.look_for_end(ledger);
        }
        if !self.ended {
            moved |= self.write(ledger);
        }
        moved
    }

    /// The listener may have closed before the connection stood; nobody says so.
    fn is_left_hanging(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| !peer.is_up())
    }

    fn receive(&mut self, ledger: &mut Ledger) -> bool {
        let Some(peer) = &self.peer else { return false };
        peer.pump();
        let bytes = match self.habits.reads {
            _ if self.intruded => peer.receive_bare(),
            Some(_) if ledger.now < self.read_at => return false,
            Some((count, _)) => peer.receive_some(count),
            None => peer.receive(),
        };
        if let Some(fault) = peer.fault() {
            ledger.violate(format!("c{}: {}", self.index, fault.text()));
        }
        let waits = peer.has_bytes();
        if let (Some((_, pause)), true) = (self.habits.reads, waits || !bytes.is_empty()) {
            self.read_at = ledger.now.after(pause);
        }
        if bytes.is_empty() {
            return false;
        }
        if self.intruded {
            ledger.violate(format!("c{} was told {:?} before its header", self.index, bytes));
        }
        self.reader.push(&bytes);
        if let Err(error) = self.read(ledger)
            && !self.garbage
        {
            ledger.violate(format!("c{}: {error}", self.index));
            self.end(ledger, "it got nonsense");
        }
        true
    }

    fn read(&mut self, ledger: &mut Ledger) -> Result<(), String> {
        loop {
            if let Some(tunnel) = &mut self.tunnel {
                let bytes = self.reader.take_rest();
                if !body::matches(tunnel.id, tunnel.back, &bytes) {
                    return Err(format!("the tunnel of r{} brought other bytes back", tunnel.id));
                }
                tunnel.back += bytes.len() as u64;
                if tunnel.back > self.tunnel_sent {
                    return Err(format!("the tunnel of r{} brought too much back", tunnel.id));
                }
                return Ok(());
            }
            if self.answer.is_none() {
                let Some(head) = self.reader.next_head()? else { return Ok(()) };
                if self.garbage {
                    self.reader.take_rest();
                    return Ok(());
                }
                self.begin_answer(head, ledger)?;
                continue;
            }
            match self.reader.next_piece()? {
                Piece::Need => return Ok(()),
                Piece::Data(data) => self.read_body(&data)?,
                Piece::End(trailers) => {
                    if trailers.iter().any(|(name, _)| !name.eq_ignore_ascii_case("x-trailer")) {
                        return Err(format!("trailers {trailers:?}"));
                    }
                    self.end_answer(ledger)?;
                }
            }
        }
    }

    fn begin_answer(&mut self, head: Head, ledger: &mut Ledger) -> Result<(), String> {
        if self.closing {
            return Err(format!("after Connection: close came {:?}", head.start));
        }
        if head.field("x-poison").is_some() {
            return Err(format!("a malformed answer was relayed: {head:?}"));
        }
        let Some(&id) = self.waiting.front() else {
            if head.status() == 408 {
                // Sent as the first bytes of another request crossed it, or of an unfinished head.
                self.closing = true;
                self.garbage = true;
                return Ok(());
            }
            return Err(format!("an answer that nobody asked for: {:?}", head.start));
        };
        let request = ledger.requests[&id].clone();
        ledger.trace(|| {
            format!("c{} gets {:?} for r{id}, close: {}", self.index, head.start, head.says_close())
        });
        let status = head.status();
        if (100..200).contains(&status) {
            if request.old_version {
                return Err(format!("r{id} is HTTP/1.0 and got {status}"));
            }
            self.continued = true;
            if status == 101 {
                if request.wants != Wants::Tunnel {
                    return Err(format!("r{id} asked for no upgrade and got 101"));
                }
                self.waiting.pop_front();
                self.tunnel = Some(Tunnel { id, back: 0 });
                self.note_answered(id, ledger);
                ledger.tunnels += 1;
            }
            return Ok(());
        }
        self.continued = true;
        if let Some(told) = head.number("x-id")
            && told != id
        {
            return Err(format!("r{id} got the answer to r{told}"));
        }
        if let (Some(told), Some(hash)) = (head.field("x-id"), head.number("x-request-hash")) {
            let known = request.seen.iter().any(|seen| seen.whole && seen.hash == hash);
            if !known {
                return Err(format!("r{told}'s origin hashed its body to {hash}: not what it got"));
            }
        }
        self.closing = head.says_close();
        // Towards HTTP/1.0 a body of unknown length ends with the connection.
        self.excused = self.closing && request.old_version;
        let framing = response_framing(&head, request.method == "HEAD")?;
        if framing == Framing::Chunked && request.old_version {
            return Err(format!("r{id} is HTTP/1.0 and got a chunked answer"));
        }
        self.reader.begin_body(framing);
        self.answer = Some(Answer { id, head, bytes: 0, text: Vec::new() });
        Ok(())
    }

    fn read_body(&mut self, data: &[u8]) -> Result<(), String> {
        let Some(answer) = &mut self.answer else { return Ok(()) };
        if let Some(seed) = answer.head.number("x-body-seed")
            && !body::matches(seed, answer.bytes, data)
        {
            let (id, at) = (answer.id, answer.bytes);
            return Err(format!("the answer to r{id} has other bytes from {at} on"));
        }
        answer.bytes += data.len() as u64;
        if answer.text.len() < 1000 {
            answer.text.extend_from_slice(data);
        }
        Ok(())
    }

    /// The answer looks whole: it must be.
    fn end_answer(&mut self, ledger: &mut Ledger) -> Result<(), String> {
        let Some(answer) = self.answer.take() else { return Ok(()) };
        let id = answer.id;
        self.waiting.pop_front();
        let request = &ledger.requests[&id];
        let status = answer.head.status();
        let text = String::from_utf8_lossy(&answer.text).into_owned();
        let ours = answer.head.field("x-id").is_none();
        let empty = request.method == "HEAD" || status == 204 || status == 304;
        let failed = matches!(status, 408 | 413 | 502..=504);
        match &request.wants {
            Wants::Origin | Wants::Tunnel if !ours => {
                let wanted = answer.head.number("x-answer-bytes").unwrap_or(0);
                if !empty && answer.bytes != wanted {
                    let got = answer.bytes;
                    return Err(format!("r{id}'s answer looks whole with {got} of {wanted} bytes"));
                }
            }
            // A head that came in pieces may have come too slowly, a body may be too large.
            Wants::Fixed(..) | Wants::Bytes(_)
                if !ledger.is_calm
                    && (status == 408 || status == 413 && request.body_bytes > BODY_BYTES_MAX) =>
            {
                ledger.answers_failed += 1;
            }
            Wants::Fixed(wanted, body) => {
                if status != *wanted || (!empty && text != *body) {
                    return Err(format!("r{id} got {status} {text:?}, not {wanted} {body:?}"));
                }
            }
            Wants::Bytes(count) => {
                if status != 200 || (!empty && answer.bytes != *count) {
                    return Err(format!("r{id} got {status} with {} bytes", answer.bytes));
                }
            }
            Wants::Origin | Wants::Tunnel if failed && !ledger.is_calm => {
                ledger.answers_failed += 1;
                ledger.trace(|| format!("c{}: r{id} failed: {text}", self.index));
            }
            Wants::Origin | Wants::Tunnel => {
                return Err(format!("r{id} got {:?} {text:?}", answer.head.start));
            }
        }
        self.note_answered(id, ledger);
        Ok(())
    }

    fn note_answered(&mut self, id: u64, ledger: &mut Ledger) {
        ledger.answers_good += 1;
        let Some(request) = ledger.requests.get_mut(&id) else { return };
        if core::mem::replace(&mut request.answered, true) {
            ledger.violate(format!("r{id} was answered twice"));
        }
    }

    /// Whether the server has ended the connection, and what that means for the answer under way.
    fn look_for_end(&mut self, ledger: &mut Ledger) -> bool {
        let Some(peer) = &self.peer else { return false };
        if peer.was_reset() && !peer.has_bytes() {
            if self.answer.is_some() {
                ledger.answers_cut += 1;
            }
            self.end(ledger, "the server reset");
            return true;
        }
        if !peer.is_finished_by_other() {
            return false;
        }
        if self.tunnel.is_some() {
            self.end(ledger, "the tunnel ended");
            return true;
        }
        if self.answer.is_some() && self.reader.ends_by_close() && !peer.is_cut() {
            if let Err(error) = self.end_answer(ledger) {
                ledger.violate(format!("c{}: {error}", self.index));
            }
        } else if self.answer.is_some() || !(self.reader.rest().is_empty() || self.garbage) {
            ledger.answers_cut += 1;
        }
        self.end(ledger, "the server finished");
        true
    }

    fn end(&mut self, ledger: &mut Ledger, why: &str) {
        ledger.trace(|| format!("c{} ends: {why}; unanswered: {:?}", self.index, self.waiting));
        if let (Some(tunnel), true) = (&self.tunnel, ledger.is_calm)
            && tunnel.back != self.tunnel_sent
        {
            let (id, sent, back) = (tunnel.id, self.tunnel_sent, tunnel.back);
            ledger.violate(format!("the tunnel of r{id} took {sent} bytes and brought {back}"));
        }
        if ledger.is_calm && !self.waiting.is_empty() && !self.excused {
            ledger.violate(format!("c{} ends unanswered ({why}): {:?}", self.index, self.waiting));
        }
        self.ended = true;
        self.peer = None;
    }

    fn write(&mut self, ledger: &mut Ledger) -> bool {
        let mut moved = false;
        while ledger.now >= self.write_at && self.play(ledger) {
            moved = true;
        }
        moved
    }

    /// Plays the next step of the script; false when it cannot be done yet, or there is none.
    fn play(&mut self, ledger: &mut Ledger) -> bool {
        let Some(peer) = &self.peer else { return false };
        match self.ops.front_mut() {
            None => return false,
            Some(Op::Send { .. }) => return self.send_request(ledger),
            Some(Op::Tunnel { .. }) => return self.send_tunnel(ledger),
            Some(Op::AwaitContinue) => {
                let by = *self.continue_by.get_or_insert(ledger.now.after(Span::from_secs(1)));
                if !self.continued && ledger.now < by {
                    return false;
                }
                self.continue_by = None;
                self.pop_waited();
            }
            Some(Op::AwaitAnswers) if self.waiting.is_empty() => self.pop_waited(),
            Some(Op::AwaitAnswers) => return false,
            Some(Op::Pause(span)) => {
                self.write_at = ledger.now.after(*span);
                self.ops.pop_front();
            }
            Some(Op::Bare(bytes)) => {
                let sent = peer.send_bare(&bytes[..bytes.len().min(self.habits.piece_bytes)]);
                bytes.drain(..sent);
                if bytes.is_empty() {
                    peer.release(&[]);
                    self.ops.pop_front();
                }
                if sent > 0 {
                    self.write_at = ledger.now.after(Span::from_nanos(1));
                }
                return sent > 0;
            }
            Some(Op::Intrude(bytes)) => {
                self.intruded = true;
                ledger.refused += 1;
                peer.send_bare(bytes);
                self.ops.pop_front();
            }
            Some(Op::Garbage(bytes)) => {
                if peer.send(bytes) == 0 {
                    return false;
                }
                self.garbage = true;
                self.ops.pop_front();
            }
            Some(Op::Finish) => {
                peer.finish();
                self.ops.pop_front();
            }
            Some(Op::Leave) => self.leave(ledger, "it left"),
            Some(Op::Reset) => {
                peer.reset();
                self.leave(ledger, "it reset");
            }
        }
        true
    }

    fn send_request(&mut self, ledger: &mut Ledger) -> bool {
        let Some(Op::Send { id, bytes }) = self.ops.front_mut() else { return false };
        if self.closing && id.is_some() {
            // The server said that it takes no more requests.
            self.ops.clear();
            return false;
        }
        let Some(sent) = send_piece(self.peer.as_ref(), bytes, self.habits.piece_bytes) else {
            return false;
        };
        let begun = id.take();
        if sent == bytes.len() {
            self.ops.pop_front();
        } else {
            bytes.drain(..sent);
        }
        if let Some(id) = begun {
            self.continued = false;
            self.waiting.push_back(id);
            ledger.trace(|| format!("c{} begins r{id}", self.index));
            if let Some(request) = ledger.requests.get_mut(&id) {
                request.begun = true;
            }
        }
        self.write_at = ledger.now.after(Span::from_nanos(1));
        true
    }

    fn send_tunnel(&mut self, ledger: &Ledger) -> bool {
        let Some(Op::Tunnel { bytes, early }) = self.ops.front_mut() else { return false };
        if self.tunnel.is_none() && !*early {
            if self.waiting.is_empty() {
                self.ops.clear();
            }
            return false;
        }
        let Some(sent) = send_piece(self.peer.as_ref(), bytes, self.habits.piece_bytes) else {
            return false;
        };
        self.tunnel_sent += sent as u64;
        if sent == bytes.len() {
            self.ops.pop_front();
        } else {
            bytes.drain(..sent);
        }
        self.write_at = ledger.now.after(Span::from_nanos(1));
        true
    }

    fn pop_waited(&mut self) {
        self.ops.pop_front();
        self.write_at = Moment::ZERO;
    }

    fn leave(&mut self, ledger: &mut Ledger, why: &str) {
        self.waiting.clear();
        self.end(ledger, why);
    }
}

/// Sends up to `most` of `bytes`; `None` when there is no room for any.
fn send_piece(peer: Option<&Line>, bytes: &[u8], most: usize) -> Option<usize> {
    let piece = &bytes[..bytes.len().min(most)];
    let sent = peer?.send(piece);
    (sent > 0 || piece.is_empty()).then_some(sent)
}
