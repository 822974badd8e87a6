//! The ratios of each candidate to the first one, taken within rounds: one list for all forms of a report.
//! In: the figures of the rounds of two candidates. Out: an estimate for each figure.

use tidegate_base::statistics::Estimate;

use super::{RoundFigures, Run, SPREAD_SEED};

/// A figure whose ratios are in the reports.
pub(super) struct Figure {
    /// Its name in messages and pages.
    pub(super) name: &'static str,
    /// Its name in JSON.
    pub(super) member: &'static str,
    of: fn(&RoundFigures) -> f64,
}

/// The figures, in the order of the reports.
pub(super) const FIGURES: [Figure; 5] = [
    Figure {
        name: "server CPU/request",
        member: "server_cpu_us_per_request",
        of: |round| round.server_cpu_us,
    },
    Figure { name: "requests/s", member: "rate_per_s", of: |round| round.rate_per_s },
    Figure { name: "p50", member: "p50_us", of: |round| round.p50_us },
    Figure { name: "p99", member: "p99_us", of: |round| round.p99_us },
    Figure { name: "p99.9", member: "p99_9_us", of: |round| round.p99_9_us },
];

impl Figure {
    /// The ratio of `run` to `first`. The ratio is not finite if a run lacks the figure.
    pub(super) fn ratio(&self, run: &Run, first: &Run) -> Estimate {
        let figures = |run: &Run| -> Vec<f64> { run.rounds.iter().map(self.of).collect() };
        Estimate::of_ratios(&figures(run), &figures(first), SPREAD_SEED)
    }
}
