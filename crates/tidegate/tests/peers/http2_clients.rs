//! Client libraries of HTTP/2 and a browser: Go, Python's h2, Node, curl, nghttp and Chromium.
//! In: each client gets, posts 1 MiB, runs 100 streams at a time, reads slowly and cancels, with the actions `respond`,
//! `synthetic` and `proxy`. Out: equal bytes, and no connection ends early.
//! Limits: each client ends by itself after a few minutes or is ended by the limit of a test's process.

use tidegate_testing::command;

use crate::gate::Gate;
use crate::origins::{Nginx, Script, go_program, node, python};
use crate::process::{Folder, console_of_page, program, run_well};
use crate::requests::{curl, noise};

/// The size of `/big`, which is larger than the buffers and windows of all clients.
const BIG_BYTES: u64 = 20 << 20;

/// Tidegate in front of the Python application and nginx, with a plain listener and one with TLS.
struct Site {
    folder: Folder,
    _app: Script,
    _files: Nginx,
    gate: Gate,
}

impl Site {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        let (app, files) = (Script::origin(&folder), Nginx::start(&folder));
        files.file(&folder, "browser_page.html", include_str!("browser_page.html"));
        folder.sparse_file("files/big", BIG_BYTES);
        let config = format!(
            "[server]\nworkers = 2\n\
             [[listener]]\nbind = \"127.0.0.1:0\"\nh2c = true\n\
             [[listener]]\nbind = \"127.0.0.1:0\"\ntls = \"self-signed\"\n\
             [[route]]\npath = \"/synthetic\"\nsynthetic = true\n\
             [[route]]\npath = \"/respond\"\nrespond = {{ body = \"responded\" }}\n\
             [[route]]\npath = \"/script\"\nrespond = {{ body = \"loaded = (window.loaded || 0) + 1\" }}\n\
             [[route]]\npath = \"/websocket\"\necho = true\nwebsocket = {{ subprotocols = [\"chat\"] }}\n\
             [[route]]\npath = \"/big\"\nproxy = \"files\"\n\
             [[route]]\npath = \"/browser_page.html\"\nproxy = \"files\"\n\
             [[route]]\nproxy = \"app\"\n\
             [pool.files]\nservers = [\"{}\"]\n[pool.app]\nservers = [\"{}\"]\n",
            files.address, app.address
        );
        let gate = Gate::start(&folder, &config);
        Self { folder, _app: app, _files: files, gate }
    }

    fn plain(&self) -> String {
        format!("http://{}", self.gate.addresses()[0])
    }

    fn secured(&self) -> String {
        format!("https://{}", self.gate.addresses()[1])
    }
}

#[test]
fn go_finishes_all_requests() {
    let site = Site::start("h2-go");
    for url in [site.plain(), site.secured()] {
        let printed = run_well(go_program("http2_client").arg(&url));
        assert_eq!(printed, "get\npost\nhundred\nslow\ncancel\ncancel upload\n", "{url}");
    }
}

#[test]
fn python_h2_finishes_all_requests() {
    let site = Site::start("h2-python");
    let script = site.folder.file("client.py", include_str!("http2_client.py"));
    for url in [site.plain(), site.secured()] {
        let printed = run_well(python().args([&script, &url]));
        let wanted = "get\npost\nhundred\nslow\ncancel\ncancel upload\nclosed windows\nclose\n";
        assert_eq!(printed, wanted, "{url}");
    }
}

#[test]
fn node_finishes_all_requests() {
    let site = Site::start("h2-node");
    let script = site.folder.file("client.js", include_str!("http2_client.js"));
    for url in [site.plain(), site.secured()] {
        let printed = run_well(node().args([&script, &url]));
        assert_eq!(printed, "get\npost\nhundred\nslow\ncancel\ncancelUpload\n", "{url}");
    }
}

/// Over TLS only: curl 7.88 with prior knowledge fails to run concurrent streams, even with nghttpd.
#[test]
fn curl_runs_100_transfers_at_a_time_and_slowly() {
    let site = Site::start("h2-curl-parallel");
    let mut transfers = String::new();
    for at in 0..100 {
        let path = ["respond", "synthetic?s=50000", "hello", "big"][at % 4];
        let output = site.folder.join(&format!("out-{at}"));
        let next = if at == 0 { "" } else { "next\n" };
        transfers += &format!(
            "{next}url = \"{}/{path}\"\noutput = \"{output}\"\ninsecure\nnoproxy = \"*\"\n\
             write-out = \"%{{http_version}} %{{http_code}}\\n\"\n",
            site.secured()
        );
    }
    let file = site.folder.file("transfers", transfers);
    let parallel =
        ["--parallel", "--parallel-max", "100", "--no-progress-meter", "--config", &file];
    assert_eq!(run_well(curl().args(parallel)), "2 200\n".repeat(100));
    for at in 0..100 {
        let bytes =
            std::fs::metadata(site.folder.join(&format!("out-{at}"))).expect("curl wrote it").len();
        assert_eq!(bytes, [9, 50_000, 22, BIG_BYTES][at % 4], "transfer {at}");
    }
    let slow = ["--http2-prior-knowledge", "--limit-rate", "1M", "-o", "/dev/null"];
    for path in ["/synthetic?s=2m", "/big"] {
        let range = ["--range", "0-2097151", "-w", "%{http_version} %{size_download}"];
        let url = format!("{}{path}", site.plain());
        assert_eq!(run_well(curl().args(slow).args(range).arg(url)), "2 2097152", "{path}");
    }
}

#[test]
fn nghttp_runs_100_streams_at_a_time() {
    let site = Site::start("h2-nghttp-parallel");
    let (small, large) = (vec![b'x'; 10_000], noise(1 << 20));
    let (small_file, large_file) =
        (site.folder.file("small", &small), site.folder.file("large", &large));
    for url in [site.plain(), site.secured()] {
        let nghttp = |arguments: &[&str], path: &str| {
            let mut command = command(program("nghttp", "nghttp2-client"));
            command.args(["--timeout", "60"]).args(arguments).arg(format!("{url}{path}"));
            let output = tidegate_testing::run(&mut command);
            assert!(output.status.success(), "{path}: {output:?}");
            output.stdout
        };
        let many = "--multiply=100";
        assert_eq!(nghttp(&[many], "/respond"), b"responded".repeat(100));
        assert_eq!(nghttp(&[many], "/synthetic?s=50000").len(), 5_000_000);
        assert_eq!(nghttp(&[many, "--data", &small_file], "/echo"), small.repeat(100));
        for (path, wanted) in [("/echo", &large[..]), ("/respond", b"responded")] {
            assert!(nghttp(&["--data", &large_file], path) == wanted, "{path}");
        }
    }
}

/// A page with 50 scripts, which then runs its tests and writes the names of those that passed to the console.
#[test]
fn chromium_finishes_all_requests_of_a_page() {
    let site = Site::start("h2-chromium");
    let url = format!("{}/browser_page.html", site.secured());
    let seen = console_of_page(&site.folder, &url, "results: ");
    let wanted = "results: resources get post hundred slow cancel websocket;";
    assert!(seen.contains(wanted), "{seen}");
}
