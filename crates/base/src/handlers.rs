//! Per-handler accounting: calls, CPU time and queueing latency for each kind of handler.
//! In: clock readings around one call out of `SAMPLE_EVERY`. Out: sums over the timed calls.
//! Never: reads a clock itself. Limits: sampling one call in 64 keeps the cost below 1 ns a call.

use crate::counters::Counter;
use crate::histogram::Histogram;

/// One call out of this many is timed.
pub const SAMPLE_EVERY: u32 = 64;

/// The cost of one kind of handler so far. One worker writes it; any thread may read it.
#[derive(Default, Debug)]
pub struct HandlerCounters {
    /// All calls, timed or not.
    pub calls: Counter,
    /// Calls that were timed.
    pub sampled: Counter,
    /// Nanoseconds that the timed calls took.
    pub sampled_busy_ns: Counter,
    /// Nanoseconds between the event's arrival in the worker and the start of its timed call.
    pub sampled_wait_ns: Counter,
    /// Durations of the timed calls, in nanoseconds.
    pub busy: Histogram,
    /// How long their events waited, in nanoseconds.
    pub wait: Histogram,
}

impl HandlerCounters {
    /// Records one timed call, which began `wait_ns` after its event and took `busy_ns`.
    pub fn add_sample(&self, wait_ns: u64, busy_ns: u64) {
        self.sampled.add(1);
        self.sampled_wait_ns.add(wait_ns);
        self.sampled_busy_ns.add(busy_ns);
        self.wait.note_nanos(wait_ns);
        self.busy.note_nanos(busy_ns);
    }

    /// Mean CPU time of a timed call, in nanoseconds; 0 before the first timed call.
    #[must_use]
    pub fn busy_ns_mean(&self) -> u64 {
        self.sampled_busy_ns.load().checked_div(self.sampled.load()).unwrap_or(0)
    }

    /// Mean time that an event waited for its timed call, in nanoseconds; 0 before the first timed call.
    #[must_use]
    pub fn wait_ns_mean(&self) -> u64 {
        self.sampled_wait_ns.load().checked_div(self.sampled.load()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_count_only_timed_calls() {
        let handler = HandlerCounters::default();
        assert_eq!((handler.busy_ns_mean(), handler.wait_ns_mean()), (0, 0));
        handler.calls.add(128);
        handler.add_sample(100, 10);
        handler.add_sample(300, 30);
        assert_eq!((handler.busy_ns_mean(), handler.wait_ns_mean()), (20, 200));
    }
}
