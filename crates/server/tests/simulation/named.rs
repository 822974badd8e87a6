//! Named cases that need virtual time, faults or a look inside the worker; all others are scene files.
//! In: scenes of `stage.rs`. Out: what each test's name says.

use tidegate_base::{Address, Span};
use tidegate_reactor::{Faults, LeavingListeners, SimPeer};

use crate::peer::body;
use crate::peer::reader::{Piece, Reader, response_framing};
use crate::stage::{GET, HELLO, OK, Stage, assert_status, scene};

/// The size of a body that no buffer could hold.
const LARGE_BYTES: u64 = 64 << 20;

/// A head that announces a body of `LARGE_BYTES`.
fn large_head(start: &str) -> Vec<u8> {
    format!("{start}\r\nContent-Length: {LARGE_BYTES}\r\n\r\n").into_bytes()
}

#[test]
fn connect_timeout_is_504() {
    let silent = Faults { connect_silent_ppm: 1_000_000, ..Faults::none() };
    let pool = "timeouts = { connect = \"2s\" }\nretries = 1";
    scene().pool(pool).faults(silent).with_client(|stage, client| {
        let began = stage.net.now();
        client.send(GET);
        assert_status(504, &stage.receive_until(&client, "timed out connecting to the server\n"));
        let took = stage.net.now().since(began);
        // Two attempts, and a pause between them.
        assert!(took >= Span::from_secs(5) && took < Span::from_secs(8), "{took:?}");
    });
}

#[test]
fn accepting_pauses_while_descriptors_are_exhausted() {
    let shortage = Faults { accept_shortage_ppm: 1_000_000, ..Faults::none() };
    scene().faults(shortage).with_client(|stage, client| {
        client.send(HELLO);
        let began = stage.net.now();
        let mut turns = 0;
        while stage.net.now() < began.after(Span::from_secs(2)) {
            stage.turn();
            stage.net.advance_to_next_event();
            turns += 1;
        }
        assert!(stage.counters().accept_pauses.load() > 0);
        assert!(turns < 1000, "{turns} turns in two seconds of shortage: the worker spins");
        stage.net.set_faults(Faults::none());
        assert_status(200, &stage.receive_until(&client, "hello"));
    });
}

#[test]
fn client_waits_while_all_slots_are_taken() {
    scene().socks_max(2).run(|stage| {
        let clients = [stage.dial(), stage.dial(), stage.dial()];
        for client in &clients {
            client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
        }
        stage.receive_until(&clients[0], "hello");
        stage.receive_until(&clients[1], "hello");
        assert_eq!(clients[2].arrived_bytes(), 0);
        let [first, _second, third] = clients;
        drop(first);
        stage.receive_until(&third, "hello");
    });
}

#[test]
fn response_before_the_end_of_the_body_keeps_the_connection() {
    let post = b"POST /synthetic?s=5&t=20 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab";
    scene().with_client(|stage, client| {
        client.send(post);
        let answer = stage.receive_until(&client, "\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("close"), "{answer}");
        client.send(&[b"cd", HELLO].concat());
        stage.receive_until(&client, "\r\n\r\nhello");

        // A client that ends its sending side instead cannot send another request.
        client.send(post);
        client.finish();
        let began = stage.net.now();
        stage.receive_until(&client, "\r\n\r\n");
        stage.wait_finished(&client);
        let took = stage.net.now().since(began);
        assert!(took < Span::from_secs(2), "the worker waits for the rest of the body: {took:?}");
    });
}

#[test]
fn requests_after_an_empty_body_are_answered_at_once() {
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    let paths = ["/hello", "/synthetic?s=5", "/synthetic?s=5&t=20", "/synthetic?s=5&B=3", "/p"];
    for (path, apart) in paths.into_iter().flat_map(|path| [(path, false), (path, true)]) {
        scene().with_client(|stage, client| {
            let began = stage.net.now();
            let next = post("/hello").repeat(2);
            match apart {
                true => client.send(post(path).as_bytes()),
                false => client.send([post(path), next.clone()].concat().as_bytes()),
            };
            if path == "/p" {
                let origin = stage.accept();
                stage.receive_until(&origin, "\r\n\r\n");
                origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n.....");
            }
            let mut received = String::new();
            if apart {
                received += &stage.receive_until(&client, "\r\n\r\n");
                client.send(next.as_bytes());
            }
            stage.until(|_| {
                received += &String::from_utf8_lossy(&client.receive());
                let count = received.matches("HTTP/1.1 ").count();
                (count == 3 && received.ends_with("hello")).then_some(())
            });
            assert_eq!(received.matches("HTTP/1.1 200 ").count(), 3, "{path}: {received}");
            assert!(stage.net.now().since(began) < Span::from_secs(1), "{path} {apart}");
        });
    }
}

/// Reads a body of `LARGE_BYTES` at `peer`, a little at a time, and checks its first MiB byte for byte.
fn read_slowly(stage: &mut Stage, peer: &SimPeer, mut feed: impl FnMut()) {
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
                    assert!(at > 1 << 20 || body::matches(7, at, &data), "wrong bytes at {at}");
                    at += data.len() as u64;
                }
                Piece::End(_) => return Some(()),
                Piece::Need => return None,
            }
        }
    });
    assert_eq!(at, LARGE_BYTES);
}

