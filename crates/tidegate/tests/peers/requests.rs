//! curl in front, Python's http.server behind: methods, framings, Expect, versions, early answers, cut answers.
//! In: one request as users send it. Out: the same bytes at both ends, and the status that fits.

use std::process::Command;

use crate::gate::Gate;
use crate::origins::Script;
use crate::process::{Folder, program, run, run_well, text};

const BODY_BYTES: usize = 10 << 20;

pub fn curl() -> Command {
    let mut command = Command::new(program("curl", "curl"));
    // No file of the user's, no proxy of the environment, an end to everything.
    command.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", "120"]);
    command
}

fn house(name: &str) -> (Folder, Script, Gate) {
    let folder = Folder::new(name);
    let origin = Script::origin(&folder);
    let gate = Gate::in_front_of(&folder, &origin.address);
    (folder, origin, gate)
}

/// Bytes without a pattern, the same in every run.
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
    let (_folder, _origin, gate) = house("get");
    let page = run_well(curl().arg(gate.url("/hello")));
    assert_eq!(page, "hello from the origin\n");
    let head = run_well(curl().args(["--head", &gate.url("/hello")]));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.to_lowercase().contains("content-length: 22\r\n"), "{head}");
    let missing = ["-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(run_well(curl().args(missing).arg(gate.url("/nothing"))), "404");
}

#[test]
fn the_origin_learns_who_asked() {
    let (_folder, _origin, gate) = house("fields");
    let seen = run_well(curl().args(["-H", "X-Mine: 1", &gate.url("/head")])).to_lowercase();
    for line in ["x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http", "x-mine: 1"] {
        assert!(seen.contains(line), "{line} is missing in\n{seen}");
    }
    assert!(seen.contains(&format!("host: {}", gate.address())), "{seen}");
    assert!(seen.contains("via: 1.1 tidegate"), "{seen}");
}

#[test]
fn ten_mebibytes_go_both_ways_by_length_and_chunked() {
    let (folder, _origin, gate) = house("bodies");
    let sent = noise(BODY_BYTES);
    let file = folder.file("sent", &sent);
    for (field, framing) in [("X-None: 1", "length"), ("Transfer-Encoding: chunked", "chunked")] {
        for path in ["/echo", "/echo?chunked"] {
            let (received, head) = (folder.join("received"), folder.join("head"));
            let data = format!("@{file}");
            let arguments = ["-H", field, "--data-binary", &data, "-o", &received, "-D", &head];
            run_well(curl().args(arguments).arg(gate.url(path)));
            let got = std::fs::read(&received).expect("curl wrote the answer");
            assert!(got == sent, "{framing} {path}: {} bytes came back otherwise", got.len());
            let head = std::fs::read_to_string(&head).expect("curl wrote the head").to_lowercase();
            let seen = format!("x-request-framing: {framing}");
            assert!(head.contains(&seen), "{framing} {path}: {head}");
            let chunked = head.contains("transfer-encoding: chunked");
            assert_eq!(chunked, path.ends_with("chunked"), "{head}");
        }
    }
}

#[test]
fn an_expected_100_comes_before_the_body_is_sent() {
    let (folder, _origin, gate) = house("expect");
    let data = format!("@{}", folder.file("sent", noise(100_000)));
    // curl would wait longer than it may run, so without the 100 it fails.
    let arguments = ["-v", "-H", "Expect: 100-continue", "--expect100-timeout", "1000"];
    let output = run(curl().args(arguments).args(["--data-binary", &data, &gate.url("/count")]));
    let story = text(&output.stderr);
    assert!(output.status.success(), "{story}");
    assert!(story.contains("< HTTP/1.1 100 Continue"), "{story}");
    assert!(text(&output.stdout).starts_with("100000 "), "{}", text(&output.stdout));
}

#[test]
fn an_http_1_0_client_gets_its_answer_and_a_close() {
    let (_folder, _origin, gate) = house("old");
    let arguments = ["--http1.0", "-w", "%{http_code} %{size_download}", "-o", "/dev/null"];
    assert_eq!(run_well(curl().args(arguments).arg(gate.url("/hello"))), "200 22");
    // What has no length beforehand ends with the connection for such a client: no chunks.
    let arguments = ["--http1.0", "--data-binary", "abc", "--dump-header", "-"];
    let answer = run_well(curl().args(arguments).arg(gate.url("/echo?chunked")));
    assert!(!answer.to_lowercase().contains("transfer-encoding"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nabc"), "{answer}");
}

#[test]
fn several_requests_share_one_connection() {
    let (_folder, _origin, gate) = house("keep");
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
fn an_early_refusal_reaches_a_client_that_still_uploads() {
    let (folder, _origin, gate) = house("refuse");
    let file = folder.sparse_file("big", 64 << 20);
    for field in ["Expect:", "Transfer-Encoding: chunked"] {
        let arguments = ["-H", field, "-T", &file, "-w", "%{http_code}"];
        let output = run(curl().args(arguments).arg(gate.url("/refuse")));
        let (said, story) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(said, "too much for me\n413", "{field} {}: {story}", output.status);
    }
    assert_eq!(run_well(curl().arg(gate.url("/hello"))), "hello from the origin\n");
}

#[test]
fn a_cut_answer_is_no_whole_answer() {
    let (_folder, _origin, gate) = house("cut");
    let output = run(curl().arg(gate.url("/cut")));
    // 18: a partial file; 56: the connection was reset.
    let code = output.status.code();
    assert!(matches!(code, Some(18 | 56)), "{code:?}: {}", text(&output.stderr));
}

#[test]
fn an_origin_that_is_not_there_is_a_502() {
    let folder = Folder::new("absent");
    let gate = Gate::in_front_of(&folder, crate::process::free_address());
    let said = run_well(curl().args(["-w", "%{http_code}", &gate.url("/hello")]));
    assert!(said.ends_with("502"), "{said}");
}
