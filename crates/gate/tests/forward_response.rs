//! Forwarding of responses: the bytes of a server are decoded, and the bytes for the client are compared.
//! Every case names its RFC section. `=` stands for the first fields of each response in these tests.

mod sink;

use proptest::prelude::*;
use tidegate_gate::filter::{Filtered, Filters};
use tidegate_gate::forward::{self, ResponseContext, switches_as_requested};
use tidegate_wire::http1::{BodyFraming, HeadDecoder, ResponseEncoder, ResponseLimits};
use tidegate_wire::message::{
    BodyLength, FieldName, RequestKind, ResponseHead, ResponseStorage, Version,
};

use sink::Recorded;

const NOW: &[u8; 29] = b"Sat, 21 Nov 2026 08:00:00 GMT";
const DATE: &str = "Date: Fri, 20 Nov 2026 08:00:00 GMT\n";

/// A client, and how the body must be framed for it.
#[derive(Clone, Copy)]
struct Client {
    client_version: Version,
    keep_alive: bool,
    via: &'static str,
    request_is_head: bool,
    body: BodyFraming,
    hsts: &'static str,
}

fn context(body: BodyFraming) -> Client {
    Client {
        client_version: match body {
            BodyFraming::UntilClose => Version::Http10,
            _ => Version::Http11,
        },
        keep_alive: true,
        via: "gate",
        request_is_head: false,
        body,
        hsts: "",
    }
}

/// Encodes the response for HTTP/1 and records it without a protocol. Both must state the same.
fn encode_downstream_response(out: &mut Vec<u8>, head: &ResponseHead<'_>, client: &Client) {
    let context = ResponseContext {
        date: NOW,
        via: client.via,
        request_is_head: client.request_is_head,
        cookie: "",
    };
    let mut encoder = ResponseEncoder::new(out, client.client_version, !client.keep_alive);
    let sink = &mut Filtered::new(&mut encoder, Filters::policy(client.hsts));
    forward::encode_downstream_response(sink, head, &context);
    let framing = encoder.framing();
    assert_eq!(framing, client.body);
    assert_eq!(encoder.closes(), !client.keep_alive || framing == BodyFraming::UntilClose);
    let mut recorded = Recorded::default();
    let sink = &mut Filtered::new(&mut recorded, Filters::policy(client.hsts));
    forward::encode_downstream_response(sink, head, &context);
    if client.client_version == Version::Http10 {
        recorded.fields.retain(|(name, _)| !name.eq_ignore_ascii_case("trailer"));
    }
    recorded.check(out, client.request_is_head, framing);
}

fn encode_interim(out: &mut Vec<u8>, head: &ResponseHead<'_>, via: &str) {
    forward::encode_interim(&mut ResponseEncoder::new(out, Version::Http11, false), head, via);
    let mut recorded = Recorded::default();
    forward::encode_interim(&mut recorded, head, via);
    recorded.check(out, false, BodyFraming::None);
}

fn wire(text: &str) -> Vec<u8> {
    format!("{}\r\n", text.replace('\n', "\r\n")).into_bytes()
}

