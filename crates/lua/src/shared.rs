//! Dictionaries that all VMs of a process share (`tide.shared.NAME`).
//! In: keys, values, the time of day. Out: values; whether an entry was stored.
//! Never: runs code, or waits for anything but the copy of a value under the lock of one part of a dictionary.
//! Limits: the configured size, of which each entry uses its bytes and `ENTRY_COST_BYTES`; `VALUE_BYTES_MAX` in one entry;
//! `KEY_BYTES_MAX` in a key. When a part is full, its least recently used entries are removed.
//! Invariant: `used` is the size of the entries; the list of a part contains each entry once, the one used last at its head.
//!
//! A dictionary consists of up to `PARTS_MAX` parts with a lock each. A lock is held for one lookup and one copy of up to
//! `VALUE_BYTES_MAX`, some microseconds for usual values.

mod persistence;

use core::hash::BuildHasher as _;
use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use persistence::{ENTRY_BYTES_MAX, EntryCursor};

/// Maximum number of parts of a dictionary.
const PARTS_MAX: usize = 16;
/// Minimum number of bytes of a part, so that small dictionaries have room for large values.
const PART_BYTES_MIN: usize = 256 * 1024;
/// The cost of an entry besides its key and value.
const ENTRY_COST_BYTES: usize = 128;

/// The bytes that an entry with this key and a content of `bytes` uses. The key is stored twice.
const fn entry_size(key: &[u8], bytes: usize) -> usize {
    2 * key.len() + bytes + ENTRY_COST_BYTES
}
/// The cost of an element of a list besides its bytes.
pub(crate) const ELEMENT_COST_BYTES: usize = 32;
/// A list may have room for twice its length and this number of elements.
const LIST_SPARE_MAX: usize = 16;
/// Maximum number of bytes of a value.
pub(crate) const VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of bytes of a key.
pub(crate) const KEY_BYTES_MAX: usize = 4096;
/// Maximum number of entries of a part that one call of `keys` examines.
const KEYS_MAX: usize = 1024;
/// No place: the end of the list of entries.
const NONE: u32 = u32::MAX;

/// A value. Tables are not shared: a script encodes them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    Boolean(bool),
    Number(f64),
    Bytes(Vec<u8>),
}

/// The content of an entry.
#[derive(Clone, PartialEq, Debug)]
enum Content {
    One(Value),
    List(VecDeque<Value>),
}

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Left,
    Right,
}

/// When an entry is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    Always,
    /// If there is no entry.
    Absent,
    /// If there is an entry.
    Present,
}

pub(crate) const NOT_FOUND: &str = "not found";
pub(crate) const EXISTS: &str = "exists";
const CHANGED: &str = "changed";
const NO_NUMBER: &str = "not a number";
const NO_LIST: &str = "the value is not a list";
const IS_LIST: &str = "the value is a list";
const TOO_LARGE: &str = "the value is too large for this dictionary";
const LONG_KEY: &str = "the key exceeds 4 KiB";

/// An entry, which is a link of the list by time of use.
struct Entry {
    /// The key, which `Part::places` contains, too.
    key: Box<[u8]>,
    /// The value or the list.
    content: Content,
    /// The size of the content.
    bytes: usize,
    /// Seconds since 1970 at which the entry ends; infinite without an end.
    ends_at: f64,
    /// The neighbour that was used later, or `NONE`.
    newer: u32,
    /// The neighbour that was used earlier, or `NONE`.
    older: u32,
}

/// A part of a dictionary.
struct Part {
    /// Places in `entries`, by key.
    places: HashMap<Box<[u8]>, u32>,
    /// The entries by place; `None`: the place is free.
    entries: Vec<Option<Entry>>,
    /// Places that are `None`.
    free: Vec<u32>,
    /// The entry used last, or `NONE`.
    newest: u32,
    /// The least recently used entry, or `NONE`.
    oldest: u32,
    /// The size of the entries.
    used: usize,
    /// The size that they may have.
    bytes_max: usize,
    /// A number that grows with each change.
    changes: u64,
}

/// A dictionary; see the module header.
pub struct Dictionary {
    /// The parts, each with a lock of its own.
    parts: Box<[Mutex<Part>]>,
    /// Chooses the part of a key.
    hasher: RandomState,
}

impl core::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Dictionary({} parts)", self.parts.len())
    }
}

