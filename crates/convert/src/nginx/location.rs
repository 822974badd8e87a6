//! The routes of a `server` block: its locations in the order in which nginx chooses among them.
//! In: the directives of a server, and of `http` around it. Out: routes without a host.

use std::collections::BTreeSet;

use crate::condition::{Clause, Condition, is_path_below};
use crate::document::{Block, BlockKind, Value};
use crate::finding::Findings;
use crate::haproxy::expression::simple_regex;
use crate::haproxy::rules;
use crate::placement::Placement;
use crate::plan::Plan;
use crate::route::{self, Act, Action, Edit, REQUESTS, RESPONSES, Rewrite, Route, Target};
use crate::units;

use super::branch::condition;
use super::parse::Directive;
use super::server::{Level, Levels, is_to_https, precede};
use super::variables;
use super::{Shared, set_pool_timeout, upstream};

/// The test of a location, in the order in which Tidegate tries the routes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// `=`.
    Exact,
    /// `^~`, or a prefix below it.
    Final,
    Regex,
    Prefix,
}

/// The paths of a location, and its rank: lower ones are chosen first.
struct Place {
    condition: Condition,
    rank: (Kind, usize),
    /// The text that `proxy_pass` with a path replaces.
    prefix: Option<String>,
    line: usize,
}

impl Place {
    /// The text without a slash at its end.
    fn folder(&self) -> &str {
        let text = self.prefix.as_deref().unwrap_or_default();
        text.strip_suffix('/').unwrap_or(text)
    }
}

/// The host of the request, in nginx's words.
const CLIENT_HOSTS: [&str; 4] =
    ["$host", "$http_host", "$host:$server_port", "$http_host:$server_port"];

/// The context in which a location is read.
struct Reader<'r, 'd, 'f, 't> {
    shared: &'r mut Shared<'d>,
    plan: &'r mut Plan,
    findings: &'f mut Findings<'t>,
}

/// The routes of a server.
pub(super) fn routes<'d>(
    http: &Level<'d>,
    server: &'d Directive,
    shared: &mut Shared<'d>,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) -> Vec<Route> {
    let mut reader = Reader { shared, plan, findings };
    let (own, none) = (Level::of(server.inner()), Level::default());
    let outer = Levels { http, server: &own, location: &none };
    let top: BTreeSet<usize> = own.named(&["location"]).iter().map(|own| own.line).collect();
    let mut locations: Vec<&Directive> = Vec::new();
    collect(server.inner(), &mut locations);
    let mut placed: Vec<(Place, Vec<Route>)> = Vec::new();
    for (index, location) in
        locations.iter().enumerate().filter(|(_, own)| !own.arg(0).starts_with('@'))
    {
        let Some(place) = place(location, index, reader.findings) else { continue };
        let inner = Level::of(location.inner());
        let levels = Levels { location: &inner, ..outer };
        if !top.contains(&location.line) {
            let why = "settings of the outer location are not repeated here: write them into this route, too";
            reader.findings.untranslated(location.line, why);
        }
        let own = reader.location(location, &levels, &place, &locations);
        placed.push((place, own));
    }
    raise_prefixes(placed.iter_mut().map(|(place, _)| place).collect(), reader.findings);
    placed.sort_by_key(|(place, _)| place.rank);
    let mut all = Vec::new();
    for (place, own) in placed {
        match route::restrict(&own, &place.condition) {
            Ok(own) => all.extend(own),
            Err(why) => {
                let line = own.first().map_or(server.line, |route| route.line);
                reader.findings.untranslated(line, why);
            }
        }
    }
    // The directives of the server itself apply before its locations.
    reader.rewrites(server.inner(), &outer, &mut all);
    all
}

/// The locations, also those within others.
fn collect<'d>(directives: &'d [Directive], locations: &mut Vec<&'d Directive>) {
    for location in directives.iter().filter(|own| own.name == "location") {
        locations.push(location);
        collect(location.inner(), locations);
    }
}

