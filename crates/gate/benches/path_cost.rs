//! Measures what routing one request costs by the kind of its path: plain, with one unusual part, and the
//! worst ambiguous ones.
//! In: optionally a part of the names of the rows to measure. Out: a table of nanoseconds for each request, and
//! their ratio to the plain path of the same length above. Each figure is the least of many short rounds, because
//! other programs on the machine can only lengthen a round.
//! Run: `cargo bench -p tidegate-gate --bench path_cost [-- NAME]`.

use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

use tidegate_config::model::Config;
use tidegate_gate::router::{Client, Router};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;

const LENGTH: usize = 8000;
const ROUNDS: usize = 300;
const ROUND_NS: f64 = 200_000.0;

/// `count` routes of the usual kinds, and a last route that matches every path.
fn config(count: usize) -> Config {
    let mut text = "[[listener]]\nbind = \"127.0.0.1:8080\"\n".to_owned();
    for at in 0..count {
        let path = match at % 4 {
            0 => format!("/admin{at}/*"),
            1 => format!("/users{at}/{{id}}"),
            2 => format!("/users/{{id}}/orders{at}/{{order}}"),
            _ => format!("/exact/page{at}"),
        };
        text += &format!("[[route]]\npath = \"{path}\"\nrespond = {{ body = \"{at}\" }}\n");
    }
    text += "[[route]]\nrespond = { body = \"last\" }\n";
    tidegate_config::parse(&text, "path_cost.toml").expect("the configuration is valid")
}

/// `unit` repeated up to the usual length, after `start`.
fn repeated(start: &str, unit: &str) -> String {
    format!("{start}{}", unit.repeat((LENGTH - start.len()) / unit.len()))
}

fn nanoseconds(router: &Router, path: &str) -> f64 {
    let bytes = format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n").into_bytes();
    let mut storage = FieldStorage::new();
    let decoded =
        HeadDecoder::default().decode_request(&bytes, &HeadLimits::default(), &mut storage);
    let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
    let mut scratch = Vec::new();
    let mut time_of = |count: u32| {
        let began = Instant::now();
        for _ in 0..count {
            black_box(router.route(0, black_box(&head), &Client::default(), &mut scratch));
        }
        began.elapsed().as_nanos() as f64 / f64::from(count)
    };
    let count = (ROUND_NS / time_of(4)).clamp(1.0, 10_000.0) as u32;
    (0..ROUNDS).map(|_| time_of(count)).fold(f64::INFINITY, f64::min)
}

fn main() {
    // All kinds of delimiters, so that no two interpretations of the path are equal.
    let all = "/a;b//%2F%3B/";
    let paths = [
        ("plain, 30 bytes", "/users/12345/orders/67890/item".to_owned()),
        ("30 bytes, one encoded letter", "/users/12345/orders/67890/i%74".to_owned()),
        ("30 bytes, one encoded dot", "/users/12345/orders%2e67890/it".to_owned()),
        ("30 bytes, one dot segment", "/users/12345/./orders/67890/it".to_owned()),
        ("30 bytes, one empty segment", "/users/12345//orders/67890/ite".to_owned()),
        ("30 bytes, one parameter", "/users/12345/orders;a/67890/it".to_owned()),
        ("30 bytes, one encoded backslash", "/users/12345/orders%5C67890/it".to_owned()),
        ("30 bytes, one encoded slash", "/users/12345/orders%2F67890/it".to_owned()),
        ("30 bytes, all kinds", "/users/12345//orders;a%3B/%2Fi".to_owned()),
        ("plain, one segment", repeated("/", "a")),
        ("plain, many segments", repeated("", "/abcdefg")),
        ("one encoded letter", repeated("/%61", "/abcdefg")),
        ("one encoded dot", repeated("/a%2e", "/abcdefg")),
        ("one dot segment", repeated("/.", "/abcdefg")),
        ("one empty segment", repeated("/", "/abcdefg")),
        ("one parameter", repeated("/a;b", "/abcdefg")),
        ("one encoded backslash", repeated("/a%5C", "/abcdefg")),
        ("one encoded slash", repeated("/a%2F", "/abcdefg")),
        ("encoded letters", repeated("/", "%61")),
        ("encoded spaces", repeated("/", "%20")),
        ("dot segments", repeated("", "/a/..")),
        ("dots in place", repeated("", "/.")),
        ("dot segments after a deep path", format!("{}{}", "/a".repeat(1600), "/..".repeat(1600))),
        ("slashes", repeated("", "/")),
        ("encoded slashes", repeated("/", "%2F")),
        ("encoded slashes, text", repeated("/", "a%2F")),
        ("backslashes", repeated("/", "%5C")),
        ("semicolons", repeated("/", ";")),
        ("parameters", repeated("", "/a;b")),
        ("empty parameters", repeated("", "/;")),
        ("encoded parameters", repeated("", "/a%3Bb")),
        ("all kinds", repeated("", all)),
        ("all kinds, then text", repeated(all, "a")),
        ("all kinds, then slashes", repeated(all, "/")),
        ("all kinds, then encoded slashes", repeated(all, "%2F")),
        ("all kinds, then semicolons", repeated(all, ";")),
        ("all kinds, then letters and semicolons", repeated(all, "a;")),
        ("all kinds, then empty parameters", repeated(all, "/;")),
        ("all kinds, then parameters of empty segments", repeated(all, "/;a")),
        ("all kinds, then parameters of two kinds", repeated(all, "%3Ba/;a%2F")),
        ("all kinds, then slashes of two kinds", repeated(all, "/%2F")),
        ("all kinds, then semicolons of two kinds", repeated(all, ";%3B")),
        ("all kinds, then empty encoded parameters", repeated(all, "%2F;")),
        ("all kinds, in the last segment", repeated(&format!("{all}a"), "b%3B;")),
    ];
    let routers = [3, 100].map(|count| Router::new(&config(count)));
    let mut out = std::io::stdout();
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let heading = "ns for each request";
    writeln!(out, "{heading:<46} {:>9} {:>6} {:>10} {:>6}", "3 routes", "x", "100 routes", "x")
        .expect("stdout is open");
    let mut plain = [1.0; 2];
    for (name, path) in &paths {
        let is_plain = name.starts_with("plain");
        if !is_plain && wanted.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        let [few, many] = [0, 1].map(|at| nanoseconds(&routers[at], path));
        if is_plain {
            plain = [few, many];
        }
        let [few_times, many_times] = [few / plain[0], many / plain[1]];
        writeln!(out, "{name:<46} {few:>9.0} {few_times:>6.1} {many:>10.0} {many_times:>6.1}")
            .expect("stdout is open");
    }
}
