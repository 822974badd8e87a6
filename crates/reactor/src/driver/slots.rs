//! One slot per connection: all that the driver remembers of it while it is idle.
//! In: `SockId`s and tokens. Out: the slot of exactly that tenancy, or nothing.
//! Limits: `socks_max` slots. 40 bytes each, and 24 more in the timer wheel: 64 per idle connection.
//! Invariant: a slot's generation is odd while it is taken and even while it is free.

use tidegate_base::Moment;

use crate::interface::{CloseReason, SockId};

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// That it be taken.
    Free,
    /// The outcome of `connect`.
    Connecting,
    /// That the user be told that `connect` failed at once.
    Failed(CloseReason),
    /// Bytes, both ways.
    Open,
    /// After the user's `close`: that the output leaves and the peer closes. Stale to the user.
    Closing,
}

/// The sending side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendSide {
    /// Takes bytes.
    Open,
    /// Takes no more; FIN follows the output.
    Finishing,
    /// FIN went out.
    Finished,
    /// The connection is broken: what came in before is handed over, then it is closed.
    Broken,
}

/// No output is pending.
pub(super) const NO_OUTPUT: u32 = u32::MAX;

pub(super) struct Slot<H> {
    /// When `Due` comes (or when a closing connection is given up).
    pub(super) deadline: Moment,
    /// When the wheel looks at this slot; never later than `deadline`, often much earlier.
    pub(super) scheduled: Moment,
    pub(super) generation: u32,
    /// `Some` exactly while the slot is taken, but for `State::Failed`.
    pub(super) handle: Option<H>,
    /// Place of the pending output, or `NO_OUTPUT`.
    pub(super) output: u32,
    pub(super) state: State,
    pub(super) send_side: SendSide,
    /// The user wants bytes.
    pub(super) receiving: bool,
    /// The kernel may have bytes (or the end of stream).
    pub(super) readable: bool,
    /// The kernel said that the end of stream is near: a short read does not mean "empty".
    pub(super) hangup: bool,
    /// The end of stream was found.
    pub(super) ended: bool,
    /// The kernel took no more output; the writable edge is awaited.
    pub(super) blocked: bool,
    /// In the list of outputs to flush at the turn's end.
    pub(super) dirty: bool,
    /// In the list of connections to serve in the next turn without an edge.
    pub(super) queued: bool,
    /// `Drained` is owed.
    pub(super) drain_owed: bool,
    /// Reads thrown away since `close`.
    pub(super) discards: u8,
}

// The handle of the real kernel is a descriptor, whose niche makes the option free.
const _: () = assert!(size_of::<Slot<rustix::fd::OwnedFd>>() <= 40);

impl<H> Slot<H> {
    fn free() -> Self {
        Self {
            deadline: Moment::NEVER,
            scheduled: Moment::NEVER,
            generation: 0,
            handle: None,
            output: NO_OUTPUT,
            state: State::Free,
            send_side: SendSide::Open,
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

    /// Whether the user's id still reaches this slot.
    fn is_users(&self) -> bool {
        !matches!(self.state, State::Free | State::Closing)
    }
}

pub(super) struct Slots<H> {
    slots: Vec<Slot<H>>,
    free: Vec<u32>,
    count_max: usize,
}

/// Slots reserved (not touched) at once, so that a growing worker does not copy its table.
pub(super) const RESERVED_MAX: usize = 1 << 20;

impl<H> Slots<H> {
    pub(super) fn new(count_max: usize) -> Self {
        // The listeners' tokens take the upper half of the indices.
        let count_max = count_max.min(super::LISTENER_INDEX as usize);
        let slots = Vec::with_capacity(count_max.min(RESERVED_MAX));
        Self { slots, free: Vec::new(), count_max }
    }

    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() >= self.count_max
    }

    /// Takes a slot; the caller has checked `is_full`.
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

    /// Frees a slot. Its entry in the wheel stays and finds nothing due (cheaper than a cancel for
    /// short connections); so does its place in the driver's lists.
    pub(super) fn remove(&mut self, index: u32) -> Option<H> {
        let slot = &mut self.slots[index as usize];
        let handle = slot.handle.take();
        let (scheduled, generation) = (slot.scheduled, slot.generation.wrapping_add(1));
        *slot = Slot { scheduled, generation, ..Slot::free() };
        self.free.push(index);
        handle
    }

    /// The slot the user means, unless the id is stale.
    pub(super) fn find(&self, sock: SockId) -> Option<&Slot<H>> {
        let slot = self.slots.get(sock.index as usize)?;
        (slot.generation == sock.generation && slot.is_users()).then_some(slot)
    }

    /// The same, to change.
    pub(super) fn find_mut(&mut self, sock: SockId) -> Option<&mut Slot<H>> {
        let slot = self.slots.get_mut(sock.index as usize)?;
        (slot.generation == sock.generation && slot.is_users()).then_some(slot)
    }

    /// The slot an edge means, closing ones included.
    pub(super) fn is_current(&self, index: u32, generation: u32) -> bool {
        self.slots
            .get(index as usize)
            .is_some_and(|slot| slot.generation == generation && !matches!(slot.state, State::Free))
    }

    /// The slot at `index`, which the driver's own lists named.
    pub(super) fn at(&mut self, index: u32) -> &mut Slot<H> {
        &mut self.slots[index as usize]
    }

    /// The user's id of the tenant at `index`.
    pub(super) fn id(&self, index: u32) -> SockId {
        SockId::new(index, self.slots[index as usize].generation)
    }

    /// Takes every handle out, for the driver's end.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = H> {
        self.slots.drain(..).filter_map(|slot| slot.handle)
    }
}
