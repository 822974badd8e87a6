//! The commands that look into a running process: connections and exchanges, malformed messages.
//! In: clients and origins on real sockets; commands. Out: what `tidegate ctl` prints, connections that end.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::admin::Operated;
use crate::process::text;

/// How long a condition may take on a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Repeats `look` until it returns something.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < WAIT_MAX, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process with a route to an origin that this test plays.
fn start(name: &str, settings: &str) -> (Operated, TcpListener) {
    let origin = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
    let address = origin.local_addr().expect("it is bound");
    let pool = format!("{settings}\n[pool.slow]\nservers = [\"{address}\"]\n");
    let route = "[[route]]\npath = \"/slow/*\"\nproxy = \"slow\"\n";
    (Operated::start(name, &format!("{pool}{route}")), origin)
}

/// A client that has sent a request which the origin does not answer, and the connection to the origin.
fn wait_in(operated: &Operated, origin: &TcpListener, target: &str) -> (TcpStream, TcpStream) {
    let mut client = TcpStream::connect(operated.door).expect("it listens");
    let request = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n");
    client.write_all(request.as_bytes()).expect("it reads");
    let (upstream, _) = origin.accept().expect("a connection");
    (client, upstream)
}

/// The sessions with a request in progress.
fn sessions(operated: &Operated, words: &[&str]) -> Vec<Value> {
    let shown = operated.ctl_well(&[&["show", "sess", "json"], words].concat());
    let value: Value = serde_json::from_str(&shown).expect("it is JSON");
    assert_eq!(value["missing_workers"], Value::Array(Vec::new()), "{shown}");
    value["sessions"].as_array().expect("an array").clone()
}

#[test]
fn sessions_are_listed_shown_and_ended() {
    let (operated, origin) = start("admin-sessions", "");
    let (mut client, _upstream) = wait_in(&operated, &origin, "/slow/one?x=1");
    let found = wait_for("the request", || {
        let found = sessions(&operated, &[]);
        found.first().filter(|session| session["state"] == "server").cloned()
    });
    let id = found["id"].as_str().expect("a text").to_owned();
    let own = client.local_addr().expect("it is connected").to_string();
    for (member, expected) in [
        ("client", own.as_str()),
        ("listener", "web"),
        ("protocol", "http1"),
        ("route", "/slow/*"),
        ("pool", "slow"),
        // Without a token, TCP shows no queries.
        ("target", "/slow/one"),
    ] {
        assert_eq!(found[member], expected, "{member}: {found}");
    }
    let lines = operated.ctl_well(&["show", "sess"]);
    let line = lines.lines().find(|line| line.starts_with(&id)).expect("the line");
    assert!(line.ends_with("\"GET a.example /slow/one\""), "{lines}");
    for (words, count) in [
        (&["server", "slow"][..], 1),
        (&["server", "app"][..], 0),
        (&["client", "127.0.0.1", "listener", "web", "route", "/slow/*"][..], 1),
        (&["client", "127.0.0.2"][..], 0),
        (&["older", "5m"][..], 0),
    ] {
        assert_eq!(sessions(&operated, words).len(), count, "{words:?}");
    }
    let shown = operated.ctl_well(&["show", "conn", &id]);
    assert!(shown.contains("\nstate: server\n"), "{shown}");
    assert_eq!(operated.ctl_well(&["kill", "conn", &id]), "");
    let ended = client.read(&mut [0]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    for (words, expected) in [
        (&["kill", "conn", &id][..], "there is no such connection"),
        (&["show", "conn", &id][..], "it has ended"),
        (&["kill", "conn", "99.0.1"][..], "the first number is the worker, 0 to"),
        (&["kill", "conn", "x"][..], "such as 0.12.5"),
        (&["show", "sess", "frob"][..], "allowed: show sess [json] [all]"),
        (&["show", "sess", "limit", "0"][..], "allowed: 1 to 100000"),
        (&["shutdown", "sessions", "server", "x"][..], "the servers are: "),
    ] {
        let output = operated.ctl(words);
        let said = text(&output.stderr).to_owned();
        assert!(!output.status.success() && said.contains(expected), "{words:?}: {said}");
    }
}

#[test]
fn exchanges_of_a_server_are_ended_with_an_answer() {
    let (operated, origin) = start("admin-end-server", "");
    let (mut client, _upstream) = wait_in(&operated, &origin, "/slow/two");
    wait_for("the request", || (sessions(&operated, &["server", "slow"]).len() == 1).then_some(()));
    let place = format!("slow/{}", origin.local_addr().expect("it is bound"));
    let said = operated.ctl_well(&["shutdown", "sessions", "server", &place]);
    assert_eq!(said, "exchanges ended: 1\n");
    let mut answer = [0; 12];
    client.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 503");
}

#[test]
fn malformed_messages_are_shown_with_the_offending_byte() {
    let (operated, origin) = start("admin-errors", "");
    let mut client = TcpStream::connect(operated.door).expect("it listens");
    client.write_all(b"GET /secret HTTP/1.1\r\nHost: a\r\nB@d: x\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let (mut other, mut upstream) = wait_in(&operated, &origin, "/slow/three");
    upstream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n").expect("it reads");
    let mut status = [0; 12];
    other.read_exact(&mut status).expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 502");
    let shown = operated.ctl_well(&["show", "errors"]);
    for expected in [
        "# malformed messages, newest first: 2\n# the bytes are not shown",
        "of listener web, connection ",
        "a field name must be a token followed by a colon\n  41 bytes; the offending byte is at offset 32\n",
        "Content-Length must be a single decimal number\n",
        " server slow/127.0.0.1:",
    ] {
        assert!(shown.contains(expected), "no {expected:?} in {shown}");
    }
    // Every user of the machine can connect to a TCP port.
    assert!(!shown.contains("secret HTTP"), "{shown}");
}

#[test]
fn bytes_of_malformed_messages_are_shown_over_a_unix_socket() {
    let folder = crate::process::Folder::new("admin-errors-unix");
    let (path, door) = (folder.join("admin.sock"), crate::process::free_address());
    let config = format!(
        "[admin]\nbind = \"unix:{path}\"\n[[listener]]\nbind = \"{door}\"\n\
         [[route]]\nrespond = {{ body = \"hello\" }}\n"
    );
    let file = folder.file("tidegate.toml", config);
    let mut command = tidegate_testing::command(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = crate::process::Process::spawn(command.args(["run", &file]));
    process.wait_for_listener(door);
    let mut client = TcpStream::connect(door).expect("it listens");
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nB@d: x\r\n\r\n").expect("it reads");
    client.read_to_end(&mut Vec::new()).expect("an answer");
    let mut socket = wait_for("the admin interface", || UnixStream::connect(&path).ok());
    socket.write_all(b"show errors\n").expect("it reads");
    let mut shown = String::new();
    socket.read_to_string(&mut shown).expect("text");
    assert!(shown.contains("\n  00025 B@d: x\\r\\n\n         ^\n"), "{shown}");
}
