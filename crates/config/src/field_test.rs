//! Reads one condition of `headers` of a route.
//! In: a field name and its value in the file. Out: a checked test; warnings about a value that looks like a pattern,
//! and about an expression that matches no value.
//! Never: accepts a condition on Host. The host of a request may also be in its target (RFC 9112 section 3.2.2), so a
//! condition on the field would let a request in absolute form evade the route.

use crate::keys::FIELD;
use crate::listeners::refused;
use crate::model::{HeaderTest, TextFault, TextKind, TextTest};
use crate::pattern::{self, ValueError};
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::{Located, Table, Value, wrong_type};
use crate::text_test::{TABLE_BYTES_MAX, TEXT_BYTES_MAX};
use crate::words::Keyword as _;

/// Reads the condition on `field` (lower case), written under `name`. `None`: an error is noted.
pub(crate) fn read(
    field: &str,
    name: &Located,
    value: &Value<'_>,
    notes: &mut Notes,
) -> Option<HeaderTest> {
    if field == "host" {
        notes.error(host_refused(name, value));
        return None;
    }
    let test = read_value(field, value, notes)?;
    check_border(value, notes);
    Some(test)
}

/// Notes an error for a prefix or suffix with whitespace where a field value has none.
fn check_border(value: &Value<'_>, notes: &mut Notes) {
    let Some(table) = value.get_ref().as_table() else { return };
    for (word, is_start) in [("prefix", true), ("suffix", false)] {
        let Some(value) = table.get(word) else { continue };
        let text = value.get_ref().as_str().unwrap_or_default();
        let border = if is_start { text.chars().next() } else { text.chars().last() };
        if border.is_some_and(|c| c == ' ' || c == '\t') {
            let text = Located { text: text.to_owned(), place: value.span() };
            let what = "whitespace around a field value is not transmitted".to_owned();
            let help = "remove the whitespace".to_owned();
            notes.error(refused(word, &text, ValueError { what, help }));
        }
    }
}

/// Reads the condition on the values of `field`, or of a parameter or cookie of that name. `None`: an error is noted.
pub(crate) fn read_value(field: &str, value: &Value<'_>, notes: &mut Notes) -> Option<HeaderTest> {
    if let Some(is_present) = value.get_ref().as_bool() {
        return Some(if is_present { HeaderTest::Present } else { HeaderTest::Absent });
    }
    if let Some(text) = value.get_ref().as_str() {
        let text = Located { text: text.to_owned(), place: value.span() };
        warn_of_pattern(field, &text, notes);
        return test(TextKind::Equals, field, &text, false, notes);
    }
    if value.get_ref().as_table().is_none() {
        let allowed = "a string (the whole value), a table with one of equals, contains, prefix, suffix and regex, \
                       true (present) or false (absent)";
        notes.error(wrong_type(&format!("`{field}`"), value, allowed));
        return None;
    }
    let table = Table::open(&FIELD, value, notes)?;
    let ignore_case = table.is_true("ignore-case", notes).unwrap_or(false);
    let examples = table.texts("example", notes);
    let words = TextKind::WORDS.iter().copied();
    let mut present: Vec<&str> = words.filter(|word| table.value(word).is_some()).collect();
    present.sort_by_key(|word| table.key_place(word).start);
    match present.as_slice() {
        // The text is probably under the unknown name, for which an error is already noted.
        [] if table.has_unknown() => None,
        [] => {
            let what = format!("the condition on {field:?} tests nothing");
            let note = Note::new(Kind::Missing, value.span(), what);
            let note = note.allowed(format!("exactly one of {}", TextKind::WORDS.join(", ")));
            notes.error(note.help("write { contains = \"text\" }, or true if any value will do"));
            None
        }
        [word] => {
            let text = table.text(word, notes)?;
            let test = test(TextKind::from_word(word)?, word, &text, ignore_case, notes)?;
            check_examples(&examples, &test, &text, notes);
            Some(test)
        }
        [_, second, ..] => {
            let what = format!("the condition has more than one test: {}", present.join(", "));
            let note = Note::new(Kind::Conflict, table.key_place(second), what);
            notes.error(note.help(
                "keep one; to match several texts write regex = \"one|other\", or add more routes",
            ));
            None
        }
    }
}

