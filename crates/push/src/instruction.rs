//! The application's instructions for the clients of a user: the methods `subscribe`, `unsubscribe`, `disconnect` and
//! `refresh` of the server API.
//! In: the body of a request. Out: an instruction, or why it is refused.
//! Never: accepts an argument that it would have to ignore.
//! Limits: `SPARED_MAX` clients in `whitelist`; reasons of 123 bytes, which fit into a Close frame.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tidegate_config::model::Namespace;

use crate::position::Since;
use crate::server_subscription::json_of;
use crate::settings::{Error, HubSettings, stream_limits};

/// Maximum number of clients that a `disconnect` spares.
const SPARED_MAX: usize = 1000;
/// The longest reason of a disconnect (RFC 6455 section 5.5).
const REASON_BYTES_MAX: usize = 123;

/// An order of the application about clients of a user.
#[derive(Debug)]
pub struct Instruction {
    /// Index of the hub.
    pub hub: u16,
    /// The user of the clients; empty: anonymous.
    pub user: Arc<str>,
    /// The name of the only client that it applies to; empty: all clients of the user.
    pub client: Arc<str>,
    /// The name of the only session that it applies to, as clients without WebSocket have it; empty: all connections.
    pub session: Box<str>,
    /// The names of clients that it does not apply to.
    pub spared: Vec<Arc<str>>,
    /// The instruction.
    pub what: ClientChange,
}

/// An instruction about a client.
#[derive(Debug)]
pub enum ClientChange {
    /// It gets the messages of a channel.
    Subscribe(Addition),
    /// It gets no more messages of a channel.
    Unsubscribe {
        /// The channel.
        channel: Arc<str>,
    },
    /// It is disconnected.
    Disconnect {
        /// The code of the Close frame.
        code: u16,
        /// The reason.
        reason: Box<str>,
    },
    /// Its connection ends at another time; `None`: never.
    Refresh {
        /// In seconds since 1970.
        expires_at: Option<u64>,
        /// The data about the user that other clients see from then on: JSON; `None`: unchanged.
        info: Option<Box<str>>,
    },
}

/// The subscription that the application makes for a client.
#[derive(Debug)]
pub struct Addition {
    /// The channel.
    pub channel: Arc<str>,
    /// The client gets the messages that it has missed since then.
    pub since: Option<Since>,
    /// Data for the client: JSON in one line; empty: none.
    pub data: Box<str>,
    /// The data about the client that others see in this channel: JSON in one line; empty: none.
    pub info: Box<str>,
    /// When the subscription ends, in seconds since 1970.
    pub expires_at: Option<u64>,
    /// What differs from the settings of the namespace.
    pub overrides: Overrides,
}

/// What differs from the settings of the namespace for one subscription; `None`: nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Overrides {
    /// Whether the list of the channel's clients contains the client.
    pub is_listed: Option<bool>,
    /// Whether the join and the leave of the client are reported in the channel.
    pub is_announced: Option<bool>,
    /// Whether the client gets the reports about others.
    pub hears_visits: Option<bool>,
    /// Whether the client is told its position, so that it can recover.
    pub recovers: Option<bool>,
}

/// The methods that instruct clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstructionMethod {
    /// Becomes `ClientChange::Subscribe`.
    Subscribe,
    /// Becomes `ClientChange::Unsubscribe`.
    Unsubscribe,
    /// Becomes `ClientChange::Disconnect`.
    Disconnect,
    /// Becomes `ClientChange::Refresh`, or a disconnect if the request contains `expired`.
    Refresh,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(default)]
    user: String,
    #[serde(default)]
    client: String,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    whitelist: Vec<String>,
    disconnect: Option<Code>,
    #[serde(default)]
    expired: bool,
    #[serde(default)]
    expire_at: i64,
    recover_since: Option<Start>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    #[serde(default)]
    session: String,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(rename = "override")]
    overrides: Option<Override>,
}

/// The member `override`.
#[derive(Deserialize)]
struct Override {
    presence: Option<Flag>,
    join_leave: Option<Flag>,
    force_push_join_leave: Option<Flag>,
    force_recovery: Option<Flag>,
    force_positioning: Option<Flag>,
}

#[derive(Clone, Copy, Deserialize)]
struct Flag {
    #[serde(default)]
    value: bool,
}

