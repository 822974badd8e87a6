//! The results of reloads, for the command that waits for one.
//! In: when a reload begins and ends. Out: the result of the next reload that begins.
//! Limits: a command waits for `WAIT_MAX`.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a command waits. Shorter than the timeout of `tidegate ctl`.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The reloads of the process.
#[derive(Default)]
pub(crate) struct Reloads {
    state: Mutex<State>,
    /// Notified when a reload ends.
    ended: Condvar,
}

/// The state that the thread of reloads and those of the interface share.
#[derive(Default)]
struct State {
    /// The number of reloads that have begun.
    begun: u64,
    /// The number of reloads that have ended.
    ended: u64,
    /// Why the last one changed nothing; `None`: it has succeeded.
    refusal: Option<String>,
}

impl Reloads {
    /// A reload begins to read files.
    pub(crate) fn begin(&self) {
        self.lock().begun += 1;
    }

    /// The reload that has begun last has ended.
    pub(crate) fn end(&self, refusal: Option<&str>) {
        let mut state = self.lock();
        state.ended = state.begun;
        state.refusal = refusal.map(str::to_owned);
        drop(state);
        self.ended.notify_all();
    }

    /// Makes the process reload, and waits for the result of a reload that reads the files after this call.
    ///
    /// # Errors
    /// The reload changed nothing, or takes too long.
    pub(super) fn wait_for(
        &self,
        order: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let state = self.lock();
        let before = state.begun;
        order()?;
        let waited = self.ended.wait_timeout_while(state, WAIT_MAX, |state| state.ended <= before);
        let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        match (&state.refusal, result.timed_out()) {
            (_, true) => Err("the reload takes long; the log will state its result".to_owned()),
            (Some(refusal), false) => Err(refusal.clone()),
            (None, false) => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn command_gets_the_result_of_the_reload_that_begins_after_it() {
        let reloads = Arc::new(Reloads::default());
        reloads.begin();
        let other = Arc::clone(&reloads);
        let mut worker = None;
        let result = reloads.wait_for(|| {
            worker = Some(thread::spawn(move || {
                other.end(None);
                other.begin();
                other.end(Some("line 3 is wrong"));
            }));
            Ok(())
        });
        assert_eq!(result, Err("line 3 is wrong".to_owned()));
        worker.expect("a thread").join().expect("it ends");
        assert_eq!(reloads.wait_for(|| Err("no signal".to_owned())), Err("no signal".to_owned()));
    }
}
