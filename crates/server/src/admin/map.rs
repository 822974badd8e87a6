//! The commands about maps.
//! In: words; the maps in force. Out: text, or an error.
//! Limits: `SHOWN_MAX` entries are shown.

use std::fmt::Write as _;
use std::sync::Arc;

use tidegate_config::Keyword as _;
use tidegate_gate::live_map::LiveMap;

use super::Operations;
use super::command::Outcome;
use super::command::Reply::{Changed, Shown};
use super::rows::listed;

/// Maximum number of entries that one command shows.
const SHOWN_MAX: usize = 100_000;

fn find(name: &str, operations: &Operations) -> Result<Arc<LiveMap>, String> {
    let maps = operations.process().maps;
    maps.find(name).cloned().ok_or_else(|| {
        let known: Vec<&str> = maps.all().map(|(name, _)| name).take(20).collect();
        format!("no map {name:?}; the maps are: {}", listed(&known))
    })
}

/// Shows all maps, the entries of one, or the value of one key.
pub(super) fn show(arguments: &[&str], operations: &Operations) -> Outcome {
    let mut text = String::new();
    match arguments {
        [] => {
            text.push_str("# name kind keys changes\n");
            for (name, map) in operations.process().maps.all() {
                let (table, changes) = (map.table(), map.changes());
                let _ = writeln!(
                    text,
                    "{name} {} {} {changes}",
                    table.kind().word().unwrap_or_default(),
                    table.len()
                );
            }
        }
        [name] => {
            let table = find(name, operations)?.table();
            for (key, value) in table.entries().take(SHOWN_MAX) {
                let _ = writeln!(text, "{key} {value}");
            }
            if let Some(left @ 1..) = table.len().checked_sub(SHOWN_MAX) {
                let _ = writeln!(text, "# entries not shown: {left}");
            }
        }
        [name, key] => match find(name, operations)?.table().value_of(key) {
            Some(value) => {
                let _ = writeln!(text, "{key} {value}");
            }
            None => return Err(absent(name, key)),
        },
        _ => return Err("usage: show map [NAME [KEY]]".to_owned()),
    }
    Ok(Shown(text))
}

/// Shows the value that a string has.
pub(super) fn get(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name, text] = arguments else { return Err("usage: get map NAME TEXT".to_owned()) };
    let table = find(name, operations)?.table();
    let found = table.find(&mut text.as_bytes().to_vec());
    match found.and_then(|number| table.values().get(number)) {
        Some((value, _)) => Ok(Shown(format!("{value}\n"))),
        None => Err(absent(name, text)),
    }
}

fn absent(name: &str, key: &str) -> String {
    format!("map {name:?} has no value for {key:?}")
}

/// Sets the value of a key.
pub(super) fn set(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name, key, value] = arguments else {
        return Err("usage: set map NAME KEY VALUE".to_owned());
    };
    find(name, operations)?.set(key, value)?;
    Ok(Changed(String::new()))
}

/// Removes a key.
pub(super) fn remove(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name, key] = arguments else { return Err("usage: del map NAME KEY".to_owned()) };
    match find(name, operations)?.remove(key) {
        true => Ok(Changed(String::new())),
        false => Err(absent(name, key)),
    }
}

/// Removes all keys.
pub(super) fn clear(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name] = arguments else { return Err("usage: clear map NAME".to_owned()) };
    find(name, operations)?.clear();
    Ok(Changed(String::new()))
}

/// Begins a new version of a map.
pub(super) fn prepare(arguments: &[&str], operations: &Operations) -> Outcome {
    let [name] = arguments else { return Err("usage: prepare map NAME".to_owned()) };
    let draft = find(name, operations)?.prepare();
    Ok(Shown(format!("New version created: {draft}\n")))
}

/// Adds an entry to a version, which is not in force yet.
pub(super) fn add(arguments: &[&str], operations: &Operations) -> Outcome {
    let usage = "usage: add map @VERSION NAME KEY VALUE, or set map NAME KEY VALUE";
    let [version, name, key, value] = arguments else { return Err(usage.to_owned()) };
    let version = number_of(version).ok_or(usage)?;
    find(name, operations)?.add(version, key, value)?;
    Ok(Shown(String::new()))
}

/// Puts a version in force.
pub(super) fn commit(arguments: &[&str], operations: &Operations) -> Outcome {
    let usage = "usage: commit map @VERSION NAME";
    let [version, name] = arguments else { return Err(usage.to_owned()) };
    let version = number_of(version).ok_or(usage)?;
    let count = find(name, operations)?.commit(version)?;
    Ok(Changed(format!("keys: {count}\n")))
}

/// The number in `@VERSION`.
pub(super) fn number_of(version: &str) -> Option<u64> {
    version.strip_prefix('@')?.parse().ok()
}
