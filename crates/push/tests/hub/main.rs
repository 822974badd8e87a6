//! Several workers with random delays of their mail: order, completeness, recovery, and no residue.
//! In: seeds. Out: each failing seed.
//! Invariant: a subscriber gets the publications of its channel in order and without a gap from its subscription until
//! it leaves; one that states where it was gets exactly what it missed, or is told that messages are lost.

mod visits;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tidegate_base::{Moment, Prng, Span};
use tidegate_config::model::Config;
use tidegate_push::api::{ApiCall, Node, matches_pattern};
use tidegate_push::client_name::ClientName;
use tidegate_push::fan_out::{Delivery, Handed};
use tidegate_push::hub::{CLIENT_WALKS_MAX, EMPTIED_MAX, Event, Hub, OUTBOX_MAX};
use tidegate_push::local::SubscriptionId;
use tidegate_push::mail::{Call, Mail, Order, PresentClient, Reply, ReplyTo, Subscribed};
use tidegate_push::node::NodeId;
use tidegate_push::position::{Position, Since};
use tidegate_push::publication::{Content, DELIVERY_COST_BYTES, Publication};
use tidegate_push::settings::{Error, Hubs};

const CHANNELS: [&str; 4] = ["plain", "h:a", "h:b", "h:c"];

fn settings(text: &str) -> Hubs {
    let file = format!("[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\n{text}");
    let config: Config = match tidegate_config::parse(&file, "the test") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    };
    Hubs::new(&config)
}

fn order(channel: &str, data: &str) -> Order {
    Order {
        hub: 0,
        origin: NodeId::OWN,
        channel: channel.into(),
        data: data.into(),
        tags: "".into(),
        info: "".into(),
        sender: "".into(),
        skip_history: false,
        idempotency_key: "".into(),
        waits: false,
        delta: false,
        event: "".into(),
    }
}

/// A subscriber, and what it has received.
struct Subscriber {
    worker: usize,
    channel: &'static str,
    place: Option<SubscriptionId>,
    is_confirmed: bool,
    /// The numbers of the messages.
    received: Vec<u64>,
    /// The clients of which it has learned, and whether they are there.
    visitors: BTreeMap<Arc<str>, bool>,
    position: Option<Position>,
}

/// Workers, the mail between them, and their subscribers.
struct Process {
    settings: Hubs,
    hubs: Vec<Hub<u32>>,
    /// By sender and receiver.
    mail: Vec<Vec<VecDeque<Mail<u32>>>>,
    subscribers: BTreeMap<u32, Subscriber>,
    next_key: u32,
    now: Moment,
    prng: Prng,
    /// By channel: every message in the order of its owner.
    published: BTreeMap<&'static str, u64>,
    replies: Vec<(u32, u32, Reply)>,
}

impl Process {
    fn new(workers: usize, seed: u64, text: &str) -> Self {
        let settings = settings(text);
        let hub = |own| Hub::new(&settings, own as u16, workers as u16);
        let hubs = (0..workers).map(hub).collect();
        let boxes = |_| (0..workers).map(|_| VecDeque::new()).collect();
        Self {
            hubs,
            settings,
            mail: (0..workers).map(boxes).collect(),
            subscribers: BTreeMap::new(),
            next_key: 0,
            now: Moment::ZERO,
            prng: Prng::new(seed),
            published: BTreeMap::new(),
            replies: Vec::new(),
        }
    }

    fn subscribe(&mut self, worker: usize, channel: &'static str, since: Option<Position>) -> u32 {
        self.next_key += 1;
        let key = self.next_key;
        let at = (self.now, self.prng.next_u64());
        let stated = since.map(|at| Since { epoch: Some(at.epoch), offset: at.offset });
        let begun = self.hubs[worker]
            .subscribe(&self.settings, (0, channel), key, (stated, None), at)
            .expect("it");
        let subscriber = Subscriber {
            worker,
            channel,
            place: Some(begun.place),
            is_confirmed: false,
            received: Vec::new(),
            visitors: BTreeMap::new(),
            position: since,
        };
        self.subscribers.insert(key, subscriber);
        if let Some(reply) = begun.reply {
            self.confirm(key, &reply);
        }
        key
    }

    fn confirm(&mut self, key: u32, reply: &Subscribed) {
        let Some(subscriber) = self.subscribers.get_mut(&key) else { return };
        subscriber.is_confirmed = true;
        let begin = subscriber.position;
        if let Some(recovered) = &reply.recovered
            && recovered.is_whole
        {
            let top = reply.position.expect("a history");
            let offsets: Vec<u64> = recovered.publications.iter().map(|p| p.offset()).collect();
            let begin = begin.expect("it was stated").offset;
            assert_eq!(offsets, (begin + 1..=top.offset).collect::<Vec<_>>(), "missed messages");
        }
        subscriber.position = reply.position;
    }

