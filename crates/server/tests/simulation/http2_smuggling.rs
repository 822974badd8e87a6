//! Requests over HTTP/2 that would be a different request, or several requests, if they were copied into HTTP/1.1.
//! In: a table of header lists and bodies. Out: each is rejected and reaches no server, or arrives in one form.
//! Never: uses the encoder of `wire`, which could refuse malformed requests; the frames are encoded here.

use tidegate_base::Span;
use tidegate_reactor::SimPeer;
use tidegate_wire::http2::frame::{END_HEADERS, END_STREAM, FrameKind};

use crate::peer::reader::{Piece, Reader, request_framing};
use crate::speaker::{Speaker, encode_frame, encode_headers};
use crate::stage::{OK, Stage, scene};

type Pair = (&'static [u8], &'static [u8]);

const METHOD: Pair = (b":method", b"POST");
const SCHEME: Pair = (b":scheme", b"http");
const AUTHORITY: Pair = (b":authority", b"a");
const PATH: Pair = (b":path", b"/p");
/// Encoded `:status: 400`.
const STATUS_400: u8 = 0x8c;

/// The header list of a request: valid pseudo-header fields, then these fields.
fn with(fields: &[Pair]) -> Vec<Pair> {
    [&[METHOD, SCHEME, AUTHORITY, PATH], fields].concat()
}

/// A valid request in which one pseudo-header field is replaced.
fn replace(pair: Pair) -> Vec<Pair> {
    with(&[]).into_iter().map(|old| if old.0 == pair.0 { pair } else { old }).collect()
}

/// A valid request without one pseudo-header field, then these fields.
fn without(name: &[u8], fields: &[Pair]) -> Vec<Pair> {
    let rest = with(&[]).into_iter().filter(|(old, _)| *old != name);
    rest.chain(fields.iter().copied()).collect()
}

