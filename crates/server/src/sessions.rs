//! The connections of clients and their exchanges, as the admin interface lists and ends them.
//! In: a filter or the id of a connection; the state of the worker. Out: copies of their data.
//! Never: names a connection that has ended: ids carry generations. Copies more than `TEXT_BYTES_MAX` of a request.
//! Limits: those of `inspection.rs`; a filter reports how many sessions are copied, and the others are counted.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use tidegate_base::{Id, Moment, Span};
use tidegate_gate::access::Cause;
use tidegate_reactor::{Peer, Reactor, SockId};

use crate::action::Running;
use crate::action::proxy::Failure;
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::carrier::http1::client::Phase;
use crate::carrier::http2::server_stream::ServerStream;
use crate::connection::{ClientCarrier, Downstream, ServerCarrier, Side, Upstream};
use crate::inspection::{FOUND_PER_TURN_MAX, SLOTS_PER_TURN_MAX, Walk};
use crate::requester::Requester;
use crate::worker::Worker;

/// Bytes of the request target in a list.
const TEXT_BYTES_MAX: usize = 512;
/// The reason in the access log.
const ENDED: &str = "an operator ended the connection";
/// The same for a request that gets a response.
const ENDED_SERVER: &str = "an operator ended the exchanges of the server";

/// Names a connection of the process, or a stream of one: `0.12.5`, `0.12.5/3`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionId {
    /// The number of the worker.
    pub worker: usize,
    /// The socket.
    pub sock: SockId,
    /// The number of the stream; `None`: the connection itself.
    pub stream: Option<u32>,
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.worker, self.sock.index, self.sock.generation)?;
        match self.stream {
            Some(stream) => write!(f, "/{stream}"),
            None => Ok(()),
        }
    }
}

impl FromStr for ConnectionId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (sock, stream) = match text.split_once('/') {
            Some((sock, stream)) => (sock, Some(stream.parse().map_err(drop)?)),
            None => (text, None),
        };
        let mut parts = sock.split('.');
        let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok()).ok_or(());
        let (worker, index, generation) = (number()?, number()?, number()?);
        match parts.next() {
            Some(_) => Err(()),
            None => {
                Ok(Self { worker: worker as usize, sock: SockId::new(index, generation), stream })
            }
        }
    }
}

/// Which sessions are listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// Also connections without a request in progress.
    pub has_idle: bool,
    /// Maximum number of sessions that are copied.
    pub limit: usize,
    /// The name of the listener.
    pub listener: Option<String>,
    /// The name of the route.
    pub route: Option<String>,
    /// The name of the pool, or the pool and the server as POOL/SERVER.
    pub server: Option<String>,
    /// The address of the client.
    pub client: Option<IpAddr>,
    /// Requests that began at least this long ago.
    pub older: Option<Span>,
}

/// The result of a worker.
#[derive(Default, Debug)]
pub struct Sessions {
    /// In the order of their slots.
    pub sessions: Vec<Session>,
    /// How many more match.
    pub left_out: u64,
    /// The connection to a server, if one was requested.
    pub server: Option<ServerConnection>,
}

/// A connection of a client, and one of its exchanges.
#[derive(Debug)]
pub struct Session {
    /// The connection, and the stream of the exchange.
    pub id: ConnectionId,
    /// The client.
    pub client: Peer,
    /// The name of the listener.
    pub listener: String,
    /// The protocol: `http1`, `http2` or `tcp`.
    pub protocol: &'static str,
    /// The state of the connection or the exchange.
    pub state: &'static str,
    /// Requests of the connection so far.
    pub requests: u32,
    /// Bytes that the client has not taken.
    pub unsent: usize,
    /// How long until the deadline of the connection; `None`: it has none.
    pub deadline: Option<Span>,
    /// The request; `None`: nothing is in progress, or nothing is recorded.
    pub exchange: Option<Described>,
}

/// The facts about a request in progress.
#[derive(Default, Debug)]
pub struct Described {
    /// How long ago its head was complete.
    pub age: Span,
    /// The method, the host and the target, if they are known. A part of a long target.
    pub request: [String; 3],
    /// The name of the route.
    pub route: Option<String>,
    /// The pool and the server.
    pub server: Option<(String, String)>,
    /// The connection to the server.
    pub server_connection: Option<ConnectionId>,
    /// How often a server was chosen.
    pub attempts: u32,
    /// The status of the response; 0 before it.
    pub status: u16,
    /// Bytes of the request body and of the response.
    pub bytes: (u64, u64),
}

/// A connection to a server.
#[derive(Debug)]
pub struct ServerConnection {
    /// The connection.
    pub id: ConnectionId,
    /// The pool and the server.
    pub server: (String, String),
    /// The protocol: `http1` or `http2`.
    pub protocol: &'static str,
    /// Requests sent over it so far.
    pub requests: u32,
    /// Exchanges that use it.
    pub exchanges: usize,
}

