//! The generations of settings that a worker uses: the current one, and earlier ones that requests still use.
//! In: snapshots; connections and streams that begin or end to use a generation. Out: the settings of each.
//! Never: takes a lock, or changes a snapshot. The counts are the worker's own.
//! Limits: `GENERATIONS_MAX` generations.
//! Invariant: `users` counts the client connections and the streams whose `era` names the generation. The settings
//! of a generation without users are freed, unless it is the current one.

use std::rc::Rc;

use crate::snapshot::Snapshot;

/// The most generations of settings that a worker uses at once.
const GENERATIONS_MAX: usize = 16;
const _: () = assert!(GENERATIONS_MAX.is_power_of_two() && GENERATIONS_MAX <= 128);

/// Names a generation of settings on one worker. With an era, the index of a listener, a route or a pool means
/// the same until its user has ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Era(u8);

impl Era {
    /// The number of the era, below 128.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// The era with this number.
    pub(crate) const fn of_number(number: u8) -> Self {
        Self(number)
    }

    /// The place in the table. Never out of range.
    const fn place(self) -> usize {
        self.0 as usize % GENERATIONS_MAX
    }
}

/// The settings of one worker.
pub(crate) struct Settings {
    /// By era. A place without a generation of its own holds the current one.
    snapshots: [Rc<Snapshot>; GENERATIONS_MAX],
    /// By era: the client connections and streams that use the generation.
    users: [u32; GENERATIONS_MAX],
    /// The generation that connections and requests which begin now use.
    current: Era,
}

impl Settings {
    /// The settings at the start of a worker.
    pub(crate) fn new(snapshot: Rc<Snapshot>) -> Self {
        let snapshots = core::array::from_fn(|_| Rc::clone(&snapshot));
        Self { snapshots, users: [0; GENERATIONS_MAX], current: Era(0) }
    }

    /// The current generation.
    pub(crate) fn era(&self) -> Era {
        self.current
    }

    /// The settings of the current generation.
    pub(crate) fn newest(&self) -> &Rc<Snapshot> {
        &self.snapshots[self.current.place()]
    }

    /// The settings of a generation.
    pub(crate) fn of(&self, era: Era) -> &Rc<Snapshot> {
        &self.snapshots[era.place()]
    }

    /// A connection or a stream begins to use the current generation.
    pub(crate) fn begin_use(&mut self) -> Era {
        self.users[self.current.place()] += 1;
        self.current
    }

    /// A connection or a stream has ended to use a generation.
    pub(crate) fn end_use(&mut self, era: Era) {
        let users = &mut self.users[era.place()];
        debug_assert!(*users > 0, "a user of {era:?} has ended twice");
        *users = users.saturating_sub(1);
    }

    /// The number of users of each era, for checks.
    pub(crate) fn users(&self) -> [u32; GENERATIONS_MAX] {
        self.users
    }

    /// Counts one user of `era` in `counts`, for checks.
    pub(crate) fn count_user(counts: &mut [u32; GENERATIONS_MAX], era: Era) {
        counts[era.place()] += 1;
    }
}
