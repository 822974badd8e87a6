//! The servers of the process: the results of their checks, the reports of their agents, and the commands of operators.
//! In: the configuration in force, results of checks, commands, the state from an earlier process. Out: statuses for the workers, log
//! lines on each change, views for the admin interface, the state for the next process.
//! Never: decides when a server is checked (`prober.rs`) or which server takes a request (`gate::balance`).
//! Limits: a command waits up to `TRIES_MAX` times `TRY_PAUSE` for a full mailbox.
//! Invariant: entries have the indexes of the configuration in force. A server that was removed from the file loses its state: if
//! it is added again, it is ready, and up until a check fails.

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_base::Span;
use tidegate_config::arrange::Arranged;
use tidegate_config::model::HealthCheck;
use tidegate_gate::access::Names;
use tidegate_gate::agent::{AgentState, Failure, Operation, Statement, WEIGHT_MAX, part_of_weight};
use tidegate_gate::balance::ServerStatus;
use tidegate_gate::health::{Health, Outcome, ServerState};
use tidegate_gate::slots::Share;
use tidegate_reactor::Sender;

use super::{ServerId, ServerStatuses};
use crate::delivery::Delivery;
use crate::events::{self, EventKind};
use crate::log;
use crate::slots::NameState;
use crate::start::Mail;
use crate::state_transfer::{PassedAgent, PassedChecks, PassedServer, StateTransfer};

/// How often and how long a command waits for the full mailbox of a worker.
const TRIES_MAX: usize = 5000;
const TRY_PAUSE: Duration = Duration::from_millis(1);

/// The state of a server.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The state that an operator has set.
    pub(crate) state: ServerState,
    /// Its name has no address, or has had none for too long.
    pub(crate) is_unresolved: bool,
    /// Its part in the pool by its SRV record.
    pub(crate) share: Option<Share>,
    /// It is a slot of a template, with this address.
    pub(crate) slot: Option<Option<SocketAddr>>,
    /// The weight that an operator has set; `None`: that of the file.
    pub(crate) weight: Option<u16>,
    /// Its checks; `None` if it is not checked.
    pub(crate) checked: Option<Checked>,
    /// Its agent; `None` if it has none.
    pub(crate) agent: Option<Agent>,
    /// When the server last began or stopped taking requests, or else when it was added.
    pub(crate) changed: Instant,
    /// How long it has taken no requests, up to now.
    pub(crate) down_for: Duration,
}

impl View {
    /// Whether the server takes requests, apart from its weight.
    pub(crate) fn is_up(&self) -> bool {
        self.is_wanted() && self.checked.as_ref().is_none_or(Checked::is_up)
    }

    /// Whether the server has an address, and neither an operator nor the agent has taken it out of service.
    fn is_wanted(&self) -> bool {
        self.state == ServerState::Ready
            && !self.is_unresolved
            && self.agent.as_ref().is_none_or(|agent| agent.state.takes_requests())
    }

    /// Whether the last check and the last text of the agent were good; `None`: there was none in this process.
    pub(super) fn last_results(&self) -> (Option<bool>, Option<bool>) {
        let check = self.checked.as_ref().and_then(|checked| checked.last);
        let agent = self.agent.as_ref().and_then(|agent| agent.last.as_ref());
        (check.map(|(outcome, _)| outcome.is_success()), agent.map(|(result, _)| result.is_ok()))
    }

    /// The part of the weight that the agent reports, in percent.
    fn percent(&self) -> u16 {
        self.agent.as_ref().map_or(100, |agent| agent.state.percent)
    }

    /// The weight that counts, rounded up. `configured` is that of the file.
    pub(crate) fn weight_now(&self, configured: u16) -> u16 {
        let own = self.share.map_or(configured, |share| share.weight);
        part_of_weight(self.weight.unwrap_or(own), self.percent())
    }

    /// Whether it is a slot without an address.
    pub(crate) fn is_empty_slot(&self) -> bool {
        self.slot == Some(None)
    }

