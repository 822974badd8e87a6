//! Other programs of a comparison: started on CPUs of their own, waited for, stopped.
//! In: a command line. Out: a running process that ends with its owner.
//! Never: starts anything on a port that is taken: with SO_REUSEPORT a forgotten server would
//! silently take a part of the load.
//! Limits: `START_MAX`, `STOP_MAX`.

use crate::machine;
use core::net::SocketAddr;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take until it listens.
pub const START_MAX: Duration = Duration::from_secs(15);
/// How long a program may take to end when it is asked to.
pub const STOP_MAX: Duration = Duration::from_secs(3);

const POLL: Duration = Duration::from_millis(2);
/// How long a connection to a port may take until the port counts as silent.
const KNOCK_MAX: Duration = Duration::from_millis(300);
/// Answers of the network that nobody is there.
const SAYS_NOBODY: [io::ErrorKind; 3] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::HostUnreachable,
    io::ErrorKind::NetworkUnreachable,
];

/// A program that runs as long as this value lives.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts `command` on `cpus`, without input and output.
    ///
    /// # Errors
    /// When the program or the CPU is not there.
    pub fn start(command: &mut Command, cpus: &[usize]) -> io::Result<Self> {
        let before = machine::allowed_cpus();
        machine::pin(cpus)?;
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        machine::pin(&before)?;
        Ok(Self { child: child? })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until something listens on `address`.
    ///
    /// # Errors
    /// A sentence for the operator, when the program ended or nothing listens after [`START_MAX`].
    pub fn wait_until_listening(&mut self, address: SocketAddr) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            if is_answering(address) {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("ended before it listened on {address} ({status})"));
            }
            if begun.elapsed() > START_MAX {
                return Err(format!("nothing listens on {address} after {START_MAX:?}"));
            }
            thread::sleep(POLL);
        }
    }

    /// How it ended, when it has.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| format!("it ended: {status}"))
    }

    fn stop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            // A process that is gone already needs no signal.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let begun = Instant::now();
            while begun.elapsed() < STOP_MAX {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                thread::sleep(POLL);
            }
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
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

/// Where `program` lies: in PATH or where systems keep their servers.
#[must_use]
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
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
        let mut running =
            Running::start(&mut Command::new("true"), &machine::allowed_cpus()).unwrap();
        let error = running.wait_until_listening(free_address().unwrap()).unwrap_err();
        assert!(error.contains("ended before it listened"), "{error}");
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
