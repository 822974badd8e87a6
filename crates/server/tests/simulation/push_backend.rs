//! Push clients whose hub asks a backend that is slow, silent, sends nonsense, or is not there.
//! In: seeds, the scripts of the tests. Out: what each test's name says.
//! Limits: the turns that each test sets.
//! Invariant: after a run the workers hold nothing.

use tidegate_base::{Address, Prng, Span};
use tidegate_reactor::{Faults, SimPeer, SimServer};

use crate::push::Process;
use crate::push_clients::{Stream, member, post, websocket_request};

const SETTINGS: &str = "subscribe = \"anyone\"\nbackend-events = [\"publish\", \"channel-empty\"]\n\
    [push.p.backend]\npool = \"app\"\nconnect = \"/connect\"\npublish = \"/publish\"\nrpc = \"/rpc\"\n\
    disconnect = \"/left\"\nchannel-empty = \"/empty\"\nheaders = [\"Cookie\"]\ntimeout = \"500ms\"\n\
    reply-max = \"1KiB\"\ncalls-max = 5\ncalls-per-address-max = 3\n\
    [pool.app]\nservers = [\"10.0.1.1:8000\"]\n";
const CONNECT: &str = "{\"id\":1,\"connect\":{}}";
const GRANTED: &str = "{\"result\":{\"user\":\"7\"}}";

/// The backend.
struct Backend {
    server: SimServer,
    conns: Vec<(SimPeer, String)>,
}

impl Backend {
    fn new(process: &Process) -> Self {
        let address = Address::Tcp(([10, 0, 1, 1], 8000).into());
        Self { server: process.serve(&address), conns: Vec::new() }
    }

    /// The next complete request: its path, its body, and the index of the connection.
    fn poll(&mut self) -> Option<(String, String, usize)> {
        while let Some(peer) = self.server.accept() {
            self.conns.push((peer, String::new()));
        }
        for (at, (peer, received)) in self.conns.iter_mut().enumerate() {
            received.push_str(&String::from_utf8_lossy(&peer.receive()));
            let Some((head, rest)) = received.split_once("\r\n\r\n") else { continue };
            let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next());
            let length: usize = length.and_then(|length| length.parse().ok()).expect("a length");
            if rest.len() >= length {
                let path = head.split(' ').nth(1).expect("a path").to_owned();
                let (body, left) = (rest[..length].to_owned(), rest[length..].to_owned());
                *received = left;
                return Some((path, body, at));
            }
        }
        None
    }

    /// Waits for a request.
    fn next(&mut self, process: &mut Process) -> (String, String, usize) {
        for _ in 0..1000 {
            if let Some(found) = self.poll() {
                return found;
            }
            process.turn();
        }
        panic!("the backend gets no request");
    }

    /// Waits for a request to `path`, and answers it.
    fn answer(&mut self, process: &mut Process, path: &str, body: &str) -> String {
        let (found, question, at) = self.next(process);
        assert_eq!(found, path);
        self.respond(at, body);
        question
    }

    fn respond(&self, at: usize, body: &str) {
        let length = body.len();
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        self.conns[at].0.send(response.as_bytes());
    }
}

