//! Requests of Lua applications to servers, in a network with faults.
//! In: seeds. Out: what a worker holds although nothing is in progress; a broken invariant.
//! Limits: `TURNS` turns of each run, then a stop.
//! Invariant: nothing is random except for the seed.

use tidegate_base::{Address, Prng, Span};
use tidegate_reactor::{Faults, Reactor, SimNet, SimPeer, SimReactor, SimServer};

use crate::peer::harness::Harness;
use crate::secured::Keys;
use crate::stage::scene;

pub const SEEDS: u64 = 40;
const TURNS: usize = 400;
/// Turns that a stop takes at most.
const STOP_TURNS_MAX: usize = 20_000;

/// A server that answers in many ways.
struct Origin {
    server: SimServer,
    /// The connections, each with what was received.
    conns: Vec<(SimPeer, Vec<u8>)>,
}

/// A server of the application.
pub trait Server {
    /// A server that listens; with keys, its connections use TLS.
    fn new(server: SimServer, keys: Option<&Keys>) -> Self;
    fn step(&mut self, prng: &mut Prng);
}

impl Server for Origin {
    fn new(server: SimServer, _keys: Option<&Keys>) -> Self {
        Self { server, conns: Vec::new() }
    }

    fn step(&mut self, prng: &mut Prng) {
        while let Some(peer) = self.server.accept() {
            self.conns.push((peer, Vec::new()));
        }
        for (peer, received) in &mut self.conns {
            received.extend(peer.receive());
            if prng.below(3) > 0 {
                continue;
            }
            let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&received[..end]).into_owned();
            let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next());
            let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            if received.len() < end + 4 + length && prng.below(20) > 0 {
                continue;
            }
            received.drain(..received.len().min(end + 4 + length));
            let body = "y".repeat(prng.below(30_000) as usize);
            let response = match prng.below(10) {
                0 => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut".to_owned(),
                1 => format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}"),
                2 if !body.is_empty() => format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                    body.len()
                ),
                3 => "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_owned(),
                4 => "not HTTP at all\r\n\r\n".to_owned(),
                // Silence.
                5 => continue,
                _ => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
            };
            let sent = peer.send(response.as_bytes());
            if sent < response.len() || response.ends_with("cut") || prng.below(8) == 0 {
                peer.finish();
            }
        }
    }
}

fn faults(prng: &mut Prng) -> Faults {
    if prng.below(2) == 0 {
        return Faults::none();
    }
    Faults {
        short_read_ppm: 100_000,
        short_write_ppm: 100_000,
        reset_ppm: 3000,
        connect_refused_ppm: 50_000,
        connect_silent_ppm: 20_000,
        connect_shortage_ppm: 20_000,
        latency_us_max: 2000,
        ..Faults::none()
    }
}

/// Runs one seed with the application `script` and servers of the kind `S`, which use TLS if there are keys. Returns the
/// responses that the clients have got.
pub fn storm<S: Server>(seed: u64, script: &str, keys: Option<&Keys>) -> Vec<Vec<u8>> {
    let tls = keys.map_or("", |_| "tls = { server-name = \"a.example\" }\n");
    let file = format!(
        "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nlua = \"storm\"\n\
        [lua.storm]\nscript = \"tests/scripts/{script}.lua\"\npools = [\"p\"]\nrequests-max = 12\n\
        [pool.p]\nservers = [{{ address = \"10.0.1.1:8000\", connections-max = 4 }}, \"10.0.1.2:8000\"]\n\
        {tls}queue-max = 3\nretry-pause = \"10ms\"\n\
        timeouts = {{ connect = \"50ms\", response-head = \"100ms\", body = \"100ms\", queue = \"80ms\" }}\n"
    );
    let config = match tidegate_config::parse(&file, "the test") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    };
    let mut prng = Prng::new(seed ^ 0x6c75_6172);
    let net = SimNet::new(seed, Faults::none());
    let servers = [[10, 0, 1, 1], [10, 0, 1, 2]].map(|ip| Address::Tcp((ip, 8000).into()));
    let served = servers.iter().filter_map(|address| net.serve(address));
    let mut origins: Vec<S> = served.map(|server| S::new(server, keys)).collect();
    let mut harness: Harness<SimReactor> = Harness::simulated(&net, &config, 40, seed);
    if let Some(keys) = keys {
        harness = harness.secured(&keys.plan(false, &[true], &[2]));
    }
    net.set_faults(faults(&mut prng));
    let mut clients: Vec<(SimPeer, Vec<u8>)> = Vec::new();
    let mut responses = Vec::new();
    for _ in 0..TURNS {
        if prng.below(4) == 0
            && clients.len() < 12
            && let Some(peer) = net.dial(&harness.bound[0])
        {
            peer.send(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
            clients.push((peer, Vec::new()));
        }
        clients.retain_mut(|(peer, received)| {
            received.extend(peer.receive());
            let is_answered = received.windows(4).any(|bytes| bytes == b"\r\n\r\n");
            if is_answered {
                responses.push(received.clone());
            }
            let leaves = is_answered || prng.below(60) == 0;
            if leaves && prng.below(2) == 0 {
                peer.reset();
            }
            !leaves
        });
        origins.iter_mut().for_each(|origin| origin.step(&mut prng));
        harness.turn();
        net.advance_by(Span::from_millis(prng.below(8)));
    }
    clients.clear();
    harness.stop(Span::from_millis(prng.below(3000)));
    for turn in 0.. {
        assert!(turn < STOP_TURNS_MAX, "seed {seed}: {:?}", harness.worker.leftovers());
        origins.iter_mut().for_each(|origin| origin.step(&mut prng));
        harness.turn();
        if harness.worker.is_stopped(&harness.reactor) {
            break;
        }
        net.advance_by(Span::from_millis(5));
    }
    drop(origins);
    for _ in 0..STOP_TURNS_MAX {
        harness.turn();
        if harness.reactor.sock_count() == 0 || !net.advance_to_next_event() {
            break;
        }
    }
    harness.worker.stop_apps(&mut harness.reactor);
    assert_eq!(harness.find_leak(), None, "seed {seed}");
    responses
}

#[test]
fn requests_end_with_their_coroutines_whatever_the_network_does() {
    let responses: usize = (0..SEEDS).map(|seed| storm::<Origin>(seed, "storm", None).len()).sum();
    assert!(responses as u64 > SEEDS * 10, "{responses} responses");
}

/// A handler that sends a request to the pool of the stage.
const ONE: &str = "[[route]]\npath = \"/gone\"\nlua = \"fetch\"\n[lua.fetch]\nscript = \"tests/scripts/fetch.lua\"\n\
    pools = [\"p\"]\n";

#[test]
fn pool_that_a_script_does_not_list_gets_no_request() {
    scene().listener(ONE).run(|stage| {
        let client = stage.dial();
        client.send(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(stage.receive_until(&client, "failed\n").starts_with("HTTP/1.1 500"));
        assert!(stage.try_accept().is_none());
        assert_eq!(stage.counters().lua_requests.load(), 0);
    });
}
