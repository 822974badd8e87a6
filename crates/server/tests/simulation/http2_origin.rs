//! Simulated origins that speak HTTP/2: windows, limits, resets, GOAWAY and lost connections at odd moments.
//! In: requests. Out: responses as those of `origin.rs`, which clients check in the same way.
//! Never: counts a request that it refuses as an arrival: it has not processed it.
//! Invariant: a call is in `calls` from its head until its response has ended or its stream was reset.

use std::collections::{BTreeMap, VecDeque};

use tidegate_base::prng::mix64;
use tidegate_base::{Moment, Prng, Span};
use tidegate_reactor::SimServer;
use tidegate_wire::http2::frame::{END_HEADERS, FrameKind, encode_settings};
use tidegate_wire::http2::{Config, Connection, ErrorCode, Event, Request, ResetCause, Scratch};
use tidegate_wire::tls::Acceptor;

use crate::line::Line;
use crate::oracle::Oracle;
use crate::origin::Behaviour;
use crate::peer::body::{self, Hash};
use crate::plan::below_skewed;
use crate::speaker::{encode_frame, encode_headers};

/// Encoded bytes at which an origin adds no more of a body.
const OUT_BYTES_MAX: usize = 20_000;
/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// What an origin does to streams and connections, in parts per million of requests or connections.
#[derive(Clone, Debug, Default)]
pub struct Http2Behaviour {
    /// Takes extended CONNECT.
    pub takes_tunnels: bool,
    /// Refuses a request (REFUSED_STREAM).
    pub refuse: u32,
    /// Begins to stop the connection (GOAWAY) after a request.
    pub go_away: u32,
    /// Allows few streams on a connection.
    pub narrow: u32,
    /// Has small windows, and changes them.
    pub tight: u32,
    /// The smallest of these windows, in bytes.
    pub window_min: u32,
    /// Sends PING.
    pub ping: u32,
}

/// A server of a pool.
pub struct Http2Origin {
    index: usize,
    server: SimServer,
    acceptor: Option<Acceptor>,
    prng: Prng,
    behaviour: Behaviour,
    http2: Http2Behaviour,
    conns: Vec<Conn>,
}

/// A connection from a worker.
struct Conn {
    /// `None` once this end was closed or reset.
    line: Option<Line>,
    connection: Connection,
    out: Vec<u8>,
    calls: BTreeMap<u32, Call>,
    /// The origin reads from this connection.
    reads: bool,
    /// The origin's windows are small: each byte is credited by itself.
    is_tight: bool,
    idle_since: Moment,
}

/// A request that has begun to arrive.
struct Call {
    id: u64,
    sighting: Option<usize>,
    to_head: bool,
    body_bytes: u64,
    hash: Hash,
    whole: bool,
    answered: bool,
    /// The bytes of a tunnel that wait to be sent back; `None` if the request opens no tunnel.
    echo: Option<Vec<u8>>,
    /// What is left to do for the response, in order.
    steps: VecDeque<Step>,
    /// No step is done before this moment.
    at: Moment,
}

/// One step of sending a response.
enum Step {
    Pause(Span),
    Head {
        status: u16,
        fields: Vec<(&'static str, String)>,
        ends: bool,
    },
    Data {
        seed: u64,
        at: u64,
        count: u64,
        ends: bool,
    },
    Trailers,
    Reset(ErrorCode),
    /// Frames that violate the protocol.
    Raw(Vec<u8>),
    /// The connection ends.
    Drop {
        by_reset: bool,
    },
}

impl Http2Origin {
    pub fn new(
        index: usize,
        server: SimServer,
        seed: u64,
        (behaviour, http2): (Behaviour, Http2Behaviour),
        acceptor: Option<Acceptor>,
    ) -> Self {
        let prng = Prng::new(seed ^ 0x6832_6f72);
        Self { index, server, acceptor, prng, behaviour, http2, conns: Vec::new() }
    }

