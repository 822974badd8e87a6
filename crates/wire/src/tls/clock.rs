//! The wall clock of TLS: what certificates and tickets are judged by.
//! In: seconds that a worker read. Out: the same, to whoever verifies.
//! Never: asks the system. Invariant: before the first `set` there is no time, so nothing verifies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// A clock that its owner sets; clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct TlsClock(Arc<AtomicU64>);

impl TlsClock {
    /// Sets the time, in seconds since 1970. Writes only when it differs, so that workers that share the
    /// clock do not fight over it more than once a second.
    pub fn set(&self, unix_seconds: u64) {
        if self.0.load(Ordering::Relaxed) != unix_seconds {
            self.0.store(unix_seconds, Ordering::Relaxed);
        }
    }

    /// The time last set, in seconds since 1970; 0 before that.
    #[must_use]
    pub fn unix_seconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        match self.unix_seconds() {
            0 => None,
            seconds => Some(UnixTime::since_unix_epoch(core::time::Duration::from_secs(seconds))),
        }
    }
}
