//! What the admin interface asks a worker while requests are in progress.
//! In: questions. Out: reports; connections and exchanges that end.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use tidegate_base::Span;
use tidegate_server::inspection::{Inspection, Question, Report};
use tidegate_server::malformed::{FaultPlace, MessageSender};
use tidegate_server::sessions::{ConnectionId, Filter, Session, Sessions};
use tidegate_wire::message::FaultKind;

use crate::speaker::Speaker;
use crate::stage::{GET, HELLO, OK, Stage, assert_status, scene};

/// Asks the worker, and turns it until it has reported.
fn ask(stage: &mut Stage, question: Question) -> Report {
    let (inspection, reports): (_, Receiver<(usize, Report)>) = Inspection::new(question, 1);
    stage.harness.worker.begin_inspection(Arc::clone(&inspection));
    stage.until(|_| reports.try_recv().ok()).1
}

const BUSY: Filter = Filter {
    has_idle: false,
    limit: 1000,
    listener: None,
    route: None,
    server: None,
    client: None,
    older: None,
};

fn list(stage: &mut Stage, filter: Filter) -> Sessions {
    match ask(stage, Question::Sessions(filter)) {
        Report::Sessions(found) => found,
        other => panic!("{other:?}"),
    }
}

/// The only busy session.
fn only(stage: &mut Stage) -> Session {
    let mut found = list(stage, BUSY);
    assert_eq!((found.sessions.len(), found.left_out), (1, 0), "{found:?}");
    found.sessions.remove(0)
}

#[test]
fn sessions_show_what_each_connection_waits_for() {
    scene().listener("name = \"web\"").run(|stage| {
        let (idle, client) = (stage.dial(), stage.dial());
        stage.hello(&idle);
        let origin = stage.forward(&client, GET);
        stage.pass(Span::from_secs(2));
        let session = only(stage);
        assert_eq!((session.state, session.protocol, session.requests), ("server", "http1", 1));
        assert_eq!(session.listener, "web");
        let exchange = session.exchange.expect("a request is in progress");
        assert_eq!(exchange.request, ["GET", "a", "/p"]);
        assert_eq!(exchange.server, Some(("p".to_owned(), "10.0.1.1:8000".to_owned())));
        assert!(exchange.age >= Span::from_secs(2) && exchange.status == 0, "{exchange:?}");
        let older = Filter { older: Some(Span::from_secs(60)), ..BUSY };
        assert!(list(stage, older).sessions.is_empty());
        let all = list(stage, Filter { has_idle: true, ..BUSY });
        let states: Vec<_> = all.sessions.iter().map(|session| session.state).collect();
        assert_eq!(states, ["idle", "server"]);
        let up = exchange.server_connection.expect("it has a server");
        let Report::Sessions(found) = ask(stage, Question::Connection(up)) else { panic!("{up}") };
        let server = found.server.expect("the connection to the server");
        assert_eq!((server.protocol, server.exchanges), ("http1", 1));
        assert!(matches!(ask(stage, Question::End(up)), Report::Ended(Err(_))));
        origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok");
        stage.receive_until(&client, "ok");
        let session = only(stage);
        assert_eq!(session.state, "response");
        assert_eq!(session.exchange.map(|exchange| exchange.status), Some(200));
        origin.send(b"ok");
        stage.receive_until(&client, "ok");
        assert!(list(stage, BUSY).sessions.is_empty());
    });
}

#[test]
fn list_is_bounded_and_the_others_are_counted() {
    scene().run(|stage| {
        let clients: Vec<_> = (0..5).map(|_| stage.dial()).collect();
        for client in &clients {
            stage.hello(client);
        }
        let found = list(stage, Filter { has_idle: true, limit: 2, ..BUSY });
        assert_eq!((found.sessions.len(), found.left_out), (2, 3));
    });
}

#[test]
fn ended_connection_is_reset_and_the_others_go_on() {
    scene().run(|stage| {
        let (client, other) = (stage.dial(), stage.dial());
        let origin = stage.forward(&client, GET);
        let second = stage.forward(&other, GET);
        let found = list(stage, BUSY);
        let id = found.sessions[0].id;
        assert!(matches!(ask(stage, Question::End(id)), Report::Ended(Ok(()))));
        stage.wait_reset(&client);
        stage.wait_reset(&origin);
        assert!(stage.respond(&second, &other).contains("200"));
        let again = ask(stage, Question::End(id));
        assert!(matches!(again, Report::Ended(Err("there is no such connection"))), "{again:?}");
    });
}

