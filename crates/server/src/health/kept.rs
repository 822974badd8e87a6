//! Connections that the prober keeps open between the checks of a server.
//! In: shortages of this process. Out: whether a connection may be kept.
//! Limits: one connection for each server, and `most` in all, so that a quarter of the prober's slots stays free for checks
//! over their own connections; none is kept for `SHORTAGE_SPAN` after this process lacked a descriptor or memory for a
//! check. The prober has no descriptor table of a worker, so its connections take none of the descriptors of clients.

use tidegate_base::{Moment, Span};
use tidegate_gate::probe::RestReader;
use tidegate_reactor::SockId;

/// How long no connection is kept after a shortage. Connections that were kept before it are closed by their next checks.
const SHORTAGE_SPAN: Span = Span::from_secs(10);

/// An open connection without a check.
#[derive(Debug)]
pub(super) struct Kept {
    /// The connection.
    pub(super) sock: SockId,
    /// The first check after this time is the last one over the connection.
    pub(super) until: Moment,
    /// Reads the rest of the last response, and how many bytes may still come; `None`: the response is complete.
    pub(super) rest: Option<Box<(RestReader, usize)>>,
}

/// How many connections are kept.
#[derive(Debug)]
pub(super) struct KeptBound {
    /// The number of kept connections.
    pub(super) count: usize,
    /// Maximum of `count`.
    most: usize,
    /// No connection is kept before this time.
    lacking_until: Moment,
}

impl KeptBound {
    /// No connection so far, for a prober with this many slots.
    pub(super) fn new(slots: usize) -> Self {
        Self { count: 0, most: slots - slots.div_ceil(4), lacking_until: Moment::ZERO }
    }

    /// Whether one more connection may be kept.
    pub(super) fn has_room(&self, now: Moment) -> bool {
        self.count < self.most && now >= self.lacking_until
    }

    /// This process lacks a resource for a check.
    pub(super) fn note_shortage(&mut self, now: Moment) {
        self.lacking_until = now.after(SHORTAGE_SPAN);
    }
}
