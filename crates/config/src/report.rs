//! Error and warning messages about a file: what is wrong, where, the allowed values and the fix.
//! In: findings with byte ranges of the text. Out: `Errors` and `Warnings`, each with a caret under the place.
//! Never: prints; copies a control character of the file into a message.
//! Limits: `MISTAKES_MAX` findings are kept, `EXCERPT_CHARS_MAX` characters of a line are shown.

use core::fmt;
use core::ops::Range;
use std::collections::BTreeSet;

use crate::findings::SettingPositions;
use crate::text::Text;

/// Maximum number of findings that are kept; further ones are only counted.
pub const MISTAKES_MAX: usize = 100;
/// Maximum number of characters of a line that an excerpt shows.
pub const EXCERPT_CHARS_MAX: usize = 100;
/// Maximum number of characters of a value that a message quotes.
const QUOTED_CHARS_MAX: usize = 60;

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A certificate, key or list that cannot be used.
    Certificate,
    /// Settings that exclude each other.
    Conflict,
    /// A name or an address that is already in use.
    Duplicate,
    /// A file that cannot be read, or whose content is wrong.
    File,
    /// Requests that would return to the same listener or route.
    Loop,
    /// A required setting is absent.
    Missing,
    /// A valid setting that leaves a service open to more clients than its author may think.
    Open,
    /// A valid setting that has no effect.
    NoEffect,
    /// A setting that only a later version supports.
    NotYet,
    /// The name of a server that cannot be resolved.
    Name,
    /// A reference to a name that is not defined.
    Reference,
    /// A script that cannot be used.
    Script,
    /// The text is not TOML, or it is too large.
    Syntax,
    /// A value of the wrong type, such as an integer instead of a string.
    Type,
    /// A setting that does not exist.
    UnknownKey,
    /// A route that no request can match.
    Unreachable,
    /// A listener without routes, or a pool that no route uses.
    Unused,
    /// A value of the right type that is not allowed.
    Value,
}

impl Kind {
    /// The name of the kind in the output of `tidegate check --json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Conflict => "conflict",
            Self::Duplicate => "duplicate",
            Self::File => "file",
            Self::Loop => "loop",
            Self::Missing => "missing",
            Self::NotYet => "not-yet",
            Self::Open => "open",
            Self::Name => "name",
            Self::Reference => "reference",
            Self::Script => "script",
            Self::Syntax => "syntax",
            Self::Type => "type",
            Self::UnknownKey => "unknown-key",
            Self::Unreachable => "unreachable",
            Self::Unused => "unused",
            Self::NoEffect => "no-effect",
            Self::Value => "value",
        }
    }
}

/// One finding: an error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The kind of the finding.
    pub kind: Kind,
    /// The included file that it is in; `None`: the file itself.
    pub file: Option<String>,
    /// Line number, starting at 1.
    pub line: usize,
    /// Column in characters, starting at 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// The values that are allowed, if they can be listed.
    pub allowed: Option<String>,
    /// The suggested fix, if there is one.
    pub help: Option<String>,
    /// The line of the file, for display.
    excerpt: Excerpt,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    /// The visible part of the line, without control characters.
    text: String,
    /// Characters before the first caret.
    indent: usize,
    /// Number of carets; at least 1.
    carets: usize,
}

/// The errors that prevent a file from being used; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    /// Name of the file in messages.
    file_name: String,
    /// Errors in file order, up to `MISTAKES_MAX`.
    mistakes: Vec<Mistake>,
    /// Number of errors beyond `MISTAKES_MAX`.
    left_out: usize,
}

/// Warnings about a valid file that probably does not do what its author intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warnings {
    /// Name of the file in messages.
    file_name: String,
    /// Warnings in file order, up to `MISTAKES_MAX`.
    mistakes: Vec<Mistake>,
    /// Number of warnings beyond `MISTAKES_MAX`.
    left_out: usize,
}

impl Errors {
    /// The findings in file order, up to `MISTAKES_MAX`.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// The file and the number of errors, such as `site.toml: 2 errors`.
    #[must_use]
    pub fn summary(&self) -> String {
        summary(&self.file_name, self.mistakes.len() + self.left_out, "error")
    }
}

