//! The experiment: each candidate alone, then in order on top of the candidates that helped.
//! In: a host, the open journal, candidates, a `Measure`. Out: a `Proof`.
//! Never: leaves a change behind: however it ends, all changes are undone from the journal before it returns (the
//! caller applies again those that the user wants to keep).
//! Invariant: the two rounds of a pair differ only in the candidate. Their order alternates, so that drift of the
//! machine cancels out.

use crate::action::Action;
use crate::apply::{ApplyError, apply};
use crate::host::Host;
use crate::journal::Journal;
use crate::undo::undo_after;
use std::fmt;
use tidegate_base::statistics::{Estimate, median};

/// A change to try.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The name of the item.
    pub id: String,
    /// The actions of the change.
    pub actions: Vec<Action>,
}

/// The result of one round of load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// CPU time of the server CPUs per request.
    pub cpu_us_per_request: f64,
    /// Requests per second; for information only.
    pub requests_per_s: f64,
    /// 99th percentile of the latency; `None` if the client does not report it.
    pub p99_us: Option<f64>,
}

/// Puts load on a server for one round and measures the cost of a request.
pub trait Measure {
    /// One round.
    ///
    /// # Errors
    /// A message for the user.
    fn round(&mut self) -> Result<Sample, String>;
}

/// The result of one candidate.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The name of the candidate.
    pub id: String,
    /// CPU per request with the candidate divided by that without: below 1 is a gain.
    pub ratio: Estimate,
    /// Median CPU per request without the candidate.
    pub before_us: f64,
    /// Median CPU per request with the candidate.
    pub after_us: f64,
    /// Whether the gain is larger than the noise and the whole interval is below 1.
    pub helps: bool,
}

/// The result of the experiment.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// The ratio of the unchanged host against itself; `None` if it was not measured.
    pub noise: Option<Estimate>,
    /// Median CPU per request of the unchanged host.
    pub baseline_us: f64,
    /// Median requests per second of the unchanged host.
    pub baseline_requests_per_s: f64,
    /// Median 99th percentile of the latency of the unchanged host.
    pub baseline_p99_us: Option<f64>,
    /// Results of each candidate alone.
    pub alone: Vec<Trial>,
    /// Results in order, each on top of the candidates that helped.
    pub in_order: Vec<Trial>,
    /// Candidates that could not be applied, with the reason.
    pub failed: Vec<(String, String)>,
    /// Whether the user interrupted the experiment.
    pub interrupted: bool,
}

impl Proof {
    /// Names of the candidates that helped on top of each other.
    #[must_use]
    pub fn kept(&self) -> Vec<&str> {
        self.in_order.iter().filter(|trial| trial.helps).map(|trial| trial.id.as_str()).collect()
    }
}

/// Why an experiment ended without a result.
#[derive(Debug)]
pub enum TrialError {
    /// A change failed, or the journal could not be written.
    Apply(ApplyError),
    /// The user interrupted it.
    Interrupted,
    /// The load could not be run.
    Measure(String),
    /// A change could not be undone and stays in the journal; its target.
    NotRestored(String),
}

impl fmt::Display for TrialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(error) => error.fmt(f),
            Self::Interrupted => write!(f, "interrupted; all changes were undone"),
            Self::Measure(reason) => write!(f, "the load failed: {reason}"),
            Self::NotRestored(target) => {
                write!(
                    f,
                    "{target} could not be restored; help: run `tidegate tune undo`, with the same --state, which reports the reason"
                )
            }
        }
    }
}

impl std::error::Error for TrialError {}

/// CPU per request without and with a candidate.
type Pair = (f64, f64);

/// The inputs of an experiment.
pub struct Bench<'a> {
    /// The host to change.
    pub host: &'a Host,
    /// The journal, which records each change first.
    pub journal: &'a mut Journal,
    /// Measures one round.
    pub measure: &'a mut dyn Measure,
    /// Pairs of rounds for each candidate.
    pub rounds: usize,
    /// Called before and after each round; true ends the experiment.
    pub stopped: &'a dyn Fn() -> bool,
    /// Receives progress messages.
    pub progress: &'a mut dyn FnMut(&str),
}

/// Runs the experiment and undoes all its changes.
///
/// # Errors
/// [`TrialError`] if there is no result. If the user interrupts after the noise was measured, the result so far is
/// returned.
pub fn experiment(bench: &mut Bench<'_>, candidates: &[Candidate]) -> Result<Proof, TrialError> {
    let first = bench.last_step();
    let mut proof = Proof::default();
    let result = bench.run(candidates, &mut proof);
    bench.put_back(first)?;
    match result {
        Ok(()) => Ok(proof),
        Err(TrialError::Interrupted) if proof.noise.is_some() => {
            proof.interrupted = true;
            Ok(proof)
        }
        Err(error) => Err(error),
    }
}

