//! Simulated clients of HTTP/2: several requests at a time on one connection, with windows that change, resets,
//! pings, slow reading and half-close. Each response is checked as over HTTP/1.1.
//! WebSocket tunnels: `http2/tunnels.rs`.
//! In: a script, made from a seed. Out: frames; reports to the oracle.
//! Never: violates the protocol, so a GOAWAY with an error is a violation by the worker.
//! Limits: `CALLS_MAX` requests; fewer SETTINGS and PING than the worker allows at once.
//! Invariant: `open` holds the requests begun whose stream has not ended in both directions.

mod tunnels;

use std::collections::BTreeMap;

use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_reactor::{Peer, SimNet};
use tidegate_wire::http2::bounds::WINDOW_INITIAL;
use tidegate_wire::http2::frame::encode_settings;
use tidegate_wire::http2::{
    Config, Connection, ErrorCode, Event, OpenFault, RequestLine, ResetCause, Scratch,
};
use tidegate_wire::message::ResponseHead;
use tidegate_wire::tls::Connector;

use crate::client::{Answer, ip_of, note_answered};
use crate::line::Line;
use crate::oracle::{ClientIdentity, Expected, Oracle, Request};
use crate::peer::body;
use crate::peer::reader::Head;
use crate::plan::{NO_ROUTE, below_skewed};
use crate::websocket_tunnel::TunnelReader;

use tunnels::Opens;
pub use tunnels::{WEBSOCKET, has_websockets};

/// The index of the first client of HTTP/2, which decides its address. No plan trusts its PROXY headers.
pub const FIRST_CLIENT: usize = 100;
/// Maximum number of requests of a script.
const CALLS_MAX: u64 = 8;
/// How long a client waits until its connection is established.
const CONNECT_PATIENCE: Span = Span::from_secs(10);
/// How long a client waits for 100 (Continue).
const CONTINUE_PATIENCE: Span = Span::from_secs(1);
/// Encoded bytes at which a client adds no more of a body.
const OUT_BYTES_MAX: usize = 20_000;
/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// When a client resets a stream.
enum Abort {
    /// This long after the request was begun.
    After(Span),
    /// When this many bytes of the response's body have come; 0: when its head has.
    At(u64),
}

/// One request of a script.
struct Call {
    id: u64,
    method: &'static str,
    path: String,
    body: Vec<u8>,
    /// How long after the previous request it is begun.
    after: Span,
    states_length: bool,
    expects_continue: bool,
    trailer: bool,
    /// The end of the body is a DATA frame without data.
    ends_late: bool,
    /// Maximum size in bytes of the body that are sent at once, and the pause after them.
    piece_bytes: usize,
    pace: Span,
    abort: Option<Abort>,
    /// The request opens a tunnel, which returns `body`.
    opens: Option<Opens>,
}

/// How a client ends its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The worker closes the idle connection.
    Wait,
    /// Closes when all requests are answered.
    Leave,
    /// Ends its sending side when all requests are sent.
    Finish,
    /// Sends GOAWAY when all requests are begun; leaves when they are answered.
    GoAway,
    /// Closes or resets the connection at this time after its start, whatever is in progress.
    Abandon { after: Span, by_reset: bool },
}

/// All decisions of one client.
pub struct Script {
    index: usize,
    start_at: Moment,
    config: Config,
    /// Maximum number of bytes sent at once.
    piece_bytes: usize,
    /// Reads this many bytes after each such pause; `None`: reads everything at once.
    reads: Option<(usize, Span)>,
    calls: Vec<Call>,
    /// Times after the start, and what SETTINGS_INITIAL_WINDOW_SIZE changes to. The last one is `WINDOW_INITIAL`.
    windows: Vec<(Span, u32)>,
    /// When PINGs are sent, after the start.
    pings: Vec<Span>,
    end: End,
}

/// Makes scripts.
pub struct Maker<'a> {
    pub prng: &'a mut Prng,
    pub is_calm: bool,
    pub pools: usize,
    pub identity: ClientIdentity,
    pub requests: &'a mut Vec<Request>,
}

