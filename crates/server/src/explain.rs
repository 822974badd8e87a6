//! Explains what happens to a request: which route takes it, why earlier routes do not, what the server receives, or what
//! Tidegate answers by itself.
//! In: a configuration, a request. Out: an explanation for the operator.
//! Never: opens a connection, or counts the request in a limit.

use core::fmt::Write as _;
use core::net::IpAddr;

use tidegate_config::model::{
    Action, Bandwidth, Bind, Config, Listener, PathPattern, PoolChoice, Proxy, Route,
};
use tidegate_gate::basic::Credentials;
use tidegate_gate::changes::Changes;
use tidegate_gate::cors::CrossOrigin;
use tidegate_gate::forward::{self, RequestContext, encode_upstream_request};
use tidegate_gate::handling::{Handlings, RouteHandling};
use tidegate_gate::identity::Identity;
use tidegate_gate::respond;
use tidegate_gate::rewrite::MatchedPath;
use tidegate_gate::router::{Client, Routed, Router, Unmet};
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::{Values, render_field};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::{BodyLength, FieldStorage, RequestHead};

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
            Ok(explain_head(config, question.client, listener, url.scheme, &head))
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

fn explain_head(
    config: &Config,
    client: IpAddr,
    listener: usize,
    scheme: Scheme,
    head: &RequestHead<'_>,
) -> Explanation {
    let name = config.listeners[listener].name.clone();
    let mut found =
        Explanation { listener: name, earlier: Vec::new(), route: None, text: String::new() };
    found.text = format!("listener {}\n", place_of(&config.listeners[listener]));
    explain_choice(&mut found, config, client, listener, scheme, head);
    found
}

/// Which route takes the request, why earlier routes do not, and what the route does.
fn explain_choice(
    found: &mut Explanation,
    config: &Config,
    client: IpAddr,
    listener: usize,
    scheme: Scheme,
    head: &RequestHead<'_>,
) {
    let text = &mut found.text;
    let router = Router::new(config);
    let settings = &config.listeners[listener];
    let client =
        Client { certificate: None, peer: Some(client), trusted: &settings.trusted, counts: None };
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
            explain_route(text, config, (listener, route), scheme, head, &client);
        }
    }
}

/// The path of a pattern without `/*`, if `path` is below that path.
fn above<'p>(pattern: &'p PathPattern, path: &str) -> Option<&'p str> {
    let PathPattern::Exact(exact) = pattern else { return None };
    let rest = path.strip_prefix(exact.trim_end_matches('/'))?;
    (rest.starts_with('/') && path != exact).then_some(exact)
}

/// Why a route does not take a request. If a condition has several names, any of them may be the one that is not met.
fn reason(unmet: Option<Unmet>, route: &Route) -> String {
    let no = |setting: &str, names: &mut dyn Iterator<Item = &String>| {
        let names: Vec<&str> = names.map(String::as_str).collect();
        format!("`{setting}` does not match ({})", names.join(", "))
    };
    let conditions = &route.conditions;
    match unmet {
        Some(Unmet::Host) => "`host` does not match".to_owned(),
        Some(Unmet::Path) => "`path` does not match".to_owned(),
        Some(Unmet::Method) => "`method` does not match".to_owned(),
        Some(Unmet::Headers) => no("headers", &mut route.headers.iter().map(|of| &of.name)),
        Some(Unmet::Query) => no("query", &mut conditions.query.iter().map(|of| &of.name)),
        Some(Unmet::Cookies) => no("cookies", &mut conditions.cookies.iter().map(|of| &of.name)),
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
    (listener, route): (usize, usize),
    scheme: Scheme,
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
    let values = Values {
        head,
        path: &path,
        peer: client.peer,
        trusted: client.trusted,
        scheme,
        server_name: None,
        allowed_origin: None,
        user: None,
        claims: None,
        identity: Identity::plain(0),
    };
    if let Some(handling) = handling
        && explain_handling(text, config, (&handlings, handling), &values)
    {
        return;
    }
    explain_action(text, config, (listener, route), (&handlings, handling), &values);
    explain_response(text, &config.routes[route], &values);
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
            let _ = match render_field(&mut value, template, values) {
                // A field without a value is left out.
                Ok(()) if value.is_empty() => Ok(()),
                Ok(()) => {
                    let value = String::from_utf8_lossy(&value);
                    writeln!(text, "  {what} in the response: {name}: {value}")
                }
                Err(fault) => writeln!(text, "  {}: {}", fault.status(), fault.text()),
            };
        }
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
    let head = values.head;
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
            let _ = writeln!(text, "  action: proxy to pool {name:?}, whose server receives:");
            text.push_str(&forwarded(config, listener, (proxy, pool), handling, values));
            let edits = handling.and_then(|handling| handling.request.as_ref());
            let is_dropped = |name: &str| edits.is_some_and(|edits| edits.drops(name));
            let names = head.fields().map(|field| field.name);
            let dropped: Vec<&str> = names.filter(|name| is_dropped(name)).collect();
            if !dropped.is_empty() {
                let names = dropped.join(", ");
                let _ = writeln!(text, "  `request-headers` removed or replaced: {names}");
            }
        }
    }
}

