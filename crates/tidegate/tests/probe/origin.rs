//! The origin behind the proxy: records every request that it receives, and sends scripted responses.
//! In: connections. Out: a record of each request; the scripted responses, byte for byte.
//! Never: accepts a request that is not canonical: it is recorded as malformed.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::message::{Broken, Framing, Message, MessageReader, stated_framing};

/// Reads and scripts that take longer have failed. The limit keeps a test from hanging.
const READ_MAX: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(2);

/// One step of a scripted response.
#[derive(Clone, Debug)]
pub enum Play {
    /// As the first step: answers before the request's body is read. Anywhere else it has no effect.
    Early,
    /// Sends these bytes unchanged.
    Send(Vec<u8>),
    /// Closes the connection cleanly.
    Close,
    /// Resets the connection.
    Reset,
    /// Waits until the proxy ends the connection.
    Hold,
    /// Waits until the proxy has read everything sent so far, so that the next step reaches it separately.
    WaitRead,
    /// Sends back everything received until the other side ends.
    Echo,
}

/// One event on a connection of the origin.
#[derive(Clone, Debug)]
pub enum Record {
    Request(Message),
    /// The connection ended in the middle of a request.
    Cut,
    /// The bytes received are not a request that an intermediary may send.
    Malformed(String),
}

#[derive(Default)]
struct Shared {
    /// The responses to the next requests, one script each.
    scripts: Mutex<VecDeque<Vec<Play>>>,
    /// In the order of arrival.
    records: Mutex<Vec<Record>>,
    /// Scripts that have begun and not ended.
    playing: AtomicUsize,
}

/// The recording server.
pub struct Origin {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl Origin {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&for_thread);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// Answers the next requests with these scripts, one each; later requests get the plain response.
    /// Clears the records.
    pub fn set_scripts(&self, scripts: Vec<Vec<Play>>) {
        *self.shared.scripts.lock().expect("no thread panicked while holding the lock") =
            scripts.into();
        self.shared.records.lock().expect("no thread panicked while holding the lock").clear();
    }

    /// Waits until no script is being played, that is, until everything that scripts send has been sent.
    pub fn wait_until_played(&self) {
        let began = Instant::now();
        while self.shared.playing.load(Ordering::SeqCst) > 0 {
            assert!(began.elapsed() < READ_MAX, "a script never ends");
            std::thread::sleep(POLL_EVERY);
        }
    }

    pub fn records(&self) -> Vec<Record> {
        self.shared.records.lock().expect("no thread panicked while holding the lock").clone()
    }
}

/// The body of the plain response to a request for `target`.
pub fn plain_body(target: &str) -> String {
    format!("answer to {target}")
}

