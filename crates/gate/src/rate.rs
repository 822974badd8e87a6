//! Limits the rate of requests by a key, such as the client's address, for all workers of the process together.
//! In: the values of a request (`rate_key.rs` makes its key), the time. Out: whether the request is admitted, or when
//! the next one will be.
//! Never: takes a lock, waits, allocates after its creation, or limits one key because of another.
//! Limits: a table has a fixed number of cells, in sets of `WAYS`. If all cells of a key's set are in use, the key that
//! has used least of its limit loses its cell. A flood of new keys therefore displaces keys that have used little
//! of their limit; a key at its limit is displaced only if all keys of its set are at their limits, too.
//! Invariant: a cell holds the theoretical arrival time of its key (GCRA, ITU-T I.371): the moment at which the key will
//! have used nothing of its limit. A cell whose time has passed contains no information, so it may be reused.
//!
//! Tolerance: exact, however requests are spread over the workers, as long as no cell in use is displaced. While two workers displace
//! the same cell at the same moment, each of them may admit one request too many.
//!
//! The cells are atomic numbers that workers share. One request changes one number by compare-and-swap; a mailbox between
//! the workers would make requests wait, or admit several times the limit.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use tidegate_base::prng::mix64;
use tidegate_base::{Moment, Span};
use tidegate_config::model::{Config, Rate, RateExcess, Route};

use crate::bounded_places::Places;
use crate::client_places::ClientLimits;
use crate::rate_key;
use crate::template::Values;

/// The cells in which a key may be: two cache lines.
const WAYS: usize = 8;

/// A cell of a table.
#[derive(Debug, Default)]
struct Cell {
    /// The hash of the key; 0: the cell was never used.
    key: AtomicU64,
    /// The theoretical arrival time of the key, in nanoseconds.
    time: AtomicU64,
}

/// The state of one rate limit.
#[derive(Debug)]
pub struct RateTable {
    /// `WAYS` cells for each set. The number of sets is a power of two.
    cells: Box<[Cell]>,
    /// Mixed into the hash of each key, so that a client cannot choose keys that share a set, or a key that equals the key of
    /// another client.
    seed: u64,
    /// Nanoseconds that one request uses up.
    cost: u64,
    /// How far the theoretical arrival time may be ahead when a request is admitted, in nanoseconds.
    tolerance: u64,
    /// The places of requests above the limit that wait for their response; none unless the limit has a tarpit.
    pub tarpit: Arc<Places>,
}

/// The decision about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It is within the limit.
    Admitted,
    /// It exceeds the limit. The next request would be admitted after this time.
    Refused(Span),
}

impl RateTable {
    /// A table for `rate`.
    #[must_use]
    pub fn new(rate: &Rate, seed: u64) -> Self {
        let cells = (rate.keys_max as usize).next_multiple_of(WAYS).next_power_of_two();
        let cost = (rate.per.as_nanos() as u64 / u64::from(rate.count)).max(1);
        Self {
            cells: (0..cells).map(|_| Cell::default()).collect(),
            seed: mix64(seed),
            cost,
            tolerance: cost.saturating_mul(u64::from(rate.burst) - 1),
            tarpit: Places::new(match rate.then {
                RateExcess::Tarpit => rate.waiting_max,
                RateExcess::Deny | RateExcess::Drop => 0,
            }),
        }
    }

    /// The key of a request that `rate` counts, for [`Self::admit`]. `scratch` is overwritten.
    #[must_use]
    pub fn key_of(&self, rate: &Rate, values: &Values<'_>, scratch: &mut Vec<u8>) -> u64 {
        rate_key::hash_key(&rate.key, values, self.seed, scratch)
    }

    /// Counts a request with the key `hash` at `now`, unless it exceeds the limit.
    #[must_use]
    pub fn admit(&self, hash: u64, now: Moment) -> Admission {
        let (key, set) = self.place(hash);
        let now = now.as_nanos();
        match set.iter().find(|cell| cell.key.load(Ordering::Relaxed) == key) {
            Some(cell) => self.count(cell, now),
            None => self.begin(set, key, now),
        }
    }

