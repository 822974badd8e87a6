//! The binary as a command: exit codes, stdout and stderr, one request served.
//! In: command lines. Out: passed assertions.
//! Never: listens anywhere but on a unix socket in a folder of the test.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

fn tidegate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).output().expect("the binary runs")
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

/// Kills the server when the test ends, also if it fails.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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

#[test]
fn run_serves_a_request_and_exits_with_0_on_sigterm() {
    let folder = Folder::new("run");
    let socket = folder.0.join("web.sock").display().to_string();
    let file = folder.file(
        "run.toml",
        format!(
            "[[listener]]\nbind = \"unix:{socket}\"\n[[route]]\npath = \"/json\"\n\
             respond = {{ headers = {{ \"content-type\" = \"application/json\" }}, body = '{{}}' }}\n"
        ),
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["run", "-c", &file, "--workers", "1"]).stderr(Stdio::null());
    let mut server = Serving(command.spawn().expect("the binary runs"));
    let mut stream = connect(&socket, &mut server.0);
    let request = b"GET /json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the response is read to its end");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{}"), "{answer}");
    let pid = server.0.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
    assert!(killed.success());
    assert_eq!(server.0.wait().expect("the server exits").code(), Some(0));
}
