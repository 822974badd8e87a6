//! A crowd of clients of a push hub in channels with a history: most read at once, some slowly; they are reset, stay away, and come
//! back with their position.
//! In: seeds of their own, the policies for slow clients. Out: what each test's name says.
//! Limits: the steps and rounds of a run.
//! Invariant: each client gets each message in order, or is told that messages are lost; in the end every client has the
//! last message, or was told after its last one that messages are lost.

use serde_json::Value;
use tidegate_base::Prng;

use crate::push::{Client, Process};

/// How many messages are published in each channel.
const STEPS: u64 = 200;
/// How many messages a history keeps.
const HISTORY: u64 = 60;
/// The number of clients that read slowly.
const SLOW: usize = 120;
/// The window of a client that reads slowly, and how much it reads at once.
const WINDOW_BYTES: usize = 4096;
const SLOW_READ_BYTES: usize = 1500;
/// How many rounds the last messages may take to reach all clients.
const ROUNDS_MAX: usize = 600;

/// What a run has seen.
#[derive(Default, Debug)]
struct Seen {
    messages: u64,
    /// Messages that came with the reply to a subscription.
    recovered: u64,
    losses: u64,
    /// Subscriptions that the hub has ended because messages were dropped.
    ended: u64,
    /// Commands that the hub has refused for the moment.
    refused: u64,
    returns: u64,
}

/// A client, which may be away.
struct Subscriber {
    channel: &'static str,
    /// It speaks the client protocol over WebSocket; otherwise it reads a stream of events.
    speaks: bool,
    is_slow: bool,
    client: Option<Client>,
    /// The step in which it comes back.
    back_at: u64,
    /// How much of `Client::received` and `Client::losses` was looked at.
    taken: usize,
    losses_taken: usize,
    /// The epoch and the offset of the last message that it has, or was told.
    position: Option<(String, u64)>,
    /// It was told that messages are lost, and has received none since.
    is_told: bool,
    /// The subscription exists, or its reply is due.
    is_subscribed: bool,
    /// The id of its last command.
    last_command: u64,
}

impl Subscriber {
    fn new(number: usize) -> Self {
        let is_slow = number < SLOW;
        Self {
            channel: if is_slow { "h:slow" } else { "h:news" },
            speaks: number.is_multiple_of(2),
            is_slow,
            client: None,
            back_at: 0,
            taken: 0,
            losses_taken: 0,
            position: None,
            is_told: false,
            is_subscribed: false,
            last_command: 0,
        }
    }

    fn connect(&mut self, process: &Process, seen: &mut Seen) {
        seen.returns += u64::from(self.position.is_some());
        let client = if self.speaks {
            Client::raw(process, "/push/connection/websocket")
        } else {
            let id = self.position.as_ref().map(|(epoch, offset)| format!("{epoch}:{offset}"));
            Client::events(process, &format!("/push/subscribe/{}", self.channel), id.as_deref())
        };
        if self.is_slow {
            client.peer.set_window_bytes(WINDOW_BYTES);
        }
        self.client = Some(client);
        (self.taken, self.losses_taken) = (0, 0);
        (self.is_subscribed, self.last_command) = (false, 0);
    }

    fn leave(&mut self, back_at: u64) {
        self.client = None;
        self.back_at = back_at;
    }

    fn read(&mut self, bytes_max: usize, seen: &mut Seen) {
        let Some(mut client) = self.client.take() else { return };
        client.read_some(bytes_max);
        if !client.is_open {
            self.client = Some(client);
            return;
        }
        if self.speaks {
            self.talk(&mut client, seen);
        } else {
            self.read_events(&client, seen);
        }
        // A client that was disconnected comes back in the next step.
        let is_over = client.closed.is_some()
            || client.peer.was_reset()
            || client.peer.is_finished_by_other();
        self.client = (!is_over).then_some(client);
    }

    fn take(&mut self, number: u64, seen: &mut Seen) {
        let (_, offset) = self.position.as_mut().expect("a position comes before messages");
        let is_next = number == *offset + 1;
        assert!(is_next || self.is_told && number > *offset, "{number} after {offset}");
        *offset = number;
        self.is_told = false;
        seen.messages += 1;
    }

