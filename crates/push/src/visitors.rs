//! The presence list of a channel: the clients that other clients see.
//! In: clients that join and leave. Out: the list, and how many clients and users it has.
//! Invariant: `users` has each user of the listed `clients` once, with the number of its clients, and `unlisted` is the number of
//! the others, so that counting walks no list.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::mail::PresentClient;

/// The presence list of a channel.
#[derive(Debug, Default)]
pub struct Visitors {
    /// By the name of the client.
    clients: BTreeMap<Arc<str>, PresentClient>,
    /// How many listed clients each user has.
    users: BTreeMap<Arc<str>, u32>,
    /// How many of the clients are not listed.
    unlisted: usize,
}

impl Visitors {
    /// Adds a client. It replaces one with the same name.
    pub fn join(&mut self, visitor: PresentClient) {
        match visitor.is_listed {
            true => *self.users.entry(Arc::clone(&visitor.user)).or_default() += 1,
            false => self.unlisted += 1,
        }
        if let Some(before) = self.clients.insert(Arc::clone(&visitor.client), visitor) {
            self.forget(&before);
        }
    }

    /// Removes a client.
    pub fn part(&mut self, client: &str) -> Option<PresentClient> {
        let visitor = self.clients.remove(client)?;
        self.forget(&visitor);
        Some(visitor)
    }

    /// How many clients there are, and how many users.
    #[must_use]
    pub fn count(&self) -> (u64, u64) {
        ((self.clients.len() - self.unlisted) as u64, self.users.len() as u64)
    }

    /// The clients in the order of their names.
    #[must_use]
    pub fn list(&self) -> Vec<PresentClient> {
        self.clients.values().filter(|visitor| visitor.is_listed).cloned().collect()
    }

    fn forget(&mut self, PresentClient { user, is_listed, .. }: &PresentClient) {
        if !is_listed {
            self.unlisted -= 1;
        } else if let Some(count) = self.users.get_mut(&**user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&**user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_counted_once_while_one_of_their_clients_is_there() {
        let mut visitors = Visitors::default();
        let visitor = |client: &str, user: &str| PresentClient {
            client: client.into(),
            user: user.into(),
            info: "".into(),
            is_listed: user != "hidden",
            is_announced: None,
        };
        for (client, user, expected) in [
            ("1", "ada", (1, 1)),
            ("2", "ada", (2, 1)),
            ("3", "", (3, 2)),
            ("2", "bob", (3, 3)),
            ("2", "bob", (3, 3)),
            ("4", "hidden", (3, 3)),
        ] {
            visitors.join(visitor(client, user));
            assert_eq!(visitors.count(), expected, "{client} {user}");
        }
        assert!(visitors.list().iter().all(|known| &*known.client != "4"));
        for (client, is_there, expected) in [
            ("1", true, (2, 2)),
            ("1", false, (2, 2)),
            ("4", true, (2, 2)),
            ("2", true, (1, 1)),
            ("3", true, (0, 0)),
        ] {
            assert_eq!(visitors.part(client).is_some(), is_there, "{client}");
            assert_eq!(visitors.count(), expected, "{client}");
        }
    }
}
