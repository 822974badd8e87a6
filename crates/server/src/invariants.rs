//! The invariants between two turns of a worker, and the reaction if one is broken.
//! In: the state of a worker. Out: in tests, a panic that names the broken invariant (`check_invariants`); in
//! production, a count (`bugs`) and a reset of the connections concerned, at the end of the turn.
//! Never: searches for broken invariants in production; the code reports those that it meets.

use tidegate_base::Id;
use tidegate_gate::access::Cause;
use tidegate_lua::Vm;
use tidegate_reactor::{Reactor, SockId};

use crate::action::Running;
use crate::action::lua::certificate::LuaChoice;
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::action::websocket::WebSocket;
use crate::carrier::http2::clients::Http2Clients;
use crate::carrier::http2::stream::Http2Stream;
use crate::carrier::internal_request::InternalRequests;
use crate::connection::{ClientCarrier, Connections, ServerCarrier};
use crate::paces::{BodyDirection, Pace};
use crate::record::NO_RECORD;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::settings::Settings;
use crate::worker::Worker;

/// Broken invariants.
impl Worker {
    /// Counts a broken invariant of this program. The end of the turn resets the connection that it concerns.
    /// State that is missing because of a peer or an earlier step is not a broken invariant.
    #[cold]
    #[track_caller]
    pub(crate) fn note_bug<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        if !self.conns.contains(sock) {
            reactor.abort(sock);
        }
        self.note_absent(sock);
    }

    /// As `note_bug`, without a reactor: state is missing that must exist as long as `sock` is open.
    #[cold]
    #[track_caller]
    pub(crate) fn note_absent(&mut self, sock: SockId) {
        self.accounts.counters.bugs.add(1);
        self.broken.push(sock);
        debug_assert!(false, "an invariant is broken at connection {sock:?}");
    }

    /// Whether an invariant was broken in this turn.
    pub(crate) fn has_broken(&self) -> bool {
        !self.broken.is_empty()
            || self.exchanges.has_missed()
            || self.synthetics.has_missed()
            || self.lua.requests.has_missed()
            || self.unverified.has_missed()
            || self.tarpits.has_missed()
            || self.websockets.sessions.has_missed()
            || self.lua.clients.has_missed()
            || self.push.sessions.has_missed()
    }

    /// Counts the missing state that was noted in this turn, and resets the connections that name it.
    #[cold]
    pub(crate) fn repair<R: Reactor>(&mut self, reactor: &mut R) {
        for id in self.exchanges.take_missed() {
            self.accounts.counters.bugs.add(1);
            self.find_users(Running::Proxy(id));
        }
        for id in self.synthetics.take_missed() {
            self.accounts.counters.bugs.add(1);
            self.find_users(Running::Synthetic(id));
        }
        for id in self.lua.requests.take_missed() {
            self.accounts.counters.bugs.add(1);
            self.find_users(Running::Lua(id));
        }
        for id in self.unverified.take_missed() {
            self.accounts.counters.bugs.add(1);
            self.find_users(Running::Unverified(id));
        }
        for id in self.tarpits.take_missed() {
            self.accounts.counters.bugs.add(1);
            self.find_users(Running::Tarpit(id));
        }
        for id in self.lua.clients.take_missed() {
            self.accounts.counters.bugs.add(1);
            let names = |socket: &&WebSocket| socket.lua_client() == Some(id);
            let users = self.websockets.sessions.iter().map(|(_, socket)| socket).filter(names);
            self.broken.extend(users.map(|socket| socket.requester().sock));
            self.abandon_in_vms(id);
        }
        for id in self.websockets.sessions.take_missed() {
            self.accounts.counters.bugs.add(1);
            self.find_users(Running::WebSocket(id));
        }
        for id in self.push.sessions.take_missed() {
            self.accounts.counters.bugs.add(1);
            self.find_users(Running::Push(id));
        }
        while let Some(sock) = self.broken.pop() {
            self.reset_broken(reactor, sock);
        }
        self.settle(reactor);
    }

    /// Adds the connections that name a missing action to `broken`.
    fn find_users(&mut self, running: Running) {
        for sock in self.conns.downstream_ids() {
            let Some(down) = self.conns.downstream(sock) else { continue };
            let names = match &down.carrier {
                ClientCarrier::Http1(http1) => http1.running() == running,
                ClientCarrier::Tcp(tcp) => tcp.running() == running,
                ClientCarrier::Http2(http2) => http2
                    .streams()
                    .iter()
                    .any(|id| self.http2_clients.get(*id).is_some_and(|s| s.running() == running)),
            };
            if names {
                self.broken.push(sock);
            }
        }
        for id in self.own.ids() {
            if self.own.running(id) == Some(running) {
                self.broken.push(Requester::own(id).sock);
            }
        }
        for sock in self.conns.upstream_ids() {
            if self.exchanges_on(sock).iter().any(|id| Running::Proxy(*id) == running) {
                self.broken.push(sock);
            }
        }
    }

    /// The exchanges that use a connection to a server.
    fn exchanges_on(&mut self, sock: SockId) -> Vec<Id<Exchange>> {
        let Some(up) = self.conns.upstream(sock) else { return Vec::new() };
        match &up.carrier {
            ServerCarrier::Http1(_) if up.exchange.is_none() => Vec::new(),
            ServerCarrier::Http1(_) => vec![up.exchange],
            ServerCarrier::Http2(http2) => {
                let streams = http2.streams().iter();
                streams
                    .filter_map(|id| self.http2_servers.get(*id))
                    .map(|stream| stream.exchange)
                    .collect()
            }
        }
    }

    /// Resets a connection whose state cannot be trusted, and the connection on the other side of its exchange.
    fn reset_broken<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        if let Some(id) = Requester::connection(sock).as_own() {
            return self.reset_own(reactor, id);
        }
        if let Some(up) = self.conns.upstream(sock) {
            let (pool, server) = (up.pool, up.server);
            for id in self.exchanges_on(sock) {
                let exchange = self.exchanges.find(id);
                if exchange.is_some_and(|exchange| exchange.mirrored.is_some()) {
                    self.cancel_exchange(reactor, id);
                    continue;
                }
                let client = exchange.map(|exchange| exchange.requester.sock);
                let is_own = |client| Requester::connection(client).as_own().is_some();
                match client.filter(|client| is_own(*client) || self.conns.contains(*client)) {
                    // Cancels the exchange, which resets this connection or its stream, too.
                    Some(client) => self.reset_broken(reactor, client),
                    None => self.release_server(pool, server),
                }
            }
            if self.conns.contains(sock) {
                self.discard_upstream(reactor, sock);
            }
        }
        if let Some(down) = self.conns.downstream(sock) {
            let is_known = match down.running() {
                Running::None => true,
                Running::Proxy(id) => self.exchanges.find(id).is_some(),
                Running::Synthetic(id) => self.synthetics.find(id).is_some(),
                Running::Lua(id) => self.lua.requests.find(id).is_some(),
                Running::Unverified(id) => self.unverified.find(id).is_some(),
                Running::Tarpit(id) => self.tarpits.find(id).is_some(),
                Running::WebSocket(id) => self.websockets.sessions.find(id).is_some(),
                Running::Push(id) => self.push.sessions.find(id).is_some(),
            };
            if !is_known {
                down.forget_action();
            }
            if let ClientCarrier::Http2(http2) = &down.carrier {
                for id in http2.streams().to_vec() {
                    self.forget_missing_action(id);
                }
            }
            self.blame_connection(sock, Cause::Bug, "an invariant of the proxy was broken");
            self.drop_client(reactor, sock);
        }
        reactor.abort(sock);
    }
}

