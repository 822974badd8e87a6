//! The requirements of RFC 9113 (sections 3 to 8) as rows: input frames, and the events and replies they cause.

use crate::bytes::{ACK, END_HEADERS, END_STREAM, Frames, GET, PADDED, POST, PRIORITY, block};
use crate::watch::{Watch, outcome, server};

/// A section, the frames after the beginning of the connection, and the events with the frames of the output.
type Row = (&'static str, Frames, &'static str);

/// Checks rows with connections from `make`, which have received `start` before.
fn check(make: &dyn Fn() -> Watch, start: &Frames, rows: Vec<Row>) {
    for (section, frames, wanted) in rows {
        let bytes = [&start.0[..], &frames.0].concat();
        let (events, sent) = outcome(make, &bytes);
        let events = events.iter().filter(|event| *event != "settings");
        let all: Vec<_> = events.chain(&sent).map(String::as_str).collect();
        assert_eq!(all.join("; "), wanted, "section {section}");
    }
}

fn f() -> Frames {
    Frames::new()
}

const REQUEST_1: &str = "request 1 GET / end";

#[test]
fn server_requires_the_preface_and_settings() {
    let bad = "fault PrefaceInvalid; goaway 0 PROTOCOL_ERROR";
    let missing = "fault SettingsMissing; goaway 0 PROTOCOL_ERROR";
    let raw = |bytes: &[u8]| Frames(bytes.to_vec());
    let preface = || raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    check(
        &server,
        &f(),
        vec![
            ("3.4", raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), bad),
            ("3.4", raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX"), bad),
            ("3.4", preface(), ""),
            ("3.4", preface().settings(&[]), ""),
            ("3.4", preface().ping(0, b"12345678"), missing),
            ("3.4", preface().settings_ack(), missing),
            ("3.4", preface().get(1), missing),
        ],
    );
}

#[test]
fn settings_of_the_peer_are_known_only_once_they_are_complete() {
    let mut watch = server();
    let bytes =
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &f().settings(&[(4, 70_000)]).0].concat();
    let (last, before) = bytes.split_last().expect("there are bytes");
    for byte in before {
        watch.feed(&[*byte], 1);
        assert!(!watch.connection.has_peer_settings(), "after a part of the frame");
    }
    watch.feed(&[*last], 1);
    assert!(watch.connection.has_peer_settings());
}

#[test]
fn frames_have_valid_sizes() {
    let size = "fault FrameLengthInvalid; goaway 0 FRAME_SIZE_ERROR";
    let large = vec![0; 16_385];
    check(
        &server,
        &Frames::client(),
        vec![
            ("4.2", f().raw(0xfe, 0, 1, &large), "fault FrameTooLarge; goaway 0 FRAME_SIZE_ERROR"),
            ("4.2", f().raw(0xfe, 0, 1, &large[1..]), ""),
            ("4.1", f().raw(0xfe, 0xff, 0xffff_ffff, b"x").get(1), REQUEST_1),
            (
                "6.3",
                f().get(1).priority(1, b"1234"),
                "request 1 GET / end; reset 1 PriorityLengthInvalid; rst 1 FRAME_SIZE_ERROR",
            ),
            ("6.3", f().priority(1, b"1234"), size),
            (
                "6.4",
                f().post(1).raw(3, 0, 1, b"123"),
                "request 1 POST /; fault FrameLengthInvalid; goaway 1 FRAME_SIZE_ERROR",
            ),
            ("6.5", f().raw(4, 0, 0, b"12345"), size),
            ("6.5", f().raw(4, ACK, 0, b"123456"), size),
            ("6.7", f().ping(0, b"1234567"), size),
            ("6.7", f().ping(0, b"123456789"), size),
            ("6.8", f().raw(7, 0, 0, b"1234567"), size),
            ("6.9", f().raw(8, 0, 0, b"123"), size),
            ("6.9", f().raw(8, 0, 0, b"12345"), size),
            (
                "6.1",
                f().post(1).data(1, PADDED, b""),
                "request 1 POST /; fault FrameLengthInvalid; goaway 1 FRAME_SIZE_ERROR",
            ),
            ("9218 7.1", f().raw(0x10, 0, 0, b"123"), size),
        ],
    );
}

