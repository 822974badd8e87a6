//! The subscribers of one worker: which of them get a publication, in which order, a slice at a time.
//! In: subscriptions, the owner's replies, publications. Out: the subscribers of each publication.
//! Limits: `WALKS_MAX` messages are being delivered; beyond that the hub accepts no more. In a channel with `VISITS_MAX`
//! publications to deliver, further joins and leaves, which clients cause without a limit, are postponed: up to
//! `POSTPONED_MAX` clients, and a quarter of that for each channel; the joins and leaves of further clients are counted and not
//! reported.
//! Invariant: each subscriber that was confirmed before a publication was accepted, and has not left, gets it once;
//! publications of a channel are delivered one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::chunked_list::ChunkedList;
use crate::fan_out::{Delivery, Report, Slice, Waiter};
use crate::position::Position;
use crate::postponed::{Postponed, Postponement};
use crate::publication::Publication;

/// Maximum number of publications that are being delivered on a worker.
pub const WALKS_MAX: usize = 1024;
/// The publications of a channel that are being delivered, beyond which joins and leaves are postponed. One client can
/// join and leave thousands of times a second, and each time concerns all subscribers of the channel.
pub const VISITS_MAX: usize = 16;
/// Maximum number of clients whose joins and leaves are postponed, each with about 400 bytes.
pub const POSTPONED_MAX: usize = 16_384;
/// How many of them one channel may have: clients that join it all the time do not take the places of other channels.
const POSTPONED_OF_CHANNEL_MAX: usize = POSTPONED_MAX / 4;
/// How many places of a channel are examined for each subscriber of a slice, because places may be free.
const PLACES_PER_SUBSCRIBER: usize = 16;

/// The subscribers of one worker. `K` names a subscriber.
#[derive(Debug)]
pub struct Local<K> {
    /// By number of the channel. The places of channels without subscribers are `None`.
    channels: Vec<Option<Channel<K>>>,
    /// The numbers that are free.
    free: Vec<u32>,
    /// The numbers of the channels of each hub.
    names: Vec<BTreeMap<Arc<str>, u32>>,
    /// Channels with publications to deliver. Each is in it once.
    busy: VecDeque<u32>,
    /// The publications of all channels that are being delivered.
    walks: usize,
    /// The subscribers of all channels, by hub.
    subscriptions: Vec<u32>,
    /// The nonce of the newest ticket; below 2^31.
    nonce: u32,
    /// The postponed joins and leaves of all channels.
    postponed: usize,
    /// How many joins and leaves were not reported, since the last call of `take_unreported`.
    unreported: u64,
    /// Reports that are complete, since the last call of `take_report`.
    reports: VecDeque<Report<K>>,
}

/// A channel with subscribers on this worker.
#[derive(Debug)]
struct Channel<K> {
    /// Index of the hub.
    hub: u16,
    /// The name of the channel.
    name: Arc<str>,
    /// After the newest publication that was accepted. Meaningless until the owner has replied.
    position: Option<Position>,
    /// The owner has replied: publications are delivered.
    is_confirmed: bool,
    /// The places of subscribers; `None` if free.
    members: ChunkedList<Option<Member<K>>>,
    /// The places that are free.
    free: Vec<u32>,
    /// How many members have left since the places were last trimmed.
    left: u32,
    /// How many publications were accepted, modulo 2^32.
    accepted: u32,
    /// Publications that not all members have got, in order.
    walks: VecDeque<Walk<K>>,
    /// Joins and leaves that follow them; `None` if there are none.
    postponed: Option<Box<Postponed>>,
}

/// After how many publications the states of a channel's members are renewed.
const RENEW_EVERY: u32 = 1 << 28;

/// A subscriber of a channel.
#[derive(Clone, Copy, Debug)]
struct Member<K> {
    /// Names the subscriber.
    key: K,
    /// Whether it waits for the owner, or which publications it gets.
    state: MemberState,
}

// With a key like the server's, which has 8 bytes and leaves a value for `None`.
const _: () = assert!(size_of::<Option<Member<(u32, core::num::NonZeroU32)>>>() <= 12);

/// Whether a member waits (lowest bit), and the number of the reply or publication: packed, because a channel may have millions of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MemberState(u32);

impl MemberState {
    /// Waits for the owner's reply to the ticket with this nonce (modulo 2^31).
    const fn waiting(nonce: u32) -> Self {
        Self(nonce << 1 | 1)
    }

