//! Relaying: moves bytes of one connection to another one inside the kernel, without a copy.
//! In: a slot marked readable whose bytes go to another connection. Out: `Relayed`.
//! Never: relays while output of the target is pending, so that bytes keep their order; leaves bytes in the kernel's pipe.
//! Limits: those of receiving.
//! A connection that relays piece after piece is watched by level (`Watch::Level`): with edges, each piece requires a further
//! system call that asks whether more bytes wait, which costs more than a further report. The connection is watched by edges
//! again when it cannot relay, because otherwise each wait would report the same bytes, and when its own output is blocked,
//! because `Watch::Level` does not report that there is room to send.

use super::Loop;
use super::accept::token;
use super::slots::{Guard, NO_OUTPUT, SendSide, Slot, State};
use crate::interface::SockId;
use crate::kernel::{Kernel, Ready, Relaying, Watch};

/// After this many relayed pieces a connection is watched by level.
const PIECES_BEFORE_LEVEL: u8 = 16;

/// By slot: the destination of its bytes. Empty until the first connection relays, so that it costs nothing without TCP mode.
#[derive(Default)]
pub(super) struct Relays {
    relays: Vec<Relay>,
}

#[derive(Clone, Copy)]
struct Relay {
    /// `SockId::NONE`: to the handler.
    target: SockId,
    /// Pieces relayed since the connection was last watched by edges; at most `PIECES_BEFORE_LEVEL`.
    pieces: u8,
    /// How the kernel watches the connection. `Level` only in `State::Open`, while its output is not blocked.
    watch: Watch,
}

impl Relay {
    const NONE: Self = Self { target: SockId::NONE, pieces: 0, watch: Watch::Edges };
}

/// The result of an attempt to relay.
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
    /// Sets the destination of a slot's bytes.
    pub(super) fn set(&mut self, index: u32, target: Option<SockId>) {
        let index = index as usize;
        if let Some(target) = target
            && index >= self.relays.len()
        {
            self.relays.resize(index + 1, Relay::NONE);
            self.relays[index].target = target;
        } else if let Some(known) = self.relays.get_mut(index) {
            known.target = target.unwrap_or(SockId::NONE);
        }
    }

    /// Forgets the connection of a slot that becomes free.
    pub(super) fn forget(&mut self, index: u32) {
        if let Some(known) = self.relays.get_mut(index as usize) {
            *known = Relay::NONE;
        }
    }

    /// The destination of the bytes of a slot; `None`: the handler.
    pub(super) fn target(&self, index: u32) -> Option<SockId> {
        let target = self.relays.get(index as usize).map(|relay| relay.target);
        target.filter(|target| !target.is_none())
    }

    /// How the kernel watches the connection of a slot.
    fn watch(&self, index: u32) -> Watch {
        self.relays.get(index as usize).map_or(Watch::Edges, |relay| relay.watch)
    }
}

impl<K: Kernel> Loop<K> {
    /// Moves bytes of the slot `index` to `target`. `buffer` is for bytes that the target does not take.
    pub(super) fn relay(&mut self, index: u32, target: SockId, buffer: &mut [u8]) -> Attempt {
        let from = self.slots.find(self.slots.id(index)).and_then(|slot| slot.handle.as_ref());
        let to = self.slots.find(target).filter(|slot| takes_relayed(slot));
        let to = to.and_then(|slot| slot.handle.as_ref());
        let Some((from, to)) = from.zip(to) else { return Attempt::Receive };
        match self.kernel.relay(from, to, buffer, self.relays.watch(index)) {
            Relaying::Sent { count, is_empty } => {
                self.looks.note_handed_over(target.index, count);
                let slot = self.slots.at(index);
                slot.readable = slot.hangup || !is_empty;
                self.note_piece(index);
                Attempt::Relayed(count)
            }
            Relaying::Held { taken, held } => {
                self.looks.note_handed_over(target.index, taken - held);
                if self.slots.find(target).is_some() {
                    self.block(target.index);
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

    /// Notes that the kernel takes no more output of a slot; the driver waits for the writable edge.
    pub(super) fn block(&mut self, index: u32) {
        let slot = self.slots.at(index);
        (slot.blocked, slot.drain_owed) = (true, true);
        self.watch_edges(index);
    }

    /// Watches a slot by edges again if a report finds that it cannot relay now.
    pub(super) fn check_level(&mut self, index: u32, ready: Ready) {
        if self.relays.watch(index) == Watch::Edges {
            return;
        }
        let slot = self.slots.at(index);
        let is_relaying =
            slot.state == State::Open && slot.receiving && !ready.hangup && !ready.error;
        let target = self.relays.target(index).and_then(|target| self.slots.find(target));
        if !is_relaying || !target.is_some_and(takes_relayed) {
            self.watch_edges(index);
        }
    }

    /// Counts a relayed piece. After enough of them the kernel watches the connection by level.
    fn note_piece(&mut self, index: u32) {
        let token = token(index, self.slots.id(index).generation);
        let slot = self.slots.at(index);
        let Some(relay) = self.relays.relays.get_mut(index as usize) else { return };
        if relay.watch == Watch::Level || slot.blocked || slot.hangup {
            return;
        }
        relay.pieces += 1;
        if relay.pieces < PIECES_BEFORE_LEVEL {
            return;
        }
        relay.pieces = 0;
        if let Some(handle) = &slot.handle
            && self.kernel.watch(handle, token, Watch::Level)
        {
            relay.watch = Watch::Level;
        }
    }

    /// Watches a slot by edges. The kernel reports the current readiness again.
    fn watch_edges(&mut self, index: u32) {
        if self.relays.watch(index) == Watch::Edges {
            return;
        }
        let token = token(index, self.slots.id(index).generation);
        let relay = &mut self.relays.relays[index as usize];
        (relay.watch, relay.pieces) = (Watch::Edges, 0);
        if let Some(handle) = &self.slots.at(index).handle
            && !self.kernel.watch(handle, token, Watch::Edges)
        {
            // The kernel refuses this only for a descriptor that it does not watch.
            self.break_sending(index);
        }
    }
}

/// Whether bytes may be moved to the output of this connection.
fn takes_relayed<H>(slot: &Slot<H>) -> bool {
    let is_free = slot.output == NO_OUTPUT && !slot.blocked && slot.guard == Guard::Off;
    is_free && slot.state == State::Open && slot.send_side == SendSide::Open
}
