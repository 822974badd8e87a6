//! Slots with generations: an id of a slot that was freed never reaches its next tenant.
//! In: values. Out: `Id`s (index + generation). Never: moves a value once it is in.
//! Invariant: a slot's generation is odd while it is taken and even while it is free.

use core::fmt;
use core::marker::PhantomData;

/// Names one tenancy of one slot of a `Slab<T>` (or of any table indexed in the same way).
pub struct Id<T: ?Sized> {
    /// The slot's place in its table.
    pub index: u32,
    /// Which tenancy of that slot is meant.
    pub generation: u32,
    tenant: PhantomData<fn() -> Box<T>>,
}

impl<T: ?Sized> Id<T> {
    /// An id that names nothing: no slot ever has generation 0.
    pub const NONE: Self = Self::new(u32::MAX, 0);

    /// The id of tenancy `generation` of slot `index`.
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
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// A table of at most `capacity_max` values that hands out generation-checked ids.
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    first_free: u32,
    taken: usize,
    capacity_max: usize,
}

const END: u32 = u32::MAX;

impl<T> Slab<T> {
    /// An empty table that refuses to hold more than `capacity_max` values.
    #[must_use]
    pub fn new(capacity_max: usize) -> Self {
        Self { slots: Vec::new(), first_free: END, taken: 0, capacity_max }
    }

    /// How many values are in.
    #[must_use]
    pub fn len(&self) -> usize {
        self.taken
    }

    /// Whether no value is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Puts `value` in; gives it back when the table is full.
    ///
    /// # Errors
    /// The value itself, when `capacity_max` values are in already.
    pub fn insert(&mut self, value: T) -> Result<Id<T>, T> {
        if self.taken >= self.capacity_max {
            return Err(value);
        }
        let index = if self.first_free == END {
            self.slots.push(Slot { generation: 0, next_free: END, value: None });
            (self.slots.len() - 1) as u32
        } else {
            let index = self.first_free;
            self.first_free = self.slots[index as usize].next_free;
            index
        };
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1) | 1;
        slot.value = Some(value);
        self.taken += 1;
        Ok(Id::new(index, slot.generation))
    }

    /// The value of that tenancy, if it still is in.
    #[must_use]
    pub fn get(&self, id: Id<T>) -> Option<&T> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.generation == id.generation { slot.value.as_ref() } else { None }
    }

    /// The value of that tenancy, to change, if it still is in.
    pub fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.value.as_mut() } else { None }
    }

    /// Takes the value of that tenancy out; its id is stale from here on.
    pub fn remove(&mut self, id: Id<T>) -> Option<T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next_free = self.first_free;
        self.first_free = id.index;
        self.taken -= 1;
        Some(value)
    }

    /// All that is in, with its id, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            slot.value.as_ref().map(|value| (Id::new(index as u32, slot.generation), value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_never_reaches_the_next_tenant() {
        let mut slab = Slab::new(2);
        let first = slab.insert("first").unwrap();
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second").unwrap();
        assert_eq!(first.index, second.index, "the slot is used again");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
    }

    #[test]
    fn a_full_slab_gives_the_value_back() {
        let mut slab = Slab::new(1);
        slab.insert(1).unwrap();
        assert_eq!(slab.insert(2), Err(2));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn none_names_nothing() {
        let mut slab: Slab<u8> = Slab::new(1);
        assert_eq!(slab.get(Id::NONE), None);
        let id = slab.insert(1).unwrap();
        assert!(!id.is_none());
        assert_eq!(slab.iter().count(), 1);
    }
}
