//! A worker: all state of one CPU's share of the service, its start and its turns.
//! In: completions of its reactor. Out: operations on its reactor, counters.
//! Never: shares a connection with another worker, or takes a lock while it handles a request. With TLS, a
//! handshake takes the lock of the ticket keys, and a session's begin and end touch the reference count of
//! the listener's settings.
//! Invariant: `work` is empty between two turns.

use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Moment, Prng, Span};
use tidegate_config::arrange::{Generation, ServerLife};
use tidegate_config::findings::Finding;
use tidegate_config::model;
use tidegate_gate::balance::PoolState;
use tidegate_gate::basic::CredentialSecret;
use tidegate_gate::idle::IdleConnections;
use tidegate_gate::overload::{Admission, StandingQueue, Turn};
use tidegate_gate::permits::Permits;
use tidegate_gate::queue::WaitQueue;
use tidegate_gate::retry::Budget;
use tidegate_gate::shared_connections::SharedConnections;
use tidegate_lua::Vm;
use tidegate_reactor::{
    Completion, Driver, Handler, LastWait, ListenError, ListenerId, Peer, Reactor, Room, Shortage,
    SockId,
};
use tidegate_secure::{Hello, LayerHandler, Refused};
use tidegate_wire::http2::bounds::STREAMS_DEFAULT;
use tidegate_wire::message::DateField;
use tidegate_wire::tls::TlsSession;

use crate::action::Running;
use crate::action::handled::ResponseValues;
use crate::action::lua::lookups::LookupState;
use crate::action::lua::response::LogHooks;
use crate::action::lua::state::LuaState;
use crate::action::proxy::exchange::Exchange;
use crate::action::push::PushState;
use crate::action::synthetic::SyntheticResponse;
use crate::action::tarpit::TarpitRequest;
use crate::action::tokens::TokenRequests;
use crate::action::unverified::UnverifiedRequest;
use crate::action::websocket::WebSockets;
use crate::addresses::has_address;
use crate::apply_settings::{Listening, RemovedParts};
use crate::apps::{Apps, Meter, Scripts};
use crate::buffers::BufferPool;
use crate::carrier::http2::clients::Http2Clients;
use crate::carrier::http2::servers::Http2Servers;
use crate::carrier::internal_request::InternalRequests;
use crate::checked_slab::CheckedSlab;
use crate::client::begins_with_header;
use crate::connection::Connections;
use crate::counters::Accounts;
use crate::datagrams::DatagramUsers;
use crate::eviction::Eviction;
use crate::inspection::Inspections;
use crate::malformed::MalformedMessages;
use crate::paces::Paces;
use crate::passwords::Passwords;
use crate::permits::PermitPost;
use crate::record::Recorder;
use crate::requester::Requester;
use crate::resolve::Addresses;
use crate::responder::Responder;
use crate::route_marks::RouteMarks;
use crate::sampling::Sampler;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::stop::Stop;

/// A turn waits at most this long, so that a lost wake-up causes a delay and never a stall.
const TURN_WAIT_MAX: Span = Span::from_secs(1);
/// How long a turn waits if lines of the access log could not be handed over at the end of the last one.
const LINES_WAIT_MAX: Span = Span::from_millis(2);

