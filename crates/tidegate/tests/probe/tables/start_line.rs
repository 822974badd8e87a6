//! Request lines, versions, and bytes before the request line: RFC 9112 sections 2.2, 2.3 and 3.

use super::SMUGGLED;
use crate::vector::{Check, Vector, accept, refuse};

pub fn vectors() -> Vec<Vector> {
    let mut all = versions();
    all.extend(line_syntax());
    all.extend(methods());
    all.extend(before_the_line());
    all
}

fn line(name: &'static str, rule: &'static str, statuses: &[u16], line: &str) -> Vector {
    refuse(name, rule, statuses, format!("{line}\r\nHost: h\r\n\r\n"))
}

fn versions() -> Vec<Vector> {
    vec![
        line("version 2.0", "9110 15.6.6 SHOULD", &[505, 400], "GET / HTTP/2.0"),
        line("version 0.9 spelled out", "9112 2.3 MUST", &[505, 400], "GET / HTTP/0.9"),
        line("version 3.0", "9112 2.3 MUST", &[505, 400], "GET / HTTP/3.0"),
        line("version 9.9", "9112 2.3 MUST", &[505, 400], "GET / HTTP/9.9"),
        line("version with two digits minor", "9112 2.3 MUST", &[400], "GET / HTTP/1.10"),
        line("version with two digits major", "9112 2.3 MUST", &[400, 505], "GET / HTTP/11.1"),
        line("version with a leading zero", "9112 2.3 MUST", &[400, 505], "GET / HTTP/01.1"),
        line("version without minor", "9112 2.3 MUST", &[400], "GET / HTTP/1"),
        line("version with an empty minor", "9112 2.3 MUST", &[400], "GET / HTTP/1."),
        line("version with a comma", "9112 2.3 MUST", &[400], "GET / HTTP/1,1"),
        line("version in lower case", "9112 2.3 MUST", &[400], "GET / http/1.1"),
        line("version in mixed case", "9112 2.3 MUST", &[400], "GET / Http/1.1"),
        line("version of another protocol", "9112 2.3 MUST", &[400], "GET / HTTPS/1.1"),
        line("version of ICY", "9112 2.3 MUST", &[400], "GET / ICY/1.1"),
        line("version with a space inside", "9112 2.3 MUST", &[400], "GET / HTTP/ 1.1"),
        line("version with a letter", "9112 2.3 MUST", &[400], "GET / HTTP/1.x"),
        line("version with a sign", "9112 2.3 MUST", &[400], "GET / HTTP/+1.1"),
        line("version minus one", "9112 2.3 MUST", &[400], "GET / HTTP/-1.1"),
        line("version with a third number", "9112 2.3 MUST", &[400], "GET / HTTP/1.1.1"),
        line("version with a NUL", "9112 3 SHOULD", &[400], "GET / HTTP/1.1\0"),
        accept("a later minor version", "9110 2.5 SHOULD", "GET / HTTP/1.2\r\nHost: h\r\n\r\n")
            .origin(&[Check::Start("GET / HTTP/1.1")]),
        accept("minor version 9", "9110 2.5 SHOULD", "GET / HTTP/1.9\r\nHost: h\r\n\r\n"),
        accept("an HTTP/1.0 request", "9112 2.3 MUST", "GET / HTTP/1.0\r\nHost: h\r\n\r\n")
            .closes()
            .origin(&[Check::Start("GET / HTTP/1.1"), Check::Has("via", "1.0 tidegate")]),
        accept("HTTP/1.0 without Host", "9112 3.2 MAY", "GET / HTTP/1.0\r\n\r\n").closes(),
        accept(
            "Tidegate states its own version",
            "9110 2.5 MUST",
            "GET /v HTTP/1.1\r\nHost: h\r\n\r\n",
        )
        .origin(&[Check::Start("GET /v HTTP/1.1"), Check::Has("via", "1.1 tidegate")])
        .client(&[Check::Has("via", "1.1 tidegate")]),
    ]
}

