//! The order in which DNS servers are asked: a server that has not answered is asked after the others for a time. Also counts their
//! answers.
//! In: the servers of the configuration, results, the time. Out: the servers, in their order; counts.
//! Never: leaves out a server.
//! Limits: `FAILED_MAX` servers that have failed are remembered; the queries to `COUNTED_MAX` servers are counted.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use tidegate_base::{Moment, Span};

/// How long a server is asked last after its first failure in a row; the time doubles with each further failure.
const PENALTY_MIN: Span = Span::from_secs(5);
/// The longest such time. Then one lookup waits for the server again.
const PENALTY_MAX: Span = Span::from_secs(300);
/// Servers that have failed and are remembered.
const FAILED_MAX: usize = 64;
/// Servers whose queries are counted.
const COUNTED_MAX: usize = 64;

/// The end of a query.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QueryEnd {
    /// An answer with records.
    Records,
    /// An answer without records: there are none of this kind.
    Empty,
    /// The name does not exist.
    UnknownName,
    /// The server refused the query.
    Refused,
    /// The server answered with another error.
    Failed,
    /// The answer is malformed.
    Malformed,
    /// The answer does not fit a datagram.
    Truncated,
    /// There was no answer in time.
    Timeout,
    /// The query could not be sent, or the connection broke.
    NotSent,
}

/// How often queries to a server have ended, by how they ended.
pub type QueryCounts = BTreeMap<QueryEnd, u64>;

/// What is known about the DNS servers of the process.
#[derive(Default, Debug)]
pub struct NameServers {
    /// Servers that have failed: how often in a row, and until when they are asked last.
    failed: BTreeMap<SocketAddr, (u32, Moment)>,
    /// The queries to each server.
    counts: BTreeMap<SocketAddr, QueryCounts>,
}

impl NameServers {
    /// No server has failed.
    #[must_use]
    pub const fn new() -> Self {
        Self { failed: BTreeMap::new(), counts: BTreeMap::new() }
    }

    /// A query to a server has ended.
    pub fn count(&mut self, server: SocketAddr, end: QueryEnd) {
        if self.counts.len() < COUNTED_MAX || self.counts.contains_key(&server) {
            *self.counts.entry(server).or_default().entry(end).or_default() += 1;
        }
    }

    /// The queries to a server since the process started.
    #[must_use]
    pub fn counts(&self, server: SocketAddr) -> QueryCounts {
        self.counts.get(&server).cloned().unwrap_or_default()
    }

    /// These servers, in their order, but those that have just failed last.
    #[must_use]
    pub fn in_order(&self, servers: &[SocketAddr], now: Moment) -> Vec<SocketAddr> {
        let is_last =
            |server: &SocketAddr| self.failed.get(server).is_some_and(|(_, until)| *until > now);
        let mut ordered = servers.to_vec();
        // The sort is stable.
        ordered.sort_by_key(is_last);
        ordered
    }

    /// A server has answered, or has not.
    pub fn note(&mut self, server: SocketAddr, has_answered: bool, now: Moment) {
        if has_answered {
            self.failed.remove(&server);
            return;
        }
        if self.failed.len() >= FAILED_MAX && !self.failed.contains_key(&server) {
            let first_due = self.failed.iter().min_by_key(|(_, (_, until))| *until);
            let Some(first_due) = first_due.map(|(server, _)| *server) else { return };
            self.failed.remove(&first_due);
        }
        let (count, until) = self.failed.entry(server).or_insert((0, now));
        // Lookups at the same time fail together.
        if *count > 0 && *until > now {
            return;
        }
        *until = now.after((PENALTY_MIN * (1 << (*count).min(10))).min(PENALTY_MAX));
        *count = count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 53).into()
    }

    fn at(seconds: u64) -> Moment {
        Moment::ZERO.after(Span::from_secs(seconds))
    }

    #[test]
    fn server_that_has_failed_is_asked_last_for_ever_longer() {
        let all = [server(1), server(2), server(3)];
        let last = [server(2), server(3), server(1)];
        let mut known = NameServers::new();
        assert_eq!(known.in_order(&all, at(0)), all);
        let mut now = 0;
        for penalty in [5, 10, 20, 40, 80, 160, 300, 300] {
            known.note(server(1), false, at(now));
            // Another lookup that began at the same time.
            known.note(server(1), false, at(now + 1));
            assert_eq!(known.in_order(&all, at(now + penalty - 1)), last, "{penalty}");
            assert_eq!(known.in_order(&all, at(now + penalty)), all, "{penalty}");
            now += penalty;
        }
        known.note(server(1), true, at(now));
        known.note(server(1), false, at(now));
        assert_eq!(known.in_order(&all, at(now + 5)), all, "the first failure in a row");
        // If all have failed, the order is that of the configuration.
        all.iter().for_each(|server| known.note(*server, false, at(now)));
        assert_eq!(known.in_order(&all, at(now)), all);
    }

    #[test]
    fn remembered_servers_are_bounded() {
        let mut known = NameServers::new();
        for last in 0..200 {
            known.note(server(last), false, at(u64::from(last)));
            known.count(server(last), QueryEnd::Timeout);
        }
        assert_eq!(known.failed.len(), FAILED_MAX);
        assert!(known.failed.contains_key(&server(199)));
        known.count(server(0), QueryEnd::Timeout);
        known.count(server(0), QueryEnd::Records);
        let counts = [(QueryEnd::Records, 1), (QueryEnd::Timeout, 2)];
        assert_eq!(known.counts(server(0)), QueryCounts::from(counts));
        assert!(known.counts.len() == COUNTED_MAX && known.counts(server(199)).is_empty());
    }
}
