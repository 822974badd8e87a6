//! The findings of the conversion about lines of its input.
//! In: line numbers and reasons. Out: findings in the order of the lines, each once.
//! Limits: `FINDINGS_MAX` findings, `QUOTED_CHARS_MAX` characters of a line.

/// Maximum number of findings that are kept; the last one says that there are more.
const FINDINGS_MAX: usize = 2000;
/// How much of a line is quoted.
const QUOTED_CHARS_MAX: usize = 160;

/// How a line was translated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LineResult {
    /// It was not translated.
    Untranslated,
    /// It was translated, and the behaviour differs.
    Different,
    /// Tidegate does this without a setting, or needs no such setting.
    Unneeded,
}

impl LineResult {
    /// The words that begin a message.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Untranslated => "not translated",
            Self::Different => "differs",
            Self::Unneeded => "not needed",
        }
    }
}

/// The result for one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The number of the line, from 1; 0 concerns the whole file.
    pub line: usize,
    /// The line, without indentation and perhaps cut.
    pub text: String,
    /// How the line was translated.
    pub result: LineResult,
    /// The reason, and what to do instead.
    pub why: String,
}

/// Collects findings.
pub(crate) struct Findings<'t> {
    /// The lines of the input.
    source: Vec<&'t str>,
    /// The findings so far, in the order in which they were noted.
    all: Vec<Finding>,
}

impl<'t> Findings<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { source: text.lines().collect(), all: Vec::new() }
    }

    pub(crate) fn untranslated(&mut self, line: usize, why: impl Into<String>) {
        self.note(line, LineResult::Untranslated, why.into());
    }

    pub(crate) fn differs(&mut self, line: usize, why: impl Into<String>) {
        self.note(line, LineResult::Different, why.into());
    }

    pub(crate) fn unneeded(&mut self, line: usize, why: impl Into<String>) {
        self.note(line, LineResult::Unneeded, why.into());
    }

    pub(crate) fn note(&mut self, line: usize, result: LineResult, why: String) {
        // A reason may quote a string with line feeds, and is written as a comment.
        let why = visible(why.chars());
        let is_same = |own: &Finding| own.line == line && own.why == why;
        if self.all.len() > FINDINGS_MAX || self.all.iter().any(is_same) {
            return;
        }
        if self.all.len() == FINDINGS_MAX {
            let why = format!("there are more than {FINDINGS_MAX} findings");
            let text = String::new();
            self.all.push(Finding { line: 0, text, result: LineResult::Untranslated, why });
            return;
        }
        let text = line.checked_sub(1).and_then(|index| self.source.get(index));
        let text = shortened(text.map_or("", |text| text.trim()));
        self.all.push(Finding { line, text, result, why });
    }

    /// The findings in the order of their lines. For a line that was not translated, only the findings with the reasons are kept.
    pub(crate) fn sorted(&self) -> Vec<Finding> {
        let mut all = self.all.clone();
        all.sort_by_key(|finding| (finding.line, finding.result));
        all
    }
}

/// `text` with visible characters only, cut after `QUOTED_CHARS_MAX` characters.
fn shortened(text: &str) -> String {
    let mut short = visible(text.chars().take(QUOTED_CHARS_MAX));
    if text.chars().count() > QUOTED_CHARS_MAX {
        short.push_str("...");
    }
    short
}

/// The characters, with blanks in place of those that are not visible.
fn visible(chars: impl Iterator<Item = char>) -> String {
    chars.map(|c| if c.is_control() { ' ' } else { c }).collect()
}