fn serve(stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
    let note = |record| {
        shared.records.lock().expect("no thread panicked while holding the lock").push(record)
    };
    let mut reader = MessageReader::new(stream);
    loop {
        let mut request = match reader.read_head() {
            Ok(request) => request,
            Err(Broken::Malformed(what)) => return note(Record::Malformed(what)),
            Err(Broken::Cut) => return note(Record::Cut),
            Err(Broken::Ended | Broken::Io(_)) => return,
        };
        let framing = match check_request(&request) {
            Ok(framing) => framing,
            Err(what) => return note(Record::Malformed(what)),
        };
        let is_plain = request.start.contains("/sentinel");
        let mut script = if is_plain {
            None
        } else {
            shared.scripts.lock().expect("no thread panicked while holding the lock").pop_front()
        };
        let early = matches!(script.as_deref(), Some([Play::Early, ..]));
        if !early {
            let awaits_100 = request.lists("expect", "100-continue");
            if awaits_100 && script.is_none() {
                let _ = reader.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            if let (true, Some([Play::Send(interim), ..])) = (awaits_100, script.as_deref()) {
                let _ = reader.stream.write_all(interim);
                script = script.map(|script| script[1..].to_vec());
            }
            match reader.read_body(&mut request, framing) {
                Ok(()) if request.whole => note(Record::Request(request.clone())),
                Err(Broken::Malformed(what)) => return note(Record::Malformed(what)),
                Ok(()) | Err(_) => return note(Record::Cut),
            }
        } else {
            request.framing = framing;
            note(Record::Request(request.clone()));
        }
        let script = script.unwrap_or_else(|| vec![plain_answer(&request)]);
        shared.playing.fetch_add(1, Ordering::SeqCst);
        let stays = play(&mut reader, &script, shared);
        if !stays {
            return;
        }
    }
}

fn plain_answer(request: &Message) -> Play {
    let target = request.start.split(' ').nth(1).unwrap_or_default();
    let body = plain_body(target);
    let content = if request.start.starts_with("HEAD ") { "" } else { &body };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", body.len());
    Play::Send(head.into_bytes())
}

/// Plays a script; returns false when the connection is over. The steps that wait for the proxy to end the
/// connection do not count as playing.
fn play(reader: &mut MessageReader<TcpStream>, script: &[Play], shared: &Shared) -> bool {
    let waits = |step: &Play| matches!(step, Play::Close | Play::Hold | Play::Echo);
    let sends = script.iter().take_while(|step| !waits(step)).count();
    let stays = play_steps(reader, &script[..sends]);
    shared.playing.fetch_sub(1, Ordering::SeqCst);
    stays && play_steps(reader, &script[sends..])
}

fn play_steps(reader: &mut MessageReader<TcpStream>, script: &[Play]) -> bool {
    for step in script {
        match step {
            Play::Early => {}
            Play::Send(bytes) => {
                if reader.stream.write_all(bytes).is_err() {
                    return false;
                }
            }
            Play::WaitRead => wait_until_read(&reader.stream),
            Play::Close => {
                let _ = reader.stream.shutdown(Shutdown::Write);
                let _ = reader.stream.read_to_end(&mut Vec::new());
                return false;
            }
            Play::Reset => {
                let zero = Some(Duration::ZERO);
                let _ = rustix::net::sockopt::set_socket_linger(&reader.stream, zero);
                return false;
            }
            Play::Hold => {
                let _ = reader.stream.read_to_end(&mut Vec::new());
                return false;
            }
            Play::Echo => {
                let early = std::mem::take(&mut reader.buffer);
                let _ = reader.stream.write_all(&early);
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = reader.stream.read(&mut piece) {
                    let _ = reader.stream.write_all(&piece[..count]);
                }
                return false;
            }
        }
    }
    true
}

/// Waits until the other end, which is on this host, has read everything sent over `stream`, or is gone.
fn wait_until_read(stream: &TcpStream) {
    let (Ok(own), Ok(other)) = (stream.local_addr(), stream.peer_addr()) else { return };
    let began = Instant::now();
    while queued_bytes(own, other, Queue::Sent) + queued_bytes(other, own, Queue::Received) > 0 {
        assert!(began.elapsed() < READ_MAX, "the proxy does not read what was sent");
        std::thread::sleep(POLL_EVERY);
    }
}

#[derive(Clone, Copy)]
enum Queue {
    /// Bytes sent that the other end's kernel has not acknowledged.
    Sent,
    /// Bytes received that the program has not read.
    Received,
}

/// The bytes that the kernel holds in a queue of the end at `local` of a connection (proc(5), /proc/net/tcp).
fn queued_bytes(local: SocketAddr, remote: SocketAddr, queue: Queue) -> u64 {
    let hexadecimal = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(v4.ip().octets()), v4.port())
        }
        SocketAddr::V6(v6) => panic!("{v6}: the probe's origin is on IPv4"),
    };
    let table = std::fs::read_to_string("/proc/net/tcp").expect("proc is mounted");
    let ends = format!(" {} {} ", hexadecimal(local), hexadecimal(remote));
    let Some((_, rest)) = table.split_once(&ends) else { return 0 };
    let queues = rest.split(' ').nth(1).and_then(|queues| queues.split_once(':'));
    let (sent, received) = queues.expect("the columns are those of proc(5)");
    let held = match queue {
        Queue::Sent => sent,
        Queue::Received => received,
    };
    u64::from_str_radix(held, 16).expect("a hexadecimal number")
}

/// Checks the rules for every request from an intermediary, whatever the client sent.
fn check_request(request: &Message) -> Result<Framing, String> {
    let words: Vec<&str> = request.start.split(' ').collect();
    let [_, target, "HTTP/1.1"] = words.as_slice() else {
        return Err(format!("bad request line {:?}", request.start));
    };
    if !target.starts_with('/') && *target != "*" {
        return Err(format!("bad target {target:?} (RFC 9112 section 3.2.1)"));
    }
    for single in ["host", "content-length", "transfer-encoding", "x-forwarded-for", "forwarded"] {
        if request.values(single).len() > 1 {
            return Err(format!("{single} occurs more than once"));
        }
    }
    if request.values("host").len() != 1 {
        return Err("not exactly one Host field (RFC 9112 section 3.2)".into());
    }
    for hop in ["keep-alive", "proxy-connection", "proxy-authorization", "http2-settings"] {
        if !request.values(hop).is_empty() {
            return Err(format!(
                "{hop}, a hop-by-hop field of the client's connection (RFC 9110 section 7.6.1)"
            ));
        }
    }
    for option in request.values("connection").into_iter().flat_map(|value| value.split(',')) {
        if !["close", "te", "upgrade"].iter().any(|ours| option.trim().eq_ignore_ascii_case(ours)) {
            return Err(format!("the connection option {option:?} was forwarded"));
        }
    }
    for option in ["te", "upgrade"] {
        let (field, named) = (request.values(option), request.lists("connection", option));
        if field.is_empty() == named {
            return Err(format!("{option} and Connection disagree (RFC 9110 section 7.6.1)"));
        }
    }
    let via = request.values("via").join(", ");
    if !via.ends_with("1.1 tidegate") && !via.ends_with("1.0 tidegate") {
        return Err(format!("Via is {via:?} (RFC 9110 section 7.6.3)"));
    }
    let framing = stated_framing(request).map_err(|broken| format!("{broken:?}"))?;
    Ok(framing.unwrap_or(Framing::None))
}
