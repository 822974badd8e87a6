//! The history of one channel: its newest publications, each with an offset.
//! In: publications, time. Out: the publications after a position, or that some of them are lost.
//! Limits: the namespace's `history` and `history-age`; the owner also evicts by memory (`owner.rs`).
//! Invariant: the offsets of `entries` are consecutive, and the last one is `position.offset`, unless the history is
//! empty.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_base::{Moment, Span};

use crate::position::{Position, Since};
use crate::publication::Publication;

/// The history of a channel.
#[derive(Debug)]
pub struct Stream {
    /// After the newest publication.
    position: Position,
    /// The publications that are kept, oldest first.
    entries: VecDeque<Entry>,
    /// When the stream was last used.
    used_at: Moment,
}

#[derive(Debug)]
struct Entry {
    /// The publication.
    publication: Arc<Publication>,
    /// When it was published.
    at: Moment,
}

/// The publications that a client missed since the position that it sends.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Every missed publication, in order; empty if they are lost.
    pub publications: Vec<Arc<Publication>>,
    /// Whether `publications` is everything that was missed.
    pub is_whole: bool,
    /// Whether the publications keep their encoded forms, for other subscribers that get them too (`newest.rs`).
    pub keeps_forms: bool,
}

impl Recovered {
    /// The recovery of a client whose position is no longer known.
    pub const LOST: Self = Self { publications: Vec::new(), is_whole: false, keeps_forms: false };

    /// Everything that a client missed, from a history.
    #[must_use]
    pub const fn whole(publications: Vec<Arc<Publication>>) -> Self {
        Self { publications, is_whole: true, keeps_forms: false }
    }

    /// The publications as they may be encoded: the history keeps no encoded form.
    pub fn encodable(&self) -> impl Iterator<Item = Arc<Publication>> {
        self.publications.iter().map(|publication| match self.keeps_forms {
            true => Arc::clone(publication),
            false => Arc::new(publication.unencoded()),
        })
    }
}

/// A part of the history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excerpt {
    /// Only publications after this place (before it, if `reverse`); `None`: from the beginning.
    pub since: Option<Since>,
    /// Maximum number of publications; `None`: unlimited; 0: only the position is wanted.
    pub limit: Option<u32>,
    /// The newest first.
    pub reverse: bool,
}

/// The bounds of a history.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Maximum number of publications.
    pub length_max: u32,
    /// How long one is kept.
    pub age_max: Span,
}

impl Stream {
    /// An empty history that begins at `position`.
    #[must_use]
    pub fn new(position: Position, now: Moment) -> Self {
        Self { position, entries: VecDeque::new(), used_at: now }
    }

    /// The position after the newest publication.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The number of publications that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no publication is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When the history was last read or extended.
    #[must_use]
    pub fn used_at(&self) -> Moment {
        self.used_at
    }

    /// Notes that the history is used.
    pub fn touch(&mut self, now: Moment) {
        self.used_at = now;
    }

    /// The position of the next publication.
    #[must_use]
    pub fn next_position(&self) -> Position {
        Position { offset: self.position.offset + 1, ..self.position }
    }

    /// Appends the publication with `next_position`. Returns how many bytes more are kept; negative if older
    /// publications were dropped.
    pub fn push(
        &mut self,
        publication: Arc<Publication>,
        now: Moment,
        limits: &StreamLimits,
    ) -> isize {
        debug_assert_eq!(publication.position, Some(self.next_position()));
        self.position.offset += 1;
        self.used_at = now;
        let mut bytes = publication.cost_bytes() as isize;
        self.entries.push_back(Entry { publication, at: now });
        while self.entries.len() > limits.length_max as usize {
            bytes -= self.evict_oldest();
        }
        bytes - self.expire(now, limits.age_max)
    }

    /// Drops publications that are too old. Returns their bytes.
    pub fn expire(&mut self, now: Moment, age_max: Span) -> isize {
        let mut bytes = 0;
        while self.entries.front().is_some_and(|entry| now.since(entry.at) >= age_max) {
            bytes += self.evict_oldest();
        }
        bytes
    }

    /// Drops the publication `offset` if it is the oldest one. Returns its bytes; 0 if it is gone already.
    pub fn evict(&mut self, offset: u64) -> isize {
        match self.entries.front() {
            Some(entry) if entry.publication.offset() == offset => self.evict_oldest(),
            _ => 0,
        }
    }

