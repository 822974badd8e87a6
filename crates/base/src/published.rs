//! Values that all workers read without waiting, and that other threads replace while the process serves.
//! In: values. Out: readers, one of each worker, which find the newest value.
//! Never: makes a reader wait. A reader compares its version number with the newest one. Only if they differ, it tries
//! to take the lock of the value. The lock is held only while a reference is copied. If another thread holds it, the
//! reader uses its previous value. Frees a value on a worker: replaced values are kept until no reader has them, and
//! freed when the value is replaced again, when a command of the admin interface shows the map or set, and after a
//! reload (`free_replaced`).
//! Limits: a reader retains the value that it read last, so at most one version exists for each reader, plus the newest.
//! A worker has up to two readers of a map or a set for each generation of its settings.

use core::cell::RefCell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value that many readers share; see the module header.
#[derive(Debug)]
pub struct Published<T> {
    /// The number of the last replacement.
    version: AtomicU64,
    /// The value in force.
    value: Mutex<Arc<T>>,
    /// Values that readers may still have. Only threads that replace the value use them.
    replaced: Mutex<Vec<Arc<T>>>,
}

impl<T> Published<T> {
    /// A value that readers can get.
    #[must_use]
    pub fn new(value: T) -> Arc<Self> {
        Arc::new(Self {
            version: AtomicU64::new(0),
            value: Mutex::new(Arc::new(value)),
            replaced: Mutex::default(),
        })
    }

    /// Puts another value in force.
    pub fn replace(&self, value: T) {
        let before = core::mem::replace(&mut *lock(&self.value), Arc::new(value));
        self.version.fetch_add(1, Ordering::Release);
        lock(&self.replaced).push(before);
        self.free_replaced();
    }

    /// Frees the replaced values that no reader has any more.
    pub fn free_replaced(&self) {
        lock(&self.replaced).retain(|value| Arc::strong_count(value) > 1);
    }

    /// The value in force.
    #[must_use]
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&lock(&self.value))
    }

    /// A reader that has the value in force.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> Reader<T> {
        // The version is read before the value: if the value is replaced in between, the next `read` reads it again.
        let version = self.version.load(Ordering::Acquire);
        Reader { source: Arc::clone(self), seen: RefCell::new((version, self.current())) }
    }

    /// The number of replaced values that are not freed yet.
    #[cfg(test)]
    fn retained(&self) -> usize {
        lock(&self.replaced).len()
    }
}

/// A worker's access to a published value.
#[derive(Debug)]
pub struct Reader<T> {
    /// The source of newer values.
    source: Arc<Published<T>>,
    /// The value that was read last, and its version or an earlier one.
    seen: RefCell<(u64, Arc<T>)>,
}

impl<T> Reader<T> {
    /// The result of `read` on the newest value. `read` must not use this reader.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
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

/// Locks a mutex, even if a thread panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            assert!(value.retained() <= 2, "the first value and the previous one");
        }
        assert_eq!(idle.read(|value| *value), 100);
        value.replace(101);
        assert_eq!(value.retained(), 1);
        assert_eq!(idle.read(|value| *value), 101);
        assert_eq!(busy.read(|value| *value), 101);
        value.free_replaced();
        assert_eq!(value.retained(), 0);
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
