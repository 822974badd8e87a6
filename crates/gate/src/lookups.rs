//! Lookups of names by DNS: those in progress, the servers that they query, and the results of earlier ones.
//! In: questions, answers, failures, the time. Out: queries for servers; results for all that wait.
//! Never: sends a datagram; asks a question again while it is in progress or its answer may be kept.
//! Limits: `LOOKUPS_MAX` lookups in progress, `ORIGIN_LOOKUPS_MAX` of one origin; `WAITING_MAX` that wait for results; `KEPT_MAX`
//! results, kept for `SECONDS_MAX` at most; `ATTEMPT_SPAN` for each answer, `ATTEMPTS_MAX` of them. A result has up to
//! `ANSWER_BYTES_MAX` bytes of an answer.
//! Invariant: each lookup in progress has a deadline, and each that waits gets one result.
//!
//! Servers are queried in the order of their list, which is the operator's preference, and not beginning with the server that
//! answered last: servers may know different names. A server that has not answered in time is queried last for `SILENT_SPAN`, so
//! that a dead first server delays one lookup in that time, and not every lookup.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_base::{Id, Moment, Slab, Span};
use tidegate_wire::dns::{Answer, Question, Record, decode_answer, encode_query};

/// Lookups in progress.
pub const LOOKUPS_MAX: usize = 256;
/// Lookups in progress of one origin, so that an origin with many dead names leaves room for the others.
pub const ORIGIN_LOOKUPS_MAX: usize = 128;
/// Callers that wait for results, over all lookups.
pub const WAITING_MAX: usize = 16 * 1024;
/// Results that are kept.
pub const KEPT_MAX: usize = 1024;
/// How long records are kept at most.
const SECONDS_MAX: u32 = 3600;
/// How long the result that a name or its records do not exist is kept at most.
const NOTHING_SECONDS_MAX: u32 = 300;
/// How long a server may take for an answer.
pub const ATTEMPT_SPAN: Span = Span::from_secs(2);
/// Queries for one lookup.
pub const ATTEMPTS_MAX: usize = 4;
/// How long a server that has not answered in time is queried after the others.
pub const SILENT_SPAN: Span = Span::from_secs(30);

/// Names a lookup in progress.
pub type LookupId<W> = Id<Lookup<W>>;

/// The result of a lookup.
pub type Found = Result<Arc<Records>, Fault>;

/// Records, and how long they may be kept.
#[derive(PartialEq, Eq, Debug)]
pub struct Records {
    /// The records, at least one.
    pub records: Vec<Record>,
    /// When they expire.
    pub until: Moment,
}

/// Why there are no records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The name does not exist.
    UnknownName,
    /// The name has no such records.
    NoRecords,
    /// The answer does not fit a datagram.
    Truncated,
    /// The servers could not answer.
    ServerFailed,
    /// No server has answered in time.
    Timeout,
    /// There is no server to query.
    NoServer,
    /// Too many lookups are in progress.
    TooMany,
    /// The process stops.
    Stopping,
}

impl Fault {
    /// The error for scripts.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::UnknownName => "the name does not exist",
            Self::NoRecords => "the name has no such records",
            Self::Truncated => "the answer does not fit a datagram",
            Self::ServerFailed => "the name servers cannot answer",
            Self::Timeout => "timeout",
            Self::NoServer => "there is no name server",
            Self::TooMany => "too many lookups are in progress",
            Self::Stopping => "the process is stopping",
        }
    }
}

/// A lookup in progress.
pub struct Lookup<W> {
    question: Question,
    origin: u32,
    /// The receivers of the result.
    waiting: Vec<W>,
    /// Queries so far.
    attempts: usize,
    /// The server of the first query; the others follow in turn.
    first: usize,
    /// The server of the present query.
    server: usize,
    /// The number of the present query.
    number: u16,
    /// When the present query fails.
    due: Moment,
    /// Why the attempts so far have failed.
    fault: Fault,
}

/// The next step for a question.
#[derive(Debug)]
pub enum Asked<W> {
    /// The result is known.
    Known(Found),
    /// The result arrives later: the question is in progress already.
    Joined,
    /// A lookup has begun: the caller sends its first query.
    Begun(LookupId<W>),
}

