//! Makes room for a new connection when slots or descriptors run short.
//!
//! A slot is a connection that the reactor may hold, a closing one included. Clients are accepted only while
//! one slot in `SHARE_DIVISOR` is left for connections to servers, and connections to servers are opened only
//! while as many slots are left for clients: one client may need many servers (streams of HTTP/2). When a client
//! waits in the backlog and there is no such room, or a request needs a connection to its server and no slot is
//! free, the connection whose loss costs least is closed:
//!
//! 1. an idle connection to a server, of the pool and the server with the most of them; for a waiting
//!    client only if enough slots remain for servers, and for returning clients, without it;
//! 2. a connection that was closed before and waits for its peer to close too, if one slot in
//!    `LINGERING_DIVISOR` is occupied by such connections;
//! 3. the client that has been connected longest without sending a byte;
//! 4. the client whose first request, PROXY header or TLS handshake has been incomplete longest; if there are
//!    more of these than silent clients, before silent clients that have been connected for less than
//!    `SILENT_MIN`, because their bytes may be on the way;
//! 5. any connection that waits for its peer to close too;
//! 6. an idle client (all its responses are sent, and the next request is not complete): the connection with the fewest requests
//!    among those examined, if it has been idle for long enough. A client with one request is not protected. Further requests
//!    protect it for `QUIET_UNIT` times the square of their number, up to `QUIET_MAX`. So a client that has sent
//!    `QUIET_REQUESTS_MAX` requests and sends at least one a second keeps its connection in any flood, and the clients of the
//!    flood lose theirs first;
//! 7. a tunnel of TCP mode whose client has never sent a byte, and in which no byte was transferred for
//!    `QUIET_MAX`.
//!
//! If servers have all slots but those left for clients, only an idle connection to a server makes room for
//! another one.
//!
//! Clients that keep requests in progress cannot be closed. So that they do not take all connections to
//! servers, half of the slots left for servers are reserved for returning clients: the first request of a
//! connection waits (shortage.rs) unless more slots than those are free or have idle connections to servers.
//!
//! In: clients in the backlog, requests that need a connection. Out: closed connections, and a counter of each
//! class. Never: closes a connection that has a request or a response in progress; closes a connection for a
//! client if no client waits; closes a silent client before the reactor has polled it in the turn after
//! its accept, because its request may be in the kernel already; closes a silent client for another client
//! within `FIRST_BYTE_SPAN` of its accept, because its request may be on the way. If nothing else can be
//! closed, accepting continues a moment later.
//! Limits: one search examines up to `SCAN_SLOTS_MAX` slots and `POOLS_EXAMINED_MAX` pools; one accept makes up to
//! `EVICTIONS_PER_ACCEPT_MAX` evictions, and all new clients up to `BURST_MAX` in `BURST_SPAN` (as many again for their first
//! requests), so that a flood does not use up the CPU time of clients that are being served. If nothing can be closed,
//! accepting pauses, and a request waits in the queue of its pool (dispatch.rs).

use tidegate_base::{Id, Moment, Span};
use tidegate_gate::access::Cause;
use tidegate_reactor::{Reactor, Room, Shortage, SockId};

use crate::action::Running;
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::action::proxy::shortage::RoomWaits;
use crate::connection::{Downstream, Idle};
use crate::requester::Requester;
use crate::settings::Settings;
use crate::worker::Worker;

