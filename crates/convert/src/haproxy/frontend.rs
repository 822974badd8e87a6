//! A section `frontend`, or the part of `listen` with `bind`, as listeners with routes.
//! In: the section, the sections that it refers to. Out: listeners in the plan; findings about the other lines.
//! Limits: `RULES_MAX` rules of each kind in a section.

use std::collections::BTreeMap;

use crate::condition::{Clause, Condition};
use crate::document::{Block, BlockKind, Setting, Value};
use crate::finding::Findings;
use crate::plan::{Listener, Plan};
use crate::route::{self, Act, Action, Edit, Route, Target};

use super::listener::{self, Bound, Global};
use super::rules::{self, Effect};
use super::words::{Line, Section};
use super::{Sections, is_http};

/// Maximum number of rules of a section that are read.
const RULES_MAX: usize = 2000;
/// Lines that other parts of this module read.
const READ_ELSEWHERE: [&str; 22] = [
    "bind",
    "mode",
    "acl",
    "use_backend",
    "default_backend",
    "http-request",
    "http-response",
    "http-after-response",
    "redirect",
    "timeout",
    "log",
    "stick",
    "stick-table",
    "server",
    "default-server",
    "server-template",
    "balance",
    "cookie",
    "retries",
    "retry-on",
    "http-check",
    "monitor-uri",
];
/// Lines that Tidegate needs no setting for.
const UNNEEDED: [&str; 14] = [
    "description",
    "hash-type",
    "http-reuse",
    "fullconn",
    "load-server-state-from-file",
    "id",
    "enabled",
    "backlog",
    "dynamic-cookie-key",
    "unique-id-format",
    "guid",
    "hash-balance-factor",
    "hash-preserve-affinity",
    "log-tag",
];
/// Options that Tidegate needs no setting for.
const UNNEEDED_OPTIONS: [&str; 32] = [
    "httplog",
    "tcplog",
    "dontlognull",
    "forwardfor",
    "forwarded",
    "redispatch",
    "http-keep-alive",
    "abortonclose",
    "splice-auto",
    "splice-request",
    "splice-response",
    "contstats",
    "tcpka",
    "srvtcpka",
    "clitcpka",
    "socket-stats",
    "http-use-htx",
    "httpchk",
    "http-pretend-keepalive",
    "logasap",
    "allbackups",
    "log-health-checks",
    "log-separate-errors",
    "http-buffer-request",
    "nolinger",
    "http-no-delay",
    "persist",
    "prefer-last-server",
    "tcp-smart-accept",
    "tcp-smart-connect",
    "originalto",
    "tcp-check",
];

/// Reads the section.
pub(super) fn read(
    section: &Section,
    global: &Global,
    sections: &mut Sections,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) {
    let mut bound: Vec<Bound> = Vec::new();
    for line in section.lines.iter().filter(|line| line.word(0) == "bind") {
        bound.extend(listener::bind(line, global, findings));
    }
    note_rest(section, findings);
    request_id(section, plan);
    for each in &mut bound {
        listener::timeouts(section, &mut each.block);
    }
    collect_acls(section, sections);
    if is_http(section) {
        let counted = tracked(section, sections);
        let routes = routes(section, sections, plan, findings);
        if routes.is_empty() && section.last(&["stats"]).is_some() {
            return;
        }
        for mut each in bound {
            if !counted.is_empty() {
                each.block.set("count", Value::one_or_many(counted.clone()), section.line);
            }
            add(each, section, Some(routes.clone()), plan);
        }
    } else {
        let forward = forward(section, sections, findings);
        for mut each in bound {
            match &forward {
                Some((value, line)) => each.block.set("forward", value.clone(), *line),
                None => {
                    findings.untranslated(
                        section.line,
                        "a listener in TCP mode needs a backend with servers",
                    );
                    continue;
                }
            }
            if let Some(Value::Table(entries)) = each.block.get("tls").cloned() {
                let entries: Vec<_> =
                    entries.into_iter().filter(|(key, _)| key != "alpn").collect();
                each.block.set("tls", Value::Table(entries), section.line);
            }
            add(each, section, None, plan);
        }
    }
}

/// Adds a listener under its own name, or that of the section.
fn add(bound: Bound, section: &Section, routes: Option<Vec<Route>>, plan: &mut Plan) {
    let Bound { mut block, is_secure, name } = bound;
    let name = plan.listener_name(&name.unwrap_or_else(|| section.name.clone()));
    block.settings.insert(0, Setting::new("name", name.as_str(), section.line));
    plan.listeners.push(Listener { block, name, is_secure, routes });
}

