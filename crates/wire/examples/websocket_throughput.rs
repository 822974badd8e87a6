//! Measures the WebSocket codec: masking in bytes per second, and the time to decode and encode a message.
//! Run: `cargo run --release -p tidegate-wire --example websocket_throughput`. Out: one line for each figure.
//! Each figure is the best of several rounds, so that other load on the host disturbs it little.
#![expect(clippy::print_stdout, reason = "the figures go to stdout")]

use std::hint::black_box;
use std::time::Instant;

use tidegate_wire::websocket::{
    Decoder, Deflater, Effort, FrameRules, Incoming, Inflater, Kind, Limits, Role, apply_mask,
    deflated_frame, encode_deflated, encode_message,
};

/// Rounds of a figure.
const ROUNDS: usize = 15;
/// Frames that one read contains, as with pipelining clients; the input is copied once for each read.
const READ_BYTES: usize = 32 * 1024;

fn main() {
    for length in [125, 1024, 16 * 1024, 1024 * 1024] {
        let mut data = vec![7; length];
        let count = (64 << 20) / length;
        let seconds = best(|| {
            for _ in 0..count {
                apply_mask(black_box(&mut data), [1, 2, 3, 4]);
            }
        });
        let rate = (count * length) as f64 / seconds / 1e9;
        println!("mask {length:>7} bytes: {rate:.1} GB/s");
    }
    for length in [20, 125, 1024, 16 * 1024] {
        for kind in [Kind::Binary, Kind::Text] {
            println!("echo {kind:?} {length:>6} bytes: {:.0} ns", echo(kind, length));
        }
    }
    for length in [125, 1024, 16 * 1024] {
        let (compress, inflate) = compression(length);
        println!("deflate {length:>6} bytes: compress {compress:.0} ns, inflate {inflate:.0} ns");
    }
    let mut deflater = Deflater::shared(15, Effort::default()).expect("a valid window");
    let frame = deflated_frame(Kind::Text, &[b'a'; 1024], &mut deflater).expect("compressible");
    let frame = frame.expect("a shorter frame");
    let mut out = Vec::with_capacity(1 << 20);
    let seconds = best(|| {
        out.clear();
        for _ in 0..1000 {
            out.extend_from_slice(black_box(&frame));
        }
    });
    println!("shared frame of 1024 bytes: {:.1} ns", seconds * 1e6);
}

/// The shortest time of several rounds, in seconds.
fn best(mut body: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        body();
        start.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(time).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds to decode a masked message and to encode it as a server.
fn echo(kind: Kind, length: usize) -> f64 {
    let limits = Limits::default();
    let mut read = Vec::new();
    let mut count = 0;
    while read.len() + length + 8 <= READ_BYTES {
        encode_message(&mut read, kind, &vec![b'a'; length], Some([1, 2, 3, 4]));
        count += 1;
    }
    let mut decoder = Decoder::new(FrameRules { role: Role::Server, allows_deflate: false });
    let mut input = read.clone();
    let mut out = Vec::with_capacity(2 * READ_BYTES);
    let mut buffer = Vec::new();
    let rounds = 200;
    let seconds = best(|| {
        for _ in 0..rounds {
            input.copy_from_slice(&read);
            out.clear();
            let mut at = 0;
            while at < input.len() {
                let step = decoder
                    .decode_message(black_box(&mut input[at..]), &limits, &mut buffer, None)
                    .expect("valid frames");
                if let Some(Incoming::Message(message)) = step.incoming {
                    encode_message(&mut out, message.kind(), message.bytes(), None);
                }
                at += step.consumed;
            }
            black_box(&out);
        }
    });
    seconds * 1e9 / (rounds * count) as f64
}

/// Nanoseconds to compress and to decode a message without context takeover.
fn compression(length: usize) -> (f64, f64) {
    let text: String = (0..)
        .flat_map(|n: u32| format!("{{\"id\":{n},\"on\":true}},").into_bytes())
        .map(char::from)
        .take(length)
        .collect();
    let mut deflater = Deflater::shared(15, Effort::default()).expect("a valid window");
    let mut out = Vec::with_capacity(1 << 20);
    let rounds = 500;
    let compress = best(|| {
        for _ in 0..rounds {
            out.clear();
            encode_deflated(&mut out, Kind::Text, text.as_bytes(), &mut deflater, None)
                .expect("compression works");
        }
    });
    let limits = Limits::default();
    let mut decoder = Decoder::new(FrameRules { role: Role::Client, allows_deflate: true });
    let mut inflater = Inflater::shared();
    let mut buffer = Vec::new();
    let inflate = best(|| {
        for _ in 0..rounds {
            let step = decoder
                .decode_message(&mut out, &limits, &mut buffer, Some(&mut inflater))
                .expect("valid frames");
            assert!(step.incoming.is_some());
        }
    });
    (compress * 1e9 / f64::from(rounds), inflate * 1e9 / f64::from(rounds))
}
