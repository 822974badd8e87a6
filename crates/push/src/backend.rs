//! Calls to the application's backend, in the HTTP protocol of Centrifugo's proxy.
//! In: an action of a client, and the data about the client; the body of a response. Out: the body of a request; the decision.
//! Never: takes part of a reply that is malformed; sends anything.
//! Limits: `REASON_BYTES_MAX`; those of the response. Data of a reply is JSON that is not nested too deep.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::api::encode_text;
use crate::client::codec::{Codec, Malformed};
use crate::client_name::ClientName;
use crate::publication::{in_one_line, is_too_deep};
use crate::server_subscription::{ServerSubscription, Subs, collect, json_of};

/// The longest reason of a disconnect (RFC 6455 section 5.5).
const REASON_BYTES_MAX: usize = 123;

/// The client that an event is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its name.
    pub client: ClientName,
    /// How it is connected, such as "websocket".
    pub transport: &'static str,
    /// The encoding of its messages.
    pub codec: Codec,
    /// Its user; `None` if it is not known yet.
    pub user: Option<&'a str>,
    /// The backend's data about the connection (`meta`): JSON; empty: no data.
    pub meta: &'a str,
}

/// An event of a client about which the backend decides.
#[derive(Clone, Copy, Debug)]
pub enum ClientEvent<'a> {
    /// It connects.
    Connect {
        /// The name of its library.
        name: &'a str,
        /// The version of its library.
        version: &'a str,
        /// What it states: JSON; empty: nothing.
        data: &'a str,
    },
    /// Its time has run out.
    Refresh,
    /// It subscribes.
    Subscribe {
        /// The channel.
        channel: &'a str,
        /// What it states: JSON; empty: nothing.
        data: &'a str,
    },
    /// It publishes.
    Publish {
        /// The channel.
        channel: &'a str,
        /// The message: JSON.
        data: &'a str,
    },
    /// The time of a subscription has run out.
    SubRefresh {
        /// The channel.
        channel: &'a str,
    },
    /// It calls a method.
    Rpc {
        /// The method.
        method: &'a str,
        /// The arguments: JSON; empty: none.
        data: &'a str,
    },
}

/// Appends the body of a request: an object of JSON.
pub fn encode_request(out: &mut Vec<u8>, subject: &Subject<'_>, deed: &ClientEvent<'_>) {
    begin_subject(out, subject);
    match *deed {
        ClientEvent::Connect { name, version, data } => {
            put_text_if_any(out, "name", name);
            put_text_if_any(out, "version", version);
            put_json(out, "data", data);
        }
        ClientEvent::Refresh => {}
        ClientEvent::Subscribe { channel, data } | ClientEvent::Publish { channel, data } => {
            put_text(out, "channel", channel);
            put_json(out, "data", data);
        }
        ClientEvent::SubRefresh { channel } => put_text(out, "channel", channel),
        ClientEvent::Rpc { method, data } => {
            put_text(out, "method", method);
            put_json(out, "data", data);
        }
    }
    out.push(b'}');
}

/// Appends the beginning of an object with the members about a client.
fn begin_subject(out: &mut Vec<u8>, subject: &Subject<'_>) {
    out.extend_from_slice(b"{\"client\":");
    encode_text(out, &subject.client.text());
    put_text(out, "transport", subject.transport);
    put_text(
        out,
        "protocol",
        match subject.codec {
            Codec::Json => "json",
            Codec::Protobuf => "protobuf",
        },
    );
    put_text(out, "encoding", "json");
    if let Some(user) = subject.user {
        put_text(out, "user", user);
    }
    put_json(out, "meta", subject.meta);
}

/// Appends the entry of a list about a client that has left.
pub fn encode_departure(out: &mut Vec<u8>, subject: &Subject<'_>) {
    begin_subject(out, subject);
    put_text(out, "type", "disconnected");
    out.push(b'}');
}

/// Appends the entry of a list about a channel without subscribers.
pub fn encode_empty_channel(out: &mut Vec<u8>, channel: &str, unix_ms: u64) {
    out.extend_from_slice(b"{\"channel\":");
    encode_text(out, channel);
    put_text(out, "type", "vacated");
    crate::api::encode_member(out, "time_ms", unix_ms);
    out.push(b'}');
}

fn put_text(out: &mut Vec<u8>, name: &str, text: &str) {
    put_name(out, name);
    encode_text(out, text);
}

fn put_text_if_any(out: &mut Vec<u8>, name: &str, text: &str) {
    if !text.is_empty() {
        put_text(out, name, text);
    }
}

