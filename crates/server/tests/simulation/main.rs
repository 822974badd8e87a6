//! The whole server on the simulator: hundreds of seeds, named cases, and canaries that must fail.
//! In: seeds. Out: a failing seed with the command that replays it.
//! TIDEGATE_SEEDS: how many; TIDEGATE_SEED: this one alone; TIDEGATE_TRACE=1: a line for each event.
//! Never: waits for a real clock.

mod client;
mod ledger;
mod line;
mod named;
mod opening;
mod origin;
#[allow(dead_code, reason = "shared by several tests, each of which uses a part")]
#[path = "../peer/mod.rs"]
mod peer;
mod plan;
mod proxied;
mod run;
mod secured;

use std::panic::{AssertUnwindSafe, catch_unwind};

use ledger::Ledger;
use origin::Lie;

const SEEDS_DEFAULT: u64 = 800;
/// Failing seeds after which a run gives up.
const FAILURES_MAX: usize = 10;

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn play(seed: u64, lie: Option<Lie>) -> Result<Ledger, String> {
    let traces = std::env::var("TIDEGATE_TRACE").is_ok_and(|value| value == "1");
    let traces = traces && lie.is_none();
    catch_unwind(AssertUnwindSafe(|| run::play(seed, traces, lie)))
        .unwrap_or_else(|_| Err("it panicked (see above)".to_owned()))
}

#[test]
fn no_seed_breaks_a_promise() {
    let (first, count) = match env_number("TIDEGATE_SEED") {
        Some(seed) => (seed, 1),
        None => (0, env_number("TIDEGATE_SEEDS").unwrap_or(SEEDS_DEFAULT)),
    };
    let mut failures = Vec::new();
    let (mut good, mut failed, mut cut, mut resends, mut tunnels) = (0, 0, 0, 0, 0);
    let (mut refused, mut told_again) = (0, 0);
    let (mut handshakes, mut resumptions, mut truncations) = (0, 0, 0);
    for seed in first..first + count {
        match play(seed, None) {
            Ok(ledger) => {
                good += ledger.answers_good;
                failed += ledger.answers_failed;
                cut += ledger.answers_cut;
                resends += ledger.resends;
                tunnels += ledger.tunnels;
                refused += ledger.refused;
                told_again += ledger.told_again;
                handshakes += ledger.handshakes;
                resumptions += ledger.resumptions;
                truncations += ledger.truncations;
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
        "{count} seeds: {good} answers ({failed} of them failures), {cut} cut, {resends} sent \
         again, {tunnels} tunnels, {refused} refused for their header, {told_again} requests more \
         on connections with one, {handshakes} handshakes ({resumptions} resumed), {truncations} \
         truncations"
    );
    if count > 100 {
        let all = [good, failed, cut, resends, tunnels, refused, told_again];
        let all = [&all[..], &[handshakes, resumptions, truncations]].concat();
        assert!(all.iter().all(|number| *number > 0), "the seeds no longer reach all of {all:?}");
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..20 {
        let seen = || play(seed, None).map(|ledger| (ledger.answers_good, ledger.trace_hash));
        assert_eq!(seen(), seen());
    }
}

/// How many of the first seeds end with a violation that speaks of `word`.
fn caught(lie: Lie, word: &str) -> usize {
    (0..30).filter(|&seed| play(seed, Some(lie)).is_err_and(|text| text.contains(word))).count()
}

#[test]
fn a_canary_that_lies_about_the_hash_is_caught() {
    assert!(caught(Lie::Hash, "hashed") > 10);
}

#[test]
fn a_canary_that_tells_a_wrong_length_is_caught() {
    assert!(caught(Lie::Bytes, "looks whole") > 10);
}

#[test]
fn a_canary_that_takes_a_client_for_another_one_is_caught() {
    assert!(caught(Lie::Name, "got a request of") > 2);
}

#[test]
fn a_canary_that_answers_somebody_else_is_caught() {
    assert!(caught(Lie::Id, "got the answer to") > 10);
}
