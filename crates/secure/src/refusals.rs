//! The log of refused clients: how often, and with which address.
//! In: the time of a refusal. Out: whether it is logged, and how many were left out before it.
//! Limits: one line in `LOG_EVERY`.

use tidegate_base::Moment;
use tidegate_reactor::Peer;

use crate::layer::LOG_EVERY;

/// Limits how often refused clients are logged.
#[derive(Default)]
pub(crate) struct RefusalLog {
    /// When a refused client was last logged.
    logged: Option<Moment>,
    /// Refused clients since then that were not logged.
    left_out: u64,
}

impl RefusalLog {
    /// If a refused client may be logged now, the number of refused clients left out since the last line.
    pub(crate) fn admit(&mut self, now: Moment) -> Option<u64> {
        if self.logged.is_some_and(|at| now.since(at) < LOG_EVERY) {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.logged = Some(now);
        Some(core::mem::take(&mut self.left_out))
    }
}

/// Formats a client's address for the log.
pub(crate) struct ClientForLog(pub(crate) Peer);

impl core::fmt::Display for ClientForLog {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Peer::Tcp(address) => write!(f, "client {address}"),
            Peer::Local => f.write_str("client on a unix socket"),
        }
    }
}
