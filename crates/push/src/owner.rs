//! The channels that one worker owns: offsets, history, and which workers have subscribers.
//! In: subscriptions and publications of all workers, time, random numbers. Out: positions, publications.
//! Never: knows a subscriber.
//! Limits: a worker's share of the hub's `history-memory-max`; `IDEMPOTENCY_KEYS_MAX` keys.
//! Invariant: `bytes` is the size of all histories of the hub, and at most `bytes_max` between two calls.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tidegate_base::{Moment, Span};
use tidegate_config::model::{Deltas, Namespace};

use crate::audience::Audience;
use crate::conflation::Conflation;
use crate::delta::{Bases, Lineage};
use crate::mail::{Order, Presence, PresentClient};
use crate::newest::Newest;
use crate::position::{Epoch, Position, Since};
use crate::publication::{Content, Publication};
use crate::settings::{Error, HubSettings, stream_limits};
use crate::stream::{Excerpt, Recovered, Stream};
use crate::visitors::Visitors;

/// How long a key of a publication is remembered.
const IDEMPOTENCY_SPAN: Span = Span::from_secs(300);
/// Maximum number of keys that are remembered; beyond that the oldest are forgotten.
pub const IDEMPOTENCY_KEYS_MAX: usize = 65_536;
/// The memory of an empty history, without its channel's name.
const STREAM_COST_BYTES: usize = 256;
/// How many channels one sweep examines.
const SWEEP_CHANNELS_MAX: usize = 256;
/// How many unused channels one sweep removes, which takes about a millisecond.
const SWEEP_UNUSED_MAX: usize = 4096;
/// How many entries of dropped publications `Owned::order` may contain, in addition to as many entries as
/// publications are kept.
const ORDER_SPARE: usize = 64;
/// How many entries of `Owned::order` are examined with each publication while it is tidied.
const ORDER_STEPS: usize = 8;
/// Maximum number of publications that a client recovers at once; more are reported as lost.
pub const RECOVERY_MAX: usize = 300;

/// The channels of one hub that a worker owns.
#[derive(Debug)]
pub struct Owned {
    /// The channels by name.
    channels: BTreeMap<Arc<str>, Channel>,
    /// The bytes that the histories keep.
    bytes: usize,
    /// The part of `bytes` that the histories take without their messages.
    streams_bytes: usize,
    /// Maximum number of bytes that the histories may keep.
    bytes_max: usize,
    /// The kept publications of all channels, oldest first, after those of `tidied`. Contains some that were dropped.
    order: VecDeque<(Arc<str>, u64)>,
    /// The oldest publications, moved from `order` without those that were gone. Empty unless `order` is being tidied.
    tidied: VecDeque<(Arc<str>, u64)>,
    /// The number of publications that the histories keep.
    kept: usize,
    /// Keys of recent publications, and the results.
    keys: BTreeMap<PublicationKey, Option<Position>>,
    /// The keys by age.
    key_ages: VecDeque<(Moment, PublicationKey)>,
    /// The start of the next sweep.
    sweep_from: Option<Arc<str>>,
    /// Channels that had no message and no subscriber when they were appended, the channel that has been unused for longest
    /// first. A channel is in it once at most (`Channel::is_listed_unused`).
    unused: VecDeque<Arc<str>>,
    /// Messages that are held back, of namespaces with `conflate`.
    conflation: Conflation,
    /// The previous messages that the next patches refer to, in namespaces with deltas.
    bases: Bases,
    /// The newest messages that new subscribers get, in namespaces with `cache`.
    newest: Newest,
}

/// A channel, and the idempotency key of a publication in it.
type PublicationKey = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct Channel {
    /// The history; `None` if the namespace keeps none.
    stream: Option<Stream>,
    /// The workers with subscribers.
    workers: Vec<u16>,
    /// The presence list.
    visitors: Visitors,
    /// The channel is in `Owned::unused`.
    is_listed_unused: bool,
}

impl Channel {
    /// Whether the channel has a history without messages, and no subscriber.
    fn is_unused(&self) -> bool {
        self.workers.is_empty() && self.stream.as_ref().is_some_and(Stream::is_empty)
    }
}