impl Warnings {
    /// The findings in file order, up to `MISTAKES_MAX`.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// Adds warnings that were found later.
    pub(crate) fn append(&mut self, later: Self) {
        self.mistakes.extend(later.mistakes);
        self.left_out += later.left_out;
    }

    /// Whether there are no warnings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mistakes.is_empty()
    }

    /// The file and the number of warnings, such as `site.toml: 1 warning`.
    #[must_use]
    pub fn summary(&self) -> String {
        summary(&self.file_name, self.mistakes.len() + self.left_out, "warning")
    }
}

fn summary(file_name: &str, count: usize, noun: &str) -> String {
    format!("{file_name}: {count} {noun}{}", if count == 1 { "" } else { "s" })
}

impl std::error::Error for Errors {}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_all(f, "error", &self.file_name, &self.mistakes, self.left_out)
    }
}

impl fmt::Display for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_all(f, "warning", &self.file_name, &self.mistakes, self.left_out)
    }
}

fn write_all(
    f: &mut fmt::Formatter<'_>,
    level: &str,
    file_name: &str,
    mistakes: &[Mistake],
    left_out: usize,
) -> fmt::Result {
    for (index, mistake) in mistakes.iter().enumerate() {
        if index > 0 {
            writeln!(f)?;
        }
        mistake.write(f, level, file_name)?;
    }
    if left_out > 0 {
        writeln!(f, "\n{level}: {left_out} more not shown")?;
    }
    Ok(())
}

impl Mistake {
    fn write(&self, f: &mut fmt::Formatter<'_>, level: &str, file_name: &str) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = number.len() + 1;
        writeln!(f, "{level}: {}", self.what)?;
        let file_name = self.file.as_deref().unwrap_or(file_name);
        writeln!(f, "{:gutter$}--> {file_name}:{}:{}", "", self.line, self.column)?;
        writeln!(f, "{number} | {}", self.excerpt.text)?;
        let (indent, carets) = (self.excerpt.indent, "^".repeat(self.excerpt.carets));
        writeln!(f, "{:gutter$}| {:indent$}{carets}", "", "")?;
        if let Some(allowed) = &self.allowed {
            writeln!(f, "{:gutter$}= allowed: {allowed}", "")?;
        }
        if let Some(help) = &self.help {
            writeln!(f, "{:gutter$}= help: {help}", "")?;
        }
        Ok(())
    }
}

/// Text of the file in quotes, escaped, and cut after `QUOTED_CHARS_MAX` characters.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A finding whose line and column are not yet computed.
pub(crate) struct Note {
    /// The kind of the finding.
    kind: Kind,
    /// Byte range of the text that the finding is about.
    place: Range<usize>,
    /// What is wrong.
    what: String,
    /// The values that are allowed.
    allowed: Option<String>,
    /// The suggested fix.
    help: Option<String>,
}

impl Note {
    pub(crate) fn new(kind: Kind, place: Range<usize>, what: impl Into<String>) -> Self {
        Self { kind, place, what: what.into(), allowed: None, help: None }
    }

    pub(crate) fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Collects findings, and the places of files and names, while a file is read.
#[derive(Default)]
pub(crate) struct Notes {
    /// The folder that relative paths start from; empty: the working directory.
    pub(crate) folder: String,
    /// The places of files and of names of servers.
    pub(crate) places: SettingPositions,
    /// Where the strings begin that are a reference to a variable or file and nothing else.
    pub(crate) inserted: BTreeSet<usize>,
    /// Errors, in the order of discovery.
    errors: Vec<Note>,
    /// Warnings, in the order of discovery.
    warnings: Vec<Note>,
}

impl Notes {
    pub(crate) fn error(&mut self, note: Note) {
        self.errors.push(note);
    }

    pub(crate) fn warn(&mut self, note: Note) {
        self.warnings.push(note);
    }

