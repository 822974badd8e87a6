//! All hubs as one worker sees them: subscribers, owned channels, and the exchange with other workers.
//! In: subscriptions and calls of this worker, mail of other workers. Out: replies, mail, subscribers of publications.
//! Never: waits for another worker; loses mail.
//! Limits: `OUTBOX_MAX` messages wait for a worker; beyond that no publication, subscription or query that concerns it is
//! accepted (`Error::TooManyRequests`), and clients of the client protocol are not read (`is_congested`). Replies and ends of
//! subscriptions are bounded by the calls that were accepted before. While `Local::is_full`, no mail is received, so that
//! publishers slow down instead of queues growing. Publications of clients get half of `OUTBOX_MAX` and `WALKS_MAX`, and
//! `CLIENT_WALKS_MAX` in a channel, so that those of the application and of other channels are accepted. Joins and leaves for a
//! worker that is behind are postponed, the newest of each client. `EMPTIED_MAX` channels without subscribers wait to be
//! reported; further ones are counted.
//! Invariant: mail to a worker is sent in the order in which it was made, except that joins and leaves may follow later mail.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_base::prng::mix64;
use tidegate_base::{Moment, Span};
use tidegate_config::model::{BackendEvent, PushBackend};

use crate::api::matches_pattern;
use crate::emulation::Secret;
use crate::fan_out::{Delivery, Slice, Waiter};
use crate::instruction::Instruction;
use crate::local::{EmptyChannel, Joined, Local, POSTPONED_MAX, SubscriptionId, Ticket, WALKS_MAX};
use crate::mail::{Call, Counts, Mail, Order, PresentClient, Reply, ReplyTo, Subscribed, Target};
use crate::owner::{Outcome, Owned};
use crate::position::Since;
use crate::postponed::{Postponed, Postponement};
use crate::publication::Publication;
use crate::roster::Roster;
use crate::settings::{Error, HubSettings, Hubs, namespace_of};

/// Maximum number of messages that wait for a worker before publications, subscriptions and queries are refused.
pub const OUTBOX_MAX: usize = 1024;
/// Maximum number of publications of a channel that are being delivered before those of clients are refused.
pub const CLIENT_WALKS_MAX: usize = 64;

/// Maximum number of messages of conflated channels that are published in a turn.
const CONFLATED_PER_TURN_MAX: usize = 64;
/// Maximum number of channels without subscribers that wait until the backend is notified of them.
pub const EMPTIED_MAX: usize = 4096;
/// How long a message of a conflated channel waits for a worker that is behind.
const BEHIND_SPAN: Span = Span::from_millis(10);

/// The hubs of one worker. `K` names a subscriber or caller of the worker.
#[derive(Debug)]
pub struct Hub<K> {
    /// This worker.
    own: u16,
    /// All workers.
    workers: u16,
    /// The subscribers of this worker.
    local: Local<K>,
    /// The connected clients of this worker.
    roster: Roster<K>,
    /// By hub: the channels that this worker owns.
    owned: Vec<Owned>,
    /// By worker: mail that waits to be sent.
    outbox: Vec<VecDeque<Mail<K>>>,
    /// By worker: joins and leaves that follow the mail.
    postponed: Vec<Postponed>,
    /// Messages about clients that have joined, which are sent after the reply to the subscription. Empty between two
    /// calls.
    joins: Vec<(Arc<Publication>, Vec<u16>)>,
    /// Replies to calls of this worker that were not made at once.
    events: VecDeque<Event<K>>,
    /// Owned channels, and their hubs, whose last subscriber has left; only those that are reported to the backend.
    emptied: VecDeque<(u16, Arc<str>)>,
    /// How many more there were, since the last call of `take_lost_emptied`.
    lost_emptied: u64,
    /// By hub: the namespaces whose channels are reported to the backend when they have no subscribers.
    tells_emptied: Vec<Vec<Box<str>>>,
}

/// The figures of one hub on a worker.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct HubFigures {
    /// Channels that the worker owns.
    pub channels: u64,
    /// Bytes of their histories.
    pub history_bytes: u64,
    /// Subscriptions of the worker's clients.
    pub subscriptions: u64,
    /// Different users of the worker's clients.
    pub users: u64,
}

