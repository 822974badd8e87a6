//! WebSocket through the proxy and with the action `echo`: two client libraries of Python, gorilla of Go, ws of Node.
//! In: an Upgrade. Out: every message, ping and close arrives at the other end.

use std::path::Path;

use crate::gate::Gate;
use crate::origins::{Script, go_program, node, python, python_with_packages};
use crate::process::{Folder, run_well};
use crate::requests::curl;

#[test]
fn websocket_clients_talk_to_their_server_through_the_proxy() {
    let folder = Folder::new("websocket");
    let server = Script::websocket(&folder);
    let gate = Gate::in_front_of(&folder, &server.address);
    let client = folder.file("client.py", include_str!("websocket_client.py"));
    let url = format!("ws://{}/chat", gate.address());
    let printed = run_well(python().env_remove("http_proxy").args([&client, &url]));
    assert_eq!(printed, "echo\nburst\nping\nclose\nfifty\n");
}

/// While the server sends large messages without a pause.
#[test]
fn forwarded_client_is_told_that_the_process_stops() {
    let folder = Folder::new("websocket-stop");
    let server = Script::websocket(&folder);
    let gate = Gate::in_front_of(&folder, &server.address);
    let client = folder.file("client.py", include_str!("stopped_client.py"));
    let (url, pid) = (format!("ws://{}/chat", gate.address()), gate.pid().to_string());
    let printed = run_well(python().env_remove("http_proxy").args([&client, &url, &pid]));
    assert_eq!(printed, "1001 the service stops here, connect again\n");
    let (status, messages) = gate.wait();
    assert!(status.success(), "{messages}");
}

#[test]
fn plain_request_to_a_websocket_server_gets_426() {
    let folder = Folder::new("no-upgrade");
    let server = Script::websocket(&folder);
    let gate = Gate::in_front_of(&folder, &server.address);
    let arguments = ["-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(run_well(curl().args(arguments).arg(gate.url("/chat"))), "426");
}

/// A file that serves `echo` with this setting of `compression`.
fn echo(compression: &str) -> String {
    format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\npath = \"/echo\"\necho = true\n\
         [websocket]\nmessage-max = \"8MiB\"\nsubprotocols = [\"chat\"]\ncompression = \"{compression}\"\n"
    )
}

#[test]
fn python_websockets_talks_to_the_echo() {
    for compression in ["off", "shared", "dedicated"] {
        let folder = Folder::new("echo");
        let gate = Gate::start(&folder, &echo(compression));
        let client = folder.file("client.py", include_str!("websocket_client.py"));
        let url = format!("ws://{}/echo", gate.address());
        let printed = run_well(python().env_remove("http_proxy").args([&client, &url]));
        assert_eq!(printed, "echo\nburst\nping\nclose\nfifty\n", "{compression}");
    }
}

/// Another library: fragments, each close code, subprotocols, a stop of the server.
#[test]
fn websocket_client_talks_to_the_echo() {
    let folder = Folder::new("echo-frames");
    let gate = Gate::start(&folder, &echo("off"));
    let client = folder.file("client.py", include_str!("echo_client.py"));
    let (url, pid) = (format!("ws://{}/echo", gate.address()), gate.pid().to_string());
    let mut command = python_with_packages();
    let printed = run_well(command.env_remove("http_proxy").args([&client, &url, &pid]));
    assert_eq!(printed, "subprotocol\nfragments\nfaults\norigin\nstop\n");
    let (status, messages) = gate.wait();
    assert!(status.success(), "{messages}");
}

/// The clients of Go and Node, on plain connections and over TLS, with each setting of compression and two windows.
#[test]
fn go_and_node_talk_to_the_echo() {
    for (compression, window_bits) in
        [("off", 15), ("shared", 15), ("dedicated", 15), ("dedicated", 9)]
    {
        let folder = Folder::new(&format!("echo-clients-{compression}-{window_bits}"));
        let secured = "[[listener]]\nbind = \"127.0.0.1:0\"\ntls = \"self-signed\"\n";
        let config = format!("{}window-bits = {window_bits}\n{secured}", echo(compression));
        let gate = Gate::start(&folder, &config);
        let script = folder.file("client.js", include_str!("websocket_client.js"));
        for (scheme, address) in ["ws", "wss"].into_iter().zip(gate.addresses()) {
            let url = format!("{scheme}://{address}/echo");
            let wanted = "messages\nfragments\npings\ncloses\nclients\nrefusals\n";
            assert_eq!(run_well(go_program("websocket_client").arg(&url)), wanted, "{compression}");
            assert_eq!(run_well(node().args([&script, &url])), wanted, "{compression}");
        }
    }
}

/// Python's h2 and wsproto, with the action `echo` and with a server of HTTP/1.1, on plain connections and over TLS.
#[test]
fn websockets_run_over_streams_of_http_2() {
    let folder = Folder::new("websocket-h2");
    let server = Script::websocket(&folder);
    let config = format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\nh2c = true\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\ntls = \"self-signed\"\n\
         [[route]]\npath = \"/echo\"\nmethod = \"GET\"\necho = true\n[[route]]\nproxy = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\n",
        server.address
    );
    let gate = Gate::start(&folder, &config);
    let script = folder.file("client.py", include_str!("http2_websocket.py"));
    for (scheme, address) in ["http", "https"].into_iter().zip(gate.addresses()) {
        let url = format!("{scheme}://{address}");
        let printed = run_well(python_with_packages().args([&*script, &url, "/echo", "/chat"]));
        assert_eq!(printed, "/echo\n/chat\n", "{url}");
    }
}

#[test]
fn example_of_the_guide_echoes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/websocket.md");
    let text = std::fs::read_to_string(path).expect("the document exists");
    let block = |kind: &str| {
        let (_, rest) = text.split_once(&format!("```{kind}\n")).expect("the block exists");
        rest.split("```").next().unwrap_or_default().to_owned()
    };
    let folder = Folder::new("echo-guide");
    let config = block("toml").replace("127.0.0.1:8080", "127.0.0.1:0");
    let gate = Gate::start(&folder, &config);
    let script = block("python").replace("127.0.0.1:8080", &gate.address().to_string());
    let script = folder.file("example.py", &script);
    assert_eq!(run_well(python().env_remove("http_proxy").arg(&script)), "hello\n");
}
