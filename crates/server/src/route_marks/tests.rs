//! Marks of a worker in the simulator. Profiles are limited to the route `/marked` unless a test says otherwise.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Address, Span};
use tidegate_reactor::{Faults, SimNet, SimPeer, SimReactor};

use super::*;
use crate::counters::Accounts;
use crate::stats::Registry;
use crate::{Snapshot, WorkerLimits};

const CONFIG: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\nh2c = true\n\
    [[route]]\npath = \"/marked\"\nsynthetic = true\n\
    [[route]]\npath = \"/other\"\nsynthetic = true\n\
    [[route]]\npath = \"/channel\"\npush = { hub = \"h\", channel = \"c\" }\n\
    [[route]]\npath = \"/hub/*\"\npush = \"h\"\n\
    [push.h]\napi-keys = [\"0123456789abcdef\"]\nsubscribe = \"anyone\"\n";

struct Stage {
    net: SimNet,
    worker: Worker,
    reactor: SimReactor,
    accounts: Arc<Accounts>,
    registry: Registry,
}

impl Stage {
    fn new() -> Self {
        let config =
            tidegate_config::parse(CONFIG, "the test").unwrap_or_else(|what| panic!("{what}"));
        let net = SimNet::new(1, Faults::none());
        let (accounts, registry) = (Arc::new(Accounts::default()), Registry::new(1));
        let snapshot = Rc::new(Snapshot::new(config, Vec::new()).counted_in(&registry, 0));
        let limits = WorkerLimits { exchanges_max: 16, workers: 1, steer_by_cpu: false };
        let mut worker = Worker::new(snapshot, Arc::clone(&accounts), limits, 1);
        worker.count_requests();
        let mut reactor = SimReactor::new(&net, 32);
        worker.listen(&mut reactor).unwrap_or_else(|error| panic!("{error}"));
        Self { net, worker, reactor, accounts, registry }
    }

    /// Begins or ends (0) the profile with this number.
    fn profile(&self, route: &str, number: u64) {
        assert!(self.registry.set_profiled(route, number != 0), "{route}");
        self.accounts.marks_route.store(number, Ordering::Relaxed);
    }

    /// A client that sends these bytes.
    fn client(&mut self, bytes: &[u8]) -> SimPeer {
        let address = Address::Tcp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 80)));
        let client = self.net.dial(&address).expect("the worker listens");
        client.send(bytes);
        self.turns();
        client
    }

    /// A client that requests `path`, and its requester.
    fn request(&mut self, path: &str) -> (SimPeer, Requester) {
        let earlier = self.worker.conns.downstream_ids();
        let client = self.client(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let mut ids = self.worker.conns.downstream_ids();
        ids.retain(|id| !earlier.contains(id));
        (client, Requester::connection(ids[0]))
    }

    /// Forgets the trail and runs a turn. Returns its trail.
    fn turn(&mut self) -> Vec<bool> {
        self.worker.route_marks.trail.clear();
        self.worker.turn(&mut self.reactor, Span::ZERO);
        self.net.advance_by(Span::from_micros(100));
        assert!(!is_thread_marked(), "the mark outlives the turn");
        core::mem::take(&mut self.worker.route_marks.trail)
    }

    /// Runs some turns. Returns their trail.
    fn turns(&mut self) -> Vec<bool> {
        (0..8).flat_map(|_| self.turn()).collect()
    }
}

#[test]
fn mark_ends_with_the_work_and_with_the_turn() {
    let mut stage = Stage::new();
    stage.profile("/marked", 1);
    let (_client, to) = stage.request("/marked?t=1000");
    let down = stage.worker.conns.downstream(to.sock).expect("the client is there");
    let running = down.running();
    stage.worker.yielded.push(running);
    assert!(stage.turn().contains(&true), "an action that has yielded is continued");
    // The same, step by step.
    stage.worker.yielded.push(running);
    stage.worker.continue_yielded(&mut stage.reactor);
    assert!(!is_thread_marked(), "the steps of a turn inherit no mark");
    // The reactor goes on with the connection of a completion.
    stage.worker.mark_sock(Some(to.sock));
    let goes_on = stage.worker.mark_completion(&Completion::Drained { sock: to.sock });
    stage.worker.settle(&mut stage.reactor);
    assert!(!is_thread_marked());
    stage.worker.mark_after_completion(goes_on);
    assert!(is_thread_marked());
    stage.worker.unmark();
    assert!(!is_thread_marked());
}

