//! The queue of requests that wait until a server is below its limit: in order of arrival, with removal.
//! In: ids with a dense index, each with the number of its arrival. Out: the same ids, in order of arrival.
//! Never: measures time (the worker's deadlines do).
//! Limits: `length_max` entries, and requests that are put back (the caller bounds their number); the table
//! behind them grows to the highest index that was ever queued.
//! Invariant: the list from `first` to `last` contains exactly the occupied nodes, `length` of them, and their
//! arrivals increase.

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
    /// The number of the arrival of `id`. Entries that arrived earlier are before this one.
    arrival: u64,
    /// The index of the entry before this one, or `NONE`.
    previous: u32,
    /// The index of the entry after this one, or `NONE`.
    next: u32,
}

/// A bounded queue in order of arrival. Any entry can be removed in constant time.
pub struct WaitQueue<T> {
    /// By the index of the id.
    nodes: Vec<Node<T>>,
    /// The index of the first entry, or `NONE`.
    first: u32,
    /// The index of the last entry, or `NONE`.
    last: u32,
    /// The number of entries. Exceeds `length_max` only by entries that were put back.
    length: usize,
    /// `push` refuses further entries beyond this number.
    length_max: usize,
}

impl<T: DenseIndex> WaitQueue<T> {
    /// Creates a queue of up to `length_max` entries.
    #[must_use]
    pub fn new(length_max: usize) -> Self {
        Self { nodes: Vec::new(), first: NONE, last: NONE, length: 0, length_max }
    }

    /// The number of entries beyond which `push` refuses.
    #[must_use]
    pub fn length_max(&self) -> usize {
        self.length_max
    }

    /// Changes the number of entries beyond which `push` refuses.
    pub fn set_length_max(&mut self, length_max: usize) {
        self.length_max = length_max;
    }

    /// Adds `id`, which arrived as number `arrival`. Returns false if the queue is full or the index of `id` is
    /// queued already.
    #[must_use]
    pub fn push(&mut self, id: T, arrival: u64) -> bool {
        self.length < self.length_max && self.put_back(id, arrival)
    }

    /// Like [`Self::push`], even if the queue is full: for a request that had a server and needs another one.
    #[must_use]
    pub fn put_back(&mut self, id: T, arrival: u64) -> bool {
        let index = id.dense_index();
        let at = index as usize;
        if index == NONE {
            return false;
        }
        if at >= self.nodes.len() {
            let vacant = Node { id: None, arrival: 0, previous: NONE, next: NONE };
            self.nodes.resize(at + 1, vacant);
        }
        if self.nodes[at].id.is_some() {
            return false;
        }
        let next = self.first_after(arrival);
        let previous = match self.nodes.get(next as usize) {
            Some(node) => node.previous,
            None => self.last,
        };
        self.nodes[at] = Node { id: Some(id), arrival, previous, next };
        match self.nodes.get_mut(previous as usize) {
            Some(node) => node.next = index,
            None => self.first = index,
        }
        match self.nodes.get_mut(next as usize) {
            Some(node) => node.previous = index,
            None => self.last = index,
        }
        self.length += 1;
        true
    }

    /// The index of the first entry that arrived after `arrival`, or `NONE`. A new request finds `NONE` at
    /// once. A request that is put back is older than most entries, so the search begins at the front.
    fn first_after(&self, arrival: u64) -> u32 {
        match self.nodes.get(self.last as usize) {
            Some(last) if last.arrival > arrival => {}
            _ => return NONE,
        }
        let mut at = self.first;
        while let Some(node) = self.nodes.get(at as usize)
            && node.arrival <= arrival
        {
            at = node.next;
        }
        at
    }

    /// Removes and returns the id that arrived first.
    pub fn pop(&mut self) -> Option<T> {
        let id = self.front()?;
        self.remove(id);
        Some(id)
    }

    /// The id that arrived first.
    #[must_use]
    pub fn front(&self) -> Option<T> {
        self.nodes.get(self.first as usize)?.id
    }

