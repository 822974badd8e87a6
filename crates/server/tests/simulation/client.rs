//! Simulated clients: send scripted requests, whole or in pieces, check each response, and leave.
//! In: a script. Out: bytes; reports to the oracle.
//! Never: trusts a response: its id, hash, length and every byte of its body are checked.
//! Invariant: `waiting` holds the requests begun and not yet answered, in order.

use core::net::IpAddr;
use std::collections::VecDeque;

use tidegate_base::{Address, Moment, Span};
use tidegate_reactor::{Peer, SimNet};
use tidegate_wire::tls::Connector;

use crate::line::Line;
use crate::oracle::{Expected, Oracle};
use crate::peer::body;
use crate::peer::reader::{Framing, Head, Piece, Reader, response_framing};
use crate::plan::BODY_BYTES_MAX;
use crate::websocket_tunnel::TunnelReader;

/// How long a client waits until its connection is established.
const CONNECT_PATIENCE: Span = Span::from_secs(10);

/// One step of a client's script.
pub enum Op {
    /// Sends bytes. With an `id` they begin that request.
    Send { id: Option<u64>, bytes: Vec<u8> },
    /// Waits for 100 (Continue) or a final response, but at most one second.
    AwaitContinue,
    /// Waits until every request that was begun is answered.
    AwaitAnswers,
    /// Sends bytes through the tunnel once it is open, or even before if `early`. If the upgrade is declined,
    /// the script ends.
    Tunnel { bytes: Vec<u8>, early: bool },
    /// Waits.
    Pause(Span),
    /// Sends bytes unencrypted, before TLS begins.
    Bare(Vec<u8>),
    /// Sends an invalid PROXY header: any response from here on is a violation.
    BadHeader(Vec<u8>),
    /// Sends bytes that are not a valid request: responses from here on are not checked.
    Garbage(Vec<u8>),
    /// Ends the sending side.
    Finish,
    /// Closes the connection cleanly.
    Leave,
    /// Resets the connection.
    Reset,
}

/// The properties of one client, except for its script.
pub struct Habits {
    /// When the client connects.
    pub start_at: Moment,
    /// Maximum number of bytes sent at once.
    pub piece_bytes: usize,
    /// Ends TLS without close_notify.
    pub skips_close_notify: bool,
    /// Reads this many bytes after each such pause; `None`: reads everything at once.
    pub reads: Option<(usize, Span)>,
}

/// A client and its one connection.
pub struct Client {
    /// Names the client in messages, and decides its address.
    index: usize,
    /// The listener's address.
    address: Address,
    /// The remaining steps of the script.
    ops: VecDeque<Op>,
    habits: Habits,
    /// The client uses TLS if it has a connector.
    connector: Option<Connector>,
    /// The connection; `None` before it is opened and after it has ended.
    peer: Option<Line>,
    reader: Reader,
    /// The response being read.
    answer: Option<Answer>,
    /// Ids of the requests begun and not yet answered, in order.
    waiting: VecDeque<u64>,
    /// The script waits until this moment.
    write_at: Moment,
    /// A client that reads slowly does not read before.
    read_at: Moment,
    /// When the client stops waiting for its connection.
    give_up_at: Moment,
    /// The latest request got 100 (Continue) or a final response.
    continued: bool,
    /// When `AwaitContinue` stops waiting.
    continue_by: Option<Moment>,
    /// Bytes sent for the tunnel, open or not.
    tunnel_sent: u64,
    /// Garbage was sent, so responses are not checked any more.
    sent_garbage: bool,
    /// An invalid PROXY header was sent, so no response may come.
    sent_bad_header: bool,
    /// The last response announced that the connection closes, so no response may follow.
    closing: bool,
    /// The worker had a reason to close before all requests were answered.
    may_close_early: bool,
    /// Set once the upgrade was accepted.
    tunnel: Option<Tunnel>,
    /// The client has left or lost its connection, and does nothing any more.
    pub ended: bool,
}

/// A response whose body is being read.
pub struct Answer {
    pub id: u64,
    head: Head,
    /// Body bytes read so far.
    pub bytes: u64,
    /// The beginning of the body, for messages and for local responses.
    text: Vec<u8>,
}

