//! The connected clients of a worker, by user, and the instructions of the application about them.
//! In: clients that connect and leave; instructions of the server API. Out: the clients that an instruction concerns, a
//! slice at a time.
//! Limits: `INSTRUCTIONS_MAX` instructions wait; beyond that the API answers `Error::TooManyRequests`.
//! Invariant: an instruction reaches, exactly once, each client that was connected when the worker received the instruction
//! and that has not left.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::instruction::Instruction;
use crate::settings::Error;

/// Maximum number of instructions that wait on a worker.
pub const INSTRUCTIONS_MAX: usize = 1024;

/// The hub, user and name of a client.
type Entry = (u16, Arc<str>, Arc<str>);

/// The clients of a worker. `K` is the caller's key of a client.
#[derive(Debug)]
pub struct Roster<K> {
    /// The clients, in the order of hub, user and name.
    clients: BTreeMap<Entry, K>,
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
    after: Option<Arc<str>>,
}

impl<K> Default for Roster<K> {
    fn default() -> Self {
        Self { clients: BTreeMap::new(), users: Vec::new(), waiting: VecDeque::new() }
    }
}

impl<K: Copy> Roster<K> {
    /// Adds a client that has connected.
    pub fn enter(&mut self, hub: u16, user: &Arc<str>, client: &Arc<str>, key: K) {
        if self.users.len() <= usize::from(hub) {
            self.users.resize(usize::from(hub) + 1, 0);
        }
        self.users[usize::from(hub)] += u32::from(!self.has_user(hub, user));
        self.clients.insert((hub, Arc::clone(user), Arc::clone(client)), key);
    }

    /// Whether a client of the user is connected.
    fn has_user(&self, hub: u16, user: &Arc<str>) -> bool {
        let from = (hub, Arc::clone(user), Arc::from(""));
        let next = self.clients.range(from..).next();
        next.is_some_and(|((of, name, _), _)| *of == hub && name == user)
    }

    /// The number of different users of a hub.
    #[must_use]
    pub fn users(&self, hub: u16) -> u32 {
        self.users.get(usize::from(hub)).copied().unwrap_or_default()
    }

    /// Removes a client that has left.
    pub fn leave(&mut self, hub: u16, user: &Arc<str>, client: &Arc<str>) {
        let known = self.clients.remove(&(hub, Arc::clone(user), Arc::clone(client)));
        if known.is_some() && !self.has_user(hub, user) {
            self.users[usize::from(hub)] -= 1;
        }
    }

    /// The number of clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there is no client.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
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
        let entry = |client| (instruction.hub, Arc::clone(&instruction.user), client);
        if !instruction.client.is_empty() {
            let found = self.clients.get(&entry(Arc::clone(&instruction.client)));
            keys.extend(found.filter(|_| !instruction.spares(&instruction.client)));
            self.waiting.pop_front();
            return Some(instruction);
        }
        let begin = match walk.after.take() {
            Some(client) => Bound::Excluded(entry(client)),
            None => Bound::Included(entry("".into())),
        };
        for (count, ((hub, user, client), key)) in
            self.clients.range((begin, Bound::Unbounded)).enumerate()
        {
            if *hub != instruction.hub || *user != instruction.user {
                break;
            }
            if !instruction.spares(client) {
                keys.push(*key);
            }
            if count + 1 == most {
                walk.after = Some(Arc::clone(client));
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

    fn instruction(user: &str, client: &str, spared: &[&str]) -> Arc<Instruction> {
        Arc::new(Instruction {
            hub: 1,
            user: user.into(),
            client: client.into(),
            spared: spared.iter().map(|name| (*name).into()).collect(),
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
            roster.enter(hub, &user.into(), &client.into(), key as u32 + 1);
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
            roster.leave(1, &"ann".into(), &client.into());
            assert_eq!(roster.users(1), left, "after {client}");
        }
        roster.enter(1, &"ann".into(), &"c6".into(), 6);
        roster.leave(1, &"".into(), &"c4".into());
        assert_eq!([1, 2].map(|hub| roster.users(hub)), [1, 1]);
    }

    #[test]
    fn client_that_has_left_gets_nothing() {
        let mut roster = roster();
        roster.accept(instruction("ann", "", &[])).expect("room");
        let mut keys = Vec::new();
        roster.advance(1, &mut keys);
        roster.leave(1, &"ann".into(), &"c1".into());
        roster.leave(1, &"ann".into(), &"c2".into());
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
