//! Responses by the proxy itself: fixed, error, redirect, final recipient and synthetic. Each one is decoded
//! again.

mod http2;
mod sink;

use tidegate_base::{Prng, Span};
use tidegate_config::model::{
    Action, Conditions, Config, Handling, HttpsRedirect, Redirect, RedirectPiece, Respond, Route,
    Server,
};
use tidegate_gate::filter::hsts::Hsts;
use tidegate_gate::filter::{Filtered, Filters};
use tidegate_gate::respond::{self, AnswerContext, Answers, Prepared};
use tidegate_gate::scheme::Scheme;
use tidegate_gate::synthetic::{
    self, HELP, PIECE_BYTES_MAX, SIZE_BYTES_MAX, Synthetic, fill, parse,
};
use tidegate_wire::http1::{BodyFraming, HeadDecoder, HeadLimits, ResponseEncoder, ResponseLimits};
use tidegate_wire::message::{FieldStorage, RequestHead, RequestKind, ResponseStorage, Version};

use sink::Recorded;

const NOW: &[u8; 29] = b"Sat, 21 Nov 2026 08:00:00 GMT";

/// A client, and what its response contains.
#[derive(Clone, Copy)]
struct Client {
    date: &'static [u8; 29],
    server: &'static str,
    is_head: bool,
    version: Version,
    close: bool,
    hsts: &'static str,
}

impl Client {
    fn answer(&self) -> AnswerContext<'static> {
        AnswerContext { date: self.date, server: self.server, is_head: self.is_head }
    }
}

fn context() -> Client {
    Client {
        date: NOW,
        server: "gate",
        is_head: false,
        version: Version::Http11,
        close: false,
        hsts: "",
    }
}

fn kinds() -> [Client; 8] {
    core::array::from_fn(|bits| Client {
        is_head: bits & 1 != 0,
        version: if bits & 2 != 0 { Version::Http10 } else { Version::Http11 },
        close: bits & 4 != 0,
        ..context()
    })
}

/// Encodes a response for HTTP/1, appending it to `$out`, and records it without a protocol. Both must state the
/// same.
macro_rules! encode {
    ($out:expr, $client:expr, |$sink:ident, $context:ident| $call:expr) => {{
        let (out, client): (&mut Vec<u8>, &Client) = ($out, $client);
        let (start, $context) = (out.len(), &client.answer());
        let mut filtered = Filtered::new(
            ResponseEncoder::new(out, client.version, client.close),
            Filters::policy(client.hsts),
        );
        let $sink = &mut filtered;
        let result = $call;
        let framing = filtered.sink().framing();
        let mut recorded = Recorded::default();
        let $sink = &mut Filtered::new(&mut recorded, Filters::policy(client.hsts));
        assert_eq!($call, result);
        recorded.check(&out[start..], client.is_head, framing);
        result
    }};
}

fn encode_respond(out: &mut Vec<u8>, prepared: &Prepared, client: &Client) {
    let (start, context) = (out.len(), client.answer());
    let mut encoder = ResponseEncoder::new(out, client.version, client.close);
    let mut recorded = Recorded::default();
    if client.hsts.is_empty() || prepared.has_hsts() {
        respond::encode_respond(&mut encoder, prepared, &context);
        respond::encode_respond_parts(&mut recorded, prepared, &context);
    } else {
        let sink = &mut Hsts::new(&mut encoder, client.hsts);
        respond::encode_respond_parts(sink, prepared, &context);
        let sink = &mut Hsts::new(&mut recorded, client.hsts);
        respond::encode_respond_parts(sink, prepared, &context);
    }
    // The fast path copies a whole response and states no framing.
    let framing = match recorded.length {
        Some(tidegate_wire::message::BodyLength::Length(_)) => BodyFraming::Length,
        _ => BodyFraming::None,
    };
    recorded.check(&out[start..], client.is_head, framing);
}

