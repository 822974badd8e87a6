//! Named cases of HTTP/2 on server connections on the simulator, and servers that attack.
//! In: servers that speak HTTP/2. Out: what each test's name says.
//! Limits: `STEPS_MAX` steps of an attack.
//! Invariant of all attacks: the request fails with 502, the connection ends, and the next request succeeds.

use tidegate_base::{Address, Span};
use tidegate_wire::http2::frame::{
    END_HEADERS, END_STREAM, FrameKind, encode_goaway, encode_ping, encode_reset, encode_settings,
    encode_window_update,
};
use tidegate_wire::http2::{Config, ErrorCode, FieldWriter};
use tidegate_wire::tls::Version;

use crate::host::Host;
use crate::line::Line;
use crate::secured::Keys;
use crate::speaker::{Speaker, encode_frame, encode_headers};
use crate::stage::{OK, Scene, Stage, assert_status, scene};

/// Steps of an attack until the worker must have ended it.
const STEPS_MAX: usize = 200;

const POST: &[u8] = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";

fn h2c<'a>() -> Scene<'a> {
    scene().listener("h2c = true").pool("h2c = true")
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// Accepts a connection and waits for the first request on it.
fn accept_call(stage: &mut Stage) -> Host {
    let mut host = Host::accept(stage, Config::server());
    host.wait_call(stage, 1);
    host
}

/// A server that allows `streams_max` streams at once.
fn narrow(streams_max: u32) -> Config {
    Config { streams_max, ..Config::server() }
}

#[test]
fn exchange_of_an_http1_client_is_converted_both_ways() {
    h2c().pool("h2c = true\ntrailers = false").with_client(|stage, client| {
        client.send(
            b"POST /p?q HTTP/1.1\r\nHost: a:1\r\nTE: trailers\r\nConnection: TE, x-drop\r\nX-Drop: 1\r\n\
              X-Keep: Yes\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n",
        );
        let mut host = Host::accept(stage, Config::server());
        let call = host.wait_call(stage, 1);
        assert_eq!((&call.line[..], &call.authority[..]), ("POST /p?q", "a:1"));
        assert_eq!((&call.body[..], call.trailers), (&b"abc"[..], vec![]), "Connection named a field");
        let fields = call.fields.join("\n");
        assert!(fields.contains("te: trailers") && fields.contains("x-keep: Yes"), "{fields}");
        for name in ["connection", "x-drop", "transfer-encoding", "host"] {
            assert!(!call.fields.iter().any(|line| line.starts_with(&format!("{name}:"))), "{fields}");
        }
        host.head(1, 103, false, |fields| fields.field("link", b"</x>"));
        host.head(1, 200, false, |fields| fields.field("x-answer", b"1"));
        host.data(stage.net.now(), 1, b"hello", false);
        host.connection.send_trailers(&mut host.out, 1, |fields| fields.field("x-end", b"2"));
        host.pump(stage.net.now());
        let answer = stage.receive_until(&client, "x-end: 2\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 103 "), "{answer}");
        assert!(answer.contains("HTTP/1.1 200 OK\r\nx-answer: 1\r\n"), "{answer}");
        assert!(answer.contains("\r\nVia: 2.0 tidegate\r\n"), "{answer}");
        assert!(answer.contains("5\r\nhello\r\n0\r\nx-end: 2\r\n\r\n"), "{answer}");
    });
}

#[test]
fn trailers_of_requests_reach_servers() {
    h2c().run(|stage| {
        let mut client = Speaker::new(stage);
        let stream = client.request("POST", "/p", false, |fields| fields.field("te", b"trailers"));
        client.data(stage.net.now(), stream, b"abc", false);
        client.trailers(stream, "x-sum", "1");
        client.pump(stage.net.now());
        let mut host = Host::accept(stage, Config::server());
        let call = host.until(stage, |host| {
            client.pump(host.now());
            host.calls.get(&1).filter(|call| call.has_ended).cloned()
        });
        assert_eq!((&call.body[..], call.trailers), (&b"abc"[..], vec!["x-sum: 1".to_owned()]));
        // Trailers only: the head ends the response.
        host.head(1, 200, true, |fields| fields.field("grpc-status", b"5"));
        host.pump(stage.net.now());
        let response = client.wait(stage, stream);
        assert_eq!((response.status, response.body.len(), response.reset), (200, 0, None));
    });
}

