//! Sessions of one client with a hub of one worker: what replies may cost, and what the application does with it.
//! In: messages of the client, instructions. Out: the messages for the client.

use super::*;
use crate::instruction::Addition;
use crate::token::Verifier;
use crate::token::tests::{key_set, public_token};
use tidegate_base::{Moment, Span};

const QUEUE_MAX: usize = 100_000;
const MESSAGES: u64 = 8;

/// A hub whose channel `a` has messages of 30,000 bytes, and a connected client.
struct Fixture {
    settings: Hubs,
    hub: Hub<u32>,
    client: Connection,
    room: usize,
    /// The effort of the last message.
    effort: u32,
    now: Moment,
}

impl Fixture {
    fn new() -> Self {
        Self::with("")
    }

    /// Adds these settings to those of the hub.
    fn with(settings: &str) -> Self {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\nanonymous = true\nsubscribe = \"anyone\"\n\
             history = 100\nread-history = \"anyone\"\npresence = true\nread-presence = \"anyone\"\n\
             queue-max = \"100000B\"\n{settings}"
        );
        let config = tidegate_config::parse(&text, "the test").unwrap_or_else(|e| panic!("{e}"));
        let settings = Hubs::new(&config);
        let mut hub = Hub::new(&settings, 0, 1);
        for number in 0..MESSAGES {
            let order = Order {
                hub: 0,
                origin: NodeId::OWN,
                channel: "a".into(),
                data: format!("\"{}\"", "x".repeat(30_000)).into(),
                tags: "".into(),
                info: "".into(),
                sender: "".into(),
                skip_history: false,
                idempotency_key: "".into(),
                waits: false,
                delta: false,
                event: "".into(),
            };
            let to = ReplyTo::Caller { key: 0, number: 1 };
            hub.call(&settings, to, Call::Publish(order), (Moment::ZERO, number));
        }
        let client = Connection::new(Codec::Json, [1, 2]);
        let now = Moment::ZERO;
        let mut fixture = Self { settings, hub, client, room: QUEUE_MAX, effort: 0, now };
        assert!(fixture.send("{\"id\":1,\"connect\":{}}").contains("\"connect\""));
        fixture
    }

    /// Sends a message. Returns the replies.
    fn send(&mut self, text: &str) -> String {
        self.work(|client, context, out| {
            let (mut rest, mut effort) = (text.as_bytes(), 0);
            loop {
                let used = client.receive(context, rest, out);
                let used = used.expect("the client stays connected");
                effort += core::mem::take(&mut context.effort);
                assert!(used > 0 || rest.is_empty(), "no progress");
                rest = &rest[used..];
                if rest.is_empty() {
                    break;
                }
            }
            context.effort = effort;
        })
    }

    /// Lets the client work. Returns the messages that it receives.
    fn work(
        &mut self,
        work: impl FnOnce(&mut Connection, &mut Context<'_, u32>, &mut Vec<u8>),
    ) -> String {
        let mut out = Vec::new();
        let mut context = Context {
            hub: &mut self.hub,
            settings: &self.settings,
            verifier: &Verifier::default(),
            may_verify: true,
            index: 0,
            key: 7,
            queue: None,
            at: (self.now, 3),
            unix_seconds: 1_000_000,
            ping_seconds: None,
            version: "test",
            room: self.room,
            effort: 0,
            request: None,
            is_reply_invalid: false,
            over_rate: 0,
        };
        work(&mut self.client, &mut context, &mut out);
        self.effort = context.effort;
        String::from_utf8(out).unwrap_or_default()
    }
}

fn subscribe(id: u64, offset: u64) -> String {
    format!(
        "{{\"id\":{id},\"subscribe\":{{\"channel\":\"a\",\"recover\":true,\"offset\":{offset}}}}}\n\
         {{\"id\":{},\"unsubscribe\":{{\"channel\":\"a\"}}}}\n",
        id + 1
    )
}

const TOO_MANY: &str = "\"code\":111";

