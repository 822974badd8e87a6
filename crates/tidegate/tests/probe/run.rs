//! Plays vectors one by one, and judges both sides.
//! In: a table. Out: a line for each vector that failed.
//! Invariant: after each vector the server answers a plain request on a new connection.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::gate::{Gate, RESPOND_BODY};
use crate::message::{Broken, Framing, Message, MessageReader, stated_framing};
use crate::origin::{Origin, Record, plain_body};
use crate::vector::{End, Routes, Vector};

/// How the client's bytes are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    Whole,
    /// One byte a send.
    Bytes,
}

/// Descriptors of all tables together: the worker's copy of the process's, its listeners, its idle
/// connections to the origin.
const DESCRIPTORS_MAX: usize = 120;
/// Far above what the vectors need, far below what a leak of their bodies would leave.
const RESIDENT_BYTES_MAX: u64 = 256 << 20;

/// A server, an origin, and what has failed so far.
pub struct Probe {
    pub gate: Gate,
    pub origin: Origin,
    failures: Vec<String>,
    played: usize,
    sentinels: usize,
}

impl Probe {
    pub fn start() -> Self {
        let origin = Origin::start();
        let gate = Gate::start(origin.address);
        Self { gate, origin, failures: Vec::new(), played: 0, sentinels: 0 }
    }

    /// What has failed so far.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Plays every vector to every listener it is for, whole and in single bytes.
    pub fn play(&mut self, vectors: &[Vector]) {
        for vector in vectors {
            let places: &[(&str, SocketAddr)] = match vector.routes {
                Routes::Both => &[("proxy", self.gate.proxy), ("respond", self.gate.respond)],
                Routes::Proxy => &[("proxy", self.gate.proxy)],
                Routes::Respond => &[("respond", self.gate.respond)],
                Routes::Local => &[("local", self.gate.local)],
            };
            for &(place, address) in places {
                let cuts: &[Cut] = if vector.send.len() < 2000 {
                    &[Cut::Whole, Cut::Bytes]
                } else {
                    &[Cut::Whole]
                };
                for &cut in cuts {
                    self.played += 1;
                    let name = format!("{} ({}) at {place}, {cut:?}", vector.name, vector.rule);
                    if let Err(what) = self.play_one(vector, place, address, cut) {
                        self.failures.push(format!("{name}: {what}"));
                    }
                    if let Err(what) = self.check_alive(address) {
                        self.failures.push(format!("{name}: afterwards: {what}"));
                    }
                }
            }
        }
    }

    /// Fails the test where a vector failed, a descriptor leaked or the server span.
    pub fn finish(mut self) {
        self.check_cost();
        let failures = self.failures.join("\n");
        let count = self.failures.len();
        assert!(count == 0, "{count} of {} runs failed:\n{failures}", self.played);
        assert!(self.played > 0);
    }

    /// Nothing is left open but what waits for use, and nothing span.
    fn check_cost(&mut self) {
        // Ends that linger are gone after a while: what stays is listeners, idle connections of the
        // pool and the process's own.
        if !comes_true(|| self.gate.descriptors() < DESCRIPTORS_MAX) {
            let open = self.gate.descriptors();
            self.failures.push(format!("{open} descriptors are open with nobody connected"));
        }
        // Who has nothing to do uses no CPU time; who spins does between any two looks.
        let mut before = self.gate.cpu_time();
        let rests = || {
            let last = std::mem::replace(&mut before, self.gate.cpu_time());
            last == before
        };
        if !comes_true(rests) {
            self.failures.push("it never stops using CPU time with nobody connected".to_owned());
        }
        let resident = self.gate.resident_bytes();
        if resident > RESIDENT_BYTES_MAX {
            self.failures.push(format!("{resident} bytes are resident"));
        }
    }

    /// Both the proxied and the prepared route answer.
    pub fn check_everywhere(&mut self) {
        self.played += 1;
        for address in [self.gate.proxy, self.gate.respond] {
            if let Err(what) = self.check_alive(address) {
                self.failures.push(what);
            }
        }
    }

