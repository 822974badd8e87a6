//! The names of servers: when each is resolved again, and which addresses are in use meanwhile.
//! In: names, results of lookups, the time, random numbers. Out: names that are due; changes of addresses.
//! Never: sends a query; gives up addresses because of one failed lookup, unless the configuration says so (`hold`).
//! Limits: the names that the caller states, `ADDRESSES_MAX` addresses of each.
//! Invariant: a name that is not being resolved has a time at which it is due. An address that remains keeps its place before
//! new ones, so an order that differs in each answer changes nothing.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use tidegate_base::{Moment, Span};
use tidegate_config::model::{Families, Hold, Resolver};

use crate::slots::Marks;

/// Addresses of a name that are used.
pub const ADDRESSES_MAX: usize = 128;
/// When a name is resolved again after the first failure in a row; the time doubles with each further failure.
const RETRY_SPAN_MIN: Span = Span::from_secs(1);
/// The longest time until a name is resolved again after a failure.
const RETRY_SPAN_MAX: Span = Span::from_secs(30);
/// How often names are resolved if the system does not say how long addresses may be kept.
const SYSTEM_SPAN: Span = Span::from_secs(30);
/// In place of an end: longer than a process runs.
const FOREVER: Span = Span::MAX;

/// A host and its port. The name of SRV records, which state ports themselves, has `SRV_PORT`.
pub type HostPort = (String, u16);
/// In place of the port of a name with SRV records. No server has it.
pub const SRV_PORT: u16 = 0;

/// The name as it is shown.
#[must_use]
pub fn text_of((name, port): &HostPort) -> String {
    match *port {
        SRV_PORT => name.clone(),
        port => format!("{name}:{port}"),
    }
}

/// The result of a lookup.
pub type LookedUp = Result<Addresses, Failure>;

/// The addresses that an answer states.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The addresses, at least one.
    pub addresses: Vec<SocketAddr>,
    /// How long they may be kept; `None`: unknown.
    pub seconds: Option<u32>,
    /// What SRV records state about them.
    pub marks: Marks,
    /// The addresses of this family are not known, because their lookup has failed. Those that the name had stay in use.
    pub unanswered: Option<Families>,
}

impl Addresses {
    /// All addresses of a name without SRV records.
    #[must_use]
    pub const fn of(addresses: Vec<SocketAddr>, seconds: Option<u32>) -> Self {
        Self { addresses, seconds, marks: Marks::new(), unanswered: None }
    }

    /// Whether it is not known whether the name has this address.
    #[must_use]
    pub const fn leaves_open(&self, address: &SocketAddr) -> bool {
        match self.unanswered {
            None => false,
            Some(Families::Both) => true,
            Some(Families::Ipv4) => address.is_ipv4(),
            Some(Families::Ipv6) => address.is_ipv6(),
        }
    }

    /// Adds those of the addresses which the name had that it may still have.
    pub fn keep_open(&mut self, earlier: impl Iterator<Item = SocketAddr>) {
        for address in earlier {
            if self.leaves_open(&address) && !self.addresses.contains(&address) {
                self.addresses.push(address);
            }
        }
    }
}

/// Why a lookup has found no address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The name does not exist.
    UnknownName,
    /// The name has no addresses.
    NoAddress,
    /// No server has answered in time.
    Timeout,
    /// A server has answered with an error or with a malformed message, or cannot be reached.
    ServerFailed,
}

impl Failure {
    /// The failure in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::UnknownName => "the name does not exist",
            Self::NoAddress => "the name has no address",
            Self::Timeout => "no name server has answered in time",
            Self::ServerFailed => "the name servers cannot answer",
        }
    }
}

/// What the result of a lookup has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing.
    None,
    /// The addresses.
    Addresses,
    /// The addresses are no longer in use, because lookups have failed for too long.
    Lost,
    /// There are addresses again.
    Found,
}

/// The times of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    hold: Hold,
    ttl_min: Span,
    ttl_max: Span,
}

impl Times {
    /// Those of `[resolver]`; without it, those for names that the system resolves.
    #[must_use]
    pub fn of(resolver: Option<&Resolver>) -> Self {
        let system = || Self {
            hold: Hold { valid: Span::ZERO, nx: FOREVER, timeout: FOREVER, other: FOREVER },
            ttl_min: SYSTEM_SPAN,
            ttl_max: SYSTEM_SPAN,
        };
        resolver.map_or_else(system, |own| Self {
            hold: own.hold,
            ttl_min: own.ttl_min,
            ttl_max: own.ttl_max,
        })
    }

