//! The beginning of a session: `connect`, and the channels that its token or the application's backend subscribes the client to.
//! In: the command, the grant, replies of the owners of these channels. Out: subscriptions; then one reply with all of them.
//! Never: connects a client without one of these channels: `connect` fails instead; sends a part of the reply.
//! Limits: `channels-max` of the hub; recovered publications of `Context::room` bytes in the reply.
//! Invariant: while `Connection::is_connect_reply_pending`, the client gets nothing, and no command of it is handled.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::codec::{Answer, Connected, Joined};
use crate::client::command::{Connect, Resume};
use crate::client::{Asker, Connection, Context, Disconnect, Granted, Waiting, fitting};
use crate::effort;
use crate::mail::Subscribed;
use crate::position::Since;
use crate::publication::is_too_deep;
use crate::server_subscription::ServerSubscription;
use crate::settings::Error;
use crate::stream::Recovered;
use crate::token::{Claims, Refusal};

/// A client's last positions in channels to which the application has subscribed it.
pub(super) type Resumes = BTreeMap<String, Resume>;

/// The reply to `connect` that waits for owners.
#[derive(Debug)]
pub(super) struct Welcome {
    /// The id of the command.
    id: u32,
    /// Data of the application: JSON; empty: none.
    data: Box<str>,
    /// How many owners have not replied.
    left: usize,
    /// The entries of the channels whose owners have replied, encoded.
    entries: Vec<u8>,
}

/// The grant of a token or the backend for a client that connects.
#[derive(Debug, Default)]
pub(super) struct ConnectGrant {
    /// Data of the application: JSON; empty: none.
    pub(super) data: Box<str>,
    /// The channels that the client is subscribed to.
    pub(super) subscriptions: Vec<ServerSubscription>,
}

impl Connection {
    /// Whether the reply to `connect` waits for owners of channels.
    #[must_use]
    pub fn is_connect_reply_pending(&self) -> bool {
        self.welcome.is_some()
    }

