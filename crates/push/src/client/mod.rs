//! A client that speaks Centrifugo's client protocol: its session, subscriptions and permissions.
//! In: its messages, replies of the hub. Out: calls of the hub; replies and pushes for the client; a disconnect.
//! Never: knows how messages are encoded (`codec.rs`) or reach the client; lets a client exceed the permissions of its namespace.
//! Limits: `channels-max` and `message-max` of the hub; `COMMANDS_MAX` commands in a message, `QUERIES_MAX` of them
//! about history and presence; replies of `Context::room` bytes. `Context::effort` lets the caller bound the messages.
//! Commands about which the application's backend decides are in `backend_requests.rs`.
//! Invariant: each entry of `subscriptions` has a place in the hub until `leave_all`.

pub mod backend_requests;
pub mod codec;
pub mod command;
mod context;
mod disconnect;
mod features;
mod instruct;
pub mod json;
mod protobuf;
mod renewal;
mod subscriptions;
mod welcome;

use std::sync::Arc;

use tidegate_base::limits::PUSH_EFFORT_PER_TURN_MAX;
use tidegate_config::model::{BackendEvent, Namespace};

use crate::client::backend_requests::Backing;
use crate::client::backend_requests::expiry::OVERDUE_SECONDS_MAX;
use crate::client::codec::{Answer, Codec, Joined, Push};
use crate::client::command::{COMMANDS_MAX, Command, History, Publish, Subscribe};
use crate::client::features::{FILTERS_BYTES_MAX, FOSSIL, Features, features, filtered};
use crate::client::subscriptions::{Asker, Subscription, Subscriptions, Waiting};
use crate::client::welcome::Welcome;
use crate::client_name::ClientName;
use crate::effort;
use crate::emulation::{Secret, SessionName};
use crate::hub::Hub;
use crate::instruction::Overrides;
use crate::local::SubscriptionId;
use crate::mail::{Call, Order, PresentClient, Reply, ReplyTo, Subscribed};
use crate::node::NodeId;
use crate::pace::Pace;
use crate::position::Since;
use crate::publication::{Publication, count_within, is_too_deep};
use crate::settings::{Client, Error, Hubs, is_permitted, stream_limits};
use crate::stream::{Excerpt, Recovered};
use crate::token::{Claims, Refusal};

pub use context::Context;
pub use disconnect::Disconnect;

/// How long a client may stay after its token has expired, in seconds.
const EXPIRED_GRACE_SECONDS: u64 = 25;
/// The end of a connection whose token does not expire.
const NEVER: u64 = u64::MAX;
/// Maximum number of publications that a client reads from the history at once.
const HISTORY_MAX: u32 = 300;
/// Maximum number of commands about history and presence in a message.
const QUERIES_MAX: u16 = 32;
/// The bytes of replies to a message beyond which its further commands about history and presence are refused.
const QUERY_REPLIES_BYTES_MAX: u32 = 256 * 1024;
/// The bytes that the encoding of a visitor adds to its name and description.
const VISITOR_COST_BYTES: usize = 8;
/// The bit of `flag` with which a client prefers an error to `recovered: false`.
const REJECTS_UNRECOVERED: u64 = 2;

/// A client.
#[derive(Debug)]
pub struct Connection {
    /// The encoding of its messages.
    codec: Codec,
    /// Its name, which other clients see.
    name: ClientName,
    /// Its user; empty: anonymous.
    user: Arc<str>,
    /// The data about the user that other clients see: JSON; empty: no data.
    conn_info: Arc<str>,
    /// `connect` has succeeded.
    is_connected: bool,
    /// When its token expires, in seconds since 1970, or `NEVER`: `end` and `set_end`.
    expires_at: u64,
    /// By channel.
    subscriptions: Subscriptions,
    /// The memory of the filters of all subscriptions.
    filters_bytes: u32,
    /// How requests name the session, if its commands arrive in requests.
    emulated: Option<Box<Emulated>>,
    /// The data for events to the backend; `None` if the hub has no backend.
    backing: Option<Box<Backing>>,
    /// The reply to `connect`, while it waits for owners of channels.
    welcome: Option<Box<Welcome>>,
    /// `connect` has failed: the client gets no further reply.
    has_failed: bool,
    /// How much of a message was handled, while its rest is still to be handed over.
    handled: Handled,
    /// How much it has used of the hub's `publish-rate`.
    pace: Pace,
}

