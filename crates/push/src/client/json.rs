//! Centrifugo's client protocol, version 2, as JSON: commands in, replies and pushes out, one a line.
//! In: the text of a message. Out: commands; lines. Never: emits a blank line, or a line break within a line.
//! Limits: those of the WebSocket message that carries the commands; `COMMANDS_MAX` commands in one message.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::{encode_member, encode_publications, encode_text};
use crate::mail::{Presence, Subscribed};
use crate::position::Position;
use crate::publication::{Content, Publication};
use crate::settings::Error;

/// The most commands of one message.
pub const COMMANDS_MAX: usize = 1024;

/// A command of a client. Exactly one member is set, except in a pong, which has none.
#[derive(Debug, Default, Deserialize)]
pub struct Command<'a> {
    /// Comes back in the reply; 0: no reply is wanted.
    #[serde(default)]
    pub id: u32,
    /// Begins the session.
    #[serde(borrow)]
    pub connect: Option<Connect<'a>>,
    /// Subscribes to a channel.
    pub subscribe: Option<Subscribe>,
    /// Ends a subscription.
    pub unsubscribe: Option<Named>,
    /// Publishes a message.
    #[serde(borrow)]
    pub publish: Option<Publish<'a>>,
    /// Lists the clients of a channel.
    pub presence: Option<Named>,
    /// Counts the clients of a channel.
    pub presence_stats: Option<Named>,
    /// Reads the history of a channel.
    pub history: Option<History>,
    /// Renews the token of the connection.
    pub refresh: Option<Renewal>,
    /// Renews the token of a subscription.
    pub sub_refresh: Option<Renewal>,
    /// Calls the application.
    pub rpc: Option<serde::de::IgnoredAny>,
    /// A message to the application.
    pub send: Option<serde::de::IgnoredAny>,
    /// Only servers send pings.
    pub ping: Option<serde::de::IgnoredAny>,
}

impl Command<'_> {
    /// Whether the command reads a list or the history of a channel.
    #[must_use]
    pub const fn is_query(&self) -> bool {
        self.presence.is_some() || self.presence_stats.is_some() || self.history.is_some()
    }
}

/// The arguments of `connect`.
#[derive(Debug, Default, Deserialize)]
pub struct Connect<'a> {
    /// The token of the connection; empty: none.
    #[serde(default)]
    pub token: String,
    /// Data for the application.
    #[serde(borrow)]
    pub data: Option<&'a RawValue>,
}

/// The arguments of `subscribe`.
#[derive(Debug, Default, Deserialize)]
pub struct Subscribe {
    /// The channel.
    #[serde(default)]
    pub channel: String,
    /// The token of the subscription; empty: none.
    #[serde(default)]
    pub token: String,
    /// The client wants what it missed.
    #[serde(default)]
    pub recover: bool,
    /// The epoch of the client's position.
    #[serde(default)]
    pub epoch: String,
    /// The offset of the client's position.
    #[serde(default)]
    pub offset: u64,
    /// Bit 2: the client wants an error instead of `recovered: false`.
    #[serde(default)]
    pub flag: u64,
}

/// Only a channel.
#[derive(Debug, Default, Deserialize)]
pub struct Named {
    /// The channel.
    #[serde(default)]
    pub channel: String,
}

/// The arguments of `publish`.
#[derive(Debug, Deserialize)]
pub struct Publish<'a> {
    /// The channel.
    #[serde(default)]
    pub channel: String,
    /// The data.
    #[serde(borrow)]
    pub data: Option<&'a RawValue>,
}

/// The arguments of `history`.
#[derive(Debug, Deserialize)]
pub struct History {
    /// The channel.
    #[serde(default)]
    pub channel: String,
    /// How many publications; 0: only the position; below 0: all.
    #[serde(default)]
    pub limit: i64,
    /// The place to begin at.
    pub since: Option<Start>,
    /// The newest first.
    #[serde(default)]
    pub reverse: bool,
}

/// A position.
#[derive(Debug, Deserialize)]
pub struct Start {
    /// The offset.
    #[serde(default)]
    pub offset: u64,
    /// The epoch.
    #[serde(default)]
    pub epoch: String,
}

