//! Centrifugo's client protocol, version 2, as Protocol Buffers: commands in, replies and pushes out, each after its
//! length.
//! In: the bytes of a message. Out: commands; bytes. Never: panics; keeps unknown fields of a client.
//! Limits: those of the WebSocket message that carries the commands.
//! Invariant: the numbers of fields are those of Centrifugo's `client.proto`, which every client library contains.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::backend::Refused;
use crate::client::codec::{Answer, Body, Connected, Joined, Malformed, Push};
use crate::client::command::{
    Command, Connect, History, Named, Publish, Renewal, Resume, Rpc, Start, Subscribe,
};
use crate::filter::Stated;
use crate::mail::Presence;
use crate::position::Position;
use crate::protobuf::{
    self, Fields, Value, put_bytes, put_delimited, put_flag, put_message, put_number,
    take_delimited,
};
use crate::publication::{Content, Publication};

/// The ping of the server: a message without fields.
pub(super) const PING: &[u8] = &[0];

/// The fields of a reply.
mod reply {
    pub const ID: u32 = 1;
    pub const ERROR: u32 = 2;
    pub const PUSH: u32 = 4;
    pub const CONNECT: u32 = 5;
    pub const SUBSCRIBE: u32 = 6;
    pub const UNSUBSCRIBE: u32 = 7;
    pub const PUBLISH: u32 = 8;
    pub const PRESENCE: u32 = 9;
    pub const PRESENCE_STATS: u32 = 10;
    pub const HISTORY: u32 = 11;
    pub const RPC: u32 = 13;
    pub const REFRESH: u32 = 14;
    pub const SUB_REFRESH: u32 = 15;
}

/// The fields of a push.
mod push {
    pub const CHANNEL: u32 = 2;
    pub const PUBLICATION: u32 = 4;
    pub const JOIN: u32 = 5;
    pub const LEAVE: u32 = 6;
    pub const UNSUBSCRIBE: u32 = 7;
    pub const SUBSCRIBE: u32 = 9;
    pub const DISCONNECT: u32 = 11;
    pub const REFRESH: u32 = 12;
}

impl From<protobuf::Malformed> for Malformed {
    fn from(_: protobuf::Malformed) -> Self {
        Self
    }
}

/// Reads the first command of a message, or of the rest of one. Returns how many bytes it takes.
pub(super) fn decode_next(message: &[u8]) -> Result<(Command<'_>, usize), Malformed> {
    let mut rest = message;
    let command = read_command(take_delimited(&mut rest)?)?;
    Ok((command, message.len() - rest.len()))
}

/// Reads a message with `read`, which gets each field.
fn read<'a, T: Default>(
    mut fields: Fields<'a>,
    mut read: impl FnMut(&mut T, u32, Value<'a>) -> Result<(), Malformed>,
) -> Result<T, Malformed> {
    let mut message = T::default();
    while let Some((field, value)) = fields.next_field()? {
        read(&mut message, field, value)?;
    }
    Ok(message)
}

fn read_command(bytes: &[u8]) -> Result<Command<'_>, Malformed> {
    read(Fields::new(bytes), |command: &mut Command<'_>, field, value| {
        match field {
            1 => command.id = value.number()? as u32,
            4 => command.connect = Some(read_connect(value)?),
            5 => command.subscribe = Some(read_subscribe(value)?),
            6 => command.unsubscribe = Some(read_named(value)?),
            7 => command.publish = Some(read_publish(value)?),
            8 => command.presence = Some(read_named(value)?),
            9 => command.presence_stats = Some(read_named(value)?),
            10 => command.history = Some(read_history(value)?),
            11 => command.ping = Some(IgnoredAny),
            12 => command.send = Some(IgnoredAny),
            13 => command.rpc = Some(read_rpc(value)?),
            14 => command.refresh = Some(read_renewal(value, None, 1)?),
            15 => command.sub_refresh = Some(read_renewal(value, Some(1), 2)?),
            _ => {}
        }
        Ok(())
    })
}

fn read_connect(value: Value<'_>) -> Result<Connect<'_>, Malformed> {
    read(value.fields()?, |connect: &mut Connect<'_>, field, value| {
        match field {
            1 => connect.token = value.text()?.to_owned(),
            2 => (connect.data, connect.has_foreign_data) = read_data(value)?,
            3 => {
                let (channel, resume) = read_resume(value)?;
                connect.subs.insert(channel, resume);
            }
            4 => connect.name = value.text()?.to_owned(),
            5 => connect.version = value.text()?.to_owned(),
            _ => {}
        }
        Ok(())
    })
}

