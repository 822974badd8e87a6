//! Statistics of paired measurements: medians and their confidence intervals.
//! In: numbers. Out: an `Interval`. Never: reads a clock or system randomness; the resampling is seeded, so the
//! same numbers give the same report.
//! Source: percentile bootstrap (Efron 1979) of the median of ratios.

use tidegate_base::Prng;

/// Number of bootstrap resamples.
pub const RESAMPLES: usize = 4000;
/// Minimum number of rounds for a meaningful interval.
pub const ROUNDS_MIN: usize = 5;

/// A median with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// Lower bound: 2.5 % of the resampled medians are below it.
    pub low: f64,
    /// Upper bound: 2.5 % of the resampled medians are above it.
    pub high: f64,
}

impl Interval {
    /// The larger distance of a bound from 1: the error of a measured ratio of two equal quantities.
    #[must_use]
    pub fn noise(&self) -> f64 {
        (1.0 - self.low).abs().max((self.high - 1.0).abs())
    }
}

/// The median of the finite values; `None` if there are none.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(middle.checked_sub(1)?)?;
    Some(f64::midpoint(lower, upper))
}

/// The median of `values` with its bootstrap interval; `None` if there are no finite values.
#[must_use]
pub fn interval(values: &[f64], seed: u64) -> Option<Interval> {
    let middle = median(values)?;
    let mut prng = Prng::new(seed);
    let mut medians: Vec<f64> = Vec::with_capacity(RESAMPLES);
    let mut sample = Vec::with_capacity(values.len());
    for _ in 0..RESAMPLES {
        sample.clear();
        for _ in values {
            sample.extend(values.get(prng.below(values.len() as u64) as usize));
        }
        medians.extend(median(&sample));
    }
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians.get((medians.len() as f64 * share) as usize).copied();
    Some(Interval { median: middle, low: at(0.025)?, high: at(0.975)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_count_is_the_mean_of_the_middle_values() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn interval_width_follows_the_scatter_of_the_values() {
        let narrow = interval(&[1.0; 7], 1).unwrap();
        assert_eq!((narrow.low, narrow.high), (1.0, 1.0));
        let wide = interval(&[0.8, 0.9, 1.0, 1.1, 1.2, 0.95, 1.05], 1).unwrap();
        assert!(wide.low < 1.0 && wide.high > 1.0);
        assert!(wide.noise() > 0.0);
    }

    #[test]
    fn same_seed_gives_same_interval() {
        let values = [0.97, 1.01, 0.99, 1.02, 0.96];
        assert_eq!(interval(&values, 9), interval(&values, 9));
    }
}
