//! Bodies whose bandwidth is limited (`bandwidth` of a route): how much each may transfer, and when waiting ones continue.
//! In: limits of routes, the time, bytes that were transferred. Out: how many further bytes are allowed; the bodies that
//! may continue.
//! Never: holds anything for a request without such a limit.
//! Limits: up to two turns for each request, one for each direction.
//! Invariant: a body has a turn exactly while it waits, and gives it back when its request ends.

use std::collections::BTreeMap;

use tidegate_base::Moment;
use tidegate_config::model::Bandwidth;
use tidegate_gate::allowance::Allowance;

use crate::action::Running;

/// Which body of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BodyDirection {
    /// The body of the response.
    Down,
    /// The body of the request.
    Up,
}

/// When a waiting body may continue, and its number among all that have waited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Turn(Moment, u64);

/// The bodies of a worker that wait until their bandwidth admits more.
#[derive(Default)]
pub(crate) struct Paces {
    /// The action of each waiting body, and which of its bodies it is.
    turns: BTreeMap<Turn, (Running, BodyDirection)>,
    /// The number of the next turn.
    next: u64,
}

impl Paces {
    /// How many bodies wait.
    pub(crate) fn len(&self) -> usize {
        self.turns.len()
    }

    /// When the first body continues; `NEVER` if no body waits.
    pub(crate) fn next_at(&self) -> Moment {
        self.turns.first_key_value().map_or(Moment::NEVER, |(turn, _)| turn.0)
    }

    /// Takes a body whose turn has come by `now`. The caller clears its turn (`Pace::end_turn`).
    pub(crate) fn take_due(&mut self, now: Moment) -> Option<(Running, BodyDirection)> {
        let first = self.turns.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// The request has ended.
    pub(crate) fn forget(&mut self, pace: Option<Box<Pace>>) {
        let Some(pace) = pace else { return };
        for turn in [pace.down, pace.up].into_iter().flatten().filter_map(|limit| limit.turn) {
            self.turns.remove(&turn);
        }
    }

    fn add(&mut self, at: Moment, body: (Running, BodyDirection)) -> Turn {
        let turn = Turn(at, self.next);
        self.next += 1;
        self.turns.insert(turn, body);
        turn
    }
}

/// The limits of one request.
pub(crate) struct Pace {
    /// That of the response body.
    down: Option<Limit>,
    /// That of the request body.
    up: Option<Limit>,
}

/// The limit of one body.
struct Limit {
    /// The bytes that may be transferred.
    allowance: Allowance,
    /// The body's turn, while it waits.
    turn: Option<Turn>,
}

impl Pace {
    /// The limits of a request that begins.
    pub(crate) fn new(bandwidth: &Bandwidth) -> Self {
        let limit = |rate, free| Limit { allowance: Allowance::new(rate, free), turn: None };
        Self {
            down: bandwidth.down.map(|rate| limit(rate, bandwidth.after)),
            up: bandwidth.up.map(|rate| limit(rate, 0)),
        }
    }

    /// How many bytes of the response body may be sent at once when it begins.
    pub(crate) fn first_room(&self) -> u64 {
        let room = |limit: &Limit| limit.allowance.clone().room(Moment::ZERO);
        self.down.as_ref().map_or(u64::MAX, room)
    }

    fn limit(&mut self, way: BodyDirection) -> Option<&mut Limit> {
        match way {
            BodyDirection::Down => self.down.as_mut(),
            BodyDirection::Up => self.up.as_mut(),
        }
    }

    /// How many bytes of the body may be transferred now. If none, the body waits for its turn from now on.
    pub(crate) fn room(
        &mut self,
        (running, way): (Running, BodyDirection),
        now: Moment,
        paces: &mut Paces,
    ) -> u64 {
        let Some(limit) = self.limit(way) else { return u64::MAX };
        if limit.turn.is_some() {
            return 0;
        }
        let room = limit.allowance.room(now);
        if room == 0 {
            limit.turn = Some(paces.add(limit.allowance.next_at(), (running, way)));
        }
        room
    }

    /// Notes that bytes of the body were transferred.
    pub(crate) fn spend(&mut self, way: BodyDirection, now: Moment, bytes: usize) {
        if let Some(limit) = self.limit(way) {
            limit.allowance.spend(now, bytes as u64);
        }
    }

    /// The turn of the body has come.
    pub(crate) fn end_turn(&mut self, way: BodyDirection) {
        if let Some(limit) = self.limit(way) {
            limit.turn = None;
        }
    }

    /// Whether the body waits for its turn.
    pub(crate) fn waits(&self, way: BodyDirection) -> bool {
        let limit = match way {
            BodyDirection::Down => &self.down,
            BodyDirection::Up => &self.up,
        };
        limit.as_ref().is_some_and(|limit| limit.turn.is_some())
    }
}
