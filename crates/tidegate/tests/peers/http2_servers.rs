//! Servers of HTTP/2 that share no code with Tidegate: Go, Node, nghttpd and hypercorn of Python.
//! In: clients of both versions of HTTP. Out: the same bytes both ways, trailers, resets; no failed GET when servers
//! restart.
//! Limits: each client ends by itself or is ended by its own timeout.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use tidegate_testing::{command, start};

use crate::gate::Gate;
use crate::origins::{go_program, node, python, python_with_packages};
use crate::process::{Folder, Process, free_address, program, run, run_well, text};
use crate::proxy_protocol::make_certificate;
use crate::requests::{curl, noise};

/// More than the windows and buffers of all servers together.
const BODY_BYTES: usize = 5 << 20;

/// A server and its address.
struct Server {
    process: Process,
    address: String,
}

impl Server {
    /// Starts a program whose first line is its address. The program must not print more.
    fn start(command: &mut Command) -> Self {
        let mut process = Process::spawn(command.stdout(Stdio::piped()));
        let address = process.first_line();
        Self { process, address }
    }

    /// Stops the server gracefully.
    fn end(mut self) {
        self.process.terminate();
        let status = self.process.wait();
        assert!(status.success(), "{status}");
    }
}

fn go_server(address: impl ToString, arguments: &[&str]) -> Server {
    Server::start(go_program("http2_server").arg(address.to_string()).args(arguments))
}

fn node_server(folder: &Folder, address: impl ToString, arguments: &[&str]) -> Server {
    let script = folder.file("server.js", include_str!("http2_server.js"));
    Server::start(node().arg(script).arg(address.to_string()).args(arguments))
}

/// Starts nghttpd, which serves the files of the folder and sends uploads back, through windows of 1023 bytes.
fn nghttpd(folder: &Folder, arguments: &[&str]) -> Server {
    let address: SocketAddr = free_address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut command = command(program("nghttpd", "nghttp2-server"));
    command.args(["--echo-upload", "--window-bits", "10", "--trailer", "x-sum: 1"]);
    command.arg(format!("--address={host}")).arg(format!("--htdocs={}", folder.path().display()));
    command.args(["--no-rfc7540-pri", "--padding", "255", &port]).args(arguments);
    let mut process = Process::spawn(command.stdout(Stdio::null()));
    process.wait_for_listener(address);
    Server { process, address: address.to_string() }
}

/// Tidegate in front of servers.
fn gate(folder: &Folder, servers: &[&str], pool: &str) -> Gate {
    let config = format!(
        "[server]\nworkers = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\nh2c = true\n\
         [[route]]\nproxy = \"app\"\n[pool.app]\nservers = {servers:?}\n{pool}\n"
    );
    Gate::start(folder, &config)
}

const PLAIN: &str = "h2c = true";
const SECURED: &str = "tls = { verify = false, alpn = [\"h2\"] }";

/// curl with either version of HTTP.
fn curls() -> [Command; 2] {
    ["--http1.1", "--http2-prior-knowledge"].map(|version| {
        let mut command = curl();
        command.arg(version);
        command
    })
}

/// Bodies both ways, to the paths that send uploads back.
fn check_bodies(folder: &Folder, gate: &Gate, path: &str) {
    let sent = noise(BODY_BYTES);
    let (file, received) = (folder.file("sent", &sent), folder.join("received"));
    for mut curl in curls() {
        curl.args(["--data-binary", &format!("@{file}"), "-o", &received]);
        run_well(curl.arg(gate.url(path)));
        let got = std::fs::read(&received).expect("curl wrote the body");
        assert!(got == sent, "{} bytes came back", got.len());
    }
}

