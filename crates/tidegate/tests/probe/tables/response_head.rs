//! Heads of the origin's responses: RFC 9112 sections 4 and 5, RFC 9110 sections 5, 7.6 and 15.

use crate::origin::Play;
use crate::vector::{Check, Vector, accept, answer, answer_and_end, bad_answer};

pub fn vectors() -> Vec<Vector> {
    let mut all = bad_status_lines();
    all.extend(statuses());
    all.extend(bad_fields());
    all.extend(good_fields());
    all.extend(hop_by_hop());
    all.extend(sloppy());
    all
}

/// Deviations with only one reading, forwarded in canonical form.
fn sloppy() -> Vec<Vector> {
    let fixed = |name, rule, bytes: String| {
        answer(name, rule, bytes).client(&[
            Check::Count("content-length", 1),
            Check::Has("content-length", "2"),
            Check::Body("ok"),
        ])
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    vec![
        fixed("an empty line before", "9112 2.2", format!("\r\n{head}")),
        fixed("eight empty lines before", "9112 2.2", format!("{}{head}", "\r\n".repeat(8))),
        fixed("an LF ends the status line", "9112 2.2", head.replacen("\r\n", "\n", 1)),
        fixed("LF on every line", "9112 2.2", head.replace("\r\n", "\n")),
        fixed("an LF ends a field", "9112 2.2", ok("X: a\nY: b\r\n")).client(&[
            Check::Has("x", "a"),
            Check::Has("y", "b"),
            Check::Body("ok"),
        ]),
        answer_and_end("an LF ends the head", "9112 2.2", "HTTP/1.1 200 OK\r\nX: a\n\nok")
            .client(&[Check::Has("x", "a"), Check::Body("ok")]),
        fixed("equal lengths", "9112 6.3", ok("Content-Length: 2\r\n")),
        fixed("a list of equal lengths", "9112 6.3", ok("").replace("h: 2", "h: 2, 2")),
        fixed("a hundred and fifty fields", "9110 5.4", ok(&"X: y\r\n".repeat(149))),
        fixed("a status above 599", "9110 15", ok("").replace("200 OK", "600 Odd"))
            .statuses(&[600]),
        fixed("a status of 999", "9110 15", ok("").replace("200 OK", "999 Odd")).statuses(&[999]),
        answer("blanks after chunk sizes", "9112 7.1", {
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 \t\r\nok\r\n0 \r\n\r\n"
        })
        .client(&[Check::Body("ok")]),
        bad_answer("equal lengths in different digits", "9112 6.3 MUST", {
            ok("Content-Length: 02\r\n")
        }),
        bad_answer("an LF before chunked and a length", "9112 6.1", {
            ok("X: a\nTransfer-Encoding: chunked\n")
        }),
    ]
}

fn ok(lines: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 2\r\n\r\nok")
}

fn bad_status_lines() -> Vec<Vector> {
    let bad = |name, line: &str| {
        bad_answer(name, "9112 4", format!("{line}\r\nContent-Length: 2\r\n\r\nok"))
    };
    vec![
        bad("nine empty lines before", &format!("{}HTTP/1.1 200 OK", "\r\n".repeat(9))),
        bad("no version", "200 OK"),
        bad("a status of two digits", "HTTP/1.1 20 OK"),
        bad("a status of four digits", "HTTP/1.1 2000 OK"),
        bad("a status of letters", "HTTP/1.1 abc OK"),
        bad("a status with a sign", "HTTP/1.1 +20 OK"),
        bad("a status below 100", "HTTP/1.1 099 OK"),
        bad("a status of zero", "HTTP/1.1 000 OK"),
        bad("two spaces before the status", "HTTP/1.1  200 OK"),
        bad("a tab before the status", "HTTP/1.1\t200 OK"),
        bad("a tab after the status", "HTTP/1.1 200\tOK"),
        bad("a space before the version", " HTTP/1.1 200 OK"),
        bad("version 2.0", "HTTP/2.0 200 OK"),
        bad("version 0.9", "HTTP/0.9 200 OK"),
        bad("a version in lower case", "http/1.1 200 OK"),
        bad("a version with two digits", "HTTP/1.10 200 OK"),
        bad("another protocol", "ICY 200 OK"),
        bad("a request line", "GET / HTTP/1.1"),
        bad("a CR in the reason", "HTTP/1.1 200 O\rK"),
        bad("a NUL in the reason", "HTTP/1.1 200 O\0K"),
        bad("an escape in the reason", "HTTP/1.1 200 O\x1bK"),
        bad_answer("a CR ends the status line", "9112 2.2 MUST", {
            "HTTP/1.1 200 OK\rContent-Length: 2\r\n\r\nok"
        }),
        bad_answer("garbage", "9112 4", "\x01\x02\x03\r\n\r\n"),
        bad_answer("an HTTP/0.9 response", "9112 2.3", "<html>\r\n\r\n</html>"),
        bad_answer("HTTP/2 frames", "9113 3.4", b"\0\0\0\x04\0\0\0\0\0\r\n\r\n".to_vec()),
        bad_answer("a head that is cut", "9112 8", "HTTP/1.1 200 OK\r\nContent-Le")
            .with_script(&[Play::Send(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec()), Play::Close]),
        bad_answer("a head that is reset", "9112 8", "").with_script(&[
            Play::Send(b"HTTP/1.1 200 OK\r\n".to_vec()),
            Play::WaitRead,
            Play::Reset,
        ]),
        bad_answer("a head too large", "9110 5.4", {
            format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(200_000))
        }),
        bad_answer("too many fields", "9110 5.4", {
            format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(3000))
        }),
    ]
}

