//! Picks the server of a pool for a request: random, round-robin, least connections or hash.
//! In: the load as the worker reports it, random numbers, keys. Out: a server, or the reason why there is none.
//! Never: connects, reads the clock, shares its state with another worker.
//! Limits: `RING_POINTS_MAX` points of the hash ring (`hash_ring.rs`), `TRIED_MAX` servers remembered for a request.
//! Invariant: a picked server is up, untried and below its limit; `in_use` counts the exchanges that
//! have started and not ended. A server that was removed from the configuration gets no new request of any kind.

use tidegate_base::prng::mix64;
use tidegate_base::{Moment, Prng, Span};
use tidegate_config::arrange::{Generation, ServerLife};
use tidegate_config::model::{self, Balance, Eject};

use crate::eject::{self, EjectReason, Ejection, Record};
use crate::hash_ring::{build_ring, identities};
use crate::permits;
pub use crate::tried::{TRIED_MAX, Tried};

/// How long a server is avoided after a failed connect, if another server is available.
pub const AVOID_AFTER_FAILURE: Span = Span::from_secs(1);
/// Bounded load: a key is not hashed to a server whose load exceeds 5/4 of its fair share
/// (Mirrokni, Thorup, Zadimoghaddam: "Consistent Hashing with Bounded Loads", 2016).
const BOUNDED_LOAD_NUMERATOR: u64 = 5;
const BOUNDED_LOAD_DENOMINATOR: u64 = 4;
/// Maximum number of draws for a second choice that differs from the first.
const SECOND_DRAWS_MAX: usize = 4;
/// The steps in which the weight of a server grows (`slow-start`).
const RAMP_STEPS: u32 = 20;
/// With a hash ring, percentages of agents are rounded up to multiples of this, so that a server whose load varies a little
/// keeps its keys, and the ring is rarely computed.
const RING_PERCENT_STEP: u16 = 10;
/// Maximum number of steps by which the rotations of two workers are shifted against each other.
const PHASE_STEPS_MAX: u64 = 1024;

/// The result of [`PoolState::pick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// This server, by its index in the pool.
    Server(usize),
    /// Untried servers are up, but this worker has no unused permit for any of them (`connections-max`). The
    /// request should be queued.
    Full,
    /// No untried server with a weight above 0 is up.
    None,
}

/// The state of a server, as the process has determined it for all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// The generation in which the server was added. The status does not apply to another server at the same index.
    pub since: Generation,
    /// The server may take requests: its checks pass, and no operator has taken it out of service.
    pub is_up: bool,
    /// The weight that an operator has set; `None`: that of the settings.
    pub weight: Option<u16>,
    /// The part of the weight that the server's agent reports, in percent.
    pub percent: u16,
    /// Its SRV record makes it a backup.
    pub is_backup: bool,
}

/// One server, as one worker sees it.
struct Server {
    /// The weight now, in the units of the pool.
    weight: u32,
    /// The weight of the settings.
    configured: u32,
    /// The weight that an operator has set.
    set: Option<u16>,
    /// The part of the weight that its agent reports, in percent.
    percent: u16,
    /// When the server came up, while its weight grows; `NEVER` otherwise.
    ramps_from: Moment,
    /// It gets requests only while no other server may get them.
    is_backup: bool,
    /// The settings make it a backup.
    is_configured_backup: bool,
    /// Its name has an address.
    has_address: bool,
    /// The results of its requests, if servers are ejected.
    record: Record,
    /// Exchanges with this server that have started and not ended. At most `in_use_max`.
    in_use: u32,
    /// `connections-max`; `u32::MAX` if there is no limit.
    limit: u32,
    /// The permits that this worker holds (`permits`); `u32::MAX` if there is no limit.
    in_use_max: u32,
    /// The checks and the operator allow requests to the server.
    up: bool,
    /// The connections to the server take no more requests, and no other one may be opened.
    is_full: bool,
    /// Other servers are preferred until this moment.
    avoid_until: Moment,
    /// The server's current weight in smooth weighted round-robin.
    credit: i64,
    /// The generations in which the server was added and its limit was set.
    life: ServerLife,
    /// More exchanges are in progress than the worker holds permits for, because the limit was changed since they
    /// started.
    is_over: bool,
}

