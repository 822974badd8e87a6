//! `server` blocks as listeners and routes.
//! In: the directives of `http`. Out: listeners in the plan.
//! Limits: `ROUTES_MAX` routes of a listener.

use std::collections::BTreeMap;

use crate::condition::{Clause, Condition};
use crate::document::{Block, BlockKind, Setting, Value};
use crate::finding::Findings;
use crate::plan::{Listener, Plan};
use crate::route::{self, Act, Route, TO_HTTPS};
use crate::units;

use super::Shared;
use super::location;
use super::parse::Directive;

/// Maximum number of routes of a listener.
const ROUTES_MAX: usize = 5000;

/// The directives of a block by their names, each with its position.
#[derive(Default)]
pub(super) struct Level<'d>(BTreeMap<&'d str, Vec<(usize, &'d Directive)>>);

impl<'d> Level<'d> {
    pub(super) fn of(directives: &'d [Directive]) -> Self {
        let mut level = Self::default();
        for (position, directive) in directives.iter().enumerate() {
            level.0.entry(&directive.name).or_default().push((position, directive));
        }
        level
    }

    /// The directives of these names, in their order.
    pub(super) fn named(&self, names: &[&str]) -> Vec<&'d Directive> {
        let own = names.iter().filter_map(|name| self.0.get(name)).flatten();
        let mut own: Vec<_> = own.copied().collect();
        own.sort_by_key(|(position, _)| *position);
        own.into_iter().map(|(_, directive)| directive).collect()
    }
}

/// The levels around a directive, from the outermost one.
#[derive(Clone, Copy)]
pub(super) struct Levels<'l, 'd> {
    pub(super) http: &'l Level<'d>,
    pub(super) server: &'l Level<'d>,
    pub(super) location: &'l Level<'d>,
}

impl<'d> Levels<'_, 'd> {
    /// The directives of this name of the innermost level that has some: an inner level replaces those of outer ones.
    pub(super) fn all(&self, name: &str) -> Vec<&'d Directive> {
        self.any(&[name])
    }

    /// As [`Self::all`], for directives that nginx inherits together.
    pub(super) fn any(&self, names: &[&str]) -> Vec<&'d Directive> {
        let levels = [self.location, self.server, self.http].into_iter();
        levels.map(|level| level.named(names)).find(|own| !own.is_empty()).unwrap_or_default()
    }

    /// The last directive of this name of the innermost level that has one.
    pub(super) fn last(&self, name: &str) -> Option<&'d Directive> {
        self.all(name).pop()
    }
}

/// A listener that is being made.
struct Address<'d> {
    block: Block,
    is_secure: bool,
    /// The servers of the address, and whether each is the default.
    servers: Vec<(&'d Directive, bool)>,
}

/// Reads the servers.
pub(super) fn read<'d>(
    http: &'d [Directive],
    mut shared: Shared<'d>,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) {
    let mut addresses: Vec<Address<'d>> = Vec::new();
    for server in http.iter().filter(|own| own.name == "server") {
        let listens: Vec<_> = server.inner().iter().filter(|own| own.name == "listen").collect();
        if listens.is_empty() {
            note_listener(None, server, &mut addresses, findings);
        }
        for listen in listens {
            note_listener(Some(listen), server, &mut addresses, findings);
        }
    }
    let outer = Level::of(http);
    // The routes of each server are made once, however many addresses it has.
    let mut made: BTreeMap<usize, Vec<Route>> = BTreeMap::new();
    for address in &addresses {
        for (server, _) in &address.servers {
            made.entry(server.line)
                .or_insert_with(|| location::routes(&outer, server, &mut shared, plan, findings));
        }
    }
    for address in addresses {
        let Address { mut block, is_secure, servers } = address;
        let none = Level::default();
        let own: Vec<_> = servers.iter().map(|(server, _)| Level::of(server.inner())).collect();
        let levels: Vec<_> =
            own.iter().map(|own| Levels { http: &outer, server: own, location: &none }).collect();
        limits(&mut block, &levels, findings);
        trusted(&mut block, &levels, findings);
        if is_secure {
            levels.iter().for_each(|levels| tls(&mut block, levels, findings));
            note_tls_differences(&levels, findings);
        }
        if is_secure && !block.has("tls") {
            block.set("tls", "self-signed", block.line);
        }
        let routes = choose(&servers, &made, findings);
        let bind = block.get("bind").and_then(Value::text).unwrap_or_default();
        let name = bind.replace(['[', ']'], "").replace("unix:", "");
        let name = name.rsplit([':', '/']).next().unwrap_or_default().to_owned();
        let name =
            plan.listener_name(&format!("{}-{name}", if is_secure { "https" } else { "http" }));
        block.settings.insert(0, Setting::new("name", name.as_str(), block.line));
        plan.listeners.push(Listener { block, name, is_secure, routes: Some(routes) });
    }
}