    /// The result that [`Self::admit`] would return, without counting the request.
    #[must_use]
    pub fn look(&self, hash: u64, now: Moment) -> Admission {
        let (key, set) = self.place(hash);
        let cell = set.iter().find(|cell| cell.key.load(Ordering::Relaxed) == key);
        match cell.map(|cell| cell.time.load(Ordering::Relaxed).saturating_sub(now.as_nanos())) {
            Some(ahead) if ahead > self.tolerance => {
                Admission::Refused(Span::from_nanos(ahead - self.tolerance))
            }
            Some(_) | None => Admission::Admitted,
        }
    }

    /// The key of a hash, and the cells that may count it.
    fn place(&self, hash: u64) -> (u64, &[Cell]) {
        let key = mix64(hash ^ self.seed).max(1);
        let sets = self.cells.len() / WAYS;
        let start = (key as usize & (sets - 1)) * WAYS;
        (key, self.cells.get(start..start + WAYS).unwrap_or_default())
    }

    /// Counts a request of the key in `cell`.
    fn count(&self, cell: &Cell, now: u64) -> Admission {
        let mut time = cell.time.load(Ordering::Relaxed);
        loop {
            let ahead = time.saturating_sub(now);
            if ahead > self.tolerance {
                return Admission::Refused(Span::from_nanos(ahead - self.tolerance));
            }
            let next = time.max(now).saturating_add(self.cost);
            match cell.time.compare_exchange_weak(time, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Admission::Admitted,
                // Another worker has counted a request in between.
                Err(newer) => time = newer,
            }
        }
    }

    /// Counts the first request of a key, which takes the cell of the key that has used least.
    fn begin(&self, set: &[Cell], key: u64, now: u64) -> Admission {
        let least = set.iter().min_by_key(|cell| cell.time.load(Ordering::Relaxed));
        let Some(cell) = least else { return Admission::Admitted };
        let before = cell.key.load(Ordering::Relaxed);
        let taken = cell.key.compare_exchange(before, key, Ordering::Relaxed, Ordering::Relaxed);
        match taken {
            Ok(_) => {
                cell.time.store(now.saturating_add(self.cost), Ordering::Relaxed);
                Admission::Admitted
            }
            // Another worker took the cell, perhaps for the same key.
            Err(other) if other == key => self.count(cell, now),
            Err(_) => Admission::Admitted,
        }
    }

    /// The number of keys that have a cell.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.cells.iter().filter(|cell| cell.key.load(Ordering::Relaxed) != 0).count()
    }
}

/// The tables of all limits of a configuration, shared by all workers.
#[derive(Clone, Debug, Default)]
pub struct RateTables {
    /// By route: the table of each of its limits.
    routes: Arc<[Vec<Arc<RateTable>>]>,
    /// The counts of connections and requests in progress by address.
    pub clients: ClientLimits,
}

