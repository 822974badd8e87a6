//! Reads a whole file: from text to `Config`, or to a list of all mistakes.
//! In: text, and the name of the file for messages. Out: `Config` with `Warnings`, or `Errors`.
//! Never: opens the file; stops at the first mistake.
//! Limits: `FILE_BYTES_MAX`, `SYNTAX_FAULTS_MAX`.

use core::ops::Range;

use toml::de::DeTable;

use crate::admin;
use crate::choice::{self, Choices};
use crate::count_tables::{self, CountTables};
use crate::duplicates;
use crate::findings::SettingPositions;
use crate::foreign_file;
use crate::hazards;
use crate::identity;
use crate::include;
use crate::keys;
use crate::listeners::{self, Listeners};
use crate::log;
use crate::loops;
use crate::lua;
use crate::map_gaps;
use crate::maps::{self, Maps};
use crate::model::{Config, Origins, Overload, Server, WebSocket};
use crate::pattern;
use crate::pools::{self, Pools};
use crate::push;
use crate::references::{self, Lookup};
use crate::report::{Errors, Kind, Note, Notes, Warnings, quoted};
use crate::resolver;
use crate::routes::{self, Known};
use crate::sets;
use crate::table::Table;
use crate::text::Text;
use crate::traces;
use crate::unreachable_routes;
use crate::websocket;

/// Maximum size in bytes of a file together with the files that it includes. A larger one is rejected before it is
/// parsed.
pub const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of syntax errors that are reported: one missing quote causes many meaningless errors after it.
const SYNTAX_FAULTS_MAX: usize = 5;

/// Reads `text`; `file_name` is the name of the file in messages.
///
/// # Errors
/// Every mistake in the file, with line, column, the allowed values and the suggested fix.
pub fn parse(text: &str, file_name: &str) -> Result<Config, Errors> {
    parse_with_warnings(text, file_name).map(|(config, _)| config)
}

/// As [`parse`], and also returns warnings about settings that are valid but probably not intended.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_warnings(text: &str, file_name: &str) -> Result<(Config, Warnings), Errors> {
    parse_in_folder(text, file_name, "").map(|loaded| (loaded.config, loaded.warnings))
}

/// A checked file.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Valid settings that are probably not intended.
    pub warnings: Warnings,
    /// The places where the text names files and servers, for errors that are found outside of this crate.
    pub places: SettingPositions,
}

impl Loaded {
    /// Adds the warnings that need the contents of files, after `supply`. `text` is the text of the file.
    pub fn note_supplied(&mut self, text: &Text) {
        let mut found = map_gaps::gaps(&self.config);
        found.extend(choice::unmatchable_keys(&self.config));
        found.extend(maps::unmatchable_keys(&self.config));
        let found = self.places.warnings(found, text);
        self.warnings.append(found);
    }
}

/// As [`parse_with_warnings`]. Relative paths of the file start from `folder` (empty: the working directory).
///
/// # Errors
/// As [`parse`].
pub fn parse_in_folder(text: &str, file_name: &str, folder: &str) -> Result<Loaded, Errors> {
    parse_text(&Text::of(text, file_name), folder, None)
}

/// As [`parse_in_folder`], with the files that the first one includes. `lookup` returns the value of `${NAME}`; without
/// `lookup`, `${NAME}` is ordinary text.
///
/// # Errors
/// As [`parse`].
pub fn parse_text(
    text: &Text,
    folder: &str,
    lookup: Option<&mut Lookup<'_>>,
) -> Result<Loaded, Errors> {
    let mut notes = Notes::default();
    folder.clone_into(&mut notes.folder);
    let joined = text.joined();
    if joined.len() > FILE_BYTES_MAX {
        let what = format!("the file is too large: {} bytes", joined.len());
        let note = Note::new(Kind::Syntax, 0..0, what);
        notes.error(note.allowed(format!("up to {} MiB", FILE_BYTES_MAX >> 20)));
        return Err(notes.into_errors(&Text::of("", text.name())));
    }
    let (mut root, faults) = DeTable::parse_recoverable(joined);
    include::check_parts(text, root.get_ref(), &mut notes);
    if notes.is_clean() {
        note_syntax((joined, 0), root.get_ref(), faults, &mut notes);
    }
    if !notes.is_clean() {
        // The content of the broken part is unknown, so errors about the rest would be misleading.
        return Err(notes.into_errors(text));
    }
    if let Some(lookup) = lookup {
        references::replace_all(root.get_mut(), joined, lookup, &mut notes);
    }
    let file = Table::open_root(&keys::FILE, &root, &mut notes);
    include::check(&file, &mut notes);
    let config = read(&file, root.get_ref(), &mut notes);
    if !notes.is_clean() {
        return Err(notes.into_errors(text));
    }
    let places = core::mem::take(&mut notes.places);
    Ok(Loaded { config, warnings: notes.into_warnings(text), places })
}

