//! A worker: everything one CPU's share of the service needs, and its loop.
//! In: completions of its reactor, mail. Out: operations on its reactor, counters.
//! Never: shares a connection with another worker, nor, on the way of a request, a lock (share nothing). With TLS
//! the ticket keys' lock is read in handshakes, and the settings' count is touched where a session begins and ends.
//! Invariant: between two completions `work` is empty.

use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Moment, Prng, Slab, Span};
use tidegate_config::model;
use tidegate_gate::balance::PoolState;
use tidegate_gate::idle::IdleConnections;
use tidegate_gate::queue::WaitQueue;
use tidegate_reactor::{
    Completion, Driver, Handler, LeavingListeners, ListenError, ListenOptions, ListenerId, Peer,
    Reactor, SockId,
};
use tidegate_secure::{LayerHandler, Refused};
use tidegate_wire::http1::DateField;
use tidegate_wire::tls::TlsSession;

use crate::buffers::BufferPool;
use crate::client::begins_with_header;
use crate::connection::Connections;
use crate::counters::{Accounts, HandlerKind};
use crate::exchange::Exchange;
use crate::produce::Produce;
use crate::snapshot::Snapshot;

/// The timer that ends the grace of a stop.
pub(crate) const TIMER_GRACE: u32 = 0;
/// The timer by which a stop closes what is idle.
pub(crate) const TIMER_IDLE: u32 = 1;
/// The timer by which a stop closes the listeners.
pub(crate) const TIMER_LISTENERS: u32 = 2;
/// How long a stop leaves the listeners open where new connections are dealt to a process that takes over: a
/// connection whose handshake is under way when its listener closes is reset by the kernel.
const STOP_LISTENERS_SPAN: Span = Span::from_millis(125);
/// How long a stop leaves idle connections open. A client that has just got its answer sends its next
/// request without knowing of the stop (RFC 9112 section 9.6): it is answered rather than lost.
const STOP_IDLE_SPAN: Span = Span::from_millis(250);
const _: () = assert!(STOP_LISTENERS_SPAN.as_nanos() < STOP_IDLE_SPAN.as_nanos());
/// A turn waits at most this long, so that a lost wake-up costs latency and never a stall.
const TURN_WAIT_MAX: Span = Span::from_secs(1);

/// One CPU's share of the service.
pub struct Worker {
    pub(crate) snapshot: Rc<Snapshot>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) conns: Connections,
    pub(crate) exchanges: Slab<Exchange>,
    pub(crate) productions: Slab<Produce>,
    pub(crate) pools: Vec<WorkerPool>,
    pub(crate) buffers: BufferPool,
    pub(crate) prng: Prng,
    pub(crate) date: DateField,
    pub(crate) work: Vec<Work>,
    /// Room for a normalised path.
    pub(crate) path_scratch: Vec<u8>,
    /// Room for one piece of a produced body.
    pub(crate) piece: Vec<u8>,
    /// Producers that used up their share of the turn.
    pub(crate) yielded: Vec<tidegate_base::Id<Produce>>,
    pub(crate) stopping: bool,
    /// The stop's grace has passed: what the kernel still holds is left to it.
    grace_over: bool,
    pub(crate) until_sample: u32,
    pub(crate) sampling: Option<Sample>,
    listeners: Vec<(ListenerId, u16)>,
    /// By listener: who closes together, where a stop may leave new connections to another process.
    leaving: Leaving,
    limits: WorkerLimits,
}

/// A timed call under way.
pub(crate) struct Sample {
    pub(crate) kind: HandlerKind,
    pub(crate) began: Moment,
    pub(crate) wait_ns: u64,
}

/// A pool as one worker sees it.
pub(crate) struct WorkerPool {
    pub(crate) state: PoolState,
    pub(crate) idle: IdleConnections<SockId>,
    /// By server: how many idle connections are kept for the client that it was told of.
    pub(crate) kept: Vec<u32>,
    pub(crate) queue: WaitQueue<tidegate_base::Id<Exchange>>,
    /// By server: which of its addresses to try first.
    pub(crate) preferred_address: Vec<usize>,
}

/// What a completion's handler leaves to be done right after it, so that nothing recurses.
pub(crate) enum Work {
    /// Look at the input that waited on this downstream connection.
    Resume(SockId),
    /// A server of this pool has room: serve who waits.
    ServeQueue(u16),
    /// Few slots are free: close an idle client's connection.
    MakeRoom,
}

/// What a worker still holds; see [`Worker::leftovers`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Leftovers {
    /// Connections of both sides.
    pub connections: usize,
    /// Requests under way with a server.
    pub exchanges: usize,
    /// Synthetic answers under way.
    pub productions: usize,
    /// Requests that wait for a server.
    pub queued: usize,
    /// Idle connections to servers that any client may have.
    pub idle: usize,
    /// Idle connections to servers that one client may have.
    pub kept: u64,
    /// Requests that pools count as being with a server.
    pub in_use: u64,
}