/// A query to send.
#[derive(Debug)]
pub struct Query {
    /// The server, by its place in the list of servers.
    pub server: usize,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// The next step of a lookup.
#[derive(Debug)]
pub enum Step<W> {
    /// It waits for the answer.
    Waits,
    /// The present query has failed: the caller sends the next one.
    Again,
    /// It has ended. All that wait get the result.
    Ended(Vec<W>, Found),
}

/// The lookups of a worker; see the module header.
pub struct Lookups<W> {
    running: Slab<Lookup<W>>,
    by_question: BTreeMap<Question, LookupId<W>>,
    /// Results, and when they expire.
    kept: BTreeMap<Question, (Moment, Found)>,
    waiting: usize,
    /// By server: until when it is queried after the others.
    silent_until: Vec<Moment>,
}

impl<W> Default for Lookups<W> {
    fn default() -> Self {
        Self {
            running: Slab::new(LOOKUPS_MAX),
            by_question: BTreeMap::new(),
            kept: BTreeMap::new(),
            waiting: 0,
            silent_until: Vec::new(),
        }
    }
}

impl<W> Lookups<W> {
    /// Lookups in progress.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether no lookup is in progress.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a lookup is in progress.
    #[must_use]
    pub fn contains(&self, id: LookupId<W>) -> bool {
        self.running.get(id).is_some()
    }

    /// Asks a question on behalf of `waiter`, unless the result is known.
    pub fn ask(&mut self, question: Question, origin: u32, waiter: W, now: Moment) -> Asked<W> {
        if let Some((until, found)) = self.kept.get(&question) {
            if *until > now {
                return Asked::Known(found.clone());
            }
            self.kept.remove(&question);
        }
        if self.waiting >= WAITING_MAX {
            return Asked::Known(Err(Fault::TooMany));
        }
        if let Some(id) = self.by_question.get(&question)
            && let Some(lookup) = self.running.get_mut(*id)
        {
            lookup.waiting.push(waiter);
            self.waiting += 1;
            return Asked::Joined;
        }
        let of_origin = self.running.iter().filter(|(_, lookup)| lookup.origin == origin).count();
        if of_origin >= ORIGIN_LOOKUPS_MAX {
            return Asked::Known(Err(Fault::TooMany));
        }
        let (attempts, number, due, fault) = (0, 0, now.after(ATTEMPT_SPAN), Fault::Timeout);
        let (waiting, first, server) = (vec![waiter], 0, 0);
        let question_asked = question.clone();
        let lookup = Lookup {
            question: question_asked,
            origin,
            waiting,
            attempts,
            first,
            server,
            number,
            due,
            fault,
        };
        let Ok(id) = self.running.insert(lookup) else {
            return Asked::Known(Err(Fault::TooMany));
        };
        self.waiting += 1;
        self.by_question.insert(question, id);
        Asked::Begun(id)
    }

    /// The next query of a lookup, for one of `servers` servers in turn. `number` must be random. `None` if all attempts were
    /// made, or there is no server: the caller ends the lookup (`end`). If the present query has failed by now, its server has
    /// not answered.
    pub fn next_query(
        &mut self,
        id: LookupId<W>,
        servers: usize,
        number: u16,
        now: Moment,
    ) -> Option<Query> {
        let lookup = self.running.get_mut(id)?;
        if servers == 0 {
            lookup.fault = Fault::NoServer;
            return None;
        }
        self.silent_until.resize(servers, Moment::ZERO);
        if lookup.attempts == 0 {
            lookup.first = first_to_query(&mut self.silent_until, now);
        } else if lookup.due <= now
            && let Some(until) = self.silent_until.get_mut(lookup.server)
        {
            *until = now.after(SILENT_SPAN);
        }
        // Each server is queried at least once if possible, and a lost datagram is sent again.
        if lookup.attempts >= (2 * servers).min(ATTEMPTS_MAX) {
            return None;
        }
        let server = (lookup.first + lookup.attempts) % servers;
        lookup.attempts += 1;
        (lookup.server, lookup.number, lookup.due) = (server, number, now.after(ATTEMPT_SPAN));
        let mut bytes = Vec::new();
        encode_query(&lookup.question, number, &mut bytes);
        Some(Query { server, bytes })
    }

