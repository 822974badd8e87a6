//! One slot per connection: everything that the driver stores for an idle connection.
//! In: `SockId`s and tokens. Out: the slot of exactly that connection, or nothing.
//! Limits: `socks_max` slots of 32 bytes. The timer wheel adds 16 bytes: 48 for each idle connection.
//! Invariant: a slot's generation is odd while the slot is taken and even while it is free.

use tidegate_base::Moment;

use crate::interface::{CloseReason, SockId};

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The slot is free.
    Free,
    /// The outcome of `connect` is pending.
    Connecting,
    /// `connect` failed at once, and `Closed` is due.
    Failed(CloseReason),
    /// The connection is open.
    Open,
    /// The handler has closed the connection, and its id is stale. The driver still sends the pending output
    /// and waits for the peer to close.
    Closing,
    /// As `Closing`, after the output and FIN were sent. The slot is counted in `Lingering`.
    Lingering,
}

/// The state of the sending side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendSide {
    /// Accepts bytes.
    Open,
    /// Accepts no more bytes; FIN follows the pending output.
    Finishing,
    /// FIN was sent.
    Finished,
    /// Sending failed. The bytes received before that are handed over, then the connection is closed.
    Broken,
}

/// Whether the next output is guarded; see `Reactor::guard_send`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Guard {
    /// Output is sent without a check.
    Off,
    /// The driver checks the connection before it sends the first byte.
    Armed,
    /// Something waits to be handed over first; nothing is sent until then.
    Tripped,
}

/// The value of `Slot::output` without pending output.
pub(super) const NO_OUTPUT: u32 = u32::MAX;

pub(super) struct Slot<H> {
    /// When `Due` is delivered; for a closing connection, when the driver stops waiting and frees it. The wheel fires no later.
    pub(super) deadline: Moment,
    /// Odd while the slot is taken, even while it is free.
    pub(super) generation: u32,
    /// `Some` exactly while the slot is taken, except in `State::Failed`.
    pub(super) handle: Option<H>,
    /// Index of the pending output in `Outputs`, or `NO_OUTPUT`.
    pub(super) output: u32,
    pub(super) state: State,
    pub(super) send_side: SendSide,
    /// `Off`, unless `guard_send` was called and no byte of the output was sent since.
    pub(super) guard: Guard,
    /// Whether the handler reads bytes.
    pub(super) receiving: bool,
    /// The kernel may have bytes or the end of stream to receive.
    pub(super) readable: bool,
    /// The kernel reported a hangup or an error, so a short read does not mean "empty".
    pub(super) hangup: bool,
    /// The end of stream was received.
    pub(super) ended: bool,
    /// The kernel took no more output; the driver waits for the writable edge.
    pub(super) blocked: bool,
    /// The slot is in `Loop::dirty`, the list of outputs to flush at the end of the turn.
    pub(super) dirty: bool,
    /// The slot is in `Loop::queue`, the list of connections to serve in the next turn without an edge.
    pub(super) queued: bool,
    /// `Drained` must be handed over once all output has been sent.
    pub(super) drain_owed: bool,
    /// Reads discarded since `close`.
    pub(super) discards: u8,
}

// The real kernel's handle is a descriptor. It has a niche, so the option needs no extra space.
const _: () = assert!(size_of::<Slot<rustix::fd::OwnedFd>>() <= 32);

impl<H> Slot<H> {
    fn free() -> Self {
        Self {
            deadline: Moment::NEVER,
            generation: 0,
            handle: None,
            output: NO_OUTPUT,
            state: State::Free,
            send_side: SendSide::Open,
            guard: Guard::Off,
            receiving: true,
            readable: false,
            hangup: false,
            ended: false,
            blocked: false,
            dirty: false,
            queued: false,
            drain_owed: false,
            discards: 0,
        }
    }

    /// Whether the handler may still use its id for this slot.
    fn is_valid_for_handler(&self) -> bool {
        !matches!(self.state, State::Free | State::Closing | State::Lingering)
    }
}

pub(super) struct Slots<H> {
    slots: Vec<Slot<H>>,
    /// Indices of the free slots.
    free: Vec<u32>,
    /// Maximum number of slots that may be taken.
    count_max: usize,
}

/// Up to this many slots are reserved (but not touched) at start, so that a growing worker does not copy its
/// table.
pub(super) const RESERVED_MAX: usize = 1 << 20;

impl<H> Slots<H> {
    pub(super) fn new(count_max: usize) -> Self {
        // The other indices belong to the tokens of listeners and of sockets for datagrams.
        let count_max = count_max.min(super::DATAGRAM_INDEX as usize);
        let slots = Vec::with_capacity(count_max.min(RESERVED_MAX));
        Self { slots, free: Vec::new(), count_max }
    }

    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() >= self.count_max
    }

    /// Takes a slot. The caller must have checked `is_full`.
    pub(super) fn insert(&mut self, handle: Option<H>, state: State) -> SockId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::free());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1) | 1;
        slot.handle = handle;
        slot.state = state;
        SockId::new(index, slot.generation)
    }

    /// Frees a slot. Its entries in the wheel and in the driver's lists remain and have no effect, which is
    /// cheaper for short connections than removing them.
    pub(super) fn remove(&mut self, index: u32) -> Option<H> {
        let slot = &mut self.slots[index as usize];
        let handle = slot.handle.take();
        let generation = slot.generation.wrapping_add(1);
        *slot = Slot { generation, ..Slot::free() };
        self.free.push(index);
        handle
    }

    /// The slot of `sock`, unless the id is stale.
    pub(super) fn find(&self, sock: SockId) -> Option<&Slot<H>> {
        let slot = self.slots.get(sock.index as usize)?;
        (slot.generation == sock.generation && slot.is_valid_for_handler()).then_some(slot)
    }

    /// As `find`, mutably.
    pub(super) fn find_mut(&mut self, sock: SockId) -> Option<&mut Slot<H>> {
        let slot = self.slots.get_mut(sock.index as usize)?;
        (slot.generation == sock.generation && slot.is_valid_for_handler()).then_some(slot)
    }

    /// Whether the slot that an edge names is still the same connection (closing ones included).
    pub(super) fn is_current(&self, index: u32, generation: u32) -> bool {
        self.slots
            .get(index as usize)
            .is_some_and(|slot| slot.generation == generation && !matches!(slot.state, State::Free))
    }

    /// The slot at `index`, for indices from the driver's own lists.
    pub(super) fn at(&mut self, index: u32) -> &mut Slot<H> {
        &mut self.slots[index as usize]
    }

    /// The current id of slot `index`.
    pub(super) fn id(&self, index: u32) -> SockId {
        SockId::new(index, self.slots[index as usize].generation)
    }

    /// Takes all handles out, when the driver is dropped.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = H> {
        self.slots.drain(..).filter_map(|slot| slot.handle)
    }
}
