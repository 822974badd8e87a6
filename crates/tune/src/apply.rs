//! Applies the actions of an item, each journaled first. An item is applied completely or not at all.
//! In: a host, the open journal, actions. Out: the number of actions performed, or the failure (with the actions
//! undone).
//! Never: acts before the previous state is on disk; replaces a file that persists in two steps.
//! Invariant: if the process is killed at any instant, `undo` can restore the previous state from the journal.

use crate::action::Action;
use crate::host::{Cause, Host, Unreadable, run_tool};
use crate::journal::{Journal, JournalError, sync_folder};
use crate::undo;
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Points at which a test may stop the work as a kill would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before the step is in the journal.
    BeforeJournal,
    /// The step is in the journal, the action is not performed yet.
    BeforeAction,
    /// The action is performed, the journal does not record that yet.
    AfterAction,
    /// The journal records that the action was performed.
    AfterJournal,
}

/// Called at each point; if it returns true, the work stops at once and nothing is undone.
pub type Killer<'a> = &'a mut dyn FnMut(Point) -> bool;

/// Why an item was not applied.
#[derive(Debug)]
pub enum ApplyError {
    /// An action failed; the actions before it were undone.
    Action(Unreadable),
    /// An action failed, and an action before it could not be undone; the second value names its target.
    HalfDone(Unreadable, String),
    /// The journal cannot be written.
    Journal(JournalError),
    /// Stopped by the [`Killer`].
    Killed,
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Action(error) => write!(f, "{error}; the other changes of this item were undone"),
            Self::HalfDone(error, target) => write!(
                f,
                "{error}; not all changes of this item could be undone: {target} is still changed; run \
                 `tidegate tune undo`, with the same --state and --root, to see the reason and to try again"
            ),
            Self::Journal(error) => error.fmt(f),
            Self::Killed => write!(f, "stopped before the end"),
        }
    }
}

impl std::error::Error for ApplyError {}

impl From<JournalError> for ApplyError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// Applies the actions of one item in order. An action already in effect is left out.
///
/// # Errors
/// [`ApplyError`]; unless it is `Killed` or `HalfDone`, the host is as before.
pub fn apply(
    host: &Host,
    journal: &mut Journal,
    item: &str,
    actions: &[Action],
    killed: Killer<'_>,
) -> Result<usize, ApplyError> {
    journal.check_root(&host.root_name())?;
    let boot = boot_id(host);
    let first = journal.outstanding().last().map_or(0, |step| step.number);
    let mut done = 0;
    for action in actions {
        match apply_one(host, journal, item, &boot, action, killed) {
            Ok(acted) => done += usize::from(acted),
            Err(ApplyError::Action(error)) => {
                let fates = undo::undo_after(host, journal, first)?;
                return Err(match fates.iter().find(|undone| undone.is_left()) {
                    Some(left) => ApplyError::HalfDone(error, left.step.action.target()),
                    None => ApplyError::Action(error),
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn apply_one(
    host: &Host,
    journal: &mut Journal,
    item: &str,
    boot: &str,
    action: &Action,
    killed: Killer<'_>,
) -> Result<bool, ApplyError> {
    let mut check = |point| {
        if killed(point) { Err(ApplyError::Killed) } else { Ok(()) }
    };
    let before = action.state(host).map_err(ApplyError::Action)?;
    if action.is_reached_by(before.as_deref()) {
        return Ok(false);
    }
    check(Point::BeforeJournal)?;
    let step = journal.begin(&host.root_name(), item, boot, action, before.clone())?;
    check(Point::BeforeAction)?;
    perform(host, action).map_err(ApplyError::Action)?;
    check(Point::AfterAction)?;
    let after = action.state(host).map_err(ApplyError::Action)?;
    // Some drivers (virtio_net for interrupt moderation) accept a call and do nothing.
    let is_unchanged = action.acts() && after == before;
    journal.done(step, after)?;
    if is_unchanged {
        let what = action.command_text();
        return Err(ApplyError::Action(Unreadable { what, cause: Cause::Ineffective }));
    }
    check(Point::AfterJournal)?;
    Ok(action.acts())
}

/// Performs an action.
fn perform(host: &Host, action: &Action) -> Result<(), Unreadable> {
    match action {
        Action::SideEffect { .. } => Ok(()),
        Action::Folder { path } => {
            fs::create_dir(host.locate_entry(path)?).map_err(|error| Unreadable::file(path, &error))
        }
        Action::File { path, text } => replace_file(host, path, text),
        Action::Run { argv, .. } => run(host, argv),
        Action::Setting { path, value } => host.write_setting(path, value),
    }
}

/// Runs a tool that changes the host; refused on a recorded host.
pub(crate) fn run(host: &Host, argv: &[String]) -> Result<(), Unreadable> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    if !host.is_live() {
        let what = words.first().copied().unwrap_or_default().to_owned();
        let cause = Cause::Unexpected("tools cannot be run on a recorded host".to_owned());
        return Err(Unreadable { what, cause });
    }
    run_tool(&words).map(drop)
}

/// Replaces a file in one step: after a crash, either the old or the new file exists.
pub(crate) fn replace_file(host: &Host, path: &str, text: &str) -> Result<(), Unreadable> {
    let target = host.locate_entry(path)?;
    let folder = target.parent().unwrap_or(Path::new("/")).to_owned();
    let draft = draft_of(&target);
    let _ = fs::remove_file(&draft);
    // `create_new`, because `create` would follow a symbolic link at this path.
    let written = fs::File::create_new(&draft)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, &target))
        .and_then(|()| sync_folder(&folder));
    written.map_err(|error| {
        let _ = fs::remove_file(&draft);
        Unreadable::file(path, &error)
    })
}

/// Removes a draft that remains if the process was killed between writing and renaming.
pub(crate) fn remove_draft(host: &Host, path: &str) {
    if let Ok(target) = host.locate_entry(path) {
        let _ = fs::remove_file(draft_of(&target));
    }
}

fn draft_of(target: &Path) -> PathBuf {
    target.with_extension("tidegate-new")
}

/// The ID of the running boot, so that `undo` can report that the machine was rebooted since.
#[must_use]
pub fn boot_id(host: &Host) -> String {
    host.read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}
