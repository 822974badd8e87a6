//! Named cases of HTTP/2 on the simulator, and attackers together with victims.
//! In: connections of clients that speak HTTP/2. Out: what each test's name says.
//! Limits: `STEPS_MAX` steps of an attack, each with up to `STEP_BYTES` bytes.
//! Invariant of all attacks: the victims' requests succeed, and the attacker's connection ends.

use tidegate_base::Span;
use tidegate_wire::http2::frame::{
    END_HEADERS, END_STREAM, FrameKind, encode_ping, encode_reset, encode_settings,
    encode_window_update,
};
use tidegate_wire::http2::{Config, ErrorCode};

use crate::host::Host;
use crate::speaker::{Speaker, encode_frame, encode_headers, encode_hello};
use crate::stage::{OK, Scene, scene};

/// Steps of an attack until the worker must have ended it.
const STEPS_MAX: usize = 2000;
/// About how many bytes an attacker sends in each step.
const STEP_BYTES: usize = 16_000;
/// What a stream whose client takes nothing may hold: one piece of its body.
const PIECE_BYTES_MAX: usize = 2 * 64 * 1024;
/// A listener for patient tests.
const PATIENT: &str = "h2c = true\ntimeouts = { head = \"1h\", idle = \"1h\", body = \"1h\" }\n";

