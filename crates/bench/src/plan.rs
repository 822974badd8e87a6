//! The plan of a load: how many connections, when each request is due, when it ends. Pure.
//! In: what the operator asked. Out: each thread's share of it and its arrival schedule.
//! Never: a clock or a socket; arrivals are times since the start.
//! Limits: `CONNECTIONS_MAX`, `THREADS_MAX`, `PIPELINE_MAX`, `SOURCES_MAX`.
//! Invariant: shares add up to the whole; an arrival never lies before the one before it.

use core::net::IpAddr;
use tidegate_base::{Prng, Span};

/// Connections of one run.
pub const CONNECTIONS_MAX: u32 = 4_000_000;
/// Threads of one run.
pub const THREADS_MAX: u16 = 256;
/// Requests in flight on one connection.
pub const PIPELINE_MAX: u16 = 1024;
/// Source addresses of one run.
pub const SOURCES_MAX: usize = 65_536;

/// A whole load.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Connections held at once, all threads together.
    pub connections: u32,
    /// Threads; each has connections of its own.
    pub threads: u16,
    /// Time after the warm-up until no more requests are sent; `None`: `requests` ends it.
    pub duration: Option<Span>,
    /// Requests to send; `None`: `duration` ends it.
    pub requests: Option<u64>,
    /// Time at the start that no figure counts.
    pub warm_up: Span,
    /// Time over which connections and rate grow from nothing; no figure counts it.
    pub ramp: Span,
    /// When requests are due.
    pub pace: Pace,
    /// Requests of one connection before it is closed and made anew.
    pub requests_per_connection: Option<u64>,
    /// Rest of a connection after an answer (closed loop only), ±3 %.
    pub think: Span,
    /// Requests in flight on one connection.
    pub pipeline: u16,
    /// Time a request or a connect may take.
    pub timeout: Span,
    /// Local addresses that connections take in turn; empty: the kernel's choice.
    pub sources: Vec<IpAddr>,
    /// Seed of all that is random.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            connections: 64,
            threads: 1,
            duration: Some(Span::from_secs(10)),
            requests: None,
            warm_up: Span::ZERO,
            ramp: Span::ZERO,
            pace: Pace::Closed,
            requests_per_connection: None,
            think: Span::ZERO,
            pipeline: 1,
            timeout: Span::from_secs(10),
            sources: Vec::new(),
            seed: 1,
        }
    }
}

/// When requests are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each connection sends as soon as its answer is there (and thought over).
    Closed,
    /// Open loop: so many a second over all connections, whatever the answers do.
    Total {
        /// Requests a second.
        per_second: f64,
        /// How they are spaced.
        arrivals: Arrivals,
    },
    /// Open loop: so many a second on each connection.
    PerConnection {
        /// Requests a second.
        per_second: f64,
        /// How they are spaced.
        arrivals: Arrivals,
    },
}

/// How the arrivals of an open loop are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly.
    Constant,
    /// As independent users come: exponential gaps.
    Poisson,
}

/// One thread's part of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Which thread.
    pub thread: u16,
    /// Number of its first connection among all.
    pub connection_first: u32,
    /// How many connections.
    pub connections: u32,
    /// How many requests, where the plan says how many.
    pub requests: Option<u64>,
}

impl Plan {
    /// The part of thread `thread` (below `threads`).
    #[must_use]
    pub fn share(&self, thread: u16) -> Share {
        let threads = u64::from(self.threads.max(1));
        let cut =
            |whole: u64, at: u64| (u128::from(whole) * u128::from(at) / u128::from(threads)) as u64;
        let thread_at = u64::from(thread);
        let part = |whole: u64| (cut(whole, thread_at), cut(whole, thread_at + 1));
        let (first, end) = part(u64::from(self.connections));
        Share {
            thread,
            connection_first: first as u32,
            connections: (end - first) as u32,
            requests: self.requests.map(|whole| {
                let (first, end) = part(whole);
                end - first
            }),
        }
    }

    /// When connection number `connection` is opened, since the start.
    #[must_use]
    pub fn opened_at(&self, connection: u32) -> Span {
        self.ramp.mul_f64(f64::from(connection) / f64::from(self.connections.max(1)))
    }

    /// The local address of connection number `connection`; the same one each time it is made anew.
    #[must_use]
    pub fn source(&self, connection: u32) -> Option<IpAddr> {
        let at = (connection as usize).checked_rem(self.sources.len())?;
        self.sources.get(at).copied()
    }

    /// When figures begin to count, since the start.
    #[must_use]
    pub fn counted_from(&self) -> Span {
        self.warm_up.max(self.ramp)
    }

    /// When the last request may be sent, since the start.
    #[must_use]
    pub fn ends_at(&self) -> Option<Span> {
        self.duration.map(|duration| self.counted_from() + duration)
    }

