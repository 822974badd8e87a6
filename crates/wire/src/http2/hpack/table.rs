//! The dynamic table (RFC 7541 section 2.3.2): a queue of fields, bounded in bytes.
//! In: fields to insert, sizes. Out: entries by index, 0 for the newest.
//! Never: allocates before the first insertion; holds more than one allocation.
//! Limits: the size set by `resize`, up to `TABLE_BYTES_MAX`; memory up to that size and `PREFIX`.
//! Invariant: the strings of the entries lie in order of insertion from `start` to `head`, their descriptors
//! from `descriptors` to the end of the memory, newest first. Both regions grow towards each other. When they
//! meet, the live parts move to the ends, so each entry moves at most once while the memory has full size:
//! an entry counts 32 bytes more than its strings, and uses only 8.

use super::{FIELD_OVERHEAD_BYTES, TABLE_BYTES_MAX};

/// Bytes of a descriptor in memory.
const DESCRIPTOR_BYTES: usize = 8;
/// Memory taken at the first insertion, unless the table is smaller or the entry larger.
const FIRST_BYTES: usize = 512;

const _: () = assert!(DESCRIPTOR_BYTES < FIELD_OVERHEAD_BYTES, "all entries fit into the memory");
const _: () = assert!(TABLE_BYTES_MAX as usize <= 1 << 16, "positions and lengths have 16 bits");

/// The place of an entry.
#[derive(Clone, Copy)]
struct Descriptor {
    /// The position of the name, in the strings, modulo 2^16, as if no string had ever moved; the value
    /// follows the name.
    position: u16,
    name_bytes: u16,
    value_bytes: u16,
    /// The note that the user of the table stored with the entry.
    link: u16,
}

const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR_BYTES);

impl Descriptor {
    #[inline]
    const fn from_bytes(bytes: [u8; DESCRIPTOR_BYTES]) -> Self {
        let bits = u64::from_le_bytes(bytes);
        Self {
            position: bits as u16,
            name_bytes: (bits >> 16) as u16,
            value_bytes: (bits >> 32) as u16,
            link: (bits >> 48) as u16,
        }
    }

    #[inline]
    const fn to_bytes(self) -> [u8; DESCRIPTOR_BYTES] {
        let strings = self.position as u64 | (self.name_bytes as u64) << 16;
        let bits = strings | (self.value_bytes as u64) << 32 | (self.link as u64) << 48;
        bits.to_le_bytes()
    }

    #[inline]
    const fn string_bytes(self) -> usize {
        self.name_bytes as usize + self.value_bytes as usize
    }
}

/// An entry of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    /// The note that was stored with the entry.
    pub(super) link: u16,
}

/// A dynamic table. The first `PREFIX` bytes of its memory belong to the user of the table; they begin as zeros.
#[derive(Debug)]
pub(super) struct Table<const PREFIX: usize> {
    /// Empty, or `PREFIX` bytes, strings, unused bytes and descriptors.
    memory: Vec<u8>,
    /// The offset at which the strings of the oldest entry begin.
    start: u32,
    /// The offset at which the strings of the newest entry end.
    head: u32,
    /// The offset at which the newest descriptor begins.
    descriptors: u32,
    /// How far the strings have moved in total, modulo 2^16: a string is at its position less this number.
    moved: u16,
    /// Entries.
    count: u32,
    /// The size of all entries as the RFC counts it.
    size: u32,
    /// Maximum of `size`.
    size_max: u32,
}

impl<const PREFIX: usize> Table<PREFIX> {
    /// Creates an empty table without memory.
    pub(super) const fn new(size_max: u32) -> Self {
        Self {
            memory: Vec::new(),
            start: PREFIX as u32,
            head: PREFIX as u32,
            descriptors: 0,
            moved: 0,
            count: 0,
            size: 0,
            size_max,
        }
    }

    /// Maximum of the size.
    #[inline]
    pub(super) const fn size_max(&self) -> u32 {
        self.size_max
    }

