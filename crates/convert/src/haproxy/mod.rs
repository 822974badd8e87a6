//! Reads HAProxy's configuration.
//! In: text. Out: a plan.
//! A section `frontend` or `listen` becomes a listener for each address and routes, a section `backend` or `listen` a pool. Rules
//! are read from the last to the first, and each one changes the routes that the later ones have become.

mod backend;
pub(crate) mod expression;
mod format;
mod frontend;
mod listener;
mod resolvers;
pub(crate) mod rules;
mod words;

use std::collections::BTreeMap;

use crate::document::{Block, BlockKind, Value};
use crate::finding::Findings;
use crate::plan::Plan;
use crate::route::Route;
use crate::units;

use backend::Resolved;
use expression::Names;
use listener::Global;
use words::{Line, Section};

/// Lines of `global` that Tidegate needs no setting for.
const UNNEEDED_GLOBAL: [&str; 19] = [
    "daemon",
    "pidfile",
    "ulimit-n",
    "master-worker",
    "node",
    "description",
    "log-tag",
    "log-send-hostname",
    "spread-checks",
    "nbproc",
    "cpu-policy",
    "expose-experimental-directives",
    "set-dumpable",
    "localpeer",
    "ssl-engine",
    "ssl-server-verify",
    "unix-bind",
    "numa-cpu-mapping",
    "maxsslconn",
];

/// The definitions that sections refer to.
struct Sections {
    all: Vec<Section>,
    /// The name of the pool of each section with servers.
    pools: BTreeMap<String, String>,
    /// The routes of the backends that were used so far; line 0 means the line that uses them.
    made: BTreeMap<String, Vec<Route>>,
    names: Names,
    /// What servers need from `[resolver]`.
    resolved: Resolved,
}

/// Reads the file.
pub(crate) fn read(text: &str, findings: &mut Findings<'_>) -> Plan {
    let (all, stray) = words::sections(text);
    for line in stray {
        findings.untranslated(line.number, "a line before the first section");
    }
    let mut plan = Plan::default();
    let mut sections = Sections {
        all,
        pools: BTreeMap::new(),
        made: BTreeMap::new(),
        names: Names::default(),
        resolved: Resolved::default(),
    };
    let mut global = Global::default();
    for section in sections.all.iter().filter(|section| section.kind == "global") {
        read_global(section, &mut global, &mut plan, findings);
    }
    access_log(&sections.all, &mut plan, findings);
    name_pools(&mut sections, &mut plan);
    read_tables(&mut sections, &mut plan, findings);
    for index in 0..sections.all.len() {
        let Some(section) = sections.all.get(index).cloned() else { continue };
        let is_http = is_http(&section);
        match section.kind.as_str() {
            "global" => {}
            // Also lines of a section that no other section inherits.
            "defaults" => frontend::note_rest(&section, findings),
            "frontend" => frontend::read(&section, &global, &mut sections, &mut plan, findings),
            "backend" => {
                read_pool(&section, &mut sections, is_http, &mut plan, findings);
                frontend::note_rest(&section, findings);
            }
            "resolvers" => resolvers::read(&section, &mut plan, findings),
            "listen" => {
                read_pool(&section, &mut sections, is_http, &mut plan, findings);
                frontend::read(&section, &global, &mut sections, &mut plan, findings);
            }
            kind => {
                let why = match kind {
                    "userlist" => {
                        "write the users to a file as `htpasswd -B` does, and auth = { basic = \"FILE\" } into the routes"
                    }
                    "peers" => "tables belong to one process; a reload keeps them",
                    _ => "Tidegate has no counterpart of this section",
                };
                findings.untranslated(section.line, why);
                for line in &section.lines {
                    findings.untranslated(line.number, why);
                }
            }
        }
    }
    resolvers::settle(sections.resolved, &mut plan, findings);
    for (file, name) in &sections.names.sets {
        let mut set = Block::named(BlockKind::Lookup, "set", name, 0);
        set.set("addresses", file.as_str(), 0);
        plan.lookups.push(set);
    }
    plan
}

