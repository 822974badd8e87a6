//! The handle of a cold thread: one outside of the data path, which takes the batches of the workers (`batches.rs`). The process
//! wakes the thread, tells it to end, and waits for its end.
//! In: calls of workers, of the thread itself, and of the code that stops the process. Out: wake-ups; whether the thread must end.
//! Limits: when the process stops, it waits for the thread for at most `FLUSH_SPAN`.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::log;
use crate::threads::{self, Ended};

/// How long a stopping process waits for the last entries.
const FLUSH_SPAN: Duration = log::FLUSH_SPAN;
/// How often a stopping process checks whether the thread has ended.
const POLL_SPAN: Duration = Duration::from_millis(1);

/// The handle. The thread shares it with the parts of the process that wake or end it.
#[derive(Default)]
pub(crate) struct ColdThread {
    /// The process ends: the thread ends after its last work.
    ends: AtomicBool,
    /// The thread has ended.
    has_ended: AtomicBool,
    /// The thread; unset before it is started.
    thread: OnceLock<Thread>,
}

impl ColdThread {
    /// Starts the thread, which does `work`.
    ///
    /// # Errors
    /// The kernel refused the thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        name: &'static str,
        work: impl FnOnce() -> Ended + Send + 'static,
    ) -> io::Result<()> {
        let own = Arc::clone(self);
        let thread = move || {
            // Set before the thread can sleep, so that no wake-up is lost. The thread is started once.
            let _ = own.thread.set(thread::current());
            work()
        };
        threads::spawn(name, thread).map(drop)
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Whether the thread must end.
    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }

    /// The thread has done its last work. Returns how it ends.
    pub(crate) fn note_end(&self) -> Ended {
        self.has_ended.store(true, Ordering::SeqCst);
        Ended::AsPlanned
    }

    /// Waits until the thread has done its last work, for `FLUSH_SPAN` at most. No worker runs any more.
    pub(crate) fn finish(&self) {
        self.ends.store(true, Ordering::SeqCst);
        self.wake();
        let deadline = Instant::now() + FLUSH_SPAN;
        while !self.has_ended.load(Ordering::SeqCst) && Instant::now() < deadline {
            thread::sleep(POLL_SPAN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_does_its_last_work_before_the_process_ends() {
        let thread = Arc::new(ColdThread::default());
        let is_done = Arc::new(AtomicBool::new(false));
        let (own, done) = (Arc::clone(&thread), Arc::clone(&is_done));
        let work = move || {
            while !own.ends() {
                thread::park();
            }
            done.store(true, Ordering::SeqCst);
            own.note_end()
        };
        thread.start("test", work).expect("there is room for a thread");
        thread.finish();
        // A loaded machine may need longer than the end of a process waits.
        let begin = Instant::now();
        while !is_done.load(Ordering::SeqCst) {
            assert!(begin.elapsed() < Duration::from_secs(60), "the thread was not told to end");
            thread::sleep(POLL_SPAN);
        }
    }
}
