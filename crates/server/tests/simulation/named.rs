//! Named cases that need virtual time, faults or a look inside; the others are scene files.
//! In: one worker, peers moved by hand. Out: what each test's name says.
//! Limits: `TURNS_MAX` turns for each thing awaited.

use tidegate_base::limits::{OUTPUT_BYTES_MAX, READ_BUFFER_BYTES};
use tidegate_base::{Address, Span};
use tidegate_reactor::{Faults, LeavingListeners, Reactor, SimNet, SimPeer, SimReactor, SimServer};

use crate::peer::body;
use crate::peer::reader::{Piece, Reader, response_framing};
use crate::peer::seat::Seat;

const TURNS_MAX: u32 = 200_000;
/// Turns in which nothing happened and nothing ever will, after which it is over.
const QUIET_TURNS_MAX: u32 = 100;
/// Bytes of a body that no buffer could hold.
const LARGE_BYTES: u64 = 64 << 20;

/// One worker and one origin.
pub(crate) struct Stage {
    pub(crate) net: SimNet,
    pub(crate) seat: Seat<SimReactor>,
    origin: SimServer,
    /// The most that one connection held: of input, of output.
    held: (usize, usize),
}

impl Stage {
    pub(crate) fn new(listener: &str, pool: &str) -> Self {
        Self::with_slots(listener, pool, 100)
    }

    fn with_slots(listener: &str, pool: &str, socks_max: usize) -> Self {
        let text = format!(
            "[[listener]]\nbind = \"10.0.0.1:80\"\n{listener}\n\
             [[route]]\npath = \"/hello\"\nrespond = {{ body = \"hello\" }}\n\
             [[route]]\npath = \"/synthetic\"\nsynthetic = true\n\
             [[route]]\nproxy = \"p\"\n\
             [pool.p]\nservers = [\"10.0.1.1:8000\"]\n{pool}\n"
        );
        let config = match tidegate_config::parse(&text, "the test") {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        };
        let net = SimNet::new(1, Faults::none());
        let origin = Address::Tcp(([10, 0, 1, 1], 8000).into());
        let origin = net.serve(&origin).expect("nobody else serves there");
        let seat = Seat::simulated(&net, &config, socks_max, 1);
        Self { net, seat, origin, held: (0, 0) }
    }

    fn dial(&self) -> SimPeer {
        self.net.dial(&self.seat.bound[0]).expect("it listens")
    }

    /// Turns until `look` finds what it looks for; moves the clock on when nothing else moves.
    pub(crate) fn until<T>(&mut self, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let mut quiet_turns = 0;
        for _ in 0..TURNS_MAX {
            if let Some(found) = look(self) {
                return found;
            }
            self.turn();
            if let Some(found) = look(self) {
                return found;
            }
            quiet_turns = if self.net.advance_to_next_event() { 0 } else { quiet_turns + 1 };
            if quiet_turns > QUIET_TURNS_MAX {
                break;
            }
        }
        panic!("it never came; the worker holds {:?}", self.seat.worker.leftovers());
    }

    pub(crate) fn turn(&mut self) {
        self.seat.turn();
        let (input, output) = self.seat.worker.held_bytes_max(&self.seat.reactor);
        self.held = (self.held.0.max(input), self.held.1.max(output));
    }

    pub(crate) fn accept(&mut self) -> SimPeer {
        self.until(Self::origin_connection)
    }

    /// The next connection to the origin, if it is there already.
    pub(crate) fn origin_connection(&self) -> Option<SimPeer> {
        self.origin.accept()
    }

    /// The next bytes at `peer`, `end` among them.
    pub(crate) fn hear(&mut self, peer: &SimPeer, end: &str) -> String {
        let mut heard = Vec::new();
        self.until(|_| {
            heard.extend(peer.receive());
            let text = String::from_utf8_lossy(&heard);
            text.contains(end).then(|| text.into_owned())
        })
    }

    fn assert_bounded(&self) {
        let (input, output) = self.held;
        assert!(input <= 2 * READ_BUFFER_BYTES, "{input} bytes of input were held");
        assert!(output <= OUTPUT_BYTES_MAX, "{output} bytes of output were held");
    }