    /// Whether a command waits, so that no later one is handled.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.is_connect_reply_pending() || self.awaits_backend()
    }

    pub(super) fn connect<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        connect: &Connect<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        let Ok(hub) = context.hub_settings() else { return Err(Disconnect::BAD_REQUEST) };
        if connect.token.is_empty() {
            if self.asks_about_connect(hub) {
                let data = connect.data.map_or("", |data| data.get());
                if connect.has_foreign_data || is_too_deep(data) {
                    return Err(Disconnect::BAD_REQUEST);
                }
                self.ask_connect(context, id, connect);
                return Ok(());
            }
            if !hub.push.anonymous {
                return Err(Disconnect::BAD_REQUEST);
            }
            self.begin_welcome(context, id, ConnectGrant::default(), &connect.subs, out);
            return Ok(());
        }
        let claims = context.connection_claims(&connect.token);
        match claims.and_then(|claims| self.take_claims(&claims)) {
            Ok(grant) => self.begin_welcome(context, id, grant, &connect.subs, out),
            Err(Refusal::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(Refusal::Expired) => self.fail_connect(context, id, Error::TokenExpired, out),
            Err(Refusal::Unavailable) => self.fail_connect(context, id, Error::Internal, out),
        }
        Ok(())
    }

    /// Notes the claims of the connection's token.
    fn take_claims(&mut self, claims: &Claims) -> Result<ConnectGrant, Refusal> {
        let (info, meta) = (claims.info()?, claims.meta()?);
        let subscriptions = claims.subscriptions()?;
        self.user = claims.sub.as_str().into();
        self.conn_info = info.into();
        self.set_end(claims.ends_at());
        self.set_meta(meta);
        Ok(ConnectGrant { data: Box::default(), subscriptions })
    }

    /// Subscribes the client to the channels of its grant, and replies to `connect` when all of their owners have replied.
    pub(super) fn begin_welcome<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        grant: ConnectGrant,
        resumes: &Resumes,
        out: &mut Vec<u8>,
    ) {
        let ConnectGrant { data, subscriptions } = grant;
        let left = subscriptions.len();
        self.welcome = Some(Box::new(Welcome { id, data, left, entries: Vec::new() }));
        let most = context.hub_settings().map_or(0, |hub| hub.push.channels_max as usize);
        let begun = match left > most {
            true => Err(Error::LimitExceeded),
            false => subscriptions.iter().try_for_each(|one| {
                self.begin_granted(context, one, resumes.get(&*one.channel), out)
            }),
        };
        match begun {
            Ok(()) => self.end_welcome(context, out),
            Err(error) => self.fail_connect(context, id, error, out),
        }
    }

    fn begin_granted<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        one: &ServerSubscription,
        resume: Option<&Resume>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let namespace = context.hub_settings()?.channel(&one.channel)?;
        let is_visible = namespace.presence || namespace.join_leave;
        let resume = resume.filter(|resume| resume.recover);
        let since = resume.map(|resume| Since::new(&resume.epoch, resume.offset));
        context.effort = context.effort.saturating_add(effort::of_granted(since.is_some()));
        let waiting = Waiting {
            asker: Asker::Connect,
            since: since.map(|since| since.offset),
            rejects_unrecovered: false,
            data: one.data.clone(),
            chan_info: one.info.clone(),
            is_renewed: false,
        };
        let granted = Granted { is_visible, ..Granted::default() };
        self.begin_subscription(context, &one.channel, since, granted, waiting, out)
    }

    /// The owner of a granted channel has replied.
    pub(super) fn confirm_granted<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        channel: &str,
        reply: &Subscribed,
        (since, data): (Option<u64>, &str),
        out: &mut Vec<u8>,
    ) {
        let Some(welcome) = &mut self.welcome else { return };
        let missed = reply.recovered.as_ref().map_or(&[][..], |recovered| &recovered.publications);
        let fits = fitting(missed, context.room, &welcome.entries) == missed.len();
        let lost = (!fits).then(|| Subscribed { recovered: Some(Recovered::LOST), ..*reply });
        let joined = Joined::new(lost.as_ref().unwrap_or(reply), since, false);
        self.codec.encode_entry(&mut welcome.entries, channel, &Joined { data, ..joined });
        welcome.left = welcome.left.saturating_sub(1);
        self.end_welcome(context, out);
    }

    /// Replies to `connect` if no owner has to reply.
    fn end_welcome<K: Copy + Eq>(&mut self, context: &mut Context<'_, K>, out: &mut Vec<u8>) {
        let Some(welcome) = self.welcome.take_if(|welcome| welcome.left == 0) else { return };
        self.is_connected = true;
        self.enter(context);
        let now = context.unix_seconds;
        // A client that the backend renews must not do so itself.
        let ends_at = self.end().filter(|_| !self.is_renewed());
        let connected = Connected {
            client: &self.name.text(),
            version: context.version,
            ttl_seconds: ends_at.map(|at| at.saturating_sub(now)),
            ping_seconds: context.ping_seconds,
            session: self.emulated.as_ref().map_or("", |emulated| &emulated.session),
            node: self.emulated.as_ref().map_or("", |emulated| &emulated.node),
            data: &welcome.data,
            entries: &welcome.entries,
        };
        self.codec.encode_answer(out, welcome.id, &Answer::Connected(connected));
    }

    /// The owner of a granted channel has refused the subscription, which has ended.
    pub(super) fn refuse_granted<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        error: Error,
        out: &mut Vec<u8>,
    ) {
        if let Some(id) = self.welcome.as_ref().map(|welcome| welcome.id) {
            self.fail_connect(context, id, error, out);
        }
    }

    /// Replies to `connect` with an error. The client gets no further reply.
    pub(super) fn fail_connect<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        error: Error,
        out: &mut Vec<u8>,
    ) {
        self.has_failed = true;
        self.welcome = None;
        let all: Vec<Arc<str>> =
            self.subscriptions.iter().map(|(name, _)| Arc::clone(name)).collect();
        all.iter().for_each(|channel| self.unsubscribe(context, channel));
        self.codec.encode_error(out, id, error);
    }
}

#[cfg(test)]
mod tests;
