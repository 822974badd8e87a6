//! The experiment: each candidate alone, then in order on top of what was kept.
//! In: a host, the open journal, candidates, something that measures. Out: a `Proof`.
//! Never: leaves a change behind: whatever way it ends, everything is undone from the journal before it
//! returns (the caller applies again what the user wants kept).
//! Invariant: a pair is measured with the same settings but for the one in question, the two in
//! alternating order, so that drift of the machine cancels.

use crate::action::Action;
use crate::apply::{ApplyError, apply};
use crate::host::Host;
use crate::journal::Journal;
use crate::prove::statistics::{Interval, interval, median};
use crate::undo::undo_after;
use std::fmt;

/// What is tried.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The item's name.
    pub id: String,
    /// Its actions.
    pub actions: Vec<Action>,
}

/// What one round of load saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// CPU time of the server's CPUs per request.
    pub cpu_us_per_request: f64,
    /// Requests a second; informative only.
    pub requests_per_s: f64,
    /// 99th percentile; `None` when the client does not say.
    pub p99_us: Option<f64>,
}

/// Something that puts load on a server once and says what a request cost.
pub trait Measure {
    /// One round.
    ///
    /// # Errors
    /// What went wrong, in words for the user.
    fn round(&mut self) -> Result<Sample, String>;
}

/// How one candidate did.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Its name.
    pub id: String,
    /// CPU per request with it against without: below 1 is a gain.
    pub ratio: Interval,
    /// CPU per request without it, median.
    pub before_us: f64,
    /// CPU per request with it, median.
    pub after_us: f64,
    /// Whether the gain is larger than the noise and its interval lies wholly below 1.
    pub helps: bool,
}

/// The whole experiment.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// The same settings against themselves: what is not a gain.
    pub noise: Option<Interval>,
    /// CPU per request as the host was found, median.
    pub baseline_us: f64,
    /// Requests a second as the host was found, median.
    pub baseline_requests_per_s: f64,
    /// 99th percentile as the host was found, median.
    pub baseline_p99_us: Option<f64>,
    /// Each candidate alone.
    pub alone: Vec<Trial>,
    /// In order, each on top of those that helped.
    pub in_order: Vec<Trial>,
    /// Candidates that could not be applied, with the reason.
    pub failed: Vec<(String, String)>,
    /// Ended before its time.
    pub interrupted: bool,
}

impl Proof {
    /// Names of what helped on top of each other.
    #[must_use]
    pub fn kept(&self) -> Vec<&str> {
        self.in_order.iter().filter(|trial| trial.helps).map(|trial| trial.id.as_str()).collect()
    }
}

/// Why an experiment ended without a result.
#[derive(Debug)]
pub enum TrialError {
    /// The journal or the host refused.
    Apply(ApplyError),
    /// The user ended it.
    Interrupted,
    /// The load could not be run.
    Measure(String),
    /// Something could not be put back; the journal still has it.
    NotRestored(String),
}

impl fmt::Display for TrialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(error) => error.fmt(f),
            Self::Interrupted => write!(f, "interrupted; everything is put back"),
            Self::Measure(reason) => write!(f, "the load cannot be run: {reason}"),
            Self::NotRestored(target) => {
                write!(f, "{target} could not be put back; see `tidegate tune undo`")
            }
        }
    }
}

impl std::error::Error for TrialError {}

/// CPU per request without and with a candidate.
type Pair = (f64, f64);

/// What an experiment works with.
pub struct Bench<'a> {
    /// The host that is changed.
    pub host: &'a Host,
    /// Where changes are written down first.
    pub journal: &'a mut Journal,
    /// What measures.
    pub measure: &'a mut dyn Measure,
    /// Pairs for each candidate.
    pub rounds: usize,
    /// Asked before each round; true ends the experiment.
    pub stopped: &'a dyn Fn() -> bool,
    /// Told what happens, for a progress line.
    pub tell: &'a mut dyn FnMut(&str),
}

/// Runs the experiment and undoes everything it did.
///
/// # Errors
/// [`TrialError`] when nothing was learned; an interruption after the first result gives what there is.
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
        (self.tell)("warming up");
        self.sample()?;
        (self.tell)("noise: the host as found against itself");
        let none = Candidate { id: "noise".to_owned(), actions: Vec::new() };
        let (pairs, samples) = self.pairs(&none)?;
        let noise = ratio_of(&pairs).ok_or_else(|| TrialError::Measure("no rounds".to_owned()))?;
        let of = |pick: fn(&Sample) -> f64| median(&samples.iter().map(pick).collect::<Vec<_>>());
        proof.baseline_us = of(|sample| sample.cpu_us_per_request).unwrap_or(0.0);
        proof.baseline_requests_per_s = of(|sample| sample.requests_per_s).unwrap_or(0.0);
        proof.baseline_p99_us = of(|sample| sample.p99_us.unwrap_or(f64::NAN));
        proof.noise = Some(noise);
        for candidate in candidates {
            (self.tell)(&format!("{} alone", candidate.id));
            match self.trial(candidate, &noise) {
                Ok(trial) => proof.alone.push(trial),
                Err(TrialError::Apply(ApplyError::Action(error))) => {
                    proof.failed.push((candidate.id.clone(), error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        // The largest gain first, as it was measured here, so that each next one stands on firm ground.
        let mut order: Vec<(f64, &Candidate)> = candidates
            .iter()
            .filter_map(|candidate| {
                let trial = proof.alone.iter().find(|trial| trial.id == candidate.id)?;
                Some((trial.ratio.median, candidate))
            })
            .collect();
        order.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (_, candidate) in order {
            (self.tell)(&format!("{} on top of what helped", candidate.id));
            let trial = self.trial(candidate, &noise)?;
            if trial.helps {
                self.put_in_place(candidate)?;
            }
            proof.in_order.push(trial);
        }
        Ok(())
    }

    /// Measures one candidate against the host as it is now; leaves the host so.
    fn trial(&mut self, candidate: &Candidate, noise: &Interval) -> Result<Trial, TrialError> {
        let (pairs, _) = self.pairs(candidate)?;
        let ratio = ratio_of(&pairs).ok_or_else(|| TrialError::Measure("no rounds".to_owned()))?;
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
        // A key that ends the load ends the experiment; what the load then says is not its fault.
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

fn ratio_of(pairs: &[Pair]) -> Option<Interval> {
    let ratios: Vec<f64> = pairs
        .iter()
        .filter(|(without, with)| *without > 0.0 && *with > 0.0)
        .map(|(without, with)| with / without)
        .collect();
    interval(&ratios, 0x7469_6465)
}