#[test]
fn ended_stream_is_reset_and_its_connection_goes_on() {
    scene().listener("h2c = true").run(|stage| {
        let mut client = Speaker::new(stage);
        client.hello(stage);
        let stream = client.get("/p");
        client.pump(stage.net.now());
        let origin = stage.until(|stage| {
            client.pump(stage.net.now());
            stage.try_accept()
        });
        let session = only(stage);
        assert_eq!((session.protocol, session.id.stream), ("http2", Some(stream)));
        let wrong = ConnectionId { stream: Some(stream + 2), ..session.id };
        assert!(matches!(ask(stage, Question::End(wrong)), Report::Ended(Err(_))));
        assert!(matches!(ask(stage, Question::End(session.id)), Report::Ended(Ok(()))));
        stage.wait_reset(&origin);
        client.hello(stage);
    });
}

#[test]
fn exchanges_with_a_server_are_ended() {
    scene().pool("retries = 3").run(|stage| {
        let (waiting, served, idle) = (stage.dial(), stage.dial(), stage.dial());
        let first = stage.forward(&waiting, GET);
        let second = stage.forward(&served, GET);
        second.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok");
        stage.receive_until(&served, "ok");
        let third = stage.forward(&idle, GET);
        stage.respond(&third, &idle);
        let other = ask(stage, Question::EndOfServer(0, 1));
        assert!(matches!(other, Report::EndedOfServer(0)), "{other:?}");
        let ended = ask(stage, Question::EndOfServer(0, 0));
        assert!(matches!(ended, Report::EndedOfServer(2)), "{ended:?}");
        let answer = stage.receive_until(&waiting, "of the server");
        assert_status(503, &answer);
        stage.wait_reset(&first);
        stage.until(|_| (served.is_finished_by_other() || served.was_reset()).then_some(()));
        // The idle connection to the server stays.
        idle.send(GET);
        stage.receive_until(&third, "\r\n\r\n");
        assert!(stage.respond(&third, &idle).contains("200"));
    });
}

#[test]
fn malformed_messages_are_kept_with_their_fault() {
    scene().run(|stage| {
        let (client, other) = (stage.dial(), stage.dial());
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nB@d: x\r\n\r\n");
        assert_status(400, &stage.receive_until(&client, "token"));
        let origin = stage.forward(&other, GET);
        origin.send(b"HTTP/1.1 2x0 OK\r\n\r\n");
        assert_status(502, &stage.receive_until(&other, "malformed"));
        let Report::Malformed(kept) = ask(stage, Question::Malformed) else { panic!("malformed") };
        let [of_client, of_server] = &kept[..] else { panic!("{kept:?}") };
        assert_eq!(of_client.place, FaultPlace::Head(FaultKind::FieldNameInvalid));
        assert!(of_client.bytes.starts_with(b"GET / HTTP/1.1\r\n"));
        assert!(matches!(&of_client.sender, MessageSender::Client { .. }));
        assert_eq!(of_server.place, FaultPlace::Head(FaultKind::StatusInvalid));
        assert!(matches!(&of_server.sender, MessageSender::Server { pool, .. } if pool == "p"));
    });
}

#[test]
fn number_and_size_of_kept_messages_are_bounded() {
    scene().run(|stage| {
        for number in 0..40 {
            let client = stage.dial();
            let field = "x".repeat(3000);
            client.send(format!("GET /{number} HTTP/1.1\r\nA: {field}\r\n: b\r\n\r\n").as_bytes());
            assert_status(400, &stage.receive_until(&client, "name"));
        }
        let Report::Malformed(kept) = ask(stage, Question::Malformed) else { panic!("malformed") };
        assert_eq!(kept.len(), 16);
        assert!(kept[15].bytes.starts_with(b"GET /39 ") && kept[15].bytes.len() == 2048);
        assert!(kept[15].total > 3000);
    });
}

#[test]
fn question_that_nobody_waits_for_is_dropped() {
    scene().with_client(|stage, client| {
        let (inspection, reports) = Inspection::new(Question::Malformed, 1);
        drop(reports);
        stage.harness.worker.begin_inspection(inspection);
        client.send(HELLO);
        stage.receive_until(&client, "hello");
        let origin = stage.forward(&client, GET);
        origin.send(OK);
        stage.receive_until(&client, "ok");
    });
}
