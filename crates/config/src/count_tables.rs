//! Reads `[table.NAME]`, and the settings of listeners and routes that refer to tables: `count` and `table`.
//! In: the root table of the file; the table of a listener or route. Out: checked tables and conditions.
//! Limits: `COUNT_TABLES_MAX` tables, `COUNTS_MAX` counts of a table, `TABLE_BYTES_MAX` bytes of a table.

use core::ops::Range;

use tidegate_base::Span;

use crate::keys::COUNT_TABLE;
use crate::listeners::{refused, unknown_name};
use crate::model::{
    COUNT_TABLES_MAX, COUNTS_MAX, Comparison, Count, CountTable, CountTest, Counted, Placeholder,
    TableTest, Template, TemplatePiece,
};
use crate::pattern::{self, ValueError, complain};
use crate::rates::parse_key;
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::{Located, Table, Value, wrong_type};
use crate::units;

/// The shortest and the longest window.
const WINDOW: Range<Span> = Span::from_secs(1)..Span::from_secs(24 * 3600 + 1);

/// Maximum memory in bytes of a table.
const TABLE_BYTES_MAX: u64 = 1 << 30;

/// The tables of a file.
pub(crate) struct CountTables {
    /// The tables, in file order.
    pub(crate) tables: Vec<CountTable>,
    /// Byte range of each table's name, in the same order.
    pub(crate) places: Vec<Range<usize>>,
}

impl CountTables {
    /// The index of the table of this name. Notes an error if there is none.
    fn find(&self, name: &Located, notes: &mut Notes) -> Option<usize> {
        let found = self.tables.iter().position(|table| table.name == name.text);
        if found.is_none() {
            let known: Vec<&str> = self.tables.iter().map(|table| table.name.as_str()).collect();
            notes.error(unknown_name("table", name, &known));
        }
        found
    }
}

/// Reads all tables, in file order.
pub(crate) fn read(file: &Table<'_>, notes: &mut Notes) -> CountTables {
    let mut found = CountTables { tables: Vec::new(), places: Vec::new() };
    for (name, value) in file.open_fields("table", notes) {
        if let Err(complaint) = pattern::check_name(&name.text) {
            notes.error(refused("table", &name, complaint));
        }
        if COUNT_TABLE.key(&name.text).is_some() && value.get_ref().as_table().is_none() {
            let note = Note::new(Kind::Missing, name.place, "[table] needs a name");
            notes.error(
                note.help("write [table.NAME], and count = \"NAME\" in a listener or route"),
            );
            continue;
        }
        if found.tables.len() == COUNT_TABLES_MAX {
            let note = Note::new(Kind::Value, name.place, "the file has too many tables");
            notes.error(note.allowed(format!("up to {COUNT_TABLES_MAX} tables")));
            break;
        }
        let mut table = CountTable {
            name: name.text,
            key: Template { pieces: vec![TemplatePiece::Value(Placeholder::Client)] },
            counts: Vec::new(),
            expire: Span::from_secs(600),
            entries_max: 100_000,
        };
        if let Some(entries) = Table::open(&COUNT_TABLE, value, notes) {
            read_one(&entries, &mut table, notes);
        }
        found.places.push(name.place);
        found.tables.push(table);
    }
    found
}

fn read_one(table: &Table<'_>, into: &mut CountTable, notes: &mut Notes) {
    table.set_duration("expire", &mut into.expire, notes);
    table.set_number("entries-max", &mut into.entries_max, notes);
    if table.value("key").is_some() {
        into.key.pieces.clear();
        for text in table.texts("key", notes) {
            let parsed = match text.text.starts_with("claim:") {
                true => complain(
                    "the claims of tokens are not known when requests are counted",
                    "write another value, such as \"header:NAME\"",
                ),
                false => parse_key(&text.text, false),
            };
            match parsed {
                Ok(placeholder) => into.key.pieces.push(TemplatePiece::Value(placeholder)),
                Err(complaint) => notes.error(refused("key", &text, complaint)),
            }
        }
        if let Some(value) = table.value("key")
            && value.get_ref().as_array().is_some_and(|all| all.is_empty())
        {
            let note = Note::new(Kind::Value, value.span(), "`key` is empty");
            notes.error(note.help("write key = \"client-address\""));
        }
    }
    let Some(value) = table.value("counts") else { return };
    let texts = table.texts("counts", notes);
    let is_empty = value.get_ref().as_array().is_some_and(|all| all.is_empty());
    if is_empty || texts.len() > COUNTS_MAX {
        let what = format!("the table has {} counts", texts.len());
        let note = Note::new(Kind::Value, value.span(), what);
        notes.error(note.allowed(format!("1 to {COUNTS_MAX} counts")));
    }
    for text in texts {
        match parse_count(&text.text) {
            Ok(count) if into.counts.contains(&count) => {
                let what = format!("{} is listed twice", quoted(&text.text));
                notes.error(
                    Note::new(Kind::Duplicate, text.place, what).help("remove the duplicate"),
                );
            }
            Ok(Count { window: Some(window), .. }) if window > into.expire => {
                let what = format!(
                    "`expire` is shorter than the period of {}: a key would be forgotten before the period ends",
                    quoted(&text.text)
                );
                let note = Note::new(Kind::Conflict, text.place, what);
                let least = units::write_duration(window.as_millis() as u64);
                notes.error(note.help(format!("write expire = {least:?} or longer")));
            }
            Ok(count) => into.counts.push(count),
            Err(complaint) => notes.error(refused("counts", &text, complaint)),
        }
    }
    if let Some(value) = table.value("entries-max")
        && u64::from(into.entries_max) * into.entry_bytes() > TABLE_BYTES_MAX
    {
        let what = format!(
            "the table would take {} bytes for each key, over 1 GiB in all",
            into.entry_bytes()
        );
        let note = Note::new(Kind::Value, value.span(), what);
        let most = TABLE_BYTES_MAX / into.entry_bytes();
        notes.error(note.allowed(format!("up to {most} entries with these counts")));
    }
}

