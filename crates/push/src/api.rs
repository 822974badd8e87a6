//! The server API: `POST api/METHOD` with JSON, as Centrifugo's. One request may need several workers.
//! In: a method and a body; replies of workers. Out: calls, and the body of the response when the last reply is here.
//! Never: checks the key (`settings::is_api_key`); publishes anything but valid JSON.
//! Limits: `COMMANDS_MAX` calls for one request; `message-max` for the data of each; `LISTS_BYTES_MAX` for lists in the response.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::client::codec::Body;
use crate::client::json;
use crate::fan_out::Delivery;
use crate::instruction::{Instruction, InstructionMethod};
use crate::mail::{Call, Counts, Order, Reply};
use crate::node::NodeId;
use crate::position::Since;
use crate::publication::{Publication, is_too_deep};
use crate::settings::{Error, HubSettings};
use crate::stream::Excerpt;
use tidegate_config::model::is_event_name;
use tidegate_wire::base64;

/// Maximum number of calls of one request.
pub const COMMANDS_MAX: usize = 10_000;
/// Once the response to a batch exceeds this size, its further commands that read lists get an error.
const LISTS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The longest key of a publication.
pub(crate) const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

/// A request whose replies are being collected.
#[derive(Debug)]
pub struct ApiCall {
    /// The commands, in order.
    items: Vec<Item>,
    /// By number of the call.
    slots: Vec<Slot>,
    /// The request is a batch, whose response is a list.
    is_batch: bool,
    /// The number of replies that have not arrived.
    missing: u32,
    /// The number of reports about deliveries that have not arrived. Below 0 if a report has arrived before the reply of the
    /// owner, which reports how many there are.
    missing_reports: i64,
}

/// One command of a request.
#[derive(Debug)]
struct Item {
    /// The method.
    method: Method,
    /// How many of the following slots belong to it.
    slots: usize,
    /// The command is wrong and has no slots.
    error: Option<Error>,
}

/// The replies to a call so far.
#[derive(Debug, Default)]
struct Slot {
    /// The reply of the owner; of a call to every worker, an error or `Done`.
    reply: Option<Reply>,
    /// The channels that workers have listed, and their subscribers.
    channels: BTreeMap<Arc<str>, u32>,
    /// The sums of the counts of the workers.
    counts: Counts,
    /// The counts of the delivery; `None` unless the request waits for it.
    delivery: Option<Delivery>,
}

/// The methods of the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Publish,
    Broadcast,
    History,
    HistoryRemove,
    Presence,
    PresenceStats,
    Channels,
    Info,
    Steer(InstructionMethod),
    Unknown,
}

/// The contents of a response about the process.
#[derive(Clone, Copy, Debug)]
pub struct Node<'n> {
    /// Its name.
    pub name: &'n str,
    /// Its version.
    pub version: &'n str,
}

#[derive(Deserialize)]
struct Publish<'a> {
    #[serde(default)]
    channel: String,
    #[serde(default)]
    channels: Vec<String>,
    #[serde(borrow, default, deserialize_with = "stated")]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    skip_history: bool,
    #[serde(default)]
    idempotency_key: String,
    #[serde(default)]
    wait: bool,
    #[serde(default)]
    delta: bool,
    #[serde(default)]
    event: String,
}

#[derive(Deserialize)]
struct History {
    #[serde(default)]
    channel: String,
    #[serde(default)]
    limit: i64,
    since: Option<Start>,
    #[serde(default)]
    reverse: bool,
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    epoch: String,
}

#[derive(Deserialize)]
struct Pattern {
    #[serde(default)]
    pattern: String,
}

#[derive(Deserialize)]
struct Batch<'a> {
    #[serde(borrow, default)]
    commands: Vec<BTreeMap<String, &'a RawValue>>,
}

