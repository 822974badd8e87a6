//! Measures what the access log costs for one request: the line in both formats, of a proxied request and of a response
//! of Tidegate itself.
//! In: nothing. Out: bytes and nanoseconds of a line. Each figure is the least of many short rounds, because other
//! programs on the machine can only lengthen a round.
//! Run: `cargo bench -p tidegate-gate --bench access_line`; instructions: `valgrind --tool=callgrind` with the binary.

use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

use tidegate_base::Span;
use tidegate_config::model::AccessFormat;
use tidegate_gate::access::{
    Captures, Cause, Entry, LineEncoder, Loads, Phase, RequestLine, Timers,
};
use tidegate_wire::message::Version;

const ROUNDS: usize = 300;
const LINES: usize = 500;

fn proxied() -> Entry<'static> {
    let request =
        RequestLine { method: b"GET", target: b"/api/users?page=2", host: b"api.example.com" };
    Entry {
        unix_millis: 1_795_330_141_007,
        client: Some(([192, 0, 2, 7], 51234).into()),
        listener: "web",
        request: Some(request),
        id: b"",
        trace: b"",
        version: Some(Version::Http11),
        route: Some("/api/*"),
        server: Some(("api", "10.0.0.1:8000")),
        pool: None,
        attempts: 1,
        is_reused: true,
        status: Some(200),
        bytes_in: 0,
        bytes_out: 2750,
        timers: Timers {
            request: Span::ZERO,
            queue: Some(Span::ZERO),
            connect: Some(Span::ZERO),
            response: Some(Span::from_micros(1_001)),
            total: Span::from_micros(1_102),
        },
        cause: Cause::None,
        phase: Phase::Last,
        reason: "",
        loads: Loads { clients: 50, exchanges: 40, pool: 30, server: 20, queued: 0 },
        captures: Captures::default(),
        response_captures: Captures::default(),
        subject: None,
    }
}

fn main() {
    let local = Entry { route: Some("/json"), server: None, attempts: 0, ..proxied() };
    let mut out = Vec::with_capacity(LINES * 1024);
    for (name, format, entry) in [
        ("json, proxied", AccessFormat::Json, proxied()),
        ("json, local", AccessFormat::Json, local),
        ("http, proxied", AccessFormat::Http, proxied()),
        ("http, local", AccessFormat::Http, local),
    ] {
        let mut encoder = LineEncoder::new(format);
        let mut round = || {
            out.clear();
            let began = Instant::now();
            for _ in 0..LINES {
                encoder.encode(black_box(&entry), &mut out);
            }
            (began.elapsed().as_nanos() as f64 / LINES as f64, out.len() / LINES)
        };
        let rounds = (0..ROUNDS).map(|_| round());
        let (least, bytes) =
            rounds.fold((f64::INFINITY, 0), |(a, _), (b, bytes)| (a.min(b), bytes));
        let _ = writeln!(std::io::stdout(), "{name:<14} {bytes:>4} bytes {least:>7.1} ns");
    }
}
