//! Field lines: RFC 9112 section 5, RFC 9110 sections 5.1 to 5.6.

use super::{SMUGGLED, get};
use crate::vector::{Check, Vector, accept, refuse};

pub fn vectors() -> Vec<Vector> {
    let mut all = bad_lines();
    all.extend(bad_values());
    all.extend(good_lines());
    all
}

fn bad_lines() -> Vec<Vector> {
    let bad = |name, rule, lines: &str| refuse(name, rule, &[400], get(lines));
    vec![
        bad("a space before the colon", "9112 5.1 MUST", "X : y\r\n"),
        bad("a tab before the colon", "9112 5.1 MUST", "X\t: y\r\n"),
        bad("a space before Content-Length's colon", "9112 5.1 MUST", "Content-Length : 5\r\n"),
        bad("a space before Transfer-Encoding's colon", "9112 5.1 MUST", {
            "Transfer-Encoding : chunked\r\n"
        }),
        bad("a vertical tab before the colon", "9112 5.1 MUST", "X\x0b: y\r\n"),
        bad("a NUL before the colon", "9110 5.1", "X\0: y\r\n"),
        bad("an obsolete fold with a space", "9112 5.2 MUST", "X: a\r\n b\r\n"),
        bad("an obsolete fold with a tab", "9112 5.2 MUST", "X: a\r\n\tb\r\n"),
        bad("an empty obsolete fold", "9112 5.2 MUST", "X: a\r\n \r\n"),
        bad("a fold hides a Content-Length", "9112 5.2 MUST", "X: a\r\n Content-Length: 5\r\n"),
        bad("a folded Transfer-Encoding", "9112 5.2 MUST", "Transfer-Encoding:\r\n chunked\r\n"),
        bad("a folded Content-Length", "9112 5.2 MUST", "Content-Length:\r\n 5\r\n"),
        bad("a line without a colon", "9112 5 MUST", "nothing\r\n"),
        bad("a line without a name", "9112 5 MUST", ": y\r\n"),
        bad("a line of a colon", "9112 5 MUST", ":\r\n"),
        bad("a space in the name", "9110 5.1 MUST", "X Y: z\r\n"),
        bad("a NUL in the name", "9110 5.1 MUST", "X\0Y: z\r\n"),
        bad("a CR in the name", "9112 2.2 MUST", "X\rY: z\r\n"),
        bad("parentheses in the name", "9110 5.1 MUST", "X(Y): z\r\n"),
        bad("a comma in the name", "9110 5.1 MUST", "X,Y: z\r\n"),
        bad("a semicolon in the name", "9110 5.1 MUST", "X;Y: z\r\n"),
        bad("a slash in the name", "9110 5.1 MUST", "X/Y: z\r\n"),
        bad("a quote in the name", "9110 5.1 MUST", "X\"Y: z\r\n"),
        bad("a bracket in the name", "9110 5.1 MUST", "X[Y]: z\r\n"),
        bad("a brace in the name", "9110 5.1 MUST", "X{Y}: z\r\n"),
        bad("an at sign in the name", "9110 5.1 MUST", "X@Y: z\r\n"),
        bad("an equals sign in the name", "9110 5.1 MUST", "X=Y: z\r\n"),
        bad("a backslash in the name", "9110 5.1 MUST", "X\\Y: z\r\n"),
        bad("angle brackets in the name", "9110 5.1 MUST", "<X>: z\r\n"),
        bad("a question mark in the name", "9110 5.1 MUST", "X?: z\r\n"),
        bad("a DEL in the name", "9110 5.1 MUST", "X\x7f: z\r\n"),
        bad("a name beyond ASCII", "9110 5.1 MUST", "X\u{e9}: z\r\n"),
        bad("a bare LF after a field", "9112 2.2 MAY", "X: y\nZ: a\r\n"),
        bad("a bare LF hides a request", "9112 2.2", "X: y\n\nGET /smuggled HTTP/1.1\r\n"),
        bad("a bare CR after a field", "9112 2.2 MUST", "X: y\rZ: a\r\n"),
        bad("CR CR LF after a field", "9112 2.2 MUST", "X: y\r\r\n"),
        refuse("an LF ends the head", "9112 2.2", &[400], {
            format!("GET /x HTTP/1.1\r\nHost: h\r\n\n{SMUGGLED}")
        }),
        refuse("CR and no LF ends the head", "9112 2.2 MUST", &[400], {
            format!("GET /x HTTP/1.1\r\nHost: h\r\n\r{SMUGGLED}")
        }),
    ]
}

fn bad_values() -> Vec<Vector> {
    let bad = |name, value: &str| refuse(name, "9110 5.5 MUST", &[400], get(value));
    vec![
        bad("a NUL in the value", "X: a\0b\r\n"),
        bad("a NUL at the value's end", "X: a\0\r\n"),
        bad("a CR in the value", "X: a\rb\r\n"),
        bad("an LF in the value", "X: a\nb\r\n"),
        bad("CR and space in the value", "X: a\r b\r\n"),
        bad("an escape in the value", "X: a\x1bb\r\n"),
        bad("a backspace in the value", "X: a\x08b\r\n"),
        bad("a vertical tab in the value", "X: a\x0bb\r\n"),
        bad("a form feed in the value", "X: a\x0cb\r\n"),
        bad("a DEL in the value", "X: a\x7fb\r\n"),
        bad("a control character in a cookie", "Cookie: a=\x01\r\n"),
        bad("a NUL in User-Agent", "User-Agent: \0\r\n"),
        bad("a CR hides a Transfer-Encoding", "X: a\rTransfer-Encoding: chunked\r\n"),
    ]
}

