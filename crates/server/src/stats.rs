//! Statistics of the requests of each listener, route and server: counts, bytes, times. Of pools: their queues, and the requests
//! that ended without a server.
//! In: the end of each exchange, noted by the worker that served it; the counts of an earlier process. Out: sums over all workers
//! and processes, by name.
//! Never: takes a lock while a request is handled: the lock of the registry is taken when settings begin to be used
//! and when statistics are read.
//! Limits: one block of counters for each name and worker. The last `GONE_MAX` names that were removed from the configuration keep
//! their blocks, so that their counters do not decrease if they are added again.
//! Invariant: only the worker that a block belongs to counts in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tidegate_base::Span;
use tidegate_base::counters;
use tidegate_base::counters::Counter;
use tidegate_base::histogram::{Durations, Histogram};
use tidegate_config::arrange::Arranged;
use tidegate_config::model::Config;
use tidegate_gate::access::{Cause, Entry, Names, Phase, Timers};

use crate::state_transfer::{PassedTraffic, StateTransfer};

/// The averages of times are those of about this many requests.
const WINDOW: u64 = 1024;
/// How many listeners, routes and servers that were removed from the configuration keep their counters. Those that requests still
/// use are kept in addition.
const GONE_MAX: usize = 1000;

counters! {
    /// Counts of one listener, route, pool or server in one worker; names ending in `_now` are gauges.
    pub struct Counts {
        /// Requests that began.
        begun,
        /// Requests in progress.
        under_way_now,
        /// Maximum number of requests that were in progress at once.
        under_way_max,
        /// Requests that wait for a server.
        queued_now,
        /// Maximum number of requests that waited for a server at once.
        queued_max,
        /// Requests that have ended.
        ended,
        /// Bytes of request bodies.
        bytes_in,
        /// Bytes of responses.
        bytes_out,
        /// Requests without a response.
        status_none,
        /// Responses with status 1xx.
        status_1xx,
        /// Responses with status 2xx.
        status_2xx,
        /// Responses with status 3xx.
        status_3xx,
        /// Responses with status 4xx.
        status_4xx,
        /// Responses with status 5xx.
        status_5xx,
        /// Requests that failed because the client disconnected or was too slow.
        client_failures,
        /// Requests that were refused.
        refusals,
        /// Requests that failed because the server could not be reached.
        connect_failures,
        /// Requests that failed after the server was reached.
        server_failures,
        /// Requests that failed because of a limit of this process.
        limit_failures,
        /// Attempts after the first one.
        retries,
        /// Requests that were sent over a connection that was used before.
        reuses,
        /// Sum of queueing times in microseconds, of the last requests.
        queue_us,
        /// Sum of connect times, in the same way.
        connect_us,
        /// Sum of response times, in the same way.
        response_us,
        /// Sum of total times, in the same way.
        total_us,
    }
}

/// The counters of one listener, route or server in one worker.
#[derive(Default, Debug)]
pub struct Traffic {
    /// Counts.
    pub counts: Counts,
    /// Total times. Allocated with the first request, because most of many servers and routes get no request.
    latency: OnceLock<Box<Histogram>>,
    /// The profile that is being taken is limited to this route. The admin interface sets it.
    pub(crate) is_profiled: AtomicBool,
}

impl Counts {
    /// A request has ended with a response of this status.
    fn count_status(&self, status: Option<u16>) {
        let counter = match status.map(|status| status / 100) {
            None => &self.status_none,
            Some(1) => &self.status_1xx,
            Some(2) => &self.status_2xx,
            Some(3) => &self.status_3xx,
            Some(4) => &self.status_4xx,
            Some(_) => &self.status_5xx,
        };
        counter.add(1);
    }
}

impl Traffic {
    /// A request begins to use the listener, route or server.
    pub(crate) fn begin(&self) {
        let counts = &self.counts;
        counts.begun.add(1);
        counts.under_way_now.add(1);
        let (now, most) = (counts.under_way_now.load(), counts.under_way_max.load());
        counts.under_way_max.add(now.saturating_sub(most));
    }