/// Reads an entry of the map `subs`.
fn read_resume(value: Value<'_>) -> Result<(String, Resume), Malformed> {
    read(value.fields()?, |(channel, resume): &mut (String, Resume), field, value| {
        match field {
            1 => *channel = value.text()?.to_owned(),
            2 => {
                let Subscribe { recover, epoch, offset, .. } = read_subscribe(value)?;
                *resume = Resume { recover, epoch, offset };
            }
            _ => {}
        }
        Ok(())
    })
}

/// Reads data for the application. Returns whether it is something else than JSON.
fn read_data(value: Value<'_>) -> Result<(Option<&RawValue>, bool), Malformed> {
    let bytes = value.bytes()?;
    let data = serde_json::from_slice(bytes).ok();
    Ok((data, data.is_none() && !bytes.is_empty()))
}

fn read_rpc(value: Value<'_>) -> Result<Rpc<'_>, Malformed> {
    read(value.fields()?, |rpc: &mut Rpc<'_>, field, value| {
        match field {
            1 => (rpc.data, rpc.has_foreign_data) = read_data(value)?,
            2 => rpc.method = value.text()?.to_owned(),
            _ => {}
        }
        Ok(())
    })
}

fn read_subscribe(value: Value<'_>) -> Result<Subscribe<'_>, Malformed> {
    read(value.fields()?, |subscribe: &mut Subscribe<'_>, field, value| {
        match field {
            1 => subscribe.channel = value.text()?.to_owned(),
            2 => subscribe.token = value.text()?.to_owned(),
            3 => subscribe.recover = value.number()? > 0,
            6 => subscribe.epoch = value.text()?.to_owned(),
            7 => subscribe.offset = value.number()?,
            8 => (subscribe.data, subscribe.has_foreign_data) = read_data(value)?,
            12 => subscribe.delta = value.text()?.to_owned(),
            13 => subscribe.filter = Some(read_filter(value, FILTER_LEVELS_MAX)?),
            14 => subscribe.flag = value.number()?,
            15 => subscribe.kind = value.number()? as i32,
            _ => {}
        }
        Ok(())
    })
}

/// The levels of a filter beyond which it is not read: a later check refuses far fewer with an error.
const FILTER_LEVELS_MAX: usize = 32;

/// Reads a filter of so many levels.
fn read_filter(value: Value<'_>, levels: usize) -> Result<Stated, Malformed> {
    let below = levels.checked_sub(1).ok_or(Malformed)?;
    read(value.fields()?, |filter: &mut Stated, field, value| {
        match field {
            1 => filter.op = value.text()?.to_owned(),
            2 => filter.key = value.text()?.to_owned(),
            3 => filter.cmp = value.text()?.to_owned(),
            4 => filter.val = value.text()?.to_owned(),
            5 => filter.vals.push(value.text()?.to_owned()),
            6 => filter.nodes.push(read_filter(value, below)?),
            _ => {}
        }
        Ok(())
    })
}

fn read_named(value: Value<'_>) -> Result<Named, Malformed> {
    read(value.fields()?, |named: &mut Named, field, value| {
        if field == 1 {
            named.channel = value.text()?.to_owned();
        }
        Ok(())
    })
}

fn read_publish(value: Value<'_>) -> Result<Publish<'_>, Malformed> {
    read(value.fields()?, |publish: &mut Publish<'_>, field, value| {
        match field {
            1 => publish.channel = value.text()?.to_owned(),
            2 => publish.data = serde_json::from_slice(value.bytes()?).ok(),
            _ => {}
        }
        Ok(())
    })
}

fn read_history(value: Value<'_>) -> Result<History, Malformed> {
    read(value.fields()?, |history: &mut History, field, value| {
        match field {
            1 => history.channel = value.text()?.to_owned(),
            // A negative number is encoded as the 64 bits of its two's complement.
            7 => history.limit = value.number()? as i64,
            8 => history.since = Some(read_start(value)?),
            9 => history.reverse = value.number()? > 0,
            _ => {}
        }
        Ok(())
    })
}

