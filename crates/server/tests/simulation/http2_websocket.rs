//! WebSocket over HTTP/2 (RFC 8441) on the simulator: the action `echo`, and tunnels to a server of HTTP/1.1.
//! In: extended CONNECT and DATA of a client. Out: what each test's name says.
//! Invariant: after each case the worker holds nothing.

use tidegate_base::Span;
use tidegate_base::limits::READ_BUFFER_BYTES;
use tidegate_reactor::SimPeer;
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::http2::ErrorCode;
use tidegate_wire::message::FieldStorage;
use tidegate_wire::websocket::{
    Close, CloseCode, Kind, MaskKey, Origins, Policy, encode_close, encode_message,
};

use crate::speaker::{Response, Speaker};
use crate::stage::{Scene, Stage, scene};
use crate::websocket_tunnel::{LEAVES, close_frame, message};

const ECHO: &str = "h2c = true\ntimeouts = { head = \"1h\", body = \"1h\" }\n\
                    [[route]]\npath = \"/echo\"\necho = true\n";
/// What a tunnel may hold whose client does not read: a piece of the server's output, and the bytes of one read.
const HELD_BYTES_MAX: usize = 4 * READ_BUFFER_BYTES;

fn play(pool: &str, case: impl FnOnce(&mut Stage, Speaker)) {
    let scene: Scene<'_> = scene().listener(ECHO).pool(pool);
    scene.run(|stage| {
        let mut client = Speaker::new(stage);
        // The server's SETTINGS allow the extended CONNECT.
        client.hello(stage);
        case(stage, client);
    });
}

/// Waits until `look` returns something about what came on the stream.
pub fn wait<T>(
    stage: &mut Stage,
    client: &mut Speaker,
    stream: u32,
    look: impl Fn(&Response) -> Option<T>,
) -> T {
    stage.until(|stage| {
        client.pump(stage.net.now());
        look(&client.responses[&stream])
    })
}

/// Waits for the head of a response; returns its status.
fn status(stage: &mut Stage, client: &mut Speaker, stream: u32) -> u16 {
    wait(stage, client, stream, |response| (response.status > 0).then_some(response.status))
}

/// Waits for `count` bytes.
fn bytes(stage: &mut Stage, client: &mut Speaker, stream: u32, count: usize) -> Vec<u8> {
    wait(stage, client, stream, |response| {
        (response.body.len() >= count).then(|| response.body.clone())
    })
}

fn key() -> Option<MaskKey> {
    Some([1, 2, 3, 4])
}

/// The 101 response to a request, and `rest` after it.
pub fn switching(request: &str, rest: &str) -> Vec<u8> {
    let limits = HeadLimits::default();
    let mut storage = FieldStorage::new();
    let decoded = HeadDecoder::default().decode_request(request.as_bytes(), &limits, &mut storage);
    let (head, _) = decoded.expect("a valid head").expect("a whole head");
    let origins = Origins::parse(["*"]).expect("a list of origins");
    let policy = Policy { subprotocols: Vec::new(), origins, deflate: None };
    let accept = policy.check(&head).expect("a request for a WebSocket");
    let mut response = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
    accept.encode_fields(&mut response);
    response.extend_from_slice(b"X-Mine: 1\r\n\r\n");
    response.extend_from_slice(rest.as_bytes());
    response
}

/// Opens a tunnel; returns its stream and the server's end.
fn open_tunnel(stage: &mut Stage, client: &mut Speaker) -> (u32, SimPeer) {
    open_tunnel_at(stage, client, "/chat")
}

/// As `open_tunnel`, for this path.
pub fn open_tunnel_at(stage: &mut Stage, client: &mut Speaker, path: &str) -> (u32, SimPeer) {
    let stream = client.connect("websocket", path, false);
    client.pump(stage.net.now());
    let origin = stage.accept();
    let request = stage.receive_until(&origin, "\r\n\r\n");
    origin.send(&switching(&request, ""));
    assert_eq!(status(stage, client, stream), 200);
    (stream, origin)
}

