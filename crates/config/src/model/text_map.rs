//! Maps from texts to values.
//! In: keys and values, in any order. Out: the value of the key that a text is, begins with or ends with.
//! Limits: a look-up takes a number of steps that grows with the logarithm of the number of keys, and with the number of
//! keys that begin (or end) with each other.
//! Invariant: the entries are sorted, so that all keys that a text begins with are the ancestors of the last key that is
//! not greater than the text: a key between one of them and the text begins with that one, too.

use core::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `[map.NAME]`: values that routes look up by a text of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueMap {
    /// Name in routes; unique.
    pub name: String,
    /// The path of the file with the entries; `None`: they are in the configuration itself.
    pub file: Option<String>,
    /// How keys are compared.
    pub kind: MapKind,
    /// Whether upper and lower case ASCII letters are equal.
    pub ignore_case: bool,
    /// The entries. Empty until the file is read.
    pub table: TextMap,
}

/// How the keys of a map are compared with a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapKind {
    /// The text is the key.
    #[default]
    Exact,
    /// The text begins with the key. The longest key wins.
    Prefix,
    /// The text ends with the key. The longest key wins.
    Suffix,
}

/// An entry of a map before it is prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// The line of a file, or the position in the configuration, for messages.
    pub line: usize,
}

/// Two entries of a map have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SameKey {
    /// The line of the first one.
    pub first: usize,
    /// The line of the second one.
    pub second: usize,
}

/// The entries of a map, prepared for looking up. Clones share the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextMap(Arc<Content>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Content {
    kind: MapKind,
    ignore_case: bool,
    /// Ascending; those of `Suffix` by their reversed keys.
    entries: Vec<Prepared>,
    /// Each value once, with the line of its first entry.
    values: Vec<(String, usize)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Prepared {
    /// In lower case if case is ignored.
    key: Box<str>,
    /// The number of the value.
    value: u32,
    /// The entry of the longest other key that this one begins (or ends) with.
    parent: Option<u32>,
}

impl TextMap {
    /// Prepares the entries, of which there are fewer than 2³².
    ///
    /// # Errors
    /// Two entries have the same key.
    pub fn new(kind: MapKind, ignore_case: bool, entries: Vec<MapEntry>) -> Result<Self, SameKey> {
        let mut entries = entries;
        if ignore_case {
            entries.iter_mut().for_each(|entry| entry.key.make_ascii_lowercase());
        }
        let order = |a: &MapEntry, b: &MapEntry| compare(kind, a.key.bytes(), b.key.bytes());
        entries.sort_by(|a, b| order(a, b).then(a.line.cmp(&b.line)));
        if let Some([a, b]) = entries.array_windows().find(|[a, b]| a.key == b.key) {
            return Err(SameKey { first: a.line, second: b.line });
        }
        let mut first_lines: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in &entries {
            let line = first_lines.entry(&entry.value).or_insert(entry.line);
            *line = entry.line.min(*line);
        }
        let mut values: Vec<(String, usize)> =
            first_lines.iter().map(|(value, line)| ((*value).to_owned(), *line)).collect();
        values.sort_by_key(|(_, line)| *line);
        let numbers: BTreeMap<&str, u32> =
            values.iter().zip(0..).map(|((value, _), number)| (value.as_str(), number)).collect();
        let mut prepared: Vec<Prepared> = Vec::with_capacity(entries.len());
        for entry in &entries {
            let mut parent = prepared.len().checked_sub(1).map(|at| at as u32);
            while let Some(before) = parent.and_then(|at| prepared.get(at as usize)) {
                if is_part(kind, before.key.as_bytes(), entry.key.as_bytes()) {
                    break;
                }
                parent = before.parent;
            }
            let value = numbers.get(entry.value.as_str()).copied().unwrap_or_default();
            prepared.push(Prepared { key: entry.key.as_str().into(), value, parent });
        }
        Ok(Self(Arc::new(Content { kind, ignore_case, entries: prepared, values })))
    }

    /// The number of the value of `text`. `text` is changed to lower case if case is ignored.
    #[must_use]
    pub fn find(&self, text: &mut [u8]) -> Option<usize> {
        let Content { kind, ignore_case, entries, .. } = &*self.0;
        if *ignore_case {
            text.make_ascii_lowercase();
        }
        let is_before = |entry: &Prepared| {
            compare(*kind, entry.key.bytes(), text.iter().copied()) != Ordering::Greater
        };
        let mut at = entries.partition_point(is_before).checked_sub(1);
        while let Some(entry) = at.and_then(|at| entries.get(at)) {
            if is_part(*kind, entry.key.as_bytes(), text) {
                return Some(entry.value as usize);
            }
            at = match kind {
                MapKind::Exact => None,
                MapKind::Prefix | MapKind::Suffix => entry.parent.map(|at| at as usize),
            };
        }
        None
    }

