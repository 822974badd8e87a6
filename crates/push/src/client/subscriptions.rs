//! The subscriptions of a client, by channel.
//! In: channels, subscriptions. Out: the same, in the order of the channels' names.
//! Limits: `FEW_MAX` subscriptions in a list.
//! Invariant: the list is sorted and has no spare memory. There may be a million clients, most of which have one subscription, and
//! even an almost empty tree takes the memory of eleven.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::features::Features;
use crate::local::SubscriptionId;

/// Maximum number of subscriptions in a list. A client that had more keeps a tree.
const FEW_MAX: usize = 32;

/// The subscriptions of a client.
#[derive(Debug)]
pub(super) enum Subscriptions {
    Few(Vec<(Arc<str>, Subscription)>),
    #[allow(clippy::box_collection, reason = "without the box, each list would be larger, too")]
    Many(Box<BTreeMap<Arc<str>, Subscription>>),
}

/// A subscription of a client.
#[derive(Debug)]
pub(super) struct Subscription {
    /// Its place in the hub.
    pub(super) place: SubscriptionId,
    /// The command that waits for the owner's reply; `None` if it has come.
    pub(super) waiting: Option<Box<Waiting>>,
    /// The namespace has presence, or reports joins.
    pub(super) is_visible: bool,
    /// When its token expires, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
    /// The backend decides then whether the subscription continues.
    pub(super) is_renewed: bool,
    /// The application has subscribed the client, which therefore cannot subscribe again by itself.
    pub(super) is_of_application: bool,
    /// The client gets reports about clients that join and leave.
    pub(super) hears_visits: bool,
    /// The client is told its position, so that it can recover.
    pub(super) recovers: bool,
    /// Features that most subscriptions do not have.
    pub(super) features: Option<Box<Features>>,
}

impl Subscription {
    /// The memory of its filter.
    pub(super) fn filter_bytes(&self) -> u32 {
        self.features.as_ref().map_or(0, |features| features.filter_bytes() as u32)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// The requester that waits for the owner's reply.
    pub(super) asker: Asker,
    /// The offset that the client stated.
    pub(super) since: Option<u64>,
    /// The client prefers an error if messages are lost.
    pub(super) rejects_unrecovered: bool,
    /// Data of the application for the client.
    pub(super) data: Box<str>,
    /// The data about the client that others see only in this channel: JSON; empty: no data.
    pub(super) chan_info: Box<str>,
    /// The backend renews the subscription.
    pub(super) is_renewed: bool,
}

/// The requester of a subscription.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    /// The command of the client with this id.
    Client(u32),
    /// The application.
    Application,
    /// The token or the backend, for a client that connects.
    Connect,
}

const _: () = assert!(size_of::<(Arc<str>, Subscription)>() <= 64);
const _: () = assert!(size_of::<Subscriptions>() <= 24);

