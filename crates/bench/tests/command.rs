//! The command on real sockets: exact counts, agreement with other load generators, and faulty servers.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tidegate_testing::{Signal, Started, command, example, run, start};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server that counts complete requests and calls `act` for each; false ends the connection.
fn serve(
    act: impl Fn(&mut TcpStream) -> bool + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicU64::new(0));
    let (counter, act) = (requests.clone(), Arc::new(act));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (counter, act) = (counter.clone(), act.clone());
            thread::spawn(move || {
                let Ok(stream) = stream else { return };
                serve_connection(stream, &counter, &*act);
            });
        }
    });
    (address, requests)
}

fn serve_connection(
    mut stream: TcpStream,
    counter: &AtomicU64,
    act: &dyn Fn(&mut TcpStream) -> bool,
) {
    // Small responses must not wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let (mut input, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => input.extend_from_slice(&buffer[..count]),
        }
        while let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") {
            input.drain(..end + 4);
            counter.fetch_add(1, Ordering::Relaxed);
            if !act(&mut stream) {
                return;
            }
        }
    }
}

fn answer(stream: &mut TcpStream) -> bool {
    stream.write_all(ANSWER).is_ok()
}

/// The example program with the command.
fn program() -> PathBuf {
    example("bench")
}

fn bench(arguments: &[&str]) -> Output {
    run(command(program()).args(["bench", "http"]).args(arguments))
}