    /// How long addresses stay in use while lookups fail in this way.
    fn hold_of(&self, failure: Failure) -> Span {
        match failure {
            Failure::UnknownName | Failure::NoAddress => self.hold.nx,
            Failure::Timeout => self.hold.timeout,
            Failure::ServerFailed => self.hold.other,
        }
    }

    /// When a name is resolved again whose records may be kept for this time.
    fn span_of(&self, seconds: Option<u32>) -> Span {
        let own = seconds.map_or(self.ttl_max, |own| Span::from_secs(u64::from(own)));
        own.max(self.ttl_min).min(self.ttl_max)
    }
}

/// A name.
struct Entry {
    addresses: Vec<SocketAddr>,
    /// What SRV records state about them.
    marks: Marks,
    /// Addresses that the last answer did not contain, and since when.
    missing: BTreeMap<SocketAddr, Moment>,
    /// When it is resolved; `NEVER` while it is being resolved.
    due: Moment,
    /// Since when each lookup has failed.
    failing_since: Option<Moment>,
    /// Failures in a row.
    failures: u32,
    /// The addresses are not in use.
    is_lost: bool,
}

/// The names; see the module header.
pub struct NameBook {
    times: Times,
    names: BTreeMap<HostPort, Entry>,
}

impl NameBook {
    /// No names.
    #[must_use]
    pub fn new(times: Times) -> Self {
        Self { times, names: BTreeMap::new() }
    }

    /// Continues with these times, names and addresses. New names, and those whose addresses are other ones now, are resolved soon: it
    /// is not known for how long the addresses may be kept. A name without addresses is lost until it is resolved. `resolved`: names that
    /// were resolved just now, with these addresses. Returns whether one of them had been lost.
    pub fn follow(
        &mut self,
        times: Times,
        names: &BTreeMap<HostPort, Vec<SocketAddr>>,
        resolved: &BTreeSet<HostPort>,
        now: Moment,
    ) -> bool {
        let mut is_found = false;
        if core::mem::replace(&mut self.times, times) != times {
            // The next lookup may be too far away.
            let waiting = self.names.values_mut().filter(|entry| entry.due != Moment::NEVER);
            waiting.for_each(|entry| entry.due = now);
        }
        self.names.retain(|name, _| names.contains_key(name));
        for (name, addresses) in names {
            let entry = self.names.entry(name.clone()).or_insert_with(|| Entry {
                addresses: addresses.clone(),
                marks: Marks::new(),
                missing: BTreeMap::new(),
                due: now.after(match addresses.is_empty() {
                    true => times.ttl_min.min(RETRY_SPAN_MIN),
                    false => times.ttl_min,
                }),
                failing_since: None,
                failures: 0,
                is_lost: addresses.is_empty(),
            });
            if !is_same_set(&entry.addresses, addresses) {
                entry.is_lost =
                    addresses.is_empty() || entry.is_lost && !entry.addresses.is_empty();
                entry.addresses.clone_from(addresses);
                entry.missing.clear();
                if entry.due != Moment::NEVER {
                    entry.due = now.after(times.ttl_min);
                }
            }
            if entry.is_lost && !addresses.is_empty() && resolved.contains(name) {
                (entry.is_lost, is_found) = (false, true);
                (entry.failing_since, entry.failures) = (None, 0);
            }
        }
        is_found
    }

