//! `upstream` blocks and the addresses of `proxy_pass` as pools.
//! In: directives. Out: blocks of pools.

use crate::document::{Block, BlockKind, Setting, Value};
use crate::finding::Findings;
use crate::units;

use super::parse::Directive;
use super::server::Levels;
use super::variables;

/// The pool `name` with the servers of an `upstream` block.
pub(super) fn pool(
    upstream: &Directive,
    name: &str,
    port: u16,
    findings: &mut Findings<'_>,
) -> Block {
    let mut pool = Block::named(BlockKind::Pool, "pool", name, upstream.line);
    let mut servers = Vec::new();
    let mut eject = None;
    for directive in upstream.inner() {
        let line = directive.line;
        match directive.name.as_str() {
            "server" => servers.extend(server(directive, port, &mut eject, findings)),
            "least_conn" => pool.set("balance", "least-connections", line),
            "random" => pool.set("balance", "random", line),
            "ip_hash" => pool.set_in("balance", "hash", "client-address", line),
            "hash" => match variables::key(directive.arg(0)) {
                Some(key)
                    if ["client-address", "path"].contains(&key.as_str())
                        || key.starts_with("header:") =>
                {
                    pool.set_in("balance", "hash", key, line);
                }
                _ => findings.untranslated(
                    line,
                    "`hash` of `balance` is \"path\", \"client-address\" or \"header:NAME\"",
                ),
            },
            "keepalive" => match directive.arg(0).parse() {
                Ok(count) => pool.set_in("reuse", "idle-max", Value::Number(count), line),
                Err(_) => findings.untranslated(line, "not a number"),
            },
            "keepalive_timeout" => match units::milliseconds(directive.arg(0), "s") {
                Some(ms) => pool.set_in("reuse", "idle-timeout", units::timeout(ms), line),
                None => findings.untranslated(line, "not a time"),
            },
            "keepalive_requests" => match directive.arg(0).parse() {
                Ok(count) => pool.set_in("reuse", "requests-max", Value::Number(count), line),
                Err(_) => findings.untranslated(line, "not a number"),
            },
            "sticky" if directive.arg(0) == "cookie" => {
                pool.set_in("sticky", "cookie", directive.arg(1), line)
            }
            "queue" => match directive.arg(0).parse() {
                Ok(count) => pool.set("queue-max", Value::Number(count), line),
                Err(_) => findings.untranslated(line, "not a number"),
            },
            "zone" | "keepalive_time" => {
                findings.unneeded(line, "all workers share the state of a pool")
            }
            other => {
                findings.untranslated(line, format!("Tidegate has no counterpart of {other:?}"))
            }
        }
    }
    pool.settings.insert(0, Setting::new("servers", Value::List(servers), upstream.line));
    // Tidegate's own default is "random"; nginx takes the servers in turn.
    if !pool.has("balance")
        && upstream.inner().iter().filter(|own| own.name == "server").count() > 1
    {
        pool.set("balance", "round-robin", upstream.line);
    }
    if let Some((failures, time, line)) = eject {
        pool.set_in("eject", "failures", Value::Number(failures), line);
        pool.set_in("eject", "errors", "off", line);
        pool.set_in("eject", "for", units::timeout(time), line);
    }
    pool
}

