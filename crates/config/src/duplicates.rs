//! Finds the first of two keys or headers of the same name, for messages about the second one.
//! In: a text, and the place of the second name. Out: the line of the first name.

use core::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::file::unquoted;
use crate::report::quoted;

/// Whether the parser's message is about a name that was written before.
pub(crate) fn is_about_two(message: &str) -> bool {
    message == "duplicate key" || is_extension(message)
}

/// Whether the parser's message is about a line that adds to a value in braces.
pub(crate) fn is_extension(message: &str) -> bool {
    message.starts_with("cannot extend value of type inline table")
}

/// What is wrong with the name at `second`, which line `first` has as well.
pub(crate) fn what(text: &str, second: &Range<usize>, message: &str, first: usize) -> String {
    let name = quoted(unquoted(text.get(second.clone()).unwrap_or_default()));
    if is_extension(message) {
        return format!(
            "invalid TOML: line {first} has the whole value of {name} in braces, so this line cannot add to it"
        );
    }
    let kind = if text[..second.start].ends_with('[') { "table" } else { "key" };
    format!("invalid TOML: duplicate {kind} {name}, first written in line {first}")
}

/// The line of the name that the one at `second` repeats. `root` is the parsed text.
pub(crate) fn first_of_two(text: &str, root: &DeTable<'_>, second: &Range<usize>) -> Option<usize> {
    let first = before_line(text, second).or_else(|| in_braces(text, root, second))?;
    Some(text[..first].matches('\n').count() + 1)
}

/// The position of the first name if the second one is in a header or at the start of a line: it is in the lines before.
fn before_line(text: &str, second: &Range<usize>) -> Option<usize> {
    let line_start = text[..second.start].rfind('\n').map_or(0, |at| at + 1);
    let (before, line) = (&text[..line_start], text.get(line_start..second.end)?.trim_start());
    let steps = match line.starts_with('[') {
        true => steps_of(&format!("{} = 0", line.trim_start_matches('[')))?,
        false => {
            let headers = before.lines().rev().filter(|line| line.trim_start().starts_with('['));
            let mut steps = match { headers }.next() {
                Some(header) => steps_of(header)?,
                None => Vec::new(),
            };
            steps.append(&mut steps_of(&format!("{line} = 0"))?);
            steps
        }
    };
    let (root, _) = DeTable::parse_recoverable(before);
    let (last, outer) = steps.split_last()?;
    let mut table = root.get_ref();
    for step in outer {
        table = match table.get(step.as_str())?.get_ref() {
            DeValue::Table(inner) => inner,
            // A header refers to the last table of an array.
            DeValue::Array(rows) => rows.iter().last()?.get_ref().as_table()?,
            _ => return None,
        };
    }
    table.get_key_value(last.as_str()).map(|(key, _)| key.span().start)
}

/// The names of a header or of a dotted key, from a line that contains nothing else.
fn steps_of(line: &str) -> Option<Vec<String>> {
    let root = DeTable::parse(line).ok()?;
    let (mut table, mut steps) = (root.get_ref(), Vec::new());
    while let Some((name, value)) = table.iter().next() {
        steps.push(name.get_ref().to_string());
        table = match value.get_ref() {
            DeValue::Table(inner) => inner,
            DeValue::Array(rows) => rows.iter().next()?.get_ref().as_table()?,
            _ => break,
        };
    }
    Some(steps)
}

/// The position of the first name if the second one is in braces: the last key before it that has the same name and is not
/// inside a value that ends before it.
fn in_braces(text: &str, root: &DeTable<'_>, second: &Range<usize>) -> Option<usize> {
    let name = unquoted(text.get(second.clone())?);
    let mut first = None;
    let mut open = vec![root];
    while let Some(table) = open.pop() {
        for (key, value) in table {
            if key.get_ref() == name && key.span().end <= second.start {
                first = first.max(Some(key.span().start));
            }
            let is_around = |inner: &Range<usize>| inner.end > second.start;
            match value.get_ref() {
                // An inline table contains its keys; the place of any other table is its header.
                DeValue::Table(inner) if text[value.span()].starts_with('{') => {
                    open.extend(is_around(&value.span()).then_some(inner));
                }
                DeValue::Table(inner) => open.push(inner),
                DeValue::Array(rows) => {
                    for row in rows.iter() {
                        let is_inline = text[row.span()].starts_with('{');
                        if !is_inline || is_around(&row.span()) {
                            open.extend(row.get_ref().as_table());
                        }
                    }
                }
                _ => {}
            }
        }
    }
    first
}