    /// Gets the publications after this one (`Channel::accepted`, modulo 2^31).
    const fn since(accepted: u32) -> Self {
        Self(accepted << 1)
    }

    /// Whether the member gets publication `number`. Numbers that are compared are less than 2^30 apart, because the
    /// states of all members are renewed with every publication whose number is a multiple of `RENEW_EVERY`.
    const fn gets(self, number: u32) -> bool {
        self.0 & 1 == 0 && ((number << 1).wrapping_sub(self.0) as i32) > 0
    }
}

/// A publication on its way through the members.
#[derive(Debug)]
struct Walk<K> {
    /// The publication.
    publication: Arc<Publication>,
    /// The report for which the publisher waits; `None` if it does not wait, or while a slice has the report.
    report: Option<Box<Report<K>>>,
    /// `Channel::accepted` after it was accepted.
    number: u32,
    /// The next member.
    cursor: usize,
}

/// The place of a subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriptionId {
    /// Number of the channel.
    channel: u32,
    /// Index of the member in the channel.
    member: u32,
}

/// A subscription that waits for the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The place of the subscriber.
    place: SubscriptionId,
    /// Distinguishes the subscription from earlier ones at the same place.
    nonce: u32,
}

impl Ticket {
    /// The place of the subscriber in its channel.
    #[must_use]
    pub const fn place(self) -> SubscriptionId {
        self.place
    }
}

/// The reply that a subscriber that has joined waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joined {
    /// Nothing: it gets the publications after this position.
    Confirmed(Option<Position>),
    /// The owner's reply to this ticket.
    Waiting(Ticket),
}

/// A channel whose last subscriber has left.
#[derive(Debug)]
pub struct EmptyChannel {
    /// Index of the hub.
    pub hub: u16,
    /// The channel.
    pub channel: Arc<str>,
}

impl<K: Copy + Eq> Local<K> {
    /// No subscribers, in this number of hubs.
    #[must_use]
    pub fn new(hubs: usize) -> Self {
        Self {
            channels: Vec::new(),
            free: Vec::new(),
            names: vec![BTreeMap::new(); hubs],
            busy: VecDeque::new(),
            walks: 0,
            subscriptions: vec![0; hubs],
            nonce: 0,
            postponed: 0,
            unreported: 0,
            reports: VecDeque::new(),
        }
    }

    /// Counts a join or leave that was not reported to another worker.
    pub fn note_unreported(&mut self) {
        self.unreported += 1;
    }

    /// How many joins and leaves were not reported since the last call.
    pub fn take_unreported(&mut self) -> u64 {
        core::mem::take(&mut self.unreported)
    }

    /// The next report that is complete.
    pub fn take_report(&mut self) -> Option<Report<K>> {
        self.reports.pop_front()
    }