    fn read_events(&mut self, client: &Client, seen: &mut Seen) {
        let known = |id: &String| {
            let (epoch, offset) = id.split_once(':').expect("an id");
            (epoch.to_owned(), offset.parse::<u64>().expect("an offset"))
        };
        let last = client.last_id.as_ref().map(known);
        if self.position.is_none() {
            // The position of the subscription is before the messages that have come with it.
            let read = client.received.len() as u64;
            self.position = last.clone().map(|(epoch, offset)| (epoch, offset - read));
        }
        loop {
            if client.losses.get(self.losses_taken) == Some(&self.taken) {
                self.losses_taken += 1;
                self.is_told = true;
                seen.losses += 1;
            }
            let Some(text) = client.received.get(self.taken) else { break };
            self.taken += 1;
            self.take(number_in(text), seen);
        }
        // A position without a message.
        if let (Some((_, offset)), Some((_, told))) = (&mut self.position, last) {
            assert!(told == *offset || self.is_told, "{told} after {offset}");
            self.is_told &= told == *offset;
            *offset = told;
        }
    }

    fn command(&mut self, client: &mut Client, body: &str) {
        self.last_command += 1;
        client.send(&format!("{{\"id\":{},{body}}}", self.last_command));
    }

    fn subscribe(&mut self, client: &mut Client) {
        let recovers = self.position.as_ref().map(|(epoch, offset)| {
            format!(",\"recover\":true,\"epoch\":\"{epoch}\",\"offset\":{offset}")
        });
        let channel = self.channel;
        let rest = recovers.unwrap_or_default();
        self.is_subscribed = true;
        self.command(client, &format!("\"subscribe\":{{\"channel\":\"{channel}\"{rest}}}"));
    }

    fn talk(&mut self, client: &mut Client, seen: &mut Seen) {
        if self.last_command == 0 {
            self.command(client, "\"connect\":{}");
        }
        let received = client.received.split_off(0);
        for line in received.iter().flat_map(|text| text.lines()) {
            let line: Value = serde_json::from_str(line).expect("JSON");
            if line.get("connect").is_some() {
                self.subscribe(client);
            } else if let Some(error) = line.get("error") {
                assert_eq!(error["code"], 111, "{line}");
                seen.refused += 1;
                self.is_subscribed = false;
            } else if let Some(reply) = line.get("subscribe") {
                self.take_reply(reply, seen);
            } else if line["push"]["pub"].is_object() {
                let publication = &line["push"]["pub"];
                assert!(self.is_subscribed, "{line}");
                self.take(publication["offset"].as_u64().expect("an offset"), seen);
            } else if line["push"]["unsubscribe"].is_object() {
                assert_eq!(line["push"]["unsubscribe"]["code"], 2500, "{line}");
                seen.ended += 1;
                self.subscribe(client);
            } else {
                assert_eq!(line, serde_json::json!({}), "a ping");
                client.send("{}");
            }
        }
        if self.last_command > 1 && !self.is_subscribed {
            self.subscribe(client);
        }
    }

    fn take_reply(&mut self, reply: &Value, seen: &mut Seen) {
        let offset = reply["offset"].as_u64().unwrap_or(0);
        let epoch = reply["epoch"].as_str().expect("an epoch").to_owned();
        if self.position.is_some() && reply["recovered"] == true {
            for publication in reply["publications"].as_array().into_iter().flatten() {
                self.take(publication["offset"].as_u64().expect("an offset"), seen);
                seen.recovered += 1;
            }
            return;
        }
        // Messages are lost, and the next one follows this position.
        seen.losses += u64::from(self.position.is_some());
        self.position = Some((epoch, offset));
    }

    /// Whether it has the last message, or was told that messages are lost.
    fn is_settled(&self) -> bool {
        let is_last = self.position.as_ref().is_some_and(|(_, offset)| *offset == STEPS);
        self.client.is_some() && (is_last || self.is_told)
    }
}

