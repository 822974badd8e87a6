//! Which of a channel's subscribers get a message: the facts that filters of tags and `exclude-sender` need.
//! In: a message as published. Out: its tags, ready for comparison; the client that published it; what others get in its place.
//! Never: parses the tags again for each subscriber. Limits: `TAGS_BYTES_MAX` of `filter.rs`; those of `conflation.rs` for `older`.
//! Invariant: the tags are in the order of their names, each once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::model::Namespace;

use crate::filter::{TAGS_BYTES_MAX, Tags};
use crate::mail::Order;
use crate::publication::Publication;
use crate::settings::Error;

/// The approximate overhead of a small allocation.
const ALLOCATION_BYTES: usize = 16;

/// The facts that decide which subscribers get a message.
#[derive(Clone, Debug)]
pub struct Audience {
    /// The tags of the message.
    pub tags: Box<Tags>,
    /// The client that published it and does not get it; empty: there is none.
    pub sender: Box<str>,
    /// Older messages of a conflated channel, the newest first: a subscriber that does not get this message gets the first of them that it
    /// accepts.
    pub older: Vec<Arc<Publication>>,
}

impl Audience {
    /// That of a message; `None` if the namespace has neither filters nor `exclude-sender`.
    ///
    /// # Errors
    /// The message has too many tags for filters.
    pub fn of(namespace: &Namespace, order: &Order) -> Result<Option<Box<Self>>, Error> {
        if !namespace.tag_filters && !namespace.exclude_sender {
            return Ok(None);
        }
        let is_large = namespace.tag_filters && order.tags.len() > TAGS_BYTES_MAX;
        if is_large {
            return Err(Error::LimitExceeded);
        }
        let tags = if namespace.tag_filters { read_tags(&order.tags) } else { Box::default() };
        let sender = if namespace.exclude_sender { &*order.sender } else { "" };
        Ok(Some(Box::new(Self { tags, sender: sender.into(), older: Vec::new() })))
    }

    /// The memory that it takes.
    #[must_use]
    pub fn cost_bytes(&self) -> usize {
        let of_tag = |(name, value): &(Box<str>, Box<str>)| {
            size_of::<(Box<str>, Box<str>)>() + name.len() + value.len() + 2 * ALLOCATION_BYTES
        };
        let older = self.older.iter().map(|older| older.cost_bytes());
        let tags = self.tags.iter().map(of_tag);
        size_of::<Self>() + self.sender.len() + tags.sum::<usize>() + older.sum::<usize>()
    }
}

/// The tags in a JSON object of strings, or in an empty text.
fn read_tags(json: &str) -> Box<Tags> {
    if json.is_empty() {
        return Box::default();
    }
    let tags: BTreeMap<Cow<'_, str>, Cow<'_, str>> = serde_json::from_str(json).unwrap_or_default();
    tags.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_sorted() {
        let tags = read_tags("{\"b\":\"2\",\"a\":\"\\u0031\"}");
        let expected: [(Box<str>, Box<str>); 2] =
            [("a".into(), "1".into()), ("b".into(), "2".into())];
        assert_eq!(*tags, expected);
        assert!(read_tags("").is_empty() && read_tags("[]").is_empty());
    }

    #[test]
    fn memory_of_each_tag_counts() {
        let cost = |json| {
            let tags = read_tags(json);
            Audience { tags, sender: "".into(), older: Vec::new() }.cost_bytes()
        };
        let (one, two) = (cost("{\"a\":\"1\"}"), cost("{\"a\":\"1\",\"b\":\"2\"}"));
        assert_eq!(one - cost(""), two - one);
        assert!(two - one >= size_of::<(Box<str>, Box<str>)>() + 2);
    }
}