#[test]
fn stalled_client_of_a_shared_connection_holds_only_its_own_window() {
    let listener = "h2c = true\ntimeouts = { body = \"1h\" }\n";
    scene().listener(listener).pool("h2c = true\ntimeouts = { body = \"1h\" }").run(|stage| {
        let mut slow = Speaker::new(stage);
        let stalled = slow.get("/slow");
        slow.unread.push(stalled);
        slow.pump(stage.net.now());
        let mut host = accept_call(stage);
        host.head(1, 200, false, |_| {});
        let piece = [b'x'; 64 * 1024];
        let mut sent = 0;
        for _ in 0..100 {
            sent += host.data(stage.net.now(), 1, &piece, false);
            host.pump(stage.net.now());
            slow.pump(stage.net.now());
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        assert!(sent <= 3 * 65_535, "{sent} bytes for a client that takes one window");
        let mut fast = Speaker::new(stage);
        for at in 1..100 {
            let stream = fast.get("/fast");
            let number = 2 * at + 1;
            host.until(stage, |host| {
                fast.pump(host.now());
                host.calls.get(&number).map(|_| ())
            });
            host.respond(stage.net.now(), number, b"quick");
            let response = host.until(stage, |host| {
                fast.pump(host.now());
                fast.responses.get(&stream).filter(|response| response.has_ended).cloned()
            });
            assert_eq!((response.status, &response.body[..]), (200, &b"quick"[..]));
        }
        assert_eq!(slow.responses[&stalled].body.len(), 65_535);
        assert!(stage.try_accept().is_none(), "all of them share a connection");
        assert!(stage.harness.worker.stream_bytes_held() <= 3 * 65_535);
        // The rest of the response follows when the client reads.
        slow.unread.clear();
        slow.credit(stalled, 10_000_000);
        host.until(stage, |host| {
            slow.pump(host.now());
            (slow.responses[&stalled].body.len() == sent).then_some(())
        });
        slow.reset(stalled);
        host.until(stage, |host| {
            slow.pump(host.now());
            host.calls[&1].reset
        });
    });
}

#[test]
fn one_request_is_sent_before_the_settings_and_the_limit_is_kept() {
    let pool = "h2c = true\nhttp2 = { connections-max = 2 }";
    scene().pool(pool).run(|stage| {
        let clients: Vec<_> = (0..6).map(|_| stage.dial()).collect();
        for client in &clients {
            client.send(&get("/p"));
        }
        let first = stage.accept();
        stage.pass(Span::from_millis(50));
        // The server's SETTINGS are still to come.
        let mut first = Host::new(first, narrow(2), stage.net.now());
        first.is_mute = true;
        first.pump(stage.net.now());
        assert_eq!(first.calls.len(), 1, "the others wait for the server's limit");
        first.is_mute = false;
        first.until(stage, |first| (first.calls.len() == 2).then_some(()));
        let mut second = Host::accept(stage, narrow(2));
        second.until(stage, |second| {
            first.pump(second.now());
            (second.calls.len() == 2).then_some(())
        });
        stage.pass(Span::from_millis(50));
        first.pump(stage.net.now());
        second.pump(stage.net.now());
        assert_eq!((first.calls.len(), second.calls.len()), (2, 2), "two requests wait");
        assert!(stage.try_accept().is_none(), "no third connection");
        first.respond(stage.net.now(), 1, b"ok");
        first.until(stage, |first| (first.calls.len() == 3).then_some(()));
        first.respond(stage.net.now(), 3, b"ok");
        first.until(stage, |first| (first.calls.len() == 4).then_some(()));
        for stream in [5, 7] {
            first.respond(stage.net.now(), stream, b"ok");
        }
        for stream in [1, 3] {
            second.respond(stage.net.now(), stream, b"ok");
        }
        first.pump(stage.net.now());
        second.pump(stage.net.now());
        for client in &clients {
            assert_status(200, &stage.receive_until(client, "ok"));
        }
    });
}

#[test]
fn refused_request_is_sent_again_whatever_its_method() {
    h2c().pool("h2c = true\nretry-pause = \"10ms\"").with_client(|stage, client| {
        client.send(POST);
        let mut host = accept_call(stage);
        host.connection.reset(&mut host.out, 1, ErrorCode::REFUSED_STREAM);
        let call = host.wait_call(stage, 3);
        assert_eq!(call.body, b"abc");
        host.respond(stage.net.now(), 3, b"ok");
        host.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&client, "ok"));
        // A server that always refuses.
        client.send(POST);
        let answer = host.until(stage, |host| {
            let open: Vec<u32> = host.connection.streams().map(|(id, _)| id).collect();
            for stream in open {
                host.connection.reset(&mut host.out, stream, ErrorCode::REFUSED_STREAM);
            }
            let bytes = client.receive();
            (!bytes.is_empty()).then_some(bytes)
        });
        assert_status(503, &String::from_utf8_lossy(&answer));
    });
}

