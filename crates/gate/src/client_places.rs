//! Limits how many connections, or requests in progress, each client address has, for all workers together.
//! In: the address of a client. Out: a place, which is free again at its end, or a refusal.
//! Never: takes a lock, waits, allocates after its creation, or refuses one address because of another.
//! Limits: `CELLS` addresses at the same time, in sets of `WAYS`. An address whose set has no free cell is not limited;
//! only clients with about as many addresses as there are cells can cause that.
//! Invariant: a cell counts the places of its address; a cell without places is zero and free for any address.
//!
//! Tolerance: exact, except while workers count the same address at the same moment: then each of them may give one place
//! too many.
//!
//! The cells are atomic numbers that workers share: a new connection or request changes one of them by compare-and-swap,
//! its end another time.

use core::hash::Hasher;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::hash::DefaultHasher;
use std::sync::Arc;

use tidegate_config::model::{Config, Route};

use crate::bounded_places::Places;

/// The number of cells: 1 MiB.
const CELLS: usize = 131_072;
/// The cells in which an address may be: two cache lines.
const WAYS: usize = 16;
/// The bits of a cell that count places; those above contain a part of the address's hash.
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// How often a place is looked for again because another worker has changed the set.
const TRIES_MAX: usize = 8;

/// The counts of the addresses of one limit.
#[derive(Debug)]
pub struct ClientPlaces {
    /// `WAYS` cells for each set. The number of sets is a power of two.
    cells: Box<[AtomicU64]>,
    /// The secret of the hashes, so that a client cannot choose addresses that share a set.
    seed: u64,
}

/// One place of an address. It is free again when this value is dropped.
#[derive(Debug)]
pub struct ClientPlace {
    /// The counts.
    places: Arc<ClientPlaces>,
    /// The index of the cell, whose count includes this place.
    cell: usize,
}

/// Whether a connection or request gets a place.
#[derive(Debug)]
pub enum Entry {
    /// It has a place.
    Taken(ClientPlace),
    /// Too many addresses are counted; it is served without a place.
    Uncounted,
    /// All places of the address are taken.
    Refused,
}

/// The result of one search of the cells of an address.
enum Look {
    Found(Entry),
    /// Another worker has changed the set.
    Changed,
}