#[test]
fn echo_sends_messages_back_however_they_are_split() {
    for piece in [1, 2, 3, 7, 100, 1000] {
        play("", |stage, mut client| {
            let stream = client.connect("websocket", "/echo", false);
            let (mut sent, mut wanted) = (Vec::new(), Vec::new());
            for message in [&b""[..], b"a", b"hello", &[b'x'; 700]] {
                encode_message(&mut sent, Kind::Text, message, key());
                encode_message(&mut wanted, Kind::Text, message, None);
            }
            // Some of it before the response.
            for piece in sent.chunks(piece) {
                client.data(stage.net.now(), stream, piece, false);
                client.pump(stage.net.now());
                if piece.len() > 5 {
                    stage.turn();
                }
            }
            assert_eq!(bytes(stage, &mut client, stream, wanted.len()), wanted, "{piece}");
            let mut close = Vec::new();
            encode_close(&mut close, Some(Close::new(CloseCode::NORMAL)), key());
            encode_close(&mut wanted, Some(Close::new(CloseCode::NORMAL)), None);
            client.data(stage.net.now(), stream, &close, true);
            let response = client.wait(stage, stream);
            assert_eq!((response.body, response.has_ended, response.reset), (wanted, true, None));
            client.hello(stage);
        });
    }
}

#[test]
fn stop_closes_websockets_of_streams_with_1001() {
    play("", |stage, mut client| {
        let stream = client.connect("websocket", "/echo", false);
        assert_eq!(status(stage, &mut client, stream), 200);
        stage.stop();
        let mut wanted = Vec::new();
        encode_close(&mut wanted, Some(Close::new(CloseCode::GOING_AWAY)), None);
        assert_eq!(bytes(stage, &mut client, stream, wanted.len()), wanted);
        let mut reply = Vec::new();
        encode_close(&mut reply, Some(Close::new(CloseCode::GOING_AWAY)), key());
        client.data(stage.net.now(), stream, &reply, true);
        assert!(client.wait(stage, stream).has_ended);
        stage.until(|stage| {
            client.pump(stage.net.now());
            client.is_over().then_some(())
        });
    });
}

#[test]
fn stop_closes_forwarded_websockets_of_streams() {
    play("", |stage, mut client| {
        let (stream, origin) = open_tunnel(stage, &mut client);
        let before = client.responses[&stream].body.clone();
        let frame = message(1000);
        origin.send(&frame[..10]);
        bytes(stage, &mut client, stream, before.len() + 10);
        stage.stop();
        stage.pass(Span::from_millis(500));
        origin.send(&[&frame[10..], &frame].concat());
        let wanted = [before, frame, close_frame(LEAVES, false)].concat();
        assert_eq!(bytes(stage, &mut client, stream, wanted.len()), wanted);
        let reply = close_frame(LEAVES, true);
        client.data(stage.net.now(), stream, &reply, true);
        client.pump(stage.net.now());
        let mut received = Vec::new();
        stage.until(|_| {
            received.extend(origin.receive());
            (received.len() >= reply.len()).then_some(())
        });
        origin.send(&close_frame(LEAVES, false));
        origin.finish();
        let response = client.wait(stage, stream);
        assert_eq!((response.body, response.has_ended, response.reset), (wanted, true, None));
        stage.until(|stage| {
            client.pump(stage.net.now());
            client.is_over().then_some(())
        });
    });
}

#[test]
fn extended_connect_without_a_websocket_is_refused() {
    play("", |stage, mut client| {
        for (protocol, path, ends, wanted) in [
            ("connect-udp", "/echo", false, 501),
            ("websocket", "/hello", false, 501),
            ("websocket", "/synthetic", false, 501),
            ("websocket", "/echo", true, 400),
        ] {
            let stream = client.connect(protocol, path, ends);
            let response = client.wait(stage, stream);
            assert_eq!(response.status, wanted, "{protocol} {path} {ends}");
        }
        client.hello(stage);
    });
}

#[test]
fn tunnel_to_a_server_relays_bytes_both_ways() {
    play("", |stage, mut client| {
        let stream = client.connect("websocket", "/chat?room=1", false);
        // Early bytes wait for the server's response.
        client.data(stage.net.now(), stream, b"early", false);
        client.pump(stage.net.now());
        let origin = stage.accept();
        let request = stage.receive_until(&origin, "\r\n\r\n");
        assert!(request.starts_with("GET /chat?room=1 HTTP/1.1\r\nHost: a\r\n"), "{request}");
        for line in ["Connection: upgrade\r\n", "Upgrade: websocket\r\n", "Sec-WebSocket-Key: "] {
            assert!(request.contains(line), "{line} in {request}");
        }
        assert!(request.ends_with("\r\n\r\n") && !request.contains("chunked"), "{request}");
        stage.pass(Span::from_millis(100));
        assert_eq!(origin.receive(), b"", "before the response");
        origin.send(&switching(&request, "first"));
        assert_eq!(bytes(stage, &mut client, stream, 5), b"first");
        assert_eq!(stage.receive_until(&origin, "early"), "early");
        client.data(stage.net.now(), stream, b"more", false);
        client.pump(stage.net.now());
        assert_eq!(stage.receive_until(&origin, "more"), "more");
        // Each direction ends by itself.
        client.data(stage.net.now(), stream, b"last", true);
        client.pump(stage.net.now());
        assert_eq!(stage.receive_until(&origin, "last"), "last");
        stage.wait_finished(&origin);
        origin.send(b"done");
        origin.finish();
        let response = client.wait(stage, stream);
        assert_eq!((&response.body[..], response.reset), (&b"firstdone"[..], None));
        assert_eq!(stage.counters().tunnels.load(), 1);
        client.hello(stage);
    });
}