fn collect_acls(section: &Section, sections: &mut Sections) {
    sections.names.acls = BTreeMap::new();
    for line in section.lines.iter().filter(|line| line.word(0) == "acl") {
        sections.names.acls.entry(line.word(1).to_owned()).or_default().push(line.clone());
    }
}

/// The tables that count every request of the section.
fn tracked(section: &Section, sections: &Sections) -> Vec<String> {
    let mut tables = Vec::new();
    for line in &section.lines {
        let (words, condition) = rules::split_condition(&line.words);
        let Some(at) = words.iter().position(|word| word.starts_with("track-sc")) else { continue };
        let counter = words[at].trim_start_matches("track-sc");
        if let Some(table) = sections.names.tracked.get(counter)
            && condition.is_empty()
            && !tables.contains(table)
        {
            tables.push(table.clone());
        }
    }
    tables
}

/// The routes of an HTTP section, for all of its listeners.
fn routes(
    section: &Section,
    sections: &mut Sections,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) -> Vec<Route> {
    let mut routes = match section.last(&["default_backend"]) {
        Some(line) => backend_routes(line.word(1), line.number, sections, findings),
        None if sections.pools.contains_key(&section.name) && section.kind == "listen" => {
            let pool = sections.pools[&section.name].clone();
            vec![Route::proxy(&pool, section.line)]
        }
        None => Vec::new(),
    };
    let rules: Vec<_> = section.lines.iter().filter(|line| line.word(0) == "use_backend").collect();
    for line in first_rules(rules, findings).into_iter().rev() {
        let ends = match line.word(1).starts_with("%[") {
            true => dynamic(line, section, sections, plan, findings),
            false => backend_routes(line.word(1), line.number, sections, findings),
        };
        if ends.is_empty() {
            continue;
        }
        if let Some(clauses) =
            rules::clauses(line.from(2), line.number, &mut sections.names, findings)
        {
            replace(&mut routes, line.number, findings, |routes| {
                route::apply(routes, &clauses, &Act::End(&ends))
            });
        }
    }
    apply_rules(section, &mut routes, sections, findings);
    if let Some(line) = section.last(&["monitor-uri"]) {
        let condition =
            Condition { paths: Some(vec![line.word(1).to_owned()]), ..Condition::default() };
        let action = Action::Respond { status: 200, headers: Vec::new(), body: String::new() };
        let ends = [Route::new(condition, action, line.number)];
        replace(&mut routes, line.number, findings, |routes| {
            route::apply(routes, &[Clause::always()], &Act::End(&ends)).map(|mut new| {
                new.extend(routes.to_vec());
                new
            })
        });
    }
    routes
}

/// The rules that are read; the others are findings.
fn first_rules<'l>(mut rules: Vec<&'l Line>, findings: &mut Findings<'_>) -> Vec<&'l Line> {
    for line in rules.iter().skip(RULES_MAX) {
        findings.untranslated(line.number, format!("only {RULES_MAX} rules of a section are read"));
    }
    rules.truncate(RULES_MAX);
    rules
}

fn replace(
    routes: &mut Vec<Route>,
    line: usize,
    findings: &mut Findings<'_>,
    change: impl FnOnce(&[Route]) -> Result<Vec<Route>, String>,
) {
    match change(routes) {
        Ok(new) => *routes = new,
        Err(why) => findings
            .untranslated(line, format!("the conditions of routes cannot express this: {why}")),
    }
}

/// The routes of requests that a rule sends to a backend: its own rules, and its servers.
fn backend_routes(
    name: &str,
    line: usize,
    sections: &mut Sections,
    findings: &mut Findings<'_>,
) -> Vec<Route> {
    let mut routes = match sections.made.get(name) {
        Some(routes) => routes.clone(),
        None => {
            let routes = make_backend(name, sections, findings);
            sections.made.insert(name.to_owned(), routes.clone());
            routes
        }
    };
    for route in routes.iter_mut().filter(|route| route.line == 0) {
        route.line = line;
    }
    if routes.is_empty() {
        findings.untranslated(line, format!("the file has no backend {name:?} with servers"));
    }
    routes
}

