//! Forwarding of requests: the bytes of a client are decoded, and the bytes for the server are compared.
//! Every case names its RFC section. `+` stands for the fields that are added to each request of this client.

mod http2;

use core::net::IpAddr;
use std::sync::LazyLock;

use proptest::prelude::*;
use tidegate_config::model::{CLIENT_ADDRESS_HEADERS, Reuse, UpstreamHost};
use tidegate_gate::client_fields::ClientAddressFields;
use tidegate_gate::forward::{
    ClientCertificate, ForwardFault, RequestContext, VIA_REPEATS_MAX, encode_upstream_request,
    forwards_upgrade, has_unexpected_body, leaves_reusable,
};
use tidegate_gate::scheme::{Scheme, request_scheme};
use tidegate_wire::http1::{HeadDecoder, HeadLimits, StoredHead};
use tidegate_wire::message::{BodyLength, FieldName, FieldStorage, RequestHead};

const KEEP: UpstreamHost = UpstreamHost::Keep;

static NO_FIELDS: LazyLock<ClientAddressFields> = LazyLock::new(ClientAddressFields::default);

fn context() -> RequestContext<'static> {
    RequestContext {
        peer: Some(IpAddr::from([192, 0, 2, 7])),
        trusted: false,
        client_address_fields: &NO_FIELDS,
        client_certificate: None,
        scheme: Scheme::Http,
        via: "gate",
        host: &KEEP,
        trailers: false,
        close: false,
        websocket_key: None,
        changes: None,
    }
}

/// The fields added to a request of a client at 192.0.2.7 for host `h` over HTTP/1.1.
const ADDED: &str = "Via: 1.1 gate
X-Forwarded-For: 192.0.2.7
X-Forwarded-Host: h
X-Forwarded-Proto: http
Forwarded: for=192.0.2.7;host=\"h\";proto=http
";

fn wire(text: &str) -> Vec<u8> {
    format!("{}\r\n", text.replace('\n', "\r\n")).into_bytes()
}

