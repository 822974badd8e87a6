//! Clients of push hubs whose tokens name channels, while messages are published in these channels.
//! In: tokens, publications, a worker that answers late. Out: what each test's name says.
//! Invariant: nothing comes before the reply to `connect`, and each channel continues behind the position in it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::push::{Client, KEY, Process};
use crate::push_clients::Stream;

const SETTINGS: &str =
    "token-secret = \"0123456789abcdef\"\n[push.p.namespace.h]\nhistory = 50\njoin-leave = true\n";
/// {"sub":"7","channels":["h:a","h:b","h:c","h:d"]}
const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI3IiwiY2hhbm5lbHMiOlsiaDphIiwiaDpiIiwiaDpjIiwiaDpkIl19.iDHbOAZnTriVYeM1\
    LYZD17uZ-C9n4n_BQtjI4hKbWRg";
/// {"channels":["h:a","no:b"]}
const UNKNOWN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJjaGFubmVscyI6WyJoOmEiLCJubzpiIl19.75n1DdnozvxggYg_ZsMhuha8h5d0QYW9v5DSa0J\
    BKAo";
const CHANNELS: [&str; 4] = ["h:a", "h:b", "h:c", "h:d"];

/// Connects, and then asks for something else in the same message.
fn commands(token: &str) -> String {
    format!(
        "{{\"id\":1,\"connect\":{{\"token\":\"{token}\"}}}}\n{{\"id\":2,\"unsubscribe\":{{\"channel\":\"x\"}}}}"
    )
}

/// A publication in a channel, sent on a connection of its own.
fn publish(channel: &str, number: usize) -> String {
    let body = format!("{{\"channel\":\"{channel}\",\"data\":{number}}}");
    let length = body.len();
    format!(
        "POST /push/api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Checks what a client was sent: the reply to `connect` first, then in each channel the publications after its position, in
/// order. Returns how many publications there are.
fn check(text: &str) -> usize {
    let mut lines = text.lines().map(str::trim).filter(|line| line.starts_with('{'));
    let mut lines = lines.by_ref().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let first = lines.next().expect("a reply");
    let subs = first["connect"]["subs"].as_object().unwrap_or_else(|| panic!("{text}"));
    let names: BTreeSet<&str> = subs.keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(CHANNELS), "{text}");
    let offset = |value: &Value| value["offset"].as_u64().unwrap_or(0);
    let mut positions: BTreeMap<&str, u64> =
        subs.iter().map(|(name, sub)| (name.as_str(), offset(sub))).collect();
    let mut count = 0;
    let mut replies = Vec::new();
    for line in lines {
        if let Some(id) = line["id"].as_u64() {
            replies.push(id);
        }
        let (Some(channel), publication) = (line["push"]["channel"].as_str(), &line["push"]["pub"])
        else {
            continue;
        };
        if publication.is_object() {
            let position = positions.get_mut(channel).expect("a channel of the token");
            *position += 1;
            assert_eq!(offset(publication), *position, "{channel}: {text}");
            count += 1;
        }
    }
    assert_eq!(replies, [2], "{text}");
    count
}

#[test]
fn publications_before_the_reply_to_connect_come_after_it() {
    let mut kept = 0;
    for late in 0..3 {
        for seed in 0..6 {
            let mut process = Process::new(3, 100 + seed, 64, SETTINGS);
            let publishers: Vec<_> = (0..8).map(|_| process.dial()).collect();
            let is_socket = seed % 2 == 0;
            let mut socket = Client::raw(&process, "/push/connection/websocket");
            process.turns(20);
            socket.read();
            let stream = (!is_socket).then(|| {
                let peer = process.dial();
                process.turns(4);
                let commands = commands(TOKEN);
                let request = format!(
                    "POST /push/connection/http_stream HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{commands}",
                    commands.len()
                );
                assert_eq!(peer.send(request.as_bytes()), request.len());
                peer
            });
            if is_socket {
                socket.send(&commands(TOKEN));
            }
            process.turn_without(late);
            process.turn_without(late);
            for (number, peer) in publishers.iter().enumerate() {
                let request = publish(CHANNELS[number % 4], number);
                assert_eq!(peer.send(request.as_bytes()), request.len());
            }
            (0..10).for_each(|_| process.turn_without(late));
            kept += process.sum("push_queued");
            let mut text = String::new();
            for _ in 0..60 {
                process.turn();
                socket.read();
                if let Some(peer) = &stream {
                    text.push_str(&String::from_utf8_lossy(&peer.receive()));
                }
            }
            text.push_str(&socket.received.join("\n"));
            let count = check(&text);
            assert!(count <= publishers.len(), "{text}");
            publishers.iter().chain(&stream).for_each(|peer| peer.reset());
            process.finish(vec![socket]);
        }
    }
    assert!(kept > 0, "no publication came before a reply");
}

#[test]
fn reconnected_client_gets_what_it_missed_in_the_channels_of_its_token() {
    let mut process = Process::new(2, 7, 64, SETTINGS);
    let mut stream = Stream::begin(&mut process, "http_stream", &commands(TOKEN));
    stream.wait_for(&mut process, "{\"id\":2,\"unsubscribe\":{}}");
    process.api("publish", "{\"channel\":\"h:a\",\"data\":1}");
    let text = stream.wait_for(&mut process, "\"data\":1");
    assert!(text.contains("\"channel\":\"h:a\""), "{text}");
    drop(stream);
    process.api("publish", "{\"channel\":\"h:a\",\"data\":2}");
    let again = commands(TOKEN).replace(
        "\"}}",
        "\",\"subs\":{\"h:a\":{\"recover\":true,\"offset\":1},\"h:b\":{\"recover\":true,\"epoch\":\"x\"}}}}",
    );
    let first = again.lines().next().expect("a line").to_owned();
    let mut stream = Stream::begin(&mut process, "http_stream", &first);
    let text = stream.rest(&mut process).to_owned();
    let line = text.lines().find(|line| line.starts_with("{\"id\":1,")).expect("a reply");
    let reply: Value = serde_json::from_str(line.trim()).expect("JSON");
    let subs = &reply["connect"]["subs"];
    assert_eq!(subs["h:a"]["recovered"], true, "{text}");
    assert_eq!(subs["h:a"]["publications"][0]["data"], 2, "{text}");
    assert_eq!(
        (&subs["h:b"]["recovered"], &subs["h:b"]["was_recovering"]),
        (&Value::Null, &true.into())
    );
    drop(stream);
    process.finish(Vec::new());
}

#[test]
fn token_with_a_channel_that_does_not_exist_connects_no_client() {
    let mut process = Process::new(2, 8, 64, SETTINGS);
    let mut stream = Stream::begin(&mut process, "http_stream", &commands(UNKNOWN));
    let text = stream.rest(&mut process);
    assert!(text.contains("{\"id\":1,\"error\":{\"code\":102,"), "{text}");
    assert!(!text.contains("\"id\":2"), "{text}");
    assert!(text.trim_end().ends_with('0'), "the response has ended: {text}");
    drop(stream);
    assert_eq!(process.sum("push_subscriptions_now"), 0);
    process.finish(Vec::new());
}
