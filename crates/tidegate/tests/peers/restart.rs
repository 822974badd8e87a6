//! Stops and restarts under load: of Tidegate, and of the server behind it.
//! In: SIGTERM in the middle of work. Out: no request lost that was in flight, and a good end.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::gate::{Gate, proxy_config};
use crate::load::{parse_wrk, wrk};
use crate::origins::{Nginx, Script};
use crate::process::{Folder, Process, free_address, program, run_well, text};
use crate::requests::curl;

/// Starts wrk and waits until it is at work.
fn begin_wrk(gate: &Gate, arguments: &[&str]) -> std::process::Child {
    let url = gate.url("/page");
    let mut command = wrk();
    command.args(arguments).arg(url).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("wrk runs");
    // Load is on its way when the middle of its time has come; nothing depends on how much of it.
    std::thread::sleep(Duration::from_secs(1));
    child
}

fn end_wrk(child: std::process::Child) -> crate::load::WrkReport {
    let output = child.wait_with_output().expect("wrk ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    parse_wrk(text(&output.stdout))
}

#[test]
fn a_new_process_takes_over_the_port_and_no_request_is_lost() {
    let folder = Folder::new("takeover");
    let nginx = Nginx::start(&folder);
    nginx.file(&folder, "page", "page\n");
    let config = proxy_config(free_address(), nginx.address);
    let old = Gate::start(&folder, &config);
    let load = begin_wrk(&old, &["--connections", "32", "--duration", "4s"]);
    let new = Gate::start(&folder, &config);
    assert_eq!(new.address(), old.address());
    old.terminate();
    let (status, said) = old.wait();
    assert!(status.success(), "{status}: {said}");
    let report = end_wrk(load);
    // Whoever was connected sends its next request within the stop's window for idle connections, and
    // connects anew to the new process alone.
    assert!(report.errors.is_empty(), "{}", report.text);
    assert_eq!(run_well(curl().arg(new.url("/page"))), "page\n");
}

#[test]
fn sigterm_lets_a_download_finish_and_takes_no_new_connection() {
    // More than the sockets' buffers on the way take while nobody reads.
    const BYTES: u64 = 64 << 20;
    let folder = Folder::new("sigterm");
    let nginx = Nginx::start(&folder);
    folder.sparse_file("files/large", BYTES);
    let gate = Gate::in_front_of(&folder, nginx.address);
    let address = gate.address();
    let received = folder.join("received");
    let mut command = curl();
    command.args(["--limit-rate", "16M", "-o", &received, "-w", "%{http_code}"]);
    command.arg(gate.url("/large")).stdout(Stdio::piped());
    let mut download = Process::spawn(&mut command);
    let has_begun = || std::fs::metadata(&received).is_ok_and(|file| file.len() > 0);
    download.wait_until("receiving", has_begun);
    download.signal("-STOP");
    gate.terminate();
    download.wait_until("refused a second connection", || TcpStream::connect(address).is_err());
    download.signal("-CONT");
    assert!(download.wait().success(), "the download was cut");
    let length = std::fs::metadata(&received).map(|file| file.len());
    assert_eq!(length.expect("curl wrote the answer"), BYTES);
    let (status, said) = gate.wait();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}

#[test]
fn an_answer_after_sigterm_says_that_the_connection_closes() {
    let folder = Folder::new("closing");
    let origin = Script::origin(&folder);
    let gate = Gate::in_front_of(&folder, &origin.address);
    let address = gate.address();
    let received = folder.join("received");
    let mut command = curl();
    command.args(["-i", "-o", &received, &gate.url("/wait")]);
    let mut request = Process::spawn(&mut command);
    let asked = folder.join("asked");
    request.wait_until("asked", || std::path::Path::new(&asked).exists());
    gate.terminate();
    request.wait_until("all that is left", || TcpStream::connect(address).is_err());
    folder.file("answer", "");
    assert!(request.wait().success());
    let answer = std::fs::read_to_string(&received).expect("curl wrote the answer").to_lowercase();
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert!(answer.ends_with("waited\n"), "{answer}");
    assert!(gate.wait().0.success());
}

#[test]
fn an_origin_that_restarts_costs_bad_gateways_only_and_is_found_again() {
    let folder = Folder::new("origin-restart");
    let mut nginx = Nginx::start(&folder);
    nginx.file(&folder, "page", "page\n");
    let gate = Gate::in_front_of(&folder, nginx.address);
    let script = folder.file("statuses.lua", STATUSES_LUA);
    let arguments = ["--connections", "32", "--duration", "4s", "--script", &script];
    let load = begin_wrk(&gate, &arguments);
    nginx.terminate();
    std::thread::sleep(Duration::from_millis(300));
    let nginx = Nginx::start_on(&folder, nginx.address);
    let report = end_wrk(load);
    let socket_errors = report.errors.iter().any(|line| line.contains("Socket errors"));
    assert!(!socket_errors, "{}", report.text);
    assert!(report.text.contains("other statuses: 0\n"), "{}", report.text);
    assert_eq!(run_well(curl().arg(gate.url("/page"))), "page\n");
    drop(nginx);
}

/// Counts what is neither 200, 502 nor 503.
const STATUSES_LUA: &str = "
local threads = {}
function setup(thread) table.insert(threads, thread) end
other = 0
function response(status)
  if status ~= 200 and status ~= 502 and status ~= 503 then other = other + 1 end
end
function done()
  local sum = 0
  for _, thread in ipairs(threads) do sum = sum + thread:get('other') end
  io.write('other statuses: ' .. sum .. '\\n')
end
";

#[test]
fn a_port_that_somebody_else_holds_ends_the_start() {
    let folder = Folder::new("taken");
    let nginx = Nginx::start(&folder);
    let file = folder.file("tidegate.toml", proxy_config(nginx.address, "127.0.0.1:9"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = crate::process::run(command.args(["run", "-c", &file]));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&nginx.address.to_string()) && said.contains("in use"), "{said}");
}

#[test]
fn a_second_tidegate_on_the_same_port_is_told_that_it_shares() {
    let folder = Folder::new("shares");
    let config = proxy_config(free_address(), "127.0.0.1:9");
    let first = Gate::start(&folder, &config);
    let file = folder.file("second.toml", &config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["run", "-c", &file]).stderr(Stdio::piped());
    let mut second = Process::spawn(&mut command);
    let stderr = second.child().stderr.take().expect("its messages are piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
    let line = lines.next().expect("it says something").expect("it can be read");
    assert!(line.contains(&first.address().to_string()), "{line}");
    assert!(line.contains("another process"), "{line}");
}

#[test]
fn every_peer_of_these_tests_is_there() {
    let peers = [
        ("curl", "curl"),
        ("wrk", "wrk"),
        ("h2load", "nghttp2-client"),
        ("nginx", "nginx-light"),
        ("haproxy", "haproxy"),
        ("python3", "python3"),
    ];
    for (name, package) in peers {
        program(name, package);
    }
    let imported = crate::process::run(crate::origins::python().args(["-c", "import websockets"]));
    assert!(imported.status.success(), "apt-get install python3-websockets");
}
