//! The admin interface of a running process, as Prometheus, scripts for HAProxy and `tidegate ctl` use it.
//! In: requests, commands. Out: metrics that another parser accepts, HAProxy's columns, servers that take no requests.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tidegate_testing::{command, command_ignoring};

use crate::origins::go_program;
use crate::process::{Folder, Process, free_address, run, run_well, text};
use crate::requests::curl;

/// A process with an admin interface, and two origins, one of which does not exist.
pub struct Operated {
    pub folder: Folder,
    pub process: Process,
    pub door: SocketAddr,
    pub admin: SocketAddr,
}

impl Operated {
    pub fn start(name: &str, settings: &str) -> Self {
        Self::start_by(command(env!("CARGO_BIN_EXE_tidegate")), name, settings)
    }

    /// As `start`, with the command that starts the program.
    fn start_by(mut command: Command, name: &str, settings: &str) -> Self {
        let folder = Folder::new(name);
        let (door, admin) = (free_address(), free_address());
        let config = format!(
            "[admin]\nbind = \"{admin}\"\n{settings}\n\
             [[listener]]\nname = \"web\"\nbind = \"{door}\"\n\
             [[route]]\npath = \"/app/*\"\nproxy = \"app\"\n\
             [[route]]\npath = \"/json\"\nrespond = {{ body = \"{{}}\" }}\n\
             [pool.app]\nservers = [\"{door}\"]\nretries = 0\n"
        );
        let file = folder.file("tidegate.toml", config);
        let mut process = Process::spawn(command.args(["run", &file]));
        process.wait_for_listener(door);
        process.wait_for_listener(admin);
        Self { folder, process, door, admin }
    }

    pub fn get(&self, target: &str) -> String {
        run_well(curl().args(["-o", "-"]).arg(format!("http://{}{target}", self.door)))
    }

    pub fn page(&self, target: &str) -> String {
        run_well(curl().arg(format!("http://{}{target}", self.admin)))
    }

    pub fn ctl(&self, words: &[&str]) -> Output {
        let at = self.admin.to_string();
        run(command(env!("CARGO_BIN_EXE_tidegate")).args(["ctl", "--at", &at]).args(words))
    }