/// One slot in this many is left for connections to servers, and one in as many for clients.
const SHARE_DIVISOR: usize = 8;
/// At least this many slots are left for each side, but never more than half of all slots.
const SHARE_MIN: usize = 4;
/// No more slots than this are left for either side.
const SHARE_MAX: usize = 4096;
/// One slot in this many may be occupied by closed connections that wait for their peers before clients
/// without a request are closed.
const LINGERING_DIVISOR: usize = 16;
/// How long a client that has sent two requests must have been quiet before it is closed for another
/// connection.
const QUIET_UNIT: Span = Span::from_millis(4);
/// Upper bound of the time for which a client must have been quiet before it is closed.
const QUIET_MAX: Span = Span::from_secs(1);
/// The requests after which a client is protected for `QUIET_MAX`.
const QUIET_REQUESTS_MAX: u32 = 17;
const _: () = assert!(
    QUIET_UNIT.as_millis() * (QUIET_REQUESTS_MAX as u128 - 1).pow(2) >= QUIET_MAX.as_millis()
);
/// Idle clients with up to this many requests are closed even if silent clients may be found soon.
const BRIEF_REQUESTS_MAX: u32 = 4;
/// With fewer slots than this, none is reserved for returning clients.
const RETURNING_TABLE_MIN: usize = 16;
/// How many slots one search examines. The bound keeps the cost of a new connection constant, even when the table is
/// full.
const SCAN_SLOTS_MAX: usize = 256;
/// How many pools one search examines.
const POOLS_EXAMINED_MAX: usize = 64;
/// Connections that are closed for one accept at most. More than one is needed only after connections to
/// servers ended, whose slots are left for other connections to servers.
const EVICTIONS_PER_ACCEPT_MAX: usize = 4;

/// Maximum number of searches for a connection to close in `BURST_SPAN` for new clients, and as many again for first
/// requests. Further clients wait in the backlog, where they cost nothing.
const BURST_MAX: u32 = 8;
const BURST_SPAN: Span = Span::from_millis(1);
/// How long a client has for its first byte before it is closed for another client. The bytes follow the end of
/// the TCP handshake as soon as the client's program runs.
const FIRST_BYTE_SPAN: Span = Span::from_millis(2);
/// How long a client is connected before it counts as silent, if more clients have an incomplete request.
const SILENT_MIN: Span = Span::from_millis(100);

/// The search for room, and the connections that wait for it.
pub(crate) struct Eviction {
    /// The state of the last searches.
    search: Search,
    /// The requests that wait for room for a connection.
    pub(crate) waits: RoomWaits,
}

impl Eviction {
    /// No search was made, and nothing waits. Up to `held_max` first requests may.
    pub(crate) fn new(held_max: usize) -> Self {
        Self { search: Search::default(), waits: RoomWaits::new(held_max) }
    }
}

/// The state of the search between two calls.
#[derive(Default)]
struct Search {
    /// Searches for clients that wait in the backlog.
    accepts: Burst,
    /// Searches for first requests of clients.
    requests: Burst,
    /// The pool where the next search begins.
    pool: usize,
    /// Slots examined since the last idle client was found.
    slots: usize,
    /// A tunnel whose client has sent no byte, if those slots contain one. It may have ended since.
    silent_tunnel: Option<SockId>,
}

/// The number of recent searches for a connection to close.
#[derive(Default)]
struct Burst {
    /// When the current `BURST_SPAN` began.
    began: Moment,
    /// Connections looked for since then.
    count: u32,
}

impl Burst {
    /// Counts a search. Returns false if there were `BURST_MAX` in this `BURST_SPAN` already.
    fn admits(&mut self, now: Moment) -> bool {
        if now.since(self.began) >= BURST_SPAN {
            *self = Self { began: now, count: 0 };
        }
        self.count += 1;
        self.count <= BURST_MAX
    }
}

impl Worker {
    /// The number of slots that are left for connections to servers, and of those that are left for clients.
    fn share_slots(&self) -> usize {
        let slots = self.slots_max();
        let share = (slots / SHARE_DIVISOR).min(SHARE_MAX);
        share.max(SHARE_MIN.min(slots / 2))
    }

    /// How many more connections to servers may exist without using the slots that are left for clients.
    fn servers_left(&self) -> usize {
        (self.slots_max() - self.share_slots()).saturating_sub(self.conns.upstream_count())
    }

    /// Whether a connection to a server may be opened without closing another connection.
    pub(crate) fn has_room_for_server<R: Reactor>(&self, reactor: &R) -> bool {
        reactor.sock_count() < self.slots_max() && self.servers_left() > 0
    }

    /// The number of slots that are reserved for requests of returning clients. Each is free or has an idle
    /// connection to a server.
    fn returning_slots(&self) -> usize {
        if self.slots_max() < RETURNING_TABLE_MIN { 0 } else { self.share_slots() / 2 }
    }

