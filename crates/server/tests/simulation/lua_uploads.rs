//! Request bodies that a script reads while they arrive.
//! In: clients that send bodies of any size, at any speed. Out: what each test's name says.

use tidegate_base::Span;
use tidegate_reactor::SimPeer;

use crate::stage::{Scene, Stage, assert_status, scene};

const LISTENER: &str = "timeouts = { head = \"1h\", idle = \"1h\", body = \"1s\" }\nlimits = { body-rate-min = \"0B\" }\n\
    [lua.u]\nscript = \"tests/scripts/uploads.lua\"\nbody-max = \"10B\"\n\
    [[route]]\npath = [\"/refuse\", \"/slow\", \"/some\", \"/early\", \"/all\", \"/fail\", \"/count\"]\nlua = \"u\"\n";
const BODY_BYTES: usize = 3_000_000;
/// The most bytes of a body that wait for a script.
const UNREAD_MAX: usize = 64 * 1024;

fn uploads() -> Scene<'static> {
    scene().listener(LISTENER)
}

fn head(path: &str, bytes: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n")
}

/// Sends as much as is taken within a second. Returns how much that was.
fn fill(stage: &mut Stage, client: &SimPeer, bytes: &[u8]) -> usize {
    let mut at = 0;
    for _ in 0..1000 {
        at += client.send(&bytes[at..]);
        stage.turn();
        stage.net.advance_by(Span::from_millis(1));
    }
    at
}

/// Sends all bytes. Returns the response, which ends with `end`.
fn send_all(stage: &mut Stage, client: &SimPeer, bytes: &[u8], end: &str) -> String {
    let (mut at, mut received) = (0, Vec::new());
    stage.until(|stage| {
        at += client.send(&bytes[at..]);
        assert!(stage.harness.worker.hooked_bytes_max() <= UNREAD_MAX);
        received.extend(client.receive());
        let text = String::from_utf8_lossy(&received);
        text.contains(end).then(|| text.into_owned())
    })
}

#[test]
fn script_reads_a_large_body_while_it_arrives() {
    uploads().with_client(|stage, client| {
        for _ in 0..2 {
            let bytes = [head("/count", BODY_BYTES).into_bytes(), vec![b'y'; BODY_BYTES]].concat();
            let answer = send_all(stage, &client, &bytes, "read 3000000");
            assert_status(200, &answer);
        }
        let chunked = "POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_status(200, &send_all(stage, &client, chunked.as_bytes(), "read 5"));
        assert_eq!(stage.counters().lua_failures.load(), 0);
    });
}

#[test]
fn request_without_a_body_goes_to_on_request() {
    uploads().with_client(|stage, client| {
        let end = "whole 0 only on_upload reads the body in pieces";
        assert_status(200, &send_all(stage, &client, head("/count", 0).as_bytes(), end));
        assert_status(200, &send_all(stage, &client, b"GET /all HTTP/1.1\r\nHost: a\r\n\r\n", end));
    });
}

#[test]
fn client_waits_for_a_script_that_does_not_read() {
    uploads().with_client(|stage, client| {
        let bytes = [head("/slow", BODY_BYTES).into_bytes(), vec![b'y'; BODY_BYTES]].concat();
        let at = fill(stage, &client, &bytes);
        assert!(at < BODY_BYTES / 2, "{at} bytes were taken");
        assert!(stage.harness.worker.hooked_bytes_max() <= UNREAD_MAX);
        // Longer than the timeout for bodies: the client is not too slow.
        let answer = send_all(stage, &client, &bytes[at..], "read 3000000");
        assert_status(200, &answer);
    });
}

#[test]
fn slow_client_gets_408() {
    uploads().with_client(|stage, client| {
        client.send(head("/count", 10).as_bytes());
        client.send(b"12345");
        let answer = stage.receive_until(&client, "timed out reading the request body");
        assert_status(408, &answer);
        assert_eq!(stage.counters().body_timeouts.load(), 1);
    });
}

#[test]
fn response_may_begin_before_the_body_is_complete() {
    for (path, end) in [
        ("/refuse", "refused"),
        ("/some", "some true"),
        ("/early", "nil the response has begun"),
        ("/all", "too large"),
        ("/fail", "the application failed"),
    ] {
        uploads().with_client(|stage, client| {
            client.send(head(path, BODY_BYTES).as_bytes());
            client.send(&[b'y'; 5000]);
            let answer = stage.receive_until(&client, end);
            let status = if path == "/refuse" { 403 } else { 200 };
            assert_status(if path == "/fail" { 500 } else { status }, &answer);
        });
    }
    uploads().with_client(|stage, client| {
        let bytes = [head("/all", 100).into_bytes(), vec![b'y'; 100]].concat();
        assert_status(200, &send_all(stage, &client, &bytes, &"y".repeat(100)));
    });
}

#[test]
fn body_is_requested_only_if_the_handler_does_not_refuse_it() {
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        )
    };
    uploads().with_client(|stage, client| {
        client.send(head("/refuse").as_bytes());
        let answer = stage.receive_until(&client, "refused");
        assert_status(403, &answer);
    });
    uploads().with_client(|stage, client| {
        client.send(head("/count").as_bytes());
        let answer = stage.receive_until(&client, "\r\n\r\n");
        assert_status(100, &answer);
        client.send(b"12345");
        assert_status(200, &stage.receive_until(&client, "read 5"));
    });
}

#[test]
fn client_that_leaves_cancels_the_handler() {
    uploads().with_client(|stage, client| {
        client.send(head("/count", 10).as_bytes());
        client.send(b"12345");
        let waiting = |stage: &Stage| stage.harness.worker.leftovers().lua_waiting;
        stage.until(|stage| (waiting(stage) == 1).then_some(()));
        client.finish();
        stage.until(|stage| (waiting(stage) == 0).then_some(()));
        assert_eq!(stage.counters().client_aborts.load(), 1);
    });
}