/// Lets prefixes below one with `^~` come with it, so that the longest one is chosen: nginx looks for the longest prefix first,
/// and only then at its modifier.
fn raise_prefixes(mut places: Vec<&mut Place>, findings: &mut Findings<'_>) {
    let has_regexes = places.iter().any(|place| place.rank.0 == Kind::Regex);
    places.retain(|place| matches!(place.rank.0, Kind::Final | Kind::Prefix));
    // A folder is followed by everything below it.
    places.sort_by(|a, b| {
        let folders = a.folder().split('/').cmp(b.folder().split('/'));
        folders.then_with(|| a.rank.cmp(&b.rank))
    });
    let mut outermost: Option<String> = None;
    for place in places {
        let is_below = outermost.as_ref().is_some_and(|own| is_path_below(place.folder(), own));
        if !is_below && place.rank.0 == Kind::Final {
            outermost = Some(format!("{}/*", place.folder()));
        }
        if is_below && place.rank.0 == Kind::Prefix {
            place.rank.0 = Kind::Final;
            if has_regexes {
                let why = "it is below a prefix with ^~, so it comes before the regular expressions of other locations";
                findings.differs(place.line, why);
            }
        }
    }
}

fn place(location: &Directive, index: usize, findings: &mut Findings<'_>) -> Option<Place> {
    let line = location.line;
    let (modifier, text) = match location.args.as_slice() {
        [modifier, text] => (modifier.as_str(), text.as_str()),
        [text] => match ["=", "^~", "~*", "~"].iter().find(|own| text.starts_with(**own)) {
            Some(modifier) => (*modifier, &text[modifier.len()..]),
            None => ("", text.as_str()),
        },
        _ => {
            findings.untranslated(line, "a location has a path");
            return None;
        }
    };
    let paths = |path: String| Condition { paths: Some(vec![path]), ..Condition::default() };
    // Longer prefixes come first.
    let length = usize::MAX - text.len();
    Some(match modifier {
        "=" => Place {
            condition: paths(text.to_owned()),
            rank: (Kind::Exact, length),
            prefix: Some(text.to_owned()),
            line,
        },
        "" | "^~" => {
            let condition = match text.strip_suffix('/') {
                Some("") => Condition::default(),
                Some(folder) => paths(format!("{folder}/*")),
                None => {
                    findings.differs(
                        line,
                        format!(
                            "\"{text}/*\" matches {text} and everything below it, but not {text}x"
                        ),
                    );
                    paths(format!("{text}/*"))
                }
            };
            let kind = if modifier.is_empty() { Kind::Prefix } else { Kind::Final };
            Place { condition, rank: (kind, length), prefix: Some(text.to_owned()), line }
        }
        _ => {
            let condition = match simple_regex(text).filter(|_| modifier == "~") {
                Some(path) => paths(path),
                None => {
                    let regex =
                        if modifier == "~*" { format!("(?i:{text})") } else { text.to_owned() };
                    Condition { path_regex: Some(regex), ..Condition::default() }
                }
            };
            Place { condition, rank: (Kind::Regex, index), prefix: None, line }
        }
    })
}

/// Whether `value` equals the value that Tidegate sets in the field by itself.
fn is_own_value(name: &str, value: &str, levels: &Levels<'_, '_>) -> bool {
    const CHAINS: [&str; 3] =
        ["$proxy_add_x_forwarded_for", "$remote_addr", "$http_x_forwarded_for, $remote_addr"];
    let is_tls = |listen: &&Directive| listen.args.iter().any(|option| option == "ssl");
    let listens = levels.server.named(&["listen"]);
    match name {
        "x-forwarded-for" => CHAINS.contains(&value),
        "x-forwarded-host" => CLIENT_HOSTS.contains(&value),
        "x-forwarded-proto" => match value {
            "$scheme" => true,
            "https" => !listens.is_empty() && listens.iter().all(is_tls),
            "http" => !listens.iter().any(is_tls),
            _ => false,
        },
        _ => false,
    }
}

