//! Upgrades: a new process inherits the listening sockets of the old one, under load; and sockets of a service manager.
//! In: `ctl upgrade`, LISTEN_FDS. Out: no request fails, WebSockets are closed with a reason, and a start that fails changes
//! nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use tidegate_testing::{Signal, command, start};

use crate::gate::Gate;
use crate::load::{parse_wrk, wrk};
use crate::origins::Nginx;
use crate::process::{Folder, Process, free_address, program, run, run_well, text};
use crate::proxy_protocol::make_certificate;
use crate::requests::curl;

/// The process that serves at an admin interface. It is killed at the end of a test that fails.
pub struct Serving {
    admin: String,
    pid: String,
}

impl Serving {
    pub fn at(admin: String) -> Self {
        let mut serving = Self { admin, pid: String::new() };
        serving.pid = serving.read_pid();
        serving
    }

    fn ctl(&self, words: &[&str]) -> String {
        let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
        run_well(command.args(["ctl", "--at", &self.admin]).args(words))
    }

    fn read_pid(&self) -> String {
        let info = self.ctl(&["show", "info"]);
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid: "));
        pid.expect("HAProxy's field").to_owned()
    }

    /// Upgrades until another process serves.
    pub fn upgrade(&mut self) {
        let old = core::mem::take(&mut self.pid);
        self.ctl(&["upgrade"]);
        for _ in 0..3000 {
            self.pid = self.read_pid();
            if self.pid != old {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no new process serves");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut kill = std::process::Command::new("kill");
        let _ = kill.args(["-KILL", &self.pid]).stderr(Stdio::null()).status();
    }
}

/// Opens a WebSocket.
fn open_websocket(address: SocketAddr, path: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).expect("a listener");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).expect("the listener reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("a response");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", text(&head));
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    socket
}

/// Waits for a Close frame. Returns its code.
fn read_close(mut socket: TcpStream) -> u16 {
    loop {
        let mut head = [0; 2];
        socket.read_exact(&mut head).expect("a frame before the end");
        let mut payload = vec![0; usize::from(head[1] & 127)];
        socket.read_exact(&mut payload).expect("the payload of a short frame");
        if head[0] == 0x88 {
            return u16::from_be_bytes([payload[0], payload[1]]);
        }
    }
}

