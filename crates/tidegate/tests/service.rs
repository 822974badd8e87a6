//! The process as an operator runs it: under a service manager, with syslog, compared with a file.
//! In: configurations, signals. Out: datagrams and texts.
//! Never: listens anywhere but on unix sockets in a folder of the test, and on free ports of 127.0.0.1.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tidegate_testing::{Signal, Started, command, run, start};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");
/// How long a datagram may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A temporary folder of one test, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn file(&self, name: &str, content: &str) -> String {
        std::fs::write(self.0.join(name), content).expect("a file can be written");
        self.path(name)
    }

    fn receiver(&self, name: &str) -> UnixDatagram {
        let receiver = UnixDatagram::bind(self.0.join(name)).expect("a socket");
        receiver.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        receiver
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The next datagram that contains `part`.
fn receive(receiver: &UnixDatagram, part: &str) -> String {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "no datagram with {part}");
        let mut buffer = [0; 4096];
        let length = receiver.recv(&mut buffer).expect("a datagram arrives in time");
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if text.contains(part) {
            return text;
        }
    }
}

fn serve(file: &str, manager: &Path) -> Started {
    let mut command = command(PROGRAM);
    command.args(["run", file]).env("NOTIFY_SOCKET", manager).env("WATCHDOG_USEC", "200000");
    start(command.stderr(Stdio::null()))
}

fn listener(folder: &Folder) -> String {
    format!("[[listener]]\nbind = \"unix:{}\"\n", folder.path("web.sock"))
}

#[test]
fn service_manager_learns_what_the_process_does() {
    let folder = Folder::new("manager");
    let manager = folder.receiver("notify");
    let route = "[[route]]\nrespond = { status = 204 }\n";
    let file = folder.file("a.toml", &format!("{}{route}", listener(&folder)));
    let mut serving = serve(&file, &folder.0.join("notify"));
    receive(&manager, "READY=1\n");
    receive(&manager, "WATCHDOG=1");
    serving.send(Signal::HUP);
    assert!(receive(&manager, "RELOADING=1\n").contains("\nMONOTONIC_USEC="));
    receive(&manager, "READY=1\n");
    serving.send(Signal::TERM);
    receive(&manager, "STOPPING=1\n");
    assert_eq!(serving.wait().code(), Some(0));
}

#[test]
fn lines_of_the_access_log_go_to_syslog() {
    let folder = Folder::new("syslog");
    let (manager, syslog) = (folder.receiver("notify"), folder.receiver("syslog"));
    let to = folder.path("syslog");
    let log = format!(
        "[log]\naccess = {{ to = \"syslog:unix:{to}\", only = \"errors\", cookies = [\"id\"] }}\n"
    );
    let route = "[[route]]\npath = \"/ok\"\nrespond = { status = 204 }\n";
    let file = folder.file("a.toml", &format!("{log}{}{route}", listener(&folder)));
    let _serving = serve(&file, &folder.0.join("notify"));
    receive(&manager, "READY=1\n");
    for path in ["/ok", "/missing"] {
        let mut stream = UnixStream::connect(folder.path("web.sock")).expect("it listens");
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nCookie: id=7\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("the request is sent");
        stream.read_to_end(&mut Vec::new()).expect("a response");
    }
    let line = receive(&syslog, "<134>1 ");
    assert!(line.contains(" tidegate ") && line.contains(" access - {\"time\":"), "{line}");
    assert!(line.contains("\"target\":\"/missing\"") && line.contains("\"status\":404"), "{line}");
    assert!(line.contains("\"cookies\":{\"id\":\"7\"}"), "{line}");
}

