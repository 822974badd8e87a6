//! One end of a simulated client's or origin's connection: plain, or with TLS by `wire`'s codec.
//! In: plain bytes, the end of sending. Out: the other end's plain bytes and end; faults in its TLS.
//! Limits: encrypts no more than the network accepts at once, leaving `RESERVED_BYTES` for the TLS closure.
//! Invariant: a dropped line sends close_notify first, unless it was created with `skips_close_notify`.

use std::cell::RefCell;

use tidegate_reactor::SimPeer;
use tidegate_wire::tls::{Fault, TlsSession};

/// Maximum number of bytes that encryption adds to a record.
const SEAL_BYTES: usize = 32;
/// Maximum number of plain bytes in a record.
const RECORD_BYTES: usize = 16_384;
/// Room left for close_notify and the response to a key update.
const RESERVED_BYTES: usize = 100;
/// The smallest window through which a line with TLS makes progress.
pub const WINDOW_BYTES_MIN: usize = 300;

/// An end of a connection.
pub struct Line {
    peer: SimPeer,
    tls: Option<RefCell<Secured>>,
}

struct Secured {
    session: TlsSession,
    /// TLS has not begun: plain bytes come before it.
    is_held: bool,
    /// Encrypted bytes that wait to be sent.
    out: Vec<u8>,
    /// Plain bytes received and not yet taken.
    plain: Vec<u8>,
    /// The fault that ended the session.
    fault: Option<Fault>,
    /// The other end has sent close_notify.
    peer_closed: bool,
    /// The sending side ends as soon as `out` is empty.
    finishes: bool,
    /// Ends without close_notify.
    skips_close_notify: bool,
}

impl Line {
    /// A line over `peer`, with TLS if there is a session. `is_held`: no TLS until `release` is called.
    pub fn new(
        peer: SimPeer,
        session: Option<TlsSession>,
        is_held: bool,
        skips_close_notify: bool,
    ) -> Self {
        let tls = session.map(|session| {
            RefCell::new(Secured {
                session,
                is_held,
                out: Vec::new(),
                plain: Vec::new(),
                fault: None,
                peer_closed: false,
                finishes: false,
                skips_close_notify,
            })
        });
        let line = Self { peer, tls };
        if !is_held {
            line.feed(&[]);
        }
        line
    }

    /// The plain bytes before TLS are complete, and TLS begins with `bytes`.
    pub fn release(&self, bytes: &[u8]) {
        if let Some(tls) = &self.tls {
            tls.borrow_mut().is_held = false;
        }
        self.feed(bytes);
    }

    pub fn send_bare(&self, bytes: &[u8]) -> usize {
        self.peer.send(bytes)
    }

    pub fn receive_bare(&self) -> Vec<u8> {
        self.peer.receive()
    }

    /// Sends as much of `bytes` as the network accepts; returns how much that was.
    pub fn send(&self, bytes: &[u8]) -> usize {
        self.pump();
        let Some(tls) = &self.tls else { return self.peer.send(bytes) };
        let tls = &mut *tls.borrow_mut();
        let closed = tls.finishes || self.peer.was_reset();
        if closed || !tls.out.is_empty() || !tls.session.is_established() {
            return 0;
        }
        let room = self.peer.room().min(1 << 20);
        let overhead = RESERVED_BYTES + SEAL_BYTES * (room / RECORD_BYTES + 1);
        let count = bytes.len().min(room.saturating_sub(overhead));
        if count > 0 && tls.session.seal(&bytes[..count], &mut tls.out).is_err() {
            return 0;
        }
        let sent = self.peer.send(&tls.out);
        tls.out.drain(..sent);
        count
    }

    /// Sends the first `count` bytes of `bytes` (with TLS: of the record that holds them) so that they arrive at
    /// once, if the connection is quiet. Returns what must follow, to be sent as it is.
    pub fn send_at_once(&self, bytes: &[u8], count: usize) -> Option<Vec<u8>> {
        let mut sealed = Vec::new();
        if let Some(tls) = &self.tls {
            let tls = &mut *tls.borrow_mut();
            let is_ready = tls.session.is_established() && tls.out.is_empty() && !tls.finishes;
            let has_room = self.peer.room() > bytes.len() + RESERVED_BYTES;
            // The worker has sent a part of a record, so a request is on the way.
            let is_between = tls.session.held_bytes() == 0;
            // A record that was sealed and not sent would end the session.
            if !is_ready || !is_between || !has_room || !self.peer.is_quiet() {
                return None;
            }
            tls.session.seal(bytes, &mut sealed).ok()?;
        } else {
            sealed.extend_from_slice(bytes);
        }
        let rest = sealed.split_off(count.min(sealed.len()));
        self.peer.send_at_once(&sealed).then_some(rest)
    }

    pub fn receive(&self) -> Vec<u8> {
        self.receive_some(usize::MAX)
    }

    /// The plain bytes in the next `count_max` bytes from the network.
    pub fn receive_some(&self, count_max: usize) -> Vec<u8> {
        let received = self.peer.receive_some(count_max);
        let Some(tls) = &self.tls else { return received };
        if !received.is_empty() {
            self.feed(&received);
        }
        core::mem::take(&mut tls.borrow_mut().plain)
    }

    /// Decrypts bytes from the network, and sends what TLS responds.
    fn feed(&self, bytes: &[u8]) {
        let Some(tls) = &self.tls else { return };
        {
            let Secured { session, out, plain, fault, peer_closed, .. } = &mut *tls.borrow_mut();
            match session.handle_bytes(&mut bytes.to_vec(), plain, out) {
                Ok(progress) => *peer_closed |= progress.peer_closed,
                Err(met) => *fault = Some(met),
            }
        }
        self.pump();
    }

    /// Sends encrypted bytes, as far as the network accepts them.
    pub fn pump(&self) {
        let Some(tls) = &self.tls else { return };
        let tls = &mut *tls.borrow_mut();
        let sent = self.peer.send(&tls.out);
        tls.out.drain(..sent);
        if tls.finishes && tls.out.is_empty() {
            self.peer.finish();
        }
    }

    pub fn finish(&self) {
        let Some(tls) = &self.tls else { return self.peer.finish() };
        self.send_close_notify();
        tls.borrow_mut().finishes = true;
        self.pump();
    }

    fn send_close_notify(&self) {
        if let Some(tls) = &self.tls {
            let tls = &mut *tls.borrow_mut();
            if !tls.skips_close_notify {
                tls.session.close_notify(&mut tls.out);
            }
        }
    }

    pub fn reset(&self) {
        self.peer.reset();
    }

    /// Whether bytes wait for `receive`.
    pub fn has_bytes(&self) -> bool {
        self.peer.arrived_bytes() > 0
    }

    /// Whether the other end has finished, and everything before that was received.
    pub fn is_finished_by_other(&self) -> bool {
        let closed = self.tls.as_ref().is_some_and(|tls| tls.borrow().peer_closed);
        closed || self.peer.is_finished_by_other()
    }

    /// Whether bytes may be missing before the other end's finish, because there was no close_notify.
    pub fn is_cut(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.borrow().peer_closed)
    }

    pub fn skips_close_notify(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.borrow().skips_close_notify)
    }

    pub fn was_reset(&self) -> bool {
        self.peer.was_reset()
    }

    pub fn is_up(&self) -> bool {
        self.peer.is_up()
    }

    /// The fault in the other end's TLS.
    pub fn fault(&self) -> Option<Fault> {
        self.tls.as_ref().and_then(|tls| tls.borrow().fault)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.send_close_notify();
        self.pump();
    }
}
