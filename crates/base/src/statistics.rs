//! Medians and their uncertainty, for a small number of paired rounds; percentiles of latencies are in `bench::histogram`.
//! In: one number for each round, and a seed. Out: a median with its bootstrap interval.
//! Never: assumes a normal distribution; uses randomness other than the seed. The same numbers and seed give the
//! same interval.
//! Source: percentile bootstrap (Efron 1979).

use crate::Prng;

/// Number of resamples for one interval: enough for two digits.
pub const RESAMPLES: usize = 4000;

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median; NaN if there were no finite values.
    pub median: f64,
    /// 2.5 % of the resampled medians lie below.
    pub low: f64,
    /// 2.5 % of the resampled medians lie above.
    pub high: f64,
}

impl Estimate {
    /// The estimate if there are no finite values.
    const UNKNOWN: Self = Self { median: f64::NAN, low: f64::NAN, high: f64::NAN };

    /// The median of the finite `values` with its interval.
    #[must_use]
    pub fn of(values: &[f64], seed: u64) -> Self {
        let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let Some(middle) = median(&values) else { return Self::UNKNOWN };
        let mut prng = Prng::new(seed);
        let mut resample = vec![0.0; values.len()];
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .filter_map(|_| {
                for slot in &mut resample {
                    *slot = values[prng.below(values.len() as u64) as usize];
                }
                median(&resample)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        Self {
            median: middle,
            low: medians[RESAMPLES / 40],
            high: medians[RESAMPLES - 1 - RESAMPLES / 40],
        }
    }

    /// The ratios `these[i] / those[i]` of the rounds that both completed.
    #[must_use]
    pub fn of_ratios(these: &[f64], those: &[f64], seed: u64) -> Self {
        let ratios: Vec<f64> = these.iter().zip(those).map(|(this, that)| this / that).collect();
        Self::of(&ratios, seed)
    }

    /// How far the interval reaches from 1. If both quantities are equal, this is the error of the measurement.
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
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[length / 2]),
        length => Some(f64::midpoint(sorted[length / 2 - 1], sorted[length / 2])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_does_not_depend_on_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[4.0, f64::INFINITY, f64::NAN]), Some(4.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn interval_contains_the_median_and_shrinks_with_agreement() {
        let loose = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0], 1);
        let tight = Estimate::of(&[2.9, 3.0, 3.0, 3.0, 3.1], 1);
        assert!(loose.low <= loose.median && loose.median <= loose.high);
        assert!(tight.high - tight.low < loose.high - loose.low);
        assert_eq!(Estimate::of(&[7.0], 1), Estimate { median: 7.0, low: 7.0, high: 7.0 });
        assert!(Estimate::of(&[f64::NAN], 1).median.is_nan());
    }

    #[test]
    fn noise_is_the_larger_distance_from_one() {
        assert_eq!(Estimate::of(&[1.0; 7], 1).noise(), 0.0);
        let wide = Estimate::of(&[0.8, 0.9, 1.0, 1.1, 1.2, 0.95, 1.05], 1);
        assert!(wide.low < 1.0 && wide.high > 1.0 && wide.noise() > 0.0);
    }

    #[test]
    fn same_seed_gives_same_interval() {
        let values = [0.97, 1.01, 0.99, 1.02, 0.96];
        assert_eq!(Estimate::of(&values, 9), Estimate::of(&values, 9));
    }

    #[test]
    fn common_drift_does_not_change_the_ratio() {
        let ratio = Estimate::of_ratios(&[2.0, 4.0, 8.0], &[1.0, 2.0, 4.0], 1);
        assert_eq!(ratio, Estimate { median: 2.0, low: 2.0, high: 2.0 });
    }
}
