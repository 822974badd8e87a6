//! A histogram of durations: one worker counts, any thread reads. Its unit is 2^-20 s or, for short durations, a nanosecond. With
//! 2^-20 s, the bounds are those of the native histograms of Prometheus.
//! In: durations. Out: how many were at most as long as each bound, and their sum.
//! Never: allocates or takes a lock.
//! Limits: bounds from 61 µs to 64 s (in nanoseconds: from 64 ns to 67 ms), two for each doubling, so that a
//! quantile is known within a factor of 1.5.
//! Invariant: a duration is counted in the first bucket whose bound it does not exceed, or in the last one.

use crate::counters::Counter;
use crate::time::Span;

/// Bounds for each doubling.
const STEPS: u32 = 2;
/// The first bound is 2^this units.
const FIRST: u32 = 6;
/// The last bound is 2^this units.
const LAST: u32 = 26;
/// The number of bounds.
pub const BOUNDS: usize = ((LAST - FIRST) * STEPS + 1) as usize;

/// A second has 2^this units.
const SECOND: u32 = 20;
/// The schema of the native histogram with these bounds: bucket n ends at 2^(n / 2^schema) seconds.
pub const SCHEMA: i8 = STEPS.ilog2() as i8;
/// The number of the first bucket in that schema.
pub const FIRST_BUCKET: i32 = (FIRST as i32 - SECOND as i32) * STEPS as i32;

/// The bounds in the unit of the histogram, ascending: 2^n, and the square root of 2 times that.
const BOUNDS_UNITS: [u64; BOUNDS] = {
    let mut bounds = [0; BOUNDS];
    let mut at = 0;
    while at < BOUNDS {
        let power = 1_u64 << (FIRST + at as u32 / STEPS);
        // 1.41421 times the power.
        bounds[at] = if at.is_multiple_of(2) { power } else { power * 141_421 / 100_000 };
        at += 1;
    }
    bounds
};

/// Durations, counted by one worker.
#[derive(Debug)]
pub struct Histogram {
    /// By bucket; the last one has no bound.
    counts: [Counter; BOUNDS + 1],
    /// The sum of all durations: in nanoseconds if `note_nanos` counted them, otherwise in microseconds.
    sum: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: core::array::from_fn(|_| Counter::default()), sum: Counter::default() }
    }
}

impl Histogram {
    /// Counts a duration. Only the owning worker may call this.
    pub fn note(&self, span: Span) {
        self.note_micros(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// Counts a duration in microseconds. Only the owning worker may call this.
    pub fn note_micros(&self, micros: u64) {
        self.counts[bucket_of(units_of(micros))].add(1);
        self.sum.add(micros);
    }

    /// Counts a duration in nanoseconds, in a histogram that has only such ones. Only the owning worker may call this.
    pub fn note_nanos(&self, nanos: u64) {
        self.counts[bucket_of(nanos)].add(1);
        self.sum.add(nanos);
    }
}

/// A duration in units of 2^-20 s, rounded up: it does not exceed a bound that it did not exceed before.
const fn units_of(micros: u64) -> u64 {
    micros.saturating_mul(1 << SECOND).div_ceil(1_000_000)
}

/// The bucket of a duration: the largest power of two below it gives the doubling, and one comparison the bucket in it.
fn bucket_of(units: u64) -> usize {
    if units <= BOUNDS_UNITS[0] {
        return 0;
    }
    if units > BOUNDS_UNITS[BOUNDS - 1] {
        return BOUNDS;
    }
    let power = 63 - (units - 1).leading_zeros();
    // `units` is above 2^power and at most 2^(power + 1).
    let at = ((power - FIRST) * STEPS + 1) as usize;
    at + usize::from(units > BOUNDS_UNITS[at])
}

/// The sum of several histograms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Durations {
    /// By bucket; the last one has no bound.
    counts: [u64; BOUNDS + 1],
    /// The sum of all durations, in the unit of the histograms.
    sum: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: [0; BOUNDS + 1], sum: 0 }
    }
}

impl Durations {
    /// Adds the counts of a histogram.
    pub fn add(&mut self, histogram: &Histogram) {
        for (sum, count) in self.counts.iter_mut().zip(&histogram.counts) {
            *sum += count.load();
        }
        self.sum += histogram.sum.load();
    }

