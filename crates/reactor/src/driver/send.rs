//! Sending: output is collected during a turn and sent once at its end; large sends skip the copy.
//! In: `output`, `send`, `flush`, `finish`. Out: bytes to the kernel; a queued `Drained`.
//! Never: sends while the kernel's send buffer is full; waits for the writable edge instead. Never sends
//! guarded output while received bytes wait.
//! Limits: none here. Producers watch `output_pending` and stop at `OUTPUT_PAUSE_BYTES`.
//! Invariant: a connection has an output buffer exactly while it has pending bytes or is dirty.

use super::Loop;
use super::slots::{Guard, NO_OUTPUT, SendSide, Slot, State};
use crate::interface::{Handler, SockId};
use crate::kernel::{Kernel, Receiving, Sending};

/// A send of at least this many bytes goes to the kernel at once instead of through the output buffer.
pub const WRITE_THROUGH_BYTES_MIN: usize = 4096;

impl<K: Kernel> Loop<K> {
    pub(super) fn output_of(&mut self, sock: SockId) -> Option<&mut Vec<u8>> {
        let slot = self.slots.find_mut(sock).filter(|slot| takes_output(slot))?;
        if slot.output == NO_OUTPUT {
            slot.output = self.outputs.take();
        }
        let output = slot.output;
        self.mark_dirty(sock.index);
        Some(&mut self.outputs.at(output).bytes)
    }

    pub(super) fn send_bytes(&mut self, sock: SockId, bytes: &[u8]) {
        let mut bytes = bytes;
        if bytes.len() >= WRITE_THROUGH_BYTES_MIN {
            bytes = self.write_through(sock, bytes);
        }
        if bytes.is_empty() {
            return;
        }
        if let Some(output) = self.output_of(sock) {
            output.extend_from_slice(bytes);
        }
    }

