//! The passwords that wait for a thread which verifies them.
//! In: jobs of workers, with the origin of their requests. Out: jobs for the threads, in the order of arrival.
//! Never: keeps a job whose request has ended; lets one origin take the places of others.
//! Limits: `JOBS_MAX` jobs wait, `ORIGIN_JOBS_MAX` of them of one origin.
//! Invariant: a job is in the queue only as long as its `Place` exists, except while a thread verifies it.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The jobs that wait.
pub(crate) const JOBS_MAX: usize = 64;
/// The jobs of one origin that wait.
pub(crate) const ORIGIN_JOBS_MAX: usize = 8;

/// Where a request comes from: an IPv4 address or the first 64 bits of an IPv6 address; `None`: a unix socket, whose
/// clients cannot be told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin(Option<IpAddr>);

impl Origin {
    /// The origin of a request of `client`.
    pub(crate) fn of(client: Option<IpAddr>) -> Self {
        Self(client.map(|address| match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(full) => IpAddr::from((u128::from(full) >> 64 << 64).to_be_bytes()),
        }))
    }
}

/// A queue that workers and threads share.
pub(crate) struct PasswordQueue<J> {
    /// The waiting jobs.
    state: Mutex<State<J>>,
    /// Wakes a thread when a job arrives or the queue closes.
    arrival: Condvar,
}

struct State<J> {
    /// The jobs, in the order of arrival.
    waiting: VecDeque<Waiting<J>>,
    /// The number of the next job.
    next: u64,
    /// No worker is left.
    is_closed: bool,
}

struct Waiting<J> {
    /// The number of the job.
    number: u64,
    /// Where its request comes from.
    origin: Origin,
    /// The job.
    job: J,
}

impl<J> PasswordQueue<J> {
    /// An empty queue.
    pub(crate) fn new() -> Self {
        let state = State { waiting: VecDeque::new(), next: 0, is_closed: false };
        Self { state: Mutex::new(state), arrival: Condvar::new() }
    }

    /// The state. It is consistent after each statement, so a panic of another thread does not matter.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job. `None`: the queue, or the part of it that the origin may use, is full.
    pub(crate) fn add(self: &Arc<Self>, origin: Origin, job: J) -> Option<Place<J>> {
        let mut state = self.lock();
        let own = state.waiting.iter().filter(|waiting| waiting.origin == origin).count();
        let is_full = own >= ORIGIN_JOBS_MAX && origin.0.is_some();
        if is_full || state.waiting.len() >= JOBS_MAX {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(Waiting { number, origin, job });
        drop(state);
        self.arrival.notify_one();
        Some(Place { queue: Arc::clone(self), number })
    }

    /// The next job. Waits for one; `None`: the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if let Some(first) = state.waiting.pop_front() {
                return Some(first.job);
            }
            if state.is_closed {
                return None;
            }
            state = self.arrival.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the threads once no job waits.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.arrival.notify_all();
    }
}

/// The place of a job in the queue, which its request keeps. Without it, the job is not done.
pub(crate) struct Place<J> {
    /// The queue.
    queue: Arc<PasswordQueue<J>>,
    /// The number of the job.
    number: u64,
}

impl<J> Drop for Place<J> {
    fn drop(&mut self) {
        self.queue.lock().waiting.retain(|waiting| waiting.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        Origin::of(text.parse().ok())
    }

    #[test]
    fn jobs_are_taken_in_order_and_without_those_whose_request_ended() {
        let queue = Arc::new(PasswordQueue::new());
        let mut places: Vec<_> = (0..5).filter_map(|n| queue.add(origin("192.0.2.1"), n)).collect();
        // The client has left.
        drop(places.remove(1));
        assert_eq!([queue.take(), queue.take()], [Some(0), Some(2)]);
        drop(places);
        queue.close();
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn one_origin_cannot_take_all_places() {
        let queue = Arc::new(PasswordQueue::new());
        let mut places = Vec::new();
        let flood = |from: &dyn Fn(usize) -> Origin| -> Vec<_> {
            (0..100).filter_map(|n| queue.add(from(n), n)).collect()
        };
        places.extend(flood(&|_| origin("192.0.2.1")));
        assert_eq!(places.len(), ORIGIN_JOBS_MAX);
        // Addresses of one IPv6 network are one origin.
        let network = |n: usize| origin(&format!("2001:db8:1:2::{n:x}"));
        places.extend(flood(&network));
        assert_eq!(places.len(), 2 * ORIGIN_JOBS_MAX);
        assert!(queue.add(origin("2001:db8:1:3::1"), 0).is_some(), "another network");
        // A place is free again when its request ends.
        places.remove(0);
        places.extend(queue.add(origin("192.0.2.1"), 0));
        assert!(queue.add(origin("192.0.2.1"), 0).is_none());
        places.extend(flood(&|_| Origin::of(None)));
        assert_eq!(places.len(), JOBS_MAX);
        assert!(queue.add(origin("203.0.113.1"), 0).is_none());
        drop(places);
        assert!(queue.lock().waiting.is_empty());
    }
}