    /// The next time after `now` at which this origin acts without receiving anything.
    pub fn next_at(&self, now: Moment) -> Option<Moment> {
        let waiting = self.conns.iter().flat_map(|conn| conn.calls.values());
        let waiting = waiting.filter(|call| !call.steps.is_empty()).map(|call| call.at);
        let idle = self.conns.iter().filter(|conn| conn.calls.is_empty());
        let span = self.behaviour.idle_close;
        let idle = idle.filter_map(|conn| span.map(|span| conn.idle_since.after(span)));
        waiting.chain(idle).filter(|at| *at > now).min()
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
            let skips = self.prng.chance(self.behaviour.skip_close_notify);
            let session = self.acceptor.as_ref().map(|tls| tls.accept().expect("a session"));
            let line = Line::new(peer, session, false, skips);
            let conn = self.begin_conn(line, oracle.now);
            self.conns.push(conn);
        }
        let mut conns = core::mem::take(&mut self.conns);
        for conn in &mut conns {
            moved |= self.step_conn(conn, oracle);
        }
        conns.retain(|conn| conn.line.is_some());
        self.conns = conns;
        moved
    }

    fn begin_conn(&mut self, line: Line, now: Moment) -> Conn {
        let narrow = self.prng.chance(self.http2.narrow);
        let streams_max = if narrow { 1 + self.prng.below(4) as u32 } else { 100 };
        let connect_protocol = self.http2.takes_tunnels;
        let config = Config { streams_max, connect_protocol, ..Config::server() };
        let mut connection = Connection::new(config, now);
        let mut out = Vec::new();
        connection.start(&mut out);
        let is_tight = self.prng.chance(self.http2.tight);
        if is_tight {
            encode_settings(
                &mut out,
                &[(
                    INITIAL_WINDOW_SIZE,
                    (1 + self.prng.below(3000) as u32).max(self.http2.window_min),
                )],
            );
        }
        Conn {
            line: Some(line),
            connection,
            out,
            calls: BTreeMap::new(),
            reads: !self.prng.chance(self.behaviour.not_reading),
            is_tight,
            idle_since: now,
        }
    }

    fn step_conn(&mut self, conn: &mut Conn, oracle: &mut Oracle) -> bool {
        let mut moved = false;
        let Some(line) = &conn.line else { return false };
        if line.was_reset() && !line.has_bytes() {
            conn.line = None;
            return true;
        }
        if conn.reads {
            line.pump();
            let bytes = line.receive();
            if let Some(fault) = line.fault() {
                oracle.violate(format!("o{}: {}", self.index, fault.text()));
            }
            moved |= !bytes.is_empty();
            oracle.moved_bytes += bytes.len() as u64;
            self.read(conn, &bytes, oracle);
        }
        if conn.line.as_ref().is_some_and(Line::is_finished_by_other) {
            oracle.trace(|| format!("o{}: the worker ends a connection", self.index));
            conn.line = None;
            return true;
        }
        let idle_close = self.behaviour.idle_close.filter(|_| conn.calls.is_empty());
        if idle_close.is_some_and(|span| oracle.now >= conn.idle_since.after(span)) {
            oracle.trace(|| format!("o{} closes an idle connection", self.index));
            if self.prng.chance(500_000) {
                conn.connection.stop_now(&mut conn.out);
                self.flush(conn, oracle);
            }
            conn.line = None;
            return true;
        }
        moved |= self.answer_calls(conn, oracle);
        if conn.connection.is_finished() && conn.calls.is_empty() && conn.out.is_empty() {
            conn.line = None;
            return true;
        }
        moved | self.flush(conn, oracle)
    }

    fn flush(&self, conn: &mut Conn, oracle: &mut Oracle) -> bool {
        let Some(line) = &conn.line else { return false };
        let sent = line.send(&conn.out);
        oracle.moved_bytes += sent as u64;
        conn.out.drain(..sent);
        if conn.out.is_empty() {
            conn.connection.output_drained();
        }
        sent > 0
    }