fn put_json(out: &mut Vec<u8>, name: &str, json: &str) {
    if !json.is_empty() {
        put_name(out, name);
        out.extend_from_slice(json.as_bytes());
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Why there is no decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The backend cannot be reached, is too slow, or its response makes no sense.
    Down,
    /// Too many events wait for it.
    Busy,
}

/// The decision of the backend.
#[derive(Debug)]
pub enum BackendDecision<'a> {
    /// The client may continue.
    Granted(Box<Granted<'a>>),
    /// There is no result: for `connect`, the client is not known; for `refresh` and `sub_refresh`, its time is over.
    Nothing,
    /// The command fails.
    Refused(Refused<'a>),
    /// The client is disconnected with this code and reason.
    Disconnected(u16, Cow<'a, str>),
}

/// Why a command fails.
#[derive(Debug, Deserialize)]
pub struct Refused<'a> {
    /// The code; not 0.
    #[serde(default)]
    pub code: u32,
    /// What it means; not empty.
    #[serde(borrow, default)]
    pub message: Cow<'a, str>,
    /// Whether the same command may succeed later.
    #[serde(default)]
    pub temporary: bool,
}

/// A grant of the backend, with its data.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Granted<'a> {
    /// The user; empty: anonymous.
    #[serde(borrow)]
    pub user: Cow<'a, str>,
    /// When the grant ends, in seconds since 1970; 0: never.
    pub expire_at: i64,
    /// The time is over.
    pub expired: bool,
    /// Data about the client that other clients see.
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    /// Data for the client, or in place of what it publishes.
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    /// Data that is sent back to the backend in later requests.
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    /// The channels that the client is subscribed to.
    channels: Vec<String>,
    /// The same, with details.
    subs: Subs,
    /// The message gets no offset and is not kept.
    pub skip_history: bool,
    /// The message may be sent as a patch of the previous one.
    pub delta: bool,
    /// Tags of the message.
    pub tags: BTreeMap<String, String>,
    /// A second message with the same key has no effect.
    #[serde(borrow)]
    pub idempotency_key: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<Refused<'a>>,
    #[serde(borrow)]
    disconnect: Option<Disconnection<'a>>,
}

#[derive(Deserialize)]
struct Disconnection<'a> {
    #[serde(default)]
    code: u16,
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
}

impl<'a> BackendDecision<'a> {
    /// Reads the body of a response.
    ///
    /// # Errors
    /// It is no decision.
    pub fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let reply: Reply<'_> = read_object(core::str::from_utf8(body).map_err(|_| Malformed)?)?;
        if let Some(Disconnection { code, reason }) = reply.disconnect {
            let reason = if reason.is_empty() { Cow::Borrowed("disconnected") } else { reason };
            // Client libraries first try to read the reason as JSON.
            let is_plain = serde_json::from_str::<IgnoredAny>(&reason).is_err();
            let is_valid =
                (3000..5000).contains(&code) && reason.len() <= REASON_BYTES_MAX && is_plain;
            return if is_valid { Ok(Self::Disconnected(code, reason)) } else { Err(Malformed) };
        }
        if let Some(mut refused) = reply.error {
            if refused.message.is_empty() {
                refused.message = "refused by the application".into();
            }
            return if refused.code > 0 { Ok(Self::Refused(refused)) } else { Err(Malformed) };
        }
        let Some(result) = reply.result else { return Ok(Self::Nothing) };
        let granted: Granted<'_> = read_object(result.get())?;
        let is_deep = |json: Option<&RawValue>| json.is_some_and(|json| is_too_deep(json.get()));
        let mut all = [granted.data, granted.info, granted.meta].into_iter();
        // A negative time is a mistake of the application, which must not last for ever.
        let is_malformed = granted.expire_at < 0 || all.any(is_deep);
        if is_malformed { Err(Malformed) } else { Ok(Self::Granted(Box::new(granted))) }
    }
}

impl Granted<'_> {
    /// When the grant ends; `None`: never.
    #[must_use]
    pub fn ends_at(&self) -> Option<u64> {
        u64::try_from(self.expire_at).ok().filter(|at| *at > 0)
    }

    /// Data for the client, or in place of what it publishes: JSON in one line; `None` if there is none.
    ///
    /// # Errors
    /// It is no JSON.
    pub fn data(&self) -> Result<Option<Box<str>>, Malformed> {
        json_of(self.data, self.b64data.as_deref())
    }

    /// Data about the client that other clients see: JSON in one line; `None`: nothing is stated about it.
    ///
    /// # Errors
    /// It is no JSON.
    pub fn info(&self) -> Result<Option<Box<str>>, Malformed> {
        json_of(self.info, self.b64info.as_deref())
    }

    /// Data that is sent back to the backend in later requests: JSON in one line; `None`: nothing is stated about it.
    #[must_use]
    pub fn meta(&self) -> Option<Box<str>> {
        self.meta.map(|json| in_one_line(json.get()))
    }

    /// The channels that the client is subscribed to.
    ///
    /// # Errors
    /// A detail of one is no JSON, or nested too deeply.
    pub fn subscriptions(&self) -> Result<Vec<ServerSubscription>, Malformed> {
        collect(&self.channels, &self.subs)
    }
}