    fn play_one(
        &mut self,
        vector: &Vector,
        place: &str,
        address: SocketAddr,
        cut: Cut,
    ) -> Result<(), String> {
        self.origin.set_scripts(vector.scripts.clone());
        let stream = connect(address)?;
        send(&stream, &vector.send, cut);
        if vector.half_close {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let mut reader = MessageReader::new(stream);
        let is_proxied = place == "proxy";
        let mut vector = vector.clone();
        if vector.broken_body && !is_proxied {
            // Answered before the body was read: the answer stands, and nothing may follow it.
            vector = vector.one_of(&[200]).ends(End::Any);
            let answer = read_answer(&mut reader, false).map_err(|broken| format!("{broken:?}"))?;
            return if matches!(answer.status(), 200 | 400 | 413 | 431) {
                check_ends(&mut reader, true)
            } else {
                Err(format!("answered {answer:?}, not {:?}", vector.statuses))
            };
        }
        let vector = &vector;
        let answers = match read_answers(&mut reader, vector, is_proxied) {
            Err(what) if vector.optional && what.contains("Ended") => return Ok(()),
            answers => answers?,
        };
        if vector.end == End::Keeps {
            self.origin.wait_until_played();
        }
        match vector.end {
            End::Keeps => self.check_keeps(&mut reader, is_proxied)?,
            End::Closes | End::Cut => check_ends(&mut reader, vector.end == End::Cut)?,
            End::Any => {}
        }
        for check in &vector.client {
            let last = answers.last().ok_or("there is no answer")?;
            check.judge(last).map_err(|what| format!("the client: {what}"))?;
        }
        // A reset of what was refused half-way reaches the origin before this, or never.
        drop(reader);
        self.check_alive(address)?;
        if is_proxied || vector.routes == Routes::Local {
            self.check_origin(vector)
        } else {
            Ok(())
        }
    }

    /// The connection carries one more request, and its answer is the right one.
    fn check_keeps(
        &mut self,
        reader: &mut MessageReader<TcpStream>,
        is_proxied: bool,
    ) -> Result<(), String> {
        if !reader.buffer.is_empty() {
            return Err(format!("more bytes than answers: {}", shown(&reader.buffer)));
        }
        self.sentinels += 1;
        let target = format!("/sentinel-{}", self.sentinels);
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let _ = reader.stream.write_all(request.as_bytes());
        let answer = read_answer(reader, false)
            .map_err(|broken| format!("the connection carries no further request: {broken:?}"))?;
        let wanted = if is_proxied { plain_body(&target) } else { RESPOND_BODY.to_owned() };
        // The local listener has no route for it.
        let unrouted = !is_proxied && answer.status() == 404;
        if answer.body != wanted.as_bytes() && !unrouted {
            return Err(format!("the next request's answer is {answer:?}"));
        }
        Ok(())
    }

    /// The server answers on a new connection.
    fn check_alive(&mut self, address: SocketAddr) -> Result<(), String> {
        let mut reader = MessageReader::new(connect(address)?);
        self.check_keeps(&mut reader, address == self.gate.proxy)
    }

    fn check_origin(&self, vector: &Vector) -> Result<(), String> {
        let records = self.origin.records();
        let mut requests = Vec::new();
        for record in &records {
            match record {
                Record::Request(request) if request.start.contains("/sentinel") => {}
                Record::Request(request) => requests.push(request),
                Record::Cut => {}
                Record::Malformed(what) => return Err(format!("the origin was sent: {what}")),
            }
        }
        if let Some(seen) = vector.seen.filter(|&seen| seen != requests.len()) {
            return Err(format!("the origin saw {requests:?}, not {seen} of them"));
        }
        for check in &vector.origin {
            let last = requests.last().ok_or("the origin saw no request")?;
            check.judge(last).map_err(|what| format!("the origin: {what}"))?;
        }
        Ok(())
    }
}

/// Whether `what` comes true; given up only where a working server would long have made it so.
fn comes_true(mut what: impl FnMut() -> bool) -> bool {
    const LOOKS_MAX: usize = 150;
    const LOOK_AGAIN: Duration = Duration::from_millis(200);
    (0..LOOKS_MAX).any(|_| {
        std::thread::sleep(LOOK_AGAIN);
        what()
    })
}

pub fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).map_err(|error| format!("no connection: {error}"))?;
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(8)));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(8)));
    Ok(stream)
}

/// Sends what the other side will take; a refusal may end it early.
fn send(mut stream: &TcpStream, bytes: &[u8], cut: Cut) {
    let size = if cut == Cut::Whole { bytes.len().max(1) } else { 1 };
    for piece in bytes.chunks(size) {
        if stream.write_all(piece).is_err() {
            return;
        }
    }
}

