//! Bodies of the origin's responses: RFC 9112 sections 6.3, 7 and 8, RFC 9110 sections 8.6 and 15.

use crate::message::Framing;
use crate::origin::Play;
use crate::vector::{Check, End, Vector, accept, answer, answer_and_end, bad_answer};

pub fn vectors() -> Vec<Vector> {
    let mut all = lengths();
    all.extend(bad_framing());
    all.extend(without_body());
    all.extend(chunks());
    all.extend(cut());
    all.extend(old_clients());
    all.extend(early());
    all
}

fn send(text: &str) -> Play {
    Play::Send(text.as_bytes().to_vec())
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

fn lengths() -> Vec<Vector> {
    vec![
        answer("a length", "9112 6.3", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
            .client(&[Check::Has("content-length", "3"), Check::Body("abc")]),
        answer("leading zeros", "9110 8.6", "HTTP/1.1 200 OK\r\nContent-Length: 03\r\n\r\nabc")
            .client(&[Check::Has("content-length", "3")]),
        answer("no content", "9112 6.3", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .client(&[Check::Has("content-length", "0")]),
        answer_and_end("a body until the end", "9112 6.3", "HTTP/1.1 200 OK\r\n\r\nabc")
            .client(&[Check::Body("abc"), Check::Framed(Framing::Chunked)]),
        answer_and_end("an empty body until the end", "9112 6.3", "HTTP/1.1 200 OK\r\n\r\n")
            .client(&[Check::Body("")]),
        answer_and_end("HTTP/1.0 until the end", "9112 6.3", "HTTP/1.0 200 OK\r\n\r\nabc")
            .client(&[Check::Body("abc")]),
        answer_and_end("keep-alive until the end", "9112 6.3", {
            "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nabc"
        })
        .client(&[Check::Body("abc")]),
        answer_and_end("a response inside a body until the end", "9112 6.3", {
            "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        })
        .client(&[Check::BodyLength(38)]),
        answer("205", "9110 15.3.6", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n")
            .statuses(&[205])
            .client(&[Check::Body("")]),
    ]
}

fn bad_framing() -> Vec<Vector> {
    let bad = |name, lines: &str| {
        bad_answer(name, "9112 6.3 MUST", format!("HTTP/1.1 200 OK\r\n{lines}\r\nabc"))
    };
    vec![
        bad("different lengths", "Content-Length: 3\r\nContent-Length: 4\r\n"),
        bad("a list of different lengths", "Content-Length: 3, 4\r\n"),
        bad("a length with a plus", "Content-Length: +3\r\n"),
        bad("a negative length", "Content-Length: -3\r\n"),
        bad("a length in hex", "Content-Length: 0x3\r\n"),
        bad("an empty length", "Content-Length:\r\n"),
        bad("a length of words", "Content-Length: abc\r\n"),
        bad("a length beyond 64 bits", "Content-Length: 18446744073709551619\r\n"),
        bad("CL with chunked", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"),
        bad("chunked with CL", "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"),
        bad("chunked twice", "Transfer-Encoding: chunked, chunked\r\n"),
        bad("chunked on two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        bad("gzip alone", "Transfer-Encoding: gzip\r\n"),
        bad("gzip, chunked without a request for it", "Transfer-Encoding: gzip, chunked\r\n"),
        bad("chunked, gzip", "Transfer-Encoding: chunked, gzip\r\n"),
        bad("identity", "Transfer-Encoding: identity\r\n"),
        bad("an empty coding", "Transfer-Encoding:\r\n"),
        bad("xchunked", "Transfer-Encoding: xchunked\r\n"),
        bad("a vertical tab", "Transfer-Encoding: \x0bchunked\r\n"),
        bad_answer("chunked from HTTP/1.0", "9112 6.1 MUST", {
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        }),
    ]
}

fn without_body() -> Vec<Vector> {
    let head = |name, rule, lines: &str, checks: &[Check]| {
        accept(name, rule, "HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n")
            .plays(&[send(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n"))])
            .client(checks)
    };
    vec![
        head(
            "HEAD with a length",
            "9110 9.3.2 MUST",
            "Content-Length: 5\r\n",
            &[Check::Has("content-length", "5"), Check::Body("")],
        ),
        head("HEAD with chunked", "9112 6.1", "Transfer-Encoding: chunked\r\n", &[Check::Body("")]),
        head("HEAD with nothing", "9112 6.3", "", &[Check::Body("")]),
        head(
            "HEAD with content anyway",
            "9112 6.3 MUST",
            "Content-Length: 5\r\n\r\nabcde",
            &[Check::Body("")],
        ),
        accept("HEAD with a second response", "9112 9.2", "HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n")
            .plays(&[send(
                "HTTP/1.1 200 OK\r\nContent-Length: 38\r\n\r\n\
                 HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            )])
            .client(&[Check::Body("")]),
        answer("204", "9110 15.3.5", "HTTP/1.1 204 No Content\r\n\r\n").statuses(&[204]),
        answer("204 with a length", "9110 8.6 MUST NOT", {
            "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc"
        })
        .statuses(&[204]),
        answer("204 with chunked", "9112 6.1 MUST NOT", {
            "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        })
        .statuses(&[204]),
        answer("204 with a length of zero", "9110 8.6 MUST NOT", {
            "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
        })
        .statuses(&[204]),
        answer("304", "9110 15.4.5", "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n")
            .statuses(&[304])
            .client(&[Check::Has("etag", "\"a\"")]),
        answer("304 with a length", "9110 8.6", {
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"
        })
        .statuses(&[304]),
        answer("304 with content anyway", "9112 6.3 MUST", {
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nabcde"
        })
        .statuses(&[304]),
        answer("304 with chunked", "9112 6.1", {
            "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"
        })
        .statuses(&[304]),
    ]
}

fn chunks() -> Vec<Vector> {
    let good = |name, rule, body: &str, checks: &[Check]| {
        answer(name, rule, format!("{CHUNKED}{body}")).client(checks)
    };
    // The head may already have been relayed when the fault is seen; then the body must look incomplete.
    let bad =
        |name, body: &str| answer(name, "9112 7.1", format!("{CHUNKED}{body}")).ends(End::Cut);
    let abc = [Check::Body("abc"), Check::Framed(Framing::Chunked), Check::Trailers("")];
    vec![
        good("one chunk", "9112 7.1 MUST", "3\r\nabc\r\n0\r\n\r\n", &abc),
        good("three chunks", "9112 7.1 MUST", "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n", &abc),
        good("no data", "9112 7.1", "0\r\n\r\n", &[Check::Body("")]),
        good("leading zeros", "9112 7.1", "00003\r\nabc\r\n00\r\n\r\n", &abc),
        good("extensions", "9112 7.1.1 MUST", "3;a=b;c=\"d\"\r\nabc\r\n0;e\r\n\r\n", &abc),
        good("a trailer", "9110 6.5", "3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", &[Check::Body("abc")]),
        good(
            "forbidden trailers",
            "9110 6.5.1 MUST NOT",
            {
                "3\r\nabc\r\n0\r\nContent-Length: 9\r\nSet-Cookie: a=b\r\nConnection: close\r\n\
             Transfer-Encoding: x\r\nLocation: /\r\n\r\n"
            },
            &abc,
        ),
        bad("a size with 0x", "3\r\nabc\r\n0x3\r\nabc\r\n0\r\n\r\n"),
        bad("a size with a plus", "3\r\nabc\r\n+3\r\nabc\r\n0\r\n\r\n"),
        bad("a negative size", "3\r\nabc\r\n-1\r\nabc\r\n0\r\n\r\n"),
        bad("a size with a space", "3\r\nabc\r\n 3\r\nabc\r\n0\r\n\r\n"),
        bad("no size", "3\r\nabc\r\n\r\nabc\r\n0\r\n\r\n"),
        bad("a size beyond 64 bits", "3\r\nabc\r\n10000000000000003\r\nabc\r\n0\r\n\r\n"),
        bad("an LF ends a size", "3\r\nabc\r\n3\nabc\r\n0\r\n\r\n"),
        bad("an LF after data", "3\r\nabc\n0\r\n\r\n"),
        bad("data longer than its size", "3\r\nabcd\r\n0\r\n\r\n"),
        bad("a trailer without a colon", "3\r\nabc\r\n0\r\nnothing\r\n\r\n"),
        bad("a trailer with a NUL", "3\r\nabc\r\n0\r\nX: \0\r\n\r\n"),
        bad("a folded trailer", "3\r\nabc\r\n0\r\nX: y\r\n z\r\n\r\n"),
        bad("an endless extension", &format!("3\r\nabc\r\n3;a={}\r\n", "b".repeat(100_000))),
        bad("an endless trailer", &format!("3\r\nabc\r\n0\r\nX: {}\r\n\r\n", "y".repeat(100_000))),
        bad("endless trailers", &format!("3\r\nabc\r\n0\r\n{}\r\n", "X: y\r\n".repeat(10_000))),
    ]
}

fn cut() -> Vec<Vector> {
    let ends = |name, text: &str| answer_and_end(name, "9112 8 MUST", text).ends(End::Cut);
    vec![
        ends("a length that is not reached", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        ends("chunks without a last one", &format!("{CHUNKED}3\r\nabc\r\n")),
        ends("a chunk that is cut", &format!("{CHUNKED}9\r\nabc")),
        ends("a size that is cut", &format!("{CHUNKED}3\r\nabc\r\n1")),
        ends("trailers that are cut", &format!("{CHUNKED}3\r\nabc\r\n0\r\nX: y\r\n")),
        ends("a last chunk that is cut", &format!("{CHUNKED}3\r\nabc\r\n0\r\n")),
        answer("a reset in a body of a length", "9112 8 MUST", "")
            .with_script(&[
                send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
                Play::WaitRead,
                Play::Reset,
            ])
            .ends(End::Cut),
        answer("a reset in chunks", "9112 8 MUST", "")
            .with_script(&[send(&format!("{CHUNKED}3\r\nabc\r\n")), Play::WaitRead, Play::Reset])
            .ends(End::Cut),
        answer("a reset in a body until the end", "9112 8 MUST", "")
            .with_script(&[send("HTTP/1.1 200 OK\r\n\r\nabc"), Play::WaitRead, Play::Reset])
            .ends(End::Cut),
    ]
}

fn old_clients() -> Vec<Vector> {
    let old = |name, rule, text: &str| {
        accept(name, rule, "GET /x HTTP/1.0\r\nHost: h\r\n\r\n").plays(&[send(text)]).closes()
    };
    let kept = "GET /x HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n";
    vec![
        old("chunks for HTTP/1.0", "9112 6.1 MUST NOT", &format!("{CHUNKED}3\r\nabc\r\n0\r\n\r\n"))
            .client(&[
                Check::Lacks("transfer-encoding"),
                Check::Body("abc"),
                Check::Framed(Framing::UntilClose),
            ]),
        old("a length for HTTP/1.0", "9112 6.3", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
            .client(&[Check::Has("content-length", "3"), Check::Body("abc")]),
        accept("chunks for HTTP/1.0 with keep-alive", "9112 6.1 MUST NOT", kept)
            .plays(&[send(&format!("{CHUNKED}3\r\nabc\r\n0\r\n\r\n"))])
            .client(&[Check::Lacks("transfer-encoding"), Check::Body("abc")])
            .closes(),
        accept("a length for HTTP/1.0 with keep-alive", "9112 9.3", kept)
            .plays(&[send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")])
            .client(&[Check::Has("connection", "keep-alive"), Check::Body("abc")]),
    ]
}

fn early() -> Vec<Vector> {
    let long = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n";
    // Without `close` the server would take the rest of the body, and the connection would be kept.
    let refusal = "HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";
    vec![
        // While the server keeps its connection, the rest of the body is awaited for `timeouts.body`.
        accept("a response before the body is complete", "9112 9.3", format!("{long}abc"))
            .plays(&[Play::Early, send(refusal), Play::Hold])
            .statuses(&[413])
            .client(&[Check::Body("no")])
            .ends(End::Any),
        accept(
            "a response and an end before the body is complete",
            "9112 9.3",
            format!("{long}abc"),
        )
        .plays(&[Play::Early, send(refusal), Play::Close])
        .statuses(&[413])
        .client(&[Check::Body("no")])
        .closes(),
        accept("a response before the chunks are complete", "9112 9.3", {
            "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
        })
        .plays(&[Play::Early, send(refusal), Play::Hold])
        .statuses(&[413])
        .ends(End::Any),
    ]
}
