//! The plan of a load: the number of connections, when each request is due, and when the load ends.
//! In: the operator's settings. Out: each thread's share and its schedule of send times.
//! Never: uses a clock or a socket; send times are relative to the start.
//! Limits: `CONNECTIONS_MAX`, `THREADS_MAX`, `PIPELINE_MAX`, `SOURCES_MAX`.
//! Invariant: the shares add up to the whole plan; planned send times never decrease.

use core::net::IpAddr;
use tidegate_base::{Prng, Span};

/// Largest number of connections of one run.
pub const CONNECTIONS_MAX: u32 = 4_000_000;
/// Largest number of threads of one run.
pub const THREADS_MAX: u16 = 256;
/// Largest number of requests in flight on one connection.
pub const PIPELINE_MAX: u16 = 1024;
/// Largest number of source addresses of one run.
pub const SOURCES_MAX: usize = 65_536;

/// The plan of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Number of simultaneous connections over all threads.
    pub connections: u32,
    /// Number of threads; each has its own connections.
    pub threads: u16,
    /// How long requests are sent after warm-up and ramp; `None` if only `requests` ends the run.
    pub duration: Option<Span>,
    /// Number of requests to send; `None` if only `duration` ends the run.
    pub requests: Option<u64>,
    /// Time at the start that is not measured.
    pub warm_up: Span,
    /// Time over which connections and rate grow from zero; it is not measured.
    pub ramp: Span,
    /// When requests are due.
    pub pace: Pace,
    /// Number of requests after which a connection is closed and opened again.
    pub requests_per_connection: Option<u64>,
    /// Pause of a connection after a response (closed loop only), ±3 %.
    pub think: Span,
    /// The version of HTTP.
    pub protocol: Protocol,
    /// Number of requests in flight on each connection: pipelined with HTTP/1.1, streams with HTTP/2.
    pub pipeline: u16,
    /// Time limit for a request and for a connection attempt.
    pub timeout: Span,
    /// Local addresses that connections use in turn; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Seed of the random numbers.
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
            protocol: Protocol::Http1,
            pipeline: 1,
            timeout: Span::from_secs(10),
            sources: Vec::new(),
            seed: 1,
        }
    }
}

/// The version of HTTP on the connections of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: by ALPN with TLS, with prior knowledge otherwise (RFC 9113 section 3).
    Http2,
}

/// When requests are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: each connection sends its next request after the response (and the pause).
    Closed,
    /// Open loop: a total rate over all connections, independent of the responses.
    Total {
        /// Requests per second.
        per_second: f64,
        /// How the requests are spaced.
        arrivals: Arrivals,
    },
    /// Open loop: a rate on each connection.
    PerConnection {
        /// Requests per second.
        per_second: f64,
        /// How the requests are spaced.
        arrivals: Arrivals,
    },
}

/// The spacing of the requests of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly spaced.
    Constant,
    /// Randomly spaced with exponential gaps, like requests of independent users.
    Poisson,
}

/// One thread's part of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Index of the thread, from 0.
    pub thread: u16,
    /// Number of this thread's first connection, counted over all threads.
    pub connection_first: u32,
    /// Number of connections.
    pub connections: u32,
    /// Number of requests, if the plan limits it.
    pub requests: Option<u64>,
}

impl Plan {
    /// The share of thread `thread` (below `threads`).
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

    /// When connection number `connection` is opened, relative to the start.
    #[must_use]
    pub fn opened_at(&self, connection: u32) -> Span {
        self.ramp.mul_f64(f64::from(connection) / f64::from(self.connections.max(1)))
    }

    /// The local address of connection number `connection`; the same each time it is opened again.
    #[must_use]
    pub fn source(&self, connection: u32) -> Option<IpAddr> {
        let at = (connection as usize).checked_rem(self.sources.len())?;
        self.sources.get(at).copied()
    }

    /// When measuring begins, relative to the start.
    #[must_use]
    pub fn counted_from(&self) -> Span {
        self.warm_up.max(self.ramp)
    }

    /// When sending ends, relative to the start.
    #[must_use]
    pub fn ends_at(&self) -> Option<Span> {
        self.duration.map(|duration| self.counted_from() + duration)
    }

    /// The schedule of one thread, if the pace is a total rate.
    #[must_use]
    pub fn schedule(&self, thread: u16) -> Option<Schedule> {
        let Pace::Total { per_second, arrivals } = self.pace else {
            return None;
        };
        let threads = f64::from(self.threads.max(1));
        // Threads take turns: each sends every `threads`th request of the whole schedule.
        let phase = f64::from(thread) / threads;
        let seed = Prng::new(self.seed ^ u64::from(thread).wrapping_mul(0x9e37)).next_u64();
        Some(Schedule::new(per_second / threads, self.ramp, arrivals, phase, seed))
    }

    /// The schedule of one connection, if the pace is a rate per connection.
    #[must_use]
    pub fn connection_schedule(&self, connection: u32) -> Option<Schedule> {
        let Pace::PerConnection { per_second, arrivals } = self.pace else {
            return None;
        };
        let mut prng = Prng::new(self.seed ^ u64::from(connection).wrapping_mul(0x0001_0001));
        let seed = prng.next_u64();
        // Each connection starts at a random phase, so that they do not all send at the same time.
        let phase = prng.below(1 << 20) as f64 / f64::from(1 << 20);
        Some(Schedule::new(per_second, Span::ZERO, arrivals, phase, seed))
    }
}

