//! Questions of the admin interface and of an upgrade to the workers, and the reports of the workers.
//! In: a question, mailed to the workers. Out: one report of each worker, made at the end of a turn or over several turns.
//! Never: makes a worker wait, or lets one examine all of its connections in one turn.
//! Limits: `INSPECTIONS_MAX` questions at once in a worker, of which one is continued in each turn, by `SLOTS_PER_TURN_MAX`
//! slots or `FOUND_PER_TURN_MAX` sessions (and the streams of one more connection). The thread that asks waits for
//! `REPORT_SPAN`; a question that it has withdrawn is dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_gate::eject::Ejection;
use tidegate_reactor::{Reactor, Sender};

use crate::figures::{AppFigures, HubFigures, PoolFigures};
use crate::malformed::Malformed;
use crate::sessions::{ConnectionId, Filter, Sessions};
use crate::start::Mail;
use crate::worker::Worker;

/// Questions that a worker has at once. There are fewer connections of the admin interface.
const INSPECTIONS_MAX: usize = 64;
/// How many slots of connections a worker examines in one turn: about 50 µs.
pub(crate) const SLOTS_PER_TURN_MAX: usize = 1024;
/// How many sessions a worker describes in one turn.
pub(crate) const FOUND_PER_TURN_MAX: usize = 64;
/// How long the thread that asks waits for the reports. A worker that is busy finishes a turn within a few milliseconds.
const REPORT_SPAN: Duration = Duration::from_secs(10);
/// How long the thread that asks waits before it tries a full mailbox again.
const TRY_PAUSE: Duration = Duration::from_millis(1);

/// An ejection by one worker, with the names of the pool and the server.
pub type NamedEjection = ((String, String), Ejection);

/// A request of the admin interface, or of an upgrade, to a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// The connections of clients and their exchanges that match a filter.
    Sessions(Filter),
    /// All that is known about one connection.
    Connection(ConnectionId),
    /// The end of a connection, or of one of its streams.
    End(ConnectionId),
    /// The end of all exchanges with a server, by the indexes of its pool and of the server in the pool.
    EndOfServer(u16, u16),
    /// The last malformed messages.
    Malformed,
    /// The figures of the pools.
    Pools,
    /// The servers that the worker avoids because their requests have failed.
    Ejections,
    /// The figures of the push hubs.
    Hubs,
    /// The figures of the Lua applications.
    Apps,
    /// The values of code, in the application of this name.
    Evaluate(String, Vec<u8>),
}

/// The report of a worker.
#[derive(Debug)]
pub enum Report {
    /// The connections that were found.
    Sessions(Sessions),
    /// Whether the connection was ended, and if not, why.
    Ended(Result<(), &'static str>),
    /// How many exchanges were ended.
    EndedOfServer(u64),
    /// The messages, the oldest first.
    Malformed(Vec<Arc<Malformed>>),
    /// By pool.
    Pools(Vec<PoolFigures>),
    /// The ejections, with the names of their pools and servers.
    Ejections(Vec<NamedEjection>),
    /// By push hub.
    Hubs(Vec<HubFigures>),
    /// By Lua application, then the VMs of earlier code.
    Apps(Vec<AppFigures>),
    /// The values of the code as text, or what has failed.
    Evaluated(Result<String, String>),
}

/// A question on its way.
#[derive(Debug)]
pub struct Inspection {
    /// The question.
    pub(crate) question: Question,
    /// The requesting thread has stopped waiting.
    is_withdrawn: AtomicBool,
    /// The way of the reports. It has room for one of each worker.
    reports: SyncSender<(usize, Report)>,
}

impl Inspection {
    /// A question to `workers` workers, and where their reports arrive.
    #[must_use]
    pub fn new(question: Question, workers: usize) -> (Arc<Self>, Receiver<(usize, Report)>) {
        let (reports, results) = mpsc::sync_channel(workers.max(1));
        let inspection = Self { question, is_withdrawn: AtomicBool::new(false), reports };
        (Arc::new(inspection), results)
    }
}

/// The reports of the workers.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// By worker, ascending.
    pub(crate) reports: Vec<(usize, Report)>,
    /// The workers that have not reported in time.
    pub(crate) missing: Vec<usize>,
}

