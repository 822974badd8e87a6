//! Wakes one worker from any thread, by a system call only when that worker sleeps.
//! In: `ring` by senders. Out: `Completion::Woken` in the worker's next turn, once for many rings.
//! Never: loses a ring. Limits: one eventfd a worker.
//! Invariant: a ring is pending until the worker takes it; a worker never sleeps over a pending ring.
//!
//! Ordering. `ring` writes `pending`, then reads `asleep`; the worker writes `asleep`, then reads
//! `pending`. All four are sequentially consistent, so there is one order of them in which at least
//! one side sees the other's write: either the sender sees the sleeper and writes the eventfd, or the
//! worker sees the ring and does not wait. What a sender did before `ring` (its push) is visible to
//! the worker after `take`: every change of `pending` is a read-modify-write, so the worker's one
//! synchronises with each ring before it, also with those that found the flag up and returned early.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

struct State {
    pending: AtomicBool,
    asleep: AtomicBool,
    event: Option<OwnedFd>,
}

/// Rings one worker; cheap to clone, for any thread.
#[derive(Clone)]
pub struct Waker(Arc<State>);

/// Makes `count` wakers, one for each worker.
///
/// A worker that has its own descriptor table (`worker::unshare_descriptor_table`) only has the
/// descriptors that existed when it took its copy. So call this in the starting thread, before any
/// worker starts: then every table holds every worker's eventfd under the same number.
///
/// # Errors
/// When the kernel gives no eventfd (descriptor limit, memory).
pub fn make_wakers(count: usize) -> io::Result<Vec<Waker>> {
    (0..count)
        .map(|_| {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Waker::new(Some(event)))
        })
        .collect()
}

impl Waker {
    /// A waker without an eventfd, for the simulator: nobody really sleeps there.
    pub(crate) fn without_event() -> Self {
        Self::new(None)
    }

    fn new(event: Option<OwnedFd>) -> Self {
        let (pending, asleep) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(State { pending, asleep, event }))
    }

    /// Makes the worker's next turn report `Woken`, and ends its sleep. Ring after the mail is in.
    pub fn ring(&self) {
        let state = &*self.0;
        if state.pending.swap(true, Ordering::SeqCst) || !state.asleep.load(Ordering::SeqCst) {
            return;
        }
        if let Some(event) = &state.event {
            // It fails only when the count would overflow; then it is readable already.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }

    /// The eventfd to watch. Edge-triggered watchers need never read it: each write is an edge.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        self.0.event.as_ref().map(AsFd::as_fd)
    }

    /// The worker is about to sleep; false when a ring is pending and it must not.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.0.asleep.store(true, Ordering::SeqCst);
        !self.0.pending.load(Ordering::SeqCst)
    }

    /// The worker is awake again; senders need no system call from here on.
    pub(crate) fn wake_up(&self) {
        self.0.asleep.store(false, Ordering::Relaxed);
    }

    /// Takes the pending ring, if there is one.
    pub(crate) fn take(&self) -> bool {
        self.0.pending.load(Ordering::Relaxed) && self.0.pending.swap(false, Ordering::SeqCst)
    }

    /// Whether a ring is pending.
    pub(crate) fn is_pending(&self) -> bool {
        self.0.pending.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rings_are_taken_once() {
        let waker = Waker::without_event();
        assert!(waker.fall_asleep());
        waker.wake_up();
        waker.ring();
        waker.ring();
        assert!(!waker.fall_asleep(), "a ring is pending");
        waker.wake_up();
        assert!(waker.is_pending());
        assert!(waker.take());
        assert!(!waker.take());
    }
}
