//! `tidegate bench push` whose subscribers talk, against a WebSocket server that answers Pings, or does not.

use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tidegate_testing::{command, example, run};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;
use tidegate_wire::websocket::{
    Decoder, FrameRules, Incoming, Kind, Limits, Origins, Policy, Role, encode_message, encode_pong,
};

/// What the server has received.
#[derive(Default)]
struct Seen {
    messages: AtomicU64,
    pings: AtomicU64,
}

/// A server whose subscribers get each publication. Returns its address.
fn serve(answers_pings: bool, seen: &Arc<Seen>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (subscribers, seen) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(seen));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let (subscribers, seen) = (Arc::clone(&subscribers), Arc::clone(&seen));
            thread::spawn(move || {
                // A client that is content resets its connections.
                let _ = talk(stream, &subscribers, answers_pings, &seen);
            });
        }
    });
    address
}

fn talk(
    mut stream: TcpStream,
    subscribers: &Mutex<Vec<TcpStream>>,
    answers_pings: bool,
    seen: &Seen,
) -> std::io::Result<()> {
    let (mut input, mut buffer) = (Vec::new(), [0; 65_536]);
    while !input.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let count = stream.read(&mut buffer)?;
        input.extend_from_slice(&buffer[..count]);
        if count == 0 {
            return Ok(());
        }
    }
    if input.starts_with(b"POST") {
        return publish(stream, &String::from_utf8_lossy(&input), subscribers);
    }
    let mut storage = FieldStorage::new();
    let decoded =
        HeadDecoder::default().decode_request(&input, &HeadLimits::default(), &mut storage);
    let (head, _) = decoded.unwrap().unwrap();
    let origins = Origins::parse(["*"]).unwrap();
    let policy = Policy { subprotocols: Vec::new(), origins, deflate: None };
    let mut response = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
    policy.check(&head).unwrap().encode_fields(&mut response);
    response.extend_from_slice(b"\r\n");
    stream.write_all(&response)?;
    subscribers.lock().unwrap().push(stream.try_clone()?);
    let mut decoder = Decoder::new(FrameRules { role: Role::Server, allows_deflate: false });
    let mut message = Vec::new();
    loop {
        let count = stream.read(&mut buffer)?;
        let (mut used, mut out) = (0, Vec::new());
        while used < count {
            let step = decoder
                .decode_message(&mut buffer[used..count], &Limits::default(), &mut message, None)
                .unwrap();
            used += step.consumed;
            match step.incoming {
                Some(Incoming::Message(_)) => {
                    seen.messages.fetch_add(1, Ordering::Relaxed);
                }
                Some(Incoming::Ping(payload)) => {
                    seen.pings.fetch_add(1, Ordering::Relaxed);
                    encode_pong(&mut out, payload, None).unwrap();
                }
                Some(Incoming::Pong(_) | Incoming::Close(_)) | None => {}
            }
        }
        if answers_pings && !out.is_empty() {
            // A publication must not come between the bytes of a frame.
            let _all = subscribers.lock().unwrap();
            stream.write_all(&out)?;
        }
        if count == 0 {
            return Ok(());
        }
    }
}

/// Publishes the data of the requests of a connection.
fn publish(
    mut stream: TcpStream,
    first: &str,
    subscribers: &Mutex<Vec<TcpStream>>,
) -> std::io::Result<()> {
    let (mut text, mut buffer) = (first.to_owned(), [0; 4096]);
    loop {
        let data = text.split("\"data\":").nth(1).unwrap().trim_end_matches('}').to_owned();
        let mut frame = Vec::new();
        encode_message(&mut frame, Kind::Text, data.as_bytes(), None);
        for subscriber in subscribers.lock().unwrap().iter_mut() {
            subscriber.write_all(&frame)?;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"result\":{}}")?;
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        text = String::from_utf8_lossy(&buffer[..count]).into_owned();
    }
}

/// Runs `bench push`; returns its output and its exit code.
fn bench(address: SocketAddr, arguments: &[&str]) -> (String, Option<i32>) {
    let url = format!("ws://{address}/subscribe/a");
    let common = ["bench", "push", &url, "--settle", "0", "-c", "20", "-t", "2"];
    let output = run(command(example("bench")).args(common).args(arguments));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (text, output.status.code())
}

#[test]
fn share_of_the_subscribers_talks_while_publications_come() {
    let seen = Arc::new(Seen::default());
    let address = serve(true, &seen);
    let talk = ["--talkers", "25%", "--talk-every", "50ms", "--talk-size", "100"];
    let load = ["--rate", "20/s", "--duration", "1s", "--json"];
    let (text, code) = bench(address, &[&talk[..], &load[..]].concat());
    let json: Value = serde_json::from_str(&text).unwrap();
    let count = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("{name}: {json}"));
    let talked = count("talked");
    // Five of the 20 talk; on a busy machine some turns are skipped.
    assert!((5..=5 * 60).contains(&talked), "{json}");
    assert_eq!((count("talks_unread"), code), (0, Some(0)), "{json}");
    let seen = [&seen.messages, &seen.pings].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(seen, [talked, talked], "{json}");
    assert!(json["talk_us"]["mean"].as_f64().is_some_and(|mean| mean > 0.0), "{json}");
    // Every connection has the same number of messages.
    assert_eq!(count("received"), 20 * count("published"), "{json}");
    let published = count("published");
    assert_eq!([count("least_on_a_connection"), count("most_on_a_connection")], [published; 2]);
    let index = json["fairness_index"].as_f64().unwrap();
    assert!(index > 0.0 && index <= 1.0 + 1e-6, "{json}");
}

#[test]
fn messages_that_the_server_does_not_read_are_reported() {
    let address = serve(false, &Arc::new(Seen::default()));
    let talk = ["--talkers", "10%", "--talk-every", "20ms", "--timeout", "1s"];
    let (text, code) =
        bench(address, &[&talk[..], &["-n", "3", "--pause", "200ms", "--json"]].concat());
    let json: Value = serde_json::from_str(&text).unwrap();
    let count = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("{name}: {json}"));
    // Two talk: each waits for the Pong of its first message.
    assert_eq!((count("talked"), count("talks_unread"), code), (2, 2, Some(1)), "{json}");
    assert_eq!(count("lost"), 0, "{json}");
}

#[test]
fn report_and_lines_of_progress_fit_into_80_columns() {
    let address = serve(true, &Arc::new(Seen::default()));
    let load = ["--talkers", "5%", "-n", "3", "--pause", "500ms", "-l"];
    let (text, code) = bench(address, &load);
    assert_eq!(code, Some(0), "{text}");
    for name in ["fairness", "messages/s", "softirq/s", "sockmem", "sent"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    // The first lines state what the machine did to the figures, in sentences.
    let long = |line: &&str| line.chars().count() > 80 && line.starts_with([' ', '#']);
    assert_eq!(text.lines().find(long), None, "{text}");
}
