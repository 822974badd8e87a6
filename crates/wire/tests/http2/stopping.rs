//! The end of a connection: GOAWAY in both directions, limits changed at run time, refused streams.

use crate::bytes::{ACK, END_STREAM, Frames, GET};
use crate::watch::{Watch, server};
use tidegate_base::Moment;
use tidegate_wire::http2::{Config, Connection, ErrorCode, OpenFault, RequestLine, StreamState};

const LAST: u32 = 0x7fff_ffff;

fn begun() -> Watch {
    let mut watch = server();
    watch.feed(&Frames::client().0, 1 << 20);
    watch.sent();
    watch.events.clear();
    watch
}

#[test]
fn graceful_stop_accepts_what_the_client_sent_before_it_knew() {
    let mut watch = begun();
    watch.feed(&Frames::new().get(1).0, 100);
    watch.connection.stop(&mut watch.out);
    watch.connection.stop(&mut watch.out);
    assert_eq!(watch.sent(), [format!("goaway {LAST} NO_ERROR"), "ping".to_owned()]);
    watch.feed(&Frames::new().get(3).ping(ACK, b"tdgtstop").0, 100);
    assert_eq!(watch.sent(), ["goaway 3 NO_ERROR"]);
    watch.feed(
        &Frames::new().headers(5, 0, &GET).data(5, END_STREAM, b"x").ping(0, b"12345678").0,
        100,
    );
    assert_eq!(watch.sent(), ["ping-ack"], "later streams are ignored, PING is not");
    assert_eq!(watch.events, ["request 1 GET / end", "request 3 GET / end"]);
    assert!(!watch.connection.is_finished());
    for stream in [1, 3] {
        assert!(watch.connection.send_response(&mut watch.out, stream, 200, true, |_| {}));
    }
    assert!(watch.connection.is_finished());
}

#[test]
fn compression_stays_in_step_while_later_streams_are_ignored() {
    let mut watch = begun();
    watch.connection.stop_now(&mut watch.out);
    // The ignored request inserts a field; a response to HEADERS is not needed to see that it was decoded.
    let mut block = crate::bytes::block(&GET);
    block.extend_from_slice(b"\x40\x01x\x01y");
    watch.feed(&Frames::new().raw(1, 5, 1, &block).raw(1, 5, 3, b"\xbe").0, 100);
    assert_eq!(watch.events, Vec::<String>::new());
    assert!(!watch.feed(&Frames::new().raw(1, 5, 5, b"\xbf").0, 100), "there is only one entry");
}

#[test]
fn client_retries_what_the_server_did_not_process() {
    let mut watch = Watch::client(&["GET", "POST", "GET"]);
    watch.feed(&Frames::server().goaway(1, 0).headers(1, END_STREAM, &[(":status", "200")]).0, 7);
    assert_eq!(
        watch.events,
        [
            "settings",
            "goaway 1 NO_ERROR",
            "reset 3 gone away",
            "reset 5 gone away",
            "response 1 70 200 end"
        ]
    );
    assert!(watch.connection.is_finished() && watch.connection.available_streams() == 0);
    let line =
        RequestLine { method: "GET", scheme: "http", authority: "a", path: "/", protocol: None };
    let refused = watch.connection.send_request(&mut watch.out, 0, &line, true, |_| {});
    assert_eq!(refused, Err(OpenFault::Ending));
}

#[test]
fn late_frames_of_streams_that_the_server_excludes_are_ignored() {
    let mut watch = Watch::client(&["GET"; 80]);
    watch.feed(&Frames::server().goaway(1, 0).0, 100);
    watch.events.clear();
    watch.sent();
    for stream in (3..160).step_by(2) {
        let late = Frames::new()
            .headers(stream, 0, &[(":status", "200")])
            .data(stream, END_STREAM, b"late")
            .reset(stream, 0);
        assert!(watch.feed(&late.0, 100), "{stream}: {:?}", watch.events);
    }
    assert_eq!((watch.events.len(), watch.sent().len()), (0, 0));
    assert!(watch.feed(&Frames::new().headers(1, END_STREAM, &[(":status", "200")]).0, 100));
    assert_eq!(watch.events, ["response 1 70 200 end"]);
}

#[test]
fn table_that_shrinks_and_grows_in_one_frame_is_emptied() {
    let mut watch = Watch::new(Config { encoder_table_bytes: 4096, ..Config::server() });
    watch.feed(&Frames::client().0, 100);
    let mut block = |entries: &[(u16, u32)], stream: u32| {
        watch.feed(&Frames::new().settings(entries).get(stream).0, 100);
        watch.out.clear();
        watch.connection.send_response(&mut watch.out, stream, 200, true, |fields| {
            fields.field("x-often", b"the same value each time");
        });
        watch.out.split_off(9)
    };
    for stream in [1, 3, 5] {
        block(&[], stream);
    }
    assert_eq!(block(&[], 7), [0x88, 0xbe], "the field is in the table");
    let after = block(&[(1, 0), (1, 4096)], 9);
    // RFC 7541 section 4.2: the smallest size, and then the final one.
    assert_eq!(after[..4], [0x20, 0x3f, 0xe1, 0x1f], "{after:x?}");
    assert!(!after.contains(&0xbe), "the table is empty: {after:x?}");
}