    /// Whether no more publications can be accepted for now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.walks >= WALKS_MAX
    }

    /// The publications of all channels that are being delivered.
    #[must_use]
    pub fn walks(&self) -> usize {
        self.walks
    }

    /// The publications of a channel that are being delivered.
    #[must_use]
    pub fn walks_of(&self, hub: u16, name: &str) -> usize {
        self.find(hub, name).map_or(0, |channel| channel.walks.len())
    }

    /// Whether the owner has been notified that this worker has subscribers of a channel.
    #[must_use]
    pub fn is_confirmed(&self, hub: u16, name: &str) -> bool {
        self.find(hub, name).is_some_and(|channel| channel.is_confirmed)
    }

    fn find(&self, hub: u16, name: &str) -> Option<&Channel<K>> {
        let number = *self.names.get(usize::from(hub))?.get(name)?;
        self.channels.get(number as usize)?.as_ref()
    }

    /// Whether publications are being delivered.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// The number of subscriptions of a hub.
    #[must_use]
    pub fn subscriptions(&self, hub: u16) -> u32 {
        self.subscriptions.get(usize::from(hub)).copied().unwrap_or_default()
    }

    /// The number of subscriptions of all hubs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.subscriptions.iter().map(|count| *count as usize).sum()
    }

    /// Whether there is no subscription.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The channels of a hub that have subscribers, and how many.
    pub fn channels(&self, hub: u16) -> impl Iterator<Item = (&Arc<str>, u32)> {
        let numbers = self.names.get(usize::from(hub)).into_iter().flatten();
        numbers.filter_map(|(name, number)| {
            let channel = self.channels.get(*number as usize)?.as_ref()?;
            Some((name, channel.count() as u32))
        })
    }

    /// Adds a subscriber. `asks`: the owner must be called even if this worker already gets the channel's publications.
    /// Returns `None` if the hub does not exist.
    pub fn join(
        &mut self,
        hub: u16,
        name: &str,
        key: K,
        asks: bool,
    ) -> Option<(SubscriptionId, Joined)> {
        let names = self.names.get_mut(usize::from(hub))?;
        let number = match names.get(name) {
            Some(number) => *number,
            None => {
                let channel = Channel::new(hub, name.into());
                let name = Arc::clone(&channel.name);
                let number = match self.free.pop() {
                    Some(number) => {
                        self.channels[number as usize] = Some(channel);
                        number
                    }
                    None => {
                        self.channels.push(Some(channel));
                        (self.channels.len() - 1) as u32
                    }
                };
                names.insert(name, number);
                number
            }
        };
        self.nonce = (self.nonce + 1) & (u32::MAX >> 1);
        let nonce = self.nonce;
        let channel = self.channels.get_mut(number as usize)?.as_mut()?;
        let is_confirmed = channel.is_confirmed && !asks;
        let state = match is_confirmed {
            true => MemberState::since(channel.accepted),
            false => MemberState::waiting(nonce),
        };
        let place = SubscriptionId { channel: number, member: channel.add(Member { key, state }) };
        self.subscriptions[usize::from(hub)] += 1;
        let joined = match is_confirmed {
            true => Joined::Confirmed(channel.position),
            false => Joined::Waiting(Ticket { place, nonce }),
        };
        Some((place, joined))
    }

    /// The hub and the name of the channel at `place`.
    #[must_use]
    pub fn hub_and_name(&self, place: SubscriptionId) -> Option<(u16, Arc<str>)> {
        let channel = self.channels.get(place.channel as usize)?.as_ref()?;
        Some((channel.hub, Arc::clone(&channel.name)))
    }

    /// The name of the channel at `place`.
    #[must_use]
    pub fn name(&self, place: SubscriptionId) -> Option<&Arc<str>> {
        Some(&self.channels.get(place.channel as usize)?.as_ref()?.name)
    }

    /// The owner has replied: the subscriber gets the publications after `position`. Returns the subscriber, unless it
    /// has left.
    pub fn confirm(&mut self, ticket: Ticket, position: Option<Position>) -> Option<K> {
        let Ticket { place, nonce } = ticket;
        let channel = self.channels.get_mut(place.channel as usize)?.as_mut()?;
        let accepted = channel.accepted;
        let member = channel.members.get_mut(place.member as usize)?.as_mut()?;
        if member.state != MemberState::waiting(nonce) {
            return None;
        }
        member.state = MemberState::since(accepted);
        let key = member.key;
        channel.is_confirmed = true;
        channel.position = position;
        Some(key)
    }

    /// Removes a subscriber whose subscription failed. Returns it, and the channel if it was the last subscriber.
    pub fn refuse(&mut self, ticket: Ticket) -> Option<(K, Option<EmptyChannel>)> {
        let channel = self.channels.get(ticket.place.channel as usize)?.as_ref()?;
        let member = channel.members.get(ticket.place.member as usize)?.as_ref()?;
        let key = member.key;
        (member.state == MemberState::waiting(ticket.nonce))
            .then(|| (key, self.leave(ticket.place, key)))
    }

    /// Removes a subscriber. Returns the channel if it was the last one.
    pub fn leave(&mut self, place: SubscriptionId, key: K) -> Option<EmptyChannel> {
        let slot = self.channels.get_mut(place.channel as usize)?;
        let channel = slot.as_mut()?;
        let member = channel.members.get_mut(place.member as usize)?;
        if member.as_ref().is_none_or(|member| member.key != key) {
            return None;
        }
        *member = None;
        channel.free.push(place.member);
        let hub = channel.hub;
        self.subscriptions[usize::from(hub)] -= 1;
        if channel.count() > 0 {
            channel.trim();
            return None;
        }
        let channel = slot.take()?;
        self.free.push(place.channel);
        self.names[usize::from(hub)].remove(&channel.name);
        self.postponed -= channel.postponed.as_ref().map_or(0, |postponed| postponed.len());
        if !channel.walks.is_empty() {
            self.walks -= channel.walks.len();
            self.reports.extend(channel.walks.iter().filter_map(|walk| walk.report.as_deref()));
            self.busy.retain(|number| *number != place.channel);
        }
        Some(EmptyChannel { hub, channel: channel.name })
    }

    /// Accepts a publication of the owner for delivery. Without confirmed subscribers it is dropped: the owner's reply
    /// to those that wait includes it.
    pub fn accept(&mut self, publication: Arc<Publication>, waiter: Option<Waiter<K>>) {
        let report = waiter.map(|waiter| Report { waiter, delivery: Delivery::default() });
        let names = self.names.get(usize::from(publication.hub));
        let number = names.and_then(|names| names.get(&publication.channel)).copied();
        let found = number.and_then(|at| Some((at, self.channels.get_mut(at as usize)?.as_mut()?)));
        let Some((number, channel)) = found.filter(|(_, channel)| channel.is_confirmed) else {
            return self.reports.extend(report);
        };
        if publication.is_visit()
            && (channel.walks.len() >= VISITS_MAX || channel.postponed.is_some())
        {
            let postponed = channel.postponed.get_or_insert_default();
            let of_channel = POSTPONED_OF_CHANNEL_MAX.saturating_sub(postponed.len());
            let room = POSTPONED_MAX.saturating_sub(self.postponed).min(of_channel);
            match postponed.push(publication, room) {
                Postponement::Added => self.postponed += 1,
                Postponement::Replaced => {}
                Postponement::Refused => self.unreported += 1,
            }
            return;
        }
        if publication.position.is_some() {
            channel.position = publication.position;
        }
        if channel.walks.is_empty() {
            self.busy.push_back(number);
        }
        channel.begin(publication, report.map(Box::new));
        self.walks += 1;
    }

    /// Continues the delivery whose turn it is: appends subscribers that get the publication to `keys`, as many as
    /// `budget_bytes` contains what `cost_bytes` returns for it, and at least one.
    pub fn advance(
        &mut self,
        budget_bytes: usize,
        cost_bytes: impl FnOnce(&Publication) -> usize,
        keys: &mut Vec<K>,
    ) -> Option<Slice<K>> {
        let number = self.busy.pop_front()?;
        let channel = self.channels.get_mut(number as usize)?.as_mut()?;
        let walk = channel.walks.front_mut()?;
        let most = (budget_bytes / cost_bytes(&walk.publication).max(1)).max(1);
        let (end, begin) = (keys.len() + most, walk.cursor);
        let rest = channel.members.iter_from(begin).take(most * PLACES_PER_SUBSCRIBER);
        for member in rest {
            walk.cursor += 1;
            if let Some(Member { key, state }) = member
                && state.gets(walk.number)
            {
                keys.push(*key);
                if keys.len() == end {
                    break;
                }
            }
        }
        if walk.number.is_multiple_of(RENEW_EVERY) {
            for at in begin..walk.cursor {
                if let Some(Some(member)) = channel.members.get_mut(at)
                    && member.state.gets(walk.number)
                {
                    member.state = MemberState::since(walk.number);
                }
            }
        }
        let publication = Arc::clone(&walk.publication);
        let report = walk.report.take();
        let is_last = walk.cursor >= channel.members.len();
        if is_last {
            channel.walks.pop_front();
            self.walks -= 1;
            if channel.begin_postponed() {
                self.walks += 1;
                self.postponed -= 1;
            }
        }
        if !channel.walks.is_empty() {
            self.busy.push_back(number);
        }
        Some(Slice { publication, channel: number, report, is_first: begin == 0, is_last })
    }

    /// The subscribers of a slice have got their publication: adds their outcomes to the report.
    pub fn end_slice(&mut self, slice: Slice<K>, delivery: Delivery) {
        let Some(mut report) = slice.report else { return };
        report.delivery.add(delivery);
        let channel = self.channels.get_mut(slice.channel as usize).and_then(Option::as_mut);
        let walk = channel.and_then(|channel| channel.walks.front_mut());
        let is_same = |walk: &&mut Walk<K>| Arc::ptr_eq(&walk.publication, &slice.publication);
        match walk.filter(|_| !slice.is_last).filter(is_same) {
            Some(walk) => walk.report = Some(report),
            // The walk has ended, perhaps because the last subscriber has left meanwhile.
            None => self.reports.push_back(*report),
        }
    }
}

