//! Clients whose tokens name channels: when `connect` is answered, and what its reply contains.
//! In: tokens, messages of a client, replies of owners on two workers. Out: the messages for the client.

use tidegate_base::Moment;

use crate::client::codec::Codec;
use crate::client::{Connection, Context, Disconnect};
use crate::hub::{Event, Hub};
use crate::mail::{Call, Order, Reply, ReplyTo};
use crate::node::NodeId;
use crate::settings::Hubs;
use crate::token::Verifier;
use crate::token::tests::secret_token;

const SECRET: &str = "0123456789abcdef";

/// A client of the first of two workers.
struct Fixture {
    settings: Hubs,
    verifier: Verifier,
    hubs: [Hub<u32>; 2],
    client: Connection,
    room: usize,
}

impl Fixture {
    fn new(codec: Codec) -> Self {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\ntoken-secret = \"{SECRET}\"\nhistory = 10\n\
             channels-max = 5\npresence = true\n[push.p.namespace.plain]\n"
        );
        let config = tidegate_config::parse(&text, "the test").unwrap_or_else(|e| panic!("{e}"));
        let settings = Hubs::new(&config);
        let hubs = [0, 1].map(|own| Hub::new(&settings, own, 2));
        let verifier = Verifier::new(&settings);
        let client = Connection::new(codec, [1, 2]);
        Self { settings, verifier, hubs, client, room: 100_000 }
    }

    /// A channel that this worker owns.
    fn channel(&self, owner: u16) -> String {
        let mut names = (0..).map(|number| format!("c{number}"));
        names.find(|name| self.hubs[0].owner(name) == owner).expect("a name")
    }

    fn publish(&mut self, channel: &str, data: &str) {
        let order = Order {
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
        };
        let owner = usize::from(self.hubs[0].owner(channel));
        let to = ReplyTo::Caller { key: 0, number: 1 };
        let reply =
            self.hubs[owner].call(&self.settings, to, Call::Publish(order), (Moment::ZERO, 5));
        assert!(matches!(reply, Some(Reply::Published { .. })), "{reply:?}");
    }

    fn work<T>(
        &mut self,
        work: impl FnOnce(&mut Connection, &mut Context<'_, u32>, &mut Vec<u8>) -> T,
    ) -> (T, Vec<u8>) {
        let mut out = Vec::new();
        let [hub, _] = &mut self.hubs;
        let mut context = Context {
            hub,
            settings: &self.settings,
            verifier: &self.verifier,
            may_verify: true,
            index: 0,
            key: 7,
            queue: None,
            at: (Moment::ZERO, 3),
            unix_seconds: 1_000_000,
            ping_seconds: None,
            version: "test",
            room: self.room,
            effort: 0,
            request: None,
            is_reply_invalid: false,
            over_rate: 0,
        };
        let result = work(&mut self.client, &mut context, &mut out);
        (result, out)
    }

    fn send(&mut self, message: &[u8]) -> (Result<usize, Disconnect>, Vec<u8>) {
        self.work(|client, context, out| client.receive(context, message, out))
    }

    /// Sends `connect` with these claims, and with where the client was.
    fn connect(&mut self, claims: &str, subs: &str) -> String {
        let (result, out) = self.send(connect(claims, subs).as_bytes());
        assert!(result.is_ok(), "{result:?}");
        text(out)
    }

    /// Lets the second worker answer. Returns the messages for the client.
    fn exchange(&mut self) -> String {
        let mut all = String::new();
        while let Some(mail) = self.hubs[0].take_mail(1) {
            assert!(self.hubs[1].receive(&self.settings, mail, (Moment::ZERO, 4)).is_none());
        }
        while let Some(mail) = self.hubs[1].take_mail(0) {
            let event = self.hubs[0].receive(&self.settings, mail, (Moment::ZERO, 4));
            let (_, out) = self.work(|client, context, out| match &event {
                Some(Event::Subscribed(7, place, reply)) => {
                    client.confirm(context, *place, reply, out);
                }
                Some(Event::Refused(7, place, error)) => {
                    client.refuse(context, *place, *error, out)
                }
                Some(_) | None => {}
            });
            all.push_str(&text(out));
        }
        all
    }
}

fn text(out: Vec<u8>) -> String {
    String::from_utf8(out).expect("text")
}

fn connect(claims: &str, subs: &str) -> String {
    let token = secret_token(SECRET, claims);
    format!("{{\"id\":1,\"connect\":{{\"token\":\"{token}\",\"subs\":{{{subs}}}}}}}\n")
}

