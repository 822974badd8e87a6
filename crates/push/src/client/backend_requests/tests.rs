//! A client of a hub with a backend: commands wait for the decision of the backend, which may change them.
//! In: messages of the client, decisions. Out: requests, replies.

use tidegate_base::Moment;
use tidegate_config::model::BackendEvent;

use crate::backend::Failure;
use crate::client::backend_requests::{BackendRequestKind, Disconnection};
use crate::client::codec::Codec;
use crate::client::command::COMMANDS_MAX;
use crate::client::{Connection, Context, Disconnect};
use crate::hub::Hub;
use crate::settings::Hubs;
use crate::token::Verifier;

const CONFIG: &str = "[[listener]]\nbind = \"127.0.0.1:80\"\n[pool.app]\nservers = [\"127.0.0.1:1\"]\n[push.p]\n\
    backend-events = [\"subscribe\", \"publish\", \"sub-refresh\"]\npresence = true\nread-presence = \"anyone\"\n\
    history = 10\nread-history = \"anyone\"\n[push.p.namespace.open]\nsubscribe = \"anyone\"\n\
    [push.p.backend]\npool = \"app\"\nconnect = \"/c\"\nrefresh = \"/r\"\nsubscribe = \"/s\"\npublish = \"/p\"\n\
    sub-refresh = \"/sr\"\nrpc = \"/rpc\"\nrpc-namespaces = [\"chat\"]\n";
const NOW: u64 = 1_000_000;

struct Fixture {
    settings: Hubs,
    hub: Hub<u32>,
    client: Connection,
    now: u64,
    /// The latest request.
    request: Option<(BackendEvent, String)>,
}

impl Fixture {
    /// A client that has not connected.
    fn new() -> Self {
        let config = tidegate_config::parse(CONFIG, "the test").unwrap_or_else(|e| panic!("{e}"));
        let settings = Hubs::new(&config);
        let hub = Hub::new(&settings, 0, 1);
        let fields = b"cookie: a=b\n".as_slice().into();
        let client = Connection::new(Codec::Json, [1, 2]).with_backend("websocket", fields);
        Self { settings, hub, client, now: NOW, request: None }
    }

    /// A client that the backend has accepted as user 7.
    fn connected() -> Self {
        let mut fixture = Self::new();
        fixture.send("{\"id\":1,\"connect\":{}}");
        let reply = fixture.answer("{\"result\":{\"user\":\"7\",\"meta\":{\"m\":1}}}");
        assert!(reply.contains("\"connect\""), "{reply}");
        fixture
    }