    /// With every peer gone, nothing may be left.
    pub(crate) fn end(mut self) {
        drop(self.origin);
        for _ in 0..TURNS_MAX {
            self.seat.turn();
            if self.seat.reactor.sock_count() == 0 || !self.net.advance_to_next_event() {
                break;
            }
        }
        assert_eq!(self.seat.find_leak(), None);
    }
}

const GET: &[u8] = b"GET /p HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_connect_that_never_ends_is_504_after_its_time() {
    let mut stage = Stage::new("", "timeouts = { connect = \"2s\" }\nretries = 1");
    stage.net.set_faults(Faults { connect_silent_ppm: 1_000_000, ..Faults::none() });
    let began = stage.net.now();
    let client = stage.dial();
    client.send(GET);
    let answer = stage.hear(&client, "timed out connecting to the server\n");
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    let took = stage.net.now().since(began);
    assert!(took >= Span::from_secs(2) && took < Span::from_secs(5), "{took:?}");
    drop(client);
    stage.end();
}

#[test]
fn accepting_pauses_without_descriptors_and_goes_on_when_there_are_some() {
    let mut stage = Stage::new("", "");
    stage.net.set_faults(Faults { accept_shortage_ppm: 1_000_000, ..Faults::none() });
    let client = stage.dial();
    client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    let began = stage.net.now();
    let mut turns = 0;
    while stage.net.now() < began.after(Span::from_secs(2)) {
        stage.turn();
        stage.net.advance_to_next_event();
        turns += 1;
    }
    let counters = &stage.seat.accounts.counters;
    assert!(counters.accept_pauses.load() > 0);
    assert!(turns < 1000, "{turns} turns in two seconds of shortage: it spins");
    stage.net.set_faults(Faults::none());
    let answer = stage.hear(&client, "hello");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(client);
    stage.end();
}

#[test]
fn with_all_slots_taken_the_next_client_waits_for_one() {
    let mut stage = Stage::with_slots("", "", 2);
    let clients = [stage.dial(), stage.dial(), stage.dial()];
    for client in &clients {
        client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    }
    stage.hear(&clients[0], "hello");
    stage.hear(&clients[1], "hello");
    assert_eq!(clients[2].arrived_bytes(), 0);
    let [first, second, third] = clients;
    drop(first);
    stage.hear(&third, "hello");
    drop((second, third));
    stage.end();
}

#[test]
fn without_a_slot_for_the_server_a_request_is_503_and_not_tried_again() {
    let mut stage = Stage::with_slots("", "retries = 3", 2);
    let (idle, client) = (stage.dial(), stage.dial());
    idle.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    stage.hear(&idle, "hello");
    client.send(GET);
    let answer = stage.hear(&client, "for another connection\n");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let counters = &stage.seat.accounts.counters;
    assert_eq!((counters.retries.load(), counters.upstream_connects.load()), (0, 1));
    drop((idle, client));
    stage.end();
}

