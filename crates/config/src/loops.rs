//! Warnings about valid files whose redirects loop, or whose connections to port 443 are plain HTTP. `returns.rs` has the loops
//! through servers.
//! In: checked routes, listeners, pools. Out: warnings.
//! Limits: `HOPS_MAX` redirects are followed from up to `STARTS_MAX` hosts and as many paths of a route, and `ROUTES_MAX` routes
//! are examined.
//! Invariant: a redirect is reported only if every request, whatever its fields are, comes back to the same route. If
//! that depends on other conditions or other hosts, there is no warning.

use core::ops::Range;

use crate::listeners::Listeners;
use crate::model::{
    Action, Bind, HeaderTest, HostPattern, Listener, NamedTest, PathPattern, Placeholder, Redirect,
    RedirectPiece, Route, Segment, ServerAddress, SlotSource,
};
use crate::pools::Pools;
use crate::report::{Kind, Note, Notes};
use crate::returns::Ways;
use crate::unreachable_routes::{covers_each, covers_host, covers_path};

/// Maximum number of redirects that are followed from one route. Browsers stop after about the same number.
const HOPS_MAX: usize = 20;
/// Maximum number of hosts, and of paths, of a route from which redirects are followed.
const STARTS_MAX: usize = 8;
/// The possible values of parts that are not known in advance, such as fields.
const UNKNOWN_VALUES: [&str; 2] = ["", "any"];
/// Maximum number of routes that are examined. Later routes cause no warning.
const ROUTES_MAX: usize = 1000;
/// How often a request must come back to a route to count as a loop. A redirect to a fixed path may come back once.
const RETURNS_MIN: usize = 3;
/// The host of a request to a route without a condition on the host.
const ANY_HOST: &str = "host.invalid";

/// Notes a warning for each loop, and for each plain use of port 443.
pub(crate) fn check(
    routes: &[(Route, Range<usize>)],
    listeners: &Listeners,
    pools: &Pools,
    notes: &mut Notes,
) {
    let file = File {
        routes: routes.get(..ROUTES_MAX).unwrap_or(routes),
        listeners: &listeners.listeners,
    };
    let ways = Ways::new(file.routes, listeners, pools);
    for (index, (route, place)) in file.routes.iter().enumerate() {
        match &route.action {
            Action::Proxy(_) => ways.check_route(index, route, place, notes),
            Action::Redirect(redirect) => {
                if file.applying(route).any(|(at, _)| file.comes_back(index, route, redirect, at)) {
                    let what = "this route redirects requests to itself: browsers report too many redirects";
                    let note = Note::new(Kind::Loop, place.clone(), what);
                    notes.warn(note.help(
                        "limit the route by `listener`, `host` or `path` so that it does not match its own target; for \
                         https write redirect-to-https = true in the listener",
                    ));
                }
            }
            Action::Respond(_)
            | Action::Synthetic
            | Action::Echo
            | Action::Push(_)
            | Action::Lua(_) => {}
        }
    }
    for (index, (listener, place)) in file.listeners.iter().zip(&listeners.places).enumerate() {
        ways.check_forward(index, place, notes);
        let is_plain = listener.forward.is_none() && !listener.may_serve_https();
        if port_of(&listener.bind) == Some(443) && is_plain {
            let what = format!(
                "listener {:?} has port 443 but no `tls`: browsers cannot use it",
                listener.name
            );
            let note = Note::new(Kind::Conflict, place.clone(), what);
            notes.warn(note.help(
                "add tls = { certificates = [{ cert = \"site.pem\", key = \"site.key\" }] }, or use port 80",
            ));
        }
    }
    for (index, (pool, place)) in pools.pools.iter().zip(&pools.places).enumerate() {
        let is_https = |address: &ServerAddress| match address {
            ServerAddress::Ip(address) => address.port() == 443,
            ServerAddress::Name(_, port) => *port == 443,
            ServerAddress::Slot(slot) => matches!(*slot.source, SlotSource::Name(_, 443)),
            ServerAddress::Unix(_) => false,
        };
        // Connections that are forwarded as they are may use TLS.
        let is_plain = pool.tls.is_none() && !listeners.forward_to(index);
        if is_plain && pool.servers.iter().any(|server| is_https(&server.address)) {
            let what = format!("pool {:?} has a server with port 443 but no `tls`", pool.name);
            let note = Note::new(Kind::Conflict, place.clone(), what);
            notes.warn(
                note.help("add tls = true to the pool, or use the server's port for plain HTTP"),
            );
        }
    }
}

