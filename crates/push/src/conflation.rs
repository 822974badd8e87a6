//! Conflation: of the messages that are published in a channel within an interval, subscribers get the newest.
//! In: messages, time. Out: whether a message is delivered now; at the end of an interval, the message that was held back.
//! Limits: one message of each channel with subscribers is held back, and nothing of a channel that was quiet for an interval.
//! Invariant: messages are delivered in order, with at least the interval between two of them; the newest is never lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_base::{Moment, Span};

use crate::publication::Publication;

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
    /// The newest message of the interval; `None` if there was none.
    held: Option<Arc<Publication>>,
}

impl Conflation {
    /// Takes a message of a channel with this interval. Returns true if it is delivered now; otherwise it is held back.
    pub fn offer(&mut self, publication: &Arc<Publication>, span: Span, now: Moment) -> bool {
        let name = &publication.channel;
        if let Some(pace) = self.paces.get_mut(name) {
            let before = pace.held.replace(Arc::clone(publication));
            self.replaced += u64::from(before.is_some());
            return false;
        }
        self.begin(Arc::clone(name), span, now);
        true
    }

    /// When the next interval ends.
    #[must_use]
    pub fn next_end(&self) -> Moment {
        self.ends.first().map_or(Moment::NEVER, |(end, _)| *end)
    }

    /// Ends the oldest interval whose end has been reached. Returns the message to deliver, with which the next interval begins.
    pub fn end_next(&mut self, now: Moment) -> Option<Arc<Publication>> {
        if self.next_end() > now {
            return None;
        }
        let (_, name) = self.ends.pop_first()?;
        let Pace { span, held, .. } = self.paces.remove(&name)?;
        let held = held?;
        self.begin(name, span, now);
        Some(held)
    }

    /// A message cannot be delivered before `at`: holds it back until then, unless there is a newer one.
    pub fn put_off(&mut self, publication: Arc<Publication>, at: Moment) {
        let Some(pace) = self.paces.get_mut(&publication.channel) else { return };
        self.ends.remove(&(pace.end, Arc::clone(&publication.channel)));
        pace.end = at;
        self.ends.insert((at, Arc::clone(&publication.channel)));
        pace.held.get_or_insert(publication);
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
        self.paces.insert(name, Pace { span, end, held: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(channel: &str, data: &str) -> Arc<Publication> {
        Arc::new(Publication::new(0, channel.into(), data, None))
    }

    #[test]
    fn newest_message_of_each_interval_is_delivered() {
        let (span, at) = (Span::from_millis(100), |ms| Moment::ZERO.after(Span::from_millis(ms)));
        let mut conflation = Conflation::default();
        let mut delivered = Vec::new();
        for (now, data) in [(0, "1"), (10, "2"), (90, "3"), (150, "4"), (151, "5"), (900, "6")] {
            while let Some(held) = conflation.end_next(at(now)) {
                delivered.push(held.data.to_string());
            }
            let one = message("a", data);
            if conflation.offer(&one, span, at(now)) {
                delivered.push(data.to_owned());
            }
        }
        assert_eq!(delivered, ["1", "3", "5"]);
        assert_eq!(conflation.take_replaced(), 2);
        let last = conflation.end_next(at(1000)).expect("the newest message is never lost");
        assert_eq!(&*last.data, "6");
        assert_eq!(conflation.next_end(), at(1100));
        assert!(conflation.end_next(at(1100)).is_none());
        assert!(conflation.is_empty() && conflation.next_end() == Moment::NEVER);
    }

    #[test]
    fn channels_have_their_own_intervals_and_release_their_state() {
        let span = Span::from_millis(100);
        let mut conflation = Conflation::default();
        for channel in ["a", "b"] {
            assert!(conflation.offer(&message(channel, "1"), span, Moment::ZERO));
            assert!(!conflation.offer(&message(channel, "2"), span, Moment::ZERO));
        }
        conflation.forget("a");
        conflation.forget("none");
        assert_eq!(conflation.len(), 1);
        let end = conflation.next_end();
        let held = conflation.end_next(end).expect("the message of b");
        assert_eq!((&*held.channel, &*held.data), ("b", "2"));
        // It cannot be delivered yet, and a newer message arrives meanwhile.
        conflation.put_off(held, end.after(Span::from_millis(10)));
        assert!(!conflation.offer(&message("b", "3"), span, end));
        let held = conflation.end_next(end.after(Span::from_millis(10)));
        assert_eq!(held.map(|held| held.data.to_string()).as_deref(), Some("3"));
        conflation.forget("b");
        assert!(conflation.is_empty() && conflation.next_end() == Moment::NEVER);
    }
}