/// Whether the join and the leave of a client are reported.
fn is_announced(hub: &HubSettings, name: &str, visitor: &PresentClient) -> bool {
    let of_namespace = || hub.channel(name).is_ok_and(|namespace| namespace.join_leave);
    visitor.is_announced.unwrap_or_else(of_namespace)
}

/// The result of a publication.
#[derive(Debug)]
pub enum Outcome<'o> {
    /// Send the publication to these workers.
    Published(Arc<Publication>, &'o [u16]),
    /// It is held back until the interval of its channel ends.
    Held,
    /// A publication with the same idempotency key was published before, with this result.
    Repeated(Option<Position>),
}

impl Owned {
    /// No channels; their histories may keep `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            channels: BTreeMap::new(),
            bytes: 0,
            streams_bytes: 0,
            bytes_max,
            order: VecDeque::new(),
            tidied: VecDeque::new(),
            kept: 0,
            keys: BTreeMap::new(),
            key_ages: VecDeque::new(),
            sweep_from: None,
            unused: VecDeque::new(),
            conflation: Conflation::default(),
            bases: Bases::beside(bytes_max),
            newest: Newest::beside(bytes_max),
        }
    }

    /// The number of channels with subscribers on any worker.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.channels.values().filter(|channel| !channel.workers.is_empty()).count()
    }

    /// The number of channels.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether there is no channel.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// The bytes that the histories keep.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The workers with subscribers of `channel`.
    #[must_use]
    pub fn workers(&self, channel: &str) -> &[u16] {
        self.channels.get(channel).map_or(&[], |channel| &channel.workers)
    }

    /// Notes that a worker has a subscriber. Returns the position of the channel, and the messages that the subscriber missed.
    ///
    /// # Errors
    /// The channel does not exist, or there is no memory for its history.
    pub fn subscribe(
        &mut self,
        hub: &HubSettings,
        name: &Arc<str>,
        worker: u16,
        since: Option<Since>,
        (now, random): (Moment, u64),
    ) -> Result<(Option<Position>, Option<Recovered>), Error> {
        let namespace = hub.channel(name)?;
        let limits = stream_limits(namespace);
        if limits.is_some() {
            // The channels of clients that only subscribe leave room for those in which the application publishes.
            self.open_stream(name, now, random, self.silent_bytes_max())
                .map_err(|_| Error::TooManyRequests)?;
        }
        let channel = self.channels.entry(Arc::clone(name)).or_default();
        if !channel.workers.contains(&worker) {
            channel.workers.push(worker);
        }
        let Some((stream, limits)) = channel.stream.as_mut().zip(limits) else {
            return Ok((None, since.map(|_| Recovered::LOST)));
        };
        let before = stream.len();
        self.bytes -= stream.expire(now, limits.age_max).unsigned_abs();
        self.kept -= before - stream.len();
        stream.touch(now);
        let recovered = match namespace.cache {
            true => stream.newest(since).map(|found| self.newest.share(name, found)),
            false => since.map(|since| stream.recover(since, RECOVERY_MAX)),
        };
        Ok((Some(stream.position()), recovered))
    }

    /// Adds a client to the presence list. Returns the message for the subscribers, if the namespace has `join-leave`.
    pub fn join(
        &mut self,
        hub: &HubSettings,
        (index, name): (u16, &Arc<str>),
        visitor: PresentClient,
    ) -> Option<(Arc<Publication>, &[u16])> {
        let channel = self.channels.get_mut(name)?;
        let (client, info) = (Arc::clone(&visitor.client), Arc::clone(&visitor.info));
        let is_told = is_announced(hub, name, &visitor);
        channel.visitors.join(visitor);
        let content = Content::Join;
        let report =
            || Arc::new(Publication::visit(index, Arc::clone(name), content, client, &info));
        is_told.then(|| (report(), channel.workers.as_slice()))
    }

    /// Removes a client from the presence list. Returns the message for the subscribers, if the namespace has
    /// `join-leave`.
    pub fn part(
        &mut self,
        hub: &HubSettings,
        (index, name): (u16, &Arc<str>),
        client: &str,
    ) -> Option<(Arc<Publication>, &[u16])> {
        let channel = self.channels.get_mut(name)?;
        let visitor = channel.visitors.part(client)?;
        let is_told = is_announced(hub, name, &visitor);
        let content = Content::Leave;
        let PresentClient { client, info, .. } = visitor;
        let report =
            || Arc::new(Publication::visit(index, Arc::clone(name), content, client, &info));
        is_told.then(|| (report(), channel.workers.as_slice()))
    }

    /// The presence list of a channel.
    ///
    /// # Errors
    /// The channel does not exist, or its namespace has no presence.
    pub fn presence(&self, hub: &HubSettings, name: &str) -> Result<Presence, Error> {
        if !hub.channel(name)?.presence {
            return Err(Error::NotAvailable);
        }
        let known = self.channels.get(name);
        Ok(Presence { visitors: known.map_or_else(Vec::new, |known| known.visitors.list()) })
    }

    /// How many clients and users are in a channel.
    ///
    /// # Errors
    /// As `presence`.
    pub fn presence_stats(&self, hub: &HubSettings, name: &str) -> Result<(u64, u64), Error> {
        if !hub.channel(name)?.presence {
            return Err(Error::NotAvailable);
        }
        Ok(self.channels.get(name).map_or((0, 0), |channel| channel.visitors.count()))
    }

    /// Notes that a worker has no subscriber left. Returns whether it was the last worker with subscribers.
    pub fn leave(&mut self, name: &str, worker: u16) -> bool {
        let Some(channel) = self.channels.get_mut(name) else { return false };
        let before = channel.workers.len();
        channel.workers.retain(|other| *other != worker);
        let is_empty = before > 0 && channel.workers.is_empty();
        if channel.workers.is_empty() {
            self.bases.forget(name);
        }
        if channel.workers.is_empty() && channel.stream.is_none() {
            self.channels.remove(name);
            self.conflation.forget(name);
        } else {
            self.note_unused(name);
        }
        is_empty
    }

    /// Gives a message its position, and keeps it.
    ///
    /// # Errors
    /// The channel does not exist, or there is no memory for its history.
    pub fn publish(
        &mut self,
        hub: &HubSettings,
        order: &Order,
        (now, random): (Moment, u64),
    ) -> Result<Outcome<'_>, Error> {
        let namespace = hub.channel(&order.channel)?;
        let audience = Audience::of(namespace, order)?;
        let limits = stream_limits(namespace).filter(|_| !order.skip_history);
        let key = (Arc::clone(&order.channel), Arc::clone(&order.idempotency_key));
        if !order.idempotency_key.is_empty() {
            self.forget_keys(now);
            if let Some(result) = self.keys.get(&key) {
                return Ok(Outcome::Repeated(*result));
            }
        }
        let mut position = None;
        if limits.is_some() {
            self.open_stream(&order.channel, now, random, self.bytes_max / 2)?;
            let stream = self.channels.get(&order.channel).and_then(|known| known.stream.as_ref());
            position = stream.map(Stream::next_position);
        }
        let channel = Arc::clone(&order.channel);
        let mut publication = Publication::new(order.hub, channel, &order.data, position);
        publication.origin = order.origin;
        publication.tags = Box::from(&*order.tags);
        publication.event = match (&*order.event, &namespace.event) {
            ("", Some(name)) => name.as_str().into(),
            ("", None) => Arc::default(),
            _ => Arc::clone(&order.event),
        };
        publication.info = Box::from(&*order.info);
        publication.lineage = lineage(namespace, order);
        publication.audience = audience;
        let publication = Arc::new(publication);
        if let Some(limits) = limits
            && let Some(channel) = self.channels.get_mut(&order.channel)
            && let Some(stream) = &mut channel.stream
        {
            let before = stream.len();
            let bytes = stream.push(Arc::new(publication.unencoded()), now, &limits);
            self.newest.forget(&order.channel);
            self.bytes = self.bytes.saturating_add_signed(bytes);
            self.kept = self.kept + stream.len() - before;
            self.order.push_back((Arc::clone(&order.channel), publication.offset()));
            self.evict();
        }
        if !order.idempotency_key.is_empty() {
            self.keys.insert(key.clone(), position);
            self.key_ages.push_back((now, key));
        }
        let conflate = hub.channel(&order.channel)?.conflate;
        let delivered = match conflate.filter(|_| !self.workers(&order.channel).is_empty()) {
            Some(span) => self.conflation.offer(&publication, span, now),
            None => Some(publication),
        };
        let Some(publication) = delivered else { return Ok(Outcome::Held) };
        let publication = self.link(publication);
        Ok(Outcome::Published(publication, self.workers(&order.channel)))
    }

    /// Called when a message is sent to the workers with subscribers. Returns it with the message that its patch
    /// refers to.
    pub fn link(&mut self, publication: Arc<Publication>) -> Arc<Publication> {
        if publication.lineage.is_none() || self.workers(&publication.channel).is_empty() {
            return publication;
        }
        self.bases.link(publication)
    }

    /// The previous messages that patches refer to, in namespaces with deltas.
    pub fn bases(&mut self) -> &mut Bases {
        &mut self.bases
    }

    /// The messages that are held back.
    pub fn conflation(&mut self) -> &mut Conflation {
        &mut self.conflation
    }

    /// A part of the history of a channel, and its position.
    ///
    /// # Errors
    /// The channel does not exist, keeps no history, or has another epoch.
    pub fn history(
        &mut self,
        hub: &HubSettings,
        name: &Arc<str>,
        excerpt: &Excerpt,
        (now, random): (Moment, u64),
    ) -> Result<(Vec<Arc<Publication>>, Position), Error> {
        let limits = stream_limits(hub.channel(name)?).ok_or(Error::NotAvailable)?;
        self.open_stream(name, now, random, self.silent_bytes_max())?;
        let channel = self.channels.get_mut(name).ok_or(Error::Internal)?;
        let stream = channel.stream.as_mut().ok_or(Error::Internal)?;
        let before = stream.len();
        self.bytes -= stream.expire(now, limits.age_max).unsigned_abs();
        self.kept -= before - stream.len();
        stream.touch(now);
        let publications = stream.excerpt(excerpt).ok_or(Error::UnrecoverablePosition);
        let position = stream.position();
        self.note_unused(name);
        Ok((publications?, position))
    }

    /// Drops the history of a channel. Its offsets continue from the last one.
    ///
    /// # Errors
    /// The channel does not exist or keeps no history.
    pub fn remove_history(&mut self, hub: &HubSettings, name: &str) -> Result<(), Error> {
        stream_limits(hub.channel(name)?).ok_or(Error::NotAvailable)?;
        if let Some(stream) = self.channels.get_mut(name).and_then(|known| known.stream.as_mut()) {
            self.kept -= stream.len();
            self.bytes -= stream.clear().unsigned_abs();
            self.newest.forget(name);
        }
        self.note_unused(name);
        Ok(())
    }

    /// Drops publications and keys that are too old, in up to `SWEEP_CHANNELS_MAX` channels. Repeated calls reach all
    /// channels.
    pub fn sweep(&mut self, hub: &HubSettings, now: Moment) {
        self.forget_keys(now);
        self.newest.sweep();
        let from = self.sweep_from.take();
        let range = (from.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let mut emptied = Vec::new();
        for (count, (name, channel)) in self.channels.range_mut::<Arc<str>, _>(range).enumerate() {
            if count == SWEEP_CHANNELS_MAX {
                break;
            }
            self.sweep_from = (count + 1 == SWEEP_CHANNELS_MAX).then(|| Arc::clone(name));
            let limits = hub.channel(name).ok().and_then(stream_limits);
            let Some((stream, limits)) = channel.stream.as_mut().zip(limits) else { continue };
            let before = stream.len();
            self.bytes -= stream.expire(now, limits.age_max).unsigned_abs();
            self.kept -= before - stream.len();
            if channel.is_unused() {
                emptied.push(Arc::clone(name));
            }
        }
        for name in emptied {
            self.note_unused(&name);
        }
        self.sweep_unused(hub, now);
    }

    /// Removes channels that have been unused for the age of their history: no position that a client holds refers to
    /// them.
    fn sweep_unused(&mut self, hub: &HubSettings, now: Moment) {
        for _ in 0..SWEEP_UNUSED_MAX {
            let Some(name) = self.unused.front() else { break };
            let limits = hub.channel(name).ok().and_then(stream_limits);
            let unused = self.channels.get(name).filter(|channel| channel.is_unused());
            let used_at = unused.and_then(|channel| channel.stream.as_ref()).map(Stream::used_at);
            if let Some((used_at, limits)) = used_at.zip(limits)
                && now.since(used_at) < limits.age_max
            {
                break;
            }
            self.remove_unused();
        }
    }

    /// Appends a channel to `unused` if it is unused.
    fn note_unused(&mut self, name: &str) {
        if let Some((name, _)) = self.channels.get_key_value(name)
            && let name = Arc::clone(name)
            && let Some(channel) = self.channels.get_mut(&name)
            && channel.is_unused()
            && !channel.is_listed_unused
        {
            channel.is_listed_unused = true;
            self.unused.push_back(name);
        }
    }

    /// Takes the first channel of `unused`, and removes it unless it is used again. Returns false if `unused` is empty.
    fn remove_unused(&mut self) -> bool {
        let Some(name) = self.unused.pop_front() else { return false };
        let Some(channel) = self.channels.get_mut(&name) else { return true };
        channel.is_listed_unused = false;
        if channel.is_unused() {
            self.channels.remove(&name);
            self.bytes -= stream_cost(&name);
            self.streams_bytes -= stream_cost(&name);
        }
        true
    }

    /// The memory of histories that subscribers and readers may open, which have no message yet.
    const fn silent_bytes_max(&self) -> usize {
        self.bytes_max / 8 * 3
    }

    /// Makes sure that the channel has a history. Channels without messages and subscribers make room for it; they must
    /// not displace messages of others, so the empty histories get `streams_bytes_max`, at most half of the memory.
    fn open_stream(
        &mut self,
        name: &Arc<str>,
        now: Moment,
        random: u64,
        streams_bytes_max: usize,
    ) -> Result<(), Error> {
        if self.channels.get(name).is_some_and(|channel| channel.stream.is_some()) {
            return Ok(());
        }
        let cost = stream_cost(name);
        while (self.streams_bytes + cost > streams_bytes_max || self.bytes + cost > self.bytes_max)
            && self.remove_unused()
        {}
        if self.streams_bytes + cost > streams_bytes_max {
            return Err(Error::LimitExceeded);
        }
        self.bytes += cost;
        self.streams_bytes += cost;
        let position = Position { epoch: Epoch::from_random(random), offset: 0 };
        let channel = self.channels.entry(Arc::clone(name)).or_default();
        channel.stream = Some(Stream::new(position, now));
        self.evict();
        Ok(())
    }

    /// Drops channels that are unused, and then the oldest publications of all channels, until the rest fits into the
    /// memory.
    fn evict(&mut self) {
        while self.bytes > self.bytes_max {
            if self.remove_unused() {
                continue;
            }
            let oldest = self.tidied.pop_front().or_else(|| self.order.pop_front());
            let Some((name, offset)) = oldest else { break };
            if let Some(stream) = self.channels.get_mut(&name).and_then(|c| c.stream.as_mut()) {
                let before = stream.len();
                self.bytes -= stream.evict(offset).unsigned_abs();
                self.kept -= before - stream.len();
                self.note_unused(&name);
            }
        }
        self.tidy_order();
    }

    /// Removes publications from `order` that were dropped because of their age or number, a few with each publication.
    fn tidy_order(&mut self) {
        if self.tidied.is_empty() {
            if self.order.len() <= 2 * self.kept + ORDER_SPARE {
                return;
            }
            self.tidied.reserve(self.kept);
        }
        for _ in 0..ORDER_STEPS {
            let Some((name, offset)) = self.order.pop_front() else {
                self.order = core::mem::take(&mut self.tidied);
                return;
            };
            let stream = self.channels.get(&name).and_then(|channel| channel.stream.as_ref());
            if stream.is_some_and(|stream| stream.keeps(offset)) {
                self.tidied.push_back((name, offset));
            }
        }
    }

    fn forget_keys(&mut self, now: Moment) {
        while let Some((at, _)) = self.key_ages.front()
            && (now.since(*at) >= IDEMPOTENCY_SPAN || self.key_ages.len() > IDEMPOTENCY_KEYS_MAX)
        {
            if let Some((_, key)) = self.key_ages.pop_front() {
                self.keys.remove(&key);
            }
        }
    }
}

