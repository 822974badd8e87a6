//! Named cases of routes that ask another server before they answer by themselves.
//! In: asked servers that are slow or have no free place. Out: what each test's name says; no place of the asked server is lost.

use tidegate_base::{Address, Span};
use tidegate_reactor::{SimPeer, SimServer};

use crate::speaker::Speaker;
use crate::stage::{Stage, assert_status, scene};

/// Deadlines of clients that pass while the asked server thinks.
const ROUTE: &str = "h2c = true\ntimeouts = { head = \"1s\", idle = \"2s\" }\n[[route]]\npath = \"/asked\"\n\
    auth = { ask = \"q\", path = \"/\" }\nrespond = { body = \"admitted\" }\n";
const POOL: &str = "servers = [\"10.0.1.1:8000\"]\n[pool.q]\nservers = [{ address = \"10.0.1.2:8000\", connections-max = 1 }]\n\
    timeouts = { queue = \"1s\" }\n";
const ASKED: &[u8] = b"GET /asked HTTP/1.1\r\nHost: a\r\n\r\n";
const GRANTED: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

fn serve(stage: &Stage) -> SimServer {
    let address = Address::Tcp(([10, 0, 1, 2], 8000).into());
    stage.net.serve(&address).expect("the address is free")
}

/// The next question to the asked server, over a new connection or over `judge`.
fn next_question(stage: &mut Stage, asked: &SimServer, judge: &mut Option<SimPeer>) {
    let mut text = String::new();
    stage.until(|_| {
        if let Some(peer) = asked.accept() {
            *judge = Some(peer);
            text.clear();
        }
        let judge = judge.as_ref()?;
        text.push_str(&String::from_utf8_lossy(&judge.receive()));
        text.contains("\r\n\r\n").then_some(())
    });
}

#[test]
fn asked_server_may_take_longer_than_the_client_may_take_for_a_head() {
    scene().listener(ROUTE).pool(POOL).run(|stage| {
        let (asked, mut judge) = (serve(stage), None);
        let client = stage.dial();
        // The second request has the deadline of an idle connection.
        for _ in 0..2 {
            client.send(ASKED);
            next_question(stage, &asked, &mut judge);
            stage.pass(Span::from_secs(5));
            assert!(client.receive().is_empty(), "a response before the verdict");
            judge.as_ref().expect("a question").send(GRANTED);
            assert_status(200, &stage.receive_until(&client, "admitted"));
        }
        assert_eq!(stage.counters().bugs.load(), 0);
    });
}

#[test]
fn question_that_waited_for_a_place_keeps_it_after_the_end_of_the_wait() {
    scene().listener(ROUTE).pool(POOL).run(|stage| {
        let (asked, mut judge) = (serve(stage), None);
        let (first, second) = (stage.dial(), stage.dial());
        first.send(ASKED);
        next_question(stage, &asked, &mut judge);
        second.send(ASKED);
        stage.pass(Span::from_millis(600));
        judge.as_ref().expect("a question").send(GRANTED);
        assert_status(200, &stage.receive_until(&first, "admitted"));
        next_question(stage, &asked, &mut judge);
        // The time that the second request could have waited passes while the server has it.
        stage.pass(Span::from_millis(600));
        assert!(second.receive().is_empty());
        judge.as_ref().expect("a question").send(GRANTED);
        assert_status(200, &stage.receive_until(&second, "admitted"));
        // The place is free again.
        let mut client = Speaker::new(stage);
        let stream = client.get("/asked");
        client.pump(stage.net.now());
        next_question(stage, &asked, &mut judge);
        judge.as_ref().expect("a question").send(GRANTED);
        assert_eq!(client.wait(stage, stream).body, b"admitted");
    });
}

#[test]
fn question_of_a_stream_that_waited_for_a_place_keeps_it() {
    scene().listener(ROUTE).pool(POOL).run(|stage| {
        let (asked, mut judge) = (serve(stage), None);
        let mut client = Speaker::new(stage);
        let streams = [client.get("/asked"), client.get("/asked")];
        client.pump(stage.net.now());
        next_question(stage, &asked, &mut judge);
        stage.pass(Span::from_millis(600));
        judge.as_ref().expect("a question").send(GRANTED);
        assert_eq!(client.wait(stage, streams[0]).body, b"admitted");
        next_question(stage, &asked, &mut judge);
        stage.pass(Span::from_millis(600));
        judge.as_ref().expect("a question").send(GRANTED);
        assert_eq!(client.wait(stage, streams[1]).body, b"admitted");
    });
}

/// A server that has refused a connection is avoided for a second: a request that waits for another one uses it then.
#[test]
fn request_that_waits_uses_a_server_that_is_no_longer_avoided() {
    let pool = "servers = [{ address = \"10.0.1.1:8000\", connections-max = 1 }, \"10.0.1.2:8000\"]\n\
        timeouts = { queue = \"10s\" }\n";
    scene().pool(pool).run(|stage| {
        let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let clients: Vec<SimPeer> = (0..4).map(|_| stage.dial()).collect();
        // The second server refuses, so one request is with the first server and the others wait.
        clients.iter().for_each(|client| {
            client.send(get);
            stage.pass(Span::from_millis(10));
        });
        let first = stage.accept();
        stage.receive_until(&first, "\r\n\r\n");
        let second = serve(stage);
        let begun = stage.net.now();
        let other = stage.until(|_| second.accept());
        assert!(stage.net.now().since(begun) < Span::from_secs(3));
        stage.receive_until(&other, "\r\n\r\n");
        drop((first, other));
    });
}