fn good_lines() -> Vec<Vector> {
    let good =
        |name, rule, lines: &str, checks: &[Check]| accept(name, rule, get(lines)).origin(checks);
    vec![
        good("an unknown field", "9110 5.1 MUST", "X-Odd: y\r\n", &[Check::Has("x-odd", "y")]),
        good("a field without a space", "9112 5.1", "X:y\r\n", &[Check::Has("x", "y")]),
        good("white space around the value", "9112 5.1", "X: \t y \t\r\n", &[Check::Has("x", "y")]),
        good("an empty value", "9110 5.5", "X:\r\n", &[Check::Has("x", "")]),
        good("a value of white space", "9110 5.5", "X: \t \r\n", &[Check::Has("x", "")]),
        good("a tab in the value", "9110 5.5", "X: a\tb\r\n", &[Check::Has("x", "a\tb")]),
        good("two spaces in the value", "9110 5.5", "X: a  b\r\n", &[Check::Has("x", "a  b")]),
        good("colons in the value", "9110 5.5", "X: a:b: c\r\n", &[Check::Has("x", "a:b: c")]),
        good("bytes beyond ASCII", "9110 5.5", "X: \u{e9}\r\n", &[Check::Has("x", "\u{c3}\u{a9}")]),
        good(
            "names of all token characters",
            "9110 5.6.2",
            "!#$%&'*+-.^_`|~0aZ: y\r\n",
            &[Check::Has("!#$%&'*+-.^_`|~0aZ", "y")],
        ),
        good("a name with an underscore", "9110 5.1 MUST", "X_Y: z\r\n", &[Check::Has("x_y", "z")]),
        good("a name of digits", "9110 5.1", "123: z\r\n", &[Check::Has("123", "z")]),
        good(
            "lines keep their order",
            "9110 5.3 MUST NOT",
            "X: 1\r\nX: 2\r\nX: 3\r\n",
            &[Check::Joined("x", "1, 2, 3")],
        ),
        good(
            "order across other lines",
            "9110 5.3 MUST NOT",
            "X: 1\r\nY: z\r\nX: 2\r\n",
            &[Check::Joined("x", "1, 2")],
        ),
        good("empty list members", "9110 5.6.1", "X: ,a,,b,\r\n", &[Check::Has("x", ",a,,b,")]),
        good(
            "quoted strings",
            "9110 5.6.4",
            "X: \"a,b;\\\"c\"\r\n",
            &[Check::Has("x", "\"a,b;\\\"c\"")],
        ),
        good(
            "a cookie",
            "6265 4.2",
            "Cookie: a=1; b=\"2\"; c=\r\n",
            &[Check::Has("cookie", "a=1; b=\"2\"; c=")],
        ),
        good(
            "an odd cookie",
            "6265 4.2",
            "Cookie: ;;=;a==b;\r\n",
            &[Check::Has("cookie", ";;=;a==b;")],
        ),
        good(
            "Authorization is forwarded",
            "9110 11.6.2 MUST NOT",
            "Authorization: Basic YTpi\r\n",
            &[Check::Has("authorization", "Basic YTpi")],
        ),
        good(
            "conditions are forwarded",
            "9110 13",
            "If-None-Match: \"a\", W/\"b\"\r\n",
            &[Check::Has("if-none-match", "\"a\", W/\"b\"")],
        ),
        good(
            "dates are forwarded",
            "9110 13.1.3",
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            &[Check::Has("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT")],
        ),
        good(
            "ranges are forwarded",
            "9110 14.2",
            "Range: bytes=0-1,5-\r\nIf-Range: \"e\"\r\n",
            &[Check::Has("range", "bytes=0-1,5-"), Check::Has("if-range", "\"e\"")],
        ),
        good(
            "content negotiation is forwarded",
            "9110 12",
            "Accept: a/b;q=0.5, */*\r\nAccept-Encoding: br\r\n",
            &[Check::Has("accept", "a/b;q=0.5, */*"), Check::Has("accept-encoding", "br")],
        ),
        good(
            "Cache-Control is forwarded",
            "9111 5.2 MUST",
            "Cache-Control: no-cache, x=\"y\"\r\n",
            &[Check::Has("cache-control", "no-cache, x=\"y\"")],
        ),
        good(
            "User-Agent and Referer are forwarded",
            "9110 10.1.5",
            "User-Agent: a/1 (b; c)\r\nReferer: /d\r\n",
            &[Check::Has("user-agent", "a/1 (b; c)"), Check::Has("referer", "/d")],
        ),
        good(
            "From and Origin are forwarded",
            "9110 10.1.2",
            "From: a@b\r\nOrigin: null\r\n",
            &[Check::Has("from", "a@b"), Check::Has("origin", "null")],
        ),
    ]
}
