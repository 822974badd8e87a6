//! Floods of tokens that have to be verified: how much of a turn they take, and whose turn it is.
//! In: clients with many tokens, none of them valid, and one with single requests. Out: the first broken promise.

use tidegate_base::Span;
use tidegate_config::model::KeyContent;
use tidegate_reactor::{Faults, SimNet, SimPeer, SimReactor};

use crate::peer::harness::Harness;

/// Tokens in both halves of a turn: for events, and for requests that waited.
const TOKENS_PER_TURN_MAX: u64 = 2 * 256;
const FILE: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\n\
    [[route]]\npath = \"/open\"\nrespond = { body = \"open\" }\n\
    [[route]]\npath = \"/counted\"\nrespond = { body = \"counted\" }\n\
    auth = { jwt = { secret-file = \"secret\" } }\nrate = { limit = \"2/24h\", by = \"claim:sub\" }\n\
    [[route]]\npath = \"/*\"\nrespond = { body = \"closed\" }\nauth = { jwt = { secret-file = \"secret\" } }\n";

struct Scene {
    net: SimNet,
    harness: Harness<SimReactor>,
    /// Numbers the tokens, so that none of them is remembered.
    tokens: usize,
}

impl Scene {
    fn new() -> Self {
        let mut config = match tidegate_config::parse(FILE, "the test") {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        };
        for jwt in config.routes.iter_mut().filter_map(|route| route.handling.jwt.as_mut()) {
            jwt.content = KeyContent(b"0123456789abcdef0123456789abcdef"[..].into());
        }
        let net = SimNet::new(1, Faults::none());
        let harness = Harness::simulated(&net, &config, 64, 1);
        Self { net, harness, tokens: 0 }
    }

    fn dial(&self) -> SimPeer {
        self.net.dial(&self.harness.bound[0]).expect("the worker listens")
    }

    /// A request with a token that no earlier request had. Its header is {"alg":"HS256"}, and its signature is wrong.
    fn request(&mut self, method: &str) -> String {
        self.tokens += 1;
        let token = format!("eyJhbGciOiJIUzI1NiJ9.{:08}.AAAA", self.tokens);
        format!("{method} /closed HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n")
    }

    fn requests(&mut self, count: usize) -> String {
        (0..count).map(|_| self.request("GET") + "\r\n").collect()
    }

    /// One turn. Returns how many tokens were verified in it.
    fn turn(&mut self) -> u64 {
        let before = self.harness.accounts.counters.tokens_verified.load();
        self.harness.turn();
        self.net.advance_by(Span::from_micros(100));
        self.harness.accounts.counters.tokens_verified.load() - before
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }
}

fn count(bytes: &[u8], what: &str) -> usize {
    String::from_utf8_lossy(bytes).matches(what).count()
}

/// A token of bob, valid until 2033.
const OF_BOB: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJib2IiLCJyb2xlIjoiYWRtaW4iLCJhdWQiOlsiYXBwI\
    iwieCJdLCJpc3MiOiJpZCIsImV4cCI6MjAwMDAwMDAwMH0.DNbGnHc8yry6SeeExBsRyun-s9J-_PzIkiwAWcBsJ1A";

#[test]
fn limit_by_a_claim_counts_valid_tokens_only() {
    let mut scene = Scene::new();
    let client = scene.dial();
    let invalid = scene.request("GET").replace("/closed", "/counted") + "\r\n";
    let valid =
        format!("GET /counted HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {OF_BOB}\r\n\r\n");
    let mut received = Vec::new();
    for (request, expected) in [
        (&invalid, 401),
        (&valid, 200),
        (&invalid, 401),
        (&valid, 200),
        (&valid, 429),
        (&invalid, 401),
    ] {
        client.send(request.as_bytes());
        scene.turns(20);
        let answer = client.receive();
        let status = format!("HTTP/1.1 {expected} ");
        assert!(
            answer.starts_with(status.as_bytes()),
            "{expected}: {}",
            String::from_utf8_lossy(&answer)
        );
        received.extend(answer);
    }
    assert_eq!(count(&received, "counted"), 2);
}