    /// A datagram has arrived for a lookup.
    pub fn take_answer(&mut self, id: LookupId<W>, bytes: &[u8], now: Moment) -> Step<W> {
        let Some(lookup) = self.running.get_mut(id) else { return Step::Waits };
        let answer = match decode_answer(&lookup.question, lookup.number, bytes) {
            Ok(answer) => answer,
            Err(tidegate_wire::dns::Fault::Foreign) => return Step::Waits,
            Err(tidegate_wire::dns::Fault::Malformed) => Answer::Failed(0),
        };
        if let Some(until) = self.silent_until.get_mut(lookup.server) {
            *until = Moment::ZERO;
        }
        match answer {
            Answer::Records { records, seconds } => {
                let until = now.after(Span::from_secs(u64::from(seconds.min(SECONDS_MAX))));
                self.end_with(id, (Ok(Arc::new(Records { records, until })), until))
            }
            Answer::Nothing { is_unknown, seconds } => {
                let seconds = u64::from(seconds.min(NOTHING_SECONDS_MAX));
                let fault = if is_unknown { Fault::UnknownName } else { Fault::NoRecords };
                self.end_with(id, (Err(fault), now.after(Span::from_secs(seconds))))
            }
            Answer::Truncated => self.end_with(id, (Err(Fault::Truncated), now)),
            Answer::Failed(_) => {
                lookup.fault = Fault::ServerFailed;
                Step::Again
            }
        }
    }

    /// The present query of a lookup cannot reach its server: the caller sends the next one.
    pub fn note_unreachable(&mut self, id: LookupId<W>) {
        if let Some(lookup) = self.running.get_mut(id) {
            lookup.fault = Fault::ServerFailed;
        }
    }

    /// Ends a lookup without an answer.
    pub fn end(&mut self, id: LookupId<W>, now: Moment) -> Step<W> {
        let Some(lookup) = self.running.get(id) else { return Step::Waits };
        let fault = lookup.fault;
        self.end_with(id, (Err(fault), now))
    }

    /// Ends all lookups, because the process stops. Returns one after the other.
    pub fn end_next(&mut self, now: Moment) -> Option<(LookupId<W>, Step<W>)> {
        let id = self.running.iter().next().map(|(id, _)| id)?;
        Some((id, self.end_with(id, (Err(Fault::Stopping), now))))
    }

    /// A lookup whose present query has failed by now.
    #[must_use]
    pub fn next_late(&self, now: Moment) -> Option<LookupId<W>> {
        self.running.iter().find(|(_, lookup)| lookup.due <= now).map(|(id, _)| id)
    }

    /// When `next_late` has something to return; `NEVER` if no lookup is in progress.
    #[must_use]
    pub fn first_due(&self) -> Moment {
        let due = self.running.iter().map(|(_, lookup)| lookup.due);
        due.min().unwrap_or(Moment::NEVER)
    }

    /// Changes all that wait for results.
    pub fn change_waiting(&mut self, mut change: impl FnMut(&mut W)) {
        let ids: Vec<_> = self.running.iter().map(|(id, _)| id).collect();
        for id in ids {
            let lookup = self.running.get_mut(id);
            lookup.into_iter().flat_map(|lookup| &mut lookup.waiting).for_each(&mut change);
        }
    }

    fn end_with(&mut self, id: LookupId<W>, (found, until): (Found, Moment)) -> Step<W> {
        let Some(lookup) = self.running.remove(id) else { return Step::Waits };
        self.by_question.remove(&lookup.question);
        self.waiting -= lookup.waiting.len();
        let is_answer = matches!(found, Ok(_) | Err(Fault::UnknownName | Fault::NoRecords));
        if is_answer {
            self.keep(lookup.question, (until, found.clone()));
        }
        Step::Ended(lookup.waiting, found)
    }

    /// Keeps a result, in place of the result that expires first if there are too many.
    fn keep(&mut self, question: Question, entry: (Moment, Found)) {
        if self.kept.len() >= KEPT_MAX && !self.kept.contains_key(&question) {
            let first = self.kept.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(first) = first.map(|(question, _)| question.clone()) {
                self.kept.remove(&first);
            }
        }
        self.kept.insert(question, entry);
    }
}

/// The first server of the list that is not silent; the first one if all are. If the silence of a server has ended, one lookup
/// queries it again, and the other lookups wait for the result.
fn first_to_query(silent_until: &mut [Moment], now: Moment) -> usize {
    let Some(first) = silent_until.iter().position(|until| *until <= now) else { return 0 };
    if let Some(until) = silent_until.get_mut(first)
        && *until != Moment::ZERO
    {
        *until = now.after(ATTEMPT_SPAN);
    }
    first
}
