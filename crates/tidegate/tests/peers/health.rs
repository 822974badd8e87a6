//! Health checks of nginx, over plain HTTP and TLS, and restarts of a server under load.
//! In: files that nginx serves or lacks, a server that is stopped and started. Out: requests go only to
//! healthy servers, and no request fails.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_testing::{Signal, command, start};

use crate::gate::Gate;
use crate::load::{parse_wrk, wrk};
use crate::origins::Nginx;
use crate::process::{Folder, Process, free_address, run_well, text};
use crate::requests::curl;

/// Tidegate in front of two servers of nginx, with an admin interface.
struct Checked {
    folder: Folder,
    gate: Gate,
    admin: SocketAddr,
    first: Nginx,
    second: Nginx,
    /// The folders of the servers.
    homes: [Folder; 2],
}

impl Checked {
    fn start(name: &str, health: &str) -> Self {
        let folder = Folder::new(name);
        let homes = [Folder::new(&format!("{name}-1")), Folder::new(&format!("{name}-2"))];
        let (first, second) = (Nginx::start(&homes[0]), Nginx::start(&homes[1]));
        for (nginx, home, page) in [(&first, &homes[0], "one\n"), (&second, &homes[1], "two\n")] {
            nginx.file(home, "page", page);
            nginx.file(home, "up", "well\n");
        }
        let admin = free_address();
        let gate =
            Gate::start(&folder, &Self::config(admin, [first.address, second.address], health));
        Self { folder, gate, admin, first, second, homes }
    }

    fn config(admin: SocketAddr, servers: [SocketAddr; 2], health: &str) -> String {
        format!(
            "[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"app\"\n\
             [pool.app]\nservers = [\"{}\", \"{}\"]\nhealth = {health}\n",
            servers[0], servers[1]
        )
    }

    fn ctl(&self, words: &[&str]) -> String {
        let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
        run_well(command.args(["ctl", "--at", &self.admin.to_string()]).args(words))
    }

    /// A column of a server in `show stat`.
    fn stat(&self, server: &Nginx, column: &str) -> String {
        stat_in(&self.ctl(&["show", "stat"]), server.address, column)
    }

