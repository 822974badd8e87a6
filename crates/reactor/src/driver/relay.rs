//! Relaying: moves bytes of one connection to another one inside the kernel, without a copy.
//! In: a slot marked readable whose bytes go to another connection. Out: `Relayed`.
//! Never: relays while output of the target is pending, so that bytes keep their order; leaves bytes in the kernel's pipe.
//! Limits: those of receiving.

use super::Loop;
use super::slots::{Guard, NO_OUTPUT, SendSide, State};
use crate::interface::SockId;
use crate::kernel::{Kernel, Relaying};

/// By slot: where its bytes go. Empty until the first connection relays, so that it costs nothing without TCP mode.
#[derive(Default)]
pub(super) struct Relays {
    /// `SockId::NONE`: to the handler.
    targets: Vec<SockId>,
}

/// What an attempt to relay resulted in.
pub(super) enum Attempt {
    /// This many bytes have left the connection.
    Relayed(usize),
    /// There is nothing to receive now. An edge announces the next bytes.
    Empty,
    /// The connection is broken.
    Broken,
    /// The bytes, or the end of the stream, must be received.
    Receive,
}

impl Relays {
    /// Sets where the bytes of a slot go.
    pub(super) fn set(&mut self, index: u32, target: Option<SockId>) {
        let index = index as usize;
        if let Some(target) = target
            && index >= self.targets.len()
        {
            self.targets.resize(index + 1, SockId::NONE);
            self.targets[index] = target;
        } else if let Some(known) = self.targets.get_mut(index) {
            *known = target.unwrap_or(SockId::NONE);
        }
    }

    /// Where the bytes of a slot go; `None`: to the handler.
    pub(super) fn target(&self, index: u32) -> Option<SockId> {
        self.targets.get(index as usize).copied().filter(|target| !target.is_none())
    }
}

impl<K: Kernel> Loop<K> {
    /// Moves bytes of the slot `index` to `target`. `buffer` is for bytes that the target does not take.
    pub(super) fn relay(&mut self, index: u32, target: SockId, buffer: &mut [u8]) -> Attempt {
        let from = self.slots.find(self.slots.id(index)).and_then(|slot| slot.handle.as_ref());
        let to = self.slots.find(target).filter(|slot| {
            let is_free = slot.output == NO_OUTPUT && !slot.blocked && slot.guard == Guard::Off;
            is_free && slot.state == State::Open && slot.send_side == SendSide::Open
        });
        let to = to.and_then(|slot| slot.handle.as_ref());
        let Some((from, to)) = from.zip(to) else { return Attempt::Receive };
        match self.kernel.relay(from, to, buffer) {
            Relaying::Sent { count, is_empty } => {
                let slot = self.slots.at(index);
                slot.readable = slot.hangup || !is_empty;
                Attempt::Relayed(count)
            }
            Relaying::Held { taken, held } => {
                if let Some(slot) = self.slots.find_mut(target) {
                    (slot.blocked, slot.drain_owed) = (true, true);
                }
                if let Some(output) = self.output_of(target) {
                    output.extend_from_slice(&buffer[..held]);
                }
                Attempt::Relayed(taken)
            }
            Relaying::Lost(taken) => {
                self.break_sending(target.index);
                Attempt::Relayed(taken)
            }
            Relaying::Empty => Attempt::Empty,
            Relaying::Broken => Attempt::Broken,
            Relaying::Receive => Attempt::Receive,
        }
    }
}
