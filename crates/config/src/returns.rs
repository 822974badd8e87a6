//! Warnings about requests and connections that Tidegate sends to servers and that come back to its own listeners.
//! In: checked routes, listeners, pools. Out: warnings.
//! Limits: `HOPS_MAX` listeners are followed from one route.
//! Invariant: a chain of listeners is reported only if no condition of a route on the way, except those of the first
//! route, decides whether a request takes it.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use crate::listeners::Listeners;
use crate::model::{
    Action, AskAuth, Bind, HostPattern, Listener, PathPattern, Proxy, Route, ServerAddress,
    UpstreamHost,
};
use crate::pattern::parse_host;
use crate::pools::Pools;
use crate::report::{Kind, Note, Notes};
use crate::unreachable_routes::{covers_each, covers_host, covers_path};

/// Maximum number of listeners that are followed from one route, or from one listener with `forward`.
const HOPS_MAX: usize = 20;

/// The parts of the file that decide where a request goes.
pub(crate) struct Ways<'f> {
    routes: &'f [(Route, Range<usize>)],
    listeners: &'f [Listener],
    /// By pool: the listeners that a connection to one of its servers reaches.
    reached: Vec<Vec<usize>>,
}

/// What takes a request: a listener with `forward` takes its connections, another one has routes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Taker {
    listener: usize,
    /// `None`: the listener has `forward`.
    route: Option<usize>,
}

/// A request that Tidegate sends. Without a pattern, it may have any host or path.
#[derive(Clone)]
struct Sent {
    hosts: Vec<HostPattern>,
    paths: Vec<PathPattern>,
}

impl<'f> Ways<'f> {
    pub(crate) fn new(
        routes: &'f [(Route, Range<usize>)],
        listeners: &'f Listeners,
        pools: &Pools,
    ) -> Self {
        let listeners = listeners.listeners.as_slice();
        let is_reached = |pool: usize, listener: &Listener| {
            let servers = pools.pools.get(pool).map(|pool| pool.servers.as_slice());
            servers.unwrap_or_default().iter().any(|one| is_own(&listener.bind, &one.address))
        };
        let of_pool = |pool| {
            let all = listeners.iter().enumerate();
            all.filter(|(_, listener)| is_reached(pool, listener)).map(|(at, _)| at).collect()
        };
        Self { routes, listeners, reached: (0..pools.pools.len()).map(of_pool).collect() }
    }

    /// Notes a warning if requests to the route at `index`, which the file has at `place`, come back to it.
    pub(crate) fn check_route(
        &self,
        index: usize,
        route: &Route,
        place: &Range<usize>,
        notes: &mut Notes,
    ) {
        let Action::Proxy(proxy) = &route.action else { return };
        let own = route.pools().flat_map(|pool| self.reached_by(pool)).find(|at| {
            route.listener.is_none_or(|only| only == *at)
                && !self.ends_elsewhere(index, &proxy.host, *at)
        });
        if let Some(listener) = own.and_then(|at| self.listeners.get(at)) {
            let what = format!(
                "the pool of this route contains the address of its own listener {:?}: requests would loop",
                listener.name
            );
            let note = Note::new(Kind::Loop, place.clone(), what);
            notes.warn(note.help(
                "write the address of the server, or add `listener` so that the route handles only requests of another listener",
            ));
        } else if let Some(by) =
            self.returns(index, route, &forwarded(route, proxy), || route.pools())
        {
            let what = format!(
                "requests to this route come back to it through listener {by:?}: they would loop"
            );
            let note = Note::new(Kind::Loop, place.clone(), what);
            notes.warn(note.help("write the address of the server in one of the pools"));
        }
        if let Some(mirror) = &route.handling.mirror
            && let Some(by) = self
                .returns(index, route, &forwarded(route, proxy), || core::iter::once(mirror.pool))
        {
            let what = format!(
                "the copies of `mirror` come back to this route through listener {by:?}: each would be copied again"
            );
            let note = Note::new(Kind::Loop, place.clone(), what);
            notes.warn(note.help("write the address of the server in the pool of `mirror`"));
        }
        if let Some(ask) = &route.handling.ask
            && let Some(by) =
                self.returns(index, route, &question(route, ask), || core::iter::once(ask.pool))
        {
            let what = format!(
                "the authentication requests of `ask` come back to this route through listener {by:?}: each would cause another one"
            );
            let note = Note::new(Kind::Loop, place.clone(), what);
            let help = "write the address of the server in the pool of `ask`, or add an earlier route for the path of \
                        these requests";
            notes.warn(note.help(help));
        }
    }