    /// Waits until a column of a server has a value.
    fn wait_for(&mut self, is_first: bool, column: &str, value: &str) {
        let mut tries = 0;
        loop {
            let server = if is_first { &self.first } else { &self.second };
            let found = self.stat(server, column);
            if found == value {
                return;
            }
            tries += 1;
            assert!(tries < 1000, "{column} is {found}, not {value}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The pages of ten requests.
    fn pages(&self) -> Vec<String> {
        let get = |_| run_well(curl().arg(self.gate.url("/page")));
        (0..10).map(get).collect()
    }

    /// Waits until ten requests in a row get this page: workers learn the state of a server a moment after it was shown.
    fn wait_for_pages(&self, expected: &str) {
        let mut tries = 0;
        while !self.pages().iter().all(|page| page == expected) {
            tries += 1;
            assert!(tries < 1000, "{:?}", self.pages());
        }
    }

    fn end(self) -> String {
        self.gate.terminate();
        let (status, messages) = self.gate.wait();
        assert!(status.success(), "{status}: {messages}");
        messages
    }
}

/// A column of a server of the pool `app` in the output of `show stat`.
fn stat_in(csv: &str, server: SocketAddr, column: &str) -> String {
    let mut lines = csv.lines();
    let header = lines.next().expect("a header").trim_start_matches("# ");
    let at = header.split(',').position(|name| name == column).expect("a column of HAProxy");
    let row = format!("app,{server},");
    let line = lines.find(|line| line.starts_with(&row)).expect("a row of the server");
    line.split(',').nth(at).unwrap_or_default().to_owned()
}

#[test]
fn page_without_the_expected_text_fails_the_check() {
    let health = "{ http = \"/up\", body = \"well\", every = \"50ms\", timeout = \"20s\" }";
    let mut checked = Checked::start("health-body", health);
    checked.wait_for(true, "check_status", "L7OK");
    let up = checked.homes[0].join("files/up");
    std::fs::write(&up, "broken\n").expect("the file exists");
    checked.wait_for(true, "status", "DOWN");
    assert_eq!(checked.stat(&checked.first, "check_status"), "L7RSP");
    assert_eq!(checked.stat(&checked.first, "check_code"), "200");
    checked.wait_for_pages("two\n");
    let messages = checked.end();
    assert!(messages.contains("the body does not contain the expected text"), "{messages}");
}

/// Tidegate checks its own listener, whose echo is a WebSocket service.
#[test]
fn websocket_servers_are_checked_by_a_handshake() {
    let folder = Folder::new("health-websocket");
    let (admin, origin) = (free_address(), free_address());
    let health = |path: &str| {
        format!("health = {{ websocket = \"{path}\", every = \"50ms\", timeout = \"20s\" }}")
    };
    let gate = Gate::start(
        &folder,
        &format!(
            "[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[listener]]\nbind = \"{origin}\"\n\
             [[route]]\npath = \"/echo\"\necho = true\n[[route]]\npath = \"/plain\"\nrespond = {{}}\n\
             [[route]]\nproxy = \"app\"\n[[route]]\npath = \"/other/*\"\nproxy = \"other\"\n\
             [pool.app]\nservers = [\"{origin}\"]\n{}\n[pool.other]\nservers = [\"{origin}\"]\n{}\n",
            health("/echo"),
            health("/plain")
        ),
    );
    let mut tries = 0;
    loop {
        let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
        let shown = run_well(command.args(["ctl", "--at", &admin.to_string(), "show", "stat"]));
        let row = |pool: &str| {
            let start = format!("{pool},{origin},");
            shown.lines().find(|line| line.starts_with(&start)).expect("a row").to_owned()
        };
        if row("app").contains(",L7OK,101,") && row("other").contains(",L7STS,200,") {
            break;
        }
        tries += 1;
        assert!(tries < 1000, "{shown}");
        std::thread::sleep(Duration::from_millis(20));
    }
    gate.terminate();
    let (status, messages) = gate.wait();
    assert!(status.success(), "{messages}");
}

#[test]
fn server_whose_checks_fail_gets_no_requests_until_they_pass() {
    let health = "{ http = \"/up\", every = \"50ms\", timeout = \"20s\" }";
    let mut checked = Checked::start("health-http", health);
    checked.wait_for(true, "check_status", "L7OK");
    let up = checked.homes[0].join("files/up");
    std::fs::remove_file(&up).expect("the file exists");
    checked.wait_for(true, "status", "DOWN");
    assert_eq!(checked.stat(&checked.first, "check_status"), "L7STS");
    assert_eq!(checked.stat(&checked.first, "check_code"), "404");
    assert_eq!(checked.stat(&checked.first, "chkdown"), "1");
    checked.wait_for_pages("two\n");
    let metrics = run_well(curl().arg(format!("http://{}/metrics", checked.admin)));
    let labels = format!("{{pool=\"app\",server=\"{}\"}}", checked.first.address);
    assert!(metrics.contains(&format!("\ntidegate_server_up{labels} 0\n")), "{metrics}");
    assert!(metrics.contains("result=\"L7STS\"} 1\n"), "{metrics}");
    let state = checked.ctl(&["show", "servers", "state"]);
    let first = checked.first.address;
    assert!(state.contains(&format!(" 1 {first} {} 0 0 1 1 ", first.ip())), "{state}");

    // A reload keeps the state. A state that an operator sets applies in addition to the checks.
    let servers = [checked.first.address, checked.second.address];
    let health = "{ http = \"/up\", every = \"60ms\", timeout = \"20s\" }";
    let config = Checked::config(checked.admin, servers, health);
    checked.folder.file("tidegate.toml", config);
    checked.ctl(&["set", "server", &format!("app/{}", servers[1]), "state", "drain"]);
    checked.ctl(&["reload"]);
    checked.wait_for(false, "status", "DRAIN");
    assert_eq!(checked.stat(&checked.first, "chkdown"), "1");
    let refused = || run_well(curl().args(["-o", "-"]).arg(checked.gate.url("/page")));
    assert!(refused().contains("no server is available"));

    std::fs::write(&up, "well\n").expect("a file");
    checked.wait_for(true, "status", "UP");
    checked.wait_for_pages("one\n");
    checked.ctl(&["set", "server", &format!("app/{}", servers[1]), "state", "ready"]);
    let (first, all) = (checked.first.address, checked.pages());
    assert!(all.iter().all(|page| page == "one\n" || page == "two\n"));
    let messages = checked.end();
    let down = format!("warning pool app: server {first} is down: status 404 after ");
    let up = format!("info pool app: server {first} is up after ");
    assert!(messages.contains(&down) && messages.contains(&up), "{messages}");
}

/// An agent that listens on all addresses: it sends the text to each client that connects, and closes the connection.
fn start_agent() -> (SocketAddr, Arc<Mutex<&'static str>>) {
    let listener = TcpListener::bind("0.0.0.0:0").expect("the kernel has a port");
    let address = listener.local_addr().expect("it is bound");
    let text = Arc::new(Mutex::new(""));
    let shown = Arc::clone(&text);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let text = *shown.lock().expect("no panic");
            let _ = client.write_all(text.as_bytes());
        }
    });
    (address, text)
}