    /// Resolves a path in the file: relative paths start from the folder of the file.
    pub(crate) fn resolve(&self, path: &str) -> String {
        match self.folder.as_str() {
            "" => path.to_owned(),
            _ if path.starts_with('/') => path.to_owned(),
            folder if folder.ends_with('/') => format!("{folder}{path}"),
            folder => format!("{folder}/{path}"),
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }

    pub(crate) fn into_errors(self, text: &Text) -> Errors {
        let (mistakes, left_out) = place_all(self.errors, text);
        Errors { file_name: text.name().to_owned(), mistakes, left_out }
    }

    pub(crate) fn into_warnings(self, text: &Text) -> Warnings {
        let (mistakes, left_out) = place_all(self.warnings, text);
        Warnings { file_name: text.name().to_owned(), mistakes, left_out }
    }
}

fn place_all(mut notes: Vec<Note>, text: &Text) -> (Vec<Mistake>, usize) {
    notes.sort_by_key(|note| note.place.start);
    let left_out = notes.len().saturating_sub(MISTAKES_MAX);
    notes.truncate(MISTAKES_MAX);
    (notes.into_iter().map(|note| place(note, text)).collect(), left_out)
}

/// Computes file, line, column and excerpt of a byte range. A range beyond the end of the text is moved to the end.
fn place(note: Note, text: &Text) -> Mistake {
    let (range, file) = text.file_at(note.place.start);
    let file_start = range.start;
    let text = &text.joined()[range];
    let start = floor_boundary(text, note.place.start - file_start);
    let end = floor_boundary(text, note.place.end.saturating_sub(file_start)).max(start);
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let line = text[..line_start].matches('\n').count() + 1;
    let indent = text[line_start..start].chars().count();
    let carets = text[start..end.min(line_end)].chars().count().max(1);
    let excerpt = clip(text[line_start..line_end].trim_end_matches('\r'), indent, carets);
    let Note { kind, what, allowed, help, .. } = note;
    let file = file.map(str::to_owned);
    Mistake { kind, file, line, column: indent + 1, what, allowed, help, excerpt }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Cuts the part of a line around the carets, with one column for each character.
fn clip(line: &str, indent: usize, carets: usize) -> Excerpt {
    let from = if indent + carets <= EXCERPT_CHARS_MAX { 0 } else { indent.saturating_sub(20) };
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = line.chars().skip(from).take(EXCERPT_CHARS_MAX).map(visible).collect();
    let indent = indent - from;
    let carets = carets.min(EXCERPT_CHARS_MAX.saturating_sub(indent)).max(1);
    Excerpt { text: text.trim_end().to_owned(), indent, carets }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, place: Range<usize>) -> String {
        let mut notes = Notes::default();
        notes.error(Note::new(Kind::Value, place, "bad"));
        notes.into_errors(&Text::of(text, "f.toml")).to_string()
    }

    #[test]
    fn caret_is_under_its_place() {
        assert_eq!(
            shown("a = 1\n\tb = 22\r\n", 11..13),
            "error: bad\n  --> f.toml:2:6\n2 |  b = 22\n  |      ^^\n"
        );
    }

    #[test]
    fn any_range_of_any_text_can_be_shown() {
        let long = "ä".repeat(500);
        for text in ["", "\n", "é\u{1b}[31m\nü", long.as_str()] {
            for start in 0..text.len() + 3 {
                for length in [0, 1, 7, 1000] {
                    let shown = shown(text, start..start + length);
                    assert!(
                        !shown.contains('\u{1b}'),
                        "no escape character is copied into a message"
                    );
                    let widest = shown.lines().map(|line| line.chars().count()).max();
                    assert!(widest.unwrap_or(0) <= EXCERPT_CHARS_MAX + 8);
                }
            }
        }
    }

    #[test]
    fn findings_beyond_the_limit_are_counted() {
        let mut notes = Notes::default();
        for _ in 0..MISTAKES_MAX + 3 {
            notes.error(Note::new(Kind::Value, 0..1, "bad"));
        }
        let errors = notes.into_errors(&Text::of("x", "f.toml"));
        assert_eq!(errors.mistakes().len(), MISTAKES_MAX);
        assert!(errors.to_string().ends_with("error: 3 more not shown\n"));
        assert_eq!(errors.summary(), "f.toml: 103 errors");
    }
}
