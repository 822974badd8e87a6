//! Shares the limit of each server (`connections-max`) among the workers of a process, without shared memory.
//! In: the needs of this worker, messages of other workers. Out: messages to other workers.
//! Never: sends a message (the worker carries them), creates a permit or loses one.
//! Limits: for each other worker, one request and one grant for each server wait to be sent. Servers 64 apart share a bit of a
//! request, so a worker may get a permit of the wrong server and send another request.
//! Invariant: the permits of a server that all workers hold, with those in messages, equal its limit. A
//! worker sends a request only with a permit that is not in use, so the limit is never exceeded.
//!
//! A worker begins with its share of the permits. If an HTTP request waits because the worker's permits are in use, the worker
//! requests permits from all others. Each of them gives an unused permit at once; a worker whose permits are in use stores the
//! request and gives the next permit that becomes free, alternating with its own queue. A request that another worker has
//! already served causes a redundant grant: the permit stays with its receiver until another worker requests it. Each worker
//! serves the requesting workers in cyclic order, so no worker starves.

use tidegate_config::arrange::Generation;

use crate::balance::PoolState;

/// The share of worker `own` of `total`. The shares of all workers add up to `total`. `shift` moves the remainder, so that the
/// first workers do not get every remainder.
#[must_use]
pub fn share(total: u32, own: usize, workers: usize, shift: usize) -> u32 {
    let workers = workers.max(1);
    let place = (own + shift) % workers;
    let workers = u32::try_from(workers).unwrap_or(u32::MAX);
    total / workers + u32::from((place as u32) < total % workers)
}

/// A message from one worker to another about a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PermitMessage {
    /// The sender needs permits. A newer request of the same sender replaces an older one.
    Request(PermitRequest),
    /// The receiver gets permits of a server.
    Grant {
        /// Index of the server in the pool.
        server: u16,
        /// How many permits; at least 1.
        count: u32,
        /// The generation in which the limit was set whose permits these are.
        limit_since: Generation,
    },
}

/// The permits that a worker needs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PermitRequest {
    /// The servers that the waiting requests can use: bit `server % 64`. 0 means that no permit is requested.
    pub servers: u64,
    /// How many requests wait.
    pub count: u32,
}

/// The bit of `server` in [`PermitRequest::servers`].
#[must_use]
pub fn bit(server: usize) -> u64 {
    1 << (server % 64)
}

/// One worker's side of the exchange of permits for one pool.
pub struct Permits {
    /// The index of this worker.
    own: usize,
    /// By worker.
    others: Vec<Other>,
    /// The number of workers in `others` whose `requested` is not empty.
    requesting: usize,
    /// The worker that is served first; advanced after each grant.
    cursor: usize,
    /// By server: the last permit that became free went to another worker, or the last permit came from one, so
    /// this worker's queue is next.
    gave_last: Vec<bool>,
    /// The permits that this worker has requested since it received the last grant.
    wanted: PermitRequest,
    /// Grants that must be sent: worker, server, count, generation of the limit. At most one for each worker and server.
    grants: Vec<(usize, u16, u32, Generation)>,
    /// The number of workers in `others` whose `request_due` is set.
    requests_due: usize,
    /// The worker after the receiver of the latest request.
    requests_from: usize,
    /// Grants of workers that know a change of limits before this one: server, count, generation of the limit.
    early: Vec<(u16, u32, Generation)>,
}

/// This worker's view of another worker.
#[derive(Clone, Copy, Default)]
struct Other {
    /// The permits that the other worker requests.
    requested: PermitRequest,
    /// This worker must send its request to the other worker.
    request_due: bool,
}

impl Permits {
    /// Creates the side of worker `own` of `workers` for a pool of `servers` servers.
    #[must_use]
    pub fn new(own: usize, workers: usize, servers: usize) -> Self {
        Self {
            own,
            others: vec![Other::default(); workers],
            requesting: 0,
            cursor: 0,
            gave_last: vec![false; servers],
            wanted: PermitRequest::default(),
            grants: Vec::new(),
            requests_due: 0,
            requests_from: 0,
            early: Vec::new(),
        }
    }

