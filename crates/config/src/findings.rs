//! The places of settings that can only be checked outside of this crate: files, and names of servers.
//! In: findings about a listener or pool and one of its values. Out: errors with line, column and a caret.
//! Never: opens a file or resolves a name.

use core::ops::Range;

use crate::report::{Errors, Kind, Note, Notes, Warnings};
use crate::text::Text;

/// The subject of a finding about the TLS settings as a whole.
pub const TLS: &str = "tls";
/// The subject of a finding about the name that the certificates of servers are verified against.
pub const SERVER_NAME: &str = "server-name";

/// The section that a setting belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The listener with this index.
    Listener(usize),
    /// The pool with this index.
    Pool(usize),
    /// The route with this index.
    Route(usize),
    /// The set of addresses with this index.
    Set(usize),
    /// The map with this index.
    Map(usize),
    /// The Lua application with this index.
    Lua(usize),
    /// The push hub with this index.
    Push(usize),
    /// `[admin]`.
    Admin,
    /// `[log]`.
    Log,
    /// `[traces]`.
    Traces,
}

/// Something wrong with a value that the file names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The kind of the finding.
    pub kind: Kind,
    /// The section.
    pub owner: Owner,
    /// The value: a path as in the model, the address of a server as in the file, `TLS` or `SERVER_NAME`.
    pub subject: String,
    /// What is wrong.
    pub what: String,
    /// The suggested fix, if there is one.
    pub help: Option<String>,
}

/// A value and its place in the file.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// The section; `None` while the section is being read.
    owner: Option<Owner>,
    /// The value; see [`Finding::subject`].
    subject: String,
    /// Byte range of the value in the file.
    place: Range<usize>,
}

/// The places of the values that the file names.
#[derive(Clone, Default, Debug)]
pub struct SettingPositions(Vec<Mark>);

impl SettingPositions {
    /// Remembers the place of a value of the section that is being read.
    pub(crate) fn mark(&mut self, subject: impl Into<String>, place: Range<usize>) {
        self.0.push(Mark { owner: None, subject: subject.into(), place });
    }

    /// Assigns the values that were read since the last call to their section.
    pub(crate) fn assign(&mut self, owner: Owner) {
        for mark in self.0.iter_mut().rev().take_while(|mark| mark.owner.is_none()) {
            mark.owner = Some(owner);
        }
    }

    /// The findings as errors in `text`, the text of the file and of those that it includes. Findings about
    /// the same value that occurs several times in a section are reported at its first place. A finding whose value
    /// has no place is reported at the `tls` setting of its section.
    #[must_use]
    pub fn errors(&self, findings: Vec<Finding>, text: &Text) -> Errors {
        let mut notes = Notes::default();
        self.notes_of(findings).for_each(|note| notes.error(note));
        notes.into_errors(text)
    }

    /// The findings as warnings; see [`Self::errors`].
    #[must_use]
    pub(crate) fn warnings(&self, findings: Vec<Finding>, text: &Text) -> Warnings {
        let mut notes = Notes::default();
        self.notes_of(findings).for_each(|note| notes.warn(note));
        notes.into_warnings(text)
    }

    fn notes_of(&self, findings: Vec<Finding>) -> impl Iterator<Item = Note> {
        findings.into_iter().map(|Finding { kind, owner, subject, what, help }| {
            let place_of = |subject: &str| {
                let of_owner = |mark: &&Mark| mark.owner == Some(owner) && mark.subject == subject;
                self.0.iter().find(of_owner).map(|mark| mark.place.clone())
            };
            let place = place_of(&subject).or_else(|| place_of(TLS)).unwrap_or(0..0);
            let what = if subject == TLS { what } else { format!("{subject}: {what}") };
            let note = Note::new(kind, place, what);
            match help {
                Some(help) => note.help(help),
                None => note,
            }
        })
    }
}