    /// The schedule of one thread, where the pace is one over all connections.
    #[must_use]
    pub fn schedule(&self, thread: u16) -> Option<Schedule> {
        let Pace::Total { per_second, arrivals } = self.pace else {
            return None;
        };
        let threads = f64::from(self.threads.max(1));
        // Threads take turns: each sends every `threads`th request of the whole rhythm.
        let phase = f64::from(thread) / threads;
        let seed = Prng::new(self.seed ^ u64::from(thread).wrapping_mul(0x9e37)).next_u64();
        Some(Schedule::new(per_second / threads, self.ramp, arrivals, phase, seed))
    }

    /// The schedule of one connection, where the pace is one for each of them.
    #[must_use]
    pub fn connection_schedule(&self, connection: u32) -> Option<Schedule> {
        let Pace::PerConnection { per_second, arrivals } = self.pace else {
            return None;
        };
        let mut prng = Prng::new(self.seed ^ u64::from(connection).wrapping_mul(0x0001_0001));
        let seed = prng.next_u64();
        // Connections start at random places of the rhythm so that they do not beat as one.
        let phase = prng.below(1 << 20) as f64 / f64::from(1 << 20);
        Some(Schedule::new(per_second, Span::ZERO, arrivals, phase, seed))
    }
}

/// An endless series of planned send times; `phase` (below 1) is the place of the first in the rhythm.
#[derive(Clone, Debug)]
pub struct Schedule {
    per_second: f64,
    ramp_s: f64,
    arrivals: Arrivals,
    /// Arrivals expected until the last one that was handed out, at a rate that changes in the ramp.
    position: f64,
    prng: Prng,
}

impl Schedule {
    /// A schedule of `per_second` arrivals a second, growing in a line from 0 during `ramp`.
    #[must_use]
    pub fn new(per_second: f64, ramp: Span, arrivals: Arrivals, phase: f64, seed: u64) -> Self {
        let mut schedule = Self {
            per_second,
            ramp_s: ramp.as_secs_f64(),
            arrivals,
            position: phase,
            prng: Prng::new(seed),
        };
        if arrivals == Arrivals::Poisson {
            schedule.position = 0.0;
            schedule.step();
        }
        schedule
    }

    /// The next planned send time since the start.
    pub fn next_arrival(&mut self) -> Span {
        let seconds = self.seconds_at(self.position);
        self.step();
        // About 31 years: later than any run, and safe to turn into a Span.
        Span::from_secs_f64(seconds.min(1e9))
    }

    /// How many arrivals are still to come before `end`; of Poisson's, the next and as many as are
    /// expected after it.
    #[must_use]
    pub fn arrivals_before(&self, end: Span) -> u64 {
        let ahead = self.expected_until(end.as_secs_f64()) - self.position;
        // Conversions saturate: nothing is ahead of a position that lies behind the end.
        match self.arrivals {
            Arrivals::Constant => ahead.ceil() as u64,
            Arrivals::Poisson if ahead > 0.0 => 1 + ahead.round() as u64,
            Arrivals::Poisson => 0,
        }
    }