impl Worker {
    /// Detaches a stream from its action if the action does not exist.
    fn forget_missing_action(&mut self, id: Id<Http2Stream>) {
        let Some(stream) = self.http2_clients.get_mut(id) else { return };
        let is_known = match stream.running() {
            Running::None => true,
            Running::Proxy(id) => self.exchanges.find(id).is_some(),
            Running::Synthetic(id) => self.synthetics.find(id).is_some(),
            Running::Lua(id) => self.lua.requests.find(id).is_some(),
            Running::Unverified(id) => self.unverified.find(id).is_some(),
            Running::Tarpit(id) => self.tarpits.find(id).is_some(),
            Running::WebSocket(id) => self.websockets.sessions.find(id).is_some(),
            Running::Push(id) => self.push.sessions.find(id).is_some(),
        };
        if !is_known {
            stream.set_action(Running::None);
        }
    }
}

/// Whatever a worker records in two places must agree.
impl Worker {
    /// Panics if an invariant is broken. For tests, between two turns: it examines everything.
    pub fn check_invariants<R: Reactor>(&mut self, reactor: &R) {
        assert!(self.work.is_empty(), "work is left after a turn");
        assert!(!self.sampler.is_timing(), "a handler call is still being timed");
        assert!(!self.has_broken(), "an invariant is broken and was not repaired");
        self.check_exchanges();
        self.check_requesters();
        self.check_paces();
        self.check_mirrors();
        self.check_websockets();
        self.check_push();
        self.check_clients();
        self.check_streams();
        self.check_servers();
        self.check_pools();
        self.check_records();
        self.check_settings();
        assert!(
            self.lua.apps.sum(Vm::open_sockets) <= self.own.sockets(),
            "a socket of a VM without a server"
        );
        let (open, users) = (self.lua.apps.sum(Vm::open_datagram_sockets), self.datagrams.len());
        assert!(
            open + self.lookups.sockets() <= users,
            "a socket for datagrams of a VM that is not open"
        );
        assert_eq!(users, reactor.datagram_socket_count(), "sockets for datagrams");
        assert_eq!(self.lookups.len(), self.lookups.sockets(), "sockets of lookups");
        let counters = &self.accounts.counters;
        let gauges = [
            &counters.exchanges_now,
            &counters.downstream_now,
            &counters.upstream_now,
            &counters.websockets_now,
        ];
        let (clients, servers) = (self.conns.downstream_count(), self.conns.upstream_count());
        let counts = [self.exchanges.len(), clients, servers, self.websockets.sessions.len()];
        assert_eq!(gauges.map(|gauge| gauge.load()), counts.map(|count| count as u64), "gauges");
        assert!(clients + servers <= reactor.sock_count(), "a connection without a socket");
    }