impl Override {
    /// The overrides for a subscription to a channel of this namespace.
    ///
    /// # Errors
    /// One of them has no effect there.
    fn check(&self, namespace: &Namespace) -> Result<Overrides, Error> {
        let value = |flag: Option<Flag>| flag.map(|flag| flag.value);
        let (recovers, has_position) = (value(self.force_recovery), value(self.force_positioning));
        let is_listed = value(self.presence);
        let has_no_history = stream_limits(namespace).is_none();
        // With a history, each position comes with recovery.
        let is_without_effect = is_listed == Some(true) && !namespace.presence
            || recovers == Some(true) && has_no_history
            || has_position == Some(true) && (has_no_history || recovers == Some(false));
        if is_without_effect {
            return Err(Error::NotAvailable);
        }
        Ok(Overrides {
            is_listed,
            is_announced: value(self.join_leave),
            hears_visits: value(self.force_push_join_leave),
            recovers,
        })
    }
}

#[derive(Deserialize)]
struct Code {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    epoch: String,
}

impl Instruction {
    /// Reads a request. The outer error is that of malformed JSON.
    ///
    /// # Errors
    /// Why the request is refused.
    pub fn read(
        (hub, settings): (u16, &HubSettings),
        steering: InstructionMethod,
        body: &str,
    ) -> Result<Result<Self, Error>, serde_json::Error> {
        let request: Request<'_> = serde_json::from_str(body)?;
        Ok(request.check(settings, steering).map(|what| Self {
            hub,
            user: request.user.into(),
            client: request.client.into(),
            session: request.session.into(),
            spared: request.whitelist.into_iter().map(Arc::from).collect(),
            what,
        }))
    }

    /// Whether the instruction does not apply to this client.
    #[must_use]
    pub fn spares(&self, client: &str) -> bool {
        self.spared.iter().any(|spared| **spared == *client)
    }
}

impl Request<'_> {
    fn check(
        &self,
        settings: &HubSettings,
        steering: InstructionMethod,
    ) -> Result<ClientChange, Error> {
        // Anonymous clients have no user: one of them must be named.
        if self.user.is_empty() && self.client.is_empty() && self.session.is_empty() {
            return Err(Error::BadRequest);
        }
        let has_info = self.info.is_some() || self.b64info.is_some();
        let (is_subscribe, is_refresh) =
            (steering == InstructionMethod::Subscribe, steering == InstructionMethod::Refresh);
        if has_info && !is_subscribe && !is_refresh
            || !is_subscribe && (self.b64data.is_some() || self.overrides.is_some())
        {
            return Err(Error::NotAvailable);
        }
        if self.whitelist.len() > SPARED_MAX {
            return Err(Error::LimitExceeded);
        }
        // A time before 1970 is a mistake: without an end, it is 0.
        let expires_at = u64::try_from(self.expire_at).map_err(|_| Error::BadRequest)?;
        let expires_at = Some(expires_at).filter(|at| *at > 0);
        match steering {
            InstructionMethod::Subscribe => {
                let namespace = settings.channel(&self.channel)?;
                let since = self.recover_since.as_ref();
                let overrides = self.overrides.as_ref();
                Ok(ClientChange::Subscribe(Addition {
                    channel: self.channel.as_str().into(),
                    since: since.map(|since| Since::new(&since.epoch, since.offset)),
                    data: data_of(settings, self.data, &self.b64data)?.unwrap_or_default(),
                    info: data_of(settings, self.info, &self.b64info)?.unwrap_or_default(),
                    expires_at,
                    overrides: overrides
                        .map_or(Ok(Overrides::default()), |one| one.check(namespace))?,
                }))
            }
            InstructionMethod::Unsubscribe => {
                settings.channel(&self.channel)?;
                Ok(ClientChange::Unsubscribe { channel: self.channel.as_str().into() })
            }
            InstructionMethod::Disconnect => self.check_disconnect(),
            InstructionMethod::Refresh if self.expired => {
                Ok(ClientChange::Disconnect { code: 3005, reason: "connection expired".into() })
            }
            InstructionMethod::Refresh => {
                let info = data_of(settings, self.info, &self.b64info)?;
                Ok(ClientChange::Refresh { expires_at, info })
            }
        }
    }

    fn check_disconnect(&self) -> Result<ClientChange, Error> {
        let Some(Code { code, reason }) = &self.disconnect else {
            let reason = "force disconnect".into();
            return Ok(ClientChange::Disconnect { code: 3503, reason });
        };
        // Client libraries act on a code only if there is a reason, and first try to read the reason as JSON.
        let is_plain = serde_json::from_str::<IgnoredAny>(reason).is_err();
        let is_reason = !reason.is_empty() && reason.len() <= REASON_BYTES_MAX && is_plain;
        if !(3000..5000).contains(code) || !is_reason {
            return Err(Error::BadRequest);
        }
        Ok(ClientChange::Disconnect { code: *code, reason: reason.as_str().into() })
    }
}

