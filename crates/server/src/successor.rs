//! Replaces the process by a new one without refusing a connection: starts the program again, with the arguments of this
//! process and the same listening sockets.
//! In: SIGUSR2, the listeners of all workers, the transfer of this process. Out: a process that serves and has the transfer; then
//! SIGTERM to this one, so that it completes the work in progress.
//! Never: stops before the new process has reported that it serves: if the new process exits or is late, the old process
//! continues to serve. Closes the last descriptor of a listening socket: the new process accepts the connections in its queue.
//! Limits: one successor at a time; `PASS_WAIT_MS` for each worker to pass its listeners; `START_SPAN` for the start;
//! `TRANSFER_WAIT` for a transfer, which the new process may be too slow to read.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tidegate_base::Address;
use tidegate_reactor::Sender;
use tidegate_reactor::inherited::{self, HANDOVER, ListenerPost, PassedListener, set_inheritable};

use crate::admin::{LeaveSignal, Operations};
use crate::dictionary_files::DictionaryFiles;
use crate::health::Roster;
use crate::inspection::{Question, Report, ask};
use crate::log;
use crate::service_manager;
use crate::start::Mail;
use crate::state_transfer::StateTransfer;
use crate::threads::{self, Ended};

/// How long a worker may take to pass its listeners.
const PASS_WAIT_MS: u32 = 10_000;
/// How often sending to the full mailbox of a worker is tried again.
const MAIL_TRIES_MAX: u32 = 10_000;
const MAIL_PAUSE: Duration = Duration::from_millis(1);
/// How long the new process may take to start.
const START_SPAN: Duration = Duration::from_secs(60);
/// How long a new process that has closed the channel may take to write its reason to the log, and to exit.
const EXIT_SPAN: Duration = Duration::from_secs(2);
const EXIT_PAUSE: Duration = Duration::from_millis(5);
/// How long the new process may take to read a transfer.
const TRANSFER_WAIT: Duration = Duration::from_secs(5);
/// How often the new process gets the statistics of the old process.
const TRANSFER_EVERY: Duration = Duration::from_secs(2);

/// Starts the process that replaces this one.
pub(crate) struct Successor {
    /// The senders to the mailboxes of the workers.
    workers: Vec<Sender<Mail>>,
    /// The channel on which the workers pass their listeners.
    post: ListenerPost,
    /// The socket of the admin interface, and the signal that makes its thread leave the socket to the new process.
    admin: Option<(OwnedFd, LeaveSignal)>,
    /// A new process is being started.
    is_starting: AtomicBool,
    /// The number of the attempt.
    attempt: AtomicU8,
    /// A new process serves.
    serves: AtomicBool,
    /// The process that starts.
    starting: Mutex<Starting>,
    /// The new process and the channel to it, while this one still runs.
    new_process: Mutex<Option<(Child, Channel)>>,
    /// The source of the transfers.
    transfer_source: TransferSource,
    /// The addresses whose sockets a service manager has, too.
    managed: Vec<Address>,
}

/// A new process until it has reported that it serves.
#[derive(Default)]
struct Starting {
    child: Option<Child>,
    /// This process stops, so that no other one is to serve.
    is_stopping: bool,
}

/// The state of this process that the new process takes over.
pub(crate) struct TransferSource {
    /// The statistics and the servers; `None`: without an admin interface, nothing is counted.
    pub(crate) operations: Option<Arc<Operations>>,
    /// The servers.
    pub(crate) roster: Arc<Roster>,
    /// The dictionaries that the new process restores from their files.
    pub(crate) dictionaries: Arc<DictionaryFiles>,
}

impl TransferSource {
    fn transfer(&self) -> StateTransfer {
        match &self.operations {
            Some(operations) => operations.transfer(),
            None => StateTransfer { servers: self.roster.passed(), ..StateTransfer::default() },
        }
    }
}

impl Successor {
    /// No process has been started.
    pub(crate) fn new(
        workers: Vec<Sender<Mail>>,
        post: ListenerPost,
        admin: Option<(OwnedFd, LeaveSignal)>,
        transfer_source: TransferSource,
        managed: Vec<Address>,
    ) -> Self {
        let (is_starting, serves) = (AtomicBool::new(false), AtomicBool::new(false));
        Self {
            workers,
            post,
            admin,
            is_starting,
            attempt: AtomicU8::new(0),
            serves,
            starting: Mutex::default(),
            new_process: Mutex::default(),
            transfer_source,
            managed,
        }
    }

