//! Limits of clients: requests that wait before they are refused.
//! In: clients above their limit, over HTTP/1.1 and HTTP/2. Out: what each test's name states.

use tidegate_base::Span;
use tidegate_reactor::SimPeer;

use crate::speaker::Speaker;
use crate::stage::{HELLO, Stage, assert_status, scene};

const TARPIT: &str = "h2c = true\ntimeouts = { idle = \"1h\" }\n[[route]]\npath = \"/slow\"\n\
    rate = { limit = \"1/24h\", then = \"tarpit\", wait = \"10s\", waiting-max = 2 }\nrespond = { body = \"ok\" }\n\
    response-headers = { set = { x-path = \"{path}\" } }\n";
const SLOW: &[u8] = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";

/// A client that has used up the limit.
fn limited_client(stage: &mut Stage) -> SimPeer {
    let client = stage.dial();
    client.send(SLOW);
    assert_status(200, &stage.receive_until(&client, "ok"));
    client
}

#[test]
fn request_in_a_tarpit_is_refused_after_its_wait() {
    scene().listener(TARPIT).run(|stage| {
        let client = limited_client(stage);
        let began = stage.net.now();
        // The body is not taken meanwhile, and the next request waits behind it.
        let body = "Content-Length: 5\r\n\r\nhello";
        client.send(format!("POST /slow HTTP/1.1\r\nHost: a\r\n{body}").as_bytes());
        client.send(HELLO);
        let head = stage.receive_until(&client, "\r\n\r\nhello");
        assert_status(429, &head);
        assert!(head.contains("Retry-After: 86") && head.contains("x-path: /slow"), "{head}");
        let took = stage.net.now().since(began);
        assert!(took >= Span::from_secs(10) && took < Span::from_secs(11), "{took:?}");
        assert!(head.contains("429 Too Many Requests: too many requests\n"), "{head}");
        assert_eq!(stage.counters().tarpitted_requests.load(), 1);
    });
}

#[test]
fn full_tarpit_refuses_at_once_and_clients_that_leave_free_their_places() {
    scene().listener(TARPIT).run(|stage| {
        let client = limited_client(stage);
        let mut speaker = Speaker::new(stage);
        speaker.hello(stage);
        let stream = speaker.get("/slow");
        speaker.hello(stage);
        client.send(SLOW);
        let began = stage.net.now();
        stage.until(|stage| (stage.counters().tarpitted_requests.load() == 2).then_some(()));
        let third = stage.dial();
        third.send(SLOW);
        assert_status(429, &stage.receive_until(&third, "too many requests\n"));
        assert!(stage.net.now().since(began) < Span::from_secs(1));
        assert_eq!(stage.counters().tarpits_full.load(), 1);

        speaker.reset(stream);
        speaker.hello(stage);
        let began = stage.net.now();
        third.send(SLOW);
        assert_status(429, &stage.receive_until(&third, "too many requests\n"));
        assert!(stage.net.now().since(began) >= Span::from_secs(10));
    });
}

#[test]
fn stream_in_a_tarpit_holds_up_no_other_stream() {
    scene().listener(TARPIT).run(|stage| {
        drop(limited_client(stage));
        let mut speaker = Speaker::new(stage);
        let began = stage.net.now();
        let slow = speaker.get("/slow");
        speaker.hello(stage);
        assert!(stage.net.now().since(began) < Span::from_secs(1));
        let response = speaker.wait(stage, slow);
        assert_eq!(response.status, 429);
        assert!(stage.net.now().since(began) >= Span::from_secs(10));
    });
}

#[test]
fn waiting_requests_leave_most_connections_to_others() {
    let many = TARPIT.replace("waiting-max = 2", "waiting-max = 1000");
    scene().listener(&many).socks_max(16).run(|stage| {
        let first = limited_client(stage);
        let clients: Vec<SimPeer> = (0..8).map(|_| stage.dial()).collect();
        for client in &clients {
            client.send(SLOW);
        }
        stage.until(|stage| (stage.counters().limited_requests.load() == 8).then_some(()));
        assert_eq!(stage.counters().tarpitted_requests.load(), 4);
        assert_eq!(stage.counters().tarpits_full.load(), 4);
        drop(first);
    });
}

#[test]
fn stop_refuses_waiting_requests_at_once() {
    scene().listener(TARPIT).run(|stage| {
        let client = limited_client(stage);
        client.send(SLOW);
        stage.until(|stage| (stage.counters().tarpitted_requests.load() == 1).then_some(()));
        let began = stage.net.now();
        stage.harness.stop(Span::from_secs(30));
        assert_status(429, &stage.receive_until(&client, "too many requests\n"));
        assert!(stage.net.now().since(began) < Span::from_secs(1));
        stage.wait_finished(&client);
    });
}