    /// Whether the publication `offset` is kept.
    #[must_use]
    pub fn keeps(&self, offset: u64) -> bool {
        self.first_offset().is_some_and(|first| (first..=self.position.offset).contains(&offset))
    }

    /// Drops all publications; epoch and offset stay. Returns their bytes.
    pub fn clear(&mut self) -> isize {
        let bytes = self.entries.iter().map(|entry| entry.publication.cost_bytes()).sum::<usize>();
        self.entries.clear();
        bytes as isize
    }

    /// The publications after `since` that a client missed, up to `most`.
    #[must_use]
    pub fn recover(&self, since: Since, most: usize) -> Recovered {
        let lost = Recovered::LOST;
        if since.epoch.is_some_and(|epoch| epoch != self.position.epoch) {
            return lost;
        }
        if since.offset == self.position.offset {
            return Recovered::whole(Vec::new());
        }
        let Some(first) = self.first_offset() else { return lost };
        let missed = self.position.offset.checked_sub(since.offset);
        if first > since.offset.saturating_add(1)
            || missed.is_none_or(|missed| missed > most as u64)
        {
            return lost;
        }
        Recovered::whole(self.after(since.offset).cloned().collect())
    }

    /// The result for a client that requests only the newest publication and was at the position `since`: nothing if the client
    /// has that publication. `None` if the client sent no position, and there is no publication.
    #[must_use]
    pub fn newest(&self, since: Option<Since>) -> Option<Recovered> {
        let is_here = |since: Since| {
            since.epoch.is_none_or(|epoch| epoch == self.position.epoch)
                && since.offset == self.position.offset
        };
        if self.position.offset > 0 && since.is_some_and(is_here) {
            return Some(Recovered::whole(Vec::new()));
        }
        match self.entries.back() {
            Some(newest) => Some(Recovered::whole(vec![Arc::clone(&newest.publication)])),
            // A client that has received the position of the empty channel has missed nothing.
            None => since.map(|since| Recovered {
                is_whole: since.epoch.is_some() && is_here(since),
                ..Recovered::LOST
            }),
        }
    }

    /// A part of the history; `None` if the client's epoch is another one.
    #[must_use]
    pub fn excerpt(&self, excerpt: &Excerpt) -> Option<Vec<Arc<Publication>>> {
        let most = excerpt.limit.map_or(usize::MAX, |limit| limit as usize);
        if let Some(epoch) = excerpt.since.and_then(|since| since.epoch)
            && epoch != self.position.epoch
        {
            return None;
        }
        let all = || self.entries.iter().map(|entry| &entry.publication);
        Some(match (excerpt.since, excerpt.reverse) {
            (None, false) => all().take(most).cloned().collect(),
            (None, true) => all().rev().take(most).cloned().collect(),
            (Some(since), false) => self.after(since.offset).take(most).cloned().collect(),
            (Some(since), true) => self.before(since.offset).take(most).cloned().collect(),
        })
    }

    fn after(&self, offset: u64) -> impl Iterator<Item = &Arc<Publication>> {
        let skipped =
            self.first_offset().map_or(0, |first| offset.saturating_add(1).saturating_sub(first));
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        self.entries.iter().skip(skipped).map(|entry| &entry.publication)
    }

    /// The publications before an offset, the newest first.
    fn before(&self, offset: u64) -> impl Iterator<Item = &Arc<Publication>> {
        let count = self.first_offset().map_or(0, |first| offset.saturating_sub(first));
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(self.entries.len());
        self.entries.range(..count).rev().map(|entry| &entry.publication)
    }

