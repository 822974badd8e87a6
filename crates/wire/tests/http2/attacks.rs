//! Attacks on a connection, each with the bound that ends the connection: as many as the bound pass, one more does not.

use crate::bytes::{END_HEADERS, END_STREAM, Frames, GET, PADDED, block};
use crate::watch::{Watch, server};
use tidegate_base::{Moment, Span};
use tidegate_wire::http2::bounds::{
    CONTINUATIONS_MAX, INTERIMS_MAX, REPLY_BYTES_MAX, SETTINGS_ENTRIES_MAX,
};
use tidegate_wire::http2::flood::{
    EMPTY_FRAMES_MAX, EMPTY_FRAMES_PER_RESPONSE, GLITCHES_GRACEFUL, GLITCHES_MAX, PINGS_MAX,
    PRIORITIES_MAX, PRIORITIES_PER_REQUEST, RESETS_MAX, SETTINGS_MAX, UNKNOWN_FRAMES_MAX,
    WINDOW_UPDATES_MAX, WINDOW_UPDATES_PER_FRAME,
};
use tidegate_wire::http2::{Config, ErrorCode, RequestLine};

/// A server after the beginning of a connection.
fn begun() -> Watch {
    let mut watch = server();
    assert!(watch.feed(&Frames::client().0, usize::MAX));
    watch.sent();
    watch.events.clear();
    watch
}

/// How many times `frames` can be fed before the connection ends, and the fault. Output is drained each time.
fn repeats(watch: &mut Watch, limit: usize, frames: impl Fn(u32) -> Frames) -> (usize, String) {
    for count in 0..limit {
        watch.connection.output_drained();
        if !watch.feed(&frames(count as u32).0, usize::MAX) {
            return (count, watch.events.last().cloned().unwrap_or_default());
        }
    }
    (limit, String::new())
}

#[test]
fn rapid_reset_ends_the_connection() {
    let mut watch = begun();
    let (count, fault) =
        repeats(&mut watch, 10_000, |n| Frames::new().post(2 * n + 1).reset(2 * n + 1, 8));
    assert_eq!((count, &fault[..]), (usize::from(RESETS_MAX), "fault ResetFlood"));
    assert_eq!(
        watch.sent().last().unwrap(),
        &format!("goaway {} ENHANCE_YOUR_CALM", 2 * count + 1)
    );
}

/// Feeds a request, which is answered at once, and `pause` later its reset. Returns whether the connection goes on.
fn answers_before_reset(
    watch: &mut Watch,
    request: fn(Frames, u32) -> Frames,
    stream: u32,
    pause: Span,
) -> bool {
    watch.connection.output_drained();
    assert!(watch.feed(&request(Frames::new(), stream).0, 7));
    assert!(watch.connection.send_response(&mut watch.out, stream, 200, true, |_| {}));
    watch.out.clear();
    watch.now = watch.now.after(pause);
    watch.feed(&Frames::new().reset(stream, 8).0, 7)
}

#[test]
fn reset_of_a_stream_opened_at_the_same_time_counts_even_if_the_response_is_complete() {
    // The end of a complete exchange restores a reset, except for the first one.
    for (request, most) in
        [(Frames::get as fn(Frames, u32) -> Frames, RESETS_MAX - 1), (Frames::post, RESETS_MAX)]
    {
        let mut watch = begun();
        let mut streams = (0..10_000).map(|n| 2 * n + 1);
        let ended =
            streams.position(|id| !answers_before_reset(&mut watch, request, id, Span::ZERO));
        assert_eq!(ended, Some(usize::from(most)));
        assert_eq!(watch.events.last().unwrap(), "fault ResetFlood");
    }
}

#[test]
fn streams_that_end_normally_and_time_allow_more_resets() {
    let mut watch = begun();
    for n in 0..2_000_u32 {
        let stream = 4 * n + 1;
        assert!(
            watch.feed(&Frames::new().post(stream).reset(stream, 8).get(stream + 2).0, 1 << 20)
        );
        assert!(watch.connection.send_response(&mut watch.out, stream + 2, 200, true, |_| {}));
        watch.out.clear();
    }
    let mut watch = begun();
    for n in 0..u32::from(RESETS_MAX) + 100 {
        watch.now = Moment::from_nanos(u64::from(n) * 100_000_000);
        assert!(watch.feed(&Frames::new().post(2 * n + 1).reset(2 * n + 1, 8).0, 1 << 20));
    }
}

