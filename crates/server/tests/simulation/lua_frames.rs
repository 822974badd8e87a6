//! Messages of forwarded WebSockets that a hook sees: changes, waits, backpressure and ends.
//! In: clients and servers that send messages. Out: what each test's name says.

use tidegate_base::{Address, Span};
use tidegate_reactor::SimPeer;
use tidegate_wire::websocket::{
    Close, CloseCode, Decoder, Fragment, FrameRules, Incoming, Kind, Limits, Role, encode_fragment,
    encode_message, encode_ping,
};

use crate::http2_websocket::{open_tunnel_at, switching, wait};
use crate::lua_reload::Reloaded;
use crate::speaker::Speaker;
use crate::stage::{Stage, assert_status, scene};
use crate::websocket_tunnel::{LEAVES, close_frame};

const LISTENER: &str = "timeouts = { head = \"1h\", idle = \"1h\", body = \"1h\" }\n\
    [lua.f]\nscript = \"tests/scripts/frames.lua\"\nshared = { ends = \"64KiB\" }\n\
    [websocket]\nmessage-max = \"1MiB\"\n\
    [[route]]\npath = \"/ends\"\nlua = \"f\"\n\
    [[route]]\npath = \"/ws\"\nhooks = \"f\"\nproxy = \"p\"\n";
const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
    Sec-WebSocket-Extensions: permessage-deflate\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// One end of a forwarded WebSocket.
struct End {
    peer: SimPeer,
    decoder: Decoder,
    input: Vec<u8>,
    message: Vec<u8>,
    is_client: bool,
    /// The messages that have arrived: text as it is, binary messages as their lengths, Close frames as their codes and reasons.
    received: Vec<String>,
}

impl End {
    fn new(peer: SimPeer, role: Role) -> Self {
        let decoder = Decoder::new(FrameRules { role, allows_deflate: false });
        let (input, message, received) = (Vec::new(), Vec::new(), Vec::new());
        Self { peer, decoder, input, message, is_client: role == Role::Client, received }
    }

    fn key(&self) -> Option<[u8; 4]> {
        self.is_client.then_some([1, 2, 3, 4])
    }

    fn send(&self, text: &str) {
        self.send_as(Kind::Text, text.as_bytes());
    }

    fn send_as(&self, kind: Kind, data: &[u8]) {
        let mut bytes = Vec::new();
        encode_message(&mut bytes, kind, data, self.key());
        assert_eq!(self.peer.send(&bytes), bytes.len());
    }

    fn close(&self, code: CloseCode) {
        self.peer.send(&close_frame(Close { code, reason: "bye" }, self.is_client));
    }

    fn read(&mut self) {
        self.input.extend(self.peer.receive());
        let (mut at, limits) = (0, Limits::default());
        while at < self.input.len() {
            let step = self.decoder.decode_message(
                &mut self.input[at..],
                &limits,
                &mut self.message,
                None,
            );
            let step = step.expect("the worker keeps to the protocol");
            at += step.consumed;
            self.received.extend(step.incoming.map(|incoming| match incoming {
                Incoming::Message(message) if message.kind() == Kind::Text => {
                    String::from_utf8_lossy(message.bytes()).into_owned()
                }
                Incoming::Message(message) => format!("{} bytes", message.bytes().len()),
                Incoming::Ping(_) => "ping".to_owned(),
                Incoming::Pong(_) => "pong".to_owned(),
                Incoming::Close(None) => "close".to_owned(),
                Incoming::Close(Some(close)) => format!("{} {}", close.code.get(), close.reason),
            }));
        }
        self.input.clear();
    }

    /// Waits until the worker has ended its side.
    fn wait_finished(&mut self, stage: &mut Stage) {
        stage.until(|_| {
            self.read();
            self.peer.is_finished_by_other().then_some(())
        });
    }

    /// Waits for these messages, and for no others.
    fn expect(&mut self, stage: &mut Stage, wanted: &[&str]) {
        stage.until(|_| {
            self.read();
            (self.received.len() >= wanted.len()).then_some(())
        });
        assert_eq!(self.received, wanted);
        self.received.clear();
    }
}