impl Maker<'_> {
    fn millis(&mut self, below: u64) -> Span {
        Span::from_millis(self.prng.below(below))
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.prng.below(count) == 0
    }

    /// A client's script; its requests are added to the run's.
    pub fn make_script(&mut self, index: usize) -> Script {
        let end = match self.prng.below(6) {
            0 => End::Wait,
            1 => End::Finish,
            2 => End::GoAway,
            3 if !self.is_calm => {
                End::Abandon { after: self.millis(4000), by_reset: self.one_in(2) }
            }
            _ => End::Leave,
        };
        let config = Config {
            // A client that has ended its sending side cannot update windows.
            stream_window: if end == End::Finish { 1 << 20 } else { WINDOW_INITIAL },
            connection_window: match self.prng.below(2) {
                0 if end != End::Finish => WINDOW_INITIAL + self.prng.below(5000) as u32,
                _ => 16 << 20,
            },
            header_table_bytes: [0, 100, 4096][self.prng.below(3) as usize],
            encoder_table_bytes: [0, 300, 4096][self.prng.below(3) as usize],
            ..Config::client()
        };
        let is_tiny = self.one_in(8);
        let piece_bytes = match self.prng.below(3) {
            _ if is_tiny => 1 + self.prng.below(5) as usize,
            0 => 1 + self.prng.below(2000) as usize,
            _ => usize::MAX,
        };
        let most = if self.is_calm { 20 } else { 200 };
        let reads = self.one_in(4).then(|| {
            let bytes = 300 + self.prng.below(6000) as usize;
            (bytes, Span::from_millis(1 + self.prng.below(most)))
        });
        let mut windows = Vec::new();
        if end != End::Finish && self.one_in(2) {
            let mut at = Span::ZERO;
            // Shorter than the timeout of the body, which resets a stream without a window.
            let most = if self.is_calm { 200 } else { 2000 };
            for _ in 0..1 + self.prng.below(6) {
                let size = below_skewed(self.prng, u64::from(WINDOW_INITIAL) + 1, 17) as u32;
                windows.push((at, size));
                at += self.millis(most);
            }
            windows.push((at, WINDOW_INITIAL));
        }
        let pings = (0..self.prng.below(5)).map(|_| self.millis(5000)).collect();
        let is_concurrent = !self.one_in(4);
        let start_at = Moment::from_nanos(1_000_000_000 + self.prng.below(3_000_000_000));
        let calls = 1 + self.prng.below(CALLS_MAX);
        let calls = (0..calls).map(|_| self.make_call(is_tiny, is_concurrent)).collect();
        Script { index, start_at, config, piece_bytes, reads, calls, windows, pings, end }
    }

    fn make_call(&mut self, is_tiny: bool, is_concurrent: bool) -> Call {
        let most = if is_tiny { 300 } else { 200_000 };
        let methods = ["GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE", "OPTIONS"];
        let method = methods[self.prng.below(methods.len() as u64) as usize];
        let (path, expected) = match self.prng.below(8) {
            0 => ("/hello".to_owned(), Expected::Fixed(200, "hello".to_owned())),
            1 => {
                let text = "302 Found: see Location\n";
                ("/moved".to_owned(), Expected::Fixed(302, text.to_owned()))
            }
            2 => ("/nowhere".to_owned(), Expected::Fixed(404, NO_ROUTE.to_owned())),
            3 => {
                let size = below_skewed(self.prng, most, 10);
                let delay = self.prng.below(200);
                (format!("/synthetic?s={size}&t={delay}"), Expected::Bytes(size))
            }
            _ => {
                let pool = self.prng.below(self.pools as u64);
                (format!("/p{pool}/{}", self.prng.below(50)), Expected::Origin)
            }
        };
        let is_local = expected != Expected::Origin;
        let method = match is_local {
            true => ["GET", "HEAD", "POST"][self.prng.below(3) as usize],
            false => method,
        };
        let has_body = matches!(method, "POST" | "PUT");
        let body_bytes = if has_body { below_skewed(self.prng, most, 8) } else { 0 };
        let id = 1 + self.requests.len() as u64;
        let abort = self.one_in(6).then(|| match self.one_in(2) {
            true => Abort::After(self.millis(100)),
            false => Abort::At(below_skewed(self.prng, 100_000, 12)),
        });
        let call = Call {
            id,
            method,
            path: path.clone(),
            body: body::make(id, 0, body_bytes as usize),
            after: if is_concurrent { self.millis(20) } else { self.millis(900) },
            states_length: self.one_in(2),
            expects_continue: body_bytes > 0 && self.one_in(4),
            trailer: has_body && self.one_in(4),
            ends_late: self.one_in(3),
            piece_bytes: match self.prng.below(3) {
                0 => 1 + below_skewed(self.prng, 9000, 8) as usize,
                _ => usize::MAX,
            },
            pace: if self.one_in(3) { self.millis(30) } else { Span::ZERO },
            abort,
            opens: None,
        };
        // Bodies in small pieces with pauses take less than any timeout.
        let pieces_max = 100;
        let piece_bytes = call.piece_bytes.max(call.body.len() / pieces_max + 1);
        self.requests.push(Request {
            id,
            identity: self.identity.clone(),
            method,
            path,
            body_bytes,
            idempotent: method != "POST",
            old_version: false,
            expected,
            begun: false,
            answered: false,
            status: None,
            seen: Vec::new(),
        });
        Call { piece_bytes, ..call }
    }
}