    pub fn ctl_well(&self, words: &[&str]) -> String {
        let output = self.ctl(words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    }
}

/// The rows of `show stat`, read as scripts do: columns by the names in the first line.
fn rows(csv: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = csv.lines().filter(|line| !line.is_empty());
    let header = lines.next().expect("a header").trim_start_matches("# ").to_owned();
    let names: Vec<String> = header.split(',').map(str::to_owned).collect();
    lines
        .map(|line| names.iter().cloned().zip(line.split(',').map(str::to_owned)).collect())
        .collect()
}

#[test]
fn metrics_are_accepted_by_the_parser_of_prometheus() {
    let operated = Operated::start("metrics", "");
    for _ in 0..3 {
        assert_eq!(operated.get("/json"), "{}");
    }
    assert!(operated.get("/nothing").contains("no route"));
    let check = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics\n\
        from prometheus_client.parser import text_string_to_metric_families as plain\n\
        parse = open_metrics if sys.argv[1] == 'open' else plain\n\
        for family in parse(open(sys.argv[2]).read()):\n\
        \x20   for sample in family.samples:\n\
        \x20       print(sample.name, sorted(sample.labels.items()), float(sample.value))\n";
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/python/bin/python");
    for (kind, accept) in
        [("open", "application/openmetrics-text; version=1.0.0"), ("plain", "*/*")]
    {
        let url = format!("http://{}/metrics", operated.admin);
        let metrics = run_well(curl().args(["-H", &format!("Accept: {accept}")]).arg(url));
        for (name, about) in
            [("accepted", "Connections accepted."), ("turns", "Turns that the worker")]
        {
            let help = metrics.lines().find(|line| {
                line.starts_with(&format!("# HELP tidegate_{name} "))
                    || line.starts_with(&format!("# HELP tidegate_{name}_total "))
            });
            assert!(help.is_some_and(|line| line.contains(about)), "{name}: {help:?}");
        }
        let file = operated.folder.file("metrics.txt", &metrics);
        let samples = run_well(Command::new(python).args(["-c", check, kind, &file]));
        for expected in [
            "tidegate_route_responses_total [('route', '/json'), ('status', '2xx')] 3.0\n",
            "tidegate_listener_responses_total [('listener', 'web'), ('status', '4xx')] 1.0\n",
            "tidegate_listener_failures_total [('cause', 'refused'), ('listener', 'web')] 1.0\n",
            "tidegate_route_duration_seconds_count [('route', '/json')] 3.0\n",
            "tidegate_route_duration_seconds_bucket [('le', '+Inf'), ('route', '/json')] 3.0\n",
            "tidegate_requests_total [] 4.0\n",
            "tidegate_downstream_now [] ",
        ] {
            assert!(samples.contains(expected), "{kind}: no {expected:?} in\n{samples}");
        }
    }
}

#[test]
fn native_histograms_are_read_with_the_messages_of_prometheus() {
    let operated = Operated::start("metrics-native", "");
    for _ in 0..3 {
        assert_eq!(operated.get("/json"), "{}");
    }
    let file = operated.folder.join("metrics.bin");
    let accept = "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
        encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1";
    let url = format!("http://{}/metrics", operated.admin);
    run_well(curl().args(["-H", accept, "-o", &file]).arg(url));
    let samples = run_well(go_program("metrics_reader").arg(&file));
    for expected in [
        "tidegate_route_responses_total route=/json status=2xx COUNTER 3\n",
        "tidegate_workers GAUGE ",
        "process_cpu_seconds_total COUNTER ",
        "tidegate_route_duration_seconds route=/json HISTOGRAM count 3 buckets 41 native 3 schema 1 zero",
    ] {
        assert!(samples.contains(expected), "no {expected:?} in\n{samples}");
    }
}

/// The dashboard for Grafana uses metrics and labels that exist.
#[test]
fn dashboard_of_grafana_uses_existing_metrics_and_labels() {
    let operated = Operated::start("metrics-grafana", "");
    assert_eq!(operated.get("/json"), "{}");
    let metrics = operated.page("/metrics");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).expect("it exists"))
        .expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("an array");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut count = 0;
    for target in targets {
        let query = target["expr"].as_str().expect("a text");
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        for name in query.split(|letter| !is_word(letter)) {
            if name.starts_with("tidegate_") || name.starts_with("process_") {
                let sample = metrics.lines().find(|line| {
                    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                });
                let sample = sample.unwrap_or_else(|| panic!("no metric {name}: {query}"));
                for label in ["status", "listener", "route", "pool", "server", "cause", "le"] {
                    let uses = query.contains(&format!("{label}="))
                        || query.split(['(', ')', ',']).any(|part| part.trim() == label);
                    assert!(
                        !uses || sample.contains(&format!("{label}=")),
                        "{label}: {query}, {sample}"
                    );
                }
                count += 1;
            }
        }
    }
    assert!(count > 40, "{count} metrics");
}

#[test]
fn health_endpoints_and_pages_answer() {
    let operated = Operated::start("admin-pages", "");
    assert_eq!((operated.page("/live"), operated.page("/ready")), ("ok\n".into(), "ok\n".into()));
    let info: Value = serde_json::from_str(&operated.page("/info")).expect("it is JSON");
    assert_eq!((&info["Name"], &info["Stopping"]), (&"Tidegate".into(), &0.into()));
    assert!(info["counters"]["accepted"].is_u64(), "{info}");
    let stat: Value = serde_json::from_str(&operated.page("/stat")).expect("it is JSON");
    assert_eq!(stat[0]["svname"], "FRONTEND");
    assert!(operated.page("/nothing").contains("GET /metrics"));
    // A page of a browser that resolved its own name to this machine.
    let url = format!("http://{}/metrics", operated.admin);
    let foreign = run_well(curl().args(["-H", "Host: evil.example"]).arg(&url));
    assert!(foreign.starts_with("the Host field must be"), "{foreign}");
    let posted = run_well(curl().args(["--data", "shutdown"]).arg(&url));
    assert!(posted.starts_with("only GET"), "{posted}");
}