    /// Sends the pending output and as much of `bytes` as the kernel takes; returns the rest.
    fn write_through<'a>(&mut self, sock: SockId, bytes: &'a [u8]) -> &'a [u8] {
        let Some(slot) = self.slots.find_mut(sock).filter(|slot| takes_output(slot)) else {
            return &[];
        };
        if slot.state != State::Open || slot.blocked {
            slot.drain_owed = true;
            return bytes;
        }
        if slot.guard != Guard::Off && !self.passes_guard(sock.index) {
            return bytes;
        }
        let slot = self.slots.at(sock.index);
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(handle) = &slot.handle else {
                return &[];
            };
            let pending = match slot.output {
                NO_OUTPUT => &[],
                output => self.outputs.at(output).pending(),
            };
            match self.kernel.send(handle, pending, rest) {
                Sending::Sent(count) => {
                    slot.guard = Guard::Off;
                    self.looks.note_handed_over(sock.index, count);
                    let from_pending = count.min(pending.len());
                    rest = &rest[count - from_pending..];
                    if from_pending > 0 {
                        self.outputs.at(slot.output).consume(from_pending);
                    }
                }
                Sending::Full => {
                    self.block(sock.index);
                    return rest;
                }
                Sending::Broken => {
                    self.break_sending(sock.index);
                    return &[];
                }
            }
        }
        rest
    }

    /// Sends the pending output. The remainder waits for the writable edge, and `Drained` is then owed.
    pub(super) fn flush_output(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if slot.state == State::Open && !slot.blocked {
            self.send_pending(index);
            let slot = self.slots.at(index);
            if slot.drain_owed && slot.output == NO_OUTPUT {
                self.enqueue(index);
            }
        } else if slot.state == State::Closing {
            self.flush_closing(index);
        } else {
            slot.drain_owed |= slot.output != NO_OUTPUT;
        }
    }

    /// Sends until nothing is pending or the kernel is full. When nothing is pending, continues a close or
    /// `finish` that waited for that.
    pub(super) fn send_pending(&mut self, index: u32) {
        let slot = self.slots.at(index);
        let guarded = slot.guard != Guard::Off && self.outputs.pending_bytes(slot.output) > 0;
        if guarded && !self.passes_guard(index) {
            return;
        }
        let slot = self.slots.at(index);
        while slot.output != NO_OUTPUT {
            let output = self.outputs.at(slot.output);
            if output.pending().is_empty() {
                self.outputs.give_back(slot.output);
                slot.output = NO_OUTPUT;
                self.looks.forget(index);
                break;
            }
            let Some(handle) = &slot.handle else { return };
            match self.kernel.send(handle, output.pending(), &[]) {
                Sending::Sent(count) => {
                    slot.guard = Guard::Off;
                    self.looks.note_handed_over(index, count);
                    output.consume(count);
                }
                Sending::Full => {
                    return self.block(index);
                }
                Sending::Broken => return self.break_sending(index),
            }
        }
        if slot.state == State::Closing {
            self.linger(index);
        } else if slot.send_side == SendSide::Finishing {
            self.send_finish(index);
        }
    }

    pub(super) fn flush_dirty<H: Handler<Self>>(&mut self, handler: &mut H) {
        // Flushing never marks another slot dirty, so the list can be processed in place.
        for at in 0..self.dirty.len() {
            let index = self.dirty[at];
            if core::mem::replace(&mut self.slots.at(index).dirty, false) {
                handler.note_next(Some(self.slots.id(index)));
                self.flush_output(index);
            }
        }
        self.dirty.clear();
    }

    pub(super) fn finish_sending(&mut self, sock: SockId) {
        let Some(slot) = self.slots.find_mut(sock).filter(|slot| takes_output(slot)) else {
            return;
        };
        slot.send_side = SendSide::Finishing;
        self.mark_dirty(sock.index);
    }

    /// Sends FIN. All output must have been sent.
    pub(super) fn send_finish(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if let Some(handle) = &slot.handle {
            self.kernel.shutdown_send(handle);
        }
        slot.send_side = SendSide::Finished;
        if slot.ended {
            self.enqueue(index);
        }
    }

    /// Checks whether received bytes, the peer's end or an error must be handed over before guarded output is sent. If
    /// so, the slot is served in the next turn.
    fn passes_guard(&mut self, index: u32) -> bool {
        let slot = self.slots.at(index);
        let Some(handle) = slot.handle.as_ref().filter(|_| slot.guard == Guard::Armed) else {
            return slot.guard == Guard::Off;
        };
        let found = if slot.readable { Receiving::Bytes(1) } else { self.kernel.peek(handle) };
        match found {
            Receiving::Empty => return true,
            Receiving::Bytes(_) | Receiving::End => {
                slot.guard = Guard::Tripped;
                slot.readable = true;
                slot.drain_owed = true;
                self.enqueue(index);
            }
            // The check consumed the socket's error, so it must be reported here.
            Receiving::Broken => self.break_sending(index),
        }
        false
    }

    /// After received bytes were handed over: lets guarded output be sent at the end of the turn.
    pub(super) fn rearm_guard(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if slot.guard == Guard::Tripped && slot.receiving && !slot.readable {
            // The driver checks again. After the peer's end there is nothing more to look for.
            slot.guard = if slot.ended { Guard::Off } else { Guard::Armed };
            self.mark_dirty(index);
        }
    }

    /// Handles a failed send: drops the output. The next turn hands over the bytes received before the
    /// failure (often an early response), then `Closed`.
    pub(super) fn break_sending(&mut self, index: u32) {
        let slot = self.slots.at(index);
        let output = core::mem::replace(&mut slot.output, NO_OUTPUT);
        slot.send_side = SendSide::Broken;
        slot.readable = true;
        slot.hangup = true;
        slot.drain_owed = false;
        if output != NO_OUTPUT {
            self.outputs.give_back(output);
        }
        self.enqueue(index);
    }
}

/// Whether the sending side still accepts bytes.
fn takes_output<H>(slot: &Slot<H>) -> bool {
    slot.send_side == SendSide::Open
}
