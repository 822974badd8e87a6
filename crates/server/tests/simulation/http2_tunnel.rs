//! WebSockets of clients of both versions of HTTP, over HTTP/2 to their server (RFC 8441).
//! In: requests for a WebSocket; servers that take them, or do not. Out: what each test's name says.
//! Invariant: after each case the worker holds nothing.

use tidegate_base::Span;
use tidegate_reactor::SimPeer;
use tidegate_wire::http2::{Config, Connection, ErrorCode, Event, Scratch};
use tidegate_wire::tls::Version;

use crate::host::{Call, Host};
use crate::http2_websocket::wait;
use crate::line::Line;
use crate::secured::Keys;
use crate::speaker::Speaker;
use crate::stage::{Stage, assert_status, scene};
use crate::websocket_tunnel::{LEAVES, close_frame, message};

/// The key of the example in RFC 6455 section 1.3, and what accepts it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// What a side that does not read may hold up: its windows, and a few reads of the worker.
const HELD_BYTES_MAX: usize = 512 * 1024;
const BODY_BYTES: usize = 3 << 20;

/// A server that takes extended CONNECT.
fn server() -> Config {
    Config { connect_protocol: true, ..Config::server() }
}

fn upgrade() -> String {
    format!(
        "GET /chat?a HTTP/1.1\r\nHost: a:1\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    )
}

fn play(pool: &str, case: impl FnOnce(&mut Stage)) {
    let listener = "h2c = true\ntimeouts = { head = \"1h\", body = \"1h\" }\n";
    scene().listener(listener).pool(&format!("h2c = true\n{pool}")).run(case);
}

/// Waits until the head of the request on `stream` has arrived.
fn call(stage: &mut Stage, host: &mut Host, stream: u32) -> Call {
    host.until(stage, |host| host.calls.get(&stream).cloned())
}

/// Opens a tunnel for a client of HTTP/1.1.
fn open(stage: &mut Stage) -> (SimPeer, Host) {
    let client = stage.dial();
    client.send(upgrade().as_bytes());
    let mut host = Host::accept(stage, server());
    call(stage, &mut host, 1);
    host.head(1, 200, false, |fields| fields.field("sec-websocket-protocol", b"chat"));
    host.pump(stage.net.now());
    assert_status(101, &stage.receive_until(&client, "\r\n\r\n"));
    (client, host)
}

/// Opens a tunnel for a client of HTTP/2.
fn open_stream(stage: &mut Stage) -> (Speaker, u32, Host) {
    let mut client = Speaker::new(stage);
    client.hello(stage);
    let stream = client.connect("websocket", "/chat", false);
    client.pump(stage.net.now());
    let mut host = Host::accept(stage, server());
    call(stage, &mut host, 1);
    host.head(1, 200, false, |_| {});
    host.pump(stage.net.now());
    let status = wait(stage, &mut client, stream, |response| {
        (response.status > 0).then_some(response.status)
    });
    assert_eq!(status, 200);
    (client, stream, host)
}

#[test]
fn upgrade_of_http_1_becomes_an_extended_connect_and_back() {
    play("", |stage| {
        let client = stage.dial();
        client.send(upgrade().as_bytes());
        client.send(b"early");
        let mut host = Host::accept(stage, server());
        let call = call(stage, &mut host, 1);
        assert_eq!((&call.line[..], &call.authority[..]), ("CONNECT /chat?a", "a:1"));
        let fields = call.fields.join("\n");
        assert!(fields.contains("ebsocket-version: 13"), "{fields}");
        assert!(fields.contains("ebsocket-protocol: chat"), "{fields}");
        for name in ["connection", "upgrade", "sec-websocket-key", "host", "content-length"] {
            let prefix = format!("{name}:");
            assert!(!call.fields.iter().any(|line| line.starts_with(&prefix)), "{fields}");
        }
        assert!(!call.has_ended && call.body.is_empty(), "before the server agrees");
        host.head(1, 200, false, |fields| {
            fields.field("sec-websocket-protocol", b"chat");
            fields.field("sec-websocket-accept", b"forged");
            fields.field("x-mine", b"1");
        });
        host.data(stage.net.now(), 1, b"down", false);
        host.pump(stage.net.now());
        let answer = stage.receive_until(&client, "down");
        assert!(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{answer}");
        assert!(answer.contains(&format!("\r\nSec-WebSocket-Accept: {ACCEPT}\r\n")), "{answer}");
        assert!(answer.to_lowercase().contains("\r\nupgrade: websocket\r\n"), "{answer}");
        assert!(answer.to_lowercase().contains("\r\nconnection: upgrade\r\n"), "{answer}");
        assert!(answer.contains("sec-websocket-protocol: chat\r\n"), "{answer}");
        assert!(answer.contains("x-mine: 1\r\n") && !answer.contains("forged"), "{answer}");
        host.until(stage, |host| (host.calls[&1].body == b"early").then_some(()));
        client.send(b" up");
        client.finish();
        let call = host.wait_call(stage, 1);
        assert_eq!(call.body, b"early up");
        host.data(stage.net.now(), 1, b"bye", true);
        host.pump(stage.net.now());
        assert_eq!(stage.receive_until(&client, "bye"), "bye");
        stage.wait_finished(&client);
        assert_eq!(stage.counters().tunnels.load(), 1);
        // The connection to the server stays open.
        let client = stage.dial();
        client.send(crate::stage::GET);
        host.wait_call(stage, 3);
        host.respond(stage.net.now(), 3, b"ok");
        host.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&client, "ok"));
    });
}