#[test]
fn goaway_moves_what_it_excludes_and_lets_the_rest_finish() {
    h2c().run(|stage| {
        let clients = [stage.dial(), stage.dial()];
        clients[0].send(&get("/first"));
        let mut host = accept_call(stage);
        clients[1].send(POST);
        host.wait_call(stage, 3);
        encode_goaway(&mut host.out, 1, ErrorCode::NO_ERROR, "");
        host.pump(stage.net.now());
        let mut other = accept_call(stage);
        assert_eq!(other.calls[&1].body, b"abc");
        other.respond(stage.net.now(), 1, b"moved");
        other.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&clients[1], "moved"));
        host.respond(stage.net.now(), 1, b"stayed");
        host.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&clients[0], "stayed"));
        // The connection is no longer needed.
        host.until(stage, |host| host.is_over().then_some(()));
    });
}

#[test]
fn lost_connection_fails_each_request_as_its_kind_requires() {
    h2c().run(|stage| {
        let clients = [stage.dial(), stage.dial(), stage.dial()];
        clients[0].send(&get("/idempotent"));
        let mut host = accept_call(stage);
        clients[1].send(POST);
        host.wait_call(stage, 3);
        clients[2].send(&get("/begun"));
        host.wait_call(stage, 5);
        host.head(5, 200, false, |fields| fields.field("content-length", b"10"));
        host.data(stage.net.now(), 5, b"abc", false);
        host.pump(stage.net.now());
        stage.receive_until(&clients[2], "abc");
        drop(host);
        let mut other = accept_call(stage);
        assert_eq!(other.calls[&1].line, "GET /idempotent");
        other.respond(stage.net.now(), 1, b"again");
        other.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&clients[0], "again"));
        assert_status(502, &stage.receive_until(&clients[1], "without sending"));
        stage.wait_finished(&clients[2]);
    });
}

#[test]
fn cancellation_is_passed_on_both_ways() {
    h2c().run(|stage| {
        let mut client = Speaker::new(stage);
        let streams = [client.get("/a"), client.get("/b"), client.get("/c")];
        client.pump(stage.net.now());
        let mut host = Host::accept(stage, Config::server());
        host.until(stage, |host| {
            client.pump(host.now());
            (host.calls.len() == 3).then_some(())
        });
        client.reset(streams[0]);
        client.pump(stage.net.now());
        let code = host.until(stage, |host| {
            client.pump(host.now());
            host.calls.values().find_map(|call| call.reset)
        });
        assert_eq!(code, ErrorCode::CANCEL);
        host.head(3, 200, false, |_| {});
        host.connection.reset(&mut host.out, 3, ErrorCode::CANCEL);
        host.connection.reset(&mut host.out, 5, ErrorCode::CANCEL);
        host.pump(stage.net.now());
        assert!(client.wait(stage, streams[1]).reset.is_some(), "a response that was cut off");
        assert_eq!(client.wait(stage, streams[2]).status, 502);
    });
}

#[test]
fn early_response_lets_the_rest_of_the_request_follow() {
    h2c().run(|stage| {
        let mut client = Speaker::new(stage);
        let stream = client.request("POST", "/p", false, |_| {});
        client.data(stage.net.now(), stream, b"abc", false);
        client.pump(stage.net.now());
        let mut host = Host::accept(stage, Config::server());
        host.until(stage, |host| {
            client.pump(host.now());
            host.calls.get(&1).map(|_| ())
        });
        host.head(1, 200, false, |_| {});
        host.data(stage.net.now(), 1, b"early", true);
        host.until(stage, |host| {
            client.pump(host.now());
            (client.responses[&stream].body == b"early").then_some(())
        });
        client.data(stage.net.now(), stream, b"def", true);
        let call = host.until(stage, |host| {
            client.pump(host.now());
            host.calls.get(&1).filter(|call| call.has_ended || call.reset.is_some()).cloned()
        });
        assert_eq!((&call.body[..], call.reset), (&b"abcdef"[..], None));
        // A server that does not want the rest says so, and the response stays complete.
        let stream = client.request("POST", "/p", false, |_| {});
        client.data(stage.net.now(), stream, b"abc", false);
        host.until(stage, |host| {
            client.pump(host.now());
            host.calls.get(&3).map(|_| ())
        });
        host.head(3, 413, false, |_| {});
        host.data(stage.net.now(), 3, b"no", true);
        host.connection.reset(&mut host.out, 3, ErrorCode::NO_ERROR);
        let response = host.until(stage, |host| {
            client.pump(host.now());
            client.responses.get(&stream).filter(|response| response.has_ended).cloned()
        });
        assert_eq!((response.status, &response.body[..]), (413, &b"no"[..]));
    });
}

