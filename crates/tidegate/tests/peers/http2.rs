//! Programs that speak HTTP/2 and share no code with Tidegate: h2spec, curl, nghttp and h2load.
//! In: a plain and a TLS listener. Out: the same results as over HTTP/1.1; the conformance cases that pass.
//! Limits: each client ends by itself or is ended by its own timeout.

use std::net::SocketAddr;
use std::path::Path;

use tidegate_testing::command;

use crate::gate::Gate;
use crate::origins::Script;
use crate::process::{Folder, program, run, run_well, text};
use crate::requests::{curl, noise};

const BODY_BYTES: usize = 5 << 20;

/// Failing cases of h2spec over plain connections and over TLS. A stream that depends on itself: RFC 9113 has no
/// priorities. An invalid preface: on a plain connection it is a malformed HTTP/1 request, with a response.
const FAILING_SECURED: [&str; 2] = ["http2/5.3.1", "http2/5.3.1"];
const FAILING_PLAIN: [&str; 3] = ["http2/3.5", "http2/5.3.1", "http2/5.3.1"];

/// Tidegate in front of the Python application, with a plain listener and one with TLS.
struct Site {
    folder: Folder,
    _origin: Script,
    gate: Gate,
}

impl Site {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        let origin = Script::origin(&folder);
        let config = format!(
            "[server]\nworkers = 2\n\
             [[listener]]\nbind = \"127.0.0.1:0\"\nh2c = true\ntimeouts = {{ body = \"2s\" }}\n\
             limits = {{ body = \"20MiB\" }}\n\
             [[listener]]\nbind = \"127.0.0.1:0\"\ntls = \"self-signed\"\n\
             [[route]]\npath = \"/synthetic\"\nsynthetic = true\n\
             [[route]]\npath = \"/local\"\nrespond = {{ body = \"local\" }}\n\
             [[route]]\npath = \"/moved\"\nredirect = {{ to = \"http://elsewhere/\" }}\n\
             [[route]]\npath = \"/empty\"\nrespond = {{ status = 204 }}\n\
             [[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
            origin.address
        );
        let gate = Gate::start(&folder, &config);
        Self { folder, _origin: origin, gate }
    }

    fn plain(&self) -> SocketAddr {
        self.gate.addresses()[0]
    }

    fn secured(&self) -> SocketAddr {
        self.gate.addresses()[1]
    }

    /// Both kinds of connection: curl's arguments and the beginning of the URL.
    fn ways(&self) -> [(&'static [&'static str], String); 2] {
        [
            (&["--http2-prior-knowledge"], format!("http://{}", self.plain())),
            (&["--http2", "--insecure"], format!("https://{}", self.secured())),
        ]
    }
}

/// The sections of the cases that fail, sorted.
fn h2spec(site: &Site, address: SocketAddr, is_secured: bool) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/go/h2spec");
    assert!(Path::new(path).exists(), "{path} is missing: run scripts/install-peers.sh");
    let report = site.folder.join("h2spec.xml");
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut command = command(path);
    // Several cases send their fault after the head, so the response must wait for the request.
    command.args(["--strict", "--host", &host, "--port", &port, "--timeout", "5"]);
    command.args(["--path", "/synthetic?s=10&B=1m", "--junit-report", &report]);
    if is_secured {
        command.args(["--tls", "--insecure"]);
    }
    let output = run(&mut command);
    let printed = text(&output.stdout);
    let report = std::fs::read_to_string(report).unwrap_or_else(|_| panic!("{printed}"));
    let cases: Vec<&str> = report.split("<testcase ").skip(1).collect();
    assert!(cases.len() >= 140, "{} cases\n{printed}", cases.len());
    let failing = cases.iter().filter(|case| case.contains("<failure") || case.contains("<error"));
    let section = |case: &&str| {
        let (_, rest) = case.split_once("package=\"").expect("a case has a section");
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    let mut failing: Vec<String> = failing.map(section).collect();
    failing.sort();
    failing
}

#[test]
fn h2spec_passes_over_tls_except_for_the_listed_cases() {
    let site = Site::start("h2spec-tls");
    assert_eq!(h2spec(&site, site.secured(), true), FAILING_SECURED);
}

#[test]
fn h2spec_passes_without_tls_except_for_the_listed_cases() {
    let site = Site::start("h2spec-plain");
    assert_eq!(h2spec(&site, site.plain(), false), FAILING_PLAIN);
}