    fn work<T>(
        &mut self,
        work: impl FnOnce(&mut Connection, &mut Context<'_, u32>, &mut Vec<u8>) -> T,
    ) -> (T, String) {
        let mut out = Vec::new();
        let mut context = Context {
            hub: &mut self.hub,
            settings: &self.settings,
            verifier: &Verifier::default(),
            may_verify: true,
            index: 0,
            key: 7,
            queue: None,
            at: (Moment::ZERO, 3),
            unix_seconds: self.now,
            ping_seconds: None,
            version: "test",
            room: 100_000,
            effort: 0,
            request: None,
            is_reply_invalid: false,
            over_rate: 0,
        };
        let result = work(&mut self.client, &mut context, &mut out);
        self.request = context
            .request
            .map(|asked| (asked.event, String::from_utf8(asked.body).expect("text")));
        (result, String::from_utf8(out).expect("text"))
    }

    /// Sends a message. Returns how much of it was handled, and the replies.
    fn send(&mut self, text: &str) -> (usize, String) {
        let (used, out) =
            self.work(|client, context, out| client.receive(context, text.as_bytes(), out));
        (used.expect("no disconnect"), out)
    }

    /// Hands over a response of the backend about a command. Returns the replies.
    fn answer(&mut self, body: &str) -> String {
        let (result, out) = self.give(Ok(body));
        assert_eq!(result, Ok(()));
        out
    }

    fn give(&mut self, body: Result<&str, Failure>) -> (Result<(), Disconnection>, String) {
        self.give_about(BackendRequestKind::Command, body)
    }

    /// Hands over a response about a connection or subscription that has expired.
    fn decide(&mut self, body: Result<&str, Failure>) -> (Result<(), Disconnection>, String) {
        self.give_about(BackendRequestKind::Expiry, body)
    }

    fn give_about(
        &mut self,
        request_kind: BackendRequestKind,
        body: Result<&str, Failure>,
    ) -> (Result<(), Disconnection>, String) {
        let body = body.map(str::as_bytes);
        self.work(|client, context, out| client.take_decision(context, request_kind, body, out))
    }

    /// A client that is subscribed to these channels until `NOW + 10`, as is its connection.
    fn subscribed(channels: &[&str]) -> Self {
        let mut fixture = Self::new();
        fixture.send("{\"id\":1,\"connect\":{}}");
        fixture.answer("{\"result\":{\"user\":\"7\",\"expire_at\":1000010}}");
        for channel in channels {
            fixture.subscribe(channel, NOW + 10);
        }
        fixture
    }

    fn subscribe(&mut self, channel: &str, until: u64) {
        self.send(&format!("{{\"id\":2,\"subscribe\":{{\"channel\":\"{channel}\"}}}}"));
        let out = self.answer(&format!("{{\"result\":{{\"expire_at\":{until}}}}}"));
        assert!(out.contains("\"subscribe\":{"), "{out}");
    }

    /// The channel of the latest request.
    fn asked_channel(&self) -> &str {
        let (event, body) = self.asked();
        assert_eq!(event, BackendEvent::SubRefresh);
        body.rsplit('"').nth(1).expect("a channel")
    }

    fn check(&mut self) -> (Result<(), Disconnect>, String) {
        self.work(|client, context, out| client.check(context, out))
    }

    fn asked(&self) -> (BackendEvent, &str) {
        let (event, body) = self.request.as_ref().expect("a request");
        (*event, body)
    }
}

const SUBSCRIBE: &str = "{\"id\":2,\"subscribe\":{\"channel\":\"a\",\"data\":{\"d\":1}}}";

#[test]
fn commands_wait_until_the_backend_has_decided_about_earlier_commands() {
    let mut fixture = Fixture::new();
    let connect = "{\"id\":1,\"connect\":{\"data\":[1],\"name\":\"js\"}}\n";
    let (used, out) = fixture.send(&format!("{connect}{SUBSCRIBE}"));
    assert_eq!((used, out.as_str()), (connect.len(), ""));
    let (event, body) = fixture.asked();
    assert_eq!(event, BackendEvent::Connect);
    assert!(body.ends_with("\"encoding\":\"json\",\"name\":\"js\",\"data\":[1]}"), "{body}");
    assert!(fixture.client.awaits_backend() && !fixture.client.is_connected());
    assert_eq!(fixture.send(SUBSCRIBE).0, 0, "nothing is handled");
    let reply = fixture.answer("{\"result\":{\"user\":\"7\",\"data\":{\"x\":2}}}");
    assert!(reply.starts_with("{\"id\":1,\"connect\":{") && reply.contains("\"data\":{\"x\":2}"));
    let (used, _) = fixture.send(SUBSCRIBE);
    assert_eq!(used, SUBSCRIBE.len());
    let (event, body) = fixture.asked();
    assert_eq!(event, BackendEvent::Subscribe);
    assert!(body.ends_with("\"user\":\"7\",\"channel\":\"a\",\"data\":{\"d\":1}}"), "{body}");
}

#[test]
fn limits_of_a_message_apply_after_backend_requests() {
    let mut fixture = Fixture::connected();
    let rpc = "{\"id\":2,\"rpc\":{\"method\":\"a\"}}\n";
    let query = "{\"id\":3,\"presence\":{\"channel\":\"a\"}}\n";
    let message = format!("{rpc}{}{rpc}{query}", query.repeat(32));
    for _ in 0..2 {
        let (mut used, mut replies) = (0, String::new());
        while used < message.len() {
            let (more, out) = fixture.send(&message[used..]);
            used += more;
            replies.push_str(&out);
            if fixture.client.awaits_backend() {
                fixture.answer("{\"result\":{}}");
            }
        }
        assert_eq!(replies.matches("\"presence\":{}").count(), 32, "{replies}");
        assert_eq!(replies.matches("\"code\":111").count(), 1, "{replies}");
    }
    let message = rpc.repeat(COMMANDS_MAX + 1);
    for at in 0..COMMANDS_MAX {
        assert_eq!(fixture.send(&message[at * rpc.len()..]).0, rpc.len());
        fixture.answer("{\"result\":{}}");
    }
    let last = rpc.as_bytes();
    let (result, _) = fixture.work(|client, context, out| client.receive(context, last, out));
    assert_eq!(result, Err(Disconnect::BAD_REQUEST));
}

#[test]
fn connect_follows_the_decision() {
    for (body, expected) in [
        (Ok("{\"error\":{\"code\":1000,\"message\":\"no\"}}"), "\"code\":1000,\"message\":\"no\"}"),
        (
            Err(Failure::Down),
            "\"code\":100,\"message\":\"internal server error\",\"temporary\":true",
        ),
        (Err(Failure::Busy), "\"code\":111,\"message\":\"too many requests\",\"temporary\":true"),
        (Ok("<html>"), "\"code\":100"),
        (Ok("{\"result\":{\"expire_at\":999999}}"), "\"code\":110"),
        (Ok("{\"result\":{\"b64info\":\"/w==\"}}"), "\"code\":100"),
    ] {
        let mut fixture = Fixture::new();
        fixture.send("{\"id\":1,\"connect\":{}}");
        let (result, out) = fixture.give(body);
        assert!(result == Ok(()) && out.contains(expected), "{body:?}: {out}");
        assert!(!fixture.client.is_connected());
        let (used, out) = fixture.send(SUBSCRIBE);
        assert_eq!((used, out.as_str()), (SUBSCRIBE.len(), ""), "the rest is ignored");
        assert_eq!(fixture.check().0, Err(Disconnect::CLOSED));
    }
    for (body, expected) in [
        (
            "{\"disconnect\":{\"code\":4501,\"reason\":\"no\"}}",
            Disconnection::Application(4501, "no".into()),
        ),
        ("{}", Disconnection::Own(Disconnect::BAD_REQUEST)),
    ] {
        let mut fixture = Fixture::new();
        fixture.send("{\"id\":1,\"connect\":{}}");
        assert_eq!(fixture.give(Ok(body)).0, Err(expected));
    }
}

#[test]
fn channels_of_the_decision_are_subscribed() {
    let mut fixture = Fixture::new();
    fixture.send("{\"id\":1,\"connect\":{}}");
    let out = fixture
        .answer("{\"result\":{\"user\":\"7\",\"channels\":[\"a\"],\"subs\":{\"b\":{\"data\":1}}}}");
    assert!(out.contains("\"subs\":{\"a\":{\"recoverable\":true,"), "{out}");
    assert!(out.contains(",\"b\":{") && out.ends_with("\"data\":1}}}}"), "{out}");
    assert_eq!(fixture.client.subscriptions(), 2);
    let mut fixture = Fixture::new();
    fixture.send("{\"id\":1,\"connect\":{}}");
    let out = fixture.answer("{\"result\":{\"user\":\"7\",\"channels\":[\"a\",\"no:a\"]}}");
    assert!(out.starts_with("{\"id\":1,\"error\":{\"code\":102,"), "{out}");
    assert_eq!((fixture.client.subscriptions(), fixture.client.is_connected()), (0, false));
}

#[test]
fn subscriptions_follow_the_decision() {
    let mut fixture = Fixture::connected();
    fixture.send(SUBSCRIBE);
    let out = fixture.answer("{\"error\":{\"code\":103,\"message\":\"permission denied\"}}");
    assert!(out.contains("\"code\":103"), "{out}");
    for body in ["{}", "{\"result\":{\"b64data\":\"/w==\"}}"] {
        fixture.send(SUBSCRIBE);
        assert!(fixture.answer(body).contains("\"code\":100"), "{body}");
    }
    fixture.send(SUBSCRIBE);
    let out =
        fixture.answer("{\"result\":{\"info\":{\"role\":1},\"data\":[2],\"expire_at\":1000060}}");
    assert!(out.contains("\"subscribe\":{") && out.contains("\"data\":[2]"), "{out}");
    assert!(!out.contains("\"ttl\""), "the backend renews it: {out}");
    let (_, out) = fixture.send("{\"id\":3,\"presence\":{\"channel\":\"a\"}}");
    assert!(out.contains("\"chan_info\":{\"role\":1}"), "{out}");
    // The backend gets no requests about other namespaces, nor about names that need a token.
    let (_, out) = fixture.send("{\"id\":4,\"subscribe\":{\"channel\":\"open:a\"}}");
    assert!(out.contains("\"id\":4,\"subscribe\"") && fixture.request.is_none(), "{out}");
    let (_, out) = fixture.send("{\"id\":5,\"subscribe\":{\"channel\":\"$a\"}}");
    assert!(out.contains("\"code\":103") && fixture.request.is_none(), "{out}");
}

#[test]
fn decision_may_replace_the_data_of_a_publication() {
    let mut fixture = Fixture::connected();
    let publish = "{\"id\":2,\"publish\":{\"channel\":\"a\",\"data\":{\"n\":1}}}";
    for (body, expected) in [
        ("{\"result\":{}}", "{\"n\":1}"),
        ("{\"result\":{\"data\":{\"n\":2},\"tags\":{\"k\":\"v\"}}}", "{\"n\":2}"),
    ] {
        fixture.send(publish);
        assert_eq!(fixture.asked().0, BackendEvent::Publish);
        assert!(fixture.answer(body).contains("\"publish\":{}"));
        let (_, out) =
            fixture.send("{\"id\":3,\"history\":{\"channel\":\"a\",\"limit\":1,\"reverse\":true}}");
        assert!(out.contains(expected), "{out}");
    }
    fixture.send(publish);
    assert!(fixture.give(Err(Failure::Down)).1.contains("\"code\":100"));
    let (_, out) = fixture.send("{\"id\":4,\"publish\":{\"channel\":\"open:a\",\"data\":1}}");
    assert!(out.contains("\"code\":103") && fixture.request.is_none(), "{out}");
}

#[test]
fn calls_return_what_the_backend_returns() {
    let mut fixture = Fixture::connected();
    fixture.send("{\"id\":2,\"rpc\":{\"method\":\"chat:add\",\"data\":[1,2]}}");
    assert!(fixture.asked().1.ends_with(",\"method\":\"chat:add\",\"data\":[1,2]}"));
    assert_eq!(fixture.answer("{\"result\":{\"data\":3}}"), "{\"id\":2,\"rpc\":{\"data\":3}}");
    fixture.send("{\"id\":3,\"rpc\":{\"method\":\"add\"}}");
    assert_eq!(fixture.answer("{\"result\":{}}"), "{\"id\":3,\"rpc\":{}}");
    let (_, out) = fixture.send("{\"id\":4,\"rpc\":{\"method\":\"other:add\"}}");
    assert!(out.contains("\"code\":104") && fixture.request.is_none(), "{out}");
}

#[test]
fn backend_renews_connections_and_subscriptions() {
    let mut fixture = Fixture::new();
    fixture.send("{\"id\":1,\"connect\":{}}");
    let out = fixture.answer("{\"result\":{\"user\":\"7\",\"expire_at\":1000010}}");
    assert!(!out.contains("\"ttl\""), "the client does not renew it: {out}");
    fixture.subscribe("a", NOW + 20);
    assert_eq!(fixture.check().0, Ok(()));
    assert!(fixture.request.is_none(), "nothing is due");
    fixture.now += 30;
    assert_eq!(fixture.check().0, Ok(()));
    assert_eq!(fixture.asked().0, BackendEvent::Refresh);
    assert_eq!(fixture.decide(Ok("{\"result\":{\"expire_at\":1000100}}")).0, Ok(()));
    assert_eq!(fixture.asked_channel(), "a", "one after the other");
    assert_eq!(fixture.decide(Err(Failure::Down)).0, Ok(()));
    assert!(fixture.request.is_none());
    // The backend is asked again after a minute.
    fixture.now += 59;
    assert_eq!(fixture.check().0, Ok(()));
    assert!(fixture.request.is_none());
    fixture.now += 1;
    assert_eq!(fixture.check().0, Ok(()));
    assert_eq!(fixture.asked_channel(), "a");
    let (_, out) = fixture.decide(Ok("{\"result\":{\"expired\":true}}"));
    assert!(out.contains("\"unsubscribe\":{\"code\":2501"), "{out}");
    fixture.now += 60;
    assert_eq!(fixture.check().0, Ok(()));
    assert_eq!(fixture.decide(Ok("{}")).0, Err(Disconnection::Own(Disconnect::EXPIRED)));
}

#[test]
fn backend_error_ends_the_connection_or_subscription_that_expires() {
    let refused = "{\"error\":{\"code\":403,\"message\":\"no\",\"temporary\":true}}";
    let mut fixture = Fixture::subscribed(&["a"]);
    fixture.now += 10;
    assert_eq!(fixture.check().0, Ok(()));
    assert_eq!(fixture.decide(Ok(refused)).0, Err(Disconnection::Own(Disconnect::EXPIRED)));
    let mut fixture = Fixture::connected();
    fixture.subscribe("a", NOW + 10);
    fixture.now += 10;
    assert_eq!(fixture.check().0, Ok(()));
    let (result, out) = fixture.decide(Ok(refused));
    assert!(result.is_ok() && out.contains("\"unsubscribe\":{\"code\":2501"), "{out}");
}

#[test]
fn requests_about_expiry_and_commands_do_not_wait_for_each_other() {
    let mut fixture = Fixture::subscribed(&["a"]);
    let rpc = "{\"id\":2,\"rpc\":{\"method\":\"a\"}}";
    fixture.send(rpc);
    fixture.now += 30;
    assert_eq!(fixture.check().0, Ok(()));
    assert_eq!(fixture.asked().0, BackendEvent::Refresh, "a command waits for its decision");
    fixture.answer("{\"result\":{}}");
    // Commands continue while requests about expiry fail.
    assert_eq!(fixture.decide(Err(Failure::Busy)).0, Ok(()));
    assert_eq!(fixture.asked_channel(), "a");
    assert_eq!(fixture.send(rpc).0, rpc.len());
    assert_eq!(fixture.asked().0, BackendEvent::Rpc);
    assert_eq!(fixture.answer("{\"result\":{}}"), "{\"id\":2,\"rpc\":{}}");
}

#[test]
fn backend_that_does_not_decide_postpones_an_end_for_ten_minutes() {
    for failure in [Failure::Down, Failure::Busy] {
        let mut fixture = Fixture::connected();
        fixture.subscribe("a", NOW + 10);
        let mut checked = |until: u64, expected: &str| {
            let mut requests = 0;
            while fixture.now < until {
                fixture.now += 10;
                let (result, out) = fixture.check();
                assert_eq!((result, out.as_str()), (Ok(()), expected), "at {}", fixture.now);
                if fixture.request.is_some() {
                    requests += 1;
                    assert_eq!(fixture.decide(Err(failure)), (Ok(()), String::new()));
                }
            }
            requests
        };
        assert_eq!(checked(NOW + 610, ""), 11);
        let ended = "{\"push\":{\"channel\":\"a\",\"unsubscribe\":{\"code\":2501,\"reason\":\"subscription expired\"}}}";
        checked(NOW + 620, ended);
        let mut fixture = Fixture::subscribed(&[]);
        fixture.now += 610;
        assert_eq!(fixture.check().0, Ok(()));
        assert_eq!(
            fixture.decide(Ok("{\"result\":{\"expire_at\":-1}}")).0,
            Ok(()),
            "an invalid decision"
        );
        fixture.now += 1;
        assert_eq!(fixture.check().0, Err(Disconnect::EXPIRED));
    }
}

#[test]
fn round_ends_after_some_failures_and_the_next_round_continues_there() {
    let mut fixture = Fixture::connected();
    for channel in ["a", "b", "c", "d", "e", "f"] {
        fixture.subscribe(channel, NOW + 10);
    }
    for expected in ["abcd", "efab", "cdef"] {
        fixture.now += 60;
        assert_eq!(fixture.check().0, Ok(()));
        let mut asked = String::new();
        while fixture.request.is_some() {
            asked.push_str(fixture.asked_channel());
            assert_eq!(fixture.decide(Err(Failure::Down)).0, Ok(()));
        }
        assert_eq!(asked, expected);
    }
}

#[test]
fn decision_does_not_concern_a_later_subscription_to_the_same_channel() {
    for decision in ["{\"result\":{\"expired\":true}}", "{\"result\":{\"expire_at\":1000900}}"] {
        let mut fixture = Fixture::connected();
        fixture.subscribe("a", NOW + 10);
        fixture.now += 10;
        assert_eq!(fixture.check().0, Ok(()));
        assert_eq!(fixture.asked_channel(), "a");
        fixture.send("{\"id\":3,\"unsubscribe\":{\"channel\":\"a\"}}");
        fixture.subscribe("a", NOW + 70);
        assert_eq!(fixture.decide(Ok(decision)), (Ok(()), String::new()));
        assert_eq!(fixture.client.subscriptions(), 1);
        fixture.now += 60;
        assert_eq!(fixture.check().0, Ok(()));
        assert_eq!(fixture.asked_channel(), "a", "the later subscription has expired");
    }
}

#[test]
fn client_does_not_renew_what_the_backend_renews() {
    let mut fixture = Fixture::new();
    fixture.send("{\"id\":1,\"connect\":{}}");
    fixture.answer("{\"result\":{\"user\":\"7\",\"expire_at\":1000010}}");
    let message = b"{\"id\":2,\"refresh\":{\"token\":\"a\"}}";
    let (result, _) = fixture.work(|client, context, out| client.receive(context, message, out));
    assert_eq!(result, Err(Disconnect::BAD_REQUEST));
}
