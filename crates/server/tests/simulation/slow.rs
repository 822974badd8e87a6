//! Slow peers that make progress: the body timeout and the reactor's close must not cut them off.
//! In: peers that read a few bytes shortly before each timeout. Out: what each test's name says.
//! Limits: `DRIPS_MAX` reads of one peer.

use tidegate_base::Span;
use tidegate_reactor::SimPeer;

use crate::peer::body;
use crate::stage::{GET, OK, Stage, assert_status, scene};

/// Settings in which two seconds without progress end a transfer.
const TIMEOUTS: &str = "timeouts = { body = \"2s\" }";
const POOL_TIMEOUTS: &str = "timeouts = { body = \"2s\", response-head = \"2s\", tunnel = \"2s\" }";
/// Bytes in progress in one direction of a connection: the kernel's share of what a slow peer has not read.
const WINDOW_BYTES: usize = 20_000;
/// Maximum number of bytes that a slow peer reads at once.
const DRIP_BYTES: usize = 1000;
/// How often a slow peer reads.
const DRIP_EVERY: Span = Span::from_millis(1900);
const DRIPS_MAX: usize = 2000;

/// Reads at `peer` a little at a time, with `pause` before each read, until at least `bytes` bytes have arrived and
/// all of them are read.
fn drip(stage: &mut Stage, peer: &SimPeer, pause: Span, bytes: usize) -> Vec<u8> {
    let mut received = Vec::new();
    for _ in 0..DRIPS_MAX {
        if received.len() >= bytes && peer.arrived_bytes() == 0 {
            return received;
        }
        stage.pass(pause);
        received.extend(peer.receive_some(DRIP_BYTES));
        assert!(!peer.was_reset(), "reset after {} of {bytes} bytes", received.len());
    }
    panic!("{} of {bytes} bytes in {DRIPS_MAX} reads", received.len());
}

/// A response with a body of `bytes` bytes.
fn response(bytes: usize) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    response.extend(body::make(7, 0, bytes));
    response
}

/// Sends all of `bytes` at `peer`, as its window permits.
fn send_all(stage: &mut Stage, peer: &SimPeer, bytes: &[u8]) {
    let mut at = 0;
    stage.until(|_| {
        at += peer.send(&bytes[at..]);
        (at == bytes.len()).then_some(())
    });
}

#[test]
fn slow_client_gets_the_whole_response_of_a_server() {
    scene().listener(TIMEOUTS).run(|stage| {
        stage.net.set_window_bytes(WINDOW_BYTES);
        let client = stage.dial();
        let origin = stage.forward(&client, GET);
        let (response, mut at) = (response(150_000), 0);
        let mut received = Vec::new();
        while !received.ends_with(&response[response.len() - 100..]) {
            at += origin.send(&response[at..]);
            stage.pass(DRIP_EVERY);
            received.extend(client.receive_some(DRIP_BYTES));
            assert!(!client.was_reset(), "reset after {} bytes", received.len());
        }
        assert!(received.len() > 150_000);
        assert_eq!(stage.counters().body_timeouts.load(), 0);
    });
}

#[test]
fn slow_client_gets_the_whole_synthetic_response() {
    scene().listener(TIMEOUTS).run(|stage| {
        stage.net.set_window_bytes(WINDOW_BYTES);
        let client = stage.dial();
        client.send(b"GET /synthetic?s=150000 HTTP/1.1\r\nHost: a\r\n\r\n");
        drip(stage, &client, DRIP_EVERY, 150_000);
    });
}

#[test]
fn client_that_reads_a_single_byte_for_each_timeout_is_not_reset() {
    scene().listener(TIMEOUTS).run(|stage| {
        stage.net.set_window_bytes(WINDOW_BYTES);
        let client = stage.dial();
        client.send(b"GET /synthetic?s=150000 HTTP/1.1\r\nHost: a\r\n\r\n");
        for _ in 0..100 {
            stage.pass(DRIP_EVERY);
            assert_eq!(client.receive_some(1).len(), 1);
            assert!(!client.was_reset());
        }
        // From here on the client reads nothing. It is reset after the timeout and a quarter.
        stage.pass(Span::from_millis(2600));
        assert!(client.was_reset());
        assert_eq!(stage.counters().body_timeouts.load(), 1);
    });
}

