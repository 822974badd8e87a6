//! Lines of the access log, compared as a whole.
//! In: entries. Out: the exact lines.

use tidegate_base::Span;
use tidegate_config::model::{
    AccessFilter, AccessFormat, AccessLog, AccessTarget, CaptureNames, SAMPLE_ALL,
};
use tidegate_gate::access::{
    Captures, Cause, Entry, LineEncoder, Loads, Phase, RequestLine, Selection, Timers, cut,
    shown_target,
};
use tidegate_wire::message::Version;

/// A proxied request that ended normally.
fn proxied() -> Entry<'static> {
    Entry {
        unix_millis: 1_795_330_141_007,
        client: Some(([192, 0, 2, 7], 51234).into()),
        listener: "web",
        request: Some(RequestLine {
            method: b"GET",
            target: b"/api/users?page=2",
            host: b"api.example.com",
        }),
        id: b"",
        trace: b"",
        version: Some(Version::Http11),
        route: Some("/api/*"),
        server: Some(("api", "10.0.0.1:8000")),
        pool: None,
        attempts: 2,
        is_reused: false,
        status: Some(200),
        bytes_in: 0,
        bytes_out: 2750,
        timers: Timers {
            request: Span::ZERO,
            queue: Some(Span::from_micros(10_250)),
            connect: Some(Span::from_micros(1_042)),
            response: Some(Span::from_micros(69_001)),
            total: Span::from_micros(80_999),
        },
        cause: Cause::None,
        phase: Phase::Data,
        reason: "",
        loads: Loads { clients: 5, exchanges: 4, pool: 3, server: 2, queued: 1 },
        captures: Captures::default(),
        response_captures: Captures::default(),
        subject: None,
    }
}

/// A response of Tidegate itself.
fn local() -> Entry<'static> {
    Entry {
        route: Some("/json"),
        server: None,
        pool: None,
        attempts: 0,
        bytes_out: 153,
        timers: Timers::default(),
        loads: Loads::default(),
        ..proxied()
    }
}

fn line(format: AccessFormat, entry: &Entry<'_>) -> String {
    let mut out = Vec::new();
    LineEncoder::new(format).encode(entry, &mut out);
    let line = String::from_utf8(out).expect("a line is text");
    let line = line.strip_suffix('\n').expect("a line ends with a line feed");
    assert!(!line.contains('\n'), "{line}");
    line.to_owned()
}

#[test]
fn json_line_contains_the_id_and_the_trace() {
    let entry = Entry { id: b"abc-1", trace: b"4bf9", ..local() };
    let line = line(AccessFormat::Json, &entry);
    let expected = ",\"version\":\"1.1\",\"id\":\"abc-1\",\"trace_id\":\"4bf9\",\"status\":200,";
    assert!(line.contains(expected), "{line}");
}

#[test]
fn json_line_of_a_proxied_request() {
    assert_eq!(
        line(AccessFormat::Json, &proxied()),
        "{\"time\":\"2026-11-22T06:49:01.007Z\",\"listener\":\"web\",\"client\":\"192.0.2.7:51234\",\
         \"method\":\"GET\",\"host\":\"api.example.com\",\"target\":\"/api/users?page=2\",\
         \"version\":\"1.1\",\"status\":200,\"bytes_in\":0,\"bytes_out\":2750,\"route\":\"/api/*\",\
         \"pool\":\"api\",\"server\":\"10.0.0.1:8000\",\"attempts\":2,\"reused\":false,\
         \"request_ms\":0.000,\"queue_ms\":10.250,\"connect_ms\":1.042,\"response_ms\":69.001,\
         \"total_ms\":80.999,\"end\":\"----\"}"
    );
}

