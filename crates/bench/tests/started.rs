//! The command ends all processes that it starts, however the command itself ends.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

/// The example program with the command; Cargo builds it with this test.
fn program() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let program = deps.parent().unwrap().parent().unwrap().join("examples/bench");
    assert!(program.is_file(), "{} is missing: run cargo test without --test", program.display());
    program
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
    let mut command = Command::new(program());
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

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
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

    /// Creates a named pipe, with which a script and its test synchronise without a clock.
    fn pipe(&self) -> String {
        let path = self.path("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
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
    let output = bench(&[&url(address), "--start", &shell, "-n", "100"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", error_text(&output));
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(processes(&["floor", &address.to_string()]), []);
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
    let output = bench(&[&url(address), "--start", &shell, "-d", "1h"]).output().unwrap();
    let text = error_text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("daemon off") && text.contains("exit status 0"), "{text}");
    assert!(output.stdout.is_empty());
    assert_eq!(processes(&[&address.to_string()]), []);
}

#[test]
fn process_that_leaves_its_group_is_ended() {
    let (address, folder) = (free_address(), Folder::new("group"));
    let (pipe, marker) = (folder.pipe(), folder.path("marker"));
    // A daemon runs besides the server; the server starts after the daemon reports that it runs.
    let daemon = format!("setsid sh -c \"echo > {pipe}; exec tail -f /dev/null {marker}\" 2>&-");
    let shell = format!("sh -c '{daemon} & read line < {pipe}; {}; true'", floor(address));
    let output = bench(&[&url(address), "--start", &shell, "-n", "100"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", error_text(&output));
    assert_eq!(processes(&[&marker]), []);
}

#[test]
fn server_that_ends_during_the_run_fails_it() {
    let (folder, address) = (Folder::new("middle"), free_address());
    let pipe = folder.pipe();
    let shell = format!("sh -c '{} & read line < {pipe}; kill $!; exit 3'", floor(address));
    let mut child =
        bench(&[&url(address), "--start", &shell, "-d", "1h", "--lines"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    await_figures(&mut lines);
    let server = children_of(child.id())[0];
    fs::write(&pipe, "end\n").unwrap();
    while !fs::read_to_string(format!("/proc/{server}/stat")).unwrap().contains(") Z ") {
        thread::yield_now();
    }
    send(&child, Signal::INT);
    let mut report = String::new();
    lines.read_to_string(&mut report).unwrap();
    let output = child.wait_with_output().unwrap();
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
        let output = bench(&[&url(address), "--start", program]).output().unwrap();
        let text = error_text(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(&format!("{program}: no such program")), "{text}");
    }
}

/// A comparison whose first candidate runs and whose second candidate never listens.
fn starting(folder: &Folder, first: SocketAddr) -> Child {
    let (second, pipe) = (free_address(), folder.pipe());
    let never = format!("sh -c 'echo > {pipe}; exec tail -f /dev/null {}'", folder.path("marker"));
    let child = bench(&[
        "--vs",
        &url(first),
        "--vs",
        &url(second),
        "--start",
        &floor(first),
        "--start",
        &never,
    ])
    .spawn()
    .unwrap();
    // Waits until the second candidate runs.
    fs::read(&pipe).unwrap();
    child
}

#[test]
fn signal_during_the_start_ends_the_candidates() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (folder, first) = (Folder::new("starting"), free_address());
        let child = starting(&folder, first);
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        let text = error_text(&output);
        assert_eq!(output.status.code(), Some(1), "{signal:?}: {text}");
        assert!(text.contains("before the measurement began"), "{text}");
        assert_eq!(processes(&["floor", &first.to_string()]), []);
        assert_eq!(processes(&[&folder.path("marker")]), []);
    }
}

#[test]
fn second_signal_kills_servers_that_ignore_sigterm() {
    let address = free_address();
    let deaf = format!("sh -c 'trap \"\" TERM; exec {}'", floor(address));
    let mut child =
        bench(&[&url(address), "--start", &deaf, "-d", "1h", "--lines"]).spawn().unwrap();
    // Waits for the first figures.
    await_figures(&mut BufReader::new(child.stdout.as_mut().unwrap()));
    while child.try_wait().unwrap().is_none() {
        send(&child, Signal::INT);
        thread::yield_now();
    }
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(processes(&["floor", &address.to_string()]), []);
}

#[test]
fn kernel_ends_the_candidates_of_a_killed_process() {
    let (folder, first) = (Folder::new("killed"), free_address());
    let mut child = starting(&folder, first);
    send(&child, Signal::KILL);
    child.wait().unwrap();
    // The kernel has sent SIGTERM to them; they take some time to end.
    for words in [&["floor", &first.to_string()][..], &[&folder.path("marker")]] {
        while !processes(words).is_empty() {
            thread::yield_now();
        }
    }
}

#[test]
fn hangup_is_ignored_under_nohup() {
    let (folder, first) = (Folder::new("nohup"), free_address());
    let marker = folder.path("marker");
    let never = format!("sh -c 'echo > {}; exec tail -f /dev/null {marker}'", folder.pipe());
    let child = Command::new("nohup")
        .arg(program())
        .args(["bench", "http", &url(first), "--start", &never])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fs::read(folder.path("pipe")).unwrap();
    send(&child, Signal::HUP);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1, 1, "SIGHUP stays ignored");
    send(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", error_text(&output));
    assert_eq!(processes(&[&marker]), []);
}

#[test]
fn signal_ends_the_servers_of_a_comparison_and_removes_their_directory() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = Folder::new("compare");
        let child = Command::new(program())
            .args(["bench", "compare", "json", "--only", "floor", "--rounds", "1000", "--json"])
            .env("TMPDIR", &folder.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let server = || children_of(child.id()).into_iter().find(|pid| is_floor(*pid));
        let server = loop {
            if let Some(pid) = server() {
                break pid;
            }
            thread::yield_now();
        };
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
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
