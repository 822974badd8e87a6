//! A bounded number of places that all workers share, such as those of requests that wait in a tarpit.
//! In: a request for a place. Out: the place, or the fact that all are taken.
//! Never: takes a lock or waits.
//! Limits: the number of places.
//! Invariant: the number of places that are taken is that of the `Place` values that exist.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// A bounded number of places.
#[derive(Debug)]
pub struct Places {
    /// The places that are taken; never above `most`.
    taken: AtomicU32,
    /// The number of places.
    most: u32,
}

/// A place that is taken. It is free again when this value is dropped.
#[derive(Debug)]
pub struct Place(Arc<Places>);

impl Places {
    /// `most` free places.
    #[must_use]
    pub fn new(most: u32) -> Arc<Self> {
        Arc::new(Self { taken: AtomicU32::new(0), most })
    }

    /// Takes a place; `None` if all are taken.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<Place> {
        self.take_of(self.most)
    }

    /// Takes a place of `most`, if that is less than the number of places; `None` if as many are taken.
    #[must_use]
    pub fn take_of(self: &Arc<Self>, most: u32) -> Option<Place> {
        let more = |taken: u32| (taken < self.most.min(most)).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Place(Arc::clone(self)))
    }

    /// The number of places that are taken.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_free_again_after_its_end() {
        let places = Places::new(2);
        let first = places.take();
        let second = places.take();
        assert!(first.is_some() && second.is_some());
        assert!(places.take().is_none());
        drop(first);
        assert_eq!(places.taken(), 1);
        assert!(places.take().is_some());
        drop(second);
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn workers_together_take_no_more_than_there_are() {
        let places = Places::new(100);
        let taken: Vec<Place> = std::thread::scope(|scope| {
            let worker = |_| {
                let places = Arc::clone(&places);
                scope.spawn(move || (0..1000).filter_map(|_| places.take()).collect::<Vec<Place>>())
            };
            let workers: Vec<_> = (0..4).map(worker).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("a worker ends")).collect()
        });
        assert_eq!((taken.len(), places.taken()), (100, 100));
        drop(taken);
        assert_eq!(places.taken(), 0);
    }
}
