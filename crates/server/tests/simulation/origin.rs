//! Origins: servers behind the proxy, well-behaved or not, as the seed has it.
//! In: requests. Out: answers that carry the request's id, the hash of its body, and a body of their own.
//! Never: an answer whose fields lie, unless a canary asked for that: what clients check is in them.
//! Limits: none; the run's own bound on steps ends what never ends.

use core::net::SocketAddr;
use std::collections::VecDeque;

use tidegate_base::prng::mix64;
use tidegate_base::{Moment, Prng, Span};
use tidegate_reactor::SimServer;
use tidegate_wire::proxy_protocol::{self, Endpoints};
use tidegate_wire::tls::Acceptor;

use crate::ledger::{Ledger, Whose};
use crate::line::Line;
use crate::peer::body::{self, Hash};
use crate::peer::reader::{Framing, Head, Piece, Reader, request_framing};
use crate::plan::{LISTEN, below_skewed};

/// How an origin behaves: chances in parts per million of the requests it gets.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    pub drop_at_accept: u32,
    pub early_answer: u32,
    pub interim: u32,
    pub delayed: u32,
    /// Ends the connection as soon as the request's head is there.
    pub abandon: u32,
    pub cut: u32,
    pub malformed: u32,
    pub silent: u32,
    pub not_reading: u32,
    pub close_after: u32,
    pub trailing_garbage: u32,
    pub dribble: u32,
    pub answer_bytes_max: u64,
    /// An idle connection is closed after so long.
    pub idle_close: Option<Span>,
    pub lie: Option<Lie>,
    /// Its connections begin with a PROXY header.
    pub told: bool,
    /// It receives the trailer fields of requests.
    pub trailers: bool,
    /// Its connections speak TLS.
    pub secured: bool,
    /// Ends TLS without saying so.
    pub rude: u32,
}

/// What a canary's origin does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Tells another hash of the request's body.
    Hash,
    /// Ends a counted body too early for what its fields say, but in order.
    Bytes,
    /// Answers with the id of another request.
    Id,
    /// Takes the client that a PROXY header names for another one.
    Name,
}

/// A server of a pool.
pub struct Origin {
    index: usize,
    server: SimServer,
    acceptor: Option<Acceptor>,
    prng: Prng,
    manner: Manner,
    conns: Vec<Conn>,
}

struct Conn {
    /// `None` once this end was closed or reset.
    peer: Option<Line>,
    reader: Reader,
    request: Option<Arrived>,
    out: VecDeque<Out>,
    out_at: Moment,
    reading: bool,
    idle_since: Moment,
    tunnel: bool,
    /// Something follows the answer: meanwhile the next request may come in good faith.
    garbled: bool,
    /// What came of a PROXY header that is awaited.
    header: Option<Vec<u8>>,
    /// What the header said.
    told: Option<Told>,
    requests: u64,
}

/// Whom a PROXY header named.
#[derive(Clone, Copy, Debug)]
enum Told {
    Nobody,
    Client(SocketAddr, SocketAddr),
}

impl Told {
    /// Whether that is whom the header for requests of `whose` must name.
    fn is_right(self, whose: &Whose) -> bool {
        match (self, whose.ip, whose.named) {
            (Self::Nobody, ip, _) => ip.is_none(),
            (Self::Client(from, to), Some(_), Some(named)) => {
                let canonical = |at: SocketAddr| (at.ip().to_canonical(), at.port());
                (canonical(from), canonical(to)) == (canonical(named.0), canonical(named.1))
            }
            (Self::Client(from, to), Some(ip), None) => from.ip() == ip && to == LISTEN.into(),
            (Self::Client(..), None, _) => false,
        }
    }
}

struct Arrived {
    head: Head,
    id: Option<u64>,
    sighting: Option<usize>,
    body_bytes: u64,
    hash: Hash,
    whole: bool,
    /// An answer was decided on.
    answered: bool,
}

