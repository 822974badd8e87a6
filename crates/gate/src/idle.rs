//! Idle upstream connections, by server: which one is reused, and for which requests that is safe.
//! In: connections that became idle, and the idle ages at which connections were found open or closed. Out: a connection to
//! reuse, or a connection that must be closed; whether a request that cannot be retried may use it.
//! Never: owns a socket or a deadline. The worker does, and removes connections that expired or closed.
//! Limits: `idle_max` connections for each server. Invariant: a connection is in at most one list, once.

use std::collections::VecDeque;

use tidegate_base::{Moment, Span};

/// How long a request is assumed to travel to the server. A server that closes connections at some idle age may
/// close one while a request that was sent this much earlier is on its way.
const FLIGHT: Span = Span::from_millis(1);
/// The shortest time for which a loss is remembered; the longest is three times as long. A restart closes
/// connections of every age, and must not affect later requests forever.
const LOSS_REMEMBERED: Span = Span::from_secs(5);

struct Idle<T> {
    id: T,
    since: Moment,
}

/// How long a server keeps idle connections open, as observed by this worker.
///
/// A connection is proven up to half the longest idle age at which any connection was found open, because a
/// server that closes at a fixed age leaves none older than that. It is also proven only up to half the shortest
/// age at which the server recently closed one.
struct Endurance {
    /// The longest idle age at which a connection was found open. A loss at a lower age reduces it to that age.
    open: Span,
    /// The shortest idle age at which a connection was found closed, in the current period.
    lost: Span,
    /// As `lost`, in the period before.
    lost_before: Span,
    /// When the current period began.
    period: Moment,
}

impl Endurance {
    const UNKNOWN: Self =
        Self { open: Span::ZERO, lost: Span::MAX, lost_before: Span::MAX, period: Moment::ZERO };

    /// Begins another period if the current one has lasted `LOSS_REMEMBERED`.
    fn roll(&mut self, now: Moment) {
        let lasted = now.since(self.period);
        if lasted < LOSS_REMEMBERED {
            return;
        }
        let is_old = lasted >= LOSS_REMEMBERED + LOSS_REMEMBERED;
        self.lost_before = if is_old { Span::MAX } else { self.lost };
        self.lost = Span::MAX;
        self.period = now;
    }

    fn note_open(&mut self, age: Span) {
        self.open = self.open.max(age);
    }

    fn note_lost(&mut self, age: Span, now: Moment) {
        self.roll(now);
        self.open = self.open.min(age);
        self.lost = self.lost.min(age);
    }

    /// Whether a connection that has been idle for `age` may be used for a request that cannot be retried.
    fn proves(&mut self, age: Span, now: Moment) -> bool {
        self.roll(now);
        let seen = self.open.min(self.lost).min(self.lost_before);
        age + FLIGHT <= seen / 2
    }
}

/// One server.
struct Server<T> {
    /// The connection that has been idle longest is in front.
    idle: VecDeque<Idle<T>>,
    endurance: Endurance,
}

/// The idle connections of one pool and one worker.
pub struct IdleConnections<T> {
    servers: Vec<Server<T>>,
    /// Maximum number of connections in one list.
    idle_max: usize,
    /// The number of connections in all lists.
    total: usize,
    /// The server where the next search of `shed` begins.
    hand: usize,
}

/// How many servers with idle connections one search examines.
const SERVERS_EXAMINED_MAX: usize = 64;

impl<T: Copy + PartialEq> IdleConnections<T> {
    /// Creates lists for `servers` servers, each with room for `idle_max` idle connections.
    #[must_use]
    pub fn new(servers: usize, idle_max: usize) -> Self {
        let server = || Server { idle: VecDeque::new(), endurance: Endurance::UNKNOWN };
        let servers = core::iter::repeat_with(server).take(servers).collect();
        Self { servers, idle_max, total: 0, hand: 0 }
    }

