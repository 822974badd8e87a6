//! WebSocket connections of scripts to servers: handshakes and messages.
//! In: scripts, bytes of a server. Out: the bytes for the server, responses of scripts.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, ScriptRequestId, SocketId};
use tidegate_wire::websocket::{
    Close, CloseCode, Decoder, FrameRules, Incoming, Kind, Limits, Role, accept_key_of,
    encode_close, encode_message, encode_ping,
};

/// The number of the VM.
const LIFE: u32 = 2;

struct Talk {
    app: App,
    request: ScriptRequestId,
    socket: SocketId,
    /// The head of the request.
    head: String,
    decoder: Decoder,
}

impl Talk {
    /// Runs a script that connects with these options and then runs `body`, up to the response to the handshake.
    fn begin(options: &str, body: &str) -> Self {
        let text = format!(
            "return {{ on_request = function(request, response)
                local ws, protocol = tide.websocket.connect('api', {{ {options} }})
                if not ws then return response:finish('no ' .. protocol) end
                {body} end }}"
        );
        let mut app = App::load(&text, &TIMED);
        let request = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(app.vm.request(request), CallbackEnd::Waiting);
        app.effects();
        let socket = app.sockets.remove(0).0;
        assert!(app.vm.socket_begun(socket, 5));
        app.vm.socket_connected(LIFE, socket, false);
        app.advance(0);
        app.effects();
        let head = app.sockets.remove(0).1.replacen("5 send ", "", 1);
        app.raw.clear();
        let decoder = Decoder::new(FrameRules { role: Role::Server, allows_deflate: false });
        Self { app, request, socket, head, decoder }
    }

    fn key(&self) -> &str {
        self.head
            .split("Sec-WebSocket-Key: ")
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .expect("a key")
    }

    fn receive(&mut self, bytes: &[u8]) {
        assert!(self.app.vm.socket_received(LIFE, self.socket, bytes));
        self.app.advance(0);
    }

    /// Accepts the handshake, with more fields and more bytes after the head.
    fn accept(&mut self, fields: &str, more: &[u8]) {
        let key = accept_key_of(self.key().as_bytes()).expect("a valid key");
        let key = core::str::from_utf8(&key).expect("ASCII");
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {key}\r\n{fields}\r\n"
        );
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(more);
        self.receive(&bytes);
    }

    /// The frames that the server gets, after the script's response if there is one.
    fn sent(&mut self) -> Vec<String> {
        let response = self.app.effects();
        let mut frames: Vec<String> =
            response.map(|(_, text)| format!("response {text}")).into_iter().collect();
        let bytes = core::mem::take(&mut self.app.raw);
        let (mut input, mut message) = (bytes, Vec::new());
        let mut rest = &mut input[..];
        while !rest.is_empty() {
            let step = self.decoder.decode_message(rest, &Limits::default(), &mut message, None);
            let step = step.expect("the script keeps to the protocol");
            let consumed = step.consumed;
            frames.extend(step.incoming.map(|incoming| match incoming {
                Incoming::Message(message) => {
                    format!("{:?} {}", message.kind(), String::from_utf8_lossy(message.bytes()))
                }
                Incoming::Close(close) => {
                    format!("close {:?}", close.map(|close| close.code.get()))
                }
                Incoming::Ping(_) => "ping".to_owned(),
                Incoming::Pong(data) => format!("pong {}", String::from_utf8_lossy(data)),
            }));
            rest = &mut rest[consumed..];
        }
        frames
    }
}

fn frame(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    frame(|out| encode_message(out, Kind::Text, text.as_bytes(), None))
}

#[test]
fn handshake_has_the_parts_of_the_options() {
    let options =
        "path = '/chat?a=b', host = 'h:1', headers = { ['X-A'] = 1 }, protocols = { 'v2', 'v1' }";
    let mut talk = Talk::begin(options, "response:finish(protocol)");
    for part in [
        "GET /chat?a=b HTTP/1.1\r\nHost: h:1\r\n",
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v2, v1\r\nX-A: 1\r\n\r\n",
    ] {
        assert!(talk.head.contains(part), "{}", talk.head);
    }
    talk.accept("Sec-WebSocket-Protocol: v1\r\n", b"");
    assert_eq!(talk.sent(), ["response v1"]);
    let other = Talk::begin("", "");
    assert!(other.head.starts_with("GET / HTTP/1.1\r\nHost: api\r\n"), "{}", other.head);
}

#[test]
fn wrong_handshakes_are_refused() {
    for (response, expected) in [
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "(status 403)"),
        (
            "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            "does not match the key",
        ),
        ("not HTTP\r\n\r\n", "malformed"),
    ] {
        let mut talk = Talk::begin("", "");
        talk.receive(response.as_bytes());
        let sent = talk.sent();
        assert!(sent[0].starts_with("response no ") && sent[0].contains(expected), "{sent:?}");
        assert_eq!(talk.app.vm.take_closed_socket(), Some(5));
    }
    let mut talk = Talk::begin("timeout = 2", "");
    talk.receive(b"HTTP/1.1 101 Swi");
    talk.app.advance(2000);
    assert_eq!(talk.sent(), ["response no timeout"]);
    let mut talk = Talk::begin("", "");
    talk.accept("Sec-WebSocket-Extensions: permessage-deflate\r\n", b"");
    assert!(talk.sent()[0].contains("extensions do not fit"));
}

