//! Heads of responses that wait for a hook: backpressure, bounds and ends, over HTTP/1.1 and HTTP/2 on both sides.
//! In: servers with bodies of any size, clients and servers that leave. Out: what each test's name says.

use tidegate_base::Span;
use tidegate_base::limits::READ_BUFFER_BYTES;
use tidegate_reactor::SimPeer;
use tidegate_wire::http2::Config;

use crate::host::Host;
use crate::speaker::Speaker;
use crate::stage::{Scene, Stage, assert_status, scene};

const LISTENER: &str = "h2c = true\ntimeouts = { head = \"1h\", idle = \"1h\", body = \"1s\" }\n\
    [lua.h]\nscript = \"tests/scripts/holds.lua\"\n\
    [[route]]\npath = [\"/hold\", \"/upper\", \"/late\", \"/fail\", \"/quick\"]\nhooks = \"h\"\nproxy = \"p\"\n\
    response-headers = { set = { x-route = \"{path}\" } }\n";
/// Bytes of a body that fills every buffer.
const BODY_BYTES: usize = 4_000_000;

fn held() -> Scene<'static> {
    scene().listener(LISTENER).pool("timeouts = { body = \"1s\" }")
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

fn response(bytes: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    [head.into_bytes(), vec![b'y'; bytes]].concat()
}

/// Waits until a hook waits.
fn wait_held(stage: &mut Stage) {
    stage.until(|stage| (stage.harness.worker.leftovers().lua_waiting == 1).then_some(()));
}

/// Sends as much of a response as is taken within a second. Returns how much that was.
fn fill(stage: &mut Stage, origin: &SimPeer, bytes: &[u8]) -> usize {
    let mut at = 0;
    for _ in 0..1000 {
        at += origin.send(&bytes[at..]);
        stage.turn();
        stage.net.advance_by(Span::from_millis(1));
    }
    at
}

#[test]
fn client_gets_nothing_and_the_server_waits_until_the_hook_has_decided() {
    for (path, sign) in [("/hold", b'y'), ("/upper", b'Y')] {
        held().run(|stage| {
            let client = stage.dial();
            let origin = stage.forward(&client, &get(path));
            let bytes = response(BODY_BYTES);
            let mut at = fill(stage, &origin, &bytes);
            assert!(at < BODY_BYTES / 2, "{at} bytes were taken");
            assert_eq!(client.receive(), b"");
            let (input, _) = stage.harness.worker.held_bytes_max(&stage.harness.reactor);
            assert!(input <= READ_BUFFER_BYTES, "{input} bytes wait for the hook");
            let mut received = Vec::new();
            stage.until(|_| {
                at += origin.send(&bytes[at..]);
                received.extend(client.receive());
                (received.iter().filter(|byte| **byte == sign).count() >= BODY_BYTES).then_some(())
            });
            let text = String::from_utf8_lossy(&received[..1000]).to_lowercase();
            assert_status(200, &String::from_utf8_lossy(&received[..100]));
            assert!(text.contains(&format!("x-held: {path}\r\n")), "{text}");
            assert!(text.contains(&format!("x-route: {path}\r\n")), "{text}");
            // The server is not blamed for the wait.
            assert_eq!(stage.counters().body_timeouts.load(), 0);
            assert_eq!(stage.counters().response_timeouts.load(), 0);
        });
    }
}

#[test]
fn server_whose_response_is_complete_serves_others_while_the_head_waits() {
    for (path, answer, rest) in [
        ("/hold", "HTTP/1.1 204 No Content\r\n\r\n", "\r\n\r\n"),
        ("/hold", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\r\n\r\n"),
        ("/upper", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\r\n\r\n"),
    ] {
        held().run(|stage| {
            let client = stage.dial();
            let origin = stage.forward(&client, &get(path));
            origin.send(answer.as_bytes());
            wait_held(stage);
            let other = stage.dial();
            other.send(&get("/plain"));
            stage.receive_until(&origin, "GET /plain");
            let plain = stage.respond(&origin, &other);
            assert_status(200, &plain);
            let received = stage.receive_until(&client, rest);
            assert!(received.to_lowercase().contains(&format!("x-held: {path}")), "{received}");
            // The connection of the client serves the next request.
            client.send(&get("/quick"));
            stage.receive_until(&origin, "GET /quick");
            origin.send(&response(3));
            let received = stage.receive_until(&client, "yyy");
            assert!(received.to_lowercase().contains("x-held: /quick"), "{received}");
        });
    }
}

#[test]
fn body_until_the_end_of_the_connection_arrives_after_the_head() {
    for path in ["/hold", "/upper"] {
        for size in [0, 5, 60_000, 300_000] {
            held().run(|stage| {
                let client = stage.dial();
                let origin = stage.forward(&client, &get(path));
                let bytes = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'y'; size]].concat();
                let (mut at, mut received, mut origin) = (0, Vec::new(), Some(origin));
                stage.until(|_| {
                    at += origin.as_ref().map_or(0, |origin| origin.send(&bytes[at..]));
                    if at == bytes.len() {
                        origin.take().into_iter().for_each(SimPeer::close);
                    }
                    received.extend(client.receive());
                    received.ends_with(b"0\r\n\r\n").then_some(())
                });
                let count = received.iter().filter(|byte| byte.eq_ignore_ascii_case(&b'y')).count();
                // One is in the name of the field Via or another one; the body has none but `y`.
                let head =
                    received.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
                let in_head = received[..head].iter();
                let in_head = in_head.filter(|byte| byte.eq_ignore_ascii_case(&b'y')).count();
                assert_eq!(count - in_head, size, "{path}");
            });
        }
    }
}

