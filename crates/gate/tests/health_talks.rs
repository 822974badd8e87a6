//! The conversations of health checks: expected bodies, gRPC, WebSocket.

use proptest::prelude::*;
use tidegate_base::Moment;
use tidegate_config::model::{
    BodyCheck, CheckKind, CheckMethod, GrpcCheck, HttpCheck, WebSocketCheck,
};
use tidegate_gate::health::{Outcome, Stage};
use tidegate_gate::probe::{Talk, TalkStart};
use tidegate_wire::http2::{Config, Connection, Event, Scratch};
use tidegate_wire::websocket::{
    Close, CloseCode, Decoder, Event as FrameEvent, FrameRules, Kind, Limits, Role, accept_key_of,
    encode_close, encode_message,
};

const START: TalkStart<'_> =
    TalkStart { host: "10.0.0.1:80", is_secured: false, random: [7, 9], now: Moment::ZERO };

fn body_check(text: &str, bytes_max: usize) -> CheckKind {
    CheckKind::Http(HttpCheck {
        target: "/".to_owned(),
        host: None,
        method: CheckMethod::Get,
        status: vec![(200, 299)],
        body: Some(BodyCheck { text: text.to_owned(), bytes_max }),
    })
}

/// The result after these pieces of a response, and whether the connection may be used again.
fn outcome_of(kind: &CheckKind, pieces: &[&[u8]]) -> (Option<Outcome>, bool) {
    let (mut talk, mut out) = (Talk::begin(kind, &START, &mut Vec::new()), Vec::new());
    for piece in pieces {
        if let Some(outcome) = talk.read(kind, Moment::ZERO, piece, &mut out) {
            return (Some(outcome), talk.into_rest().is_some());
        }
    }
    (None, false)
}

#[test]
fn body_must_contain_the_text_within_its_bound() {
    let of = |kind: &CheckKind, response: &str| outcome_of(kind, &[response.as_bytes()]);
    let ready = body_check("ready", 64);
    let passed = |is_usable| (Some(Outcome::Passed(200)), is_usable);
    let plain =
        |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(of(&ready, &plain("all ready.")), passed(true));
    assert_eq!(of(&ready, &plain("all read")), (Some(Outcome::Body(200)), false));
    assert_eq!(of(&ready, &plain("")), (Some(Outcome::Body(200)), false));
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrea\r\n2\r\ndy\r\n0\r\n\r\n";
    assert_eq!(of(&ready, chunked), passed(true));
    // Chunk sizes do not count as text.
    let sizes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(of(&body_check("3", 64), sizes), (Some(Outcome::Body(200)), false));
    let open = "HTTP/1.1 200 OK\r\n\r\nnot yet";
    assert_eq!(of(&ready, open), (None, false));
    assert_eq!(of(&ready, "HTTP/1.1 200 OK\r\n\r\nready"), passed(false));
    // The text ends at the bound, and one byte after it.
    assert_eq!(
        of(&body_check("ready", 10), &plain("all ..ready")),
        (Some(Outcome::Body(200)), false)
    );
    assert_eq!(of(&body_check("ready", 11), &plain("all ..ready")), passed(true));
    // The status comes first.
    let failed = "HTTP/1.1 503 Down\r\nContent-Length: 5\r\n\r\nready";
    assert_eq!(of(&ready, failed), (Some(Outcome::Status(503)), true));
    let malformed = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n";
    assert_eq!(of(&ready, malformed), (Some(Outcome::Malformed), false));
    assert_eq!(Outcome::Body(200).code(), "L7RSP");
}

#[test]
fn end_of_the_connection_ends_the_search() {
    let kind = body_check("ready", 64);
    let mut talk = Talk::begin(&kind, &START, &mut Vec::new());
    assert_eq!(talk.ended(), Outcome::Closed(Stage::Response));
    let head = b"HTTP/1.1 200 OK\r\n\r\nrea";
    assert_eq!(talk.read(&kind, Moment::ZERO, head, &mut Vec::new()), None);
    assert_eq!(talk.ended(), Outcome::Body(200));
}