    /// Each exchange and its requester name each other, and so do the exchange and its server's connection.
    fn check_exchanges(&mut self) {
        let queued: Vec<Id<Exchange>> = self
            .pools
            .iter()
            .map(|pool| &pool.queue)
            .chain([self.eviction.waits.held()])
            .flat_map(|queue| core::iter::successors(queue.front(), |id| queue.after(*id)))
            .collect();
        for (id, exchange) in self.exchanges.iter() {
            let (stage, up) = (exchange.stage, exchange.attempt.up);
            let running =
                running_of((&mut self.conns, &self.http2_clients, &self.own), exchange.requester);
            let expected = exchange.mirrored.is_none().then_some(Running::Proxy(id));
            assert_eq!(running, expected, "the requester of a {stage:?} exchange");
            let places = queued.iter().filter(|other| **other == id).count();
            assert_eq!(places, usize::from(stage == Stage::Queued), "{stage:?} in queues");
            let request = &exchange.request;
            if let Some(auth_request) = &exchange.auth_request {
                assert!(
                    request.is_done() && request.body().is_empty(),
                    "an authentication request with a body"
                );
                assert!(auth_request.request.is_replayable(), "a request that waits for an answer");
                assert_ne!(
                    stage,
                    Stage::Authorizing,
                    "an authentication request and a password check"
                );
            }
            match stage {
                Stage::Authorizing | Stage::Buffering | Stage::Queued | Stage::Paused => {
                    assert!(up.is_none(), "a {stage:?} exchange has a connection");
                    assert!(request.is_replayable(), "a {stage:?} request is not kept");
                }
                Stage::Connecting
                | Stage::ExpectResponse
                | Stage::ExpectBody
                | Stage::ExpectRequestEnd
                | Stage::Tunnel => {
                    let conn = self.conns.upstream(up.sock);
                    let conn = conn.map(|up| (up.exchange, up.pool, up.server));
                    let stream = self.http2_servers.get(up.stream);
                    let named = stream.map_or(id, |stream| stream.exchange);
                    assert_eq!(named, id, "the stream of a {stage:?} exchange");
                    let is_tunnel = stream.is_some_and(|stream| stream.is_tunnel());
                    let stands_alone = !up.is_stream() && stage == Stage::Tunnel;
                    assert_eq!(is_tunnel || stands_alone, stage == Stage::Tunnel, "a tunnel");
                    let own = if up.is_stream() { Id::NONE } else { id };
                    let expected = (own, exchange.pool, exchange.attempt.server);
                    // A complete response may wait for its client longer than its connection lasts.
                    if !stream.is_some_and(|stream| stream.is_response_done()) {
                        assert_eq!(conn, Some(expected), "the connection of a {stage:?} exchange");
                    }
                }
            }
            match stage {
                Stage::Authorizing => {
                    assert!(exchange.is_new() && exchange.authorization.is_some());
                }
                Stage::Buffering => assert!(exchange.is_new() && !request.is_done()),
                Stage::Queued => {}
                Stage::Paused => {
                    assert!(exchange.attempts.needs_fresh() && exchange.attempts.tried().is_empty())
                }
                Stage::Connecting => assert!(!exchange.attempt.has_response()),
                Stage::ExpectResponse => {}
                Stage::ExpectBody | Stage::Tunnel => assert!(exchange.attempt.has_response()),
                Stage::ExpectRequestEnd => {
                    assert!(exchange.attempt.has_response());
                    assert!(up.is_stream() || !request.is_done(), "a request that is sent");
                }
            }
        }
        for id in queued {
            assert!(self.exchanges.find(id).is_some(), "{id:?} is queued and does not exist");
        }
    }

