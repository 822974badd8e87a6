//! The body of the fuzz target `exchange`. The test that replays the corpus runs it too.
//! In: any bytes, interpreted as a script of actions of a client and a server. Out: nothing; a violated
//! property panics. Properties: no panic, no leftover state, bounded buffers, termination, and requests sent
//! to the server decode.
//! Never: part of the data path.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::limits::{OUTPUT_BYTES_MAX, READ_BUFFER_BYTES};
use tidegate_base::{Address, Span};
use tidegate_config::model::Config;
use tidegate_reactor::{Faults, Reactor, SimNet, SimPeer, SimReactor, SimServer};
use tidegate_wire::http1::{BodyDecoder, HeadDecoder, HeadLimits};
use tidegate_wire::message::{FieldName, FieldStorage};

use crate::counters::Accounts;
use crate::{Leftovers, Snapshot, Worker, WorkerLimits};

const CONFIG: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\nlimits = { body = \"64KiB\" }\n\
    [[route]]\npath = \"/r\"\nrespond = { body = \"here\" }\n\
    [[route]]\npath = \"/s\"\nsynthetic = true\n\
    [[route]]\npath = \"/w\"\necho = true\nwebsocket = { compression = \"shared\" }\n\
    [[route]]\npath = \"/to\"\nredirect = \"https://{host}{path}{query}\"\n\
    [[route]]\nproxy = \"p\"\n\
    [pool.p]\nservers = [\"10.0.0.2:80\"]\nretries = 2\n";

/// Separates two steps of a script. Otherwise a script is text, so that corpus files are readable.
const STEP_END: u8 = 0xff;
/// Maximum number of steps of one script. Further steps are ignored.
const STEPS_MAX: usize = 200;
/// The worker is considered stuck in a loop after this many turns.
const TURNS_MAX: usize = 50_000;
/// The clients of a script receive this many bytes. A client that receives more resets its connection, because
/// a synthetic response may have 1 TiB, which would take more than `TURNS_MAX` turns.
const RECEIVED_BYTES_MAX: usize = 8 << 20;

/// Runs the script `data` against a worker on the simulated network. The first byte selects the network's
/// faults. The steps after it are separated by a byte 0xff, and each step begins with a letter: `c` and `s`
/// make the client or the server send the rest of the step, `C` and `S` end their direction, `R` and `X`
/// reset their connection, `n` opens a new client connection, and `t` lets one second pass for each byte of
/// the rest.
pub fn fuzz_exchange(data: &[u8]) {
    let Some((&first, script)) = data.split_first() else { return };
    let mut harness = Harness::new(first);
    for step in script.split(|&byte| byte == STEP_END).take(STEPS_MAX) {
        if let Some((&letter, rest)) = step.split_first() {
            harness.perform(letter, rest);
            harness.run_now();
        }
    }
    harness.end();
}

/// A worker, its client and server, and the bytes that the server received.
struct Harness {
    net: SimNet,
    worker: Worker,
    reactor: SimReactor,
    accounts: Arc<Accounts>,
    client: Option<SimPeer>,
    server: SimServer,
    /// The connections to the server and the bytes received on each. The script controls the last one.
    taken: Vec<(Option<SimPeer>, Vec<u8>)>,
    turns: usize,
    /// The bytes that all clients have received.
    received_bytes: usize,
}

impl Harness {
    fn new(first: u8) -> Self {
        let mut faults = Faults::none();
        // Even bytes select a network without faults, where only the script determines what happens.
        if first & 1 == 1 {
            faults.short_read_ppm = 300_000;
            faults.short_write_ppm = 300_000;
            faults.would_block_ppm = 100_000;
        }
        let net = SimNet::new(u64::from(first), faults);
        let config: Config = match tidegate_config::parse(CONFIG, "fuzz.toml") {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        };
        let origin = Address::Tcp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), 80)));
        let Some(server) = net.serve(&origin) else { panic!("the server's address is free") };
        let snapshot = Rc::new(Snapshot::new(config, vec![vec![vec![origin]]]));
        let accounts = Arc::new(Accounts::default());
        let limits = WorkerLimits { exchanges_max: 16, workers: 1, steer_by_cpu: false };
        let mut worker = Worker::new(snapshot, Arc::clone(&accounts), limits, 1);
        let mut reactor = SimReactor::new(&net, 32);
        if let Err(error) = worker.listen(&mut reactor) {
            panic!("{error}");
        }
        let mut harness = Self {
            net,
            worker,
            reactor,
            accounts,
            client: None,
            server,
            taken: Vec::new(),
            turns: 0,
            received_bytes: 0,
        };
        harness.dial();
        harness
    }

    fn dial(&mut self) {
        let address = Address::Tcp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 80)));
        self.client = self.net.dial(&address);
    }

    fn perform(&mut self, letter: u8, rest: &[u8]) {
        let server = self.taken.last_mut().and_then(|(peer, _)| peer.as_mut());
        match (letter, &self.client, server) {
            (b'c', Some(client), _) => {
                client.send(rest);
            }
            (b's', _, Some(server)) => {
                server.send(rest);
            }
            (b'C', Some(client), _) => client.finish(),
            (b'S', _, Some(server)) => server.finish(),
            (b'R', Some(client), _) => client.reset(),
            (b'X', _, Some(server)) => server.reset(),
            (b'n', _, _) => self.dial(),
            (b't', _, _) => self.net.advance_by(Span::from_secs(rest.len() as u64)),
            _ => {}
        }
    }

    /// Processes all events that are due without advancing the time.
    fn run_now(&mut self) {
        loop {
            self.turn();
            if self.net.next_event_at().is_none_or(|at| at > self.net.now()) {
                return;
            }
        }
    }

    fn turn(&mut self) {
        self.worker.turn(&mut self.reactor, Span::ZERO);
        self.worker.check_invariants(&self.reactor);
        while let Some(peer) = self.server.accept() {
            self.taken.push((Some(peer), Vec::new()));
        }
        for (peer, bytes) in &mut self.taken {
            if let Some(peer) = peer {
                bytes.extend(peer.receive());
            }
        }
        if let Some(client) = &self.client {
            self.received_bytes += client.receive().len();
            if self.received_bytes > RECEIVED_BYTES_MAX {
                client.reset();
            }
        }
        let (input, output) = self.worker.held_bytes_max(&self.reactor);
        assert!(input <= 2 * READ_BUFFER_BYTES, "a connection holds {input} bytes of input");
        assert!(output <= OUTPUT_BYTES_MAX, "a connection holds {output} bytes of output");
        self.turns += 1;
        assert!(self.turns < TURNS_MAX, "the worker is stuck in a loop");
    }

    /// Closes all connections of the client and the server, and checks that the worker then holds nothing.
    fn end(mut self) {
        self.client = None;
        self.run_now();
        for (peer, _) in &mut self.taken {
            *peer = None;
        }
        while self.worker.leftovers() != Leftovers::default() || self.reactor.sock_count() > 0 {
            let moved = self.net.advance_to_next_event();
            assert!(
                moved,
                "no event is left, but the worker still holds {:?}",
                self.worker.leftovers()
            );
            self.turn();
            for (peer, _) in &mut self.taken {
                *peer = None;
            }
        }
        assert_eq!(self.reactor.outputs_count(), 0, "an output buffer outlived its socket");
        assert_eq!(self.accounts.counters.bugs.load(), 0, "the worker counted a broken invariant");
        if self.accounts.counters.tunnels.load() == 0 {
            self.taken.iter().for_each(|(_, bytes)| check_requests(bytes));
        }
    }
}

/// Checks that the bytes sent to a server are a sequence of requests that the strict decoder accepts. Only
/// the last request may be incomplete.
fn check_requests(mut bytes: &[u8]) {
    let limits = HeadLimits { head_bytes_max: 64 * 1024, ..HeadLimits::default() };
    while !bytes.is_empty() {
        let mut storage = FieldStorage::new();
        let decoded = HeadDecoder::default().decode_request(bytes, &limits, &mut storage);
        let (mut body, length) = match decoded {
            Ok(Some((head, length))) => {
                assert!(head.has(FieldName::Host), "a request without Host");
                (BodyDecoder::new(head.length), length)
            }
            Ok(None) => return,
            Err(fault) => panic!("{fault}: {}", String::from_utf8_lossy(bytes)),
        };
        bytes = &bytes[length..];
        while !body.is_done() && !bytes.is_empty() {
            match body.decode(bytes) {
                Ok(step) => bytes = &bytes[step.consumed..],
                Err(fault) => panic!("{fault}: {}", String::from_utf8_lossy(bytes)),
            }
        }
    }
}