#[test]
fn extended_connect_passes_from_a_stream_to_a_stream() {
    play("", |stage| {
        let (mut client, stream, mut host) = open_stream(stage);
        let fields = host.calls[&1].fields.join("\n");
        assert_eq!(host.calls[&1].line, "CONNECT /chat");
        assert!(!fields.contains("sec-websocket-key"), "{fields}");
        client.data(stage.net.now(), stream, b"up", true);
        client.pump(stage.net.now());
        assert_eq!(host.wait_call(stage, 1).body, b"up");
        host.data(stage.net.now(), 1, b"down", true);
        host.pump(stage.net.now());
        let response = client.wait(stage, stream);
        assert_eq!((&response.body[..], response.reset), (&b"down"[..], None));
        client.hello(stage);
    });
}

#[test]
fn either_end_may_reset_the_tunnel() {
    play("", |stage| {
        let (client, mut host) = open(stage);
        host.connection.reset(&mut host.out, 1, ErrorCode::CANCEL);
        host.pump(stage.net.now());
        stage.wait_reset(&client);
        let (client, host) = {
            client.reset();
            let client = stage.dial();
            client.send(upgrade().as_bytes());
            call(stage, &mut host, 3);
            host.head(3, 200, false, |_| {});
            host.pump(stage.net.now());
            stage.receive_until(&client, "\r\n\r\n");
            (client, &mut host)
        };
        client.reset();
        assert_eq!(host.wait_reset(stage, 3), ErrorCode::CANCEL);
        // The connection is lost.
        let (mut client, stream, host) = {
            let mut client = Speaker::new(stage);
            client.hello(stage);
            let stream = client.connect("websocket", "/chat", false);
            client.pump(stage.net.now());
            call(stage, host, 5);
            host.head(5, 200, false, |_| {});
            host.pump(stage.net.now());
            wait(stage, &mut client, stream, |response| (response.status > 0).then_some(()));
            (client, stream, host)
        };
        host.peer.reset();
        assert_eq!(client.wait(stage, stream).reset, Some(ErrorCode::CANCEL));
        client.hello(stage);
    });
}

#[test]
fn server_that_ends_first_gets_the_rest_of_the_client_unless_it_resets() {
    play("", |stage| {
        let (client, mut host) = open(stage);
        host.data(stage.net.now(), 1, b"bye", true);
        host.pump(stage.net.now());
        stage.receive_until(&client, "bye");
        stage.wait_finished(&client);
        client.send(b"more");
        host.until(stage, |host| (host.calls[&1].body == b"more").then_some(()));
        client.finish();
        assert!(host.wait_call(stage, 1).reset.is_none());
    });
    play("", |stage| {
        let (client, mut host) = open(stage);
        host.data(stage.net.now(), 1, b"bye", true);
        host.connection.reset(&mut host.out, 1, ErrorCode::NO_ERROR);
        host.pump(stage.net.now());
        assert_eq!(stage.receive_until(&client, "bye"), "bye");
        stage.wait_finished(&client);
    });
}

