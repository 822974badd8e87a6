//! The messages about channels that the workers of a process send to each other.
//! In: calls, replies and publications. Out: the same, in the order in which they were sent to a worker.
//! Invariant: mail between two workers is delivered in order (`hub.rs` says why).

use std::sync::Arc;

use crate::emulation::Secret;
use crate::fan_out::{Delivery, Waiter};
use crate::instruction::Instruction;
use crate::local::Ticket;
use crate::node::NodeId;
use crate::position::{Position, Since};
use crate::publication::Publication;
use crate::settings::Error;
use crate::stream::{Excerpt, Recovered};

/// A message to another worker. `K` names a subscriber or caller of a worker.
#[derive(Clone, Debug)]
pub enum Mail<K> {
    /// The receiver must do this.
    Call {
        /// The worker that waits for the reply.
        from: u16,
        /// The receiver of the reply.
        to: ReplyTo<K>,
        /// The operation.
        call: Call,
    },
    /// The reply to a call of the receiver.
    Reply {
        /// The receiver of the reply.
        to: ReplyTo<K>,
        /// The result.
        reply: Reply,
    },
    /// A publication for the subscribers of the receiver.
    Publication {
        /// The publication.
        publication: Arc<Publication>,
        /// The caller that gets a report about the delivery.
        waiter: Option<Waiter<K>>,
    },
    /// A client that the channel's presence list contains has left the channel.
    Part {
        /// Index of the hub.
        hub: u16,
        /// The channel.
        channel: Arc<str>,
        /// The client.
        client: Arc<str>,
    },
    /// Commands of a client of the receiver, which came in a request to the sender. The reply is `Reply::Done`, whether or
    /// not the client exists.
    Commands {
        /// The worker that got the request.
        from: u16,
        /// The request, which is answered after the reply.
        to: ReplyTo<K>,
        /// The client.
        key: K,
        /// The secret in the request.
        secret: Secret,
        /// The commands.
        data: Box<[u8]>,
    },
    /// The sender has no subscriber of the channel any more.
    Leave {
        /// The sender.
        from: u16,
        /// Index of the hub.
        hub: u16,
        /// The channel.
        channel: Arc<str>,
    },
}

/// The receiver of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyTo<K> {
    /// A subscription.
    Subscription(Ticket),
    /// A caller with several calls at once, each with its number.
    Caller {
        /// The caller.
        key: K,
        /// The number of its call.
        number: u32,
    },
}

/// A request to a worker.
#[derive(Clone, Debug)]
pub enum Call {
    /// The owner: note that the worker has subscribers.
    Subscribe {
        /// Index of the hub.
        hub: u16,
        /// The channel.
        channel: Arc<str>,
        /// The last position of the client.
        since: Option<Since>,
        /// The client, if the channel's presence list contains it.
        visitor: Option<PresentClient>,
    },
    /// The owner: publish a message.
    Publish(Order),
    /// The owner: read the history.
    History {
        /// Index of the hub.
        hub: u16,
        /// The channel.
        channel: Arc<str>,
        /// The wanted part.
        excerpt: Excerpt,
    },
    /// The owner: drop the history.
    HistoryRemove {
        /// Index of the hub.
        hub: u16,
        /// The channel.
        channel: Arc<str>,
    },
    /// The owner: list the clients.
    Presence {
        /// Index of the hub.
        hub: u16,
        /// The channel.
        channel: Arc<str>,
    },
    /// The owner: count the clients.
    PresenceStats {
        /// Index of the hub.
        hub: u16,
        /// The channel.
        channel: Arc<str>,
    },
    /// Every worker: list the channels with subscribers.
    Channels {
        /// Index of the hub.
        hub: u16,
        /// A pattern with `*` and `?`; empty: all.
        pattern: Arc<str>,
    },
    /// Every worker: do something with the clients of a user.
    Instruct(Arc<Instruction>),
    /// Every worker: count.
    Info {
        /// Index of the hub.
        hub: u16,
    },
}

