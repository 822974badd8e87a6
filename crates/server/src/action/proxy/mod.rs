//! The action `proxy`: sends the request to a server and relays its response.
//!
//! - `exchange.rs`: the state of one proxied request; `stored.rs`: the request as it is sent; `attempts.rs`: its attempts
//! - `choice.rs`: requests of routes that choose the pool
//! - `auth_request.rs`: requests that an authentication server must admit first; `mirror.rs`: copies for another pool
//! - `internal_request.rs`: requests that Tidegate sends for itself
//! - `authorization.rs`: requests whose user is being verified
//! - `dispatch.rs`: pick a server, wait in the queue, connect, retry; `reuse.rs`: idle connections;
//!   `shortage.rs`: requests that wait for a free connection slot
//! - `request.rs`: the request body on its way to the server; `servers.rs`: servers that take no requests for a time
//! - `response.rs`: the response on its way to the client, and its failures
//! - `tunnel.rs`: both directions after 101 (Switching Protocols); `tcp.rs`: connections without HTTP;
//!   `websocket_tunnel.rs`: how forwarded WebSockets end with a stop or a reload
//!
//! In: requests and their bodies (`action/mod.rs`), responses of servers (`carrier/server.rs`). Out: messages for
//! requesters and for servers.
//! Never: decides which server (`gate::balance`), whether to retry (`gate::retry`) or how a body is framed (`wire`).
//! Limits: one exchange for each requester, and one for each copy (`mirror.rs`); the pool's settings bound its queue and the
//! attempts.
//! Invariant: each `note_start` for a server is followed by exactly one `note_end` (`release_server`).

mod attempts;
mod auth_request;
pub(crate) mod authorization;
mod choice;
pub(crate) mod dispatch;
pub(crate) mod exchange;
mod internal_request;
pub(crate) mod mirror;
mod request;
mod response;
pub(crate) mod reuse;
mod servers;
pub(crate) mod shortage;
pub(crate) mod stored;
mod tcp;
pub(crate) mod tunnel;
pub(crate) mod websocket_tunnel;

use tidegate_base::Id;
use tidegate_base::prng::hash_bytes;
use tidegate_config::model::{Balance, HashKey, Listener, Pool, Proxy};
use tidegate_gate::access::Cause;
use tidegate_gate::ask::AuthRequestEncoder;
use tidegate_gate::chain::client_address;
use tidegate_gate::changes::Changes;
use tidegate_gate::connection_auth;
use tidegate_gate::denial::Denial;
use tidegate_gate::forward::{self, ForwardFault, RequestContext};
use tidegate_gate::identity::Identity;
use tidegate_gate::rewrite::MatchedPath;
use tidegate_gate::template::Values;
use tidegate_reactor::{Peer, Reactor};
use tidegate_wire::message::{FieldName, Method, RequestHead};
use tidegate_wire::websocket::ClientKey;

use crate::action::Running;
use crate::action::lua::body::ExchangeHook;
use crate::action::proxy::exchange::{Choice, ClientSession, Exchange, RequestFacts, Stage};
use crate::action::proxy::mirror::MirrorTerms;
use crate::action::proxy::stored::StoredRequest;
use crate::answer::Answer;
use crate::buffers::BufferPool;
use crate::carrier::Progress;
use crate::paces::Pace;
use crate::requester::Requester;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// The error response to a request whose exchange failed.
#[derive(Clone, Copy)]
pub(crate) struct Failure {
    /// The status code.
    pub(crate) status: u16,
    /// The text of the body.
    pub(crate) text: &'static str,
    /// The response asks the client to repeat its request later (`Retry-After`).
    is_overload: bool,
}

/// When clients whose requests failed because of too much load may repeat them, in seconds.
const RETRY_SECONDS: u64 = 1;

impl Failure {
    /// A failure that a repeated request may meet again.
    pub(crate) const fn new(status: u16, text: &'static str) -> Self {
        Self { status, text, is_overload: false }
    }