#[test]
fn new_process_inherits_the_listeners_without_a_lost_request() {
    let (folder, behind) = (Folder::new("upgrade"), Folder::new("upgrade-behind"));
    let origin =
        Gate::start(&behind, "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\necho = true\n");
    let nginx = Nginx::start(&folder);
    nginx.file(&folder, "page", "page\n");
    make_certificate(&folder);
    let (plain, secured, admin) = (free_address(), free_address(), free_address());
    let config = format!(
        "[server]\nworkers = 3\nshutdown-grace = \"4s\"\n[admin]\nbind = \"{admin}\"\n\
         [[listener]]\nbind = \"{plain}\"\n\
         [[listener]]\nbind = \"{secured}\"\ntls = {{ certificates = [{{ cert = \"site.pem\", key = \"site.key\" }}] }}\n\
         [[listener]]\nbind = \"unix:web.sock\"\n\
         [[route]]\npath = \"/echo\"\necho = true\n[[route]]\npath = \"/raw\"\npush = {{ hub = \"h\", channel = \"c\" }}\n\
         [push.h]\nanonymous = true\nsubscribe = \"anyone\"\n\
         [[route]]\npath = \"/forwarded\"\nproxy = \"echo\"\n[pool.echo]\nservers = [\"{}\"]\n\
         [[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        origin.address(),
        nginx.address
    );
    let old = Gate::start(&folder, &config);
    let mut serving = Serving::at(admin.to_string());
    assert_eq!(serving.pid, old.pid().to_string());
    // The new process serves where the forwarded ones connect again.
    let kinds = [("/echo", 1001), ("/raw", 1001), ("/forwarded", 1012)];
    let sockets: Vec<(TcpStream, u16)> =
        (0..90).map(|at| (open_websocket(plain, kinds[at % 3].0), kinds[at % 3].1)).collect();
    let load = |scheme: &str, address: SocketAddr, more: &[&str]| {
        let mut command = wrk();
        command.args(["--connections", "16", "--duration", "7s"]).args(more);
        command.arg(format!("{scheme}://{address}/page"));
        start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let close: &[&str] = &["-H", "Connection: close"];
    let loads = [
        load("http", plain, &[]),
        load("http", plain, close),
        load("https", secured, &[]),
        load("https", secured, close),
    ];
    std::thread::sleep(Duration::from_secs(1));
    serving.upgrade();
    // The closes are spread, and each states that the server goes away.
    for (socket, code) in sockets {
        assert_eq!(read_close(socket), code);
    }
    assert_eq!(read_echo(open_websocket(plain, "/forwarded")), *b"\x81\x02hi");
    // A second upgrade, of the process that has inherited its sockets.
    serving.upgrade();
    for load in loads {
        let output = load.output();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = parse_wrk(text(&output.stdout));
        assert!(report.errors.is_empty() && report.requests > 10, "{}", report.text);
    }
    let unix = ["--unix-socket", &folder.join("web.sock"), "http://a/page"];
    assert_eq!(run_well(curl().args(unix)), "page\n");
    assert_eq!(read_echo(open_websocket(plain, "/echo")), *b"\x81\x02hi");
    serving.ctl(&["shutdown"]);
    let (status, messages) = old.wait();
    assert!(status.success(), "{status}: {messages}");
    assert_eq!(messages.matches(" serves; this process completes").count(), 2, "{messages}");
    assert!(
        !std::path::Path::new(&folder.join("web.sock")).exists(),
        "the last process removes it"
    );
}

/// Accepts connections, sends `text` on each and closes it.
fn greet(listener: TcpListener, text: &'static str) {
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let _ = client.expect("a client").write_all(text.as_bytes());
        }
    });
}

