//! Reads `forward` of a listener (TCP mode).
//! In: the table of a listener, the checked pools. Out: `Forward`.
//! Invariant: a pool that gets connections without HTTP has no setting that needs HTTP.

use crate::listeners::refused;
use crate::model::{Balance, Forward, HashKey, HostPattern, Listener, Placeholder, Pool, Template};
use crate::pattern;
use crate::pools::Pools;
use crate::report::{Kind, Note, Notes};
use crate::table::{Located, Table, wrong_type};

/// The settings of a listener that concern HTTP.
const OF_HTTP: [&str; 7] = [
    "limits",
    "requests-per-connection-max",
    "trusted",
    "client-address-headers",
    "redirect-to-https",
    "hsts",
    "h2c",
];

/// Reads `forward` and checks that the other settings of the listener can be combined with it.
pub(crate) fn read(table: &Table<'_>, listener: &mut Listener, pools: &Pools, notes: &mut Notes) {
    let Some(value) = table.value("forward") else { return };
    for name in OF_HTTP.iter().filter(|name| table.value(name).is_some()) {
        let what =
            format!("`{name}` applies to HTTP, which a listener with `forward` does not read");
        let note = Note::new(Kind::Conflict, table.key_place(name), what);
        notes.error(
            note.help(format!("remove `{name}`, or replace `forward` by a [[route]] with `proxy`")),
        );
    }
    if value.get_ref().as_table().is_none() {
        let name = table.text("forward", notes);
        listener.forward = name.and_then(|name| find(&name, pools, notes)).map(Forward::Pool);
    } else {
        listener.forward = read_names(table, pools, notes);
        if listener.tls.is_some() {
            let what =
                "`forward` by server name does not terminate TLS, but the listener has `tls`";
            let note = Note::new(Kind::Conflict, table.key_place("tls"), what);
            notes.error(note.help(
                "remove `tls`: the servers have the certificates; or write forward = \"NAME\"",
            ));
        }
    }
    if let Some(tls) = &mut listener.tls
        && !has_protocols(table)
    {
        // The protocol of the servers is unknown, so none is negotiated.
        tls.alpn.clear();
    }
}

/// Whether the file configures the application protocols of the listener.
fn has_protocols(table: &Table<'_>) -> bool {
    let tls = table.value("tls").and_then(|value| value.get_ref().as_table());
    tls.is_some_and(|tls| tls.contains_key("alpn"))
}

fn read_names(table: &Table<'_>, pools: &Pools, notes: &mut Notes) -> Option<Forward> {
    let table = table.open_table("forward", notes)?;
    let mut names: Vec<(HostPattern, usize)> = Vec::new();
    for (name, value) in table.open_fields("sni", notes) {
        if name.text == "*" {
            let what = "`sni` cannot be \"*\": it contains the names of servers";
            let note = Note::new(Kind::Value, name.place, what);
            notes.error(note.help(
                "write forward = { sni = { ... }, default = \"NAME\" }, the pool of all other connections",
            ));
            continue;
        }
        let pattern = match pattern::parse_host(&name.text) {
            Ok(pattern) => Some(pattern),
            Err(complaint) => {
                notes.error(refused("sni", &name, complaint));
                None
            }
        };
        let pool = match value.get_ref().as_str() {
            Some(text) => {
                let text = Located { text: text.to_owned(), place: value.span() };
                find(&text, pools, notes)
            }
            None => {
                notes.error(wrong_type("a value of `sni`", value, "the name of a [pool.NAME]"));
                None
            }
        };
        let (Some(pattern), Some(pool)) = (pattern, pool) else { continue };
        if names.iter().any(|(other, _)| *other == pattern) {
            let note = Note::new(Kind::Duplicate, name.place, "this name is already in `sni`");
            notes.error(note.help("case does not matter in names; list each name once"));
            continue;
        }
        names.push((pattern, pool));
    }
    let default = table.text("default", notes).and_then(|name| find(&name, pools, notes));
    Some(Forward::ByServerName { names, default })
}

/// The pool of this name, which must be able to do without HTTP.
fn find(name: &Located, pools: &Pools, notes: &mut Notes) -> Option<usize> {
    let index = pools.find(name, notes)?;
    if let Some((what, help)) = needs_http(pools.pools.get(index)?) {
        let what = format!("pool {:?} cannot be used by `forward`: {what}", name.text);
        notes.error(Note::new(Kind::Conflict, name.place.clone(), what).help(help));
    }
    Some(index)
}

/// The setting of the pool that needs HTTP, and what to change.
fn needs_http(pool: &Pool) -> Option<(&'static str, &'static str)> {
    if pool.may_speak_http2() {
        return Some((
            "it speaks HTTP/2 to its servers",
            "use a pool without `h2c` and without \"h2\" in `alpn`",
        ));
    }
    let by_address = |key: &Template| key.placeholders().all(|part| *part == Placeholder::Client);
    if pool.stay.as_ref().is_some_and(|stay| !by_address(&stay.key)) {
        return Some((
            "`sticky` names a value of requests",
            "use sticky = { by = \"client-address\" }",
        ));
    }
    if pool.sticky.is_some() {
        return Some(("`sticky` needs cookies", "use balance = { hash = \"client-address\" }"));
    }
    match &pool.balance {
        Balance::Hash(HashKey::Path | HashKey::Header(_)) => {
            Some(("its `balance` needs a request", "use balance = { hash = \"client-address\" }"))
        }
        Balance::Hash(HashKey::ClientAddress)
        | Balance::Random
        | Balance::RoundRobin
        | Balance::LeastConnections => None,
    }
}
