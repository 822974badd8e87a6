//! Explains what happens to a request: which route takes it, why earlier routes do not, what the server receives, or what
//! Tidegate answers by itself.
//! In: a configuration, a request; the time, for its token. Out: an explanation for the operator.
//! Never: opens a connection, or counts the request in a limit.

use core::fmt::Write as _;
use core::net::IpAddr;

use tidegate_base::Span;
use tidegate_config::model::{
    Action, Bandwidth, Bind, Config, Listener, PathPattern, Pool, PoolChoice, Proxy, Route,
};
use tidegate_gate::basic::Credentials;
use tidegate_gate::changes::Changes;
use tidegate_gate::cors::CrossOrigin;
use tidegate_gate::edits::Edits;
use tidegate_gate::forward::{self, RequestContext, encode_upstream_request};
use tidegate_gate::handling::{Handlings, RouteHandling};
use tidegate_gate::identity::Identity;
use tidegate_gate::jwt::{TokenFault, TokenGuard};
use tidegate_gate::respond;
use tidegate_gate::rewrite::MatchedPath;
use tidegate_gate::router::{Client, Routed, Router, Unmet};
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::{Values, render_field};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::jwt::{Claims, stated_claims};
use tidegate_wire::message::{BodyLength, FieldStorage, RequestHead};

use crate::reload::unix_seconds;
use crate::snapshot::client_fields;

/// A request to explain.
#[derive(Clone, Debug)]
pub struct ExplainedRequest<'a> {
    /// The method and the URL, such as `GET https://a.example/v1/x`. Without a method, GET.
    pub request: &'a str,
    /// Header fields, such as `Cookie: a=b`.
    pub fields: &'a [String],
    /// The address of the client.
    pub client: IpAddr,
    /// The name of the listener; `None`: the first one whose port or scheme is that of the URL.
    pub listener: Option<&'a str>,
}

/// What happens to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The name of the listener that gets the request.
    pub listener: String,
    /// The earlier routes that do not take the request, by their indexes, and why.
    pub earlier: Vec<(usize, String)>,
    /// The index of the route that takes the request; `None`: no route does.
    pub route: Option<usize>,
    /// The explanation for people. What the route does is indented by two spaces, the head that the server receives by four.
    pub text: String,
}

impl Explanation {
    /// What happens to the request, in order, without the head that the server receives.
    pub fn effects(&self) -> impl Iterator<Item = &str> {
        let plain = self.text.lines().filter(|line| !line.starts_with(FORWARDED_INDENT));
        let is_known = |line: &str| line.starts_with("listener ") || line.starts_with("route ");
        plain.filter(move |line| !is_known(line)).map(str::trim_start)
    }

    /// The lines of the head that the server receives; none if no server does.
    pub fn forwarded(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| line.strip_prefix(FORWARDED_INDENT))
    }
}

/// The indentation of the head that the server receives.
const FORWARDED_INDENT: &str = "    ";

/// How the request arrives.
struct Arrival<'a> {
    /// The address of the client.
    client: IpAddr,
    /// The index of the listener.
    listener: usize,
    /// The scheme.
    scheme: Scheme,
    /// The server name of the TLS handshake.
    server_name: Option<&'a str>,
}

/// What `auth` knows about the client.
#[derive(Default)]
struct Visitor {
    /// The name of the user.
    user: Option<String>,
    /// The claims of the token.
    claims: Option<Claims>,
}

/// The parts of a URL.
struct Url<'a> {
    /// The scheme.
    scheme: Scheme,
    /// The host, with the port if the URL contains one.
    authority: &'a str,
    /// The port, if the URL contains one.
    port: Option<u16>,
    /// The path and the query.
    target: &'a str,
}

impl<'a> Url<'a> {
    /// The server name of a TLS handshake for this URL; `None` if it has no name: clients send no addresses (RFC 6066 section 3).
    fn server_name(&self) -> Option<&'a str> {
        let host = match self.port {
            Some(_) => self.authority.rsplit_once(':').map_or(self.authority, |(host, _)| host),
            None => self.authority,
        };
        let is_name = !host.starts_with('[') && host.parse::<IpAddr>().is_err();
        is_name.then_some(host)
    }
}