fn encode_error(out: &mut Vec<u8>, status: u16, text: &str, client: &Client) {
    encode!(out, client, |sink, context| respond::encode_error(sink, status, text, context));
}

fn encode_redirect(
    out: &mut Vec<u8>,
    redirect: &Redirect,
    head: &RequestHead<'_>,
    scheme: Scheme,
    client: &Client,
) -> u16 {
    encode!(out, client, |sink, context| respond::encode_redirect(
        sink,
        redirect,
        (head, scheme),
        None,
        context
    ))
}

fn encode_https_redirect(
    out: &mut Vec<u8>,
    redirect: HttpsRedirect,
    head: &RequestHead<'_>,
    client: &Client,
) -> u16 {
    encode!(out, client, |sink, context| respond::encode_https_redirect(
        sink, redirect, head, context
    ))
}

fn encode_final_recipient(out: &mut Vec<u8>, head: &RequestHead<'_>, client: &Client) {
    encode!(out, client, |sink, context| respond::encode_final_recipient(sink, head, context));
}

/// Encodes the head as the server does, which closes the connection if the URL or the framing requires it.
fn encode_synthetic_head(out: &mut Vec<u8>, order: &Synthetic, client: &Client) {
    let client = &Client { close: client.close || order.asks_to_close(), ..*client };
    let version = client.version;
    encode!(out, client, |sink, context| synthetic::encode_synthetic_head(
        sink, order, version, context
    ));
}

fn encode_help(out: &mut Vec<u8>, client: &Client) {
    encode!(out, client, |sink, context| synthetic::encode_help(sink, context));
}

fn encode_refusal(out: &mut Vec<u8>, text: &str, client: &Client) {
    encode!(out, client, |sink, context| synthetic::encode_refusal(sink, text, context));
}

/// How the body of a synthetic response is framed for the client, and whether its connection closes.
fn framing(order: &Synthetic, client: &Client) -> (BodyFraming, bool) {
    let framing = BodyFraming::of(order.body_length(client.is_head), client.version);
    let closes = client.close || order.asks_to_close() || framing == BodyFraming::UntilClose;
    (framing, closes)
}

/// Decodes a response and checks the properties of every response: one framing, the stated length, and
/// `close` exactly if the connection closes. Returns status and content.
fn read_back(out: &[u8], context: &Client) -> (u16, Vec<u8>) {
    let kind = RequestKind { is_head: context.is_head, ..RequestKind::default() };
    let mut storage = ResponseStorage::new();
    let decoded =
        HeadDecoder::default().decode_response(out, &ResponseLimits::default(), kind, &mut storage);
    let Ok(Some((head, head_bytes))) = decoded else {
        panic!("{decoded:?}: {}", String::from_utf8_lossy(out))
    };
    let content = out[head_bytes..].to_vec();
    let stated = head
        .find_named("content-length")
        .map(|value| String::from_utf8_lossy(value).parse::<usize>().expect("a number"));
    match stated {
        Some(_) if context.is_head => assert!(content.is_empty()),
        Some(length) => assert_eq!(content.len(), length),
        None => assert!(matches!(head.status, 204 | 304) && content.is_empty()),
    }
    assert_eq!(head.find_named("date"), Some(&context.date[..]));
    let connection = head.find_named("connection");
    match (context.close, context.version) {
        (true, _) => assert_eq!(connection, Some(&b"close"[..])),
        (false, Version::Http10) => assert_eq!(connection, Some(&b"keep-alive"[..])),
        (false, Version::Http11 | Version::Http2) => assert_eq!(connection, None),
    }
    (head.status, content)
}

fn request<T>(text: &str, run: impl FnOnce(&RequestHead<'_>) -> T) -> T {
    let bytes = format!("{}\r\n", text.replace('\n', "\r\n")).into_bytes();
    let mut storage = FieldStorage::new();
    let decoded =
        HeadDecoder::default().decode_request(&bytes, &HeadLimits::default(), &mut storage);
    let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}") };
    run(&head)
}