#[test]
fn slow_client_gets_the_rest_of_the_response_after_the_close() {
    scene().listener(TIMEOUTS).run(|stage| {
        stage.net.set_window_bytes(WINDOW_BYTES);
        let client = stage.dial();
        let origin = stage.forward(&client, b"GET /p HTTP/1.0\r\nHost: a\r\n\r\n");
        let body_bytes = WINDOW_BYTES + 15_000;
        send_all(stage, &origin, &response(body_bytes));
        // The worker has closed the connection, so the reactor sends the rest. Both limits of a close pass several
        // times: with output that the kernel has not taken, and with output that only the kernel holds.
        drip(stage, &client, Span::from_secs(29), body_bytes);
        stage.wait_finished(&client);
    });
}

#[test]
fn late_bytes_of_a_slow_client_do_not_destroy_the_end_of_its_response() {
    scene().listener(TIMEOUTS).run(|stage| {
        stage.net.set_window_bytes(WINDOW_BYTES);
        let client = stage.dial();
        let origin = stage.forward(&client, b"GET /p HTTP/1.0\r\nHost: a\r\n\r\n");
        send_all(stage, &origin, &response(15_000));
        // The kernel holds the whole response. Without its socket it would answer the late byte by a reset.
        stage.pass(Span::from_secs(3));
        client.send(b"x");
        drip(stage, &client, Span::from_secs(1), 15_000);
        stage.wait_finished(&client);
        drop(client);
        stage.pass(Span::from_secs(3));
        assert_eq!(stage.sock_count(), 1, "only the server's connection is open");
    });
}

#[test]
fn slow_server_gets_the_whole_request() {
    scene().pool(POOL_TIMEOUTS).run(|stage| {
        stage.net.set_window_bytes(WINDOW_BYTES);
        let client = stage.dial();
        let body_bytes = 60_000;
        let head = format!("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: {body_bytes}\r\n\r\n");
        let origin = stage.forward(&client, head.as_bytes());
        let (body, mut at, mut received) = (body::make(7, 0, body_bytes), 0, 0);
        while received < body_bytes {
            at += client.send(&body[at..]);
            stage.pass(DRIP_EVERY);
            received += origin.receive_some(DRIP_BYTES).len();
            assert!(!origin.was_reset(), "reset after {received} bytes");
        }
        // The time for the response counts from the end of the request.
        stage.pass(DRIP_EVERY);
        assert_status(200, &stage.respond(&origin, &client));
    });
}

#[test]
fn server_that_reads_nothing_of_the_request_causes_a_504() {
    scene().pool(POOL_TIMEOUTS).run(|stage| {
        stage.net.set_window_bytes(WINDOW_BYTES);
        let client = stage.dial();
        let head = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";
        let _origin = stage.forward(&client, head);
        send_all(stage, &client, &body::make(7, 0, 60_000));
        let began = stage.net.now();
        assert_status(504, &stage.receive_until(&client, "\r\n\r\n"));
        let took = stage.net.now().since(began);
        assert!(took < Span::from_millis(2600), "{took:?}");
    });
}

/// Requests a tunnel.
const UPGRADE: &[u8] = b"GET /p HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";

#[test]
fn tunnel_with_a_slow_client_or_server_does_not_time_out() {
    for server_is_slow in [false, true] {
        scene().pool(POOL_TIMEOUTS).run(|stage| {
            stage.net.set_window_bytes(WINDOW_BYTES);
            let client = stage.dial();
            let origin = stage.forward(&client, UPGRADE);
            origin.send(SWITCH);
            stage.receive_until(&client, "\r\n\r\n");
            let (from, to) = if server_is_slow { (&client, &origin) } else { (&origin, &client) };
            send_all(stage, from, &body::make(7, 0, 60_000));
            drip(stage, to, DRIP_EVERY, 60_000);
            // A peer that reads nothing still ends the tunnel.
            send_all(stage, from, &body::make(7, 0, 60_000));
            stage.pass(Span::from_millis(2600));
            assert!(client.was_reset() && origin.was_reset());
        });
    }
}

