//! The mark of a thread: whether the thread's current work belongs to the profile.
//! In: calls of the thread. Out: the mark, for a signal handler that interrupts the thread.
//! Never: needs initialisation or memory at its first use, which a signal handler must not do.

use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Only its thread, and signal handlers that run on this thread, use it.
    static IS_MARKED: AtomicBool = const { AtomicBool::new(false) };
}

/// From now on, the work of the calling thread belongs to the profile, or does not.
#[inline]
pub fn mark_thread(is_marked: bool) {
    IS_MARKED.with(|mark| mark.store(is_marked, Ordering::Relaxed));
}

/// Whether the calling thread is marked. May be called by a signal handler.
#[inline]
#[must_use]
pub fn is_thread_marked() -> bool {
    IS_MARKED.with(|mark| mark.load(Ordering::Relaxed))
}
