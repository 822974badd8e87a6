//! The static table (RFC 7541 Appendix A) and the lookup of a name in it.
//! In: an index, or a name. Out: an entry, or the first index of the name.
//! Invariant: finding a name takes one lookup; no two names share a slot.

/// A name and a value.
pub(in crate::http2) type Pair = (&'static [u8], &'static [u8]);

macro_rules! entries {
    ($($name:literal: $value:literal,)*) => {
        /// The entries; index 1 is first.
        pub(super) static ENTRIES: [Pair; LENGTH] = TABLE;
        pub(in crate::http2) const TABLE: [Pair; LENGTH] = [$(($name.as_bytes(), $value.as_bytes()),)*];
    };
}

/// Entries of the static table; the dynamic table begins after it.
pub(in crate::http2) const LENGTH: usize = 61;

entries! {
    ":authority": "",
    ":method": "GET",
    ":method": "POST",
    ":path": "/",
    ":path": "/index.html",
    ":scheme": "http",
    ":scheme": "https",
    ":status": "200",
    ":status": "204",
    ":status": "206",
    ":status": "304",
    ":status": "400",
    ":status": "404",
    ":status": "500",
    "accept-charset": "",
    "accept-encoding": "gzip, deflate",
    "accept-language": "",
    "accept-ranges": "",
    "accept": "",
    "access-control-allow-origin": "",
    "age": "",
    "allow": "",
    "authorization": "",
    "cache-control": "",
    "content-disposition": "",
    "content-encoding": "",
    "content-language": "",
    "content-length": "",
    "content-location": "",
    "content-range": "",
    "content-type": "",
    "cookie": "",
    "date": "",
    "etag": "",
    "expect": "",
    "expires": "",
    "from": "",
    "host": "",
    "if-match": "",
    "if-modified-since": "",
    "if-none-match": "",
    "if-range": "",
    "if-unmodified-since": "",
    "last-modified": "",
    "link": "",
    "location": "",
    "max-forwards": "",
    "proxy-authenticate": "",
    "proxy-authorization": "",
    "range": "",
    "referer": "",
    "refresh": "",
    "retry-after": "",
    "server": "",
    "set-cookie": "",
    "strict-transport-security": "",
    "transfer-encoding": "",
    "user-agent": "",
    "vary": "",
    "via": "",
    "www-authenticate": "",
}

/// Factors of `hash_name`, found by trial: the names of the static table have different slots.
const FIRST_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND_FACTOR: u64 = 0x1600_a35a_0999_50d9;

/// A hash of up to 16 bytes of `bytes`: those at its ends.
#[inline]
pub(super) const fn hash_ends(bytes: &[u8]) -> u32 {
    let (first, last) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                (u32::from_le_bytes(*first) as u64, u32::from_le_bytes(*last) as u64)
            }
            _ => match bytes {
                [] => (0, 0),
                [.., last] => {
                    (bytes[0] as u64 | (bytes[bytes.len() / 2] as u64) << 8, *last as u64)
                }
            },
        },
    };
    let mixed = first.wrapping_mul(FIRST_FACTOR).rotate_left(32) ^ last ^ bytes.len() as u64;
    (mixed.wrapping_mul(SECOND_FACTOR) >> 32) as u32
}

/// Slots of `SLOTS`: about five for each name.
const SLOTS_LENGTH: usize = 256;

/// For each value of the hash's low byte, the first index of the name with this hash; 0 if there is none.
static SLOTS: [u8; SLOTS_LENGTH] = slots();

const fn slot_of(hash: u32) -> usize {
    hash as usize % SLOTS_LENGTH
}

const fn slots() -> [u8; SLOTS_LENGTH] {
    let mut slots = [0; SLOTS_LENGTH];
    let mut index = LENGTH;
    while index > 0 {
        let name = TABLE[index - 1].0;
        let slot = slot_of(hash_ends(name));
        let other = slots[slot] as usize;
        assert!(other == 0 || is_same(TABLE[other - 1].0, name), "two names share a slot");
        slots[slot] = index as u8;
        index -= 1;
    }
    slots
}

