//! Requests with the same key stay with one server (`sticky = { by = ... }`).
//! In: clients with a field that names their user; two servers. Out: what each test's name states.

use tidegate_base::{Address, Span};
use tidegate_reactor::SimServer;

use crate::stage::{Stage, assert_status, scene};

const POOL: &str = "servers = [\"10.0.1.1:8000\", \"10.0.1.2:8000\"]\nbalance = \"round-robin\"\n\
    sticky = { by = \"header:x-user\", for = \"10s\", entries-max = 8 }";

fn second_server(stage: &Stage) -> SimServer {
    let address = Address::Tcp(([10, 0, 1, 2], 8000).into());
    stage.net.serve(&address).expect("the address is free")
}

/// Sends a request with these fields over a new connection; returns which server has responded.
fn ask(stage: &mut Stage, second: &SimServer, fields: &str) -> usize {
    let client = stage.dial();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
    let (server, origin) = stage.until(|stage| {
        let first = stage.try_accept().map(|peer| (0, peer));
        first.or_else(|| second.accept().map(|peer| (1, peer)))
    });
    stage.receive_until(&origin, "\r\n\r\n");
    origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    assert_status(200, &stage.receive_until(&client, "ok"));
    server
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
