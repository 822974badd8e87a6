//! Explains what happens to a request: which route takes it, why earlier routes do not, what the server receives.
//! In: a configuration, a request as text. Out: a text for the operator.
//! Never: opens a connection, or counts the request in a limit.

use core::fmt::Write as _;
use core::net::IpAddr;

use tidegate_config::model::{Action, Config, Proxy};
use tidegate_gate::client_fields::ClientAddressFields;
use tidegate_gate::forward::{Changes, RequestContext, encode_upstream_request};
use tidegate_gate::handling::{Handlings, RouteHandling};
use tidegate_gate::rewrite::MatchedPath;
use tidegate_gate::router::{Client, Routed, Router, Unmet};
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::Values;
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::{FieldStorage, RequestHead};

/// A request to explain.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The method and the URL, such as `GET https://a.example/v1/x`. Without a method, GET.
    pub request: &'a str,
    /// Header fields, such as `Cookie: a=b`.
    pub fields: &'a [String],
    /// The address of the client.
    pub client: IpAddr,
    /// The name of the listener; `None`: the first one whose port or scheme is that of the URL.
    pub listener: Option<&'a str>,
}

/// The parts of a URL.
struct Url<'a> {
    scheme: Scheme,
    authority: &'a str,
    port: u16,
    target: &'a str,
}

/// Explains what `config` does with a request.
///
/// # Errors
/// The request cannot be understood; the text states why.
pub fn explain(config: &Config, question: &Question<'_>) -> Result<String, String> {
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
    let decoded = decoder.decode_request(bytes.as_bytes(), &HeadLimits::default(), &mut storage);
    match decoded {
        Ok(Some((head, used))) if used == bytes.len() => {
            Ok(explain_head(config, question.client, listener, url.scheme, &head))
        }
        Ok(_) => Err("the request has more than a head".to_owned()),
        Err(fault) => Err(format!("not a request: {} {}", fault.status(), fault.reason())),
    }
}

fn parse_url(url: &str) -> Result<Url<'_>, String> {
    let (scheme, rest, usual) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (Scheme::Http, rest, 80),
        (None, Some(rest)) => (Scheme::Https, rest, 443),
        (None, None) => {
            return Err(format!("{url:?} is no URL; help: write \"GET https://example.com/path\""));
        }
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    match target {
        "" => Ok(Url { scheme, authority, port: port.unwrap_or(usual), target: "/" }),
        _ if target.starts_with('/') => {
            Ok(Url { scheme, authority, port: port.unwrap_or(usual), target })
        }
        _ => Err(format!("{url:?} has no path; help: write a slash before the question mark")),
    }
}

/// The listener that gets the request.
fn find_listener(config: &Config, name: Option<&str>, url: &Url<'_>) -> Result<usize, String> {
    let listeners = &config.listeners;
    if let Some(name) = name {
        let names: Vec<&str> = listeners.iter().map(|listener| listener.name.as_str()).collect();
        let found = names.iter().position(|known| *known == name);
        return found
            .ok_or(format!("there is no listener {name:?}; allowed: {}", names.join(", ")));
    }
    let port_of = |at: usize| match &listeners[at].bind {
        tidegate_config::model::Bind::Tcp(address) => Some(address.port()),
        tidegate_config::model::Bind::Unix(_) => None,
    };
    let mut all = 0..listeners.len();
    let by_port = all.clone().find(|at| port_of(*at) == Some(url.port));
    let is_https = url.scheme == Scheme::Https;
    let by_scheme = all.find(|at| listeners[*at].tls.is_some() == is_https);
    by_port.or(by_scheme).or((!listeners.is_empty()).then_some(0)).ok_or("no listener".to_owned())
}

fn explain_head(
    config: &Config,
    client: IpAddr,
    listener: usize,
    scheme: Scheme,
    head: &RequestHead<'_>,
) -> String {
    let router = Router::new(config);
    let settings = &config.listeners[listener];
    let client = Client { certificate: None, peer: Some(client), trusted: &settings.trusted };
    let mut text = format!("listener {:?}\n", settings.name);
    if settings.forward.is_some() {
        text.push_str(
            "connections are forwarded without reading requests (`forward`): no route applies\n",
        );
        return text;
    }
    if scheme == Scheme::Http && settings.redirect_to_https.is_some() {
        text.push_str("redirected to https by the listener\n");
        return text;
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
        let _ = writeln!(text, "route {}: no, {}", route + 1, reason(unmet));
    }
    match routed {
        Routed::NoRoute => text.push_str("no route takes the request: 404\n"),
        Routed::Refused(why) => {
            let _ = writeln!(text, "the request is refused: 400, {why}");
        }
        Routed::Route(route) => {
            let _ = writeln!(text, "route {}: yes", route + 1);
            explain_route(&mut text, config, (listener, route), scheme, head, &client);
        }
    }
    text
}

