//! Every file of the fuzz corpus, run through the fuzz bodies by plain `cargo test`.

use std::fs;
use std::path::Path;
use tidegate_wire::fuzz::{fuzz_chunked, fuzz_proxy_header, fuzz_request, fuzz_response};

fn replay(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        body(&fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        files += 1;
    }
    assert!(files >= 5, "the corpus in {} is nearly empty", folder.display());
}

#[test]
fn request_corpus_keeps_every_promise() {
    replay("request", fuzz_request);
}

#[test]
fn response_corpus_keeps_every_promise() {
    replay("response", fuzz_response);
}

#[test]
fn chunked_corpus_keeps_every_promise() {
    replay("chunked", fuzz_chunked);
}

#[test]
fn proxy_header_corpus_keeps_every_promise() {
    replay("proxy_header", fuzz_proxy_header);
}
