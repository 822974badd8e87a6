//! The passwords that wait for a thread which verifies them.
//! In: jobs of workers, with the origin of their requests. Out: jobs for the threads: origins take turns.
//! Never: keeps a job whose request has ended; lets one origin take the places of others.
//! Limits: `JOBS_MAX` jobs wait, `ORIGIN_JOBS_MAX` of them of one origin. If all places are taken, a job of an
//! origin with fewer jobs replaces the newest job of the origin with the most jobs.
//! Invariant: a job is in the queue only as long as its `Place` exists, except while a thread verifies it.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The jobs that wait.
pub(crate) const JOBS_MAX: usize = 64;
/// The jobs of one origin that wait.
pub(crate) const ORIGIN_JOBS_MAX: usize = 8;

/// The origin of a request: an IPv4 address or the first 64 bits of an IPv6 address; `None`: a unix socket, whose clients cannot
/// be distinguished.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
    /// The round of the job that was taken last. Each origin has one job in each round.
    round: u64,
    /// No worker is left.
    is_closed: bool,
}

struct Waiting<J> {
    /// The number of the job.
    number: u64,
    /// The round in which it is taken.
    round: u64,
    /// The origin of its request.
    origin: Origin,
    /// The job.
    job: J,
}

impl<J> PasswordQueue<J> {
    /// An empty queue.
    pub(crate) fn new() -> Self {
        let state = State { waiting: VecDeque::new(), next: 0, round: 0, is_closed: false };
        Self { state: Mutex::new(state), arrival: Condvar::new() }
    }

    /// The state. It is consistent after each statement, so a panic of another thread does not matter.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job. `None`: the queue, or the part of it that the origin may use, is full.
    pub(crate) fn add(self: &Arc<Self>, origin: Origin, job: J) -> Option<Added<J>> {
        let mut state = self.lock();
        let own = state.count(origin);
        if own >= ORIGIN_JOBS_MAX && origin.0.is_some() {
            return None;
        }
        let displaced = match state.waiting.len() < JOBS_MAX {
            true => None,
            false => Some(state.displace(own)?),
        };
        let number = state.next;
        state.next += 1;
        let last = state.waiting.iter().rev().find(|waiting| waiting.origin == origin);
        let round = last.map_or(state.round, |last| last.round) + 1;
        state.waiting.push_back(Waiting { number, round, origin, job });
        drop(state);
        self.arrival.notify_one();
        Some(Added { place: Place { queue: Arc::clone(self), number }, displaced })
    }

    /// The next job. Waits for one; `None`: the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.take() {
                return Some(job);
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

impl<J> State<J> {
    /// How many jobs of an origin wait.
    fn count(&self, origin: Origin) -> usize {
        self.waiting.iter().filter(|waiting| waiting.origin == origin).count()
    }

    /// Takes the job of the earliest round, and of that round the oldest.
    fn take(&mut self) -> Option<J> {
        let jobs = self.waiting.iter().enumerate();
        let (at, _) = jobs.min_by_key(|(_, waiting)| (waiting.round, waiting.number))?;
        let taken = self.waiting.remove(at)?;
        // A job that was displaced or has left may have made an earlier round the current one.
        self.round = self.round.max(taken.round);
        Some(taken.job)
    }

    /// Removes the newest job of the origin with the most, if an origin with `own` jobs gets no more than that by it.
    fn displace(&mut self, own: usize) -> Option<J> {
        let jobs = self.waiting.iter().enumerate();
        let most = jobs.map(|(at, waiting)| (self.count(waiting.origin), at)).max();
        let (_, at) = most.filter(|(most, _)| *most > own + 1)?;
        self.waiting.remove(at).map(|waiting| waiting.job)
    }
}

/// A job that was added.
pub(crate) struct Added<J> {
    /// Its place.
    pub(crate) place: Place<J>,
    /// The job that was displaced, if there was no other place. Its own `Place` no longer has an effect.
    pub(crate) displaced: Option<J>,
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

    /// Adds jobs of these origins while there is room.
    fn flood(
        queue: &Arc<PasswordQueue<usize>>,
        count: usize,
        from: impl Fn(usize) -> Origin,
    ) -> Vec<Place<usize>> {
        (0..count).filter_map(|n| queue.add(from(n), n)).map(|added| added.place).collect()
    }

