//! Simulated origins: servers behind the workers, well-behaved or not, as the plan decides.
//! In: requests. Out: responses that carry the request's id, the hash of its body, and a body of their own.
//! Never: states wrong values in response fields, which clients check, unless a canary wants a `InjectedFault`.
//! Limits: none; the run's `Progress` ends an endless exchange.

use core::net::SocketAddr;
use std::collections::VecDeque;

use tidegate_base::prng::mix64;
use tidegate_base::{Moment, Prng, Span};
use tidegate_reactor::SimServer;
use tidegate_wire::proxy_protocol::{self, Endpoints};
use tidegate_wire::tls::Acceptor;
use tidegate_wire::websocket::accept_key_of;

use crate::asked;
use crate::http2_origin::Http2Behaviour;
use crate::line::Line;
use crate::oracle::{ClientIdentity, Oracle};
use crate::peer::body::{self, Hash};
use crate::peer::reader::{Framing, Head, Piece, Reader, request_framing};
use crate::plan::{LISTEN, below_skewed};

/// How an origin behaves. The numbers are chances in parts per million, mostly per request.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// Closes or resets a connection right after accepting it.
    pub drop_at_accept: u32,
    /// Answers before the request is complete.
    pub early_answer: u32,
    /// Sends an interim response first.
    pub interim: u32,
    /// Waits before the response.
    pub delayed: u32,
    /// Ends the connection as soon as the request's head has arrived.
    pub abandon: u32,
    /// Ends the connection in the middle of a response.
    pub cut: u32,
    /// Sends a malformed response.
    pub malformed: u32,
    /// Never answers.
    pub silent: u32,
    /// Never reads from a connection.
    pub not_reading: u32,
    /// Closes the connection after a response.
    pub close_after: u32,
    /// Sends garbage after a response.
    pub trailing_garbage: u32,
    /// Sends a response in small pieces with pauses.
    pub dribble: u32,
    pub answer_bytes_max: u64,
    /// Closes a connection that was idle for this long.
    pub idle_close: Option<Span>,
    pub injected_fault: Option<InjectedFault>,
    /// Its connections begin with a PROXY header.
    pub expects_header: bool,
    /// It receives the trailer fields of requests.
    pub trailers: bool,
    /// Its connections use TLS.
    pub secured: bool,
    /// Ends TLS without close_notify.
    pub skip_close_notify: u32,
    /// Sends a response that no request caused, on a connection that is idle.
    pub unsolicited: u32,
    /// It speaks HTTP/2.
    pub http2: Option<Http2Behaviour>,
}

/// What a canary's origins do wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedFault {
    /// States a wrong hash of the request's body.
    Hash,
    /// Sends fewer body bytes than its field states, but ends the response cleanly.
    Bytes,
    /// States the id of another request.
    Id,
    /// Swaps source and destination of the PROXY header that it receives.
    Name,
    /// None; the worker counts a bug.
    Bug,
    /// Never sends a response, and the timeout of the pool is too long to end the request.
    Silence,
}

/// A server of a pool.
pub struct Origin {
    /// Names the origin in messages, and seeds its bodies.
    index: usize,
    server: SimServer,
    /// The origin uses TLS if it has an acceptor.
    acceptor: Option<Acceptor>,
    prng: Prng,
    /// For unsolicited responses only, so that the other choices of a seed keep their meaning.
    unsolicited_prng: Prng,
    behaviour: Behaviour,
    conns: Vec<Conn>,
}

/// A connection from a worker.
struct Conn {
    /// `None` once this end was closed or reset.
    peer: Option<Line>,
    reader: Reader,
    /// The request being received or answered.
    request: Option<Arrived>,
    /// What is left to do for the response, in order.
    out: VecDeque<Out>,
    /// Nothing more of `out` is sent before this moment.
    out_at: Moment,
    /// The origin reads from this connection.
    reading: bool,
    /// When the last exchange ended, or the connection was accepted.
    idle_since: Moment,
    /// The upgrade was accepted: bytes are echoed.
    tunnel: bool,
    /// Garbage follows the response. The next request may arrive before the worker sees it.
    garbled: bool,
    /// The bytes so far of a PROXY header that is still incomplete.
    header: Option<Vec<u8>>,
    /// The client that the PROXY header named.
    received_header: Option<ReceivedHeader>,
    /// Requests so far.
    requests: u64,
    /// When an unsolicited response is sent, if the connection is idle then; `NEVER`: when a worker is about to
    /// handle other bytes, perhaps a request for this connection.
    unsolicited_at: Option<Moment>,
    /// An unsolicited response, or a part of one, has arrived at the worker. No request was in progress then.
    is_tainted: bool,
}

