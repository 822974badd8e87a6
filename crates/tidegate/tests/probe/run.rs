//! Plays vectors one by one, and checks what the client and the origin saw.
//! In: a table of vectors. Out: one line for each vector that failed.
//! Invariant: after each vector Tidegate answers a plain request on a new connection.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::gate::{Gate, RESPOND_BODY};
use crate::message::{Broken, Framing, Message, MessageReader, stated_framing};
use crate::origin::{Origin, Record, plain_body};
use crate::vector::{End, Routes, Vector};

/// How the client's bytes are split into sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    Whole,
    /// One byte per send.
    Bytes,
}

/// Descriptors that may stay open in all descriptor tables together: the worker's copy of the process's
/// table, the listeners, and the idle connections to the origin.
const DESCRIPTORS_MAX: usize = 120;
/// Far above what the vectors need, and far below what leaked bodies would occupy.
const RESIDENT_BYTES_MAX: u64 = 256 << 20;

/// A running Tidegate, an origin, and the failures so far.
pub struct Probe {
    pub gate: Gate,
    pub origin: Origin,
    /// One line for each failed run.
    failures: Vec<String>,
    /// Runs so far: a vector counts once for each listener and each way of splitting.
    played: usize,
    /// Plain requests sent so far to see that a connection still works; each has a target of its own.
    sentinels: usize,
}

impl Probe {
    pub fn start() -> Self {
        let origin = Origin::start();
        let gate = Gate::start(origin.address);
        Self { gate, origin, failures: Vec::new(), played: 0, sentinels: 0 }
    }

    /// The failures so far, one line each.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Plays every vector at every listener that it is for: in one send, and byte by byte if it is short.
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
                        self.failures.push(format!("{name}: the check after it: {what}"));
                    }
                }
            }
        }
    }

    /// Fails the test if a vector failed, a descriptor or memory leaked, or the process keeps using CPU time.
    pub fn finish(mut self) {
        self.check_cost();
        let failures = self.failures.join("\n");
        let count = self.failures.len();
        assert!(count == 0, "{count} of {} runs failed:\n{failures}", self.played);
        assert!(self.played > 0);
    }

    /// Checks that no descriptor and no memory leaked, and that the process is idle without clients.
    fn check_cost(&mut self) {
        // Connections that are still closing go away after a while. The listeners, the pool's idle
        // connections and the process's own descriptors stay.
        if !comes_true(|| self.gate.descriptors() < DESCRIPTORS_MAX) {
            let open = self.gate.descriptors();
            self.failures.push(format!("{open} descriptors are open without any client"));
        }
        // An idle process uses no CPU time; a spinning one uses some between any two readings.
        let mut before = self.gate.cpu_time();
        let rests = || {
            let last = std::mem::replace(&mut before, self.gate.cpu_time());
            last == before
        };
        if !comes_true(rests) {
            self.failures.push("the process keeps using CPU time without any client".to_owned());
        }
        let resident = self.gate.resident_bytes();
        if resident > RESIDENT_BYTES_MAX {
            self.failures.push(format!(
                "{resident} bytes of memory are resident, above {RESIDENT_BYTES_MAX}"
            ));
        }
    }

    /// Checks that both the proxied and the local route respond.
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
            // The local response is sent before the body is read: it stays valid, but nothing may follow it.
            vector = vector.one_of(&[200]).ends(End::Any);
            let answer = read_answer(&mut reader, false).map_err(|broken| format!("{broken:?}"))?;
            return if matches!(answer.status(), 200 | 400 | 413 | 431) {
                check_ends(&mut reader, true)
            } else {
                Err(format!("the response is {answer:?}, expected one of {:?}", vector.statuses))
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
            let last = answers.last().ok_or("there is no response")?;
            check.verify(last).map_err(|what| format!("at the client: {what}"))?;
        }
        // If a request was refused after a part of it had been forwarded, the reset of its connection either
        // reaches the origin before the check below ends or never comes.
        drop(reader);
        self.check_alive(address)?;
        if is_proxied || vector.routes == Routes::Local {
            self.check_origin(vector)
        } else {
            Ok(())
        }
    }

    /// Checks that the connection carries one more request, and that its response is the right one.
    fn check_keeps(
        &mut self,
        reader: &mut MessageReader<TcpStream>,
        is_proxied: bool,
    ) -> Result<(), String> {
        if !reader.buffer.is_empty() {
            return Err(format!("bytes after the last response: {}", shown(&reader.buffer)));
        }
        self.sentinels += 1;
        let target = format!("/sentinel-{}", self.sentinels);
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let _ = reader.stream.write_all(request.as_bytes());
        let answer = read_answer(reader, false).map_err(|broken| {
            format!("no response to a further request on the connection: {broken:?}")
        })?;
        let wanted = if is_proxied { plain_body(&target) } else { RESPOND_BODY.to_owned() };
        // The local listener has no route for this target.
        let unrouted = !is_proxied && answer.status() == 404;
        if answer.body != wanted.as_bytes() && !unrouted {
            return Err(format!("the response to the next request is {answer:?}"));
        }
        Ok(())
    }

    /// Checks that the listener answers on a new connection.
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
                Record::Malformed(what) => {
                    return Err(format!("the origin received a malformed request: {what}"));
                }
            }
        }
        if let Some(seen) = vector.seen.filter(|&seen| seen != requests.len()) {
            return Err(format!("the origin saw {requests:?}, expected {seen} requests"));
        }
        for check in &vector.origin {
            let last = requests.last().ok_or("the origin saw no request")?;
            check.verify(last).map_err(|what| format!("at the origin: {what}"))?;
        }
        Ok(())
    }
}

