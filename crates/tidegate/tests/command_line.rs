//! The binary as a command: exit codes, stdout and stderr, one request served.
//! In: command lines. Out: passed assertions.
//! Never: listens anywhere but on a unix socket in a folder of the test.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use tidegate_testing::{Signal, command, command_ignoring, run, start};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");

fn tidegate(arguments: &[&str]) -> Output {
    run(command(PROGRAM).args(arguments))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A temporary folder of one test, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("a file can be written");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn valid_file_prints_ok_on_stdout() {
    let folder = Folder::new("good");
    let file = folder.file(
        "good.toml",
        "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"a\"\n\
         [pool.a]\nservers = [\"a:1\", \"b:1\"]\n",
    );
    let output = tidegate(&["check", &file]);
    assert_eq!(output.status.code(), Some(0));
    let printed = text(&output.stdout);
    assert_eq!(printed, format!("{file}: ok, 1 listener, 1 route, 1 pool, 2 servers\n"));
    assert_eq!(text(&output.stderr), "");
    let output = tidegate(&["check", "--json", &file]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&json["ok"], &json["servers"]), (&true.into(), &2.into()));
}

#[test]
fn invalid_file_is_reported_on_stderr_with_exit_code_2() {
    let folder = Folder::new("wrong");
    let file = folder.file("wrong.toml", "[[listener]]\nbind = \":80\"\n");
    for arguments in [["check", &file], ["run", &format!("-c{file}")]] {
        let output = tidegate(&arguments);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(text(&output.stdout), "");
        assert!(text(&output.stderr).contains(&format!("--> {file}:2:8\n")));
    }
    let output = tidegate(&["check", "--json", &file]);
    assert_eq!(output.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(json["errors"][0]["line"], 2);
    assert_eq!(json["errors"][0]["kind"], "value");
}

#[test]
fn unreadable_file_is_named_with_exit_code_2() {
    let folder = Folder::new("unreadable");
    let odd = folder.file("odd.toml", b"a = \"\xff\"");
    for file in [odd.as_str(), "/nowhere/at/all.toml", "/"] {
        let output = tidegate(&["check", file]);
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert!(text(&output.stderr).starts_with(&format!("tidegate: {file}: ")), "{file}");
    }
}

#[test]
fn usage_errors_have_exit_code_2_and_the_schema_goes_to_stdout() {
    for arguments in [&[][..], &["serve"], &["check"], &["run", "--workers", "0"]] {
        assert_eq!(tidegate(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let output = tidegate(&["schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a schema");
    assert_eq!(schema, tidegate_config::schema());
}

/// Connects as soon as the socket exists; fails if the server exits first.
fn connect(path: &str, server: &mut Child) -> UnixStream {
    loop {
        if let Ok(stream) = UnixStream::connect(path) {
            return stream;
        }
        if let Some(status) = server.try_wait().expect("the server can be polled") {
            panic!("the server exited: {status}");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Starts `command` as a server, sends it `signals` and then a request, and ends it with `last`. `check` gets the
/// status of a worker thread (proc(5)); that of the main thread shows no signal as blocked while it waits for one.
fn serve(
    name: &str,
    mut command: Command,
    signals: &[Signal],
    last: Signal,
    check: impl Fn(&str),
) -> ExitStatus {
    let folder = Folder::new(name);
    let socket = folder.0.join("web.sock").display().to_string();
    let file = folder.file(
        "run.toml",
        format!(
            "[[listener]]\nbind = \"unix:{socket}\"\n[[route]]\npath = \"/json\"\n\
             respond = {{ headers = {{ \"content-type\" = \"application/json\" }}, body = '{{}}' }}\n"
        ),
    );
    command.args(["run", "-c", &file, "--workers", "1"]).stderr(Stdio::null());
    let mut server = start(&mut command);
    let mut stream = connect(&socket, &mut server);
    for signal in signals {
        server.send(*signal);
    }
    let request = b"GET /json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the response is read to its end");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{}"), "{answer}");
    let process = server.id().to_string();
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the server runs");
    let worker = tasks.flatten().find(|task| *task.file_name() != *process);
    let status = worker.expect("the server has a worker").path().join("status");
    check(&std::fs::read_to_string(status).expect("the worker runs"));
    server.send(last);
    server.wait()
}

#[test]
fn run_serves_a_request_and_exits_with_0_on_sigterm_and_sigint() {
    for (name, last) in [("term", Signal::TERM), ("int", Signal::INT)] {
        let status = serve(name, command(PROGRAM), &[], last, |_| {});
        assert_eq!(status.code(), Some(0), "{name}");
    }
}

#[test]
fn signals_ignored_at_start_stay_ignored() {
    let bits = |signal: Signal| 1_u64 << (signal.as_raw() - 1);
    let chosen = bits(Signal::HUP) | bits(Signal::INT);
    let check = |status: &str| {
        let mask = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            u64::from_str_radix(line.expect("proc(5) has the field").trim(), 16).expect("a mask")
        };
        assert_eq!(mask("SigIgn:") & chosen, chosen);
        // The kernel keeps a blocked signal even if it is ignored.
        assert_eq!(mask("SigBlk:") & chosen, 0);
        assert_eq!(mask("SigBlk:") & bits(Signal::TERM), bits(Signal::TERM));
    };
    let ignored = [Signal::HUP, Signal::INT, Signal::INT];
    let command = command_ignoring("HUP,INT", PROGRAM);
    let status = serve("ignored", command, &ignored, Signal::TERM, check);
    assert_eq!(status.code(), Some(0));
}
