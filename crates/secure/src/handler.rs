//! The two interfaces that a caller of the layer implements: the handler above the layer, and the observer.
//! In: completions with plain bytes; events of sessions. Out: operations on the view that is passed in.

use std::sync::Arc;

use tidegate_base::{CertificateChoice, Moment, Span};
use tidegate_reactor::{Completion, ListenerId, Peer, Reactor, Room, Shortage, SockId};
use tidegate_wire::tls::{CertificateFacts, Fault, TlsSession};

/// The code above the TLS layer. It receives completions with plain bytes.
pub trait LayerHandler {
    /// Takes one completion; may call any operation of `reactor`.
    fn handle<R: Reactor>(&mut self, reactor: &mut R, completion: Completion<'_>);

    /// As `Handler::note_next`.
    fn note_next(&mut self, _sock: Option<SockId>) {}

    /// As `Handler::has_room`.
    fn has_room<R: Reactor>(&self, _reactor: &R) -> bool {
        true
    }

    /// As `Handler::make_room`.
    fn make_room<R: Reactor>(&mut self, _reactor: &mut R, _shortage: Shortage) -> Room {
        Room::None
    }

    /// How long the next turn may wait, at most `wait_max`.
    fn wait(&self, wait_max: Span) -> Span {
        wait_max
    }

    /// Called at the end of each turn, for work that was left until then.
    fn continue_after_turn<R: Reactor>(&mut self, _reactor: &mut R) {}

    /// Called after `continue_after_turn` and the completions that it has caused: sends output that was gathered since. Returns
    /// whether there was any.
    fn send_after_turn<R: Reactor>(&mut self, _reactor: &mut R) -> bool {
        false
    }

    /// Called when an outgoing connection is open and its handshake begins. `Connected` follows when the
    /// handshake is done. `now` is read from the clock for this call, because handshakes earlier in the
    /// same turn take time.
    fn handle_reached(&mut self, _sock: SockId, _now: Moment) {}

    /// Whether an accepted connection begins with a PROXY header before its handshake.
    fn expects_preface(&self, _listener: ListenerId, _peer: Peer) -> bool {
        false
    }

    /// Takes the bytes received before the handshake: on each call, all of them so far. Returns how many of
    /// them belong to the preface, or `None` while the preface is incomplete.
    ///
    /// # Errors
    /// [`Refused`]: the connection is closed. The handler limits the length of a preface.
    fn handle_preface(&mut self, _sock: SockId, _bytes: &[u8]) -> Result<Option<usize>, Refused> {
        Err(Refused)
    }

    /// Called when an accepted connection has sent bytes of its handshake.
    fn handle_handshake_bytes(&mut self, _sock: SockId) {}

    /// Called when the ClientHello of an accepted connection is complete, if the acceptor of its listener asks for choices. The
    /// handshake waits until `Reactor::choose_certificate` is called, now or later.
    fn choose_certificate<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        _hello: &Hello<'_>,
    ) {
        reactor.choose_certificate(sock, CertificateChoice::Requested);
    }

    /// Called when a handshake is done, before `Connected` and before the first plain bytes.
    fn handle_established(&mut self, _sock: SockId, _session: &mut TlsSession) {}

    /// For the log: the listener's name of an accepted connection, and the client's address as far as it is known.
    fn client_of(&mut self, _sock: SockId) -> Option<(&str, Peer)> {
        None
    }

    /// Called when TLS failed; `Closed` is delivered next.
    fn handle_fault(&mut self, _sock: SockId, _fault: Fault) {}
}

/// The facts from which the certificate of a connection is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The name that the client requests, as it has written it.
    pub name: Option<&'a str>,
    /// The certificates of the listener.
    pub certificates: &'a Arc<[CertificateFacts]>,
}

/// The bytes before the handshake are not a valid preface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// An event of a session, for counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A session began. It exists until `SessionGone`.
    SessionBegun,
    /// A session ended and was freed.
    SessionGone,
    /// A handshake is done.
    HandshakeDone {
        /// The handshake resumed an earlier session.
        resumed: bool,
    },
    /// The peer ended its connection before the handshake was done.
    HandshakeLeft,
    /// A handshake exceeded its timeout.
    HandshakeTimedOut,
    /// A handshake was postponed to a later turn because this turn's budget for handshakes was used up.
    HandshakePostponed,
    /// A connection ended without close_notify, so its last message may be truncated.
    Truncated,
    /// TLS failed.
    Failed(Fault),
    /// An internal invariant was violated.
    Bug,
}

/// Receives the layer's events, for counters, and its log lines.
pub trait TlsObserver {
    /// Takes one event.
    fn count(&self, event: Event);

    /// Takes one line for the operator. The layer passes at most one line of each kind a second.
    fn log(&self, _line: core::fmt::Arguments<'_>) {}
}

impl<O: TlsObserver> TlsObserver for Arc<O> {
    fn count(&self, event: Event) {
        O::count(self, event);
    }

    fn log(&self, line: core::fmt::Arguments<'_>) {
        O::log(self, line);
    }
}

/// Ignores all events and lines.
impl TlsObserver for () {
    fn count(&self, _event: Event) {}
}
