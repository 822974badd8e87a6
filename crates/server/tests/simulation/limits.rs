//! Limits of clients: requests that wait before they are refused; connections and requests of one address.
//! In: clients above their limit, over HTTP/1.1 and HTTP/2. Out: what each test's name says.

use tidegate_base::Span;
use tidegate_reactor::{Peer, SimPeer};
use tidegate_wire::tls::Version;

use crate::secured::Keys;
use crate::speaker::Speaker;
use crate::stage::{GET, HELLO, OK, Stage, assert_status, scene};

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

/// A new connection from an address.
fn dial_from(stage: &Stage, listener: usize, address: &str) -> SimPeer {
    let peer = Peer::Tcp((address.parse::<core::net::IpAddr>().expect("an address"), 999).into());
    stage.net.dial_as(&stage.harness.bound[listener], peer).expect("the worker listens")
}

#[test]
fn connections_of_one_address_are_limited_and_others_are_not() {
    scene().listener("connections-per-address-max = 2").run(|stage| {
        let own: Vec<SimPeer> = (0..2).map(|_| dial_from(stage, 0, "2001:db8::1")).collect();
        for client in &own {
            stage.hello(client);
        }
        // Another address of the same network.
        let more = dial_from(stage, 0, "2001:db8::2");
        stage.wait_reset(&more);
        assert_eq!(stage.counters().connections_over_address_max.load(), 1);
        let other = dial_from(stage, 0, "2001:db8:1::1");
        stage.hello(&other);
        // A place is free as soon as one of the connections has ended.
        drop(own);
        stage.pass(Span::from_millis(10));
        let again = dial_from(stage, 0, "2001:db8::2");
        stage.hello(&again);
        assert_eq!(stage.harness.worker.leftovers().client_places, 2);
    });
}

#[test]
fn proxied_connections_count_for_the_address_in_their_header() {
    let listener = "connections-per-address-max = 1\nproxy-protocol = { from = [\"10.9.0.1\"] }";
    scene().listener(listener).run(|stage| {
        let proxied = |stage: &Stage, client: &str| {
            let peer = dial_from(stage, 0, "10.9.0.1");
            peer.send(format!("PROXY TCP4 {client} 10.0.0.1 5 80\r\n").as_bytes());
            peer.send(HELLO);
            peer
        };
        let first = proxied(stage, "192.0.2.1");
        stage.receive_until(&first, "hello");
        let second = proxied(stage, "192.0.2.2");
        stage.receive_until(&second, "hello");
        let third = proxied(stage, "192.0.2.1");
        stage.until(|_| (third.was_reset() || third.is_finished_by_other()).then_some(()));
        assert_eq!(third.receive(), b"");
        assert_eq!(stage.counters().connections_over_address_max.load(), 1);
    });
}

#[test]
fn connections_above_the_limit_are_reset_before_a_tls_handshake() {
    let keys = Keys::new(1, Version::Tls13);
    let listener =
        "[[listener]]\nname = \"tls\"\nbind = \"10.0.0.1:443\"\nconnections-per-address-max = 1";
    let plan = keys.plan_of_listeners(&[false, true], &[false], &[1]);
    scene().listener(listener).tls(plan).run(|stage| {
        let first = dial_from(stage, 1, "192.0.2.1");
        stage.pass(Span::from_millis(10));
        let second = dial_from(stage, 1, "192.0.2.1");
        stage.wait_reset(&second);
        assert_eq!(stage.harness.worker.leftovers().client_places, 1);
        drop(first);
    });
}

const FULL: &str = "connections-max = 2\n[[listener]]\nname = \"other\"\nbind = \"10.0.0.1:81\"\n[[route]]\npath = \"/p\"\nproxy = \"p\"\n";

#[test]
fn busy_clients_of_a_full_listener_stay_and_other_listeners_serve() {
    scene().listener(FULL).run(|stage| {
        let [first, second] = [(); 2].map(|()| dial_from(stage, 0, "192.0.2.1"));
        let origin = stage.forward(&first, GET);
        let _other_origin = stage.forward(&second, GET);
        for _ in 0..20 {
            let refused = dial_from(stage, 0, "192.0.2.2");
            stage.wait_reset(&refused);
            let victim = dial_from(stage, 1, "192.0.2.3");
            stage.hello(&victim);
        }
        assert_eq!(stage.counters().connections_over_listener_max.load(), 20);
        assert_eq!(stage.counters().evicted_for_listener.load(), 0);
        // Neither client has lost its request, and the end of one connection frees its place.
        stage.respond(&origin, &first);
        second.reset();
        stage.pass(Span::from_millis(10));
        assert_eq!(stage.harness.worker.leftovers().client_places, 1);
        let next = dial_from(stage, 0, "192.0.2.2");
        stage.hello(&next);
        assert_eq!(stage.counters().evicted_for_listener.load(), 0);
        stage.hello(&first);
        assert_eq!(stage.harness.worker.leftovers().client_places, 2);
    });
}

