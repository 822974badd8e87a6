//! State that all workers of the process share, and that a reload keeps.
//! In: a configuration, the state of the previous one. Out: the tables of limits, the servers of keys, the maps, the sets
//! of addresses, the tables of counts and the switches of the configuration, the keys that are fetched for it, and whether the
//! process uses too much memory.
//! Never: takes a lock on the way of a request, except as `base/src/published.rs` states.

use tidegate_config::arrange::Arranged;
use tidegate_config::model::Config;

use crate::counting::CountTables;
use crate::live_keys::KeySources;
use crate::live_map::LiveMaps;
use crate::live_set::LiveSets;
use crate::maintenance::Switches;
use crate::memory::Memory;
use crate::rate::RateTables;
use crate::sticky_keys::StickyTables;

/// See above. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct ProcessState {
    /// The tables of limits of the rate of requests.
    pub rates: RateTables,
    /// The keys of requests that stay with a server.
    pub stays: StickyTables,
    /// The maps.
    pub maps: LiveMaps,
    /// The tables that count what clients do.
    pub tables: CountTables,
    /// The sets of addresses.
    pub sets: LiveSets,
    /// The keys of tokens that are fetched.
    pub keys: KeySources,
    /// The switches of routes that are closed for maintenance.
    pub switches: Switches,
    /// The memory of the process.
    pub memory: Memory,
}

impl ProcessState {
    /// The state at the start of a process. `seed` is not known to clients.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        Self {
            rates: RateTables::new(config, seed),
            stays: StickyTables::new(config, seed),
            maps: LiveMaps::new(config),
            tables: CountTables::new(config, seed),
            sets: LiveSets::new(config),
            keys: KeySources::new(config),
            switches: Switches::new(config),
            memory: Memory::new(config),
        }
    }

    /// The state for `next`, which follows `earlier` with the state `self`. Also returns lines about state that is lost and
    /// settings that do not work any more.
    #[must_use]
    pub fn after(&self, next: &Arranged, earlier: &Config, seed: u64) -> (Self, Vec<String>) {
        let (maps, lost_of_maps, unknown_pools) = self.maps.after(next);
        let (sets, lost_of_sets) = self.sets.after(&next.config);
        let line = |what: &str, name: String, count: u64| {
            format!(
                "the {what} {name:?} have changed in the configuration and replace the changes made by commands \
                 (lost changes: {count})"
            )
        };
        let of_maps =
            lost_of_maps.into_iter().map(|(name, count)| line("entries of map", name, count));
        let of_sets =
            lost_of_sets.into_iter().map(|(name, count)| line("addresses of set", name, count));
        let lines = of_maps.chain(of_sets).chain(unknown_pools).collect();
        let rates = RateTables::after(&next.config, earlier, &self.rates, seed);
        let stays = self.stays.after(&next.config, earlier, seed);
        let keys = self.keys.after(&next.config);
        let tables = self.tables.after(&next.config, seed);
        let switches = self.switches.after(&next.config);
        let memory = self.memory.clone();
        (Self { rates, stays, maps, sets, keys, tables, switches, memory }, lines)
    }

    /// Whether requests hold a part of the state until they end.
    #[must_use]
    pub fn is_held_by_requests(&self) -> bool {
        self.rates.clients.are_set() || self.tables.are_set()
    }

    /// All workers use `arranged` now.
    pub fn settle(&self, arranged: &Arranged) {
        self.maps.settle(arranged);
        self.memory.set_max(&arranged.config);
    }
}