    /// Whether its SRV record makes the server a backup.
    pub(crate) fn is_backup(&self) -> bool {
        self.share.is_some_and(|share| share.is_backup)
    }

    /// Whether the server takes requests: it is up, and its weight is not 0.
    pub(crate) fn takes_requests(&self, configured: u16) -> bool {
        self.is_up() && self.weight_now(configured) > 0
    }

    /// The state by the operator and the agent: the stricter one counts.
    pub(crate) fn state_now(&self) -> ServerState {
        let states = [Some(self.state), self.agent.as_ref().map(|agent| agent.state.state)];
        let has = |state| states.contains(&Some(state));
        match (has(ServerState::Maintenance), has(ServerState::Drain)) {
            (true, _) => ServerState::Maintenance,
            (false, true) => ServerState::Drain,
            (false, false) => ServerState::Ready,
        }
    }
}

/// The checks of a server.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    /// Counts the results.
    pub(crate) health: Health,
    /// The last result, and how long the check took.
    pub(crate) last: Option<(Outcome, Span)>,
    /// Checks so far.
    pub(crate) checks: u64,
    /// Checks that failed.
    pub(crate) failures: u64,
    /// How often the server went down.
    pub(crate) downs: u64,
}

impl Checked {
    fn new(check: &HealthCheck) -> Self {
        Self { health: Health::new(check), last: None, checks: 0, failures: 0, downs: 0 }
    }

    fn is_up(&self) -> bool {
        self.health.is_up()
    }

    /// The server is up until a check fails. Returns whether it was down.
    fn begin_anew(&mut self) -> bool {
        let was_up = self.is_up();
        (self.health, self.last) = (self.health.unchecked(), None);
        !was_up
    }
}

/// The agent of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agent {
    /// The values that it has reported so far.
    pub(crate) state: AgentState,
    /// The result of the last check, and how long it took.
    pub(crate) last: Option<(Result<Statement, Failure>, Span)>,
    /// Checks so far.
    pub(crate) checks: u64,
    /// Checks without a valid line.
    pub(crate) failures: u64,
}

impl Agent {
    /// The server is ready until its agent reports something else. Returns whether it had reported something.
    fn begin_anew(&mut self) -> bool {
        let earlier = core::mem::take(&mut self.state);
        self.last = None;
        earlier != AgentState::default()
    }
}

/// A server of a pool.
struct Entry {
    /// Its name in its pool.
    name: String,
    /// Identifies the server.
    id: ServerId,
    /// It was removed from the configuration.
    is_gone: bool,
    /// Its weight in the file.
    configured: u16,
    /// It gets requests only while no other server is available.
    is_backup: bool,
    /// The state of the server.
    view: View,
}

impl Entry {
    /// Applies `act`, and notes when the server begins or ceases to take requests.
    fn change<T>(&mut self, act: impl FnOnce(&mut View) -> T) -> T {
        let was_up = self.view.is_up();
        let result = act(&mut self.view);
        if was_up != self.view.is_up() {
            let now = Instant::now();
            if !was_up {
                self.view.down_for += now - self.view.changed;
            }
            self.view.changed = now;
        }
        result
    }
}

/// A pool.
struct PoolEntry {
    /// The name of the pool.
    name: String,
    /// Its servers, by the index of the configuration in force.
    servers: Vec<Entry>,
    /// If fewer servers in a hundred pass their checks, all are used.
    panic: Option<u8>,
    /// All are used now.
    uses_all: bool,
}

impl PoolEntry {
    /// Whether too few servers pass their checks, so that all are used that no operator or agent has taken out of service.
    fn is_in_panic(&self) -> bool {
        let Some(panic) = self.panic else { return false };
        let present = || self.servers.iter().filter(|entry| !entry.is_gone);
        if present().any(|entry| entry.is_backup() && entry.view.is_up()) {
            return false;
        }
        let wanted = || present().filter(|entry| !entry.is_backup() && entry.view.is_wanted());
        let up = wanted().filter(|entry| entry.view.is_up()).count();
        up * 100 < wanted().count() * usize::from(panic)
    }

