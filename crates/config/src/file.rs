//! Reads a whole file: text to `Config`, or every mistake in it.
//! In: text and the name to call it by. Out: `Config` with `Warnings`, or `Errors`.
//! Never: opens the file; stops at the first mistake.
//! Limits: `FILE_BYTES_MAX`, `SYNTAX_FAULTS_MAX`.

use core::ops::Range;

use toml::de::DeTable;

use crate::keys;
use crate::listeners::{self, Listeners};
use crate::model::{Config, Server, SteerByCpu};
use crate::pattern;
use crate::pools::{self, Pools};
use crate::reach;
use crate::report::{Errors, Kind, Note, Notes, Warnings, quoted};
use crate::routes;
use crate::table::Table;

/// Bytes of a file; larger ones are refused unread.
pub const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Faults of syntax that are said: one misread quote brings a tail of others that mean nothing.
const SYNTAX_FAULTS_MAX: usize = 5;

/// Reads `text`; `file_name` is what messages call it.
///
/// # Errors
/// Every mistake of the file, with line, column, the allowed values and the mend.
pub fn parse(text: &str, file_name: &str) -> Result<Config, Errors> {
    parse_with_warnings(text, file_name).map(|(config, _)| config)
}

/// As [`parse`], with what works but is hardly meant.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_warnings(text: &str, file_name: &str) -> Result<(Config, Warnings), Errors> {
    let mut notes = Notes::default();
    if text.len() > FILE_BYTES_MAX {
        let what = format!("the file has {} bytes", text.len());
        let note = Note::new(Kind::Syntax, 0..0, what);
        notes.error(note.allowed(format!("{FILE_BYTES_MAX} bytes at most")));
        return Err(notes.into_errors("", file_name));
    }
    let (root, faults) = DeTable::parse_recoverable(text);
    for fault in faults.iter().take(SYNTAX_FAULTS_MAX) {
        let place = fault.span().unwrap_or(0..0);
        notes.error(Note::new(
            Kind::Syntax,
            place,
            format!("not TOML: {}", fault.message().trim()),
        ));
    }
    if !notes.is_clean() {
        // What the broken part would have said is unknown: complaints about the rest would mislead.
        return Err(notes.into_errors(text, file_name));
    }
    let file = Table::open_root(&keys::FILE, &root, &mut notes);
    let config = read(&file, &mut notes);
    if !notes.is_clean() {
        return Err(notes.into_errors(text, file_name));
    }
    Ok((config, notes.into_warnings(text, file_name)))
}

fn read(file: &Table<'_>, notes: &mut Notes) -> Config {
    let server = read_server(file, notes);
    let listeners = listeners::read(file, notes);
    let pools = pools::read(file, notes);
    let routes = routes::read(file, &listeners, &pools, notes);
    if notes.is_clean() {
        reach::check(&routes, &listeners, &pools, notes);
    }
    let Listeners { listeners, .. } = listeners;
    let Pools { pools, .. } = pools;
    Config {
        server,
        listeners,
        routes: routes.into_iter().map(|(route, _)| route).collect(),
        pools,
    }
}

fn read_server(file: &Table<'_>, notes: &mut Notes) -> Server {
    let mut server = Server::default();
    let Some(table) = file.open_table("server", notes) else {
        return server;
    };
    table.set_bound("workers", &mut server.workers, notes);
    table.set_duration("shutdown-grace", &mut server.shutdown_grace, notes);
    table.set_bound("connections-max", &mut server.connections_max, notes);
    if let Some(name) = table.text("server-name", notes) {
        let good = |c: char| c.is_ascii_graphic() || c == ' ';
        if name.text.chars().all(good) && name.text.trim() == name.text {
            server.server_name = name.text;
        } else {
            notes.error(unfit("server-name", &name.text, name.place, "visible ASCII characters"));
        }
    }
    if let Some(via) = table.text("via", notes) {
        if pattern::is_token(&via.text) {
            server.via = via.text;
        } else {
            notes.error(unfit("via", &via.text, via.place, "a token, such as \"edge-1\""));
        }
    }
    match table.word("steer-by-cpu", notes) {
        Some("on") => server.steer_by_cpu = SteerByCpu::On,
        Some("off") => server.steer_by_cpu = SteerByCpu::Off,
        Some(_) | None => {}
    }
    server
}

fn unfit(name: &str, text: &str, place: Range<usize>, allowed: &str) -> Note {
    Note::new(Kind::Value, place, format!("`{name}` cannot be {}", quoted(text))).allowed(allowed)
}
