//! Programs that a comparison starts on given CPUs, waits for, and stops.
//! In: a command line. Out: a running process. When its `Running` is dropped, it and all its descendants end.
//! Never: starts a program on a port that is in use: with SO_REUSEPORT a server left running by mistake would
//! silently take a part of the load.
//! Limits: `START_MAX`, `STOP_MAX`.
//! Invariant: all started programs and their descendants end when this process ends. Only after SIGKILL
//! to this process may the children of a program continue to run; setpriv, if installed, ends the program itself.
//! Invariant: a process group is in `STARTED` from its start until its leader is waited for. Both happen under
//! the lock, so when a group is signalled, the kernel cannot have reused its number for another group.

use crate::machine;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::process::{self, Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take to listen.
pub const START_MAX: Duration = Duration::from_secs(15);
/// How long a program may take to end after SIGTERM.
pub const STOP_MAX: Duration = Duration::from_secs(3);

/// Pause between two checks of a condition that is awaited.
const POLL: Duration = Duration::from_millis(2);
/// How long a listening program is watched. A program that daemonizes is detected here: its first process exits.
const SETTLE: Duration = Duration::from_millis(100);
/// How long a connection attempt to a port may take. If it takes longer, the port counts as silent.
const PROBE_MAX: Duration = Duration::from_millis(300);
/// Errors of connect that mean that nothing listens.
const NO_LISTENER: [io::ErrorKind; 3] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::HostUnreachable,
    io::ErrorKind::NetworkUnreachable,
];
static STARTED: Mutex<Started> = Mutex::new(Started { groups: Vec::new(), inherited: None });

/// A running program. Dropping this value ends the program and the processes that it started.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Its process group; the program is the leader.
    group: Pid,
}

impl Running {
    /// Starts `command` on `cpus` in its own process group, with its input and output discarded.
    ///
    /// # Errors
    /// If the program or the CPU does not exist.
    pub fn start(command: &Command, cpus: &[usize]) -> io::Result<Self> {
        let mut command = ended_with_this_process(command)?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self::spawn(&mut command, cpus)
    }

    /// As `start`, but without setpriv in between, for measurements of the start time.
    ///
    /// # Errors
    /// If the program or the CPU does not exist.
    pub fn start_directly(command: &mut Command, cpus: &[usize]) -> io::Result<Self> {
        Self::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()), cpus)
    }

    /// Runs `command` on `cpus` to its end. Returns whether it exited with 0, its stdout and its stderr.
    ///
    /// # Errors
    /// If the program or the CPU does not exist.
    pub fn output(command: &mut Command, cpus: &[usize]) -> io::Result<(bool, String, String)> {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Self::spawn(command, cpus)?;
        let pipes = (running.child.stdout.take(), running.child.stderr.take());
        let (Some(mut stdout_pipe), Some(mut stderr_pipe)) = pipes else {
            return Err(io::Error::other("the process has no pipes"));
        };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            let reading = scope.spawn(|| stderr_pipe.read_to_end(&mut stderr));
            let read = stdout_pipe.read_to_end(&mut stdout);
            // Its stderr is only shown to the operator, so a failed read is ignored.
            let _ = reading.join();
            read
        })?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = process::waitid(WaitId::Pid(running.group), options)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let is_well = status.is_some_and(|status| status.exit_status() == Some(0));
        Ok((is_well, text(&stdout), text(&stderr)))
    }

    fn spawn(command: &mut Command, cpus: &[usize]) -> io::Result<Self> {
        let mut started = started();
        if started.inherited.is_none() {
            started.inherited = Some(children(&[]).iter().map(|child| child.pid).collect());
            // As the subreaper, this process becomes the parent of orphaned descendants, so that `stop_orphans`
            // finds them. If the call fails, only descendants that stay in their process group are ended.
            let _ = process::set_child_subreaper(Pid::from_raw(1));
        }
        let before = machine::allowed_cpus();
        machine::pin(cpus)?;
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        let unpinned = machine::pin(&before);
        let child = child?;
        let group =
            pid_of(&child).ok_or_else(|| io::Error::other("the process has no process id"))?;
        started.groups.push(group);
        // Dropping `running` ends the program. The drop takes the lock, so the lock is released first.
        drop(started);
        let running = Self { child, group };
        unpinned?;
        Ok(running)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until something listens on `address`, or `stop` is set.
    ///
    /// # Errors
    /// A message for the operator if the program ended or went to the background, or if nothing listens
    /// after [`START_MAX`].
    pub fn wait_until_listening(
        &self,
        address: SocketAddr,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let begun = Instant::now();
        let mut listens_since = None;
        while !stop.load(Ordering::Relaxed) {
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            if listens_since.is_none() && is_answering(address) {
                listens_since = Some(Instant::now());
            }
            match listens_since {
                Some(since) if since.elapsed() > SETTLE => return Ok(()),
                None if begun.elapsed() > START_MAX => {
                    return Err(format!(
                        "the program did not listen on {address} within {START_MAX:?}"
                    ));
                }
                _ => thread::sleep(POLL),
            }
        }
        Ok(())
    }

    /// The exit status of the program, and the advice about it; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = process::waitid(WaitId::Pid(self.group), options).ok()??;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => "the program exited by itself (exit status 0); a server that goes to the background cannot \
                             be watched or stopped: keep it in the foreground (nginx: -g 'daemon off;', haproxy: \
                             -db)"
                .to_owned(),
            (Some(code), _) => format!(
                "the program exited by itself (exit status {code}); its output is not shown here: run the command \
                 alone to see it"
            ),
            (None, signal) => format!("the program was ended by signal {}", signal.unwrap_or(0)),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        stop(&[self.group], STOP_MAX);
        let mut started = started();
        started.groups.retain(|group| *group != self.group);
        while let Ok(Some(_)) = process::waitpgid(self.group, WaitOptions::NOHANG) {}
        if started.groups.is_empty() {
            stop_orphans(&started, STOP_MAX);
        }
    }
}