impl<K: Copy> Channel<K> {
    fn new(hub: u16, name: Arc<str>) -> Self {
        Self {
            hub,
            name,
            position: None,
            is_confirmed: false,
            members: ChunkedList::new(),
            free: Vec::new(),
            left: 0,
            accepted: 0,
            walks: VecDeque::new(),
            postponed: None,
        }
    }

    /// Begins to deliver a publication.
    fn begin(&mut self, publication: Arc<Publication>, report: Option<Box<Report<K>>>) {
        self.accepted = self.accepted.wrapping_add(1);
        self.walks.push_back(Walk { publication, report, number: self.accepted, cursor: 0 });
    }

    /// Begins to deliver a postponed join or leave if there is one and its turn has come.
    fn begin_postponed(&mut self) -> bool {
        let Some(postponed) = &mut self.postponed else { return false };
        if self.walks.len() >= VISITS_MAX {
            return false;
        }
        let next = postponed.take();
        if postponed.is_empty() {
            self.postponed = None;
        }
        let is_begun = next.is_some();
        if let Some(report) = next {
            self.begin(report, None);
        }
        is_begun
    }

    fn count(&self) -> usize {
        self.members.len() - self.free.len()
    }

    fn add(&mut self, member: Member<K>) -> u32 {
        match self.free.pop() {
            Some(at) => {
                if let Some(place) = self.members.get_mut(at as usize) {
                    *place = Some(member);
                }
                at
            }
            None => {
                self.members.push(Some(member));
                (self.members.len() - 1) as u32
            }
        }
    }