#[test]
fn frames_name_a_stream_exactly_if_their_type_requires_it() {
    let missing = "fault StreamIdMissing; goaway 0 PROTOCOL_ERROR";
    let unexpected = "fault StreamIdUnexpected; goaway 0 PROTOCOL_ERROR";
    let idle = "fault StreamIdle; goaway 0 PROTOCOL_ERROR";
    check(
        &server,
        &Frames::client(),
        vec![
            ("6.1", f().data(0, 0, b"x"), missing),
            ("6.2", f().headers(0, END_STREAM, &GET), missing),
            ("6.3", f().priority(0, b"12345"), missing),
            ("6.4", f().reset(0, 8), missing),
            ("6.5", f().raw(4, 0, 1, b""), unexpected),
            ("6.7", f().raw(6, 0, 1, b"12345678"), unexpected),
            ("6.8", f().raw(7, 0, 1, b"12345678"), unexpected),
            ("5.1", f().data(1, 0, b"x"), idle),
            ("5.1", f().reset(1, 8), idle),
            ("5.1", f().window(1, 1), idle),
            ("5.1", f().data(2, 0, b"x"), idle),
            ("5.1", f().priority(1, b"\0\0\0\0\x10").get(1), REQUEST_1),
            (
                "5.1.1",
                f().headers(2, END_STREAM, &GET),
                "fault StreamIdInvalid; goaway 0 PROTOCOL_ERROR",
            ),
            (
                "5.1.1",
                f().get(5).get(3),
                "request 5 GET / end; fault StreamIdInvalid; goaway 5 PROTOCOL_ERROR",
            ),
            ("5.1.1", f().get(3).get(7), "request 3 GET / end; request 7 GET / end"),
            (
                "6.6",
                f().raw(5, END_HEADERS, 1, b"\0\0\0\x02"),
                "fault PushNotAllowed; goaway 0 PROTOCOL_ERROR",
            ),
            ("9218 7.1", f().raw(0x10, 0, 1, b"\0\0\0\x01"), unexpected),
            (
                "9218 7.1",
                f().priority_update(0, b""),
                "fault PriorityUpdateInvalid; goaway 0 PROTOCOL_ERROR",
            ),
            ("9218 7.1", f().priority_update(1, b"u=1").get(1), REQUEST_1),
        ],
    );
}

#[test]
fn header_blocks_are_contiguous() {
    let whole = block(&GET);
    let (first, second) = whole.split_at(9);
    let expected = "fault ContinuationExpected; goaway 0 PROTOCOL_ERROR";
    let start = || f().raw(1, END_STREAM, 1, first);
    let padded = [&[3][..], &[0, 0, 0, 0, 16], &whole, &[0; 3]].concat();
    check(
        &server,
        &Frames::client(),
        vec![
            ("6.10", start().continuation(1, END_HEADERS, second), REQUEST_1),
            (
                "6.10",
                start().continuation(1, 0, second).continuation(1, END_HEADERS, b""),
                REQUEST_1,
            ),
            ("6.10", start().continuation(3, END_HEADERS, second), expected),
            ("6.10", start().ping(0, b"12345678"), expected),
            ("6.10", start().raw(0xfe, 0, 0, b""), expected),
            ("6.10", start().headers(1, END_STREAM, &GET), expected),
            (
                "6.10",
                f().continuation(1, END_HEADERS, &whole),
                "fault ContinuationUnexpected; goaway 0 PROTOCOL_ERROR",
            ),
            (
                "6.10",
                f().get(1).continuation(1, END_HEADERS, &whole),
                "request 1 GET / end; fault ContinuationUnexpected; goaway 1 PROTOCOL_ERROR",
            ),
            (
                "6.2",
                f().raw(1, END_STREAM | END_HEADERS | PADDED | PRIORITY, 1, &padded),
                REQUEST_1,
            ),
            (
                "6.2",
                f().raw(1, END_STREAM | END_HEADERS | PADDED, 1, b"\x09abc"),
                "fault PaddingInvalid; goaway 0 PROTOCOL_ERROR",
            ),
            (
                "4.3",
                f().raw(1, END_STREAM | END_HEADERS, 1, b"\xff"),
                "fault CompressionFailed; goaway 1 COMPRESSION_ERROR",
            ),
            (
                "4.3",
                f().raw(1, END_STREAM | END_HEADERS, 1, b"\x80"),
                "fault CompressionFailed; goaway 1 COMPRESSION_ERROR",
            ),
        ],
    );
}