#[test]
fn silent_and_idle_clients_of_a_full_listener_make_room_for_new_ones() {
    scene().listener(FULL).run(|stage| {
        let bystander = dial_from(stage, 1, "192.0.2.9");
        stage.hello(&bystander);
        let silent_elsewhere = dial_from(stage, 1, "192.0.2.9");
        let mut crowd = Vec::new();
        for _ in 0..20 {
            // A client that sends nothing, and one that becomes idle.
            crowd.push(dial_from(stage, 0, "192.0.2.1"));
            stage.pass(Span::from_millis(10));
            let next = dial_from(stage, 0, "192.0.2.2");
            stage.hello(&next);
            stage.pass(Span::from_millis(10));
            crowd.push(next);
        }
        assert_eq!(stage.counters().evicted_for_listener.load(), 38);
        assert_eq!(stage.counters().connections_over_listener_max.load(), 0);
        stage.hello(&bystander);
        drop(silent_elsewhere);
    });
}

#[test]
fn client_that_its_address_excludes_takes_no_place_of_the_listener() {
    let listener = "connections-max = 2\nconnections-per-address-max = 1";
    scene().listener(listener).run(|stage| {
        let own = dial_from(stage, 0, "192.0.2.1");
        stage.hello(&own);
        for _ in 0..5 {
            let more = dial_from(stage, 0, "192.0.2.1");
            stage.wait_reset(&more);
        }
        let other = dial_from(stage, 0, "192.0.2.2");
        stage.hello(&other);
        stage.hello(&own);
        let counters = stage.counters();
        let full =
            counters.connections_over_listener_max.load() + counters.evicted_for_listener.load();
        assert_eq!((counters.connections_over_address_max.load(), full), (5, 0));
    });
}

const CROWDED: &str =
    "h2c = true\n[[route]]\npath = \"/p\"\nconnections-per-address-max = 2\nproxy = \"p\"\n";

#[test]
fn requests_in_progress_of_one_address_are_limited() {
    scene().listener(CROWDED).run(|stage| {
        let [first, second, third] = [(); 3].map(|()| dial_from(stage, 0, "192.0.2.1"));
        let origin = stage.forward(&first, GET);
        let other_origin = stage.forward(&second, GET);
        third.send(GET);
        let refusal = stage.receive_until(&third, "requests from this address are in progress\n");
        assert_status(429, &refusal);
        assert_eq!(stage.counters().requests_over_address_max.load(), 1);
        // Neither other routes nor other addresses are concerned.
        stage.hello(&third);
        let other = dial_from(stage, 0, "192.0.2.2");
        let third_origin = stage.forward(&other, GET);
        stage.respond(&third_origin, &other);
        // The end of one request, and a client that leaves, free a place each.
        origin.send(OK);
        stage.receive_until(&first, "ok");
        drop(second);
        stage.pass(Span::from_millis(10));
        drop(other_origin);
        first.send(GET);
        third.send(GET);
        stage.pass(Span::from_millis(10));
        assert_eq!(stage.harness.worker.leftovers().exchanges, 2);
        assert_eq!(stage.counters().requests_over_address_max.load(), 1);
    });
}

#[test]
fn streams_of_one_connection_count_as_connections() {
    scene().listener(CROWDED).run(|stage| {
        let mut speaker = Speaker::new(stage);
        let streams: Vec<u32> = (0..3).map(|_| speaker.get("/p")).collect();
        let refused = speaker.wait(stage, streams[2]);
        assert_eq!(refused.status, 429);
        speaker.reset(streams[0]);
        speaker.hello(stage);
        speaker.get("/p");
        speaker.hello(stage);
        assert_eq!(stage.harness.worker.leftovers().exchanges, 2);
        assert_eq!(stage.counters().requests_over_address_max.load(), 1);
    });
}
