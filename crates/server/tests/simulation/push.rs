//! Push hubs of several workers: subscribers by URL that come, go, are slow or come back; requests to the API.
//! In: seeds of their own. Out: what each test's name says.
//! Limits: the turns that each test sets.
//! Invariant: after a run the workers hold nothing.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_base::{Address, Prng, Span};
use tidegate_config::arrange::Arranged;
use tidegate_config::model::Config;
use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::{Faults, Reactor as _, SimNet, SimPeer, SimReactor, SimServer};
use tidegate_wire::websocket::{
    Decoder, FrameRules, Incoming, Inflater, Kind, Limits, Role, encode_close_reply,
    encode_message, encode_pong,
};

use tidegate_secure::TlsPlan;
use tidegate_server::counters::HubCounters;
use tidegate_server::drain::{Drain, LEAVES};
use tidegate_server::snapshot::{Numbers, Snapshot};

use crate::peer::harness::{Harness, addresses};

pub(crate) const KEY: &str = "0123456789abcdef";
/// The content of each file that a hub names: the public key of the tokens of `push_tokens.rs`.
const PUBLIC_KEYS: &str = "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"1\",\
    \"x\":\"iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w\"}]}";
const SETTINGS: &str =
    "subscribe = \"anyone\"\n[push.p.namespace.h]\nsubscribe = \"anyone\"\nhistory = 50\n";

/// The workers of a process.
pub(crate) struct Process {
    net: SimNet,
    workers: Vec<Harness<SimReactor>>,
    config: Config,
}

/// The configuration of a process whose hub has these settings. Each file has this content.
fn config(settings: &str, file: &str) -> Config {
    let text = format!(
        "[[listener]]\nbind = \"10.0.0.1:80\"\ntimeouts = {{ head = \"1h\", body = \"1h\" }}\n\
         [[route]]\npath = \"/time\"\npush = {{ hub = \"p\", channel = \"time\" }}\n\
         [[route]]\npath = \"/push/*\"\npush = \"p\"\n[push.p]\napi-keys = [\"{KEY}\"]\n{settings}"
    );
    let mut config = match tidegate_config::parse(&text, "the test") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    };
    let supplied = tidegate_config::supply(&mut config, |_| Ok(file.into()));
    assert_eq!(supplied, Ok(()));
    config
}

impl Process {
    pub(crate) fn new(workers: usize, seed: u64, mails: usize, settings: &str) -> Self {
        Self::with_places(512, workers, seed, (mails, settings))
    }

    /// A process whose workers have `places` for connections.
    pub(crate) fn with_places(
        places: usize,
        workers: usize,
        seed: u64,
        (mails, settings): (usize, &str),
    ) -> Self {
        let config = config(settings, PUBLIC_KEYS);
        let net = SimNet::new(seed, Faults::none());
        let worker = |at| Harness::simulated(&net, &config, places, at);
        let mut workers: Vec<_> = (0..workers as u64).map(worker).collect();
        if workers.len() > 1 {
            Harness::join_hubs(&mut workers, mails);
        }
        Self { net, workers, config }
    }

    /// Gives the workers other settings of the hub. Each file has this content then.
    pub(crate) fn reload(&mut self, settings: &str, file: &str) {
        let next = config(settings, file);
        let arranged = Arranged::first(self.config.clone()).next(next.clone(), &BTreeSet::new());
        let arranged = arranged.expect("indexes are left");
        for worker in &mut self.workers {
            let state = ProcessState::new(&next, 0);
            let addresses = addresses(&next);
            let snapshot =
                Snapshot::arranged(arranged.clone(), addresses, state, &mut Numbers::of(&next));
            assert!(worker.change(snapshot, &TlsPlan::default()).is_ok());
        }
        self.config = next;
    }

    /// Lets the workers stop.
    pub(crate) fn stop(&mut self, grace: Span) {
        self.workers.iter_mut().for_each(|worker| worker.stop(grace));
    }