/// Interrupts a run as soon as `is_so` returns true. The server must have seen a request by then: before the first
/// one, the signal handlers are registered.
fn bench_until(arguments: &[&str], is_so: impl Fn() -> bool) -> Output {
    let mut command = command(program());
    command.args(["bench", "http"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = start(&mut command);
    while !is_so() {
        assert!(child.try_wait().unwrap().is_none(), "{command:?} ended");
        thread::yield_now();
    }
    child.send(Signal::INT);
    child.output()
}

fn bench_json(arguments: &[&str]) -> (Value, Option<i32>) {
    as_json(&bench(&[arguments, &["--json"]].concat()))
}

fn as_json(output: &Output) -> (Value, Option<i32>) {
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    (json, output.status.code())
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}/")
}

#[test]
fn counts_agree_with_the_server() {
    for arguments in [
        &["-n", "1000", "-c", "7", "-t", "3"][..],
        &["-n", "1000", "-c", "5", "--pipeline", "8"],
        &["-n", "100", "-c", "4", "--requests-per-connection", "3"],
        &["-n", "100", "-c", "4", "--close"],
        &["-n", "200", "-c", "4", "--rate", "2000/s", "--poisson"],
    ] {
        let (address, requests) = serve(answer);
        let (json, code) = bench_json(&[&[url(address).as_str()], arguments].concat());
        let counted = json["requests"].as_u64().unwrap();
        assert_eq!(counted, arguments[1].parse::<u64>().unwrap(), "{arguments:?}");
        assert_eq!(requests.load(Ordering::Relaxed), counted, "{arguments:?}");
        assert_eq!(json["body_bytes"].as_u64().unwrap(), counted * 2);
        assert_eq!(json["bytes_received"].as_u64().unwrap(), counted * ANSWER.len() as u64);
        assert_eq!(code, Some(0), "{}", json["errors"]);
    }
}

#[test]
fn counts_agree_with_h2load_and_wrk() {
    let (address, requests) = serve(answer);
    let url = url(address);
    let (json, _) = bench_json(&[&url, "-n", "500", "-c", "5"]);
    assert_eq!((json["requests"].as_u64(), requests.swap(0, Ordering::Relaxed)), (Some(500), 500));

    let h2load = run(command("h2load").args(["--h1", "-n500", "-c5", &url]));
    let text = String::from_utf8_lossy(&h2load.stdout);
    assert!(text.contains("500 succeeded"), "is nghttp2-client installed? {h2load:?}");
    assert_eq!(requests.swap(0, Ordering::Relaxed), 500);

    // wrk ends with requests in flight: up to one on each connection.
    let wrk = run(command("wrk").args(["-t1", "-c5", "-d1s", &url]));
    let text = String::from_utf8_lossy(&wrk.stdout);
    let line = text.lines().find(|line| line.contains(" requests in "));
    let line = line.unwrap_or_else(|| panic!("is wrk installed? {wrk:?}"));
    let by_wrk: u64 = line.trim().split(' ').next().unwrap().parse().unwrap();
    let seen = requests.load(Ordering::Relaxed);
    assert!((by_wrk..=by_wrk + 5).contains(&seen), "wrk {by_wrk}, server {seen}");
}

#[test]
fn json_contains_the_stable_names() {
    let (address, _) = serve(answer);
    let (json, _) = bench_json(&[&url(address), "--requests", "10", "--connections", "2"]);
    for name in ["requests", "errors", "rate_per_s", "client_cpu_us_per_request", "saturated"] {
        assert!(!json[name].is_null(), "{name}");
    }
    for kind in ["latency_us", "service_us"] {
        for name in ["p50", "max"] {
            assert!(json[kind][name].as_f64().unwrap() > 0.0, "{kind}.{name}");
        }
        // Ten responses are too few for a higher percentile.
        for name in ["p90", "p99", "p99_9", "p99_99", "p99_999", "p99_9999"] {
            assert!(json[kind].get(name).is_some_and(|value| value.is_null()), "{kind}.{name}");
        }
    }
    for class in ["connect", "reset", "timeout", "status", "framing", "tls"] {
        assert_eq!(json["errors"][class], 0, "{class}");
    }
}

#[test]
fn each_failure_has_its_class_message_and_exit_code_1() {
    type Act = fn(&mut TcpStream) -> bool;
    let cases: [(&str, &str, Act); 7] = [
        ("framing", "not valid HTTP/1.1", |stream| {
            stream.write_all(b"hello there\r\n\r\n").is_ok()
        }),
        ("framing", "larger than this client accepts", |stream| {
            let head = [&b"HTTP/1.1 200 OK\r\nX: "[..], &[b'x'; 200_000]].concat();
            stream.write_all(&head).is_ok()
        }),
        // A TLS alert, the response of a TLS port to plain HTTP.
        ("framing", "use https://", |stream| {
            let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 70]);
            false
        }),
        ("framing", "bytes without a request", |stream| {
            stream.write_all(&[ANSWER, b"more", ANSWER].concat()).is_ok()
        }),
        ("closed", "without a response", |_| false),
        ("timeout", "longer than 300 ms", |_| true),
        ("status", "503", |stream| {
            stream.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").is_ok()
        }),
    ];
    for (class, words, act) in cases {
        let (address, _) = serve(act);
        // Only the server that does not respond may cost time: elsewhere a busy machine must not cause a timeout.
        let timeout = if class == "timeout" { "300ms" } else { "1h" };
        let (json, code) = bench_json(&[&url(address), "-n", "6", "-c", "2", "--timeout", timeout]);
        assert!(json["errors"][class].as_u64().unwrap() > 0, "{class}: {}", json["errors"]);
        let note = json["first_error"][class].as_str().unwrap();
        assert!(note.contains(words), "{class}: {note}");
        assert_eq!(code, Some(1), "{class}");
    }
}

#[test]
fn unanswered_requests_are_reported_first() {
    let (address, requests) = serve(|_| true);
    let load = [&url(address), "-d", "1h", "-c", "3", "--timeout", "1h"];
    let output = bench_until(&load, || requests.load(Ordering::Relaxed) == 3);
    let text = String::from_utf8_lossy(&output.stdout);
    let other = ["CLIENT SATURATED: ", "Host disturbed: ", "Stopped early: "];
    let first = text.lines().find(|line| !other.iter().any(|words| line.starts_with(words)));
    assert!(first.unwrap().starts_with("Unanswered: 3 requests had no response"), "{text}");
    let load = [&load[..], &["--json"]].concat();
    let (json, code) = as_json(&bench_until(&load, || requests.load(Ordering::Relaxed) == 6));
    assert_eq!(
        (json["unanswered"].as_u64(), json["errors"]["timeout"].as_u64()),
        (Some(3), Some(0))
    );
    assert_eq!((output.status.code(), code), (Some(1), Some(1)));
}