    /// So many requests wait for a server.
    pub(crate) fn note_queue(&self, length: usize) {
        let counts = &self.counts;
        let (length, before) = (length as u64, counts.queued_now.load());
        counts.queued_now.add(length.wrapping_sub(before));
        counts.queued_max.add(length.saturating_sub(counts.queued_max.load()));
    }

    /// A request that has begun belongs to another part now.
    pub(crate) fn withdraw(&self) {
        self.counts.under_way_now.sub(1);
    }

    /// A request goes to another server.
    pub(crate) fn leave(&self) {
        self.counts.under_way_now.sub(1);
        self.counts.retries.add(1);
    }

    /// The copy of a request has ended, which has no line in the access log.
    pub(crate) fn end_mirrored(&self, status: Option<u16>, is_complete: bool, took: Span) {
        let counts = &self.counts;
        counts.under_way_now.sub(1);
        counts.count_status(status);
        counts.server_failures.add(u64::from(!is_complete));
        counts.ended.add(1);
        self.latency.get_or_init(Box::default).note(took);
    }

    /// A request has ended. `times`: those of the entry.
    pub(crate) fn end(&self, entry: &Entry<'_>, times: &Times) {
        let counts = &self.counts;
        counts.under_way_now.sub(1);
        counts.bytes_in.add(entry.bytes_in);
        counts.bytes_out.add(entry.bytes_out);
        if entry.status.is_some() || entry.version.is_some() {
            counts.count_status(entry.status);
        }
        match entry.cause {
            Cause::None | Cause::Stopped | Cause::Bug => {}
            Cause::Client | Cause::ClientTimeout => counts.client_failures.add(1),
            Cause::Refused => counts.refusals.add(1),
            Cause::Server | Cause::ServerTimeout if entry.phase <= Phase::Connect => {
                counts.connect_failures.add(1);
            }
            Cause::Server | Cause::ServerTimeout => counts.server_failures.add(1),
            Cause::QueueTimeout | Cause::Limit => counts.limit_failures.add(1),
        }
        counts.reuses.add(u64::from(entry.is_reused));
        let ended = counts.ended.load();
        let sums = [&counts.queue_us, &counts.connect_us, &counts.response_us, &counts.total_us];
        for (sum, micros) in sums.into_iter().zip(times.micros) {
            slide(sum, ended, micros);
        }
        counts.ended.add(1);
        self.latency.get_or_init(Box::default).note_micros(times.micros[3]);
    }
}

/// The times of a request, as the counters of its listener, route and server take them.
pub(crate) struct Times {
    /// Queueing, connect, response and total time in microseconds.
    micros: [u64; 4],
}

impl Times {
    /// The times that these timers show.
    pub(crate) fn of(timers: &Timers) -> Self {
        let Timers { queue, connect, response, total, .. } = *timers;
        let micros = [queue, connect, response, Some(total)]
            .map(|span| span.map_or(0, |span| span.as_micros() as u64));
        Self { micros }
    }
}

/// Adds to a sum over the last `WINDOW` values, as far as their mean is concerned.
fn slide(sum: &Counter, count: u64, micros: u64) {
    let leaving = if count >= WINDOW { sum.load() / WINDOW } else { 0 };
    sum.add(micros.wrapping_sub(leaving));
}

/// The sum of the counters of all workers.
#[derive(Clone, Default, Debug)]
pub struct Totals {
    /// By counter, in the order of declaration.
    values: Vec<(&'static str, u64)>,
    /// The number of requests over which the averages are taken.
    window: u64,
    /// Total times.
    pub latency: Durations,
}

impl Totals {
    /// The sums of these blocks.
    fn of<'a>(blocks: impl Iterator<Item = &'a Arc<Traffic>>) -> Self {
        let mut totals = Self::default();
        for block in blocks {
            totals.add(block);
        }
        totals
    }