    /// Has lists for `servers` servers from now on, each with room for `idle_max` idle connections. The caller
    /// removes those above it (`has_excess`).
    pub fn change(&mut self, servers: usize, idle_max: usize) {
        let server = || Server { idle: VecDeque::new(), endurance: Endurance::UNKNOWN };
        let used = self.servers.iter().rposition(|server| !server.idle.is_empty());
        self.servers.resize_with(servers.max(used.map_or(0, |last| last + 1)), server);
        self.idle_max = idle_max;
    }

    /// Whether more connections to `server` are idle than there is room for.
    #[must_use]
    pub fn has_excess(&self, server: usize) -> bool {
        self.count(server) > self.idle_max
    }

    /// Forgets how long `server` keeps idle connections open: the index names another server now.
    pub fn forget_endurance(&mut self, server: usize) {
        if let Some(server) = self.servers.get_mut(server) {
            server.endurance = Endurance::UNKNOWN;
        }
    }

    /// Adds `id`, idle since `now`. Returns the connection that must be closed for it, if any: the one that
    /// has been idle longest, or `id` itself if no connection may be kept.
    #[must_use]
    pub fn push(&mut self, server: usize, id: T, now: Moment) -> Option<T> {
        let Some(server) = self.servers.get_mut(server).filter(|_| self.idle_max > 0) else {
            return Some(id);
        };
        let full = server.idle.len() >= self.idle_max;
        let evicted = if full { server.idle.pop_front() } else { None };
        server.idle.push_back(Idle { id, since: now });
        match &evicted {
            Some(evicted) => server.endurance.note_open(now.since(evicted.since)),
            None => self.total += 1,
        }
        evicted.map(|evicted| evicted.id)
    }

    /// Takes the connection to `server` that became idle last, with its idle age. Its congestion window is open,
    /// and its server is the least likely to be closing it.
    pub fn pop(&mut self, server: usize, now: Moment) -> Option<(T, Span)> {
        let idle = self.servers.get_mut(server)?.idle.pop_back()?;
        self.total -= 1;
        Some((idle.id, now.since(idle.since)))
    }

    /// Takes the connection to `server` that has been idle longest, to close it.
    pub fn pop_oldest(&mut self, server: usize, now: Moment) -> Option<T> {
        let server = self.servers.get_mut(server)?;
        let idle = server.idle.pop_front()?;
        self.total -= 1;
        server.endurance.note_open(now.since(idle.since));
        Some(idle.id)
    }

    /// Removes `id`, which expired or was closed by its server. Searches from the connection that has been
    /// idle longest, because that one expires first. Returns its idle age; `None` if `id` was not found.
    pub fn remove(&mut self, server: usize, id: T, now: Moment) -> Option<Span> {
        let idle = &mut self.servers.get_mut(server)?.idle;
        let at = idle.iter().position(|idle| idle.id == id)?;
        let removed = idle.remove(at)?;
        self.total -= 1;
        Some(now.since(removed.since))
    }

    /// Records that a connection to `server` was found open after it had been idle for `age`.
    pub fn note_open(&mut self, server: usize, age: Span) {
        if let Some(server) = self.servers.get_mut(server) {
            server.endurance.note_open(age);
        }
    }

    /// Records that `server` closed a connection that had been idle for `age`, or lost a request on it.
    pub fn note_lost(&mut self, server: usize, age: Span, now: Moment) {
        if let Some(server) = self.servers.get_mut(server) {
            server.endurance.note_lost(age, now);
        }
    }

    /// Whether a request that cannot be retried may use the connection that `pop` would take: others were open
    /// at more than twice its idle age, and recently none was lost before that age.
    pub fn is_proven(&mut self, server: usize, now: Moment) -> bool {
        let Some(server) = self.servers.get_mut(server) else { return false };
        let (Some(oldest), Some(newest)) = (server.idle.front(), server.idle.back()) else {
            return false;
        };
        server.endurance.note_open(now.since(oldest.since));
        server.endurance.proves(now.since(newest.since), now)
    }

