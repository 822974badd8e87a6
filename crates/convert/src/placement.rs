//! The places for which a string with placeholders is written.
//! In: literal text. Out: the same text, escaped so that no part of it is read as a placeholder.

/// The place where the text is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The value of a field, or a path: braces are doubled.
    Template,
    /// The target of a redirect: braces are percent-encoded.
    Redirect,
    /// A string that has no placeholders.
    Plain,
}

impl Placement {
    /// Appends literal text.
    pub(crate) fn push(self, out: &mut String, text: &str) {
        match self {
            Self::Template => out.push_str(&text.replace('{', "{{").replace('}', "}}")),
            Self::Redirect => out.push_str(&text.replace('{', "%7B").replace('}', "%7D")),
            Self::Plain => out.push_str(text),
        }
    }
}
