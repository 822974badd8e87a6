//! The entries of a dictionary as bytes, for a file from which they are restored.
//! In: a dictionary; the bytes of entries. Out: the bytes of entries; a dictionary.
//! Never: holds the lock of a part for more than `PLACES_MAX` places or for longer than one piece takes.
//! Limits: `ENTRY_BYTES_MAX` bytes of an entry; `PIECE_BYTES` of entries at once, and one entry more.
//! Invariant: an entry that exists during all calls for a cursor is encoded once: it keeps its place.

use std::collections::VecDeque;

use super::{Content, Dictionary, Entry, KEY_BYTES_MAX, VALUE_BYTES_MAX, Value, lock};

/// Bytes of entries that are encoded at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Places of a part that are examined at once.
const PLACES_MAX: usize = 4096;
/// Maximum number of bytes of an encoded entry, without its length.
pub const ENTRY_BYTES_MAX: usize = KEY_BYTES_MAX + VALUE_BYTES_MAX + 64;

/// The kinds of content.
const FALSE: u8 = 0;
const TRUE: u8 = 1;
const NUMBER: u8 = 2;
const BYTES: u8 = 3;
const LIST: u8 = 4;

/// The place of the entry that is encoded next.
#[derive(Clone, Copy, Default, Debug)]
pub struct EntryCursor {
    part: usize,
    place: usize,
}

impl Dictionary {
    /// A number that grows with each change.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.parts.iter().map(|part| lock(part).changes).fold(0, u64::wrapping_add)
    }

    /// Appends some entries that have not ended, each after its length (four bytes). Returns false if there are no more.
    pub fn encode_entries(&self, cursor: &mut EntryCursor, now: f64, out: &mut Vec<u8>) -> bool {
        let Some(part) = self.parts.get(cursor.part) else { return false };
        let (part, begin) = (lock(part), out.len());
        for _ in 0..PLACES_MAX {
            let Some(place) = part.entries.get(cursor.place) else {
                *cursor = EntryCursor { part: cursor.part + 1, place: 0 };
                break;
            };
            cursor.place += 1;
            if let Some(entry) = place.as_ref().filter(|entry| entry.ends_at > now) {
                encode(entry, out);
            }
            if out.len() - begin >= PIECE_BYTES {
                break;
            }
        }
        true
    }

    /// Stores an encoded entry, unless it has ended. Returns false if the bytes are malformed.
    pub fn add_encoded(&self, bytes: &[u8], now: f64) -> bool {
        let Some((key, ends_at, content)) = decode(bytes) else { return false };
        if ends_at > now {
            // An entry that this dictionary has no room for is left out.
            let _ = self.part(key).store(key, content, ends_at);
        }
        true
    }

    /// Removes all entries, as `clear` of a script.
    pub fn remove_all(&self) {
        self.clear();
    }
}

fn encode(entry: &Entry, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    // A key has up to `KEY_BYTES_MAX` bytes.
    out.extend_from_slice(&(entry.key.len() as u16).to_le_bytes());
    out.extend_from_slice(&entry.key);
    out.extend_from_slice(&entry.ends_at.to_bits().to_le_bytes());
    match &entry.content {
        Content::One(value) => encode_value(value, out),
        Content::List(list) => {
            out.push(LIST);
            out.extend_from_slice(&(list.len() as u32).to_le_bytes());
            for value in list {
                encode_value(value, out);
            }
        }
    }
    let length = (out.len() - begin - 4) as u32;
    for (place, byte) in out.iter_mut().skip(begin).zip(length.to_le_bytes()) {
        *place = byte;
    }
}

fn encode_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Boolean(is) => out.push(if *is { TRUE } else { FALSE }),
        Value::Number(number) => {
            out.push(NUMBER);
            out.extend_from_slice(&number.to_bits().to_le_bytes());
        }
        Value::Bytes(bytes) => {
            out.push(BYTES);
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }
}