    /// This process stops. Returns whether a new process serves and has taken over from it. A process that is being started is to stop,
    /// too.
    pub(crate) fn stop(&self) -> bool {
        let mut starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.serves.load(Ordering::SeqCst) {
            return true;
        }
        starting.is_stopping = true;
        if let Some(child) = &starting.child
            && let Err(error) = kill_process(Pid::from_child(child), Signal::TERM)
        {
            log::error(format_args!("upgrade: the new process cannot be stopped: {error}"));
        }
        false
    }

    /// Starts a new process on a separate thread.
    pub(crate) fn begin(self: &Arc<Self>) {
        if self.is_starting.swap(true, Ordering::SeqCst) {
            log::warning(format_args!(
                "upgrade: ignored, because another new process is already being started"
            ));
            return;
        }
        if let Some(operations) = &self.transfer_source.operations {
            operations.upgrades.begin();
        }
        let successor = Arc::clone(self);
        let work = move || {
            match successor.start() {
                Ok(process) => {
                    successor.note_result(Ok(0));
                    successor.leave(process);
                }
                Err(reason) => successor.note_failure(&reason),
            }
            Ended::AsPlanned
        };
        if let Err(error) = threads::spawn("upgrade", work) {
            self.note_failure(&error.to_string());
        }
    }

    /// No new process serves.
    fn note_failure(&self, reason: &str) {
        log::error(format_args!("upgrade failed; the old process still serves: {reason}"));
        self.transfer_source.dictionaries.resume();
        self.is_starting.store(false, Ordering::SeqCst);
        let result = format!("the upgrade failed, and the old process still serves: {reason}");
        self.note_result(Err(&result));
    }

    /// Tells the command that waits for the upgrade.
    fn note_result(&self, result: Result<usize, &str>) {
        if let Some(operations) = &self.transfer_source.operations {
            operations.upgrades.end(result);
        }
    }

    /// The new process serves: this one stops.
    fn leave(&self, process: u32) {
        log::info(format_args!(
            "upgrade: process {process} serves; this process completes its exchanges in progress, then exits"
        ));
        service_manager::main_process(process);
        if let Some((_, leave_signal)) = &self.admin {
            leave_signal.notify();
        }
        // The new process shows its statistics only after it has received this transfer.
        self.send_transfer();
        if let Err(error) = kill_process(getpid(), Signal::TERM) {
            log::error(format_args!("upgrade: this process cannot stop itself: {error}"));
        }
        while self.send_transfer() {
            thread::sleep(TRANSFER_EVERY);
        }
    }