/// The arguments of `refresh` and `sub_refresh`.
#[derive(Debug, Deserialize)]
pub struct Renewal {
    /// The channel, of `sub_refresh`.
    #[serde(default)]
    pub channel: String,
    /// The new token.
    #[serde(default)]
    pub token: String,
}

/// The text is not a list of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Reads the commands of a message.
///
/// # Errors
/// The text is empty, not JSON, or contains too many commands.
pub fn decode(text: &str) -> Result<Vec<Command<'_>>, Malformed> {
    let mut commands = Vec::new();
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        // Several objects may be in one line.
        let mut found = serde_json::Deserializer::from_str(line).into_iter::<Command<'_>>();
        let before = commands.len();
        for command in &mut found {
            commands.push(command.map_err(|_| Malformed)?);
            if commands.len() > COMMANDS_MAX {
                return Err(Malformed);
            }
        }
        if commands.len() == before {
            return Err(Malformed);
        }
    }
    Ok(commands)
}

/// What the reply to `connect` states.
#[derive(Clone, Copy, Debug)]
pub struct Connected<'c> {
    /// The name of the client.
    pub client: &'c str,
    /// The version of the server.
    pub version: &'c str,
    /// How long the token is valid; `None`: it does not expire.
    pub ttl_seconds: Option<u64>,
    /// How often the server sends a ping; `None`: never.
    pub ping_seconds: Option<u64>,
}

/// Begins a line; lines are separated by line breaks.
fn begin_line(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b'\n');
    }
}

fn begin_reply(out: &mut Vec<u8>, id: u32, name: &str) {
    begin_line(out);
    out.extend_from_slice(b"{\"id\":");
    out.extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":{");
}

/// Appends a reply without content, such as that of `publish`.
pub fn encode_done(out: &mut Vec<u8>, id: u32, name: &str) {
    begin_reply(out, id, name);
    out.extend_from_slice(b"}}");
}

/// Appends an error as the reply.
pub fn encode_error(out: &mut Vec<u8>, id: u32, error: Error) {
    begin_reply(out, id, "error");
    out.extend_from_slice(b"\"code\":");
    out.extend_from_slice(itoa::Buffer::new().format(error.code()).as_bytes());
    out.extend_from_slice(b",\"message\":");
    encode_text(out, error.message());
    if error.is_temporary() {
        out.extend_from_slice(b",\"temporary\":true");
    }
    out.extend_from_slice(b"}}");
}

/// Appends the reply to `connect`.
pub fn encode_connected(out: &mut Vec<u8>, id: u32, connected: &Connected<'_>) {
    begin_reply(out, id, "connect");
    out.extend_from_slice(b"\"client\":");
    encode_text(out, connected.client);
    out.extend_from_slice(b",\"version\":");
    encode_text(out, connected.version);
    if let Some(ttl) = connected.ttl_seconds {
        out.extend_from_slice(b",\"expires\":true");
        encode_member(out, "ttl", ttl);
    }
    if let Some(ping) = connected.ping_seconds {
        encode_member(out, "ping", ping);
        out.extend_from_slice(b",\"pong\":true");
    }
    out.extend_from_slice(b"}}");
}

/// Appends the reply to `refresh` or `sub_refresh`.
pub fn encode_renewed(
    out: &mut Vec<u8>,
    id: u32,
    name: &str,
    client: Option<&str>,
    ttl_seconds: Option<u64>,
) {
    begin_reply(out, id, name);
    let begun = out.len();
    if let Some(client) = client {
        out.extend_from_slice(b"\"client\":");
        encode_text(out, client);
    }
    if let Some(ttl) = ttl_seconds {
        if out.len() > begun {
            out.push(b',');
        }
        out.extend_from_slice(b"\"expires\":true");
        encode_member(out, "ttl", ttl);
    }
    out.extend_from_slice(b"}}");
}

