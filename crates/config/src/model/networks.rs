//! Sets of IP addresses, and the conditions of routes on the client's address.
//! In: ranges of addresses, in any order. Out: whether an address is in one of them.
//! Limits: `RANGES_MAX` ranges of a set that was changed. A lookup takes a number of steps that grows with the logarithm of the
//! number of ranges.
//! Invariant: the stored ranges are ascending, and there is an address between each two of them: equal sets have the same
//! ranges.

use core::net::IpAddr;
use std::sync::Arc;

use super::Network;
use crate::pattern::parse_network;

/// Maximum number of ranges of a set that was changed, and of addresses and ranges in a file.
pub const RANGES_MAX: usize = 1_000_000;

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
        for network in networks {
            match range_of(network) {
                Range::V4(range) => v4.push(range),
                Range::V6(range) => v6.push(range),
            }
        }
        Self { v4: merge(v4).into(), v6: merge(v6).into() }
    }

    /// The set with all addresses of `network`, too; `None` if it has them already.
    ///
    /// # Errors
    /// The set is full.
    pub fn with(&self, network: Network) -> Result<Option<Self>, String> {
        let changed = match range_of(network) {
            Range::V4(range) => with_range(&self.v4, range)
                .map(|v4| Self { v4: v4.into(), v6: Arc::clone(&self.v6) }),
            Range::V6(range) => with_range(&self.v6, range)
                .map(|v6| Self { v4: Arc::clone(&self.v4), v6: v6.into() }),
        };
        changed.map(Self::bounded).transpose()
    }

    /// The set without any address of `network`; `None` if it has none of them.
    ///
    /// # Errors
    /// The set would have too many ranges, because removing `network` may split a range in two.
    pub fn without(&self, network: Network) -> Result<Option<Self>, String> {
        let changed = match range_of(network) {
            Range::V4(range) => without_range(&self.v4, range)
                .map(|v4| Self { v4: v4.into(), v6: Arc::clone(&self.v6) }),
            Range::V6(range) => without_range(&self.v6, range)
                .map(|v6| Self { v4: Arc::clone(&self.v4), v6: v6.into() }),
        };
        changed.map(Self::bounded).transpose()
    }

    fn bounded(self) -> Result<Self, String> {
        match self.len() {
            0..=RANGES_MAX => Ok(self),
            _ => Err(format!("the set already has {RANGES_MAX} ranges, the maximum")),
        }
    }

    /// The number of ranges, each of which may be several networks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// The fewest networks that have the addresses of the set together, in ascending order.
    pub fn networks(&self) -> impl Iterator<Item = Network> {
        let v4 = self.v4.iter().flat_map(|(first, last)| {
            let blocks = Blocks { next: Some(u128::from(*first)), last: u128::from(*last) };
            blocks.map(|(first, bits)| Network {
                address: (first as u32).to_be_bytes().into(),
                prefix_bits: (32 - bits) as u8,
            })
        });
        let v6 = self.v6.iter().flat_map(|(first, last)| {
            let blocks = Blocks { next: Some(*first), last: *last };
            blocks.map(|(first, bits)| Network {
                address: first.to_be_bytes().into(),
                prefix_bits: (128 - bits) as u8,
            })
        });
        v4.chain(v6)
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

    /// Whether no address is in both sets.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        are_disjoint(&self.v4, &other.v4) && are_disjoint(&self.v6, &other.v6)
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

/// The first and the last address of a network.
enum Range {
    V4((u32, u32)),
    V6((u128, u128)),
}

fn range_of(Network { address, prefix_bits }: Network) -> Range {
    let bits = u32::from(prefix_bits);
    match address {
        IpAddr::V4(first) => {
            let first = u32::from(first);
            Range::V4((first, first | u32::MAX.checked_shr(bits).unwrap_or(0)))
        }
        IpAddr::V6(first) => {
            let first = u128::from(first);
            Range::V6((first, first | u128::MAX.checked_shr(bits).unwrap_or(0)))
        }
    }
}

/// An address as a number.
trait Number: Ord + Copy {
    /// The number after this one, or this one if it is the last.
    fn after(self) -> Self;
    /// The number before this one, or this one if it is 0.
    fn before(self) -> Self;
}

impl Number for u32 {
    fn after(self) -> Self {
        self.saturating_add(1)
    }
    fn before(self) -> Self {
        self.saturating_sub(1)
    }
}

impl Number for u128 {
    fn after(self) -> Self {
        self.saturating_add(1)
    }
    fn before(self) -> Self {
        self.saturating_sub(1)
    }
}

/// Sorts the ranges, and joins those without an address between them.
fn merge<T: Number>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.after() => before.1 = before.1.max(last),
            Some(_) | None => merged.push((first, last)),
        }
    }
    merged
}

/// Whether no number is in a range of both lists, which are sorted.
fn are_disjoint<T: Number>(ranges: &[(T, T)], others: &[(T, T)]) -> bool {
    others.iter().all(|(first, last)| {
        // The only candidate is the last range that begins before the end of this one.
        let before = ranges.partition_point(|(begin, _)| begin <= last);
        let candidate = before.checked_sub(1).and_then(|at| ranges.get(at));
        candidate.is_none_or(|(_, end)| end < first)
    })
}