    /// Whatever actions other than `proxy` have in progress belongs to requesters that refer to it.
    fn check_requesters(&mut self) {
        for (id, response) in self.synthetics.iter() {
            let running =
                running_of((&mut self.conns, &self.http2_clients, &self.own), response.requester());
            assert_eq!(running, Some(Running::Synthetic(id)), "the requester of a response");
        }
        for (id, request) in self.lua.requests.iter() {
            let running =
                running_of((&mut self.conns, &self.http2_clients, &self.own), request.requester());
            let action = request.exchange().map_or(Running::Lua(id), Running::Proxy);
            assert_eq!(running, Some(action), "the requester of an application");
        }
        for (id, request) in self.unverified.iter() {
            let running =
                running_of((&mut self.conns, &self.http2_clients, &self.own), request.requester());
            assert_eq!(
                running,
                Some(Running::Unverified(id)),
                "the requester of an unverified request"
            );
        }
        for (id, request) in self.tarpits.iter() {
            let running =
                running_of((&mut self.conns, &self.http2_clients, &self.own), request.requester());
            assert_eq!(running, Some(Running::Tarpit(id)), "the requester of a tarpit");
        }
        for id in self.own.ids() {
            let Some(Running::Proxy(exchange)) = self.own.running(id) else {
                panic!("{id:?} has no exchange");
            };
            let requester = self.exchanges.find(exchange).map(|exchange| exchange.requester);
            assert_eq!(requester, Some(Requester::own(id)), "the exchange of an own request");
        }
        self.check_body_hooks();
        self.lua.apps.check_broadcasts();
        let kept = self.lua.requests.len() + self.kept_for_responses();
        assert_eq!(kept, self.lua.apps.sum(Vm::requests), "requests that VMs keep");
        assert_eq!(self.hooked_tunnels(), self.lua.apps.sum(Vm::tunnels), "tunnels that VMs keep");
        assert!(
            self.lua.ended_tunnels.is_empty(),
            "a VM was not notified of the end of its tunnel"
        );
        assert!(self.lua.response_hook.is_none(), "a hook without an exchange");
        let mut in_vms = 0;
        for (id, client) in self.lua.clients.iter() {
            assert!(
                self.websockets.sessions.find(client.websocket()).is_some(),
                "the connection of {id:?}"
            );
            in_vms += usize::from(client.is_in_vm());
        }
        assert_eq!(in_vms, self.lua.apps.sum(Vm::clients), "clients that VMs keep");
    }

    /// The copies of requests are counted, and each one that is on its way has a connection.
    fn check_mirrors(&self) {
        let mut copies = 0;
        for (_, exchange) in self.exchanges.iter() {
            assert!(exchange.mirrored.is_none() || exchange.has_server(), "a copy that waits");
            copies += usize::from(exchange.copy.is_some() || exchange.mirrored.is_some());
        }
        assert_eq!(self.mirrors, copies, "copies of requests");
    }

    /// Each body that waits for its bandwidth has a turn, and each turn belongs to such a body.
    fn check_paces(&self) {
        let exchanges = self.exchanges.iter().filter_map(|(_, exchange)| exchange.pace.as_deref());
        let synthetics = self.synthetics.iter().filter_map(|(_, response)| response.pace());
        let waits = |pace: &Pace| {
            usize::from(pace.waits(BodyDirection::Down))
                + usize::from(pace.waits(BodyDirection::Up))
        };
        let waiting: usize = exchanges.chain(synthetics).map(waits).sum();
        assert_eq!(self.paces.len(), waiting, "bodies that wait for their bandwidth");
    }