/// Sends as much of body 7 at `peer` as there is room for. `at`: the bytes sent so far.
fn feed(peer: &SimPeer, at: &mut u64) {
    while *at < LARGE_BYTES {
        let size = (LARGE_BYTES - *at).min(100_000) as usize;
        // Only the first part of the body is checked; making all of it would dominate the test's run time.
        let bytes = if *at < 2 << 20 { body::make(7, *at, size) } else { vec![0; size] };
        let sent = peer.send(&bytes);
        *at += sent as u64;
        if sent < size {
            return;
        }
    }
}

#[test]
fn slow_client_slows_down_the_server() {
    scene().with_request(GET, |stage, client, origin| {
        origin.send(&large_head("HTTP/1.1 200 OK"));
        let mut at = 0;
        read_slowly(stage, &client, || feed(&origin, &mut at));
        stage.assert_bounded();
    });
}

#[test]
fn slow_client_slows_down_a_chunked_response() {
    scene().with_request(GET, |stage, client, origin| {
        origin.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        origin.send(format!("{LARGE_BYTES:x}\r\n").as_bytes());
        let (mut at, mut ended) = (0, false);
        read_slowly(stage, &client, || {
            feed(&origin, &mut at);
            if at == LARGE_BYTES && !ended {
                ended = origin.send(b"\r\n0\r\n\r\n") == 7;
            }
        });
        stage.assert_bounded();
    });
}

#[test]
fn slow_client_slows_down_a_synthetic_response() {
    scene().with_client(|stage, client| {
        client.send(b"GET /synthetic?s=64m HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut got = 0;
        stage.until(|_| {
            got += client.receive_some(50_000).len() as u64;
            (got >= LARGE_BYTES).then_some(())
        });
        stage.assert_bounded();
    });
}

/// A request whose synthetic response waits for the body, without the last byte of that body.
const SYNTHETIC_POST: &[u8] =
    b"POST /synthetic?s=1k&B=3 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab";

#[test]
fn synthetic_response_that_waits_for_a_body_times_out_with_408() {
    scene().listener("timeouts = { body = \"2s\" }").with_client(|stage, client| {
        client.send(SYNTHETIC_POST);
        assert_status(408, &stage.receive_until(&client, "timed out reading the request body\n"));
        assert_eq!(stage.counters().body_timeouts.load(), 1);
        stage.wait_finished(&client);
    });
}

#[test]
fn client_that_leaves_within_the_body_for_a_synthetic_response_is_an_abort() {
    scene().with_client(|stage, client| {
        client.send(SYNTHETIC_POST);
        client.finish();
        stage.wait_finished(&client);
        assert_eq!(stage.counters().client_aborts.load(), 1);
    });
}

#[test]
fn slow_server_slows_down_the_client() {
    scene().with_client(|stage, client| {
        client.send(&large_head("POST /p HTTP/1.1\r\nHost: a"));
        let origin = stage.accept();
        let (mut at, mut got) = (0, 0);
        stage.until(|_| {
            feed(&client, &mut at);
            got += origin.receive_some(50_000).len() as u64;
            (got > LARGE_BYTES).then_some(())
        });
        stage.assert_bounded();
        origin.send(b"HTTP/1.1 204 No Content\r\n\r\n");
        assert_status(204, &stage.receive_until(&client, "\r\n\r\n"));
    });
}

#[test]
fn body_waits_at_the_client_while_the_server_is_connected() {
    let slow = Faults { connect_delay_ms_max: 1500, ..Faults::none() };
    scene().faults(slow).with_client(|stage, client| {
        client.send(&large_head("POST /p HTTP/1.1\r\nHost: a"));
        let mut at = 0;
        for _ in 0..200 {
            feed(&client, &mut at);
            stage.turn();
        }
        stage.assert_bounded();
    });
}

#[test]
fn tunnel_memory_is_bounded() {
    let upgrade = b"GET /p HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    scene().with_request(upgrade, |stage, client, origin| {
        origin.send(SWITCH);
        stage.receive_until(&client, "\r\n\r\n");
        let (mut up, mut down, mut up_got, mut down_got) = (0, 0, 0, 0);
        stage.until(|_| {
            feed(&client, &mut up);
            feed(&origin, &mut down);
            up_got += origin.receive_some(50_000).len() as u64;
            down_got += client.receive_some(30_000).len() as u64;
            (up_got == LARGE_BYTES && down_got == LARGE_BYTES).then_some(())
        });
        stage.assert_bounded();
    });
}

