//! The command on real sockets: exact counts beside foreign clients, and servers that misbehave.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server that counts whole requests and lets `act` deal with each; false ends the connection.
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
    // Small answers must not wait for acknowledgements.
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

/// The example that is the command; Cargo builds it beside this test.
fn program() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let program = deps.parent().unwrap().parent().unwrap().join("examples/bench");
    assert!(program.is_file(), "{} is missing: run cargo test without --test", program.display());
    program
}

fn bench(arguments: &[&str]) -> Output {
    Command::new(program()).args(["bench", "http"]).args(arguments).output().unwrap()
}

fn bench_json(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = bench(&[arguments, &["--json"]].concat());
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
fn counts_are_the_servers_own() {
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

    let h2load = Command::new("h2load").args(["--h1", "-n500", "-c5", &url]).output();
    let text = h2load.expect("h2load is needed: apt-get install nghttp2-client").stdout;
    assert!(String::from_utf8_lossy(&text).contains("500 succeeded"));
    assert_eq!(requests.swap(0, Ordering::Relaxed), 500);

    // wrk leaves requests in flight when its time is over: at most one on each connection.
    let wrk = Command::new("wrk").args(["-t1", "-c5", "-d1s", &url]).output();
    let text = wrk.expect("wrk is needed: apt-get install wrk").stdout;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| line.contains(" requests in ")).unwrap();
    let by_wrk: u64 = line.trim().split(' ').next().unwrap().parse().unwrap();
    let seen = requests.load(Ordering::Relaxed);
    assert!((by_wrk..=by_wrk + 5).contains(&seen), "wrk {by_wrk}, server {seen}");
}

#[test]
fn scripts_find_the_names_that_they_rely_on() {
    let (address, _) = serve(answer);
    let (json, _) = bench_json(&[&url(address), "--requests", "10", "--connections", "2"]);
    for name in ["requests", "errors", "rate_per_s", "client_cpu_us_per_request", "saturated"] {
        assert!(!json[name].is_null(), "{name}");
    }
    for kind in ["latency_us", "service_us"] {
        for name in ["p50", "p90", "p99", "p99_9", "p99_99", "p99_999", "p99_9999", "max"] {
            assert!(json[kind][name].as_f64().unwrap() > 0.0, "{kind}.{name}");
        }
    }
    for class in ["connect", "reset", "timeout", "status", "framing"] {
        assert_eq!(json["errors"][class], 0, "{class}");
    }
}

#[test]
fn each_misbehaviour_has_its_class_its_words_and_exit_code_1() {
    type Act = fn(&mut TcpStream) -> bool;
    let cases: [(&str, &str, Act); 6] = [
        ("framing", "not HTTP", |stream| stream.write_all(b"hello there\r\n\r\n").is_ok()),
        // A TLS alert, as a TLS port answers plain HTTP.
        ("framing", "not HTTP", |stream| {
            let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 70]);
            false
        }),
        ("framing", "nobody asked for", |stream| {
            stream.write_all(&[ANSWER, b"more", ANSWER].concat()).is_ok()
        }),
        ("closed", "instead of answering", |_| false),
        ("timeout", "longer than 300 ms", |_| true),
        ("status", "503", |stream| {
            stream.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").is_ok()
        }),
    ];
    for (class, words, act) in cases {
        let (address, _) = serve(act);
        let (json, code) = bench_json(&[&url(address), "-n", "6", "-c", "2", "--timeout", "300ms"]);
        assert!(json["errors"][class].as_u64().unwrap() > 0, "{class}: {}", json["errors"]);
        let note = json["first_error"][class].as_str().unwrap();
        assert!(note.contains(words) || class == "framing", "{class}: {note}");
        assert_eq!(code, Some(1), "{class}");
    }
}

#[test]
fn what_cannot_run_says_why_and_exits_with_2() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = url(listener.local_addr().unwrap());
    let cases: [(&[&str], &str); 9] = [
        (&["http://127.0.0.1:1/"], "nothing listens on 127.0.0.1:1"),
        (&["https://127.0.0.1/"], "https is not in this version"),
        (&["http://no-such-host.invalid/"], "unknown host"),
        (&[&there, "-c", "3000000"], "use --"),
        (&[&there, "-c", "1", "-t", "2"], "use --threads 1"),
        (&[&there, "--poisson"], "give --rate too"),
        (&[&there, "-R", "10", "-T", "1s"], "--think"),
        (&[&there, "-H", "nonsense"], "write 'name: value'"),
        (&[&there, "--start", "sleep 1"], "is taken already"),
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
fn an_interrupt_prints_the_report_so_far() {
    let (address, requests) = serve(answer);
    let mut child = Command::new(program())
        .args(["bench", "http", &url(address), "--duration", "1h", "--lines"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The first line of figures: the run goes on and signals are waited for.
    assert!(lines.next().unwrap().unwrap().starts_with('#'));
    lines.next().unwrap().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(rest.iter().any(|line| line.contains("Stopped early")), "{rest:#?}");
    let counted = rest.iter().find_map(|line| line.trim().strip_prefix("requests ")).unwrap();
    let counted: u64 = counted.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(counted, requests.load(Ordering::Relaxed));
}

#[test]
fn a_comparison_starts_its_candidates_and_stops_them() {
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
fn the_page_is_self_contained_and_escapes_what_was_typed() {
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