fn statuses() -> Vec<Vector> {
    let status = |name, status: u16, line: &str, reason: Option<&'static str>| {
        let checks: Vec<Check> = reason.map(Check::Start).into_iter().collect();
        answer(name, "9110 15", format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n"))
            .statuses(&[status])
            .client(&checks)
    };
    vec![
        status("an unknown 2xx", 299, "299 Odd", None),
        status("an unknown 4xx", 499, "499 Odd", None),
        status("an unknown 5xx", 599, "599 Odd", None),
        status("a reason of its own", 200, "200 Fine by me", None),
        status("an empty reason", 200, "200 ", None),
        status("no reason and no space", 200, "200", None),
        status("a reason beyond ASCII", 200, "200 \u{e9}", None),
        status("201", 201, "201 Created", None),
        status("206", 206, "206 Partial Content", None),
        status("301", 301, "301 Moved Permanently", None),
        status("401", 401, "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"a\"", None),
        status("405", 405, "405 Method Not Allowed\r\nAllow: GET", None),
        status("407", 407, "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic", None),
        status("416", 416, "416 Range Not Satisfiable\r\nContent-Range: bytes */5", None),
        status("418", 418, "418 I'm a teapot", None),
        status("429", 429, "429 Too Many Requests\r\nRetry-After: 5", None),
        status("500", 500, "500 Internal Server Error", None),
        status("503", 503, "503 Service Unavailable", None),
        answer("an HTTP/1.0 response", "9110 2.5 MUST", {
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"
        })
        .client(&[Check::Start("HTTP/1.1 200 OK"), Check::Has("via", "1.0 tidegate")]),
        answer(
            "a later minor version",
            "9110 2.5",
            "HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok",
        )
        .client(&[Check::Start("HTTP/1.1 200 OK")]),
    ]
}

fn bad_fields() -> Vec<Vector> {
    let bad = |name, rule, lines: &str| bad_answer(name, rule, ok(lines));
    vec![
        bad("a fold", "9112 5.2 MUST", "X: a\r\n b\r\n"),
        bad("a fold with a tab", "9112 5.2 MUST", "X: a\r\n\tb\r\n"),
        bad("a fold at the start", "9112 2.2", " X: a\r\n"),
        bad("a space before the colon", "9112 5.1 MUST", "X : a\r\n"),
        bad("a space before Content-Length's colon", "9112 5.1 MUST", "Content-Length : 9\r\n"),
        bad("a space before Transfer-Encoding's colon", "9112 5.1 MUST", {
            "Transfer-Encoding : chunked\r\n"
        }),
        bad("no colon", "9112 5", "nothing\r\n"),
        bad("no name", "9112 5", ": x\r\n"),
        bad("a bad name", "9110 5.1", "X(Y): z\r\n"),
        bad("a space in the name", "9110 5.1", "X Y: z\r\n"),
        bad("a NUL in the name", "9110 5.1", "X\0: z\r\n"),
        bad("a NUL in the value", "9110 5.5 MUST", "X: a\0b\r\n"),
        bad("a CR in the value", "9110 5.5 MUST", "X: a\rb\r\n"),
        bad("a CR splits the response", "9110 5.5 MUST", "X: a\rSet-Cookie: e=1\r\n"),
        bad("an escape in the value", "9110 5.5", "X: \x1b[31m\r\n"),
        bad("a DEL in the value", "9110 5.5", "X: \x7f\r\n"),
    ]
}

