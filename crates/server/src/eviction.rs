//! Makes room for a new connection when slots or descriptors run short.
//!
//! A slot is a connection that the reactor may hold, a closing one included. Clients are accepted only while
//! `SERVER_SLOTS_MIN` slots, or one in `SERVER_SLOTS_DIVISOR`, are left for connections to servers. When a
//! client waits in the backlog and there is no such room, or a request needs a connection to its server and
//! no slot is free, the connection whose loss costs least is closed:
//!
//! 1. an idle connection to a server, of the pool and the server with the most of them; for a client only if
//!    connections to servers occupy more than the slots left for them;
//! 2. a connection that was closed before and waits for its peer to close too, if one slot in
//!    `LINGERING_DIVISOR` is occupied by such connections;
//! 3. the client that has been connected longest without sending a byte;
//! 4. the client whose first request, PROXY header or TLS handshake has been incomplete longest;
//! 5. any connection that waits for its peer to close too;
//! 6. an idle client (all its responses are sent, and the next request is not complete) that has sent one
//!    request;
//! 7. an idle client that has sent more requests, if it has been quiet for `RETURNING_QUIET_MIN`.
//!
//! In: clients in the backlog, requests that need a connection. Out: closed connections, and a counter of each
//! class. Never: closes a connection that has a request or a response in progress; closes anything for a client
//! that does not exist; closes a client in the turn that accepted it, because its request may be in the
//! kernel already: the other clients wait in the backlog for the next turn.
//! Limits: one search looks at up to `SCAN_SLOTS_MAX` slots and `POOLS_LOOKED_AT_MAX` pools; one accept makes
//! up to `EVICTIONS_PER_ACCEPT_MAX` evictions.
//! If nothing can be closed, accepting pauses, and a request waits in the queue of its pool (dispatch.rs).

use tidegate_base::Span;
use tidegate_reactor::{Reactor, Room, Shortage, SockId};

use crate::connection::Idle;
use crate::worker::Worker;

/// One slot in this many is left for connections to servers.
const SERVER_SLOTS_DIVISOR: usize = 16;
/// At least this many slots are left for connections to servers, but never more than half of all slots.
const SERVER_SLOTS_MIN: usize = 4;
/// One slot in this many may be occupied by closed connections that wait for their peers before clients
/// without a request are closed.
const LINGERING_DIVISOR: usize = 16;
/// How long a client that has sent several requests must have been quiet before it is closed for another
/// connection. A client that asks more often keeps its connection through any flood.
const RETURNING_QUIET_MIN: Span = Span::from_secs(1);
/// How many slots one search looks at. The bound keeps the cost of a new connection constant, also when
/// the table is full.
const SCAN_SLOTS_MAX: usize = 256;
/// How many pools one search looks at.
const POOLS_LOOKED_AT_MAX: usize = 64;
/// Connections that are closed for one accept at most. More than one is needed only after connections to
/// servers ended, whose slots are left for other connections to servers.
const EVICTIONS_PER_ACCEPT_MAX: usize = 4;

/// What the search for idle connections remembers between two calls.
#[derive(Default)]
pub(crate) struct Search {
    /// The pool where the next search begins.
    pool: usize,
    /// Slots looked at since the last idle client was found.
    slots: usize,
}

/// The connection that needs room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Newcomer {
    Client,
    Server,
}

impl Worker {
    /// The number of slots that are left for connections to servers.
    fn server_slots(&self) -> usize {
        let slots = self.slots_max();
        (slots / SERVER_SLOTS_DIVISOR).max(SERVER_SLOTS_MIN.min(slots / 2))
    }

    /// Whether another client may be accepted: a slot is free besides those left for connections to servers.
    pub(crate) fn has_room_for_client<R: Reactor>(&self, reactor: &R) -> bool {
        let left = self.server_slots().saturating_sub(self.conns.upstream_count());
        reactor.sock_count() + left < self.slots_max()
    }

