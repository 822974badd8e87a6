//! Does an item's actions, each journaled first; an item is done whole or not at all.
//! In: a host, the open journal, actions. Out: how many were done, or what failed (and was put back).
//! Never: acts without the state before on disk; replaces a file that persists in two steps.
//! Invariant: at every instant, a kill leaves a journal from which `undo` restores what was there.

use crate::action::Action;
use crate::host::{Cause, Host, Unreadable, run_tool};
use crate::journal::{Journal, JournalError, sync_folder};
use crate::undo;
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Places where a test may end the work as a kill would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before the journal knows of the step.
    BeforeJournal,
    /// The journal knows; nothing is done yet.
    BeforeAction,
    /// Done; the journal does not know yet.
    AfterAction,
    /// The journal knows that it is done.
    AfterJournal,
}

/// Asked at each point; true ends the work there and then, nothing is put back.
pub type Killer<'a> = &'a mut dyn FnMut(Point) -> bool;

/// Why an item was not applied.
#[derive(Debug)]
pub enum ApplyError {
    /// An action failed; those before it were put back.
    Action(Unreadable),
    /// An action failed, and what the second names, done before it, could not be put back.
    HalfDone(Unreadable, String),
    /// The journal cannot be written.
    Journal(JournalError),
    /// Ended by the [`Killer`].
    Killed,
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Action(error) => write!(f, "{error}; what was begun for this item is put back"),
            Self::HalfDone(error, target) => write!(
                f,
                "{error}; what was begun for this item could NOT all be put back: {target}; `tidegate tune undo` says \
                 why and tries again"
            ),
            Self::Journal(error) => error.fmt(f),
            Self::Killed => write!(f, "ended in the middle"),
        }
    }
}

impl std::error::Error for ApplyError {}

impl From<JournalError> for ApplyError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// Does one item's actions in order. An action whose target already is as wanted is left out.
///
/// # Errors
/// [`ApplyError`]; unless killed or half done, the host is as before.
pub fn apply(
    host: &Host,
    journal: &mut Journal,
    item: &str,
    actions: &[Action],
    killed: Killer<'_>,
) -> Result<usize, ApplyError> {
    journal.is_of(&host.root_name())?;
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
    // Some drivers (virtio_net's moderation) say yes to a call and do nothing.
    let is_unchanged = action.acts() && after == before;
    journal.done(step, after)?;
    if is_unchanged {
        let what = action.command_text();
        return Err(ApplyError::Action(Unreadable { what, cause: Cause::Ineffective }));
    }
    check(Point::AfterJournal)?;
    Ok(action.acts())
}

/// Does an action.
fn perform(host: &Host, action: &Action) -> Result<(), Unreadable> {
    match action {
        Action::Beside { .. } => Ok(()),
        Action::Folder { path } => {
            fs::create_dir(host.locate_entry(path)?).map_err(|error| Unreadable::file(path, &error))
        }
        Action::File { path, text } => replace_file(host, path, text),
        Action::Run { argv, .. } => run(host, argv),
        Action::Setting { path, value } => host.write_setting(path, value),
    }
}

/// Runs a tool that changes the host; refused on a recorded one.
pub(crate) fn run(host: &Host, argv: &[String]) -> Result<(), Unreadable> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    if !host.is_live() {
        let what = words.first().copied().unwrap_or_default().to_owned();
        let cause = Cause::Odd("a recorded host runs no tools".to_owned());
        return Err(Unreadable { what, cause });
    }
    run_tool(&words).map(drop)
}

/// Puts a whole file in place in one step: what is there after a crash is the old or the new one.
pub(crate) fn replace_file(host: &Host, path: &str, text: &str) -> Result<(), Unreadable> {
    let target = host.locate_entry(path)?;
    let folder = target.parent().unwrap_or(Path::new("/")).to_owned();
    let draft = draft_of(&target);
    let _ = fs::remove_file(&draft);
    // A new file: a link in its place would be written through.
    let written = fs::File::create_new(&draft)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, &target))
        .and_then(|()| sync_folder(&folder));
    written.map_err(|error| {
        let _ = fs::remove_file(&draft);
        Unreadable::file(path, &error)
    })
}

/// Removes what a kill between writing and renaming left.
pub(crate) fn remove_draft(host: &Host, path: &str) {
    if let Ok(target) = host.locate_entry(path) {
        let _ = fs::remove_file(draft_of(&target));
    }
}

fn draft_of(target: &Path) -> PathBuf {
    target.with_extension("tidegate-new")
}

/// Names the running boot, so that `undo` can say that the machine was restarted since.
#[must_use]
pub fn boot_id(host: &Host) -> String {
    host.read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}
