//! Wakes one worker from any thread, with a system call only if the worker is asleep.
//! In: `wake` by senders. Out: `Completion::Woken` in the worker's next turn, once for any number of wake-ups.
//! Never: loses a wake-up. Limits: one eventfd for each worker.
//! Invariant: a wake-up is pending until the worker takes it. A worker never sleeps while a wake-up is pending.
//!
//! Ordering: `wake` writes `pending`, then reads `asleep`; the worker writes `asleep`, then reads `pending`. All four accesses
//! are sequentially consistent, so at least one side sees the other's write: either the sender sees that the worker is asleep and
//! writes the eventfd, or the worker sees the wake-up and does not wait. The sender's writes before `wake` (its push) are visible
//! to the worker after `take`: every change of `pending` is a read-modify-write, so the worker's own change synchronises with
//! each wake-up before it, including those that found the flag already set and returned early.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

struct State {
    /// A wake-up that the worker has not taken yet.
    pending: AtomicBool,
    /// The worker waits or is about to wait.
    asleep: AtomicBool,
    /// The eventfd that ends the worker's wait; `None` in the simulator.
    event: Option<OwnedFd>,
}

/// Wakes one worker. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Waker(Arc<State>);

/// Makes `count` wakers, one for each worker.
///
/// A worker with its own descriptor table (`worker::unshare_descriptor_table`) has only the descriptors that
/// existed when the table was copied. So call this in the starting thread before any worker starts: then
/// every table contains every worker's eventfd under the same number.
///
/// # Errors
/// If the kernel cannot create an eventfd (descriptor limit, memory).
pub fn make_wakers(count: usize) -> io::Result<Vec<Waker>> {
    (0..count)
        .map(|_| {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Waker::new(Some(event)))
        })
        .collect()
}

impl Waker {
    /// Creates a waker without an eventfd, for the simulator, where no thread sleeps.
    pub(crate) fn without_event() -> Self {
        Self::new(None)
    }

    fn new(event: Option<OwnedFd>) -> Self {
        let (pending, asleep) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(State { pending, asleep, event }))
    }

    /// Ends the worker's sleep and makes its next turn report `Woken`. Call this after storing the message.
    pub fn wake(&self) {
        let state = &*self.0;
        if state.pending.swap(true, Ordering::SeqCst) || !state.asleep.load(Ordering::SeqCst) {
            return;
        }
        if let Some(event) = &state.event {
            // This fails only if the count would overflow; the eventfd is then already readable.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }

    /// The eventfd to watch. An edge-triggered watcher never has to read it: each write causes an edge.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        self.0.event.as_ref().map(AsFd::as_fd)
    }

    /// Called before the worker sleeps. Returns false if a wake-up is pending, so that it must not sleep.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.0.asleep.store(true, Ordering::SeqCst);
        !self.0.pending.load(Ordering::SeqCst)
    }

    /// Called when the worker is awake again. From now on, senders make no system call.
    pub(crate) fn wake_up(&self) {
        self.0.asleep.store(false, Ordering::Relaxed);
    }

    /// Takes the pending wake-up; false if there is none.
    pub(crate) fn take(&self) -> bool {
        self.0.pending.load(Ordering::Relaxed) && self.0.pending.swap(false, Ordering::SeqCst)
    }

    /// Whether a wake-up is pending.
    pub(crate) fn is_pending(&self) -> bool {
        self.0.pending.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_wake_ups_are_taken_as_one() {
        let waker = Waker::without_event();
        assert!(waker.fall_asleep());
        waker.wake_up();
        waker.wake();
        waker.wake();
        assert!(!waker.fall_asleep(), "a wake-up is pending");
        waker.wake_up();
        assert!(waker.is_pending());
        assert!(waker.take());
        assert!(!waker.take());
    }
}