#[test]
fn agent_changes_the_share_of_its_server() {
    let (agent, text) = start_agent();
    let health = format!(
        "{{ http = \"/up\", every = \"50ms\", timeout = \"20s\" }}\n\
         agent = {{ port = {}, every = \"50ms\", timeout = \"20s\" }}",
        agent.port()
    );
    // The agent is the same for both servers, which have different addresses.
    let mut checked = Checked::start("health-agent", &health);
    let server = format!("app/{}", checked.first.address);
    let say = |line| *text.lock().expect("no panic") = line;
    checked.wait_for(true, "agent_status", "L7RSP");
    for (line, status, weight) in [
        ("drain\n", "DRAIN", "1"),
        ("ready\n", "UP", "1"),
        ("down # the disk is full\n", "DOWN (agent)", "1"),
        ("50% up\n", "UP", "1"),
        ("0%\r\n", "DRAIN", "0"),
        ("400%\n", "UP", "4"),
        ("maint\n", "MAINT", "4"),
        ("ready\n", "UP", "4"),
    ] {
        say(line);
        checked.wait_for(true, "last_agt", line.trim());
        // Otherwise the other server may miss the line, such as the one that ends its drain.
        checked.wait_for(false, "last_agt", line.trim());
        assert_eq!(checked.stat(&checked.first, "status"), status, "{line}");
        assert_eq!(checked.stat(&checked.first, "weight"), weight, "{line}");
    }
    assert_eq!(checked.stat(&checked.first, "agent_health"), "1");
    let metrics = run_well(curl().arg(format!("http://{}/metrics", checked.admin)));
    let labels = format!("{{pool=\"app\",server=\"{}\"}}", checked.first.address);
    assert!(metrics.contains(&format!("\ntidegate_server_weight{labels} 4\n")), "{metrics}");
    // An operator takes one server out, whatever the agent reports.
    checked.ctl(&["set", "server", &server, "state", "maint"]);
    say("ready up\n");
    checked.wait_for(true, "last_agt", "ready up");
    assert_eq!(checked.stat(&checked.first, "status"), "MAINT");
    checked.wait_for_pages("two\n");
    checked.ctl(&["set", "server", &server, "state", "ready"]);
    say("stopped\n");
    checked.wait_for(true, "status", "DOWN (agent)");
    checked.wait_for(false, "status", "DOWN (agent)");
    let is_refused = || checked.pages().iter().all(|page| page.contains("no server is available"));
    let tries = (0..1000).take_while(|_| !is_refused()).count();
    assert!(tries < 1000, "the worker does not learn that both servers are down");
    let state = checked.ctl(&["show", "servers", "state"]);
    assert!(
        state.contains(&format!(
            " 22 0 0 - {} - 0 0 - - {}\n",
            checked.first.address.port(),
            agent.port()
        )),
        "{state}"
    );
    let messages = checked.end();
    assert!(messages.contains("reports \"down # the disk is full\""), "{messages}");
}

