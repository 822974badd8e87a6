//! The lifetime of connections: persistence, pipelining, close, half-close, RFC 9112 section 9.

use super::{SMUGGLED, get, post};
use crate::origin::Play;
use crate::vector::{Check, End, Vector, accept, answer};

pub fn vectors() -> Vec<Vector> {
    let mut all = persistence();
    all.extend(pipelining());
    all.extend(upstream_connections());
    all
}

fn old(fields: &str) -> String {
    format!("GET /x HTTP/1.0\r\nHost: h\r\n{fields}\r\n")
}

fn persistence() -> Vec<Vector> {
    vec![
        accept("HTTP/1.1 keeps", "9112 9.3", get("")).client(&[Check::Lacks("connection")]),
        accept("HTTP/1.1 closes on request", "9112 9.3 MUST", get("Connection: close\r\n"))
            .closes()
            .client(&[Check::Has("connection", "close")]),
        accept("close in any case", "9110 7.6.1 MUST", get("Connection: ClOsE\r\n")).closes(),
        accept("close among others", "9110 7.6.1", get("Connection: a, close ,b\r\n")).closes(),
        accept(
            "close on a second line",
            "9110 7.6.1",
            get("Connection: a\r\nConnection: close\r\n"),
        )
        .closes(),
        accept(
            "close beside keep-alive",
            "9112 9.3 MUST",
            get("Connection: keep-alive, close\r\n"),
        )
        .closes(),
        accept(
            "an option that only begins like close",
            "9110 7.6.1",
            get("Connection: closed\r\n"),
        ),
        accept("a quoted close has no effect", "9110 7.6.1", get("Connection: \"close\"\r\n")),
        accept("empty options", "9110 5.6.1", get("Connection: ,, ,\r\n")),
        accept("an empty Connection", "9110 7.6.1", get("Connection:\r\n")),
        accept("keep-alive in HTTP/1.1", "9112 9.3", get("Connection: keep-alive\r\n")),
        accept("Proxy-Connection does not close", "9112 C.2.2", get("Proxy-Connection: close\r\n")),
        accept("HTTP/1.0 closes", "9112 9.3 MUST", old("")).closes(),
        accept("HTTP/1.0 keeps on request", "9112 9.3 MAY", old("Connection: keep-alive\r\n"))
            .client(&[Check::Has("connection", "keep-alive")]),
        accept("HTTP/1.0 with both options", "9112 9.3", old("Connection: keep-alive, close\r\n"))
            .closes(),
        accept("nothing is read after close", "9112 9.6 MUST NOT", {
            format!("{}{SMUGGLED}", get("Connection: close\r\n"))
        })
        .closes(),
        accept("nothing is read after HTTP/1.0", "9112 9.3", format!("{}{SMUGGLED}", old("")))
            .closes(),
        accept("a body with Connection: close", "9112 9.6", {
            post("Connection: close\r\nContent-Length: 3\r\n", "abc")
        })
        .closes(),
        accept("half-closed after a whole request", "9112 9.6", get(""))
            .half_closed()
            .ends(End::Any),
        accept("half-closed after two requests", "9112 9.6", format!("{}{}", get(""), get("")))
            .half_closed()
            .statuses(&[200, 200])
            .seen(2)
            .ends(End::Any),
        accept("half-closed after a body", "9112 9.6", post("Content-Length: 3\r\n", "abc"))
            .half_closed()
            .ends(End::Any),
    ]
}

fn pipelining() -> Vec<Vector> {
    let many = get("").repeat(20);
    vec![
        accept("two at once", "9112 9.3.2 MUST", get("").repeat(2)).statuses(&[200, 200]).seen(2),
        accept("twenty at once", "9112 9.3.2 MUST", many).statuses(&[200; 20]).seen(20),
        accept("responses in order", "9112 9.3.2 MUST", {
            "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\n\
             Content-Length: 1\r\n\r\naHEAD /3 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        })
        .plays(&[
            Play::WaitRead,
            Play::Send(b"HTTP/1.1 201 A\r\nContent-Length: 1\r\n\r\n1".to_vec()),
        ])
        .plays(&[Play::Send(b"HTTP/1.1 202 B\r\nContent-Length: 1\r\n\r\n2".to_vec())])
        .plays(&[Play::Send(b"HTTP/1.1 204 C\r\n\r\n".to_vec())])
        .statuses(&[201, 202, 204])
        .seen(3)
        .closes(),
        accept("a bad request after a good one", "9112 9.3.2", {
            format!("{}GET / HTTP/1.1\r\nHost: a b\r\n\r\n{SMUGGLED}", get(""))
        })
        .statuses(&[200, 400])
        .seen(1)
        .closes(),
        accept("close in the middle", "9112 9.6 MUST NOT", {
            format!("{}{}{SMUGGLED}", get(""), get("Connection: close\r\n"))
        })
        .statuses(&[200, 200])
        .seen(2)
        .closes(),
        accept("a failure in the middle", "9112 9.3.2", {
            format!("{}{}", post("Content-Length: 1\r\n", "a"), get(""))
        })
        .plays(&[Play::Reset])
        .statuses(&[502, 200])
        .seen(2),
    ]
}

fn upstream_connections() -> Vec<Vector> {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let send = |text: &str| Play::Send(text.as_bytes().to_vec());
    vec![
        answer("a second response at once", "9112 9.2", format!("{ok}{ok}"))
            .client(&[Check::Body("ok")]),
        answer("a second response later", "9112 9.2 MUST NOT", ok).with_script(&[
            send(ok),
            Play::WaitRead,
            send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
        ]),
        answer("bytes after the response", "9112 9.2 MUST NOT", format!("{ok}evil")),
        answer("an empty line after the response", "9112 9.2", format!("{ok}\r\n")),
        answer("the origin closes after its response", "9112 9.6", ok)
            .with_script(&[send(ok), Play::Close]),
        answer("the origin resets after its response", "9112 9.6", ok).with_script(&[
            send(ok),
            Play::WaitRead,
            Play::Reset,
        ]),
        answer("the origin announces close and keeps the connection open", "9112 9.6 MUST NOT", {
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
        })
        .with_script(&[
            send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
            Play::Hold,
        ])
        .client(&[Check::Lacks("connection")]),
        answer("an HTTP/1.0 origin closes", "9112 9.3", ok)
            .with_script(&[send("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"), Play::Hold]),
        answer("an HTTP/1.0 origin keeps", "9112 9.3", {
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"
        })
        .client(&[Check::Has("via", "1.0 tidegate"), Check::Lacks("connection")]),
        // A GET is sent again after the loss of a reused connection, and after the first loss of a fresh one.
        answer("the origin closes without a response", "9110 15.6.3", ok)
            .with_script(&[Play::Close])
            .plays(&[Play::Close])
            .plays(&[Play::Close])
            .statuses(&[502])
            .seen_any(),
        answer("the origin resets without a response", "9110 15.6.3", ok)
            .with_script(&[Play::Reset])
            .plays(&[Play::Reset])
            .plays(&[Play::Reset])
            .statuses(&[502])
            .seen_any(),
        accept(
            "a POST is not sent twice",
            "9110 9.2.2 MUST NOT",
            post("Content-Length: 1\r\n", "a"),
        )
        .plays(&[Play::Close])
        .statuses(&[502])
        .seen(1),
    ]
}
