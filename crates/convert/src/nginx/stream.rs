//! `stream` blocks as listeners in TCP mode.
//! In: the directives of `stream`. Out: listeners and pools in the plan.

use std::collections::BTreeMap;

use crate::document::{Block, BlockKind, Setting, Value};
use crate::finding::Findings;
use crate::plan::{Listener, Plan};
use crate::units;

use super::parse::Directive;
use super::upstream;

/// The definitions that the servers of a stream refer to.
struct Names<'d> {
    upstreams: BTreeMap<&'d str, &'d Directive>,
    /// The blocks `map` of the server name of TLS, by their variable.
    maps: BTreeMap<&'d str, &'d Directive>,
    pools: BTreeMap<String, String>,
}

/// Reads the servers.
pub(super) fn read(directives: &[Directive], plan: &mut Plan, findings: &mut Findings<'_>) {
    let by = |name: &'static str| directives.iter().filter(move |own| own.name == name);
    let maps = by("map").filter(|own| own.arg(0) == "$ssl_preread_server_name");
    let mut names = Names {
        upstreams: by("upstream").map(|own| (own.arg(0), own)).collect(),
        maps: maps.map(|own| (own.arg(1), own)).collect(),
        pools: BTreeMap::new(),
    };
    for directive in directives {
        match directive.name.as_str() {
            "server" => server(directive, directives, &mut names, plan, findings),
            "upstream" | "proxy_timeout" | "proxy_connect_timeout" | "include" => {}
            "map" if names.maps.contains_key(directive.arg(1)) => {}
            "log_format" | "error_log" | "tcp_nodelay" | "preread_timeout" => {
                findings.unneeded(directive.line, "Tidegate has no such setting");
            }
            _ => findings.untranslated(directive.line, "Tidegate has no counterpart in TCP mode"),
        }
    }
}

fn server(
    server: &Directive,
    stream: &[Directive],
    names: &mut Names<'_>,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) {
    let find = |name: &str| {
        server
            .inner()
            .iter()
            .rev()
            .find(|own| own.name == name)
            .or_else(|| stream.iter().rev().find(|own| own.name == name))
    };
    let listens = server.inner().iter().filter(|own| own.name == "listen");
    if listens.clone().all(|own| own.args.iter().any(|arg| arg == "udp")) {
        listens.for_each(|own| findings.untranslated(own.line, "Tidegate does not forward UDP"));
        findings.untranslated(server.line, "a listener in TCP mode has an address");
        return;
    }
    let Some(pass) = server.inner().iter().find(|own| own.name == "proxy_pass") else {
        findings.untranslated(server.line, "a listener in TCP mode forwards to a pool");
        return;
    };
    let Some(forward) = forward(pass, names, plan, findings) else { return };
    let pools: Vec<String> = pools_of(&forward);
    for header in pools {
        let Some(pool) = plan.pools.iter_mut().find(|own| own.header == header) else { continue };
        for (name, key) in [("proxy_connect_timeout", "connect"), ("proxy_timeout", "tunnel")] {
            if let Some(own) = find(name)
                && let Some(ms) = units::milliseconds(own.arg(0), "s")
            {
                super::set_pool_timeout(pool, key, ms, own.line, findings);
            }
        }
        if let Some(own) = find("proxy_protocol").filter(|own| own.arg(0) == "on") {
            pool.set("proxy-protocol", "v1", own.line);
        }
        if let Some(own) = find("proxy_ssl").filter(|own| own.arg(0) == "on") {
            pool.set_in("tls", "verify", Value::Flag(false), own.line);
        }
    }
    for directive in server.inner() {
        match directive.name.as_str() {
            "listen" => listen(directive, server, &forward, pass.line, plan, findings),
            "proxy_pass"
            | "proxy_connect_timeout"
            | "proxy_timeout"
            | "proxy_protocol"
            | "proxy_ssl"
            | "ssl_preread"
            | "ssl_certificate"
            | "ssl_certificate_key" => {}
            "access_log" | "error_log" | "tcp_nodelay" | "proxy_buffer_size" | "ssl_protocols"
            | "ssl_session_cache" => {
                findings.unneeded(directive.line, "Tidegate has no such setting");
            }
            _ => findings.untranslated(directive.line, "Tidegate has no counterpart in TCP mode"),
        }
    }
}

