//! Maps whose entries change while the process serves, for all workers together.
//! In: the maps of a configuration; changes by commands; a string. Out: the pool of the text.
//! Never: makes a lookup wait, or frees a large map on a worker (`base/src/published.rs`).
//! Limits: those of `TextMap`, and of `drafts.rs`.
//! Invariant: the index of a pool in `Content` belongs to a pool of the newest configuration, or was valid in the one
//! before; a reader uses no index that its own configuration does not have. Each configuration gets new readers, so that
//! an idle worker holds no entries of older ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidegate_base::published::{Published, Reader, lock};
use tidegate_config::arrange::Arranged;
use tidegate_config::model::{Config, MapEntry, MapFault, MapKind, TextMap, ValueMap, entries_max};

use crate::drafts::Drafts;
use crate::named::Named;

/// The indexes of pools by their names.
type PoolNames = BTreeMap<String, u16>;

/// The entries of a map, with the pools that its values name.
#[derive(Debug)]
pub(crate) struct Content {
    table: TextMap,
    /// By the number of a value: the index of the pool; `None`: no pool has this name.
    pools: Vec<Option<u16>>,
}

impl Content {
    fn new(table: TextMap, names: &PoolNames) -> Self {
        let pool = |(name, _): &(String, usize)| names.get(name).copied();
        Self { pools: table.values().iter().map(pool).collect(), table }
    }
}

/// A map that all workers share.
#[derive(Debug)]
pub struct LiveMap {
    kind: MapKind,
    ignore_case: bool,
    /// The entries in force.
    content: Arc<Published<Content>>,
    /// The state that commands need.
    edits: Mutex<EditState>,
}

/// The state of a map that only commands and reloads use.
#[derive(Debug)]
struct EditState {
    /// The entries of the configuration.
    base: TextMap,
    /// The changes by commands since the configuration was read.
    changes: u64,
    /// The pools that values may name.
    names: PoolNames,
    /// Entries that are not in force yet.
    drafts: Drafts<MapEntry>,
}

impl LiveMap {
    fn new(map: &ValueMap, names: &PoolNames) -> Self {
        let content = Published::new(Content::new(map.table.clone(), names));
        let edits = EditState {
            base: map.table.clone(),
            changes: 0,
            names: names.clone(),
            drafts: Drafts::new("prepare map", entries_max(map.kind)),
        };
        Self { kind: map.kind, ignore_case: map.ignore_case, content, edits: Mutex::new(edits) }
    }

    /// Puts entries in force.
    fn publish(&self, edits: &EditState, table: TextMap) {
        self.content.replace(Content::new(table, &edits.names));
    }

    /// The entries in force.
    #[must_use]
    pub fn table(&self) -> TextMap {
        self.content.current().table.clone()
    }

    /// The number of changes by commands since the configuration was read.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.content.free_replaced();
        lock(&self.edits).changes
    }

    /// Sets the value of a key. Returns whether the key is new.
    ///
    /// # Errors
    /// The key cannot be used, the map is full, or no pool has the name `value`.
    pub fn set(&self, key: &str, value: &str) -> Result<bool, String> {
        let mut edits = lock(&self.edits);
        edits.check_value(value)?;
        let (table, is_new) = self.table().with(key, value)?;
        edits.changes += 1;
        self.publish(&edits, table);
        Ok(is_new)
    }

    /// Removes a key. Returns whether the map had it.
    #[must_use]
    pub fn remove(&self, key: &str) -> bool {
        let mut edits = lock(&self.edits);
        let Some(table) = self.table().without(key) else { return false };
        edits.changes += 1;
        self.publish(&edits, table);
        true
    }

    /// Removes all keys.
    pub fn clear(&self) {
        let mut edits = lock(&self.edits);
        edits.changes += 1;
        self.publish(&edits, TextMap::empty(self.kind, self.ignore_case));
    }

    /// Begins a draft without entries, in place of one that was not committed. Returns its number.
    pub fn prepare(&self) -> u64 {
        lock(&self.edits).drafts.begin()
    }

    /// Adds an entry to a draft.
    ///
    /// # Errors
    /// There is no such draft, the key or the value cannot be used, or the draft is full.
    pub fn add(&self, draft: u64, key: &str, value: &str) -> Result<(), String> {
        let mut edits = lock(&self.edits);
        edits.check_value(value)?;
        TextMap::check_key(self.kind, self.ignore_case, key)?;
        let line = edits.drafts.entries(draft)?.len() + 1;
        let entry = MapEntry { key: key.to_owned(), value: value.to_owned(), line };
        edits.drafts.push(draft, entry)
    }

    /// Puts the entries of a draft in force, in place of all others. Returns their number.
    ///
    /// # Errors
    /// There is no such draft, or its entries are not a map. The draft stays.
    pub fn commit(&self, draft: u64) -> Result<usize, String> {
        let mut edits = lock(&self.edits);
        let entries = edits.drafts.entries(draft)?.clone();
        let count = entries.len();
        let table =
            TextMap::new(self.kind, self.ignore_case, entries).map_err(|fault| match fault {
                MapFault::SameKey { first, second } => {
                    format!("entry {second} has the same key as entry {first}")
                }
                MapFault::Key { line, what } => format!("entry {line}: {what}"),
                MapFault::TooMany(most) => format!("more than {most} keys"),
            })?;
        edits.drafts.end();
        edits.changes += 1;
        self.publish(&edits, table);
        Ok(count)
    }

    /// Whether an entry in force names the pool.
    fn names_pool(&self, pool: &str) -> bool {
        let table = self.table();
        // A value without keys stays in the list of values.
        table.values().iter().any(|(value, _)| value == pool)
            && table.entries().any(|(_, value)| value == pool)
    }

    /// Uses the pools of another configuration from now on.
    fn settle(&self, names: &PoolNames) {
        let mut edits = lock(&self.edits);
        if edits.names != *names {
            edits.names.clone_from(names);
            let table = self.table();
            self.publish(&edits, table);
        }
        self.content.free_replaced();
    }

    /// The values in force that are not among `names`, each with the number of its keys.
    fn values_without_pool(&self, names: &PoolNames) -> BTreeMap<String, usize> {
        let table = self.table();
        let mut missing: BTreeMap<String, usize> = BTreeMap::new();
        if table.values().iter().all(|(value, _)| names.contains_key(value)) {
            return missing;
        }
        for (_, value) in table.entries().filter(|(_, value)| !names.contains_key(*value)) {
            *missing.entry(value.to_owned()).or_default() += 1;
        }
        missing
    }
}