fn answers(respond: Respond) -> Answers {
    let route = Route {
        listener: None,
        hosts: Vec::new(),
        paths: Vec::new(),
        methods: Vec::new(),
        headers: Vec::new(),
        client_cert: None,
        conditions: Conditions::default(),
        counting: Vec::new(),
        hsts: None,
        websocket: None,
        shed: true,
        handling: Handling::default(),
        action: Action::Respond(respond),
        is_off: false,
    };
    let server = Server { server_name: "gate".to_owned(), ..Server::default() };
    Answers::new(&Config { server, routes: vec![route], ..Config::default() })
}

fn respond(status: u16, headers: &[(&str, &str)], body: &str) -> Respond {
    let headers = headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    Respond { status, headers: headers.collect(), body: body.as_bytes().to_vec() }
}

#[test]
fn fixed_response_is_complete_for_every_kind_of_client() {
    for (status, body) in [(200, "{}"), (404, "no"), (200, ""), (503, "later\n")] {
        let answers = answers(respond(status, &[("content-type", "text/x")], body));
        let prepared = answers.prepared(0).expect("route 0 responds");
        assert_eq!(prepared.status(), status);
        for context in kinds() {
            let mut out = Vec::new();
            encode_respond(&mut out, prepared, &context);
            let wanted = if context.is_head { "" } else { body };
            assert_eq!(read_back(&out, &context), (status, wanted.as_bytes().to_vec()));
        }
    }
    assert!(answers(respond(200, &[], "")).prepared(1).is_none());
}

#[test]
fn fixed_response_has_the_expected_bytes() {
    let answers = answers(respond(200, &[("content-type", "application/json")], "{\"a\":1}"));
    let mut out = b"before".to_vec();
    encode_respond(&mut out, answers.prepared(0).expect("responds"), &context());
    let wanted = "beforeHTTP/1.1 200 OK\r\nServer: gate\r\ncontent-type: application/json\r\n\
        Content-Length: 7\r\nDate: Sat, 21 Nov 2026 08:00:00 GMT\r\n\r\n{\"a\":1}";
    assert_eq!(String::from_utf8_lossy(&out), wanted);
}

#[test]
fn response_without_content_by_status_has_no_content() {
    for status in [204, 205, 304] {
        let answers = answers(respond(status, &[], "not to be sent"));
        for context in kinds() {
            let mut out = Vec::new();
            encode_respond(&mut out, answers.prepared(0).expect("responds"), &context);
            assert_eq!(read_back(&out, &context), (status, Vec::new()));
            out.clear();
            encode_error(&mut out, status, "not to be sent", &context);
            assert_eq!(read_back(&out, &context), (status, Vec::new()));
        }
    }
}

#[test]
fn configured_server_field_replaces_the_default() {
    let answers = answers(respond(200, &[("server", "mine")], ""));
    let mut out = Vec::new();
    encode_respond(&mut out, answers.prepared(0).expect("responds"), &context());
    let text = String::from_utf8_lossy(&out).to_ascii_lowercase();
    assert_eq!(text.matches("server:").count(), 1);
    assert!(text.contains("server: mine"));
}

#[test]
fn error_response_contains_status_and_text() {
    for context in kinds() {
        let mut out = Vec::new();
        encode_error(
            &mut out,
            502,
            "the server closed the connection without sending a response",
            &context,
        );
        let (status, content) = read_back(&out, &context);
        let text = "502 Bad Gateway: the server closed the connection without sending a response\n";
        assert_eq!((status, content.len()), (502, if context.is_head { 0 } else { text.len() }));
        assert!(context.is_head || content == text.as_bytes());
    }
    let mut out = Vec::new();
    encode_error(&mut out, 200, "", &context());
    assert_eq!(read_back(&out, &context()), (200, Vec::new()));
    let nameless = Client { server: "", ..context() };
    out.clear();
    encode_error(&mut out, 400, "x", &nameless);
    assert!(!String::from_utf8_lossy(&out).contains("Server"));
}

