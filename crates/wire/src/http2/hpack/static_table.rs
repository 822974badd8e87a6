//! The static table (RFC 7541 Appendix A) and the look-up of a name in it.
//! In: an index, or a name. Out: an entry, or the first index of the name.
//! Invariant: finding a name takes one look-up; no two names share a slot.

/// A name and a value.
pub(super) type Pair = (&'static [u8], &'static [u8]);

macro_rules! entries {
    ($($name:literal: $value:literal,)*) => {
        /// The entries; index 1 comes first.
        pub(super) static ENTRIES: [Pair; LENGTH] = TABLE;
        const TABLE: [Pair; LENGTH] = [$(($name.as_bytes(), $value.as_bytes()),)*];
    };
}

/// Entries of the static table; the dynamic table begins after it.
pub(super) const LENGTH: usize = 61;

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

const fn is_same(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}

/// The first index of `name`, whose `hash_ends` is `hash`.
#[inline]
pub(super) fn find(name: &[u8], hash: u32) -> Option<usize> {
    let index = usize::from(SLOTS[slot_of(hash)]);
    let &(found, _) = ENTRIES.get(index.wrapping_sub(1))?;
    (found == name).then_some(index)
}

/// The index of the entry with `name` and `value`, where `first` is the first index of `name`.
#[inline]
pub(super) fn find_value(first: usize, name: &[u8], value: &[u8]) -> Option<usize> {
    let same_name = ENTRIES.get(first - 1..)?.iter().take_while(|entry| entry.0 == name);
    same_name.zip(first..).find(|(entry, _)| entry.1 == value).map(|(_, index)| index)
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
            assert_eq!(find_value(first, name, value), Some(index));
            assert_eq!(find_value(first, name, b"no such value"), None);
        }
        assert_eq!(ENTRIES[15], (&b"accept-encoding"[..], &b"gzip, deflate"[..]));
        assert_eq!((index_of("cookie"), index_of("www-authenticate")), (32, 61));
    }

    #[test]
    fn other_names_are_not_found() {
        for name in ["", "a", "x-request-id", "Host", "hos", ":statu", "acceptx"] {
            assert_eq!(find(name.as_bytes(), hash_ends(name.as_bytes())), None, "{name}");
        }
    }
}
