//! Tokens that clients renew in time: that of the connection, and those of subscriptions.
//! In: tokens. Out: when the connection or a subscription ends; replies.
//! Never: accepts a token of another user or for another purpose; renews what the backend renews (`asking.rs`).

use crate::client::codec::Answer;
use crate::client::command::Renewal;
use crate::client::{Connection, Context, Disconnect};
use crate::settings::Error;
use crate::token::{Claims, Keys, Refusal};

impl Connection {
    pub(super) fn refresh<K>(
        &mut self,
        context: &Context<'_, K>,
        id: u32,
        token: &str,
        out: &mut Vec<u8>,
    ) -> Result<Result<(), Error>, Disconnect> {
        let Ok(hub) = context.hub_settings() else { return Ok(Err(Error::Internal)) };
        if self.is_renewed() {
            return Err(Disconnect::BAD_REQUEST);
        }
        match connection_claims(&hub.keys, token, context.unix_seconds) {
            Ok(claims) if *claims.sub == *self.user => self.expires_at = claims.ends_at(),
            Ok(_) | Err(Refusal::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(Refusal::Expired) => return Err(Disconnect::EXPIRED),
        }
        let ttl = self.expires_at.map(|at| at.saturating_sub(context.unix_seconds));
        let answer = Answer::Renewed { client: &self.client, ttl_seconds: ttl };
        self.codec.encode_answer(out, id, &answer);
        Ok(Ok(()))
    }

    pub(super) fn refresh_subscription<K>(
        &mut self,
        context: &Context<'_, K>,
        id: u32,
        renewal: &Renewal,
        out: &mut Vec<u8>,
    ) -> Result<Result<(), Error>, Disconnect> {
        let Ok(hub) = context.hub_settings() else { return Ok(Err(Error::Internal)) };
        let now = context.unix_seconds;
        // Some clients omit the channel, which the token names, too.
        let channel = match renewal.channel.is_empty() {
            false => Some(renewal.channel.clone()),
            true => hub.keys.verify(&renewal.token, now).ok().and_then(|claims| claims.channel),
        };
        let Some(channel) = channel else { return Err(Disconnect::BAD_REQUEST) };
        let claims = match self.subscription_claims(hub, &channel, &renewal.token, now)? {
            Ok(claims) => claims,
            Err(Refusal::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(Refusal::Expired) => return Err(Disconnect::SUBSCRIPTION_EXPIRED),
        };
        let Some(subscription) = self.subscriptions.get_mut(channel.as_str()) else {
            return Ok(Err(Error::PermissionDenied));
        };
        if subscription.is_renewed {
            return Err(Disconnect::BAD_REQUEST);
        }
        subscription.expires_at = claims.ends_at();
        let ttl = subscription.expires_at.map(|at| at.saturating_sub(now));
        self.codec.encode_answer(out, id, &Answer::SubscriptionRenewed { ttl_seconds: ttl });
        Ok(Ok(()))
    }
}

/// The claims of a token for a connection. A token for a subscription is refused.
pub(super) fn connection_claims(keys: &Keys, token: &str, now: u64) -> Result<Claims, Refusal> {
    let claims = keys.verify(token, now)?;
    if claims.channel.is_some() { Err(Refusal::Invalid) } else { Ok(claims) }
}