/// One worker's state of a pool.
pub struct PoolState {
    /// How servers are picked.
    balance: Balance,
    /// The servers, by their index in the pool.
    servers: Vec<Server>,
    /// `shares[i]`: the sum of the weights of servers `0..=i`.
    shares: Vec<u64>,
    /// The hash ring, as sorted pairs of a point and its server. Empty unless `balance` is by hash.
    ring: Vec<(u64, u16)>,
    /// Exchanges with all servers; the sum of their `in_use`.
    in_use: u64,
    /// At least one server has a limit.
    limited: bool,
    /// At least one server is a backup.
    has_backups: bool,
    /// When servers are ejected.
    eject: Option<Eject>,
    /// How long the weight of a server grows; zero if it does not.
    slow_start: Span,
    /// When a weight grows next; `NEVER` if none does.
    ramp_at: Moment,
    /// The addresses of the servers, for the ring. Empty unless `balance` is by hash.
    identities: Vec<u64>,
}

impl PoolState {
    /// Creates the state of `pool` with nothing in use and every server up. `seed` shifts the round-robin
    /// rotation, so that workers do not all begin with the same server.
    #[must_use]
    pub fn new(pool: &model::Pool, seed: u64) -> Self {
        let mut state = Self {
            balance: pool.balance.clone(),
            servers: pool.servers.iter().map(Server::new).collect(),
            shares: Vec::new(),
            ring: Vec::new(),
            in_use: 0,
            limited: false,
            has_backups: false,
            eject: None,
            slow_start: Span::ZERO,
            ramp_at: Moment::NEVER,
            identities: Vec::new(),
        };
        state.adopt(pool);
        let period = state.weight_total().clamp(1, PHASE_STEPS_MAX);
        if state.balance == Balance::RoundRobin {
            for _ in 0..mix64(seed) % period {
                state.next_in_rotation(|_, server| server.weight > 0);
            }
        }
        state
    }

    /// Uses other settings for the same pool. Each server that `lives` identifies as the same keeps its load, its
    /// state and, unless its limit has changed, its permits. `own` of `workers` is this worker.
    pub fn change(&mut self, pool: &model::Pool, lives: &[ServerLife], own: usize, workers: usize) {
        for (index, (upstream, life)) in pool.servers.iter().zip(lives).enumerate() {
            let mut fresh = Server { life: *life, ..Server::new(upstream) };
            if fresh.limit != u32::MAX {
                fresh.in_use_max = permits::share(fresh.limit, own, workers, index);
            }
            let Some(server) = self.servers.get_mut(index) else {
                self.servers.push(fresh);
                continue;
            };
            if server.life.life.since != life.life.since {
                debug_assert_eq!(server.in_use, 0, "the index of a server in use was given away");
                *server = fresh;
                continue;
            }
            server.configured = fresh.configured;
            if life.life.is_gone() {
                // A weight that an operator has set must not bring a removed server back.
                (server.set, server.percent) = (None, 100);
            }
            let is_marked = server.is_backup && !server.is_configured_backup;
            server.is_configured_backup = fresh.is_configured_backup;
            server.is_backup = fresh.is_backup || is_marked;
            if server.life.limit_since != life.limit_since {
                (server.limit, server.in_use_max) = (fresh.limit, fresh.in_use_max);
                server.is_over = server.in_use > server.in_use_max;
            }
            server.life = *life;
        }
        // Servers that left the list were removed before, and nothing uses them.
        while self.servers.len() > pool.servers.len()
            && self.servers.last().is_some_and(|server| server.in_use == 0)
        {
            self.servers.pop();
        }
        debug_assert_eq!(self.servers.len(), pool.servers.len(), "a server in use left the list");
        self.balance = pool.balance.clone();
        self.adopt(pool);
    }

    /// Adopts the settings of the pool as a whole. Those of the servers are adopted already.
    fn adopt(&mut self, pool: &model::Pool) {
        let is_hash = matches!(pool.balance, Balance::Hash(_));
        self.identities = match is_hash {
            true => identities(&pool.servers),
            false => Vec::new(),
        };
        self.slow_start = if is_hash { Span::ZERO } else { pool.slow_start };
        self.eject = pool.eject;
        self.limited = self.servers.iter().any(|server| server.limit != u32::MAX);
        self.has_backups = self.servers.iter().any(|server| server.is_backup);
        self.weigh(Moment::ZERO);
    }

