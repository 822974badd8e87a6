//! The order in which DNS servers are asked: a server that has not answered is asked after the others for a time.
//! In: the servers of the configuration, results, the time. Out: the servers, in their order.
//! Never: leaves out a server.
//! Limits: `FAILED_MAX` servers that have failed are remembered.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use tidegate_base::{Moment, Span};

/// How long a server is asked last after its first failure in a row; the time doubles with each further failure.
const PENALTY_MIN: Span = Span::from_secs(5);
/// The longest such time. Then one lookup waits for the server again.
const PENALTY_MAX: Span = Span::from_secs(300);
/// Servers that have failed and are remembered.
const FAILED_MAX: usize = 64;

/// What is known about the DNS servers of the process.
#[derive(Default, Debug)]
pub struct NameServers {
    /// Servers that have failed: how often in a row, and until when they are asked last.
    failed: BTreeMap<SocketAddr, (u32, Moment)>,
}

impl NameServers {
    /// No server has failed.
    #[must_use]
    pub const fn new() -> Self {
        Self { failed: BTreeMap::new() }
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
        }
        assert_eq!(known.failed.len(), FAILED_MAX);
        assert!(known.failed.contains_key(&server(199)));
    }
}
