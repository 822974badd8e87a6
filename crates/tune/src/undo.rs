//! Puts back what was changed, newest first.
//! In: a host, the open journal. Out: for each step, what became of it.
//! Never: says that a tool restored what does not show as before;
//! puts back on one host what was changed on another;
//! overwrites a value that somebody changed after us: it is reported and stays in the journal.

use crate::action::{Action, same};
use crate::apply::{boot_id, remove_draft, replace_file, run};
use crate::host::{Host, Unreadable};
use crate::journal::{Journal, JournalError, Progress, Step};
use std::fs;

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was as before already: never done, or reset by a restart.
    AlreadyBack,
    /// Somebody changed it since; the value now. Left alone.
    ChangedSince(String),
    /// It cannot be read or written; why. Left alone.
    Failed(String),
    /// Put back.
    Restored,
}

/// One step's line in the answer of `tune undo`.
#[derive(Clone, Debug)]
pub struct Undone {
    /// The step.
    pub step: Step,
    /// What became of it.
    pub fate: Fate,
    /// Whether the machine was restarted since the step.
    pub restarted: bool,
}

impl Undone {
    /// Whether it could not be put back and stays in the journal.
    #[must_use]
    pub const fn is_left(&self) -> bool {
        matches!(self.fate, Fate::ChangedSince(_) | Fate::Failed(_))
    }
}

/// Puts back everything that is outstanding.
///
/// # Errors
/// [`JournalError`] when the journal is another host's (then nothing is done), or cannot be written (what was
/// put back until then stays so).
pub fn undo(host: &Host, journal: &mut Journal) -> Result<Vec<Undone>, JournalError> {
    let undone = undo_after(host, journal, 0)?;
    journal.tidy()?;
    Ok(undone)
}

/// Puts back the steps with a number above `last`.
///
/// # Errors
/// As [`undo`].
pub fn undo_after(
    host: &Host,
    journal: &mut Journal,
    last: u64,
) -> Result<Vec<Undone>, JournalError> {
    journal.is_of(&host.root_name())?;
    let boot = boot_id(host);
    let steps: Vec<Step> =
        journal.outstanding().iter().rev().filter(|step| step.number > last).cloned().collect();
    let mut fates: Vec<Undone> = Vec::with_capacity(steps.len());
    for step in steps {
        let restarted = step.boot != boot;
        // What a tool changed on the side went with the restart; what is there now is others' doing.
        let is_gone = restarted && !step.action.acts();
        let fate = if is_gone {
            Ok(Fate::AlreadyBack)
        } else if !step.action.acts() && stays(&step, &fates) {
            left_beside(host, &step)
        } else {
            put_back(host, &step)
        };
        let fate = fate.unwrap_or_else(|error| Fate::Failed(error.to_string()));
        if matches!(fate, Fate::AlreadyBack | Fate::Restored) {
            journal.undone(step.number)?;
        }
        fates.push(Undone { step, fate, restarted });
    }
    Ok(fates)
}

/// Whether the call that a setting was saved for stays done: then the setting belongs to what stays.
fn stays(beside: &Step, newer: &[Undone]) -> bool {
    newer
        .iter()
        .rfind(|undone| undone.step.action.acts())
        .is_some_and(|call| call.step.item == beside.item && call.is_left())
}

fn left_beside(host: &Host, step: &Step) -> Result<Fate, Unreadable> {
    let now = step.action.state(host)?;
    if agree(&step.action, now.as_deref(), step.before.as_deref()) {
        // Kept until the call is put back, which may place it anew.
        return Ok(Fate::Failed("waits until what it was saved for is put back".to_owned()));
    }
    Ok(Fate::ChangedSince(now.unwrap_or_default().trim().to_owned()))
}

fn put_back(host: &Host, step: &Step) -> Result<Fate, Unreadable> {
    let action = &step.action;
    if let Action::File { path, .. } = action {
        remove_draft(host, path);
    }
    let now = action.state(host)?;
    if agree(action, now.as_deref(), step.before.as_deref()) {
        return Ok(Fate::AlreadyBack);
    }
    let ours = match &step.progress {
        // The call that comes with it was put back just before, and that placed it anew.
        _ if !action.acts() => true,
        Progress::Done(after) => agree(action, now.as_deref(), after.as_deref()),
        // Ended between the announcement and the note that it was done. A tool's effect cannot be told
        // from its call, but nothing else was at work in that instant.
        Progress::Begun => {
            action.is_reached_by(now.as_deref()) || matches!(action, Action::Run { .. })
        }
    };
    if !ours {
        let value = now.map_or_else(|| "(gone)".to_owned(), |now| now.trim().to_owned());
        return Ok(Fate::ChangedSince(value));
    }
    restore(host, action, step.before.as_deref())?;
    // A tool that says yes may have put back less than there was (a discipline without its options, say).
    if matches!(action, Action::Run { .. }) && action.state(host)? != step.before {
        let before = step.before.as_deref().unwrap_or("(nothing)").trim();
        return Ok(Fate::Failed(format!(
            "`{}` was accepted, but it is not as before, which was {before:?}",
            action.undo_text()
        )));
    }
    Ok(Fate::Restored)
}

fn agree(action: &Action, one: Option<&str>, other: Option<&str>) -> bool {
    match (action, one, other) {
        (Action::Beside { path } | Action::Setting { path, .. }, Some(one), Some(other)) => {
            same(path, one, other)
        }
        _ => one == other,
    }
}

fn restore(host: &Host, action: &Action, before: Option<&str>) -> Result<(), Unreadable> {
    match (action, before) {
        (Action::Folder { path }, None) => match fs::remove_dir(host.locate_entry(path)?) {
            // Somebody put a file there: theirs, so the folder stays.
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
            result => result.map_err(|error| Unreadable::file(path, &error)),
        },
        (Action::File { path, .. }, None) => fs::remove_file(host.locate_entry(path)?)
            .map_err(|error| Unreadable::file(path, &error)),
        (Action::File { path, .. }, Some(before)) => replace_file(host, path, before),
        (Action::Run { undo, .. }, _) => run(host, undo),
        (Action::Beside { path } | Action::Setting { path, .. }, Some(before)) => {
            host.write_setting(path, before)
        }
        // A folder that existed, or a setting that did not, is never acted upon.
        (Action::Folder { .. }, Some(_))
        | (Action::Beside { .. } | Action::Setting { .. }, None) => Ok(()),
    }
}
