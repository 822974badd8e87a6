//! Sends a proxied request to a server: pick a server, connect or reuse a connection, send, retry, give up.
//! In: requests whose route has the action `proxy`; failures of attempts. Out: the request in the output of
//! an upstream connection, or an error response. Never: reads a response (upstream.rs).
//! Limits: the pool's settings bound its queue and the attempts; one exchange per downstream connection.
//! Invariant: each `note_start` for a server is followed by exactly one `note_end`.

use std::rc::Rc;

use tidegate_base::limits::{REQUEST_BUFFER_BYTES_MAX, TRAILER_BYTES_MAX};
use tidegate_base::prng::hash_bytes;
use tidegate_base::{Id, Moment};
use tidegate_config::model::{HashKey, Proxy, Unretriable};
use tidegate_gate::balance::{Pick, Tried};
use tidegate_gate::chain::client_address;
use tidegate_gate::client_fields::ClientAddressFields;
use tidegate_gate::connection_auth;
use tidegate_gate::forward::{self, ForwardFault, RequestContext};
use tidegate_gate::respond;
use tidegate_gate::retry::{self, FailedAttempt, FailurePoint};
use tidegate_reactor::{Peer, Reactor, Shortage, SockId};
use tidegate_wire::http1::{self, BodyDecoder, HeadDecoder};
use tidegate_wire::message::{BodyLength, FieldName, Method, RequestHead};

use crate::action::proxy::exchange::{Exchange, Framing, REPLAY_BYTES_MAX, Stage};
use crate::action::proxy::reuse::Proof;
use crate::buffers::Input;
use crate::carrier::http1::client::{is_blocked, look_span};
use crate::connection::{DownstreamState, Upstream};
use crate::worker::{Work, Worker};

/// After this many attempts, a shortage that a connect meets after its beginning fails the request.
const SHORTAGE_ATTEMPTS_MAX: u32 = 4;
/// A queued request takes no more of its body once this many bytes are stored.
const QUEUED_BYTES_MAX: usize = REPLAY_BYTES_MAX / 2;
/// The most body bytes that a queued request takes at once. They must fit into `replay`, because there is no
/// upstream connection to send them to.
const QUEUED_PIECE_BYTES_MAX: usize = REPLAY_BYTES_MAX / 8;
/// The most bytes that frame one piece of a body.
const FRAME_BYTES_MAX: usize = 64;
const _: () = assert!(REQUEST_BUFFER_BYTES_MAX <= QUEUED_BYTES_MAX);
const _: () = assert!(
    QUEUED_BYTES_MAX + QUEUED_PIECE_BYTES_MAX + 2 * TRAILER_BYTES_MAX + FRAME_BYTES_MAX
        <= REPLAY_BYTES_MAX
);

/// The error response to a request whose exchange failed.
#[derive(Clone, Copy)]
pub(crate) struct Failure {
    /// The status code.
    pub(crate) status: u16,
    /// The text of the body.
    pub(crate) text: &'static str,
}