/// Reads a JSON value that is stated, also if it is `null`.
pub(crate) fn stated<'de: 'a, 'a, D>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error>
where
    D: Deserializer<'de>,
{
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The body is not valid for the method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl ApiCall {
    /// Reads a request for `hub`. Returns its calls, each of which has the number of its place.
    ///
    /// # Errors
    /// The body is not JSON, or not of the form that the method takes.
    pub fn begin(
        (hub, settings): (u16, &HubSettings),
        method: &str,
        body: &str,
    ) -> Result<(Self, Vec<Call>), Malformed> {
        let mut exchange = Self {
            items: Vec::new(),
            slots: Vec::new(),
            is_batch: false,
            missing: 0,
            missing_reports: 0,
        };
        let mut calls = Vec::new();
        // A request without arguments may omit the body.
        let body = if body.trim().is_empty() { "{}" } else { body };
        if method == "batch" {
            exchange.is_batch = true;
            let batch: Batch<'_> = serde_json::from_str(body).map_err(|_| Malformed)?;
            for command in batch.commands {
                let Some((method, arguments)) = command.into_iter().next() else {
                    return Err(Malformed);
                };
                exchange.add((hub, settings), &method, arguments.get(), &mut calls)?;
            }
        } else {
            exchange.add((hub, settings), method, body, &mut calls)?;
        }
        Ok((exchange, calls))
    }

    fn add(
        &mut self,
        hub: (u16, &HubSettings),
        name: &str,
        body: &str,
        calls: &mut Vec<Call>,
    ) -> Result<(), Malformed> {
        let begun = calls.len();
        let method = Method::named(name);
        let error = method.read(hub, body, calls)?.err();
        let is_full = calls.len() > COMMANDS_MAX;
        if error.is_some() || is_full {
            calls.truncate(begun);
        }
        let error = error.or(is_full.then_some(Error::LimitExceeded));
        self.slots.extend(calls[begun..].iter().map(Slot::of));
        self.items.push(Item { method, slots: calls.len() - begun, error });
        Ok(())
    }

    /// Expects this number of replies to one more call.
    pub fn expect(&mut self, replies: u16) {
        self.missing += u32::from(replies);
    }

    /// Takes a reply to the call of this number.
    pub fn take(&mut self, number: u32, reply: Reply) {
        match &reply {
            Reply::Delivered(_) => self.missing_reports -= 1,
            Reply::Published { reports, .. } => {
                self.missing = self.missing.saturating_sub(1);
                self.missing_reports += i64::from(*reports);
            }
            Reply::Subscribed(_)
            | Reply::History { .. }
            | Reply::Done
            | Reply::Presence(_)
            | Reply::PresenceStats { .. }
            | Reply::Channels(_)
            | Reply::Info(_)
            | Reply::Failed(_) => self.missing = self.missing.saturating_sub(1),
        }
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        match reply {
            Reply::Delivered(delivery) => slot.delivery.get_or_insert_default().add(delivery),
            Reply::Channels(channels) => {
                for (name, count) in channels {
                    *slot.channels.entry(name).or_default() += count;
                }
            }
            Reply::Info(counts) => {
                slot.counts.clients += counts.clients;
                slot.counts.users += counts.users;
                slot.counts.subscriptions += counts.subscriptions;
                slot.counts.channels += counts.channels;
            }
            // If one worker has refused the call, the call has failed.
            reply if matches!(slot.reply, Some(Reply::Failed(_))) => drop(reply),
            reply => slot.reply = Some(reply),
        }
    }

    /// Whether every reply has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing == 0 && self.missing_reports == 0
    }

    /// Appends the body of the response.
    pub fn encode(&self, out: &mut Vec<u8>, node: &Node<'_>) {
        let (mut next, start) = (0, out.len());
        if self.is_batch {
            out.extend_from_slice(b"{\"replies\":[");
        }
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let slots = self.slots.get(next..next + item.slots).unwrap_or_default();
            next += item.slots;
            // Some lines of a request could otherwise read the same history thousands of times.
            match self.is_batch && item.method.reads_list() && out.len() - start > LISTS_BYTES_MAX {
                true => encode_error(out, Error::LimitExceeded),
                false => item.encode(out, slots, self.is_batch, node),
            }
        }
        if self.is_batch {
            out.extend_from_slice(b"]}");
        }
    }
}

impl Method {
    fn named(name: &str) -> Self {
        match name {
            "publish" => Self::Publish,
            "broadcast" => Self::Broadcast,
            "history" => Self::History,
            "history_remove" => Self::HistoryRemove,
            "presence" => Self::Presence,
            "presence_stats" => Self::PresenceStats,
            "channels" => Self::Channels,
            "info" => Self::Info,
            "subscribe" => Self::Steer(InstructionMethod::Subscribe),
            "unsubscribe" => Self::Steer(InstructionMethod::Unsubscribe),
            "disconnect" => Self::Steer(InstructionMethod::Disconnect),
            "refresh" => Self::Steer(InstructionMethod::Refresh),
            _ => Self::Unknown,
        }
    }

