//! `tidegate bench ws` against servers that echo, change, repeat and keep messages, and close connections.

use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tidegate_testing::{command, example, run};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;
use tidegate_wire::websocket::{
    Decoder, Fragment, FrameRules, Incoming, Kind, Limits, Origins, Policy, Role, encode_fragment,
    encode_message,
};

/// What the server sends for message number `.0` of a connection; `None` closes the connection.
type Act = dyn Fn(usize, Kind, &[u8]) -> Option<Vec<u8>> + Send + Sync;

fn serve(
    act: impl Fn(usize, Kind, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let act: Arc<Act> = Arc::new(act);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let act = Arc::clone(&act);
            thread::spawn(move || {
                // A client that is content resets its connections.
                let _ = stream.and_then(|stream| talk(stream, &*act));
            });
        }
    });
    address
}

/// Accepts a WebSocket, and serves its messages.
fn talk(mut stream: TcpStream, act: &Act) -> std::io::Result<()> {
    let mut input = Vec::new();
    let mut buffer = [0; 65_536];
    while !input.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut buffer)?;
        input.extend_from_slice(&buffer[..count]);
        if count == 0 {
            return Ok(());
        }
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
    let mut decoder = Decoder::new(FrameRules { role: Role::Server, allows_deflate: false });
    let (mut message, mut number) = (Vec::new(), 0);
    loop {
        let count = stream.read(&mut buffer)?;
        let (mut used, mut out) = (0, Vec::new());
        while used < count {
            let step = decoder
                .decode_message(&mut buffer[used..count], &Limits::default(), &mut message, None)
                .unwrap();
            used += step.consumed;
            if let Some(Incoming::Message(message)) = step.incoming {
                let Some(reply) = act(number, message.kind(), message.bytes()) else {
                    return Ok(());
                };
                out.extend_from_slice(&reply);
                number += 1;
            }
        }
        stream.write_all(&out)?;
        if count == 0 {
            return Ok(());
        }
    }
}

fn frame(kind: Kind, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(&mut out, kind, data, None);
    out
}

/// The example program with the command.
fn program() -> PathBuf {
    example("bench")
}

fn bench(address: SocketAddr, arguments: &[&str]) -> (Value, Option<i32>) {
    bench_for("500ms", address, arguments)
}

fn bench_for(duration: &str, address: SocketAddr, arguments: &[&str]) -> (Value, Option<i32>) {
    let url = format!("ws://{address}/echo");
    let common = ["bench", "ws", &url, "--json", "--duration", duration];
    let output = run(command(program()).args(common).args(arguments));
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    (json, output.status.code())
}

#[test]
fn echoes_in_one_frame_or_several_are_counted() {
    let whole = serve(|_, kind, data| Some(frame(kind, data)));
    let pieces = serve(|_, kind, data| {
        let (first, last) = data.split_at(data.len() / 3);
        let fragment =
            |is_first| Fragment { kind, is_first, is_last: !is_first, is_deflated: false };
        // A Ping may come between the frames of a message.
        let mut out = Vec::new();
        encode_fragment(&mut out, fragment(true), first, None);
        out.extend_from_slice(&[0x89, 0]);
        encode_fragment(&mut out, fragment(false), last, None);
        Some(out)
    });
    for address in [whole, pieces] {
        for arguments in [
            &["-c", "3", "--size", "5"][..],
            &["-c", "2", "-t", "2", "--size", "200000", "--binary", "--outstanding", "4"],
            &["-c", "1", "--size", "1000", "--fragments", "7"],
            &["-c", "2", "--size", "0"],
        ] {
            let (json, code) = bench(address, arguments);
            assert!(json["messages"].as_u64().is_some_and(|count| count > 0), "{json}");
            assert_eq!((json["unanswered"].as_u64(), code), (Some(0), Some(0)), "{json}");
            assert_eq!(json["connection_losses"], serde_json::json!({}), "{json}");
        }
    }
}

