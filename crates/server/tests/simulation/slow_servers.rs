//! A server whose responses begin much later than those of the others is ejected for a while (`eject.latency`).
//! In: two servers that take turns, of which one responds late. Out: which of them get requests.

use tidegate_base::{Address, Span};
use tidegate_reactor::{SimPeer, SimServer};

use crate::stage::{Stage, assert_status, scene};

const POOL: &str = "servers = [\"10.0.1.1:8000\", \"10.0.1.2:8000\"]\nbalance = \"round-robin\"\nretries = 0\n\
    eject = { latency = 5, for = \"10s\" }";
/// The responses of the first server begin after this time.
const FAST: Span = Span::from_millis(10);
/// Those of the second one, while it is slow.
const SLOW: Span = Span::from_millis(100);

/// Sends a request over a new connection; the connection to the server serves no other request. The second server responds after
/// `delay`. Returns which server has responded.
fn ask(stage: &mut Stage, second: &SimServer, request: &[u8], delay: Span) -> usize {
    let client = stage.dial();
    client.send(request);
    let (server, origin): (usize, SimPeer) = stage.until(|stage| {
        let first = stage.try_accept().map(|peer| (0, peer));
        first.or_else(|| second.accept().map(|peer| (1, peer)))
    });
    stage.receive_until(&origin, "\r\n\r\n");
    stage.pass(if server == 0 { FAST } else { delay });
    origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    assert_status(200, &stage.receive_until(&client, "ok"));
    server
}

/// How many of `count` requests each server gets.
fn shares(stage: &mut Stage, second: &SimServer, count: usize, delay: Span) -> [usize; 2] {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut shares = [0; 2];
    for _ in 0..count {
        shares[ask(stage, second, GET, delay)] += 1;
    }
    shares
}

fn play(check: impl FnOnce(&mut Stage, &SimServer)) {
    scene().pool(POOL).run(|stage| {
        let address = Address::Tcp(([10, 0, 1, 2], 8000).into());
        let second = stage.net.serve(&address).expect("the address is free");
        check(stage, &second);
    });
}

#[test]
fn slow_server_is_ejected_and_comes_back() {
    play(|stage, second| {
        // 20 requests of each server are needed for a verdict.
        assert_eq!(shares(stage, second, 38, SLOW), [19, 19]);
        assert_eq!(stage.counters().ejections.load(), 0);
        // Servers are compared from time to time.
        let more = (0..60).find(|_| {
            shares(stage, second, 1, SLOW);
            stage.counters().ejections.load() > 0
        });
        assert!(more.is_some(), "the second server is ten times as slow");
        assert_eq!(shares(stage, second, 20, SLOW), [20, 0], "it is avoided");
        stage.pass(Span::from_secs(11));
        let [_, back] = shares(stage, second, 20, FAST);
        assert_eq!(back, 10, "it has recovered, and gets its share again");
        shares(stage, second, 60, FAST);
        assert_eq!(stage.counters().ejections.load(), 1);
    });
}

#[test]
fn server_that_is_not_much_slower_stays() {
    play(|stage, second| {
        // Four times as slow.
        assert_eq!(shares(stage, second, 60, FAST * 4), [30, 30]);
        assert_eq!(stage.counters().ejections.load(), 0);
    });
}

#[test]
fn uploads_do_not_make_a_server_slow() {
    play(|stage, second| {
        const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok";
        for _ in 0..60 {
            ask(stage, second, POST, SLOW);
        }
        assert_eq!(stage.counters().ejections.load(), 0);
    });
}