fn with_head<T>(bytes: &[u8], request: RequestKind, run: impl FnOnce(&ResponseHead<'_>) -> T) -> T {
    let mut storage = ResponseStorage::new();
    let decoded = HeadDecoder::default().decode_response(
        bytes,
        &ResponseLimits::default(),
        request,
        &mut storage,
    );
    match decoded {
        Ok(Some((head, _))) => run(&head),
        other => panic!("{other:?}: {}", String::from_utf8_lossy(bytes)),
    }
}

fn forward(given: &str, context: &Client) -> String {
    let kind = RequestKind { is_head: context.request_is_head, ..RequestKind::default() };
    let out = with_head(&wire(given), kind, |head| {
        let mut out = Vec::new();
        encode_downstream_response(&mut out, head, context);
        out
    });
    String::from_utf8(out).expect("text in, text out").replace("\r\n", "\n")
}

fn check(section: &str, context: &Client, given: &str, wanted: &str) {
    let (given, wanted) = (given.replace("=\n", DATE), wanted.replace("=\n", DATE));
    assert_eq!(forward(&given, context), format!("{wanted}\n"), "RFC {section}:\n{given}");
}

#[test]
fn status_line_is_rewritten_with_the_servers_reason() {
    let cases = [
        ("9112 4", "HTTP/1.1 200 OK\n", "HTTP/1.1 200 OK\n"),
        ("9112 4", "HTTP/1.0 200 OK\n", "HTTP/1.1 200 OK\n"),
        ("9112 4", "HTTP/1.1 200 Fine, thank you\n", "HTTP/1.1 200 Fine, thank you\n"),
        ("9112 4", "HTTP/1.1 404 \n", "HTTP/1.1 404 Not Found\n"),
        ("9112 4", "HTTP/1.1 503 \n", "HTTP/1.1 503 Service Unavailable\n"),
        ("9110 15", "HTTP/1.1 299 Odd\n", "HTTP/1.1 299 Odd\n"),
        ("9110 15", "HTTP/1.1 999 Denied\n", "HTTP/1.1 999 Denied\n"),
        ("9110 15", "HTTP/1.1 600 \n", "HTTP/1.1 600 Server Error\n"),
    ];
    for (section, line, wanted) in cases {
        let version = if line.starts_with("HTTP/1.0") { "1.0" } else { "1.1" };
        let given = format!("{line}=\nContent-Length: 0\n");
        let wanted = format!("{wanted}=\nContent-Length: 0\nVia: {version} gate\n");
        check(section, &context(BodyFraming::Length), &given, &wanted);
    }
}

#[test]
fn fields_of_the_servers_hop_are_omitted() {
    let plain = "HTTP/1.1 200 OK\n=\nA: 1\nContent-Length: 2\nVia: 1.1 gate\n";
    let cases = [
        ("9110 7.6.1", "Connection: close\n"),
        ("9110 7.6.1", "Connection: keep-alive\nKeep-Alive: timeout=5\n"),
        ("9110 7.6.1", "Connection: x-one\nX-One: 1\nx-one: 2\n"),
        ("9110 7.6.1", "X-Two: 1\nConnection: x-one, X-TWO\n"),
        ("9110 7.6.1", "Connection: content-length, date, via\n"),
        ("9110 7.6.1", "Connection: set-cookie\nSet-Cookie: a=b\n"),
        ("9112 C.2.2", "Keep-Alive: timeout=5\n"),
        ("9112 C.2.2", "Proxy-Connection: close\n"),
        ("9110 11.7.1", "Proxy-Authenticate: Basic\n"),
        ("9110 11.7.3", "Proxy-Authentication-Info: x\n"),
        ("9110 7.8", "Upgrade: h2c\nConnection: upgrade\n"),
        ("9110 7.8", "Upgrade: h2\n"),
        ("9110 10.1.4", "TE: trailers\n"),
        ("9110 6.6.2", "Trailer: x-sum\n"),
    ];
    for (section, fields) in cases {
        let given = format!("HTTP/1.1 200 OK\n=\n{fields}A: 1\nContent-Length: 2\n");
        check(section, &context(BodyFraming::Length), &given, plain);
    }
}

#[test]
fn long_list_of_named_fields_is_obeyed() {
    let names: Vec<String> = (0..60).map(|number| format!("x-{number}")).collect();
    let fields: String = names.iter().map(|name| format!("{name}: 1\n")).collect();
    let connection = format!("Connection: {}\n", names.join(", "));
    let given = format!("HTTP/1.1 200 OK\n=\n{connection}{fields}Content-Length: 2\n");
    let wanted = "HTTP/1.1 200 OK\n=\nContent-Length: 2\nVia: 1.1 gate\n";
    check("9110 7.6.1", &context(BodyFraming::Length), &given, wanted);
}

#[test]
fn other_fields_are_forwarded_unchanged() {
    let lines = [
        "Server: other/1.0\n",
        "Set-Cookie: a=b\nSet-Cookie: c=d, e\n",
        "Cache-Control: max-age=3\nAge: 2\n",
        "Content-Type: text/html\nContent-Encoding: gzip\n",
        "content-range: bytes 0-1/2\n",
        "ETag: W/\"x\"\n",
        "Location: http://a/b?c#d\n",
        "WWW-Authenticate: Basic realm=\"x\"\n",
        "Vary: *\n",
        "Allow: GET\n",
        "X-Empty: \n",
        "Retry-After: 3\n",
        "Accept-Ranges: bytes\n",
        "X-Forwarded-For: kept, as a response knows no such field\n",
    ];
    for fields in lines {
        let given = format!("HTTP/1.1 200 OK\n=\n{fields}Content-Length: 2\n");
        let wanted = format!("HTTP/1.1 200 OK\n=\n{fields}Content-Length: 2\nVia: 1.1 gate\n");
        check("9110 7.6", &context(BodyFraming::Length), &given, &wanted);
    }
}

#[test]
fn missing_date_is_added() {
    let given = "HTTP/1.1 200 OK\nContent-Length: 0\nServer: x\n";
    let wanted = "HTTP/1.1 200 OK\nServer: x\nDate: Sat, 21 Nov 2026 08:00:00 GMT\n\
        Content-Length: 0\nVia: 1.1 gate\n";
    check("9110 6.6.1", &context(BodyFraming::Length), given, wanted);
}

#[test]
fn framing_is_rewritten() {
    let chunked = "Transfer-Encoding: chunked\n";
    let cases = [
        ("9112 6.3", "Content-Length: 5\n", BodyFraming::Length, "Content-Length: 5\n"),
        ("9112 6.3", "content-length: 05\n", BodyFraming::Length, "Content-Length: 5\n"),
        ("9112 6.3", "transfer-encoding: CHUNKED\n", BodyFraming::Chunked, chunked),
        ("9112 6.3", "", BodyFraming::Chunked, chunked),
        ("9112 6.3", "", BodyFraming::UntilClose, "close"),
        ("9112 7.1", "Transfer-Encoding: chunked\n", BodyFraming::UntilClose, "close"),
    ];
    for (section, fields, body, wanted) in cases {
        let given = format!("HTTP/1.1 200 OK\n=\n{fields}");
        let wanted = match wanted {
            "close" => "HTTP/1.1 200 OK\n=\nVia: 1.1 gate\nConnection: close\n".to_owned(),
            framing => format!("HTTP/1.1 200 OK\n=\n{framing}Via: 1.1 gate\n"),
        };
        check(section, &context(body), &given, &wanted);
    }
    let given = "HTTP/1.1 200 OK\n=\nTrailer: x-sum\nTransfer-Encoding: chunked\n";
    let wanted = "HTTP/1.1 200 OK\n=\nTrailer: x-sum\nTransfer-Encoding: chunked\nVia: 1.1 gate\n";
    check("9110 6.6.2", &context(BodyFraming::Chunked), given, wanted);
}

#[test]
fn response_without_a_body_keeps_the_length_of_gets_response() {
    let head = Client { request_is_head: true, ..context(BodyFraming::None) };
    let get = context(BodyFraming::None);
    let length = "Content-Length: 42\n";
    let cases = [
        ("9110 9.3.2", head, "200 OK", length, length),
        ("9110 9.3.2", head, "200 OK", "", ""),
        ("9110 9.3.2", head, "404 Not Found", length, length),
        ("9110 8.6", get, "304 Not Modified", length, length),
        ("9110 8.6", get, "304 Not Modified", "", ""),
        ("9110 8.6", head, "304 Not Modified", length, length),
        ("9110 8.6", get, "204 No Content", "", ""),
        ("9112 6.1", head, "200 OK", "Transfer-Encoding: chunked\n", ""),
    ];
    for (section, context, status, fields, wanted) in cases {
        let given = format!("HTTP/1.1 {status}\n=\n{fields}");
        let wanted = format!("HTTP/1.1 {status}\n=\n{wanted}Via: 1.1 gate\n");
        check(section, &context, &given, &wanted);
    }
}

#[test]
fn connection_field_describes_the_clients_connection() {
    let given = "HTTP/1.1 200 OK\n=\nContent-Length: 2\nConnection: keep-alive\n";
    let opening = "HTTP/1.1 200 OK\n=\nContent-Length: 2\nVia: 1.1 gate\n";
    let cases = [
        ("9112 9.3", Version::Http11, true, ""),
        ("9112 9.6", Version::Http11, false, "Connection: close\n"),
        ("9112 C.2.2", Version::Http10, true, "Connection: keep-alive\n"),
        ("9112 9.6", Version::Http10, false, "Connection: close\n"),
    ];
    for (section, client_version, keep_alive, wanted) in cases {
        let context = Client { client_version, keep_alive, ..context(BodyFraming::Length) };
        check(section, &context, given, &format!("{opening}{wanted}"));
    }
    let upgrade = "HTTP/1.1 426 Upgrade Required\n=\nContent-Length: 0\n\
        Connection: upgrade\nUpgrade: websocket\n";
    let wanted = "HTTP/1.1 426 Upgrade Required\n=\nContent-Length: 0\nVia: 1.1 gate\n\
        Connection: upgrade\nUpgrade: websocket\n";
    check("9110 15.5.22", &context(BodyFraming::Length), upgrade, wanted);
    let closing = Client { keep_alive: false, ..context(BodyFraming::Length) };
    let wanted = wanted.replace("Connection: upgrade", "Connection: upgrade, close");
    check("9110 15.5.22", &closing, upgrade, &wanted);
}

#[test]
fn via_is_extended() {
    for (fields, wanted) in [
        ("Via: 1.1 a\n", "Via: 1.1 a, 1.1 gate\n"),
        ("Via: 1.1 a\nVia: 1.0 b (c)\n", "Via: 1.1 a, 1.0 b (c), 1.1 gate\n"),
    ] {
        let given = format!("HTTP/1.1 200 OK\n=\n{fields}Content-Length: 0\n");
        let wanted = format!("HTTP/1.1 200 OK\n=\nContent-Length: 0\n{wanted}");
        check("9110 7.6.3", &context(BodyFraming::Length), &given, &wanted);
    }
    let nameless = Client { via: "", ..context(BodyFraming::Length) };
    let given = "HTTP/1.1 200 OK\n=\nContent-Length: 0\n";
    check("9110 7.6.3", &nameless, given, given);
}

#[test]
fn interim_responses_are_relayed_without_framing() {
    let cases = [
        ("9110 15.2.1", "HTTP/1.1 100 Continue\n", "HTTP/1.1 100 Continue\nVia: 1.1 gate\n"),
        (
            "8297 2",
            "HTTP/1.1 103 Early Hints\nLink: </a.css>; rel=preload\nConnection: x\nX: 1\n",
            "HTTP/1.1 103 Early Hints\nLink: </a.css>; rel=preload\nVia: 1.1 gate\n",
        ),
        (
            "9110 7.8",
            "HTTP/1.1 101 Switching Protocols\nUpgrade: websocket\nConnection: Upgrade, x\nX: 1\n\
             Sec-WebSocket-Accept: abc\n",
            "HTTP/1.1 101 Switching Protocols\nSec-WebSocket-Accept: abc\nVia: 1.1 gate\n\
             Connection: upgrade\nUpgrade: websocket\n",
        ),
    ];
    let kind = RequestKind { upgrade_asked: true, ..RequestKind::default() };
    for (section, given, wanted) in cases {
        let mut out = Vec::new();
        with_head(&wire(given), kind, |head| encode_interim(&mut out, head, "gate"));
        assert_eq!(out, wire(wanted), "RFC {section}");
    }
}

proptest! {
    #[test]
    fn forwarded_response_decodes_to_the_same_length_without_hop_fields(
        status in prop::sample::select(vec![200_u16, 204, 206, 304, 404, 426, 500]),
        framing in prop::sample::select(vec![
            "", "Content-Length: 7\n", "Transfer-Encoding: chunked\n", "Content-Length: 0\n",
        ]),
        fields in prop::collection::vec(
            prop::sample::select(vec![
                "Connection: close\n", "Connection: x-one, keep-alive\n", "X-One: 1\n",
                "Keep-Alive: 1\n", "Upgrade: h2c\n", "Via: 1.1 a\n", "Trailer: x\n", "TE: x\n",
                "Date: Sat, 21 Nov 2026 08:00:00 GMT\n", "Server: s\n", "Proxy-Connection: x\n",
            ]),
            0..8,
        ),
        is_head in any::<bool>(),
        keep_alive in any::<bool>(),
    ) {
        let given = wire(&format!("HTTP/1.1 {status} X\n{framing}{}", fields.concat()));
        let kind = RequestKind { is_head, ..RequestKind::default() };
        let mut storage = ResponseStorage::new();
        let decoded =
            HeadDecoder::default().decode_response(&given, &ResponseLimits::default(), kind, &mut storage);
        let Ok(Some((head, _))) = decoded else { return Ok(()) };
        let body = match head.length {
            BodyLength::None => BodyFraming::None,
            BodyLength::Length(_) => BodyFraming::Length,
            BodyLength::Streamed | BodyLength::UntilClose => BodyFraming::Chunked,
        };
        let context = Client { keep_alive, request_is_head: is_head, ..context(body) };
        let mut out = Vec::new();
        encode_downstream_response(&mut out, &head, &context);
        with_head(&out, kind, |again| {
            let wanted = match head.length {
                BodyLength::UntilClose => BodyLength::Streamed,
                length => length,
            };
            assert_eq!((again.length, again.status), (wanted, head.status));
            if !matches!(again.length, BodyLength::None) {
                assert_eq!(again.persistent, keep_alive);
            }
            for id in [FieldName::KeepAlive, FieldName::ProxyConnection, FieldName::Te] {
                assert!(!again.has(id), "{id:?}");
            }
            assert!(!(head.is_nominated("x-one") && again.find_named("x-one").is_some()));
            assert!(again.has(FieldName::Date));
            assert_eq!(again.fields().filter(|field| field.id == FieldName::Via).count(), 1);
        });
    }
}

#[test]
fn switch_must_be_to_a_requested_protocol() {
    let upgrade = RequestKind { upgrade_asked: true, ..RequestKind::default() };
    let request = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: a/1, websocket\r\n\r\nUpgrade: body\r\n";
    for (protocols, wanted) in
        [("websocket", true), ("WebSocket", true), ("a/2", true), ("b", false), ("a, b", false)]
    {
        let given = format!("HTTP/1.1 101 S\r\nUpgrade: {protocols}\r\n\r\n");
        let accepted =
            with_head(given.as_bytes(), upgrade, |head| switches_as_requested(request, head));
        assert_eq!(accepted, wanted, "{protocols}");
    }
    let given = b"HTTP/1.1 101 S\r\nUpgrade: body\r\n\r\n";
    assert!(!with_head(given, upgrade, |head| switches_as_requested(
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\nUpgrade: body\r\n",
        head
    )));
}

#[test]
fn own_strict_transport_security_replaces_the_servers() {
    let given = "HTTP/1.1 200 OK\n=\nStrict-Transport-Security: max-age=1\nA: b\n\
                 strict-transport-security: max-age=2\nContent-Length: 2\n";
    let passed = "HTTP/1.1 200 OK\n=\nStrict-Transport-Security: max-age=1\nA: b\n\
                  strict-transport-security: max-age=2\nContent-Length: 2\nVia: 1.1 gate\n";
    check("6797 7.1", &context(BodyFraming::Length), given, passed);
    let ours = Client { hsts: "max-age=9", ..context(BodyFraming::Length) };
    let replaced = "HTTP/1.1 200 OK\n=\nA: b\nStrict-Transport-Security: max-age=9\n\
                    Content-Length: 2\nVia: 1.1 gate\n";
    check("6797 7.1", &ours, given, replaced);
}

#[test]
fn connection_names_fields_of_the_largest_head() {
    // 256 fields: Connection, Date, 254 others. Every third one is named, the last one included.
    let names: Vec<String> = (0..254).map(|at| format!("X-{at}")).collect();
    let nominated = |at: usize| at % 3 == 2 || at == 253;
    let named: Vec<&str> =
        names.iter().enumerate().filter(|&(at, _)| nominated(at)).map(|(_, n)| &**n).collect();
    let mut given = format!("HTTP/1.1 200 OK\nDate: d\nConnection: {}\n", named.join(","));
    let mut wanted = "HTTP/1.1 200 OK\nDate: d\n".to_owned();
    for (at, name) in names.iter().enumerate() {
        given += &format!("{name}: {at}\n");
        if !nominated(at) {
            wanted += &format!("{name}: {at}\n");
        }
    }
    wanted += "Transfer-Encoding: chunked\nVia: 1.1 gate\n";
    check("9110 7.6.1", &context(BodyFraming::Chunked), &given, &wanted);
}

#[test]
fn challenge_of_a_connection_is_recognised() {
    let cases = [
        ("HTTP/1.1 401 No\nWWW-Authenticate: NTLM\n", true),
        ("HTTP/1.1 401 No\nwww-authenticate: Basic realm=\"a, b\", negotiate abc==\n", true),
        ("HTTP/1.1 401 No\nWWW-Authenticate: Basic realm=a\nWWW-Authenticate: Kerberos\n", true),
        ("HTTP/1.1 407 No\nProxy-Authenticate: nTLm TlRMTVNTUAAC\n", true),
        ("HTTP/1.1 401 No\nWWW-Authenticate: Basic realm=\"ntlmish\"\n", false),
        ("HTTP/1.1 401 No\nX-A: NTLM\n", false),
        // Such a connection was marked when it carried the credentials.
        ("HTTP/1.1 200 OK\nWWW-Authenticate: Negotiate abc==\n", false),
    ];
    for (text, wanted) in cases {
        let found = with_head(&wire(text), RequestKind::default(), |head| {
            tidegate_gate::connection_auth::response_authenticates(head)
        });
        assert_eq!(found, wanted, "{text}");
    }
}