impl Answer {
    /// A response to request `id`, whose head must belong to that request.
    pub fn new(id: u64, head: Head, oracle: &Oracle) -> Result<Self, String> {
        let request = &oracle.requests[&id];
        if head.field("x-poison").is_some() {
            return Err(format!("a malformed response was relayed: {head:?}"));
        }
        if let Some(stated) = head.number("x-id")
            && stated != id
        {
            return Err(format!("r{id} got the response to r{stated}"));
        }
        // The route of this path writes the field from the request. Without `x-id`, Tidegate responds by itself.
        let is_edited = request.path.starts_with("/p2/") && head.status() >= 200;
        if let Some(of) = head.number("x-of")
            && of != id
        {
            return Err(format!("the response to r{id} has the fields of the response to r{of}"));
        }
        if is_edited && head.field("x-id").is_some() && head.field("x-of").is_none() {
            return Err(format!("the response to r{id} is not edited: {head:?}"));
        }
        if let (Some(stated), Some(hash)) = (head.field("x-id"), head.number("x-request-hash")) {
            let known = request.seen.iter().any(|seen| seen.whole && seen.hash == hash);
            if !known {
                return Err(format!(
                    "the origin of r{stated} reports the body hash {hash}, but received another body"
                ));
            }
        }
        Ok(Self { id, head, bytes: 0, text: Vec::new() })
    }

    /// The next bytes of the body.
    pub fn read(&mut self, data: &[u8]) -> Result<(), String> {
        if let Some(seed) = self.head.number("x-body-seed")
            && !body::matches(seed, self.bytes, data)
        {
            let (id, at) = (self.id, self.bytes);
            return Err(format!("the body of the response to r{id} is wrong from byte {at} on"));
        }
        self.bytes += data.len() as u64;
        if self.text.len() < 1000 {
            self.text.extend_from_slice(data);
        }
        Ok(())
    }

    /// The response looks complete: checks that it is.
    pub fn end(&self, oracle: &mut Oracle) -> Result<(), String> {
        let id = self.id;
        let request = &oracle.requests[&id];
        let status = self.head.status();
        let text = String::from_utf8_lossy(&self.text).into_owned();
        let ours = self.head.field("x-id").is_none();
        let empty = request.method == "HEAD" || status == 204 || status == 304;
        let failed = matches!(status, 408 | 413 | 502..=504);
        match &request.expected {
            Expected::Origin | Expected::Tunnel if !ours => {
                let wanted = self.head.number("x-answer-bytes").unwrap_or(0);
                if !empty && self.bytes != wanted {
                    let got = self.bytes;
                    let bytes = format!("{got} of {wanted} bytes");
                    return Err(format!("the response to r{id} ended cleanly after {bytes}"));
                }
            }
            // A head sent in pieces may have been too slow, and a body may be too large.
            Expected::Fixed(..) | Expected::Bytes(_)
                if !oracle.is_calm
                    && (status == 408 || status == 413 && request.body_bytes > BODY_BYTES_MAX) =>
            {
                oracle.answers_failed += 1;
            }
            Expected::Fixed(wanted, body) => {
                if status != *wanted || (!empty && text != *body) {
                    return Err(format!("r{id} got {status} {text:?}, expected {wanted} {body:?}"));
                }
            }
            Expected::Bytes(count) => {
                if status != 200 || (!empty && self.bytes != *count) {
                    return Err(format!("r{id} got {status} with {} bytes", self.bytes));
                }
            }
            Expected::Origin | Expected::Tunnel
                if failed && (!oracle.is_calm || oracle.is_crowded && status == 503) =>
            {
                oracle.answers_failed += 1;
                oracle.trace(|| format!("r{id} failed: {text}"));
            }
            Expected::Origin | Expected::Tunnel => {
                return Err(format!("r{id} got {:?} {text:?}", self.head.start));
            }
        }
        note_answered(id, status, oracle);
        Ok(())
    }
}

/// The complete response to a request has this status, or its tunnel was opened.
pub fn note_answered(id: u64, status: u16, oracle: &mut Oracle) {
    oracle.answers_good += 1;
    let Some(request) = oracle.requests.get_mut(&id) else { return };
    request.status = Some(status);
    if core::mem::replace(&mut request.answered, true) {
        oracle.violate(format!("r{id} was answered twice"));
    }
}

/// An open tunnel.
struct Tunnel {
    id: u64,
    /// Bytes that came back so far.
    back: u64,
    reader: TunnelReader,
}

/// The address of a client. Each client has its own, so that origins can recognise it.
pub fn ip_of(client: usize) -> IpAddr {
    [10, 20, (client >> 8) as u8, client as u8].into()
}