#[test]
fn messages_arrive_in_pieces_and_pings_are_answered() {
    let body = "assert(ws:send('hello')) assert(ws:send('\\255', 'binary')) assert(select(2, ws:send('\\255')))
        local parts = {} for at = 1, 3 do local data, kind = ws:receive() parts[at] = kind .. ' ' .. data end
        response:finish(table.concat(parts, '|'))";
    let mut talk = Talk::begin("", body);
    let mut first = text("one");
    first.extend(frame(|out| encode_ping(out, b"p", None).expect("it fits")));
    talk.accept("", &first);
    let sent = talk.sent();
    assert_eq!(
        sent[..3],
        ["Text hello".to_owned(), format!("Binary {}", '\u{fffd}'), "pong p".to_owned()]
    );
    // A fragmented text message whose bytes arrive one by one.
    for byte in [0x01, 2, b't', b'w', 0x80, 1, b'o', 0x82, 1, 7] {
        talk.receive(&[byte]);
    }
    assert_eq!(talk.sent(), ["response text one|text two|binary \u{7}"]);
    talk.app.vm.close_request(talk.request);
    assert_eq!(talk.app.vm.sockets(), 0);
}

#[test]
fn ends_and_protocol_errors_are_reported() {
    let body = "local data, err, code, reason = ws:receive()
        response:finish(tostring(data) .. ' ' .. err .. ' ' .. tostring(code) .. ' ' .. tostring(reason))";
    let close = Close { code: CloseCode::GOING_AWAY, reason: "bye" };
    for (bytes, expected, close_sent) in [
        (frame(|out| encode_close(out, Some(close), None)), "nil closed 1001 bye", Some(1001)),
        (frame(|out| encode_close(out, None, None)), "nil closed 1005 ", Some(1000)),
        (vec![0x81, 1, 0xff], "nil the server violated the protocol", Some(1007)),
        (vec![0x83, 0], "nil the server violated the protocol", Some(1002)),
        (text(&"x".repeat(200)), "nil the server violated the protocol", Some(1009)),
    ] {
        let mut talk = Talk::begin("message_max = 100", body);
        talk.accept("", &bytes);
        let sent = talk.sent();
        assert!(sent[0].starts_with(&format!("response {expected}")), "{sent:?}");
        assert_eq!(sent[1], format!("close {close_sent:?}"), "{sent:?}");
        assert_eq!(talk.app.vm.take_closed_socket(), Some(5));
    }
    let mut talk = Talk::begin("", body);
    talk.accept("", &text("cut")[..3]);
    talk.app.vm.socket_ended(LIFE, talk.socket, "closed");
    talk.app.advance(0);
    assert_eq!(talk.sent(), ["response nil closed nil nil"]);
    let mut talk =
        Talk::begin("", "ws:close(1001, 'done') response:finish(select(2, ws:send('x')))");
    talk.accept("", b"");
    assert_eq!(talk.sent(), ["response closed", "close Some(1001)"]);
}

#[test]
fn wrong_use_is_an_error() {
    for (options, expected) in [
        ("path = 'a'", "no the path must begin with a slash"),
        ("path = '/a b'", "no the path must begin with a slash and be"),
        ("host = 'a b'", "no the host must be"),
        ("protocols = { 'a b' }", "no a subprotocol must be a token"),
        ("headers = { ['Sec-WebSocket-Key'] = 'x' }", "no fields Sec-WebSocket-* cannot be set"),
    ] {
        let text = format!(
            "return {{ on_request = function(request, response)
                response:finish('no ' .. select(2, tide.websocket.connect('api', {{ {options} }}))) end }}"
        );
        let mut app = App::load(&text, &TIMED);
        let request = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(app.vm.request(request), CallbackEnd::Waiting);
        app.effects();
        let socket = app.sockets.remove(0).0;
        assert!(app.vm.socket_begun(socket, 5));
        app.vm.socket_connected(LIFE, socket, false);
        app.advance(0);
        let response = app.effects().expect("it answers").1;
        assert!(response.starts_with(expected), "{response}");
    }
    for (call, expected) in [
        ("tide.websocket.connect('x')", "the pool 'x' is not among"),
        ("tide.websocket.connect('api', { url = 1 })", "unknown option 'url'"),
        ("tide.websocket.connect('api', { path = 1 })", "bad option 'path'"),
    ] {
        let mut app =
            App::load(&format!("return {{ on_request = function() {call} end }}"), &TIMED);
        let request = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let CallbackEnd::Failed(failure) = app.vm.request(request) else { panic!("{call}") };
        assert!(failure.message.contains(expected), "{failure}");
    }
}
