//! Warnings about tables that count nothing, whose counts nothing uses, or whose conditions do not hold.

use toml::de::DeTable;

use super::{Parts, Step, place, vain};
use crate::model::{Bind, Comparison, CountTest, Counted, Route};
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

/// Conditions that hold only before the request itself is counted: a listener counts it before a route is chosen.
pub(super) fn check_route(
    route: &Route,
    parts: &Parts<'_>,
    table: &DeTable<'_>,
    notes: &mut Notes,
) {
    for test in &route.conditions.tables {
        let Some(settings) = parts.tables.tables.get(test.table) else { continue };
        // Clients of a unix socket have no address, and are not counted by it.
        let counts = |bind: &Bind, counting: &[usize]| {
            matches!(bind, Bind::Tcp(_)) && counting.contains(&test.table)
        };
        let mut listeners =
            parts.listeners_of(route).filter(|one| one.forward.is_none()).peekable();
        if listeners.peek().is_none() || !listeners.all(|one| counts(&one.bind, &one.counting)) {
            continue;
        }
        for one in &test.tests {
            let Some(count) = settings.counts.get(one.count) else { continue };
            let is_own = matches!(count.what, Counted::Requests | Counted::Connections);
            if is_own && needs_zero(*one) {
                let steps = [Step::Key("table"), Step::Key(&settings.name)];
                let what = format!(
                    "this condition holds only if the table has no room: the listener has counted the request itself, so that \
                     `{}` is at least 1",
                    count.what.word()
                );
                notes.warn(vain(place(table, &steps), what, "write a larger number"));
            }
        }
    }
}

/// Whether the test holds for no number above 0.
fn needs_zero(test: CountTest) -> bool {
    match test.is {
        Comparison::Below => test.bound <= 1,
        Comparison::AtMost | Comparison::Equal => test.bound == 0,
        Comparison::Above | Comparison::AtLeast => false,
    }
}
