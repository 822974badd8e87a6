//! Values that all workers read without waiting, and that other threads replace while the process serves.
//! In: values. Out: readers, one of each worker, which find the newest value.
//! Never: makes a reader wait. A reader compares one number with that of the last replacement; only after a replacement
//! it tries the lock of the value, which is held while a reference is copied, and if another worker has it, the reader
//! uses the value before. Frees a value on a worker: replaced values are kept until no reader has them.
//! Limits: a reader retains the value that it read last, so that a value has no more versions than readers, and one more.
//! A worker has up to two readers of a value for each generation of its settings. `ENTRIES_MAX` entries of a draft.

use core::cell::RefCell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value, see the module header.
#[derive(Debug)]
pub(crate) struct Published<T> {
    /// The number of the last replacement.
    version: AtomicU64,
    /// The value in force.
    value: Mutex<Arc<T>>,
    /// Values that readers may still have. Only threads that replace the value use them.
    replaced: Mutex<Vec<Arc<T>>>,
}

impl<T> Published<T> {
    pub(crate) fn new(value: T) -> Arc<Self> {
        Arc::new(Self {
            version: AtomicU64::new(0),
            value: Mutex::new(Arc::new(value)),
            replaced: Mutex::default(),
        })
    }

    /// Puts another value in force.
    pub(crate) fn replace(&self, value: T) {
        let before = core::mem::replace(&mut *lock(&self.value), Arc::new(value));
        self.version.fetch_add(1, Ordering::Release);
        let mut replaced = lock(&self.replaced);
        replaced.push(before);
        replaced.retain(|value| Arc::strong_count(value) > 1);
    }

    /// The value in force.
    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&lock(&self.value))
    }

    /// A reader that has the value in force.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader<T> {
        // The number is read first: a value that replaces the one of this number is read again.
        let version = self.version.load(Ordering::Acquire);
        Reader { source: Arc::clone(self), seen: RefCell::new((version, self.current())) }
    }

    /// The number of replaced values that are not freed yet.
    #[cfg(test)]
    pub(crate) fn retained(&self) -> usize {
        lock(&self.replaced).len()
    }
}

/// A worker's way to a value.
#[derive(Debug)]
pub(crate) struct Reader<T> {
    source: Arc<Published<T>>,
    /// The value that was read last, and the number of the replacement that it is from, or of an earlier one.
    seen: RefCell<(u64, Arc<T>)>,
}

impl<T> Reader<T> {
    /// What `read` makes of the newest value. `read` must not use this reader.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        let mut seen = self.seen.borrow_mut();
        let newest = self.source.version.load(Ordering::Acquire);
        if seen.0 != newest
            && let Ok(value) = self.source.value.try_lock()
        {
            *seen = (newest, Arc::clone(&value));
        }
        read(&seen.1)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Values with the names that commands use. Clones share the values.
#[derive(Debug)]
pub struct Named<T>(Arc<[(String, Arc<T>)]>);

impl<T> Named<T> {
    /// The value with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<T>> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The values, in the order of the configuration.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &Arc<T>> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The values and their names, in the order of the configuration.
    pub fn all(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), &**value))
    }
}

impl<T> FromIterator<(String, Arc<T>)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (String, Arc<T>)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<T> Clone for Named<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// Maximum number of entries of a draft.
const ENTRIES_MAX: usize = 1_000_000;

/// Entries that commands collect, to replace all others at once. There is one draft at a time.
#[derive(Debug)]
pub(crate) struct Drafts<E> {
    /// The number of the draft and its entries; `None` before the first draft and after one was used.
    current: Option<(u64, Vec<E>)>,
    /// The number of the last draft.
    count: u64,
    /// The command that begins a draft, for messages.
    command: &'static str,
}

impl<E> Drafts<E> {
    pub(crate) const fn new(command: &'static str) -> Self {
        Self { current: None, count: 0, command }
    }

    /// Begins a draft without entries, in place of one that was not used. Returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.count += 1;
        self.current = Some((self.count, Vec::new()));
        self.count
    }

    /// The entries of a draft.
    pub(crate) fn entries(&mut self, number: u64) -> Result<&mut Vec<E>, String> {
        let draft = self.current.as_mut().filter(|(current, _)| *current == number);
        let absent = || format!("there is no draft @{number}; begin one with `{}`", self.command);
        draft.map(|(_, entries)| entries).ok_or_else(absent)
    }

    /// Adds an entry to a draft.
    pub(crate) fn push(&mut self, number: u64, entry: E) -> Result<(), String> {
        let entries = self.entries(number)?;
        if entries.len() == ENTRIES_MAX {
            return Err(format!("the draft has {ENTRIES_MAX} entries, which is the most"));
        }
        entries.push(entry);
        Ok(())
    }

    /// The draft is used, or not needed any more.
    pub(crate) fn end(&mut self) {
        self.current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_kept_only_as_long_as_readers_have_them() {
        let value = Published::new(0);
        let (idle, busy) = (value.reader(), value.reader());
        for number in 1..=100 {
            value.replace(number);
            assert_eq!(busy.read(|value| *value), number);
            assert!(value.retained() <= 2, "the first value, and the one before");
        }
        assert_eq!(idle.read(|value| *value), 100);
        value.replace(101);
        assert_eq!(value.retained(), 1);
        assert_eq!(idle.read(|value| *value), 101);
    }

    #[test]
    fn reader_does_not_wait_for_the_lock() {
        let value = Published::new("before");
        let reader = value.reader();
        value.replace("after");
        let held = lock(&value.value);
        assert_eq!(reader.read(|value| *value), "before");
        drop(held);
        assert_eq!(reader.read(|value| *value), "after");
    }
}