#[test]
fn statistics_have_the_columns_of_haproxy() {
    let operated = Operated::start("admin-stat", "");
    assert_eq!(operated.get("/json"), "{}");
    // The pool's only server is the listener itself, which recognizes its own Via.
    assert!(operated.get("/app/x").contains("too many times"));
    let stat = operated.ctl_well(&["show", "stat"]);
    let rows = rows(&stat);
    let kinds: Vec<(&str, &str)> =
        rows.iter().map(|row| (row["pxname"].as_str(), row["svname"].as_str())).collect();
    let server = operated.door.to_string();
    assert_eq!(kinds, [("web", "FRONTEND"), ("app", server.as_str()), ("app", "BACKEND")]);
    let number = |row: usize, column: &str| rows[row][column].parse::<u64>().unwrap_or(u64::MAX);
    assert!(number(0, "stot") >= 3 && number(0, "hrsp_2xx") == 1, "{stat}");
    assert!(number(1, "stot") >= 1 && number(1, "bout") > 0 && number(1, "scur") == 0, "{stat}");
    assert_eq!(rows[2]["status"], "UP");
    for column in ["qcur", "qmax", "scur"] {
        assert_eq!((number(1, column), number(2, column)), (0, 0), "{column}: {stat}");
    }
    // The request has passed through the listener several times.
    assert!(
        (1..100).contains(&number(1, "smax")) && number(2, "smax") == number(1, "smax"),
        "{stat}"
    );
    assert!(number(1, "lastchg") < 600 && number(2, "lastchg") < 600, "{stat}");
    let servers = operated.ctl_well(&["show", "stat", "-1", "4", "-1"]);
    assert_eq!(servers.lines().filter(|line| line.starts_with("app,")).count(), 1, "{servers}");
    assert!(!servers.contains(",FRONTEND,") && !servers.contains(",BACKEND,"), "{servers}");
    assert!(operated.ctl_well(&["show", "info"]).contains("\nCumReq: "));
    // The programs of HAProxy's users write the command and read until the end.
    let mut socket = TcpStream::connect(operated.admin).expect("it listens");
    socket.write_all(b"show info; show stat\n").expect("it reads");
    let mut reply = String::new();
    socket.read_to_string(&mut reply).expect("the reply is text");
    assert!(reply.starts_with("Name: Tidegate\n") && reply.contains("\n# pxname,svname,qcur,"));
}

/// Sends what hatop sends, and reads up to its prompt, as hatop does.
#[test]
fn session_serves_interactive_programs_for_haproxy() {
    let operated = Operated::start("admin-hatop", "");
    let mut socket = TcpStream::connect(operated.admin).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    let mut ask = |line: &str| {
        socket.write_all(format!("{line}\n").as_bytes()).expect("it reads");
        let mut reply = Vec::new();
        while !reply.ends_with(b"\n> ") {
            let mut bytes = [0; 4096];
            let count = socket.read(&mut bytes).expect("a reply");
            assert!(count > 0, "{line}: the session ended: {}", String::from_utf8_lossy(&reply));
            reply.extend_from_slice(&bytes[..count]);
        }
        String::from_utf8(reply).expect("text")
    };
    assert_eq!((ask("prompt").as_str(), ask("set timeout cli 60").as_str()), ("\n> ", "\n\n> "));
    let info = ask("show info");
    for name in ["Maxconn", "CurrConns", "Maxpipes", "PipesUsed", "Tasks", "Run_queue", "Idle_pct"]
    {
        let value = info.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        assert!(value.is_some_and(|value| value.parse::<u64>().is_ok()), "{name}: {info}");
    }
    for name in ["Name", "Version", "Release_date", "node", "Uptime"] {
        assert!(info.lines().any(|line| line.starts_with(&format!("{name}: "))), "{name}: {info}");
    }
    assert!(ask("frobnicate").starts_with("error: unknown command"));
    assert!(ask("show stat -1 2 -1").contains("\napp,BACKEND,0,0,0,0,"));
    let name = format!("app/{}", operated.door);
    assert_eq!(ask(&format!("set weight {name} 50%")), "\n\n> ");
    assert_eq!(ask(&format!("disable server {name}")), "\n\n> ");
    assert!(ask("show stat").contains(",MAINT,"));
}