    fn unsubscribe(&mut self, key: u32) -> Subscriber {
        let subscriber = self.subscribers.remove(&key).expect("it exists");
        if let Some(place) = subscriber.place {
            self.hubs[subscriber.worker].unsubscribe(&self.settings, place, key, None);
        }
        subscriber
    }

    fn publish(&mut self, worker: usize, channel: &'static str) -> Option<Reply> {
        let number = self.published.entry(channel).or_default();
        *number += 1;
        let call = Call::Publish(order(channel, &number.to_string()));
        let at = (self.now, self.prng.next_u64());
        let to = ReplyTo::Caller { key: 0, number: 0 };
        self.hubs[worker].call(&self.settings, to, call, at)
    }

    /// Carries all mail, and delivers nothing.
    fn carry(&mut self) {
        for (from, to) in [(0, 1), (1, 0), (0, 1)] {
            while let Some(mail) = self.hubs[from].take_mail(to as u16) {
                let instance = (self.now, self.prng.next_u64());
                self.hubs[to].receive(&self.settings, mail, instance);
            }
        }
    }

    /// Something happens: mail is sent or received, or a delivery goes on. Returns whether anything was left to do.
    fn step(&mut self) -> bool {
        let workers = self.hubs.len();
        let first = self.prng.below(workers as u64) as usize;
        for offset in 0..workers {
            let at = (first + offset) % workers;
            for to in 0..workers {
                while let Some(mail) = self.hubs[at].take_mail(to as u16) {
                    assert_ne!(at, to, "mail to itself");
                    self.mail[at][to].push_back(mail);
                }
            }
            let from = self.prng.below(workers as u64) as usize;
            if self.hubs[at].can_receive()
                && let Some(mail) = self.mail[from][at].pop_front()
            {
                let instance = (self.now, self.prng.next_u64());
                match self.hubs[at].receive(&self.settings, mail, instance) {
                    Some(Event::Subscribed(key, _, reply)) => self.confirm(key, &reply),
                    Some(Event::Refused(key, _, error)) => panic!("{key} {error:?}"),
                    Some(Event::Replied(key, number, reply)) => {
                        self.replies.push((key, number, reply));
                    }
                    Some(Event::Commands(key, ..)) => panic!("{key} gets no commands"),
                    None => {}
                }
            }
            if self.prng.below(2) == 0 {
                self.deliver(at);
            }
            while let Some(event) = self.hubs[at].take_event() {
                let Event::Replied(key, number, reply) = event else { panic!("{event:?}") };
                self.replies.push((key, number, reply));
            }
        }
        self.hubs.iter().any(|hub| hub.is_delivering() || hub.has_mail())
            || self.mail.iter().flatten().any(|mail| !mail.is_empty())
    }

    fn deliver(&mut self, worker: usize) {
        let (most, mut keys) = (1 + self.prng.below(3) as usize, Vec::new());
        let budget_bytes = most * (DELIVERY_COST_BYTES + 10);
        let Some(slice) =
            self.hubs[worker].deliver(budget_bytes, Publication::delivery_cost_bytes, &mut keys)
        else {
            return;
        };
        assert!(keys.len() <= most);
        let publication = Arc::clone(&slice.publication);
        let mut delivery = Delivery::default();
        for key in keys {
            let Some(subscriber) = self.subscribers.get_mut(&key) else { continue };
            assert!(subscriber.is_confirmed, "a message before the confirmation");
            assert_eq!(*subscriber.channel, *publication.channel);
            if let Some(position) = publication.position {
                let before = subscriber.position.expect("a history");
                assert_eq!((before.epoch, before.offset + 1), (position.epoch, position.offset));
                subscriber.position = Some(position);
            }
            if let Some(client) = &publication.subject {
                let is_there = publication.content == Content::Join;
                subscriber.visitors.insert(Arc::clone(client), is_there);
            } else {
                subscriber.received.push(publication.data.parse().unwrap_or_default());
            }
            delivery.note(Handed::Sent);
        }
        self.hubs[worker].end_slice(slice, delivery);
    }

    fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the process does not come to rest");
    }
}

