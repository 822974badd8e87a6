//! Servers whose names get other addresses while the process serves, and a small name server on a real socket.
//! In: answers that change. Out: responses of the servers at these addresses; what the admin interface shows.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::admin::Operated;
use crate::process::run;
use crate::requests::curl;

/// How long a change may take. Only a failed test waits for so long.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What the name server answers.
#[derive(Clone, Copy)]
enum Mode {
    /// This address.
    Address(Ipv4Addr),
    /// An error, by its code.
    Code(u8),
}

/// Answers queries until the test program ends. Returns the port.
fn serve_names(mode: Arc<Mutex<Mode>>) -> u16 {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
    let port = socket.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        loop {
            let (count, from) = socket.recv_from(&mut buffer).expect("a query");
            // The question ends before the 11 bytes of the OPT record.
            let mut reply = buffer[..count - 11].to_vec();
            let mode = *mode.lock().expect("a mode");
            let (code, count) = match mode {
                Mode::Address(_) => (0, 1),
                Mode::Code(code) => (code, 0),
            };
            reply[2..4].copy_from_slice(&[0x81, 0x80 | code]);
            reply[6..12].copy_from_slice(&[0, count, 0, 0, 0, 0]);
            if let Mode::Address(address) = mode {
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                reply.extend(address.octets());
            }
            socket.send_to(&reply, from).expect("it is sent");
        }
    });
    port
}

/// Answers requests with `name` until the test program ends, many on each connection.
fn serve_requests(listener: TcpListener, name: &'static str) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines();
                while let Some(Ok(line)) = lines.next() {
                    let length = name.len();
                    let reply =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{name}");
                    if line.is_empty() && (&stream).write_all(reply.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

/// Two listeners with the same port, at 127.0.0.1 and 127.0.0.2.
fn two_listeners() -> (TcpListener, TcpListener, u16) {
    let pair = |_| {
        let one = TcpListener::bind(("127.0.0.1", 0)).ok()?;
        let port = one.local_addr().ok()?.port();
        Some((one, TcpListener::bind(("127.0.0.2", port)).ok()?, port))
    };
    (0..100).find_map(pair).expect("a port that is free at both addresses")
}

/// The body or the status of a response.
fn get(operated: &Operated) -> String {
    let url = format!("http://{}/named", operated.door);
    let output = run(curl().args(["-w", " %{http_code}"]).arg(url));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once(' ').expect("a status");
    if status == "200" { body.to_owned() } else { status.to_owned() }
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < WAIT_MAX, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The row of the name in `show names`.
fn shown(operated: &Operated) -> Value {
    let text = operated.ctl_well(&["show", "names", "json"]);
    serde_json::from_str::<Value>(&text).expect("JSON")[0].take()
}

#[test]
fn servers_follow_their_names() {
    let (one, two, port) = two_listeners();
    serve_requests(one, "one");
    serve_requests(two, "two");
    let (first, second) = (Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2));
    let mode = Arc::new(Mutex::new(Mode::Address(first)));
    let names = serve_names(Arc::clone(&mode));
    let answer = |next| *mode.lock().expect("a mode") = next;
    let operated = Operated::start(
        "named-servers",
        &format!(
            "[server]\nworkers = 2\n[resolver]\nname-servers = [\"127.0.0.1:{names}\"]\nfamilies = \"ipv4\"\nttl-min = \"100ms\"\n\
             hold = {{ nx = \"300ms\" }}\n\
             [[route]]\npath = \"/named\"\nproxy = \"named\"\n[pool.named]\nservers = [\"app.test:{port}\"]\n"
        ),
    );
    assert_eq!(get(&operated), "one");
    answer(Mode::Address(second));
    wait_until("the new address is not used", || get(&operated) == "two");
    // Each worker: idle connections to the former address are not used.
    wait_until("both workers use the new address", || (0..10).all(|_| get(&operated) == "two"));
    // A broken name server changes nothing.
    answer(Mode::Code(2));
    wait_until("lookups fail", || shown(&operated)["failures"].as_u64() >= Some(2));
    assert_eq!(get(&operated), "two");
    let row = shown(&operated);
    assert_eq!(row["addresses"][0], format!("127.0.0.2:{port}"), "{row}");
    assert_eq!((&row["state"], &row["changes"]), (&"up".into(), &1.into()), "{row}");
    assert_eq!(row["last_failure"], "the name servers cannot answer");
    // A name that does not exist for longer than its hold time.
    answer(Mode::Code(3));
    wait_until("the server is down", || get(&operated) == "503");
    assert_eq!(shown(&operated)["state"], "lost");
    answer(Mode::Address(first));
    wait_until("the server is up again", || get(&operated) == "one");
    // The counts of the name server, in HAProxy's form.
    let resolvers = operated.ctl_well(&["show", "resolvers"]);
    let head =
        format!("Resolvers section default\n nameserver 127.0.0.1:{names}:\n  sent:        ");
    assert!(resolvers.starts_with(&head), "{resolvers}");
    for name in ["valid", "nx", "other"] {
        let line = resolvers.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:")));
        let count = line.and_then(|count| count.trim().parse::<u64>().ok());
        assert!(count.is_some_and(|count| count > 0), "{name}: {resolvers}");
    }
    // The statistics are those of one server.
    let stat = operated.ctl_well(&["show", "stat"]);
    let row = format!("named,app.test:{port},");
    assert_eq!(stat.lines().filter(|line| line.starts_with(&row)).count(), 1, "{stat}");
    let events = operated.ctl_well(&["show", "events"]);
    for text in ["are now 127.0.0.2", "has no address any more", "are now 127.0.0.1"] {
        assert!(events.contains(text), "{text}: {events}");
    }
}

#[test]
fn name_without_an_address_is_refused_at_the_start() {
    let names = serve_names(Arc::new(Mutex::new(Mode::Code(3))));
    let folder = crate::process::Folder::new("named-servers-none");
    let file = folder.file(
        "tidegate.toml",
        format!(
            "[resolver]\nname-servers = [\"127.0.0.1:{names}\"]\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"p\"\n\
             [pool.p]\nservers = [\"app.test:80\"]\n"
        ),
    );
    for command in ["run", "check"] {
        let output =
            run(tidegate_testing::command(env!("CARGO_BIN_EXE_tidegate")).args([command, &file]));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command}: {errors}");
        assert!(errors.contains("app.test:80") && errors.contains("does not exist"), "{errors}");
    }
}
