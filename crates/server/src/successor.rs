//! Replaces the process by a new one without refusing a connection: starts the program again, with the arguments of this
//! process and the same listening sockets.
//! In: SIGUSR2, the listeners of all workers. Out: a process that serves; then SIGTERM to this one, so that it completes
//! what is in progress.
//! Never: stops before the new process has reported that it serves: if it ends or is late, this one serves on. Closes a
//! listening socket for good: connections in its queue are accepted by the new process.
//! Limits: one successor at a time; `PASS_WAIT_MS` for each worker to pass its listeners; `START_SPAN` for the start.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, getpid, kill_process};
use tidegate_reactor::Sender;
use tidegate_reactor::inherited::{HANDOVER, ListenerPost, PassedListener, set_inheritable};

use crate::admin::LeaveSignal;
use crate::log;
use crate::service_manager;
use crate::start::Mail;
use crate::threads::{self, Ended};

/// How long a worker may take to pass its listeners.
const PASS_WAIT_MS: u32 = 10_000;
/// How long a worker's full mailbox is tried.
const MAIL_TRIES_MAX: u32 = 10_000;
const MAIL_PAUSE: Duration = Duration::from_millis(1);
/// How long the new process may take to start.
const START_SPAN: Duration = Duration::from_secs(60);

/// See above.
pub(crate) struct Successor {
    /// The ways to the workers.
    workers: Vec<Sender<Mail>>,
    /// The way of their listeners.
    post: ListenerPost,
    /// The socket of the admin interface, and how its thread is told to leave it to the new process.
    admin: Option<(OwnedFd, LeaveSignal)>,
    /// A new process is being started.
    is_starting: AtomicBool,
    /// A new process serves.
    serves: AtomicBool,
    /// The new process, while this one still runs.
    child: Mutex<Option<Child>>,
}

impl Successor {
    /// No process has been started.
    pub(crate) fn new(
        workers: Vec<Sender<Mail>>,
        post: ListenerPost,
        admin: Option<(OwnedFd, LeaveSignal)>,
    ) -> Self {
        let (is_starting, serves) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { workers, post, admin, is_starting, serves, child: Mutex::default() }
    }

    /// Whether a new process serves, so that this one leaves everything to it.
    pub(crate) fn serves(&self) -> bool {
        self.serves.load(Ordering::SeqCst)
    }

    /// Starts a new process on a thread of its own.
    pub(crate) fn begin(self: &Arc<Self>) {
        if self.is_starting.swap(true, Ordering::SeqCst) {
            log::warning(format_args!("upgrade: a new process is being started already"));
            return;
        }
        let successor = Arc::clone(self);
        let work = move || {
            match successor.start() {
                Ok(process) => successor.leave(process),
                Err(reason) => {
                    log::error(format_args!("upgrade failed; the old process serves: {reason}"));
                    successor.is_starting.store(false, Ordering::SeqCst);
                }
            }
            Ended::AsPlanned
        };
        if let Err(error) = threads::spawn("upgrade", work) {
            log::error(format_args!("upgrade failed; the old process serves: {error}"));
            self.is_starting.store(false, Ordering::SeqCst);
        }
    }

    /// The new process serves: this one stops.
    fn leave(&self, process: u32) {
        log::info(format_args!(
            "upgrade: process {process} serves; this process completes what is in progress"
        ));
        service_manager::main_process(process);
        self.serves.store(true, Ordering::SeqCst);
        if let Some((_, doorbell)) = &self.admin {
            doorbell.ring();
        }
        if let Err(error) = kill_process(getpid(), Signal::TERM) {
            log::error(format_args!("upgrade: this process cannot stop itself: {error}"));
        }
    }

    /// Starts the new process, and waits until it serves. Returns its number.
    fn start(&self) -> Result<u32, String> {
        let listeners = self.collect()?;
        let (waiting, report) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| error.to_string())?;
        let admin = self.admin.as_ref().map(|(socket, _)| socket);
        let sockets: Vec<&OwnedFd> =
            listeners.iter().map(|passed| &passed.socket).chain(admin).collect();
        let result = self.spawn(&report, &sockets);
        if let Some(admin) = admin {
            let _ = set_inheritable(admin, false);
        }
        let mut child = result?;
        drop(report);
        log::info(format_args!("upgrade: process {} starts", child.id()));
        match wait_for_report(&waiting) {
            Ok(()) => {
                let process = child.id();
                *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
                Ok(process)
            }
            Err(reason) => {
                let _ = child.kill();
                let status = child.wait().map(|status| status.to_string()).unwrap_or_default();
                Err(format!("{reason} ({status})"))
            }
        }
    }

    fn spawn(&self, report: &OwnedFd, sockets: &[&OwnedFd]) -> Result<Child, String> {
        let text = |error: std::io::Error| error.to_string();
        set_inheritable(report, true).map_err(text)?;
        for socket in sockets {
            set_inheritable(socket, true).map_err(text)?;
        }
        let numbers: Vec<String> =
            sockets.iter().map(|socket| socket.as_raw_fd().to_string()).collect();
        let named = format!("{}:{}:{}", std::process::id(), report.as_raw_fd(), numbers.join(","));
        let mut arguments = std::env::args_os();
        // Not /proc/self/exe: the file of that may have been replaced by a new one.
        let program = arguments.next().unwrap_or_else(|| "tidegate".into());
        Command::new(&program)
            .args(arguments)
            .env(HANDOVER, named)
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDNAMES")
            .env_remove("WATCHDOG_PID")
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", program.display()))
    }

    /// The listeners of all workers, each socket once, in the order of the workers.
    fn collect(&self) -> Result<Vec<PassedListener>, String> {
        // Messages of an attempt that failed halfway.
        while self.post.receive(0).is_ok() {}
        for worker in &self.workers {
            let mut tries = 0;
            while worker.send(Mail::PassListeners(self.post.entrance())).is_err() {
                tries += 1;
                if tries > MAIL_TRIES_MAX {
                    return Err("the mailbox of a worker is full".to_owned());
                }
                thread::sleep(MAIL_PAUSE);
            }
        }
        let (mut listeners, mut complete) = (Vec::new(), 0);
        while complete < self.workers.len() {
            let received = self.post.receive(PASS_WAIT_MS);
            let (some, is_last) = received
                .map_err(|error| format!("a worker did not pass its listeners: {error}"))?;
            listeners.extend(some);
            complete += usize::from(is_last);
        }
        listeners.sort_by_key(|passed| passed.worker);
        // All workers have copies of a listener on a path.
        let mut known = BTreeSet::new();
        listeners.retain(|passed| {
            rustix::fs::fstat(&passed.socket).is_ok_and(|stat| known.insert(stat.st_ino))
        });
        Ok(listeners)
    }
}

/// Waits until the new process reports that it serves.
fn wait_for_report(waiting: &OwnedFd) -> Result<(), String> {
    let mut polled = [PollFd::new(waiting, PollFlags::IN)];
    let span = Timespec { tv_sec: START_SPAN.as_secs() as i64, tv_nsec: 0 };
    match poll(&mut polled, Some(&span)) {
        Ok(0) => return Err(format!("the new process did not serve within {START_SPAN:?}")),
        Ok(_) => {}
        Err(error) => return Err(error.to_string()),
    }
    let mut byte = [0];
    match rustix::io::read(waiting, &mut byte) {
        Ok(1) => Ok(()),
        Ok(_) => Err("the new process ended before it served".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