    /// Notes a warning if the listener at `index`, which the file has at `place`, forwards connections to itself.
    pub(crate) fn check_forward(&self, index: usize, place: &Range<usize>, notes: &mut Notes) {
        let Some(listener) = self.listeners.get(index) else { return };
        let Some(forward) = &listener.forward else { return };
        let start = Taker { listener: index, route: None };
        let sent = Sent { hosts: Vec::new(), paths: Vec::new() };
        let reached: Vec<usize> = forward.pools().flat_map(|pool| self.reached_by(pool)).collect();
        let Some(by) = self.comes_back(&[start], sent, reached) else { return };
        let what = match self.listeners.get(by) {
            Some(other) if by != index => format!(
                "connections that listener {:?} forwards come back to it through listener {:?}",
                listener.name, other.name
            ),
            _ => format!("listener {:?} forwards connections to itself", listener.name),
        };
        let note = Note::new(Kind::Loop, place.clone(), what);
        notes.warn(note.help("write the address of the server in the pool"));
    }

    fn reached_by(&self, pool: usize) -> impl Iterator<Item = usize> {
        self.reached.get(pool).into_iter().flatten().copied()
    }

    /// The name of the listener through which `sent` comes back to the route at `index`, if it is sent to a server of `pools`.
    fn returns<P: Iterator<Item = usize>>(
        &self,
        index: usize,
        route: &Route,
        sent: &Sent,
        pools: impl Fn() -> P,
    ) -> Option<&'f str> {
        let all = 0..self.listeners.len();
        let own = all.filter(|at| route.listener.is_none_or(|only| only == *at));
        let starts: Vec<Taker> =
            own.map(|listener| Taker { listener, route: Some(index) }).collect();
        let reached: Vec<usize> = pools().flat_map(|pool| self.reached_by(pool)).collect();
        let by = self.comes_back(&starts, sent.clone(), reached)?;
        self.listeners.get(by).map(|listener| listener.name.as_str())
    }

    /// The last listener before `sent`, which reaches the listeners `reached`, comes back to one of `starts`.
    fn comes_back(&self, starts: &[Taker], sent: Sent, reached: Vec<usize>) -> Option<usize> {
        let mut open: Vec<(usize, usize, Sent)> =
            reached.into_iter().map(|at| (at, at, sent.clone())).collect();
        let mut seen: Vec<Taker> = Vec::new();
        while let Some((at, from, sent)) = open.pop() {
            let Some(taker) = self.taker(at, &sent, starts) else { continue };
            if starts.contains(&taker) {
                return Some(from);
            }
            if seen.contains(&taker) || seen.len() >= HOPS_MAX {
                continue;
            }
            seen.push(taker);
            let (next, sent): (Vec<usize>, Sent) = match taker.route {
                None => {
                    let forward = self.listeners.get(at).and_then(|one| one.forward.as_ref());
                    let pools = forward.into_iter().flat_map(|forward| forward.pools());
                    (pools.flat_map(|pool| self.reached_by(pool)).collect(), sent)
                }
                Some(route) => {
                    let Some((route, _)) = self.routes.get(route) else { continue };
                    let Action::Proxy(proxy) = &route.action else { continue };
                    let next = route.pools().flat_map(|pool| self.reached_by(pool)).collect();
                    (next, rewritten(sent, proxy))
                }
            };
            open.extend(next.into_iter().map(|next| (next, at, sent.clone())));
        }
        None
    }

    /// What takes `sent` at `listener`; `None` if that depends on more than host and path. `starts` took it before,
    /// so their conditions hold.
    fn taker(&self, listener: usize, sent: &Sent, starts: &[Taker]) -> Option<Taker> {
        if self.listeners.get(listener)?.forward.is_some() {
            return Some(Taker { listener, route: None });
        }
        let takes = |route: &Route| {
            route.listener.is_none_or(|only| only == listener)
                && covers_each(&route.hosts, &sent.hosts, covers_host)
                && covers_each(&route.paths, &sent.paths, covers_path)
        };
        let all = self.routes.iter().map(|(route, _)| route).enumerate();
        let (index, route) = { all }.find(|(_, route)| takes(route))?;
        let taker = Taker { listener, route: Some(index) };
        let is_certain = route.methods.is_empty()
            && route.headers.is_empty()
            && route.conditions.is_empty()
            && route.client_cert.is_none();
        (is_certain || starts.contains(&taker)).then_some(taker)
    }

    /// Whether the requests that the route at `index` forwards with this host to `listener` match an earlier route,
    /// which answers every request for the host.
    fn ends_elsewhere(&self, index: usize, host: &UpstreamHost, listener: usize) -> bool {
        let UpstreamHost::Replace(name) = host else { return false };
        let (earlier, _) = self.routes.split_at(index);
        earlier.iter().any(|(route, _)| {
            let every_request = route.paths.is_empty()
                && route.methods.is_empty()
                && route.headers.is_empty()
                && route.conditions.is_empty()
                && route.client_cert.is_none();
            every_request
                && route.listener.is_none_or(|only| only == listener)
                && route.hosts.iter().any(|host| {
                    matches!(host, HostPattern::Exact(host) if host.eq_ignore_ascii_case(name))
                })
                && !matches!(route.action, Action::Proxy(_))
        })
    }
}