    fn add(&mut self, traffic: &Traffic) {
        let values = traffic.counts.all();
        if self.values.is_empty() {
            self.values = values;
        } else {
            for ((_, sum), (_, value)) in self.values.iter_mut().zip(values) {
                *sum += value;
            }
        }
        self.window += traffic.counts.ended.load().min(WINDOW);
        if let Some(latency) = traffic.latency.get() {
            self.latency.add(latency);
        }
    }

    /// Adds other sums.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.values.is_empty() {
            self.values.clone_from(&other.values);
        } else {
            for ((_, sum), (_, value)) in self.values.iter_mut().zip(&other.values) {
                *sum = sum.saturating_add(*value);
            }
        }
        self.window += other.window;
    }

    /// Adds the counts of an earlier process. Gauges and averages are those of this process.
    fn inherit(&mut self, earlier: &PassedTraffic) {
        for (name, sum) in self.values.iter_mut().filter(|(name, _)| is_passed(name)) {
            let value = earlier.counts.get(*name).copied().unwrap_or_default();
            *sum = if is_peak(name) { value.max(*sum) } else { sum.saturating_add(value) };
        }
        self.latency.merge(&earlier.latency);
    }

    /// The counters with which the next process continues.
    fn passed(self) -> PassedTraffic {
        let values = self.values.into_iter().filter(|(name, value)| is_passed(name) && *value > 0);
        let counts = values.map(|(name, value)| (name.to_owned(), value)).collect();
        PassedTraffic { counts, latency: self.latency }
    }

    /// The value of a counter.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.values.iter().find(|(other, _)| *other == name).map_or(0, |(_, value)| *value)
    }

    /// The mean of a time over the last requests, in milliseconds.
    #[must_use]
    pub fn mean_ms(&self, name: &str) -> u64 {
        self.get(name).checked_div(self.window).unwrap_or(0) / 1000
    }
}

/// Whether the next process continues with a counter: not with gauges, nor with sums of the last requests only.
pub(crate) fn is_passed(name: &str) -> bool {
    !name.ends_with("_now") && !name.ends_with("_us")
}

/// Whether a counter is the largest value of a gauge.
fn is_peak(name: &str) -> bool {
    name.ends_with("_max")
}

/// The subject of counters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// A listener.
    Listener(String),
    /// A route.
    Route(String),
    /// A pool, with the requests that wait for one of its servers or ended without one.
    Pool(String),
    /// A server of a pool: the names of both.
    Server(String, String),
}

impl Subject {
    /// The listeners, routes and servers of a configuration, without those that were removed.
    fn all_of(arranged: &Arranged) -> BTreeSet<Self> {
        let (config, names) = (&arranged.config, Names::new(&arranged.config));
        let listeners = arranged.file_listeners.iter().map(|at| &config.listeners[*at].name);
        let mut all: BTreeSet<Self> = listeners.cloned().map(Self::Listener).collect();
        let routes = 0..config.routes.len();
        all.extend(routes.map(|route| Self::Route(names.route(route).to_owned())));
        for pool in &arranged.file_pools {
            all.insert(Self::Pool(config.pools[*pool].name.clone()));
            let servers = arranged.pools[*pool].servers.iter().enumerate();
            let present = servers.filter(|(_, server)| !server.life.is_gone());
            all.extend(present.map(|(server, _)| {
                let (pool, server) = names.server(*pool, server);
                Self::Server(pool.to_owned(), server.to_owned())
            }));
        }
        all
    }
}

/// The counters of a subject.
#[derive(Debug)]
struct Block {
    /// By worker.
    of_workers: Vec<Arc<Traffic>>,
    /// The number of the change that removed the subject from the configuration.
    gone_since: Option<u64>,
}

impl Block {
    /// Whether a worker has settings with the subject.
    fn is_in_use(&self) -> bool {
        self.of_workers.iter().any(|traffic| Arc::strong_count(traffic) > 1)
    }
}

