//! Finds the route of a request by listener, host, path, query, method, header fields, cookies, client address, client
//! certificate and the counts in tables. The first match wins.
//! In: a decoded head, its client. Out: the route's index. The path is forwarded as it was
//! received (RFC 9110 section 7.7).
//! Never: allocates (except for `scratch`); lets another form or reading of a path bypass a route.
//! Limits: those of `table`; a path that servers interpret differently is looked up up to twelve times, once
//! for each reading that differs.
//! Invariant: the result equals that of testing every route in file order; no reading of the path belongs to
//! an earlier route that does something else, or to a later route that is protected in another way.

use core::net::IpAddr;
use std::collections::BTreeMap;

use tidegate_config::model::{Action, Config, HostPattern, Network, PathPattern, Route, Segment};
use tidegate_wire::message::{RequestHead, TargetForm};

use crate::chain::named_client_address;
use crate::conditions::Prepared;
use crate::counting::RequestCounts;
use crate::forward::ClientCertificate;
use crate::live_set::{LiveSets, SetReaders};
use crate::path::{self, Normalized, Reach, Readings};
use crate::presence::Names;
use crate::scheme::Scheme;
pub use crate::table::Unmet;
use crate::table::{RequestParts, Rule, Table};

/// The result of routing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routed {
    /// The route with this index in the configuration.
    Route(usize),
    /// No route matches: 404.
    NoRoute,
    /// Servers could read the path in more than one way, or the path is invalid: 400 with this text.
    Refused(&'static str),
}

const TWO_READINGS: &str = "the path matches another route on servers that merge slashes, decode \"%2F\" or strip path parameters";
const LITERAL_DOTS: &str =
    "the path matches another route on servers that do not resolve \".\" and \"..\"";

/// The facts about the client that conditions test.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client<'a> {
    /// The certificate, if it was verified.
    pub certificate: Option<ClientCertificate<'a>>,
    /// The address of the connection's client; `None` for a unix socket.
    pub peer: Option<IpAddr>,
    /// Proxies whose statements about the client are trusted.
    pub trusted: &'a [Network],
    /// The counts in tables for the request's keys; `None` if nothing was counted.
    pub counts: Option<&'a RequestCounts<'a>>,
}

impl Client<'_> {
    /// The address of the client of `head`, behind trusted proxies; `None` if they do not name it.
    pub(crate) fn named_address(&self, head: &RequestHead<'_>) -> Option<IpAddr> {
        named_client_address(head, self.peer, self.trusted)
    }
}

/// The routes of a configuration, prepared for searching.
pub struct Router {
    /// By listener: its routes.
    listeners: Vec<Table>,
    /// By route: the index of the first route with the same effect. Never above the route's own index.
    same_as: Vec<usize>,
    /// By route: the index of the first route with the same protection; `None`: it protects nothing.
    protection: Vec<Option<usize>>,
    /// Whether a route depends on the counts in tables.
    tests_counts: bool,
    /// The sets of addresses that routes test, as this worker reads them.
    sets: SetReaders,
}