/// Header lists that must be rejected, and reach no server.
fn rejected() -> Vec<Vec<Pair>> {
    let mut all = Vec::new();
    // Framing of HTTP/1.1, and fields about a connection.
    let fields: &[Pair] = &[
        (b"transfer-encoding", b"chunked"),
        (b"transfer-encoding", b""),
        (b"transfer-encoding", b"identity"),
        (b"connection", b"close"),
        (b"connection", b"content-length"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-connection", b"keep-alive"),
        (b"upgrade", b"websocket"),
        (b"te", b"gzip"),
        (b"te", b"trailers, chunked"),
        (b"content-length", b"+3"),
        (b"content-length", b"-3"),
        (b"content-length", b"0x3"),
        (b"content-length", b"3, 4"),
        (b"content-length", b"3 3"),
        (b"content-length", b""),
        (b"content-length", b"99999999999999999999"),
        // Names.
        (b"X-Upper", b"1"),
        (b"Content-Length", b"3"),
        (b"Transfer-Encoding", b"chunked"),
        (b"x y", b"1"),
        (b"x\r\nevil", b"1"),
        (b"x\nevil", b"1"),
        (b"x\0", b"1"),
        (b"x:y", b"1"),
        (b"x: 1\r\nevil", b"1"),
        (b"transfer-encoding:chunked\r\nx", b"1"),
        (b"x\t", b"1"),
        (b"x\x80", b"1"),
        (b"x\x7f", b"1"),
        (b"", b"1"),
        (b":", b"1"),
        (b":evil", b"1"),
        (b":status", b"200"),
        (b":protocol", b"websocket"),
        // Values.
        (b"x", b"a\r\nevil: 1"),
        (b"x", b"a\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"x", b"a\nevil: 1"),
        (b"x", b"a\revil: 1"),
        (b"x", b"a\0b"),
        (b"cookie", b"a=1\r\nevil: 1"),
        (b"x", b"a\x7f"),
        (b"x", b"a\x01"),
        // Hosts.
        (b"host", b"b"),
        (b"host", b"a:1"),
        (b"host", b""),
        (b"host", b"a\r\nevil: 1"),
        // A pseudo-header field that occurs twice; below, also after other fields.
        METHOD,
        SCHEME,
        AUTHORITY,
        PATH,
    ];
    all.extend(fields.iter().map(|field| with(&[*field])));
    all.push(with(&[(b"content-length", b"3"), (b"content-length", b"4")]));
    all.push(with(&[(b"host", b"a"), (b"host", b"b")]));
    all.push(with(&[(b"x", b"1"), PATH]));
    all.push(without(b":path", &[(b"x", b"1"), PATH]));
    let starts: &[Pair] = &[
        (b":path", b""),
        (b":path", b"p"),
        (b":path", b"*"),
        (b":path", b"/a b"),
        (b":path", b"/a HTTP/1.1\r\nevil: 1"),
        (b":path", b"/a HTTP/1.1\r\nHost: a\r\n\r\nGET /evil"),
        (b":path", b"/a\r\nevil: 1"),
        (b":path", b"/a\nevil"),
        (b":path", b"/a\0"),
        (b":path", b"/a\tb"),
        (b":path", b"/a#b"),
        (b":path", b"a:80"),
        (b":method", b""),
        (b":method", b"GET /evil HTTP/1.1\r\nx: y\r\n\r\nGET"),
        (b":method", b"GET\r\nevil: 1"),
        (b":method", b"GE T"),
        (b":method", b"GET\0"),
        (b":method", b"G:T"),
        (b":method", b"PRI /x"),
        (b":scheme", b""),
        (b":scheme", b"ht tp"),
        (b":scheme", b"http://b/x?"),
        (b":scheme", b"http\r\nevil: 1"),
        (b":authority", b"a\r\nevil: 1"),
        (b":authority", b"a b"),
        (b":authority", b"a\0"),
        (b":authority", b"u@a"),
        (b":authority", b"a/b"),
        (b":authority", b"a?b"),
        (b":authority", b"a:x"),
        (b":authority", b"a,b"),
    ];
    all.extend(starts.iter().map(|start| replace(*start)));
    for name in [&b":method"[..], b":scheme", b":path"] {
        all.push(without(name, &[]));
    }
    // No host at all.
    all.push(without(b":authority", &[]));
    all
}

/// The frames of a request whose body arrives in pieces; the last one ends it.
fn encode(out: &mut Vec<u8>, stream: u32, fields: &[Pair], pieces: &[&[u8]]) {
    encode_headers(out, stream, fields, END_HEADERS);
    for (at, piece) in pieces.iter().enumerate() {
        let flags = if at + 1 == pieces.len() { END_STREAM } else { 0 };
        encode_frame(out, FrameKind::Data, flags, stream, piece);
    }
}

/// Waits until stream 1 has a response or was reset. Returns the kind of the frame that ended the wait, and its first byte.
fn wait_for_end(stage: &mut Stage, client: &mut Speaker) -> (FrameKind, u8) {
    stage.until(|stage| {
        client.pump(stage.net.now());
        let ends = |kind| matches!(kind, FrameKind::Headers | FrameKind::RstStream);
        let found = client.frames.iter().find(|(kind, stream, _)| *stream == 1 && ends(*kind));
        let goaway = client.goaway.map(|_| (FrameKind::GoAway, 0));
        found.map(|(kind, _, byte)| (*kind, *byte)).or(goaway)
    })
}

#[test]
fn malformed_requests_reach_no_server() {
    for fields in rejected() {
        let shown: Vec<_> = fields
            .iter()
            .map(|(name, value)| {
                (name.escape_ascii().to_string(), value.escape_ascii().to_string())
            })
            .collect();
        scene().listener("h2c = true").run(|stage| {
            let mut client = Speaker::raw(stage);
            encode(&mut client.out, 1, &fields, &[b"abc"]);
            let outcome = wait_for_end(stage, &mut client);
            let is_rejected = match outcome {
                (FrameKind::Headers, byte) => byte == STATUS_400,
                _ => true,
            };
            assert!(is_rejected, "{shown:?}: {outcome:?}");
            stage.pass(Span::from_millis(20));
            assert!(stage.try_accept().is_none(), "{shown:?} reached the server");
            assert_eq!(stage.counters().bugs.load(), 0);
        });
    }
}

/// The connection over which a request reaches the server.
fn accept(stage: &mut Stage, client: &mut Speaker) -> SimPeer {
    stage.until(|stage| {
        client.pump(stage.net.now());
        stage.try_accept()
    })
}

/// What the server receives of a request, until it is complete or the connection has ended.
fn received(stage: &mut Stage, client: &mut Speaker, origin: &SimPeer) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let mut is_whole = false;
    stage.until(|stage| {
        client.pump(stage.net.now());
        bytes.extend(origin.receive());
        let mut reader = Reader::default();
        reader.push(&bytes);
        if let Some(head) = reader.next_head().expect("a canonical head") {
            reader.begin_body(request_framing(&head).expect("one framing"));
            loop {
                match reader.next_piece().expect("a canonical body") {
                    Piece::Need => break,
                    Piece::Data(_) => {}
                    Piece::End(_) => {
                        is_whole = true;
                        break;
                    }
                }
            }
            assert!(!is_whole || reader.rest().is_empty(), "bytes follow the request");
        }
        (is_whole || origin.was_reset() || origin.is_finished_by_other()).then_some(())
    });
    if is_whole {
        origin.send(OK);
    }
    (bytes, is_whole)
}

#[test]
fn body_that_differs_from_its_content_length_is_never_complete() {
    let evil: &[u8] = b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";
    let cases: [(&'static [u8], &[&[u8]]); 5] = [
        (b"3", &[b"abcGET /evil HTTP/1.1\r\nHost: a\r\n\r\n"]),
        (b"3", &[b"abc", evil]),
        (b"0", &[evil]),
        (b"10", &[b"abc"]),
        (b"10", &[b"abc", b""]),
    ];
    for buffer in ["0B", "16KiB"] {
        for (length, pieces) in cases {
            let pool = format!("request-buffer = \"{buffer}\"");
            scene().listener("h2c = true").pool(&pool).run(|stage| {
                let mut client = Speaker::raw(stage);
                encode(&mut client.out, 1, &with(&[(b"content-length", length)]), pieces);
                let outcome = wait_for_end(stage, &mut client);
                assert_ne!(outcome.0, FrameKind::Headers, "{length:?} {pieces:?}");
                if let Some(origin) = stage.try_accept() {
                    let mut bytes = Vec::new();
                    stage.until(|_| {
                        bytes.extend(origin.receive());
                        (origin.was_reset() || origin.is_finished_by_other()).then_some(())
                    });
                    let text = String::from_utf8_lossy(&bytes);
                    assert!(!text.contains("evil"), "{length:?} {pieces:?}: {text}");
                    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                    let is_whole = !bytes.is_empty() && length != b"10";
                    assert!(!is_whole || body.len() < 3, "a complete request: {text}");
                }
            });
        }
    }
}

#[test]
fn unusual_requests_arrive_in_one_form() {
    // The fields, and lines that must be in the head that the server receives; the body is "abc".
    let cases: Vec<(Vec<Pair>, &[&str])> = vec![
        (with(&[]), &["POST /p HTTP/1.1", "host: a", "transfer-encoding: chunked"]),
        (with(&[(b"content-length", b"3")]), &["content-length: 3"]),
        (with(&[(b"host", b"a")]), &["host: a"]),
        (without(b":authority", &[(b"host", b"a")]), &["host: a"]),
        (with(&[(b"te", b"trailers")]), &["host: a"]),
        (with(&[(b"cookie", b"a=1"), (b"cookie", b"b=2")]), &["cookie: a=1; b=2"]),
        (with(&[(b"x-utf8", b"\xc3\xa9")]), &["x-utf8: \u{e9}"]),
        (replace((b":path", b"/a?b=%0d%0aevil")), &["POST /a?b=%0d%0aevil HTTP/1.1"]),
        (replace((b":method", b"QUERY")), &["QUERY /p HTTP/1.1"]),
    ];
    for (fields, lines) in cases {
        scene().listener("h2c = true").run(|stage| {
            let mut client = Speaker::raw(stage);
            encode(&mut client.out, 1, &fields, &[b"a", b"", b"bc"]);
            let origin = accept(stage, &mut client);
            let (bytes, is_whole) = received(stage, &mut client, &origin);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(is_whole, "{text}");
            let (head, _) = text.split_once("\r\n\r\n").expect("a head");
            for line in lines {
                let same = |found: &str| found.eq_ignore_ascii_case(line);
                assert_eq!(
                    head.split("\r\n").filter(|found| same(found)).count(),
                    1,
                    "{line}: {text}"
                );
            }
            for name in ["host:", "content-length:", "transfer-encoding:", "cookie:"] {
                let named = |found: &&str| found.to_ascii_lowercase().starts_with(name);
                assert!(head.split("\r\n").filter(named).count() <= 1, "{name} {text}");
            }
            assert_eq!(wait_for_end(stage, &mut client).0, FrameKind::Headers);
        });
    }
}

#[test]
fn complete_body_of_unknown_length_is_sent_with_its_length() {
    scene().listener("h2c = true").pool("request-buffer = \"16KiB\"").run(|stage| {
        let mut client = Speaker::raw(stage);
        encode(&mut client.out, 1, &with(&[]), &[b"a", b"", b"bc"]);
        let origin = accept(stage, &mut client);
        let (bytes, is_whole) = received(stage, &mut client, &origin);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(is_whole && text.ends_with("\r\n\r\nabc"), "{text}");
        assert!(text.contains("\r\nContent-Length: 3\r\n") && !text.contains("chunked"), "{text}");
    });
}

#[test]
fn trailers_carry_no_framing() {
    let forbidden: &[Pair] = &[
        (b"content-length", b"9"),
        (b"host", b"evil"),
        (b"x-forwarded-for", b"1.1.1.1"),
        (b"authorization", b"evil"),
        (b"x-fine", b"1"),
    ];
    let malformed: &[Pair] = &[
        (b":path", b"/evil"),
        (b"transfer-encoding", b"chunked"),
        (b"connection", b"close"),
        (b"x", b"a\r\nevil: 1"),
        (b"X", b"evil"),
    ];
    for (is_malformed, fields) in [(false, forbidden), (true, malformed)] {
        for field in fields {
            scene().listener("h2c = true").pool("trailers = true").run(|stage| {
                let mut client = Speaker::raw(stage);
                encode_headers(&mut client.out, 1, &with(&[]), END_HEADERS);
                encode_frame(&mut client.out, FrameKind::Data, 0, 1, b"abc");
                let origin = accept(stage, &mut client);
                encode_headers(&mut client.out, 1, &[*field], END_HEADERS | END_STREAM);
                let (bytes, is_whole) = received(stage, &mut client, &origin);
                let text = String::from_utf8_lossy(&bytes);
                assert_eq!(is_whole, !is_malformed, "{field:?}: {text}");
                assert!(!text.contains("evil"), "{field:?}: {text}");
                assert!(!text.contains("content-length: 9"), "{field:?}: {text}");
            });
        }
    }
}