#[test]
fn server_that_is_taken_out_gets_no_requests_until_it_is_ready() {
    let operated = Operated::start("admin-set", "");
    let name = format!("app/{}", operated.door);
    let before = operated.get("/app/x");
    assert!(!before.contains("no server is available"), "{before}");
    assert_eq!(operated.ctl_well(&["set", "server", &name, "state", "maint"]), "");
    let state = operated.ctl_well(&["show", "servers", "state"]);
    assert!(
        state.contains(&format!("1 app 1 {} {} 0 1 ", operated.door, operated.door.ip())),
        "{state}"
    );
    let is_out = || operated.get("/app/x").contains("no server is available");
    let mut tries = 0;
    while !is_out() {
        tries += 1;
        assert!(tries < 1000, "the worker does not learn of the change");
    }
    assert!(operated.ctl_well(&["show", "stat"]).contains(",MAINT,"));
    operated.ctl_well(&["set", "server", &name, "state", "ready"]);
    while is_out() {
        tries += 1;
        assert!(tries < 2000, "the worker does not learn of the change");
    }
    for (words, expected) in [
        (&["set", "server", &name, "state", "up"][..], "allowed: ready, drain, maint"),
        (&["set", "server", "app/x", "state", "ready"][..], &format!("the servers are: {name}")),
        (&["show", "servers", "state", "x"][..], "the pools are: app"),
        (&["frobnicate"][..], "show stat [POOL|"),
        (&["wait", "-1s"][..], "allowed: 0s to 5m"),
    ] {
        let output = operated.ctl(words);
        let said = text(&output.stderr).to_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}

#[test]
fn shutdown_stops_the_process_in_order() {
    let mut operated = Operated::start("admin-shutdown", "");
    operated.ctl_well(&["shutdown"]);
    assert!(operated.process.wait().success());
}

#[test]
fn token_is_required_where_one_is_configured() {
    let folder = Folder::new("admin-token-file");
    let token = folder.file("token", "secret-1\n");
    let operated = Operated::start("admin-token", &format!("token-file = {token:?}"));
    let url = format!("http://{}/metrics", operated.admin);
    let code = |arguments: &[&str]| {
        run_well(curl().args(["-o", "/dev/null", "-w", "%{http_code}"]).args(arguments).arg(&url))
    };
    assert_eq!(code(&[]), "401");
    assert_eq!(code(&["-H", "Authorization: Bearer secret-2"]), "401");
    assert_eq!(code(&["-H", "Authorization: Bearer secret-1"]), "200");
    assert_eq!(operated.page("/live"), "ok\n");
    assert!(text(&operated.ctl(&["show", "info"]).stderr).contains("present the token"));
    let shown = operated.ctl_well(&["--token-file", &token, "show", "info"]);
    assert!(shown.starts_with("Name: Tidegate\n"), "{shown}");
}

#[test]
fn new_process_takes_the_interface_over_when_the_old_one_has_ended() {
    let operated = Operated::start("admin-takeover", "");
    let file = operated.folder.join("tidegate.toml");
    let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut new = Process::spawn(command.args(["run", &file, "--takeover"]));
    operated.process.terminate();
    let expected = format!("Pid: {}\n", new.pid());
    new.wait_until("the interface of the new process", || {
        text(&operated.ctl(&["show", "info"]).stdout).contains(&expected)
    });
    new.terminate();
    assert!(new.wait().success());
}

#[test]
fn unix_socket_is_open_to_its_user_only() {
    let folder = Folder::new("admin-unix");
    let (door, path) = (free_address(), folder.join("admin.sock"));
    let config = format!(
        "[admin]\nbind = \"unix:{path}\"\n[[listener]]\nbind = \"{door}\"\n[[route]]\nrespond = {{}}\n"
    );
    let file = folder.file("tidegate.toml", config);
    let mut process = Process::spawn(command(env!("CARGO_BIN_EXE_tidegate")).args(["run", &file]));
    process.wait_for_listener(door);
    process.wait_until("the socket", || UnixStream::connect(&path).is_ok());
    let mode = std::fs::metadata(&path).expect("the socket exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let shown = run_well(
        command(env!("CARGO_BIN_EXE_tidegate")).args(["ctl", "-c", &file, "show", "info"]),
    );
    assert!(shown.starts_with("Name: Tidegate\n"), "{shown}");
    process.terminate();
    assert!(process.wait().success());
    assert!(!std::path::Path::new(&path).exists(), "the socket is removed");
}

/// The bytes of a ClientHello whose session id is `id`, which a site in a browser can choose.
fn client_hello(id: &str) -> Vec<u8> {
    let mut body = b"\x03\x03".to_vec();
    body.extend_from_slice(&[0x41; 32]);
    body.push(32);
    body.extend_from_slice(format!("{id:z<32}").as_bytes());
    body.extend_from_slice(
        b"\x00\x02\x13\x01\x01\x00\x00\x0c\x00\x0a\x00\x08\x00\x06\x00\x1d\x00\x17\x00\x18",
    );
    let mut record = vec![0x16, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    record.extend_from_slice(&body);
    record
}

#[test]
fn client_hello_with_a_command_in_it_runs_nothing() {
    let mut operated = Operated::start("admin-poison", "");
    for id in [";shutdown;", "\nshutdown\n"] {
        let mut socket = TcpStream::connect(operated.admin).expect("it listens");
        socket.write_all(&client_hello(id)).expect("it reads");
        let mut reply = Vec::new();
        // Bytes that were not read reset the connection.
        let _ = socket.read_to_end(&mut reply);
        assert!(reply.is_empty(), "{}", String::from_utf8_lossy(&reply));
    }
    assert_eq!(operated.get("/json"), "{}");
    assert!(operated.ctl_well(&["show", "info"]).contains("\nStopping: 0\n"));
    operated.process.terminate();
    assert!(operated.process.wait().success());
}

#[test]
fn clients_that_never_complete_a_request_do_not_occupy_the_interface() {
    let folder = Folder::new("admin-flood-token");
    let token = folder.file("token", "secret-of-16-chars-or-more\n");
    let operated = Operated::start("admin-flood", &format!("token-file = {token:?}"));
    let mut dripping = Vec::new();
    for round in 0..3 {
        for _ in 0..20 {
            let mut socket = TcpStream::connect(operated.admin).expect("it listens");
            socket.write_all(b"prompt\nx").expect("room");
            dripping.push(socket);
        }
        for socket in &mut dripping {
            // Sockets that gave way are closed.
            let _ = socket.write_all(b"x");
        }
        assert_eq!(operated.page("/live"), "ok\n", "round {round}");
        let shown = operated.ctl_well(&["--token-file", &token, "show", "info"]);
        assert!(shown.contains("\nadmin_connections_displaced: "), "{shown}");
    }
}

/// The line protocol, as scripts for HAProxy send it, and a reload between changes.
#[test]
fn changes_of_a_map_last_over_a_reload_with_the_same_entries() {
    let (folder, door, admin) = (Folder::new("admin-map"), free_address(), free_address());
    let text = |entries: &str, last_pool: &str| {
        format!(
            "[admin]\nbind = \"{admin}\"\n[[listener]]\nname = \"web\"\nbind = \"{door}\"\n\
             [[route]]\nproxy = {{ pool = {{ map = \"m\", key = \"{{header:x-key}}\" }} }}\n\
             [map.m]\nentries = {{ {entries} }}\n\
             [pool.app]\nservers = [\"{door}\"]\n[pool.{last_pool}]\nservers = [\"{door}\"]\n\
             [pool.next]\nservers = [\"{door}\"]\n"
        )
    };
    let file = folder.file("tidegate.toml", text("\"a\" = \"app\"", "first"));
    let mut program = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = Process::spawn(program.args(["run", &file]));
    process.wait_for_listener(door);
    process.wait_for_listener(admin);
    let operated = Operated { folder, process, door, admin };
    let shown = || operated.ctl_well(&["show", "map", "m"]);
    operated.ctl_well(&["set", "map", "m", "b", "next"]);
    assert_eq!(shown(), "a app\nb next\n");
    let mut socket = TcpStream::connect(operated.admin).expect("it listens");
    socket.write_all(b"prompt\nset map m c app\ndel map m a\nquit\n").expect("it reads");
    let mut reply = String::new();
    socket.read_to_string(&mut reply).expect("the reply is text");
    assert!(!reply.contains("error"), "{reply}");
    operated.folder.file("tidegate.toml", text("\"a\" = \"app\"", "later"));
    operated.ctl_well(&["reload"]);
    // A value may name the pool after the reload.
    operated.ctl_well(&["set", "map", "m", "d", "later"]);
    assert_eq!(shown(), "b next\nc app\nd later\n");
    for (words, expected) in [
        (&["set", "map", "m", "e", "other"][..], "the pools are: app, later, next"),
        (&["del", "map", "m", "a"][..], "has no value for"),
        (&["set", "map", "x", "a", "app"][..], "the maps are: m"),
        (&["add", "map", "@7", "m", "a", "app"][..], "there is no version @7"),
    ] {
        let output = operated.ctl(words);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && why.contains(expected), "{words:?}: {why}");
    }
    operated.folder.file("tidegate.toml", text("\"a\" = \"next\"", "later"));
    operated.ctl_well(&["reload"]);
    assert_eq!(shown(), "a next\n");
}

/// A refused reload fails with the reason, and no argument can contain a second command.
#[test]
fn reload_that_is_refused_and_arguments_with_two_commands_fail() {
    let operated = Operated::start("admin-refused-reload", "");
    let refused = |words: &[&str]| {
        let output = operated.ctl(words);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let file = operated.folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).expect("it exists");
    operated.folder.file("tidegate.toml", format!("{text}\nbroken\n"));
    let (code, why) = refused(&["reload"]);
    assert!(
        code == Some(1) && why.starts_with("error: ") && why.contains("tidegate.toml:"),
        "{why}"
    );
    operated.folder.file("tidegate.toml", &text);
    operated.ctl_well(&["reload"]);
    for argument in ["192.0.2.7;shutdown", "192.0.2.7\nshutdown"] {
        let (code, why) = refused(&["add", "set", "s", argument]);
        assert!(code == Some(2) && why.contains("one command at a time"), "{code:?}: {why}");
    }
    assert_eq!(operated.get("/json"), "{}");
}

/// A process that nohup(1) has started ignores SIGHUP, but not the command.
#[test]
fn reload_is_made_by_a_process_that_ignores_hang_ups() {
    let command = command_ignoring("HUP", env!("CARGO_BIN_EXE_tidegate"));
    let operated = Operated::start_by(command, "admin-ignored-hang-up", "");
    let file = operated.folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).expect("it exists");
    operated.folder.file("tidegate.toml", text.replace("body = \"{}\"", "body = \"[]\""));
    operated.ctl_well(&["reload"]);
    assert_eq!(operated.get("/json"), "[]");
}

