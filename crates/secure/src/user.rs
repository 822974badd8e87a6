//! Who uses the layer: the one above it, and the one who counts.
//! In: plain completions; events of sessions. Out: operations on the view that comes with them.

use std::sync::Arc;

use tidegate_base::{Moment, Span};
use tidegate_reactor::{Completion, ListenerId, Peer, Reactor, SockId};
use tidegate_wire::tls::{Fault, TlsSession};

/// Who stands above the layer.
pub trait User {
    /// Takes one completion; may call any operation of `reactor`.
    fn handle<R: Reactor>(&mut self, reactor: &mut R, completion: Completion<'_>);

    /// How long the next turn may wait, at most `wait_max`.
    fn wait(&self, wait_max: Span) -> Span {
        wait_max
    }

    /// Does what it left for the end of a turn.
    fn continue_after_turn<R: Reactor>(&mut self, _reactor: &mut R) {}

    /// A connection that this side began stands, and its handshake begins; `Connected` comes when that
    /// is done. `now` is read anew: handshakes of one turn take their time.
    fn handle_reached(&mut self, _sock: SockId, _now: Moment) {}

    /// Whether an accepted connection begins with something before its handshake: a PROXY header.
    fn expects_preface(&self, _listener: ListenerId, _peer: Peer) -> bool {
        false
    }

    /// Takes the received bytes that come before a handshake, all of them so far each time: how many of
    /// them are the preface, `None` while it is not complete.
    ///
    /// # Errors
    /// [`Refused`]: the connection ends. The user bounds how long a preface may be.
    fn handle_preface(&mut self, _sock: SockId, _bytes: &[u8]) -> Result<Option<usize>, Refused> {
        Err(Refused)
    }

    /// A handshake is done. Comes before `Connected`, and before the first plain bytes.
    fn handle_established(&mut self, _sock: SockId, _session: &mut TlsSession) {}

    /// For the log: the listener's name, and the client as far as it is known, of an accepted connection.
    fn client_of(&mut self, _sock: SockId) -> Option<(&str, Peer)> {
        None
    }

    /// TLS failed; `Closed` comes next.
    fn handle_fault(&mut self, _sock: SockId, _fault: Fault) {}
}

/// What came before the handshake is not what must come there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// What happens to sessions, for whoever counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A session began; it is there until `SessionGone`.
    SessionBegun,
    /// A session is no more.
    SessionGone,
    /// A handshake was done.
    HandshakeDone {
        /// It resumed an earlier session.
        resumed: bool,
    },
    /// A peer left in the middle of its handshake.
    HandshakeLeft,
    /// A handshake took too long.
    HandshakeTimedOut,
    /// A handshake waits for a later turn because this one had had enough of them.
    HandshakePutOff,
    /// A connection ended without saying so: its last message may have been cut.
    Truncated,
    /// TLS failed.
    Failed(Fault),
    /// An invariant of our own did not hold.
    Bug,
}

/// Who counts.
pub trait Ledger {
    /// Takes one event.
    fn count(&self, event: Event);

    /// Takes a line for the operator; the layer gives at most one a second of each sort.
    fn log(&self, _line: core::fmt::Arguments<'_>) {}
}

impl<L: Ledger> Ledger for Arc<L> {
    fn count(&self, event: Event) {
        L::count(self, event);
    }

    fn log(&self, line: core::fmt::Arguments<'_>) {
        L::log(self, line);
    }
}

/// Nobody counts.
impl Ledger for () {
    fn count(&self, _event: Event) {}
}
