//! Runs the fuzz corpus of whole exchanges in plain `cargo test`: every file, and seeded mutations of them.
//! In: the files. Out: the file or seed that breaks an invariant, and the command that replays it.
//! Limits: `MUTATIONS` scripts. TIDEGATE_SEEDS sets another number; TIDEGATE_SEED plays a single one.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use tidegate_base::Prng;
use tidegate_server::fuzz::fuzz_exchange;

const MUTATIONS: u64 = 5000;
/// The byte between two steps of a script.
const STEP_END: u8 = 0xff;
/// Parts of heads and bodies, inserted anywhere in a step.
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"0\r\n\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
];
/// Steps in the format of `fuzz_exchange`, inserted between others.
const STEPS: &[&[u8]] = &[
    b"C",
    b"S",
    b"R",
    b"X",
    b"n",
    b"t",
    b"ttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt",
    b"cGET /r HTTP/1.1\r\nHost: h\r\n\r\n",
    b"cGET /x HTTP/1.1\r\nHost: h\r\n\r\n",
    b"cPOST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    b"cPOST /s?s=9&B=2 HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n",
    b"cGET /s?s=9&t=2000 HTTP/1.1\r\nHost: h\r\n\r\n",
    b"sHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    b"sHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
    b"sHTTP/1.1 103 Early\r\n\r\n",
];

/// The corpus, sorted by name so that a seed means the same on every machine.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/exchange");
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a directory entry").path();
            let data =
                fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.display().to_string(), data)
        })
        .collect();
    files.sort();
    assert!(files.len() >= 5, "fewer than 5 files in {}", folder.display());
    files
}

#[test]
fn exchange_corpus_breaks_no_invariant() {
    for (name, data) in corpus() {
        assert!(catch_unwind(|| fuzz_exchange(&data)).is_ok(), "{name} breaks an invariant");
    }
}

#[test]
fn mutated_exchange_corpus_breaks_no_invariant() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDEGATE_SEEDS").unwrap_or(MUTATIONS),
    };
    let files = corpus();
    for seed in seeds {
        let script = mutate(&files, seed);
        assert!(
            catch_unwind(|| fuzz_exchange(&script)).is_ok(),
            "seed {seed} breaks an invariant with {:?}; replay: TIDEGATE_SEED={seed} cargo test --package \
             tidegate-server --test corpus",
            String::from_utf8_lossy(&script)
        );
    }
}

#[test]
fn script_that_requests_an_endless_response_ends() {
    let request = "cGET /s?s=1099511627776 HTTP/1.1\r\nHost: h\r\n\r\n";
    // The first byte selects a network without faults, then one with short writes.
    for faults in ["\0", "\x01"] {
        fuzz_exchange(format!("{faults}{request}").as_bytes());
    }
}

#[test]
fn seed_determines_the_script() {
    let files = corpus();
    assert_eq!(mutate(&files, 7), mutate(&files, 7));
    assert!((0..20).any(|seed| mutate(&files, seed) != mutate(&files, seed + 1)));
}

/// A file of the corpus with a few changes. Most of them move, copy or remove whole steps, which keeps heads
/// well-formed and changes the order of events; some change single bytes.
fn mutate(files: &[(String, Vec<u8>)], seed: u64) -> Vec<u8> {
    let mut prng = Prng::new(seed);
    let mut pick = |below: usize| prng.below(below as u64) as usize;
    let (&faults, script) = files[pick(files.len())].1.split_first().unwrap_or((&0, &[]));
    let mut steps: Vec<Vec<u8>> = script.split(|&byte| byte == STEP_END).map(Vec::from).collect();
    for _ in 0..1 + pick(4) {
        let at = pick(steps.len() + 1);
        let step = steps.get(at).cloned();
        match (pick(8), step) {
            (0, Some(_)) => drop(steps.remove(at)),
            (1, Some(step)) => steps.insert(pick(steps.len() + 1), step),
            (2, Some(step)) => steps[at].truncate(1 + pick(step.len().max(1))),
            (3, Some(step)) if step.len() > 1 => {
                let (first, rest) = step.split_at(1 + pick(step.len() - 1));
                steps[at] = first.to_vec();
                steps.insert(at + 1, [&step[..1], rest].concat());
            }
            (4, Some(_)) => {
                let other = &files[pick(files.len())].1;
                let others: Vec<&[u8]> = other.split(|&byte| byte == STEP_END).skip(1).collect();
                if !others.is_empty() {
                    steps.insert(at, others[pick(others.len())].to_vec());
                }
            }
            (5, Some(step)) if !step.is_empty() => {
                steps[at][pick(step.len())] ^= 1 << pick(8);
            }
            (6, Some(step)) => {
                let place = pick(step.len() + 1);
                steps[at].splice(place..place, PIECES[pick(PIECES.len())].iter().copied());
            }
            _ => steps.insert(at, STEPS[pick(STEPS.len())].to_vec()),
        }
    }
    let mut mutated = vec![if pick(2) == 0 { faults } else { pick(256) as u8 }];
    mutated.extend(steps.join(&STEP_END));
    mutated
}