#[test]
fn streams_accept_only_the_frames_of_their_state() {
    let closed = "rst 1 STREAM_CLOSED";
    let text = |rest: &str| format!("request 1 GET / end; {rest}").leak() as &'static str;
    let canceled = "request 1 POST /; reset 1 by peer CANCEL";
    check(
        &server,
        &Frames::client(),
        vec![
            (
                "5.1 half-closed",
                f().get(1).data(1, 0, b"x"),
                text(&format!("reset 1 FrameOnClosedStream; {closed}")),
            ),
            (
                "5.1 half-closed",
                f().get(1).headers(1, END_STREAM, &[("x", "y")]),
                text(&format!("reset 1 FrameOnClosedStream; {closed}")),
            ),
            ("5.1 half-closed", f().get(1).window(1, 1), REQUEST_1),
            ("5.1 half-closed", f().get(1).priority(1, b"\0\0\0\0\x10"), REQUEST_1),
            ("5.1 half-closed", f().get(1).reset(1, 8), text("reset 1 by peer CANCEL")),
            (
                "5.1 closed",
                f().post(1).reset(1, 8).window(1, 1).reset(1, 8).priority(1, b"12345"),
                canceled,
            ),
            (
                "5.1 closed",
                f().post(1).reset(1, 8).data(1, 0, b"x"),
                format!("{canceled}; {closed}").leak(),
            ),
            (
                "5.1 closed",
                f().post(1).reset(1, 8).headers(1, END_STREAM, &[]),
                format!("{canceled}; fault HeadersOnClosedStream; goaway 1 STREAM_CLOSED").leak(),
            ),
            (
                "5.1 reset",
                f().get(1)
                    .data(1, 0, b"x")
                    .data(1, 0, b"y")
                    .window(1, 0)
                    .reset(1, 8)
                    .headers(1, END_STREAM, &[("x", "y")])
                    .get(3),
                text(&format!("reset 1 FrameOnClosedStream; request 3 GET / end; {closed}")),
            ),
        ],
    );
}

#[test]
fn bodies_and_trailers_reach_the_user() {
    check(
        &server,
        &Frames::client(),
        vec![
            (
                "8.1",
                f().post(1).data(1, 0, b"ab").data(1, 0, b"").data(1, END_STREAM, b"c"),
                "request 1 POST /; data 1:abc end",
            ),
            (
                "8.1",
                f().post(1).data(1, 0, b"ab").data(1, END_STREAM, b""),
                "request 1 POST /; data 1:ab end",
            ),
            (
                "6.1",
                f().post(1).data(1, PADDED | END_STREAM, b"\x02ab\0\0"),
                "request 1 POST /; data 1:ab end",
            ),
            (
                "6.1",
                f().post(1).data(1, PADDED, b"\x00").data(1, PADDED | END_STREAM, b"\x01\0"),
                "request 1 POST /; data 1: end",
            ),
            (
                "6.1",
                f().post(1).data(1, PADDED, b"\x02a"),
                "request 1 POST /; fault PaddingInvalid; goaway 1 PROTOCOL_ERROR",
            ),
            (
                "8.1",
                f().post(1).data(1, 0, b"ab").headers(1, END_STREAM, &[("x", "y")]),
                "request 1 POST /; data 1:ab; trailers 1 x",
            ),
            ("8.1", f().post(1).headers(1, END_STREAM, &[]), "request 1 POST /; trailers 1 "),
            (
                "8.1",
                f().post(1).headers(1, 0, &[("x", "y")]),
                "request 1 POST /; reset 1 TrailersWithoutEnd; rst 1 PROTOCOL_ERROR",
            ),
            (
                "8.1",
                f().post(1).headers(1, END_STREAM, &[(":path", "/")]),
                "request 1 POST /; reset 1 PseudoFieldMisplaced; rst 1 PROTOCOL_ERROR",
            ),
            (
                "8.1",
                f().post(1).headers(1, END_STREAM, &[("X", "y")]),
                "request 1 POST /; reset 1 FieldNameInvalid; rst 1 PROTOCOL_ERROR",
            ),
        ],
    );
}