fn port_of(bind: &Bind) -> Option<u16> {
    match bind {
        Bind::Tcp(address) => Some(address.port()),
        Bind::Unix(_) => None,
    }
}

/// The parts of the file that redirects depend on.
struct File<'f> {
    routes: &'f [(Route, Range<usize>)],
    listeners: &'f [Listener],
}

/// A request on its way through redirects.
struct Visit {
    listener: usize,
    host: String,
    path: String,
    /// The query, without its question mark; `None`: there is none.
    query: Option<String>,
    /// The values of the request that are not known in advance.
    unknown: &'static str,
    /// Whether a redirect has replaced the host of the original request.
    is_named: bool,
}

impl<'f> File<'f> {
    /// The listeners that `route` applies to.
    fn applying<'r>(
        &'r self,
        route: &'r Route,
    ) -> impl Iterator<Item = (usize, &'f Listener)> + 'r {
        let all = self.listeners.iter().enumerate();
        all.filter(|(at, _)| route.listener.is_none_or(|only| only == *at))
    }

    /// Whether a request that `route` (at `index`) redirects at `listener` comes back to it again and again.
    fn comes_back(
        &self,
        index: usize,
        route: &Route,
        redirect: &Redirect,
        listener: usize,
    ) -> bool {
        // A client may send other fields, or another method, to the target.
        let keeps_method = matches!(redirect.status, 307 | 308);
        let same_method = keeps_method
            || route.methods.is_empty()
            || route.methods.iter().any(|method| method == "GET");
        if tests_fields(route) || !same_method {
            return false;
        }
        let Some(query) = sample_query(&route.conditions.query) else { return false };
        let starts = |count: usize| 0..count.clamp(1, STARTS_MAX);
        starts(route.hosts.len()).any(|host| {
            starts(route.paths.len()).any(|path| {
                UNKNOWN_VALUES.into_iter().all(|unknown| {
                    let start = Visit {
                        listener,
                        host: sample_host(route.hosts.get(host)),
                        path: sample_path(route.paths.get(path)),
                        query: query.clone(),
                        unknown,
                        is_named: false,
                    };
                    self.returns(index, start)
                })
            })
        })
    }

    /// Whether the request comes back to the route at `index` again and again.
    fn returns(&self, index: usize, start: Visit) -> bool {
        let (mut visit, mut returns) = (start, 0);
        for _ in 0..HOPS_MAX {
            let Some((at, route)) = self.route_of(&visit, index) else {
                return false;
            };
            let Action::Redirect(redirect) = &route.action else {
                return false;
            };
            returns += usize::from(at == index);
            if returns >= RETURNS_MIN {
                return true;
            }
            let Some(next) = self.follow(&visit, route, redirect) else {
                return false;
            };
            visit = next;
        }
        false
    }

    /// The route that takes the request; `None` if that depends on more than host and path.
    fn route_of(&self, visit: &Visit, start: usize) -> Option<(usize, &'f Route)> {
        let host = [HostPattern::Exact(visit.host.clone())];
        let path = [PathPattern::Exact(visit.path.clone())];
        for (index, (route, _)) in self.routes.iter().enumerate() {
            let applies = route.listener.is_none_or(|only| only == visit.listener);
            if !applies || !covers_each(&route.hosts, &host, covers_host) {
                continue;
            }
            let is_open = route
                .paths
                .iter()
                .any(|path| matches!(path, PathPattern::Segments { open_end: true, .. }));
            if !is_open && !covers_each(&route.paths, &path, covers_path) {
                continue;
            }
            if index == start && !meets_query(&route.conditions.query, visit.query.as_deref()) {
                return None;
            }
            let is_certain = !is_open
                && route.methods.is_empty()
                && route.headers.is_empty()
                && route.conditions.is_empty()
                && route.client_cert.is_none();
            // A different host may be a different machine, unless a route names it.
            let is_ours = !visit.is_named || !route.hosts.is_empty();
            let is_known = (is_certain || (index == start && !is_open)) && is_ours;
            return is_known.then_some((index, route));
        }
        None
    }

    /// The request that a client sends after the redirect; `None` if it leaves the listeners of this file.
    fn follow(&self, visit: &Visit, route: &Route, redirect: &Redirect) -> Option<Visit> {
        let listener = self.listeners.get(visit.listener)?;
        let parts = redirect.to.iter().map(|piece| match piece {
            RedirectPiece::Text(text) => Some(text.clone()),
            RedirectPiece::Host => Some(visit.host.clone()),
            RedirectPiece::Path => Some(visit.path.clone()),
            RedirectPiece::Query => Some(visit.query_text()),
            RedirectPiece::Value(placeholder) => visit.value(placeholder, route),
        });
        let target: String = parts.collect::<Option<_>>()?;
        let target = target.split('#').next().unwrap_or_default();
        let (target, query) = match target.split_once('?') {
            Some((target, query)) => (target, Some(query.to_owned())),
            None => (target, None),
        };
        let unknown = visit.unknown;
        let Some((scheme, rest)) = target.split_once("://") else {
            let (host, is_named) = (visit.host.clone(), visit.is_named);
            let (listener, path) = (visit.listener, target.to_owned());
            return Some(Visit { listener, host, path, query, unknown, is_named });
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse::<u16>().ok()?)),
            _ => (authority, None),
        };
        let is_same_host = host.eq_ignore_ascii_case(&visit.host);
        let default = if scheme == "https" { 443 } else { 80 };
        let has_port = |at: &Listener| {
            at.scheme() == scheme && port_of(&at.bind) == Some(port.unwrap_or(default))
        };
        // {host} contains the client's port, so the same scheme is the same listener. A proxy in front that
        // terminates TLS brings requests for https to the same listener, too.
        let stays = port.is_none()
            && is_same_host
            && (scheme == listener.scheme() || (scheme == "https" && listener.may_serve_https()));
        let next = match self.listeners.iter().position(has_port) {
            _ if stays && scheme == listener.scheme() => visit.listener,
            Some(found) => found,
            None if stays => visit.listener,
            None => return None,
        };
        let visit = Visit {
            listener: next,
            host: host.to_ascii_lowercase(),
            path: path.to_owned(),
            query,
            unknown,
            is_named: visit.is_named || !is_same_host,
        };
        // A listener with `redirect-to-https` redirects the client before any route is tried.
        let reached = self.listeners.get(next)?;
        match (&reached.redirect_to_https, reached.may_serve_https()) {
            (Some(to), false) => {
                let secure = self
                    .listeners
                    .iter()
                    .position(|at| at.tls.is_some() && port_of(&at.bind) == Some(to.port));
                secure.map(|listener| Visit { listener, ..visit })
            }
            (Some(_), true) | (None, _) => Some(visit),
        }
    }
}