impl Stage {
    /// The name in lists.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Authorizing => "authorizing",
            Self::Buffering => "request",
            Self::Queued => "queue",
            Self::Paused => "retry",
            Self::Connecting => "connect",
            Self::ExpectResponse => "server",
            Self::ExpectBody => "response",
            Self::ExpectRequestEnd => "request",
            Self::Tunnel => "tunnel",
        }
    }
}

impl Upstream {
    /// The streams of the connection; `None` if the server speaks HTTP/1.
    fn http2_streams(&self) -> Option<&[Id<ServerStream>]> {
        match &self.carrier {
            ServerCarrier::Http1(_) => None,
            ServerCarrier::Http2(http2) => Some(http2.streams()),
        }
    }
}

/// Lists.
impl Worker {
    /// Examines further slots. Returns whether all were examined.
    pub(crate) fn list_sessions<R: Reactor>(
        &self,
        reactor: &R,
        filter: &Filter,
        walk: &mut Walk,
    ) -> bool {
        let mut described = 0;
        let last = self.conns.slots_used().min(walk.slot + SLOTS_PER_TURN_MAX);
        while walk.slot < last {
            // Sessions that the filter excludes, or that exceed the limit, take the same time.
            if described >= FOUND_PER_TURN_MAX {
                return false;
            }
            if let Some((sock, Side::Client(down))) = self.conns.in_slot(walk.slot) {
                described += self.note_sessions(reactor, (sock, down), filter, &mut walk.found);
            }
            walk.slot += 1;
        }
        walk.slot >= self.conns.slots_used()
    }

    /// All that is known about a connection.
    pub(crate) fn look_up_connection<R: Reactor>(&self, reactor: &R, id: ConnectionId) -> Sessions {
        let mut found = Sessions::default();
        match self.conns.in_slot(id.sock.index as usize) {
            Some((sock, Side::Client(down))) if sock == id.sock => {
                let all = Filter {
                    has_idle: true,
                    limit: usize::MAX,
                    listener: None,
                    route: None,
                    server: None,
                    client: None,
                    older: None,
                };
                self.note_sessions(reactor, (sock, down), &all, &mut found);
                if id.stream.is_some() {
                    found.sessions.retain(|session| session.id.stream == id.stream);
                }
            }
            Some((sock, Side::Server(up))) if sock == id.sock && id.stream.is_none() => {
                found.server = Some(self.describe_server(sock, up));
            }
            Some(_) | None => {}
        }
        found
    }

    /// Notes the exchanges of a connection that match, or the connection itself if it has none. Returns how many exchanges it
    /// has described, whether they match or not.
    fn note_sessions<R: Reactor>(
        &self,
        reactor: &R,
        (sock, down): (SockId, &Downstream),
        filter: &Filter,
        found: &mut Sessions,
    ) -> usize {
        if filter.client.is_some_and(|client| down.peer().ip() != Some(client)) {
            return 0;
        }
        let settings = self.settings.of(down.era());
        let listener = settings.config.listeners.get(usize::from(down.listener));
        let listener = listener.map_or("", |listener| &listener.name);
        if filter.listener.as_deref().is_some_and(|name| name != listener) {
            return 0;
        }
        let mut described = 0;
        let mut note = |stream, running, record| {
            let exchange = self.describe(reactor.now(), running, record);
            described += usize::from(exchange.is_some());
            let state = self.state_of(down, running);
            if !filter.matches(
                exchange.as_ref(),
                running != Running::None || !down.has_nothing_under_way(),
            ) {
                return;
            }
            if found.sessions.len() >= filter.limit {
                found.left_out += 1;
                return;
            }
            let deadline = Some(reactor.deadline(sock)).filter(|at| *at != Moment::NEVER);
            found.sessions.push(Session {
                id: ConnectionId { worker: self.place_among_workers().0, sock, stream },
                client: down.peer(),
                listener: listener.to_owned(),
                protocol: match &down.carrier {
                    ClientCarrier::Http1(_) => "http1",
                    ClientCarrier::Http2(_) => "http2",
                    ClientCarrier::Tcp(_) => "tcp",
                },
                state,
                requests: down.requests,
                unsent: reactor.output_pending(sock),
                deadline: deadline.map(|at| at.since(reactor.now())),
                exchange,
            });
        };
        match &down.carrier {
            ClientCarrier::Http2(http2) if !http2.streams().is_empty() => {
                for stream in http2.streams().iter().filter_map(|id| self.http2_clients.get(*id)) {
                    note(Some(stream.number()), stream.running(), stream.record());
                }
            }
            ClientCarrier::Http1(_) | ClientCarrier::Http2(_) | ClientCarrier::Tcp(_) => {
                note(None, down.running(), down.record());
            }
        }
        described
    }