impl Value {
    pub(crate) fn cost(&self) -> usize {
        match self {
            Self::Boolean(_) | Self::Number(_) => 0,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl Content {
    fn cost(&self) -> usize {
        match self {
            Self::One(value) => value.cost(),
            Self::List(list) => list.iter().map(|value| value.cost() + ELEMENT_COST_BYTES).sum(),
        }
    }
}

impl Dictionary {
    /// Creates an empty dictionary of this size.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let count = (bytes_max / PART_BYTES_MIN).clamp(1, PARTS_MAX);
        let part = |_| Mutex::new(Part::new(bytes_max / count));
        Self { parts: (0..count).map(part).collect(), hasher: RandomState::new() }
    }

    fn part(&self, key: &[u8]) -> MutexGuard<'_, Part> {
        let at = self.hasher.hash_one(key) as usize % self.parts.len();
        lock(&self.parts[at])
    }

    /// The value of a key; an error if it is a list.
    pub(crate) fn get(&self, key: &[u8], now: f64) -> Result<Option<Value>, &'static str> {
        match self.part(key).use_entry(key, now).map(|entry| &entry.content) {
            None => Ok(None),
            Some(Content::One(value)) => Ok(Some(value.clone())),
            Some(Content::List(_)) => Err(IS_LIST),
        }
    }