/// By `[[listener]]`: this process's listeners there, if it leaves new connections to those of another.
pub type Leaving = Arc<[Option<Arc<LeavingListeners>>]>;

/// How many connections and exchanges a worker may hold.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLimits {
    /// Connections that its reactor holds at most, and so the exchanges that can be under way at once; room
    /// is reserved for as many.
    pub exchanges_max: usize,
    /// Of how many workers it is one: each has a listener of its own on each TCP address.
    pub workers: u32,
    /// Connections go to the worker of the CPU that received them.
    pub steer_by_cpu: bool,
}

impl Worker {
    /// A worker that serves `snapshot` and counts into `accounts`; `seed` drives its balancing.
    #[must_use]
    pub fn new(
        snapshot: Rc<Snapshot>,
        accounts: Arc<Accounts>,
        limits: WorkerLimits,
        seed: u64,
    ) -> Self {
        let pools = snapshot.config.pools.iter().map(|pool| WorkerPool::new(pool, seed)).collect();
        Self {
            snapshot,
            accounts,
            conns: Connections::with_capacity(limits.exchanges_max),
            exchanges: Slab::new(limits.exchanges_max),
            productions: Slab::new(limits.exchanges_max),
            pools,
            buffers: BufferPool::default(),
            prng: Prng::new(seed),
            date: DateField::new(0),
            work: Vec::new(),
            path_scratch: Vec::new(),
            piece: Vec::new(),
            yielded: Vec::new(),
            stopping: false,
            grace_over: false,
            until_sample: tidegate_base::handlers::SAMPLE_EVERY,
            sampling: None,
            listeners: Vec::new(),
            leaving: Leaving::default(),
            limits,
        }
    }

    /// Opens the worker's own listener for every `[[listener]]`.
    ///
    /// # Errors
    /// The first one that the kernel refuses.
    pub fn listen<R: Reactor>(&mut self, reactor: &mut R) -> Result<Vec<ListenerId>, ListenError> {
        self.listen_beside(reactor, &[])
    }

    /// The same, but for the listeners that the worker shares with others: `shared` names those, by
    /// their place in the configuration.
    ///
    /// # Errors
    /// The first one that the kernel refuses.
    pub fn listen_beside<R: Reactor>(
        &mut self,
        reactor: &mut R,
        shared: &[(usize, ListenerId)],
    ) -> Result<Vec<ListenerId>, ListenError> {
        let snapshot = Rc::clone(&self.snapshot);
        for (index, listener) in snapshot.config.listeners.iter().enumerate() {
            if let Some((_, id)) = shared.iter().find(|(at, _)| *at == index) {
                self.listeners.push((*id, index as u16));
                continue;
            }
            let tcp = matches!(listener.bind, model::Bind::Tcp(_));
            let options = ListenOptions {
                backlog: listener.backlog,
                reuse_port: tcp,
                steer_by_cpu_over: (tcp && self.steers()).then_some(self.limits.workers),
            };
            let id = reactor.listen(&snapshot.listener_address(index), &options)?;
            self.listeners.push((id, index as u16));
        }
        Ok(self.listeners.iter().map(|(id, _)| *id).collect())
    }

    /// One turn of the reactor, and what producers had left over.
    pub fn turn<R: Driver>(&mut self, reactor: &mut R, wait_max: Span) {
        let wait = self.wait_at_most(wait_max);
        reactor.turn(self, wait);
        self.serve_yielded(reactor);
    }

    /// How long the next turn may wait.
    fn wait_at_most(&self, wait_max: Span) -> Span {
        if self.yielded.is_empty() { wait_max.min(TURN_WAIT_MAX) } else { Span::ZERO }
    }

    /// Goes on with producers that used up their share of the turn.
    fn serve_yielded<R: Reactor>(&mut self, reactor: &mut R) {
        if !self.yielded.is_empty() {
            self.continue_yielded(reactor);
        }
    }

    /// Says, before a stop, on which listeners it leaves new connections to a process that takes over.
    pub fn leave_to_others(&mut self, leaving: Leaving) {
        self.leaving = leaving;
    }

    /// Connections that the worker's reactor holds at most.
    pub(crate) fn slots_max(&self) -> usize {
        self.limits.exchanges_max
    }

    fn steers(&self) -> bool {
        self.limits.steer_by_cpu && self.limits.workers > 1
    }

