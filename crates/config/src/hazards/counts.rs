//! Warnings about tables that count nothing, or whose counts nothing uses.

use super::{Parts, Step, place, vain};
use crate::report::{Kind, Note, Notes};

/// Tables that no listener or route names, and those that no route tests and no command can show.
pub(super) fn check(parts: &Parts<'_>, notes: &mut Notes) {
    let routes = || parts.routes.iter().map(|(route, _)| route).enumerate();
    for (index, (table, at)) in parts.tables.tables.iter().zip(&parts.tables.places).enumerate() {
        let name = &table.name;
        let is_counted = routes().any(|(_, route)| route.counting.contains(&index))
            || parts.listeners.listeners.iter().any(|one| one.counting.contains(&index));
        let tests = |test: &crate::model::TableTest| test.table == index;
        let tester = routes().find(|(_, route)| route.conditions.tables.iter().any(tests));
        match (is_counted, tester) {
            (true, Some(_)) => {}
            (true, None) if parts.has_admin => {}
            (true, None) => {
                let what = format!("no route depends on the counts of table {name:?}");
                let note = Note::new(Kind::Unused, at.clone(), what);
                notes.warn(note.help(format!(
                    "add table = {{ {name} = {{ \"{}\" = \"> 100\" }} }} to a route, or [admin] to show the table",
                    table.counts.first().map(ToString::to_string).unwrap_or_default()
                )));
            }
            (false, None) => {
                let what = format!("no listener or route counts requests in table {name:?}");
                let note = Note::new(Kind::Unused, at.clone(), what);
                notes.warn(note.help(format!("add count = {name:?} to a listener or route")));
            }
            (false, Some((route, _))) => {
                let Some(entries) = parts.row("route", route) else { continue };
                let at = place(entries, &[Step::Key("table"), Step::Key(name)]);
                let what = format!(
                    "no listener or route counts requests in table {name:?}: its counts stay 0"
                );
                notes.warn(vain(at, what, format!("add count = {name:?} to a listener or route")));
            }
        }
    }
}