#[test]
fn check_shows_what_a_file_would_change() {
    let folder = Folder::new("against");
    let manager = folder.receiver("notify");
    let admin = format!("[admin]\nbind = \"unix:{}\"\n", folder.path("admin.sock"));
    let rest = "[[route]]\npath = \"/a\"\nproxy = \"p\"\n[pool.p]\nservers = [\"127.0.0.1:1\"]\n";
    let old = format!("{admin}{}{rest}", listener(&folder));
    let new =
        old.replace("127.0.0.1:1", "127.0.0.1:2").replace("\"/a\"\n", "\"/a\"\nmethod = \"GET\"\n");
    let (running, next) = (folder.file("a.toml", &old), folder.file("b.toml", &new));
    let serving = serve(&running, &folder.0.join("notify"));
    receive(&manager, "READY=1\n");
    let address = format!("unix:{}", folder.path("admin.sock"));
    let check = |file: &str, against: &str| {
        let output = run(command(PROGRAM).args(["check", file, "--against", against]));
        let (out, err) = (output.stdout, output.stderr);
        let text = [out, err].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let changes = ["~ route /a", "- server p/127.0.0.1:1", "+ server p/127.0.0.1:2"];
    assert_eq!(check(&next, &running), changes);
    assert_eq!(check(&next, &address), changes);
    assert_eq!(check(&running, &address), ["no changes"]);
    folder.file("a.toml", &new);
    serving.send(Signal::HUP);
    receive(&manager, "RELOADING=1\n");
    receive(&manager, "READY=1\n");
    assert_eq!(check(&next, &address), ["no changes"]);
    assert_eq!(check(&next, "unix:/nowhere").len(), 0, "one line of an error");
}

#[test]
fn script_sends_requests_to_servers_of_a_pool() {
    let folder = Folder::new("lua-requests");
    folder.file(
        "app.lua",
        "local function show(reply, err) return reply and reply.status .. ' ' .. reply.body or err end
        return { on_request = function(_, response)
            local options = { path = '/x', json = { 1 } }
            options.pool = 'api'
            local one = show(tide.http.request(options))
            options.pool = 'multiplexed'
            response:finish(one .. ', ' .. show(tide.http.request(options)))
        end }",
    );
    let socket = folder.path("web.sock");
    let api = folder.path("api.sock");
    let text = format!(
        "{}[[listener]]\nname = \"api\"\nbind = \"unix:{api}\"\nh2c = true\n\
         [[route]]\nlistener = \"api\"\npath = \"/x\"\nrespond = {{ status = 203, body = \"from the pool\" }}\n\
         [[route]]\nlua = \"app\"\n[lua.app]\nscript = \"app.lua\"\npools = [\"api\", \"multiplexed\"]\n\
         [pool.api]\nservers = [\"unix:{api}\"]\n\
         [pool.multiplexed]\nservers = [\"unix:{api}\"]\nh2c = true\n",
        listener(&folder).replace("bind", "name = \"web\"\nbind"),
    );
    let file = folder.file("a.toml", &text);
    let manager = folder.receiver("notify");
    let mut serving = serve(&file, &folder.0.join("notify"));
    receive(&manager, "READY=1\n");
    for _ in 0..3 {
        let mut client = UnixStream::connect(&socket).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        client.write_all(request).expect("a request is sent");
        let mut response = String::new();
        client.read_to_string(&mut response).expect("a response arrives in time");
        let expected = "\r\n\r\n203 from the pool, 203 from the pool";
        assert!(response.ends_with(expected), "{response}");
    }
    serving.send(Signal::TERM);
    assert_eq!(serving.wait().code(), Some(0));
}

/// The response to `GET /` over a connection of its own.
fn get(socket: &str) -> String {
    let mut client = UnixStream::connect(socket).expect("it listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.write_all(request).expect("a request is sent");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response arrives in time");
    response.rsplit("\r\n").next().unwrap_or_default().to_owned()
}

/// Writes a file until a change is noticed, which is seen by the response. A change that follows at once on a reload may be
/// part of that reload.
fn write_until(socket: &str, write: impl Fn(), expected: &str) {
    let begin = std::time::Instant::now();
    loop {
        write();
        std::thread::sleep(Duration::from_millis(500));
        let response = get(socket);
        if response == expected {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{response}, not {expected}");
    }
}

#[test]
fn scripts_and_their_modules_are_taken_live_and_wrong_ones_are_refused() {
    let folder = Folder::new("lua-reload");
    let script = |text: &str| {
        format!(
            "local words = require('words') assert(tide.shared.kept:incr('loads', 1, 0))
            return {{ on_request = function(_, response)
                response:finish(words .. ' {text} ' .. tide.config.round .. ' '
                    .. tostring(tide.shared.kept:get('seen') == true))
                tide.shared.kept:set('seen', true)
            end }}"
        )
    };
    folder.file("app.lua", &script("one"));
    folder.file("words.lua", "return 'hello'");
    let socket = folder.path("web.sock");
    let text = |round: u32, reload: &str| {
        format!(
            "[server]\nworkers = 2\nreload = \"{reload}\"\n{}[[route]]\nlua = \"app\"\n[lua.app]\nscript = \"app.lua\"\n\
             shared = {{ kept = \"64KiB\" }}\nsettings = {{ round = {round} }}\n",
            listener(&folder)
        )
    };
    let file = folder.file("a.toml", &text(1, "signal"));
    let manager = folder.receiver("notify");
    let mut command = command(PROGRAM);
    command.args(["run", &file]).env("NOTIFY_SOCKET", folder.0.join("notify"));
    let log = std::fs::File::create(folder.path("log")).expect("a file");
    let mut serving = start(command.stderr(Stdio::from(log)));
    let reload = |serving: &Started| {
        serving.send(Signal::HUP);
        receive(&manager, "RELOADING=1\n");
        receive(&manager, "READY=1\n");
    };
    receive(&manager, "READY=1\n");
    assert_eq!(get(&socket), "hello one 1 false");
    folder.file("app.lua", &script("two"));
    reload(&serving);
    assert_eq!(get(&socket), "hello two 1 true", "the dictionary stays");
    folder.file("words.lua", "return 'good day'");
    reload(&serving);
    assert_eq!(get(&socket), "good day two 1 true");
    folder.file("words.lua", "return 'good day");
    folder.file("a.toml", &text(2, "signal"));
    reload(&serving);
    assert_eq!(get(&socket), "good day two 1 true", "nothing of the change is applied");
    // The lines follow after the message to the service manager.
    let begin = std::time::Instant::now();
    let log = || std::fs::read_to_string(folder.path("log")).expect("the log");
    while !log().contains("words.lua:1: unfinished string") {
        assert!(begin.elapsed() < PATIENCE, "{}", log());
        std::thread::yield_now();
    }
    folder.file("words.lua", "return 'good night'");
    folder.file("a.toml", &text(2, "watch"));
    reload(&serving);
    assert_eq!(get(&socket), "good night two 2 true");
    // Now the files are watched; a wrong module is reported, and its repair is noticed.
    folder.file("words.lua", "return 'broken");
    let write = |name: &str, text: &str| drop(folder.file(name, text));
    write_until(&socket, || write("words.lua", "return 'moon'"), "moon two 2 true");
    write_until(&socket, || write("app.lua", &script("three")), "moon three 2 true");
    serving.send(Signal::TERM);
    assert_eq!(serving.wait().code(), Some(0));
}
