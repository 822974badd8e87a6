//! Lua applications over HTTP/2, and on several workers.
//! In: scripts, clients. Out: what each test's name says.
//! Limits: the turns that each test sets.
//! Invariant: after a run the workers hold nothing.

use tidegate_base::Span;
use tidegate_reactor::{Faults, SimNet, SimPeer, SimReactor};
use tidegate_wire::websocket::{Decoder, FrameRules, Incoming, Limits, Role};

use crate::peer::harness::Harness;
use crate::speaker::Speaker;
use crate::stage::scene;

const HTTP2: &str = "h2c = true\ntimeouts = { head = \"1h\", idle = \"1h\", body = \"1h\" }\n\
    [[route]]\npath = [\"/sleep\", \"/threads\", \"/quick\", \"/large\", \"/forever\", \"/error\"]\nlua = \"w\"\n\
    [lua.w]\nscript = \"tests/scripts/waiting.lua\"\n";

#[test]
fn handlers_of_several_streams_wait_concurrently_and_can_be_cancelled() {
    scene().listener(HTTP2).run(|stage| {
        let mut client = Speaker::new(stage);
        let forever = client.get("/forever");
        let [slept, threads, quick, failed] =
            ["/sleep", "/threads", "/quick", "/error"].map(|path| client.get(path));
        assert_eq!(client.wait(stage, quick).body, b"at once");
        assert_eq!(client.wait(stage, threads).body, b"ab");
        assert_eq!(client.wait(stage, slept).body, b"slept");
        assert_eq!(client.wait(stage, failed).status, 500);
        assert_eq!(stage.harness.worker.leftovers().lua_waiting, 1);
        client.reset(forever);
        client.hello(stage);
        assert_eq!(stage.harness.worker.leftovers().lua_waiting, 0);
    });
}

#[test]
fn dropped_request_resets_its_stream_only() {
    let listener = "h2c = true\n\
        [[route]]\npath = [\"/drop\", \"/wait-and-drop\", \"/late-drop\"]\nlua = \"w\"\n\
        [lua.w]\nscript = \"tests/scripts/waiting.lua\"\n";
    scene().listener(listener).run(|stage| {
        let mut client = Speaker::new(stage);
        let streams = ["/drop", "/wait-and-drop", "/late-drop"].map(|path| client.get(path));
        for stream in streams {
            let response = client.wait(stage, stream);
            assert!(response.reset.is_some(), "{response:?}");
        }
        client.hello(stage);
        assert_eq!(stage.harness.worker.leftovers().lua_waiting, 0);
    });
}

#[test]
fn writes_of_a_handler_wait_for_the_window_of_their_stream() {
    scene().listener(HTTP2).run(|stage| {
        let mut client = Speaker::new(stage);
        let large = client.get("/large");
        client.unread.push(large);
        for _ in 0..10 {
            client.hello(stage);
        }
        assert_eq!(client.responses[&large].body.len(), 65_535, "the window of the stream");
        assert_eq!(stage.harness.worker.leftovers().lua_waiting, 1);
        // 256 KiB are collected before they are sent.
        assert!(stage.harness.worker.stream_bytes_held() <= 400_000);
        client.unread.clear();
        client.credit(large, 800_000);
        assert_eq!(client.wait(stage, large).body.len(), 800_000);
    });
}

#[test]
fn vm_near_its_memory_limit_ends_handlers_of_the_connection_with_most_handlers() {
    let listener = "h2c = true\ntimeouts = { head = \"1h\", idle = \"1h\", body = \"1h\" }\n\
        [[route]]\npath = [\"/hoard\", \"/short\"]\nlua = \"m\"\n\
        [lua.m]\nscript = \"tests/scripts/hoard.lua\"\nmemory-max = \"8MiB\"\n";
    scene().listener(listener).run(|stage| {
        let mut other = Speaker::new(stage);
        let kept = other.get("/hoard");
        other.hello(stage);
        let mut client = Speaker::new(stage);
        for _ in 0..3 {
            let streams: Vec<_> = (0..60).map(|_| client.get("/hoard")).collect();
            client.hello(stage);
            other.hello(stage);
            streams.into_iter().for_each(|stream| client.reset(stream));
            client.hello(stage);
        }
        let counters = stage.counters();
        assert_eq!(counters.lua_restarts.load(), 0);
        assert!(counters.lua_evictions.load() > 30, "{}", counters.lua_evictions.load());
        let waiting = stage.harness.worker.leftovers().lua_waiting;
        assert_eq!(waiting, 1, "the handler of the other client");
        let short = other.get("/short");
        assert_eq!(other.wait(stage, short).body, b"short");
        other.reset(kept);
        other.hello(stage);
    });
}

