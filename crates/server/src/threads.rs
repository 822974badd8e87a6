//! The threads of a serving process. Each is started here. If one of them ends unexpectedly, the process ends.
//! In: a name and the work. Out: a thread under guard; if it ends unexpectedly, one log line and exit status 1.
//! Never: lets the process continue with only some of its threads. The allocator's own threads
//! (`jemalloc_bg_thd`), which return memory to the system, run no code of this program. They block all
//! signals. They are not pinned, because the first of them starts before the workers and starts the others.
//! Invariant: no other file of this crate starts a thread (`cargo xtask tidy` checks this).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use crate::log;

/// How the work of a thread ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Its owner has requested its end.
    AsPlanned,
    /// It cannot continue, for this reason.
    Failed(&'static str),
}

/// Starts a thread. If its work panics or fails, the process logs that and exits with status 1.
///
/// # Errors
/// The kernel refused the thread.
pub(crate) fn spawn(
    name: impl Into<String>,
    work: impl FnOnce() -> Ended + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let name = name.into();
    let guarded = {
        let name = name.clone();
        move || {
            guard(&name, work, || exit());
        }
    };
    Builder::new().name(name).spawn(guarded)
}

/// Runs the work of the main thread; if it panics, the process logs that and exits with status 1.
pub(crate) fn guard_main<T>(work: impl FnOnce() -> T) -> T {
    let mut result = None;
    let work = || {
        result = Some(work());
        Ended::AsPlanned
    };
    guard("main", work, || exit());
    match result {
        Some(result) => result,
        None => exit(),
    }
}

/// Runs `work` and calls `end` if it panics or fails.
fn guard(name: &str, work: impl FnOnce() -> Ended, end: impl FnOnce()) {
    // The process ends after a panic, so nothing observes state that the panic left incomplete.
    let reason = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ended::AsPlanned) => return,
        Ok(Ended::Failed(reason)) => reason,
        Err(_) => "it panicked",
    };
    log::urgent(format_args!("the process exits, because thread {name} ended: {reason}"));
    end();
}

fn exit() -> ! {
    log::flush();
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set for the copy of this test program that runs `thread_that_panics`.
    const AS_CHILD: &str = "TIDEGATE_TEST_THREAD";

    #[test]
    fn only_unexpected_ends_end_the_process() {
        let ends = |work: fn() -> Ended| {
            let mut ended = false;
            guard("test", work, || ended = true);
            ended
        };
        assert!(!ends(|| Ended::AsPlanned));
        assert!(ends(|| Ended::Failed("the test says so")));
        assert!(ends(|| panic!("on purpose")));
    }

    /// In the child process: a thread ends as the test requires, while the main thread waits forever.
    #[test]
    fn thread_that_ends() {
        let Ok(how) = std::env::var(AS_CHILD) else { return };
        log::start().expect("the log starts");
        let work = move || match how.as_str() {
            "panic" => panic!("the message of the panic"),
            _ => Ended::Failed("the test says so"),
        };
        spawn("worker-7", work).expect("a thread");
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn end_of_a_thread_is_reported_and_ends_the_process() {
        for (how, lines) in [
            ("panic", &["thread worker-7 panicked at ", ": the message of the panic\n"][..]),
            (
                "failure",
                &[" error the process exits, because thread worker-7 ended: the test says so\n"],
            ),
        ] {
            let program = std::env::current_exe().expect("the path of this program");
            let output = std::process::Command::new(program)
                .args(["--exact", "threads::tests::thread_that_ends", "--nocapture"])
                .env(AS_CHILD, how)
                .output()
                .expect("it runs");
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{how}: {text}");
            for line in lines {
                assert!(text.contains(line), "{how}: {text}");
            }
        }
    }
}