fn make_backend(name: &str, sections: &mut Sections, findings: &mut Findings<'_>) -> Vec<Route> {
    let is_own = |section: &&Section| {
        section.name == name && ["backend", "listen"].contains(&section.kind.as_str())
    };
    let Some(section) = sections.all.iter().find(is_own).cloned() else { return Vec::new() };
    let mut routes = match sections.pools.get(name) {
        Some(pool) => vec![Route::proxy(pool, 0)],
        None => Vec::new(),
    };
    let acls = core::mem::take(&mut sections.names.acls);
    collect_acls(&section, sections);
    apply_rules(&section, &mut routes, sections, findings);
    sections.names.acls = acls;
    routes
}

/// Applies the rules of a section to `routes`, from the last one to the first.
fn apply_rules(
    section: &Section,
    routes: &mut Vec<Route>,
    sections: &mut Sections,
    findings: &mut Findings<'_>,
) {
    let of = |words: &'static [&'static str]| {
        section.lines.iter().filter(move |line| words.contains(&line.word(0)))
    };
    let rules = of(&["tcp-request"])
        .chain(of(&["http-request", "http-response", "http-after-response"]))
        .chain(of(&["redirect"]));
    let rules: Vec<_> = rules.collect();
    for line in first_rules(rules, findings).into_iter().rev() {
        let (words, condition) = rules::split_condition(line.from(1));
        let track = words.iter().position(|word| word.starts_with("track-sc"));
        if let Some(at) = track {
            let counter = words[at].trim_start_matches("track-sc");
            let Some(table) = sections.names.tracked.get(counter).cloned() else {
                findings.untranslated(
                    line.number,
                    "the table is not in this file, or stores nothing that Tidegate can count",
                );
                continue;
            };
            if !condition.is_empty()
                && let Some(clauses) =
                    rules::clauses(condition, line.number, &mut sections.names, findings)
            {
                findings
                    .differs(line.number, "requests are counted after their route has been chosen");
                let edit = Edit::Setting("count", Value::Text(table));
                replace(routes, line.number, findings, |routes| {
                    route::apply(routes, &clauses, &Act::Change(&edit))
                });
            }
            continue;
        }
        if line.word(0) == "tcp-request" {
            tcp_rule(line, routes, sections, findings);
            continue;
        }
        let Some(rule) = rules::rule(line, section, &mut sections.names, findings) else {
            continue;
        };
        let number = line.number;
        match &rule.effect {
            Effect::End(action) => {
                let ends = rule.end(action);
                replace(routes, number, findings, |routes| {
                    route::apply(routes, &rule.clauses, &Act::End(&ends))
                });
            }
            Effect::Change(edits) => {
                for edit in edits.iter().rev() {
                    replace(routes, number, findings, |routes| {
                        route::apply(routes, &rule.clauses, &Act::Change(edit))
                    });
                }
            }
            Effect::ChangeBelow(path, edit) => {
                let below = Condition { paths: Some(vec![path.clone()]), ..Condition::default() };
                let mut clauses = rule.clauses.clone();
                if clauses.iter_mut().any(|clause| {
                    path != "/*" && clause.require(core::slice::from_ref(&below)).is_err()
                }) {
                    findings.untranslated(number, "the condition cannot be combined with the path");
                    continue;
                }
                replace(routes, number, findings, |routes| {
                    route::apply(routes, &clauses, &Act::Change(edit))
                });
            }
        }
    }
}

/// `tcp-request` in an HTTP section: rules that reject become responses.
fn tcp_rule(
    line: &Line,
    routes: &mut Vec<Route>,
    sections: &mut Sections,
    findings: &mut Findings<'_>,
) {
    let (words, condition) = rules::split_condition(line.from(1));
    let has = |word: &str| words.iter().any(|own| own == word);
    if has("inspect-delay")
        || has("accept") && condition.iter().any(|word| word.contains("ssl_hello_type"))
    {
        findings.unneeded(line.number, "Tidegate reads the server name of TLS by itself");
        return;
    }
    if !(has("reject") || has("silent-drop")) {
        findings
            .untranslated(line.number, "Tidegate decides about requests, not about connections");
        return;
    }
    let Some(clauses) = rules::clauses(condition, line.number, &mut sections.names, findings)
    else {
        return;
    };
    findings.differs(line.number, "requests get a 403 response in place of a closed connection");
    let action = Action::Respond { status: 403, headers: Vec::new(), body: String::new() };
    let ends = [Route::new(Condition::default(), action, line.number)];
    replace(routes, line.number, findings, |routes| {
        route::apply(routes, &clauses, &Act::End(&ends))
    });
}

