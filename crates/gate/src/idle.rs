//! Idle upstream connections, by server. The one that became idle last is reused first.
//! In: connections that became idle. Out: a connection to reuse, or one that must be closed.
//! Never: owns a socket or a deadline. The worker does, and removes connections that expired or closed.
//! Limits: `idle_max` connections for each server. Invariant: a connection is in at most one list, once.

use std::collections::VecDeque;

use tidegate_base::Moment;

struct Idle<T> {
    id: T,
    since: Moment,
}

/// The idle connections of one pool and one worker.
pub struct IdleConnections<T> {
    /// By server. The connection that has been idle longest is in front.
    servers: Vec<VecDeque<Idle<T>>>,
    /// The most connections in one list.
    idle_max: usize,
    /// The number of connections in all lists.
    total: usize,
    /// The server where the next search of `shed` begins.
    hand: usize,
}

/// How many servers with idle connections one search looks at.
const SERVERS_LOOKED_AT_MAX: usize = 64;

impl<T: Copy + PartialEq> IdleConnections<T> {
    /// Creates lists for `servers` servers, each with room for `idle_max` idle connections.
    #[must_use]
    pub fn new(servers: usize, idle_max: usize) -> Self {
        let servers = core::iter::repeat_with(VecDeque::new).take(servers).collect();
        Self { servers, idle_max, total: 0, hand: 0 }
    }

    /// Adds `id`, idle since `now`. Returns the connection that must be closed for it, if any: the one that
    /// has been idle longest, or `id` itself if no connection may be kept.
    #[must_use]
    pub fn push(&mut self, server: usize, id: T, now: Moment) -> Option<T> {
        let Some(idle) = self.servers.get_mut(server).filter(|_| self.idle_max > 0) else {
            return Some(id);
        };
        let evicted = if idle.len() >= self.idle_max { idle.pop_front() } else { None };
        idle.push_back(Idle { id, since: now });
        if evicted.is_none() {
            self.total += 1;
        }
        evicted.map(|evicted| evicted.id)
    }

    /// Takes the connection to `server` that became idle last. Its congestion window is open, and its server
    /// is the least likely to be closing it.
    pub fn pop(&mut self, server: usize) -> Option<T> {
        let idle = self.servers.get_mut(server)?.pop_back()?;
        self.total -= 1;
        Some(idle.id)
    }

    /// Takes the connection to `server` that has been idle longest, to close it.
    pub fn pop_oldest(&mut self, server: usize) -> Option<T> {
        let idle = self.servers.get_mut(server)?.pop_front()?;
        self.total -= 1;
        Some(idle.id)
    }

    /// Removes `id`, which expired or was closed by its server. Searches from the connection that has been
    /// idle longest, because that one expires first. Returns whether `id` was found.
    pub fn remove(&mut self, server: usize, id: T) -> bool {
        let Some(idle) = self.servers.get_mut(server) else {
            return false;
        };
        let Some(at) = idle.iter().position(|idle| idle.id == id) else {
            return false;
        };
        idle.remove(at);
        self.total -= 1;
        true
    }

    /// Takes the connection that has been idle longest among those to the server with the most idle
    /// connections. Looks at up to `SERVERS_LOOKED_AT_MAX` servers that have any.
    pub fn shed(&mut self) -> Option<T> {
        if self.total == 0 {
            return None;
        }
        let (mut most, mut looked_at) = (self.hand, 0);
        for step in 0..self.servers.len() {
            let at = (self.hand + step) % self.servers.len();
            if self.count(at) > self.count(most) {
                most = at;
            }
            looked_at += usize::from(self.count(at) > 0);
            if looked_at == SERVERS_LOOKED_AT_MAX {
                self.hand = at + 1;
                break;
            }
        }
        let idle = self.servers.get_mut(most)?.pop_front()?;
        self.total -= 1;
        Some(idle.id)
    }

    /// Since when the connection to `server` that has been idle longest is idle.
    #[must_use]
    pub fn oldest(&self, server: usize) -> Option<Moment> {
        self.servers.get(server)?.front().map(|idle| idle.since)
    }

    /// The number of idle connections to `server`.
    #[must_use]
    pub fn count(&self, server: usize) -> usize {
        self.servers.get(server).map_or(0, VecDeque::len)
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
            (idle.pop(0), idle.pop(0), idle.pop(0), idle.pop(0)),
            (Some(2), Some(1), Some(0), None)
        );
        assert_eq!(idle.pop(1), None);
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
        assert!(idle.remove(0, 3));
        assert!(!idle.remove(0, 3), "already removed");
        assert!(!idle.remove(1, 2), "no such server");
        let left: Vec<i32> = core::iter::from_fn(|| idle.pop(0)).collect();
        assert_eq!(left, [4, 2, 1, 0]);
        assert_eq!(idle.len(), 0);
    }
}
