//! Stops, restarts and reloads of Tidegate, and restarts of the server behind it, under load.
//! In: SIGTERM or SIGHUP during the load. Out: no request in flight is lost, and the exit status is 0.

use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use tidegate_testing::{Signal, Started, command, start};

use crate::gate::{Gate, proxy_config};
use crate::load::{parse_wrk, wrk};
use crate::origins::{Nginx, Script};
use crate::process::{Folder, Process, free_address, program, run_well, text};
use crate::proxy_protocol::make_certificate;
use crate::requests::curl;

/// Starts wrk and waits until it sends requests.
fn begin_wrk(gate: &Gate, arguments: &[&str]) -> Started {
    let url = gate.url("/page");
    let mut command = wrk();
    command.args(arguments).arg(url).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = start(&mut command);
    // After a second the load is running; the amount of load does not matter.
    std::thread::sleep(Duration::from_secs(1));
    child
}

fn end_wrk(child: Started) -> crate::load::WrkReport {
    let output = child.output();
    assert!(output.status.success(), "{}", text(&output.stderr));
    parse_wrk(text(&output.stdout))
}

#[test]
fn new_process_takes_over_the_port_without_a_lost_request() {
    let folder = Folder::new("takeover");
    let nginx = Nginx::start(&folder);
    nginx.file(&folder, "page", "page\n");
    let config = proxy_config(free_address(), nginx.address);
    let old = Gate::start(&folder, &config);
    let load = begin_wrk(&old, &["--connections", "32", "--duration", "4s"]);
    let new = Gate::start_with(&folder, &config, &["--takeover"]);
    assert_eq!(new.address(), old.address());
    old.terminate();
    let (status, messages) = old.wait();
    assert!(status.success(), "{status}: {messages}");
    let report = end_wrk(load);
    // A connected client sends its next request before the stopping process closes idle connections, and its next
    // connection goes to the new process.
    assert!(report.errors.is_empty(), "{}", report.text);
    assert_eq!(run_well(curl().arg(new.url("/page"))), "page\n");
}

#[test]
fn sigterm_finishes_a_download_and_refuses_new_connections() {
    // More than all socket buffers between nginx and a client that does not read.
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
    download.signal(Signal::STOP);
    gate.terminate();
    download.wait_until("refused a second connection", || TcpStream::connect(address).is_err());
    download.signal(Signal::CONT);
    assert!(download.wait().success(), "the download was cut");
    let length = std::fs::metadata(&received).map(|file| file.len());
    assert_eq!(length.expect("curl wrote the body"), BYTES);
    let (status, messages) = gate.wait();
    assert_eq!((status.code(), messages.as_str()), (Some(0), ""));
}

#[test]
fn response_after_sigterm_has_connection_close() {
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
    request.wait_until("the only connection", || TcpStream::connect(address).is_err());
    folder.file("answer", "");
    assert!(request.wait().success());
    let answer = std::fs::read_to_string(&received).expect("curl wrote the body").to_lowercase();
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert!(answer.ends_with("waited\n"), "{answer}");
    assert!(gate.wait().0.success());
}

/// How many reloads a test makes. Every second one changes routes, pools, listeners and certificates.
const RELOADS: usize = 200;
/// How much the resident memory may grow during the second half of the reloads.
const GROWTH_KIB_MAX: u64 = 8 * 1024;