    /// The recorded facts about a request.
    fn describe(&self, now: Moment, running: Running, record: u32) -> Option<Described> {
        let view = self.recorder.view(record)?;
        let part = |bytes: &[u8]| {
            let bytes = bytes.get(..TEXT_BYTES_MAX).unwrap_or(bytes);
            String::from_utf8_lossy(bytes).into_owned()
        };
        let exchange = match running {
            Running::Proxy(id) => self.exchanges.find(id),
            Running::None
            | Running::Synthetic(_)
            | Running::Lua(_)
            | Running::Unverified(_)
            | Running::Tarpit(_)
            | Running::WebSocket(_)
            | Running::Push(_) => None,
        };
        let up = exchange.map(|exchange| exchange.attempt.up).filter(|up| !up.is_none());
        let worker = self.place_among_workers().0;
        Some(Described {
            age: now.since(view.began_at),
            request: view.request.map_or_else(Default::default, |line| {
                [part(line.method), part(line.host), part(line.target)]
            }),
            route: view.route.map(str::to_owned),
            server: view.server.map(|(pool, server)| (pool.to_owned(), server.to_owned())),
            server_connection: up.map(|up| ConnectionId { worker, sock: up.sock, stream: None }),
            attempts: view.attempts,
            status: view.status,
            bytes: view.bytes,
        })
    }

    /// The state of a connection or an exchange.
    fn state_of(&self, down: &Downstream, running: Running) -> &'static str {
        match running {
            Running::Proxy(id) => self.exchanges.find(id).map_or("end", |it| it.stage.name()),
            Running::Synthetic(_) => "synthetic",
            Running::Lua(_) => "lua",
            Running::Unverified(_) => "auth",
            Running::Tarpit(_) => "tarpit",
            Running::WebSocket(_) => "websocket",
            Running::Push(_) => "push",
            Running::None => match &down.carrier {
                ClientCarrier::Http1(http1) => match &http1.phase {
                    _ if http1.blocked => "send",
                    Phase::Head { is_started: true } => "head",
                    Phase::ProxyHeader | Phase::Http2 => "new",
                    Phase::Head { is_started: false } if down.requests == 0 => "new",
                    Phase::Head { is_started: false } => "idle",
                    Phase::Discard { .. } => "discard",
                    Phase::Request(_) | Phase::Switched(_) => "send",
                },
                ClientCarrier::Http2(http2) if !http2.streams().is_empty() => "send",
                ClientCarrier::Http2(_) if down.requests > 0 => "idle",
                ClientCarrier::Http2(_) | ClientCarrier::Tcp(_) => "new",
            },
        }
    }

    fn describe_server(&self, sock: SockId, up: &Upstream) -> ServerConnection {
        let names = &self.settings.newest().names;
        let (pool, server) = names.server(up.pool.into(), up.server.into());
        let (protocol, exchanges) = match up.http2_streams() {
            Some(streams) => ("http2", streams.len()),
            None => ("http1", usize::from(!up.exchange.is_none())),
        };
        ServerConnection {
            id: ConnectionId { worker: self.place_among_workers().0, sock, stream: None },
            server: (pool.to_owned(), server.to_owned()),
            protocol,
            requests: up.requests,
            exchanges,
        }
    }
}

impl Filter {
    /// Whether a session is listed, whose listener and client match. `is_busy`: something is in progress.
    fn matches(&self, exchange: Option<&Described>, is_busy: bool) -> bool {
        let Some(exchange) = exchange else {
            let has_none = self.route.is_none() && self.server.is_none() && self.older.is_none();
            return has_none && (self.has_idle || is_busy);
        };
        let is_of = |name: &str| {
            exchange.server.as_ref().is_some_and(|(pool, server)| {
                name == pool
                    || name.strip_prefix(pool.as_str()).and_then(|rest| rest.strip_prefix('/'))
                        == Some(server)
            })
        };
        self.route.as_deref().is_none_or(|name| exchange.route.as_deref() == Some(name))
            && self.server.as_deref().is_none_or(is_of)
            && self.older.is_none_or(|older| exchange.age >= older)
    }
}

