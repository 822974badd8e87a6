//! HAProxy in front of Tidegate, behind it, and both.
//! In: a chain of proxies. Out: complete responses, one entry in Via and X-Forwarded-For for each proxy.

use std::net::SocketAddr;

use tidegate_testing::command;

use crate::gate::{Gate, proxy_config};
use crate::load::{parse_wrk, wrk};
use crate::origins::{Nginx, Script};
use crate::process::{Folder, Process, free_address, program, run_well};
use crate::requests::{curl, noise};

struct HaProxy {
    _process: Process,
    address: SocketAddr,
}

impl HaProxy {
    fn start(folder: &Folder, name: &str, server: impl std::fmt::Display) -> Self {
        let address = free_address();
        let config = format!(
            "global\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n\
             \x20 timeout server 60s\n  option forwardfor\n  http-reuse always\n\
             frontend web\n  bind {address}\n  default_backend origin\n\
             backend origin\n  server origin {server}\n"
        );
        let file = folder.file(&format!("{name}.cfg"), config);
        let mut command = command(program("haproxy", "haproxy"));
        let mut process = Process::spawn(command.args(["-db", "-q", "-f", &file]));
        process.wait_for_listener(address);
        Self { _process: process, address }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

#[test]
fn haproxy_in_front_is_a_trusted_client() {
    let folder = Folder::new("front");
    let origin = Script::origin(&folder);
    let config = proxy_config("127.0.0.1:0", &origin.address)
        .replace("name = \"web\"", "name = \"web\"\ntrusted = [\"127.0.0.0/8\"]");
    let gate = Gate::start(&folder, &config);
    let front = HaProxy::start(&folder, "front", gate.address());
    let seen = run_well(curl().arg(front.url("/head"))).to_lowercase();
    assert!(seen.contains("x-forwarded-for: 127.0.0.1, 127.0.0.1"), "{seen}");
    let sent = noise(2 << 20);
    let data = format!("@{}", folder.file("sent", &sent));
    let received = folder.join("received");
    for field in ["X-None: 1", "Transfer-Encoding: chunked"] {
        let arguments = ["-H", field, "--data-binary", &data, "-o", &received];
        run_well(curl().args(arguments).arg(front.url("/echo?chunked")));
        let got = std::fs::read(&received).expect("curl wrote the body");
        let begin = String::from_utf8_lossy(&got[..got.len().min(200)]).into_owned();
        assert!(got == sent, "{field}: received {} bytes that start with {begin:?}", got.len());
    }
}

#[test]
fn haproxy_behind_is_an_ordinary_server() {
    let folder = Folder::new("behind");
    let origin = Script::origin(&folder);
    let behind = HaProxy::start(&folder, "behind", &origin.address);
    let gate = Gate::in_front_of(&folder, behind.address);
    let seen = run_well(curl().arg(gate.url("/head"))).to_lowercase();
    assert!(seen.contains("via: 1.1 tidegate"), "{seen}");
    let data = format!("@{}", folder.file("sent", noise(2 << 20)));
    let arguments = ["-H", "Transfer-Encoding: chunked", "--data-binary", &data];
    let printed = run_well(curl().args(arguments).arg(gate.url("/count")));
    assert!(printed.starts_with("2097152 "), "{printed}");
}

#[test]
fn chain_of_three_proxies_carries_a_load_without_error() {
    let folder = Folder::new("chain");
    let nginx = Nginx::start(&folder);
    nginx.file(&folder, "page", "page\n");
    let behind = HaProxy::start(&folder, "behind", nginx.address);
    let gate = Gate::in_front_of(&folder, behind.address);
    let front = HaProxy::start(&folder, "front", gate.address());
    let url = front.url("/page");
    let report = parse_wrk(run_well(wrk().args(["--connections", "64", "--duration", "2s", &url])));
    assert!(report.errors.is_empty(), "{}", report.text);
    assert!(report.requests > 64, "{}", report.text);
}
