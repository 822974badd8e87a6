//! Servers and listeners that commands add, change and remove while the process serves.
//! In: commands, requests that flow meanwhile. Out: responses of the right servers; no request fails.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_testing::command;

use crate::admin::Operated;
use crate::process::{Folder, Process, free_address, run, text};
use crate::proxy_protocol::make_certificate;

/// How long a test waits for a condition.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How many clients send requests one after the other.
const CLIENTS: usize = 4;

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < WAIT_MAX, "not {what} for {WAIT_MAX:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A server whose responses contain its letter.
struct Origin {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    /// Requests wait until this is true.
    is_open: Arc<(Mutex<bool>, Condvar)>,
}

impl Origin {
    fn start(letter: char, is_open: bool) -> Self {
        // The kernel chooses the port when the origin binds it, so no other socket can take it before.
        let listener = TcpListener::bind((free_address().ip(), 0)).expect("the kernel has a port");
        let origin = Self {
            address: listener.local_addr().expect("a bound socket has an address"),
            requests: Arc::default(),
            is_open: Arc::new((Mutex::new(is_open), Condvar::new())),
        };
        let (requests, gate) = (Arc::clone(&origin.requests), Arc::clone(&origin.is_open));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (requests, gate) = (Arc::clone(&requests), Arc::clone(&gate));
                thread::spawn(move || answer(stream, letter, &requests, &gate));
            }
        });
        origin
    }

    fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn open(&self) {
        *self.is_open.0.lock().expect("no panic") = true;
        self.is_open.1.notify_all();
    }

    /// Its name as a server of the pool.
    fn name(&self) -> String {
        format!("app/{}", self.address)
    }
}

fn answer(
    mut stream: TcpStream,
    letter: char,
    requests: &AtomicUsize,
    gate: &(Mutex<bool>, Condvar),
) {
    let mut lines = BufReader::new(stream.try_clone().expect("it is open")).lines();
    while let Some(Ok(line)) = lines.next() {
        if !line.is_empty() {
            continue;
        }
        requests.fetch_add(1, Ordering::SeqCst);
        let is_open = gate.0.lock().expect("no panic");
        drop(gate.1.wait_while(is_open, |is_open| !*is_open).expect("no panic"));
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{letter}");
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// A process with a pool `app` of this server, and a second listener `side`.
struct Edited {
    operated: Operated,
    side: SocketAddr,
}

impl Edited {
    fn start(name: &str, server: SocketAddr) -> Self {
        Self::start_with(name, server, "")
    }

    /// As `start`. `more`: further lines of the configuration.
    fn start_with(name: &str, server: SocketAddr, more: &str) -> Self {
        let folder = Folder::new(name);
        let (door, side, admin) = (free_address(), free_address(), free_address());
        let config = format!(
            "[admin]\nbind = \"{admin}\"\n\
             [[listener]]\nname = \"web\"\nbind = \"{door}\"\n\
             [[listener]]\nname = \"side\"\nbind = \"{side}\"\n\
             [[route]]\nlistener = \"side\"\nrespond = {{ body = \"s\" }}\n\
             [[route]]\nproxy = \"app\"\n\
             [pool.app]\nservers = [\"{server}\"]\nretries = 0\nbalance = \"round-robin\"\n{more}"
        );
        let file = folder.file("tidegate.toml", config);
        let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
        let mut process = Process::spawn(command.args(["run", &file]));
        process.wait_for_listener(door);
        process.wait_for_listener(admin);
        Self { operated: Operated { folder, process, door, admin }, side }
    }

    fn ctl(&self, line: &str) -> String {
        self.operated.ctl_well(&line.split(' ').collect::<Vec<_>>())
    }

    /// The error of a command that is refused.
    fn refusal(&self, line: &str) -> String {
        let output = self.operated.ctl(&line.split(' ').collect::<Vec<_>>());
        assert!(!output.status.success(), "{line}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    fn edits(&self) -> String {
        self.ctl("show edits").trim().to_owned()
    }

    /// The row of `show stat` with this column, by the first columns of the row.
    fn stat(&self, row: &str, column: &str) -> String {
        let stat = self.ctl("show stat");
        let mut lines = stat.lines();
        let names = lines.next().expect("a header").trim_start_matches("# ");
        let at = names.split(',').position(|name| name == column).expect("a known column");
        let line =
            lines.find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{row}: {stat}"));
        line.split(',').nth(at).unwrap_or_default().to_owned()
    }
}

/// A client with one connection.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it is open");
        stream.set_read_timeout(Some(WAIT_MAX)).expect("a socket");
        Self(BufReader::new(stream))
    }

    fn send(&mut self) {
        self.send_for("/");
    }

    fn send_for(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).expect("it is open");
    }

    /// The body of the response for a path.
    fn get_path(&mut self, path: &str) -> String {
        self.send_for(path);
        let (head, body) = self.receive();
        assert!(head.starts_with("http/1.1 200 "), "{path}: {head}{body}");
        body
    }

    /// The head and the body of a response.
    fn receive(&mut self) -> (String, String) {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a response");
            let line = line.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            head.push_str(&line);
            if line == "\r\n" || line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("the body");
        (head, text(&body))
    }

    fn get(&mut self) -> (String, String) {
        self.send();
        self.receive()
    }
}