enum Out {
    Bytes(Vec<u8>),
    Pause(Span),
    Close,
    Reset,
    /// The answer is complete: the next request may come.
    Answered,
}

impl Origin {
    /// An origin that speaks TLS, where there is an acceptor.
    pub fn new(
        index: usize,
        server: SimServer,
        seed: u64,
        manner: Manner,
        acceptor: Option<Acceptor>,
    ) -> Self {
        Self { index, server, acceptor, prng: Prng::new(seed), manner, conns: Vec::new() }
    }

    /// When, after `now`, this origin does something of its own accord.
    pub fn next_at(&self, now: Moment) -> Option<Moment> {
        self.conns
            .iter()
            .filter_map(|conn| {
                let waits = !conn.out.is_empty();
                let idle = self.manner.idle_close.filter(|_| conn.request.is_none());
                let idle = idle.map(|span| conn.idle_since.after(span));
                if waits { Some(conn.out_at) } else { idle }
            })
            .filter(|at| *at > now)
            .min()
    }

    /// Does what can be done now; whether anything was.
    pub fn step(&mut self, ledger: &mut Ledger) -> bool {
        let mut moved = false;
        while let Some(peer) = self.server.accept() {
            moved = true;
            if self.prng.chance(self.manner.drop_at_accept) {
                ledger.trace(|| format!("o{} drops a connection at once", self.index));
                if self.prng.chance(500_000) {
                    peer.reset();
                }
                continue;
            }
            let reading = !self.prng.chance(self.manner.not_reading);
            let is_rude = self.prng.chance(self.manner.rude);
            let session = self.acceptor.as_ref().map(|tls| tls.accept().expect("a session"));
            self.conns.push(Conn {
                peer: Some(Line::new(peer, session, self.manner.told, is_rude)),
                reader: Reader::default(),
                request: None,
                out: VecDeque::new(),
                out_at: Moment::ZERO,
                reading,
                idle_since: ledger.now,
                tunnel: false,
                garbled: false,
                header: self.manner.told.then(Vec::new),
                told: None,
                requests: 0,
            });
        }
        let mut conns = core::mem::take(&mut self.conns);
        for conn in &mut conns {
            moved |= self.step_conn(conn, ledger);
        }
        conns.retain(|conn| conn.peer.is_some());
        self.conns = conns;
        moved
    }

    fn step_conn(&mut self, conn: &mut Conn, ledger: &mut Ledger) -> bool {
        let mut moved = false;
        let Some(peer) = &conn.peer else { return false };
        if peer.was_reset() && !peer.has_bytes() {
            conn.peer = None;
            return true;
        }
        if conn.reading {
            peer.pump();
            let bytes = match conn.header {
                Some(_) => peer.receive_bare(),
                None => peer.receive(),
            };
            if let Some(fault) = peer.fault() {
                ledger.violate(format!("o{}: {}", self.index, fault.text()));
            }
            if !bytes.is_empty() {
                moved = true;
                if conn.tunnel {
                    conn.out.push_back(Out::Bytes(bytes));
                } else if conn.header.is_some() {
                    self.read_header(conn, &bytes, ledger);
                } else {
                    conn.reader.push(&bytes);
                    self.read(conn, ledger);
                }
            }
        }
        let finished = conn.peer.as_ref().is_some_and(Line::is_finished_by_other);
        let quiet = conn.out.is_empty();
        if finished && quiet && (conn.tunnel || conn.request.as_ref().is_none_or(|r| r.answered)) {
            conn.peer = None;
            return true;
        }
        if finished && quiet && conn.request.as_ref().is_some_and(|request| !request.whole) {
            conn.peer = None;
            return true;
        }
        if let Some(span) = self.manner.idle_close
            && conn.request.is_none()
            && quiet
            && conn.reader.is_between()
            && ledger.now >= conn.idle_since.after(span)
        {
            ledger.trace(|| format!("o{} closes an idle connection", self.index));
            conn.peer = None;
            return true;
        }
        moved | self.write(conn, ledger)
    }

