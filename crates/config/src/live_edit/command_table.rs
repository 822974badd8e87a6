//! Routes and pools that commands state as TOML: they are read as those of the file.
//! In: the text of a table; the configuration that it becomes a part of. Out: the part, or what is wrong with the text.
//! Never: shows the client that sent the command a secret: replaces references such as `${NAME}`, or reads pages from files.

use toml::de::DeTable;

use super::EditFiles;
use crate::choice::Choices;
use crate::count_tables::CountTables;
use crate::file;
use crate::file_contents::supply_route;
use crate::keys::COMMAND;
use crate::listeners::Listeners;
use crate::lua::Apps;
use crate::maps::Maps;
use crate::model::{Config, Pool, Route};
use crate::pools::{self, Pools};
use crate::report::Notes;
use crate::routes::{self, Known};
use crate::table::Table;
use crate::text::Text;

/// Reads a route for `config`, and the files that it names.
///
/// # Errors
/// The mistakes in the text, or what is wrong with a file.
pub(super) fn read_route(
    text: &str,
    config: &Config,
    files: &EditFiles<'_>,
) -> Result<Route, String> {
    let listeners = Listeners {
        listeners: config.listeners.clone(),
        places: vec![0..0; config.listeners.len()],
    };
    let pools = Pools { pools: config.pools.clone(), places: vec![0..0; config.pools.len()] };
    let maps = Maps::of(&config.maps);
    let apps = Apps(config.lua.clone());
    let tables =
        CountTables { tables: config.tables.clone(), places: vec![0..0; config.tables.len()] };
    let known = Known {
        listeners: &listeners,
        choices: Choices { pools: &pools, maps: &maps },
        apps: &apps,
        hubs: &config.push,
        sets: &config.sets,
        tables: &tables,
        websocket: &config.websocket,
    };
    let read = |table: &Table<'_>, notes: &mut Notes| routes::read(table, &known, notes);
    let mut found = read_part(format!("route = [{text}]"), files.folder, read)?;
    let (Some((mut route, _)), true) = (found.pop(), found.is_empty()) else {
        return Err(format!("{text:?} is not one route, such as {{ proxy = \"app\" }}"));
    };
    let down = route.handling.maintenance.as_ref();
    if !route.handling.errors.is_empty() || down.is_some_and(|down| down.page.is_some()) {
        return Err(
            "a route of a command cannot have pages (`errors`, or `page` of `maintenance`), because a page shows the content of a \
             file to clients; help: write the route into the file"
                .to_owned(),
        );
    }
    supply_route(&mut route, |path| (files.read)(path)).map_err(|findings| {
        let texts = findings.iter().map(|one| format!("{}: {}", one.subject, one.what));
        texts.collect::<Vec<_>>().join("; ")
    })?;
    Ok(route)
}

/// Reads a pool.
///
/// # Errors
/// The mistakes in the text.
pub(super) fn read_pool(name: &str, text: &str, folder: &str) -> Result<Pool, String> {
    // A name with a dot would be a table in a table.
    let text = format!("pool = {{ {name:?} = {text} }}");
    let mut found = read_part(text, folder, pools::read)?.pools;
    match (found.pop(), found.is_empty()) {
        (Some(pool), true) => Ok(pool),
        _ => Err("write one pool, such as { servers = [\"10.0.0.1:80\"] }".to_owned()),
    }
}

/// Reads a part of a configuration from a string with `read`.
fn read_part<T>(
    text: String,
    folder: &str,
    read: impl FnOnce(&Table<'_>, &mut Notes) -> T,
) -> Result<T, String> {
    if text.contains("${") {
        return Err(
            "references such as ${NAME} are not replaced in commands; help: write the value"
                .to_owned(),
        );
    }
    let text = Text::of(&text, "the command");
    let mut notes = Notes::default();
    folder.clone_into(&mut notes.folder);
    let (root, faults) = DeTable::parse_recoverable(text.joined());
    file::note_syntax((text.joined(), 0), root.get_ref(), faults, &mut notes);
    let mut found = None;
    if notes.is_clean() {
        let table = Table::open_root(&COMMAND, &root, &mut notes);
        found = Some(read(&table, &mut notes));
    }
    match (found, notes.is_clean()) {
        (Some(found), true) => Ok(found),
        _ => {
            let errors = notes.into_errors(&text).to_string();
            let errors = errors.trim_end();
            // An empty line would end the reply of a command.
            Err(errors.strip_prefix("error: ").unwrap_or(errors).replace("\n\n", "\n"))
        }
    }
}
