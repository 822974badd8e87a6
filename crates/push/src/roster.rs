//! The connected clients of a worker, by user, and the instructions of the application about them.
//! In: clients that connect and leave; instructions of the server API. Out: the clients that an instruction concerns, a
//! slice at a time.
//! Limits: `INSTRUCTIONS_MAX` instructions wait; beyond that the API answers `Error::TooManyRequests`.
//! Invariant: an instruction reaches, exactly once, each client that was connected when the worker received the instruction
//! and that has not left.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::client_name::ClientName;
use crate::instruction::Instruction;
use crate::settings::Error;

/// Maximum number of instructions that wait on a worker.
pub const INSTRUCTIONS_MAX: usize = 1024;

/// The user and name of a client.
type Entry = (Arc<str>, ClientName);

/// The clients of a worker. `K` is the caller's key of a client.
#[derive(Debug)]
pub struct Roster<K> {
    /// By hub: the clients, in the order of user and name.
    clients: Vec<BTreeMap<Entry, K>>,
    /// By hub: the number of different users among its clients.
    users: Vec<u32>,
    /// Instructions that have not been through all clients, oldest first. Up to `INSTRUCTIONS_MAX`.
    waiting: VecDeque<Walk>,
}

/// An instruction on its way through the clients.
#[derive(Debug)]
struct Walk {
    /// The instruction.
    instruction: Arc<Instruction>,
    /// The name of the last client that was visited; `None` before the first slice.
    after: Option<ClientName>,
}

impl<K> Default for Roster<K> {
    fn default() -> Self {
        Self { clients: Vec::new(), users: Vec::new(), waiting: VecDeque::new() }
    }
}

impl<K: Copy> Roster<K> {
    /// Adds a client that has connected.
    pub fn enter(&mut self, hub: u16, user: &Arc<str>, client: ClientName, key: K) {
        if self.users.len() <= usize::from(hub) {
            self.users.resize(usize::from(hub) + 1, 0);
            self.clients.resize_with(usize::from(hub) + 1, BTreeMap::new);
        }
        self.users[usize::from(hub)] += u32::from(!self.has_user(hub, user));
        self.clients[usize::from(hub)].insert((Arc::clone(user), client), key);
    }

    /// Whether a client of the user is connected.
    fn has_user(&self, hub: u16, user: &Arc<str>) -> bool {
        let Some(clients) = self.clients.get(usize::from(hub)) else { return false };
        let next = clients.range((Arc::clone(user), ClientName::FIRST)..).next();
        next.is_some_and(|((name, _), _)| name == user)
    }

    /// The number of different users of a hub.
    #[must_use]
    pub fn users(&self, hub: u16) -> u32 {
        self.users.get(usize::from(hub)).copied().unwrap_or_default()
    }

    /// The number of clients of a hub.
    #[must_use]
    pub fn clients(&self, hub: u16) -> u32 {
        self.clients.get(usize::from(hub)).map_or(0, |clients| clients.len() as u32)
    }

    /// Removes a client that has left.
    pub fn leave(&mut self, hub: u16, user: &Arc<str>, client: ClientName) {
        let Some(clients) = self.clients.get_mut(usize::from(hub)) else { return };
        let known = clients.remove(&(Arc::clone(user), client));
        if known.is_some() && !self.has_user(hub, user) {
            self.users[usize::from(hub)] -= 1;
        }
    }

