//! A table of slots with generations: the id of a removed value never refers to the slot's next value.
//! In: values. Out: `Id`s (index and generation). Never: changes the index of a stored value.
//! Invariant: a slot's generation is odd while the slot is taken and even while it is free.

use core::fmt;
use core::marker::PhantomData;

/// Names one value stored in one slot of a `Slab<T>` (or of any table that works in the same way).
pub struct Id<T: ?Sized> {
    /// The slot's index in its table.
    pub index: u32,
    /// The slot's generation while it holds that value.
    pub generation: u32,
    tenant: PhantomData<fn() -> Box<T>>,
}

impl<T: ?Sized> Id<T> {
    /// An id that names nothing. No taken slot has generation 0.
    pub const NONE: Self = Self::new(u32::MAX, 0);

    /// The id of the value that slot `index` holds in `generation`.
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation, tenant: PhantomData }
    }

    /// Whether this is [`Id::NONE`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.generation == 0
    }
}

impl<T: ?Sized> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: ?Sized> Copy for Id<T> {}
impl<T: ?Sized> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index && self.generation == other.generation
    }
}
impl<T: ?Sized> Eq for Id<T> {}
impl<T: ?Sized> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

struct Slot<T> {
    /// Odd while the slot is taken, even while it is free.
    generation: u32,
    content: Content<T>,
}

/// The content of a slot. An enum, because a free slot needs no space for a value and a taken slot needs no space for a link.
enum Content<T> {
    /// The value.
    Taken(T),
    /// The slot is free. The index of the next free slot, or `END`.
    Free(u32),
}

impl<T> Content<T> {
    const fn value(&self) -> Option<&T> {
        match self {
            Self::Taken(value) => Some(value),
            Self::Free(_) => None,
        }
    }

    const fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Taken(value) => Some(value),
            Self::Free(_) => None,
        }
    }
}

/// A table of at most `capacity_max` values that hands out generation-checked ids.
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// Head of the list of free slots, or `END` if there is none.
    first_free: u32,
    /// Number of taken slots; at most `capacity_max`.
    taken: usize,
    capacity_max: usize,
}

/// Ends the list of free slots.
const END: u32 = u32::MAX;

impl<T> Slab<T> {
    /// Creates an empty table for at most `capacity_max` values.
    #[must_use]
    pub fn new(capacity_max: usize) -> Self {
        Self { slots: Vec::new(), first_free: END, taken: 0, capacity_max }
    }

    /// As `new`, with memory reserved (but not touched) for `reserved` values. A table that grows to many values then
    /// never copies them, and leaves no smaller copies behind.
    #[must_use]
    pub fn with_capacity(capacity_max: usize, reserved: usize) -> Self {
        Self { slots: Vec::with_capacity(reserved.min(capacity_max)), ..Self::new(capacity_max) }
    }

    /// The number of stored values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.taken
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Stores `value` and returns its id.
    ///
    /// # Errors
    /// Returns the value itself if the table already holds `capacity_max` values.
    pub fn insert(&mut self, value: T) -> Result<Id<T>, T> {
        if self.taken >= self.capacity_max {
            return Err(value);
        }
        let index = self.first_free;
        let index = match self.slots.get(index as usize).map(|slot| &slot.content) {
            Some(Content::Free(next)) => {
                self.first_free = *next;
                index
            }
            // END, which is above every index.
            Some(Content::Taken(_)) | None => {
                self.slots.push(Slot { generation: 0, content: Content::Free(END) });
                (self.slots.len() - 1) as u32
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1) | 1;
        slot.content = Content::Taken(value);
        self.taken += 1;
        Ok(Id::new(index, slot.generation))
    }

    /// The value named by `id`, unless it was removed.
    #[must_use]
    pub fn get(&self, id: Id<T>) -> Option<&T> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.generation == id.generation { slot.content.value() } else { None }
    }

    /// The value named by `id`, mutably, unless it was removed.
    pub fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.content.value_mut() } else { None }
    }

    /// Removes the value named by `id` and returns it. The id is stale afterwards.
    pub fn remove(&mut self, id: Id<T>) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let content = core::mem::replace(&mut slot.content, Content::Free(self.first_free));
        let Content::Taken(value) = content else {
            slot.content = content;
            return None;
        };
        slot.generation = slot.generation.wrapping_add(1);
        self.first_free = id.index;
        self.taken -= 1;
        Some(value)
    }

    /// A table that stores a value of another type under each id of this table. Values that are inserted later get other ids.
    #[must_use]
    pub fn with_same_ids<U>(&self, value_of: impl Fn(&T) -> U) -> Slab<U> {
        let same = |slot: &Slot<T>| Slot {
            generation: slot.generation,
            content: match &slot.content {
                Content::Taken(value) => Content::Taken(value_of(value)),
                Content::Free(next) => Content::Free(*next),
            },
        };
        Slab {
            slots: self.slots.iter().map(same).collect(),
            first_free: self.first_free,
            taken: self.taken,
            capacity_max: self.capacity_max,
        }
    }

    /// All stored values with their ids, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            slot.content.value().map(|value| (Id::new(index as u32, slot.generation), value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_id_is_rejected_after_slot_reuse() {
        let mut slab = Slab::new(2);
        let first = slab.insert("first").unwrap();
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second").unwrap();
        assert_eq!(first.index, second.index, "the slot was not reused");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
    }

    #[test]
    fn full_slab_returns_the_value() {
        let mut slab = Slab::new(1);
        slab.insert(1).unwrap();
        assert_eq!(slab.insert(2), Err(2));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn copied_table_never_reuses_an_id_of_the_original() {
        let mut slab = Slab::new(4);
        let ids: Vec<_> = ["a", "b", "c"].map(|value| slab.insert(value).unwrap()).into();
        slab.remove(ids[1]);
        let mut other = slab.with_same_ids(|value| value.len());
        let same = |id: Id<&str>| Id::new(id.index, id.generation);
        assert_eq!((other.get(same(ids[0])), other.get(same(ids[1]))), (Some(&1), None));
        let added = other.insert(7).unwrap();
        assert!(ids.iter().all(|id| same(*id) != added), "{added:?}");
        assert_eq!((other.len(), other.remove(same(ids[2]))), (3, Some(1)));
    }

    #[test]
    fn id_none_is_never_found() {
        let mut slab: Slab<u8> = Slab::new(1);
        assert_eq!(slab.get(Id::NONE), None);
        let id = slab.insert(1).unwrap();
        assert!(!id.is_none());
        assert_eq!(slab.iter().count(), 1);
    }
}