/// Whether `what` becomes true. It is checked for 30 s, far longer than a working process needs.
fn comes_true(mut what: impl FnMut() -> bool) -> bool {
    const LOOKS_MAX: usize = 150;
    const POLL_EVERY: Duration = Duration::from_millis(200);
    (0..LOOKS_MAX).any(|_| {
        std::thread::sleep(POLL_EVERY);
        what()
    })
}

pub fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address)
        .map_err(|error| format!("cannot connect to {address}: {error}"))?;
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(8)));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(8)));
    Ok(stream)
}

/// Sends `bytes`. Stops early if the connection breaks, as it may when the request is refused.
fn send(mut stream: &TcpStream, bytes: &[u8], cut: Cut) {
    let size = if cut == Cut::Whole { bytes.len().max(1) } else { 1 };
    for piece in bytes.chunks(size) {
        if stream.write_all(piece).is_err() {
            return;
        }
    }
}

/// Reads the final responses that the vector expects, and the interim responses before each of them.
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
                format!("no response after {} responses: {broken:?}", answers.len())
            })?;
            check_answer(&answer, is_proxied)?;
            if answer.status() >= 200 || (answer.status() == 101 && wanted.contains(&101)) {
                break answer;
            }
            interims.push(answer.status());
            let _ = reader.stream.write_all(std::mem::take(&mut owed));
        };
        if !wanted.contains(&answer.status()) {
            return Err(format!("the response is {answer:?}, expected one of {wanted:?}"));
        }
        answers.push(answer);
    }
    if let Some(wanted) = vector.interims.as_ref().filter(|wanted| **wanted != interims) {
        return Err(format!("the interim responses are {interims:?}, expected {wanted:?}"));
    }
    let cut = answers.last().is_some_and(|answer| !answer.whole);
    if cut != (vector.end == End::Cut) {
        let state = if cut { "incomplete" } else { "complete" };
        return Err(format!("the last response is unexpectedly {state}: {:?}", answers.last()));
    }
    if vector.end == End::Closes && !vector.statuses.is_empty() {
        let last = answers.last().ok_or("there is no response")?;
        if !last.lists("connection", "close") {
            return Err(format!(
                "no Connection: close before the end (RFC 9112 section 9.6): {last:?}"
            ));
        }
    }
    Ok(answers)
}

/// Reads one response, as RFC 9112 section 6.3 defines its length.
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
        // A response ended by a reset is an incomplete response, not an error.
        Ok(()) | Err(Broken::Io(std::io::ErrorKind::ConnectionReset)) => Ok(answer),
        Err(broken) => Err(broken),
    }
}

/// Checks the rules for every response to a client, whatever the origin sent.
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
        return wrong("a length is not allowed with this status (RFC 9110 section 8.6)");
    }
    if status >= 200 && answer.values("date").len() != 1 {
        return wrong("not exactly one Date field (RFC 9110 section 6.6.1)");
    }
    if answer.values("connection").len() > 1 || answer.values("content-type").len() > 1 {
        return wrong("Connection or Content-Type occurs more than once");
    }
    for hop in ["keep-alive", "proxy-connection", "te"] {
        if !answer.values(hop).is_empty() {
            return wrong("a hop-by-hop field of the upstream connection (RFC 9110 section 7.6.1)");
        }
    }
    if status != 101 && status != 426 && !answer.values("upgrade").is_empty() {
        return wrong("the Upgrade field of the upstream connection (RFC 9110 section 7.8)");
    }
    let answered_here = !answer.values("server").is_empty();
    if is_proxied && !answered_here && !answer.values("via").join(",").ends_with(" tidegate") {
        return wrong("no Via entry of Tidegate (RFC 9110 section 7.6.3)");
    }
    Ok(())
}

/// Checks that the connection ends, and that nothing came after the last response.
fn check_ends(reader: &mut MessageReader<TcpStream>, may_reset: bool) -> Result<(), String> {
    match reader.read_head() {
        Err(Broken::Ended) => Ok(()),
        Err(Broken::Io(std::io::ErrorKind::ConnectionReset)) if may_reset => Ok(()),
        Err(broken) => Err(format!("the connection did not end cleanly: {broken:?}")),
        Ok(message) => Err(format!("another message came after the last response: {message:?}")),
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
