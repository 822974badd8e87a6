//! What the named cases play on: one worker and one origin, moved step by step, and a builder for scenes.
//! In: the lines of configuration, limits and faults that are special to a scene. Out: a `Stage`.
//! Limits: `TURNS_MAX` turns for each condition that is waited for.
//! Invariant: when a scene has ended and all its connections are gone, the worker holds nothing.

use tidegate_base::limits::{OUTPUT_BYTES_MAX, READ_BUFFER_BYTES};
use tidegate_base::{Address, Span};
use tidegate_reactor::{Faults, Reactor, SimNet, SimPeer, SimReactor, SimServer};
use tidegate_secure::TlsPlan;
use tidegate_server::counters::WorkerCounters;

use crate::peer::harness::Harness;

/// Turns to wait for a condition before the test fails.
const TURNS_MAX: u32 = 200_000;
/// After this many turns in a row without any event the awaited condition can no longer come true.
const QUIET_TURNS_MAX: u32 = 100;

/// One worker and one origin on a simulated network.
pub struct Stage {
    pub net: SimNet,
    pub harness: Harness<SimReactor>,
    /// The configuration.
    pub text: String,
    origin: SimServer,
    /// Maximum number of bytes that one connection has held: input, output.
    held: (usize, usize),
}

impl Stage {
    /// `listener` and `pool`: further lines of their configuration.
    pub fn new(listener: &str, pool: &str) -> Self {
        Self::with_slots(listener, pool, 100)
    }

    fn with_slots(listener: &str, pool: &str, socks_max: usize) -> Self {
        let servers = match pool.contains("servers = ") {
            true => "",
            false => "servers = [\"10.0.1.1:8000\"]",
        };
        // Most scenes look at a request while its body is in progress.
        let buffer = match pool.contains("request-buffer") {
            true => "",
            false => "request-buffer = \"0B\"",
        };
        let text = format!(
            "[[listener]]\nbind = \"10.0.0.1:80\"\n{listener}\n\
             [[route]]\npath = \"/hello\"\nrespond = {{ body = \"hello\" }}\n\
             [[route]]\npath = \"/synthetic\"\nsynthetic = true\n\
             [[route]]\nproxy = \"p\"\n\
             [pool.p]\n{servers}\n{buffer}\n{pool}\n"
        );
        let config = match tidegate_config::parse(&text, "the test") {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        };
        let net = SimNet::new(1, Faults::none());
        let origin = Address::Tcp(([10, 0, 1, 1], 8000).into());
        let origin = net.serve(&origin).expect("the address is free");
        let harness = Harness::simulated(&net, &config, socks_max, 1);
        Self { net, harness, text, origin, held: (0, 0) }
    }

    /// A new client connection.
    pub fn dial(&self) -> SimPeer {
        self.net.dial(&self.harness.bound[0]).expect("the worker listens")
    }

    /// Turns the worker until `look` returns something, and advances the clock after each turn.
    pub fn until<T>(&mut self, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let mut quiet_turns = 0;
        for _ in 0..TURNS_MAX {
            if let Some(found) = look(self) {
                return found;
            }
            self.turn();
            if let Some(found) = look(self) {
                return found;
            }
            quiet_turns = if self.net.advance_to_next_event() { 0 } else { quiet_turns + 1 };
            if quiet_turns > QUIET_TURNS_MAX {
                break;
            }
        }
        panic!("timed out waiting; the worker holds {:?}", self.harness.worker.leftovers());
    }

    /// Turns the worker once, and notes how many bytes its connections hold.
    pub fn turn(&mut self) {
        self.harness.turn();
        let (input, output) = self.harness.worker.held_bytes_max(&self.harness.reactor);
        self.held = (self.held.0.max(input), self.held.1.max(output));
    }

    /// The next connection to the origin.
    pub fn accept(&mut self) -> SimPeer {
        self.until(Self::try_accept)
    }

    /// The next connection to the origin, if there is one already.
    pub fn try_accept(&self) -> Option<SimPeer> {
        self.origin.accept()
    }

    /// Receives at `peer` until the bytes contain `end`; returns them.
    pub fn receive_until(&mut self, peer: &SimPeer, end: &str) -> String {
        let mut received = Vec::new();
        self.until(|_| {
            received.extend(peer.receive());
            let text = String::from_utf8_lossy(&received);
            text.contains(end).then(|| text.into_owned())
        })
    }

    /// Sends `request` from `client`; returns the connection over which its head reached the origin.
    pub fn forward(&mut self, client: &SimPeer, request: &[u8]) -> SimPeer {
        client.send(request);
        let origin = self.accept();
        self.receive_until(&origin, "\r\n\r\n");
        origin
    }

    /// Lets the origin send `OK`; returns what the client receives.
    pub fn respond(&mut self, origin: &SimPeer, client: &SimPeer) -> String {
        origin.send(OK);
        self.receive_until(client, "ok")
    }

