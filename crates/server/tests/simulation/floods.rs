//! Shortage of slots: floods of clients that hold connections without using them, and requests for whose server connection
//! no slot is free.
//! In: scenes of `stage.rs` with few slots. Out: what each test's name says.
//! Invariant of all floods: clients that are being served lose no connection and no response.

use tidegate_base::{Address, Span};
use tidegate_reactor::{Faults, SimPeer, SimServer};
use tidegate_wire::tls::Version;

use crate::secured::Keys;
use crate::speaker::Speaker;
use crate::stage::{GET, HELLO, OK, Scene, Stage, assert_status, scene};

const SLOTS: usize = 64;
/// Clients that are served before a flood begins, and continue to send requests.
const KEPT: usize = 20;
/// Steps of a flood. In each step, attackers arrive, each kept client sends a request, and one new client
/// connects.
const STEPS: usize = 40;
/// Attackers that arrive in one step: more than there are slots.
const ATTACKERS: usize = 100;

/// The number of requests after which a client has the longest protection from eviction.
const REQUESTS_FOR_FULL_PROTECTION: usize = 17;

/// A request for a response that is larger than any socket buffer.
const LARGE: &[u8] = b"GET /synthetic?s=8m HTTP/1.1\r\nHost: a\r\n\r\n";

fn is_lost(peer: &SimPeer) -> bool {
    peer.was_reset() || peer.is_finished_by_other()
}

/// Sends a request to the origin for each of `clients` and waits for all responses. Each origin connection
/// stays open in `origins`.
fn ask_origin(stage: &mut Stage, clients: &[&SimPeer], origins: &mut Vec<SimPeer>) {
    for client in clients {
        client.send(GET);
    }
    let mut received = vec![Vec::new(); clients.len()];
    stage.until(|stage| {
        origins.extend(core::iter::from_fn(|| stage.try_accept()));
        for origin in origins.iter() {
            let requests = String::from_utf8_lossy(&origin.receive()).matches("GET /p ").count();
            (0..requests).for_each(|_| assert_eq!(origin.send(OK), OK.len()));
        }
        for (client, bytes) in clients.iter().zip(&mut received) {
            bytes.extend(client.receive());
        }
        received.iter().all(|bytes| bytes.ends_with(b"ok")).then_some(())
    });
    origins.retain(|origin| !is_lost(origin));
    for bytes in &received {
        assert_status(200, &String::from_utf8_lossy(bytes));
    }
}

/// Requests the local response on all of `clients` at once.
fn ask_all(stage: &mut Stage, clients: &[SimPeer]) {
    for client in clients {
        client.send(HELLO);
    }
    let mut received = vec![Vec::new(); clients.len()];
    stage.until(|_| {
        for (client, bytes) in clients.iter().zip(&mut received) {
            bytes.extend(client.receive());
            assert!(!client.was_reset(), "a kept client was closed");
        }
        received.iter().all(|bytes| bytes.ends_with(b"hello")).then_some(())
    });
}

/// Runs a flood. `attack` is called once in each step with the attackers that are still connected, and adds
/// others.
fn flood(scene: Scene<'_>, mut attack: impl FnMut(&mut Stage, &mut Vec<SimPeer>)) {
    scene.socks_max(SLOTS).run(|stage| {
        let kept: Vec<SimPeer> = (0..KEPT).map(|_| stage.dial()).collect();
        let mut origins = Vec::new();
        for _ in 0..REQUESTS_FOR_FULL_PROTECTION {
            ask_all(stage, &kept);
            ask_origin(stage, &kept.iter().collect::<Vec<_>>(), &mut origins);
        }
        let mut attackers = Vec::new();
        for step in 0..STEPS {
            attack(stage, &mut attackers);
            let new = stage.dial();
            new.send(HELLO);
            stage.pass(Span::from_millis(20));
            ask_all(stage, &kept);
            let asking = [&kept[step % KEPT], &kept[(step + 7) % KEPT]];
            ask_origin(stage, &asking, &mut origins);
            assert!(stage.receive_until(&new, "hello").starts_with("HTTP/1.1 200 "));
            attackers.retain(|attacker| !is_lost(attacker));
        }
        assert!(!kept.iter().any(is_lost), "a kept client was closed");
        assert_eq!(stage.counters().answers_5xx.load(), 0);
        assert!(stage.counters().bugs.load() == 0);
    });
}