/// Runs `act` while clients send requests. Each response must have the status 200.
fn with_load(door: SocketAddr, act: impl FnOnce(&dyn Fn())) {
    let stops = AtomicBool::new(false);
    let rounds: [AtomicUsize; CLIENTS] = Default::default();
    thread::scope(|scope| {
        let clients: Vec<_> = rounds
            .iter()
            .map(|rounds| {
                let stops = &stops;
                scope.spawn(move || {
                    let mut client = Client::connect(door);
                    while !stops.load(Ordering::SeqCst) {
                        let (head, body) = client.get();
                        assert!(head.starts_with("http/1.1 200 "), "{head}{body}");
                        rounds.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        // Requests that began before are complete, and several began afterwards.
        let continue_load = || {
            let before: Vec<usize> = rounds.iter().map(|at| at.load(Ordering::SeqCst)).collect();
            let failed = || clients.iter().any(|client| client.is_finished());
            wait_until("served again", || {
                assert!(!failed(), "a request has failed");
                rounds
                    .iter()
                    .zip(&before)
                    .all(|(at, before)| at.load(Ordering::SeqCst) > before + 4)
            });
        };
        let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&continue_load)));
        stops.store(true, Ordering::SeqCst);
        if let Err(panic) = acted {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn requests_flow_while_a_server_is_added_moved_limited_and_deleted() {
    let [a, b, c] = ['a', 'b', 'c'].map(|letter| Origin::start(letter, true));
    let edited = Edited::start("edits-flow", a.address);
    with_load(edited.operated.door, |continue_load| {
        continue_load();
        edited.ctl(&format!("add server {} weight 2", b.name()));
        wait_until("served by the added server", || b.count() > 0);
        assert_eq!(edited.edits(), format!("add server {} weight 2", b.name()));
        edited.ctl(&format!("set server {} address {}", b.name(), c.address));
        continue_load();
        let earlier = b.count();
        wait_until("served by the other address", || c.count() > 0);
        continue_load();
        assert_eq!(b.count(), earlier, "the earlier address gets requests");
        edited.ctl(&format!("set server {} connections-max 3", c.name()));
        assert_eq!(edited.stat(&format!("app,{},", c.address), "slim"), "3");
        continue_load();
        edited.ctl(&format!("del server {}", c.name()));
        continue_load();
        let earlier = c.count();
        continue_load();
        assert_eq!(c.count(), earlier, "the deleted server gets requests");
        assert_eq!(edited.edits(), "");
    });
    let events = edited.ctl("show events 50 admin");
    for part in ["ran: add server", " address ", "connections-max", "ran: del server"] {
        assert_eq!(events.matches(part).count(), 1, "{part}: {events}");
    }
}

#[test]
fn requests_flow_while_pools_and_routes_are_added_and_deleted() {
    let [a, b, c] = ['a', 'b', 'c'].map(|letter| Origin::start(letter, true));
    let edited = Edited::start("edits-parts", a.address);
    let pool = |of: &Origin| format!("{{ servers = [\"{}\"], queue-max = 9 }}", of.address);
    let (add_b, add_c) = (format!("add pool b {}", pool(&b)), format!("add pool c {}", pool(&c)));
    let route_c = "add route { path = \"/c/*\", proxy = \"c\" }";
    with_load(edited.operated.door, |continue_load| {
        let mut client = Client::connect(edited.operated.door);
        assert_eq!(client.get_path("/c/x"), "a");
        edited.ctl(&add_b);
        edited.ctl(&add_c);
        let refusal = edited.refusal(route_c);
        assert!(refusal.contains("help: append `before *#2`"), "{refusal}");
        assert_eq!(edited.ctl(&format!("{route_c} before *#2")).trim(), "# route /c/*");
        assert_eq!(client.get_path("/c/x"), "c");
        continue_load();
        let refusal = edited.refusal("del pool c");
        assert!(refusal.contains("pool \"c\" is used by route /c/*"), "{refusal}");
        // The pool after it keeps its requests, its counters and its connections.
        edited.ctl("del pool b");
        assert_eq!(client.get_path("/c/x"), "c");
        assert_eq!(edited.stat(&format!("c,{},", c.address), "stot"), "2");
        assert_eq!(edited.edits(), format!("{add_c}\n{route_c} before *#2"));
        edited.ctl(&format!("add server c/{}", b.address));
        wait_until("served by both servers", || {
            client.get_path("/c/x");
            b.count() > 0
        });
        continue_load();
        edited.ctl("del route /c/*");
        assert_eq!(client.get_path("/c/x"), "a");
        edited.ctl("del pool c");
        assert_eq!(edited.edits(), "");
        // The same parts again, which the reload drops.
        edited.ctl(&add_c);
        edited.ctl(&format!("{route_c} before *#2"));
        assert_eq!(client.get_path("/c/x"), "c");
        let dropped = edited.ctl("reload");
        assert!(dropped.contains("edits dropped 2"), "{dropped}");
        assert_eq!(client.get_path("/c/x"), "a");
        continue_load();
    });
    let wrong = edited.refusal("add pool n { server = [\"10.0.0.9:1\"] }");
    for part in ["unknown setting `server` in [pool", "help: write servers = "] {
        assert!(wrong.contains(part), "{part}: {wrong}");
    }
    let refusal = edited.refusal("add route { path = \"/n\", proxy = \"n\" } before *");
    assert!(refusal.contains("there is no pool \"n\""), "{refusal}");
}

#[test]
fn requests_of_a_deleted_route_and_pool_complete() {
    let (other, held) = (Origin::start('o', true), Origin::start('h', false));
    let edited = Edited::start("edits-held-parts", other.address);
    edited.ctl(&format!("add pool held {{ servers = [\"{}\"] }}", held.address));
    edited.ctl("add route { path = \"/h\", proxy = \"held\" } before *#2");
    let mut first = Client::connect(edited.operated.door);
    first.send_for("/h");
    wait_until("at the server", || held.count() == 1);
    edited.ctl("del route /h");
    edited.ctl("del pool held");
    assert_eq!(Client::connect(edited.operated.door).get_path("/h"), "o");
    // The pool keeps its index while its request lasts, and others come and go.
    let more = Origin::start('m', true);
    for _ in 0..3 {
        edited.ctl(&format!("add server {}", more.name()));
        edited.ctl(&format!("add pool more {{ servers = [\"{}\"] }}", more.address));
        edited.ctl("add route { path = \"/m\", proxy = \"more\" } before *#2");
        assert_eq!(Client::connect(edited.operated.door).get_path("/m"), "m");
        edited.ctl("del route /m");
        edited.ctl("del pool more");
        edited.ctl(&format!("del server {}", more.name()));
    }
    held.open();
    let (head, body) = first.receive();
    assert!(head.starts_with("http/1.1 200 ") && body == "h", "{head}{body}");
    assert_eq!(first.get_path("/h"), "o");
}

#[test]
fn lists_that_become_shorter_leave_requests_alone() {
    let (held, other) = (Origin::start('h', false), Origin::start('o', true));
    let edited = Edited::start("edits-shorter", other.address);
    let door = edited.operated.door;
    // The last pool, and the last server of a pool.
    edited.ctl(&format!("add pool held {{ servers = [\"{}\"] }}", held.address));
    edited.ctl(&format!("add pool last {{ servers = [\"{}\"] }}", other.address));
    edited.ctl("add route { path = \"/h\", proxy = \"held\" } before *#2");
    edited.ctl("add route { path = \"/l\", proxy = \"last\" } before *#2");
    edited.ctl(&format!("add server held/{}", other.address));
    edited.ctl(&format!("set server held/{} state drain", other.address));
    let mut client = Client::connect(door);
    assert_eq!(client.get_path("/l"), "o");
    let mut first = Client::connect(door);
    first.send_for("/h");
    wait_until("at the server", || held.count() == 1);
    edited.ctl("del route /l");
    edited.ctl("del pool last");
    edited.ctl(&format!("del server held/{}", other.address));
    // Nothing uses them: they leave the lists with one of the next edits.
    for limit in 1..6 {
        thread::sleep(Duration::from_millis(150));
        edited.ctl(&format!("set server held/{} connections-max {limit}", held.address));
        assert_eq!(client.get_path("/l"), "o");
    }
    held.open();
    let (head, body) = first.receive();
    assert!(head.starts_with("http/1.1 200 ") && body == "h", "{head}{body}");
    assert_eq!((first.get_path("/h"), first.get_path("/l")), ("h".to_owned(), "o".to_owned()));
}

#[test]
fn pool_that_a_map_names_cannot_be_deleted() {
    let [a, b, c] = ['a', 'b', 'c'].map(|letter| Origin::start(letter, true));
    let more = format!(
        "[pool.spare]\nservers = [\"{}\"]\n[map.paths]\nentries = {{ \"/m/b\" = \"spare\" }}\n",
        b.address
    );
    let edited = Edited::start_with("edits-map", a.address, &more);
    let route = "add route { path = \"/m/*\", proxy = { pool = { map = \"paths\", key = \"{path}\", default = \"app\" } } }";
    edited.ctl(&format!("{route} before *#2"));
    edited.ctl(&format!("add pool c {{ servers = [\"{}\"] }}", c.address));
    edited.ctl("set map paths /m/c c");
    let mut client = Client::connect(edited.operated.door);
    for (pool, path, body) in [("spare", "/m/b", "b"), ("c", "/m/c", "c")] {
        assert_eq!(client.get_path(path), body);
        let refusal = edited.refusal(&format!("del pool {pool}"));
        assert!(refusal.contains("is used by [map.paths]"), "{refusal}");
        edited.ctl(&format!("del map paths {path}"));
        edited.ctl(&format!("del pool {pool}"));
        assert_eq!(client.get_path(path), "a");
        let refusal = edited.refusal(&format!("set map paths {path} {pool}"));
        assert!(refusal.contains("there is no pool"), "{refusal}");
    }
    // The file still names the pool that was deleted.
    edited.ctl("del route /m/*");
    edited.ctl(&format!("{route} before *#2"));
    assert_eq!(client.get_path("/m/b"), "a");
}

#[test]
fn files_of_an_added_pool_are_watched() {
    let origin = Origin::start('a', true);
    let edited = Edited::start("edits-watched", origin.address);
    let folder = &edited.operated.folder;
    make_certificate(folder);
    let fifo =
        edited.refusal("add pool t { servers = [\"127.0.0.1:9\"], tls = { ca = \"/dev/null\" } }");
    assert!(fifo.contains("not that of a regular file"), "{fifo}");
    edited.ctl("add pool t { servers = [\"127.0.0.1:9\"], tls = { ca = \"ca.pem\" } }");
    let has_event = |text: &str| edited.ctl("show events 50 reload").contains(text);
    wait_until("watched", || has_event("certificates reloaded"));
    std::fs::write(folder.join("ca.pem"), "nothing").expect("a file can be written");
    wait_until("noticed", || has_event("certificates not reloaded"));
}

#[test]
fn deleted_server_completes_its_request() {
    let (held, other) = (Origin::start('h', false), Origin::start('o', true));
    let edited = Edited::start("edits-held", held.address);
    let mut first = Client::connect(edited.operated.door);
    first.send();
    wait_until("at the server", || held.count() == 1);
    edited.ctl(&format!("add server {}", other.name()));
    edited.ctl(&format!("del server {}", held.name()));
    let mut second = Client::connect(edited.operated.door);
    for _ in 0..4 {
        assert_eq!(second.get().1, "o");
    }
    held.open();
    let (head, body) = first.receive();
    assert!(head.starts_with("http/1.1 200 ") && body == "h", "{head}{body}");
    assert_eq!(first.get().1, "o");
    assert_eq!(held.count(), 1);
}

#[test]
fn disabled_listener_closes_and_opens_again() {
    let origin = Origin::start('a', true);
    let edited = Edited::start("edits-listener", origin.address);
    let mut client = Client::connect(edited.side);
    assert_eq!(client.get().1, "s");
    edited.ctl("disable listener side");
    wait_until("closed", || TcpStream::connect(edited.side).is_err());
    assert_eq!(edited.stat("side,FRONTEND", "status"), "STOP");
    assert_eq!(edited.edits(), "disable listener side");
    assert!(edited.ctl("disable listener side").contains("nothing to change"));
    assert_eq!(Client::connect(edited.operated.door).get().1, "a");
    let refusal = edited.refusal("disable listener web");
    assert!(refusal.contains("the only one that is enabled"), "{refusal}");
    edited.ctl(&format!("enable listener {}", edited.side));
    assert_eq!(Client::connect(edited.side).get().1, "s");
    assert_eq!(edited.stat("side,FRONTEND", "status"), "OPEN");
    assert_eq!(edited.edits(), "");
}

#[test]
fn port_that_another_process_has_taken_is_not_shared() {
    let origin = Origin::start('a', true);
    let edited = Edited::start("edits-taken", origin.address);
    edited.ctl("disable listener side");
    wait_until("closed", || TcpStream::connect(edited.side).is_err());
    let folder = Folder::new("edits-taken-other");
    let config = format!(
        "[[listener]]\nbind = \"{}\"\n[[route]]\nrespond = {{ body = \"o\" }}\n",
        edited.side
    );
    let file = folder.file("tidegate.toml", config);
    let mut other = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut other = Process::spawn(other.args(["run", &file]));
    other.wait_for_listener(edited.side);
    let refusal = edited.refusal("enable listener side");
    assert!(refusal.contains("already listens there"), "{refusal}");
    assert_eq!(edited.edits(), "disable listener side");
    for _ in 0..8 {
        assert_eq!(Client::connect(edited.side).get().1, "o");
    }
    other.terminate();
    assert!(other.wait().success());
    edited.ctl("enable listener side");
    assert_eq!(Client::connect(edited.side).get().1, "s");
}

#[test]
fn metrics_of_present_servers_are_not_left_out_for_removed_ones() {
    let origin = Origin::start('a', true);
    let edited = Edited::start("edits-metrics", origin.address);
    assert_eq!(Client::connect(edited.operated.door).get().1, "a");
    let file = edited.operated.folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).expect("it exists");
    let others: String =
        (0..1001).map(|at| format!(", \"10.0.{}.{}:80\"", at / 250, at % 250)).collect();
    let own = format!("servers = [\"{}\"", origin.address);
    let more = text.replace(&own, &format!("{own}{others}"));
    for text in [more, text] {
        std::fs::write(&file, text).expect("a file can be written");
        edited.ctl("reload");
    }
    let metrics = edited.operated.page("/metrics");
    let series = format!("server=\"{}\"", origin.address);
    assert!(metrics.contains(&series) && !metrics.contains("tidegate_metrics_left_out 0"));
}

#[test]
fn disabled_route_leaves_its_requests_to_the_next_route() {
    let origin = Origin::start('a', true);
    let edited = Edited::start("edits-route", origin.address);
    let mut client = Client::connect(edited.side);
    assert_eq!(client.get().1, "s");
    edited.ctl("disable route *");
    assert_eq!(client.get().1, "a");
    assert_eq!(edited.edits(), "disable route *");
    assert!(edited.ctl("disable route *").contains("nothing to change"));
    edited.ctl("enable route *");
    assert_eq!((client.get().1.as_str(), edited.edits().as_str()), ("s", ""));
}

#[test]
fn reload_of_the_file_drops_edits_and_states_how_many() {
    let [a, b] = ['a', 'b'].map(|letter| Origin::start(letter, true));
    let edited = Edited::start("edits-reload", a.address);
    let before = edited.ctl("show config");
    edited.ctl(&format!("add server {}", b.name()));
    edited.ctl("disable listener side");
    let (file, at) =
        (edited.operated.folder.join("tidegate.toml"), edited.operated.admin.to_string());
    let check =
        run(command(env!("CARGO_BIN_EXE_tidegate")).args(["check", &file, "--against", &at]));
    let check = text(&check.stdout);
    assert!(
        check.contains(&format!("- server {}", b.name())) && check.contains("~ listener"),
        "{check}"
    );
    // A file that is refused keeps them.
    let config = std::fs::read_to_string(&file).expect("it exists");
    std::fs::write(&file, config.clone() + "wrong = 1\n").expect("a file can be written");
    assert!(edited.refusal("reload").contains("wrong"));
    assert_eq!(edited.edits().lines().count(), 2);
    std::fs::write(&file, config).expect("a file can be written");
    assert_eq!(edited.ctl("reload").trim(), "edits dropped 2");
    assert_eq!((edited.edits(), edited.ctl("show config")), (String::new(), before));
    assert_eq!(Client::connect(edited.side).get().1, "s");
    assert!(edited.ctl("show events 1 reload").contains("; edits dropped 2"));
    assert_eq!(edited.ctl("reload").trim(), "");
}

#[test]
fn refused_edits_name_what_is_allowed_and_change_nothing() {
    let origin = Origin::start('a', true);
    let (edited, server) = (Edited::start("edits-refused", origin.address), origin.name());
    let before = edited.ctl("show config");
    for (line, expected) in [
        (format!("add server {server}"), "exists already"),
        ("add server app/10.0.0.1".to_owned(), "the port is missing"),
        ("add server app/s1 10.0.0.1:80".to_owned(), "help: add server app/10.0.0.1:80"),
        ("add server app/10.0.0.1:80 check".to_owned(), "allowed: weight N"),
        ("add server app/10.0.0.1:80 weight x".to_owned(), "allowed: 0 to 1000"),
        ("add server x/10.0.0.1:80".to_owned(), "the pools are: app"),
        ("add server app/name.invalid:80".to_owned(), "name.invalid:80: "),
        ("add server app/10.0.0.1:+80".to_owned(), "is not a port"),
        ("add server".to_owned(), "usage: add server POOL/ADDRESS"),
        (format!("del server {server}"), "only one of its pool"),
        ("del server app".to_owned(), "is not POOL/SERVER"),
        (format!("set server {server} address x"), "the port is missing"),
        (format!("set server {server} maxconn 0"), "or unlimited"),
        (format!("set maxconn server {server}"), "usage: set maxconn server"),
        (format!("set server {server} name b"), "address HOST:PORT"),
        ("enable listener x".to_owned(), "the listeners are: web, side"),
        ("disable listener".to_owned(), "usage: disable listener"),
        ("disable route /x".to_owned(), "the routes are: *, *#2"),
        ("enable route".to_owned(), "usage: enable route"),
        ("show edits all".to_owned(), "usage: show edits"),
    ] {
        let refusal = edited.refusal(&line);
        assert!(refusal.contains(expected), "{line}: {refusal}");
    }
    edited.ctl(&format!("set server {server} state drain"));
    let refusal = edited.refusal(&format!("set server {server} addr 127.0.0.1 port 9"));
    assert!(refusal.contains("begins as ready"), "{refusal}");
    assert_eq!((edited.ctl("show config"), edited.edits()), (before, String::new()));
}