    /// Sends a request that gets a local response; returns the response.
    pub fn hello(&mut self, client: &SimPeer) -> String {
        client.send(HELLO);
        self.receive_until(client, "hello")
    }

    /// Waits until the worker has ended its side of the connection.
    pub fn wait_finished(&mut self, peer: &SimPeer) {
        self.until(|_| peer.is_finished_by_other().then_some(()));
    }

    /// Waits until the worker has reset the connection.
    pub fn wait_reset(&mut self, peer: &SimPeer) {
        self.until(|_| peer.was_reset().then_some(()));
    }

    /// Tells the worker to stop, with a grace period of 30 s.
    pub fn stop(&mut self) {
        self.harness.worker.stop(&mut self.harness.reactor, Span::from_secs(30));
    }

    /// Waits until the worker has stopped.
    pub fn wait_stopped(&mut self) {
        self.until(|stage| stage.harness.worker.is_stopped(&stage.harness.reactor).then_some(()));
    }

    /// Lets `span` pass, turning the worker every 5 ms.
    pub fn pass(&mut self, span: Span) {
        let end = self.net.now().after(span);
        while self.net.now() < end {
            self.net.advance_by(Span::from_millis(5));
            self.turn();
        }
    }

    /// Connections that the worker's reactor holds, the closing ones included.
    pub fn sock_count(&self) -> usize {
        self.harness.reactor.sock_count()
    }

    pub fn counters(&self) -> &WorkerCounters {
        &self.harness.accounts.counters
    }

    /// Checks that no connection ever held more bytes than its buffers.
    pub fn assert_bounded(&self) {
        let (input, output) = self.held;
        assert!(input <= 2 * READ_BUFFER_BYTES, "{input} bytes of input were held");
        assert!(output <= OUTPUT_BYTES_MAX, "{output} bytes of output were held");
    }

    /// Checks that the worker holds nothing once the clients and the origin are gone.
    pub fn end(mut self) {
        drop(self.origin);
        for _ in 0..TURNS_MAX {
            self.harness.turn();
            if self.harness.reactor.sock_count() == 0 || !self.net.advance_to_next_event() {
                break;
            }
        }
        assert_eq!(self.harness.find_leak(), None);
    }
}

/// The settings that differ between scenes. Everything else is the same in all scenes: one worker with 100 slots for
/// connections, one origin, the routes of `Stage::new`, and a network without faults.
pub struct Scene<'a> {
    /// Further lines of the listener's configuration.
    listener: &'a str,
    /// Further lines of the pool's configuration.
    pool: &'a str,
    /// Connections that the worker may hold.
    socks_max: usize,
    faults: Faults,
    tls: TlsPlan,
}

/// A scene without anything special.
pub fn scene<'a>() -> Scene<'a> {
    let (faults, tls) = (Faults::none(), TlsPlan::default());
    Scene { listener: "", pool: "", socks_max: 100, faults, tls }
}

impl<'a> Scene<'a> {
    pub fn listener(self, listener: &'a str) -> Self {
        Self { listener, ..self }
    }

    pub fn pool(self, pool: &'a str) -> Self {
        Self { pool, ..self }
    }

    pub fn socks_max(self, socks_max: usize) -> Self {
        Self { socks_max, ..self }
    }

    pub fn faults(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    pub fn tls(self, tls: TlsPlan) -> Self {
        Self { tls, ..self }
    }

    /// Plays the scene. `play` drops all connections when it ends; then the worker must hold nothing.
    pub fn run(self, play: impl FnOnce(&mut Stage)) {
        let mut stage = Stage::with_slots(self.listener, self.pool, self.socks_max);
        stage.harness = stage.harness.secured(&self.tls);
        stage.net.set_faults(self.faults);
        play(&mut stage);
        stage.end();
    }

    /// Plays the scene with one client connection.
    pub fn with_client(self, play: impl FnOnce(&mut Stage, SimPeer)) {
        self.run(|stage| {
            let client = stage.dial();
            play(stage, client);
        });
    }

    /// Plays the scene with a client that has sent `request`, and the connection over which the origin has
    /// received the request's head.
    pub fn with_request(self, request: &[u8], play: impl FnOnce(&mut Stage, SimPeer, SimPeer)) {
        self.with_client(|stage, client| {
            let origin = stage.forward(&client, request);
            play(stage, client, origin);
        });
    }
}

/// A request that is forwarded to the origin.
pub const GET: &[u8] = b"GET /p HTTP/1.1\r\nHost: a\r\n\r\n";
/// A request that gets a local response.
pub const HELLO: &[u8] = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
/// The origin's usual response.
pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

pub fn assert_status(status: u16, answer: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "expected {status}: {answer}");
}