/// One CPU's share of the service.
///
/// Its methods are in the files of the parts that they belong to:
///
/// - Dispatch of completions to the methods below, and accounting: `flow.rs`
/// - Connections, their protocols, and the messages that they carry: `carrier/`
/// - How requests are answered: `action/`
/// - Facts about clients (PROXY headers, TLS sessions, connections kept for one client): `client.rs`
/// - Room for new connections: `eviction.rs`
/// - Invariants between two turns, and the repair of broken ones: `invariants.rs`, `checked_slab.rs`
/// - The stop: `stop.rs`
/// - Start, turns and inspection: this file
pub struct Worker {
    /// The settings, by generation. Methods clone the `Rc` of a snapshot if they need it together with a mutable
    /// borrow of the worker.
    pub(crate) settings: Settings,
    /// The addresses of servers: those that the current settings came with, or later ones.
    pub(crate) addresses: Arc<Addresses>,
    /// The counters. This worker is their only writer; other threads may read them.
    pub(crate) accounts: Arc<Accounts>,
    /// The connections of both sides, by socket id. Each one has a live socket in the reactor.
    pub(crate) conns: Connections,
    /// The proxied requests in progress. Each one belongs to exactly one downstream connection, or is a copy.
    pub(crate) exchanges: CheckedSlab<Exchange>,
    /// The copies of requests for other pools: exchanges without a client, and those that are not complete.
    pub(crate) mirrors: usize,
    /// The synthetic responses in progress. Each one belongs to exactly one downstream connection.
    pub(crate) synthetics: CheckedSlab<SyntheticResponse>,
    /// The bodies that wait for the bandwidth of their route.
    pub(crate) paces: Paces,
    /// The requests that wait for their refusal. Each one belongs to exactly one requester.
    pub(crate) tarpits: CheckedSlab<TarpitRequest>,
    /// The Lua applications, and everything that they have started.
    pub(crate) lua: LuaState,
    /// The requests that Tidegate sends for itself.
    pub(crate) own: InternalRequests,
    /// The sockets for datagrams. Each one is open in the reactor.
    pub(crate) datagrams: DatagramUsers,
    /// The lookups of names by applications.
    pub(crate) lookups: LookupState,
    /// Whether new requests are admitted (`overload`).
    pub(crate) admission: Admission,
    /// The streams of HTTP/2 clients.
    pub(crate) http2_clients: Http2Clients,
    /// The streams of HTTP/2 to servers.
    pub(crate) http2_servers: Http2Servers,
    /// The WebSocket connections that actions serve.
    pub(crate) websockets: WebSockets,
    /// The push hubs, and the requests to them.
    pub(crate) push: PushState,
    /// The pools, by their index in the configuration.
    pub(crate) pools: Vec<WorkerPool>,
    /// Spare buffers.
    pub(crate) buffers: BufferPool,
    /// The values for the edits of a response that begins now, or of the request that was begun last.
    pub(crate) values: ResponseValues,
    /// The verification of passwords.
    pub(crate) passwords: Passwords,
    /// The verification of tokens.
    pub(crate) tokens: TokenRequests,
    /// The requests whose tokens or passwords are being verified. Each one belongs to exactly one requester.
    pub(crate) unverified: CheckedSlab<UnverifiedRequest>,
    /// The secret of the keys of credentials. Not derived from `prng`, whose numbers clients may see as `{id}`.
    pub(crate) secret: CredentialSecret,
    /// Random numbers for balancing and synthetic responses. Not for secrets.
    pub(crate) prng: Prng,
    /// The value of Date, rewritten when the second changes.
    pub(crate) date: DateField,
    /// The number of proxied requests so far: the `arrival` of the newest exchange.
    pub(crate) arrivals: u64,
    /// Work that the current handler queued. Empty between two turns.
    pub(crate) work: Vec<Work>,
    /// The search for room for new connections, and the requests that wait for it.
    pub(crate) eviction: Eviction,
    /// When `WorkerTimer::Avoidance` expires.
    pub(crate) avoided_until: Moment,
    /// Connections whose state broke an invariant in this turn (`note_bug`). The end of the turn resets them.
    pub(crate) broken: Vec<SockId>,
    /// The marks of connections for a profile that is limited to a route.
    pub(crate) route_marks: RouteMarks,
    /// Scratch space for a normalised path. Its contents are meaningless between two requests.
    pub(crate) path_scratch: Vec<u8>,
    /// Scratch space for one piece of a synthetic body. Its contents are meaningless between two pieces.
    pub(crate) piece: Vec<u8>,
    /// Actions that used up their share of the turn. They continue after it. May contain stale ids.
    pub(crate) yielded: Vec<Running>,
    /// A stop has begun: responses close their connections, and nothing becomes idle. Never reset.
    pub(crate) stopping: bool,
    /// The progress of a stop, and the listeners that it leaves to another process.
    pub(crate) stop: Stop,
    /// Which handler calls are timed.
    pub(crate) sampler: Sampler,
    /// The open listeners, and their client connections.
    pub(crate) listening: Listening,
    /// The removed parts of the configuration that are still in use.
    pub(crate) removed: RemovedParts,
    /// The seed of the worker's random numbers.
    pub(crate) seed: u64,
    /// The limits that the worker was created with. They never change.
    limits: WorkerLimits,
    /// The records of requests, for the access log and the statistics.
    pub(crate) recorder: Recorder,
    /// The inspections that the admin interface has requested.
    pub(crate) inspections: Inspections,
    /// The last malformed messages, for the admin interface.
    pub(crate) malformed: MalformedMessages,
    /// Mail about permits of servers from and for other workers; `None` if this is the only worker.
    pub(crate) post: Option<PermitPost>,
}

