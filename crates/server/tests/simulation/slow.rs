//! Slow peers that make progress: the body timeout and the reactor's close must not cut them off.
//! In: peers that read a few bytes shortly before each timeout. Out: what each test's name states.
//! Limits: `DRIPS_MAX` reads of one peer.

use tidegate_base::Span;
use tidegate_reactor::SimPeer;

use crate::peer::body;
use crate::stage::{GET, OK, Stage, assert_status, scene};

/// Settings in which two seconds without progress end a transfer.
const TIMEOUTS: &str = "timeouts = { body = \"2s\" }";
const POOL_TIMEOUTS: &str = "timeouts = { body = \"2s\", response-head = \"2s\", tunnel = \"2s\" }";
/// Bytes under way in one direction of a connection: the kernel's share of what a slow peer has not read.
const WINDOW_BYTES: usize = 20_000;
/// The most bytes that a slow peer reads at once.
const DRIP_BYTES: usize = 1000;
/// How often a slow peer reads.
const DRIP_EVERY: Span = Span::from_millis(1900);
const DRIPS_MAX: usize = 2000;

/// Reads at `peer` a little at a time, with `pause` before each read, until at least `bytes` bytes have come and
/// none is left to read.
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
        // The worker has closed: the rest is the reactor's. Both limits of a close pass several times: with
        // output that the kernel has not taken, and with output that only the kernel holds.
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
fn server_that_takes_none_of_the_request_is_a_504() {
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
fn tunnel_that_begins_while_its_client_is_blocked_has_the_timeout_of_a_tunnel() {
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
        // The response has begun; its server reads the rest of the request before it goes on.
        origin.send(&OK[..OK.len() - 1]);
        drip(stage, &origin, DRIP_EVERY, 60_000);
        origin.send(&OK[OK.len() - 1..]);
        assert_status(200, &stage.receive_until(&client, "ok"));
    });
}