#[test]
fn requests_that_come_in_one_turn_leave_at_once() {
    h2c().run(|stage| {
        // A connection that is in use, so that nothing has to be checked before a request is sent.
        let first = stage.dial();
        first.send(&get("/first"));
        let mut host = accept_call(stage);
        let clients: Vec<_> = (0..8).map(|_| stage.dial()).collect();
        stage.pass(Span::from_millis(10));
        host.pump(stage.net.now());
        let before = host.peer.arrivals();
        for client in &clients {
            client.send(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
        }
        stage.turn();
        stage.pass(Span::from_millis(1));
        host.pump(stage.net.now());
        assert_eq!(host.calls.len(), 1 + clients.len());
        assert_eq!(host.peer.arrivals(), before + 1, "heads of one turn are sent together");
        clients.iter().for_each(|client| assert_eq!(client.send(b"abc"), 3));
        stage.turn();
        stage.pass(Span::from_millis(1));
        host.pump(stage.net.now());
        for (stream, call) in host.calls.iter().skip(1) {
            assert_eq!((&call.body[..], call.has_ended), (&b"abc"[..], true), "stream {stream}");
        }
        assert_eq!(host.peer.arrivals(), before + 2, "bodies of one turn are sent together");
        // A request alone waits for the end of the turn only.
        first.send(&get("/other"));
        stage.turn();
        host.respond(stage.net.now(), 1, b"one");
        host.pump(stage.net.now());
        stage.receive_until(&first, "one");
        host.wait_call(stage, 3 + 2 * clients.len() as u32);
    });
}

#[test]
fn upload_waits_for_the_windows_of_its_server() {
    h2c().run(|stage| {
        let mut client = Speaker::new(stage);
        let stream = client.request("POST", "/p", false, |_| {});
        client.pump(stage.net.now());
        let config =
            Config { stream_window: 65_535, stream_window_ceiling: 65_535, ..Config::server() };
        let mut host = Host::accept(stage, config);
        host.is_slow = true;
        host.until(stage, |host| {
            client.pump(host.now());
            host.calls.get(&1).map(|_| ())
        });
        let body = vec![b'x'; 400_000];
        let mut sent = 0;
        for _ in 0..200 {
            sent += client.data_some(stage.net.now(), stream, &body[sent..], true);
            client.pump(stage.net.now());
            host.pump(stage.net.now());
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        assert_eq!(host.calls[&1].body.len(), 65_535, "one window");
        assert!(sent < body.len() && sent <= 4 * 65_535, "{sent} bytes were taken from the client");
        host.is_slow = false;
        host.connection.release(&mut host.out, 1, 65_535);
        host.until(stage, |host| {
            sent += client.data_some(host.now(), stream, &body[sent..], true);
            client.pump(host.now());
            host.calls.get(&1).filter(|call| call.has_ended).map(|_| ())
        });
        assert_eq!(host.calls[&1].body.len(), body.len());
        host.respond(stage.net.now(), 1, b"ok");
        host.pump(stage.net.now());
        assert_eq!(client.wait(stage, stream).status, 200);
    });
}

#[test]
fn responses_without_a_body_stay_without_one() {
    h2c().with_client(|stage, client| {
        client.send(b"HEAD /p HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut host = accept_call(stage);
        host.head(1, 200, true, |fields| fields.field("content-length", b"5"));
        host.pump(stage.net.now());
        let answer = stage.receive_until(&client, "\r\n\r\n");
        assert!(answer.contains("Content-Length: 5\r\n"), "{answer}");
        for (stream, status, field) in
            [(3, 204, ""), (5, 304, ""), (7, 200, "Content-Length: 0\r\n")]
        {
            client.send(&get("/p"));
            host.wait_call(stage, stream);
            host.head(stream, status, true, |_| {});
            host.pump(stage.net.now());
            let answer = stage.receive_until(&client, "\r\n\r\n");
            assert_status(status, &answer);
            assert!(answer.contains(field) && !answer.contains("chunked"), "{answer}");
        }
    });
}

#[test]
fn requests_that_wait_for_a_server_without_http2_get_connections_of_their_own() {
    let plan = Keys::new(1, Version::Tls13).plan(false, &[true], &[1]);
    let pool = "tls = { server-name = \"a.example\", alpn = [\"h2\", \"http/1.1\"] }";
    scene().pool(pool).tls(plan).run(|stage| {
        let keys = Keys::new(1, Version::Tls13);
        let clients: Vec<_> = (0..3).map(|_| stage.dial()).collect();
        for client in &clients {
            client.send(&get("/p"));
        }
        let mut lines: Vec<(Line, Vec<u8>)> = Vec::new();
        let mut responses = 0;
        stage.until(|stage| {
            while let Some(peer) = stage.try_accept() {
                let session = keys.acceptor.accept().expect("a session");
                lines.push((Line::new(peer, Some(session), false, false), Vec::new()));
            }
            for (line, received) in &mut lines {
                received.extend(line.receive());
                if received.ends_with(b"\r\n\r\n") {
                    received.clear();
                    responses += line.send(OK) / OK.len();
                }
            }
            (responses == clients.len()).then_some(())
        });
        for client in &clients {
            stage.receive_until(client, "ok");
        }
        assert_eq!(stage.counters().bugs.load(), 0);
    });
}

#[test]
fn connections_max_of_a_server_counts_requests() {
    let pool = "h2c = true\nservers = [{ address = \"10.0.1.1:8000\", connections-max = 2 }]";
    scene().pool(pool).run(|stage| {
        let clients: Vec<_> = (0..3).map(|_| stage.dial()).collect();
        for client in &clients {
            client.send(&get("/p"));
        }
        let mut host = Host::accept(stage, Config::server());
        host.until(stage, |host| (host.calls.len() == 2).then_some(()));
        stage.pass(Span::from_millis(100));
        host.pump(stage.net.now());
        assert_eq!(host.calls.len(), 2, "the third request waits");
        host.respond(stage.net.now(), 1, b"ok");
        host.until(stage, |host| (host.calls.len() == 3).then_some(()));
    });
}

#[test]
fn idle_connection_ends_with_goaway() {
    h2c().pool("h2c = true\nreuse = { idle-timeout = \"2s\" }").with_client(|stage, client| {
        client.send(&get("/p"));
        let mut host = accept_call(stage);
        host.respond(stage.net.now(), 1, b"ok");
        host.pump(stage.net.now());
        stage.receive_until(&client, "ok");
        host.until(stage, |host| host.is_over().then_some(()));
        assert_eq!(host.goaway, Some(ErrorCode::NO_ERROR));
    });
}

#[test]
fn idle_connection_that_its_server_closed_gets_no_request() {
    h2c().with_client(|stage, client| {
        client.send(&get("/p"));
        let mut host = accept_call(stage);
        host.respond(stage.net.now(), 1, b"ok");
        host.pump(stage.net.now());
        stage.receive_until(&client, "ok");
        // The request and the end of the connection cross.
        client.send(POST);
        drop(host);
        let mut other = accept_call(stage);
        other.respond(stage.net.now(), 1, b"other");
        other.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&client, "other"));
    });
}

#[test]
fn length_that_disagrees_with_the_data_is_an_error_of_the_server() {
    for (length, body, ends, expected) in
        [("5", &b"abc"[..], true, 200), ("2", b"abc", false, 200), ("5", b"", true, 502)]
    {
        h2c().with_client(|stage, client| {
            client.send(&get("/p"));
            let mut host = accept_call(stage);
            if body.is_empty() {
                host.head(1, 200, true, |fields| fields.field("content-length", length.as_bytes()));
            } else {
                host.head(1, 200, false, |fields| {
                    fields.field("content-length", length.as_bytes())
                });
                host.data(stage.net.now(), 1, body, ends);
            }
            host.pump(stage.net.now());
            assert_status(expected, &stage.receive_until(&client, "\r\n\r\n"));
            if expected == 200 {
                stage.wait_finished(&client);
            }
        });
    }
}

/// Plays an attack: `step` appends frames after a request on stream 1 has arrived. The worker must end the connection
/// or the stream with an error, and serve the next request over another one.
fn attack(name: &str, step: impl Fn(&mut Vec<u8>)) {
    h2c().with_client(|stage, client| {
        client.send(POST);
        let mut host = accept_call(stage);
        host.pump(stage.net.now());
        let mut answer = Vec::new();
        for _ in 0..STEPS_MAX {
            let mut frames = Vec::new();
            step(&mut frames);
            let mut sent = 0;
            while sent < frames.len() && !host.is_over() {
                sent += host.peer.send(&frames[sent..]);
                stage.turn();
                stage.net.advance_to_next_event();
                drop(host.peer.receive());
            }
            answer.extend(client.receive());
            if String::from_utf8_lossy(&answer).contains(" 502 ") {
                break;
            }
        }
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert!(text.contains("HTTP/1.1 502 "), "{name}: {text:?}");
        drop(host);
        let client = stage.dial();
        client.send(&get("/p"));
        let mut host = accept_call(stage);
        host.respond(stage.net.now(), 1, b"ok");
        host.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&client, "ok"));
        stage.assert_bounded();
    });
}