#[test]
fn replies_to_one_message_fit_into_the_queue() {
    let mut fixture = Fixture::new();
    let message: String = (0..300).map(|at| subscribe(2 + 2 * at, MESSAGES - 2)).collect();
    let replies = fixture.send(&message);
    assert_eq!(replies.matches("\"recovered\":true").count(), 1);
    assert_eq!(replies.matches(TOO_MANY).count(), 299);
    assert!(replies.len() < QUEUE_MAX + 300 * 100, "{}", replies.len());
}

#[test]
fn client_that_does_not_read_gets_no_history() {
    let mut fixture = Fixture::new();
    fixture.room = 0;
    let history = "{\"id\":2,\"history\":{\"channel\":\"a\",\"limit\":5}}";
    assert!(fixture.send(history).contains(TOO_MANY));
    assert!(fixture.send(&subscribe(3, MESSAGES - 1)).contains(TOO_MANY));
    fixture.room = QUEUE_MAX;
    assert!(fixture.send(&subscribe(5, MESSAGES - 1)).contains("\"recovered\":true"));
}

#[test]
fn more_than_the_queue_takes_is_lost_and_history_comes_in_parts() {
    let mut fixture = Fixture::new();
    let replies = fixture.send(&subscribe(2, 0));
    assert!(!replies.contains(TOO_MANY) && !replies.contains("\"recovered\":true"));
    let history = "{\"id\":4,\"history\":{\"channel\":\"a\",\"limit\":100}}";
    assert_eq!(fixture.send(history).matches("\"data\"").count(), 3);
    fixture.room = 1;
    assert_eq!(fixture.send(history).matches("\"data\"").count(), 1, "one always fits");
}

#[test]
fn publications_beyond_the_rate_get_an_error_and_a_refused_one_uses_nothing() {
    let mut fixture =
        Fixture::with("publish = \"anyone\"\npublish-rate = \"3/3s\"\nmessage-max = \"9B\"\n");
    let one = |id: u32, data: &str| {
        format!("{{\"id\":{id},\"publish\":{{\"channel\":\"b\",\"data\":{data}}}}}\n")
    };
    assert!(fixture.send(&one(9, "\"longer than allowed\"")).contains("\"code\":106"));
    let burst: String = (10..15).map(|id| one(id, "1")).collect();
    for (seconds, published) in [(0, 3), (0, 0), (1, 1), (9, 3)] {
        fixture.now = Moment::ZERO.after(tidegate_base::Span::from_secs(seconds));
        let replies = fixture.send(&burst);
        assert_eq!(replies.matches("\"publish\":{}").count(), published, "{replies}");
        assert_eq!(replies.matches(TOO_MANY).count(), 5 - published, "{replies}");
    }
}

#[test]
fn channel_patterns_are_refused_with_a_message_that_states_it() {
    let mut fixture = Fixture::new();
    for channel in ["*", "news.*", "/users/:name"] {
        let text = format!("{{\"id\":2,\"subscribe\":{{\"channel\":\"{channel}\"}}}}");
        let reply = fixture.send(&text);
        assert!(reply.contains("\"code\":107,\"message\":\"channel patterns are not "), "{reply}");
    }
}

#[test]
fn subscriber_of_a_cache_gets_the_newest_message_and_no_other() {
    let mut fixture = Fixture::with("cache = true\n");
    for (rest, count) in [
        ("", 1),
        (",\"recover\":true,\"offset\":1", 1),
        (",\"recover\":true,\"offset\":8", 0),
        (",\"recover\":true,\"offset\":8,\"epoch\":\"bbbbbbbb\"", 1),
    ] {
        let text = format!("{{\"id\":2,\"subscribe\":{{\"channel\":\"a\"{rest}}}}}");
        let reply = fixture.send(&text);
        assert_eq!(reply.matches("\"data\"").count(), count, "{rest}");
        let offset = MESSAGES - count as u64;
        assert!(reply.contains(&format!("\"offset\":{offset}")), "{rest}: {reply:.300}");
        assert!(reply.contains("\"recovered\":true"), "{rest}");
        fixture.send("{\"id\":3,\"unsubscribe\":{\"channel\":\"a\"}}");
    }
    let reply = fixture.send("{\"id\":2,\"subscribe\":{\"channel\":\"empty\"}}");
    assert!(!reply.contains("was_recovering") && !reply.contains("error"), "{reply}");
}