#[test]
fn streams_max_can_be_lowered_while_streams_are_open() {
    let mut watch = begun();
    watch.feed(&Frames::new().get(1).get(3).get(5).0, 100);
    assert!(
        !watch.connection.set_streams_max(&mut watch.out, 2),
        "the first SETTINGS are not acknowledged"
    );
    watch.feed(&Frames::new().settings_ack().0, 100);
    assert!(watch.connection.set_streams_max(&mut watch.out, 2));
    assert!(
        !watch.connection.set_streams_max(&mut watch.out, 3),
        "the second SETTINGS are not acknowledged"
    );
    // The client has opened a stream before it knew the limit.
    watch.feed(&Frames::new().get(7).settings_ack().get(9).0, 100);
    assert_eq!(watch.sent(), ["settings", "rst 9 REFUSED_STREAM"]);
    for stream in [1, 3, 5] {
        assert!(watch.connection.send_response(&mut watch.out, stream, 200, true, |_| {}));
    }
    watch.feed(&Frames::new().get(11).0, 100);
    assert_eq!(watch.events.last().unwrap(), "request 11 GET / end");
    assert_eq!(watch.events.iter().filter(|event| event.starts_with("rejected")).count(), 1);
    // A higher limit holds at once.
    assert!(watch.connection.set_streams_max(&mut watch.out, 3));
    watch.feed(&Frames::new().get(13).get(15).0, 100);
    assert_eq!(watch.events.iter().filter(|event| event.starts_with("rejected")).count(), 2);
    assert_eq!(watch.events[watch.events.len() - 2], "request 13 GET / end");
}

#[test]
fn client_respects_the_limit_of_the_server() {
    let config = Config { streams_max: 3, ..Config::client() };
    let mut watch = Watch::new(config);
    let line =
        RequestLine { method: "GET", scheme: "http", authority: "a", path: "/", protocol: None };
    let open =
        |watch: &mut Watch| watch.connection.send_request(&mut watch.out, 0, &line, true, |_| {});
    assert_eq!(watch.connection.available_streams(), 3, "before SETTINGS its own limit applies");
    assert_eq!(open(&mut watch), Ok(1));
    watch.feed(&Frames::new().settings(&[(3, 2)]).0, 100);
    assert_eq!(open(&mut watch), Ok(3));
    assert_eq!(open(&mut watch), Err(OpenFault::AtLimit));
    watch.feed(&Frames::new().headers(1, END_STREAM, &[(":status", "200")]).0, 100);
    assert_eq!(open(&mut watch), Ok(5));
}

#[test]
fn early_response_and_reset_without_error_keep_the_response() {
    let mut watch = Watch::client(&["POST"]);
    let frames = Frames::server()
        .headers(1, 0, &[(":status", "413")])
        .data(1, END_STREAM, b"no")
        .reset(1, 0);
    watch.feed(&frames.0, 5);
    assert_eq!(
        watch.events,
        ["settings", "response 1 70 413", "data 1:no end", "reset 1 by peer NO_ERROR"]
    );
    let mut watch = begun();
    watch.feed(&Frames::new().post(1).0, 100);
    assert!(watch.connection.send_response(&mut watch.out, 1, 413, true, |_| {}));
    assert_eq!(watch.connection.state(1), StreamState::HalfClosedLocal);
    assert!(watch.connection.reset(&mut watch.out, 1, ErrorCode::NO_ERROR).is_some());
    assert_eq!(watch.sent(), ["headers 1 end", "rst 1 NO_ERROR"]);
    watch.feed(&Frames::new().data(1, END_STREAM, b"late").window(1, 5).0, 100);
    assert_eq!(watch.sent(), Vec::<String>::new(), "late frames are ignored");
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304)] {
        let mut watch = begun();
        let fields = [(":method", method), GET[1], GET[2], GET[3]];
        watch.feed(&Frames::new().headers(1, END_STREAM, &fields).0, 100);
        assert!(watch.connection.send_response(&mut watch.out, 1, 103, true, |_| {}));
        assert!(watch.connection.send_response(&mut watch.out, 1, status, false, |_| {}));
        assert_eq!(watch.sent(), ["headers 1", "headers 1 end"]);
        assert_eq!(watch.connection.send_data(Moment::ZERO, &mut watch.out, 1, b"x", true), None);
        assert_eq!(watch.connection.open_streams(), 0);
    }
}

/// The fields of a browser's request, with a cookie of usual length.
const BROWSER: [(&str, &str); 10] = [
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    ),
    (
        "accept",
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    ),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-US,en;q=0.9,de;q=0.8"),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-site", "none"),
    ("sec-fetch-user", "?1"),
    ("upgrade-insecure-requests", "1"),
    ("cookie", "session=0123456789abcdef0123456789abcdef; theme=dark"),
];

#[test]
fn idle_connection_is_small() {
    let mut client =
        Connection::new(Config { encoder_table_bytes: 4096, ..Config::client() }, Moment::ZERO);
    let mut watch = server();
    let mut requests = Vec::new();
    client.start(&mut requests);
    let line = RequestLine {
        method: "GET",
        scheme: "https",
        authority: "example.com",
        path: "/",
        protocol: None,
    };
    for n in 0..200_u32 {
        let sent = client.send_request(&mut requests, 0, &line, true, |fields| {
            BROWSER.iter().for_each(|(name, value)| fields.field(name, value.as_bytes()));
        });
        let stream = sent.expect("at most one stream is open");
        assert!(watch.feed(&requests, 13), "{:?}", watch.events.last());
        assert!(watch.connection.send_response(&mut watch.out, stream, 200, true, |fields| {
            fields.field("Server", b"tidegate");
        }));
        requests.clear();
        watch.out.clear();
        client.reset(&mut Vec::new(), stream, ErrorCode::CANCEL);
        assert_eq!(stream, 2 * n + 1);
    }
    watch.connection.shrink();
    let held = watch.connection.held_bytes();
    assert!(held > size_of::<Connection>() + 400, "the table is in use: {held}");
    assert!(held <= 2_048, "{held}");
    assert!(size_of::<Connection>() <= 768, "{}", size_of::<Connection>());
}