    /// A failure because of too much load.
    pub(crate) const fn overload(text: &'static str) -> Self {
        Self { status: 503, text, is_overload: true }
    }
}

/// Begin and end of an exchange.
impl Worker {
    /// Begins to proxy the request `head` to the pool `pool_index`: encodes it for the server, creates its exchange and
    /// picks a server.
    pub(super) fn begin_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (proxy, (route, pool_index)): (&Proxy, (usize, u16)),
        changes: Option<Changes<'_>>,
    ) {
        let (era, snapshot) = (self.era_of(to), self.settings_of(to));
        let websocket_key = self.websocket_key(head);
        let mirrors_left = self.mirrors_left();
        let Some(down) = self.conns.downstream(to.sock) else {
            return self.note_bug(reactor, to.sock);
        };
        let listener_index = down.listener;
        let listener = snapshot.listener(listener_index);
        let peer = match down.peer() {
            Peer::Tcp(address) => Some(address.ip()),
            Peer::Local => None,
        };
        let pool = snapshot.pool(pool_index);
        let is_reusable = forward::leaves_reusable(head, &pool.reuse);
        let context = RequestContext {
            peer,
            trusted: peer.is_some_and(|ip| listener.trusted.iter().any(|net| net.contains(ip))),
            client_address_fields: &snapshot.client_address_fields[usize::from(listener_index)],
            scheme: down.scheme,
            client_certificate: down.facts.as_ref().and_then(|facts| facts.certificate()),
            via: &snapshot.config.server.via,
            host: &proxy.host,
            trailers: pool.trailers || pool.may_speak_http2(),
            close: !is_reusable,
            websocket_key,
            changes: changes.map(|changes| Changes { path: proxy.path.as_ref(), ..changes }),
        };
        let (encoded, question) = match encode(&mut self.buffers, head, &context) {
            Ok(encoded) => encoded,
            Err(ForwardFault::AnswerHere) => {
                return self.answer(reactor, to, &Answer::Recipient(head), false);
            }
            Err(fault) => {
                return self.answer_error(reactor, to, fault.status(), fault.text(), false);
            }
        };
        let request = StoredRequest::new(encoded, forward::upstream_length(head));
        let buffers = pool.request_buffer_bytes > 0
            && !request.is_done()
            && request.has_waiting_room()
            && !head.expect_continue;
        let choice = Choice {
            key_hash: hash_key(&pool.balance, head, changes, (peer, listener)),
            session: session_of(reactor, &snapshot, usize::from(pool_index), head),
        };
        let facts = RequestFacts {
            is_reusable,
            buffers,
            is_sensitive: is_sensitive(pool, head),
            stay: sticky_key_of(&snapshot, (pool_index, listener), &context, head, &mut self.piece),
            ..facts_of(head, changes, choice)
        };
        let mirroring =
            snapshot.handlings.of_route(route).and_then(|handling| handling.mirror.as_ref());
        let drafted = mirroring.map(|mirroring| {
            let pool = snapshot.pool(mirroring.pool);
            let key_hash = hash_key(&pool.balance, head, changes, (peer, listener));
            let terms = MirrorTerms { mirroring, pool, key_hash, room: mirrors_left };
            let scratch = (&mut self.prng, &mut self.piece);
            mirror::copy_head(&mut self.buffers, scratch, head, &context, &terms)
        });
        self.arrivals += 1;
        let place = (listener_index, pool_index);
        let mut exchange = Exchange::new(to, era, place, self.arrivals, facts, request);
        exchange.stage = match buffers {
            _ if changes.is_some_and(|changes| changes.waits) => Stage::Authorizing,
            true => Stage::Buffering,
            false => Stage::Queued,
        };
        if let Some(handling) = snapshot.handlings.of_route(route) {
            exchange.timeouts = handling.timeouts;
            exchange.pace = handling.bandwidth.as_ref().map(|limits| Box::new(Pace::new(limits)));
        }
        let counters = &self.accounts.counters;
        exchange.copy = drafted.and_then(|copy| copy.counted(&mut self.mirrors, counters));
        exchange.values = self.values.take(to);
        exchange.response_hook = self.lua.response_hook.take().map(Box::new);
        if let Some((asker, question)) = question {
            let asked = snapshot.pool(asker.pool());
            let choice = Choice {
                key_hash: hash_key(&asked.balance, head, changes, (peer, listener)),
                session: session_of(reactor, &snapshot, usize::from(asker.pool()), head),
            };
            let is_sensitive = is_sensitive(asked, head);
            auth_request::begin_auth_request(&mut exchange, asker, question, choice, is_sensitive);
        }
        self.insert_exchange(reactor, exchange);
    }

    /// Adds an exchange to the table, and picks a server unless its request has to wait. If the table is full, the
    /// request is refused.
    fn insert_exchange<R: Reactor>(&mut self, reactor: &mut R, exchange: Exchange) {
        let (to, is_ready) = (exchange.requester, exchange.stage == Stage::Queued);
        let pools = exchange.pools();
        match self.exchanges.insert(exchange) {
            Ok(id) => {
                self.set_running(to, Running::Proxy(id));
                self.accounts.counters.exchanges_now.add(1);
                for pool in pools {
                    self.pools[usize::from(pool)].exchanges += 1;
                }
                if is_ready {
                    self.dispatch_new(reactor, id);
                }
            }
            Err(mut exchange) => {
                self.recall_values(to, core::mem::take(&mut exchange.values));
                self.mirrors -= usize::from(exchange.copy.is_some());
                if let Some(hook) = &exchange.response_hook {
                    self.close_response_hook(**hook);
                }
                exchange.release(&mut self.buffers);
                let text = "the proxy is handling too many requests";
                self.answer_error(reactor, to, 503, text, true);
            }
        }
    }

    /// The Sec-WebSocket-Key for the server, if the request is an extended CONNECT; `None` for other requests.
    fn websocket_key(&mut self, head: &RequestHead<'_>) -> Option<ClientKey> {
        head.protocol?;
        let random = [self.prng.next_u64(), self.prng.next_u64()];
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random[0].to_le_bytes());
        bytes[8..].copy_from_slice(&random[1].to_le_bytes());
        Some(ClientKey::from_random(bytes))
    }

    /// Ends an exchange whose response is complete and whose request will not be forwarded any further. Keeps or
    /// closes the server's connection.
    pub(crate) fn end_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        more_follows: bool,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, pool, attempt) = (exchange.requester, exchange.pool, exchange.attempt);
        let is_done = exchange.request.is_done();
        let has_body = is_done && exchange.intake.bytes > 0 && !more_follows;
        // A server that responds before it has read the whole request may leave the rest unread.
        let is_sent = is_done && self.request_pending(reactor, attempt.up) == 0;
        let stays_open = self.stays_open(to);
        self.release_server(pool, attempt.server);
        let hook = self.take_body_hook(id);
        self.forget_exchange(id);
        let up = attempt.up.sock;
        if attempt.up.is_stream() {
            self.abandon_server(reactor, attempt.up);
        } else if attempt.keeps() && is_sent && !more_follows && !self.stopping {
            self.keep_idle(reactor, up, to, stays_open);
        } else if has_body {
            // A reset would destroy the part of the request body that the server has not read yet.
            self.close_upstream(reactor, up);
        } else {
            self.discard_upstream(reactor, up);
        }
        self.release_from_exchange(reactor, to, hook);
    }

    /// The server reads no more of a request whose response is complete. Does nothing in other stages.
    pub(crate) fn give_up_request<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        // The end of the response may have ended the exchange.
        let Some(exchange) = self.exchanges.find(id) else { return };
        if exchange.stage != Stage::ExpectRequestEnd {
            return;
        }
        let (to, pool, attempt) = (exchange.requester, exchange.pool, exchange.attempt);
        self.release_server(pool, attempt.server);
        let hook = self.take_body_hook(id);
        self.forget_exchange(id);
        self.abandon_server(reactor, attempt.up);
        self.release_from_exchange(reactor, to, hook);
    }

    /// Takes the hook on the body of a response that the server has completed.
    fn take_body_hook(&mut self, id: Id<Exchange>) -> Option<ExchangeHook> {
        self.exchanges.get_mut(id)?.body_hook.take()
    }

    /// Ends an exchange that no longer has a server. Sends `failure` to the client, or cuts off the response if its head has
    /// already been relayed.
    pub(crate) fn fail<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, failure: Failure) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if exchange.mirrored.is_some() {
            return self.fail_mirror(id, failure, reactor.now());
        }
        let (to, is_done) = (exchange.requester, exchange.has_whole_request());
        let is_tcp = exchange.facts.is_tcp;
        let pool = exchange.pool;
        let values = core::mem::take(&mut exchange.values);
        let hook = exchange.body_hook;
        self.recall_values(to, values);
        if let Some(hook) = hook {
            self.recall_scripted(hook.request);
        }
        self.note_pool(to, pool);
        self.blame(to, Cause::of_status(failure.status), failure.text);
        self.forget_exchange(id);
        if is_tcp {
            return self.end_switched(reactor, to);
        }
        match self.progress(to) {
            Progress::Expected if failure.is_overload => {
                let denial = Denial::new(failure.status, failure.text);
                let denial = Denial { retry_after: RETRY_SECONDS, ..denial };
                self.answer(reactor, to, &Answer::Denied(denial), !is_done);
            }
            Progress::Expected => {
                self.answer_error(reactor, to, failure.status, failure.text, !is_done);
            }
            Progress::Begun => self.cut_response(reactor, to),
            Progress::Ended => self.release_requester(reactor, to),
        }
    }

    /// Ends an exchange whose client disconnected or is no longer served. The upstream connection is reset,
    /// because it may be in the middle of the request or the response.
    pub(crate) fn cancel_exchange<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (pool, attempt, stage) = (exchange.pool, exchange.attempt, exchange.stage);
        if exchange.has_server() {
            self.release_server(pool, attempt.server);
            self.abandon_server(reactor, attempt.up);
        } else if stage == Stage::Queued {
            self.leave_queues(id);
        }
        self.forget_exchange(id);
    }

    /// Removes the exchange and returns its buffers.
    pub(crate) fn forget_exchange(&mut self, id: Id<Exchange>) {
        if let Some(mut exchange) = self.exchanges.remove(id) {
            self.paces.forget(exchange.pace.take());
            self.accounts.counters.exchanges_now.sub(1);
            for pool in exchange.pools() {
                self.pools[usize::from(pool)].exchanges -= 1;
            }
            if let Some(mirrored) = &exchange.mirrored {
                mirrored.end();
            }
            self.mirrors -= usize::from(exchange.copy.is_some() || exchange.mirrored.is_some());
            if let Some(hook) = &exchange.response_hook {
                self.close_response_hook(**hook);
            }
            if let Some(hook) = exchange.body_hook {
                self.forget_scripted(hook.request);
            }
            let hook = exchange.frames.take().and_then(|frames| frames.hook);
            self.lua.ended_tunnels.extend(hook.and_then(|hook| hook.end()));
            exchange.release(&mut self.buffers);
        }
    }
}

