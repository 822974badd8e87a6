//! gRPC's own interoperability tests (Go) through the proxy, HTTP/2 on both sides, without TLS and with it.
//! In: every standard case of `google.golang.org/grpc/interop`, and calls with deadlines. Out: each case passes, and the
//! server learns of deadlines and cancellation.
//! Limits: the client ends by itself after a few minutes.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use tidegate_testing::command;

use crate::gate::Gate;
use crate::origins::go_program;
use crate::process::{Folder, Process, free_address, run_well};

const PASSED: &str = "empty_unary\nlarge_unary\nclient_streaming\nserver_streaming\nping_pong\nempty_stream\n\
    timeout_on_sleeping_server\ncancel_after_begin\ncancel_after_first_response\nstatus_code_and_message\n\
    special_status_message\ncustom_metadata\nunimplemented_method\nunimplemented_service\n\
    orca_per_rpc\nlong_deadline\nshort_deadline\n";

/// The server of the tests.
struct GrpcServer {
    process: Process,
    address: String,
    /// What the server prints about its calls.
    reports: BufReader<ChildStdout>,
}

impl GrpcServer {
    fn start(arguments: &[&str]) -> Self {
        let mut command = go_program("grpc_server");
        command.arg("127.0.0.1:0").args(arguments).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let mut reports = BufReader::new(process.child().stdout.take().expect("stdout is piped"));
        let mut address = String::new();
        reports.read_line(&mut address).expect("stdout can be read");
        Self { process, address: address.trim_end().to_owned(), reports }
    }

    /// Stops the server and returns its reports.
    fn end(mut self) -> String {
        self.process.terminate();
        let mut text = String::new();
        self.reports.read_to_string(&mut text).expect("stdout can be read");
        assert!(self.process.wait().success());
        text
    }
}

/// Runs all cases through the proxy, whose listener and pool have these settings.
fn run_all(name: &str, scheme: &str, listener: &str, pool: &str, arguments: &[&str]) {
    let (folder, server) = (Folder::new(name), GrpcServer::start(arguments));
    let gate = Gate::start(
        &folder,
        &format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n{listener}\n[[route]]\nproxy = \"calls\"\n\
             [pool.calls]\nservers = [\"{}\"]\nrequest-buffer = \"0B\"\n{pool}\n",
            server.address
        ),
    );
    let printed = run_well(go_program("grpc_client").arg(format!("{scheme}://{}", gate.address())));
    assert_eq!(printed, PASSED, "{name}");
    gate.terminate();
    let (status, messages) = gate.wait();
    assert!(status.success(), "{messages}");
    let reports = server.end();
    for wanted in ["deadline in 1h0m0s\n", "no deadline\n", "no deadline, the client left\n"] {
        assert!(reports.contains(wanted), "{name}: {reports}");
    }
}

#[test]
fn every_case_passes_without_tls() {
    run_all("grpc-plain", "http", "h2c = true", "h2c = true", &[]);
}

#[test]
fn every_case_passes_over_tls() {
    let pool = "tls = { verify = false, alpn = [\"h2\"] }";
    run_all("grpc-tls", "https", "tls = \"self-signed\"", pool, &["tls"]);
}

/// The results of checks of a server by `grpc`, for each of these services.
fn check_results(name: &str, pool: &str, arguments: &[&str]) {
    let (folder, server) = (Folder::new(name), GrpcServer::start(arguments));
    let admin = free_address();
    let services = [("", "L7OK"), ("ready", "L7OK"), ("broken", "L7STS"), ("unknown", "L7STS")];
    let pools = services.iter().enumerate().map(|(at, (service, _))| {
        format!(
            "[pool.p{at}]\nservers = [\"{}\"]\nhealth = {{ grpc = \"{service}\", every = \"50ms\", timeout = \"20s\" }}\n{pool}\n",
            server.address
        )
    });
    let pools: String = pools.collect();
    let gate = Gate::start(
        &folder,
        &format!(
            "[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nrespond = {{}}\n{pools}"
        ),
    );
    for (at, (service, expected)) in services.iter().enumerate() {
        let mut tries = 0;
        loop {
            let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
            let shown = run_well(command.args(["ctl", "--at", &admin.to_string(), "show", "stat"]));
            let row =
                shown.lines().find(|line| line.starts_with(&format!("p{at},{},", server.address)));
            let row = row.expect("a row of the server");
            if row.contains(&format!(",{expected},")) {
                break;
            }
            tries += 1;
            assert!(tries < 1000, "{service:?}: {row}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    gate.terminate();
    let (status, messages) = gate.wait();
    assert!(status.success(), "{messages}");
    assert!(messages.contains("gRPC: not serving"), "{messages}");
    assert!(messages.contains("gRPC status 5: the service is not known"), "{messages}");
    server.end();
}

#[test]
fn health_service_is_asked_without_tls() {
    check_results("grpc-health-plain", "h2c = true", &[]);
}

#[test]
fn health_service_is_asked_over_tls() {
    let pool = "tls = { verify = false, alpn = [\"h2\"] }";
    check_results("grpc-health-tls", pool, &["tls"]);
}
