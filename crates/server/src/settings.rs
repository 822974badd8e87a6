//! The generations of settings that a worker uses: the current one, and earlier ones that requests still use.
//! In: snapshots; connections and streams that begin or end to use a generation. Out: the settings of each.
//! Never: takes a lock, or changes a snapshot. The counts are the worker's own.
//! Limits: `GENERATIONS_MAX` generations.
//! Invariant: `users` counts the client connections and the streams whose `era` names the generation. The settings
//! of a generation without users are freed, unless it is the current one.

use std::rc::Rc;

use tidegate_gate::forward::ResponseContext;
use tidegate_gate::respond::{AnswerContext, DATE_BYTES};

use crate::snapshot::Snapshot;

/// Maximum number of generations of settings that a worker uses at once.
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
    /// By era. A place without its own generation holds the current one.
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

    /// The properties of a response that is sent at `date`, other than its content.
    pub(crate) fn answer_context<'a>(
        &'a self,
        date: &'a [u8; DATE_BYTES],
        is_head: bool,
    ) -> AnswerContext<'a> {
        AnswerContext { date, server: &self.newest().config.server.server_name, is_head }
    }

    /// The properties of a response that is passed on at `date`.
    pub(crate) fn response_context<'a>(
        &'a self,
        date: &'a [u8; DATE_BYTES],
        request_is_head: bool,
    ) -> ResponseContext<'a> {
        let via = &self.newest().config.server.via;
        ResponseContext { date, via, request_is_head, cookie: "" }
    }

    /// The settings of a generation.
    pub(crate) fn of(&self, era: Era) -> &Rc<Snapshot> {
        &self.snapshots[era.place()]
    }

    /// Whether a connection, a stream or the worker itself uses these settings.
    pub(crate) fn holds(&self, settings: &Rc<Snapshot>) -> bool {
        Rc::ptr_eq(self.newest(), settings)
            || self.snapshots.iter().any(|own| Rc::ptr_eq(own, settings))
    }

    /// Whether another generation can begin.
    pub(crate) fn has_room(&self) -> bool {
        self.free_era().is_some()
    }

    /// An era without users that is not the current one.
    fn free_era(&self) -> Option<Era> {
        let eras = (0..GENERATIONS_MAX as u8).map(Era);
        eras.into_iter().find(|era| *era != self.current && self.users[era.place()] == 0)
    }

    /// The oldest generation with users, except the current one.
    pub(crate) fn oldest(&self) -> Era {
        let eras = (0..GENERATIONS_MAX as u8).map(Era).filter(|era| *era != self.current);
        let used = eras.filter(|era| self.users[era.place()] > 0);
        used.min_by_key(|era| self.of(*era).generation).unwrap_or(self.current)
    }

    /// Begins another generation. The settings of earlier ones without users are freed.
    pub(crate) fn replace(&mut self, snapshot: Rc<Snapshot>) {
        let Some(era) = self.free_era() else {
            debug_assert!(false, "the caller has made room");
            return;
        };
        self.current = era;
        self.snapshots[era.place()] = snapshot;
        self.free_unused();
    }

    /// Frees the settings of earlier generations that have no users.
    pub(crate) fn free_unused(&mut self) {
        let newest = Rc::clone(self.newest());
        for (snapshot, users) in self.snapshots.iter_mut().zip(self.users) {
            if users == 0 && !Rc::ptr_eq(snapshot, &newest) {
                *snapshot = Rc::clone(&newest);
            }
        }
    }

    /// How many earlier generations have users.
    pub(crate) fn earlier_in_use(&self) -> usize {
        let all = self.users.iter().enumerate();
        all.filter(|(at, users)| *at != self.current.place() && **users > 0).count()
    }

    /// A connection or a stream begins to use the current generation.
    pub(crate) fn begin_use(&mut self) -> Era {
        self.users[self.current.place()] += 1;
        self.current
    }

    /// A connection or a stream has stopped using a generation.
    pub(crate) fn end_use(&mut self, era: Era) {
        let users = &mut self.users[era.place()];
        debug_assert!(*users > 0, "a user of {era:?} has ended twice");
        *users = users.saturating_sub(1);
        if *users == 0 && era != self.current {
            self.snapshots[era.place()] = Rc::clone(self.newest());
        }
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