#[test]
fn attacks_of_servers_end_their_connection() {
    attack("SETTINGS", |out| (0..100).for_each(|_| encode_settings(out, &[(4, 70_000)])));
    attack("PING", |out| (0..100).for_each(|_| encode_ping(out, false, [0; 8])));
    attack("RST_STREAM", |out| {
        encode_headers(out, 1, &[(b":status", b"103")], END_HEADERS);
        (0..300).for_each(|_| encode_reset(out, 1, ErrorCode::CANCEL));
    });
    attack("interim responses", |out| {
        encode_headers(out, 1, &[(b":status", b"103"), (b"link", b"</x>")], END_HEADERS);
    });
    attack("window overflow of the stream", |out| encode_window_update(out, 1, 0x7fff_ffff));
    attack("window overflow", |out| encode_window_update(out, 0, 0x7fff_ffff));
    attack("windows", |out| (0..2000).for_each(|_| encode_window_update(out, 0, 1)));
    attack("push", |out| {
        encode_frame(out, FrameKind::PushPromise, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]);
    });
    attack("CONTINUATION", |out| {
        encode_headers(out, 1, &[(b":status", b"200")], 0);
        (0..100).for_each(|_| encode_frame(out, FrameKind::Continuation, 0, 1, b""));
    });
    attack("field list", |out| {
        let value = [b'x'; 4000];
        let fields: Vec<(&[u8], &[u8])> = core::iter::once((&b":status"[..], &b"200"[..]))
            .chain((0..4).map(|_| (&b"x"[..], &value[..])))
            .collect();
        let mut block = Vec::new();
        encode_headers(&mut block, 1, &fields, 0);
        out.extend_from_slice(&block);
        (0..3).for_each(|_| {
            let mut more = Vec::new();
            encode_headers(&mut more, 1, &fields[1..], 0);
            encode_frame(out, FrameKind::Continuation, 0, 1, &more[9..]);
        });
        encode_frame(out, FrameKind::Continuation, END_HEADERS, 1, b"");
    });
    attack("HPACK bomb", |out| {
        // An entry of 4,000 bytes, and thousands of references to it, one byte each.
        let mut block = vec![0x88, 0x40, 1, b'x', 0x7f, 0xa1, 0x1e];
        block.extend_from_slice(&[b'y'; 4000]);
        block.extend_from_slice(&[0xbe; 10_000]);
        encode_frame(out, FrameKind::Headers, END_HEADERS, 1, &block);
    });
    attack("empty DATA", |out| {
        encode_headers(out, 3, &[(b":status", b"200")], END_HEADERS);
        (0..200).for_each(|_| encode_frame(out, FrameKind::Data, 0, 1, b""));
    });
    attack("DATA before the head", |out| encode_frame(out, FrameKind::Data, 0, 1, b"x"));
    attack("stream that was not opened", |out| {
        encode_headers(out, 9, &[(b":status", b"200")], END_HEADERS);
    });
    attack("not HTTP/2", |out| {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    });
    attack("unknown frames", |out| {
        (0..5000).for_each(|_| encode_frame(out, FrameKind::Unknown(0x20), 0, 0, b""));
    });
}

