//! A section `backend`, or the part of `listen` with servers, as a pool.
//! In: the lines of the section. Out: a block of a pool.
//! Invariant: settings that HAProxy has for each server and Tidegate for a pool are those of the first server that has them;
//! other values are findings. Of checks and agents, only values that all servers have in common are translated.

use crate::document::{Block, BlockKind, Value};
use crate::finding::Findings;
use crate::units;

use super::words::{Line, Section};

/// The checks of one server.
#[derive(Default)]
struct Probed {
    /// The number of its line.
    line: usize,
    /// It is checked.
    has_check: bool,
    /// The settings of its checks.
    check: Vec<(&'static str, Value)>,
    /// Its agent is asked.
    has_agent: bool,
    /// The settings for its agent.
    agent: Vec<(&'static str, Value)>,
}

impl Probed {
    /// Sets the value of a setting, in place of that of `default-server`.
    fn set(settings: &mut Vec<(&'static str, Value)>, key: &'static str, value: Value) {
        settings.retain(|(own, _)| *own != key);
        settings.push((key, value));
    }
}

/// What HAProxy does without a setting.
fn preset(key: &str) -> Option<Value> {
    Some(match key {
        "every" => Value::Text(units::timeout(2000)),
        "rise" => Value::Number(2),
        "fall" => Value::Number(3),
        _ => return None,
    })
}

/// The settings that the servers of a pool have in common, and the line that set each first.
#[derive(Default)]
struct Shared {
    /// The checks of each server.
    probed: Vec<Probed>,
    has_checks: Option<usize>,
    check: Vec<(&'static str, Value, usize)>,
    tls: Option<usize>,
    tls_settings: Vec<(&'static str, Value, usize)>,
    proxy_protocol: Option<(&'static str, usize)>,
    slow_start: Option<(u64, usize)>,
    agent: Vec<(&'static str, Value, usize)>,
    queue_max: Option<(u64, usize)>,
    reuse_max: Option<(u64, usize)>,
    /// The line of the first server whose name is resolved by DNS servers.
    resolver: Option<usize>,
    /// The family of addresses that it prefers.
    families: Option<(String, usize)>,
}

/// What servers need from `[resolver]`.
#[derive(Default)]
pub(super) struct Resolved {
    /// The line of the first server whose name is resolved by DNS servers.
    pub(super) line: Option<usize>,
    /// The family of addresses that servers prefer.
    pub(super) families: Option<(String, usize)>,
}

/// The pool `name` of `section`.
pub(super) fn pool(
    section: &Section,
    name: &str,
    is_http: bool,
    resolved: &mut Resolved,
    findings: &mut Findings<'_>,
) -> Block {
    let mut pool = Block::named(BlockKind::Pool, "pool", name, section.line);
    let mut shared = Shared::default();
    let defaults: Vec<String> = section
        .lines
        .iter()
        .filter(|line| line.word(0) == "default-server")
        .flat_map(|line| line.from(1).to_vec())
        .collect();
    let mut servers = Vec::new();
    let mut servers_line = section.line;
    let is_server = |line: &&Line| matches!(line.word(0), "server" | "server-template");
    for line in section.lines.iter().filter(is_server) {
        if let Some(server) = server(line, &defaults, &mut shared, findings) {
            servers_line = if servers.is_empty() { line.number } else { servers_line };
            servers.push(server);
        }
    }
    settle_checks(&mut shared, findings);
    settle_agents(&mut shared, findings);
    pool.set("servers", Value::List(servers), servers_line);
    balance(section, &mut pool, is_http, findings);
    sticky(section, &mut pool, is_http, findings);
    health(section, &mut pool, &shared, findings);
    timeouts(section, &mut pool, is_http, findings);
    retries(section, &mut pool, is_http, findings);
    write_shared(&mut pool, &shared);
    resolved.line = resolved.line.or(shared.resolver);
    resolved.families = resolved.families.take().or(shared.families);
    pool
}

fn write_shared(pool: &mut Block, shared: &Shared) {
    if let Some(line) = shared.tls {
        match shared.tls_settings.is_empty() {
            true => pool.set("tls", Value::Flag(true), line),
            false => {
                for (key, value, line) in &shared.tls_settings {
                    pool.set_in("tls", key, value.clone(), *line);
                }
            }
        }
    }
    if let Some((version, line)) = shared.proxy_protocol {
        pool.set("proxy-protocol", version, line);
    }
    if let Some((time, line)) = shared.slow_start {
        pool.set("slow-start", units::duration(time), line);
    }
    for (key, value, line) in &shared.agent {
        pool.set_in("agent", key, value.clone(), *line);
    }
    if let Some((max, line)) = shared.queue_max {
        pool.set("queue-max", Value::Number(max), line);
    }
    if let Some((max, line)) = shared.reuse_max {
        pool.set_in("reuse", "idle-max", Value::Number(max), line);
    }
}

/// The address of a server.
fn address(text: &str) -> Option<String> {
    let text = text.strip_prefix("ipv4@").or_else(|| text.strip_prefix("ipv6@")).unwrap_or(text);
    if let Some(path) = text.strip_prefix("unix@") {
        return Some(format!("unix:{path}"));
    }
    if text.starts_with('/') {
        return Some(format!("unix:{text}"));
    }
    let (host, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    if host.is_empty() || host == "*" || host.contains('@') {
        return None;
    }
    Some(match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    })
}

/// Settings of a server, by name.
type Settings = Vec<(String, Value)>;

/// The address of a line, as settings of the server, and the words after it.
fn place<'l>(line: &'l Line, findings: &mut Findings<'_>) -> Option<(Settings, &'l [String])> {
    let is_template = line.word(0) == "server-template";
    let text = line.word(if is_template { 3 } else { 2 });
    let mut entries = Vec::new();
    match address(text) {
        Some(address) => entries.push(("address".to_owned(), Value::Text(address))),
        // The port is that of the records.
        None if is_template && text.starts_with('_') => {
            entries.push(("srv".to_owned(), Value::Text(text.trim_end_matches('.').to_owned())));
        }
        None => {
            findings.untranslated(
                line.number,
                "a server needs an address with a port, such as 10.0.0.1:8000 or app.internal:8000",
            );
            return None;
        }
    }
    if !is_template {
        return Some((entries, line.from(3)));
    }
    let (low, high) = line.word(2).split_once('-').unwrap_or(("1", line.word(2)));
    let (Ok(low), Ok(high)) = (low.parse::<u64>(), high.parse::<u64>()) else {
        findings.untranslated(line.number, "server-template needs a number of servers");
        return None;
    };
    if low != 1 {
        findings.differs(line.number, "the numbers of the slots begin with 1");
    }
    entries.push(("slots".to_owned(), Value::Number((high + 1).saturating_sub(low).max(1))));
    entries.push(("prefix".to_owned(), Value::Text(line.word(1).to_owned())));
    Some((entries, line.from(4)))
}

/// The server of a line.
fn server(
    line: &Line,
    defaults: &[String],
    shared: &mut Shared,
    findings: &mut Findings<'_>,
) -> Option<Value> {
    let number = line.number;
    let (mut entries, options) = place(line, findings)?;
    shared.probed.push(Probed { line: number, ..Probed::default() });
    let words: Vec<&str> = defaults.iter().chain(options).map(String::as_str).collect();
    let mut index = 0;
    let mut is_drained = false;
    while let Some(word) = words.get(index) {
        index += 1;
        let value = words.get(index).copied().unwrap_or_default();
        let mut set = |key: &str, value: Value| {
            entries.retain(|(own, _)| own != key);
            entries.push((key.to_owned(), value));
        };
        let takes_value = match *word {
            "weight" | "maxconn" => {
                let key = if *word == "weight" { "weight" } else { "connections-max" };
                match value.parse::<u64>() {
                    Ok(0) if *word == "maxconn" => {}
                    Ok(value) => set(key, Value::Number(value)),
                    Err(_) => {
                        findings.untranslated(number, format!("{word} {value:?} is not a number"))
                    }
                }
                true
            }
            "backup" => {
                set("backup", Value::Flag(true));
                false
            }
            "disabled" => {
                is_drained = true;
                false
            }
            // Without a name that is resolved later, the address is fixed.
            "init-addr" => {
                if value.split(',').any(|way| way == "none") {
                    set("at-start", Value::Text("optional".to_owned()));
                }
                true
            }
            "cookie" | "id" => true,
            word => server_option(word, value, number, shared, findings),
        };
        index += usize::from(takes_value);
    }
    if is_drained {
        entries.retain(|(key, _)| key != "weight");
        entries.push(("weight".to_owned(), Value::Number(0)));
        findings
            .differs(number, "a disabled server has weight 0: it gets no requests, but is checked");
    }
    if entries.iter().any(|(_, value)| value.text().is_some_and(is_fixed)) {
        entries.retain(|(key, _)| key != "at-start");
    }
    Some(match &entries[..] {
        [(key, Value::Text(address))] if key == "address" => Value::Text(address.clone()),
        _ => Value::Table(entries),
    })
}

/// Whether the text is an IP address with a port, or the path of a socket.
fn is_fixed(text: &str) -> bool {
    text.starts_with("unix:") || text.parse::<core::net::SocketAddr>().is_ok()
}

/// An option that a pool has in place of a server; returns whether it has a value.
fn server_option(
    word: &str,
    value: &str,
    line: usize,
    shared: &mut Shared,
    findings: &mut Findings<'_>,
) -> bool {
    let Some(probed) = shared.probed.last_mut() else { return false };
    let mut check = |key: &'static str, value: Option<Value>| match value {
        Some(value) if key.starts_with("agent-") => {
            Probed::set(&mut probed.agent, &key["agent-".len()..], value);
        }
        Some(value) => Probed::set(&mut probed.check, key, value),
        None => findings.untranslated(line, format!("the value {value:?} of {word}")),
    };
    let time = || units::milliseconds(value, "ms").map(|ms| Value::Text(units::timeout(ms)));
    let count = || value.parse().ok().map(Value::Number);
    match word {
        "check" => probed.has_check = true,
        "no-check" => probed.has_check = false,
        "inter" => check("every", time()),
        "fastinter" => check("fast-every", time()),
        "downinter" => findings.unneeded(line, "`every` also applies to a server that is down"),
        "rise" => check("rise", count()),
        "fall" => check("fall", count()),
        "port" => check("port", count()),
        "check-reuse-pool" => check("keep-alive", Some(Value::Text("1m".to_owned()))),
        "no-check-ssl" => check("tls", Some(Value::Flag(false))),
        "check-ssl" => findings.unneeded(line, "checks use TLS if the pool does"),
        "slowstart" => shared.slow_start = units::milliseconds(value, "ms").map(|ms| (ms, line)),
        "maxqueue" => shared.queue_max = value.parse().ok().map(|max| (max, line)),
        "pool-max-conn" => shared.reuse_max = value.parse().ok().map(|max| (max, line)),
        "agent-check" => probed.has_agent = true,
        "no-agent-check" => probed.has_agent = false,
        "agent-port" => check("agent-port", count()),
        "agent-inter" => check("agent-every", time()),
        "agent-send" => check("agent-send", Some(Value::from(value.trim_end_matches("\\n")))),
        "send-proxy" => shared.proxy_protocol = Some(("v1", line)),
        "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
            shared.proxy_protocol = Some(("v2", line));
        }
        "ssl" | "verify" | "ca-file" | "crt" | "crl-file" | "sni" | "verifyhost" | "alpn"
        | "ssl-min-ver" | "no-verify" => {
            return tls_option(word, value, line, shared, findings);
        }
        "resolvers" => {
            shared.resolver = shared.resolver.or(Some(line));
            return true;
        }
        "resolve-prefer" => {
            shared.families = shared.families.take().or_else(|| Some((value.to_owned(), line)));
            return true;
        }
        "resolve-net" | "resolve-opts" | "error-limit" | "on-error" | "observe"
        | "on-marked-down" | "on-marked-up" | "source" | "proto" | "check-sni" | "check-alpn"
        | "minconn" | "track" | "agent-addr" | "addr" | "ws" | "pool-purge-delay"
        | "pool-low-conn" | "max-reuse" | "namespace" | "redir" | "usesrc" | "ciphers"
        | "ciphersuites" | "ssl-max-ver" | "check-send-proxy" | "hash-key" => {
            match word {
                "resolve-net" | "resolve-opts" => {
                    findings.untranslated(line, "each address of a name is used");
                }
                "observe" | "on-error" | "error-limit" => {
                    findings.untranslated(
                        line,
                        "`eject` of the pool avoids servers whose requests fail",
                    );
                }
                _ => findings.untranslated(line, format!("the option {word:?} of a server")),
            }
            return word != "check-send-proxy";
        }
        "no-ssl-reuse" | "force-tlsv12" | "force-tlsv13" | "no-sslv3" | "no-tlsv10"
        | "no-tlsv11" | "tfo" | "no-backup" | "stick" | "non-stick" | "enabled" | "allow-0rtt"
        | "sni-auto" => {
            findings.unneeded(line, format!("{word:?} has no counterpart"));
            return false;
        }
        "no-tls-tickets" => {
            findings.untranslated(
                line,
                "Tidegate resumes sessions with servers; `tickets` of a listener concerns clients",
            );
            return false;
        }
        word => {
            findings.untranslated(line, format!("the option {word:?} of a server"));
            return false;
        }
    }
    matches!(
        word,
        "inter"
            | "fastinter"
            | "downinter"
            | "rise"
            | "fall"
            | "port"
            | "slowstart"
            | "maxqueue"
            | "pool-max-conn"
            | "agent-port"
            | "agent-inter"
            | "agent-send"
    )
}

/// Keeps the settings of checks that all servers have in common. The others are findings.
fn settle_checks(shared: &mut Shared, findings: &mut Findings<'_>) {
    let checked = shared.probed.iter().filter(|of| of.has_check);
    shared.has_checks = checked.clone().map(|of| of.line).next();
    if shared.has_checks.is_none() {
        return;
    }
    for probed in shared.probed.iter().filter(|of| !of.has_check) {
        findings.differs(
            probed.line,
            "the checks of a pool check all of its servers, also this one; move it to a pool of its own",
        );
    }
    let settings = checked.map(|of| (of.line, &of.check)).collect::<Vec<_>>();
    shared.check = common("health checks", &settings, findings);
}

/// As `settle_checks`, of agents.
fn settle_agents(shared: &mut Shared, findings: &mut Findings<'_>) {
    let with_agent = shared.probed.iter().filter(|of| of.has_agent);
    if with_agent.clone().next().is_none() {
        return;
    }
    for probed in shared.probed.iter().filter(|of| !of.has_agent) {
        let why = "`agent` of a pool asks an agent of each of its servers, also of this one; move it to a pool of its own";
        findings.differs(probed.line, why);
    }
    let settings = with_agent.map(|of| (of.line, &of.agent)).collect::<Vec<_>>();
    shared.agent = common("agents", &settings, findings);
    if !shared.agent.iter().any(|(key, _, _)| *key == "port") {
        for (line, _) in settings {
            findings.untranslated(line, "`agent` of a pool needs one `port` for all servers");
        }
        shared.agent.clear();
    }
}

/// The settings that have the same value for all servers, with the line that has each first. The lines that have another one are
/// findings.
fn common(
    what: &str,
    servers: &[(usize, &Vec<(&'static str, Value)>)],
    findings: &mut Findings<'_>,
) -> Vec<(&'static str, Value, usize)> {
    let mut known: Vec<(&'static str, Value, usize)> = Vec::new();
    let mut refused: Vec<&'static str> = Vec::new();
    for (line, settings) in servers {
        for (key, value) in *settings {
            let of = |(_, all): &(usize, &Vec<(&'static str, Value)>)| {
                let own = all.iter().find(|(own, _)| own == key);
                own.map(|(_, value)| value.clone()).or_else(|| preset(key))
            };
            if servers.iter().all(|server| of(server).as_ref() == Some(value)) {
                if !known.iter().any(|(own, _, _)| own == key) {
                    known.push((key, value.clone(), *line));
                }
                continue;
            }
            let why = format!(
                "`{key}` of {what} is one value for all servers of a pool; this server has a different value, so no value is used"
            );
            findings.untranslated(*line, why);
            refused.push(key);
        }
    }
    known.retain(|(key, _, _)| !refused.contains(key));
    known
}

fn tls_option(
    word: &str,
    value: &str,
    line: usize,
    shared: &mut Shared,
    findings: &mut Findings<'_>,
) -> bool {
    let mut set = |key: &'static str, value: Value| match shared
        .tls_settings
        .iter()
        .find(|(own, _, _)| *own == key)
    {
        Some((_, own, _)) if *own != value => {
            findings.differs(line, format!("`{key}` of TLS is the same for all servers of a pool"));
        }
        Some(_) => {}
        None => shared.tls_settings.push((key, value, line)),
    };
    match word {
        "ssl" => {
            shared.tls = shared.tls.or(Some(line));
            return false;
        }
        "verify" => {
            if value == "none" {
                set("verify", Value::Flag(false));
            }
        }
        "ca-file" if value == "@system-ca" => {}
        "ca-file" => set("ca", Value::from(value)),
        "crl-file" => set("crl", Value::from(value)),
        "crt" => {
            let entries = [("cert", Value::from(value)), ("key", Value::from(value))];
            set(
                "client-cert",
                Value::Table(entries.map(|(key, value)| (key.to_owned(), value)).to_vec()),
            );
        }
        "sni" => match value.strip_prefix("str(").and_then(|name| name.strip_suffix(')')) {
            Some(name) => set("server-name", Value::from(name)),
            None => findings.untranslated(
                line,
                "the server name of TLS is a fixed name: tls = { server-name = \"app.internal\" }",
            ),
        },
        "verifyhost" => set("server-name", Value::from(value)),
        "alpn" => {
            let protocols = value.split(',').filter(|name| ["h2", "http/1.1"].contains(name));
            set("alpn", Value::List(protocols.map(Value::from).collect()));
        }
        "ssl-min-ver" => match value {
            "TLSv1.3" => set("min-version", Value::from("1.3")),
            _ => set("min-version", Value::from("1.2")),
        },
        _ => return false,
    }
    true
}

fn balance(section: &Section, pool: &mut Block, is_http: bool, findings: &mut Findings<'_>) {
    let Some(line) = section.last(&["balance"]) else { return };
    let hash = |key: String| Value::Table(vec![("hash".to_owned(), Value::Text(key))]);
    let word = line.word(1);
    let (name, argument) = word.split_once('(').unwrap_or((word, ""));
    let argument = argument.trim_end_matches(')');
    let value = match name {
        "roundrobin" | "static-rr" => Value::from("round-robin"),
        "leastconn" => Value::from("least-connections"),
        "random" => Value::from("random"),
        "source" => hash("client-address".to_owned()),
        "uri" if is_http => {
            if line.words.len() > 2 {
                findings.differs(line.number, "the whole path is the key");
            }
            hash("path".to_owned())
        }
        "hdr" if is_http => hash(format!("header:{}", argument.to_ascii_lowercase())),
        "hash" if line.word(1) == "hash" && line.word(2) == "src" => {
            hash("client-address".to_owned())
        }
        other => {
            let why = format!(
                "{other:?} is not an algorithm of Tidegate, which uses \"random\" without this setting"
            );
            findings.untranslated(line.number, why);
            return;
        }
    };
    pool.set("balance", value, line.number);
}

fn sticky(section: &Section, pool: &mut Block, is_http: bool, findings: &mut Findings<'_>) {
    if let Some(line) = section.last(&["cookie"]).filter(|_| is_http) {
        cookie(line, pool, findings);
    }
    let table = section.last(&["stick-table"]);
    for line in section.lines.iter().filter(|line| line.word(0) == "stick") {
        let key = match (line.word(1), line.word(2)) {
            ("on", "src") => "client-address".to_owned(),
            ("on", key) => {
                let argument = |name: &str| key.strip_prefix(name)?.strip_suffix(')');
                let cookie = argument("cookie(").or_else(|| argument("req.cook("));
                let field = argument("hdr(").or_else(|| argument("req.hdr("));
                let parameter = argument("url_param(").or_else(|| argument("urlp("));
                match (cookie, field, parameter) {
                    (Some(name), _, _) => format!("cookie:{name}"),
                    (_, Some(name), _) => format!("header:{}", name.to_ascii_lowercase()),
                    (_, _, Some(name)) => format!("query:{name}"),
                    _ => {
                        findings.untranslated(line.number, format!("the key {key:?} of `sticky`"));
                        continue;
                    }
                }
            }
            _ => {
                findings.untranslated(
                    line.number,
                    "sticky = { by = \"cookie:NAME\" } also reads Set-Cookie",
                );
                continue;
            }
        };
        if pool.has("sticky") {
            findings.untranslated(line.number, "a pool has one `sticky`");
            continue;
        }
        pool.set_in("sticky", "by", key, line.number);
        let words = table.map(|table| table.words.clone()).unwrap_or_default();
        let after = |name: &str| {
            words.iter().position(|word| word == name).and_then(|at| words.get(at + 1))
        };
        if let Some(ms) = after("expire").and_then(|time| units::milliseconds(time, "ms")) {
            pool.set_in("sticky", "for", units::duration(ms.max(1000)), line.number);
        }
        if let Some(count) = after("size").and_then(|size| units::bytes(size)) {
            pool.set_in("sticky", "entries-max", Value::Number(count), line.number);
        }
    }
}

/// `cookie NAME insert`, or another cookie that keeps sessions.
fn cookie(line: &Line, pool: &mut Block, findings: &mut Findings<'_>) {
    let (number, name) = (line.number, line.word(1));
    let options = line.from(2);
    let has = |option: &str| options.iter().any(|own| own == option);
    if !has("insert") {
        findings
            .differs(number, "a table remembers which server began the session with this cookie");
        pool.set_in("sticky", "by", format!("cookie:{name}"), number);
        return;
    }
    pool.set_in("sticky", "cookie", name, number);
    let mut index = 0;
    while let Some(option) = options.get(index) {
        index += 1;
        let value = options.get(index).map_or("", String::as_str);
        match option.as_str() {
            "insert" | "indirect" | "nocache" | "preserve" | "dynamic" | "httponly" => {}
            "secure" => pool.set_in("sticky", "secure", Value::Flag(true), number),
            "domain" => {
                pool.set_in("sticky", "domain", value.trim_start_matches('.'), number);
                index += 1;
            }
            "attr" => {
                match value.to_ascii_lowercase().strip_prefix("samesite=") {
                    Some(site) => pool.set_in("sticky", "same-site", site, number),
                    None => findings
                        .untranslated(number, format!("the attribute {value:?} of the cookie")),
                }
                index += 1;
            }
            "maxidle" | "maxlife" => {
                findings.untranslated(number, "Tidegate's cookie contains no time; `lifetime` limits how long browsers keep it");
                index += 1;
            }
            other => findings.untranslated(number, format!("the option {other:?} of the cookie")),
        }
    }
}

fn health(section: &Section, pool: &mut Block, shared: &Shared, findings: &mut Findings<'_>) {
    let http = section.option("httpchk");
    let Some(line) = shared.has_checks else {
        if let Some(line) = http {
            findings.unneeded(line.number, "no server of this section has `check`");
        }
        return;
    };
    match http {
        Some(http) => http_check(section, http, pool, findings),
        None => pool.set_in("health", "tcp", Value::Flag(true), line),
    }
    for (key, value, line) in &shared.check {
        if *key == "keep-alive" && http.is_none() {
            findings.unneeded(*line, "a check by TCP is a connection of its own");
            continue;
        }
        pool.set_in("health", key, value.clone(), *line);
    }
    if let Some(timeout) = section.last(&["timeout", "check"])
        && let Some(ms) = units::milliseconds(timeout.word(2), "ms")
    {
        pool.set_in("health", "timeout", units::timeout(ms), timeout.number);
    }
}

fn http_check(section: &Section, http: &Line, pool: &mut Block, findings: &mut Findings<'_>) {
    // `option httpchk URI`, or `option httpchk METHOD URI [VERSION]`.
    let (mut method, mut path, mut host) = match http.from(2) {
        [] => ("OPTIONS".to_owned(), "/".to_owned(), None),
        [path] => ("OPTIONS".to_owned(), path.clone(), None),
        [method, path, ..] => (method.clone(), path.clone(), None),
    };
    if let Some(version) = http.words.get(4).and_then(|version| version.split_once("Host:")) {
        host = Some(version.1.trim_matches([' ', '\\']).to_owned());
    }
    let mut status = None;
    for line in section.lines.iter().filter(|line| line.word(0) == "http-check") {
        let after = |name: &str| {
            line.words.iter().position(|word| word == name).and_then(|at| line.words.get(at + 1))
        };
        match (line.word(1), line.word(2)) {
            ("send", _) => {
                method = after("meth").cloned().unwrap_or(method);
                path = after("uri").cloned().unwrap_or(path);
                let position = line.words.iter().position(|word| word == "hdr");
                if let Some(at) =
                    position.filter(|at| line.word(at + 1).eq_ignore_ascii_case("host"))
                {
                    host = Some(line.word(at + 2).to_owned());
                } else if position.is_some() {
                    findings.untranslated(line.number, "checks have no other field than Host");
                }
            }
            ("expect", "string") => {
                pool.set_in("health", "body", line.word(3).trim_matches('"'), line.number);
            }
            ("expect", "status") => status = Some((line.word(3).to_owned(), line.number)),
            ("expect", "rstatus") => match line.word(3).trim_matches(['^', '(', ')']) {
                "2.." | "2[0-9][0-9]" => status = Some(("200-299".to_owned(), line.number)),
                "2..|3.." | "[23].." | "[23][0-9][0-9]" => {
                    status = Some(("200-399".to_owned(), line.number))
                }
                _ => findings.untranslated(
                    line.number,
                    "write the statuses as numbers: health = { status = \"200-399\" }",
                ),
            },
            ("disable-on-404", _) => {
                findings.untranslated(line.number, "an `agent` can drain a server")
            }
            _ => findings.untranslated(line.number, "a check is one request, whose status decides"),
        }
    }
    pool.set_in("health", "http", path, http.number);
    if method != "GET" {
        pool.set_in("health", "method", method, http.number);
    }
    if let Some(host) = host {
        pool.set_in("health", "host", host, http.number);
    }
    if let Some((status, line)) = status {
        pool.set_in("health", "status", status, line);
    }
}

fn timeouts(section: &Section, pool: &mut Block, is_http: bool, findings: &mut Findings<'_>) {
    let time = |name: &str| {
        let line = section.last(&["timeout", name])?;
        Some((units::milliseconds(line.word(2), "ms")?, line.number))
    };
    let mut set = |key: &str, time: Option<(u64, usize)>| {
        if let Some((ms, line)) = time {
            if ms == 0 {
                findings
                    .untranslated(line, "Tidegate has no infinite timeouts; the default applies");
                return;
            }
            pool.set_in("timeouts", key, units::timeout(ms), line);
        }
    };
    set("connect", time("connect"));
    set("queue", time("queue"));
    match is_http {
        true => {
            set("response-head", time("server"));
            set("body", time("server"));
            set("tunnel", time("tunnel"));
        }
        false => {
            let both = [time("client"), time("server")];
            set("tunnel", time("tunnel").or_else(|| both.into_iter().flatten().min()));
        }
    }
}

fn retries(section: &Section, pool: &mut Block, is_http: bool, findings: &mut Findings<'_>) {
    if let Some(line) = section.last(&["retries"]) {
        match line.word(1).parse::<u64>() {
            Ok(count) => pool.set("retries", Value::Number(count.min(10)), line.number),
            Err(_) => findings.untranslated(line.number, "not a number"),
        }
    }
    let Some(line) = section.last(&["retry-on"]).filter(|_| is_http) else { return };
    let mut failures = Vec::new();
    for word in line.from(1) {
        match word.as_str() {
            "none" => {}
            "conn-failure" => failures.push(Value::from("connect")),
            "empty-response" => failures.push(Value::from("reset")),
            "junk-response" => failures.push(Value::from("malformed")),
            "response-timeout" => failures.push(Value::from("timeout")),
            "all-retryable-errors" => {
                failures.extend(["connect", "reset", "malformed", "timeout"].map(Value::from));
                failures.extend([500, 502, 503, 504].map(Value::Number));
            }
            status if status.parse::<u16>().is_ok() => {
                failures.push(Value::Number(status.parse().unwrap_or_default()));
            }
            other => findings.untranslated(line.number, format!("{other:?} of `retry-on`")),
        }
    }
    let mut distinct: Vec<Value> = Vec::new();
    for failure in failures {
        if !distinct.contains(&failure) {
            distinct.push(failure);
        }
    }
    pool.set("retry-on", Value::List(distinct), line.number);
}