/// The counters of all subjects.
#[derive(Default, Debug)]
struct Blocks {
    /// By subject.
    known: BTreeMap<Subject, Block>,
    /// How often the configuration has changed.
    changes: u64,
}

impl Blocks {
    /// Removes the blocks of subjects that were removed from the configuration, except for the last `GONE_MAX` and those in use.
    /// Returns the subjects.
    fn forget(&mut self) -> Vec<Subject> {
        let gone = self.known.iter().filter_map(|(subject, block)| {
            Some((block.gone_since.filter(|_| !block.is_in_use())?, subject))
        });
        let mut gone: Vec<_> = gone.collect();
        let excess = gone.len().saturating_sub(GONE_MAX);
        if excess == 0 {
            return Vec::new();
        }
        gone.sort_unstable();
        let forgotten: Vec<Subject> =
            gone.into_iter().take(excess).map(|(_, subject)| subject.clone()).collect();
        for subject in &forgotten {
            self.known.remove(subject);
        }
        forgotten
    }
}

/// The counters of all listeners, routes and servers, by worker.
#[derive(Debug)]
pub struct Registry {
    /// The number of workers.
    workers: usize,
    /// The counters by name.
    blocks: Mutex<Blocks>,
    /// The counts of earlier processes: their own counters, and those of the subjects of `blocks`.
    earlier: Mutex<StateTransfer>,
}

