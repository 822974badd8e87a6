//! Whether a server treats its subscribers alike: how many messages each connection got, and how late on average.
//! In: receipts of connections. Out: the fewest and the most messages, the spread of the connections' mean latencies.
//! Limits: 8 bytes for each connection.
//! Invariant: only connections that were open at the end are counted.

use crate::histogram::Times;
use core::time::Duration;

/// The receipts of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Its messages.
    messages: u32,
    /// The sum of their latencies, in seconds.
    latency_s: f32,
}

impl Account {
    /// Adds a message.
    pub(super) fn note(&mut self, latency: Duration) {
        self.messages = self.messages.saturating_add(1);
        self.latency_s += latency.as_secs_f32();
    }
}

/// The connections of one thread, or of all.
#[derive(Clone, Debug)]
pub struct Fairness {
    /// The fewest and the most messages of a connection; `None` without a connection.
    messages: Option<(u32, u32)>,
    /// The mean latency of each connection that got messages.
    means: Times,
    /// The sums of these means, and of their squares.
    sum: f64,
    squares: f64,
}

impl Fairness {
    pub(super) fn new() -> Self {
        Self { messages: None, means: Times::fine(), sum: 0.0, squares: 0.0 }
    }

    /// Adds a connection that was open at the end.
    pub(super) fn note(&mut self, account: Account) {
        let Account { messages, latency_s } = account;
        let (least, most) = self.messages.unwrap_or((messages, messages));
        self.messages = Some((least.min(messages), most.max(messages)));
        if messages > 0 {
            let mean = f64::from(latency_s) / f64::from(messages);
            self.means.record(Duration::from_secs_f64(mean.max(0.0)));
            self.sum += mean;
            self.squares += mean * mean;
        }
    }

    /// Adds the connections of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        self.messages = match (self.messages, other.messages) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
        self.means.add(&other.means);
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// The fewest and the most messages of a connection; `None` without a connection.
    #[must_use]
    pub fn messages(&self) -> Option<(u32, u32)> {
        self.messages
    }

    /// The mean latency of each connection.
    #[must_use]
    pub fn means(&self) -> &Times {
        &self.means
    }

    /// Jain's index of the mean latencies: 1 if they are equal, 1/n if one of n connections has all of the latency. `None`
    /// without a message.
    #[must_use]
    pub fn jain(&self) -> Option<f64> {
        let count = self.means.count() as f64;
        (self.squares > 0.0).then(|| self.sum * self.sum / (count * self.squares))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(latencies: &[u64]) -> Account {
        let mut account = Account::default();
        latencies.iter().for_each(|ms| account.note(Duration::from_millis(*ms)));
        account
    }

    #[test]
    fn equal_connections_have_index_1_and_one_slow_connection_lowers_it() {
        let mut equal = Fairness::new();
        assert_eq!((equal.messages(), equal.jain()), (None, None));
        for _ in 0..4 {
            equal.note(account(&[1, 3]));
        }
        assert_eq!(equal.messages(), Some((2, 2)));
        assert!((equal.jain().unwrap() - 1.0).abs() < 1e-6);
        let mut slow = Fairness::new();
        slow.note(account(&[1000]));
        slow.note(Account::default());
        assert_eq!((slow.messages(), slow.means().count()), (Some((0, 1)), 1));
        equal.add(&slow);
        assert_eq!((equal.messages(), equal.means().count()), (Some((0, 2)), 5));
        assert!(equal.jain().unwrap() < 0.25);
    }
}
