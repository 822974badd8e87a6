//! The commands of a client that need the consent of the application's backend.
//! In: commands of the client; decisions of the backend. Out: requests; then the effect of the command.
//! Never: asks about a second command before the first one is answered; handles a command before those that arrived earlier.
//! Limits: for each client, one request about a command and one about an expiry (`expiry.rs`) at a time.
//! Invariant: while `Connection::awaits_backend`, `receive` handles no command.

pub(super) mod expiry;

use std::sync::Arc;

use tidegate_config::model::{BackendEvent, PushBackend};

use crate::api::IDEMPOTENCY_KEY_BYTES_MAX;
use crate::backend::{
    BackendDecision, ClientEvent, Failure, Granted, Refused, Subject, encode_request,
};
use crate::client::backend_requests::expiry::Round;
use crate::client::codec::{Answer, Malformed};
use crate::client::command::{Connect, Publish, Rpc, Subscribe};
use crate::client::welcome::{ConnectGrant, Resumes};
use crate::client::{
    Asker, Connection, Context, Disconnect, Features, Granted as Terms, REJECTS_UNRECOVERED,
    Waiting,
};
use crate::effort;
use crate::mail::{Call, Order};
use crate::node::NodeId;
use crate::position::Since;
use crate::publication::is_too_deep;
use crate::settings::{Error, HubSettings};

/// The facts about a client for events to the backend.
#[derive(Debug)]
pub(super) struct Backing {
    /// Fields of the client's first request: `name: value`, each followed by a line feed.
    fields: Box<[u8]>,
    /// How the client is connected.
    transport: &'static str,
    /// The backend's data about the connection (`meta`): JSON; empty: no data.
    meta: Box<str>,
    /// The command that waits for its decision.
    asked: Option<Asked>,
    /// The backend decides at `expires_at` whether the connection continues.
    is_renewed: bool,
    /// The state of the requests about the expiry of the connection and its subscriptions.
    round: Round,
}

/// The subject of a request. Each client has at most one request of each kind in flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BackendRequestKind {
    /// A command. Later commands of the client wait.
    Command,
    /// The expiry of a connection or subscription. No command waits for it.
    Expiry,
}

/// The command that the request to the backend is about.
#[derive(Debug)]
enum Asked {
    Connect {
        id: u32,
        /// The client's last positions in channels to which the application has subscribed it.
        resumes: Resumes,
    },
    Subscribe {
        id: u32,
        channel: Arc<str>,
        since: Option<Since>,
        flag: u64,
        features: Option<Box<Features>>,
    },
    Publish {
        id: u32,
        channel: Arc<str>,
        data: Arc<str>,
    },
    Rpc {
        id: u32,
    },
}

/// A request to the backend, which the caller sends.
#[derive(Debug)]
pub struct BackendRequest {
    /// What it is about.
    pub event: BackendEvent,
    /// The body of the request.
    pub body: Vec<u8>,
}

impl BackendRequest {
    /// The kind of the request.
    #[must_use]
    pub const fn request_kind(&self) -> BackendRequestKind {
        match self.event {
            BackendEvent::Refresh | BackendEvent::SubRefresh => BackendRequestKind::Expiry,
            BackendEvent::Connect
            | BackendEvent::Subscribe
            | BackendEvent::Publish
            | BackendEvent::Rpc
            | BackendEvent::Disconnect
            | BackendEvent::ChannelEmpty => BackendRequestKind::Command,
        }
    }
}

/// The party that disconnects a client: Tidegate, or the application with its own code and reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Disconnection {
    /// By this program.
    Own(Disconnect),
    /// By the application.
    Application(u16, Box<str>),
}

impl From<Disconnect> for Disconnection {
    fn from(disconnect: Disconnect) -> Self {
        Self::Own(disconnect)
    }
}

impl Backing {
    /// A subscription to `channel` has ended.
    pub(super) fn note_end(&mut self, channel: &str) {
        self.round.note_end(channel);
    }
}

impl HubSettings {
    /// The backend, if it gets this event.
    fn backend_for(&self, event: BackendEvent) -> Option<&PushBackend> {
        self.push.backend.as_ref().filter(|backend| backend.path(event).is_some())
    }
}

/// The facts that the caller needs.
impl Connection {
    /// A client whose hub has a backend. `fields`: those of its first request that events repeat.
    #[must_use]
    pub fn with_backend(mut self, transport: &'static str, fields: Box<[u8]>) -> Self {
        self.backing = Some(Box::new(Backing {
            fields,
            transport,
            meta: Box::default(),
            asked: None,
            is_renewed: false,
            round: Round::default(),
        }));
        self
    }

    /// The fields of the first request that events repeat.
    #[must_use]
    pub fn repeated_fields(&self) -> &[u8] {
        self.backing.as_ref().map_or(b"", |backing| &backing.fields)
    }