/// The head of an upload.
const POST: [(&[u8], &[u8]); 4] =
    [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/p")];

fn h2c<'a>() -> Scene<'a> {
    scene().listener("h2c = true")
}

#[test]
fn replies_of_a_long_connection_do_not_add_up() {
    scene().listener(PATIENT).run(|stage| {
        let mut client = Speaker::new(stage);
        client.hello(stage);
        // More replies than may ever wait at a time; each of them is taken at once.
        for count in 1..1500 {
            client.ping();
            stage.until(|stage| {
                client.pump(stage.net.now());
                assert!(!client.is_over(), "ended after {count} PINGs: {:?}", client.goaway);
                (client.pongs == count).then_some(())
            });
            stage.net.advance_by(Span::from_millis(200));
        }
        client.hello(stage);
    });
}

#[test]
fn stalled_streams_do_not_stop_the_others() {
    scene().listener(PATIENT).run(|stage| {
        let mut client = Speaker::new(stage);
        let stalled: Vec<u32> = (0..20).map(|_| client.get("/synthetic?s=10m")).collect();
        client.unread.clone_from(&stalled);
        for _ in 0..10 {
            let stream = client.get("/synthetic?s=1m");
            assert_eq!(client.wait(stage, stream).body.len(), 1 << 20);
        }
        for stream in &stalled {
            assert_eq!(client.responses[stream].body.len(), 65_535, "the window of the stream");
        }
        assert!(stage.harness.worker.stream_bytes_held() <= stalled.len() * PIECE_BYTES_MAX);
        for stream in stalled {
            client.reset(stream);
        }
        client.hello(stage);
        assert_eq!(stage.harness.worker.stream_bytes_held(), 0);
        stage.assert_bounded();
    });
}

#[test]
fn streams_of_all_connections_become_fewer_under_load_and_more_after_it() {
    scene().listener(PATIENT).run(|stage| {
        // One slot in 100 for each connection; a stream counts as much.
        let mut early = Speaker::new(stage);
        early.hello(stage);
        assert_eq!(early.streams_max(), Some(100));
        let mut heavy = Speaker::new(stage);
        let streams: Vec<u32> = (0..85).map(|_| heavy.get("/synthetic?s=10m")).collect();
        heavy.unread.clone_from(&streams);
        heavy.hello(stage);
        early.hello(stage);
        let mut late = Speaker::new(stage);
        late.hello(stage);
        for client in [&early, &heavy, &late] {
            assert_eq!(client.streams_max(), Some(10));
        }
        assert_eq!(stage.counters().http2_limits_lowered.load(), 2);
        // A connection that has more streams than it may open keeps them, and gets no further one.
        assert!(heavy.responses.values().all(|response| response.reset.is_none()));
        for &stream in &streams {
            heavy.reset(stream);
        }
        heavy.pump(stage.net.now());
        for streams_max in [25, 50, 100, 100] {
            stage.pass(Span::from_secs(1));
            early.hello(stage);
            early.hello(stage);
            assert_eq!(early.streams_max(), Some(streams_max));
        }
        assert!(stage.counters().http2_limits_raised.load() >= 3);
    });
}

#[test]
fn load_around_a_border_does_not_change_the_limit_again_and_again() {
    scene().listener(PATIENT).run(|stage| {
        let mut heavy = [Speaker::new(stage), Speaker::new(stage)];
        for client in &mut heavy {
            client.unread = (0..23).map(|_| client.get("/synthetic?s=10m")).collect();
            client.hello(stage);
        }
        let mut restless = Speaker::new(stage);
        restless.hello(stage);
        for _ in 0..20 {
            let streams: Vec<u32> = (0..5).map(|_| restless.get("/synthetic?s=10m")).collect();
            restless.unread.clone_from(&streams);
            restless.hello(stage);
            stage.pass(Span::from_millis(700));
            streams.iter().for_each(|&stream| restless.reset(stream));
            restless.hello(stage);
            stage.pass(Span::from_millis(700));
        }
        let counters = stage.counters();
        let changes = (counters.http2_limits_lowered.load(), counters.http2_limits_raised.load());
        assert_eq!(changes, (1, 0));
    });
}

#[test]
fn uploads_that_an_origin_does_not_take_hold_their_windows_only() {
    scene().listener(PATIENT).run(|stage| {
        let mut client = Speaker::new(stage);
        let streams: Vec<u32> =
            (0..20).map(|_| client.request("POST", "/slow", false, |_| {})).collect();
        for &stream in &streams {
            client.pump(stage.net.now());
            stage.turn();
            client.data(stage.net.now(), stream, &[b'x'; 30_000], false);
        }
        // The origins accept and do not read.
        let origins: Vec<_> = streams
            .iter()
            .map(|_| {
                client.pump(stage.net.now());
                stage.accept()
            })
            .collect();
        for _ in 0..5 {
            client.hello(stage);
        }
        assert!(stage.harness.worker.stream_bytes_held() <= streams.len() * 65_535);
        streams.iter().for_each(|&stream| client.reset(stream));
        client.hello(stage);
        assert_eq!(stage.harness.worker.stream_bytes_held(), 0);
        drop(origins);
    });
}

#[test]
fn hundred_streams_without_windows_hold_bounded_memory_and_end() {
    let listener = "h2c = true\ntimeouts = { body = \"2s\", idle = \"5s\" }\n";
    scene().listener(listener).run(|stage| {
        let mut attacker = Speaker::new(stage);
        encode_settings(&mut attacker.out, &[(4, 0)]);
        let streams: Vec<u32> = (0..100)
            .map(|at| attacker.get(if at % 5 == 0 { "/p" } else { "/synthetic?s=10m" }))
            .collect();
        let mut victim = Speaker::new(stage);
        let mut origins = Vec::new();
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n";
        let mut held_most = 0;
        let start = stage.net.now();
        let attacked = |stage: &crate::stage::Stage, attacker: &mut Speaker| {
            attacker.pump(stage.net.now());
        };
        while stage.net.now() < start.after(Span::from_millis(1500)) {
            attacked(stage, &mut attacker);
            while let Some(origin) = stage.try_accept() {
                origin.send(head);
                origins.push(origin);
            }
            for origin in &origins {
                origin.send(&[b'x'; 64 * 1024]);
            }
            victim.hello(stage);
            stage.pass(Span::from_millis(20));
            held_most = held_most.max(stage.harness.worker.stream_bytes_held());
        }
        assert_eq!(origins.len(), 20);
        assert!(held_most > 100_000, "the attack holds {held_most} bytes only");
        assert!(held_most <= streams.len() * PIECE_BYTES_MAX, "{held_most} bytes are held");
        assert!(attacker.responses.values().all(|response| response.body.is_empty()));
        // The client takes no data, so the streams and then the connection end.
        stage.until(|stage| {
            attacked(stage, &mut attacker);
            attacker.is_over().then_some(())
        });
        assert_eq!(stage.harness.worker.stream_bytes_held(), 0);
        let reset = |stream: &u32| attacker.responses[stream].reset == Some(ErrorCode::CANCEL);
        assert!(streams.iter().all(reset), "{:?}", attacker.responses);
        Speaker::new(stage).hello(stage);
    });
}

/// Lets an attacker send what `attack` appends in each step, with victims over HTTP/2 and HTTP/1.1, until the
/// worker has ended the attacker's connection. `goaway`: the code that it must have stated.
fn attack(goaway: ErrorCode, mut attack: impl FnMut(&mut Vec<u8>, usize)) {
    h2c().run(|stage| {
        let mut victim = Speaker::new(stage);
        let old_victim = stage.dial();
        let mut attacker = Speaker::raw(stage);
        encode_hello(&mut attacker.out, 1);
        let mut step = 0;
        while !attacker.is_over() {
            assert!(step < STEPS_MAX, "the attack continues");
            if attacker.out.len() < STEP_BYTES {
                attack(&mut attacker.out, step);
            }
            attacker.pump(stage.net.now());
            if attacker.goaway.is_some() {
                // The attacker waits for its end.
                stage.pass(Span::from_millis(50));
            }
            victim.hello(stage);
            stage.hello(&old_victim);
            assert!(stage.harness.worker.stream_bytes_held() < PIECE_BYTES_MAX);
            step += 1;
        }
        assert_eq!(attacker.goaway, Some(goaway));
        victim.hello(stage);
        assert_eq!(stage.counters().bugs.load(), 0);
        stage.assert_bounded();
    });
}

#[test]
fn rapid_reset_ends_the_attacker_only() {
    // A response may also be complete before the reset of its stream.
    for request in [encode_hello_of_many_bytes, encode_hello] {
        let mut stream = 1;
        attack(ErrorCode::ENHANCE_YOUR_CALM, |out, _| {
            for _ in 0..100 {
                stream += 2;
                request(out, stream);
                encode_reset(out, stream, ErrorCode::CANCEL);
            }
        });
        assert!(stream < 4_000, "the attack has lasted for {} requests", stream / 2);
    }
}

#[test]
fn resets_that_the_attacker_provokes_end_it_only() {
    let mut stream = 1;
    attack(ErrorCode::ENHANCE_YOUR_CALM, |out, _| {
        for _ in 0..100 {
            stream += 2;
            encode_hello_of_many_bytes(out, stream);
            // A window update of 0 is a fault of the stream (CVE-2025-8671).
            encode_frame(out, FrameKind::WindowUpdate, 0, stream, &[0; 4]);
        }
    });
}

fn encode_hello_of_many_bytes(out: &mut Vec<u8>, stream: u32) {
    let fields: [(&[u8], &[u8]); 4] = [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":authority", b"a"),
        (b":path", b"/synthetic?s=10m"),
    ];
    encode_headers(out, stream, &fields, END_HEADERS | END_STREAM);
}