// There may be a million clients. Rare parts are in boxes of their own.
const _: () = assert!(size_of::<Connection>() <= 128);

/// How much of a message was handled.
#[derive(Clone, Copy, Default, Debug)]
struct Handled {
    /// Its commands.
    commands: u16,
    /// Those of them that read a history or a list of clients.
    queries: u16,
    /// The bytes of replies to them.
    reply_bytes: u32,
}

#[derive(Debug)]
struct Emulated {
    /// The name of the session, and the secret that only its client has.
    session: String,
    secret: Secret,
    /// The worker of the session.
    node: String,
}

/// Whether a client may subscribe.
enum Permission {
    /// It may.
    Granted(SubscribeGrant),
    /// The backend decides.
    OfBackend,
}

/// The grant of a namespace or a token for a subscription.
#[derive(Default)]
struct SubscribeGrant {
    /// Others see it there.
    is_visible: bool,
    /// When its token expires.
    expires_at: Option<u64>,
    /// Data of the application: JSON; empty: none.
    data: Box<str>,
    /// The data about the client that others see there: JSON; empty: no data.
    info: Box<str>,
}

impl Connection {
    /// A client that has not connected. `random`: 128 random bits for its name.
    #[must_use]
    pub fn new(codec: Codec, random: [u64; 2]) -> Self {
        Self {
            codec,
            name: ClientName::from_random(random),
            user: Arc::default(),
            conn_info: Arc::default(),
            is_connected: false,
            expires_at: NEVER,
            subscriptions: Subscriptions::default(),
            filters_bytes: 0,
            emulated: None,
            backing: None,
            welcome: None,
            has_failed: false,
            handled: Handled::default(),
            pace: Pace::default(),
        }
    }

    /// A client whose commands arrive in requests, which name its session.
    #[must_use]
    pub fn emulated(mut self, name: &SessionName, worker: u16) -> Self {
        let (session, secret) = (name.encode(), name.secret);
        self.emulated = Some(Box::new(Emulated { session, secret, node: worker.to_string() }));
        self
    }

    /// Whether the session of the client has this name.
    #[must_use]
    pub fn is_session(&self, name: &str) -> bool {
        self.emulated.as_ref().is_some_and(|emulated| emulated.session == name)
    }

    /// Whether a request with this secret may act for the client.
    #[must_use]
    pub fn is_named_by(&self, secret: Secret) -> bool {
        self.emulated.as_ref().is_some_and(|emulated| emulated.secret == secret)
    }

    /// Whether `connect` has failed, so that the client gets no further reply.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether `connect` has succeeded.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// The encoding of its messages.
    #[must_use]
    pub const fn codec(&self) -> Codec {
        self.codec
    }

    /// When its token expires, in seconds since 1970.
    fn end(&self) -> Option<u64> {
        Some(self.expires_at).filter(|at| *at != NEVER)
    }

    fn set_end(&mut self, at: Option<u64>) {
        self.expires_at = at.unwrap_or(NEVER);
    }

    /// The text of its name.
    fn client(&self) -> Arc<str> {
        (*self.name.text()).into()
    }