/// The client that a received PROXY header names.
#[derive(Clone, Copy, Debug)]
enum ReceivedHeader {
    /// A client without an address.
    WithoutAddress,
    /// Source and destination.
    Addresses(SocketAddr, SocketAddr),
}

impl ReceivedHeader {
    /// Whether this is the header that requests of client `identity` must come with.
    fn is_right_for(self, identity: &ClientIdentity) -> bool {
        match (self, identity.ip, identity.header) {
            (Self::WithoutAddress, ip, _) => ip.is_none(),
            (Self::Addresses(from, to), Some(_), Some(named)) => {
                let canonical = |at: SocketAddr| (at.ip().to_canonical(), at.port());
                (canonical(from), canonical(to)) == (canonical(named.0), canonical(named.1))
            }
            (Self::Addresses(from, to), Some(ip), None) => from.ip() == ip && to == LISTEN.into(),
            (Self::Addresses(..), None, _) => false,
        }
    }
}

/// A request that has begun to arrive.
struct Arrived {
    head: Head,
    id: Option<u64>,
    /// Its index in the oracle's list of sightings.
    sighting: Option<usize>,
    /// Body bytes received so far.
    body_bytes: u64,
    hash: Hash,
    /// The request is complete.
    whole: bool,
    /// The response has been decided.
    answered: bool,
}

/// One step of sending a response.
enum Out {
    Bytes(Vec<u8>),
    Pause(Span),
    Close,
    Reset,
    /// The response is complete: the next request may come.
    Answered,
}

impl Origin {
    /// An origin; it uses TLS if there is an acceptor.
    pub fn new(
        index: usize,
        server: SimServer,
        seed: u64,
        behaviour: Behaviour,
        acceptor: Option<Acceptor>,
    ) -> Self {
        Self {
            index,
            server,
            acceptor,
            prng: Prng::new(seed),
            unsolicited_prng: Prng::new(mix64(seed ^ 0x756e_736f)),
            behaviour,
            conns: Vec::new(),
        }
    }

    /// The next time after `now` at which this origin acts without receiving anything.
    pub fn next_at(&self, now: Moment) -> Option<Moment> {
        self.conns
            .iter()
            .filter_map(|conn| {
                let waits = !conn.out.is_empty();
                let idle = self.behaviour.idle_close.filter(|_| conn.request.is_none());
                let idle = idle.map(|span| conn.idle_since.after(span));
                let unsolicited = conn.unsolicited_at.filter(|at| *at != Moment::NEVER);
                let unsolicited = unsolicited.filter(|_| conn.request.is_none());
                let idle = idle.into_iter().chain(unsolicited).min();
                if waits { Some(conn.out_at) } else { idle }
            })
            .filter(|at| *at > now)
            .min()
    }

    /// Does everything possible now; returns whether anything was done.
    pub fn step(&mut self, oracle: &mut Oracle) -> bool {
        let mut moved = false;
        while let Some(peer) = self.server.accept() {
            moved = true;
            if self.prng.chance(self.behaviour.drop_at_accept) {
                oracle.trace(|| format!("o{} drops a connection at once", self.index));
                if self.prng.chance(500_000) {
                    peer.reset();
                }
                continue;
            }
            let reading = !self.prng.chance(self.behaviour.not_reading);
            let skips_close_notify = self.prng.chance(self.behaviour.skip_close_notify);
            let session = self.acceptor.as_ref().map(|tls| tls.accept().expect("a session"));
            self.conns.push(Conn {
                peer: Some(Line::new(
                    peer,
                    session,
                    self.behaviour.expects_header,
                    skips_close_notify,
                )),
                reader: Reader::default(),
                request: None,
                out: VecDeque::new(),
                out_at: Moment::ZERO,
                reading,
                idle_since: oracle.now,
                tunnel: false,
                garbled: false,
                header: self.behaviour.expects_header.then(Vec::new),
                received_header: None,
                requests: 0,
                unsolicited_at: None,
                is_tainted: false,
            });
        }
        let mut conns = core::mem::take(&mut self.conns);
        for conn in &mut conns {
            moved |= self.step_conn(conn, oracle);
        }
        conns.retain(|conn| conn.peer.is_some());
        self.conns = conns;
        moved
    }