    /// Whether a command of the client waits for its decision.
    #[must_use]
    pub fn awaits_backend(&self) -> bool {
        self.asks(BackendRequestKind::Command)
    }

    /// Whether a request of the client waits for its decision.
    #[must_use]
    pub fn asks(&self, request_kind: BackendRequestKind) -> bool {
        self.backing.as_ref().is_some_and(|backing| match request_kind {
            BackendRequestKind::Command => backing.asked.is_some(),
            BackendRequestKind::Expiry => backing.round.awaits_backend(),
        })
    }

    /// The client as events name it; `None` if its hub has no backend.
    #[must_use]
    pub fn subject(&self) -> Option<Subject<'_>> {
        let backing = self.backing.as_ref()?;
        Some(Subject {
            client: self.name,
            transport: backing.transport,
            codec: self.codec,
            user: self.is_connected.then_some(&*self.user),
            meta: &backing.meta,
        })
    }
}

/// Requests.
impl Connection {
    /// Whether the backend decides about connections without a token.
    pub(super) fn asks_about_connect(&self, hub: &HubSettings) -> bool {
        self.backing.is_some() && hub.backend_for(BackendEvent::Connect).is_some()
    }

    /// Asks whether the client may connect.
    pub(super) fn ask_connect<K>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        connect: &Connect<'_>,
    ) {
        let data = connect.data.map_or("", |data| data.get());
        let deed = ClientEvent::Connect { name: &connect.name, version: &connect.version, data };
        let most = context.hub_settings().map_or(0, |hub| hub.push.channels_max as usize);
        let recovers = connect.subs.iter().filter(|(_, resume)| resume.recover);
        let resumes = recovers.take(most).map(|(name, resume)| (name.clone(), resume.clone()));
        let asked = Asked::Connect { id, resumes: resumes.collect() };
        self.ask(context, BackendEvent::Connect, &deed, asked);
    }

    /// Asks whether the client may subscribe.
    pub(super) fn ask_subscribe<K>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        subscribe: &Subscribe<'_>,
        features: Option<Box<Features>>,
    ) {
        let since = subscribe.recover.then(|| Since::new(&subscribe.epoch, subscribe.offset));
        let channel = subscribe.channel.as_str();
        let data = subscribe.data.map_or("", |data| data.get());
        let asked =
            Asked::Subscribe { id, channel: channel.into(), since, flag: subscribe.flag, features };
        self.ask(
            context,
            BackendEvent::Subscribe,
            &ClientEvent::Subscribe { channel, data },
            asked,
        );
    }

    /// Asks whether the client may publish `data`, which is checked.
    pub(super) fn ask_publish<K>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        publish: &Publish<'_>,
        data: &str,
    ) {
        let channel = publish.channel.as_str();
        let asked = Asked::Publish { id, channel: channel.into(), data: data.into() };
        self.ask(context, BackendEvent::Publish, &ClientEvent::Publish { channel, data }, asked);
    }

    /// Passes a call of the client to the backend.
    pub(super) fn ask_rpc<K>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        rpc: &Rpc<'_>,
    ) -> Result<(), Error> {
        let hub = context.hub_settings()?;
        let backend = hub.backend_for(BackendEvent::Rpc).filter(|_| self.backing.is_some());
        let backend = backend.ok_or(Error::NotAvailable)?;
        if let Some((namespace, _)) = rpc.method.split_once(':')
            && !backend.rpc_namespaces.iter().any(|known| known == namespace)
        {
            return Err(Error::MethodNotFound);
        }
        let data = rpc.data.map_or("", |data| data.get());
        if data.len() > hub.push.message_bytes_max {
            return Err(Error::LimitExceeded);
        }
        if is_too_deep(data) || rpc.has_foreign_data {
            return Err(Error::BadRequest);
        }
        let deed = ClientEvent::Rpc { method: &rpc.method, data };
        self.ask(context, BackendEvent::Rpc, &deed, Asked::Rpc { id });
        Ok(())
    }

    /// Whether the backend renews the connection, so that the client must not.
    pub(super) fn is_renewed(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.is_renewed)
    }

    fn ask<K>(
        &mut self,
        context: &mut Context<'_, K>,
        event: BackendEvent,
        deed: &ClientEvent<'_>,
        asked: Asked,
    ) {
        self.put_request(context, event, deed);
        if let Some(backing) = &mut self.backing {
            debug_assert!(backing.asked.is_none(), "one request at a time");
            backing.asked = Some(asked);
        }
    }

    fn put_request<K>(
        &self,
        context: &mut Context<'_, K>,
        event: BackendEvent,
        deed: &ClientEvent<'_>,
    ) {
        let Some(subject) = self.subject() else { return };
        let mut body = Vec::new();
        encode_request(&mut body, &subject, deed);
        debug_assert!(context.request.is_none(), "each call asks once");
        context.request = Some(BackendRequest { event, body });
    }
}

