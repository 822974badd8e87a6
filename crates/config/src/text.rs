//! The text of a configuration: a file, and after it the files that it includes.
//! In: names and texts of files. Out: one text, and for each place in it the file that the place is in.
//! Never: opens a file.
//! Invariant: parts are in ascending order and cover the whole text; each but the last ends with a line feed.

use core::ops::Range;

/// A file within the text.
#[derive(Clone, Debug)]
struct Part {
    /// The offset at which its text begins.
    start: usize,
    /// The name of the file in messages.
    name: String,
}

/// The text of a file and of the files that it includes.
#[derive(Clone, Debug)]
pub struct Text {
    /// The texts, one after another.
    joined: String,
    /// The file itself; then the included ones.
    parts: Vec<Part>,
}

impl Text {
    /// The text of a file; `name` is its name in messages.
    #[must_use]
    pub fn of(text: &str, name: &str) -> Self {
        let first = Part { start: 0, name: name.to_owned() };
        Self { joined: text.to_owned(), parts: vec![first] }
    }

    /// Appends the text of an included file.
    pub fn include(&mut self, text: &str, name: &str) {
        if !self.joined.ends_with('\n') {
            self.joined.push('\n');
        }
        self.parts.push(Part { start: self.joined.len(), name: name.to_owned() });
        self.joined.push_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    }

    /// All texts, one after another.
    #[must_use]
    pub fn joined(&self) -> &str {
        &self.joined
    }

    /// The name of the file itself.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.parts[0].name
    }

    /// The range of each file.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let ends = self.parts.iter().skip(1).map(|next| next.start);
        let ends = ends.chain([self.joined.len()]);
        self.parts.iter().zip(ends).map(|(part, end)| part.start..end)
    }

    /// The range of the file that contains the byte at `at`, and its name unless it is the first file.
    pub(crate) fn file_at(&self, at: usize) -> (Range<usize>, Option<&str>) {
        let index = self.parts.partition_point(|part| part.start <= at).saturating_sub(1);
        let end = self.parts.get(index + 1).map_or(self.joined.len(), |next| next.start);
        let part = &self.parts[index];
        (part.start..end, (index > 0).then_some(part.name.as_str()))
    }
}