    /// The size of all entries as the RFC counts it.
    #[cfg(test)]
    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    /// How many entries there are.
    #[inline]
    pub(super) const fn count(&self) -> usize {
        self.count as usize
    }

    /// Bytes of memory that the table holds.
    pub(super) const fn held_bytes(&self) -> usize {
        self.memory.capacity()
    }

    /// The user's part of the memory; `None` before the first insertion.
    #[inline]
    pub(super) fn prefix(&self) -> Option<&[u8; PREFIX]> {
        self.memory.first_chunk()
    }

    /// The user's part of the memory; `None` before the first insertion.
    #[inline]
    pub(super) fn prefix_mut(&mut self) -> Option<&mut [u8; PREFIX]> {
        self.memory.first_chunk_mut()
    }

    /// The entry at `index`; 0 is the newest.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<Entry<'_>> {
        let descriptor = self.descriptor(index)?;
        let at = PREFIX + usize::from(descriptor.position.wrapping_sub(self.moved));
        let strings = self.memory.get(at..at + descriptor.string_bytes())?;
        let (name, value) = strings.split_at_checked(usize::from(descriptor.name_bytes))?;
        Some(Entry { name, value, link: descriptor.link })
    }

    /// Inserts an entry, after it evicted as many old ones as needed. An entry larger than the table empties
    /// it and is not inserted (section 4.4). Returns whether the entry was inserted.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], link: u16) -> bool {
        let string_bytes = name.len() + value.len();
        let Some(kept) = (self.size_max as usize).checked_sub(string_bytes + FIELD_OVERHEAD_BYTES)
        else {
            self.evict_to(0);
            return false;
        };
        self.evict_to(kept as u32);
        self.make_room(string_bytes + DESCRIPTOR_BYTES);
        let head = self.head as usize;
        let value_at = head + name.len();
        self.memory[head..value_at].copy_from_slice(name);
        self.memory[value_at..value_at + value.len()].copy_from_slice(value);
        let descriptor = Descriptor {
            position: ((head - PREFIX) as u16).wrapping_add(self.moved),
            name_bytes: name.len() as u16,
            value_bytes: value.len() as u16,
            link,
        };
        let at = self.descriptors as usize - DESCRIPTOR_BYTES;
        self.memory[at..at + DESCRIPTOR_BYTES].copy_from_slice(&descriptor.to_bytes());
        self.descriptors = at as u32;
        self.head += string_bytes as u32;
        self.count += 1;
        self.size += (string_bytes + FIELD_OVERHEAD_BYTES) as u32;
        true
    }

    /// Sets the bound of the size, at most `TABLE_BYTES_MAX`, and evicts entries that exceed it.
    pub(super) fn resize(&mut self, size_max: u32) {
        self.size_max = size_max.min(TABLE_BYTES_MAX);
        self.evict_to(self.size_max);
    }

    /// Gives back the memory that the entries do not use: all of it if there are none. The user's part is
    /// lost only in that case.
    pub(super) fn shrink(&mut self) {
        if self.count == 0 {
            *self = Self::new(self.size_max);
        } else if self.used_bytes() < self.memory.len() {
            self.reallocate(self.used_bytes());
        }
    }

    #[inline]
    fn descriptor(&self, index: usize) -> Option<Descriptor> {
        if index >= self.count as usize {
            return None;
        }
        let at = self.descriptors as usize + index * DESCRIPTOR_BYTES;
        self.memory.get(at..)?.first_chunk().map(|bytes| Descriptor::from_bytes(*bytes))
    }

    /// Evicts the oldest entries until the size is at most `size`.
    fn evict_to(&mut self, size: u32) {
        while self.size > size {
            let Some(oldest) = self.descriptor((self.count as usize).wrapping_sub(1)) else {
                break;
            };
            let string_bytes = oldest.string_bytes() as u32;
            self.count -= 1;
            self.start += string_bytes;
            self.size -= string_bytes + FIELD_OVERHEAD_BYTES as u32;
        }
        if self.count == 0 {
            (self.start, self.head) = (PREFIX as u32, PREFIX as u32);
            self.descriptors = self.memory.len() as u32;
        }
    }

    /// The memory that the user and the entries need.
    const fn used_bytes(&self) -> usize {
        PREFIX + (self.head - self.start) as usize + self.count as usize * DESCRIPTOR_BYTES
    }

    /// Makes `bytes` between the strings and the descriptors available. The entries and the new one fit into
    /// the table's size, therefore also into `PREFIX` bytes and that size.
    #[inline]
    fn make_room(&mut self, bytes: usize) {
        if self.head as usize + bytes > self.descriptors as usize {
            self.make_more_room(bytes);
        }
    }

    #[cold]
    fn make_more_room(&mut self, bytes: usize) {
        let needed = self.used_bytes() + bytes;
        let full = PREFIX + self.size_max as usize;
        let length = self.memory.len();
        if needed <= length && (needed <= length / 4 * 3 || length >= full) {
            self.compact();
        } else {
            self.reallocate(needed.max(2 * length).max(FIRST_BYTES).min(full));
        }
    }

    /// Moves the strings and the descriptors to their ends of the memory.
    fn compact(&mut self) {
        let (start, head) = (self.start as usize, self.head as usize);
        self.memory.copy_within(start..head, PREFIX);
        let descriptors = self.descriptors as usize;
        let descriptors_end = descriptors + self.count as usize * DESCRIPTOR_BYTES;
        let descriptors_to = self.memory.len() - (descriptors_end - descriptors);
        self.memory.copy_within(descriptors..descriptors_end, descriptors_to);
        self.set_places(descriptors_to);
    }

    /// Moves everything into new memory of `length` bytes.
    fn reallocate(&mut self, length: usize) {
        let mut memory = vec![0; length];
        let descriptor_bytes = self.count as usize * DESCRIPTOR_BYTES;
        let descriptors_to = length - descriptor_bytes;
        if !self.memory.is_empty() {
            let strings = &self.memory[self.start as usize..self.head as usize];
            let descriptors = &self.memory[self.descriptors as usize..][..descriptor_bytes];
            memory[..PREFIX].copy_from_slice(&self.memory[..PREFIX]);
            memory[PREFIX..PREFIX + strings.len()].copy_from_slice(strings);
            memory[descriptors_to..].copy_from_slice(descriptors);
        }
        self.memory = memory;
        self.set_places(descriptors_to);
    }

    /// Records that the strings begin at `PREFIX` and the descriptors at `descriptors`.
    fn set_places(&mut self, descriptors: usize) {
        self.moved = self.moved.wrapping_add((self.start as usize - PREFIX) as u16);
        self.head -= self.start - PREFIX as u32;
        self.start = PREFIX as u32;
        self.descriptors = descriptors as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A table as the RFC describes it.
    #[derive(Default)]
    struct Model {
        entries: VecDeque<(Vec<u8>, Vec<u8>, u16)>,
        size_max: usize,
    }

    impl Model {
        fn size(&self) -> usize {
            self.entries.iter().map(|(name, value, _)| name.len() + value.len() + 32).sum()
        }

        fn evict_to(&mut self, size: usize) {
            while self.size() > size {
                self.entries.pop_back();
            }
        }

        fn insert(&mut self, name: &[u8], value: &[u8], link: u16) {
            let size = name.len() + value.len() + 32;
            self.evict_to(self.size_max.saturating_sub(size));
            if size <= self.size_max {
                self.entries.push_front((name.to_vec(), value.to_vec(), link));
            }
        }
    }

    fn check_same<const PREFIX: usize>(table: &Table<PREFIX>, model: &Model) {
        assert_eq!((table.size() as usize, table.count()), (model.size(), model.entries.len()));
        for (index, (name, value, link)) in model.entries.iter().enumerate() {
            assert_eq!(table.get(index), Some(Entry { name, value, link: *link }), "{index}");
        }
        assert_eq!(table.get(model.entries.len()), None);
        assert!(table.used_bytes() <= PREFIX + table.size_max() as usize);
    }

    fn run<const PREFIX: usize>(seed: u64, size_max: u32) {
        let mut prng = tidegate_base::Prng::new(seed);
        let mut below = |bound: u64| (prng.next_u64() >> 11) % bound;
        let mut table = Table::<PREFIX>::new(size_max);
        let mut model = Model { size_max: size_max as usize, ..Model::default() };
        for step in 0..3000_u32 {
            let (name, value) = match below(20) {
                0 => (below(u64::from(size_max) / 2 + 9), below(u64::from(size_max) / 2 + 9)),
                1..4 => (0, below(3)),
                _ => (below(30), below(60)),
            };
            let name = vec![step as u8; name as usize];
            let value = vec![!step as u8; value as usize];
            let is_inserted = table.insert(&name, &value, step as u16);
            model.insert(&name, &value, step as u16);
            assert_eq!(is_inserted, name.len() + value.len() + 32 <= model.size_max);
            match below(200) {
                0 => {
                    model.size_max = below(u64::from(size_max) + 1) as usize;
                    model.evict_to(model.size_max);
                    table.resize(model.size_max as u32);
                }
                1 => table.shrink(),
                2 => {
                    model.size_max = size_max as usize;
                    table.resize(size_max);
                }
                _ => {}
            }
            if let Some(prefix) = table.prefix_mut().filter(|_| PREFIX > 0 && step % 64 == 0) {
                prefix.fill(step as u8);
            }
            assert!(table.held_bytes() <= PREFIX + size_max as usize, "memory is bounded");
            check_same(&table, &model);
        }
    }

    #[test]
    fn random_steps_match_the_model() {
        for seed in 0..4 {
            run::<0>(seed, 4096);
            run::<128>(seed, 4096);
            run::<0>(seed, 100);
            run::<128>(seed, 0);
        }
        run::<128>(9, TABLE_BYTES_MAX);
    }

    #[test]
    fn largest_entry_fits() {
        let mut table = Table::<128>::new(TABLE_BYTES_MAX);
        let name = vec![b'a'; TABLE_BYTES_MAX as usize - FIELD_OVERHEAD_BYTES];
        assert!(table.insert(&name, b"", 7));
        assert_eq!(table.get(0), Some(Entry { name: &name, value: b"", link: 7 }));
        assert!(!table.insert(&name, b"x", 8));
        assert_eq!((table.count(), table.size()), (0, 0));
    }

    #[test]
    fn memory_is_taken_late_and_given_back() {
        let mut table = Table::<8>::new(4096);
        assert_eq!((table.held_bytes(), table.prefix()), (0, None));
        assert!(table.insert(b"name", b"value", 0));
        assert_eq!(table.held_bytes(), FIRST_BYTES);
        table.prefix_mut().unwrap().copy_from_slice(b"the user");
        table.shrink();
        assert_eq!(table.held_bytes(), 8 + 9 + DESCRIPTOR_BYTES);
        assert_eq!(table.prefix(), Some(b"the user"));
        assert!(table.insert(b"other", b"", 0));
        assert_eq!(table.get(1).unwrap().value, b"value");
        table.resize(0);
        table.shrink();
        assert_eq!((table.held_bytes(), table.size_max()), (0, 0));
    }

    #[test]
    fn full_table_needs_no_allocation() {
        let mut table = Table::<0>::new(4096);
        for step in 0..1000 {
            assert!(table.insert(b"name", &[step as u8; 50], 0));
        }
        let memory = table.memory.as_ptr();
        for step in 0..10_000 {
            assert!(table.insert(b"name", &[step as u8; 50], 0));
        }
        assert_eq!((table.memory.as_ptr(), table.held_bytes()), (memory, 4096));
    }
}