impl ClientPlaces {
    /// Counts without places. `seed` is not known to clients.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { cells: (0..CELLS).map(|_| AtomicU64::new(0)).collect(), seed })
    }

    /// Takes a place for `address`, which may have `most`. An IPv6 address counts by its first 64 bits.
    #[must_use]
    pub fn take(self: &Arc<Self>, address: IpAddr, most: u32) -> Entry {
        let hash = self.hash(address);
        for _ in 0..TRIES_MAX {
            if let Look::Found(entry) = self.look(hash, u64::from(most)) {
                return entry;
            }
        }
        Entry::Uncounted
    }

    fn look(self: &Arc<Self>, hash: u64, most: u64) -> Look {
        let start = (hash as usize & (CELLS / WAYS - 1)) * WAYS;
        let tag = hash & !COUNT_MASK;
        let (mut total, mut own, mut free) = (0, None, None);
        for index in start..start + WAYS {
            let Some(cell) = self.cells.get(index) else { continue };
            let value = cell.load(Ordering::Relaxed);
            if value == 0 {
                free = free.or(Some((index, 0)));
            } else if value & !COUNT_MASK == tag {
                // Two workers may have begun to count the address at the same moment, in two cells.
                total += value & COUNT_MASK;
                own = own.or(Some((index, value)));
            }
        }
        if total >= most.min(COUNT_MASK) {
            return Look::Found(Entry::Refused);
        }
        let Some((index, before)) = own.or(free) else { return Look::Found(Entry::Uncounted) };
        let after = ((before & COUNT_MASK) + 1) | tag;
        let Some(cell) = self.cells.get(index) else { return Look::Changed };
        match cell.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                let places = Arc::clone(self);
                Look::Found(Entry::Taken(ClientPlace { places, cell: index }))
            }
            Err(_) => Look::Changed,
        }
    }

    fn hash(&self, address: IpAddr) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        match address {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => {
                let [network @ .., _, _, _, _, _, _, _, _] = address.octets();
                hasher.write(&network);
                hasher.write_u8(6);
            }
        }
        hasher.finish()
    }

    /// The number of places that are taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.cells.iter().map(|cell| cell.load(Ordering::Relaxed) & COUNT_MASK).sum()
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let less = |value: u64| match value & COUNT_MASK {
            // The last place: the cell is free for any address.
            0 | 1 => Some(0),
            _ => Some(value - 1),
        };
        if let Some(cell) = self.places.cells.get(self.cell) {
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

/// `connections-per-address-max` of all listeners and routes of a configuration, and `connections-max` of listeners, shared
/// by all workers.
#[derive(Clone, Debug, Default)]
pub struct ClientLimits {
    /// By listener: the places of all its connections. Only those of a listener with a limit are taken.
    totals: Arc<[Arc<Places>]>,
    /// By listener; `None`: no limit.
    listeners: Arc<[Option<Arc<ClientPlaces>>]>,
    /// By route; `None`: no limit.
    routes: Arc<[Option<Arc<ClientPlaces>>]>,
}

impl ClientLimits {
    /// The counts for `config`. `seed` is not known to clients.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        let of_listener = config.listeners.iter().map(|listener| listener.per_address_max);
        let of_route = config.routes.iter().map(|route| route.handling.per_address_max);
        let places = |most: Option<u32>| most.map(|_| ClientPlaces::new(seed));
        Self {
            totals: config.listeners.iter().map(|_| Places::new(u32::MAX)).collect(),
            listeners: of_listener.map(places).collect(),
            routes: of_route.map(places).collect(),
        }
    }

    /// The counts for `config`, which follows `earlier`. A listener keeps its counts, and a route those of the route
    /// with the same conditions, because the connections and requests that they count are still there.
    #[must_use]
    pub fn after(config: &Config, earlier: &Config, limits: &Self, seed: u64) -> Self {
        let fresh = Self::new(config, seed);
        let (mut listeners, mut routes) = (fresh.listeners.to_vec(), fresh.routes.to_vec());
        let mut totals = fresh.totals.to_vec();
        totals
            .iter_mut()
            .zip(limits.totals.iter())
            .for_each(|(own, before)| own.clone_from(before));
        for (own, before) in listeners.iter_mut().zip(limits.listeners.iter()) {
            if own.is_some() && before.is_some() {
                own.clone_from(before);
            }
        }
        for (route, own) in config.routes.iter().zip(&mut routes) {
            let is_same = |other: &Route| other.selects_same(route);
            let before = earlier.routes.iter().position(is_same).and_then(|at| limits.route(at));
            if let Some(before) = before.filter(|_| own.is_some()) {
                *own = Some(Arc::clone(before));
            }
        }
        Self { totals: totals.into(), listeners: listeners.into(), routes: routes.into() }
    }

    /// Whether anything is limited.
    #[must_use]
    pub fn are_set(&self) -> bool {
        self.listeners.iter().chain(self.routes.iter()).any(Option::is_some)
    }

    /// The places of all connections of a listener.
    #[must_use]
    pub fn total(&self, listener: usize) -> Option<&Arc<Places>> {
        self.totals.get(listener)
    }

    /// The counts of a listener.
    #[must_use]
    pub fn listener(&self, index: usize) -> Option<&Arc<ClientPlaces>> {
        self.listeners.get(index)?.as_ref()
    }

    /// The counts of a route.
    #[must_use]
    pub fn route(&self, index: usize) -> Option<&Arc<ClientPlaces>> {
        self.routes.get(index)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn taken(entry: Entry) -> Option<ClientPlace> {
        match entry {
            Entry::Taken(place) => Some(place),
            Entry::Uncounted | Entry::Refused => None,
        }
    }

    #[test]
    fn each_address_has_its_own_places() {
        let places = ClientPlaces::new(1);
        let mut held: Vec<_> = (0..3).filter_map(|_| taken(places.take(address(1), 3))).collect();
        assert_eq!(held.len(), 3);
        assert!(matches!(places.take(address(1), 3), Entry::Refused));
        assert!(matches!(places.take(address(2), 3), Entry::Taken(_)), "another address");
        drop(held.pop());
        let again = taken(places.take(address(1), 3));
        assert!(again.is_some());
        // A lower limit after a reload refuses until enough places are free.
        assert!(matches!(places.take(address(1), 2), Entry::Refused));
        drop((held, again));
        assert_eq!(places.taken(), 0);
        assert!(places.cells.iter().all(|cell| cell.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn ipv6_addresses_count_by_their_network() {
        let places = ClientPlaces::new(1);
        let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
        let _held = places.take(v6("2001:db8::1"), 1);
        assert!(matches!(places.take(v6("2001:db8::2"), 1), Entry::Refused));
        assert!(matches!(places.take(v6("2001:db8:0:1::1"), 1), Entry::Taken(_)));
    }

    #[test]
    fn many_addresses_are_counted_and_further_ones_are_not_refused() {
        let places = ClientPlaces::new(1);
        let hot = taken(places.take(address(u32::MAX), 1));
        let held: Vec<_> =
            (0..40_000).filter_map(|number| taken(places.take(address(number), 1))).collect();
        assert_eq!(held.len(), 40_000, "a third of the cells");
        let more: Vec<_> =
            (40_000..400_000).map(|number| places.take(address(number), 1)).collect();
        assert!(!more.iter().any(|entry| matches!(entry, Entry::Refused)));
        assert!(more.iter().any(|entry| matches!(entry, Entry::Uncounted)));
        assert!(places.taken() <= CELLS as u64);
        assert!(matches!(places.take(address(u32::MAX), 1), Entry::Refused), "still counted");
        drop((hot, held, more));
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn reload_keeps_the_counts_of_listeners_and_routes() {
        let file = |paths: &str, most: u32| {
            let text = format!(
                "[[listener]]\nbind = \"127.0.0.1:80\"\nconnections-per-address-max = {most}\n\
                 [[route]]\npath = \"/new\"\nrespond = {{}}\n\
                 [[route]]\npath = \"{paths}\"\nconnections-per-address-max = {most}\nrespond = {{}}\n"
            );
            tidegate_config::parse(&text, "the test").expect("the file is valid")
        };
        let (earlier, later, other) = (file("/a", 2), file("/a", 1), file("/b", 1));
        let limits = ClientLimits::new(&earlier, 1);
        let _held = limits.listener(0).map(|places| places.take(address(1), 2));
        let _also = limits.route(1).map(|places| places.take(address(1), 2));
        assert!(limits.are_set() && limits.route(0).is_none());
        let _place = limits.total(0).and_then(|places| places.take_of(1));
        let full = ClientLimits::after(&later, &earlier, &limits, 1);
        assert!(full.total(0).is_some_and(|places| places.take_of(1).is_none()));
        let taken = |limits: &ClientLimits| {
            (limits.listener(0).map(|p| p.taken()), limits.route(1).map(|p| p.taken()))
        };
        assert_eq!(taken(&ClientLimits::after(&later, &earlier, &limits, 1)), (Some(1), Some(1)));
        assert_eq!(taken(&ClientLimits::after(&other, &earlier, &limits, 1)), (Some(1), Some(0)));
    }

    #[test]
    fn routes_of_one_path_keep_their_own_counts_over_a_reload() {
        let route = |method: &str, rest: &str| {
            format!("[[route]]\npath = \"/a\"\nmethod = \"{method}\"\n{rest}respond = {{}}\n")
        };
        let limit = "connections-per-address-max = 2\n";
        for first in [limit, ""] {
            let text = format!(
                "[[listener]]\nbind = \"127.0.0.1:80\"\n{}{}",
                route("GET", first),
                route("POST", limit)
            );
            let config = tidegate_config::parse(&text, "the test").expect("the file is valid");
            let limits = ClientLimits::new(&config, 1);
            let _held = limits.route(1).map(|places| places.take(address(1), 2));
            let after = ClientLimits::after(&config, &config, &limits, 1);
            let taken = |index| after.route(index).map(|places| places.taken());
            assert_eq!((taken(0), taken(1)), ((!first.is_empty()).then_some(0), Some(1)));
        }
    }

    #[test]
    fn workers_together_keep_the_limit() {
        let places = ClientPlaces::new(1);
        let most = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..2000 {
                        let held: Vec<_> =
                            (0..4).map(|_| places.take(address(round % 3), 8)).collect();
                        most.fetch_max(places.taken() as usize, Ordering::Relaxed);
                        drop(held);
                    }
                });
            }
        });
        // Three addresses with eight places each, and one more for each worker that counts at the same moment.
        assert!(most.load(Ordering::Relaxed) <= 3 * (8 + 4), "{most:?}");
        assert_eq!(places.taken(), 0);
    }
}