/// Reads the answers that the vector wants, interim ones before them.
fn read_answers(
    reader: &mut MessageReader<TcpStream>,
    vector: &Vector,
    is_proxied: bool,
) -> Result<Vec<Message>, String> {
    let mut answers = Vec::new();
    let mut interims = Vec::new();
    let mut owed = vector.send_after_interim.as_slice();
    for wanted in &vector.statuses {
        let answer = loop {
            let answer = read_answer(reader, vector.is_head()).map_err(|broken| {
                format!("no answer after {} of them: {broken:?}", answers.len())
            })?;
            check_answer(&answer, is_proxied)?;
            if answer.status() >= 200 || (answer.status() == 101 && wanted.contains(&101)) {
                break answer;
            }
            interims.push(answer.status());
            let _ = reader.stream.write_all(std::mem::take(&mut owed));
        };
        if !wanted.contains(&answer.status()) {
            return Err(format!("answered {answer:?}, not {wanted:?}"));
        }
        answers.push(answer);
    }
    if let Some(wanted) = vector.interims.as_ref().filter(|wanted| **wanted != interims) {
        return Err(format!("interim answers {interims:?}, not {wanted:?}"));
    }
    let cut = answers.last().is_some_and(|answer| !answer.whole);
    if cut != (vector.end == End::Cut) {
        return Err(format!("the answer's end is wrong: {:?}", answers.last()));
    }
    if vector.end == End::Closes && !vector.statuses.is_empty() {
        let last = answers.last().ok_or("there is no answer")?;
        if !last.lists("connection", "close") {
            return Err(format!("it closes without saying so (RFC 9112 section 9.6): {last:?}"));
        }
    }
    Ok(answers)
}

/// Reads one answer, by RFC 9112 section 6.3.
pub fn read_answer(
    reader: &mut MessageReader<TcpStream>,
    is_head: bool,
) -> Result<Message, Broken> {
    let mut answer = reader.read_head()?;
    let status = answer.status();
    let stated = stated_framing(&answer)?;
    let framing = match stated {
        _ if is_head || status < 200 || matches!(status, 204 | 304) => Framing::None,
        Some(framing) => framing,
        None => Framing::UntilClose,
    };
    match reader.read_body(&mut answer, framing) {
        // What was cut by a reset is cut.
        Ok(()) | Err(Broken::Io(std::io::ErrorKind::ConnectionReset)) => Ok(answer),
        Err(broken) => Err(broken),
    }
}

/// What every answer to a client must keep, whatever the origin said.
fn check_answer(answer: &Message, is_proxied: bool) -> Result<(), String> {
    let status = answer.status();
    let wrong = |what: &str| Err(format!("{what}: {answer:?}"));
    if !answer.start.starts_with(&format!("HTTP/1.1 {status} ")) {
        return wrong("the status line is not canonical (RFC 9112 section 4)");
    }
    if (status < 200 || status == 204)
        && !(answer.values("content-length").is_empty()
            && answer.values("transfer-encoding").is_empty())
    {
        return wrong("a length where none may be (RFC 9110 section 8.6)");
    }
    if status >= 200 && answer.values("date").len() != 1 {
        return wrong("not one Date (RFC 9110 section 6.6.1)");
    }
    if answer.values("connection").len() > 1 || answer.values("content-type").len() > 1 {
        return wrong("a field twice");
    }
    for hop in ["keep-alive", "proxy-connection", "te"] {
        if !answer.values(hop).is_empty() {
            return wrong("a field of the other hop (RFC 9110 section 7.6.1)");
        }
    }
    if status != 101 && status != 426 && !answer.values("upgrade").is_empty() {
        return wrong("Upgrade of the other hop (RFC 9110 section 7.8)");
    }
    let answered_here = !answer.values("server").is_empty();
    if is_proxied && !answered_here && !answer.values("via").join(",").ends_with(" tidegate") {
        return wrong("no Via (RFC 9110 section 7.6.3)");
    }
    Ok(())
}

/// The connection ends, and nothing came after the last answer.
fn check_ends(reader: &mut MessageReader<TcpStream>, may_reset: bool) -> Result<(), String> {
    match reader.read_head() {
        Err(Broken::Ended) => Ok(()),
        Err(Broken::Io(std::io::ErrorKind::ConnectionReset)) if may_reset => Ok(()),
        Err(broken) => Err(format!("the connection did not end in order: {broken:?}")),
        Ok(message) => Err(format!("after the last answer came {message:?}")),
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
