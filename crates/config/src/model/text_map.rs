//! Maps from strings to values.
//! In: keys and values, in any order. Out: the value of the key that a string is, begins with, ends with, is an address in
//! or is matched by.
//! Limits: `ENTRIES_MAX` keys of `KEY_BYTES_MAX` bytes. A lookup takes a number of steps that grows with the logarithm of the
//! number of keys, and with the number of keys that begin (or end) with each other, or of ranges of addresses that contain each
//! other. Regular expressions are tried one after the other, so there are up to `PATTERNS_MAX` of them, and only strings of up to
//! `MATCHED_BYTES_MAX` bytes are compared with them.
//! Invariant: the entries are sorted, so that all keys that a string begins with are the ancestors of the last key that is
//! not greater than the text: a key between one of them and the text begins with that one, too. A range of addresses is a
//! text of its bits, with which the bits of its addresses begin.

use core::cmp::Ordering;
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Network, TextFault, TextKind, TextTest};
use crate::pattern::parse_network;

/// Maximum number of keys of a map.
pub const ENTRIES_MAX: usize = 1_000_000;
/// Maximum length of a key in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Maximum number of keys of a map of regular expressions.
pub const PATTERNS_MAX: usize = 100;
/// Maximum length of a string that is compared with regular expressions, in bytes.
pub const MATCHED_BYTES_MAX: usize = 4096;

/// `[map.NAME]`: values that routes look up by a string of the request.
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

/// How the keys of a map are compared with a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapKind {
    /// The text is the key.
    #[default]
    Exact,
    /// The text begins with the key. The longest key wins.
    Prefix,
    /// The text ends with the key. The longest key wins.
    Suffix,
    /// The text is an IP address in the range that the key names. The smallest range wins.
    Address,
    /// The key is a regular expression that matches the text. The first key wins.
    Regex,
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

/// Why entries cannot be a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapFault {
    /// Two entries have the same key.
    SameKey {
        /// The line of the first one.
        first: usize,
        /// The line of the second one.
        second: usize,
    },
    /// The key in this line cannot be used.
    Key {
        /// The line.
        line: usize,
        /// What is wrong with the key.
        what: String,
    },
    /// There are more keys than this.
    TooMany(usize),
}

