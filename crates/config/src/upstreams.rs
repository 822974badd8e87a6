//! Reads `servers` of a pool.
//! In: the table of a pool. Out: checked servers; a template is read as its slots.
//! Never: resolves the name of a server.
//! Invariant: at least one server has a weight above 0.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::keys::{POOL, UPSTREAM};
use crate::listeners::refused;
use crate::model::{ServerAddress, Slot, SlotSource, Upstream};
use crate::pattern::{self, ValueError};
use crate::report::{Kind, Note, Notes};
use crate::table::{Located, Table, Value, describe, wrong_type};
use crate::words::AtStart;

/// Reads the servers of a pool.
pub(crate) fn read(table: &Table<'_>, notes: &mut Notes) -> Vec<Upstream> {
    let mut servers: Vec<Upstream> = Vec::new();
    let Some(value) = table.value("servers") else {
        return servers;
    };
    let Some(rows) = value.get_ref().as_array() else {
        let allowed = POOL.key("servers").map(|key| describe(&key.shape)).unwrap_or_default();
        notes.error(
            wrong_type("`servers`", value, &allowed)
                .help("write it in brackets: servers = [\"127.0.0.1:8000\"]"),
        );
        return servers;
    };
    if rows.is_empty() {
        let note = Note::new(Kind::Missing, value.span(), "the pool has no server");
        notes.error(note.help("add servers = [\"127.0.0.1:8000\"]"));
        return servers;
    }
    let mut slots = BTreeSet::new();
    for row in rows.iter() {
        let Some((server, template)) = read_server(row, notes) else {
            continue;
        };
        let Some(template) = template else {
            if servers.iter().any(|other| other.address == server.address) {
                let what = "this server is already in the pool";
                let note = Note::new(Kind::Duplicate, row.span(), what);
                notes.error(note.help("list it once, with a higher `weight`"));
            }
            servers.push(server);
            continue;
        };
        let added = template.slots(&server);
        if let Some(twice) = added.iter().find(|slot| !slots.insert(slot.address.to_string())) {
            let what = format!("the pool already has a slot with the name {}", twice.address);
            let note = Note::new(Kind::Duplicate, row.span(), what);
            notes.error(note.help("list the name once, or give its slots another `prefix`"));
        }
        servers.extend(added);
    }
    if !servers.is_empty() && servers.iter().all(|server| server.weight == 0) {
        let note = Note::new(Kind::Conflict, value.span(), "no server has a `weight` above 0");
        notes.error(
            note.help("give at least one server weight = 1; otherwise no server is ever chosen"),
        );
    }
    servers
}

/// Reads a server, and the template that it is for.
fn read_server(value: &Value<'_>, notes: &mut Notes) -> Option<(Upstream, Option<Template>)> {
    if let Some(text) = value.get_ref().as_str() {
        let text = Located { text: text.to_owned(), place: value.span() };
        return Some((Upstream::at(read_address("servers", &text, notes)?), None));
    }
    if value.get_ref().as_table().is_none() {
        notes.error(wrong_type("an entry of `servers`", value, "a string or a table"));
        return None;
    }
    let table = Table::open(&UPSTREAM, value, notes)?;
    let (mut weight, mut backup) = (1, false);
    table.set_number("weight", &mut weight, notes);
    let mut connections_max = None;
    table.set_bound("connections-max", &mut connections_max, notes);
    table.set_flag("backup", &mut backup, notes);
    let at_start = table.word::<AtStart>("at-start", notes);
    let (address, template) = read_place(&table, notes)?;
    let is_named = template.is_some() || matches!(address, ServerAddress::Name(..));
    if at_start.is_some() && !is_named {
        let what = "`at-start` has no effect on a server with a fixed address";
        notes.error(Note::new(Kind::Conflict, table.key_place("at-start"), what).help("remove it"));
    }
    let may_lack_address = at_start == Some(AtStart::Optional);
    Some((Upstream { address, weight, connections_max, backup, may_lack_address }, template))
}

/// Slots for the addresses of a name.
struct Template {
    source: Arc<SlotSource>,
    prefix: Arc<str>,
    count: u16,
}

impl Template {
    /// The servers, with the settings of `like`.
    fn slots(&self, like: &Upstream) -> Vec<Upstream> {
        let slot = |number| {
            let (source, prefix) = (Arc::clone(&self.source), Arc::clone(&self.prefix));
            let address = ServerAddress::Slot(Slot { source, prefix, number });
            Upstream { address, ..like.clone() }
        };
        (1..=self.count).map(slot).collect()
    }
}

