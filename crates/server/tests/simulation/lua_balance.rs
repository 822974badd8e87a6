//! Hooks that choose the servers of requests, and that count responses as failures.
//! In: pools of three servers, scripts. Out: what each test's name says.

use tidegate_base::{Address, Span};
use tidegate_reactor::{SimPeer, SimServer};

use crate::stage::{Scene, Stage, assert_status, scene};

const LISTENER: &str = "[lua.b]\nscript = \"tests/scripts/balance.lua\"\ntime-max = \"50ms\"\n\
    [[route]]\npath = [\"/to/*\", \"/later/*\", \"/next/*\", \"/error\", \"/loop\", \"/none\"]\nhooks = \"b\"\nproxy = \"p\"\n";
const SERVERS: &str = "servers = [\"10.0.1.1:8000\", \"10.0.2.2:8000\", \"10.0.2.3:8000\"]\nbalance = \"round-robin\"\n";

fn chosen(pool: &str) -> (String, Scene<'static>) {
    (format!("{SERVERS}{pool}"), scene().listener(LISTENER))
}

/// The servers of the pool besides the origin of the stage.
fn others(stage: &Stage) -> [SimServer; 2] {
    [2, 3].map(|last| {
        let address = Address::Tcp(([10, 0, 2, last], 8000).into());
        stage.net.serve(&address).expect("the address is free")
    })
}

/// Sends a request on a new connection. Returns the client, the number of the server that gets it, and the connection there.
fn send(stage: &mut Stage, others: &[SimServer; 2], path: &str) -> (SimPeer, usize, SimPeer) {
    let client = stage.dial();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    let (number, server) = stage.until(|stage| {
        let first = stage.try_accept().map(|peer| (1, peer));
        first.or_else(|| {
            others.iter().zip(2..).find_map(|(server, at)| Some((at, server.accept()?)))
        })
    });
    stage.receive_until(&server, &format!("GET {path} "));
    (client, number, server)
}

const CLOSING: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
const BROKEN: &[u8] =
    b"HTTP/1.1 200 OK\r\nX-Broken: 1\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

/// Sends a request and its response. Returns the number of the server.
fn serve(stage: &mut Stage, others: &[SimServer; 2], path: &str, response: &[u8]) -> usize {
    let (client, number, server) = send(stage, others, path);
    server.send(response);
    let answer = stage.receive_until(&client, "ok");
    assert_status(200, &answer);
    number
}

#[test]
fn request_goes_to_the_server_that_the_hook_chooses() {
    let (pool, scene) = chosen("");
    scene.pool(&pool).run(|stage| {
        let others = others(stage);
        for (path, number) in
            [("/to/3", 3), ("/to/3", 3), ("/to/1", 1), ("/later/2", 2), ("/later/2", 2)]
        {
            assert_eq!(serve(stage, &others, path, CLOSING), number, "{path}");
        }
        assert_eq!(stage.counters().lua_failures.load(), 0);
    });
}

#[test]
fn pool_chooses_if_the_hook_does_not() {
    let (pool, scene) = chosen("");
    scene.pool(&pool).run(|stage| {
        let others = others(stage);
        let mut numbers = Vec::new();
        for path in ["/to/x", "/error", "/none", "/loop", "/to/9", "/to/x"] {
            numbers.push(serve(stage, &others, path, CLOSING));
        }
        // All servers take turns.
        assert_eq!(numbers[..3].iter().sum::<usize>(), 6, "{numbers:?}");
        assert_eq!(numbers[3..].iter().sum::<usize>(), 6, "{numbers:?}");
        assert_eq!(stage.counters().lua_failures.load(), 4);
        assert_eq!(stage.counters().lua_excesses.load(), 1);
    });
}

#[test]
fn hook_chooses_again_for_each_attempt() {
    let (pool, scene) = chosen("retries = 2\n");
    scene.pool(&pool).run(|stage| {
        let others = others(stage);
        let (client, number, server) = send(stage, &others, "/next/2");
        assert_eq!(number, 2);
        server.reset();
        let next = stage.until(|_| others[1].accept());
        stage.receive_until(&next, "GET /next/2 ");
        next.send(CLOSING);
        let answer = stage.receive_until(&client, "ok");
        assert_status(200, &answer);
    });
}

#[test]
fn server_at_its_limit_is_not_chosen() {
    let (_, scene) = chosen("");
    let pool = SERVERS
        .replace("\"10.0.2.3:8000\"", "{ address = \"10.0.2.3:8000\", connections-max = 1 }");
    scene.pool(&pool).run(|stage| {
        let others = others(stage);
        let (first, number, server) = send(stage, &others, "/to/3");
        assert_eq!(number, 3);
        let (second, number, other) = send(stage, &others, "/to/3");
        assert_ne!(number, 3);
        for (client, server) in [(first, server), (second, other)] {
            server.send(CLOSING);
            let answer = stage.receive_until(&client, "ok");
            assert_status(200, &answer);
        }
    });
}

#[test]
fn response_that_the_hook_marks_counts_as_a_failure() {
    let eject = "eject = { failures = 3, for = \"10s\" }\n";
    let (pool, scene) = chosen(eject);
    scene.pool(&pool).run(|stage| {
        let others = others(stage);
        for _ in 0..3 {
            assert_eq!(stage.counters().ejections.load(), 0);
            assert_eq!(serve(stage, &others, "/to/2", BROKEN), 2);
        }
        assert_eq!(stage.counters().ejections.load(), 1);
        stage.pass(Span::from_millis(10));
    });
}
