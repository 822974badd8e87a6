//! Runs the fuzz target of the client protocol on every file of its corpus and on mutations of them, as part of `cargo test`.
//! In: the files; seeds. Out: each failing file or seed.

use std::fs;
use std::path::Path;

use tidegate_base::Prng;
use tidegate_push::fuzz::fuzz_push_client;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/push_client");
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.expect("it is readable").path();
            let data = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (path.display().to_string(), data)
        })
        .collect();
    // So that a seed means the same on every machine.
    files.sort();
    assert!(files.len() >= 5, "the corpus in {} has fewer than 5 files", folder.display());
    files
}

#[test]
fn client_corpus_passes() {
    for (name, data) in corpus() {
        let outcome = std::panic::catch_unwind(|| fuzz_push_client(&data));
        assert!(outcome.is_ok(), "{name}");
    }
}

#[test]
fn mutated_client_corpus_passes() {
    let files = corpus();
    for seed in 0..4_000 {
        let mut prng = Prng::new(seed);
        let (_, mut data) = files[prng.below(files.len() as u64) as usize].clone();
        for _ in 0..=prng.below(4) {
            let at = prng.below(data.len() as u64) as usize;
            let other = &files[prng.below(files.len() as u64) as usize].1;
            match prng.below(4) {
                0 => data[at] = prng.next_u64() as u8,
                1 => drop(data.splice(at..at, [b"{[\"\\0\xff\x80"[prng.below(7) as usize]])),
                2 if data.len() > 8 => drop(data.drain(at..data.len().min(at + 3))),
                _ => {
                    let from = prng.below(other.len() as u64) as usize;
                    let part = other[from..].iter().copied().take(80);
                    drop(data.splice(at..at, part));
                }
            }
            if data.is_empty() {
                data.push(0);
            }
        }
        let outcome = std::panic::catch_unwind(|| fuzz_push_client(&data));
        assert!(outcome.is_ok(), "seed {seed}: {}", String::from_utf8_lossy(&data));
    }
}
