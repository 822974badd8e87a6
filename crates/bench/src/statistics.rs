//! Medians and their uncertainty, for a small number of paired rounds, not for latencies.
//! In: one number for each round. Out: a median and its spread by resampling.
//! Never: assumes a normal distribution. Invariant: the same input gives the same output.

use tidegate_base::Prng;

/// Number of resamples for one spread: enough for two digits.
const RESAMPLES: usize = 2_000;

/// A median and the 95 % interval of the medians of resampled rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// 2.5 % of the resampled medians lie below.
    pub low: f64,
    /// 2.5 % of the resampled medians lie above.
    pub high: f64,
}

/// The median; NaN if `values` is empty.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

/// The median of `values` with its bootstrap interval (percentile method, fixed seed).
#[must_use]
pub fn estimate(values: &[f64]) -> Estimate {
    if values.is_empty() {
        return Estimate { median: f64::NAN, low: f64::NAN, high: f64::NAN };
    }
    let mut prng = Prng::new(0x7469_6465);
    let mut resample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for slot in &mut resample {
                *slot = values[prng.below(values.len() as u64) as usize];
            }
            median(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Estimate {
        median: median(values),
        low: medians[RESAMPLES / 40],
        high: medians[RESAMPLES - 1 - RESAMPLES / 40],
    }
}

/// The median of the ratios `these[i] / those[i]` over all rounds that both completed, with its spread.
#[must_use]
pub fn paired_ratio(these: &[f64], those: &[f64]) -> Estimate {
    let ratios: Vec<f64> = these.iter().zip(those).map(|(this, that)| this / that).collect();
    estimate(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_does_not_depend_on_order() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn interval_contains_the_median_and_shrinks_with_agreement() {
        let loose = estimate(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        let tight = estimate(&[2.9, 3.0, 3.0, 3.0, 3.1]);
        assert!(loose.low <= loose.median && loose.median <= loose.high);
        assert!(tight.high - tight.low < loose.high - loose.low);
        assert_eq!(estimate(&[7.0]), Estimate { median: 7.0, low: 7.0, high: 7.0 });
    }

    #[test]
    fn common_drift_does_not_change_the_paired_ratio() {
        let ratio = paired_ratio(&[2.0, 4.0, 8.0], &[1.0, 2.0, 4.0]);
        assert_eq!(ratio, Estimate { median: 2.0, low: 2.0, high: 2.0 });
    }
}