    fn read_header(&mut self, conn: &mut Conn, bytes: &[u8], ledger: &mut Ledger) {
        let Some(mut gathered) = conn.header.take() else { return };
        gathered.extend_from_slice(bytes);
        match proxy_protocol::decode(&gathered) {
            Ok(None) => conn.header = Some(gathered),
            Ok(Some((header, header_bytes))) => {
                conn.told = match header.endpoints {
                    Endpoints::Ip { source, destination, .. } => Some(match self.manner.lie {
                        Some(Lie::Name) => Told::Client(destination, source),
                        _ => Told::Client(source, destination),
                    }),
                    Endpoints::Unknown => Some(Told::Nobody),
                    other => {
                        ledger.violate(format!("o{} was told of {other:?}", self.index));
                        None
                    }
                };
                let rest = &gathered[header_bytes..];
                let Some(peer) = &conn.peer else { return };
                if self.acceptor.is_some() {
                    peer.release(rest);
                    conn.reader.push(&peer.receive());
                } else {
                    conn.reader.push(rest);
                }
                self.read(conn, ledger);
            }
            Err(fault) => {
                ledger.violate(format!("o{}: {}", self.index, fault.text()));
                conn.peer = None;
            }
        }
    }

    fn read(&mut self, conn: &mut Conn, ledger: &mut Ledger) {
        while conn.peer.is_some() {
            if conn.tunnel {
                let early = conn.reader.take_rest();
                if !early.is_empty() {
                    conn.out.push_back(Out::Bytes(early));
                }
                return;
            }
            match &mut conn.request {
                None => match conn.reader.next_head() {
                    Ok(None) => return,
                    Ok(Some(head)) => self.begin(conn, head, ledger),
                    Err(error) => {
                        ledger.violate(format!("o{} got {error}", self.index));
                        conn.peer = None;
                        return;
                    }
                },
                Some(request) if request.whole => {
                    if request.answered && conn.out.is_empty() {
                        conn.request = None;
                        conn.idle_since = ledger.now;
                        continue;
                    }
                    if !conn.reader.rest().is_empty() && !conn.garbled {
                        let text =
                            format!("o{}: bytes after a request not yet answered", self.index);
                        ledger.violate(text);
                        conn.reader.take_rest();
                    }
                    return;
                }
                Some(request) => match conn.reader.next_piece() {
                    Ok(Piece::Need) => return,
                    Ok(Piece::Data(data)) => request.note_data(&data, self.index, ledger),
                    Ok(Piece::End(trailers)) => {
                        if !self.manner.trailers && !trailers.is_empty() {
                            ledger.violate(format!("o{} got trailers {trailers:?}", self.index));
                        }
                        request.note_end(&trailers, ledger);
                        if !request.answered {
                            self.answer(conn, ledger);
                        }
                    }
                    Err(error) => {
                        ledger.violate(format!("o{} got {error}", self.index));
                        conn.peer = None;
                        return;
                    }
                },
            }
        }
    }

    fn begin(&mut self, conn: &mut Conn, head: Head, ledger: &mut Ledger) {
        let id = head.number("x-id");
        ledger.trace(|| format!("o{} gets {:?} (r{id:?})", self.index, head.start));
        let sighting = ledger.note_arrival(self.index, id, &head.start);
        if head.count("host") != 1 {
            ledger.violate(format!("o{} got {} Host fields", self.index, head.count("host")));
        }
        if let Some(whose) = id.and_then(|id| ledger.requests.get(&id)).map(|r| r.whose.clone()) {
            conn.requests += 1;
            self.judge(conn, &head, &whose, ledger);
        }
        match request_framing(&head) {
            Ok(framing) => conn.reader.begin_body(framing),
            Err(error) => {
                ledger.violate(format!("o{}: {error}", self.index));
                conn.reader.begin_body(Framing::None);
            }
        }
        let hash = Hash::new();
        conn.request = Some(Arrived {
            head,
            id,
            sighting,
            body_bytes: 0,
            hash,
            whole: false,
            answered: false,
        });
        if self.prng.chance(self.manner.abandon) {
            ledger.trace(|| format!("o{} abandons r{id:?}", self.index));
            let by_reset = self.prng.chance(500_000);
            if let Some(peer) = conn.peer.take_if(|_| by_reset) {
                peer.reset();
            }
            conn.peer = None;
        } else if self.prng.chance(self.manner.early_answer) {
            self.answer(conn, ledger);
        }
    }

