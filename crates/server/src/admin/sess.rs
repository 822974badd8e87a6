//! The commands that list and end connections: `show sess`, `show conn`, `kill conn`, `shutdown sessions server`.
//! In: words; the reports of the workers. Out: text or JSON, or an error.
//! Limits: `LISTED_MAX` sessions are listed, `LISTED_DEFAULT` unless the command has a number.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate_base::Span;
use tidegate_gate::access::Names;
use tidegate_reactor::Peer;

use super::Operations;
use super::command::Outcome;
use super::command::Reply::{Changed, Shown};
use super::rows::listed;
use crate::inspection::{Question, Report, Reports, ask};
use crate::sessions::{ConnectionId, Described, Filter, ServerConnection, Session, Sessions};

/// Maximum number of sessions that one command lists, and how many it lists unless it has a number.
const LISTED_MAX: usize = 100_000;
const LISTED_DEFAULT: usize = 1000;
/// How many names an error lists.
const NAMED_MAX: usize = 20;
const LIST_USAGE: &str = "allowed: show sess [json] [all] [limit NUMBER] [listener NAME] [route NAME] [server POOL[/SERVER]] \
    [client ADDRESS] [older DURATION]";
const ID_USAGE: &str =
    "an id is as `show sess` lists it, such as 0.12.5, or 0.12.5/3 for a stream of HTTP/2";

/// Lists the connections of clients that have something in progress, and those that match the filter of the command.
pub(super) fn list(arguments: &[&str], operations: &Operations) -> Outcome {
    let (filter, is_json) = filter_of(arguments)?;
    check_names(&filter, operations)?;
    let limit = filter.limit;
    let reports = ask_all(operations, Question::Sessions(filter));
    let missing = missing_note(&reports);
    let mut all = Sessions::default();
    for (_, report) in reports.reports {
        if let Report::Sessions(found) = report {
            all.left_out += found.left_out;
            all.sessions.extend(found.sessions);
        }
    }
    all.left_out += all.sessions.len().saturating_sub(limit) as u64;
    all.sessions.truncate(limit);
    hide_queries(&mut all.sessions, operations);
    if is_json {
        let sessions: Vec<Value> = all.sessions.iter().map(as_json).collect();
        let list = json!({"sessions": sessions, "left_out": all.left_out, "missing_workers": reports.missing});
        return Ok(Shown(format!("{list}\n")));
    }
    let mut text = String::from(
        "# id client listener protocol state age route server status bytes_in bytes_out request\n",
    );
    all.sessions.iter().for_each(|session| write_line(&mut text, session));
    if all.left_out > 0 {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# connections not shown: {}", all.left_out);
    }
    Ok(Shown(text + &missing))
}

/// Shows all that is known about a connection.
pub(super) fn show(arguments: &[&str], operations: &Operations) -> Outcome {
    let (id, is_json) = match arguments {
        [id] => (id_of(id, operations)?, false),
        [id, "json"] => (id_of(id, operations)?, true),
        _ => return Err(format!("usage: show conn ID [json]; {ID_USAGE}")),
    };
    let reports = ask_one(operations, id.worker, Question::Connection(id))?;
    let Some((_, Report::Sessions(mut found))) = reports.reports.into_iter().next() else {
        return Err(late(id.worker));
    };
    hide_queries(&mut found.sessions, operations);
    let values: Vec<Value> = match &found.server {
        Some(server) => vec![server_as_json(server)],
        None => found.sessions.iter().map(as_json).collect(),
    };
    if values.is_empty() {
        return Err(format!("no connection {id}: it has ended, or it never existed; {ID_USAGE}"));
    }
    if is_json {
        return Ok(Shown(format!("{}\n", Value::Array(values))));
    }
    let mut text = String::new();
    for value in values {
        for (name, value) in value.as_object().into_iter().flatten() {
            let _ = match value {
                Value::String(value) => writeln!(text, "{name}: {}", value.escape_debug()),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => writeln!(text, "{name}: {value}"),
            };
        }
        text.push('\n');
    }
    text.pop();
    Ok(Shown(text))
}

