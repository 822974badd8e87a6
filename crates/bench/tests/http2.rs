//! HTTP/2 on real sockets: counts agree with the server, and refusals, resets, GOAWAY and lost connections are
//! counted and survived.

use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tidegate_base::Moment;
use tidegate_testing::{command, example, run, start};
use tidegate_wire::http2::{Config, Connection, ErrorCode, Event, Scratch};

const BODY: &[u8] = b"hello";
/// How long a server stalls.
const STALL: Duration = Duration::from_millis(400);

/// What a server does with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Respond(u16),
    /// An interim response, the final one in two DATA frames, and trailers.
    RespondInParts,
    /// Responds before the content of the request is complete.
    RespondEarly,
    Refuse,
    Reset,
    /// States a longer body than it sends.
    Truncate,
    /// Announces with GOAWAY that this was the last request, and responds.
    GoAway,
    /// Closes the TCP connection.
    Close,
    /// Does nothing for `STALL`, and responds.
    Stall,
}

/// What a server has seen.
#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    connections: AtomicU64,
    content_bytes: AtomicU64,
    /// The latest head: method, authority, path, scheme and the other fields.
    head: Mutex<String>,
}

/// A server with the settings `config`. `act` gets the number of the request on its connection, from 0.
fn serve(config: Config, act: impl Fn(u64) -> Act + Send + Sync + 'static) -> (String, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Seen::default());
    let (shared, act) = (seen.clone(), Arc::new(act));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (seen, act) = (shared.clone(), act.clone());
            thread::spawn(move || {
                let Ok(stream) = stream else { return };
                seen.connections.fetch_add(1, Ordering::Relaxed);
                serve_connection(stream, config, &seen, &*act);
            });
        }
    });
    (url(address), seen)
}

fn serve_connection(mut stream: TcpStream, config: Config, seen: &Seen, act: &dyn Fn(u64) -> Act) {
    let _ = stream.set_nodelay(true);
    let now = Moment::ZERO;
    let mut connection = Connection::new(config, now);
    let (mut scratch, mut out, mut buffer) = (Scratch::new(), Vec::new(), [0; 16_384]);
    let mut number = 0;
    connection.start(&mut out);
    loop {
        if stream.write_all(&out).is_err() {
            return;
        }
        out.clear();
        connection.output_drained();
        let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
        let mut input = &buffer[..count];
        while let Some(event) = connection.receive(now, &mut input, &mut scratch, &mut out).unwrap()
        {
            let (id, ends) = match event {
                Event::Request { stream, request, ends } => {
                    let fields = request.head.fields();
                    let fields: Vec<String> = fields
                        .map(|field| {
                            format!("{}: {}", field.name, String::from_utf8_lossy(field.value))
                        })
                        .collect();
                    *seen.head.lock().unwrap() = format!(
                        "{:?} {:?}{:?} {fields:?}",
                        request.head.method, request.head.host, request.head.target
                    );
                    (stream, ends)
                }
                Event::Data { stream, bytes, ends, .. } => {
                    let count = bytes.len();
                    seen.content_bytes.fetch_add(count as u64, Ordering::Relaxed);
                    connection.release(&mut out, stream, count);
                    (stream, ends)
                }
                _ => continue,
            };
            let what = act(number);
            if !ends && what != Act::RespondEarly {
                continue;
            }
            number += 1;
            seen.requests.fetch_add(1, Ordering::Relaxed);
            if !respond(&mut connection, &mut out, id, what) {
                return;
            }
        }
    }
}

/// Carries `act` out for the request on stream `id`; false ends the TCP connection.
fn respond(connection: &mut Connection, out: &mut Vec<u8>, id: u32, act: Act) -> bool {
    let now = Moment::ZERO;
    let mut send = |status: u16, length: usize, body: &[u8]| {
        connection.send_response(out, id, status, false, |head| {
            head.field_u64("content-length", length as u64)
        });
        connection.send_data(now, out, id, body, true);
    };
    match act {
        Act::Respond(status) => send(status, BODY.len(), BODY),
        Act::Stall => {
            thread::sleep(STALL);
            send(200, BODY.len(), BODY);
        }
        Act::Truncate => send(200, BODY.len() + 1, BODY),
        Act::RespondEarly => send(413, BODY.len(), BODY),
        Act::RespondInParts => {
            connection.send_response(out, id, 103, false, |_| {});
            connection.send_response(out, id, 200, false, |_| {});
            connection.send_data(now, out, id, &BODY[..2], false);
            connection.send_data(now, out, id, &BODY[2..], false);
            connection.send_trailers(out, id, |trailers| trailers.field("x-end", b"1"));
        }
        Act::Refuse => {
            connection.reset(out, id, ErrorCode::REFUSED_STREAM);
        }
        Act::Reset => {
            connection.reset(out, id, ErrorCode::INTERNAL_ERROR);
        }
        Act::GoAway => {
            connection.stop_now(out);
            connection.send_response(out, id, 200, false, |_| {});
            connection.send_data(now, out, id, BODY, true);
        }
        Act::Close => return false,
    }
    true
}

