//! Centrifugo's client protocol, version 2, as JSON: reads commands, writes replies and pushes, each on its own line.
//! In: the text of a message. Out: commands; lines. Never: emits a blank line, or a line break within a line.
//! Limits: those of the WebSocket message that carries the commands.

use std::sync::Arc;

use crate::api::{encode_member, encode_publications, encode_publications_as, encode_text};
use crate::backend::Refused;
use crate::client::codec::{Answer, Body, Connected, Joined, Malformed, Push};
use crate::client::command::Command;
use crate::mail::Presence;
use crate::position::Position;
use crate::publication::{Content, Publication};

/// The protocol's messages have 32 bits for a time to live.
const TTL_SECONDS_MAX: u64 = u32::MAX as u64;

/// Reads the first command of a message, or of the rest of a message. Also returns the length of the command in bytes, with the
/// line break after it. Reads no byte after that, so that all commands of a message take time linear in its length.
///
/// # Errors
/// The line is blank, is not JSON, or is not a command.
pub(super) fn decode_next(message: &[u8]) -> Result<(Command<'_>, usize), Malformed> {
    // Several objects may be in one line.
    let mut found = serde_json::Deserializer::from_slice(message).into_iter::<Command<'_>>();
    let command = found.next().ok_or(Malformed)?.map_err(|_| Malformed)?;
    let end = found.byte_offset();
    let text = core::str::from_utf8(&message[..end]).map_err(|_| Malformed)?;
    if text.contains('\n') {
        return Err(Malformed);
    }
    let rest = &message[end..];
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    let has_line_break = rest.get(blanks) == Some(&b'\n');
    Ok((command, end + blanks + usize::from(has_line_break)))
}

/// Appends a reply.
pub(super) fn encode_answer(out: &mut Vec<u8>, id: u32, answer: &Answer<'_>) {
    match answer {
        Answer::Failed(error) => {
            let message = error.message().into();
            let (code, temporary) = (error.code(), error.is_temporary());
            encode_error(out, id, &Refused { code, message, temporary });
        }
        Answer::Refused(refused) => encode_error(out, id, refused),
        Answer::Called { data } => encode_called(out, id, data),
        Answer::Connected(connected) => encode_connected(out, id, connected),
        Answer::Subscribed(joined) => encode_subscribed(out, id, joined),
        Answer::Unsubscribed => encode_done(out, id, "unsubscribe"),
        Answer::Published => encode_done(out, id, "publish"),
        Answer::History { publications, position } => {
            encode_history(out, id, publications, position);
        }
        Answer::Presence(presence) => encode_presence(out, id, presence),
        Answer::PresenceStats { clients, users } => {
            encode_presence_stats(out, id, *clients, *users);
        }
        Answer::Renewed { client, ttl_seconds } => {
            encode_renewed(out, id, "refresh", Some(client), *ttl_seconds);
        }
        Answer::SubscriptionRenewed { ttl_seconds } => {
            encode_renewed(out, id, "sub_refresh", None, *ttl_seconds);
        }
    }
}

/// Appends a push.
pub(super) fn encode_push(out: &mut Vec<u8>, push: &Push<'_>) {
    match push {
        Push::Publication(publication, body) => encode_publication(out, publication, *body),
        Push::Unsubscribed { channel, code, reason } => {
            encode_unsubscribe(out, channel, *code, reason);
        }
        Push::Subscribed { channel, position, data } => {
            encode_subscribe(out, channel, *position, data);
        }
        Push::Disconnected { code, reason } => {
            begin_line(out);
            out.extend_from_slice(b"{\"push\":{\"disconnect\":{\"code\":");
            out.extend_from_slice(itoa::Buffer::new().format(*code).as_bytes());
            out.extend_from_slice(b",\"reason\":");
            encode_text(out, reason);
            out.extend_from_slice(b"}}}");
        }
        Push::Renewed { ttl_seconds } => {
            begin_line(out);
            out.extend_from_slice(b"{\"push\":{\"refresh\":{");
            if let Some(ttl) = ttl_seconds {
                out.extend_from_slice(b"\"expires\":true");
                encode_member(out, "ttl", (*ttl).min(TTL_SECONDS_MAX));
            }
            out.extend_from_slice(b"}}}");
        }
    }
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
fn encode_done(out: &mut Vec<u8>, id: u32, name: &str) {
    begin_reply(out, id, name);
    out.extend_from_slice(b"}}");
}

/// Appends an error as the reply.
fn encode_error(out: &mut Vec<u8>, id: u32, error: &Refused<'_>) {
    begin_reply(out, id, "error");
    out.extend_from_slice(b"\"code\":");
    out.extend_from_slice(itoa::Buffer::new().format(error.code).as_bytes());
    out.extend_from_slice(b",\"message\":");
    encode_text(out, &error.message);
    if error.temporary {
        out.extend_from_slice(b",\"temporary\":true");
    }
    out.extend_from_slice(b"}}");
}

/// Appends the reply to `rpc`.
fn encode_called(out: &mut Vec<u8>, id: u32, data: &str) {
    begin_reply(out, id, "rpc");
    if !data.is_empty() {
        out.extend_from_slice(b"\"data\":");
        out.extend_from_slice(data.as_bytes());
    }
    out.extend_from_slice(b"}}");
}

/// Appends the reply to `connect`.
fn encode_connected(out: &mut Vec<u8>, id: u32, connected: &Connected<'_>) {
    begin_reply(out, id, "connect");
    out.extend_from_slice(b"\"client\":");
    encode_text(out, connected.client);
    out.extend_from_slice(b",\"version\":");
    encode_text(out, connected.version);
    if let Some(ttl) = connected.ttl_seconds {
        out.extend_from_slice(b",\"expires\":true");
        encode_member(out, "ttl", ttl.min(TTL_SECONDS_MAX));
    }
    if let Some(ping) = connected.ping_seconds {
        encode_member(out, "ping", ping);
        out.extend_from_slice(b",\"pong\":true");
    }
    if !connected.data.is_empty() {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(connected.data.as_bytes());
    }
    if !connected.session.is_empty() {
        out.extend_from_slice(b",\"session\":");
        encode_text(out, connected.session);
        out.extend_from_slice(b",\"node\":");
        encode_text(out, connected.node);
    }
    if !connected.entries.is_empty() {
        out.extend_from_slice(b",\"subs\":{");
        out.extend_from_slice(connected.entries);
        out.push(b'}');
    }
    out.extend_from_slice(b"}}");
}

/// Appends an entry of `subs` in the reply to `connect`.
pub(super) fn encode_entry(entries: &mut Vec<u8>, channel: &str, joined: &Joined<'_>) {
    if !entries.is_empty() {
        entries.push(b',');
    }
    encode_text(entries, channel);
    entries.extend_from_slice(b":{");
    encode_joined_members(entries, joined);
    entries.push(b'}');
}

/// Appends the reply to `refresh` or `sub_refresh`.
fn encode_renewed(
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
        encode_member(out, "ttl", ttl.min(TTL_SECONDS_MAX));
    }
    out.extend_from_slice(b"}}");
}