fn is_http(section: &Section) -> bool {
    section.last(&["mode"]).is_some_and(|line| line.word(1) == "http")
}

fn read_pool(
    section: &Section,
    sections: &mut Sections,
    is_http: bool,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) {
    if let Some(name) = sections.pools.get(&section.name) {
        let pool = backend::pool(section, name, is_http, &mut sections.resolved, findings);
        plan.pools.push(pool);
    }
}

/// Gives a name to the pool of each section with servers.
fn name_pools(sections: &mut Sections, plan: &mut Plan) {
    for section in &sections.all {
        let has_servers =
            section.lines.iter().any(|line| matches!(line.word(0), "server" | "server-template"));
        if ["backend", "listen"].contains(&section.kind.as_str()) && has_servers {
            sections.pools.insert(section.name.clone(), plan.name(&section.name));
        }
    }
}

fn read_global(
    section: &Section,
    global: &mut Global,
    plan: &mut Plan,
    findings: &mut Findings<'_>,
) {
    for line in &section.lines {
        let number = line.number;
        match line.word(0) {
            "nbthread" => match line.word(1).parse() {
                Ok(count) => plan.server.push(("workers", Value::Number(count), number)),
                Err(_) => findings.untranslated(number, "not a number"),
            },
            "maxconn" => findings.differs(
                number,
                "Tidegate accepts as many connections as the limit of descriptors allows; `connections-max` of [server] limits \
                 those with clients and servers together",
            ),
            "hard-stop-after" => match units::milliseconds(line.word(1), "ms") {
                Some(ms) => {
                    let grace = units::duration(ms.min(3_600_000));
                    plan.server.push(("shutdown-grace", Value::Text(grace), number));
                }
                None => findings.untranslated(number, "not a time"),
            },
            "crt-base" => global.crt_base = line.word(1).to_owned(),
            "ca-base" => global.ca_base = line.word(1).to_owned(),
            "log" => {}
            "stats" => match line.word(1) {
                "socket" => stats_socket(line, plan, findings),
                _ => findings.unneeded(number, "[admin] has no such setting"),
            },
            "ssl-default-bind-options" => {
                let words = line.from(1);
                let at = words.iter().position(|word| word == "ssl-min-ver");
                let version = at.and_then(|at| words.get(at + 1));
                if version.is_some_and(|version| version == "TLSv1.3") {
                    global.min_version = Some(("1.3".to_owned(), number));
                }
                if words.iter().any(|word| word == "no-tls-tickets") {
                    global.no_tickets = Some(number);
                }
            }
            "ssl-default-server-options" if line.from(1).iter().any(|word| word == "no-tls-tickets") => {
                findings.untranslated(
                    number,
                    "Tidegate resumes sessions with servers; `tickets` of a listener concerns clients",
                );
            }
            "user" | "group" | "uid" | "gid" => findings.untranslated(
                number,
                "Tidegate keeps the user that starts it: use `User=` and `Group=` of its systemd unit, with CAP_NET_BIND_SERVICE for ports \
                 below 1024 (docs/operations.md)",
            ),
            "chroot" => findings.untranslated(
                number,
                "Tidegate does not change its root directory: use `RootDirectory=` or `ProtectSystem=strict` of its systemd unit",
            ),
            word if word.starts_with("ssl-default") || word.starts_with("ssl-dh") => {
                findings.differs(number, crate::ALGORITHMS);
            }
            word if word.starts_with("tune.") || UNNEEDED_GLOBAL.contains(&word) => {
                findings.unneeded(number, "Tidegate has no such setting");
            }
            "cpu-map" => findings.untranslated(number, "`cpus` of [server] lists the CPUs of the workers"),
            "lua-load" | "lua-load-per-thread" | "lua-prepend-path" => {
                findings.untranslated(number, "Lua applications are written for Tidegate's interface: docs/lua.md");
            }
            "server-state-file" | "server-state-base" => {
                findings.unneeded(number, "a reload and an upgrade keep the states of servers");
            }
            word => findings.untranslated(number, format!("Tidegate has no counterpart of {word:?}")),
        }
    }
}