    /// Lets the workers stop, and end clients over `span`.
    pub(crate) fn stop_over(&mut self, grace: Span, span: Span) {
        for worker in &mut self.workers {
            worker.worker.close_over(Drain::over(span, LEAVES));
            worker.stop(grace);
        }
    }

    /// Whether all workers have stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.workers.iter().all(|harness| harness.worker.is_stopped(&harness.reactor))
    }

    pub(crate) fn dial(&self) -> SimPeer {
        self.net.dial(&self.workers[0].bound[0]).expect("the workers listen")
    }

    /// A server of the network.
    pub(crate) fn serve(&self, address: &Address) -> SimServer {
        self.net.serve(address).expect("the address is free")
    }

    /// The network fails in these ways from now on.
    pub(crate) fn set_faults(&self, faults: Faults) {
        self.net.set_faults(faults);
    }

    pub(crate) fn turn(&mut self) {
        self.workers.iter_mut().for_each(Harness::turn);
        self.net.advance_by(Span::from_micros(100));
    }

    /// A turn of all workers but one.
    pub(crate) fn turn_without(&mut self, worker: usize) {
        let others = self.workers.iter_mut().enumerate().filter(|(at, _)| *at != worker);
        others.for_each(|(_, worker)| worker.turn());
        self.net.advance_by(Span::from_micros(100));
    }

    pub(crate) fn turns(&mut self, count: usize) {
        (0..count).for_each(|_| self.turn());
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, span: Span) {
        self.net.advance_by(span);
        self.turns(2);
    }

    /// The time of the clock of the workers.
    pub(crate) fn unix_seconds(&self) -> u64 {
        self.workers[0].reactor.unix_seconds()
    }

    /// The sum of a counter.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        let all = self.workers.iter().flat_map(|worker| worker.accounts.counters.all());
        all.filter(|(known, _)| *known == name).map(|(_, value)| value).sum()
    }

    /// Sends a request and returns its response.
    pub(crate) fn exchange(&mut self, request: &str) -> String {
        let client = self.dial();
        self.turns(4);
        assert_eq!(client.send(request.as_bytes()), request.len());
        let mut response = Vec::new();
        for _ in 0..1000 {
            self.turn();
            response.extend(client.receive());
            let text = String::from_utf8_lossy(&response);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                let length = length.map_or(0, |length| length.parse().expect("a number"));
                if body.len() >= length {
                    client.reset();
                    self.turns(4);
                    return text.into_owned();
                }
            }
        }
        panic!("no response to {request}: {}", String::from_utf8_lossy(&response));
    }

    pub(crate) fn api(&mut self, method: &str, body: &str) -> String {
        let length = body.len();
        let response = self.exchange(&format!(
            "POST /push/api/{method} HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 "), "{response}");
        body.to_owned()
    }

    /// Ends all clients and checks that nothing is left.
    pub(crate) fn finish(mut self, clients: Vec<Client>) {
        drop(clients);
        self.turns(200);
        for worker in &self.workers {
            assert_eq!(worker.find_leak(), None);
        }
    }
}

/// A client that is subscribed by URL.
pub(crate) struct Client {
    pub(crate) peer: SimPeer,
    is_websocket: bool,
    pub(crate) is_open: bool,
    /// The head of the response.
    pub(crate) head: String,
    input: Vec<u8>,
    decoder: Decoder,
    /// Decompresses the messages, if the client offers compression.
    inflater: Option<Inflater>,
    message: Vec<u8>,
    /// The bytes of frames so far.
    pub(crate) frame_bytes: usize,
    /// The data of the messages.
    pub(crate) received: Vec<String>,
    /// The id of the last event.
    pub(crate) last_id: Option<String>,
    /// The number of messages before each report that messages are lost.
    pub(crate) losses: Vec<usize>,
    /// The code of the Close frame.
    pub(crate) closed: Option<u16>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.peer.reset();
    }
}

impl Client {
    pub(crate) fn raw(process: &Process, path: &str) -> Self {
        Self::raw_with(process, path, "")
    }

