//! The settings of hubs, prepared for lookups, and the permissions of clients.
//! In: the configuration; names of channels; the data about a client. Out: the settings of a channel; permissions.
//! Limits: `channel-length-max`. Never: allows an action that the namespace of a channel does not allow.

use std::sync::Arc;

use tidegate_base::Span;
use tidegate_config::model::{
    BackendEvent, Config, Namespace, Permit, Push, RemoteAddress, Subscribe, is_channel_pattern,
};
use tidegate_wire::jwt::FetchedKeys;

use crate::queue::QueueLimits;
use crate::stream::StreamLimits;
use crate::token::{Claims, Keys};

/// The message for a client that uses a pattern in place of a channel.
const PATTERN_TEXT: &str =
    "channel patterns are not supported: a name has no `*` and does not begin with `/`";

/// Errors of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// This program failed.
    Internal,
    /// The channel's namespace does not exist.
    UnknownChannel,
    /// The namespace does not allow it.
    PermissionDenied,
    /// The method does not exist.
    MethodNotFound,
    /// The connection is subscribed to the channel already.
    AlreadySubscribed,
    /// Too many channels, or no memory for another history.
    LimitExceeded,
    /// The request is malformed.
    BadRequest,
    /// The name of the channel is a pattern.
    ChannelPattern,
    /// The namespace does not have the feature.
    NotAvailable,
    /// The token has expired.
    TokenExpired,
    /// The time of a connection or subscription is over before it begins.
    Expired,
    /// Messages arrive faster than the workers deliver them.
    TooManyRequests,
    /// The history has another epoch.
    UnrecoverablePosition,
}

impl Error {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u32 {
        self.parts().0
    }

    /// The text on the wire.
    #[must_use]
    pub const fn message(self) -> &'static str {
        self.parts().1
    }

    /// Number and text. The numbers are those of Centrifugo, which its client libraries know.
    const fn parts(self) -> (u32, &'static str) {
        match self {
            Self::Internal => (100, "internal server error"),
            Self::UnknownChannel => (102, "unknown channel"),
            Self::PermissionDenied => (103, "permission denied"),
            Self::MethodNotFound => (104, "method not found"),
            Self::AlreadySubscribed => (105, "already subscribed"),
            Self::LimitExceeded => (106, "limit exceeded"),
            Self::BadRequest => (107, "bad request"),
            Self::ChannelPattern => (107, PATTERN_TEXT),
            Self::NotAvailable => (108, "not available"),
            Self::TokenExpired => (109, "token expired"),
            Self::Expired => (110, "expired"),
            Self::TooManyRequests => (111, "too many requests"),
            Self::UnrecoverablePosition => (112, "unrecoverable position"),
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::Internal | Self::TooManyRequests)
    }
}

/// The settings of all hubs of a configuration.
#[derive(Debug)]
pub struct Hubs {
    /// The hubs, by their index in the configuration.
    hubs: Vec<HubSettings>,
}

/// The settings of a hub.
#[derive(Debug)]
pub struct HubSettings {
    /// As configured.
    pub push: Push,
    /// The bounds of the messages that wait for a client.
    pub queue: QueueLimits,
    /// The keys of tokens.
    pub keys: Keys,
}

/// The facts about a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client<'a> {
    /// The user of its token; empty for a client without a user.
    pub user: &'a str,
}

impl Hubs {
    /// Prepares the settings of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::with_keys(config, |_| None)
    }

    /// As [`Self::new`]; `find` returns the keys of an address.
    #[must_use]
    pub fn with_keys(
        config: &Config,
        find: impl Fn(&RemoteAddress) -> Option<Arc<FetchedKeys>>,
    ) -> Self {
        Self { hubs: config.push.iter().map(|hub| HubSettings::new(hub, &find)).collect() }
    }

    /// The hubs, by index.
    pub(crate) fn all(&self) -> impl Iterator<Item = &HubSettings> {
        self.hubs.iter()
    }

    /// Whether commands of a client may have to wait: for a backend, until its token is verified, or for the owners of the
    /// channels that its token names.
    #[must_use]
    pub fn lets_commands_wait(&self) -> bool {
        self.has_backends() || self.hubs.iter().any(|hub| hub.keys.is_some())
    }

    /// Whether the hubs are the same, except for the keys of tokens and of the server API, which may change while the process
    /// serves.
    #[must_use]
    pub fn has_hubs_of(&self, other: &Self) -> bool {
        let all =
            |hubs: &Self| hubs.hubs.iter().map(|hub| hub.push.without_keys()).collect::<Vec<_>>();
        all(self) == all(other)
    }

    /// The settings of hub `index`.
    #[must_use]
    pub fn get(&self, index: u16) -> Option<&HubSettings> {
        self.hubs.get(usize::from(index))
    }

    /// The index of the hub of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u16> {
        self.hubs.iter().position(|hub| hub.push.name == name).map(|index| index as u16)
    }

    /// Whether a hub has a backend.
    #[must_use]
    pub fn has_backends(&self) -> bool {
        self.hubs.iter().any(|hub| hub.push.backend.is_some())
    }

    /// The number of hubs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hubs.len()
    }

    /// Whether there is no hub.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hubs.is_empty()
    }
}