#[test]
fn note_about_another_request_leaves_the_mark() {
    let mut stage = Stage::new();
    stage.profile("/marked", 1);
    let (_clients, [marked, other]) = {
        let (first, marked) = stage.request("/marked?t=1000");
        let (second, other) = stage.request("/other?t=1000");
        ([first, second], [marked, other])
    };
    let worker = &mut stage.worker;
    for (to, foreign, is_marked) in [(marked, other, true), (other, marked, false)] {
        worker.mark_requester(to);
        assert_eq!(is_thread_marked(), is_marked);
        worker.note_bytes_in(foreign, 0);
        assert_eq!(is_thread_marked(), is_marked, "the worker still acts for the same request");
        let earlier = worker.current_mark();
        worker.mark_requester(foreign);
        assert_ne!(is_thread_marked(), is_marked);
        worker.restore_mark(earlier);
        assert_eq!(is_thread_marked(), is_marked);
    }
    worker.unmark();
}

#[test]
fn each_profile_begins_without_marks() {
    let mut stage = Stage::new();
    stage.profile("/marked", 1);
    let (client, _) = stage.request("/marked?t=0");
    client.send(b"G");
    assert!(stage.turns().contains(&true), "a head that begins has the mark of the last request");
    // The worker sees neither the end of the first profile nor the begin of the second.
    stage.profile("/marked", 0);
    stage.profile("/other", 2);
    client.send(b"E");
    let trail = stage.turns();
    assert!(!trail.is_empty() && !trail.contains(&true), "{trail:?}");
    stage.profile("/other", 0);
    client.send(b"T");
    stage.turns();
    assert!(stage.turns().is_empty(), "nothing is marked without a profile");
}

#[test]
fn delivery_counts_for_the_route_of_the_subscriber() {
    let mut stage = Stage::new();
    let subscriber =
        stage.client(b"GET /channel HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n");
    let head = subscriber.receive();
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    stage.profile("/channel", 1);
    stage.turns();
    let body = "{\"channel\":\"c\",\"data\":1}";
    let length = body.len();
    let request = format!(
        "POST /hub/api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: 0123456789abcdef\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let address = Address::Tcp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 80)));
    let publisher = stage.net.dial(&address).expect("the worker listens");
    publisher.send(request.as_bytes());
    // In the turn of the delivery, nothing is sent to the subscriber yet.
    let mut delivered = Vec::new();
    while !delivered.contains(&true) {
        assert!(subscriber.receive().is_empty(), "the delivery had no mark");
        delivered = stage.turn();
    }
    assert_eq!(delivered.iter().filter(|mark| **mark).count(), 1, "{delivered:?}");
    assert!(stage.turns().contains(&true), "the sending has the mark of the connection");
    assert!(!subscriber.receive().is_empty());
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 0, content.len() as u8, kind, flags, 0, 0, 0, stream];
    frame.extend_from_slice(content);
    frame
}

#[test]
fn frame_counts_for_the_route_of_its_stream() {
    let mut stage = Stage::new();
    stage.profile("/marked", 1);
    // POST, http, a path without an entry in the table, the authority "a".
    let head = |path: &str| {
        let mut block = vec![0x83, 0x86, 0x04, path.len() as u8];
        block.extend_from_slice(path.as_bytes());
        block.extend_from_slice(&[0x01, 1, b'a']);
        block
    };
    let begin = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[]),
        frame(1, 4, 1, &head("/marked?t=1000")),
        frame(1, 4, 3, &head("/other?t=1000")),
    ];
    let client = stage.client(&begin.concat());
    stage.turns();
    client.send(&frame(0, 0, 3, b"x"));
    let trail = stage.turns();
    assert!(!trail.is_empty() && !trail.contains(&true), "{trail:?}");
    client.send(&frame(0, 0, 1, b"x"));
    let trail = stage.turns();
    assert!(trail.contains(&true), "{trail:?}");
}