/// One worker's state of a pool.
pub(crate) struct WorkerPool {
    /// The first generation of settings with this pool.
    pub(crate) since: Generation,
    /// The requests for this pool that have begun and not ended.
    pub(crate) exchanges: u32,
    /// Load, availability and balancing state of each server. Counts only this worker's exchanges.
    pub(crate) state: PoolState,
    /// Idle connections that any client's request may use. Every entry is a live upstream connection without
    /// an exchange and without an owner.
    pub(crate) idle: IdleConnections<SockId>,
    /// Connections of HTTP/2, which requests of any clients share. Every entry is a live upstream connection.
    pub(crate) shared: SharedConnections<SockId>,
    /// By server: the number of idle connections kept for one client each.
    /// At most `reuse.idle-max`.
    pub(crate) kept: Vec<u32>,
    /// Exchanges that wait for a server, in order of arrival. Each of them is in `Stage::Queued`.
    pub(crate) queue: WaitQueue<tidegate_base::Id<Exchange>>,
    /// Whether the queue is a standing queue (`queue-standing`).
    pub(crate) standing: StandingQueue,
    /// The requests and retries of the pool.
    pub(crate) budget: Budget,
    /// The pool is in `RoomWaits::short_pools`.
    pub(crate) is_short: bool,
    /// A request of the pool found no room for a connection since `WorkerTimer::Slots` last expired or a slot was free.
    /// Until then the pool requests no permits from other workers: it could not use them, and two such workers would
    /// send a permit back and forth forever.
    pub(crate) found_no_room: bool,
    /// The requests for this pool in `RoomWaits::held`. `held` takes one only if they and those in `queue` are fewer
    /// than `queue-max`.
    pub(crate) held: usize,
    /// A waiting exchange may be able to use a server since the queue was served last, and `work` contains
    /// `ServeQueue`. False between two completions.
    pub(crate) unserved: bool,
    /// While requests wait: when a server that has failed is no longer avoided.
    pub(crate) avoided_until: Moment,
    /// The exchange of permits with other workers.
    pub(crate) permits: Permits,
    /// By server: which of its addresses to try first. Advanced when a connect fails; used modulo the number
    /// of addresses.
    pub(crate) preferred_address: Vec<usize>,
}

/// Work that a handler leaves for later, so that handlers do not call each other recursively.
pub(crate) enum Work {
    /// Process the input that is waiting for this requester.
    Resume(Requester),
    /// The client has taken the output of this stream: its action may continue.
    Drained(Requester),
    /// Send the data that waits on this HTTP/2 connection, and set its deadline.
    Settle(SockId),
    /// The exchange of this connection or stream continues: hand over the bytes that the server has sent since.
    ResumeServer(Responder),
    /// A server of this pool may have a free connection: assign it to a queued exchange.
    ServeQueue(u16),
}

