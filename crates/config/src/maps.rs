//! Reads `[map.NAME]`, and files with the entries of maps.
//! In: the root table of the file; the text of a file with entries. Out: checked maps.
//! Never: opens a file; see `file_contents.rs`.
//! Limits: those of `model/text_map.rs`.

use core::ops::Range;

use crate::field_test;
use crate::findings::{Finding, Owner};
use crate::keys::MAP;
use crate::listeners::{refused, unknown_name};
use crate::model::{Config, MapEntry, MapFault, MapKind, TextMap, ValueMap};
use crate::pattern;
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::{Located, Table, wrong_type};

/// The maps of a file.
pub(crate) struct Maps {
    /// The maps, in file order.
    pub(crate) maps: Vec<ValueMap>,
    /// Byte range of each map's name, in the same order.
    pub(crate) places: Vec<Range<usize>>,
    /// By map: the places of its values in `entries`, in the order of the entries.
    value_places: Vec<Vec<Range<usize>>>,
    /// They are those of a checked configuration. A pool that a value names may have been removed since.
    pub(crate) is_checked: bool,
}

impl Maps {
    /// The index of the map of this name. Notes an error if there is none.
    pub(crate) fn find(&self, name: &Located, notes: &mut Notes) -> Option<usize> {
        let found = self.maps.iter().position(|map| map.name == name.text);
        if found.is_none() {
            let known: Vec<&str> = self.maps.iter().map(|map| map.name.as_str()).collect();
            notes.error(unknown_name("map", name, &known));
        }
        found
    }

    /// The maps of a checked configuration, whose places are not known.
    pub(crate) fn of(maps: &[ValueMap]) -> Self {
        let places = vec![0..0; maps.len()];
        let value_places = vec![Vec::new(); maps.len()];
        Self { maps: maps.to_vec(), places, value_places, is_checked: true }
    }

    /// The values of a map in the configuration itself, by their numbers, with the place of the first entry of each.
    pub(crate) fn values(&self, map: usize) -> Vec<Located> {
        let (Some(map), Some(places)) = (self.maps.get(map), self.value_places.get(map)) else {
            return Vec::new();
        };
        let place = |line: usize| places.get(line).cloned().unwrap_or_default();
        let values = map.table.values().iter();
        values.map(|(text, line)| Located { text: text.clone(), place: place(*line) }).collect()
    }
}

/// Reads all maps, in file order.
pub(crate) fn read(file: &Table<'_>, notes: &mut Notes) -> Maps {
    let mut found =
        Maps { maps: Vec::new(), places: Vec::new(), value_places: Vec::new(), is_checked: false };
    for (name, value) in file.open_fields("map", notes) {
        if let Err(complaint) = pattern::check_name(&name.text) {
            notes.error(refused("map", &name, complaint));
        }
        if MAP.key(&name.text).is_some() && value.get_ref().as_table().is_none() {
            let note = Note::new(Kind::Missing, name.place, "[map] needs a name");
            notes.error(note.help(
                "write [map.NAME], and pool = { map = \"NAME\", key = \"{host}\" } in `proxy` of a route",
            ));
            continue;
        }
        found.places.push(name.place);
        let mut map = ValueMap {
            name: name.text,
            file: None,
            kind: MapKind::Exact,
            ignore_case: false,
            table: TextMap::default(),
        };
        let table = Table::open(&MAP, value, notes);
        found
            .value_places
            .push(table.map_or_else(Vec::new, |table| read_one(&table, &mut map, notes)));
        notes.places.assign(Owner::Map(found.maps.len()));
        found.maps.push(map);
    }
    found
}

/// Reads a map. Returns the places of its values in the configuration itself.
fn read_one(table: &Table<'_>, map: &mut ValueMap, notes: &mut Notes) -> Vec<Range<usize>> {
    table.set_word("kind", &mut map.kind, notes);
    table.set_flag("ignore-case", &mut map.ignore_case, notes);
    let (file, entries) = (table.value("file"), table.value("entries"));
    match (file.is_some(), entries.is_some()) {
        (true, true) => {
            let what = "a map cannot have both `file` and `entries`";
            let note = Note::new(Kind::Conflict, table.key_place("file"), what);
            notes.error(note.help("remove `file` or `entries`"));
        }
        (false, false) => {
            let note = Note::new(Kind::Missing, table.place.clone(), "the map has no entries");
            notes.error(
                note.help("write file = \"hosts.map\", or entries = { \"a.example\" = \"app\" }"),
            );
        }
        (true, false) => {
            if let Some(path) = table.text("file", notes) {
                let full = notes.resolve(&path.text);
                notes.places.mark(full.clone(), path.place);
                map.file = Some(full);
            }
        }
        (false, true) => return read_entries(table, map, notes),
    }
    Vec::new()
}

