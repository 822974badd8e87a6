//! Body of the fuzz target `exchange`; the corpus replay test runs it too.
//! In: any bytes, read as a script of what a client and a server do. Out: nothing; a broken promise
//! panics. Promises: no panic, no leftover, bounded buffers, an end; what a server is sent decodes.
//! Never: part of the data path.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::limits::{OUTPUT_BYTES_MAX, READ_BUFFER_BYTES};
use tidegate_base::{Address, Span};
use tidegate_config::model::Config;
use tidegate_reactor::{Faults, Reactor, SimNet, SimPeer, SimReactor, SimServer};
use tidegate_wire::http1::{BodyDecoder, FieldStorage, HeadDecoder, HeadLimits};

use crate::counters::Accounts;
use crate::{Leftovers, Snapshot, Worker, WorkerLimits};

const CONFIG: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\nlimits = { body = \"64KiB\" }\n\
    [[route]]\npath = \"/r\"\nrespond = { body = \"here\" }\n\
    [[route]]\npath = \"/s\"\nsynthetic = true\n\
    [[route]]\npath = \"/to\"\nredirect = \"https://{host}{path}{query}\"\n\
    [[route]]\nproxy = \"p\"\n\
    [pool.p]\nservers = [\"10.0.0.2:80\"]\nretries = 2\n";

/// Between two steps of a script; a script is text otherwise, so that corpus files can be read.
const STEP_END: u8 = 0xff;
/// Steps of one script; the rest is not looked at.
const STEPS_MAX: usize = 200;
/// Turns after which a worker is taken to go round in circles.
const TURNS_MAX: usize = 50_000;

/// Plays `data` through a worker on the simulated net. Steps are separated by a byte of 0xff and begin
/// with a letter: `c` and `s` let the client or the server send the rest of the step, `C` and `S` end
/// their side, `R` and `X` reset it, `n` opens a new connection of the client's, `t` lets as many
/// seconds pass as the step is long. Before the first step one byte chooses the faults of the net.
pub fn fuzz_exchange(data: &[u8]) {
    let Some((&first, script)) = data.split_first() else { return };
    let mut stage = Stage::new(first);
    for step in script.split(|&byte| byte == STEP_END).take(STEPS_MAX) {
        if let Some((&letter, rest)) = step.split_first() {
            stage.act(letter, rest);
            stage.run_now();
        }
    }
    stage.end();
}

/// A worker, its peers, and what the server's side received.
struct Stage {
    net: SimNet,
    worker: Worker,
    reactor: SimReactor,
    accounts: Arc<Accounts>,
    client: Option<SimPeer>,
    server: SimServer,
    /// Connections to the server and what came over each; the last one is the script's.
    taken: Vec<(Option<SimPeer>, Vec<u8>)>,
    turns: usize,
}

impl Stage {
    fn new(first: u8) -> Self {
        let mut faults = Faults::none();
        // Even bytes are for calm nets, where a script's meaning is its own.
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
        let mut stage = Self {
            net,
            worker,
            reactor,
            accounts,
            client: None,
            server,
            taken: Vec::new(),
            turns: 0,
        };
        stage.dial();
        stage
    }

    fn dial(&mut self) {
        let address = Address::Tcp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 80)));
        self.client = self.net.dial(&address);
    }

    fn act(&mut self, letter: u8, rest: &[u8]) {
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

    /// Lets happen what happens without time passing.
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
        while let Some(peer) = self.server.accept() {
            self.taken.push((Some(peer), Vec::new()));
        }
        for (peer, bytes) in &mut self.taken {
            if let Some(peer) = peer {
                bytes.extend(peer.receive());
            }
        }
        if let Some(client) = &self.client {
            let _ = client.receive();
        }
        let (input, output) = self.worker.held_bytes_max(&self.reactor);
        assert!(input <= 2 * READ_BUFFER_BYTES, "a connection holds {input} bytes of input");
        assert!(output <= OUTPUT_BYTES_MAX, "a connection holds {output} bytes of output");
        self.turns += 1;
        assert!(self.turns < TURNS_MAX, "it goes round in circles");
    }

    /// Everybody leaves: what is still held then is held for ever.
    fn end(mut self) {
        self.client = None;
        self.run_now();
        for (peer, _) in &mut self.taken {
            *peer = None;
        }
        while self.worker.leftovers() != Leftovers::default() || self.reactor.sock_count() > 0 {
            let moved = self.net.advance_to_next_event();
            assert!(moved, "nothing happens any more: {:?}", self.worker.leftovers());
            self.turn();
            for (peer, _) in &mut self.taken {
                *peer = None;
            }
        }
        assert_eq!(self.reactor.outputs_count(), 0, "an output outlived its socket");
        assert_eq!(self.accounts.counters.bugs.load(), 0, "an invariant of our own broke");
        if self.accounts.counters.tunnels.load() == 0 {
            self.taken.iter().for_each(|(_, bytes)| check_requests(bytes));
        }
    }
}

/// What a server was sent must be requests that this house's own strict reader takes, one after the
/// other; only the last one may be cut.
fn check_requests(mut bytes: &[u8]) {
    let limits = HeadLimits { head_bytes_max: 64 * 1024, ..HeadLimits::default() };
    while !bytes.is_empty() {
        let mut storage = FieldStorage::new();
        let decoded = HeadDecoder::default().decode_request(bytes, &limits, &mut storage);
        let (mut body, length) = match decoded {
            Ok(Some((head, length))) => {
                assert!(head.host.is_some(), "a request without Host");
                (BodyDecoder::new(head.length), length)
            }
            Ok(None) => return,
            Err(fault) => {
                // HTTP/1.0 without Host becomes an empty Host (RFC 9112 section 3.2), which is refused here.
                assert_eq!(fault.kind.name(), "HostInvalid", "{}", String::from_utf8_lossy(bytes));
                return;
            }
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