#[test]
fn lines_of_requests_without_a_server_name_the_pool() {
    let queue = Some(Span::from_millis(30_000));
    let waited = Entry {
        pool: Some("api"),
        status: Some(503),
        timers: Timers { queue, total: Span::from_millis(30_001), ..Timers::default() },
        cause: Cause::QueueTimeout,
        phase: Phase::Queue,
        ..local()
    };
    let shown = line(AccessFormat::Json, &waited);
    assert!(
        shown.contains(",\"pool\":\"api\",\"request_ms\":0.000,\"queue_ms\":30000.000,"),
        "{shown}"
    );
    let shown = line(AccessFormat::Http, &waited);
    assert!(shown.contains(" web api/<NOSRV> 0/30000/-1/-1/30001 503 "), "{shown}");
}

#[test]
fn http_line_has_the_fields_of_haproxy() {
    assert_eq!(
        line(AccessFormat::Http, &proxied()),
        "192.0.2.7:51234 [22/Nov/2026:06:49:01.007] web api/10.0.0.1:8000 0/10/1/69/80 200 2750 - - ---- \
         5/4/3/2/1 0/1 \"GET /api/users?page=2 HTTP/1.1\""
    );
    assert_eq!(
        line(AccessFormat::Http, &local()),
        "192.0.2.7:51234 [22/Nov/2026:06:49:01.007] web web/<NOSRV> 0/-1/-1/-1/0 200 153 - - LR-- \
         0/0/0/0/0 0/0 \"GET /api/users?page=2 HTTP/1.1\""
    );
}

#[test]
fn malformed_head_has_no_request_line() {
    let entry = Entry {
        request: None,
        route: None,
        client: None,
        status: Some(400),
        cause: Cause::Refused,
        phase: Phase::Request,
        reason: "a control character",
        ..local()
    };
    assert_eq!(
        line(AccessFormat::Http, &entry),
        "unix:0 [22/Nov/2026:06:49:01.007] web web/<NOSRV> 0/-1/-1/-1/0 400 153 - - PR-- 0/0/0/0/0 0/0 \
         \"<BADREQ>\""
    );
    let json = line(AccessFormat::Json, &entry);
    assert!(json.contains("\"client\":\"unix\",\"version\":\"1.1\",\"status\":400,"), "{json}");
    assert!(
        json.ends_with("\"end\":\"PR--\",\"fault\":\"client\",\"reason\":\"a control character\"}"),
        "{json}"
    );
}

#[test]
fn client_cannot_forge_a_line_or_a_field() {
    let names = ["user-agent".to_owned(), "referer".to_owned(), "x-none".to_owned()];
    let entry = Entry {
        request: Some(RequestLine {
            method: b"GE\"T",
            target: "/\" 200\n{\u{1b}[31m\u{2028}".as_bytes(),
            host: b"a\\",
        }),
        captures: Captures {
            names: &names,
            cookies: &[],
            bytes: b"a|}\"\r\nb\xff",
            ends: &[6, 8, 8],
        },
        ..local()
    };
    let json = line(AccessFormat::Json, &entry);
    assert!(
        json.contains(
            "\"method\":\"GE\\\"T\",\"host\":\"a\\\\\",\"target\":\"/\\\" 200\\u000A{\\u001B[31m\\u2028\","
        ),
        "{json}"
    );
    assert!(
        json.ends_with(
            ",\"request_headers\":{\"user-agent\":\"a|}\\\"\\u000D\\u000A\",\"referer\":\"b\u{fffd}\"}}"
        ),
        "{json}"
    );
    let http = line(AccessFormat::Http, &entry);
    assert!(
        http.ends_with(
            " {a#7C#7D#22#0D#0A|b#FF|} \"GE#22T /#22 200#0A{#1B[31m#E2#80#A8 HTTP/1.1\""
        ),
        "{http}"
    );
}