#[test]
fn queries_of_a_message_are_limited() {
    let mut fixture = Fixture::new();
    let message: String = (2..102)
        .map(|id| format!("{{\"id\":{id},\"presence_stats\":{{\"channel\":\"a\"}}}}\n"))
        .collect();
    let replies = fixture.send(&message);
    assert_eq!(replies.matches(TOO_MANY).count(), 100 - QUERIES_MAX as usize);
}

#[test]
fn effort_of_a_message_grows_with_its_commands_queries_and_replies() {
    let mut fixture = Fixture::new();
    for (message, least, most) in [
        ("{}\n".repeat(500), 500, 500),
        (subscribe(2, MESSAGES), 33, 40),
        ("{\"id\":4,\"presence_stats\":{\"channel\":\"a\"}}\n".repeat(30), 960, 1000),
        (
            "{\"id\":5,\"history\":{\"channel\":\"a\",\"limit\":1}}".to_owned(),
            32 + 30_000 / 512,
            100,
        ),
    ] {
        fixture.send(&message);
        assert!((least..=most).contains(&fixture.effort), "{} {message:.80}", fixture.effort);
    }
}

#[test]
fn message_with_much_effort_is_left_for_a_later_turn() {
    let mut fixture = Fixture::new();
    let command = "{\"id\":4,\"presence_stats\":{\"channel\":\"a\"}}\n";
    let message = command.repeat(30);
    let mut calls = 0;
    fixture.work(|client, context, out| {
        let mut rest = message.as_bytes();
        while !rest.is_empty() {
            context.effort = 0;
            let used = client.receive(context, rest, out).expect("the client stays connected");
            let commands = used / command.len();
            assert!(commands <= 16 && context.effort < 512 + 64, "{commands} {}", context.effort);
            rest = &rest[used..];
            calls += 1;
        }
    });
    assert_eq!(calls, 2);
}

#[test]
fn each_call_verifies_one_signature_by_a_public_key() {
    let text = "[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\ntoken-keys = \"keys.json\"\n";
    let mut config = tidegate_config::parse(text, "the test").unwrap_or_else(|e| panic!("{e}"));
    let keys = |_: &str| Ok(key_set(1).into_bytes());
    assert_eq!(tidegate_config::supply(&mut config, keys), Ok(()));
    let settings = Hubs::new(&config);
    let (hub, client) = (Hub::new(&settings, 0, 1), Connection::new(Codec::Json, [1, 2]));
    let mut fixture =
        Fixture { settings, hub, client, room: QUEUE_MAX, effort: 0, now: Moment::ZERO };
    let command = |id: u8, name: &str, channel: &str| {
        let token = match channel {
            "" => public_token(1, "{\"sub\":\"7\"}"),
            _ => public_token(1, &format!("{{\"sub\":\"7\",\"channel\":\"{channel}\"}}")),
        };
        format!("{{\"id\":{id},\"{name}\":{{\"token\":\"{token}\",\"channel\":\"{channel}\"}}}}\n")
    };
    let commands = [
        command(1, "connect", ""),
        command(2, "subscribe", "a"),
        "{\"id\":3,\"publish\":{\"channel\":\"a\",\"data\":1}}\n".to_owned(),
        command(4, "subscribe", "b"),
        command(5, "sub_refresh", "a"),
        command(6, "refresh", ""),
    ];
    let message = commands.concat();
    let mut rest = message.as_str();
    for handled in
        [&commands[..1], &commands[1..3], &commands[3..4], &commands[4..5], &commands[5..]]
    {
        let out = fixture.work(|client, context, out| {
            let used = client.receive(context, rest.as_bytes(), out).expect("no disconnect");
            assert!(rest[..used].trim_end() == handled.concat().trim_end());
            rest = &rest[used..];
            // Until another signature may be verified, nothing more is handled.
            assert!(
                !context.may_verify && client.receive(context, rest.as_bytes(), out) == Ok(0)
                    || rest.is_empty()
            );
        });
        assert_eq!(out.matches("\"id\"").count(), handled.len(), "{out}");
        assert_eq!(out.contains("\"error\""), handled.len() == 2, "only the publication: {out}");
        assert!(fixture.effort >= effort::SIGNATURE);
    }
    assert!(rest.is_empty());
}