    /// Whether the reply is a list of any length.
    const fn reads_list(self) -> bool {
        match self {
            Self::History | Self::Presence | Self::Channels => true,
            Self::Publish
            | Self::Broadcast
            | Self::HistoryRemove
            | Self::PresenceStats
            | Self::Info
            | Self::Steer(_)
            | Self::Unknown => false,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Broadcast => "broadcast",
            Self::History => "history",
            Self::HistoryRemove => "history_remove",
            Self::Presence => "presence",
            Self::PresenceStats => "presence_stats",
            Self::Channels => "channels",
            Self::Info => "info",
            Self::Steer(InstructionMethod::Subscribe) => "subscribe",
            Self::Steer(InstructionMethod::Unsubscribe) => "unsubscribe",
            Self::Steer(InstructionMethod::Disconnect) => "disconnect",
            Self::Steer(InstructionMethod::Refresh) => "refresh",
            Self::Unknown => "unknown",
        }
    }

    /// Appends the calls of a command.
    fn read(
        self,
        hub: (u16, &HubSettings),
        body: &str,
        calls: &mut Vec<Call>,
    ) -> Result<Result<(), Error>, Malformed> {
        let (index, settings) = hub;
        Ok(match self {
            Self::Publish | Self::Broadcast => {
                let publish = serde_json::from_str(body).map_err(|_| Malformed)?;
                self.read_publish(hub, &publish, calls)
            }
            Self::History | Self::HistoryRemove | Self::Presence | Self::PresenceStats => {
                let history: History = serde_json::from_str(body).map_err(|_| Malformed)?;
                settings.channel(&history.channel).map(|_| {
                    calls.push(self.channel_call(index, &history));
                })
            }
            Self::Channels => {
                let pattern: Pattern = serde_json::from_str(body).map_err(|_| Malformed)?;
                calls.push(Call::Channels { hub: index, pattern: pattern.pattern.into() });
                Ok(())
            }
            Self::Info => {
                calls.push(Call::Info { hub: index });
                Ok(())
            }
            Self::Steer(steering) => {
                let read = Instruction::read(hub, steering, body).map_err(|_| Malformed)?;
                read.map(|instruction| calls.push(Call::Instruct(Arc::new(instruction))))
            }
            Self::Unknown => Err(Error::MethodNotFound),
        })
    }

    /// The call of a method that concerns one channel.
    fn channel_call(self, hub: u16, history: &History) -> Call {
        let channel = history.channel.as_str().into();
        match self {
            Self::HistoryRemove => return Call::HistoryRemove { hub, channel },
            Self::Presence => return Call::Presence { hub, channel },
            Self::PresenceStats => return Call::PresenceStats { hub, channel },
            Self::Publish
            | Self::Broadcast
            | Self::History
            | Self::Channels
            | Self::Info
            | Self::Steer(_)
            | Self::Unknown => {}
        }
        let since = history.since.as_ref().map(|since| Since::new(&since.epoch, since.offset));
        let limit = u32::try_from(history.limit).ok();
        Call::History { hub, channel, excerpt: Excerpt { since, limit, reverse: history.reverse } }
    }