    /// The number of subscriptions.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// Handles a message of the client, or the rest of one. Appends replies to `out`. Returns how many bytes were handled;
    /// if these are not all, the caller hands over the rest when no command waits (`is_waiting`), a token may be verified
    /// (`Context::may_verify`), and other clients had their turn after much effort (`PUSH_EFFORT_PER_TURN_MAX`).
    ///
    /// # Errors
    /// The client must be disconnected, after `out` was sent.
    pub fn receive<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize, Disconnect> {
        let (mut used, begun) = (0, out.len());
        let before = self.handled;
        while (used < message.len() || self.handled.commands == 0) && !self.is_waiting() {
            if self.has_failed {
                used = message.len();
                break;
            }
            if used > 0 && context.effort >= PUSH_EFFORT_PER_TURN_MAX {
                break;
            }
            let decoded = self.codec.decode_next(&message[used..]);
            let (command, bytes) = decoded.map_err(|_| Disconnect::BAD_REQUEST)?;
            if command.has_token() && !context.may_verify && context.has_slow_tokens() {
                break;
            }
            used += bytes;
            if usize::from(self.handled.commands) >= COMMANDS_MAX {
                return Err(Disconnect::BAD_REQUEST);
            }
            self.handled.commands += 1;
            self.handled.queries += u16::from(command.is_query());
            let is_much = self.handled.queries > QUERIES_MAX
                || self.handled.reply_bytes > QUERY_REPLIES_BYTES_MAX;
            if command.is_query() && is_much && self.is_connected && command.id > 0 {
                self.codec.encode_error(out, command.id, Error::TooManyRequests);
                continue;
            }
            let (effort, written) = (effort::of_command(&command), out.len());
            let result = self.handle(context, command, out);
            let spent = effort.saturating_add(effort::of_replies(out.len() - written));
            context.effort = context.effort.saturating_add(spent);
            let replied = u32::try_from(out.len() - begun).unwrap_or(u32::MAX);
            self.handled.reply_bytes = before.reply_bytes.saturating_add(replied);
            result?;
        }
        if used == message.len() {
            self.handled = Handled::default();
        }
        Ok(used)
    }