impl HubSettings {
    fn new(push: &Push, find: impl FnOnce(&RemoteAddress) -> Option<Arc<FetchedKeys>>) -> Self {
        let queue = QueueLimits {
            messages_max: push.queue_messages_max,
            bytes_max: push.queue_bytes_max,
            slow: push.slow,
        };
        Self { push: push.clone(), queue, keys: Keys::new(push, find) }
    }

    /// The settings of a channel.
    ///
    /// # Errors
    /// The name is invalid or a pattern, or its namespace does not exist.
    pub fn channel(&self, name: &str) -> Result<&Namespace, Error> {
        let is_name = !name.is_empty()
            && name.len() <= self.push.channel_bytes_max
            && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_name {
            return Err(Error::BadRequest);
        }
        if is_channel_pattern(name) {
            return Err(Error::ChannelPattern);
        }
        let namespace = namespace_of(name);
        if namespace.is_empty() && !name.contains(':') {
            return Ok(&self.push.channels);
        }
        let found = self.push.namespaces.iter().find(|known| known.name == namespace);
        found.ok_or(Error::UnknownChannel)
    }

    /// Whether a client by URL with these claims may subscribe to a channel.
    ///
    /// # Errors
    /// Why it may not.
    pub fn may_subscribe_by(&self, name: &str, claims: &Claims) -> Result<&Namespace, Error> {
        if claims.names(name) {
            return self.channel(name);
        }
        if claims.channel.is_some() {
            return Err(Error::PermissionDenied);
        }
        self.may_subscribe(name, Client { user: &claims.sub })
    }

    /// Whether the backend decides about subscriptions to the channel without a token.
    #[must_use]
    pub fn is_asked_to_subscribe(&self, name: &str) -> bool {
        let is_plain = !name.starts_with(PRIVATE) && !name.contains(USERS);
        is_plain && self.channel(name).is_ok_and(|known| known.sends(BackendEvent::Subscribe))
    }

    /// Whether a client without a token for the channel may subscribe to it, and the backend is not asked.
    ///
    /// # Errors
    /// Why it may not.
    pub fn may_subscribe(&self, name: &str, client: Client<'_>) -> Result<&Namespace, Error> {
        let namespace = self.channel(name)?;
        // A name with a boundary of users is only for the users that it lists.
        if let Some((_, users)) = name.rsplit_once(USERS) {
            let is_listed = users.split(USERS_SEPARATOR).any(|user| user == client.user);
            let is_allowed = namespace.user_channels && is_listed && !client.user.is_empty();
            let is_own = is_allowed && !name.starts_with(PRIVATE);
            return if is_own { Ok(namespace) } else { Err(Error::PermissionDenied) };
        }
        let is_open = !name.starts_with(PRIVATE) && !namespace.sends(BackendEvent::Subscribe);
        let is_allowed = match namespace.subscribe {
            Subscribe::Token => false,
            Subscribe::Users => is_open && !client.user.is_empty(),
            Subscribe::Anyone => is_open,
        };
        if is_allowed { Ok(namespace) } else { Err(Error::PermissionDenied) }
    }
}

/// The namespace in the name of a channel; empty: none.
pub(crate) fn namespace_of(channel: &str) -> &str {
    let plain = channel.strip_prefix(PRIVATE).unwrap_or(channel);
    plain.split_once(':').map_or("", |(namespace, _)| namespace)
}

/// Whether a client may perform the action that `permit` guards.
#[must_use]
pub fn is_permitted(permit: Permit, client: Client<'_>, is_subscribed: bool) -> bool {
    match permit {
        Permit::Api => false,
        Permit::Subscribers => is_subscribed,
        Permit::Users => !client.user.is_empty(),
        Permit::Anyone => true,
    }
}

/// The first character of channels that need a token.
const PRIVATE: char = '$';
/// Precedes the list of users in the name of a channel.
const USERS: char = '#';
/// Separates the users in that list.
const USERS_SEPARATOR: char = ',';

/// The bounds of a channel's history; `None` if it keeps none.
#[must_use]
pub fn stream_limits(namespace: &Namespace) -> Option<StreamLimits> {
    let is_on = namespace.history > 0 && namespace.history_age > Span::ZERO;
    is_on.then_some(StreamLimits { length_max: namespace.history, age_max: namespace.history_age })
}