/// Explains what the route does before its action, in the order of `action/handled.rs`. Returns whether the
/// route has responded, so that its action does not run.
fn explain_handling(
    text: &mut String,
    config: &Config,
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
    if let Some(guard) = &handling.auth {
        match Credentials::of(values.head) {
            None => {
                note("401: the request has no user name and password (Authorization: Basic)");
                return true;
            }
            Some(known) if !guard.users.users.contains_key(&known.user) => {
                note("401: the file of `auth` has no user of this name");
                return true;
            }
            Some(_) => note("401 if the password is wrong; it is not verified here"),
        }
    }
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
    if handling.jwt.is_some() {
        note("401 without a valid token; 403 if the token lacks a claim of `claims`");
    }
    false
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

/// The head that the server receives, indented.
fn forwarded(
    config: &Config,
    listener: usize,
    (proxy, pool): (&Proxy, usize),
    handling: Option<&RouteHandling>,
    values: &Values<'_>,
) -> String {
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
            head.lines()
                .filter(|line| !line.is_empty())
                .map(|line| format!("{FORWARDED_INDENT}{line}\n"))
                .collect()
        }
        Err(fault) => format!("  no request is sent: {} {}\n", fault.status(), fault.text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
        [[route]]\nhost = \"b.example\"\nrespond = {}\n\
        [[route]]\npath = \"/v2/*\"\nrespond = {}\n\
        [[route]]\npath = \"/v1/*\"\nmethod = \"POST\"\nrespond = {}\n\
        [[route]]\npath = \"/v1/*\"\nclient = \"10.0.0.0/8\"\nrespond = {}\n\
        [[route]]\npath = \"/v1/*\"\nproxy = { pool = \"app\", path = \"/in/{rest}\" }\n\
        request-headers = { set = { x-client = \"{client}\" } }\ndeny = \"198.51.100.0/24\"\n\
        [pool.app]\nservers = [\"127.0.0.1:8000\"]\n";

    fn answer(request: &str) -> Result<String, String> {
        ask(FILE, request, &[])
    }

    fn ask(file: &str, request: &str, fields: &[&str]) -> Result<String, String> {
        let config = tidegate_config::parse(file, "the test").unwrap_or_else(|e| panic!("{e}"));
        let client = IpAddr::from([192, 0, 2, 7]);
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        let question = ExplainedRequest { request, fields: &fields, client, listener: None };
        explain(&config, &question).map(|explanation| explanation.text)
    }

    #[test]
    fn parts_of_an_explanation_are_separate() {
        let config = tidegate_config::parse(FILE, "the test").unwrap_or_else(|e| panic!("{e}"));
        let ask = |request| {
            let client = IpAddr::from([192, 0, 2, 7]);
            let question = ExplainedRequest { request, fields: &[], client, listener: None };
            explain(&config, &question).expect("an explanation")
        };
        let found = ask("GET http://a.example/v1/x");
        assert_eq!((found.listener.as_str(), found.route), ("127.0.0.1:80", Some(4)));
        let reasons = ["`host`", "`path`", "`method`", "`client`"];
        let earlier = reasons.map(|name| format!("{name} does not match"));
        let named = found.earlier.iter().enumerate();
        assert!(
            named.clone().all(|(at, (route, why))| *route == at && *why == earlier[at]),
            "{found:?}"
        );
        assert_eq!(named.count(), earlier.len());
        let effects: Vec<&str> = found.effects().collect();
        assert_eq!(effects, ["action: proxy to pool \"app\", whose server receives:"]);
        let lines: Vec<&str> = found.forwarded().collect();
        assert_eq!(lines[0], "GET /in/x HTTP/1.1");
        assert!(lines.contains(&"x-client: 192.0.2.7"), "{lines:?}");
        let found = ask("GET http://a.example/v3");
        let effects: Vec<&str> = found.effects().collect();
        assert_eq!((found.route, effects), (None, vec!["no route matches the request: 404"]));
        assert_eq!((found.earlier.len(), found.forwarded().count()), (5, 0));
    }

    #[test]
    fn url_that_no_listener_serves_is_refused() {
        for (request, reason) in [
            ("GET https://a.example/x", "no listener serves https; the listeners are: "),
            ("GET http://a.example:9999/x", "no listener has port 9999; the listeners are: "),
            ("GET https://a.example:80/x", "so it receives no https requests"),
        ] {
            let text = answer(request).expect_err(request);
            assert!(text.contains(reason), "{request}: {text}");
        }
        let trusting = FILE.replacen(":80\"\n", ":80\"\ntrusted = [\"10.0.0.0/8\"]\n", 1);
        let text = ask(&trusting, "GET https://a.example/x", &[]).expect("an explanation");
        assert!(text.contains("a proxy in front"), "{text}");
    }

    #[test]
    fn only_what_happens_is_printed() {
        let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
            [[listener]]\nname = \"up\"\nbind = \"127.0.0.1:81\"\nredirect-to-https = true\n\
            [[route]]\npath = \"/m\"\nmaintenance = {}\nproxy = \"app\"\n\
            [[route]]\npath = \"/d\"\ndeny = \"192.0.2.0/24\"\nproxy = \"app\"\n\
            [[route]]\npath = \"/a\"\nauth = { basic = \"users\" }\nproxy = \"app\"\n\
            [[route]]\npath = \"/c\"\ncors = { origins = \"https://a.example\" }\nproxy = \"app\"\n\
            [[route]]\npath = \"/r/*\"\nredirect = \"https://new.example{path}{query}\"\n\
            [[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"127.0.0.1:8000\"]\n";
        let preflight = ["Origin: https://a.example", "Access-Control-Request-Method: PUT"];
        for (request, fields, last) in [
            ("GET http://a/m", &[][..], "  503: the route is in maintenance\n"),
            ("GET http://a/d", &[], "  403: `allow` or `deny` refuses the client\n"),
            (
                "GET http://a/a",
                &[],
                "  401: the request has no user name and password (Authorization: Basic)\n",
            ),
            (
                "GET http://a/a",
                &["Authorization: Basic Ym9iOng="],
                "  401: the file of `auth` has no user of this name\n",
            ),
            (
                "OPTIONS http://a/c",
                &preflight,
                "  204: `cors` answers the preflight request, and allows the origin\n",
            ),
            (
                "GET http://a/r/x?y=1",
                &[],
                "  action: redirect with 302, Location: https://new.example/r/x?y=1\n",
            ),
            (
                "GET http://a:81/x",
                &[],
                "the listener redirects to https: 301, Location: https://a/x\n",
            ),
        ] {
            let text = ask(file, request, fields).expect("an explanation");
            assert!(text.ends_with(last) && !text.contains("receives"), "{request}: {text}");
        }
        let text = ask(file, "GET http://a/x", &["Content-Length: 5"]).expect("an explanation");
        assert!(text.to_ascii_lowercase().contains("    connection: close\n"), "{text}");
        let text = ask(file, "GET http://a/c", &preflight).expect("an explanation");
        assert!(text.contains("whose server receives"), "{text}");
    }

    #[test]
    fn chosen_pool_is_named_with_its_reason() {
        let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
            [[route]]\npath = \"/s\"\nsplit = { pools = { app = 3, next = 1 } }\n\
            [[route]]\npath = \"/k\"\nsplit = { pools = { app = 0, next = 1 }, by = \"host\" }\n\
            [[route]]\npath = \"/d\"\n\
            proxy = { pool = { map = \"hosts\", key = \"{host}\", default = \"app\" } }\n\
            [[route]]\nproxy = { pool = { map = \"hosts\", key = \"{host}\" } }\n\
            [map.hosts]\nentries = { \"b.example\" = \"next\" }\n\
            [pool.app]\nservers = [\"127.0.0.1:1\"]\n[pool.next]\nservers = [\"127.0.0.1:2\"]\n";
        for (url, expected) in [
            (
                "http://a/s",
                "  split: pool \"app\" gets 75.00 % of all requests\n  split: pool \"next\" gets 25",
            ),
            ("http://a/s", "  action: proxy to pool \"app\""),
            (
                "http://a/k",
                "  split: `by` decides the pool of this request\n  action: proxy to pool \"next\"",
            ),
            (
                "http://B.example:80/d",
                "  pool: the value of \"b.example\" in map \"hosts\"\n  action: proxy to pool \"next\"",
            ),
            (
                "http://c/d",
                "  pool: `default`, because \"c\" is not in map \"hosts\"\n  action: proxy to pool \"app\"",
            ),
            ("http://c/", "  404: \"c\" is not in map \"hosts\", and `pool` has no `default`\n"),
        ] {
            let text = ask(file, &format!("GET {url}"), &[]).expect("an explanation");
            assert!(text.contains(expected), "{url}: {text}");
        }
    }

    #[test]
    fn each_earlier_route_has_its_reason() {
        let text = answer("GET http://a.example/v1/x?y=1").expect("an explanation");
        for line in [
            "route 1: no, `host` does not match\n",
            "route 2: no, `path` does not match\n",
            "route 3: no, `method` does not match\n",
            "route 4: no, `client` does not match\n",
            "listener \"127.0.0.1:80\"\n",
            "route 5: yes\n  action: proxy to pool \"app\"",
            "    GET /in/x?y=1 HTTP/1.1\n",
            "    x-client: 192.0.2.7\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn unmet_condition_and_edits_are_named() {
        let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n\
            [[route]]\nquery = { q = true }\ncookies = { c = true }\nclient = \"10.0.0.0/8\"\nrespond = {}\n\
            [[route]]\ncookies = { c = \"1\" }\nclient = \"10.0.0.0/8\"\nrespond = {}\n\
            [[route]]\nclient = \"10.0.0.0/8\"\nrespond = {}\n\
            [[route]]\nproxy = \"app\"\nsecurity-headers = true\n\
            request-headers = { set = { x-a = \"new\" }, remove = [\"x-debug\"] }\n\
            response-headers = { set = { x-from = \"{host}\" }, add = { vary = \"a\" }, remove = [\"server\"] }\n\
            [pool.app]\nservers = [\"127.0.0.1:8000\"]\n";
        let fields = ["X_Debug: 1", "X-A: old", "X-B: 1"];
        let text = ask(file, "GET http://a/x", &fields).expect("an explanation");
        for line in [
            "route 1: no, `query` does not match (q)\n",
            "route 2: no, `cookies` does not match (c)\n",
            "route 3: no, `client` does not match\n",
            "    X-B: 1\n",
            "  `request-headers` removed or replaced: X_Debug, X-A\n",
            "  removed from the response: server\n  set in the response: x-from: a\n",
            "  added in the response: vary: a\n  `security-headers` adds fields",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn path_that_was_meant_as_a_prefix_is_named() {
        let file =
            "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\npath = \"/api\"\nrespond = {}\n";
        let hint =
            "  \"/api\" matches only this path; \"/api/*\" also matches the paths below it\n";
        for (path, is_hinted) in [("/api/x", true), ("/api/", true), ("/apis", false), ("/", false)]
        {
            let text = ask(file, &format!("GET http://a{path}"), &[]).expect("an explanation");
            assert_eq!(text.contains(hint), is_hinted, "{path}: {text}");
        }
    }

    #[test]
    fn requests_without_a_route_and_wrong_requests_are_named() {
        let text = answer("http://a.example/other").expect("an explanation");
        assert!(text.ends_with("no route matches the request: 404\n"), "{text}");
        let text = answer("GET http://a.example//v2/../x").expect("an explanation");
        assert!(text.contains("refused: 400"), "{text}");
        for wrong in ["GET /path", "GET http://a.example?x", "GET http://a b/", "GET ftp://a/"] {
            assert!(answer(wrong).is_err(), "{wrong}");
        }
        let limited = FILE.replacen(
            ":80\"\n",
            ":80\"\nlimits = { request-line = \"100B\", body = \"9B\" }\n",
            1,
        );
        let long = format!("GET http://a.example/{}", "x".repeat(100));
        let text = ask(&limited, &long, &[]).expect_err("a long request line");
        assert!(text.contains("refuses the request: 414"), "{text}");
        let text = ask(&limited, "PUT http://a.example/", &["Content-Length: 10"]).expect("it is");
        assert!(text.contains("413: the body is longer than `body`"), "{text}");
    }
}