/// Stops all running programs before this process ends: SIGTERM, and SIGKILL after `patience`. No program
/// can be started afterwards.
pub fn stop_all(patience: Duration) {
    let started = started();
    stop(&started.groups, patience);
    stop_orphans(&started, patience);
    // Threads that start or stop a program wait for this lock until the process ends.
    core::mem::forget(started);
}

/// The child processes of this process.
struct Started {
    /// Running process groups, by the process id of their leader.
    groups: Vec<Pid>,
    /// Children that existed before the first program was started: a shell that runs this program by `exec`
    /// passes its background processes on. They are never ended. `None` before the first start.
    inherited: Option<Vec<Pid>>,
}

fn started() -> MutexGuard<'static, Started> {
    // The list is complete even if another thread panicked.
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wraps `command` in setpriv (util-linux), if installed, so that the kernel sends SIGTERM to the program when
/// the thread that started it ends for any reason.
fn ended_with_this_process(command: &Command) -> io::Result<Command> {
    let program = command.get_program();
    let found = find_program(program).filter(|path| is_executable(path));
    // Checked here, because setpriv would start and then exit, as if the program had exited early.
    let path = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such program"))?;
    let mut watched = match find_program("setpriv") {
        Some(setpriv) => {
            let mut watched = Command::new(setpriv);
            watched.args(["--pdeathsig", "TERM", "--"]).arg(path);
            watched
        }
        None => Command::new(path),
    };
    watched.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => watched.env(name, value),
            None => watched.env_remove(name),
        };
    }
    Ok(watched)
}

/// Sends SIGTERM to all processes of `groups`, and SIGKILL to those that still run after `patience`.
fn stop(groups: &[Pid], patience: Duration) {
    let signal_all = |signal| {
        for &group in groups {
            // The group may have ended already.
            let _ = process::kill_process_group(group, signal);
        }
    };
    if !patience.is_zero() {
        signal_all(Signal::TERM);
    }
    let is_gone = || !processes().iter().any(|one| !one.is_zombie && groups.contains(&one.group));
    wait_until(patience, is_gone);
    signal_all(Signal::KILL);
    wait_until(STOP_MAX, is_gone);
}

/// Ends the children of this process that it did not start: orphans of programs that ended.
fn stop_orphans(started: &Started, patience: Duration) {
    let Some(inherited) = &started.inherited else {
        return;
    };
    let begun = Instant::now();
    let mut terminated = Vec::new();
    wait_until(patience + STOP_MAX, || {
        let orphans = children(&[&started.groups[..], inherited].concat());
        for orphan in &orphans {
            // The orphan may have ended already.
            if orphan.is_zombie {
                let _ = process::waitpid(Some(orphan.pid), WaitOptions::NOHANG);
            } else if begun.elapsed() >= patience {
                let _ = process::kill_process(orphan.pid, Signal::KILL);
            } else if !terminated.contains(&orphan.pid) {
                let _ = process::kill_process(orphan.pid, Signal::TERM);
                terminated.push(orphan.pid);
            }
        }
        orphans.is_empty()
    });
}