/// The JSON of a member, or of its form in base64.
fn data_of(
    settings: &HubSettings,
    plain: Option<&RawValue>,
    encoded: &Option<String>,
) -> Result<Option<Box<str>>, Error> {
    let json = json_of(plain, encoded.as_deref()).map_err(|_| Error::BadRequest)?;
    match json.as_ref().is_some_and(|json| json.len() > settings.push.message_bytes_max) {
        true => Err(Error::LimitExceeded),
        false => Ok(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Hubs;

    #[test]
    fn requests_are_complete_or_refused() {
        let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\n";
        let config = tidegate_config::parse(file, "the test").unwrap_or_else(|e| panic!("{e}"));
        let hubs = Hubs::new(&config);
        let hub = hubs.get(0).expect("a hub");
        let read = |steering, body| Instruction::read((0, hub), steering, body);
        let long = format!(
            r#"{{"user":"u","disconnect":{{"code":4000,"reason":"{}"}}}}"#,
            "x".repeat(124)
        );
        for (steering, body, expected) in [
            (InstructionMethod::Disconnect, r#"{"user":"u"}"#, None),
            (InstructionMethod::Disconnect, r#"{"client":"c"}"#, None),
            (InstructionMethod::Disconnect, "{}", Some(Error::BadRequest)),
            (
                InstructionMethod::Disconnect,
                r#"{"user":"u","session":"s","info":{}}"#,
                Some(Error::NotAvailable),
            ),
            (InstructionMethod::Disconnect, r#"{"session":"s"}"#, None),
            (
                InstructionMethod::Disconnect,
                r#"{"user":"u","disconnect":{"code":4001,"reason":"gone"}}"#,
                None,
            ),
            (
                InstructionMethod::Disconnect,
                r#"{"user":"u","disconnect":{"code":1000,"reason":"gone"}}"#,
                Some(Error::BadRequest),
            ),
            (
                InstructionMethod::Disconnect,
                r#"{"user":"u","disconnect":{"code":4001,"reason":"{}"}}"#,
                Some(Error::BadRequest),
            ),
            (InstructionMethod::Disconnect, &long, Some(Error::BadRequest)),
            (InstructionMethod::Subscribe, r#"{"user":"u","channel":"a"}"#, None),
            (
                InstructionMethod::Subscribe,
                r#"{"user":"u","channel":"n:a"}"#,
                Some(Error::UnknownChannel),
            ),
            (
                InstructionMethod::Subscribe,
                r#"{"user":"u","channel":"a","info":{},"b64data":"e30=","override":{"presence":{}}}"#,
                None,
            ),
            (
                InstructionMethod::Subscribe,
                r#"{"user":"u","channel":"a","b64info":"ew=="}"#,
                Some(Error::BadRequest),
            ),
            (
                InstructionMethod::Unsubscribe,
                r#"{"user":"u","channel":"a","override":{}}"#,
                Some(Error::NotAvailable),
            ),
            (InstructionMethod::Refresh, r#"{"user":"u","info":{"a":1}}"#, None),
            (InstructionMethod::Unsubscribe, r#"{"user":"u"}"#, Some(Error::BadRequest)),
            (InstructionMethod::Refresh, r#"{"user":"u","expire_at":5}"#, None),
            (InstructionMethod::Refresh, r#"{"user":"u","expire_at":-5}"#, Some(Error::BadRequest)),
        ] {
            let found = read(steering, body).expect("JSON");
            assert_eq!(found.err(), expected, "{body}");
        }
        // The channel has no history and no presence.
        for name in ["presence", "force_recovery", "force_positioning"] {
            let body = |value| {
                format!(
                    r#"{{"user":"u","channel":"a","override":{{"{name}":{{"value":{value}}}}}}}"#
                )
            };
            for (value, expected) in [(true, Some(Error::NotAvailable)), (false, None)] {
                let body = body(value);
                let found = Instruction::read((0, hub), InstructionMethod::Subscribe, &body);
                let found = found.expect("JSON");
                assert_eq!(found.err(), expected, "{name} {value}");
            }
        }
        assert!(read(InstructionMethod::Refresh, "[").is_err());
        let empty =
            read(InstructionMethod::Disconnect, r#"{"user":"u","disconnect":{"code":4001}}"#);
        assert_eq!(empty.expect("JSON").err(), Some(Error::BadRequest), "a reason is needed");
    }
}