    /// Each stream is listed by its connection. The action that it names exists and names the stream.
    fn check_streams(&mut self) {
        let mut listed = 0;
        for sock in self.conns.downstream_ids() {
            let Some(down) = self.conns.downstream(sock) else { panic!("{sock:?} is listed") };
            let ClientCarrier::Http2(http2) = &down.carrier else { continue };
            assert!(!http2.is_gathering(), "output is gathered after the end of the turn");
            listed += http2.streams().len();
            http2.check_streams_max();
            http2.check_streams();
            for &id in http2.streams() {
                let Some(stream) = self.http2_clients.get(id) else {
                    panic!("{id:?} does not exist")
                };
                let to = Requester { sock, stream: id };
                let requester = match stream.running() {
                    Running::None => to,
                    Running::Proxy(id) => match self.exchanges.find(id) {
                        Some(exchange) => exchange.requester,
                        None => panic!("{to:?} names an exchange that does not exist"),
                    },
                    Running::Synthetic(id) => match self.synthetics.find(id) {
                        Some(response) => response.requester(),
                        None => panic!("{to:?} names a response that does not exist"),
                    },
                    Running::Lua(id) => match self.lua.requests.find(id) {
                        Some(request) => request.requester(),
                        None => panic!("{to:?} names a scripted request that does not exist"),
                    },
                    Running::Unverified(id) => match self.unverified.find(id) {
                        Some(request) => request.requester(),
                        None => panic!("{to:?} names an unverified request that does not exist"),
                    },
                    Running::Tarpit(id) => match self.tarpits.find(id) {
                        Some(request) => request.requester(),
                        None => panic!("{to:?} names a tarpit that does not exist"),
                    },
                    Running::WebSocket(id) => match self.websockets.sessions.find(id) {
                        Some(socket) => socket.requester(),
                        None => panic!("{to:?} names a WebSocket that does not exist"),
                    },
                    Running::Push(id) => match self.push.sessions.find(id) {
                        Some(session) => session.requester(),
                        None => panic!("{to:?} names a session that does not exist"),
                    },
                };
                assert_eq!(requester, to, "the action of a stream belongs to another stream");
            }
        }
        assert_eq!(listed, self.http2_clients.len(), "streams without a connection");
    }