/// The workers of a process with the application `post.lua`.
pub struct Process {
    pub net: SimNet,
    pub workers: Vec<Harness<SimReactor>>,
}

impl Process {
    fn new(workers: u32) -> Self {
        Self::of(
            "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nlua = \"post\"\n[lua.post]\n\
            script = \"tests/scripts/post.lua\"\nshared = { clients = \"64KiB\" }\n",
            workers,
        )
    }

    pub fn of(file: &str, workers: u32) -> Self {
        let config = match tidegate_config::parse(file, "the test") {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        };
        let net = SimNet::new(1, Faults::none());
        let mut workers = Harness::process(&net, &config, workers, 64);
        if workers.len() > 1 && !config.push.is_empty() {
            Harness::join_hubs(&mut workers, 64);
        }
        Self { net, workers }
    }

    /// Sends `GET target` over a connection of its own, and returns the body of the response.
    pub fn get(&mut self, target: &str) -> String {
        let peer = self.net.dial(&self.workers[0].bound[0]).expect("the workers listen");
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(peer.send(request.as_bytes()), request.len());
        self.turns(60);
        let response: Vec<u8> = peer.receive().into_iter().collect();
        let response = String::from_utf8_lossy(&response).into_owned();
        response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }

    pub fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.workers.iter_mut().for_each(Harness::turn);
            self.net.advance_by(Span::from_micros(100));
        }
    }

    /// Connects a client. Returns it and its id.
    pub fn connect(&mut self) -> (Client, String) {
        let mut client = self.open();
        let id = client.read().pop().expect("the client gets its id");
        (client, id)
    }

    /// Connects a client of an application that sends no message first.
    pub fn open(&mut self) -> Client {
        let peer = self.net.dial(&self.workers[0].bound[0]).expect("the workers listen");
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        assert_eq!(peer.send(request.as_bytes()), request.len());
        self.turns(10);
        let mut input: Vec<u8> = peer.receive().into_iter().collect();
        let end = input.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let input = input.split_off(end + 4);
        let decoder = Decoder::new(FrameRules { role: Role::Client, allows_deflate: false });
        Client { peer, decoder, input, message: Vec::new() }
    }

    pub fn sum(&self, name: &str) -> u64 {
        let all = self.workers.iter().flat_map(|worker| worker.accounts.counters.all());
        all.filter(|(known, _)| *known == name).map(|(_, value)| value).sum()
    }

    /// Ends the clients and checks that nothing is left.
    pub fn finish(mut self, clients: Vec<Client>) {
        clients.iter().for_each(|client| client.peer.reset());
        self.turns(50);
        for worker in &self.workers {
            assert_eq!(worker.find_leak(), None);
        }
    }
}

pub struct Client {
    pub peer: SimPeer,
    decoder: Decoder,
    input: Vec<u8>,
    message: Vec<u8>,
}

impl Client {
    pub fn send(&self, text: &str) {
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend(text.as_bytes());
        assert_eq!(self.peer.send(&frame), frame.len());
    }

    /// The messages that have arrived; a Close frame is its code.
    pub fn read(&mut self) -> Vec<String> {
        self.input.extend(self.peer.receive());
        let mut input = core::mem::take(&mut self.input);
        let (mut rest, limits, mut messages) = (&mut input[..], Limits::default(), Vec::new());
        while !rest.is_empty() {
            let step = self.decoder.decode_message(rest, &limits, &mut self.message, None);
            let step = step.expect("the worker keeps to the protocol");
            let consumed = step.consumed;
            match step.incoming {
                Some(Incoming::Message(message)) => {
                    messages.push(String::from_utf8_lossy(message.bytes()).into_owned());
                }
                Some(Incoming::Close(Some(close))) => messages.push(close.code.get().to_string()),
                _ => {}
            }
            if consumed == 0 {
                break;
            }
            rest = &mut rest[consumed..];
        }
        messages
    }
}

