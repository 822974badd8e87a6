//! Output that a peer is slow to take: when it counts as blocked, and how long the peer may take nothing.
//! In: the pending output of a connection, its timeout. Out: whether producers must pause; the time of the next check.
//! Never: gives up a peer that takes any byte within the timeout, however little the kernel reports.

use tidegate_base::limits::{INPUT_PAUSE_BYTES, OUTPUT_PAUSE_BYTES};
use tidegate_base::{Moment, Span};
use tidegate_reactor::{OutputProgress, Reactor, SockId};

/// Whether `sock` has output that its peer does not read fast enough.
pub(crate) fn is_blocked<R: Reactor>(reactor: &mut R, sock: SockId) -> bool {
    if reactor.output_pending(sock) < OUTPUT_PAUSE_BYTES {
        return false;
    }
    reactor.flush(sock);
    reactor.output_pending(sock) > 0
}

/// Whether `sock` has so much output that no more of its peer's requests must be handled. Bodies of responses, which
/// pause earlier, do not reach this.
pub(crate) fn is_flooded<R: Reactor>(reactor: &mut R, sock: SockId) -> bool {
    if reactor.output_pending(sock) < INPUT_PAUSE_BYTES {
        return false;
    }
    reactor.flush(sock);
    reactor.output_pending(sock) >= INPUT_PAUSE_BYTES
}

/// How often blocked output is checked within its timeout.
const CHECKS_PER_TIMEOUT: u32 = 4;

/// The time until the next check of blocked output, whose peer must take some of it within `timeout`.
pub(crate) fn check_span(timeout: Span) -> Span {
    timeout / CHECKS_PER_TIMEOUT
}

/// Checks output that its peer is slow to take. Returns when to check again, or `None` if the peer has taken nothing for
/// `timeout` or nothing is pending. The progress before the first check is unknown, so the timeout expires up to a quarter late.
pub(crate) fn next_output_check<R: Reactor>(
    reactor: &mut R,
    sock: SockId,
    timeout: Span,
) -> Option<Moment> {
    next_check_after(reactor.check_output_progress(sock), reactor.now(), timeout)
}

/// As `next_output_check`, with the progress of the output.
pub(crate) fn next_check_after(
    progress: OutputProgress,
    now: Moment,
    timeout: Span,
) -> Option<Moment> {
    match progress {
        OutputProgress::Idle => None,
        OutputProgress::Emptied => Some(now.after(timeout)),
        OutputProgress::Pending { moved_at } => {
            let expires_at = moved_at.after(timeout);
            (expires_at > now).then(|| expires_at.min(now.after(check_span(timeout))))
        }
    }
}