/// The connections and requests that a worker still holds; see [`Worker::leftovers`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Leftovers {
    /// Connections, downstream and upstream.
    pub connections: usize,
    /// Proxied requests in progress.
    pub exchanges: usize,
    /// Copies of requests for other pools.
    pub mirrors: usize,
    /// Synthetic responses in progress.
    pub synthetics: usize,
    /// Requests that Lua applications answer.
    pub scripted: usize,
    /// Requests whose tokens or passwords are being verified, except those that wait as exchanges.
    pub unverified: usize,
    /// Requests that wait for their refusal.
    pub tarpits: usize,
    /// Bodies that wait for the bandwidth of their route.
    pub paced: usize,
    /// Places of connections of listeners that limit the connections of each address.
    pub client_places: usize,
    /// Requests that VMs keep.
    pub in_vms: usize,
    /// WebSocket connections that Lua applications serve.
    pub lua_clients: usize,
    /// Handlers of requests and clients that wait.
    pub lua_waiting: usize,
    /// Calls of Lua applications to push hubs.
    pub lua_calls: usize,
    /// Reads of files by Lua applications.
    pub lua_files: usize,
    /// Handshakes that wait for certificates.
    pub lua_choices: usize,
    /// Requests that Tidegate sends for itself.
    pub own_requests: usize,
    /// Sockets of Lua applications.
    pub lua_sockets: usize,
    /// Sockets for datagrams of Lua applications.
    pub lua_datagram_sockets: usize,
    /// Open sockets for datagrams.
    pub datagram_sockets: usize,
    /// Lookups of names in progress.
    pub lookups: usize,
    /// Records that wait for `on_log`.
    pub log_hooks: usize,
    /// VMs of earlier code of Lua applications.
    pub retired: usize,
    /// Streams of HTTP/2 clients.
    pub streams: usize,
    /// Streams of HTTP/2 to servers.
    pub server_streams: usize,
    /// WebSocket connections that an action serves.
    pub websockets: usize,
    /// WebSocket connections that hold more memory than an idle one.
    pub active_websockets: usize,
    /// Requests to push hubs.
    pub push_sessions: usize,
    /// Subscriptions to channels.
    pub subscriptions: usize,
    /// Subscribers for which messages wait.
    pub push_queues: usize,
    /// Clients of push hubs that the server API can disconnect or refresh.
    pub push_clients: usize,
    /// Events for the backends of push hubs that wait or are on their way.
    pub push_events: usize,
    /// Records of requests that have not ended.
    pub records: usize,
    /// Requests in progress of the tables that count them.
    pub in_tables: u64,
    /// Requests that wait for a server.
    pub queued: usize,
    /// Idle upstream connections that any client's request may use.
    pub idle: usize,
    /// Idle upstream connections that are each kept for one client.
    pub kept: u64,
    /// Requests that the pools count as sent to a server.
    pub in_use: u64,
    /// Earlier generations of settings, and removed parts of the configuration, that are in use.
    pub earlier: usize,
}

/// The limits of a worker, and its place among the workers.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLimits {
    /// Maximum number of connections that the reactor may hold. Address space for that many is reserved.
    pub exchanges_max: usize,
    /// The number of workers. Each worker has its own listener on each TCP address.
    pub workers: u32,
    /// New connections are steered to the worker of the CPU that received them.
    pub steer_by_cpu: bool,
}