/// The key, the end and the content of an encoded entry; `None` if it is malformed.
fn decode(bytes: &[u8]) -> Option<(&[u8], f64, Content)> {
    let mut rest = bytes;
    let length = u16::from_le_bytes(take(&mut rest)?);
    let (key, after) = rest.split_at_checked(usize::from(length))?;
    rest = after;
    let ends_at = f64::from_bits(u64::from_le_bytes(take(&mut rest)?));
    let content = match rest.first() {
        Some(&LIST) => {
            let [_, length @ ..] = take::<5>(&mut rest)?;
            let mut list = VecDeque::new();
            // The stated length is not trusted: each element takes at least a byte.
            for _ in 0..u32::from_le_bytes(length) {
                list.push_back(decode_value(&mut rest)?);
            }
            Content::List(list)
        }
        _ => Content::One(decode_value(&mut rest)?),
    };
    let is_empty_list = matches!(&content, Content::List(list) if list.is_empty());
    (rest.is_empty() && !is_empty_list && !ends_at.is_nan()).then_some((key, ends_at, content))
}

fn decode_value(rest: &mut &[u8]) -> Option<Value> {
    let [kind] = take(rest)?;
    Some(match kind {
        FALSE => Value::Boolean(false),
        TRUE => Value::Boolean(true),
        NUMBER => Value::Number(f64::from_bits(u64::from_le_bytes(take(rest)?))),
        BYTES => {
            let length = u32::from_le_bytes(take(rest)?);
            let (bytes, after) = rest.split_at_checked(length as usize)?;
            *rest = after;
            Value::Bytes(bytes.to_vec())
        }
        _ => return None,
    })
}

