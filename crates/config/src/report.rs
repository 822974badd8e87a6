//! What is wrong with a file, said to the person who must mend it: place, fact, allowed values, mend.
//! In: byte ranges of the text. Out: `Errors` and `Warnings`, each with a caret under the place.
//! Never: prints; lets a control character of the file reach a terminal.
//! Limits: `MISTAKES_MAX` findings are kept, `EXCERPT_CHARS_MAX` characters of a line are shown.

use core::fmt;
use core::ops::Range;

/// Findings that are kept; what comes after is counted only.
pub const MISTAKES_MAX: usize = 100;
/// Characters of a line that an excerpt shows.
pub const EXCERPT_CHARS_MAX: usize = 100;
/// Characters of a value that a message repeats.
const QUOTED_CHARS_MAX: usize = 60;

/// What sort of finding it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two settings that exclude each other.
    Conflict,
    /// A name or an address that is taken already.
    Duplicate,
    /// A setting that must be there is not.
    Missing,
    /// A setting that a later version brings.
    NotYet,
    /// A name that points nowhere.
    Reference,
    /// The text is not TOML, or not text of a bearable size.
    Syntax,
    /// A value of the wrong sort: a number for a string, for example.
    Type,
    /// A setting that does not exist.
    UnknownKey,
    /// A route that no request can reach.
    Unreachable,
    /// Something that is declared and never used.
    Unused,
    /// A value of the right sort that is not allowed.
    Value,
}

impl Kind {
    /// Its name for scripts, as `tidegate check --json` writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Duplicate => "duplicate",
            Self::Missing => "missing",
            Self::NotYet => "not-yet",
            Self::Reference => "reference",
            Self::Syntax => "syntax",
            Self::Type => "type",
            Self::UnknownKey => "unknown-key",
            Self::Unreachable => "unreachable",
            Self::Unused => "unused",
            Self::Value => "value",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// What sort it is.
    pub kind: Kind,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What was found.
    pub what: String,
    /// What may stand there.
    pub allowed: Option<String>,
    /// What to write instead.
    pub mend: Option<String>,
    excerpt: Excerpt,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    indent: usize,
    carets: usize,
}

/// Everything that keeps a file from being used; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    file_name: String,
    mistakes: Vec<Mistake>,
    left_out: usize,
}

/// What works but is hardly meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warnings {
    file_name: String,
    mistakes: Vec<Mistake>,
    left_out: usize,
}

impl Errors {
    /// The findings in file order, `MISTAKES_MAX` at most.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl Warnings {
    /// The findings in file order, `MISTAKES_MAX` at most.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mistakes.is_empty()
    }
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
        writeln!(f, "\n{level}: {left_out} more of them are not shown")?;
    }
    Ok(())
}

impl Mistake {
    fn write(&self, f: &mut fmt::Formatter<'_>, level: &str, file_name: &str) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = number.len() + 1;
        writeln!(f, "{level}: {}", self.what)?;
        writeln!(f, "{:gutter$}--> {file_name}:{}:{}", "", self.line, self.column)?;
        writeln!(f, "{number} | {}", self.excerpt.text)?;
        let (indent, carets) = (self.excerpt.indent, "^".repeat(self.excerpt.carets));
        writeln!(f, "{:gutter$}| {:indent$}{carets}", "", "")?;
        if let Some(allowed) = &self.allowed {
            writeln!(f, "{:gutter$}= allowed: {allowed}", "")?;
        }
        if let Some(mend) = &self.mend {
            writeln!(f, "{:gutter$}= mend: {mend}", "")?;
        }
        Ok(())
    }
}

/// A piece of the file in quotes, escaped, and shortened when it is long.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A finding before its place is looked up.
pub(crate) struct Note {
    kind: Kind,
    place: Range<usize>,
    what: String,
    allowed: Option<String>,
    mend: Option<String>,
}

impl Note {
    pub(crate) fn new(kind: Kind, place: Range<usize>, what: impl Into<String>) -> Self {
        Self { kind, place, what: what.into(), allowed: None, mend: None }
    }

    pub(crate) fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    pub(crate) fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }
}

/// Collects findings while a file is read.
#[derive(Default)]
pub(crate) struct Notes {
    errors: Vec<Note>,
    warnings: Vec<Note>,
}

impl Notes {
    pub(crate) fn error(&mut self, note: Note) {
        self.errors.push(note);
    }

    pub(crate) fn warn(&mut self, note: Note) {
        self.warnings.push(note);
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }

    pub(crate) fn into_errors(self, text: &str, file_name: &str) -> Errors {
        let (mistakes, left_out) = place_all(self.errors, text);
        Errors { file_name: file_name.to_owned(), mistakes, left_out }
    }

    pub(crate) fn into_warnings(self, text: &str, file_name: &str) -> Warnings {
        let (mistakes, left_out) = place_all(self.warnings, text);
        Warnings { file_name: file_name.to_owned(), mistakes, left_out }
    }
}

fn place_all(mut notes: Vec<Note>, text: &str) -> (Vec<Mistake>, usize) {
    notes.sort_by_key(|note| note.place.start);
    let left_out = notes.len().saturating_sub(MISTAKES_MAX);
    notes.truncate(MISTAKES_MAX);
    (notes.into_iter().map(|note| place(note, text)).collect(), left_out)
}

/// Finds line, column and excerpt of a byte range; ranges outside the text mean its end.
fn place(note: Note, text: &str) -> Mistake {
    let start = floor_boundary(text, note.place.start);
    let end = floor_boundary(text, note.place.end).max(start);
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let line = text[..line_start].matches('\n').count() + 1;
    let indent = text[line_start..start].chars().count();
    let carets = text[start..end.min(line_end)].chars().count().max(1);
    let excerpt = clip(text[line_start..line_end].trim_end_matches('\r'), indent, carets);
    let Note { kind, what, allowed, mend, .. } = note;
    Mistake { kind, line, column: indent + 1, what, allowed, mend, excerpt }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Shows the part of a line around the carets, one column a character.
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
        notes.into_errors(text, "f.toml").to_string()
    }

    #[test]
    fn a_caret_stands_under_its_place() {
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
                    assert!(!shown.contains('\u{1b}'), "no escape reaches the terminal");
                    let widest = shown.lines().map(|line| line.chars().count()).max();
                    assert!(widest.unwrap_or(0) <= EXCERPT_CHARS_MAX + 8);
                }
            }
        }
    }

    #[test]
    fn findings_beyond_the_bound_are_counted() {
        let mut notes = Notes::default();
        for _ in 0..MISTAKES_MAX + 3 {
            notes.error(Note::new(Kind::Value, 0..1, "bad"));
        }
        let errors = notes.into_errors("x", "f.toml");
        assert_eq!(errors.mistakes().len(), MISTAKES_MAX);
        assert!(errors.to_string().ends_with("error: 3 more of them are not shown\n"));
    }
}