    /// A client that offers compression, with a window of `window_bits`.
    pub(crate) fn compressed(
        process: &Process,
        path: &str,
        (offer, window_bits): (&str, u8),
    ) -> Self {
        let field = format!("Sec-WebSocket-Extensions: {offer}\r\n");
        let mut client = Self::raw_with(process, path, &field);
        client.decoder = Decoder::new(FrameRules { role: Role::Client, allows_deflate: true });
        client.inflater = Some(Inflater::for_connection(window_bits));
        client
    }

    /// A client whose request has these fields besides.
    pub(crate) fn raw_with(process: &Process, path: &str, fields: &str) -> Self {
        Self::new(
            process,
            true,
            format!(
                "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
            ),
        )
    }

    pub(crate) fn events(process: &Process, path: &str, last_id: Option<&str>) -> Self {
        let id = last_id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        Self::new(
            process,
            false,
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n{id}\r\n"),
        )
    }

    fn new(process: &Process, is_websocket: bool, request: String) -> Self {
        let peer = process.dial();
        assert_eq!(peer.send(request.as_bytes()), request.len());
        Self {
            peer,
            is_websocket,
            is_open: false,
            head: String::new(),
            input: Vec::new(),
            decoder: Decoder::new(FrameRules { role: Role::Client, allows_deflate: false }),
            inflater: None,
            message: Vec::new(),
            frame_bytes: 0,
            received: Vec::new(),
            last_id: None,
            losses: Vec::new(),
            closed: None,
        }
    }

    /// Whether a report that messages are lost has arrived.
    fn is_lost(&self) -> bool {
        !self.losses.is_empty()
    }

    pub(crate) fn read(&mut self) {
        self.read_some(usize::MAX);
    }

    /// Reads at most this many bytes. What is left occupies the window of the connection.
    pub(crate) fn read_some(&mut self, bytes_max: usize) {
        self.input.extend(self.peer.receive_some(bytes_max));
        if !self.is_open {
            let text = String::from_utf8_lossy(&self.input);
            let Some(end) = text.find("\r\n\r\n") else { return };
            let status = if self.is_websocket { "HTTP/1.1 101 " } else { "HTTP/1.1 200 " };
            assert!(text.starts_with(status), "{text}");
            self.head = text[..end].to_owned();
            self.input.drain(..end + 4);
            self.is_open = true;
        }
        if self.is_websocket { self.read_frames() } else { self.read_events() }
    }

    fn read_frames(&mut self) {
        let mut input = core::mem::take(&mut self.input);
        self.frame_bytes += input.len();
        let (mut rest, limits) = (&mut input[..], Limits::default());
        let mut out = Vec::new();
        while !rest.is_empty() {
            let inflater = self.inflater.as_mut();
            let decoded = self.decoder.decode_message(rest, &limits, &mut self.message, inflater);
            let step = decoded.expect("the worker keeps to the protocol");
            let consumed = step.consumed;
            match step.incoming {
                None | Some(Incoming::Pong(_)) => {}
                Some(Incoming::Message(message)) => {
                    let text = core::str::from_utf8(message.bytes()).expect("text");
                    self.received.push(text.to_owned());
                }
                Some(Incoming::Ping(payload)) => {
                    encode_pong(&mut out, payload, Some([1, 2, 3, 4])).expect("it fits");
                }
                Some(Incoming::Close(close)) => {
                    self.closed = close.map(|close| close.code.get());
                    encode_close_reply(&mut out, close, Some([0; 4]));
                }
            }
            rest = &mut rest[consumed..];
        }
        self.peer.send(&out);
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, text: &str) {
        let mut out = Vec::new();
        encode_message(&mut out, Kind::Text, text.as_bytes(), Some([1, 2, 3, 4]));
        self.peer.send(&out);
    }

    /// Sends a Pong that no Ping has asked for.
    fn pong(&mut self) {
        let mut out = Vec::new();
        encode_pong(&mut out, b"", Some([1, 2, 3, 4])).expect("it fits");
        self.peer.send(&out);
    }

