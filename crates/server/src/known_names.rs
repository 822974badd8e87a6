//! The names of servers as they were resolved last, for the admin interface.
//! In: the addresses of a configuration that comes into force, and the names that could not be resolved for it; results of later
//! lookups.
//! Out: by name, its addresses, when they were resolved, and the failures since the process started.
//! Limits: the names of the configuration in force.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use tidegate_config::arrange::Arranged;
use tidegate_gate::name_book::{HostPort, text_of};

use crate::resolve::{Addresses, Unresolved, name_of};

/// The facts about a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KnownName {
    /// The addresses in use, with the port.
    pub(crate) addresses: Vec<String>,
    /// When they were resolved.
    pub(crate) resolved: SystemTime,
    /// Whether they are in use: the name has had addresses recently enough.
    pub(crate) is_used: bool,
    /// Lookups by the thread "names".
    pub(crate) lookups: u64,
    /// How often they have changed the addresses.
    pub(crate) changes: u64,
    /// How often the name could not be resolved.
    pub(crate) failures: u64,
    /// Why, the last time.
    pub(crate) last_failure: Option<String>,
}

/// The names of the process.
#[derive(Default)]
pub(crate) struct KnownNames(Mutex<BTreeMap<String, KnownName>>);

impl KnownNames {
    /// A configuration comes into force, for which all names were resolved.
    pub(crate) fn note(&self, arranged: &Arranged, addresses: &Addresses, failed: &[Unresolved]) {
        self.replace(arranged, addresses, failed, true);
    }

    /// A configuration comes into force, for which only new names were resolved.
    pub(crate) fn note_new(&self, arranged: &Arranged, addresses: &Addresses) {
        self.replace(arranged, addresses, &[], false);
    }

    fn replace(
        &self,
        arranged: &Arranged,
        addresses: &Addresses,
        failed: &[Unresolved],
        is_renewed: bool,
    ) {
        let now = SystemTime::now();
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = core::mem::take(&mut *names);
        for ((pool, at), server) in arranged.servers() {
            let Some(name) = name_of(&server.address).map(|name| text_of(&name)) else { continue };
            let Some(addresses) = addresses.get(pool).and_then(|pool| pool.get(at)) else {
                continue;
            };
            let addresses = addresses.iter().map(ToString::to_string);
            if let Some(entry) = names.get_mut(&name) {
                // Another slot of the same name.
                for address in addresses {
                    if !entry.addresses.contains(&address) {
                        entry.addresses.push(address);
                    }
                }
                entry.is_used |= !entry.addresses.is_empty();
                continue;
            }
            let addresses: Vec<String> = addresses.collect();
            let known = earlier.get(&name);
            let failure = failed.iter().find(|one| one.name == name);
            let keeps_time = failure.is_some() || !is_renewed;
            let resolved = known.filter(|_| keeps_time).map_or(now, |it| it.resolved);
            let entry = KnownName {
                is_used: match known.filter(|_| keeps_time) {
                    Some(known) => known.is_used,
                    None => !addresses.is_empty(),
                },
                addresses,
                resolved,
                lookups: known.map_or(0, |it| it.lookups),
                changes: known.map_or(0, |it| it.changes),
                failures: known.map_or(0, |it| it.failures) + u64::from(failure.is_some()),
                last_failure: failure
                    .map(|one| one.what.clone())
                    .or_else(|| known.and_then(|it| it.last_failure.clone())),
            };
            names.insert(name, entry);
        }
    }

    /// A lookup has ended: its addresses, whether they are in use, and why it has failed.
    pub(crate) fn note_lookup(
        &self,
        name: &HostPort,
        (addresses, is_used): (&[core::net::SocketAddr], bool),
        failure: Option<&str>,
    ) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = names.get_mut(&text_of(name)) else { return };
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        known.lookups += 1;
        known.changes += u64::from(known.addresses != addresses);
        (known.addresses, known.is_used) = (addresses, is_used);
        match failure {
            None => known.resolved = SystemTime::now(),
            Some(failure) => {
                known.failures += 1;
                known.last_failure = Some(failure.to_owned());
            }
        }
    }

    /// All names, in alphabetical order.
    pub(crate) fn all(&self) -> Vec<(String, KnownName)> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().map(|(name, known)| (name.clone(), known.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_base::Address;

    use super::*;

    #[test]
    fn failures_are_counted_and_keep_the_time_of_the_addresses() {
        let text = "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"p\"\n[pool.p]\n\
                    servers = [\"one:1\", \"two:2\", \"10.0.0.1:3\"]\n";
        let config = tidegate_config::parse(text, "the test").expect("it is valid");
        let config = Arranged::first(config);
        let address = |port| vec![Address::Tcp(([10, 0, 0, 9], port).into())];
        let addresses = vec![vec![address(1), address(2), address(3)]];
        let names = KnownNames::default();
        names.note(&config, &addresses, &[]);
        let first = names.all();
        let listed: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(listed, ["one:1", "two:2"]);
        assert_eq!(first[0].1.addresses, ["10.0.0.9:1"]);
        let (pool, name, what) = ("p".to_owned(), "two:2".to_owned(), "no such name".to_owned());
        names.note(&config, &addresses, &[Unresolved { pool, name, what, is_kept: true }]);
        let second = names.all();
        assert_eq!((second[0].1.failures, second[1].1.failures), (0, 1));
        assert_eq!(second[1].1.resolved, first[1].1.resolved);
        names.note_new(&config, &addresses);
        assert_eq!(names.all(), second);
        names.note(&config, &addresses, &[]);
        assert_eq!(names.all()[1].1.last_failure.as_deref(), Some("no such name"));
    }
}
