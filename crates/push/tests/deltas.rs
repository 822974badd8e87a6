//! Clients with deltas: whatever is dropped, held back or recovered, each message that arrives is the one that was
//! published.
//! In: seeds. Out: each failing seed.
//! Invariant: a client applies every patch to the last message that it got since it subscribed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tidegate_base::{Moment, Prng, Span};
use tidegate_push::client::codec::Codec;
use tidegate_push::client::{Connection, Context};
use tidegate_push::fan_out::{Delivery, Handed};
use tidegate_push::fossil;
use tidegate_push::hub::Hub;
use tidegate_push::mail::{Call, Order, ReplyTo};
use tidegate_push::node::NodeId;
use tidegate_push::protobuf::{Fields, Value as Field, take_delimited};
use tidegate_push::publication::{Form, Publication};
use tidegate_push::queue::Queue;
use tidegate_push::settings::Hubs;
use tidegate_push::token::Verifier;

const CHANNELS: [&str; 4] = ["all:a", "all:b", "marked:a", "held:a"];

const CONFIG: &str = "[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\nanonymous = true\nsubscribe = \"anyone\"\n\
    queue-messages-max = 3\nslow = \"drop-oldest\"\n\
    [push.p.namespace.all]\nsubscribe = \"anyone\"\nhistory = 6\ndeltas = \"all\"\n\
    [push.p.namespace.marked]\nsubscribe = \"anyone\"\nhistory = 6\ndeltas = \"marked\"\n\
    [push.p.namespace.held]\nsubscribe = \"anyone\"\nconflate = \"2s\"\ndeltas = \"all\"\n\
    [push.p.namespace.off]\nsubscribe = \"anyone\"\nhistory = 6\n";

/// A client, and what it knows.
struct Client {
    connection: Connection,
    /// By channel: the last message as text; `None` if there is none since the subscription.
    bases: BTreeMap<String, Option<String>>,
    /// By channel: the number of the last message.
    numbers: BTreeMap<String, u64>,
    /// Messages that wait, because the client does not read.
    queue: Queue,
    is_held: bool,
    patches: usize,
    whole: usize,
}