impl Client {
    /// A client; it uses TLS if there is a connector.
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
            sent_garbage: false,
            sent_bad_header: false,
            closing: false,
            may_close_early: false,
            tunnel: None,
            ended: false,
        }
    }

    /// The next time after `now` at which this client acts without receiving anything.
    pub fn next_at(&self, now: Moment) -> Option<Moment> {
        if self.ended {
            return None;
        }
        let patience = self.is_connecting().then_some(self.give_up_at);
        let write = (!self.ops.is_empty()).then_some(self.continue_by.unwrap_or(self.write_at));
        let waits = self.peer.as_ref().is_some_and(|peer| peer.has_bytes());
        let read = (waits && self.habits.reads.is_some()).then_some(self.read_at);
        [write, read, patience].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// Does everything possible now; returns whether anything was done.
    pub fn step(&mut self, net: &SimNet, oracle: &mut Oracle) -> bool {
        if self.ended || oracle.now < self.habits.start_at {
            return false;
        }
        if self.peer.is_none() {
            let port = 1024 + (oracle.now.as_nanos() / 1_000_000 % 60_000) as u16;
            let own = Peer::Tcp((ip_of(self.index), port).into());
            let peer = net.dial_as(&self.address, own);
            self.peer = peer.map(|peer| {
                let session = self.connector.as_ref().map(|tls| tls.connect("a.example"));
                let session = session.map(|begun| begun.expect("a session"));
                let is_held = matches!(self.ops.front(), Some(Op::Bare(_) | Op::BadHeader(_)));
                Line::new(peer, session, is_held, self.habits.skips_close_notify)
            });
            self.give_up_at = oracle.now.after(CONNECT_PATIENCE);
            oracle.trace(|| format!("c{} connects: {}", self.index, self.peer.is_some()));
            if self.peer.is_none() {
                self.end(oracle, "connection refused");
                return true;
            }
        }
        if self.is_connecting() && oracle.now >= self.give_up_at {
            self.end(oracle, "timed out connecting");
            return true;
        }
        let mut moved = self.receive(oracle);
        if !self.ended {
            moved |= self.look_for_end(oracle);
        }
        if !self.ended {
            moved |= self.write(oracle);
        }
        moved
    }

    /// Whether the connection is not established. It may never be: if the listener closed meanwhile, no event
    /// reports that.
    fn is_connecting(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| !peer.is_up())
    }

    fn receive(&mut self, oracle: &mut Oracle) -> bool {
        let Some(peer) = &self.peer else { return false };
        peer.pump();
        let bytes = match self.habits.reads {
            _ if self.sent_bad_header => peer.receive_bare(),
            Some(_) if oracle.now < self.read_at => return false,
            Some((count, _)) => peer.receive_some(count),
            None => peer.receive(),
        };
        if let Some(fault) = peer.fault() {
            oracle.violate(format!("c{}: {}", self.index, fault.text()));
        }
        let waits = peer.has_bytes();
        if let (Some((_, pause)), true) = (self.habits.reads, waits || !bytes.is_empty()) {
            self.read_at = oracle.now.after(pause);
        }
        if bytes.is_empty() {
            return false;
        }
        oracle.moved_bytes += bytes.len() as u64;
        if self.sent_bad_header {
            oracle.violate(format!(
                "c{} received {:?} after an invalid PROXY header",
                self.index, bytes
            ));
        }
        self.reader.push(&bytes);
        if let Err(error) = self.read(oracle)
            && !self.sent_garbage
        {
            oracle.violate(format!("c{}: {error}", self.index));
            self.end(oracle, "invalid response");
        }
        true
    }

    fn read(&mut self, oracle: &mut Oracle) -> Result<(), String> {
        loop {
            if let Some(tunnel) = &mut self.tunnel {
                let bytes = self.reader.take_rest();
                let bytes = tunnel.reader.take(&bytes, oracle.closes_tunnels)?;
                if !body::matches(tunnel.id, tunnel.back, &bytes) {
                    return Err(format!("the tunnel of r{} returned different bytes", tunnel.id));
                }
                tunnel.back += bytes.len() as u64;
                if tunnel.back > self.tunnel_sent {
                    return Err(format!(
                        "the tunnel of r{} returned more bytes than were sent",
                        tunnel.id
                    ));
                }
                return Ok(());
            }
            if self.answer.is_none() {
                let Some(head) = self.reader.next_head()? else { return Ok(()) };
                if self.sent_garbage {
                    self.reader.take_rest();
                    return Ok(());
                }
                self.begin_answer(head, oracle)?;
                continue;
            }
            match self.reader.next_piece()? {
                Piece::Need => return Ok(()),
                Piece::Data(data) => {
                    self.answer.as_mut().map_or(Ok(()), |answer| answer.read(&data))?
                }
                Piece::End(trailers) => {
                    if trailers.iter().any(|(name, _)| !name.eq_ignore_ascii_case("x-trailer")) {
                        return Err(format!("unexpected trailers {trailers:?}"));
                    }
                    self.end_answer(oracle)?;
                }
            }
        }
    }

    fn begin_answer(&mut self, head: Head, oracle: &mut Oracle) -> Result<(), String> {
        if self.closing {
            return Err(format!("{:?} after Connection: close", head.start));
        }
        if head.field("x-poison").is_some() {
            return Err(format!("a malformed response was relayed: {head:?}"));
        }
        let Some(&id) = self.waiting.front() else {
            if head.status() == 408 {
                // Sent while the first bytes of another request, or of an unfinished head, were in progress.
                self.closing = true;
                self.sent_garbage = true;
                return Ok(());
            }
            return Err(format!("a response without a request: {:?}", head.start));
        };
        let request = oracle.requests[&id].clone();
        oracle.trace(|| {
            format!(
                "c{} receives {:?} for r{id}, close: {}",
                self.index,
                head.start,
                head.announces_close()
            )
        });
        let status = head.status();
        if (100..200).contains(&status) {
            if request.old_version {
                return Err(format!("r{id} is HTTP/1.0 and got {status}"));
            }
            self.continued = true;
            if status == 101 {
                if request.expected != Expected::Tunnel {
                    return Err(format!("r{id} requested no upgrade and got 101"));
                }
                self.waiting.pop_front();
                self.tunnel = Some(Tunnel { id, back: 0, reader: TunnelReader::default() });
                note_answered(id, status, oracle);
                oracle.tunnels += 1;
            }
            return Ok(());
        }
        self.continued = true;
        self.closing = head.announces_close();
        // To an HTTP/1.0 client, a body of unknown length ends with the connection.
        self.may_close_early = self.closing && request.old_version;
        let framing = response_framing(&head, request.method == "HEAD")?;
        if framing == Framing::Chunked && request.old_version {
            return Err(format!("r{id} is HTTP/1.0 and got a chunked response"));
        }
        self.reader.begin_body(framing);
        self.answer = Some(Answer::new(id, head, oracle)?);
        Ok(())
    }

    /// The response looks complete: checks that it is.
    fn end_answer(&mut self, oracle: &mut Oracle) -> Result<(), String> {
        let Some(answer) = self.answer.take() else { return Ok(()) };
        self.waiting.pop_front();
        let outcome = answer.end(oracle);
        oracle.trace(|| format!("c{} has read the response to r{}", self.index, answer.id));
        outcome
    }

    /// Handles the end of the connection by the worker; returns whether there was one.
    fn look_for_end(&mut self, oracle: &mut Oracle) -> bool {
        let Some(peer) = &self.peer else { return false };
        if peer.was_reset() && !peer.has_bytes() {
            if self.answer.is_some() {
                oracle.answers_cut += 1;
            }
            self.end(oracle, "reset by the worker");
            return true;
        }
        if !peer.is_finished_by_other() {
            return false;
        }
        if self.tunnel.is_some() {
            self.end(oracle, "the tunnel ended");
            return true;
        }
        if self.answer.is_some() && self.reader.ends_by_close() && !peer.is_cut() {
            if let Err(error) = self.end_answer(oracle) {
                oracle.violate(format!("c{}: {error}", self.index));
            }
        } else if self.answer.is_some() || !(self.reader.rest().is_empty() || self.sent_garbage) {
            oracle.answers_cut += 1;
        }
        self.end(oracle, "closed by the worker");
        true
    }

    fn end(&mut self, oracle: &mut Oracle, why: &str) {
        oracle.trace(|| format!("c{} ends: {why}; unanswered: {:?}", self.index, self.waiting));
        if let (Some(tunnel), true) = (&self.tunnel, oracle.is_calm)
            && let Some(held) = tunnel.reader.held()
            && tunnel.back + held != self.tunnel_sent
        {
            let (id, sent, back) = (tunnel.id, self.tunnel_sent, tunnel.back);
            oracle.violate(format!("the tunnel of r{id} took {sent} bytes and returned {back}"));
        }
        // To make room, a worker closes only clients without a complete request.
        let under_way = |id: &u64| !oracle.requests[id].seen.is_empty();
        let may_lose =
            oracle.is_crowded && self.answer.is_none() && !self.waiting.iter().any(under_way);
        if oracle.is_calm && !self.waiting.is_empty() && !self.may_close_early && !may_lose {
            oracle.violate(format!(
                "c{} ends with unanswered requests ({why}): {:?}",
                self.index, self.waiting
            ));
        }
        self.ended = true;
        self.peer = None;
    }

    fn write(&mut self, oracle: &mut Oracle) -> bool {
        let mut moved = false;
        while oracle.now >= self.write_at && self.play(oracle) {
            moved = true;
        }
        moved
    }

    /// Plays the next step of the script; returns false if it cannot be done yet, or there is none.
    fn play(&mut self, oracle: &mut Oracle) -> bool {
        let Some(peer) = &self.peer else { return false };
        match self.ops.front_mut() {
            None => return false,
            Some(Op::Send { .. }) => return self.send_request(oracle),
            Some(Op::Tunnel { .. }) => return self.send_tunnel(oracle),
            Some(Op::AwaitContinue) => {
                let by = *self.continue_by.get_or_insert(oracle.now.after(Span::from_secs(1)));
                if !self.continued && oracle.now < by {
                    return false;
                }
                self.continue_by = None;
                self.pop_waited();
            }
            Some(Op::AwaitAnswers) if self.waiting.is_empty() => self.pop_waited(),
            Some(Op::AwaitAnswers) => return false,
            Some(Op::Pause(span)) => {
                self.write_at = oracle.now.after(*span);
                self.ops.pop_front();
            }
            Some(Op::Bare(bytes)) => {
                let sent = peer.send_bare(&bytes[..bytes.len().min(self.habits.piece_bytes)]);
                oracle.moved_bytes += sent as u64;
                bytes.drain(..sent);
                if bytes.is_empty() {
                    peer.release(&[]);
                    self.ops.pop_front();
                }
                if sent > 0 {
                    self.write_at = oracle.now.after(Span::from_nanos(1));
                }
                return sent > 0;
            }
            Some(Op::BadHeader(bytes)) => {
                self.sent_bad_header = true;
                oracle.refused += 1;
                peer.send_bare(bytes);
                self.ops.pop_front();
            }
            Some(Op::Garbage(bytes)) => {
                if peer.send(bytes) == 0 {
                    return false;
                }
                self.sent_garbage = true;
                self.ops.pop_front();
            }
            Some(Op::Finish) => {
                peer.finish();
                self.ops.pop_front();
            }
            Some(Op::Leave) => self.leave(oracle, "the client left"),
            Some(Op::Reset) => {
                peer.reset();
                self.leave(oracle, "the client reset");
            }
        }
        true
    }

    fn send_request(&mut self, oracle: &mut Oracle) -> bool {
        let Some(Op::Send { id, bytes }) = self.ops.front_mut() else { return false };
        if self.closing && id.is_some() {
            // The worker announced that it accepts no more requests.
            self.ops.clear();
            return false;
        }
        let Some(sent) = send_piece(self.peer.as_ref(), bytes, self.habits.piece_bytes) else {
            return false;
        };
        oracle.moved_bytes += sent as u64;
        let begun = id.take();
        if sent == bytes.len() {
            self.ops.pop_front();
        } else {
            bytes.drain(..sent);
        }
        if let Some(id) = begun {
            self.continued = false;
            self.waiting.push_back(id);
            oracle.trace(|| format!("c{} begins r{id}", self.index));
            if let Some(request) = oracle.requests.get_mut(&id) {
                request.begun = true;
            }
        }
        self.write_at = oracle.now.after(Span::from_nanos(1));
        true
    }

    fn send_tunnel(&mut self, oracle: &mut Oracle) -> bool {
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
        oracle.moved_bytes += sent as u64;
        if sent == bytes.len() {
            self.ops.pop_front();
        } else {
            bytes.drain(..sent);
        }
        self.write_at = oracle.now.after(Span::from_nanos(1));
        true
    }

    fn pop_waited(&mut self) {
        self.ops.pop_front();
        self.write_at = Moment::ZERO;
    }

    fn leave(&mut self, oracle: &mut Oracle, why: &str) {
        self.waiting.clear();
        self.end(oracle, why);
    }
}

/// Sends up to `most` of `bytes`; returns `None` if there is no room for any.
fn send_piece(peer: Option<&Line>, bytes: &[u8], most: usize) -> Option<usize> {
    let piece = &bytes[..bytes.len().min(most)];
    let sent = peer?.send(piece);
    (sent > 0 || piece.is_empty()).then_some(sent)
}
