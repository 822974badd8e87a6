//! Which server of a pool takes the next request: random, in turn, least loaded, by hash.
//! In: load as the worker notes it, random numbers, keys. Out: a server, "all are full", or none.
//! Never: connects, asks the clock, shares its state with another worker.
//! Limits: `RING_POINTS_MAX` points of the hash ring, `TRIED_MAX` servers remembered per request.
//! Invariant: a picked server is up, untried and below its limit; `in_use` counts what was started
//! and has not ended.

use tidegate_base::prng::{hash_bytes, mix64};
use tidegate_base::{Moment, Prng, Span};
use tidegate_config::model::{self, Balance, ServerAddress};

/// How long a server is passed over after a failed connect, where another one can serve.
pub const AVOID_AFTER_FAILURE: Span = Span::from_secs(1);
/// Servers that a request remembers having tried; beyond, the oldest is forgotten.
pub const TRIED_MAX: usize = 8;
/// Points of a pool's hash ring; many servers with uneven weights share them out.
pub const RING_POINTS_MAX: usize = 1 << 16;

/// Points of the ring per unit of weight: with 160 the shares of equal servers differ by a tenth.
const RING_POINTS_PER_WEIGHT: u64 = 160;
/// Bounded load: no server is hashed to beyond 5/4 of its fair share of what is in use
/// (Mirrokni, Thorup, Zadimoghaddam: "Consistent Hashing with Bounded Loads", 2016).
const BOUNDED_LOAD_NUMERATOR: u64 = 5;
const BOUNDED_LOAD_DENOMINATOR: u64 = 4;
/// Draws until the second choice differs from the first.
const SECOND_DRAWS_MAX: usize = 4;
/// Steps by which workers' turns are put out of phase.
const PHASE_STEPS_MAX: u64 = 1024;

/// What [`PoolState::pick`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// This server, an index into the pool's.
    Server(usize),
    /// Servers are up and untried, but each has its `connections-max` in use: queue.
    Full,
    /// No server is up and untried.
    None,
}

/// The servers that one request has been sent to without success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    servers: [u16; TRIED_MAX],
    count: u8,
    next: u8,
}

impl Tried {
    /// Remembers `server`; past [`TRIED_MAX`] the oldest is forgotten.
    pub fn insert(&mut self, server: usize) {
        if self.contains(server) {
            return;
        }
        let at = usize::from(self.next) % TRIED_MAX;
        self.servers[at] = u16::try_from(server).unwrap_or(u16::MAX);
        self.next = ((at + 1) % TRIED_MAX) as u8;
        self.count = (self.count + 1).min(TRIED_MAX as u8);
    }

    /// Whether `server` is remembered.
    #[must_use]
    pub fn contains(&self, server: usize) -> bool {
        self.servers[..self.len()].iter().any(|&tried| usize::from(tried) == server)
    }

    /// How many servers are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count).min(TRIED_MAX)
    }

    /// Whether none has been tried.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

struct Server {
    weight: u32,
    in_use: u32,
    in_use_max: u32,
    up: bool,
    avoid_until: Moment,
    /// Credit of the smooth weighted turn.
    credit: i64,
}

/// How a pool stands, as one worker sees it.
pub struct PoolState {
    balance: Balance,
    servers: Vec<Server>,
    /// `shares[i]`: the weights of servers `0..=i` together.
    shares: Vec<u64>,
    /// Sorted points of the hash ring; empty unless `balance` is by hash.
    ring: Vec<(u64, u16)>,
    in_use: u64,
    limited: bool,
}

impl PoolState {
    /// The state of `pool` with nothing in use and every server up; `seed` puts the turns of several
    /// workers out of phase.
    #[must_use]
    pub fn new(pool: &model::Pool, seed: u64) -> Self {
        let servers: Vec<Server> = pool.servers.iter().map(Server::new).collect();
        let shares = servers
            .iter()
            .scan(0, |sum, server| {
                *sum += u64::from(server.weight);
                Some(*sum)
            })
            .collect();
        let ring = match pool.balance {
            Balance::Hash(_) => ring_of(&pool.servers),
            Balance::Random | Balance::RoundRobin | Balance::LeastConnections => Vec::new(),
        };
        let limited = servers.iter().any(|server| server.in_use_max != u32::MAX);
        let mut state =
            Self { balance: pool.balance.clone(), servers, shares, ring, in_use: 0, limited };
        let period = state.weight_total().clamp(1, PHASE_STEPS_MAX);
        if state.balance == Balance::RoundRobin {
            for _ in 0..mix64(seed) % period {
                state.take_turn(|_, server| server.weight > 0);
            }
        }
        state
    }