/// The first socket is the admin interface.
fn stats_socket(line: &Line, plan: &mut Plan, findings: &mut Findings<'_>) {
    let Some(bind) = units::bind(line.word(2)) else {
        findings.untranslated(
            line.number,
            "the admin interface has an address, such as unix:/run/tidegate.sock",
        );
        return;
    };
    match &plan.admin {
        Some(_) => findings.untranslated(line.number, "a configuration has only one [admin]"),
        None => {
            if line.words.len() > 3 {
                findings.differs(
                    line.number,
                    "only the user of the process can use the socket, for all commands",
                );
            }
            plan.admin = Some((bind, line.number));
        }
    }
}

/// The access log, from `log` of `global` or a section.
fn access_log(sections: &[Section], plan: &mut Plan, findings: &mut Findings<'_>) {
    let serving = ["defaults", "frontend", "listen"];
    let logs = sections
        .iter()
        .filter(|section| section.kind != "backend")
        .flat_map(|section| &section.lines);
    let is_log = |line: &&Line| line.word(0) == "log" && line.word(1) != "global";
    let wanted = sections.iter().filter(|section| serving.contains(&section.kind.as_str()));
    let wanted = wanted.flat_map(|section| &section.lines);
    let is_wanted = wanted.clone().any(|line| {
        line.word(0) == "log"
            || line.word(0) == "option" && ["httplog", "tcplog"].contains(&line.word(1))
    });
    for line in logs.filter(is_log) {
        let target = match line.word(1) {
            "stdout" | "stderr" => "stdout".to_owned(),
            path if path.starts_with('/') => format!("syslog:unix:{path}"),
            address => match address.parse::<core::net::IpAddr>() {
                Ok(core::net::IpAddr::V4(ip)) => format!("syslog:{ip}:514"),
                Ok(core::net::IpAddr::V6(ip)) => format!("syslog:[{ip}]:514"),
                Err(_) if address.contains(':') => format!("syslog:{address}"),
                Err(_) => {
                    findings.untranslated(
                        line.number,
                        "the access log goes to an IP address, a unix socket, a file or stdout",
                    );
                    continue;
                }
            },
        };
        if !is_wanted {
            findings
                .unneeded(line.number, "no section uses it; Tidegate's own messages go to stderr");
            continue;
        }
        match &plan.log {
            Some((own, _)) if *own == access(&target) => {}
            Some(_) => findings.untranslated(line.number, "there is one access log"),
            None => {
                if line.word(1) == "stderr" {
                    findings.differs(line.number, "the access log goes to stdout");
                }
                let facility =
                    line.words.iter().any(|word| word.starts_with("local") && word != "local0");
                if facility && target.starts_with("syslog") {
                    findings.differs(line.number, "the facility is local0");
                }
                plan.log = Some((access(&target), line.number));
            }
        }
    }
}

fn access(target: &str) -> Value {
    let entries = [("to", Value::from(target)), ("format", Value::from("http"))];
    Value::Table(entries.map(|(key, value)| (key.to_owned(), value)).to_vec())
}

/// Reads stick tables that are counted in, and which of them `track-scN` uses.
fn read_tables(sections: &mut Sections, plan: &mut Plan, findings: &mut Findings<'_>) {
    for section in &sections.all {
        let Some(line) = section.last(&["stick-table"]) else { continue };
        let tracks = |section: &Section| {
            section.lines.iter().any(|line| {
                line.word(1).starts_with("track-sc") || line.word(2).starts_with("track-sc")
            })
        };
        let is_own =
            section.kind == "backend" && section.lines.iter().any(|line| line.word(0) == "stick");
        let is_used = sections.all.iter().any(tracks);
        if is_own || !is_used {
            if !is_own {
                findings.unneeded(line.number, "no rule counts in this table");
            }
            continue;
        }
        let own = plan.name(&section.name);
        let (block, counts) = table(line, &own, findings);
        sections.names.counts.insert(own.clone(), counts);
        sections.names.tables.insert(section.name.clone(), own);
        plan.lookups.push(block);
    }
    for section in &sections.all {
        for line in &section.lines {
            let (words, _) = rules::split_condition(&line.words);
            let Some(at) = words.iter().position(|word| word.starts_with("track-sc")) else {
                continue;
            };
            let counter = words[at].trim_start_matches("track-sc").to_owned();
            let named =
                words.iter().position(|word| word == "table").and_then(|at| words.get(at + 1));
            let table = named.unwrap_or(&section.name);
            if let Some(own) = sections.names.tables.get(table).cloned() {
                sections.names.tracked.insert(counter, own.clone());
                note_key(
                    words.get(at + 1).map_or("", String::as_str),
                    &own,
                    line.number,
                    plan,
                    findings,
                );
            }
        }
    }
}