/// Sends requests with large heads to a server that reads nothing, and cancels them.
fn send_and_cancel(stage: &mut Stage) {
    for _ in 0..20 {
        let mut client = Speaker::new(stage);
        for _ in 0..5 {
            let streams: Vec<u32> = (0..20)
                .map(|_| {
                    client.request("GET", "/p", true, |fields| fields.field("x", &[b'x'; 8000]))
                })
                .collect();
            stage.until(|stage| {
                client.pump(stage.net.now());
                client.out.is_empty().then_some(())
            });
            streams.into_iter().for_each(|stream| client.reset(stream));
            client.pump(stage.net.now());
            stage.turn();
            stage.net.advance_by(Span::from_secs(2));
        }
    }
}

#[test]
fn cancelled_requests_to_a_server_that_does_not_read_fill_no_memory() {
    let pool = "h2c = true\nhttp2 = { connections-max = 1 }\nreuse = { idle-timeout = \"1h\" }\n\
                timeouts = { response-head = \"1h\" }";
    scene().listener("h2c = true").pool(pool).with_client(|stage, client| {
        client.send(&get("/first"));
        let mut host = accept_call(stage);
        host.respond(stage.net.now(), 1, b"ok");
        host.pump(stage.net.now());
        stage.receive_until(&client, "ok");
        send_and_cancel(stage);
        stage.assert_bounded();
        let client = stage.dial();
        client.send(&get("/last"));
        stage.pass(Span::from_millis(500));
        assert!(stage.try_accept().is_none(), "no other connection may be opened");
        // The server reads again.
        let stream = host.until(stage, |host| {
            let call = host.calls.iter().find(|(_, call)| call.line == "GET /last");
            call.map(|(&stream, _)| stream)
        });
        host.respond(stage.net.now(), stream, b"ok");
        host.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&client, "ok"));
    });
}

