//! Named cases of forwarded WebSockets that end with a stop or a reload: their clients get a Close frame between two frames of
//! the server.

use tidegate_base::Span;
use tidegate_reactor::SimPeer;
use tidegate_wire::websocket::{Close, CloseCode, FrameWalker, Kind, encode_close, encode_message};

use crate::settings::Changes;
use crate::stage::{Stage, assert_status, scene};

/// What a client is told when the process stops, or its listener was removed.
pub const LEAVES: Close<'static> =
    Close { code: CloseCode::GOING_AWAY, reason: "the service stops here, connect again" };
/// What a client is told when its server was removed.
const RESTARTS: Close<'static> =
    Close { code: CloseCode::SERVICE_RESTART, reason: "the service restarts, connect again" };
const UPGRADE: &[u8] =
    b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A message of a server.
pub fn message(length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_message(&mut bytes, Kind::Binary, &vec![b'x'; length], None);
    bytes
}

/// A Close frame of a server, or of a client.
pub fn close_frame(close: Close<'_>, is_masked: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_close(&mut bytes, Some(close), is_masked.then_some([1, 2, 3, 4]));
    bytes
}

/// Finds the Close frame with which a worker may end a tunnel of a random run. The other bytes are no frames, but are walked like
/// frames.
#[derive(Default)]
pub struct TunnelReader {
    walker: FrameWalker,
    /// Bytes that may be the beginning of the Close frame.
    held: Vec<u8>,
    is_closed: bool,
}

impl TunnelReader {
    /// The bytes of the server among `bytes`. `may_close`: the worker may have sent a Close frame.
    pub fn take(&mut self, bytes: &[u8], may_close: bool) -> Result<Vec<u8>, String> {
        let all = [&core::mem::take(&mut self.held)[..], bytes].concat();
        let (mut rest, mut data) = (&all[..], Vec::new());
        while !rest.is_empty() {
            if self.is_closed {
                return Err(format!("{} bytes follow the Close frame of a worker", rest.len()));
            }
            if may_close && self.walker.is_between_frames() {
                let frames = [LEAVES, RESTARTS].map(|close| close_frame(close, false));
                if let Some(frame) = frames.iter().find(|frame| rest.starts_with(frame)) {
                    self.is_closed = true;
                    rest = &rest[frame.len()..];
                    continue;
                }
                if frames.iter().any(|frame| frame.starts_with(rest)) {
                    self.held = rest.to_vec();
                    break;
                }
            }
            let count = self.walker.walk_to_end(rest);
            data.extend_from_slice(&rest[..count]);
            rest = &rest[count..];
        }
        Ok(data)
    }

    /// Bytes that are missing so far: `None` if the worker has closed the tunnel, and any number may be.
    pub fn held(&self) -> Option<u64> {
        (!self.is_closed).then_some(self.held.len() as u64)
    }
}

/// Opens a WebSocket from `client` to the origin.
fn open(stage: &mut Stage, client: &SimPeer) -> SimPeer {
    let origin = stage.forward(client, UPGRADE);
    origin.send(SWITCH);
    assert_status(101, &stage.receive_until(client, "\r\n\r\n"));
    origin
}

/// Waits until the client has received these bytes, and nothing else.
fn expect(stage: &mut Stage, client: &SimPeer, wanted: &[u8]) {
    let mut received = Vec::new();
    stage.until(|_| {
        received.extend(client.receive());
        (received.len() >= wanted.len()).then_some(())
    });
    assert_eq!(received, wanted);
}

/// Lets the origin send bytes, until the client has received these and nothing else.
fn relay(stage: &mut Stage, origin: &SimPeer, client: &SimPeer, bytes: &[u8], wanted: &[u8]) {
    let (mut sent, mut received) = (0, Vec::new());
    stage.until(|_| {
        sent += origin.send(&bytes[sent..]);
        received.extend(client.receive());
        (sent == bytes.len() && received.len() >= wanted.len()).then_some(())
    });
    assert!(received == wanted, "{} bytes", received.len());
}

/// The client replies to its Close frame, and the server, which has not sent one yet unless it is a normal one, ends the connection.
fn complete(stage: &mut Stage, client: &SimPeer, origin: &SimPeer, close: Close<'_>) {
    let reply = close_frame(close, true);
    client.send(&reply);
    expect(stage, origin, &reply);
    if close != Close::new(CloseCode::NORMAL) {
        origin.send(&close_frame(close, false));
    }
    origin.finish();
    stage.wait_finished(client);
    assert!(client.receive().is_empty(), "nothing follows the Close frame");
    client.finish();
    stage.wait_finished(origin);
}