    /// Takes the connection that has been idle longest among those to the server with the most idle
    /// connections. Examines up to `SERVERS_EXAMINED_MAX` servers that have any.
    pub fn shed(&mut self) -> Option<T> {
        if self.total == 0 {
            return None;
        }
        let (mut most, mut examined) = (self.hand, 0);
        for step in 0..self.servers.len() {
            let at = (self.hand + step) % self.servers.len();
            if self.count(at) > self.count(most) {
                most = at;
            }
            examined += usize::from(self.count(at) > 0);
            if examined == SERVERS_EXAMINED_MAX {
                self.hand = at + 1;
                break;
            }
        }
        let idle = self.servers.get_mut(most)?.idle.pop_front()?;
        self.total -= 1;
        Some(idle.id)
    }

    /// The time since which the longest idle connection to `server` has been idle.
    #[must_use]
    pub fn oldest(&self, server: usize) -> Option<Moment> {
        self.servers.get(server)?.idle.front().map(|idle| idle.since)
    }

    /// The idle connections to `server`, the one that has been idle longest first.
    pub fn ids(&self, server: usize) -> impl Iterator<Item = T> {
        self.servers.get(server).into_iter().flat_map(|server| &server.idle).map(|idle| idle.id)
    }

    /// The number of idle connections to `server`.
    #[must_use]
    pub fn count(&self, server: usize) -> usize {
        self.servers.get(server).map_or(0, |server| server.idle.len())
    }

    /// The number of idle connections of the pool.
    #[must_use]
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether no connection is idle.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(7);

    #[test]
    fn most_recently_idle_connection_is_reused_first() {
        let mut idle = IdleConnections::new(2, 4);
        for id in 0..3 {
            assert_eq!(idle.push(0, id, NOW), None);
        }
        assert_eq!(idle.oldest(0), Some(NOW));
        assert_eq!(
            [(); 4].map(|()| idle.pop(0, NOW).map(|(id, _)| id)),
            [Some(2), Some(1), Some(0), None]
        );
        assert_eq!(idle.pop(1, NOW), None);
        assert!(idle.is_empty());
    }

    #[test]
    fn full_list_evicts_the_longest_idle_connection() {
        let mut idle = IdleConnections::new(1, 2);
        assert_eq!(idle.push(0, 'a', NOW), None);
        assert_eq!(idle.push(0, 'b', NOW), None);
        assert_eq!(idle.push(0, 'c', NOW), Some('a'));
        assert_eq!((idle.len(), idle.count(0)), (2, 2));
    }

    #[test]
    fn connection_is_returned_if_none_may_be_kept() {
        let mut idle = IdleConnections::new(1, 0);
        assert_eq!(idle.push(0, 'a', NOW), Some('a'));
        let mut idle = IdleConnections::new(1, 3);
        assert_eq!(idle.push(9, 'a', NOW), Some('a'), "no such server");
        assert!(idle.is_empty());
    }

    #[test]
    fn server_with_the_most_idle_connections_loses_its_oldest() {
        let mut idle = IdleConnections::new(3, 8);
        for (server, id) in [(0, 1), (2, 2), (2, 3), (1, 4), (2, 5), (1, 6)] {
            assert_eq!(idle.push(server, id, NOW), None);
        }
        assert_eq!(
            [(); 6].map(|()| idle.shed()).map(Option::unwrap_or_default),
            [2, 4, 3, 1, 6, 5]
        );
        assert_eq!((idle.shed(), idle.len()), (None, 0));
        assert_eq!(IdleConnections::<u8>::new(0, 8).shed(), None, "a pool without servers");
    }

    #[test]
    fn removed_connection_is_never_reused() {
        let mut idle = IdleConnections::new(1, 8);
        for id in 0..5 {
            assert_eq!(idle.push(0, id, NOW), None);
        }
        let later = NOW.after(Span::from_secs(2));
        assert_eq!(idle.remove(0, 3, later), Some(Span::from_secs(2)));
        assert_eq!(idle.remove(0, 3, later), None, "already removed");
        assert_eq!(idle.remove(1, 2, later), None, "no such server");
        let left: Vec<i32> = core::iter::from_fn(|| idle.pop(0, NOW).map(|(id, _)| id)).collect();
        assert_eq!(left, [4, 2, 1, 0]);
        assert_eq!(idle.len(), 0);
    }

