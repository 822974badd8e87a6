//! Copies of requests for another pool (`mirror` of a route): exchanges without a client.
//! In: requests of routes with `mirror`; the responses to the copies. Out: copies that are sent to servers.
//! Never: makes a client wait, or changes its response; retries a copy, or puts it into a queue; closes another connection
//! to make room for a copy.
//! Limits: `MIRRORS_MAX` copies, and one in `SHARE` of the worker's connections; the store of a request (`stored.rs`) and
//! `body-max` of the route; `ANSWER_BYTES_MAX` of a response. Copies beyond these limits are not sent (`mirrors_left_out`).
//! Invariant: the exchange of a copy has `mirrored`, no requester, and a connection to a server from its beginning to its
//! end. `Worker::mirrors` counts these exchanges, and the copies of requests that have not arrived completely.

use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Id, Moment, Prng, Span};
use tidegate_config::model::Pool;
use tidegate_gate::balance::{Pick, Tried};
use tidegate_gate::connection_auth;
use tidegate_gate::eject::is_failure;
use tidegate_gate::forward::{self, RequestContext};
use tidegate_gate::mirror::Mirroring;
use tidegate_reactor::Reactor;
use tidegate_wire::message::{BodyLength, RequestHead, ResponseHead};

use crate::action::proxy::exchange::{Choice, Exchange, RequestFacts, Stage};
use crate::action::proxy::stored::StoredRequest;
use crate::action::proxy::{Failure, facts_of, is_sensitive};
use crate::buffers::BufferPool;
use crate::counters::WorkerCounters;
use crate::requester::Requester;
use crate::stats::Traffic;
use crate::worker::Worker;

/// Maximum number of copies of a worker, including copies of incomplete requests.
const MIRRORS_MAX: usize = 256;
/// The part of a worker's connections that copies may have: one in `SHARE`, at least one.
const SHARE: usize = 8;
/// Maximum number of bytes of a response's body that are received to keep the connection.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// The copy of a request that is not sent yet.
pub(crate) struct Duplicate {
    /// The index of the pool.
    pool: u16,
    /// The copy.
    request: StoredRequest,
    /// The facts of the copied request.
    facts: RequestFacts,
    /// How many more bytes of the body the copy may contain.
    room: usize,
}

impl Duplicate {
    /// The index of the pool.
    pub(crate) fn pool(&self) -> u16 {
        self.pool
    }

    /// Adds header lines to the copy; the caller adds the same lines to the request itself.
    pub(super) fn add_lines(&mut self, lines: &[u8]) {
        self.request.add_lines(lines);
    }

    /// Takes a piece of the body; `end` contains the trailers once the body is complete. Returns whether the body is
    /// within its limit.
    fn take_body(&mut self, data: &[u8], end: Option<&[u8]>) -> bool {
        let Some(room) = self.room.checked_sub(data.len()) else { return false };
        self.room = room;
        self.request.push(data);
        if let Some(trailers) = end {
            self.request.end(if self.facts.drops_trailers { b"" } else { trailers });
        }
        self.request.is_replayable()
    }

    /// Returns the buffer.
    pub(super) fn release(self, buffers: &mut BufferPool) {
        self.request.release(buffers);
    }
}

/// The state of the exchange of a copy, in place of the state of a client.
pub(crate) struct Mirrored {
    /// The counters of the server that gets the copy.
    traffic: Option<Arc<Traffic>>,
    /// When the copy was sent.
    began: Moment,
    /// The time until the response was complete or had failed; zero until then, and if the process stops before.
    took: Span,
    /// The response is complete.
    is_complete: bool,
    /// The status of the response; `None` before its head.
    status: Option<u16>,
    /// How much of the response's body has arrived.
    body_bytes: u64,
}

impl Mirrored {
    /// The exchange has ended.
    pub(super) fn end(&self) {
        if let Some(traffic) = &self.traffic {
            traffic.end_mirrored(self.status, self.is_complete, self.took);
        }
    }
}