fn location(to: &[RedirectPiece], given: &str) -> (u16, String) {
    let redirect = Redirect { status: 308, to: to.to_vec() };
    let mut out = Vec::new();
    let status = request(given, |head| {
        encode_redirect(&mut out, &redirect, head, Scheme::Https, &context())
    });
    assert_eq!(read_back(&out, &context()).0, status);
    let text = String::from_utf8(out).expect("text");
    let line = text.split("\r\n").find_map(|line| line.strip_prefix("Location: "));
    (status, line.unwrap_or_default().to_owned())
}

#[test]
fn redirect_inserts_parts_of_the_request() {
    use RedirectPiece::{Host, Path, Query, Text};
    let text = |text: &str| Text(text.to_owned());
    let cases = [
        (
            vec![text("https://"), Host, Path, Query],
            "GET /a?b=c HTTP/1.1\nHost: h:1\n",
            "https://h:1/a?b=c",
        ),
        (
            vec![text("https://"), Host, Path, Query],
            "GET http://x/a HTTP/1.1\nHost: h\n",
            "https://x/a",
        ),
        (vec![Host, text("/new")], "GET / HTTP/1.1\nHost: h\n", "https://h/new"),
        (vec![text("/new"), Path], "GET /a HTTP/1.1\nHost: h\n", "/new/a"),
        (vec![text("https://e.example")], "GET /a HTTP/1.1\nHost: h\n", "https://e.example"),
        (
            vec![text("https://e.example"), Path],
            "OPTIONS * HTTP/1.1\nHost: h\n",
            "https://e.example/",
        ),
        (
            vec![text("https://e.example"), Path],
            "OPTIONS http://h HTTP/1.1\nHost: h\n",
            "https://e.example/",
        ),
        (vec![Path, text("/")], "GET //evil.example HTTP/1.1\nHost: h\n", "/evil.example/"),
        (vec![Path], "GET ///evil.example/%0d%0aX: HTTP/1.1\nHost: h\n", "/evil.example/%0d%0aX:"),
        (vec![text("/caf\u{e9} \r\n\"")], "GET / HTTP/1.1\nHost: h\n", "/caf%C3%A9%20%0D%0A%22"),
        (vec![text("/x"), Query], "GET /?{a}|\\ HTTP/1.1\nHost: h\n", "/x?%7Ba%7D%7C%5C"),
    ];
    for (to, given, wanted) in cases {
        assert_eq!(location(&to, given), (308, wanted.to_owned()), "{given}");
    }
    let hostless = location(&[text("https://"), Host], "GET / HTTP/1.0\n");
    assert_eq!(hostless, (400, String::new()));
}

#[test]
fn final_recipient_answers_options_and_trace() {
    let options = "OPTIONS /a HTTP/1.1\nHost: h\nMax-Forwards: 0\n";
    let mut out = Vec::new();
    request(options, |head| encode_final_recipient(&mut out, head, &context()));
    assert_eq!(read_back(&out, &context()), (200, Vec::new()));
    assert!(String::from_utf8_lossy(&out).contains("Allow: GET"));

    let trace =
        "TRACE /a?b HTTP/1.1\nHost: h\nMax-Forwards: 0\nCookie: a=b\nAuthorization: x\nX: 1\n";
    out.clear();
    request(trace, |head| encode_final_recipient(&mut out, head, &context()));
    let (status, content) = read_back(&out, &context());
    let wanted = "TRACE /a?b HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\nX: 1\r\n\r\n";
    assert_eq!((status, String::from_utf8_lossy(&content).as_ref()), (200, wanted));
}

fn order(query: &str) -> Synthetic {
    parse(Some(query), &mut Prng::new(1)).unwrap_or_else(|text| panic!("{query}: {text}"))
}