    /// Idle connections to servers.
    fn idle_servers(&self) -> usize {
        self.conns.upstream_count() - self.conns.attached_count()
    }

    /// Whether another client may be accepted: a slot is free in addition to those left for connections to servers.
    pub(crate) fn has_room_for_client<R: Reactor>(&self, reactor: &R) -> bool {
        let for_servers = self.share_slots().saturating_sub(self.conns.upstream_count());
        let for_returning = self.returning_slots().saturating_sub(self.idle_servers());
        let left = for_servers.max(for_returning).min(self.servers_left());
        reactor.sock_count() + left < self.slots_max()
    }

    /// Whether the first request of a client may use a connection to a server: more are free or idle than those
    /// reserved for returning clients.
    pub(crate) fn has_room_for_first_request<R: Reactor>(&self, reactor: &R) -> bool {
        let free = self.slots_max().saturating_sub(reactor.sock_count()).min(self.servers_left());
        self.returning_slots() == 0 || self.idle_servers() + free > self.returning_slots()
    }

    /// Closes connections of clients until the first request of a client may use a connection to a server.
    /// Returns whether it may.
    pub(crate) fn make_room_for_first_request<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        for _ in 0..EVICTIONS_PER_ACCEPT_MAX {
            if self.has_room_for_first_request(reactor) {
                return true;
            }
            if self.idle_servers() + self.servers_left() <= self.returning_slots() {
                // Connections to servers must not take the slots of clients.
                return false;
            }
            if !self.eviction.search.requests.admits(reactor.now())
                || self.evict(reactor, false, Span::ZERO) != Room::Made
            {
                return false;
            }
        }
        self.has_room_for_first_request(reactor)
    }

    /// Closes connections for a client that waits in the backlog.
    pub(crate) fn make_room_for_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        shortage: Shortage,
    ) -> Room {
        self.conns.note_checks();
        for _ in 0..EVICTIONS_PER_ACCEPT_MAX {
            if !self.eviction.search.accepts.admits(reactor.now()) {
                return Room::Soon;
            }
            let takes_servers = self.conns.upstream_count() > self.share_slots()
                && self.idle_servers() > self.returning_slots();
            match self.evict(reactor, takes_servers, FIRST_BYTE_SPAN) {
                Room::Made if shortage != Shortage::Slots => return Room::Made,
                Room::Made if self.has_room_for_client(reactor) => return Room::Made,
                Room::Made => {}
                Room::Soon => return Room::Soon,
                Room::None => return Room::None,
            }
        }
        Room::Soon
    }

    /// Closes a client of this listener, which has as many connections as its `connections-max`: a silent client, an
    /// incomplete first request, or an idle client that is not protected. Returns whether it did.
    pub(crate) fn make_room_on_listener<R: Reactor>(
        &mut self,
        reactor: &mut R,
        listener: u16,
    ) -> bool {
        let now = reactor.now();
        if !self.eviction.search.accepts.admits(now) {
            return false;
        }
        let silent = self.conns.oldest_silent_on(listener).map(|sock| (sock, FIRST_BYTE_SPAN));
        let unfinished = self.conns.oldest_unfinished_on(listener).map(|sock| (sock, Span::ZERO));
        for (sock, connected_min) in [silent, unfinished].into_iter().flatten() {
            let down = self.conns.downstream(sock);
            if down.is_some_and(|down| down.connected_span(now) >= connected_min) {
                self.accounts.counters.evicted_for_listener.add(1);
                self.reset_client(reactor, sock);
                return true;
            }
        }
        for _ in 0..self.conns.slots_used().min(SCAN_SLOTS_MAX) {
            if let Some((sock, Idle::Client(down))) = self.conns.examine_next()
                && down.listener == listener
                && quiet_span(&self.settings, reactor, sock, down).is_some()
            {
                self.accounts.counters.evicted_for_listener.add(1);
                self.drop_client(reactor, sock);
                reactor.close_at_once(sock);
                return true;
            }
        }
        false
    }

    /// Closes a connection so that one to a server can be opened. Returns whether it did.
    pub(crate) fn make_room_for_server<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        match self.servers_left() {
            0 => self.idle_servers() > 0 && self.evict_any_idle_server(reactor),
            _ => self.evict(reactor, true, Span::ZERO) == Room::Made,
        }
    }

    /// Closes the connection whose loss costs least; an idle one to a server only if `takes_servers`, and a silent
    /// client only if it has been connected for `silent_min`.
    fn evict<R: Reactor>(
        &mut self,
        reactor: &mut R,
        takes_servers: bool,
        silent_min: Span,
    ) -> Room {
        if takes_servers && self.evict_idle_server(reactor) {
            return Room::Made;
        }
        if reactor.free_lingering(self.slots_max() / LINGERING_DIVISOR) {
            self.accounts.counters.evicted_lingering.add(1);
            return Room::Made;
        }
        let unfinished = self.conns.oldest_unfinished();
        let silent = self.conns.oldest_silent();
        let silent_min = match self.conns.most_are_unfinished() {
            true => SILENT_MIN,
            false => silent_min,
        };
        let now = reactor.now();
        if let Some(sock) = silent
            && let Some(down) = self.conns.downstream(sock)
            && down.connected_span(now) >= silent_min
        {
            self.accounts.counters.evicted_silent.add(1);
            self.reset_client(reactor, sock);
            return Room::Made;
        }
        if let Some(sock) = unfinished {
            self.accounts.counters.evicted_unfinished.add(1);
            self.reset_client(reactor, sock);
            return Room::Made;
        }
        if reactor.free_lingering(0) {
            self.accounts.counters.evicted_lingering.add(1);
            return Room::Made;
        }
        // In a flood of silent clients, most clients that have just arrived will stay silent.
        let has_silent = self.conns.has_silent();
        let requests_max = if has_silent { BRIEF_REQUESTS_MAX } else { u32::MAX };
        match self.evict_idle_client(reactor, takes_servers, requests_max) {
            Room::None if has_silent => Room::Soon,
            room => room,
        }
    }

    /// Closes the idle server connection that has been idle longest, of the pool with the most.
    fn evict_idle_server<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        let count = self.pools.len();
        let examined =
            (0..count.min(POOLS_EXAMINED_MAX)).map(|at| (self.eviction.search.pool + at) % count);
        let Some(most) = examined.max_by_key(|pool| self.pools[*pool].idle.len()) else {
            return false;
        };
        let Some(sock) = self.pools[most].idle.shed() else {
            self.eviction.search.pool = (self.eviction.search.pool + POOLS_EXAMINED_MAX) % count;
            return false;
        };
        self.evict_server(reactor, sock);
        true
    }

    /// As `evict_idle_server`, but also evicts connections that are kept for one client or that clients share.
    fn evict_any_idle_server<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        if self.evict_idle_server(reactor) {
            return true;
        }
        for _ in 0..self.conns.slots_used().min(SCAN_SLOTS_MAX) {
            if let Some((sock, Idle::Server)) = self.conns.examine_next() {
                self.take_from_idle(sock, reactor.now());
                self.evict_server(reactor, sock);
                return true;
            }
        }
        false
    }

    fn evict_server<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.accounts.counters.evicted_upstream.add(1);
        self.drop_upstream(sock);
        reactor.close_at_once(sock);
    }

    /// The exchange of a tunnel in TCP mode whose client has never sent a byte, and in which no byte was transferred
    /// for `QUIET_MAX`.
    fn silent_tunnel<R: Reactor>(&mut self, reactor: &R, sock: SockId) -> Option<Id<Exchange>> {
        let down = self.conns.downstream(sock).filter(|down| down.is_silent_tunnel())?;
        let Running::Proxy(id) = down.running() else { return None };
        let exchange = self.exchanges.find(id)?;
        let timeout = self.settings.of(exchange.era).pool(exchange.pool).timeouts.tunnel;
        let quiet = timeout.saturating_sub(reactor.deadline(sock).since(reactor.now()));
        let is_silent = exchange.stage == Stage::Tunnel
            && !exchange.ended.client
            && reactor.output_pending(sock) == 0
            && quiet >= QUIET_MAX.min(timeout / 2);
        is_silent.then_some(id)
    }

    /// Resets the tunnel whose client has sent no byte, found by the last search.
    fn evict_silent_tunnel<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        let found = self.eviction.search.silent_tunnel.take();
        let Some(id) = found.and_then(|sock| self.silent_tunnel(reactor, sock)) else {
            return false;
        };
        self.accounts.counters.evicted_tunnels.add(1);
        if let Some(sock) = found {
            let reason = "the connection was closed to make room for another one";
            self.blame(Requester::connection(sock), Cause::Limit, reason);
        }
        self.reset_tunnel(reactor, id);
        true
    }

    /// Closes a client that may send a large part of a head but no complete request. A reset frees the memory
    /// of the kernel, too.
    pub(crate) fn reset_client<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.drop_client(reactor, sock);
        reactor.abort(sock);
    }

    /// Closes an idle client that has sent up to `requests_max`: the next one with a single request, or else
    /// the one with the fewest requests in sight, and of several the one that has been quiet longest. If
    /// `takes_servers`, closes instead the first idle server connection on the way that is kept for one client.
    fn evict_idle_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        takes_servers: bool,
        requests_max: u32,
    ) -> Room {
        let now = reactor.now();
        let used = self.conns.slots_used();
        let mut least: Option<(u32, Span, SockId)> = None;
        for _ in 0..used.min(SCAN_SLOTS_MAX) {
            self.eviction.search.slots += 1;
            match self.conns.examine_next() {
                Some((sock, Idle::Server)) if takes_servers => {
                    self.take_from_idle(sock, now);
                    self.evict_server(reactor, sock);
                    return Room::Made;
                }
                Some((sock, Idle::Tunnel)) if self.eviction.search.silent_tunnel.is_none() => {
                    let found = self.silent_tunnel(reactor, sock).is_some();
                    self.eviction.search.silent_tunnel = found.then_some(sock);
                }
                Some((sock, Idle::Client(down))) => {
                    let Some(quiet) = quiet_span(&self.settings, reactor, sock, down) else {
                        continue;
                    };
                    let requests = down.requests.min(QUIET_REQUESTS_MAX);
                    let is_better = least.is_none_or(|(fewest, longest, _)| {
                        requests < fewest || requests == fewest && quiet > longest
                    });
                    if is_better && down.requests <= requests_max {
                        least = Some((requests, quiet, sock));
                        if requests == 1 {
                            break;
                        }
                    }
                }
                Some((_, Idle::Server | Idle::Tunnel)) | None => {}
            }
        }
        let Some((_, _, sock)) = least else {
            // The slots that were not examined may contain an idle client.
            if self.eviction.search.slots < used {
                return Room::Soon;
            }
            self.eviction.search.slots = 0;
            return if self.evict_silent_tunnel(reactor) { Room::Made } else { Room::None };
        };
        self.eviction.search.slots = 0;
        self.accounts.counters.evicted_idle.add(1);
        self.drop_client(reactor, sock);
        reactor.close_at_once(sock);
        Room::Made
    }
}

/// How long an idle client has been quiet, unless its requests protect it or a part of its response was not sent yet.
fn quiet_span<R: Reactor>(
    settings: &Settings,
    reactor: &R,
    sock: SockId,
    down: &Downstream,
) -> Option<Span> {
    let timeouts = &settings.of(down.era()).listener(down.listener).timeouts;
    let wait = if down.has_started_head() { timeouts.head } else { timeouts.idle };
    let quiet = wait.saturating_sub(reactor.deadline(sock).since(reactor.now()));
    let requests = down.requests.min(QUIET_REQUESTS_MAX);
    let protected = (QUIET_UNIT * (requests - 1).pow(2)).min(QUIET_MAX);
    (quiet > protected && reactor.output_pending(sock) == 0).then_some(quiet)
}
