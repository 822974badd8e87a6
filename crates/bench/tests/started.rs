//! The command ends all processes that it starts, however the command itself ends.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Instant;
use tidegate_testing::{LIFE_MAX, Signal, Started, command, command_ignoring, example, run, start};

/// The example program with the command.
fn program() -> PathBuf {
    example("bench")
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}/")
}

/// A command line for `--start`: the floor server.
fn floor(address: SocketAddr) -> String {
    format!("{} bench floor --listen {address}", program().display())
}

fn bench(arguments: &[&str]) -> Command {
    bench_by(command(program()), arguments)
}

fn bench_by(mut command: Command, arguments: &[&str]) -> Command {
    command.args(["bench", "http"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Processes, including zombies, whose command line contains all of `words`.
fn processes(words: &[&str]) -> Vec<i32> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        words.iter().all(|word| line.contains(word)).then_some(pid)
    });
    pids.collect()
}

/// Waits until `is_so` returns true; panics after `LIFE_MAX`.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIFE_MAX, "not {what} after {LIFE_MAX:?}");
        thread::yield_now();
    }
}

/// A directory of one test, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("tidegate-started-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Creates a named pipe, by which a script and its test synchronise without sleeping.
    fn pipe(&self) -> Pipe {
        let path = self.path("pipe");
        assert!(run(command("mkfifo").arg(&path)).status.success());
        // Opened for both directions, so that no open of the pipe waits for another process (fifo(7)).
        let file = File::options().read(true).write(true).open(&path).unwrap();
        Pipe { path, file }
    }
}

/// A named pipe. `Display` prints its path.
struct Pipe {
    path: String,
    file: File,
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

impl Pipe {
    /// Waits until a script writes an empty line, and reads the line.
    fn wait_for_line(&mut self) {
        let limit = Timespec { tv_sec: LIFE_MAX.as_secs() as i64, tv_nsec: 0 };
        let mut readable = [PollFd::new(&self.file, PollFlags::IN)];
        assert_eq!(poll(&mut readable, Some(&limit)), Ok(1), "no line in {LIFE_MAX:?}");
        let mut line = [0];
        self.file.read_exact(&mut line).unwrap();
        assert_eq!(line, [b'\n']);
    }

    fn write_line(&mut self) {
        self.file.write_all(b"\n").unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn server_started_through_a_shell_ends_with_the_run() {
    let address = free_address();
    let shell = format!("sh -c '{}; true'", floor(address));
    let output = run(&mut bench(&[&url(address), "--start", &shell, "-n", "100"]));
    assert_eq!(output.status.code(), Some(0), "{}", error_text(&output));
    assert!(TcpStream::connect(address).is_err());
    wait_until("ended", || processes(&["floor", &address.to_string()]).is_empty());
}

#[test]
fn server_that_goes_to_the_background_is_rejected_and_ended() {
    let address = free_address();
    // The server listens after the started process has ended, in its own session and process group.
    let script = format!(
        "setsid sh -c \"while grep -q State:.[^ZX] /proc/$$/status; do :; done; exec {}\" & exit 0",
        floor(address)
    );
    let shell = format!("sh -c '{script}'");
    let output = run(&mut bench(&[&url(address), "--start", &shell, "-d", "1h"]));
    let text = error_text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("daemon off") && text.contains("exit status 0"), "{text}");
    assert!(output.stdout.is_empty());
    wait_until("ended", || processes(&[&address.to_string()]).is_empty());
}

#[test]
fn process_that_leaves_its_group_is_ended() {
    let (address, folder) = (free_address(), Folder::new("group"));
    let (pipe, marker) = (folder.pipe(), folder.path("marker"));
    // A daemon runs alongside the server; the server starts after the daemon reports that it runs.
    let daemon = format!("setsid sh -c \"echo > {pipe}; exec tail -f /dev/null {marker}\" 2>&-");
    let shell = format!("sh -c '{daemon} & read line < {pipe}; {}; true'", floor(address));
    let output = run(&mut bench(&[&url(address), "--start", &shell, "-n", "100"]));
    assert_eq!(output.status.code(), Some(0), "{}", error_text(&output));
    wait_until("ended", || processes(&[&marker]).is_empty());
}

#[test]
fn run_fails_if_its_server_exits() {
    let (folder, address) = (Folder::new("middle"), free_address());
    let mut pipe = folder.pipe();
    let shell = format!("sh -c '{} & read line < {pipe}; kill $!; exit 3'", floor(address));
    let mut child = start(&mut bench(&[&url(address), "--start", &shell, "-d", "1h", "--lines"]));
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    await_figures(&mut lines);
    let server = children_of(child.id())[0];
    pipe.write_line();
    wait_until("ended", || {
        fs::read_to_string(format!("/proc/{server}/stat")).unwrap().contains(") Z ")
    });
    child.send(Signal::INT);
    let mut report = String::new();
    lines.read_to_string(&mut report).unwrap();
    let output = child.output();
    let text = error_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("did not keep running: the program exited by itself (exit status 3)"),
        "{text}"
    );
    assert!(report.contains("Stopped early"), "{report}");
}

/// Reads the header and the first line of figures.
fn await_figures(lines: &mut impl BufRead) {
    for _ in 0..2 {
        assert_ne!(lines.read_line(&mut String::new()).unwrap(), 0);
    }
}

#[test]
fn missing_program_is_named() {
    let address = free_address();
    for program in ["no-such-program", "/etc/passwd"] {
        let output = run(&mut bench(&[&url(address), "--start", program]));
        let text = error_text(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(&format!("{program}: no such program")), "{text}");
    }
}

/// A comparison whose first candidate runs and whose second candidate never listens.
fn starting(folder: &Folder, first: SocketAddr) -> Started {
    let (second, mut pipe) = (free_address(), folder.pipe());
    let never = format!("sh -c 'echo > {pipe}; exec tail -f /dev/null {}'", folder.path("marker"));
    let child = start(&mut bench(&[
        "--vs",
        &url(first),
        "--vs",
        &url(second),
        "--start",
        &floor(first),
        "--start",
        &never,
    ]));
    // The second candidate has started.
    pipe.wait_for_line();
    child
}

#[test]
fn signal_during_the_start_ends_the_candidates() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (folder, first) = (Folder::new("starting"), free_address());
        let child = starting(&folder, first);
        child.send(signal);
        let output = child.output();
        let text = error_text(&output);
        assert_eq!(output.status.code(), Some(1), "{signal:?}: {text}");
        assert!(text.contains("before the measurement began"), "{text}");
        wait_until("ended", || processes(&["floor", &first.to_string()]).is_empty());
        wait_until("ended", || processes(&[&folder.path("marker")]).is_empty());
    }
}