#[test]
fn connect_is_answered_when_all_owners_have_replied() {
    let mut fixture = Fixture::new(Codec::Json);
    let [near, far] = [0, 1].map(|owner| fixture.channel(owner));
    let claims = format!(
        "{{\"sub\":\"7\",\"subs\":{{\"{near}\":{{\"data\":[1],\"info\":2}},\"{far}\":{{}},\"plain:a\":{{}}}}}}"
    );
    let first = connect(&claims, "");
    let second = "{\"id\":2,\"presence_stats\":{\"channel\":\"a\"}}";
    let (used, out) = fixture.send(format!("{first}{second}").as_bytes());
    assert_eq!((used, out.as_slice()), (Ok(first.len()), &b""[..]), "the rest waits");
    assert!(fixture.client.is_waiting() && !fixture.client.is_connected());
    assert_eq!(fixture.send(second.as_bytes()).0, Ok(0));
    let (checked, _) = fixture.work(|client, context, out| client.check(context, out));
    assert_eq!(checked, Ok(()), "it is not stale");
    let reply = fixture.exchange();
    assert!(reply.starts_with("{\"id\":1,\"connect\":{\"client\":\""), "{reply}");
    let parsed: serde_json::Value = serde_json::from_str(&reply).expect("one reply");
    let subs = &parsed["connect"]["subs"];
    assert_eq!(subs.as_object().map(serde_json::Map::len), Some(3), "{reply}");
    assert_eq!(
        (&subs[&near]["data"], &subs["plain:a"]),
        (&serde_json::json!([1]), &serde_json::json!({}))
    );
    assert_eq!(subs[&far]["recoverable"], true, "{reply}");
    assert!(fixture.client.is_connected() && !fixture.client.is_waiting());
    assert_eq!(fixture.send(second.as_bytes()).0, Ok(second.len()));
    assert_eq!((fixture.client.subscriptions(), fixture.hubs[0].subscriptions()), (3, 3));
    let presence = format!("{{\"id\":3,\"presence\":{{\"channel\":\"{near}\"}}}}");
    // The namespace lets only the API read it, so the owner gets a request.
    assert!(text(fixture.send(presence.as_bytes()).1).contains("\"code\":103"));
    let call = Call::Presence { hub: 0, channel: near.as_str().into() };
    let to = ReplyTo::Caller { key: 0, number: 1 };
    let found = fixture.hubs[0].call(&fixture.settings, to, call, (Moment::ZERO, 6));
    let Some(Reply::Presence(presence)) = found else { panic!("{found:?}") };
    assert!(presence.visitors[0].info.ends_with("\"chan_info\":2}"), "{presence:?}");
}

#[test]
fn reply_to_connect_contains_what_the_client_missed() {
    let mut fixture = Fixture::new(Codec::Json);
    let [near, far] = [0, 1].map(|owner| fixture.channel(owner));
    for data in ["1", "2"] {
        fixture.publish(&near, data);
        fixture.publish(&far, data);
    }
    let claims = format!("{{\"sub\":\"7\",\"channels\":[\"{near}\",\"{far}\"]}}");
    let since = |offset| format!("{{\"recover\":true,\"epoch\":\"\",\"offset\":{offset}}}");
    let subs = format!("\"{near}\":{},\"{far}\":{},\"other\":{}", since(1), since(9), since(0));
    let mut reply = fixture.connect(&claims, &subs);
    reply.push_str(&fixture.exchange());
    let parsed: serde_json::Value = serde_json::from_str(&reply).expect("one reply");
    let subs = &parsed["connect"]["subs"];
    let [near, far] = [&subs[&near], &subs[&far]];
    assert_eq!((&near["recovered"], &near["offset"]), (&true.into(), &1.into()), "{reply}");
    assert_eq!(near["publications"].as_array().map(Vec::len), Some(1), "{reply}");
    assert_eq!(
        (&far["recovered"], &far["was_recovering"]),
        (&serde_json::Value::Null, &true.into())
    );
    assert_eq!(far["offset"], 2, "{reply}");
    assert!(subs["other"].is_null(), "only channels of the token: {reply}");
}

#[test]
fn more_than_the_room_takes_is_lost() {
    let mut fixture = Fixture::new(Codec::Json);
    let mut names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    names.retain(|name| fixture.hubs[0].owner(name) == 0);
    names.truncate(4);
    let data = format!("\"{}\"", "x".repeat(3000));
    names.iter().for_each(|name| fixture.publish(name, &data));
    let resume = |name: &String| format!("\"{name}\":{{\"recover\":true}}");
    let subs = names.iter().map(resume).collect::<Vec<_>>().join(",");
    let claims = format!("{{\"channels\":{names:?}}}");
    fixture.room = 8000;
    let reply = fixture.connect(&claims, &subs);
    assert_eq!(reply.matches("\"was_recovering\":true").count(), 4, "{reply:.200}");
    assert_eq!(reply.matches("\"recovered\":true").count(), 2, "{reply:.200}");
}

