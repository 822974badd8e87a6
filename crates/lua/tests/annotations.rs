//! The annotations for editors name exactly the functions of the API.
//! In: apps/tide.d.lua, the prelude. Out: every name of one is a name of the other.

mod harness;

use std::collections::BTreeSet;

use harness::{App, TIMED};

const ANNOTATIONS: &str = include_str!("../../../apps/tide.d.lua");

/// The chunks of the prelude that define the API, and the tables in which they define it.
const PRELUDE: [&str; 17] = [
    include_str!("../src/prelude/tide.lua"),
    include_str!("../src/prelude/crypto.lua"),
    include_str!("../src/prelude/http.lua"),
    include_str!("../src/prelude/files.lua"),
    include_str!("../src/prelude/clients.lua"),
    include_str!("../src/prelude/channels.lua"),
    include_str!("../src/prelude/shared.lua"),
    include_str!("../src/prelude/queues.lua"),
    include_str!("../src/prelude/jobs.lua"),
    include_str!("../src/prelude/push.lua"),
    include_str!("../src/prelude/outgoing.lua"),
    include_str!("../src/prelude/sockets.lua"),
    include_str!("../src/prelude/names.lua"),
    include_str!("../src/prelude/datagrams.lua"),
    include_str!("../src/prelude/websocket.lua"),
    include_str!("../src/prelude/frames.lua"),
    include_str!("../src/prelude/redis.lua"),
];
/// The chunk of tests, whose clients and responses are described as types.
const TEST_PRELUDE: &str = include_str!("../src/prelude/test.lua");
const TABLES: [&str; 31] = [
    "tide",
    "request",
    "response",
    "client",
    "remote",
    "job",
    "dictionary",
    "queue",
    "hub",
    "test",
    "reply",
    "socket",
    "datagrams",
    "udp",
    "files",
    "dns",
    "connection",
    "tunnel",
    "redis_connection",
    "redis",
    "websocket",
    "head",
    "body",
    "timer",
    "http",
    "json",
    "cbor",
    "log",
    "base64",
    "url",
    "crypto",
];
/// Names that the prelude defines in loops and tables.
const OTHERS: [&str; 34] = [
    "dictionary.set",
    "dictionary.add",
    "dictionary.replace",
    "dictionary.lpush",
    "dictionary.rpush",
    "dictionary.lpop",
    "dictionary.rpop",
    "hub.presence",
    "hub.presence_stats",
    "hub.history_remove",
    "hub.subscribe",
    "hub.unsubscribe",
    "hub.disconnect",
    "hub.refresh",
    "request.read_all",
    "body.header",
    "body.write",
    "body.flush",
    "tide.now",
    "tide.elapsed",
    "tide.premature",
    "tide.hash.sha1",
    "tide.hash.sha256",
    "tide.hash.sha384",
    "tide.hash.sha512",
    "tide.hmac.sha1",
    "tide.hmac.sha256",
    "tide.hmac.sha384",
    "tide.hmac.sha512",
    "tide.app",
    "tide.config",
    "tide.worker",
    "tide.shared",
    "tide.queue",
];

/// `function TABLE:NAME` and `function TABLE.NAME` at the beginnings of lines.
fn functions(text: &str) -> BTreeSet<String> {
    let named = text.lines().filter_map(|line| line.strip_prefix("function "));
    named.filter_map(|line| line.split_once('(')).map(|(name, _)| name.replace(':', ".")).collect()
}

fn annotated() -> BTreeSet<String> {
    let mut names = functions(ANNOTATIONS);
    let class = ANNOTATIONS.split("---@class tide\n").nth(1).expect("the class of the module");
    let fields = class.lines().map_while(|line| line.strip_prefix("---@field "));
    names.extend(fields.filter_map(|line| Some(format!("tide.{}", line.split(' ').next()?))));
    names
}

#[test]
fn annotations_name_the_functions_of_the_prelude() {
    let mut defined: BTreeSet<String> = OTHERS.map(str::to_owned).into();
    defined.extend(["tide.push", "tide.test"].map(str::to_owned));
    let of_tests = functions(TEST_PRELUDE).into_iter().filter(|name| name.starts_with("test."));
    for name in PRELUDE.into_iter().flat_map(functions).chain(of_tests) {
        let Some((table, _)) = name.split_once('.') else { continue };
        let name = name.replacen("P.tide.", "tide.", 1);
        match table {
            "timer" | "http" | "websocket" | "redis" | "udp" | "dns" | "files" | "json"
            | "cbor" | "log" | "base64" | "url" | "crypto" => {
                defined.insert(format!("tide.{name}"))
            }
            "P" if !name.starts_with("tide.") => continue,
            table if table == "P" || TABLES.contains(&table) => defined.insert(name),
            _ => continue,
        };
    }
    let annotated = annotated();
    let missing: Vec<_> = defined.difference(&annotated).collect();
    let unknown: Vec<_> = annotated.difference(&defined).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not annotated: {missing:?}; unknown: {unknown:?}"
    );
}

#[test]
fn annotated_names_exist() {
    let names = annotated();
    let of_tide: Vec<_> = names
        .iter()
        // `tide.test` exists only in the VMs of tests.
        .filter(|name| name.starts_with("tide.") && *name != "tide.test")
        .collect();
    assert!(of_tide.len() > 30, "{of_tide:?}");
    let mut checks = String::new();
    for name in of_tide {
        checks += &format!("assert({name} ~= nil, '{name}')\n");
    }
    for name in &names {
        let (table, method) = name.split_once('.').expect("a table and a name");
        if let "request" | "response" = table {
            checks += &format!("assert(type({table}.{method}) == 'function', '{name}')\n");
        }
    }
    for (table, value) in [
        ("dictionary", "tide.shared.cache"),
        ("queue", "tide.queue.jobs"),
        ("hub", "tide.push.live"),
        ("job", "tide.spawn(print)"),
        ("socket", "tide.tcp()"),
    ] {
        checks += &format!("local {table} = {value}\n");
        for name in names.iter().filter(|name| name.starts_with(&format!("{table}."))) {
            checks += &format!("assert(type({name}) == 'function', '{name}')\n");
        }
    }
    let text = format!(
        "return {{ on_request = function(request, response) {checks} response:finish('all') end }}"
    );
    let (_, response) = App::load(&text, &TIMED).get("/");
    assert_eq!(response, Some((200, "all".to_owned())));
    // Editors parse the file, and so must Lua.
    let loaded = App::load(
        "return { on_request = function(request, response)
        response:finish(tostring(load(request.body))) end }",
        &TIMED,
    )
    .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", ANNOTATIONS.as_bytes());
    assert!(loaded.1.expect("it answers").1.starts_with("function"));
}

#[test]
fn handlers_are_those_that_a_script_may_return() {
    let entries = include_str!("../src/prelude/entries.lua");
    let numbers = entries.split_once("NUMBERS = {").and_then(|(_, rest)| rest.split_once('}'));
    let (numbers, _) = numbers.expect("the list of handlers");
    let known: BTreeSet<&str> =
        numbers.split(',').filter_map(|one| Some(one.split_once('=')?.0.trim())).collect();
    let described: BTreeSet<&str> = ANNOTATIONS
        .lines()
        .filter_map(|line| line.strip_prefix("---@field on_"))
        .filter_map(|rest| rest.split_once('?'))
        .map(|(name, _)| name)
        .collect();
    let known: BTreeSet<&str> = known.iter().filter_map(|name| name.strip_prefix("on_")).collect();
    assert_eq!(described, known);
}