#[test]
fn stop_closes_websockets_to_servers_of_http_2() {
    play("", |stage| {
        let (client, mut host) = open(stage);
        let frame = message(1000);
        host.data(stage.net.now(), 1, &frame[..10], false);
        host.pump(stage.net.now());
        stage.until(|_| (!client.receive().is_empty()).then_some(()));
        stage.stop();
        stage.pass(Span::from_millis(500));
        host.data(stage.net.now(), 1, &[&frame[10..], &frame].concat(), false);
        host.pump(stage.net.now());
        let (mut received, close) = (Vec::new(), close_frame(LEAVES, false));
        host.until(stage, |_| {
            received.extend(client.receive());
            received.ends_with(&close).then_some(())
        });
        assert_eq!(received, [&frame[10..], &close].concat());
        let reply = close_frame(LEAVES, true);
        client.send(&reply);
        host.until(stage, |host| host.calls[&1].body.ends_with(&reply).then_some(()));
        host.data(stage.net.now(), 1, &close, true);
        host.pump(stage.net.now());
        stage.wait_finished(&client);
        assert!(client.receive().is_empty(), "nothing follows the Close frame");
        client.finish();
        assert!(host.wait_call(stage, 1).reset.is_none());
    });
}

#[test]
fn refusal_of_the_server_reaches_the_client() {
    play("", |stage| {
        let client = stage.dial();
        client.send(upgrade().as_bytes());
        let mut host = Host::accept(stage, server());
        call(stage, &mut host, 1);
        host.respond_with(stage.net.now(), 1, 403, b"no");
        host.pump(stage.net.now());
        assert_status(403, &stage.receive_until(&client, "no"));
        assert_eq!(host.wait_reset(stage, 1), ErrorCode::CANCEL, "the tunnel was not opened");
        assert_eq!(stage.counters().tunnels.load(), 0);
    });
}