#[test]
fn content_length_must_match_the_data_at_every_end() {
    let post = |length: &'static str| {
        let fields = [&POST[..], &[("content-length", length)]].concat();
        f().headers(1, 0, &fields)
    };
    let head = "request 1 POST / content-length=3";
    let text = |rest: &str| format!("{head}; {rest}").leak() as &'static str;
    let bad = "reset 1 ContentLengthMismatch; rst 1 PROTOCOL_ERROR";
    let with_end = [&POST[..], &[("content-length", "3")]].concat();
    check(
        &server,
        &Frames::client(),
        vec![
            ("8.1.1", post("3").data(1, END_STREAM, b"abc"), text("data 1:abc end")),
            (
                "8.1.1",
                post("3").data(1, 0, b"abc").headers(1, END_STREAM, &[]),
                text("data 1:abc; trailers 1 "),
            ),
            ("8.1.1", post("3").data(1, END_STREAM, b"abcd"), text(bad)),
            ("8.1.1", post("3").data(1, END_STREAM, b"ab"), text(bad)),
            (
                "8.1.1",
                post("3").data(1, 0, b"ab").data(1, END_STREAM, b""),
                text(&format!("data 1:ab; {bad}")),
            ),
            (
                "8.1.1",
                post("3").data(1, 0, b"ab").headers(1, END_STREAM, &[]),
                text(&format!("data 1:ab; {bad}")),
            ),
            (
                "8.1.1",
                f().headers(1, END_STREAM, &with_end).get(3),
                "rejected 1 ContentLengthMismatch; request 3 GET / end; rst 1 PROTOCOL_ERROR",
            ),
        ],
    );
}

#[test]
fn malformed_requests_are_rejected_and_the_connection_goes_on() {
    let with = |field: (&'static str, &'static str)| {
        f().headers(1, END_STREAM, &[&GET[..], &[field]].concat()).get(3)
    };
    let text = |kind: &str| {
        format!("rejected 1 {kind}; request 3 GET / end; rst 1 PROTOCOL_ERROR").leak()
            as &'static str
    };
    check(
        &server,
        &Frames::client(),
        vec![
            ("8.2.1", with(("X", "y")), text("FieldNameInvalid")),
            ("8.2.1", with(("x", "a\r\nb")), text("FieldValueInvalid")),
            ("8.2.2", with(("connection", "close")), text("ConnectionField")),
            ("8.2.2", with(("transfer-encoding", "chunked")), text("ConnectionField")),
            ("8.2.2", with(("te", "gzip")), text("TeInvalid")),
            (
                "8.3",
                with((":path", "/")),
                text("PseudoFieldMisplaced").replace("Misplaced", "Repeated").leak(),
            ),
            ("8.3", with((":status", "200")), text("PseudoFieldUnknown")),
            ("8.3.1", with(("host", "b")), text("HostDiffers")),
            ("8.3.1", f().headers(1, END_STREAM, &GET[1..]).get(3), text("PseudoFieldMissing")),
            (
                "8.5",
                f().headers(1, 0, &[(":method", "CONNECT"), (":authority", "a:1")]).get(3),
                "rejected 1 ConnectUnsupported; request 3 GET / end; rst 1 HTTP_1_1_REQUIRED",
            ),
            ("8441 4", with((":protocol", "websocket")), text("ProtocolNotEnabled")),
        ],
    );
}