    /// Each WebSocket and its requester name each other. Each place in `actives` belongs to one of them.
    fn check_websockets(&mut self) {
        let mut places = Vec::new();
        for (id, socket) in self.websockets.sessions.iter() {
            let running =
                running_of((&mut self.conns, &self.http2_clients, &self.own), socket.requester());
            assert_eq!(running, Some(Running::WebSocket(id)), "the requester of a WebSocket");
            places.extend(socket.place());
        }
        assert!(
            places.iter().all(|place| self.websockets.actives.is_taken(*place)),
            "a WebSocket has a free place"
        );
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), self.websockets.actives.len(), "places of WebSockets");
    }

    /// Each session and its requester name each other. Each subscription belongs to a session or a WebSocket.
    fn check_push(&mut self) {
        for (id, session) in self.push.sessions.iter() {
            let running =
                running_of((&mut self.conns, &self.http2_clients, &self.own), session.requester());
            let expected = session.socket().map_or(Running::Push(id), Running::WebSocket);
            assert_eq!(running, Some(expected), "the requester of a session");
            let socket = session.socket().and_then(|socket| self.websockets.sessions.find(socket));
            let named = socket.and_then(|socket| socket.session());
            assert_eq!(named, session.socket().map(|_| id), "the WebSocket of a session");
        }
        let sockets =
            self.websockets.sessions.iter().filter(|(_, socket)| socket.is_subscribed()).count();
        let sessions: usize =
            self.push.sessions.iter().map(|(_, session)| session.subscriptions()).sum();
        assert_eq!(self.push.subscriptions(), sockets + sessions, "subscriptions");
        let clients = self.push.sessions.iter().filter(|(_, session)| session.is_client()).count();
        assert!(
            self.push.clients() <= clients,
            "the hub lists more clients than there are sessions of clients"
        );
        let has_ages = self.push.has_ages_only_of(&self.push.sessions, &self.websockets.sessions);
        assert!(has_ages, "the age of a connection that has ended");
        assert!(
            self.push.has_waiting_commands_only_of(&self.push.sessions),
            "commands without a session"
        );
        assert!(
            self.push.has_consistent_calls(&self.push.sessions, (&self.own, &self.lua.events)),
            "calls without a session"
        );
        let gauge = self.accounts.counters.push_subscriptions_now.load();
        assert_eq!(gauge, self.push.subscriptions() as u64, "the gauge of subscriptions");
    }

    /// The action that a client names exists and names the client.
    fn check_clients(&mut self) {
        for sock in self.conns.downstream_ids() {
            let Some(down) = self.conns.downstream(sock) else { panic!("{sock:?} is listed") };
            let kept = down.facts.as_deref().and_then(|facts| facts.kept());
            let choice = down.facts.as_deref().and_then(|facts| facts.choice());
            let requester = match down.running() {
                Running::None => sock,
                Running::Proxy(id) => match self.exchanges.find(id) {
                    Some(exchange) => exchange.requester.sock,
                    None => panic!("{sock:?} names an exchange that does not exist"),
                },
                Running::Synthetic(id) => match self.synthetics.find(id) {
                    Some(response) => response.requester().sock,
                    None => panic!("{sock:?} names a response that does not exist"),
                },
                Running::Lua(id) => match self.lua.requests.find(id) {
                    Some(request) => request.requester().sock,
                    None => panic!("{sock:?} names a scripted request that does not exist"),
                },
                Running::Unverified(id) => match self.unverified.find(id) {
                    Some(request) => request.requester().sock,
                    None => panic!("{sock:?} names an unverified request that does not exist"),
                },
                Running::Tarpit(id) => match self.tarpits.find(id) {
                    Some(request) => request.requester().sock,
                    None => panic!("{sock:?} names a tarpit that does not exist"),
                },
                Running::WebSocket(id) => match self.websockets.sessions.find(id) {
                    Some(socket) => socket.requester().sock,
                    None => panic!("{sock:?} names a WebSocket that does not exist"),
                },
                Running::Push(id) => match self.push.sessions.find(id) {
                    Some(session) => session.requester().sock,
                    None => panic!("{sock:?} names a session that does not exist"),
                },
            };
            assert_eq!(requester, sock, "the action of a client belongs to another client");
            if let Some(kept) = kept {
                let owner = self.conns.upstream(kept).map(|up| up.owner);
                assert_eq!(owner, Some(sock), "the owner of the connection kept for a client");
            }
            let choice = choice.map(|id| self.lua.choices.get(id).map(LuaChoice::sock));
            assert!(choice.is_none_or(|of| of == Some(sock)), "the handshake of another client");
        }
        for (id, choice) in self.lua.choices.iter() {
            let facts = self.conns.downstream(choice.sock()).and_then(|down| down.facts.as_deref());
            let named = facts.and_then(|facts| facts.choice());
            assert_eq!(named, Some(id), "a handshake of a client that has left");
        }
    }

    /// Each connection to a server has an exchange, an owner, or a place in the pool's idle list.
    fn check_servers(&mut self) {
        let mut attached = 0;
        let mut idle = self.pools.iter().map(|pool| pool.idle.len()).sum::<usize>();
        let mut kept: Vec<Vec<u32>> = self.pools.iter().map(|pool| pool.kept.clone()).collect();
        for sock in self.conns.upstream_ids() {
            let Some(up) = self.conns.upstream(sock) else { panic!("{sock:?} is listed") };
            let (pool, server) = (usize::from(up.pool), usize::from(up.server));
            let (id, owner, input) = (up.exchange, up.owner, up.held_input_bytes());
            if let ServerCarrier::Http2(http2) = &up.carrier {
                attached += usize::from(!http2.is_idle());
                assert!(!http2.is_gathering(), "requests are gathered after the end of the turn");
                http2.check_streams();
                for &stream in http2.streams() {
                    let exchange = self.http2_servers.exchange(stream);
                    let exchange = exchange.and_then(|id| self.exchanges.find(id));
                    let used = exchange.map(|exchange| exchange.attempt.up);
                    assert_eq!(used, Some(Responder { sock, stream }), "the exchange of a stream");
                }
                let streams = http2.streams().len() as u32;
                let shared = self.pools[pool].shared.connections(server);
                let counted = shared.filter(|(other, _)| *other == sock).map(|(_, count)| count);
                assert!(counted.into_iter().all(|count| count == streams), "requests of {sock:?}");
                continue;
            }
            if !id.is_none() {
                attached += 1;
                assert!(owner.is_none(), "a connection in use has an owner");
                let used = self.exchanges.find(id).map(|exchange| exchange.attempt.up);
                let own = Responder::connection(sock);
                assert_eq!(used, Some(own), "the exchange of a connection to a server");
                continue;
            }
            assert_eq!(input, 0, "an idle connection to a server holds input");
            let lists = self.pools[pool].idle.ids(server).filter(|other| *other == sock).count();
            if owner.is_none() {
                assert_eq!(lists, 1, "an idle connection is in the list of its server");
                idle -= 1;
                continue;
            }
            assert_eq!(lists, 0, "a kept connection is in no list");
            let facts = self.conns.downstream(owner).and_then(|down| down.facts.as_deref());
            assert_eq!(facts.and_then(|facts| facts.kept()), Some(sock), "the owner's connection");
            kept[pool][server] -= 1;
        }
        assert_eq!(attached, self.conns.attached_count(), "connections to servers in use");
        assert_eq!(idle, 0, "idle lists name connections that do not exist");
        assert!(kept.iter().flatten().all(|count| *count == 0), "kept connections: {kept:?}");
    }

    /// Each record belongs to exactly one requester.
    fn check_records(&mut self) {
        let mut named: Vec<u32> = self.http2_clients.iter().map(Http2Stream::record).collect();
        for sock in self.conns.downstream_ids() {
            named.extend(self.conns.downstream(sock).map(|down| down.record()));
        }
        named.extend(self.own.ids().into_iter().map(|id| self.own.record(id)));
        named.retain(|record| *record != NO_RECORD);
        named.sort_unstable();
        assert_eq!(named, self.recorder.open_records(), "the records that requesters name");
    }

    /// Each generation of settings counts its users, and a request has that of its requester.
    fn check_settings(&mut self) {
        let mut users = Default::default();
        for sock in self.conns.downstream_ids() {
            if let Some(down) = self.conns.downstream(sock) {
                Settings::count_user(&mut users, down.era());
            }
        }
        for stream in self.http2_clients.iter() {
            Settings::count_user(&mut users, stream.era);
        }
        assert_eq!(users, self.settings.users(), "users of the generations of settings");
        let mut of_listeners = vec![0; self.listening.users.len()];
        for sock in self.conns.downstream_ids() {
            if let Some(down) = self.conns.downstream(sock) {
                of_listeners[usize::from(down.listener)] += 1;
            }
        }
        assert_eq!(of_listeners, self.listening.users, "connections of the listeners");
        let clients = self.conns.downstream_ids().into_iter();
        let held = clients.filter(|sock| self.listening.held_places.has(*sock)).count();
        assert_eq!(held, self.listening.held_places.len(), "places of connections");
        let eras: Vec<_> =
            self.exchanges.iter().map(|(_, exchange)| (exchange.era, exchange.requester)).collect();
        for (era, requester) in eras {
            assert_eq!(era, self.era_of(requester), "the settings of a request");
        }
    }

    /// The counts of the pools agree with the exchanges and the lists.
    fn check_pools(&self) {
        let mut in_use: Vec<Vec<u32>> =
            self.pools.iter().map(|pool| vec![0; pool.state.len()]).collect();
        let mut held = vec![0; self.pools.len()];
        let mut requests = vec![0; self.pools.len()];
        for (_, exchange) in self.exchanges.iter() {
            for pool in exchange.pools() {
                requests[usize::from(pool)] += 1;
            }
        }
        for (_, exchange) in self.exchanges.iter().filter(|(_, exchange)| exchange.has_server()) {
            in_use[usize::from(exchange.pool)][usize::from(exchange.attempt.server)] += 1;
        }
        for id in core::iter::successors(self.eviction.waits.held().front(), |id| {
            self.eviction.waits.held().after(*id)
        }) {
            if let Some(exchange) = self.exchanges.find(id) {
                held[usize::from(exchange.pool)] += 1;
            }
        }
        for (at, pool) in self.pools.iter().enumerate() {
            assert!(!pool.unserved, "a queue was not served");
            assert_eq!(pool.exchanges, requests[at], "requests of pool {at}");
            assert_eq!(pool.held, held[at], "first requests of pool {at} that wait");
            let entries = self.eviction.waits.count_pool(at);
            assert_eq!(entries, usize::from(pool.is_short), "pool {at} in short_pools");
            let waits = pool.is_short || pool.found_no_room || pool.held > 0;
            assert!(
                self.eviction.waits.is_timer_set() || !waits,
                "pool {at} waits for room without a timer"
            );
            for (server, counted) in in_use[at].iter().enumerate() {
                assert_eq!(pool.state.in_use(server), *counted, "server {server} of pool {at}");
                let connections = *counted as usize + pool.idle.count(server);
                let has_permits = connections <= pool.state.permits(server) as usize;
                let is_free = pool.state.is_over(server) || !pool.state.is_limited_at(server);
                assert!(has_permits || is_free, "permits of {server}");
            }
        }
    }
}