/// Explains what `config` does with a request.
///
/// # Errors
/// The request cannot be understood; the text says why.
pub fn explain(config: &Config, question: &ExplainedRequest<'_>) -> Result<Explanation, String> {
    let (method, url) =
        question.request.trim().split_once(' ').unwrap_or(("GET", question.request));
    let url = parse_url(url.trim())?;
    let listener = find_listener(config, question.listener, &url)?;
    let mut bytes = format!("{method} {} HTTP/1.1\r\nHost: {}\r\n", url.target, url.authority);
    for field in question.fields {
        let _ = write!(bytes, "{field}\r\n");
    }
    bytes.push_str("\r\n");
    let mut storage = FieldStorage::new();
    let mut decoder = HeadDecoder::default();
    let limits = &config.listeners[listener].limits;
    let limits = HeadLimits {
        request_line_bytes_max: limits.request_line_bytes_max,
        head_bytes_max: limits.head_bytes_max,
        header_fields_max: limits.header_fields_max,
    };
    let decoded = decoder.decode_request(bytes.as_bytes(), &limits, &mut storage);
    match decoded {
        Ok(Some((head, used))) if used == bytes.len() => {
            let is_secure = config.listeners[listener].tls.is_some();
            let (client, scheme) = (question.client, url.scheme);
            let server_name = url.server_name().filter(|_| is_secure);
            let arrival = Arrival { client, listener, scheme, server_name };
            Ok(explain_head(config, &arrival, &head))
        }
        Ok(_) => Err("the request contains bytes after its head; write only the head".to_owned()),
        Err(fault) => {
            Err(format!("the listener refuses the request: {} {}", fault.status(), fault.reason()))
        }
    }
}

fn parse_url(url: &str) -> Result<Url<'_>, String> {
    let (scheme, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (Scheme::Http, rest),
        (None, Some(rest)) => (Scheme::Https, rest),
        (None, None) => {
            return Err(format!(
                "{url:?} is not a URL; help: write \"GET https://example.com/path\""
            ));
        }
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    match target {
        "" => Ok(Url { scheme, authority, port, target: "/" }),
        _ if target.starts_with('/') => Ok(Url { scheme, authority, port, target }),
        _ => Err(format!("{url:?} has no path; help: write a slash before the question mark")),
    }
}

/// The listener that gets the request: the listener called `name`, else the listener with the port of the URL, else the
/// first listener with the scheme of the URL.
fn find_listener(config: &Config, name: Option<&str>, url: &Url<'_>) -> Result<usize, String> {
    let listeners = &config.listeners;
    let all = || listeners.iter().map(place_of).collect::<Vec<_>>().join(", ");
    let port_of = |listener: &Listener| match &listener.bind {
        Bind::Tcp(address) => Some(address.port()),
        Bind::Unix(_) => None,
    };
    let (is_https, usual) = match url.scheme {
        Scheme::Http => (false, 80),
        Scheme::Https => (true, 443),
    };
    let with_port =
        |port: u16| listeners.iter().position(|listener| port_of(listener) == Some(port));
    let found = match (name, url.port) {
        (Some(name), _) => listeners
            .iter()
            .position(|listener| listener.name == name)
            .ok_or_else(|| format!("there is no listener {name:?}; the listeners are: {}", all()))?,
        (None, Some(port)) => with_port(port).ok_or_else(|| {
            let all = all();
            format!(
                "no listener has port {port}; the listeners are: {all}; help: if another program forwards this port, \
                 name the listener with --listener"
            )
        })?,
        (None, None) => {
            let by_scheme = || listeners.iter().position(|at| at.tls.is_some() == is_https);
            let in_front = || listeners.iter().position(Listener::may_serve_https);
            let found = with_port(usual).or_else(by_scheme);
            found.or_else(|| in_front().filter(|_| is_https)).ok_or_else(|| match is_https {
                true => format!("no listener serves https; the listeners are: {}", all()),
                false => format!("no listener serves plain http; the listeners are: {}", all()),
            })?
        }
    };
    let listener = &listeners[found];
    let place = place_of(listener);
    match (is_https, listener.tls.is_some()) {
        (true, false) if !listener.may_serve_https() => Err(format!(
            "listener {place} has no `tls` and no trusted proxy in front, so it receives no https requests; help: write \
             http:// in the URL, or add `trusted` to the listener"
        )),
        (false, true) => {
            Err(format!("listener {place} serves only https; help: write https:// in the URL"))
        }
        (true, _) | (false, false) => Ok(found),
    }
}