#[test]
fn tunnel_that_begins_while_its_client_is_blocked_ends_by_the_tunnel_timeout() {
    scene().listener(TIMEOUTS).run(|stage| {
        stage.net.set_window_bytes(WINDOW_BYTES);
        let client = stage.dial();
        let origin = stage.forward(&client, UPGRADE);
        let hint = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "x".repeat(1000));
        send_all(stage, &origin, &[hint.repeat(18).as_bytes(), SWITCH].concat());
        // The client reads nothing for longer than the body timeout, but sends to the server.
        client.set_window_bytes(1);
        stage.pass(Span::from_secs(1));
        client.send(b"from the client");
        assert!(stage.receive_until(&origin, "client").contains("from the client"));
        stage.pass(Span::from_secs(60));
        assert!(!client.was_reset() && !origin.was_reset());
    });
}

#[test]
fn early_response_beside_a_slow_upload_is_not_cut() {
    scene().pool(POOL_TIMEOUTS).run(|stage| {
        stage.net.set_window_bytes(WINDOW_BYTES);
        let client = stage.dial();
        let head = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";
        let origin = stage.forward(&client, head);
        send_all(stage, &client, &body::make(7, 0, 60_000));
        // The response has begun; its server reads the rest of the request before it continues.
        origin.send(&OK[..OK.len() - 1]);
        drip(stage, &origin, DRIP_EVERY, 60_000);
        origin.send(&OK[OK.len() - 1..]);
        assert_status(200, &stage.receive_until(&client, "ok"));
    });
}

#[test]
fn slow_server_gets_the_rest_of_a_request_that_it_answered_early() {
    for head in ["HTTP/1.1 200 OK", "HTTP/1.1 200 OK\r\nConnection: close"] {
        let patient = "timeouts = { idle = \"1h\" }";
        scene().listener(patient).pool(POOL_TIMEOUTS).run(|stage| {
            stage.net.set_window_bytes(WINDOW_BYTES);
            let client = stage.dial();
            let request = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";
            let origin = stage.forward(&client, request);
            origin.send(format!("{head}\r\nContent-Length: 2\r\n\r\nok").as_bytes());
            let answer = stage.receive_until(&client, "ok");
            assert_eq!(answer.contains("close"), head.contains("close"), "{answer}");
            let (body, mut at, mut received) = (body::make(7, 0, 60_000), 0, Vec::new());
            while received.len() < body.len() {
                at += client.send(&body[at..]);
                stage.pass(DRIP_EVERY);
                received.extend(origin.receive_some(DRIP_BYTES));
                assert!(!origin.was_reset(), "reset after {} bytes", received.len());
            }
            assert!(received == body, "other bytes arrived");
            // The server may take the rest of such a request for another one: no request follows it.
            stage.wait_finished(&origin);
            if head.contains("close") {
                return stage.wait_finished(&client);
            }
            let origin = stage.forward(&client, GET);
            assert_status(200, &stage.respond(&origin, &client));
        });
    }
}

#[test]
fn client_that_does_not_send_the_rest_after_an_early_response_times_out() {
    scene().listener(TIMEOUTS).pool("timeouts = { body = \"50s\" }").run(|stage| {
        let client = stage.dial();
        let head = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";
        let origin = stage.forward(&client, head);
        let began = stage.net.now();
        assert_status(200, &stage.respond(&origin, &client));
        stage.wait_finished(&client);
        assert!(stage.net.now().since(began) < Span::from_secs(3));
        stage.wait_reset(&origin);
        assert_eq!(stage.counters().body_timeouts.load(), 1);
        assert_eq!(stage.counters().upstream_truncations.load(), 0);
    });
}

#[test]
fn slow_uploads_do_not_delay_other_requests() {
    let pool = "request-buffer = \"16KiB\"\n";
    for framing in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
        scene().pool(pool).run(|stage| {
            let clients: Vec<SimPeer> = (0..10).map(|_| stage.dial()).collect();
            let head = format!("POST /p HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
            let chunked = framing.contains("chunked");
            let drip = if chunked { "1\r\nx\r\n" } else { "x" };
            for client in &clients {
                client.send(head.as_bytes());
            }
            for _ in 0..20 {
                for client in &clients {
                    client.send(drip.as_bytes());
                }
                stage.pass(Span::from_secs(1));
            }
            assert!(stage.try_accept().is_none(), "a slow upload has taken a server");
            let client = stage.dial();
            let began = stage.net.now();
            let origin = stage.forward(&client, GET);
            assert_status(200, &stage.respond(&origin, &client));
            assert!(stage.net.now().since(began) < Span::from_millis(100));
            // A byte a second is below the minimum rate. Each upload gets a 408 soon after the body timeout.
            stage.pass(Span::from_secs(12));
            for client in &clients {
                let answer = String::from_utf8_lossy(&client.receive()).into_owned();
                assert_status(408, &answer);
            }
            assert_eq!(stage.counters().body_timeouts.load(), 10);
        });
    }
}