#[test]
fn request_avoids_a_connection_whose_server_does_not_read() {
    h2c().socks_max(1000).run(|stage| {
        let mut client = Speaker::new(stage);
        let first = client.get("/first");
        client.pump(stage.net.now());
        let mut host = accept_call(stage);
        host.respond(stage.net.now(), 1, b"ok");
        host.pump(stage.net.now());
        client.wait(stage, first);
        // Nothing is read from now on: the heads fill the output.
        let large = |fields: &mut FieldWriter<'_>| fields.field("x", &[b'x'; 8000]);
        for _ in 0..90 {
            client.request("GET", "/large", true, large);
        }
        stage.until(|stage| {
            client.pump(stage.net.now());
            client.out.is_empty().then_some(())
        });
        stage.pass(Span::from_millis(500));
        assert!(stage.try_accept().is_none());
        let stream = client.get("/other");
        client.pump(stage.net.now());
        let mut other = Host::accept(stage, Config::server());
        let number = other.until(stage, |other| {
            let call = other.calls.iter().find(|(_, call)| call.line == "GET /other");
            call.map(|(&number, _)| number)
        });
        other.respond(stage.net.now(), number, b"other");
        other.pump(stage.net.now());
        assert_eq!(client.wait(stage, stream).body, b"other");
        stage.assert_bounded();
    });
}

#[test]
fn upload_that_no_handler_reads_does_not_hold_up_other_uploads() {
    let config = Config { stream_window: 1 << 20, connection_window: 65_535, ..Config::server() };
    h2c().run(|stage| {
        let mut client = Speaker::new(stage);
        let stalled = client.request("POST", "/stalled", false, |_| {});
        client.pump(stage.net.now());
        let mut host = Host::accept(stage, config);
        host.until(stage, |host| {
            client.pump(host.now());
            host.calls.get(&1).map(|_| ())
        });
        // No window is returned any more.
        host.is_mute = true;
        let body = vec![b'x'; 200_000];
        let mut sent = 0;
        host.until(stage, |host| {
            sent += client.data_some(host.now(), stalled, &body[sent..], false);
            client.pump(host.now());
            (host.calls[&1].body.len() == 65_535).then_some(())
        });
        for _ in 0..50 {
            sent += client.data_some(stage.net.now(), stalled, &body[sent..], false);
            client.pump(stage.net.now());
            stage.pass(Span::from_millis(10));
        }
        // A request without a body needs no window.
        let get = client.get("/get");
        client.pump(stage.net.now());
        host.wait_call(stage, 3);
        let post = client.request("POST", "/post", false, |_| {});
        client.data(stage.net.now(), post, b"abc", true);
        client.pump(stage.net.now());
        let mut other = accept_call(stage);
        assert_eq!(other.calls[&1].body, b"abc");
        other.respond(stage.net.now(), 1, b"ok");
        other.pump(stage.net.now());
        assert_eq!(client.wait(stage, post).body, b"ok");
        host.is_mute = false;
        host.respond(stage.net.now(), 3, b"got");
        host.pump(stage.net.now());
        assert_eq!(client.wait(stage, get).body, b"got");
    });
}

#[test]
fn faults_of_one_response_leave_the_others_alone() {
    h2c().run(|stage| {
        let clients = [stage.dial(), stage.dial(), stage.dial()];
        clients[0].send(&get("/good"));
        let mut host = accept_call(stage);
        clients[1].send(&get("/bad"));
        host.wait_call(stage, 3);
        host.head(1, 200, false, |fields| fields.field("content-length", b"4"));
        host.head(3, 200, false, |_| {});
        for _ in 0..300 {
            encode_frame(&mut host.out, FrameKind::Data, 0, 3, b"");
            encode_frame(&mut host.out, FrameKind::Unknown(0x20), 0, 3, b"");
        }
        host.until(stage, |host| host.goaway);
        assert_eq!(host.goaway, Some(ErrorCode::NO_ERROR));
        clients[2].send(&get("/later"));
        let mut other = accept_call(stage);
        other.respond(stage.net.now(), 1, b"later");
        other.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&clients[2], "later"));
        host.data(stage.net.now(), 1, b"good", true);
        host.data(stage.net.now(), 3, b"bad", true);
        host.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&clients[0], "good"));
        assert_status(200, &stage.receive_until(&clients[1], "bad"));
        host.until(stage, |host| host.is_over().then_some(()));
        assert_eq!(stage.counters().upstream_faults.load(), 0);
    });
}