impl Bench<'_> {
    fn run(&mut self, candidates: &[Candidate], proof: &mut Proof) -> Result<(), TrialError> {
        (self.progress)("warming up");
        self.sample()?;
        (self.progress)("noise: the unchanged host against itself");
        let none = Candidate { id: "noise".to_owned(), actions: Vec::new() };
        let (pairs, samples) = self.pairs(&none)?;
        let noise =
            ratio_of(&pairs).ok_or_else(|| TrialError::Measure("no valid rounds".to_owned()))?;
        let of = |pick: fn(&Sample) -> f64| median(&samples.iter().map(pick).collect::<Vec<_>>());
        proof.baseline_us = of(|sample| sample.cpu_us_per_request).unwrap_or(0.0);
        proof.baseline_requests_per_s = of(|sample| sample.requests_per_s).unwrap_or(0.0);
        proof.baseline_p99_us = of(|sample| sample.p99_us.unwrap_or(f64::NAN));
        proof.noise = Some(noise);
        for candidate in candidates {
            (self.progress)(&format!("{} alone", candidate.id));
            match self.trial(candidate, &noise) {
                Ok(trial) => proof.alone.push(trial),
                Err(TrialError::Apply(ApplyError::Action(error))) => {
                    proof.failed.push((candidate.id.clone(), error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        // In order of the measured gain, largest first.
        let mut order: Vec<(f64, &Candidate)> = candidates
            .iter()
            .filter_map(|candidate| {
                let trial = proof.alone.iter().find(|trial| trial.id == candidate.id)?;
                Some((trial.ratio.median, candidate))
            })
            .collect();
        order.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (_, candidate) in order {
            (self.progress)(&format!("{} on top of the changes that helped", candidate.id));
            let trial = self.trial(candidate, &noise)?;
            if trial.helps {
                self.put_in_place(candidate)?;
            }
            proof.in_order.push(trial);
        }
        Ok(())
    }

    /// Measures one candidate against the current state of the host, and restores that state.
    fn trial(&mut self, candidate: &Candidate, noise: &Estimate) -> Result<Trial, TrialError> {
        let (pairs, _) = self.pairs(candidate)?;
        let ratio =
            ratio_of(&pairs).ok_or_else(|| TrialError::Measure("no valid rounds".to_owned()))?;
        let side = |pick: fn(&Pair) -> f64| {
            median(&pairs.iter().map(pick).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        Ok(Trial {
            id: candidate.id.clone(),
            ratio,
            before_us: side(|pair| pair.0),
            after_us: side(|pair| pair.1),
            helps: ratio.high < 1.0 && 1.0 - ratio.median > noise.noise(),
        })
    }

    /// Pairs of CPU per request, without and with the candidate, and all samples without it.
    fn pairs(&mut self, candidate: &Candidate) -> Result<(Vec<Pair>, Vec<Sample>), TrialError> {
        let (mut pairs, mut samples) = (Vec::new(), Vec::new());
        for round in 0..self.rounds {
            let with_first = round % 2 == 1;
            let mut with = None;
            if with_first {
                with = Some(self.sample_with(candidate)?);
            }
            let without = self.sample()?;
            let with = match with {
                Some(sample) => sample,
                None => self.sample_with(candidate)?,
            };
            pairs.push((without.cpu_us_per_request, with.cpu_us_per_request));
            samples.push(without);
        }
        Ok((pairs, samples))
    }

    fn sample_with(&mut self, candidate: &Candidate) -> Result<Sample, TrialError> {
        let first = self.last_step();
        self.put_in_place(candidate)?;
        let sample = self.sample();
        self.put_back(first)?;
        sample
    }

    fn sample(&mut self) -> Result<Sample, TrialError> {
        if (self.stopped)() {
            return Err(TrialError::Interrupted);
        }
        let result = self.measure.round();
        // Ctrl-C also stops the load. The experiment then ends, and the error of the load is ignored.
        if (self.stopped)() {
            return Err(TrialError::Interrupted);
        }
        result.map_err(TrialError::Measure)
    }

    fn put_in_place(&mut self, candidate: &Candidate) -> Result<(), TrialError> {
        apply(self.host, self.journal, &candidate.id, &candidate.actions, &mut |_| false)
            .map(drop)
            .map_err(TrialError::Apply)
    }

    fn put_back(&mut self, first: u64) -> Result<(), TrialError> {
        let fates = undo_after(self.host, self.journal, first)
            .map_err(|error| TrialError::Apply(error.into()))?;
        self.journal.tidy().map_err(|error| TrialError::Apply(error.into()))?;
        match fates.iter().find(|undone| undone.is_left()) {
            Some(undone) => Err(TrialError::NotRestored(undone.step.action.target())),
            None => Ok(()),
        }
    }

    fn last_step(&self) -> u64 {
        self.journal.outstanding().last().map_or(0, |step| step.number)
    }
}

fn ratio_of(pairs: &[Pair]) -> Option<Estimate> {
    let ratios: Vec<f64> = pairs
        .iter()
        .filter(|(without, with)| *without > 0.0 && *with > 0.0)
        .map(|(without, with)| with / without)
        .collect();
    let estimate = Estimate::of(&ratios, 0x7469_6465);
    estimate.median.is_finite().then_some(estimate)
}