#[test]
fn synthetic_arguments_are_those_of_httpterm() {
    let plain = Synthetic::default;
    let cases = [
        ("s=20", Synthetic { size: 20, ..plain() }),
        ("s=20k", Synthetic { size: 20 << 10, ..plain() }),
        ("s=2m", Synthetic { size: 2 << 20, ..plain() }),
        ("s=1g", Synthetic { size: 1 << 30, ..plain() }),
        ("s=1kk", Synthetic { size: 1 << 20, ..plain() }),
        ("s=1kg", Synthetic { size: SIZE_BYTES_MAX, ..plain() }),
        ("s=0r", plain()),
        ("r=404", Synthetic { status: 404, ..plain() }),
        ("t=700", Synthetic { delay: Span::from_millis(700), ..plain() }),
        ("P=5", Synthetic { pause: Span::from_millis(5), ..plain() }),
        ("w=5", Synthetic { keep_alive_time: Some(Span::from_millis(5)), ..plain() }),
        ("k=1", Synthetic { chunked: true, piece_bytes: 1, ..plain() }),
        ("k=1k&p=10", Synthetic { chunked: true, piece_bytes: 10, ..plain() }),
        ("k=0", plain()),
        ("p=1g", Synthetic { piece_bytes: PIECE_BYTES_MAX, ..plain() }),
        ("C=1", Synthetic { keep_alive: Some(false), ..plain() }),
        ("C", Synthetic { keep_alive: Some(false), ..plain() }),
        ("K=30", Synthetic { keep_alive: Some(true), ..plain() }),
        ("C=0&K=0", plain()),
        ("c=0", Synthetic { cacheable: false, ..plain() }),
        ("c=1", plain()),
        ("b=0", Synthetic { length_known: false, ..plain() }),
        ("b=-1", plain()),
        ("B=1k", Synthetic { body_read_max: Some(1024), ..plain() }),
        ("e=7", Synthetic { etag: Some(7), ..plain() }),
        ("R=1", Synthetic { random: true, ..plain() }),
        ("v=1", Synthetic { verbose: true, ..plain() }),
        ("S=0", plain()),
        ("h", Synthetic { help: true, ..plain() }),
        ("", Synthetic { help: true, ..plain() }),
        (
            "s=1k;r=500,t=1/C=1?R=1&",
            Synthetic {
                size: 1024,
                status: 500,
                delay: Span::from_millis(1),
                keep_alive: Some(false),
                random: true,
                ..plain()
            },
        ),
    ];
    for (query, wanted) in cases {
        assert_eq!(order(query), wanted, "{query}");
    }
    assert_eq!(parse(None, &mut Prng::new(1)), Ok(plain()));
}

#[test]
fn order_out_of_bounds_is_rejected_with_a_reason() {
    for query in [
        "s=-1",
        "s=1025g",
        "s=99999999999999999999",
        "s=x",
        "s=1x",
        "s=1kkkkkkkk",
        "s=--1",
        "r=100",
        "r=199",
        "r=600",
        "r=-200",
        "r=70000",
        "t=60001",
        "t=-1",
        "P=1m",
        "w=1g",
        "p=0",
        "b=5",
        "B=-1",
        "z=1",
        "S ize=1",
        "s=\u{663}",
    ] {
        let refused = parse(Some(query), &mut Prng::new(1));
        assert!(refused.is_err_and(|text| text.len() > 5), "{query}");
    }
    let mut out = Vec::new();
    encode_refusal(&mut out, "r must be a final status: 200 to 599", &context());
    assert_eq!(read_back(&out, &context()).0, 400);
}

#[test]
fn random_numbers_cover_their_range() {
    let mut prng = Prng::new(11);
    let sizes: Vec<u64> =
        (0..1_000).filter_map(|_| parse(Some("s=9r"), &mut prng).ok()).map(|o| o.size).collect();
    assert_eq!(sizes.len(), 1_000);
    for size in 0..=9 {
        assert!(sizes.iter().filter(|&&drawn| drawn == size).count() > 50, "{size}");
    }
    let huge = parse(Some("s=1023gr"), &mut prng).map(|order| order.size);
    assert!(huge.is_ok_and(|size| size <= 1023 << 30));
}