    /// The id that arrived next after `id`; `None` if `id` is the last one or is not queued.
    #[must_use]
    pub fn after(&self, id: T) -> Option<T> {
        let node = self.nodes.get(id.dense_index() as usize).filter(|node| node.id == Some(id))?;
        self.nodes.get(node.next as usize)?.id
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
        for (arrival, index) in [5, 0, 3].into_iter().enumerate() {
            assert!(queue.push(id(index), arrival as u64));
        }
        assert_eq!(queue.front(), Some(id(5)));
        assert_eq!((queue.pop(), queue.pop()), (Some(id(5)), Some(id(0))));
        assert_eq!((queue.pop(), queue.pop()), (Some(id(3)), None));
    }

    #[test]
    fn full_queue_rejects_until_an_entry_is_removed() {
        let mut queue = WaitQueue::new(2);
        assert!(queue.push(id(1), 1) && queue.push(id(2), 2));
        assert!(!queue.push(id(3), 3));
        assert!(queue.remove(id(1)));
        assert!(queue.push(id(3), 3));
        assert_eq!(queue.len(), 2);
        assert!(!WaitQueue::new(0).push(id(1), 1));
    }

    #[test]
    fn request_that_is_put_back_keeps_its_place() {
        let mut queue = WaitQueue::new(2);
        assert!(queue.push(id(1), 1) && queue.push(id(4), 4));
        assert!(queue.put_back(id(3), 3), "even if the queue is full");
        assert!(queue.put_back(id(0), 0));
        assert_eq!((queue.after(id(1)), queue.after(id(4))), (Some(id(3)), None));
        let order: Vec<u32> = core::iter::from_fn(|| queue.pop()).map(|id| id.index).collect();
        assert_eq!(order, [0, 1, 3, 4]);
    }

    #[test]
    fn stale_id_removes_nothing() {
        let mut queue = WaitQueue::new(2);
        assert!(queue.push(Id::<str>::new(4, 3), 0));
        assert!(!queue.remove(Id::new(4, 1)));
        assert!(!queue.contains(Id::new(4, 1)));
        assert!(!queue.push(Id::new(4, 5), 1), "the index is queued already");
        assert!(!queue.push(Id::NONE, 1));
        assert_eq!(queue.len(), 1);
    }

    proptest! {
        #[test]
        fn random_operations_agree_with_a_plain_list(
            steps in prop::collection::vec((0..3_u8, 0..12_u32, 0..1000_u64), 0..200),
        ) {
            let mut queue = WaitQueue::new(6);
            // Sorted pairs of an arrival and an index.
            let mut list: Vec<(u64, u32)> = Vec::new();
            for (what, index, arrival) in steps {
                let place = list.iter().position(|&(_, other)| other == index);
                match what {
                    0 => {
                        let taken = list.len() < 6 && place.is_none();
                        prop_assert_eq!(queue.push(id(index), arrival), taken);
                        if taken {
                            let at = list.partition_point(|&(other, _)| other <= arrival);
                            list.insert(at, (arrival, index));
                        }
                    }
                    1 => {
                        prop_assert_eq!(queue.remove(id(index)), place.is_some());
                        place.map(|at| list.remove(at));
                    }
                    _ => {
                        let first = (!list.is_empty()).then(|| list.remove(0));
                        prop_assert_eq!(queue.pop(), first.map(|(_, index)| id(index)));
                    }
                }
                prop_assert_eq!(queue.len(), list.len());
                let place = list.iter().position(|&(_, other)| other == index);
                prop_assert_eq!(queue.contains(id(index)), place.is_some());
                let next = place.and_then(|at| list.get(at + 1));
                prop_assert_eq!(queue.after(id(index)), next.map(|&(_, index)| id(index)));
            }
            let rest: Vec<u32> = core::iter::from_fn(|| queue.pop()).map(|id| id.index).collect();
            let left: Vec<u32> = list.into_iter().map(|(_, index)| index).collect();
            prop_assert_eq!(rest, left);
        }
    }
}
