//! The access log of a running process: its file, its rotation, standard output, a reader that stops reading.
//! In: requests of curl and raw sockets. Out: exactly one line for each request, in the file that is open.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;
use tidegate_testing::{Signal, command};

use crate::process::{Folder, Process, free_address, run_well};
use crate::requests::curl;

/// The configuration with this access log.
fn config(address: SocketAddr, access: &str) -> String {
    format!(
        "[log]\naccess = {access}\n[[listener]]\nname = \"web\"\nbind = \"{address}\"\n\
         [[route]]\npath = \"/gone\"\nproxy = \"app\"\n\
         [[route]]\npath = \"/json\"\nrespond = {{ body = \"{{}}\" }}\n\
         [[route]]\npath = \"/push/*\"\npush = \"p\"\n[push.p]\napi-keys = [\"0123456789abcdef\"]\n\
         [pool.app]\nservers = [\"127.0.0.1:1\"]\nretries = 0\n"
    )
}

fn start(folder: &Folder, address: SocketAddr, access: &str, stdout: Stdio) -> Process {
    let file = folder.file("tidegate.toml", config(address, access));
    let mut command: Command = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = Process::spawn(command.args(["run", &file]).stdout(stdout));
    process.wait_for_listener(address);
    process
}

fn lines(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Whether a thread of the process has the file open.
fn has_open(process: u32, path: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_dir(task.path().join("fd")).ok())
        .flat_map(|descriptors| descriptors.flatten())
        .filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok())
        .any(|link| link.as_os_str() == path)
}

#[test]
fn each_request_is_a_line_and_rotation_loses_none() {
    let folder = Folder::new("access-log");
    let address = free_address();
    let (path, old) = (folder.join("access.log"), folder.join("access.log.1"));
    let access =
        format!("{{ to = {:?}, request-headers = [\"user-agent\"] }}", format!("file:{path}"));
    let mut process = start(&folder, address, &access, Stdio::null());
    let get = |target: &str| {
        run_well(curl().args(["-A", "a\"b"]).arg(format!("http://{address}{target}")))
    };
    assert_eq!(get("/json?page=1"), "{}");
    process.wait_until("the first line", || lines(&path).len() == 1);
    let line: Value = serde_json::from_str(&lines(&path)[0]).expect("a line is JSON");
    assert_eq!(line["target"], "/json?page=1");
    assert_eq!(line["host"], address.to_string());
    assert_eq!(
        (&line["status"], &line["route"], &line["end"]),
        (&200.into(), &"/json".into(), &"LR--".into())
    );
    assert_eq!(line["request_headers"]["user-agent"], "a\"b");
    assert!(line["client"].as_str().is_some_and(|client| client.starts_with("127.0.0.1:")));
    // logrotate renames the file and sends the signal.
    std::fs::rename(&path, &old).expect("the file exists");
    assert_eq!(get("/json?page=2"), "{}");
    process.wait_until("the second line in the renamed file", || lines(&old).len() == 2);
    process.signal(Signal::USR1);
    process.wait_until("a new file", || std::path::Path::new(&path).exists());
    // Also not by a worker, each of which has its own table of descriptors: the space of a deleted file would stay in use.
    let id = process.pid();
    process.wait_until("no thread with the renamed file", || !has_open(id, &old));
    assert!(get("/gone").contains("could not connect"));
    let mut client = TcpStream::connect(address).expect("it listens");
    client.write_all(b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n").expect("the connection is open");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("the response ends");
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
    // The last lines are written before the process ends.
    process.terminate();
    assert!(process.wait().success());
    let mut values: Vec<Value> = lines(&path)
        .iter()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect();
    assert_eq!(values.len(), 2, "{values:?}");
    // The lines of two workers may be in any order.
    values.sort_by_key(|value| core::cmp::Reverse(value["status"].as_u64()));
    assert_eq!(values[0]["end"], "SC--");
    assert_eq!((&values[0]["status"], &values[0]["fault"]), (&502.into(), &"server".into()));
    assert_eq!((&values[0]["pool"], &values[0]["server"]), (&"app".into(), &"127.0.0.1:1".into()));
    assert_eq!((&values[1]["status"], &values[1]["end"]), (&400.into(), &"PR--".into()));
    assert!(values[1].get("method").is_none(), "{}", values[1]);
}

#[test]
fn token_of_a_push_client_is_not_written() {
    let folder = Folder::new("access-log-push");
    let address = free_address();
    let path = folder.join("access.log");
    let access = format!("{{ to = {:?} }}", format!("file:{path}"));
    let mut process = start(&folder, address, &access, Stdio::null());
    // The hub has no token secret, so it ends the stream.
    let command =
        "cf_connect=%7B%22id%22%3A1%2C%22connect%22%3A%7B%22token%22%3A%22s3cret%22%7D%7D";
    run_well(curl().arg(format!("http://{address}/push/connection/sse?{command}")));
    process.wait_until("the line", || lines(&path).len() == 1);
    let line: Value = serde_json::from_str(&lines(&path)[0]).expect("a line is JSON");
    assert_eq!(line["target"], "/push/connection/sse");
    let host = line["host"].clone();
    run_well(curl().arg(format!("http://{address}/push/subscribe/x?since=a:1&token=s3cret")));
    process.wait_until("the second line", || lines(&path).len() == 2);
    let line: Value = serde_json::from_str(&lines(&path)[1]).expect("a line is JSON");
    assert_eq!((&line["target"], &line["host"]), (&"/push/subscribe/x".into(), &host));
    assert!(!lines(&path).concat().contains("s3cret"), "{line}");
    // What belongs to another route is written as before.
    run_well(curl().arg(format!("http://{address}/json?token=plain")));
    process.wait_until("the third line", || lines(&path).len() == 3);
    assert!(lines(&path)[2].contains("/json?token=plain"));
}

#[test]
fn reader_of_stdout_that_stops_delays_no_request() {
    /// More lines than the pipe and the queue hold.
    const REQUESTS: usize = 40_000;
    let folder = Folder::new("access-log-stdout");
    let address = free_address();
    let access = "{ to = \"stdout\", format = \"http\" }";
    let mut process = start(&folder, address, access, Stdio::piped());
    let target = "x".repeat(2000);
    let mut client = TcpStream::connect(address).expect("it listens");
    let request = format!("HEAD /{target} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut reader = client.try_clone().expect("a socket can be cloned");
    let sender = std::thread::spawn(move || {
        for _ in 0..REQUESTS {
            client.write_all(request.as_bytes()).expect("the connection is open");
        }
        client
    });
    let (mut answers, mut buffer) = (Vec::new(), [0; 65536]);
    let mut seen = 0;
    while seen < REQUESTS {
        let count = reader.read(&mut buffer).expect("the connection is open");
        assert!(count > 0, "closed after {seen} responses");
        answers.extend_from_slice(&buffer[..count]);
        while let Some(end) = answers.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            answers.drain(..end + 4);
            seen += 1;
        }
    }
    drop(sender.join().expect("the sender ends"));
    let mut stdout = process.child().stdout.take().expect("a pipe");
    process.terminate();
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).expect("lines are text");
        text
    });
    assert!(process.wait().success());
    let text = reading.join().expect("the reader ends");
    let whole = text.lines().filter(|line| line.ends_with(" HTTP/1.1\"")).count();
    assert!(whole > 20 && whole < REQUESTS, "{whole} lines");
    assert!(text.lines().rev().skip(1).all(|line| line.ends_with(" HTTP/1.1\"")), "a broken line");
}