    /// Whether the addresses of a name are not in use.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.names.values().any(|entry| entry.is_lost)
    }

    /// A name that is due. It is being resolved from now on.
    pub fn next_due(&mut self, now: Moment) -> Option<HostPort> {
        let due = self.names.iter_mut().filter(|(_, entry)| entry.due <= now);
        let (name, entry) = due.min_by_key(|(_, entry)| entry.due)?;
        entry.due = Moment::NEVER;
        Some(name.clone())
    }

    /// When the next name is due; `NEVER` if none is.
    #[must_use]
    pub fn first_due(&self) -> Moment {
        self.names.values().map(|entry| entry.due).min().unwrap_or(Moment::NEVER)
    }

    /// All names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &HostPort> {
        self.names.keys()
    }

    /// The addresses of a name, and whether they are in use; `None` if there is no such name.
    #[must_use]
    pub fn addresses(&self, name: &HostPort) -> Option<(&[SocketAddr], bool)> {
        self.names.get(name).map(|entry| (&entry.addresses[..], !entry.is_lost))
    }

    /// What SRV records state about the addresses of a name.
    #[must_use]
    pub fn marks(&self, name: &HostPort) -> Option<&Marks> {
        self.names.get(name).map(|entry| &entry.marks)
    }

    /// A lookup has ended. `random` varies the time of the next one by up to a tenth, so that names are not resolved all at once.
    pub fn note(&mut self, name: &HostPort, found: &LookedUp, now: Moment, random: u64) -> Change {
        let times = self.times;
        let Some(entry) = self.names.get_mut(name) else { return Change::None };
        match found {
            Ok(found) => {
                entry.due = now.after(sooner(times.span_of(found.seconds), random));
                (entry.failing_since, entry.failures) = (None, 0);
                let is_other = entry.adopt(found, times.hold.valid, now);
                let is_other = entry.adopt_marks(&found.marks) || is_other;
                match (core::mem::replace(&mut entry.is_lost, false), is_other) {
                    (true, _) => Change::Found,
                    (false, true) => Change::Addresses,
                    (false, false) => Change::None,
                }
            }
            Err(failure) => {
                let end = entry.failing_since.get_or_insert(now).after(times.hold_of(*failure));
                let doubled = RETRY_SPAN_MIN * (1 << entry.failures.min(10));
                let pause = doubled.min(RETRY_SPAN_MAX).max(times.ttl_min);
                entry.failures = entry.failures.saturating_add(1);
                entry.due = now.after(sooner(pause, random));
                if entry.is_lost {
                    return Change::None;
                }
                if end > now {
                    entry.due = entry.due.min(end);
                    return Change::None;
                }
                entry.is_lost = true;
                Change::Lost
            }
        }
    }
}

impl Entry {
    /// Uses the addresses of an answer, and for `hold` those that it no longer contains. Returns whether there are other ones now.
    fn adopt(&mut self, answer: &Addresses, hold: Span, now: Moment) -> bool {
        let found = &answer.addresses;
        let missing = &mut self.missing;
        let mut next: Vec<SocketAddr> = Vec::new();
        for address in &self.addresses {
            if found.contains(address) {
                missing.remove(address);
                next.push(*address);
            } else if answer.leaves_open(address) {
                next.push(*address);
            } else if missing.entry(*address).or_insert(now).after(hold) > now {
                next.push(*address);
                self.due = self.due.min(missing[address].after(hold));
            }
        }
        for address in found {
            if !next.contains(address) {
                next.push(*address);
            }
        }
        next.truncate(ADDRESSES_MAX);
        missing.retain(|address, _| next.contains(address));
        let is_other = next != self.addresses;
        self.addresses = next;
        is_other
    }

    /// Uses what the records of an answer state; addresses that are held keep their marks. Returns whether something has changed.
    fn adopt_marks(&mut self, found: &Marks) -> bool {
        let marks = self.addresses.iter().filter_map(|address| {
            Some((*address, *found.get(address).or_else(|| self.marks.get(address))?))
        });
        let next: Marks = marks.collect();
        let is_other = next != self.marks;
        self.marks = next;
        is_other
    }
}

/// Whether both lists have the same addresses, in any order. Neither has one twice.
fn is_same_set(one: &[SocketAddr], other: &[SocketAddr]) -> bool {
    one.len() == other.len() && one.iter().all(|address| other.contains(address))
}