    fn first_offset(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.publication.offset())
    }

    fn evict_oldest(&mut self) -> isize {
        self.entries.pop_front().map_or(0, |entry| entry.publication.cost_bytes() as isize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Epoch;

    const LIMITS: StreamLimits = StreamLimits { length_max: 3, age_max: Span::from_secs(10) };

    fn stream(count: u64) -> Stream {
        let epoch = Epoch::from_random(1);
        let mut stream = Stream::new(Position { epoch, offset: 0 }, Moment::ZERO);
        for number in 1..=count {
            let text = number.to_string();
            let position = Some(stream.next_position());
            let publication = Publication::new(0, "a".into(), &text, position);
            stream.push(Arc::new(publication), Moment::ZERO, &LIMITS);
        }
        stream
    }

    fn offsets(publications: &[Arc<Publication>]) -> Vec<u64> {
        publications.iter().map(|publication| publication.offset()).collect()
    }

    #[test]
    fn missed_publications_come_back_whole_or_are_reported_as_lost() {
        let stream = stream(5);
        let epoch = Some(stream.position().epoch);
        for (epoch, offset, expected) in [
            (epoch, 5, Some(vec![])),
            (epoch, 4, Some(vec![5])),
            (epoch, 2, Some(vec![3, 4, 5])),
            (None, 2, Some(vec![3, 4, 5])),
            (epoch, 1, None),
            (epoch, 0, None),
            (epoch, 6, None),
            (epoch, u64::MAX - 1, None),
            (Some(Epoch::from_random(2)), 5, None),
        ] {
            let recovered = stream.recover(Since { epoch, offset }, 100);
            let found = recovered.is_whole.then(|| offsets(&recovered.publications));
            assert_eq!(found, expected, "{epoch:?} {offset}");
        }
        assert!(!stream.recover(Since { epoch, offset: 2 }, 2).is_whole, "beyond the limit");
    }

    #[test]
    fn newest_publication_comes_unless_the_client_has_it() {
        let stream = stream(5);
        let epoch = Some(stream.position().epoch);
        let other = Some(Epoch::from_random(2));
        for (since, expected) in [
            (None, vec![5]),
            (Some(Since { epoch, offset: 5 }), vec![]),
            (Some(Since { epoch: None, offset: 5 }), vec![]),
            (Some(Since { epoch, offset: 1 }), vec![5]),
            (Some(Since { epoch, offset: 9 }), vec![5]),
            (Some(Since { epoch: other, offset: 5 }), vec![5]),
        ] {
            let found = stream.newest(since).expect("there is one");
            assert_eq!(
                (offsets(&found.publications), found.is_whole),
                (expected, true),
                "{since:?}"
            );
        }
        let empty = self::stream(0);
        assert!(empty.newest(None).is_none());
        let at = Since { epoch: None, offset: 0 };
        assert!(empty.newest(Some(at)).is_some_and(|found| !found.is_whole));
        let told = Since { epoch: Some(empty.position().epoch), offset: 0 };
        assert!(empty.newest(Some(told)).is_some_and(|found| found.is_whole));
    }

    #[test]
    fn excerpts_have_a_direction_and_a_limit() {
        let stream = stream(5);
        let at = |offset| Some(Since { epoch: None, offset });
        for (since, limit, reverse, expected) in [
            (None, None, false, vec![3, 4, 5]),
            (None, Some(2), false, vec![3, 4]),
            (None, Some(2), true, vec![5, 4]),
            (None, Some(0), false, vec![]),
            (at(0), None, false, vec![3, 4, 5]),
            (at(3), None, false, vec![4, 5]),
            (at(4), None, true, vec![3]),
            (at(5), Some(1), true, vec![4]),
            (at(3), None, true, vec![]),
            (at(1), None, true, vec![]),
            (at(6), None, true, vec![5, 4, 3]),
            (at(u64::MAX), Some(2), true, vec![5, 4]),
            (at(9), None, false, vec![]),
        ] {
            let found = stream.excerpt(&Excerpt { since, limit, reverse }).expect("the epoch");
            assert_eq!(offsets(&found), expected, "{since:?} {limit:?} {reverse}");
        }
        let other = Some(Since { epoch: Some(Epoch::from_random(9)), offset: 0 });
        assert!(stream.excerpt(&Excerpt { since: other, ..Excerpt::default() }).is_none());
    }

    #[test]
    fn old_publications_go_and_the_position_stays() {
        let mut stream = stream(5);
        let before = stream.position();
        let bytes: usize = stream.entries.iter().map(|entry| entry.publication.cost_bytes()).sum();
        assert_eq!(stream.expire(Moment::ZERO.after(Span::from_secs(9)), LIMITS.age_max), 0);
        let end = Moment::ZERO.after(Span::from_secs(10));
        assert_eq!(stream.expire(end, LIMITS.age_max), bytes as isize);
        assert_eq!((stream.position(), stream.len()), (before, 0));
        let here = Since { epoch: Some(before.epoch), offset: 5 };
        assert!(stream.recover(here, 9).is_whole);
        assert!(!stream.recover(Since { offset: 4, ..here }, 9).is_whole);
    }
}
