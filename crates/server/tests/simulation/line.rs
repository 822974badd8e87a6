//! One end of a connection as clients and origins hold it: bare, or with TLS by the codec itself.
//! In: plain bytes, ends. Out: the same of the other end; what is wrong with its TLS.
//! Limits: no more is sealed than the net takes at once, with room left to say the end (`RESERVED_BYTES`).
//! Invariant: a line that is dropped says its end before, unless it is rude.

use std::cell::RefCell;

use tidegate_reactor::SimPeer;
use tidegate_wire::tls::{Fault, TlsSession};

/// What sealing adds to a record at most.
const SEAL_BYTES: usize = 32;
/// Plain bytes of a record at most.
const RECORD_BYTES: usize = 16_384;
/// Room that is left for a farewell, and an answer to a change of keys.
const RESERVED_BYTES: usize = 100;
/// The least window through which a line with TLS gets on.
pub const WINDOW_BYTES_MIN: usize = 300;

/// An end of a connection.
pub struct Line {
    peer: SimPeer,
    tls: Option<RefCell<Secured>>,
}

struct Secured {
    session: TlsSession,
    /// Nothing of TLS has begun: something comes before it.
    is_held: bool,
    /// Sealed bytes on their way out.
    out: Vec<u8>,
    /// Plain bytes that came.
    plain: Vec<u8>,
    fault: Option<Fault>,
    told_end: bool,
    /// This end is to be said, once what is sealed has left.
    finishes: bool,
    /// Ends without saying so.
    is_rude: bool,
}

impl Line {
    /// A line for `peer`, with TLS if there is a session. `is_held`: until `release`, all is bare.
    pub fn new(peer: SimPeer, session: Option<TlsSession>, is_held: bool, is_rude: bool) -> Self {
        let tls = session.map(|session| {
            RefCell::new(Secured {
                session,
                is_held,
                out: Vec::new(),
                plain: Vec::new(),
                fault: None,
                told_end: false,
                finishes: false,
                is_rude,
            })
        });
        let line = Self { peer, tls };
        if !is_held {
            line.feed(&[]);
        }
        line
    }

    /// What came before TLS is over; `bytes` came behind it.
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

    /// Sends as much of `bytes` as the net takes, and tells how much that was.
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

    pub fn receive(&self) -> Vec<u8> {
        self.receive_some(usize::MAX)
    }

    /// What `count_max` bytes of the net bring.
    pub fn receive_some(&self, count_max: usize) -> Vec<u8> {
        let came = self.peer.receive_some(count_max);
        let Some(tls) = &self.tls else { return came };
        if !came.is_empty() {
            self.feed(&came);
        }
        core::mem::take(&mut tls.borrow_mut().plain)
    }

    /// Takes bytes of the net, and sends what TLS answers.
    fn feed(&self, bytes: &[u8]) {
        let Some(tls) = &self.tls else { return };
        {
            let Secured { session, out, plain, fault, told_end, .. } = &mut *tls.borrow_mut();
            match session.handle_bytes(&mut bytes.to_vec(), plain, out) {
                Ok(progress) => *told_end |= progress.peer_closed,
                Err(met) => *fault = Some(met),
            }
        }
        self.pump();
    }

    /// Sends what is sealed, as far as the net takes it.
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
        self.say_end();
        tls.borrow_mut().finishes = true;
        self.pump();
    }

    fn say_end(&self) {
        if let Some(tls) = &self.tls {
            let tls = &mut *tls.borrow_mut();
            if !tls.is_rude {
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

    /// Whether the other end has finished, and all before that was received here.
    pub fn is_finished_by_other(&self) -> bool {
        let told = self.tls.as_ref().is_some_and(|tls| tls.borrow().told_end);
        told || self.peer.is_finished_by_other()
    }

    /// Whether something may be missing before the other end's finish.
    pub fn is_cut(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.borrow().told_end)
    }

    pub fn is_rude(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.borrow().is_rude)
    }

    pub fn was_reset(&self) -> bool {
        self.peer.was_reset()
    }

    pub fn is_up(&self) -> bool {
        self.peer.is_up()
    }

    /// What was wrong with the other end's TLS.
    pub fn fault(&self) -> Option<Fault> {
        self.tls.as_ref().and_then(|tls| tls.borrow().fault)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.say_end();
        self.pump();
    }
}
