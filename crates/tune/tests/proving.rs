//! The experiment with a scripted load: changes that help are found, others are not, and the host is restored
//! however the experiment ends.

mod support;

use std::cell::Cell;
use support::Scratch;
use tidegate_base::Prng;
use tidegate_base::statistics::Estimate;
use tidegate_tune::action::Action;
use tidegate_tune::host::Host;
use tidegate_tune::journal::Journal;
use tidegate_tune::prove::trial::{
    Bench, Candidate, Measure, Proof, Sample, TrialError, experiment,
};
use tidegate_tune::prove::waterfall::{ProofReport, html, svg, text};

const GOOD: &str = "/proc/sys/net/core/somaxconn";
const ALSO_GOOD: &str = "/proc/sys/net/core/busy_poll";
const BAD: &str = "/proc/sys/vm/swappiness";
const IDLE: &str = "/proc/sys/vm/max_map_count";

/// A load whose cost depends on the settings of the tree, with seeded noise.
struct Scripted<'a> {
    host: &'a Host,
    prng: Prng,
    rounds: &'a Cell<usize>,
    fails_at: usize,
}

impl Measure for Scripted<'_> {
    fn round(&mut self) -> Result<Sample, String> {
        self.rounds.set(self.rounds.get() + 1);
        if self.rounds.get() == self.fails_at {
            return Err("the server crashed".to_owned());
        }
        let is = |path, value| self.host.read(path).as_deref() == Ok(value);
        let mut cost = 10.0;
        cost *= if is(GOOD, "4096") { 0.8 } else { 1.0 };
        cost *= if is(ALSO_GOOD, "1") { 0.9 } else { 1.0 };
        cost *= if is(BAD, "1") { 1.2 } else { 1.0 };
        // Noise of up to 2 % from round to round.
        cost *= 0.98 + self.prng.below(4000) as f64 / 100_000.0;
        Ok(Sample { cpu_us_per_request: cost, requests_per_s: 1e5, p99_us: Some(900.0) })
    }
}

fn candidates() -> Vec<Candidate> {
    let one = |id: &str, path, value: &str| Candidate {
        id: id.to_owned(),
        actions: vec![Action::setting(path, value)],
    };
    vec![
        one("bad", BAD, "1"),
        one("also-good", ALSO_GOOD, "1"),
        one("idle", IDLE, "70000"),
        one("good", GOOD, "4096"),
    ]
}

/// Runs the experiment; it stops after `stop_at` rounds, and the load fails at round `fails_at`.
fn run(
    tree: &Scratch,
    candidates: &[Candidate],
    stop_at: usize,
    fails_at: usize,
) -> (Result<Proof, TrialError>, usize) {
    let state = Scratch::new();
    let host = Host::recorded(&tree.0);
    let mut journal = Journal::open(&state.0).unwrap();
    let rounds = Cell::new(0);
    let mut measure = Scripted { host: &host, prng: Prng::new(7), rounds: &rounds, fails_at };
    let mut bench = Bench {
        host: &host,
        journal: &mut journal,
        measure: &mut measure,
        rounds: 7,
        stopped: &|| rounds.get() >= stop_at,
        progress: &mut |_| {},
    };
    let result = experiment(&mut bench, candidates);
    assert!(journal.outstanding().is_empty());
    (result, rounds.get())
}

#[test]
fn only_changes_that_help_are_kept() {
    let tree = Scratch::of_host("ena-vm");
    let before = tree.contents();
    let (proof, _) = run(&tree, &candidates(), usize::MAX, 0);
    let proof = proof.unwrap();
    assert_eq!(proof.kept(), ["good", "also-good"], "the larger gain comes first");
    let alone = |id: &str| proof.alone.iter().find(|trial| trial.id == id).unwrap();
    assert!((alone("good").ratio.median - 0.8).abs() < 0.02);
    assert!(alone("bad").ratio.low > 1.0 && !alone("bad").helps);
    assert!(!alone("idle").helps, "no gain above the noise");
    assert_eq!(before, tree.contents(), "all changes are undone");
}

#[test]
fn interruption_at_any_round_undoes_all_changes() {
    let tree = Scratch::of_host("ena-vm");
    let before = tree.contents();
    let mut stop_at = 0;
    loop {
        let (result, rounds) = run(&tree, &candidates(), stop_at, 0);
        assert_eq!(before, tree.contents(), "stopped at round {stop_at}");
        match result {
            Err(TrialError::Interrupted) => assert!(stop_at <= 15, "measured results were lost"),
            Ok(proof) if proof.interrupted => {}
            Ok(_) => {
                assert!(rounds >= 100);
                break;
            }
            Err(error) => panic!("{error}"),
        }
        stop_at += 9;
    }
}

#[test]
fn failing_load_leaves_no_change_behind() {
    let tree = Scratch::of_host("ena-vm");
    let before = tree.contents();
    for fails_at in [1, 2, 17, 40, 99] {
        let (result, _) = run(&tree, &candidates(), usize::MAX, fails_at);
        assert!(matches!(result, Err(TrialError::Measure(_))));
        assert_eq!(before, tree.contents(), "failed at round {fails_at}");
    }
}

#[test]
fn failed_candidate_is_reported_and_the_others_are_measured() {
    let tree = Scratch::of_host("ena-vm");
    let mut all = candidates();
    let missing = Action::setting("/proc/sys/no/such", 1);
    all.insert(0, Candidate { id: "missing".to_owned(), actions: vec![missing] });
    let (proof, _) = run(&tree, &all, usize::MAX, 0);
    let proof = proof.unwrap();
    assert_eq!(proof.failed.len(), 1);
    assert_eq!(proof.kept().len(), 2);
}

#[test]
fn report_states_that_no_change_helps() {
    let tree = Scratch::of_host("ena-vm");
    let (proof, _) = run(&tree, &candidates()[..1], usize::MAX, 0);
    let report = ProofReport {
        environment: "a <place>".to_owned(),
        method: "scripted".to_owned(),
        proof: proof.unwrap(),
        not_tried: vec![("x".to_owned(), "a & b".to_owned())],
        demonstrations: Vec::new(),
    };
    assert!(text(&report).contains("None of the 1 measured changes saves more CPU"));
    assert!(html(&report).contains("a &lt;place&gt;") && html(&report).contains("a &amp; b"));
    assert!(svg(&report.proof).starts_with("<svg xmlns"));
}

#[test]
fn interval_contains_the_true_value_in_at_least_90_percent() {
    let mut prng = Prng::new(3);
    let mut inside = 0;
    for seed in 0..200 {
        let values: Vec<f64> =
            (0..11).map(|_| 1.0 + (prng.below(2001) as f64 - 1000.0) / 1e4).collect();
        let found = Estimate::of(&values, seed);
        inside += u32::from(found.low <= 1.0 && 1.0 <= found.high);
    }
    assert!(inside >= 180, "{inside} of 200");
}
