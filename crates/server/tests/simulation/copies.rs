//! The server that gets copies of requests. At random, it responds, resets, closes or sends nothing; clients must not notice.
//! In: copies from the workers. Out: responses, some of them malformed, which Tidegate discards.
//! Limits: `PAUSE_MAX`.

use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_reactor::{SimNet, SimPeer, SimServer};

/// The server's address.
pub const ADDRESS: ([u8; 4], u16) = ([10, 0, 8, 1], 8000);
/// The longest time between the last bytes of a copy and the server's action.
const PAUSE_MAX: Span = Span::from_millis(300);
const RESPONSES: [&[u8]; 6] = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\nonly a part",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    b"nonsense\r\n\r\n",
];

/// The server that gets the copies.
pub struct MirrorServer {
    /// The listener.
    server: SimServer,
    /// The open connections of the workers.
    conns: Vec<Conn>,
    /// Chooses the actions and their times.
    prng: Prng,
}

/// One connection of a worker.
struct Conn {
    /// The server's end of the connection.
    peer: SimPeer,
    /// When the server acts on the last bytes; `None` if no action is due.
    act_at: Option<Moment>,
    /// The part of the response that does not fit into the connection yet.
    unsent: Vec<u8>,
}

impl MirrorServer {
    /// Serves the copies of a run.
    pub fn new(net: &SimNet, seed: u64) -> Option<Self> {
        let server = net.serve(&Address::Tcp(ADDRESS.into()))?;
        Some(Self { server, conns: Vec::new(), prng: Prng::new(seed ^ 0x636f_7069_6573) })
    }

    /// The time of the next action after `now`.
    pub fn next_at(&self, now: Moment) -> Option<Moment> {
        self.conns.iter().filter_map(|conn| conn.act_at).filter(|at| *at > now).min()
    }

    /// Receives copies and performs the actions that are due. Returns whether a connection changed or transferred bytes.
    pub fn step(&mut self, now: Moment) -> bool {
        let mut moved = false;
        while let Some(peer) = self.server.accept() {
            moved = true;
            self.conns.push(Conn { peer, act_at: None, unsent: Vec::new() });
        }
        for conn in &mut self.conns {
            if !conn.peer.receive().is_empty() {
                moved = true;
                let pause = self.prng.below(PAUSE_MAX.as_nanos() as u64) * self.prng.below(2);
                conn.act_at = Some(now.after(Span::from_nanos(pause)));
            }
            if conn.act_at.take_if(|at| *at <= now).is_some() {
                moved = true;
                match self.prng.below(10) {
                    0 => conn.peer.reset(),
                    1 => conn.peer.finish(),
                    2 => {}
                    kind => conn.unsent.extend(RESPONSES[(kind % 6) as usize]),
                }
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
