//! Starts programs for tests, with default signal actions and for a bounded time.
//! In: a command. Out: a process that is killed with its owner; or its output.
//! Never: linked into the binary; only tests depend on this crate.
//! Limits: `LIFE_MAX` for each process. It also bounds every wait for the end or the output of a process.
//! Invariant: a process that a test starts ignores a signal only if the test requests it. `make test` under
//! nohup(1), or in the background of a shell, ignores SIGHUP or SIGINT, and processes inherit that.
#![forbid(unsafe_code)]

use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;

use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};

pub use rustix::process::Signal;

/// How long a process may live. Any process that lives longer hangs.
pub const LIFE_MAX: Duration = Duration::from_secs(300);
/// How long the output of an ended process may stay open: a process that it started may still hold it.
const OUTPUT_MAX: Duration = Duration::from_secs(10);
/// The signals that shells, nohup(1) and supervisors may have set to be ignored.
const DEFAULTS: &str = "--default-signal=HUP,INT,QUIT,PIPE,TERM";

/// A command that starts `program` with the default action for each signal.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg(DEFAULTS).arg(program);
    command
}

/// `command`, but with these signals ignored, as under nohup(1): `HUP`, or `HUP,INT`.
#[must_use]
pub fn command_ignoring(signals: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg(DEFAULTS).arg(format!("--ignore-signal={signals}")).arg(program);
    command
}

/// The path of an example program of the crate under test. Cargo builds the examples of a crate with its tests.
///
/// # Panics
/// Cargo did not build it, because the tests were selected by name.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test is known");
    let folder = test.parent().and_then(Path::parent).expect("the test is in a folder of Cargo");
    let program = folder.join("examples").join(name);
    assert!(program.is_file(), "{} is missing: run cargo test without --test", program.display());
    program
}

/// Starts `command`.
///
/// # Panics
/// The program cannot be started.
pub fn start(command: &mut Command) -> Started {
    let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let alive = watch(&child, LIFE_MAX, format!("{command:?}"));
    Started { child, _alive: alive }
}

/// Runs `command` to its end, without input unless the command has one, and returns its output.
///
/// # Panics
/// The program cannot be started, or its output stays open after its end.
pub fn run(command: &mut Command) -> Output {
    start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())).output()
}

/// A process that a test started. It is killed when its owner is dropped, and after `LIFE_MAX`.
#[derive(Debug)]
pub struct Started {
    child: Child,
    /// Dropping it tells the watching thread that the process has ended.
    _alive: Sender<()>,
}

impl Started {
    /// Sends a signal.
    ///
    /// # Panics
    /// The process has ended and was waited for.
    pub fn send(&self, signal: Signal) {
        kill_process(pid_of(&self.child), signal).expect("the process has not been waited for");
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// The process was already waited for by other means.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the process can be waited for")
    }

    /// Waits for the end of the process, and returns the output that was piped and not taken.
    ///
    /// # Panics
    /// A process that it started holds the output open after its end.
    pub fn output(mut self) -> Output {
        drop(self.child.stdin.take());
        let (stdout, stderr) = (read(self.child.stdout.take()), read(self.child.stderr.take()));
        let status = self.wait();
        let end = |bytes: Receiver<Vec<u8>>| {
            let bytes = bytes.recv_timeout(OUTPUT_MAX);
            bytes.expect("another process still holds the output of the process that ended")
        };
        Output { status, stdout: end(stdout), stderr: end(stderr) }
    }
}

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills the process after `life`, unless the returned sender is dropped before that. It uses a pidfd, so it can never
/// kill another process that was given the same number.
fn watch(child: &Child, life: Duration, name: String) -> Sender<()> {
    let (alive, watched) = mpsc::channel::<()>();
    let process = pidfd_open(pid_of(child), PidfdFlags::empty()).expect("the process was started");
    thread::spawn(move || {
        if watched.recv_timeout(life) == Err(RecvTimeoutError::Timeout)
            && pidfd_send_signal(&process, Signal::KILL).is_ok()
        {
            eprintln!("killed after {life:?}: {name}");
        }
    });
    alive
}

/// Reads `pipe` to its end on its own thread.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (done, bytes) = mpsc::channel();
    thread::spawn(move || {
        let mut read = Vec::new();
        if let Some(mut pipe) = pipe {
            // The bytes that were read before an error are useful in the message of a failing test.
            let _ = pipe.read_to_end(&mut read);
        }
        done.send(read)
    });
    bytes
}

fn pid_of(child: &Child) -> Pid {
    let number = i32::try_from(child.id()).ok();
    number.and_then(Pid::from_raw).expect("a process number is a positive i32")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ignored signals of a process started with `command`, as a bit mask (proc(5), SigIgn).
    fn ignored(mut command: Command) -> u64 {
        let output = run(command.args(["-m1", "SigIgn", "/proc/self/status"]));
        let line = String::from_utf8(output.stdout).expect("the status is text");
        let mask = line.trim().rsplit('\t').next().expect("the line has a value");
        u64::from_str_radix(mask, 16).expect("the mask is hexadecimal")
    }

    #[test]
    fn started_programs_ignore_only_the_signals_that_a_test_names() {
        let bits = |signals: &[Signal]| {
            signals.iter().map(|signal| 1 << (signal.as_raw() - 1)).sum::<u64>()
        };
        let all = bits(&[Signal::HUP, Signal::INT, Signal::QUIT, Signal::PIPE, Signal::TERM]);
        assert_eq!(ignored(command("grep")) & all, 0);
        let chosen = bits(&[Signal::HUP, Signal::INT]);
        assert_eq!(ignored(command_ignoring("HUP,INT", "grep")) & all, chosen);
        // A program started by a program that ignores signals.
        let mut outer = command_ignoring("HUP,INT,TERM", "env");
        outer.args([DEFAULTS, "grep"]);
        assert_eq!(ignored(outer) & all, 0);
    }

    #[test]
    fn process_that_outlives_its_limit_is_killed() {
        let mut child = command("sleep").arg("1000").spawn().expect("sleep is installed");
        let _alive = watch(&child, Duration::from_millis(1), "sleep".to_owned());
        assert_eq!(child.wait().expect("it ends").code(), None);
    }

    #[test]
    fn process_ends_with_its_owner() {
        let started = start(command("sleep").arg("1000"));
        let process = pidfd_open(pid_of(&started), PidfdFlags::empty()).expect("it runs");
        drop(started);
        assert!(pidfd_send_signal(&process, Signal::KILL).is_err());
    }
}
