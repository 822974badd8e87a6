//! How many streams a client may have open on one HTTP/2 connection, by the load of its worker.
//! In: the time, the open streams and sockets of the worker, its connection slots. Out: the limit for each connection.
//! Never: ends or refuses a stream; a client that does not know a lower limit yet may use the earlier one.
//! Limits: `ELASTIC_STREAMS_MIN` to `STREAMS_DEFAULT` streams; one change in `ELASTIC_SPAN`.
//! Invariant: the limit falls as far as the load requires, and rises by one step at a time, after the load has fallen clearly
//! (`ELASTIC_RISE_PERCENT`) below the load of the step.
//!
//! A connection costs a client the same whether it carries one request or a hundred, so clients with many streams take
//! most of an overloaded worker. With fewer streams for each, the waiting requests stay with the clients, and every
//! connection still gets its turn. The load is the share of the worker's slots that its sockets take, or that its streams
//! would take if each needed a connection to a server.

use tidegate_base::Moment;
use tidegate_base::limits::{ELASTIC_RISE_PERCENT, ELASTIC_SPAN, ELASTIC_STREAMS_MIN};
use tidegate_wire::http2::bounds::STREAMS_DEFAULT;

/// From which load on, in percent, how many streams a connection may have.
const STEPS: [(usize, u32); 4] = [
    (0, STREAMS_DEFAULT),
    (50, STREAMS_DEFAULT / 2),
    (65, STREAMS_DEFAULT / 4),
    (80, ELASTIC_STREAMS_MIN),
];

const _: () = assert!(ELASTIC_STREAMS_MIN < STREAMS_DEFAULT / 4);

/// The load of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// The open streams of clients.
    pub streams: usize,
    /// Connections, with clients and with servers.
    pub sockets: usize,
    /// Maximum number of connections.
    pub slots: usize,
}

impl Load {
    /// Whether the load is at least `percent`.
    const fn reaches(&self, percent: usize) -> bool {
        let taken = if self.streams > self.sockets { self.streams } else { self.sockets };
        taken.saturating_mul(100) >= self.slots.saturating_mul(percent)
    }
}

/// The limit of one worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elasticity {
    /// The index of the current step in `STEPS`.
    step: usize,
    /// Until then, the step does not change.
    settled_until: Moment,
}

impl Elasticity {
    /// The streams that a connection may have open.
    #[must_use]
    pub fn streams_max(&self) -> u32 {
        STEPS.get(self.step).map_or(ELASTIC_STREAMS_MIN, |&(_, streams)| streams)
    }

    /// Adapts the limit to the load, and returns it.
    pub fn look(&mut self, now: Moment, load: &Load) -> u32 {
        let wanted = STEPS.iter().rposition(|&(percent, _)| load.reaches(percent)).unwrap_or(0);
        if wanted != self.step && now >= self.settled_until {
            let next = if wanted > self.step { wanted } else { self.step_above(load) };
            if next != self.step {
                self.step = next;
                self.settled_until = now.after(ELASTIC_SPAN);
            }
        }
        self.streams_max()
    }

    /// The step above the current one if the load is clearly below the current step; otherwise the current one.
    fn step_above(&self, load: &Load) -> usize {
        let percent = STEPS.get(self.step).map_or(0, |&(percent, _)| percent);
        let is_clear = !load.reaches(percent.saturating_sub(ELASTIC_RISE_PERCENT));
        if is_clear { self.step.saturating_sub(1) } else { self.step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::Span;

    const fn streams(streams: usize) -> Load {
        Load { streams, sockets: 0, slots: 1000 }
    }

    const fn after_millis(millis: u64) -> Moment {
        Moment::ZERO.after(Span::from_millis(millis))
    }

    #[test]
    fn limit_falls_at_once_with_the_load() {
        for (open, sockets, wanted) in [
            (0, 0, 100),
            (499, 0, 100),
            (500, 0, 50),
            (0, 500, 50),
            (649, 100, 50),
            (650, 0, 25),
            (300, 799, 25),
            (800, 0, 10),
            (100_000, 1000, 10),
        ] {
            let load = Load { streams: open, sockets, slots: 1000 };
            let mut elasticity = Elasticity::default();
            assert_eq!(elasticity.look(Moment::ZERO, &load), wanted, "{load:?}");
            assert_eq!(elasticity.streams_max(), wanted);
        }
    }

    #[test]
    fn limit_rises_step_by_step_after_the_load_has_fallen_clearly() {
        let mut elasticity = Elasticity::default();
        for (millis, open, wanted) in [
            (0, 900, 10),
            // No second change within the span.
            (10, 0, 10),
            (999, 0, 10),
            (1000, 0, 25),
            (1001, 0, 25),
            (2000, 0, 50),
            (3000, 0, 100),
            (4000, 500, 50),
            // Not clearly below 50 %.
            (6000, 450, 50),
            (7000, 400, 50),
            (8000, 399, 100),
            (8001, 900, 100),
            (9000, 900, 10),
        ] {
            let limit = elasticity.look(after_millis(millis), &streams(open));
            assert_eq!(limit, wanted, "{open} streams after {millis} ms");
        }
    }

    #[test]
    fn worker_without_slots_keeps_the_bounds() {
        let load = Load { streams: usize::MAX, sockets: usize::MAX, slots: 0 };
        assert_eq!(Elasticity::default().look(Moment::ZERO, &load), ELASTIC_STREAMS_MIN);
    }
}