    /// Logs that all servers are used from now on, or no longer.
    fn note_panic(&mut self) {
        let is_in_panic = self.is_in_panic();
        if core::mem::replace(&mut self.uses_all, is_in_panic) == is_in_panic {
            return;
        }
        let ((up, all), name) = (self.count_up(), &self.name);
        let line = match is_in_panic {
            true => format_args!(
                "pool {name}: all servers are used (`panic`), because too few pass their checks: {up} of {all}"
            ),
            false => format_args!(
                "pool {name}: only servers that pass their checks are used again: {up} of {all}"
            ),
        };
        log::warning(line);
        events::note(EventKind::Server, line);
    }

    /// How many servers take requests, and how many there are, apart from slots without an address.
    fn count_up(&self) -> (usize, usize) {
        let is_present = |entry: &&Entry| !entry.is_gone && !entry.view.is_empty_slot();
        let servers = self.servers.iter().filter(is_present);
        (servers.clone().filter(|entry| entry.view.is_up()).count(), servers.count())
    }
}

/// The servers of the process; see the module header.
pub(crate) struct Roster {
    /// By the index of the configuration in force.
    pools: Mutex<Vec<PoolEntry>>,
    /// The way to the workers.
    delivery: Delivery<Mail>,
    /// Checks that had to wait for a resource of this process.
    postponed: AtomicU64,
}

impl Roster {
    /// The servers at the start: each is ready, and up until a check fails.
    pub(crate) fn new(arranged: &Arranged, workers: Vec<Sender<Mail>>) -> Self {
        let roster = Self {
            pools: Mutex::default(),
            delivery: Delivery::new(workers),
            postponed: AtomicU64::new(0),
        };
        roster.arrange(arranged);
        roster
    }

    /// A check waits for a resource of this process; `is_new`: it has not waited before. Returns how many have waited so far.
    pub(super) fn note_postponed(&self, is_new: bool) -> u64 {
        let count = u64::from(is_new);
        self.postponed.fetch_add(count, Ordering::Relaxed) + count
    }

    /// How many checks have waited for a resource of this process.
    pub(crate) fn postponed(&self) -> u64 {
        self.postponed.load(Ordering::Relaxed)
    }

    fn pools(&self) -> MutexGuard<'_, Vec<PoolEntry>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, these workers are notified.
    pub(crate) fn connect(&self, workers: Vec<Sender<Mail>>) {
        self.delivery.connect(workers);
    }

    /// Continues with another configuration. Servers that stay keep their state.
    pub(crate) fn arrange(&self, arranged: &Arranged) {
        let names = Names::new(&arranged.config);
        let mut pools = self.pools();
        let mut earlier = core::mem::take(&mut *pools);
        for (at, (settings, life)) in arranged.config.pools.iter().zip(&arranged.pools).enumerate()
        {
            let mut servers = Vec::with_capacity(life.servers.len());
            let mut known = earlier.get_mut(at).map(|pool| core::mem::take(&mut pool.servers));
            for (server, server_life) in life.servers.iter().enumerate() {
                let since = server_life.life.since;
                let id = ServerId { pool: at as u16, server: server as u16, since };
                let is_gone = life.life.is_gone() || server_life.life.is_gone();
                let known = known.as_mut().and_then(|known| known.get_mut(server));
                let known = known.filter(|known| known.id == id && !known.is_gone && !is_gone);
                let configured = settings.servers[server].weight;
                let keeps_weight =
                    known.as_ref().is_some_and(|known| known.configured == configured);
                let mut view = known.map_or_else(fresh_view, |known| known.view.clone());
                view.weight = view.weight.filter(|_| keeps_weight);
                view.checked = settings.health.as_ref().filter(|_| !is_gone).map(|check| {
                    let mut checked = view.checked.take().unwrap_or_else(|| Checked::new(check));
                    checked.health.change(check);
                    checked
                });
                let has_agent = settings.agent.is_some() && !is_gone;
                view.agent = has_agent.then(|| view.agent.take().unwrap_or_default());
                let name = names.server(at, server).1.to_owned();
                let is_backup = settings.servers[server].backup;
                servers.push(Entry { name, id, is_gone, configured, is_backup, view });
            }
            let panic = settings.eject.and_then(|eject| eject.panic);
            let uses_all = earlier.get(at).is_some_and(|pool| pool.uses_all);
            pools.push(PoolEntry { name: settings.name.clone(), servers, panic, uses_all });
        }
    }

