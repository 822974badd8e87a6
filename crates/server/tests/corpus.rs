//! Every file of the fuzz corpus of whole exchanges, played by plain `cargo test`.

use std::fs;
use std::path::Path;
use tidegate_server::fuzz::fuzz_exchange;

#[test]
fn exchange_corpus_keeps_every_promise() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/exchange");
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("a folder's entry").path();
        let data = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        eprintln!("{}", path.display());
        fuzz_exchange(&data);
        files += 1;
    }
    assert!(files >= 5, "the corpus in {} is nearly empty", folder.display());
}