    fn step(&mut self) {
        self.position += match self.arrivals {
            Arrivals::Constant => 1.0,
            Arrivals::Poisson => {
                let uniform = ((self.prng.next_u64() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
                -uniform.ln()
            }
        };
    }

    /// When `position` arrivals are expected to have come: the inverse of the summed rate, which is
    /// a parabola in the ramp and a line after it.
    fn seconds_at(&self, position: f64) -> f64 {
        let in_ramp = self.per_second * self.ramp_s / 2.0;
        if position < in_ramp {
            (2.0 * self.ramp_s * position / self.per_second).sqrt()
        } else {
            self.ramp_s + (position - in_ramp) / self.per_second
        }
    }

    /// How many arrivals are expected to have come at `seconds`: the inverse of `seconds_at`.
    fn expected_until(&self, seconds: f64) -> f64 {
        if seconds < self.ramp_s {
            self.per_second * seconds * seconds / (2.0 * self.ramp_s)
        } else {
            self.per_second * (seconds - self.ramp_s / 2.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arrivals_until(schedule: &mut Schedule, end: Span) -> Vec<Span> {
        let mut times = Vec::new();
        loop {
            let at = schedule.next_arrival();
            if at >= end {
                return times;
            }
            times.push(at);
        }
    }

    #[test]
    fn a_constant_rate_is_even() {
        let mut schedule = Schedule::new(4.0, Span::ZERO, Arrivals::Constant, 0.0, 1);
        let times: Vec<u128> = (0..4).map(|_| schedule.next_arrival().as_millis()).collect();
        assert_eq!(times, [0, 250, 500, 750]);
    }

    #[test]
    fn a_ramp_sends_half_of_the_rate_and_then_all_of_it() {
        let ramp = Span::from_secs(10);
        let mut schedule = Schedule::new(100.0, ramp, Arrivals::Constant, 0.0, 1);
        let times = arrivals_until(&mut schedule, Span::from_secs(20));
        let in_ramp = times.iter().filter(|&&at| at < ramp).count();
        assert_eq!((in_ramp, times.len()), (500, 1500));
    }

    #[test]
    fn poisson_arrivals_keep_the_rate_and_are_not_even() {
        let mut schedule = Schedule::new(1000.0, Span::ZERO, Arrivals::Poisson, 0.0, 7);
        let times = arrivals_until(&mut schedule, Span::from_secs(100));
        let count = times.len() as f64;
        assert!((count - 100_000.0).abs() < 4.0 * 100_000_f64.sqrt(), "{count}");
        let gaps: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "exponential gaps vary by their mean");
    }

    #[test]
    fn what_is_still_to_come_is_known_without_counting() {
        let rates = [(7.3, 0), (1000.0, 0), (1000.0, 3), (256.0, 10)];
        for (seconds, (rate, ramp)) in (1..6).flat_map(|at| rates.map(|one| (at, one))) {
            let end = Span::from_secs(seconds);
            for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
                let mut schedule = Schedule::new(rate, Span::from_secs(ramp), arrivals, 0.3, 5);
                let told = schedule.arrivals_before(end);
                let counted = arrivals_until(&mut schedule, end).len() as u64;
                let room = match arrivals {
                    Arrivals::Constant => 0,
                    Arrivals::Poisson => 2 + 5 * counted.isqrt(),
                };
                assert!(
                    told.abs_diff(counted) <= room,
                    "{rate} {ramp} {arrivals:?}: {told}, {counted}"
                );
                assert_eq!(
                    schedule.arrivals_before(end),
                    0,
                    "the last that was handed out is past the end"
                );
            }
        }
        let many = Schedule::new(1e8, Span::ZERO, Arrivals::Constant, 0.0, 1);
        assert_eq!(many.arrivals_before(Span::from_secs(1000)), 100_000_000_000);
    }

    #[test]
    fn threads_interleave_into_one_even_rhythm() {
        let plan = Plan {
            threads: 4,
            pace: Pace::Total { per_second: 1000.0, arrivals: Arrivals::Constant },
            ..Plan::default()
        };
        let end = Span::from_millis(100);
        let mut times: Vec<Span> = (0..4)
            .flat_map(|thread| arrivals_until(&mut plan.schedule(thread).unwrap(), end))
            .collect();
        times.sort();
        assert_eq!(times.len(), 100);
        for (index, at) in times.iter().enumerate() {
            let planned = Span::from_millis(index as u64);
            assert!(at.abs_diff(planned) < Span::from_micros(1), "{index}: {at:?}");
        }
    }

    #[test]
    fn connections_open_evenly_over_the_ramp() {
        let plan = Plan { connections: 10, ramp: Span::from_secs(5), ..Plan::default() };
        assert_eq!(plan.opened_at(0), Span::ZERO);
        assert_eq!(plan.opened_at(5), Span::from_millis(2500));
        assert!(plan.opened_at(9) < plan.ramp);
        assert_eq!(plan.ends_at(), Some(Span::from_secs(15)));
    }

    #[test]
    fn connections_take_the_sources_in_turn() {
        let sources: Vec<IpAddr> = vec![[127, 0, 0, 2].into(), [127, 0, 0, 3].into()];
        let plan = Plan { sources: sources.clone(), ..Plan::default() };
        let taken: Vec<Option<IpAddr>> = (0..3).map(|number| plan.source(number)).collect();
        assert_eq!(taken, [Some(sources[0]), Some(sources[1]), Some(sources[0])]);
        assert_eq!(Plan::default().source(7), None);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_whole(connections in 1_u32..100_000, threads in 1_u16..64, requests in 0_u64..u64::MAX / 2) {
            let plan = Plan { connections, threads, requests: Some(requests), ..Plan::default() };
            let shares: Vec<Share> = (0..threads).map(|thread| plan.share(thread)).collect();
            prop_assert_eq!(shares.iter().map(|share| share.connections).sum::<u32>(), connections);
            prop_assert_eq!(shares.iter().filter_map(|share| share.requests).sum::<u64>(), requests);
            let mut next = 0;
            for share in shares {
                prop_assert_eq!(share.connection_first, next);
                next += share.connections;
            }
        }

        #[test]
        fn arrivals_never_go_back(per_second in 0.01_f64..1e7, ramp_ms in 0_u64..60_000, poisson: bool, seed: u64) {
            let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Constant };
            let mut schedule = Schedule::new(per_second, Span::from_millis(ramp_ms), arrivals, 0.5, seed);
            let mut last = Span::ZERO;
            for _ in 0..1000 {
                let at = schedule.next_arrival();
                prop_assert!(at >= last);
                last = at;
            }
        }
    }
}