proptest! {
    #[test]
    fn how_a_body_is_split_does_not_matter(
        cuts in proptest::collection::vec(0_usize..400, 0..8),
        before in "[a-e]{0,90}", has_text: bool, after in "[a-e]{0,90}", is_chunked: bool,
    ) {
        let body = format!("{before}{}{after}", if has_text { "abcde-ok" } else { "" });
        let response = match is_chunked {
            false => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
            true => {
                let chunks = body.as_bytes().chunks(7).map(|chunk| {
                    format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk))
                });
                let chunks: String = chunks.collect();
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
            }
        };
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(response.len())).collect();
        cuts.extend([0, response.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &response.as_bytes()[pair[0]..pair[1]]).collect();
        let kind = body_check("abcde-ok", 1000);
        let expected = if has_text { Outcome::Passed(200) } else { Outcome::Body(200) };
        prop_assert_eq!(outcome_of(&kind, &pieces).0, Some(expected));
    }
}

/// A server of gRPC. `answer` gets the message of the request and its path, and sends the response on the stream.
fn call(
    service: &str,
    answer: impl Fn(&mut Connection, &mut Vec<u8>, u32, &[u8]),
) -> Option<Outcome> {
    let kind = CheckKind::Grpc(GrpcCheck { service: service.to_owned(), host: None });
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let mut talk = Talk::begin(&kind, &START, &mut sent);
    let mut server = Connection::new(Config::server(), Moment::ZERO);
    server.start(&mut received);
    let mut message = Vec::new();
    // Enough for the exchange of SETTINGS and one call.
    for _ in 0..6 {
        let bytes = core::mem::take(&mut sent);
        let (mut input, mut scratch) = (&bytes[..], Scratch::default());
        let mut answered = None;
        while let Some(event) = server
            .receive(Moment::ZERO, &mut input, &mut scratch, &mut received)
            .expect("the check speaks HTTP/2")
        {
            match event {
                Event::Request { request, .. } => {
                    assert_eq!(request.head.method.as_str(), "POST");
                    assert_eq!(request.head.target, "/grpc.health.v1.Health/Check");
                    assert_eq!(request.head.host, Some("10.0.0.1:80"));
                }
                Event::Data { stream, bytes, ends, .. } => {
                    message.extend_from_slice(bytes);
                    answered = ends.then_some(stream);
                }
                _ => {}
            }
        }
        if let Some(stream) = answered {
            answer(&mut server, &mut received, stream, &message);
        }
        // Byte by byte.
        for byte in core::mem::take(&mut received) {
            let outcome = talk.read(&kind, Moment::ZERO, &[byte], &mut sent);
            if outcome.is_some() {
                return outcome;
            }
        }
    }
    None
}

/// Responds with a message and a status of gRPC.
fn respond(
    server: &mut Connection,
    out: &mut Vec<u8>,
    stream: u32,
    (message, status): (&[u8], &str),
) {
    server.send_response(out, stream, 200, false, |fields| {
        fields.field("content-type", b"application/grpc");
    });
    server.send_data(Moment::ZERO, out, stream, message, false);
    server.send_trailers(out, stream, |fields| {
        fields.field("grpc-status", status.as_bytes());
    });
}