#[test]
fn invalid_arguments_exit_with_2_and_a_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = url(listener.local_addr().unwrap());
    let secure = there.replace("http://", "https://");
    let cases: [(&[&str], &str); 23] = [
        (&["http://127.0.0.1:1/"], "nothing listens on 127.0.0.1:1"),
        (&["https://127.0.0.1:1/"], "nothing listens on 127.0.0.1:1"),
        (&[&secure, "--tls-version", "1.1"], "write 1.2 or 1.3"),
        (&[&secure, "--tls-ciphers", "RC4"], "TLS_AES_256_GCM_SHA384"),
        (&[&secure, "--ca", "/nowhere/ca.pem"], "--ca /nowhere/ca.pem"),
        (&[&secure, "--alpn", "h2"], "use --http2"),
        (&[&there, "--handshake-every-request"], "https://"),
        (&["http://no-such-host.invalid/"], "cannot resolve host"),
        (&[&there, "-c", "3000000"], "use --"),
        (&[&there, "-c", "1", "-t", "2"], "use --threads 1"),
        (&[&there, "--poisson"], "give --rate too"),
        (&[&there, "-R", "10", "-T", "1s"], "--think"),
        (&[&there, "-H", "nonsense"], "write 'name: value'"),
        (&[&there, "--start", "sleep 1"], "is already in use"),
        (&[&there, "-n", "0"], "--requests"),
        (&[&there, "-l", "--json"], "'--lines...' cannot be used with '--json'"),
        (&[&there, "--rounds", "2"], "--vs"),
        (&[&there, "--cpu", "9999"], "--cpu 9999: no such CPU; this machine has 0"),
        (&[&there, "--client-cpus", "9999"], "--client-cpus 9999: no such CPU; this machine has 0"),
        (&[&there, "--body-file", "/dev/zero"], "--body-file /dev/zero: larger than 64 MiB"),
        (&[&there, "--server-pid", "99999999"], "no such process"),
        (&[&there, "--html", "/nowhere/page.html"], "--html /nowhere/page.html"),
        (&[&there, "--percentiles", "/nowhere/x"], "--percentiles /nowhere/x"),
    ];
    for (arguments, words) in cases {
        let output = bench(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(words), "{arguments:?}: {text}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn failed_start_creates_no_file_and_keeps_existing_files() {
    let folder = Site::new("files");
    let (new, old) = (folder.path("new.html"), folder.path("old"));
    std::fs::write(&old, "kept").unwrap();
    let output = bench(&["http://127.0.0.1:1/", "--html", &new, "--percentiles", &old]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!std::path::Path::new(&new).exists());
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "kept");
}

#[test]
fn unwritable_report_fails_the_run_and_keeps_the_other_reports() {
    let (address, _) = serve(answer);
    let folder = Site::new("full");
    let curve = folder.path("curve");
    let mut command = command(program());
    command
        .args(["bench", "http", &url(address), "-n", "10", "--json"])
        .args(["--html", "/dev/full", "--percentiles", &curve])
        .stdout(std::fs::File::options().write(true).open("/dev/full").unwrap())
        .stderr(Stdio::piped());
    let output = start(&mut command).output();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("stdout") && text.contains("--html /dev/full: "), "{text}");
    assert_eq!(output.status.code(), Some(1));
    assert!(std::fs::read_to_string(&curve).unwrap().starts_with("#pctl"));
}

#[test]
fn probe_without_a_response_fails_the_run() {
    let (address, _) = serve(answer);
    let unused = url(free_address());
    let load = [&url(address), "-n", "100", "--rate", "100/s", "--reference", &unused];
    let (json, code) = bench_json(&load);
    assert!(json["requests"].as_u64().unwrap() > 0 && json["added_latency_us"].is_null());
    assert!(json["reference_errors"]["connect"].as_u64().unwrap() > 0);
    assert_eq!(code, Some(1));
}