fn with_head<T>(bytes: &[u8], run: impl FnOnce(&RequestHead<'_>) -> T) -> T {
    let mut storage = FieldStorage::new();
    let decoded =
        HeadDecoder::default().decode_request(bytes, &HeadLimits::default(), &mut storage);
    let text = String::from_utf8_lossy(bytes);
    match decoded {
        Ok(Some((head, used))) => {
            assert_eq!(used, bytes.len(), "{text}");
            run(&head)
        }
        other => panic!("{other:?}: {text}"),
    }
}

fn forward(given: &str, context: &RequestContext<'_>) -> Result<String, ForwardFault> {
    with_head(&wire(given), |head| {
        let mut out = Vec::new();
        encode_upstream_request(&mut out, head, context)?;
        Ok(String::from_utf8(out).expect("text in, text out"))
    })
}

fn check(section: &str, context: &RequestContext<'_>, given: &str, wanted: &str) {
    let wanted = wanted.replace("+\n", ADDED);
    let got = forward(given, context).map(|text| text.replace("\r\n", "\n"));
    assert_eq!(got, Ok(format!("{wanted}\n")), "RFC {section}:\n{given}");
}

#[test]
fn targets_are_sent_in_origin_form() {
    let cases = [
        ("9112 3.2.1", "GET / HTTP/1.1\nHost: h\n", "GET / HTTP/1.1\nHost: h\n+\n"),
        ("9112 3.2.1", "GET /a/b HTTP/1.1\nHost: h\n", "GET /a/b HTTP/1.1\nHost: h\n+\n"),
        ("9112 3.2.1", "GET /?q HTTP/1.1\nHost: h\n", "GET /?q HTTP/1.1\nHost: h\n+\n"),
        ("9112 3.2.1", "GET /a?b=c?d HTTP/1.1\nHost: h\n", "GET /a?b=c?d HTTP/1.1\nHost: h\n+\n"),
        ("9112 3.2.1", "GET /a? HTTP/1.1\nHost: h\n", "GET /a? HTTP/1.1\nHost: h\n+\n"),
        ("9112 3.2.1", "GET /%2F%61 HTTP/1.1\nHost: h\n", "GET /%2F%61 HTTP/1.1\nHost: h\n+\n"),
        ("9112 3.2.2", "GET http://h/a HTTP/1.1\nHost: h\n", "GET /a HTTP/1.1\nHost: h\n+\n"),
        ("9112 3.2.2", "GET http://h HTTP/1.1\nHost: h\n", "GET / HTTP/1.1\nHost: h\n+\n"),
        ("9112 3.2.2", "GET http://h?q HTTP/1.1\nHost: h\n", "GET /?q HTTP/1.1\nHost: h\n+\n"),
        (
            "9112 3.2.2",
            "GET http://h/a?q HTTP/1.1\nHost: other\n",
            "GET /a?q HTTP/1.1\nHost: h\n+\n",
        ),
        ("9112 3.2.4", "OPTIONS * HTTP/1.1\nHost: h\n", "OPTIONS * HTTP/1.1\nHost: h\n+\n"),
        ("9112 3.2.4", "OPTIONS http://h HTTP/1.1\nHost: h\n", "OPTIONS * HTTP/1.1\nHost: h\n+\n"),
        ("9112 3.2.4", "OPTIONS http://h/ HTTP/1.1\nHost: h\n", "OPTIONS / HTTP/1.1\nHost: h\n+\n"),
        (
            "9110 7.7",
            "GET /a/../b%2e?q HTTP/1.1\nHost: h\n",
            "GET /a/../b%2e?q HTTP/1.1\nHost: h\n+\n",
        ),
        ("9110 9.1", "BREW /pot HTTP/1.1\nHost: h\n", "BREW /pot HTTP/1.1\nHost: h\n+\n"),
        ("9112 2.3", "GET / HTTP/1.2\nHost: h\n", "GET / HTTP/1.1\nHost: h\n+\n"),
    ];
    for (section, given, wanted) in cases {
        check(section, &context(), given, wanted);
    }
}

#[test]
fn host_is_first_and_occurs_once() {
    let first = "GET / HTTP/1.1\nHost: h\nA: 1\nB: 2\n+\n";
    check("9112 3.2", &context(), "GET / HTTP/1.1\nA: 1\nHost: h\nB: 2\n", first);
    check("9112 3.2", &context(), "GET / HTTP/1.1\nA: 1\nB: 2\nhOST: h\n", first);
    check(
        "9110 7.6.1",
        &context(),
        "GET / HTTP/1.1\nConnection: host\nHost: h\nA: 1\nB: 2\n",
        first,
    );

    let old = "GET / HTTP/1.1\nHost: \nVia: 1.0 gate\nX-Forwarded-For: 192.0.2.7\n\
        X-Forwarded-Proto: http\nForwarded: for=192.0.2.7;proto=http\n";
    check("9112 3.2", &context(), "GET / HTTP/1.0\n", old);

    let replaced = UpstreamHost::Replace("inner:8000".to_owned());
    let replace = RequestContext { host: &replaced, ..context() };
    let wanted = "GET / HTTP/1.1\nHost: inner:8000\n+\n";
    check("9110 7.2", &replace, "GET / HTTP/1.1\nHost: h\n", wanted);
}

#[test]
fn fields_of_the_clients_hop_are_omitted() {
    let plain = "GET / HTTP/1.1\nHost: h\nA: 1\n+\n";
    let cases = [
        ("9110 7.6.1", "Connection: close\n"),
        ("9110 7.6.1", "Connection: keep-alive\n"),
        ("9110 7.6.1", "Connection: x-one\nX-One: 1\n"),
        ("9110 7.6.1", "X-One: 1\nConnection: x-one\n"),
        ("9110 7.6.1", "Connection: X-ONE , x-two\nx-one: 1\nX-Two: 2\nX-TWO: 3\n"),
        ("9110 7.6.1", "Connection: x-one\nConnection: x-two\nX-One: 1\nX-Two: 2\n"),
        ("9110 7.6.1", "Connection: ,, x-one ,\nX-One: 1\n"),
        ("9110 7.6.1", "Connection: close, authorization\nAuthorization: Basic x\n"),
        ("9110 7.6.1", "Connection: cookie\nCookie: a=b\n"),
        ("9110 7.6.1", "Connection: host, content-length, via, forwarded, x-forwarded-for\n"),
        ("9112 C.2.2", "Keep-Alive: timeout=5\n"),
        ("9112 C.2.2", "Connection: keep-alive\nKeep-Alive: max=3\n"),
        ("9112 C.2.2", "Proxy-Connection: keep-alive\n"),
        ("9110 11.7.2", "Proxy-Authorization: Basic x\n"),
        ("9110 10.1.4", "TE: gzip\n"),
        ("9110 10.1.4", "TE: gzip;q=0.5, deflate\nConnection: TE\n"),
        ("9110 10.1.4", "TE:\n"),
        ("9110 7.8", "Upgrade: websocket\n"),
        ("9110 7.8", "Upgrade: h2c\nConnection: Upgrade, HTTP2-Settings\nHTTP2-Settings: AA\n"),
        ("9110 7.8", "HTTP2-Settings: AA\n"),
        ("9110 7.8", "Upgrade: HTTP/2.0\nConnection: upgrade\n"),
        ("9110 7.8", "Upgrade: TLS/1.0, h2c, HTTP/3\nConnection: upgrade\n"),
        ("9110 6.6.2", "Trailer: x-sum\n"),
        ("9110 10.1.1", "Expect: 100-continue\n"),
    ];
    for (section, fields) in cases {
        check(section, &context(), &format!("GET / HTTP/1.1\nHost: h\n{fields}A: 1\n"), plain);
        check(section, &context(), &format!("GET / HTTP/1.1\n{fields}Host: h\nA: 1\n"), plain);
    }
}

#[test]
fn other_fields_are_forwarded_unchanged() {
    let lines = [
        "Accept: */*\n",
        "Accept-Encoding: gzip, br\n",
        "aUtHoRiZaTiOn: Basic eA==\n",
        "Cookie: a=b; c=d\nCookie: e=f\n",
        "Cache-Control: no-cache\nPragma: no-cache\n",
        "If-None-Match: \"x\", W/\"y\"\n",
        "Range: bytes=0-1\n",
        "Referer: http://a/?b#c\n",
        "User-Agent: a (b; c)\n",
        "X-Empty: \n",
        "X-Tab: a\tb\n",
        "X-Twice: 1\nX-Other: 2\nx-twice: 3\n",
        "X-Forward: 1\nX-Forwarded: 2\n",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13\n",
        "Origin: http://a\n",
        "Date: Sat, 21 Nov 2026 08:00:00 GMT\n",
        "Expect: the-unexpected\n",
        "Max-Forwards: 0\n",
    ];
    for fields in lines {
        let given = format!("GET / HTTP/1.1\nHost: h\n{fields}");
        let wanted = format!("GET / HTTP/1.1\nHost: h\n{fields}+\n");
        check("9110 7.6", &context(), &given, &wanted);
    }
}

#[test]
fn framing_is_rewritten() {
    let cases = [
        ("9112 6.3", "Content-Length: 0\n", "Content-Length: 0\n"),
        ("9112 6.3", "Content-Length: 5\n", "Content-Length: 5\n"),
        ("9112 6.3", "content-length: 0005\n", "Content-Length: 5\n"),
        ("9112 6.3", "Transfer-Encoding: chunked\n", "Transfer-Encoding: chunked\n"),
        ("9112 6.3", "transfer-encoding: ChUnKeD\n", "Transfer-Encoding: chunked\n"),
        ("9110 7.6.1", "Connection: content-length\nContent-Length: 5\n", "Content-Length: 5\n"),
        (
            "9110 7.6.1",
            "Connection: transfer-encoding\nTransfer-Encoding: chunked\n",
            "Transfer-Encoding: chunked\n",
        ),
        (
            "9110 10.1.1",
            "Expect: 100-Continue\nContent-Length: 5\n",
            "Content-Length: 5\nExpect: 100-continue\n",
        ),
        (
            "9110 10.1.1",
            "Expect: 100-continue\nTransfer-Encoding: chunked\n",
            "Transfer-Encoding: chunked\nExpect: 100-continue\n",
        ),
        (
            "9110 10.1.1",
            "Connection: expect\nExpect: 100-continue\nContent-Length: 5\n",
            "Content-Length: 5\nExpect: 100-continue\n",
        ),
        ("9110 10.1.1", "Expect: 100-continue\nContent-Length: 0\n", "Content-Length: 0\n"),
    ];
    for (section, fields, wanted) in cases {
        let given = format!("POST /p HTTP/1.1\nHost: h\n{fields}");
        check(section, &context(), &given, &format!("POST /p HTTP/1.1\nHost: h\n{wanted}+\n"));
    }
    let old = "POST / HTTP/1.1\nHost: h\nContent-Length: 5\nVia: 1.0 gate\n\
        X-Forwarded-For: 192.0.2.7\nX-Forwarded-Host: h\nX-Forwarded-Proto: http\n\
        Forwarded: for=192.0.2.7;host=\"h\";proto=http\n";
    let given = "POST / HTTP/1.0\nHost: h\nContent-Length: 5\nExpect: 100-continue\n";
    check("9110 10.1.1", &context(), given, old);
}

#[test]
fn upgrade_and_trailers_are_requested_from_the_server() {
    let cases = [
        (
            "9110 7.8",
            "Connection: Upgrade\nUpgrade: websocket\n",
            "Connection: upgrade\nUpgrade: websocket\n",
            true,
        ),
        (
            "9110 7.8",
            "Upgrade: websocket\nConnection: keep-alive, Upgrade\n",
            "Connection: upgrade\nUpgrade: websocket\n",
            true,
        ),
        (
            "9110 7.8",
            "Connection: upgrade\nUpgrade: h2c, websocket\nUpgrade: SPDY/3.1\n",
            "Connection: upgrade\nUpgrade: websocket, SPDY/3.1\n",
            true,
        ),
        ("9110 7.8", "Connection: upgrade\nUpgrade: h2c\n", "", false),
        ("9110 10.1.4", "TE: trailers\nConnection: TE\n", "Connection: TE\nTE: trailers\n", false),
        (
            "9110 10.1.4",
            "Connection: te\nTE: deflate, Trailers\n",
            "Connection: TE\nTE: trailers\n",
            false,
        ),
        (
            "9110 7.8",
            "Connection: te, upgrade\nTE: trailers\nUpgrade: websocket\n",
            "Connection: upgrade, TE\nTE: trailers\nUpgrade: websocket\n",
            true,
        ),
    ];
    for (section, fields, wanted, upgrade) in cases {
        let given = format!("GET / HTTP/1.1\nHost: h\n{fields}");
        check(section, &context(), &given, &format!("GET / HTTP/1.1\nHost: h\n{wanted}+\n"));
        assert_eq!(with_head(&wire(&given), forwards_upgrade), upgrade, "{given}");
    }
}

#[test]
fn trailers_are_announced_only_to_servers_that_receive_them() {
    let given = "POST / HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\nTrailer: X-Sum\n";
    let dropped = "POST / HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n+\n";
    check("9110 6.6.2", &context(), given, dropped);
    let receives = RequestContext { trailers: true, ..context() };
    let passed = "POST / HTTP/1.1\nHost: h\nTrailer: X-Sum\nTransfer-Encoding: chunked\n+\n";
    check("9110 6.6.2", &receives, given, passed);
}

#[test]
fn request_on_a_connection_that_ends_contains_close() {
    let close = RequestContext { close: true, ..context() };
    let cases = [
        ("", "Connection: close\n"),
        ("Connection: TE\nTE: trailers\n", "Connection: close, TE\nTE: trailers\n"),
        (
            "Connection: upgrade\nUpgrade: websocket\n",
            "Connection: close, upgrade\nUpgrade: websocket\n",
        ),
        (
            "Connection: upgrade, TE\nUpgrade: websocket\nTE: trailers\n",
            "Connection: close, upgrade, TE\nTE: trailers\nUpgrade: websocket\n",
        ),
    ];
    for (fields, wanted) in cases {
        let given = format!("GET / HTTP/1.1\nHost: h\n{fields}");
        check("9112 9.6", &close, &given, &format!("GET / HTTP/1.1\nHost: h\n{wanted}+\n"));
    }
}

#[test]
fn body_is_unexpected_except_with_post_put_and_patch() {
    let cases = [
        ("GET", "Content-Length: 2\n", true),
        ("HEAD", "Transfer-Encoding: chunked\n", true),
        ("DELETE", "Content-Length: 2\n", true),
        ("OPTIONS", "Content-Length: 2\n", true),
        ("TRACE", "Content-Length: 2\n", true),
        ("GET", "Content-Length: 0\n", false),
        ("GET", "", false),
        ("POST", "Content-Length: 2\n", false),
        ("PUT", "Transfer-Encoding: chunked\n", false),
        ("PATCH", "Content-Length: 2\n", false),
        ("PROPFIND", "Content-Length: 2\n", true),
        ("PROPFIND", "", false),
        ("UNKNOWN", "Transfer-Encoding: chunked\n", true),
        ("post", "Content-Length: 2\n", true),
    ];
    for (method, fields, wanted) in cases {
        let given = format!("{method} / HTTP/1.1\nHost: h\n{fields}");
        assert_eq!(with_head(&wire(&given), has_unexpected_body), wanted, "{given}");
        let reusable = |after_body, after_unexpected_body| {
            let reuse = Reuse { after_body, after_unexpected_body, ..Reuse::default() };
            with_head(&wire(&given), |head| leaves_reusable(head, &reuse))
        };
        let has_body = !fields.is_empty() && !fields.contains(" 0");
        assert_eq!(reusable(true, false), !wanted, "{given}");
        assert!(reusable(true, true), "{given}");
        assert_eq!(
            (reusable(false, false), reusable(false, true)),
            (!has_body, !has_body),
            "{given}"
        );
    }
}

#[test]
fn max_forwards_is_decremented_for_options_and_trace() {
    for method in ["OPTIONS", "TRACE"] {
        let given = |value: &str| format!("{method} / HTTP/1.1\nHost: h\nMax-Forwards: {value}\n");
        for (value, wanted) in [("1", "0"), ("10", "9"), ("007", "6")] {
            let wanted = format!("{method} / HTTP/1.1\nHost: h\nMax-Forwards: {wanted}\n+\n");
            check("9110 7.6.2", &context(), &given(value), &wanted);
        }
        let named =
            format!("{method} / HTTP/1.1\nHost: h\nConnection: max-forwards\nMax-Forwards: 3\n");
        let wanted = format!("{method} / HTTP/1.1\nHost: h\nMax-Forwards: 2\n+\n");
        check("9110 7.6.1", &context(), &named, &wanted);
        let huge = forward(&given("99999999999999999999999"), &context()).expect("forwarded");
        assert!(huge.contains("Max-Forwards: 18446744073709551614\r\n"), "{huge}");
        assert_eq!(forward(&given("0"), &context()), Err(ForwardFault::AnswerHere));
        assert_eq!(forward(&given("00"), &context()), Err(ForwardFault::AnswerHere));
        for bad in ["", "-1", "+1", "1 2", "x", "1, 1", "0x1", "1\nMax-Forwards: 1"] {
            let fault = forward(&given(bad), &context());
            assert_eq!(fault, Err(ForwardFault::MaxForwardsInvalid), "{bad:?}");
        }
    }
    assert_eq!(ForwardFault::AnswerHere.status(), 200);
    assert_eq!(ForwardFault::MaxForwardsInvalid.status(), 400);
}

#[test]
fn via_is_extended_and_a_loop_is_detected() {
    let rest = ADDED.split_once('\n').expect("more than one line").1;
    let cases = [
        ("Via: 1.0 fred\n", "Via: 1.0 fred, 1.1 gate\n"),
        (
            "Via: 1.0 fred, 1.1 p.example (Apache)\n",
            "Via: 1.0 fred, 1.1 p.example (Apache), 1.1 gate\n",
        ),
        ("Via: 1.0 a\nVia: 2 b\n", "Via: 1.0 a, 2 b, 1.1 gate\n"),
        ("Via:\n", "Via: 1.1 gate\n"),
        ("Connection: via\nVia: 1.0 a\n", "Via: 1.0 a, 1.1 gate\n"),
    ];
    for (fields, wanted) in cases {
        let given = format!("GET / HTTP/1.1\nHost: h\n{fields}");
        let wanted = format!("GET / HTTP/1.1\nHost: h\n{wanted}{rest}");
        check("9110 7.6.3", &context(), &given, &wanted);
    }
    let nameless = RequestContext { via: "", ..context() };
    check(
        "9110 7.6.3",
        &nameless,
        "GET / HTTP/1.1\nHost: h\n",
        &format!("GET / HTTP/1.1\nHost: h\n{rest}"),
    );

    let round = |times: usize| {
        let names = vec!["1.1 GATE (x)"; times].join(", ");
        forward(&format!("GET / HTTP/1.1\nHost: h\nVia: 1.1 other, {names}\n"), &context())
    };
    assert!(round(VIA_REPEATS_MAX - 1).is_ok());
    assert_eq!(round(VIA_REPEATS_MAX), Err(ForwardFault::Loop));
    assert_eq!(ForwardFault::Loop.status(), 508);
}

#[test]
fn claims_about_the_client_are_replaced_unless_it_is_trusted() {
    let claims = "X-Forwarded-For: 1.1.1.1\nx-forwarded-for: 2.2.2.2\nX-Forwarded-Host: evil\n\
        X-Forwarded-Proto: https\nForwarded: for=1.1.1.1\nX-Forwarded-Port: 1\n\
        X-Forwarded-Prefix: /p\nX_Forwarded_For: 3.3.3.3\n";
    let given = format!("GET / HTTP/1.1\nHost: h\n{claims}");
    check("7239 8.1", &context(), &given, "GET / HTTP/1.1\nHost: h\n+\n");

    let trusted = RequestContext { trusted: true, ..context() };
    let wanted = "GET / HTTP/1.1\nHost: h\nX-Forwarded-Port: 1\nX-Forwarded-Prefix: /p\n\
        Via: 1.1 gate\nX-Forwarded-For: 1.1.1.1, 2.2.2.2, 192.0.2.7\n\
        X-Forwarded-Host: evil\nX-Forwarded-Proto: https\n\
        Forwarded: for=1.1.1.1;host=\"evil\";proto=https, for=2.2.2.2, \
        for=192.0.2.7;host=\"h\";proto=http\n";
    check("7239 4", &trusted, &given, wanted);
    check("7239 4", &trusted, "GET / HTTP/1.1\nHost: h\n", "GET / HTTP/1.1\nHost: h\n+\n");
    let named = "GET / HTTP/1.1\nHost: h\nConnection: x-forwarded-for\nX-Forwarded-For: 9.9.9.9\n";
    let text = forward(named, &trusted).expect("forwarded");
    assert!(text.contains("X-Forwarded-For: 9.9.9.9, 192.0.2.7\r\n"), "{text}");
}

#[test]
fn scheme_is_the_connections_unless_a_trusted_proxy_states_another() {
    use Scheme::{Http, Https};
    for (fields, of_plain, of_tls) in [
        ("", Http, Https),
        ("X-Forwarded-Proto: https\n", Https, Https),
        ("x-forwarded-proto: HTTPS\n", Https, Https),
        ("X-Forwarded-Proto: wss\n", Https, Https),
        ("X-Forwarded-Proto: http\n", Http, Http),
        ("X-Forwarded-Proto: ws\n", Http, Http),
        ("X-Forwarded-Proto: \nX-Forwarded-Proto: https\n", Https, Https),
        ("X-Forwarded-Proto: https , http\n", Https, Https),
        ("X-Forwarded-Proto: http\nX-Forwarded-Proto: https\n", Http, Http),
        ("X-Forwarded-Proto: httpsx\n", Http, Https),
        ("X-Forwarded-Proto: ,https\n", Http, Https),
        ("X-Forwarded-Port: 443\nX-Forwarded-Ssl: on\n", Http, Https),
        ("Forwarded: for=1.1.1.1;proto=https, for=2.2.2.2;proto=http\n", Https, Https),
        ("Forwarded: for=1.1.1.1;proto=http\n", Http, Http),
        ("Forwarded: for=1.1.1.1\n", Http, Https),
        ("Forwarded: proto=https;for=\"1.1.1.1\n", Http, Https),
        ("X-Forwarded-Proto: http\nForwarded: proto=https\n", Http, Http),
        ("X-Forwarded-For: 1.1.1.1\nForwarded: for=2.2.2.2;proto=https\n", Http, Https),
    ] {
        with_head(&wire(&format!("GET / HTTP/1.1\nHost: h\n{fields}")), |head| {
            let schemes = [Http, Https].map(|connection| request_scheme(head, connection, true));
            assert_eq!(schemes, [of_plain, of_tls], "{fields}");
            let schemes = [Http, Https].map(|connection| request_scheme(head, connection, false));
            assert_eq!(schemes, [Http, Https], "of an untrusted client: {fields}");
        });
    }
}

#[test]
fn addresses_are_formatted_for_each_field() {
    let cases = [
        (Some("2001:db8::1"), "X-Forwarded-For: 2001:db8::1\n", "for=\"[2001:db8::1]\""),
        (Some("::ffff:192.0.2.9"), "X-Forwarded-For: 192.0.2.9\n", "for=192.0.2.9"),
        (Some("255.0.10.100"), "X-Forwarded-For: 255.0.10.100\n", "for=255.0.10.100"),
        (None, "", "for=unknown"),
    ];
    for (peer, list, element) in cases {
        let peer = peer.map(|text| text.parse().expect("an address"));
        let context = RequestContext { peer, scheme: Scheme::Https, ..context() };
        let wanted = format!(
            "GET / HTTP/1.1\nHost: [::1]:80\nVia: 1.1 gate\n{list}X-Forwarded-Host: [::1]:80\n\
             X-Forwarded-Proto: https\nForwarded: {element};host=\"[::1]:80\";proto=https\n"
        );
        check("7239 6", &context, "GET / HTTP/1.1\nHost: [::1]:80\n", &wanted);
    }
    let local = RequestContext { peer: None, trusted: true, ..context() };
    let text = forward("GET / HTTP/1.1\nHost: h\nX-Forwarded-For: 1.1.1.1\n", &local);
    assert!(text.expect("forwarded").contains("X-Forwarded-For: 1.1.1.1, unknown\r\n"));
}

#[test]
fn long_list_of_named_fields_is_obeyed() {
    let names: Vec<String> = (0..90).map(|number| format!("x-{number}")).collect();
    let fields: String = names.iter().map(|name| format!("{name}: 1\n")).collect();
    let others = "absent,".repeat(1_000);
    let connection = format!("Connection: close, {others}{}\n", names.join(","));
    let given = format!("GET / HTTP/1.1\nHost: h\n{fields}{connection}X-90: 1\n");
    let wanted = "GET / HTTP/1.1\nHost: h\nX-90: 1\n+\n";
    check("9110 7.6.1", &context(), &given, wanted);
}

#[test]
fn rejected_request_leaves_the_output_unchanged() {
    let given = wire("OPTIONS / HTTP/1.1\nHost: h\nMax-Forwards: 0\n");
    let mut out = b"before".to_vec();
    let result = with_head(&given, |head| encode_upstream_request(&mut out, head, &context()));
    assert_eq!((result, out.as_slice()), (Err(ForwardFault::AnswerHere), &b"before"[..]));
}

/// Fields that forwarding treats specially, and arbitrary ones.
fn field() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "Upgrade",
        "Via",
        "X-Forwarded-For",
        "Forwarded",
        "X-One",
        "X-Two",
        "Cookie",
        "Max-Forwards",
        "Expect",
        "Proxy-Authorization",
        "Http2-Settings",
        "X-Forwarded-Anything",
    ]);
    let values = prop_oneof![
        prop::sample::select(vec![
            "close",
            "keep-alive, x-one",
            "x-two",
            "host, content-length",
            "upgrade",
            "trailers",
            "websocket",
            "h2c",
            "100-continue",
            "1.1 gate",
            "",
            "transfer-encoding, te",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,12}".prop_map(|text| text.trim().to_owned()),
    ];
    (names, values).prop_map(|(name, value)| format!("{name}: {value}\n"))
}

