//! Runs the fuzz targets on every file of the fuzz corpus, as part of `cargo test`.

use std::fs;
use std::path::Path;
use tidegate_wire::fuzz::{
    fuzz_chunked, fuzz_hpack, fuzz_proxy_header, fuzz_records, fuzz_request, fuzz_response,
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
