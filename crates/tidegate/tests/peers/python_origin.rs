//! Python's http.server as the server: HTTP/1.0 responses, bodies delimited by the close, unix sockets.
//! In: the server as tutorials start it. Out: complete responses.

use crate::gate::Gate;
use crate::origins::{FileServer, Script};
use crate::process::{Folder, run_well};
use crate::requests::{curl, noise};

#[test]
fn python_file_server_is_proxied() {
    let folder = Folder::new("python");
    let content = noise(3_000_000);
    folder.file("file.bin", &content);
    let server = FileServer::start(&folder);
    let gate = Gate::in_front_of(&folder, server.address);
    let received = folder.join("received");
    for _ in 0..3 {
        run_well(curl().args(["-o", &received, &gate.url("/file.bin")]));
        assert!(std::fs::read(&received).expect("curl wrote the body") == content);
    }
    let listing = run_well(curl().arg(gate.url("/")));
    assert!(listing.contains("file.bin"), "{listing}");
}

#[test]
fn response_delimited_by_close_arrives_whole_on_a_persistent_connection() {
    let folder = Folder::new("until-close");
    let origin = Script::origin(&folder);
    let gate = Gate::in_front_of(&folder, &origin.address);
    let arguments = ["-w", "%{size_download} %{num_connects}\n", "-o", "/dev/null"];
    let url = gate.url("/until-close");
    let mut command = curl();
    for _ in 0..3 {
        command.args(arguments).arg(&url);
    }
    assert_eq!(run_well(&mut command), "1048576 1\n1048576 0\n1048576 0\n");
}

#[test]
fn unix_socket_origin_is_proxied() {
    let folder = Folder::new("path");
    let origin = Script::origin_on_path(&folder);
    let gate = Gate::in_front_of(&folder, &origin.address);
    assert_eq!(run_well(curl().arg(gate.url("/hello"))), "hello from the origin\n");
    let data = format!("@{}", folder.file("sent", noise(1 << 20)));
    let printed = run_well(curl().args(["--data-binary", &data, &gate.url("/count")]));
    assert!(printed.starts_with("1048576 "), "{printed}");
}

#[test]
fn unix_socket_listener_serves_curl() {
    let folder = Folder::new("listen-path");
    let origin = Script::origin(&folder);
    let path = folder.join("web.sock");
    let config = crate::gate::proxy_config(format!("unix:{path}"), &origin.address);
    let gate = Gate::start(&folder, &config);
    let page = run_well(curl().args(["--unix-socket", &path, "http://any.example/hello"]));
    assert_eq!(page, "hello from the origin\n");
    gate.terminate();
    assert!(gate.wait().0.success());
    assert!(!std::path::Path::new(&path).exists(), "the socket file remains after the stop");
}