proptest! {
    #[test]
    fn forwarded_request_decodes_to_the_same_request_without_hop_fields(
        fields in prop::collection::vec(field(), 0..12),
        framing in prop::sample::select(vec![
            "", "Content-Length: 7\n", "Transfer-Encoding: chunked\n", "Content-Length: 0\n",
        ]),
        target in prop::sample::select(vec!["/", "/a/b?c", "http://x.example:81/a?b", "/a%20b"]),
        method in prop::sample::select(vec!["GET", "POST", "DELETE", "X-ANY"]),
        trusted in any::<bool>(),
    ) {
        let given = wire(&format!("{method} {target} HTTP/1.1\nHost: h\n{framing}{}", fields.concat()));
        let mut storage = FieldStorage::new();
        let decoded =
            HeadDecoder::default().decode_request(&given, &HeadLimits::default(), &mut storage);
        let Ok(Some((head, _))) = decoded else { return Ok(()) };
        let context = RequestContext { trusted, ..context() };
        let mut out = Vec::new();
        prop_assert_eq!(encode_upstream_request(&mut out, &head, &context), Ok(()));
        with_head(&out, |again| {
            assert_eq!(again.length, head.length);
            assert_eq!((again.path, again.query, again.host), (head.path, head.query, head.host));
            assert_eq!(again.method, head.method);
            assert!(again.persistent);
            assert_eq!(again.upgrade, forwards_upgrade(&head));
            let body = !matches!(head.length, BodyLength::None | BodyLength::Length(0));
            assert_eq!(again.expect_continue, head.expect_continue && body);
            for id in [
                FieldName::KeepAlive, FieldName::ProxyConnection, FieldName::ProxyAuthorization,
                FieldName::Http2Settings,
            ] {
                assert!(!again.has(id), "{id:?}");
            }
            for name in ["x-one", "x-two"] {
                assert!(!(head.is_nominated(name) && again.find_named(name).is_some()), "{name}");
            }
            // Forwarding it again changes only the lists, which get one more entry for the proxy.
            let count = again.fields().filter(|field| field.id == FieldName::Via).count();
            assert_eq!(count, 1);
        });
    }
}