    /// Computes the weights and the values that depend on them.
    fn weigh(&mut self, now: Moment) {
        let unit = if self.slow_start.is_zero() { 1 } else { RAMP_STEPS };
        // Weights are small numbers, often 1, so parts of them need a smaller unit.
        let is_partial = self.servers.iter().any(|server| server.percent != 100);
        self.ramp_at = Moment::NEVER;
        for server in &mut self.servers {
            let steps = server.steps(now, self.slow_start);
            if steps < RAMP_STEPS {
                self.ramp_at = now.after(self.slow_start / RAMP_STEPS);
            } else {
                server.ramps_from = Moment::NEVER;
            }
            server.weight = server.full_weight(is_partial) * if unit == 1 { 1 } else { steps };
        }
        let sums = self.servers.iter().scan(0, |sum, server| {
            // A backup is found when no draw finds a server.
            *sum += if server.is_backup { 0 } else { u64::from(server.weight) };
            Some(*sum)
        });
        self.shares = sums.collect();
        let weights = self.servers.iter().map(|server| server.full_weight(is_partial));
        self.ring = match self.identities.is_empty() {
            true => Vec::new(),
            false => build_ring(&self.identities, &weights.collect::<Vec<_>>()),
        };
    }

    /// Whether the index `server` names the server that was added in the generation `since`.
    #[must_use]
    pub fn names(&self, server: usize, since: Generation) -> bool {
        self.servers.get(server).is_some_and(|server| server.life.life.since == since)
    }

    /// By server: the generation in which it was added.
    #[must_use]
    pub fn since(&self) -> Vec<Generation> {
        self.servers.iter().map(|server| server.life.life.since).collect()
    }

    /// The generation in which the limit of `server` was set. Permits of other generations are invalid.
    #[must_use]
    pub fn limit_since(&self, server: usize) -> Generation {
        self.servers.get(server).map_or(0, |server| server.life.limit_since)
    }