/// The entries of a map, prepared for looking up. Clones share the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextMap(Arc<Content>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    kind: MapKind,
    ignore_case: bool,
    /// Ascending; those of `Suffix` by their reversed keys, those of `Regex` in the order in which they are tried.
    entries: Vec<Prepared>,
    /// By entry, for `Regex` only: its test.
    patterns: Vec<TextTest>,
    /// Each value once, with the line of its first entry.
    values: Vec<(String, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Prepared {
    /// In the form in which it is compared: in lower case if case is ignored; the bits of a range of addresses.
    key: Arc<str>,
    /// The number of the value.
    value: u32,
    /// The entry of the longest other key that this one begins (or ends) with.
    parent: Option<u32>,
}

impl TextMap {
    /// A map without entries.
    #[must_use]
    pub fn empty(kind: MapKind, ignore_case: bool) -> Self {
        Self(Arc::new(Content { kind, ignore_case, ..Content::default() }))
    }

    /// Prepares the entries.
    ///
    /// # Errors
    /// A key cannot be used, two entries have the same key, or there are too many.
    pub fn new(kind: MapKind, ignore_case: bool, entries: Vec<MapEntry>) -> Result<Self, MapFault> {
        let mut entries = entries;
        let most = entries_max(kind);
        if entries.len() > most {
            return Err(MapFault::TooMany(most));
        }
        for entry in &mut entries {
            entry.key = compared_form(kind, ignore_case, &entry.key)
                .map_err(|what| MapFault::Key { line: entry.line, what })?;
        }
        let mut patterns = Vec::new();
        if kind == MapKind::Regex {
            for entry in &entries {
                let test = pattern(&entry.key, ignore_case);
                patterns.push(test.map_err(|what| MapFault::Key { line: entry.line, what })?);
            }
            let mut sorted: Vec<&MapEntry> = entries.iter().collect();
            sorted.sort_by(|a, b| a.key.cmp(&b.key).then(a.line.cmp(&b.line)));
            if let Some([a, b]) = sorted.array_windows().find(|[a, b]| a.key == b.key) {
                return Err(MapFault::SameKey { first: a.line, second: b.line });
            }
        } else {
            let order =
                |a: &MapEntry, b: &MapEntry| compare(kind, a.key.as_bytes(), b.key.as_bytes());
            entries.sort_by(|a, b| order(a, b).then(a.line.cmp(&b.line)));
            if let Some([a, b]) = entries.array_windows().find(|[a, b]| a.key == b.key) {
                return Err(MapFault::SameKey { first: a.line, second: b.line });
            }
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
        let prepare = |entry: &MapEntry| {
            let value = numbers.get(entry.value.as_str()).copied().unwrap_or_default();
            Prepared { key: entry.key.as_str().into(), value, parent: None }
        };
        let mut prepared: Vec<Prepared> = entries.iter().map(prepare).collect();
        link(kind, &mut prepared);
        Ok(Self(Arc::new(Content { kind, ignore_case, entries: prepared, patterns, values })))
    }

    /// Whether `key` can be used.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check_key(kind: MapKind, ignore_case: bool, key: &str) -> Result<(), String> {
        let form = compared_form(kind, ignore_case, key)?;
        match kind {
            MapKind::Regex => pattern(&form, ignore_case).map(drop),
            MapKind::Exact | MapKind::Prefix | MapKind::Suffix | MapKind::Address => Ok(()),
        }
    }

    /// The number of the value of `text`. `text` is changed to lower case if case is ignored.
    #[must_use]
    pub fn find(&self, text: &mut [u8]) -> Option<usize> {
        let Content { kind, ignore_case, entries, patterns, .. } = &*self.0;
        match kind {
            MapKind::Exact | MapKind::Prefix | MapKind::Suffix => {
                if *ignore_case {
                    text.make_ascii_lowercase();
                }
                self.longest(text)
            }
            MapKind::Address => {
                let address = core::str::from_utf8(text).ok()?.parse::<IpAddr>().ok()?;
                let (bits, length) = bits_of(address.to_canonical());
                self.longest(bits.get(..length)?)
            }
            MapKind::Regex if text.len() > MATCHED_BYTES_MAX => None,
            MapKind::Regex => {
                let at = patterns.iter().position(|pattern| pattern.matches(text))?;
                entries.get(at).map(|entry| entry.value as usize)
            }
        }
    }

    /// The number of the value of the longest key that `text` is, begins with or ends with.
    fn longest(&self, text: &[u8]) -> Option<usize> {
        let Content { kind, entries, .. } = &*self.0;
        let is_before =
            |entry: &Prepared| compare(*kind, entry.key.as_bytes(), text) != Ordering::Greater;
        let mut at = entries.partition_point(is_before).checked_sub(1);
        while let Some(entry) = at.and_then(|at| entries.get(at)) {
            if is_part(*kind, entry.key.as_bytes(), text) {
                return Some(entry.value as usize);
            }
            at = match kind {
                MapKind::Exact | MapKind::Regex => None,
                MapKind::Prefix | MapKind::Suffix | MapKind::Address => {
                    entry.parent.map(|at| at as usize)
                }
            };
        }
        None
    }

    /// The place of an entry by the compared form of its key; otherwise where it would be.
    fn place(&self, form: &str) -> Result<usize, usize> {
        let Content { kind, entries, .. } = &*self.0;
        match kind {
            MapKind::Regex => {
                let found = entries.iter().position(|entry| &*entry.key == form);
                found.ok_or(entries.len())
            }
            _ => entries
                .binary_search_by(|entry| compare(*kind, entry.key.as_bytes(), form.as_bytes())),
        }
    }

    /// The map with the value `value` for `key`, and whether the key is new. The values keep their numbers.
    ///
    /// # Errors
    /// The key cannot be used, or the map is full.
    pub fn with(&self, key: &str, value: &str) -> Result<(Self, bool), String> {
        let form = compared_form(self.0.kind, self.0.ignore_case, key)?;
        let place = self.place(&form);
        let mut content = Content::clone(&self.0);
        let known = content.values.iter().position(|(known, _)| known == value);
        let number = known.unwrap_or_else(|| {
            content.values.push((value.to_owned(), 0));
            content.values.len() - 1
        }) as u32;
        match place {
            Ok(at) => {
                if let Some(entry) = content.entries.get_mut(at) {
                    entry.value = number;
                }
            }
            Err(_) if content.entries.len() == entries_max(content.kind) => {
                return Err(format!(
                    "the map has {} keys, which is the maximum",
                    content.entries.len()
                ));
            }
            Err(at) => {
                if content.kind == MapKind::Regex {
                    content.patterns.push(pattern(&form, content.ignore_case)?);
                }
                let entry = Prepared { key: form.into(), value: number, parent: None };
                content.entries.insert(at, entry);
                link(content.kind, &mut content.entries);
            }
        }
        Ok((Self(Arc::new(content)), place.is_err()))
    }

    /// The map without `key`; `None` if the key is not in it.
    #[must_use]
    pub fn without(&self, key: &str) -> Option<Self> {
        let form = compared_form(self.0.kind, self.0.ignore_case, key).ok()?;
        let at = self.place(&form).ok()?;
        let mut content = Content::clone(&self.0);
        content.entries.remove(at);
        if content.kind == MapKind::Regex {
            content.patterns.remove(at);
        }
        link(content.kind, &mut content.entries);
        Some(Self(Arc::new(content)))
    }

    /// The value of exactly this key.
    #[must_use]
    pub fn value_of(&self, key: &str) -> Option<&str> {
        let form = compared_form(self.0.kind, self.0.ignore_case, key).ok()?;
        let entry = self.0.entries.get(self.place(&form).ok()?)?;
        self.0.values.get(entry.value as usize).map(|(value, _)| value.as_str())
    }

    /// The keys and values, in the order in which the keys are compared.
    pub fn entries(&self) -> impl Iterator<Item = (String, &str)> {
        let Content { kind, entries, values, .. } = &*self.0;
        entries.iter().map(|entry| {
            let value = values.get(entry.value as usize).map_or("", |(value, _)| value.as_str());
            (written_form(*kind, &entry.key), value)
        })
    }

    /// Each value once, with the line of its first entry, in the order of their numbers.
    #[must_use]
    pub fn values(&self) -> &[(String, usize)] {
        &self.0.values
    }

    /// The keys that are regular expressions which match no text, each with its position.
    pub fn unmatchable_keys(&self) -> impl Iterator<Item = (usize, &str)> {
        let Content { entries, patterns, .. } = &*self.0;
        let pairs = entries.iter().zip(patterns).enumerate();
        let hopeless = pairs.filter(|(_, (_, pattern))| pattern.is_hopeless());
        hopeless.map(|(at, (entry, _))| (at, &*entry.key))
    }

    /// How keys are compared.
    #[must_use]
    pub fn kind(&self) -> MapKind {
        self.0.kind
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

/// Maximum number of keys of a map.
#[must_use]
pub const fn entries_max(kind: MapKind) -> usize {
    match kind {
        MapKind::Exact | MapKind::Prefix | MapKind::Suffix | MapKind::Address => ENTRIES_MAX,
        MapKind::Regex => PATTERNS_MAX,
    }
}

/// The form of a key in which it is compared.
///
/// # Errors
/// Why the key cannot be used.
fn compared_form(kind: MapKind, ignore_case: bool, key: &str) -> Result<String, String> {
    match key.len() {
        0 => return Err("the key is empty".to_owned()),
        1..=KEY_BYTES_MAX => {}
        length => {
            return Err(format!("the key has {length} bytes; allowed: up to {KEY_BYTES_MAX}"));
        }
    }
    match kind {
        MapKind::Exact | MapKind::Prefix | MapKind::Suffix if ignore_case => {
            Ok(key.to_ascii_lowercase())
        }
        MapKind::Exact | MapKind::Prefix | MapKind::Suffix | MapKind::Regex => Ok(key.to_owned()),
        MapKind::Address => {
            let range = parse_network(key).map_err(|complaint| complaint.what)?;
            let (bits, _) = bits_of(range.address);
            let used = bits.iter().take(1 + usize::from(range.prefix_bits));
            Ok(used.map(|byte| char::from(*byte)).collect())
        }
    }
}

/// The test of a regular expression.
///
/// # Errors
/// Why the expression cannot be used.
fn pattern(text: &str, ignore_case: bool) -> Result<TextTest, String> {
    TextTest::new(TextKind::Regex, text, ignore_case).map_err(|fault| match fault {
        TextFault::Empty => "it is empty".to_owned(),
        TextFault::TooLong => "it is too long".to_owned(),
        TextFault::Syntax(reason) => format!("not a regular expression: {reason}"),
        TextFault::TooLarge => "the compiled expression is too large".to_owned(),
    })
}

/// An address as a string: its family, then its bits. Also returns the length of the text.
fn bits_of(address: IpAddr) -> ([u8; 129], usize) {
    let (family, bits, width) = match address {
        IpAddr::V4(address) => (b'4', u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (b'6', u128::from(address), 128),
    };
    let mut text = [b'0'; 129];
    for (byte, at) in text.iter_mut().skip(1).zip(0..128) {
        *byte += u8::from(bits << at >> 127 == 1);
    }
    text[0] = family;
    (text, width + 1)
}

/// A key as it is written in a file.
fn written_form(kind: MapKind, key: &str) -> String {
    let MapKind::Address = kind else { return key.to_owned() };
    let (family, bits) = key.split_at_checked(1).unwrap_or_default();
    let first = bits.bytes().zip((0..128).rev());
    let first = first.fold(0_u128, |sum, (bit, at)| sum | u128::from(bit == b'1') << at);
    let address = match family {
        "4" => IpAddr::from(((first >> 96) as u32).to_be_bytes()),
        _ => IpAddr::from(first.to_be_bytes()),
    };
    Network { address, prefix_bits: bits.len() as u8 }.to_string()
}

/// Finds the parent of each entry.
fn link(kind: MapKind, entries: &mut [Prepared]) {
    if matches!(kind, MapKind::Exact | MapKind::Regex) {
        return;
    }
    for at in 0..entries.len() {
        let (before, rest) = entries.split_at_mut(at);
        let Some(entry) = rest.first_mut() else { return };
        let mut parent = at.checked_sub(1).map(|at| at as u32);
        while let Some(earlier) = parent.and_then(|at| before.get(at as usize)) {
            if is_part(kind, earlier.key.as_bytes(), entry.key.as_bytes()) {
                break;
            }
            parent = earlier.parent;
        }
        entry.parent = parent;
    }
}

fn compare(kind: MapKind, a: &[u8], b: &[u8]) -> Ordering {
    match kind {
        MapKind::Suffix => a.iter().rev().cmp(b.iter().rev()),
        MapKind::Exact | MapKind::Prefix | MapKind::Address | MapKind::Regex => a.cmp(b),
    }
}

/// Whether `key` is `text`, or `text` begins or ends with it.
fn is_part(kind: MapKind, key: &[u8], text: &[u8]) -> bool {
    match kind {
        MapKind::Exact | MapKind::Regex => text == key,
        MapKind::Prefix | MapKind::Address => text.starts_with(key),
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

    /// Goal: the parent links find the same key as a comparison with each key.
    #[test]
    fn lookup_equals_a_comparison_with_each_key() {
        let mut prng = tidegate_base::Prng::new(7);
        let mut text = |most: u64| -> String {
            let length = prng.below(most);
            (0..length).map(|_| if prng.below(2) == 0 { 'a' } else { 'b' }).collect()
        };
        for _ in 0..300 {
            let mut keys: Vec<String> = (0..12).map(|_| text(6)).collect();
            keys.retain(|key| !key.is_empty());
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
    fn case_is_ignored_with_ignore_case() {
        let entry = |key: &str, line| MapEntry { key: key.to_owned(), value: "v".to_owned(), line };
        let map = TextMap::new(MapKind::Exact, true, vec![entry("A.Example", 1)]).expect("a map");
        assert_eq!(find(&map, "a.exAMPLE"), Some("v"));
        let twice = vec![entry("a", 4), entry("B", 2), entry("b", 9)];
        assert_eq!(TextMap::new(MapKind::Suffix, false, twice.clone()).map(|map| map.len()), Ok(3));
        let fault = TextMap::new(MapKind::Suffix, true, twice);
        assert_eq!(fault, Err(MapFault::SameKey { first: 2, second: 9 }));
    }

    #[test]
    fn smallest_range_of_addresses_wins() {
        let pairs = [
            ("10.0.0.0/8", "1"),
            ("10.1.0.0/16", "2"),
            ("10.1.2.3", "3"),
            ("::/0", "4"),
            ("2001:db8::/32", "5"),
            ("192.0.2.128/25", "1"),
        ];
        let map = map(MapKind::Address, &pairs);
        for (text, expected) in [
            ("10.0.0.0", Some("1")),
            ("10.255.255.255", Some("1")),
            ("10.1.255.0", Some("2")),
            ("10.1.2.3", Some("3")),
            ("::ffff:10.1.2.3", Some("3")),
            ("10.1.2.4", Some("2")),
            ("11.0.0.0", None),
            ("192.0.2.127", None),
            ("192.0.2.255", Some("1")),
            ("::1", Some("4")),
            ("2001:db8:ffff::", Some("5")),
            ("2001:db9::", Some("4")),
            ("10.1.2.3:80", None),
            ("host", None),
            ("", None),
        ] {
            assert_eq!(find(&map, text), expected, "{text}");
        }
        let mut shown: Vec<String> = map.entries().map(|(key, _)| key).collect();
        let mut written: Vec<&str> = pairs.iter().map(|(key, _)| *key).collect();
        shown.sort();
        written.sort_unstable();
        assert_eq!(shown, written);
        let wrong = vec![MapEntry { key: "10.0.0.1/8".to_owned(), value: "v".to_owned(), line: 3 }];
        let fault = TextMap::new(MapKind::Address, false, wrong);
        assert!(matches!(fault, Err(MapFault::Key { line: 3, .. })), "{fault:?}");
    }

    #[test]
    fn first_regular_expression_that_matches_wins() {
        let map = map(MapKind::Regex, &[("^/v[0-9]+/", "1"), ("^/v1/a", "2"), ("[.]js$", "2")]);
        for (text, expected) in
            [("/v1/a", Some("1")), ("/x.js", Some("2")), ("/v/a", None), ("/x.jsx", None)]
        {
            assert_eq!(find(&map, text), expected, "{text}");
        }
        let long = format!("/v1/{}", "a".repeat(MATCHED_BYTES_MAX));
        assert_eq!(find(&map, &long), None);
        let entry = |key: String, line| MapEntry { key, value: "v".to_owned(), line };
        for (key, line) in [("(", 1), ("(a|b)*a(a|b){30}", 2)] {
            let fault = TextMap::new(MapKind::Regex, false, vec![entry(key.to_owned(), line)]);
            assert!(matches!(fault, Err(MapFault::Key { line: at, .. }) if at == line), "{key}");
        }
        let many = (0..=PATTERNS_MAX).map(|at| entry(format!("^{at}$"), at)).collect();
        assert_eq!(TextMap::new(MapKind::Regex, false, many), Err(MapFault::TooMany(100)));
    }

    /// Goal: a map that was changed key by key equals one that was made from its entries.
    #[test]
    fn changed_map_finds_what_a_new_one_finds() {
        let mut prng = tidegate_base::Prng::new(11);
        for kind in [MapKind::Exact, MapKind::Prefix, MapKind::Suffix, MapKind::Address] {
            let mut known: BTreeMap<String, String> = BTreeMap::new();
            let mut map = TextMap::empty(kind, false);
            for step in 0..300 {
                let key = match kind {
                    MapKind::Address => {
                        let bits = 29 + prng.below(4) as u32;
                        let first = prng.below(16) as u32 & u32::MAX << (32 - bits);
                        format!("{}/{bits}", core::net::Ipv4Addr::from(first))
                    }
                    _ => {
                        let length = 1 + prng.below(4);
                        (0..length).map(|_| if prng.below(2) == 0 { 'a' } else { 'b' }).collect()
                    }
                };
                let written = key.strip_suffix("/32").unwrap_or(&key).to_owned();
                if prng.below(3) == 0 {
                    let removed = map.without(&key);
                    assert_eq!(removed.is_some(), known.remove(&written).is_some(), "{key}");
                    map = removed.unwrap_or(map);
                } else {
                    let value = format!("v{}", step % 7);
                    let (changed, is_new) = map.with(&key, &value).expect("the key fits");
                    assert_eq!(is_new, known.insert(written, value.clone()).is_none(), "{key}");
                    assert_eq!(changed.value_of(&key), Some(value.as_str()));
                    map = changed;
                }
                let mut entries: Vec<(String, String)> =
                    map.entries().map(|(key, value)| (key, value.to_owned())).collect();
                entries.sort();
                assert!(entries.iter().map(|(k, v)| (k, v)).eq(&known), "{kind:?}");
                let pairs: Vec<(&str, &str)> =
                    known.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                let fresh = super::tests::map(kind, &pairs);
                let probe = match kind {
                    MapKind::Address => {
                        core::net::Ipv4Addr::from(prng.below(20) as u32).to_string()
                    }
                    _ => "abab".chars().skip(prng.below(4) as usize).collect(),
                };
                assert_eq!(find(&map, &probe), find(&fresh, &probe), "{kind:?} {probe}");
            }
        }
        assert!(TextMap::empty(MapKind::Exact, false).with("", "v").is_err());
        assert!(TextMap::empty(MapKind::Regex, false).with("(", "v").is_err());
    }
}