#[test]
fn only_the_proxy_states_the_client_certificate() {
    let came =
        "GET / HTTP/1.1\nHost: a\nX-Client-Cert-Subject: CN=admin\nx_client_cert_sha256: 0\n";
    let forwarded = |context: &RequestContext<'_>| forward(came, context).unwrap();
    let shown = ClientCertificate::Verified { subject: "CN=bob", fingerprint: "ab" };
    for trusted in [false, true] {
        let proven = RequestContext { trusted, client_certificate: Some(shown), ..context() };
        let out = forwarded(&proven);
        assert!(!out.contains("admin") && !out.contains("x_client"), "{out}");
        assert!(
            out.contains("X-Client-Cert-Subject: CN=bob\r\nX-Client-Cert-Sha256: ab\r\n"),
            "{out}"
        );
    }
    let in_front = ClientCertificate::VerifiedInFront { common_name: "bob" };
    let proven = RequestContext { trusted: true, client_certificate: Some(in_front), ..context() };
    let out = forwarded(&proven);
    assert!(out.contains("\r\nX-Client-Cert-Cn: bob\r\n"), "{out}");
    assert!(
        !out.contains("Subject") && !out.contains("sha256"),
        "only the common name is known: {out}"
    );
    assert!(!forwarded(&context()).contains("admin"), "any client can send this field");
    let front = RequestContext { trusted: true, ..context() };
    assert!(forwarded(&front).contains("CN=admin"), "a proxy in front may have seen it");
}