    /// Begins to stop: new connections go to whoever takes over, the listeners close after
    /// `STOP_LISTENERS_SPAN` (at once where nobody does), idle connections after `STOP_IDLE_SPAN`, those
    /// at work after their answer; what is left after `grace` is reset.
    pub fn stop<R: Reactor>(&mut self, reactor: &mut R, grace: Span) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        let now = reactor.now();
        reactor.set_timer(TIMER_GRACE, now.after(grace));
        reactor.set_timer(TIMER_IDLE, now.after(STOP_IDLE_SPAN.min(grace)));
        if self.leaving.iter().all(Option::is_none) {
            return self.close_listeners(reactor);
        }
        for (listener, index) in &self.listeners {
            if let Some(Some(own)) = self.leaving.get(usize::from(*index)) {
                reactor.steer_away(*listener, own);
            }
        }
        reactor.set_timer(TIMER_LISTENERS, now.after(STOP_LISTENERS_SPAN.min(grace)));
    }

    /// Closes the listeners, once what waits in their backlogs is taken.
    pub(crate) fn close_listeners<R: Reactor>(&mut self, reactor: &mut R) {
        for (listener, _) in &self.listeners {
            reactor.stop_listening(*listener);
        }
        if self.conns.downstream_count() == 0 {
            self.close_idle(reactor);
        }
    }

    /// Whether a stop has come to its end: nothing is left open.
    #[must_use]
    pub fn is_stopped<R: Reactor>(&self, reactor: &R) -> bool {
        let all_closed = reactor.sock_count() == 0 && reactor.listener_count() == 0;
        self.stopping && (self.grace_over || all_closed)
    }

    /// Resets everything that is still open.
    pub(crate) fn abort_all<R: Reactor>(&mut self, reactor: &mut R) {
        self.grace_over = true;
        for sock in self.conns.downstream_ids() {
            self.drop_downstream(reactor, sock);
            reactor.abort(sock);
        }
        for sock in self.conns.upstream_ids() {
            self.discard_upstream(reactor, sock);
        }
        self.work.clear();
    }

    pub(crate) fn listener_index(&self, listener: ListenerId) -> Option<u16> {
        self.listeners.iter().find(|(id, _)| *id == listener).map(|(_, index)| *index)
    }

    /// What is left of connections and requests; all zero once nothing is connected.
    #[must_use]
    pub fn leftovers(&self) -> Leftovers {
        Leftovers {
            connections: self.conns.downstream_count() + self.conns.upstream_count(),
            exchanges: self.exchanges.len(),
            productions: self.productions.len(),
            queued: self.pools.iter().map(|pool| pool.queue.len()).sum(),
            idle: self.pools.iter().map(|pool| pool.idle.len()).sum(),
            kept: self.pools.iter().flat_map(|pool| &pool.kept).map(|&kept| u64::from(kept)).sum(),
            in_use: self.pools.iter().map(|pool| pool.state.in_use_total()).sum(),
        }
    }

    /// The most bytes that one connection holds now: (of input not used yet, of output not sent yet).
    #[must_use]
    pub fn held_bytes_max<R: Reactor>(&mut self, reactor: &R) -> (usize, usize) {
        let (mut input, mut output) = (0, 0);
        for sock in self.conns.downstream_ids().into_iter().chain(self.conns.upstream_ids()) {
            output = output.max(reactor.output_pending(sock));
            let held = match self.conns.downstream(sock) {
                Some(down) => down.input.len(),
                None => self.conns.upstream(sock).map_or(0, |up| up.input.len()),
            };
            input = input.max(held);
        }
        (input, output)
    }

    /// How many downstream and upstream connections there are.
    #[must_use]
    pub fn connection_counts(&self) -> (usize, usize) {
        (self.conns.downstream_count(), self.conns.upstream_count())
    }
}

/// Above the layer, where there is TLS.
impl LayerHandler for Worker {
    fn handle<R: Reactor>(&mut self, reactor: &mut R, completion: Completion<'_>) {
        Handler::handle(self, reactor, completion);
    }

    fn wait(&self, wait_max: Span) -> Span {
        self.wait_at_most(wait_max)
    }

    fn continue_after_turn<R: Reactor>(&mut self, reactor: &mut R) {
        self.serve_yielded(reactor);
    }

    fn expects_preface(&self, listener: ListenerId, peer: Peer) -> bool {
        let index = self.listener_index(listener).unwrap_or_default();
        begins_with_header(&self.snapshot.config.listeners[usize::from(index)], peer)
    }

    fn handle_preface(&mut self, sock: SockId, bytes: &[u8]) -> Result<Option<usize>, Refused> {
        self.decode_proxy_header(sock, bytes)
    }

    fn handle_established(&mut self, sock: SockId, session: &mut TlsSession) {
        self.note_session(sock, session);
    }

    fn client_of(&mut self, sock: SockId) -> Option<(&str, Peer)> {
        let down = self.conns.downstream(sock)?;
        let (listener, peer) = (usize::from(down.listener), down.peer);
        Some((&self.snapshot.config.listeners.get(listener)?.name, peer))
    }
}

impl WorkerPool {
    fn new(pool: &model::Pool, seed: u64) -> Self {
        Self {
            state: PoolState::new(pool, seed),
            idle: IdleConnections::new(pool.servers.len(), pool.reuse.idle_max as usize),
            kept: vec![0; pool.servers.len()],
            queue: WaitQueue::new(pool.queue_max as usize),
            preferred_address: vec![0; pool.servers.len()],
        }
    }
}