#[test]
fn client_that_pipelines_without_reading_is_bounded_and_reset() {
    scene().listener("timeouts = { body = \"2s\" }").with_client(|stage, client| {
        let requests = HELLO.repeat(10_000);
        let mut at = 0;
        stage.until(|_| {
            at += client.send(&requests[at..]);
            client.was_reset().then_some(())
        });
        assert!(at < requests.len(), "the worker accepted all requests");
        stage.assert_bounded();
    });
}

#[test]
fn client_that_stops_reading_a_response_is_reset() {
    scene().listener("timeouts = { body = \"2s\" }").with_request(GET, |stage, client, origin| {
        origin.send(&large_head("HTTP/1.1 200 OK"));
        let mut at = 0;
        stage.until(|_| {
            feed(&origin, &mut at);
            (client.was_reset() && origin.was_reset()).then_some(())
        });
        stage.assert_bounded();
    });
}

#[test]
fn client_reset_during_a_large_response_resets_the_server() {
    scene().with_request(GET, |stage, client, origin| {
        origin.send(&large_head("HTTP/1.1 200 OK"));
        let mut at = 0;
        for _ in 0..50 {
            feed(&origin, &mut at);
            stage.turn();
        }
        client.reset();
        stage.wait_reset(&origin);
    });
}

#[test]
fn stop_with_idle_connections_only_ends_at_once() {
    scene().with_client(|stage, client| {
        stage.hello(&client);
        stage.stop();
        let began = stage.net.now();
        stage.wait_finished(&client);
        drop(client);
        stage.wait_stopped();
        assert!(stage.net.now().since(began) < Span::from_secs(1));
        assert_eq!(stage.net.open_listeners(), 0);
    });
}

#[test]
fn stop_answers_requests_under_way_and_closes_idle_connections() {
    scene().run(|stage| {
        let (early, late) = (stage.dial(), stage.dial());
        for client in [&early, &late] {
            let answer = stage.hello(client);
            assert!(!answer.contains("Connection: close"), "{answer}");
        }
        stage.stop();
        stage.pass(Span::from_millis(200));
        assert!(!early.is_finished_by_other(), "an idle connection was closed within the window");
        assert_last(&stage.hello(&early));
        stage.wait_finished(&early);
        stage.wait_finished(&late);
        late.send(HELLO);
        stage.pass(Span::from_millis(100));
        assert!(late.receive().is_empty(), "a request on a closed connection was answered");
        drop((early, late));
        stage.wait_stopped();
    });
}