/// A message to publish.
#[derive(Clone, Debug)]
pub struct Order {
    /// Index of the hub.
    pub hub: u16,
    /// The process to which the publisher has sent it.
    pub origin: NodeId,
    /// The channel.
    pub channel: Arc<str>,
    /// The data: JSON.
    pub data: Arc<str>,
    /// A JSON object of strings, or empty.
    pub tags: Arc<str>,
    /// The client that publishes: JSON; empty: the application.
    pub info: Arc<str>,
    /// The name of that client; empty: the application.
    pub sender: Arc<str>,
    /// The publication gets no offset and is not kept.
    pub skip_history: bool,
    /// A second publication with the same key has no effect; empty: no key.
    pub idempotency_key: Arc<str>,
    /// The caller also waits for `Reply::Delivered` of each worker with subscribers.
    pub waits: bool,
    /// Subscribers may get the message as a patch of the previous one, if the namespace allows it.
    pub delta: bool,
    /// Its name in streams of events; empty: that of the namespace.
    pub event: Arc<str>,
}

impl Order {
    /// Whether a client publishes, and not the application.
    #[must_use]
    pub fn is_by_client(&self) -> bool {
        !self.info.is_empty()
    }
}

/// The result of a call.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The worker gets the publications after `position`.
    Subscribed(Subscribed),
    /// The message was published.
    Published {
        /// Its place in the history.
        position: Option<Position>,
        /// How many workers will report the delivery; 0 unless the caller waits for that.
        reports: u16,
    },
    /// A worker has handed a message to all of its subscribers.
    Delivered(Delivery),
    /// A part of the history, and the position after its end.
    History {
        /// The publications.
        publications: Vec<Arc<Publication>>,
        /// After the newest publication.
        position: Position,
    },
    /// The call has succeeded, without a result.
    Done,
    /// The clients of a channel.
    Presence(Presence),
    /// How many clients and different users a channel has.
    PresenceStats {
        /// Clients.
        clients: u64,
        /// Users.
        users: u64,
    },
    /// Channels of the worker and their subscribers.
    Channels(Vec<(Arc<str>, u32)>),
    /// The counts of a worker.
    Info(Counts),
    /// The call has failed.
    Failed(Error),
}

/// The owner's reply to a subscription.
#[derive(Clone, Debug)]
pub struct Subscribed {
    /// After the newest publication; `None` if the channel has no history.
    pub position: Option<Position>,
    /// The missed messages, or in a namespace with `cache` the newest message; `None` if the client did not send a position, and
    /// gets nothing.
    pub recovered: Option<Recovered>,
}

/// A client in the form in which presence, joins and leaves show it to other clients.
#[derive(Clone, Debug)]
pub struct PresentClient {
    /// Its name.
    pub client: Arc<str>,
    /// Its user.
    pub user: Arc<str>,
    /// Both, and the additions of its token: a JSON object in one line.
    pub info: Arc<str>,
    /// The presence list shows it.
    pub is_listed: bool,
    /// Whether its join and its leave are reported; `None`: as the namespace states.
    pub is_announced: Option<bool>,
}

/// The clients of a channel.
#[derive(Clone, Debug)]
pub struct Presence {
    /// In the order of their names.
    pub visitors: Vec<PresentClient>,
}

/// The counts of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Subscribed clients.
    pub clients: u32,
    /// Different users of connected clients.
    pub users: u32,
    /// Subscriptions.
    pub subscriptions: u32,
    /// Channels with subscribers on any worker that this worker owns.
    pub channels: u32,
}

/// The workers that receive a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'c> {
    /// The owner of a channel.
    Owner(&'c str),
    /// Every worker.
    All,
}

impl Call {
    /// The workers that receive the call.
    #[must_use]
    pub fn target(&self) -> Target<'_> {
        match self {
            Self::Subscribe { channel, .. }
            | Self::History { channel, .. }
            | Self::Presence { channel, .. }
            | Self::PresenceStats { channel, .. }
            | Self::HistoryRemove { channel, .. } => Target::Owner(channel),
            Self::Publish(order) => Target::Owner(&order.channel),
            Self::Channels { .. } | Self::Info { .. } | Self::Instruct(_) => Target::All,
        }
    }
}