    /// Whether `server` has more exchanges in progress than permits, because its limit was changed.
    #[must_use]
    pub fn is_over(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|server| server.is_over)
    }

    /// Picks a server for a request. `key_hash` is the hash of the key named by `balance = { hash = ... }`,
    /// computed with `tidegate_base::prng::hash_bytes`. It is `None` if the request has no such key or the
    /// pool balances in another way. The picked server counts as in use only after [`Self::note_start`].
    pub fn pick(
        &mut self,
        now: Moment,
        prng: &mut Prng,
        key_hash: Option<u64>,
        tried: &Tried,
    ) -> Pick {
        if now >= self.ramp_at {
            self.weigh(now);
        }
        // Servers that have just failed are the last resort: while another one is only full, the request waits for it.
        for avoid in [true, false] {
            if !avoid && self.has_preferred(tried, now) {
                break;
            }
            for is_backup in [false, true] {
                if is_backup && !(self.has_backups && self.needs_backup(tried, now, avoid)) {
                    continue;
                }
                let eligible = move |index: usize, server: &Server| {
                    server.is_open()
                        && server.is_backup == is_backup
                        && !(avoid && server.is_avoided(now))
                        && !tried.contains(index)
                };
                if let Some(server) = self.choose(prng, key_hash, eligible) {
                    return Pick::Server(server);
                }
            }
        }
        if self.may_wait(tried) { Pick::Full } else { Pick::None }
    }

    /// Whether a server that is not avoided may take a request that was already sent to the servers in `tried`, now or once
    /// it is below its limit.
    fn has_preferred(&self, tried: &Tried, now: Moment) -> bool {
        let mut servers = self.servers.iter().enumerate();
        servers.any(|(index, server)| {
            server.accepts_requests() && !server.is_avoided(now) && !tried.contains(index)
        })
    }

    /// When the first of the servers that are avoided now is no longer avoided.
    #[must_use]
    pub fn avoidance_end(&self, now: Moment) -> Moment {
        let avoided = self.servers.iter().filter(|server| server.is_avoided(now));
        let ends = avoided.map(|server| server.avoid_until.max(server.record.until()));
        ends.min().unwrap_or(Moment::NEVER)
    }

    /// Records that an exchange with `server` begins.
    pub fn note_start(&mut self, server: usize) {
        if let Some(server) = self.servers.get_mut(server) {
            server.in_use += 1;
            self.in_use += 1;
        }
    }

    /// Records that an exchange with `server` has ended, successfully or not.
    pub fn note_end(&mut self, server: usize) {
        if let Some(server) = self.servers.get_mut(server) {
            debug_assert!(server.in_use > 0, "an exchange ended without having begun");
            server.in_use = server.in_use.saturating_sub(1);
            server.is_over &= server.in_use > server.in_use_max;
            self.in_use = self.in_use.saturating_sub(1);
        }
    }

    /// Records that a connect to `server` failed. Other servers are preferred for [`AVOID_AFTER_FAILURE`]. Returns whether
    /// this is the first failure since the server was avoided last.
    pub fn note_connect_failure(&mut self, server: usize, now: Moment) -> bool {
        let Some(server) = self.servers.get_mut(server) else { return false };
        let is_first = server.avoid_until <= now;
        server.avoid_until = now.after(AVOID_AFTER_FAILURE);
        is_first
    }

    /// Records that a connect to `server` succeeded. The server is no longer avoided for an earlier failure. Returns whether
    /// there was one.
    pub fn note_connect_success(&mut self, server: usize) -> bool {
        let Some(server) = self.servers.get_mut(server) else { return false };
        core::mem::replace(&mut server.avoid_until, Moment::ZERO) > Moment::ZERO
    }

    /// Whether only backups may take a request that was already sent to the servers in `tried`. `avoid`: servers that
    /// have just failed do not count.
    fn needs_backup(&self, tried: &Tried, now: Moment, avoid: bool) -> bool {
        let mut servers = self.servers.iter().enumerate();
        servers.all(|(index, server)| {
            let is_avoided = avoid && server.is_avoided(now);
            server.is_backup || is_avoided || !server.accepts_requests() || tried.contains(index)
        })
    }

    /// Records the result of a request to `server`, and how long its response took, if there was one. If the result causes an
    /// ejection, returns for how long, and why.
    pub fn note_result(
        &mut self,
        server: usize,
        (failed, took): (bool, Option<Span>),
        now: Moment,
    ) -> Option<(Span, EjectReason)> {
        let eject = self.eject?;
        let record = &mut self.servers.get_mut(server)?.record;
        let mut reason = record.note(&eject, failed, now).then_some(EjectReason::Failures);
        let is_compared =
            eject.latency.is_some() && took.is_some_and(|took| record.note_time(took));
        if reason.is_none() && is_compared {
            let others = self.servers.iter().enumerate();
            let others = others.filter(|(at, other)| *at != server && other.accepts_requests());
            let records = others.map(|(_, other)| &other.record);
            let is_slow = self.servers[server].record.is_slow(&eject, records, now);
            reason = is_slow.then_some(EjectReason::Latency);
        }
        let reason = reason.filter(|_| self.may_eject(&eject, now))?;
        let span = self.servers.get_mut(server)?.record.eject(&eject, now);
        self.ramp_after_ejection(server);
        Some((span, reason))
    }

    /// The weight of a server grows again once it is no longer ejected.
    fn ramp_after_ejection(&mut self, server: usize) {
        if let Some(server) = self.servers.get_mut(server).filter(|_| !self.slow_start.is_zero()) {
            server.ramps_from = server.record.until();
            self.ramp_at = self.ramp_at.min(server.ramps_from);
        }
    }

    /// The servers that are ejected now, by index.
    pub fn ejections(&self, now: Moment) -> impl Iterator<Item = (usize, Ejection)> {
        let servers = self.servers.iter().enumerate();
        servers.filter_map(move |(index, server)| Some((index, server.record.ejection(now)?)))
    }

    /// Continues an ejection by an earlier process, if servers are still ejected and another one may be.
    pub fn resume_ejection(&mut self, server: usize, ejection: Ejection, now: Moment) {
        let Some(eject) = self.eject.filter(|eject| self.may_eject(eject, now)) else { return };
        if let Some(own) = self.servers.get_mut(server) {
            own.record.resume(&eject, ejection, now);
            self.ramp_after_ejection(server);
        }
    }

    /// Whether one more of the servers that are up may be ejected.
    fn may_eject(&self, eject: &Eject, now: Moment) -> bool {
        let usable = || self.servers.iter().filter(|server| server.accepts_requests());
        let ejected = usable().filter(|server| server.record.is_ejected(now)).count();
        eject::has_room(eject, ejected, usable().count())
    }

    /// Marks `server` as up or down.
    pub fn set_up(&mut self, server: usize, up: bool) {
        if let Some(server) = self.servers.get_mut(server) {
            server.up = up;
        }
    }

    /// Applies the statuses that the process has determined for the servers, by index. Returns whether anything has changed.
    pub fn apply_server_statuses(&mut self, statuses: &[ServerStatus], now: Moment) -> bool {
        let mut changed = false;
        let is_ring = matches!(self.balance, Balance::Hash(_));
        for (server, status) in self.servers.iter_mut().zip(statuses) {
            let percent = match is_ring {
                true => status.percent.next_multiple_of(RING_PERCENT_STEP),
                false => status.percent,
            };
            let is_backup = server.is_configured_backup || status.is_backup;
            let known = (server.up, server.set, server.percent, server.is_backup);
            let is_same = known == (status.is_up, status.weight, percent, is_backup);
            let is_other = server.life.life.since != status.since;
            // A status from before the removal of a server must not bring the server back.
            if is_other || is_same || server.is_gone() {
                continue;
            }
            if status.is_up && !server.up {
                server.ramps_from = now;
                server.record = Record::default();
            }
            (server.up, server.set, server.percent) = (status.is_up, status.weight, percent);
            server.is_backup = is_backup;
            changed = true;
        }
        if changed {
            self.has_backups = self.servers.iter().any(|server| server.is_backup);
            self.weigh(now);
        }
        changed
    }

    /// Records which servers have addresses. A server without one has no weight, so that the others share the requests evenly.
    pub fn note_addresses(&mut self, has_address: impl Fn(usize) -> bool, now: Moment) {
        let mut is_changed = false;
        for (index, server) in self.servers.iter_mut().enumerate() {
            let has_address = has_address(index);
            is_changed |= core::mem::replace(&mut server.has_address, has_address) != has_address;
        }
        if is_changed {
            self.weigh(now);
        }
    }

    /// `server` has other addresses, so that the results of its requests so far were those of another one.
    pub fn forget_results(&mut self, server: usize) {
        if let Some(server) = self.servers.get_mut(server) {
            (server.record, server.avoid_until) = (Record::default(), Moment::ZERO);
        }
    }

    /// Records whether the connections to `server` take no more requests.
    pub fn set_full(&mut self, server: usize, is_full: bool) {
        if let Some(server) = self.servers.get_mut(server) {
            server.is_full = is_full;
        }
    }

    /// Whether the connections to `server` take no more requests.
    #[must_use]
    pub fn is_full(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|server| server.is_full)
    }

    /// Whether `server` is marked as up.
    #[must_use]
    pub fn is_up(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|server| server.up)
    }

    /// The number of exchanges with `server` in progress.
    #[must_use]
    pub fn in_use(&self, server: usize) -> u32 {
        self.servers.get(server).map_or(0, |server| server.in_use)
    }

    /// The number of exchanges with all servers of the pool in progress.
    #[must_use]
    pub fn in_use_total(&self) -> u64 {
        self.in_use
    }

    /// Whether a server that is up is below its limit, so that a queued request may be sent.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.servers.iter().any(Server::is_open)
    }

    /// Whether a request that was sent to the servers in `tried` could be sent to another server now: the rule of
    /// [`Self::pick`].
    #[must_use]
    pub fn has_room_for(&self, tried: &Tried, now: Moment) -> bool {
        let avoid = self.has_preferred(tried, now);
        let needs_backup = self.has_backups && self.needs_backup(tried, now, avoid);
        let mut servers = self.servers.iter().enumerate();
        servers.any(|(index, server)| {
            server.is_open()
                && (!server.is_backup || needs_backup)
                && !(avoid && server.is_avoided(now))
                && !tried.contains(index)
        })
    }

    /// Whether a request that was sent to the servers in `tried` could be sent to `server` now.
    #[must_use]
    pub fn has_room_at(&self, server: usize, tried: &Tried, now: Moment) -> bool {
        let may_serve = |server: &Server| {
            let avoid = self.has_preferred(tried, now);
            let is_turn = !server.is_backup || self.needs_backup(tried, now, avoid);
            is_turn && server.is_open() && !(avoid && server.is_avoided(now))
        };
        self.servers.get(server).is_some_and(may_serve) && !tried.contains(server)
    }

    /// Whether a client that has authenticated its connection to `server` can send a request over it, unless the request
    /// was sent to a server in `tried`. That the server is avoided does not matter: the connection exists.
    #[must_use]
    pub fn can_continue(&self, server: usize, tried: &Tried) -> bool {
        self.servers.get(server).is_some_and(Server::is_open) && !tried.contains(server)
    }

    /// Whether a session that stays with `server` can be served there now. A server with weight 0 keeps its sessions,
    /// and so does one that is ejected: otherwise a client whose requests fail could end the sessions of all others.
    #[must_use]
    pub fn can_keep(&self, server: usize, now: Moment, tried: &Tried) -> bool {
        let serves = |server: &Server| {
            let is_up = server.is_usable() && server.avoid_until <= now;
            is_up && server.in_use < server.in_use_max
        };
        self.servers.get(server).is_some_and(serves) && !tried.contains(server)
    }

    /// Whether `server` is out of order or was removed, so that its sessions move to another server permanently.
    #[must_use]
    pub fn has_lost(&self, server: usize, now: Moment) -> bool {
        let is_lost = |server: &Server| !server.is_usable() || server.avoid_until > now;
        self.servers.get(server).is_none_or(is_lost)
    }

    /// Whether it makes sense to queue a request that was sent to the servers in `tried`: another server is
    /// up, and could take the request once it is below its limit.
    #[must_use]
    pub fn may_wait(&self, tried: &Tried) -> bool {
        self.usable(tried).next().is_some()
    }

    /// The servers that may take a request: those that are up, have a weight above 0 and are not in `tried`.
    /// Servers that have reached their limit are included.
    pub fn usable(&self, tried: &Tried) -> impl Iterator<Item = usize> {
        let may_use = move |index: usize, server: &Server| {
            server.accepts_requests() && !tried.contains(index)
        };
        let servers = self.servers.iter().enumerate();
        servers.filter(move |&(index, server)| may_use(index, server)).map(|(index, _)| index)
    }

    /// Whether any server has a limit. Without a limit no request is ever queued.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// Whether `server` has a limit.
    #[must_use]
    pub fn is_limited_at(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|server| server.limit != u32::MAX)
    }

    /// Reduces the permits of each server to the share of this worker, as worker `own` of `workers`. Called
    /// once, before the first request.
    pub fn deal(&mut self, own: usize, workers: usize) {
        for (index, server) in self.servers.iter_mut().enumerate() {
            if server.limit != u32::MAX {
                server.in_use_max = permits::share(server.limit, own, workers, index);
            }
        }
    }

    /// The number of permits of `server` that this worker holds.
    #[must_use]
    pub fn permits(&self, server: usize) -> u32 {
        self.servers.get(server).map_or(0, |server| server.in_use_max)
    }

    /// The number of permits of `server` that this worker holds and does not use.
    #[must_use]
    pub fn unused(&self, server: usize) -> u32 {
        self.servers.get(server).map_or(0, |server| server.in_use_max.saturating_sub(server.in_use))
    }

    /// Adds permits of `server` that another worker gave.
    pub fn add_permits(&mut self, server: usize, count: u32) {
        if let Some(server) = self.servers.get_mut(server)
            && server.limit != u32::MAX
        {
            server.in_use_max += count;
            debug_assert!(server.in_use_max <= server.limit, "a permit was created");
        }
    }

    /// Removes up to `count_max` unused permits of `server`, for another worker. Returns how many.
    pub fn take_permits(&mut self, server: usize, count_max: u32) -> u32 {
        let count = self.unused(server).min(count_max);
        match self.servers.get_mut(server) {
            Some(server) if server.limit != u32::MAX => {
                server.in_use_max -= count;
                count
            }
            _ => 0,
        }
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
            (Balance::RoundRobin, _) => self.next_in_rotation(eligible),
            (Balance::LeastConnections, _) => self.least_loaded(prng, eligible),
            (Balance::Hash(_), Some(hash)) => self.walk_ring(hash, eligible),
        }
    }

    /// Draws two servers by weight and returns the less loaded one (Mitzenmacher: "The Power of Two Choices",
    /// 2001).
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
            // Most servers are down or full: examine all of them.
            (None, None) => self.least_loaded(prng, eligible),
        }
    }

    /// Draws one server at random, by weight. Returns `None` if all weights are 0.
    fn draw(&self, prng: &mut Prng) -> Option<usize> {
        let total = self.weight_total();
        if total == 0 {
            return None;
        }
        let point = prng.below(total);
        Some(self.shares.partition_point(|&share| share <= point))
    }

    /// Smooth weighted round-robin: each server's credit grows by its weight; the server with the most credit
    /// is picked and pays the sum of all weights.
    fn next_in_rotation(&mut self, eligible: impl Fn(usize, &Server) -> bool) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<(usize, i64)> = None;
        for (index, server) in self.servers.iter_mut().enumerate() {
            if !eligible(index, server) {
                continue;
            }
            let weight = i64::from(server.weight);
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

    /// The server with the least load relative to its weight. The search begins at a server drawn by weight,
    /// so that among equally loaded servers (an idle pool) different workers pick different ones.
    fn least_loaded(
        &self,
        prng: &mut Prng,
        eligible: impl Fn(usize, &Server) -> bool,
    ) -> Option<usize> {
        let count = self.servers.len();
        let start = match self.has_backups {
            false => self.draw(prng).unwrap_or_else(|| prng.below(count as u64) as usize),
            // A server drawn by weight may be unusable now, which would favour the server after it.
            true => {
                let usable = || (0..count).filter(|&index| eligible(index, &self.servers[index]));
                let most = usable().count().max(1) as u64;
                usable().nth(prng.below(most) as usize)?
            }
        };
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
        // Compares in_use / weight without a division.
        let load =
            |server: &Server, other: &Server| u64::from(server.in_use) * u64::from(other.weight);
        load(a, b) < load(b, a)
    }

    /// The first eligible server clockwise from `hash` on the ring that is below its bounded load. If there
    /// is none, the first eligible server.
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
        // Walk the whole ring only if the walk will find a server.
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
            configured: u32::from(upstream.weight),
            set: None,
            percent: 100,
            ramps_from: Moment::NEVER,
            is_backup: upstream.backup,
            is_configured_backup: upstream.backup,
            has_address: true,
            record: Record::default(),
            in_use: 0,
            limit: upstream.connections_max.unwrap_or(u32::MAX),
            in_use_max: upstream.connections_max.unwrap_or(u32::MAX),
            up: true,
            is_full: false,
            avoid_until: Moment::ZERO,
            credit: 0,
            life: ServerLife::default(),
            is_over: false,
        }
    }

    /// The weight that the server has unless it has no address or just came up, in hundredths if a server of the pool has a part of its
    /// weight.
    fn full_weight(&self, is_partial: bool) -> u32 {
        if !self.has_address {
            return 0;
        }
        let weight = self.set.map_or(self.configured, u32::from);
        weight * if is_partial { u32::from(self.percent) } else { 1 }
    }

    /// How many twentieths of its weight the server has.
    fn steps(&self, now: Moment, slow_start: Span) -> u32 {
        if self.ramps_from == Moment::NEVER || slow_start.is_zero() {
            return RAMP_STEPS;
        }
        let grown = now.since(self.ramps_from).as_nanos() * u128::from(RAMP_STEPS);
        let grown = grown / slow_start.as_nanos().max(1);
        u32::try_from(grown).unwrap_or(RAMP_STEPS).clamp(1, RAMP_STEPS)
    }

    /// Whether other servers are preferred, because the server has just failed.
    fn is_avoided(&self, now: Moment) -> bool {
        self.avoid_until > now || self.record.is_ejected(now)
    }

    /// Whether the configuration no longer has the server.
    fn is_gone(&self) -> bool {
        self.life.life.is_gone()
    }

    /// Whether the server is up, has an address, and is in the configuration.
    fn is_usable(&self) -> bool {
        self.up && self.has_address && !self.is_gone()
    }

    /// Whether new requests may be sent to the server, apart from its limit. A weight of 0 drains it.
    fn accepts_requests(&self) -> bool {
        self.is_usable() && self.weight > 0
    }

    fn is_open(&self) -> bool {
        self.accepts_requests() && self.in_use < self.in_use_max && !self.is_full
    }
}