    /// Reads whole chunks, each of which is one or more events.
    fn read_events(&mut self) {
        loop {
            let text = String::from_utf8_lossy(&self.input).into_owned();
            let Some((size, rest)) = text.split_once("\r\n") else { return };
            let size = usize::from_str_radix(size, 16).expect("a size");
            if rest.len() < size + 2 {
                return;
            }
            let (events, used) = (&rest[..size], text.len() - rest.len() + size + 2);
            for event in events.split_terminator("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                if let Some(id) = field("id: ") {
                    self.last_id = Some(id.to_owned());
                }
                match (field("event: "), field("data: ")) {
                    (Some("lost"), _) => self.losses.push(self.received.len()),
                    (_, Some(data)) => self.received.push(data.to_owned()),
                    _ => assert!(
                        event.starts_with("retry: ")
                            || event.starts_with(':')
                            || field("id: ").is_some()
                    ),
                }
            }
            self.input.drain(..used);
        }
    }
}

fn numbers(count: u64) -> Vec<String> {
    (1..=count).map(|number| number.to_string()).collect()
}

#[test]
fn every_subscriber_gets_every_message_in_order() {
    for workers in [1, 2, 5] {
        let mut process = Process::new(workers, 3, 2, SETTINGS);
        let mut clients: Vec<Client> = (0..40)
            .map(|number| match number % 4 {
                0 => Client::raw(&process, "/time"),
                1 => Client::raw(&process, "/push/subscribe/time"),
                2 => Client::events(&process, "/push/subscribe/h%3Anews", None),
                _ => Client::events(&process, "/time", None),
            })
            .collect();
        process.turns(100);
        for number in 1..=30 {
            let body = format!("{{\"channels\":[\"time\",\"h:news\"],\"data\":{number}}}");
            let response = process.api("broadcast", &body);
            assert!(response.contains(&format!("\"offset\":{number},")), "{response}");
        }
        process.turns(100);
        for client in &mut clients {
            client.read();
            assert_eq!(client.received, numbers(30));
        }
        assert_eq!(process.sum("push_deliveries"), 30 * 40);
        let channels = process.api("channels", "");
        assert_eq!(
            channels,
            "{\"result\":{\"channels\":{\"h:news\":{\"num_clients\":10},\"time\":{\"num_clients\":30}}}}"
        );
        process.finish(clients);
    }
}

#[test]
fn reconnected_event_stream_gets_missed_messages_or_a_lost_event() {
    for workers in [1, 3] {
        let mut process = Process::new(workers, 5, 100, SETTINGS);
        let path = "/push/subscribe/h:a";
        let mut first = Client::events(&process, path, None);
        process.turns(20);
        process.api("publish", "{\"channel\":\"h:a\",\"data\":1}");
        process.turns(20);
        first.read();
        assert_eq!(first.received, numbers(1));
        let id = first.last_id.clone().expect("an id");
        drop(first);
        for number in 2..=5 {
            process.api("publish", &format!("{{\"channel\":\"h:a\",\"data\":{number}}}"));
        }
        let mut again = Client::events(&process, path, Some(&id));
        process.turns(20);
        process.api("publish", "{\"channel\":\"h:a\",\"data\":6}");
        process.turns(20);
        again.read();
        assert_eq!((again.received.clone(), again.is_lost()), (numbers(6)[1..].to_vec(), false));
        for number in 7..=100 {
            process.api("publish", &format!("{{\"channel\":\"h:a\",\"data\":{number}}}"));
        }
        let mut late = Client::events(&process, path, Some(&id));
        process.turns(20);
        late.read();
        assert!(late.is_lost() && late.received.is_empty());
        assert!(late.last_id.as_ref().is_some_and(|id| id.ends_with(":100")), "{:?}", late.last_id);
        // The ids of other servers.
        for id in ["garbage", "abcdefgh:x", "abcdefgh:18446744073709551616", "%ff:1"] {
            let mut foreign = Client::events(&process, path, Some(id));
            process.turns(20);
            foreign.read();
            assert!(foreign.is_lost() && foreign.received.is_empty(), "{id}");
        }
        process.finish(vec![again, late]);
    }
}