#[test]
fn stop_beside_a_newer_process_accepts_connecting_clients() {
    scene().run(|stage| {
        let own = std::sync::Arc::new(LeavingListeners::new(1));
        stage.harness.worker.leave_to_others([Some(own)].into());
        stage.stop();
        stage.pass(Span::from_millis(100));
        let harness = &stage.harness;
        assert!(!harness.worker.is_stopped(&harness.reactor), "a listener is still open");
        let client = stage.dial();
        stage.until(|stage| (stage.net.open_listeners() == 0).then_some(()));
        assert!(stage.net.dial(&stage.harness.bound[0]).is_none(), "no listener is left");
        assert_last(&stage.hello(&client));
        drop(client);
        stage.wait_stopped();
    });
}

#[test]
fn stop_accepts_the_backlog_and_refuses_later_clients() {
    scene().with_client(|stage, client| {
        client.send(HELLO);
        stage.stop();
        assert_last(&stage.receive_until(&client, "hello"));
        assert_eq!(stage.net.open_listeners(), 0, "the worker does not wait for further clients");
        assert!(stage.net.dial(&stage.harness.bound[0]).is_none(), "no listener is left");
        drop(client);
        stage.wait_stopped();
    });
}

/// Checks that a response announces the end of its connection.
fn assert_last(answer: &str) {
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
}

/// Plays `request` and its `answer` (which the client receives up to `end`). Then the server sends `later`,
/// and the client another request. Checks that the server's unsolicited bytes are counted, and that the
/// second request uses a new connection.
fn check_unsolicited(request: &[u8], answer: &[u8], end: &str, later: &[u8]) {
    scene().with_request(request, |stage, client, origin| {
        origin.send(answer);
        stage.receive_until(&client, end);
        origin.send(later);
        stage.wait_reset(&origin);
        let second = stage.forward(&client, GET);
        second.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright");
        let received = stage.receive_until(&client, "right");
        assert!(!received.contains("evil"), "{received}");
        let counters = stage.counters();
        assert_eq!((counters.upstream_faults.load(), counters.upstream_reuses.load()), (1, 0));
    });
}

const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

#[test]
fn second_response_in_the_same_read_resets_the_server() {
    let head = GET.strip_prefix(b"GET").map(|rest| [b"HEAD", rest].concat()).expect("a GET");
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
        check_unsolicited(request, format!("{answer}{EVIL}").as_bytes(), end, b"");
    }
}

#[test]
fn bytes_on_an_idle_upstream_connection_reset_it() {
    check_unsolicited(GET, OK, "ok", EVIL.as_bytes());
    check_unsolicited(GET, OK, "ok", b"\r\n");
}

#[test]
fn idle_upstream_connection_is_closed_by_its_timeout() {
    let pool = "reuse = { idle-timeout = \"2s\" }";
    scene().pool(pool).with_request(GET, |stage, client, origin| {
        stage.respond(&origin, &client);
        stage.wait_finished(&origin);
        let second = stage.forward(&client, GET);
        stage.respond(&second, &client);
    });
}

#[test]
fn client_can_send_its_whole_body_before_it_reads() {
    let post = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
    scene().with_request(post, |stage, client, origin| {
        // More than the client's window and all buffers on the way, before the request is complete.
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
    });
}

const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";

#[test]
fn switch_before_the_request_is_complete_is_502() {
    scene().with_client(|stage, client| {
        client.send(
            b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhalf",
        );
        let origin = stage.accept();
        stage.receive_until(&origin, "half");
        origin.send(SWITCH);
        assert_status(502, &stage.receive_until(&client, "\r\n\r\n"));
        stage.wait_reset(&origin);
    });
}

/// A request for `path` that is forwarded to the origin.
fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// A pool whose only server serves one request at a time.
const ONE_AT_A_TIME: &str = "servers = [{ address = \"10.0.1.1:8000\", connections-max = 1 }]";

