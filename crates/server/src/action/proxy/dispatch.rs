//! Finds a server for a proxied request: pick a server, wait in the queue, connect or reuse a connection, retry.
//! In: requests without a server; failures of attempts; servers that become free. Out: the request sent over a
//! connection, or an error response.
//! Never: reads a response (response.rs).
//! Limits: the pool's settings bound its queue and the attempts.
//! Invariant: each `note_start` for a server is followed by exactly one `note_end`.

use tidegate_base::{Id, Moment, Span};
use tidegate_config::model::{Pool, ServerTimeouts, Unretriable};
use tidegate_gate::access::{Cause, Phase};
use tidegate_gate::balance::Pick;
use tidegate_gate::eject::is_failure;
use tidegate_gate::retry::{self, FailedAttempt, FailurePoint};
use tidegate_gate::shared_connections::{Demand, SharedChoice};
use tidegate_reactor::{Reactor, Shortage, SockId};

use crate::action::proxy::Failure;
use crate::action::proxy::attempts::Attempt;
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::action::proxy::reuse::{Proof, Reused};
use crate::carrier::output::check_span;
use crate::connection::{ServerCarrier, Upstream};
use crate::log;
use crate::record::CLIENT_LEFT;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::settings::Era;
use crate::timers::WorkerTimer;
use crate::worker::{Work, Worker, WorkerPool};

/// After this many attempts, a shortage that appears during a connect fails the request.
const SHORTAGE_ATTEMPTS_MAX: u32 = 4;

/// A connection for a request.
enum Found {
    /// An idle connection that carried a request before.
    Idle(Reused),
    /// A connection that is being opened.
    New(SockId),
    /// A connection that other requests may use at the same time.
    Shared(SockId),
}