#[test]
fn token_without_a_representable_end_does_not_expire() {
    let mut fixture = Fixture::new();
    fixture.client.set_end(Some(u64::MAX));
    fixture.work(|client, context, out| assert_eq!(client.check(context, out), Ok(())));
}

/// A subscription of the application to channel `a`.
fn addition(since: Option<Since>) -> Addition {
    Addition {
        channel: "a".into(),
        since,
        data: Box::default(),
        info: Box::default(),
        expires_at: None,
        overrides: Overrides::default(),
    }
}

#[test]
fn client_whose_messages_were_dropped_subscribes_or_connects_again() {
    let channel: Arc<str> = "a".into();
    let mut fixture = Fixture::new();
    let end_lost = |fixture: &mut Fixture| {
        let mut result = Ok(());
        let told = fixture.work(|client, context, out| {
            result = client.end_lost(context, &channel, out);
        });
        (result, told, fixture.client.subscriptions())
    };
    assert_eq!(end_lost(&mut fixture), (Ok(()), String::new(), 0), "it is not subscribed");
    fixture.send("{\"id\":2,\"subscribe\":{\"channel\":\"a\"}}");
    let unsubscribe = "\"unsubscribe\":{\"code\":2500,\"reason\":\"insufficient state\"}";
    let told = format!("{{\"push\":{{\"channel\":\"a\",{unsubscribe}}}}}");
    assert_eq!(end_lost(&mut fixture), (Ok(()), told, 0));
    let without_recovery = Overrides { recovers: Some(false), ..Overrides::default() };
    for (overrides, expected) in
        [(without_recovery, Ok(())), (Overrides::default(), Err(Disconnect::INSUFFICIENT_STATE))]
    {
        fixture.work(|client, context, out| {
            client.add_subscription(context, &Addition { overrides, ..addition(None) }, out);
            let has_position = String::from_utf8_lossy(out).contains("\"recoverable\":true");
            assert_eq!(has_position, expected.is_err());
        });
        assert_eq!(end_lost(&mut fixture), (expected, String::new(), 1));
        fixture.work(|client, context, out| client.end_subscription(context, "a", out));
    }
}

#[test]
fn application_subscribes_and_unsubscribes_the_client() {
    let mut fixture = Fixture::new();
    let since = Some(Since::new("", MESSAGES - 1));
    let told = fixture.work(|client, context, out| {
        client.add_subscription(
            context,
            &Addition { data: "{\"x\":1}".into(), ..addition(since) },
            out,
        );
        // It is subscribed already.
        client.add_subscription(context, &addition(None), out);
    });
    let lines: Vec<&str> = told.split('\n').collect();
    assert_eq!(lines.len(), 2, "the subscription, and what was missed");
    assert!(lines[0].contains("\"offset\":7,\"data\":{\"x\":1}"), "{}", lines[0]);
    assert!(lines[1].contains("\"offset\":8"), "the push of a publication");
    assert_eq!((fixture.client.subscriptions(), fixture.hub.clients()), (1, 1));
    let told = fixture.work(|client, context, out| client.end_subscription(context, "a", out));
    let unsubscribe = "\"unsubscribe\":{\"code\":2000,\"reason\":\"server unsubscribe\"}";
    assert_eq!(told, format!("{{\"push\":{{\"channel\":\"a\",{unsubscribe}}}}}"));
    assert_eq!(fixture.client.subscriptions(), 0);
    assert!(
        fixture.work(|client, context, out| client.end_subscription(context, "a", out)).is_empty()
    );
}