    fn read(&mut self, conn: &mut Conn, bytes: &[u8], oracle: &mut Oracle) {
        let (mut input, mut scratch) = (bytes, Scratch::default());
        while conn.line.is_some() {
            let mut out = core::mem::take(&mut conn.out);
            let event = conn.connection.receive(oracle.now, &mut input, &mut scratch, &mut out);
            conn.out = out;
            match event {
                Ok(Some(event)) => self.take(conn, &event, oracle),
                Ok(None) => return,
                Err(fault) => {
                    oracle.violate(format!("o{} got {}", self.index, fault.reason()));
                    conn.line = None;
                }
            }
        }
    }

    fn take(&mut self, conn: &mut Conn, event: &Event<'_>, oracle: &mut Oracle) {
        match event {
            Event::Request { stream, request, ends } => {
                self.begin(conn, *stream, request, *ends, oracle);
            }
            Event::Data { stream, bytes, ends, .. } => {
                conn.connection.release(&mut conn.out, *stream, bytes.len());
                if conn.is_tight && !bytes.is_empty() {
                    let count = bytes.len() as u32;
                    tidegate_wire::http2::frame::encode_window_update(
                        &mut conn.out,
                        *stream,
                        count,
                    );
                }
                if let Some(call) = conn.calls.get_mut(stream) {
                    call.note_data(bytes, self.index, oracle);
                }
                if *ends {
                    self.note_whole(conn, *stream, oracle);
                }
            }
            Event::Trailers { stream, fields, .. } => {
                let id = conn.calls.get(stream).map(|call| call.id);
                for field in fields.clone() {
                    let value = String::from_utf8_lossy(field.value).into_owned();
                    if field.name != "x-trailer" || Some(value.parse()) != id.map(Ok) {
                        oracle.violate(format!("r{id:?} arrived with {}: {value}", field.name));
                    }
                }
                self.note_whole(conn, *stream, oracle);
            }
            Event::Reset { stream, cause: ResetCause::Peer(code), .. } => {
                oracle.trace(|| format!("o{}: stream {stream} is reset: {code:?}", self.index));
                conn.forget(*stream, oracle.now);
            }
            Event::Reset { cause, .. } => {
                oracle.violate(format!("o{}: a stream ends with {cause:?}", self.index));
            }
            Event::Rejected { fault, .. } => {
                oracle.violate(format!("o{} rejects a request: {}", self.index, fault.reason()));
            }
            Event::RequestTooLarge { .. } => {
                oracle.violate(format!("o{} got a large head", self.index));
            }
            _ => {}
        }
    }