    /// Whether the request came with the right name, on a connection of that name.
    fn judge(&self, conn: &Conn, head: &Head, whose: &Whose, ledger: &mut Ledger) {
        let name = whose.ip.map(|ip| ip.to_string());
        if head.field("x-forwarded-for").map(str::to_owned) != name {
            ledger.violate(format!("o{}: {whose:?} goes by another name: {head:?}", self.index));
        }
        let Some(told) = conn.told else { return };
        if !told.is_right(whose) {
            ledger.violate(format!("o{}: {told:?} got a request of {whose:?}", self.index));
        }
        ledger.told_again += u64::from(conn.requests > 1 && whose.named.is_some());
    }

    /// Decides on the answer and how it is to go wrong.
    fn answer(&mut self, conn: &mut Conn, ledger: &mut Ledger) {
        let Some(request) = &mut conn.request else { return };
        request.answered = true;
        if self.prng.chance(self.manner.silent) {
            ledger.trace(|| format!("o{} will not answer r{:?}", self.index, request.id));
            conn.out.push_back(Out::Pause(Span::from_secs(100_000)));
            return;
        }
        if self.prng.chance(self.manner.delayed) {
            conn.out.push_back(Out::Pause(Span::from_millis(1 + self.prng.below(4000))));
        }
        if request.head.field("upgrade").is_some() && request.whole {
            self.accept_tunnel(conn);
            return;
        }
        while self.prng.chance(self.manner.interim) {
            let interim: &[u8] = if self.prng.chance(500_000) {
                b"HTTP/1.1 100 Continue\r\n\r\n"
            } else {
                b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n"
            };
            conn.out.push_back(Out::Bytes(interim.to_vec()));
        }
        let made = self.make_answer(request);
        self.send_answer(conn, made, ledger);
    }