impl Router {
    /// Prepares the routes of `config`, for a single worker.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::sharing(config, &LiveSets::new(config))
    }

    /// Prepares the routes of `config`, with the sets of addresses that all workers share.
    #[must_use]
    pub fn sharing(config: &Config, sets: &LiveSets) -> Self {
        let table = |listener: usize| {
            let rules = config.routes.iter().enumerate();
            Table::new(
                rules
                    .filter(|(_, route)| !route.is_off)
                    .filter(|(_, route)| route.listener.is_none_or(|only| only == listener))
                    .flat_map(|(index, route)| rules_of(index, route))
                    .collect(),
            )
        };
        let listeners = (0..config.listeners.len()).map(table).collect();
        let tests_counts = config.routes.iter().any(|route| !route.conditions.tables.is_empty());
        let (same_as, protection) = (first_equivalent(config), first_protection(config));
        Self { listeners, same_as, protection, tests_counts, sets: sets.readers() }
    }

    /// Whether a route depends on the counts in tables, so that clients need their `counts`.
    #[must_use]
    pub const fn tests_counts(&self) -> bool {
        self.tests_counts
    }

    /// Finds the first route of `listener` that matches `head` and its `client`. `scratch` is
    /// used for other spellings of the path; its contents are overwritten.
    #[must_use]
    pub fn route(
        &self,
        listener: usize,
        head: &RequestHead<'_>,
        client: &Client<'_>,
        scratch: &mut Vec<u8>,
    ) -> Routed {
        let Some(table) = self.listeners.get(listener) else {
            return Routed::NoRoute;
        };
        let host = host_name(head.host.unwrap_or_default());
        let request = RequestParts { head, host, client, sets: &self.sets };
        let find = |path: &str| table.find(&request, Some(path));
        if head.path == "*" {
            // "*" names no resource: only routes without a path match it (RFC 9110 section 7.1).
            return table.find(&request, None).map_or(Routed::NoRoute, Routed::Route);
        }
        let found = match path::normalize_path(head.path, table.reach(), scratch) {
            Normalized::Same => find(head.path),
            Normalized::Equivalent(path) => find(path),
            Normalized::Ambiguous(readings) => return self.route_readings(readings, find),
            Normalized::Changed { resolved, literal } => {
                let (found, literal_found) = (find(resolved), find(literal));
                if found.map(|index| self.same_as(index))
                    != literal_found.map(|index| self.same_as(index))
                {
                    return Routed::Refused(LITERAL_DOTS);
                }
                found
            }
            Normalized::Refused(text) => return Routed::Refused(text),
        };
        found.map_or(Routed::NoRoute, Routed::Route)
    }

    /// For each route of `listener` in file order: the condition that the request does not meet, or `None` if the route
    /// matches. Paths are compared in their first reading; [`Self::route`] decides which route takes the request.
    #[must_use]
    pub fn explain(
        &self,
        listener: usize,
        head: &RequestHead<'_>,
        client: &Client<'_>,
    ) -> Vec<(usize, Option<Unmet>)> {
        let Some(table) = self.listeners.get(listener) else { return Vec::new() };
        let host = host_name(head.host.unwrap_or_default());
        let request = RequestParts { head, host, client, sets: &self.sets };
        let mut scratch = Vec::new();
        let path = match path::normalize_path(head.path, Reach::UNLIMITED, &mut scratch) {
            _ if head.path == "*" => None,
            Normalized::Same => Some(head.path),
            Normalized::Equivalent(path) | Normalized::Changed { resolved: path, .. } => Some(path),
            Normalized::Ambiguous(_) | Normalized::Refused(_) => Some(head.path),
        };
        table.unmet(&request, path)
    }

    /// Finds the route of an ambiguous path: the route of its first reading. Refuses the path if another reading matches an
    /// earlier route with another effect, or a later route that is protected in another way: `{id}` of an earlier route
    /// matches a segment that a server decodes to several ones.
    fn route_readings(
        &self,
        mut readings: Readings<'_>,
        find: impl Fn(&str) -> Option<usize>,
    ) -> Routed {
        let Some(index) = readings.next().and_then(&find) else { return Routed::NoRoute };
        while let Some(reading) = readings.next() {
            let Some(other) = find(reading) else { continue };
            let differs = match other < index {
                true => self.same_as(other) != self.same_as(index),
                false => {
                    let protection = self.protection_of(other);
                    protection.is_some() && protection != self.protection_of(index)
                }
            };
            if differs {
                return Routed::Refused(TWO_READINGS);
            }
        }
        Routed::Route(index)
    }

    fn same_as(&self, route: usize) -> usize {
        self.same_as.get(route).copied().unwrap_or(route)
    }

    fn protection_of(&self, route: usize) -> Option<usize> {
        self.protection.get(route).copied().flatten()
    }
}