fn line_syntax() -> Vec<Vector> {
    vec![
        refuse("HTTP/0.9", "9112 2.3 MUST", &[400, 505], "GET /\r\n").half_closed(),
        refuse("HTTP/0.9 with a field", "9112 3 SHOULD", &[400, 505], "GET /\r\nHost: h\r\n\r\n"),
        line("two spaces after the method", "9112 3 SHOULD", &[400], "GET  / HTTP/1.1"),
        line("two spaces after the target", "9112 3 SHOULD", &[400], "GET /  HTTP/1.1"),
        line("a tab after the method", "9112 3 SHOULD", &[400], "GET\t/ HTTP/1.1"),
        line("a tab after the target", "9112 3 SHOULD", &[400], "GET /\tHTTP/1.1"),
        line("a vertical tab after the method", "9112 3 SHOULD", &[400], "GET\x0b/ HTTP/1.1"),
        line("a form feed after the target", "9112 3 SHOULD", &[400], "GET /\x0cHTTP/1.1"),
        line("a space at the end", "9112 3 SHOULD", &[400], "GET / HTTP/1.1 "),
        line("a tab at the end", "9112 3 SHOULD", &[400], "GET / HTTP/1.1\t"),
        line("a space at the start", "9112 3 SHOULD", &[400], " GET / HTTP/1.1"),
        line("a tab at the start", "9112 3 SHOULD", &[400], "\tGET / HTTP/1.1"),
        line("an extra word", "9112 3 SHOULD", &[400], "GET / / HTTP/1.1"),
        line("a space in the target", "9112 3.2 SHOULD", &[400], "GET /a b HTTP/1.1"),
        line("no target", "9112 3 SHOULD", &[400], "GET HTTP/1.1"),
        line("an empty target", "9112 3 SHOULD", &[400], "GET  HTTP/1.1"),
        line("no method", "9112 3 SHOULD", &[400], "/ HTTP/1.1"),
        line("the method alone", "9112 3 SHOULD", &[400], "GET"),
        line("words in the wrong order", "9112 3 SHOULD", &[400, 505], "HTTP/1.1 GET /"),
        line("a status line", "9112 3 SHOULD", &[400, 505], "HTTP/1.1 200 OK"),
        line("a CR in the line", "9112 2.2 MUST", &[400], "GET /\r HTTP/1.1"),
        line("a CR in place of a space", "9112 2.2 MUST", &[400], "GET\r/ HTTP/1.1"),
        line("a CR before the CRLF", "9112 2.2 MUST", &[400], "GET / HTTP/1.1\r"),
        line("a NUL in the method", "9112 3 SHOULD", &[400], "G\0T / HTTP/1.1"),
        line("a DEL in the target", "9112 3 SHOULD", &[400], "GET /\x7f HTTP/1.1"),
        line("an escape in the target", "9112 3 SHOULD", &[400], "GET /\x1b HTTP/1.1"),
        refuse("bare LF ends the line", "9112 2.2 MAY", &[400], "GET / HTTP/1.1\nHost: h\r\n\r\n"),
        refuse("bare LF on every line", "9112 2.2 MAY", &[400], "GET / HTTP/1.1\nHost: h\n\n"),
        refuse("bare CR ends the line", "9112 2.2 MUST", &[400], "GET / HTTP/1.1\rHost: h\r\n\r\n"),
        refuse("bare CR on every line", "9112 2.2 MUST", &[400], "GET / HTTP/1.1\rHost: h\r\r"),
        refuse("LF before CR", "9112 2.2 MUST", &[400], "GET / HTTP/1.1\n\rHost: h\r\n\r\n"),
        refuse("garbage", "9112 2.2 MUST", &[400, 505], "\x01\x02\x03\x04 garbage\r\n\r\n"),
        refuse(
            "a TLS hello",
            "9112 2.2 MUST",
            &[400],
            b"\x16\x03\x01\x02\x00\x01\x00\x01".to_vec(),
        ),
        refuse("bytes beyond ASCII", "9112 2.2 MUST", &[400], b"\xff\xfe\xfd\r\n\r\n".to_vec()),
        refuse(
            "HTTP/2 with prior knowledge",
            "9113 3.4",
            &[400, 505],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
        ),
        refuse(
            "a response as request",
            "9112 2.2 MUST",
            &[400, 505],
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ),
        refuse("a space before the first field", "9112 2.2 MUST", &[400], {
            "GET / HTTP/1.1\r\n Host: h\r\n\r\n"
        }),
        refuse("white space lines before the fields", "9112 2.2 MUST", &[400], {
            "GET / HTTP/1.1\r\n \r\nHost: h\r\n\r\n"
        }),
        refuse("a tab before the first field", "9112 2.2 MUST", &[400], {
            "GET / HTTP/1.1\r\n\tX: y\r\nHost: h\r\n\r\n"
        }),
        refuse("a line hidden behind white space", "9112 2.2 MUST", &[400], {
            format!("GET / HTTP/1.1\r\n {SMUGGLED}\r\nHost: h\r\n\r\n")
        }),
    ]
}