/// Routes of a name are closed and opened by a command, whatever `active` says; a reload keeps it.
#[test]
fn maintenance_is_switched_by_its_name_and_lasts_over_a_reload() {
    let (folder, door, admin) = (Folder::new("admin-maintenance"), free_address(), free_address());
    let text = |status: &str| {
        format!(
            "[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"{door}\"\n\
             [[route]]\npath = \"/a\"\nmaintenance = {{ name = \"shop\", active = false }}\nrespond = {{ status = {status} }}\n\
             [[route]]\npath = \"/b\"\nmaintenance = {{ name = \"shop\" }}\nrespond = {{ status = {status} }}\n"
        )
    };
    let file = folder.file("tidegate.toml", text("200"));
    let mut program = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = Process::spawn(program.args(["run", &file]));
    process.wait_for_listener(door);
    process.wait_for_listener(admin);
    let operated = Operated { folder, process, door, admin };
    let status = |path: &str| {
        let mut socket = TcpStream::connect(operated.door).expect("it listens");
        socket.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).expect("it reads");
        let mut response = String::new();
        socket.read_to_string(&mut response).expect("the response is text");
        response.get(9..12).map(str::to_owned).unwrap_or_default()
    };
    let statuses = || [status("/a"), status("/b")];
    for (word, expected, closed) in
        [("default", ["200", "503"], 1), ("on", ["503", "503"], 2), ("off", ["200", "200"], 0)]
    {
        operated.ctl_well(&["set", "maintenance", "shop", word]);
        assert_eq!(statuses(), expected, "{word}");
        let shown = format!("# name switch routes closed\nshop {word} 2 {closed}\n");
        assert_eq!(operated.ctl_well(&["show", "maintenance"]), shown);
    }
    operated.folder.file("tidegate.toml", text("204"));
    operated.ctl_well(&["reload"]);
    assert_eq!(statuses(), ["204", "204"]);
    for (words, expected) in [
        (&["set", "maintenance", "wiki", "on"][..], "the names are: shop"),
        (&["set", "maintenance", "shop", "yes"][..], "on|off|default"),
    ] {
        let output = operated.ctl(words);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && why.contains(expected), "{words:?}: {why}");
    }
}

