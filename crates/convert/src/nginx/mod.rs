//! Reads nginx's configuration.
//! In: text, perhaps that of several files as `nginx -T` prints it. Out: a plan.
//! Each address of `listen` becomes a listener. The servers of an address become routes: exact names first, then patterns, then
//! the default server, as nginx chooses among them; within a server the locations in the order of nginx's choice.

mod branch;
mod include;
mod known;
mod location;
mod parse;
mod server;
mod stream;
mod upstream;
mod variables;

use std::collections::BTreeMap;

use crate::document::{Block, Value};
use crate::finding::Findings;
use crate::plan::Plan;

use parse::Directive;

/// The definitions that servers and locations refer to.
#[derive(Default)]
struct Shared<'d> {
    /// The blocks `upstream`, by name.
    upstreams: BTreeMap<String, &'d Directive>,
    /// The blocks `map`, by the name of their variable with its dollar sign.
    maps: BTreeMap<String, &'d Directive>,
    /// The directives `limit_req_zone` and `limit_conn_zone`, by the name of the zone.
    zones: BTreeMap<String, &'d Directive>,
    /// The names of pools, by the scheme and the name of their servers.
    pools: BTreeMap<(String, String), String>,
    /// The names of maps, by the names of their variables.
    map_names: BTreeMap<String, String>,
}

/// Reads the file.
pub(crate) fn read(text: &str, findings: &mut Findings<'_>) -> Plan {
    let (directives, mistakes) = include::read(text);
    for (line, what) in mistakes {
        findings.untranslated(line, what);
    }
    let mut plan = Plan::default();
    let is_block =
        |name: &str| directives.iter().filter(move |own| own.name == name).collect::<Vec<_>>();
    let (https, streams) = (is_block("http"), is_block("stream"));
    // A file of conf.d has the content of `http`.
    let mut http: Vec<Directive> = directives
        .iter()
        .filter(|own| !["http", "stream"].contains(&own.name.as_str()))
        .cloned()
        .collect();
    process(&http, &mut plan, findings);
    http.retain(|own| !known::is_process(&own.name));
    http.extend(https.iter().flat_map(|own| own.inner().to_vec()));
    let shared = shared(&http);
    access_log(&http, &mut plan, findings);
    server::read(&http, shared, &mut plan, findings);
    known::note_rest(&http, findings);
    for stream in streams {
        stream::read(stream.inner(), &mut plan, findings);
    }
    plan
}

/// The settings of the process.
fn process(directives: &[Directive], plan: &mut Plan, findings: &mut Findings<'_>) {
    for directive in directives.iter().filter(|own| known::is_process(&own.name)) {
        let line = directive.line;
        match directive.name.as_str() {
            "worker_processes" => match directive.arg(0).parse() {
                Ok(count) => plan.server.push(("workers", Value::Number(count), line)),
                Err(_) => findings.unneeded(line, "one worker for each CPU is the default"),
            },
            "worker_shutdown_timeout" => match crate::units::milliseconds(directive.arg(0), "s") {
                Some(ms) => {
                    let grace = crate::units::duration(ms.min(3_600_000));
                    plan.server.push(("shutdown-grace", Value::Text(grace), line));
                }
                None => findings.untranslated(line, "not a time"),
            },
            "worker_cpu_affinity" => {
                findings.untranslated(line, "`cpus` of [server] lists the CPUs of the workers")
            }
            "load_module" => findings.untranslated(line, "Tidegate has no modules"),
            _ => findings.unneeded(line, "Tidegate has no such setting"),
        }
    }
}

fn shared(http: &[Directive]) -> Shared<'_> {
    let mut shared = Shared::default();
    for directive in http {
        let zone = directive.args.iter().find_map(|arg| arg.strip_prefix("zone="));
        match directive.name.as_str() {
            "upstream" => {
                shared.upstreams.insert(directive.arg(0).to_owned(), directive);
            }
            "map" => {
                shared.maps.insert(directive.arg(1).to_owned(), directive);
            }
            "limit_req_zone" | "limit_conn_zone" => {
                let name = zone.and_then(|zone| zone.split(':').next()).unwrap_or_default();
                shared.zones.insert(name.to_owned(), directive);
            }
            _ => {}
        }
    }
    shared
}

/// The first access log of the file.
fn access_log(http: &[Directive], plan: &mut Plan, findings: &mut Findings<'_>) {
    let inner = http.iter().filter(|own| own.name == "server").flat_map(|own| own.inner().iter());
    for directive in http.iter().chain(inner).filter(|own| own.name == "access_log") {
        let line = directive.line;
        let target = directive.arg(0);
        if target == "off" {
            findings.unneeded(
                line,
                "a route cannot switch the access log off; without [log] there is no access log",
            );
            continue;
        }
        let target = match target.strip_prefix("syslog:") {
            Some(options) => {
                let server = options
                    .split(',')
                    .find_map(|option| option.strip_prefix("server="))
                    .unwrap_or_default();
                match server.starts_with("unix:") {
                    true => format!("syslog:{server}"),
                    false => format!("syslog:{}", upstream::address(server, 514)),
                }
            }
            None if target == "/dev/stdout" => "stdout".to_owned(),
            None => format!("file:{target}"),
        };
        let value = Value::Table(vec![("to".to_owned(), Value::Text(target))]);
        match &plan.log {
            Some((own, _)) if *own == value => {}
            Some(_) => findings.untranslated(
                line,
                "there is one access log; its lines contain the listener, the host and the route",
            ),
            None => {
                findings.differs(line, "the lines of the access log are JSON; format = \"http\" writes those of HAProxy");
                plan.log = Some((value, line));
            }
        }
    }
}

/// Sets a timeout of a pool; the first value of the file counts.
fn set_pool_timeout(
    pool: &mut Block,
    key: &str,
    ms: u64,
    line: usize,
    findings: &mut Findings<'_>,
) {
    let value = Value::Text(crate::units::timeout(ms));
    match pool.get("timeouts").and_then(|all| all.entry(key)) {
        Some(own) if *own != value => {
            findings.differs(line, format!("`timeouts.{key}` is the same for all routes of a pool"))
        }
        Some(_) => {}
        None => pool.set_in("timeouts", key, value, line),
    }
}