#[test]
fn lines_have_as_many_columns_as_the_header() {
    let (address, _) = serve(answer);
    for option in ["-l", "-ll"] {
        let output = bench(&[&url(address), "-n", "50", option]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let columns: Vec<usize> =
            text.lines().take(2).map(|line| line.split_whitespace().count()).collect();
        assert_eq!(columns, [23, 23], "{option}: {text}");
        // On a busy machine the report may begin with a line about the client.
        let last = text.lines().rfind(|line| line.starts_with(|char: char| char.is_ascii_digit()));
        let last = last.unwrap();
        assert_eq!(last.split(' ').nth(3), Some("50"), "the last line counts all requests: {text}");
    }
}

#[test]
fn interrupt_prints_the_report_so_far() {
    let (address, requests) = serve(answer);
    let rest = interrupt(&["bench", "http", &url(address), "--duration", "1h", "--lines"]);
    assert!(rest.iter().any(|line| line.contains("Stopped early")), "{rest:#?}");
    let counted = rest.iter().find_map(|line| line.trim().strip_prefix("requests ")).unwrap();
    let counted: u64 = counted.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(counted, requests.load(Ordering::Relaxed));
}

#[test]
fn interrupt_in_the_warm_up_marks_the_figures() {
    let (address, _) = serve(answer);
    let pid = std::process::id().to_string();
    let rest = interrupt(&[
        "bench",
        "http",
        &url(address),
        "--warm-up",
        "1h",
        "--lines",
        "--cpu",
        "0",
        "--server-pid",
        &pid,
    ]);
    assert!(rest.iter().any(|line| line.starts_with("Nothing counted: ")), "{rest:#?}");
    let figures = rest.iter().find(|line| line.trim().starts_with("requests ")).unwrap();
    assert!(!figures.contains(" 0/s"), "the rate covers the warm-up: {figures}");
    let spent = rest.iter().filter(|line| line.trim().starts_with("server"));
    assert_eq!(spent.count(), 0, "the servers' usage is unknown: {rest:#?}");
}

/// Interrupts a run after its first line of figures and returns the output after that line.
fn interrupt(arguments: &[&str]) -> Vec<String> {
    let mut child = start(command(program()).args(arguments).stdout(Stdio::piped()));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // After the first line of figures the signal handlers are registered.
    assert!(lines.next().unwrap().unwrap().starts_with('#'));
    lines.next().unwrap().unwrap();
    child.send(Signal::INT);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().code(), Some(0));
    rest
}

#[test]
fn comparison_starts_and_stops_its_candidates() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (one, other) = (free(), free());
    let floor = |address| format!("{} bench floor --listen {address}", program().display());
    let output = bench(&[
        "--vs",
        &format!("one={}", url(one)),
        "--vs",
        &format!("other={}", url(other)),
        "--start",
        &floor(one),
        "--start",
        &floor(other),
        "--rounds",
        "2",
        "--duration",
        "100ms",
        "--json",
    ]);
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(json["candidates"].as_array().unwrap().len(), 2);
    assert!(json["candidates"][1]["requests"].as_u64().unwrap() > 0);
    assert_eq!(
        (json["ratios"][0]["name"].as_str(), json["ratios"][0]["over"].as_str()),
        (Some("other"), Some("one"))
    );
    assert!(TcpStream::connect(one).is_err() && TcpStream::connect(other).is_err());
}

#[test]
fn page_is_self_contained_and_escapes_arguments() {
    let (address, _) = serve(answer);
    let page = std::env::temp_dir().join(format!("tidegate-bench-{}.html", std::process::id()));
    let typed = format!("http://{address}/<b>?\"q\"");
    bench(&[&typed, "-n", "50", "--html", &page.to_string_lossy()]);
    let text = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    assert!(text.contains("/&lt;b&gt;") && !text.contains("/<b>"));
    for outside in ["<script", "src=", "@import", "url(", "href="] {
        assert!(!text.contains(outside), "{outside}");
    }
    assert!(!text.contains("NaN") && text.contains("<svg"));
}

