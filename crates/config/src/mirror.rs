//! Reads `mirror` of a route.
//! In: the table of a route, the pools of the file. Out: checked settings.

use crate::listeners::refused;
use crate::log::parts_per_million;
use crate::model::{Action, Handling, Mirror, Proxy, Template, TemplatePiece};
use crate::pattern::ValueError;
use crate::pools::Pools;
use crate::rates::parse_key;
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// The share if the file does not state it, in parts per million.
const WHOLE: u32 = 1_000_000;
/// The largest body if the file does not state it.
const BODY_BYTES: usize = 32 * 1024;

/// Reads the mirror of a route; `None` without one.
pub(crate) fn read(route: &Table<'_>, known: &Pools, notes: &mut Notes) -> Option<Mirror> {
    let mut mirror =
        Mirror { pool: 0, share: WHOLE, key: Template::default(), body_max: BODY_BYTES };
    if route.value("mirror")?.get_ref().as_table().is_none() {
        mirror.pool = known.find(&route.text("mirror", notes)?, notes)?;
        return Some(mirror);
    }
    let table = route.open_table("mirror", notes)?;
    if let Some(text) = table.text("share", notes) {
        match parts_per_million(&text.text) {
            Some(parts) => mirror.share = parts,
            None => {
                let what = "not a percentage from \"0.001%\" to \"100%\"".to_owned();
                let help = "write share = \"5%\"".to_owned();
                notes.error(refused("share", &text, ValueError { what, help }));
            }
        }
    }
    for text in table.texts("by", notes) {
        match parse_key(&text.text, false) {
            Ok(placeholder) => mirror.key.pieces.push(TemplatePiece::Value(placeholder)),
            Err(complaint) => notes.error(refused("by", &text, complaint)),
        }
    }
    table.set_size("body-max", &mut mirror.body_max, notes);
    mirror.pool = known.find(&table.text("pool", notes)?, notes)?;
    Some(mirror)
}

/// Notes an error if the mirror contradicts the rest of its route, or its pool cannot take copies.
pub(crate) fn check(
    route: &Table<'_>,
    handling: &Handling,
    action: &Action,
    known: &Pools,
    notes: &mut Notes,
) {
    let Some(mirror) = &handling.mirror else { return };
    let mut refuse = |what: String, help: &str| {
        let note = Note::new(Kind::Conflict, route.key_place("mirror"), what);
        notes.error(note.help(help));
    };
    let Action::Proxy(Proxy { pool, .. }) = action else {
        let what =
            "`mirror` copies requests for servers, and this route sends no request to a server";
        return refuse(what.to_owned(), "remove `mirror`, or use `proxy` as the action");
    };
    let name = known.pools.get(mirror.pool).map_or("", |pool| &pool.name);
    let hooks = handling.hooks.iter().flat_map(|hooks| hooks.pools.iter().copied());
    if pool.pools().chain(hooks).any(|own| own == mirror.pool) {
        let what = format!("pool {name:?} is already a pool of this route");
        refuse(what, "write the name of another pool, which may have the same servers");
    }
    if known.pools.get(mirror.pool).is_some_and(|pool| pool.proxy_protocol.is_some()) {
        let what = format!("pool {name:?} has `proxy-protocol`, but a copy has no client address");
        refuse(what, "write the name of another pool, without `proxy-protocol`");
    }
}