#[test]
fn missed_messages_beyond_the_room_are_not_sent_after_a_subscription_of_the_application() {
    let mut fixture = Fixture::new();
    let told = fixture.work(|client, context, out| {
        client.add_subscription(context, &addition(Some(Since::new("", 0))), out);
    });
    assert!(!told.contains('\n') && told.contains("\"offset\":8"), "{told}");
}

#[test]
fn refresh_of_the_application_moves_the_end() {
    let mut fixture = Fixture::new();
    let told = fixture
        .work(|client, context, out| client.change_end(context, (Some(1_000_060), None), out));
    assert_eq!(told, "{\"push\":{\"refresh\":{\"expires\":true,\"ttl\":60}}}");
    let told =
        fixture.work(|client, context, out| client.change_end(context, (None, Some("[1]")), out));
    assert_eq!(told, "{\"push\":{\"refresh\":{}}}");
    assert!(fixture.client.visitor("").info.contains("\"conn_info\":[1]"));
}

#[test]
fn clients_that_have_left_are_not_instructed() {
    let mut fixture = Fixture::new();
    fixture.work(|client, context, _| {
        client.leave_all(context.hub, context.settings, (context.index, context.key));
    });
    assert_eq!(fixture.hub.clients(), 0);
}

/// A hub with filters, and its clients.
mod audiences {
    use super::*;
    use crate::fan_out::Delivery;
    use crate::publication::Form;

    const CONFIG: &str = "[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\nanonymous = true\nsubscribe = \"anyone\"\n\
        publish = \"anyone\"\nhistory = 100\ntag-filters = true\nexclude-sender = true\ndeltas = \"all\"\n\
        [push.p.namespace.plain]\nsubscribe = \"anyone\"\nhistory = 100\n\
        [push.p.namespace.calm]\nsubscribe = \"anyone\"\npublish = \"anyone\"\nconflate = \"1s\"\ntag-filters = true\n\
        exclude-sender = true\ndeltas = \"all\"\n";
    const ODD: &str = r#"{"key":"parity","cmp":"eq","val":"odd"}"#;

    struct Scene {
        settings: Hubs,
        hub: Hub<u32>,
        clients: Vec<Connection>,
    }

    impl Scene {
        fn new(clients: usize) -> Self {
            let config =
                tidegate_config::parse(CONFIG, "the test").unwrap_or_else(|e| panic!("{e}"));
            let settings = Hubs::new(&config);
            let hub = Hub::new(&settings, 0, 1);
            let client = |at: usize| Connection::new(Codec::Json, [1, at as u64]);
            let mut scene = Self { settings, hub, clients: (0..clients).map(client).collect() };
            for at in 0..clients {
                scene.send(at, "{\"id\":1,\"connect\":{}}");
            }
            scene
        }

        fn send(&mut self, at: usize, text: &str) -> String {
            let mut out = Vec::new();
            let mut context = Context {
                hub: &mut self.hub,
                settings: &self.settings,
                verifier: &Verifier::default(),
                may_verify: true,
                index: 0,
                key: at as u32,
                queue: None,
                at: (Moment::ZERO, 3),
                unix_seconds: 1_000_000,
                ping_seconds: None,
                version: "test",
                room: QUEUE_MAX,
                effort: 0,
                request: None,
                is_reply_invalid: false,
                over_rate: 0,
            };
            let received = self.clients[at].receive(&mut context, text.as_bytes(), &mut out);
            assert_eq!(received, Ok(text.len()), "{text}");
            String::from_utf8(out).unwrap_or_default()
        }