    /// Drops the free places at the end, each time that half as many subscribers have left as there are places, so that
    /// a channel whose subscribers have left is walked quickly.
    fn trim(&mut self) {
        self.left += 1;
        if (self.left as usize) < self.members.len() / 2 {
            return;
        }
        self.left = 0;
        while self.members.last().is_some_and(Option::is_none) {
            self.members.pop();
        }
        let length = self.members.len() as u32;
        self.free.retain(|at| *at < length);
        self.free.shrink_to(self.free.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publication::Content;

    #[test]
    fn subscriber_gets_every_publication_however_long_it_stays() {
        let mut local = Local::<u32>::new(1);
        let (place, joined) = local.join(0, "a", 7, true).expect("the hub exists");
        let Joined::Waiting(ticket) = joined else { panic!("the owner is not asked") };
        assert_eq!(local.confirm(ticket, None), Some(7));
        let publication = Arc::new(Publication::new(0, "a".into(), "1", None));
        // Twice around: the states are renewed at each multiple.
        for number in (1..=32_u32).map(|times| times.wrapping_mul(RENEW_EVERY)) {
            for last in [number.wrapping_sub(1), number, number.wrapping_add(1)] {
                let channel = local.channels[place.channel as usize].as_mut().expect("a channel");
                channel.accepted = last;
                local.accept(Arc::clone(&publication), None);
                let mut keys = Vec::new();
                assert!(local.advance(1 << 20, |_| 1, &mut keys).is_some());
                assert_eq!(keys, [7], "publication {}", last.wrapping_add(1));
            }
        }
    }

    #[test]
    fn channel_takes_no_more_than_its_part_of_the_postponed_reports() {
        let mut local = Local::<u32>::new(1);
        let join = |local: &mut Local<u32>, name: &str| {
            let (_, joined) = local.join(0, name, 7, true).expect("the hub exists");
            let Joined::Waiting(ticket) = joined else { panic!("the owner is not asked") };
            local.confirm(ticket, None);
        };
        let report = |name: &str, client: usize| {
            let (client, info) = (client.to_string().into(), "{}");
            Arc::new(Publication::visit(0, name.into(), Content::Join, client, info))
        };
        join(&mut local, "busy");
        join(&mut local, "calm");
        for client in 0..VISITS_MAX + POSTPONED_MAX {
            local.accept(report("busy", client), None);
        }
        assert_eq!(local.postponed, POSTPONED_MAX / 4);
        assert_eq!(local.unreported, (POSTPONED_MAX - POSTPONED_MAX / 4) as u64);
        for client in 0..VISITS_MAX + 100 {
            local.accept(report("calm", client), None);
        }
        assert_eq!(local.postponed, POSTPONED_MAX / 4 + 100);
    }
}
