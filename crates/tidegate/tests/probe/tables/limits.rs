//! Requests above and just within the size limits: RFC 9112 section 3, RFC 9110 sections 5.4 and 15.5.

use super::{get, post};
use crate::vector::{Check, Vector, accept, refuse};

pub fn vectors() -> Vec<Vector> {
    let target = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(length));
    let lines = |count: usize| (0..count).map(|n| format!("X{n}: y\r\n")).collect::<String>();
    vec![
        accept("a target of 7,000 bytes", "9112 3 SHOULD", target(7000)),
        accept("a line of 8,000 bytes", "9112 3 RECOMMENDED", target(8000 - 14)),
        refuse("a target of 9,000 bytes", "9112 3 MUST", &[414], target(9000)),
        refuse("a target of 70,000 bytes", "9112 3 MUST", &[414], target(70_000)),
        refuse("a target of 3,000,000 bytes", "9112 3 MUST", &[414], target(3_000_000)),
        refuse(
            "a target without an end",
            "9112 3 MUST",
            &[414],
            format!("GET /{}", "a".repeat(9000)),
        ),
        refuse("a method of 9,000 bytes", "9112 3 SHOULD", &[501, 400, 414], {
            format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", "A".repeat(9000))
        }),
        refuse("a method of 70,000 bytes", "9112 3 SHOULD", &[501, 400, 414, 431], {
            format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", "A".repeat(70_000))
        }),
        refuse("a version of 9,000 bytes", "9112 3", &[400, 414], {
            format!("GET / {}\r\nHost: h\r\n\r\n", "H".repeat(9000))
        }),
        accept("a value of 8,000 bytes", "9110 5.4", get(&format!("X: {}\r\n", "y".repeat(8000)))),
        refuse("a value of 20,000 bytes", "9110 5.4 MUST", &[431, 400], {
            get(&format!("X: {}\r\n", "y".repeat(20_000)))
        }),
        refuse("a value of 3,000,000 bytes", "9110 5.4 MUST", &[431, 400], {
            get(&format!("X: {}\r\n", "y".repeat(3_000_000)))
        }),
        refuse("a value without an end", "9110 5.4 MUST", &[431, 400], {
            format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", "y".repeat(40_000))
        }),
        refuse("a name of 20,000 bytes", "9110 5.4 MUST", &[431, 400], {
            get(&format!("{}: y\r\n", "X".repeat(20_000)))
        }),
        refuse("a Host of 20,000 bytes", "9110 5.4 MUST", &[431, 400], {
            format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "h".repeat(20_000))
        }),
        refuse("a cookie of 40,000 bytes", "6585 5", &[431, 400], {
            get(&format!("Cookie: a={}\r\n", "b".repeat(40_000)))
        }),
        accept("ninety fields", "9110 5.4", get(&lines(90))).origin(&[Check::Has("x89", "y")]),
        refuse("two hundred fields", "6585 5", &[431, 400], get(&lines(200))),
        refuse("a hundred thousand fields", "6585 5", &[431, 400], get(&lines(100_000))),
        accept("a body of a megabyte", "9112 6.3", {
            post("Content-Length: 1000000\r\n", &"x".repeat(1_000_000))
        })
        .origin(&[Check::BodyLength(1_000_000)]),
        accept("a chunked body of a megabyte", "9112 7.1", {
            let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000)).repeat(1000);
            post("Transfer-Encoding: chunked\r\n", &format!("{chunk}0\r\n\r\n"))
        })
        .origin(&[Check::BodyLength(1_000_000)]),
        accept("a body in chunks of a byte", "9112 7.1", {
            post(
                "Transfer-Encoding: chunked\r\n",
                &format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(5000)),
            )
        })
        .origin(&[Check::BodyLength(5000)]),
        accept("a hundred pipelined requests", "9112 9.3.2", get("").repeat(100))
            .statuses(&[200; 100])
            .seen(100),
    ]
}