    fn read_publish(
        self,
        (hub, settings): (u16, &HubSettings),
        publish: &Publish<'_>,
        calls: &mut Vec<Call>,
    ) -> Result<(), Error> {
        // Some libraries send `null` for data that they do not state.
        let is_stated = |data: &&RawValue| publish.b64data.is_none() || data.get() != "null";
        let data: Arc<str> = match (publish.data.filter(is_stated), &publish.b64data) {
            (Some(data), None) => data.get().into(),
            (None, Some(encoded)) => {
                let bytes = base64::decode(encoded.as_bytes()).ok_or(Error::BadRequest)?;
                let text = String::from_utf8(bytes).map_err(|_| Error::BadRequest)?;
                let is_json = serde_json::from_str::<&RawValue>(&text).is_ok();
                is_json.then(|| text.into()).ok_or(Error::BadRequest)?
            }
            (None, None) | (Some(_), Some(_)) => return Err(Error::BadRequest),
        };
        let has_name = !publish.event.is_empty();
        if is_too_deep(&data) || has_name && !is_event_name(&publish.event) {
            return Err(Error::BadRequest);
        }
        let event: Arc<str> = publish.event.as_str().into();
        if data.len() > settings.push.message_bytes_max
            || publish.idempotency_key.len() > IDEMPOTENCY_KEY_BYTES_MAX
        {
            return Err(Error::LimitExceeded);
        }
        let tags = match publish.tags.is_empty() {
            true => "".into(),
            false => serde_json::to_string(&publish.tags).unwrap_or_default().into(),
        };
        let channels = match self {
            Self::Broadcast => publish.channels.as_slice(),
            _ => core::slice::from_ref(&publish.channel),
        };
        if channels.is_empty() {
            return Err(Error::BadRequest);
        }
        // The owner of a channel checks its name, so that each channel of a broadcast has its own result.
        if self == Self::Publish {
            settings.channel(&publish.channel)?;
        }
        for channel in channels {
            calls.push(Call::Publish(Order {
                hub,
                origin: NodeId::OWN,
                channel: channel.as_str().into(),
                data: Arc::clone(&data),
                tags: Arc::clone(&tags),
                info: "".into(),
                sender: "".into(),
                skip_history: publish.skip_history,
                idempotency_key: publish.idempotency_key.as_str().into(),
                waits: publish.wait,
                delta: publish.delta,
                event: Arc::clone(&event),
            }));
        }
        Ok(())
    }
}

impl Item {
    fn encode(&self, out: &mut Vec<u8>, slots: &[Slot], is_batch: bool, node: &Node<'_>) {
        if let Some(error) = self.error {
            return encode_error(out, error);
        }
        if self.method == Method::Broadcast {
            out.extend_from_slice(match is_batch {
                true => b"{\"broadcast\":{\"responses\":[".as_slice(),
                false => b"{\"result\":{\"responses\":[".as_slice(),
            });
            for (index, slot) in slots.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                slot.encode(out, "result", node);
            }
            return out.extend_from_slice(b"]}}");
        }
        let name = if is_batch { self.method.name() } else { "result" };
        if let Some(slot) = slots.first() {
            slot.encode_for(self.method, out, name, node);
        }
    }
}

impl Slot {
    /// The slot of a call.
    fn of(call: &Call) -> Self {
        let waits = matches!(call, Call::Publish(order) if order.waits);
        Self { delivery: waits.then(Delivery::default), ..Self::default() }
    }

    fn encode_for(&self, method: Method, out: &mut Vec<u8>, name: &str, node: &Node<'_>) {
        match method {
            Method::Channels => {
                begin_result(out, name);
                out.extend_from_slice(b"\"channels\":{");
                for (index, (channel, count)) in self.channels.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    encode_text(out, channel);
                    out.extend_from_slice(b":{\"num_clients\":");
                    encode_number(out, (*count).into());
                    out.push(b'}');
                }
                out.extend_from_slice(b"}}}");
            }
            Method::Info => {
                begin_result(out, name);
                out.extend_from_slice(b"\"nodes\":[{\"uid\":");
                encode_text(out, node.name);
                out.extend_from_slice(b",\"name\":");
                encode_text(out, node.name);
                out.extend_from_slice(b",\"version\":");
                encode_text(out, node.version);
                for (field, count) in [
                    ("num_clients", self.counts.clients),
                    ("num_users", self.counts.users),
                    ("num_subs", self.counts.subscriptions),
                    ("num_channels", self.counts.channels),
                ] {
                    encode_member(out, field, count.into());
                }
                out.extend_from_slice(b"}]}}");
            }
            Method::Publish
            | Method::Broadcast
            | Method::History
            | Method::HistoryRemove
            | Method::Presence
            | Method::PresenceStats
            | Method::Steer(_)
            | Method::Unknown => self.encode(out, name, node),
        }
    }

    fn encode(&self, out: &mut Vec<u8>, name: &str, _node: &Node<'_>) {
        match &self.reply {
            Some(Reply::Published { position, .. }) => {
                begin_result(out, name);
                if let Some(position) = position {
                    out.extend_from_slice(b"\"offset\":");
                    encode_number(out, position.offset);
                    out.extend_from_slice(b",\"epoch\":");
                    encode_text(out, position.epoch.as_str());
                }
                if let Some(delivery) = &self.delivery {
                    if position.is_some() {
                        out.push(b',');
                    }
                    encode_delivery(out, delivery);
                }
                out.extend_from_slice(b"}}");
            }
            Some(Reply::History { publications, position }) => {
                begin_result(out, name);
                encode_publications(out, publications);
                out.extend_from_slice(b",\"epoch\":");
                encode_text(out, position.epoch.as_str());
                encode_member(out, "offset", position.offset);
                out.extend_from_slice(b"}}");
            }
            Some(Reply::Presence(presence)) => {
                begin_result(out, name);
                json::encode_presence_member(out, presence);
                out.extend_from_slice(b"}}");
            }
            Some(Reply::PresenceStats { clients, users }) => {
                begin_result(out, name);
                json::encode_stats_members(out, *clients, *users);
                out.extend_from_slice(b"}}");
            }
            Some(Reply::Done) => {
                begin_result(out, name);
                out.extend_from_slice(b"}}");
            }
            Some(Reply::Failed(error)) => encode_error(out, *error),
            Some(
                Reply::Subscribed(_) | Reply::Channels(_) | Reply::Info(_) | Reply::Delivered(_),
            )
            | None => encode_error(out, Error::Internal),
        }
    }
}