struct Scene {
    settings: Hubs,
    hub: Hub<u32>,
    clients: Vec<Client>,
    /// By channel: the texts of the messages, whose index is their number.
    texts: BTreeMap<&'static str, Vec<String>>,
    now: Moment,
    prng: Prng,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let config = tidegate_config::parse(CONFIG, "the test").unwrap_or_else(|e| panic!("{e}"));
        let settings = Hubs::new(&config);
        let hub = Hub::new(&settings, 0, 1);
        let texts = CHANNELS.iter().map(|channel| (*channel, Vec::new())).collect();
        let prng = Prng::new(seed);
        Self { settings, hub, clients: Vec::new(), texts, now: Moment::ZERO, prng }
    }

    fn connect(&mut self, codec: Codec) -> usize {
        let at = self.clients.len();
        self.clients.push(Client {
            connection: Connection::new(codec, [at as u64, 7]),
            bases: BTreeMap::new(),
            numbers: BTreeMap::new(),
            queue: Queue::default(),
            is_held: false,
            patches: 0,
            whole: 0,
        });
        self.command(at, "{\"id\":1,\"connect\":{}}", &[1, 0x22, 0]);
        at
    }

    /// Lets a client send a command. Returns the reply.
    fn command(&mut self, at: usize, json: &str, fields: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut context = Context {
            hub: &mut self.hub,
            settings: &self.settings,
            verifier: &Verifier::default(),
            may_verify: true,
            index: 0,
            key: at as u32,
            queue: None,
            at: (self.now, self.prng.next_u64()),
            unix_seconds: 1,
            ping_seconds: None,
            version: "test",
            room: 1 << 20,
            effort: 0,
            request: None,
            is_reply_invalid: false,
            over_rate: 0,
        };
        let client = &mut self.clients[at];
        let message = match client.connection.codec() {
            Codec::Json => json.as_bytes().to_vec(),
            Codec::Protobuf => {
                let mut message = vec![fields.len() as u8 + 1, 8];
                message.extend_from_slice(fields);
                message
            }
        };
        assert_eq!(
            client.connection.receive(&mut context, &message, &mut out),
            Ok(message.len()),
            "{json}"
        );
        out
    }

    fn subscribe(&mut self, at: usize, channel: &str, since: Option<u64>) {
        let recover =
            since.map_or(String::new(), |offset| format!(",\"recover\":true,\"offset\":{offset}"));
        let json = format!(
            "{{\"id\":2,\"subscribe\":{{\"channel\":\"{channel}\",\"delta\":\"fossil\"{recover}}}}}"
        );
        let mut inner = vec![0x0a, channel.len() as u8];
        inner.extend_from_slice(channel.as_bytes());
        if let Some(offset) = since {
            inner.extend_from_slice(&[0x18, 1, 0x38, offset as u8 | 0x80, (offset >> 7) as u8]);
        }
        inner.extend_from_slice(b"\x62\x06fossil");
        let mut fields = vec![2, 0x2a, inner.len() as u8];
        fields.extend_from_slice(&inner);
        let reply = self.command(at, &json, &fields);
        self.clients[at].bases.insert(channel.to_owned(), None);
        let expected = &self.texts;
        self.clients[at].take_reply(channel, &reply, expected);
    }

    fn unsubscribe(&mut self, at: usize, channel: &str) {
        let json = format!("{{\"id\":3,\"unsubscribe\":{{\"channel\":\"{channel}\"}}}}");
        let mut fields = vec![3, 0x32, channel.len() as u8 + 2, 0x0a, channel.len() as u8];
        fields.extend_from_slice(channel.as_bytes());
        self.command(at, &json, &fields);
        self.clients[at].bases.remove(channel);
    }

    fn publish(&mut self, channel: &'static str) {
        let texts = self.texts.get_mut(channel).expect("a channel");
        let number = texts.len();
        let stable = "é stays \\\"as it is\\\" ".repeat(4 + number / 20);
        let text = match self.prng.below(8) {
            // Nothing like the one before.
            0 => format!("{{\"n\":{number}}}"),
            _ => format!("{{\"n\":{number},\"text\":\"{stable}\"}}"),
        };
        texts.push(text.clone());
        let order = Order {
            hub: 0,
            origin: NodeId::OWN,
            channel: channel.into(),
            data: text.into(),
            tags: "".into(),
            info: "".into(),
            sender: "".into(),
            skip_history: self.prng.below(10) == 0,
            idempotency_key: "".into(),
            waits: false,
            delta: self.prng.below(2) == 0,
            event: "".into(),
        };
        let at = (self.now, self.prng.next_u64());
        let to = ReplyTo::Caller { key: 0, number: 1 };
        let reply = self.hub.call(&self.settings, to, Call::Publish(order), at);
        assert!(matches!(reply, Some(tidegate_push::mail::Reply::Published { .. })), "{reply:?}");
    }

    fn deliver(&mut self) {
        let mut keys = Vec::new();
        let Some(slice) = self.hub.deliver(1 << 20, |_| 1, &mut keys) else { return };
        let publication = Arc::clone(&slice.publication);
        for key in keys {
            let client = &mut self.clients[key as usize];
            if client.is_held {
                let hub = self.settings.get(0).expect("the hub");
                client.queue.push(Arc::clone(&publication), &hub.queue);
            } else {
                client.take(&publication, &self.texts);
            }
        }
        let mut delivery = Delivery::default();
        delivery.note(Handed::Sent);
        self.hub.end_slice(slice, delivery);
    }

    fn resume(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.is_held = false;
        while let Some(next) = client.queue.pop() {
            client.take(&next.publication, &self.texts);
        }
    }
}

/// What a publication contains.
struct Seen {
    data: String,
    is_patch: bool,
}

impl Client {
    /// A publication arrives.
    fn take(&mut self, publication: &Publication, texts: &BTreeMap<&'static str, Vec<String>>) {
        let channel = publication.channel.to_string();
        if !self.bases.contains_key(&channel) {
            return;
        }
        let form = self.connection.choose_form(publication);
        let bytes = publication.message(form);
        let seen = match self.connection.codec() {
            Codec::Json => {
                let value: Value = serde_json::from_slice(bytes).expect("JSON");
                json_publication(&value["push"]["pub"])
            }
            Codec::Protobuf => {
                let reply = take_delimited(&mut &*bytes).expect("one reply");
                protobuf_publication(field(field(reply, 4), 4))
            }
        };
        assert_eq!(seen.is_patch, matches!(form, Form::JsonPatch | Form::ProtobufPatch));
        self.note(&channel, seen, texts);
    }

    fn note(&mut self, channel: &str, seen: Seen, texts: &BTreeMap<&'static str, Vec<String>>) {
        let base = self.bases.get_mut(channel).expect("subscribed");
        let text = match seen.is_patch {
            true => {
                self.patches += 1;
                let previous = base.as_ref().expect("a message before the patch");
                let text = fossil::apply(previous.as_bytes(), seen.data.as_bytes());
                String::from_utf8(text.expect("a patch of the last message")).expect("text")
            }
            false => {
                self.whole += 1;
                seen.data
            }
        };
        let number = serde_json::from_str::<Value>(&text).expect("JSON")["n"].as_u64();
        let number = number.expect("a number");
        assert_eq!(text, texts[channel][number as usize]);
        let before = self.numbers.insert(channel.to_owned(), number);
        assert!(before.is_none_or(|before| before < number), "{channel}: {before:?} {number}");
        *base = Some(text);
    }

