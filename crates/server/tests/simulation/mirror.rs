//! Routes with `mirror`: copies of requests for another pool, and what they must never do to a client.
//! In: requests over HTTP/1.1 and HTTP/2; pools of copies that respond, are dead, stuck or full. Out: what each test's name
//! states.

use tidegate_base::{Address, Span};
use tidegate_reactor::{SimPeer, SimServer};
use tidegate_wire::http2::Config;

use crate::host::Host;
use crate::peer::body;
use crate::speaker::Speaker;
use crate::stage::{OK, Stage, assert_status, scene};

const POOLS: &str = "servers = [\"10.0.1.1:8000\"]\n[pool.next]\nservers = [\"10.0.2.1:8000\"]\n\
    timeouts = { response-head = \"5s\", body = \"5s\" }\n";
const ROUTES: &str = "h2c = true\n\
    [[route]]\npath = \"/all/*\"\nmirror = \"next\"\nproxy = { pool = \"p\", path = \"/in/{rest}\" }\n\
    request-headers = { set = { x-a = \"b\" } }\n\
    [[route]]\npath = \"/some\"\nmirror = { pool = \"next\", share = \"10%\" }\nproxy = \"p\"\n\
    [[route]]\npath = \"/small\"\nmirror = { pool = \"next\", body-max = \"10B\" }\nproxy = \"p\"\n";