/// Notes the first syntax errors of a file, whose text begins at `start` of the text of all files.
pub(crate) fn note_syntax(
    (text, start): (&str, usize),
    root: &DeTable<'_>,
    faults: Vec<toml::de::Error>,
    notes: &mut Notes,
) {
    if let Some((kind, place)) = foreign_file::recognize(text).filter(|_| !faults.is_empty()) {
        let what = format!("this looks like {kind}; the configuration of Tidegate is TOML");
        let note = Note::new(Kind::Syntax, place.start + start..place.end + start, what);
        return notes.error(note.help(
            "begin with [[listener]] and bind = \"0.0.0.0:80\", [[route]] and proxy = \"app\", [pool.app] and servers = \
             [\"127.0.0.1:8000\"], each setting on its own line; `tidegate convert FILE` translates files of HAProxy and nginx",
        ));
    }
    let mut unquoted_to = 0;
    for fault in faults.iter().take(SYNTAX_FAULTS_MAX) {
        let place = fault.span().unwrap_or(0..0);
        let message = fault.message().trim();
        if place.start < unquoted_to {
            // A further error in a string that is reported already.
            continue;
        }
        if let Some(string) = unquoted_string(text, &place, message) {
            unquoted_to = string.end;
            let help = format!("write {}", quoted(unquoted(&text[string.clone()])));
            let place = string.start + start..string.end + start;
            let what = "invalid TOML: a string without quotes";
            notes.error(Note::new(Kind::Syntax, place, what).help(help));
            continue;
        }
        let first = duplicates::is_about_two(message)
            .then(|| duplicates::first_of_two(text, root, &place))
            .flatten();
        let what = match first {
            Some(first) => duplicates::what(text, &place, message, first),
            None => format!("invalid TOML: {message}"),
        };
        let note = Note::new(Kind::Syntax, place.start + start..place.end + start, what);
        notes.error(match syntax_help(message) {
            Some(help) => note.help(help),
            None => note,
        });
    }
}

/// The fix for syntax errors that users of other formats make.
fn syntax_help(message: &str) -> Option<&'static str> {
    if duplicates::is_extension(message) {
        return Some(
            "write all of its settings in the braces, or each of them in a line of its own",
        );
    }
    message.contains("key with no value").then_some(
        "the file is TOML: headers such as [[listener]], [[route]] and [pool.NAME], and below them lines such as \
         bind = \"127.0.0.1:8080\"",
    )
}

/// The place of the string without quotes, such as `127.0.0.1:8080`, in which a syntax error is. The parser takes a value
/// without quotes for a number, a boolean or a date, and reports where that ends. `None` if the error is another one.
fn unquoted_string(text: &str, error: &Range<usize>, message: &str) -> Option<Range<usize>> {
    let kinds = ["float", "mantissa", "fraction", "exponent", "boolean", "date", "time"];
    let is_invalid =
        |kind: &&str| message.strip_prefix("invalid ").is_some_and(|rest| rest.starts_with(*kind));
    if !message.contains("must be quoted") && !kinds.iter().any(is_invalid) {
        return None;
    }
    let begins = |c: char| c.is_ascii_whitespace() || "=[{,".contains(c);
    let ends = |c: char| c.is_ascii_whitespace() || ",]}#".contains(c);
    let end_after = |at: usize| Some(text.get(at..)?.find(ends).map_or(text.len(), |end| at + end));
    let mut start = text.get(..error.start)?.rfind(begins).map_or(0, |at| at + 1);
    let mut end = end_after(error.start)?.max(error.end);
    if text[..start].ends_with('[') && text[end..].starts_with("]:") {
        // An IPv6 address and a port: not an array.
        (start, end) = (start - 1, end_after(end + 1)?);
    }
    let string = text.get(start..end)?;
    let is_boolean = ["true", "false"].iter().any(|word| string.eq_ignore_ascii_case(word));
    (!string.is_empty() && !is_boolean).then_some(start..end)
}

pub(crate) fn unquoted(key: &str) -> &str {
    key.trim_matches(['"', '\''])
}

