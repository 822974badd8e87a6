//! The results of reloads, or of upgrades, for the command that waits for one.
//! In: the begin and the end of each of them; the stop of the process. Out: the result of the next one that begins.
//! Limits: a command waits for `WAIT_MAX`, and no longer than until the process stops or its client is not served any longer.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a command waits. Shorter than the timeout of `tidegate ctl`.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// How often a command that waits looks whether its connection was closed for a new one.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// The reloads of the process, or its upgrades.
#[derive(Default)]
pub(crate) struct Reloads {
    state: Mutex<State>,
    /// Notified when a reload ends, or the process begins to stop.
    ended: Condvar,
}

/// The state that the thread of reloads and those of the interface share.
struct State {
    /// The number of reloads that have begun.
    begun: u64,
    /// The number of reloads that have ended.
    ended: u64,
    /// How many edits the last reload dropped, or why it changed nothing.
    result: Result<usize, String>,
    /// The process stops: no reload begins any more.
    is_stopping: bool,
}

impl Default for State {
    fn default() -> Self {
        Self { begun: 0, ended: 0, result: Ok(0), is_stopping: false }
    }
}

impl Reloads {
    /// A reload begins to read files.
    pub(crate) fn begin(&self) {
        self.lock().begun += 1;
    }

    /// The last reload has ended. `result`: how many edits by commands it dropped, or why it was refused.
    pub(crate) fn end(&self, result: Result<usize, &str>) {
        let mut state = self.lock();
        state.ended = state.begun;
        state.result = result.map_err(str::to_owned);
        drop(state);
        self.ended.notify_all();
    }

    /// The process stops, so no further reload begins, and waiting commands fail.
    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
        self.ended.notify_all();
    }

    /// Whether one has begun and not ended.
    pub(super) fn is_in_progress(&self) -> bool {
        let state = self.lock();
        state.ended < state.begun
    }

    /// Makes the process reload, and waits for the result of a reload that reads the files after this call. Returns how many
    /// edits it has dropped. `what`: the word for messages, "reload" or "upgrade". `was_ended`: the client does not wait any longer.
    ///
    /// # Errors
    /// The reload changed nothing or not all workers, or takes too long, or the process stops.
    pub(super) fn wait_for(
        &self,
        what: &str,
        order: impl FnOnce() -> Result<(), String>,
        was_ended: &dyn Fn() -> bool,
    ) -> Result<usize, String> {
        let mut state = self.lock();
        let before = state.begun;
        order()?;
        let deadline = Instant::now() + WAIT_MAX;
        while state.ended <= before && !state.is_stopping && Instant::now() < deadline {
            let waited = self.ended.wait_timeout(state, POLL_EVERY);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if was_ended() {
                break;
            }
        }
        match &state.result {
            _ if state.ended <= before => Err(match state.is_stopping {
                true => format!("the process is stopping, so it does not {what}"),
                false => format!("the {what} is still in progress; the result will be in the log"),
            }),
            result => result.clone(),
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
        let order = || {
            worker = Some(thread::spawn(move || {
                other.end(Ok(2));
                other.begin();
                other.end(Err("line 3 is wrong"));
            }));
            Ok(())
        };
        let result = reloads.wait_for("reload", order, &|| false);
        assert_eq!(result, Err("line 3 is wrong".to_owned()));
        worker.expect("a thread").join().expect("it ends");
        assert!(!reloads.is_in_progress());
        let refused = reloads.wait_for("reload", || Err("no signal".to_owned()), &|| false);
        assert_eq!(refused, Err("no signal".to_owned()));
        let began = Instant::now();
        let left = reloads.wait_for("reload", || Ok(()), &|| true);
        assert!(left.expect_err("no reload begins").contains("still in progress"));
        assert!(began.elapsed() < WAIT_MAX, "a client that was disconnected is not waited for");
    }

    #[test]
    fn command_does_not_wait_for_a_process_that_stops() {
        let reloads = Arc::new(Reloads::default());
        let (other, mut main) = (Arc::clone(&reloads), None);
        let began = std::time::Instant::now();
        let stopping = Err("the process is stopping, so it does not reload".to_owned());
        let order = || {
            main = Some(thread::spawn(move || other.stop()));
            Ok(())
        };
        let result = reloads.wait_for("reload", order, &|| false);
        assert_eq!(result, stopping);
        main.expect("a thread").join().expect("it ends");
        assert_eq!(reloads.wait_for("reload", || Ok(()), &|| false), stopping, "nor afterwards");
        assert!(began.elapsed() < WAIT_MAX);
    }
}