/// The server that gets the copies.
fn serve_next(stage: &Stage) -> SimServer {
    let address = Address::Tcp(([10, 0, 2, 1], 8000).into());
    stage.net.serve(&address).expect("the address is free")
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// Waits for the copy of a request; returns its connection and what arrived until `end`.
fn copy(stage: &mut Stage, next: &SimServer, end: &str) -> (SimPeer, String) {
    let peer = stage.until(|_| next.accept());
    let text = stage.receive_until(&peer, end);
    (peer, text)
}

#[test]
fn copy_is_the_request_that_the_server_gets_and_its_response_is_dropped() {
    scene().listener(ROUTES).pool(POOLS).run(|stage| {
        let next = serve_next(stage);
        let client = stage.dial();
        client.send(b"POST /all/x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        let origin = stage.accept();
        let own = stage.receive_until(&origin, "hello");
        let (mirror, copied) = copy(stage, &next, "hello");
        assert_eq!(own, copied, "the copy differs");
        assert!(
            own.starts_with("POST /in/x?y HTTP/1.1\r\n") && own.contains("x-a: b\r\n"),
            "{own}"
        );
        // The client gets its response although the copy has none.
        assert_status(200, &stage.respond(&origin, &client));
        mirror
            .send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad");
        stage.until(|stage| (stage.harness.worker.leftovers().mirrors == 0).then_some(()));
        // Its connection is used again, and the client has got nothing more.
        client.send(&get("/all/z"));
        assert!(stage.receive_until(&mirror, "\r\n\r\n").starts_with("GET /in/z HTTP/1.1\r\n"));
        stage.receive_until(&origin, "\r\n\r\n");
        assert_status(200, &stage.respond(&origin, &client));
        assert_eq!(client.receive(), b"");
        mirror.send(OK);
        stage.until(|stage| (stage.harness.worker.leftovers().mirrors == 0).then_some(()));
        assert_eq!(stage.counters().mirrored_requests.load(), 2);
        assert_eq!(stage.counters().requests.load(), 2, "copies count as requests of clients");
        assert_eq!(stage.counters().mirror_failures.load(), 0);
    });
}

#[test]
fn body_that_arrives_in_pieces_is_copied_when_it_is_complete() {
    scene().listener(ROUTES).pool(POOLS).run(|stage| {
        let next = serve_next(stage);
        let client = stage.dial();
        let origin = stage.forward(
            &client,
            b"POST /all/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        );
        stage.pass(Span::from_millis(500));
        assert!(next.accept().is_none(), "an incomplete request was copied");
        client.send(b"6\r\n world\r\n0\r\n\r\n");
        let (mirror, copied) = copy(stage, &next, "hello world");
        assert!(copied.contains("\r\nContent-Length: 11\r\n"), "{copied}");
        assert_status(200, &stage.respond(&origin, &client));
        drop(mirror);
        stage.until(|stage| (stage.counters().mirror_failures.load() == 1).then_some(()));
    });
}

#[test]
fn large_bodies_upgrades_and_incomplete_requests_are_not_copied() {
    scene().listener(ROUTES).pool(POOLS).run(|stage| {
        let next = serve_next(stage);
        for (request, left_out) in [
            (&b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world"[..], 1),
            (b"POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n", 2),
            (b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", 2),
        ] {
            let client = stage.dial();
            let origin = stage.forward(&client, request);
            assert_status(200, &stage.respond(&origin, &client));
            assert_eq!(stage.counters().mirrors_left_out.load(), left_out);
        }
        let client = stage.dial();
        let origin = stage
            .forward(&client, b"POST /all/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell");
        assert_eq!(stage.harness.worker.leftovers().mirrors, 1);
        drop(client);
        stage.until(|stage| (stage.harness.worker.leftovers().mirrors == 0).then_some(()));
        drop(origin);
        assert!(next.accept().is_none());
        assert_eq!(stage.counters().mirrored_requests.load(), 0);
    });
}

#[test]
fn unreachable_mirror_pool_changes_nothing_for_clients() {
    // Nothing listens there.
    scene().listener(ROUTES).pool(POOLS).with_client(|stage, client| {
        let began = stage.net.now();
        let mut origin = None;
        for _ in 0..20 {
            client.send(&get("/all/x"));
            let origin = origin.get_or_insert_with(|| stage.accept());
            stage.receive_until(origin, "\r\n\r\n");
            assert_status(200, &stage.respond(origin, &client));
        }
        assert!(stage.net.now().since(began) < Span::from_millis(200), "clients have waited");
        let counters = stage.counters();
        let (failed, left_out) =
            (counters.mirror_failures.load(), counters.mirrors_left_out.load());
        assert!(failed > 0, "no copy was tried");
        assert_eq!(failed + left_out, 20);
        assert_eq!(counters.retries.load(), 0);
    });
}

#[test]
fn request_is_copied_only_after_the_asked_server_has_admitted_it() {
    let routes = "[[route]]\nmirror = \"next\"\nproxy = \"p\"\n\
        auth = { ask = \"q\", path = \"/\", copy = [\"x-user\"] }\n";
    let pools = format!("{POOLS}[pool.q]\nservers = [\"10.0.3.1:8000\"]\n");
    scene().listener(routes).pool(&pools).run(|stage| {
        let next = serve_next(stage);
        let address = Address::Tcp(([10, 0, 3, 1], 8000).into());
        let asked = stage.net.serve(&address).expect("the address is free");
        let client = stage.dial();
        client.send(&get("/x"));
        let judge = stage.until(|_| asked.accept());
        stage.receive_until(&judge, "\r\n\r\n");
        stage.pass(Span::from_millis(500));
        assert!(next.accept().is_none(), "a request was copied before the verdict");
        judge.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        assert_status(403, &stage.receive_until(&client, "no"));
        stage.pass(Span::from_millis(500));
        assert!(next.accept().is_none(), "a refused request was copied");
        assert_eq!(stage.harness.worker.leftovers().mirrors, 0);
        let client = stage.dial();
        client.send(&get("/x"));
        let fresh = stage.until(|_| {
            let text = String::from_utf8_lossy(&judge.receive()).into_owned();
            if !text.is_empty() {
                return Some(None);
            }
            asked.accept().map(Some)
        });
        let judge = fresh.unwrap_or(judge);
        judge.send(b"HTTP/1.1 204 No Content\r\nX-User: bob\r\n\r\n");
        let origin = stage.accept();
        let own = stage.receive_until(&origin, "\r\n\r\n");
        let (mirror, copied) = copy(stage, &next, "\r\n\r\n");
        assert_eq!(own, copied, "the copy differs");
        assert!(own.contains("x-user: bob\r\n"), "{own}");
        assert_status(200, &stage.respond(&origin, &client));
        mirror.send(OK);
        stage.until(|stage| (stage.harness.worker.leftovers().mirrors == 0).then_some(()));
    });
}

#[test]
fn stuck_mirror_pool_takes_a_bounded_part_of_the_worker() {
    scene().listener(ROUTES).pool(POOLS).socks_max(64).with_client(|stage, client| {
        let next = serve_next(stage);
        let mut silent: Vec<SimPeer> = Vec::new();
        let mut origin = None;
        let began = stage.net.now();
        for _ in 0..30 {
            client.send(&get("/all/x"));
            let origin = origin.get_or_insert_with(|| stage.accept());
            stage.receive_until(origin, "\r\n\r\n");
            assert_status(200, &stage.respond(origin, &client));
            silent.extend(next.accept());
        }
        assert!(stage.net.now().since(began) < Span::from_millis(200), "clients have waited");
        assert_eq!(stage.harness.worker.leftovers().mirrors, 8, "an eighth of the slots");
        assert_eq!(stage.counters().mirrored_requests.load(), 8);
        assert_eq!(stage.counters().mirrors_left_out.load(), 22);
        // They end after the pool's timeout, and no attempt follows.
        stage.pass(Span::from_secs(7));
        assert_eq!(stage.harness.worker.leftovers().mirrors, 0);
        assert_eq!(stage.counters().mirror_failures.load(), 8);
        assert!(next.accept().is_none());
    });
}

#[test]
fn full_mirror_server_delays_no_client() {
    let pools =
        POOLS.replace("\"10.0.2.1:8000\"", "{ address = \"10.0.2.1:8000\", connections-max = 1 }");
    scene().listener(ROUTES).pool(&pools).with_client(|stage, client| {
        let next = serve_next(stage);
        let origin = stage.forward(&client, &get("/all/x"));
        assert_status(200, &stage.respond(&origin, &client));
        let (mirror, _) = copy(stage, &next, "\r\n\r\n");
        client.send(&get("/all/y"));
        stage.receive_until(&origin, "\r\n\r\n");
        assert_status(200, &stage.respond(&origin, &client));
        assert_eq!(stage.counters().mirrors_left_out.load(), 1);
        mirror.send(OK);
        stage.until(|stage| (stage.harness.worker.leftovers().mirrors == 0).then_some(()));
    });
}

#[test]
fn share_of_the_requests_is_copied() {
    scene().listener(ROUTES).pool(POOLS).with_client(|stage, client| {
        let next = serve_next(stage);
        let (mut origin, mut mirrors): (Option<SimPeer>, Vec<SimPeer>) = (None, Vec::new());
        for _ in 0..300 {
            client.send(&get("/some"));
            let origin = origin.get_or_insert_with(|| stage.accept());
            stage.receive_until(origin, "\r\n\r\n");
            assert_status(200, &stage.respond(origin, &client));
            mirrors.extend(next.accept());
            for mirror in &mirrors {
                if !mirror.receive().is_empty() {
                    mirror.send(OK);
                }
            }
        }
        let copied = stage.counters().mirrored_requests.load();
        assert!((12..60).contains(&copied), "{copied} of 300");
    });
}

#[test]
fn streams_are_copied_to_a_pool_that_speaks_http2() {
    let pools = format!("{POOLS}h2c = true\n");
    scene().listener(ROUTES).pool(&pools).run(|stage| {
        let next = serve_next(stage);
        let mut client = Speaker::new(stage);
        let stream = client.request("POST", "/all/x", false, |_| {});
        let body = body::make(3, 0, 10_000);
        client.data(stage.net.now(), stream, &body, true);
        client.pump(stage.net.now());
        let origin = stage.accept();
        stage.until(|_| (!origin.receive().is_empty()).then_some(()));
        let mut host = stage.until(|stage| {
            client.pump(stage.net.now());
            let peer = next.accept()?;
            Some(Host::new(peer, Config::server(), stage.net.now()))
        });
        let call = host.wait_call(stage, 1);
        assert_eq!((&call.line[..], call.body), ("POST /in/x", body));
        stage.until(|_| {
            drop(origin.receive());
            origin.send(OK);
            Some(())
        });
        let response = client.wait(stage, stream);
        assert_eq!((response.status, &response.body[..]), (200, &b"ok"[..]));
        host.respond(stage.net.now(), 1, b"dropped");
        host.pump(stage.net.now());
        stage.until(|stage| (stage.harness.worker.leftovers().mirrors == 0).then_some(()));
        assert_eq!(stage.counters().mirror_failures.load(), 0);
    });
}

#[test]
fn stop_ends_copies_that_are_on_their_way() {
    scene().listener(ROUTES).pool(POOLS).run(|stage| {
        let next = serve_next(stage);
        let client = stage.dial();
        let origin = stage.forward(&client, &get("/all/x"));
        let (mirror, _) = copy(stage, &next, "\r\n\r\n");
        assert_status(200, &stage.respond(&origin, &client));
        stage.stop();
        stage.wait_reset(&mirror);
        drop((client, origin));
        stage.wait_stopped();
        assert_eq!(stage.harness.worker.leftovers().mirrors, 0);
    });
}