impl Registry {
    /// A registry for this number of workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self { workers, blocks: Mutex::default(), earlier: Mutex::default() }
    }

    /// The counters of one worker for the listeners, routes and servers of `config`.
    #[must_use]
    pub fn of_worker(&self, worker: usize, config: &Config, names: &Names) -> Counted {
        let mut blocks = self.blocks();
        let new = || {
            let of_workers = (0..self.workers).map(|_| Arc::default()).collect();
            Block { of_workers, gone_since: None }
        };
        let mut block = |subject: Subject| {
            let known = blocks.known.entry(subject).or_insert_with(new);
            known.of_workers.get(worker).map_or_else(Arc::default, Arc::clone)
        };
        let listeners = config.listeners.iter();
        let listeners = listeners.map(|at| block(Subject::Listener(at.name.clone()))).collect();
        let routes = (0..config.routes.len())
            .map(|route| block(Subject::Route(names.route(route).to_owned())))
            .collect();
        let pools = config.pools.iter();
        let pools = pools.map(|pool| block(Subject::Pool(pool.name.clone()))).collect();
        let servers = config
            .pools
            .iter()
            .enumerate()
            .map(|(pool, settings)| {
                (0..settings.servers.len())
                    .map(|server| {
                        let (pool, server) = names.server(pool, server);
                        block(Subject::Server(pool.to_owned(), server.to_owned()))
                    })
                    .collect()
            })
            .collect();
        Counted { listeners, routes, pools, servers }
    }

    /// The sums of all workers and of earlier processes.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<Subject, Totals> {
        let blocks = self.blocks();
        let sums = blocks.known.iter();
        let mut sums: BTreeMap<Subject, Totals> = sums
            .map(|(subject, block)| (subject.clone(), Totals::of(block.of_workers.iter())))
            .collect();
        drop(blocks);
        for (subject, traffic) in &self.earlier().traffic {
            if let Some(sum) = sums.get_mut(subject) {
                sum.inherit(traffic);
            }
        }
        sums
    }

    /// The bytes of the responses of all listeners.
    pub(crate) fn bytes_out(&self) -> u64 {
        let totals = self.totals().into_iter();
        let listeners = totals.filter(|(subject, _)| matches!(subject, Subject::Listener(_)));
        listeners.map(|(_, totals)| totals.get("bytes_out")).fold(0, u64::saturating_add)
    }

    /// Begins or ends a profile that is limited to a route. Returns whether the route is known.
    pub(crate) fn set_profiled(&self, route: &str, is_profiled: bool) -> bool {
        let blocks = self.blocks();
        let block = blocks.known.get(&Subject::Route(route.to_owned()));
        for traffic in block.into_iter().flat_map(|block| &block.of_workers) {
            traffic.is_profiled.store(is_profiled, Ordering::Relaxed);
        }
        block.is_some()
    }

    /// The requests of a route that have begun in one worker.
    pub(crate) fn begun(&self, route: &str, worker: usize) -> u64 {
        let blocks = self.blocks();
        let block = blocks.known.get(&Subject::Route(route.to_owned()));
        let traffic = block.and_then(|block| block.of_workers.get(worker));
        traffic.map_or(0, |traffic| traffic.counts.begun.load())
    }

    /// The requests of one subject that are in progress.
    pub(crate) fn under_way(&self, subject: &Subject) -> u64 {
        let blocks = self.blocks();
        let of_workers = blocks.known.get(subject).into_iter().flat_map(|block| &block.of_workers);
        of_workers.map(|traffic| traffic.counts.under_way_now.load()).sum()
    }

    /// Notes that `arranged` is in force in all workers, and removes the counters of subjects that were removed long ago.
    pub(crate) fn follow(&self, arranged: &Arranged) {
        let present = Subject::all_of(arranged);
        let mut blocks = self.blocks();
        blocks.changes += 1;
        let now = blocks.changes;
        for (subject, block) in &mut blocks.known {
            match present.contains(subject) {
                true => block.gone_since = None,
                false => _ = block.gone_since.get_or_insert(now),
            }
        }
        let forgotten = blocks.forget();
        drop(blocks);
        let mut earlier = self.earlier();
        for subject in &forgotten {
            earlier.traffic.remove(subject);
        }
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn earlier(&self) -> MutexGuard<'_, StateTransfer> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues with the counts of an earlier process for subjects of this process. A later transfer of the same process
    /// replaces an earlier one; no counter decreases.
    pub(crate) fn inherit(&self, transfer: StateTransfer) {
        let known: BTreeSet<Subject> = self.blocks().known.keys().cloned().collect();
        let mut earlier = self.earlier();
        grow(&mut earlier.process, transfer.process);
        for (subject, traffic) in transfer.traffic.into_iter().chain(transfer.gone) {
            if known.contains(&subject) {
                let known = earlier.traffic.entry(subject).or_default();
                grow(&mut known.counts, traffic.counts);
                if traffic.latency.count() >= known.latency.count() {
                    known.latency = traffic.latency;
                }
            }
        }
    }

    /// Adds the counts of earlier processes to the counters of this one.
    pub(crate) fn add_earlier(&self, counters: &mut BTreeMap<&'static str, u64>) {
        let earlier = self.earlier();
        for (name, sum) in counters.iter_mut().filter(|(name, _)| is_passed(name)) {
            *sum = sum.saturating_add(earlier.process.get(*name).copied().unwrap_or_default());
        }
    }

    /// The counts for the next process: the counters of subjects of the configuration in force, then those of others, which may
    /// be in the configuration of the next process.
    pub(crate) fn passed(&self) -> [BTreeMap<Subject, PassedTraffic>; 2] {
        let is_gone = |block: &Block| block.gone_since.is_some();
        let blocks = self.blocks();
        let gone = blocks.known.iter().filter(|(_, block)| is_gone(block));
        let gone: BTreeSet<Subject> = gone.map(|(subject, _)| subject.clone()).collect();
        drop(blocks);
        let totals = self.totals().into_iter();
        let passed = totals.map(|(subject, totals)| (subject, totals.passed()));
        let (gone, present) = passed.partition(|(subject, _)| gone.contains(subject));
        [present, gone]
    }
}

/// Raises counters to newer values.
fn grow(counts: &mut BTreeMap<String, u64>, newer: BTreeMap<String, u64>) {
    for (name, value) in newer {
        let known = counts.entry(name).or_default();
        *known = value.max(*known);
    }
}