/// The conditions that decide, together with the request itself, whether the request is copied.
pub(super) struct MirrorTerms<'a> {
    /// `mirror` of the route.
    pub(super) mirroring: &'a Mirroring,
    /// The pool of the copies.
    pub(super) pool: &'a Pool,
    /// The key for balancing in that pool.
    pub(super) key_hash: Option<u64>,
    /// How many copies the worker may begin.
    pub(super) room: usize,
}

/// The result of copying the head of a request.
pub(super) enum CopyResult {
    /// The request is not chosen, or cannot be copied.
    No,
    /// The worker has no room for another copy, or the request is too large.
    LeftOut,
    /// The copy; its body may still have to arrive.
    Copy(Box<Duplicate>),
}

/// Copies the head of a request, if the request is chosen.
pub(super) fn copy_head(
    buffers: &mut BufferPool,
    (prng, scratch): (&mut Prng, &mut Vec<u8>),
    head: &RequestHead<'_>,
    context: &RequestContext<'_>,
    terms: &MirrorTerms<'_>,
) -> CopyResult {
    let Some(changes) = context.changes else { return CopyResult::No };
    let is_bound = head.protocol.is_some()
        || forward::forwards_upgrade(head)
        || connection_auth::request_authenticates(head);
    if is_bound || !terms.mirroring.chooses(changes.values, || prng.next_u64(), scratch) {
        return CopyResult::No;
    }
    let (length, room) = (forward::upstream_length(head), terms.mirroring.body_max);
    let is_too_long = matches!(length, BodyLength::Length(bytes) if bytes > room as u64);
    if is_too_long || terms.room == 0 {
        return CopyResult::LeftOut;
    }
    let pool = terms.pool;
    let is_reusable = forward::leaves_reusable(head, &pool.reuse);
    let context = RequestContext {
        trailers: pool.trailers || pool.may_speak_http2(),
        close: !is_reusable,
        websocket_key: None,
        ..*context
    };
    let mut encoded = buffers.take();
    if forward::encode_upstream_request(&mut encoded, head, &context).is_err() {
        buffers.put(encoded);
        return CopyResult::No;
    }
    let choice = Choice { key_hash: terms.key_hash, session: None };
    let facts = RequestFacts {
        is_reusable,
        is_sensitive: is_sensitive(pool, head),
        ..facts_of(head, Some(changes), choice)
    };
    let request = StoredRequest::new(encoded, length);
    CopyResult::Copy(Box::new(Duplicate { pool: terms.mirroring.pool, request, facts, room }))
}

impl CopyResult {
    /// The copy, counted in `mirrors`.
    pub(super) fn counted(
        self,
        mirrors: &mut usize,
        counters: &WorkerCounters,
    ) -> Option<Box<Duplicate>> {
        match self {
            Self::No => None,
            Self::LeftOut => {
                counters.mirrors_left_out.add(1);
                None
            }
            Self::Copy(copy) => {
                *mirrors += 1;
                Some(copy)
            }
        }
    }
}

/// Copies that are not sent yet.
impl Worker {
    /// How many copies the worker may begin.
    pub(super) fn mirrors_left(&self) -> usize {
        let most = MIRRORS_MAX.min((self.slots_max() / SHARE).max(1));
        if self.stopping { 0 } else { most.saturating_sub(self.mirrors) }
    }

    /// Gives the copy of a request a piece of the body. Returns the copy once it is complete and its request may be sent.
    pub(super) fn copy_body(
        &mut self,
        id: Id<Exchange>,
        data: &[u8],
        end: Option<&[u8]>,
    ) -> Option<Box<Duplicate>> {
        let exchange = self.exchanges.find_mut(id)?;
        if !exchange.copy.as_mut()?.take_body(data, end) {
            let copy = self.take_copy(id)?;
            self.leave_out(*copy);
            return None;
        }
        let is_early = matches!(exchange.stage, Stage::Authorizing | Stage::Buffering);
        // The request may still be refused. If it is not, `dispatch_new` sends the copy.
        if is_early || exchange.auth_request.is_some() {
            return None;
        }
        self.take_complete_copy(id)
    }

