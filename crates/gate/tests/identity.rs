//! The identity of a request: which ids and traces of clients are kept, and what servers get.
//! In: settings, heads, random numbers. Out: nothing; the tests fail if a field differs from the expected one.

use tidegate_config::model::Server;
use tidegate_gate::identity::Identity;
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;

const RANDOM: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
const MADE: &str = "0123456789abcdef0123456789abcdef";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const KEPT: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn settings(lines: &str) -> Server {
    let text = format!(
        "[server]\n{lines}\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nrespond = {{}}\n"
    );
    let config = tidegate_config::parse(&text, "the test");
    config.unwrap_or_else(|errors| panic!("{errors}")).server
}

/// Calls `run` with the identity of a request with these fields.
fn identify<T>(
    server: &Server,
    fields: &[&str],
    is_trusted: bool,
    run: impl FnOnce(&Identity<'_>) -> T,
) -> T {
    let lines: String = fields.iter().map(|line| format!("{line}\r\n")).collect();
    let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let mut storage = FieldStorage::new();
    let head = HeadDecoder::default().decode_request(
        bytes.as_bytes(),
        &HeadLimits::default(),
        &mut storage,
    );
    let Ok(Some((head, _))) = head else { panic!("{head:?}") };
    run(&Identity::new(server, &head, is_trusted, RANDOM))
}

/// The id, and the lines that a server gets.
fn stated(server: &Server, fields: &[&str], is_trusted: bool) -> (String, String) {
    identify(server, fields, is_trusted, |identity| {
        let mut out = Vec::new();
        identity.encode_fields(&mut out, |_| false);
        (identity.to_string(), String::from_utf8(out).expect("text").replace("\r\n", "\n"))
    })
}

#[test]
fn ids_are_kept_as_the_settings_state() {
    let trusted = settings("request-id = true");
    let (all, none) =
        (settings("request-id = { keep = \"all\" }"), settings("request-id = { keep = \"none\" }"));
    for (server, is_trusted, keeps) in [
        (&trusted, true, true),
        (&trusted, false, false),
        (&all, false, true),
        (&none, true, false),
    ] {
        let expected = if keeps { "abc-1" } else { MADE };
        let (id, lines) = stated(server, &["X-Request-Id: abc-1"], is_trusted);
        assert_eq!((id.as_str(), lines), (expected, format!("x-request-id: {expected}\n")));
    }
}

#[test]
fn unusable_ids_are_replaced() {
    let server = settings("request-id = { field = \"X-Trace\", keep = \"all\" }");
    let longest = format!("x-trace: {}", "a".repeat(128));
    assert_eq!(stated(&server, &[&longest], false).0.len(), 128);
    for fields in [
        &[format!("{longest}a").as_str()][..],
        &["x-trace: a", "X-Trace: a"],
        &["x-trace: a", "x_trace: b"],
        &["x-trace: a b"],
        &["x-trace: a,b"],
        &["x-trace: \"a\""],
        &["x-trace: \u{e9}"],
        &["x-trace:"],
        &["x-request-id: a"],
        &[],
    ] {
        assert_eq!(stated(&server, fields, false).0, MADE, "{fields:?}");
    }
}

#[test]
fn valid_traces_are_continued_and_others_begin() {
    let server = settings("trace = true");
    let trace = |fields: &[&str], is_trusted: bool| {
        let lines = stated(&server, fields, is_trusted).1;
        let trace = identify(&server, fields, is_trusted, |identity| {
            identity.trace().map(|trace| trace.to_string())
        });
        (trace.expect("a trace"), lines)
    };
    // The field of the client is passed on as it is.
    assert_eq!(trace(&[KEPT], true), (TRACE.to_owned(), String::new()));
    let later = KEPT.replace(" 00-", " 01-") + "-more";
    assert_eq!(trace(&[&later], true), (TRACE.to_owned(), String::new()));
    let begun = format!("traceparent: 00-{MADE}-");
    for (fields, is_trusted) in [
        (&[KEPT][..], false),
        (&[], true),
        (&[KEPT, KEPT], true),
        (&[&format!("{KEPT}-more")], true),
        (&[&KEPT.replace(" 00-", " ff-")], true),
        (&[&KEPT.replace("4b", "4B")], true),
        (&[&KEPT.replace(TRACE, &"0".repeat(32))], true),
        (&[&KEPT.replace("00f067aa0ba902b7", &"0".repeat(16))], true),
        (&[&KEPT.replace("-01", "-1")], true),
        (&[&KEPT.replace("-00f0", "_00f0")], true),
        (&[&(KEPT.replace(" 00-", " 01-") + "-" + &"a".repeat(256))], true),
    ] {
        let (number, lines) = trace(fields, is_trusted);
        assert_eq!(number, MADE, "{fields:?}");
        assert!(lines.starts_with(&begun) && lines.ends_with("-01\n"), "{fields:?}: {lines}");
        assert_eq!(lines.len(), "traceparent: ".len() + 56, "{lines}");
    }
}

#[test]
fn received_fields_are_dropped_when_they_are_replaced() {
    let server = settings("request-id = true\ntrace = true");
    let drops = |fields: &[&str], name: &str| {
        identify(&server, fields, true, |identity| identity.drops(name))
    };
    for name in ["x-request-id", "X_Request-ID", "traceparent", "TraceState"] {
        assert!(drops(&[], name), "{name}");
    }
    assert!(drops(&[KEPT], "x-request-id"), "a kept id is written once");
    for name in ["traceparent", "tracestate", "x-request-ids", "host"] {
        assert!(!drops(&[KEPT], name), "{name}");
    }
    assert!(!identify(&settings(""), &[], true, |identity| identity.drops("x-request-id")));
}

#[test]
fn fields_that_a_route_sets_are_not_written() {
    let server = settings("request-id = true\ntrace = true");
    identify(&server, &[], true, |identity| {
        let mut out = Vec::new();
        identity.encode_fields(&mut out, |name| name == "x-request-id");
        assert!(out.starts_with(b"traceparent: "), "{out:?}");
        out.clear();
        identity.encode_fields(&mut out, |_| true);
        assert!(out.is_empty());
    });
}

#[test]
fn sampled_share_of_the_traces_is_recorded() {
    let server = settings("trace = { sampled = \"10%\" }");
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut storage = FieldStorage::new();
    let head = HeadDecoder::default().decode_request(bytes, &HeadLimits::default(), &mut storage);
    let Ok(Some((head, _))) = head else { panic!("{head:?}") };
    let is_sampled = |random: u128| {
        let mut out = Vec::new();
        Identity::new(&server, &head, true, random).encode_fields(&mut out, |_| false);
        out.ends_with(b"-01\r\n")
    };
    let sampled = (1..=10_000_u128).filter(|seed| is_sampled(seed * 0x9e37_79b9_7f4a_7c15)).count();
    assert!((900..1100).contains(&sampled), "{sampled}");
}

#[test]
fn recorded_traces_are_joined_with_spans_of_their_own() {
    let lines = "trace = { keep = \"all\" }\n[traces]\nendpoint = \"http://127.0.0.1:4318/\"";
    let server = settings(lines);
    let spans = |fields: &[&str]| identify(&server, fields, false, |identity| identity.spans());
    // A trace of a client.
    let ids = spans(&[KEPT]).expect("the trace is sampled");
    assert_eq!(format!("{:032x}", ids.trace), TRACE);
    assert_eq!(ids.parent, Some(0x00f0_67aa_0ba9_02b7));
    assert!(![ids.upstream, 0, 0x00f0_67aa_0ba9_02b7].contains(&ids.request));
    let line = format!("traceparent: 00-{TRACE}-{:016x}-01\n", ids.upstream);
    assert_eq!(stated(&server, &[KEPT], false).1, line);
    identify(&server, &[KEPT], false, |identity| {
        assert!(identity.drops("Traceparent") && !identity.drops("tracestate"));
    });
    // Of a later version, only what version 00 defines is stated.
    let later = KEPT.replace(": 00-", ": cc-").replace("-01", "-ff-more");
    let line = format!("traceparent: 00-{TRACE}-{:016x}-03\n", ids.upstream);
    assert_eq!(stated(&server, &[&later], false).1, line);
    // A trace that is not sampled has no spans, and continues through the process.
    let unsampled = KEPT.replace("-01", "-00");
    assert_eq!(spans(&[&unsampled]), None);
    assert!(stated(&server, &[&unsampled], false).1.contains(TRACE));
    // A trace that begins here.
    let ids = spans(&[]).expect("all traces are sampled");
    assert_eq!((ids.trace, ids.parent), (RANDOM, None));
    let line = format!("traceparent: 00-{MADE}-{:016x}-01\n", ids.upstream);
    assert_eq!(stated(&server, &[], false).1, line);
    identify(&server, &[], false, |identity| assert!(identity.drops("tracestate")));
    // Without a collector, servers continue the span of the client.
    let passed = settings("trace = { keep = \"all\" }");
    assert_eq!(identify(&passed, &[KEPT], false, |identity| identity.spans()), None);
}