#[test]
fn silent_clients_do_not_displace_others() {
    flood(scene(), |stage, attackers| {
        attackers.extend((0..ATTACKERS).map(|_| stage.dial()));
        if attackers.len() > ATTACKERS {
            assert!(stage.counters().evicted_silent.load() > 0);
            assert_eq!(stage.counters().evicted_idle.load(), 0);
        }
    });
}

#[test]
fn clients_have_time_for_their_first_byte_among_silent_ones() {
    scene().socks_max(SLOTS).run(|stage| {
        let kept: Vec<SimPeer> = (0..SLOTS - SLOTS / 8 - 4).map(|_| stage.dial()).collect();
        for _ in 0..REQUESTS_FOR_FULL_PROTECTION {
            ask_all(stage, &kept);
        }
        for _ in 0..STEPS {
            let new = stage.dial();
            let attackers: Vec<SimPeer> = (0..ATTACKERS).map(|_| stage.dial()).collect();
            for _ in 0..3 {
                stage.net.advance_by(Span::from_micros(500));
                stage.turn();
            }
            new.send(HELLO);
            assert!(stage.receive_until(&new, "hello").starts_with("HTTP/1.1 200 "));
            stage.pass(Span::from_millis(20));
            // Close the attackers, so that the next new client does not queue behind them.
            attackers.iter().for_each(SimPeer::reset);
            stage.pass(Span::from_millis(20));
            ask_all(stage, &kept);
        }
        assert!(stage.counters().evicted_silent.load() > 0);
    });
}

#[test]
fn requests_in_parts_are_served_among_silent_clients() {
    flood(scene(), |stage, attackers| {
        let new = stage.dial();
        let (begin, end) = HELLO.split_at(HELLO.len() / 2);
        new.send(begin);
        stage.turn();
        for _ in 0..4 {
            attackers.extend((0..ATTACKERS / 4).map(|_| stage.dial()));
            stage.pass(Span::from_millis(5));
        }
        new.send(end);
        assert!(stage.receive_until(&new, "hello").starts_with("HTTP/1.1 200 "));
        assert_eq!(stage.counters().evicted_unfinished.load(), 0);
    });
}

#[test]
fn clients_with_half_a_head_do_not_displace_others() {
    flood(scene(), |stage, attackers| {
        attackers.extend((0..ATTACKERS).map(|_| stage.dial()));
        // Two bytes a step: no head is ever complete.
        for attacker in attackers.iter() {
            attacker.send(b"G");
        }
        stage.turn();
        for attacker in attackers.iter() {
            attacker.send(b"E");
        }
    });
}

#[test]
fn clients_in_a_tls_handshake_do_not_displace_others() {
    let keys = Keys::new(1, Version::Tls13);
    let listener = "[[listener]]\nname = \"tls\"\nbind = \"10.0.0.1:443\"";
    let plan = keys.plan_of_listeners(&[false, true], &[false], &[1]);
    flood(scene().listener(listener).tls(plan), |stage, attackers| {
        for _ in 0..ATTACKERS {
            let attacker = stage.net.dial(&stage.harness.bound[1]).expect("the worker listens");
            // The start of a ClientHello.
            attacker.send(&[22, 3, 1, 2, 0, 1, 0, 1, 252]);
            attackers.push(attacker);
        }
        if attackers.len() > ATTACKERS {
            assert!(stage.counters().evicted_unfinished.load() > 0);
        }
    });
}

#[test]
fn silent_clients_of_a_tls_listener_do_not_displace_others() {
    let keys = Keys::new(1, Version::Tls13);
    // The timeout of a handshake is longer than that of a head.
    let listener =
        "[[listener]]\nname = \"tls\"\nbind = \"10.0.0.1:443\"\ntimeouts = { head = \"1s\" }";
    let plan = keys.plan_of_listeners(&[false, true], &[false], &[1]);
    flood(scene().listener(listener).tls(plan), |stage, attackers| {
        for _ in 0..ATTACKERS {
            attackers.push(stage.net.dial(&stage.harness.bound[1]).expect("the worker listens"));
        }
        if attackers.len() > ATTACKERS {
            assert!(stage.counters().evicted_silent.load() > 0);
        }
    });
}