#[test]
fn pipelined_requests_do_not_pass_the_queue() {
    scene().pool(ONE_AT_A_TIME).run(|stage| {
        let (greedy, polite) = (stage.dial(), stage.dial());
        greedy.send(&[get("/1"), get("/2"), get("/3")].concat());
        let origin = stage.accept();
        stage.receive_until(&origin, "GET /1 ");
        polite.send(&get("/polite"));
        stage.until(|stage| (stage.counters().queued.load() == 1).then_some(()));
        for next in ["GET /polite ", "GET /2 ", "GET /3 "] {
            origin.send(OK);
            stage.receive_until(&origin, next);
        }
        origin.send(OK);
        stage.receive_until(&polite, "ok");
        stage.receive_until(&greedy, "ok");
    });
}

#[test]
fn retry_keeps_its_place_and_does_not_block_later_requests() {
    let pool = "servers = [{ address = \"10.0.1.1:8000\", connections-max = 1 }, \
                { address = \"10.0.1.2:8000\", connections-max = 1 }]\nbalance = \"least-connections\"\n\
                timeouts = { connect = \"1s\", queue = \"300s\", response-head = \"300s\" }";
    scene().pool(pool).run(|stage| {
        let (busy, client) = (stage.dial(), stage.dial());
        let origin = stage.forward(&busy, &get("/busy"));
        // The second server does not accept yet, so requests for it time out and are sent again.
        stage.net.set_faults(Faults { connect_silent_ppm: 1_000_000, ..Faults::none() });
        let retries = stage.counters().retries.load();
        let (first, second) = (stage.dial(), stage.dial());
        first.send(&get("/first"));
        stage.turn();
        stage.turn();
        second.send(&get("/second"));
        stage.until(|stage| (stage.counters().retries.load() == retries + 2).then_some(()));
        let queued = stage.counters().queued.load();
        // The second server has refused the first request of all, so it is avoided for a second.
        assert_eq!(queued, 4, "each request waited before and after its attempt");

        stage.net.set_faults(Faults::none());
        let other = Address::Tcp(([10, 0, 1, 2], 8000).into());
        let other = stage.net.serve(&other).expect("the address is free");
        client.send(&get("/later"));
        let later = stage.until(|_| other.accept());
        stage.receive_until(&later, "GET /later ");
        stage.respond(&later, &client);

        origin.send(OK);
        let first = stage.accept();
        stage.receive_until(&first, "GET /first ");
        first.send(OK);
        let second = stage.accept();
        stage.receive_until(&second, "GET /second ");
    });
}

/// Plays a client whose request waits in the queue while `leave` ends its connection, and returns the number of
/// requests that reached the server after the one it was busy with.
fn play_departure(pool: &str, request: &[u8], leave: fn(SimPeer) -> Option<SimPeer>) -> usize {
    let mut reached = 0;
    scene().pool(&format!("{ONE_AT_A_TIME}\n{pool}")).run(|stage| {
        let (busy, leaving, last) = (stage.dial(), stage.dial(), stage.dial());
        let origin = stage.forward(&busy, GET);
        leaving.send(request);
        stage.until(|stage| (stage.counters().queued.load() == 1).then_some(()));
        let left = leave(leaving);
        for _ in 0..100 {
            stage.turn();
            stage.net.advance_by(Span::from_millis(5));
        }
        let queued = stage.harness.worker.leftovers().queued;
        assert_eq!(stage.counters().queue_departures.load() as usize, 1 - queued, "{pool}");
        last.send(&get("/last"));
        origin.send(OK);
        while !stage.receive_until(&origin, "\r\n\r\n").starts_with("GET /last ") {
            reached += 1;
            origin.send(OK);
        }
        drop(left);
    });
    reached
}

#[test]
fn client_that_leaves_the_queue_uses_no_server() {
    let finish = |client: SimPeer| {
        client.finish();
        Some(client)
    };
    let reset = |client: SimPeer| {
        client.reset();
        None
    };
    // With pipelined bytes behind the request, the worker reads no more from the client.
    let pipelined = [GET, GET, GET].concat();
    for request in [GET, &pipelined] {
        assert_eq!(play_departure("", request, finish), 0);
        assert_eq!(play_departure("", request, reset), 0);
    }
    assert_eq!(play_departure("queue-half-closed = true", GET, finish), 1);
    assert_eq!(play_departure("queue-half-closed = true", &pipelined, finish), 1);
    assert_eq!(play_departure("queue-half-closed = true", &pipelined, reset), 0);
}