#[test]
fn request_takes_a_server_once_its_buffer_is_full_or_its_body_complete() {
    let pool = "request-buffer = \"1KiB\"\nreuse = { unretriable = \"always\" }";
    scene().pool(pool).with_client(|stage, client| {
        // A body in the same read is not delayed.
        client.send(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
        let origin = stage.accept();
        assert!(stage.receive_until(&origin, "body").contains("Content-Length: 4\r\n"));
        assert_status(200, &stage.respond(&origin, &client));
        client.send(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
        client.send(&[b'x'; 1023]);
        stage.pass(Span::from_secs(1));
        assert_eq!(origin.arrived_bytes(), 0, "the request came before its buffer was full");
        client.send(b"x");
        let head = stage.receive_until(&origin, "\r\n\r\n");
        assert!(head.ends_with('x'), "{head}");
        client.send(&[b'y'; 976]);
        stage.receive_until(&origin, "y");
        assert_status(200, &stage.respond(&origin, &client));
        // A body of unknown length that ends before the buffer is full.
        client
            .send(b"POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
        stage.pass(Span::from_secs(1));
        assert_eq!(origin.arrived_bytes(), 0);
        client.send(b"0\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        let request = stage.receive_until(&origin, "\r\n\r\nab");
        assert!(request.contains("\r\nContent-Length: 2\r\n"), "{request}");
        origin.send(OK);
        assert_status(200, &stage.receive_until(&client, "hello"));
        // A request with Expect is forwarded at once, because its server decides whether the client sends the body.
        client.send(
            b"POST /p HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
        );
        stage.receive_until(&origin, "\r\n\r\n");
    });
}

#[test]
fn client_that_leaves_or_errs_while_its_request_is_buffered_releases_its_state() {
    scene().pool("request-buffer = \"1KiB\"").run(|stage| {
        let head = b"POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
        let clients = [stage.dial(), stage.dial(), stage.dial()];
        for client in &clients {
            client.send(head);
        }
        stage.pass(Span::from_millis(100));
        clients[0].finish();
        clients[1].reset();
        clients[2].send(b"nonsense\r\n");
        assert_status(400, &stage.receive_until(&clients[2], "\r\n\r\n"));
        stage.wait_finished(&clients[0]);
        assert!(stage.try_accept().is_none());
        assert_eq!(stage.harness.worker.leftovers().exchanges, 0);
    });
}

#[test]
fn body_at_the_minimum_rate_is_forwarded_and_a_slower_one_gets_a_408() {
    let listener = "limits = { body-rate-min = \"100B\" }\ntimeouts = { body = \"10s\" }";
    for (bytes, succeeds) in [(100, true), (70, false)] {
        scene().listener(listener).run(|stage| {
            let client = stage.dial();
            let head = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n";
            let origin = stage.forward(&client, head);
            for _ in 0..10_000 / bytes {
                client.send(&vec![b'x'; bytes]);
                stage.pass(Span::from_secs(1));
            }
            if succeeds {
                assert_status(200, &stage.respond(&origin, &client));
            } else {
                let answer = String::from_utf8_lossy(&client.receive()).into_owned();
                assert_status(408, &answer);
                assert!(origin.was_reset());
            }
            assert_eq!(stage.counters().body_timeouts.load(), u64::from(!succeeds));
        });
    }
}

#[test]
fn time_in_which_the_server_does_not_read_does_not_count_for_the_minimum_rate() {
    let listener = "limits = { body-rate-min = \"10KiB\" }\ntimeouts = { body = \"2s\" }";
    scene().listener(listener).run(|stage| {
        stage.net.set_window_bytes(WINDOW_BYTES);
        let client = stage.dial();
        let head = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";
        let origin = stage.forward(&client, head);
        let (body, mut at, mut received) = (body::make(7, 0, 60_000), 0, 0);
        while received < body.len() {
            at += client.send(&body[at..]);
            stage.pass(DRIP_EVERY);
            received += origin.receive_some(DRIP_BYTES).len();
            assert!(!origin.was_reset(), "reset after {received} bytes");
        }
        assert_status(200, &stage.respond(&origin, &client));
    });
}