fn methods() -> Vec<Vector> {
    let with = |method: &str| format!("{method} /m HTTP/1.1\r\nHost: h\r\n\r\n");
    vec![
        accept("an unknown method", "9110 9.1", with("BREW"))
            .origin(&[Check::Start("BREW /m HTTP/1.1")]),
        accept("a WebDAV method", "9110 16.1", with("PROPFIND"))
            .origin(&[Check::Start("PROPFIND /m HTTP/1.1")]),
        accept("a method of odd token characters", "9110 9.1", with("!#$%&'*+-.^_`|~"))
            .origin(&[Check::Start("!#$%&'*+-.^_`|~ /m HTTP/1.1")]),
        accept("methods are case-sensitive", "9110 9.1 MUST", with("get"))
            .origin(&[Check::Start("get /m HTTP/1.1")]),
        accept("head is not HEAD", "9110 9.1 MUST", with("head")).origin(&[]),
        accept("DELETE", "9110 9.3.5", with("DELETE"))
            .origin(&[Check::Start("DELETE /m HTTP/1.1")]),
        accept("PATCH", "5789", with("PATCH")).origin(&[Check::Start("PATCH /m HTTP/1.1")]),
        accept("PUT", "9110 9.3.4", with("PUT")).origin(&[Check::Start("PUT /m HTTP/1.1")]),
        accept("HEAD", "9110 9.3.2 MUST", with("HEAD"))
            .client(&[Check::Body(""), Check::Count("content-length", 1)]),
        accept("TRACE is forwarded", "9110 9.3.8", with("TRACE"))
            .origin(&[Check::Start("TRACE /m HTTP/1.1")]),
        line("a method with a colon", "9110 9.1", &[400, 501], "GE:T / HTTP/1.1"),
        line("a method with a brace", "9110 9.1", &[400, 501], "GE{T / HTTP/1.1"),
        line("a method in quotes", "9110 9.1", &[400, 501], "\"GET\" / HTTP/1.1"),
        line("a method with a slash", "9110 9.1", &[400, 501], "G/T / HTTP/1.1"),
        line("a method beyond ASCII", "9110 9.1", &[400, 501], "G\u{cb}T / HTTP/1.1"),
        line("CONNECT", "9110 9.3.6", &[501, 405, 400, 403], "CONNECT h:443 HTTP/1.1"),
        line("CONNECT without a port", "9110 9.3.6 MUST", &[400], "CONNECT h HTTP/1.1"),
        line("CONNECT with an empty port", "9110 9.3.6 MUST", &[400], "CONNECT h: HTTP/1.1"),
        line("CONNECT with a bad port", "9110 9.3.6 MUST", &[400], "CONNECT h:99999 HTTP/1.1"),
        line("CONNECT in origin form", "9112 3.2.3 MUST", &[400], "CONNECT / HTTP/1.1"),
        line("CONNECT in absolute form", "9112 3.2.3", &[400], "CONNECT http://h:1/ HTTP/1.1"),
        refuse("bytes after CONNECT", "9110 9.3.6", &[501, 405, 400], {
            format!("CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n{SMUGGLED}")
        }),
    ]
}

fn before_the_line() -> Vec<Vector> {
    let plain = "GET /b HTTP/1.1\r\nHost: h\r\n\r\n";
    vec![
        accept("an empty line before", "9112 2.2 SHOULD", format!("\r\n{plain}")),
        accept("empty lines before", "9112 2.2 SHOULD", format!("\r\n\r\n\r\n{plain}")),
        refuse("nine empty lines before", "9112 2.2", &[400], {
            format!("{}{plain}", "\r\n".repeat(9))
        }),
        refuse("an LF before", "9112 2.2", &[400], format!("\n{plain}")),
        refuse("a CR before", "9112 2.2 MUST", &[400], format!("\r{plain}")),
        refuse("a NUL before", "9112 2.2", &[400], format!("\0{plain}")),
        refuse("a byte order mark before", "9112 2.2", &[400], format!("\u{feff}{plain}")),
        refuse("spaces on a line before", "9112 2.2", &[400], format!(" \r\n{plain}")),
        accept("an empty line between requests", "9112 2.2 SHOULD", format!("{plain}\r\n{plain}"))
            .statuses(&[200, 200])
            .seen(2),
        accept(
            "an empty line after a body",
            "9112 2.2 SHOULD",
            format!("POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab\r\n{plain}"),
        )
        .statuses(&[200, 200])
        .seen(2),
    ]
}
