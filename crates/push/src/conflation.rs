//! Conflation: of the messages that are published in a channel within an interval, subscribers get the newest.
//! In: messages, time. Out: whether a message is delivered now; at the end of an interval, the message that was held back.
//! Limits: one message of each channel with subscribers is held back, and nothing of a channel that was quiet for an interval. In
//! namespaces with filters or `exclude-sender`, subscribers get different messages, so up to `OLDER_MAX` and `OLDER_BYTES_MAX` of older
//! ones are held back as well; beyond that, the interval ends early.
//! Invariant: messages are delivered in order, with at least the interval between two of them, unless it ends early. The newest message
//! that a subscriber accepts is never lost: of the messages that no filter can tell apart, the newest is held back, and the newest one
//! of another sender.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_base::{Moment, Span};

use crate::publication::Publication;

/// How many older messages of a channel are held back in addition to the newest.
pub const OLDER_MAX: usize = 32;
/// The bytes that they may take.
pub const OLDER_BYTES_MAX: usize = 256 << 10;

/// The messages of a hub's channels that are held back.
#[derive(Debug, Default)]
pub struct Conflation {
    /// The channels whose last message was delivered less than an interval ago.
    paces: BTreeMap<Arc<str>, Pace>,
    /// The ends of their intervals.
    ends: BTreeSet<(Moment, Arc<str>)>,
    /// How many messages were replaced since the last call of `take_replaced`.
    replaced: u64,
}

/// The interval of a channel.
#[derive(Debug)]
struct Pace {
    /// Its length.
    span: Span,
    /// Its end.
    end: Moment,
    /// The messages of the interval, in order, without those that newer ones replace for every subscriber.
    held: Vec<Arc<Publication>>,
}

impl Conflation {
    /// Takes a message of a channel with this interval. Returns the message to deliver now; `None` if it is held back.
    pub fn offer(
        &mut self,
        publication: &Arc<Publication>,
        span: Span,
        now: Moment,
    ) -> Option<Arc<Publication>> {
        let name = &publication.channel;
        let Some(pace) = self.paces.get_mut(name) else {
            self.begin(Arc::clone(name), span, now);
            return Some(Arc::clone(publication));
        };
        self.replaced += pace.hold(publication);
        if pace.fits() {
            return None;
        }
        self.ends.remove(&(pace.end, Arc::clone(name)));
        let held = core::mem::take(&mut pace.held);
        self.begin(Arc::clone(name), span, now);
        joined(held)
    }

    /// When the next interval ends.
    #[must_use]
    pub fn next_end(&self) -> Moment {
        self.ends.first().map_or(Moment::NEVER, |(end, _)| *end)
    }

    /// The channel whose interval is the oldest one whose end has been reached.
    #[must_use]
    pub fn due(&self, now: Moment) -> Option<Arc<str>> {
        let (end, name) = self.ends.first()?;
        (*end <= now).then(|| Arc::clone(name))
    }

    /// Ends the interval of a channel. Returns the message to deliver, with which the next interval begins.
    pub fn end(&mut self, name: &str, now: Moment) -> Option<Arc<Publication>> {
        let (name, Pace { span, end, held }) = self.paces.remove_entry(name)?;
        self.ends.remove(&(end, Arc::clone(&name)));
        let publication = joined(held)?;
        self.begin(name, span, now);
        Some(publication)
    }

    /// The messages of a channel cannot be delivered before `at`: continues its interval until then.
    pub fn put_off(&mut self, name: &Arc<str>, at: Moment) {
        let Some(pace) = self.paces.get_mut(name) else { return };
        self.ends.remove(&(pace.end, Arc::clone(name)));
        pace.end = at;
        self.ends.insert((at, Arc::clone(name)));
    }

    /// The channel has no subscribers any more.
    pub fn forget(&mut self, name: &str) {
        if let Some((name, pace)) = self.paces.remove_entry(name) {
            self.ends.remove(&(pace.end, name));
        }
    }