/// `use_backend %[req.hdr(host),lower,map(FILE,DEFAULT)]`: a map chooses the pool.
fn dynamic(
    line: &Line,
    section: &Section,
    sections: &Sections,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) -> Vec<Route> {
    let number = line.number;
    let refuse = |findings: &mut Findings<'_>| {
        findings.untranslated(number, "a map chooses a pool by {host} or {path}: proxy = { pool = { map = \"NAME\", key = \"{host}\" } }");
        Vec::new()
    };
    let text = line.word(1).trim_start_matches("%[").trim_end_matches(']');
    let Some(at) = text.find("map") else { return refuse(findings) };
    let (before, call) = text.split_at(at);
    let before = before.trim_end_matches(',');
    let Some((kind, arguments)) = call.split_once('(') else { return refuse(findings) };
    let arguments = arguments.trim_end_matches(')');
    let (file, default) = match arguments.split_once(',') {
        Some((file, default)) => (file, default),
        None => (arguments, section.last(&["default_backend"]).map_or("", |line| line.word(1))),
    };
    let pool = sections.pools.get(default).cloned();
    if pool.is_none() && !default.is_empty() {
        findings.differs(number, format!("{default:?} has no servers, so requests that are not in the file get a 404 response"));
    }
    let key = match before.trim_end_matches(",lower") {
        "req.hdr(host)" | "hdr(host)" | "req.hdr(Host)" | "hdr(Host)" => "{host}",
        "path" => "{path}",
        _ => return refuse(findings),
    };
    let kind = match kind {
        "map" | "map_str" => "exact",
        "map_beg" => "prefix",
        "map_end" => "suffix",
        "map_reg" => "regex",
        _ => return refuse(findings),
    };
    let stem = file.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default();
    let name = plan.name(stem);
    let mut block = Block::named(BlockKind::Lookup, "map", &name, number);
    block.set("file", file, number);
    if kind != "exact" {
        block.set("kind", kind, number);
    }
    plan.lookups.push(block);
    findings.differs(
        number,
        "each value of the file must be the name of a [pool.NAME] of the configuration",
    );
    let pool = Target::Map { map: name, key, default: pool };
    vec![Route::new(Condition::default(), Action::Proxy { pool, host: None }, number)]
}

/// `forward` of a listener in TCP mode, and the line that decides it.
fn forward(
    section: &Section,
    sections: &mut Sections,
    findings: &mut Findings<'_>,
) -> Option<(Value, usize)> {
    let pool = |sections: &Sections, name: &str| sections.pools.get(name).cloned();
    let default = match section.last(&["default_backend"]) {
        Some(line) => pool(sections, line.word(1)).map(|pool| (pool, line.number)),
        None => pool(sections, &section.name).map(|pool| (pool, section.line)),
    };
    let mut names: Vec<(String, Value)> = Vec::new();
    let mut first = None;
    for line in section.lines.iter().filter(|line| line.word(0) == "use_backend") {
        let Some(target) = pool(sections, line.word(1)) else {
            findings
                .untranslated(line.number, "the backend has no servers, or is not in this file");
            continue;
        };
        let meaning = super::expression::meaning(line.from(2), &mut sections.names);
        let hosts = meaning.ok().and_then(|meaning| hosts_only(&meaning.clauses));
        let Some(hosts) = hosts else {
            findings.untranslated(
                line.number,
                "in TCP mode, only the server name of TLS chooses a pool",
            );
            continue;
        };
        first = first.or(Some(line.number));
        for host in hosts {
            if !names.iter().any(|(own, _)| *own == host) {
                names.push((host, Value::Text(target.clone())));
            }
        }
    }
    for line in section.lines.iter().filter(|line| line.word(0) == "tcp-request") {
        let has = |word: &str| line.words.iter().any(|own| own.contains(word));
        match has("inspect-delay") || has("accept") {
            true => {
                findings.unneeded(line.number, "Tidegate reads the server name of TLS by itself")
            }
            false => findings.untranslated(
                line.number,
                "in TCP mode, `connections-per-address-max` limits clients",
            ),
        }
    }
    match (names.is_empty(), default) {
        (true, default) => default.map(|(pool, line)| (Value::Text(pool), line)),
        (false, default) => {
            let line = first.unwrap_or(section.line);
            let mut entries = vec![("sni".to_owned(), Value::Table(names))];
            if let Some((pool, _)) = default {
                entries.push(("default".to_owned(), Value::Text(pool)));
            }
            Some((Value::Table(entries), line))
        }
    }
}