/// The event that is counted, such as `requests/10s`; without a number, the unit is one.
fn parse_count(text: &str) -> Result<Count, ValueError> {
    let (word, window) = match text.split_once('/') {
        Some((word, window)) => (word.trim(), Some(window.trim())),
        None => (text.trim(), None),
    };
    let Some(what) = Counted::ALL.into_iter().find(|known| known.word() == word) else {
        return complain(
            "unknown count",
            "write \"requests/10s\", \"errors/1m\", \"failures/1m\", \"bytes-received/1m\" or \"bytes-sent/1m\", each also \
             without a period, \"connections\" or \"mark\"",
        );
    };
    let Some(window) = window else { return Ok(Count { what, window: None }) };
    if !what.may_have_window() {
        return complain("this count takes no period", format!("write {:?}", what.word()));
    }
    let whole = match window.starts_with(|c: char| c.is_ascii_digit()) {
        true => window.to_owned(),
        false => format!("1{window}"),
    };
    match units::parse_duration(&whole) {
        Some(span) if WINDOW.contains(&span) && span.subsec_nanos() == 0 => {
            Ok(Count { what, window: Some(span) })
        }
        Some(_) => complain(
            "the period is out of range",
            "write a period from 1s to 24h, in whole seconds",
        ),
        None => complain("the period is not a duration", format!("write \"{word}/10s\"")),
    }
}

/// Reads `count` of a listener or route: the tables that count its requests.
pub(crate) fn read_counting(
    table: &Table<'_>,
    known: &CountTables,
    notes: &mut Notes,
) -> Vec<usize> {
    let mut indexes = Vec::new();
    for name in table.texts("count", notes) {
        match known.find(&name, notes) {
            Some(index) if indexes.contains(&index) => {
                let what = format!("{} is listed twice", quoted(&name.text));
                notes.error(
                    Note::new(Kind::Duplicate, name.place, what).help("remove the duplicate"),
                );
            }
            Some(index) => indexes.push(index),
            None => {}
        }
    }
    indexes
}

/// Reads `table` of a route: conditions on counts.
pub(crate) fn read_tests(
    route: &Table<'_>,
    known: &CountTables,
    notes: &mut Notes,
) -> Vec<TableTest> {
    let mut found = Vec::new();
    for (name, value) in route.open_fields("table", notes) {
        let Some(table) = known.find(&name, notes) else { continue };
        let Some(entries) = value.get_ref().as_table() else {
            let note = wrong_type(&format!("`{}`", name.text), value, "a table of counts");
            notes.error(note.help(format!(
                "write table = {{ {} = {{ {:?} = \"> 100\" }} }}",
                name.text,
                first_count(&known.tables[table])
            )));
            continue;
        };
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(count, _)| count.span().start);
        if entries.is_empty() {
            let note = Note::new(Kind::Value, value.span(), "the condition tests nothing");
            let count = first_count(&known.tables[table]);
            notes.error(note.help(format!("write {} = {{ {count:?} = \"> 100\" }}", name.text)));
        }
        let mut tests = Vec::new();
        for (count, value) in entries {
            let count = Located { text: count.get_ref().to_string(), place: count.span() };
            if let Some(test) = read_test(&known.tables[table], &count, value, notes) {
                tests.push(test);
            }
        }
        found.push(TableTest { table, tests });
    }
    found
}

fn first_count(table: &CountTable) -> String {
    table.counts.first().map_or_else(|| "requests/10s".to_owned(), Count::to_string)
}