fn reason(unmet: Option<Unmet>) -> &'static str {
    match unmet {
        Some(Unmet::Host) => "`host` does not match",
        Some(Unmet::Path) => "`path` does not match",
        Some(Unmet::Method) => "`method` does not match",
        Some(Unmet::Headers) => "`headers` does not match",
        Some(Unmet::Client) => "`query`, `cookies` or `client` does not match",
        Some(Unmet::Certificate) => "`client-cert` does not match",
        None => "the path has several readings",
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
        id: 0,
    };
    if let Some(handling) = handling {
        explain_handling(text, handling, &values);
    }
    match &config.routes[route].action {
        Action::Respond(respond) => {
            let _ = writeln!(text, "  action: respond with {}", respond.status);
        }
        Action::Redirect(redirect) => {
            let _ = writeln!(text, "  action: redirect with {}", redirect.status);
        }
        Action::Synthetic => text.push_str("  action: synthetic response\n"),
        Action::Push(_) => text.push_str("  action: push hub\n"),
        Action::Lua(app) => {
            let _ = writeln!(text, "  action: Lua application {:?}", config.lua[*app].name);
        }
        Action::Echo => text.push_str("  action: echo over WebSocket\n"),
        Action::Proxy(proxy) => {
            let pool = &config.pools[proxy.pool].name;
            let _ = writeln!(text, "  action: proxy to pool {pool:?}, whose server receives:");
            text.push_str(&forwarded(config, listener, proxy, handling, &values));
        }
    }
}

fn explain_handling(text: &mut String, handling: &RouteHandling, values: &Values<'_>) {
    let mut note = |line: &str| {
        let _ = writeln!(text, "  {line}");
    };
    if handling.down.as_ref().is_some_and(|down| down.denial(|| values.client()).is_some()) {
        note("503: the route is in maintenance");
    }
    if !handling.admits(|| values.client()) {
        note("403: `allow` or `deny` refuses the client");
    }
    if !handling.rates.is_empty() {
        note("429 if the request exceeds `rate`");
    }
    if handling.auth.is_some() {
        note("401 without a user name and a password");
    }
    if handling.jwt.is_some() {
        note("401 without a valid token, 403 if it lacks a claim of `claims`");
    }
}

/// The head that the server receives, indented.
fn forwarded(
    config: &Config,
    listener: usize,
    proxy: &Proxy,
    handling: Option<&RouteHandling>,
    values: &Values<'_>,
) -> String {
    let settings = &config.listeners[listener];
    let edits = handling.and_then(|handling| handling.request.as_ref());
    let changes = Changes { path: proxy.path.as_ref(), edits, values, waits: false };
    let context = RequestContext {
        peer: values.peer,
        trusted: values.peer.is_some_and(|ip| settings.trusted.iter().any(|net| net.contains(ip))),
        client_address_fields: &ClientAddressFields::new(&settings.client_address_headers),
        scheme: values.scheme,
        client_certificate: None,
        via: &config.server.via,
        host: &proxy.host,
        trailers: config.pools[proxy.pool].trailers,
        close: false,
        websocket_key: None,
        changes: Some(changes),
    };
    let mut out = Vec::new();
    match encode_upstream_request(&mut out, values.head, &context) {
        Ok(()) => {
            let head = String::from_utf8_lossy(&out);
            head.lines()
                .filter(|line| !line.is_empty())
                .map(|line| format!("    {line}\n"))
                .collect()
        }
        Err(fault) => format!("    nothing: {} {}\n", fault.status(), fault.text()),
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
        request-headers = { set = { x-client = \"{client}\" } }\ndeny = \"192.0.2.0/24\"\n\
        [pool.app]\nservers = [\"127.0.0.1:8000\"]\n";

    fn answer(request: &str) -> Result<String, String> {
        let config = tidegate_config::parse(FILE, "the test").unwrap_or_else(|e| panic!("{e}"));
        let client = IpAddr::from([192, 0, 2, 7]);
        explain(&config, &Question { request, fields: &[], client, listener: None })
    }

    #[test]
    fn each_earlier_route_has_its_reason() {
        let text = answer("GET http://a.example/v1/x?y=1").expect("an explanation");
        for line in [
            "route 1: no, `host` does not match\n",
            "route 2: no, `path` does not match\n",
            "route 3: no, `method` does not match\n",
            "route 4: no, `query`, `cookies` or `client` does not match\n",
            "route 5: yes\n  403: `allow` or `deny` refuses the client\n  action: proxy to pool \"app\"",
            "    GET /in/x?y=1 HTTP/1.1\n",
            "    x-client: 192.0.2.7\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn requests_without_a_route_and_wrong_requests_are_named() {
        let text = answer("http://a.example/other").expect("an explanation");
        assert!(text.ends_with("no route takes the request: 404\n"), "{text}");
        let text = answer("GET http://a.example//v2/../x").expect("an explanation");
        assert!(text.contains("refused: 400"), "{text}");
        for wrong in ["GET /path", "GET http://a.example?x", "GET http://a b/", "GET ftp://a/"] {
            assert!(answer(wrong).is_err(), "{wrong}");
        }
    }
}