/// The rules of a route: one for each pair of a host and a path.
fn rules_of(index: usize, route: &Route) -> Vec<Rule> {
    let each = |count: usize| 0..count.max(1);
    let rule = |(host, path): (usize, usize)| Rule {
        route: index,
        host: route.hosts.get(host).map(canonical_host),
        path: route.paths.get(path).map(canonical_path),
        methods: route.methods.clone(),
        headers: route.headers.clone(),
        client_cert: route.client_cert.clone(),
        conditions: Prepared::new(&route.conditions),
        needed: Names::needed(&route.headers, &route.conditions),
    };
    let pairs = each(route.hosts.len())
        .flat_map(|host| each(route.paths.len()).map(move |path| (host, path)));
    pairs.map(rule).collect()
}

/// For each route, the first route with the same effect: same action, same Strict-Transport-Security, same
/// handling, counted in the same tables.
fn first_equivalent(config: &Config) -> Vec<usize> {
    let mut first = BTreeMap::new();
    let routes = config.routes.iter().enumerate();
    routes
        .map(|(index, route)| {
            let effect = (&route.action, &route.hsts, &route.handling, &route.counting);
            *first.entry(effect).or_insert(index)
        })
        .collect()
}

/// For each route that refuses some or all requests, the first route that refuses the same ones.
fn first_protection(config: &Config) -> Vec<Option<usize>> {
    let mut first = BTreeMap::new();
    let routes = config.routes.iter().enumerate();
    routes
        .map(|(index, route)| {
            let handling = &route.handling;
            let refusal = match &route.action {
                Action::Respond(respond) if respond.status >= 400 => Some(respond),
                Action::Respond(_)
                | Action::Redirect(_)
                | Action::Synthetic
                | Action::Echo
                | Action::Push(_)
                | Action::Lua(_)
                | Action::Proxy(_) => None,
            };
            let addresses = (&handling.allow, &handling.deny);
            let users = (&handling.auth, &handling.jwt, &handling.ask);
            let limits = (&handling.rates, handling.per_address_max);
            let others = (&handling.maintenance, &handling.hooks, refusal);
            let protects = handling.allow.is_some()
                || handling.deny.is_some()
                || handling.auth.is_some()
                || handling.jwt.is_some()
                || handling.ask.is_some()
                || !handling.rates.is_empty()
                || handling.per_address_max.is_some()
                || handling.maintenance.is_some()
                || handling.hooks.is_some()
                || refusal.is_some();
            protects.then(|| *first.entry((addresses, users, limits, others)).or_insert(index))
        })
        .collect()
}

/// Whether the request's URI must not be served on its connection (RFC 9110 section 7.4): an https URI on
/// a plain connection.
#[must_use]
pub fn is_misdirected(head: &RequestHead<'_>, scheme: Scheme) -> bool {
    head.form == TargetForm::Absolute
        && scheme == Scheme::Http
        && head.target.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("https:"))
}

/// The host name in `host[:port]`, without a trailing dot.
pub(crate) fn host_name(host: &str) -> &str {
    let mut bytes = host.bytes();
    let name = match host.starts_with('[') {
        true => bytes.position(|byte| byte == b']').and_then(|end| host.get(..=end)),
        false => bytes.position(|byte| byte == b':').and_then(|end| host.get(..end)),
    };
    let name = name.unwrap_or(host);
    name.strip_suffix('.').unwrap_or(name)
}

fn canonical_host(pattern: &HostPattern) -> HostPattern {
    let canonical = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    match pattern {
        HostPattern::Exact(name) => HostPattern::Exact(canonical(host_name(name))),
        HostPattern::Below(suffix) => HostPattern::Below(canonical(suffix)),
    }
}

/// The pattern in the normalized form in which paths are compared.
pub(crate) fn canonical_path(pattern: &PathPattern) -> PathPattern {
    match pattern {
        PathPattern::Exact(path) => PathPattern::Exact(path::canonical_pattern(path)),
        PathPattern::Below(path) => PathPattern::Below(path::canonical_pattern(path)),
        PathPattern::Segments { segments, open_end } => {
            let canonical = |segment: &Segment| match segment {
                Segment::Literal(text) => Segment::Literal(path::canonical_pattern(text)),
                Segment::Any(name) => Segment::Any(name.clone()),
            };
            let segments = segments.iter().map(canonical).collect();
            PathPattern::Segments { segments, open_end: *open_end }
        }
    }
}