/// The time of an event, and random bits for the values that it creates.
pub type Instance = (Moment, u64);

/// How a subscription begins.
#[derive(Debug)]
pub struct Subscription {
    /// The place of the subscriber.
    pub place: SubscriptionId,
    /// The owner's reply; `None` if it arrives later, as `Event::Subscribed`.
    pub reply: Option<Subscribed>,
}

/// The result of handling mail.
#[derive(Debug)]
pub enum Event<K> {
    /// A subscription of this worker is confirmed.
    Subscribed(K, SubscriptionId, Subscribed),
    /// A subscription of this worker has failed, and ended.
    Refused(K, SubscriptionId, Error),
    /// The reply to a call of this worker.
    Replied(K, u32, Reply),
    /// Commands for a client of this worker; the request must contain the client's secret.
    Commands(K, Secret, Box<[u8]>),
}

impl<K: Copy + Eq> Hub<K> {
    /// The hubs of worker `own` of `workers`.
    #[must_use]
    pub fn new(settings: &Hubs, own: u16, workers: u16) -> Self {
        let workers = workers.max(1);
        let owned = (0..settings.len() as u16).map(|hub| {
            let most = settings.get(hub).map_or(0, |hub| hub.push.history_bytes_max);
            Owned::new(most / usize::from(workers))
        });
        Self {
            own,
            workers,
            local: Local::new(settings.len()),
            roster: Roster::default(),
            owned: owned.collect(),
            outbox: (0..workers).map(|_| VecDeque::new()).collect(),
            postponed: (0..workers).map(|_| Postponed::default()).collect(),
            joins: Vec::new(),
            events: VecDeque::new(),
            emptied: VecDeque::new(),
            lost_emptied: 0,
            tells_emptied: (0..settings.len() as u16)
                .map(|hub| tells_emptied(settings, hub))
                .collect(),
        }
    }

    /// The worker that owns a channel.
    #[must_use]
    pub fn owner(&self, channel: &str) -> u16 {
        let hash = channel.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (mix64(hash) % u64::from(self.workers)) as u16
    }

    /// Subscribes `key` to a channel. The caller has checked that it may. `since`: where the client was; `visitor`: the
    /// client, if others see it in the channel.
    ///
    /// # Errors
    /// The channel does not exist, there is no memory for its history, or much mail waits for its owner.
    pub fn subscribe(
        &mut self,
        settings: &Hubs,
        (hub, name): (u16, &str),
        key: K,
        (since, visitor): (Option<Since>, Option<PresentClient>),
        at: Instance,
    ) -> Result<Subscription, Error> {
        // Only the owner has the newest message.
        let has_cache = || {
            let namespace = settings.get(hub).and_then(|hub| hub.channel(name).ok());
            namespace.is_some_and(|namespace| namespace.cache)
        };
        let asks = since.is_some() || visitor.is_some() || has_cache();
        // The end of a subscription is mail that cannot be refused.
        let sends = || asks || !self.local.is_confirmed(hub, name);
        if self.is_behind(self.owner(name)) && sends() {
            return Err(Error::TooManyRequests);
        }
        let (place, joined) = self.local.join(hub, name, key, asks).ok_or(Error::Internal)?;
        let ticket = match joined {
            Joined::Confirmed(position) => {
                let reply = Some(Subscribed { position, recovered: None });
                return Ok(Subscription { place, reply });
            }
            Joined::Waiting(ticket) => ticket,
        };
        let channel = self.local.name(place).map_or_else(|| name.into(), Arc::clone);
        let call = Call::Subscribe { hub, channel, since, visitor };
        let reply = match self.call(settings, ReplyTo::Subscription(ticket), call, at) {
            None => None,
            Some(reply) => match self.settle(ticket, reply) {
                Some(Event::Subscribed(_, _, subscribed)) => Some(subscribed),
                Some(Event::Refused(_, _, error)) => return Err(error),
                Some(Event::Replied(..) | Event::Commands(..)) | None => {
                    return Err(Error::Internal);
                }
            },
        };
        self.tell_joins();
        Ok(Subscription { place, reply })
    }