#[test]
fn connect_fails_without_one_of_the_channels() {
    for (claims, code) in [
        ("{\"channels\":[\"a\",\"no:b\"]}", 102),
        ("{\"channels\":[\"a\",\"\"]}", 107),
        ("{\"channels\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"]}", 106),
    ] {
        let mut fixture = Fixture::new(Codec::Json);
        let mut reply = fixture.connect(claims, "");
        reply.push_str(&fixture.exchange());
        let expected = format!("{{\"id\":1,\"error\":{{\"code\":{code},");
        assert!(reply.starts_with(&expected), "{claims}: {reply}");
        assert_eq!(reply.matches("\"id\"").count(), 1, "{reply}");
        assert_eq!((fixture.client.subscriptions(), fixture.hubs[0].subscriptions()), (0, 0));
        let (checked, _) = fixture.work(|client, context, out| client.check(context, out));
        assert_eq!(checked, Err(Disconnect::CLOSED));
    }
    let mut fixture = Fixture::new(Codec::Json);
    let wrong = connect("{\"subs\":{\"a\":{\"b64info\":\"?\"}}}", "");
    assert_eq!(fixture.send(wrong.as_bytes()).0, Err(Disconnect::INVALID_TOKEN));
}

#[test]
fn owner_that_refuses_a_channel_fails_connect() {
    let mut fixture = Fixture::new(Codec::Json);
    let [near, far] = [0, 1].map(|owner| fixture.channel(owner));
    let claims = format!("{{\"channels\":[\"{near}\",\"{far}\"]}}");
    assert_eq!(fixture.connect(&claims, ""), "");
    // The second worker has no such hub.
    let text = "[[listener]]\nbind = \"127.0.0.1:80\"\n";
    let config = tidegate_config::parse(text, "the test").unwrap_or_else(|e| panic!("{e}"));
    fixture.hubs[1] = Hub::new(&Hubs::new(&config), 1, 2);
    let reply = fixture.exchange();
    assert!(reply.starts_with("{\"id\":1,\"error\":{\"code\":100,"), "{reply}");
    assert_eq!((fixture.client.subscriptions(), fixture.hubs[0].subscriptions()), (0, 0));
    assert!(fixture.client.has_failed() && !fixture.client.is_waiting());
}

#[test]
fn client_that_leaves_while_owners_are_queried_releases_its_state() {
    let mut fixture = Fixture::new(Codec::Json);
    let far = fixture.channel(1);
    assert_eq!(fixture.connect(&format!("{{\"channels\":[\"{far}\"]}}"), ""), "");
    fixture.work(|client, context, _| {
        client.leave_all(context.hub, context.settings, (context.index, context.key));
    });
    assert_eq!(fixture.exchange(), "");
    assert_eq!(fixture.hubs[0].subscriptions(), 0);
    assert!(!fixture.hubs[0].has_mail() && !fixture.hubs[1].has_mail());
}

#[test]
fn protocol_buffers_state_the_same() {
    let mut fixture = Fixture::new(Codec::Protobuf);
    let near = fixture.channel(0);
    fixture.publish(&near, "\"missed\"");
    let token = secret_token(SECRET, &format!("{{\"channels\":[\"{near}\"]}}"));
    let field = |number: u8, value: &[u8]| {
        let length = value.len();
        assert!(length < 1 << 14);
        let count = if length < 128 {
            vec![length as u8]
        } else {
            vec![length as u8 | 0x80, (length >> 7) as u8]
        };
        [&[number << 3 | 2], count.as_slice(), value].concat()
    };
    // `recover` of the subscription.
    let entry = [field(1, near.as_bytes()), field(2, &[3 << 3, 1])].concat();
    let connect = [field(1, token.as_bytes()), field(3, &entry)].concat();
    let command = [&[1 << 3, 1][..], &field(4, &connect)].concat();
    // A command follows its length, as a field follows its number.
    let message = &field(0, &command)[1..];
    let (result, out) = fixture.send(message);
    assert_eq!(result, Ok(message.len()));
    let contains = |what: &[u8]| out.windows(what.len()).any(|part| part == what);
    assert!(contains(near.as_bytes()) && contains(b"\"missed\""), "{out:?}");
    // `recovered` and `was_recovering` of the subscription.
    assert!(contains(&[8 << 3, 1]) && contains(&[12 << 3, 1]), "{out:?}");
}
