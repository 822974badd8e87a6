//! Routes with `bandwidth`: bodies that are transferred at a stated rate, in virtual time.
//! In: bodies in both directions, over HTTP/1.1 and HTTP/2 on both sides. Out: what each test's name says.

use tidegate_base::{Moment, Span};
use tidegate_reactor::SimPeer;
use tidegate_wire::http2::Config;

use crate::host::Host;
use crate::peer::body;
use crate::speaker::Speaker;
use crate::stage::{Stage, assert_status, scene};

/// Bytes of a body that takes ten seconds.
const BODY_BYTES: usize = 1_000_000;
/// Each timeout of these scenes is shorter than a transfer.
const LISTENER: &str = "h2c = true\ntimeouts = { body = \"1s\" }\nlimits = { body-rate-min = \"1MiB\" }\n\
    [[route]]\npath = \"/down\"\nbandwidth = { down = \"100000B/s\" }\nproxy = \"p\"\n\
    [[route]]\npath = \"/after\"\nbandwidth = { down = \"100000B/s\", after = \"500000B\" }\nproxy = \"p\"\n\
    [[route]]\npath = \"/up\"\nbandwidth = { up = \"100000B/s\" }\nproxy = \"p\"\n\
    [[route]]\npath = \"/slow\"\nbandwidth = { down = \"1KiB/s\" }\nproxy = \"p\"\n\
    [[route]]\npath = \"/made\"\nbandwidth = { down = \"100000B/s\" }\nsynthetic = true\n";
const POOL: &str = "timeouts = { body = \"1s\", response-head = \"1s\" }";

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// A response with a body of `bytes` bytes, framed by its length or in chunks.
fn response(bytes: usize, is_chunked: bool) -> Vec<u8> {
    let body = body::make(7, 0, bytes);
    if !is_chunked {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
        return [head.into_bytes(), body].concat();
    }
    let mut response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(999) {
        response.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        response.extend(chunk);
        response.extend(b"\r\n");
    }
    response.extend(b"0\r\n\r\n");
    response
}

/// Sends `bytes` at `from` until `to` has received `count` bytes, head and framing included. Returns them, and how long
/// that took.
fn transfer(
    stage: &mut Stage,
    from: &SimPeer,
    bytes: &[u8],
    to: &SimPeer,
    is_whole: impl Fn(&[u8]) -> bool,
) -> (Vec<u8>, Span) {
    let (began, mut at, mut received) = (stage.net.now(), 0, Vec::new());
    stage.until(|_| {
        at += from.send(&bytes[at..]);
        received.extend(to.receive());
        assert!(!to.was_reset(), "reset after {} bytes", received.len());
        is_whole(&received).then_some(())
    });
    (received, stage.net.now().since(began))
}

/// Whether the bytes end with the end of the body, or with the last chunk.
fn has_end(received: &[u8]) -> bool {
    let end = body::make(7, BODY_BYTES as u64 - 50, 50);
    received.ends_with(&end) || received.ends_with(b"\r\n0\r\n\r\n")
}

/// Checks that a transfer took `seconds`, except for one piece (a sixteenth of a second) and the timers' precision.
fn assert_took(took: Span, seconds: f64) {
    let secs = took.as_secs_f64();
    assert!(secs > seconds - 0.07 && secs < seconds + 0.05, "{secs} s instead of {seconds} s");
}

#[test]
fn response_of_a_server_takes_the_time_that_the_rate_states() {
    for is_chunked in [false, true] {
        scene().listener(LISTENER).pool(POOL).run(|stage| {
            let client = stage.dial();
            let origin = stage.forward(&client, &get("/down"));
            let response = response(BODY_BYTES, is_chunked);
            let (received, took) = transfer(stage, &origin, &response, &client, has_end);
            assert_took(took, 10.0);
            assert!(received.len() >= BODY_BYTES);
            assert!(stage.counters().bandwidth_waits.load() > 100);
            assert_eq!(stage.counters().body_timeouts.load(), 0);
            stage.assert_bounded();
            // The connections on both sides serve the next request.
            client.send(&get("/down"));
            stage.receive_until(&origin, "\r\n\r\n");
            let answer = stage.respond(&origin, &client);
            assert_status(200, &answer);
        });
    }
}