#[test]
fn commands_of_a_client_wait_for_the_decision_on_earlier_ones() {
    let mut process = Process::new(2, 3, 64, SETTINGS);
    let mut backend = Backend::new(&process);
    let mut stream = Stream::begin(
        &mut process,
        "http_stream",
        "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"rpc\":{\"method\":\"a\"}}\n{\"id\":3,\"subscribe\":{\"channel\":\"r\"}}",
    );
    assert_eq!(stream.rest(&mut process), "", "nothing is answered before the backend has");
    let question = backend.answer(&mut process, "/connect", GRANTED);
    assert!(question.contains("\"transport\":\"http_stream\""), "{question}");
    let reply = stream.wait_for(&mut process, "}}\n");
    let question = backend.answer(&mut process, "/rpc", "{\"result\":{\"data\":5}}");
    assert!(question.contains("\"user\":\"7\""), "{question}");
    stream.wait_for(&mut process, "{\"id\":2,\"rpc\":{\"data\":5}}\n");
    stream.wait_for(&mut process, "{\"id\":3,\"subscribe\":{}}\n");
    // A request of its own finds the session, and waits, too.
    let (session, node) = (member(&reply, "session"), member(&reply, "node"));
    let text = "{\"id\":4,\"publish\":{\"channel\":\"r\",\"data\":1}}";
    assert_eq!(post(&mut process, session, node, text), "204");
    let text = "{\"id\":5,\"unsubscribe\":{\"channel\":\"r\"}}";
    assert_eq!(post(&mut process, session, node, text), "204");
    let text = stream.rest(&mut process);
    assert!(!text.contains("\"id\""), "the second request waits for the first: {text}");
    stream.text.clear();
    backend.answer(&mut process, "/publish", "{\"result\":{\"data\":2}}");
    stream.wait_for(&mut process, "{\"id\":5,\"unsubscribe\":{}}");
    let question = backend.answer(&mut process, "/empty", "{\"result\":{}}");
    assert!(
        question.contains("{\"events\":[{\"channel\":\"r\",\"type\":\"vacated\""),
        "{question}"
    );
    drop(stream);
    process.turns(20);
    let question = backend.answer(&mut process, "/left", "{\"result\":{}}");
    assert!(question.contains("\"type\":\"disconnected\"") && question.contains("\"user\":\"7\""));
    assert_eq!(process.sum("push_backend_failures") + process.sum("push_lost_events"), 0);
    drop(backend);
    process.finish(Vec::new());
}

/// A frame of a client, masked with the key 0.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).ok().filter(|length| *length < 126);
    let mut frame = vec![0x80 | opcode, 0x80 | length.expect("a short payload"), 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

#[test]
fn websocket_that_is_closed_while_messages_wait_reads_the_close_frame_behind_them() {
    let mut process = Process::new(1, 16, 64, SETTINGS);
    let mut backend = Backend::new(&process);
    let peer = process.dial();
    process.turns(4);
    let request = websocket_request("connection/websocket");
    assert_eq!(peer.send(request.as_bytes()), request.len());
    process.turns(10);
    let send = |opcode, payload: &[u8]| {
        let frame = masked(opcode, payload);
        assert_eq!(peer.send(&frame), frame.len());
    };
    send(1, CONNECT.as_bytes());
    backend.answer(&mut process, "/connect", GRANTED);
    process.turns(10);
    for id in 2..5 {
        send(1, format!("{{\"id\":{id},\"rpc\":{{\"method\":\"a\"}}}}").as_bytes());
    }
    backend.answer(&mut process, "/rpc", "{\"disconnect\":{\"code\":4501,\"reason\":\"gone\"}}");
    process.turns(10);
    let code = 4501_u16.to_be_bytes();
    assert!(peer.receive().ends_with(&[&code[..], b"gone"].concat()), "a Close frame");
    send(8, &code);
    process.turns(10);
    assert_eq!(process.sum("websockets_now"), 0, "the Close frame of the client was read");
    assert_eq!(process.sum("websocket_timeouts"), 0);
    drop((peer, backend));
    process.finish(Vec::new());
}

#[test]
fn backend_that_fails_costs_the_client_an_error_that_it_may_try_again_after() {
    let mut process = Process::new(1, 4, 64, SETTINGS);
    let mut backend = Backend::new(&process);
    let large = format!("{{\"result\":{{\"data\":\"{}\"}}}}", "x".repeat(1024));
    for (number, response) in [
        "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]".to_owned(),
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{large}", large.len()),
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{large}"),
        "no HTTP\r\n\r\n".to_owned(),
        // Silence.
        String::new(),
    ]
    .iter()
    .enumerate()
    {
        let mut stream = Stream::begin(&mut process, "http_stream", CONNECT);
        let (_, _, at) = backend.next(&mut process);
        backend.conns[at].0.send(response.as_bytes());
        if response.contains("Connection: close") {
            backend.conns[at].0.finish();
        }
        if response.is_empty() {
            process.turns(50);
            process.pass(Span::from_millis(600));
        }
        let error = "{\"id\":1,\"error\":{\"code\":100,\"message\":\"internal server error\",\"temporary\":true}}";
        stream.wait_for(&mut process, error);
        stream.wait_for(&mut process, "0\r\n\r\n");
        assert_eq!(process.sum("push_backend_failures"), number as u64 + 1);
        backend.conns.clear();
    }
    drop(backend);
    end(process);
}

#[test]
fn clients_of_one_address_leave_places_for_others_and_get_an_error_beyond_theirs() {
    let mut process = Process::new(1, 5, 64, SETTINGS);
    let mut backend = Backend::new(&process);
    // One machine begins as many connections as it likes.
    let mut streams: Vec<_> =
        (0..6).map(|_| Stream::begin(&mut process, "http_stream", CONNECT)).collect();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(backend.next(&mut process));
    }
    process.turns(100);
    assert!(backend.poll().is_none(), "no more than the places of an address");
    assert_eq!(process.sum("push_backend_refused"), 3);
    for stream in &mut streams[3..] {
        stream.wait_for(
            &mut process,
            "\"code\":111,\"message\":\"too many requests\",\"temporary\":true}",
        );
    }
    // A client that leaves gives its place back, and its request ends.
    streams.truncate(3);
    drop(streams.remove(0));
    process.turns(20);
    let mut late = Stream::begin(&mut process, "http_stream", CONNECT);
    let (_, _, at) = backend.next(&mut process);
    backend.respond(at, GRANTED);
    late.wait_for(&mut process, "\"connect\":{");
    assert_eq!(process.sum("push_backend_failures"), 3, "those that were refused");
    drop((late, streams, waiting, backend));
    end(process);
}

