//! Python's http.server behind: HTTP/1.0 answers, those that end with the connection, one on a path.
//! In: the server as tutorials start it. Out: whole answers.

use crate::gate::Gate;
use crate::origins::{FileServer, Script};
use crate::process::{Folder, run_well};
use crate::requests::{curl, noise};

#[test]
fn the_file_server_of_python_is_served() {
    let folder = Folder::new("python");
    let content = noise(3_000_000);
    folder.file("file.bin", &content);
    let server = FileServer::start(&folder);
    let gate = Gate::in_front_of(&folder, server.address);
    let received = folder.join("received");
    for _ in 0..3 {
        run_well(curl().args(["-o", &received, &gate.url("/file.bin")]));
        assert!(std::fs::read(&received).expect("curl wrote the answer") == content);
    }
    let listing = run_well(curl().arg(gate.url("/")));
    assert!(listing.contains("file.bin"), "{listing}");
}

#[test]
fn an_answer_that_ends_with_the_connection_arrives_whole_on_a_kept_one() {
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
fn an_origin_on_a_path_is_served() {
    let folder = Folder::new("path");
    let origin = Script::origin_on_path(&folder);
    let gate = Gate::in_front_of(&folder, &origin.address);
    assert_eq!(run_well(curl().arg(gate.url("/hello"))), "hello from the origin\n");
    let data = format!("@{}", folder.file("sent", noise(1 << 20)));
    let said = run_well(curl().args(["--data-binary", &data, &gate.url("/count")]));
    assert!(said.starts_with("1048576 "), "{said}");
}

#[test]
fn a_listener_on_a_path_serves_curl() {
    let folder = Folder::new("listen-path");
    let origin = Script::origin(&folder);
    let path = folder.join("web.sock");
    let config = crate::gate::proxy_config(format!("unix:{path}"), &origin.address);
    let gate = Gate::start(&folder, &config);
    let page = run_well(curl().args(["--unix-socket", &path, "http://any.example/hello"]));
    assert_eq!(page, "hello from the origin\n");
    gate.terminate();
    assert!(gate.wait().0.success());
    assert!(!std::path::Path::new(&path).exists(), "a stopped listener leaves no path behind");
}