    /// Tells all workers which servers take requests. `deliver` sends the messages that a full mailbox has refused.
    pub(crate) fn publish(&self) {
        let mut pools = self.pools();
        pools.iter_mut().for_each(PoolEntry::note_panic);
        // Under the lock, so that an older list never replaces a newer one.
        self.delivery.send_to_all(&Mail::ServerStatuses(Arc::new(statuses_of(&pools))));
    }

    /// Which servers take requests.
    pub(crate) fn statuses(&self) -> ServerStatuses {
        statuses_of(&self.pools())
    }

    /// As `publish`, and waits until every worker has room for it, for up to `TRIES_MAX` tries. The prober must not call
    /// this: it would wait.
    pub(crate) fn publish_to_all(&self) {
        self.publish();
        for _ in 0..TRIES_MAX {
            if !self.deliver() {
                return;
            }
            thread::sleep(TRY_PAUSE);
        }
        log::error(format_args!(
            "the mailbox of a worker is full, so the worker does not know the new states of servers yet"
        ));
    }

    /// Sends the messages that full mailboxes have refused. Returns whether something is still to be sent.
    pub(crate) fn deliver(&self) -> bool {
        self.delivery.retry() > 0
    }

    /// Notes the result of a check. Returns the server's health after it, and whether it went up or down; `None` if the
    /// server is not checked any more.
    pub(crate) fn note(
        &self,
        id: ServerId,
        outcome: Outcome,
        took: Span,
    ) -> Option<(Health, bool)> {
        let mut pools = self.pools();
        let pool = pools.get_mut(usize::from(id.pool))?;
        let entry = pool.servers.get_mut(usize::from(id.server)).filter(|entry| entry.id == id)?;
        let since = entry.view.changed;
        let (health, changed) = entry.change(|view| {
            let checked = view.checked.as_mut()?;
            checked.checks += 1;
            checked.failures += u64::from(!outcome.is_success());
            checked.last = Some((outcome, took));
            let changed = checked.health.note(outcome.is_success());
            checked.downs += u64::from(changed && !outcome.is_success());
            Some((checked.health, changed))
        })?;
        if changed {
            let name = entry.name.clone();
            log_change(pool, &name, outcome, took, since.elapsed());
        }
        Some((health, changed))
    }

    /// Notes the result of asking an agent. Returns whether the workers are to be notified; `None` if the server has no agent any
    /// more.
    pub(crate) fn note_agent(
        &self,
        id: ServerId,
        result: Result<Statement, Failure>,
        took: Span,
    ) -> Option<bool> {
        let mut pools = self.pools();
        let pool = pools.get_mut(usize::from(id.pool))?;
        let entry = pool.servers.get_mut(usize::from(id.server)).filter(|entry| entry.id == id)?;
        let status = |view: &View| (view.is_up(), view.percent());
        let earlier = status(&entry.view);
        let changes = entry.change(|view| {
            let agent = view.agent.as_mut()?;
            agent.checks += 1;
            agent.failures += u64::from(result.is_err());
            let before = (agent.state.state, agent.state.operation);
            if let Ok(statement) = &result {
                agent.state.adopt(statement);
            }
            let changes = before != (agent.state.state, agent.state.operation);
            agent.last = Some((result, took));
            Some(changes)
        })?;
        let is_other = earlier != status(&entry.view);
        if changes {
            let (name, agent) = (entry.name.clone(), entry.view.agent.clone()?);
            log_agent(pool, &name, &agent);
        }
        Some(is_other)
    }

