//! The newest messages of channels with `cache`, in copies whose encoded forms all new subscribers share.
//! In: the data for a new subscriber. Out: the same, with the shared copy of its message.
//! Never: keeps a form of a message that is no longer the newest one of its channel.
//! Limits: the copies and their forms take up to `1 / NEWEST_PART` of the hub's `history-memory-max`, as measured when a subscriber
//! arrives. A message that does not fit is encoded for each subscriber.
//! Invariant: `bytes` is the sum of the costs of the copies.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::publication::Publication;
use crate::stream::Recovered;

/// The share of `history-memory-max` that the copies may take in addition to the histories.
pub const NEWEST_PART: usize = 4;
/// How many forms of a message are usual: raw, event, and one of them compressed.
const FORMS_EXPECTED: usize = 3;
/// The memory of a copy in addition to the message, the name of its channel, and the data in these forms.
const COPY_COST_BYTES: usize = 2048;

/// The copies of a hub.
#[derive(Debug)]
pub struct Newest {
    /// By channel.
    copies: BTreeMap<Arc<str>, SharedCopy>,
    /// Their total cost.
    bytes: usize,
    /// The maximum that they may cost.
    bytes_max: usize,
}

#[derive(Debug)]
struct SharedCopy {
    /// The message.
    publication: Arc<Publication>,
    /// Its cost at the last check.
    cost_bytes: usize,
    /// A subscriber came since the last sweep.
    is_used: bool,
}

impl Newest {
    /// No copies; the histories may keep this many bytes.
    #[must_use]
    pub const fn beside(history_bytes_max: usize) -> Self {
        Self { copies: BTreeMap::new(), bytes: 0, bytes_max: history_bytes_max / NEWEST_PART }
    }

    /// A subscriber of the channel `name` gets `found`, whose only message, if it has one, is the newest one of the channel.
    pub fn share(&mut self, name: &Arc<str>, found: Recovered) -> Recovered {
        let [newest] = &found.publications[..] else { return found };
        let known = self.forget(name).filter(|copy| copy.position == newest.position);
        let publication = known.unwrap_or_else(|| Arc::new(newest.unencoded()));
        // Subscribers may have needed other forms since the last look.
        let cost_bytes = cost_bytes(name, &publication);
        if self.bytes + cost_bytes > self.bytes_max {
            return found;
        }
        self.bytes += cost_bytes;
        let copy = SharedCopy { publication: Arc::clone(&publication), cost_bytes, is_used: true };
        self.copies.insert(Arc::clone(name), copy);
        Recovered { publications: vec![publication], keeps_forms: true, ..found }
    }

    /// The channel has another newest message, or none. Returns the copy.
    pub fn forget(&mut self, name: &str) -> Option<Arc<Publication>> {
        let copy = self.copies.remove(name)?;
        self.bytes -= copy.cost_bytes;
        Some(copy.publication)
    }

    /// Drops the copies that no subscriber needed since the last sweep.
    pub fn sweep(&mut self) {
        self.copies.retain(|_, copy| core::mem::take(&mut copy.is_used));
        self.bytes = self.copies.values().map(|copy| copy.cost_bytes).sum();
    }

    /// The number of copies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Whether there is no copy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }
}

/// The memory that a copy takes, or is expected to take with its forms.
fn cost_bytes(name: &str, publication: &Publication) -> usize {
    let expected = publication.cost_bytes() + FORMS_EXPECTED * publication.data.len();
    COPY_COST_BYTES + name.len() + expected.max(publication.held_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::{Epoch, Position};
    use crate::publication::Form;

    fn found(offset: u64, data: &str) -> Recovered {
        let position = Position { epoch: Epoch::from_random(1), offset };
        let publication = Publication::new(0, "a".into(), data, Some(position));
        Recovered::whole(vec![Arc::new(publication)])
    }

    fn shared(newest: &mut Newest, name: &str, found: &Recovered) -> Option<Arc<Publication>> {
        let found = newest.share(&name.into(), found.clone());
        found.keeps_forms.then(|| Arc::clone(&found.publications[0]))
    }

    #[test]
    fn subscribers_share_the_forms_of_the_newest_message() {
        let mut newest = Newest::beside(1 << 20);
        let first = found(1, "[1]");
        let one = shared(&mut newest, "a", &first).expect("it fits");
        let other = shared(&mut newest, "a", &first).expect("it fits");
        assert!(core::ptr::eq(one.frame(Form::Raw), other.frame(Form::Raw)), "encoded once");
        assert!(!Arc::ptr_eq(&one, &first.publications[0]), "the history keeps no form");
        let next = shared(&mut newest, "a", &found(2, "[2]")).expect("it fits");
        assert_eq!((&*next.data, newest.len()), ("[2]", 1));
        let nothing = newest.share(&"a".into(), Recovered::whole(Vec::new()));
        assert!(nothing.publications.is_empty() && newest.len() == 1);
    }

    #[test]
    fn copies_go_when_their_message_does_and_when_no_subscriber_comes() {
        let mut newest = Newest::beside(1 << 20);
        for name in ["a", "b"] {
            assert!(shared(&mut newest, name, &found(1, "[1]")).is_some());
        }
        newest.sweep();
        assert!(newest.forget("a").is_some() && newest.forget("a").is_none());
        assert!(shared(&mut newest, "b", &found(1, "[1]")).is_some());
        newest.sweep();
        assert_eq!(newest.len(), 1, "a subscriber came since the last sweep");
        newest.sweep();
        assert!(newest.is_empty() && newest.bytes == 0);
    }

    #[test]
    fn memory_of_copies_is_bounded() {
        let bytes_max = 10 * COPY_COST_BYTES;
        let mut newest = Newest::beside(NEWEST_PART * bytes_max);
        let mut count = 0;
        for number in 0..100 {
            let found = found(number, &format!("\"{}\"", "x".repeat(number as usize)));
            count += usize::from(shared(&mut newest, &format!("c{number}"), &found).is_some());
            assert!(newest.bytes <= bytes_max);
        }
        assert!((5..10).contains(&count) && newest.len() == count, "{count}");
        // The forms of a copy become larger than expected.
        let long = found(1, &format!("\"{}\"", "x".repeat(COPY_COST_BYTES)));
        let mut newest = Newest::beside(NEWEST_PART * (7 * COPY_COST_BYTES));
        let copy = shared(&mut newest, "a", &long).expect("it fits");
        for form in [Form::Raw, Form::Event, Form::Json, Form::Protobuf] {
            assert!(copy.frame(form).len() > COPY_COST_BYTES);
        }
        assert!(shared(&mut newest, "a", &long).is_some_and(|again| Arc::ptr_eq(&again, &copy)));
        assert!(newest.bytes >= 6 * COPY_COST_BYTES);
        newest.bytes_max = newest.bytes - 1;
        assert!(shared(&mut newest, "a", &long).is_none() && newest.bytes == 0);
    }
}
