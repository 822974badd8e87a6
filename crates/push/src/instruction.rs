//! The application's instructions for the clients of a user: the methods `subscribe`, `unsubscribe`, `disconnect` and
//! `refresh` of the server API.
//! In: the body of a request. Out: an instruction, or why it is refused.
//! Never: accepts an argument that it would have to ignore.
//! Limits: `SPARED_MAX` clients in `whitelist`; reasons of 123 bytes, which fit into a Close frame.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::position::Since;
use crate::publication::in_one_line;
use crate::settings::{Error, HubSettings};

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
    /// The names of clients that it does not apply to.
    pub spared: Vec<Arc<str>>,
    /// The instruction.
    pub what: ClientChange,
}

/// An instruction about a client.
#[derive(Debug)]
pub enum ClientChange {
    /// It gets the messages of a channel.
    Subscribe {
        /// The channel.
        channel: Arc<str>,
        /// It gets the messages that it has missed since then.
        since: Option<Since>,
        /// Data for the client: JSON in one line; empty: none.
        data: Box<str>,
        /// When the subscription ends, in seconds since 1970.
        expires_at: Option<u64>,
    },
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
    },
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
    #[serde(default)]
    session: String,
    info: Option<IgnoredAny>,
    b64info: Option<IgnoredAny>,
    b64data: Option<IgnoredAny>,
    #[serde(rename = "override")]
    overrides: Option<IgnoredAny>,
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
        if self.user.is_empty() && self.client.is_empty() {
            return Err(Error::BadRequest);
        }
        let has_more = [&self.info, &self.b64info, &self.b64data, &self.overrides];
        if !self.session.is_empty() || has_more.into_iter().any(Option::is_some) {
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
                settings.channel(&self.channel)?;
                let data = self.data.map_or_else(Box::default, |data| in_one_line(data.get()));
                if data.len() > settings.push.message_bytes_max {
                    return Err(Error::LimitExceeded);
                }
                let since = self.recover_since.as_ref();
                let since = since.map(|since| Since::new(&since.epoch, since.offset));
                let channel = self.channel.as_str().into();
                Ok(ClientChange::Subscribe { channel, since, data, expires_at })
            }
            InstructionMethod::Unsubscribe => {
                settings.channel(&self.channel)?;
                Ok(ClientChange::Unsubscribe { channel: self.channel.as_str().into() })
            }
            InstructionMethod::Disconnect => self.check_disconnect(),
            InstructionMethod::Refresh if self.expired => {
                Ok(ClientChange::Disconnect { code: 3005, reason: "connection expired".into() })
            }
            InstructionMethod::Refresh => Ok(ClientChange::Refresh { expires_at }),
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
                r#"{"user":"u","session":"s"}"#,
                Some(Error::NotAvailable),
            ),
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
                r#"{"user":"u","channel":"a","info":{}}"#,
                Some(Error::NotAvailable),
            ),
            (InstructionMethod::Unsubscribe, r#"{"user":"u"}"#, Some(Error::BadRequest)),
            (InstructionMethod::Refresh, r#"{"user":"u","expire_at":5}"#, None),
            (InstructionMethod::Refresh, r#"{"user":"u","expire_at":-5}"#, Some(Error::BadRequest)),
        ] {
            let found = read(steering, body).expect("JSON");
            assert_eq!(found.err(), expected, "{body}");
        }
        assert!(read(InstructionMethod::Refresh, "[").is_err());
        let empty =
            read(InstructionMethod::Disconnect, r#"{"user":"u","disconnect":{"code":4001}}"#);
        assert_eq!(empty.expect("JSON").err(), Some(Error::BadRequest), "a reason is needed");
    }
}