#[test]
fn provoked_resets_end_the_connection() {
    for provoke in [
        |stream| Frames::new().get(stream).window(stream, 0),
        |stream| Frames::new().get(stream).window(stream, 0x7fff_ffff),
        |stream| Frames::new().get(stream).data(stream, 0, b"x"),
        |stream| Frames::new().get(stream).headers(stream, END_STREAM, &[("x", "y")]),
        |stream| Frames::new().get(stream).priority(stream, b"1234"),
        |stream| Frames::new().headers(stream, END_STREAM, &[("x", "y")]),
    ] {
        let mut watch = begun();
        let (count, fault) = repeats(&mut watch, 10_000, |n| provoke(2 * n + 1));
        assert_eq!((count, &fault[..]), (usize::from(RESETS_MAX), "fault ResetFlood"));
        assert!(watch.connection.open_streams() <= 1);
    }
}

#[test]
fn trailers_of_connect_are_a_fault_of_the_client() {
    let mut watch = Watch::new(Config { connect_protocol: true, ..Config::server() });
    assert!(watch.feed(&Frames::client().0, usize::MAX));
    watch.sent();
    let connect = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
    ];
    let (count, fault) = repeats(&mut watch, 10_000, |n| {
        let stream = 2 * n + 1;
        Frames::new().headers(stream, 0, &connect).headers(stream, END_STREAM, &[("x", "y")])
    });
    assert_eq!((count, &fault[..]), (usize::from(RESETS_MAX), "fault ResetFlood"));
    assert_eq!(watch.sent()[0], "rst 1 PROTOCOL_ERROR");
    assert_eq!(watch.events[2], "reset 1 TrailersOfConnect");
}

#[test]
fn faults_of_a_server_stop_new_requests_long_before_they_close_the_connection() {
    for (frames, graceful, fault) in [
        (
            (|| Frames::new().data(1, 0, b"")) as fn() -> Frames,
            EMPTY_FRAMES_MAX,
            "fault EmptyFrameFlood",
        ),
        (|| Frames::new().raw(0x20, 0, 0, b""), UNKNOWN_FRAMES_MAX, "fault UnknownFrameFlood"),
        (|| Frames::new().reset(3, 0), UNKNOWN_FRAMES_MAX, "fault UnknownFrameFlood"),
        (|| Frames::new().settings_ack(), GLITCHES_GRACEFUL, "fault GlitchFlood"),
    ] {
        let mut watch = Watch::client(&["GET", "GET"]);
        let status = [(":status", "200")];
        let begin = Frames::server().settings_ack();
        let begin = begin.headers(1, 0, &status).headers(3, END_STREAM, &status);
        assert!(watch.feed(&begin.0, 100));
        watch.sent();
        for count in 0..u32::from(graceful) {
            assert!(!watch.connection.is_stopping(), "{fault} after {count}");
            assert!(watch.feed(&frames().0, 100));
        }
        assert_eq!(watch.sent(), ["goaway 0 NO_ERROR"]);
        assert_eq!(watch.connection.available_streams(), 0);
        assert!(watch.feed(&Frames::new().data(1, 0, b"more").0, 100), "{:?}", watch.events);
        assert_eq!(watch.events.last().unwrap(), "data 1:more");
        let (_, ended) = repeats(&mut watch, 10_000, |_| frames());
        assert_eq!(ended, fault);
    }
}

#[test]
fn malformed_responses_do_not_end_the_connection_of_others() {
    let mut watch = Watch::client(&["GET"]);
    assert!(watch.feed(&Frames::server().0, 100));
    for n in 1..2_000 {
        watch.connection.output_drained();
        let line = RequestLine {
            method: "GET",
            scheme: "http",
            authority: "a",
            path: "/",
            protocol: None,
        };
        let opened = watch.connection.send_request(&mut watch.out, 0, &line, true, |_| {});
        assert_eq!(opened, Ok(2 * n + 1));
        let mut frames = Frames::new().headers(2 * n + 1, 0, &[(":status", "200")]);
        for _ in 0..EMPTY_FRAMES_PER_RESPONSE {
            frames = frames.data(2 * n + 1, 0, b"");
        }
        frames = frames.headers(2 * n + 1, END_STREAM, &[("Upper", "case")]);
        assert!(watch.feed(&frames.0, 1000), "{n}: {:?}", watch.events.last());
    }
    assert!(!watch.connection.is_stopping());
}

#[test]
fn streams_above_the_limit_are_refused_and_finally_end_the_connection() {
    let mut watch = begun();
    let limit = watch.connection.config().streams_max as usize;
    let (count, fault) = repeats(&mut watch, 10_000, |n| Frames::new().get(2 * n + 1));
    assert_eq!((count, &fault[..]), (limit + usize::from(RESETS_MAX), "fault ResetFlood"));
    assert_eq!(watch.connection.open_streams(), limit);
    assert_eq!(watch.sent()[0], format!("rst {} REFUSED_STREAM", 2 * limit + 1));
}

