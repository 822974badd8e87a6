//! References in strings of the file: `${NAME}` to a variable of the environment, `${file:PATH}` to the content of a file.
//! In: a parsed file, and a function that looks references up. Out: the file with values in place of the references; a note
//! for each reference without a value.
//! Never: reads the environment or a file itself; replaces anything in the value of a reference, or in a key.
//! Limits: `VALUE_BYTES_MAX` bytes of a value; `NAME_BYTES_MAX` bytes of a name: longer ones are text.

use core::ops::Range;
use std::borrow::Cow;

use toml::de::{DeTable, DeValue};

use crate::report::{Kind, Note, Notes, quoted};

/// Maximum size of the value of a reference in bytes.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of the name in a reference in bytes: `file:` and the longest path that Linux permits.
const NAME_BYTES_MAX: usize = 5 + 4096;

/// The target of a reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference<'a> {
    /// A variable of the environment.
    Variable(&'a str),
    /// A file, whose content without a line break at its end is the value. The path starts from the working directory.
    File(&'a str),
}

/// Looks up the value of a reference. The error is the reason why there is no value.
pub type Lookup<'a> = dyn FnMut(Reference<'_>) -> Result<String, String> + 'a;

/// A part of a string.
#[derive(PartialEq, Eq, Debug)]
enum Piece<'a> {
    /// Text as it is.
    Text(&'a str),
    /// The text between `${` and `}`.
    Reference(&'a str),
}

/// Replaces all references in the values of `table`. `text` is the text of the file.
pub(crate) fn replace_all(
    table: &mut DeTable<'_>,
    text: &str,
    lookup: &mut Lookup<'_>,
    notes: &mut Notes,
) {
    let mut replacer = Replacer { text, lookup, notes };
    for (_, value) in table.iter_mut() {
        let place = value.span();
        replacer.visit(value.get_mut(), place);
    }
}

struct Replacer<'a, 'l> {
    /// The text of the file.
    text: &'a str,
    lookup: &'a mut Lookup<'l>,
    notes: &'a mut Notes,
}

impl Replacer<'_, '_> {
    fn visit(&mut self, value: &mut DeValue<'_>, place: Range<usize>) {
        match value {
            DeValue::String(string) if string.contains("${") => {
                let replaced = self.replace(string, &place);
                *string = Cow::Owned(replaced);
            }
            DeValue::Array(items) => {
                for item in items.iter_mut() {
                    let place = item.span();
                    self.visit(item.get_mut(), place);
                }
            }
            DeValue::Table(entries) => {
                for (_, entry) in entries.iter_mut() {
                    let place = entry.span();
                    self.visit(entry.get_mut(), place);
                }
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => {}
        }
    }

    fn replace(&mut self, string: &str, place: &Range<usize>) -> String {
        let mut replaced = String::with_capacity(string.len());
        let pieces = pieces(string);
        let mut written = pieces.iter().filter(|piece| **piece != Piece::Text(""));
        if let (Some(Piece::Reference(_)), None) = (written.next(), written.next()) {
            self.notes.inserted.insert(place.start);
        }
        for piece in pieces {
            match piece {
                Piece::Text(text) => replaced.push_str(text),
                Piece::Reference(name) => match self.value_of(name) {
                    Ok(value) => replaced.push_str(&value),
                    Err(what) => self.report(name, what, place),
                },
            }
        }
        replaced
    }

    fn value_of(&mut self, name: &str) -> Result<String, String> {
        let value = match name.strip_prefix("file:") {
            Some(path) => {
                let path = self.notes.resolve(path);
                (self.lookup)(Reference::File(&path))?
            }
            None => (self.lookup)(Reference::Variable(name))?,
        };
        match value.len() <= VALUE_BYTES_MAX {
            true => Ok(value),
            false => Err("larger than 64 KiB".to_owned()),
        }
    }

    /// Notes that a reference has no value, at its place within the string if it is written there without escapes.
    fn report(&mut self, name: &str, what: String, place: &Range<usize>) {
        let written = format!("${{{name}}}");
        let within = self.text.get(place.clone()).and_then(|raw| raw.find(&written));
        let place = match within {
            Some(at) => place.start + at..place.start + at + written.len(),
            None => place.clone(),
        };
        let what = format!("{} has no value: {what}", quoted(&written));
        let help = format!("set it, or write $${{{name}}} for the text itself");
        self.notes.error(Note::new(Kind::Reference, place, what).help(help));
    }
}

/// The pieces of a string. `$${` is the text `${`. Braces that do not enclose the name of a variable or `file:PATH` are text.
fn pieces(string: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = string;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            pieces.extend([Piece::Text(before), Piece::Text("${")]);
            rest = &from[2..];
            continue;
        }
        pieces.push(Piece::Text(before));
        match name_at(&from[2..]) {
            Some(name) => {
                pieces.push(Piece::Reference(name));
                rest = &from[2 + name.len() + 1..];
            }
            None => {
                pieces.push(Piece::Text("${"));
                rest = &from[2..];
            }
        }
    }
    pieces.push(Piece::Text(rest));
    pieces
}

/// The name at the start of a string, up to its brace. Of a longer string, only `NAME_BYTES_MAX` bytes are examined, so that a
/// string of many `${` is read in linear time.
fn name_at(text: &str) -> Option<&str> {
    let end = text.bytes().take(NAME_BYTES_MAX + 1).position(|byte| byte == b'}')?;
    text.get(..end).filter(|name| is_reference(name))
}

fn is_reference(name: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match name.strip_prefix("file:") {
        Some(path) => !path.is_empty() && !path.contains(['\n', '\0']),
        None => {
            name.chars().all(is_name)
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && !name.is_empty()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_as(string: &str) -> String {
        let piece = |piece| match piece {
            Piece::Text(text) => String::from(text),
            Piece::Reference(name) => format!("<{name}>"),
        };
        pieces(string).into_iter().map(piece).collect()
    }

    #[test]
    fn strings_are_text_and_references() {
        for (string, expected) in [
            ("plain", "plain"),
            ("${A}", "<A>"),
            ("a${B_1}c${file:/run/x y}d", "a<B_1>c<file:/run/x y>d"),
            ("$${A}", "${A}"),
            ("$$${A}", "$${A}"),
            ("${1}${}${a-b}", "${1}${}${a-b}"),
            ("${A", "${A"),
            ("${${A}", "${<A>"),
            ("$A {b}", "$A {b}"),
            ("${é}", "${é}"),
        ] {
            assert_eq!(read_as(string), expected, "{string}");
        }
    }

    #[test]
    fn name_has_a_limit() {
        let of = |length: usize| format!("${{{}}}", "A".repeat(length));
        assert_eq!(read_as(&of(NAME_BYTES_MAX)), format!("<{}>", "A".repeat(NAME_BYTES_MAX)));
        assert_eq!(read_as(&of(NAME_BYTES_MAX + 1)), of(NAME_BYTES_MAX + 1));
    }
}
