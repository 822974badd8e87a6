//! Reads `bandwidth` of a route.
//! In: the table of a route. Out: checked limits.

use core::ops::RangeInclusive;

use crate::listeners::refused;
use crate::model::{Action, Bandwidth, Handling};
use crate::pattern::{ValueError, complain};
use crate::report::{Kind, Note, Notes};
use crate::table::Table;
use crate::units;

/// The slowest and the fastest limit, in bytes per second.
const RATES: RangeInclusive<u64> = 1 << 10..=1 << 40;

/// Reads the limits of a route; `None` without them.
pub(crate) fn read(route: &Table<'_>, notes: &mut Notes) -> Option<Bandwidth> {
    if let Some(value) = route.value("bandwidth")
        && let Some(text) = value.get_ref().as_str()
    {
        let what = "`bandwidth` cannot be a string";
        let note = Note::new(Kind::Type, value.span(), what);
        let rate = if parse_rate(text).is_ok() { text } else { "1MiB/s" };
        notes.error(note.help(format!("write bandwidth = {{ down = {rate:?} }}")));
        return None;
    }
    let table = route.open_table("bandwidth", notes)?;
    let (down, up) = (read_rate(&table, "down", notes), read_rate(&table, "up", notes));
    let mut after: usize = 0;
    table.set_size("after", &mut after, notes);
    let is_absent = |name| table.value(name).is_none() && !table.has_word_for(name);
    if is_absent("down") && is_absent("up") {
        let note = Note::new(Kind::Missing, table.place.clone(), "`bandwidth` limits no direction");
        notes.error(note.help("add down = \"1MiB/s\", up = \"1MiB/s\", or both"));
        return None;
    }
    if table.value("after").is_some() && is_absent("down") {
        let what = "`after` has no effect without `down`";
        let note = Note::new(Kind::Conflict, table.key_place("after"), what);
        notes.error(note.help("add down = \"1MiB/s\", or remove `after`"));
    }
    (down.is_some() || up.is_some()).then_some(Bandwidth { down, up, after: after as u64 })
}

/// Notes an error if the route has a limit that its action does not support.
pub(crate) fn check(route: &Table<'_>, handling: &Handling, action: &Action, notes: &mut Notes) {
    let Some(bandwidth) = handling.bandwidth else { return };
    let (limits_down, limits_up) = match action {
        Action::Proxy(_) => (true, true),
        Action::Respond(_) | Action::Synthetic => (true, false),
        Action::Redirect(_) | Action::Echo | Action::Push(_) | Action::Lua(_) => (false, false),
    };
    let mut refuse = |what: &str, help: &str| {
        let note = Note::new(Kind::Conflict, route.key_place("bandwidth"), what);
        notes.error(note.help(help));
    };
    if bandwidth.down.is_some() && !limits_down {
        let what = "`down` limits responses of `proxy`, `respond` and `synthetic`, and this route has another action";
        refuse(what, "remove `down`, or use one of these actions");
    }
    if bandwidth.up.is_some() && !limits_up {
        let what = "`up` limits what servers receive, and this route sends no request to a server";
        refuse(what, "remove `up`, or use `proxy` as the action");
    }
}

fn read_rate(table: &Table<'_>, name: &str, notes: &mut Notes) -> Option<u64> {
    let text = table.text(name, notes)?;
    match parse_rate(&text.text) {
        Ok(rate) => Some(rate),
        Err(complaint) => {
            notes.error(refused(name, &text, complaint));
            None
        }
    }
}

/// Bytes per second, such as `1MiB/s`.
fn parse_rate(text: &str) -> Result<u64, ValueError> {
    let form = "write \"512KiB/s\" or \"1MiB/s\"";
    let Some(size) = text.strip_suffix("/s") else {
        return complain("not a number of bytes per second", suggestion(text, form));
    };
    match units::parse_size(size.trim_end()) {
        Some(rate) if RATES.contains(&rate) => Ok(rate),
        Some(_) => complain("out of range", "write a rate from 1KiB/s to 1024GiB/s"),
        None => complain("not a number of bytes per second", suggestion(size, form)),
    }
}

/// What a user who wrote `text` most likely meant; otherwise the general form.
fn suggestion(text: &str, form: &str) -> String {
    match units::suggest_size(text) {
        Some(size) => format!("write \"{size}/s\""),
        None => form.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_size_and_are_per_second() {
        for (text, expected) in [
            ("1KiB/s", Some(1 << 10)),
            ("1MiB/s", Some(1 << 20)),
            ("100000B/s", Some(100_000)),
            ("1024GiB/s", Some(1 << 40)),
            ("1025GiB/s", None),
            ("1023B/s", None),
            ("0B/s", None),
            ("1MiB", None),
            ("1MiB/m", None),
            ("1m/s", None),
            ("/s", None),
            ("", None),
        ] {
            assert_eq!(parse_rate(text).ok(), expected, "{text}");
        }
    }
}