impl Visit {
    /// The value of `{query}`.
    fn query_text(&self) -> String {
        self.query.as_ref().map_or_else(String::new, |query| format!("?{query}"))
    }

    /// The value of a placeholder in the redirect of `route`, which takes the request; `None` if it cannot be known.
    fn value(&self, placeholder: &Placeholder, route: &Route) -> Option<String> {
        let here = PathPattern::Exact(self.path.clone());
        let pattern = || route.paths.iter().find(|own| covers_path(Some(own), Some(&here)));
        match placeholder {
            Placeholder::Host => Some(self.host.clone()),
            Placeholder::Path => Some(self.path.clone()),
            Placeholder::Query => Some(self.query_text()),
            Placeholder::QueryValue(name) => {
                let mut pairs = self.query.iter().flat_map(|query| query.split('&'));
                let value =
                    pairs.find_map(|pair| pair.split_once('=').filter(|(own, _)| own == name));
                Some(value.map_or_else(String::new, |(_, value)| value.to_owned()))
            }
            Placeholder::Rest => match pattern()? {
                PathPattern::Below(prefix) => {
                    Some(self.path.strip_prefix(prefix.as_str()).unwrap_or_default().to_owned())
                }
                PathPattern::Exact(_) | PathPattern::Segments { .. } => None,
            },
            Placeholder::Segment(name) => match pattern()? {
                PathPattern::Segments { segments, .. } => {
                    let mut parts = self.path.trim_start_matches('/').split('/').zip(segments);
                    parts.find_map(|(part, own)| match own {
                        Segment::Any(own) if own == name => Some(part.to_owned()),
                        Segment::Any(_) | Segment::Literal(_) => None,
                    })
                }
                PathPattern::Exact(_) | PathPattern::Below(_) => None,
            },
            Placeholder::Client
            | Placeholder::Header(_)
            | Placeholder::Cookie(_)
            | Placeholder::ServerName
            | Placeholder::RequestId => Some(self.unknown.to_owned()),
            Placeholder::Method
            | Placeholder::Scheme
            | Placeholder::AllowedOrigin
            | Placeholder::CredentialsIfAllowed
            | Placeholder::User
            | Placeholder::Claim(_) => None,
        }
    }
}