#[test]
fn reloads_under_load_fail_no_request_and_keep_no_memory() {
    let folder = Folder::new("reloads");
    let nginx = Nginx::start(&folder);
    nginx.file(&folder, "page", "page\n");
    make_certificate(&folder);
    std::fs::copy(folder.join("site.pem"), folder.join("other.pem")).expect("a file is copied");
    let (first, second) = (free_address(), free_address());
    let config = |at: usize| {
        let (is_changed, name) = (at % 2 == 1, at % 6 / 2);
        let mut text = format!("[[listener]]\nbind = \"{first}\"\n");
        if is_changed {
            let file = ["site.pem", "other.pem"][at / 2 % 2];
            text += &format!(
                "[[listener]]\nbind = \"{second}\"\n\
                 tls = {{ certificates = [{{ cert = \"{file}\", key = \"site.key\" }}] }}\n\
                 [[route]]\npath = \"/unused/{at}\"\nrespond = {{}}\n"
            );
        }
        let pool = if is_changed { format!("changed-{name}") } else { "app".to_owned() };
        text + &format!(
            "[[route]]\npath = \"/number\"\nrespond = {{ body = \"{at}\" }}\n\
             [[route]]\nproxy = \"{pool}\"\n[pool.{pool}]\nservers = [\"{}\"]\n",
            nginx.address
        )
    };
    let gate = Gate::start(&folder, &config(0));
    let load = begin_wrk(&gate, &["--connections", "32", "--duration", "600s"]);
    let mut memory_kib = 0;
    for at in 1..=RELOADS {
        // In one step, because the file is read at any time.
        std::fs::write(folder.join("next.toml"), config(at)).expect("a file can be written");
        std::fs::rename(folder.join("next.toml"), folder.join("tidegate.toml"))
            .expect("it is ours");
        gate.signal(Signal::HUP);
        while run_well(curl().arg(gate.url("/number"))) != at.to_string() {}
        if at == RELOADS / 2 {
            memory_kib = gate.mark_memory_kib();
        }
    }
    let peak_kib = gate.memory_peak_kib();
    load.send(Signal::INT);
    let report = end_wrk(load);
    assert!(report.errors.is_empty(), "{}", report.text);
    assert!(peak_kib < memory_kib + GROWTH_KIB_MAX, "{memory_kib} KiB, then {peak_kib} KiB");
    gate.terminate();
    let (status, messages) = gate.wait();
    assert!(status.success(), "{status}: {messages}");
    let reloaded = messages.lines().filter(|line| line.contains("configuration reloaded")).count();
    // The certificates of a new listener are read once more when their files are watched.
    let all_is_well = messages.lines().all(|line| line.contains("Z info "));
    assert!(reloaded == RELOADS && all_is_well, "{reloaded} reloads\n{messages}");
}

#[test]
fn origin_restart_causes_no_error_but_502_and_503() {
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

/// Counts responses with a status other than 200, 502 and 503.
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
fn port_in_use_by_another_program_fails_the_start() {
    let folder = Folder::new("taken");
    let nginx = Nginx::start(&folder);
    let file = folder.file("tidegate.toml", proxy_config(nginx.address, "127.0.0.1:9"));
    let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
    let output = crate::process::run(command.args(["run", "-c", &file]));
    let messages = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{messages}");
    let start = format!("tidegate: cannot listen on {}: process ", nginx.address);
    assert!(messages.contains(&start) && messages.contains(" (nginx) already"), "{messages}");
    let output = crate::process::run(command.arg("--takeover"));
    assert_eq!(output.status.code(), Some(1), "another program does not share its port");
}

#[test]
fn second_tidegate_on_the_same_port_is_refused_and_names_the_first() {
    let folder = Folder::new("shares");
    let config = proxy_config(free_address(), "127.0.0.1:9");
    let first = Gate::start(&folder, &config);
    let file = folder.file("second.toml", &config);
    let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
    let output = crate::process::run(command.args(["run", &file]));
    let messages = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{messages}");
    let (address, pid) = (first.address(), first.pid());
    let start = format!("tidegate: cannot listen on {address}: process {pid} (tidegate) already");
    assert!(messages.contains(&start) && messages.contains("--takeover"), "{messages}");
    let mut second = Process::spawn(command.arg("--takeover").stderr(Stdio::piped()));
    let stderr = second.child().stderr.take().expect("stderr is piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
    let line = lines.next().expect("a line is printed").expect("stderr can be read");
    assert!(line.contains(&format!("taking over {address} from process {pid}")), "{line}");
}

#[test]
fn all_third_party_programs_are_installed() {
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