/// Adds `server` to the address of a `listen` directive.
fn note_listener<'d>(
    listen: Option<&'d Directive>,
    server: &'d Directive,
    addresses: &mut Vec<Address<'d>>,
    findings: &mut Findings<'_>,
) {
    let line = listen.map_or(server.line, |listen| listen.line);
    let text = listen.map_or("80", |listen| listen.arg(0));
    let with_port = match text.parse::<core::net::IpAddr>().is_ok()
        || text == "localhost"
        || text == "*"
        || text.ends_with(']')
    {
        true => format!("{text}:80"),
        false => text.to_owned(),
    };
    let Some(bind) = units::bind(&with_port) else {
        findings.untranslated(
            line,
            "a listener has an IP address and a port, or the path of a unix socket",
        );
        return;
    };
    let options = listen.map(|listen| listen.args.get(1..).unwrap_or_default()).unwrap_or_default();
    let has = |option: &str| options.iter().any(|own| own == option);
    if has("quic") {
        findings.untranslated(line, "Tidegate has no HTTP/3");
        return;
    }
    let is_same = |own: &Address<'_>| own.block.get("bind") == Some(&Value::Text(bind.clone()));
    let at = addresses.iter().position(is_same).unwrap_or_else(|| {
        let mut block = Block::new(BlockKind::Listener, "[[listener]]", line);
        block.set("bind", bind.clone(), line);
        addresses.push(Address { block, is_secure: false, servers: Vec::new() });
        addresses.len() - 1
    });
    let Some(address) = addresses.get_mut(at) else { return };
    address.is_secure |= has("ssl");
    for option in options {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "ssl" | "http2" | "default_server" | "default" | "reuseport" | "deferred"
            | "so_keepalive" | "fastopen" | "ipv6only" | "rcvbuf" | "sndbuf" | "spdy" => {}
            "backlog" => {
                if let Ok(backlog) = value.parse() {
                    address.block.set("backlog", Value::Number(backlog), line);
                }
            }
            "proxy_protocol" => {
                let own = server.inner().iter().filter(|own| own.name == "set_real_ip_from");
                let mut from: Vec<_> = own.map(|own| Value::from(own.arg(0))).collect();
                if from.is_empty() {
                    from = ["0.0.0.0/0", "::/0"].map(Value::from).to_vec();
                    findings.differs(line, crate::PROXIES);
                }
                address.block.set_in("proxy-protocol", "from", Value::List(from), line);
            }
            _ => findings.untranslated(line, format!("the option {option:?} of `listen`")),
        }
    }
    if !address.servers.iter().any(|(own, _)| own.line == server.line) {
        address.servers.push((server, has("default_server") || has("default")));
    }
}

/// Limits and timeouts of clients.
fn limits(block: &mut Block, servers: &[Levels<'_, '_>], findings: &mut Findings<'_>) {
    let size = |text: &str| match units::bytes(text) {
        Some(0) => Ok(u64::MAX),
        Some(bytes) => Ok(bytes),
        None => Err("not a size"),
    };
    match largest(servers, "client_max_body_size", 1 << 20, size, findings) {
        Some((u64::MAX, line)) => block.set_in("limits", "body", "unlimited", line),
        Some((bytes, line)) => block.set_in("limits", "body", units::size(bytes), line),
        None => {}
    }
    let time = |text: &str| match units::milliseconds(text, "s") {
        Some(0) => Err("Tidegate does not allow 0 for this timeout; the default applies"),
        Some(ms) => Ok(ms),
        None => Err("not a time"),
    };
    for (name, key, default_ms) in [
        ("client_header_timeout", "head", 60_000),
        ("keepalive_timeout", "idle", 75_000),
        ("client_body_timeout", "body", 60_000),
    ] {
        if let Some((ms, line)) = largest(servers, name, default_ms, time, findings) {
            block.set_in("timeouts", key, units::timeout(ms), line);
        }
    }
    let count = |text: &str| text.parse().map_err(|_| "not a number");
    if let Some((count, line)) = largest(servers, "keepalive_requests", 1000, count, findings) {
        block.set("requests-per-connection-max", Value::Number(count), line);
    }
}