    /// `millis` after `NOW`.
    fn at(millis: u64) -> Moment {
        NOW.after(Span::from_millis(millis))
    }

    /// A server with one connection that became idle at `since`.
    fn idle_since(since: Moment) -> IdleConnections<u32> {
        let mut idle = IdleConnections::new(1, 8);
        assert_eq!(idle.push(0, 1, since), None);
        idle
    }

    #[test]
    fn connection_is_proven_up_to_half_the_age_at_which_others_were_open() {
        // Longest open, shortest lost, age of the connection (ms) -> proven.
        let table = [
            (0, None, 0, false),
            (1, None, 0, false),
            (2, None, 0, true),
            (2, None, 1, false),
            (1000, None, 499, true),
            (1000, None, 500, false),
            (1000, Some(5000), 499, true),
            (1000, Some(500), 249, true),
            (1000, Some(500), 250, false),
            (1000, Some(1), 0, false),
            (1000, Some(0), 0, false),
        ];
        for (open, lost, age, proven) in table {
            let mut idle = idle_since(at(0));
            idle.note_open(0, Span::from_millis(open));
            if let Some(lost) = lost {
                idle.note_lost(0, Span::from_millis(lost), at(0));
            }
            assert_eq!(idle.is_proven(0, at(age)), proven, "{open}, {lost:?}, {age}");
        }
    }

    #[test]
    fn connection_is_proven_only_by_an_older_one() {
        let mut idle = idle_since(at(0));
        for age in [0, 1, 10, 1000, 25_000] {
            assert!(!idle.is_proven(0, at(age)), "{age} ms");
        }
        assert_eq!(idle.push(0, 2, at(25_000)), None);
        assert!(idle.is_proven(0, at(25_001)));
        assert!(!idle.is_proven(1, at(25_001)), "no such server");
    }

    #[test]
    fn server_is_proven_again_after_its_loss_is_forgotten() {
        let mut idle = idle_since(at(0));
        idle.note_open(0, Span::from_secs(30));
        assert!(idle.is_proven(0, at(1)));
        // A restart closes a connection that has just become idle.
        idle.note_lost(0, Span::ZERO, at(10));
        for now in (10..5_000).step_by(100) {
            idle.note_open(0, Span::from_secs(20));
            assert_eq!(idle.push(0, 2, at(now)), None);
            assert!(!idle.is_proven(0, at(now)), "{now} ms");
            assert_eq!(idle.pop(0, at(now)), Some((2, Span::ZERO)));
        }
        assert_eq!(idle.push(0, 2, at(15_000)), None);
        assert!(idle.is_proven(0, at(15_000)), "other connections were open for 20 s since then");
    }

    #[test]
    fn server_with_a_fixed_timeout_never_loses_a_spared_request() {
        // The server closes after `timeout`. Requests arrive after every gap; a connection of each age is tried.
        for timeout in [1_u64, 2, 5, 100, 5_000, 75_000] {
            let mut idle = IdleConnections::new(1, 64);
            let mut now = at(0);
            let mut reused = 0;
            for step in 0..3_000_u64 {
                now = now.after(Span::from_millis(step * 7919 % (timeout * 3 / 2 + 1)));
                while idle
                    .oldest(0)
                    .is_some_and(|since| now.since(since) >= Span::from_millis(timeout))
                {
                    let _ = idle.pop_oldest(0, at(0));
                    idle.note_lost(0, Span::from_millis(timeout), now);
                }
                if idle.is_proven(0, now) {
                    let (_, age) = idle.pop(0, now).expect("a connection");
                    assert!(age + FLIGHT <= Span::from_millis(timeout) / 2);
                    reused += 1;
                }
                let _ = idle.push(0, step, now);
            }
            assert_eq!(reused > 100, timeout > 2, "{reused} of 3000 with {timeout} ms");
        }
    }
}
