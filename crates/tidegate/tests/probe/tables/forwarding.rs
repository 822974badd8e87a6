//! What an intermediary must and must not change in requests: RFC 9110 sections 7.6, 9.3 and 10.1.

use super::get;
use crate::vector::{Check, Routes, Vector, accept, refuse};

pub fn vectors() -> Vec<Vector> {
    let mut all = hop_by_hop();
    all.extend(nominated());
    all.extend(via_and_hops());
    all.extend(forwarded());
    all
}

fn sends(name: &'static str, rule: &'static str, lines: &str, checks: &[Check]) -> Vector {
    accept(name, rule, get(lines)).origin(checks)
}

fn hop_by_hop() -> Vec<Vector> {
    vec![
        sends(
            "Connection itself",
            "9110 7.6.1 MUST",
            "Connection: keep-alive\r\n",
            &[Check::Lacks("connection")],
        ),
        sends(
            "a field that it names",
            "9110 7.6.1 MUST",
            "Connection: X-Hop\r\nX-Hop: y\r\nX: z\r\n",
            &[Check::Lacks("x-hop"), Check::Has("x", "z")],
        ),
        sends(
            "a field that it names in another case",
            "9110 7.6.1 MUST",
            "connection: x-hOp\r\nX-HoP: y\r\n",
            &[Check::Lacks("x-hop")],
        ),
        sends(
            "all lines of a field that it names",
            "9110 7.6.1 MUST",
            "X-Hop: 1\r\nConnection: X-Hop\r\nX-Hop: 2\r\n",
            &[Check::Lacks("x-hop")],
        ),
        sends(
            "a field before Connection",
            "9110 7.6.1 MUST",
            "X-Hop: 1\r\nConnection: x-hop\r\n",
            &[Check::Lacks("x-hop")],
        ),
        sends(
            "fields on two Connection lines",
            "9110 7.6.1 MUST",
            "Connection: a\r\nA: 1\r\nB: 2\r\nConnection: b\r\n",
            &[Check::Lacks("a"), Check::Lacks("b")],
        ),
        sends(
            "a list with white space",
            "9110 7.6.1 MUST",
            "Connection: ,a ,\tb,,\r\nA: 1\r\nB: 2\r\n",
            &[Check::Lacks("a"), Check::Lacks("b")],
        ),
        sends(
            "a name that is a prefix",
            "9110 7.6.1",
            "Connection: X-Ho\r\nX-Hop: y\r\n",
            &[Check::Has("x-hop", "y")],
        ),
        sends(
            "Keep-Alive",
            "9110 7.6.1 SHOULD",
            "Keep-Alive: timeout=5\r\n",
            &[Check::Lacks("keep-alive")],
        ),
        sends(
            "Proxy-Connection",
            "9110 7.6.1 SHOULD",
            "Proxy-Connection: keep-alive\r\n",
            &[Check::Lacks("proxy-connection")],
        ),
        sends("TE", "9110 10.1.4", "TE: gzip\r\nConnection: TE\r\n", &[Check::Lacks("te")]),
        sends("TE that Connection does not name", "9110 10.1.4 MUST", "TE: trailers\r\n", &[]),
        sends(
            "TE: trailers",
            "9110 10.1.4",
            "TE: trailers, deflate;q=0.5\r\nConnection: TE\r\n",
            &[],
        ),
        sends(
            "Upgrade without Connection",
            "9110 7.8",
            "Upgrade: websocket\r\n",
            &[Check::Lacks("upgrade")],
        ),
        sends(
            "no upgrade to h2c",
            "7540 3.2",
            {
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
            },
            &[Check::Lacks("upgrade"), Check::Lacks("http2-settings"), Check::Lacks("connection")],
        ),
        sends("Proxy-Authorization", "9110 11.7.2", "Proxy-Authorization: Basic YTpi\r\n", &[]),
        sends("Trailer without chunks", "9110 6.6.2", "Trailer: X\r\n", &[]),
    ]
}

/// Connection may name any field. A field that the origin needs is forwarded anyway; any other named
/// field is removed with all its lines.
fn nominated() -> Vec<Vector> {
    let named = |name, lines: &str, checks: &[Check]| sends(name, "9110 7.6.1", lines, checks);
    vec![
        named("Host", "Connection: close, Host\r\n", &[Check::Has("host", "h")]).closes(),
        named("Via", "Connection: Via\r\nVia: 1.1 a\r\n", &[Check::Count("via", 1)]),
        named(
            "Authorization",
            "Connection: Authorization\r\nAuthorization: a\r\n",
            &[Check::Lacks("authorization")],
        ),
        named("Cookie", "Connection: Cookie\r\nCookie: a=b\r\n", &[Check::Lacks("cookie")]),
        named(
            "X-Forwarded-For",
            "Connection: X-Forwarded-For\r\n",
            &[Check::Has("x-forwarded-for", "127.0.0.1")],
        ),
        named("Forwarded", "Connection: Forwarded\r\n", &[Check::Count("forwarded", 1)]),
        named("Connection", "Connection: Connection\r\n", &[Check::Lacks("connection")]),
        named("a field that is not there", "Connection: X-None\r\n", &[Check::Lacks("x-none")]),
        named("no valid name", "Connection: a b, \"c\", d:e\r\nD: 1\r\n", &[Check::Has("d", "1")]),
        named("bytes beyond ASCII", "Connection: \u{e9}\r\n", &[Check::Lacks("connection")]),
        accept("a hundred names", "9110 7.6.1 MUST", {
            let names: Vec<String> = (0..90).map(|n| format!("X{n}")).collect();
            let lines: String = names.iter().map(|name| format!("{name}: y\r\n")).collect();
            get(&format!("Connection: {}\r\n{lines}", names.join(",")))
        })
        .origin(&[Check::Lacks("x0"), Check::Lacks("x45"), Check::Lacks("x89")]),
    ]
}

