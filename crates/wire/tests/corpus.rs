//! Runs the fuzz targets on every file of the fuzz corpus, as part of `cargo test`.

use std::fs;
use std::path::Path;
use tidegate_wire::fuzz::{
    fuzz_chunked, fuzz_client_hello, fuzz_dns, fuzz_hpack, fuzz_http2_connection,
    fuzz_http2_frames, fuzz_proxy_header, fuzz_records, fuzz_request, fuzz_response,
    fuzz_websocket,
};

fn replay(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        body(&fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        files += 1;
    }
    assert!(files >= 5, "the corpus in {} has fewer than 5 files", folder.display());
}

#[test]
fn request_corpus_passes() {
    replay("request", fuzz_request);
}

#[test]
fn response_corpus_passes() {
    replay("response", fuzz_response);
}

#[test]
fn chunked_corpus_passes() {
    replay("chunked", fuzz_chunked);
}

#[test]
fn dns_corpus_passes() {
    replay("dns", fuzz_dns);
}

#[test]
fn proxy_header_corpus_passes() {
    replay("proxy_header", fuzz_proxy_header);
}

#[test]
fn websocket_corpus_passes() {
    replay("websocket", fuzz_websocket);
}

#[test]
fn records_corpus_passes() {
    replay("records", fuzz_records);
}

#[test]
fn http2_frames_corpus_passes() {
    replay("http2_frames", fuzz_http2_frames);
}

#[test]
fn http2_connection_corpus_passes() {
    replay("http2_connection", fuzz_http2_connection);
}

#[test]
fn seeded_http2_steps_pass() {
    for seed in 0..2_000 {
        let mut prng = tidegate_base::Prng::new(seed);
        let steps: Vec<u8> = (0..200).map(|_| prng.next_u64() as u8).collect();
        let outcome = std::panic::catch_unwind(|| fuzz_http2_connection(&steps));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

/// Frames of all types with random flags, streams and payloads. They reach more states of a connection than random bytes
/// do.
#[test]
fn seeded_http2_frames_pass() {
    for seed in 0..2_000 {
        let mut prng = tidegate_base::Prng::new(seed);
        let mut data = vec![2 | prng.next_u64() as u8 & 1];
        for _ in 0..20 {
            let payload: Vec<u8> = match prng.below(4) {
                0 => b"\x82\x86\x84\x41\x01a".to_vec(),
                1 => b"\x88".to_vec(),
                2 => vec![0; [4, 5, 6, 8][prng.below(4) as usize]],
                _ => (0..prng.below(20)).map(|_| prng.next_u64() as u8).collect(),
            };
            data.extend_from_slice(&[0, 0, payload.len() as u8, prng.below(12) as u8]);
            data.push(prng.next_u64() as u8 & [0xff, 5, 4, 1][prng.below(4) as usize]);
            data.extend_from_slice(&[0, 0, 0, prng.below(8) as u8]);
            data.extend_from_slice(&payload);
        }
        let outcome = std::panic::catch_unwind(|| fuzz_http2_frames(&data));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn hpack_corpus_passes() {
    replay("hpack", fuzz_hpack);
}

/// The randomness of the handshake differs between runs, so the same steps cover more than one case.
#[test]
fn seeded_record_steps_pass() {
    for seed in 0..300 {
        let mut prng = tidegate_base::Prng::new(seed);
        let steps: Vec<u8> = (0..64).map(|_| prng.next_u64() as u8).collect();
        let outcome = std::panic::catch_unwind(|| fuzz_records(&steps));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn client_hello_corpus_passes() {
    replay("client_hello", fuzz_client_hello);
}