#[test]
fn clients_with_one_request_do_not_displace_others() {
    flood(scene(), |stage, attackers| {
        for _ in 0..ATTACKERS {
            let attacker = stage.dial();
            attacker.send(HELLO);
            attackers.push(attacker);
        }
        if attackers.len() > ATTACKERS {
            assert!(stage.counters().evicted_idle.load() > 0);
        }
    });
}

#[test]
fn clients_that_ignore_connection_close_do_not_displace_others() {
    flood(scene(), |stage, attackers| {
        for _ in 0..ATTACKERS / 20 {
            let some: Vec<SimPeer> = (0..20).map(|_| stage.dial()).collect();
            for attacker in &some {
                attacker.send(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            }
            stage.pass(Span::from_millis(20));
            // They take their responses, but do not close.
            for attacker in &some {
                assert!(attacker.receive().ends_with(b"hello"));
            }
            attackers.extend(some);
        }
        if attackers.len() > ATTACKERS {
            assert!(stage.counters().evicted_lingering.load() > 0);
        }
    });
}

#[test]
fn clients_that_read_slowly_are_served_and_do_not_displace_others() {
    let mut served = Vec::new();
    let mut begun = 0;
    flood(scene(), |stage, _| {
        while begun < SLOTS / 4 {
            let attacker = stage.dial();
            attacker.send(LARGE);
            served.push(attacker);
            begun += 1;
        }
        stage.pass(Span::from_millis(20));
        for attacker in &served {
            assert!(!is_lost(attacker), "a client was closed in the middle of its response");
            assert!(!attacker.receive_some(1000).is_empty());
        }
    });
}

#[test]
fn new_clients_leave_server_slots_to_returning_clients() {
    scene().socks_max(SLOTS).run(|stage| {
        let kept: Vec<SimPeer> = (0..KEPT).map(|_| stage.dial()).collect();
        let mut origins = Vec::new();
        for _ in 0..REQUESTS_FOR_FULL_PROTECTION {
            ask_all(stage, &kept);
        }
        let attackers: Vec<SimPeer> = (0..ATTACKERS).map(|_| stage.dial()).collect();
        for attacker in &attackers {
            attacker.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for step in 0..100 {
            stage.pass(Span::from_millis(20));
            ask_origin(stage, &[&kept[step % KEPT], &kept[(step + 7) % KEPT]], &mut origins);
            ask_all(stage, &kept);
        }
        assert!(!kept.iter().any(is_lost), "a kept client was closed");
        assert!(!attackers.iter().any(is_lost), "a client was closed during its request");
        let counters = stage.counters();
        assert!(counters.slot_waits.load() > 0 && counters.exchanges_now.load() > 20);
        assert_eq!((counters.answers_5xx.load(), counters.evicted_idle.load()), (0, 0));
        // The requests that wait for a slot end when the queue timeout expires.
        stage.pass(Span::from_secs(10));
        assert!(stage.counters().answers_5xx.load() > 0);
    });
}

#[test]
fn idle_clients_are_closed_for_new_ones() {
    scene().socks_max(SLOTS).run(|stage| {
        let mut clients = Vec::new();
        for _ in 0..SLOTS * 2 {
            let client = stage.dial();
            stage.hello(&client);
            clients.push(client);
            clients.retain(|client| !is_lost(client));
        }
        let client = stage.dial();
        let origin = stage.forward(&client, GET);
        assert_status(200, &stage.respond(&origin, &client));
        assert!(clients.len() > SLOTS * 3 / 4, "most idle clients stay: {}", clients.len());
    });
}

#[test]
fn returning_clients_are_closed_only_when_quiet() {
    scene().socks_max(SLOTS).run(|stage| {
        let clients: Vec<SimPeer> = (0..SLOTS - SLOTS / 8).map(|_| stage.dial()).collect();
        for _ in 0..REQUESTS_FOR_FULL_PROTECTION {
            ask_all(stage, &clients);
        }
        let began = stage.net.now();
        let new = stage.dial();
        stage.hello(&new);
        let waited = stage.net.now().since(began);
        assert!(waited >= Span::from_millis(900) && waited < Span::from_millis(1300), "{waited:?}");
        assert_eq!(clients.iter().filter(|client| is_lost(client)).count(), 1);
        assert_eq!(stage.counters().evicted_idle.load(), 1);
    });
}

#[test]
fn no_client_is_closed_if_no_other_waits() {
    scene().socks_max(4).run(|stage| {
        let clients = [stage.dial(), stage.dial()];
        stage.pass(Span::from_secs(2));
        for client in &clients {
            stage.hello(client);
        }
        stage.pass(Span::from_secs(2));
        assert!(!clients.iter().any(is_lost));
    });
}

#[test]
fn request_without_a_slot_waits_for_a_free_connection() {
    scene().socks_max(3).run(|stage| {
        let (first, second) = (stage.dial(), stage.dial());
        let origin = stage.forward(&first, GET);
        second.send(GET);
        stage.pass(Span::from_millis(50));
        assert_eq!((second.arrived_bytes(), stage.counters().slot_waits.load()), (0, 1));
        assert_status(200, &stage.respond(&origin, &first));
        stage.receive_until(&origin, "\r\n\r\n");
        assert_status(200, &stage.respond(&origin, &second));
        assert!(!is_lost(&first) && stage.counters().answers_5xx.load() == 0);
    });
}

#[test]
fn request_without_a_slot_is_sent_when_one_becomes_free() {
    scene().socks_max(3).run(|stage| {
        let (first, second) = (stage.dial(), stage.dial());
        let origin = stage.forward(&first, GET);
        second.send(GET);
        stage.pass(Span::from_millis(50));
        first.reset();
        let began = stage.net.now();
        let next = stage.accept();
        assert!(stage.net.now().since(began) < Span::from_millis(10), "no timer is needed");
        stage.receive_until(&next, "\r\n\r\n");
        assert_status(200, &stage.respond(&next, &second));
        drop(origin);
    });
}

#[test]
fn request_without_a_slot_closes_a_client_once_it_is_quiet() {
    scene().socks_max(3).run(|stage| {
        let (first, second) = (stage.dial(), stage.dial());
        for _ in 0..REQUESTS_FOR_FULL_PROTECTION {
            stage.hello(&first);
            stage.hello(&second);
        }
        let origin = stage.forward(&first, GET);
        stage.hello(&second);
        let third = stage.dial();
        stage.pass(Span::from_millis(500));
        assert!(!is_lost(&second), "the client sent a request a moment ago");
        third.send(HELLO);
        assert!(stage.receive_until(&third, "hello").starts_with("HTTP/1.1 200 "));
        assert!(is_lost(&second) && !is_lost(&first));
        assert_status(200, &stage.respond(&origin, &first));
    });
}

#[test]
fn request_without_a_slot_is_503_when_the_queue_timeout_expires() {
    for (pool, text) in [
        ("timeouts = { queue = \"1s\" }", "timed out in the request queue\n"),
        ("queue-max = 0", "for another connection\n"),
    ] {
        scene().pool(pool).socks_max(3).run(|stage| {
            let (first, second) = (stage.dial(), stage.dial());
            let origin = stage.forward(&first, GET);
            second.send(GET);
            assert_status(503, &stage.receive_until(&second, text));
            assert_status(200, &stage.respond(&origin, &first));
            let counters = stage.counters();
            assert_eq!((counters.retries.load(), counters.upstream_connects.load()), (0, 1));
        });
    }
}

#[test]
fn clients_that_move_to_another_pool_take_the_slots_of_the_first() {
    const CLIENTS: usize = 30;
    let other = Address::Tcp(([10, 0, 1, 2], 8000).into());
    let listener = "[[route]]\npath = \"/other\"\nproxy = \"q\"";
    let pool = format!("servers = [\"10.0.1.1:8000\"]\n[pool.q]\nservers = [\"{other}\"]");
    scene().listener(listener).pool(&pool).socks_max(SLOTS).run(|stage| {
        let server: SimServer = stage.net.serve(&other).expect("a free address");
        let clients: Vec<SimPeer> = (0..CLIENTS).map(|_| stage.dial()).collect();
        for client in &clients {
            client.send(GET);
        }
        let mut origins = Vec::new();
        stage.until(|stage| {
            origins.extend(core::iter::from_fn(|| stage.try_accept()));
            (origins.len() == CLIENTS).then_some(())
        });
        for origin in &origins {
            stage.receive_until(origin, "\r\n\r\n");
            origin.send(OK);
        }
        for client in &clients {
            stage.receive_until(client, "ok");
        }
        for client in &clients {
            client.send(b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let mut others = Vec::new();
        stage.until(|_| {
            others.extend(core::iter::from_fn(|| server.accept()));
            (others.len() == CLIENTS).then_some(())
        });
        for origin in &others {
            stage.receive_until(origin, "\r\n\r\n");
            origin.send(OK);
        }
        for client in &clients {
            assert_status(200, &stage.receive_until(client, "ok"));
        }
        assert!(!clients.iter().any(is_lost));
        let counters = stage.counters();
        assert!(counters.evicted_upstream.load() >= (2 * CLIENTS + CLIENTS - SLOTS) as u64);
        assert_eq!((counters.answers_5xx.load(), counters.evicted_idle.load()), (0, 0));
        drop(server);
    });
}

#[test]
fn shortage_of_descriptors_closes_silent_clients() {
    let shortage = Faults { connect_shortage_ppm: 500_000, ..Faults::none() };
    scene().run(|stage| {
        let silent: Vec<SimPeer> = (0..50).map(|_| stage.dial()).collect();
        let client = stage.dial();
        stage.hello(&client);
        stage.net.set_faults(shortage);
        for _ in 0..10 {
            client.send(GET);
            let next = stage.until(|stage| match client.arrived_bytes() {
                0 => stage.try_accept().map(Some),
                _ => Some(None),
            });
            let Some(origin) = next else {
                // The simulated shortage was one of ports: closing a client does not free a port.
                assert_status(502, &stage.receive_until(&client, "to the server\n"));
                continue;
            };
            stage.receive_until(&origin, "\r\n\r\n");
            origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            assert_status(200, &stage.receive_until(&client, "ok"));
        }
        let lost = silent.iter().filter(|peer| is_lost(peer)).count();
        assert!(lost > 0 && lost as u64 == stage.counters().evicted_silent.load());
        assert!(!is_lost(&client));
    });
}

#[test]
fn requests_of_one_client_leave_slots_for_other_clients() {
    scene().listener("h2c = true").socks_max(SLOTS).run(|stage| {
        let mut client = Speaker::new(stage);
        let streams: Vec<u32> = (0..ATTACKERS).map(|_| client.get("/p")).collect();
        let mut origins = Vec::new();
        for _ in 0..40 {
            client.pump(stage.net.now());
            stage.pass(Span::from_millis(5));
            origins.extend(core::iter::from_fn(|| stage.try_accept()));
        }
        assert_eq!(origins.len(), SLOTS - SLOTS / 8);
        let others: Vec<SimPeer> = (0..SLOTS / 4).map(|_| stage.dial()).collect();
        for other in &others {
            stage.hello(other);
        }
        stage.until(|stage| {
            client.pump(stage.net.now());
            origins.extend(core::iter::from_fn(|| stage.try_accept()));
            for origin in &origins {
                let requests =
                    String::from_utf8_lossy(&origin.receive()).matches("GET /p ").count();
                (0..requests).for_each(|_| assert_eq!(origin.send(OK), OK.len()));
            }
            streams.iter().all(|stream| client.responses[stream].has_ended).then_some(())
        });
        assert!(streams.iter().all(|stream| client.responses[stream].status == 200));
    });
}

#[test]
fn silent_tunnels_make_way_for_other_clients() {
    let tcp = "[[listener]]\nbind = \"10.0.0.1:81\"\nforward = \"p\"";
    scene().listener(tcp).socks_max(SLOTS).run(|stage| {
        let dial = |stage: &Stage| stage.net.dial(&stage.harness.bound[1]).expect("a listener");
        let talking = dial(stage);
        talking.send(b"a");
        let origin = stage.accept();
        assert_eq!(stage.receive_until(&origin, "a"), "a");
        let silent: Vec<SimPeer> = (0..ATTACKERS).map(|_| dial(stage)).collect();
        let mut origins = Vec::new();
        for _ in 0..100 {
            stage.pass(Span::from_millis(20));
            origins.extend(core::iter::from_fn(|| stage.try_accept()));
        }
        assert!(origins.len() > SLOTS / 3, "{}", origins.len());
        for _ in 0..5 {
            let new = stage.dial();
            stage.hello(&new);
        }
        assert!(stage.counters().evicted_tunnels.load() > 0);
        assert!(!is_lost(&talking) && !is_lost(&origin), "its client has sent a byte");
        drop(silent);
    });
}