impl EditState {
    fn check_value(&self, value: &str) -> Result<(), String> {
        match self.names.contains_key(value) {
            true => Ok(()),
            false => {
                let known: Vec<&str> = self.names.keys().map(String::as_str).take(20).collect();
                Err(format!("there is no pool {value:?}; the pools are: {}", known.join(", ")))
            }
        }
    }
}

/// The maps of a configuration, shared by all workers.
pub type LiveMaps = Named<LiveMap>;

impl LiveMaps {
    /// The maps of a configuration whose pools are all in use.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let pools = config.pools.iter().zip(0..);
        let names = pools.map(|(pool, index)| (pool.name.clone(), index)).collect();
        let map = |map: &ValueMap| (map.name.clone(), Arc::new(LiveMap::new(map, &names)));
        config.maps.iter().map(map).collect()
    }

    /// The maps of `next`, which follows the configuration with these maps. A map with the same entries in the
    /// configuration keeps the changes by commands. Also returns the maps that lose changes, with their number, and lines
    /// about keys that commands have set to pools which `next` no longer has.
    #[must_use]
    pub fn after(&self, next: &Arranged) -> (Self, Vec<(String, u64)>, Vec<String>) {
        let (names, mut lost, mut lines) = (names_of(next), Vec::new(), Vec::new());
        let map = |map: &ValueMap| {
            let known = self.find(&map.name);
            let same = known.filter(|known| {
                (known.kind, known.ignore_case) == (map.kind, map.ignore_case)
                    && lock(&known.edits).base == map.table
            });
            if let Some(same) = same {
                let missing = same.values_without_pool(&names);
                lines.extend(missing.into_iter().map(|(pool, keys)| {
                    format!(
                        "the map {:?} names the pool {pool:?}, which the configuration no longer has, for {keys} of \
                         its keys; they are treated as if they were not in the map",
                        map.name
                    )
                }));
                return (map.name.clone(), Arc::clone(same));
            }
            if let Some(changes) = known.map(|known| known.changes()).filter(|count| *count > 0) {
                lost.push((map.name.clone(), changes));
            }
            (map.name.clone(), Arc::new(LiveMap::new(map, &names)))
        };
        (next.config.maps.iter().map(map).collect(), lost, lines)
    }

    /// The maps with an entry in force that names the pool.
    #[must_use]
    pub fn naming(&self, pool: &str) -> Vec<String> {
        let naming = self.all().filter(|(_, map)| map.names_pool(pool));
        naming.map(|(name, _)| name.to_owned()).collect()
    }

    /// Uses the pools of `arranged`, which all workers have applied.
    pub fn settle(&self, arranged: &Arranged) {
        let names = names_of(arranged);
        self.all().for_each(|(_, map)| map.settle(&names));
    }

    /// A worker's way to the maps.
    pub(crate) fn readers(&self) -> MapReaders {
        MapReaders(self.shared().map(|map| map.content.reader()).collect())
    }
}

/// The pools that are in use.
fn names_of(arranged: &Arranged) -> PoolNames {
    let pools = arranged.file_pools.iter();
    let name =
        |index: &usize| Some((arranged.config.pools.get(*index)?.name.clone(), *index as u16));
    pools.filter_map(name).collect()
}

/// A worker's way to the maps, by their index in the configuration.
#[derive(Debug, Default)]
pub(crate) struct MapReaders(Vec<Reader<Content>>);