fn test(
    kind: TextKind,
    key: &str,
    text: &Located,
    ignore_case: bool,
    notes: &mut Notes,
) -> Option<HeaderTest> {
    if kind != TextKind::Regex {
        let checked = match kind {
            TextKind::Equals => pattern::check_field_value(&text.text),
            // Whitespace may be at the border of a part of the value.
            TextKind::Contains | TextKind::Prefix | TextKind::Suffix | TextKind::Regex => {
                pattern::check_field_value(&format!("|{}|", text.text))
            }
        };
        if let Err(complaint) = checked {
            notes.error(refused(key, text, complaint));
            return None;
        }
    }
    match TextTest::new(kind, &text.text, ignore_case) {
        Ok(test) => {
            if test.is_hopeless() {
                notes.warn(hopeless(text));
            }
            Some(HeaderTest::Text(test))
        }
        Err(fault) => {
            notes.error(refused(key, text, complaint(fault)));
            None
        }
    }
}

/// Notes an error for each value of `example` that the condition on `text` does not accept.
fn check_examples(examples: &[Located], test: &HeaderTest, text: &Located, notes: &mut Notes) {
    let HeaderTest::Text(test) = test else { return };
    for example in examples {
        if test.matches(example.text.as_bytes()) {
            continue;
        }
        let what = format!(
            "{} does not match its own example {}",
            quoted(&text.text),
            quoted(&example.text)
        );
        let help = match test.kind() {
            TextKind::Regex => {
                "fix the expression or the example; . [ ( * + ? ^ $ | are special characters unless a backslash \
                 precedes them, and upper and lower case differ without ignore-case = true"
            }
            TextKind::Equals | TextKind::Contains | TextKind::Prefix | TextKind::Suffix => {
                "fix the text or the example; upper and lower case differ without ignore-case = true"
            }
        };
        notes.error(Note::new(Kind::Conflict, example.place.clone(), what).help(help));
    }
}

/// The warning about a regular expression that matches no value.
pub(crate) fn hopeless(text: &Located) -> Note {
    let what = format!("no text matches the regular expression {}", quoted(&text.text));
    let help = "`^` matches only at the start of the value and `$` only at its end: remove them from the middle, write \
                \\^ or \\$ for the characters themselves, and check that every class contains a character";
    Note::new(Kind::NoEffect, text.place.clone(), what).help(help)
}

fn complaint(fault: TextFault) -> ValueError {
    let (what, help) = match fault {
        TextFault::Empty => (
            "every value would match".to_owned(),
            "write true if the field only has to be present, or equals = \"\" for an empty value",
        ),
        TextFault::TooLong => {
            (format!("longer than {TEXT_BYTES_MAX} bytes"), "write a shorter text")
        }
        TextFault::Syntax(reason) => (
            format!("not a regular expression: {reason}"),
            "use the syntax of Rust's regex crate, or contains, prefix or suffix for plain text",
        ),
        TextFault::TooLarge => (
            format!("the compiled expression exceeds {} MiB", TABLE_BYTES_MAX / (1024 * 1024)),
            "use smaller repetition counts and fewer alternatives, or contains for plain text",
        ),
    };
    ValueError { what, help: help.to_owned() }
}

fn host_refused(name: &Located, value: &Value<'_>) -> Note {
    let what =
        "`headers` cannot test Host: a request may name its host in the request line instead";
    let note = Note::new(Kind::Conflict, name.place.clone(), what);
    match value.get_ref().as_str() {
        Some(host) if pattern::parse_host(host).is_ok() => {
            note.help(format!("write host = {host:?} in the route, outside of `headers`"))
        }
        _ => note.help("write host = \"example.com\" in the route, outside of `headers`"),
    }
}

/// Warns of a string that looks like a pattern, because a string is compared with the whole value.
fn warn_of_pattern(field: &str, text: &Located, notes: &mut Notes) {
    let value = text.text.as_str();
    if !value.contains('*') && !value.starts_with('^') {
        return;
    }
    let plain = value.trim_matches('*');
    let meant = match (value.starts_with('*'), value.ends_with('*')) {
        _ if value == "*" => "true".to_owned(),
        _ if plain.contains(['*', '^', '$', '(', '[', '\\', '|']) || plain.contains(".*") => {
            format!("{{ regex = {} }}", quoted(value))
        }
        (true, true) => format!("{{ contains = {plain:?} }}"),
        (true, false) => format!("{{ suffix = {plain:?} }}"),
        (false, true) => format!("{{ prefix = {plain:?} }}"),
        (false, false) => format!("{{ regex = {} }}", quoted(value)),
    };
    let what = format!(
        "`{field}` is compared with {} character by character: `*` and `^` have no special meaning",
        quoted(value)
    );
    let help = format!(
        "write {field} = {meant}; or {{ equals = {} }} if clients send exactly this",
        quoted(value)
    );
    notes.warn(Note::new(Kind::Value, text.place.clone(), what).help(help));
}
