//! Runs the fuzz target of the API on every file of its corpus, as part of `cargo test`.

use std::fs;
use std::path::Path;

use tidegate_lua::fuzz::fuzz_lua_api;

#[test]
fn api_corpus_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/lua_api");
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("it is readable").path();
        fuzz_lua_api(&fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        files += 1;
    }
    assert!(files >= 5, "the corpus in {} has fewer than 5 files", folder.display());
}

#[test]
fn random_calls_pass() {
    let mut prng = tidegate_base::Prng::new(0x6c75_6166);
    for _ in 0..60 {
        let data: Vec<u8> = (0..prng.below(600)).map(|_| prng.below(256) as u8).collect();
        fuzz_lua_api(&data);
    }
}