impl Worker {
    /// Picks a server for the exchange, or puts the exchange into the pool's queue. If every server was tried, the
    /// exchange pauses. If no server is available at all, it fails with `or_else`.
    pub(crate) fn dispatch<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        or_else: Failure,
    ) {
        self.ask_for_server(reactor, id);
        let Some(exchange) = self.exchanges.find(id) else { return };
        debug_assert_eq!(exchange.stage, Stage::Queued, "a request that has a server");
        debug_assert!(exchange.attempt.up.is_none(), "a request that has a connection");
        let pool_index = exchange.pool;
        let is_new = exchange.is_new();
        if is_new && self.pools[usize::from(pool_index)].must_serve_queue(reactor.now()) {
            self.serve_queue(reactor, pool_index);
        }
        let kept = self.kept_server(id, reactor.now());
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let was_tried = !exchange.attempts.tried().is_empty();
        let pool = &mut self.pools[usize::from(pool_index)];
        // A new exchange may take a free server: if a waiting exchange could use that server, it would have it already. A
        // retry may have arrived before or after each of the waiting exchanges, so it goes through the queue, which is in
        // order of arrival.
        let pick = match is_new || pool.queue.is_empty() {
            true => match kept {
                Some(server) => Pick::Server(server),
                None => {
                    let now = reactor.now();
                    pool.state.pick(
                        now,
                        &mut self.prng,
                        exchange.facts.key_hash,
                        exchange.attempts.tried(),
                    )
                }
            },
            false if pool.state.may_wait(exchange.attempts.tried()) => Pick::Full,
            false => Pick::None,
        };
        match pick {
            Pick::Server(server) => {
                // The exchanges that wait for room for a connection arrived before this one.
                let waits = pool.is_short && !pool.queue.is_empty();
                let attached = match waits {
                    false => self.attach(reactor, id, server),
                    true => Err(Shortage::Slots),
                };
                if let Err(shortage) = attached {
                    self.accounts.counters.slot_waits.add(1);
                    self.enqueue(reactor, id, SHORTAGE);
                    self.note_short_pool(reactor, pool_index, shortage);
                }
            }
            Pick::Full => {
                self.enqueue(reactor, id, QUEUE_FULL);
                self.note_avoidance(reactor, pool_index);
            }
            Pick::None if was_tried => self.pause(reactor, id),
            Pick::None => {
                let to = exchange.requester;
                self.blame(to, Cause::Server, or_else.text);
                self.fail(reactor, id, or_else);
            }
        }
    }

    /// Makes the exchange wait before the servers that failed are tried again. A server that restarts refuses
    /// connections for a moment.
    fn pause<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        exchange.stage = Stage::Paused;
        exchange.attempts.forget_tried();
        let (era, pool, to) = (exchange.era, exchange.pool, exchange.requester);
        self.leave_queue_if_gone(reactor, id);
        // The client may have disconnected.
        if self.exchanges.find(id).is_none() {
            return;
        }
        self.accounts.counters.retry_pauses.add(1);
        let settings = self.settings.of(era).pool(pool);
        let pause = settings.retry_pause.min(settings.timeouts.connect);
        self.set_action_deadline(reactor, to, reactor.now().after(pause));
    }

    /// Puts the exchange into the pool's queue, at the place of its arrival. If the queue is full, the exchange
    /// fails with `or_else`, after `PERMIT_SPAN` if another worker may have a permit for it.
    fn enqueue<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, or_else: Failure) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let (era, pool_index, to) = (exchange.era, exchange.pool, exchange.requester);
        exchange.stage = Stage::Queued;
        self.note_phase(to, Phase::Queue);
        self.note_pool(to, pool_index);
        self.leave_queue_if_gone(reactor, id);
        // The client may have disconnected.
        let Some(exchange) = self.exchanges.find(id) else { return };
        let is_new = exchange.is_new();
        let is_empty = self.pools[usize::from(pool_index)].queue.is_empty();
        let wait = self.wait_in_queue(reactor, (era, pool_index), is_empty);
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let pool = &mut self.pools[usize::from(pool_index)];
        let has_place = match is_new {
            true => pool.queue.push(id, exchange.arrival),
            false => pool.queue.put_back(id, exchange.arrival),
        };
        let length_max = pool.queue.length_max() + BEYOND_QUEUE_MAX;
        exchange.exceeds_queue = !has_place
            && pool.permits.is_shared()
            && !pool.is_short
            && pool.queue.len() < length_max
            && pool.queue.put_back(id, exchange.arrival);
        let exceeds_queue = exchange.exceeds_queue;
        if !has_place && !exceeds_queue {
            self.accounts.counters.queue_refusals.add(1);
            return self.fail(reactor, id, or_else);
        }
        if !is_new || pool.permits.is_shared() {
            // The exchange may be able to use a server that is free now, or needs a permit of another worker.
            self.note_unserved(pool_index);
        }
        self.note_queue_length(pool_index);
        self.accounts.counters.queued.add(1);
        let wait = match exceeds_queue {
            true => wait.min(PERMIT_SPAN),
            false => {
                self.note_standing((era, pool_index), wait);
                wait
            }
        };
        self.set_action_deadline(reactor, to, reactor.now().after(wait));
    }

    /// How long a request may wait that joins the queue of a pool now. `is_empty`: no other request waits.
    pub(super) fn wait_in_queue<R: Reactor>(
        &mut self,
        reactor: &R,
        (era, pool_index): (Era, u16),
        is_empty: bool,
    ) -> Span {
        let timeouts = self.settings.of(era).pool(pool_index).timeouts;
        let times = (timeouts.queue, timeouts.queue_standing);
        let pool = &mut self.pools[usize::from(pool_index)];
        pool.standing.wait_max(is_empty, reactor.now(), times)
    }

    /// Counts a request that may wait for `wait`, if that is less than usual.
    pub(super) fn note_standing(&self, (era, pool_index): (Era, u16), wait: Span) {
        let usual = self.settings.of(era).pool(pool_index).timeouts.queue;
        self.accounts.counters.queue_standing.add(u64::from(wait < usual));
    }

    /// Counts how many exchanges wait for a server of a pool.
    pub(crate) fn note_queue_length(&self, pool_index: u16) {
        if self.recorder.counts()
            && let Some(traffic) = self.settings.newest().counted.pool(pool_index)
        {
            traffic.note_queue(self.pools[usize::from(pool_index)].queue.len());
        }
    }

    /// No other worker has had a permit for an exchange beyond the end of the queue. It has a place now if others have left
    /// the queue, and fails otherwise.
    fn permit_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let (era, pool_index, to) = (exchange.era, exchange.pool, exchange.requester);
        let queue = &self.pools[usize::from(pool_index)].queue;
        if queue.len() <= queue.length_max() {
            exchange.exceeds_queue = false;
            let is_alone = queue.len() <= 1;
            let wait = self.wait_in_queue(reactor, (era, pool_index), is_alone);
            self.note_standing((era, pool_index), wait);
            return self.set_action_deadline(reactor, to, reactor.now().after(wait));
        }
        self.accounts.counters.queue_refusals.add(1);
        self.leave_queues(id);
        self.fail(reactor, id, QUEUE_FULL);
    }

    /// Calls `leave_queue` if the client has already ended its direction, for example during its previous request or while
    /// the body of this request arrived. The exchange may have ended when this function returns.
    pub(crate) fn leave_queue_if_gone<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let to = exchange.requester;
        if self.has_client_finished(reactor, to) {
            self.leave_queue(reactor, id);
        }
    }

    /// Called when the client has ended its direction of the connection: closes the connection if its request
    /// waits for a server, in the queue or in a pause, or for the verification of its password. The client has probably left,
    /// so the work of a server, or of the threads that verify passwords, would be wasted.
    pub(crate) fn leave_queue<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let pool = self.settings.of(exchange.era).pool(exchange.pool);
        let waits = matches!(exchange.stage, Stage::Authorizing | Stage::Queued | Stage::Paused);
        if !waits || pool.queue_half_closed {
            return;
        }
        let (to, is_tcp) = (exchange.requester, exchange.facts.is_tcp);
        if !is_tcp || self.has_left_silently(reactor, to.sock) {
            self.note_queue_departure(id);
            self.accounts.counters.client_aborts.add(1);
            self.abandon_client(reactor, to, Cause::Client, CLIENT_LEFT);
        }
    }

    /// Counts the exchange if it waits in the queue and its client is leaving.
    pub(in crate::action) fn note_queue_departure(&mut self, id: Id<Exchange>) {
        if self.exchanges.get(id).is_some_and(|exchange| exchange.stage == Stage::Queued) {
            self.accounts.counters.queue_departures.add(1);
        }
    }

    /// Ends the use of a server by an exchange. A waiting exchange may use the server next.
    pub(crate) fn release_server(&mut self, pool: u16, server: u16) {
        self.pools[usize::from(pool)].state.note_end(usize::from(server));
        self.note_unserved(pool);
    }

    /// Adds the pool's queue to the work that is done before the current call of the handler returns.
    pub(crate) fn note_unserved(&mut self, pool_index: u16) {
        let pool = &mut self.pools[usize::from(pool_index)];
        if !pool.unserved && (!pool.queue.is_empty() || pool.permits.is_requested()) {
            pool.unserved = true;
            self.work.push(Work::ServeQueue(pool_index));
        }
    }

    /// Assigns servers to the queued exchanges of the pool in order of arrival, as long as a server has a free
    /// connection. An exchange that has already tried every free server keeps its place and does not block
    /// the later ones. Then exchanges permits with other workers.
    pub(crate) fn serve_queue<R: Reactor>(&mut self, reactor: &mut R, pool_index: u16) {
        self.assign_servers(reactor, pool_index);
        self.note_avoidance(reactor, pool_index);
        self.unmark();
        self.settle_permits(reactor, pool_index);
    }

    /// Assigns servers to the queued exchanges of the pool.
    fn assign_servers<R: Reactor>(&mut self, reactor: &mut R, pool_index: u16) {
        let pool = &mut self.pools[usize::from(pool_index)];
        pool.unserved = false;
        // Most exchanges have tried no server yet. Whether there is room for them is looked up once for all of them, because a
        // server that is avoided may be open all the time.
        let mut has_room_for_first = None;
        let mut next = pool.queue.front();
        while let Some(id) = next {
            let pool = &mut self.pools[usize::from(pool_index)];
            if !pool.state.has_room() {
                return;
            }
            next = pool.queue.after(id);
            let Some(exchange) = self.exchanges.get(id) else {
                pool.queue.remove(id);
                self.note_queue_length(pool_index);
                continue;
            };
            let (tried, now) = (exchange.attempts.tried(), reactor.now());
            let has_room = match tried.is_empty() {
                true => {
                    *has_room_for_first.get_or_insert_with(|| pool.state.has_room_for(tried, now))
                }
                false => pool.state.has_room_for(tried, now),
            };
            let kept = self.kept_server(id, reactor.now());
            if !has_room && kept.is_none() {
                continue;
            }
            let pool = &mut self.pools[usize::from(pool_index)];
            let Some(exchange) = self.exchanges.get(id) else { continue };
            let now = reactor.now();
            let pick = match kept {
                Some(server) => Pick::Server(server),
                None => pool.state.pick(
                    now,
                    &mut self.prng,
                    exchange.facts.key_hash,
                    exchange.attempts.tried(),
                ),
            };
            let Pick::Server(server) = pick else { continue };
            has_room_for_first = None;
            if pool.permits.give_in_turn(&mut pool.state, server) {
                next = Some(id);
                continue;
            }
            self.mark_exchange(id);
            if let Err(shortage) = self.attach(reactor, id, server) {
                return self.note_short_pool(reactor, pool_index, shortage);
            }
            let pool = &mut self.pools[usize::from(pool_index)];
            if core::mem::take(&mut pool.unserved) {
                // The attempt has failed already, and the exchange is back at its place.
                next = pool.queue.front();
            }
        }
    }

    /// While exchanges wait in the queue of a pool, sets the time at which a server that has failed is no longer avoided.
    fn note_avoidance<R: Reactor>(&mut self, reactor: &mut R, pool_index: u16) {
        let pool = &mut self.pools[usize::from(pool_index)];
        pool.avoided_until = match pool.queue.is_empty() {
            true => Moment::NEVER,
            false => pool.state.avoidance_end(reactor.now()),
        };
        if pool.avoided_until < self.avoided_until {
            self.avoided_until = pool.avoided_until;
            WorkerTimer::Avoidance.set(reactor, self.avoided_until);
        }
    }

    /// `WorkerTimer::Avoidance` has expired: servers that have failed may get the requests that wait.
    pub(crate) fn avoidance_ended<R: Reactor>(&mut self, reactor: &mut R) {
        let now = reactor.now();
        self.avoided_until = Moment::NEVER;
        for pool_index in 0..self.pools.len() as u16 {
            match self.pools[usize::from(pool_index)].avoided_until <= now {
                true => self.serve_queue(reactor, pool_index),
                false => self.note_avoidance(reactor, pool_index),
            }
        }
    }

    /// Whether no exchange that arrived before `id` waits and could use `server`. Examined in debug builds for
    /// each attempt, so that every simulation checks it.
    fn is_next_for(&self, id: Id<Exchange>, server: usize, now: Moment) -> bool {
        let Some(exchange) = self.exchanges.get(id) else { return true };
        let pool = &self.pools[usize::from(exchange.pool)];
        let waiting = core::iter::successors(pool.queue.front(), |&other| pool.queue.after(other));
        let mut earlier = waiting
            .filter_map(|other| self.exchanges.get(other))
            .take_while(|other| other.arrival < exchange.arrival);
        !earlier.any(|other| pool.state.has_room_at(server, other.attempts.tried(), now))
    }

    /// Sends the exchange's request to `server`, over an idle connection if that is safe, and removes the
    /// exchange from the queue.
    ///
    /// # Errors
    /// There is no room for a connection to the server. Nothing has changed.
    pub(super) fn attach<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        server: usize,
    ) -> Result<(), Shortage> {
        debug_assert!(
            self.is_next_for(id, server, reactor.now()),
            "a request overtook an earlier one"
        );
        let Some(exchange) = self.exchanges.get_mut(id) else { return Ok(()) };
        let pool_index = exchange.pool;
        let pool = &mut self.pools[usize::from(pool_index)];
        pool.state.note_start(server);
        let found = self.find_connection(reactor, id, server);
        if let Err(shortage) = found
            && shortage != Shortage::Ports
        {
            self.pools[usize::from(pool_index)].state.note_end(server);
            return Err(shortage);
        }
        if self.pools[usize::from(pool_index)].queue.remove(id) {
            self.note_queue_length(pool_index);
        }
        let Some(exchange) = self.exchanges.get_mut(id) else { return Ok(()) };
        let attempts = exchange.attempts.begin(server);
        if attempts == 1 {
            self.pools[usize::from(pool_index)].budget.note_request(reactor.now());
        }
        let server = server as u16;
        exchange.attempt = Attempt::with(server, reactor.now());
        let to = exchange.requester;
        let is_reused = matches!(found, Ok(Found::Idle(_) | Found::Shared(_)));
        self.note_attempt(to, (pool_index, server), attempts, is_reused, reactor.now());
        self.note_sticky_sent(id, usize::from(server), reactor.now());
        match found {
            Ok(found) => self.use_connection(reactor, id, found),
            // Ports run out for one address only, so another server is tried.
            Err(_) => self.attempt_failed(reactor, id, FailurePoint::Connect, NO_CONNECT),
        }
        Ok(())
    }

    /// Finds a connection to `server` for the exchange, or begins a connect.
    fn find_connection<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        server: usize,
    ) -> Result<Found, Shortage> {
        let Some(exchange) = self.exchanges.get(id) else { return Err(Shortage::Slots) };
        let is_tcp = exchange.facts.is_tcp;
        let (to, pool) = (exchange.requester, exchange.pool);
        let needs_fresh = exchange.attempts.needs_fresh() || is_tcp;
        let needs_window = exchange.facts.upgrades || exchange.request.has_body();
        let demand = Demand {
            since: exchange.attempts.lost_at(),
            now: reactor.now(),
            has_body: needs_window,
        };
        let needs_http1 = exchange.attempts.needs_http1();
        let shares = self.settings.newest().pool(pool).may_speak_http2();
        if is_tcp && shares {
            // A reload changed the pool while the connection waited: no server of it can be used.
            return Err(Shortage::Ports);
        }
        if shares && !needs_http1 {
            match self.choose_shared(reactor, pool, server, &demand) {
                SharedChoice::On(sock) => return Ok(Found::Shared(sock)),
                SharedChoice::Full => return Err(Shortage::Slots),
                // The server may have chosen HTTP/1.1 for connections that are idle now.
                SharedChoice::New => {}
            }
        }
        let need = self.proof_needed(id);
        let idle = match needs_fresh {
            true => None,
            false => self.take_idle(reactor, to, pool, server, need),
        };
        let idle = match idle {
            Some(idle) => Some(idle),
            None => match self.connect_within_limit(reactor, (pool, needs_http1), server, to) {
                Err(shortage) if !needs_fresh && need == Proof::Age => {
                    // If there is no room for a new connection, an idle connection that is not proven is better than no connection.
                    let idle = self.take_idle(reactor, to, pool, server, Proof::None);
                    Some(idle.ok_or(shortage)?)
                }
                begun => return Ok(Found::New(begun?)),
            },
        };
        idle.map(Found::Idle).ok_or(Shortage::Slots)
    }

    /// Sends the exchange's request over a connection.
    fn use_connection<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, found: Found) {
        let (sock, idle_age) = match found {
            Found::Idle(idle) => (idle.sock, idle.age),
            Found::New(sock) | Found::Shared(sock) => (sock, None),
        };
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, authenticates) = (exchange.requester, exchange.facts.authenticates);
        let (is_done, is_tcp) = (exchange.request.is_done(), exchange.facts.is_tcp);
        self.mark_server(sock, to);
        let Some(conn) = self.conns.upstream(sock) else {
            // Cancels the exchange.
            return self.note_bug(reactor, to.sock);
        };
        let is_reused = conn.requests > 0;
        conn.requests = conn.requests.saturating_add(1);
        let up = match conn.carrier {
            ServerCarrier::Http1(_) => {
                conn.exchange = id;
                conn.authenticated |= authenticates;
                self.conns.note_attached();
                Some(Responder::connection(sock))
            }
            ServerCarrier::Http2(_) => self.attach_stream(sock, id),
        };
        // The slab of streams has as many places as the slab of exchanges, so it is never full here.
        let Some(up) = up else { return self.note_bug(reactor, to.sock) };
        let is_connecting = match up.is_stream() {
            true => self.is_http2_connecting(sock),
            false => !is_reused,
        };
        self.accounts.counters.upstream_reuses.add(u64::from(is_reused));
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        exchange.attempt.use_connection(up, is_reused, idle_age);
        exchange.stage = if is_connecting { Stage::Connecting } else { Stage::ExpectResponse };
        if !is_tcp {
            self.send_request(reactor, id);
            // An HTTP/2 connection may have refused the request. Then the exchange has ended, or has another connection.
            if self.exchanges.find(id).is_none_or(|exchange| exchange.attempt.up != up) {
                return;
            }
        }
        if !is_done {
            // The rest of the request body may be waiting for the connection.
            self.resume_request(to);
        }
        if authenticates && up.is_stream() {
            self.note_authenticated(reactor, up);
        }
        self.set_server_receiving(reactor, up, true);
        self.arm_upstream(reactor, id);
    }

    /// The proof that an idle connection needs before the exchange may use it.
    fn proof_needed(&self, id: Id<Exchange>) -> Proof {
        let Some(exchange) = self.exchanges.get(id) else { return Proof::None };
        let pool = self.settings.of(exchange.era).pool(exchange.pool);
        let lost = FailedAttempt {
            point: FailurePoint::ReusedReset,
            idempotent: exchange.facts.is_idempotent,
            body_sent: true,
            body_replayable: exchange.request.will_be_replayable(),
            broken_before: exchange.attempts.is_broken(),
            attempts: exchange.attempts.count() + 1,
            retries_max: pool.retries,
            retry_on: &pool.retry_on,
        };
        match pool.reuse.unretriable {
            Unretriable::Always => Proof::None,
            _ if retry::may_retry(&lost) => Proof::None,
            Unretriable::Proven => Proof::Age,
            Unretriable::Never => Proof::Impossible,
        }
    }

    /// As `connect`, after closing idle connections to `server` that would exceed its limit.
    fn connect_within_limit<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (pool, needs_http1): (u16, bool),
        server: usize,
        to: Requester,
    ) -> Result<SockId, Shortage> {
        self.trim_idle(reactor, pool, server);
        self.connect(reactor, (pool, needs_http1), server, to)
    }

    /// Begins a connect to `server` on behalf of the client `to`. Makes room for the connection if there is no room. `needs_http1`: the
    /// connection must not use HTTP/2.
    fn connect<R: Reactor>(
        &mut self,
        reactor: &mut R,
        pool: (u16, bool),
        server: usize,
        to: Requester,
    ) -> Result<SockId, Shortage> {
        let full = !self.has_room_for_server(reactor);
        if full && !self.make_room_for_server(reactor) {
            return Err(Shortage::Slots);
        }
        match self.connect_once(reactor, pool, server, to) {
            Err(shortage)
                if shortage != Shortage::Ports
                    && !full
                    && to != Requester::NONE
                    && self.make_room_for_server(reactor) =>
            {
                self.connect_once(reactor, pool, server, to)
            }
            begun => begun,
        }
    }

    fn connect_once<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (pool, needs_http1): (u16, bool),
        server: usize,
        to: Requester,
    ) -> Result<SockId, Shortage> {
        let counters = &self.accounts.counters;
        counters.upstream_connects.add(1);
        let addresses = &self.addresses[usize::from(pool)][server];
        let preferred = self.pools[usize::from(pool)].preferred_address[server];
        // A server without an address is never chosen.
        let Some(address) = addresses.get(preferred % addresses.len().max(1)) else {
            return Err(Shortage::Slots);
        };
        let settings = self.settings.newest().pool(pool);
        let begun = match &settings.tls {
            None => reactor.connect(address),
            Some(_) => {
                let server = server as u16;
                let key = tidegate_secure::ServerKey { pool, server, http1_only: needs_http1 };
                reactor.connect_secured(address, key)
            }
        };
        let proxy_protocol = settings.proxy_protocol;
        let up = begun.inspect_err(|_| counters.upstream_connect_failures.add(1))?;
        counters.upstream_now.add(1);
        let generation = self.settings.newest().generation;
        self.conns.insert_upstream(up, Upstream::new(pool, server as u16, generation));
        if settings.may_speak_http2() && !needs_http1 {
            self.begin_http2_server(reactor, up);
        }
        if let Some(version) = proxy_protocol {
            self.send_proxy_header(reactor, up, to.sock, version);
        }
        Ok(up)
    }

    /// The timeouts of an exchange: each timeout that its route does not set is the timeout of its pool.
    pub(super) fn timeouts_of(&self, exchange: &Exchange) -> ServerTimeouts {
        let snapshot = self.settings.of(exchange.era);
        let of_pool = snapshot.pool(exchange.pool).timeouts;
        // The request that `auth` sends to a server is not a request of the route.
        let own = exchange.timeouts.filter(|_| exchange.auth_request.is_none());
        own.map_or(of_pool, |own| own.over(&of_pool))
    }

    /// Sets the deadline of the upstream connection to the timeout of the exchange's stage. While output to the server is
    /// blocked, the deadline is the next check of its progress instead.
    pub(crate) fn arm_upstream<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let timeouts = self.timeouts_of(exchange);
        let up = exchange.attempt.up;
        let wait = match exchange.stage {
            Stage::Authorizing | Stage::Buffering | Stage::Queued | Stage::Paused => return,
            Stage::Connecting => timeouts.connect,
            Stage::ExpectResponse | Stage::ExpectBody | Stage::ExpectRequestEnd
                if self.is_server_behind(reactor, up)
                    || !exchange.request.is_done() && self.is_server_blocked(reactor, up) =>
            {
                check_span(timeouts.body)
            }
            Stage::ExpectResponse if exchange.request.is_done() => timeouts.response_head,
            Stage::ExpectResponse | Stage::ExpectBody | Stage::ExpectRequestEnd => timeouts.body,
            Stage::Tunnel => timeouts.tunnel,
        };
        let at = reactor.now().after(wait);
        self.set_server_deadline(reactor, up, at);
    }

    /// A connect that was begun has failed because this process was short of a resource. The server is not
    /// marked as failed, and no other server is tried, because it would need the same resource. The exchange
    /// waits in the queue. Ports are the exception: they run out for one address only, so another server is
    /// tried.
    pub(crate) fn attempt_hit_shortage<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        shortage: Shortage,
    ) {
        if shortage == Shortage::Ports {
            return self.attempt_failed(reactor, id, FailurePoint::Connect, NO_CONNECT);
        }
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let (pool, server) = (exchange.pool, exchange.attempt.server);
        exchange.attempt.up = Responder::NONE;
        // The server is not to blame.
        exchange.attempts.forget_tried();
        let is_last =
            exchange.attempts.count() >= SHORTAGE_ATTEMPTS_MAX || exchange.mirrored.is_some();
        self.release_server(pool, server);
        if is_last {
            return self.fail(reactor, id, SHORTAGE);
        }
        self.accounts.counters.slot_waits.add(1);
        self.enqueue(reactor, id, SHORTAGE);
        self.note_short_pool(reactor, pool, shortage);
    }

    /// An attempt failed: makes another attempt if that is safe, perhaps after a pause, and otherwise fails the
    /// exchange.
    pub(crate) fn attempt_failed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        point: FailurePoint,
        failure: Failure,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let pool_index = usize::from(exchange.pool);
        let server = usize::from(exchange.attempt.server);
        let pool = &mut self.pools[pool_index];
        if point == FailurePoint::Connect {
            if pool.state.note_connect_failure(server, reactor.now()) {
                let names = &self.settings.newest().names;
                let (pool, server) = names.server(pool_index, server);
                log::warning(format_args!("pool {pool}: server {server}: {}", failure.text));
            }
            if let Some(preferred) = pool.preferred_address.get_mut(server) {
                *preferred = preferred.wrapping_add(1);
            }
        }
        if let (FailurePoint::NotSent | FailurePoint::ReusedReset, Some(age)) =
            (point, exchange.attempt.idle_age())
        {
            pool.idle.note_lost(server, age, reactor.now());
        }
        exchange.attempt.up = Responder::NONE;
        exchange.stage = Stage::Queued;
        exchange.attempts.note_failed(point, reactor.now());
        let ended = (exchange.pool, exchange.attempt.server);
        if matches!(
            point,
            FailurePoint::Connect | FailurePoint::FreshReset | FailurePoint::Malformed
        ) {
            self.note_result(ended, (true, None), reactor.now());
        }
        self.release_server(ended.0, ended.1);
        let workers = self.place_among_workers().1;
        let pool = &self.pools[pool_index];
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let settings = self.settings.of(exchange.era).pool(exchange.pool);
        let may_retry = pool.may_retry(exchange, settings, point, workers, reactor.now());
        if exchange.mirrored.is_none() && may_retry {
            let all_tried = !pool.state.may_wait(exchange.attempts.tried());
            exchange.attempts.prepare_next(point, all_tried);
            match point {
                FailurePoint::NotSent => self.accounts.counters.unsent_requests.add(1),
                FailurePoint::Connect
                | FailurePoint::Refused
                | FailurePoint::ReusedReset
                | FailurePoint::FreshReset
                | FailurePoint::ResponseTimeout
                | FailurePoint::Malformed
                | FailurePoint::InResponse
                | FailurePoint::Status(_) => {
                    self.accounts.counters.retries.add(1);
                    self.pools[pool_index].budget.note_retry(reactor.now());
                }
            }
            self.dispatch(reactor, id, failure);
        } else {
            self.fail(reactor, id, failure);
        }
    }

    /// Sends the request again if `retry-on` of the pool contains the status of the response. Returns whether the response was
    /// dropped. Must be called before any part of the response is relayed.
    pub(super) fn retry_status<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        status: u16,
    ) -> bool {
        let Some(exchange) = self.exchanges.get(id) else { return false };
        let settings = self.settings.of(exchange.era).pool(exchange.pool);
        if settings.retry_on.statuses.is_empty() {
            return false;
        }
        let point = FailurePoint::Status(status);
        let (state, workers) =
            (&self.pools[usize::from(exchange.pool)], self.place_among_workers().1);
        let may_retry = state.may_retry(exchange, settings, point, workers, reactor.now());
        let (pool, up, server) = (exchange.pool, exchange.attempt.up, exchange.attempt.server);
        let (to, upgrades) = (exchange.requester, exchange.facts.upgrades);
        let took = exchange.server_time(reactor.now());
        // A client that has ended its direction could lose its place in a queue (`queue-half-closed`), so it gets this response.
        if !may_retry || upgrades || self.stopping || self.has_client_finished(reactor, to) {
            return false;
        }
        self.note_result((pool, server), (is_failure(status), took), reactor.now());
        self.abandon_server(reactor, up);
        let text = "the server responded with an error";
        self.attempt_failed(reactor, id, point, Failure::new(502, text));
        true
    }

    /// Whether the request would be sent again if the final head of the present response were malformed.
    pub(super) fn may_retry_malformed(&self, exchange: &Exchange, now: Moment) -> bool {
        let settings = self.settings.of(exchange.era).pool(exchange.pool);
        let (pool, workers) =
            (&self.pools[usize::from(exchange.pool)], self.place_among_workers().1);
        pool.may_retry(exchange, settings, FailurePoint::Malformed, workers, now)
    }

    /// The time limit of the exchange has expired: in the queue, in a pause, in a tunnel or while its password is verified.
    pub(in crate::action) fn exchange_due<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        match exchange.stage {
            Stage::Paused => {
                exchange.stage = Stage::Queued;
                return self.dispatch(reactor, id, NO_CONNECT);
            }
            Stage::Tunnel => return self.tunnel_due(reactor, id),
            Stage::Authorizing => return self.fail(reactor, id, NO_PASSWORD_RESULT),
            Stage::Queued if exchange.exceeds_queue => return self.permit_due(reactor, id),
            Stage::Queued => {}
            // The deadline may be an earlier one of the client or of the queue. A body that is expected, and the
            // connection to a server, have their own deadlines.
            Stage::Buffering
            | Stage::Connecting
            | Stage::ExpectResponse
            | Stage::ExpectBody
            | Stage::ExpectRequestEnd => return,
        }
        let to = exchange.requester;
        self.blame(to, Cause::QueueTimeout, QUEUE_TIMEOUT.text);
        self.accounts.counters.queue_refusals.add(1);
        self.leave_queues(id);
        self.fail(reactor, id, QUEUE_TIMEOUT);
    }
}