/// Whether a request to the server API carries one of the hub's keys. The time that this takes does not depend on how
/// much of a key is right.
#[must_use]
pub fn is_api_key(push: &Push, given: &[u8]) -> bool {
    let is_same = |key: &String| {
        let differing = key.bytes().zip(given).fold(0, |all, (a, b)| all | (a ^ b));
        core::hint::black_box(differing) == 0 && key.len() == given.len()
    };
    push.api_keys.iter().fold(false, |found, key| found | is_same(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(text: &str) -> HubSettings {
        let file = format!("[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\n{text}\n");
        let config = match tidegate_config::parse(&file, "the test") {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        };
        HubSettings::new(&config.push[0], |_| None)
    }

    #[test]
    fn clients_subscribe_only_where_the_namespace_allows_it() {
        let hub = hub("subscribe = \"users\"\n[push.p.namespace.open]\nsubscribe = \"anyone\"\n\
                       [push.p.namespace.closed]");
        let (anonymous, user) = (Client { user: "" }, Client { user: "7" });
        let denied = Some(Error::PermissionDenied);
        for (name, of_anonymous, of_user) in [
            ("news", denied, None),
            ("open:a", None, None),
            ("$open:a", denied, denied),
            ("open:a#7", denied, denied),
            ("closed:a", denied, denied),
            ("other:a", Some(Error::UnknownChannel), Some(Error::UnknownChannel)),
            ("", Some(Error::BadRequest), Some(Error::BadRequest)),
            ("a b", Some(Error::BadRequest), Some(Error::BadRequest)),
            ("\u{e4}", Some(Error::BadRequest), Some(Error::BadRequest)),
            (&"a".repeat(256), Some(Error::BadRequest), Some(Error::BadRequest)),
            ("open:*", Some(Error::ChannelPattern), Some(Error::ChannelPattern)),
            ("*", Some(Error::ChannelPattern), Some(Error::ChannelPattern)),
            ("/open/:room", Some(Error::ChannelPattern), Some(Error::ChannelPattern)),
            ("open:a/b", None, None),
        ] {
            assert_eq!(hub.may_subscribe(name, anonymous).err(), of_anonymous, "{name}");
            assert_eq!(hub.may_subscribe(name, user).err(), of_user, "{name}");
        }
    }

    #[test]
    fn claims_open_the_channels_that_they_name_and_those_of_users() {
        let hub = hub("[push.p.namespace.known]\nsubscribe = \"users\"\nuser-channels = true");
        for (claims, name, is_allowed) in [
            ("{\"sub\":\"7\"}", "known:a", true),
            ("{\"sub\":\"7\"}", "known:a#7,8", true),
            ("{\"sub\":\"7\"}", "known:a#8", false),
            ("{\"sub\":\"7\"}", "a", false),
            ("{}", "known:a", false),
            ("{\"sub\":\"7\",\"channels\":[\"a\"]}", "a", true),
            ("{\"sub\":\"7\",\"channels\":[\"a\"]}", "b", false),
            ("{\"channels\":[\"a\"],\"subs\":{\"b\":{}}}", "b", true),
            ("{\"channels\":[\"a\"],\"subs\":{\"b\":{}}}", "a", false),
            ("{\"sub\":\"7\",\"channel\":\"$a\"}", "$a", true),
            ("{\"sub\":\"7\",\"channel\":\"$a\"}", "known:a", false),
            ("{\"sub\":\"7\",\"channel\":\"no:a\"}", "no:a", false),
        ] {
            let claims: Claims = serde_json::from_str(claims).expect("claims");
            assert_eq!(
                hub.may_subscribe_by(name, &claims).is_ok(),
                is_allowed,
                "{name} {claims:?}"
            );
        }
    }

    #[test]
    fn channels_of_users_are_for_the_users_that_they_list() {
        let hub = hub("subscribe = \"anyone\"\n[push.p.namespace.own]\nuser-channels = true\n");
        for (name, user, is_allowed) in [
            ("own:a#7", "7", true),
            ("own:a#7,8", "8", true),
            ("own:#7", "7", true),
            ("own:a#7", "8", false),
            ("own:a#7", "", false),
            ("own:a#", "", false),
            ("own:a#7,", "", false),
            ("own:a#77", "7", false),
            ("own:a#7#8", "7", false),
            ("own:a#7#8", "8", true),
            ("own:a#7,8", "7,8", false),
            ("$own:a#7", "7", false),
            ("own:a", "7", false),
            ("a#7", "7", false),
        ] {
            let found = hub.may_subscribe(name, Client { user });
            assert_eq!(found.is_ok(), is_allowed, "{name} {user}");
        }
    }

    #[test]
    fn only_whole_keys_are_accepted() {
        let hub = hub("api-keys = [\"0123456789abcdef\", \"fedcba9876543210\"]");
        for (key, expected) in [
            ("0123456789abcdef", true),
            ("fedcba9876543210", true),
            ("0123456789abcde", false),
            ("0123456789abcdef0", false),
            ("", false),
        ] {
            assert_eq!(is_api_key(&hub.push, key.as_bytes()), expected, "{key}");
        }
        assert!(!is_api_key(&self::hub("").push, b""));
    }
}
