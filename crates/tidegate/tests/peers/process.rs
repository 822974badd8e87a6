//! Foreign programs: found, started, stopped by pid; folders and addresses of a test's own.
//! In: a program's name and the package it is in. Out: a process that ends with its owner.
//! Limits: `READY_MAX` for a program to listen.
//! Invariant: nothing outlives the test that started it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A program that does not listen by then never will.
const READY_MAX: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The program's path; fails the test with the package to install.
pub fn program(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The distribution's own come first: its packages are what install-peers.sh brings.
    let usual = ["/usr/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    usual
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| {
            panic!("{name} is missing: run scripts/install-peers.sh or apt-get install {package}")
        })
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{command:?} does not run: {error}"))
}

/// Runs a program to its end, which must be good; returns its standard output.
pub fn run_well(command: &mut Command) -> String {
    let output = run(command);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An address that nobody else uses: a loopback address of its own, a port from the kernel.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let (pid, count) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let [_, _, high, low] = pid.to_be_bytes();
    let own = Ipv4Addr::new(127, 64 | (high & 63), low, (count % 254 + 1) as u8);
    let listener = TcpListener::bind((own, 0)).expect("the kernel has a port");
    listener.local_addr().expect("a bound socket has an address")
}

/// A folder of the test's own, gone when the test ends.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("tidegate-peers-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.join(name), content).expect("a file can be written");
        self.join(name)
    }

    /// A file of that many zeros, which takes no room on the disk.
    pub fn sparse_file(&self, name: &str, bytes: u64) -> String {
        let file = File::create(self.0.join(name)).expect("a file can be made");
        file.set_len(bytes).expect("a file can be extended");
        self.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when its owner goes.
pub struct Process(Child);

impl Process {
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?} does not run: {error}")))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Asks the process to end, as an operator would.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends a signal by its name: `-STOP`.
    pub fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args([signal, &pid]).status().expect("kill runs");
        assert!(status.success(), "process {pid} was gone already");
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.0.wait().expect("the process ends")
    }

    /// Waits until `address` takes connections.
    pub fn wait_for_listener(&mut self, address: SocketAddr) {
        self.wait_until(&format!("listening on {address}"), || TcpStream::connect(address).is_ok());
    }

    /// Waits until `ready`; fails when the process ends first.
    pub fn wait_until(&mut self, what: &str, mut ready: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !ready() {
            if let Some(status) = self.0.try_wait().expect("the process can be asked") {
                panic!("the process ended ({status}) before it was {what}");
            }
            assert!(begin.elapsed() < READY_MAX, "not {what} for {READY_MAX:?}");
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The first line that the process prints, which says where it listens.
    pub fn first_line(&mut self) -> String {
        let stdout: ChildStdout = self.0.stdout.take().expect("its output is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("its output can be read");
        assert!(line.ends_with('\n'), "the process ended before it said where it listens");
        line.trim_end().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
