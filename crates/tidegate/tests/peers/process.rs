//! Finds, starts and stops third-party programs; makes folders and addresses that no other test uses.
//! In: the name of a program and its package. Out: a process that is killed when its owner is dropped.
//! Limits: `READY_MAX` until a program listens.
//! Invariant: no process outlives the test that started it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tidegate_testing::{Signal, Started, command, start};

pub use tidegate_testing::run;

/// Longest wait until a program is ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// Time between two checks whether a program is ready.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// The path of the program; panics with the name of its package if it is missing.
pub fn program(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Prefer the distribution's programs, because install-peers.sh installs its packages.
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

/// Runs a program, which must exit with success; returns its standard output.
pub fn run_well(command: &mut Command) -> String {
    let output = run(command);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A free address: a loopback address of its own with a port chosen by the kernel.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let (pid, count) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let [_, _, high, low] = pid.to_be_bytes();
    let own = Ipv4Addr::new(127, 64 | (high & 63), low, (count % 254 + 1) as u8);
    let listener = TcpListener::bind((own, 0)).expect("the kernel has a port");
    listener.local_addr().expect("a bound socket has an address")
}

/// A temporary folder of one test, removed when the test ends.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = format!("tidegate-peers-{}-{number}-{name}", std::process::id());
        let path = std::env::temp_dir().join(own);
        // A killed run whose process had the same id may have disconnected it.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a folder can be made");
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

    /// A sparse file of `bytes` zeros, which takes no disk space.
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

/// A process that is killed when this value is dropped.
pub struct Process(Started);

impl Process {
    pub fn spawn(command: &mut Command) -> Self {
        Self(start(command.stdin(Stdio::null())))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub fn signal(&self, signal: Signal) {
        self.0.send(signal);
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.0.wait()
    }

    /// Waits until `address` accepts connections.
    pub fn wait_for_listener(&mut self, address: SocketAddr) {
        self.wait_until(&format!("listening on {address}"), || TcpStream::connect(address).is_ok());
    }

    /// Waits until `ready` returns true; panics if the process exits first.
    pub fn wait_until(&mut self, what: &str, mut ready: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !ready() {
            if let Some(status) = self.0.try_wait().expect("the process can be polled") {
                panic!("the process exited ({status}) before it was {what}");
            }
            assert!(begin.elapsed() < READY_MAX, "not {what} for {READY_MAX:?}");
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// The first line of output, which contains the listening address.
    pub fn first_line(&mut self) -> String {
        let stdout: ChildStdout = self.0.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("stdout can be read");
        assert!(line.ends_with('\n'), "the process exited before it printed its address");
        line.trim_end().to_owned()
    }
}

/// Opens a page in Chromium without a window. Returns its console's messages until one contains `end`, or all if it ends.
pub fn console_of_page(folder: &Folder, url: &str, end: &str) -> String {
    let mut command = command(program("chromium", "chromium"));
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
    ]);
    command.args([
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]);
    command.args(["--disable-dev-shm-usage", "--ignore-certificate-errors", "--no-proxy-server"]);
    command.arg(format!("--user-data-dir={}", folder.join("profile")));
    command.args(["--enable-logging=stderr", url]);
    let mut process = Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let messages = BufReader::new(process.child().stderr.take().expect("stderr is piped"));
    let mut seen = String::new();
    for line in messages.split(b'\n') {
        seen += &String::from_utf8_lossy(&line.expect("stderr can be read"));
        seen.push('\n');
        if seen.contains(end) {
            break;
        }
    }
    process.terminate();
    process.wait();
    seen
}