    /// Sets the state of a server. "ready" also ends the state that its agent has set, until the agent reports that state again.
    ///
    /// # Errors
    /// There is no such server. The error lists all servers, as POOL/SERVER.
    pub(crate) fn set_state(&self, place: &str, state: ServerState) -> Result<(), Vec<String>> {
        self.set(place, |view, _| {
            view.state = state;
            if let Some(agent) = view.agent.as_mut().filter(|_| state == ServerState::Ready) {
                agent.state.state = state;
            }
        })
    }

    /// Sets whether a server works, in place of its agent, until the agent reports something else. Returns whether it has
    /// an agent.
    ///
    /// # Errors
    /// As `set_state`.
    pub(crate) fn set_agent(&self, place: &str, operation: Operation) -> Result<bool, Vec<String>> {
        let mut has_agent = false;
        self.set(place, |view, _| {
            if let Some(agent) = &mut view.agent {
                has_agent = true;
                agent.state.operation = operation;
            }
        })?;
        Ok(has_agent)
    }

    /// Sets the weight of a server. `weight` computes it from the weight in the file, which it replaces.
    ///
    /// # Errors
    /// As `set_state`.
    pub(crate) fn set_weight(
        &self,
        place: &str,
        weight: impl FnOnce(u16) -> u16,
    ) -> Result<(), Vec<String>> {
        self.set(place, |view, configured| view.weight = Some(weight(configured)))
    }

    /// Changes the state or the weight of the server `place` (POOL/SERVER), and tells the workers. `act` also receives
    /// the weight in the file.
    fn set(&self, place: &str, act: impl FnOnce(&mut View, u16)) -> Result<(), Vec<String>> {
        let mut pools = self.pools();
        let named = |pool: &str, server: &str| {
            place.strip_prefix(pool).and_then(|rest| rest.strip_prefix('/')) == Some(server)
        };
        let mut all = pools.iter_mut().flat_map(|pool| {
            pool.servers.iter_mut().filter(|entry| !entry.is_gone).map(|entry| (&pool.name, entry))
        });
        if let Some((_, entry)) = all.find(|(pool, entry)| named(pool, &entry.name)) {
            let configured = entry.view.share.map_or(entry.configured, |share| share.weight);
            entry.change(|view| act(view, configured));
            drop(pools);
            self.publish_to_all();
            return Ok(());
        }
        let names = pools.iter().flat_map(|pool| {
            let servers = pool.servers.iter().filter(|entry| !entry.is_gone);
            servers.map(|entry| format!("{}/{}", pool.name, entry.name))
        });
        Err(names.collect())
    }

    /// Notes what is known about the names of the servers, by pool. Returns whether that has changed.
    pub(crate) fn note_names(&self, names: &[Vec<NameState>]) -> bool {
        let mut is_changed = false;
        for (pool, names) in self.pools().iter_mut().zip(names) {
            let servers = pool.servers.iter_mut().zip(names).filter(|(entry, _)| !entry.is_gone);
            for (entry, name) in servers {
                is_changed |= entry.change(|view| {
                    let next = (name.is_unresolved, name.share);
                    let before = (view.is_unresolved, view.share);
                    (view.is_unresolved, view.share) = next;
                    let other = core::mem::replace(&mut view.slot, name.slot);
                    let is_new = name.slot.flatten().is_some() && other != name.slot;
                    // Its checks and its agent were those of another server.
                    let checked = view.checked.as_mut().filter(|_| is_new);
                    let agent = view.agent.as_mut().filter(|_| is_new && other.is_some());
                    let was_down = checked.is_some_and(Checked::begin_anew);
                    let had_report = agent.is_some_and(Agent::begin_anew);
                    before != next || was_down || had_report
                });
            }
        }
        is_changed
    }