impl<'d> Reader<'_, 'd, '_, '_> {
    /// The routes of a location, without its paths.
    fn location(
        &mut self,
        location: &'d Directive,
        levels: &Levels<'_, 'd>,
        place: &Place,
        locations: &[&'d Directive],
    ) -> Vec<Route> {
        let find = |name: &str| location.inner().iter().find(|own| own.name == name);
        if let Some(own) = find("internal") {
            self.findings.differs(
                own.line,
                "requests of clients get a 404 response, and no other location uses this one",
            );
            let action = Action::Respond { status: 404, headers: Vec::new(), body: String::new() };
            return vec![Route::new(Condition::default(), action, location.line)];
        }
        let mut levels = *levels;
        let target;
        let mut routes = Vec::new();
        if let Some(own) = find("try_files") {
            let last = own.args.last().map_or("", String::as_str);
            self.findings.untranslated(
                own.line,
                "Tidegate serves no files: forward these requests to a server that does",
            );
            let named = locations.iter().find(|own| own.arg(0) == last && last.starts_with('@'));
            if let Some(named) = named {
                target = Level::of(named.inner());
                levels.location = &target;
                routes.extend(self.pass(named, &levels, place));
            }
        }
        if routes.is_empty() {
            routes.extend(self.pass(location, &levels, place));
        }
        let denies_all =
            location.inner().iter().find(|own| own.name == "deny" && own.arg(0) == "all");
        let mut is_refusal = false;
        if let Some(own) = denies_all.filter(|_| routes.is_empty() && find("allow").is_none()) {
            let action = Action::Respond { status: 403, headers: Vec::new(), body: String::new() };
            routes.push(Route::new(Condition::default(), action, own.line));
            is_refusal = true;
        }
        self.rewrites(location.inner(), &levels, &mut routes);
        if routes.is_empty() {
            let why = "Tidegate has no counterpart of the action, so these requests go to the next route that matches";
            self.findings.untranslated(location.line, why);
        }
        for route in &mut routes {
            self.edit(route, &levels, is_refusal);
            route.line = location.line;
        }
        routes
    }

    /// The route of `proxy_pass`.
    fn pass(
        &mut self,
        location: &'d Directive,
        levels: &Levels<'_, 'd>,
        place: &Place,
    ) -> Option<Route> {
        let own = location
            .inner()
            .iter()
            .find(|own| ["proxy_pass", "grpc_pass"].contains(&own.name.as_str()))?;
        let line = own.line;
        let is_grpc = own.name == "grpc_pass";
        let (scheme, rest) = match own.arg(0).split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None if is_grpc => ("grpc", own.arg(0)),
            None => {
                self.findings.untranslated(line, "the address begins with http:// or https://");
                return None;
            }
        };
        let (host, uri) = match rest.strip_prefix("unix:") {
            Some(path) => match path.split_once(':') {
                Some((path, uri)) => (format!("unix:{path}"), Some(uri)),
                None => (format!("unix:{path}"), None),
            },
            None => match rest.find('/') {
                Some(at) => (rest[..at].to_owned(), Some(&rest[at..])),
                None => (rest.to_owned(), None),
            },
        };
        let pool = match host.starts_with('$') {
            true => self.by_map(&host, own)?,
            false if host.contains('$') => {
                self.findings.untranslated(line, "only a `map` of $host or $uri chooses a pool");
                return None;
            }
            false => Target::Pool(self.pool(scheme, &host, line, levels)),
        };
        let mut route = Route::new(Condition::default(), Action::Proxy { pool, host: None }, line);
        if let Action::Proxy { host: field, .. } = &mut route.action {
            *field = self.host(&host, levels);
        }
        match uri.filter(|uri| !uri.contains("$request_uri")) {
            None => {}
            Some(uri) => match self.new_path(uri, place) {
                Ok(Some(rewrite)) => route.perform(&Edit::Rewrite(rewrite)),
                Ok(None) => {}
                Err(why) => {
                    self.findings.untranslated(line, why);
                    return None;
                }
            },
        }
        Some(route)
    }

    /// The path that the server receives from `proxy_pass` with a path.
    fn new_path(&self, uri: &str, place: &Place) -> Result<Option<Rewrite>, String> {
        if uri.contains('?') {
            return Err("the query is kept: `path` of `proxy` has none".to_owned());
        }
        if uri.contains('$') {
            return variables::template(uri, Placement::Template)
                .map(|path| Some(Rewrite::To(path)));
        }
        let Some(prefix) = &place.prefix else {
            return Err("the location has no prefix that the path replaces".to_owned());
        };
        let is_exact = place.rank.0 == Kind::Exact;
        Ok(match (is_exact, prefix.strip_suffix('/'), uri.strip_suffix('/')) {
            (true, _, _) => Some(Rewrite::To(route::escaped(uri))),
            (false, Some(from), Some(to)) if from == to => None,
            (false, Some(from), Some(to)) => {
                Some(Rewrite::Prefix { from: from.to_owned(), to: route::escaped(to) })
            }
            (false, None, Some(to)) => {
                Some(Rewrite::Prefix { from: prefix.clone(), to: route::escaped(to) })
            }
            (false, None, None) => {
                Some(Rewrite::Prefix { from: prefix.clone(), to: route::escaped(uri) })
            }
            (false, Some(_), None) => {
                return Err(format!("{prefix} and {uri} do not both end with a slash"));
            }
        })
    }

    /// A map of hosts or paths that chooses the pool.
    fn by_map(&mut self, variable: &str, pass: &Directive) -> Option<Target> {
        let map = self.shared.maps.get(variable).copied();
        let key = map.map(|map| map.arg(0)).and_then(|source| match source {
            "$host" | "$http_host" => Some("{host}"),
            "$uri" => Some("{path}"),
            _ => None,
        });
        let (Some(map), Some(key)) = (map, key) else {
            self.findings.untranslated(pass.line, "only a `map` of $host or $uri chooses a pool");
            return None;
        };
        let (mut entries, mut default) = (Vec::new(), None);
        let is_regex = map.inner().iter().any(|own| own.name.starts_with('~'));
        for entry in map.inner() {
            let is_pattern = entry.name.starts_with('~') != is_regex && entry.name != "default"
                || entry.name.contains('*') && !is_regex;
            if entry.name == "hostnames"
                || is_pattern && !entry.name.is_empty() && entry.arg(0).is_empty()
            {
                continue;
            }
            if is_pattern || !self.shared.upstreams.contains_key(entry.arg(0)) {
                let why = "values are names of upstreams, and either all keys are regular expressions or none";
                self.findings.untranslated(entry.line, why);
                continue;
            }
            let pool = self.upstream_pool("http", entry.arg(0), entry.line);
            match entry.name.as_str() {
                "default" => default = Some(pool),
                name => {
                    let name = match name.strip_prefix("~*") {
                        Some(regex) => format!("(?i:{regex})"),
                        None => name.trim_start_matches('~').to_owned(),
                    };
                    entries.push((name, Value::Text(pool)));
                }
            }
        }
        let known = self.shared.map_names.get(variable).cloned();
        let name = known.unwrap_or_else(|| {
            let name = self.plan.name(variable.trim_start_matches('$'));
            let mut block = Block::named(BlockKind::Lookup, "map", &name, map.line);
            if is_regex {
                block.set("kind", "regex", map.line);
            }
            block.set("entries", Value::Table(entries), map.line);
            self.plan.lookups.push(block);
            self.shared.map_names.insert(variable.to_owned(), name.clone());
            name
        });
        Some(Target::Map { map: name, key, default })
    }

    /// The name of the pool of an upstream.
    fn upstream_pool(&mut self, scheme: &str, name: &str, line: usize) -> String {
        let key = (scheme.to_owned(), name.to_owned());
        if let Some(pool) = self.shared.pools.get(&key) {
            return pool.clone();
        }
        let port = if ["https", "grpcs"].contains(&scheme) { 443 } else { 80 };
        let own = self.plan.name(name.trim_start_matches("unix:"));
        let block = match self.shared.upstreams.get(name).copied() {
            Some(upstream) => upstream::pool(upstream, &own, port, self.findings),
            None => {
                let mut block = Block::named(BlockKind::Pool, "pool", &own, line);
                block.set(
                    "servers",
                    Value::List(vec![Value::Text(upstream::address(name, port))]),
                    line,
                );
                block
            }
        };
        self.plan.pools.push(block);
        self.shared.pools.insert(key, own.clone());
        own
    }

    /// The name of the pool of an address, with the settings of the location.
    fn pool(&mut self, scheme: &str, host: &str, line: usize, levels: &Levels<'_, '_>) -> String {
        let name = self.upstream_pool(scheme, host, line);
        let header = Block::named(BlockKind::Pool, "pool", &name, 0).header;
        let Some(pool) = self.plan.pools.iter_mut().find(|own| own.header == header) else {
            return name;
        };
        if ["https", "grpcs"].contains(&scheme) && !pool.has("tls") {
            upstream::tls(pool, levels, line);
        }
        match scheme {
            "grpc" => pool.set("h2c", Value::Flag(true), line),
            "grpcs" => pool.set_in("tls", "alpn", Value::List(vec![Value::from("h2")]), line),
            _ => {}
        }
        let connect =
            levels.last("proxy_connect_timeout").or_else(|| levels.last("grpc_connect_timeout"));
        if let Some(own) = connect
            && let Some(ms) = units::milliseconds(own.arg(0), "s")
        {
            set_pool_timeout(pool, "connect", ms, own.line, self.findings);
        }
        if let Some(own) = levels.last("proxy_next_upstream") {
            upstream::retries(pool, own, self.findings);
        }
        if let Some(own) = levels.last("proxy_next_upstream_tries")
            && let Ok(tries) = own.arg(0).parse::<u64>()
            && tries > 0
        {
            pool.set("retries", Value::Number((tries - 1).min(10)), own.line);
        }
        name
    }

    /// The value of Host that servers get; `None` keeps the client's.
    fn host(&mut self, address: &str, levels: &Levels<'_, '_>) -> Option<String> {
        let fields = levels.all("proxy_set_header");
        let own = fields.iter().find(|own| own.arg(0).eq_ignore_ascii_case("host"));
        let text = own.map_or("$proxy_host", |own| own.arg(1));
        match text {
            "$server_name" => None,
            text if CLIENT_HOSTS.contains(&text) => None,
            "$proxy_host" if address.starts_with(['$', 'u']) && !address.contains('.') => None,
            "$proxy_host" => Some(address.to_owned()),
            text if text.contains('$') => {
                let line = own.map_or(0, |own| own.line);
                self.findings
                    .untranslated(line, "`host` of `proxy` is a fixed host, or that of the client");
                None
            }
            text => Some(text.to_owned()),
        }
    }

    /// `return`, `rewrite` and `if` of a level, which apply before its other directives.
    fn rewrites(
        &mut self,
        directives: &'d [Directive],
        levels: &Levels<'_, 'd>,
        routes: &mut Vec<Route>,
    ) {
        for directive in directives.iter().rev() {
            match directive.name.as_str() {
                "return" => {
                    if let Some(action) = self.returned(directive, levels) {
                        let ends = [Route::new(Condition::default(), action, directive.line)];
                        *routes = ends.to_vec();
                    }
                }
                "rewrite" => self.rewrite(directive, routes),
                "if" => self.conditional(directive, levels, routes),
                _ => {}
            }
        }
    }

    /// `return CODE [TEXT]`, or `return URL`.
    fn returned(&mut self, directive: &Directive, levels: &Levels<'_, '_>) -> Option<Action> {
        let line = directive.line;
        let (status, text) = match directive.arg(0).parse::<u16>() {
            Ok(status) => (status, directive.arg(1)),
            Err(_) => (302, directive.arg(0)),
        };
        if [301, 302, 303, 307, 308].contains(&status) {
            return match variables::template(text, Placement::Redirect) {
                Ok(to) => Some(Action::Redirect {
                    to: to.replace("{scheme}://{host}", "https://{host}"),
                    status,
                }),
                Err(why) => {
                    self.findings.untranslated(
                        line,
                        format!("the target of the redirect cannot be translated: {why}"),
                    );
                    None
                }
            };
        }
        if status == 444 {
            self.findings.differs(
                line,
                "the response is 403; only `rate` can drop a connection without a response",
            );
            return Some(Action::Respond { status: 403, headers: Vec::new(), body: String::new() });
        }
        match variables::template(text, Placement::Plain) {
            Ok(body) => {
                let kind = levels.last("default_type").map(|own| own.arg(0).to_owned());
                let kind = kind.filter(|_| !body.is_empty()).unwrap_or_default();
                let headers = match kind.is_empty() {
                    true => Vec::new(),
                    false => vec![("content-type".to_owned(), kind)],
                };
                Some(Action::Respond { status, headers, body })
            }
            Err(why) => {
                self.findings
                    .untranslated(line, format!("`body` of `respond` has no placeholders: {why}"));
                None
            }
        }
    }

    /// `rewrite REGEX REPLACEMENT [FLAG]`.
    fn rewrite(&mut self, directive: &Directive, routes: &mut Vec<Route>) {
        let line = directive.line;
        let (regex, text, flag) = (directive.arg(0), directive.arg(1), directive.arg(2));
        let is_redirect = ["redirect", "permanent"].contains(&flag) || text.contains("://");
        let whole = ["^", "^(.*)$", "^/(.*)$", "^(.*)", "^/(.*)", ".*", "^.*$"].contains(&regex);
        if is_redirect {
            let status = if flag == "permanent" { 301 } else { 302 };
            let text = match regex.starts_with("^/(") {
                true => text.replace("/$1", "$request_uri"),
                false => text.replace("$1", "$request_uri"),
            };
            let path = simple_regex(regex).filter(|path| !path.ends_with("/*"));
            let to = match whole || path.is_some() {
                true => variables::template(&text, Placement::Redirect),
                false => Err("a part of the path".to_owned()),
            };
            let Ok(to) = to else {
                self.findings.untranslated(
                    line,
                    "the target of the redirect needs a part of the path, or a variable that Tidegate does not have",
                );
                return;
            };
            // nginx appends the query.
            let to = match to.contains("{query}") || to.ends_with('?') {
                true => to.trim_end_matches('?').to_owned(),
                false => format!("{to}{{query}}"),
            };
            let paths = path.filter(|_| !whole).map(|path| vec![path]);
            let clause = Clause {
                any: vec![Condition { paths, ..Condition::default() }],
                unless: Vec::new(),
            };
            let ends = [Route::new(Condition::default(), Action::Redirect { to, status }, line)];
            precede(routes, &[clause], &ends, line, self.findings);
            return;
        }
        let format = text.replace('%', "%%").replace("$1", "\\1").replace("$2", "\\2");
        let exact = simple_regex(regex).filter(|path| !path.ends_with("/*"));
        let effect = match exact {
            Some(path) if !text.contains('$') => Ok(rules::Effect::ChangeBelow(
                path,
                Edit::Rewrite(Rewrite::To(route::escaped(text))),
            )),
            _ if format.contains(['$', '?']) => {
                Err("`path` of `proxy` has no such variables".to_owned())
            }
            _ => rules::replace_path(regex, &format),
        };
        match effect {
            Ok(rules::Effect::ChangeBelow(path, edit)) => {
                if flag != "break" {
                    self.findings.differs(line, "the new path does not choose another location");
                }
                let paths = (path != "/*").then(|| vec![path]);
                let clause = Clause {
                    any: vec![Condition { paths, ..Condition::default() }],
                    unless: Vec::new(),
                };
                match route::apply(routes, &[clause], &Act::Change(&edit)) {
                    Ok(new) => *routes = new,
                    Err(why) => self.findings.untranslated(line, why),
                }
            }
            Ok(rules::Effect::End(_) | rules::Effect::Change(_)) => {}
            Err(why) => self
                .findings
                .untranslated(line, why.replace("replace-path", "rewrite").replace("\\1", "$1")),
        }
    }

    /// `if (CONDITION) { return ...; }`.
    fn conditional(
        &mut self,
        directive: &'d Directive,
        levels: &Levels<'_, 'd>,
        routes: &mut Vec<Route>,
    ) {
        let line = directive.line;
        let words: Vec<String> = directive
            .args
            .iter()
            .map(|word| word.trim_matches(['(', ')']).to_owned())
            .filter(|word| !word.is_empty())
            .collect();
        let inner = directive.inner();
        let only = inner.iter().find(|own| own.name == "return" || own.name == "rewrite");
        let (Some(only), 1) = (only, inner.len()) else {
            self.findings
                .untranslated(line, "only `if` with `return` or a redirect becomes a route");
            return;
        };
        let condition = match condition(&words) {
            Ok(condition) => condition,
            Err(why) => {
                self.findings.untranslated(line, why);
                return;
            }
        };
        let mut ends = Vec::new();
        match only.name.as_str() {
            "return" => {
                let Some(action) = self.returned(only, levels) else { return };
                ends.push(Route::new(Condition::default(), action, only.line));
            }
            _ => {
                self.rewrite(only, &mut ends);
                if ends.is_empty() {
                    self.findings.untranslated(
                        line,
                        "only `if` with `return` or a redirect becomes a route",
                    );
                }
            }
        }
        precede(routes, &[condition], &ends, line, self.findings);
    }

    /// Applies the directives of the levels about requests and responses.
    fn edit(&mut self, route: &mut Route, levels: &Levels<'_, 'd>, is_refusal: bool) {
        for own in
            levels.all("proxy_set_header").into_iter().chain(levels.all("grpc_set_header")).rev()
        {
            self.request_field(route, own, levels);
        }
        for own in levels.all("add_header").into_iter().rev() {
            let (name, value) = (own.arg(0).to_ascii_lowercase(), own.arg(1));
            let edit = match name.as_str() {
                "strict-transport-security" => {
                    rules::hsts(value).map(|value| Edit::Setting("hsts", value))
                }
                _ => variables::template(value, Placement::Template)
                    .map(|value| Edit::Field(RESPONSES, "add", name, value)),
            };
            match edit {
                Ok(edit) => route.perform(&edit),
                Err(why) => self
                    .findings
                    .untranslated(own.line, format!("a value of a field cannot contain {why}")),
            }
        }
        for own in levels.all("proxy_hide_header") {
            route.perform(&Edit::Remove(RESPONSES, own.arg(0).to_ascii_lowercase()));
        }
        if !is_refusal {
            self.access(route, levels);
        }
        let is_redirect = matches!(&route.action, Action::Redirect { to, .. } if is_to_https(to));
        if is_redirect {
            return;
        }
        self.limits(route, levels);
        let read = levels.last("proxy_read_timeout").or_else(|| levels.last("grpc_read_timeout"));
        if let Some(own) = read
            && let Some(ms) = units::milliseconds(own.arg(0), "s")
        {
            let time = Value::Text(units::timeout(ms));
            let entries =
                ["response-head", "body", "tunnel"].map(|key| (key.to_owned(), time.clone()));
            route.perform(&Edit::Setting("timeouts", Value::Table(entries.to_vec())));
        }
    }

    fn request_field(&mut self, route: &mut Route, own: &Directive, levels: &Levels<'_, 'd>) {
        let name = own.arg(0).to_ascii_lowercase();
        let value = own.arg(1);
        if crate::OWN_FIELDS.contains(&name.as_str()) {
            let is_sent = matches!(route.action, Action::Proxy { .. });
            if is_sent && !is_own_value(&name, value, levels) {
                self.findings.differs(own.line, crate::OWN_VALUE);
            }
            return;
        }
        // `host` of `proxy` is read elsewhere; the others belong to a connection.
        if ["host", "connection", "upgrade", "te"].contains(&name.as_str()) {
            return;
        }
        let edit = match value.is_empty() {
            true => Ok(Edit::Remove(REQUESTS, name)),
            false => variables::template(value, Placement::Template)
                .map(|value| Edit::Field(REQUESTS, "set", name, value)),
        };
        match edit {
            Ok(Edit::Field(_, _, _, value)) if value.contains("{user}") => {
                self.findings
                    .differs(own.line, "{user} is known only with `auth`; write it into the route");
            }
            Ok(edit) => route.perform(&edit),
            Err(why) => self
                .findings
                .untranslated(own.line, format!("a value of a field cannot contain {why}")),
        }
    }

    /// `allow`, `deny` and `auth_basic`.
    fn access(&mut self, route: &mut Route, levels: &Levels<'_, 'd>) {
        let list = levels.any(&["allow", "deny"]);
        let (mut allow, mut deny, mut is_closed) = (Vec::new(), Vec::new(), false);
        for own in &list {
            match (own.name.as_str(), own.arg(0)) {
                ("deny", "all") => is_closed = true,
                ("allow", "all") => {}
                ("allow", address) => allow.push(address.to_owned()),
                (_, address) => {
                    if !allow.is_empty() {
                        self.findings.untranslated(
                            own.line,
                            "`deny` of a route comes before `allow`: check the order",
                        );
                    }
                    deny.push(address.to_owned());
                }
            }
        }
        if !deny.is_empty() {
            route.perform(&Edit::Setting("deny", Value::one_or_many(deny)));
        }
        match (is_closed, allow.is_empty()) {
            (true, false) => route.perform(&Edit::Setting("allow", Value::one_or_many(allow))),
            (true, true) => {
                let body = String::new();
                route.action = Action::Respond { status: 403, headers: Vec::new(), body };
                route.edits.clear();
            }
            (false, _) => {}
        }
        if let Some(own) = levels.last("satisfy").filter(|own| own.arg(0) == "any") {
            self.findings.untranslated(own.line, "both the address and the password are required");
        }
        let realm = levels.last("auth_basic").filter(|own| own.arg(0) != "off");
        let file = levels.last("auth_basic_user_file");
        if let (Some(realm), Some(file)) = (realm, file) {
            match route.action {
                Action::Proxy { .. } => {
                    let entries = [("basic", file.arg(0)), ("realm", realm.arg(0))];
                    let entries = entries.map(|(key, value)| (key.to_owned(), Value::from(value)));
                    route.perform(&Edit::Setting("auth", Value::Table(entries.to_vec())));
                    self.findings.differs(file.line, "the file needs hashes of bcrypt, SHA-crypt or argon2, as `htpasswd -B` writes them");
                }
                Action::Respond { .. } | Action::Redirect { .. } => {}
            }
        }
    }

    /// `limit_req`, `limit_conn` and `limit_rate`.
    fn limits(&mut self, route: &mut Route, levels: &Levels<'_, 'd>) {
        let mut rates = Vec::new();
        for own in levels.all("limit_req") {
            match self.rate(own) {
                Ok(rate) => rates.push(rate),
                Err(why) => self.findings.untranslated(own.line, why),
            }
        }
        match rates.len() {
            0 => {}
            1 => route.perform(&Edit::Setting("rate", rates.remove(0))),
            _ => route.perform(&Edit::Setting("rate", Value::List(rates))),
        }
        for own in levels.all("limit_conn") {
            let zone = self.shared.zones.get(own.arg(0));
            let by = zone.and_then(|zone| variables::key(zone.arg(0)));
            match (by.as_deref(), own.arg(1).parse()) {
                (Some("client-address"), Ok(max)) => {
                    route
                        .perform(&Edit::Setting("connections-per-address-max", Value::Number(max)));
                }
                _ => self.findings.untranslated(
                    own.line,
                    "connections are limited by client address, or by server (`connections-max`)",
                ),
            }
        }
        let size = |own: &Directive| units::bytes(own.arg(0)).filter(|bytes| *bytes > 0);
        if let Some(bytes) = levels.last("limit_rate").and_then(size) {
            let mut entries =
                vec![("down".to_owned(), Value::Text(format!("{}/s", units::size(bytes))))];
            if let Some(bytes) = levels.last("limit_rate_after").and_then(size) {
                entries.push(("after".to_owned(), Value::Text(units::size(bytes))));
            }
            route.perform(&Edit::Setting("bandwidth", Value::Table(entries)));
        }
    }

    /// A value of `rate`.
    fn rate(&mut self, own: &Directive) -> Result<Value, String> {
        let option = |name: &str| own.args.iter().find_map(|arg| arg.strip_prefix(name));
        let zone = option("zone=")
            .and_then(|name| self.shared.zones.get(name))
            .ok_or("the zone is not in this file")?;
        let rate = zone.args.iter().find_map(|arg| arg.strip_prefix("rate=")).unwrap_or_default();
        let (count, unit) = rate.split_once("r/").ok_or_else(|| format!("the rate {rate:?}"))?;
        let by = variables::key(zone.arg(0))
            .ok_or_else(|| format!("requests cannot be counted by {:?}", zone.arg(0)))?;
        let mut entries = vec![("limit".to_owned(), Value::Text(format!("{count}/{unit}")))];
        if by != "client-address" {
            entries.push(("by".to_owned(), Value::Text(by)));
        }
        let burst: u64 = option("burst=").and_then(|burst| burst.parse().ok()).unwrap_or(0);
        entries.push(("burst".to_owned(), Value::Number(burst + 1)));
        let delays = burst > 0 && !own.args.iter().any(|arg| arg == "nodelay");
        self.findings.differs(
            own.line,
            match delays {
                true => {
                    "requests of the burst are not delayed, and the response to further ones is 429"
                }
                false => "the response to requests above the limit is 429",
            },
        );
        Ok(Value::Table(entries))
    }
}
