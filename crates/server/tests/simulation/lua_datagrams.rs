//! Datagrams of Lua applications.
//! In: a server that sends datagrams back, in a network with faults. Out: what scripts get; what a worker holds although
//! nothing is in progress.
//! Invariant: nothing is random except for the seed.

use core::net::SocketAddr;

use tidegate_base::{Prng, Span};
use tidegate_reactor::{Faults, Reactor, SimDatagrams, SimNet, SimPeer};

use crate::lua::Process;
use crate::lua_reload::Reloaded;

const SEEDS: u64 = 30;
const TURNS: usize = 400;
/// Turns that a stop takes at most.
const STOP_TURNS_MAX: usize = 20_000;

const FILE: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\npath = \"/proxied\"\nproxy = \"p\"\nhooks = \"d\"\n\
    [[route]]\nlua = \"d\"\n[lua.d]\nscript = \"tests/scripts/datagrams.lua\"\nudp = [\"10.0.0.0/8\"]\nrequests-max = 12\n\
    [pool.p]\nservers = [\"10.0.1.2:8000\"]\n";

/// A server that sends back what it gets, with some exceptions.
struct Echo {
    socket: SimDatagrams,
    /// The senders of questions that are answered later.
    late: Vec<SocketAddr>,
}

impl Echo {
    fn new(net: &SimNet) -> Self {
        let address = SocketAddr::from(([10, 0, 1, 1], 9000));
        Self { socket: net.serve_datagrams(address).expect("a free address"), late: Vec::new() }
    }

    fn step(&mut self) {
        while let Some((from, bytes)) = self.socket.receive() {
            match &bytes[..] {
                b"silence" => {}
                b"late" => self.late.push(from),
                b"flood" => (0..200_u8).for_each(|number| self.socket.send(from, &[number])),
                bytes => self.socket.send(from, bytes),
            }
        }
    }
}

/// Sends a request over a connection of its own.
pub fn begin(process: &Process, target: &str) -> SimPeer {
    let peer = process.net.dial(&process.workers[0].bound[0]).expect("the workers listen");
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(peer.send(request.as_bytes()), request.len());
    peer
}

/// Lets `span` pass, in turns of a millisecond.
fn pass(process: &mut Process, echo: &mut Echo, span: Span) {
    for _ in 0..span.as_millis() {
        process.turns(1);
        echo.step();
        process.turns(1);
        process.net.advance_by(Span::from_micros(800));
    }
}

fn get(process: &mut Process, echo: &mut Echo, target: &str) -> String {
    let peer = begin(process, target);
    pass(process, echo, Span::from_secs(2));
    let response = String::from_utf8_lossy(&peer.receive()).into_owned();
    response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or(response)
}

#[test]
fn scripts_talk_over_datagrams() {
    let mut process = Process::of(FILE, 1);
    let mut echo = Echo::new(&process.net);
    for (target, expected) in [
        ("/echo", "hello"),
        ("/empty", "[]"),
        ("/refused", "error: connection refused"),
        ("/silent", "error: timeout"),
        ("/long", "error: a datagram has up to 65507 bytes"),
        ("/most", "65507"),
        ("/forbidden", "error: the address is not among `udp` of the application"),
        ("/name", "error: not an address: not a valid DNS name"),
        ("/flood", "64 kept, then hello"),
        ("/closed", "nil closed closed"),
        ("/busy", "error: socket busy"),
    ] {
        assert_eq!(get(&mut process, &mut echo, target), expected, "{target}");
    }
    assert_eq!(process.sum("lua_lost_datagrams"), 200 - 64);
    let many = get(&mut process, &mut echo, "/many");
    assert!(many.ends_with(" too many sockets and requests of the application are in progress"));
    assert_eq!(get(&mut process, &mut echo, "/echo"), "hello", "the sockets are closed");
    process.workers[0].stop(Span::ZERO);
    pass(&mut process, &mut echo, Span::from_secs(1));
    process.finish(Vec::new());
}

#[test]
fn hooks_use_datagrams() {
    let mut process = Process::of(FILE, 1);
    let mut echo = Echo::new(&process.net);
    let server = process.net.serve(&tidegate_base::Address::Tcp(([10, 0, 1, 2], 8000).into()));
    let server = server.expect("a free address");
    let client = begin(&process, "/proxied");
    pass(&mut process, &mut echo, Span::from_millis(100));
    let origin = server.accept().expect("the request is forwarded");
    let request = String::from_utf8_lossy(&origin.receive()).into_owned();
    assert!(request.contains("\r\nX-Answer: hello\r\n"), "{request}");
    drop((client, origin, server));
}