/// A set is changed over the line protocol; a reload keeps the changes until the file has other addresses.
#[test]
fn changes_of_a_set_last_over_a_reload_with_the_same_addresses() {
    let (folder, door, admin) = (Folder::new("admin-addresses"), free_address(), free_address());
    let text = |status: &str| {
        format!(
            "[admin]\nbind = \"{admin}\"\n[[listener]]\nname = \"web\"\nbind = \"{door}\"\n\
             [[route]]\nclient = [\"set:s\"]\nrespond = {{ status = {status} }}\n\
             [[route]]\nrespond = {{ status = 200 }}\n[set.s]\naddresses = \"s.txt\"\n"
        )
    };
    folder.file("s.txt", "192.0.2.0/24\n");
    let file = folder.file("tidegate.toml", text("204"));
    let mut program = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = Process::spawn(program.args(["run", &file]));
    process.wait_for_listener(door);
    process.wait_for_listener(admin);
    let operated = Operated { folder, process, door, admin };
    let shown = || operated.ctl_well(&["show", "set", "s"]);
    let status = || {
        let mut socket = TcpStream::connect(operated.door).expect("it listens");
        socket.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it reads");
        let mut response = String::new();
        socket.read_to_string(&mut response).expect("the response is text");
        response.get(9..12).map(str::to_owned)
    };
    assert_eq!(status().as_deref(), Some("200"));
    operated.ctl_well(&["add", "set", "s", "127.0.0.0/8"]);
    assert_eq!(status().as_deref(), Some("204"));
    operated.folder.file("tidegate.toml", text("403"));
    operated.ctl_well(&["reload"]);
    assert_eq!(status().as_deref(), Some("403"));
    operated.ctl_well(&["del", "set", "s", "192.0.2.128/25"]);
    assert_eq!(shown(), "127.0.0.0/8\n192.0.2.0/25\n");
    assert_eq!(operated.ctl_well(&["show", "set"]), "# name ranges changes\ns 2 2\n");
    for (words, expected) in [
        (&["add", "set", "s", "127.0.0.1/8"][..], "not the first address"),
        (&["del", "set", "s", "10.0.0.0/8"][..], "does not contain"),
        (&["get", "set", "s", "10.0.0.1"][..], "does not contain"),
        (&["add", "set", "x", "::1"][..], "the sets are: s"),
        (&["commit", "set", "@7", "s"][..], "there is no version @7"),
    ] {
        let output = operated.ctl(words);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && why.contains(expected), "{words:?}: {why}");
    }
    operated.folder.file("s.txt", "192.0.2.0/25\n");
    operated.ctl_well(&["reload"]);
    assert_eq!(shown(), "192.0.2.0/25\n");
    assert_eq!(status().as_deref(), Some("200"));
}