#[test]
fn request_of_a_client_that_has_left_is_not_queued() {
    scene().pool(ONE_AT_A_TIME).run(|stage| {
        let (leaving, other) = (stage.dial(), stage.dial());
        leaving.send(&[get("/1"), get("/2")].concat());
        leaving.finish();
        let origin = stage.accept();
        stage.receive_until(&origin, "GET /1 ");
        other.send(&get("/other"));
        stage.until(|stage| (stage.counters().queued.load() == 1).then_some(()));
        // The server goes to the other client, so the second request would have to wait.
        origin.send(OK);
        assert_status(200, &stage.receive_until(&leaving, "ok"));
        stage.wait_finished(&leaving);
        assert_eq!(stage.counters().queue_departures.load(), 1);
        stage.receive_until(&origin, "GET /other ");
        stage.respond(&origin, &other);
    });
}

#[test]
fn connection_is_not_reused_if_its_server_responded_before_it_took_the_request() {
    // The worker takes the whole request, and the server's window only a part of it.
    let body = vec![b'x'; 20_000];
    let head = format!("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    scene().with_client(|stage, client| {
        stage.net.set_window_bytes(2000);
        let request = [head.as_bytes(), &body].concat();
        assert_eq!(client.send(&request), request.len());
        let origin = stage.accept();
        origin.send(OK);
        assert_status(200, &stage.receive_until(&client, "ok"));
        stage.wait_reset(&origin);
        assert_eq!(stage.harness.worker.leftovers().idle, 0);
        // The client's connection stays.
        client.send(HELLO);
        stage.receive_until(&client, "hello");
    });
}

/// Two clients at the same time, with and without credentials.
#[test]
fn connection_that_a_server_authenticates_belongs_to_its_client() {
    const CREDENTIALS: &[u8] =
        b"GET /p HTTP/1.1\r\nHost: a\r\nAuthorization: Negotiate YWJj\r\n\r\n";
    const CHALLENGE: &[u8] = b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"a, b\"\r\n\
        www-authenticate: negotiate\r\nContent-Length: 2\r\n\r\nno";
    // The balancing alone would change the server with every request.
    let pool = "balance = \"round-robin\"\nretries = 0\nreuse = { unretriable = \"always\" }";
    for challenged in [true, false] {
        scene().pool(pool).run(|stage| {
            let (victim, attacker) = (stage.dial(), stage.dial());
            let mine = stage.forward(&victim, if challenged { GET } else { CREDENTIALS });
            mine.send(if challenged { CHALLENGE } else { OK });
            stage.receive_until(&victim, if challenged { "no" } else { "ok" });
            let other = stage.forward(&attacker, GET);
            stage.respond(&other, &attacker);
            // The attacker's connection is shared, and the victim's request does not take it.
            victim.send(CREDENTIALS);
            assert!(stage.receive_until(&mine, "\r\n\r\n").contains("Negotiate YWJj"));
            stage.respond(&mine, &victim);
            assert_eq!(stage.harness.worker.leftovers().kept, 1);
            attacker.send(GET);
            stage.receive_until(&other, "\r\n\r\n");
            stage.respond(&other, &attacker);
            drop(victim);
            stage.wait_finished(&mine);
        });
    }
}

/// The address of a server that is down at first.
fn restarting() -> Address {
    Address::Tcp(([10, 0, 1, 9], 8000).into())
}

#[test]
fn request_waits_for_the_restart_of_its_only_server() {
    let pool = "servers = [\"10.0.1.9:8000\"]\nretry-pause = \"1s\"";
    for request in [GET, POST] {
        scene().pool(pool).with_client(|stage, client| {
            client.send(request);
            stage.until(|stage| (stage.counters().retry_pauses.load() == 1).then_some(()));
            let leftovers = stage.harness.worker.leftovers();
            assert_eq!((leftovers.exchanges, leftovers.queued, leftovers.in_use), (1, 0, 0));
            let began = stage.net.now();
            let server = stage.net.serve(&restarting()).expect("the address is free");
            let origin = stage.until(|_| server.accept());
            let waited = stage.net.now().since(began);
            assert!(waited > Span::from_millis(900) && waited < Span::from_secs(2), "{waited:?}");
            stage.receive_until(&origin, "\r\n\r\n");
            assert_status(200, &stage.respond(&origin, &client));
        });
    }
}