#[test]
fn response_without_an_end_is_bounded_by_its_client() {
    h2c().pool("h2c = true\ntimeouts = { body = \"2s\" }").with_client(|stage, client| {
        client.send(&get("/p"));
        let mut host = accept_call(stage);
        host.head(1, 200, false, |_| {});
        host.data(stage.net.now(), 1, b"abc", false);
        host.pump(stage.net.now());
        stage.receive_until(&client, "abc");
        // The server stops sending.
        stage.wait_finished(&client);
        assert_eq!(host.wait_reset(stage, 1), ErrorCode::CANCEL);
    });
}

#[test]
fn response_without_a_body_is_a_502_if_it_has_data() {
    for (method, status) in [("GET", "204"), ("GET", "304"), ("HEAD", "200")] {
        h2c().run(|stage| {
            let client = stage.dial();
            client.send(format!("{method} /p HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            let mut host = accept_call(stage);
            let fields: [(&[u8], &[u8]); 2] = [(b":status", status.as_bytes()), (b"x-mine", b"1")];
            encode_headers(&mut host.out, 1, &fields, END_HEADERS);
            encode_frame(&mut host.out, FrameKind::Data, 0, 1, b"");
            host.pump(stage.net.now());
            stage.pass(Span::from_millis(50));
            assert!(client.receive().is_empty(), "whether data follows is unknown");
            encode_frame(&mut host.out, FrameKind::Data, END_STREAM, 1, b"");
            host.pump(stage.net.now());
            let answer = stage.receive_until(&client, "\r\n\r\n");
            assert_status(status.parse().expect("a number"), &answer);
            assert!(answer.contains("x-mine: 1\r\n"), "{answer}");
            // The same for a stream, with data.
            let mut client = Speaker::new(stage);
            let stream = client.request(method, "/p", true, |_| {});
            client.pump(stage.net.now());
            host.wait_call(stage, 3);
            encode_headers(&mut host.out, 3, &fields, END_HEADERS);
            encode_frame(&mut host.out, FrameKind::Data, END_STREAM, 3, b"x");
            host.connection.reset(&mut Vec::new(), 3, ErrorCode::NO_ERROR);
            host.pump(stage.net.now());
            let response = client.wait(stage, stream);
            assert_eq!((response.status, response.reset), (502, None), "{method} {status}");
            client.hello(stage);
        });
    }
}

#[test]
fn requests_that_goaway_excludes_move_to_another_server() {
    let pool = "h2c = true\nservers = [\"10.0.1.1:8000\", \"10.0.1.2:8000\"]";
    h2c().pool(pool).run(|stage| {
        let other = Address::Tcp(([10, 0, 1, 2], 8000).into());
        let other = stage.net.serve(&other).expect("the address is free");
        let clients: Vec<_> = (0..8).map(|_| stage.dial()).collect();
        for client in &clients {
            client.send(&get("/p"));
        }
        let mut leaving = Host::accept(stage, Config::server());
        let peer = stage.until(|_| other.accept());
        let mut staying = Host::new(peer, Config::server(), stage.net.now());
        leaving.until(stage, |leaving| {
            staying.pump(leaving.now());
            (leaving.calls.len() + staying.calls.len() == clients.len()).then_some(())
        });
        assert!(!leaving.calls.is_empty() && !staying.calls.is_empty());
        encode_goaway(&mut leaving.out, 0, ErrorCode::NO_ERROR, "");
        leaving.pump(stage.net.now());
        staying.until(stage, |staying| (staying.calls.len() == clients.len()).then_some(()));
        assert!(stage.try_accept().is_none(), "no request follows the server that stops");
        let streams: Vec<u32> = staying.calls.keys().copied().collect();
        for stream in streams {
            staying.respond(stage.net.now(), stream, b"ok");
        }
        staying.pump(stage.net.now());
        for client in &clients {
            assert_status(200, &stage.receive_until(client, "ok"));
        }
    });
}