/// The headers of the pools in a value of `forward`.
fn pools_of(value: &Value) -> Vec<String> {
    match value {
        Value::Text(name) => vec![Block::named(BlockKind::Pool, "pool", name, 0).header],
        Value::Table(entries) => entries.iter().flat_map(|(_, value)| pools_of(value)).collect(),
        Value::List(_) | Value::Number(_) | Value::Flag(_) => Vec::new(),
    }
}

fn forward(
    pass: &Directive,
    names: &mut Names<'_>,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) -> Option<Value> {
    let target = pass.arg(0);
    if !target.starts_with('$') {
        return Some(Value::Text(pool(target, pass.line, names, plan, findings)));
    }
    let Some(map) = names.maps.get(target).copied() else {
        findings.untranslated(
            pass.line,
            "only the server name of TLS chooses a pool: map $ssl_preread_server_name",
        );
        return None;
    };
    let (mut sni, mut default) = (Vec::new(), None);
    for entry in map.inner() {
        let value = Value::Text(pool(entry.arg(0), entry.line, names, plan, findings));
        match entry.name.as_str() {
            "hostnames" => {}
            "default" => default = Some(value),
            name if name.starts_with('~') => {
                findings.untranslated(
                    entry.line,
                    "a server name is a name, or a pattern such as \"*.example.com\"",
                );
            }
            name => match name.strip_prefix('.') {
                Some(below) => {
                    sni.extend([(below.to_owned(), value.clone()), (format!("*.{below}"), value)])
                }
                None => sni.push((name.to_owned(), value)),
            },
        }
    }
    let mut entries = vec![("sni".to_owned(), Value::Table(sni))];
    if let Some(default) = default {
        entries.push(("default".to_owned(), default));
    }
    Some(Value::Table(entries))
}

/// The name of the pool of an address or an upstream.
fn pool(
    target: &str,
    line: usize,
    names: &mut Names<'_>,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) -> String {
    if target.is_empty() {
        return String::new();
    }
    if let Some(name) = names.pools.get(target) {
        return name.clone();
    }
    let name = plan.name(target);
    let block = match names.upstreams.get(target) {
        Some(own) => upstream::pool(own, &name, 0, findings),
        None => {
            let mut block = Block::named(BlockKind::Pool, "pool", &name, line);
            block.set("servers", Value::List(vec![Value::from(target)]), line);
            block
        }
    };
    plan.pools.push(block);
    names.pools.insert(target.to_owned(), name.clone());
    name
}

fn listen(
    listen: &Directive,
    server: &Directive,
    forward: &Value,
    forward_line: usize,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) {
    let line = listen.line;
    let options = listen.args.get(1..).unwrap_or_default();
    if options.iter().any(|option| option == "udp") {
        findings.untranslated(line, "Tidegate does not forward UDP");
        return;
    }
    let Some(bind) = units::bind(listen.arg(0)) else {
        findings.untranslated(
            line,
            "a listener has an IP address and a port, or the path of a unix socket",
        );
        return;
    };
    let mut block = Block::new(BlockKind::Listener, "[[listener]]", line);
    let port = bind.rsplit([':', '/']).next().unwrap_or_default();
    let name = plan.listener_name(&format!("tcp-{port}"));
    block.settings.push(Setting::new("name", name.as_str(), line));
    block.set("bind", bind, line);
    block.set("forward", forward.clone(), forward_line);
    let is_secure = options.iter().any(|option| option == "ssl");
    if is_secure {
        let find = |name: &str| server.inner().iter().find(|own| own.name == name);
        match (find("ssl_certificate"), find("ssl_certificate_key")) {
            (Some(cert), Some(key)) => {
                let entries =
                    [("cert", Value::from(cert.arg(0))), ("key", Value::from(key.arg(0)))];
                let pair =
                    Value::Table(entries.map(|(key, value)| (key.to_owned(), value)).to_vec());
                block.set_in("tls", "certificates", Value::List(vec![pair]), cert.line);
            }
            _ => block.set("tls", "self-signed", line),
        }
    }
    plan.listeners.push(Listener { block, name, is_secure, routes: None });
}