#[test]
fn second_signal_kills_servers_that_ignore_sigterm() {
    let address = free_address();
    let deaf = format!("sh -c 'trap \"\" TERM; exec {}'", floor(address));
    let mut child = start(&mut bench(&[&url(address), "--start", &deaf, "-d", "1h", "--lines"]));
    // Waits for the first figures.
    await_figures(&mut BufReader::new(child.stdout.as_mut().unwrap()));
    while child.try_wait().unwrap().is_none() {
        child.send(Signal::INT);
        thread::yield_now();
    }
    assert_eq!(child.wait().code(), Some(1));
    wait_until("ended", || processes(&["floor", &address.to_string()]).is_empty());
}

#[test]
fn kernel_ends_the_candidates_of_a_killed_process() {
    let (folder, first) = (Folder::new("killed"), free_address());
    let mut child = starting(&folder, first);
    child.send(Signal::KILL);
    child.wait();
    // The kernel has sent SIGTERM to the candidates; they take some time to end.
    for words in [&["floor", &first.to_string()][..], &[&folder.path("marker")]] {
        wait_until("ended", || processes(words).is_empty());
    }
}

#[test]
fn signals_ignored_at_start_stay_ignored() {
    let nohup = || {
        let mut nohup = command("nohup");
        nohup.arg(program());
        nohup
    };
    let background = || command_ignoring("HUP,INT", program());
    for (command, ignored, last) in [
        (nohup(), &[Signal::HUP][..], Signal::INT),
        (background(), &[Signal::HUP, Signal::INT, Signal::INT], Signal::TERM),
    ] {
        let (folder, first) = (Folder::new("ignored"), free_address());
        let (mut pipe, marker) = (folder.pipe(), folder.path("marker"));
        let never = format!("sh -c 'echo > {pipe}; exec tail -f /dev/null {marker}'");
        let child = start(&mut bench_by(command, &[&url(first), "--start", &never]));
        pipe.wait_for_line();
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        for signal in ignored {
            assert_eq!(mask >> (signal.as_raw() - 1) & 1, 1, "{signal:?} should still be ignored");
            child.send(*signal);
        }
        child.send(last);
        let output = child.output();
        assert_eq!(output.status.code(), Some(1), "{}", error_text(&output));
        wait_until("ended", || processes(&[&marker]).is_empty());
    }
}

#[test]
fn signal_ends_the_servers_of_a_comparison_and_removes_their_directory() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = Folder::new("compare");
        let mut command = command(program());
        command
            .args(["bench", "compare", "json", "--only", "floor", "--rounds", "1000", "--json"])
            .env("TMPDIR", &folder.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = start(&mut command);
        let mut server = None;
        wait_until("running a server", || {
            server = children_of(child.id()).into_iter().find(|pid| is_floor(*pid));
            server.is_some()
        });
        let server = server.unwrap();
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
        child.send(signal);
        let output = child.output();
        let text = error_text(&output);
        assert_eq!(output.status.code(), Some(1), "{signal:?}: {text}");
        assert!(text.contains("stopped by a signal"), "{text}");
        assert!(!is_floor(server), "{server} still runs");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }
}

fn children_of(pid: u32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn is_floor(pid: i32) -> bool {
    let line = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"));
    String::from_utf8_lossy(&line.unwrap_or_default()).contains("floor\0--listen")
}
