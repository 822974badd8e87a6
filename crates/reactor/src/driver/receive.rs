//! Receiving: reads from the kernel into the worker's only read buffer and hands the bytes over.
//! In: a slot marked readable. Out: `Received`, `Finished`, `Closed`.
//! Never: reads from a connection that the handler has paused.
//! Limits: `RECEIVE_BYTES_PER_TURN_MAX` for each connection and turn; the rest is read in the next turn.
//! Invariant: `readable` is cleared only if the kernel has nothing more, or an edge is certain to come.

use tidegate_base::limits::RECEIVE_BYTES_PER_TURN_MAX;

use super::Loop;
use super::relay::Attempt;
use super::slots::{SendSide, State};
use crate::interface::{CloseReason, Completion, Handler};
use crate::kernel::{Kernel, Receiving};

impl<K: Kernel> Loop<K> {
    /// Receives until the kernel has nothing more, the handler pauses or the budget is used up.
    pub(super) fn receive<H: Handler<Self>>(
        &mut self,
        handler: &mut H,
        buffer: &mut [u8],
        index: u32,
    ) {
        let sock = self.slots.id(index);
        let mut budget = RECEIVE_BYTES_PER_TURN_MAX;
        while self.is_open(sock) {
            let slot = self.slots.at(index);
            if !slot.receiving || !slot.readable || slot.ended {
                return;
            }
            if budget == 0 {
                return self.enqueue(index);
            }
            if let Some(target) = self.relays.target(index) {
                match self.relay(index, target, buffer) {
                    Attempt::Relayed(count) => {
                        budget = budget.saturating_sub(count);
                        handler.handle(self, Completion::Relayed { sock, count });
                        continue;
                    }
                    Attempt::Empty => {
                        self.slots.at(index).readable = false;
                        return;
                    }
                    Attempt::Broken => return self.end(handler, index, CloseReason::Reset),
                    Attempt::Receive => {}
                }
            }
            let slot = self.slots.at(index);
            let Some(handle) = &slot.handle else { return };
            match self.kernel.receive(handle, buffer) {
                Receiving::Bytes(count) => {
                    slot.readable = slot.hangup || count == buffer.len();
                    budget = budget.saturating_sub(count);
                    let bytes = &mut buffer[..count];
                    handler.handle(self, Completion::Received { sock, bytes });
                }
                // After a failed send, the kernel has already reported its error and shows the reset as a
                // plain end of stream. A truncated message must not look complete.
                Receiving::End if slot.send_side == SendSide::Broken => {
                    return self.end(handler, index, CloseReason::Reset);
                }
                Receiving::End => {
                    slot.readable = false;
                    slot.ended = true;
                    handler.handle(self, Completion::Finished { sock });
                }
                Receiving::Empty => slot.readable = false,
                Receiving::Broken => return self.end(handler, index, CloseReason::Reset),
            }
        }
    }

    /// Hands over `Drained` if it is owed and no output is pending.
    pub(super) fn hand_over_drained<H: Handler<Self>>(&mut self, handler: &mut H, index: u32) {
        let slot = self.slots.at(index);
        if slot.drain_owed && slot.output == super::NO_OUTPUT && slot.state == State::Open {
            slot.drain_owed = false;
            let sock = self.slots.id(index);
            handler.handle(self, Completion::Drained { sock });
        }
    }
}