/// A request that is in progress.
struct Open {
    call: Call,
    begun_at: Moment,
    /// Bytes of the body that were sent.
    sent: usize,
    /// The request is complete.
    is_sent: bool,
    /// The windows admit nothing more.
    is_blocked: bool,
    /// No more of the body is sent before this moment.
    write_at: Moment,
    /// The final head has come.
    answer: Option<Answer>,
    /// The response is complete, or the server has ended its direction of the tunnel.
    is_answered: bool,
    /// The bytes that an open tunnel has returned.
    returned: Option<u64>,
    tunnel: TunnelReader,
}

/// A client and its one connection.
pub struct Http2Client {
    address: Address,
    script: Script,
    connector: Option<Connector>,
    line: Option<Line>,
    connection: Connection,
    /// Frames that wait to be sent.
    out: Vec<u8>,
    /// By stream.
    open: BTreeMap<u32, Open>,
    /// The next request is not begun before.
    next_call_at: Moment,
    write_at: Moment,
    read_at: Moment,
    give_up_at: Moment,
    has_finished: bool,
    /// PINGs without a reply.
    pings_open: u64,
    /// The worker begins no more requests.
    is_excluded: bool,
    pub ended: bool,
}

impl Http2Client {
    /// A client; it uses TLS if there is a connector.
    pub fn new(
        address: Address,
        script: Script,
        connector: Option<Connector>,
        now: Moment,
    ) -> Self {
        Self {
            address,
            connection: Connection::new(script.config, now),
            next_call_at: script.start_at,
            script,
            connector,
            line: None,
            out: Vec::new(),
            open: BTreeMap::new(),
            write_at: Moment::ZERO,
            read_at: Moment::ZERO,
            give_up_at: Moment::ZERO,
            has_finished: false,
            pings_open: 0,
            is_excluded: false,
            ended: false,
        }
    }

    /// What the client still waits for.
    pub fn describe(&self) -> String {
        let open: Vec<_> = self
            .open
            .iter()
            .map(|(stream, open)| {
                let bytes = open.answer.as_ref().map(|answer| answer.bytes);
                (*stream, open.call.id, open.sent, open.call.body.len(), bytes, open.is_blocked)
            })
            .collect();
        format!(
            "c{}: {} requests left, {} bytes out, open: {open:?}",
            self.script.index,
            self.script.calls.len(),
            self.out.len()
        )
    }

    fn is_connecting(&self) -> bool {
        self.line.as_ref().is_some_and(|line| !line.is_up())
    }

    /// The times at which the client acts without receiving anything.
    fn times(&self) -> Vec<Moment> {
        let start = self.script.start_at;
        if self.line.is_none() {
            return vec![start];
        }
        let mut times = Vec::new();
        if self.is_connecting() {
            times.push(self.give_up_at);
        }
        if !self.script.calls.is_empty() {
            times.push(self.next_call_at);
        }
        times.extend(self.script.windows.first().map(|(at, _)| start.after(*at)));
        times.extend(self.script.pings.iter().map(|at| start.after(*at)));
        if let End::Abandon { after, .. } = self.script.end {
            times.push(start.after(after));
        }
        if !self.out.is_empty() {
            times.push(self.write_at);
        }
        if self.script.reads.is_some() && self.line.as_ref().is_some_and(Line::has_bytes) {
            times.push(self.read_at);
        }
        for open in self.open.values() {
            if !open.is_sent {
                times.push(open.write_at);
            }
            if let Some(Abort::After(span)) = open.call.abort {
                times.push(open.begun_at.after(span));
            }
        }
        times
    }