fn via_and_hops() -> Vec<Vector> {
    let with = |method: &str, target: &str, lines: &str| {
        format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
    };
    let limited = |name, method: &str, hops: &str, checks: &[Check]| {
        accept(name, "9110 7.6.2 MUST", with(method, "/x", &format!("Max-Forwards: {hops}\r\n")))
            .origin(checks)
    };
    vec![
        sends("Via is added", "9110 7.6.3 MUST", "", &[Check::Has("via", "1.1 tidegate")]),
        sends(
            "Via is extended",
            "9110 7.6.3 MUST",
            "Via: 1.0 a, 1.1 b (c)\r\n",
            &[Check::Joined("via", "1.0 a, 1.1 b (c), 1.1 tidegate")],
        ),
        sends(
            "Via lines keep their order",
            "9110 7.6.3 MUST",
            "Via: 1.0 a\r\nVia: 1.1 b\r\n",
            &[Check::Joined("via", "1.0 a, 1.1 b, 1.1 tidegate")],
        ),
        limited("OPTIONS counts down", "OPTIONS", "5", &[Check::Has("max-forwards", "4")]),
        limited("TRACE counts down", "TRACE", "1", &[Check::Has("max-forwards", "0")]),
        limited(
            "a large count",
            "TRACE",
            "99999999999999999999999",
            &[Check::Count("max-forwards", 1)],
        ),
        limited("GET does not count", "GET", "0", &[Check::Has("max-forwards", "0")]),
        limited("POST does not count", "POST", "3", &[Check::Has("max-forwards", "3")]),
        accept(
            "OPTIONS ends here",
            "9110 7.6.2 MUST NOT",
            with("OPTIONS", "/x", "Max-Forwards: 0\r\n"),
        )
        .to(Routes::Proxy)
        .seen(0),
        accept(
            "OPTIONS * ends here",
            "9110 7.6.2 MUST NOT",
            with("OPTIONS", "*", "Max-Forwards: 0\r\n"),
        )
        .to(Routes::Proxy)
        .seen(0),
        accept("TRACE ends here", "9110 9.3.8 SHOULD", {
            with("TRACE", "/x", "Max-Forwards: 0\r\nX: y\r\nCookie: secret\r\n")
        })
        .to(Routes::Proxy)
        .seen(0)
        .client(&[
            Check::Has("content-type", "message/http"),
            Check::Body("TRACE /x HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\nX: y\r\n\r\n"),
        ]),
        accept("an invalid count", "9110 7.6.2", with("OPTIONS", "/x", "Max-Forwards: x\r\n"))
            .to(Routes::Proxy)
            .one_of(&[400])
            .seen(0),
        refuse("a loop", "9110 7.6", &[508, 400, 502], {
            get(&format!("Connection: close\r\nVia: {}\r\n", vec!["1.1 tidegate"; 60].join(", ")))
        })
        .to(Routes::Proxy),
    ]
}

fn forwarded() -> Vec<Vector> {
    let element = "for=127.0.0.1;host=\"h\";proto=http";
    let claims = "X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: e\r\n\
                  Forwarded: for=9.9.9.9;proto=https\r\n";
    vec![
        sends(
            "the client's address is forwarded",
            "7239",
            "",
            &[
                Check::Has("x-forwarded-for", "127.0.0.1"),
                Check::Has("x-forwarded-proto", "http"),
                Check::Has("x-forwarded-host", "h"),
                Check::Has("forwarded", element),
            ],
        ),
        sends(
            "claims of an untrusted client are replaced",
            "7239 8.1",
            claims,
            &[
                Check::Has("x-forwarded-for", "127.0.0.1"),
                Check::Has("x-forwarded-proto", "http"),
                Check::Has("x-forwarded-host", "h"),
                Check::Has("forwarded", element),
            ],
        ),
        sends(
            "claims in other spellings",
            "7239 8.1",
            "X_Forwarded_For: 9.9.9.9\r\nx-forwarded-FOR: 8.8.8.8\r\nX-Forwarded-Port: 1\r\n",
            &[
                Check::Has("x-forwarded-for", "127.0.0.1"),
                Check::Lacks("x_forwarded_for"),
                Check::Lacks("x-forwarded-port"),
            ],
        ),
    ]
}
