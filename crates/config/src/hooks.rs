//! Reads `hooks` of a route.
//! In: the table of a route, the applications and pools of the file. Out: checked settings.
//! Never: opens a script: whether it has `on_access` is checked when it is loaded.
//! Limits: `POOLS_MAX` pools that a hook may choose.

use crate::model::{Action, Handling, Hooks};
use crate::report::{Kind, Note, Notes};
use crate::routes::Known;
use crate::table::Table;

/// Pools that a hook may choose.
const POOLS_MAX: usize = 1000;

/// Reads the hooks of a route; `None` without them.
pub(crate) fn read(route: &Table<'_>, known: &Known<'_>, notes: &mut Notes) -> Option<Hooks> {
    if route.value("hooks")?.get_ref().as_table().is_none() {
        let app = known.apps.find(&route.text("hooks", notes)?, notes)?;
        return Some(Hooks { app, pools: Vec::new() });
    }
    let table = route.open_table("hooks", notes)?;
    let mut pools = Vec::new();
    let names = table.texts("pools", notes);
    if names.len() > POOLS_MAX {
        let what = format!("`pools` has {} entries", names.len());
        let note = Note::new(Kind::Value, table.key_place("pools"), what);
        notes.error(note.allowed(format!("up to {POOLS_MAX} pools")));
        return None;
    }
    for name in names {
        let Some(pool) = known.choices.pools.find(&name, notes) else { continue };
        match pools.contains(&pool) {
            true => {
                let what = format!("pool {:?} is listed twice", name.text);
                notes.error(
                    Note::new(Kind::Duplicate, name.place, what).help("remove the duplicate"),
                );
            }
            false => pools.push(pool),
        }
    }
    let app = known.apps.find(&table.text("lua", notes)?, notes)?;
    Some(Hooks { app, pools })
}

/// Notes an error if the hooks of a route contradict its other settings.
pub(crate) fn check(route: &Table<'_>, handling: &Handling, action: &Action, notes: &mut Notes) {
    if handling.hooks.is_none() {
        return;
    }
    if !matches!(action, Action::Proxy(_)) {
        let what = "`hooks` run before a request goes to a server, and this route sends no request to a server";
        let note = Note::new(Kind::Conflict, route.key_place("hooks"), what);
        notes.error(note.help("remove `hooks`, or use `proxy` as the action"));
    }
    if handling.auth.is_some() {
        let what = "a route cannot have both `hooks` and `auth` with `basic`";
        let note = Note::new(Kind::Conflict, route.key_place("hooks"), what);
        notes.error(note.help("verify the user in `on_access`, or use `auth` with `jwt`"));
    }
}