#[test]
fn server_without_extended_connect_is_a_502() {
    play("", |stage| {
        let client = stage.dial();
        client.send(upgrade().as_bytes());
        let host = stage.accept();
        stage.pass(Span::from_millis(50));
        // Nothing was sent before the server's SETTINGS.
        let mut host = Host::new(host, Config::server(), stage.net.now());
        let answer = host.until(stage, |_| {
            let bytes = client.receive();
            (!bytes.is_empty()).then_some(bytes)
        });
        let answer = String::from_utf8_lossy(&answer);
        assert_status(502, &answer);
        assert!(answer.contains("RFC 8441") && host.calls.is_empty(), "{answer}");
        // On the same connection, whose server is known to take none now.
        let client = stage.dial();
        client.send(upgrade().as_bytes());
        let answer = host.until(stage, |_| {
            let bytes = client.receive();
            (!bytes.is_empty()).then_some(bytes)
        });
        assert_status(502, &String::from_utf8_lossy(&answer));
        // Other upgrades, and those without a valid key, are requests without an upgrade.
        let client = stage.dial();
        client.send(
            b"GET /p HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        );
        assert_eq!(host.wait_call(stage, 1).line, "GET /p");
        host.respond(stage.net.now(), 1, b"ok");
        host.pump(stage.net.now());
        assert_status(200, &stage.receive_until(&client, "ok"));
    });
}

#[test]
fn settings_that_arrive_in_parts_are_waited_for() {
    play("", |stage| {
        let client = stage.dial();
        client.send(upgrade().as_bytes());
        let mut host = Host::accept(stage, server());
        // The head of the frame.
        let sent = host.peer.send(&host.out[..9]);
        host.out.drain(..sent);
        stage.pass(Span::from_millis(50));
        assert_eq!(call(stage, &mut host, 1).line, "CONNECT /chat?a");
        host.head(1, 200, false, |_| {});
        host.pump(stage.net.now());
        assert_status(101, &stage.receive_until(&client, "\r\n\r\n"));
    });
}

#[test]
fn server_without_extended_connect_gets_a_connection_of_http_1() {
    let keys = Keys::new(1, Version::Tls13);
    let mut plan = keys.plan(false, &[true], &[1]);
    if let Some(Some(pool)) = plan.pools.first_mut() {
        pool.connector = keys.http2_connector.clone();
    }
    let pool = "tls = { server-name = \"a.example\", alpn = [\"h2\", \"http/1.1\"] }";
    scene().pool(pool).tls(plan).with_client(|stage, client| {
        client.send(upgrade().as_bytes());
        let accept = |peer| Line::new(peer, Some(keys.acceptor.accept().expect("a session")), false, false);
        let first = accept(stage.accept());
        let mut connection = Connection::new(Config::server(), stage.net.now());
        let mut out = Vec::new();
        connection.start(&mut out);
        let second = stage.until(|stage| {
            let (received, mut scratch) = (first.receive(), Scratch::default());
            let mut input = &received[..];
            while let Some(event) = connection
                .receive(stage.net.now(), &mut input, &mut scratch, &mut out)
                .expect("the worker obeys the protocol")
            {
                assert!(!matches!(event, Event::Request { .. }), "the server takes none");
            }
            let sent = first.send(&out);
            out.drain(..sent);
            stage.try_accept()
        });
        let second = accept(second);
        let mut request = Vec::new();
        stage.until(|_| {
            first.receive();
            request.extend(second.receive());
            request.ends_with(b"\r\n\r\n").then_some(())
        });
        let request = String::from_utf8_lossy(&request);
        assert!(request.starts_with("GET /chat?a HTTP/1.1\r\n"), "{request}");
        assert!(request.contains(&format!("Sec-WebSocket-Key: {KEY}\r\n")), "{request}");
        let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\ndown";
        assert_eq!(second.send(switch.as_bytes()), switch.len());
        stage.until(|_| {
            second.receive();
            let received = client.receive();
            received.ends_with(b"down").then_some(())
        });
    });
}

#[test]
fn server_that_does_not_read_holds_its_tunnel_only() {
    play("", |stage| {
        let (client, mut host) = open(stage);
        host.is_slow = true;
        let data = vec![b'x'; BODY_BYTES];
        let mut sent = 0;
        for _ in 0..300 {
            sent += client.send(&data[sent..]);
            host.pump(stage.net.now());
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        assert!(sent < BODY_BYTES, "the tunnel took everything");
        assert_eq!(host.calls[&1].body.len(), 65_535, "the window of the stream");
        let held = stage.harness.worker.stream_bytes_held();
        assert!(held < HELD_BYTES_MAX, "{held} bytes are held");
        // The other direction still works.
        host.data(stage.net.now(), 1, b"down", false);
        host.pump(stage.net.now());
        stage.receive_until(&client, "down");
        host.is_slow = false;
        host.connection.release(&mut host.out, 1, 65_535);
        host.until(stage, |host| {
            sent += client.send(&data[sent..]);
            if sent == BODY_BYTES {
                client.finish();
            }
            (host.calls[&1].body.len() == BODY_BYTES && host.calls[&1].has_ended).then_some(())
        });
    });
}

#[test]
fn client_that_does_not_read_holds_its_tunnel_only() {
    play("", |stage| {
        let (mut client, stream, mut host) = open_stream(stage);
        client.unread.push(stream);
        let data = vec![b'x'; BODY_BYTES];
        let mut sent = 0;
        for _ in 0..300 {
            sent += host.data(stage.net.now(), 1, &data[sent..], false);
            host.pump(stage.net.now());
            client.pump(stage.net.now());
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        assert!(sent <= 4 * 65_535, "{sent} bytes for a client that takes one window");
        assert!(stage.harness.worker.stream_bytes_held() < HELD_BYTES_MAX);
        client.unread.clear();
        client.credit(stream, 65_535);
        host.until(stage, |host| {
            client.pump(host.now());
            if sent < BODY_BYTES {
                sent += host.data(host.now(), 1, &data[sent..], true);
            }
            (client.responses[&stream].body.len() == BODY_BYTES).then_some(())
        });
        client.data(stage.net.now(), stream, b"", true);
        assert!(client.wait(stage, stream).reset.is_none());
    });
}

#[test]
fn silent_tunnel_times_out_on_both_sides() {
    play("timeouts = { tunnel = \"10s\" }", |stage| {
        let (client, mut host) = open(stage);
        stage.pass(Span::from_secs(8));
        host.data(stage.net.now(), 1, b"a", false);
        host.pump(stage.net.now());
        stage.pass(Span::from_secs(8));
        assert!(!client.was_reset(), "a byte was transferred");
        stage.wait_reset(&client);
        assert_eq!(host.wait_reset(stage, 1), ErrorCode::CANCEL);
        assert_eq!(stage.counters().tunnel_timeouts.load(), 1);
    });
}
