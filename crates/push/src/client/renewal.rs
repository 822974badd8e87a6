//! Tokens that clients renew in time: that of the connection, and those of subscriptions.
//! In: tokens. Out: when the connection or a subscription ends; replies.
//! Never: accepts a token of another user or for another purpose; renews connections and subscriptions that the backend renews
//! (`backend_requests.rs`).

use crate::client::codec::Answer;
use crate::client::command::Renewal;
use crate::client::{Connection, Context, Disconnect};
use crate::settings::Error;
use crate::token::Refusal;

impl Connection {
    pub(super) fn refresh<K>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        token: &str,
        out: &mut Vec<u8>,
    ) -> Result<Result<(), Error>, Disconnect> {
        if self.is_renewed() {
            return Err(Disconnect::BAD_REQUEST);
        }
        match context.connection_claims(token) {
            Ok(claims) if *claims.sub == *self.user => self.set_end(claims.ends_at()),
            Ok(_) | Err(Refusal::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(Refusal::Expired) => return Err(Disconnect::EXPIRED),
            Err(Refusal::Unavailable) => return Ok(Err(Error::Internal)),
        }
        let ttl = self.end().map(|at| at.saturating_sub(context.unix_seconds));
        let answer = Answer::Renewed { client: &self.name.text(), ttl_seconds: ttl };
        self.codec.encode_answer(out, id, &answer);
        Ok(Ok(()))
    }

    pub(super) fn refresh_subscription<K>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        renewal: &Renewal,
        out: &mut Vec<u8>,
    ) -> Result<Result<(), Error>, Disconnect> {
        let claims = match context.claims(&renewal.token) {
            Ok(claims) => claims,
            Err(Refusal::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(Refusal::Expired) => return Err(Disconnect::SUBSCRIPTION_EXPIRED),
            Err(Refusal::Unavailable) => return Ok(Err(Error::Internal)),
        };
        // Some clients omit the channel, which the token names, too.
        let channel = match renewal.channel.as_str() {
            "" => claims.channel.as_deref().ok_or(Disconnect::BAD_REQUEST)?,
            stated => stated,
        };
        if !self.is_own(&claims, channel) {
            return Err(Disconnect::INVALID_TOKEN);
        }
        let Some(subscription) = self.subscriptions.get_mut(channel) else {
            return Ok(Err(Error::PermissionDenied));
        };
        if subscription.is_renewed {
            return Err(Disconnect::BAD_REQUEST);
        }
        subscription.expires_at = claims.ends_at();
        let ttl = claims.ends_at().map(|at| at.saturating_sub(context.unix_seconds));
        self.codec.encode_answer(out, id, &Answer::SubscriptionRenewed { ttl_seconds: ttl });
        Ok(Ok(()))
    }
}
