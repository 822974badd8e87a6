//! The maximum ages of connections.
//! In: connections that begin and end, time. Out: connections that have reached their maximum age.
//! Never: has an entry for a connection without a limit. Limits: an entry for each open connection with a limit.
//! Invariant: `ends` and `by_key` contain the same connections.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_base::Moment;

/// When connections end. `K` names a connection.
#[derive(Debug)]
pub struct Ages<K> {
    /// The ends, the next one first.
    ends: BTreeSet<(Moment, K)>,
    /// By connection: its end.
    by_key: BTreeMap<K, Moment>,
}

impl<K> Default for Ages<K> {
    fn default() -> Self {
        Self { ends: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Ages<K> {
    /// A connection has begun that lasts until `end`.
    pub fn begin(&mut self, key: K, end: Moment) {
        self.forget(key);
        self.by_key.insert(key, end);
        self.ends.insert((end, key));
    }

    /// A connection has ended.
    pub fn forget(&mut self, key: K) {
        if let Some(end) = self.by_key.remove(&key) {
            self.ends.remove(&(end, key));
        }
    }

    /// When the next connection must end.
    #[must_use]
    pub fn next_end(&self) -> Moment {
        self.ends.first().map_or(Moment::NEVER, |(end, _)| *end)
    }

    /// The next connection that must end now.
    pub fn take_due(&mut self, now: Moment) -> Option<K> {
        let (_, key) = *self.ends.first().filter(|(end, _)| *end <= now)?;
        self.forget(key);
        Some(key)
    }

    /// The connections that have a maximum age.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.by_key.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::Span;

    #[test]
    fn connections_end_in_the_order_of_their_ends() {
        let at = |seconds| Moment::ZERO.after(Span::from_secs(seconds));
        let mut ages = Ages::default();
        for (key, end) in [(1, 30), (2, 10), (3, 20), (4, 10), (5, 40)] {
            ages.begin(key, at(end));
        }
        ages.forget(3);
        ages.forget(9);
        assert_eq!((ages.next_end(), ages.take_due(at(9))), (at(10), None));
        assert_eq!([ages.take_due(at(30)), ages.take_due(at(30))], [Some(2), Some(4)]);
        assert_eq!([ages.take_due(at(30)), ages.take_due(at(30))], [Some(1), None]);
        ages.begin(5, at(50));
        assert_eq!((ages.next_end(), ages.keys().count()), (at(50), 1), "a later end replaces it");
        ages.forget(5);
        assert!(ages.ends.is_empty() && ages.by_key.is_empty() && ages.next_end() == Moment::NEVER);
    }
}