    /// Stores a value.
    pub(crate) fn set(
        &self,
        key: &[u8],
        value: Value,
        ends_at: f64,
        condition: Condition,
        now: f64,
    ) -> Result<(), &'static str> {
        let mut part = self.part(key);
        match (condition, part.use_entry(key, now).is_some()) {
            (Condition::Absent, true) => Err(EXISTS),
            (Condition::Present, false) => Err(NOT_FOUND),
            (Condition::Always, _) | (Condition::Absent, false) | (Condition::Present, true) => {
                part.store(key, Content::One(value), ends_at)
            }
        }
    }

    /// Stores a value if the present one is `expected`; `None` stands for no value. Returns an error if it differs.
    pub(crate) fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&Value>,
        value: Option<Value>,
        ends_at: f64,
        now: f64,
    ) -> Result<(), &'static str> {
        let mut part = self.part(key);
        let is_expected = match (part.use_entry(key, now).map(|entry| &entry.content), expected) {
            (None, None) => true,
            (Some(Content::One(present)), Some(expected)) => present == expected,
            _ => false,
        };
        match (is_expected, value) {
            (false, _) => Err(CHANGED),
            (true, Some(value)) => part.store(key, Content::One(value), ends_at),
            (true, None) => {
                part.remove(key);
                Ok(())
            }
        }
    }

    /// Adds to a number. Without an entry, begins with `initial`; the new entry ends at `ends_at`.
    pub(crate) fn increase(
        &self,
        key: &[u8],
        by: f64,
        (initial, ends_at): (Option<f64>, f64),
        now: f64,
    ) -> Result<f64, &'static str> {
        let mut part = self.part(key);
        match part.use_entry(key, now).map(|entry| &mut entry.content) {
            Some(Content::One(Value::Number(number))) => {
                *number += by;
                let sum = *number;
                part.changes += 1;
                Ok(sum)
            }
            Some(_) => Err(NO_NUMBER),
            None => {
                let number = initial.ok_or(NOT_FOUND)? + by;
                part.store(key, Content::One(Value::Number(number)), ends_at)?;
                Ok(number)
            }
        }
    }

    /// Removes an entry. Returns whether there was one.
    pub(crate) fn delete(&self, key: &[u8], now: f64) -> bool {
        let mut part = self.part(key);
        part.use_entry(key, now).is_some() && part.remove(key).is_some()
    }

    /// Changes when an entry ends.
    pub(crate) fn expire(&self, key: &[u8], ends_at: f64, now: f64) -> Result<(), &'static str> {
        let mut part = self.part(key);
        let entry = part.use_entry(key, now).ok_or(NOT_FOUND)?;
        entry.ends_at = ends_at;
        part.changes += 1;
        Ok(())
    }

    /// When an entry ends.
    pub(crate) fn end_of(&self, key: &[u8], now: f64) -> Option<f64> {
        self.part(key).use_entry(key, now).map(|entry| entry.ends_at)
    }

    /// Adds a value at an end of a list, which is created if there is none. Returns its length.
    pub(crate) fn push(
        &self,
        key: &[u8],
        value: Value,
        end: End,
        now: f64,
    ) -> Result<usize, &'static str> {
        let mut part = self.part(key);
        let (added, bytes_max) = (value.cost() + ELEMENT_COST_BYTES, part.bytes_max);
        let Some(entry) = part.use_entry(key, now) else {
            part.store(key, Content::List(VecDeque::from([value])), f64::INFINITY)?;
            return Ok(1);
        };
        let Content::List(list) = &mut entry.content else { return Err(NO_LIST) };
        let bytes = entry.bytes + added;
        if bytes > VALUE_BYTES_MAX || entry_size(key, bytes) > bytes_max {
            return Err(TOO_LARGE);
        }
        match end {
            End::Left => list.push_front(value),
            End::Right => list.push_back(value),
        }
        let length = list.len();
        entry.bytes = bytes;
        part.used += added;
        part.changes += 1;
        // The entry is the most recently used one, and fits alone.
        part.make_room(0);
        Ok(length)
    }

    /// Takes the value at an end of a list. `None` if there is no list; an empty list is removed.
    pub(crate) fn pop(
        &self,
        key: &[u8],
        end: End,
        now: f64,
    ) -> Result<Option<Value>, &'static str> {
        let mut part = self.part(key);
        let Some(entry) = part.use_entry(key, now) else { return Ok(None) };
        let Content::List(list) = &mut entry.content else { return Err(NO_LIST) };
        let value = match end {
            End::Left => list.pop_front(),
            End::Right => list.pop_back(),
        };
        // The cost of an entry counts its elements, not the room that the list once needed.
        if list.capacity() > 2 * list.len() + LIST_SPARE_MAX {
            list.shrink_to(list.len() + list.len() / 2);
        }
        let is_empty = list.is_empty();
        let taken = value.as_ref().map_or(0, |value| value.cost() + ELEMENT_COST_BYTES);
        entry.bytes -= taken;
        part.used -= taken;
        part.changes += 1;
        if is_empty {
            part.remove(key);
        }
        Ok(value)
    }

    /// The length of a list.
    pub(crate) fn length(&self, key: &[u8], now: f64) -> Result<usize, &'static str> {
        match self.part(key).use_entry(key, now).map(|entry| &entry.content) {
            None => Ok(0),
            Some(Content::List(list)) => Ok(list.len()),
            Some(Content::One(_)) => Err(NO_LIST),
        }
    }

    /// The most recently used keys, up to `most`.
    pub(crate) fn keys(&self, most: usize, now: f64) -> Vec<Box<[u8]>> {
        let most = most.min(KEYS_MAX);
        let mut keys = Vec::new();
        for part in &*self.parts {
            lock(part).list_keys(&mut keys, (most, KEYS_MAX), now);
        }
        keys
    }

    /// The number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// All keys of a part.
    pub(crate) fn keys_of_part(&self, at: usize, now: f64) -> Vec<Box<[u8]>> {
        let mut keys = Vec::new();
        if let Some(part) = self.parts.get(at) {
            lock(part).list_keys(&mut keys, (usize::MAX, usize::MAX), now);
        }
        keys
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        for part in &*self.parts {
            let mut part = lock(part);
            let mut empty = Part::new(part.bytes_max);
            empty.changes = part.changes + 1;
            let before = core::mem::replace(&mut *part, empty);
            drop(part);
            // Freed without the lock.
            drop(before);
        }
    }

    /// The number of entries, and the bytes that they use. Some may have ended.
    pub(crate) fn size(&self) -> (usize, usize) {
        let sizes = self.parts.iter().map(|part| {
            let part = lock(part);
            (part.places.len(), part.used)
        });
        sizes.fold((0, 0), |(count, used), (more, bytes)| (count + more, used + bytes))
    }
}