#[test]
fn synthetic_head_has_one_framing_and_announces_close() {
    for query in
        ["s=5", "s=5&k=1", "s=5&b=0", "r=204", "r=205", "r=304&s=5", "C=1", "K=1", "c=0&e=3&v=1"]
    {
        let order = order(query);
        for context in kinds() {
            let mut out = Vec::new();
            encode_synthetic_head(&mut out, &order, &context);
            let text = String::from_utf8_lossy(&out).into_owned();
            let (framing, closes) = framing(&order, &context);
            let length = text.contains("\r\nContent-Length: ");
            let chunked = text.contains("\r\nTransfer-Encoding: chunked\r\n");
            assert!(!(length && chunked), "{query}: {text}");
            match framing {
                BodyFraming::Chunked => assert!(chunked && context.version == Version::Http11),
                BodyFraming::Length => assert!(length),
                BodyFraming::UntilClose => {
                    assert!(!length && !chunked && closes)
                }
                BodyFraming::None => assert!(!chunked),
            }
            assert_eq!(text.contains("Connection: close"), closes, "{query}: {text}");
            assert!(closes || !context.close, "K=1 does not keep a connection that must close");
            let kind = RequestKind { is_head: context.is_head, ..RequestKind::default() };
            let mut storage = ResponseStorage::new();
            let decoded = HeadDecoder::default().decode_response(
                &out,
                &ResponseLimits::default(),
                kind,
                &mut storage,
            );
            let Ok(Some((head, used))) = decoded else { panic!("{decoded:?}") };
            assert_eq!((head.status, used), (order.status, out.len()));
        }
    }
}

#[test]
fn help_lists_every_argument() {
    let mut out = Vec::new();
    encode_help(&mut out, &context());
    let (status, content) = read_back(&out, &context());
    assert_eq!((status, content.as_slice()), (200, HELP.as_bytes()));
    for name in ["s", "r", "t", "P", "k", "p", "C", "K", "c", "e", "R", "v", "B", "b", "w"] {
        assert!(HELP.contains(&format!(" {name}=")), "{name}");
    }
}

#[test]
fn body_bytes_do_not_depend_on_the_pieces() {
    for seed in [None, Some(0), Some(77)] {
        let mut whole = Vec::new();
        fill(&mut whole, 3, 20_000, seed);
        assert_eq!(whole.len(), 20_000);
        for piece in [1, 7, 8, 64, 4096, 4097, 9_999] {
            let mut pieces = Vec::new();
            while pieces.len() < whole.len() {
                let amount = piece.min(whole.len() - pieces.len());
                let offset = 3 + pieces.len() as u64;
                fill(&mut pieces, offset, amount, seed);
            }
            assert!(pieces == whole, "pieces of {piece}, seed {seed:?}");
        }
    }
    let (mut a, mut b) = (Vec::new(), Vec::new());
    fill(&mut a, 0, 4096, Some(1));
    fill(&mut b, 0, 4096, Some(2));
    assert_ne!(a, b);
    let mut seen = [0_u32; 256];
    a.iter().for_each(|&byte| seen[usize::from(byte)] += 1);
    assert!(seen.iter().all(|&count| count < 40), "random bytes are evenly distributed");
    let mut end = Vec::new();
    fill(&mut end, u64::MAX - 3, 16, Some(1));
    assert_eq!(end.len(), 16);
}

fn redirected(text: &str, redirect: HttpsRedirect) -> (u16, String) {
    request(text, |head| {
        let mut out = Vec::new();
        let status = encode_https_redirect(&mut out, redirect, head, &context());
        assert_eq!(read_back(&out, &context()).0, status);
        let text = String::from_utf8(out).expect("text");
        let location = text.lines().find_map(|line| line.strip_prefix("Location: "));
        (status, location.unwrap_or_default().to_owned())
    })
}