#[test]
fn an_answer_that_is_through_before_its_requests_body_costs_no_connection() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(b"POST /synthetic?s=5&t=20 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    let answer = stage.hear(&client, "\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("close"), "{answer}");
    client.send(b"cdGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    stage.hear(&client, "\r\n\r\nhello");

    // Whoever ends its side instead has no further request.
    client.send(b"POST /synthetic?s=5&t=20 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    client.finish();
    let began = stage.net.now();
    stage.hear(&client, "\r\n\r\n");
    stage.until(|_| client.is_finished_by_other().then_some(()));
    assert!(stage.net.now().since(began) < Span::from_secs(2), "nobody waits for the body");
    drop(client);
    stage.end();
}

#[test]
fn idle_clients_make_room_for_those_who_ask() {
    const SLOTS: usize = 64;
    let mut stage = Stage::with_slots("", "", SLOTS);
    let mut clients = Vec::new();
    for _ in 0..SLOTS * 2 {
        let client = stage.dial();
        client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        stage.hear(&client, "hello");
        clients.push(client);
        // Those who were told to leave do so.
        clients.retain(|client| !client.is_finished_by_other());
    }
    let client = stage.dial();
    client.send(GET);
    let origin = stage.accept();
    stage.hear(&origin, "\r\n\r\n");
    origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let answer = stage.hear(&client, "ok");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(clients.len() > SLOTS / 2, "most idle clients stay: {}", clients.len());
    assert!(stage.seat.accounts.counters.idle_evictions.load() >= SLOTS as u64);
    drop((clients, client, origin));
    stage.end();
}

#[test]
fn requests_behind_a_body_of_no_bytes_are_answered_at_once() {
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    for path in ["/hello", "/synthetic?s=5", "/synthetic?s=5&t=20", "/synthetic?s=5&B=3", "/p"] {
        for apart in [false, true] {
            let mut stage = Stage::new("", "");
            let client = stage.dial();
            let began = stage.net.now();
            let next = post("/hello").repeat(2);
            match apart {
                true => client.send(post(path).as_bytes()),
                false => client.send([post(path), next.clone()].concat().as_bytes()),
            };
            if path == "/p" {
                let origin = stage.accept();
                stage.hear(&origin, "\r\n\r\n");
                origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n.....");
            }
            let mut heard = String::new();
            if apart {
                heard += &stage.hear(&client, "\r\n\r\n");
                client.send(next.as_bytes());
            }
            stage.until(|_| {
                heard += &String::from_utf8_lossy(&client.receive());
                (heard.matches("HTTP/1.1 ").count() == 3 && heard.ends_with("hello")).then_some(())
            });
            assert_eq!(heard.matches("HTTP/1.1 200 ").count(), 3, "{path}: {heard}");
            assert!(stage.net.now().since(began) < Span::from_secs(1), "{path} {apart}");
            drop(client);
            stage.end();
        }
    }
}

/// Takes a body of `LARGE_BYTES` at `peer`, a little at a time, and checks every byte.
fn take_slowly(stage: &mut Stage, peer: &SimPeer, mut feed: impl FnMut()) {
    let mut reader = Reader::default();
    let (mut at, mut begun) = (0, false);
    stage.until(|_| {
        feed();
        reader.push(&peer.receive_some(50_000));
        while !begun {
            let head = reader.next_head().expect("a canonical head")?;
            reader.begin_body(response_framing(&head, false).expect("one framing"));
            begun = true;
        }
        loop {
            match reader.next_piece().expect("a canonical body") {
                Piece::Data(data) => {
                    assert!(at > 1 << 20 || body::matches(7, at, &data), "other bytes at {at}");
                    at += data.len() as u64;
                }
                Piece::End(_) => return Some(()),
                Piece::Need => return None,
            }
        }
    });
    assert_eq!(at, LARGE_BYTES);
}

/// Sends as much of body 7 at `peer` as there is room for.
fn feed(peer: &SimPeer, at: &mut u64) {
    while *at < LARGE_BYTES {
        let size = (LARGE_BYTES - *at).min(100_000) as usize;
        // Only the first part of the body is checked; making all of it would take the test's time.
        let bytes = if *at < 2 << 20 { body::make(7, *at, size) } else { vec![0; size] };
        let sent = peer.send(&bytes);
        *at += sent as u64;
        if sent < size {
            return;
        }
    }
}

#[test]
fn a_slow_client_makes_a_fast_server_wait() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(GET);
    let origin = stage.accept();
    stage.hear(&origin, "\r\n\r\n");
    origin.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n").as_bytes());
    let mut at = 0;
    take_slowly(&mut stage, &client, || feed(&origin, &mut at));
    stage.assert_bounded();
    drop((client, origin));
    stage.end();
}

#[test]
fn a_slow_client_makes_a_fast_chunked_server_wait() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(GET);
    let origin = stage.accept();
    stage.hear(&origin, "\r\n\r\n");
    let size = LARGE_BYTES;
    origin.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    origin.send(format!("{size:x}\r\n").as_bytes());
    let (mut at, mut ended) = (0, false);
    take_slowly(&mut stage, &client, || {
        feed(&origin, &mut at);
        if at == LARGE_BYTES && !ended {
            ended = origin.send(b"\r\n0\r\n\r\n") == 7;
        }
    });
    stage.assert_bounded();
    drop((client, origin));
    stage.end();
}