#[test]
fn response_that_ends_with_its_connection_is_limited_and_complete() {
    scene().listener(LISTENER).pool(POOL).run(|stage| {
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/down"));
        let head = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        let bytes = [head, body::make(7, 0, BODY_BYTES)].concat();
        let (mut at, began, mut received) = (0, stage.net.now(), Vec::new());
        stage.until(|_| {
            at += origin.send(&bytes[at..]);
            received.extend(client.receive());
            (at == bytes.len()).then_some(())
        });
        origin.close();
        stage.until(|_| {
            received.extend(client.receive());
            received.ends_with(b"\r\n0\r\n\r\n").then_some(())
        });
        assert_took(stage.net.now().since(began), 10.0);
    });
}

#[test]
fn first_bytes_of_a_response_are_not_limited() {
    scene().listener(LISTENER).pool(POOL).run(|stage| {
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/after"));
        let response = response(BODY_BYTES, false);
        let (_, took) = transfer(stage, &origin, &response, &client, has_end);
        assert_took(took, 5.0);
    });
}

#[test]
fn slowest_rate_and_small_bodies_are_exact() {
    scene().listener(LISTENER).pool(POOL).run(|stage| {
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/slow"));
        let response = response(5 * 1024, false);
        let end = body::make(7, 5000, 120);
        let is_whole = |received: &[u8]| received.ends_with(&end);
        let (_, took) = transfer(stage, &origin, &response, &client, is_whole);
        assert!(took >= Span::from_secs(4) && took < Span::from_millis(4200), "{took:?}");
        let began = stage.net.now();
        client.send(&get("/slow"));
        stage.receive_until(&origin, "\r\n\r\n");
        stage.respond(&origin, &client);
        assert!(stage.net.now().since(began) < Span::from_millis(100));
    });
}