/// Ends.
impl Worker {
    /// Resets a connection, or a stream.
    ///
    /// # Errors
    /// Why it was not ended.
    pub(crate) fn end_connection<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: ConnectionId,
    ) -> Result<(), &'static str> {
        let ConnectionId { sock, stream, .. } = id;
        if let Some(up) = self.conns.upstream(sock) {
            if !up.is_idle() {
                return Err(
                    "the connection to the server serves requests; end the connections of their clients",
                );
            }
            self.discard_upstream(reactor, sock);
        } else if let Some(number) = stream {
            let streams = self.conns.http2_client(sock).map(|http2| http2.streams());
            let is_it = |id: &&_| {
                self.http2_clients.get(**id).is_some_and(|stream| stream.number() == number)
            };
            let stream = streams.unwrap_or_default().iter().find(is_it).copied();
            let stream = stream.ok_or("there is no such stream")?;
            self.abandon_client(reactor, Requester { sock, stream }, Cause::Stopped, ENDED);
        } else if self.conns.downstream(sock).is_some() {
            self.blame_connection(sock, Cause::Stopped, ENDED);
            self.drop_client(reactor, sock);
            reactor.abort(sock);
        } else {
            return Err("there is no such connection");
        }
        self.settle(reactor);
        Ok(())
    }

    /// Ends the exchanges that use connections of further slots to a server. A client whose response has not begun gets an error
    /// response. Returns whether all slots were examined.
    pub(crate) fn end_exchanges_of<R: Reactor>(
        &mut self,
        reactor: &mut R,
        server: (u16, u16),
        walk: &mut Walk,
    ) -> bool {
        let last = self.conns.slots_used().min(walk.slot + SLOTS_PER_TURN_MAX);
        let before = walk.ended;
        while walk.slot < last && walk.ended - before < FOUND_PER_TURN_MAX as u64 {
            let exchanges = match self.conns.in_slot(walk.slot) {
                Some((_, Side::Server(up))) if (up.pool, up.server) == server => {
                    self.exchanges_over(up)
                }
                Some(_) | None => Vec::new(),
            };
            for id in exchanges {
                walk.ended += u64::from(self.end_exchange_by_order(reactor, id));
            }
            walk.slot += 1;
        }
        self.settle(reactor);
        walk.slot >= self.conns.slots_used()
    }

    /// The exchanges that use a connection.
    fn exchanges_over(&self, up: &Upstream) -> Vec<Id<Exchange>> {
        match up.http2_streams() {
            Some(streams) => {
                streams.iter().filter_map(|id| self.http2_servers.exchange(*id)).collect()
            }
            None => Some(up.exchange).filter(|id| !id.is_none()).into_iter().collect(),
        }
    }

    /// Ends an exchange that has a server. Returns whether there was one.
    fn end_exchange_by_order<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) -> bool {
        // The end of another exchange may have ended it.
        let exchange = self.exchanges.find(id).filter(|exchange| exchange.has_server());
        let Some(exchange) = exchange else { return false };
        let (to, stage) = (exchange.requester, exchange.stage);
        self.blame(to, Cause::Stopped, ENDED_SERVER);
        match stage {
            Stage::Tunnel => self.reset_tunnel(reactor, id),
            Stage::ExpectRequestEnd => self.give_up_request(reactor, id),
            Stage::Connecting | Stage::ExpectResponse | Stage::ExpectBody => {
                let failure = Failure::new(503, ENDED_SERVER);
                self.fail_served(reactor, id, failure);
            }
            // There is no server.
            Stage::Authorizing | Stage::Buffering | Stage::Queued | Stage::Paused => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_they_are_read() {
        for text in ["0.12.5", "3.0.1/7"] {
            let id: ConnectionId = text.parse().expect(text);
            assert_eq!(id.to_string(), text);
        }
        for text in ["", "0", "0.1", "0.1.2.3", "0.1.2/", "0.1.x", "-1.0.1", "0.1.2/x", "0x1.2.3"] {
            assert!(text.parse::<ConnectionId>().is_err(), "{text}");
        }
    }

    #[test]
    fn filters_compare_whole_names() {
        let server = Some(("app".to_owned(), "10.0.0.1:8000".to_owned()));
        let exchange = Described { server, age: Span::from_secs(5), ..Described::default() };
        let filter = |server: Option<&str>, older| Filter {
            has_idle: false,
            limit: 1,
            listener: None,
            route: None,
            server: server.map(str::to_owned),
            client: None,
            older,
        };
        for (name, expected) in [
            ("app", true),
            ("app/10.0.0.1:8000", true),
            ("ap", false),
            ("app/", false),
            ("app/10.0.0.1:80", false),
            ("appx", false),
        ] {
            assert_eq!(filter(Some(name), None).matches(Some(&exchange), true), expected, "{name}");
        }
        assert!(filter(None, Some(Span::from_secs(5))).matches(Some(&exchange), true));
        assert!(!filter(None, Some(Span::from_secs(6))).matches(Some(&exchange), true));
        assert!(!filter(Some("app"), None).matches(None, true), "nothing is in progress");
        assert!(filter(None, None).matches(None, true) && !filter(None, None).matches(None, false));
    }
}