    /// The next time after `now` at which this client acts without receiving anything.
    pub fn next_at(&self, now: Moment) -> Option<Moment> {
        let times = if self.ended { Vec::new() } else { self.times() };
        times.into_iter().filter(|at| *at > now).min()
    }

    /// Does everything possible now; returns whether anything was done.
    pub fn step(&mut self, net: &SimNet, oracle: &mut Oracle) -> bool {
        if self.ended || oracle.now < self.script.start_at {
            return false;
        }
        if self.line.is_none() && !self.connect(net, oracle) {
            return true;
        }
        if self.is_connecting() && oracle.now >= self.give_up_at {
            self.end(oracle, "timed out connecting");
            return true;
        }
        if let End::Abandon { after, by_reset } = self.script.end
            && oracle.now >= self.script.start_at.after(after)
        {
            if let Some(line) = &self.line
                && by_reset
            {
                line.reset();
            }
            self.open.clear();
            self.end(oracle, "the client abandons its connection");
            return true;
        }
        let mut moved = self.receive(oracle);
        if !self.ended {
            moved |= self.look_for_end(oracle);
        }
        if !self.ended {
            moved |= self.act(oracle);
        }
        if !self.ended {
            moved |= self.flush(oracle);
            self.end_if_done(oracle);
        }
        moved
    }

    fn connect(&mut self, net: &SimNet, oracle: &mut Oracle) -> bool {
        let port = 1024 + (oracle.now.as_nanos() / 1_000_000 % 60_000) as u16;
        let own = Peer::Tcp((ip_of(self.script.index), port).into());
        self.give_up_at = oracle.now.after(CONNECT_PATIENCE);
        let Some(peer) = net.dial_as(&self.address, own) else {
            self.end(oracle, "connection refused");
            return false;
        };
        let session = self.connector.as_ref().map(|tls| tls.connect("a.example"));
        let session = session.map(|begun| begun.expect("a session"));
        self.line = Some(Line::new(peer, session, false, false));
        self.connection.start(&mut self.out);
        oracle.trace(|| format!("c{} connects, HTTP/2", self.script.index));
        true
    }

