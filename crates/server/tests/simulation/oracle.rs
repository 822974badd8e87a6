//! The ground truth about every request: what clients sent, what origins saw, what clients received.
//! In: reports of clients and origins. Out: violations, that is, events that must never happen.
//! Never: asks the workers: their own view does not count here.
//! Invariant: a run passes exactly if `violations` stays empty.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use tidegate_base::Moment;

/// Body bytes that a worker may keep to send a request again (its own `REPLAY_BYTES_MAX`).
const REPLAY_BYTES_MAX: u64 = 64 * 1024;

/// The client that Tidegate must name to origins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientIdentity {
    /// The client's address; `None` if it has none (a Unix socket).
    pub ip: Option<IpAddr>,
    /// Source and destination, if a PROXY header stated them.
    pub header: Option<(SocketAddr, SocketAddr)>,
}

/// A request in a client's script.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: u64,
    pub identity: ClientIdentity,
    pub method: &'static str,
    pub path: String,
    pub body_bytes: u64,
    pub idempotent: bool,
    /// The request is HTTP/1.0.
    pub old_version: bool,
    pub expected: Expected,
    /// The client has sent its first byte.
    pub begun: bool,
    pub answered: bool,
    /// The status of its complete response, or 101.
    pub status: Option<u16>,
    /// Its arrivals at origins, in order.
    pub seen: Vec<Sighting>,
}

/// The response that a request must get when nothing goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// An origin's response.
    Origin,
    /// This status with this body.
    Fixed(u16, String),
    /// 200 with a body of this many bytes.
    Bytes(u64),
    /// 101, followed by the client's own bytes.
    Tunnel,
}

/// One arrival of a request at an origin.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// Body bytes received so far.
    pub body_bytes: u64,
    /// The request is complete.
    pub whole: bool,
    /// The hash of the body, once the request is complete.
    pub hash: u64,
}

/// Everything known about a run.
#[derive(Default)]
pub struct Oracle {
    /// The simulated time.
    pub now: Moment,
    /// By request id.
    pub requests: BTreeMap<u64, Request>,
    /// In the order in which they were found.
    pub violations: Vec<String>,
    /// Nothing in this run may fail: every request must get its complete response.
    pub is_calm: bool,
    /// The workers have too few slots. They may close clients without a request in progress, and let requests
    /// wait until their time in the queue ends.
    pub is_crowded: bool,
    /// By origin: the number of its pool. A request must not reach a server of another pool.
    pub pools_of_origins: Vec<usize>,
    /// How often a request may be sent to origins.
    pub tries_max: usize,
    /// A worker has something to do in its next turn, perhaps a request.
    pub workers_have_edges: bool,
    /// Unsolicited responses that origins have sent.
    pub intrusions: u64,
    /// Bytes of requests, responses and tunnels that clients and origins have sent or received so far. PROXY
    /// headers to origins and TLS handshakes do not count: a worker may not repeat them without end.
    pub moved_bytes: u64,
    /// A server is asked about each request to the second pool.
    pub asks: bool,
    /// Workers may end tunnels with a Close frame: they are WebSockets, and the workers stop or change their settings.
    pub closes_tunnels: bool,
    /// Print a line for each event.
    pub traces: bool,
    /// Complete responses, those in `answers_failed` included.
    pub answers_good: u64,
    /// Complete responses with an error status that the run allows.
    pub answers_failed: u64,
    /// Responses that ended early, visibly to the client.
    pub answers_cut: u64,
    /// Arrivals of a request at an origin after its first one.
    pub resends: u64,
    /// Tunnels that were opened.
    pub tunnels: u64,
    /// Clients that sent an invalid PROXY header.
    pub refused: u64,
    /// Requests that followed another one on an upstream connection with a PROXY header, for a client that
    /// had itself been named by a PROXY header.
    pub header_reuses: u64,
    /// Permits that workers gave to each other.
    pub permits: u64,
    /// TLS as the workers counted it: handshakes, resumed handshakes, connections without close_notify.
    pub handshakes: u64,
    pub resumptions: u64,
    pub truncations: u64,
    /// Connections that the workers closed to make room, as they counted them.
    pub evicted: u64,
    /// Complete responses over HTTP/2.
    pub streams: u64,
    /// Changes of the configuration that all workers have applied.
    pub reloads: u64,
    /// A hash of all bytes and events on the network.
    pub trace_hash: u64,
}

impl Oracle {
    /// Prints one line, if the run is traced.
    pub fn trace(&self, line: impl FnOnce() -> String) {
        if self.traces {
            let now = self.now.as_nanos() / 1000;
            eprintln!("[{:>5}.{:06}] {}", now / 1_000_000, now % 1_000_000, line());
        }
    }

    /// Records a violation: the run has failed.
    pub fn violate(&mut self, what: String) {
        self.trace(|| format!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    /// Records that a head arrived at an origin; returns the index of the sighting.
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
        let pool = self.pools_of_origins.get(origin).copied().unwrap_or_default();
        let is_own = request.path.starts_with(&format!("/p{pool}/"));
        let (idempotent, seen) = (request.idempotent, request.seen.clone());
        if !is_own {
            self.violate(format!("r{id} reached o{origin}, a server of pool {pool}: {start:?}"));
        }
        if start != expected {
            self.violate(format!("r{id} arrived as {start:?}, expected {expected:?}"));
        }
        if count > 1 {
            self.resends += 1;
            if !idempotent {
                self.violate(format!(
                    "r{id} is not idempotent and reached origins twice: {seen:?}"
                ));
            }
            if !kept {
                self.violate(format!(
                    "r{id} was sent again although its body was too large to keep: {seen:?}"
                ));
            }
            if count > self.tries_max {
                self.violate(format!("r{id} was sent {count} times, above the limit: {seen:?}"));
            }
        }
        Some(count - 1)
    }

    /// Records that a request is complete at an origin.
    pub fn note_whole(&mut self, id: u64, sighting: usize, hash: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let wanted = request.body_bytes;
        let seen = &mut request.seen[sighting];
        seen.whole = true;
        seen.hash = hash;
        if seen.body_bytes != wanted {
            let text = format!(
                "r{id} was complete with {} body bytes, expected {wanted}",
                seen.body_bytes
            );
            self.violate(text);
        }
    }
}