impl MapReaders {
    /// The pool of a string; `None` if the text is not in the map, or its value names no pool.
    pub(crate) fn find(&self, map: usize, text: &mut [u8]) -> Option<u16> {
        self.0
            .get(map)?
            .read(|content| content.pools.get(content.table.find(text)?).copied().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(entries: &str, pools: &[&str]) -> Config {
        let mut text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\n\
             proxy = {{ pool = {{ map = \"hosts\", key = \"{{host}}\" }} }}\n\
             [map.hosts]\nentries = {{ {entries} }}\n"
        );
        for pool in pools {
            text.push_str(&format!("[pool.{pool}]\nservers = [\"127.0.0.1:1\"]\n"));
        }
        tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn find(readers: &MapReaders, text: &str) -> Option<u16> {
        readers.find(0, &mut text.as_bytes().to_vec())
    }

    #[test]
    fn readers_see_changes() {
        let maps = LiveMaps::new(&config("\"a\" = \"one\"", &["one", "two"]));
        let (first, second) = (maps.readers(), maps.readers());
        let map = maps.find("hosts").expect("the map");
        assert_eq!((find(&first, "a"), find(&first, "b")), (Some(0), None));
        assert_eq!(map.set("b", "two"), Ok(true));
        assert_eq!(map.set("a", "two"), Ok(false));
        assert_eq!((find(&first, "a"), find(&second, "b")), (Some(1), Some(1)));
        assert_eq!(maps.naming("two"), ["hosts"]);
        assert!(map.remove("a") && !map.remove("a"));
        assert_eq!((find(&first, "a"), find(&second, "a")), (None, None));
        assert_eq!((maps.naming("one"), maps.naming("two").len()), (Vec::new(), 1));
        let fault = map.set("c", "three").expect_err("no such pool");
        assert_eq!(fault, "there is no pool \"three\"; the pools are: one, two");
        assert!(map.set("", "one").is_err());
        assert_eq!(map.changes(), 3);
        map.clear();
        assert_eq!((find(&first, "b"), map.table().len(), map.changes()), (None, 0, 4));
    }

    #[test]
    fn draft_takes_the_place_of_all_entries() {
        let maps = LiveMaps::new(&config("\"a\" = \"one\"", &["one", "two"]));
        let (map, reader) = (maps.find("hosts").expect("the map"), maps.readers());
        assert!(map.commit(0).is_err() && map.commit(1).is_err());
        let forgotten = map.prepare();
        assert_eq!(map.add(forgotten, "x", "one"), Ok(()));
        let draft = map.prepare();
        assert!(map.add(forgotten, "y", "one").is_err());
        for (key, pool) in [("b", "two"), ("c", "one")] {
            assert_eq!(map.add(draft, key, pool), Ok(()));
        }
        assert!(map.add(draft, "d", "three").is_err() && map.add(draft, "", "one").is_err());
        assert_eq!((find(&reader, "a"), find(&reader, "b")), (Some(0), None));
        assert_eq!(map.commit(draft), Ok(2));
        let found = ["a", "b", "c", "x"].map(|key| find(&reader, key));
        assert_eq!(found, [None, Some(1), Some(0), None]);
        assert!(map.commit(draft).is_err());
        let twice = map.prepare();
        assert_eq!((map.add(twice, "b", "two"), map.add(twice, "b", "one")), (Ok(()), Ok(())));
        assert_eq!(map.commit(twice), Err("entry 2 has the same key as entry 1".to_owned()));
        assert_eq!(find(&reader, "b"), Some(1));
    }

    #[test]
    fn reload_keeps_changes_unless_the_configuration_has_other_entries() {
        let before = Arranged::first(config("\"a\" = \"one\"", &["one", "two"]));
        let maps = LiveMaps::new(&before.config);
        assert_eq!(maps.find("hosts").expect("the map").set("b", "two"), Ok(true));
        let arrange = |entries: &str, pools: &[&str]| {
            before.next(config(entries, pools), &Default::default()).expect("indexes are free")
        };
        // The pool `two` is gone; its index stays.
        let same = arrange("\"a\" = \"one\"", &["three", "one"]);
        let (kept, lost, lines) = maps.after(&same);
        assert_eq!(lost, []);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(
            line.contains("\"hosts\" names the pool \"two\"") && line.contains("for 1 of its keys"),
            "{line}"
        );
        let reader = kept.readers();
        assert_eq!((find(&reader, "a"), find(&reader, "b")), (Some(0), Some(1)));
        kept.settle(&same);
        assert_eq!((find(&reader, "a"), find(&reader, "b")), (Some(0), None));
        assert_eq!(kept.find("hosts").expect("the map").set("c", "three"), Ok(true));
        assert_eq!(find(&reader, "c"), Some(2));
        let (other, lost, lines) = maps.after(&arrange("\"a\" = \"two\"", &["one", "two"]));
        assert_eq!((lost, lines), (vec![("hosts".to_owned(), 2)], Vec::new()));
        let reader = other.readers();
        assert_eq!((find(&reader, "a"), find(&reader, "b")), (Some(1), None));
    }
}