#[test]
fn causes_and_phases_are_haproxys_letters() {
    use Cause as C;
    use Phase as P;
    for (cause, phase, letters, fault) in [
        (C::None, P::Data, "----", "none"),
        (C::Client, P::Data, "CD--", "client"),
        (C::Client, P::Queue, "CQ--", "client"),
        (C::ClientTimeout, P::Request, "cR--", "client"),
        (C::Refused, P::Request, "PR--", "client"),
        (C::Server, P::Connect, "SC--", "server"),
        (C::Server, P::Head, "SH--", "server"),
        (C::ServerTimeout, P::Head, "sH--", "server"),
        (C::ServerTimeout, P::Data, "sD--", "server"),
        (C::QueueTimeout, P::Queue, "sQ--", "limit"),
        (C::Limit, P::Queue, "RQ--", "limit"),
        (C::Stopped, P::Last, "KL--", "stop"),
        (C::Bug, P::Data, "ID--", "bug"),
    ] {
        let entry = Entry { cause, phase, ..proxied() };
        assert_eq!(entry.termination(), letters.as_bytes(), "{cause:?} {phase:?}");
        assert_eq!(cause.fault(), fault);
    }
    assert_eq!(local().termination(), *b"LR--");
}

/// A selection with these settings.
fn selection(only: AccessFilter, slow: Option<Span>, sample: u32) -> Selection {
    let settings = AccessLog {
        to: AccessTarget::Stdout,
        format: AccessFormat::Json,
        captures: CaptureNames::default(),
        only,
        slow,
        sample,
    };
    Selection::new(&settings, 7)
}

#[test]
fn filter_of_errors_leaves_out_what_succeeded() {
    let mut all = selection(AccessFilter::All, None, SAMPLE_ALL);
    let mut errors = selection(AccessFilter::Errors, None, SAMPLE_ALL);
    let failed = Entry { cause: Cause::Client, ..proxied() };
    let not_found = Entry { status: Some(404), ..proxied() };
    let unanswered = Entry { status: None, ..proxied() };
    for entry in [failed, not_found, unanswered] {
        assert!(errors.takes(&entry) && all.takes(&entry));
    }
    assert!(!errors.takes(&proxied()) && all.takes(&proxied()));
    let total = proxied().timers.total;
    assert!(selection(AccessFilter::Errors, Some(total), SAMPLE_ALL).takes(&proxied()));
    let longer = total + Span::from_nanos(1);
    assert!(!selection(AccessFilter::Errors, Some(longer), SAMPLE_ALL).takes(&proxied()));
}

#[test]
fn sample_is_a_share_of_what_succeeded_in_time() {
    let mut tenth = selection(AccessFilter::All, Some(Span::from_secs(1)), 100_000);
    let taken = (0..10_000).filter(|_| tenth.takes(&proxied())).count();
    assert!((850..1150).contains(&taken), "{taken}");
    let slow =
        Entry { timers: Timers { total: Span::from_secs(1), ..proxied().timers }, ..proxied() };
    let failed = Entry { status: Some(500), ..proxied() };
    assert!((0..100).all(|_| tenth.takes(&slow) && tenth.takes(&failed)));
}

#[test]
fn cookies_follow_the_fields() {
    let (names, cookies) = (["referer".to_owned()], ["a".to_owned(), "b".to_owned()]);
    let entry = Entry {
        captures: Captures { names: &names, cookies: &cookies, bytes: b"r1 \"|", ends: &[1, 1, 5] },
        ..proxied()
    };
    let json = line(AccessFormat::Json, &entry);
    let expected = ",\"request_headers\":{\"referer\":\"r\"},\"cookies\":{\"b\":\"1 \\\"|\"}}";
    assert!(json.ends_with(expected), "{json}");
    let http = line(AccessFormat::Http, &entry);
    assert!(
        http.contains(" 200 2750 b=1#20#22#7C - ---- ") && http.contains(" {r} \"GET"),
        "{http}"
    );
}

