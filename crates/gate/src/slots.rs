//! The slots of a template: which address each has, and what SRV records state about the server at an address.
//! In: the addresses that slots have, those of an answer; the marks of records. Out: the next addresses; weights and backups.
//! Never: moves an address that remains; removes one, except for a server of a lower priority, which is used first.
//! Limits: as many addresses as there are slots.
//! Invariant: no address has two slots.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use crate::agent::WEIGHT_MAX;

/// What an SRV record states about its server (RFC 2782).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mark {
    /// Servers of the lowest priority are used first.
    pub priority: u16,
    /// The share of the requests among servers of the same priority.
    pub weight: u16,
}

/// By address: what its record states. Empty if the name has no SRV records.
pub type Marks = BTreeMap<SocketAddr, Mark>;

/// The part of a server in its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Its weight.
    pub weight: u16,
    /// Whether it gets requests only while no server of the lowest priority may get them.
    pub is_backup: bool,
}

/// The next address of each slot. An address that `found` still contains keeps its slot; new ones get slots that are free, those first
/// that were free before, so that a slot rarely stands for another server at once. Servers of the lowest priority come first: without a
/// free slot they get those of servers of the highest. Otherwise the order is that of the addresses, so that processes with the same
/// answer agree. Those that find no slot are left out.
#[must_use]
pub fn assign(
    slots: &[Option<SocketAddr>],
    found: &[SocketAddr],
    marks: &Marks,
) -> Vec<Option<SocketAddr>> {
    let ranked =
        |address: SocketAddr| (marks.get(&address).map_or(0, |mark| mark.priority), address);
    let mut rest: BTreeSet<(u16, SocketAddr)> = found.iter().copied().map(ranked).collect();
    let kept = slots.iter().map(|slot| slot.filter(|address| rest.remove(&ranked(*address))));
    let mut next: Vec<Option<SocketAddr>> = kept.collect();
    for was_free in [true, false] {
        for (slot, earlier) in next.iter_mut().zip(slots) {
            if slot.is_none() && earlier.is_none() == was_free {
                *slot = rest.pop_first().map(|(_, address)| address);
            }
        }
    }
    for (priority, address) in rest {
        let last = next.iter_mut().max_by_key(|slot| slot.map(ranked));
        if let Some(last) = last.filter(|last| last.map(ranked).is_some_and(|of| of.0 > priority)) {
            *last = Some(address);
        }
    }
    next
}