#[test]
fn long_polls_wait_for_a_message_and_go_on_after_it() {
    let mut process = Process::new(2, 9, 100, SETTINGS);
    let poll = |since: &str| format!("GET /push/subscribe/h:a{since} HTTP/1.1\r\nHost: a\r\n\r\n");
    let client = process.dial();
    client.send(poll("").as_bytes());
    process.turns(50);
    assert!(client.receive().is_empty(), "it waits");
    process.api("publish", "{\"channel\":\"h:a\",\"data\":{\"a\":\"b\"}}");
    process.turns(50);
    let response = String::from_utf8(client.receive()).expect("text");
    let (_, body) = response.split_once("\r\n\r\n").expect("a response");
    assert!(
        body.starts_with("{\"publications\":[{\"data\":{\"a\":\"b\"},\"offset\":1}],\"since\":\""),
        "{body}"
    );
    let since = body.split('"').rev().nth(1).expect("a position").to_owned();
    process.api("publish", "{\"channel\":\"h:a\",\"data\":2}");
    let next = process.exchange(&poll(&format!("?since={since}")));
    assert!(next.contains("{\"publications\":[{\"data\":2,\"offset\":2}]"), "{next}");
    let lost = process.exchange(&poll("?since=aaaaaaaa:1"));
    assert!(lost.contains("{\"lost\":true,\"publications\":[],"), "{lost}");
    // Without a message, the response comes at the end of the timeout.
    client.send(poll("").as_bytes());
    process.turns(20);
    process.net.advance_by(Span::from_secs(26));
    process.turns(20);
    let response = String::from_utf8(client.receive()).expect("text");
    assert!(response.contains("{\"publications\":[],\"since\":"), "{response}");
    client.reset();
    process.finish(Vec::new());
}