fn good_fields() -> Vec<Vector> {
    let good =
        |name, rule, lines: &str, checks: &[Check]| answer(name, rule, ok(lines)).client(checks);
    vec![
        good("a date is added", "9110 6.6.1 MUST", "", &[Check::Count("date", 1)]),
        good(
            "a date is kept",
            "9110 6.6.1",
            "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            &[Check::Has("date", "Sun, 06 Nov 1994 08:49:37 GMT")],
        ),
        good(
            "the server's name is kept",
            "9110 10.2.4",
            "Server: a/1 (b)\r\n",
            &[Check::Has("server", "a/1 (b)")],
        ),
        good("no server's name is added", "9110 10.2.4", "", &[Check::Lacks("server")]),
        good("Via is added", "9110 7.6.3 MUST", "", &[Check::Has("via", "1.1 tidegate")]),
        good(
            "Via is extended",
            "9110 7.6.3 MUST",
            "Via: 1.1 a\r\nVia: 1.0 b\r\n",
            &[Check::Joined("via", "1.1 a, 1.0 b, 1.1 tidegate")],
        ),
        good(
            "cookies stay apart",
            "9110 5.3",
            "Set-Cookie: a=1\r\nX: y\r\nSet-Cookie: b=2, c\r\n",
            &[Check::Count("set-cookie", 2), Check::Joined("set-cookie", "a=1, b=2, c")],
        ),
        good("an unknown field", "9110 5.1 MUST", "X-Odd: y\r\n", &[Check::Has("x-odd", "y")]),
        good(
            "lines keep their order",
            "9110 5.3 MUST NOT",
            "X: 1\r\nY: a\r\nX: 2\r\n",
            &[Check::Joined("x", "1, 2")],
        ),
        good("an empty value", "9110 5.5", "X:\r\n", &[Check::Has("x", "")]),
        good("bytes beyond ASCII", "9110 5.5", "X: \u{e9}\r\n", &[Check::Has("x", "\u{c3}\u{a9}")]),
        good("white space around the value", "9112 5.1", "X: \t y \t\r\n", &[Check::Has("x", "y")]),
        good(
            "a challenge is forwarded",
            "9110 11.6.1",
            "WWW-Authenticate: Basic realm=\"a\", B\r\n",
            &[Check::Has("www-authenticate", "Basic realm=\"a\", B")],
        ),
        good(
            "Location is unchanged",
            "9110 10.2.2",
            "Location: http://o/a#b\r\n",
            &[Check::Has("location", "http://o/a#b")],
        ),
        good(
            "content fields are unchanged",
            "9110 7.7 MUST NOT",
            {
                "Content-Type: a/b; c=d\r\nContent-Encoding: gzip\r\nContent-Range: bytes 0-1/2\r\n\
             ETag: W/\"e\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            },
            &[
                Check::Has("content-type", "a/b; c=d"),
                Check::Has("content-encoding", "gzip"),
                Check::Has("content-range", "bytes 0-1/2"),
                Check::Has("etag", "W/\"e\""),
            ],
        ),
        good(
            "cache fields are unchanged",
            "9111 5.2 MUST",
            "Cache-Control: no-transform, max-age=1\r\nAge: 5\r\nVary: *\r\nExpires: 0\r\n",
            &[
                Check::Has("cache-control", "no-transform, max-age=1"),
                Check::Has("age", "5"),
                Check::Has("vary", "*"),
                Check::Has("expires", "0"),
            ],
        ),
        good(
            "Allow is unchanged",
            "9110 10.2.1 MUST NOT",
            "Allow: GET, FOO\r\n",
            &[Check::Has("allow", "GET, FOO")],
        ),
    ]
}

fn hop_by_hop() -> Vec<Vector> {
    let gone = |name, lines: &str, checks: &[Check]| {
        answer(name, "9110 7.6.1 MUST", ok(lines)).client(checks)
    };
    vec![
        gone(
            "a field that Connection names",
            "Connection: X-Hop\r\nX-Hop: y\r\nX: z\r\n",
            &[Check::Lacks("x-hop"), Check::Lacks("connection"), Check::Has("x", "z")],
        ),
        gone(
            "a name in another case",
            "CONNECTION: x-hop\r\nX-HOP: y\r\n",
            &[Check::Lacks("x-hop")],
        ),
        gone(
            "two Connection lines",
            "Connection: a\r\nConnection: b\r\nA: 1\r\nB: 2\r\n",
            &[Check::Lacks("a"), Check::Lacks("b")],
        ),
        gone(
            "Connection: keep-alive",
            "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n",
            &[Check::Lacks("connection"), Check::Lacks("keep-alive")],
        ),
        gone("Upgrade", "Upgrade: h2c\r\nConnection: Upgrade\r\n", &[Check::Lacks("upgrade")]),
        gone(
            "Proxy-Connection",
            "Proxy-Connection: close\r\n",
            &[Check::Lacks("proxy-connection")],
        ),
        gone("TE", "TE: trailers\r\n", &[Check::Lacks("te")]),
        gone(
            "Connection cannot remove Content-Length",
            "Connection: Content-Length\r\n",
            &[Check::Has("content-length", "2"), Check::Body("ok")],
        ),
        gone(
            "Connection names Date",
            "Connection: Date\r\nDate: x\r\n",
            &[Check::Count("date", 1)],
        ),
        accept("the client requested close", "9112 9.6 MUST", {
            "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        })
        .plays(&[Play::Send(ok("Connection: keep-alive\r\n").into_bytes())])
        .closes()
        .client(&[Check::Has("connection", "close")]),
    ]
}
