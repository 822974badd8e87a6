//! Client libraries of Centrifugo for JavaScript, Go and Python, and its server library for Python, against a hub of
//! several workers.
//! In: a configuration with hubs. Out: what the users of the libraries rely on works.

use std::path::Path;
use std::process::Command;

use crate::gate::Gate;
use crate::origins::{go_program, node};
use crate::process::{Folder, console_of_page, free_address, run_well};
use crate::proxy_protocol::openssl;
use tidegate_testing::command;

const CONFIG: &str = "[server]\nworkers = 3\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
    [[route]]\npath = \"/push/*\"\npush = \"p\"\n[[route]]\npath = \"/open/*\"\npush = \"open\"\n\
    [push.p]\napi-keys = [\"0123456789abcdef\"]\ntoken-secret = \"a-secret-of-the-test\"\n\
    [push.p.namespace.closed]\n\
    [push.p.namespace.chat]\nsubscribe = \"users\"\npublish = \"subscribers\"\nhistory = 100\n\
    read-history = \"subscribers\"\npresence = true\nread-presence = \"subscribers\"\njoin-leave = true\n\
    [push.p.namespace.doc]\nsubscribe = \"users\"\nhistory = 100\ndeltas = \"all\"\ntag-filters = true\n\
    exclude-sender = true\nuser-channels = true\npublish = \"subscribers\"\n\
    [push.open]\nanonymous = true\nsubscribe = \"anyone\"\npublish = \"anyone\"\npresence = true\n\
    read-presence = \"subscribers\"\n";

/// What each client prints.
const PARTS: &str =
    "subscribe\npublish\nhistory\npresence\nrecovery\nlost\ntokens\nrights\ndeltas\nfilters\n";

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
    run_client_with(name, &[&["json"], &["protobuf"]], parts, client);
}

/// Runs a client with each of these arguments.
fn run_client_with(
    name: &str,
    variants: &[&[&str]],
    parts: &str,
    client: impl Fn(&Folder) -> Command,
) {
    for arguments in variants {
        let folder = Folder::new(&format!("push-{name}-{}", arguments.join("-")));
        let gate = Gate::start(&folder, CONFIG);
        let mut client = client(&folder);
        client.env_remove("http_proxy").arg(gate.address().to_string()).args(*arguments);
        assert_eq!(run_well(&mut client), parts, "{name}, {arguments:?}");
    }
}

/// The client in JavaScript.
fn centrifuge_js(folder: &Folder) -> Command {
    let mut node = node();
    let client = folder.file("client.mjs", include_str!("push_client.mjs"));
    node.args([&client, &installed("node")]);
    node
}

#[test]
fn centrifuge_js_works_with_a_hub() {
    run_client("js", PARTS, centrifuge_js);
}

#[test]
fn centrifuge_js_works_without_websocket() {
    let variants: [&[&str]; 3] =
        [&["json", "http_stream"], &["protobuf", "http_stream"], &["json", "sse"]];
    run_client_with("js", &variants, PARTS, centrifuge_js);
}

#[test]
fn centrifuge_js_works_with_tokens_of_public_keys() {
    for (algorithm, protocol, transport) in
        [("ed25519", "json", "websocket"), ("rsa", "protobuf", "http_stream")]
    {
        let folder = Folder::new(&format!("push-keys-{algorithm}"));
        openssl(&folder, &format!("genpkey -algorithm {algorithm} -out private.pem"));
        openssl(&folder, "pkey -in private.pem -pubout -out public.pem");
        let settings = "token-keys = \"public.pem\"\ntoken-audience = [\"app\", \"other\"]\n\
            token-issuer = \"https://id.example\"";
        let config = CONFIG.replace("token-secret = \"a-secret-of-the-test\"", settings);
        let gate = Gate::start(&folder, &config);
        let mut client = centrifuge_js(&folder);
        client.env_remove("http_proxy").arg(gate.address().to_string());
        client.args([protocol, transport, &folder.join("private.pem")]);
        assert_eq!(run_well(&mut client), PARTS, "{algorithm}");
    }
}

/// Subscribers with compression, by two libraries, on all workers.
#[test]
fn publication_is_compressed_once_for_websockets_of_python_and_node() {
    let folder = Folder::new("push-compression");
    let admin = free_address();
    let config = CONFIG.replace("[push.p]\n", "[push.p]\nsubscribe = \"anyone\"\n");
    let config =
        format!("[admin]\nbind = \"{admin}\"\n[websocket]\ncompression = \"shared\"\n{config}");
    let gate = Gate::start(&folder, &config);
    let client = folder.file("client.py", include_str!("push_compression.py"));
    let child = folder.file("client.js", include_str!("push_compression.js"));
    let mut command = crate::origins::python();
    command.env_remove("http_proxy").env("NODE_PATH", "/usr/share/nodejs");
    command.arg(&client).arg(gate.address().to_string()).arg(admin.to_string());
    let node = node();
    command.arg(node.get_program()).args(node.get_args()).arg(&child);
    let printed = run_well(&mut command);
    assert_eq!(printed, "61 subscribers\n61 received\n1 compression\n");
}