#[test]
fn redirect_to_https_leads_to_the_same_url() {
    let usual = HttpsRedirect { port: 443, status: None };
    let other = HttpsRedirect { port: 8443, status: Some(307) };
    for (text, redirect, status, location) in [
        ("GET /a/b?c=d HTTP/1.1\nHost: A.example\n", usual, 301, "https://A.example/a/b?c=d"),
        ("HEAD / HTTP/1.1\nHost: a.example:80\n", usual, 301, "https://a.example/"),
        (
            "POST /x HTTP/1.1\nHost: a.example\nContent-Length: 0\n",
            usual,
            308,
            "https://a.example/x",
        ),
        ("GET / HTTP/1.1\nHost: a.example:8080\n", other, 307, "https://a.example:8443/"),
        ("GET / HTTP/1.1\nHost: 192.0.2.1\n", usual, 301, "https://192.0.2.1/"),
        ("GET / HTTP/1.1\nHost: [2001:db8::1]:80\n", other, 307, "https://[2001:db8::1]:8443/"),
        (
            "GET //evil.example/ HTTP/1.1\nHost: a.example\n",
            usual,
            301,
            "https://a.example//evil.example/",
        ),
        ("GET http://b.example/p HTTP/1.1\nHost: b.example\n", usual, 301, "https://b.example/p"),
        ("GET /?q=\\@x HTTP/1.1\nHost: a.example\n", usual, 301, "https://a.example/?q=%5C@x"),
        ("OPTIONS * HTTP/1.1\nHost: a.example\n", usual, 308, "https://a.example/"),
        ("OPTIONS http://a.example HTTP/1.1\nHost: a.example\n", usual, 308, "https://a.example/"),
        ("GET / HTTP/1.0\n", usual, 400, ""),
        ("GET / HTTP/1.1\nHost: a.example%2f.evil.example\n", usual, 400, ""),
        ("GET / HTTP/1.1\nHost: a;b\n", usual, 400, ""),
        ("GET / HTTP/1.1\nHost: a!b.example\n", usual, 400, ""),
    ] {
        assert_eq!(redirected(text, redirect), (status, location.to_owned()), "{text}");
    }
}

#[test]
fn every_response_has_strict_transport_security_once() {
    const FIELD: &str = "\r\nStrict-Transport-Security: max-age=9\r\n";
    let own = [("strict-transport-security", "max-age=1")];
    let (plain, own) = (answers(respond(200, &[], "x")), answers(respond(200, &own, "x")));
    for kind in kinds() {
        let context = Client { hsts: "max-age=9", ..kind };
        let mut outs = vec![Vec::new(), Vec::new()];
        encode_respond(&mut outs[0], plain.prepared(0).expect("the route responds"), &context);
        encode_error(&mut outs[1], 404, "no", &context);
        for out in outs {
            read_back(&out, &context);
            let text = String::from_utf8(out).expect("text");
            assert_eq!(text.matches(FIELD).count(), 1, "{text}");
        }
        let mut out = Vec::new();
        encode_respond(&mut out, own.prepared(0).expect("the route responds"), &context);
        let text = String::from_utf8(out).expect("text").to_lowercase();
        assert_eq!(text.matches("strict-transport-security").count(), 1, "{text}");
        assert!(text.contains("max-age=1\r\n"), "the route's own field is kept: {text}");
    }
}

#[test]
fn trace_over_http2_shows_the_request_with_its_host() {
    let fields = [("max-forwards", "0"), ("cookie", "a=b"), ("x", "1")];
    let mut recorded = Recorded::default();
    http2::with_http2_request("TRACE", "/a?b", &fields, |head| {
        respond::encode_final_recipient(&mut recorded, head, &context().answer());
    });
    let wanted = "TRACE /a?b HTTP/2.0\r\nHost: h:1\r\nmax-forwards: 0\r\nx: 1\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&recorded.content), wanted);
}