pub(in crate::http2) const fn is_same(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}

/// For each first index of a name, how many entries have this name. They follow each other.
static COUNTS: [u8; LENGTH + 1] = counts();

const fn counts() -> [u8; LENGTH + 1] {
    let mut counts = [0; LENGTH + 1];
    let mut index = 1;
    while index <= LENGTH {
        let mut end = index + 1;
        while end <= LENGTH && is_same(TABLE[end - 1].0, TABLE[index - 1].0) {
            end += 1;
        }
        counts[index] = (end - index) as u8;
        index = end;
    }
    counts
}

/// Whether `left` and `right` are equal, without a call for the short strings that names and values are.
#[inline]
pub(super) fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let ends = |bytes: &[u8]| {
        let first = bytes.first_chunk::<8>().map(|chunk| u64::from_le_bytes(*chunk));
        first.zip(bytes.last_chunk::<8>().map(|chunk| u64::from_le_bytes(*chunk)))
    };
    left.len() == right.len()
        && match left.len() {
            0 => true,
            1..8 => is_equal_short(left, right),
            8..=16 => ends(left) == ends(right),
            _ => left == right,
        }
}

/// Whether strings of the same length, from 1 to 7 bytes, are equal.
#[inline]
fn is_equal_short(left: &[u8], right: &[u8]) -> bool {
    let ends = |bytes: &[u8]| {
        let first = bytes.first_chunk::<4>().map(|chunk| u32::from_le_bytes(*chunk));
        first.zip(bytes.last_chunk::<4>().map(|chunk| u32::from_le_bytes(*chunk)))
    };
    match left.len() {
        1..4 => left.iter().eq(right),
        _ => ends(left) == ends(right),
    }
}

/// The first index of `name`, whose `hash_ends` is `hash`.
#[inline]
pub(super) fn find(name: &[u8], hash: u32) -> Option<usize> {
    let index = usize::from(SLOTS[slot_of(hash)]);
    let &(found, _) = ENTRIES.get(index.wrapping_sub(1))?;
    is_equal(found, name).then_some(index)
}

/// The index of the entry with `value`, where `first` is the first index of its name.
#[inline]
pub(super) fn find_value(first: usize, value: &[u8]) -> Option<usize> {
    let indexes = first..first + usize::from(COUNTS[first]);
    indexes.into_iter().find(|index| is_equal(ENTRIES[index - 1].1, value))
}

/// The index of a name that must be in the table; a `const` context fails otherwise.
pub(super) const fn index_of(name: &str) -> usize {
    let mut index = 0;
    while !is_same(TABLE[index].0, name.as_bytes()) {
        index += 1;
    }
    index + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found() {
        for (index, (name, value)) in (1..).zip(ENTRIES) {
            let first = find(name, hash_ends(name)).unwrap();
            assert!(first <= index && ENTRIES[first - 1].0 == name);
            assert_eq!(find_value(first, value), Some(index));
            assert_eq!(find_value(first, b"no such value"), None);
        }
        assert_eq!(ENTRIES[15], (&b"accept-encoding"[..], &b"gzip, deflate"[..]));
        assert_eq!((index_of("cookie"), index_of("www-authenticate")), (32, 61));
    }

    #[test]
    fn equality_is_that_of_slices() {
        let text: Vec<u8> = (0..40).collect();
        for length in 0..=text.len() {
            assert!(is_equal(&text[..length], &text[..length]));
            assert!(length == text.len() || !is_equal(&text[..length], &text[..=length]));
            for at in 0..length {
                let mut other = text.clone();
                other[at] ^= 0x40;
                assert!(!is_equal(&text[..length], &other[..length]), "{length} {at}");
            }
        }
    }

    #[test]
    fn other_names_are_not_found() {
        for name in ["", "a", "x-request-id", "Host", "hos", ":statu", "acceptx"] {
            assert_eq!(find(name.as_bytes(), hash_ends(name.as_bytes())), None, "{name}");
        }
    }
}