#[test]
fn file_that_cannot_be_opened_ends_the_start() {
    let folder = Folder::new("access-log-missing");
    let access = format!("{{ to = {:?} }}", format!("file:{}", folder.join("missing/access.log")));
    let file = folder.file("tidegate.toml", config(free_address(), &access));
    let output = command(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", &file])
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let folder = folder.join("missing");
    assert!(text.contains(&format!("access.log: the folder {folder} cannot be used: ")), "{text}");
}

/// Makes a fifo that no program has opened.
fn make_fifo(path: &str) {
    run_well(Command::new("mkfifo").arg(path));
}

#[test]
fn fifo_without_a_reader_ends_the_start() {
    let folder = Folder::new("access-log-fifo");
    let path = folder.join("fifo");
    make_fifo(&path);
    let access = format!("{{ to = {:?} }}", format!("file:{path}"));
    let file = folder.file("tidegate.toml", config(free_address(), &access));
    let mut program = command(env!("CARGO_BIN_EXE_tidegate"));
    let output = program.args(["run", &file]).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("the access log cannot be opened: it is a fifo that no program reads"),
        "{text}"
    );
}

#[test]
fn fifos_do_not_stop_rotation_and_reloads() {
    let folder = Folder::new("access-log-fifo-later");
    let address = free_address();
    let path = folder.join("access.log");
    let file = folder.join("tidegate.toml");
    let access = format!("{{ to = {:?} }}", format!("file:{path}"));
    let mut process = start(&folder, address, &access, Stdio::null());
    let get = || run_well(curl().arg(format!("http://{address}/json")));
    let text = std::fs::read_to_string(&file).expect("the configuration");
    for name in [&path, &file] {
        // Renamed, because a writer that opens the path only now would create a missing file again.
        let fifo = format!("{name}.fifo");
        make_fifo(&fifo);
        std::fs::rename(&fifo, name).expect("the file is replaced");
    }
    // Neither the writer of the log nor the thread that reloads may wait for the other end.
    process.signal(Signal::USR1);
    process.signal(Signal::HUP);
    assert_eq!(get(), "{}");
    for name in [&path, &file] {
        std::fs::remove_file(name).expect("the fifo exists");
    }
    std::fs::write(&file, text.replace("\"{}\"", "\"[]\"")).expect("the configuration is written");
    let id = process.pid().to_string();
    process.wait_until("serving the new configuration, with a line in the new log", || {
        // The process may have handled an earlier signal before the files were there.
        run_well(Command::new("kill").args(["-USR1", &id]));
        run_well(Command::new("kill").args(["-HUP", &id]));
        get() == "[]" && !lines(&path).is_empty()
    });
    process.terminate();
    assert!(process.wait().success());
}

