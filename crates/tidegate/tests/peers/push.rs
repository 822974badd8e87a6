//! Client libraries of push servers against a hub of several workers.
//! In: a configuration with a hub. Out: what the libraries' users rely on works.

use crate::gate::Gate;
use crate::process::{Folder, program, run_well};
use tidegate_testing::command;

const CONFIG: &str = "[server]\nworkers = 3\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
    [[route]]\npath = \"/push/*\"\npush = \"p\"\n[push.p]\napi-keys = [\"0123456789abcdef\"]\n\
    token-secret = \"a-secret-of-the-test\"\n[push.p.namespace.closed]\n\
    [push.p.namespace.chat]\nsubscribe = \"users\"\npublish = \"subscribers\"\nhistory = 100\n\
    read-history = \"subscribers\"\npresence = true\nread-presence = \"subscribers\"\njoin-leave = true\n";

#[test]
fn centrifuge_js_works_with_a_hub() {
    let folder = Folder::new("push-js");
    let gate = Gate::start(&folder, CONFIG);
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/node");
    assert!(
        std::path::Path::new(packages).join("node_modules/centrifuge").exists(),
        "{packages} is missing: run scripts/install-peers.sh"
    );
    let client = folder.file("client.mjs", include_str!("push_client.mjs"));
    let address = gate.address().to_string();
    let mut node = command(program("node", "nodejs"));
    let printed = run_well(node.env_remove("http_proxy").args([&client, packages, &address]));
    assert_eq!(printed, "subscribe\npublish\npresence\nrecovery\nlost\nrights\n");
}