    /// Each value once, with the line of its first entry, in the order of their numbers.
    #[must_use]
    pub fn values(&self) -> &[(String, usize)] {
        &self.0.values
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.entries.len()
    }

    /// Whether the map has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.entries.is_empty()
    }
}

fn compare(
    kind: MapKind,
    a: impl DoubleEndedIterator<Item = u8>,
    b: impl DoubleEndedIterator<Item = u8>,
) -> Ordering {
    match kind {
        MapKind::Exact | MapKind::Prefix => a.cmp(b),
        MapKind::Suffix => a.rev().cmp(b.rev()),
    }
}

/// Whether `key` is `text`, or `text` begins or ends with it.
fn is_part(kind: MapKind, key: &[u8], text: &[u8]) -> bool {
    match kind {
        MapKind::Exact => text == key,
        MapKind::Prefix => text.starts_with(key),
        MapKind::Suffix => text.ends_with(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(kind: MapKind, pairs: &[(&str, &str)]) -> TextMap {
        let entry = |(at, (key, value)): (usize, &(&str, &str))| MapEntry {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            line: at + 1,
        };
        let entries = pairs.iter().enumerate().map(entry).collect();
        TextMap::new(kind, false, entries).expect("different keys")
    }

    fn find<'m>(map: &'m TextMap, text: &str) -> Option<&'m str> {
        let number = map.find(&mut text.as_bytes().to_vec())?;
        map.values().get(number).map(|(value, _)| value.as_str())
    }

    #[test]
    fn longest_key_wins() {
        let pairs = [
            ("/a", "1"),
            ("/a/b", "2"),
            ("/a/b/c/d", "3"),
            ("/a/bb", "4"),
            ("/b", "1"),
            ("/a/b/c/e", "5"),
        ];
        let prefixes = map(MapKind::Prefix, &pairs);
        let exact = map(MapKind::Exact, &pairs);
        for (text, longest, same) in [
            ("/a", Some("1"), Some("1")),
            ("/ab", Some("1"), None),
            ("/a/b/x", Some("2"), None),
            ("/a/b/c/da", Some("3"), None),
            ("/a/b/c/dz/", Some("3"), None),
            ("/a/b/c/e", Some("5"), Some("5")),
            ("/a/b/c/x", Some("2"), None),
            ("/a/bc", Some("2"), None),
            ("/a/bbc", Some("4"), None),
            ("/c", None, None),
            ("/", None, None),
            ("", None, None),
            ("\u{7f}", None, None),
        ] {
            assert_eq!(find(&prefixes, text), longest, "{text}");
            assert_eq!(find(&exact, text), same, "{text}");
        }
        let hosts =
            map(MapKind::Suffix, &[(".example", "1"), (".a.example", "2"), ("example", "3")]);
        for (text, expected) in [
            ("x.a.example", Some("2")),
            ("a.example", Some("1")),
            ("xa.example", Some("1")),
            ("example", Some("3")),
            ("anexample", Some("3")),
            ("example.com", None),
        ] {
            assert_eq!(find(&hosts, text), expected, "{text}");
        }
    }

    /// Goal: the parent links find what a comparison with each key finds.
    #[test]
    fn lookup_equals_a_comparison_with_each_key() {
        let mut prng = tidegate_base::Prng::new(7);
        let mut text = |most: u64| -> String {
            let length = prng.below(most);
            (0..length).map(|_| if prng.below(2) == 0 { 'a' } else { 'b' }).collect()
        };
        for _ in 0..300 {
            let mut keys: Vec<String> = (0..12).map(|_| text(6)).collect();
            keys.sort();
            keys.dedup();
            let pairs: Vec<(&str, &str)> =
                keys.iter().map(|key| (key.as_str(), key.as_str())).collect();
            let probe = text(9);
            for kind in [MapKind::Exact, MapKind::Prefix, MapKind::Suffix] {
                let matching =
                    keys.iter().filter(|key| is_part(kind, key.as_bytes(), probe.as_bytes()));
                let expected = matching.max_by_key(|key| key.len()).map(String::as_str);
                assert_eq!(find(&map(kind, &pairs), &probe), expected, "{kind:?} {probe} {keys:?}");
            }
        }
    }

    #[test]
    fn case_is_ignored_if_the_map_says_so() {
        let entry = |key: &str, line| MapEntry { key: key.to_owned(), value: "v".to_owned(), line };
        let map = TextMap::new(MapKind::Exact, true, vec![entry("A.Example", 1)]).expect("a map");
        assert_eq!(find(&map, "a.exAMPLE"), Some("v"));
        let twice = vec![entry("a", 4), entry("B", 2), entry("b", 9)];
        assert_eq!(TextMap::new(MapKind::Suffix, false, twice.clone()).map(|map| map.len()), Ok(3));
        let fault = TextMap::new(MapKind::Suffix, true, twice);
        assert_eq!(fault, Err(SameKey { first: 2, second: 9 }));
    }
}