#[test]
fn a_slow_client_makes_a_synthetic_answer_wait() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(b"GET /synthetic?s=64m HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut got = 0;
    stage.until(|_| {
        got += client.receive_some(50_000).len() as u64;
        (got >= LARGE_BYTES).then_some(())
    });
    stage.assert_bounded();
    drop(client);
    stage.end();
}

const SYNTHETIC_POST: &[u8] =
    b"POST /synthetic?s=1k&B=3 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab";

#[test]
fn a_synthetic_answer_that_waits_for_a_body_is_408_after_its_time() {
    let mut stage = Stage::new("timeouts = { body = \"2s\" }", "");
    let client = stage.dial();
    client.send(SYNTHETIC_POST);
    let answer = stage.hear(&client, "timed out reading the request body\n");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(stage.seat.accounts.counters.body_timeouts.load(), 1);
    stage.until(|_| client.is_finished_by_other().then_some(()));
    drop(client);
    stage.end();
}

#[test]
fn a_client_that_leaves_within_a_body_that_a_synthetic_answer_waits_for_is_forgotten() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(SYNTHETIC_POST);
    client.finish();
    stage.until(|_| client.is_finished_by_other().then_some(()));
    assert_eq!(stage.seat.accounts.counters.client_aborts.load(), 1);
    drop(client);
    stage.end();
}

#[test]
fn a_slow_server_makes_a_fast_client_wait() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(
        format!("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE_BYTES}\r\n\r\n").as_bytes(),
    );
    let origin = stage.accept();
    let (mut at, mut got) = (0, 0);
    stage.until(|_| {
        feed(&client, &mut at);
        got += origin.receive_some(50_000).len() as u64;
        (got > LARGE_BYTES).then_some(())
    });
    stage.assert_bounded();
    origin.send(b"HTTP/1.1 204 No Content\r\n\r\n");
    let answer = stage.hear(&client, "\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    drop((client, origin));
    stage.end();
}

#[test]
fn a_body_before_its_server_has_room_waits_at_the_client() {
    let mut stage = Stage::new("", "");
    stage.net.set_faults(Faults { connect_delay_ms_max: 1500, ..Faults::none() });
    let client = stage.dial();
    client.send(
        format!("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE_BYTES}\r\n\r\n").as_bytes(),
    );
    let mut at = 0;
    for _ in 0..200 {
        feed(&client, &mut at);
        stage.turn();
    }
    stage.assert_bounded();
    drop(client);
    stage.end();
}

#[test]
fn a_tunnel_holds_no_more_than_its_buffers() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(b"GET /p HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    let origin = stage.accept();
    stage.hear(&origin, "\r\n\r\n");
    origin.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    stage.hear(&client, "\r\n\r\n");
    let (mut up, mut down, mut up_got, mut down_got) = (0, 0, 0, 0);
    stage.until(|_| {
        feed(&client, &mut up);
        feed(&origin, &mut down);
        up_got += origin.receive_some(50_000).len() as u64;
        down_got += client.receive_some(30_000).len() as u64;
        (up_got == LARGE_BYTES && down_got == LARGE_BYTES).then_some(())
    });
    stage.assert_bounded();
    drop((client, origin));
    stage.end();
}

#[test]
fn a_client_that_pipelines_without_reading_is_bounded_and_let_go() {
    let mut stage = Stage::new("timeouts = { body = \"2s\" }", "");
    let client = stage.dial();
    let requests = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n".repeat(10_000);
    let mut at = 0;
    stage.until(|_| {
        at += client.send(&requests[at..]);
        client.was_reset().then_some(())
    });
    assert!(at < requests.len(), "it was not made to wait");
    stage.assert_bounded();
    drop(client);
    stage.end();
}