#[test]
fn continuation_flood_ends_the_attacker_only() {
    attack(ErrorCode::ENHANCE_YOUR_CALM, |out, step| {
        if step == 0 {
            encode_headers(out, 3, &[(b":method", b"GET")], END_STREAM);
        }
        // No other frame may come between them, so the attacker acknowledges nothing.
        encode_frame(out, FrameKind::Continuation, 0, 3, b"\x00\x01a\x01b");
    });
}

#[test]
fn settings_flood_ends_the_attacker_only() {
    attack(ErrorCode::ENHANCE_YOUR_CALM, |out, _| {
        (0..10).for_each(|_| encode_settings(out, &[(4, 65_535)]));
    });
}

#[test]
fn ping_flood_ends_the_attacker_only() {
    attack(ErrorCode::ENHANCE_YOUR_CALM, |out, _| {
        (0..100).for_each(|_| encode_ping(out, false, [0; 8]));
    });
}

#[test]
fn window_update_flood_ends_the_attacker_only() {
    attack(ErrorCode::ENHANCE_YOUR_CALM, |out, _| {
        (0..1000).for_each(|_| encode_window_update(out, 0, 1));
    });
}

#[test]
fn priority_flood_ends_the_attacker_only() {
    attack(ErrorCode::ENHANCE_YOUR_CALM, |out, _| {
        for _ in 0..100 {
            encode_frame(out, FrameKind::Priority, 0, 1, &[0, 0, 0, 0, 9]);
        }
    });
}