fn read_start(value: Value<'_>) -> Result<Start, Malformed> {
    read(value.fields()?, |start: &mut Start, field, value| {
        match field {
            1 => start.offset = value.number()?,
            2 => start.epoch = value.text()?.to_owned(),
            _ => {}
        }
        Ok(())
    })
}

/// Reads `refresh` or `sub_refresh`, whose fields have these numbers.
fn read_renewal(value: Value<'_>, channel: Option<u32>, token: u32) -> Result<Renewal, Malformed> {
    read(value.fields()?, |renewal: &mut Renewal, field, value| {
        if field == token {
            renewal.token = value.text()?.to_owned();
        } else if channel == Some(field) {
            renewal.channel = value.text()?.to_owned();
        }
        Ok(())
    })
}

/// Appends a reply.
pub(super) fn encode_answer(out: &mut Vec<u8>, id: u32, answer: &Answer<'_>) {
    put_delimited(out, |out| {
        put_number(out, reply::ID, id.into());
        match answer {
            Answer::Failed(error) => put_message(out, reply::ERROR, |out| {
                put_error(out, (error.code(), error.message(), error.is_temporary()));
            }),
            Answer::Refused(Refused { code, message, temporary }) => {
                put_message(out, reply::ERROR, |out| put_error(out, (*code, message, *temporary)));
            }
            Answer::Called { data } => {
                put_message(out, reply::RPC, |out| put_bytes(out, 1, data.as_bytes()));
            }
            Answer::Connected(connected) => {
                put_message(out, reply::CONNECT, |out| put_connected(out, connected));
            }
            Answer::Subscribed(joined) => {
                put_message(out, reply::SUBSCRIBE, |out| put_joined(out, joined));
            }
            Answer::Unsubscribed => put_message(out, reply::UNSUBSCRIBE, |_| {}),
            Answer::Published => put_message(out, reply::PUBLISH, |_| {}),
            Answer::History { publications, position } => {
                put_message(out, reply::HISTORY, |out| put_history(out, publications, position));
            }
            Answer::Presence(presence) => {
                put_message(out, reply::PRESENCE, |out| put_presence(out, presence));
            }
            Answer::PresenceStats { clients, users } => {
                put_message(out, reply::PRESENCE_STATS, |out| {
                    put_number(out, 1, *clients);
                    put_number(out, 2, *users);
                });
            }
            Answer::Renewed { client, ttl_seconds } => put_message(out, reply::REFRESH, |out| {
                put_bytes(out, 1, client.as_bytes());
                put_ttl(out, (3, 4), *ttl_seconds);
            }),
            Answer::SubscriptionRenewed { ttl_seconds } => {
                put_message(out, reply::SUB_REFRESH, |out| put_ttl(out, (1, 2), *ttl_seconds));
            }
        }
    });
}

fn put_error(out: &mut Vec<u8>, (code, message, is_temporary): (u32, &str, bool)) {
    put_number(out, 1, code.into());
    put_bytes(out, 2, message.as_bytes());
    put_flag(out, 3, is_temporary);
}

/// Appends how long a token is valid, in fields with these numbers.
fn put_ttl(out: &mut Vec<u8>, (expires, ttl): (u32, u32), seconds: Option<u64>) {
    put_flag(out, expires, seconds.is_some());
    put_number(out, ttl, seconds.unwrap_or(0).min(u32::MAX.into()));
}

fn put_connected(out: &mut Vec<u8>, connected: &Connected<'_>) {
    put_bytes(out, 1, connected.client.as_bytes());
    put_bytes(out, 2, connected.version.as_bytes());
    put_ttl(out, (3, 4), connected.ttl_seconds);
    put_bytes(out, 5, connected.data.as_bytes());
    put_number(out, 7, connected.ping_seconds.unwrap_or(0));
    put_flag(out, 8, connected.ping_seconds.is_some());
    put_bytes(out, 9, connected.session.as_bytes());
    put_bytes(out, 10, connected.node.as_bytes());
    // Fields may be in any order.
    out.extend_from_slice(connected.entries);
}

/// Appends an entry of the map `subs` of the reply to `connect`.
pub(super) fn encode_entry(entries: &mut Vec<u8>, channel: &str, joined: &Joined<'_>) {
    put_message(entries, 6, |out| {
        put_bytes(out, 1, channel.as_bytes());
        put_message(out, 2, |out| put_joined(out, joined));
    });
}