#[test]
fn pause_is_as_long_as_a_connect_may_take_at_most_and_retries_are_counted() {
    let pool = "servers = [\"10.0.1.9:8000\", \"10.0.1.8:8000\"]\nretries = 5\n\
                retry-pause = \"1m\"\ntimeouts = { connect = \"500ms\" }";
    scene().pool(pool).with_client(|stage, client| {
        let began = stage.net.now();
        client.send(GET);
        assert_status(502, &stage.receive_until(&client, "could not connect to the server\n"));
        let took = stage.net.now().since(began);
        assert!(took >= Span::from_secs(1) && took < Span::from_secs(2), "{took:?}");
        let counters = stage.counters();
        let counts = (&counters.upstream_connects, &counters.retries, &counters.retry_pauses);
        assert_eq!((counts.0.load(), counts.1.load(), counts.2.load()), (6, 5, 2));
    });
}

#[test]
fn client_that_leaves_during_a_pause_ends_its_request() {
    let leaves: [fn(SimPeer) -> Option<SimPeer>; 2] = [
        |client| {
            client.finish();
            Some(client)
        },
        |client| {
            client.reset();
            None
        },
    ];
    for leave in leaves {
        for request in [GET.to_vec(), [GET, GET].concat()] {
            let pool = "servers = [\"10.0.1.9:8000\"]\nretry-pause = \"3s\"";
            scene().pool(pool).run(|stage| {
                let client = stage.dial();
                client.send(&request);
                stage.until(|stage| (stage.counters().retry_pauses.load() == 1).then_some(()));
                let left = leave(client);
                stage.pass(Span::from_millis(500));
                assert_eq!(stage.harness.worker.leftovers().exchanges, 0);
                assert_eq!(stage.counters().upstream_connects.load(), 1);
                drop(left);
            });
        }
    }
}

