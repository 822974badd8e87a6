//! Other programs of a comparison: started on CPUs of their own, waited for, stopped.
//! In: a command line. Out: a running process that ends with its owner, and with it all that it started.
//! Never: starts anything on a port that is taken: with SO_REUSEPORT a forgotten server would
//! silently take a part of the load. Leaves a process behind, however this one ends; a kill (SIGKILL) of this
//! one ends what setpriv started, but not what that had started itself and does not end.
//! Limits: `START_MAX`, `STOP_MAX`.
//! Invariant: a group stands in `STARTED` from its start until its leader is waited for, both under the lock,
//! so its number means no other group when it is signalled.

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

/// How long a program may take until it listens.
pub const START_MAX: Duration = Duration::from_secs(15);
/// How long a program may take to end when it is asked to.
pub const STOP_MAX: Duration = Duration::from_secs(3);

const POLL: Duration = Duration::from_millis(2);
/// How long a program that listens is watched: one that goes to the background ends its first process then.
const SETTLE: Duration = Duration::from_millis(100);
/// How long a connection to a port may take until the port counts as silent.
const KNOCK_MAX: Duration = Duration::from_millis(300);
/// Answers of the network that nobody is there.
const SAYS_NOBODY: [io::ErrorKind; 3] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::HostUnreachable,
    io::ErrorKind::NetworkUnreachable,
];
static STARTED: Mutex<Started> = Mutex::new(Started { groups: Vec::new(), strangers: None });

/// A program that runs as long as this value lives, and so do the processes that it starts.
#[derive(Debug)]
pub struct Running {
    child: Child,
    group: Pid,
}

impl Running {
    /// Starts `command` on `cpus`, without input and output, in a process group of its own.
    ///
    /// # Errors
    /// When the program or the CPU is not there.
    pub fn start(command: &Command, cpus: &[usize]) -> io::Result<Self> {
        let mut command = ended_with_this_process(command)?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self::spawn(&mut command, cpus)
    }

    /// As `start`, but nothing is between this process and the program: where the time of its start counts.
    ///
    /// # Errors
    /// When the program or the CPU is not there.
    pub fn start_directly(command: &mut Command, cpus: &[usize]) -> io::Result<Self> {
        Self::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()), cpus)
    }

    /// Runs `command` on `cpus` to its end: whether it ended well, and what it wrote to stdout and stderr.
    ///
    /// # Errors
    /// When the program or the CPU is not there.
    pub fn output(command: &mut Command, cpus: &[usize]) -> io::Result<(bool, String, String)> {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Self::spawn(command, cpus)?;
        let pipes = (running.child.stdout.take(), running.child.stderr.take());
        let (Some(mut stdout_pipe), Some(mut stderr_pipe)) = pipes else {
            return Err(io::Error::other("a process without pipes"));
        };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            let reading = scope.spawn(|| stderr_pipe.read_to_end(&mut stderr));
            let read = stdout_pipe.read_to_end(&mut stdout);
            // What it complained of is for the operator alone.
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
        if started.strangers.is_none() {
            started.strangers = Some(children(&[]).iter().map(|child| child.pid).collect());
            // Processes whose parents are gone become children of this one and can be found. Without it
            // they end with their group, unless they left it.
            let _ = process::set_child_subreaper(Pid::from_raw(1));
        }
        let before = machine::allowed_cpus();
        machine::pin(cpus)?;
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        let unpinned = machine::pin(&before);
        let child = child?;
        let group = pid_of(&child).ok_or_else(|| io::Error::other("a process without a number"))?;
        started.groups.push(group);
        // From here on it ends with this value, which needs the lock for that.
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
    /// A sentence for the operator, when the program ended, went to the background, or nothing listens
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
                    return Err(format!("nothing listens on {address} after {START_MAX:?}"));
                }
                _ => thread::sleep(POLL),
            }
        }
        Ok(())
    }

    /// How it ended, when it has, and what to do about it.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = process::waitid(WaitId::Pid(self.group), options).ok()??;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => "it ended by itself (exit status 0); a server in the background can be \
                             neither watched nor stopped: keep it in the foreground (nginx: -g 'daemon \
                             off;', haproxy: -db)"
                .to_owned(),
            (Some(code), _) => format!(
                "it ended by itself (exit status {code}); its output is not shown here: run it alone to \
                 see why"
            ),
            (None, signal) => format!("it ended by itself (signal {})", signal.unwrap_or(0)),
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

/// Stops all that is running, each in order if it needs no more than `patience`, so that nothing is
/// started any more: this process is about to end.
pub fn stop_all(patience: Duration) {
    let started = started();
    stop(&started.groups, patience);
    stop_orphans(&started, patience);
    // Whoever wants to start or stop a program waits for this lock until the process is over.
    core::mem::forget(started);
}

/// What this process has to do with others.
struct Started {
    /// Process groups that are running, by their leaders.
    groups: Vec<Pid>,
    /// Children that were there before the first was started: a shell that became this program by exec
    /// leaves its own.
    strangers: Option<Vec<Pid>>,
}