/// A time that is shorter by up to a tenth.
fn sooner(span: Span, random: u64) -> Span {
    let millis = span.as_millis() as u64;
    Span::from_millis(millis - random % (millis / 10 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> HostPort {
        ("app.internal".to_owned(), 80)
    }

    fn address(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 80).into()
    }

    fn found(last: &[u8], seconds: u32) -> LookedUp {
        let addresses = last.iter().copied().map(address).collect();
        Ok(Addresses::of(addresses, Some(seconds)))
    }

    fn at(seconds: u64) -> Moment {
        Moment::ZERO.after(Span::from_secs(seconds))
    }

    /// A book with one name at 10.0.0.1, and these settings.
    fn book(resolver: &Resolver) -> NameBook {
        let mut book = NameBook::new(Times::of(Some(resolver)));
        let names = BTreeMap::from([(name(), vec![address(1)])]);
        book.follow(Times::of(Some(resolver)), &names, &BTreeSet::new(), at(0));
        book
    }

    #[test]
    fn name_is_resolved_again_when_its_records_expire() {
        let mut book = book(&Resolver::default());
        assert_eq!((book.next_due(at(0)), book.first_due()), (None, at(1)), "`ttl-min`");
        assert_eq!(book.next_due(at(1)), Some(name()));
        assert_eq!((book.next_due(at(9)), book.first_due()), (None, Moment::NEVER), "in progress");
        assert_eq!(book.note(&name(), &found(&[1], 60), at(9), 0), Change::None);
        assert_eq!(book.first_due(), at(69));
        // By up to a tenth sooner, never later.
        book.note(&name(), &found(&[1], 60), at(9), 6000);
        assert_eq!(book.first_due(), at(63));
        for (seconds, due) in [(0, 10), (100_000, 309)] {
            book.note(&name(), &found(&[1], seconds), at(9), 0);
            assert_eq!(book.first_due(), at(due), "TTL {seconds}");
        }
    }

    #[test]
    fn address_that_remains_keeps_its_place() {
        let mut book = book(&Resolver::default());
        assert_eq!(book.note(&name(), &found(&[3, 1, 2], 5), at(1), 0), Change::Addresses);
        let all = [address(1), address(3), address(2)];
        assert_eq!(book.addresses(&name()), Some((&all[..], true)));
        assert_eq!(book.note(&name(), &found(&[2, 3, 1], 5), at(2), 0), Change::None, "an order");
        assert_eq!(book.note(&name(), &found(&[2, 4], 5), at(3), 0), Change::Addresses);
        assert_eq!(book.addresses(&name()), Some((&[address(2), address(4)][..], true)));
    }

    #[test]
    fn address_that_an_answer_lacks_is_held() {
        let mut resolver = Resolver::default();
        resolver.hold.valid = Span::from_secs(10);
        let mut book = book(&resolver);
        book.note(&name(), &found(&[2], 60), at(1), 0);
        assert_eq!(book.addresses(&name()), Some((&[address(1), address(2)][..], true)));
        assert_eq!(book.first_due(), at(11), "the end of the hold is not missed");
        assert_eq!(book.note(&name(), &found(&[1], 60), at(5), 0), Change::None);
        assert_eq!(book.note(&name(), &found(&[1], 60), at(14), 0), Change::None);
        assert_eq!(book.note(&name(), &found(&[1], 60), at(15), 0), Change::Addresses);
        assert_eq!(book.addresses(&name()), Some((&[address(1)][..], true)));
    }

    #[test]
    fn failures_keep_the_addresses_for_their_hold_time() {
        for (failure, hold) in [
            (Failure::UnknownName, 30),
            (Failure::NoAddress, 30),
            (Failure::Timeout, 3600),
            (Failure::ServerFailed, 3600),
        ] {
            let mut book = book(&Resolver::default());
            assert_eq!(book.note(&name(), &Err(failure), at(10), 0), Change::None);
            assert_eq!(book.note(&name(), &Err(failure), at(9 + hold), 0), Change::None);
            assert_eq!(book.first_due(), at(10 + hold), "the end of the hold is not missed");
            assert_eq!(book.note(&name(), &Err(failure), at(10 + hold), 0), Change::Lost);
            assert_eq!(book.addresses(&name()), Some((&[address(1)][..], false)));
            assert_eq!(book.note(&name(), &Err(failure), at(11 + hold), 0), Change::None);
            assert_eq!(book.note(&name(), &found(&[1], 5), at(12 + hold), 0), Change::Found);
            // The hold time begins again with the next failure.
            assert_eq!(book.note(&name(), &Err(failure), at(13 + hold), 0), Change::None);
        }
    }

    #[test]
    fn name_without_addresses_is_lost_until_it_is_resolved() {
        let times = Times::of(Some(&Resolver::default()));
        let mut book = NameBook::new(times);
        let names = |addresses: &[u8]| {
            BTreeMap::from([(name(), addresses.iter().copied().map(address).collect::<Vec<_>>())])
        };
        book.follow(times, &names(&[]), &BTreeSet::new(), at(0));
        assert_eq!((book.has_lost(), book.next_due(at(1))), (true, Some(name())));
        assert_eq!(book.note(&name(), &Err(Failure::Timeout), at(1), 0), Change::None);
        assert_eq!(book.first_due(), at(2));
        assert_eq!(book.note(&name(), &found(&[1, 2], 60), at(2), 0), Change::Found);
        assert_eq!((book.has_lost(), book.first_due()), (false, at(62)));
        // The same addresses in another order are not resolved again; a reload that has found addresses ends the loss.
        book.follow(times, &names(&[2, 1]), &BTreeSet::new(), at(3));
        assert_eq!(book.first_due(), at(62));
        book.follow(times, &names(&[]), &BTreeSet::new(), at(3));
        assert!(book.has_lost());
        book.follow(times, &names(&[1]), &BTreeSet::new(), at(4));
        assert_eq!((book.has_lost(), book.first_due()), (false, at(5)));
    }

    #[test]
    fn reload_that_resolves_a_lost_name_ends_the_loss() {
        let (times, mut book) = (Times::of(Some(&Resolver::default())), book(&Resolver::default()));
        let unknown = Err(Failure::UnknownName);
        book.note(&name(), &unknown, at(10), 0);
        assert_eq!(book.note(&name(), &unknown, at(40), 0), Change::Lost);
        let names = BTreeMap::from([(name(), vec![address(1)])]);
        let resolved = BTreeSet::from([name()]);
        assert!(!book.follow(times, &names, &BTreeSet::new(), at(41)) && book.has_lost());
        assert!(book.follow(times, &names, &resolved, at(42)) && !book.has_lost());
        assert!(!book.follow(times, &names, &resolved, at(43)));
        assert_eq!(book.note(&name(), &unknown, at(50), 0), Change::None, "another failure");
    }

    #[test]
    fn addresses_of_a_family_that_is_unknown_stay() {
        let six = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 80));
        let mut book = book(&Resolver::default());
        let both = Ok(Addresses::of(vec![address(1), address(2), six], Some(60)));
        book.note(&name(), &both, at(1), 0);
        let four = Addresses {
            unanswered: Some(Families::Ipv6),
            ..Addresses::of(vec![address(2), address(3)], Some(60))
        };
        assert_eq!(book.note(&name(), &Ok(four), at(2), 0), Change::Addresses);
        let all = [address(2), six, address(3)];
        assert_eq!(book.addresses(&name()), Some((&all[..], true)));
        let mut found =
            Addresses { unanswered: Some(Families::Ipv4), ..Addresses::of(vec![six], None) };
        found.keep_open([address(1), six, address(1)].into_iter());
        assert_eq!(found.addresses, [six, address(1)]);
    }

    #[test]
    fn other_weights_are_a_change_and_held_addresses_keep_theirs() {
        let mut resolver = Resolver::default();
        resolver.hold.valid = Span::from_secs(10);
        let mut book = book(&resolver);
        let with = |all: &[(u8, u16)]| {
            let marks = all.iter().map(|(last, weight)| {
                (address(*last), crate::slots::Mark { priority: 1, weight: *weight })
            });
            let addresses = all.iter().map(|(last, _)| address(*last)).collect();
            Ok(Addresses { marks: marks.collect(), ..Addresses::of(addresses, Some(60)) })
        };
        assert_eq!(book.note(&name(), &with(&[(1, 5)]), at(1), 0), Change::Addresses);
        assert_eq!(book.note(&name(), &with(&[(1, 5)]), at(2), 0), Change::None);
        assert_eq!(book.note(&name(), &with(&[(1, 6)]), at(3), 0), Change::Addresses);
        assert_eq!(book.note(&name(), &with(&[(2, 1)]), at(4), 0), Change::Addresses);
        let marks = book.marks(&name()).expect("it is known");
        assert_eq!(marks.values().map(|mark| mark.weight).collect::<Vec<_>>(), [6, 1]);
    }

    #[test]
    fn failed_lookups_are_repeated_ever_later() {
        let mut book = book(&Resolver::default());
        let mut pauses = Vec::new();
        for _ in 0..7 {
            book.note(&name(), &Err(Failure::Timeout), at(100), 0);
            pauses.push(book.first_due().since(at(100)).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn system_names_keep_their_addresses() {
        let mut book = NameBook::new(Times::of(None));
        let names = BTreeMap::from([(name(), vec![address(1)])]);
        book.follow(Times::of(None), &names, &BTreeSet::new(), at(0));
        assert_eq!(book.first_due(), at(30));
        let unknown = Err(Failure::UnknownName);
        assert_eq!(book.note(&name(), &unknown, at(30), 0), Change::None);
        assert_eq!(book.note(&name(), &unknown, at(30 * 86_400), 0), Change::None);
        let other = Ok(Addresses::of(vec![address(2)], None));
        assert_eq!(book.note(&name(), &other, at(31 * 86_400), 0), Change::Addresses);
        book.follow(Times::of(None), &BTreeMap::new(), &BTreeSet::new(), at(32 * 86_400));
        assert_eq!((book.addresses(&name()), book.first_due()), (None, Moment::NEVER));
    }
}
