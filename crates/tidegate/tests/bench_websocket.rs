//! `tidegate bench push` against the push hub of this binary.
//! In: the binary, as server and as client. Out: its JSON reports.

use serde_json::Value;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use tidegate_testing::{Started, command, run, start};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");
const KEY: &str = "a-key-for-tests-only";

/// A running server, and its configuration file.
struct Server {
    address: SocketAddr,
    started: Started,
    file: PathBuf,
}

impl Server {
    /// A hub and an echo on two workers, for clients that have to wait for their turn.
    fn new(name: &str) -> Self {
        Self::with(name, "", "")
    }

    /// The same, with other settings of the listener and of the hub.
    fn with(name: &str, of_listener: &str, of_hub: &str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let file =
            std::env::temp_dir().join(format!("tidegate-{name}-{}.toml", std::process::id()));
        let text = format!(
            "[server]\nworkers = 2\n[[listener]]\nbind = \"{address}\"\n{of_listener}\
             [[route]]\npath = \"/push/*\"\npush = \"news\"\n\
             [[route]]\npath = \"/echo\"\necho = true\n\
             [push.news]\napi-keys = [\"{KEY}\"]\nsubscribe = \"anyone\"\n{of_hub}"
        );
        std::fs::write(&file, text).unwrap();
        let mut started = start(command(PROGRAM).arg("run").arg(&file));
        while TcpStream::connect(address).is_err() {
            assert!(started.try_wait().unwrap().is_none(), "the server exited");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Self { address, started, file }
    }

    /// Runs `bench` with these arguments. Returns its report and its exit code.
    fn bench(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let pid = self.started.id().to_string();
        let output = run(command(PROGRAM).arg("bench").args(arguments).args([
            "--json",
            "--server-pid",
            pid.as_str(),
        ]));
        let text = String::from_utf8_lossy(&output.stdout);
        let json = serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr))
        });
        (json, output.status.code())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

#[test]
fn subscribers_of_the_hub_get_every_message_once() {
    let server = Server::new("bench-push");
    let url = format!("ws://{}/push/subscribe/room", server.address);
    let arguments = ["push", &url, "--api-key", KEY, "--settle", "0ms", "--pause", "0"];
    let (json, code) =
        server.bench(&[&arguments[..], &["-c", "200", "-t", "2", "-n", "5"]].concat());
    for (name, value) in [
        ("established", 200),
        ("setup_failed", 0),
        ("connections_lost", 0),
        ("published", 5),
        ("expected", 1000),
        ("received", 1000),
        ("lost", 0),
        ("duplicated", 0),
        ("out_of_order", 0),
        ("foreign", 0),
    ] {
        assert_eq!(json[name].as_u64(), Some(value), "{name}: {json}");
    }
    assert_eq!(code, Some(0), "{json}");
    assert!(json["latency_us"]["p99"].as_f64().is_some_and(|micros| micros > 0.0), "{json}");
    assert!(json["server_cpu_us_per_message"].is_number(), "{json}");
    assert!(json["memory"]["server_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{json}");
}

/// Also over TLS, and in the client protocol, in which a subscription is more than a handshake.
#[test]
fn subscribers_over_tls_and_of_the_client_protocol_get_every_message_once() {
    let tls = "tls = \"self-signed\"\n";
    let (plain, secured) = (
        Server::with("bench-push-client", "", "anonymous = true\n"),
        Server::with("bench-push-secured", tls, "anonymous = true\n"),
    );
    let client = &["--client-protocol", "--channel", "room-{}", "--channels", "3"][..];
    let by_url = &["--channels", "3"][..];
    for (server, scheme, path, arguments) in [
        (&plain, "ws", "connection/websocket", client),
        (&secured, "wss", "connection/websocket", client),
        (&secured, "wss", "subscribe/room-{}", by_url),
    ] {
        let url = format!("{scheme}://{}/push/{path}", server.address);
        let common = ["push", &url, "--api-key", KEY, "--settle", "0ms", "--pause", "0"];
        let load = ["-c", "60", "-t", "2", "-n", "6", "--size", "200", "-k", "-w", "60s"];
        let (json, code) = server.bench(&[&common[..], &load, arguments].concat());
        for (name, value) in [
            ("established", 60),
            ("connections_lost", 0),
            ("published", 6),
            ("received", 120),
            ("lost", 0),
            ("duplicated", 0),
            ("foreign", 0),
        ] {
            assert_eq!(json[name].as_u64(), Some(value), "{url}: {name}: {json}");
        }
        assert_eq!(code, Some(0), "{json}");
    }
    // A subscription that the hub refuses is a connection that failed.
    let url = format!("ws://{}/push/connection/websocket", plain.address);
    let arguments =
        ["push", &url, "--client-protocol", "--channel", "no:room", "-c", "2", "-n", "0"];
    let (json, _) = plain.bench(&arguments);
    assert_eq!((json["established"].as_u64(), json["setup_failed"].as_u64()), (Some(0), Some(2)));
}

#[test]
fn channels_share_subscribers_and_publications() {
    let server = Server::new("bench-channels");
    let url = format!("ws://{}/push/subscribe/room-{{}}", server.address);
    let arguments = ["push", &url, "--api-key", KEY, "--settle", "0ms", "--channels", "4"];
    let rate = ["-c", "10", "-t", "1", "--rate", "100/s", "--duration", "80ms", "--size", "512"];
    let (json, code) = server.bench(&[&arguments[..], &rate].concat());
    // Two rounds over four channels, of which two have three subscribers and two have two.
    assert_eq!(
        (json["published"].as_u64(), json["received"].as_u64()),
        (Some(8), Some(20)),
        "{json}"
    );
    assert_eq!(
        (json["lost"].as_u64(), json["foreign"].as_u64(), code),
        (Some(0), Some(0), Some(0))
    );
}

#[test]
fn wrong_key_and_wrong_path_are_reported() {
    let server = Server::new("bench-refused");
    let url = format!("ws://{}/push/subscribe/room", server.address);
    let (json, code) = server.bench(&["push", &url, "--api-key", "wrong", "-c", "2", "-n", "1"]);
    assert_eq!((json["publish_failed"].as_u64(), code), (Some(1), Some(1)), "{json}");
    let url = format!("ws://{}/absent/subscribe/room", server.address);
    let (json, code) = server.bench(&["push", &url, "-c", "2", "-n", "1"]);
    assert_eq!((json["setup_failed"].as_u64(), code), (Some(2), Some(1)), "{json}");
    let failures = json["setup_failures"].to_string();
    assert!(failures.contains("status 404"), "{failures}");
}

#[test]
fn every_message_of_an_echo_comes_back() {
    let server = Server::new("bench-echo");
    let url = format!("ws://{}/echo", server.address);
    let arguments = ["ws", &url, "-c", "20", "-t", "2", "--duration", "200ms", "--warm-up", "50ms"];
    for more in [&["--size", "5"][..], &["--size", "20000", "--binary", "--fragments", "3"]] {
        let (json, code) = server.bench(&[&arguments[..], more].concat());
        let counts = ["established", "unanswered"].map(|name| json[name].as_u64());
        assert_eq!((counts, code), ([Some(20), Some(0)], Some(0)), "{json}");
        assert!(json["messages"].as_u64().is_some_and(|count| count >= 20), "{json}");
        assert!(json["server_cpu_us_per_message"].is_number(), "{json}");
    }
}