    #[test]
    fn jobs_are_taken_in_order_and_without_those_whose_request_ended() {
        let queue = Arc::new(PasswordQueue::new());
        let mut places = flood(&queue, 5, |_| origin("192.0.2.1"));
        // The client has left.
        drop(places.remove(1));
        assert_eq!([queue.take(), queue.take()], [Some(0), Some(2)]);
        drop(places);
        queue.close();
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn origins_take_turns() {
        let queue = Arc::new(PasswordQueue::new());
        let attacker = |n: usize| origin(&format!("192.0.2.{}", n % 2));
        let mut places = flood(&queue, 8, attacker);
        assert_eq!([queue.take(), queue.take(), queue.take()], [Some(0), Some(1), Some(2)]);
        places.extend(queue.add(origin("203.0.113.1"), 100).map(|added| added.place));
        places.extend(queue.add(attacker(0), 8).map(|added| added.place));
        // The new client waits for the rest of the round, and for one job of each attacker.
        let rest: Vec<_> = (0..7).filter_map(|_| queue.take()).collect();
        assert_eq!(rest, [3, 4, 5, 100, 6, 7, 8]);
        // An origin that always has one job does not hold up the second job of another one.
        places.extend(flood(&queue, 2, |_| origin("203.0.113.1")));
        for n in 10..12 {
            places.extend(queue.add(attacker(0), n).map(|added| added.place));
            assert_eq!(queue.take(), Some(if n == 10 { 0 } else { 10 }));
        }
        assert_eq!(queue.take(), Some(1));
        drop(places);
    }

    #[test]
    fn full_queue_displaces_the_newest_job_of_the_origin_with_the_most() {
        let queue = Arc::new(PasswordQueue::new());
        let attacker = |n: usize| origin(&format!("192.0.2.{}", n % 8));
        let mut places = flood(&queue, 1000, attacker);
        assert_eq!(places.len(), JOBS_MAX);
        // Each new job takes the place of the newest job of an origin that has more jobs than the new job's origin will have.
        for n in 0..JOBS_MAX {
            let new_client = origin(&format!("203.0.113.{}", n % 16));
            let Some(added) = queue.add(new_client, 1000 + n) else { break };
            assert!(added.displaced.is_some_and(|job| job < 1000), "an attacker's job");
            places.push(added.place);
        }
        let counts: Vec<usize> = (0..8).map(|n| queue.lock().count(attacker(n))).collect();
        assert!(counts.iter().all(|count| (2..=3).contains(count)), "{counts:?}");
        assert!(queue.add(attacker(0), 0).is_none(), "an origin displaces none that has fewer");
        assert_eq!(queue.lock().waiting.len(), JOBS_MAX);
        drop(places);
        assert!(queue.lock().waiting.is_empty());
    }

    #[test]
    fn one_origin_cannot_take_all_places() {
        let queue = Arc::new(PasswordQueue::new());
        let mut places = flood(&queue, 100, |_| origin("192.0.2.1"));
        assert_eq!(places.len(), ORIGIN_JOBS_MAX);
        // Addresses of one IPv6 network are one origin.
        places.extend(flood(&queue, 100, |n| origin(&format!("2001:db8:1:2::{n:x}"))));
        assert_eq!(places.len(), 2 * ORIGIN_JOBS_MAX);
        assert!(queue.add(origin("2001:db8:1:3::1"), 0).is_some(), "another network");
        // A place is free again when its request ends.
        places.remove(0);
        places.extend(flood(&queue, 1, |_| origin("192.0.2.1")));
        assert!(queue.add(origin("192.0.2.1"), 0).is_none());
        places.extend(flood(&queue, 100, |_| Origin::of(None)));
        assert_eq!(places.len(), JOBS_MAX);
        assert!(queue.add(Origin::of(None), 0).is_none());
        assert!(queue.add(origin("203.0.113.1"), 0).is_some_and(|added| added.displaced.is_some()));
        drop(places);
        assert!(queue.lock().waiting.is_empty());
    }
}