impl WorkerPool {
    /// Whether an exchange in the queue may be able to use a server that it could not use before.
    fn must_serve_queue(&self, now: Moment) -> bool {
        self.unserved || self.avoided_until <= now
    }

    /// Whether the request of an exchange may be sent again, also by the budget of the pool in one of `workers` workers.
    fn may_retry(
        &self,
        exchange: &Exchange,
        settings: &Pool,
        point: FailurePoint,
        workers: usize,
        now: Moment,
    ) -> bool {
        let is_free = point == FailurePoint::NotSent;
        retry::may_retry(&failed_attempt(exchange, settings, point))
            && (is_free || self.budget.has_room(settings.retry_budget.as_ref(), workers, now))
    }
}

/// The facts about an attempt that has failed.
fn failed_attempt<'a>(
    exchange: &Exchange,
    pool: &'a Pool,
    point: FailurePoint,
) -> FailedAttempt<'a> {
    FailedAttempt {
        point,
        idempotent: exchange.facts.is_idempotent,
        body_sent: exchange.intake.bytes > 0,
        body_replayable: exchange.request.is_replayable(),
        broken_before: exchange.attempts.is_broken(),
        attempts: exchange.attempts.count(),
        retries_max: pool.retries,
        retry_on: &pool.retry_on,
    }
}

pub(crate) const NO_SERVER: Failure = Failure::new(503, "no server is available");
const NO_PASSWORD_RESULT: Failure =
    Failure::new(503, "timed out waiting for the password to be verified");
/// How long a request waits for a permit of another worker if the queue of its worker is full.
const PERMIT_SPAN: Span = Span::from_millis(50);
/// How many requests of a worker and pool wait that way.
const BEYOND_QUEUE_MAX: usize = 256;
const QUEUE_FULL: Failure = Failure::overload("the request queue is full");
const QUEUE_TIMEOUT: Failure = Failure::overload("timed out in the request queue");
/// This process has no slot, descriptor or memory for another connection.
pub(crate) const SHORTAGE: Failure =
    Failure::overload("the proxy has no resources for another connection");
pub(crate) const NO_CONNECT: Failure = Failure::new(502, "could not connect to the server");