/// A panic under a lock is a bug of this module; the entries of the part remain usable.
fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Part {
    fn new(bytes_max: usize) -> Self {
        let (newest, oldest) = (NONE, NONE);
        let (places, entries, free) = (HashMap::default(), Vec::new(), Vec::new());
        Self { places, entries, free, newest, oldest, used: 0, bytes_max, changes: 0 }
    }

    fn entry(&mut self, place: u32) -> Option<&mut Entry> {
        self.entries.get_mut(place as usize)?.as_mut()
    }

    /// An entry that has not ended, which becomes the one used last. Removes it if it has ended.
    fn use_entry(&mut self, key: &[u8], now: f64) -> Option<&mut Entry> {
        let place = *self.places.get(key)?;
        if self.entry(place)?.ends_at <= now {
            self.remove(key);
            return None;
        }
        if self.newest != place {
            self.unlink(place);
            self.link(place);
        }
        self.entry(place)
    }

    /// Removes the least recently used entries, until `bytes` more fit.
    fn make_room(&mut self, bytes: usize) {
        while self.used + bytes > self.bytes_max {
            let Some(oldest) = self.entry(self.oldest).map(|entry| entry.key.clone()) else {
                break;
            };
            self.remove(&oldest);
        }
    }

    /// Stores an entry. Removes others if there is no room.
    fn store(&mut self, key: &[u8], content: Content, ends_at: f64) -> Result<(), &'static str> {
        let bytes = content.cost();
        let size = entry_size(key, bytes);
        if key.len() > KEY_BYTES_MAX {
            return Err(LONG_KEY);
        }
        if bytes > VALUE_BYTES_MAX || size > self.bytes_max {
            return Err(TOO_LARGE);
        }
        self.changes += 1;
        if let Some(place) = self.places.get(key).copied() {
            self.replace(place, (content, bytes), ends_at);
            return Ok(());
        }
        self.make_room(size);
        let key: Box<[u8]> = key.into();
        let (newer, older) = (NONE, NONE);
        let entry = Entry { key: key.clone(), content, bytes, ends_at, newer, older };
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = Some(entry);
                place
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        };
        self.places.insert(key, place);
        self.used += size;
        self.link(place);
        Ok(())
    }

    /// Gives an entry another content. It keeps its place, and is not removed to make room for itself.
    fn replace(&mut self, place: u32, (content, bytes): (Content, usize), ends_at: f64) {
        self.unlink(place);
        let Some(entry) = self.entry(place) else { return };
        let (before, size) = (entry_size(&entry.key, entry.bytes), entry_size(&entry.key, bytes));
        (entry.content, entry.bytes, entry.ends_at) = (content, bytes, ends_at);
        self.used -= before;
        self.make_room(size);
        self.used += size;
        self.link(place);
    }

    fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        self.changes += 1;
        let place = self.places.remove(key)?;
        self.unlink(place);
        let entry = self.entries.get_mut(place as usize)?.take()?;
        self.free.push(place);
        self.used -= entry_size(&entry.key, entry.bytes);
        Some(entry)
    }

    /// Makes an entry the head of the list.
    fn link(&mut self, place: u32) {
        let before = core::mem::replace(&mut self.newest, place);
        if let Some(entry) = self.entry(place) {
            (entry.newer, entry.older) = (NONE, before);
        }
        match self.entry(before) {
            Some(entry) => entry.newer = place,
            None => self.oldest = place,
        }
    }

    /// Takes an entry out of the list.
    fn unlink(&mut self, place: u32) {
        let Some((newer, older)) = self.entry(place).map(|entry| (entry.newer, entry.older)) else {
            return;
        };
        match self.entry(newer) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entry(older) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Adds keys, until there are `most` or `entries_max` were looked at.
    fn list_keys(
        &mut self,
        keys: &mut Vec<Box<[u8]>>,
        (most, entries_max): (usize, usize),
        now: f64,
    ) {
        let mut place = self.newest;
        for _ in 0..entries_max {
            if keys.len() >= most {
                return;
            }
            let Some(entry) = self.entry(place) else { return };
            place = entry.older;
            if entry.ends_at > now {
                keys.push(entry.key.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bytes(text.as_bytes().to_vec())
    }

    /// The bytes that the entries use, counted one by one.
    fn counted(dictionary: &Dictionary) -> usize {
        let mut sum = 0;
        for part in &*dictionary.parts {
            let part = lock(part);
            let mut listed = 0;
            let mut place = part.newest;
            while let Some(Some(entry)) = part.entries.get(place as usize) {
                sum += entry_size(&entry.key, entry.content.cost());
                assert_eq!(part.places.get(&entry.key), Some(&place));
                place = entry.older;
                listed += 1;
            }
            assert_eq!(listed, part.places.len());
            assert_eq!(part.entries.len(), part.places.len() + part.free.len());
        }
        sum
    }

    #[test]
    fn least_recently_used_entries_are_removed_when_the_dictionary_is_full() {
        let dictionary = Dictionary::new(10 * (ENTRY_COST_BYTES + 6));
        let forever = f64::INFINITY;
        for at in 0..10 {
            let key = format!("k{at}");
            let stored =
                dictionary.set(key.as_bytes(), text("vv"), forever, Condition::Always, 0.0);
            assert_eq!(stored, Ok(()));
        }
        assert_eq!(dictionary.get(b"k0", 0.0), Ok(Some(text("vv"))));
        assert_eq!(dictionary.set(b"k!", text("vv"), forever, Condition::Always, 0.0), Ok(()));
        assert_eq!(dictionary.get(b"k1", 0.0), Ok(None), "the least recently used entry");
        assert_eq!(dictionary.get(b"k0", 0.0), Ok(Some(text("vv"))));
        assert_eq!(dictionary.size().0, 10);
        let large = Value::Bytes(vec![0; 10 * (ENTRY_COST_BYTES + 6)]);
        let refused = dictionary.set(b"k", large, forever, Condition::Always, 0.0);
        assert_eq!(refused, Err(TOO_LARGE));
        assert_eq!(dictionary.size().1, counted(&dictionary));
    }

    #[test]
    fn used_bytes_agree_with_the_entries_after_any_calls() {
        let dictionary = Dictionary::new(3000);
        let mut prng = tidegate_base::Prng::new(5);
        for _ in 0..20_000 {
            let key = [b'k', b'a' + prng.below(20) as u8];
            let value = match prng.below(3) {
                0 => Value::Number(1.0),
                1 => Value::Boolean(true),
                _ => Value::Bytes(vec![7; prng.below(900) as usize]),
            };
            let now = prng.below(100) as f64;
            let end = if prng.below(2) == 0 { End::Left } else { End::Right };
            let ends_at = if prng.below(2) == 0 { f64::INFINITY } else { now + 5.0 };
            match prng.below(9) {
                0 => _ = dictionary.set(&key, value, ends_at, Condition::Always, now),
                1 => _ = dictionary.set(&key, value, ends_at, Condition::Absent, now),
                2 => _ = dictionary.increase(&key, 1.0, (Some(0.0), ends_at), now),
                3 => _ = dictionary.compare_and_set(&key, None, Some(value), ends_at, now),
                4 => _ = dictionary.delete(&key, now),
                5 => _ = dictionary.expire(&key, ends_at, now),
                6 => _ = dictionary.push(&key, value, end, now),
                7 => _ = dictionary.pop(&key, end, now),
                _ => _ = dictionary.get(&key, now),
            }
            let (_, used) = dictionary.size();
            assert_eq!(used, counted(&dictionary));
            assert!(used <= 3000);
        }
    }

    #[test]
    fn refused_value_leaves_the_present_one() {
        let dictionary = Dictionary::new(1000);
        let forever = f64::INFINITY;
        assert_eq!(dictionary.set(b"k", text("v"), forever, Condition::Always, 0.0), Ok(()));
        let large = || Value::Bytes(vec![0; 2000]);
        let refused = dictionary.set(b"k", large(), forever, Condition::Present, 0.0);
        assert_eq!(refused, Err(TOO_LARGE));
        let present = text("v");
        let refused = dictionary.compare_and_set(b"k", Some(&present), Some(large()), forever, 0.0);
        assert_eq!(refused, Err(TOO_LARGE));
        assert_eq!(dictionary.get(b"k", 0.0), Ok(Some(present)));
    }

    #[test]
    fn list_that_was_emptied_releases_its_memory() {
        let dictionary = Dictionary::new(1024 * 1024);
        for _ in 0..4000 {
            assert!(dictionary.push(b"k", Value::Number(1.0), End::Right, 0.0).is_ok());
        }
        for _ in 0..3999 {
            assert_eq!(dictionary.pop(b"k", End::Left, 0.0), Ok(Some(Value::Number(1.0))));
        }
        let mut part = dictionary.part(b"k");
        let Some(Entry { content: Content::List(list), .. }) = part.use_entry(b"k", 0.0) else {
            panic!("the list is gone");
        };
        assert!(list.capacity() <= 2 + LIST_SPARE_MAX, "{}", list.capacity());
    }

    #[test]
    fn counters_are_exact_with_several_threads() {
        let dictionary = Dictionary::new(1 << 20);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for at in 0..1000 {
                        let key = [at as u8 % 7];
                        let counted =
                            dictionary.increase(&key, 1.0, (Some(0.0), f64::INFINITY), 0.0);
                        assert!(counted.is_ok());
                    }
                });
            }
        });
        let sum: f64 = (0..7)
            .filter_map(|key| match dictionary.get(&[key], 0.0) {
                Ok(Some(Value::Number(number))) => Some(number),
                _ => None,
            })
            .sum();
        assert_eq!(sum, 4000.0);
    }
}
