//! The server that a route asks about its requests. It grants each of them, sometimes after a while.
//! In: questions of the workers. Out: answers with the field that the route copies.
//! Limits: `PAUSE_MAX`.

use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_reactor::{SimNet, SimPeer, SimServer};

use crate::oracle::Oracle;

/// The server's address.
pub const ADDRESS: ([u8; 4], u16) = ([10, 0, 9, 1], 8000);
/// The field of an answer that goes to the request's own server, and its value.
pub const COPIED: (&str, &str) = ("x-granted", "yes");
/// The longest time between a question and its answer.
const PAUSE_MAX: Span = Span::from_millis(20);

/// The server.
pub struct Asked {
    server: SimServer,
    conns: Vec<Conn>,
    prng: Prng,
}

/// One connection of a worker.
struct Conn {
    peer: SimPeer,
    received: Vec<u8>,
    /// When the first question is answered; `None` if there is none.
    answer_at: Option<Moment>,
    unsent: Vec<u8>,
}

impl Asked {
    /// Serves the questions of a run.
    pub fn new(net: &SimNet, seed: u64) -> Option<Self> {
        let server = net.serve(&Address::Tcp(ADDRESS.into()))?;
        Some(Self { server, conns: Vec::new(), prng: Prng::new(seed ^ 0x6173_6b65_6421) })
    }

    /// When the next answer is sent.
    pub fn next_at(&self, now: Moment) -> Option<Moment> {
        self.conns.iter().filter_map(|conn| conn.answer_at).filter(|at| *at > now).min()
    }

    /// Receives questions, and sends the answers that are due. Returns whether anything moved.
    pub fn step(&mut self, now: Moment, oracle: &mut Oracle) -> bool {
        let mut moved = false;
        while let Some(peer) = self.server.accept() {
            moved = true;
            let (received, unsent) = (Vec::new(), Vec::new());
            self.conns.push(Conn { peer, received, answer_at: None, unsent });
        }
        for conn in &mut self.conns {
            let bytes = conn.peer.receive();
            moved |= !bytes.is_empty();
            conn.received.extend(bytes);
            let end = conn.received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            if let Some(end) = end
                && conn.answer_at.is_none()
            {
                let head = String::from_utf8_lossy(&conn.received[..end + 4]).into_owned();
                check(&head, oracle);
                conn.received.drain(..end + 4);
                let pause = self.prng.below(PAUSE_MAX.as_nanos() as u64) * self.prng.below(2);
                conn.answer_at = Some(now.after(Span::from_nanos(pause)));
            }
            if conn.answer_at.take_if(|at| *at <= now).is_some() {
                let answer =
                    format!("HTTP/1.1 204 No Content\r\n{}: {}\r\n\r\n", COPIED.0, COPIED.1);
                conn.unsent.extend(answer.as_bytes());
                moved = true;
            }
            let sent = conn.peer.send(&conn.unsent);
            conn.unsent.drain(..sent);
            moved |= sent > 0;
        }
        let count = self.conns.len();
        self.conns.retain(|conn| !conn.peer.is_finished_by_other() && !conn.peer.was_reset());
        moved || self.conns.len() < count
    }
}

/// A question has no body, and tells which request it is about.
fn check(head: &str, oracle: &mut Oracle) {
    let lower = head.to_ascii_lowercase();
    let is_get = head.starts_with("GET /verify HTTP/1.1\r\n");
    let is_right = (is_get || head.starts_with("HEAD /verify HTTP/1.1\r\n"))
        && lower.contains("\r\nx-forwarded-uri: /p1/")
        && !lower.contains("\r\ncontent-length:")
        && !lower.contains("\r\ntransfer-encoding:");
    if !is_right {
        oracle.violate(format!("a wrong question: {head}"));
    }
}