impl Worker {
    /// Creates a worker that serves `snapshot` and counts into `accounts`. `seed` seeds its balancing.
    #[must_use]
    pub fn new(
        snapshot: Rc<Snapshot>,
        accounts: Arc<Accounts>,
        limits: WorkerLimits,
        seed: u64,
    ) -> Self {
        let mut pools: Vec<WorkerPool> =
            snapshot.config.pools.iter().map(|pool| WorkerPool::new(pool, seed)).collect();
        for (pool, servers) in pools.iter_mut().zip(snapshot.addresses.iter()) {
            pool.state.note_addresses(|at| has_address(servers, at), Moment::ZERO);
        }
        // As many as all connections may open: a client with many streams takes none from the others.
        let streams_max = limits.exchanges_max.saturating_mul(STREAMS_DEFAULT as usize);
        accounts.set_hubs(snapshot.hubs.len());
        let push = PushState::new(Arc::clone(&snapshot.hubs), streams_max, (0, 1));
        let recorder = Recorder::holding(snapshot.process.is_held_by_requests());
        Self {
            addresses: Arc::clone(&snapshot.addresses),
            settings: Settings::new(snapshot),
            accounts,
            conns: Connections::with_capacity(limits.exchanges_max),
            exchanges: CheckedSlab::new(streams_max),
            mirrors: 0,
            synthetics: CheckedSlab::new(streams_max),
            paces: Paces::default(),
            tarpits: CheckedSlab::new(streams_max),
            lua: LuaState::new(streams_max),
            own: InternalRequests::new(streams_max),
            datagrams: DatagramUsers::default(),
            lookups: LookupState::new(seed),
            admission: Admission::default(),
            http2_clients: Http2Clients::new(streams_max),
            http2_servers: Http2Servers::new(streams_max),
            websockets: WebSockets::new(streams_max),
            push,
            pools,
            buffers: BufferPool::default(),
            values: ResponseValues::default(),
            passwords: Passwords::default(),
            tokens: TokenRequests::new(),
            unverified: CheckedSlab::new(streams_max),
            secret: CredentialSecret::new(&[0; 32]),
            prng: Prng::new(seed),
            date: DateField::new(0),
            arrivals: 0,
            work: Vec::new(),
            eviction: Eviction::new(limits.exchanges_max),
            avoided_until: Moment::NEVER,
            broken: Vec::new(),
            route_marks: RouteMarks::default(),
            path_scratch: Vec::new(),
            piece: Vec::new(),
            yielded: Vec::new(),
            stopping: false,
            stop: Stop::default(),
            sampler: Sampler::default(),
            listening: Listening::default(),
            removed: RemovedParts::default(),
            seed,
            limits,
            recorder,
            inspections: Inspections::default(),
            malformed: MalformedMessages::default(),
            post: None,
        }
    }

    /// Creates the VMs of the Lua applications, on the thread that will run the worker. `own` is the number of the
    /// worker, `seed` that of the scripts' random numbers.
    ///
    /// # Errors
    /// What is wrong with the scripts.
    pub fn load_apps(
        &mut self,
        scripts: &Scripts,
        meter: Meter,
        own: u32,
        seed: u64,
    ) -> Result<(), Vec<Finding>> {
        let place = (own, self.limits.workers);
        self.lua.apps = Apps::load(&self.settings.newest().config, scripts, meter, place, seed)?;
        self.lua.log_hooks = LogHooks::new(self.lua.apps.with(tidegate_lua::Handler::Log));
        if self.lua.log_hooks.are_needed() {
            self.recorder.keep_for_hooks();
        }
        Ok(())
    }

    /// Opens a listener of the worker's own for every `[[listener]]`.
    ///
    /// # Errors
    /// The kernel refused a listener. The first error is returned.
    pub fn listen<R: Reactor>(&mut self, reactor: &mut R) -> Result<Vec<ListenerId>, ListenError> {
        self.listen_with_shared(reactor, &[])
    }

    /// Like [`Self::listen`], except that the listeners in `shared` are open already and shared with the
    /// other workers. `shared` contains their indexes in the configuration and their ids.
    ///
    /// # Errors
    /// The kernel refused a listener. The first error is returned.
    pub fn listen_with_shared<R: Reactor>(
        &mut self,
        reactor: &mut R,
        shared: &[(usize, ListenerId)],
    ) -> Result<Vec<ListenerId>, ListenError> {
        let snapshot = Rc::clone(self.settings.newest());
        self.open_listeners(reactor, &snapshot, shared)?;
        Ok(self.listening.open.iter().map(|listener| listener.id).collect())
    }

    /// Runs one turn of the reactor, then continues the actions that yielded.
    pub fn turn<R: Driver>(&mut self, reactor: &mut R, wait_max: Span) {
        let wait = self.wait_at_most(wait_max);
        reactor.turn(self, wait);
        self.end_turn(reactor);
        reactor.note_due(self.wait_at_most(Span::MAX).is_zero());
    }