#[test]
fn listed_fields_with_the_clients_address_are_removed_unless_they_are_trusted() {
    let names = ["x-real-ip", "true-client-ip"].map(str::to_owned);
    let fields = ClientAddressFields::new(&names);
    let given = "GET / HTTP/1.1\nHost: h\nX-Real-IP: 1.1.1.1\nX_REAL_IP: 2.2.2.2\ntrue-client_ip: 3.3.3.3\n\
        X-Real-IPs: 4\n";
    let untrusted = RequestContext { client_address_fields: &fields, ..context() };
    check("7239 8.1", &untrusted, given, "GET / HTTP/1.1\nHost: h\nX-Real-IPs: 4\n+\n");
    let trusted = RequestContext { trusted: true, ..untrusted };
    let usual = ClientAddressFields::new(&CLIENT_ADDRESS_HEADERS.map(str::to_owned));
    let default = RequestContext { client_address_fields: &usual, ..context() };
    let rewriting =
        "GET / HTTP/1.1\nHost: h\nX-Original-URL: /admin\nX_Rewrite_URL: /admin\nX-Original: 5\n";
    check("9110 7.6", &default, rewriting, "GET / HTTP/1.1\nHost: h\nX-Original: 5\n+\n");
    let wanted = "GET / HTTP/1.1\nHost: h\nX-Real-IP: 1.1.1.1\nX-Real-IPs: 4\n+\n";
    check("7239 8.1", &trusted, given, wanted);
    let unlisted = RequestContext { trusted: false, ..context() };
    check("7239 8.1", &unlisted, given, &format!("{given}+\n"));
}