fn answering() -> (String, Arc<Seen>) {
    serve(Config::server(), |_| Act::Respond(200))
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}/path")
}

/// The example program with the command.
fn program() -> PathBuf {
    example("bench")
}

fn bench(arguments: &[&str]) -> Output {
    run(command(program()).args(["bench", "http", "--http2"]).args(arguments))
}

fn bench_json(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = bench(&[arguments, &["--json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    (json, output.status.code())
}

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("{name}: {json:#}"))
}

#[test]
fn counts_agree_with_the_server() {
    for arguments in [
        &["-n", "1000", "-c", "7", "-t", "3"][..],
        &["-n", "1000", "-c", "5", "--streams", "8"],
        &["-n", "1000", "-c", "1", "--streams", "100"],
        &["-n", "200", "-c", "4", "--rate", "2000/s", "--poisson"],
        &["-n", "200", "-c", "4", "--streams", "3", "--rate-per-connection", "500/s"],
        &["-n", "200", "-c", "4", "--streams", "3", "--think", "1ms"],
    ] {
        let (url, seen) = answering();
        let (json, code) = bench_json(&[&[url.as_str()], arguments].concat());
        let counted = number(&json, "requests");
        assert_eq!(counted.to_string(), arguments[1], "{json:#}");
        assert_eq!(seen.requests.load(Ordering::Relaxed), counted, "{arguments:?}");
        assert_eq!(number(&json, "body_bytes"), counted * BODY.len() as u64);
        // Each response has two frame heads, two or more bytes of fields and the body.
        let wire_bytes = number(&json, "bytes_received");
        assert!(wire_bytes >= counted * 25 && wire_bytes < counted * 60, "{wire_bytes}");
        assert_eq!((json["status"]["2xx"].as_u64(), code), (Some(counted), Some(0)), "{json:#}");
        assert!(json["service_us"]["p50"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn latency_of_an_open_loop_includes_the_stall_of_the_server() {
    for streams in ["1", "1000"] {
        let (url, _) =
            serve(
                Config::server(),
                |number| {
                    if number == 0 { Act::Stall } else { Act::Respond(200) }
                },
            );
        // All 100 requests are planned during the stall: request k waits for at least 400 - 4 k ms.
        let load = [&url, "-n", "100", "-c", "1", "--rate", "250/s", "--streams", streams];
        let (json, code) = bench_json(&load);
        assert_eq!((number(&json, "requests"), code), (100, Some(0)), "{json:#}");
        let p50_us = json["latency_us"]["p50"].as_f64().unwrap();
        assert!(p50_us > 190_000.0, "{streams} streams: {p50_us} µs");
    }
}

#[test]
fn connection_is_closed_after_its_number_of_requests() {
    for (streams, each, connects) in [("1", "3", 34), ("3", "3", 34), ("2", "1", 100)] {
        let (url, seen) = answering();
        let load = ["-n", "100", "-c", "1", "--streams", streams, "-r", each];
        let (json, code) = bench_json(&[&[url.as_str()], &load[..]].concat());
        assert_eq!((number(&json, "requests"), code), (100, Some(0)), "{json:#}");
        assert_eq!(number(&json, "connects"), connects, "{streams} {each} {json:#}");
        let seen = seen.connections.load(Ordering::Relaxed);
        // The command checks with one connection that the server listens.
        assert_eq!(seen, connects + 1, "{streams} streams, {each} requests");
    }
}

#[test]
fn request_has_the_fields_and_the_content_of_the_command_line() {
    let (url, seen) = answering();
    let content = "x".repeat(300_000);
    let file = std::env::temp_dir().join(format!("tidegate-http2-{}", std::process::id()));
    std::fs::write(&file, &content).unwrap();
    let file_name = file.display().to_string();
    let load = ["-n", "40", "-c", "2", "--streams", "5", "-X", "PUT", "--body-file", &file_name];
    let fields = ["-H", "X-Own: 1", "-H", "Host: other.example"];
    let (json, code) = bench_json(&[&[url.as_str()], &load[..], &fields].concat());
    std::fs::remove_file(&file).unwrap();
    assert_eq!((number(&json, "requests"), code), (40, Some(0)), "{json:#}");
    assert_eq!(seen.content_bytes.load(Ordering::Relaxed), 40 * 300_000);
    let head = seen.head.lock().unwrap().clone();
    for part in ["Put", "/path", "x-own: 1", "content-length: 300000", "other.example"] {
        assert!(head.contains(part), "{part} is missing: {head}");
    }
}

#[test]
fn response_in_parts_is_one_response() {
    let (url, _) = serve(Config::server(), |_| Act::RespondInParts);
    let (json, code) = bench_json(&[&url, "-n", "100", "-c", "2", "--streams", "4"]);
    assert_eq!((number(&json, "requests"), code), (100, Some(0)), "{json:#}");
    assert_eq!(number(&json, "body_bytes"), 500);
    let (url, _) = answering();
    let (json, code) = bench_json(&[&url, "-n", "100", "-c", "2", "--streams", "4", "--head"]);
    assert_eq!((number(&json, "requests"), code), (100, Some(0)), "{json:#}");
    assert_eq!(number(&json, "body_bytes"), 0);
}

#[test]
fn response_before_the_whole_content_is_counted() {
    let (url, _) = serve(Config::server(), |_| Act::RespondEarly);
    let content = "x".repeat(100_000);
    let (json, code) = bench_json(&[&url, "-n", "20", "-c", "1", "-X", "POST", "--body", &content]);
    assert_eq!((number(&json, "requests"), code), (20, Some(1)), "{json:#}");
    assert_eq!((json["errors"]["status"].as_u64(), json["connects"].as_u64()), (Some(20), Some(1)));
}

#[test]
fn each_failure_of_a_request_has_its_class_and_the_connection_goes_on() {
    let cases = [
        (Act::Respond(503), "status", "had status 503"),
        (Act::Refuse, "refused", "REFUSED_STREAM"),
        (Act::Reset, "reset", "error code 2"),
        (Act::Truncate, "framing", "not valid HTTP/2"),
    ];
    for (act, class, words) in cases {
        let (url, _) =
            serve(
                Config::server(),
                move |number| {
                    if number % 10 == 3 { act } else { Act::Respond(200) }
                },
            );
        let (json, code) = bench_json(&[&url, "-n", "100", "-c", "1", "--streams", "4"]);
        let is_response = class == "status";
        assert_eq!(number(&json, "requests"), if is_response { 100 } else { 90 }, "{json:#}");
        assert_eq!(json["errors"][class], 10, "{json:#}");
        assert_eq!((json["connects"].as_u64(), code), (Some(1), Some(1)), "{act:?}");
        let note = json["first_error"][class].as_str().unwrap();
        assert!(note.contains(words), "{note}");
    }
}

#[test]
fn load_goes_on_after_goaway_and_after_a_lost_connection() {
    for (act, class) in [(Act::GoAway, "refused"), (Act::Close, "closed")] {
        let (url, seen) =
            serve(
                Config::server(),
                move |number| {
                    if number == 9 { act } else { Act::Respond(200) }
                },
            );
        let (json, _) = bench_json(&[&url, "-n", "500", "-c", "2", "--streams", "4"]);
        let errors = &json["errors"];
        let lost = errors[class].as_u64().unwrap() + errors["reset"].as_u64().unwrap();
        assert_eq!(number(&json, "requests") + lost, 500, "{json:#}");
        let connections = seen.connections.load(Ordering::Relaxed);
        assert!(connections > 20, "{connections} connections");
        let goaways = number(&json, "goaways");
        assert_eq!(goaways > 20, act == Act::GoAway, "{goaways}");
    }
}

#[test]
fn limit_of_the_server_is_kept_and_reported() {
    let config = Config { streams_max: 3, ..Config::server() };
    let (url, _) = serve(config, |_| Act::Respond(200));
    let load = [&url, "-n", "200", "-c", "2", "--streams", "10"];
    let (json, code) = bench_json(&load);
    assert_eq!((number(&json, "requests"), code), (200, Some(0)), "{json:#}");
    assert_eq!(number(&json, "streams_allowed"), 3);
    let text = String::from_utf8(bench(&load).stdout).unwrap();
    assert!(text.contains("allows only 3 streams at once"), "{text}");
    assert!(text.contains("HTTP/2, 10 streams on each"), "{text}");
}

#[test]
fn server_of_http_1_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = url(listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let (json, code) = bench_json(&[&url, "-c", "1", "--stop-at-error"]);
    assert_eq!((number(&json, "requests"), code), (0, Some(1)), "{json:#}");
    let note = json["first_error"]["framing"].as_str().unwrap();
    assert!(note.contains("does not support HTTP/2"), "{note}");
}

#[test]
fn contradicting_options_are_rejected() {
    for (arguments, words) in [
        (&["--streams", "4"][..], "--http2"),
        (&["--http2", "--pipeline", "4"], "--pipeline"),
        (&["--http2", "--alpn", "http/1.1"], "--alpn"),
    ] {
        let mut command = command(program());
        command.args(["bench", "http", "https://127.0.0.1:1/"]).args(arguments);
        let output = run(&mut command);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(words), "{text}");
    }
}

#[test]
fn counts_agree_with_nghttpd() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = std::env::temp_dir().join(format!("tidegate-nghttpd-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("path"), "content").unwrap();
    let mut server = command("nghttpd");
    server.args(["--no-tls", "-d", &folder.display().to_string(), &address.port().to_string()]);
    server.stdout(Stdio::null());
    let _server = start(&mut server);
    while TcpStream::connect(address).is_err() {
        thread::yield_now();
    }
    let (json, code) = bench_json(&[&url(address), "-n", "2000", "-c", "4", "--streams", "10"]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((number(&json, "requests"), code), (2000, Some(0)), "{json:#}");
    assert_eq!(number(&json, "body_bytes"), 2000 * 7);
}