impl RateTables {
    /// The tables for `config`. `seed` is not known to clients.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        let table = |rate: &Rate| Arc::new(RateTable::new(rate, seed));
        let routes = config.routes.iter();
        Self {
            routes: routes.map(|route| route.handling.rates.iter().map(table).collect()).collect(),
            clients: ClientLimits::new(config, seed),
        }
    }

    /// The tables for `config`, which follows `earlier`. A route with the same conditions and limits keeps its tables, and so the
    /// allowances that clients have used.
    #[must_use]
    pub fn after(config: &Config, earlier: &Config, tables: &Self, seed: u64) -> Self {
        let mut fresh: Vec<_> = Self::new(config, seed).routes.to_vec();
        for (route, own) in config.routes.iter().zip(&mut fresh) {
            let is_same = |other: &Route| {
                other.selects_same(route) && other.handling.rates == route.handling.rates
            };
            let before = earlier.routes.iter().position(is_same).filter(|_| !own.is_empty());
            if let Some(known) = before.and_then(|at| tables.routes.get(at)) {
                own.clone_from(known);
            }
        }
        let clients = ClientLimits::after(config, earlier, &tables.clients, seed);
        Self { routes: fresh.into(), clients }
    }

    /// The tables of a route.
    #[must_use]
    pub fn of_route(&self, route: usize) -> &[Arc<RateTable>] {
        self.routes.get(route).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::model::Template;

    fn rate(count: u32, per: Span, burst: u32, keys_max: u32) -> Rate {
        let (key, then, wait) = (Template::default(), RateExcess::Deny, Span::ZERO);
        Rate { count, per, burst, key, keys_max, then, wait, waiting_max: 0 }
    }

    fn at(millis: u64) -> Moment {
        Moment::ZERO.after(Span::from_secs(5)).after(Span::from_millis(millis))
    }

    fn admitted(table: &RateTable, key: u64, now: Moment, tries: usize) -> usize {
        (0..tries).filter(|_| table.admit(key, now) == Admission::Admitted).count()
    }

    #[test]
    fn burst_is_admitted_at_once_and_the_limit_over_time() {
        let table = RateTable::new(&rate(100, Span::from_secs(10), 20, 8), 1);
        assert_eq!(admitted(&table, 7, at(0), 100), 20);
        assert_eq!(table.admit(7, at(0)), Admission::Refused(Span::from_millis(100)));
        assert_eq!(admitted(&table, 7, at(99), 100), 0);
        assert_eq!(admitted(&table, 7, at(100), 100), 1);
        assert_eq!(admitted(&table, 7, at(1000), 100), 9);
        assert_eq!(admitted(&table, 7, at(60_000), 100), 20);
        assert_eq!(admitted(&table, 8, at(60_000), 100), 20, "another key");
        let over_time: usize = (0..100_000).map(|ms| admitted(&table, 9, at(ms), 3)).sum();
        assert_eq!(over_time, 20 + 999);
    }

    #[test]
    fn check_returns_the_result_of_admit_without_counting() {
        let table = RateTable::new(&rate(10, Span::from_secs(1), 3, 8), 1);
        for ms in [0, 0, 1, 50, 100, 150, 151, 400, 400, 400, 400] {
            for key in [1, 2, 3] {
                let looks = [table.look(key, at(ms)), table.look(key, at(ms))];
                assert_eq!(looks, [table.admit(key, at(ms)); 2]);
            }
        }
    }

    #[test]
    fn clock_that_is_behind_admits_no_more() {
        let table = RateTable::new(&rate(10, Span::from_secs(1), 10, 8), 1);
        assert_eq!(admitted(&table, 1, at(1000), 10), 10);
        // The clock of another worker.
        assert_eq!(admitted(&table, 1, at(0), 10), 0);
        assert_eq!(admitted(&table, 1, at(1100), 10), 1);
    }

    #[test]
    fn flood_of_keys_does_not_displace_a_key_at_its_limit() {
        let table = RateTable::new(&rate(1000, Span::from_secs(1), 100, 1024), 1);
        let mut hot = 0;
        let mut cold = 1_000_000;
        for ms in 0..10_000 {
            hot += admitted(&table, 42, at(ms), 10);
            for _ in 0..100 {
                cold += 1;
                assert_eq!(table.admit(cold, at(ms)), Admission::Admitted);
            }
        }
        assert_eq!(hot, 100 + 9_999);
        assert_eq!(table.keys(), 1024);
    }

    #[test]
    fn workers_together_admit_exactly_the_limit() {
        let table = Arc::new(RateTable::new(&rate(1000, Span::from_secs(1), 1000, 1024), 1));
        let total: usize = std::thread::scope(|scope| {
            let worker = |_| {
                let table = Arc::clone(&table);
                scope.spawn(move || {
                    (0..10_000).map(|n| admitted(&table, 42, at(n / 10), 1)).sum::<usize>()
                })
            };
            let workers: Vec<_> = (0..4).map(worker).collect();
            workers.into_iter().map(|worker| worker.join().expect("a worker ends")).sum()
        });
        // The workers' clocks differ, and the last moment is at 999 ms.
        assert_eq!(total, 1999);
    }

    #[test]
    fn extreme_settings_neither_overflow_nor_stop_the_service() {
        let longest = rate(1, Span::from_secs(24 * 3600), u32::MAX, 1);
        let table = RateTable::new(&longest, 1);
        assert_eq!(admitted(&table, 1, at(0), 100), 100);
        let fastest = rate(1_000_000_000, Span::from_millis(1), 1, 1);
        let table = RateTable::new(&fastest, 1);
        assert_eq!(admitted(&table, 1, at(0), 2), 1);
    }
}