#[test]
fn upload_takes_the_time_that_the_rate_states_although_timeouts_are_shorter() {
    scene().listener(LISTENER).pool(POOL).run(|stage| {
        let client = stage.dial();
        let head = format!("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
        let origin = stage.forward(&client, head.as_bytes());
        let body = body::make(7, 0, BODY_BYTES);
        let (_, took) = transfer(stage, &client, &body, &origin, has_end);
        assert_took(took, 10.0);
        let answer = stage.respond(&origin, &client);
        assert_status(200, &answer);
        assert_eq!(stage.counters().body_timeouts.load(), 0);
        stage.assert_bounded();
    });
}

#[test]
fn limited_stream_holds_up_no_other_stream() {
    scene().listener(LISTENER).pool(POOL).run(|stage| {
        let mut client = Speaker::new(stage);
        let limited = client.get("/made?s=1000000");
        let free = client.get("/synthetic?s=1000000");
        let began = stage.net.now();
        let response = client.wait(stage, free);
        assert_eq!((response.status, response.body.len()), (200, BODY_BYTES));
        assert!(stage.net.now().since(began) < Span::from_secs(1), "the other stream has waited");
        client.hello(stage);
        let response = client.wait(stage, limited);
        assert_eq!((response.status, response.body.len()), (200, BODY_BYTES));
        assert_took(stage.net.now().since(began), 10.0);
    });
}

#[test]
fn streams_of_servers_are_limited_each_by_itself() {
    let pool = format!("h2c = true\n{POOL}");
    scene().listener(LISTENER).pool(&pool).run(|stage| {
        let mut client = Speaker::new(stage);
        let (limited, free) = (client.get("/down"), client.get("/p"));
        client.pump(stage.net.now());
        let mut host = Host::accept(stage, Config::server());
        let lines = [1, 3].map(|number| host.wait_call(stage, number).line);
        let number_of = |path: &str| if lines[0].ends_with(path) { 1 } else { 3 };
        let (began, body) = (stage.net.now(), body::make(7, 0, BODY_BYTES));
        let mut ends: [Option<Moment>; 2] = [None; 2];
        let mut left = [number_of("/down"), number_of("/p")].map(|number| (number, 0));
        for (number, _) in left {
            host.head(number, 200, false, |_| {});
        }
        stage.until(|stage| {
            let now = stage.net.now();
            for (number, at) in &mut left {
                if *at < BODY_BYTES {
                    *at += host.data(now, *number, &body[*at..], true);
                }
            }
            host.pump(now);
            client.pump(now);
            for (end, stream) in ends.iter_mut().zip([limited, free]) {
                let response = &client.responses[&stream];
                assert_eq!(response.reset, None, "after {} bytes", response.body.len());
                if response.has_ended {
                    end.get_or_insert(now);
                }
            }
            ends.iter().all(Option::is_some).then_some(())
        });
        let took = ends.map(|end| end.expect("both have ended").since(began));
        assert_took(took[0], 10.0);
        assert!(took[1] < Span::from_secs(1), "the other stream took {:?}", took[1]);
        assert_eq!(client.responses[&limited].body, body);
        assert_eq!(stage.counters().body_timeouts.load(), 0);
    });
}

#[test]
fn fixed_response_is_sent_at_the_rate_of_its_route() {
    let text = "x".repeat(300_000);
    let route = format!(
        "{LISTENER}[[route]]\npath = \"/fixed\"\nbandwidth = {{ down = \"100000B/s\" }}\n\
         respond = {{ body = \"{text}end\", headers = {{ x-a = \"b\" }} }}\n\
         [[route]]\npath = \"/small\"\nbandwidth = {{ down = \"100000B/s\" }}\nrespond = {{ body = \"end\" }}\n"
    );
    scene().listener(&route).run(|stage| {
        let client = stage.dial();
        let began = stage.net.now();
        client.send(&get("/fixed"));
        // The next request waits behind the response.
        client.send(&get("/small"));
        let answer = stage.receive_until(&client, "end");
        assert_took(stage.net.now().since(began), 3.0);
        assert!(
            answer.contains("x-a: b\r\nContent-Length: 300003\r\nDate: "),
            "{}",
            &answer[..300]
        );
        if !answer.contains("Content-Length: 3\r\n") {
            stage.receive_until(&client, "end");
        }
        client.send(b"HEAD /fixed HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = stage.receive_until(&client, "\r\n\r\n");
        assert!(head.contains("Content-Length: 300003\r\n"), "{head}");
    });
}

#[test]
fn client_that_leaves_a_limited_transfer_releases_its_state() {
    scene().listener(LISTENER).pool(POOL).run(|stage| {
        for path in ["/down", "/made?s=1000000"] {
            let client = stage.dial();
            client.send(&get(path));
            let origin = path.starts_with("/down").then(|| stage.accept());
            let response = response(BODY_BYTES, false);
            let mut at = 0;
            let waits = stage.counters().bandwidth_waits.load();
            stage.until(|stage| {
                at += origin.as_ref().map_or(0, |origin| origin.send(&response[at..]));
                (stage.counters().bandwidth_waits.load() > waits + 3).then_some(())
            });
            assert_eq!(stage.harness.worker.leftovers().paced, 1);
            drop(client);
            stage.until(|stage| (stage.harness.worker.leftovers().paced == 0).then_some(()));
        }
    });
}

#[test]
fn client_that_reads_slower_than_the_rate_gets_the_whole_response() {
    scene().listener(LISTENER).pool(POOL).run(|stage| {
        stage.net.set_window_bytes(20_000);
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/down"));
        let (response, mut at, mut received) = (response(300_000, false), 0, 0);
        let began = stage.net.now();
        while received < response.len() {
            at += origin.send(&response[at..]);
            stage.pass(Span::from_millis(100));
            received += client.receive_some(5000).len();
            assert!(!client.was_reset(), "reset after {received} bytes");
            assert!(stage.net.now().since(began) < Span::from_secs(10), "{received} bytes");
        }
        stage.assert_bounded();
    });
}