fn take<const COUNT: usize>(rest: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::super::{Condition, End};
    use super::*;

    const FOREVER: f64 = f64::INFINITY;

    fn encoded(dictionary: &Dictionary, now: f64) -> Vec<Vec<u8>> {
        let (mut cursor, mut out, mut records) = (EntryCursor::default(), Vec::new(), Vec::new());
        while dictionary.encode_entries(&mut cursor, now, &mut out) {}
        let mut rest = &out[..];
        while !rest.is_empty() {
            let length = u32::from_le_bytes(take(&mut rest).expect("a length")) as usize;
            let (record, after) = rest.split_at(length);
            records.push(record.to_vec());
            rest = after;
        }
        records
    }

    fn restored(records: &[Vec<u8>], bytes_max: usize, now: f64) -> Dictionary {
        let dictionary = Dictionary::new(bytes_max);
        for record in records {
            assert!(dictionary.add_encoded(record, now));
        }
        dictionary
    }

    #[test]
    fn entries_are_restored_with_their_types_and_ends() {
        let dictionary = Dictionary::new(8 << 20);
        let values = [
            Value::Boolean(true),
            Value::Boolean(false),
            Value::Number(-0.5),
            Value::Bytes(vec![0, 255, 10]),
            Value::Bytes(Vec::new()),
        ];
        for (at, value) in values.iter().enumerate() {
            let key = [b'k', at as u8];
            dictionary.set(&key, value.clone(), FOREVER, Condition::Always, 0.0).expect("room");
            dictionary.push(b"list", value.clone(), End::Right, 0.0).expect("room");
        }
        for at in 0..20_000_u32 {
            let (key, value) = (at.to_le_bytes(), Value::Number(f64::from(at)));
            dictionary.set(&key, value, FOREVER, Condition::Always, 0.0).expect("room");
        }
        let ends = |key: &[u8], at: f64| {
            dictionary.set(key, Value::Number(1.0), at, Condition::Always, 0.0).expect("room");
        };
        ends(b"early", 10.0);
        ends(b"late", 30.0);
        let records = encoded(&dictionary, 20.0);
        assert_eq!(records.len(), values.len() + 1 + 20_000 + 1);
        let copy = restored(&records, 8 << 20, 25.0);
        for (at, value) in values.iter().enumerate() {
            assert_eq!(copy.get(&[b'k', at as u8], 25.0), Ok(Some(value.clone())));
            assert_eq!(copy.pop(b"list", End::Left, 25.0), Ok(Some(value.clone())));
        }
        assert_eq!(copy.get(&777_u32.to_le_bytes(), 25.0), Ok(Some(Value::Number(777.0))));
        assert_eq!((copy.end_of(b"early", 25.0), copy.end_of(b"late", 25.0)), (None, Some(30.0)));
        assert_eq!(restored(&records, 8 << 20, 40.0).end_of(b"late", 40.0), None);
    }

    #[test]
    fn smaller_dictionary_takes_what_fits() {
        let dictionary = Dictionary::new(1 << 20);
        for at in 0..1000_u32 {
            let value = Value::Bytes(vec![7; 500]);
            dictionary
                .set(&at.to_le_bytes(), value, FOREVER, Condition::Always, 0.0)
                .expect("room");
        }
        let copy = restored(&encoded(&dictionary, 0.0), 64 * 1024, 0.0);
        let (count, used) = copy.size();
        assert!((50..1000).contains(&count) && used <= 64 * 1024, "{count} {used}");
    }

    #[test]
    fn malformed_entries_are_refused() {
        let dictionary = Dictionary::new(64 * 1024);
        dictionary.push(b"k", Value::Bytes(b"text".to_vec()), End::Left, 0.0).expect("room");
        let record = encoded(&dictionary, 0.0).remove(0);
        let copy = Dictionary::new(64 * 1024);
        for length in 0..record.len() {
            assert!(!copy.add_encoded(&record[..length], 0.0), "{length}");
        }
        assert!(!copy.add_encoded(&[&record[..], b"x"].concat(), 0.0));
        let mut prng = tidegate_base::Prng::new(3);
        for _ in 0..20_000 {
            let mut changed = record.clone();
            let at = prng.below(changed.len() as u64) as usize;
            changed[at] = prng.below(256) as u8;
            copy.add_encoded(&changed, 0.0);
        }
        assert!(copy.size().1 <= 64 * 1024);
    }

    #[test]
    fn every_change_is_counted() {
        let dictionary = Dictionary::new(64 * 1024);
        let mut last = dictionary.changes();
        let mut changes = || {
            let now = dictionary.changes();
            now != core::mem::replace(&mut last, now)
        };
        let value = || Value::Number(1.0);
        let _ = dictionary.set(b"a", value(), FOREVER, Condition::Always, 0.0);
        assert!(changes());
        let _ = dictionary.increase(b"a", 1.0, (None, FOREVER), 0.0);
        assert!(changes());
        let _ = dictionary.expire(b"a", 5.0, 0.0);
        assert!(changes());
        let _ = dictionary.push(b"l", value(), End::Left, 0.0);
        assert!(changes());
        let _ = dictionary.push(b"l", value(), End::Left, 0.0);
        assert!(changes());
        let _ = dictionary.pop(b"l", End::Left, 0.0);
        assert!(changes());
        dictionary.delete(b"a", 0.0);
        assert!(changes());
        let _ = dictionary.get(b"l", 0.0);
        assert!(!changes());
        dictionary.clear();
        assert!(changes());
    }

    #[test]
    fn value_that_changes_keeps_its_place() {
        let dictionary = Dictionary::new(4096);
        for at in 0..100_u32 {
            let value = Value::Bytes(vec![7; at as usize]);
            let _ = dictionary.set(b"k", value, FOREVER, Condition::Always, 0.0);
            let other = Value::Bytes(vec![7; 1000]);
            let _ = dictionary.set(&at.to_le_bytes(), other, FOREVER, Condition::Always, 0.0);
            assert_eq!(dictionary.part(b"k").places.get(&b"k"[..]), Some(&0));
        }
    }
}