/// The parts of the servers at these addresses. If a weight is 0, the others become so large that its server has a very small chance
/// (RFC 2782).
#[must_use]
pub fn shares(marks: &Marks, addresses: &[SocketAddr]) -> BTreeMap<SocketAddr, Share> {
    let marked = || addresses.iter().filter_map(|address| Some((*address, *marks.get(address)?)));
    let least = marked().map(|(_, mark)| mark.priority).min().unwrap_or_default();
    let share = |(address, mark): (SocketAddr, Mark)| {
        let is_backup = mark.priority > least;
        let equals = || marked().map(|(_, of)| of).filter(|of| (of.priority > least) == is_backup);
        let most = equals().map(|of| u64::from(of.weight)).max().unwrap_or_default();
        let is_scaled =
            most > u64::from(WEIGHT_MAX) || most > 0 && equals().any(|of| of.weight == 0);
        let weight = match is_scaled {
            true => u64::from(mark.weight) * u64::from(WEIGHT_MAX) / most,
            false => u64::from(mark.weight),
        };
        let weight = u16::try_from(weight).unwrap_or(WEIGHT_MAX).max(1);
        (address, Share { weight, is_backup })
    };
    marked().map(share).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 80).into()
    }

    fn assigned(slots: &[u8], found: &[u8]) -> Vec<u8> {
        let slots: Vec<_> = slots.iter().map(|last| (*last > 0).then(|| address(*last))).collect();
        let found: Vec<_> = found.iter().map(|last| address(*last)).collect();
        let last_of = |slot: Option<SocketAddr>| {
            (1..=255).find(|last| slot == Some(address(*last))).unwrap_or_default()
        };
        assign(&slots, &found, &Marks::new()).into_iter().map(last_of).collect()
    }

    #[test]
    fn address_keeps_its_slot_while_answers_contain_it() {
        assert_eq!(assigned(&[0, 0, 0], &[3, 1]), [1, 3, 0]);
        assert_eq!(assigned(&[1, 3, 0], &[2, 3]), [0, 3, 2], "the slot that was free");
        assert_eq!(assigned(&[1, 3], &[2, 3]), [2, 3]);
        assert_eq!(assigned(&[2, 3, 0], &[3]), [0, 3, 0]);
        assert_eq!(assigned(&[0, 3, 0], &[9, 3, 4, 9, 5]), [4, 3, 5], "one is left out");
        assert!(assigned(&[], &[1]).is_empty());
    }

    #[test]
    fn servers_of_the_lowest_priority_get_slots_first() {
        let marks = |all: &[(u8, u16)]| -> Marks {
            let mark = |(last, priority): &(u8, u16)| {
                (address(*last), Mark { priority: *priority, weight: 1 })
            };
            all.iter().map(mark).collect()
        };
        let assigned = |slots: &[Option<SocketAddr>], all: &[(u8, u16)]| {
            let found: Vec<SocketAddr> = all.iter().map(|(last, _)| address(*last)).collect();
            let next = assign(slots, &found, &marks(all));
            assert_eq!(assign(&next, &found, &marks(all)), next, "the same answer changes nothing");
            next
        };
        let [one, two, three, four] = [1, 2, 3, 4].map(|last| Some(address(last)));
        let all = [(1, 20), (2, 20), (3, 10), (4, 10)];
        assert_eq!(assigned(&[None, None], &all), [three, four]);
        assert_eq!(assigned(&[one, three], &all), [four, three], "a backup leaves");
        assert_eq!(assigned(&[one, two, None], &all), [one, four, three]);
        assert_eq!(assigned(&[three, four], &[(1, 10), (3, 10), (4, 10)]), [three, four]);
        assert!(assigned(&[], &all).is_empty());
    }

    proptest! {
        #[test]
        fn no_address_has_two_slots_or_moves(
            answers in proptest::collection::vec(proptest::collection::vec(1_u8..24, 0..20), 1..8),
            count in 0_usize..12,
        ) {
            let mut slots = vec![None; count];
            for answer in answers {
                let found: Vec<SocketAddr> = answer.into_iter().map(address).collect();
                let next = assign(&slots, &found, &Marks::new());
                prop_assert_eq!(next.len(), count);
                let held: Vec<SocketAddr> = next.iter().flatten().copied().collect();
                let distinct: BTreeSet<SocketAddr> = held.iter().copied().collect();
                prop_assert_eq!(distinct.len(), held.len(), "an address has two slots");
                let wanted: BTreeSet<SocketAddr> = found.iter().copied().collect();
                prop_assert!(distinct.is_subset(&wanted));
                prop_assert_eq!(held.len(), wanted.len().min(count), "a slot is free although an address has none");
                for (before, after) in slots.iter().zip(&next) {
                    if before.is_some_and(|before| wanted.contains(&before)) {
                        prop_assert_eq!(before, after, "an address has moved");
                    }
                }
                let again = assign(&next, &found, &Marks::new());
                prop_assert_eq!(&again, &next, "the same answer changes nothing");
                slots = next;
            }
        }
    }

    fn shared(marks: &[(u16, u16)]) -> Vec<(u16, bool)> {
        let marks: Marks = (1..)
            .zip(marks)
            .map(|(last, (priority, weight))| {
                (address(last), Mark { priority: *priority, weight: *weight })
            })
            .collect();
        let addresses: Vec<SocketAddr> = marks.keys().copied().collect();
        shares(&marks, &addresses).values().map(|of| (of.weight, of.is_backup)).collect()
    }

    #[test]
    fn lowest_priority_gets_the_requests_by_weight() {
        assert_eq!(shared(&[(10, 5), (10, 1), (20, 7)]), [(5, false), (1, false), (7, true)]);
        assert_eq!(shared(&[(1, 0), (1, 0)]), [(1, false), (1, false)]);
        assert_eq!(shared(&[(1, 0), (1, 4), (1, 2)]), [(1, false), (1000, false), (500, false)]);
        assert_eq!(shared(&[(1, 65535), (1, 6554)]), [(1000, false), (100, false)]);
        // Only servers in use count.
        let marks = Marks::from([
            (address(1), Mark { priority: 1, weight: 1 }),
            (address(2), Mark { priority: 2, weight: 9 }),
        ]);
        let alone = shares(&marks, &[address(2), address(3)]);
        assert_eq!(alone, BTreeMap::from([(address(2), Share { weight: 9, is_backup: false })]));
    }
}
