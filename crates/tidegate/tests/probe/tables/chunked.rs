//! Chunks of a request: sizes, extensions, ends and trailers, RFC 9112 section 7.1.

use super::{SMUGGLED, post};
use crate::message::Framing;
use crate::vector::{Check, End, Vector, accept, refuse};

pub fn vectors() -> Vec<Vector> {
    let mut all = bad_sizes();
    all.extend(bad_extensions());
    all.extend(bad_ends());
    all.extend(bad_trailers());
    all.extend(good());
    all
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

/// A body with a fault. A local response may already have been sent when the fault is seen; then the
/// connection ends.
fn bad(name: &'static str, rule: &'static str, body: &str) -> Vector {
    refuse(name, rule, &[400, 413, 431], chunked(&format!("{body}{SMUGGLED}"))).broken_body()
}

fn bad_sizes() -> Vec<Vector> {
    let size =
        |name, size: &str| bad(name, "9112 7.1 MUST", &format!("{size}\r\nabc\r\n0\r\n\r\n"));
    vec![
        size("an empty size", ""),
        size("a size with 0x", "0x3"),
        size("a size with 0X", "0X3"),
        size("a size with a plus", "+3"),
        size("a size with a minus", "-3"),
        size("a size with an underscore", "0_3"),
        size("a size of other letters", "g"),
        size("a size in quotes", "\"3\""),
        size("a size with a point", "3.0"),
        size("a size with a space before", " 3"),
        size("a size with a tab before", "\t3"),
        size("a size with a space behind", "3 "),
        size("a size with a tab behind", "3\t"),
        size("a size with a space inside", "0 3"),
        size("a size with a comma", "3,3"),
        size("a size with an h", "3h"),
        size("a size with a NUL before", "\x003"),
        size("a size with a NUL behind", "3\0"),
        size("a size with a vertical tab", "3\x0b"),
        size("a size with a bare CR behind", "3\r"),
        size("a size with bytes beyond ASCII", "\u{ff13}"),
        size("a size of 64 bits", "ffffffffffffffff"),
        size("a size beyond 64 bits", "10000000000000003"),
        size("a size that wraps to 3 in 32 bits", "fffffffff00000003"),
        size("a size of many digits", &"0".repeat(400)),
        size("a size of 63 bits", "8000000000000000"),
        size("a decimal that is not a size", "3x"),
    ]
}

fn bad_extensions() -> Vec<Vector> {
    let extension =
        |name, text: &str| bad(name, "9112 7.1.1", &format!("3{text}\r\nabc\r\n0\r\n\r\n"));
    vec![
        extension("an empty extension", ";"),
        extension("two empty extensions", ";;"),
        extension("an extension without a name", ";=b"),
        extension("an extension with a NUL", ";a\0"),
        extension("an extension with a bare CR", ";a\rb"),
        extension("an extension with a bare LF", ";a\nb"),
        extension("a quoted extension with an LF", ";a=\"\n\""),
        extension("a quoted extension with a CRLF", ";a=\"\r\nabc\r\n0\r\n\r\n\""),
        extension("an open quote", ";a=\"b"),
        extension("a word without a semicolon", " a"),
        extension("a comma in place of a semicolon", ",a=b"),
        extension("an extension beyond the limit", &format!(";a={}", "b".repeat(5000))),
        bad("an LF ends the size", "9112 7.1", "3\nabc\r\n0\r\n\r\n"),
        bad("an LF ends an extension", "9112 7.1.1", "3;a\nabc\r\n0\r\n\r\n"),
        bad("an LF in an extension hides chunks", "9112 7.1.1", "3;\nabc\r\n0\r\n\r\n"),
        bad("a CR ends the size", "9112 7.1", "3\rabc\r\n0\r\n\r\n"),
    ]
}

fn bad_ends() -> Vec<Vector> {
    vec![
        bad("no CRLF after data", "9112 7.1", "3\r\nabc0\r\n\r\n"),
        bad("an LF after data", "9112 7.1", "3\r\nabc\n0\r\n\r\n"),
        bad("a CR after data", "9112 7.1", "3\r\nabc\r0\r\n\r\n"),
        bad("two bytes after data", "9112 7.1", "3\r\nabcXX0\r\n\r\n"),
        bad("a space after data", "9112 7.1", "3\r\nabc \r\n0\r\n\r\n"),
        bad("an empty line after data", "9112 7.1", "3\r\nabc\r\n\r\n0\r\n\r\n"),
        bad("data longer than its size", "9112 7.1", "2\r\nabc\r\n0\r\n\r\n"),
        bad("data shorter than its size", "9112 7.1", "4\r\nabc\r\n0\r\n\r\n"),
        bad("an LF ends the last chunk", "9112 7.1", "3\r\nabc\r\n0\n\r\n"),
        bad("LFs end the body", "9112 7.1", "3\r\nabc\r\n0\n\n"),
        bad("an LF after the last chunk", "9112 7.1", "3\r\nabc\r\n0\r\n\n"),
        bad("CR and another byte after the last chunk", "9112 7.1", "3\r\nabc\r\n0\r\n\rX"),
        bad("a fold after the last chunk", "9112 7.1.2", "0\r\n X: y\r\n\r\n"),
    ]
}

fn bad_trailers() -> Vec<Vector> {
    let trailer =
        |name, line: &str| bad(name, "9112 7.1.2", &format!("3\r\nabc\r\n0\r\n{line}\r\n\r\n"));
    vec![
        trailer("a trailer without a colon", "nothing"),
        trailer("a trailer without a name", ": y"),
        trailer("a trailer with a space before the colon", "X : y"),
        trailer("a folded trailer", "X: y\r\n z"),
        trailer("a trailer with a NUL", "X: \0"),
        trailer("a trailer with a bare CR", "X: a\rb"),
        trailer("a trailer with a bare LF", "X: a\nb"),
        trailer("a trailer with a bad name", "X(: y"),
        trailer("a trailer beyond the limit", &format!("X: {}", "y".repeat(20_000))),
        trailer("a thousand trailers", &vec!["X: y"; 1000].join("\r\n")),
        trailer("a request line as trailer", "GET /smuggled HTTP/1.1"),
    ]
}

fn good() -> Vec<Vector> {
    let good =
        |name, rule, body: &str, checks: &[Check]| accept(name, rule, chunked(body)).origin(checks);
    let abc = [Check::Body("abc"), Check::Framed(Framing::Chunked), Check::Trailers("")];
    vec![
        good("one chunk", "9112 7.1 MUST", "3\r\nabc\r\n0\r\n\r\n", &abc),
        good("three chunks", "9112 7.1 MUST", "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n", &abc),
        good("no data", "9112 7.1 MUST", "0\r\n\r\n", &[Check::Body("")]),
        good("leading zeros", "9112 7.1", "0003\r\nabc\r\n000\r\n\r\n", &abc),
        good(
            "hex in lower case",
            "9112 7.1",
            "a\r\n0123456789\r\n0\r\n\r\n",
            &[Check::Body("0123456789")],
        ),
        good(
            "hex in upper case",
            "9112 7.1",
            "A\r\n0123456789\r\n0\r\n\r\n",
            &[Check::Body("0123456789")],
        ),
        good("an extension", "9112 7.1.1 MUST", "3;a=b\r\nabc\r\n0\r\n\r\n", &abc),
        good("an extension without a value", "9112 7.1.1 MUST", "3;a\r\nabc\r\n0;b\r\n\r\n", &abc),
        good("a quoted extension", "9112 7.1.1 MUST", "3;a=\"b;\\\"c\"\r\nabc\r\n0\r\n\r\n", &abc),
        good("two extensions", "9112 7.1.1 MUST", "3;a=b;c=d\r\nabc\r\n0\r\n\r\n", &abc),
        good("white space around extensions", "9112 7.1.1", "3 ; a = b\r\nabc\r\n0\r\n\r\n", &abc),
        good("data of CRLFs", "9112 7.1", "4\r\n\r\n\r\n\r\n0\r\n\r\n", &[Check::Body("\r\n\r\n")]),
        good(
            "data that looks like an end",
            "9112 7.1",
            "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n",
            &[Check::Body("\r\n0\r\n\r\n")],
        ),
        good(
            "a trailer",
            "9110 6.5 MAY",
            "3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n",
            &[Check::Body("abc")],
        ),
        good(
            "forbidden trailers are dropped",
            "9110 6.5.1 MUST NOT",
            {
                "3\r\nabc\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\nHost: evil\r\n\
             Authorization: a\r\nCookie: b\r\nX-Forwarded-For: 9.9.9.9\r\nConnection: close\r\n\r\n"
            },
            &[Check::Body("abc"), Check::Trailers(""), Check::Has("host", "h")],
        ),
        accept("a broken chunk after a good one", "9112 7.1", {
            format!("{}0x1\r\na\r\n", chunked("3\r\nabc\r\n"))
        })
        .broken_body()
        .ends(End::Any)
        .seen(0)
        .one_of(&[400, 200]),
    ]
}