#[test]
fn clients_do_not_postpone_their_end_with_commands() {
    let settings =
        SETTINGS.replace("timeout = \"500ms\"", "timeout = \"300s\"\nrefresh = \"/refresh\"");
    let mut process =
        Process::new(1, 7, 64, &format!("{settings}[websocket]\nping-every = \"off\"\n"));
    let mut backend = Backend::new(&process);
    let mut streams = Vec::new();
    for _ in 0..3 {
        let commands = format!("{CONNECT}\n{{\"id\":2,\"rpc\":{{\"method\":\"slow\"}}}}");
        let mut stream = Stream::begin(&mut process, "http_stream", &commands);
        let until = process.unix_seconds() + 3;
        let granted = format!("{{\"result\":{{\"user\":\"7\",\"expire_at\":{until}}}}}");
        backend.answer(&mut process, "/connect", &granted);
        stream.wait_for(&mut process, "\"connect\":{");
        let (path, _, _) = backend.next(&mut process);
        assert_eq!(path, "/rpc", "which takes a place of the address and is not answered");
        streams.push(stream);
    }
    for _ in 0..40 {
        process.pass(Span::from_secs(1));
    }
    for _ in 0..3 {
        backend.answer(&mut process, "/refresh", "{\"result\":{\"expired\":true}}");
    }
    for stream in &mut streams {
        stream.wait_for(&mut process, "\"code\":3005,\"reason\":\"connection expired\"");
    }
    assert_eq!(process.sum("push_backend_refused") + process.sum("push_clients_now"), 0);
    drop((streams, backend));
    end(process);
}