/// Reads the address of a server, or the name of a template.
fn read_place(table: &Table<'_>, notes: &mut Notes) -> Option<(ServerAddress, Option<Template>)> {
    let (address, srv) = (table.text("address", notes), table.text("srv", notes));
    let mut count = 0_u16;
    table.set_number("slots", &mut count, notes);
    let prefix = table.text("prefix", notes);
    let has = |key: &str| table.value(key).is_some();
    match (has("address"), has("srv")) {
        (false, false) => {
            let what = format!("{} has neither `address` nor `srv`", UPSTREAM.path);
            let note = Note::new(Kind::Missing, table.place.clone(), what);
            notes.error(note.help("add address = \"127.0.0.1:8000\""));
            return None;
        }
        (true, true) => {
            let what = "a server has both `address` and `srv`";
            let note = Note::new(Kind::Conflict, table.key_place("srv"), what);
            notes.error(note.help("remove one of them: SRV records state hosts and ports"));
            return None;
        }
        (true, false) | (false, true) => {}
    }
    let (source, name) = match (address, srv) {
        (Some(text), _) => {
            let address = read_address("address", &text, notes)?;
            let (true, ServerAddress::Name(name, port)) = (has("slots"), &address) else {
                for key in ["slots", "prefix"].into_iter().filter(|key| has(key)) {
                    let what = match key {
                        "slots" => "`slots` needs a name that is resolved",
                        _ => "`prefix` has no effect without `slots`",
                    };
                    let note = Note::new(Kind::Conflict, table.key_place(key), what);
                    notes.error(note.help("remove it"));
                }
                return Some((address, None));
            };
            (SlotSource::Name(name.clone(), *port), text)
        }
        (None, Some(text)) => match parse_srv(&text.text) {
            Ok(name) => {
                notes.places.mark(name.clone(), text.place.clone());
                (SlotSource::Srv(name), text)
            }
            Err(complaint) => {
                notes.error(refused("srv", &text, complaint));
                return None;
            }
        },
        (None, None) => return None,
    };
    if !has("slots") {
        let what = format!("{} has `srv` without `slots`", UPSTREAM.path);
        let note = Note::new(Kind::Missing, name.place, what);
        notes.error(note.help("add slots = 10: at most this many servers are used"));
        return None;
    }
    let prefix = read_prefix(prefix, &source, notes)?;
    let template = Template { source: Arc::new(source), prefix, count };
    // Stands for the slots.
    let slot = template.slots(&Upstream::at(ServerAddress::Unix(String::new()))).into_iter().next();
    Some((slot?.address, Some(template)))
}

fn read_prefix(given: Option<Located>, source: &SlotSource, notes: &mut Notes) -> Option<Arc<str>> {
    let Some(text) = given else { return Some(format!("{source}#").into()) };
    match pattern::check_name(&text.text) {
        Ok(()) => Some(text.text.into()),
        Err(complaint) => {
            notes.error(refused("prefix", &text, complaint));
            None
        }
    }
}

/// The name of SRV records (RFC 2782), in lower case.
fn parse_srv(text: &str) -> Result<String, ValueError> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let labels: Vec<&str> = name.split('.').collect();
    let is_service = labels.len() > 2 && labels[..2].iter().all(|of| of.starts_with('_'));
    match is_service && pattern::is_host_name(&name) {
        true => Ok(name),
        false => Err(ValueError {
            what: "not the name of SRV records".to_owned(),
            help: "write \"_http._tcp.app.internal\"; for the addresses of a name, write address = \"app.internal:8000\""
                .to_owned(),
        }),
    }
}

fn read_address(key: &str, text: &Located, notes: &mut Notes) -> Option<ServerAddress> {
    let address = pattern::parse_server(&text.text).and_then(|address| match address {
        ServerAddress::Unix(path) => {
            pattern::parse_unix(&notes.resolve(&path)).map(ServerAddress::Unix)
        }
        address => Ok(address),
    });
    match address {
        Ok(address) => {
            if let ServerAddress::Name(name, port) = &address {
                notes.places.mark(format!("{name}:{port}"), text.place.clone());
            }
            Some(address)
        }
        Err(complaint) => {
            notes.error(refused(key, text, complaint));
            None
        }
    }
}
