//! Named cases of a configuration that changes while requests wait for something that belongs to their settings.
//! In: requests about which another server is asked, and one whose route has timeouts of its own. Out: they go where their
//! own settings say, or are refused.

use tidegate_base::{Address, Span};
use tidegate_reactor::{SimPeer, SimServer};

use crate::settings::Changes;
use crate::stage::{GET, OK, Stage, assert_status, scene};

const ROUTE: &str = "[[route]]\nproxy = \"p\"\n";
const ASKING: &str = "[[route]]\nproxy = \"p\"\nauth = { ask = \"q\", path = \"/\" }\n";
const ASKED: &str = "servers = [\"10.0.1.1:8000\"]\nrequest-buffer = \"0B\"\n[pool.q]\nservers = [\"10.0.1.2:8000\"]\n";
/// More changes than a worker keeps settings.
const CHANGES: usize = 20;

fn serve(stage: &Stage, last: u8) -> SimServer {
    let address = Address::Tcp(([10, 0, 1, last], 8000).into());
    stage.net.serve(&address).expect("the address is free")
}

/// Lets the route ask, and sends a request. Returns the connection over which the question has come.
fn ask(stage: &mut Stage, client: &SimPeer, asked: &SimServer) -> (Changes, SimPeer) {
    stage.text = stage.text.replace(ROUTE, ASKING);
    let mut changes = Changes::of(stage);
    changes.apply(stage, &[]).expect("it is valid");
    client.send(GET);
    let asked = stage.until(|_| asked.accept());
    stage.receive_until(&asked, "\r\n\r\n");
    (changes, asked)
}

#[test]
fn pool_of_a_request_that_waits_for_a_verdict_keeps_its_index() {
    scene().pool(ASKED).with_client(|stage, client| {
        let (asked, other) = (serve(stage, 2), serve(stage, 3));
        let (mut changes, asked) = ask(stage, &client, &asked);
        // The pool of the request goes, and others come.
        for name in ["r", "s", "t"] {
            let text = format!(
                "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nproxy = \"{name}\"\n\
                 [pool.{name}]\nservers = [\"10.0.1.3:8000\"]\n"
            );
            changes.apply_text(stage, &text).expect("it is valid");
            stage.pass(Span::from_secs(1));
        }
        asked.send(b"HTTP/1.1 204 No Content\r\n\r\n");
        let origin = stage.accept();
        stage.receive_until(&origin, "\r\n\r\n");
        let answer = stage.respond(&origin, &client);
        assert_status(200, &answer);
        assert!(other.accept().is_none(), "the request went to another pool");
    });
}

#[test]
fn verdict_for_a_request_with_newer_settings_is_not_used() {
    scene().pool(ASKED).with_client(|stage, client| {
        let asked = serve(stage, 2);
        let (mut changes, asked) = ask(stage, &client, &asked);
        let mut waiting = Vec::new();
        for at in 0..CHANGES {
            let other = stage.dial();
            other.send(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
            stage.pass(Span::from_millis(1));
            waiting.push(other);
            let edit = ("[pool.p]\n", format!("[pool.p]\nretries = {}\n", at % 2));
            changes.apply(stage, &[(edit.0, &edit.1)]).expect("it is valid");
        }
        asked.send(b"HTTP/1.1 204 No Content\r\n\r\n");
        let answer = stage.receive_until(&client, "authentication server\n");
        assert_status(503, &answer);
        assert!(stage.try_accept().is_none(), "the request was sent");
    });
}

#[test]
fn timeouts_of_a_route_stay_when_the_request_gets_newer_settings() {
    const LONG: &str = "[[route]]\nproxy = \"p\"\ntimeouts = { body = \"1000s\" }\n";
    const SHORT: &str = "[[route]]\npath = \"/x\"\nproxy = \"p\"\ntimeouts = { body = \"1s\" }\n\
                         [[route]]\nproxy = \"p\"\ntimeouts = { body = \"1s\" }\n";
    scene().run(|stage| {
        stage.text = stage.text.replace(ROUTE, LONG);
        let mut changes = Changes::of(stage);
        changes.apply(stage, &[]).expect("it is valid");
        let mut under_way = Vec::new();
        for at in 0..CHANGES {
            let client = stage.dial();
            let origin = stage.forward(&client, GET);
            under_way.push((client, origin));
            let retries = format!("[pool.p]\nretries = {}\n", at % 2);
            let routes = if at + 1 == CHANGES { SHORT } else { LONG };
            let edits = [("[pool.p]\n", &*retries), (LONG, routes)];
            changes.apply(stage, &edits).expect("it is valid");
        }
        let (client, origin) = &under_way[0];
        let (begin, end) = OK.split_at(OK.len() - 1);
        origin.send(begin);
        stage.pass(Span::from_secs(100));
        origin.send(end);
        let answer = stage.receive_until(client, "ok");
        assert_status(200, &answer);
    });
}