#[test]
fn health_service_of_grpc_is_called() {
    const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];
    let outcome = call("shop.Orders", |server, out, stream, message| {
        assert_eq!(message, b"\0\0\0\0\x0d\x0a\x0bshop.Orders");
        respond(server, out, stream, (SERVING, "0"));
    });
    assert_eq!(outcome, Some(Outcome::Serving));
    for (message, status, expected) in [
        (&[0, 0, 0, 0, 2, 8, 2][..], "0", Outcome::NotServing),
        (SERVING, "14", Outcome::GrpcStatus(14)),
        (SERVING, "x", Outcome::NotGrpc),
        (b"", "0", Outcome::NotGrpc),
        (&[0; 2000], "0", Outcome::NotGrpc),
    ] {
        let outcome = call("", |server, out, stream, _| {
            respond(server, out, stream, (message, status));
        });
        assert_eq!(outcome, Some(expected), "{message:?} {status}");
    }
    // Without a message: the service is not known, or is not known to be served.
    for (status, expected) in [("5", Outcome::GrpcStatus(5)), ("0", Outcome::NotGrpc)] {
        let outcome = call("x", |server, out, stream, _| {
            server.send_response(out, stream, 200, true, |fields| {
                fields.field("content-type", b"application/grpc");
                fields.field("grpc-status", status.as_bytes());
            });
        });
        assert_eq!(outcome, Some(expected), "{status}");
    }
    let outcome = call("", |server, out, stream, _| {
        server.send_response(out, stream, 404, true, |_| {});
    });
    assert_eq!(outcome, Some(Outcome::Status(404)));
    let outcome = call("", |server, out, stream, _| {
        server.send_response(out, stream, 200, true, |fields| {
            fields.field("content-type", b"text/html");
        });
    });
    assert_eq!(outcome, Some(Outcome::NotGrpc));
    // A server that does not speak HTTP/2.
    let kind = CheckKind::Grpc(GrpcCheck { service: String::new(), host: None });
    let bad = outcome_of(&kind, &[b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"]);
    assert_eq!(bad, (Some(Outcome::NotGrpc), false));
}

/// The request of a WebSocket check, its conversation, and the response that accepts it.
fn handshake(kind: &CheckKind) -> (Talk, String) {
    let mut out = Vec::new();
    let talk = Talk::begin(kind, &START, &mut out);
    let request = String::from_utf8(out).expect("it is ASCII");
    assert!(request.starts_with("GET /ws HTTP/1.1\r\nHost: 10.0.0.1:80\r\n"), "{request}");
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
    let accept = accept_key_of(key.expect("a key").as_bytes()).expect("a valid key");
    let accept = String::from_utf8_lossy(&accept).into_owned();
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    (talk, response)
}

#[test]
fn websocket_is_opened_and_closed() {
    let kind = CheckKind::WebSocket(WebSocketCheck { target: "/ws".to_owned(), host: None });
    let (mut talk, response) = handshake(&kind);
    assert_eq!(talk.ended(), Outcome::Closed(Stage::Response));
    let mut response = response.into_bytes();
    encode_message(&mut response, Kind::Text, b"welcome", None);
    let mut out = Vec::new();
    // Byte by byte, with a message right after the head.
    for byte in response {
        assert_eq!(talk.read(&kind, Moment::ZERO, &[byte], &mut out), None);
    }
    let rules = FrameRules { role: Role::Server, allows_deflate: false };
    let mut decoder = Decoder::new(rules);
    let step = decoder.decode(&mut out, &Limits::default()).expect("a frame").event;
    let Some(FrameEvent::Close(Some(close))) = step else { panic!("{step:?}") };
    assert_eq!(close.code, CloseCode::NORMAL);
    assert_eq!(talk.ended(), Outcome::NotClosed);
    let mut reply = Vec::new();
    encode_close(&mut reply, Some(Close::new(CloseCode::NORMAL)), None);
    let outcome = talk.read(&kind, Moment::ZERO, &reply, &mut Vec::new());
    assert_eq!(outcome, Some(Outcome::Passed(101)));
}

#[test]
fn websocket_servers_that_refuse_or_break_the_protocol_fail() {
    let kind = CheckKind::WebSocket(WebSocketCheck { target: "/ws".to_owned(), host: None });
    let after = |change: &dyn Fn(String) -> Vec<u8>| {
        let (mut talk, response) = handshake(&kind);
        talk.read(&kind, Moment::ZERO, &change(response), &mut Vec::new())
    };
    let refused = |_| b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec();
    assert_eq!(after(&refused), Some(Outcome::Status(403)));
    let other_key = |response: String| {
        let (before, _) = response.split_once("Sec-WebSocket-Accept: ").expect("the field");
        format!("{before}Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n").into_bytes()
    };
    assert_eq!(after(&other_key), Some(Outcome::BadHandshake));
    assert_eq!(after(&|_| b"SSH-2.0-x\r\n".to_vec()), Some(Outcome::Malformed));
    // A frame with a mask, which servers must not send.
    let masked = |response: String| [response.as_bytes(), &[0x81, 0x80, 1, 2, 3, 4]].concat();
    assert_eq!(after(&masked), Some(Outcome::NotClosed));
    let endless = |response: String| {
        let mut bytes = response.into_bytes();
        for _ in 0..70 {
            encode_message(&mut bytes, Kind::Binary, &[0; 1000], None);
        }
        bytes
    };
    assert_eq!(after(&endless), Some(Outcome::NotClosed));
}