    fn handle<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        command: Command<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        let id = command.id;
        if let Some(connect) = command.connect {
            let is_first = !self.is_connected && id > 0;
            return match is_first {
                true => self.connect(context, id, &connect, out),
                false => Err(Disconnect::BAD_REQUEST),
            };
        }
        if !self.is_connected {
            return Err(Disconnect::BAD_REQUEST);
        }
        if command.send.is_some() {
            return Err(Disconnect::NOT_AVAILABLE);
        }
        let result = if let Some(subscribe) = command.subscribe {
            self.subscribe(context, require(id)?, &subscribe, out)?
        } else if let Some(named) = command.unsubscribe {
            let id = require(id)?;
            self.answer_overtaken(&named.channel, out);
            self.unsubscribe(context, &named.channel);
            self.codec.encode_answer(out, id, &Answer::Unsubscribed);
            Ok(())
        } else if let Some(publish) = command.publish {
            self.publish(context, require(id)?, &publish, out)
        } else if let Some(history) = command.history {
            self.history(context, require(id)?, &history, out)
        } else if let Some(named) = command.presence {
            self.presence(context, require(id)?, (&named.channel, false), out)
        } else if let Some(named) = command.presence_stats {
            self.presence(context, require(id)?, (&named.channel, true), out)
        } else if let Some(renewal) = command.refresh {
            self.refresh(context, require(id)?, &renewal.token, out)?
        } else if let Some(renewal) = command.sub_refresh {
            self.refresh_subscription(context, require(id)?, &renewal, out)?
        } else if let Some(rpc) = command.rpc {
            self.ask_rpc(context, require(id)?, &rpc)
        } else if id == 0 && command.ping.is_none() {
            // A pong: an empty object.
            Ok(())
        } else {
            return Err(Disconnect::BAD_REQUEST);
        };
        if let Err(error) = result {
            self.codec.encode_error(out, id, error);
        }
        Ok(())
    }

    fn subscribe<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        subscribe: &Subscribe<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Result<(), Error>, Disconnect> {
        let name = subscribe.channel.as_str();
        if name.is_empty() {
            return Err(Disconnect::BAD_REQUEST);
        }
        if subscribe.kind != 0 {
            return Ok(Err(Error::NotAvailable));
        }
        if !matches!(subscribe.delta.as_str(), "" | FOSSIL) {
            return Err(Disconnect::BAD_REQUEST);
        }
        let grant = match self.may_subscribe(context, subscribe)? {
            Ok(Permission::Granted(grant)) => grant,
            Ok(Permission::OfBackend) => {
                let data = subscribe.data.map_or("", |data| data.get());
                if subscribe.has_foreign_data || is_too_deep(data) {
                    return Ok(Err(Error::BadRequest));
                }
                match features(context, subscribe) {
                    Ok(features) => self.ask_subscribe(context, id, subscribe, features),
                    Err(error) => return Ok(Err(error)),
                }
                return Ok(Ok(()));
            }
            Err(error) => return Ok(Err(error)),
        };
        let since = subscribe.recover.then(|| Since::new(&subscribe.epoch, subscribe.offset));
        let waiting = Waiting {
            asker: Asker::Client(id),
            since: since.map(|since| since.offset),
            rejects_unrecovered: subscribe.flag & REJECTS_UNRECOVERED > 0,
            data: grant.data,
            chan_info: grant.info,
            is_renewed: false,
        };
        let features = match features(context, subscribe) {
            Ok(features) => features,
            Err(error) => return Ok(Err(error)),
        };
        let SubscribeGrant { is_visible, expires_at, .. } = grant;
        let granted = Granted { is_visible, expires_at, features, ..Granted::default() };
        Ok(self.begin_subscription(context, name, since, granted, waiting, out))
    }

    /// Subscribes the client. The reply follows when the owner has replied.
    fn begin_subscription<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        name: &str,
        since: Option<Since>,
        Granted { is_visible, expires_at, features, overrides }: Granted,
        waiting: Waiting,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let filter_bytes = features.as_ref().map_or(0, |features| features.filter_bytes());
        if self.filters_bytes as usize + filter_bytes > FILTERS_BYTES_MAX {
            return Err(Error::LimitExceeded);
        }
        let visitor = is_visible.then(|| PresentClient {
            is_listed: overrides.is_listed.unwrap_or(true),
            is_announced: overrides.is_announced,
            ..self.visitor(&waiting.chan_info)
        });
        let reports_visits = context.hub_settings()?.channel(name)?.join_leave;
        let is_renewed = waiting.is_renewed;
        let is_of_application = !matches!(waiting.asker, Asker::Client(_));
        let at = context.next_instance();
        let begun = context.hub.subscribe(
            context.settings,
            (context.index, name),
            context.key,
            (since, visitor),
            at,
        )?;
        let waiting = Some(Box::new(waiting));
        let place = begun.place;
        let subscription = Subscription {
            place,
            waiting,
            is_visible,
            expires_at,
            is_renewed,
            is_of_application,
            hears_visits: overrides.hears_visits.unwrap_or(reports_visits),
            recovers: overrides.recovers.unwrap_or(true),
            features,
        };
        self.filters_bytes += subscription.filter_bytes();
        let channel = context.hub.channel(begun.place).map_or_else(|| name.into(), Arc::clone);
        self.subscriptions.insert(channel, subscription);
        if let Some(reply) = begun.reply {
            self.confirm(context, begun.place, &reply, out);
        }
        Ok(())
    }

    /// Whether the client may subscribe.
    fn may_subscribe<K>(
        &self,
        context: &mut Context<'_, K>,
        subscribe: &Subscribe<'_>,
    ) -> Result<Result<Permission, Error>, Disconnect> {
        let Ok(hub) = context.hub_settings() else { return Ok(Err(Error::Internal)) };
        let name = subscribe.channel.as_str();
        if self.subscriptions.contains(name) {
            return Ok(Err(Error::AlreadySubscribed));
        }
        if self.subscriptions.len() >= hub.push.channels_max as usize {
            return Ok(Err(Error::LimitExceeded));
        }
        let is_visible = |namespace: &Namespace| namespace.presence || namespace.join_leave;
        if subscribe.token.is_empty() {
            if self.backing.is_some() && hub.is_asked_to_subscribe(name) {
                return Ok(Ok(Permission::OfBackend));
            }
            let namespace = hub.may_subscribe(name, Client { user: &self.user });
            return Ok(namespace.map(|namespace| {
                let is_visible = is_visible(namespace);
                Permission::Granted(SubscribeGrant { is_visible, ..SubscribeGrant::default() })
            }));
        }
        let is_visible = match hub.channel(name) {
            Ok(namespace) => is_visible(namespace),
            Err(error) => return Ok(Err(error)),
        };
        match context.claims(&subscribe.token) {
            Ok(claims) if self.is_own(&claims, name) => {
                let expires_at = claims.ends_at();
                let (Ok(data), Ok(info)) = (claims.data(), claims.info()) else {
                    return Ok(Err(Error::PermissionDenied));
                };
                Ok(Ok(Permission::Granted(SubscribeGrant { is_visible, expires_at, data, info })))
            }
            Ok(_) => Err(Disconnect::INVALID_TOKEN),
            Err(Refusal::Invalid) => Ok(Err(Error::PermissionDenied)),
            Err(Refusal::Expired) => Ok(Err(Error::TokenExpired)),
            Err(Refusal::Unavailable) => Ok(Err(Error::Internal)),
        }
    }

    /// Whether a token is for a subscription of the client to this channel.
    fn is_own(&self, claims: &Claims, channel: &str) -> bool {
        claims.channel.as_deref() == Some(channel) && *claims.sub == *self.user
    }

    /// The owner has replied to a subscription.
    pub fn confirm<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        place: SubscriptionId,
        reply: &Subscribed,
        out: &mut Vec<u8>,
    ) {
        let Some(channel) = context.hub.channel(place).map(Arc::clone) else { return };
        let subscription = self.subscriptions.get_mut(&channel).filter(|one| one.place == place);
        let Some(subscription) = subscription else { return };
        let Some(waiting) = subscription.waiting.take() else { return };
        let with = (waiting.since, &*waiting.data);
        let id = match waiting.asker {
            Asker::Client(id) => id,
            Asker::Application => {
                return self.confirm_added(context, &channel, reply, with, out);
            }
            Asker::Connect => {
                return self.confirm_granted(context, &channel, reply, with, out);
            }
        };
        let is_lost = reply.recovered.as_ref().is_some_and(|recovered| !recovered.is_whole);
        if is_lost && waiting.rejects_unrecovered {
            self.unsubscribe(context, &channel);
            return self.codec.encode_error(out, id, Error::UnrecoverablePosition);
        }
        let filter = subscription.features.as_ref().and_then(|features| features.filter.as_ref());
        let kept = filter.map(|filter| {
            context.effort = context.effort.saturating_add(effort::of_filter(filter, reply));
            filtered(filter, reply)
        });
        let reply = kept.as_ref().unwrap_or(reply);
        let is_empty = |one: &Recovered| one.publications.is_empty();
        let since = waiting
            .since
            .filter(|_| kept.is_none() || !reply.recovered.as_ref().is_some_and(is_empty));
        // A subscription that the backend renews is not renewed by the client.
        let ends_at = subscription.expires_at.filter(|_| !subscription.is_renewed);
        let ttl_seconds = ends_at.map(|at| at.saturating_sub(context.unix_seconds));
        let has_deltas = subscription.features.as_ref().is_some_and(|one| one.newest.is_some());
        let data = &*waiting.data;
        let joined = Joined { ttl_seconds, data, ..Joined::new(reply, since, has_deltas) };
        let missed = reply.recovered.as_ref().map_or(&[][..], |recovered| &recovered.publications);
        // A string of JSON may have an escape for each character of the data.
        let room = if has_deltas { context.room / 2 } else { context.room };
        if fitting(missed, room, out) == missed.len() {
            return self.codec.encode_answer(out, id, &Answer::Subscribed(joined));
        }
        if is_everything_left(context.room, out) {
            // So many publications never fit into the room.
            let reply = Subscribed { recovered: Some(Recovered::LOST), ..*reply };
            let joined = Joined { ttl_seconds, data, ..Joined::new(&reply, since, has_deltas) };
            return self.codec.encode_answer(out, id, &Answer::Subscribed(joined));
        }
        self.unsubscribe(context, &channel);
        self.codec.encode_error(out, id, Error::TooManyRequests);
    }

    /// The owner has refused a subscription, which has ended.
    pub fn refuse<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        place: SubscriptionId,
        error: Error,
        out: &mut Vec<u8>,
    ) {
        let Some(channel) = self.subscriptions.channel_at(place).map(Arc::clone) else { return };
        let ended = self.remove_subscription(&channel);
        match ended.and_then(|one| one.waiting).map(|waiting| waiting.asker) {
            Some(Asker::Client(id)) => self.codec.encode_error(out, id, error),
            Some(Asker::Connect) => self.refuse_granted(context, error, out),
            Some(Asker::Application) | None => {}
        }
    }

    /// Whether the client gets reports about clients that join and leave a channel.
    #[must_use]
    pub fn hears_visits(&self, channel: &str) -> bool {
        self.subscriptions.get(channel).is_some_and(|known| known.hears_visits)
    }

    fn unsubscribe<K: Copy + Eq>(&mut self, context: &mut Context<'_, K>, channel: &str) {
        let Some(subscription) = self.remove_subscription(channel) else { return };
        // Waiting messages must not be taken for messages of a later subscription, which may have another filter.
        if let Some(queue) = &mut context.queue {
            context.effort = context.effort.saturating_add(effort::of_queue(queue.len()));
            queue.forget(channel);
        }
        let client = subscription.is_visible.then(|| self.client());
        let client = client.as_ref();
        context.hub.unsubscribe(context.settings, subscription.place, context.key, client);
    }

    /// Ends the subscription to a channel with a history of which messages were dropped, because the client does not read. The
    /// client subscribes again from the last message that it has received.
    ///
    /// # Errors
    /// The client must connect again instead.
    pub fn end_lost<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        channel: &Arc<str>,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        let Some(subscription) = self.subscriptions.get(channel) else { return Ok(()) };
        if !subscription.recovers {
            return Ok(());
        }
        if subscription.is_of_application {
            return Err(Disconnect::INSUFFICIENT_STATE);
        }
        let (code, reason) = (2500, "insufficient state");
        self.codec.encode_push(out, &Push::Unsubscribed { channel, code, reason });
        self.unsubscribe(context, channel);
        Ok(())
    }

    /// Answers the command that has asked for a subscription, if the owner has not confirmed it: the client ends it.
    fn answer_overtaken(&self, channel: &str, out: &mut Vec<u8>) {
        let waiting = self.subscriptions.get(channel).and_then(|known| known.waiting.as_ref());
        if let Some(Asker::Client(id)) = waiting.map(|waiting| &waiting.asker) {
            self.codec.encode_error(out, *id, Error::TooManyRequests);
        }
    }

    fn remove_subscription(&mut self, channel: &str) -> Option<Subscription> {
        let subscription = self.subscriptions.remove(channel)?;
        self.filters_bytes -= subscription.filter_bytes();
        if let Some(backing) = &mut self.backing {
            backing.note_end(channel);
        }
        Some(subscription)
    }

    /// Ends all subscriptions. The client has disconnected.
    pub fn leave_all<K: Copy + Eq>(
        &mut self,
        hub: &mut Hub<K>,
        settings: &Hubs,
        (index, key): (u16, K),
    ) {
        hub.roster().leave(index, &self.user, self.name);
        self.filters_bytes = 0;
        let subscriptions = core::mem::take(&mut self.subscriptions);
        for (_, subscription) in subscriptions.iter() {
            let client = subscription.is_visible.then(|| self.client());
            hub.unsubscribe(settings, subscription.place, key, client.as_ref());
        }
    }

    fn publish<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        publish: &Publish<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let hub = context.hub_settings()?;
        let channel = publish.channel.as_str();
        let namespace = hub.channel(channel)?;
        let is_subscribed = self.subscriptions.contains(channel);
        let is_asked = self.backing.is_some() && namespace.sends(BackendEvent::Publish);
        let user = Client { user: &self.user };
        if !is_asked && !is_permitted(namespace.publish, user, is_subscribed) {
            return Err(Error::PermissionDenied);
        }
        let data = publish.data.ok_or(Error::BadRequest)?.get();
        if data.len() > hub.push.message_bytes_max {
            return Err(Error::LimitExceeded);
        }
        if is_too_deep(data) {
            return Err(Error::BadRequest);
        }
        let rate = hub.push.publish_rate;
        if rate.is_some_and(|rate| !self.pace.admit(&rate, context.at.0)) {
            context.over_rate += 1;
            return Err(Error::TooManyRequests);
        }
        if is_asked {
            self.ask_publish(context, id, publish, data);
            return Ok(());
        }
        let call = Call::Publish(Order {
            hub: context.index,
            origin: NodeId::OWN,
            channel: channel.into(),
            data: data.into(),
            tags: "".into(),
            info: self.visitor("").info,
            sender: self.client(),
            skip_history: false,
            idempotency_key: "".into(),
            waits: false,
            delta: false,
            event: "".into(),
        });
        self.call(context, id, call, out);
        Ok(())
    }

    fn history<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        history: &History,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let namespace = context.hub_settings()?.channel(&history.channel)?;
        if stream_limits(namespace).is_none() {
            return Err(Error::NotAvailable);
        }
        let is_subscribed = self.subscriptions.contains(history.channel.as_str());
        if !is_permitted(namespace.read_history, Client { user: &self.user }, is_subscribed) {
            return Err(Error::PermissionDenied);
        }
        let since = history.since.as_ref().map(|since| Since::new(&since.epoch, since.offset));
        if history.reverse && since.is_some_and(|since| since.offset == 0) {
            return Err(Error::BadRequest);
        }
        let limit = u32::try_from(history.limit).unwrap_or(HISTORY_MAX).min(HISTORY_MAX);
        let excerpt = Excerpt { since, limit: Some(limit), reverse: history.reverse };
        let channel = history.channel.as_str().into();
        self.call(context, id, Call::History { hub: context.index, channel, excerpt }, out);
        Ok(())
    }

    /// Requests the clients of a channel, or with `counts` only their number.
    fn presence<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        (channel, counts): (&str, bool),
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.may_see_presence(context, channel)?;
        let (hub, channel) = (context.index, channel.into());
        let call = match counts {
            true => Call::PresenceStats { hub, channel },
            false => Call::Presence { hub, channel },
        };
        self.call(context, id, call, out);
        Ok(())
    }

    fn may_see_presence<K>(&self, context: &Context<'_, K>, channel: &str) -> Result<(), Error> {
        let namespace = context.hub_settings()?.channel(channel)?;
        if !namespace.presence {
            return Err(Error::NotAvailable);
        }
        let is_subscribed = self.subscriptions.contains(channel);
        match is_permitted(namespace.read_presence, Client { user: &self.user }, is_subscribed) {
            true => Ok(()),
            false => Err(Error::PermissionDenied),
        }
    }

    fn call<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        call: Call,
        out: &mut Vec<u8>,
    ) {
        let at = context.next_instance();
        let to = ReplyTo::Caller { key: context.key, number: id };
        if let Some(reply) = context.hub.call(context.settings, to, call, at) {
            self.take_reply(context.room, id, &reply, out);
        }
    }

    /// The hub has replied to a command. `room`: that of the context.
    pub fn take_reply(&self, room: usize, id: u32, reply: &Reply, out: &mut Vec<u8>) {
        let answer = match reply {
            Reply::Published { .. } => Answer::Published,
            Reply::History { publications, position } => match fitting(publications, room, out) {
                0 if !publications.is_empty() => Answer::Failed(Error::TooManyRequests),
                count => Answer::History { publications: &publications[..count], position },
            },
            Reply::Presence(presence) => {
                let cost =
                    |one: &PresentClient| one.client.len() + one.info.len() + VISITOR_COST_BYTES;
                let bytes: usize = presence.visitors.iter().map(cost).sum();
                if bytes <= room.saturating_sub(out.len()) {
                    Answer::Presence(presence)
                } else if is_everything_left(room, out) {
                    Answer::Failed(Error::LimitExceeded)
                } else {
                    Answer::Failed(Error::TooManyRequests)
                }
            }
            Reply::PresenceStats { clients, users } => {
                Answer::PresenceStats { clients: *clients, users: *users }
            }
            Reply::Failed(error) => Answer::Failed(*error),
            Reply::Subscribed(_)
            | Reply::Delivered(_)
            | Reply::Done
            | Reply::Channels(_)
            | Reply::Info(_) => Answer::Failed(Error::Internal),
        };
        self.codec.encode_answer(out, id, &answer);
    }

    /// Why the client must be disconnected now, if it must. To be called at intervals. Subscriptions whose tokens have
    /// expired end.
    pub fn check<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        if self.has_failed {
            return Err(Disconnect::CLOSED);
        }
        if !self.is_connected {
            // The wait for the backend has its own timeout, and owners always reply.
            return if self.is_waiting() { Ok(()) } else { Err(Disconnect::STALE) };
        }
        let now = context.unix_seconds;
        let has_expired = |at: Option<u64>, is_renewed: bool| {
            let grace = if is_renewed { OVERDUE_SECONDS_MAX } else { EXPIRED_GRACE_SECONDS };
            at.is_some_and(|at| now > at.saturating_add(grace))
        };
        if has_expired(self.end(), self.is_renewed()) {
            return Err(Disconnect::EXPIRED);
        }
        let all = self.subscriptions.iter();
        let expired = all.filter(|(_, known)| has_expired(known.expires_at, known.is_renewed));
        let expired: Vec<Arc<str>> = expired.map(|(channel, _)| Arc::clone(channel)).collect();
        for channel in expired {
            self.end_expired(context, &channel, out);
        }
        self.begin_round(context);
        Ok(())
    }

    /// The data about the client that other clients see. `chan_info`: JSON for one channel only; empty: none.
    fn visitor(&self, chan_info: &str) -> PresentClient {
        let mut info = Vec::new();
        info.extend_from_slice(b"{\"user\":");
        crate::api::encode_text(&mut info, &self.user);
        info.extend_from_slice(b",\"client\":");
        crate::api::encode_text(&mut info, &self.name.text());
        if !self.conn_info.is_empty() {
            info.extend_from_slice(b",\"conn_info\":");
            info.extend_from_slice(self.conn_info.as_bytes());
        }
        if !chan_info.is_empty() {
            info.extend_from_slice(b",\"chan_info\":");
            info.extend_from_slice(chan_info.as_bytes());
        }
        info.push(b'}');
        let info = String::from_utf8(info).unwrap_or_default().into();
        PresentClient {
            client: self.client(),
            user: Arc::clone(&self.user),
            info,
            is_listed: true,
            is_announced: None,
        }
    }
}

/// The properties of a new subscription.
#[derive(Default)]
struct Granted {
    /// Others see it.
    is_visible: bool,
    /// When the subscription ends.
    expires_at: Option<u64>,
    /// Further features of the subscription.
    features: Option<Box<Features>>,
    /// What differs from the settings of the namespace.
    overrides: Overrides,
}

/// How many of `publications` may be sent after `out`. If the client reads and nothing else was sent, the first one may
/// always be sent, even if it is larger than the room.
fn fitting(publications: &[Arc<Publication>], room: usize, out: &[u8]) -> usize {
    let count = count_within(publications, room.saturating_sub(out.len()));
    if count == 0 && is_everything_left(room, out) { publications.len().min(1) } else { count }
}

/// Whether the reply has the whole room, so that a later attempt would not have more.
fn is_everything_left(room: usize, out: &[u8]) -> bool {
    room > 0 && out.is_empty()
}

/// A command that requires a reply has an id.
fn require(id: u32) -> Result<u32, Disconnect> {
    if id > 0 { Ok(id) } else { Err(Disconnect::BAD_REQUEST) }
}

#[cfg(test)]
mod tests;