fn wait_until(patience: Duration, mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() && begun.elapsed() < patience {
        thread::sleep(POLL);
    }
}

/// The children of this process that are not among `known`.
fn children(known: &[Pid]) -> Vec<Process> {
    let own = Some(process::getpid());
    let mut children = processes();
    children.retain(|one| one.parent == own && !known.contains(&one.pid));
    children
}

/// A process of this machine.
struct Process {
    pid: Pid,
    parent: Option<Pid>,
    group: Pid,
    /// It has ended, and its parent has not waited for it yet.
    is_zombie: bool,
}

/// All processes in /proc.
fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let process = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // Fields 3 to 5 of proc(5), after the name: state, parent, process group.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let is_zombie = matches!(fields.next()?, "Z" | "X");
        let mut number = || fields.next()?.parse().ok().and_then(Pid::from_raw);
        let parent = number();
        Some(Process { pid, parent, group: number()?, is_zombie })
    };
    entries.flatten().filter_map(process).collect()
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Whether something listens on a port, as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// A connection was established.
    Open,
    /// The port is in use but does not complete connections: its backlog may be full.
    Silent,
    /// Connections are refused and the port can be bound.
    Free,
}

/// Finds out whether something listens on `address`.
#[must_use]
pub fn probe_port(address: SocketAddr) -> PortState {
    match TcpStream::connect_timeout(&address, PROBE_MAX) {
        // A connect to a free port can connect to itself (simultaneous open) and succeed.
        Ok(stream) if stream.local_addr().ok() != stream.peer_addr().ok() => {
            return PortState::Open;
        }
        Ok(_) => {}
        Err(error) if NO_LISTENER.contains(&error.kind()) => {}
        Err(_) => return PortState::Silent,
    }
    // The standard library does not set SO_REUSEPORT, so binding a port that is in use fails.
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => PortState::Silent,
        _ => PortState::Free,
    }
}

/// Whether a connection to `address` can be established.
fn is_answering(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, PROBE_MAX)
        .is_ok_and(|stream| stream.local_addr().ok() != stream.peer_addr().ok())
}

/// An address of 127.0.0.1 on which nothing listens.
///
/// # Errors
/// If no port is free.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// The path of `program`: the argument itself if it is a path, otherwise the file in PATH or in the usual
/// sbin directories.
#[must_use]
pub fn find_program(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let program = Path::new(program.as_ref());
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

/// The first line that `program` prints for its version option `flag`.
#[must_use]
pub fn version_of(program: &PathBuf, flag: &str) -> String {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output();
    let Ok(output) = output else {
        return "unknown".to_owned();
    };
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listening_address_accepts_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_answering(listener.local_addr().unwrap()));
        assert!(!is_answering(free_address().unwrap()));
    }

    #[test]
    fn port_with_a_full_backlog_is_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(probe_port(address), PortState::Open);
        // With a backlog of 0, one connection may wait: the connection that fills it is the last to be established.
        rustix::net::listen(&listener, 0).unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, PROBE_MAX) {
            queued.push(stream);
        }
        assert_eq!(probe_port(address), PortState::Silent);
        drop((listener, queued));
        assert_eq!(probe_port(free_address().unwrap()), PortState::Free);
    }

    #[test]
    fn port_bound_without_listener_is_silent() {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
        let held = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&held, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let address = SocketAddr::try_from(getsockname(&held).unwrap()).unwrap();
        assert_eq!(probe_port(address), PortState::Silent);
    }

    #[test]
    fn program_that_exits_early_is_an_error() {
        let running = Running::start(&Command::new("true"), &machine::allowed_cpus()).unwrap();
        let error = running
            .wait_until_listening(free_address().unwrap(), &AtomicBool::new(false))
            .unwrap_err();
        assert!(error.contains("exited by itself (exit status 0)"), "{error}");
        assert!(error.contains("daemon off"), "{error}");
    }

    #[test]
    fn dropping_running_ends_the_program() {
        let running =
            Running::start(Command::new("sleep").arg("60"), &machine::allowed_cpus()).unwrap();
        let pid = running.pid();
        assert!(machine::spent(pid).is_some());
        drop(running);
        assert_eq!(machine::spent(pid), None);
    }
}