/// Sends the question to the workers `asked`, and waits for their reports.
pub(crate) fn ask(workers: &[Sender<Mail>], asked: &[usize], question: Question) -> Reports {
    let (inspection, results) = Inspection::new(question, asked.len());
    let deadline = Instant::now() + REPORT_SPAN;
    for worker in asked.iter().filter_map(|at| workers.get(*at)) {
        while worker.send(Mail::Inspect(Arc::clone(&inspection))).is_err()
            && Instant::now() < deadline
        {
            thread::sleep(TRY_PAUSE);
        }
    }
    let mut reports = Vec::with_capacity(asked.len());
    while reports.len() < asked.len() {
        match results.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(report) => reports.push(report),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    inspection.is_withdrawn.store(true, Ordering::Relaxed);
    reports.sort_by_key(|(worker, _)| *worker);
    let has_reported = |at: &usize| reports.iter().any(|(worker, _)| worker == at);
    let missing = asked.iter().copied().filter(|at| !has_reported(at)).collect();
    Reports { reports, missing }
}

/// The questions that a worker has not answered yet.
#[derive(Default)]
pub(crate) struct Inspections {
    waiting: VecDeque<Walk>,
}

/// A question, and the worker's progress with it.
pub(crate) struct Walk {
    inspection: Arc<Inspection>,
    /// The next slot to examine.
    pub(crate) slot: usize,
    /// The results so far.
    pub(crate) found: Sessions,
    /// How many exchanges were ended so far.
    pub(crate) ended: u64,
}

impl Inspections {
    /// Whether the worker has a question to answer.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Worker {
    /// Takes a question, which the ends of the next turns answer. Without room for it, no report is made.
    pub fn begin_inspection(&mut self, inspection: Arc<Inspection>) {
        if self.inspections.waiting.len() < INSPECTIONS_MAX {
            let walk = Walk { inspection, slot: 0, found: Sessions::default(), ended: 0 };
            self.inspections.waiting.push_back(walk);
        }
    }

    /// Continues the question whose turn it is.
    pub(crate) fn inspect<R: Reactor>(&mut self, reactor: &mut R) {
        let Some(mut walk) = self.inspections.waiting.pop_front() else { return };
        if walk.inspection.is_withdrawn.load(Ordering::Relaxed) {
            return;
        }
        let inspection = Arc::clone(&walk.inspection);
        let report = match &inspection.question {
            Question::Sessions(filter) => match self.list_sessions(reactor, filter, &mut walk) {
                true => Report::Sessions(core::mem::take(&mut walk.found)),
                false => return self.inspections.waiting.push_back(walk),
            },
            Question::Connection(id) => Report::Sessions(self.look_up_connection(reactor, *id)),
            Question::Pools => Report::Pools(self.pool_figures()),
            Question::Ejections => Report::Ejections(self.ejections(reactor.now())),
            Question::Hubs => Report::Hubs(self.push.figures()),
            Question::Apps => Report::Apps(self.lua.apps.figures()),
            Question::Evaluate(app, code) => Report::Evaluated(self.evaluate(reactor, app, code)),
            Question::Malformed => Report::Malformed(self.malformed.all()),
            Question::End(id) => Report::Ended(self.end_connection(reactor, *id)),
            Question::EndOfServer(pool, server) => {
                match self.end_exchanges_of(reactor, (*pool, *server), &mut walk) {
                    true => Report::EndedOfServer(walk.ended),
                    false => return self.inspections.waiting.push_back(walk),
                }
            }
        };
        // There is room for it, unless the thread that asked has ended.
        let _ = inspection.reports.try_send((self.place_among_workers().0, report));
    }
}