    /// Takes the copy of a request.
    fn take_copy(&mut self, id: Id<Exchange>) -> Option<Box<Duplicate>> {
        let copy = self.exchanges.find_mut(id)?.copy.take()?;
        self.pools[usize::from(copy.pool)].exchanges -= 1;
        Some(copy)
    }

    /// Takes the copy of a request if it is complete.
    pub(super) fn take_complete_copy(&mut self, id: Id<Exchange>) -> Option<Box<Duplicate>> {
        let exchange = self.exchanges.find(id)?;
        exchange.copy.as_ref().filter(|copy| copy.request.is_done())?;
        self.take_copy(id)
    }

    /// Drops a copy for which there is no room.
    fn leave_out(&mut self, copy: Duplicate) {
        self.mirrors -= 1;
        self.accounts.counters.mirrors_left_out.add(1);
        copy.release(&mut self.buffers);
    }
}

/// Exchanges without a client.
impl Worker {
    /// Sends the copy of a request of `listener` to a server of its pool, if one is free.
    pub(super) fn send_copy<R: Reactor>(
        &mut self,
        reactor: &mut R,
        listener: u16,
        copy: Duplicate,
    ) {
        let earlier = self.current_mark();
        self.unmark();
        self.begin_copy(reactor, listener, copy);
        self.restore_mark(earlier);
    }

    fn begin_copy<R: Reactor>(&mut self, reactor: &mut R, listener: u16, copy: Duplicate) {
        let now = reactor.now();
        let snapshot = Rc::clone(self.settings.newest());
        let (pool_index, key_hash) = (copy.pool, copy.facts.key_hash);
        let no_client_waits =
            self.eviction.waits.held().is_empty() && self.has_room_for_server(reactor);
        let pool = &mut self.pools[usize::from(pool_index)];
        let may_send = no_client_waits
            && !self.stopping
            && pool.queue.is_empty()
            && !pool.is_short
            && snapshot.pool(pool_index).proxy_protocol.is_none();
        let pick = match may_send {
            true => pool.state.pick(now, &mut self.prng, key_hash, &Tried::default()),
            false => Pick::Full,
        };
        let Pick::Server(server) = pick else { return self.leave_out(copy) };
        self.arrivals += 1;
        let Duplicate { request, facts, .. } = copy;
        let (era, place) = (self.settings.era(), (listener, pool_index));
        let mut exchange =
            Exchange::new(Requester::NONE, era, place, self.arrivals, facts, request);
        exchange.intake.bytes = exchange.request.body().len() as u64;
        let traffic = self.settings.newest().counted.share_server((pool_index, server as u16));
        let mirrored = Mirrored {
            traffic,
            began: now,
            took: Span::ZERO,
            is_complete: false,
            status: None,
            body_bytes: 0,
        };
        exchange.mirrored = Some(Box::new(mirrored));
        let id = match self.exchanges.insert(exchange) {
            Ok(id) => id,
            Err(exchange) => {
                self.mirrors -= 1;
                self.accounts.counters.mirrors_left_out.add(1);
                return exchange.release(&mut self.buffers);
            }
        };
        self.accounts.counters.exchanges_now.add(1);
        self.pools[usize::from(pool_index)].exchanges += 1;
        if let Some(traffic) = self.settings.newest().counted.server((pool_index, server as u16)) {
            traffic.begin();
        }
        if self.attach(reactor, id, server).is_err() {
            self.accounts.counters.mirrors_left_out.add(1);
            return self.forget_exchange(id);
        }
        self.accounts.counters.mirrored_requests.add(1);
    }