    /// How many messages were replaced by newer ones since the last call.
    pub fn take_replaced(&mut self) -> u64 {
        core::mem::take(&mut self.replaced)
    }

    /// The channels in an interval.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paces.len()
    }

    /// Whether no channel is in an interval.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paces.is_empty()
    }

    fn begin(&mut self, name: Arc<str>, span: Span, now: Moment) {
        let end = now.after(span);
        self.ends.insert((end, Arc::clone(&name)));
        self.paces.insert(name, Pace { span, end, held: Vec::new() });
    }
}

impl Pace {
    /// Holds a message back. Returns how many older ones it replaces.
    fn hold(&mut self, publication: &Arc<Publication>) -> u64 {
        let sender = publication.sender();
        // The sender does not get the message, but the newest one of another sender.
        let mut has_exception = !sender.is_empty();
        let before = self.held.len();
        for at in (0..before).rev() {
            let older = &self.held[at];
            if older.tags_of_audience() != publication.tags_of_audience() {
                continue;
            }
            if has_exception && older.sender() != sender {
                has_exception = false;
            } else {
                self.held.remove(at);
            }
        }
        let replaced = before - self.held.len();
        self.held.push(Arc::clone(publication));
        replaced as u64
    }

    /// Whether the messages are within the limits.
    fn fits(&self) -> bool {
        let Some((_, older)) = self.held.split_last() else { return true };
        older.len() <= OLDER_MAX
            && older.iter().map(|one| one.cost_bytes()).sum::<usize>() <= OLDER_BYTES_MAX
    }
}

