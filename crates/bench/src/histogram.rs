//! A histogram of times: buckets at most 0.1 % wide, from 1 ns to ten minutes.
//! In: one time per request. Out: percentiles in microseconds, also over several threads.
//! Limits: `TIME_MAX`; longer times count as `TIME_MAX`.

use core::time::Duration;
use hdrhistogram::Histogram;

/// The longest time that is recorded exactly.
pub const TIME_MAX: Duration = Duration::from_secs(600);

/// The percentiles of every report: their names in JSON, and the percentages.
pub const PERCENTILES: [(&str, f64); 7] = [
    ("p50", 50.0),
    ("p90", 90.0),
    ("p99", 99.0),
    ("p99_9", 99.9),
    ("p99_99", 99.99),
    ("p99_999", 99.999),
    ("p99_9999", 99.9999),
];

/// The percentiles of the comparisons' tables.
pub(crate) const COMPARED: [f64; 3] = [50.0, 99.0, 99.9];

/// Whether `count` samples are enough to report this percentile, i.e. with 95 % confidence at least one sample
/// exceeds it; with fewer, the figure would only repeat the maximum. The median needs 5 samples, p99 299,
/// p99.9 2,995. The maximum (percentile 100) needs one sample.
#[must_use]
pub fn carries(count: u64, percent: f64) -> bool {
    const CONFIDENCE: f64 = 0.95;
    if percent >= 100.0 {
        return count > 0;
    }
    // The chance that none of `count` independent times exceeds the percentile.
    let none_above = (percent / 100.0).powf(count as f64);
    count > 0 && none_above <= 1.0 - CONFIDENCE
}

/// Times of one kind.
#[derive(Clone, Debug)]
pub struct Times {
    histogram: Histogram<u64>,
}

impl Times {
    /// A histogram with three significant digits, for the percentiles of the report.
    #[must_use]
    pub fn fine() -> Self {
        Self::with_digits(3)
    }

    /// A histogram with two significant digits and a tenth of the memory, for lines and curves over time.
    #[must_use]
    pub fn coarse() -> Self {
        Self::with_digits(2)
    }

    fn with_digits(digits: u8) -> Self {
        let highest = u64::try_from(TIME_MAX.as_nanos()).unwrap_or(u64::MAX);
        let histogram = Histogram::new_with_bounds(1, highest, digits)
            .expect("the histogram accepts these constant bounds");
        Self { histogram }
    }

    /// Records one time.
    pub fn record(&mut self, time: Duration) {
        self.histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds the times of `other`, which has the same precision.
    pub fn add(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("histograms of the same precision have the same bounds");
    }

    /// Removes all times.
    pub fn clear(&mut self) {
        self.histogram.reset();
    }

    /// Number of recorded times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The time that `percent` of all times did not exceed, in microseconds; 0 if the histogram is empty.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> f64 {
        if self.histogram.is_empty() {
            return 0.0;
        }
        self.histogram.value_at_quantile(percent / 100.0) as f64 / 1000.0
    }

    /// Whether there are enough samples to report this percentile.
    #[must_use]
    pub fn carries(&self, percent: f64) -> bool {
        carries(self.count(), percent)
    }

    /// The percentile in microseconds, if there are enough samples to report it.
    #[must_use]
    pub fn reportable_us(&self, percent: f64) -> Option<f64> {
        self.carries(percent).then(|| self.percentile_us(percent))
    }

    /// The longest time, in microseconds; 0 if the histogram is empty.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { self.histogram.max() as f64 / 1000.0 }
    }

    /// The sum of all times up to `most`.
    #[must_use]
    pub fn sum_up_to(&self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let sum = self
            .histogram
            .iter_recorded()
            .take_while(|step| step.value_iterated_to() <= most)
            .map(|step| step.value_iterated_to().saturating_mul(step.count_at_value()))
            .fold(0, u64::saturating_add);
        Duration::from_nanos(sum)
    }

    /// The mean, in microseconds; 0 if the histogram is empty.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { self.histogram.mean() / 1000.0 }
    }

    /// Points of the percentile curve as percent and microseconds, closer together towards 100 %: the percentiles that
    /// there are enough samples for, and the maximum.
    #[must_use]
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        // Ten points for each halving of the fraction above the percentile: 50 %, 75 %, 87.5 % ...
        for step in 0..=220 {
            let above = 0.5_f64.powf(f64::from(step) / 10.0);
            let percent = 100.0 * (1.0 - above);
            let Some(micros) = self.reportable_us(percent) else { break };
            points.push((percent, micros));
        }
        points.push((100.0, self.max_us()));
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn recorded_time_is_exact_to_a_thousandth(nanos in 1_u64..60_000_000_000) {
            let mut times = Times::fine();
            times.record(Duration::from_nanos(nanos));
            let back = times.percentile_us(50.0) * 1000.0;
            let error = (back - nanos as f64).abs() / nanos as f64;
            prop_assert!(error <= 0.001, "{nanos} ns was read back as {back}");
        }
    }

    #[test]
    fn merged_histograms_give_the_same_percentiles() {
        let (mut all, mut left, mut right) = (Times::fine(), Times::fine(), Times::fine());
        for micros in 1..=1000 {
            let time = Duration::from_micros(micros);
            all.record(time);
            if micros % 3 == 0 { left.record(time) } else { right.record(time) }
        }
        left.add(&right);
        assert_eq!(left.count(), 1000);
        for (_, percent) in PERCENTILES {
            assert!((left.percentile_us(percent) - all.percentile_us(percent)).abs() < 1e-9);
        }
        assert!((left.percentile_us(50.0) - 500.0).abs() < 0.5);
    }

    #[test]
    fn curve_ends_where_the_samples_end() {
        for (count, last, first_beyond) in [(299, 99.0, 99.1), (2995, 99.9, 99.95), (1, 0.0, 0.1)] {
            let mut times = Times::fine();
            for micros in 1..=count {
                times.record(Duration::from_micros(micros));
            }
            let curve = times.curve();
            let (maximum, percentiles) = curve.split_last().unwrap();
            assert!((maximum.0 - 100.0).abs() < f64::EPSILON, "{count}: {maximum:?}");
            let end = percentiles.last().unwrap().0;
            assert!(end > last - 0.1 && end < first_beyond, "{count}: ends at {end}");
        }
    }

    #[test]
    fn empty_histogram_reads_zero_and_long_times_are_capped() {
        let mut times = Times::fine();
        assert!(times.percentile_us(99.0).abs() < f64::EPSILON);
        times.record(Duration::from_secs(86_400));
        assert!(times.max_us() >= TIME_MAX.as_micros() as f64 * 0.999);
    }
}