fn read_test(
    table: &CountTable,
    name: &Located,
    value: &Value<'_>,
    notes: &mut Notes,
) -> Option<CountTest> {
    let count = match find_count(table, &name.text) {
        Ok(count) => count,
        // Another error explains a table without valid counts.
        Err(_) if table.counts.is_empty() => return None,
        Err(help) => {
            let what = format!("table {:?} has no count {}", table.name, quoted(&name.text));
            let note = Note::new(Kind::Reference, name.place.clone(), what);
            notes.error(note.help(help));
            return None;
        }
    };
    let is_bytes = table.counts[count].what.is_bytes();
    let form = if is_bytes { "\"> 10MiB\"" } else { "\"> 100\"" };
    let Some(text) = value.get_ref().as_str() else {
        let note = wrong_type(&format!("`{}`", name.text), value, "a comparison in a string");
        notes.error(note.help(format!("write {:?} = {form}", name.text)));
        return None;
    };
    match parse_comparison(text, is_bytes) {
        Ok((is, bound)) => Some(CountTest { count, is, bound }),
        Err(complaint) => {
            let text = Located { text: text.to_owned(), place: value.span() };
            notes.error(refused(&name.text, &text, complaint));
            None
        }
    }
}

/// The index of a count by its name. The period may be omitted if the table has this count with one period only.
///
/// # Errors
/// How to name a count that the table has.
fn find_count(table: &CountTable, name: &str) -> Result<usize, String> {
    let all = || table.counts.iter().map(|count| format!("{count:?}", count = count.to_string()));
    let none = || format!("write one of {}", all().collect::<Vec<_>>().join(", "));
    let count = parse_count(name).map_err(|_| none())?;
    if let Some(index) = table.counts.iter().position(|known| *known == count) {
        return Ok(index);
    }
    let alike = |known: &(usize, &Count)| known.1.what == count.what && count.window.is_none();
    let mut alike = table.counts.iter().enumerate().filter(alike);
    match (alike.next(), alike.next()) {
        (Some((index, _)), None) => Ok(index),
        (Some(_), Some(_)) | (None, _) => Err(none()),
    }
}

/// A comparison such as `>= 20` or `> 10MiB`.
fn parse_comparison(text: &str, is_bytes: bool) -> Result<(Comparison, u64), ValueError> {
    let form = if is_bytes { "write \"> 10MiB\"" } else { "write \"> 100\"" };
    let signs = [
        (">=", Comparison::AtLeast),
        ("<=", Comparison::AtMost),
        (">", Comparison::Above),
        ("<", Comparison::Below),
        ("=", Comparison::Equal),
    ];
    let text = text.trim();
    let found = signs.into_iter().find_map(|(sign, is)| Some((text.strip_prefix(sign)?, is)));
    let Some((bound, is)) = found else {
        return complain("it does not begin with >, >=, <, <= or =", form);
    };
    let bound = bound.trim();
    let parsed = match is_bytes {
        true => units::parse_size(bound),
        false => bound.parse().ok(),
    };
    match (parsed, is) {
        (None, _) if is_bytes => complain("the bound is not a size", form),
        (None, _) => complain("the bound is not a number", form),
        (Some(0), Comparison::AtLeast) => complain("every count is at least 0", form),
        (Some(0), Comparison::Below) => complain("no count is below 0", form),
        (Some(bound), is) => Ok((is, bound)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_name_and_an_optional_period() {
        let secs = |secs| Some(Span::from_secs(secs));
        for (text, expected) in [
            ("requests", Some((Counted::Requests, None))),
            ("requests/10s", Some((Counted::Requests, secs(10)))),
            ("requests / s", Some((Counted::Requests, secs(1)))),
            ("errors/1m", Some((Counted::Errors, secs(60)))),
            ("bytes-sent/24h", Some((Counted::BytesSent, secs(86_400)))),
            ("connections", Some((Counted::Connections, None))),
            ("connections/1s", None),
            ("mark", Some((Counted::Mark, None))),
            ("mark/1m", None),
            ("requests/500ms", None),
            ("requests/1500ms", None),
            ("requests/25h", None),
            ("requests/", None),
            ("hits/1s", None),
            ("", None),
        ] {
            let count = parse_count(text).ok().map(|count| (count.what, count.window));
            assert_eq!(count, expected, "{text}");
        }
        for text in ["requests/10s", "errors/1m", "bytes-received", "failures/24h"] {
            assert_eq!(
                parse_count(text).map(|count| count.to_string()).ok().as_deref(),
                Some(text)
            );
        }
    }

    #[test]
    fn comparisons_have_a_sign_and_a_bound() {
        for (text, is_bytes, expected) in [
            ("> 100", false, Some((Comparison::Above, 100))),
            (">=20", false, Some((Comparison::AtLeast, 20))),
            ("< 5", false, Some((Comparison::Below, 5))),
            ("<= 0", false, Some((Comparison::AtMost, 0))),
            ("= 0", false, Some((Comparison::Equal, 0))),
            ("> 10MiB", true, Some((Comparison::Above, 10 << 20))),
            ("> 10", true, None),
            ("> 1KiB", false, None),
            (">= 0", false, None),
            ("< 0", false, None),
            ("100", false, None),
            ("!= 1", false, None),
            ("> -1", false, None),
            ("", false, None),
        ] {
            assert_eq!(parse_comparison(text, is_bytes).ok(), expected, "{text}");
        }
    }
}