    fn receive(&mut self, oracle: &mut Oracle) -> bool {
        let Some(line) = &self.line else { return false };
        line.pump();
        let bytes = match self.script.reads {
            Some(_) if oracle.now < self.read_at => return false,
            Some((count, _)) => line.receive_some(count),
            None => line.receive(),
        };
        if let Some(fault) = line.fault() {
            oracle.violate(format!("c{}: {}", self.script.index, fault.text()));
        }
        if let (Some((_, pause)), true) = (self.script.reads, line.has_bytes() || !bytes.is_empty())
        {
            self.read_at = oracle.now.after(pause);
        }
        if bytes.is_empty() {
            return false;
        }
        oracle.moved_bytes += bytes.len() as u64;
        let mut scratch = Scratch::default();
        let mut input = &bytes[..];
        while !self.ended {
            let out = &mut self.out;
            match self.connection.receive(oracle.now, &mut input, &mut scratch, out) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    if let Err(error) = self.take(event, oracle) {
                        oracle.violate(format!("c{}: {error}", self.script.index));
                        self.end(oracle, "invalid response");
                    }
                }
                Err(fault) => {
                    oracle.violate(format!("c{}: {fault:?}", self.script.index));
                    self.end(oracle, "the worker violated the protocol");
                }
            }
        }
        true
    }

    fn take(&mut self, event: Event<'_>, oracle: &mut Oracle) -> Result<(), String> {
        match event {
            Event::Response { stream, head, ends, .. } => {
                self.take_head(stream, &head, oracle)?;
                if ends {
                    self.end_answer(stream, oracle)?;
                }
            }
            Event::Data { stream, bytes, ends, .. } => {
                self.connection.release(&mut self.out, stream, bytes.len());
                if let Some(open) = self.open.get_mut(&stream) {
                    let bytes = match (&mut open.answer, open.returned) {
                        (None, Some(_)) => {
                            open.read_tunnel(bytes, oracle)?;
                            open.returned.unwrap_or(0)
                        }
                        (answer, _) => {
                            let answer = answer.as_mut().ok_or("data before a head")?;
                            answer.read(bytes)?;
                            answer.bytes
                        }
                    };
                    if matches!(open.call.abort, Some(Abort::At(at)) if bytes >= at) && !ends {
                        self.abort(stream, oracle);
                    }
                }
                if ends {
                    self.end_answer(stream, oracle)?;
                }
            }
            Event::Trailers { stream, fields, .. } => {
                for field in fields {
                    if !field.name.eq_ignore_ascii_case("x-trailer") {
                        return Err(format!("unexpected trailer {:?}", field.name));
                    }
                }
                self.end_answer(stream, oracle)?;
            }
            Event::Reset { stream, cause, .. } => self.take_reset(stream, cause, oracle)?,
            Event::GoAway { code, .. } => {
                self.is_excluded = true;
                if code != ErrorCode::NO_ERROR {
                    return Err(format!("GOAWAY with {code:?}"));
                }
            }
            Event::Pong { .. } => self.pings_open -= 1,
            Event::Settings => {}
            Event::Request { .. } | Event::RequestTooLarge { .. } | Event::Rejected { .. } => {
                return Err("an event of a server".to_owned());
            }
        }
        Ok(())
    }

    fn take_head(
        &mut self,
        stream: u32,
        head: &ResponseHead<'_>,
        oracle: &mut Oracle,
    ) -> Result<(), String> {
        let Some(open) = self.open.get_mut(&stream) else { return Ok(()) };
        let id = open.call.id;
        oracle.trace(|| format!("c{} receives {} for r{id}", self.script.index, head.status));
        open.call.expects_continue = false;
        open.write_at = open.write_at.min(oracle.now);
        if head.is_interim() {
            return Ok(());
        }
        if open.call.opens.is_some() && matches!(head.status, 200..=299) {
            if head.find_named("sec-websocket-accept").is_some() {
                return Err(format!("the tunnel of r{id} has a key"));
            }
            open.returned = Some(0);
            oracle.tunnels += 1;
            note_answered(id, head.status, oracle);
            if matches!(open.call.abort, Some(Abort::At(0))) {
                self.abort(stream, oracle);
            }
            return Ok(());
        }
        // Nothing more is sent after a tunnel that was refused.
        open.is_sent |= open.call.opens.is_some();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let fields = head.fields();
        let head = Head {
            start: format!("HTTP/2 {}", head.status),
            fields: fields.map(|field| (field.name.to_owned(), text(field.value))).collect(),
        };
        if head.fields.iter().any(|(name, _)| name.bytes().any(|byte| byte.is_ascii_uppercase())) {
            return Err(format!("a name in upper case: {head:?}"));
        }
        open.answer = Some(Answer::new(id, head, oracle)?);
        if matches!(open.call.abort, Some(Abort::At(0))) {
            self.abort(stream, oracle);
        }
        Ok(())
    }

    fn abort(&mut self, stream: u32, oracle: &Oracle) {
        if let Some(open) = self.open.remove(&stream) {
            oracle.trace(|| format!("c{} resets r{}", self.script.index, open.call.id));
            self.connection.reset(&mut self.out, stream, ErrorCode::CANCEL);
        }
    }

    fn end_answer(&mut self, stream: u32, oracle: &mut Oracle) -> Result<(), String> {
        let Some(open) = self.open.get_mut(&stream) else { return Ok(()) };
        open.is_answered = true;
        if open.returned.is_some() {
            open.check_tunnel(oracle)?;
        } else {
            let answer = open.answer.as_ref().ok_or("an end before a head")?;
            answer.end(oracle)?;
            oracle.streams += 1;
        }
        if open.is_sent {
            self.open.remove(&stream);
        }
        Ok(())
    }

    fn take_reset(
        &mut self,
        stream: u32,
        cause: ResetCause,
        oracle: &mut Oracle,
    ) -> Result<(), String> {
        let Some(open) = self.open.remove(&stream) else { return Ok(()) };
        let id = open.call.id;
        oracle.trace(|| format!("c{}: r{id} was reset: {cause:?}", self.script.index));
        let is_processed = !oracle.requests[&id].seen.is_empty();
        let code = match cause {
            ResetCause::Fault(fault) => return Err(format!("r{id}: {fault:?}")),
            ResetCause::GoneAway => None,
            ResetCause::Peer(code) => Some(code),
        };
        if cause.is_unprocessed() && is_processed {
            return Err(format!("r{id} was refused, but has reached an origin"));
        }
        if open.returned.is_some() {
            oracle.answers_cut += u64::from(!open.is_answered);
            return open.check_tunnel(oracle);
        }
        if open.is_answered {
            return match code {
                Some(ErrorCode::NO_ERROR) => Ok(()),
                _ => Err(format!("r{id} was reset with {code:?} after its response")),
            };
        }
        let expected = [ErrorCode::INTERNAL_ERROR, ErrorCode::CANCEL, ErrorCode::REFUSED_STREAM];
        if code.is_some_and(|code| !expected.contains(&code)) {
            return Err(format!("r{id} was reset with {code:?}"));
        }
        if oracle.is_calm && !(oracle.is_crowded && cause.is_unprocessed()) {
            return Err(format!("r{id} was reset with {code:?} in a calm run"));
        }
        oracle.answers_cut += 1;
        Ok(())
    }

    fn look_for_end(&mut self, oracle: &mut Oracle) -> bool {
        let Some(line) = &self.line else { return false };
        let was_reset = line.was_reset() && !line.has_bytes();
        if !was_reset && !line.is_finished_by_other() {
            return false;
        }
        self.end(oracle, if was_reset { "reset by the worker" } else { "closed by the worker" });
        true
    }

    /// Does what is due.
    fn act(&mut self, oracle: &mut Oracle) -> bool {
        let (now, start) = (oracle.now, self.script.start_at);
        let mut moved = false;
        if self.has_finished {
            self.out.clear();
            return false;
        }
        while let Some(&(at, size)) = self.script.windows.first()
            && now >= start.after(at)
        {
            self.script.windows.remove(0);
            encode_settings(&mut self.out, &[(INITIAL_WINDOW_SIZE, size)]);
            oracle.trace(|| format!("c{} sets its windows to {size}", self.script.index));
            moved = true;
        }
        let due = self.script.pings.iter().filter(|at| now >= start.after(**at)).count();
        self.script.pings.retain(|at| now < start.after(*at));
        for _ in 0..due {
            self.connection.ping(&mut self.out, [7; 8]);
            self.pings_open += 1;
            moved = true;
        }
        while !self.script.calls.is_empty() && now >= self.next_call_at && self.begin(oracle) {
            moved = true;
        }
        moved | self.send_bodies(oracle)
    }

    /// Begins the next request, if the worker allows it.
    fn begin(&mut self, oracle: &mut Oracle) -> bool {
        if self.is_excluded || self.connection.available_streams() == 0 {
            if self.is_excluded {
                self.script.calls.clear();
            }
            return false;
        }
        let opens_tunnel = self.script.calls.first().is_some_and(|call| call.opens.is_some());
        // The server's SETTINGS allow the extended CONNECT (RFC 8441 section 3).
        if opens_tunnel && !self.connection.has_peer_settings() {
            return false;
        }
        let call = self.script.calls.remove(0);
        let (id, length) = (call.id, call.body.len());
        let line = RequestLine {
            method: if opens_tunnel { "CONNECT" } else { call.method },
            scheme: if self.connector.is_some() { "https" } else { "http" },
            authority: "example",
            path: &call.path,
            protocol: opens_tunnel.then_some("websocket"),
        };
        let has_end = length == 0 && !call.trailer && !call.ends_late && !opens_tunnel;
        let begun = self.connection.send_request(&mut self.out, id, &line, has_end, |fields| {
            fields.field("x-id", id.to_string().as_bytes());
            if call.states_length && matches!(call.method, "POST" | "PUT") {
                fields.field_u64("content-length", length as u64);
            }
            if call.expects_continue {
                fields.field("expect", b"100-continue");
            }
            if opens_tunnel {
                fields.field("sec-websocket-version", b"13");
            }
        });
        let stream = match begun {
            Ok(stream) => stream,
            Err(OpenFault::AtLimit | OpenFault::Ending) => return false,
        };
        oracle.trace(|| {
            let at = self.script.index;
            format!("c{at} begins r{id} on stream {stream}: {} {}", call.method, call.path)
        });
        if let Some(request) = oracle.requests.get_mut(&id) {
            request.begun = true;
        }
        let wait = if call.expects_continue { CONTINUE_PATIENCE } else { call.pace };
        let open = Open {
            begun_at: oracle.now,
            sent: 0,
            is_sent: has_end,
            is_blocked: false,
            write_at: oracle.now.after(wait),
            answer: None,
            is_answered: false,
            returned: None,
            tunnel: TunnelReader::default(),
            call,
        };
        self.open.insert(stream, open);
        let next = self.script.calls.first().map_or(Span::ZERO, |next| next.after);
        self.next_call_at = oracle.now.after(next);
        if self.script.calls.is_empty() && self.script.end == End::GoAway {
            self.connection.stop(&mut self.out);
        }
        true
    }

    /// Sends pieces of bodies, and resets streams whose time has come.
    fn send_bodies(&mut self, oracle: &mut Oracle) -> bool {
        let now = oracle.now;
        let mut moved = false;
        while let Some(stream) = self.connection.poll_writable(&self.out) {
            if let Some(open) = self.open.get_mut(&stream) {
                open.is_blocked = false;
            }
        }
        let streams: Vec<u32> = self.open.keys().copied().collect();
        for stream in streams {
            let Some(open) = self.open.get_mut(&stream) else { continue };
            if let Some(Abort::After(span)) = open.call.abort
                && now >= open.begun_at.after(span)
            {
                self.abort(stream, oracle);
                moved = true;
                continue;
            }
            while !open.is_sent && !open.is_blocked && now >= open.write_at && !open.awaits_tunnel()
            {
                if self.out.len() >= OUT_BYTES_MAX {
                    break;
                }
                let rest = &open.call.body[open.sent..];
                let piece = &rest[..rest.len().min(open.call.piece_bytes)];
                let is_last = piece.len() == rest.len();
                let is_late = open.call.ends_late && !piece.is_empty();
                let ends = is_last && !open.call.trailer && !is_late;
                let sent = self.connection.send_data(now, &mut self.out, stream, piece, ends);
                let Some(sent) = sent else {
                    open.is_sent = true;
                    break;
                };
                moved = true;
                open.sent += sent;
                open.is_blocked = sent < piece.len();
                open.write_at = now.after(open.call.pace);
                if open.sent == open.call.body.len() && open.call.trailer {
                    let value = open.call.id.to_string();
                    self.connection.send_trailers(&mut self.out, stream, |fields| {
                        fields.field("x-trailer", value.as_bytes());
                    });
                    open.is_sent = true;
                }
                open.is_sent |= ends && sent == piece.len();
            }
            if open.is_sent && open.is_answered {
                self.open.remove(&stream);
            }
        }
        moved
    }

    fn flush(&mut self, oracle: &mut Oracle) -> bool {
        let Some(line) = &self.line else { return false };
        let mut moved = false;
        while !self.out.is_empty() && oracle.now >= self.write_at {
            let count = self.out.len().min(self.script.piece_bytes);
            let sent = line.send(&self.out[..count]);
            if sent == 0 {
                break;
            }
            moved = true;
            oracle.moved_bytes += sent as u64;
            self.out.drain(..sent);
            if self.script.piece_bytes != usize::MAX {
                self.write_at = oracle.now.after(Span::from_nanos(1));
            }
        }
        if self.out.is_empty() {
            self.connection.output_drained();
        }
        moved
    }

    fn end_if_done(&mut self, oracle: &mut Oracle) {
        let all_begun = self.script.calls.is_empty();
        let all_sent = all_begun && self.open.values().all(|open| open.is_sent);
        if self.script.end == End::Finish && all_sent && self.out.is_empty() && !self.has_finished {
            self.has_finished = true;
            oracle.trace(|| format!("c{} finishes", self.script.index));
            if let Some(line) = &self.line {
                line.finish();
            }
        }
        let is_done = all_begun && self.open.is_empty() && self.out.is_empty();
        let leaves = matches!(self.script.end, End::Leave | End::GoAway);
        if is_done && leaves && (self.pings_open == 0 || !oracle.is_calm) {
            self.end(oracle, "the client left");
        }
    }

    fn end(&mut self, oracle: &mut Oracle, why: &str) {
        let waiting: Vec<u64> = self
            .open
            .values()
            .filter(|open| !open.is_answered && open.call.abort.is_none())
            .map(|open| open.call.id)
            .collect();
        oracle.trace(|| format!("c{} ends: {why}; unanswered: {waiting:?}", self.script.index));
        let is_processed = |id: &u64| !oracle.requests[id].seen.is_empty();
        let may_lose = oracle.is_crowded && !waiting.iter().any(is_processed);
        if oracle.is_calm && !waiting.is_empty() && !may_lose && oracle.violations.is_empty() {
            oracle.violate(format!(
                "c{} ends with unanswered requests ({why}): {waiting:?}",
                self.script.index
            ));
        }
        self.ended = true;
        self.line = None;
    }
}