/// Counts of a table are those of all workers; commands show, clear and mark keys; a reload keeps them.
#[test]
fn tables_are_shown_cleared_and_marked() {
    let (folder, door, admin) = (Folder::new("admin-table"), free_address(), free_address());
    let text = |expire: &str| {
        format!(
            "[server]\nworkers = 2\n[admin]\nbind = \"{admin}\"\n\
             [[listener]]\nname = \"web\"\nbind = \"{door}\"\ncount = \"t\"\n\
             [[route]]\ntable = {{ t = {{ mark = \">= 5\" }} }}\nrespond = {{ status = 403 }}\n\
             [[route]]\nrespond = {{ status = 204 }}\n\
             [table.t]\ncounts = [\"requests\", \"requests/1h\", \"errors\", \"connections\", \"mark\"]\n\
             expire = \"{expire}\"\n[table.u]\nkey = \"header:x-user\"\ncounts = [\"requests\"]\nentries-max = 16\n"
        )
    };
    let file = folder.file("tidegate.toml", text("1h"));
    let mut program = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = Process::spawn(program.args(["run", &file]));
    process.wait_for_listener(door);
    process.wait_for_listener(admin);
    let operated = Operated { folder, process, door, admin };
    let send = |request: &str| {
        let mut socket = TcpStream::connect(operated.door).expect("it listens");
        socket.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        socket.read_to_string(&mut response).expect("the response is text");
        response.get(9..12).map(str::to_owned).unwrap_or_default()
    };
    let get = || send("GET / HTTP/1.0\r\n\r\n");
    // The counts of the key, without the time since its last use.
    let counts = |words: &[&str]| -> Vec<String> {
        let shown = operated.ctl_well(words);
        let line = shown.lines().find(|line| line.starts_with("127.0.0.1 ")).unwrap_or_default();
        line.split(' ').skip(2).map(str::to_owned).collect()
    };
    for _ in 0..20 {
        assert_eq!(get(), "204");
    }
    assert_eq!(counts(&["show", "table", "t"]), ["20", "20", "0", "0", "0"]);
    assert_eq!(send("GET\r\n\r\n"), "400");
    assert_eq!(counts(&["show", "table", "t", "5"]), ["21", "21", "1", "0", "0"]);
    operated.ctl_well(&["set", "table", "t", "127.0.0.1", "mark", "7"]);
    operated.ctl_well(&["set", "table", "t", "2001:db8::1", "mark", "7"]);
    assert_eq!(get(), "403");
    let shown = operated.ctl_well(&["show", "table", "t", "key", "2001:db8::2"]);
    assert!(
        shown.starts_with("# key unused requests requests/1h errors connections mark\n"),
        "{shown}"
    );
    assert!(shown.contains("\n2001:db8::/64 ") && shown.ends_with(" 0 0 0 0 7\n"), "{shown}");
    operated.folder.file("tidegate.toml", text("2h"));
    operated.ctl_well(&["reload"]);
    let all = operated.ctl_well(&["show", "table"]);
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines[0], "# name entries entries-max bytes evictions uncounted");
    assert!(lines[1].starts_with("t 2 100000 ") && lines[1].ends_with(" 0 0"), "{all}");
    assert_eq!(lines[2], "u 0 16 1538 0 0");
    assert_eq!(counts(&["show", "table", "t"]), ["22", "22", "2", "0", "7"]);
    operated.ctl_well(&["clear", "table", "t", "127.0.0.1"]);
    assert_eq!(get(), "204");
    let metrics = operated.page("/metrics");
    for line in ["table_entries{table=\"t\"} 2", "table_evictions_total{table=\"u\"} 0"] {
        assert!(metrics.contains(&format!("\ntidegate_{line}\n")), "{line}: {metrics}");
    }
    for (words, expected) in [
        (&["show", "table", "x"][..], "the tables are: t, u"),
        (&["show", "table", "t", "0"][..], "LIMIT must be 1 to"),
        (&["show", "table", "t", "key", "10.0.0.1"][..], "has no key"),
        (&["clear", "table", "t", "10.0.0.1"][..], "has no key"),
        (&["set", "table", "u", "bob", "mark", "1"][..], "has no marks"),
        (&["set", "table", "t", "bob", "mark", "1"][..], "has no key"),
        (&["set", "table", "t", "10.0.0.1", "mark", "x"][..], "the mark cannot be"),
        (
            &["set", "table", "t", "10.0.0.1", "mark", "-1"][..],
            "allowed: a whole number from 0 to 184",
        ),
    ] {
        let output = operated.ctl(words);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && why.contains(expected), "{words:?}: {why}");
    }
}
