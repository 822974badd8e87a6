//! `tidegate bench push` against a server that loses, repeats and reorders messages, and closes connections.

use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use tidegate_testing::{command, example, run};

/// What the server does with the data of a publication.
type Act = dyn Fn(usize, &mut [TcpStream], &[u8]) + Send + Sync;

/// A server whose clients are subscribers from their first byte on, except those that send a POST.
fn serve(act: impl Fn(usize, &mut [TcpStream], &[u8]) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let act: Arc<Act> = Arc::new(act);
    let subscribers = Arc::new(Mutex::new(Vec::new()));
    let count = Arc::new(Mutex::new(0));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            subscribers.lock().unwrap().push(stream.try_clone().unwrap());
            let (subscribers, act, count) = (subscribers.clone(), act.clone(), count.clone());
            thread::spawn(move || publish(stream, &subscribers, &*act, &count));
        }
    });
    address
}

/// Reads publications from a connection, which is no subscriber then.
fn publish(
    mut stream: TcpStream,
    subscribers: &Mutex<Vec<TcpStream>>,
    act: &Act,
    count: &Mutex<usize>,
) {
    let own = stream.peer_addr().unwrap();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        let text = core::str::from_utf8(&buffer[..length]).unwrap();
        let mut subscribers = subscribers.lock().unwrap();
        subscribers.retain(|other| other.peer_addr().is_ok_and(|address| address != own));
        // The program asks for `info` before the first publication.
        if let Some((_, data)) = text.split_once("\"data\":") {
            let mut count = count.lock().unwrap();
            act(*count, &mut subscribers, data.trim_end_matches('}').as_bytes());
            *count += 1;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"result\":{}}");
    }
}

/// Sends a text frame in two pieces.
fn send(to: &mut TcpStream, data: &[u8]) {
    let frame = [&[0x81, data.len() as u8], data].concat();
    let (first, second) = frame.split_at(frame.len() / 2);
    to.write_all(first).unwrap();
    to.write_all(second).unwrap();
}

/// The example program with the command.
fn program() -> PathBuf {
    example("bench")
}

fn bench(address: SocketAddr, arguments: &[&str]) -> (Value, Option<i32>) {
    let url = format!("ws://{address}/subscribe/a");
    let common = ["bench", "push", &url, "--plain", "--json", "--settle", "0"];
    let output = run(command(program()).args(common).args(arguments));
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    (json, output.status.code())
}

fn counts(json: &Value) -> [u64; 6] {
    ["expected", "received", "lost", "duplicated", "out_of_order", "foreign"]
        .map(|name| json[name].as_u64().unwrap_or_else(|| panic!("{name}: {json}")))
}

#[test]
fn every_message_that_arrives_once_and_in_order_is_counted() {
    let address = serve(|_, subscribers, data| {
        subscribers.iter_mut().for_each(|to| send(to, data));
    });
    let (json, code) = bench(address, &["-c", "7", "-t", "2", "-n", "20", "--pause", "0"]);
    assert_eq!(counts(&json), [140, 140, 0, 0, 0, 0], "{json}");
    assert_eq!((json["established"].as_u64(), code), (Some(7), Some(0)), "{json}");
    assert_eq!(json["published"], 20);
    let last = &json["last_us"];
    let [mean, max] = ["mean", "max"].map(|name| last[name].as_f64().unwrap());
    assert!(mean > 0.0 && mean <= max, "{json}");
}

#[test]
fn lost_repeated_late_and_foreign_messages_are_told_apart() {
    let held = Mutex::new(Vec::new());
    let address = serve(move |number, subscribers, data| {
        let [_, others @ ..] = subscribers else { panic!("no subscribers") };
        match number {
            // One subscriber does not get it.
            0 => others.iter_mut().for_each(|to| send(to, data)),
            // One subscriber gets it twice.
            1 => {
                subscribers.iter_mut().for_each(|to| send(to, data));
                send(&mut subscribers[0], data);
            }
            // Comes after the next one.
            2 => held.lock().unwrap().extend_from_slice(data),
            3 => {
                let late = held.lock().unwrap().clone();
                for to in subscribers {
                    send(to, data);
                    send(to, &late);
                    send(to, b"hello");
                }
            }
            _ => panic!("publication {number}"),
        }
    });
    // At a rate, so that no publication waits for the receipt of the one before.
    let arguments =
        ["-c", "3", "-t", "1", "--rate", "20/s", "--duration", "200ms", "--timeout", "3s"];
    let (json, code) = bench(address, &arguments);
    assert_eq!(counts(&json), [12, 11, 1, 1, 3, 3], "{json}");
    assert_eq!(code, Some(1), "{json}");
}

#[test]
fn closed_connections_are_lost_with_their_reason() {
    let address = serve(|number, subscribers, data| {
        if number == 0 {
            // A Close frame with code 1001, and then a message to the others.
            subscribers[0].write_all(&[0x88, 2, 0x03, 0xe9]).unwrap();
        }
        subscribers[1..].iter_mut().for_each(|to| send(to, data));
    });
    let (json, code) = bench(address, &["-c", "3", "-n", "2", "--timeout", "3s"]);
    assert_eq!(
        json["connection_losses"]["the server closed the connection with code 1001"], 1,
        "{json}"
    );
    assert_eq!(counts(&json), [6, 4, 2, 0, 0, 0], "{json}");
    assert_eq!((json["connections_lost"].as_u64(), code), (Some(1), Some(1)));
}

#[test]
fn refused_connections_and_publications_are_failures() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (json, code) = bench(address, &["-c", "5", "-n", "1"]);
    assert_eq!((json["setup_failed"].as_u64(), code), (Some(5), Some(1)), "{json}");
    assert_eq!(json["published"], 0);
}