/// The largest value of a directive of all servers of an address, and its line; `None` if no server states a readable value. A
/// server that does not state one has `default`, as in nginx.
fn largest(
    servers: &[Levels<'_, '_>],
    name: &str,
    default: u64,
    read: impl Fn(&str) -> Result<u64, &'static str>,
    findings: &mut Findings<'_>,
) -> Option<(u64, usize)> {
    let mut stated: Vec<(u64, usize)> = Vec::new();
    let mut least = 0;
    for levels in servers {
        match levels.last(name).map(|own| (read(own.arg(0)), own.line)) {
            Some((Ok(value), line)) => stated.push((value, line)),
            Some((Err(why), line)) => findings.untranslated(line, why),
            None => least = default,
        }
    }
    let (value, line) = stated.iter().copied().max_by_key(|(value, _)| *value)?;
    let value = value.max(least);
    for (_, line) in stated.iter().filter(|(own, _)| *own < value) {
        let why = "the largest value of all hosts of a listener counts; hosts without one have the default of nginx";
        findings.differs(*line, why);
    }
    Some((value, line))
}

/// The proxies that any server of an address trusts.
fn trusted(block: &mut Block, servers: &[Levels<'_, '_>], findings: &mut Findings<'_>) {
    let mut of_servers: Vec<Vec<&str>> = Vec::new();
    let mut last_line = 0;
    for levels in servers {
        let header = levels.last("real_ip_header").map_or("X-Real-IP", |own| own.arg(0));
        let mut own = levels.all("set_real_ip_from");
        own.retain(|_| header != "proxy_protocol");
        of_servers.push(own.iter().map(|own| own.arg(0)).collect());
        let Some(last) = own.last() else { continue };
        last_line = last.line;
        if !header.eq_ignore_ascii_case("X-Forwarded-For") {
            let why = "trusted proxies report the client in X-Forwarded-For or Forwarded";
            findings.differs(last.line, why);
        }
    }
    let mut all: Vec<&str> = Vec::new();
    for address in of_servers.iter().flatten() {
        if !all.contains(address) {
            all.push(address);
        }
    }
    if all.is_empty() {
        return;
    }
    if of_servers.iter().any(|own| all.iter().any(|address| !own.contains(address))) {
        findings.differs(last_line, "`trusted` is the same for all hosts of a listener");
    }
    block.set("trusted", Value::List(all.into_iter().map(Value::from).collect()), last_line);
}

fn tls(block: &mut Block, levels: &Levels<'_, '_>, findings: &mut Findings<'_>) {
    let keys = levels.all("ssl_certificate_key");
    for (index, cert) in levels.all("ssl_certificate").into_iter().enumerate() {
        let Some(key) = keys.get(index) else {
            findings.untranslated(cert.line, "a certificate needs a key");
            continue;
        };
        let entries = [("cert", Value::from(cert.arg(0))), ("key", Value::from(key.arg(0)))];
        let pair = Value::Table(entries.map(|(key, value)| (key.to_owned(), value)).to_vec());
        let before = block.get("tls").and_then(|tls| tls.entry("certificates"));
        let mut certificates = before.map(Value::elements).unwrap_or_default().to_vec();
        if !certificates.contains(&pair) {
            certificates.push(pair);
        }
        block.set_in("tls", "certificates", Value::List(certificates), cert.line);
    }
    if let Some(own) = levels.last("ssl_protocols")
        && own.args.iter().all(|version| version == "TLSv1.3")
    {
        block.set_in("tls", "min-version", "1.3", own.line);
    }
    if let Some(own) = levels.last("ssl_client_certificate") {
        block.set_in("tls", "client-ca", own.arg(0), own.line);
    }
    if let Some(own) = levels.last("ssl_verify_client") {
        match own.arg(0) {
            "on" => block.set_in("tls", "client-auth", "required", own.line),
            // A host that requires certificates stays protected.
            "optional" if client_auth(block) == Some("required") => {}
            "optional" => block.set_in("tls", "client-auth", "optional", own.line),
            "off" => {}
            _ => findings
                .untranslated(own.line, "`client-auth` is \"off\", \"optional\" or \"required\""),
        }
    }
    if let Some(own) = levels.last("ssl_session_tickets").filter(|own| own.arg(0) == "off") {
        block.set_in("tls", "tickets", "off", own.line);
    }
    if let Some(own) = levels.last("ssl_crl") {
        block.set_in("tls", "client-crl", own.arg(0), own.line);
    }
    if let Some(own) = levels.last("ssl_reject_handshake").filter(|own| own.arg(0) == "on") {
        block.set_in("tls", "strict-sni", Value::Flag(true), own.line);
    }
}

fn client_auth(block: &Block) -> Option<&str> {
    block.get("tls")?.entry("client-auth")?.text()
}