    fn step_conn(&mut self, conn: &mut Conn, oracle: &mut Oracle) -> bool {
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
                oracle.violate(format!("o{}: {}", self.index, fault.text()));
            }
            if !bytes.is_empty() {
                moved = true;
                if conn.header.is_none() {
                    oracle.moved_bytes += bytes.len() as u64;
                }
                if conn.tunnel {
                    conn.out.push_back(Out::Bytes(bytes));
                } else if conn.header.is_some() {
                    self.read_header(conn, &bytes, oracle);
                } else {
                    conn.reader.push(&bytes);
                    self.read(conn, oracle);
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
        if conn.unsolicited_at.is_some_and(|at| match at {
            Moment::NEVER => oracle.workers_have_edges,
            at => oracle.now >= at,
        }) && conn.request.is_none()
            && quiet
            // A pause without end is in place of a response, so a request is in progress.
            && oracle.now >= conn.out_at
            && !finished
            && conn.reader.is_between()
        {
            moved |= self.intrude(conn, oracle);
        }
        if let Some(span) = self.behaviour.idle_close
            && conn.request.is_none()
            && quiet
            && conn.reader.is_between()
            && oracle.now >= conn.idle_since.after(span)
        {
            oracle.trace(|| format!("o{} closes an idle connection", self.index));
            conn.peer = None;
            return true;
        }
        moved | self.write(conn, oracle)
    }

    /// Sends an unsolicited response: the whole, or a part of it that arrives before the rest.
    fn intrude(&mut self, conn: &mut Conn, oracle: &mut Oracle) -> bool {
        conn.unsolicited_at = None;
        let whole = self.unsolicited_prng.chance(500_000);
        let count = 1 + self.unsolicited_prng.below(UNSOLICITED.len() as u64 - 1) as usize;
        let count = if whole { usize::MAX } else { count };
        let Some(peer) = &conn.peer else { return false };
        let Some(rest) = peer.send_at_once(UNSOLICITED, count) else { return false };
        oracle.trace(|| format!("o{} sends an unsolicited response", self.index));
        oracle.intrusions += 1;
        conn.is_tainted = true;
        peer.send_bare(&rest);
        true
    }

    fn read_header(&mut self, conn: &mut Conn, bytes: &[u8], oracle: &mut Oracle) {
        let Some(mut gathered) = conn.header.take() else { return };
        gathered.extend_from_slice(bytes);
        match proxy_protocol::decode(&gathered) {
            Ok(None) => conn.header = Some(gathered),
            Ok(Some((header, header_bytes))) => {
                conn.received_header = match header.endpoints {
                    Endpoints::Ip { source, destination, .. } => {
                        Some(match self.behaviour.injected_fault {
                            Some(InjectedFault::Name) => {
                                ReceivedHeader::Addresses(destination, source)
                            }
                            _ => ReceivedHeader::Addresses(source, destination),
                        })
                    }
                    Endpoints::Unknown => Some(ReceivedHeader::WithoutAddress),
                    other => {
                        oracle.violate(format!("o{} received a header with {other:?}", self.index));
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
                self.read(conn, oracle);
            }
            Err(fault) => {
                oracle.violate(format!("o{}: {}", self.index, fault.text()));
                conn.peer = None;
            }
        }
    }

    fn read(&mut self, conn: &mut Conn, oracle: &mut Oracle) {
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
                    Ok(Some(head)) => self.begin(conn, head, oracle),
                    Err(error) => {
                        oracle.violate(format!("o{} got {error}", self.index));
                        conn.peer = None;
                        return;
                    }
                },
                Some(request) if request.whole => {
                    if request.answered && conn.out.is_empty() {
                        conn.request = None;
                        conn.idle_since = oracle.now;
                        continue;
                    }
                    if !conn.reader.rest().is_empty() && !conn.garbled {
                        let text = format!(
                            "o{}: bytes after a request that is not answered yet",
                            self.index
                        );
                        oracle.violate(text);
                        conn.reader.take_rest();
                    }
                    return;
                }
                Some(request) => match conn.reader.next_piece() {
                    Ok(Piece::Need) => return,
                    Ok(Piece::Data(data)) => request.note_data(&data, self.index, oracle),
                    Ok(Piece::End(trailers)) => {
                        if !self.behaviour.trailers && !trailers.is_empty() {
                            oracle.violate(format!("o{} got trailers {trailers:?}", self.index));
                        }
                        request.note_end(&trailers, oracle);
                        if !request.answered {
                            self.answer(conn, oracle);
                        }
                    }
                    Err(error) => {
                        oracle.violate(format!("o{} got {error}", self.index));
                        conn.peer = None;
                        return;
                    }
                },
            }
        }
    }