fn started() -> MutexGuard<'static, Started> {
    // A list of numbers is whole whatever panicked.
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `command` under setpriv, where it is installed (util-linux): the kernel asks the program to end when the
/// thread that started it ends, in whatever way.
fn ended_with_this_process(command: &Command) -> io::Result<Command> {
    let program = command.get_program();
    let found = find_program(program).filter(|path| is_executable(path));
    // Under setpriv a program that is missing would only be one that ended early.
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

/// Asks all processes of `groups` to end, and ends those that have not after `patience`.
fn stop(groups: &[Pid], patience: Duration) {
    let signal_all = |signal| {
        for &group in groups {
            // A group that is gone needs no signal.
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

/// Ends the children of this process that it did not start: what programs left when they ended.
fn stop_orphans(started: &Started, patience: Duration) {
    let Some(strangers) = &started.strangers else {
        return;
    };
    let begun = Instant::now();
    let mut asked = Vec::new();
    wait_until(patience + STOP_MAX, || {
        let orphans = children(&[&started.groups[..], strangers].concat());
        for orphan in &orphans {
            // One that is gone by now needs neither.
            if orphan.is_zombie {
                let _ = process::waitpid(Some(orphan.pid), WaitOptions::NOHANG);
            } else if begun.elapsed() >= patience {
                let _ = process::kill_process(orphan.pid, Signal::KILL);
            } else if !asked.contains(&orphan.pid) {
                let _ = process::kill_process(orphan.pid, Signal::TERM);
                asked.push(orphan.pid);
            }
        }
        orphans.is_empty()
    });
}

fn wait_until(patience: Duration, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < patience {
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
    /// It has ended and is not waited for yet.
    is_zombie: bool,
}

/// All processes that can be seen.
fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let process = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // Fields 3 to 5 of proc(5), behind the name: state, parent, process group.
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

/// Whether something listens on `address`, as far as can be seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// A connection was made.
    Open,
    /// The port is held, or does not say: its queue of connections may be full.
    Silent,
    /// Connections are refused and nobody holds the port.
    Free,
}

/// Knocks at `address`.
#[must_use]
pub fn knock(address: SocketAddr) -> Door {
    match TcpStream::connect_timeout(&address, KNOCK_MAX) {
        // A connect to a free port can meet itself (simultaneous open) and succeed.
        Ok(stream) if stream.local_addr().ok() != stream.peer_addr().ok() => return Door::Open,
        Ok(_) => {}
        Err(error) if SAYS_NOBODY.contains(&error.kind()) => {}
        Err(_) => return Door::Silent,
    }
    // The standard library's listener does not share a port (no SO_REUSEPORT).
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Door::Silent,
        _ => Door::Free,
    }
}

/// Whether something takes connections on `address`.
fn is_answering(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, KNOCK_MAX)
        .is_ok_and(|stream| stream.local_addr().ok() != stream.peer_addr().ok())
}

/// An address of 127.0.0.1 that nothing listens on.
///
/// # Errors
/// When the kernel has no port left.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Where `program` lies: itself if it is a path, else in PATH or where systems keep their servers.
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

/// The first line that `program` prints when asked for its version.
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
    fn a_taken_address_is_seen_and_a_free_one_is_free() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_answering(listener.local_addr().unwrap()));
        assert!(!is_answering(free_address().unwrap()));
    }

    #[test]
    fn a_port_that_is_held_is_not_free_whether_it_answers_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(knock(address), Door::Open);
        // A queue of one place: the connection that fills it is the last that is answered.
        rustix::net::listen(&listener, 0).unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, KNOCK_MAX) {
            queued.push(stream);
        }
        assert_eq!(knock(address), Door::Silent);
        drop((listener, queued));
        assert_eq!(knock(free_address().unwrap()), Door::Free);
    }

    #[test]
    fn a_port_that_is_bound_without_a_listener_is_not_free() {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
        let held = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&held, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let address = SocketAddr::try_from(getsockname(&held).unwrap()).unwrap();
        assert_eq!(knock(address), Door::Silent);
    }

    #[test]
    fn a_program_that_ends_early_is_told() {
        let running = Running::start(&Command::new("true"), &machine::allowed_cpus()).unwrap();
        let error = running
            .wait_until_listening(free_address().unwrap(), &AtomicBool::new(false))
            .unwrap_err();
        assert!(error.contains("ended by itself (exit status 0)"), "{error}");
        assert!(error.contains("daemon off"), "{error}");
    }

    #[test]
    fn a_running_program_ends_with_its_owner() {
        let running =
            Running::start(Command::new("sleep").arg("60"), &machine::allowed_cpus()).unwrap();
        let pid = running.pid();
        assert!(machine::spent(pid).is_some());
        drop(running);
        assert_eq!(machine::spent(pid), None);
    }
}