/// Notes settings of TLS that hosts of a listener do not have in common. A host that rejects handshakes has none.
fn note_tls_differences(servers: &[Levels<'_, '_>], findings: &mut Findings<'_>) {
    let rejects =
        |own: &Levels<'_, '_>| own.last("ssl_reject_handshake").is_some_and(|o| o.arg(0) == "on");
    for name in ["ssl_protocols", "ssl_client_certificate", "ssl_verify_client", "ssl_crl"] {
        let stated = servers.iter().filter(|own| !rejects(own)).map(|own| own.last(name));
        let stated: Vec<Option<&Directive>> = stated.collect();
        let args = |own: &Option<&Directive>| own.map(|own| own.args.clone());
        if stated.windows(2).all(|pair| args(&pair[0]) == args(&pair[1])) {
            continue;
        }
        for own in stated.into_iter().flatten() {
            let why =
                "settings of TLS are the same for all hosts of a listener, except for certificates";
            findings.differs(own.line, why);
        }
    }
}

/// The routes of an address: those of the servers with exact names, then with patterns, then of the default server.
fn choose(
    servers: &[(&Directive, bool)],
    made: &BTreeMap<usize, Vec<Route>>,
    findings: &mut Findings<'_>,
) -> Vec<Route> {
    let default = servers.iter().position(|(_, is_default)| *is_default).unwrap_or(0);
    let mut parts: Vec<(usize, Vec<String>, &Vec<Route>)> = Vec::new();
    let all_patterns: Vec<_> =
        servers.iter().flat_map(|(server, _)| names(server, findings).1).collect();
    for (index, (server, _)) in servers.iter().enumerate() {
        let Some(routes) = made.get(&server.line) else { continue };
        let (exact, patterns) = names(server, findings);
        if index == default && all_patterns.is_empty() {
            // The routes at the end take these names.
            continue;
        }
        if !exact.is_empty() {
            parts.push((0, exact, routes));
        }
        for pattern in patterns {
            // Longer patterns come first.
            parts.push((1000 - pattern.len().min(999), vec![pattern], routes));
        }
    }
    parts.sort_by_key(|(rank, _, _)| *rank);
    let mut all = Vec::new();
    for (_, hosts, routes) in parts {
        let condition = Condition { hosts: Some(hosts), ..Condition::default() };
        all.extend(route::restrict(routes, &condition).unwrap_or_default());
        // A request for this host does not get to another server.
        let is_closed = routes.iter().any(|route| route.condition.is_empty());
        if !is_closed && servers.len() > 1 {
            let action = crate::route::Action::Respond {
                status: 404,
                headers: Vec::new(),
                body: String::new(),
            };
            let line = routes.first().map_or(0, |route| route.line);
            all.push(Route::new(condition, action, line));
        }
    }
    if let Some(routes) = servers.get(default).and_then(|(server, _)| made.get(&server.line)) {
        all.extend(routes.iter().cloned());
    }
    for route in all.iter().skip(ROUTES_MAX) {
        findings.untranslated(
            route.line,
            format!("only {ROUTES_MAX} routes of a listener are written"),
        );
    }
    all.truncate(ROUTES_MAX);
    route::pruned(all)
}

/// The exact names and the patterns of a server.
fn names(server: &Directive, findings: &mut Findings<'_>) -> (Vec<String>, Vec<String>) {
    let (mut exact, mut patterns) = (Vec::new(), Vec::new());
    for directive in server.inner().iter().filter(|own| own.name == "server_name") {
        for name in &directive.args {
            let name = name.to_ascii_lowercase();
            if let Some(below) = name.strip_prefix('.') {
                exact.push(below.to_owned());
                patterns.push(format!("*.{below}"));
            } else if name.starts_with("*.") {
                patterns.push(name);
            } else if name.starts_with('~') || name.ends_with('*') {
                findings.untranslated(
                    directive.line,
                    format!("{name:?}: a host is a name, or a pattern such as \"*.example.com\""),
                );
            } else if !(name.is_empty()
                || name == "_"
                || name == "localhost" && directive.args.len() == 1)
            {
                exact.push(name);
            }
        }
    }
    (exact, patterns)
}

/// Puts routes that end the evaluation before `routes`.
pub(super) fn precede(
    routes: &mut Vec<Route>,
    clauses: &[Clause],
    ends: &[Route],
    line: usize,
    findings: &mut Findings<'_>,
) {
    match route::apply(routes, clauses, &Act::End(ends)) {
        Ok(new) => *routes = new,
        Err(why) => findings
            .untranslated(line, format!("the conditions of routes cannot express this: {why}")),
    }
}

/// Whether the text redirects to the same URL with https.
pub(super) fn is_to_https(to: &str) -> bool {
    to == TO_HTTPS
}