#[test]
fn flood_of_tokens_does_not_hold_up_other_clients() {
    const GREEDY: usize = 4;
    const REQUESTS: usize = 1200;
    let mut scene = Scene::new();
    let greedy: Vec<SimPeer> = (0..GREEDY).map(|_| scene.dial()).collect();
    let (open, closed) = (scene.dial(), scene.dial());
    scene.turns(4);
    let many: Vec<String> = (0..GREEDY).map(|_| scene.requests(REQUESTS)).collect();
    let (mut unsent, mut received) = ([0; GREEDY], vec![Vec::new(); GREEDY]);
    let (mut answers, mut waited) = ([0; 2], 0);
    for turn in 0..2000 {
        for (at, client) in greedy.iter().enumerate() {
            unsent[at] += client.send(&many[at].as_bytes()[unsent[at]..]);
            received[at].extend(client.receive());
        }
        if turn % 20 == 0 {
            open.send(b"GET /open HTTP/1.1\r\nHost: a\r\n\r\n");
            closed.send(scene.requests(1).as_bytes());
            waited = 0;
        }
        let verified = scene.turn();
        assert!(verified <= TOKENS_PER_TURN_MAX, "{verified} tokens in turn {turn}");
        answers[0] += count(&open.receive(), " 200 OK");
        answers[1] += count(&closed.receive(), " 401 ");
        waited += 1;
        let expected = turn / 20 + 1;
        assert!(answers[0] == expected || waited < 3, "the open route, turn {turn}");
        assert!(answers[1] == expected || waited < 6, "a token waits for too long, turn {turn}");
        if received.iter().all(|bytes| count(bytes, " 401 ") == REQUESTS) {
            let counters = &scene.harness.accounts.counters;
            assert!(counters.tokens_put_off.load() > 0, "the flood exceeds no share");
            assert_eq!(counters.token_refusals.load(), 0);
            drop((greedy, open, closed));
            scene.turns(200);
            return assert_eq!(scene.harness.find_leak(), None);
        }
    }
    panic!("answered: {:?}", received.iter().map(|b| count(b, " 401 ")).collect::<Vec<_>>());
}

#[test]
fn refused_token_is_verified_once() {
    let mut scene = Scene::new();
    let client = scene.dial();
    scene.turns(4);
    let request = scene.request("GET") + "\r\n";
    client.send(request.repeat(3).as_bytes());
    scene.turns(8);
    assert_eq!(count(&client.receive(), " 401 "), 3);
    assert_eq!(scene.harness.accounts.counters.tokens_verified.load(), 1);
}

#[test]
fn body_of_a_request_whose_token_waited_follows() {
    let mut scene = Scene::new();
    let (greedy, client) = (scene.dial(), scene.dial());
    scene.turns(4);
    greedy.send(scene.requests(600).as_bytes());
    let post = scene.request("POST") + "Content-Length: 5\r\n\r\nhello";
    let posts = post + &scene.requests(1);
    client.send(posts.as_bytes());
    scene.turns(40);
    assert_eq!(count(&client.receive(), " 401 "), 2);
}

#[test]
fn client_that_leaves_while_its_token_waits_releases_its_state() {
    let mut scene = Scene::new();
    let clients: Vec<SimPeer> = (0..8).map(|_| scene.dial()).collect();
    scene.turns(4);
    for client in &clients {
        client.send(scene.requests(400).as_bytes());
    }
    scene.turn();
    clients.iter().for_each(SimPeer::reset);
    drop(clients);
    scene.turns(200);
    assert!(scene.harness.accounts.counters.tokens_put_off.load() > 0);
    assert_eq!(scene.harness.find_leak(), None);
}
