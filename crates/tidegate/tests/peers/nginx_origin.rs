//! nginx as the server: files, ranges, compressed chunks, redirects, reused connections.
//! In: files. Out: the same content as without Tidegate; the number of connections in the log of nginx.

use crate::gate::{Gate, proxy_config};
use crate::origins::Nginx;
use crate::process::{Folder, run_well};
use crate::requests::{curl, noise};

fn setup(name: &str) -> (Folder, Nginx, Gate) {
    let folder = Folder::new(name);
    let nginx = Nginx::start(&folder);
    let gate = Gate::in_front_of(&folder, nginx.address);
    (folder, nginx, gate)
}

#[test]
fn files_arrive_byte_for_byte() {
    let (folder, nginx, gate) = setup("files");
    for size in [0, 1, 4095, 65_536, 5_000_001] {
        let content = noise(size);
        nginx.file(&folder, "file.bin", &content);
        let received = folder.join("received");
        run_well(curl().args(["-o", &received, &gate.url("/file.bin")]));
        let got = std::fs::read(&received).unwrap_or_default();
        assert!(got == content, "{size} bytes expected, {} received", got.len());
        let _ = std::fs::remove_file(&received);
    }
}

#[test]
fn range_and_conditional_requests_are_left_to_the_origin() {
    let (folder, nginx, gate) = setup("range");
    nginx.file(&folder, "digits", "0123456789".repeat(1000));
    let url = gate.url("/digits");
    let answer = run_well(curl().args(["-i", "-r", "5-14", &url]));
    assert!(answer.starts_with("HTTP/1.1 206 "), "{answer}");
    assert!(answer.contains("bytes 5-14/10000"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n5678901234"), "{answer}");
    let several = run_well(curl().args(["-i", "-r", "0-1,5-6", &url]));
    assert!(several.contains("multipart/byteranges"), "{several}");
    let beyond = ["-o", "/dev/null", "-w", "%{http_code}", "-r", "20000-"];
    assert_eq!(run_well(curl().args(beyond).arg(&url)), "416");
    let tag = run_well(curl().args(["-o", "/dev/null", "-w", "%header{etag}", &url]));
    let condition = format!("If-None-Match: {tag}");
    let unchanged = ["-o", "/dev/null", "-w", "%{http_code} %{size_download}", "-H", &condition];
    assert_eq!(run_well(curl().args(unchanged).arg(&url)), "304 0");
    let moved = ["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"];
    let status_and_target = run_well(curl().args(moved).arg(gate.url("/moved")));
    assert_eq!(status_and_target, format!("301 {}", gate.url("/elsewhere")));
}

#[test]
fn compressed_responses_stay_compressed_and_chunked() {
    let (folder, nginx, gate) = setup("gzip");
    let content = "all work and no play\n".repeat(50_000);
    nginx.file(&folder, "play.txt", &content);
    let (received, head) = (folder.join("received"), folder.join("head"));
    let arguments = ["--compressed", "-o", &received, "-D", &head];
    run_well(curl().args(arguments).arg(gate.url("/gzip/play.txt")));
    let head = std::fs::read_to_string(&head).expect("curl wrote the head").to_lowercase();
    assert!(head.contains("content-encoding: gzip"), "{head}");
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    assert!(std::fs::read(&received).expect("curl wrote the body") == content.as_bytes());
}

#[test]
fn one_connection_to_nginx_carries_the_requests_of_many_clients() {
    let folder = Folder::new("reuse");
    let nginx = Nginx::start(&folder);
    nginx.file(&folder, "page", "page");
    let config = proxy_config("127.0.0.1:0", nginx.address);
    // One worker, because idle connections are not shared between workers.
    let gate = Gate::start_with(&folder, &config, &["--workers", "1"]);
    for _ in 0..10 {
        assert_eq!(run_well(curl().arg(gate.url("/page"))), "page");
    }
    // The readiness check opened one more connection, which sent nothing and is not logged.
    let log = nginx.end();
    assert_eq!(log.len(), 10);
    assert!(log.iter().all(|line| line.connection == log[0].connection));
    let requests: Vec<u64> = log.iter().map(|line| line.request_of_connection).collect();
    assert_eq!(requests, (1..=10).collect::<Vec<u64>>());
    assert!(log.iter().all(|line| line.protocol == "HTTP/1.1" && line.status == 200));
}