#[test]
fn stop_closes_a_forwarded_websocket_between_two_frames() {
    for length in [0, 5, 300, 70_000] {
        let frame = message(length);
        for cut in [0, 1, 2, frame.len() / 2, frame.len() - 1, frame.len()] {
            scene().with_client(|stage, client| {
                let origin = open(stage, &client);
                let all = [&frame[..], &frame].concat();
                relay(stage, &origin, &client, &all[..cut], &all[..cut]);
                stage.stop();
                // The rest of the frame goes to the client, and the next one does not.
                stage.pass(Span::from_millis(500));
                let rest = if cut == 0 || cut == frame.len() { &[][..] } else { &frame[cut..] };
                let wanted = [rest, &close_frame(LEAVES, false)].concat();
                relay(stage, &origin, &client, &all[cut..], &wanted);
                complete(stage, &client, &origin, LEAVES);
                stage.wait_stopped();
                assert_eq!(stage.counters().tunnels_closed.load(), 1);
                stage.assert_bounded();
            });
        }
    }
}

#[test]
fn server_that_closes_is_not_interrupted() {
    scene().with_client(|stage, client| {
        let origin = open(stage, &client);
        let close = close_frame(Close::new(CloseCode::NORMAL), false);
        origin.send(&close[..1]);
        expect(stage, &client, &close[..1]);
        stage.stop();
        stage.pass(Span::from_millis(500));
        origin.send(&close[1..]);
        expect(stage, &client, &close[1..]);
        complete(stage, &client, &origin, Close::new(CloseCode::NORMAL));
        assert_eq!(stage.counters().tunnels_closed.load(), 0);
    });
}

#[test]
fn websocket_that_opens_during_a_stop_is_closed_at_once() {
    scene().with_client(|stage, client| {
        let origin = stage.forward(&client, UPGRADE);
        stage.stop();
        stage.pass(Span::from_millis(500));
        origin.send(SWITCH);
        let end = "connect again";
        let answer = stage.receive_until(&client, end);
        assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with(end), "{answer:?}");
        complete(stage, &client, &origin, LEAVES);
        stage.wait_stopped();
    });
}

#[test]
fn client_that_does_not_reply_is_closed_after_10_seconds() {
    scene().with_client(|stage, client| {
        let origin = open(stage, &client);
        stage.stop();
        expect(stage, &client, &close_frame(LEAVES, false));
        let began = stage.net.now();
        // Bytes of either side do not extend the time.
        for _ in 0..9 {
            stage.pass(Span::from_secs(1));
            client.send(b"more");
            origin.send(&message(100));
        }
        stage.wait_reset(&origin);
        stage.wait_finished(&client);
        assert!(client.receive().is_empty() && !client.was_reset());
        let span = stage.net.now().since(began);
        assert!((Span::from_secs(9)..Span::from_secs(12)).contains(&span), "{span:?}");
    });
}