#[test]
fn request_of_http2_is_forwarded_in_the_form_of_http11() {
    let fields = [
        ("accept", "*/*"),
        ("cookie", "a=b"),
        ("te", "trailers"),
        ("trailer", "x-sum"),
        ("cookie", "c=d"),
        ("expect", "100-continue"),
    ];
    let context = RequestContext {
        peer: Some(IpAddr::from([192, 0, 2, 1])),
        trusted: false,
        client_address_fields: &NO_FIELDS,
        scheme: Scheme::Https,
        client_certificate: None,
        via: "gate",
        host: &KEEP,
        trailers: true,
        close: false,
        websocket_key: None,
        changes: None,
    };
    let mut out = Vec::new();
    http2::with_http2_request("POST", "/a?b", &fields, |head| {
        encode_upstream_request(&mut out, head, &context).expect("the request is forwarded");
    });
    let wanted = "POST /a?b HTTP/1.1\nHost: h:1\naccept: */*\ncookie: a=b; c=d\ntrailer: x-sum\n\
        Transfer-Encoding: chunked\nExpect: 100-continue\nConnection: TE\nTE: trailers\n\
        Via: 2.0 gate\nX-Forwarded-For: 192.0.2.1\nX-Forwarded-Host: h:1\n\
        X-Forwarded-Proto: https\nForwarded: for=192.0.2.1;host=\"h:1\";proto=https\n\n";
    assert_eq!(String::from_utf8_lossy(&out).replace("\r\n", "\n"), wanted);
    let stored = StoredHead::parse(&out).expect("a head in canonical form");
    assert_eq!((stored.method, stored.target, stored.bytes), ("POST", "/a?b", out.len()));
    assert_eq!(stored.fields().count(), 13);
}
