//! Rates for programs that expect them ready, as HAProxy's statistics have them.
//! In: counters, each time that a client requests statistics. Out: their increase in a second, between the last two requests that
//! were at least `SPAN_MIN` apart, and the largest such increase.
//! Never: runs by itself: without clients that request statistics, nothing is sampled. So the rate for a client that requests
//! statistics every 15 s is the mean of 15 s. The first sample of a counter has the rate 0.
//! Limits: one entry for each name of the last sample.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counters that are read more often keep their rates.
const SPAN_MIN: Duration = Duration::from_secs(1);

/// A counter at the time of the last sample, and its rate then.
#[derive(Clone, Copy, Default, Debug)]
struct Sampled {
    count: u64,
    rate: Rate,
}

/// The increase of a counter in a second.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Rate {
    /// Between the last two samples.
    pub(super) last: u64,
    /// The largest one so far.
    pub(super) max: u64,
}

/// The last sample of some counters.
#[derive(Default)]
pub(crate) struct Rates(Mutex<Option<Sample>>);

struct Sample {
    at: Instant,
    counts: HashMap<String, Sampled>,
}

impl Rates {
    /// The rates of these counters.
    pub(super) fn of(&self, counts: Vec<(String, u64)>, now: Instant) -> HashMap<String, Rate> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let span = last.as_ref().map(|sample| now.saturating_duration_since(sample.at));
        if span.is_none_or(|span| span >= SPAN_MIN) {
            let earlier = last.take().map(|sample| sample.counts).unwrap_or_default();
            let sampled = counts.into_iter().map(|(name, count)| {
                let before = earlier.get(&name).zip(span);
                let rate = before.map_or(Rate::default(), |(before, span)| {
                    let rate = per_second(count.saturating_sub(before.count), span);
                    Rate { last: rate, max: rate.max(before.rate.max) }
                });
                (name, Sampled { count, rate })
            });
            *last = Some(Sample { at: now, counts: sampled.collect() });
        }
        let known = last.as_ref().into_iter().flat_map(|sample| &sample.counts);
        known.map(|(name, sampled)| (name.clone(), sampled.rate)).collect()
    }
}

/// A count over a span as a count in a second, rounded.
fn per_second(count: u64, span: Duration) -> u64 {
    let nanos = span.max(SPAN_MIN).as_nanos();
    let rate = (u128::from(count) * 1_000_000_000 + nanos / 2) / nanos;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_the_increase_between_two_samples() {
        let (rates, start) = (Rates::default(), Instant::now());
        let rate_after = |millis: u64, count: u64| {
            let now = start + Duration::from_millis(millis);
            let all = rates.of(vec![("a".to_owned(), count)], now);
            (all["a"].last, all["a"].max)
        };
        for (millis, count, expected) in [
            (0, 1_000_000, (0, 0)),
            (4000, 1_000_040, (10, 10)),
            // Too early for another sample.
            (4999, 2_000_000, (10, 10)),
            (6000, 1_000_100, (30, 30)),
            (8500, 1_000_105, (2, 30)),
            // The counter began again.
            (9500, 0, (0, 30)),
            (10_500, 7, (7, 30)),
        ] {
            assert_eq!(rate_after(millis, count), expected, "after {millis} ms");
        }
    }

    #[test]
    fn names_of_the_last_sample_are_kept() {
        let (rates, start) = (Rates::default(), Instant::now());
        rates.of(vec![("a".to_owned(), 3)], start);
        let all = rates.of(vec![("b".to_owned(), 6)], start + Duration::from_secs(3));
        assert_eq!((all.len(), all["b"]), (1, Rate::default()));
    }
}
