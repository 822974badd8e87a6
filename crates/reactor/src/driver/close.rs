//! Graceful close, so that the last response arrives (RFC 9112 section 9.6).
//! In: `close`, `close_unread`. Out: the output, then FIN; received bytes are discarded until the peer closes too. Of
//! `close_unread`: the output, and after `UNREAD_SPAN` a reset; received bytes stay unread.
//! Never: hands over a completion: the id is already stale.
//! Limits: `CLOSE_OUTPUT_MAX` without the peer taking any output, then `LINGER_MAX`; `DISCARDS_MAX` discarded
//! reads in all.
//! Invariant: the handle is closed only after the peer's end of stream, an error, or one of these limits; or
//! when the handler needs its slot (`free_lingering`).

use std::collections::VecDeque;

use tidegate_base::Span;

use super::Loop;
use super::slots::{Guard, NO_OUTPUT, SendSide, State};
use crate::interface::{OutputProgress, SockId};
use crate::kernel::{Kernel, Receiving};

/// How long a closed connection waits for its peer to close after the peer has taken the output and FIN was
/// sent.
pub const LINGER_MAX: Span = Span::from_secs(2);
/// How long the peer of a closed connection may take none of the output. After that the connection is reset,
/// or, if the kernel has all of the output, left to the kernel. Any progress restarts it.
pub const CLOSE_OUTPUT_MAX: Span = Span::from_secs(30);
/// How long a connection that was closed with `close_unread` stays as it is after the peer has taken the output.
pub const UNREAD_SPAN: Span = Span::from_millis(500);
/// Time between two checks of the output of a closed connection: a quarter of `CLOSE_OUTPUT_MAX`.
const CLOSE_CHECK_EVERY: Span = Span::from_millis(7500);
const _: () = assert!(CLOSE_CHECK_EVERY.as_nanos() * 4 == CLOSE_OUTPUT_MAX.as_nanos());
/// Reads discarded for one closed connection (at most 16 MiB). After that the connection is freed at once,
/// or, if the peer has not taken all output, the driver stops reading and the deadline decides.
const DISCARDS_MAX: u8 = 255;
/// Reads discarded for one connection in one turn.
const DISCARDS_PER_TURN_MAX: usize = 4;

/// The closed connections that wait for their peers to close too, in the order in which they began to wait.
#[derive(Default)]
pub(super) struct Lingering {
    /// Ids, of which some have become stale. At most `STALE_MAX` more than twice `count`.
    order: VecDeque<SockId>,
    /// The slots in `State::Lingering`.
    count: usize,
}

impl Lingering {
    /// Stale ids that `order` may hold even if few connections wait.
    const STALE_MAX: usize = 64;
    /// Maximum number of connections that one search examines.
    const LOOKS_MAX: usize = 8;

    /// Notes that a connection no longer waits.
    pub(super) fn forget(&mut self) {
        self.count -= 1;
    }
}

impl<K: Kernel> Loop<K> {
    /// Sends the pending output and closes the connection. Output that the kernel does not take is lost.
    pub(super) fn close_without_lingering(&mut self, sock: SockId) {
        if self.slots.find(sock).is_some() {
            self.flush_output(sock.index);
            self.free(sock.index);
        }
    }

    /// Frees the connection that lingers longest, if more than `kept` linger. One whose peer has not taken all
    /// output yet is passed over.
    pub(super) fn free_longest_lingering(&mut self, kept: usize) -> bool {
        if self.lingering.count <= kept {
            return false;
        }
        for _ in 0..Lingering::LOOKS_MAX {
            let sock = loop {
                match self.lingering.order.pop_front() {
                    Some(sock) if self.lingers(sock) => break sock,
                    Some(_) => {}
                    None => return false,
                }
            };
            if !matches!(self.look(sock.index), OutputProgress::Pending { .. }) {
                self.free(sock.index);
                return true;
            }
            self.lingering.order.push_back(sock);
        }
        false
    }

    fn lingers(&mut self, sock: SockId) -> bool {
        self.slots.is_current(sock.index, sock.generation)
            && self.slots.at(sock.index).state == State::Lingering
    }

    /// Counts a connection that begins to linger.
    fn note_lingering(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if core::mem::replace(&mut slot.state, State::Lingering) == State::Lingering {
            return;
        }
        self.lingering.count += 1;
        if self.lingering.order.len() > 2 * self.lingering.count + Lingering::STALE_MAX {
            let mut order = core::mem::take(&mut self.lingering.order);
            order.retain(|sock| self.lingers(*sock));
            self.lingering.order = order;
        }
        self.lingering.order.push_back(self.slots.id(index));
    }