/// Whether `name` matches a pattern in which `*` matches any text and `?` one character. An empty pattern matches every name.
#[must_use]
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    if pattern.is_empty() {
        return true;
    }
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut in_name) = (0, 0);
    // The place to continue after the last `*` if the text after it does not match.
    let mut retry: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at + 1, in_name));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => match &mut retry {
                Some((after, from)) => {
                    *from += 1;
                    (at, in_name) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Appends the member `publications`.
pub fn encode_publications(out: &mut Vec<u8>, publications: &[Arc<Publication>]) {
    encode_publications_as(out, publications, Body::Plain);
}

/// Appends the member `publications`, whose data has this form.
pub(crate) fn encode_publications_as(
    out: &mut Vec<u8>,
    publications: &[Arc<Publication>],
    body: Body<'_>,
) {
    out.extend_from_slice(b"\"publications\":[");
    for (index, publication) in publications.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        encode_publication(out, publication, body);
    }
    out.push(b']');
}

/// Appends a publication as an object.
pub(crate) fn encode_publication(out: &mut Vec<u8>, publication: &Publication, body: Body<'_>) {
    encode_members(out, publication, body);
    out.push(b'}');
}

/// Appends a publication as an object, without the brace that ends it.
pub(crate) fn encode_members(out: &mut Vec<u8>, publication: &Publication, body: Body<'_>) {
    out.extend_from_slice(b"{\"data\":");
    match body {
        Body::Plain => out.extend_from_slice(publication.data.as_bytes()),
        Body::Text => encode_text(out, &publication.data),
        Body::Patch(patch) => {
            encode_text(out, patch);
            out.extend_from_slice(b",\"delta\":true");
        }
    }
    if !publication.info.is_empty() {
        out.extend_from_slice(b",\"info\":");
        out.extend_from_slice(publication.info.as_bytes());
    }
    if let Some(position) = publication.position {
        encode_member(out, "offset", position.offset);
    }
    if !publication.tags.is_empty() {
        out.extend_from_slice(b",\"tags\":");
        out.extend_from_slice(publication.tags.as_bytes());
    }
}

/// Appends a string of JSON.
pub fn encode_text(out: &mut Vec<u8>, text: &str) {
    let written = serde_json::to_writer(out, text);
    debug_assert!(written.is_ok(), "a string can always be written");
}

/// Appends a comma, a name and a number.
pub(crate) fn encode_member(out: &mut Vec<u8>, name: &str, number: u64) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    encode_number(out, number);
}

fn encode_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the member `delivery`.
fn encode_delivery(out: &mut Vec<u8>, delivery: &Delivery) {
    out.extend_from_slice(b"\"delivery\":{\"reached\":");
    encode_number(out, delivery.reached);
    encode_member(out, "queued", delivery.queued);
    encode_member(out, "dropped", delivery.dropped);
    encode_member(out, "slow", delivery.slow);
    out.push(b'}');
}

fn begin_result(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":{");
}

/// Appends an error as a whole response.
pub fn encode_error(out: &mut Vec<u8>, error: Error) {
    out.extend_from_slice(b"{\"error\":{\"code\":");
    encode_number(out, error.code().into());
    out.extend_from_slice(b",\"message\":");
    encode_text(out, error.message());
    out.extend_from_slice(b"}}");
}