    /// Chooses a server for a request. `key_hash` is the hash of what `balance = { hash = ... }` looks
    /// at (`None` where the request has no such key, and for the other ways); it is `hash_bytes` of
    /// the key in `tidegate_base::prng`. What is picked is in use only once [`Self::note_start`] says so.
    pub fn pick(
        &mut self,
        now: Moment,
        prng: &mut Prng,
        key_hash: Option<u64>,
        tried: &Tried,
    ) -> Pick {
        // Best first: those whose last connect did not fail just now, then the others; those of
        // weight 0 come after all that have one.
        for (avoid, weighted) in [(true, true), (false, true), (true, false), (false, false)] {
            let eligible = move |index: usize, server: &Server| {
                server.is_open()
                    && (server.weight > 0) == weighted
                    && !(avoid && server.avoid_until > now)
                    && !tried.contains(index)
            };
            if let Some(server) = self.choose(prng, key_hash, eligible) {
                return Pick::Server(server);
            }
        }
        let waiting = |(index, server): (usize, &Server)| server.up && !tried.contains(index);
        if self.servers.iter().enumerate().any(waiting) { Pick::Full } else { Pick::None }
    }

    /// An exchange with `server` begins.
    pub fn note_start(&mut self, server: usize) {
        if let Some(server) = self.servers.get_mut(server) {
            server.in_use += 1;
            self.in_use += 1;
        }
    }

    /// An exchange with `server` is over, however it ended.
    pub fn note_end(&mut self, server: usize) {
        if let Some(server) = self.servers.get_mut(server) {
            debug_assert!(server.in_use > 0, "an exchange ended that never began");
            server.in_use = server.in_use.saturating_sub(1);
            self.in_use = self.in_use.saturating_sub(1);
        }
    }

    /// A connect to `server` failed: others are preferred for [`AVOID_AFTER_FAILURE`].
    pub fn note_connect_failure(&mut self, server: usize, now: Moment) {
        if let Some(server) = self.servers.get_mut(server) {
            server.avoid_until = now.after(AVOID_AFTER_FAILURE);
        }
    }

    /// A connect to `server` succeeded: it is avoided no more.
    pub fn note_connect_success(&mut self, server: usize) {
        if let Some(server) = self.servers.get_mut(server) {
            server.avoid_until = Moment::ZERO;
        }
    }

    /// Marks `server` as able or unable to serve, as its health check says.
    pub fn set_up(&mut self, server: usize, up: bool) {
        if let Some(server) = self.servers.get_mut(server) {
            server.up = up;
        }
    }

    /// Whether `server` is marked as able to serve.
    #[must_use]
    pub fn is_up(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|server| server.up)
    }

    /// Exchanges with `server` now.
    #[must_use]
    pub fn in_use(&self, server: usize) -> u32 {
        self.servers.get(server).map_or(0, |server| server.in_use)
    }

    /// Exchanges with all servers of the pool now.
    #[must_use]
    pub fn in_use_total(&self) -> u64 {
        self.in_use
    }

    /// Whether some server that is up is below its limit: someone who waits may be served.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.servers.iter().any(Server::is_open)
    }

    /// Whether any server has a limit; without one nobody ever waits.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// How many servers the pool has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether the pool has no server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    fn choose(
        &mut self,
        prng: &mut Prng,
        key_hash: Option<u64>,
        eligible: impl Fn(usize, &Server) -> bool + Copy,
    ) -> Option<usize> {
        match (&self.balance, key_hash) {
            (Balance::Random, _) | (Balance::Hash(_), None) => self.draw_two(prng, eligible),
            (Balance::RoundRobin, _) => self.take_turn(eligible),
            (Balance::LeastConnections, _) => self.least_loaded(prng, eligible),
            (Balance::Hash(_), Some(hash)) => self.walk_ring(hash, eligible),
        }
    }

    /// Two by weight, the less loaded one of them (Mitzenmacher: "The Power of Two Choices", 2001).
    fn draw_two(
        &self,
        prng: &mut Prng,
        eligible: impl Fn(usize, &Server) -> bool + Copy,
    ) -> Option<usize> {
        let first = self.draw(prng);
        let mut second = self.draw(prng);
        for _ in 1..SECOND_DRAWS_MAX {
            if second != first || self.servers.len() < 2 {
                break;
            }
            second = self.draw(prng);
        }
        let usable = |drawn: Option<usize>| {
            drawn.filter(|&index| self.servers.get(index).is_some_and(|s| eligible(index, s)))
        };
        match (usable(first), usable(second)) {
            (Some(a), Some(b)) if self.is_less_loaded(b, a) => Some(b),
            (Some(a), _) => Some(a),
            (None, Some(b)) => Some(b),
            // Most of the pool is down or full: look at all of it.
            (None, None) => self.least_loaded(prng, eligible),
        }
    }

    /// One server at random, by weight; `None` where all weights are 0.
    fn draw(&self, prng: &mut Prng) -> Option<usize> {
        let total = self.weight_total();
        if total == 0 {
            return None;
        }
        let point = prng.below(total);
        Some(self.shares.partition_point(|&share| share <= point))
    }

    /// Smooth weighted turns: each gains its weight, the richest serves and pays for all.
    fn take_turn(&mut self, eligible: impl Fn(usize, &Server) -> bool) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<(usize, i64)> = None;
        for (index, server) in self.servers.iter_mut().enumerate() {
            if !eligible(index, server) {
                continue;
            }
            // Servers of weight 0 come here only when there are no others; then all are alike.
            let weight = i64::from(server.weight.max(1));
            server.credit += weight;
            total += weight;
            if best.is_none_or(|(_, credit)| server.credit > credit) {
                best = Some((index, server.credit));
            }
        }
        let (index, _) = best?;
        self.servers[index].credit -= total;
        Some(index)
    }

    /// The least loaded by weight. The search begins at one drawn by weight: among equals (an idle
    /// pool) that one serves, and workers do not agree on it.
    fn least_loaded(
        &self,
        prng: &mut Prng,
        eligible: impl Fn(usize, &Server) -> bool,
    ) -> Option<usize> {
        let count = self.servers.len();
        let start = self.draw(prng).unwrap_or_else(|| prng.below(count as u64) as usize);
        let mut best: Option<usize> = None;
        for index in (start..count).chain(0..start) {
            if eligible(index, &self.servers[index])
                && best.is_none_or(|best| self.is_less_loaded(index, best))
            {
                best = Some(index);
            }
        }
        best
    }

    fn is_less_loaded(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.servers[a], &self.servers[b]);
        // in_use / weight without a division; weights of 0 meet only each other.
        let load = |server: &Server, other: &Server| {
            u64::from(server.in_use) * u64::from(other.weight.max(1))
        };
        load(a, b) < load(b, a)
    }

    /// The first server from `hash` on around the ring that is below its bounded load; the first one
    /// that is eligible at all where none is.
    fn walk_ring(
        &self,
        hash: u64,
        eligible: impl Fn(usize, &Server) -> bool + Copy,
    ) -> Option<usize> {
        let within = |index: usize, server: &Server| {
            eligible(index, server) && self.is_within_bounded_load(server)
        };
        self.first_on_ring(hash, within).or_else(|| self.first_on_ring(hash, eligible))
    }

    fn first_on_ring(&self, hash: u64, accepted: impl Fn(usize, &Server) -> bool) -> Option<usize> {
        let start = self.ring.partition_point(|&(point, _)| point < hash);
        let around = self.ring[start..].iter().chain(&self.ring[..start]);
        let mut owners = around.map(|&(_, owner)| usize::from(owner));
        let accepts = |index: &usize| self.servers.get(*index).is_some_and(|s| accepted(*index, s));
        let first = owners.next()?;
        if accepts(&first) {
            return Some(first);
        }
        // A whole walk is only worth it when it will find someone.
        if !self.servers.iter().enumerate().any(|(index, server)| accepted(index, server)) {
            return None;
        }
        owners.find(accepts)
    }

    fn is_within_bounded_load(&self, server: &Server) -> bool {
        let total = self.weight_total().max(1);
        let fair = (self.in_use + 1) * u64::from(server.weight) * BOUNDED_LOAD_NUMERATOR;
        u64::from(server.in_use) < fair.div_ceil(total * BOUNDED_LOAD_DENOMINATOR)
    }

    fn weight_total(&self) -> u64 {
        self.shares.last().copied().unwrap_or(0)
    }
}