    /// The number of clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.iter().map(BTreeMap::len).sum()
    }

    /// Whether there is no client.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.iter().all(BTreeMap::is_empty)
    }

    /// Accepts an instruction.
    ///
    /// # Errors
    /// `INSTRUCTIONS_MAX` instructions wait already.
    pub fn accept(&mut self, instruction: Arc<Instruction>) -> Result<(), Error> {
        if self.waiting.len() >= INSTRUCTIONS_MAX {
            return Err(Error::TooManyRequests);
        }
        self.waiting.push_back(Walk { instruction, after: None });
        Ok(())
    }

    /// Whether an instruction waits.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Continues with the oldest instruction: appends the keys of up to `most` clients that it concerns to `keys`. Returns the
    /// instruction; `None` if none waits.
    pub fn advance(&mut self, most: usize, keys: &mut Vec<K>) -> Option<Arc<Instruction>> {
        let walk = self.waiting.front_mut()?;
        let instruction = Arc::clone(&walk.instruction);
        let entry = |client| (Arc::clone(&instruction.user), client);
        let clients = self.clients.get(usize::from(instruction.hub));
        if !instruction.client.is_empty() {
            let named = ClientName::parse(&instruction.client);
            let found = clients.zip(named).and_then(|(clients, name)| clients.get(&entry(name)));
            keys.extend(found.filter(|_| !instruction.spares(&instruction.client)));
            self.waiting.pop_front();
            return Some(instruction);
        }
        let begin = match walk.after.take() {
            Some(client) => Bound::Excluded(entry(client)),
            None => Bound::Included(entry(ClientName::FIRST)),
        };
        let after = clients
            .into_iter()
            .flat_map(|clients| clients.range((begin.clone(), Bound::Unbounded)));
        for (count, ((user, client), key)) in after.enumerate() {
            if *user != instruction.user {
                break;
            }
            if instruction.spared.is_empty() || !instruction.spares(&client.text()) {
                keys.push(*key);
            }
            if count + 1 == most {
                walk.after = Some(*client);
                return Some(instruction);
            }
        }
        self.waiting.pop_front();
        Some(instruction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::ClientChange;

    /// The name of a client that the tests call `c1`, `c2` and so on.
    fn name(client: &str) -> ClientName {
        let number = client.trim_start_matches('c').parse().expect("a number");
        ClientName::from_random([0, number])
    }

    fn instruction(user: &str, client: &str, spared: &[&str]) -> Arc<Instruction> {
        let text = |client: &str| match client {
            "" => String::new(),
            client => name(client).text().to_string(),
        };
        Arc::new(Instruction {
            hub: 1,
            user: user.into(),
            client: text(client).into(),
            session: Box::default(),
            spared: spared.iter().map(|name| text(name).into()).collect(),
            what: ClientChange::Unsubscribe { channel: "a".into() },
        })
    }

    fn roster() -> Roster<u32> {
        let mut roster = Roster::default();
        for (key, (hub, user, client)) in
            [(1, "ann", "c1"), (1, "ann", "c2"), (1, "ann", "c3"), (1, "", "c4"), (2, "ann", "c5")]
                .into_iter()
                .enumerate()
        {
            roster.enter(hub, &user.into(), name(client), key as u32 + 1);
        }
        roster
    }

    #[test]
    fn instructions_reach_the_clients_of_their_user_in_slices() {
        for (user, client, spared, expected) in [
            ("ann", "", &[][..], &[1, 2, 3][..]),
            ("ann", "c2", &[], &[2]),
            ("ann", "", &["c1", "c3"], &[2]),
            ("ann", "c2", &["c2"], &[]),
            ("", "c4", &[], &[4]),
            ("", "c1", &[], &[]),
            ("bob", "", &[], &[]),
        ] {
            for most in 1..5 {
                let mut roster = roster();
                roster.accept(instruction(user, client, spared)).expect("room");
                let mut keys = Vec::new();
                while roster.is_busy() {
                    let before = keys.len();
                    assert!(roster.advance(most, &mut keys).is_some());
                    assert!(keys.len() - before <= most);
                }
                assert_eq!(keys, expected, "{user} {client} {spared:?} {most}");
            }
        }
    }

    #[test]
    fn users_are_counted_once_for_each_hub() {
        let mut roster = roster();
        assert_eq!([0, 1, 2, 3].map(|hub| roster.users(hub)), [0, 2, 1, 0]);
        for (client, left) in [("c1", 2), ("c3", 2), ("c1", 2), ("c2", 1), ("c2", 1)] {
            roster.leave(1, &"ann".into(), name(client));
            assert_eq!(roster.users(1), left, "after {client}");
        }
        roster.enter(1, &"ann".into(), name("c6"), 6);
        roster.leave(1, &"".into(), name("c4"));
        assert_eq!([1, 2].map(|hub| roster.users(hub)), [1, 1]);
    }

    #[test]
    fn client_that_has_left_gets_nothing() {
        let mut roster = roster();
        roster.accept(instruction("ann", "", &[])).expect("room");
        let mut keys = Vec::new();
        roster.advance(1, &mut keys);
        roster.leave(1, &"ann".into(), name("c1"));
        roster.leave(1, &"ann".into(), name("c2"));
        roster.advance(9, &mut keys);
        assert_eq!((keys, roster.is_busy(), roster.len()), (vec![1, 3], false, 3));
    }

    #[test]
    fn instructions_beyond_the_limit_are_refused() {
        let mut roster = roster();
        for _ in 0..INSTRUCTIONS_MAX {
            roster.accept(instruction("ann", "", &[])).expect("room");
        }
        assert_eq!(roster.accept(instruction("ann", "", &[])), Err(Error::TooManyRequests));
    }
}