#[test]
fn events_that_the_backend_does_not_take_are_bounded_and_counted() {
    let mut process = Process::new(1, 6, 64, SETTINGS);
    let mut backend = Backend::new(&process);
    for _ in 0..100 {
        let mut stream = Stream::begin(&mut process, "http_stream", CONNECT);
        loop {
            let (path, _, at) = backend.next(&mut process);
            // Events wait for an answer that does not come.
            if path == "/connect" {
                backend.respond(at, GRANTED);
                break;
            }
        }
        stream.wait_for(&mut process, "\"connect\":{");
    }
    process.turns(20);
    process.pass(Span::from_millis(600));
    assert!(process.sum("push_lost_events") > 0);
    drop(backend);
    for _ in 0..20 {
        process.turns(20);
        process.pass(Span::from_secs(1));
    }
    assert_eq!(process.sum("push_lost_events"), 100);
    process.finish(Vec::new());
}

/// Waits until nothing is sent to the backend any more, which is gone.
fn end(mut process: Process) {
    for _ in 0..20 {
        process.turns(20);
        process.pass(Span::from_secs(1));
    }
    process.finish(Vec::new());
}

/// Runs one seed. Returns how many clients were let in.
fn run(seed: u64) -> u64 {
    let mut prng = Prng::new(seed ^ 0x6261_636b);
    let mut process = Process::new(2, seed, 64, SETTINGS);
    let mut backend = Backend::new(&process);
    process.set_faults(Faults {
        short_read_ppm: 100_000,
        short_write_ppm: 100_000,
        connect_refused_ppm: 50_000,
        connect_silent_ppm: 20_000,
        latency_us_max: 2000,
        ..Faults::none()
    });
    let mut peers: Vec<SimPeer> = Vec::new();
    let commands: String = (0..3)
        .map(|at| {
            let (subscribe, publish, unsubscribe) = (3 * at + 2, 3 * at + 3, 3 * at + 4);
            format!(
                "{{\"id\":{subscribe},\"subscribe\":{{\"channel\":\"c{at}\"}}}}\n\
                 {{\"id\":{publish},\"publish\":{{\"channel\":\"c{at}\",\"data\":1}}}}\n\
                 {{\"id\":{unsubscribe},\"rpc\":{{\"method\":\"m\"}}}}\n"
            )
        })
        .collect();
    let body = format!("{CONNECT}\n{commands}");
    let request = format!(
        "POST /push/connection/sse HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..400 {
        if prng.below(4) == 0 && peers.len() < 8 {
            let peer = process.dial();
            peer.send(request.as_bytes());
            peers.push(peer);
        }
        peers.retain(|peer| {
            let _ = peer.receive();
            let leaves = prng.below(60) == 0;
            if leaves {
                peer.reset();
            }
            !leaves
        });
        if let Some((_, _, at)) = backend.poll() {
            match prng.below(8) {
                // Silence.
                0 => {}
                1 => backend.conns[at].0.reset(),
                2 => backend.respond(at, "{\"disconnect\":{\"code\":4000,\"reason\":\"no\"}}"),
                3 => backend.respond(at, "{\"error\":{\"code\":1000}}"),
                _ => backend.respond(at, GRANTED),
            }
        }
        process.turn();
        process.pass(Span::from_millis(prng.below(20)));
    }
    let clients = process.sum("push_subscriptions");
    peers.iter().for_each(SimPeer::reset);
    process.set_faults(Faults::none());
    drop(backend);
    end(process);
    clients
}

#[test]
fn nothing_is_left_whatever_backends_and_clients_do() {
    let clients: u64 = (0..30).map(run).sum();
    assert!(clients > 100, "{clients} subscriptions");
}