#[test]
fn empty_data_flood_ends_the_attacker_only() {
    attack(ErrorCode::ENHANCE_YOUR_CALM, |out, step| {
        if step == 0 {
            let fields: [(&[u8], &[u8]); 4] = [
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":authority", b"a"),
                (b":path", b"/synthetic?s=1m"),
            ];
            encode_headers(out, 3, &fields, END_HEADERS);
        }
        (0..100).for_each(|_| encode_frame(out, FrameKind::Data, 0, 3, b""));
    });
}

#[test]
fn pings_without_reading_end_the_attacker() {
    h2c().run(|stage| {
        let mut victim = Speaker::new(stage);
        let mut attacker = Speaker::new(stage);
        attacker.hello(stage);
        let mut ping = Vec::new();
        encode_ping(&mut ping, false, [0; 8]);
        for _ in 0..STEPS_MAX {
            if attacker.is_over() {
                break;
            }
            attacker.peer.send(&ping);
            attacker.peer.send(&ping);
            victim.hello(stage);
            stage.pass(Span::from_millis(100));
        }
        assert!(attacker.peer.was_reset() || stage.counters().bugs.load() == 0);
        stage.assert_bounded();
    });
}

#[test]
fn dripping_heads_end_with_the_head_timeout() {
    h2c().run(|stage| {
        let mut victim = Speaker::new(stage);
        let mut attacker = Speaker::raw(stage);
        encode_headers(&mut attacker.out, 1, &[(b":method", b"GET")], END_STREAM);
        attacker.pump(stage.net.now());
        let mut drip = Vec::new();
        encode_frame(&mut drip, FrameKind::Continuation, 0, 1, &[0; 200]);
        let mut drip = drip.into_iter();
        while !attacker.is_over() {
            attacker.out.push(drip.next().expect("the worker ends the connection"));
            attacker.pump(stage.net.now());
            stage.pass(Span::from_secs(1));
            victim.hello(stage);
        }
        assert_eq!(stage.counters().head_timeouts.load(), 1);
    });
}

#[test]
fn dripping_heads_end_with_the_head_timeout_while_another_stream_is_open() {
    let listener = "h2c = true\ntimeouts = { head = \"5s\", body = \"1h\" }\n";
    scene().listener(listener).run(|stage| {
        let mut attacker = Speaker::raw(stage);
        encode_headers(&mut attacker.out, 1, &POST, END_HEADERS);
        attacker.pump(stage.net.now());
        let origin = stage.accept();
        // Between header blocks, the connection has time.
        stage.pass(Span::from_secs(10));
        assert!(!attacker.is_over());
        encode_headers(&mut attacker.out, 3, &POST, 0);
        attacker.pump(stage.net.now());
        let start = stage.net.now();
        while !attacker.is_over() {
            encode_frame(&mut attacker.out, FrameKind::Continuation, 0, 3, b"");
            attacker.pump(stage.net.now());
            stage.pass(Span::from_secs(1));
        }
        assert!(stage.net.now().since(start) <= Span::from_secs(8));
        assert_eq!(stage.counters().head_timeouts.load(), 1);
        drop(origin);
    });
}

/// The head of a request whose response has no body, and so needs no window.
fn encode_head_request(out: &mut Vec<u8>, stream: u32) {
    let fields: [(&[u8], &[u8]); 4] = [
        (b":method", b"HEAD"),
        (b":scheme", b"http"),
        (b":authority", b"a"),
        (b":path", b"/hello"),
    ];
    encode_headers(out, stream, &fields, END_HEADERS | END_STREAM);
}