#[test]
fn body_that_arrives_during_a_pause_is_sent_after_it() {
    let pool = "servers = [\"10.0.1.9:8000\"]\nretry-pause = \"1s\"";
    scene().pool(pool).with_client(|stage, client| {
        client.send(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\na");
        stage.until(|stage| (stage.counters().retry_pauses.load() == 1).then_some(()));
        client.send(b"bc");
        stage.pass(Span::from_millis(100));
        let server = stage.net.serve(&restarting()).expect("the address is free");
        let origin = stage.until(|_| server.accept());
        stage.receive_until(&origin, "\r\n\r\nabc");
        client.send(b"d");
        stage.receive_until(&origin, "d");
        assert_status(200, &stage.respond(&origin, &client));
    });
}

/// A POST without a body.
const POST: &[u8] = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";

#[test]
fn unretriable_request_uses_only_a_proven_idle_connection() {
    let pool = "reuse = { idle-timeout = \"60s\" }";
    scene().pool(pool).with_client(|stage, client| {
        let witness = stage.forward(&client, GET);
        stage.respond(&witness, &client);
        // Nothing is known about the server. A connection does not prove itself.
        let second = stage.forward(&client, POST);
        stage.respond(&second, &client);
        assert_eq!(stage.counters().spared_requests.load(), 1);
        // 100 ms are not proven by another connection that is hardly older. A connection takes the other's place.
        stage.pass(Span::from_millis(100));
        let third = stage.forward(&client, POST);
        stage.respond(&third, &client);
        assert_eq!(stage.counters().spared_requests.load(), 2);
        stage.wait_reset(&second);
        assert_eq!(stage.harness.worker.leftovers().idle, 2);
        // The witness has been idle for 100 ms, so a few are proven.
        for _ in 0..3 {
            client.send(POST);
            stage.receive_until(&third, "\r\n\r\n");
            stage.respond(&third, &client);
        }
        assert_eq!(stage.counters().spared_requests.load(), 2);

        // The server closes a connection that has just become idle, and the proof is void.
        third.finish();
        stage.until(|stage| (stage.harness.worker.leftovers().idle == 1).then_some(()));
        drop(third);
        client.send(GET);
        stage.receive_until(&witness, "\r\n\r\n");
        stage.respond(&witness, &client);
        let fourth = stage.forward(&client, POST);
        stage.respond(&fourth, &client);
        stage.pass(Span::from_secs(1));
        let fifth = stage.forward(&client, POST);
        stage.respond(&fifth, &client);
        let sixth = stage.forward(&client, POST);
        stage.respond(&sixth, &client);
        assert_eq!(stage.counters().spared_requests.load(), 5);
        // A loss does not count forever.
        stage.pass(Span::from_secs(16));
        let seventh = stage.forward(&client, POST);
        stage.respond(&seventh, &client);
        client.send(POST);
        stage.receive_until(&seventh, "\r\n\r\n");
        stage.respond(&seventh, &client);
        assert_eq!(stage.counters().spared_requests.load(), 6);
    });
}

/// Sends a GET, then `request`; returns whether the second one used the connection of the first.
fn is_connection_reused(pool: &str, request: &[u8]) -> bool {
    let mut reused = false;
    scene().pool(pool).with_client(|stage, client| {
        let origin = stage.forward(&client, GET);
        stage.respond(&origin, &client);
        client.send(request);
        stage.until(|stage| {
            reused = origin.arrived_bytes() > 0;
            (reused || stage.counters().upstream_connects.load() == 2).then_some(())
        });
        let origin = if reused { origin } else { stage.accept() };
        stage.receive_until(&origin, "\r\n\r\n");
    });
    reused
}

#[test]
fn setting_decides_which_requests_reuse_a_connection() {
    let put = |fields: &str| format!("PUT /p HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n").into_bytes();
    let small = put("Content-Length: 40000");
    let large = put("Content-Length: 70000");
    let chunked = put("Transfer-Encoding: chunked");
    // The setting -> reuse for: GET, PUT with a small body, with a large one, with one of unknown length, POST.
    let table = [
        ("", [true, true, false, false, false]),
        ("reuse = { unretriable = \"always\" }", [true; 5]),
        ("reuse = { unretriable = \"never\" }", [true, true, false, false, false]),
        ("retries = 0", [false; 5]),
    ];
    for (pool, expected) in table {
        let requests = [GET, &small, &large, &chunked, POST];
        assert_eq!(requests.map(|request| is_connection_reused(pool, request)), expected, "{pool}");
    }
}

#[test]
fn refused_requests_are_recorded_with_their_route_and_reason() {
    let routes = "[[route]]\npath = \"/down\"\nmaintenance = true\nrespond = { status = 200 }\n\
                  [[route]]\npath = \"/limited\"\nrate = { limit = \"1/24h\" }\nrespond = { status = 200 }\n\
                  [[route]]\npath = \"/denied\"\ndeny = [\"0.0.0.0/0\", \"::/0\"]\nrespond = { status = 200 }\n";
    scene().listener(routes).with_client(|stage, client| {
        for (path, status) in [("down", 503), ("limited", 200), ("limited", 429), ("denied", 403)] {
            client.send(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            let head = stage.receive_until(&client, "\r\n\r\n");
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {head}");
            stage.pass(Span::from_millis(10));
            drop(client.receive());
        }
        let text = stage.harness.log.as_ref().expect("it records").take_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        for (line, reason) in [
            (lines[0], "the route is closed for maintenance"),
            (lines[2], "too many requests"),
            (lines[3], "requests from this address are not served"),
        ] {
            assert!(line.contains("\"route\":"), "{line}");
            let wanted = format!("\"fault\":\"client\",\"reason\":\"{reason}\"");
            assert!(line.contains(&wanted), "{wanted}: {line}");
        }
    });
}

#[test]
fn client_that_has_ended_its_direction_gets_the_response_that_would_be_retried() {
    scene().pool("retry-on = [503]").with_request(GET, |stage, client, origin| {
        client.finish();
        stage.pass(Span::from_millis(50));
        origin.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy");
        let answer = stage.receive_until(&client, "busy");
        assert_status(503, &answer);
        assert_eq!(stage.counters().retries.load(), 0);
    });
}