/// Opens a WebSocket: the client's end and the server's.
fn open(stage: &mut Stage) -> (End, End) {
    let client = stage.dial();
    client.send(UPGRADE);
    let origin = stage.accept();
    let request = stage.receive_until(&origin, "\r\n\r\n");
    assert!(!request.to_ascii_lowercase().contains("extensions"), "{request}");
    origin.send(SWITCH);
    assert_status(101, &stage.receive_until(&client, "\r\n\r\n"));
    (End::new(client, Role::Client), End::new(origin, Role::Server))
}

/// What `on_frame_end` has noted about the tunnel that has ended first.
fn next_end(stage: &mut Stage) -> String {
    let client = stage.dial();
    client.send(b"GET /ends HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let response = stage.receive_until(&client, "<end>");
    let body = response.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    body.trim_end_matches("<end>").to_owned()
}

#[test]
fn hook_passes_changes_drops_and_sends_messages_of_both_sides() {
    scene().listener(LISTENER).run(|stage| {
        let (mut client, mut server) = open(stage);
        for text in ["one", "drop", "upper", "bytes", "count"] {
            client.send(text);
        }
        server.expect(stage, &["one", "UPPER", "2 bytes", "client 1"]);
        for text in ["one", "drop", "upper", "count"] {
            server.send(text);
        }
        server.send_as(Kind::Binary, &[0xff; 300]);
        client.expect(stage, &["one", "UPPER", "server 2", "300 bytes"]);
        client.send("reply");
        client.expect(stage, &["no /ws"]);
        let mut ping = Vec::new();
        encode_ping(&mut ping, b"p", None).expect("it fits");
        server.peer.send(&ping);
        client.expect(stage, &["ping"]);
        assert_eq!(stage.harness.worker.leftovers().in_vms, 1);
        client.close(CloseCode::NORMAL);
        server.expect(stage, &["1000 bye"]);
        server.close(CloseCode::NORMAL);
        client.expect(stage, &["1000 bye"]);
        server.peer.finish();
        client.wait_finished(stage);
        client.peer.finish();
        server.wait_finished(stage);
        assert_eq!(next_end(stage), "/ws 1000 bye");
        assert_eq!(stage.harness.worker.leftovers().in_vms, 0);
    });
}

#[test]
fn fragments_reach_the_hook_and_the_server_as_one_message() {
    scene().listener(LISTENER).run(|stage| {
        let (client, mut server) = open(stage);
        let mut bytes = Vec::new();
        for (is_first, is_last, part) in
            [(true, false, "up"), (false, false, "p"), (false, true, "er")]
        {
            let fragment = Fragment { is_first, is_last, ..Fragment::whole(Kind::Text) };
            encode_fragment(&mut bytes, fragment, part.as_bytes(), client.key());
        }
        for byte in bytes {
            client.peer.send(&[byte]);
            stage.turn();
        }
        server.expect(stage, &["UPPER"]);
    });
}

#[test]
fn hook_that_waits_delays_the_messages_of_its_tunnel_only() {
    scene().listener(LISTENER).run(|stage| {
        let (mut client, mut server) = open(stage);
        let (other, mut other_server) = open(stage);
        let began = stage.net.now();
        client.send("sleep");
        client.send("after");
        stage.until(|stage| (stage.harness.worker.leftovers().lua_waiting == 1).then_some(()));
        server.send("to the client");
        other.send("quick");
        other_server.expect(stage, &["quick"]);
        assert!(stage.net.now().since(began) < Span::from_millis(500));
        server.expect(stage, &["slept", "after"]);
        assert!(stage.net.now().since(began) >= Span::from_secs(1));
        client.expect(stage, &["to the client"]);
    });
}

#[test]
fn end_of_a_side_comes_after_the_messages_that_wait() {
    for texts in [&["sleep"][..], &["sleep", "last"]] {
        finish_after(texts);
    }
}

/// The client sends messages of which the first one waits, and ends its direction.
fn finish_after(texts: &[&str]) {
    scene().listener(LISTENER).run(|stage| {
        let (mut client, mut server) = open(stage);
        texts.iter().for_each(|text| client.send(text));
        stage.pass(Span::from_millis(100));
        client.peer.finish();
        server.expect(stage, &[&["slept"][..], &texts[1..]].concat());
        server.wait_finished(stage);
        server.send("still");
        client.expect(stage, &["still"]);
        server.peer.finish();
        client.wait_finished(stage);
        assert_eq!(next_end(stage), "/ws 1006 ");
    });
}

#[test]
fn script_closes_both_sides() {
    for text in ["close", "job"] {
        scene().listener(LISTENER).run(|stage| {
            let (mut client, mut server) = open(stage);
            client.send(text);
            let close = if text == "close" { "4000 as asked" } else { "4001 " };
            client.expect(stage, &[close]);
            server.expect(stage, &[close]);
            // What follows is dropped.
            client.send("late");
            server.send("late");
            client.close(CloseCode::NORMAL);
            server.close(CloseCode::NORMAL);
            client.wait_finished(stage);
            server.wait_finished(stage);
            client.expect(stage, &[]);
            server.expect(stage, &[]);
            assert_eq!(next_end(stage), format!("/ws {close}"));
        });
    }
}

#[test]
fn sides_that_do_not_reply_are_closed_after_10_seconds() {
    scene().listener(LISTENER).run(|stage| {
        let (mut client, server) = open(stage);
        client.send("close");
        let began = stage.net.now();
        stage.wait_reset(&server.peer);
        client.wait_finished(stage);
        let span = stage.net.now().since(began);
        assert!((Span::from_secs(9)..Span::from_secs(12)).contains(&span), "{span:?}");
    });
}

#[test]
fn hook_that_fails_or_waits_for_too_long_closes_both_sides() {
    for (text, seconds) in [("error", 1), ("table", 1), ("forever", 62)] {
        scene().listener(LISTENER).run(|stage| {
            let (mut client, mut server) = open(stage);
            server.send(text);
            client.send("one");
            stage.pass(Span::from_secs(seconds));
            client.read();
            server.read();
            assert_eq!(client.received, ["1011 "], "{text}");
            assert_eq!(server.received.last().map(String::as_str), Some("1011 "), "{text}");
            client.close(CloseCode::NORMAL);
            server.close(CloseCode::NORMAL);
            client.wait_finished(stage);
            assert_eq!(next_end(stage), "/ws 1011 ");
        });
    }
}

#[test]
fn side_that_violates_the_protocol_learns_why_and_the_other_one_is_closed() {
    let mut large = Vec::new();
    encode_message(&mut large, Kind::Binary, &vec![0; (1 << 20) + 1], Some([1, 2, 3, 4]));
    // Compression was not negotiated, and a client must mask.
    let compressed = b"\xc1\x81\0\0\0\0x".to_vec();
    for (bytes, code) in [(&large[..20], "1009"), (&compressed, "1002"), (b"\x81\x01x", "1002")] {
        scene().listener(LISTENER).run(|stage| {
            let (mut client, mut server) = open(stage);
            client.peer.send(bytes);
            server.expect(stage, &["1001 "]);
            stage.until(|_| {
                client.read();
                (!client.received.is_empty()).then_some(())
            });
            assert!(client.received[0].starts_with(code), "{:?}", client.received);
            server.close(CloseCode::NORMAL);
            client.wait_finished(stage);
            assert!(next_end(stage).starts_with(&format!("/ws {code}")));
        });
    }
}

#[test]
fn sides_are_not_read_while_the_hook_or_the_other_side_holds_them_up() {
    for text in ["sleep", "large"] {
        scene().listener(LISTENER).run(|stage| {
            let (client, mut server) = open(stage);
            // A server that does not read, or a hook that waits.
            let mut bytes = Vec::new();
            for _ in 0..if text == "large" { 40 } else { 1 } {
                encode_message(&mut bytes, Kind::Text, text.as_bytes(), client.key());
            }
            for _ in 0..40 {
                encode_message(&mut bytes, Kind::Binary, &[0; 100_000], client.key());
            }
            let mut sent = 0;
            for _ in 0..500 {
                sent += client.peer.send(&bytes[sent..]);
                stage.turn();
            }
            assert!(sent < bytes.len(), "{text}: all was taken");
            assert!(stage.harness.worker.hooked_frame_bytes_max() <= 128 * 1024);
            let (_, output) = stage.harness.worker.held_bytes_max(&stage.harness.reactor);
            assert!(output < 3 << 20, "{text}: {output} bytes of output");
            stage.until(|_| {
                sent += client.peer.send(&bytes[sent..]);
                server.read();
                (server.received.iter().filter(|it| *it == "100000 bytes").count() == 40)
                    .then_some(())
            });
        });
    }
}

#[test]
fn client_with_many_messages_shares_the_turns_with_others() {
    scene().listener(LISTENER).run(|stage| {
        let (client, mut server) = open(stage);
        let mut bytes = Vec::new();
        for _ in 0..5000 {
            encode_message(&mut bytes, Kind::Text, b"x", client.key());
        }
        let (mut sent, mut most) = (0, 0);
        stage.until(|_| {
            sent += client.peer.send(&bytes[sent..]);
            let before = server.received.len();
            server.read();
            most = most.max(server.received.len() - before);
            (server.received.len() == 5000).then_some(())
        });
        assert!(most <= 600, "{most} messages in a turn");
    });
}

#[test]
fn tunnel_that_is_lost_is_told_to_the_script() {
    for text in ["one", "forever"] {
        scene().listener(LISTENER).run(|stage| {
            let (client, server) = open(stage);
            client.send(text);
            stage.pass(Span::from_millis(100));
            client.peer.reset();
            stage.wait_reset(&server.peer);
            assert_eq!(next_end(stage), "/ws 1006 ");
            assert_eq!(stage.harness.worker.leftovers().lua_waiting, 0);
        });
    }
}

#[test]
fn stop_closes_a_tunnel_with_a_hook() {
    scene().listener(LISTENER).run(|stage| {
        let (mut client, mut server) = open(stage);
        client.send("one");
        server.expect(stage, &["one"]);
        stage.stop();
        let close = format!("1001 {}", LEAVES.reason);
        client.expect(stage, &[&close]);
        server.send("late");
        client.send("open");
        client.close(CloseCode::NORMAL);
        server.expect(stage, &["false", "1000 bye"]);
        server.close(CloseCode::NORMAL);
        server.peer.finish();
        client.wait_finished(stage);
        client.expect(stage, &[]);
        client.peer.finish();
        stage.wait_stopped();
    });
}

#[test]
fn stop_sends_no_second_close_frame() {
    scene().listener(LISTENER).run(|stage| {
        let (mut client, mut server) = open(stage);
        server.close(CloseCode::NORMAL);
        client.expect(stage, &["1000 bye"]);
        stage.stop();
        stage.pass(Span::from_secs(1));
        client.close(CloseCode::NORMAL);
        server.expect(stage, &["1000 bye"]);
        server.peer.finish();
        client.wait_finished(stage);
        client.expect(stage, &[]);
        client.peer.finish();
        stage.wait_stopped();
    });
}

#[test]
fn other_protocols_do_not_pass_the_hook() {
    let other = |text: &[u8]| String::from_utf8_lossy(text).replace("websocket\r\n", "chat\r\n");
    scene().listener(LISTENER).run(|stage| {
        let client = stage.dial();
        let origin = stage.forward(&client, other(UPGRADE).as_bytes());
        origin.send(other(SWITCH).as_bytes());
        assert_status(502, &stage.receive_until(&client, "\r\n\r\n"));
    });
}

#[test]
fn reload_continues_tunnels_with_earlier_code_until_its_end() {
    let text = |settings: &str| {
        format!(
            "[[listener]]\nbind = \"10.0.0.1:80\"\n{}[pool.p]\nservers = [\"10.0.1.1:8000\"]\n",
            LISTENER.replace("shared", &format!("reload-grace = \"5s\"\n{settings}shared"))
        )
    };
    let mut run = Reloaded::of(&text(""), 1);
    let server = Address::Tcp(([10, 0, 1, 1], 8000).into());
    let server = run.process.net.serve(&server).expect("the address is free");
    let client = run.process.net.dial(&run.process.workers[0].bound[0]).expect("it listens");
    client.send(UPGRADE);
    run.process.turns(20);
    let origin = server.accept().expect("the request is forwarded");
    assert!(!origin.receive().is_empty());
    origin.send(SWITCH);
    run.process.turns(20);
    assert!(!client.receive().is_empty());
    let (mut client, mut server) = (End::new(client, Role::Client), End::new(origin, Role::Server));
    assert_eq!(run.reload(&text("settings = { changed = true }\n")), Ok(()));
    client.send("count");
    run.process.turns(20);
    server.read();
    assert_eq!(server.received, ["client 1"]);
    run.pass(Span::from_secs(7));
    for end in [&mut client, &mut server] {
        end.read();
        let last = end.received.last().map(String::as_str);
        assert_eq!(last, Some("1012 the application was reloaded"));
        end.close(CloseCode::NORMAL);
    }
    run.process.turns(40);
    client.peer.reset();
    server.peer.reset();
    run.process.finish(Vec::new());
}

/// Text messages, encoded.
fn encoded(texts: &[&str], key: Option<[u8; 4]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in texts {
        encode_message(&mut bytes, Kind::Text, text.as_bytes(), key);
    }
    bytes
}

#[test]
fn hook_sees_the_messages_of_a_stream_of_http2() {
    let listener = format!("h2c = true\n{LISTENER}");
    scene().listener(&listener).run(|stage| {
        let mut client = Speaker::new(stage);
        client.hello(stage);
        let (stream, origin) = open_tunnel_at(stage, &mut client, "/ws");
        let mut server = End::new(origin, Role::Server);
        let sent =
            encoded(&["one", "drop", "upper", "reply", "sleep", "count"], Some([1, 2, 3, 4]));
        for piece in sent.chunks(7) {
            client.data(stage.net.now(), stream, piece, false);
            client.pump(stage.net.now());
        }
        stage.until(|stage| {
            client.pump(stage.net.now());
            server.read();
            (server.received == ["one", "UPPER", "slept", "client 1"]).then_some(())
        });
        server.send("two");
        server.send("upper");
        server.send("count");
        let mut wanted = encoded(&["no /ws", "two", "UPPER", "server 2"], None);
        wait(stage, &mut client, stream, |response| (response.body == wanted).then_some(()));
        let close = Close { code: CloseCode::NORMAL, reason: "bye" };
        client.data(stage.net.now(), stream, &close_frame(close, true), true);
        stage.until(|stage| {
            client.pump(stage.net.now());
            server.read();
            (server.received.last().is_some_and(|last| last == "1000 bye")).then_some(())
        });
        server.close(CloseCode::NORMAL);
        server.peer.finish();
        let response = client.wait(stage, stream);
        wanted.extend(close_frame(close, false));
        assert_eq!((response.body, response.has_ended, response.reset), (wanted, true, None));
        assert_eq!(next_end(stage), "/ws 1000 bye");
    });
}

#[test]
fn message_that_cannot_be_replaced_is_not_forwarded_after_a_close_frame() {
    scene().listener(LISTENER).run(|stage| {
        let (mut client, mut server) = open(stage);
        client.close(CloseCode::NORMAL);
        server.expect(stage, &["1000 bye"]);
        server.send("invalid");
        client.expect(stage, &["1011 "]);
        server.close(CloseCode::NORMAL);
        client.wait_finished(stage);
        client.expect(stage, &[]);
    });
}

#[test]
fn tunnel_does_not_time_out_while_the_hook_waits() {
    scene().listener(LISTENER).pool("timeouts = { tunnel = \"400ms\" }").run(|stage| {
        let (mut client, mut server) = open(stage);
        client.send("sleep");
        server.expect(stage, &["slept"]);
        let began = stage.net.now();
        stage.wait_reset(&server.peer);
        assert!(stage.net.now().since(began) < Span::from_secs(1), "afterwards it does");
        client.read();
        assert_eq!(client.received, [""; 0]);
    });
}

#[test]
fn vm_near_its_memory_limit_ends_the_calls_with_the_largest_messages() {
    let listener = LISTENER.replace("shared", "memory-max = \"8MiB\"\nshared");
    scene().listener(&listener).run(|stage| {
        let (quiet, mut quiet_server) = open(stage);
        let (waiting, mut waiting_server) = open(stage);
        let mut large: Vec<_> = (0..20).map(|_| open(stage)).collect();
        waiting.send("sleep");
        for (number, (client, _)) in large.iter().enumerate() {
            // A VM keeps equal texts once.
            let (mut bytes, mut sent) = (Vec::new(), 0);
            let data = vec![number as u8; 500_000];
            encode_message(&mut bytes, Kind::Binary, &data, client.key());
            while sent < bytes.len() {
                sent += client.peer.send(&bytes[sent..]);
                stage.turn();
            }
        }
        waiting_server.expect(stage, &["slept"]);
        quiet.send("one");
        quiet_server.expect(stage, &["one"]);
        let counters = stage.counters();
        assert_eq!(counters.lua_restarts.load(), 0);
        let evictions = counters.lua_evictions.load();
        assert!((5..20).contains(&evictions), "{evictions}");
        let is_closed = |(client, server): &mut (End, End)| {
            client.read();
            server.read();
            assert_eq!(client.received, server.received);
            client.received == ["1011 "]
        };
        let closed = large.iter_mut().filter_map(|ends| is_closed(ends).then_some(())).count();
        assert!(closed as u64 > evictions, "{closed}: and those whose calls have failed");
        assert_eq!(next_end(stage), "/ws 1011 ");
    });
}

/// Opens a WebSocket of a client of HTTP/2 that does not read what comes on it. Returns the server's end, too, if there is one.
fn open_unread(stage: &mut Stage, path: &str) -> (Speaker, u32, Option<SimPeer>) {
    let mut client = Speaker::new(stage);
    client.hello(stage);
    let stream = client.connect("websocket", path, false);
    client.pump(stage.net.now());
    let origin = (path == "/ws").then(|| stage.accept());
    if let Some(origin) = &origin {
        let request = stage.receive_until(origin, "\r\n\r\n");
        origin.send(&switching(&request, ""));
    }
    wait(stage, &mut client, stream, |response| (response.status == 200).then_some(()));
    client.unread.push(stream);
    (client, stream, origin)
}

#[test]
fn client_of_http_2_that_grants_no_window_is_closed_with_1013() {
    for path in ["/ws", "/ends"] {
        scene().listener(&format!("h2c = true\n{LISTENER}")).run(|stage| {
            let (mut client, stream, _origin) = open_unread(stage, path);
            let mut message = Vec::new();
            encode_message(&mut message, Kind::Text, b"many", Some([1, 2, 3, 4]));
            for _ in 0..100 {
                client.data(stage.net.now(), stream, &message, false);
                client.pump(stage.net.now());
                stage.pass(Span::from_millis(20));
                let held = stage.harness.worker.stream_bytes_held();
                assert!(held < 1_400_000, "{path}: {held} bytes wait for the client");
                if stage.counters().lua_slow_clients.load() > 0 {
                    break;
                }
            }
            assert_eq!(stage.counters().lua_slow_clients.load(), 1, "{path}");
        });
    }
}
