//! curl as the client, Python's http.server as the server: methods, framings, Expect, versions, early and truncated
//! responses.
//! In: one request as users send it. Out: the same bytes at both ends, and the right status.

use std::process::Command;

use tidegate_testing::command;

use crate::gate::Gate;
use crate::origins::Script;
use crate::process::{Folder, program, run, run_well, text};

const BODY_BYTES: usize = 10 << 20;

pub fn curl() -> Command {
    let mut command = command(program("curl", "curl"));
    // Ignore the curl configuration of the user and proxies of the environment; never run forever.
    command.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", "120"]);
    command
}

fn setup(name: &str) -> (Folder, Script, Gate) {
    let folder = Folder::new(name);
    let origin = Script::origin(&folder);
    let gate = Gate::in_front_of(&folder, &origin.address);
    (folder, origin, gate)
}

/// Pseudorandom bytes, the same in every run.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut noise: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| next()).collect();
    noise.truncate(bytes);
    noise
}

#[test]
fn curl_gets_a_page_and_its_head() {
    let (_folder, _origin, gate) = setup("get");
    let page = run_well(curl().arg(gate.url("/hello")));
    assert_eq!(page, "hello from the origin\n");
    let head = run_well(curl().args(["--head", &gate.url("/hello")]));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.to_lowercase().contains("content-length: 22\r\n"), "{head}");
    let missing = ["-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(run_well(curl().args(missing).arg(gate.url("/nothing"))), "404");
}

#[test]
fn origin_receives_the_forwarding_fields() {
    let (_folder, _origin, gate) = setup("fields");
    let seen = run_well(curl().args(["-H", "X-Mine: 1", &gate.url("/head")])).to_lowercase();
    for line in ["x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http", "x-mine: 1"] {
        assert!(seen.contains(line), "{line} is missing in\n{seen}");
    }
    assert!(seen.contains(&format!("host: {}", gate.address())), "{seen}");
    assert!(seen.contains("via: 1.1 tidegate"), "{seen}");
}

#[test]
fn ten_mebibytes_pass_both_ways_with_length_and_chunked() {
    let (folder, _origin, gate) = setup("bodies");
    let sent = noise(BODY_BYTES);
    let file = folder.file("sent", &sent);
    for (field, framing) in [("X-None: 1", "length"), ("Transfer-Encoding: chunked", "chunked")] {
        for path in ["/echo", "/echo?chunked"] {
            let (received, head) = (folder.join("received"), folder.join("head"));
            let data = format!("@{file}");
            let arguments = ["-H", field, "--data-binary", &data, "-o", &received, "-D", &head];
            run_well(curl().args(arguments).arg(gate.url(path)));
            let got = std::fs::read(&received).expect("curl wrote the body");
            assert!(
                got == sent,
                "{framing} {path}: {} bytes came back, not equal to the sent ones",
                got.len()
            );
            let head = std::fs::read_to_string(&head).expect("curl wrote the head").to_lowercase();
            let seen = format!("x-request-framing: {framing}");
            assert!(head.contains(&seen), "{framing} {path}: {head}");
            let chunked = head.contains("transfer-encoding: chunked");
            assert_eq!(chunked, path.ends_with("chunked"), "{head}");
        }
    }
}

#[test]
fn expect_continue_is_answered_before_the_body_is_sent() {
    let (folder, _origin, gate) = setup("expect");
    let data = format!("@{}", folder.file("sent", noise(100_000)));
    // Without the 100, curl waits longer than `--max-time` allows, and fails.
    let arguments = ["-v", "-H", "Expect: 100-continue", "--expect100-timeout", "1000"];
    let output = run(curl().args(arguments).args(["--data-binary", &data, &gate.url("/count")]));
    let log = text(&output.stderr);
    assert!(output.status.success(), "{log}");
    assert!(log.contains("< HTTP/1.1 100 Continue"), "{log}");
    assert!(text(&output.stdout).starts_with("100000 "), "{}", text(&output.stdout));
}

#[test]
fn http_1_0_client_gets_its_response_and_a_close() {
    let (_folder, _origin, gate) = setup("old");
    let arguments = ["--http1.0", "-w", "%{http_code} %{size_download}", "-o", "/dev/null"];
    assert_eq!(run_well(curl().args(arguments).arg(gate.url("/hello"))), "200 22");
    // HTTP/1.0 has no chunked coding: a body of unknown length ends with the connection.
    let arguments = ["--http1.0", "--data-binary", "abc", "--dump-header", "-"];
    let answer = run_well(curl().args(arguments).arg(gate.url("/echo?chunked")));
    assert!(!answer.to_lowercase().contains("transfer-encoding"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nabc"), "{answer}");
}

#[test]
fn several_requests_share_one_connection() {
    let (_folder, _origin, gate) = setup("keep");
    let url = gate.url("/hello");
    let arguments = ["-w", "%{num_connects}\n", "-o", "/dev/null"];
    let mut command = curl();
    command.arg("--http1.1");
    for _ in 0..4 {
        command.args(arguments).arg(&url);
    }
    assert_eq!(run_well(&mut command), "1\n0\n0\n0\n");
}

#[test]
fn early_413_reaches_a_client_that_is_still_uploading() {
    let (folder, _origin, gate) = setup("refuse");
    let file = folder.sparse_file("big", 64 << 20);
    for field in ["Expect:", "Transfer-Encoding: chunked"] {
        let arguments = ["-H", field, "-T", &file, "-w", "%{http_code}"];
        let output = run(curl().args(arguments).arg(gate.url("/refuse")));
        let (printed, log) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(printed, "too much for me\n413", "{field} {}: {log}", output.status);
    }
    assert_eq!(run_well(curl().arg(gate.url("/hello"))), "hello from the origin\n");
}

#[test]
fn truncated_response_is_an_error_for_the_client() {
    let (_folder, _origin, gate) = setup("cut");
    let output = run(curl().arg(gate.url("/cut")));
    // curl exit codes: 18 is a partial file, 56 a reset connection.
    let code = output.status.code();
    assert!(matches!(code, Some(18 | 56)), "{code:?}: {}", text(&output.stderr));
}

#[test]
fn absent_origin_is_502() {
    let folder = Folder::new("absent");
    let gate = Gate::in_front_of(&folder, crate::process::free_address());
    let printed = run_well(curl().args(["-w", "%{http_code}", &gate.url("/hello")]));
    assert!(printed.ends_with("502"), "{printed}");
}