#[test]
fn wrong_echoes_are_no_messages() {
    for (act, reason) in [
        (
            // The echo of the message before.
            (|number: usize, kind, data: &[u8]| {
                let mut data = data.to_vec();
                if number > 0 {
                    data[0] = b'0' + (number - 1) as u8;
                }
                Some(frame(kind, &data))
            }) as fn(usize, Kind, &[u8]) -> Option<Vec<u8>>,
            "an echo differs from its message",
        ),
        (
            |number, kind, data| Some(frame(kind, &data[..data.len() - usize::from(number > 0)])),
            "an echo differs from its message",
        ),
        (
            |_, kind, data| Some(frame(kind, &[data, b"x"].concat())),
            "an echo differs from its message",
        ),
        (|_, _, data| Some(frame(Kind::Binary, data)), "an echo differs from its message"),
        (
            |number, kind, data| Some(frame(kind, data).repeat(1 + usize::from(number == 1))),
            "an echo differs from its message",
        ),
        (|_, _, _| None, "the server closed the connection"),
        (
            |_, _, _| Some(vec![0x88, 2, 0x03, 0xe9]),
            "the server closed the connection with code 1001",
        ),
    ] {
        let (json, code) = bench(serve(act), &["-c", "1"]);
        let losses = json["connection_losses"].as_object().unwrap();
        let found = losses.keys().next().map_or("", String::as_str);
        // The repeated echo may come before the next message is sent.
        let is_repeated = found == "the server sent a message although no echo was due";
        assert!(found == reason || is_repeated, "{json}");
        assert_eq!(code, Some(1), "{json}");
        assert!(json["messages"].as_u64().is_some_and(|count| count <= 2), "{json}");
    }
}

#[test]
fn open_loop_keeps_its_rate_and_reports_what_it_could_not_send() {
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    let quick = serve(move |_, kind, data| {
        counter.fetch_add(1, Ordering::Relaxed);
        Some(frame(kind, data))
    });
    let (json, code) = bench_for("4s", quick, &["-c", "4", "--rate", "5/s"]);
    let count = |json: &Value, name: &str| json[name].as_u64().unwrap();
    // On a busy machine the last messages may not be sent any more, or come back after the end; each of the 20 that are due
    // is counted once.
    let [echoed, unsent, lost, unanswered] =
        ["messages", "unsent", "lost_with_connections", "unanswered"]
            .map(|name| count(&json, name));
    assert_eq!(echoed + unsent + lost + unanswered, 20, "{json}");
    let seen = seen.load(Ordering::Relaxed);
    assert!(echoed > 0 && (echoed..=20 - unsent).contains(&seen), "{seen} arrived: {json}");
    assert_eq!(code, Some(i32::from(unsent > 0)), "{json}");
    let silent = serve(|_, _, _| Some(Vec::new()));
    let load = ["-c", "2", "--rate", "5/s", "--timeout", "300ms"];
    let (json, code) = bench_for("4s", silent, &load);
    assert_eq!(json["messages"], 0, "{json}");
    let [unsent, lost, unanswered] =
        ["unsent", "lost_with_connections", "unanswered"].map(|name| count(&json, name));
    // Two were sent, one on each connection.
    assert_eq!((unsent, lost + unanswered), (18, 2), "{json}");
    let caveat = json["caveats"].to_string();
    assert!(caveat.contains("BEHIND THE PLAN: 18 messages"), "{json}");
    assert_eq!(code, Some(1));
}

#[test]
fn refused_connections_are_failures() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (json, code) = bench(address, &["-c", "5"]);
    assert_eq!((json["established"].as_u64(), code), (Some(0), Some(1)), "{json}");
    assert_eq!(json["setup_failures"].as_object().map(|reasons| reasons.len()), Some(1), "{json}");
}

#[test]
fn thread_that_cannot_start_ends_the_run_with_its_reason() {
    let address = serve(|_, kind, data| Some(frame(kind, data)));
    let url = format!("ws://{address}/echo");
    let load = ["bench", "ws", &url, "-c", "2", "--client-cpus", "9999"];
    let output = run(command(program()).args(load));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--client-cpus 9999: "), "{text}");
    assert_eq!(output.status.code(), Some(2), "{text}");
}