impl Server {
    fn new(upstream: &model::Upstream) -> Self {
        Self {
            weight: u32::from(upstream.weight),
            in_use: 0,
            in_use_max: upstream.connections_max.unwrap_or(u32::MAX),
            up: true,
            avoid_until: Moment::ZERO,
            credit: 0,
        }
    }

    fn is_open(&self) -> bool {
        self.up && self.in_use < self.in_use_max
    }
}

/// The ring's points, sorted. A server's points depend on its own address (and on how often that
/// address came before), so that a server added or removed moves only the keys it gains or loses.
fn ring_of(servers: &[model::Upstream]) -> Vec<(u64, u16)> {
    let unit = servers.iter().fold(0, |unit, server| common_divisor(unit, server.weight)).max(1);
    let points_of = |weight: u16| u64::from(weight / unit) * RING_POINTS_PER_WEIGHT;
    let wanted: u64 = servers.iter().map(|server| points_of(server.weight)).sum();
    let mut identities: Vec<u64> = Vec::with_capacity(servers.len());
    let mut ring = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        let Ok(owner) = u16::try_from(index) else {
            break;
        };
        let address = identity(&server.address);
        let earlier = identities.iter().filter(|&&other| other == address).count() as u64;
        identities.push(address);
        let mut points = points_of(server.weight);
        if wanted > RING_POINTS_MAX as u64 {
            points = points * RING_POINTS_MAX as u64 / wanted;
        }
        // Weight 0 keeps a single point: it is asked only when nobody else may be.
        for point in 0..points.max(1) {
            let hash = mix64(mix64(address.wrapping_add(earlier)).wrapping_add(point << 1 | 1));
            ring.push((hash, owner));
        }
    }
    ring.sort_unstable();
    ring
}

fn identity(address: &ServerAddress) -> u64 {
    match address {
        ServerAddress::Ip(address) => hash_bytes(address.to_string().as_bytes()),
        ServerAddress::Name(name, port) => hash_bytes(format!("{name}:{port}").as_bytes()),
        ServerAddress::Unix(path) => hash_bytes(path.as_bytes()),
    }
}

fn common_divisor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
