//! Sets of IP addresses, and the conditions of routes on the client's address.
//! In: ranges of addresses, in any order. Out: whether an address is in one of them.
//! Limits: a look-up takes a number of steps that grows with the logarithm of the number of ranges.
//! Invariant: the stored ranges are ascending and do not touch each other.

use core::net::IpAddr;
use std::sync::Arc;

use super::Network;

/// A set of addresses, prepared for looking up. Clones share the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkSet {
    /// The first and the last address of each IPv4 range.
    v4: Arc<[(u32, u32)]>,
    /// The first and the last address of each IPv6 range.
    v6: Arc<[(u128, u128)]>,
}

impl NetworkSet {
    /// Prepares the set of all addresses in `networks`.
    #[must_use]
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for Network { address, prefix_bits } in networks {
            let bits = u32::from(prefix_bits);
            match address {
                IpAddr::V4(first) => {
                    let first = u32::from(first);
                    v4.push((first, first | u32::MAX.checked_shr(bits).unwrap_or(0)));
                }
                IpAddr::V6(first) => {
                    let first = u128::from(first);
                    v6.push((first, first | u128::MAX.checked_shr(bits).unwrap_or(0)));
                }
            }
        }
        Self { v4: merge(v4).into(), v6: merge(v6).into() }
    }

    /// Whether `address` is in the set. IPv4-mapped IPv6 addresses count as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => find(&self.v4, u32::from(address)),
            IpAddr::V6(address) => find(&self.v6, u128::from(address)),
        }
    }

    /// Whether the set has no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Whether each range of `other` is within one range of this set.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        covers_all(&self.v4, &other.v4) && covers_all(&self.v6, &other.v6)
    }
}

fn covers_all<T: Ord + Copy>(outer: &[(T, T)], inner: &[(T, T)]) -> bool {
    inner.iter().all(|(first, last)| {
        let after = outer.partition_point(|(begin, _)| begin <= first);
        let before = after.checked_sub(1).and_then(|at| outer.get(at));
        before.is_some_and(|(_, end)| last <= end)
    })
}

/// Sorts the ranges, and joins those that overlap.
fn merge<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            Some(_) | None => merged.push((first, last)),
        }
    }
    merged
}

fn find<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= address);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, last)| address <= *last)
}

/// `[set.NAME]`: addresses that routes refer to by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressSet {
    /// Name in routes; unique.
    pub name: String,
    /// The path of the file with the addresses; `None`: they are in the configuration itself.
    pub file: Option<String>,
    /// The addresses. Empty until the file is read.
    pub networks: NetworkSet,
}

/// Addresses of clients, as a route lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Addresses {
    /// The addresses in the list itself.
    pub networks: NetworkSet,
    /// Indexes of the sets in the list.
    pub sets: Vec<usize>,
}

impl Addresses {
    /// Whether the list has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.sets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::parse_network;

    fn set(networks: &[&str]) -> NetworkSet {
        NetworkSet::new(networks.iter().filter_map(|text| parse_network(text).ok()))
    }

    #[test]
    fn set_contains_exactly_the_addresses_of_its_networks() {
        let networks = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "192.0.2.4/31",
            "0.0.0.1",
            "255.255.255.255",
            "2001:db8::/32",
            "::1",
        ];
        let prepared = set(&networks);
        let plain: Vec<Network> =
            networks.iter().filter_map(|text| parse_network(text).ok()).collect();
        for text in [
            "9.255.255.255",
            "10.0.0.0",
            "10.1.2.3",
            "10.255.255.255",
            "11.0.0.0",
            "192.0.2.3",
            "192.0.2.4",
            "192.0.2.5",
            "192.0.2.6",
            "0.0.0.0",
            "0.0.0.1",
            "255.255.255.255",
            "255.255.255.254",
            "::1",
            "::2",
            "::",
            "2001:db8::",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001:db9::",
            "::ffff:10.1.1.1",
            "::ffff:9.1.1.1",
        ] {
            let address: IpAddr = text.parse().expect("an address");
            let expected = plain.iter().any(|network| network.contains(address));
            assert_eq!(prepared.contains(address), expected, "{text}");
        }
        assert!(set(&["0.0.0.0/0"]).contains(IpAddr::from([255, 255, 255, 255])));
        assert!(!set(&["0.0.0.0/0"]).contains("::1".parse().expect("an address")));
        assert!(set(&["::/0"]).contains("::1".parse().expect("an address")));
        assert!(set(&[]).is_empty() && !set(&[]).contains(IpAddr::from([0, 0, 0, 0])));
    }
}
