//! Coroutines that wait, and the functions that a script runs later (*jobs*: timers and threads).
//! In: what a coroutine waits for, the time. Out: the coroutines and jobs that are ready, in order.
//! Never: runs code; reads a clock.
//! Limits: `TASKS_MAX` waiting coroutines; the `timers-max` of the application for jobs.
//! Invariant: a task and a job are taken from `ready` at most once for each time they were put there; the id of a task or job
//! that has ended or was cancelled matches nothing.

use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tidegate_base::{Id, Moment, Slab, Span};

use crate::datagrams::DatagramSocketId;
use crate::engine::Coroutine;
use crate::events::HubEventId;
use crate::frames::TunnelId;
use crate::hellos::TlsHelloId;
use crate::host::{ClientId, ScriptRequestId};
use crate::operations::OperationId;
use crate::sockets::SocketId;

/// Maximum number of coroutines that wait at once.
const TASKS_MAX: usize = 1 << 20;
/// The shortest interval of a repeated job: a shorter one would keep the worker busy.
const INTERVAL_MIN: Span = Span::from_millis(1);
/// `due` is rebuilt when more than half of its entries and this number are stale.
const STALE_MAX: usize = 64;

/// Names a coroutine that waits.
pub(crate) type TaskId = Id<Task>;
/// Names a job.
pub(crate) type JobId = Id<Job>;

/// The owner of the handler that a coroutine runs. The owner learns how the coroutine ends; the end of the owner cancels the coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// `on_request` of this exchange.
    Request(ScriptRequestId),
    /// A handler of this client.
    Client(ClientId),
    /// A job.
    Job(JobId),
    /// A broadcast of a layer. A VM delivers one broadcast at a time.
    Broadcast,
    /// `on_log` of a request that has ended, or `on_frame_end` of a tunnel.
    Log,
    /// `on_push` for this event.
    Event(HubEventId),
    /// `on_frame` of this tunnel.
    Tunnel(TunnelId),
    /// `on_certificate` for this handshake.
    Hello(TlsHelloId),
    /// The application: `on_start`, `on_close`, and handlers that continue after their response.
    Application,
}

/// What a coroutine waits for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Wait {
    /// The coroutine yielded without an operation.
    Nothing,
    /// Nothing: it never continues, and has done its work.
    End,
    /// A time.
    Until(Moment),
    /// The end of a job, up to this time.
    Job(JobId, Moment),
    /// Until the client of this exchange has read what was sent.
    Drain(ScriptRequestId),
    /// More of the body of a server's response.
    Body(ScriptRequestId),
    /// The result of this operation.
    Operation(OperationId),
    /// Input of this socket, or else its connect or room for output; up to this time.
    Socket(SocketId, bool, Moment),
    /// A datagram of this socket, or its opening; up to this time.
    Datagram(DatagramSocketId, Moment),
    /// A value of the queue with this number; up to this time.
    Queue(usize, Moment),
}

/// Why a task continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    /// The event that it waited for has happened.
    Done,
    /// The time that it waited for has come.
    Slept,
    /// The time has passed before the event.
    Due,
    /// The response that it waited for has ended.
    Ended,
    /// A VM with newer code replaces its VM.
    Premature,
    /// It has waited for too long, and never continues.
    Overdue,
}

/// A coroutine that waits.
pub(crate) struct Task {
    /// The coroutine.
    pub(crate) coroutine: Coroutine,
    /// The owner of the handler that it runs.
    pub(crate) owner: Owner,
    /// The handler, for messages.
    pub(crate) what: &'static str,
    /// The latest time at which it continues.
    due: Moment,
    /// The reason to continue at `due`.
    at_due: Wake,
    /// It is in `ready`.
    is_ready: bool,
    /// The operation that it waits for; `Id::NONE` if it waits for something else.
    pub(crate) operation: OperationId,
    /// The number of the run of a handler or job that it continues.
    pub(crate) run: u64,
}

/// A function that a script runs later.
pub(crate) struct Job {
    /// When it runs next; `NEVER` while it is in `ready`, runs or waits.
    due: Moment,
    /// When it was due last.
    last: Moment,
    /// The time between two runs; `None` if it runs once.
    interval: Option<Span>,
    /// It runs before its time, rather than never, if the VM ends.
    is_owed: bool,
    /// The coroutine that runs it and waits; `Id::NONE` if it does not wait.
    task: TaskId,
    /// The tasks that wait for its end. Some may be stale.
    waiters: Vec<TaskId>,
}

/// A task or a job that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    Task(TaskId, Wake),
    Job(JobId),
}

/// An entry of `due`, by time and then by order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    /// The time.
    at: Moment,
    /// The number of the entry, so that entries of the same time keep their order.
    order: u64,
    /// Whether it is the entry of a job or of a task.
    is_job: bool,
    /// The index of the job or task.
    index: u32,
    /// The generation of the job or task.
    generation: u32,
}

