//! Client libraries of Centrifugo for JavaScript, Go and Python, and its server library for Python, against a hub of
//! several workers.
//! In: a configuration with hubs. Out: what the users of the libraries rely on works.

use std::path::Path;
use std::process::Command;

use crate::gate::Gate;
use crate::origins::{go_program, node};
use crate::process::{Folder, run_well};
use tidegate_testing::command;

const CONFIG: &str = "[server]\nworkers = 3\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
    [[route]]\npath = \"/push/*\"\npush = \"p\"\n[[route]]\npath = \"/open/*\"\npush = \"open\"\n\
    [push.p]\napi-keys = [\"0123456789abcdef\"]\ntoken-secret = \"a-secret-of-the-test\"\n\
    [push.p.namespace.closed]\n\
    [push.p.namespace.chat]\nsubscribe = \"users\"\npublish = \"subscribers\"\nhistory = 100\n\
    read-history = \"subscribers\"\npresence = true\nread-presence = \"subscribers\"\njoin-leave = true\n\
    [push.open]\nanonymous = true\nsubscribe = \"anyone\"\npublish = \"anyone\"\n";

/// What each client prints.
const PARTS: &str = "subscribe\npublish\nhistory\npresence\nrecovery\nlost\ntokens\nrights\n";

/// A folder of `target/peers`.
fn installed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers").join(name);
    assert!(path.exists(), "{} is missing: run scripts/install-peers.sh", path.display());
    path.display().to_string()
}

/// The Python with the libraries of Centrifugo.
fn python() -> Command {
    command(installed("centrifuge/bin/python"))
}

/// Runs a client with each encoding of the protocol. It prints its parts.
fn run_client(name: &str, parts: &str, client: impl Fn(&Folder) -> Command) {
    for protocol in ["json", "protobuf"] {
        let folder = Folder::new(&format!("push-{name}-{protocol}"));
        let gate = Gate::start(&folder, CONFIG);
        let mut client = client(&folder);
        client.env_remove("http_proxy").args([&gate.address().to_string(), protocol]);
        assert_eq!(run_well(&mut client), parts, "{name}, {protocol}");
    }
}

#[test]
fn centrifuge_js_works_with_a_hub() {
    let packages = installed("node");
    run_client("js", PARTS, |folder| {
        let mut node = node();
        node.args([&folder.file("client.mjs", include_str!("push_client.mjs")), &packages]);
        node
    });
}

#[test]
fn centrifuge_go_works_with_a_hub() {
    run_client("go", PARTS, |_| go_program("push_client"));
}

#[test]
fn centrifuge_python_works_with_a_hub() {
    run_client("python", PARTS, |folder| {
        let mut python = python();
        python.arg(folder.file("client.py", include_str!("push_client.py")));
        python
    });
}

#[test]
fn server_library_of_python_works_with_a_hub() {
    let parts = "messages\nlists\nsubscriptions\nconnections\n";
    run_client("server-api", parts, |folder| {
        let mut python = python();
        python.arg(folder.file("client.py", include_str!("push_server_api.py")));
        python
    });
}