/// Resets a connection or a stream.
pub(super) fn kill(arguments: &[&str], operations: &Operations) -> Outcome {
    let [id] = arguments else { return Err(format!("usage: kill conn ID; {ID_USAGE}")) };
    let id = id_of(id, operations)?;
    let reports = ask_one(operations, id.worker, Question::End(id))?;
    let Some((_, Report::Ended(ended))) = reports.reports.into_iter().next() else {
        return Err(late(id.worker));
    };
    ended.map_err(|why| format!("connection {id} was not ended: {why}"))?;
    Ok(Changed(String::new()))
}

/// Ends the exchanges with a server.
pub(super) fn end_of_server(arguments: &[&str], operations: &Operations) -> Outcome {
    let [place] = arguments else {
        return Err("usage: shutdown sessions server POOL/SERVER".to_owned());
    };
    let (pool, server) = server_of(place, operations)?;
    let reports = ask_all(operations, Question::EndOfServer(pool, server));
    let missing = missing_note(&reports);
    let mut ended = 0;
    for (_, report) in &reports.reports {
        if let Report::EndedOfServer(count) = report {
            ended += count;
        }
    }
    Ok(Changed(format!("exchanges ended: {ended}\n{missing}")))
}

/// Refuses the names of a filter that do not exist: a script that waits for an empty list would succeed at once.
fn check_names(filter: &Filter, operations: &Operations) -> Result<(), String> {
    let config = operations.config();
    if let Some(name) = &filter.listener {
        check_name("listener", name, config.listeners.iter().map(|one| &*one.name))?;
    }
    if let Some(name) = &filter.route {
        let names = Names::new(&config);
        check_name("route", name, (0..config.routes.len()).map(|at| names.route(at)))?;
    }
    match &filter.server {
        Some(place) if place.contains('/') => {
            // A removed server keeps its name while requests are in progress there.
            let (pool, server) = place.split_once('/').unwrap_or_default();
            match Names::new(&config).find_server(pool, server) {
                Some(_) => Ok(()),
                None => server_of(place, operations).map(|_| ()),
            }
        }
        Some(pool) => check_name("pool", pool, config.pools.iter().map(|one| &*one.name)),
        None => Ok(()),
    }
}

fn check_name<'n>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'n str> + Clone,
) -> Result<(), String> {
    if known.clone().any(|known| known == name) {
        return Ok(());
    }
    let first: Vec<&str> = known.take(NAMED_MAX).collect();
    Err(format!("no {kind} {name:?}; there are: {}", listed(&first)))
}

/// The indexes of the server POOL/SERVER.
fn server_of(place: &str, operations: &Operations) -> Result<(u16, u16), String> {
    let config = operations.config();
    let names = Names::new(&config);
    let counts = config.pools.iter().map(|pool| pool.servers.len()).enumerate();
    let places = counts.flat_map(|(pool, count)| (0..count).map(move |server| (pool, server)));
    let known = places.filter(|(pool, server)| operations.roster.view(*pool, *server).is_some());
    let mut others = Vec::new();
    for (pool, server) in known {
        let (pool_name, server_name) = names.server(pool, server);
        let name = format!("{pool_name}/{server_name}");
        if name == place {
            return Ok((pool as u16, server as u16));
        }
        if others.len() < NAMED_MAX {
            others.push(name);
        }
    }
    Err(format!("no server {place:?}; the servers are: {}", listed(&others)))
}

/// The id of a connection, of a worker that exists.
fn id_of(text: &str, operations: &Operations) -> Result<ConnectionId, String> {
    let workers = operations.workers.len();
    text.parse::<ConnectionId>().ok().filter(|id| id.worker < workers).ok_or_else(|| {
        format!(
            "{text:?} is not the id of a connection; {ID_USAGE}; the first number is the worker, 0 to {}",
            workers.saturating_sub(1)
        )
    })
}