/// `track-scN` states the key of a table.
fn note_key(key: &str, table: &str, line: usize, plan: &mut Plan, findings: &mut Findings<'_>) {
    let header = Block::named(BlockKind::Lookup, "table", table, 0).header;
    let Some(block) = plan.lookups.iter_mut().find(|own| own.header == header) else { return };
    let argument = |name: &str| key.strip_prefix(name)?.split_once(')').map(|(name, _)| name);
    let value = match key {
        "src" => "client-address".to_owned(),
        "path" | "base" | "url" => "path".to_owned(),
        _ => match argument("hdr(").or_else(|| argument("req.hdr(")) {
            Some(name) if name.eq_ignore_ascii_case("host") => "host".to_owned(),
            Some(name) => format!("header:{}", name.to_ascii_lowercase()),
            None => {
                findings.untranslated(line, format!("the key {key:?} of a table"));
                return;
            }
        },
    };
    block.set("key", value, line);
}

/// A block `[table.NAME]`, and its counts by HAProxy's names.
fn table(line: &Line, name: &str, findings: &mut Findings<'_>) -> (Block, Vec<(String, String)>) {
    let number = line.number;
    let mut block = Block::named(BlockKind::Lookup, "table", name, number);
    let after = |word: &str| {
        line.words.iter().position(|own| own == word).and_then(|at| line.words.get(at + 1))
    };
    let mut counts = Vec::new();
    for item in after("store").map_or("", String::as_str).split(',').filter(|item| !item.is_empty())
    {
        let (own, period) = item.split_once('(').unwrap_or((item, ""));
        let kind = match own {
            "http_req_rate" | "http_req_cnt" => "requests",
            "http_err_rate" | "http_err_cnt" => "errors",
            "http_fail_rate" | "http_fail_cnt" => "failures",
            "bytes_in_rate" | "bytes_in_cnt" => "bytes-received",
            "bytes_out_rate" | "bytes_out_cnt" => "bytes-sent",
            "conn_cur" => "connections",
            "gpt0" => "mark",
            _ => {
                findings.untranslated(number, format!("tables do not count {own:?}"));
                continue;
            }
        };
        if own == "conn_cur" {
            findings.differs(number, "`connections` counts requests in progress");
        }
        let count = match units::milliseconds(period.trim_end_matches(')'), "ms") {
            Some(ms) if own.ends_with("_rate") => {
                format!("{kind}/{}", units::duration(ms.clamp(1000, 86_400_000)))
            }
            _ => kind.to_owned(),
        };
        counts.push((own.to_owned(), count));
    }
    block.set("key", "client-address", number);
    let values = counts.iter().map(|(_, count)| Value::Text(count.clone())).collect();
    block.set("counts", Value::List(values), number);
    if let Some(ms) = after("expire").and_then(|time| units::milliseconds(time, "ms")) {
        let longest = counts.iter().filter_map(|(_, count)| count.split_once('/'));
        let longest = longest.filter_map(|(_, period)| units::milliseconds(period, "s")).max();
        let ms = ms.max(longest.unwrap_or(1000)).clamp(1000, 86_400_000);
        block.set("expire", units::duration(ms), number);
    }
    if let Some(size) = after("size").and_then(|size| units::bytes(size)) {
        block.set("entries-max", Value::Number(size.clamp(8, 1 << 22)), number);
    }
    (block, counts)
}