#[test]
fn socket_of_earlier_code_gets_its_datagrams() {
    let mut run = Reloaded::of(FILE, 1);
    let mut echo = Echo::new(&run.process.net);
    let client = begin(&run.process, "/late");
    pass(&mut run.process, &mut echo, Span::from_millis(100));
    assert_eq!(echo.late.len(), 1);
    let changed = FILE.replace("requests-max = 12", "requests-max = 13");
    assert_eq!(run.reload(&changed), Ok(()));
    pass(&mut run.process, &mut echo, Span::from_millis(100));
    assert_eq!(get(&mut run.process, &mut echo, "/echo"), "hello", "the new code");
    echo.socket.send(echo.late[0], b"answer");
    pass(&mut run.process, &mut echo, Span::from_millis(100));
    let response = String::from_utf8_lossy(&client.receive()).into_owned();
    assert!(response.ends_with("answer"), "{response}");
    drop(client);
    // A socket of code whose time is over is closed.
    let client = begin(&run.process, "/late");
    pass(&mut run.process, &mut echo, Span::from_millis(100));
    assert_eq!(run.reload(FILE), Ok(()));
    pass(&mut run.process, &mut echo, Span::from_secs(31));
    assert!(client.receive().starts_with(b"HTTP/1.1 503"));
    run.process.workers[0].stop(Span::ZERO);
    pass(&mut run.process, &mut echo, Span::from_secs(1));
    run.process.finish(Vec::new());
}

#[test]
fn sockets_end_with_their_handlers_whatever_the_network_does() {
    let (mut answered, mut failed) = (0, 0);
    for seed in 0..SEEDS {
        for response in storm(seed) {
            assert!(!response.ends_with("mixed"), "seed {seed}");
            answered += usize::from(response.ends_with("answered"));
            failed += usize::from(!response.ends_with("answered"));
        }
    }
    assert!(answered > 500 && failed > 50, "{answered} answered, {failed} not");
}

/// Runs one seed. Returns the responses.
fn storm(seed: u64) -> Vec<String> {
    let mut prng = Prng::new(seed ^ 0x6461_7461);
    let process = Process::of(FILE, 1);
    let mut echo = Echo::new(&process.net);
    let latency_us_max = prng.below(60_000) as u32;
    run_storm(process, (seed, &mut prng), (latency_us_max, 8), || echo.step())
}

/// Clients ask for `/storm` and leave when they like, in a network that loses, repeats and delays datagrams by up to
/// `latency_us_max`; a turn takes up to `turn_ms_max`. Then the process stops. `step` plays the servers. Returns the responses.
pub fn run_storm(
    mut process: Process,
    (seed, prng): (u64, &mut Prng),
    (latency_us_max, turn_ms_max): (u32, u64),
    mut step: impl FnMut(),
) -> Vec<String> {
    let net = process.net.clone();
    net.set_faults(Faults {
        datagram_lost_ppm: prng.below(500_000) as u32,
        datagram_repeated_ppm: prng.below(300_000) as u32,
        would_block_ppm: prng.below(300_000) as u32,
        connect_shortage_ppm: prng.below(150_000) as u32,
        register_shortage_ppm: prng.below(50_000) as u32,
        latency_us_max,
        ..Faults::none()
    });
    let (mut clients, mut responses): (Vec<(SimPeer, Vec<u8>)>, _) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        if prng.below(3) == 0
            && clients.len() < 10
            && let Some(peer) = net.dial(&process.workers[0].bound[0])
        {
            peer.send(b"GET /storm HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            clients.push((peer, Vec::new()));
        }
        clients.retain_mut(|(peer, received)| {
            received.extend(peer.receive());
            if peer.is_finished_by_other() {
                responses.push(String::from_utf8_lossy(received).into_owned());
                return false;
            }
            let leaves = prng.below(100) == 0;
            if leaves {
                peer.reset();
            }
            !leaves
        });
        if prng.below(4) > 0 {
            step();
        }
        process.turns(1);
        net.advance_by(Span::from_millis(prng.below(turn_ms_max)));
    }
    clients.clear();
    stop(&mut process, seed, Span::from_millis(prng.below(3000)));
    responses
}

/// Stops the process, and checks that nothing is left.
fn stop(process: &mut Process, seed: u64, grace: Span) {
    let net = process.net.clone();
    let harness = &mut process.workers[0];
    harness.stop(grace);
    for turn in 0.. {
        assert!(turn < STOP_TURNS_MAX, "seed {seed}: {:?}", harness.worker.leftovers());
        harness.turn();
        if harness.worker.is_stopped(&harness.reactor) {
            break;
        }
        net.advance_by(Span::from_millis(5));
    }
    for _ in 0..STOP_TURNS_MAX {
        harness.turn();
        if harness.reactor.sock_count() == 0 || !net.advance_to_next_event() {
            break;
        }
    }
    harness.worker.stop_apps(&mut harness.reactor);
    assert_eq!(harness.find_leak(), None, "seed {seed}");
    assert_eq!(harness.reactor.datagram_socket_count(), 0, "seed {seed}");
}