/// An endless series of planned send times.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The rate after the ramp.
    per_second: f64,
    /// Length of the ramp, seconds.
    ramp_s: f64,
    arrivals: Arrivals,
    /// Position of the next send time in the schedule: the number of arrivals expected before it. Unlike a time, it
    /// advances evenly also during the ramp. Never decreases.
    position: f64,
    prng: Prng,
}

impl Schedule {
    /// A schedule of `per_second` arrivals per second, growing linearly from 0 during `ramp`. `phase` (below
    /// 1) is the position of the first evenly spaced arrival.
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

    /// Returns the next planned send time, relative to the start.
    pub fn next_arrival(&mut self) -> Span {
        let seconds = self.seconds_at(self.position);
        self.step();
        // About 31 years: later than any run, and within the range of Span.
        Span::from_secs_f64(seconds.min(1e9))
    }

    /// Number of arrivals between the last returned arrival and `end`. For Poisson arrivals, an estimate: the next arrival
    /// and the number expected after it.
    #[must_use]
    pub fn arrivals_before(&self, end: Span) -> u64 {
        let ahead = self.expected_until(end.as_secs_f64()) - self.position;
        // The conversion saturates: if the position is past the end, the result is 0.
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

    /// The time by which `position` arrivals are expected: the inverse of the integrated rate, which is a
    /// parabola during the ramp and a line after it.
    fn seconds_at(&self, position: f64) -> f64 {
        let in_ramp = self.per_second * self.ramp_s / 2.0;
        if position < in_ramp {
            (2.0 * self.ramp_s * position / self.per_second).sqrt()
        } else {
            self.ramp_s + (position - in_ramp) / self.per_second
        }
    }

    /// The number of arrivals expected by `seconds`: the inverse of `seconds_at`.
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
    fn constant_rate_is_even() {
        let mut schedule = Schedule::new(4.0, Span::ZERO, Arrivals::Constant, 0.0, 1);
        let times: Vec<u128> = (0..4).map(|_| schedule.next_arrival().as_millis()).collect();
        assert_eq!(times, [0, 250, 500, 750]);
    }

    #[test]
    fn ramp_sends_half_the_rate_then_the_full_rate() {
        let ramp = Span::from_secs(10);
        let mut schedule = Schedule::new(100.0, ramp, Arrivals::Constant, 0.0, 1);
        let times = arrivals_until(&mut schedule, Span::from_secs(20));
        let in_ramp = times.iter().filter(|&&at| at < ramp).count();
        assert_eq!((in_ramp, times.len()), (500, 1500));
    }

    #[test]
    fn poisson_arrivals_keep_the_rate_with_exponential_gaps() {
        let mut schedule = Schedule::new(1000.0, Span::ZERO, Arrivals::Poisson, 0.0, 7);
        let times = arrivals_until(&mut schedule, Span::from_secs(100));
        let count = times.len() as f64;
        assert!((count - 100_000.0).abs() < 4.0 * 100_000_f64.sqrt(), "{count}");
        let gaps: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.05,
            "the deviation of exponential gaps equals their mean"
        );
    }

    #[test]
    fn predicted_arrivals_agree_with_counted_arrivals() {
        let rates = [(7.3, 0), (1000.0, 0), (1000.0, 3), (256.0, 10)];
        for (seconds, (rate, ramp)) in (1..6).flat_map(|at| rates.map(|one| (at, one))) {
            let end = Span::from_secs(seconds);
            for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
                let mut schedule = Schedule::new(rate, Span::from_secs(ramp), arrivals, 0.3, 5);
                let predicted = schedule.arrivals_before(end);
                let counted = arrivals_until(&mut schedule, end).len() as u64;
                let room = match arrivals {
                    Arrivals::Constant => 0,
                    Arrivals::Poisson => 2 + 5 * counted.isqrt(),
                };
                assert!(
                    predicted.abs_diff(counted) <= room,
                    "{rate} {ramp} {arrivals:?}: {predicted}, {counted}"
                );
                assert_eq!(
                    schedule.arrivals_before(end),
                    0,
                    "the last arrival returned is past the end"
                );
            }
        }
        let many = Schedule::new(1e8, Span::ZERO, Arrivals::Constant, 0.0, 1);
        assert_eq!(many.arrivals_before(Span::from_secs(1000)), 100_000_000_000);
    }

    #[test]
    fn threads_interleave_into_an_even_schedule() {
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
    fn ramp_opens_connections_evenly() {
        let plan = Plan { connections: 10, ramp: Span::from_secs(5), ..Plan::default() };
        assert_eq!(plan.opened_at(0), Span::ZERO);
        assert_eq!(plan.opened_at(5), Span::from_millis(2500));
        assert!(plan.opened_at(9) < plan.ramp);
        assert_eq!(plan.ends_at(), Some(Span::from_secs(15)));
    }

    #[test]
    fn connections_use_the_sources_in_turn() {
        let sources: Vec<IpAddr> = vec![[127, 0, 0, 2].into(), [127, 0, 0, 3].into()];
        let plan = Plan { sources: sources.clone(), ..Plan::default() };
        let taken: Vec<Option<IpAddr>> = (0..3).map(|number| plan.source(number)).collect();
        assert_eq!(taken, [Some(sources[0]), Some(sources[1]), Some(sources[0])]);
        assert_eq!(Plan::default().source(7), None);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_plan(connections in 1_u32..100_000, threads in 1_u16..64, requests in 0_u64..u64::MAX / 2) {
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
        fn arrivals_never_decrease(per_second in 0.01_f64..1e7, ramp_ms in 0_u64..60_000, poisson: bool, seed: u64) {
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
