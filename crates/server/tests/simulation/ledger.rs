//! What the world knows of every request: what was sent, what origins saw, what clients got.
//! In: notes of clients and origins. Out: violations: what must never have happened.
//! Never: asks the server anything: what it claims of itself does not count here.
//! Invariant: a run is good exactly when `violations` stays empty.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use tidegate_base::Moment;

/// Body bytes that a proxy may keep to send a request again (the server's `REPLAY_BYTES_MAX`).
const REPLAY_BYTES_MAX: u64 = 64 * 1024;

/// Whom servers must be told of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Whose {
    /// The client's address; `None` of one that has none (a unix socket).
    pub ip: Option<IpAddr>,
    /// Whence and whereto, where a PROXY header said so.
    pub named: Option<(SocketAddr, SocketAddr)>,
}

/// A request that a client has in its script.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: u64,
    pub whose: Whose,
    pub method: &'static str,
    pub path: String,
    pub body_bytes: u64,
    pub idempotent: bool,
    pub old_version: bool,
    pub wants: Wants,
    /// Its first byte has left the client.
    pub begun: bool,
    pub answered: bool,
    pub seen: Vec<Sighting>,
}

/// What the answer must be when nothing goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// An origin's.
    Origin,
    /// This status with this text.
    Fixed(u16, String),
    /// 200 with so many bytes.
    Bytes(u64),
    /// 101, and then the client's own bytes back.
    Tunnel,
}

/// One arrival of a request at an origin.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub body_bytes: u64,
    pub whole: bool,
    pub hash: u64,
}

/// The world's memory.
#[derive(Default)]
pub struct Ledger {
    pub now: Moment,
    pub requests: BTreeMap<u64, Request>,
    pub violations: Vec<String>,
    /// Nothing in this run may fail: every request is owed its full answer.
    pub is_calm: bool,
    pub tries_max: usize,
    pub traces: bool,
    pub answers_good: u64,
    pub answers_failed: u64,
    pub answers_cut: u64,
    pub resends: u64,
    pub tunnels: u64,
    /// Clients that were refused for what they sent in place of a PROXY header.
    pub refused: u64,
    /// Requests that came behind another one on a connection that began with a PROXY header, for a client
    /// that a PROXY header had named.
    pub told_again: u64,
    /// Of TLS, as workers counted it: handshakes, those of them that resumed a session, missing ends.
    pub handshakes: u64,
    pub resumptions: u64,
    pub truncations: u64,
    /// Over all that was on the wire.
    pub trace_hash: u64,
}

impl Ledger {
    /// Prints one readable line, when the run is traced.
    pub fn trace(&self, line: impl FnOnce() -> String) {
        if self.traces {
            let now = self.now.as_nanos() / 1000;
            eprintln!("[{:>5}.{:06}] {}", now / 1_000_000, now % 1_000_000, line());
        }
    }

    pub fn violate(&mut self, what: String) {
        self.trace(|| format!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    /// A head has come to an origin; gives the index of the sighting.
    pub fn note_arrival(&mut self, origin: usize, id: Option<u64>, start: &str) -> Option<usize> {
        let Some(request) = id.and_then(|id| self.requests.get_mut(&id)).filter(|r| r.begun) else {
            self.violate(format!("o{origin} got a request that no client sent: {start:?}"));
            return None;
        };
        let id = request.id;
        let sighting = Sighting { body_bytes: 0, whole: false, hash: 0 };
        let kept = request.seen.iter().all(|earlier| earlier.body_bytes <= REPLAY_BYTES_MAX);
        request.seen.push(sighting);
        let count = request.seen.len();
        let expected = format!("{} {} HTTP/1.1", request.method, request.path);
        let (idempotent, seen) = (request.idempotent, request.seen.clone());
        if start != expected {
            self.violate(format!("r{id} arrived as {start:?}, was sent as {expected:?}"));
        }
        if count > 1 {
            self.resends += 1;
            if !idempotent {
                self.violate(format!(
                    "r{id} is not idempotent and came to origins twice: {seen:?}"
                ));
            }
            if !kept {
                self.violate(format!("r{id} was repeated though its body was not kept: {seen:?}"));
            }
            if count > self.tries_max {
                self.violate(format!("r{id} was tried {count} times: {seen:?}"));
            }
        }
        Some(count - 1)
    }

    /// A request has come to an origin whole.
    pub fn note_whole(&mut self, id: u64, sighting: usize, hash: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let wanted = request.body_bytes;
        let seen = &mut request.seen[sighting];
        seen.whole = true;
        seen.hash = hash;
        if seen.body_bytes != wanted {
            let text = format!("r{id} came whole with {} bytes, not {wanted}", seen.body_bytes);
            self.violate(text);
        }
    }
}
