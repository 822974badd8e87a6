//! Bodies of responses that a hook changes: backpressure, bounds and ends, over HTTP/1.1 and HTTP/2 on both sides.
//! In: servers with large bodies, clients that read or do not. Out: what each test's name says.

use tidegate_base::Span;
use tidegate_base::limits::OUTPUT_BYTES_MAX;
use tidegate_reactor::SimPeer;

use crate::speaker::Speaker;
use crate::stage::{Stage, assert_status, scene};

const LISTENER: &str = "h2c = true\ntimeouts = { head = \"1h\", idle = \"1h\", body = \"1s\" }\n\
    [lua.b]\nscript = \"tests/scripts/bodies.lua\"\n\
    [[route]]\npath = [\"/hold\", \"/grow\", \"/pass\", \"/upper\", \"/sleep\", \"/leave\"]\nhooks = \"b\"\nproxy = \"p\"\n";
/// Bytes of a body that fills every buffer.
const BODY_BYTES: usize = 4_000_000;
/// Bytes that wait for a script.
const HELD_BYTES_MAX: usize = 64 * 1024;

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

fn response(bytes: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    [head.into_bytes(), vec![b'y'; bytes]].concat()
}

/// Sends as much of a response as is taken within two seconds. Returns how much that was.
fn fill(stage: &mut Stage, origin: &SimPeer, bytes: &[u8]) -> usize {
    let mut at = 0;
    for _ in 0..2000 {
        at += origin.send(&bytes[at..]);
        stage.turn();
        stage.net.advance_by(Span::from_millis(1));
    }
    at
}

#[test]
fn server_waits_while_a_hook_does_not_read() {
    scene().listener(LISTENER).pool("timeouts = { body = \"1s\" }").run(|stage| {
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/hold"));
        let bytes = response(BODY_BYTES);
        let sent = fill(stage, &origin, &bytes);
        assert!(sent < BODY_BYTES / 2, "{sent} bytes were taken");
        let leftovers = stage.harness.worker.leftovers();
        assert_eq!((leftovers.scripted, leftovers.lua_waiting), (1, 1));
        assert!(stage.harness.worker.hooked_bytes_max() <= HELD_BYTES_MAX);
        // The server is not blamed for the wait, and goes on when the hook reads.
        let (mut at, mut received) = (sent, 0);
        stage.until(|_| {
            at += origin.send(&bytes[at..]);
            received += client.receive().len();
            (received > BODY_BYTES).then_some(())
        });
        assert_eq!(stage.counters().body_timeouts.load(), 0);
        stage.assert_bounded();
    });
}

#[test]
fn server_waits_while_the_client_of_a_hook_does_not_read() {
    let listener = LISTENER.replace("body = \"1s\"", "body = \"1h\"");
    scene().listener(&listener).pool("timeouts = { body = \"1h\" }").run(|stage| {
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/grow"));
        let bytes = response(BODY_BYTES / 10);
        let sent = fill(stage, &origin, &bytes);
        assert!(sent < bytes.len(), "{sent} bytes were taken");
        assert!(stage.harness.worker.hooked_bytes_max() <= HELD_BYTES_MAX);
        let (_, output) = stage.harness.worker.held_bytes_max(&stage.harness.reactor);
        // A hook collects up to 256 KiB, and its last piece is written as a whole.
        assert!(output <= OUTPUT_BYTES_MAX + 512 * 1024, "{output} bytes of output");
        let (mut at, mut received) = (sent, 0);
        stage.until(|_| {
            at += origin.send(&bytes[at..]);
            received += client.receive().len();
            (received > 2 * BODY_BYTES).then_some(())
        });
    });
}

#[test]
fn body_that_a_hook_leaves_unread_arrives_completely() {
    for size in [60_000, 65_536, 70_000, 100_000, 130_000, 400_000] {
        for has_length in [true, false] {
            scene().listener(LISTENER).run(|stage| {
                let client = stage.dial();
                let origin = stage.forward(&client, &get("/leave"));
                let bytes = match has_length {
                    true => response(size),
                    false => [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'y'; size]].concat(),
                };
                let (mut at, mut received) = (0, Vec::new());
                let mut origin = Some(origin);
                stage.until(|_| {
                    at += origin.as_ref().map_or(0, |origin| origin.send(&bytes[at..]));
                    if at == bytes.len() && !has_length {
                        origin.take().into_iter().for_each(SimPeer::close);
                    }
                    received.extend(client.receive());
                    received.ends_with(b"\r\n0\r\n\r\n").then_some(())
                });
                let count = received.iter().filter(|byte| **byte == b'y').count();
                assert_eq!(count, size, "{has_length}");
                assert_eq!(stage.counters().body_timeouts.load(), 0);
            });
        }
    }
}

#[test]
fn client_that_leaves_cancels_the_hook_and_the_request() {
    scene().listener(LISTENER).run(|stage| {
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/hold"));
        fill(stage, &origin, &response(BODY_BYTES));
        client.reset();
        stage.until(|stage| (stage.harness.worker.leftovers().scripted == 0).then_some(()));
        assert_eq!(stage.harness.worker.leftovers().lua_waiting, 0);
        assert!(origin.was_reset());
    });
}

#[test]
fn server_whose_response_is_complete_serves_others_while_the_hook_goes_on() {
    scene().listener(LISTENER).run(|stage| {
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/sleep"));
        origin.send(&response(5));
        let other = stage.dial();
        other.send(&get("/plain"));
        stage.receive_until(&origin, "GET /plain");
        let answer = stage.respond(&origin, &other);
        assert_status(200, &answer);
        let received = stage.receive_until(&client, "0\r\n\r\n");
        assert!(received.ends_with("6\r\nyyyyy!\r\n0\r\n\r\n"), "{received}");
        // The connection of the client serves the next request.
        client.send(&get("/upper"));
        stage.receive_until(&origin, "GET /upper");
        origin.send(&response(3));
        let received = stage.receive_until(&client, "0\r\n\r\n");
        assert!(received.contains("YYY"), "{received}");
    });
}

#[test]
fn client_that_leaves_after_the_servers_part_cancels_the_hook() {
    scene().listener(LISTENER).run(|stage| {
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/hold"));
        origin.send(&response(5));
        stage.until(|stage| (stage.harness.worker.leftovers().lua_waiting == 1).then_some(()));
        client.reset();
        stage.until(|stage| (stage.harness.worker.leftovers().scripted == 0).then_some(()));
        assert_eq!(stage.harness.worker.leftovers().lua_waiting, 0);
        assert!(!origin.was_reset());
    });
}

#[test]
fn hooks_of_streams_run_beside_each_other() {
    scene().listener(LISTENER).run(|stage| {
        let mut client = Speaker::new(stage);
        let slow = client.get("/sleep");
        client.hello(stage);
        let origin = stage.accept();
        stage.receive_until(&origin, "GET /sleep");
        let quick = client.get("/upper");
        client.hello(stage);
        let other = stage.accept();
        stage.receive_until(&other, "GET /upper");
        origin.send(&response(20_000));
        other.send(&response(4));
        assert_eq!(client.wait(stage, quick).body, b"YYYY");
        let body = client.wait(stage, slow).body.clone();
        assert_eq!((body.len(), body.last()), (20_001, Some(&b'!')));
    });
}