/// The hosts, if the clauses compare nothing else.
fn hosts_only(clauses: &[Clause]) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for clause in clauses {
        if !clause.unless.is_empty() {
            return None;
        }
        for condition in &clause.any {
            let rest = Condition { hosts: None, ..condition.clone() };
            hosts.extend(condition.hosts.clone().filter(|_| rest.is_empty())?);
        }
    }
    Some(hosts)
}

/// `unique-id-header` names the field of `request-id`.
fn request_id(section: &Section, plan: &mut Plan) {
    if let Some(line) = section.last(&["unique-id-header"])
        && !plan.server.iter().any(|(key, _, _)| *key == "request-id")
    {
        let field = Value::Text(line.word(1).to_ascii_lowercase());
        plan.server.push((
            "request-id",
            Value::Table(vec![("field".to_owned(), field)]),
            line.number,
        ));
    }
}

/// Notes the lines of the section that no other part of this module reads.
pub(super) fn note_rest(section: &Section, findings: &mut Findings<'_>) {
    let has_backend_role = section.kind != "frontend";
    for line in &section.lines {
        let number = line.number;
        let word = line.word(0);
        let why = match word {
            "timeout" => match line.word(1) {
                "connect" | "server" | "client" | "queue" | "http-request" | "http-keep-alive"
                | "tunnel" | "check" => continue,
                "client-fin" | "server-fin" | "client-hs" | "tarpit" => {
                    findings.unneeded(number, "other timeouts end these connections");
                    continue;
                }
                _ => "Tidegate has no such timeout",
            },
            "option" | "no" => {
                option(line, findings);
                continue;
            }
            "tcp-request" if section.kind == "backend" => {
                "Tidegate decides about requests, not about connections"
            }
            "unique-id-header" | "tcp-request" => continue,
            word if READ_ELSEWHERE.contains(&word) => continue,
            word if UNNEEDED.contains(&word) => {
                findings.unneeded(number, "Tidegate has no such setting");
                continue;
            }
            "maxconn" => "`connections-max` of the [[listener]] resets further connections",
            "errorfile" | "errorfiles" | "errorloc" | "errorloc302" | "errorloc303"
            | "http-error" => {
                "write the page (without the status line and the header fields) to a file, and errors = \
                 { 503 = \"FILE.html\" } into the routes"
            }
            "compression" => "Tidegate does not compress responses; your servers may",
            "stats" => {
                "there is no page: [admin] serves metrics, and `tidegate ctl show stat` prints HAProxy's statistics"
            }
            "capture" => "the access log has `request-headers` and `cookies`",
            "log-format" | "log-format-sd" | "error-log-format" => {
                "the access log is JSON, or has the fields of `option httplog`"
            }
            "filter" | "declare" => "Tidegate has no filters of this kind",
            "use-server" => "a pool chooses the server; write pools with fewer servers",
            "rate-limit" => "`rate` of a route limits requests",
            "tcp-check" | "external-check" => "a check is one request or one connection",
            "disabled" => "remove the listener",
            "dispatch" if has_backend_role => "write the address into `servers` of a pool",
            _ => "Tidegate has no counterpart",
        };
        findings.untranslated(number, why);
    }
}

fn option(line: &Line, findings: &mut Findings<'_>) {
    let number = line.number;
    if line.word(0) == "no" {
        return;
    }
    match line.word(1) {
        "httpclose" | "http-server-close" | "forceclose" | "http-tunnel" => {
            findings.differs(
                number,
                "connections are reused as HTTP allows; `reuse` of a pool limits this",
            );
        }
        "forwardfor" if line.words.iter().any(|word| word == "header") => {
            findings.untranslated(
                number,
                "write request-headers = { set = { NAME = \"{client}\" } } into the routes",
            );
        }
        "forwardfor" if line.from(2).iter().any(|own| own == "except" || own == "if-none") => {
            findings.differs(number, crate::OWN_VALUE);
        }
        "forwardfor" | "forwarded" => {
            findings.unneeded(
                number,
                "servers get X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host and Forwarded",
            );
        }
        "dontlog-normal" => findings.untranslated(
            number,
            "log = { access = { only = \"errors\" } } leaves out the other requests",
        ),
        "ssl-hello-chk" | "mysql-check" | "pgsql-check" | "redis-check" | "smtpchk"
        | "ldap-check" | "spop-check" | "external-check" => {
            findings.differs(number, "the check only opens a connection");
        }
        name if UNNEEDED_OPTIONS.contains(&name) => {
            findings.unneeded(number, "Tidegate has no such setting")
        }
        name => findings
            .untranslated(number, format!("Tidegate has no counterpart of the option {name:?}")),
    }
}