/// Reads a JSON object. A list is refused, although serde would accept it as the members in their order.
fn read_object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Malformed> {
    let is_object = text.trim_start().starts_with('{');
    if is_object { serde_json::from_str(text).map_err(|_| Malformed) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: Subject<'static> = Subject {
        client: ClientName::FIRST,
        transport: "websocket",
        codec: Codec::Json,
        user: Some("7"),
        meta: "{\"m\":1}",
    };
    const COMMON: &str = "{\"client\":\"00000000-0000-0000-0000-000000000000\",\
        \"transport\":\"websocket\",\"protocol\":\"json\",\"encoding\":\"json\"";

    #[test]
    fn requests_have_the_members_that_backends_of_centrifugo_expect() {
        let connect = ClientEvent::Connect { name: "js", version: "", data: "{\"a\":1}" };
        let unknown = Subject { user: None, meta: "", ..SUBJECT };
        for (subject, deed, expected) in [
            (unknown, connect, ",\"name\":\"js\",\"data\":{\"a\":1}}"),
            (SUBJECT, ClientEvent::Refresh, ",\"user\":\"7\",\"meta\":{\"m\":1}}"),
            (
                SUBJECT,
                ClientEvent::Subscribe { channel: "a\"b", data: "" },
                ",\"user\":\"7\",\"meta\":{\"m\":1},\"channel\":\"a\\\"b\"}",
            ),
            (
                SUBJECT,
                ClientEvent::Publish { channel: "a", data: "[1]" },
                ",\"user\":\"7\",\"meta\":{\"m\":1},\"channel\":\"a\",\"data\":[1]}",
            ),
            (
                SUBJECT,
                ClientEvent::Rpc { method: "m", data: "2" },
                ",\"user\":\"7\",\"meta\":{\"m\":1},\"method\":\"m\",\"data\":2}",
            ),
        ] {
            let mut out = Vec::new();
            encode_request(&mut out, &subject, &deed);
            assert_eq!(String::from_utf8(out).expect("text"), format!("{COMMON}{expected}"));
        }
    }

    #[test]
    fn replies_are_read_completely_or_not_at_all() {
        let deep = format!("{{\"result\":{{\"data\":{}1{}}}}}", "[".repeat(101), "]".repeat(101));
        let long =
            format!("{{\"disconnect\":{{\"code\":4000,\"reason\":\"{}\"}}}}", "x".repeat(124));
        for (body, expected) in [
            ("{\"result\":{}}", "granted"),
            ("{\"result\":{\"user\":\"7\",\"other\":1}}", "granted"),
            ("{}", "nothing"),
            ("{\"result\":null}", "nothing"),
            ("{\"error\":{\"code\":1000,\"message\":\"no\"}}", "refused"),
            ("{\"error\":{\"code\":0,\"message\":\"no\"}}", "malformed"),
            ("{\"disconnect\":{\"code\":4501,\"reason\":\"no\"}}", "disconnected"),
            ("{\"disconnect\":{\"code\":4501}}", "disconnected"),
            ("{\"disconnect\":{\"code\":1000,\"reason\":\"no\"}}", "malformed"),
            ("{\"disconnect\":{\"code\":4000,\"reason\":\"{}\"}}", "malformed"),
            (&long, "malformed"),
            (&deep, "malformed"),
            ("{\"result\":[]}", "malformed"),
            ("{\"result\":{\"user\":7}}", "malformed"),
            ("{\"result\":{\"expire_at\":0}}", "granted"),
            ("{\"result\":{\"expire_at\":-1}}", "malformed"),
            ("", "malformed"),
            ("<html>", "malformed"),
        ] {
            let found = match BackendDecision::decode(body.as_bytes()) {
                Ok(BackendDecision::Granted(_)) => "granted",
                Ok(BackendDecision::Nothing) => "nothing",
                Ok(BackendDecision::Refused(refused)) => {
                    assert!(refused.code > 0 && !refused.message.is_empty());
                    "refused"
                }
                Ok(BackendDecision::Disconnected(_, reason)) => {
                    assert!(!reason.is_empty());
                    "disconnected"
                }
                Err(Malformed) => "malformed",
            };
            assert_eq!(found, expected, "{body}");
        }
    }

    #[test]
    fn data_is_json_in_one_line_whatever_its_encoding() {
        let read = |body: &'static str| match BackendDecision::decode(body.as_bytes()) {
            Ok(BackendDecision::Granted(granted)) => granted,
            other => panic!("{other:?}"),
        };
        let plain = read("{\"result\":{\"data\":{\"a\":\n1},\"info\":[2],\"expire_at\":5}}");
        assert_eq!(plain.data(), Ok(Some("{\"a\": 1}".into())));
        assert_eq!((plain.info(), plain.ends_at()), (Ok(Some("[2]".into())), Some(5)));
        let encoded = read("{\"result\":{\"b64data\":\"eyJhIjoxfQ==\",\"b64info\":\"/w==\"}}");
        assert_eq!(encoded.data(), Ok(Some("{\"a\":1}".into())));
        assert_eq!((encoded.info(), encoded.ends_at()), (Err(Malformed), None));
        let both = read(
            "{\"result\":{\"channels\":[\"a\",\"b\"],\"subs\":{\"b\":{\"data\":1},\"c\":{\"override\":{}}}}}",
        );
        let found = both.subscriptions().expect("JSON");
        let names: Vec<&str> = found.iter().map(|one| &*one.channel).collect();
        assert_eq!((names, &*found[1].data), (vec!["a", "b", "c"], "1"));
    }
}
