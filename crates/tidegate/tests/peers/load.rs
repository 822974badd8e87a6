//! Load from wrk and h2load through Tidegate to nginx: no error, and equal counts at both ends.
//! In: the final report of the load generator and the log of nginx. Out: equal numbers.

use std::process::Command;

use tidegate_testing::command;

use crate::gate::Gate;
use crate::origins::{LogLine, Nginx};
use crate::process::{Folder, program, run_well};

/// The final report of wrk.
#[derive(Debug)]
pub struct WrkReport {
    pub requests: u64,
    /// Lines about socket errors and about statuses of 400 and above.
    pub errors: Vec<String>,
    /// The whole report.
    pub text: String,
}

pub fn wrk() -> Command {
    let mut command = command(program("wrk", "wrk"));
    command.args(["--threads", "1", "--timeout", "30s"]);
    command
}

pub fn parse_wrk(text: String) -> WrkReport {
    let first_word = |line: &str| line.split_whitespace().next()?.parse().ok();
    let requests = text.lines().find(|line| line.contains(" requests in "));
    let requests = requests.and_then(first_word).unwrap_or_else(|| panic!("no count in\n{text}"));
    let is_error = |line: &&str| line.contains("Socket errors") || line.contains("Non-2xx");
    let errors = text.lines().filter(is_error).map(str::to_owned).collect();
    WrkReport { requests, errors, text }
}

fn setup(name: &str) -> (Folder, Nginx, Gate) {
    let folder = Folder::new(name);
    let nginx = Nginx::start(&folder);
    nginx.file(&folder, "page", "page of the load tests\n");
    let gate = Gate::in_front_of(&folder, nginx.address);
    (folder, nginx, gate)
}

fn distinct_connections(log: &[LogLine]) -> usize {
    let mut connections: Vec<u64> = log.iter().map(|line| line.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    connections.len()
}

#[test]
fn wrk_with_512_connections_sees_no_error_and_agrees_with_the_nginx_log() {
    const CONNECTIONS: u64 = 512;
    let (_folder, nginx, gate) = setup("wrk");
    let url = gate.url("/page");
    let arguments = ["--connections", "512", "--duration", "3s", &url];
    let report = parse_wrk(run_well(wrk().args(arguments)));
    assert!(report.errors.is_empty(), "{}", report.text);
    assert!(report.requests > CONNECTIONS, "{}", report.text);
    gate.terminate();
    assert!(gate.wait().0.success());
    let log = nginx.end();
    assert!(log.iter().all(|line| line.status == 200 || line.status == 499));
    // wrk stops with requests in flight: nginx logs them, wrk does not count them.
    let seen = log.len() as u64;
    let possible = report.requests..=report.requests + CONNECTIONS;
    assert!(possible.contains(&seen), "nginx saw {seen}, wrk counted {}", report.requests);
    let connections = distinct_connections(&log);
    assert!(log.len() > 2 * connections, "{seen} requests took {connections} connections");
}

#[test]
fn h2load_over_http_1_agrees_with_the_nginx_log() {
    let (_folder, nginx, gate) = setup("h2load");
    let mut command = command(program("h2load", "nghttp2-client"));
    command.args(["--h1", "--requests", "20000", "--clients", "512", "--threads", "1"]);
    let report = run_well(command.arg(gate.url("/page")));
    let wanted = "requests: 20000 total, 20000 started, 20000 done, 20000 succeeded, \
                  0 failed, 0 errored, 0 timeout";
    assert!(report.contains(wanted), "{report}");
    assert!(report.contains("status codes: 20000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{report}");
    gate.terminate();
    assert!(gate.wait().0.success());
    let log = nginx.end();
    assert_eq!(log.len(), 20_000);
    assert!(log.iter().all(|line| line.status == 200));
    let connections = distinct_connections(&log);
    assert!(log.len() > 10 * connections, "20000 requests took {connections} connections");
}

#[test]
fn wrk_pipelines_through_the_proxy() {
    let (folder, nginx, gate) = setup("pipeline");
    let script = folder.file(
        "pipeline.lua",
        "init = function() local r = wrk.format('GET') batch = r .. r .. r .. r .. r .. r .. r .. r end\n\
         request = function() return batch end\n",
    );
    let url = gate.url("/page");
    let arguments = ["--connections", "16", "--duration", "1s", "--script", &script, &url];
    let report = parse_wrk(run_well(wrk().args(arguments)));
    assert!(report.errors.is_empty(), "{}", report.text);
    assert!(nginx.end().iter().all(|line| line.status == 200 || line.status == 499));
}