/// What happens to a job whose function has returned or failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobEnd {
    /// It runs again.
    Repeats,
    /// It is over.
    Over,
}

/// How a job was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cancelled {
    /// It is gone.
    Gone,
    /// It runs at present, and is over when it returns.
    Later,
    /// It had ended before.
    Never,
}

/// The waiting coroutines and the jobs of one VM; see the module header.
pub(crate) struct Schedule {
    /// The coroutines that wait.
    tasks: Slab<Task>,
    /// The timers and threads.
    jobs: Slab<Job>,
    /// The tasks and jobs that can run now, in order.
    ready: VecDeque<Ready>,
    /// Times of tasks and jobs. An entry whose time is no longer that of its task or job is stale.
    due: BinaryHeap<Reverse<Due>>,
    /// The number of the next entry of `due`.
    order: u64,
    /// Coroutines of cancelled tasks, which the engine has to forget, and the numbers of their runs.
    dropped: Vec<(Coroutine, u64)>,
    /// The operations of cancelled tasks.
    abandoned: Vec<OperationId>,
    /// The job that runs at present.
    pub(crate) running: JobId,
    /// The number of the run of a handler or job at present, and of the newest run.
    pub(crate) run: u64,
    runs: u64,
    /// Waits and jobs that were refused because there were too many.
    pub(crate) refusals: u64,
}

impl Schedule {
    pub(crate) fn new(jobs_max: usize) -> Self {
        Self {
            tasks: Slab::new(TASKS_MAX),
            jobs: Slab::new(jobs_max),
            ready: VecDeque::new(),
            due: BinaryHeap::new(),
            order: 0,
            dropped: Vec::new(),
            abandoned: Vec::new(),
            running: Id::NONE,
            run: 0,
            runs: 0,
            refusals: 0,
        }
    }

    /// A run of a handler or a job begins.
    pub(crate) fn begin_run(&mut self) {
        self.runs += 1;
        self.run = self.runs;
    }

    /// The number of timers and threads.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Whether a coroutine waits.
    pub(crate) fn has_task(&self, id: TaskId) -> bool {
        self.tasks.get(id).is_some()
    }

    /// Whether a coroutine waits and nothing has woken it.
    pub(crate) fn is_asleep(&self, id: TaskId) -> bool {
        self.tasks.get(id).is_some_and(|task| !task.is_ready)
    }

    /// Whether one more coroutine may wait.
    pub(crate) fn has_room(&mut self) -> bool {
        let has_room = self.tasks.len() < TASKS_MAX;
        self.refusals += u64::from(!has_room);
        has_room
    }