#[test]
fn lines_contain_what_clients_get_by_both_protocols() {
    let folder = Folder::new("access-log-responses");
    let (address, origin) = (free_address(), free_address());
    let path = folder.join("access.log");
    let captures = "response-headers = [\"Content-Type\", \"x-kind\", \"location\"], response-cookies = [\"sid\"]";
    let text = |format: &str| {
        format!(
            "[log]\naccess = {{ to = \"file:{path}\", format = \"{format}\", {captures} }}\n\
             [[listener]]\nname = \"web\"\nbind = \"{address}\"\nh2c = true\n\
             [[listener]]\nname = \"origin\"\nbind = \"{origin}\"\n\
             [[route]]\nlistener = \"origin\"\n\
             respond = {{ body = \"x\", headers = {{ set-cookie = \"sid=a b; Path=/\", x-kind = \"of|origin\" }} }}\n\
             [[route]]\npath = \"/own\"\nresponse-headers = {{ set = {{ x-kind = \"edited\" }} }}\n\
             respond = {{ body = \"{{}}\", headers = {{ content-type = \"application/json\", x-kind = \"own\" }} }}\n\
             [[route]]\npath = \"/moved\"\nredirect = {{ to = \"/own\" }}\n\
             [[route]]\npath = \"/proxied\"\nproxy = \"app\"\n\
             [pool.app]\nservers = [\"{origin}\"]\n"
        )
    };
    let file = folder.file("tidegate.toml", text("json"));
    let mut command: Command = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = Process::spawn(command.args(["run", &file]));
    process.wait_for_listener(address);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        std::fs::write(&path, "").expect("the file can be emptied");
        for target in ["/own", "/moved", "/proxied", "/none"] {
            run_well(curl().args([version, &format!("http://{address}{target}")]));
        }
        let of_web = || lines(&path).into_iter().filter(|line| line.contains("\"web\"")).collect();
        process.wait_until("four lines", || Vec::<String>::len(&of_web()) == 4);
        for line in of_web() {
            let line: Value = serde_json::from_str(&line).expect("a line is JSON");
            let (fields, cookies) = (&line["response_headers"], &line["response_cookies"]);
            let values = ["content-type", "x-kind", "location"].map(|name| fields[name].as_str());
            let (expected, cookie) = match line["target"].as_str() {
                Some("/own") => ([Some("application/json"), Some("edited"), None], None),
                Some("/moved") => ([values[0], None, Some("/own")], None),
                Some("/proxied") => ([None, Some("of|origin"), None], Some("a b")),
                Some("/none") => ([values[0], None, None], None),
                other => panic!("{other:?}"),
            };
            assert_eq!((values, cookies["sid"].as_str()), (expected, cookie), "{version} {line}");
        }
    }
    process.terminate();
    assert!(process.wait().success());
    folder.file("tidegate.toml", text("http"));
    std::fs::write(&path, "").expect("the file can be emptied");
    let mut command: Command = tidegate_testing::command(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = Process::spawn(command.args(["run", &file]));
    process.wait_for_listener(address);
    run_well(curl().arg(format!("http://{address}/proxied")));
    process.wait_until("two lines", || lines(&path).len() == 2);
    let line = lines(&path).into_iter().find(|line| line.contains(" web app/")).expect("a line");
    let block = " - sid=a#20b ---- ";
    assert!(line.contains(block) && line.contains("|of#7Corigin|} \"GET /proxied "), "{line}");
}
