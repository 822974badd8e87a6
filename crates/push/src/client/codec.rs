//! The messages between a hub and its clients, and their two encodings.
//! In: messages of a client; replies and pushes as values. Out: commands; bytes for the client.
//! Never: decides the content of a reply; mixes the encodings of a connection.
//! Limits: those of the encodings.

use std::sync::Arc;

use crate::backend::Refused;
use crate::client::command::Command;
use crate::client::{json, protobuf};
use crate::mail::{Presence, Subscribed};
use crate::position::Position;
use crate::publication::{Form, Publication};
use crate::settings::Error;
use crate::stream::Recovered;

/// The encoding of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// Lines of JSON, in text messages.
    Json,
    /// Protocol Buffers, each with its length, in binary messages.
    Protobuf,
}

/// The message is not a list of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// The reply to a command.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// The command has failed.
    Failed(Error),
    /// The application has refused the command.
    Refused(&'a Refused<'a>),
    /// The session has begun.
    Connected(Connected<'a>),
    /// The client is subscribed.
    Subscribed(Joined<'a>),
    /// The client is not subscribed any more.
    Unsubscribed,
    /// The message was published.
    Published,
    /// The reply of the application to `rpc`.
    Called {
        /// Its result: JSON; empty: none.
        data: &'a str,
    },
    /// A part of the history.
    History {
        /// The publications.
        publications: &'a [Arc<Publication>],
        /// The position after the newest publication of the channel.
        position: &'a Position,
    },
    /// The clients of a channel.
    Presence(&'a Presence),
    /// How many clients and how many distinct users a channel has.
    PresenceStats {
        /// Clients.
        clients: u64,
        /// Users.
        users: u64,
    },
    /// The token of the connection was renewed.
    Renewed {
        /// The name of the client.
        client: &'a str,
        /// How long the new token is valid; `None`: it does not expire.
        ttl_seconds: Option<u64>,
    },
    /// The token of a subscription was renewed.
    SubscriptionRenewed {
        /// How long the new token is valid; `None`: it does not expire.
        ttl_seconds: Option<u64>,
    },
}

/// The contents of the reply to `connect`.
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
    /// The name of the session, for clients that send commands as separate requests; empty: there is none.
    pub session: &'c str,
    /// The node that such requests state; empty: there is none.
    pub node: &'c str,
    /// Data of the application: JSON; empty: none.
    pub data: &'c str,
    /// The channels that the client is subscribed to: entries that `Codec::encode_entry` has appended.
    pub entries: &'c [u8],
}

/// The contents of the reply to `subscribe`.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    /// The position before the first publication that the client gets; `None` if the channel has no history.
    pub position: Option<Position>,
    /// The messages that the client missed; `None` if the client did not send a position.
    pub recovered: Option<&'a Recovered>,
    /// Publications may be patches.
    pub has_deltas: bool,
    /// How long the token of the subscription is valid; `None`: it does not expire.
    pub ttl_seconds: Option<u64>,
    /// Data of the application: JSON; empty: none.
    pub data: &'a str,
}

/// How a publication contains its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// As it is.
    Plain,
    /// As it is, in JSON as a string: for a subscription with deltas.
    Text,
    /// As a patch of the previous publication, in JSON as a string.
    Patch(&'a str),
}

/// A message to a client that is not a reply to a command.
#[derive(Clone, Copy, Debug)]
pub enum Push<'a> {
    /// A message, a join or a leave.
    Publication(&'a Publication, Body<'a>),
    /// The hub has ended a subscription.
    Unsubscribed {
        /// The channel.
        channel: &'a str,
        /// The reason, as a code: below 2500 the client does not subscribe again.
        code: u32,
        /// Why, in words; never empty.
        reason: &'a str,
    },
    /// The hub has subscribed the client to a channel.
    Subscribed {
        /// The channel.
        channel: &'a str,
        /// The position before the first publication that the client gets; `None` if the channel has no history.
        position: Option<Position>,
        /// Data of the application: JSON; empty: none.
        data: &'a str,
    },
    /// The connection ends. Over WebSocket, the Close frame contains the code and the reason instead.
    Disconnected {
        /// The code of the reason.
        code: u16,
        /// Why, in words; never empty.
        reason: &'a str,
    },
    /// The time at which the connection expires has changed.
    Renewed {
        /// How long the connection may last; `None`: it does not expire.
        ttl_seconds: Option<u64>,
    },
}

impl<'a> Joined<'a> {
    /// Makes the reply for the client from the reply of the channel's owner. `since`: the offset that the client sent.
    #[must_use]
    pub fn new(reply: &'a Subscribed, since: Option<u64>, has_deltas: bool) -> Self {
        let recovered = reply.recovered.as_ref();
        let first = recovered.and_then(|recovered| recovered.publications.first());
        let before_first = first.map(|first| first.offset().saturating_sub(1));
        // The position of a client that has missed nothing does not change.
        let own = since.filter(|_| recovered.is_some_and(|recovered| recovered.is_whole));
        let position = reply.position.map(|top| {
            let offset = before_first.or(own).unwrap_or(top.offset);
            Position { offset, ..top }
        });
        Self { position, recovered, has_deltas, ttl_seconds: None, data: "" }
    }

    /// How recovered publications contain their data: always whole, never as patches.
    #[must_use]
    pub const fn body(&self) -> Body<'static> {
        if self.has_deltas { Body::Text } else { Body::Plain }
    }
}

impl Codec {
    /// Reads the first command of a message, or of the rest of a message. Also returns the length of the command in bytes.
    ///
    /// # Errors
    /// The bytes do not begin with a command.
    pub fn decode_next(self, message: &[u8]) -> Result<(Command<'_>, usize), Malformed> {
        match self {
            Self::Json => json::decode_next(message),
            Self::Protobuf => protobuf::decode_next(message),
        }
    }

    /// Appends a reply.
    pub fn encode_answer(self, out: &mut Vec<u8>, id: u32, answer: &Answer<'_>) {
        match self {
            Self::Json => json::encode_answer(out, id, answer),
            Self::Protobuf => protobuf::encode_answer(out, id, answer),
        }
    }

    /// Appends an entry to the channels in a reply to `connect`.
    pub fn encode_entry(self, entries: &mut Vec<u8>, channel: &str, joined: &Joined<'_>) {
        match self {
            Self::Json => json::encode_entry(entries, channel, joined),
            Self::Protobuf => protobuf::encode_entry(entries, channel, joined),
        }
    }

    /// Appends an error as the reply.
    pub fn encode_error(self, out: &mut Vec<u8>, id: u32, error: Error) {
        self.encode_answer(out, id, &Answer::Failed(error));
    }

    /// Appends a push.
    pub fn encode_push(self, out: &mut Vec<u8>, push: &Push<'_>) {
        match self {
            Self::Json => json::encode_push(out, push),
            Self::Protobuf => protobuf::encode_push(out, push),
        }
    }

    /// The ping of the server: a message without content.
    #[must_use]
    pub const fn ping(self) -> &'static [u8] {
        match self {
            Self::Json => json::PING,
            Self::Protobuf => protobuf::PING,
        }
    }

    /// The form of publications for clients with this encoding.
    #[must_use]
    pub const fn form(self) -> Form {
        match self {
            Self::Json => Form::Json,
            Self::Protobuf => Form::Protobuf,
        }
    }
}
