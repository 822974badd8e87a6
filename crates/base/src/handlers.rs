//! Per-handler accounting: for each kind of handler, calls, CPU time and queueing latency.
//! In: clock readings around one call in `SAMPLE_EVERY`. Out: sums that `show profiling` reads.
//! Never: reads a clock itself. Limits: one sample in 64 calls keeps it below 1 ns a call.

use crate::counters::Counter;

/// One call in this many is timed.
pub const SAMPLE_EVERY: u32 = 64;

/// What one kind of handler cost so far; written by one worker, read by anyone.
#[derive(Default, Debug)]
pub struct HandlerCounters {
    /// Calls, all of them.
    pub calls: Counter,
    /// Calls that were timed.
    pub sampled: Counter,
    /// Nanoseconds the timed calls took.
    pub sampled_busy_ns: Counter,
    /// Nanoseconds between the event's arrival in the worker and the start of its timed call.
    pub sampled_wait_ns: Counter,
}

impl HandlerCounters {
    /// Notes one timed call: it began `wait_ns` after its event and took `busy_ns`.
    pub fn add_sample(&self, wait_ns: u64, busy_ns: u64) {
        self.sampled.add(1);
        self.sampled_wait_ns.add(wait_ns);
        self.sampled_busy_ns.add(busy_ns);
    }

    /// Mean nanoseconds of CPU time a call, over the timed ones; 0 before the first.
    #[must_use]
    pub fn busy_ns_mean(&self) -> u64 {
        self.sampled_busy_ns.load().checked_div(self.sampled.load()).unwrap_or(0)
    }

    /// Mean nanoseconds an event waited for its call, over the timed ones; 0 before the first.
    #[must_use]
    pub fn wait_ns_mean(&self) -> u64 {
        self.sampled_wait_ns.load().checked_div(self.sampled.load()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_the_timed_calls() {
        let handler = HandlerCounters::default();
        assert_eq!((handler.busy_ns_mean(), handler.wait_ns_mean()), (0, 0));
        handler.calls.add(128);
        handler.add_sample(100, 10);
        handler.add_sample(300, 30);
        assert_eq!((handler.busy_ns_mean(), handler.wait_ns_mean()), (20, 200));
    }
}
