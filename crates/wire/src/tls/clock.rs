//! The wall clock of TLS, for the validity of certificates and tickets.
//! In: seconds that a worker read. Out: the same seconds, for verifiers.
//! Never: reads the system's clock.
//! Invariant: before the first `set` there is no time, so no certificate is accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// A clock that its owner sets. Clones share the time; 0 means that it is not set.
#[derive(Clone, Debug, Default)]
pub struct TlsClock(Arc<AtomicU64>);

impl TlsClock {
    /// Sets the time, in seconds since 1970. Writes only if the time differs, so that workers that share the
    /// clock contend for its cache line at most once a second.
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