    /// Keeps a coroutine until it is woken, at the latest at `due`.
    pub(crate) fn suspend(
        &mut self,
        coroutine: Coroutine,
        (owner, what): (Owner, &'static str),
        (due, at_due): (Moment, Wake),
    ) -> Option<TaskId> {
        let (is_ready, operation, run) = (false, Id::NONE, self.run);
        let task = Task { coroutine, owner, what, due, at_due, is_ready, operation, run };
        let id = match self.tasks.insert(task) {
            Ok(id) => id,
            Err(task) => {
                self.dropped.push((task.coroutine, task.run));
                return None;
            }
        };
        if let Owner::Job(job) = owner
            && let Some(job) = self.jobs.get_mut(job)
        {
            job.task = id;
        }
        self.push_due(due, false, (id.index, id.generation));
        Some(id)
    }

    /// Makes `task` wait for the end of `job`. Returns false if the job has ended.
    pub(crate) fn await_job(&mut self, task: TaskId, job: JobId) -> bool {
        let Self { tasks, jobs, .. } = self;
        let Some(job) = jobs.get_mut(job) else { return false };
        add_waiter(tasks, &mut job.waiters, task);
        true
    }

    /// Adds a task to a list of waiting tasks, and may remove tasks that do not wait any more.
    pub(crate) fn add_waiter(&self, waiters: &mut Vec<TaskId>, task: TaskId) {
        add_waiter(&self.tasks, waiters, task);
    }

    /// Lets a task continue. Does nothing if the task is gone or continues already.
    pub(crate) fn wake(&mut self, id: TaskId, wake: Wake) {
        if let Some(task) = self.tasks.get_mut(id)
            && !core::mem::replace(&mut task.is_ready, true)
        {
            task.due = Moment::NEVER;
            self.ready.push_back(Ready::Task(id, wake));
        }
    }

    /// Cancels a task: its coroutine never continues.
    pub(crate) fn cancel(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.remove(id) {
            self.dropped.push((task.coroutine, task.run));
            if !task.operation.is_none() {
                self.abandoned.push(task.operation);
            }
        }
    }

    /// A task waits for an operation.
    pub(crate) fn set_operation(&mut self, id: TaskId, operation: OperationId) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.operation = operation;
        }
    }

    /// Takes an operation whose task was cancelled.
    pub(crate) fn take_abandoned(&mut self) -> Option<OperationId> {
        self.abandoned.pop()
    }

    /// Makes the application the owner of a task.
    pub(crate) fn detach(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.owner = Owner::Application;
        }
    }

    /// Adds a job that runs after `delay`, or with each `interval`. `None` if there are too many.
    pub(crate) fn add_job(
        &mut self,
        now: Moment,
        delay: Span,
        interval: Option<Span>,
        is_owed: bool,
    ) -> Option<JobId> {
        let due = now.after(delay);
        let interval = interval.map(|interval| interval.max(INTERVAL_MIN));
        let job = Job { due, last: due, interval, is_owed, task: Id::NONE, waiters: Vec::new() };
        let Ok(id) = self.jobs.insert(job) else {
            self.refusals += 1;
            return None;
        };
        match delay.is_zero() {
            true => self.make_job_ready(id),
            false => self.push_due(due, true, (id.index, id.generation)),
        }
        Some(id)
    }

    fn make_job_ready(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.last = core::mem::replace(&mut job.due, Moment::NEVER);
            self.ready.push_back(Ready::Job(id));
        }
    }

    /// Whether a job exists.
    pub(crate) fn has_job(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some()
    }

    /// Whether this run of a job is its last one.
    pub(crate) fn is_last_run(&self, id: JobId) -> bool {
        self.jobs.get(id).is_none_or(|job| job.interval.is_none())
    }

    /// Cancels a job, and the coroutine that runs it if it waits.
    pub(crate) fn cancel_job(&mut self, id: JobId) -> Cancelled {
        let Some(job) = self.jobs.get_mut(id) else { return Cancelled::Never };
        if self.running == id {
            job.interval = None;
            return Cancelled::Later;
        }
        if let Some(job) = self.jobs.remove(id) {
            self.cancel(job.task);
            self.wake_all(&job.waiters, Wake::Done);
        }
        Cancelled::Gone
    }

    /// The function of a job has returned, or has failed.
    pub(crate) fn finish_job(&mut self, id: JobId, now: Moment) -> JobEnd {
        let Some(job) = self.jobs.get_mut(id) else { return JobEnd::Repeats };
        job.task = Id::NONE;
        if let Some(interval) = job.interval {
            job.due = job.last.after(interval).max(now);
            let due = job.due;
            self.push_due(due, true, (id.index, id.generation));
            return JobEnd::Repeats;
        }
        if let Some(job) = self.jobs.remove(id) {
            self.wake_all(&job.waiters, Wake::Done);
        }
        JobEnd::Over
    }

    /// Lets tasks continue.
    pub(crate) fn wake_all(&mut self, waiters: &[TaskId], wake: Wake) {
        for id in waiters {
            self.wake(*id, wake);
        }
    }

    fn push_due(&mut self, at: Moment, is_job: bool, (index, generation): (u32, u32)) {
        if at == Moment::NEVER {
            return;
        }
        if self.due.len() > 2 * (self.tasks.len() + self.jobs.len()) + STALE_MAX {
            let due = core::mem::take(&mut self.due);
            self.due = due.into_iter().filter(|Reverse(due)| self.is_current(due)).collect();
        }
        self.order += 1;
        self.due.push(Reverse(Due { at, order: self.order, is_job, index, generation }));
    }

    fn is_current(&self, due: &Due) -> bool {
        let at = match due.is_job {
            true => self.jobs.get(Id::new(due.index, due.generation)).map(|job| job.due),
            false => self.tasks.get(Id::new(due.index, due.generation)).map(|task| task.due),
        };
        at == Some(due.at)
    }

    /// When `collect` has something to do next.
    pub(crate) fn next_due(&mut self) -> Option<Moment> {
        while let Some(Reverse(due)) = self.due.peek() {
            if self.is_current(due) {
                return Some(due.at);
            }
            self.due.pop();
        }
        None
    }

    /// Makes ready every task and job whose time has come.
    pub(crate) fn collect(&mut self, now: Moment) {
        while let Some(at) = self.next_due()
            && at <= now
            && let Some(Reverse(due)) = self.due.pop()
        {
            match due.is_job {
                true => self.make_job_ready(Id::new(due.index, due.generation)),
                false => {
                    let id = Id::new(due.index, due.generation);
                    let at_due = self.tasks.get(id).map_or(Wake::Due, |task| task.at_due);
                    self.wake(id, at_due);
                }
            }
        }
    }

    /// Whether a task or job may run now. It may have been cancelled since it became ready.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The owner of the task that runs next; `None` if a job runs next, or nothing is ready.
    pub(crate) fn next_owner(&self) -> Option<Owner> {
        match self.ready.front()? {
            Ready::Task(id, _) => Some(self.tasks.get(*id)?.owner),
            Ready::Job(_) => None,
        }
    }

    /// Takes the task or job that runs next.
    pub(crate) fn take_ready(&mut self) -> Option<Ready> {
        self.ready.pop_front()
    }

    /// Takes a task that runs now.
    pub(crate) fn take_task(&mut self, id: TaskId) -> Option<Task> {
        let task = self.tasks.remove(id)?;
        if let Owner::Job(job) = task.owner
            && let Some(job) = self.jobs.get_mut(job)
        {
            job.task = Id::NONE;
        }
        Some(task)
    }

    /// Takes a coroutine that the engine has to forget, and the number of its run, which has ended.
    pub(crate) fn take_dropped(&mut self) -> Option<(Coroutine, u64)> {
        self.dropped.pop()
    }

    /// A VM with newer code replaces this one, which ends at `by`: drops the jobs that would run again or after `by`, and
    /// continues the tasks that wait for a time or for a job.
    pub(crate) fn retire(&mut self, by: Moment) {
        self.call_owed();
        let jobs: Vec<JobId> = self.jobs.iter().map(|(id, _)| id).collect();
        for id in jobs {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            let repeats = job.interval.take().is_some();
            let is_waiting = job.due != Moment::NEVER;
            if is_waiting
                && (repeats || job.due > by)
                && let Some(job) = self.jobs.remove(id)
            {
                self.wake_all(&job.waiters, Wake::Done);
            }
        }
        let is_own = |task: &Task| match task.owner {
            Owner::Job(_) | Owner::Broadcast | Owner::Log | Owner::Application => true,
            Owner::Request(_)
            | Owner::Client(_)
            | Owner::Event(_)
            | Owner::Tunnel(_)
            | Owner::Hello(_) => false,
        };
        let waits = self.tasks.iter().filter(|(_, task)| is_own(task) && task.operation.is_none());
        let waits: Vec<TaskId> = waits.map(|(id, _)| id).collect();
        self.wake_all(&waits, Wake::Premature);
    }

    /// Makes the jobs ready that run before their time.
    pub(crate) fn call_owed(&mut self) {
        let is_waiting = |job: &Job| job.is_owed && job.due != Moment::NEVER;
        let owed = self.jobs.iter().filter(|(_, job)| is_waiting(job));
        let owed: Vec<JobId> = owed.map(|(id, _)| id).collect();
        for id in owed {
            if let Some(job) = self.jobs.get_mut(id) {
                job.interval = None;
            }
            self.make_job_ready(id);
        }
    }

    /// The jobs that are ready and that run before their time, rather than never.
    pub(crate) fn pending_jobs(&self) -> Vec<JobId> {
        let ready = self.ready.iter().filter_map(|ready| match ready {
            Ready::Job(id) => Some(*id),
            Ready::Task(..) => None,
        });
        ready.filter(|id| self.jobs.get(*id).is_some_and(|job| job.is_owed)).collect()
    }

    /// Whether nothing waits or is going to run.
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.jobs.is_empty() && self.ready.is_empty()
    }

    /// Cancels everything.
    pub(crate) fn clear(&mut self) {
        let tasks: Vec<TaskId> = self.tasks.iter().map(|(id, _)| id).collect();
        for id in tasks {
            self.cancel(id);
        }
        let jobs: Vec<JobId> = self.jobs.iter().map(|(id, _)| id).collect();
        for id in jobs {
            self.jobs.remove(id);
        }
        self.ready.clear();
        self.due.clear();
    }

    /// The coroutines that wait on behalf of a request, a client, an event, a tunnel or a handshake.
    pub(crate) fn owned(&self) -> usize {
        let is_owned = |task: &Task| {
            matches!(
                task.owner,
                Owner::Request(_)
                    | Owner::Client(_)
                    | Owner::Event(_)
                    | Owner::Tunnel(_)
                    | Owner::Hello(_)
            )
        };
        self.tasks.iter().filter(|(_, task)| is_owned(task)).count()
    }
}

fn add_waiter(tasks: &Slab<Task>, waiters: &mut Vec<TaskId>, task: TaskId) {
    if waiters.len() == waiters.capacity() {
        waiters.retain(|id| tasks.get(*id).is_some());
    }
    waiters.push(task);
}

/// The span of a number of seconds from a script. Zero for a negative number or NaN.
pub(crate) fn span_of(seconds: f64) -> Span {
    const SECONDS_MAX: f64 = 1e9;
    Span::from_secs_f64(if seconds > 0.0 { seconds.min(SECONDS_MAX) } else { 0.0 })
}