    fn begin(
        &mut self,
        conn: &mut Conn,
        stream: u32,
        request: &Request<'_>,
        ends: bool,
        oracle: &mut Oracle,
    ) {
        let head = &request.head;
        let field = |name: &str| {
            head.find_named(name).map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let id = field("x-id").and_then(|id| id.parse().ok());
        if self.prng.chance(self.http2.refuse) {
            oracle.trace(|| format!("o{} refuses r{id:?}", self.index));
            conn.connection.reset(&mut conn.out, stream, ErrorCode::REFUSED_STREAM);
            return;
        }
        let opens_tunnel = head.protocol.is_some();
        let method = if opens_tunnel { "GET" } else { head.method.as_str() };
        let start = format!("{method} {} HTTP/1.1", head.target);
        oracle.trace(|| format!("o{} receives {start:?} (r{id:?}) on {stream}", self.index));
        let sighting = oracle.note_arrival(self.index, id, &start);
        let identity = id.and_then(|id| oracle.requests.get(&id)).map(|r| r.identity.clone());
        let name = identity.and_then(|identity| identity.ip).map(|ip| ip.to_string());
        if field("x-forwarded-for") != name {
            oracle.violate(format!("o{}: wrong X-Forwarded-For for r{id:?}", self.index));
        }
        let call = Call {
            id: id.unwrap_or(0),
            sighting,
            to_head: head.method.as_str() == "HEAD",
            body_bytes: 0,
            hash: Hash::new(),
            whole: false,
            answered: false,
            echo: opens_tunnel.then(Vec::new),
            steps: VecDeque::new(),
            at: Moment::ZERO,
        };
        conn.calls.insert(stream, call);
        if self.prng.chance(self.http2.go_away) {
            oracle.trace(|| format!("o{} stops a connection", self.index));
            match self.prng.chance(500_000) {
                true => conn.connection.stop(&mut conn.out),
                false => conn.connection.stop_now(&mut conn.out),
            }
        }
        if self.prng.chance(self.http2.ping) {
            conn.connection.ping(&mut conn.out, [7; 8]);
        }
        if conn.is_tight && self.prng.chance(200_000) {
            let window = self.prng.below(5000) as u32;
            encode_settings(&mut conn.out, &[(INITIAL_WINDOW_SIZE, 200 + window)]);
        }
        if self.prng.chance(self.behaviour.abandon) {
            oracle.trace(|| format!("o{} abandons r{id:?}", self.index));
            self.fail(conn, stream);
        } else if opens_tunnel {
            self.accept_tunnel(conn, stream, oracle);
        } else if ends {
            self.note_whole(conn, stream, oracle);
        } else if self.prng.chance(self.behaviour.early_answer) {
            self.answer(conn, stream, oracle);
        }
    }

    /// Agrees to a tunnel, whose bytes are sent back.
    fn accept_tunnel(&mut self, conn: &mut Conn, stream: u32, oracle: &mut Oracle) {
        let Some(call) = conn.calls.get_mut(&stream) else { return };
        call.answered = true;
        if let Some(sighting) = call.sighting {
            oracle.note_whole(call.id, sighting, call.hash.value());
        }
        if self.prng.chance(self.behaviour.delayed) {
            let pause = Span::from_millis(1 + self.prng.below(4000));
            call.steps.push_back(Step::Pause(pause));
        }
        let fields = vec![("x-id", call.id.to_string())];
        call.steps.push_back(Step::Head { status: 200, fields, ends: false });
    }

    /// Resets a stream, or ends its connection.
    fn fail(&mut self, conn: &mut Conn, stream: u32) {
        let Some(call) = conn.calls.get_mut(&stream) else { return };
        call.steps.clear();
        let codes = [ErrorCode::CANCEL, ErrorCode::INTERNAL_ERROR, ErrorCode::ENHANCE_YOUR_CALM];
        call.steps.push_back(match self.prng.below(4) {
            0 => Step::Drop { by_reset: self.prng.chance(500_000) },
            other => Step::Reset(codes[other as usize - 1]),
        });
    }

    fn note_whole(&mut self, conn: &mut Conn, stream: u32, oracle: &mut Oracle) {
        let Some(call) = conn.calls.get_mut(&stream) else { return };
        call.whole = true;
        if call.echo.is_some() {
            return;
        }
        if let Some(sighting) = call.sighting {
            oracle.note_whole(call.id, sighting, call.hash.value());
        }
        if !call.answered {
            self.answer(conn, stream, oracle);
        }
    }

    /// Decides the response, and what goes wrong with it.
    fn answer(&mut self, conn: &mut Conn, stream: u32, oracle: &mut Oracle) {
        let Some(call) = conn.calls.get_mut(&stream) else { return };
        call.answered = true;
        let (prng, behaviour) = (&mut self.prng, &self.behaviour);
        if prng.chance(behaviour.silent) {
            oracle.trace(|| format!("o{} will not answer r{}", self.index, call.id));
            call.steps.push_back(Step::Pause(Span::from_secs(100_000)));
            return;
        }
        if prng.chance(behaviour.delayed) {
            call.steps.push_back(Step::Pause(Span::from_millis(1 + prng.below(4000))));
        }
        while prng.chance(behaviour.interim) {
            let status = if prng.chance(500_000) { 100 } else { 103 };
            call.steps.push_back(Step::Head { status, fields: Vec::new(), ends: false });
        }
        let statuses = [200, 200, 200, 200, 404, 500, 204, 304];
        let status = statuses[prng.below(statuses.len() as u64) as usize];
        let bodyless = status == 204 || status == 304;
        let count = match bodyless {
            true => 0,
            false => below_skewed(prng, behaviour.answer_bytes_max, 12),
        };
        let seed = mix64(call.id ^ ((self.index as u64) << 40));
        let mut fields = vec![
            ("x-id", call.id.to_string()),
            ("x-body-seed", seed.to_string()),
            ("x-answer-bytes", count.to_string()),
        ];
        if call.whole {
            fields.push(("x-request-hash", call.hash.value().to_string()));
        }
        let states_length = !bodyless && prng.chance(500_000);
        if states_length {
            fields.push(("content-length", count.to_string()));
        }
        let is_empty = bodyless || call.to_head;
        if prng.chance(behaviour.malformed) {
            oracle.trace(|| format!("o{} sends a malformed response to r{}", self.index, call.id));
            let frames = spoiled(prng, stream);
            call.steps.push_back(Step::Raw(frames));
            return;
        }
        let has_trailers = !is_empty && prng.chance(300_000);
        let ends = is_empty || count == 0 && !has_trailers && prng.chance(500_000);
        call.steps.push_back(Step::Head { status, fields, ends });
        if !ends {
            push_body(prng, behaviour.dribble, call, (seed, count), !has_trailers);
            if has_trailers {
                call.steps.push_back(Step::Trailers);
            }
        }
        if prng.chance(behaviour.cut) {
            let kept = prng.below(call.steps.len() as u64 + 1) as usize;
            oracle.trace(|| format!("o{} cuts its response to r{} off", self.index, call.id));
            call.steps.truncate(kept);
            let is_complete = call.steps.back().is_some_and(Step::is_end);
            if !is_complete {
                let by_reset = prng.chance(500_000);
                call.steps.push_back(match prng.chance(300_000) {
                    true => Step::Drop { by_reset },
                    false => Step::Reset(ErrorCode::INTERNAL_ERROR),
                });
            }
        }
        oracle.trace(|| format!("o{} answers r{} with {count} bytes", self.index, call.id));
    }

    fn answer_calls(&mut self, conn: &mut Conn, oracle: &mut Oracle) -> bool {
        let mut moved = false;
        let streams: Vec<u32> = conn.calls.keys().copied().collect();
        for stream in streams {
            while conn.line.is_some() && self.answer_step(conn, stream, oracle) {
                moved = true;
            }
        }
        moved
    }

    /// Does the next step of a call. Returns whether there may be another one now.
    fn answer_step(&mut self, conn: &mut Conn, stream: u32, oracle: &mut Oracle) -> bool {
        let Some(call) = conn.calls.get_mut(&stream).filter(|call| call.at <= oracle.now) else {
            return false;
        };
        if call.steps.is_empty() && call.echo.is_some() {
            return conn.echo(stream, oracle.now);
        }
        let Some(step) = call.steps.pop_front() else { return false };
        let (connection, out) = (&mut conn.connection, &mut conn.out);
        let is_end = step.is_end();
        match step {
            Step::Pause(span) => call.at = oracle.now.after(span),
            Step::Head { status, fields, ends } => {
                connection.send_response(out, stream, status, ends, |writer| {
                    for (name, value) in &fields {
                        writer.field(name, value.as_bytes());
                    }
                });
            }
            Step::Data { seed, at, count, ends } => {
                if out.len() > OUT_BYTES_MAX {
                    call.steps.push_front(Step::Data { seed, at, count, ends });
                    return false;
                }
                let piece = body::make(seed, at, count.min(16_000) as usize);
                let is_last = piece.len() as u64 == count;
                let sent = connection.send_data(oracle.now, out, stream, &piece, ends && is_last);
                let Some(sent) = sent.map(|sent| sent as u64) else { return false };
                if sent < count {
                    let (at, count) = (at + sent, count - sent);
                    call.steps.push_front(Step::Data { seed, at, count, ends });
                    return sent > 0;
                }
            }
            Step::Trailers => {
                connection.send_trailers(out, stream, |writer| writer.field("x-trailer", b"t"));
            }
            Step::Reset(code) => {
                connection.reset(out, stream, code);
            }
            Step::Raw(frames) => {
                out.extend_from_slice(&frames);
                self.flush(conn, oracle);
                conn.line = None;
                return false;
            }
            Step::Drop { by_reset } => {
                self.flush(conn, oracle);
                if let Some(line) = conn.line.take().filter(|_| by_reset) {
                    line.reset();
                }
                return false;
            }
        }
        if is_end {
            let is_whole = call.whole;
            let stays = conn.connection.token(stream).is_some() && !is_whole;
            if stays && self.prng.chance(500_000) {
                // The rest of the request is not wanted.
                conn.connection.reset(&mut conn.out, stream, ErrorCode::NO_ERROR);
            } else if stays {
                return false;
            }
            conn.forget(stream, oracle.now);
            if self.prng.chance(self.behaviour.close_after) {
                conn.connection.stop_now(&mut conn.out);
            }
        }
        true
    }
}

/// The body of a response, perhaps in small pieces with pauses.
fn push_body(
    prng: &mut Prng,
    dribble: u32,
    call: &mut Call,
    (seed, count): (u64, u64),
    ends: bool,
) {
    if !prng.chance(dribble) {
        call.steps.push_back(Step::Data { seed, at: 0, count, ends });
        return;
    }
    let (mut at, size_max) = (0, 1 + (count / 20).max(1));
    loop {
        let size = (1 + prng.below(size_max)).min(count - at);
        let is_last = at + size == count;
        call.steps.push_back(Step::Data { seed, at, count: size, ends: ends && is_last });
        at += size;
        if is_last {
            return;
        }
        call.steps.push_back(Step::Pause(Span::from_millis(prng.below(40))));
    }
}

/// Frames that violate the protocol.
fn spoiled(prng: &mut Prng, stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let fields: [&[(&[u8], &[u8])]; 5] = [
        &[(b":status", b"200"), (b"connection", b"close")],
        &[(b":status", b"200"), (b"X-Poison", b"1")],
        &[(b":status", b"200"), (b"content-length", b"1"), (b"content-length", b"2")],
        &[(b":status", b"101")],
        &[(b"x-poison", b"1")],
    ];
    match prng.below(7) {
        5 => encode_frame(&mut out, FrameKind::Data, 0, stream, b"early"),
        6 => {
            encode_frame(&mut out, FrameKind::PushPromise, END_HEADERS, stream, &[0, 0, 0, 2, 0x82])
        }
        at => encode_headers(&mut out, stream, fields[at as usize], END_HEADERS),
    }
    out
}

impl Step {
    /// Whether the stream ends with the step.
    fn is_end(&self) -> bool {
        match self {
            Self::Head { ends, .. } | Self::Data { ends, .. } => *ends,
            Self::Trailers | Self::Reset(_) | Self::Raw(_) | Self::Drop { .. } => true,
            Self::Pause(_) => false,
        }
    }
}

impl Conn {
    /// Sends bytes of a tunnel back, and ends it after them if the client has. Returns whether anything was sent.
    fn echo(&mut self, stream: u32, now: Moment) -> bool {
        let Some(call) = self.calls.get_mut(&stream) else { return false };
        let Some(echo) = &mut call.echo else { return false };
        if self.out.len() > OUT_BYTES_MAX || echo.is_empty() && !call.whole {
            return false;
        }
        let count = echo.len();
        let sent = self.connection.send_data(now, &mut self.out, stream, echo, call.whole);
        let Some(sent) = sent else { return false };
        echo.drain(..sent);
        if call.whole && sent == count {
            self.forget(stream, now);
        }
        sent > 0
    }

    fn forget(&mut self, stream: u32, now: Moment) {
        self.calls.remove(&stream);
        self.idle_since = now;
    }
}

impl Call {
    fn note_data(&mut self, data: &[u8], origin: usize, oracle: &mut Oracle) {
        if !body::matches(self.id, self.body_bytes, data) {
            let (id, at) = (self.id, self.body_bytes);
            oracle.violate(format!("o{origin}: the body of r{id} is wrong from byte {at} on"));
        }
        self.body_bytes += data.len() as u64;
        if let Some(echo) = &mut self.echo {
            return echo.extend_from_slice(data);
        }
        self.hash.add(data);
        if let (Some(sighting), Some(request)) = (self.sighting, oracle.requests.get_mut(&self.id))
        {
            request.seen[sighting].body_bytes = self.body_bytes;
        }
    }
}