/// The requests that `route` sends to its servers.
fn forwarded(route: &Route, proxy: &Proxy) -> Sent {
    rewritten(Sent { hosts: route.hosts.clone(), paths: route.paths.clone() }, proxy)
}

fn rewritten(sent: Sent, proxy: &Proxy) -> Sent {
    let hosts = match &proxy.host {
        UpstreamHost::Keep => sent.hosts,
        UpstreamHost::Replace(name) => replaced(name),
    };
    // What a rewritten path becomes is not computed.
    let paths = if proxy.path.is_some() { Vec::new() } else { sent.paths };
    Sent { hosts, paths }
}

/// The requests of `ask` of `route`.
fn question(route: &Route, ask: &AskAuth) -> Sent {
    let hosts = match &ask.host {
        UpstreamHost::Keep => route.hosts.clone(),
        UpstreamHost::Replace(name) => replaced(name),
    };
    let path = ask.target.split('?').next().unwrap_or_default();
    Sent { hosts, paths: vec![PathPattern::Exact(path.to_owned())] }
}

/// The host that routes compare if a request has the Host field `name`.
fn replaced(name: &str) -> Vec<HostPattern> {
    let host = match name.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => name,
    };
    parse_host(host).into_iter().collect()
}

/// Whether a connection to `server` reaches the listener that is bound to `bind`.
fn is_own(bind: &Bind, server: &ServerAddress) -> bool {
    let own = match (bind, server) {
        (Bind::Unix(own), ServerAddress::Unix(path)) => return own == path,
        (Bind::Tcp(own), _) => own,
        (Bind::Unix(_), _) => return false,
    };
    let is_local = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    match server {
        ServerAddress::Ip(address) => {
            own.port() == address.port() && own.port() != 0 && reaches(own, address, is_local)
        }
        ServerAddress::Name(name, port) => {
            own.port() == *port && name.eq_ignore_ascii_case("localhost") && is_local(own.ip())
        }
        ServerAddress::Unix(_) | ServerAddress::Slot(_) => false,
    }
}

fn reaches(own: &SocketAddr, server: &SocketAddr, is_local: fn(IpAddr) -> bool) -> bool {
    // A socket that is bound to [::] also accepts IPv4 connections.
    let is_wildcard = own.ip().is_unspecified() && (own.is_ipv6() || server.is_ipv4());
    let address = server.ip().to_canonical();
    own.ip().to_canonical() == address || (is_wildcard && is_local(address))
}
