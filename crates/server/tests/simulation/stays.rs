//! Requests with the same key stay with one server (`sticky = { by = ... }`).
//! In: clients with a field that names their user, or with the cookie of a server; two servers. Out: what each test's name says.

use tidegate_base::{Address, Span};
use tidegate_reactor::{SimPeer, SimServer};
use tidegate_wire::http2::Config;

use crate::host::Host;
use crate::stage::{Stage, assert_status, scene};

const POOL: &str = "servers = [\"10.0.1.1:8000\", \"10.0.1.2:8000\"]\nbalance = \"round-robin\"\n\
    sticky = { by = \"header:x-user\", for = \"10s\", entries-max = 8 }";

fn second_server(stage: &Stage) -> SimServer {
    let address = Address::Tcp(([10, 0, 1, 2], 8000).into());
    stage.net.serve(&address).expect("the address is free")
}

/// Sends a request with these fields over a new connection; returns which server has responded.
fn ask(stage: &mut Stage, second: &SimServer, fields: &str) -> usize {
    ask_with(stage, second, fields, "")
}

/// As `ask`; the response has the fields `set`.
fn ask_with(stage: &mut Stage, second: &SimServer, fields: &str, set: &str) -> usize {
    let client = stage.dial();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
    let (server, origin) = accept_either(stage, second);
    stage.receive_until(&origin, "\r\n\r\n");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n{set}\r\nok");
    origin.send(head.as_bytes());
    assert_status(200, &stage.receive_until(&client, "ok"));
    server
}

/// Accepts a connection for a request; returns which server has it.
fn accept_either(stage: &mut Stage, second: &SimServer) -> (usize, SimPeer) {
    stage.until(|stage| {
        let first = stage.try_accept().map(|peer| (0, peer));
        first.or_else(|| second.accept().map(|peer| (1, peer)))
    })
}

#[test]
fn requests_of_a_user_stay_with_a_server() {
    scene().pool(POOL).run(|stage| {
        let second = second_server(stage);
        let (alice, bob) = ("X-User: alice\r\n", "X-User: bob\r\n");
        let of_alice = ask(stage, &second, alice);
        let of_bob = ask(stage, &second, bob);
        assert_ne!(of_alice, of_bob, "the servers take turns");
        for _ in 0..3 {
            assert_eq!(ask(stage, &second, alice), of_alice);
            stage.pass(Span::from_secs(9));
        }
        // Requests without exactly one value do not stay.
        for fields in ["", "X-User: alice\r\nX-User: bob\r\n"] {
            let servers = [ask(stage, &second, fields), ask(stage, &second, fields)];
            assert_ne!(servers[0], servers[1], "{fields:?}");
        }
        assert_eq!(stage.counters().sticky_moves.load(), 0);
    });
}

#[test]
fn full_table_forgets_users_that_were_seen_once() {
    scene().pool(POOL).run(|stage| {
        let second = second_server(stage);
        let alice = "X-User: alice\r\n";
        let of_alice = ask(stage, &second, alice);
        assert_eq!(ask(stage, &second, alice), of_alice);
        for user in 0..20 {
            ask(stage, &second, &format!("X-User: {user}\r\n"));
        }
        assert_eq!(stage.counters().sticky_evictions.load(), 13);
        assert_eq!(ask(stage, &second, alice), of_alice);
        assert_eq!(ask(stage, &second, alice), of_alice);
    });
}

#[test]
fn new_user_stays_with_the_server_that_has_responded() {
    scene().pool(POOL).run(|stage| {
        let second = second_server(stage);
        let client = stage.dial();
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-User: alice\r\n\r\n");
        let (failed, origin) = accept_either(stage, &second);
        stage.receive_until(&origin, "\r\n\r\n");
        origin.reset();
        let (server, origin) = accept_either(stage, &second);
        assert_ne!(server, failed);
        stage.receive_until(&origin, "\r\n\r\n");
        origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        assert_status(200, &stage.receive_until(&client, "ok"));
        for _ in 0..3 {
            assert_eq!(ask(stage, &second, "X-User: alice\r\n"), server);
        }
        assert_eq!(stage.counters().sticky_moves.load(), 0);
    });
}

const SESSIONS: &str = "servers = [\"10.0.1.1:8000\", \"10.0.1.2:8000\"]\nbalance = \"round-robin\"\n\
    sticky = { by = \"cookie:SID\" }";

#[test]
fn session_stays_with_the_server_that_has_set_its_cookie() {
    scene().pool(SESSIONS).run(|stage| {
        let second = second_server(stage);
        let mut makers = [0, 0];
        for user in 0..3 {
            let set = format!("Set-Cookie: SID={user}; Path=/; HttpOnly\r\n");
            let maker = ask_with(stage, &second, "", &set);
            makers[maker] += 1;
            let cookie = format!("Cookie: a=b; SID={user}\r\n");
            for set in ["", &set, ""] {
                assert_eq!(ask_with(stage, &second, &cookie, set), maker, "user {user}");
            }
        }
        assert!(makers.iter().all(|count| *count > 0), "servers take turns: {makers:?}");
        // The login replaces the session by another one at the same server.
        let old = ask_with(stage, &second, "Cookie: SID=0\r\n", "Set-Cookie: SID=new\r\n");
        for _ in 0..2 {
            assert_eq!(ask(stage, &second, "Cookie: SID=new\r\n"), old);
        }
        assert_eq!(stage.counters().sticky_moves.load(), 0);
    });
}

#[test]
fn session_stays_with_the_http2_server_that_has_set_its_cookie() {
    scene().pool(&format!("{SESSIONS}\nh2c = true")).run(|stage| {
        let second = second_server(stage);
        let mut hosts: [Option<Host>; 2] = [None, None];
        let mut calls = [0_u32; 2];
        // The responses have a head only.
        let mut ask = |stage: &mut Stage, request: &str, set: &str| {
            let client = stage.dial();
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{request}\r\n").as_bytes());
            let server = stage.until(|stage| {
                let now = stage.net.now();
                for (at, host) in hosts.iter_mut().enumerate() {
                    if host.is_none() {
                        let peer = if at == 0 { stage.try_accept() } else { second.accept() };
                        *host = peer.map(|peer| Host::new(peer, Config::server(), now));
                    }
                    let Some(host) = host else { continue };
                    host.pump(now);
                    if host.calls.len() > calls[at] as usize {
                        return Some(at);
                    }
                }
                None
            });
            calls[server] += 1;
            let host = hosts[server].as_mut().expect("the server is connected");
            let stream = 2 * calls[server] - 1;
            host.head(stream, 204, true, |fields| {
                if !set.is_empty() {
                    fields.field("set-cookie", set.as_bytes());
                }
            });
            host.pump(stage.net.now());
            assert_status(204, &stage.receive_until(&client, "\r\n\r\n"));
            server
        };
        for user in 0..3 {
            let maker = ask(stage, "", &format!("SID={user}; Path=/"));
            for _ in 0..3 {
                assert_eq!(ask(stage, &format!("Cookie: SID={user}\r\n"), ""), maker, "{user}");
            }
        }
    });
}