#[test]
fn client_that_does_not_read_gets_the_frame_before_its_close() {
    scene().with_client(|stage, client| {
        let origin = open(stage, &client);
        stage.net.set_window_bytes(1000);
        let frame = message(3 << 20);
        let mut sent = 0;
        for _ in 0..300 {
            sent += origin.send(&frame[sent..]);
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        assert!(sent < frame.len());
        stage.stop();
        stage.pass(Span::from_millis(500));
        let mut received = Vec::new();
        let wanted = [&frame[..], &close_frame(LEAVES, false)].concat();
        stage.until(|_| {
            sent += origin.send(&frame[sent..]);
            received.extend(client.receive());
            (received.len() >= wanted.len()).then_some(())
        });
        assert!(received == wanted, "{} bytes", received.len());
        complete(stage, &client, &origin, LEAVES);
        stage.assert_bounded();
    });
}

#[test]
fn tunnel_of_another_protocol_lasts_until_the_grace_period_is_over() {
    let other = |text: &[u8]| String::from_utf8_lossy(text).replace("websocket\r\n", "chat\r\n");
    scene().with_client(|stage, client| {
        let origin = stage.forward(&client, other(UPGRADE).as_bytes());
        origin.send(other(SWITCH).as_bytes());
        stage.receive_until(&client, "\r\n\r\n");
        let began = stage.net.now();
        stage.stop();
        stage.wait_reset(&client);
        assert!(stage.net.now().since(began) >= Span::from_secs(29));
        assert!(client.receive().is_empty());
    });
}

#[test]
fn reload_that_removes_the_server_or_the_listener_closes_its_websockets_over_time() {
    const LISTENERS: &str = "timeouts = { idle = \"1h\" }\n[[listener]]\nname = \"second\"\nbind = \"10.0.0.1:81\"\n\
        [server]\ndrain = { reload = \"20s\" }\n";
    const SERVERS: &str = "servers = [\"10.0.1.1:8000\", \"10.0.1.9:8000\"]";
    const NO_LISTENER: (&str, &str) =
        ("[[listener]]\nname = \"second\"\nbind = \"10.0.0.1:81\"\n", "");
    const NO_SERVER: (&str, &str) = ("\"10.0.1.1:8000\", ", "");
    for (edit, closed, close) in [(NO_LISTENER, 1, LEAVES), (NO_SERVER, 0, RESTARTS)] {
        scene().listener(LISTENERS).pool(SERVERS).run(|stage| {
            let bound = stage.harness.bound.clone();
            let open_at = |stage: &mut Stage, at: usize| {
                let client = stage.net.dial(&bound[at]).expect("the worker listens");
                let origin = open(stage, &client);
                (client, origin)
            };
            let mut pairs: Vec<_> = (0..20).map(|_| open_at(stage, closed)).collect();
            let (client, origin) = open_at(stage, 0);
            let mut changes = Changes::of(stage);
            changes.apply(stage, &[edit]).expect("it is valid");
            // Another reload in between changes nothing.
            stage.pass(Span::from_secs(5));
            changes.apply(stage, &[edit]).expect("it is valid");
            let frame = close_frame(close, false);
            let mut counts = Vec::new();
            for _ in 0..10 {
                let before = pairs.len();
                pairs.retain(|(client, origin)| {
                    let received = client.receive();
                    if !received.is_empty() {
                        assert_eq!(received, frame);
                        complete(stage, client, origin, close);
                    }
                    received.is_empty()
                });
                counts.push(before - pairs.len());
                stage.pass(Span::from_secs(3));
            }
            assert!(
                pairs.is_empty() && counts.iter().filter(|count| **count > 0).count() >= 5,
                "{counts:?}"
            );
            match close == LEAVES {
                true => {
                    client.send(b"up");
                    expect(stage, &origin, b"up");
                    origin.send(b"\x82\x00");
                    expect(stage, &client, b"\x82\x00");
                }
                // Its server was removed, too.
                false => expect(stage, &client, &frame),
            }
        });
    }
}

#[test]
fn websocket_that_opens_after_its_server_was_removed_is_closed_at_once() {
    const SERVERS: &str = "servers = [\"10.0.1.1:8000\"]";
    scene().pool(SERVERS).with_client(|stage, client| {
        let origin = stage.forward(&client, UPGRADE);
        let edit = (SERVERS, "servers = [\"10.0.1.9:8000\"]");
        Changes::of(stage).apply(stage, &[edit]).expect("it is valid");
        stage.pass(Span::from_secs(60));
        origin.send(SWITCH);
        let end = "connect again";
        let answer = stage.receive_until(&client, end);
        assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with(end), "{answer:?}");
        complete(stage, &client, &origin, RESTARTS);
    });
}

#[test]
fn reload_that_removes_the_listener_closes_its_own_websockets() {
    const LISTENER: &str = "[[listener]]\nname = \"second\"\nbind = \"10.0.0.1:81\"\n";
    let text = format!(
        "{LISTENER}[[route]]\npath = \"/echo\"\necho = true\n[server]\ndrain = {{ reload = \"0s\" }}\n"
    );
    scene().listener(&text).run(|stage| {
        let request = String::from_utf8_lossy(UPGRADE).replace("/chat", "/echo");
        let clients: Vec<SimPeer> = stage
            .harness
            .bound
            .clone()
            .iter()
            .map(|bound| stage.net.dial(bound).expect("the worker listens"))
            .collect();
        for client in &clients {
            client.send(request.as_bytes());
            assert_status(101, &stage.receive_until(client, "\r\n\r\n"));
        }
        Changes::of(stage).apply(stage, &[(LISTENER, "")]).expect("it is valid");
        expect(stage, &clients[1], &close_frame(Close::new(CloseCode::GOING_AWAY), false));
        clients[1].send(&close_frame(Close::new(CloseCode::GOING_AWAY), true));
        stage.wait_finished(&clients[1]);
        clients[0].send(b"\x82\x81\0\0\0\0x");
        expect(stage, &clients[0], b"\x82\x01x");
    });
}