    /// The status of a server of the configuration in force; `None` if it was removed.
    pub(crate) fn view(&self, pool: usize, server: usize) -> Option<View> {
        let pools = self.pools();
        let entry = pools.get(pool)?.servers.get(server).filter(|entry| !entry.is_gone)?;
        let mut view = entry.view.clone();
        if !view.is_up() {
            view.down_for += view.changed.elapsed();
        }
        Some(view)
    }
}

/// The states with which the next process continues.
impl Roster {
    /// The state of each server of the configuration in force.
    pub(crate) fn passed(&self) -> BTreeMap<(String, String), PassedServer> {
        let pools = self.pools();
        let known = pools.iter().flat_map(|pool| {
            let servers = pool.servers.iter().filter(|entry| !entry.is_gone);
            servers.map(|entry| ((pool.name.clone(), entry.name.clone()), entry.passed()))
        });
        known.collect()
    }

    /// Continues with the states that an earlier process knew. Checks and agents that have answered this process are more recent.
    pub(crate) fn inherit_states(&self, transfer: &StateTransfer) {
        for pool in self.pools().iter_mut() {
            for entry in pool.servers.iter_mut().filter(|entry| !entry.is_gone) {
                let name = (pool.name.clone(), entry.name.clone());
                if let Some(earlier) = transfer.servers.get(&name) {
                    entry.inherit_state(earlier);
                }
            }
        }
    }

    /// Continues with the counts of an earlier process, beyond what its last transfer contained.
    pub(crate) fn inherit_counts(&self, transfer: &StateTransfer, last: &StateTransfer) {
        for pool in self.pools().iter_mut() {
            for entry in pool.servers.iter_mut().filter(|entry| !entry.is_gone) {
                let name = (pool.name.clone(), entry.name.clone());
                if let Some(earlier) = transfer.servers.get(&name) {
                    let none = PassedServer::default();
                    entry.inherit_counts(earlier, last.servers.get(&name).unwrap_or(&none));
                }
            }
        }
    }
}

impl Entry {
    /// Whether it gets requests only while no other server is available.
    fn is_backup(&self) -> bool {
        self.is_backup || self.view.is_backup()
    }

    fn passed(&self) -> PassedServer {
        let View { state, weight, checked, agent, changed, down_for, .. } = &self.view;
        let unchanged = changed.elapsed();
        let down = if self.view.is_up() { *down_for } else { *down_for + unchanged };
        PassedServer {
            state: *state,
            weight: *weight,
            configured: self.configured,
            slot: self.view.slot.flatten(),
            checked: checked.as_ref().map(|checked| PassedChecks {
                numbers: checked.health.numbers(),
                checks: checked.checks,
                failures: checked.failures,
                downs: checked.downs,
            }),
            ejected: BTreeMap::new(),
            agent: agent.as_ref().map(|agent| PassedAgent {
                state: agent.state,
                checks: agent.checks,
                failures: agent.failures,
            }),
            unchanged_ms: unchanged.as_millis() as u64,
            down_ms: down.as_millis() as u64,
        }
    }

    fn inherit_state(&mut self, earlier: &PassedServer) {
        let view = &mut self.view;
        let has_result = view.last_results() != (None, None);
        view.state = earlier.state;
        if earlier.configured == self.configured {
            view.weight = earlier.weight.map(|weight| weight.min(WEIGHT_MAX));
        }
        match view.slot {
            // `note_names` compares the address with that of the name.
            None => view.slot = earlier.slot.map(Some),
            Some(own) if own == earlier.slot => {}
            // The other results are those of another server.
            Some(_) => return,
        }
        if let (Some(own), Some(earlier)) = (&mut view.checked, &earlier.checked)
            && own.last.is_none()
        {
            own.health.resume(earlier.numbers);
        }
        if let (Some(own), Some(earlier)) = (&mut view.agent, &earlier.agent)
            && own.last.is_none()
        {
            own.state = earlier.state;
        }
        if has_result {
            return;
        }
        let unchanged = Duration::from_millis(earlier.unchanged_ms);
        let down = Duration::from_millis(earlier.down_ms);
        view.changed = Instant::now().checked_sub(unchanged).unwrap_or(view.changed);
        view.down_for = if view.is_up() { down } else { down.saturating_sub(unchanged) };
    }