    fn accept_tunnel(&mut self, conn: &mut Conn) {
        let Some(request) = &conn.request else { return };
        let id = request.id.unwrap_or(0);
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nx-id: {id}\r\nupgrade: echo\r\nconnection: upgrade\r\n\r\n"
        );
        conn.out.push_back(Out::Bytes(head.into_bytes()));
        conn.tunnel = true;
    }

    fn make_answer(&mut self, request: &Arrived) -> Made {
        let id = request.id.unwrap_or(0);
        let statuses = [200, 200, 200, 200, 404, 500, 204, 304];
        let status = statuses[self.prng.below(statuses.len() as u64) as usize];
        let bodyless = status == 204 || status == 304;
        let count = match bodyless {
            true => 0,
            false => below_skewed(&mut self.prng, self.manner.answer_bytes_max, 12),
        };
        let to_head = request.head.start.starts_with("HEAD ");
        let seed = mix64(id ^ ((self.index as u64) << 40));
        let framing = match self.prng.below(4) {
            _ if bodyless => Framing::None,
            0 => Framing::Chunked,
            1 => Framing::UntilClose,
            _ => Framing::Length(count),
        };
        let close = framing == Framing::UntilClose || self.prng.chance(self.manner.close_after);
        let told_id = if self.manner.lie == Some(Lie::Id) { id + 1 } else { id };
        let mut head =
            format!("HTTP/1.1 {status} Whatever\r\nx-id: {told_id}\r\nx-body-seed: {seed}\r\n");
        if request.whole {
            let lie = u64::from(self.manner.lie == Some(Lie::Hash));
            head.push_str(&format!("x-request-hash: {}\r\n", request.hash.value() ^ lie));
        }
        let lie = u64::from(self.manner.lie == Some(Lie::Bytes));
        head.push_str(&format!("x-answer-bytes: {}\r\n", count + lie));
        match framing {
            Framing::Length(count) => head.push_str(&format!("content-length: {count}\r\n")),
            Framing::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
            Framing::UntilClose | Framing::None => {}
        }
        if close {
            head.push_str("connection: close\r\n");
        }
        head.push_str("\r\n");
        let head_bytes = head.len();
        let mut bytes = head.into_bytes();
        if !to_head && !bodyless {
            self.frame_body(&mut bytes, framing, seed, count);
        }
        Made { bytes, head_bytes, framing, close }
    }

    fn frame_body(&mut self, bytes: &mut Vec<u8>, framing: Framing, seed: u64, count: u64) {
        if framing != Framing::Chunked {
            bytes.extend(body::make(seed, 0, count as usize));
            return;
        }
        let mut at = 0;
        while at < count {
            let size = (1 + below_skewed(&mut self.prng, 1 << 14, 14)).min(count - at);
            bytes.extend(format!("{size:x}\r\n").into_bytes());
            bytes.extend(body::make(seed, at, size as usize));
            bytes.extend(b"\r\n");
            at += size;
        }
        let trailer = if self.prng.chance(300_000) { "x-trailer: t\r\n" } else { "" };
        bytes.extend(format!("0\r\n{trailer}\r\n").into_bytes());
    }

    /// Puts the answer into the output, whole or cut or spoiled.
    fn send_answer(&mut self, conn: &mut Conn, made: Made, ledger: &mut Ledger) {
        let Made { mut bytes, head_bytes, framing, close } = made;
        let id = conn.request.as_ref().and_then(|request| request.id);
        if self.prng.chance(self.manner.malformed) {
            ledger.trace(|| format!("o{} answers r{id:?} malformed", self.index));
            self.spoil(&mut bytes, head_bytes, framing);
            self.push_pieces(conn, bytes);
            conn.out.push_back(Out::Close);
            return;
        }
        if self.prng.chance(self.manner.cut) {
            // An answer that ends with the connection can only be cut by a reset.
            let at = self.prng.below(bytes.len() as u64 + 1) as usize;
            ledger.trace(|| format!("o{} cuts its answer to r{id:?} at {at}", self.index));
            let whole = at == bytes.len();
            bytes.truncate(at);
            self.push_pieces(conn, bytes);
            let by_reset = framing == Framing::UntilClose || self.prng.chance(500_000);
            conn.out.push_back(if by_reset && !whole { Out::Reset } else { Out::Close });
            return;
        }
        let is_rude = conn.peer.as_ref().is_some_and(Line::is_rude);
        if is_rude && framing == Framing::UntilClose && self.prng.chance(500_000) {
            // Or by leaving TLS without a word.
            let left = self.prng.below((bytes.len() - head_bytes) as u64 + 1) as usize;
            ledger.trace(|| format!("o{} leaves in its answer to r{id:?}", self.index));
            bytes.truncate(head_bytes + left);
            self.push_pieces(conn, bytes);
            conn.out.push_back(Out::Close);
            return;
        }
        if framing != Framing::UntilClose && self.prng.chance(self.manner.trailing_garbage) {
            conn.garbled = true;
            bytes.extend(b"\0garbage\r\n\r\n");
        }
        ledger.trace(|| format!("o{} answers r{id:?} with {} bytes", self.index, bytes.len()));
        self.push_pieces(conn, bytes);
        let silently = self.prng.chance(self.manner.close_after / 2);
        conn.out.push_back(if close || silently { Out::Close } else { Out::Answered });
    }

    fn spoil(&mut self, bytes: &mut Vec<u8>, head_bytes: usize, framing: Framing) {
        let late = framing == Framing::Chunked && bytes.len() > head_bytes;
        if late && self.prng.chance(500_000) {
            bytes.truncate(head_bytes);
            bytes.extend(b"zz\r\nnot a chunk\r\n0\r\n\r\n");
            return;
        }
        let poisons: [&[u8]; 5] = [
            b"x-poison: 1\r\ncontent-length: 3\r\ncontent-length: 4\r\n",
            b"x-poison: 1\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n",
            b"x-poison : 1\r\n",
            b"x-poison: a\0b\r\n",
            b"x-poison: 1\r\ntransfer-encoding: gzip\r\n",
        ];
        let poison = poisons[self.prng.below(poisons.len() as u64) as usize];
        let at = bytes.windows(2).position(|two| two == b"\r\n").map_or(0, |at| at + 2);
        bytes.splice(at..at, poison.iter().copied());
    }

    fn push_pieces(&mut self, conn: &mut Conn, bytes: Vec<u8>) {
        if !self.prng.chance(self.manner.dribble) {
            conn.out.push_back(Out::Bytes(bytes));
            return;
        }
        let mut rest = bytes.as_slice();
        let size_max = 1 + (rest.len() / 20).max(1) as u64;
        while !rest.is_empty() {
            let size = (1 + self.prng.below(size_max) as usize).min(rest.len());
            conn.out.push_back(Out::Bytes(rest[..size].to_vec()));
            rest = &rest[size..];
            if !rest.is_empty() {
                conn.out.push_back(Out::Pause(Span::from_millis(self.prng.below(40))));
            }
        }
    }

    fn write(&mut self, conn: &mut Conn, ledger: &mut Ledger) -> bool {
        let mut moved = false;
        while let Some(peer) = &conn.peer {
            if conn.out_at > ledger.now {
                return moved;
            }
            conn.out_at = Moment::ZERO;
            match conn.out.pop_front() {
                None => {
                    if conn.tunnel && peer.is_finished_by_other() {
                        conn.peer = None;
                        return true;
                    }
                    return moved;
                }
                Some(Out::Pause(span)) => conn.out_at = ledger.now.after(span),
                Some(Out::Bytes(mut bytes)) => {
                    let sent = peer.send(&bytes);
                    if sent < bytes.len() {
                        bytes.drain(..sent);
                        conn.out.push_front(Out::Bytes(bytes));
                        return moved | (sent > 0);
                    }
                }
                Some(Out::Close) => conn.peer = None,
                Some(Out::Reset) => {
                    peer.reset();
                    conn.peer = None;
                }
                Some(Out::Answered) => {
                    conn.idle_since = ledger.now;
                    self.read(conn, ledger);
                }
            }
            moved = true;
        }
        moved
    }
}