/// 100 streams at a time. Opens the connections of later uploads: Go and nghttpd refuse data that arrives before the
/// client knows that their windows are smaller than the initial ones.
fn check_load(gate: &Gate) {
    let mut command = command(program("h2load", "nghttp2-client"));
    command.args(["--requests", "2000", "--clients", "4", "--max-concurrent-streams", "100"]);
    let report = run_well(command.args(["--threads", "1", &gate.url("/hello")]));
    let wanted = "2000 done, 2000 succeeded, 0 failed, 0 errored, 0 timeout";
    assert!(report.contains(wanted), "{report}");
    assert!(report.contains("status codes: 2000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{report}");
}

/// Trailers both ways, through the client's windows of 1023 bytes too.
fn check_trailers(folder: &Folder, gate: &Gate) {
    let file = folder.file("small", noise(100_000));
    let mut command = command(program("nghttp", "nghttp2-client"));
    command.args(["--verbose", "--data", &file, "--trailer", "x-end: yes", "--window-bits", "10"]);
    let printed = run_well(command.args(["--timeout", "30", &gate.url("/count")]));
    assert!(printed.contains("100000 x-end=yes"), "{printed}");
    assert!(printed.contains("x-sum: 100000"), "{printed}");
}

/// A response that its server resets in the middle is not taken for a complete one.
fn check_reset(gate: &Gate) {
    for mut curl in curls() {
        let output = run(curl.arg(gate.url("/reset")));
        // A client may drop what arrives together with the reset.
        assert!("only this".starts_with(&text(&output.stdout)));
        assert!(matches!(output.status.code(), Some(18 | 56 | 92)), "{}", text(&output.stderr));
    }
}

/// All checks of a server that has all paths.
fn check_all(folder: &Folder, server: Server, pool: &str) {
    let gate = gate(folder, &[&server.address], pool);
    check_load(&gate);
    check_bodies(folder, &gate, "/echo");
    check_trailers(folder, &gate);
    check_reset(&gate);
    gate.terminate();
    let (status, messages) = gate.wait();
    assert!(status.success(), "{messages}");
    server.end();
}

#[test]
fn go_serves_all_requests() {
    let folder = Folder::new("h2-go-server");
    check_all(&folder, go_server("127.0.0.1:0", &[]), PLAIN);
    check_all(&folder, go_server("127.0.0.1:0", &["tls"]), SECURED);
}

#[test]
fn node_serves_all_requests() {
    let folder = Folder::new("h2-node-server");
    make_certificate(&folder);
    let files = [&*folder.join("site.key"), &*folder.join("site.pem")];
    check_all(&folder, node_server(&folder, "127.0.0.1:0", &[]), PLAIN);
    check_all(&folder, node_server(&folder, "127.0.0.1:0", &files), SECURED);
}

#[test]
fn nghttpd_serves_all_requests() {
    let folder = Folder::new("h2-nghttpd");
    make_certificate(&folder);
    folder.file("hello", "hello");
    let files = [&*folder.join("site.key"), &*folder.join("site.pem")];
    for (arguments, pool) in [(&["--no-tls"][..], PLAIN), (&files[..], SECURED)] {
        let server = nghttpd(&folder, arguments);
        let gate = gate(&folder, &[&server.address], pool);
        check_load(&gate);
        check_bodies(&folder, &gate, "/upload");
        let mut command = command(program("nghttp", "nghttp2-client"));
        let printed = run_well(command.args(["--verbose", "--timeout", "30", &gate.url("/hello")]));
        assert!(printed.contains("x-sum: 1"), "{printed}");
    }
}

fn hypercorn(folder: &Folder) -> Server {
    make_certificate(folder);
    let script = folder.file("server.py", include_str!("http2_server.py"));
    let files = [&script, &folder.join("site.key"), &folder.join("site.pem")];
    Server::start(python_with_packages().args(files))
}

/// Hypercorn announces extended CONNECT (RFC 8441), so it gets WebSockets as streams.
#[test]
fn websockets_of_both_versions_reach_hypercorn_over_http2() {
    let folder = Folder::new("h2-hypercorn-websocket");
    let server = hypercorn(&folder);
    let gate = gate(&folder, &[&server.address], SECURED);
    let client = folder.file("client.py", include_str!("websocket_client.py"));
    let url = format!("ws://{}/chat", gate.address());
    let printed = run_well(python().env_remove("http_proxy").args([&client, &url]));
    assert_eq!(printed, "echo\nburst\nping\nclose\nfifty\n");
    let client = folder.file("streams.py", include_str!("http2_websocket.py"));
    let url = format!("http://{}", gate.address());
    let arguments = [&*client, &url, "/chat", "/chat", "--unended"];
    let printed = run_well(python_with_packages().args(arguments));
    assert_eq!(printed, "/chat\n/chat\n");
}

/// Nghttpd does not announce it: an HTTP/1.1 connection is impossible, so the client gets a clear response.
#[test]
fn server_of_http2_without_websockets_is_a_502() {
    let folder = Folder::new("h2-nghttpd-websocket");
    let server = nghttpd(&folder, &["--no-tls"]);
    let gate = gate(&folder, &[&server.address], PLAIN);
    let mut curl = curl();
    curl.args(["--http1.1", "-H", "connection: upgrade", "-H", "upgrade: websocket"]);
    curl.args([
        "-H",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        "-H",
        "sec-websocket-version: 13",
    ]);
    let printed = run_well(curl.args(["-w", "%{http_code}", &gate.url("/chat")]));
    assert!(printed.contains("RFC 8441") && printed.ends_with("502"), "{printed}");
}

#[test]
fn hypercorn_serves_all_requests() {
    let folder = Folder::new("h2-hypercorn");
    let server = hypercorn(&folder);
    let gate = gate(&folder, &[&server.address], SECURED);
    check_bodies(&folder, &gate, "/echo");
    check_load(&gate);
    for mut curl in curls() {
        assert_eq!(run_well(curl.args(["--data", "abc", &gate.url("/count")])), "3 \n");
    }
}

/// Each of two servers restarts twice under load, and announces that on its connections (GOAWAY).
fn check_restarts(folder: &Folder, start_at: impl Fn(String) -> Server) {
    // No connection begins at these addresses, so that their ports are still free after a restart.
    let first = start_at(free_address().to_string());
    let second = start_at(free_address().to_string());
    let addresses = [first.address.clone(), second.address.clone()];
    let gate = gate(folder, &[&addresses[0], &addresses[1]], PLAIN);
    let mut load = command(program("h2load", "nghttp2-client"));
    load.args(["--clients", "4", "--max-concurrent-streams", "20", "--threads", "1"]);
    load.args(["--requests", "1000000", "--duration", "6", &gate.url("/hello")]);
    let load = start(load.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut servers = [first, second];
    for round in 0..4 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let server = &mut servers[round % 2];
        server.process.terminate();
        assert!(server.process.wait().success());
        *server = start_at(server.address.clone());
    }
    let output = load.output();
    let report = text(&output.stdout);
    assert!(output.status.success(), "{report}");
    assert!(report.contains(" 0 failed, 0 errored, 0 timeout"), "{report}");
    assert!(report.contains(" 2xx, 0 3xx, 0 4xx, 0 5xx"), "{report}");
    assert!(!report.contains("status codes: 0 2xx"), "{report}");
}

#[test]
fn restarts_of_go_servers_fail_no_get() {
    let folder = Folder::new("h2-go-restart");
    check_restarts(&folder, |address| go_server(address, &[]));
}

#[test]
fn restarts_of_node_servers_fail_no_get() {
    let folder = Folder::new("h2-node-restart");
    check_restarts(&folder, |address| node_server(&folder, address, &[]));
}