    fn begin(&mut self, conn: &mut Conn, head: Head, oracle: &mut Oracle) {
        let id = head.number("x-id");
        oracle.trace(|| format!("o{} receives {:?} (r{id:?})", self.index, head.start));
        let sighting = oracle.note_arrival(self.index, id, &head.start);
        if conn.is_tainted {
            // When the worker sent the request, the unsolicited bytes had arrived.
            let text = format!("o{}: r{id:?} was sent after an unsolicited response", self.index);
            oracle.violate(text);
        }
        if head.count("host") != 1 {
            oracle.violate(format!("o{} got {} Host fields", self.index, head.count("host")));
        }
        if let Some(identity) =
            id.and_then(|id| oracle.requests.get(&id)).map(|r| r.identity.clone())
        {
            conn.requests += 1;
            self.check_identity(conn, &head, &identity, oracle);
        }
        self.check_edits(&head, id, oracle);
        match request_framing(&head) {
            Ok(framing) => conn.reader.begin_body(framing),
            Err(error) => {
                oracle.violate(format!("o{}: {error}", self.index));
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
        if self.prng.chance(self.behaviour.abandon) {
            oracle.trace(|| format!("o{} abandons r{id:?}", self.index));
            let by_reset = self.prng.chance(500_000);
            if let Some(peer) = conn.peer.take_if(|_| by_reset) {
                peer.reset();
            }
            conn.peer = None;
        } else if self.prng.chance(self.behaviour.early_answer) {
            self.answer(conn, oracle);
        }
    }

    /// Checks the fields that a route has written from the request, and the path that it has rewritten.
    fn check_edits(&self, head: &Head, id: Option<u64>, oracle: &mut Oracle) {
        let Some(request) = id.and_then(|id| oracle.requests.get(&id)) else { return };
        let path = request.path.split('?').next().unwrap_or_default();
        let granted = oracle.asks.then_some(asked::COPIED.1);
        if path.starts_with("/p1/") && head.field(asked::COPIED.0) != granted {
            let text = format!("o{}: granted or not: {request:?}: {head:?}", self.index);
            return oracle.violate(text);
        }
        if !path.starts_with("/p2/") {
            return;
        }
        let client = request.identity.ip.map(|ip| ip.to_string());
        let is_right = head.field("x-path") == Some(path)
            && head.field("x-client").map(str::to_owned) == client
            && head.start.split(' ').nth(1) == Some(request.path.as_str());
        if !is_right {
            let text = format!("o{}: wrong edits for {request:?}: {head:?}", self.index);
            oracle.violate(text);
        }
    }

    /// Checks that the request names the right client, and that the connection's PROXY header does too.
    fn check_identity(
        &self,
        conn: &Conn,
        head: &Head,
        identity: &ClientIdentity,
        oracle: &mut Oracle,
    ) {
        let name = identity.ip.map(|ip| ip.to_string());
        if head.field("x-forwarded-for").map(str::to_owned) != name {
            oracle.violate(format!(
                "o{}: wrong X-Forwarded-For for {identity:?}: {head:?}",
                self.index
            ));
        }
        let Some(header) = conn.received_header else { return };
        if !header.is_right_for(identity) {
            oracle.violate(format!(
                "o{}: a connection with {header:?} carried a request of {identity:?}",
                self.index
            ));
        }
        oracle.header_reuses += u64::from(conn.requests > 1 && identity.header.is_some());
    }

    /// Decides the response, and what goes wrong with it.
    fn answer(&mut self, conn: &mut Conn, oracle: &mut Oracle) {
        let Some(request) = &mut conn.request else { return };
        request.answered = true;
        let silent = self.prng.chance(self.behaviour.silent);
        if silent || self.behaviour.injected_fault == Some(InjectedFault::Silence) {
            oracle.trace(|| format!("o{} will not answer r{:?}", self.index, request.id));
            conn.out.push_back(Out::Pause(Span::from_secs(100_000)));
            return;
        }
        if self.prng.chance(self.behaviour.delayed) {
            conn.out.push_back(Out::Pause(Span::from_millis(1 + self.prng.below(4000))));
        }
        if request.head.field("upgrade").is_some() && request.whole {
            self.accept_tunnel(conn);
            return;
        }
        while self.prng.chance(self.behaviour.interim) {
            let interim: &[u8] = if self.prng.chance(500_000) {
                b"HTTP/1.1 100 Continue\r\n\r\n"
            } else {
                b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n"
            };
            conn.out.push_back(Out::Bytes(interim.to_vec()));
        }
        let made = self.make_answer(request);
        self.send_answer(conn, made, oracle);
    }

    fn accept_tunnel(&mut self, conn: &mut Conn) {
        let Some(request) = &conn.request else { return };
        let id = request.id.unwrap_or(0);
        let key = request.head.field("sec-websocket-key");
        let protocol = match key.and_then(|key| accept_key_of(key.as_bytes())) {
            Some(accepted) => {
                format!("websocket\r\nsec-websocket-accept: {}", String::from_utf8_lossy(&accepted))
            }
            None => "echo".to_owned(),
        };
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nx-id: {id}\r\nupgrade: {protocol}\r\n\
             connection: upgrade\r\n\r\n"
        );
        conn.out.push_back(Out::Bytes(head.into_bytes()));
        conn.tunnel = true;
    }

    fn make_answer(&mut self, request: &Arrived) -> FramedAnswer {
        let id = request.id.unwrap_or(0);
        let statuses = [200, 200, 200, 200, 404, 500, 204, 304];
        let status = statuses[self.prng.below(statuses.len() as u64) as usize];
        let bodyless = status == 204 || status == 304;
        let count = match bodyless {
            true => 0,
            false => below_skewed(&mut self.prng, self.behaviour.answer_bytes_max, 12),
        };
        let to_head = request.head.start.starts_with("HEAD ");
        let seed = mix64(id ^ ((self.index as u64) << 40));
        let framing = match self.prng.below(4) {
            _ if bodyless => Framing::None,
            0 => Framing::Chunked,
            1 => Framing::UntilClose,
            _ => Framing::Length(count),
        };
        let close = framing == Framing::UntilClose || self.prng.chance(self.behaviour.close_after);
        let stated_id =
            if self.behaviour.injected_fault == Some(InjectedFault::Id) { id + 1 } else { id };
        let mut head =
            format!("HTTP/1.1 {status} Whatever\r\nx-id: {stated_id}\r\nx-body-seed: {seed}\r\n");
        if request.whole {
            let lie = u64::from(self.behaviour.injected_fault == Some(InjectedFault::Hash));
            head.push_str(&format!("x-request-hash: {}\r\n", request.hash.value() ^ lie));
        }
        let lie = u64::from(self.behaviour.injected_fault == Some(InjectedFault::Bytes));
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
        FramedAnswer { bytes, head_bytes, framing, close }
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

    /// Queues the response: complete, cut off, or malformed.
    fn send_answer(&mut self, conn: &mut Conn, made: FramedAnswer, oracle: &mut Oracle) {
        let FramedAnswer { mut bytes, head_bytes, framing, close } = made;
        let id = conn.request.as_ref().and_then(|request| request.id);
        if self.prng.chance(self.behaviour.malformed) {
            oracle.trace(|| format!("o{} sends a malformed response to r{id:?}", self.index));
            self.spoil(&mut bytes, head_bytes, framing);
            self.push_pieces(conn, bytes);
            conn.out.push_back(Out::Close);
            return;
        }
        if self.prng.chance(self.behaviour.cut) {
            // A response that ends with the connection can only be cut off by a reset.
            let at = self.prng.below(bytes.len() as u64 + 1) as usize;
            oracle.trace(|| format!("o{} cuts off its response to r{id:?} at {at}", self.index));
            let whole = at == bytes.len();
            bytes.truncate(at);
            self.push_pieces(conn, bytes);
            let by_reset = framing == Framing::UntilClose || self.prng.chance(500_000);
            conn.out.push_back(if by_reset && !whole { Out::Reset } else { Out::Close });
            return;
        }
        let skips = conn.peer.as_ref().is_some_and(Line::skips_close_notify);
        if skips && framing == Framing::UntilClose && self.prng.chance(500_000) {
            // Or by ending TLS without close_notify.
            let left = self.prng.below((bytes.len() - head_bytes) as u64 + 1) as usize;
            oracle.trace(|| {
                format!("o{} ends without close_notify in its response to r{id:?}", self.index)
            });
            bytes.truncate(head_bytes + left);
            self.push_pieces(conn, bytes);
            conn.out.push_back(Out::Close);
            return;
        }
        if framing != Framing::UntilClose && self.prng.chance(self.behaviour.trailing_garbage) {
            conn.garbled = true;
            bytes.extend(b"\0garbage\r\n\r\n");
        }
        oracle.trace(|| format!("o{} answers r{id:?} with {} bytes", self.index, bytes.len()));
        self.push_pieces(conn, bytes);
        let silently = self.prng.chance(self.behaviour.close_after / 2);
        conn.out.push_back(if close || silently { Out::Close } else { Out::Answered });
    }

    /// Makes the response malformed.
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
        if !self.prng.chance(self.behaviour.dribble) {
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

    fn write(&mut self, conn: &mut Conn, oracle: &mut Oracle) -> bool {
        let mut moved = false;
        while let Some(peer) = &conn.peer {
            if conn.out_at > oracle.now {
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
                Some(Out::Pause(span)) => conn.out_at = oracle.now.after(span),
                Some(Out::Bytes(mut bytes)) => {
                    let sent = peer.send(&bytes);
                    oracle.moved_bytes += sent as u64;
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
                    conn.idle_since = oracle.now;
                    let prng = &mut self.unsolicited_prng;
                    conn.unsolicited_at =
                        prng.chance(self.behaviour.unsolicited).then(|| match prng.below(4) {
                            0 => oracle.now.after(Span::from_micros(prng.below(20_000))),
                            _ => Moment::NEVER,
                        });
                    self.read(conn, oracle);
                }
            }
            moved = true;
        }
        moved
    }
}

/// A response that no request caused.
const UNSOLICITED: &[u8] =
    b"HTTP/1.1 200 Evil\r\nx-id: 0\r\nx-answer-bytes: 4\r\ncontent-length: 4\r\n\r\nevil";

/// The bytes of a complete response, and what `send_answer` needs to know about them.
struct FramedAnswer {
    bytes: Vec<u8>,
    /// How many of `bytes` are the head.
    head_bytes: usize,
    framing: Framing,
    /// The connection closes after it.
    close: bool,
}

impl Arrived {
    fn note_data(&mut self, data: &[u8], origin: usize, oracle: &mut Oracle) {
        let (Some(id), Some(sighting)) = (self.id, self.sighting) else { return };
        if !body::matches(id, self.body_bytes, data) {
            let at = self.body_bytes;
            oracle.violate(format!("o{origin}: the body of r{id} is wrong from byte {at} on"));
        }
        self.body_bytes += data.len() as u64;
        self.hash.add(data);
        if let Some(request) = oracle.requests.get_mut(&id) {
            request.seen[sighting].body_bytes = self.body_bytes;
        }
    }

    fn note_end(&mut self, trailers: &[(String, String)], oracle: &mut Oracle) {
        self.whole = true;
        let (Some(id), Some(sighting)) = (self.id, self.sighting) else { return };
        oracle.trace(|| format!("r{id} is complete at its origin"));
        oracle.note_whole(id, sighting, self.hash.value());
        for (name, value) in trailers {
            if !name.eq_ignore_ascii_case("x-trailer") || *value != id.to_string() {
                oracle.violate(format!("r{id} arrived with the trailer {name}: {value}"));
            }
        }
    }
}
