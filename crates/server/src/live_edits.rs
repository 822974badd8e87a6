//! Edits of the configuration that commands request, on their way to the thread that reloads.
//! In: edits from the threads of the admin interface. Out: their results; the edits in force.
//! Never: begins an edit whose command has stopped waiting. Resolves a name on the thread that reloads: the addresses of a new
//! name are part of the edit.
//! Limits: `WAITING_MAX` edits wait; a command waits for `WAIT_MAX`, within that for names as `Lookups` states.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tidegate_config::arrange::Arranged;
use tidegate_config::live_edit::LiveEdit;
use tidegate_config::model::Config;

use crate::admin::SentCommand;
use crate::handover::Order;
use crate::resolve::{self, Found, Lookups, Server};

/// How many edits wait for the thread that reloads.
const WAITING_MAX: usize = 64;
/// How long a command waits, for names and for the edit together. Shorter than the timeout of `tidegate ctl`.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// How often a command that waits checks whether its connection was closed for a new one.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// An edit that a command requests.
#[derive(Debug)]
pub(crate) struct EditRequest {
    /// The edit.
    pub(crate) edit: LiveEdit,
    /// The addresses of the names that it adds.
    pub(crate) found: Found,
    /// The command, which is logged if the edit is made: its client may be gone by then.
    pub(crate) sent: SentCommand,
}

/// What an edit has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Edited {
    /// Nothing: the configuration was as the edit requests already.
    Unchanged,
    /// The configuration.
    Changed,
    /// The configuration, which has a route of this name by the edit.
    AddedRoute(String),
}

/// An edit, and what it has changed.
pub(crate) type EditOrder = Order<EditRequest, Edited>;

/// The edits of the process.
#[derive(Default)]
pub(crate) struct LiveEdits {
    waiting: Mutex<VecDeque<Arc<EditOrder>>>,
    /// The edits in force, as the commands that would repeat them.
    in_force: Mutex<Vec<String>>,
    /// Wakes the thread that reloads; set when it starts.
    event: OnceLock<OwnedFd>,
    /// The lookups of names in edits.
    lookups: Lookups,
    /// The names in the configuration in force, which are resolved already.
    names: Mutex<BTreeSet<Server>>,
    /// The configuration in force.
    config: Mutex<Arc<Config>>,
}

impl LiveEdits {
    /// The thread that reloads takes edits from now on; `event` wakes it.
    pub(crate) fn connect(&self, event: OwnedFd) {
        // There is one such thread, so that this is called once.
        let _ = self.event.set(event);
    }