/// Appends the reply to `subscribe`. `since`: the position that the client stated.
pub fn encode_subscribed(
    out: &mut Vec<u8>,
    id: u32,
    subscribed: &Subscribed,
    since: Option<u64>,
    ttl_seconds: Option<u64>,
) {
    begin_reply(out, id, "subscribe");
    let begun = out.len();
    if let Some(Position { epoch, offset: top }) = subscribed.position {
        out.extend_from_slice(b"\"recoverable\":true,\"positioned\":true,\"epoch\":");
        encode_text(out, epoch.as_str());
        let recovered = subscribed.recovered.as_ref();
        let offset = match (recovered, since) {
            // The publications follow the client's own position.
            (Some(recovered), Some(since)) if recovered.is_whole => since,
            _ => top,
        };
        if offset > 0 {
            encode_member(out, "offset", offset);
        }
        if let Some(recovered) = recovered {
            if !recovered.publications.is_empty() {
                out.push(b',');
                encode_publications(out, &recovered.publications);
            }
            if recovered.is_whole {
                out.extend_from_slice(b",\"recovered\":true");
            }
            out.extend_from_slice(b",\"was_recovering\":true");
        }
    }
    if let Some(ttl) = ttl_seconds {
        if out.len() > begun {
            out.push(b',');
        }
        out.extend_from_slice(b"\"expires\":true");
        encode_member(out, "ttl", ttl);
    }
    out.extend_from_slice(b"}}");
}

/// Appends the reply to `history`.
pub fn encode_history(
    out: &mut Vec<u8>,
    id: u32,
    publications: &[Arc<Publication>],
    position: &Position,
) {
    begin_reply(out, id, "history");
    encode_publications(out, publications);
    out.extend_from_slice(b",\"epoch\":");
    encode_text(out, position.epoch.as_str());
    encode_member(out, "offset", position.offset);
    out.extend_from_slice(b"}}");
}

/// Appends the reply to `presence`.
pub fn encode_presence(out: &mut Vec<u8>, id: u32, presence: &Presence) {
    begin_reply(out, id, "presence");
    encode_presence_member(out, presence);
    out.extend_from_slice(b"}}");
}

/// Appends the member `presence`.
pub fn encode_presence_member(out: &mut Vec<u8>, presence: &Presence) {
    out.extend_from_slice(b"\"presence\":{");
    for (index, visitor) in presence.visitors.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        encode_text(out, &visitor.client);
        out.push(b':');
        out.extend_from_slice(visitor.info.as_bytes());
    }
    out.push(b'}');
}

/// Appends the reply to `presence_stats`.
pub fn encode_presence_stats(out: &mut Vec<u8>, id: u32, clients: u64, users: u64) {
    begin_reply(out, id, "presence_stats");
    encode_stats_members(out, clients, users);
    out.extend_from_slice(b"}}");
}

/// Appends the members of a count of clients.
pub fn encode_stats_members(out: &mut Vec<u8>, clients: u64, users: u64) {
    out.extend_from_slice(b"\"num_clients\":");
    out.extend_from_slice(itoa::Buffer::new().format(clients).as_bytes());
    encode_member(out, "num_users", users);
}

/// Appends the push of a publication, a join or a leave.
pub fn encode_push(out: &mut Vec<u8>, publication: &Publication) {
    begin_line(out);
    out.extend_from_slice(b"{\"push\":{\"channel\":");
    encode_text(out, &publication.channel);
    match publication.content {
        Content::Message => {
            out.extend_from_slice(b",\"pub\":");
            crate::api::encode_publication(out, publication);
        }
        Content::Join => {
            out.extend_from_slice(b",\"join\":{\"info\":");
            out.extend_from_slice(publication.info.as_bytes());
            out.push(b'}');
        }
        Content::Leave => {
            out.extend_from_slice(b",\"leave\":{\"info\":");
            out.extend_from_slice(publication.info.as_bytes());
            out.push(b'}');
        }
    }
    out.extend_from_slice(b"}}");
}

/// Appends the push that tells that a subscription has ended.
pub fn encode_unsubscribe(out: &mut Vec<u8>, channel: &str, code: u32, reason: &str) {
    begin_line(out);
    out.extend_from_slice(b"{\"push\":{\"channel\":");
    encode_text(out, channel);
    out.extend_from_slice(b",\"unsubscribe\":{\"code\":");
    out.extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
    out.extend_from_slice(b",\"reason\":");
    encode_text(out, reason);
    out.extend_from_slice(b"}}}");
}

/// The ping of the server.
pub const PING: &str = "{}";
