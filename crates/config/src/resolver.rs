//! Reads `[resolver]`.
//! In: tables of the file. Out: checked settings.
//! Limits: `NAME_SERVERS_MAX` DNS servers.

use crate::listeners::refused;
use crate::model::{Hold, Resolver, ServerAddress, SlotSource};
use crate::pattern;
use crate::pools::Pools;
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// As many as the resolver of the system uses (resolv.conf(5)).
const NAME_SERVERS_MAX: usize = 3;
/// Reads `[resolver]`; `None`: the system resolves names.
pub(crate) fn read(file: &Table<'_>, notes: &mut Notes) -> Option<Resolver> {
    let table = file.open_table("resolver", notes)?;
    let mut resolver = Resolver::default();
    for text in table.texts("name-servers", notes) {
        match pattern::parse_name_server(&text.text) {
            Ok(_) if resolver.name_servers.len() == NAME_SERVERS_MAX => {
                let note = Note::new(Kind::Value, text.place, "up to 3 name servers are allowed");
                notes.error(note.help("remove some"));
            }
            Ok(address) => resolver.name_servers.push(address),
            Err(complaint) => notes.error(refused("name-servers", &text, complaint)),
        }
    }
    table.set_duration("timeout", &mut resolver.timeout, notes);
    table.set_number("attempts", &mut resolver.attempts, notes);
    table.set_word("families", &mut resolver.families, notes);
    table.set_duration("ttl-min", &mut resolver.ttl_min, notes);
    table.set_duration("ttl-max", &mut resolver.ttl_max, notes);
    table.set_number("udp-payload", &mut resolver.udp_payload, notes);
    if let Some(hold) = table.open_table("hold", notes) {
        resolver.hold = read_hold(&hold, notes);
    }
    if resolver.ttl_min > resolver.ttl_max {
        let place = table.key_place("ttl-min");
        let note = Note::new(Kind::Conflict, place, "`ttl-min` is longer than `ttl-max`");
        notes.error(note.help("write a `ttl-max` of at least `ttl-min`"));
    }
    Some(resolver)
}

/// Notes the servers that need `[resolver]`, which the file does not have.
pub(crate) fn check_absent(pools: &Pools, notes: &mut Notes) {
    for (pool, place) in pools.pools.iter().zip(&pools.places) {
        let srv = pool.servers.iter().find_map(|server| match &server.address {
            ServerAddress::Slot(slot) => match &*slot.source {
                SlotSource::Srv(name) => Some(name),
                SlotSource::Name(..) => None,
            },
            ServerAddress::Ip(_) | ServerAddress::Name(..) | ServerAddress::Unix(_) => None,
        });
        if let Some(name) = srv {
            let what = format!(
                "pool {:?} needs the SRV records of {name}, but there is no [resolver]",
                pool.name
            );
            let note = Note::new(Kind::Missing, place.clone(), what);
            notes.error(note.help("add [resolver]: the system's resolver cannot find SRV records"));
        }
    }
}

fn read_hold(table: &Table<'_>, notes: &mut Notes) -> Hold {
    let mut hold = Hold::default();
    table.set_duration("valid", &mut hold.valid, notes);
    table.set_duration("nx", &mut hold.nx, notes);
    table.set_duration("timeout", &mut hold.timeout, notes);
    table.set_duration("other", &mut hold.other, notes);
    hold
}