#[test]
fn settings_and_windows_are_validated() {
    let setting = "fault SettingInvalid; goaway 0 PROTOCOL_ERROR";
    let flow =
        |kind: &str| format!("fault {kind}; goaway 0 FLOW_CONTROL_ERROR").leak() as &'static str;
    check(
        &server,
        &Frames::client(),
        vec![
            ("6.5.2", f().settings(&[(2, 2)]), setting),
            ("6.5.2", f().settings(&[(5, 16_383)]), setting),
            ("6.5.2", f().settings(&[(5, 1 << 24)]), setting),
            ("6.5.2", f().settings(&[(4, 1 << 31)]), flow("InitialWindowInvalid")),
            ("6.5.2", f().settings(&[(0x4242, 1)]), ""),
            (
                "6.9",
                f().window(0, 0),
                "fault ConnectionWindowIncrementZero; goaway 0 PROTOCOL_ERROR",
            ),
            ("6.9.1", f().window(0, 0x7fff_0000), ""),
            ("6.9.1", f().window(0, 0x7fff_0001), flow("ConnectionWindowOverflow")),
            (
                "6.9",
                f().get(1).window(1, 0),
                "request 1 GET / end; reset 1 StreamWindowIncrementZero; rst 1 PROTOCOL_ERROR",
            ),
            (
                "6.9.1",
                f().get(1).window(1, 0x7fff_0001),
                "request 1 GET / end; reset 1 StreamWindowOverflow; rst 1 FLOW_CONTROL_ERROR",
            ),
            (
                "6.9.2",
                f().get(1).window(1, 0x7fff_0000).settings(&[(4, 65_536)]),
                "request 1 GET / end; fault StreamWindowsOverflow; goaway 1 FLOW_CONTROL_ERROR",
            ),
            ("6.7", f().ping(0, b"12345678"), "ping-ack"),
            ("6.7", f().ping(ACK, b"12345678"), "pong"),
            ("6.8", f().goaway(0, 0), "goaway 0 NO_ERROR"),
            ("6.8", f().goaway(7, 0).goaway(5, 2), "goaway 7 NO_ERROR; goaway 5 INTERNAL_ERROR"),
            (
                "6.8",
                f().goaway(5, 0).goaway(7, 0),
                "goaway 5 NO_ERROR; fault GoAwayIdIncreased; goaway 0 PROTOCOL_ERROR",
            ),
        ],
    );
}