#[test]
fn a_client_that_stops_reading_an_answer_is_let_go() {
    let mut stage = Stage::new("timeouts = { body = \"2s\" }", "");
    let client = stage.dial();
    client.send(GET);
    let origin = stage.accept();
    stage.hear(&origin, "\r\n\r\n");
    origin.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n").as_bytes());
    let mut at = 0;
    stage.until(|_| {
        feed(&origin, &mut at);
        (client.was_reset() && origin.was_reset()).then_some(())
    });
    stage.assert_bounded();
    drop((client, origin));
    stage.end();
}

#[test]
fn a_reset_of_the_client_in_a_large_answer_resets_the_server() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(GET);
    let origin = stage.accept();
    stage.hear(&origin, "\r\n\r\n");
    origin.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n").as_bytes());
    let mut at = 0;
    for _ in 0..50 {
        feed(&origin, &mut at);
        stage.turn();
    }
    client.reset();
    stage.until(|_| origin.was_reset().then_some(()));
    drop((client, origin));
    stage.end();
}

#[test]
fn a_stop_with_nothing_open_is_over_at_once() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    stage.hear(&client, "hello");
    stage.seat.worker.stop(&mut stage.seat.reactor, Span::from_secs(30));
    let began = stage.net.now();
    stage.until(|_| client.is_finished_by_other().then_some(()));
    drop(client);
    stage.until(|stage| stage.seat.worker.is_stopped(&stage.seat.reactor).then_some(()));
    assert!(stage.net.now().since(began) < Span::from_secs(1));
    assert_eq!(stage.net.open_listeners(), 0);
    stage.end();
}

const HELLO: &[u8] = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";

/// Lets `span` pass, turn by turn.
fn pass(stage: &mut Stage, span: Span) {
    let end = stage.net.now().after(span);
    while stage.net.now() < end {
        stage.net.advance_by(Span::from_millis(5));
        stage.turn();
    }
}

#[test]
fn a_stop_answers_requests_that_were_on_their_way_and_closes_before_later_ones() {
    let mut stage = Stage::new("", "");
    let (early, late) = (stage.dial(), stage.dial());
    for client in [&early, &late] {
        client.send(HELLO);
        let answer = stage.hear(client, "hello");
        assert!(!answer.contains("Connection: close"), "{answer}");
    }
    stage.seat.worker.stop(&mut stage.seat.reactor, Span::from_secs(30));
    pass(&mut stage, Span::from_millis(200));
    assert!(!early.is_finished_by_other(), "an idle connection was closed within the window");
    early.send(HELLO);
    let answer = stage.hear(&early, "hello");
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    stage.until(|_| early.is_finished_by_other().then_some(()));
    stage.until(|_| late.is_finished_by_other().then_some(()));
    late.send(HELLO);
    pass(&mut stage, Span::from_millis(100));
    assert!(late.receive().is_empty(), "a closed connection was answered");
    drop((early, late));
    stage.until(|stage| stage.seat.worker.is_stopped(&stage.seat.reactor).then_some(()));
    stage.end();
}

#[test]
fn a_stop_beside_a_newer_process_takes_clients_that_were_connecting() {
    let mut stage = Stage::new("", "");
    let own = std::sync::Arc::new(LeavingListeners::new(1));
    stage.seat.worker.leave_to_others([Some(own)].into());
    stage.seat.worker.stop(&mut stage.seat.reactor, Span::from_secs(30));
    pass(&mut stage, Span::from_millis(100));
    assert!(!stage.seat.worker.is_stopped(&stage.seat.reactor), "a listener is still open");
    let client = stage.dial();
    stage.until(|stage| (stage.net.open_listeners() == 0).then_some(()));
    assert!(stage.net.dial(&stage.seat.bound[0]).is_none(), "nobody listens any more");
    client.send(HELLO);
    let answer = stage.hear(&client, "hello");
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    drop(client);
    stage.until(|stage| stage.seat.worker.is_stopped(&stage.seat.reactor).then_some(()));
    stage.end();
}

#[test]
fn a_stop_alone_takes_those_in_the_backlog_and_refuses_later_ones() {
    let mut stage = Stage::new("", "");
    let waits = stage.dial();
    waits.send(HELLO);
    stage.seat.worker.stop(&mut stage.seat.reactor, Span::from_secs(30));
    let answer = stage.hear(&waits, "hello");
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert_eq!(stage.net.open_listeners(), 0, "it waits for nobody");
    assert!(stage.net.dial(&stage.seat.bound[0]).is_none(), "nobody listens any more");
    drop(waits);
    stage.until(|stage| stage.seat.worker.is_stopped(&stage.seat.reactor).then_some(()));
    stage.end();
}