impl Worker {
    /// Begins to proxy the request `head`: encodes it for the server, creates its exchange and picks a
    /// server.
    pub(crate) fn begin_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        head: &RequestHead<'_>,
        proxy: &Proxy,
    ) {
        let snapshot = Rc::clone(&self.snapshot);
        let keep_downstream = !self.must_close(sock, head);
        let Some(down) = self.conns.downstream(sock) else { return };
        let listener = &snapshot.config.listeners[usize::from(down.listener)];
        let peer = match down.peer {
            Peer::Tcp(address) => Some(address.ip()),
            Peer::Local => None,
        };
        let pool = &snapshot.config.pools[proxy.pool];
        let reusable = pool.reuse.after_unexpected_body || !forward::has_unexpected_body(head);
        let context = RequestContext {
            peer,
            trusted: peer.is_some_and(|ip| listener.trusted.iter().any(|net| net.contains(ip))),
            client_address_fields: &snapshot.client_address_fields[usize::from(down.listener)],
            scheme: down.scheme,
            client_certificate: down.facts.as_ref().and_then(|facts| facts.certificate()),
            via: &snapshot.config.server.via,
            host: &proxy.host,
            trailers: pool.trailers,
            close: !reusable,
        };
        let mut replay = self.buffers.take();
        if let Err(fault) = forward::encode_upstream_request(&mut replay, head, &context) {
            self.buffers.put(replay);
            return match fault {
                ForwardFault::AnswerHere => self.answer_as_recipient(reactor, sock, head),
                ForwardFault::MaxForwardsInvalid | ForwardFault::Loop => {
                    self.answer_error(reactor, sock, head, fault.status(), fault.text(), false);
                }
            };
        }
        let has_connection = head.has(FieldName::Connection);
        let drops_trailers = !pool.trailers || forward::names_fields(head.fields(), has_connection);
        let request_done = matches!(head.length, BodyLength::None | BodyLength::Length(0));
        let buffers = !request_done && pool.request_buffer_bytes > 0 && !head.expect_continue;
        self.arrivals += 1;
        let exchange = Exchange {
            down: sock,
            up: SockId::NONE,
            stage: if buffers { Stage::Buffering } else { Stage::Queued },
            pool: proxy.pool as u16,
            server: 0,
            listener: down.listener,
            client_version: head.version,
            is_head: matches!(head.method, Method::Head),
            upgrade: forward::forwards_upgrade(head),
            idempotent: head.method.is_idempotent(),
            awaits_continue: head.expect_continue,
            keep_downstream,
            reusable,
            authenticates: connection_auth::request_authenticates(head),
            keep_upstream: false,
            reused: false,
            idle_age: None,
            body_fits: match head.length {
                BodyLength::None => true,
                BodyLength::Length(length) => {
                    let rest = REPLAY_BYTES_MAX.saturating_sub(replay.len() + FRAME_BYTES_MAX);
                    length <= rest as u64
                }
                BodyLength::Streamed | BodyLength::UntilClose => false,
            },
            needs_fresh: false,
            response_started: false,
            response_relayed: false,
            down_finished: false,
            up_finished: false,
            arrival: self.arrivals,
            key_hash: hash_key(&pool.balance, head, peer, listener),
            attempts: 0,
            was_reset: false,
            tried: Tried::default(),
            request_body: BodyDecoder::new(head.length).dropping_trailers(drops_trailers),
            request_framing: match head.length {
                BodyLength::None => Framing::None,
                BodyLength::Length(_) => Framing::Length,
                BodyLength::Streamed | BodyLength::UntilClose => Framing::Chunked,
            },
            request_done,
            body_by: Moment::NEVER,
            request_bytes: 0,
            replay,
            replay_whole: true,
            response_body: BodyDecoder::new(BodyLength::None),
            response_framing: Framing::None,
        };
        match self.exchanges.insert(exchange) {
            Ok(id) => {
                down.state = DownstreamState::Exchange(id);
                self.accounts.counters.exchanges_now.add(1);
                if !buffers {
                    self.dispatch_new(reactor, id);
                }
            }
            Err(exchange) => {
                self.buffers.put(exchange.replay);
                let text = "the proxy is handling too many requests";
                self.answer_error(reactor, sock, head, 503, text, true);
            }
        }
    }

    /// Picks a server for the exchange, or puts the exchange into the pool's queue. If every server was tried, the
    /// exchange pauses. If no server is available at all, it fails with `or_else`.
    pub(crate) fn dispatch<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        or_else: Failure,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let pool_index = exchange.pool;
        let is_new = exchange.is_new();
        if is_new && self.pools[usize::from(pool_index)].unserved {
            self.serve_queue(reactor, pool_index);
        }
        let kept = self.kept_server(id);
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let was_tried = !exchange.tried.is_empty();
        let pool = &mut self.pools[usize::from(pool_index)];
        // No waiting exchange could use a free server now, so a new exchange may. A retry arrived before most
        // waiting exchanges, but maybe after some; the queue decides in order of arrival.
        let pick = match is_new || pool.queue.is_empty() {
            true => match kept {
                Some(server) => Pick::Server(server),
                None => {
                    let now = reactor.now();
                    pool.state.pick(now, &mut self.prng, exchange.key_hash, &exchange.tried)
                }
            },
            false if pool.state.may_wait(&exchange.tried) => Pick::Full,
            false => Pick::None,
        };
        match pick {
            Pick::Server(server) => {
                // Exchanges that wait for room arrived before.
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
                self.enqueue(reactor, id, Failure { status: 503, text: QUEUE_FULL });
            }
            Pick::None if was_tried => self.pause(reactor, id),
            Pick::None => self.fail(reactor, id, or_else),
        }
    }

    /// Makes the exchange wait before the servers that failed are tried again. A server that restarts refuses
    /// connections for a moment.
    fn pause<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        exchange.stage = Stage::Paused;
        exchange.tried = Tried::default();
        let (pool, down) = (usize::from(exchange.pool), exchange.down);
        // A client may have ended its direction while the attempts were made.
        let finished = self.conns.downstream(down).is_some_and(|down| down.finished);
        if finished || reactor.has_hung_up(down) {
            self.leave_queue(reactor, id);
        }
        if self.exchanges.get(id).is_none() {
            return;
        }
        self.accounts.counters.retry_pauses.add(1);
        let settings = &self.snapshot.config.pools[pool];
        let pause = settings.retry_pause.min(settings.timeouts.connect);
        reactor.set_deadline(down, reactor.now().after(pause));
    }

    /// Puts the exchange into the pool's queue, at the place of its arrival. If the queue is full, the exchange
    /// fails with `or_else`.
    fn enqueue<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, or_else: Failure) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let (pool_index, down) = (exchange.pool, exchange.down);
        exchange.stage = Stage::Queued;
        self.leave_queue_if_gone(reactor, id);
        let Some(exchange) = self.exchanges.get(id) else { return };
        let pool = &mut self.pools[usize::from(pool_index)];
        let is_new = exchange.is_new();
        let has_place = match is_new {
            true => pool.queue.push(id, exchange.arrival),
            false => pool.queue.put_back(id, exchange.arrival),
        };
        if !has_place {
            self.accounts.counters.queue_refusals.add(1);
            return self.fail(reactor, id, or_else);
        }
        if !is_new || pool.permits.is_shared() {
            // The exchange may be able to use a server that is free now, or needs a permit of another worker.
            self.note_unserved(pool_index);
        }
        self.accounts.counters.queued.add(1);
        let config = &self.snapshot.config.pools[usize::from(pool_index)];
        reactor.set_deadline(down, reactor.now().after(config.timeouts.queue));
    }

    /// As `leave_queue`, if the client has ended its direction while its previous request was in progress, or
    /// the body of this one arrived.
    pub(crate) fn leave_queue_if_gone<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let down = exchange.down;
        let finished = self.conns.downstream(down).is_some_and(|down| down.finished);
        if finished || reactor.has_hung_up(down) {
            self.leave_queue(reactor, id);
        }
    }

    /// Called when the client has ended its direction of the connection: closes the connection if its request
    /// waits for a server, in the queue or in a pause. The client has probably left, and a server would work in vain.
    pub(crate) fn leave_queue<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let pool = &self.snapshot.config.pools[usize::from(exchange.pool)];
        let waits = matches!(exchange.stage, Stage::Queued | Stage::Paused);
        if waits && !pool.queue_half_closed {
            let down = exchange.down;
            self.note_departure(id);
            self.accounts.counters.client_aborts.add(1);
            self.close_downstream(reactor, down);
        }
    }

    /// Counts the exchange if it waits in the queue and its client is leaving.
    pub(crate) fn note_departure(&mut self, id: Id<Exchange>) {
        if self.exchanges.get(id).is_some_and(|exchange| exchange.stage == Stage::Queued) {
            self.accounts.counters.queue_departures.add(1);
        }
    }

    /// Ends the use of a server by an exchange. A waiting exchange may use the server next.
    pub(crate) fn release_server(&mut self, pool: u16, server: u16) {
        self.pools[usize::from(pool)].state.note_end(usize::from(server));
        self.note_unserved(pool);
    }

    /// Makes the current handler call serve the pool's queue.
    fn note_unserved(&mut self, pool_index: u16) {
        let pool = &mut self.pools[usize::from(pool_index)];
        if !pool.unserved && (!pool.queue.is_empty() || pool.permits.is_asked()) {
            pool.unserved = true;
            self.work.push(Work::ServeQueue(pool_index));
        }
    }

    /// Assigns servers to the queued exchanges of the pool in order of arrival, as long as a server has a free
    /// connection. An exchange that was sent to every free server already keeps its place and does not block
    /// the later ones. Then exchanges permits with other workers.
    pub(crate) fn serve_queue<R: Reactor>(&mut self, reactor: &mut R, pool_index: u16) {
        self.assign_servers(reactor, pool_index);
        self.settle_permits(reactor, pool_index);
    }

    /// Assigns servers to the queued exchanges of the pool.
    fn assign_servers<R: Reactor>(&mut self, reactor: &mut R, pool_index: u16) {
        let pool = &mut self.pools[usize::from(pool_index)];
        pool.unserved = false;
        let mut next = pool.queue.front();
        while let Some(id) = next {
            let pool = &mut self.pools[usize::from(pool_index)];
            if !pool.state.has_room() {
                return;
            }
            next = pool.queue.after(id);
            let Some(exchange) = self.exchanges.get(id) else {
                pool.queue.remove(id);
                continue;
            };
            if !pool.state.has_room_for(&exchange.tried) {
                continue;
            }
            let kept = self.kept_server(id);
            let pool = &mut self.pools[usize::from(pool_index)];
            let Some(exchange) = self.exchanges.get(id) else { continue };
            let now = reactor.now();
            let pick = match kept {
                Some(server) => Pick::Server(server),
                None => pool.state.pick(now, &mut self.prng, exchange.key_hash, &exchange.tried),
            };
            let Pick::Server(server) = pick else { continue };
            if pool.permits.give_in_turn(&mut pool.state, server) {
                next = Some(id);
                continue;
            }
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

    /// Whether no exchange that arrived before `id` waits and could use `server`. Examined in debug builds for
    /// each attempt, so that every simulation checks it.
    fn is_next_for(&self, id: Id<Exchange>, server: usize) -> bool {
        let Some(exchange) = self.exchanges.get(id) else { return true };
        let pool = &self.pools[usize::from(exchange.pool)];
        let waiting = core::iter::successors(pool.queue.front(), |&other| pool.queue.after(other));
        let mut earlier = waiting
            .filter_map(|other| self.exchanges.get(other))
            .take_while(|other| other.arrival < exchange.arrival);
        !earlier.any(|other| pool.state.has_room_at(server, &other.tried))
    }

    /// Sends the exchange's request to `server`, over an idle connection if that is safe, and removes the
    /// exchange from the queue.
    ///
    /// # Errors
    /// There is no room for a connection to the server. Nothing has changed.
    fn attach<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        server: usize,
    ) -> Result<(), Shortage> {
        debug_assert!(self.is_next_for(id, server), "a request passed an earlier one of its pool");
        let Some(exchange) = self.exchanges.get_mut(id) else { return Ok(()) };
        let pool_index = exchange.pool;
        let pool = &mut self.pools[usize::from(pool_index)];
        pool.state.note_start(server);
        let down = exchange.down;
        let needs_fresh = exchange.needs_fresh;
        let need = self.proof_needed(id);
        let idle = match needs_fresh {
            true => None,
            false => self.take_idle(reactor, down, pool_index, server, need),
        };
        let (idle, up) = match idle {
            Some(idle) => (Some(idle), Ok(idle.sock)),
            None => match self.connect_within_limit(reactor, pool_index, server, down) {
                Err(shortage) if !needs_fresh && need == Proof::Age => {
                    // A connection that is not proven is better than none.
                    let idle = self.take_idle(reactor, down, pool_index, server, Proof::None);
                    (idle, idle.map(|idle| idle.sock).ok_or(shortage))
                }
                begun => (None, begun),
            },
        };
        if idle.is_some() {
            self.accounts.counters.upstream_reuses.add(1);
        }
        if let Err(shortage) = up
            && shortage != Shortage::Ports
        {
            self.pools[usize::from(pool_index)].state.note_end(server);
            return Err(shortage);
        }
        self.pools[usize::from(pool_index)].queue.remove(id);
        let Some(exchange) = self.exchanges.get_mut(id) else { return Ok(()) };
        exchange.server = server as u16;
        exchange.tried.insert(server);
        exchange.attempts += 1;
        exchange.response_started = false;
        exchange.reused = idle.is_some();
        exchange.idle_age = idle.and_then(|idle| idle.age);
        let Ok(up) = up else {
            // Ports run out for one address only, so another server is tried.
            self.attempt_failed(reactor, id, FailurePoint::Connect, NO_CONNECT);
            return Ok(());
        };
        exchange.up = up;
        exchange.stage = if exchange.reused { Stage::ExpectResponse } else { Stage::Connecting };
        reactor.send(up, &exchange.replay);
        if !exchange.request_done {
            // The rest of the request body may be waiting for the connection.
            self.work.push(Work::Resume(exchange.down));
        }
        if let Some(conn) = self.conns.upstream(up) {
            conn.exchange = id;
            self.attached += 1;
            conn.authenticated |= exchange.authenticates;
            conn.requests = conn.requests.saturating_add(1);
        }
        reactor.set_receiving(up, true);
        self.arm_upstream(reactor, id);
        Ok(())
    }

    /// The proof that an idle connection needs before the exchange may use it.
    fn proof_needed(&self, id: Id<Exchange>) -> Proof {
        let Some(exchange) = self.exchanges.get(id) else { return Proof::None };
        let pool = &self.snapshot.config.pools[usize::from(exchange.pool)];
        let lost = FailedAttempt {
            point: FailurePoint::ReusedReset,
            idempotent: exchange.idempotent,
            body_sent: true,
            body_replayable: exchange.replay_whole && (exchange.request_done || exchange.body_fits),
            reset_before: exchange.was_reset,
            attempts: exchange.attempts + 1,
            retries_max: pool.retries,
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
        pool: u16,
        server: usize,
        down: SockId,
    ) -> Result<SockId, Shortage> {
        self.trim_idle(reactor, pool, server);
        self.connect(reactor, pool, server, down)
    }

    /// Begins a connect to `server` on behalf of the client at `down`. Makes room for it if there is none.
    fn connect<R: Reactor>(
        &mut self,
        reactor: &mut R,
        pool: u16,
        server: usize,
        down: SockId,
    ) -> Result<SockId, Shortage> {
        let full = reactor.sock_count() >= self.slots_max();
        if full && !self.make_room_for_server(reactor) {
            return Err(Shortage::Slots);
        }
        match self.connect_once(reactor, pool, server, down) {
            Err(shortage)
                if shortage != Shortage::Ports && !full && self.make_room_for_server(reactor) =>
            {
                self.connect_once(reactor, pool, server, down)
            }
            begun => begun,
        }
    }

    fn connect_once<R: Reactor>(
        &mut self,
        reactor: &mut R,
        pool: u16,
        server: usize,
        down: SockId,
    ) -> Result<SockId, Shortage> {
        let counters = &self.accounts.counters;
        counters.upstream_connects.add(1);
        let addresses = &self.snapshot.addresses[usize::from(pool)][server];
        let preferred = self.pools[usize::from(pool)].preferred_address[server];
        let address = &addresses[preferred % addresses.len()];
        let begun = match &self.snapshot.config.pools[usize::from(pool)].tls {
            None => reactor.connect(address),
            Some(_) => {
                let key = tidegate_secure::ServerKey { pool, server: server as u16 };
                reactor.connect_secured(address, key)
            }
        };
        let up = begun.inspect_err(|_| counters.upstream_connect_failures.add(1))?;
        counters.upstream_now.add(1);
        self.conns.insert_upstream(
            up,
            Upstream {
                pool,
                server: server as u16,
                requests: 0,
                exchange: Id::NONE,
                authenticated: false,
                owner: SockId::NONE,
                decoder: HeadDecoder::default(),
                input: Input::default(),
            },
        );
        if let Some(version) = self.snapshot.config.pools[usize::from(pool)].proxy_protocol {
            self.send_proxy_header(reactor, up, down, version);
        }
        Ok(up)
    }

    /// Sets the deadline of the upstream connection to the timeout of the exchange's stage, or to the first look
    /// at the rest of the request if the server does not take it fast enough.
    pub(crate) fn arm_upstream<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let timeouts = &self.snapshot.config.pools[usize::from(exchange.pool)].timeouts;
        let wait = match exchange.stage {
            Stage::Buffering | Stage::Queued | Stage::Paused => return,
            Stage::Connecting => timeouts.connect,
            Stage::ExpectResponse | Stage::ExpectBody | Stage::ExpectRequestEnd
                if is_blocked(reactor, exchange.up) =>
            {
                look_span(timeouts.body)
            }
            Stage::ExpectResponse if exchange.request_done => timeouts.response_head,
            Stage::ExpectResponse | Stage::ExpectBody | Stage::ExpectRequestEnd => timeouts.body,
            Stage::Tunnel => timeouts.tunnel,
        };
        reactor.set_deadline(exchange.up, reactor.now().after(wait));
    }

    /// Forwards bytes of the request body to the server. Returns how many of `bytes` were processed.
    pub(crate) fn forward_request_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        bytes: &[u8],
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let Some(exchange) = self.exchanges.get_mut(id) else { return bytes.len() };
            if exchange.request_done || !Self::may_forward(reactor, exchange) {
                break;
            }
            let most = match exchange.stage {
                Stage::Buffering | Stage::Queued | Stage::Paused => QUEUED_PIECE_BYTES_MAX,
                _ if reactor.is_guarded(exchange.up) => QUEUED_PIECE_BYTES_MAX,
                _ => usize::MAX,
            };
            let piece = &bytes[used..bytes.len().min(used.saturating_add(most))];
            let step = match exchange.request_body.decode(piece) {
                Ok(step) => step,
                Err(fault) => {
                    self.reject_request(reactor, id, fault.status(), fault.reason());
                    return bytes.len();
                }
            };
            used += step.consumed;
            let listener = &self.snapshot.config.listeners[usize::from(exchange.listener)];
            exchange.awaits_continue = false;
            exchange.note_body(step.consumed, listener.limits.body_rate_min);
            exchange.request_bytes += step.data.len() as u64;
            if listener.limits.body_bytes_max.is_some_and(|most| exchange.request_bytes > most) {
                let text = "the request body exceeds this listener's limit";
                self.reject_request(reactor, id, 413, text);
                return bytes.len();
            }
            exchange.request_done = step.done;
            let fields = &self.snapshot.client_address_fields[usize::from(exchange.listener)];
            Self::send_request_body(reactor, exchange, step.data, fields);
            if exchange.stage == Stage::Buffering {
                if !self.dispatch_buffered(reactor, id) {
                    return used;
                }
                continue;
            }
            if step.done && exchange.stage == Stage::ExpectRequestEnd {
                self.end_exchange(reactor, id, false);
                return used;
            }
            if step.done {
                self.arm_upstream(reactor, id);
            }
        }
        if used > 0 && self.exchanges.get(id).is_some_and(|e| !e.request_done) {
            self.arm_upstream(reactor, id);
        }
        used
    }

    /// Dispatches a request once enough of its body has arrived. Returns whether the exchange still exists.
    fn dispatch_buffered<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) -> bool {
        let Some(exchange) = self.exchanges.get_mut(id) else { return false };
        let pool = &self.snapshot.config.pools[usize::from(exchange.pool)];
        let has_enough = exchange.request_done
            || exchange.request_bytes >= pool.request_buffer_bytes as u64
            || !Self::may_forward(reactor, exchange);
        if has_enough {
            // Requests that became ready in the meantime are before this one.
            self.arrivals += 1;
            exchange.arrival = self.arrivals;
            exchange.stage = Stage::Queued;
            self.dispatch_new(reactor, id);
        }
        self.exchanges.get(id).is_some()
    }

    /// Whether the exchange can take more of the request body now.
    fn may_forward<R: Reactor>(reactor: &mut R, exchange: &Exchange) -> bool {
        let fits_replay = exchange.replay.len() < QUEUED_BYTES_MAX && exchange.replay_whole;
        match exchange.stage {
            Stage::Buffering | Stage::Queued | Stage::Paused => fits_replay,
            _ if fits_replay || !reactor.is_guarded(exchange.up) => {
                !is_blocked(reactor, exchange.up)
            }
            _ => {
                // As long as nothing was sent, the request may have to go to another connection. `Drained`
                // or the failure of the attempt resumes the body.
                reactor.flush(exchange.up);
                !reactor.is_guarded(exchange.up) && !is_blocked(reactor, exchange.up)
            }
        }
    }

    /// Sends `data` to the server in the framing of the request head, and the end of the body if the request
    /// is complete.
    fn send_request_body<R: Reactor>(
        reactor: &mut R,
        exchange: &mut Exchange,
        data: &[u8],
        client_address_fields: &ClientAddressFields,
    ) {
        let chunked = exchange.request_framing == Framing::Chunked;
        let trailers = exchange.request_body.trailers().len();
        let fits =
            exchange.replay.len() + data.len() + trailers + FRAME_BYTES_MAX <= REPLAY_BYTES_MAX;
        if exchange.replay_whole && fits {
            let start = exchange.replay.len();
            let out = &mut exchange.replay;
            if chunked && !data.is_empty() {
                http1::encode_chunk_head(out, data.len());
                out.extend_from_slice(data);
                http1::encode_chunk_tail(out);
            } else {
                out.extend_from_slice(data);
            }
            if chunked && exchange.request_done {
                client_address_fields.encode_last_chunk(out, exchange.request_body.trailers());
            }
            reactor.send(exchange.up, &exchange.replay[start..]);
            return;
        }
        exchange.replay_whole = false;
        send_framed(reactor, exchange.up, exchange.request_framing, data);
        if chunked
            && exchange.request_done
            && let Some(out) = reactor.output(exchange.up)
        {
            client_address_fields.encode_last_chunk(out, exchange.request_body.trailers());
        }
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
        let (pool, server) = (exchange.pool, exchange.server);
        exchange.up = SockId::NONE;
        // The server is not to blame.
        exchange.tried = Tried::default();
        let attempts = exchange.attempts;
        self.release_server(pool, server);
        if attempts >= SHORTAGE_ATTEMPTS_MAX {
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
        let server = usize::from(exchange.server);
        let pool = &mut self.pools[pool_index];
        if point == FailurePoint::Connect {
            pool.state.note_connect_failure(server, reactor.now());
            pool.preferred_address[server] = pool.preferred_address[server].wrapping_add(1);
        }
        if let (FailurePoint::NotSent | FailurePoint::ReusedReset, Some(age)) =
            (point, exchange.idle_age)
        {
            pool.idle.note_lost(server, age, reactor.now());
        }
        exchange.up = SockId::NONE;
        exchange.stage = Stage::Queued;
        exchange.needs_fresh = true;
        let ended = (exchange.pool, exchange.server);
        self.release_server(ended.0, ended.1);
        let pool = &self.pools[pool_index];
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let attempt = FailedAttempt {
            point,
            idempotent: exchange.idempotent,
            body_sent: exchange.request_bytes > 0,
            body_replayable: exchange.replay_whole,
            reset_before: exchange.was_reset,
            attempts: exchange.attempts,
            retries_max: self.snapshot.config.pools[pool_index].retries,
        };
        exchange.was_reset |= point == FailurePoint::FreshReset;
        if retry::may_retry(&attempt) {
            let all_tried = !pool.state.may_wait(&exchange.tried);
            match point {
                FailurePoint::NotSent => {
                    // The first attempt sent nothing, so it does not count.
                    exchange.attempts -= 1;
                    exchange.tried = Tried::default();
                    self.accounts.counters.unsent_requests.add(1);
                }
                _ => self.accounts.counters.retries.add(1),
            }
            if point == FailurePoint::ReusedReset && all_tried {
                // Every server was tried, but a fresh connection to this server was not.
                exchange.tried = Tried::default();
            }
            self.dispatch(reactor, id, failure);
        } else {
            self.fail(reactor, id, failure);
        }
    }

    /// Ends an exchange that no longer has a server. Sends `failure` to the client, or cuts the response off
    /// if its head was relayed already.
    pub(crate) fn fail<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, failure: Failure) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (down, relayed, framing) =
            (exchange.down, exchange.response_relayed, exchange.response_framing);
        let keep = exchange.keep_downstream && exchange.request_done && !self.stopping;
        let (version, is_head) = (exchange.client_version, exchange.is_head);
        self.forget_exchange(id);
        if relayed {
            return self.cut_downstream(reactor, down, framing);
        }
        let answering = self.answering_as(reactor, down, is_head, version, !keep);
        if let Some(out) = reactor.output(down) {
            let sink = &mut answering.sink(out);
            respond::encode_error(sink, failure.status, failure.text, &answering.context);
        }
        self.accounts.counters.count_answer(failure.status);
        if keep {
            self.expect_next(reactor, down);
        } else {
            self.close_downstream(reactor, down);
        }
    }

    /// Ends a truncated response in such a way that the client cannot take it for complete.
    fn cut_downstream<R: Reactor>(&mut self, reactor: &mut R, down: SockId, framing: Framing) {
        self.accounts.counters.upstream_truncations.add(1);
        if matches!(framing, Framing::Length | Framing::Chunked) {
            // The missing bytes or the missing last chunk reveal the truncation. The relayed part is
            // delivered.
            return self.close_downstream(reactor, down);
        }
        self.drop_downstream(reactor, down);
        reactor.abort(down);
    }

    /// Makes the downstream connection ready for its next request.
    pub(crate) fn expect_next<R: Reactor>(&mut self, reactor: &mut R, down: SockId) {
        let blocked = is_blocked(reactor, down);
        if let Some(conn) = self.conns.downstream(down) {
            conn.state = DownstreamState::ExpectHead;
            conn.blocked = blocked;
            self.work.push(Work::Resume(down));
        }
    }

    /// Rejects a request whose body is malformed, too long or incomplete. The upstream connection is reset,
    /// so that the server cannot take the request for complete.
    fn reject_request<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        status: u16,
        text: &str,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (down, relayed, framing, is_head) =
            (exchange.down, exchange.response_relayed, exchange.response_framing, exchange.is_head);
        let is_answered = exchange.stage == Stage::ExpectRequestEnd;
        self.accounts.counters.requests_refused.add(1);
        self.abort_exchange(reactor, id);
        if let Some(conn) = self.conns.downstream(down) {
            conn.state = DownstreamState::ExpectHead;
        }
        if is_answered {
            self.close_downstream(reactor, down);
        } else if relayed {
            self.cut_downstream(reactor, down, framing);
        } else {
            self.refuse_with(reactor, down, status, text, is_head);
        }
    }

    /// Ends an exchange whose client disconnected or is no longer served. The upstream connection is reset,
    /// because it may be in the middle of the request or the response.
    pub(crate) fn abort_exchange<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (up, pool, server, stage) =
            (exchange.up, exchange.pool, exchange.server, exchange.stage);
        match stage {
            Stage::Buffering | Stage::Paused => {}
            Stage::Queued => {
                self.leave_queues(id);
            }
            _ => {
                self.release_server(pool, server);
                self.drop_upstream(up);
                reactor.abort(up);
            }
        }
        self.forget_exchange(id);
    }

    /// Removes the exchange and returns its buffer to the pool.
    pub(crate) fn forget_exchange(&mut self, id: Id<Exchange>) {
        if let Some(exchange) = self.exchanges.remove(id) {
            self.accounts.counters.exchanges_now.sub(1);
            self.buffers.put(exchange.replay);
        }
    }

    /// The deadline of the downstream connection expired during its exchange.
    pub(crate) fn exchange_client_due<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if exchange.stage == Stage::Paused {
            exchange.stage = Stage::Queued;
            return self.dispatch(reactor, id, NO_CONNECT);
        }
        if exchange.stage == Stage::Queued {
            self.accounts.counters.queue_refusals.add(1);
            self.leave_queues(id);
            return self.fail(reactor, id, Failure { status: 503, text: QUEUE_TIMEOUT });
        }
        let (down, up) = (exchange.down, exchange.up);
        if exchange.request_done {
            return;
        }
        let Some(conn) = self.conns.downstream(down) else { return };
        if !conn.input.is_empty() || reactor.output_pending(up) > 0 {
            // The server is not reading the body. The deadline of the upstream connection covers that.
            if let Some(exchange) = self.exchanges.get_mut(id) {
                exchange.body_by = Moment::NEVER;
            }
            return;
        }
        self.accounts.counters.body_timeouts.add(1);
        let text = "timed out reading the request body";
        self.reject_request(reactor, id, 408, text);
    }
}