    /// Whether there is another worker to exchange permits with.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.others.len() > 1
    }

    /// Whether another worker requests a permit.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requesting > 0
    }

    /// Has `servers` servers from now on. Called after `PoolState::change`. Permits of limits that no longer apply
    /// are void, and those that came too early are taken now.
    pub fn change(&mut self, state: &mut PoolState, servers: usize) {
        self.gave_last.resize(servers, false);
        self.grants.retain(|grant| grant.3 == state.limit_since(usize::from(grant.1)));
        // The requested permits may never arrive, because the other workers void the request.
        self.wanted = PermitRequest::default();
        for (server, count, limit_since) in core::mem::take(&mut self.early) {
            // No worker is further than this one now, so another limit is that of a server that was removed.
            if limit_since <= state.limit_since(usize::from(server)) {
                self.take_grant(state, server, count, limit_since);
            }
        }
    }

    /// Takes over the messages that arrived too early for the pool whose index this pool has now: grants, and the requests of
    /// other workers. A request that was meant for the earlier pool causes a redundant grant.
    pub fn succeed(&mut self, earlier: &mut Self) {
        self.early.append(&mut earlier.early);
        for (from, other) in earlier.others.iter().enumerate() {
            self.set_requested(from, other.requested);
        }
    }

    /// Takes permits of `server`, unless its limit has changed since they were dealt.
    fn take_grant(
        &mut self,
        state: &mut PoolState,
        server: u16,
        count: u32,
        limit_since: Generation,
    ) {
        let own = state.limit_since(usize::from(server));
        if limit_since > own {
            return self.early.push((server, count, limit_since));
        }
        self.wanted = PermitRequest::default();
        if limit_since < own {
            return;
        }
        state.add_permits(usize::from(server), count);
        // The permit is for this worker: its own queue is next.
        if let Some(gave_last) = self.gave_last.get_mut(usize::from(server)) {
            *gave_last = true;
        }
    }

    /// Takes a message of worker `from`. The caller then serves its queue and calls [`Self::settle`].
    pub fn receive(&mut self, state: &mut PoolState, from: usize, message: PermitMessage) {
        match message {
            PermitMessage::Request(request) => self.set_requested(from, request),
            PermitMessage::Grant { server, count, limit_since } => {
                self.take_grant(state, server, count, limit_since);
            }
        }
    }

    /// Called before this worker uses an unused permit of `server`: gives the permit away instead if it is
    /// another worker's turn. Returns whether it was given away.
    pub fn give_in_turn(&mut self, state: &mut PoolState, server: usize) -> bool {
        let Some(&gave_last) = self.gave_last.get(server) else { return false };
        let gives = self.requesting > 0 && !gave_last && self.give(state, server, 1);
        self.gave_last[server] = gives;
        gives
    }

    /// Called after this worker has served its queue: gives away all unused permits that were requested, and requests permits
    /// if HTTP requests still wait (`needs`).
    pub fn settle(&mut self, state: &mut PoolState, needs: PermitRequest) {
        for server in 0..state.len() {
            while self.requesting > 0 && state.is_limited_at(server) && state.unused(server) > 0 {
                let half = state.unused(server).div_ceil(2);
                if !self.give(state, server, half) {
                    break;
                }
            }
        }
        let is_new = needs.servers & !self.wanted.servers != 0;
        if is_new {
            self.wanted = needs;
            for (worker, other) in self.others.iter_mut().enumerate() {
                if worker != self.own {
                    self.requests_due +=
                        usize::from(!core::mem::replace(&mut other.request_due, true));
                }
            }
        }
    }

    /// Gives up to `count_max` unused permits of `server` to the next worker that requests a permit of that server.
    fn give(&mut self, state: &mut PoolState, server: usize, count_max: u32) -> bool {
        let workers = self.others.len();
        for step in 0..workers {
            let to = (self.cursor + step) % workers;
            let requested = self.others[to].requested;
            if requested.servers & bit(server) == 0 {
                continue;
            }
            let count = state.take_permits(server, count_max.min(requested.count.max(1)));
            if count == 0 {
                return false;
            }
            self.cursor = to + 1;
            self.set_requested(to, PermitRequest::default());
            self.add_grant(to, server as u16, count, state.limit_since(server));
            return true;
        }
        false
    }

    fn set_requested(&mut self, from: usize, request: PermitRequest) {
        if let Some(other) = self.others.get_mut(from) {
            self.requesting -= usize::from(other.requested.servers != 0);
            self.requesting += usize::from(request.servers != 0);
            other.requested = request;
        }
    }

    fn add_grant(&mut self, to: usize, server: u16, count: u32, limit_since: Generation) {
        let same = |grant: &&mut (usize, u16, u32, Generation)| {
            (grant.0, grant.1, grant.3) == (to, server, limit_since)
        };
        match self.grants.iter_mut().find(same) {
            Some(grant) => grant.2 += count,
            None => self.grants.push((to, server, count, limit_since)),
        }
    }

    /// The number of permits of `server` in grants that must be sent.
    #[must_use]
    pub fn unsent(&self, server: usize) -> u32 {
        let of_server = self.grants.iter().filter(|grant| usize::from(grant.1) == server);
        of_server.map(|grant| grant.2).sum()
    }

    /// The next message to send, with its receiver.
    pub fn next_message(&mut self) -> Option<(usize, PermitMessage)> {
        if let Some((to, server, count, limit_since)) = self.grants.pop() {
            return Some((to, PermitMessage::Grant { server, count, limit_since }));
        }
        if self.requests_due == 0 {
            return None;
        }
        let workers = self.others.len();
        let mut order = (0..workers).map(|step| (self.requests_from + step) % workers);
        let to = order.find(|&to| self.others[to].request_due)?;
        self.requests_from = to + 1;
        self.others[to].request_due = false;
        self.requests_due -= 1;
        Some((to, PermitMessage::Request(self.wanted)))
    }

    /// Takes back a message that the mailbox of `to` had no room for. It is sent again later.
    pub fn keep(&mut self, to: usize, message: PermitMessage) {
        match message {
            PermitMessage::Grant { server, count, limit_since } => {
                self.add_grant(to, server, count, limit_since);
            }
            PermitMessage::Request(_) => {
                if let Some(other) = self.others.get_mut(to) {
                    self.requests_due +=
                        usize::from(!core::mem::replace(&mut other.request_due, true));
                }
            }
        }
    }
}