#[test]
fn responses_reach_the_client_and_malformed_ones_end_only_their_stream() {
    let two = || Watch::client(&["GET", "GET"]);
    let status = |value: &'static str| [(":status", value)];
    let ok = "response 3 71 200 end";
    let text = |rest: &str| format!("{rest}; {ok}; rst 1 PROTOCOL_ERROR").leak() as &'static str;
    let end = |frames: Frames| frames.headers(3, END_STREAM, &[(":status", "200")]);
    check(
        &two,
        &Frames::server(),
        vec![
            (
                "8.1",
                end(f().headers(1, 0, &status("200")).data(1, END_STREAM, b"ab")),
                "response 1 70 200; data 1:ab end; response 3 71 200 end",
            ),
            (
                "8.1",
                end(f().headers(1, 0, &status("103")).headers(1, END_STREAM, &status("204"))),
                "response 1 70 103; response 1 70 204 end; response 3 71 200 end",
            ),
            (
                "8.1",
                end(f().headers(1, 0, &status("200")).headers(1, END_STREAM, &[("x", "y")])),
                "response 1 70 200; trailers 1 x; response 3 71 200 end",
            ),
            (
                "8.1",
                end(f().headers(1, END_STREAM, &status("103"))),
                text("reset 1 InterimEndsStream"),
            ),
            ("8.1", end(f().headers(1, 0, &status("101"))), text("reset 1 StatusInvalid")),
            (
                "8.1",
                end(f().headers(1, 0, &status("200")).headers(1, 0, &status("200"))),
                text("response 1 70 200; reset 1 PseudoFieldMisplaced"),
            ),
            ("8.1", end(f().data(1, END_STREAM, b"ab")), text("reset 1 DataBeforeHead")),
            (
                "8.3.2",
                end(f().headers(1, END_STREAM, &[("x", "y")])),
                text("reset 1 PseudoFieldMissing"),
            ),
            ("8.3.2", end(f().headers(1, END_STREAM, &GET)), text("reset 1 PseudoFieldUnknown")),
            (
                "8.1.1",
                end(f().headers(1, 0, &status("204")).data(1, 0, b"a")),
                text("response 1 70 204; reset 1 DataWithoutBody"),
            ),
            (
                "8.1.1",
                end(f().headers(1, END_STREAM, &[(":status", "200"), ("content-length", "2")])),
                text("reset 1 ContentLengthMismatch"),
            ),
            (
                "8.1.1",
                end(f().headers(1, END_STREAM, &[(":status", "304"), ("content-length", "2")])),
                "response 1 70 304 end; response 3 71 200 end",
            ),
            (
                "8.2.2",
                end(f().headers(1, END_STREAM, &[(":status", "200"), ("upgrade", "h2")])),
                text("reset 1 ConnectionField"),
            ),
            (
                "5.1",
                end(f().headers(1, END_STREAM, &status("200")).data(1, 0, b"x")),
                "response 1 70 200 end; response 3 71 200 end; rst 1 STREAM_CLOSED",
            ),
        ],
    );
    check(
        &|| Watch::client(&["HEAD"]),
        &Frames::server(),
        vec![
            (
                "8.1.1",
                f().headers(1, END_STREAM, &[(":status", "200"), ("content-length", "2")]),
                "response 1 70 200 end",
            ),
            (
                "8.1.1",
                f().headers(1, 0, &status("200")).data(1, END_STREAM, b""),
                "response 1 70 200; data 1: end",
            ),
            (
                "8.1.1",
                f().headers(1, 0, &status("200")).data(1, END_STREAM, b"x"),
                "response 1 70 200; reset 1 DataWithoutBody; rst 1 PROTOCOL_ERROR",
            ),
        ],
    );
}

#[test]
fn client_rejects_what_only_clients_may_send() {
    let idle = "fault StreamIdle; goaway 0 PROTOCOL_ERROR";
    check(
        &|| Watch::client(&["GET"]),
        &Frames::server(),
        vec![
            ("5.1", f().headers(3, END_STREAM, &[(":status", "200")]), idle),
            ("5.1", f().data(3, 0, b"x"), idle),
            (
                "5.1.1",
                f().headers(2, END_STREAM, &[(":status", "200")]),
                "fault StreamIdInvalid; goaway 0 PROTOCOL_ERROR",
            ),
            (
                "8.4",
                f().raw(5, END_HEADERS, 1, b"\0\0\0\x02"),
                "fault PushNotAllowed; goaway 0 PROTOCOL_ERROR",
            ),
            ("6.5.2", f().settings(&[(2, 1)]), "fault SettingInvalid; goaway 0 PROTOCOL_ERROR"),
            (
                "9218 7.1",
                f().priority_update(1, b"u=1"),
                "fault PriorityUpdateInvalid; goaway 0 PROTOCOL_ERROR",
            ),
        ],
    );
    check(
        &|| Watch::client(&["GET"]),
        &f(),
        vec![("3.4", f().ping(0, b"12345678"), "fault SettingsMissing; goaway 0 PROTOCOL_ERROR")],
    );
}