/// The counters of one worker, by the indexes of its settings. Empty if nothing is counted.
#[derive(Clone, Default, Debug)]
pub struct Counted {
    /// By listener.
    listeners: Vec<Arc<Traffic>>,
    /// By route.
    routes: Vec<Arc<Traffic>>,
    /// By pool.
    pools: Vec<Arc<Traffic>>,
    /// By pool and server.
    servers: Vec<Vec<Arc<Traffic>>>,
}

impl Counted {
    pub(crate) fn listener(&self, index: u16) -> Option<&Traffic> {
        self.listeners.get(usize::from(index)).map(Arc::as_ref)
    }

    pub(crate) fn route(&self, index: u16) -> Option<&Traffic> {
        self.routes.get(usize::from(index)).map(Arc::as_ref)
    }

    /// The counters of a route, for longer than these settings.
    pub(crate) fn share_route(&self, index: u16) -> Option<Arc<Traffic>> {
        self.routes.get(usize::from(index)).cloned()
    }

    /// The counters of a server, for longer than these settings.
    pub(crate) fn share_server(&self, (pool, server): (u16, u16)) -> Option<Arc<Traffic>> {
        self.servers.get(usize::from(pool))?.get(usize::from(server)).cloned()
    }

    pub(crate) fn pool(&self, index: u16) -> Option<&Traffic> {
        self.pools.get(usize::from(index)).map(Arc::as_ref)
    }