    /// The reply to a subscription arrives.
    fn take_reply(
        &mut self,
        channel: &str,
        reply: &[u8],
        texts: &BTreeMap<&'static str, Vec<String>>,
    ) {
        let missed: Vec<Seen> = match self.connection.codec() {
            Codec::Json => {
                let value: Value = serde_json::from_slice(reply).expect("JSON");
                assert_eq!(value["subscribe"]["delta"], true, "{value}");
                let missed = value["subscribe"]["publications"].as_array();
                missed.into_iter().flatten().map(json_publication).collect()
            }
            Codec::Protobuf => {
                let result = field(take_delimited(&mut &*reply).expect("one reply"), 6);
                let mut fields = Fields::new(result);
                let all = core::iter::from_fn(|| fields.next_field().expect("a field"));
                let all: Vec<_> = all.collect();
                assert!(all.contains(&(13, Field::Number(1))), "deltas");
                let missed = all.into_iter().filter(|(number, _)| *number == 7);
                missed.map(|(_, value)| protobuf_publication(value.bytes().expect("it"))).collect()
            }
        };
        for seen in missed {
            assert!(!seen.is_patch);
            self.note(channel, seen, texts);
        }
    }
}

fn json_publication(value: &Value) -> Seen {
    let data = value["data"].as_str().expect("the data is a string").to_owned();
    Seen { data, is_patch: value["delta"] == true }
}

fn protobuf_publication(bytes: &[u8]) -> Seen {
    let mut fields = Fields::new(bytes);
    let all = core::iter::from_fn(|| fields.next_field().expect("a field"));
    let is_patch = all.into_iter().any(|one| one == (8, Field::Number(1)));
    let data = String::from_utf8(field(bytes, 4).to_vec()).expect("text");
    Seen { data, is_patch }
}

fn field(bytes: &[u8], number: u32) -> &[u8] {
    let mut fields = Fields::new(bytes);
    let mut all = core::iter::from_fn(|| fields.next_field().expect("a field"));
    all.find(|(known, _)| *known == number).and_then(|(_, value)| value.bytes().ok()).expect("it")
}

#[test]
fn clients_get_what_was_published_whatever_is_dropped_or_recovered() {
    let (mut patches, mut whole) = (0, 0);
    for seed in 0..150 {
        let mut scene = Scene::new(seed);
        for codec in [Codec::Json, Codec::Protobuf, Codec::Json, Codec::Protobuf] {
            let at = scene.connect(codec);
            for channel in CHANNELS {
                scene.subscribe(at, channel, None);
            }
        }
        for _ in 0..400 {
            let (at, channel) = (scene.prng.below(4) as usize, scene.prng.below(4) as usize);
            let channel = CHANNELS[channel];
            match scene.prng.below(16) {
                0 => scene.clients[at].is_held = true,
                1 | 2 => scene.resume(at),
                // What waits for a client is delivered before its next subscription.
                3 => {
                    scene.resume(at);
                    scene.unsubscribe(at, channel);
                    while scene.hub.is_delivering() {
                        scene.deliver();
                    }
                    if scene.prng.below(2) == 0 {
                        scene.publish(channel);
                    }
                    let since = scene.texts[channel].len() as u64
                        - scene.texts[channel].len().min(2) as u64;
                    let since = (scene.prng.below(2) == 0 && channel != "held:a").then_some(since);
                    scene.clients[at].numbers.remove(channel);
                    scene.subscribe(at, channel, since);
                }
                4..=9 => scene.publish(channel),
                10 => {
                    scene.now = scene.now.after(Span::from_millis(700));
                    scene.hub.publish_due(scene.now);
                }
                _ => scene.deliver(),
            }
        }
        for at in 0..scene.clients.len() {
            scene.resume(at);
            for channel in CHANNELS {
                scene.unsubscribe(at, channel);
            }
            patches += scene.clients[at].patches;
            whole += scene.clients[at].whole;
        }
        assert_eq!(scene.hub.bases(), 0, "channels without subscribers have no newest message");
    }
    assert!(patches > whole, "{patches} patches, {whole} whole messages");
}

#[test]
fn subscription_without_deltas_gets_the_data_as_it_is() {
    let mut scene = Scene::new(1);
    let at = scene.connect(Codec::Json);
    for channel in ["all:a", "off:a"] {
        let wish = if channel == "off:a" { ",\"delta\":\"fossil\"" } else { "" };
        let json = format!("{{\"id\":2,\"subscribe\":{{\"channel\":\"{channel}\"{wish}}}}}");
        let reply = String::from_utf8(scene.command(at, &json, &[])).expect("text");
        assert!(reply.contains("\"subscribe\"") && !reply.contains("delta"), "{reply}");
    }
    for _ in 0..3 {
        scene.publish("all:a");
        let mut keys = Vec::new();
        let slice = scene.hub.deliver(1, |_| 1, &mut keys).expect("a delivery");
        assert_eq!(scene.clients[at].connection.choose_form(&slice.publication), Form::Json);
        scene.hub.end_slice(slice, Delivery::default());
    }
    assert_eq!(scene.hub.take_unkept_bases(), 0);
}
