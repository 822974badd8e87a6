//! Channels with `cache`: what each kind of subscriber gets at once.
//! In: subscribers that come while messages are published. Out: what each test's name says.
//! Invariant: a subscriber gets the newest message, and then each message after it, once and in order.

use crate::push::{Client, Process};

const SETTINGS: &str = "[push.p.namespace.c]\nsubscribe = \"anyone\"\nhistory = 10\ncache = true\n";
const PATH: &str = "/push/subscribe/c:a";

fn subscribers(process: &Process) -> Vec<Client> {
    vec![
        Client::raw(process, PATH),
        Client::events(process, PATH, None),
        Client::events(process, PATH, Some("aaaaaaaa:1")),
    ]
}

fn publish(process: &mut Process, number: u32) {
    process.api("publish", &format!("{{\"channel\":\"c:a\",\"data\":{number}}}"));
    process.turns(20);
}

#[test]
fn new_subscriber_gets_the_newest_message_and_then_the_next() {
    for workers in [1, 2, 5] {
        let mut process = Process::new(workers, 13, 64, SETTINGS);
        let mut clients = Vec::new();
        for number in 1..=6 {
            publish(&mut process, number);
            clients.push((number, subscribers(&process)));
            process.turns(30);
        }
        let poll = process.exchange(&format!("GET {PATH} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(poll.contains("{\"publications\":[{\"data\":6,\"offset\":6}]"), "{poll}");
        for (first, group) in &mut clients {
            for (at, client) in group.iter_mut().enumerate() {
                client.read();
                let expected: Vec<String> = (*first..=6).map(|number| number.to_string()).collect();
                assert_eq!(client.received, expected, "subscriber {at} after {first}");
            }
        }
        process.finish(clients.into_iter().flat_map(|(_, group)| group).collect());
    }
}

#[test]
fn newest_message_is_compressed_once_for_all_new_subscribers() {
    for workers in [1, 3] {
        let settings = format!("{SETTINGS}[websocket]\ncompression = \"shared\"\n");
        let mut process = Process::new(workers, 15, 64, &settings);
        let mut clients = Vec::new();
        for (round, word) in ["first ", "second "].into_iter().enumerate() {
            let data = format!("\"{}\"", word.repeat(100));
            process.api("publish", &format!("{{\"channel\":\"c:a\",\"data\":{data}}}"));
            process.turns(100);
            let before = process.sum("push_compressions");
            for number in 0..12 {
                let mut client = match number % 3 {
                    0 => Client::events(&process, PATH, None),
                    _ => Client::compressed(&process, PATH, ("permessage-deflate", 15)),
                };
                process.turns(30);
                client.read();
                assert_eq!(client.received, [data.as_str()], "client {number} of round {round}");
                clients.push(client);
            }
            assert_eq!(process.sum("push_compressions") - before, 1, "{workers} workers");
        }
        process.finish(clients);
    }
}