/// The name and the address of a listener.
fn place_of(listener: &Listener) -> String {
    let address = listener.bind.to_string();
    match listener.name == address {
        true => format!("{address:?}"),
        false => format!("{:?} ({address})", listener.name),
    }
}

fn explain_head(config: &Config, arrival: &Arrival<'_>, head: &RequestHead<'_>) -> Explanation {
    let listener = &config.listeners[arrival.listener];
    let name = listener.name.clone();
    let mut found =
        Explanation { listener: name, earlier: Vec::new(), route: None, text: String::new() };
    found.text = format!("listener {}\n", place_of(listener));
    explain_choice(&mut found, config, arrival, head);
    found
}

/// Which route takes the request, why earlier routes do not, and what the route does.
fn explain_choice(
    found: &mut Explanation,
    config: &Config,
    arrival: &Arrival<'_>,
    head: &RequestHead<'_>,
) {
    let text = &mut found.text;
    let router = Router::new(config);
    let (listener, scheme) = (arrival.listener, arrival.scheme);
    let settings = &config.listeners[listener];
    let (peer, trusted) = (Some(arrival.client), &settings.trusted);
    let client = Client { certificate: None, peer, trusted, counts: None };
    if settings.forward.is_some() {
        text.push_str(
            "connections are forwarded without reading requests (`forward`): no route applies\n",
        );
        return;
    }
    if scheme == Scheme::Https && settings.tls.is_none() {
        text.push_str("a proxy in front, which `trusted` names, received the request by https\n");
    }
    if let (BodyLength::Length(length), Some(most)) = (head.length, settings.limits.body_bytes_max)
        && length > most
    {
        let _ = writeln!(
            text,
            "413: the body is longer than `body` of the listener's `limits` ({most} bytes)"
        );
        return;
    }
    if let Some(redirect) = settings.redirect_to_https.filter(|_| scheme == Scheme::Http) {
        let _ = match respond::https_redirect(redirect, head) {
            Some((status, to)) => {
                let to = String::from_utf8_lossy(&to);
                writeln!(text, "the listener redirects to https: {status}, Location: {to}")
            }
            None => writeln!(
                text,
                "the listener redirects to https, but the host is not a plain name or address: 400"
            ),
        };
        return;
    }
    let routed = router.route(listener, head, &client, &mut Vec::new());
    let taken = match routed {
        Routed::Route(route) => Some(route),
        Routed::NoRoute | Routed::Refused(_) => None,
    };
    for (route, unmet) in router.explain(listener, head, &client) {
        if taken.is_some_and(|taken| route >= taken) {
            break;
        }
        let why = reason(unmet, &config.routes[route]);
        let _ = writeln!(text, "route {}: no, {why}", route + 1);
        found.earlier.push((route, why));
        if let Some(exact) =
            config.routes[route].paths.iter().find_map(|path| above(path, head.path))
            && unmet == Some(Unmet::Path)
        {
            let below = exact.trim_end_matches('/');
            let _ = writeln!(
                text,
                "  {exact:?} matches only this path; \"{below}/*\" also matches the paths below it"
            );
        }
    }
    match routed {
        Routed::NoRoute => text.push_str("no route matches the request: 404\n"),
        Routed::Refused(why) => {
            let _ = writeln!(text, "the request is refused: 400, {why}");
        }
        Routed::Route(route) => {
            let _ = writeln!(text, "route {}: yes", route + 1);
            found.route = Some(route);
            explain_route(text, config, (arrival, route), head, &client);
        }
    }
}

/// The path of a pattern without `/*`, if `path` is below that path.
fn above<'p>(pattern: &'p PathPattern, path: &str) -> Option<&'p str> {
    let PathPattern::Exact(exact) = pattern else { return None };
    let rest = path.strip_prefix(exact.trim_end_matches('/'))?;
    (rest.starts_with('/') && path != exact).then_some(exact)
}