/// Asks all workers.
pub(super) fn ask_all(operations: &Operations, question: Question) -> Reports {
    let all: Vec<usize> = (0..operations.workers.len()).collect();
    ask(&operations.workers, &all, question)
}

fn ask_one(operations: &Operations, worker: usize, question: Question) -> Result<Reports, String> {
    Ok(ask(&operations.workers, &[worker], question))
}

fn late(worker: usize) -> String {
    format!("worker {worker} did not report in time")
}

/// A line about the workers that have not reported.
pub(super) fn missing_note(reports: &Reports) -> String {
    reports.missing.iter().map(|worker| format!("# {}\n", late(*worker))).collect()
}

/// Reads the arguments of `show sess`. Also returns whether the list is wanted as JSON.
fn filter_of(arguments: &[&str]) -> Result<(Filter, bool), String> {
    let mut filter = Filter {
        has_idle: false,
        limit: LISTED_DEFAULT,
        listener: None,
        route: None,
        server: None,
        client: None,
        older: None,
    };
    let mut is_json = false;
    let mut rest = arguments;
    while let [word, after @ ..] = rest {
        rest = after;
        match *word {
            "json" => is_json = true,
            "all" => filter.has_idle = true,
            "limit" | "listener" | "route" | "server" | "client" | "older" => {
                let [value, after @ ..] = after else {
                    return Err(format!("`{word}` needs a value; {LIST_USAGE}"));
                };
                rest = after;
                set(&mut filter, word, value)?;
            }
            _ => return Err(format!("`show sess` does not accept {word:?}; {LIST_USAGE}")),
        }
    }
    Ok((filter, is_json))
}

/// Sets one condition of a filter.
fn set(filter: &mut Filter, word: &str, value: &str) -> Result<(), String> {
    match word {
        "limit" => {
            let limit = value.parse().ok().filter(|limit| (1..=LISTED_MAX).contains(limit));
            filter.limit = limit.ok_or_else(|| {
                format!("`limit` cannot be {value:?}; allowed: 1 to {LISTED_MAX}")
            })?;
        }
        "listener" => filter.listener = Some(value.to_owned()),
        "route" => filter.route = Some(value.to_owned()),
        "server" => filter.server = Some(value.to_owned()),
        "client" => {
            let client = value.parse().map_err(|_| {
                format!("`client` cannot be {value:?}; allowed: an IP address without a port")
            })?;
            filter.client = Some(client);
        }
        _ => {
            let span = super::profile::parse_span(value).ok_or_else(|| {
                format!("`older` cannot be {value:?}; allowed: a duration such as 500ms, 10s or 2m")
            })?;
            filter.older = Some(Span::from_nanos(span.as_nanos() as u64));
        }
    }
    Ok(())
}

fn peer(peer: Peer) -> String {
    match peer {
        Peer::Tcp(address) => address.to_string(),
        Peer::Local => "unix".to_owned(),
    }
}

fn seconds(span: Span) -> f64 {
    span.as_millis() as f64 / 1e3
}

/// Removes queries, which may contain secrets such as signatures, unless only the user that runs the process, or a client
/// with the token, reads the reply.
fn hide_queries(sessions: &mut [Session], operations: &Operations) {
    let exchanges = sessions.iter_mut().filter_map(|session| session.exchange.as_mut());
    for exchange in exchanges.filter(|_| !operations.is_private) {
        let [_, _, target] = &mut exchange.request;
        if let Some(query) = target.find('?') {
            target.truncate(query);
        }
    }
}

fn write_line(text: &mut String, session: &Session) {
    let client = peer(session.client);
    let Session { id, listener, protocol, state, .. } = session;
    let _ = write!(text, "{id} {client} {listener} {protocol} {state}");
    let Some(exchange) = &session.exchange else {
        text.push_str(" - - - - - - -\n");
        return;
    };
    let Described { age, route, server, status, bytes, request: [method, host, target], .. } =
        exchange;
    let server =
        server.as_ref().map_or_else(|| "-".into(), |(pool, name)| format!("{pool}/{name}"));
    let route = route.as_deref().unwrap_or("-");
    let status = if *status == 0 { "-".to_owned() } else { status.to_string() };
    let request = format!("{method} {host} {target}");
    let _ = writeln!(
        text,
        " {:.3}s {route} {server} {status} {} {} \"{}\"",
        seconds(*age),
        bytes.0,
        bytes.1,
        request.trim().escape_debug()
    );
}

