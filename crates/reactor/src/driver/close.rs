//! Closing in order, so that the last answer arrives (RFC 9112 section 9.6).
//! In: `close`. Out: the output, FIN, then silence until the peer closes too.
//! Never: tells the user anything: the id is stale.
//! Limits: `CLOSE_OUTPUT_MAX` for the output, then `LINGER_MAX`, `DISCARDS_MAX` reads in all.
//! Invariant: the handle is closed only after the peer's end, an error, or a limit.

use tidegate_base::Span;

use super::Loop;
use super::slots::{NO_OUTPUT, SendSide, State};
use crate::interface::SockId;
use crate::kernel::{Kernel, Receiving};

/// How long a closed connection waits for its peer to close, once all output and FIN are sent.
pub const LINGER_MAX: Span = Span::from_secs(2);
/// How long the output of a closed connection may take to leave; then it is reset.
pub const CLOSE_OUTPUT_MAX: Span = Span::from_secs(30);
/// Reads thrown away for one closed connection (at most 16 MiB); then it is closed as it is.
const DISCARDS_MAX: u8 = 255;
/// Reads thrown away for one connection in one turn.
const DISCARDS_PER_TURN_MAX: usize = 4;

impl<K: Kernel> Loop<K> {
    pub(super) fn close_in_order(&mut self, sock: SockId) {
        let index = sock.index;
        let Some(slot) = self.slots.find_mut(sock) else {
            return;
        };
        if slot.state != State::Open || slot.send_side == SendSide::Broken {
            return self.free(index);
        }
        slot.state = State::Closing;
        slot.drain_owed = false;
        if slot.readable {
            self.enqueue(index);
        }
        self.schedule(index, self.now.after(CLOSE_OUTPUT_MAX));
        self.mark_dirty(index);
    }

    /// All output has left: ends the sending side and waits for the peer, if that is needed.
    pub(super) fn linger(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if slot.ended || slot.send_side == SendSide::Broken {
            // The peer's stream was read to its end, so closing cannot turn into a reset.
            return self.free(index);
        }
        if slot.send_side != SendSide::Finished {
            self.send_finish(index);
        }
        self.schedule(index, self.now.after(LINGER_MAX));
    }

    /// Throws away what the peer still sends, so that it can go on to read the answer.
    pub(super) fn discard(&mut self, buffer: &mut [u8], index: u32) {
        let slot = self.slots.at(index);
        if slot.send_side == SendSide::Broken {
            return self.free(index);
        }
        for _ in 0..DISCARDS_PER_TURN_MAX {
            if !slot.readable || slot.ended {
                return;
            }
            if slot.discards == DISCARDS_MAX {
                // With output left the peer's window just closes and the deadline decides.
                slot.readable = false;
                if slot.output == NO_OUTPUT {
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

    /// The deadline of a closing connection has come.
    pub(super) fn give_up_closing(&mut self, index: u32) {
        if self.slots.at(index).output == NO_OUTPUT {
            self.free(index);
        } else {
            self.free_with_reset(index);
        }
    }
}