    /// Sends the statistics of this process to the new process. Returns false if there is no process to receive them.
    pub(crate) fn send_transfer(&self) -> bool {
        let mut new_process = self.new_process.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, channel)) = new_process.as_mut() else { return false };
        channel.pass(&self.transfer_source.transfer());
        channel.flush(Instant::now() + TRANSFER_WAIT)
    }

    /// Starts the new process, and waits until it serves. Returns its number.
    fn start(&self) -> Result<u32, String> {
        let listeners = self.collect()?;
        let text = |error: std::io::Error| error.to_string();
        let (mut channel, other) = Channel::open().map_err(text)?;
        let admin = self.admin.as_ref().map(|(socket, _)| socket);
        let sockets: Vec<&OwnedFd> =
            listeners.iter().map(|passed| &passed.socket).chain(admin).collect();
        self.transfer_source.dictionaries.suspend();
        let result = self.spawn(&other, &sockets);
        if let Some(admin) = admin {
            let _ = set_inheritable(admin, false);
        }
        let child = result?;
        drop(other);
        log::info(format_args!("upgrade: process {} is starting", child.id()));
        self.keep_starting(child);
        channel.pass(&self.first_transfer());
        let report = channel.wait_for_report();
        let mut starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        let child = starting.child.take().ok_or("there is no new process")?;
        match report {
            Ok(()) if starting.is_stopping => {
                Err("this process was stopped, and the new one with it".to_owned())
            }
            Ok(()) => {
                self.serves.store(true, Ordering::SeqCst);
                let process = child.id();
                *self.new_process.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some((child, channel));
                Ok(process)
            }
            Err(reason) => {
                drop(starting);
                Err(format!("{reason} ({})", end(child)))
            }
        }
    }

    /// Keeps the process that starts, so that it is stopped with this one.
    fn keep_starting(&self, child: Child) {
        let mut starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if starting.is_stopping {
            // The process that stops has found no other one.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        starting.child = Some(child);
    }

    /// The transfer for the start of the new process: also contains the ejected servers, which are known to the workers only.
    fn first_transfer(&self) -> StateTransfer {
        let mut transfer = self.transfer_source.transfer();
        let all: Vec<usize> = (0..self.workers.len()).collect();
        for (worker, report) in ask(&self.workers, &all, Question::Ejections).reports {
            let Report::Ejections(ejections) = report else { continue };
            for (name, ejection) in ejections {
                transfer.servers.entry(name).or_default().ejected.insert(worker, ejection);
            }
        }
        transfer
    }

    fn spawn(&self, channel: &OwnedFd, sockets: &[&OwnedFd]) -> Result<Child, String> {
        let text = |error: std::io::Error| error.to_string();
        set_inheritable(channel, true).map_err(text)?;
        for socket in sockets {
            set_inheritable(socket, true).map_err(text)?;
        }
        let is_managed = |socket: &OwnedFd| {
            inherited::address(socket).is_ok_and(|address| self.managed.contains(&address))
        };
        let sockets: Vec<(&OwnedFd, bool)> =
            sockets.iter().map(|socket| (*socket, is_managed(socket))).collect();
        let named = inherited::handover(channel, &sockets);
        let mut arguments = std::env::args_os();
        // Not /proc/self/exe, which is the old program if its file was replaced.
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
        let attempt = self.attempt.fetch_add(1, Ordering::SeqCst);
        for worker in &self.workers {
            let mut tries = 0;
            while worker.send(Mail::PassListeners(self.post.entrance(attempt))).is_err() {
                tries += 1;
                if tries > MAIL_TRIES_MAX {
                    return Err("the mailbox of a worker is full".to_owned());
                }
                thread::sleep(MAIL_PAUSE);
            }
        }
        let (mut listeners, mut complete) = (Vec::new(), 0);
        while complete < self.workers.len() {
            let received = self.post.receive(attempt, PASS_WAIT_MS);
            let (some, is_last) = received.map_err(|error| {
                format!("a worker did not pass on its listening sockets: {error}")
            })?;
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

/// Ends a process that is not needed any more. One that has closed the channel writes its reason to the log, and exits by itself. Returns
/// its status.
fn end(mut child: Child) -> String {
    let deadline = Instant::now() + EXIT_SPAN;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        thread::sleep(EXIT_PAUSE);
    }
    let _ = child.kill();
    child.wait().map(|status| status.to_string()).unwrap_or_default()
}

/// The channel to the new process: transfers are sent there, and its report is received there.
struct Channel {
    /// The socket, which does not block.
    socket: OwnedFd,
    /// Bytes that are not sent yet.
    unsent: Vec<u8>,
}

impl Channel {
    /// A channel, and the end for the new process.
    fn open() -> std::io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok((Self { socket, unsent: Vec::new() }, other))
    }

    /// Queues a transfer to be sent, unless an earlier one is still waiting.
    fn pass(&mut self, transfer: &StateTransfer) {
        if self.unsent.is_empty() {
            let (bytes, left_out) = transfer.encode();
            if left_out > 0 {
                log::warning(format_args!(
                    "upgrade: the statistics of {left_out} listeners, routes or servers are not passed on: there are too many, \
                     or their names are too long"
                ));
            }
            self.unsent = bytes;
        }
    }

    /// Sends the unsent bytes. Returns false if the new process has exited.
    fn flush(&mut self, deadline: Instant) -> bool {
        while !self.unsent.is_empty() && self.wait(deadline, PollFlags::OUT) == Ok(false) {
            if !self.send() {
                return false;
            }
        }
        true
    }

    /// Waits until the new process reports that it serves, and sends the unsent bytes meanwhile.
    fn wait_for_report(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_SPAN;
        loop {
            let flags = match self.unsent.is_empty() {
                true => PollFlags::IN,
                false => PollFlags::IN | PollFlags::OUT,
            };
            if self.wait(deadline, flags).map_err(|error| error.to_string())? {
                return Err(format!("the new process was not ready within {START_SPAN:?}"));
            }
            if !self.send() {
                // The read below notices the end of the process.
                self.unsent.clear();
            }
            let mut byte = [0];
            match rustix::io::read(&self.socket, &mut byte) {
                Ok(1) => return Ok(()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                // A process that ends with unread bytes resets the connection.
                Ok(_) | Err(Errno::CONNRESET) => {
                    return Err("the new process exited before it was ready, and has written the reason to the log".to_owned());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Waits for bytes, or for room. Returns whether the deadline has passed.
    fn wait(&self, deadline: Instant, flags: PollFlags) -> Result<bool, Errno> {
        let rest = deadline.saturating_duration_since(Instant::now());
        let rest = Timespec {
            tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(rest.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&self.socket, flags)], Some(&rest)) {
            Err(Errno::INTR) => Ok(false),
            result => result.map(|ready| ready == 0),
        }
    }

    /// Sends as much as there is room for. Returns false if the new process has ended.
    fn send(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match rustix::io::write(&self.socket, &self.unsent) {
                Ok(count) => {
                    self.unsent.drain(..count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::arrange::Arranged;

    use super::*;
    use crate::state_transfer::TransferReader;

    /// A transfer that fits into no socket's buffer.
    fn large() -> StateTransfer {
        let counters = (0..2000_u64).map(|at| (format!("{at:0>5}"), at));
        let server = |at: usize| ((format!("{at}"), "x".repeat(1000)), Default::default());
        StateTransfer {
            process: counters.collect(),
            servers: (0..2000).map(server).collect(),
            ..StateTransfer::default()
        }
    }

    #[test]
    fn large_transfer_passes_while_the_report_is_waited_for() {
        let (mut channel, other) = Channel::open().expect("a socket pair");
        channel.pass(&large());
        let reader = thread::spawn(move || {
            let (mut reader, mut buffer) = (TransferReader::default(), [0; 5000]);
            let mut next = || loop {
                let count = rustix::io::read(&other, &mut buffer).expect("bytes");
                assert!(count > 0, "the channel has ended");
                if let Some(transfer) = reader.read(&buffer[..count]).expect("a transfer") {
                    return transfer;
                }
            };
            assert_eq!(next(), large());
            rustix::io::write(&other, b"1").expect("there is room");
            assert_eq!(next(), StateTransfer::default());
        });
        channel.wait_for_report().expect("a report");
        channel.pass(&StateTransfer::default());
        assert!(channel.flush(Instant::now() + Duration::from_secs(60)));
        reader.join().expect("the thread ends");
        channel.pass(&StateTransfer::default());
        assert!(!channel.flush(Instant::now() + Duration::from_secs(60)), "there is no reader");
    }

    #[test]
    fn failed_process_may_write_its_reason_before_it_is_killed() {
        let run = |script: &str| Command::new("sh").args(["-c", script]).spawn().expect("a shell");
        assert_eq!(end(run("read line < /dev/null; exit 3")), "exit status: 3");
        assert!(end(run("exec sleep 600")).contains("signal: 9"));
    }

    #[test]
    fn process_that_starts_is_stopped_with_this_one() {
        let post = ListenerPost::new().expect("a socket pair");
        let roster = Arc::new(Roster::new(&Arranged::default(), Vec::new()));
        let dictionaries = Arc::default();
        let source = TransferSource { operations: None, roster, dictionaries };
        let successor = Successor::new(Vec::new(), post, None, source, Vec::new());
        let sleeper = || Command::new("sleep").arg("600").spawn().expect("it is installed");
        let ended = || {
            let child = successor.starting.lock().expect("no panic").child.take();
            child.expect("it is kept").wait().expect("a status").to_string()
        };
        successor.keep_starting(sleeper());
        assert!(!successor.stop());
        assert!(ended().contains("signal: 15"));
        successor.keep_starting(sleeper());
        assert!(ended().contains("signal: 15"), "it started later");
        successor.serves.store(true, Ordering::SeqCst);
        assert!(successor.stop());
    }

    #[test]
    fn process_that_exits_or_does_not_read_delays_nothing() {
        let (mut channel, other) = Channel::open().expect("a socket pair");
        channel.pass(&large());
        assert!(channel.flush(Instant::now()), "the other end is open");
        channel.pass(&StateTransfer::default());
        assert!(!channel.unsent.is_empty() && !channel.unsent.starts_with(b"{\"transfer"));
        drop(other);
        let reason = channel.wait_for_report().expect_err("the process has ended");
        assert_eq!(
            reason,
            "the new process exited before it was ready, and has written the reason to the log"
        );
    }
}
