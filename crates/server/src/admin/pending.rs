//! Commands that wait for the thread that reloads: edits, certificates that are put in force, and reloads.
//! In: the command, whether its client is still served. Out: the outcome of the command.
//! Never: logs the client of an edit. The thread that makes the edit does, because the client may have left by then.
//! Limits: those of `LiveEdits::make` and `Reloads::wait_for`. A waiting client gives its place to others; see
//! `connection.rs`.

use std::sync::Arc;

use rustix::process::{Signal, getpid, kill_process};
use tidegate_config::live_edit::LiveEdit;
use tidegate_config::model::GivenCertificate;
use tidegate_reactor::signals;

use super::command::Outcome;
use super::command::Reply::Shown;
use super::edits::lost_in_upgrade;
use super::{Operations, SentCommand};
use crate::configuration::dropped_note;
use crate::live_edits::Edited;

/// A command that waits.
#[derive(Debug)]
pub(super) enum Pending {
    /// The configuration is to be edited.
    Edit(LiveEdit),
    /// Puts the staged certificate for this path into use.
    Certificate(String, Arc<GivenCertificate>),
    /// The configuration is to be read again.
    Reload,
    /// The program is to be started again.
    Upgrade,
}

impl Pending {
    /// Runs the command `sent`. `was_ended`: its connection was closed for a new one.
    pub(super) fn run(
        self,
        operations: &Operations,
        sent: SentCommand,
        was_ended: &dyn Fn() -> bool,
    ) -> Outcome {
        let make = |edit, sent| operations.edits.make((edit, sent), was_ended);
        match self {
            Self::Edit(edit) => {
                let text = edit.to_string();
                Ok(Shown(match make(edit, sent)? {
                    Edited::Changed => String::new(),
                    Edited::AddedRoute(name) => format!("# route {name}\n"),
                    Edited::Unchanged => format!("# nothing to change: {text}\n"),
                }))
            }
            Self::Certificate(path, given) => {
                let edit = LiveEdit::SetCertificate { path: path.clone(), given: given.clone() };
                make(edit, sent)?;
                operations.staged.remove(&path, &given);
                Ok(Shown(format!("Committing {path}.\nSuccess!\n")))
            }
            Self::Reload => {
                let order = || {
                    // First, because the reload takes place even if the client leaves before its end.
                    sent.audit();
                    signals::request_reload()
                        .map_err(|error| format!("the reload cannot be requested: {error}"))
                };
                let dropped = operations.reloads.wait_for("reload", order, was_ended)?;
                let note = dropped_note(dropped).map_or_else(String::new, |note| note + "\n");
                Ok(Shown(note))
            }
            Self::Upgrade => {
                if operations.upgrades.is_in_progress() {
                    return Err("another new process is already being started".to_owned());
                }
                let order = || {
                    sent.audit();
                    kill_process(getpid(), Signal::USR2)
                        .map_err(|error| format!("the signal cannot be sent: {error}"))
                };
                operations.upgrades.wait_for("upgrade", order, was_ended)?;
                // Afterwards, because edits may have been made while the new process started.
                Ok(Shown(lost_in_upgrade(operations)))
            }
        }
    }
}