/// Whether the conditions of a route depend on more than the host, the path, the method, the query and the address of the
/// client, which are those of the next request, too.
fn tests_fields(route: &Route) -> bool {
    let conditions = &route.conditions;
    !route.headers.is_empty()
        || !conditions.cookies.is_empty()
        || !conditions.tables.is_empty()
        || route.client_cert.is_some()
}

/// A query that meets the conditions; `None` if there is no simple one.
fn sample_query(tests: &[NamedTest]) -> Option<Option<String>> {
    let is_simple =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let mut pairs = Vec::new();
    for NamedTest { name, test } in tests {
        let value = match test {
            HeaderTest::Absent => continue,
            HeaderTest::Present => "any",
            HeaderTest::Text(test) => test.only_value()?,
        };
        if !is_simple(name) || !is_simple(value) {
            return None;
        }
        pairs.push(format!("{name}={value}"));
    }
    Some((!pairs.is_empty()).then(|| pairs.join("&")))
}

/// Whether a query of simple pairs meets the conditions.
fn meets_query(tests: &[NamedTest], query: Option<&str>) -> bool {
    let pairs = || query.into_iter().flat_map(|query| query.split('&'));
    let values = |name: &str| {
        let pairs = pairs().map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.filter(|(own, _)| *own == name).map(|(_, value)| value).collect::<Vec<_>>()
    };
    tests.iter().all(|NamedTest { name, test }| match test {
        HeaderTest::Present => !values(name).is_empty(),
        HeaderTest::Absent => values(name).is_empty(),
        HeaderTest::Text(test) => values(name).iter().any(|value| test.matches(value.as_bytes())),
    })
}

fn sample_host(pattern: Option<&HostPattern>) -> String {
    match pattern {
        None => ANY_HOST.to_owned(),
        Some(HostPattern::Exact(name)) => name.clone(),
        Some(HostPattern::Below(suffix)) => format!("any{suffix}"),
    }
}

fn sample_path(pattern: Option<&PathPattern>) -> String {
    match pattern {
        None => "/any".to_owned(),
        Some(PathPattern::Exact(path)) => path.clone(),
        Some(PathPattern::Below(prefix)) => format!("{prefix}any"),
        Some(PathPattern::Segments { segments, .. }) => segments
            .iter()
            .map(|segment| match segment {
                Segment::Literal(text) => format!("/{text}"),
                Segment::Any(_) => "/any".to_owned(),
            })
            .collect(),
    }
}