/// Clients over WebSocket that never read: each is subscribed to a channel of its own.
fn silent_clients(process: &mut Process, backend: &mut Backend, count: usize) -> Vec<SimPeer> {
    let mut peers = Vec::new();
    for number in 0..count {
        let peer = process.dial();
        process.turns(4);
        let request = websocket_request("connection/websocket");
        assert_eq!(peer.send(request.as_bytes()), request.len());
        process.turns(10);
        let subscribe = format!("{{\"id\":2,\"subscribe\":{{\"channel\":\"r{number}\"}}}}");
        for command in [CONNECT, &subscribe] {
            let frame = masked(1, command.as_bytes());
            assert_eq!(peer.send(&frame), frame.len());
        }
        backend.answer(process, "/connect", GRANTED);
        process.turns(10);
        peers.push(peer);
    }
    assert_eq!(process.sum("push_subscriptions_now"), count as u64);
    peers
}

#[test]
fn backend_learns_of_the_clients_that_the_end_of_a_stop_cuts_off() {
    const CLIENTS: usize = 6;
    let mut process = Process::new(2, 17, 64, SETTINGS);
    let mut backend = Backend::new(&process);
    let peers = silent_clients(&mut process, &mut backend, CLIENTS);
    process.stop(Span::from_millis(300));
    let (mut left, mut empty) = (0, 0);
    let mut steps = 0;
    while !process.is_stopped() {
        // With the turns, a step takes 1.2 ms.
        process.pass(Span::from_millis(1));
        steps += 1;
        assert!(steps < 1000, "{left} clients and {empty} channels");
        if let Some((_, body, at)) = backend.poll() {
            assert!(steps >= 300 * 10 / 12, "the clients were cut off early: {body}");
            left += body.matches("\"type\":\"disconnected\"").count();
            empty += body.matches("\"type\":\"vacated\"").count();
            backend.respond(at, GRANTED);
        }
    }
    assert_eq!((left, empty), (CLIENTS, CLIENTS));
    assert_eq!(process.sum("push_lost_events"), 0);
    drop((peers, backend));
    process.finish(Vec::new());
}

#[test]
fn silent_backend_does_not_hold_up_a_stop() {
    let mut process = Process::new(2, 18, 64, &SETTINGS.replace("500ms", "60s"));
    let mut backend = Backend::new(&process);
    let peers = silent_clients(&mut process, &mut backend, 3);
    process.stop(Span::from_millis(300));
    process.pass(Span::from_millis(300));
    (0..10).for_each(|_| process.pass(Span::from_millis(100)));
    assert!(!process.is_stopped());
    (0..15).for_each(|_| process.pass(Span::from_millis(100)));
    assert!(process.is_stopped());
    assert_eq!(process.sum("push_lost_events"), 6);
    drop((peers, backend));
    process.finish(Vec::new());
}

#[test]
fn backend_learns_of_all_channels_that_a_client_leaves_empty() {
    const CHANNELS: usize = 600;
    let settings = format!("channels-max = {CHANNELS}\n{SETTINGS}");
    let mut process = Process::new(2, 19, 64, &settings);
    let mut backend = Backend::new(&process);
    let subscribe = |id| format!("\n{{\"id\":{id},\"subscribe\":{{\"channel\":\"r{id}\"}}}}");
    let commands = CONNECT.to_owned() + &(2..2 + CHANNELS).map(subscribe).collect::<String>();
    let stream = Stream::begin(&mut process, "http_stream", &commands);
    backend.answer(&mut process, "/connect", GRANTED);
    process.turns(200);
    assert_eq!(process.sum("push_subscriptions_now"), CHANNELS as u64);
    drop(stream);
    let (mut empty, mut left) = (0, 0);
    while empty < CHANNELS || left == 0 {
        let (path, body, at) = backend.next(&mut process);
        let count = body.matches("\"type\":\"vacated\"").count();
        assert!(count <= 64 && (count == 0) == (path == "/left"), "{path}: {body}");
        empty += count;
        left += body.matches("\"type\":\"disconnected\"").count();
        backend.respond(at, "{\"result\":{}}");
    }
    assert_eq!((empty, left, process.sum("push_lost_events")), (CHANNELS, 1, 0));
    process.turns(20);
    drop(backend);
    process.finish(Vec::new());
}