    /// Ends a subscription. `client`: its name, if the presence list contains it.
    pub fn unsubscribe(
        &mut self,
        settings: &Hubs,
        place: SubscriptionId,
        key: K,
        client: Option<&Arc<str>>,
    ) {
        if let Some(client) = client
            && let Some((hub, channel)) = self.local.hub_and_name(place)
        {
            let owner = self.owner(&channel);
            let client = Arc::clone(client);
            if owner == self.own {
                self.part(settings, hub, &channel, &client);
            } else {
                self.outbox[usize::from(owner)].push_back(Mail::Part { hub, channel, client });
            }
        }
        if let Some(deserted) = self.local.leave(place, key) {
            self.note_deserted(deserted);
        }
        self.send_reports();
    }

    /// The channel of a subscription.
    #[must_use]
    pub fn channel(&self, place: SubscriptionId) -> Option<&Arc<str>> {
        self.local.name(place)
    }

    /// Makes a call. Returns the reply of this worker, if the call concerns it; those of other workers arrive as events.
    pub fn call(
        &mut self,
        settings: &Hubs,
        to: ReplyTo<K>,
        call: Call,
        at: Instance,
    ) -> Option<Reply> {
        match call.target() {
            Target::Owner(channel) => {
                let owner = self.owner(channel);
                if owner == self.own {
                    return Some(self.execute(settings, (self.own, to), call, at));
                }
                let is_subscription = matches!(call, Call::Subscribe { .. });
                if !is_subscription && self.has_waiting(owner, outbox_share(&call)) {
                    return Some(Reply::Failed(Error::TooManyRequests));
                }
                let mail = Mail::Call { from: self.own, to, call };
                self.outbox[usize::from(owner)].push_back(mail);
                None
            }
            Target::All => {
                for worker in (0..self.workers).filter(|worker| *worker != self.own) {
                    let mail = Mail::Call { from: self.own, to, call: call.clone() };
                    self.outbox[usize::from(worker)].push_back(mail);
                }
                Some(self.execute(settings, (self.own, to), call, at))
            }
        }
    }

    /// How many workers reply to a call.
    #[must_use]
    pub fn replies_of(&self, call: &Call) -> u16 {
        match call.target() {
            Target::Owner(_) => 1,
            Target::All => self.workers,
        }
    }

    /// Takes mail of another worker.
    pub fn receive(&mut self, settings: &Hubs, mail: Mail<K>, at: Instance) -> Option<Event<K>> {
        match mail {
            Mail::Call { from, to, call } => {
                let reply = self.execute(settings, (from, to), call, at);
                if let Some(outbox) = self.outbox.get_mut(usize::from(from)) {
                    outbox.push_back(Mail::Reply { to, reply });
                }
                self.tell_joins();
                None
            }
            Mail::Reply { to: ReplyTo::Subscription(ticket), reply } => self.settle(ticket, reply),
            Mail::Reply { to: ReplyTo::Caller { key, number }, reply } => {
                Some(Event::Replied(key, number, reply))
            }
            Mail::Publication { publication, waiter } => {
                self.local.accept(publication, waiter);
                self.send_reports();
                None
            }
            Mail::Commands { from, to, key, secret, data } => {
                if let Some(outbox) = self.outbox.get_mut(usize::from(from)) {
                    outbox.push_back(Mail::Reply { to, reply: Reply::Done });
                }
                Some(Event::Commands(key, secret, data))
            }
            Mail::Part { hub, channel, client } => {
                self.part(settings, hub, &channel, &client);
                None
            }
            Mail::Leave { from, hub, channel } => {
                self.note_left(hub, channel, from);
                None
            }
        }
    }

    /// This worker.
    #[must_use]
    pub const fn worker(&self) -> u16 {
        self.own
    }

    /// Hands the commands of a client to its worker, which is another one. `to` gets the reply `Done` when that worker has
    /// them: a client that waits for the response to a request before it sends the next one gets its commands executed in
    /// order, whichever workers its requests reach.
    ///
    /// # Errors
    /// There is no such worker, or too much mail waits for it. The commands are returned.
    pub fn forward(
        &mut self,
        worker: u16,
        to: ReplyTo<K>,
        (key, secret): (K, Secret),
        data: Box<[u8]>,
    ) -> Result<(), Box<[u8]>> {
        if self.is_behind(worker) {
            return Err(data);
        }
        let Some(outbox) = self.outbox.get_mut(usize::from(worker)) else { return Err(data) };
        outbox.push_back(Mail::Commands { from: self.own, to, key, secret, data });
        Ok(())
    }