#[test]
fn curl_over_http_2_gets_what_it_gets_over_http_1() {
    let site = Site::start("h2-curl");
    for (arguments, url) in site.ways() {
        let curl = || {
            let mut command = curl();
            command.args(arguments);
            command
        };
        let summary = ["-o", "/dev/null", "-w", "%{http_version} %{http_code} %{size_download}"];
        for (path, wanted) in
            [("/hello", "2 200 22"), ("/empty", "2 204 0"), ("/nothing", "2 404 13")]
        {
            assert_eq!(run_well(curl().args(summary).arg(format!("{url}{path}"))), wanted);
        }
        let head = run_well(curl().args(["--head", &format!("{url}/hello")]));
        assert!(head.starts_with("HTTP/2 200"), "{head}");
        assert!(head.contains("content-length: 22\r\n"), "{head}");
        let moved = run_well(curl().args(["--dump-header", "-", &format!("{url}/moved")]));
        assert!(moved.contains("location: http://elsewhere/"), "{moved}");
        let seen = run_well(curl().arg(format!("{url}/head"))).to_lowercase();
        assert!(seen.contains("via: 2.0 tidegate"), "{seen}");
        // The same bytes both ways.
        let sent = noise(BODY_BYTES);
        let (file, received) = (site.folder.file("sent", &sent), site.folder.join("received"));
        for path in ["/echo", "/echo?chunked"] {
            let data = ["--data-binary", &format!("@{file}"), "-o", &received];
            run_well(curl().args(data).arg(format!("{url}{path}")));
            let got = std::fs::read(&received).expect("curl wrote the body");
            assert!(got == sent, "{path}: {} bytes came back", got.len());
        }
        // An interim response.
        let continues = ["-v", "-H", "Expect: 100-continue", "--expect100-timeout", "1000"];
        let data = ["--data-binary", &format!("@{file}")];
        let output = run(curl().args(continues).args(data).arg(format!("{url}/count")));
        let log = text(&output.stderr);
        assert!(output.status.success() && log.contains("HTTP/2 100"), "{log}");
        // A response that its server cuts off is not taken for a complete one.
        let output = run(curl().arg(format!("{url}/cut")));
        assert!(matches!(output.status.code(), Some(18 | 56 | 92)), "{}", text(&output.stderr));
        // An aborted download; then the gate still serves.
        let output =
            run(curl().args(["--max-filesize", "100000"]).arg(format!("{url}/synthetic?s=50m")));
        assert!(!output.status.success());
        assert_eq!(run_well(curl().arg(format!("{url}/local"))), "local");
    }
    site.gate.terminate();
    assert!(site.gate.wait().0.success());
}

#[test]
fn h2load_with_100_streams_a_connection_sees_no_error() {
    let site = Site::start("h2-load");
    for url in [format!("http://{}", site.plain()), format!("https://{}", site.secured())] {
        for (path, count) in
            [("/local", "20000"), ("/hello", "2000"), ("/synthetic?s=100k", "2000")]
        {
            let mut command = command(program("h2load", "nghttp2-client"));
            command.args([
                "--requests",
                count,
                "--clients",
                "8",
                "--max-concurrent-streams",
                "100",
            ]);
            let report = run_well(command.args(["--threads", "1", &format!("{url}{path}")]));
            let wanted = format!("{count} done, {count} succeeded, 0 failed, 0 errored, 0 timeout");
            assert!(report.contains(&wanted), "{path}: {report}");
            assert!(report.contains(&format!("status codes: {count} 2xx, 0 3xx")), "{report}");
        }
    }
}

#[test]
fn nghttp_sends_trailers_and_small_windows() {
    let site = Site::start("h2-nghttp");
    let file = site.folder.file("sent", noise(100_000));
    for url in [format!("http://{}", site.plain()), format!("https://{}", site.secured())] {
        let mut command = command(program("nghttp", "nghttp2-client"));
        command.args(["--data", &file, "--trailer", "x-sum: 1", "--window-bits", "10"]);
        let printed = run_well(command.args(["--timeout", "30", &format!("{url}/count")]));
        assert!(printed.starts_with("100000 "), "{printed}");
    }
}

// Not with curl 7.88: without TLS it takes RST_STREAM with NO_ERROR for an error, and drops the response before it.
#[test]
fn nghttp_keeps_a_413_that_comes_during_its_upload() {
    let site = Site::start("h2-early");
    // Above the limit of the plain listener, and above that of the application.
    let file = site.folder.sparse_file("big", 30 << 20);
    for path in ["/refuse", "/count"] {
        let mut command = command(program("nghttp", "nghttp2-client"));
        let url = format!("http://{}{path}", site.plain());
        command.args(["--verbose", "--data", &file, "--timeout", "30", &url]);
        let printed = text(&run(&mut command).stdout);
        assert!(printed.contains(":status: 413"), "{path}: {printed}");
        assert!(printed.contains("error_code=NO_ERROR"), "{path}: {printed}");
    }
}