#[test]
fn new_process_continues_with_statistics_and_states_of_servers() {
    let (folder, behind) =
        (Folder::new("upgrade-transfer"), Folder::new("upgrade-transfer-behind"));
    let origin =
        Gate::start(&behind, "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nsynthetic = true\n");
    let (admin, dead, spare) = (free_address(), free_address(), free_address());
    let agent = TcpListener::bind((origin.address().ip(), 0)).expect("a port");
    let agent_port = agent.local_addr().expect("it is bound").port();
    let alive = origin.address();
    let config = format!(
        "[server]\nworkers = 2\nshutdown-grace = \"60s\"\n[admin]\nbind = \"{admin}\"\n\
         [[listener]]\nname = \"web\"\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"app\"\n\
         [pool.app]\nservers = [{{ address = \"{alive}\", weight = 10 }}, \"{dead}\", \"{spare}\"]\n\
         health = {{ tcp = true, every = \"100ms\", fast-every = \"100ms\", rise = 1000, fall = 1 }}\n\
         agent = {{ port = {agent_port}, every = \"100ms\" }}\n"
    );
    let gate = Gate::start(&folder, &config);
    let mut serving = Serving::at(admin.to_string());
    let stat = |serving: &Serving, server: &str, column: &str| {
        let table = serving.ctl(&["show", "stat"]);
        let at = table
            .lines()
            .next()
            .and_then(|head| head[2..].split(',').position(|name| name == column));
        let row = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let mut rows = row.filter(|row| row.get(1) == Some(&server));
        rows.next().expect("a row")[at.expect("a column")].to_owned()
    };
    let wait_for =
        |serving: &Serving, server: &str, column: &str, wanted: &dyn Fn(&str) -> bool| {
            let began = std::time::Instant::now();
            loop {
                let value = stat(serving, server, column);
                if wanted(&value) {
                    return value;
                }
                assert!(began.elapsed() < Duration::from_secs(60), "{server} {column}: {value}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
    // The agent speaks once to this process, and to no later one; the dead server comes back, but not for long enough.
    let (dead, spare, alive) = (dead.to_string(), spare.to_string(), alive.to_string());
    wait_for(&serving, &dead, "status", &|status| status.starts_with("DOWN"));
    greet(TcpListener::bind(&dead).expect("the address is free"), "");
    serving.ctl(&["set", "server", &format!("app/{spare}"), "state", "maint"]);
    // The first connections may have timed out already.
    while stat(&serving, &alive, "weight") != "3" {
        let _ = agent.accept().expect("the process asks").0.write_all(b"30%\n");
    }
    drop(agent);
    let get = |path: &str| run_well(curl().arg(gate.url(path)));
    (0..20).for_each(|_| drop(get("/?s=10")));
    let slow = start(curl().arg(gate.url("/?s=10&t=8000")).stdout(Stdio::piped()));
    let sent = wait_for(&serving, "FRONTEND", "bout", &|_| true);
    wait_for(&serving, "FRONTEND", "scur", &|count| count == "1");
    let failures = stat(&serving, &dead, "chkfail");

    serving.upgrade();
    assert_eq!(stat(&serving, &spare, "status"), "MAINT");
    assert!(stat(&serving, &dead, "status").starts_with("DOWN"), "checks must pass 1000 times");
    assert_eq!(stat(&serving, &dead, "chkdown"), "1");
    assert_eq!(stat(&serving, &dead, "chkfail"), failures);
    assert_eq!(stat(&serving, &alive, "weight"), "3");
    for (server, count) in [("FRONTEND", 21), (&alive, 21), (&dead, 0)] {
        assert_eq!(stat(&serving, server, "req_tot"), count.to_string(), "{server}");
    }
    assert!(sent.parse::<u64>().ok() <= stat(&serving, "FRONTEND", "bout").parse().ok());
    (0..5).for_each(|_| drop(get("/?s=10")));
    assert_eq!(stat(&serving, "FRONTEND", "req_tot"), "26");
    // The request that the old process still completes counts, too.
    assert!(slow.output().status.success());
    wait_for(&serving, "FRONTEND", "hrsp_2xx", &|count| count == "26");
    // A second upgrade passes everything on.
    serving.upgrade();
    assert_eq!(stat(&serving, &alive, "hrsp_2xx"), "26");
    assert_eq!(stat(&serving, &spare, "status"), "MAINT");
    serving.ctl(&["set", "server", &format!("app/{spare}"), "state", "ready"]);
    let info = serving.ctl(&["show", "info"]);
    let requests = info.lines().find_map(|line| line.strip_prefix("CumReq: "));
    assert_eq!(requests, Some("26"), "{info}");
    serving.ctl(&["shutdown"]);
    assert!(gate.wait().0.success());
}

#[test]
fn new_process_avoids_the_servers_that_the_old_one_has_ejected() {
    let (folder, behind, broken) = (
        Folder::new("upgrade-ejected"),
        Folder::new("upgrade-ejected-good"),
        Folder::new("upgrade-ejected-bad"),
    );
    let origin = |folder: &Folder, status: u16| {
        let route = format!("[[route]]\nrespond = {{ status = {status} }}\n");
        Gate::start(folder, &format!("[[listener]]\nbind = \"127.0.0.1:0\"\n{route}"))
    };
    let (good, bad) = (origin(&behind, 200), origin(&broken, 500));
    let admin = free_address();
    let config = format!(
        "[server]\nworkers = 1\n[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"{}\", \"{}\"]\nbalance = \"round-robin\"\n\
         eject = {{ failures = 3, for = \"10m\" }}\n",
        good.address(),
        bad.address()
    );
    let gate = Gate::start(&folder, &config);
    let mut serving = Serving::at(admin.to_string());
    let statuses = || {
        let get = |_| {
            let mut command = curl();
            run_well(command.args(["-o", "/dev/null", "-w", "%{http_code}"]).arg(gate.url("/")))
        };
        (0..12).map(get).collect::<Vec<_>>()
    };
    assert_eq!(statuses().iter().filter(|status| *status == "500").count(), 3);
    assert_eq!(statuses(), ["200"; 12], "one server is ejected");
    for _ in 0..2 {
        serving.upgrade();
        assert_eq!(statuses(), ["200"; 12], "it still is");
    }
    serving.ctl(&["shutdown"]);
    assert!(gate.wait().0.success());
}

fn read_echo(mut socket: TcpStream) -> [u8; 4] {
    socket.write_all(b"\x81\x82\0\0\0\0hi").expect("the server reads");
    let mut echo = [0; 4];
    socket.read_exact(&mut echo).expect("an echo");
    echo
}

#[test]
fn start_that_fails_leaves_the_old_process_serving() {
    let folder = Folder::new("upgrade-fails");
    let admin = free_address();
    let config = |body: &str, workers: usize| {
        format!(
            "[server]\nworkers = {workers}\n[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
             [[route]]\nrespond = {{ body = \"{body}\" }}\n"
        )
    };
    let gate = Gate::start(&folder, &config("one", 4));
    let mut serving = Serving::at(admin.to_string());
    let get = || run_well(curl().arg(gate.url("/")));
    folder.file("tidegate.toml", "[[listener]]\nbnid = 1\n");
    let mut refused = command(env!("CARGO_BIN_EXE_tidegate"));
    let refused = run(refused.args(["ctl", "--at", &serving.admin, "upgrade"]));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("the upgrade failed, and the old process still serves: "), "{said}");
    for _ in 0..20 {
        assert_eq!(get(), "one");
    }
    assert_eq!(serving.read_pid(), serving.pid);
    // Port 0 keeps its real port, and fewer workers serve all sockets.
    folder.file("tidegate.toml", config("two", 1));
    let old = serving.pid.clone();
    let mut tries = 0;
    while serving.read_pid() == old {
        // The attempt before may not have ended yet.
        serving.ctl(&["upgrade"]);
        tries += 1;
        assert!(tries < 1000, "no new process serves");
        std::thread::sleep(Duration::from_millis(50));
    }
    serving.pid = serving.read_pid();
    for _ in 0..50 {
        assert!(["one", "two"].contains(&get().as_str()));
    }
    let mut tries = 0;
    while get() != "two" {
        tries += 1;
        assert!(tries < 1000, "the old process serves on");
    }
    serving.ctl(&["shutdown"]);
    let (status, messages) = gate.wait();
    assert!(status.success(), "{status}: {messages}");
    let failed = "error upgrade failed; the old process still serves: the new process exited before it was ready";
    assert!(messages.contains(failed), "{messages}");
}

/// Binds an address as a service manager does, and starts the program with it, a second socket that no listener names,
/// and one that does not listen.
const MANAGER: &str = "
import os, socket, sys
program, file, host, port = sys.argv[1:]
web = socket.create_server((host, int(port)))
other = socket.create_server((host, 0))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
high = [os.dup(s.fileno()) for s in (web, other, datagrams)]
high = [os.dup2(fd, 20 + at, inheritable=False) for at, fd in enumerate(high)]
for at, fd in enumerate(high):
    os.dup2(fd, 3 + at, inheritable=True)
os.environ.update(LISTEN_FDS='3', LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES='web:other:x')
os.execv(program, [program, 'run', '-c', file])
";

/// Binds an address as a service manager does, starts the program with it, and keeps it.
const MANAGER_THAT_STAYS: &str = "
import os, signal, socket, sys
program, file, host, port = sys.argv[1:]
web = socket.create_server((host, int(port)))
if os.fork():
    signal.pause()
os.dup2(os.dup2(web.fileno(), 20, inheritable=False), 3, inheritable=True)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))
os.execv(program, [program, 'run', '-c', file])
";

#[test]
fn socket_that_a_service_manager_keeps_is_never_disabled_also_after_upgrades() {
    let folder = Folder::new("activation-edits");
    let (managed, own, admin) = (free_address(), free_address(), free_address());
    let config = format!(
        "[server]\nworkers = 2\n[admin]\nbind = \"{admin}\"\n[[listener]]\nname = \"web\"\nbind = \"{managed}\"\n\
         [[listener]]\nname = \"side\"\nbind = \"{own}\"\n[[route]]\nrespond = {{ body = \"well\" }}\n"
    );
    let file = folder.file("tidegate.toml", config);
    let mut python = command(program("python3", "python3"));
    let (host, port) = (managed.ip().to_string(), managed.port().to_string());
    let arguments = [env!("CARGO_BIN_EXE_tidegate"), &file, &host, &port];
    let mut manager = Process::spawn(python.args(["-c", MANAGER_THAT_STAYS]).args(arguments));
    manager.wait_for_listener(admin);
    let mut serving = Serving::at(admin.to_string());
    let get = |address: SocketAddr| run_well(curl().arg(format!("http://{address}/")));
    for _ in 0..3 {
        let mut ctl = command(env!("CARGO_BIN_EXE_tidegate"));
        let refused = run(ctl.args(["ctl", "--at", &serving.admin, "disable", "listener", "web"]));
        let refusal = text(&refused.stderr);
        assert!(!refused.status.success() && refusal.contains("the service manager"), "{refusal}");
        // The new process opens the socket that only the old one had closed.
        serving.ctl(&["disable", "listener", "side"]);
        manager.wait_until("closed", || TcpStream::connect(own).is_err());
        (0..10).for_each(|_| assert_eq!(get(managed), "well"));
        serving.upgrade();
        (0..10).for_each(|_| assert_eq!((get(managed), get(own)), ("well".into(), "well".into())));
    }
    serving.ctl(&["shutdown"]);
}

#[test]
fn sockets_of_a_service_manager_are_used() {
    let folder = Folder::new("activation");
    let address = free_address();
    let config = format!(
        "[server]\nworkers = 3\n[[listener]]\nbind = \"{address}\"\n[[route]]\nrespond = {{ body = \"well\" }}\n"
    );
    let file = folder.file("tidegate.toml", config);
    let mut command = command(program("python3", "python3"));
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["-c", MANAGER, env!("CARGO_BIN_EXE_tidegate"), &file, &host, &port]);
    let mut process = Process::spawn(command.stderr(Stdio::piped()));
    process.wait_for_listener(address);
    for _ in 0..30 {
        // The first request waits in the queue of the socket until the program serves.
        assert_eq!(run_well(curl().arg(format!("http://{address}/"))), "well");
    }
    let mut stderr = process.child().stderr.take().expect("stderr is piped");
    process.signal(Signal::TERM);
    assert!(process.wait().success());
    let mut messages = String::new();
    stderr.read_to_string(&mut messages).expect("text");
    assert!(
        messages.contains("1 inherited descriptors are not listening stream sockets"),
        "{messages}"
    );
    assert!(messages.contains("no [[listener]] has the address"), "{messages}");
    assert!(TcpStream::connect(address).is_err(), "the socket is closed");
}

#[test]
fn new_process_restores_the_dictionaries_of_the_old_one() {
    let folder = Folder::new("upgrade-dictionaries");
    let admin = free_address();
    let script = folder.file(
        "app.lua",
        "return { on_request = function(request, response)
            response:finish(tostring(tide.shared.counts:incr('n', 1, 0)))
        end }",
    );
    let file = folder.join("counts");
    let config = format!(
        "[server]\nworkers = 2\n[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\nlua = \"app\"\n[lua.app]\nscript = {script:?}\nshared = {{ counts = \"1MiB\" }}\n\
         shared-files = {{ counts = {file:?} }}\n"
    );
    let gate = Gate::start(&folder, &config);
    let mut serving = Serving::at(admin.to_string());
    let count = |gate: &Gate| run_well(curl().arg(gate.url("/")));
    assert_eq!([count(&gate), count(&gate)], ["1", "2"]);
    serving.upgrade();
    assert_eq!(count(&gate), "3");
    serving.ctl(&["shutdown"]);
    assert!(gate.wait().0.success());
    // The new process has written its dictionary, and the old one has not replaced it.
    let gate = Gate::start(&folder, &config);
    assert_eq!(count(&gate), "4");
}
