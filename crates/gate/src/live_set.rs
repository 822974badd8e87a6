//! Sets of addresses that commands change while the process serves, for all workers together.
//! In: the sets of a configuration; changes by commands; an address. Out: whether the address is in a set.
//! Never: makes a lookup wait (`base/src/published.rs`).
//! Limits: those of `NetworkSet`, and of `drafts.rs`.
//! Invariant: a set consists of addresses, not of the ranges that were written: after a range was added, all of its
//! addresses are in the set, and after it was removed, none of them is.

use core::net::IpAddr;
use std::sync::{Arc, Mutex};

use tidegate_base::published::{Published, Reader, lock};
use tidegate_config::model::{AddressSet, Config, Network, NetworkSet, RANGES_MAX};

use crate::drafts::Drafts;
use crate::named::Named;

/// A set that all workers share.
#[derive(Debug)]
pub struct LiveSet {
    /// The addresses in force.
    networks: Arc<Published<NetworkSet>>,
    /// The state that commands need.
    edits: Mutex<EditState>,
}

/// The state of a set that only commands and reloads use.
#[derive(Debug)]
struct EditState {
    /// The addresses of the configuration.
    base: NetworkSet,
    /// The changes by commands since the configuration was read.
    changes: u64,
    /// Addresses that are not in force yet.
    drafts: Drafts<Network>,
}

impl LiveSet {
    fn new(base: &NetworkSet) -> Self {
        let drafts = Drafts::new("prepare set", RANGES_MAX);
        let edits = EditState { base: base.clone(), changes: 0, drafts };
        Self { networks: Published::new(base.clone()), edits: Mutex::new(edits) }
    }

    /// The addresses in force.
    #[must_use]
    pub fn networks(&self) -> NetworkSet {
        NetworkSet::clone(&self.networks.current())
    }

    /// The number of changes by commands since the configuration was read.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.networks.free_replaced();
        lock(&self.edits).changes
    }

    fn publish(&self, edits: &mut EditState, networks: NetworkSet) {
        edits.changes += 1;
        self.networks.replace(networks);
    }

    /// Adds all addresses of a range. Returns whether the set lacked some of them.
    ///
    /// # Errors
    /// The text is not a range, or the set is full.
    pub fn add(&self, network: &str) -> Result<bool, String> {
        let network = network.parse()?;
        let mut edits = lock(&self.edits);
        let changed = self.networks().with(network)?;
        let is_new = changed.is_some();
        if let Some(networks) = changed {
            self.publish(&mut edits, networks);
        }
        Ok(is_new)
    }

    /// Removes all addresses of a range. Returns whether the set had some of them.
    ///
    /// # Errors
    /// The text is not a range, or the set would have too many ranges.
    pub fn remove(&self, network: &str) -> Result<bool, String> {
        let network = network.parse()?;
        let mut edits = lock(&self.edits);
        let changed = self.networks().without(network)?;
        let had = changed.is_some();
        if let Some(networks) = changed {
            self.publish(&mut edits, networks);
        }
        Ok(had)
    }

    /// Removes all addresses.
    pub fn clear(&self) {
        self.publish(&mut lock(&self.edits), NetworkSet::default());
    }

    /// Begins a draft without addresses, in place of one that was not committed. Returns its number.
    pub fn prepare(&self) -> u64 {
        lock(&self.edits).drafts.begin()
    }

    /// Adds a range to a draft.
    ///
    /// # Errors
    /// There is no such draft, the text is not a range, or the draft is full.
    pub fn add_to(&self, draft: u64, network: &str) -> Result<(), String> {
        let network = network.parse()?;
        lock(&self.edits).drafts.push(draft, network)
    }

    /// Puts the addresses of a draft in force, in place of all others. Returns the number of ranges.
    ///
    /// # Errors
    /// There is no such draft.
    pub fn commit(&self, draft: u64) -> Result<usize, String> {
        let mut edits = lock(&self.edits);
        let networks = NetworkSet::new(edits.drafts.entries(draft)?.iter().copied());
        let count = networks.len();
        edits.drafts.end();
        self.publish(&mut edits, networks);
        Ok(count)
    }
}

/// The sets of a configuration, shared by all workers.
pub type LiveSets = Named<LiveSet>;