/// A directory with a certificate for localhost (`site.pem`, `site.key`), removed when the test ends.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("tidegate-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.join("site.pem"), certificate.pem()).unwrap();
        std::fs::write(folder.join("site.key"), key.serialize_pem()).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program that is killed when the test ends.
struct Server(Started);

impl Server {
    /// Starts the program and waits until it accepts connections.
    fn start(command: &mut Command, address: SocketAddr) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self(start(command));
        while TcpStream::connect(address).is_err() {
            assert!(server.0.try_wait().unwrap().is_none(), "{command:?} ended");
            thread::yield_now();
        }
        server
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn openssl_server_is_loaded_over_tls_1_2_and_1_3() {
    let (site, address) = (Site::new("openssl"), free_address());
    let _server = Server::start(
        command("openssl")
            .args(["s_server", "-www", "-quiet", "-accept", &address.to_string()])
            .args(["-cert", &site.path("site.pem"), "-key", &site.path("site.key")]),
        address,
    );
    let url = format!("https://localhost:{}/", address.port());
    let ca = site.path("site.pem");
    for (version, name) in [("1.2", "TLSv1.2"), ("1.3", "TLSv1.3")] {
        for (resumption, full) in [("on", 1), ("off", 20)] {
            // One connection: this server serves only one connection at a time.
            let (json, code) = bench_json(&[
                &url,
                "-n",
                "20",
                "-c",
                "1",
                "--ca",
                &ca,
                "--tls-version",
                version,
                "--handshake-every-request",
                "--tls-resumption",
                resumption,
            ]);
            assert_eq!((json["requests"].as_u64(), code), (Some(20), Some(0)), "{json:#}");
            assert_eq!(json["handshakes_full"], full, "{version} {resumption}");
            assert_eq!(json["handshakes_resumed"], 20 - full, "{version} {resumption}");
            assert!(json["negotiated"].as_str().unwrap().starts_with(name), "{json:#}");
            assert_eq!(json["handshake_us"]["count"], 20);
        }
    }
    for (arguments, words) in [
        (&[][..], "--ca FILE"),
        (&["--ca", &ca, "--sni", "b.example"], "--sni NAME"),
        (&["--accept-any-certificate", "--tls-curves", "X25519MLKEM768"], "--tls-curves"),
    ] {
        let load = [&[url.as_str(), "-n", "1", "-c", "1", "--stop-at-error"], arguments].concat();
        let (json, code) = bench_json(&load);
        let note = json["first_error"]["tls"].as_str().unwrap_or_default();
        assert!(note.contains(words), "{arguments:?}: {json:#}");
        assert!(json["errors"]["tls"].as_u64().unwrap() > 0);
        assert_eq!((json["requests"].as_u64(), code), (Some(0), Some(1)));
    }
}

#[test]
fn counts_agree_with_nginx() {
    let (site, address) = (Site::new("nginx"), free_address());
    let config = format!(
        "daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log; events {{}}\n\
         http {{ log_format own '$ssl_session_reused$ssl_server_name'; access_log {dir}/log own;\n\
         client_body_temp_path {dir}/1; proxy_temp_path {dir}/2; fastcgi_temp_path {dir}/3;\n\
         uwsgi_temp_path {dir}/4; scgi_temp_path {dir}/5; keepalive_requests 100000;\n\
         server {{ listen {address} ssl http2; ssl_certificate {dir}/site.pem;\n\
         ssl_certificate_key {dir}/site.key; location / {{ return 200 ok; }}\n\
         location /http2 {{ access_log off; return 200 ok; }} }} }}\n",
        dir = site.0.display()
    );
    std::fs::write(site.path("nginx.conf"), config).unwrap();
    let server = Server::start(
        command("/usr/sbin/nginx").args(["-p", &site.path(""), "-c", &site.path("nginx.conf")]),
        address,
    );
    let (url, ca) = (format!("https://localhost:{}/", address.port()), site.path("site.pem"));
    let load = ["-n", "400", "-c", "4", "--ca", &ca, "--handshake-every-request"];
    let (json, code) = bench_json(&[&[url.as_str()], &load[..]].concat());
    assert_eq!((json["requests"].as_u64(), code), (Some(400), Some(0)), "{json:#}");
    let http2 = ["-n", "400", "-c", "4", "--ca", &ca, "--http2", "--streams", "10"];
    let (json_http2, code) = bench_json(&[&[&*format!("{url}http2")], &http2[..]].concat());
    assert_eq!((json_http2["requests"].as_u64(), code), (Some(400), Some(0)), "{json_http2:#}");
    assert_eq!(json_http2["negotiated"].as_str().unwrap().split(' ').next_back(), Some("h2"));
    let (plain, _) = bench_json(&[&url.replace("https", "http"), "-n", "3", "-c", "1"]);
    assert_eq!(plain["errors"]["status"], 3);
    let note = plain["first_error"]["status"].as_str().unwrap();
    assert!(note.contains("use https://"), "{note}");
    let pid: i32 = std::fs::read_to_string(site.path("pid")).unwrap().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    // nginx writes its log before it ends.
    rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
    let mut server = server;
    server.0.wait();
    let log = std::fs::read_to_string(site.path("log")).unwrap();
    let resumed = log.lines().filter(|line| *line == "rlocalhost").count();
    let full = log.lines().filter(|line| *line == ".localhost").count();
    assert_eq!(resumed + full, 400, "{log}");
    assert_eq!(json["handshakes_full"], full);
    // Connections that are being established when the last request is sent carry no request.
    let begun = json["handshakes_resumed"].as_u64().unwrap();
    assert!((resumed..=resumed + 4).contains(&(begun as usize)), "{begun}, nginx saw {resumed}");
}

#[test]
fn urls_file_loads_several_servers() {
    let (one, at_one) = serve(answer);
    let (other, at_other) = serve(answer);
    let file = std::env::temp_dir().join(format!("tidegate-urls-{}", std::process::id()));
    std::fs::write(&file, format!("3 /a\n1 GET http://{other}/b\n")).unwrap();
    let file_name = file.display().to_string();
    let load = [&url(one), "--urls", &file_name, "-c", "8", "--rate", "2000/s", "-n", "400"];
    let (json, code) = bench_json(&load);
    std::fs::remove_file(&file).unwrap();
    assert_eq!((json["requests"].as_u64(), code), (Some(400), Some(0)), "{json:#}");
    let (one, other) = (at_one.load(Ordering::Relaxed), at_other.load(Ordering::Relaxed));
    assert_eq!(one + other, 400);
    assert!(
        other > 0 && one > other,
        "the first server has 3/4 of the connections: {one}, {other}"
    );
}

#[test]
fn threads_multiply_the_descriptor_limit_on_both_sides() {
    // 300 descriptors per table: 900 connections need four tables on each side.
    let limited = |arguments: &str| {
        let mut command = command("sh");
        let program = program().display().to_string();
        command.args(["-c", &format!("ulimit -n 300 && exec {program} bench {arguments}")]);
        command
    };
    let address = free_address();
    let _floor =
        Server::start(&mut limited(&format!("floor --listen {address} --threads 4")), address);
    let load = "-c 900 -t 4 -n 9000 --source 127.0.0.2-127.0.0.4 --json";
    let output = run(&mut limited(&format!("http {} {load}", url(address))));
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(
        (json["requests"].as_u64(), output.status.code()),
        (Some(9000), Some(0)),
        "{json:#}"
    );
    assert_eq!(json["connects"], 900);
    let output = run(&mut limited(&format!("http {} -c 900 -t 2", url(address))));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("use --threads 4"), "{text}");
}