#[test]
fn clients_of_different_workers_reach_each_other() {
    let mut process = Process::new(3);
    let mut clients: Vec<(Client, String)> = (0..12).map(|_| process.connect()).collect();
    let worker = |id: &str| id.split('-').next().map(str::to_owned);
    let first = worker(&clients[0].1);
    let other = clients.iter().position(|(_, id)| worker(id) != first);
    let other = other.expect("the workers share the connections");
    let (id, own_id) = (clients[other].1.clone(), clients[0].1.clone());
    for (to, receiver) in [(&id, other), (&own_id, 0)] {
        clients[0].0.send(&format!("to {to} hello"));
        process.turns(20);
        let mut received = clients[receiver].0.read();
        received.extend(clients[0].0.read());
        received.sort();
        assert_eq!(received, ["hello", "true nil"], "{to}");
    }
    clients[0].0.send("to 9-0-0-1 hello");
    clients[0].0.send("to nobody hello");
    clients[0].0.send(&format!("close {id} bye"));
    process.turns(20);
    let refused = "nil this is not the id of a client";
    assert_eq!(clients[0].0.read(), [refused, refused]);
    assert_eq!(clients[other].0.read(), ["4000"]);
    // A client that has left gets nothing, and neither does a later one.
    let (gone, _) = clients.remove(other);
    gone.peer.reset();
    process.turns(20);
    clients.extend((0..12).map(|_| process.connect()));
    clients[0].0.send(&format!("to {id} late"));
    process.turns(20);
    assert_eq!(clients[0].0.read(), ["true nil"]);
    assert!(clients.iter_mut().all(|(client, _)| client.read().is_empty()));
    assert_eq!(process.sum("lua_mail_drops"), 0);
    process.finish(clients.into_iter().map(|(client, _)| client).collect());
}

const HUBS: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nlua = \"push\"\n[lua.push]\n\
    script = \"tests/scripts/push.lua\"\n[push.p]\n[push.p.namespace.h]\nhistory = 50\n";

#[test]
fn applications_call_hubs_of_all_workers() {
    for workers in [1, 3] {
        let mut process = Process::of(HUBS, workers);
        // The channels belong to different workers.
        for channel in ["a", "b", "c", "d", "e"] {
            let lines = process.get(&format!("/run?channel=h:{channel}"));
            let expected = "published\npublished\npublished\n3 in the history\n{\"ok\":true}\n";
            assert_eq!(lines, expected, "{workers} workers, channel {channel}");
        }
        assert_eq!(process.sum("push_publications"), 15);
        let lines = process.get("/errors");
        let expected = "unknown channel 102\nnot available 108\n{}\n{\"ok\":true}\n";
        assert_eq!(lines, expected, "{workers} workers");
        process.finish(Vec::new());
    }
}

#[test]
fn calls_of_clients_that_leave_end_by_themselves() {
    let mut process = Process::of(HUBS, 3);
    for channel in ["a", "b", "c", "d", "e"] {
        let peer = process.net.dial(&process.workers[0].bound[0]).expect("the workers listen");
        let request = format!("GET /leave?channel=h:{channel} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(peer.send(request.as_bytes()), request.len());
        process.turns(2);
        peer.reset();
    }
    process.turns(50);
    assert_eq!(process.sum("push_publications"), 10);
    process.finish(Vec::new());
}

#[test]
fn on_drain_runs_when_a_slow_client_has_read() {
    let mut process = Process::new(1);
    let (mut client, _) = process.connect();
    for _ in 0..12 {
        client.send("fill 65000");
        process.turns(5);
    }
    let mut messages = Vec::new();
    for _ in 0..200 {
        messages.extend(client.read());
        process.turns(5);
    }
    assert_eq!(messages.iter().filter(|message| message.len() == 65_000).count(), 12);
    assert!(messages.contains(&"drained 0".to_owned()), "on_drain did not run");
    assert_eq!(process.sum("lua_slow_clients"), 0);
    process.finish(vec![client]);
}

#[test]
fn send_fails_once_a_client_that_does_not_read_is_being_closed() {
    let mut process = Process::new(1);
    let (slow, id) = process.connect();
    let (mut client, _) = process.connect();
    let mut replies = Vec::new();
    for _ in 0..100 {
        client.send(&format!("stuff {id} 65000"));
        process.turns(5);
        replies.extend(client.read());
        if process.sum("lua_slow_clients") > 0 {
            break;
        }
    }
    assert!(replies.iter().all(|reply| reply == "true, nil, true"), "{replies:?}");
    // The connection lasts, because the Close frame has not arrived.
    for _ in 0..3 {
        client.send(&format!("stuff {id} 65000"));
        process.turns(5);
        assert_eq!(client.read(), ["nil, the connection is closed, false"]);
    }
    assert_eq!((process.sum("lua_slow_clients"), process.sum("websockets_now")), (1, 2));
    process.finish(vec![slow, client]);
}

#[test]
fn callback_that_sends_more_than_fits_does_not_disconnect_its_client() {
    let mut process = Process::new(1);
    let (mut client, _) = process.connect();
    // Beyond what may wait for a client that does not read.
    client.send("burst 65000 40");
    let mut messages = Vec::new();
    for _ in 0..400 {
        process.turns(5);
        messages.extend(client.read());
    }
    assert_eq!(messages.iter().filter(|message| message.len() == 65_000).count(), 40);
    assert_eq!(process.sum("lua_slow_clients"), 0);
    process.finish(vec![client]);
}
