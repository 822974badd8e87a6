//! WebSocket through the proxy, with the `websockets` library of Python at both ends.
//! In: an Upgrade. Out: every message, ping and close arrives at the other end.

use crate::gate::Gate;
use crate::origins::{Script, python};
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

#[test]
fn plain_request_to_a_websocket_server_gets_426() {
    let folder = Folder::new("no-upgrade");
    let server = Script::websocket(&folder);
    let gate = Gate::in_front_of(&folder, &server.address);
    let arguments = ["-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(run_well(curl().args(arguments).arg(gate.url("/chat"))), "426");
}