#[test]
fn subscribers_get_everything_in_order_or_are_told_what_is_lost() {
    for seed in 0..200 {
        let mut process =
            Process::new(1 + seed as usize % 5, seed, "[push.p.namespace.h]\nhistory = 20\n");
        let mut left: Vec<(&'static str, Position)> = Vec::new();
        for _ in 0..300 {
            let worker = process.prng.below(process.hubs.len() as u64) as usize;
            let channel = CHANNELS[process.prng.below(4) as usize];
            match process.prng.below(10) {
                0 | 1 => {
                    process.subscribe(worker, channel, None);
                }
                2 => {
                    let count = process.subscribers.len() as u64;
                    let at = process.prng.below(count.max(1)) as usize;
                    if let Some((&key, _)) = process.subscribers.iter().nth(at) {
                        let gone = process.unsubscribe(key);
                        left.extend(gone.position.map(|position| (gone.channel, position)));
                    }
                }
                3 => {
                    if let Some((channel, position)) = left.pop() {
                        process.subscribe(worker, channel, Some(position));
                    }
                }
                4..=6 => {
                    process.publish(worker, channel);
                }
                _ => {
                    process.step();
                }
            }
        }
        process.settle();
        for subscriber in process.subscribers.values() {
            assert!(subscriber.is_confirmed, "seed {seed}");
            // One publisher on one worker would make all of them consecutive; here each owner decides.
            if subscriber.channel == "plain" && process.hubs.len() == 1 {
                let is_sorted = subscriber.received.windows(2).all(|two| two[0] + 1 == two[1]);
                assert!(is_sorted, "seed {seed}: {:?}", subscriber.received);
            }
        }
        // Two subscribers of a channel agree on the order.
        for channel in CHANNELS {
            let of_channel = process.subscribers.values().filter(|s| s.channel == channel);
            let longest = of_channel.clone().max_by_key(|s| s.received.len());
            for subscriber in of_channel {
                let all = &longest.expect("at least this one").received;
                let tail = &all[all.len() - subscriber.received.len()..];
                assert_eq!(subscriber.received, tail, "seed {seed}: {channel}");
            }
        }
        let keys: Vec<u32> = process.subscribers.keys().copied().collect();
        keys.into_iter().for_each(|key| drop(process.unsubscribe(key)));
        process.settle();
        let left: usize = process.hubs.iter().map(Hub::subscriptions).sum();
        assert_eq!(left, 0, "seed {seed}");
        // Histories without subscribers end after their age.
        process.now = process.now.after(Span::from_secs(3600));
        process.hubs.iter_mut().for_each(|hub| hub.sweep(&process.settings, process.now));
        let owned: usize = process.hubs.iter().map(Hub::channels_owned).sum();
        assert_eq!(owned, 0, "seed {seed}");
    }
}

/// Publishes messages that wait for their delivery while subscribers come and go. Returns by number of the message: the
/// reports that the owner has announced, and those that have come.
fn publish_and_wait(process: &mut Process) -> Vec<(u16, Vec<Delivery>)> {
    let mut announced: Vec<(u16, Vec<Delivery>)> = Vec::new();
    for _ in 0..200 {
        let worker = process.prng.below(process.hubs.len() as u64) as usize;
        match process.prng.below(8) {
            0 | 1 => drop(process.subscribe(worker, "plain", None)),
            2 => {
                let at = process.prng.below(process.subscribers.len().max(1) as u64) as usize;
                if let Some(&key) = process.subscribers.keys().nth(at) {
                    process.unsubscribe(key);
                }
            }
            3 | 4 => {
                let number = announced.len() as u32;
                let order = Order { waits: true, ..order("plain", &number.to_string()) };
                let at = (process.now, process.prng.next_u64());
                let to = ReplyTo::Caller { key: 9, number };
                let hub = &mut process.hubs[worker];
                let reply = hub.call(&process.settings, to, Call::Publish(order), at);
                announced.push((0, Vec::new()));
                process.replies.extend(reply.map(|reply| (9, number, reply)));
            }
            _ => drop(process.step()),
        }
    }
    process.settle();
    for (_, number, reply) in core::mem::take(&mut process.replies) {
        let entry = &mut announced[number as usize];
        match reply {
            Reply::Published { reports, .. } => entry.0 = reports,
            Reply::Delivered(delivery) => entry.1.push(delivery),
            other => panic!("{other:?}"),
        }
    }
    announced
}

#[test]
fn each_worker_reports_a_delivery_once_although_subscribers_leave() {
    let (mut reached, mut without) = (0, 0);
    for seed in 0..200 {
        let mut process = Process::new(1 + seed as usize % 4, seed, "");
        for (number, (announced, reports)) in publish_and_wait(&mut process).iter().enumerate() {
            assert_eq!(usize::from(*announced), reports.len(), "seed {seed}, message {number}");
            let sum: u64 = reports.iter().map(|report| report.reached).sum();
            let received = process.subscribers.values();
            let stayed = received.filter(|one| one.received.contains(&(number as u64))).count();
            assert!(sum >= stayed as u64, "seed {seed}, message {number}");
            reached += sum;
            without += u64::from(*announced > 0 && sum == 0);
        }
    }
    assert!(reached > 1000 && without > 10, "{reached} {without}");
}

#[test]
fn conflated_channel_delivers_the_newest_message_of_each_interval() {
    for seed in 0..100 {
        let mut process = Process::new(1 + seed as usize % 3, seed, "conflate = \"100ms\"\n");
        let last = process.hubs.len() - 1;
        let keys = [process.subscribe(0, "plain", None), process.subscribe(last, "plain", None)];
        process.settle();
        let mut count = 0;
        for _ in 0..200 {
            let worker = process.prng.below(process.hubs.len() as u64) as usize;
            process.publish(worker, "plain");
            process.settle();
            process.now = process.now.after(Span::from_millis(process.prng.below(40)));
            for hub in &mut process.hubs {
                count += hub.publish_due(process.now);
            }
            process.settle();
        }
        let end = process.now.after(Span::from_millis(100));
        let replaced: u64 = process.hubs.iter_mut().map(|hub| hub.publish_due(end)).sum();
        assert_eq!(replaced, 0, "seed {seed}: the last messages");
        process.settle();
        for key in keys {
            let received = &process.subscribers[&key].received;
            assert!(received.is_sorted() && received.last() == Some(&200), "seed {seed}");
            assert_eq!(received.len() as u64 + count, 200, "seed {seed}");
            // About 4 seconds, with at most one message in each 100 ms, in addition to the first and the last one.
            let most = end.since(Moment::ZERO).as_millis() / 100 + 1;
            assert!((10..=most).contains(&(received.len() as u128)), "seed {seed}");
        }
        for key in keys {
            process.unsubscribe(key);
        }
        process.settle();
        assert!(process.hubs.iter_mut().all(|hub| hub.next_due() == Moment::NEVER), "seed {seed}");
    }
}

#[test]
fn publishers_are_refused_while_a_worker_does_not_keep_up() {
    let mut process = Process::new(2, 1, "");
    let (one, other) = owner_first(&process);
    process.subscribe(one, "plain", None);
    process.subscribe(other, "plain", None);
    process.settle();
    let is_refused =
        |reply: &Option<Reply>| matches!(reply, Some(Reply::Failed(Error::TooManyRequests)));
    let mut accepted = 0;
    while !is_refused(&process.publish(one, "plain")) {
        accepted += 1;
        assert!(accepted < 100_000, "no limit");
    }
    process.settle();
    assert!(!is_refused(&process.publish(one, "plain")), "the worker has caught up");
    process.settle();
    for subscriber in process.subscribers.values() {
        assert_eq!(subscriber.received.len(), accepted + 1);
    }
}

#[test]
fn history_of_the_process_is_bounded_by_memory() {
    let text = "history = 100000\nhistory-memory-max = \"1MiB\"\n";
    let mut process = Process::new(1, 1, text);
    let data = format!("\"{}\"", "x".repeat(1000));
    for number in 0..5000 {
        let channel = format!("c{}", number % 7);
        let call = Call::Publish(order(&channel, &data));
        let to = ReplyTo::Caller { key: 0, number: 0 };
        let reply = process.hubs[0].call(&process.settings, to, call, (Moment::ZERO, number));
        assert!(
            matches!(reply, Some(Reply::Published { position: Some(_), reports: 0 })),
            "{reply:?}"
        );
    }
    let mut kept = 0;
    for number in 0..7 {
        let channel: Arc<str> = format!("c{number}").into();
        let call = Call::History { hub: 0, channel, excerpt: Default::default() };
        let to = ReplyTo::Caller { key: 0, number: 0 };
        let reply = process.hubs[0].call(&process.settings, to, call, (Moment::ZERO, 0));
        let Some(Reply::History { publications, .. }) = reply else { panic!("{reply:?}") };
        kept += publications.iter().map(|one: &Arc<Publication>| one.cost_bytes()).sum::<usize>();
        assert!(publications.windows(2).all(|two| two[0].offset() + 1 == two[1].offset()));
    }
    assert!((1 << 19..=1 << 20).contains(&kept), "{kept}");
}

/// Publishes a message in each of 20 channels with history.
fn publish_in_channels(process: &mut Process, prefix: &str) {
    for number in 0..20 {
        let call = Call::Publish(order(&format!("{prefix}{number}"), "1"));
        let to = ReplyTo::Caller { key: 0, number: 0 };
        let reply = process.hubs[0].call(&process.settings, to, call, (Moment::ZERO, number));
        assert!(
            matches!(reply, Some(Reply::Published { position: Some(_), reports: 0 })),
            "{reply:?}"
        );
    }
}

/// How many of those messages are still in the history.
fn count_kept(process: &mut Process) -> usize {
    let kept = (0..20).map(|number| {
        let channel: Arc<str> = format!("kept{number}").into();
        let call = Call::History { hub: 0, channel, excerpt: Default::default() };
        let to = ReplyTo::Caller { key: 0, number: 0 };
        match process.hubs[0].call(&process.settings, to, call, (Moment::ZERO, 0)) {
            Some(Reply::History { publications, .. }) => publications.len(),
            other => panic!("{other:?}"),
        }
    });
    kept.sum()
}

/// Subscribes to 20,000 invented names. Returns the places, and how many subscriptions were refused.
fn flood(process: &mut Process, leaves: bool) -> (Vec<(u32, SubscriptionId)>, usize) {
    let (mut places, mut refused) = (Vec::new(), 0);
    for number in 0..20_000 {
        let name = format!("invented{number}");
        let at = (Moment::ZERO, u64::from(number));
        let hub = &mut process.hubs[0];
        match hub.subscribe(&process.settings, (0, &name), number, (None, None), at) {
            Ok(begun) if leaves => hub.unsubscribe(&process.settings, begun.place, number, None),
            Ok(begun) => places.push((number, begun.place)),
            Err(error) => {
                assert_eq!(error, Error::TooManyRequests, "a temporary error");
                refused += 1;
            }
        }
    }
    (places, refused)
}

#[test]
fn flood_of_channel_names_displaces_no_message_and_no_new_channel() {
    let text = "history = 1\nhistory-memory-max = \"1MiB\"\n";
    let mut process = Process::new(1, 1, text);
    publish_in_channels(&mut process, "kept");
    assert_eq!(flood(&mut process, true).1, 0);
    assert_eq!(count_kept(&mut process), 20);
    let later = Moment::ZERO.after(Span::from_secs(600));
    (0..4).for_each(|_| process.hubs[0].sweep(&process.settings, later));
    assert_eq!(process.hubs[0].channels_owned(), 0);
}

#[test]
fn flood_of_subscriptions_is_refused_before_it_displaces_a_message() {
    let text = "history = 1\nhistory-memory-max = \"1MiB\"\n";
    let mut process = Process::new(1, 1, text);
    publish_in_channels(&mut process, "kept");
    let (places, refused) = flood(&mut process, false);
    assert!(refused > 10_000 && places.len() > 1000, "{refused} refused");
    publish_in_channels(&mut process, "new");
    assert_eq!(count_kept(&mut process), 20);
    for (key, place) in places {
        process.hubs[0].unsubscribe(&process.settings, place, key, None);
    }
    assert_eq!(flood(&mut process, true).1, 0, "names without subscribers make room");
    assert_eq!(count_kept(&mut process), 20);
}

#[test]
fn lists_of_a_batch_are_bounded() {
    let text = "history = 20\nhistory-memory-max = \"64MiB\"\nmessage-max = \"64KiB\"\n";
    let mut process = Process::new(1, 1, text);
    let data = "x".repeat(60_000);
    for _ in 0..20 {
        request(&mut process, "publish", &format!("{{\"channel\":\"a\",\"data\":\"{data}\"}}"));
    }
    let read = "{\"history\":{\"channel\":\"a\",\"limit\":-1}}";
    let publish = "{\"publish\":{\"channel\":\"b\",\"data\":1}}";
    let commands = [[read; 20].as_slice(), &[publish]].concat().join(",");
    let body = request(&mut process, "batch", &format!("{{\"commands\":[{commands}]}}"));
    assert!((16 << 20..19 << 20).contains(&body.len()), "{}", body.len());
    assert_eq!(body.matches("\"code\":106").count(), 6);
    assert!(
        body.ends_with("}}]}") && body.contains("\"publish\":{"),
        "the other commands are answered"
    );
}

/// Sends a request to the API of the first worker and returns the body of the response.
fn request(process: &mut Process, method: &str, body: &str) -> String {
    let hub = process.settings.get(0).expect("a hub");
    let (mut exchange, calls) = match ApiCall::begin((0, hub), method, body) {
        Ok(begun) => begun,
        Err(error) => return format!("{error:?}"),
    };
    for (number, call) in calls.into_iter().enumerate() {
        exchange.expect(process.hubs[0].replies_of(&call));
        let to = ReplyTo::Caller { key: 9, number: number as u32 };
        let at = (process.now, process.prng.next_u64());
        if let Some(reply) = process.hubs[0].call(&process.settings, to, call, at) {
            exchange.take(number as u32, reply);
        }
    }
    process.settle();
    for (key, number, reply) in core::mem::take(&mut process.replies) {
        assert_eq!(key, 9);
        exchange.take(number, reply);
    }
    assert!(exchange.is_complete());
    let mut out = Vec::new();
    exchange.encode(&mut out, &Node { name: "n", version: "1" });
    String::from_utf8(out).expect("text")
}

#[test]
fn api_answers_as_centrifugo_does() {
    for workers in [1, 3] {
        let mut process =
            Process::new(workers, 7, "message-max = \"1KiB\"\n[push.p.namespace.h]\nhistory = 3\n");
        process.subscribe(0, "h:a", None);
        process.subscribe(workers - 1, "h:a", None);
        process.subscribe(workers - 1, "plain", None);
        process.settle();
        let denied =
            |code, message| format!(r#"{{"error":{{"code":{code},"message":"{message}"}}}}"#);
        let delivered = |reached| {
            format!(
                r#"{{"result":{{"delivery":{{"reached":{reached},"queued":0,"dropped":0,"slow":0}}}}}}"#
            )
        };
        let long = format!(r#"{{"channel":"a","data":"{}"}}"#, "x".repeat(1024));
        for (method, body, expected) in [
            ("publish", r#"{"channel":"plain","data":{"a":1}}"#, r#"{"result":{}}"#.to_owned()),
            (
                "publish",
                r#"{"channel":"plain","b64data":"eyJhIjoxfQ=="}"#,
                r#"{"result":{}}"#.into(),
            ),
            (
                "publish",
                r#"{"channel":"h:a","data":1,"wait":true,"skip_history":true}"#,
                delivered(2),
            ),
            (
                "broadcast",
                r#"{"channels":["plain","none"],"data":1,"wait":true}"#,
                format!(r#"{{"result":{{"responses":[{},{}]}}}}"#, delivered(1), delivered(0)),
            ),
            ("publish", r#"{"channel":"plain","b64data":"eA=="}"#, denied(107, "bad request")),
            ("publish", r#"{"channel":"plain"}"#, denied(107, "bad request")),
            ("publish", r#"{"channel":"","data":1}"#, denied(107, "bad request")),
            ("publish", r#"{"channel":"no:a","data":1}"#, denied(102, "unknown channel")),
            ("publish", &long, denied(106, "limit exceeded")),
            ("publish", r#"{"channel":"#, "Malformed".into()),
            ("publish", r#"[]"#, "Malformed".into()),
            ("nothing", "", denied(104, "method not found")),
            ("history", r#"{"channel":"plain"}"#, denied(108, "not available")),
            (
                "channels",
                "",
                r#"{"result":{"channels":{"h:a":{"num_clients":2},"plain":{"num_clients":1}}}}"#
                    .into(),
            ),
            (
                "channels",
                r#"{"pattern":"h:*"}"#,
                r#"{"result":{"channels":{"h:a":{"num_clients":2}}}}"#.into(),
            ),
            (
                "broadcast",
                r#"{"channels":["plain","no:a"],"data":1}"#,
                format!(
                    r#"{{"result":{{"responses":[{{"result":{{}}}},{}]}}}}"#,
                    denied(102, "unknown channel")
                ),
            ),
            (
                "batch",
                r#"{"commands":[{"publish":{"channel":"plain","data":1}},{"nothing":{}}]}"#,
                format!(
                    r#"{{"replies":[{{"publish":{{}}}},{}]}}"#,
                    denied(104, "method not found")
                ),
            ),
        ] {
            assert_eq!(request(&mut process, method, body), expected, "{method} {body}");
        }
        let info = request(&mut process, "info", "{}");
        assert!(info.contains(r#""num_subs":3,"num_channels":2"#), "{info}");
        let first =
            request(&mut process, "publish", r#"{"channel":"h:a","data":"x","tags":{"k":"v"}}"#);
        let epoch = first.split("\"epoch\":\"").nth(1).map(|rest| &rest[..8]).expect("an epoch");
        assert_eq!(first, format!(r#"{{"result":{{"offset":1,"epoch":"{epoch}"}}}}"#));
        let again = r#"{"channel":"h:a","data":2,"idempotency_key":"k"}"#;
        let second = request(&mut process, "publish", again);
        assert_eq!(request(&mut process, "publish", again), second, "the same key");
        let all = request(&mut process, "history", r#"{"channel":"h:a","limit":-1}"#);
        let publications = r#"{"data":"x","offset":1,"tags":{"k":"v"}},{"data":2,"offset":2}"#;
        let end = format!(r#""epoch":"{epoch}","offset":2}}}}"#);
        assert_eq!(all, format!(r#"{{"result":{{"publications":[{publications}],{end}"#));
        let none = request(&mut process, "history", r#"{"channel":"h:a"}"#);
        assert_eq!(none, format!(r#"{{"result":{{"publications":[],{end}"#));
        let removed = request(&mut process, "history_remove", r#"{"channel":"h:a"}"#);
        assert_eq!(removed, r#"{"result":{}}"#);
        let after = request(&mut process, "history", r#"{"channel":"h:a","limit":-1}"#);
        assert_eq!(after, none);
    }
}

#[test]
fn api_refuses_more_calls_than_it_makes() {
    let mut process = Process::new(1, 7, "");
    let names = |count| vec![r#""a""#; count].join(",");
    let refused = r#"{"error":{"code":106,"message":"limit exceeded"}}"#;
    let body = format!(r#"{{"channels":[{}],"data":1}}"#, names(10_001));
    assert_eq!(request(&mut process, "broadcast", &body), refused);
    let command = r#"{"publish":{"channel":"a","data":1}}"#;
    let body = format!(r#"{{"commands":[{}]}}"#, vec![command; 10_003].join(","));
    let response = request(&mut process, "batch", &body);
    let parsed: serde_json::Value = serde_json::from_str(&response).expect("JSON");
    let replies = parsed["replies"].as_array().expect("replies");
    assert_eq!(replies.len(), 10_003);
    assert!(replies[9_999].get("publish").is_some());
    assert_eq!(replies[10_002]["error"]["code"], 106);
}

/// Both workers of a process: the owner of the channel `plain`, and the other one.
fn owner_first(process: &Process) -> (usize, usize) {
    if process.hubs[0].owner("plain") == 0 { (0, 1) } else { (1, 0) }
}

#[test]
fn flood_of_subscriptions_leaves_a_bounded_number_of_mails() {
    let mut process = Process::new(2, 6, "presence = true\n");
    let (owner, other) = owner_first(&process);
    let visitor = PresentClient {
        client: "c".into(),
        user: "u".into(),
        info: "{}".into(),
        is_listed: true,
        is_announced: None,
    };
    let mut refused = 0;
    for turn in 0..10_000 {
        let (at, asks) = ((process.now, turn), Some(visitor.clone()).filter(|_| turn % 2 == 0));
        let hub = &mut process.hubs[other];
        match hub.subscribe(&process.settings, (0, "plain"), 7, (None, asks.clone()), at) {
            Ok(begun) => {
                let client = asks.as_ref().map(|visitor| &visitor.client);
                hub.unsubscribe(&process.settings, begun.place, 7, client);
            }
            Err(error) => {
                assert_eq!(error, Error::TooManyRequests);
                refused += 1;
            }
        }
    }
    let hub = &mut process.hubs[other];
    assert!(refused > 0 && hub.is_congested());
    let mut mails = 0;
    while hub.take_mail(owner as u16).is_some() {
        mails += 1;
    }
    assert!(mails < OUTBOX_MAX + 3, "{mails}");
    assert!(!hub.is_congested());
    process.subscribe(other, "plain", None);
}

#[test]
fn queries_are_refused_while_much_mail_waits() {
    let mut process = Process::new(2, 7, "history = 10\npresence = true\n");
    let (owner, other) = owner_first(&process);
    let call = || Call::History { hub: 0, channel: "plain".into(), excerpt: Default::default() };
    let mut ask = |call| {
        let to = ReplyTo::Caller { key: 0, number: 0 };
        process.hubs[other].call(&process.settings, to, call, (Moment::ZERO, 1))
    };
    for _ in 0..OUTBOX_MAX {
        assert!(ask(call()).is_none(), "the owner has the reply");
    }
    assert!(matches!(ask(call()), Some(Reply::Failed(Error::TooManyRequests))));
    while process.hubs[other].take_mail(owner as u16).is_some() {}
}

#[test]
fn client_that_floods_a_channel_leaves_room_for_others() {
    let mut process = Process::new(1, 8, "");
    for channel in ["plain", "other", "third"] {
        process.subscribe(0, channel, None);
    }
    let mut publish = |channel: &str, info: &str| {
        let order = Order { info: info.into(), ..order(channel, "1") };
        let to = ReplyTo::Caller { key: 0, number: 0 };
        let reply =
            process.hubs[0].call(&process.settings, to, Call::Publish(order), (Moment::ZERO, 1));
        !matches!(reply, Some(Reply::Failed(Error::TooManyRequests)))
    };
    let mut accepted = 0;
    while publish("plain", "{}") {
        accepted += 1;
        assert!(accepted <= CLIENT_WALKS_MAX, "no limit");
    }
    assert_eq!(accepted, CLIENT_WALKS_MAX);
    assert!(publish("other", "{}"), "a client in another channel");
    for _ in 0..450 {
        assert!(publish("plain", "") && publish("third", ""), "the application");
    }
    assert!(!publish("third", "{}"), "clients have half of the deliveries");
}

#[test]
fn patterns_match_whole_names() {
    for (pattern, name, expected) in [
        ("", "a", true),
        ("*", "a:b", true),
        ("a*c", "abbc", true),
        ("a*c", "abbd", false),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("*b*", "abc", true),
        ("a", "ab", false),
        ("**", "", true),
        ("*a*a*a*b", "aaaaaaaaaaaaaaaa", false),
    ] {
        assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
    }
}

/// The clients of a worker that the waiting instructions concern.
fn instructed(process: &mut Process, worker: usize) -> Vec<u32> {
    let mut keys = Vec::new();
    while process.hubs[worker].is_instructing() {
        process.hubs[worker].instruct(1, &mut keys);
    }
    keys
}

#[test]
fn instructions_reach_the_clients_of_a_user_on_every_worker() {
    let mut process = Process::new(3, 5, "");
    for (key, (worker, user)) in [(0, "ann"), (1, "ann"), (1, "bob"), (2, "ann")].iter().enumerate()
    {
        let client = ClientName::from_random([0, key as u64]);
        process.hubs[*worker].roster().enter(0, &(*user).into(), client, key as u32);
    }
    let done = r#"{"result":{}}"#;
    let denied = |code, text| format!(r#"{{"error":{{"code":{code},"message":"{text}"}}}}"#);
    for (method, body, expected, concerned) in [
        ("disconnect", r#"{"user":"ann"}"#, done, vec![0, 1, 3]),
        (
            "refresh",
            r#"{"user":"ann","client":"00000000-0000-4000-8000-000000000003","expired":true}"#,
            done,
            vec![3],
        ),
        ("unsubscribe", r#"{"user":"bob","channel":"a"}"#, done, vec![2]),
        ("subscribe", r#"{"user":"none","channel":"a"}"#, done, vec![]),
        ("subscribe", r#"{"user":"ann","channel":"x:a"}"#, &denied(102, "unknown channel"), vec![]),
        ("disconnect", "{}", &denied(107, "bad request"), vec![]),
    ] {
        assert_eq!(request(&mut process, method, body), expected, "{method} {body}");
        let found: Vec<u32> = (0..3).flat_map(|worker| instructed(&mut process, worker)).collect();
        assert_eq!(found, concerned, "{method} {body}");
    }
}

#[test]
fn worker_that_is_behind_with_instructions_fails_the_request() {
    let mut process = Process::new(2, 5, "");
    let most = tidegate_push::roster::INSTRUCTIONS_MAX;
    for _ in 0..most {
        request(&mut process, "disconnect", r#"{"user":"ann"}"#);
    }
    // The other worker has room again, but this one has not.
    instructed(&mut process, 1);
    let reply = request(&mut process, "disconnect", r#"{"user":"ann"}"#);
    assert!(reply.contains("\"code\":111"), "{reply}");
}

#[test]
fn channels_without_subscribers_are_kept_for_the_backend_up_to_a_bound() {
    let settings = settings(
        "[push.p.namespace.told]\nbackend-events = [\"channel-empty\"]\n[push.p.namespace.quiet]\n\
         [push.p.backend]\npool = \"app\"\nchannel-empty = \"/empty\"\n\
         [pool.app]\nservers = [\"127.0.0.1:1\"]\n",
    );
    let mut hub = Hub::<u32>::new(&settings, 0, 1);
    let leave = |hub: &mut Hub<u32>, name: &str| {
        let begun = hub.subscribe(&settings, (0, name), 1, (None, None), (Moment::ZERO, 1));
        hub.unsubscribe(&settings, begun.expect("a place").place, 1, None);
    };
    leave(&mut hub, "quiet:a");
    leave(&mut hub, "plain");
    assert!(!hub.has_emptied(), "nothing is told of these channels");
    leave(&mut hub, "$told:a");
    (1..EMPTIED_MAX + 5).for_each(|number| leave(&mut hub, &format!("told:{number}")));
    assert_eq!((hub.take_lost_emptied(), hub.take_lost_emptied()), (5, 0));
    assert_eq!(hub.take_emptied(), Some((0, "$told:a".into())));
    assert_eq!(core::iter::from_fn(|| hub.take_emptied()).count(), EMPTIED_MAX - 1);
}