#[test]
fn continuation_flood_ends_the_connection() {
    let fragment = |n: u32| {
        if n == 0 { Frames::new().raw(1, 0, 1, b"") } else { Frames::new().continuation(1, 0, b"") }
    };
    let (count, fault) = repeats(&mut begun(), 10_000, fragment);
    assert_eq!(
        (count, &fault[..]),
        (usize::from(CONTINUATIONS_MAX) + 1, "fault TooManyContinuations")
    );
    let large = vec![0; 16_384];
    let fragment = |n: u32| {
        if n == 0 {
            Frames::new().raw(1, 0, 1, &large)
        } else {
            Frames::new().continuation(1, 0, &large)
        }
    };
    let (count, fault) = repeats(&mut begun(), 10_000, fragment);
    assert_eq!((count, &fault[..]), (3, "fault HeaderBlockTooLarge"));
}

#[test]
fn head_above_the_limits_gets_431_and_far_above_ends_the_connection() {
    let head = |fields: usize, value: usize| {
        let value = "v".repeat(value);
        let mut all = GET.to_vec();
        all.extend(std::iter::repeat_n(("x", value.as_str()), fields));
        let block = block(&all);
        let mut chunks = block.chunks(16_384);
        let mut frames = Frames::new().raw(1, END_STREAM, 1, chunks.next().unwrap());
        for chunk in chunks {
            frames = frames.continuation(1, 0, chunk);
        }
        frames.continuation(1, END_HEADERS, b"").get(3)
    };
    let fields_max = usize::from(Config::server().header_fields_max);
    for (frames, wanted) in [
        (head(fields_max - 4, 1), None),
        (head(fields_max - 3, 1), Some("too-large 1 431")),
        (head(3, 9_000), None),
        (head(4, 9_000), Some("too-large 1 431")),
        (head(9 * fields_max, 1), Some("fault HeaderBlockTooLarge")),
    ] {
        let mut watch = begun();
        watch.feed(&frames.0, 1_000);
        let first = watch.events.first().unwrap();
        match wanted {
            None => assert!(first.starts_with("request 1")),
            Some(wanted) => assert_eq!(first, wanted),
        }
    }
}

#[test]
fn request_that_is_too_large_can_be_answered_and_its_body_is_discarded() {
    let value = "v".repeat(40_000);
    let block = block(&[&GET[..], &[("x", &value)]].concat());
    let frames = Frames::new()
        .raw(1, 0, 1, &block[..16_384])
        .continuation(1, 0, &block[16_384..32_768])
        .continuation(1, END_HEADERS, &block[32_768..])
        .data(1, 0, b"body");
    let mut watch = begun();
    assert!(watch.feed(&frames.0, 100));
    assert_eq!(watch.events, ["too-large 1 431"]);
    assert!(watch.connection.send_response(&mut watch.out, 1, 431, true, |_| {}));
    assert_eq!(watch.sent(), ["headers 1 end", "rst 1 NO_ERROR"]);
    assert!(watch.feed(&Frames::new().data(1, END_STREAM, b"body").get(3).0, 100));
    assert_eq!(watch.events, ["too-large 1 431", "request 3 GET / end"]);
    assert_eq!((watch.sent(), watch.connection.open_streams()), (vec![], 1));
}

#[test]
fn table_bomb_is_bounded_by_the_decoded_size() {
    // One large entry in the table, then many references of one byte each.
    let mut bomb = block(&GET);
    bomb.extend_from_slice(b"\x40\x01x\x7f\xa1\x06");
    bomb.extend_from_slice(&[b'v'; 928]);
    bomb.extend_from_slice(&vec![0xbe; 8_000]);
    let mut watch = begun();
    assert!(!watch.feed(&Frames::new().raw(1, END_STREAM | END_HEADERS, 1, &bomb).0, 1 << 20));
    assert_eq!(watch.events, ["fault HeaderBlockTooLarge"]);
}

#[test]
fn table_thrash_stays_within_the_table() {
    // Each request inserts fields that evict those of the request before.
    let mut watch = begun();
    for n in 0..500_u32 {
        let mut block = block(&GET);
        for index in 0..40 {
            let value = format!("{n:08}-{index:08}");
            block.extend_from_slice(b"\x40\x05thing");
            block.push(value.len() as u8);
            block.extend_from_slice(value.as_bytes());
        }
        let stream = 2 * n + 1;
        assert!(
            watch.feed(&Frames::new().raw(1, END_STREAM | END_HEADERS, stream, &block).0, 1 << 20)
        );
        assert!(watch.connection.send_response(&mut watch.out, stream, 200, true, |_| {}));
        watch.out.clear();
    }
    watch.connection.shrink();
    assert!(watch.connection.held_bytes() < 6 * 1024, "{}", watch.connection.held_bytes());
}