#[test]
fn values_of_the_response_and_the_certificate_follow_those_of_the_request() {
    let names = ["content-type".to_owned(), "x-none".to_owned(), "x-b".to_owned()];
    let (of_request, cookies) = (["referer".to_owned()], ["sid".to_owned()]);
    let response = Captures {
        names: &names,
        cookies: &cookies,
        bytes: b"text|\r\n2\x1b s",
        ends: &[7, 7, 9, 11],
    };
    let entry = Entry { response_captures: response, subject: Some(b"CN=a\"|"), ..proxied() };
    let json = self::line(AccessFormat::Json, &entry);
    let expected = ",\"response_headers\":{\"content-type\":\"text|\\u000D\\u000A\",\"x-b\":\"2\\u001B\"},\
                    \"response_cookies\":{\"sid\":\" s\"},\"client_certificate\":\"CN=a\\\"|\"}";
    assert!(json.ends_with(expected), "{json}");
    let http = self::line(AccessFormat::Http, &entry);
    assert!(http.contains(" 200 2750 - sid=#20s ---- "), "{http}");
    assert!(http.contains(" 0/1 {CN=a#22#7C} {text#7C#0D#0A||2#1B} \"GET "), "{http}");
    // A client without a certificate, and a response without a head of its own.
    let referer = Captures { names: &of_request, cookies: &[], bytes: b"r", ends: &[1] };
    let missing = Captures { bytes: b"", ends: &[], ..response };
    let entry =
        Entry { captures: referer, response_captures: missing, subject: Some(b""), ..entry };
    let json = self::line(AccessFormat::Json, &entry);
    assert!(json.ends_with(",\"request_headers\":{\"referer\":\"r\"}}"), "{json}");
    let http = self::line(AccessFormat::Http, &entry);
    assert!(http.contains(" - - ---- ") && http.contains(" 0/1 {r|} {||} \"GET "), "{http}");
}

#[test]
fn text_is_cut_between_characters() {
    assert_eq!(cut("abc", 3), "abc");
    assert_eq!(cut("abc", 2), "ab");
    assert_eq!(cut("a\u{e9}b", 2), "a");
    assert_eq!(cut("\u{1f600}", 3), "");
}

#[test]
fn stamp_follows_the_second() {
    let mut encoder = LineEncoder::new(AccessFormat::Json);
    let mut out = Vec::new();
    for unix_millis in [999, 1000, 999, 61_001] {
        encoder.encode(&Entry { unix_millis, ..local() }, &mut out);
    }
    let lines = String::from_utf8(out).expect("lines are text");
    let stamps: Vec<&str> = lines.lines().filter_map(|line| line.get(9..33)).collect();
    assert_eq!(
        stamps,
        [
            "1970-01-01T00:00:00.999Z",
            "1970-01-01T00:00:01.000Z",
            "1970-01-01T00:00:00.999Z",
            "1970-01-01T00:01:01.001Z"
        ]
    );
}

#[test]
fn connections_without_http_have_log_lines() {
    let entry = Entry {
        version: None,
        request: Some(RequestLine { method: b"", target: b"", host: b"a\"b" }),
        route: None,
        status: None,
        ..proxied()
    };
    let json = line(AccessFormat::Json, &entry);
    let start = "{\"time\":\"2026-11-22T06:49:01.007Z\",\"listener\":\"web\",\"client\":\"192.0.2.7:51234\",\
                 \"protocol\":\"tcp\",\"server_name\":\"a\\\"b\",\"bytes_in\":0,";
    assert!(json.starts_with(start), "{json}");
    let nameless = Entry { request: None, ..entry };
    assert!(!line(AccessFormat::Json, &nameless).contains("server_name"));
    assert!(line(AccessFormat::Http, &entry).ends_with(" 5/4/3/2/1 0/1 \"<TCP>\""));
    assert!(!entry.is_error(), "it has no status, but nothing went wrong");
    assert!(Entry { cause: Cause::Server, ..entry }.is_error());
}

#[test]
fn tokens_of_push_clients_are_left_out() {
    for (target, shown) in [
        ("/push/connection/sse?cf_connect=%7B%22token%22", "/push/connection/sse"),
        ("/connection/sse?", "/connection/sse"),
        ("/push/connection/sse", "/push/connection/sse"),
        ("/push/connection/sse/x?a=b", "/push/connection/sse/x?a=b"),
        ("/x?from=/connection/sse?a", "/x?from=/connection/sse?a"),
        ("/x?a=b", "/x?a=b"),
        ("*", "*"),
    ] {
        assert_eq!(shown_target(target), shown, "{target}");
    }
}
