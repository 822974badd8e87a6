//! Runs whole workers on the simulator: hundreds of random runs, named cases, and canaries that must fail.
//! In: seeds. TIDEGATE_SEEDS sets their number, TIDEGATE_SEED plays a single one, TIDEGATE_TRACE=1 prints a
//! line for each event. Out: each failing seed, with the command that replays it.
//! Never: waits for a real clock.

mod client;
mod floods;
mod line;
mod named;
mod oracle;
mod origin;
#[allow(dead_code, reason = "shared by several tests, each of which uses a part")]
#[path = "../peer/mod.rs"]
mod peer;
mod plan;
mod proxy_header;
mod proxy_protocol;
mod run;
mod secured;
mod stage;

use std::panic::{AssertUnwindSafe, catch_unwind};

use oracle::Oracle;
use origin::Lie;

const SEEDS_DEFAULT: u64 = 800;
/// The test stops after this many failing seeds.
const FAILURES_MAX: usize = 10;

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn play(seed: u64, lie: Option<Lie>) -> Result<Oracle, String> {
    let traces = std::env::var("TIDEGATE_TRACE").is_ok_and(|value| value == "1");
    let traces = traces && lie.is_none();
    catch_unwind(AssertUnwindSafe(|| run::play(seed, traces, lie)))
        .unwrap_or_else(|_| Err("the run panicked (see above)".to_owned()))
}

#[test]
fn no_seed_breaks_an_invariant() {
    let (first, count) = match env_number("TIDEGATE_SEED") {
        Some(seed) => (seed, 1),
        None => (0, env_number("TIDEGATE_SEEDS").unwrap_or(SEEDS_DEFAULT)),
    };
    let mut failures = Vec::new();
    let (mut good, mut failed, mut cut, mut resends, mut tunnels) = (0, 0, 0, 0, 0);
    let (mut refused, mut header_reuses) = (0, 0);
    let (mut handshakes, mut resumptions, mut truncations, mut evicted) = (0, 0, 0, 0);
    for seed in first..first + count {
        match play(seed, None) {
            Ok(oracle) => {
                good += oracle.answers_good;
                failed += oracle.answers_failed;
                cut += oracle.answers_cut;
                resends += oracle.resends;
                tunnels += oracle.tunnels;
                refused += oracle.refused;
                header_reuses += oracle.header_reuses;
                handshakes += oracle.handshakes;
                resumptions += oracle.resumptions;
                truncations += oracle.truncations;
                evicted += oracle.evicted;
            }
            Err(violation) => failures.push(format!(
                "seed {seed}: {violation}\n  replay: TIDEGATE_SEED={seed} TIDEGATE_TRACE=1 cargo \
                 test --package tidegate-server --test simulation no_seed -- --nocapture"
            )),
        }
        if failures.len() >= FAILURES_MAX {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    eprintln!(
        "{count} seeds: {good} responses ({failed} of them failures), {cut} cut off, {resends} \
         requests sent again, {tunnels} tunnels, {refused} invalid PROXY headers, {header_reuses} \
         further requests on connections with a PROXY header, {handshakes} TLS handshakes \
         ({resumptions} resumed), {truncations} TLS truncations, {evicted} connections closed to make room"
    );
    if count > 100 {
        let all = [good, failed, cut, resends, tunnels, refused, header_reuses];
        let all = [&all[..], &[handshakes, resumptions, truncations, evicted]].concat();
        assert!(
            all.iter().all(|number| *number > 0),
            "one of these numbers must not be 0: {all:?}"
        );
    }
}

#[test]
fn seed_repeats_its_run() {
    for seed in 0..20 {
        let seen = || play(seed, None).map(|oracle| (oracle.answers_good, oracle.trace_hash));
        assert_eq!(seen(), seen());
    }
}

/// How many of the first 30 seeds fail with a violation that contains `word`.
fn caught(lie: Lie, word: &str) -> usize {
    (0..30).filter(|&seed| play(seed, Some(lie)).is_err_and(|text| text.contains(word))).count()
}

#[test]
fn wrong_body_hash_is_caught() {
    assert!(caught(Lie::Hash, "reports the body hash") > 10);
}

#[test]
fn wrong_response_length_is_caught() {
    assert!(caught(Lie::Bytes, "ended cleanly after") > 10);
}

#[test]
fn wrong_client_identity_is_caught() {
    assert!(caught(Lie::Name, "carried a request of") > 2);
}

#[test]
fn response_to_another_request_is_caught() {
    assert!(caught(Lie::Id, "got the response to") > 10);
}