/// The number in the data of a message.
fn number_in(data: &str) -> u64 {
    let number = data.trim_matches('"').split(' ').next().expect("a number");
    number.parse().expect("a number")
}

/// Lets a crowd of `count` clients receive `STEPS` messages. Slow clients are treated as `policy` states.
fn run(seed: u64, policy: &str, count: usize) -> (Seen, Process, Vec<Subscriber>) {
    let settings = format!(
        "anonymous = true\nsubscribe = \"anyone\"\nslow = \"{policy}\"\nqueue-messages-max = 8\n\
         [push.p.namespace.h]\nsubscribe = \"anyone\"\nhistory = {HISTORY}\n"
    );
    let mut process = Process::with_places(count, 4, seed, (64, &settings));
    let mut prng = Prng::new(seed);
    let mut seen = Seen::default();
    let mut crowd: Vec<Subscriber> = (0..count).map(Subscriber::new).collect();
    for some in crowd.chunks_mut(50) {
        some.iter_mut().for_each(|one| one.connect(&process, &mut seen));
        process.turns(4);
        some.iter_mut().for_each(|one| one.read(usize::MAX, &mut seen));
    }
    for step in 1..=STEPS {
        for (channel, bytes) in [("h:news", 10), ("h:slow", 600)] {
            let data = format!("{step} {}", "x".repeat(bytes));
            let body = format!("{{\"channel\":\"{channel}\",\"data\":\"{data}\"}}");
            let reply = process.api("publish", &body);
            assert!(reply.contains(&format!("\"offset\":{step},")), "{reply}");
        }
        for one in &mut crowd {
            match (&one.client, one.is_slow) {
                (None, _) if step >= one.back_at => one.connect(&process, &mut seen),
                (None, _) => {}
                (Some(_), true) if prng.below(4) == 0 => one.read(SLOW_READ_BYTES, &mut seen),
                (Some(_), false) if prng.below(3) == 0 => one.read(usize::MAX, &mut seen),
                (Some(_), _) => {}
            }
            if one.client.is_some() && prng.below(200) == 0 {
                one.leave(step + prng.below(2 * HISTORY));
            }
        }
    }
    for round in 0.. {
        process.turns(4);
        for one in &mut crowd {
            match (&one.client, one.is_slow) {
                (None, _) => one.connect(&process, &mut seen),
                (Some(_), true) => one.read(SLOW_READ_BYTES, &mut seen),
                (Some(_), false) => one.read(usize::MAX, &mut seen),
            }
        }
        if crowd.iter().all(Subscriber::is_settled) {
            break;
        }
        let left: Vec<_> = crowd.iter().filter(|one| !one.is_settled()).collect();
        let first = left.first().map(|one| (one.speaks, one.is_slow, &one.position));
        assert!(
            round < ROUNDS_MAX,
            "{policy}: {} have not the last message: {first:?}",
            left.len()
        );
    }
    (seen, process, crowd)
}

fn finish(process: Process, crowd: Vec<Subscriber>) {
    process.finish(crowd.into_iter().filter_map(|one| one.client).collect());
}

#[test]
fn each_client_of_a_crowd_gets_the_last_message_or_is_told_of_a_loss() {
    let (seen, process, crowd) = run(1, "disconnect", 2000);
    assert!(seen.messages > 1000 * STEPS && seen.recovered > 0 && seen.losses > 0, "{seen:?}");
    assert!(seen.returns > 500 && seen.ended == 0, "{seen:?}");
    assert!(process.sum("push_slow_closes") > SLOW as u64);
    finish(process, crowd);
}

#[test]
fn clients_whose_messages_are_dropped_recover_them_or_are_told_of_a_loss() {
    for policy in ["drop-oldest", "drop-newest", "conflate"] {
        let (seen, process, crowd) = run(2, policy, 2 * SLOW);
        assert!(seen.recovered > 0 && seen.losses > 0 && seen.ended > 0, "{policy}: {seen:?}");
        assert!(
            process.sum("push_dropped") > 0 && process.sum("push_slow_closes") == 0,
            "{policy}"
        );
        finish(process, crowd);
    }
}