#[test]
fn server_that_does_not_switch_opens_no_tunnel() {
    let wrong = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    for (response, wanted) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 502),
        ("HTTP/1.1 204 No Content\r\n\r\n", 502),
        (wrong, 502),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403),
        ("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", 302),
    ] {
        play("", |stage, mut client| {
            let stream = client.connect("websocket", "/chat", false);
            client.data(stage.net.now(), stream, b"early", false);
            client.pump(stage.net.now());
            let origin = stage.accept();
            stage.receive_until(&origin, "\r\n\r\n");
            origin.send(response.as_bytes());
            assert_eq!(client.wait(stage, stream).status, wanted, "{response}");
            assert_eq!(origin.receive(), b"", "{response}");
            client.hello(stage);
        });
    }
}

#[test]
fn reset_of_either_side_resets_the_other() {
    play("", |stage, mut client| {
        let (stream, origin) = open_tunnel(stage, &mut client);
        client.reset(stream);
        client.pump(stage.net.now());
        stage.wait_reset(&origin);
        let (stream, origin) = open_tunnel(stage, &mut client);
        origin.reset();
        assert_eq!(client.wait(stage, stream).reset, Some(ErrorCode::CANCEL));
        // RFC 9113 section 8.5: no trailers.
        let (stream, origin) = open_tunnel(stage, &mut client);
        client.trailers(stream, "x", "y");
        assert_eq!(client.wait(stage, stream).reset, Some(ErrorCode::PROTOCOL_ERROR));
        stage.wait_reset(&origin);
        client.hello(stage);
    });
}

#[test]
fn lost_connection_ends_its_tunnels_and_websockets() {
    play("", |stage, mut client| {
        let (_, origin) = open_tunnel(stage, &mut client);
        let echo = client.connect("websocket", "/echo", false);
        assert_eq!(status(stage, &mut client, echo), 200);
        client.peer.finish();
        stage.wait_finished(&origin);
        origin.finish();
        stage.until(|stage| (stage.counters().websockets_now.load() == 0).then_some(()));
    });
    play("", |stage, mut client| {
        let (_, origin) = open_tunnel(stage, &mut client);
        client.peer.reset();
        stage.wait_reset(&origin);
    });
}

#[test]
fn connection_closes_when_its_client_ends_it_without_ending_its_websockets() {
    play("", |stage, mut client| {
        let echo = client.connect("websocket", "/echo", false);
        assert_eq!(status(stage, &mut client, echo), 200);
        client.peer.finish();
        stage.until(|_| {
            drop(client.peer.receive());
            client.is_over().then_some(())
        });
    });
    play("", |stage, mut client| {
        let (_, origin) = open_tunnel(stage, &mut client);
        client.peer.finish();
        stage.wait_finished(&origin);
        origin.finish();
        stage.until(|_| {
            drop(client.peer.receive());
            client.is_over().then_some(())
        });
    });
}