    /// How long the next turn may wait for events.
    fn wait_at_most(&self, wait_max: Span) -> Span {
        let has_work = !self.yielded.is_empty()
            || self.push.is_busy()
            || self.lua.has_work()
            || self.tokens.has_waiting()
            || self.push.share.has_waiting()
            || self.inspections.are_waiting();
        if has_work {
            return Span::ZERO;
        }
        wait_max.min(if self.recorder.has_lines() { LINES_WAIT_MAX } else { TURN_WAIT_MAX })
    }

    /// Does the work that belongs to the end of a turn.
    fn end_turn<R: Reactor>(&mut self, reactor: &mut R) {
        self.conns.end_turn();
        self.mark_sock(None);
        if !self.work.is_empty() {
            // A TLS handshake has ended without a byte after it.
            self.settle(reactor);
        }
        self.retry_after_turn(reactor);
        self.lua.share.renew();
        self.serve_yielded(reactor);
        self.verify_waiting_tokens(reactor);
        self.run_waiting_hub_requests(reactor);
        self.resume_apps(reactor);
        self.end_unwanted_own(reactor);
        self.end_unwanted_datagrams(reactor);
        self.lua.share.renew();
        self.inspect(reactor);
        self.finish_push(reactor);
        if self.has_broken() {
            self.repair(reactor);
        }
        self.check_removed(reactor);
        self.send_gathered(reactor);
        self.send_gathered_requests(reactor);
        // Postponed handshakes, and what other threads have sent, come before the next mark.
        self.unmark();
        self.deliver_lines();
        self.accounts.counters.turns.add(1);
        self.note_load(reactor);
    }

    /// Measures how long ready events wait, if requests are refused for it.
    fn note_load<R: Reactor>(&mut self, reactor: &R) {
        let Some(overload) = self.settings.newest().config.server.overload else { return };
        let LastWait { idle, behind } = reactor.last_wait();
        let shares_served = self.lua.share.has_served_marked()
            && self.tokens.share.has_served_marked()
            && self.push.share.has_served_marked();
        let turn = Turn { began: reactor.now(), idle, behind, is_put_off: !shares_served };
        let noted = self.admission.note_turn(&overload, turn);
        if noted.begins_measurement {
            self.lua.share.mark();
            self.tokens.share.mark();
            self.push.share.mark();
        }
        self.accounts.counters.overload_intervals.add(u64::from(noted.is_over));
    }

    /// Continues the actions that used up their share of the turn.
    fn serve_yielded<R: Reactor>(&mut self, reactor: &mut R) {
        if !self.yielded.is_empty() {
            self.continue_yielded(reactor);
        }
    }

    /// Maximum number of connections that the worker's reactor may hold.
    pub(crate) fn slots_max(&self) -> usize {
        self.limits.exchanges_max
    }

    /// Whether new connections are steered by CPU.
    pub(crate) fn steers(&self) -> bool {
        self.limits.steer_by_cpu && self.limits.workers > 1
    }

    /// The counters.
    pub(crate) fn accounts(&self) -> Arc<Accounts> {
        Arc::clone(&self.accounts)
    }

    /// The number of workers.
    pub(crate) fn workers(&self) -> u32 {
        self.limits.workers
    }

    /// The place of this worker among those that exchange permits, and their number.
    pub(crate) fn place_among_workers(&self) -> (usize, usize) {
        self.post.as_ref().map_or((0, 1), |post| (post.own, post.workers.len()))
    }

    /// The index of a listener in the configuration.
    pub(crate) fn listener_index(&self, listener: ListenerId) -> Option<u16> {
        self.listening.open.iter().find(|open| open.id == listener).map(|open| open.index)
    }

