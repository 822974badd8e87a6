//! The open streams of a connection, found by id.
//! In: new streams, in the order of their ids. Out: slots, which do not move while a stream is open.
//! Never: hashes; ids are kept sorted, and a lookup is a binary search.
//! Limits: as many streams as the connection allows; the caller checks that before it adds one.
//! Invariant: `ids` is sorted by id, and each of its slots holds the stream with that id.

use super::bounds::RESET_STREAMS_REMEMBERED;
use super::stream::Stream;

/// Streams that ended and are still known, to choose the error code for a late HEADERS frame (RFC 9113 section
/// 5.1): STREAM_CLOSED, or PROTOCOL_ERROR for an id that was never used.
const CLOSED_REMEMBERED: usize = 8;

/// The index of a stream in the table.
pub(super) type Slot = u32;

/// The open streams of a connection.
#[derive(Debug)]
pub(super) struct Streams {
    /// The id and slot of each open stream, sorted by id.
    ids: Vec<(u32, Slot)>,
    /// The streams. A free slot contains a closed one.
    slots: Vec<Stream>,
    /// Free slots.
    free: Vec<Slot>,
    /// Streams that ended without a reset by this side, in a ring; 0 for none.
    closed: [u32; CLOSED_REMEMBERED],
    /// The index in `closed` of the next id.
    closed_at: u8,
    /// Streams that this side has reset, oldest first; at most `RESET_STREAMS_REMEMBERED`.
    reset: Vec<u32>,
}

impl Streams {
    pub(super) const fn new() -> Self {
        Self {
            ids: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            closed: [0; CLOSED_REMEMBERED],
            closed_at: 0,
            reset: Vec::new(),
        }
    }

    /// The number of open streams.
    pub(super) const fn len(&self) -> usize {
        self.ids.len()
    }

    /// The slot of an open stream.
    pub(super) fn find(&self, id: u32) -> Option<Slot> {
        // Most frames concern the newest stream.
        if let Some(&(last, slot)) = self.ids.last()
            && last == id
        {
            return Some(slot);
        }
        let at = self.ids.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        self.ids.get(at).map(|&(_, slot)| slot)
    }

    /// The open stream with this id.
    pub(super) fn get(&self, id: u32) -> Option<&Stream> {
        self.slots.get(self.find(id)? as usize)
    }

    /// The open stream with this id, mutably.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        let slot = self.find(id)?;
        self.slots.get_mut(slot as usize)
    }

    /// The stream in a slot.
    pub(super) fn at(&self, slot: Slot) -> Option<&Stream> {
        self.slots.get(slot as usize)
    }

    /// The stream in a slot, mutably.
    pub(super) fn at_mut(&mut self, slot: Slot) -> Option<&mut Stream> {
        self.slots.get_mut(slot as usize)
    }

    /// Adds a stream, whose id is above all others.
    pub(super) fn add(&mut self, mut stream: Stream) -> Slot {
        debug_assert!(self.ids.last().is_none_or(|&(last, _)| last < stream.id));
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(stream);
                self.slots.len() as Slot - 1
            }
        };
        stream.slot = slot;
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = stream;
        }
        self.ids.push((stream.id, slot));
        slot
    }

    /// The stream in the slot that `add` returned.
    pub(super) fn slot_mut(&mut self, slot: Slot) -> &mut Stream {
        &mut self.slots[slot as usize]
    }

    /// Removes a stream and returns it.
    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        let at = self.ids.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        let (_, slot) = self.ids.remove(at);
        self.free.push(slot);
        self.slots.get(slot as usize).copied()
    }

    /// The first open stream with an id above `id`.
    pub(super) fn first_above(&self, id: u32) -> Option<&Stream> {
        let at = self.ids.partition_point(|&(stream, _)| stream <= id);
        self.ids.get(at).and_then(|&(_, slot)| self.at(slot))
    }

    /// All open streams, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.ids.iter().filter_map(|&(_, slot)| self.at(slot))
    }

    /// Remembers that a stream ended without a reset by this side.
    pub(super) fn remember_closed(&mut self, id: u32) {
        if let Some(place) = self.closed.get_mut(usize::from(self.closed_at)) {
            *place = id;
        }
        self.closed_at = (self.closed_at + 1) % CLOSED_REMEMBERED as u8;
    }

    /// Whether the stream ended recently without a reset by this side.
    pub(super) fn was_closed(&self, id: u32) -> bool {
        self.closed.contains(&id)
    }

    /// Remembers that this side has reset a stream, so that late frames for it are ignored.
    pub(super) fn remember_reset(&mut self, id: u32) {
        if self.reset.len() >= RESET_STREAMS_REMEMBERED {
            self.reset.remove(0);
        }
        self.reset.push(id);
    }

    /// Whether this side has reset the stream recently.
    pub(super) fn was_reset(&self, id: u32) -> bool {
        self.reset.contains(&id)
    }

    /// Frees memory that is not in use, if no stream is open.
    pub(super) fn shrink(&mut self) {
        if self.ids.is_empty() {
            let reset = core::mem::take(&mut self.reset);
            *self = Self { reset, closed: self.closed, closed_at: self.closed_at, ..Self::new() };
            self.reset.shrink_to_fit();
        }
    }

    /// Bytes of memory on the heap.
    pub(super) const fn held_bytes(&self) -> usize {
        self.ids.capacity() * size_of::<(u32, Slot)>()
            + self.slots.capacity() * size_of::<Stream>()
            + (self.free.capacity() + self.reset.capacity()) * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::stream::Expected;

    const fn stream(id: u32) -> Stream {
        Stream::new(id, id as u64 * 10, Expected::Body, 1)
    }

    #[test]
    fn streams_are_found_by_id_and_slots_are_reused() {
        let mut streams = Streams::new();
        for id in [1, 3, 5, 9] {
            streams.add(stream(id));
        }
        let slot = streams.find(3).unwrap();
        assert_eq!(streams.remove(3).unwrap().token, 30);
        assert!(streams.get(3).is_none() && streams.remove(3).is_none());
        assert_eq!(streams.add(stream(11)), slot);
        assert_eq!(streams.iter().map(|stream| stream.id).collect::<Vec<_>>(), [1, 5, 9, 11]);
        assert_eq!(streams.first_above(5).unwrap().id, 9);
        assert!(streams.first_above(11).is_none());
        assert_eq!(streams.get_mut(9).unwrap().token, 90);
    }

    #[test]
    fn remembered_resets_are_bounded() {
        let mut streams = Streams::new();
        for id in 0..RESET_STREAMS_REMEMBERED as u32 + 1 {
            streams.remember_reset(id);
        }
        assert!(!streams.was_reset(0) && streams.was_reset(1));
        assert_eq!(streams.reset.len(), RESET_STREAMS_REMEMBERED);
    }
}