#[test]
fn control_frame_floods_end_the_connection() {
    type Row = (&'static str, u16, fn(u32) -> Frames);
    let rows: [Row; 9] = [
        ("PingFlood", PINGS_MAX, |_| Frames::new().ping(0, b"12345678")),
        ("PingFlood", PINGS_MAX, |_| Frames::new().ping(1, b"12345678")),
        ("SettingsFlood", SETTINGS_MAX - 1, |_| Frames::new().settings(&[(4, 1)])),
        ("PriorityFlood", PRIORITIES_MAX, |_| Frames::new().priority(1, b"12345")),
        ("PriorityFlood", PRIORITIES_MAX, |n| Frames::new().priority_update(2 * n + 1, b"u=1")),
        ("WindowUpdateFlood", WINDOW_UPDATES_MAX, |_| Frames::new().window(0, 1)),
        ("UnknownFrameFlood", UNKNOWN_FRAMES_MAX, |_| Frames::new().raw(0xfe, 0, 0, b"x")),
        ("GlitchFlood", GLITCHES_MAX, |_| Frames::new().settings_ack()),
        ("UnknownFrameFlood", UNKNOWN_FRAMES_MAX, |_| Frames::new().reset(1, 8)),
    ];
    for (index, (name, max, frames)) in rows.into_iter().enumerate() {
        let mut watch = begun();
        // Both the acknowledgement that is expected and a closed stream come first.
        assert!(watch.feed(&Frames::new().settings_ack().post(1).reset(1, 8).0, 1 << 20));
        watch.now = watch.now.after(Span::from_nanos(1));
        let (count, fault) = repeats(&mut watch, 100_000, frames);
        assert_eq!((count, fault), (usize::from(max), format!("fault {name}")), "row {index}");
    }
}

#[test]
fn empty_data_flood_ends_the_connection_but_small_data_does_not() {
    for payload in [&b""[..], b"\0", b"\x02\0\0"] {
        let mut watch = begun();
        watch.feed(&Frames::new().post(1).0, 100);
        let flags = if payload.is_empty() { 0 } else { PADDED };
        let (count, fault) = repeats(&mut watch, 10_000, |_| Frames::new().data(1, flags, payload));
        assert_eq!((count, &fault[..]), (usize::from(EMPTY_FRAMES_MAX), "fault EmptyFrameFlood"));
    }
    let mut watch = begun();
    watch.releases = true;
    watch.feed(&Frames::new().post(1).0, 100);
    assert_eq!(repeats(&mut watch, 100_000, |_| Frames::new().data(1, 0, b"x")).0, 100_000);
}

#[test]
fn requests_and_data_allow_more_priorities_and_window_updates() {
    let mut watch = begun();
    for n in 0..1_000_u32 {
        let stream = 2 * n + 1;
        let mut frames = Frames::new();
        for _ in 0..PRIORITIES_PER_REQUEST {
            frames = frames.priority_update(stream, b"u=2");
        }
        for _ in 0..WINDOW_UPDATES_PER_FRAME {
            frames = frames.window(0, 1);
        }
        assert!(watch.feed(&frames.get(stream).0, 1 << 20), "{:?}", watch.events.last());
        assert!(watch.connection.send_response(&mut watch.out, stream, 200, true, |_| {}));
        watch.out.clear();
    }
}

#[test]
fn client_may_return_much_received_data_in_many_window_updates_at_once() {
    let mut watch = begun();
    // Windows of the stream and of the connection as large as those of Go's client, which returns them later in steps of 8 KiB.
    let window = 4 << 20;
    assert!(watch.feed(&Frames::new().settings(&[(4, window)]).window(0, 1 << 30).get(1).0, 100));
    assert!(watch.connection.send_response(&mut watch.out, 1, 200, false, |_| {}));
    let data = vec![0; window as usize];
    let mut left = &data[..];
    while !left.is_empty() {
        let sent = watch.connection.send_data(watch.now, &mut watch.out, 1, left, false).unwrap();
        assert!(sent > 0);
        left = &left[sent..];
        watch.out.clear();
        watch.connection.output_drained();
    }
    let mut frames = Frames::new();
    for _ in 0..window / 8192 {
        frames = frames.window(0, 8192).window(1, 8192);
    }
    assert!(watch.feed(&frames.0, usize::MAX), "{:?}", watch.events.last());
}

#[test]
fn settings_with_many_entries_end_the_connection() {
    let entries = vec![(0x4242, 1); SETTINGS_ENTRIES_MAX + 1];
    assert!(begun().feed(&Frames::new().settings(&entries[1..]).0, 100));
    let mut watch = begun();
    assert!(!watch.feed(&Frames::new().settings(&entries).0, 100));
    assert_eq!(watch.events, ["fault TooManySettings"]);
}

#[test]
fn replies_that_the_peer_does_not_read_are_bounded() {
    let mut watch = begun();
    let mut fed = 0;
    // Time passes, so that no flood is noticed; the output is never drained.
    while watch.feed(&Frames::new().ping(0, b"12345678").0, 100) {
        fed += 1;
        watch.now = Moment::from_nanos(fed * 1_000_000_000);
    }
    assert_eq!(watch.events, ["fault TooManyReplies"]);
    assert!(watch.out.len() <= REPLY_BYTES_MAX as usize + 200);
}

#[test]
fn many_glitches_stop_the_connection_gracefully_first() {
    let mut watch = begun();
    watch.feed(&Frames::new().settings_ack().0, 100);
    for _ in 0..GLITCHES_GRACEFUL - 1 {
        assert!(watch.feed(&Frames::new().settings_ack().0, 100));
    }
    assert!(!watch.connection.is_stopping());
    assert!(watch.feed(&Frames::new().settings_ack().0, 100));
    assert!(watch.connection.is_stopping());
    assert_eq!(watch.sent(), [format!("goaway {} NO_ERROR", 0x7fff_ffff_u32), "ping".to_owned()]);
    assert_eq!(watch.connection.take_glitches(), GLITCHES_GRACEFUL);
    assert_eq!(watch.connection.take_glitches(), 0);
}

#[test]
fn memory_for_closed_streams_is_bounded() {
    let mut watch = begun();
    for n in 0..20_000_u32 {
        let stream = 2 * n + 1;
        watch.now = Moment::from_nanos(u64::from(n) * 200_000_000);
        assert!(watch.feed(&Frames::new().post(stream).0, 1 << 20));
        watch.connection.reset(&mut watch.out, stream, ErrorCode::CANCEL);
        watch.out.clear();
    }
    assert!(watch.connection.held_bytes() < 4_096, "{}", watch.connection.held_bytes());
}

#[test]
fn interim_responses_are_bounded() {
    let mut watch = Watch::client(&["GET"]);
    assert!(watch.feed(&Frames::server().0, 100));
    watch.events.clear();
    for _ in 0..=INTERIMS_MAX {
        assert!(watch.feed(&Frames::new().headers(1, 0, &[(":status", "103")]).0, 100));
    }
    assert_eq!(watch.events.len(), usize::from(INTERIMS_MAX) + 1);
    assert_eq!(watch.events.last().unwrap(), "reset 1 TooManyInterims");
}

#[test]
fn usual_clients_are_not_taken_for_attackers() {
    // Early responses: the client stops its upload with RST_STREAM when it has the response.
    let mut watch = begun();
    for n in 0..2_000_u32 {
        let stream = 2 * n + 1;
        assert!(watch.feed(&Frames::new().post(stream).0, 100));
        assert!(watch.connection.send_response(&mut watch.out, stream, 413, true, |_| {}));
        watch.now = watch.now.after(Span::from_nanos(1));
        assert!(watch.feed(&Frames::new().reset(stream, 8).0, 100));
        watch.out.clear();
    }
    // RST_STREAM that crosses the end of the response.
    let mut watch = begun();
    let pause = Span::from_nanos(1);
    assert!((0..2_000).all(|n| answers_before_reset(&mut watch, Frames::get, 2 * n + 1, pause)));
    // A download with a PING and several WINDOW_UPDATE for each frame.
    let mut watch = begun();
    assert!(watch.feed(&Frames::new().get(1).0, 100));
    assert!(watch.connection.send_response(&mut watch.out, 1, 200, false, |_| {}));
    for _ in 0..5_000 {
        let sent = watch.connection.send_data(watch.now, &mut watch.out, 1, &[0; 16_000], false);
        assert_eq!(sent, Some(16_000));
        let mut frames = Frames::new().ping(0, b"12345678");
        for _ in 0..4 {
            frames = frames.window(0, 4_000).window(1, 4_000);
        }
        assert!(watch.feed(&frames.0, 1 << 20), "{:?}", watch.events.last());
        watch.out.clear();
        watch.connection.output_drained();
    }
}
