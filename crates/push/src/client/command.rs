//! The commands of Centrifugo's client protocol, version 2, as a client sends them in either encoding.
//! In: the values of a command. Out: the same values, decoded. Never: decides whether a command is permitted.
//! Invariant: the data of a publication is JSON, whatever the encoding of the command.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::api::stated;
use crate::filter::Stated;

/// Maximum number of commands of one message.
pub const COMMANDS_MAX: usize = 1024;

/// A command of a client. Exactly one member is set, except in a pong, which has none.
#[derive(Debug, Default, Deserialize)]
pub struct Command<'a> {
    /// The number that the reply repeats; 0: no reply is wanted.
    #[serde(default)]
    pub id: u32,
    /// Begins the session.
    #[serde(borrow)]
    pub connect: Option<Connect<'a>>,
    /// Subscribes to a channel.
    #[serde(borrow)]
    pub subscribe: Option<Subscribe<'a>>,
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
    #[serde(borrow)]
    pub rpc: Option<Rpc<'a>>,
    /// A message to the application.
    pub send: Option<IgnoredAny>,
    /// Only servers send pings.
    pub ping: Option<IgnoredAny>,
}

impl Command<'_> {
    /// Whether a token must be verified for the command.
    #[must_use]
    pub fn has_token(&self) -> bool {
        let all = [
            self.connect.as_ref().map(|connect| &connect.token),
            self.subscribe.as_ref().map(|subscribe| &subscribe.token),
            self.refresh.as_ref().map(|renewal| &renewal.token),
            self.sub_refresh.as_ref().map(|renewal| &renewal.token),
        ];
        all.into_iter().flatten().any(|token| !token.is_empty())
    }

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
    /// Data of the client for the application.
    #[serde(borrow)]
    pub data: Option<&'a RawValue>,
    /// The name of its library.
    #[serde(default)]
    pub name: String,
    /// The version of its library.
    #[serde(default)]
    pub version: String,
    /// Its last positions in channels to which the application has subscribed it.
    #[serde(default)]
    pub subs: BTreeMap<String, Resume>,
    /// The data is not JSON.
    #[serde(skip)]
    pub has_foreign_data: bool,
}

/// A client's last position in a channel to which the application has subscribed it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Resume {
    /// The client requests the messages that it missed.
    #[serde(default)]
    pub recover: bool,
    /// The epoch of its position.
    #[serde(default)]
    pub epoch: String,
    /// The offset of its position.
    #[serde(default)]
    pub offset: u64,
}

/// The arguments of `subscribe`.
#[derive(Debug, Default, Deserialize)]
pub struct Subscribe<'a> {
    /// The channel.
    #[serde(default)]
    pub channel: String,
    /// The token of the subscription; empty: none.
    #[serde(default)]
    pub token: String,
    /// Data of the client for the application.
    #[serde(borrow)]
    pub data: Option<&'a RawValue>,
    /// The data is not JSON.
    #[serde(skip)]
    pub has_foreign_data: bool,
    /// The client requests the messages that it missed.
    #[serde(default)]
    pub recover: bool,
    /// The epoch of the client's position.
    #[serde(default)]
    pub epoch: String,
    /// The offset of the client's position.
    #[serde(default)]
    pub offset: u64,
    /// How publications may refer to earlier ones; empty: not at all.
    #[serde(default)]
    pub delta: String,
    /// Bit 2: the client requests an error instead of `recovered: false`.
    #[serde(default)]
    pub flag: u64,
    /// Which messages the client requests, by their tags; `None`: all of them.
    #[serde(rename = "tf")]
    pub filter: Option<Stated>,
    /// The kind of subscription; 0: the messages of a channel.
    #[serde(default, rename = "type")]
    pub kind: i32,
}

/// Only a channel.
#[derive(Debug, Default, Deserialize)]
pub struct Named {
    /// The channel.
    #[serde(default)]
    pub channel: String,
}

/// The arguments of `publish`.
#[derive(Debug, Default, Deserialize)]
pub struct Publish<'a> {
    /// The channel.
    #[serde(default)]
    pub channel: String,
    /// The data; `None` if it is missing, or no JSON.
    #[serde(borrow, default, deserialize_with = "stated")]
    pub data: Option<&'a RawValue>,
}

/// The arguments of `rpc`.
#[derive(Debug, Default, Deserialize)]
pub struct Rpc<'a> {
    /// The method.
    #[serde(default)]
    pub method: String,
    /// The arguments.
    #[serde(borrow)]
    pub data: Option<&'a RawValue>,
    /// The data is not JSON.
    #[serde(skip)]
    pub has_foreign_data: bool,
}

/// The arguments of `history`.
#[derive(Debug, Default, Deserialize)]
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
#[derive(Debug, Default, Deserialize)]
pub struct Start {
    /// The offset.
    #[serde(default)]
    pub offset: u64,
    /// The epoch.
    #[serde(default)]
    pub epoch: String,
}

/// The arguments of `refresh` and `sub_refresh`.
#[derive(Debug, Default, Deserialize)]
pub struct Renewal {
    /// The channel, of `sub_refresh`.
    #[serde(default)]
    pub channel: String,
    /// The new token.
    #[serde(default)]
    pub token: String,
}