    /// Whether mail can be received now.
    #[must_use]
    pub fn can_receive(&self) -> bool {
        !self.local.is_full()
    }

    /// The next mail to send to `worker`.
    pub fn take_mail(&mut self, worker: u16) -> Option<Mail<K>> {
        let outbox = self.outbox.get_mut(usize::from(worker))?;
        let postponed = self.postponed.get_mut(usize::from(worker)).filter(|_| outbox.is_empty());
        if let Some(publication) = postponed.and_then(Postponed::take) {
            return Some(Mail::Publication { publication, waiter: None });
        }
        let mail = outbox.pop_front();
        if outbox.is_empty() && outbox.capacity() > 2 * OUTBOX_MAX {
            *outbox = VecDeque::new();
        }
        mail
    }

    /// Whether so much mail waits for a worker that clients must wait whose commands would add to it.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.outbox.iter().any(|outbox| outbox.len() >= OUTBOX_MAX)
    }

    /// Keeps mail that could not be sent, as the next to send.
    pub fn keep_mail(&mut self, worker: u16, mail: Mail<K>) {
        if let Some(outbox) = self.outbox.get_mut(usize::from(worker)) {
            outbox.push_front(mail);
        }
    }

    /// Whether mail waits to be sent.
    #[must_use]
    pub fn has_mail(&self) -> bool {
        self.outbox.iter().any(|outbox| !outbox.is_empty())
            || self.postponed.iter().any(|postponed| !postponed.is_empty())
    }

    /// Whether publications are being delivered.
    #[must_use]
    pub fn is_delivering(&self) -> bool {
        self.local.is_busy()
    }

    /// The connected clients of this worker.
    pub fn roster(&mut self) -> &mut Roster<K> {
        &mut self.roster
    }

    /// The number of connected clients of this worker.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.roster.len()
    }

    /// Whether an instruction has not reached all of its clients yet.
    #[must_use]
    pub fn is_instructing(&self) -> bool {
        self.roster.is_busy()
    }

    /// Continues an instruction: appends up to `most` clients that it concerns to `keys`.
    pub fn instruct(&mut self, most: usize, keys: &mut Vec<K>) -> Option<Arc<Instruction>> {
        self.roster.advance(most, keys)
    }

    /// Continues a delivery: appends subscribers that get the publication to `keys`, as many as `budget_bytes` contains
    /// what `cost_bytes` returns for it, and at least one.
    pub fn deliver(
        &mut self,
        budget_bytes: usize,
        cost_bytes: impl FnOnce(&Publication) -> usize,
        keys: &mut Vec<K>,
    ) -> Option<Slice<K>> {
        self.local.advance(budget_bytes, cost_bytes, keys)
    }

    /// The subscribers of a slice have got their publication, with this result.
    pub fn end_slice(&mut self, slice: Slice<K>, delivery: Delivery) {
        self.local.end_slice(slice, delivery);
        self.send_reports();
    }

    /// The next event that did not arrive by mail. Called until it returns `None`, before the worker waits.
    pub fn take_event(&mut self) -> Option<Event<K>> {
        self.events.pop_front()
    }

    /// Sends the reports that are complete to the callers that wait for them.
    fn send_reports(&mut self) {
        while let Some(report) = self.local.take_report() {
            let Waiter { worker, to } = report.waiter;
            let reply = Reply::Delivered(report.delivery);
            if worker != self.own {
                if let Some(outbox) = self.outbox.get_mut(usize::from(worker)) {
                    outbox.push_back(Mail::Reply { to, reply });
                }
            } else if let ReplyTo::Caller { key, number } = to {
                self.events.push_back(Event::Replied(key, number, reply));
            }
        }
    }

    /// When a message that is held back must be published.
    #[must_use]
    pub fn next_due(&mut self) -> Moment {
        let ends = self.owned.iter_mut().map(|owned| owned.conflation().next_end());
        ends.min().unwrap_or(Moment::NEVER)
    }

    /// Publishes messages that were held back long enough. Returns how many others they have replaced.
    pub fn publish_due(&mut self, now: Moment) -> u64 {
        let mut replaced = 0;
        for hub in 0..self.owned.len() {
            for _ in 0..CONFLATED_PER_TURN_MAX {
                let owned = &mut self.owned[hub];
                let due = owned.conflation().due(now).filter(|_| !self.local.is_full());
                let Some(channel) = due else { break };
                let workers = owned.workers(&channel).to_vec();
                if workers.iter().any(|worker| self.is_behind(*worker)) {
                    let at = now.after(BEHIND_SPAN);
                    self.owned[hub].conflation().put_off(&channel, at);
                    continue;
                }
                let ended = self.owned[hub].conflation().end(&channel, now);
                let Some(publication) = ended else { continue };
                let publication = self.owned[hub].link(publication);
                self.spread(&publication, &workers, None);
            }
            replaced += self.owned[hub].conflation().take_replaced();
        }
        replaced
    }

    /// How many messages were not kept as the base of a patch since the last call.
    pub fn take_unkept_bases(&mut self) -> u64 {
        self.owned.iter_mut().map(|owned| owned.bases().take_unkept()).sum()
    }

    /// How many messages are kept as the base of a patch.
    #[must_use]
    pub fn bases(&mut self) -> usize {
        self.owned.iter_mut().map(|owned| owned.bases().len()).sum()
    }

    /// How many joins and leaves were not reported to the subscribers of this worker since the last call.
    pub fn take_unreported(&mut self) -> u64 {
        self.local.take_unreported()
    }

    /// The number of subscriptions of this worker.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.local.len()
    }

    /// The figures of one hub.
    #[must_use]
    pub fn figures(&self, hub: u16) -> HubFigures {
        let owned = self.owned.get(usize::from(hub));
        HubFigures {
            channels: owned.map_or(0, Owned::len) as u64,
            history_bytes: owned.map_or(0, Owned::bytes) as u64,
            subscriptions: self.local.subscriptions(hub).into(),
            users: self.roster.users(hub).into(),
        }
    }

    /// The number of channels that this worker owns.
    #[must_use]
    pub fn channels_owned(&self) -> usize {
        self.owned.iter().map(Owned::len).sum()
    }

    /// Drops publications and keys that are too old, in a part of the channels.
    pub fn sweep(&mut self, settings: &Hubs, now: Moment) {
        for (hub, owned) in self.owned.iter_mut().enumerate() {
            if let Some(settings) = settings.get(hub as u16) {
                owned.sweep(settings, now);
            }
        }
    }

    fn settle(&mut self, ticket: Ticket, reply: Reply) -> Option<Event<K>> {
        match reply {
            Reply::Subscribed(subscribed) => {
                let key = self.local.confirm(ticket, subscribed.position)?;
                Some(Event::Subscribed(key, ticket.place(), subscribed))
            }
            reply => {
                let (key, deserted) = self.local.refuse(ticket)?;
                if let Some(deserted) = deserted {
                    self.note_deserted(deserted);
                }
                self.send_reports();
                let error = if let Reply::Failed(error) = reply { error } else { Error::Internal };
                Some(Event::Refused(key, ticket.place(), error))
            }
        }
    }

    /// Executes a call of worker `from`, which hands the reply to `to`.
    fn execute(
        &mut self,
        settings: &Hubs,
        (from, to): (u16, ReplyTo<K>),
        call: Call,
        at: Instance,
    ) -> Reply {
        let result = match call {
            Call::Subscribe { hub, channel, since, visitor } => {
                let joins = &mut self.joins;
                let owned = self.owned.get_mut(usize::from(hub)).zip(settings.get(hub));
                owned.ok_or(Error::Internal).and_then(|(owned, known)| {
                    let found = owned.subscribe(known, &channel, from, since, at);
                    let (position, recovered) = found?;
                    let told = visitor.and_then(|who| owned.join(known, (hub, &channel), who));
                    joins.extend(told.map(|(told, workers)| (told, workers.to_vec())));
                    Ok(Reply::Subscribed(Subscribed { position, recovered }))
                })
            }
            Call::Presence { hub, channel } => self.with(settings, hub, |owned, hub| {
                owned.presence(hub, &channel).map(Reply::Presence)
            }),
            Call::PresenceStats { hub, channel } => self.with(settings, hub, |owned, hub| {
                let (clients, users) = owned.presence_stats(hub, &channel)?;
                Ok(Reply::PresenceStats { clients, users })
            }),
            Call::Publish(order) => {
                let waiter = order.waits.then_some(Waiter { worker: from, to });
                self.publish(settings, &order, waiter, at)
            }
            Call::History { hub, channel, excerpt } => self.with(settings, hub, |owned, hub| {
                let (publications, position) = owned.history(hub, &channel, &excerpt, at)?;
                Ok(Reply::History { publications, position })
            }),
            Call::HistoryRemove { hub, channel } => self.with(settings, hub, |owned, hub| {
                owned.remove_history(hub, &channel).map(|()| Reply::Done)
            }),
            Call::Channels { hub, pattern } => {
                let all = self.local.channels(hub);
                let matching = all.filter(|(name, _)| matches_pattern(&pattern, name));
                Ok(Reply::Channels(matching.map(|(name, n)| (Arc::clone(name), n)).collect()))
            }
            Call::Instruct(instruction) => self.roster.accept(instruction).map(|()| Reply::Done),
            Call::Info { hub } => {
                let subscriptions = self.local.subscriptions(hub);
                let (clients, users) = (self.roster.clients(hub), self.roster.users(hub));
                self.with(settings, hub, |owned, _| {
                    let channels = owned.in_use() as u32;
                    Ok(Reply::Info(Counts { clients, users, subscriptions, channels }))
                })
            }
        };
        result.unwrap_or_else(Reply::Failed)
    }

    fn with(
        &mut self,
        settings: &Hubs,
        hub: u16,
        work: impl FnOnce(&mut Owned, &crate::settings::HubSettings) -> Result<Reply, Error>,
    ) -> Result<Reply, Error> {
        let owned = self.owned.get_mut(usize::from(hub));
        let (owned, settings) = owned.zip(settings.get(hub)).ok_or(Error::Internal)?;
        work(owned, settings)
    }

    fn publish(
        &mut self,
        settings: &Hubs,
        order: &Order,
        waiter: Option<Waiter<K>>,
        at: Instance,
    ) -> Result<Reply, Error> {
        let is_full = self.is_delivering_much(order);
        let owned = self.owned.get_mut(usize::from(order.hub));
        let (owned, hub) = owned.zip(settings.get(order.hub)).ok_or(Error::Internal)?;
        let outbox_max = if order.is_by_client() { OUTBOX_MAX / 2 } else { OUTBOX_MAX };
        let is_behind = |worker: &u16| {
            let outbox = self.outbox.get(usize::from(*worker));
            outbox.is_some_and(|outbox| outbox.len() >= outbox_max)
        };
        if is_full || owned.workers(&order.channel).iter().any(is_behind) {
            return Err(Error::TooManyRequests);
        }
        match owned.publish(hub, order, at)? {
            Outcome::Held => Ok(Reply::Published { position: None, reports: 0 }),
            Outcome::Repeated(position) => Ok(Reply::Published { position, reports: 0 }),
            Outcome::Published(publication, workers) => {
                let workers = workers.to_vec();
                self.spread(&publication, &workers, waiter);
                let reports = waiter.map_or(0, |_| workers.len() as u16);
                Ok(Reply::Published { position: publication.position, reports })
            }
        }
    }

    /// Whether so much is being delivered that a publication is not accepted.
    fn is_delivering_much(&self, order: &Order) -> bool {
        let is_share_used = || {
            self.local.walks() >= WALKS_MAX / 2
                || self.local.walks_of(order.hub, &order.channel) >= CLIENT_WALKS_MAX
        };
        self.local.is_full() || order.is_by_client() && is_share_used()
    }

    /// Sends the messages about clients that have joined, after the reply to the subscription.
    fn tell_joins(&mut self) {
        for (publication, workers) in core::mem::take(&mut self.joins) {
            self.spread(&publication, &workers, None);
        }
    }

    /// A client that the channel's presence list contains has left.
    fn part(&mut self, settings: &Hubs, hub: u16, channel: &Arc<str>, client: &str) {
        let owned = self.owned.get_mut(usize::from(hub)).zip(settings.get(hub));
        let told = owned.and_then(|(owned, known)| owned.part(known, (hub, channel), client));
        if let Some((publication, workers)) = told.map(|(told, workers)| (told, workers.to_vec())) {
            self.spread(&publication, &workers, None);
        }
    }

    /// Hands a publication to the workers with subscribers. A worker that is behind gets joins and leaves later.
    fn spread(
        &mut self,
        publication: &Arc<Publication>,
        workers: &[u16],
        waiter: Option<Waiter<K>>,
    ) {
        for &worker in workers {
            if worker == self.own {
                self.local.accept(Arc::clone(publication), waiter);
            } else if publication.is_visit() && self.postpones_visits(worker) {
                self.postpone(worker, publication);
            } else if let Some(outbox) = self.outbox.get_mut(usize::from(worker)) {
                let publication = Arc::clone(publication);
                outbox.push_back(Mail::Publication { publication, waiter });
            }
        }
        self.send_reports();
    }

    fn note_deserted(&mut self, EmptyChannel { hub, channel }: EmptyChannel) {
        let owner = self.owner(&channel);
        if owner == self.own {
            self.note_left(hub, channel, owner);
        } else {
            let mail = Mail::Leave { from: self.own, hub, channel };
            self.outbox[usize::from(owner)].push_back(mail);
        }
    }

    /// A worker has no subscriber of an owned channel any more.
    fn note_left(&mut self, hub: u16, channel: Arc<str>, worker: u16) {
        let Some(owned) = self.owned.get_mut(usize::from(hub)) else { return };
        let is_empty = owned.leave(&channel, worker);
        let told = self.tells_emptied.get(usize::from(hub)).map_or(&[][..], Vec::as_slice);
        if !is_empty || !told.iter().any(|name| **name == *namespace_of(&channel)) {
            return;
        }
        match self.emptied.len() < EMPTIED_MAX {
            true => self.emptied.push_back((hub, channel)),
            false => self.lost_emptied += 1,
        }
    }

    /// The next channel whose last subscriber has left, and its hub.
    pub fn take_emptied(&mut self) -> Option<(u16, Arc<str>)> {
        self.emptied.pop_front()
    }

    /// Whether `take_emptied` has another one.
    #[must_use]
    pub fn has_emptied(&self) -> bool {
        !self.emptied.is_empty()
    }

    /// How many channels without subscribers were not kept since the last call.
    pub fn take_lost_emptied(&mut self) -> u64 {
        core::mem::take(&mut self.lost_emptied)
    }

    /// Whether the worker is behind, or joins and leaves wait that precede further ones.
    fn postpones_visits(&self, worker: u16) -> bool {
        let postponed = self.postponed.get(usize::from(worker));
        self.is_behind(worker) || postponed.is_some_and(|all| !all.is_empty())
    }

    fn is_behind(&self, worker: u16) -> bool {
        self.has_waiting(worker, OUTBOX_MAX)
    }

    fn postpone(&mut self, worker: u16, report: &Arc<Publication>) {
        let Some(postponed) = self.postponed.get_mut(usize::from(worker)) else { return };
        let room = POSTPONED_MAX.saturating_sub(postponed.len());
        if postponed.push(Arc::clone(report), room) == Postponement::Refused {
            self.local.note_unreported();
        }
    }

    fn has_waiting(&self, worker: u16, most: usize) -> bool {
        self.outbox.get(usize::from(worker)).is_some_and(|outbox| outbox.len() >= most)
    }
}

/// The namespaces whose channels are reported to the backend of a hub when they have no subscribers.
fn tells_emptied(settings: &Hubs, hub: u16) -> Vec<Box<str>> {
    let Some(HubSettings { push, .. }) = settings.get(hub) else { return Vec::new() };
    let has_path = |backend: &PushBackend| backend.path(BackendEvent::ChannelEmpty).is_some();
    if !push.backend.as_ref().is_some_and(has_path) {
        return Vec::new();
    }
    let all = core::iter::once(&push.channels).chain(&push.namespaces);
    let told = all.filter(|namespace| namespace.sends(BackendEvent::ChannelEmpty));
    told.map(|namespace| namespace.name.as_str().into()).collect()
}

/// How much mail may wait for a worker before a call is refused.
fn outbox_share(call: &Call) -> usize {
    let is_by_client = matches!(call, Call::Publish(order) if order.is_by_client());
    if is_by_client { OUTBOX_MAX / 2 } else { OUTBOX_MAX }
}
