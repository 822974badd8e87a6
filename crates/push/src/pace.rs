//! How fast a client publishes.
//! In: the time of each publication. Out: whether it is within the rate. Never: uses a clock.
//! Invariant: the time is the theoretical arrival time (GCRA, ITU-T I.371): the moment at which nothing of the rate will be used.

use tidegate_base::Moment;
use tidegate_config::model::PublishRate;

/// How much of its rate a client has used.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    unused_at: Moment,
}

impl Default for Pace {
    fn default() -> Self {
        Self { unused_at: Moment::ZERO }
    }
}

impl Pace {
    /// Counts a publication at `now`, unless it exceeds the rate. As many as the rate allows for its period may arrive at once.
    pub fn admit(&mut self, rate: &PublishRate, now: Moment) -> bool {
        let cost = rate.per / rate.count.max(1);
        let begin = self.unused_at.max(now);
        let is_within = begin.since(now) + cost <= rate.per;
        if is_within {
            self.unused_at = begin.after(cost);
        }
        is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::Span;

    #[test]
    fn rate_admits_its_number_at_once_and_then_one_at_a_time() {
        let rate = PublishRate { count: 5, per: Span::from_secs(1) };
        let at = |ms| Moment::ZERO.after(Span::from_millis(ms));
        let mut pace = Pace::default();
        for (ms, expected) in [(0, 5), (0, 0), (199, 0), (200, 1), (399, 0), (1000, 4), (60_000, 5)]
        {
            let admitted = (0..20).filter(|_| pace.admit(&rate, at(ms))).count();
            assert_eq!(admitted, expected, "at {ms} ms");
        }
    }

    #[test]
    fn slow_rates_are_exact() {
        let rate = PublishRate { count: 3, per: Span::from_secs(10) };
        let mut pace = Pace::default();
        let mut admitted = 0;
        for second in 0..1000 {
            admitted += u32::from(pace.admit(&rate, Moment::ZERO.after(Span::from_secs(second))));
        }
        assert!((299..=303).contains(&admitted), "{admitted}");
    }
}