/// Decisions.
impl Connection {
    /// Takes the response to the request of this kind that waits. Appends replies to `out`.
    ///
    /// # Errors
    /// The client must be disconnected, after `out` was sent.
    pub fn take_decision<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        request_kind: BackendRequestKind,
        body: Result<&[u8], Failure>,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnection> {
        let effort = effort::of_decision(body.map_or(0, <[u8]>::len));
        context.effort = context.effort.saturating_add(effort);
        let decision = body.and_then(|body| {
            BackendDecision::decode(body).map_err(|_| {
                context.is_reply_invalid = true;
                Failure::Down
            })
        });
        match request_kind {
            BackendRequestKind::Command => self.take_command_decision(context, decision, out),
            BackendRequestKind::Expiry => self.take_round_decision(context, decision, out),
        }
    }

    fn take_command_decision<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        decision: Result<BackendDecision<'_>, Failure>,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnection> {
        let asked = self.backing.as_mut().and_then(|backing| backing.asked.take());
        let Some(asked) = asked else { return Ok(()) };
        let decision = match decision {
            Ok(BackendDecision::Disconnected(code, reason)) => {
                return Err(Disconnection::Application(code, reason.into()));
            }
            Ok(BackendDecision::Nothing) => Ok(None),
            Ok(BackendDecision::Granted(granted)) => Ok(Some(granted)),
            Ok(BackendDecision::Refused(refused)) => Err(refused),
            Err(failure) => Err(error_of(failure)),
        };
        self.has_failed |= decision.is_err() && matches!(asked, Asked::Connect { .. });
        match (&asked, decision) {
            (Asked::Connect { id, .. }, Ok(None)) => self.connect_unknown(context, *id, out),
            (Asked::Connect { id, resumes }, Ok(Some(granted))) => {
                self.connect_granted(context, (*id, resumes), &granted, out);
                Ok(())
            }
            (Asked::Subscribe { .. }, Ok(Some(granted))) => {
                self.subscribe_granted(context, &asked, &granted, out);
                Ok(())
            }
            (Asked::Publish { .. }, Ok(Some(granted))) => {
                self.publish_granted(context, &asked, &granted, out);
                Ok(())
            }
            (Asked::Rpc { id }, Ok(Some(granted))) => {
                self.return_call(*id, &granted, out);
                Ok(())
            }
            // A response without a decision decides nothing.
            (Asked::Subscribe { .. } | Asked::Publish { .. } | Asked::Rpc { .. }, Ok(None)) => {
                context.is_reply_invalid = true;
                self.refuse_command(&asked, &error_of(Failure::Down), out);
                Ok(())
            }
            (_, Err(refused)) => {
                self.refuse_command(&asked, &refused, out);
                Ok(())
            }
        }
    }

    fn refuse_command(&self, asked: &Asked, refused: &Refused<'_>, out: &mut Vec<u8>) {
        match asked {
            Asked::Connect { id, .. }
            | Asked::Subscribe { id, .. }
            | Asked::Publish { id, .. }
            | Asked::Rpc { id } => self.codec.encode_answer(out, *id, &Answer::Refused(refused)),
        }
    }

    /// The backend does not know the client.
    fn connect_unknown<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        id: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnection> {
        let is_open = context.hub_settings().is_ok_and(|hub| hub.push.anonymous);
        if !is_open {
            return Err(Disconnect::BAD_REQUEST.into());
        }
        self.begin_welcome(context, id, ConnectGrant::default(), &Resumes::new(), out);
        Ok(())
    }

    fn connect_granted<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        (id, resumes): (u32, &Resumes),
        granted: &Granted<'_>,
        out: &mut Vec<u8>,
    ) {
        let read = || Ok((granted.info()?, granted.data()?, granted.subscriptions()?));
        let read: Result<_, Malformed> = read();
        let Ok((info, data, subscriptions)) = read else {
            return self.fail_connect(context, id, Error::Internal, out);
        };
        if is_over(granted, context.unix_seconds) {
            return self.fail_connect(context, id, Error::Expired, out);
        }
        self.user = (&*granted.user).into();
        self.conn_info = info.unwrap_or_default().into();
        self.set_end(granted.ends_at());
        self.set_meta(granted.meta().unwrap_or_default());
        let renews = context
            .hub_settings()
            .is_ok_and(|hub| hub.backend_for(BackendEvent::Refresh).is_some());
        if let Some(backing) = &mut self.backing {
            backing.is_renewed = renews;
        }
        let grant = ConnectGrant { data: data.unwrap_or_default(), subscriptions };
        self.begin_welcome(context, id, grant, resumes, out);
    }

    /// Notes the data about the connection that events to the backend contain.
    pub(super) fn set_meta(&mut self, meta: Box<str>) {
        if let Some(backing) = &mut self.backing {
            backing.meta = meta;
        }
    }

    fn subscribe_granted<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        asked: &Asked,
        granted: &Granted<'_>,
        out: &mut Vec<u8>,
    ) {
        let Asked::Subscribe { id, channel, since, flag, features } = asked else { return };
        let begun = self.check_place(context, channel).and_then(|(is_visible, sends)| {
            let read = || Ok((granted.info()?, granted.data()?));
            let read: Result<_, Malformed> = read();
            let (info, data) = read.map_err(|_| Error::Internal)?;
            if is_over(granted, context.unix_seconds) {
                return Err(Error::Expired);
            }
            let waiting = Waiting {
                asker: Asker::Client(*id),
                since: since.map(|since| since.offset),
                rejects_unrecovered: flag & REJECTS_UNRECOVERED > 0,
                data: data.unwrap_or_default(),
                is_renewed: sends,
                chan_info: info.unwrap_or_default(),
            };
            let (expires_at, features) = (granted.ends_at(), features.clone());
            let terms = Terms { is_visible, expires_at, features, ..Terms::default() };
            self.begin_subscription(context, channel, *since, terms, waiting, out)
        });
        if let Err(error) = begun {
            self.codec.encode_error(out, *id, error);
        }
    }

    /// Whether the client has a place for another channel. Returns whether others see it there, and whether the backend
    /// renews the subscription.
    fn check_place<K>(
        &self,
        context: &Context<'_, K>,
        channel: &str,
    ) -> Result<(bool, bool), Error> {
        let hub = context.hub_settings()?;
        let namespace = hub.channel(channel)?;
        // The application may have subscribed the client meanwhile.
        if self.subscriptions.contains(channel) {
            return Err(Error::AlreadySubscribed);
        }
        if self.subscriptions.len() >= hub.push.channels_max as usize {
            return Err(Error::LimitExceeded);
        }
        let is_visible = namespace.presence || namespace.join_leave;
        Ok((is_visible, namespace.sends(BackendEvent::SubRefresh)))
    }

    fn publish_granted<K: Copy + Eq>(
        &mut self,
        context: &mut Context<'_, K>,
        asked: &Asked,
        granted: &Granted<'_>,
        out: &mut Vec<u8>,
    ) {
        let Asked::Publish { id, channel, data } = asked else { return };
        match self.order_of(context, channel, data, granted) {
            Ok(order) => self.call(context, *id, Call::Publish(order), out),
            Err(error) => self.codec.encode_error(out, *id, error),
        }
    }

    /// The message that the backend permits, perhaps in place of the client's message.
    fn order_of<K>(
        &self,
        context: &Context<'_, K>,
        channel: &Arc<str>,
        data: &Arc<str>,
        granted: &Granted<'_>,
    ) -> Result<Order, Error> {
        let hub = context.hub_settings()?;
        hub.channel(channel)?;
        let changed = granted.data().map_err(|_| Error::Internal)?;
        let is_long = changed.as_ref().is_some_and(|data| data.len() > hub.push.message_bytes_max);
        let key = &*granted.idempotency_key;
        if is_long || key.len() > IDEMPOTENCY_KEY_BYTES_MAX {
            return Err(Error::LimitExceeded);
        }
        let tags = match granted.tags.is_empty() {
            true => "".into(),
            false => serde_json::to_string(&granted.tags).unwrap_or_default().into(),
        };
        Ok(Order {
            hub: context.index,
            origin: NodeId::OWN,
            channel: Arc::clone(channel),
            data: changed.map_or_else(|| Arc::clone(data), Arc::from),
            tags,
            info: self.visitor("").info,
            sender: self.client(),
            skip_history: granted.skip_history,
            idempotency_key: key.into(),
            waits: false,
            delta: granted.delta,
            event: "".into(),
        })
    }

    fn return_call(&self, id: u32, granted: &Granted<'_>, out: &mut Vec<u8>) {
        match granted.data() {
            Ok(data) => {
                let data = &*data.unwrap_or_default();
                self.codec.encode_answer(out, id, &Answer::Called { data });
            }
            Err(Malformed) => self.codec.encode_error(out, id, Error::Internal),
        }
    }
}

/// Whether a grant ends before it begins.
fn is_over(granted: &Granted<'_>, now: u64) -> bool {
    granted.ends_at().is_some_and(|at| at <= now)
}

/// The error of a command whose event has failed. Client libraries try again later.
fn error_of(failure: Failure) -> Refused<'static> {
    let error = match failure {
        Failure::Down => Error::Internal,
        Failure::Busy => Error::TooManyRequests,
    };
    Refused { code: error.code(), message: error.message().into(), temporary: true }
}

#[cfg(test)]
mod tests;