    /// Adds other sums.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(*count);
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// The counts by bucket, and the sum (see [`Durations::sum`]).
    #[must_use]
    pub fn parts(&self) -> (&[u64], u64) {
        (&self.counts, self.sum)
    }

    /// The durations with these parts; `None` if the number of buckets differs.
    #[must_use]
    pub fn of_parts(counts: &[u64], sum: u64) -> Option<Self> {
        Some(Self { counts: counts.try_into().ok()?, sum })
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// The sum of the durations: in nanoseconds if `note_nanos` counted them, otherwise in microseconds.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The smallest bound, in the unit of the histogram, that `per_mille` thousandths of the durations do not exceed. `None`
    /// without durations, or if fewer durations are within the last bound.
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> Option<u64> {
        let wanted = (self.count() * per_mille).div_ceil(1000).max(1);
        self.cumulative_units().find(|(_, count)| *count >= wanted).map(|(bound, _)| bound)
    }

    /// For each bound in seconds, how many durations were at most as long. The histogram must have the unit 2^-20 s.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let second = (1_u64 << SECOND) as f64;
        self.cumulative_units().map(move |(bound, count)| (bound as f64 / second, count))
    }

    fn cumulative_units(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut sum = 0;
        BOUNDS_UNITS.iter().zip(&self.counts).map(move |(bound, count)| {
            sum = u64::saturating_add(sum, *count);
            (*bound, sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_ascend_from_61_microseconds_to_64_seconds() {
        assert!(BOUNDS_UNITS.is_sorted_by(|a, b| a < b));
        assert_eq!(BOUNDS_UNITS[..4], [64, 90, 128, 181]);
        assert_eq!(BOUNDS_UNITS[BOUNDS - 1], 1 << 26);
        assert_eq!((SCHEMA, FIRST_BUCKET), (1, -28));
    }

    #[test]
    fn each_duration_is_in_the_first_bucket_that_holds_it() {
        let near = BOUNDS_UNITS.iter().flat_map(|bound| [bound - 1, *bound, bound + 1]);
        for units in near.chain([0, 1, 1_000_000, u64::MAX]) {
            let expected = BOUNDS_UNITS.iter().position(|bound| units <= *bound).unwrap_or(BOUNDS);
            assert_eq!(bucket_of(units), expected, "{units}");
        }
        for (micros, units) in [(0, 0), (1, 2), (61, 64), (62, 66), (1_000_000, 1 << 20)] {
            assert_eq!(units_of(micros), units, "{micros}");
        }
        assert_eq!(bucket_of(units_of(u64::MAX)), BOUNDS);
    }

    #[test]
    fn quantiles_are_bounds_that_are_not_exceeded() {
        let histogram = Histogram::default();
        let sum = |histogram: &Histogram| {
            let mut sum = Durations::default();
            sum.add(histogram);
            sum
        };
        assert_eq!(sum(&histogram).quantile(500), None);
        (0..98).for_each(|_| histogram.note_nanos(100));
        histogram.note_nanos(1000);
        histogram.note_nanos(u64::MAX / 2);
        let all = sum(&histogram);
        assert_eq!(
            (all.quantile(1), all.quantile(500), all.quantile(980)),
            (Some(128), Some(128), Some(128))
        );
        assert_eq!((all.quantile(990), all.quantile(1000)), (Some(1024), None));
    }

    #[test]
    fn sums_are_cumulative() {
        let (one, other) = (Histogram::default(), Histogram::default());
        one.note(Span::from_micros(10));
        one.note(Span::from_micros(100));
        other.note(Span::from_secs(100));
        let mut sum = Durations::default();
        sum.add(&one);
        sum.add(&other);
        assert_eq!((sum.count(), sum.sum()), (3, 100_000_110));
        let cumulative: Vec<_> = sum.cumulative().collect();
        let counts: Vec<u64> = cumulative[..3].iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 1, 2]);
        assert_eq!((cumulative[0].0, cumulative[BOUNDS - 1]), (1.0 / 16_384.0, (64.0, 2)));
        let (counts, total) = sum.parts();
        let mut twice = Durations::of_parts(counts, total).expect("its own parts");
        assert_eq!(twice, sum);
        twice.merge(&sum);
        assert_eq!((twice.count(), twice.sum()), (6, 200_000_220));
        assert_eq!(Durations::of_parts(&counts[1..], 0), None);
    }
}
