//! Carries out the application's instructions (server API) for one client.
//! In: instructions that concern the client. Out: calls of the hub; pushes for the client.
//! Never: tells the client of a subscription before the owner has replied.
//! Limits: `channels-max` of the hub; recovered messages of `Context::room` bytes, as for a client that subscribes.

use crate::client::codec::{Body, Joined, Push};
use crate::client::{Asker, Connection, Context, Granted, Waiting, fitting};
use crate::instruction::Addition;
use crate::mail::Subscribed;
use crate::settings::Error;

impl Connection {
    /// Subscribes the client to a channel, unless it is subscribed, or has too many channels. The push follows when the
    /// owner has replied.
    pub fn add_subscription<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        Addition { channel, since, data, info, expires_at, overrides }: &Addition,
        out: &mut Vec<u8>,
    ) {
        let Ok(hub) = context.hub_settings() else { return };
        let Ok(namespace) = hub.channel(channel) else { return };
        let is_full = self.subscriptions.len() >= hub.push.channels_max as usize;
        if is_full || self.subscriptions.contains(channel) {
            return;
        }
        let is_visible = overrides.is_listed.unwrap_or(namespace.presence)
            || overrides.is_announced.unwrap_or(namespace.join_leave);
        let waiting = Waiting {
            asker: Asker::Application,
            since: since.map(|since| since.offset),
            rejects_unrecovered: false,
            data: data.clone(),
            chan_info: info.clone(),
            is_renewed: false,
        };
        // A refusal (no memory for the history) is not reported: the application has its reply before an owner on
        // another worker answers.
        let granted =
            Granted { is_visible, expires_at: *expires_at, features: None, overrides: *overrides };
        let begun = self.begin_subscription(context, channel, *since, granted, waiting, out);
        debug_assert!(begun.is_ok() || !self.subscriptions.contains(channel));
    }

    /// The owner has replied to a subscription that the application has made.
    pub(super) fn confirm_added<K: Copy + Eq>(
        &mut self,
        context: &Context<'_, K>,
        channel: &str,
        reply: &Subscribed,
        (since, data): (Option<u64>, &str),
        out: &mut Vec<u8>,
    ) {
        let whole = reply.recovered.as_ref().filter(|recovered| recovered.is_whole);
        let missed = whole.map_or(&[][..], |recovered| &recovered.publications);
        let fits = fitting(missed, context.room, out) == missed.len();
        let recovers = self.subscriptions.get(channel).is_some_and(|known| known.recovers);
        let told = if fits { Joined::new(reply, since, false).position } else { reply.position };
        let position = told.filter(|_| recovers);
        self.codec.encode_push(out, &Push::Subscribed { channel, position, data });
        for publication in missed.iter().filter(|_| fits) {
            self.codec.encode_push(out, &Push::Publication(publication, Body::Plain));
        }
    }

    /// Ends a subscription of the client, if it has it.
    pub fn end_subscription<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        channel: &str,
        out: &mut Vec<u8>,
    ) {
        let Some(subscription) = self.subscriptions.get(channel) else { return };
        match subscription.waiting.as_ref().map(|waiting| &waiting.asker) {
            Some(Asker::Client(id)) => self.codec.encode_error(out, *id, Error::PermissionDenied),
            // The client has not been notified of the subscription.
            Some(Asker::Application | Asker::Connect) => {}
            None => {
                let (code, reason) = (2000, "server unsubscribe");
                self.codec.encode_push(out, &Push::Unsubscribed { channel, code, reason });
            }
        }
        self.unsubscribe(context, channel);
    }

    /// Changes when the connection ends (`None`: never), and the data about the user that other clients see (`None`: not).
    pub fn change_end<K>(
        &mut self,
        context: &Context<'_, K>,
        (expires_at, info): (Option<u64>, Option<&str>),
        out: &mut Vec<u8>,
    ) {
        self.set_end(expires_at);
        if let Some(info) = info {
            self.conn_info = info.into();
        }
        let ttl_seconds = expires_at.map(|at| at.saturating_sub(context.unix_seconds));
        self.codec.encode_push(out, &Push::Renewed { ttl_seconds });
    }

    /// Notes that the client has connected, so that instructions reach it.
    pub(super) fn enter<K: Copy + Eq>(&self, context: &mut Context<'_, K>) {
        context.hub.roster().enter(context.index, &self.user, self.name, context.key);
    }
}
