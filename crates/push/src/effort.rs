//! How much of a worker's time commands of clients and mail of other workers take, so that a turn can be bounded.
//! In: commands, mail, the bytes of replies. Out: their effort, in units of about a microsecond. Never: uses a clock.
//! Limits: set by the caller (`PUSH_EFFORT_PER_TURN_MAX` of the server).

use std::sync::Arc;

use crate::client::command::Command;
use crate::filter::Filter;
use crate::mail::{Call, Mail, Reply, Subscribed};
use crate::publication::Publication;

/// A command or a message between workers that reads no list.
const ORDINARY: u32 = 1;
/// A command or a message that reads a history or a presence list.
const QUERY: u32 = 32;
/// The verification of a signature by a public key.
pub(crate) const SIGNATURE: u32 = 128;
/// The bytes of replies that are encoded in the time of one unit.
const BYTES_PER_UNIT: usize = 512;
/// The bytes of tags that a condition of a filter tests in the time of one unit, and how many a tag counts in addition to its own.
const TAG_BYTES_PER_UNIT: usize = 512;
const TAG_COST_BYTES: usize = 16;
/// The publications or clients that are encoded in the time of one unit.
const ENTRIES_PER_UNIT: usize = 8;

/// The effort of a command, without its reply.
#[must_use]
pub fn of_command(command: &Command<'_>) -> u32 {
    let recovers = command.subscribe.as_ref().is_some_and(|subscribe| subscribe.recover);
    if command.is_query() || recovers { QUERY } else { ORDINARY }
}

/// The effort of a subscription that a token or the backend grants a client that connects.
#[must_use]
pub fn of_granted(recovers: bool) -> u32 {
    if recovers { QUERY } else { ORDINARY }
}

/// The effort of encoding replies of this many bytes, or of decoding JSON.
#[must_use]
pub fn of_replies(bytes: usize) -> u32 {
    u32::try_from(bytes / BYTES_PER_UNIT).unwrap_or(u32::MAX)
}

/// The effort of a response of a backend with this many bytes, without what it permits.
#[must_use]
pub fn of_decision(bytes: usize) -> u32 {
    ORDINARY.saturating_add(of_replies(bytes))
}

/// The effort of testing the recovered publications of a subscription with a filter.
pub(crate) fn of_filter(filter: &Filter, subscribed: &Subscribed) -> u32 {
    let publications = subscribed.recovered.iter().flat_map(|recovered| &recovered.publications);
    let tag_bytes = |one: &Arc<Publication>| -> usize {
        let tags = one.tags_of_audience().iter();
        tags.map(|(name, value)| TAG_COST_BYTES + name.len() + value.len()).sum()
    };
    let bytes: usize = publications.map(|one| TAG_COST_BYTES + tag_bytes(one)).sum();
    u32::try_from(filter.conditions().saturating_mul(bytes) / TAG_BYTES_PER_UNIT)
        .unwrap_or(u32::MAX)
}

/// The effort of scanning a queue of this many messages.
#[must_use]
pub fn of_queue(messages: usize) -> u32 {
    u32::try_from(messages / ENTRIES_PER_UNIT).unwrap_or(u32::MAX)
}

/// The effort of receiving mail.
#[must_use]
pub fn of_mail<K>(mail: &Mail<K>) -> u32 {
    match mail {
        Mail::Call { call, .. } => of_call(call),
        Mail::Reply { reply, .. } => of_reply(reply),
        // Commands wait for their session, and are run by its share of a turn.
        Mail::Commands { .. } => ORDINARY,
        Mail::Publication { .. } | Mail::Part { .. } | Mail::Leave { .. } => ORDINARY,
    }
}

fn of_call(call: &Call) -> u32 {
    match call {
        Call::Presence { .. } | Call::History { .. } | Call::Channels { .. } => QUERY,
        Call::Subscribe { since: Some(_), .. } => QUERY,
        Call::Subscribe { since: None, .. }
        | Call::Publish(_)
        | Call::HistoryRemove { .. }
        | Call::PresenceStats { .. }
        | Call::Instruct(_)
        | Call::Info { .. } => ORDINARY,
    }
}

fn of_reply(reply: &Reply) -> u32 {
    let entries = match reply {
        Reply::History { publications, .. } => publications.len(),
        Reply::Presence(presence) => presence.visitors.len(),
        Reply::Channels(channels) => channels.len(),
        Reply::Subscribed(subscribed) => {
            subscribed.recovered.as_ref().map_or(0, |recovered| recovered.publications.len())
        }
        Reply::Published { .. }
        | Reply::Delivered(_)
        | Reply::Done
        | Reply::PresenceStats { .. }
        | Reply::Info(_)
        | Reply::Failed(_) => 0,
    };
    ORDINARY + u32::try_from(entries / ENTRIES_PER_UNIT).unwrap_or(u32::MAX)
}
