//! The binary as a command: exit codes, stdout and stderr, one request served.
//! In: command lines. Out: passed assertions.
//! Never: listens anywhere but on a unix socket in a folder of the test, and on free ports of 127.0.0.1.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};

use tidegate_testing::{Signal, Started, command, command_ignoring, run, start};

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
         [pool.a]\nservers = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n",
    );
    let output = tidegate(&["check", &file]);
    assert_eq!(output.status.code(), Some(0));
    let printed = text(&output.stdout);
    assert_eq!(printed, format!("{file}: ok, 1 listener, 1 route, 1 pool, 2 servers\n"));
    assert_eq!(text(&output.stderr), "");
    let output = tidegate(&["check", "--json", &file]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&json["ok"], &json["servers"]), (&true.into(), &2.into()));
    assert!(json["request"].is_null());
    let asked = ["check", "--json", &file, "--request", "GET http://a/x", "--header", "X-A: 1"];
    let output = tidegate(&asked);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let request = &json["request"];
    assert_eq!((&request["route"], &request["listener"]), (&1.into(), &"127.0.0.1:0".into()));
    assert_eq!(request["earlier"], serde_json::json!([]));
    let forwarded = request["forwarded"].as_array().expect("the head");
    assert_eq!(forwarded[0], "GET /x HTTP/1.1");
    assert!(forwarded.iter().any(|line| line.as_str().is_some_and(|line| line.ends_with(": 1"))));
    let output = tidegate(&["check", "--json", &file, "--request", "GET ftp://a/x"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
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
        assert!(text(&output.stderr).ends_with(&format!("\ntidegate: {file}: 1 error\n")));
    }
    let output = tidegate(&["check", "--json", &file]);
    assert_eq!(output.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(json["errors"][0]["line"], 2);
    assert_eq!(json["errors"][0]["kind"], "value");
}

#[test]
fn included_files_and_the_environment_are_read() {
    let folder = Folder::new("include");
    std::fs::create_dir_all(folder.0.join("conf.d")).expect("a folder can be made");
    let file = folder
        .file("main.toml", "include = [\"conf.d/*.toml\"]\n[[listener]]\nbind = \"127.0.0.1:0\"\n");
    folder.file("secret", "s3cret\n");
    folder.file("conf.d/2.toml", "[pool.a]\nservers = [\"${TIDEGATE_TEST_SERVER}\"]\n");
    let routes =
        folder.file("conf.d/1.toml", "[[route]]\nhost = \"${file:secret}\"\nproxy = \"a\"\n");
    folder.file("conf.d/1.toml.orig", "not TOML");
    let check = |server: Option<&str>| {
        let mut command = command(PROGRAM);
        command.args(["check", &file]).env_remove("TIDEGATE_TEST_SERVER");
        run(command.envs(server.map(|server| ("TIDEGATE_TEST_SERVER", server))))
    };
    let output = check(Some("127.0.0.1:1"));
    assert_eq!(
        text(&output.stdout),
        format!("{file}: ok, 1 listener, 1 route, 1 pool, 1 server\n")
    );
    let wrong = text(&check(None).stderr);
    assert!(wrong.contains("the environment has no variable of this name"), "{wrong}");
    assert!(wrong.contains("conf.d/2.toml:2:13\n"), "{wrong}");
    std::fs::write(&routes, "[[route]]\nproxy = 1\n").expect("it can be written");
    let wrong = text(&check(Some("127.0.0.1:1")).stderr);
    assert!(wrong.contains(&format!("--> {routes}:2:9\n")), "{wrong}");
    std::fs::write(&file, "include = [\"none.toml\"]\n").expect("it can be written");
    let wrong = text(&check(None).stderr);
    assert!(wrong.contains(&format!("--> {file}:1:12\n")), "{wrong}");
}

#[test]
fn usage_error_has_the_prefix_of_all_errors() {
    for arguments in [&["run", "--nope"][..], &["check"], &["bench", "nope"]] {
        let output = tidegate(arguments);
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(message.starts_with("tidegate: ") && message.contains("Usage: "), "{message}");
    }
    assert!(text(&tidegate(&["--version"]).stdout).starts_with("tidegate "));
}

#[test]
fn negative_values_of_a_profile_get_the_allowed_ones() {
    for (arguments, expected) in [
        (&["-1s"][..], "is not a duration of up to 5m"),
        (&["--hertz", "-1"], "1..=999"),
        (&["--worker", "-1"], "0..=65535"),
    ] {
        let output =
            tidegate(&[&["ctl", "--at", "127.0.0.1:1", "profile"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(message.starts_with("tidegate: ") && message.contains(expected), "{message}");
    }
}

#[test]
fn words_of_other_servers_get_the_command_to_run_instead() {
    for (arguments, help) in [
        (&["-t"][..], "run: tidegate check FILE"),
        (&["-c", "a.toml"], "run: tidegate run FILE"),
        (&["a.toml"], "run: tidegate run FILE; to check a file: tidegate check FILE"),
        (&["reload"], "send SIGHUP"),
        (&["-s", "stop"], "send SIGTERM"),
        (&["-v"], "tidegate --version"),
        (&["status"], "tidegate ctl show stat"),
    ] {
        let output = tidegate(arguments);
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(message.starts_with("tidegate: ") && message.contains("Usage: "), "{message}");
        assert!(message.contains("\nhelp: ") && message.contains(help), "{message}");
    }
    assert!(!text(&tidegate(&["run", "--nope"]).stderr).contains("help: "));
}

#[test]
fn check_and_run_report_files_and_names_at_their_places() {
    let folder = Folder::new("places");
    std::fs::create_dir_all(folder.0.join("etc")).expect("a folder can be made");
    folder.file("etc/broken.pem", "no certificate");
    let content = "[[listener]]\nname = \"web\"\nbind = \"127.0.0.1:0\"\n[listener.tls]\n\
                   certificates = [\n  { cert = \"missing.pem\", key = \"missing.key\" },\n]\n\
                   [[route]]\nproxy = \"app\"\n[pool.app]\n\
                   servers = [\"127.0.0.1:1\", \"no-such-name.invalid:80\"]\n\
                   tls = { ca = \"broken.pem\" }\n";
    let file = folder.file("etc/site.toml", content);
    // The paths are relative to the file, whatever the working directory is.
    let output = tidegate(&["check", &file]);
    assert_eq!(output.status.code(), Some(2));
    let messages = text(&output.stderr);
    for place in ["6:12", "6:33", "11:27", "12:14"] {
        assert!(messages.contains(&format!("--> {file}:{place}\n")), "{place}: {messages}");
    }
    let missing =
        format!("error: {}: cannot be read: ", folder.0.join("etc/missing.pem").display());
    assert!(messages.contains(&missing), "{messages}");
    assert!(messages.contains("error: no-such-name.invalid:80: the name "), "{messages}");
    let output = tidegate(&["run", &file]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr), messages, "run prints what check prints");
    let output = tidegate(&["check", "--json", "--offline", &file]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let errors = json["errors"].as_array().expect("the errors");
    let lines: Vec<_> = errors.iter().map(|error| error["line"].as_u64()).collect();
    assert_eq!(lines, [Some(6), Some(6), Some(12)], "{json}");
    assert!(errors.iter().all(|error| error["kind"] == "certificate"), "{json}");
}

#[test]
fn check_and_run_report_paths_at_which_the_start_would_fail() {
    let folder = Folder::new("paths");
    folder.file("empty", " \n");
    folder.file("short", "01234\n");
    std::fs::create_dir_all(folder.0.join("sub")).expect("a folder can be made");
    for (settings, place, expected) in [
        ("bind = \"0.0.0.0:0\"\ntoken-file = \"none\"", "2:14", "the token cannot be read: "),
        (
            "bind = \"127.0.0.1:0\"\ntoken-file = \"empty\"",
            "2:14",
            "the file of the token is empty",
        ),
        ("bind = \"0.0.0.0:0\"\ntoken-file = \"short\"", "2:14", "the token has 5 characters"),
        ("bind = \"127.0.0.1:0\"\ntoken-file = \"short\"", "", ""),
        ("bind = \"unix:none/s\"", "1:8", "the folder "),
        ("bind = \"unix:empty\"", "1:8", "a file that is not a socket exists at this path"),
        ("bind = \"unix:s\"", "", ""),
        ("bind = \"127.0.0.1:1\"", "1:8", "already has this address"),
        ("bind = \"127.0.0.1:0\"\n[log.access]\nto = \"file:none/x\"", "3:6", "the folder "),
        ("bind = \"127.0.0.1:0\"\n[log.access]\nto = \"file:sub\"", "3:6", "the path is a folder"),
        (
            "bind = \"127.0.0.1:0\"\n[log.access]\nto = \"file:a.toml\"",
            "3:6",
            "the configuration file itself",
        ),
        ("bind = \"127.0.0.1:0\"\n[log.access]\nto = \"file:x\"", "", ""),
    ] {
        let (before, after) =
            ("[admin]\n", "\n[[listener]]\nbind = \"127.0.0.1:1\"\n[[route]]\nrespond = {}\n");
        let file = folder.file("a.toml", format!("{before}{settings}{after}"));
        let output = tidegate(&["check", &file]);
        let messages = text(&output.stderr);
        if place.is_empty() {
            assert_eq!((output.status.code(), messages.as_str()), (Some(0), ""), "{settings}");
            continue;
        }
        let (line, column) = place.split_once(':').expect("a place");
        let line = line.parse::<usize>().expect("a number") + 1;
        assert_eq!(output.status.code(), Some(2), "{settings}");
        assert!(
            messages.contains(&format!("--> {file}:{line}:{column}\n")),
            "{settings}: {messages}"
        );
        assert!(
            messages.contains(expected) && messages.contains("= help: "),
            "{settings}: {messages}"
        );
        let output = tidegate(&["run", &file]);
        assert_eq!(output.status.code(), Some(2), "{settings}");
        assert_eq!(text(&output.stderr), messages, "run prints what check prints");
    }
    assert!(!folder.0.join("x").exists(), "check creates no file");
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
/// Goal: the help of each command fits a terminal of 80 columns. Method: the commands are read from the help itself.
#[test]
fn help_fits_eighty_columns() {
    let mut commands = vec![Vec::<String>::new()];
    let mut seen = 0;
    while let Some(words) = commands.pop() {
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--help");
        let output = tidegate(&arguments);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let help = text(&output.stdout);
        seen += 1;
        let mut is_list = false;
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{words:?}: {line}");
            is_list = line == "Commands:" || is_list && !line.is_empty();
            let name = line.strip_prefix("  ").filter(|rest| is_list && !rest.starts_with(' '));
            let name = name.and_then(|rest| rest.split_whitespace().next());
            if let Some(name) = name.filter(|name| *name != "help") {
                commands.push([&words[..], &[name.to_owned()]].concat());
            }
        }
    }
    assert!(seen > 15, "the help of {seen} commands was read");
}

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

/// Starts the binary with stderr piped, and returns its messages up to the first listening address.
fn listen(arguments: &[&str]) -> (Started, Lines<BufReader<ChildStderr>>, String, SocketAddr) {
    let mut serving = start(command(PROGRAM).args(arguments).stderr(Stdio::piped()));
    let stderr = serving.stderr.take().expect("stderr is piped");
    let mut lines = BufReader::new(stderr).lines();
    let mut messages = String::new();
    for line in lines.by_ref() {
        let line = line.expect("stderr is text");
        messages.push_str(&format!("{line}\n"));
        if let Some((_, rest)) = line.split_once("listening on http://") {
            let address = rest.split('/').next().and_then(|text| text.parse().ok());
            return (serving, lines, messages, address.expect("an address is printed"));
        }
    }
    panic!("the server exited: {messages}");
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the response is read to its end");
    answer
}

#[test]
fn embedded_configuration_needs_one_port_and_takes_the_next_one_if_it_is_busy() {
    let (_first, _lines, messages, first) = listen(&["run"]);
    let note = format!("tidegate: open http://{first}/ ");
    assert!(messages.contains(&note), "{messages}");
    assert_eq!(messages.matches("tidegate: listening on").count(), 1, "{messages}");
    assert!(get(first, "/proxied/json").contains("through the proxy"));
    let (second, _lines, messages, address) = listen(&["run"]);
    assert!(address.port() > first.port(), "{messages}");
    assert!(messages.contains(" is in use by process "), "{messages}");
    assert!(messages.contains(&format!("; listening on {address} instead\n")), "{messages}");
    drop(second);
    let busy = first.to_string();
    let output = tidegate(&["run", "--bind", &busy]);
    assert_eq!(output.status.code(), Some(2), "an address that the user chose is not changed");
    assert!(text(&output.stderr).contains(&format!("cannot listen on {busy}: process ")));
}

#[test]
fn server_that_cannot_be_reached_is_named_in_the_log() {
    let folder = Folder::new("down");
    // Port 1 of loopback is free on every machine that runs the tests.
    let file = folder.file(
        "down.toml",
        "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"app\"\n\
         [pool.app]\nservers = [\"127.0.0.1:1\"]\nretries = 0\n",
    );
    let (_serving, mut lines, _, address) = listen(&["run", &file]);
    assert!(get(address, "/").starts_with("HTTP/1.1 502 "));
    let line = lines.next().expect("a line is printed").expect("stderr is text");
    let expected = "Z warning pool app: server 127.0.0.1:1: could not connect to the server";
    assert!(line.ends_with(expected), "{line}");
}

#[test]
fn bind_replaces_the_address_of_the_only_listener() {
    let folder = Folder::new("bind");
    let listener = "[[listener]]\nname = \"NAME\"\nbind = \"192.0.2.1:1\"\n";
    let route = "[[route]]\nrespond = { body = \"from the file\" }\n";
    let one = folder.file("one.toml", format!("{listener}{route}"));
    for arguments in
        [&["run", &one, "--bind", "127.0.0.1:0"], &["run", "--bind=127.0.0.1:0", "-c", &one]]
    {
        let (_serving, _lines, _, address) = listen(arguments);
        assert!(get(address, "/").ends_with("from the file"));
    }
    let (_serving, _lines, _, address) = listen(&["run", "--bind", "127.0.0.1:0"]);
    assert!(get(address, "/proxied/json").contains("through the proxy"));
    let second = listener.replace("NAME", "other").replace(":1", ":2");
    let two = folder.file("two.toml", format!("{listener}{second}{route}"));
    let output = tidegate(&["run", &two, "--bind", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("has 2: NAME, other;"), "{}", text(&output.stderr));
    assert_eq!(tidegate(&["run", &one, "-c", &one]).status.code(), Some(2));
}

#[test]
fn sighup_without_a_file_states_that_nothing_is_read() {
    let (serving, mut lines, _, address) = listen(&["run", "--bind", "127.0.0.1:0"]);
    assert!(get(address, "/json").starts_with("HTTP/1.1 200 "));
    serving.send(Signal::HUP);
    let line = lines.next().expect("a line is printed").expect("stderr is text");
    assert!(line.contains("Z warning SIGHUP: no configuration was reloaded"), "{line}");
}

/// Reads lines up to one that contains `end`; returns them.
fn lines_until(lines: &mut Lines<BufReader<ChildStderr>>, end: &str) -> Vec<String> {
    let mut read = Vec::new();
    for line in lines {
        read.push(line.expect("stderr is text"));
        if read.last().is_some_and(|line| line.contains(end)) {
            return read;
        }
    }
    panic!("{end:?} was not printed: {read:?}");
}

#[test]
fn sighup_applies_the_file_or_refuses_it_as_a_whole() {
    let folder = Folder::new("reload");
    let first = "[server]\nworkers = 2\n[[listener]]\nbind = \"127.0.0.1:0\"\n";
    let route = |text: &str| format!("[[route]]\nrespond = {{ body = {text:?} }}\n");
    let file = folder.file("reload.toml", format!("{first}{}", route("first")));
    let (serving, mut lines, _, address) = listen(&["run", &file]);
    assert!(get(address, "/").ends_with("first"));
    // Another listener, another route, and a setting that cannot change.
    let second = first.replace("workers = 2", "workers = 1");
    let listener = "[[listener]]\nname = \"added\"\nbind = \"127.0.0.1:0\"\n";
    folder.file("reload.toml", format!("{second}{listener}{}", route("second")));
    serving.send(Signal::HUP);
    let read = lines_until(&mut lines, "configuration reloaded");
    assert!(read[0].ends_with("server.workers has changed, which takes effect after a restart"));
    let (_, added) = read[1].split_once("; opened ").expect("the listener is named");
    let added: SocketAddr = added.parse().expect("an address");
    assert!(get(address, "/").ends_with("second") && get(added, "/").ends_with("second"));
    // One mistake, and nothing changes.
    folder.file("reload.toml", format!("{first}{}colour = 1\n", route("third")));
    serving.send(Signal::HUP);
    let read = lines_until(&mut lines, "1 error");
    assert!(read[0].contains("Z error the configuration was not reloaded"), "{read:?}");
    assert!(read.iter().any(|line| line.ends_with("reload.toml:7:1")), "{read:?}");
    assert!(get(address, "/").ends_with("second") && get(added, "/").ends_with("second"));
    // A name that does not exist is a mistake, too, and an address in use is one.
    let pool = "[[route]]\npath = \"/p\"\nproxy = \"p\"\n[pool.p]\nservers = [\"no.invalid:1\"]\n";
    folder.file("reload.toml", format!("{first}{pool}"));
    serving.send(Signal::HUP);
    let read = lines_until(&mut lines, "1 error");
    assert!(read.iter().any(|line| line.contains("the name cannot be resolved")), "{read:?}");
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let other_at = other.local_addr().expect("it is bound");
    let taken = format!("[[listener]]\nname = \"taken\"\nbind = \"{other_at}\"\n");
    folder.file("reload.toml", format!("{first}{taken}{}", route("third")));
    serving.send(Signal::HUP);
    lines_until(&mut lines, "cannot listen on ");
    assert!(get(address, "/").ends_with("second") && get(added, "/").ends_with("second"));
    // The added listener goes.
    folder.file("reload.toml", format!("{first}{}", route("fourth")));
    serving.send(Signal::HUP);
    let read = lines_until(&mut lines, "configuration reloaded");
    assert!(read.last().is_some_and(|line| line.ends_with(&format!("; closed {added}"))));
    assert!(get(address, "/").ends_with("fourth"));
    assert!(TcpStream::connect(added).is_err(), "the listener is closed");
}

/// Starts `command` as a server, sends it `signals` and then a request, and ends it with `last`. `check` gets the
/// status of a worker thread (proc(5)). The status of the main thread shows no blocked signal while it waits for one.
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
    // Not any other thread: one that has not run yet still blocks all signals.
    let is_worker = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm"))
            .is_ok_and(|name| name.starts_with("worker-"))
    };
    let worker = tasks.flatten().find(is_worker);
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

#[test]
fn tests_of_lua_applications_end_with_counts_and_an_exit_code() {
    let folder = Folder::new("lua-test");
    folder.file("a.lua", "return { on_request = function(_, response) response:finish('hi') end }");
    let path = folder.0.display().to_string();
    let none = tidegate(&["lua", "test", &path]);
    assert_eq!(none.status.code(), Some(2));
    assert_eq!(text(&none.stderr), format!("tidegate: {path}: no file ends with _test.lua\n"));
    let right = "one = function() assert(tide.test.request().body == 'hi') tide.sleep(3600) end,";
    folder.file("a_test.lua", format!("return {{ {right} }}"));
    let passed = tidegate(&["lua", "test", &path]);
    let line = format!("ok    {path}/a_test.lua: one (3600.00 s)\n");
    assert_eq!(text(&passed.stdout), format!("{line}1 passed, 0 failed\n"));
    assert_eq!((passed.status.code(), text(&passed.stderr)), (Some(0), String::new()));
    folder
        .file("a_test.lua", format!("return {{ {right} two = function() error('wrong', 0) end }}"));
    let failed = tidegate(&["lua", "test", &path]);
    let printed = text(&failed.stdout);
    assert!(printed.starts_with(&line) && printed.ends_with("\n1 passed, 1 failed\n"), "{printed}");
    assert!(printed.contains("FAIL") && printed.contains("\n        wrong\n"), "{printed}");
    assert_eq!(failed.status.code(), Some(1));
    folder.file("a_test.lua", "return {");
    assert_eq!(tidegate(&["lua", "test", &path]).status.code(), Some(2));
}