fn put_joined(out: &mut Vec<u8>, joined: &Joined<'_>) {
    put_ttl(out, (1, 2), joined.ttl_seconds);
    put_bytes(out, 11, joined.data.as_bytes());
    put_flag(out, 13, joined.has_deltas);
    let Some(position) = joined.position else { return };
    put_flag(out, 3, true);
    put_bytes(out, 6, position.epoch.as_str().as_bytes());
    let recovered = joined.recovered;
    for publication in recovered.map_or(&[][..], |recovered| &recovered.publications) {
        put_message(out, 7, |out| put_publication(out, publication, joined.body()));
    }
    put_flag(out, 8, recovered.is_some_and(|recovered| recovered.is_whole));
    put_number(out, 9, position.offset);
    put_flag(out, 10, true);
    put_flag(out, 12, recovered.is_some());
}

fn put_history(out: &mut Vec<u8>, publications: &[Arc<Publication>], position: &Position) {
    for publication in publications {
        put_message(out, 1, |out| put_publication(out, publication, Body::Plain));
    }
    put_bytes(out, 2, position.epoch.as_str().as_bytes());
    put_number(out, 3, position.offset);
}

fn put_presence(out: &mut Vec<u8>, presence: &Presence) {
    for visitor in &presence.visitors {
        // An entry of a map.
        put_message(out, 1, |out| {
            put_bytes(out, 1, visitor.client.as_bytes());
            put_message(out, 2, |out| put_info(out, &visitor.info));
        });
    }
}

fn put_publication(out: &mut Vec<u8>, publication: &Publication, body: Body<'_>) {
    let (data, is_patch) = match body {
        Body::Plain | Body::Text => (&*publication.data, false),
        Body::Patch(patch) => (patch, true),
    };
    put_bytes(out, 4, data.as_bytes());
    put_flag(out, 8, is_patch);
    if !publication.info.is_empty() {
        put_message(out, 5, |out| put_info(out, &publication.info));
    }
    put_number(out, 6, publication.offset());
    if !publication.tags.is_empty() {
        let tags: BTreeMap<Cow<'_, str>, Cow<'_, str>> =
            serde_json::from_str(&publication.tags).unwrap_or_default();
        for (name, value) in tags {
            put_message(out, 7, |out| {
                put_bytes(out, 1, name.as_bytes());
                put_bytes(out, 2, value.as_bytes());
            });
        }
    }
}

/// The data that clients see about another client, as the hub keeps it.
#[derive(Default, Deserialize)]
struct Info<'a> {
    #[serde(borrow)]
    user: Cow<'a, str>,
    #[serde(borrow)]
    client: Cow<'a, str>,
    #[serde(borrow)]
    conn_info: Option<&'a RawValue>,
    #[serde(borrow)]
    chan_info: Option<&'a RawValue>,
}

/// Appends the data that clients see about another client.
fn put_info(out: &mut Vec<u8>, json: &str) {
    let info: Info<'_> = serde_json::from_str(json).unwrap_or_default();
    put_bytes(out, 1, info.user.as_bytes());
    put_bytes(out, 2, info.client.as_bytes());
    put_bytes(out, 3, info.conn_info.map_or("", RawValue::get).as_bytes());
    put_bytes(out, 4, info.chan_info.map_or("", RawValue::get).as_bytes());
}