    fn inherit_counts(&mut self, earlier: &PassedServer, last: &PassedServer) {
        if let (Some(own), Some(earlier)) = (&mut self.view.checked, earlier.checked) {
            let last = last.checked.unwrap_or_default();
            continue_count(&mut own.checks, earlier.checks, last.checks);
            continue_count(&mut own.failures, earlier.failures, last.failures);
            continue_count(&mut own.downs, earlier.downs, last.downs);
        }
        if let (Some(own), Some(earlier)) = (&mut self.view.agent, earlier.agent) {
            let last = last.agent.unwrap_or_default();
            continue_count(&mut own.checks, earlier.checks, last.checks);
            continue_count(&mut own.failures, earlier.failures, last.failures);
        }
    }
}

/// Adds the counts of an earlier process since its last transfer.
fn continue_count(own: &mut u64, earlier: u64, last: u64) {
    *own = own.saturating_add(earlier.saturating_sub(last));
}

/// Which servers take requests.
fn statuses_of(pools: &[PoolEntry]) -> ServerStatuses {
    let status = |entry: &Entry, uses_all: bool| ServerStatus {
        since: entry.id.since,
        is_up: entry.view.is_up() || uses_all && !entry.is_gone && entry.view.is_wanted(),
        weight: entry.view.weight.or(entry.view.share.map(|share| share.weight)),
        is_backup: entry.view.is_backup(),
        percent: entry.view.percent(),
    };
    let of_pool = |pool: &PoolEntry| {
        let uses_all = pool.is_in_panic();
        pool.servers.iter().map(|entry| status(entry, uses_all)).collect()
    };
    pools.iter().map(of_pool).collect()
}

fn fresh_view() -> View {
    let (changed, down_for) = (Instant::now(), Duration::ZERO);
    let (state, weight) = (ServerState::Ready, None);
    let (is_unresolved, share, slot) = (false, None, None);
    View {
        state,
        is_unresolved,
        share,
        slot,
        weight,
        checked: None,
        agent: None,
        changed,
        down_for,
    }
}

/// Logs that the report of an agent has changed, beyond the weight.
fn log_agent(pool: &PoolEntry, server: &str, agent: &Agent) {
    let (up, all) = pool.count_up();
    let text = match &agent.last {
        Some((Ok(statement), _)) => statement.text.as_str(),
        Some((Err(_), _)) | None => "",
    };
    let line = format_args!(
        "pool {}: the agent of server {server} reports {text:?}; servers up: {up} of {all}",
        pool.name
    );
    match agent.state.takes_requests() {
        true => log::info(line),
        false => log::warning(line),
    }
    events::note(EventKind::Server, line);
    if up == 0 && !agent.state.takes_requests() {
        log::error(format_args!("pool {}: no server is up", pool.name));
    }
}

/// Logs that a server went up or down by its checks. `lasted`: how long it was in its state before.
fn log_change(pool: &PoolEntry, server: &str, outcome: Outcome, took: Span, lasted: Duration) {
    let (up, all) = pool.count_up();
    let (pool, took) = (&pool.name, took.as_millis());
    let lasted = lasted.as_secs();
    if outcome.is_success() {
        let line = format_args!(
            "pool {pool}: server {server} is up after being down for {lasted} s: {outcome} in {took} ms; servers up: {up} of {all}"
        );
        log::info(line);
        return events::note(EventKind::Server, line);
    }
    let line = format_args!(
        "pool {pool}: server {server} is down: {outcome} after {took} ms; servers up: {up} of {all}"
    );
    log::warning(line);
    events::note(EventKind::Server, line);
    if up == 0 {
        log::error(format_args!("pool {pool}: no server is up"));
    }
}