    /// Makes an edit of the configuration, and waits for the result. `was_ended`: the client does not wait any longer.
    ///
    /// # Errors
    /// The edit was refused, not all workers use it, or it takes too long.
    pub(crate) fn make(
        &self,
        (edit, sent): (LiveEdit, SentCommand),
        was_ended: &dyn Fn() -> bool,
    ) -> Result<Edited, String> {
        let Some(event) = self.event.get() else {
            return Err("the process is still starting; help: try again".to_owned());
        };
        let deadline = Instant::now() + WAIT_MAX;
        let found = self.resolve(&edit, was_ended);
        if was_ended() {
            return Err("the connection was closed for a new client".to_owned());
        }
        let (order, result) = Order::new(EditRequest { edit, found, sent });
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= WAITING_MAX {
            return Err(format!("too many changes wait ({WAITING_MAX}); help: try again"));
        }
        waiting.push_back(Arc::clone(&order));
        drop(waiting);
        // A write fails only if the counter is full, and then the thread wakes anyway.
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        while Instant::now() < deadline && !was_ended() {
            match result.recv_timeout(POLL_EVERY) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the change was not made".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Err(match order.take() {
            Some(_) => {
                lock(&self.waiting).retain(|other| !Arc::ptr_eq(other, &order));
                "an earlier change or reload is still in progress, so this change was not made; help: try again"
            }
            None => "the change is still in progress; the result will be in the log",
        }
        .to_owned())
    }

    /// The addresses of the names in an edit, or why they have none. Names of the configuration in force keep their addresses.
    fn resolve(&self, edit: &LiveEdit, was_ended: &dyn Fn() -> bool) -> Found {
        let mut names: BTreeSet<Server> =
            edit.added_addresses().iter().filter_map(resolve::name_of).collect();
        let known = lock(&self.names);
        names.retain(|name| !known.contains(name));
        drop(known);
        let config = Arc::clone(&lock(&self.config));
        self.lookups.find(names, &config, was_ended)
    }

    /// The edits that wait, in their order.
    pub(crate) fn take(&self) -> VecDeque<Arc<EditOrder>> {
        core::mem::take(&mut *lock(&self.waiting))
    }

    /// The edits in force, as commands.
    pub(crate) fn in_force(&self) -> Vec<String> {
        lock(&self.in_force).clone()
    }

    /// A configuration comes into force.
    pub(crate) fn note_names(&self, arranged: &Arranged) {
        *lock(&self.names) = resolve::names_of(arranged);
        *lock(&self.config) = Arc::clone(&arranged.config);
    }

    /// Notes the edits in force.
    pub(crate) fn note(&self, edits: &[LiveEdit]) {
        *lock(&self.in_force) = edits.iter().map(ToString::to_string).collect();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn edit(listener: &str) -> LiveEdit {
        LiveEdit::SwitchListener { listener: listener.to_owned(), on: false }
    }

    fn sent() -> SentCommand {
        SentCommand { from: "the test".to_owned(), command: "edit".to_owned() }
    }

    #[test]
    fn commands_get_the_results_of_their_own_edits() {
        let edits = LiveEdits::default();
        let make = |edits: &LiveEdits, name| edits.make((edit(name), sent()), &|| false);
        assert!(make(&edits, "early").is_err(), "no thread takes edits yet");
        edits.connect(eventfd(0, EventfdFlags::CLOEXEC).expect("a counter"));
        let refused = || Err("no such listener".to_owned());
        thread::scope(|scope| {
            let edits = &edits;
            let commands: Vec<_> = ["a", "b"]
                .map(|name| (name, scope.spawn(move || make(edits, name))))
                .into_iter()
                .collect();
            let mut seen = 0;
            while seen < 2 {
                for order in edits.take() {
                    let taken = order.take().expect("the command waits");
                    order.report(if taken.edit == edit("a") {
                        Ok(Edited::Changed)
                    } else {
                        refused()
                    });
                    seen += 1;
                }
                thread::yield_now();
            }
            for (name, command) in commands {
                let result = command.join().expect("it ends");
                assert_eq!(
                    result,
                    if name == "a" { Ok(Edited::Changed) } else { refused() },
                    "{name}"
                );
            }
        });
    }

    #[test]
    fn edits_beyond_the_limit_are_refused() {
        let edits = LiveEdits::default();
        edits.connect(eventfd(0, EventfdFlags::CLOEXEC).expect("a counter"));
        let request = EditRequest { edit: edit("a"), found: Found::new(), sent: sent() };
        let (order, _result) = Order::new(request);
        lock(&edits.waiting).extend(std::iter::repeat_n(order, WAITING_MAX));
        let refusal = edits.make((edit("b"), sent()), &|| false);
        let refusal = refusal.expect_err("there is no room");
        assert!(refusal.contains("too many changes wait"), "{refusal}");
        assert_eq!(edits.take().len(), WAITING_MAX);
    }

    #[test]
    fn edit_of_a_client_that_was_disconnected_is_withdrawn() {
        let edits = LiveEdits::default();
        edits.connect(eventfd(0, EventfdFlags::CLOEXEC).expect("a counter"));
        let looks = std::cell::Cell::new(0);
        let was_ended = || looks.replace(looks.get() + 1) > 1;
        let began = Instant::now();
        let result = edits.make((edit("a"), sent()), &was_ended);
        assert!(result.expect_err("no thread takes it").contains("was not made"));
        assert!(edits.take().is_empty() && began.elapsed() < WAIT_MAX);
    }
}