impl Default for Subscriptions {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many(tree) => tree.len(),
        }
    }

    pub(super) fn contains(&self, channel: &str) -> bool {
        self.get(channel).is_some()
    }

    pub(super) fn get(&self, channel: &str) -> Option<&Subscription> {
        match self {
            Self::Few(list) => {
                let at = place(list, channel).ok()?;
                list.get(at).map(|(_, subscription)| subscription)
            }
            Self::Many(tree) => tree.get(channel),
        }
    }

    pub(super) fn get_mut(&mut self, channel: &str) -> Option<&mut Subscription> {
        match self {
            Self::Few(list) => {
                let at = place(list, channel).ok()?;
                list.get_mut(at).map(|(_, subscription)| subscription)
            }
            Self::Many(tree) => tree.get_mut(channel),
        }
    }

    /// Adds a subscription, which replaces one to the same channel.
    pub(super) fn insert(&mut self, channel: Arc<str>, subscription: Subscription) {
        match self {
            Self::Few(list) => match place(list, &channel) {
                Ok(at) => list[at].1 = subscription,
                Err(at) if list.len() < FEW_MAX => {
                    list.reserve_exact(1);
                    list.insert(at, (channel, subscription));
                }
                Err(_) => {
                    let mut tree: BTreeMap<_, _> = core::mem::take(list).into_iter().collect();
                    tree.insert(channel, subscription);
                    *self = Self::Many(Box::new(tree));
                }
            },
            Self::Many(tree) => {
                tree.insert(channel, subscription);
            }
        }
    }

    pub(super) fn remove(&mut self, channel: &str) -> Option<Subscription> {
        match self {
            Self::Few(list) => {
                let (_, subscription) = list.remove(place(list, channel).ok()?);
                list.shrink_to_fit();
                Some(subscription)
            }
            Self::Many(tree) => tree.remove(channel),
        }
    }

    /// The subscriptions in the order of their channels.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Subscription)> {
        let (list, tree) = match self {
            Self::Few(list) => (list.as_slice(), None),
            Self::Many(tree) => (&[][..], Some(tree.iter())),
        };
        let few = list.iter().map(|(channel, subscription)| (channel, subscription));
        few.chain(tree.into_iter().flatten())
    }

    /// The subscriptions in the order of their channels, beginning after `last`, and ending with it.
    pub(super) fn iter_after<'s>(
        &'s self,
        last: Option<&'s str>,
    ) -> impl Iterator<Item = (&'s Arc<str>, &'s Subscription)> {
        let is_later = move |channel: &str| last.is_none_or(|last| channel > last);
        let later = self.iter().filter(move |(channel, _)| is_later(channel));
        later.chain(self.iter().filter(move |(channel, _)| !is_later(channel)))
    }

    /// The channel at this place in the hub, which may have forgotten it. The time is linear in the channels.
    pub(super) fn channel_at(&self, place: SubscriptionId) -> Option<&Arc<str>> {
        self.iter().find(|(_, known)| known.place == place).map(|(channel, _)| channel)
    }
}

/// The index of a channel in a list, or where it would be.
fn place(list: &[(Arc<str>, Subscription)], channel: &str) -> Result<usize, usize> {
    list.binary_search_by(|(known, _)| (**known).cmp(channel))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::Prng;

    fn subscription(place: SubscriptionId, expires_at: u64) -> Subscription {
        Subscription {
            place,
            waiting: None,
            is_visible: false,
            expires_at: Some(expires_at),
            is_renewed: false,
            is_of_application: false,
            hears_visits: false,
            recovers: true,
            features: None,
        }
    }

    #[test]
    fn subscriptions_behave_like_a_map_however_many_there_are() {
        let mut local = crate::local::Local::new(1);
        let (at, _) = local.join(0, "a", 1_u32, false).expect("the hub exists");
        for most in [1, 3, FEW_MAX, 3 * FEW_MAX] {
            let mut prng = Prng::new(most as u64);
            let mut subscriptions = Subscriptions::default();
            let mut expected: BTreeMap<Arc<str>, u64> = BTreeMap::new();
            for step in 0..2000 {
                let name: Arc<str> = format!("c{}", prng.below(2 * most as u64)).into();
                if prng.below(2) == 0 && expected.len() < most {
                    subscriptions.insert(Arc::clone(&name), subscription(at, step));
                    expected.insert(name, step);
                } else {
                    let removed = subscriptions.remove(&name).and_then(|one| one.expires_at);
                    assert_eq!(removed, expected.remove(&name));
                }
                let found = subscriptions.iter().map(|(name, one)| (&**name, one.expires_at));
                let known = expected.iter().map(|(name, at)| (&**name, Some(*at)));
                assert!(found.eq(known), "{subscriptions:?}");
                assert_eq!(subscriptions.len(), expected.len());
                if let Subscriptions::Few(list) = &subscriptions {
                    assert_eq!(list.capacity(), list.len(), "no spare memory");
                }
                let last = expected.keys().nth(expected.len() / 2);
                let mut turn = subscriptions.iter_after(last.map(|name| &**name));
                assert_eq!(turn.by_ref().last().map(|(name, _)| name), last);
                assert!(expected.keys().all(|name| subscriptions.contains(name)));
            }
        }
    }
}