/// The action that the carrier of a requester names.
fn running_of(
    (conns, streams, own): (&mut Connections, &Http2Clients, &InternalRequests),
    to: Requester,
) -> Option<Running> {
    match (to.is_stream(), to.as_own()) {
        (true, _) => streams.get(to.stream).map(Http2Stream::running),
        (false, None) => conns.downstream(to.sock).map(|down| down.running()),
        (false, Some(id)) => own.running(id),
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddr};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;
    use std::sync::Arc;

    use tidegate_base::{Address, Span};
    use tidegate_reactor::{Faults, SimNet, SimPeer, SimReactor, SimServer};

    use super::*;
    use crate::apps::{self, Meter};
    use crate::counters::Accounts;
    use crate::{Leftovers, Snapshot, WorkerLimits};

    const CONFIG: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\npath = \"/s\"\n\
        synthetic = true\n[[route]]\nproxy = \"p\"\n[pool.p]\nservers = [\"10.0.0.2:80\"]\n";

    struct Setup {
        worker: Worker,
        reactor: SimReactor,
        net: SimNet,
        server: SimServer,
        client: SimPeer,
    }

    /// A worker that serves the request `GET {target}`.
    fn serve(target: &str) -> Setup {
        serve_with(CONFIG, &format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    /// A worker with this configuration that serves a request.
    fn serve_with(config: &str, request: &str) -> Setup {
        let at = |last| Address::Tcp(SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), 80)));
        let net = SimNet::new(1, Faults::none());
        let server = net.serve(&at(2)).expect("the address is free");
        let config = tidegate_config::parse(config, "the test").expect("it is valid");
        let scripts = apps::read(&config).expect("they are readable");
        let snapshot = Rc::new(Snapshot::new(config, vec![vec![vec![at(2)]]]));
        let limits = WorkerLimits { exchanges_max: 16, workers: 1, steer_by_cpu: false };
        let mut worker = Worker::new(snapshot, Arc::new(Accounts::default()), limits, 1);
        let mut reactor = SimReactor::new(&net, 32);
        assert!(worker.load_apps(&scripts, Meter::Instructions(100_000), 0, 1).is_ok());
        assert!(worker.listen(&mut reactor).is_ok());
        let client = net.dial(&at(1)).expect("the worker listens");
        client.send(request.as_bytes());
        let mut setup = Setup { worker, reactor, net, server, client };
        setup.turns();
        setup
    }

    impl Setup {
        fn turns(&mut self) {
            for _ in 0..10 {
                self.worker.turn(&mut self.reactor, Span::ZERO);
                self.worker.check_invariants(&self.reactor);
                self.net.advance_by(Span::from_millis(1));
            }
        }

        fn bugs(&self) -> u64 {
            self.worker.accounts.counters.bugs.load()
        }
    }

    /// Calls `misuse`, which panics in debug builds.
    fn misuse<T>(misuse: impl FnOnce() -> T) {
        let _ = catch_unwind(AssertUnwindSafe(misuse));
    }

    #[test]
    fn connections_of_a_missing_exchange_are_counted_and_reset() {
        let mut setup = serve("/");
        let upstream = setup.server.accept().expect("the request was sent");
        assert_eq!((setup.worker.leftovers().connections, setup.bugs()), (2, 0));
        let (id, _) = setup.worker.exchanges.iter().next().expect("an exchange");
        setup.worker.forget_exchange(id);
        assert!(setup.worker.exchanges.find(id).is_none() && !setup.worker.has_broken());
        misuse(|| setup.worker.exchanges.get_mut(id).is_none());
        setup.turns();
        assert_eq!((setup.worker.leftovers(), setup.bugs()), (Leftovers::default(), 1));
        assert!(setup.client.was_reset() && upstream.was_reset());
    }

    #[test]
    fn client_of_a_missing_response_is_counted_and_reset() {
        let mut setup = serve("/s?t=10000");
        let (id, _) = setup.worker.synthetics.iter().next().expect("a response");
        setup.worker.synthetics.remove(id);
        misuse(|| setup.worker.synthetics.remove(id).is_none());
        setup.turns();
        assert_eq!((setup.worker.leftovers(), setup.bugs()), (Leftovers::default(), 1));
        assert!(setup.client.was_reset());
    }

    #[test]
    fn connection_of_a_missing_lua_client_is_counted_and_reset() {
        let config = "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nlua = \"s\"\n\
            [lua.s]\nscript = \"tests/scripts/socket.lua\"\n\
            [pool.p]\nservers = [\"10.0.0.2:80\"]\n";
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let mut setup = serve_with(config, request);
        let (id, _) = setup.worker.lua.clients.iter().next().expect("a client");
        setup.worker.lua.clients.remove(id);
        misuse(|| setup.worker.lua.clients.get_mut(id).is_none());
        setup.turns();
        assert_eq!((setup.worker.leftovers(), setup.bugs()), (Leftovers::default(), 1));
        assert!(setup.client.was_reset());
    }

    #[test]
    fn both_sides_of_a_broken_connection_are_reset() {
        for is_upstream in [false, true] {
            let mut setup = serve("/");
            let upstream = setup.server.accept().expect("the request was sent");
            let conns = &mut setup.worker.conns;
            let socks = if is_upstream { conns.upstream_ids() } else { conns.downstream_ids() };
            misuse(|| setup.worker.note_bug(&mut setup.reactor, socks[0]));
            setup.turns();
            assert_eq!((setup.worker.leftovers(), setup.bugs()), (Leftovers::default(), 1));
            assert!(setup.client.was_reset() && upstream.was_reset(), "{is_upstream}");
        }
    }
}
