//! Responses that Tidegate generates: RFC 9110 sections 6.6, 8.6, 9.3 and 15 for an origin server.

use super::{get, post};
use crate::message::Framing;
use crate::vector::{Check, End, Routes, Vector, accept, refuse};

pub fn vectors() -> Vec<Vector> {
    let at = |method: &str, target: &str, lines: &str| {
        format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
    };
    let local = |name, rule, send: String| accept(name, rule, send).to(Routes::Local).seen(0);
    vec![
        accept("a length, a date and content", "9110 8.6", get("")).to(Routes::Respond).client(&[
            Check::Body("answered here"),
            Check::Has("content-length", "13"),
            Check::Count("date", 1),
        ]),
        accept("HEAD states the length of GET", "9110 9.3.2", at("HEAD", "/", ""))
            .to(Routes::Respond)
            .client(&[Check::Body(""), Check::Has("content-length", "13")]),
        accept("a body is read and dropped", "9112 9.3", post("Content-Length: 3\r\n", "abc"))
            .to(Routes::Respond),
        accept("chunks are read and dropped", "9112 9.3", {
            post("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n")
        })
        .to(Routes::Respond),
        accept("a long body closes the connection", "9112 9.3 MUST", {
            post("Content-Length: 1000000\r\n", &"x".repeat(300_000))
        })
        .to(Routes::Respond)
        .closes(),
        local("OPTIONS *", "9110 9.3.7", at("OPTIONS", "*", ""))
            .client(&[Check::Has("content-length", "0")]),
        local("OPTIONS * with content", "9110 9.3.7", {
            "OPTIONS * HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc".to_owned()
        }),
        local("no route", "9110 15.5.5", at("GET", "/nowhere", "")).statuses(&[404]),
        local("no route for HEAD", "9110 9.3.2 MUST", at("HEAD", "/nowhere", ""))
            .statuses(&[404])
            .client(&[Check::Body("")]),
        local("204", "9110 15.3.5 MUST NOT", at("GET", "/empty", "")).statuses(&[204]),
        local("204 in HTTP/1.0", "9110 15.3.5", {
            "GET /empty HTTP/1.0\r\nHost: h\r\n\r\n".to_owned()
        })
        .statuses(&[204])
        .closes(),
        local("304", "9110 15.4.5 MUST NOT", at("GET", "/unmodified", "")).statuses(&[304]),
        local("HEAD matches a route for GET", "9110 9.3.2", at("HEAD", "/get", ""))
            .client(&[Check::Body("")]),
        local("another method does not match it", "9110 9.1", at("POST", "/get", ""))
            .one_of(&[404, 405]),
        local("a WebSocket route without Upgrade", "9110 15.5.22 MUST", at("GET", "/echo", ""))
            .statuses(&[426])
            .client(&[
                Check::Has("upgrade", "websocket"),
                Check::Has("sec-websocket-version", "13"),
            ]),
        local("a WebSocket of version 8", "6455 4.4", {
            at(
                "GET",
                "/echo",
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n",
            )
        })
        .statuses(&[426]),
        local("a redirect", "9110 15.4", at("GET", "/to/a?b", ""))
            .one_of(&[301, 302, 307, 308])
            .client(&[Check::Has("location", "https://h/to/a?b")]),
        local("a redirect of an encoded CRLF", "9110 10.2.2", at("GET", "/to/a%0d%0aX:y", ""))
            .one_of(&[301, 302, 307, 308])
            .client(&[Check::Has("location", "https://h/to/a%0d%0aX:y"), Check::Lacks("x")]),
        local("a redirect without Host", "9110 10.2.2", "GET /to/a HTTP/1.0\r\n\r\n".to_owned())
            .statuses(&[400])
            .closes(),
        local("synthetic in chunks", "9112 7.1", at("GET", "/synthetic?s=5&k=1", ""))
            .client(&[Check::BodyLength(5)]),
        local("synthetic in chunks for HTTP/1.0", "9112 6.1 MUST NOT", {
            "GET /synthetic?s=5&k=1 HTTP/1.0\r\nHost: h\r\n\r\n".to_owned()
        })
        .client(&[Check::BodyLength(5), Check::Lacks("transfer-encoding")])
        .ends(End::Closes),
        local("synthetic for HEAD", "9110 9.3.2 MUST", at("HEAD", "/synthetic?s=5", ""))
            .client(&[Check::Body(""), Check::Has("content-length", "5")]),
        local("synthetic 204", "9110 15.3.5", at("GET", "/synthetic?s=5&r=204", ""))
            .statuses(&[204]),
        local("synthetic 304", "9110 15.4.5", at("GET", "/synthetic?s=5&r=304", ""))
            .statuses(&[304]),
        local("synthetic of a large body", "9112 6.3", at("GET", "/synthetic?s=300k", ""))
            .client(&[Check::BodyLength(300 * 1024), Check::Framed(Framing::Length(300 * 1024))]),
        local("a body over the limit", "9110 15.5.14", {
            "POST /limited HTTP/1.1\r\nHost: h\r\nContent-Length: 1025\r\n\r\n".to_owned()
        })
        .statuses(&[413])
        .closes(),
        local("a chunked body over the limit", "9110 15.5.14", {
            let chunk = format!("800\r\n{}\r\n", "x".repeat(2048));
            let head = "POST /limited HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
            format!("{head}{chunk}0\r\n\r\n")
        })
        .statuses(&[413])
        .closes(),
        local("a body within the limit", "9110 15.5.14", {
            let head = "POST /limited HTTP/1.1\r\nHost: h\r\nContent-Length: 1024\r\n\r\n";
            format!("{head}{}", "x".repeat(1024))
        })
        .seen(1),
        local("climbing above the root", "3986 5.2.4", at("GET", "/get/../../x", ""))
            .one_of(&[400, 404]),
        local("another spelling finds the same route", "3986 6.2.2", at("GET", "/%67et", "")),
        refuse("HEAD in a bad spelling has no content", "9110 9.3.2 MUST", &[400], {
            at("HEAD", "/x", "X : y\r\n")
        })
        .client(&[Check::Body("")]),
    ]
}