    /// Counts the connections and requests in progress. All counts are zero once every connection is closed.
    #[must_use]
    pub fn leftovers(&self) -> Leftovers {
        Leftovers {
            connections: self.conns.downstream_count() + self.conns.upstream_count(),
            exchanges: self.exchanges.len(),
            mirrors: self.mirrors,
            synthetics: self.synthetics.len(),
            scripted: self.lua.requests.len(),
            unverified: self.unverified.len(),
            tarpits: self.tarpits.len(),
            paced: self.paces.len(),
            client_places: self.listening.held_places.len(),
            in_vms: self.lua.apps.sum(Vm::requests) + self.lua.apps.sum(Vm::tunnels),
            lua_clients: self.lua.clients.len() + self.lua.apps.sum(Vm::clients),
            lua_waiting: self.lua.apps.sum(Vm::waiting),
            lua_calls: self.lua.calls.len(),
            lua_files: self.file_reads(),
            lua_choices: self.lua.choices.len(),
            own_requests: self.own.len(),
            lua_sockets: self.lua.apps.sum(Vm::sockets),
            lua_datagram_sockets: self.lua.apps.sum(Vm::datagram_sockets),
            datagram_sockets: self.datagrams.len(),
            lookups: self.lookups.len(),
            log_hooks: self.lua.log_hooks.len(),
            retired: self.lua.apps.retired_len(),
            streams: self.http2_clients.len(),
            server_streams: self.http2_servers.len(),
            websockets: self.websockets.sessions.len(),
            active_websockets: self.websockets.actives.len(),
            push_sessions: self.push.sessions.len(),
            subscriptions: self.push.subscriptions(),
            push_queues: self.push.queues(),
            push_clients: self.push.clients(),
            push_events: self.push.events(),
            records: self.recorder.open_count(),
            in_tables: self.settings.newest().process.tables.in_progress(),
            queued: self.pools.iter().map(|pool| pool.queue.len()).sum::<usize>()
                + self.eviction.waits.held().len(),
            idle: self.pools.iter().map(|pool| pool.idle.len()).sum(),
            kept: self.pools.iter().flat_map(|pool| &pool.kept).map(|&kept| u64::from(kept)).sum(),
            in_use: self.pools.iter().map(|pool| pool.state.in_use_total()).sum(),
            earlier: self.settings.earlier_in_use() + self.count_removed_in_use(),
        }
    }

    /// For a server: the requests in progress, and the permits that the worker holds (`u32::MAX` without
    /// a limit).
    #[must_use]
    pub fn server_use(&self, pool: usize, server: usize) -> (u32, u32) {
        let state = self.pools.get(pool).map(|pool| &pool.state);
        state.map_or((0, 0), |state| (state.in_use(server), state.permits(server)))
    }

    /// The largest number of buffered bytes of any one connection: (unprocessed input, unsent output).
    #[must_use]
    pub fn held_bytes_max<R: Reactor>(&mut self, reactor: &R) -> (usize, usize) {
        let (mut input, mut output) = (0, 0);
        for sock in self.conns.downstream_ids().into_iter().chain(self.conns.upstream_ids()) {
            output = output.max(reactor.output_pending(sock));
            let held = match self.conns.downstream(sock) {
                Some(down) => down.held_input_bytes(),
                None => self.conns.upstream(sock).map_or(0, |up| up.held_input_bytes()),
            };
            input = input.max(held);
        }
        (input, output)
    }

    /// The numbers of downstream and upstream connections.
    #[must_use]
    pub fn connection_counts(&self) -> (usize, usize) {
        (self.conns.downstream_count(), self.conns.upstream_count())
    }
}

/// The worker as the user of the TLS layer, if the configuration uses TLS.
impl LayerHandler for Worker {
    fn handle<R: Reactor>(&mut self, reactor: &mut R, completion: Completion<'_>) {
        Handler::handle(self, reactor, completion);
    }

    fn wait(&self, wait_max: Span) -> Span {
        self.wait_at_most(wait_max)
    }

    fn continue_after_turn<R: Reactor>(&mut self, reactor: &mut R) {
        self.end_turn(reactor);
    }