/// Converts a server. `eject`: the `max_fails` and `fail_timeout` of the first server that has them, with the line.
fn server(
    directive: &Directive,
    port: u16,
    eject: &mut Option<(u64, u64, usize)>,
    findings: &mut Findings<'_>,
) -> Option<Value> {
    let line = directive.line;
    let address = address(directive.arg(0), port);
    let mut entries = vec![("address".to_owned(), Value::Text(address.clone()))];
    let (mut fails, mut time) = (None, None);
    for option in directive.args.iter().skip(1) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let mut number = |key: &str| match value.parse() {
            Ok(0) if key == "connections-max" => {}
            Ok(number) => entries.push((key.to_owned(), Value::Number(number))),
            Err(_) => findings.untranslated(line, format!("{option:?} is not a number")),
        };
        match name {
            "weight" => number("weight"),
            "max_conns" => number("connections-max"),
            "backup" => entries.push(("backup".to_owned(), Value::Flag(true))),
            "down" | "drain" => {
                entries.retain(|(key, _)| key != "weight");
                entries.push(("weight".to_owned(), Value::Number(0)));
            }
            "max_fails" => fails = value.parse::<u64>().ok(),
            "fail_timeout" => time = units::milliseconds(value, "s"),
            "resolve" => {
                findings.differs(line, "names of servers are resolved at start and at each reload")
            }
            "slow_start" => findings.untranslated(line, "slow-start = \"30s\" of the pool"),
            _ => findings.untranslated(line, format!("the option {option:?} of a server")),
        }
    }
    if (fails, time) != (None, None) && fails != Some(0) && eject.is_none() {
        *eject = Some((fails.unwrap_or(1), time.unwrap_or(10_000), line));
    }
    Some(match entries.len() {
        1 => Value::Text(address),
        _ => Value::Table(entries),
    })
}

/// An address with a port.
pub(super) fn address(text: &str, port: u16) -> String {
    if text.starts_with("unix:") {
        return text.to_owned();
    }
    let has_port = match text.rfind(']') {
        Some(end) => text[end..].contains(':'),
        None => text.contains(':'),
    };
    match has_port {
        true => text.to_owned(),
        false => format!("{text}:{port}"),
    }
}

/// TLS towards servers.
pub(super) fn tls(pool: &mut Block, levels: &Levels<'_, '_>, line: usize) {
    let is_verified = levels.last("proxy_ssl_verify").is_some_and(|own| own.arg(0) == "on");
    match is_verified {
        false => pool.set_in("tls", "verify", Value::Flag(false), line),
        true => pool.set_in("tls", "verify", Value::Flag(true), line),
    }
    if let Some(own) = levels.last("proxy_ssl_trusted_certificate").filter(|_| is_verified) {
        pool.set_in("tls", "ca", own.arg(0), own.line);
    }
    if let Some(own) = levels.last("proxy_ssl_crl").filter(|_| is_verified) {
        pool.set_in("tls", "crl", own.arg(0), own.line);
    }
    if let Some(own) = levels.last("proxy_ssl_name").filter(|own| !own.arg(0).contains('$')) {
        pool.set_in("tls", "server-name", own.arg(0), own.line);
    }
    let pair = (levels.last("proxy_ssl_certificate"), levels.last("proxy_ssl_certificate_key"));
    if let (Some(cert), Some(key)) = pair {
        let entries = [("cert", Value::from(cert.arg(0))), ("key", Value::from(key.arg(0)))];
        let pair = Value::Table(entries.map(|(key, value)| (key.to_owned(), value)).to_vec());
        pool.set_in("tls", "client-cert", pair, cert.line);
    }
}

/// `proxy_next_upstream`.
pub(super) fn retries(pool: &mut Block, own: &Directive, findings: &mut Findings<'_>) {
    let mut failures = Vec::new();
    for word in &own.args {
        match word.as_str() {
            "off" => {
                pool.set("retries", Value::Number(0), own.line);
                return;
            }
            "error" => failures.extend(["connect", "reset"].map(Value::from)),
            "timeout" => failures.push(Value::from("timeout")),
            "invalid_header" => failures.push(Value::from("malformed")),
            "non_idempotent" => findings
                .untranslated(own.line, "requests that are not idempotent are not sent twice"),
            word => match word.strip_prefix("http_").and_then(|status| status.parse().ok()) {
                Some(status) => failures.push(Value::Number(status)),
                None => findings.untranslated(own.line, format!("{word:?} of `retry-on`")),
            },
        }
    }
    if !failures.is_empty() {
        pool.set("retry-on", Value::List(failures), own.line);
    }
}
