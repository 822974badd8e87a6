//! Publications to clients that have negotiated permessage-deflate.
//! In: offers of clients, publications. Out: what each test's name says.
//! Invariant: each client gets each message, whatever the others have negotiated.

use crate::push::{Client, Process};

/// The offer of most clients.
const DEFLATE: &str = "permessage-deflate";

/// The settings of a hub, and of WebSocket connections.
fn settings(compression: &str) -> String {
    settings_with(compression, "")
}

fn settings_with(compression: &str, others: &str) -> String {
    format!(
        "anonymous = true\nsubscribe = \"anyone\"\n[websocket]\ncompression = \"{compression}\"\n{others}\n"
    )
}

/// A JSON string with this many words.
fn data(words: usize) -> String {
    let words: Vec<String> = (0..words).map(|number| format!("word {number}")).collect();
    format!("\"{}\"", words.join(" "))
}

fn publish(process: &mut Process, data: &str) {
    process.api("publish", &format!("{{\"channel\":\"time\",\"data\":{data}}}"));
    process.turns(100);
}

/// Reads what has come. Returns how many bytes of frames each client has got since the last call.
fn read(clients: &mut [Client]) -> Vec<usize> {
    let bytes = |client: &mut Client| {
        let before = client.frame_bytes;
        client.read();
        client.frame_bytes - before
    };
    clients.iter_mut().map(bytes).collect()
}

#[test]
fn publication_is_compressed_once_for_all_subscribers_of_the_process() {
    for workers in [1, 3] {
        let mut process = Process::new(workers, 3, 64, &settings("shared"));
        let offers = [
            (DEFLATE, 15),
            ("permessage-deflate; server_max_window_bits=10", 10),
            ("x-unknown", 15),
        ];
        let mut clients: Vec<Client> = (0..30)
            .map(|number| Client::compressed(&process, "/time", offers[number % 3]))
            .collect();
        process.turns(100);
        read(&mut clients);
        for (words, windows) in [(100, 1), (5, 0), (400, 2)] {
            let (data, before) = (data(words), process.sum("push_compressions"));
            publish(&mut process, &data);
            let bytes = read(&mut clients);
            for (at, client) in clients.iter().enumerate() {
                assert_eq!(client.received.last(), Some(&data), "client {at}");
                let is_short = bytes[at] < data.len();
                assert_eq!(is_short, windows > 0 && at % 3 < 2, "client {at}: {}", bytes[at]);
            }
            let compressions = process.sum("push_compressions") - before;
            assert_eq!(compressions, windows, "{words} words, {workers} workers");
        }
        process.finish(clients);
    }
}

#[test]
fn each_encoding_is_compressed_once() {
    let mut process = Process::new(2, 5, 64, &settings("shared"));
    let mut clients: Vec<Client> = (0..20)
        .map(|number| {
            let path = if number % 2 == 0 { "/time" } else { "/push/connection/websocket" };
            Client::compressed(&process, path, (DEFLATE, 15))
        })
        .collect();
    process.turns(50);
    read(&mut clients);
    for client in clients.iter_mut().skip(1).step_by(2) {
        client.send("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"time\"}}");
    }
    process.turns(100);
    read(&mut clients);
    let data = data(100);
    publish(&mut process, &data);
    let bytes = read(&mut clients);
    for (at, client) in clients.iter().enumerate() {
        assert!(client.received.last().is_some_and(|last| last.contains(&data)), "client {at}");
        assert!(bytes[at] < data.len() / 2, "client {at}: {} bytes", bytes[at]);
    }
    assert_eq!(process.sum("push_compressions"), 2);
    process.finish(clients);
}

#[test]
fn connection_with_a_context_compresses_its_own_messages() {
    let mut process = Process::new(2, 7, 64, &settings("dedicated"));
    let mut clients: Vec<Client> =
        (0..6).map(|_| Client::compressed(&process, "/time", (DEFLATE, 15))).collect();
    process.turns(50);
    read(&mut clients);
    let data = data(100);
    publish(&mut process, &data);
    let first = read(&mut clients);
    publish(&mut process, &data);
    let second = read(&mut clients);
    for (at, client) in clients.iter().enumerate() {
        assert_eq!(client.received, [data.as_str(), &data]);
        assert!(first[at] < data.len() && second[at] < first[at] / 4, "client {at}");
    }
    assert_eq!(process.sum("push_compressions"), 0);
    process.finish(clients);
}

#[test]
fn window_bits_limit_both_directions() {
    for compression in ["shared", "dedicated"] {
        let settings = settings_with(compression, "window-bits = 9");
        let mut process = Process::new(1, 9, 64, &settings);
        let offers = [
            ("permessage-deflate; client_max_window_bits", 9, " client_max_window_bits=9"),
            ("permessage-deflate; client_max_window_bits=12", 9, " client_max_window_bits=9"),
            (DEFLATE, 9, " server_max_window_bits=9"),
        ];
        let mut clients: Vec<Client> = offers
            .iter()
            .map(|(offer, bits, _)| Client::compressed(&process, "/time", (offer, *bits)))
            .collect();
        process.turns(50);
        read(&mut clients);
        for (client, (_, _, expected)) in clients.iter().zip(offers) {
            let mut parts = client.head.split(';').flat_map(str::lines);
            assert!(parts.any(|part| part == expected), "{expected} in {}", client.head);
            assert!(client.head.contains("; server_max_window_bits=9"), "{}", client.head);
        }
        for words in [20, 1000] {
            publish(&mut process, &data(words));
            let bytes = read(&mut clients);
            for (at, client) in clients.iter().enumerate() {
                assert_eq!(client.received.last(), Some(&data(words)), "client {at}");
                assert!(bytes[at] < data(words).len(), "client {at}: {}", bytes[at]);
            }
        }
        process.finish(clients);
    }
}