#[test]
fn events_have_the_name_of_their_message_or_of_their_namespace() {
    let settings = format!(
        "{SETTINGS}[push.p.namespace.named]\nsubscribe = \"anyone\"\nhistory = 5\nevent = \"tick\"\n"
    );
    let mut process = Process::new(2, 6, 100, &settings);
    let text = |peer: &SimPeer| String::from_utf8(peer.receive()).expect("text");
    for (channel, of_namespace) in [("named:a", "event: tick\n"), ("h:a", "")] {
        let get = |fields: &str| {
            format!("GET /push/subscribe/{channel} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
        };
        let events = process.dial();
        events.send(get("Accept: text/event-stream\r\n").as_bytes());
        process.turns(50);
        let publish = |rest: &str| format!("{{\"channel\":\"{channel}\",\"data\":1{rest}}}");
        process.api("publish", &publish(""));
        process.api("publish", &publish(",\"event\":\"price\""));
        for wrong in ["lost", "open", "error", "a b", "a\\nb", &"x".repeat(65)] {
            let reply = process.api("publish", &publish(&format!(",\"event\":\"{wrong}\"")));
            assert!(reply.contains("\"code\":107"), "{wrong}: {reply}");
        }
        process.turns(50);
        let found = text(&events);
        assert!(found.contains(&format!(":1\n{of_namespace}data: 1\n\n")), "{found}");
        assert!(found.contains(":2\nevent: price\ndata: 1\n\n"), "{found}");
        // Messages of the history keep their names.
        let again = process.exchange(&get("").replacen(" HTTP", "?since=:0 HTTP", 1));
        let name = if of_namespace.is_empty() { "" } else { ",\"event\":\"tick\"" };
        let expected = format!(
            "{{\"data\":1,\"offset\":1{name}}},{{\"data\":1,\"offset\":2,\"event\":\"price\"}}"
        );
        assert!(again.contains(&expected), "{again}");
        events.reset();
    }
    process.finish(Vec::new());
}

#[test]
fn stop_ends_streams_of_events_and_answers_long_polls_at_once() {
    let mut process = Process::new(2, 4, 100, SETTINGS);
    let (events, poll) = (process.dial(), process.dial());
    let request = |fields| format!("GET /push/subscribe/h:a HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    events.send(request("Accept: text/event-stream\r\n").as_bytes());
    poll.send(request("").as_bytes());
    process.turns(50);
    process.workers.iter_mut().for_each(|worker| worker.stop(Span::from_secs(3600)));
    process.net.advance_by(Span::from_secs(1));
    process.turns(50);
    let text = |peer: &SimPeer| String::from_utf8(peer.receive()).expect("text");
    let (events_got, poll_got) = (text(&events), text(&poll));
    assert!(events_got.ends_with("\r\n0\r\n\r\n"), "{events_got}");
    assert!(poll_got.contains("{\"publications\":[],\"since\":"), "{poll_got}");
    assert!(
        events.is_finished_by_other() && poll.is_finished_by_other(),
        "the connections are closed"
    );
    events.reset();
    poll.reset();
    process.finish(Vec::new());
}

#[test]
fn long_poll_returns_what_fits_into_the_queue_and_the_next_one_the_rest() {
    let settings = format!("queue-max = \"100000B\"\n{SETTINGS}");
    let mut process = Process::new(2, 9, 100, &settings);
    let data = "x".repeat(30_000);
    for _ in 0..8 {
        process.api("publish", &format!("{{\"channel\":\"h:a\",\"data\":\"{data}\"}}"));
    }
    let epoch = process.api("history", "{\"channel\":\"h:a\",\"limit\":0}");
    let epoch = epoch.split("\"epoch\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let mut since = format!("{}:0", epoch.expect("an epoch"));
    let mut sizes = Vec::new();
    while !since.ends_with(":8") {
        let request = format!("GET /push/subscribe/h:a?since={since} HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = process.exchange(&request);
        sizes.push(response.matches("\"offset\":").count());
        since = response.split('"').rev().nth(1).expect("a position").to_owned();
    }
    assert_eq!(sizes, [3, 3, 2]);
    process.finish(Vec::new());
}

#[test]
fn clients_without_permission_cannot_subscribe_or_publish() {
    let mut process = Process::new(1, 1, 1, "[push.p.namespace.open]\nsubscribe = \"anyone\"\n");
    let get = |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let post = |fields: &str| {
        format!("POST /push/api/info HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n{fields}\r\n{{}}")
    };
    let events = "Accept: text/event-stream\r\n";
    for (request, status) in [
        (get("/time", ""), 403),
        (get("/time", events), 403),
        (get("/time", "Connection: Upgrade\r\nUpgrade: websocket\r\n"), 403),
        (get("/push/subscribe/%20", ""), 400),
        (get("/push/subscribe/%zz", ""), 400),
        (get("/push/subscribe/no:a", ""), 404),
        (get("/push/", ""), 404),
        (get("/push/api/info", ""), 401),
        (get("/push/subscribe/open:a", "Origin: http://evil.example\r\n"), 403),
        (get("/push/subscribe/open:a", "Upgrade: websocket\r\nConnection: Upgrade\r\n"), 426),
        (post(""), 401),
        (post("X-API-Key: 0123456789abcde\r\n"), 401),
        (post("Authorization: apikey 0123456789abcdef\r\n"), 200),
        (post("X-API-Key: 0123456789abcdef\r\n"), 200),
        (
            "PUT /push/subscribe/open:a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
                .to_owned(),
            405,
        ),
    ] {
        let response = process.exchange(&request);
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {response}");
        assert_eq!(response.contains("X-API-Key: KEY"), status == 401, "{response}");
    }
    let preflight = process.exchange(
        "OPTIONS /push/subscribe/open:a HTTP/1.1\r\nHost: a.example\r\nOrigin: http://a.example\r\n\
         Access-Control-Request-Headers: last-event-id\r\n\r\n",
    );
    assert!(preflight.starts_with("HTTP/1.1 204 "), "{preflight}");
    assert!(preflight.contains("Access-Control-Allow-Origin: http://a.example\r\n"), "{preflight}");
    process.finish(Vec::new());
}

#[test]
fn clients_that_do_not_read_are_bounded_as_the_policy_states() {
    let data = "x".repeat(4000);
    for (policy, closes) in [("disconnect", true), ("drop-oldest", false), ("drop-newest", false)] {
        let settings = format!("queue-messages-max = 5\nslow = \"{policy}\"\n{SETTINGS}");
        let mut process = Process::new(2, 11, 100, &settings);
        let mut clients =
            vec![Client::raw(&process, "/time"), Client::events(&process, "/time", None)];
        let mut quick = Client::raw(&process, "/time");
        process.turns(50);
        for number in 0..300 {
            process
                .api("publish", &format!("{{\"channel\":\"time\",\"data\":\"{number} {data}\"}}"));
            quick.read();
        }
        process.turns(50);
        quick.read();
        assert_eq!(quick.received.len(), 300, "{policy}: a client that reads gets everything");
        for worker in &mut process.workers {
            let (_, output) = worker.worker.held_bytes_max(&worker.reactor);
            assert!(output < 64 * 1024, "{policy}: {output} bytes");
        }
        assert_eq!(process.sum("push_slow_closes"), if closes { 2 } else { 0 }, "{policy}");
        assert_eq!(process.sum("push_dropped") > 0, !closes, "{policy}");
        let of_hub = |count: fn(&HubCounters) -> u64| -> u64 {
            let workers = process.workers.iter();
            workers.filter_map(|worker| worker.accounts.hub(0)).map(count).sum()
        };
        assert_eq!(of_hub(|hub| hub.dropped.load()), process.sum("push_dropped"), "{policy}");
        assert_eq!(of_hub(|hub| hub.queued.load()), process.sum("push_queued"), "{policy}");
        let slow_closes = of_hub(|hub| hub.slow_closes.load());
        assert_eq!(slow_closes, process.sum("push_slow_closes"), "{policy}");
        for _ in 0..200 {
            process.turn();
            clients.iter_mut().for_each(Client::read);
        }
        for client in &clients {
            let found: Vec<u64> = client
                .received
                .iter()
                .map(|text| text.trim_matches('"').split(' ').next().map(str::parse))
                .map(|number| number.expect("a number").expect("a number"))
                .collect();
            assert!(found.windows(2).all(|two| two[0] < two[1]), "{policy}: {found:?}");
            if policy == "drop-oldest" {
                assert_eq!(found.last(), Some(&299), "the newest message");
            }
        }
        assert_eq!(clients[0].closed, closes.then_some(3008), "{policy}");
        clients.push(quick);
        process.finish(clients);
    }
}

#[test]
fn messages_of_a_subscription_that_has_ended_are_not_delivered() {
    let settings = format!("anonymous = true\n{SETTINGS}");
    let mut process = Process::new(2, 19, 100, &settings);
    let mut slow = Client::raw(&process, "/push/connection/websocket");
    process.turns(50);
    slow.read();
    slow.send("{\"id\":1,\"connect\":{}}");
    slow.send("{\"id\":2,\"subscribe\":{\"channel\":\"a\"}}");
    slow.send("{\"id\":3,\"subscribe\":{\"channel\":\"b\"}}");
    process.turns(50);
    slow.read();
    let name = slow.received.concat();
    let name = name.split("\"client\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let name = name.expect("a name").to_owned();
    let data = "x".repeat(4000);
    for number in 0..200 {
        let channel = if number % 2 == 0 { "a" } else { "b" };
        let body = format!("{{\"channel\":\"{channel}\",\"data\":\"{number} {data}\"}}");
        process.api("publish", &body);
    }
    assert!(process.sum("push_queued") > 10);
    let of = format!("{{\"user\":\"\",\"client\":\"{name}\",\"channel\":\"a\"}}");
    process.api("unsubscribe", &of);
    process.turns(20);
    process.api("subscribe", &of);
    process.turns(20);
    process.api("publish", "{\"channel\":\"a\",\"data\":\"new\"}");
    for _ in 0..200 {
        process.turn();
        slow.read();
    }
    let ended =
        slow.received.iter().position(|text| text.contains("\"unsubscribe\":{\"code\":2000"));
    let later = &slow.received[ended.expect("a push")..];
    let of = |channel| {
        let mark = format!("\"channel\":\"{channel}\",\"pub\"");
        later.iter().filter(move |text| text.contains(&mark)).collect::<Vec<_>>()
    };
    assert_eq!(of("a").len(), 1, "{:?}", of("a").len());
    assert!(of("a")[0].contains("\"new\""));
    assert!(of("b").last().is_some_and(|text| text.contains("\"199 ")), "others still receive");
    process.finish(vec![slow]);
}

/// Clients come, go, come back and are slow while messages are published.
#[test]
fn random_clients_lose_nothing_that_they_are_not_told_of() {
    for seed in 0..60 {
        let mut prng = Prng::new(seed);
        let workers = 1 + prng.below(4) as usize;
        let mut process = Process::new(workers, seed, 1 + prng.below(4) as usize, SETTINGS);
        let publisher = process.dial();
        let mut clients: BTreeMap<u64, Client> = BTreeMap::new();
        let (mut published, mut answered, mut next) = (0, Vec::new(), 0);
        for _ in 0..600 {
            match prng.below(12) {
                0 | 1 => {
                    next += 1;
                    clients.insert(next, Client::events(&process, "/push/subscribe/h:a", None));
                }
                2 => {
                    next += 1;
                    clients.insert(next, Client::raw(&process, "/push/subscribe/h:a"));
                }
                3 => {
                    let at = prng.below(next + 1);
                    if let Some(mut client) = clients.remove(&at) {
                        client.read();
                        if let Some(id) = client.last_id.clone().filter(|_| client.is_open) {
                            let mut again =
                                Client::events(&process, "/push/subscribe/h:a", Some(&id));
                            again.received = core::mem::take(&mut client.received);
                            clients.insert(at, again);
                        }
                    }
                }
                4..=6 => {
                    published += 1;
                    let body = format!("{{\"channel\":\"h:a\",\"data\":{published}}}");
                    let length = body.len();
                    publisher.send(format!(
                        "POST /push/api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\nContent-Length: {length}\r\n\r\n{body}"
                    ).as_bytes());
                }
                7 => {
                    let at = prng.below(next + 1);
                    clients.get_mut(&at).into_iter().for_each(Client::read);
                }
                _ => process.turn(),
            }
            answered.extend(publisher.receive());
        }
        process.turns(300);
        answered.extend(publisher.receive());
        let text = String::from_utf8_lossy(&answered);
        assert_eq!(text.matches("\"offset\":").count(), published, "seed {seed}: {text}");
        for client in clients.values_mut() {
            client.read();
            let found: Vec<u64> =
                client.received.iter().map(|text| text.parse().expect("a number")).collect();
            let is_whole = found.windows(2).all(|two| two[0] + 1 == two[1]);
            assert!(is_whole || client.is_lost(), "seed {seed}: {found:?}");
            assert!(
                client.is_lost() || found.is_empty() || found.last() == Some(&(published as u64))
            );
        }
        publisher.reset();
        process.finish(clients.into_values().collect());
    }
}

#[test]
fn client_that_sends_all_the_time_is_checked_as_often_as_others() {
    for pings in ["ping-every = \"2s\"", "ping-every = \"off\""] {
        let settings = format!("anonymous = true\n[websocket]\n{pings}\n");
        let mut process = Process::new(1, 1, 8, &settings);
        let path = "/push/connection/websocket";
        let mut stale = Client::raw(&process, path);
        let mut connected = Client::raw(&process, path);
        process.turns(8);
        connected.read();
        connected.send(r#"{"id":1,"connect":{}}"#);
        // Both send something every half second, for longer than two checks.
        for _ in 0..140 {
            process.net.advance_by(Span::from_millis(500));
            process.turns(2);
            stale.read();
            connected.read();
            if stale.closed.is_none() {
                stale.pong();
            }
            connected.send("{}");
        }
        assert_eq!(stale.closed, Some(3502), "{pings}");
        assert_eq!(connected.closed, None, "{pings}");
        process.finish(vec![stale, connected]);
    }
}