        fn subscribe(&mut self, at: usize, channel: &str, rest: &str) -> String {
            let text = format!("{{\"id\":2,\"subscribe\":{{\"channel\":\"{channel}\"{rest}}}}}");
            self.send(at, &text)
        }

        fn publish(&mut self, channel: &str, tags: &str) -> Option<Reply> {
            self.publish_with(channel, "1", tags)
        }

        fn publish_data(&mut self, channel: &str, data: &str) {
            assert!(matches!(self.publish_with(channel, data, ""), Some(Reply::Published { .. })));
        }

        fn publish_with(&mut self, channel: &str, data: &str, tags: &str) -> Option<Reply> {
            let order = Order {
                hub: 0,
                origin: NodeId::OWN,
                channel: channel.into(),
                data: data.into(),
                tags: tags.into(),
                info: "".into(),
                sender: "".into(),
                skip_history: false,
                idempotency_key: "".into(),
                waits: false,
                delta: false,
                event: "".into(),
            };
            let to = ReplyTo::Caller { key: 0, number: 1 };
            self.hub.call(&self.settings, to, Call::Publish(order), (Moment::ZERO, 9))
        }

        /// The clients that get the next publication.
        fn receivers(&mut self) -> Vec<u32> {
            let mut keys = Vec::new();
            let Some(slice) = self.hub.deliver(1 << 20, |_| 1, &mut keys) else { return keys };
            keys.retain(|key| self.clients[*key as usize].chosen(&slice.publication).is_some());
            self.hub.end_slice(slice, Delivery::default());
            keys
        }
    }