#[test]
fn client_that_sends_requests_and_does_not_read_fills_no_memory() {
    scene().listener(PATIENT).run(|stage| {
        let mut client = Speaker::raw(stage);
        let mut last = 0;
        for _ in 0..500 {
            while client.out.len() < STEP_BYTES {
                last = if last == 0 { 1 } else { last + 2 };
                encode_head_request(&mut client.out, last);
            }
            let sent = client.peer.send(&client.out);
            client.out.drain(..sent);
            stage.turn();
            stage.net.advance_by(Span::from_millis(1));
        }
        stage.assert_bounded();
        assert!(client.out.len() >= STEP_BYTES, "the worker still receives");
        // Once the client reads, all of its requests are served.
        let mut responses = 0;
        stage.until(|stage| {
            client.pump(stage.net.now());
            assert!(!client.is_over());
            let frames = core::mem::take(&mut client.frames);
            responses += frames.iter().filter(|(kind, ..)| *kind == FrameKind::Headers).count();
            (responses as u32 == last.div_ceil(2)).then_some(())
        });
        stage.assert_bounded();
    });
}

#[test]
fn interim_responses_for_a_client_that_does_not_read_fill_no_memory() {
    const STREAMS: u32 = 50;
    let pool = "h2c = true\ntimeouts = { response-head = \"1h\" }";
    scene().listener(PATIENT).pool(pool).run(|stage| {
        let mut client = Speaker::new(stage);
        let streams: Vec<u32> = (0..STREAMS).map(|_| client.get("/p")).collect();
        client.pump(stage.net.now());
        let mut host = Host::accept(stage, Config::server());
        host.until(stage, |host| (host.calls.len() as u32 == STREAMS).then_some(()));
        for _ in 0..30 {
            for at in 0..STREAMS {
                host.head(2 * at + 1, 103, false, |fields| fields.field("link", &[b'x'; 3000]));
            }
            host.until(stage, |host| host.out.is_empty().then_some(()));
        }
        stage.assert_bounded();
        for at in 0..STREAMS {
            host.respond(stage.net.now(), 2 * at + 1, b"ok");
        }
        host.pump(stage.net.now());
        for stream in streams {
            assert_eq!(client.wait(stage, stream).body, b"ok");
        }
    });
}

#[test]
fn limits_of_the_listener_hold_for_heads() {
    let limits = "limits = { request-line = \"64B\", head = \"512B\", header-fields = 8 }\n";
    scene().listener(&format!("h2c = true\n{limits}")).run(|stage| {
        let mut client = Speaker::new(stage);
        let path_of = |length: usize| format!("/hello?{}", "x".repeat(length - "/hello?".len()));
        let line_room = 64 - "GET  HTTP/1.1".len();
        // "GET /hello HTTP/1.1", "host: a", "x: ..." and the empty line, each with CR LF.
        let value_room = 512 - (19 + 2) - (7 + 2) - (3 + 2) - 2;
        let field = |value: usize| vec![("x", "v".repeat(value))];
        let fields = |count: usize| vec![("x", String::new()); count];
        let cases = [
            (path_of(line_room), field(0), 200),
            (path_of(line_room + 1), field(0), 414),
            ("/hello".to_owned(), field(value_room), 200),
            ("/hello".to_owned(), field(value_room + 1), 431),
            // The decoder stops before the end of the block.
            ("/hello".to_owned(), field(15_000), 431),
            // The host counts as a field.
            ("/hello".to_owned(), fields(7), 200),
            ("/hello".to_owned(), fields(8), 431),
            // Pieces of a cookie count as one field.
            ("/hello".to_owned(), vec![("cookie", "a=b".to_owned()); 40], 200),
        ];
        for (at, (path, fields, expected)) in cases.iter().enumerate() {
            let stream = client.request("GET", path, true, |writer| {
                fields.iter().for_each(|(name, value)| writer.field(name, value.as_bytes()));
            });
            assert_eq!(client.wait(stage, stream).status, *expected, "case {at}");
        }
        client.hello(stage);
        assert_eq!(stage.counters().requests_refused.load(), 4);
    });
}