/// The authentication request about a request (`auth = { ask = ... }`): how to encode it, and its encoded head.
type AuthServer<'a> = (&'a AuthRequestEncoder, Vec<u8>);

/// The heads of a request and, if its route has `auth` with `ask`, of the authentication request, in pooled buffers.
fn encode<'a>(
    buffers: &mut BufferPool,
    head: &RequestHead<'_>,
    context: &RequestContext<'a>,
) -> Result<(Vec<u8>, Option<AuthServer<'a>>), ForwardFault> {
    let mut encoded = buffers.take();
    if let Err(fault) = forward::encode_upstream_request(&mut encoded, head, context) {
        buffers.put(encoded);
        return Err(fault);
    }
    let asks = context.changes.and_then(|changes| Some((changes.ask?, changes)));
    let Some((asker, changes)) = asks else { return Ok((encoded, None)) };
    let mut question = buffers.take();
    match asker.encode(&mut question, head, context, &changes) {
        Ok(()) => Ok((encoded, Some((asker, question)))),
        Err(fault) => {
            buffers.put(encoded);
            buffers.put(question);
            Err(fault)
        }
    }
}

/// The facts of a request that do not depend on its pool.
fn facts_of(
    head: &RequestHead<'_>,
    changes: Option<Changes<'_>>,
    Choice { key_hash, session }: Choice,
) -> RequestFacts {
    let has_connection = head.has(FieldName::Connection);
    RequestFacts {
        is_head: matches!(head.method, Method::Head),
        upgrades: forward::forwards_upgrade(head),
        connects: head.protocol.is_some(),
        is_idempotent: head.routed_method().is_idempotent(),
        authenticates: connection_auth::request_authenticates(head),
        // A trailer must not bring back a field that the route removes or sets.
        drops_trailers: changes.is_some_and(|changes| changes.changes_fields())
            || forward::names_fields(head.fields(), has_connection),
        key_hash,
        session,
        ..RequestFacts::NONE
    }
}