    /// Takes the head of the response to a copy.
    pub(super) fn take_mirrored_head<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        head: &ResponseHead<'_>,
        ends: bool,
        more_follows: bool,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if let Some(mirrored) = &mut exchange.mirrored {
            mirrored.status = Some(head.status);
        }
        exchange.attempt.note_head(
            exchange.facts.is_reusable && head.persistent && head.length != BodyLength::UntilClose,
        );
        exchange.stage = Stage::ExpectBody;
        let (pool, attempt) = (exchange.pool, exchange.attempt);
        let result = (is_failure(head.status), exchange.server_time(reactor.now()));
        self.note_result((pool, attempt.server), result, reactor.now());
        if connection_auth::response_authenticates(head) {
            self.note_authenticated(reactor, attempt.up);
        }
        match ends {
            true => self.end_mirror(reactor, id, more_follows),
            false => self.arm_upstream(reactor, id),
        }
    }

    /// Drops a piece of the response to a copy.
    pub(super) fn skip_mirrored<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        bytes: usize,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let Some(mirrored) = &mut exchange.mirrored else { return };
        mirrored.body_bytes += bytes as u64;
        if mirrored.body_bytes > ANSWER_BYTES_MAX {
            // A new connection costs less than the rest of the body.
            return self.end_mirror(reactor, id, true);
        }
        self.arm_upstream(reactor, id);
    }

    /// Ends the exchange of a copy. `more_follows`: the connection cannot be kept.
    pub(super) fn end_mirror<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        more_follows: bool,
    ) {
        let now = reactor.now();
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if let Some(mirrored) = &mut exchange.mirrored {
            mirrored.took = now.since(mirrored.began);
            mirrored.is_complete = true;
        }
        let (pool, attempt) = (exchange.pool, exchange.attempt);
        let is_sent = self.request_pending(reactor, attempt.up) == 0;
        self.release_server(pool, attempt.server);
        self.forget_exchange(id);
        if attempt.up.is_stream() {
            self.abandon_server(reactor, attempt.up);
        } else if attempt.keeps() && is_sent && !more_follows && !self.stopping {
            self.keep_idle(reactor, attempt.up.sock, Requester::NONE, false);
        } else {
            self.discard_upstream(reactor, attempt.up.sock);
        }
    }

    /// The exchange of a copy has failed, and has no server any more.
    pub(super) fn fail_mirror(&mut self, id: Id<Exchange>, failure: Failure, now: Moment) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if let Some(mirrored) = &mut exchange.mirrored {
            mirrored.status.get_or_insert(failure.status);
            mirrored.took = now.since(mirrored.began);
        }
        self.accounts.counters.mirror_failures.add(1);
        self.forget_exchange(id);
    }

    /// Ends the exchanges of all copies. Part of a stop.
    pub(crate) fn end_mirrors<R: Reactor>(&mut self, reactor: &mut R) {
        let is_mirror =
            |(id, exchange): (Id<Exchange>, &Exchange)| exchange.mirrored.is_some().then_some(id);
        let ids: Vec<_> = self.exchanges.iter().filter_map(is_mirror).collect();
        for id in ids {
            // The end of an exchange may have ended other exchanges on the same HTTP/2 connection.
            if self.exchanges.find(id).is_some() {
                self.cancel_exchange(reactor, id);
            }
        }
    }

    /// The settings have changed: copies in progress use the newest settings, in which pools keep their indexes.
    pub(crate) fn renew_mirrors(&mut self) {
        if self.mirrors == 0 {
            return;
        }
        let era = self.settings.era();
        let is_mirror =
            |(id, exchange): (Id<Exchange>, &Exchange)| exchange.mirrored.is_some().then_some(id);
        let ids: Vec<_> = self.exchanges.iter().filter_map(is_mirror).collect();
        for id in ids {
            if let Some(exchange) = self.exchanges.get_mut(id) {
                exchange.adopt(era);
            }
        }
    }
}