/// Plays `request` and its `answer` (which the client hears up to `end`), then another request, which
/// must come over another connection; the server's bytes that nobody asked for are counted.
fn check_thrown_away(request: &[u8], answer: &[u8], end: &str, later: &[u8]) {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(request);
    let origin = stage.accept();
    stage.hear(&origin, "\r\n\r\n");
    origin.send(answer);
    stage.hear(&client, end);
    origin.send(later);
    stage.until(|_| origin.was_reset().then_some(()));
    client.send(GET);
    let second = stage.accept();
    stage.hear(&second, "\r\n\r\n");
    second.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright");
    let heard = stage.hear(&client, "right");
    assert!(!heard.contains("evil"), "{heard}");
    let counters = &stage.seat.accounts.counters;
    assert_eq!((counters.upstream_faults.load(), counters.upstream_reuses.load()), (1, 0));
    drop((client, origin, second));
    stage.end();
}

const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

#[test]
fn a_second_answer_in_the_same_read_costs_the_server_its_connection() {
    let head = GET.strip_prefix(b"GET").map(|rest| [b"HEAD", rest].concat()).expect("it is a GET");
    let cases: [(&[u8], &str, &str); 5] = [
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok"),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\r\n\r\n"),
        (
            GET,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            "0\r\n\r\n",
        ),
        (GET, "HTTP/1.1 204 No Content\r\n\r\n", "\r\n\r\n"),
        (&head, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "\r\n\r\n"),
    ];
    for (request, answer, end) in cases {
        check_thrown_away(request, format!("{answer}{EVIL}").as_bytes(), end, b"");
    }
}

#[test]
fn a_second_answer_on_an_idle_connection_costs_the_server_that_connection() {
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    check_thrown_away(GET, ok, "ok", EVIL.as_bytes());
    check_thrown_away(GET, ok, "ok", b"\r\n");
}

#[test]
fn an_idle_upstream_connection_is_closed_at_its_age() {
    let mut stage = Stage::new("", "reuse = { idle-timeout = \"2s\" }");
    let client = stage.dial();
    client.send(GET);
    let origin = stage.accept();
    stage.hear(&origin, "\r\n\r\n");
    origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    stage.hear(&client, "ok");
    stage.until(|_| origin.is_finished_by_other().then_some(()));
    client.send(GET);
    let second = stage.accept();
    stage.hear(&second, "\r\n\r\n");
    second.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    stage.hear(&client, "ok");
    drop((client, origin, second));
    stage.end();
}

#[test]
fn a_client_that_reads_only_after_its_whole_body_is_not_kept_from_sending_it() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    let origin = stage.accept();
    stage.hear(&origin, "\r\n\r\n");
    // More than the client's window and all buffers on the way, before the request is whole.
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n".to_vec();
    answer.resize(answer.len() + 500_000, b'.');
    let (mut sent, mut answered, mut got) = (0, 0, 0);
    stage.until(|_| {
        answered += origin.send(&answer[answered..]);
        sent += client.send(&vec![b'x'; 1_000_000 - sent]);
        got += origin.receive().len();
        (got == 1_000_000).then_some(())
    });
    let mut read = 0;
    stage.until(|_| {
        answered += origin.send(&answer[answered..]);
        read += client.receive().len();
        (read > 500_000).then_some(())
    });
    stage.assert_bounded();
    drop((client, origin));
    stage.end();
}

#[test]
fn a_switch_before_the_request_is_whole_is_refused() {
    let mut stage = Stage::new("", "");
    let client = stage.dial();
    client.send(
        b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhalf",
    );
    let origin = stage.accept();
    stage.hear(&origin, "half");
    origin.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    let answer = stage.hear(&client, "\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    stage.until(|_| origin.was_reset().then_some(()));
    drop((client, origin));
    stage.end();
}