/// Why a route does not take a request.
fn reason(unmet: Option<Unmet>, route: &Route) -> String {
    let no = |setting: &str, name: Option<&String>| match name {
        Some(name) => format!("`{setting}` does not match ({name})"),
        None => format!("`{setting}` does not match"),
    };
    let conditions = &route.conditions;
    match unmet {
        Some(Unmet::Host) => "`host` does not match".to_owned(),
        Some(Unmet::Path) => "`path` does not match".to_owned(),
        Some(Unmet::Method) => "`method` does not match".to_owned(),
        Some(Unmet::Headers(at)) => no("headers", route.headers.get(at).map(|of| &of.name)),
        Some(Unmet::Query(at)) => no("query", conditions.query.get(at).map(|of| &of.name)),
        Some(Unmet::Cookies(at)) => no("cookies", conditions.cookies.get(at).map(|of| &of.name)),
        Some(Unmet::Client) => "`client` does not match".to_owned(),
        Some(Unmet::Certificate) => "`client-cert` does not match".to_owned(),
        Some(Unmet::Counts) => {
            "`table` does not match (no counts are known here: all are 0)".to_owned()
        }
        None => "servers could read the path in several ways".to_owned(),
    }
}

fn explain_route(
    text: &mut String,
    config: &Config,
    (arrival, route): (&Arrival<'_>, usize),
    head: &RequestHead<'_>,
    client: &Client<'_>,
) {
    let handlings = Handlings::new(config);
    let handling = handlings.of_route(route);
    let mut scratch = Vec::new();
    let path = match handling {
        Some(handling) => MatchedPath::new(head.path, &handling.paths, &mut scratch),
        None => MatchedPath::whole(head.path),
    };
    let cors = handling.and_then(|handling| handling.cors.as_ref());
    let values = Values {
        head,
        path: &path,
        peer: client.peer,
        trusted: client.trusted,
        scheme: arrival.scheme,
        server_name: arrival.server_name.map(str::as_bytes),
        allowed_origin: cors.and_then(|cors| cors.allowed(head)),
        user: None,
        claims: None,
        identity: Identity::plain(0),
    };
    let (place, settings) = ((arrival.listener, route), &config.routes[route]);
    let Some(handling) = handling else {
        explain_action(text, config, place, (&handlings, None), &values);
        return explain_response(text, settings, &values);
    };
    let decides = (&handlings, handling);
    if !can_respond(text, decides, &values) || refuses(text, settings, decides, &values) {
        return;
    }
    let Some(visitor) = admitted(text, handling, head) else { return };
    let user = visitor.user.as_deref();
    let values = Values { user, claims: visitor.claims.as_ref(), ..values };
    if !can_respond(text, decides, &values) {
        return;
    }
    explain_handling(text, config, handling);
    explain_action(text, config, place, (&handlings, Some(handling)), &values);
    explain_response(text, settings, &values);
}

/// Whether the values of the request can be placed in the fields of the response. The worker renders them first, so
/// that nothing else happens to a request whose values cannot be placed.
fn can_respond(
    text: &mut String,
    (handlings, handling): (&Handlings, &RouteHandling),
    values: &Values<'_>,
) -> bool {
    let Err(fault) = handlings.render_response(handling, &mut Vec::new(), values) else {
        return true;
    };
    let _ = writeln!(text, "  {}: {} (`response-headers`)", fault.status(), fault.text());
    false
}

/// The changes of the route to the response of a server or of Tidegate.
fn explain_response(text: &mut String, route: &Route, values: &Values<'_>) {
    let (edits, handling) = (&route.handling.response_headers, &route.handling);
    if !edits.remove.is_empty() {
        let _ = writeln!(text, "  removed from the response: {}", edits.remove.join(", "));
    }
    for (what, fields) in [("set", &edits.set), ("added", &edits.add)] {
        for (name, template) in fields {
            let mut value = Vec::new();
            // All values can be placed. A field without a value is left out.
            if render_field(&mut value, template, values).is_ok() && !value.is_empty() {
                let value = String::from_utf8_lossy(&value);
                let _ = writeln!(text, "  {what} in the response: {name}: {value}");
            }
        }
    }
    if let Some(origin) = values.allowed_origin {
        let origin = String::from_utf8_lossy(origin);
        let _ = writeln!(text, "  `cors` allows pages of {origin} to read the response");
    } else if handling.cors.is_some() && values.head.find_named("origin").is_some() {
        text.push_str("  `cors` does not allow pages of this origin to read the response\n");
    }
    if handling.security_headers {
        text.push_str(
            "  `security-headers` adds fields to the response, and removes X-Powered-By\n",
        );
    }
    for error in &handling.errors {
        let file = &error.page.file;
        let _ = writeln!(text, "  a response with status {} gets the page {file:?}", error.status);
    }
}

/// Explains the action of the route.
fn explain_action(
    text: &mut String,
    config: &Config,
    (listener, route): (usize, usize),
    (handlings, handling): (&Handlings, Option<&RouteHandling>),
    values: &Values<'_>,
) {
    match &config.routes[route].action {
        Action::Respond(respond) => {
            let _ = writeln!(text, "  action: respond with {}", respond.status);
        }
        Action::Redirect(redirect) => {
            let _ = match respond::location(redirect, values) {
                Ok(to) => {
                    let to = String::from_utf8_lossy(&to);
                    writeln!(text, "  action: redirect with {}, Location: {to}", redirect.status)
                }
                Err((status, why)) => writeln!(text, "  {status}: {why}"),
            };
        }
        Action::Synthetic => text.push_str("  action: synthetic response\n"),
        Action::Push(_) => text.push_str("  action: push hub\n"),
        Action::Lua(app) => {
            let _ = writeln!(text, "  action: Lua application {:?}", config.lua[*app].name);
        }
        Action::Echo => text.push_str("  action: echo over WebSocket\n"),
        Action::Proxy(proxy) => {
            let Some(pool) = explain_pool(text, config, (proxy, handlings), handling, values)
            else {
                return;
            };
            let name = &config.pools[pool].name;
            match forwarded(config, listener, (proxy, pool), handling, values) {
                Ok(lines) => {
                    let _ =
                        writeln!(text, "  action: proxy to pool {name:?}, whose server receives:");
                    text.push_str(&lines);
                    explain_dropped(text, &config.routes[route], handling, values.head);
                    explain_server(text, &config.routes[route], &config.pools[pool]);
                }
                Err(why) => {
                    let _ =
                        writeln!(text, "  {why}; no request is sent to a server of pool {name:?}");
                }
            }
        }
    }
}

/// Names the received fields that the server does not receive because of the route.
fn explain_dropped(
    text: &mut String,
    route: &Route,
    handling: Option<&RouteHandling>,
    head: &RequestHead<'_>,
) {
    let Some(all) = handling.and_then(|handling| handling.request.as_ref()) else { return };
    let own = Edits::new(&route.handling.request_headers);
    let is_own = |name: &&str| own.as_ref().is_some_and(|edits| edits.drops(name));
    let dropped = head.fields().map(|field| field.name).filter(|name| all.drops(name));
    let (edited, copied): (Vec<&str>, Vec<&str>) = dropped.partition(is_own);
    if !edited.is_empty() {
        let _ = writeln!(text, "  `request-headers` removed or replaced: {}", edited.join(", "));
    }
    if !copied.is_empty() {
        let names = copied.join(", ");
        let _ = writeln!(
            text,
            "  removed, because only the response of the server of `ask` states them (`copy`): {names}"
        );
    }
}

/// What applies to the choice of the server, and to its response.
fn explain_server(text: &mut String, route: &Route, pool: &Pool) {
    if let Some(sticky) = &pool.sticky {
        let _ = writeln!(
            text,
            "  `sticky` of the pool: the cookie {:?} names the server",
            sticky.cookie
        );
    }
    if pool.stay.is_some() {
        text.push_str(
            "  `sticky` of the pool: requests with the same value of `by` go to the same server\n",
        );
    }
    let Some(timeouts) = route.handling.timeouts else { return };
    for (name, span) in [
        ("response-head", timeouts.response_head),
        ("body", timeouts.body),
        ("tunnel", timeouts.tunnel),
    ] {
        if let Some(span) = span {
            let _ = writeln!(text, "  `timeouts` of the route: {name} {}", seconds(span));
        }
    }
}

/// A time in seconds, or in milliseconds if it is not a whole number of seconds.
fn seconds(span: Span) -> String {
    let millis = span.as_millis();
    match millis % 1000 {
        0 => format!("{} s", millis / 1000),
        _ => format!("{millis} ms"),
    }
}

/// Whether the route refuses the request before it looks at its user, in the order of `action/handled.rs`.
fn refuses(
    text: &mut String,
    route: &Route,
    (handlings, handling): (&Handlings, &RouteHandling),
    values: &Values<'_>,
) -> bool {
    let mut note = |line: &str| {
        let _ = writeln!(text, "  {line}");
    };
    if handlings.closed(handling, values).is_some() {
        note("503: the route is in maintenance");
        return true;
    }
    match &route.handling.maintenance {
        Some(settings) if settings.active => note("`except` of `maintenance` admits the client"),
        Some(settings) => match &settings.name {
            Some(name) => note(&format!(
                "`maintenance` is not active; `tidegate ctl set maintenance {name} on` closes the route"
            )),
            None => note("`maintenance` is not active"),
        },
        None => {}
    }
    if !handlings.admits(handling, values) {
        note("403: `allow` or `deny` refuses the client");
        return true;
    }
    if let Some(cors) = handling.cors.as_ref().filter(|_| CrossOrigin::is_preflight(values.head)) {
        note(match cors.allowed(values.head) {
            Some(_) => "204: `cors` answers the preflight request, and allows the origin",
            None => "204: `cors` answers the preflight request, and does not allow the origin",
        });
        return true;
    }
    if !handling.rates.is_empty() {
        note("429 if the request exceeds `rate`");
    }
    if handling.per_address_max.is_some() {
        note("429 if the address has `connections-per-address-max` requests in progress");
    }
    false
}

/// What `auth` knows about the client; `None` if it refuses the request.
fn admitted(
    text: &mut String,
    handling: &RouteHandling,
    head: &RequestHead<'_>,
) -> Option<Visitor> {
    if let Some(guard) = &handling.jwt {
        return admitted_by_token(text, guard, head);
    }
    let Some(guard) = &handling.auth else { return Some(Visitor::default()) };
    let line = match Credentials::of(head) {
        None => "401: the request has no user name and password (Authorization: Basic)",
        Some(known) if !guard.users.users.contains_key(&known.user) => {
            "401: the file of `auth` has no user of this name"
        }
        Some(known) => {
            text.push_str("  401 if the password is wrong; it is not verified here\n");
            return Some(Visitor { user: Some(known.user), claims: None });
        }
    };
    let _ = writeln!(text, "  {line}");
    None
}

/// As `admitted`, for a route with tokens. Keys that are fetched are not known here, so that the claims are those that the
/// token states.
fn admitted_by_token(
    text: &mut String,
    guard: &TokenGuard,
    head: &RequestHead<'_>,
) -> Option<Visitor> {
    let verified = guard.token(head).and_then(|token| match guard.verify(token, unix_seconds()) {
        Err(TokenFault::Unavailable | TokenFault::UnknownKey) => {
            stated_claims(token).map(|claims| (claims, false)).ok_or(TokenFault::Invalid)
        }
        verified => verified.map(|claims| (claims, true)),
    });
    match verified {
        Ok((claims, is_verified)) => {
            if !is_verified {
                text.push_str(
                    "  401 if the token is not valid, 403 if it lacks a claim of `claims`; its keys are not fetched here\n",
                );
            }
            Some(Visitor { user: claims.text("sub").map(str::to_owned), claims: Some(claims) })
        }
        Err(fault) => {
            let denial = guard.denial(fault);
            let _ = writeln!(text, "  {}: {}", denial.status, denial.text);
            None
        }
    }
}

/// Explains what the route does before its action with a request that it does not refuse.
fn explain_handling(text: &mut String, config: &Config, handling: &RouteHandling) {
    let mut note = |line: &str| {
        let _ = writeln!(text, "  {line}");
    };
    if handling.hooks.is_some() {
        note(
            "`on_access` of a Lua application may change the request or respond itself; it is not run here",
        );
    }
    if handling.ask.is_some() {
        note(
            "the server of `ask` decides: its response goes to the client unless the status is 200 to 299",
        );
    }
    if let Some(Bandwidth { down, up, after }) = handling.bandwidth {
        if let Some(rate) = down {
            note(&format!(
                "the response body is sent at {rate} bytes a second, after the first {after} bytes"
            ));
        }
        if let Some(rate) = up {
            note(&format!("the request body is forwarded at {rate} bytes a second"));
        }
    }
    if let Some(mirroring) = &handling.mirror {
        let name = &config.pools[usize::from(mirroring.pool)].name;
        match mirroring.random_percent() {
            Some(percent) => {
                note(&format!("a copy of {percent} % of all requests goes to pool {name:?}"))
            }
            None => note(&format!("`by` decides whether a copy goes to pool {name:?}")),
        }
    }
}

/// The pool that the route chooses, and why; `None` if the request gets a 404 response.
fn explain_pool(
    text: &mut String,
    config: &Config,
    (proxy, handlings): (&Proxy, &Handlings),
    handling: Option<&RouteHandling>,
    values: &Values<'_>,
) -> Option<usize> {
    if let Some(only) = proxy.pool.only() {
        return Some(only);
    }
    let chooser = handling?.pool.as_ref()?;
    if let Some(shares) = chooser.random_shares() {
        for (pool, share) in &shares {
            let name = &config.pools[usize::from(*pool)].name;
            let percent = share * 100.0;
            let _ = writeln!(text, "  split: pool {name:?} gets {percent:.2} % of all requests");
        }
        let largest = shares.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        return largest.map(|(pool, _)| usize::from(*pool));
    }
    let mut key = Vec::new();
    let chooser = (chooser, |pool| usize::from(pool) < config.pools.len());
    let chosen = handlings.choose_pool(chooser, values, || 0, &mut key).map(usize::from);
    match &proxy.pool {
        PoolChoice::Map(choice) => {
            let map = &config.maps[choice.map];
            let (shown, name) = (String::from_utf8_lossy(&key).into_owned(), &map.name);
            let _ = match (map.table.find(&mut key), chosen) {
                (Some(_), _) => writeln!(text, "  pool: the value of {shown:?} in map {name:?}"),
                (None, Some(_)) => {
                    writeln!(text, "  pool: `default`, because {shown:?} is not in map {name:?}")
                }
                (None, None) => writeln!(
                    text,
                    "  404: {shown:?} is not in map {name:?}, and `pool` has no `default`"
                ),
            };
        }
        PoolChoice::Split(_) => text.push_str("  split: `by` decides the pool of this request\n"),
        PoolChoice::One(_) => {}
    }
    chosen
}

/// The head that the server receives, indented; or the status and the text of the response to a request that is not forwarded.
fn forwarded(
    config: &Config,
    listener: usize,
    (proxy, pool): (&Proxy, usize),
    handling: Option<&RouteHandling>,
    values: &Values<'_>,
) -> Result<String, String> {
    let settings = &config.listeners[listener];
    let edits = handling.and_then(|handling| handling.request.as_ref());
    let changes =
        Changes { path: proxy.path.as_ref(), edits, values, waits: false, hook: None, ask: None };
    let pool = &config.pools[pool];
    let is_reusable = forward::leaves_reusable(values.head, &pool.reuse);
    let context = RequestContext {
        peer: values.peer,
        trusted: values.peer.is_some_and(|ip| settings.trusted.iter().any(|net| net.contains(ip))),
        client_address_fields: &client_fields(settings, config),
        scheme: values.scheme,
        client_certificate: None,
        via: &config.server.via,
        host: &proxy.host,
        websocket_key: None,
        trailers: pool.trailers || pool.may_speak_http2(),
        close: !is_reusable,
        changes: Some(changes),
    };
    let mut out = Vec::new();
    match encode_upstream_request(&mut out, values.head, &context) {
        Ok(()) => {
            let head = String::from_utf8_lossy(&out);
            let lines = head.lines().filter(|line| !line.is_empty());
            Ok(lines.map(|line| format!("{FORWARDED_INDENT}{line}\n")).collect())
        }
        Err(fault) => Err(format!("{}: {}", fault.status(), fault.text())),
    }
}

#[cfg(test)]
mod tests;