fn read<'t>(file: &Table<'t>, root: &'t DeTable<'t>, notes: &mut Notes) -> Config {
    let mut server = read_server(file, notes);
    let traces = traces::read(file, server.trace.as_mut(), notes);
    let pools = pools::read(file, notes);
    let resolver = resolver::read(file, notes);
    if resolver.is_none() {
        resolver::check_absent(&pools, notes);
    }
    let tables = count_tables::read(file, notes);
    let apps = lua::read(file, &pools, notes);
    let listeners = listeners::read(file, (&pools, &apps), &tables, notes);
    let websocket = websocket::read(file, WebSocket::default(), notes);
    let log = log::read(file, notes);
    let admin = admin::read(file, &listeners, notes);
    let sets = sets::read(file, notes);
    let maps = maps::read(file, notes);
    let hubs = push::read(file, (&pools, &apps), notes);
    let known = Known {
        listeners: &listeners,
        choices: Choices { pools: &pools, maps: &maps },
        apps: &apps,
        hubs: &hubs,
        sets: &sets,
        tables: &tables,
        websocket: &websocket,
    };
    let routes = routes::read(file, &known, notes);
    if notes.is_clean() {
        unreachable_routes::check(&routes, &listeners, &pools, (&maps, &apps, &hubs), notes);
        loops::check(&routes, &listeners, &pools, notes);
        let (listeners, pools, sets, hubs) = (&listeners, &pools, &sets, &hubs);
        let has_admin = admin.is_some();
        let tables = &tables;
        let parts = hazards::Parts {
            routes: &routes,
            listeners,
            pools,
            sets,
            hubs,
            tables,
            has_admin,
            root,
        };
        hazards::check(&parts, notes);
    }
    let Listeners { listeners, .. } = listeners;
    let Pools { pools, .. } = pools;
    let Maps { maps, .. } = maps;
    let CountTables { tables, .. } = tables;
    Config {
        server,
        listeners,
        routes: routes.into_iter().map(|(route, _)| route).collect(),
        pools,
        push: hubs,
        websocket,
        sets,
        maps,
        tables,
        lua: apps.0,
        log,
        admin,
        resolver,
        traces,
        origins: Origins::default(),
    }
}

fn read_server(file: &Table<'_>, notes: &mut Notes) -> Server {
    let mut server = Server::default();
    let Some(table) = file.open_table("server", notes) else {
        return server;
    };
    table.set_bound("workers", &mut server.workers, notes);
    if let Some(list) = table.text("cpus", notes).filter(|list| list.text != "all") {
        match parse_cpu_list(&list.text) {
            Some(cpus) => server.cpus = Some(cpus),
            None => notes.error(unfit(
                "cpus",
                &list.text,
                list.place,
                "\"all\", or CPU numbers below 8192 such as \"0-15\" or \"2,3,8-11\"",
            )),
        }
    }
    table.set_word("reload", &mut server.reload, notes);
    table.set_duration("shutdown-grace", &mut server.shutdown_grace, notes);
    if let Some(drain) = table.open_table("drain", notes) {
        drain.set_duration("stop", &mut server.drain.stop, notes);
        drain.set_duration("reload", &mut server.drain.reload, notes);
        drain.set_duration("upgrade", &mut server.drain.upgrade, notes);
    }
    server.overload = table.open_table("overload", notes).map(|table| {
        let mut overload = Overload::default();
        table.set_duration("turn-target", &mut overload.turn_target, notes);
        table.set_duration("interval", &mut overload.interval, notes);
        overload.memory_max = table.memory_max("memory-max", notes);
        overload
    });
    table.set_bound("connections-max", &mut server.connections_max, notes);
    if let Some(name) = table.text("server-name", notes) {
        let good = |c: char| c.is_ascii_graphic() || c == ' ';
        if name.text.chars().all(good) && name.text.trim() == name.text {
            server.server_name = name.text;
        } else {
            notes.error(unfit(
                "server-name",
                &name.text,
                name.place,
                "visible ASCII characters, with spaces only between them",
            ));
        }
    }
    if let Some(via) = table.text("via", notes) {
        if pattern::is_token(&via.text) {
            server.via = via.text;
        } else {
            notes.error(unfit("via", &via.text, via.place, "a token, such as \"edge-1\""));
        }
    }
    for text in table.texts("name-servers", notes) {
        match pattern::parse_name_server(&text.text) {
            Ok(address) => server.name_servers.push(address),
            Err(complaint) => notes.error(listeners::refused("name-servers", &text, complaint)),
        }
    }
    server.request_id = identity::read_request_id(&table, notes);
    server.trace = identity::read_trace(&table, notes);
    table.set_word("steer-by-cpu", &mut server.steer_by_cpu, notes);
    server
}

/// CPU numbers from a list such as `0-3,8`, ascending and without duplicates.
fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    /// Linux supports up to this many CPUs.
    const CPUS_MAX: usize = 8192;
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|cpu| *cpu < CPUS_MAX);
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

fn unfit(name: &str, text: &str, place: Range<usize>, allowed: &str) -> Note {
    Note::new(Kind::Value, place, format!("`{name}` cannot be {}", quoted(text))).allowed(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_ranges_and_numbers() {
        assert_eq!(parse_cpu_list("2, 0-1,2"), Some(vec![0, 1, 2]));
        for wrong in ["", "1-", "3-1", "a", "0-8192", "1,,2"] {
            assert_eq!(parse_cpu_list(wrong), None, "{wrong}");
        }
    }
}