impl LiveSets {
    /// The sets of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let set = |set: &AddressSet| (set.name.clone(), Arc::new(LiveSet::new(&set.networks)));
        config.sets.iter().map(set).collect()
    }

    /// The sets of `next`, which follows the configuration with these sets. A set with the same addresses in the
    /// configuration keeps the changes by commands. Also returns the sets that lose changes, with their number.
    #[must_use]
    pub fn after(&self, next: &Config) -> (Self, Vec<(String, u64)>) {
        let mut lost = Vec::new();
        let set = |set: &AddressSet| {
            let known = self.find(&set.name);
            let same = known.filter(|known| lock(&known.edits).base == set.networks);
            if let (None, Some(known)) = (same, known)
                && known.changes() > 0
            {
                lost.push((set.name.clone(), known.changes()));
            }
            let live = same.map_or_else(|| Arc::new(LiveSet::new(&set.networks)), Arc::clone);
            (set.name.clone(), live)
        };
        (next.sets.iter().map(set).collect(), lost)
    }

    /// A worker's way to the sets.
    pub(crate) fn readers(&self) -> SetReaders {
        SetReaders(self.shared().map(|set| set.networks.reader()).collect())
    }
}

/// A worker's way to the sets, by their index in the configuration.
#[derive(Debug, Default)]
pub(crate) struct SetReaders(Vec<Reader<NetworkSet>>);

impl SetReaders {
    /// Whether the address is in the set with this index.
    pub(crate) fn contains(&self, set: usize, address: IpAddr) -> bool {
        let set = self.0.get(set);
        set.is_some_and(|set| set.read(|networks| networks.contains(address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(addresses: &str) -> Config {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nrespond = {{ status = 200 }}\n\
             allow = [\"set:office\"]\n[set.office]\naddresses = [{addresses}]\n"
        );
        tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn contains(readers: &SetReaders, address: &str) -> bool {
        readers.contains(0, address.parse().expect("an address"))
    }

    #[test]
    fn readers_see_changes() {
        let sets = LiveSets::new(&config("\"10.0.0.0/8\""));
        let (first, second) = (sets.readers(), sets.readers());
        let set = sets.find("office").expect("the set");
        assert_eq!((set.add("192.0.2.0/24"), set.add("192.0.2.7")), (Ok(true), Ok(false)));
        assert_eq!((set.remove("10.1.0.0/16"), set.remove("10.1.2.3")), (Ok(true), Ok(false)));
        for readers in [&first, &second] {
            let found = ["10.0.0.1", "10.1.0.1", "192.0.2.9"].map(|text| contains(readers, text));
            assert_eq!(found, [true, false, true]);
        }
        assert!(set.add("10.0.0.1/8").is_err() && set.remove("host").is_err());
        assert_eq!(set.changes(), 2);
        set.clear();
        assert!(!contains(&first, "10.0.0.1") && set.networks().is_empty());
    }

    #[test]
    fn draft_takes_the_place_of_all_addresses() {
        let sets = LiveSets::new(&config("\"10.0.0.0/8\""));
        let (set, readers) = (sets.find("office").expect("the set"), sets.readers());
        let fault = set.add_to(1, "::1").expect_err("no draft");
        assert_eq!(fault, "there is no version @1; create one with `prepare set`");
        let draft = set.prepare();
        for network in ["192.0.2.0/25", "192.0.2.128/25", "::1"] {
            assert_eq!(set.add_to(draft, network), Ok(()));
        }
        assert!(set.add_to(draft, "host").is_err() && set.add_to(draft + 1, "::2").is_err());
        assert!(contains(&readers, "10.0.0.1") && !contains(&readers, "::1"));
        assert_eq!(set.commit(draft), Ok(2));
        assert!(!contains(&readers, "10.0.0.1") && contains(&readers, "::1"));
        assert!(set.commit(draft).is_err());
        let networks: Vec<String> = set.networks().networks().map(|n| n.to_string()).collect();
        assert_eq!(networks, ["192.0.2.0/24", "::1"]);
    }

    #[test]
    fn reload_keeps_changes_unless_the_configuration_has_other_addresses() {
        let sets = LiveSets::new(&config("\"10.0.0.0/8\""));
        assert_eq!(sets.find("office").expect("the set").add("::1"), Ok(true));
        // The same addresses, written in another way.
        let (kept, lost) = sets.after(&config("\"10.128.0.0/9\", \"10.0.0.0/9\""));
        assert_eq!(lost, []);
        assert!(contains(&kept.readers(), "::1"));
        let (other, lost) = kept.after(&config("\"10.0.0.0/9\""));
        assert_eq!(lost, [("office".to_owned(), 1)]);
        assert!(!contains(&other.readers(), "::1"));
    }
}