#[test]
fn changed_file_is_read_again_without_a_signal() {
    let folder = Folder::new("watched");
    let config = |body: &str| {
        format!(
            "[server]\nreload = \"watch\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
             [[route]]\nrespond = {{ body = \"{body}\" }}\n"
        )
    };
    let gate = Gate::start(&folder, &config("one"));
    let get = || run_well(curl().arg(gate.url("/")));
    assert_eq!(get(), "one");
    // A file that is refused changes nothing, and a replaced file counts as changed.
    folder.file("tidegate.toml", "[[listener]]\nbnid = 1\n");
    let new = folder.file("new.toml", config("two"));
    std::fs::rename(new, folder.join("tidegate.toml")).expect("a file is replaced");
    for body in ["two", "three"] {
        let mut tries = 0;
        while get() != body {
            tries += 1;
            assert!(tries < 1000, "the file is not read again");
            std::thread::sleep(Duration::from_millis(20));
        }
        folder.file("tidegate.toml", config("three"));
    }
    gate.terminate();
    assert!(gate.wait().0.success());
}

#[test]
fn get_requests_survive_the_kill_of_a_server_under_load() {
    let health = "{ http = \"/up\", every = \"100ms\", timeout = \"20s\" }";
    let mut checked = Checked::start("health-kill", health);
    checked.wait_for(true, "status", "UP");
    let mut load = wrk();
    // nginx sends a file after the head, so that a kill between them may cut the response.
    load.args(["--connections", "16", "--duration", "6s"]).arg(checked.gate.url("/memory"));
    let load = start(load.stdout(Stdio::piped()).stderr(Stdio::piped()));
    std::thread::sleep(Duration::from_millis(500));
    checked.first.kill();
    checked.wait_for(true, "status", "DOWN");
    assert_eq!(checked.stat(&checked.first, "check_status"), "L4CON");
    checked.first = Nginx::start_on(&checked.homes[0], checked.first.address);
    checked.wait_for(true, "status", "UP");
    let output = load.output();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = parse_wrk(text(&output.stdout));
    assert!(report.errors.is_empty() && report.requests > 100, "{}", report.text);
    checked.end();
}

#[test]
fn checks_over_tls_verify_the_certificate() {
    let folder = Folder::new("health-tls");
    crate::proxy_protocol::make_certificate(&folder);
    let (address, admin) = (free_address(), free_address());
    let origin = format!(
        "[[listener]]\nbind = \"{address}\"\ntls = {{ certificates = [{{ cert = {0:?}, key = {1:?} }}] }}\n\
         [[route]]\nrespond = {{ body = \"well\" }}\n",
        folder.join("site.pem"),
        folder.join("site.key"),
    );
    let file = folder.file("origin.toml", origin);
    let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut origin = Process::spawn(command.args(["run", &file]));
    origin.wait_for_listener(address);
    let config = format!(
        "[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"app\"\n\
         [pool.app]\nservers = [\"{address}\"]\nhealth = \"/\"\n\
         tls = {{ ca = {0:?}, server-name = \"NAME\", alpn = [\"h2\", \"http/1.1\"] }}\n\
         [pool.tcp]\nservers = [\"{address}\"]\nhealth = {{ tcp = true }}\n\
         tls = {{ ca = {0:?}, server-name = \"localhost\" }}\n",
        folder.join("ca.pem"),
    );
    for (name, expected) in [("localhost", ",L7OK,200,"), ("b.example", ",L6RSP,,")] {
        // The certificate is for another name than b.example.
        let gate = Gate::start(&folder, &config.replace("NAME", name));
        let url = format!("http://{admin}/");
        let shown = || {
            let mut command = tidegate_testing::command(env!("CARGO_BIN_EXE_tidegate"));
            run_well(command.args(["ctl", "--at", &admin.to_string(), "show", "stat"]))
        };
        origin.wait_until(&format!("checked as {name} by {url}"), || {
            let shown = shown();
            shown.contains(expected) && shown.contains(",L6OK,,")
        });
        gate.signal(Signal::TERM);
        assert!(gate.wait().0.success());
    }
}

/// Checks nginx over TLS connections that are kept, until it has counted several connections. Returns how many checks each carried, but
/// the last.
fn checks_over_kept_tls_connections(name: &str, server: &str, every: &str) -> Vec<usize> {
    let folder = Folder::new(name);
    crate::proxy_protocol::make_certificate(&folder);
    let (address, admin, log) = (free_address(), free_address(), folder.join("checks.log"));
    let server =
        format!("access_log {log} connections;\n{server}\nlocation / {{ return 200 well; }}\n");
    let mut nginx = crate::tls_proxies::nginx(&folder, address, &server);
    let config = |host: &str| {
        format!(
            "[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"app\"\n\
             [pool.app]\nservers = [\"{address}\"]\ntls = {{ ca = {:?}, server-name = \"{host}\" }}\n\
             health = {{ http = \"/up\", every = \"{every}\", timeout = \"20s\", keep-alive = \"10m\" }}\n",
            folder.join("ca.pem"),
        )
    };
    let gate = Gate::start(&folder, &config("localhost"));
    let ctl = |words: &[&str]| {
        let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
        run_well(command.args(["ctl", "--at", &admin.to_string()]).args(words))
    };
    let stat = |column| stat_in(&ctl(&["show", "stat"]), address, column);
    let carried = || {
        let mut counts = BTreeMap::<u64, usize>::new();
        for line in std::fs::read_to_string(&log).unwrap_or_default().lines() {
            let (connection, path) = line.split_once(' ').expect("two words");
            assert_eq!(path, "/up");
            *counts.entry(connection.parse().expect("a number")).or_default() += 1;
        }
        counts.into_values().collect::<Vec<_>>()
    };
    nginx.wait_until("checked over several connections", || carried().len() > 3);
    assert_eq!((stat("status"), stat("chkfail")), ("UP".to_owned(), "0".to_owned()));
    let mut counts = carried();
    counts.pop();
    // After a reload, no connection is used that was verified with another name.
    for (host, result) in [("b.example", "L6RSP"), ("localhost", "L7OK")] {
        folder.file("tidegate.toml", config(host));
        ctl(&["reload"]);
        nginx.wait_until(result, || stat("check_status") == result);
    }
    gate.terminate();
    assert!(gate.wait().0.success());
    counts
}

#[test]
fn kept_connections_over_tls_carry_checks_until_the_server_closes_them() {
    // nginx states in the response to the eighth request that it closes the connection.
    let counts = checks_over_kept_tls_connections("tls-kept", "keepalive_requests 8;", "50ms");
    assert!(counts.iter().all(|count| *count == 8), "{counts:?}");
    // It closes an idle connection without a response, before the next check.
    checks_over_kept_tls_connections("tls-idle", "keepalive_timeout 1s;", "2s");
}