fn stream_cost(name: &str) -> usize {
    STREAM_COST_BYTES + name.len()
}

/// The lineage of a message that was not sent yet; `None` in a namespace without deltas.
fn lineage(namespace: &Namespace, order: &Order) -> Option<Box<Lineage>> {
    let is_patchable = match namespace.deltas {
        Deltas::Off => return None,
        Deltas::Marked => order.delta,
        Deltas::All => true,
    };
    Some(Box::new(Lineage::new(is_patchable)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeId;

    #[test]
    fn history_keeps_no_encoded_form() {
        let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\nhistory = 2\n";
        let config = tidegate_config::parse(file, "the test").unwrap_or_else(|e| panic!("{e}"));
        let hubs = crate::settings::Hubs::new(&config);
        let hub = hubs.get(0).expect("the hub");
        let mut owned = Owned::new(1 << 20);
        let order = Order {
            hub: 0,
            origin: NodeId::OWN,
            channel: "a".into(),
            data: "1".into(),
            tags: "".into(),
            info: "".into(),
            sender: "".into(),
            skip_history: false,
            idempotency_key: "".into(),
            waits: false,
            delta: false,
            event: "".into(),
        };
        let Ok(Outcome::Published(delivered, _)) = owned.publish(hub, &order, (Moment::ZERO, 1))
        else {
            panic!("it is published")
        };
        let name: Arc<str> = "a".into();
        let kept = owned.history(hub, &name, &Excerpt::default(), (Moment::ZERO, 1));
        let (kept, _) = kept.expect("a history");
        assert!(Arc::ptr_eq(&kept[0].data, &delivered.data));
        assert!(!Arc::ptr_eq(&kept[0], &delivered), "the frames of a delivery would stay");
    }

    #[test]
    fn order_of_publications_is_tidied_in_steps_and_keeps_its_order() {
        let file = "[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\nhistory = 2\n\
                    [push.p.namespace.one]\nhistory = 1\n";
        let config = tidegate_config::parse(file, "the test").unwrap_or_else(|e| panic!("{e}"));
        let hubs = crate::settings::Hubs::new(&config);
        let hub = hubs.get(0).expect("the hub");
        let mut owned = Owned::new(1 << 20);
        let order = |channel: &str| Order {
            hub: 0,
            origin: NodeId::OWN,
            channel: channel.into(),
            data: "1".into(),
            tags: "".into(),
            info: "".into(),
            sender: "".into(),
            skip_history: false,
            idempotency_key: "".into(),
            waits: false,
            delta: false,
            event: "".into(),
        };
        for number in 0..400 {
            let result = owned.publish(hub, &order(&format!("c{number}")), (Moment::ZERO, 1));
            assert!(result.is_ok());
        }
        for _ in 0..5000 {
            let before = owned.tidied.len() + owned.order.len();
            assert!(owned.publish(hub, &order("one:a"), (Moment::ZERO, 1)).is_ok());
            let after = owned.tidied.len() + owned.order.len();
            assert!(before - ORDER_STEPS <= after, "one long step");
            assert!(after <= 3 * owned.kept + ORDER_SPARE, "{after} of {}", owned.kept);
            let all = owned.tidied.iter().chain(&owned.order);
            let rest = all.filter(|(name, _)| !name.starts_with("one"));
            assert!(rest.map(|(name, _)| &**name).eq((0..400).map(|n| format!("c{n}"))));
        }
        owned.bytes_max = owned.bytes / 2;
        owned.evict();
        assert!(owned.bytes <= owned.bytes_max);
        let keeps = |name: &str| {
            owned
                .channels
                .get(name)
                .and_then(|known| known.stream.as_ref())
                .is_some_and(|s| !s.is_empty())
        };
        assert!(!keeps("c0") && keeps("c399") && keeps("one:a"), "the oldest have gone");
    }
}