/// An answer's bytes and what is to be known of them.
struct Made {
    bytes: Vec<u8>,
    head_bytes: usize,
    framing: Framing,
    close: bool,
}

impl Arrived {
    fn note_data(&mut self, data: &[u8], origin: usize, ledger: &mut Ledger) {
        let (Some(id), Some(sighting)) = (self.id, self.sighting) else { return };
        if !body::matches(id, self.body_bytes, data) {
            let at = self.body_bytes;
            ledger.violate(format!(
                "o{origin}: the body of r{id} is not what was sent, from {at} on"
            ));
        }
        self.body_bytes += data.len() as u64;
        self.hash.add(data);
        if let Some(request) = ledger.requests.get_mut(&id) {
            request.seen[sighting].body_bytes = self.body_bytes;
        }
    }

    fn note_end(&mut self, trailers: &[(String, String)], ledger: &mut Ledger) {
        self.whole = true;
        let (Some(id), Some(sighting)) = (self.id, self.sighting) else { return };
        ledger.trace(|| format!("r{id} is whole at its origin"));
        ledger.note_whole(id, sighting, self.hash.value());
        for (name, value) in trailers {
            if !name.eq_ignore_ascii_case("x-trailer") || *value != id.to_string() {
                ledger.violate(format!("r{id} has the trailer {name}: {value}"));
            }
        }
    }
}