fn read_entries(table: &Table<'_>, map: &mut ValueMap, notes: &mut Notes) -> Vec<Range<usize>> {
    let (mut entries, mut names, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in table.open_fields("entries", notes) {
        let Some(text) = value.get_ref().as_str() else {
            notes.error(wrong_type("a value of `entries`", value, "a string"));
            continue;
        };
        if let Err(what) = TextMap::check_key(map.kind, map.ignore_case, &name.text) {
            let what = format!("{} cannot be a key: {what}", quoted(&name.text));
            notes.error(Note::new(Kind::Value, name.place, what));
            continue;
        }
        entries.push(MapEntry { key: name.text, value: text.to_owned(), line: places.len() });
        names.push(name.place);
        places.push(value.span());
    }
    match TextMap::new(map.kind, map.ignore_case, entries) {
        Ok(table) => {
            for (at, key) in table.unmatchable_keys() {
                let place = names.get(at).cloned().unwrap_or_default();
                notes.warn(field_test::hopeless(&Located { text: key.to_owned(), place }));
            }
            map.table = table;
        }
        // TOML itself refuses the same key twice.
        Err(MapFault::SameKey { second, .. }) => {
            let place = names.get(second).cloned().unwrap_or_default();
            let what = "this key is already in the map, written differently";
            notes.error(Note::new(Kind::Duplicate, place, what).help("remove the duplicate"));
        }
        Err(MapFault::Key { line, what }) => {
            let place = names.get(line).cloned().unwrap_or_default();
            notes.error(Note::new(Kind::Value, place, what));
        }
        Err(MapFault::TooMany(most)) => {
            let what = format!("the map has {} keys", names.len());
            let note = Note::new(Kind::Value, table.key_place("entries"), what);
            notes.error(note.allowed(format!("up to {most} keys")));
        }
    }
    places
}

/// Reads a file with entries: a key and a value in each line. `#` begins a comment.
///
/// # Errors
/// The line that is wrong, and why.
pub(crate) fn parse_file(text: &str, kind: MapKind, ignore_case: bool) -> Result<TextMap, String> {
    let mut entries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(key) = words.next() else { continue };
        let (Some(value), None) = (words.next(), words.next()) else {
            let line = line.trim().escape_debug();
            return Err(format!(
                "line {}: {line}: not of the form KEY VALUE, separated by spaces",
                number + 1
            ));
        };
        entries.push(MapEntry { key: key.to_owned(), value: value.to_owned(), line: number + 1 });
    }
    TextMap::new(kind, ignore_case, entries).map_err(|fault| match fault {
        MapFault::SameKey { first, second } => {
            format!("line {second}: this key is already in line {first}")
        }
        MapFault::Key { line, what } => format!("line {line}: this key cannot be used: {what}"),
        MapFault::TooMany(most) => format!("more than {most} keys"),
    })
}

/// Warnings about regular expressions in files that match no text, once the files of maps are read.
pub(crate) fn unmatchable_keys(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, map) in config.maps.iter().enumerate() {
        let Some(path) = &map.file else { continue };
        findings.extend(map.table.unmatchable_keys().map(|(_, key)| Finding {
            kind: Kind::NoEffect,
            owner: Owner::Map(index),
            subject: path.clone(),
            what: format!("no text matches the regular expression {}", quoted(key)),
            help: Some("remove the key, or correct it".to_owned()),
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KEY_BYTES_MAX;

    #[test]
    fn file_has_a_key_and_a_value_in_each_line() {
        let text = "# hosts\na.example  app\n\n\tb.example\tother # new\r\nc.example app\n";
        let map = parse_file(text, MapKind::Exact, false).expect("a file");
        assert_eq!(map.values(), [("app".to_owned(), 2), ("other".to_owned(), 4)]);
        assert_eq!(map.find(&mut b"b.example".to_vec()), Some(1));
        assert_eq!(map.find(&mut b"c.example".to_vec()), Some(0));
        assert_eq!(map.find(&mut b"d.example".to_vec()), None);
        for (text, fault) in [
            ("a b\na\n", "line 2: a: not of the form KEY VALUE, separated by spaces"),
            ("a b c\n", "line 1: a b c: not of the form KEY VALUE, separated by spaces"),
            ("a b\n\nb c\na c\n", "line 4: this key is already in line 1"),
        ] {
            assert_eq!(parse_file(text, MapKind::Prefix, false).err().as_deref(), Some(fault));
        }
        let long = format!("{} app", "k".repeat(KEY_BYTES_MAX + 1));
        assert!(parse_file(&long, MapKind::Exact, false).is_err());
        assert!(parse_file(&long[1..], MapKind::Exact, false).is_ok());
    }

    /// 100,000 keys are read without a comparison of each with each, which would take minutes.
    #[test]
    fn large_file_is_read() {
        use core::fmt::Write as _;
        let mut text = String::new();
        for number in 0..100_000 {
            let _ = writeln!(text, "host-{number}.example pool-{}", number % 50);
        }
        for kind in [MapKind::Exact, MapKind::Prefix, MapKind::Suffix] {
            let map = parse_file(&text, kind, true).expect("a file");
            assert_eq!((map.len(), map.values().len()), (100_000, 50));
            let found = map.find(&mut b"HOST-77777.example".to_vec());
            let value = found.and_then(|number| map.values().get(number));
            assert_eq!(value.map(|(text, _)| text.as_str()), Some("pool-27"), "{kind:?}");
        }
    }
}
