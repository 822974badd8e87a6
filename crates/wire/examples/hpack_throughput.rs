//! Speed of HPACK: nanoseconds per field.
//! Run: `cargo run --release -p tidegate-wire --example hpack_throughput`.
#![expect(clippy::print_stdout, reason = "the figures go to stdout")]

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;
use tidegate_wire::http2::hpack::{Decoder, Encoder, Field, Indexing, Limits, Scratch};

const LIMITS: Limits = Limits { fields_max: 100, crumbs_max: 100, list_bytes_max: 64 * 1024 };
const ROUNDS: u32 = 1000;
/// The fastest of this many batches counts: other load on the machine disturbs the others.
const BATCHES: u32 = 300;

const RESPONSE: &[(&str, &str)] = &[
    ("content-type", "application/json; charset=utf-8"),
    ("content-length", "1432"),
    ("date", "Sun, 22 Nov 2026 09:06:16 GMT"),
    ("server", "tidegate"),
    ("cache-control", "max-age=60, must-revalidate"),
    ("vary", "accept-encoding"),
    ("strict-transport-security", "max-age=63072000; includeSubDomains"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
];

const REQUEST: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "www.example.com"),
    (":path", "/api/v1/items?page=2&sort=-price"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-language", "en-GB,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("referer", "https://www.example.com/api/v1/"),
    ("cookie", "session=8f14e45fceea167a5a36dedd4bea2543; theme=dark"),
];

/// Runs `round` many times and prints the time of the fastest batch.
fn measure_rounds(what: &str, fields: usize, mut round: impl FnMut(u32) -> usize) {
    let mut bytes = 0;
    let batch = |_| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|number| bytes = round(number));
        start.elapsed()
    };
    let fastest = (0..BATCHES).map(batch).min().unwrap_or_default();
    let ns = fastest.as_nanos() as f64 / f64::from(ROUNDS);
    let per_field = ns / fields as f64;
    println!("{what}: {ns:.0} ns per block, {per_field:.1} ns per field, {bytes} bytes");
}

fn encode(encoder: &mut Encoder, out: &mut Vec<u8>, fields: &[(&str, &str)]) {
    out.clear();
    let mut block = encoder.begin(out);
    for (name, value) in fields {
        block.encode_field(name.as_bytes(), value.as_bytes(), Indexing::Auto);
    }
}

fn encode_response(encoder: &mut Encoder, out: &mut Vec<u8>, id: &str) {
    out.clear();
    let mut block = encoder.begin(out);
    block.encode_status(200);
    for (name, value) in RESPONSE {
        block.encode_field(name.as_bytes(), value.as_bytes(), Indexing::Auto);
    }
    if !id.is_empty() {
        block.encode_field(b"x-request-id", id.as_bytes(), Indexing::Auto);
    }
}

fn measure_encode(what: &str, table_bytes_max: u32, ids: bool) {
    let (mut encoder, mut out) = (Encoder::new(table_bytes_max), Vec::new());
    let identifiers: Vec<String> =
        (0..1000_u64).map(|n| format!("{:032x}", u128::from(n + 1) << 64 | 0x1234_5678)).collect();
    let id = |round: u32| if ids { identifiers[round as usize % 1000].as_str() } else { "" };
    measure_rounds(what, RESPONSE.len() + 1 + usize::from(ids), |round| {
        encode_response(black_box(&mut encoder), &mut out, id(round));
        out.len()
    });
}

fn measure_decode(what: &str, table_bytes_max: u32, warm_up: usize) {
    let (mut encoder, mut out) = (Encoder::new(table_bytes_max), Vec::new());
    let (mut decoder, mut scratch) = (Decoder::new(), Scratch::new());
    let mut bytes = 0_usize;
    let mut sink = |field: Field<'_>| {
        bytes += field.name.len() + field.value.len();
        ControlFlow::Continue(())
    };
    for _ in 0..=warm_up {
        encode(&mut encoder, &mut out, REQUEST);
        decoder.decode(&out, &LIMITS, &mut scratch, &mut sink).unwrap();
    }
    measure_rounds(what, REQUEST.len(), |_| {
        decoder.decode(black_box(&out), &LIMITS, &mut scratch, &mut sink).unwrap();
        out.len()
    });
    assert!(bytes > 0);
}

fn main() {
    measure_encode("encode a response, all fields in the table", 4096, false);
    measure_encode("encode a response, a changing identifier", 4096, true);
    measure_encode("encode a response, no table", 0, false);
    measure_decode("decode a request, all fields in the table", 4096, 4);
    measure_decode("decode a request, literals with Huffman code", 0, 1);
    measure_decode("decode a request, literals inserted", 4096, 1);
}