/// The client of this repository.
const OWN_CLIENT: &str = include_str!("../../../../web/client/tidegate.js");

#[test]
fn own_client_works_with_a_hub() {
    // `broken`: WebSocket fails, and the client takes the next transport.
    let variants: [&[&str]; 3] = [&["websocket"], &["sse"], &["broken"]];
    let parts = "talk\nhistory\npresence\nrecovery\nlost\nrights\nrenewal\nagain\nsubscribed\ncallback\nclosed\ncallbacks\n";
    run_client_with("own", &variants, parts, |folder| {
        let mut node = node();
        let test = folder.file("test.mjs", include_str!("push_own_client.mjs"));
        let client = folder.file("tidegate.mjs", OWN_CLIENT);
        node.args([&test, &installed("node"), &client]);
        node
    });
}

#[test]
fn own_client_works_in_chromium() {
    let folder = Folder::new("push-chromium");
    // A configuration takes `${NAME}` from the environment.
    let literal = |text: &str| text.replace("${", "$${");
    let (client, page) = (literal(OWN_CLIENT), literal(include_str!("push_page.html")));
    let routes = format!(
        "{CONFIG}[[route]]\npath = \"/tidegate.js\"\nrespond = {{ headers = {{ content-type = \"text/javascript\" }}, \
         body = '''{client}''' }}\n[[route]]\npath = \"/page\"\n\
         respond = {{ headers = {{ content-type = \"text/html\" }}, body = '''{page}''' }}\n"
    );
    let gate = Gate::start(&folder, &routes);
    let url = format!("http://{}/page", gate.address());
    let seen = console_of_page(&folder, &url, "results: ");
    assert!(seen.contains("results: websocket sse;"), "{seen}");
}

#[test]
fn two_tabs_of_the_demonstration_talk_in_chromium() {
    let folder = Folder::new("push-demonstration");
    // A configuration takes `${NAME}` from the environment.
    let literal = |text: &str| text.replace("${", "$${");
    let text = literal(&tidegate_config::embedded_text());
    let page = literal(include_str!("demonstration_page.html"));
    let route = format!(
        "[[route]]\npath = \"/page\"\nrespond = {{ headers = {{ content-type = \"text/html\" }}, body = \'\'\'{page}\'\'\' }}\n"
    );
    let address = free_address();
    let config = text.replace("127.0.0.1:8080", &address.to_string());
    let gate = Gate::start(&folder, &format!("[server]\nworkers = 3\n{config}\n{route}"));
    let seen = console_of_page(&folder, &gate.url("/page"), "results: ");
    assert!(seen.contains("results: presence talk delivery leave;"), "{seen}");
}

/// A hub whose backend listens on the socket PATH.
const BACKED: &str = "[server]\nworkers = 3\n[websocket]\nping-every = \"1s\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
    [[route]]\npath = \"/push/*\"\npush = \"p\"\n[pool.app]\nservers = [\"unix:PATH\"]\n\
    [push.p]\npresence = true\nread-presence = \"subscribers\"\n\
    backend-events = [\"subscribe\", \"publish\", \"channel-empty\"]\n\
    [push.p.backend]\npool = \"app\"\nconnect = \"/connect\"\nrefresh = \"/refresh\"\nsubscribe = \"/subscribe\"\n\
    publish = \"/publish\"\nrpc = \"/rpc\"\ndisconnect = \"/events\"\nchannel-empty = \"/events\"\n\
    headers = [\"Cookie\"]\ntimeout = \"20s\"\n";

#[test]
fn backend_decides_what_clients_do() {
    for protocol in ["json", "protobuf"] {
        let folder = Folder::new(&format!("push-backend-{protocol}"));
        let socket = folder.join("app.sock");
        let gate = Gate::start(&folder, &BACKED.replace("PATH", &socket));
        let script = folder.file("client.mjs", include_str!("push_backend.mjs"));
        let mut client = node();
        client.env_remove("http_proxy").args([&script, &installed("node"), &socket]);
        client.arg(gate.address().to_string()).arg(protocol);
        let expected = "connect\nrefusals\nsubscribe\nrpc\ndown\nrenewal\nevents\n";
        assert_eq!(run_well(&mut client), expected, "{protocol}");
    }
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
