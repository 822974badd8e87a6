//! Files that a configuration includes: `include = ["conf.d/*.toml"]`.
//! In: a text, and the names of the files in a folder. Out: patterns with their places; whether a name fits a pattern.
//! Never: opens a file or a folder.
//! Limits: `PATTERNS_MAX` patterns, `INCLUDED_MAX` files; all files together are at most `FILE_BYTES_MAX` long.
//! Invariant: an included file contains tables only, each with its header. So no setting of one file can become part of
//! a table of another one.

use core::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::file::note_syntax;
use crate::report::{Errors, Kind, Note, Notes, quoted};
use crate::table::Table;
use crate::text::Text;

/// Maximum number of patterns.
pub const PATTERNS_MAX: usize = 64;
/// Maximum number of included files.
pub const INCLUDED_MAX: usize = 1000;

/// A pattern of `include`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Include {
    /// The path as in the file. Only its last part may contain `*` and `?`.
    pub pattern: String,
    /// Byte range of the pattern in the file.
    place: Range<usize>,
}

impl Include {
    /// The folder part of the pattern, with its last slash, and the part that names files.
    #[must_use]
    pub fn split(&self) -> (&str, &str) {
        let end = self.pattern.rfind('/').map_or(0, |at| at + 1);
        self.pattern.split_at(end)
    }

    /// Whether the pattern names one file.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        !self.pattern.contains(['*', '?'])
    }
}

/// The patterns of a file. Values that are not patterns are left out: `parse_text` reports them.
#[must_use]
pub fn includes(text: &str) -> Vec<Include> {
    let (root, _) = DeTable::parse_recoverable(text);
    let Some(value) = root.get_ref().get("include") else { return Vec::new() };
    let single = core::slice::from_ref(value);
    let items = value.get_ref().as_array().map_or(single, |items| &items[..]);
    let patterns = items.iter().filter_map(|item| {
        let pattern = item.get_ref().as_str().filter(|text| fault_of(text).is_none())?;
        Some(Include { pattern: pattern.to_owned(), place: item.span() })
    });
    patterns.take(PATTERNS_MAX).collect()
}

/// Whether the name of a file fits a pattern: `*` matches any characters, `?` matches one. A name that begins with a point fits
/// only a pattern that does.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // The last `*`, and how much of the name it matches.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// The errors for patterns that cannot be used, with the reason for each.
#[must_use]
pub fn include_errors(text: &str, file_name: &str, faults: Vec<(Include, String)>) -> Errors {
    let mut notes = Notes::default();
    for (include, what) in faults {
        // The path of a single file already begins the reason.
        let what = match include.is_literal() {
            true => what,
            false => format!("{}: {what}", include.pattern),
        };
        notes.error(Note::new(Kind::File, include.place, what));
    }
    notes.into_errors(&Text::of(text, file_name))
}

/// What is wrong with a pattern.
fn fault_of(pattern: &str) -> Option<&'static str> {
    let (folder, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    if name.is_empty() || pattern.contains('\0') {
        return Some("the path of a file, such as \"conf.d/*.toml\"");
    }
    folder.contains(['*', '?']).then_some("`*` and `?` only after the last slash")
}

/// Checks the setting itself.
pub(crate) fn check(file: &Table<'_>, notes: &mut Notes) {
    let patterns = file.texts("include", notes);
    let mut seen: Vec<&str> = Vec::new();
    for (at, pattern) in patterns.iter().enumerate() {
        let allowed = match fault_of(&pattern.text) {
            Some(allowed) => allowed,
            None if seen.contains(&pattern.text.as_str()) => "each pattern once",
            None if at >= PATTERNS_MAX => "up to 64 patterns",
            None => {
                seen.push(&pattern.text);
                continue;
            }
        };
        let what = format!("`include` cannot contain {}", quoted(&pattern.text));
        notes.error(Note::new(Kind::Value, pattern.place.clone(), what).allowed(allowed));
    }
}

/// Checks the included files, each on its own. `root`: all files as one.
pub(crate) fn check_parts(text: &Text, root: &DeTable<'_>, notes: &mut Notes) {
    for range in text.ranges().skip(1) {
        let part = &text.joined()[range.clone()];
        let (own, faults) = DeTable::parse_recoverable(part);
        let is_broken = !faults.is_empty();
        note_syntax((part, range.start), own.get_ref(), faults, notes);
        if is_broken {
            continue;
        }
        for (key, value) in own.get_ref() {
            let place = key.span().start + range.start..key.span().end + range.start;
            let name = key.get_ref().as_ref();
            if let Some(note) = out_of_table(part, key.span().start, name, &place) {
                notes.error(note);
            } else if value.get_ref().as_table().is_some()
                && matches!(root.get(name).map(|whole| whole.get_ref()), Some(DeValue::Array(_)))
            {
                let what = format!("[{name}.…] belongs to a [[{name}]] of another file");
                let note = Note::new(Kind::Value, place, what);
                notes.error(note.help(format!("move this table to the file with its [[{name}]]")));
            }
        }
    }
}

/// The error for a setting above the first header of an included file, which TOML would assign to the last table of the
/// file before.
fn out_of_table(part: &str, at: usize, name: &str, place: &Range<usize>) -> Option<Note> {
    let line_start = part[..at].rfind('\n').map_or(0, |at| at + 1);
    if part[line_start..at].trim_start().starts_with('[') {
        return None;
    }
    let what = format!("`{name}` is outside of a table");
    let note = Note::new(Kind::Value, place.clone(), what);
    Some(note.allowed("tables with a header, such as [[route]] or [pool.NAME]").help(match name {
        "include" => "include the files in the main file",
        _ => "write a header above it",
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".a.toml", false),
            (".*.toml", ".a.toml", true),
            ("*.toml", "a.toml.bak", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("*", "x", true),
            ("a", "a", true),
            ("a", "b", false),
            ("*a*", "", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_are_split_after_the_last_slash() {
        let found = includes("include = [\"conf.d/*.toml\", \"x.toml\", \"*/x\", \"/etc/y/\"]\n");
        let parts: Vec<_> = found.iter().map(|of| (of.split(), of.is_literal())).collect();
        assert_eq!(parts, [(("conf.d/", "*.toml"), false), (("", "x.toml"), true)]);
        assert_eq!(includes("include = \"a.toml\"").len(), 1);
        assert!(includes("[server]\nworkers = 1").is_empty());
    }
}
