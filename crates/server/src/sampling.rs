//! Times one handler call in `SAMPLE_EVERY`.
//! In: the beginning and the end of each call. Out: how long the sampled one waited and took.
//! Never: reads the clock for a call that is not sampled.

use tidegate_base::Moment;
use tidegate_base::handlers::SAMPLE_EVERY;
use tidegate_reactor::Reactor;

use crate::counters::HandlerKind;

/// Which handler calls are timed.
pub(crate) struct Sampler {
    /// Handler calls until the next one is timed. Always at least 1 between two calls.
    until_next: u32,
    /// The handler call being timed. `None` between two completions.
    current: Option<Sample>,
}

/// A handler call that is being timed.
struct Sample {
    /// Which kind of handler runs.
    kind: HandlerKind,
    /// When the handler began.
    began: Moment,
    /// How long the completion waited in the turn before its handler began.
    wait_ns: u64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { until_next: SAMPLE_EVERY, current: None }
    }
}

impl Sampler {
    /// A handler call begins.
    #[inline]
    pub(crate) fn begin<R: Reactor>(&mut self, reactor: &R, kind: HandlerKind) {
        self.until_next -= 1;
        if self.until_next == 0 {
            self.until_next = SAMPLE_EVERY;
            let began = reactor.read_clock();
            let wait_ns = began.since(reactor.now()).as_nanos() as u64;
            self.current = Some(Sample { kind, began, wait_ns });
        }
    }

    /// The handler call ends. If it was timed: its kind, how long it waited and how long it took, in nanoseconds.
    #[inline]
    pub(crate) fn end<R: Reactor>(&mut self, reactor: &R) -> Option<(HandlerKind, u64, u64)> {
        let sample = self.current.take()?;
        let busy_ns = reactor.read_clock().since(sample.began).as_nanos() as u64;
        Some((sample.kind, sample.wait_ns, busy_ns))
    }

    /// Whether a handler call is being timed.
    pub(crate) fn is_timing(&self) -> bool {
        self.current.is_some()
    }
}