    /// Starts a graceful close; the id is stale afterwards. `reads`: further bytes of the peer are read and discarded.
    pub(super) fn close_gracefully(&mut self, sock: SockId, reads: bool) {
        let index = sock.index;
        let Some(slot) = self.slots.find_mut(sock) else {
            return;
        };
        if slot.state != State::Open || slot.send_side == SendSide::Broken {
            return self.free(index);
        }
        slot.state = State::Closing;
        slot.receiving = reads;
        slot.drain_owed = false;
        if core::mem::replace(&mut slot.guard, Guard::Off) != Guard::Off && slot.output != NO_OUTPUT
        {
            self.outputs.give_back(slot.output);
            slot.output = NO_OUTPUT;
        }
        if slot.readable {
            self.enqueue(index);
        }
        self.schedule(index, self.now.after(CLOSE_CHECK_EVERY));
        self.mark_dirty(index);
    }

    /// Sends the output of a closing connection. If some of it remains, checks it for the first time; later looks are compared
    /// with this one.
    pub(super) fn flush_closing(&mut self, index: u32) {
        if !self.slots.at(index).blocked {
            self.send_pending(index);
        }
        let slot = self.slots.at(index);
        if slot.state == State::Closing && slot.output != NO_OUTPUT && !self.looks.contains(index) {
            self.look(index);
        }
    }

    /// After all output was sent: ends the sending side and waits for the peer to close, if it has not yet.
    pub(super) fn linger(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if slot.ended || slot.send_side == SendSide::Broken {
            // The peer's stream was read to its end, so closing cannot cause a reset.
            return self.free(index);
        }
        let reads = slot.receiving;
        if reads && slot.send_side != SendSide::Finished {
            self.send_finish(index);
        }
        self.note_lingering(index);
        self.schedule(index, self.now.after(if reads { LINGER_MAX } else { UNREAD_SPAN }));
    }

    /// Discards further bytes of the peer, so that the peer can continue to read the response.
    pub(super) fn discard(&mut self, buffer: &mut [u8], index: u32) {
        let slot = self.slots.at(index);
        if slot.send_side == SendSide::Broken {
            return self.free(index);
        }
        if !slot.receiving {
            slot.readable = false;
            if slot.hangup && slot.state == State::Lingering {
                self.free(index);
            }
            return;
        }
        for _ in 0..DISCARDS_PER_TURN_MAX {
            if !slot.readable || slot.ended {
                return;
            }
            if slot.discards == DISCARDS_MAX {
                // If output is still in flight, stop reading: the receive window closes and the deadline decides.
                slot.readable = false;
                if !matches!(self.look(index), OutputProgress::Pending { .. }) {
                    self.free(index);
                }
                return;
            }
            let Some(handle) = &slot.handle else { return };
            match self.kernel.receive(handle, buffer) {
                Receiving::Bytes(count) => {
                    slot.discards += 1;
                    slot.readable = slot.hangup || count == buffer.len();
                }
                Receiving::End => {
                    slot.ended = true;
                    if slot.send_side == SendSide::Finished {
                        self.free(index);
                    }
                    return;
                }
                Receiving::Empty => slot.readable = false,
                Receiving::Broken => return self.free(index),
            }
        }
        if slot.readable {
            self.enqueue(index);
        }
    }

    /// Handles the deadline of a closing connection: continues as long as the peer takes output.
    pub(super) fn give_up_closing(&mut self, index: u32) {
        let lingers = self.slots.at(index).output == NO_OUTPUT;
        let moved_at = match self.look(index) {
            OutputProgress::Idle => return self.free(index),
            // The peer has taken everything since the last look, and now has `LINGER_MAX` to close.
            OutputProgress::Emptied => return self.schedule(index, self.now.after(LINGER_MAX)),
            OutputProgress::Pending { moved_at } => moved_at,
        };
        let give_up_at = moved_at.after(CLOSE_OUTPUT_MAX);
        match (give_up_at <= self.now, lingers) {
            (true, true) => self.free(index),
            (true, false) => self.free_with_reset(index),
            (false, true) => self.schedule(index, give_up_at.min(self.now.after(LINGER_MAX))),
            (false, false) => {
                self.schedule(index, give_up_at.min(self.now.after(CLOSE_CHECK_EVERY)))
            }
        }
    }
}