    fn send_after_turn<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        let is_needed = self.http2_clients.has_gathering() || self.http2_servers.has_gathering();
        if is_needed {
            self.send_gathered(reactor);
            self.send_gathered_requests(reactor);
        }
        is_needed
    }

    fn note_next(&mut self, sock: Option<SockId>) {
        self.mark_sock(sock);
    }

    fn has_room<R: Reactor>(&self, reactor: &R) -> bool {
        self.has_room_for_client(reactor)
    }

    fn make_room<R: Reactor>(&mut self, reactor: &mut R, shortage: Shortage) -> Room {
        Handler::make_room(self, reactor, shortage)
    }

    fn handle_handshake_bytes(&mut self, sock: SockId) {
        self.conns.note_bytes(sock);
    }

    fn expects_preface(&self, listener: ListenerId, peer: Peer) -> bool {
        let index = self.listener_index(listener).unwrap_or_default();
        begins_with_header(self.settings.newest().listener(index), peer)
    }

    fn handle_preface(&mut self, sock: SockId, bytes: &[u8]) -> Result<Option<usize>, Refused> {
        self.decode_proxy_header(sock, bytes)
    }

    fn choose_certificate<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, hello: &Hello<'_>) {
        self.begin_certificate_choice(reactor, sock, hello);
        self.settle(reactor);
    }

    fn handle_established(&mut self, sock: SockId, session: &mut TlsSession) {
        self.note_session(sock, session);
        self.note_tcp_session(sock);
    }

    fn client_of(&mut self, sock: SockId) -> Option<(&str, Peer)> {
        let down = self.conns.downstream(sock)?;
        let (era, listener, peer) = (down.era(), usize::from(down.listener), down.peer());
        Some((&self.settings.of(era).config.listeners.get(listener)?.name, peer))
    }
}

impl WorkerPool {
    pub(crate) fn new(pool: &model::Pool, seed: u64) -> Self {
        Self {
            since: 0,
            exchanges: 0,
            state: PoolState::new(pool, seed),
            idle: IdleConnections::new(pool.servers.len(), pool.reuse.idle_max as usize),
            shared: SharedConnections::new(
                pool.servers.len(),
                pool.http2.connections_max as usize,
                pool.http2.streams_max,
            ),
            kept: vec![0; pool.servers.len()],
            queue: WaitQueue::new(pool.queue_max as usize),
            standing: StandingQueue::default(),
            budget: Budget::default(),
            is_short: false,
            found_no_room: false,
            held: 0,
            unserved: false,
            avoided_until: Moment::NEVER,
            permits: Permits::new(0, 1, pool.servers.len()),
            preferred_address: vec![0; pool.servers.len()],
        }
    }

    /// Uses other settings for the same pool and its servers, as worker `own` of `workers`.
    pub(crate) fn change(
        &mut self,
        pool: &model::Pool,
        lives: &[ServerLife],
        own: usize,
        workers: usize,
    ) {
        let earlier = self.state.since();
        self.state.change(pool, lives, own, workers);
        let count = pool.servers.len();
        self.idle.change(count, pool.reuse.idle_max as usize);
        self.shared.change(count, pool.http2.connections_max as usize, pool.http2.streams_max);
        self.shared.share(own, workers);
        self.kept.resize(count, 0);
        self.preferred_address.resize(count, 0);
        for (server, (before, life)) in earlier.iter().zip(lives).enumerate() {
            if *before != life.life.since {
                self.idle.forget_endurance(server);
                self.shared.forget(server);
                if let Some(preferred) = self.preferred_address.get_mut(server) {
                    *preferred = 0;
                }
            }
        }
        self.permits.change(&mut self.state, count);
        self.queue.set_length_max((pool.queue_max as usize).div_ceil(workers.max(1)));
    }

    /// Leaves worker `own` of `workers` with its share of the pool's limits.
    pub(crate) fn share(&mut self, own: usize, workers: usize) {
        self.state.deal(own, workers);
        self.permits = Permits::new(own, workers, self.state.len());
        self.shared.share(own, workers);
        self.queue.set_length_max(self.queue.length_max().div_ceil(workers.max(1)));
    }
}
