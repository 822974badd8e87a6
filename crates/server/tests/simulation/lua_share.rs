//! Lua applications under load: how much of a turn their callbacks take, and whose turn it is.
//! In: clients with many requests, and one with a single request. Out: the first broken promise.

use tidegate_base::Span;
use tidegate_reactor::{Faults, SimNet, SimPeer, SimReactor};

use crate::peer::harness::Harness;

/// Callbacks in each of the three shares of a turn: for events, for requests that waited, and for threads.
const CALLS_PER_TURN_MAX: u64 = 3 * 256;
const REQUEST: &str = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";

struct Scene {
    net: SimNet,
    harness: Harness<SimReactor>,
}

impl Scene {
    fn new() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/service.lua");
        let file = format!(
            "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nlua = \"a\"\n[lua.a]\nscript = \"{script}\"\n"
        );
        let config = match tidegate_config::parse(&file, "the test") {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        };
        let net = SimNet::new(1, Faults::none());
        let harness = Harness::simulated(&net, &config, 64, 1);
        Self { net, harness }
    }

    fn dial(&self) -> SimPeer {
        self.net.dial(&self.harness.bound[0]).expect("the worker listens")
    }

    /// One turn. Returns how many callbacks it has run.
    fn turn(&mut self) -> u64 {
        let before = self.harness.accounts.counters.lua_callbacks.load();
        self.harness.turn();
        self.net.advance_by(Span::from_micros(100));
        self.harness.accounts.counters.lua_callbacks.load() - before
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }
}

fn count_responses(bytes: &[u8]) -> usize {
    String::from_utf8_lossy(bytes).matches("hello nobody").count()
}

#[test]
fn client_with_many_requests_does_not_hold_up_another_one() {
    const GREEDY: usize = 3;
    const REQUESTS: usize = 900;
    let mut scene = Scene::new();
    let greedy: Vec<SimPeer> = (0..GREEDY).map(|_| scene.dial()).collect();
    let other = scene.dial();
    scene.turns(4);
    let many = REQUEST.repeat(REQUESTS);
    let mut unsent = [0; GREEDY];
    let mut received = vec![Vec::new(); GREEDY];
    let mut answers = 0;
    let mut waited = 0;
    for turn in 0..2000 {
        for ((client, sent), received) in greedy.iter().zip(&mut unsent).zip(&mut received) {
            *sent += client.send(&many.as_bytes()[*sent..]);
            received.extend(client.receive());
        }
        // The other client sends a request every 20 turns.
        if turn % 20 == 0 {
            assert_eq!(other.send(REQUEST.as_bytes()), REQUEST.len());
            waited = 0;
        }
        let calls = scene.turn();
        assert!(calls <= CALLS_PER_TURN_MAX, "{calls} callbacks in turn {turn}");
        let came = count_responses(&other.receive());
        answers += came;
        waited = if came > 0 { 0 } else { waited + 1 };
        assert!(answers > turn / 20 || waited < 8, "no response after {waited} turns");
        if received.iter().all(|bytes| count_responses(bytes) == REQUESTS) {
            drop(greedy);
            drop(other);
            scene.turns(200);
            return assert_eq!(scene.harness.find_leak(), None);
        }
    }
    panic!(
        "the requests are not served: {:?}",
        received.iter().map(|b| count_responses(b)).collect::<Vec<_>>()
    );
}

#[test]
fn client_that_leaves_while_its_request_waits_releases_its_state() {
    let mut scene = Scene::new();
    let clients: Vec<SimPeer> = (0..4).map(|_| scene.dial()).collect();
    scene.turns(4);
    let many = REQUEST.repeat(400);
    for client in &clients {
        client.send(many.as_bytes());
    }
    scene.turn();
    clients.iter().for_each(SimPeer::reset);
    drop(clients);
    scene.turns(200);
    assert_eq!(scene.harness.find_leak(), None);
}