/// Appends the reply to `subscribe`.
fn encode_subscribed(out: &mut Vec<u8>, id: u32, joined: &Joined<'_>) {
    begin_reply(out, id, "subscribe");
    encode_joined_members(out, joined);
    out.extend_from_slice(b"}}");
}

fn encode_joined_members(out: &mut Vec<u8>, joined: &Joined<'_>) {
    let begun = out.len();
    if let Some(Position { epoch, offset }) = joined.position {
        out.extend_from_slice(b"\"recoverable\":true,\"positioned\":true,\"epoch\":");
        encode_text(out, epoch.as_str());
        if offset > 0 {
            encode_member(out, "offset", offset);
        }
        if let Some(recovered) = joined.recovered {
            if !recovered.publications.is_empty() {
                out.push(b',');
                encode_publications_as(out, &recovered.publications, joined.body());
            }
            if recovered.is_whole {
                out.extend_from_slice(b",\"recovered\":true");
            }
            out.extend_from_slice(b",\"was_recovering\":true");
        }
    }
    if joined.has_deltas {
        if out.len() > begun {
            out.push(b',');
        }
        out.extend_from_slice(b"\"delta\":true");
    }
    if let Some(ttl) = joined.ttl_seconds {
        if out.len() > begun {
            out.push(b',');
        }
        out.extend_from_slice(b"\"expires\":true");
        encode_member(out, "ttl", ttl.min(TTL_SECONDS_MAX));
    }
    if !joined.data.is_empty() {
        if out.len() > begun {
            out.push(b',');
        }
        out.extend_from_slice(b"\"data\":");
        out.extend_from_slice(joined.data.as_bytes());
    }
}

/// Appends the reply to `history`.
fn encode_history(
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
fn encode_presence(out: &mut Vec<u8>, id: u32, presence: &Presence) {
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
fn encode_presence_stats(out: &mut Vec<u8>, id: u32, clients: u64, users: u64) {
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
fn encode_publication(out: &mut Vec<u8>, publication: &Publication, body: Body<'_>) {
    begin_line(out);
    out.extend_from_slice(b"{\"push\":{\"channel\":");
    encode_text(out, &publication.channel);
    match publication.content {
        Content::Message => {
            out.extend_from_slice(b",\"pub\":");
            crate::api::encode_publication(out, publication, body);
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

/// Appends the push that reports that the hub has subscribed the client.
fn encode_subscribe(out: &mut Vec<u8>, channel: &str, position: Option<Position>, data: &str) {
    begin_line(out);
    out.extend_from_slice(b"{\"push\":{\"channel\":");
    encode_text(out, channel);
    out.extend_from_slice(b",\"subscribe\":{");
    if let Some(Position { epoch, offset }) = position {
        out.extend_from_slice(b"\"recoverable\":true,\"positioned\":true,\"epoch\":");
        encode_text(out, epoch.as_str());
        encode_member(out, "offset", offset);
    }
    if !data.is_empty() {
        if position.is_some() {
            out.push(b',');
        }
        out.extend_from_slice(b"\"data\":");
        out.extend_from_slice(data.as_bytes());
    }
    out.extend_from_slice(b"}}}");
}

/// Appends the push that reports that a subscription has ended.
fn encode_unsubscribe(out: &mut Vec<u8>, channel: &str, code: u32, reason: &str) {
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
pub(super) const PING: &[u8] = b"{}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_separated_and_bytes_after_a_command_are_not_read() {
        for (message, expected) in [
            (&b"{\"id\":1}"[..], Some(8)),
            (b"{\"id\":1}\n{}", Some(9)),
            (b" {\"id\":1} \t\r\n\n", Some(13)),
            (b"{\"id\":1} {\"id\":2}\n", Some(9)),
            (b"{\"id\":1}\xff", Some(8)),
            (b"{\"id\":\n1}", None),
            (b"\n{\"id\":1}", None),
            (b"{\"id\":1,\"x\":\"\xff\"}", None),
            (b"", None),
            (b"\xff", None),
        ] {
            let used = decode_next(message).ok().map(|(_, used)| used);
            assert_eq!(used, expected, "{}", String::from_utf8_lossy(message));
        }
    }
}
