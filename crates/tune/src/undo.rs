//! Undoes the journaled changes, newest first.
//! In: a host, the open journal. Out: the outcome of each step.
//! Never: reports a tool's change as restored if the state differs from the previous state;
//! undoes on one host a change that was made on another;
//! overwrites a value that was changed after Tidegate's change: it is reported and stays in the journal.

use crate::action::{Action, same};
use crate::apply::{boot_id, remove_draft, replace_file, run};
use crate::host::{Host, Unreadable};
use crate::journal::{Journal, JournalError, Progress, Step};
use std::fs;

/// The outcome of undoing a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoResult {
    /// The previous state was already in effect: the step was never performed, or a reboot reset it.
    AlreadyBack,
    /// The value was changed since and is left as it is; contains the current value.
    ChangedSince(String),
    /// The value cannot be read, written or verified, with the reason. The step stays in the journal.
    Failed(String),
    /// The previous state was restored.
    Restored,
}

/// One step in the result of `tune undo`.
#[derive(Clone, Debug)]
pub struct Undone {
    /// The step.
    pub step: Step,
    /// The outcome.
    pub fate: UndoResult,
    /// Whether the machine was rebooted since the step.
    pub restarted: bool,
}

impl Undone {
    /// Whether the step was not undone and stays in the journal.
    #[must_use]
    pub const fn is_left(&self) -> bool {
        matches!(self.fate, UndoResult::ChangedSince(_) | UndoResult::Failed(_))
    }
}

/// Undoes all outstanding steps.
///
/// # Errors
/// [`JournalError`] if the journal belongs to another host (nothing is changed), or cannot be written (the steps
/// undone until then stay undone).
pub fn undo(host: &Host, journal: &mut Journal) -> Result<Vec<Undone>, JournalError> {
    let undone = undo_after(host, journal, 0)?;
    journal.tidy()?;
    Ok(undone)
}

/// Undoes the steps with a number above `last`.
///
/// # Errors
/// As [`undo`].
pub fn undo_after(
    host: &Host,
    journal: &mut Journal,
    last: u64,
) -> Result<Vec<Undone>, JournalError> {
    journal.check_root(&host.root_name())?;
    let boot = boot_id(host);
    let steps: Vec<Step> =
        journal.outstanding().iter().rev().filter(|step| step.number > last).cloned().collect();
    let mut fates: Vec<Undone> = Vec::with_capacity(steps.len());
    for step in steps {
        let restarted = step.boot != boot;
        // A reboot reset the side effects of a tool; the current value was set by another program.
        let is_gone = restarted && !step.action.acts();
        let fate = if is_gone {
            Ok(UndoResult::AlreadyBack)
        } else if !step.action.acts() && tool_call_is_left(&step, &fates) {
            keep_side_effect(host, &step)
        } else {
            undo_step(host, &step)
        };
        let fate = fate.unwrap_or_else(|error| UndoResult::Failed(error.to_string()));
        if matches!(fate, UndoResult::AlreadyBack | UndoResult::Restored) {
            journal.undone(step.number)?;
        }
        fates.push(Undone { step, fate, restarted });
    }
    Ok(fates)
}

/// Whether the tool call for which a setting was saved is still in effect. The setting must then not be restored.
fn tool_call_is_left(side_effect: &Step, newer: &[Undone]) -> bool {
    newer
        .iter()
        .rfind(|undone| undone.step.action.acts())
        .is_some_and(|call| call.step.item == side_effect.item && call.is_left())
}

fn keep_side_effect(host: &Host, step: &Step) -> Result<UndoResult, Unreadable> {
    let now = step.action.state(host)?;
    if agree(&step.action, now.as_deref(), step.before.as_deref()) {
        // Kept until the tool call is undone, which may change the setting again.
        return Ok(UndoResult::Failed(
            "stays in the journal until the tool call before which it was saved is undone"
                .to_owned(),
        ));
    }
    Ok(UndoResult::ChangedSince(now.unwrap_or_default().trim().to_owned()))
}

fn undo_step(host: &Host, step: &Step) -> Result<UndoResult, Unreadable> {
    let action = &step.action;
    if let Action::File { path, .. } = action {
        remove_draft(host, path);
    }
    let now = action.state(host)?;
    if agree(action, now.as_deref(), step.before.as_deref()) {
        return Ok(UndoResult::AlreadyBack);
    }
    let ours = match &step.progress {
        // The tool call was undone just before, and that may have changed the setting again.
        _ if !action.acts() => true,
        Progress::Done(after) => agree(action, now.as_deref(), after.as_deref()),
        // Killed between the `begun` and the `done` record. The effect of a tool cannot be derived from its
        // command, but a change by another program in that instant is unlikely.
        Progress::Begun => {
            action.is_reached_by(now.as_deref()) || matches!(action, Action::Run { .. })
        }
    };
    if !ours {
        let value = now.map_or_else(|| "(missing)".to_owned(), |now| now.trim().to_owned());
        return Ok(UndoResult::ChangedSince(value));
    }
    restore(host, action, step.before.as_deref())?;
    // A tool that succeeds may have restored only a part (for example, a discipline without its options).
    if matches!(action, Action::Run { .. }) && action.state(host)? != step.before {
        let before = step.before.as_deref().unwrap_or("(nothing)").trim();
        return Ok(UndoResult::Failed(format!(
            "`{}` succeeded, but the state differs from the previous state {before:?}",
            action.undo_text()
        )));
    }
    Ok(UndoResult::Restored)
}

fn agree(action: &Action, one: Option<&str>, other: Option<&str>) -> bool {
    match (action, one, other) {
        (Action::SideEffect { path } | Action::Setting { path, .. }, Some(one), Some(other)) => {
            same(path, one, other)
        }
        _ => one == other,
    }
}

fn restore(host: &Host, action: &Action, before: Option<&str>) -> Result<(), Unreadable> {
    match (action, before) {
        (Action::Folder { path }, None) => match fs::remove_dir(host.locate_entry(path)?) {
            // The directory contains a file of another program, so the directory stays.
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
            result => result.map_err(|error| Unreadable::file(path, &error)),
        },
        (Action::File { path, .. }, None) => fs::remove_file(host.locate_entry(path)?)
            .map_err(|error| Unreadable::file(path, &error)),
        (Action::File { path, .. }, Some(before)) => replace_file(host, path, before),
        (Action::Run { undo, .. }, _) => run(host, undo),
        (Action::SideEffect { path } | Action::Setting { path, .. }, Some(before)) => {
            host.write_setting(path, before)
        }
        // An existing directory or a missing setting is never changed.
        (Action::Folder { .. }, Some(_))
        | (Action::SideEffect { .. } | Action::Setting { .. }, None) => Ok(()),
    }
}