#[test]
fn client_that_does_not_read_holds_its_tunnel_only() {
    const BYTES: usize = 3 << 20;
    play("", |stage, mut client| {
        let (stream, origin) = open_tunnel(stage, &mut client);
        client.unread.push(stream);
        let mut left = BYTES;
        for _ in 0..300 {
            left -= origin.send(&vec![b'x'; left.min(50_000)]);
            client.pump(stage.net.now());
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        assert!(left > 0, "the tunnel took everything");
        let held = stage.harness.worker.stream_bytes_held();
        assert!(held < HELD_BYTES_MAX, "{held} bytes are held");
        client.hello(stage);
        // The other direction still works.
        client.data(stage.net.now(), stream, b"up", false);
        client.pump(stage.net.now());
        assert_eq!(stage.receive_until(&origin, "up"), "up");
        client.unread.clear();
        let received = client.responses[&stream].body.len();
        client.credit(stream, received);
        stage.until(|stage| {
            left -= origin.send(&vec![b'x'; left.min(50_000)]);
            client.pump(stage.net.now());
            (client.responses[&stream].body.len() == BYTES).then_some(())
        });
    });
}

#[test]
fn server_that_does_not_read_holds_the_window_of_its_stream() {
    const BYTES: usize = 3 << 20;
    play("", |stage, mut client| {
        let (stream, origin) = open_tunnel(stage, &mut client);
        let data = vec![b'x'; BYTES];
        let mut sent = 0;
        for _ in 0..300 {
            sent += client.data_some(stage.net.now(), stream, &data[sent..], false);
            client.pump(stage.net.now());
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        assert!(sent < BYTES, "the tunnel took everything");
        client.hello(stage);
        let mut received = 0;
        stage.until(|stage| {
            sent += client.data_some(stage.net.now(), stream, &data[sent..], false);
            client.pump(stage.net.now());
            received += origin.receive().len();
            (received == BYTES).then_some(())
        });
    });
}

#[test]
fn silent_tunnel_times_out() {
    play("timeouts = { tunnel = \"10s\" }", |stage, mut client| {
        let (stream, origin) = open_tunnel(stage, &mut client);
        stage.pass(Span::from_secs(8));
        client.data(stage.net.now(), stream, b"a", false);
        client.pump(stage.net.now());
        stage.pass(Span::from_secs(8));
        assert!(!origin.was_reset(), "a byte was transferred");
        assert_eq!(client.wait(stage, stream).reset, Some(ErrorCode::CANCEL));
        stage.wait_reset(&origin);
        assert_eq!(stage.counters().tunnel_timeouts.load(), 1);
        client.hello(stage);
    });
}

#[test]
fn client_that_pauses_keeps_its_tunnel_for_its_timeout() {
    play("timeouts = { tunnel = \"10s\" }", |stage, mut client| {
        let (stream, origin) = open_tunnel(stage, &mut client);
        client.unread.push(stream);
        for _ in 0..100 {
            origin.send(&[b'x'; 50_000]);
            client.pump(stage.net.now());
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        let received = client.responses[&stream].body.len();
        stage.pass(Span::from_secs(9));
        assert!(!origin.was_reset(), "the client has paused for less than the timeout");
        // It takes a little, and pauses again.
        client.credit(stream, received);
        client.pump(stage.net.now());
        stage.pass(Span::from_secs(9));
        client.pump(stage.net.now());
        assert!(!origin.was_reset() && client.responses[&stream].body.len() > received);
        stage.pass(Span::from_secs(2));
        assert_eq!(client.wait(stage, stream).reset, Some(ErrorCode::CANCEL));
        stage.wait_reset(&origin);
        assert_eq!(stage.counters().tunnel_timeouts.load(), 1);
    });
}

#[test]
fn websockets_of_one_client_leave_room_for_those_of_others() {
    let scene: Scene<'_> = scene().listener(ECHO).socks_max(16);
    scene.run(|stage| {
        let mut client = Speaker::new(stage);
        client.hello(stage);
        for _ in 0..40 {
            let stream = client.connect("websocket", "/echo", false);
            assert_eq!(status(stage, &mut client, stream), 200);
        }
        let mut other = Speaker::new(stage);
        other.hello(stage);
        let stream = other.connect("websocket", "/echo", false);
        assert_eq!(status(stage, &mut other, stream), 200);
    });
}

#[test]
fn contexts_of_compression_are_at_most_as_many_as_connections() {
    const SLOTS: u64 = 16;
    let listener = format!("{ECHO}[websocket]\ncompression = \"dedicated\"\n");
    scene().listener(&listener).socks_max(SLOTS as usize).run(|stage| {
        let mut client = Speaker::new(stage);
        client.hello(stage);
        let mut open = |stage: &mut Stage| {
            let stream = client.connect_compressed();
            assert_eq!(status(stage, &mut client, stream), 200);
            stream
        };
        let first = open(stage);
        for _ in 1..SLOTS {
            open(stage);
        }
        assert_eq!(stage.counters().websocket_uncompressed.load(), 0);
        open(stage);
        assert_eq!(stage.counters().websocket_uncompressed.load(), 1);
        client.reset(first);
        client.hello(stage);
        let stream = client.connect_compressed();
        assert_eq!(status(stage, &mut client, stream), 200);
        assert_eq!(stage.counters().websocket_uncompressed.load(), 1, "a context is free");
    });
}