/// Whether the request has a field that HPACK must never index, and may be sent over HTTP/2.
fn is_sensitive(pool: &Pool, head: &RequestHead<'_>) -> bool {
    pool.may_speak_http2() && head.fields().any(|field| field.is_sensitive)
}

/// The session that the request's cookie names, if sessions of the pool stay with a server.
fn session_of<R: Reactor>(
    reactor: &R,
    snapshot: &Snapshot,
    pool: usize,
    head: &RequestHead<'_>,
) -> Option<ClientSession> {
    let sessions = snapshot.sessions.get(pool)?.as_ref()?;
    let session = sessions.session_of(head, reactor.unix_seconds())?;
    let server = snapshot.pool_lives.get(pool)?.servers.get(usize::from(session.server))?;
    Some(ClientSession { session, since: server.life.since })
}

/// The sticky key of the request (`sticky = { by = ... }` of the pool), if it has one.
fn sticky_key_of(
    snapshot: &Snapshot,
    (pool, listener): (u16, &Listener),
    context: &RequestContext<'_>,
    head: &RequestHead<'_>,
    scratch: &mut Vec<u8>,
) -> Option<u64> {
    let stays = snapshot.stays(pool)?;
    if let Some(changes) = context.changes {
        return stays.key_of(changes.values, scratch);
    }
    let values = Values {
        head,
        path: &MatchedPath::whole(head.path),
        peer: context.peer,
        trusted: &listener.trusted,
        scheme: context.scheme,
        server_name: None,
        allowed_origin: None,
        user: None,
        claims: None,
        identity: Identity::plain(0),
    };
    stays.key_of(&values, scratch)
}

/// The hash of the request's key for hash balancing; `None` if the request has no such key.
fn hash_key(
    balance: &Balance,
    head: &RequestHead<'_>,
    changes: Option<Changes<'_>>,
    (peer, listener): (Option<core::net::IpAddr>, &Listener),
) -> Option<u64> {
    let Balance::Hash(key) = balance else { return None };
    match key {
        HashKey::Path => Some(hash_bytes(head.path.as_bytes())),
        HashKey::Header(name) => {
            let set = changes.and_then(|changes| changes.hook_field(name));
            set.or_else(|| head.find_named(name)).map(hash_bytes)
        }
        HashKey::ClientAddress => {
            client_address(head, peer, &listener.trusted).map(|ip| match ip {
                core::net::IpAddr::V4(ip) => hash_bytes(&ip.octets()),
                core::net::IpAddr::V6(ip) => hash_bytes(&ip.octets()),
            })
        }
    }
}
