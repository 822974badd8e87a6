//! The queue of requests that wait for a server below its limit: first in, first out, with removal.
//! In: ids with a dense index. Out: the same ids, in order. Never: measures time (the worker's deadlines do).
//! Limits: `length_max` entries; the table behind them grows to the highest index that was ever queued.
//! Invariant: the list from `first` to `last` contains exactly the occupied nodes, `length` of them.

use tidegate_base::Id;

/// No node.
const NONE: u32 = u32::MAX;

/// An id with a dense, reused index, so that its node is found without a search.
pub trait DenseIndex: Copy + PartialEq {
    /// The index of the id.
    fn dense_index(self) -> u32;
}

impl<T: ?Sized> DenseIndex for Id<T> {
    fn dense_index(self) -> u32 {
        self.index
    }
}

#[derive(Clone, Copy)]
struct Node<T> {
    /// The queued id; `None` if this index is not queued.
    id: Option<T>,
    /// The index of the entry before this one, or `NONE`.
    previous: u32,
    /// The index of the entry after this one, or `NONE`.
    next: u32,
}

/// A bounded first-in-first-out queue. Any entry can be removed in constant time.
pub struct WaitQueue<T> {
    /// By the index of the id.
    nodes: Vec<Node<T>>,
    /// The index of the first entry, or `NONE`.
    first: u32,
    /// The index of the last entry, or `NONE`.
    last: u32,
    /// The number of entries. At most `length_max`.
    length: usize,
    /// The most entries.
    length_max: usize,
}

impl<T: DenseIndex> WaitQueue<T> {
    /// Creates a queue of up to `length_max` entries.
    #[must_use]
    pub fn new(length_max: usize) -> Self {
        Self { nodes: Vec::new(), first: NONE, last: NONE, length: 0, length_max }
    }

    /// Adds `id` at the end. Returns false if the queue is full or the index of `id` is queued already.
    #[must_use]
    pub fn push(&mut self, id: T) -> bool {
        let index = id.dense_index();
        let at = index as usize;
        if self.length >= self.length_max || index == NONE {
            return false;
        }
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, Node { id: None, previous: NONE, next: NONE });
        }
        if self.nodes[at].id.is_some() {
            return false;
        }
        self.nodes[at] = Node { id: Some(id), previous: self.last, next: NONE };
        match self.nodes.get_mut(self.last as usize) {
            Some(last) => last.next = index,
            None => self.first = index,
        }
        self.last = index;
        self.length += 1;
        true
    }

    /// Removes and returns the id that was queued first.
    pub fn pop(&mut self) -> Option<T> {
        let id = self.front()?;
        self.remove(id);
        Some(id)
    }

    /// The id that was queued first.
    #[must_use]
    pub fn front(&self) -> Option<T> {
        self.nodes.get(self.first as usize)?.id
    }

    /// Removes `id` from any position. Returns false if it is not queued.
    pub fn remove(&mut self, id: T) -> bool {
        let Some(node) = self.nodes.get_mut(id.dense_index() as usize) else {
            return false;
        };
        if node.id != Some(id) {
            return false;
        }
        let Node { previous, next, .. } = *node;
        node.id = None;
        match self.nodes.get_mut(previous as usize) {
            Some(node) => node.next = next,
            None => self.first = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(node) => node.previous = previous,
            None => self.last = previous,
        }
        self.length -= 1;
        true
    }

    /// Whether `id` is queued.
    #[must_use]
    pub fn contains(&self, id: T) -> bool {
        self.nodes.get(id.dense_index() as usize).is_some_and(|node| node.id == Some(id))
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(index: u32) -> Id<str> {
        Id::new(index, 1)
    }

    #[test]
    fn ids_leave_in_order_of_arrival() {
        let mut queue = WaitQueue::new(8);
        for index in [5, 0, 3] {
            assert!(queue.push(id(index)));
        }
        assert_eq!(queue.front(), Some(id(5)));
        assert_eq!((queue.pop(), queue.pop()), (Some(id(5)), Some(id(0))));
        assert_eq!((queue.pop(), queue.pop()), (Some(id(3)), None));
    }

    #[test]
    fn full_queue_rejects_until_an_entry_is_removed() {
        let mut queue = WaitQueue::new(2);
        assert!(queue.push(id(1)) && queue.push(id(2)));
        assert!(!queue.push(id(3)));
        assert!(queue.remove(id(1)));
        assert!(queue.push(id(3)));
        assert_eq!(queue.len(), 2);
        assert!(!WaitQueue::new(0).push(id(1)));
    }

    #[test]
    fn stale_id_removes_nothing() {
        let mut queue = WaitQueue::new(2);
        assert!(queue.push(Id::<str>::new(4, 3)));
        assert!(!queue.remove(Id::new(4, 1)));
        assert!(!queue.contains(Id::new(4, 1)));
        assert!(!queue.push(Id::new(4, 5)), "the index is queued already");
        assert!(!queue.push(Id::NONE));
        assert_eq!(queue.len(), 1);
    }

    proptest! {
        #[test]
        fn random_operations_agree_with_a_plain_list(
            steps in prop::collection::vec((0..3_u8, 0..12_u32), 0..200),
        ) {
            let mut queue = WaitQueue::new(6);
            let mut list: Vec<u32> = Vec::new();
            for (what, index) in steps {
                match what {
                    0 => {
                        let taken = list.len() < 6 && !list.contains(&index);
                        prop_assert_eq!(queue.push(id(index)), taken);
                        if taken {
                            list.push(index);
                        }
                    }
                    1 => {
                        let there = list.iter().position(|&other| other == index);
                        prop_assert_eq!(queue.remove(id(index)), there.is_some());
                        there.map(|at| list.remove(at));
                    }
                    _ => {
                        let first = (!list.is_empty()).then(|| list.remove(0));
                        prop_assert_eq!(queue.pop(), first.map(id));
                    }
                }
                prop_assert_eq!(queue.len(), list.len());
                prop_assert_eq!(queue.contains(id(index)), list.contains(&index));
            }
            let rest: Vec<u32> = core::iter::from_fn(|| queue.pop()).map(|id| id.index).collect();
            prop_assert_eq!(rest, list);
        }
    }
}
