//! The context in which a client handles a message, a decision or a check.
//! In: the hub, settings, the time, bounds of the caller. Out: further work for the caller, in addition to sending replies.

use crate::client::backend_requests::BackendRequest;
use crate::effort;
use crate::hub::{Hub, Instance};
use crate::queue::Queue;
use crate::settings::{Error, HubSettings, Hubs};
use crate::token::{Claims, Refusal, Verifier};

/// The context in which a client's messages are handled.
pub struct Context<'c, K> {
    /// The hubs of the worker.
    pub hub: &'c mut Hub<K>,
    /// Their settings.
    pub settings: &'c Hubs,
    /// The verifier of tokens.
    pub verifier: &'c Verifier,
    /// Whether a signature by a public key may be verified, which takes long. After one, no second one may.
    pub may_verify: bool,
    /// The index of the client's hub.
    pub index: u16,
    /// Names the client in the hub.
    pub key: K,
    /// The messages that wait for the client, if it does not read.
    pub queue: Option<&'c mut Queue>,
    /// The time, and random bits.
    pub at: Instance,
    /// Seconds since 1970.
    pub unix_seconds: u64,
    /// How often the client gets a ping.
    pub ping_seconds: Option<u64>,
    /// The name and version of this program.
    pub version: &'c str,
    /// How many bytes of replies the client may be sent now; 0 while it does not read what was sent before. Only
    /// replies with publications or visitors are bounded by it: the others are as short as their commands.
    pub room: usize,
    /// The effort of the commands so far (`effort.rs`), which the caller bounds.
    pub effort: u32,
    /// How many publications were refused because of `publish-rate`.
    pub over_rate: u64,
    /// The requests to the backend that the caller must send.
    pub request: Option<BackendRequest>,
    /// The response of the backend was not a decision.
    pub is_reply_invalid: bool,
}

impl<K> Context<'_, K> {
    pub(super) fn hub_settings(&self) -> Result<&HubSettings, Error> {
        self.settings.get(self.index).ok_or(Error::Internal)
    }

    /// Whether tokens of the hub take long to verify.
    pub(super) fn has_slow_tokens(&self) -> bool {
        self.settings.get(self.index).is_some_and(|hub| hub.keys.is_slow())
    }

    /// The claims of a token.
    pub(super) fn claims(&mut self, token: &str) -> Result<Claims, Refusal> {
        if self.has_slow_tokens() {
            self.may_verify = false;
            self.effort = self.effort.saturating_add(effort::SIGNATURE);
        }
        self.verifier.verify((self.settings, self.index), token, self.unix_seconds)
    }

    /// The claims of a token for a connection. A token for a subscription is refused.
    pub(super) fn connection_claims(&mut self, token: &str) -> Result<Claims, Refusal> {
        let claims = self.claims(token)?;
        if claims.channel.is_some() { Err(Refusal::Invalid) } else { Ok(claims) }
    }

    /// Random bits that no other call of the message uses.
    pub(super) fn next_instance(&mut self) -> Instance {
        self.at.1 = tidegate_base::prng::mix64(self.at.1);
        self.at
    }
}