fn as_json(session: &Session) -> Value {
    let mut value = json!({
        "id": session.id.to_string(),
        "client": peer(session.client),
        "listener": session.listener,
        "protocol": session.protocol,
        "state": session.state,
        "requests": session.requests,
        "unsent_bytes": session.unsent,
        "deadline_seconds": session.deadline.map(seconds),
    });
    if let Some(exchange) = &session.exchange {
        let [method, host, target] = &exchange.request;
        value["age_seconds"] = seconds(exchange.age).into();
        value["method"] = method.as_str().into();
        value["host"] = host.as_str().into();
        value["target"] = target.as_str().into();
        value["route"] = exchange.route.as_deref().into();
        value["pool"] = exchange.server.as_ref().map(|(pool, _)| pool.as_str()).into();
        value["server"] = exchange.server.as_ref().map(|(_, server)| server.as_str()).into();
        value["server_connection"] = exchange.server_connection.map(|id| id.to_string()).into();
        value["attempts"] = exchange.attempts.into();
        value["status"] = Some(exchange.status).filter(|status| *status > 0).into();
        value["bytes_in"] = exchange.bytes.0.into();
        value["bytes_out"] = exchange.bytes.1.into();
    }
    value
}

fn server_as_json(server: &ServerConnection) -> Value {
    json!({
        "id": server.id.to_string(),
        "pool": server.server.0,
        "server": server.server.1,
        "protocol": server.protocol,
        "requests": server.requests,
        "exchanges": server.exchanges,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_state_a_filter() {
        let words = "json all limit 7 listener web route /api/* server app/x client ::1 older 2m";
        let (filter, is_json) = filter_of(&words.split(' ').collect::<Vec<_>>()).expect(words);
        assert!(is_json && filter.has_idle && filter.limit == 7);
        assert_eq!(filter.older, Some(Span::from_secs(120)));
        assert_eq!(filter.server.as_deref(), Some("app/x"));
        for (words, expected) in [
            ("limit", "`limit` needs a value; allowed: show sess"),
            ("limit 0", "allowed: 1 to 100000"),
            ("client x", "allowed: an IP address"),
            ("older x", "allowed: a duration"),
            ("frob", "does not accept \"frob\"; allowed: show sess [json] [all]"),
        ] {
            let error = filter_of(&words.split(' ').collect::<Vec<_>>()).expect_err(words);
            assert!(error.contains(expected), "{words}: {error}");
        }
    }

    #[test]
    fn lines_have_the_columns_of_the_heading() {
        let mut session = Session {
            id: "0.1.1/3".parse().expect("an id"),
            client: Peer::Local,
            listener: "web".to_owned(),
            protocol: "http2",
            state: "server",
            requests: 1,
            unsent: 0,
            deadline: None,
            exchange: None,
        };
        let mut text = String::new();
        write_line(&mut text, &session);
        assert_eq!(text, "0.1.1/3 unix web http2 server - - - - - - -\n");
        session.exchange = Some(Described {
            age: Span::from_millis(1500),
            request: ["GET".into(), "a".into(), "/\"\u{1b}".into()],
            server: Some(("app".into(), "x:1".into())),
            ..Described::default()
        });
        text.clear();
        write_line(&mut text, &session);
        let expected =
            "0.1.1/3 unix web http2 server 1.500s - app/x:1 - 0 0 \"GET a /\\\"\\u{1b}\"\n";
        assert_eq!(text, expected);
        assert_eq!(as_json(&session)["age_seconds"], 1.5);
    }
}