#[test]
fn hook_that_fails_or_waits_for_too_long_passes_nothing_on() {
    for (path, bytes, status) in
        [("/fail", 5, 500), ("/fail", 0, 500), ("/late", 5, 504), ("/late", 0, 504)]
    {
        held().run(|stage| {
            let client = stage.dial();
            let origin = stage.forward(&client, &get(path));
            origin.send(&response(bytes));
            let received = stage.receive_until(&client, "the application");
            assert_status(status, &received);
            assert!(received.contains(&format!("x-route: {path}\r\n")), "{received}");
            assert!(!received.to_lowercase().contains("x-held"), "{received}");
            let late = u64::from(status == 504);
            assert_eq!(stage.counters().lua_late_hooks.load(), late);
            assert_eq!(stage.harness.worker.leftovers().scripted, 0);
        });
    }
}

#[test]
fn client_that_leaves_cancels_the_hook_and_the_request() {
    for bytes in [5, 0, BODY_BYTES] {
        held().run(|stage| {
            let client = stage.dial();
            let origin = stage.forward(&client, &get("/hold"));
            origin.send(&response(bytes));
            wait_held(stage);
            client.reset();
            stage.until(|stage| (stage.harness.worker.leftovers().scripted == 0).then_some(()));
            assert_eq!(stage.harness.worker.leftovers().lua_waiting, 0);
            // A connection whose response was complete serves the next request.
            assert_eq!(origin.was_reset(), bytes > 0);
        });
    }
}

#[test]
fn server_that_leaves_in_the_middle_of_its_body_is_a_bad_gateway() {
    held().run(|stage| {
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/hold"));
        origin.send(&response(BODY_BYTES)[..1000]);
        wait_held(stage);
        origin.reset();
        let received = stage.receive_until(&client, "\r\n\r\n");
        assert_status(502, &received);
        assert!(received.contains("x-route: /hold\r\n"), "{received}");
        assert_eq!(stage.harness.worker.leftovers().lua_waiting, 0);
    });
}

#[test]
fn rest_of_a_request_follows_while_the_head_of_an_early_response_waits() {
    for bytes in [0, 5] {
        held().run(|stage| {
            let client = stage.dial();
            let post = b"POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc";
            let origin = stage.forward(&client, post);
            origin.send(&response(bytes));
            wait_held(stage);
            client.send(b"def");
            stage.receive_until(&origin, "def");
            let received = stage.receive_until(&client, "\r\n\r\n");
            assert!(received.contains("X-Held: /hold"), "{received}");
            client.send(&get("/plain"));
            let origin = match bytes {
                0 => stage.accept(),
                _ => origin,
            };
            stage.receive_until(&origin, "GET /plain");
        });
    }
}

#[test]
fn heads_of_streams_wait_beside_each_other() {
    held().run(|stage| {
        let mut client = Speaker::new(stage);
        let slow = client.get("/hold");
        client.hello(stage);
        let origin = stage.accept();
        stage.receive_until(&origin, "GET /hold");
        let quick = client.get("/quick");
        client.hello(stage);
        let other = stage.accept();
        stage.receive_until(&other, "GET /quick");
        origin.send(&response(20_000));
        wait_held(stage);
        other.send(&response(4));
        assert_eq!(client.wait(stage, quick).body, b"yyyy");
        let response = client.wait(stage, slow);
        assert_eq!((response.status, response.body.len()), (200, 20_000));
    });
}

#[test]
fn streams_of_servers_wait_without_delaying_others() {
    let pool = "h2c = true\ntimeouts = { body = \"1s\" }";
    for (path, bytes) in [("/hold", 0), ("/hold", 9), ("/upper", 9), ("/hold", 200_000)] {
        scene().listener(LISTENER).pool(pool).run(|stage| {
            let client = stage.dial();
            client.send(&get(path));
            let mut host = Host::accept(stage, Config::server());
            host.wait_call(stage, 1);
            host.head(1, 200, bytes == 0, |_| {});
            let body = vec![b'y'; bytes];
            let mut at = 0;
            if bytes > 0 {
                at += host.data(stage.net.now(), 1, &body, true);
            }
            host.pump(stage.net.now());
            wait_held(stage);
            let other = stage.dial();
            other.send(&get("/quick"));
            host.wait_call(stage, 3);
            host.head(3, 200, true, |_| {});
            host.pump(stage.net.now());
            stage.receive_until(&other, "X-Held: /quick");
            assert!(at < 100_000, "{at} bytes of the body were taken");
            assert_eq!(client.receive(), b"");
            let mut received = Vec::new();
            stage.until(|stage| {
                if at < bytes {
                    at += host.data(stage.net.now(), 1, &body[at..], true);
                }
                host.pump(stage.net.now());
                received.extend(client.receive());
                let count = received.iter().filter(|byte| byte.eq_ignore_ascii_case(&b'y')).count();
                let has_head = received.windows(4).any(|part| part == b"\r\n\r\n");
                (has_head && count >= bytes).then_some(())
            });
            let text = String::from_utf8_lossy(&received[..received.len().min(400)]).into_owned();
            assert!(text.contains(&format!("X-Held: {path}")), "{text}");
        });
    }
}