    pub(crate) fn server(&self, (pool, server): (u16, u16)) -> Option<&Traffic> {
        self.servers.get(usize::from(pool))?.get(usize::from(server)).map(Arc::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_the_last_requests() {
        let sum = Counter::default();
        for count in 0..WINDOW {
            slide(&sum, count, 2000);
        }
        assert_eq!(sum.load(), WINDOW * 2000);
        for count in WINDOW..20 * WINDOW {
            slide(&sum, count, 6000);
        }
        let mean = sum.load() / WINDOW;
        assert!((5990..=6000 + 1).contains(&mean), "{mean}");
    }

    #[test]
    fn names_keep_their_counters_and_workers_have_their_own() {
        let text = "[[listener]]\nname = \"web\"\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"p\"\n\
            [pool.p]\nservers = [\"10.0.0.1:1\"]\n";
        let config = tidegate_config::parse(text, "the test").expect("it is valid");
        let (registry, names) = (Registry::new(2), Names::new(&config));
        let first = registry.of_worker(0, &config, &names);
        let second = registry.of_worker(1, &config, &names);
        let again = registry.of_worker(0, &config, &names);
        for counted in [&first, &second, &again] {
            counted.server((0, 0)).expect("the server has counters").begin();
        }
        assert_eq!(first.server((0, 0)).map(|of| of.counts.begun.load()), Some(2));
        let totals = registry.totals();
        let subject = Subject::Server("p".to_owned(), "10.0.0.1:1".to_owned());
        assert_eq!((totals.len(), totals[&subject].get("under_way_now")), (4, 3));
        assert!(first.server((0, 1)).is_none() && first.route(1).is_none());
    }

    #[test]
    fn longest_queue_is_kept() {
        let traffic = Traffic::default();
        for (length, most) in [(1, 1), (3, 3), (2, 3), (0, 3), (4, 4)] {
            traffic.note_queue(length);
            let counts = &traffic.counts;
            assert_eq!((counts.queued_now.load(), counts.queued_max.load()), (length as u64, most));
        }
    }

    #[test]
    fn counters_of_the_last_names_that_left_are_kept() {
        let config = |server: usize| {
            let server = format!("10.0.{}.{}:1", server / 256, server % 256);
            let text = format!(
                "[[listener]]\nname = \"web\"\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"p\"\n\
                 [pool.p]\nservers = [\"{server}\"]\n"
            );
            tidegate_config::parse(&text, "the test").expect("it is valid")
        };
        let subject = |server: usize| {
            let server = format!("10.0.{}.{}:1", server / 256, server % 256);
            Subject::Server("p".to_owned(), server)
        };
        let registry = Registry::new(1);
        let counted_of = |server: usize| {
            let config = config(server);
            let counted = registry.of_worker(0, &config, &Names::new(&config));
            registry.follow(&Arranged::first(config));
            counted
        };
        let (held, count) = (counted_of(0), GONE_MAX + 20);
        let traffic = PassedTraffic {
            counts: [("begun".to_owned(), 5)].into(),
            latency: Durations::default(),
        };
        counted_of(1);
        let traffic = [(subject(1), traffic)].into();
        registry.inherit(StateTransfer { traffic, ..StateTransfer::default() });
        (2..count).for_each(|server| _ = counted_of(server));
        let totals = registry.totals();
        // The listener, the route, the pool and the server of the configuration, and the server that requests use.
        assert_eq!(totals.len(), GONE_MAX + 5);
        assert!(totals.contains_key(&subject(0)) && totals.contains_key(&subject(count - 1)));
        assert!(!totals.contains_key(&subject(1)), "the oldest one is gone");
        let [present, gone] = registry.passed();
        assert_eq!((present.len(), gone.len()), (4, GONE_MAX + 1));
        assert!(present.contains_key(&subject(count - 1)));
        counted_of(1);
        assert_eq!(registry.totals()[&subject(1)].get("begun"), 0, "inherited counts went, too");
        drop(held);
        counted_of(1);
        assert!(!registry.totals().contains_key(&subject(0)));
    }

    #[test]
    fn counters_of_an_earlier_process_are_added_and_never_go_back() {
        let text =
            "[[listener]]\nname = \"web\"\nbind = \"127.0.0.1:0\"\n[[route]]\nrespond = {}\n";
        let config = tidegate_config::parse(text, "the test").expect("it is valid");
        let registry = Registry::new(1);
        let counted = registry.of_worker(0, &config, &Names::new(&config));
        let listener = counted.listener(0).expect("the listener has counters");
        let web = Subject::Listener("web".to_owned());
        let earlier = |begun: u64, most: u64| {
            let mut durations = [0; tidegate_base::histogram::BOUNDS + 1];
            durations[0] = begun;
            let latency = Durations::of_parts(&durations, begun).expect("as many as buckets");
            let counts =
                [("begun", begun), ("under_way_max", most), ("under_way_now", 9), ("odd", 1)];
            let counts = counts.map(|(name, value)| (name.to_owned(), value)).into();
            let traffic = PassedTraffic { counts, latency };
            let gone = Subject::Route("/gone".to_owned());
            StateTransfer {
                process: [("accepted", begun), ("downstream_now", 5), ("odd", 1)]
                    .map(|(name, value)| (name.to_owned(), value))
                    .into(),
                traffic: [(web.clone(), traffic.clone()), (gone, traffic)].into(),
                ..StateTransfer::default()
            }
        };
        listener.begin();
        // The second transfer is newer; the third one is that of a process that has counted less.
        for (begun, most, expected) in [(10, 3, 11), (u64::MAX, 4, u64::MAX), (20, 1, u64::MAX)] {
            registry.inherit(earlier(begun, most));
            let totals = registry.totals();
            let web = &totals[&web];
            assert_eq!(
                (totals.len(), web.get("begun"), web.get("under_way_now")),
                (2, expected, 1)
            );
            assert_eq!(web.latency.count(), expected.saturating_sub(u64::from(begun == 10)));
            let mut process = BTreeMap::from([("accepted", 1), ("downstream_now", 1)]);
            registry.add_earlier(&mut process);
            assert_eq!(process, BTreeMap::from([("accepted", expected), ("downstream_now", 1)]));
        }
        let [mut passed, _] = registry.passed();
        let passed = passed.remove(&web).expect("it is known");
        let counts = [("begun".to_owned(), u64::MAX), ("under_way_max".to_owned(), 4)];
        assert_eq!(passed.counts, counts.into());
    }
}
