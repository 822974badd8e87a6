//! Expect, Upgrade and 1xx responses: RFC 9110 sections 7.8, 10.1.1 and 15.2.

use super::{SMUGGLED, get, post};
use crate::origin::Play;
use crate::vector::{Check, End, Routes, Vector, accept, answer, refuse};

pub fn vectors() -> Vec<Vector> {
    let mut all = expectations();
    all.extend(interims());
    all.extend(upgrades());
    all
}

fn send(text: &str) -> Play {
    Play::Send(text.as_bytes().to_vec())
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const EXPECT: &str = "Expect: 100-continue\r\nContent-Length: 3\r\n";

fn expectations() -> Vec<Vector> {
    vec![
        accept("the expectation is forwarded", "9110 10.1.1 MUST", post(EXPECT, ""))
            .after_interim("abc")
            .interims(&[100])
            .origin(&[Check::Has("expect", "100-continue"), Check::Body("abc")]),
        accept("an expectation in another case", "9110 10.1.1", post("eXPECT: 100-Continue\r\nContent-Length: 3\r\n", ""))
            .after_interim("abc")
            .interims(&[100])
            .origin(&[Check::Body("abc")]),
        accept("an expectation with chunks", "9110 10.1.1", {
            post("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", "")
        })
        .after_interim("3\r\nabc\r\n0\r\n\r\n")
        .interims(&[100])
        .origin(&[Check::Body("abc")]),
        accept("a body that does not wait", "9110 10.1.1", post(EXPECT, "abc"))
            .origin(&[Check::Body("abc")]),
        accept("a refusal in place of 100", "9110 10.1.1 MUST", post(EXPECT, ""))
            .plays(&[Play::Early, send("HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"), Play::Hold])
            .statuses(&[417])
            .interims(&[])
            .closes(),
        accept("a local final response", "9110 10.1.1 MUST", post(EXPECT, ""))
            .to(Routes::Respond)
            .interims(&[])
            .closes(),
        accept("a local final response, chunked", "9110 10.1.1 MUST", {
            post("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", "")
        })
        .to(Routes::Respond)
        .interims(&[])
        .closes(),
        accept("an expectation without content", "9110 10.1.1", get("Expect: 100-continue\r\n")).interims(&[]),
        accept("HTTP/1.0 has no expectations", "9110 10.1.1 MUST", {
            "POST /x HTTP/1.0\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"
        })
        .interims(&[])
        .closes()
        .origin(&[Check::Lacks("expect"), Check::Body("abc")]),
        accept("an unknown expectation", "9110 10.1.1 MAY", get("Expect: 200-ok\r\n"))
            .one_of(&[200, 417])
            .ends(End::Any),
        accept("a local response after the body", "9110 10.1.1 MUST", {
            "POST /synthetic?B=3 HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        })
        .to(Routes::Local)
        .after_interim("abc")
        .seen(0)
        .ends(End::Any),
    ]
}

fn interims() -> Vec<Vector> {
    let after = |name, interim: &str, statuses: &[u16]| {
        answer(name, "9110 15.2 MUST", format!("{interim}{OK}")).interims(statuses)
    };
    vec![
        after("100 without an expectation", "HTTP/1.1 100 Continue\r\n\r\n", &[100]),
        after("102", "HTTP/1.1 102 Processing\r\n\r\n", &[102]),
        after("103 with a field", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", &[103]),
        after("an unknown interim status", "HTTP/1.1 199 Odd\r\n\r\n", &[199]),
        after(
            "three interim responses",
            "HTTP/1.1 103 A\r\n\r\nHTTP/1.1 102 B\r\n\r\nHTTP/1.1 103 C\r\n\r\n",
            &[103, 102, 103],
        ),
        after(
            "an interim response with hop-by-hop fields",
            "HTTP/1.1 103 A\r\nConnection: X\r\nX: y\r\nKeep-Alive: a\r\n\r\n",
            &[103],
        ),
        after(
            "an interim response with a length",
            "HTTP/1.1 103 A\r\nContent-Length: 0\r\n\r\n",
            &[103],
        ),
        accept(
            "no interim response for HTTP/1.0",
            "9110 15.2 MUST NOT",
            "GET /x HTTP/1.0\r\nHost: h\r\n\r\n",
        )
        .plays(&[send("HTTP/1.1 103 A\r\nLink: a\r\n\r\n"), send(OK)])
        .interims(&[])
        .closes(),
        accept(
            "an interim response before the response to HEAD",
            "9110 15.2",
            "HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n",
        )
        .plays(&[send("HTTP/1.1 103 A\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")])
        .interims(&[103])
        .client(&[Check::Has("content-length", "2"), Check::Body("")]),
        answer("no response after an interim response", "9110 15.2", "")
            .with_script(&[send("HTTP/1.1 103 A\r\n\r\n"), Play::Close])
            .statuses(&[502])
            .interims(&[103]),
        answer("101 without Upgrade", "9110 7.8 MUST NOT", {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
        })
        .statuses(&[502]),
    ]
}

fn upgrades() -> Vec<Vector> {
    let asks = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n";
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    vec![
        accept("a request for another protocol", "9110 7.8", get(asks)).origin(&[
            Check::Has("connection", "upgrade"),
            Check::Has("upgrade", "websocket"),
            Check::Has("sec-websocket-key", "k"),
        ]),
        accept("a declined upgrade stays HTTP", "9110 7.8", format!("{}{}", get(asks), get("")))
            .to(Routes::Proxy)
            .statuses(&[200, 200])
            .seen(2),
        accept("a switch", "9110 7.8 MUST", get(asks))
            .plays(&[send(switch), Play::Hold])
            .statuses(&[101])
            .client(&[Check::Has("upgrade", "websocket"), Check::Has("connection", "upgrade")])
            .ends(End::Any),
        accept("a switch without Upgrade", "9110 15.2.2 MUST", get(asks))
            .plays(&[send("HTTP/1.1 101 Switching Protocols\r\n\r\n"), Play::Hold])
            .statuses(&[502])
            .ends(End::Any),
        accept("a switch to a protocol that was not requested", "9110 7.8 MUST NOT", get(asks))
            .plays(&[
                send("HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n"),
                Play::Hold,
            ])
            .statuses(&[502])
            .ends(End::Any),
        accept(
            "several protocols",
            "9110 7.8",
            get("Connection: upgrade\r\nUpgrade: a/1, websocket\r\n"),
        )
        .origin(&[Check::Has("upgrade", "a/1, websocket")]),
        accept("HTTP/1.0 cannot upgrade", "9110 7.8 MUST", {
            format!("GET /x HTTP/1.0\r\nHost: h\r\n{asks}\r\n")
        })
        .closes()
        .origin(&[Check::Lacks("upgrade")]),
        accept("bytes before the switch are held", "9110 7.8", format!("{}early", get(asks)))
            .plays(&[send(switch), Play::Hold])
            .statuses(&[101])
            .ends(End::Any),
        accept(
            "a request after a declined upgrade",
            "9110 7.8",
            format!("{}{SMUGGLED}", get(asks)),
        )
        .plays(&[send("HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")])
        .statuses(&[400, 200])
        .seen(2),
        refuse(
            "bytes after a declined upgrade",
            "9110 7.8",
            &[400],
            format!("{}\x01\x02", get(asks)),
        )
        .statuses(&[200, 400])
        .seen(1)
        .to(Routes::Proxy),
        answer("426 keeps its Upgrade field", "9110 15.5.22 MUST", {
            "HTTP/1.1 426 Upgrade Required\r\nUpgrade: HTTP/3.0\r\nConnection: Upgrade\r\n\
             Content-Length: 0\r\n\r\n"
        })
        .statuses(&[426])
        .client(&[Check::Has("upgrade", "HTTP/3.0"), Check::Has("connection", "upgrade")]),
    ]
}