/// Appends a push.
pub(super) fn encode_push(out: &mut Vec<u8>, push: &Push<'_>) {
    put_delimited(out, |out| {
        put_message(out, reply::PUSH, |out| match push {
            Push::Publication(publication, body) => {
                put_bytes(out, push::CHANNEL, publication.channel.as_bytes());
                let visit = |out: &mut Vec<u8>, field| {
                    put_message(out, field, |out| {
                        put_message(out, 1, |out| put_info(out, &publication.info));
                    });
                };
                match publication.content {
                    Content::Message => {
                        put_message(out, push::PUBLICATION, |out| {
                            put_publication(out, publication, *body);
                        });
                    }
                    Content::Join => visit(out, push::JOIN),
                    Content::Leave => visit(out, push::LEAVE),
                }
            }
            Push::Unsubscribed { channel, code, reason } => {
                put_bytes(out, push::CHANNEL, channel.as_bytes());
                put_message(out, push::UNSUBSCRIBE, |out| {
                    put_number(out, 2, (*code).into());
                    put_bytes(out, 3, reason.as_bytes());
                });
            }
            Push::Subscribed { channel, position, data } => {
                put_bytes(out, push::CHANNEL, channel.as_bytes());
                put_message(out, push::SUBSCRIBE, |out| {
                    put_flag(out, 1, position.is_some());
                    if let Some(position) = position {
                        put_bytes(out, 4, position.epoch.as_str().as_bytes());
                        put_number(out, 5, position.offset);
                        put_flag(out, 6, true);
                    }
                    put_bytes(out, 7, data.as_bytes());
                });
            }
            Push::Disconnected { code, reason } => {
                put_message(out, push::DISCONNECT, |out| {
                    put_number(out, 1, (*code).into());
                    put_bytes(out, 2, reason.as_bytes());
                });
            }
            Push::Renewed { ttl_seconds } => {
                put_message(out, push::REFRESH, |out| put_ttl(out, (1, 2), *ttl_seconds));
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Epoch;
    use crate::stream::Recovered;
    use proptest::prelude::*;

    /// The commands of a whole message.
    fn decode(mut message: &[u8]) -> Result<Vec<Command<'_>>, Malformed> {
        let mut commands = Vec::new();
        while commands.is_empty() || !message.is_empty() {
            let (command, bytes) = decode_next(message)?;
            commands.push(command);
            message = &message[bytes..];
        }
        Ok(commands)
    }

    /// The bytes of a command whose member `field` has what `write` appends.
    fn command(id: u64, field: u32, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put_delimited(&mut out, |out| {
            put_number(out, 1, id);
            put_message(out, field, write);
        });
        out
    }

    #[test]
    fn commands_of_a_message_are_read_in_order() {
        let mut message = command(1, 4, |out| {
            put_bytes(out, 1, b"a.b.c");
            // Fields that are unknown to this program.
            put_bytes(out, 4, b"js");
            put_number(out, 700, 1);
        });
        message.extend(command(2, 5, |out| {
            put_bytes(out, 1, b"chat:room");
            put_flag(out, 3, true);
            put_bytes(out, 6, b"abcdefgh");
            put_number(out, 7, 300);
            put_number(out, 14, 3);
        }));
        message.extend(command(3, 7, |out| {
            put_bytes(out, 1, b"chat:room");
            put_bytes(out, 2, b" {\"n\": 1} ");
        }));
        message.extend(command(4, 10, |out| {
            put_bytes(out, 1, b"a");
            put_number(out, 7, (-1_i64) as u64);
            put_message(out, 8, |out| put_number(out, 1, 5));
            put_flag(out, 9, true);
        }));
        message.extend(command(5, 15, |out| {
            put_bytes(out, 1, b"a");
            put_bytes(out, 2, b"t");
        }));
        message.push(0);
        let commands = decode(&message).expect("commands");
        let [connect, subscribe, publish, history, renewal, pong] = commands.as_slice() else {
            panic!("{commands:?}");
        };
        assert_eq!(connect.connect.as_ref().map(|connect| connect.token.as_str()), Some("a.b.c"));
        let subscribe = subscribe.subscribe.as_ref().expect("subscribe");
        assert_eq!((subscribe.channel.as_str(), subscribe.recover), ("chat:room", true));
        assert_eq!(
            (subscribe.epoch.as_str(), subscribe.offset, subscribe.flag),
            ("abcdefgh", 300, 3)
        );
        let publish = publish.publish.as_ref().expect("publish");
        assert_eq!(publish.data.map(RawValue::get), Some("{\"n\": 1}"));
        let history = history.history.as_ref().expect("history");
        assert_eq!((history.limit, history.reverse), (-1, true));
        assert_eq!(history.since.as_ref().map(|since| since.offset), Some(5));
        let renewal = renewal.sub_refresh.as_ref().expect("sub_refresh");
        assert_eq!((renewal.channel.as_str(), renewal.token.as_str()), ("a", "t"));
        assert!(pong.id == 0 && pong.ping.is_none());
    }

    #[test]
    fn filters_are_read_to_a_bounded_depth() {
        let condition = |out: &mut Vec<u8>| {
            put_bytes(out, 2, b"t");
            put_bytes(out, 3, b"in");
            put_bytes(out, 5, b"a");
            put_bytes(out, 5, b"b");
        };
        let message = command(1, 5, |out| {
            put_message(out, 13, |out| {
                put_bytes(out, 1, b"not");
                put_message(out, 6, condition);
            });
        });
        let commands = decode(&message).expect("a command");
        let subscribe = commands[0].subscribe.as_ref().expect("subscribe");
        let filter = subscribe.filter.as_ref().expect("a filter");
        assert_eq!((filter.op.as_str(), filter.nodes[0].key.as_str()), ("not", "t"));
        assert_eq!(filter.nodes[0].vals, ["a", "b"]);

        let mut nested = Vec::new();
        for _ in 0..10_000 {
            let inner = core::mem::take(&mut nested);
            put_message(&mut nested, 6, |out| out.extend_from_slice(&inner));
        }
        let deep = command(1, 5, |out| put_message(out, 13, |out| out.extend_from_slice(&nested)));
        assert_eq!(decode(&deep).err(), Some(Malformed));
    }

    #[test]
    fn data_that_is_not_json_is_no_data() {
        let message = command(1, 7, |out| put_bytes(out, 2, b"boom"));
        let commands = decode(&message).expect("a command");
        assert!(commands[0].publish.as_ref().is_some_and(|publish| publish.data.is_none()));
    }

    #[test]
    fn messages_without_commands_are_malformed() {
        assert_eq!(decode(b"").err(), Some(Malformed));
        assert_eq!(decode(b"\x05\x08\x01").err(), Some(Malformed));
    }

    /// The fields of a message, by number.
    fn fields(bytes: &[u8]) -> Vec<(u32, Value<'_>)> {
        let mut fields = Fields::new(bytes);
        core::iter::from_fn(|| fields.next_field().expect("a field")).collect()
    }

    /// The bytes of the field with this number, which exists once.
    fn inner(bytes: &[u8], number: u32) -> &[u8] {
        let mut found = fields(bytes).into_iter().filter(|(field, _)| *field == number);
        let (_, value) = found.next().expect("the field exists");
        assert!(found.next().is_none(), "field {number} exists once");
        value.bytes().expect("bytes")
    }

    #[test]
    fn replies_have_the_fields_of_the_schema() {
        let epoch = Epoch::from_random(0);
        let mut publication =
            Publication::new(0, "a".into(), "{\"n\":1}", Some(Position { epoch, offset: 7 }));
        publication.info =
            "{\"user\":\"\\u0062ob\",\"client\":\"c\",\"conn_info\":{\"x\":1}}".into();
        publication.tags = "{\"k\":\"v\"}".into();
        let publication = Arc::new(publication);
        let recovered = Recovered::whole(vec![publication]);
        let position = Some(Position { epoch, offset: 6 });
        let joined = Joined {
            position,
            recovered: Some(&recovered),
            has_deltas: true,
            ttl_seconds: Some(9),
            data: "",
        };
        let mut out = Vec::new();
        encode_answer(&mut out, 5, &Answer::Subscribed(joined));
        let reply = take_delimited(&mut out.as_slice()).expect("one reply").to_vec();
        assert_eq!(fields(&reply)[0], (1, Value::Number(5)));
        let result = inner(&reply, 6);
        let numbers: Vec<_> = fields(result)
            .into_iter()
            .filter_map(|(field, value)| Some((field, value.number().ok()?)))
            .collect();
        assert_eq!(numbers, [(1, 1), (2, 9), (13, 1), (3, 1), (8, 1), (9, 6), (10, 1), (12, 1)]);
        assert_eq!(inner(result, 6), epoch.as_str().as_bytes());
        let missed = inner(result, 7);
        assert_eq!(
            (inner(missed, 4), inner(missed, 7)),
            (&b"{\"n\":1}"[..], &b"\x0a\x01k\x12\x01v"[..])
        );
        let info = inner(missed, 5);
        assert_eq!(
            [inner(info, 1), inner(info, 2), inner(info, 3)],
            [&b"bob"[..], b"c", b"{\"x\":1}"]
        );

        let mut out = Vec::new();
        encode_answer(&mut out, 300, &Answer::Published);
        assert_eq!(out, b"\x05\x08\xac\x02\x42\x00", "an empty result is present");
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn members_with_any_content_are_decoded_without_a_panic(
            field in 1_u32..20, bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let _ = decode(&command(1, field, |out| out.extend_from_slice(&bytes)));
        }
    }
}