/// The ranges with this one; `None` if one of them contains it.
fn with_range<T: Number>(ranges: &[(T, T)], (first, last): (T, T)) -> Option<Vec<(T, T)>> {
    let from = ranges.partition_point(|(_, end)| end.after() < first);
    let to = ranges.partition_point(|(begin, _)| *begin <= last.after());
    let (before, rest) = ranges.split_at_checked(from)?;
    let (joined, after) = rest.split_at_checked(to.checked_sub(from)?)?;
    if let [(begin, end)] = joined
        && *begin <= first
        && last <= *end
    {
        return None;
    }
    let first = joined.first().map_or(first, |(begin, _)| first.min(*begin));
    let last = joined.last().map_or(last, |(_, end)| last.max(*end));
    Some([before, &[(first, last)], after].concat())
}

/// The ranges without the addresses of this one; `None` if they have none of them.
fn without_range<T: Number>(ranges: &[(T, T)], (first, last): (T, T)) -> Option<Vec<(T, T)>> {
    let from = ranges.partition_point(|(_, end)| *end < first);
    let to = ranges.partition_point(|(begin, _)| *begin <= last);
    let (before, rest) = ranges.split_at_checked(from)?;
    let (cut, after) = rest.split_at_checked(to.checked_sub(from)?)?;
    let left = cut.first()?.0;
    let right = cut.last()?.1;
    let left = (left < first).then(|| (left, first.before()));
    let right = (last < right).then(|| (last.after(), right));
    let remains: Vec<(T, T)> = left.into_iter().chain(right).collect();
    Some([before, &remains, after].concat())
}

/// The networks of a range: the first address of each, and the number of bits that its addresses differ in.
struct Blocks {
    /// The first address that is not in a network yet.
    next: Option<u128>,
    /// The last address of the range.
    last: u128,
}

impl Iterator for Blocks {
    type Item = (u128, u32);

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.next?;
        let rest = self.last.checked_sub(first)?;
        // The largest power of two that divides the address, and is not larger than the rest.
        let fitting = rest.checked_add(1).map_or(128, u128::ilog2);
        let bits = first.trailing_zeros().min(fitting);
        let size = 1_u128.checked_shl(bits);
        self.next = size.and_then(|size| first.checked_add(size));
        Some((first, bits))
    }
}

fn find<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= address);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, last)| address <= *last)
}

impl core::str::FromStr for Network {
    type Err = String;

    /// Reads `10.0.0.0/8`, or a single address.
    fn from_str(text: &str) -> Result<Self, String> {
        parse_network(text)
            .map_err(|complaint| format!("{text:?}: {}; {}", complaint.what, complaint.help))
    }
}

impl core::fmt::Display for Network {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        match self.prefix_bits == width {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.address, self.prefix_bits),
        }
    }
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

    #[test]
    fn networks_of_a_set_are_the_fewest() {
        for (written, expected) in [
            (&["10.0.0.0/9", "10.128.0.0/9", "10.3.0.0/16"][..], &["10.0.0.0/8"][..]),
            (&["0.0.0.0/0", "::/0"], &["0.0.0.0/0", "::/0"]),
            (&["0.0.0.0/1", "128.0.0.0/1", "8000::/1"], &["0.0.0.0/0", "8000::/1"]),
            (
                &["192.0.2.1", "192.0.2.2/31", "192.0.2.4"],
                &["192.0.2.1", "192.0.2.2/31", "192.0.2.4"],
            ),
            (&["255.255.255.255", "255.255.255.254"], &["255.255.255.254/31"]),
            (&["::", "::1", "::2"], &["::/127", "::2"]),
            (&[], &[]),
        ] {
            let found: Vec<String> = set(written).networks().map(|n| n.to_string()).collect();
            assert_eq!(found, expected);
        }
    }

    /// Goal: a set that was changed range by range equals one that was made from its addresses.
    #[test]
    fn changed_set_equals_a_new_one() {
        let mut prng = tidegate_base::Prng::new(5);
        for is_v6 in [false, true] {
            let address = |number: u128| match is_v6 {
                true => IpAddr::from((u128::MAX - 63 + number).to_be_bytes()),
                false => IpAddr::from((u32::MAX - 63 + number as u32).to_be_bytes()),
            };
            let width = if is_v6 { 128 } else { 32 };
            let (mut changed, mut plain) = (NetworkSet::default(), [false; 64]);
            for _ in 0..2_000 {
                let bits = prng.below(5) as u32;
                let first = u128::from(prng.below(64)) >> bits << bits;
                let network =
                    Network { address: address(first), prefix_bits: (width - bits) as u8 };
                let members = &mut plain[first as usize..(first + (1 << bits)) as usize];
                let adds = prng.below(2) == 0;
                let differs = members.iter().any(|member| *member != adds);
                members.fill(adds);
                let next = if adds { changed.with(network) } else { changed.without(network) };
                let next = next.expect("few ranges");
                assert_eq!(next.is_some(), differs, "{network}");
                changed = next.unwrap_or(changed);
                let singles = plain.iter().zip(0..).filter(|(member, _)| **member);
                let single =
                    |(_, number)| Network { address: address(number), prefix_bits: width as u8 };
                assert_eq!(changed, NetworkSet::new(singles.map(single)));
                assert_eq!(changed, NetworkSet::new(changed.networks()));
            }
        }
    }

    #[test]
    fn changed_set_has_a_bounded_number_of_ranges() {
        let every_second =
            |number: u32| Network { address: (2 * number).to_be_bytes().into(), prefix_bits: 32 };
        let count = RANGES_MAX as u32;
        let full = NetworkSet::new((0..count).map(every_second));
        assert_eq!(full.len(), RANGES_MAX);
        assert!(full.with(every_second(count)).is_err());
        let one_less = full.without(every_second(7)).expect("fewer ranges").expect("it was in it");
        assert_eq!(one_less.len(), RANGES_MAX - 1);
        assert!(one_less.with(every_second(count)).is_ok_and(|set| set.is_some()));
    }
}