    /// Closes connections for a client that waits in the backlog.
    pub(crate) fn make_room_for_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        shortage: Shortage,
    ) -> Room {
        for _ in 0..EVICTIONS_PER_ACCEPT_MAX {
            match self.evict(reactor, Newcomer::Client) {
                Room::Made if shortage != Shortage::Slots => return Room::Made,
                Room::Made if self.has_room_for_client(reactor) => return Room::Made,
                Room::Made => {}
                Room::NextTurn => return Room::NextTurn,
                Room::None => return Room::None,
            }
        }
        Room::NextTurn
    }

    /// Closes a connection so that one to a server can be opened. Returns whether it did.
    pub(crate) fn make_room_for_server<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        self.evict(reactor, Newcomer::Server) == Room::Made
    }

    /// Closes the connection whose loss costs least.
    fn evict<R: Reactor>(&mut self, reactor: &mut R, newcomer: Newcomer) -> Room {
        let takes_servers =
            newcomer == Newcomer::Server || self.conns.upstream_count() > self.server_slots();
        if takes_servers && self.evict_idle_server(reactor) {
            return Room::Made;
        }
        if reactor.free_lingering(self.slots_max() / LINGERING_DIVISOR) {
            self.accounts.counters.evicted_lingering.add(1);
            return Room::Made;
        }
        if let Some(sock) = self.conns.oldest_silent() {
            if newcomer == Newcomer::Client && self.conns.silent_are_fresh() {
                return Room::NextTurn;
            }
            self.accounts.counters.evicted_silent.add(1);
            self.reset_client(reactor, sock);
            return Room::Made;
        }
        if let Some(sock) = self.conns.oldest_unfinished() {
            self.accounts.counters.evicted_unfinished.add(1);
            self.reset_client(reactor, sock);
            return Room::Made;
        }
        if reactor.free_lingering(0) {
            self.accounts.counters.evicted_lingering.add(1);
            return Room::Made;
        }
        self.evict_idle_client(reactor, takes_servers)
    }

    /// Closes the idle server connection that has been idle longest, of the pool with the most.
    fn evict_idle_server<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        let count = self.pools.len();
        let looked_at =
            (0..count.min(POOLS_LOOKED_AT_MAX)).map(|at| (self.search.pool + at) % count);
        let Some(most) = looked_at.max_by_key(|pool| self.pools[*pool].idle.len()) else {
            return false;
        };
        let Some(sock) = self.pools[most].idle.shed() else {
            self.search.pool = (self.search.pool + POOLS_LOOKED_AT_MAX) % count;
            return false;
        };
        self.accounts.counters.evicted_upstream.add(1);
        self.drop_upstream(sock);
        reactor.close_at_once(sock);
        true
    }

    /// Closes a client that may send a large part of a head but no complete request. A reset frees the memory
    /// of the kernel, too.
    fn reset_client<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        self.drop_downstream(reactor, sock);
        reactor.abort(sock);
    }

    /// Closes an idle client: the next one that has sent a single request, or else the one that has been quiet
    /// longest of those in sight. On the way also an idle server connection that is kept for one client, if
    /// `takes_servers`.
    fn evict_idle_client<R: Reactor>(&mut self, reactor: &mut R, takes_servers: bool) -> Room {
        let now = reactor.now();
        let used = self.conns.slots_used();
        let mut quietest: Option<(Span, SockId)> = None;
        for _ in 0..used.min(SCAN_SLOTS_MAX) {
            self.search.slots += 1;
            match self.conns.look_at_next() {
                Some((sock, Idle::Server)) if takes_servers => {
                    self.accounts.counters.evicted_upstream.add(1);
                    self.take_from_idle(sock, now);
                    self.drop_upstream(sock);
                    reactor.close_at_once(sock);
                    return Room::Made;
                }
                Some((sock, Idle::Client(down))) if reactor.output_pending(sock) == 0 => {
                    let listener = &self.snapshot.config.listeners[usize::from(down.listener)];
                    let timeouts = &listener.timeouts;
                    let wait = if down.head_started { timeouts.head } else { timeouts.idle };
                    let quiet = wait.saturating_sub(reactor.deadline(sock).since(now));
                    let returns = down.requests > 1;
                    let least = if returns { RETURNING_QUIET_MIN } else { Span::from_nanos(1) };
                    if quiet >= least && quietest.is_none_or(|(most, _)| quiet > most) {
                        quietest = Some((quiet, sock));
                    }
                    if quiet >= least && !returns {
                        quietest = Some((quiet, sock));
                        break;
                    }
                }
                Some((_, Idle::Client(_) | Idle::Server)) | None => {}
            }
        }
        let Some((_, sock)) = quietest else {
            // The slots that were not looked at may contain an idle client.
            let is_all = self.search.slots >= used;
            self.search.slots = if is_all { 0 } else { self.search.slots };
            return if is_all { Room::None } else { Room::NextTurn };
        };
        self.search.slots = 0;
        self.accounts.counters.evicted_idle.add(1);
        self.drop_downstream(reactor, sock);
        reactor.close_at_once(sock);
        Room::Made
    }
}