#[test]
fn client_that_ignores_the_end_of_its_connection_is_ended() {
    let listener = "h2c = true\nrequests-per-connection-max = 3\n";
    // Without a pause, the number of requests ends the connection; with one, the time does.
    for (pause, requests_max) in [(Span::from_millis(5), 110), (Span::from_millis(100), 20)] {
        scene().listener(listener).run(|stage| {
            let mut client = Speaker::raw(stage);
            let mut requests = 0;
            // A stream that stays open keeps the connection from being idle.
            encode_headers(&mut client.out, 1, &POST, END_HEADERS);
            while client.frames.iter().filter(|frame| frame.0 == FrameKind::GoAway).count() < 2 {
                requests += 1;
                encode_hello(&mut client.out, 1 + 2 * requests);
                client.pump(stage.net.now());
                stage.pass(pause);
                assert!(
                    requests <= requests_max,
                    "the connection continues after {requests} requests"
                );
            }
        });
    }
}

#[test]
fn responses_that_come_in_one_turn_leave_at_once() {
    h2c().run(|stage| {
        let mut client = Speaker::new(stage);
        let streams: Vec<u32> = (0..8).map(|_| client.get("/p")).collect();
        client.pump(stage.net.now());
        let origins: Vec<_> = streams.iter().map(|_| stage.accept()).collect();
        for origin in &origins {
            stage.receive_until(origin, "\r\n\r\n");
        }
        client.pump(stage.net.now());
        let before = client.peer.arrivals();
        for origin in &origins {
            origin.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
        stage.turn();
        stage.pass(Span::from_millis(1));
        client.pump(stage.net.now());
        for stream in &streams {
            assert_eq!(client.responses[stream].body, b"hello", "stream {stream}");
        }
        assert_eq!(client.peer.arrivals(), before + 1, "responses of one turn are sent together");
    });
}

#[test]
fn client_that_ends_in_the_middle_of_an_upload_releases_its_state() {
    h2c().run(|stage| {
        let mut client = Speaker::new(stage);
        let stream = client.request("POST", "/p", false, |_| {});
        client.data(stage.net.now(), stream, b"abc", false);
        client.pump(stage.net.now());
        let origin = stage.accept();
        client.peer.finish();
        // The worker closes the connection to both sides.
        stage.until(|stage| {
            client.pump(stage.net.now());
            client.is_over().then_some(())
        });
        stage.until(|_| (origin.was_reset() || origin.is_finished_by_other()).then_some(()));
    });
}

#[test]
fn calls_of_a_client_that_ends_the_connection_are_cancelled() {
    h2c().run(|stage| {
        let mut client = Speaker::new(stage);
        client.request("POST", "/p", true, |fields| {
            fields.field("content-type", b"application/grpc");
        });
        client.pump(stage.net.now());
        let origin = stage.accept();
        stage.receive_until(&origin, "\r\n\r\n");
        client.peer.finish();
        stage.until(|_| (origin.was_reset() || origin.is_finished_by_other()).then_some(()));
    });
}

#[test]
fn denials_of_calls_are_errors_of_grpc() {
    const ROUTES: &str = "h2c = true\n\
        [[route]]\npath = \"/limited\"\nproxy = \"p\"\nrate = { limit = \"1/1h\" }\n\
        [[route]]\npath = \"/office\"\nproxy = \"p\"\nallow = [\"192.0.2.0/24\"]\n\
        [[route]]\npath = \"/closed\"\nproxy = \"p\"\nmaintenance = { retry-after = \"10m\" }\n\
        [[route]]\npath = \"/secret\"\nproxy = \"p\"\nauth = { ask = \"p\", path = \"/verify\" }\n";
    scene().listener(ROUTES).run(|stage| {
        let mut client = Speaker::new(stage);
        let call = |client: &mut Speaker, path: &str| {
            client.request("POST", path, true, |fields| {
                fields.field("content-type", b"application/grpc+proto");
            })
        };
        let first = call(&mut client, "/limited");
        client.pump(stage.net.now());
        let origin = stage.accept();
        stage.receive_until(&origin, "\r\n\r\n");
        origin.send(OK);
        assert_eq!(client.wait(stage, first).status, 200);
        for (path, code, pushback) in
            [("/limited", 14, Some("360")), ("/office", 7, None), ("/closed", 14, Some("600000\n"))]
        {
            let stream = call(&mut client, path);
            let response = client.wait(stage, stream);
            let fields = response.fields;
            assert_eq!((response.status, response.body.len()), (200, 0), "{path}: {fields}");
            assert!(fields.contains("content-type: application/grpc\n"), "{path}: {fields}");
            assert!(fields.contains(&format!("grpc-status: {code}\n")), "{path}: {fields}");
            let field = pushback.map(|value| format!("grpc-retry-pushback-ms: {value}"));
            let is_there = field.as_ref().is_some_and(|field| fields.contains(field));
            assert_eq!(is_there, pushback.is_some(), "{path}: {fields}");
            assert_eq!(fields.contains("pushback"), pushback.is_some(), "{path}: {fields}");
        }
        // The response of the server that `auth` asks is passed on as it is; clients derive the code from its status.
        let stream = call(&mut client, "/secret");
        client.pump(stage.net.now());
        let asked = stage.try_accept().unwrap_or(origin);
        let question = stage.receive_until(&asked, "\r\n\r\n");
        assert!(question.contains("/verify"), "{question}");
        asked.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\n\r\nnope");
        let response = client.wait(stage, stream);
        assert_eq!((response.status, &*response.body), (401, &b"nope"[..]));
        // The same routes answer requests of HTTP as such.
        let stream = client.get("/office");
        assert_eq!(client.wait(stage, stream).status, 403);
    });
}

#[test]
fn stream_without_a_window_ends_with_the_direction_of_its_client() {
    scene().listener(PATIENT).run(|stage| {
        let mut client = Speaker::new(stage);
        let stalled = client.get("/synthetic?s=10m");
        client.unread.push(stalled);
        // The window of the stream is used up.
        stage.until(|stage| {
            client.pump(stage.net.now());
            let response = client.responses.get(&stalled);
            response.is_some_and(|response| response.body.len() == 65_535).then_some(())
        });
        // A response that needs no further window arrives after the end.
        let stream = client.get("/hello");
        client.pump(stage.net.now());
        client.peer.finish();
        let begin = stage.net.now();
        stage.until(|stage| {
            client.pump(stage.net.now());
            client.is_over().then_some(())
        });
        assert!(stage.net.now() < begin.after(Span::from_secs(60)), "long before the timeouts");
        assert!(client.responses[&stalled].reset.is_some());
        assert!(client.responses[&stream].reset.is_none());
        assert_eq!(stage.counters().client_aborts.load(), 1);
    });
}

#[test]
fn requests_without_an_end_are_408_and_the_connection_ends() {
    let listener = "h2c = true\ntimeouts = { body = \"2s\", idle = \"5s\" }\n";
    scene().listener(listener).run(|stage| {
        let mut victim = Speaker::new(stage);
        let mut attacker = Speaker::new(stage);
        let streams: Vec<u32> = (0..90)
            .map(|at| {
                let path = if at % 2 == 0 { "/p" } else { "/hello" };
                attacker.request("POST", path, false, |fields| fields.field("x", b"y"))
            })
            .collect();
        let mut origins = Vec::new();
        let start = stage.net.now();
        while !attacker.is_over() {
            attacker.pump(stage.net.now());
            while let Some(origin) = stage.try_accept() {
                origins.push(origin);
            }
            stage.pass(Span::from_millis(100));
            victim.hello(stage);
            assert!(stage.net.now() < start.after(Span::from_secs(60)));
        }
        for stream in streams {
            let response = &attacker.responses[&stream];
            // A local response does not wait for the request.
            let wanted = if stream % 4 == 1 { 408 } else { 200 };
            assert!(response.status == wanted && response.has_ended, "{stream}: {response:?}");
            assert_eq!(response.reset, Some(ErrorCode::NO_ERROR));
        }
        assert_eq!(stage.counters().bugs.load(), 0);
    });
}

#[test]
fn hundred_requests_that_arrive_at_once_are_answered() {
    h2c().run(|stage| {
        let mut client = Speaker::new(stage);
        let streams: Vec<u32> = (0..100).map(|_| client.get("/hello")).collect();
        for stream in streams {
            assert_eq!(client.wait(stage, stream).status, 200);
        }
    });
}
