//! A slab that reports missing values: for state that must exist as long as its id is in use.
//! In: values. Out: ids, and the values that they name. Never: hides that a value is missing: `get`, `get_mut` and
//! `remove` note it, and the worker counts a bug and closes the connections that name the value (`Worker::repair`).
//! A caller that uses an id which a peer or an earlier step may have made stale calls `find` or `find_mut`.

use core::cell::RefCell;

use tidegate_base::{Id, Slab};

/// Maximum number of values for which memory is reserved.
const RESERVED_MAX: usize = 1 << 18;

/// A slab that notes ids which name nothing.
pub(crate) struct CheckedSlab<T> {
    slab: Slab<T>,
    /// Ids that named nothing when they were used. Empty between two completions.
    missed: RefCell<Vec<Id<T>>>,
}

impl<T> CheckedSlab<T> {
    /// Creates an empty slab for at most `capacity_max` values.
    pub(crate) fn new(capacity_max: usize) -> Self {
        Self { slab: Slab::new(capacity_max), missed: RefCell::default() }
    }

    /// As `new`, with memory reserved (but not touched) for values that long connections hold.
    pub(crate) fn reserved(capacity_max: usize) -> Self {
        let slab = Slab::with_capacity(capacity_max, RESERVED_MAX);
        Self { slab, missed: RefCell::default() }
    }

    /// The value named by `id`, which must exist.
    pub(crate) fn get(&self, id: Id<T>) -> Option<&T> {
        let found = self.slab.get(id);
        if found.is_none() {
            note_missed(&self.missed, id);
        }
        found
    }

    /// The value named by `id`, which must exist, mutably.
    pub(crate) fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        let found = self.slab.get_mut(id);
        if found.is_none() {
            note_missed(&self.missed, id);
        }
        found
    }

    /// Removes the value named by `id`, which must exist, and returns it.
    pub(crate) fn remove(&mut self, id: Id<T>) -> Option<T> {
        let removed = self.slab.remove(id);
        if removed.is_none() {
            note_missed(&self.missed, id);
        }
        removed
    }

    /// The value named by `id`, unless it was removed.
    pub(crate) fn find(&self, id: Id<T>) -> Option<&T> {
        self.slab.get(id)
    }

    /// The value named by `id`, mutably, unless it was removed.
    pub(crate) fn find_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        self.slab.get_mut(id)
    }

    /// Stores `value` and returns its id, or the value if there is no room.
    pub(crate) fn insert(&mut self, value: T) -> Result<Id<T>, T> {
        self.slab.insert(value)
    }

    /// The number of stored values.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// All stored values with their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.slab.iter()
    }

    /// Whether an id was used that named nothing.
    pub(crate) fn has_missed(&self) -> bool {
        !self.missed.borrow().is_empty()
    }

    /// The ids that named nothing when they were used, since the last call.
    pub(crate) fn take_missed(&mut self) -> Vec<Id<T>> {
        core::mem::take(self.missed.get_mut())
    }
}

#[cold]
fn note_missed<T>(missed: &RefCell<Vec<Id<T>>>, id: Id<T>) {
    missed.borrow_mut().push(id);
    debug_assert!(false, "nothing exists under the id {id:?}, which is still in use");
}