    #[test]
    fn filters_select_messages_by_their_tags() {
        let mut scene = Scene::new(3);
        scene.subscribe(0, "a", "");
        scene.subscribe(1, "a", &format!(",\"tf\":{ODD}"));
        scene.subscribe(2, "a", &format!(",\"tf\":{{\"op\":\"not\",\"nodes\":[{ODD}]}}"));
        for (tags, expected) in [
            ("", &[0, 2][..]),
            ("{\"parity\":\"odd\"}", &[0, 1]),
            ("{\"parity\":\"even\"}", &[0, 2]),
            ("{\"a\":\"b\",\"parity\":\"odd\"}", &[0, 1]),
        ] {
            assert!(matches!(scene.publish("a", tags), Some(Reply::Published { .. })));
            assert_eq!(scene.receivers(), expected, "{tags}");
        }
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(crate::filter::TAGS_BYTES_MAX));
        assert!(matches!(scene.publish("a", &long), Some(Reply::Failed(Error::LimitExceeded))));
        assert!(matches!(scene.publish("plain:a", &long), Some(Reply::Published { .. })));
    }

    #[test]
    fn filters_are_refused_where_they_are_not_allowed_or_wrong() {
        let mut scene = Scene::new(1);
        for (channel, filter, is_accepted) in [
            ("plain:a", ODD, false),
            ("a", "{}", false),
            ("a", "{\"op\":\"xor\",\"nodes\":[{}]}", false),
            ("a", ODD, true),
        ] {
            let reply = scene.subscribe(0, channel, &format!(",\"tf\":{filter}"));
            assert_eq!(reply.contains("\"code\":107"), !is_accepted, "{channel} {filter} {reply}");
        }
    }

    #[test]
    fn filters_of_a_connection_are_bounded_and_given_back() {
        let mut scene = Scene::new(1);
        let long = format!("{{\"key\":\"a\",\"cmp\":\"eq\",\"val\":\"{}\"}}", "x".repeat(4000));
        let tf = format!(",\"tf\":{long}");
        let accepted = |scene: &mut Scene| {
            (0..20)
                .take_while(|at| !scene.subscribe(0, &format!("a{at}"), &tf).contains("106"))
                .count()
        };
        assert_eq!(accepted(&mut scene), FILTERS_BYTES_MAX / 4096);
        assert!(!scene.subscribe(0, "b", "").contains("error"), "without a filter");
        for at in 0..20 {
            scene.send(0, &format!("{{\"id\":9,\"unsubscribe\":{{\"channel\":\"a{at}\"}}}}"));
        }
        assert_eq!(scene.clients[0].filters_bytes, 0);
        assert_eq!(accepted(&mut scene), FILTERS_BYTES_MAX / 4096, "room again");
    }

    #[test]
    fn filters_exclude_deltas() {
        let mut scene = Scene::new(2);
        let filtered = scene.subscribe(0, "a", &format!(",\"delta\":\"fossil\",\"tf\":{ODD}"));
        let whole = scene.subscribe(1, "a", ",\"delta\":\"fossil\"");
        assert!(!filtered.contains("\"delta\":true") && whole.contains("\"delta\":true"));
    }

    #[test]
    fn recovery_skips_what_the_filter_does_not_admit_and_keeps_the_position() {
        let mut scene = Scene::new(3);
        for number in 1..=6 {
            let parity = if number % 2 == 1 { "odd" } else { "even" };
            scene.publish("a", &format!("{{\"parity\":\"{parity}\"}}"));
        }
        let recover = |offset: u64, filter: &str| {
            format!(",\"recover\":true,\"offset\":{offset},\"tf\":{filter}")
        };
        let reply = scene.subscribe(0, "a", &recover(2, ODD));
        assert_eq!(reply.matches("\"data\"").count(), 2, "{reply}");
        assert!(reply.contains("\"offset\":3,\"tags\"") && reply.contains("\"offset\":5,\"tags\""));
        assert!(reply.contains("\"recovered\":true") && reply.contains(",\"offset\":2,"));
        // Nothing is left: the client continues after the newest message.
        let none = ODD.replace("odd", "none");
        let reply = scene.subscribe(1, "a", &recover(2, &none));
        assert!(
            reply.contains("\"recovered\":true") && reply.contains(",\"offset\":6,"),
            "{reply}"
        );
        // Lost messages are lost with a filter, too.
        let reply = scene.subscribe(2, "a", &recover(9, ODD));
        assert!(reply.contains("\"was_recovering\":true") && !reply.contains("\"recovered\":true"));
    }

    #[test]
    fn client_does_not_get_what_it_has_published() {
        let mut scene = Scene::new(3);
        for at in 0..3 {
            scene.subscribe(at, "a", "");
            scene.subscribe(at, "plain:a", "");
        }
        scene.send(1, "{\"id\":3,\"publish\":{\"channel\":\"a\",\"data\":1}}");
        assert_eq!(scene.receivers(), [0, 2]);
        scene.publish("a", "");
        assert_eq!(scene.receivers(), [0, 1, 2]);
    }

    /// What each client gets of the messages that are delivered now: the data of the newest, and the form.
    fn received(scene: &mut Scene) -> Vec<Vec<(String, Form)>> {
        let mut got = vec![Vec::new(); scene.clients.len()];
        let mut keys = Vec::new();
        while let Some(slice) = scene.hub.deliver(1 << 20, |_| 1, &mut keys) {
            for key in keys.drain(..) {
                let client = &mut scene.clients[key as usize];
                let Some(one) = client.chosen(&slice.publication) else { continue };
                let form = client.choose_form(one);
                let push = String::from_utf8(one.message(form).to_vec());
                got[key as usize].push((push.unwrap_or_default(), form));
            }
            scene.hub.end_slice(slice, Delivery::default());
        }
        got
    }

    #[test]
    fn conflation_keeps_the_newest_message_that_each_client_accepts() {
        let mut scene = Scene::new(4);
        let channel = "calm:a";
        for (at, rest) in
            ["", &format!(",\"tf\":{ODD}"), ",\"delta\":\"fossil\"", ""].iter().enumerate()
        {
            scene.subscribe(at, channel, rest);
        }
        for tag in ["even", "odd", "even"] {
            scene.publish(channel, &format!("{{\"parity\":\"{tag}\"}}"));
        }
        let counts = |got: Vec<Vec<(String, Form)>>| -> Vec<usize> {
            got.iter().map(|messages| messages.len()).collect()
        };
        assert_eq!(counts(received(&mut scene)), [1, 0, 1, 1], "the first message");
        let second = Moment::ZERO.after(Span::from_secs(1));
        assert_eq!(scene.hub.publish_due(second), 0);
        let got = received(&mut scene);
        for (at, tag) in ["even", "odd", "even", "even"].iter().enumerate() {
            let [(push, _)] = &got[at][..] else { panic!("{at}: {got:?}") };
            assert!(push.contains(&format!("\"parity\":\"{tag}\"")), "{at}: {push}");
        }
        // Another client publishes, and then client 2 and client 3: each gets the newest message of another one.
        for (at, data) in [(0, 10), (3, 12), (2, 11), (3, 13)] {
            let data = format!("{{\"channel\":\"{channel}\",\"data\":{data}}}");
            scene.send(at, &format!("{{\"id\":3,\"publish\":{data}}}"));
        }
        scene.hub.publish_due(second.after(Span::from_secs(1)));
        let got = received(&mut scene);
        assert!(got[1].is_empty(), "the filter admits none: {got:?}");
        for (at, data) in [(0, "13"), (2, "13"), (3, "11")] {
            let [(push, _)] = &got[at][..] else { panic!("{at}: {got:?}") };
            assert!(push.contains(data), "{at}: {push}");
        }
    }

    #[test]
    fn client_that_gets_an_older_message_gets_whole_data() {
        let mut scene = Scene::new(1);
        let channel = "calm:a";
        scene.subscribe(0, channel, ",\"delta\":\"fossil\"");
        let long = "x".repeat(200);
        let mut second = Moment::ZERO;
        let mut forms = Vec::new();
        for number in 0..4 {
            scene.publish_data(channel, &format!("\"{long}{number}\""));
            if number == 2 {
                scene.publish_data(channel, &format!("\"{long}older\""));
                let data = format!("{{\"channel\":\"{channel}\",\"data\":\"{long}own\"}}");
                scene.send(0, &format!("{{\"id\":3,\"publish\":{data}}}"));
            }
            second = second.after(Span::from_secs(1));
            scene.hub.publish_due(second);
            forms.extend(received(&mut scene).remove(0).into_iter().map(|(_, form)| form));
        }
        let (text, patch) = (Form::JsonText, Form::JsonPatch);
        // The older message comes whole, and is not the base of the next one.
        assert_eq!(forms, [text, patch, patch, text, text]);
    }

    #[test]
    fn null_is_data_and_absent_data_is_refused() {
        let mut scene = Scene::new(1);
        for (data, error) in [(",\"data\":null", false), (",\"data\":{}", false), ("", true)] {
            let text = format!("{{\"id\":3,\"publish\":{{\"channel\":\"a\"{data}}}}}");
            let reply = scene.send(0, &text);
            assert_eq!(reply.contains("\"code\":107"), error, "{data}: {reply}");
        }
        for (data, published) in [
            (",\"data\":null", Some("null")),
            (",\"data\":null,\"b64data\":\"MQ==\"", Some("1")),
            (",\"b64data\":\"bnVsbA==\"", Some("null")),
            (",\"data\":1,\"b64data\":\"MQ==\"", None),
            ("", None),
        ] {
            let body = format!("{{\"channel\":\"a\"{data}}}");
            let settings = scene.settings.get(0).expect("the hub");
            let (_, calls) = crate::api::ApiCall::begin((0, settings), "publish", &body)
                .unwrap_or_else(|_| panic!("{body}"));
            let found = calls.first().map(|call| match call {
                Call::Publish(order) => order.data.to_string(),
                other => panic!("{other:?}"),
            });
            assert_eq!(found.as_deref(), published, "{body}");
        }
    }
}