/// The newest of the messages, with the older ones for subscribers that do not get it.
fn joined(mut held: Vec<Arc<Publication>>) -> Option<Arc<Publication>> {
    let newest = held.pop()?;
    if held.is_empty() {
        return Some(newest);
    }
    held.reverse();
    Some(Arc::new(newest.with_older(held)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audience::Audience;
    use proptest::prelude::*;

    fn message(channel: &str, data: &str) -> Arc<Publication> {
        Arc::new(Publication::new(0, channel.into(), data, None))
    }

    #[test]
    fn newest_message_of_each_interval_is_delivered() {
        let (span, at) = (Span::from_millis(100), |ms| Moment::ZERO.after(Span::from_millis(ms)));
        let mut conflation = Conflation::default();
        let mut delivered = Vec::new();
        for (now, data) in [(0, "1"), (10, "2"), (90, "3"), (150, "4"), (151, "5"), (900, "6")] {
            while let Some(name) = conflation.due(at(now)) {
                delivered.extend(conflation.end(&name, at(now)).map(|held| held.data.to_string()));
            }
            let offered = conflation.offer(&message("a", data), span, at(now));
            delivered.extend(offered.map(|one| one.data.to_string()));
        }
        assert_eq!(delivered, ["1", "3", "5"]);
        assert_eq!(conflation.take_replaced(), 2);
        let last = conflation.end("a", at(1000)).expect("the newest message is never lost");
        assert_eq!(&*last.data, "6");
        assert_eq!(conflation.next_end(), at(1100));
        assert!(conflation.end("a", at(1100)).is_none());
        assert!(conflation.is_empty() && conflation.next_end() == Moment::NEVER);
    }

    #[test]
    fn channels_have_their_own_intervals_and_release_their_state() {
        let span = Span::from_millis(100);
        let mut conflation = Conflation::default();
        for channel in ["a", "b"] {
            assert!(conflation.offer(&message(channel, "1"), span, Moment::ZERO).is_some());
            assert!(conflation.offer(&message(channel, "2"), span, Moment::ZERO).is_none());
        }
        conflation.forget("a");
        conflation.forget("none");
        assert_eq!(conflation.len(), 1);
        let end = conflation.next_end();
        let name = conflation.due(end).expect("the interval of b has ended");
        // Its message cannot be delivered yet, and a newer one arrives meanwhile.
        conflation.put_off(&name, end.after(Span::from_millis(10)));
        assert!(conflation.due(end).is_none());
        assert!(conflation.offer(&message("b", "3"), span, end).is_none());
        let held = conflation.end("b", end.after(Span::from_millis(10)));
        assert_eq!(held.map(|held| held.data.to_string()).as_deref(), Some("3"));
        conflation.forget("b");
        assert!(conflation.is_empty() && conflation.next_end() == Moment::NEVER);
    }

    fn tagged(number: usize, tag: &str, sender: &str, padding: usize) -> Arc<Publication> {
        let data = format!("\"{number}{}\"", "x".repeat(padding));
        let audience = Audience {
            tags: Box::new([("k".into(), tag.into())]),
            sender: sender.into(),
            older: Vec::new(),
        };
        let mut one = Publication::new(0, "a".into(), &data, None);
        one.audience = Some(Box::new(audience));
        Arc::new(one)
    }

    #[test]
    fn memory_of_a_channel_with_many_different_tags_is_bounded() {
        for (padding, most) in [(0, OLDER_MAX), (OLDER_BYTES_MAX / 4, 3)] {
            let mut conflation = Conflation::default();
            let span = Span::from_secs(1);
            let mut together = Vec::new();
            for number in 0..100 {
                let one = tagged(number, &number.to_string(), "", padding);
                let now = conflation.offer(&one, span, Moment::ZERO);
                together.extend(now.map(|one| 1 + one.older().len()));
                assert!(conflation.paces.values().all(|pace| pace.held.len() <= most + 1));
            }
            let last = conflation.end("a", Moment::ZERO).map_or(0, |one| 1 + one.older().len());
            assert_eq!(together.iter().sum::<usize>() + last, 100, "{together:?}");
            assert!(together.iter().skip(1).all(|count| *count == most + 2), "{together:?}");
            assert_eq!((conflation.take_replaced(), conflation.ends.len()), (0, 1));
        }
    }

    proptest! {
        #[test]
        fn newest_message_that_a_subscriber_accepts_arrives(
            messages in proptest::collection::vec((0..4_usize, 0..3_usize, 0..40_u64), 1..80),
            tags in 0..16_u8, own in 0..3_usize,
        ) {
            let (senders, span) = (["", "ann", "bob"], Span::from_millis(100));
            // A filter of a client: some of the tags.
            let accepts = |tag: usize, sender: usize| {
                tags & 1 << tag != 0 && (sender == 0 || sender != own)
            };
            let admits = |one: &Publication| {
                let tag = one.tags_of_audience()[0].1.parse().unwrap_or_default();
                accepts(tag, senders.iter().position(|name| *name == one.sender()).unwrap_or(0))
            };
            let mut conflation = Conflation::default();
            let (mut now, mut got, mut newest) = (Moment::ZERO, Vec::new(), None);
            let mut take = |one: Option<Arc<Publication>>, now: Moment| {
                let found = one.as_ref().and_then(|one| one.chosen(admits)).cloned();
                got.extend(found.map(|one| (now, one.data.trim_matches('"').parse::<usize>().ok())));
            };
            for (number, &(tag, sender, pause)) in messages.iter().enumerate() {
                let one = tagged(number, &tag.to_string(), senders[sender], 0);
                take(conflation.offer(&one, span, now), now);
                newest = if accepts(tag, sender) { Some(number) } else { newest };
                now = now.after(Span::from_millis(pause));
                while let Some(name) = conflation.due(now) {
                    take(conflation.end(&name, now), now);
                }
            }
            now = now.after(span);
            take(conflation.end("a", now), now);
            prop_assert_eq!(got.last().and_then(|(_, number)| *number), newest);
            prop_assert!(got.is_sorted_by(|one, next| one.1 < next.1), "in order: {:?}", got);
            prop_assert!(
                got.is_sorted_by(|one, next| next.0.since(one.0) >= span || next.0 == now),
                "one in each interval: {:?}", got
            );
        }
    }
}