/// Appends `data` to the output of `to` in the given framing.
pub(crate) fn send_framed<R: Reactor>(reactor: &mut R, to: SockId, framing: Framing, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    match framing {
        Framing::None => {}
        Framing::Length | Framing::UntilClose => reactor.send(to, data),
        Framing::Chunked => {
            if let Some(out) = reactor.output(to) {
                http1::encode_chunk_head(out, data.len());
            }
            reactor.send(to, data);
            if let Some(out) = reactor.output(to) {
                http1::encode_chunk_tail(out);
            }
        }
    }
}

/// The hash of the request's key for hash balancing; `None` if the request has no such key.
fn hash_key(
    balance: &tidegate_config::model::Balance,
    head: &RequestHead<'_>,
    peer: Option<core::net::IpAddr>,
    listener: &tidegate_config::model::Listener,
) -> Option<u64> {
    let tidegate_config::model::Balance::Hash(key) = balance else { return None };
    match key {
        HashKey::Path => Some(hash_bytes(head.path.as_bytes())),
        HashKey::Header(name) => head.find_named(name).map(hash_bytes),
        HashKey::ClientAddress => {
            client_address(head, peer, &listener.trusted).map(|ip| match ip {
                core::net::IpAddr::V4(ip) => hash_bytes(&ip.octets()),
                core::net::IpAddr::V6(ip) => hash_bytes(&ip.octets()),
            })
        }
    }
}

pub(crate) const NO_SERVER: Failure = Failure { status: 503, text: "no server is available" };
const QUEUE_FULL: &str = "the request queue is full";
const QUEUE_TIMEOUT: &str = "timed out in the request queue";
/// This process has no slot, descriptor or memory for another connection.
pub(crate) const SHORTAGE: Failure =
    Failure { status: 503, text: "the proxy has no resources for another connection" };
pub(crate) const NO_CONNECT: Failure =
    Failure { status: 502, text: "could not connect to the server" };
