//! Encodes header blocks.
//! In: fields, in order. Out: the encoded block, appended to a buffer.
//! Never: indexes a sensitive field; takes memory for a table before a field repeats.
//! Limits: the dynamic table is bounded by the peer's setting and by the caller's own bound; a lookup reads up to `PROBES_MAX`
//! entries.
//! Invariant: a block begins with the size updates that are due. The table has the same content as the peer's table.
//!
//! The table is searched by the hash of the name: the user's part of its memory has a bucket for each value of
//! the hash, with the number of the newest entry, and each entry links to the number of the next older one. A
//! number that is no longer in the table ends the search, so eviction leaves buckets and links alone.

use super::table::Table;
use super::{
    FIELD_OVERHEAD_BYTES, HUFFMAN, INDEXED, INSERTED, NEVER_INDEXED, NOT_INDEXED, SIZE_UPDATE,
    TABLE_BYTES_INITIAL, TABLE_BYTES_MAX, huffman, integer, static_table,
};

/// Bits of the hash that choose a bucket.
const BUCKET_BITS: u32 = 6;
/// Bytes of all buckets: each is a number of 16 bits.
const BUCKETS_BYTES: usize = 2 << BUCKET_BITS;
/// Most entries that a lookup compares. Names and values come from peers, which could make all names share a bucket.
const PROBES_MAX: usize = 16;
/// How many recent fields are remembered to see whether a field repeats.
const RECENT_LENGTH: usize = 32;
/// Shorter values of `cookie` are never indexed: they may be guessed (RFC 7541 section 7.1.3).
const COOKIE_BYTES_MIN: usize = 20;
/// A field larger than this share of the table is not inserted, because it would evict most other entries.
const SHARE_MAX: usize = 2;

/// Whether a field may enter the dynamic tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Indexing {
    /// The encoder decides: a field is inserted when it repeats. `authorization`, `proxy-authorization`,
    /// `set-cookie` and short `cookie` values are encoded as `Never`.
    Auto,
    /// Not indexed, by this encoder and by every later one (RFC 7541 section 6.2.3).
    Never,
}

/// The encoder of one connection. It holds the dynamic table, and no memory until it inserts into it.
#[derive(Debug)]
pub struct Encoder {
    /// The entries that this encoder inserted. The user's part of its memory is the buckets.
    table: Table<BUCKETS_BYTES>,
    /// Maximum number of bytes that this side spends on the table, whatever the peer allows.
    own_limit: u32,
    /// The peer's limit.
    peer_limit: u32,
    /// The lowest size that the next block must state; `None` if no update is due.
    due: Option<u32>,
    /// The number of the newest entry, modulo 2^16. The entry at index `i` has the number `newest - i`.
    newest: u16,
    /// Where the next recent field is written.
    recent_at: u16,
    /// Hashes of recent fields, and of recent names, that were not in the table.
    recent: [u16; RECENT_LENGTH],
}

const _: () = assert!(size_of::<Encoder>() <= 144, "one per connection");

/// The state on which the encoding of a field depends, in addition to the field, while no other block is encoded in between.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct EncoderState {
    /// The number of the newest entry.
    newest: u16,
    /// Where the next recent field is written.
    recent_at: u16,
    /// Whether the next block begins with a size update.
    is_due: bool,
}

impl EncoderState {
    /// Whether the next block begins with its fields.
    pub(crate) const fn is_settled(self) -> bool {
        !self.is_due
    }
}

/// The entries of the tables that match a field.
struct Found {
    /// The index of an entry with the name, in both tables.
    name: Option<usize>,
    /// The index of an entry with the name and the value, in both tables.
    field: Option<usize>,
}

impl Encoder {
    /// Creates an encoder whose dynamic table has at most `table_bytes_max` bytes (at most `TABLE_BYTES_MAX`;
    /// 0 for no table), and never more than the peer allows.
    #[must_use]
    pub const fn new(table_bytes_max: u32) -> Self {
        let own_limit =
            if table_bytes_max < TABLE_BYTES_MAX { table_bytes_max } else { TABLE_BYTES_MAX };
        // The peer assumes `TABLE_BYTES_INITIAL` until the first block states a lower size.
        let is_lower = own_limit < TABLE_BYTES_INITIAL;
        Self {
            table: Table::new(if is_lower { own_limit } else { TABLE_BYTES_INITIAL }),
            own_limit,
            peer_limit: TABLE_BYTES_INITIAL,
            due: if is_lower { Some(own_limit) } else { None },
            newest: 0,
            recent_at: 0,
            recent: [0; RECENT_LENGTH],
        }
    }

    /// Sets the peer's limit. Call it for each SETTINGS_HEADER_TABLE_SIZE received, before the SETTINGS are
    /// acknowledged. The next block begins with the size update that this requires.
    pub fn set_peer_table_limit(&mut self, bytes: u32) {
        let size = bytes.min(self.own_limit);
        // A lowered limit must be confirmed even if the table is small enough (RFC 9113 section 4.3.1).
        if size != self.table.size_max() || bytes < self.peer_limit {
            self.due = Some(self.due.map_or(size, |due| due.min(size)));
        }
        self.peer_limit = bytes;
        self.table.resize(size);
    }

    /// Begins a block at the end of `out`. The block must be sent, and before any later block: from now on
    /// the table of the peer depends on it.
    #[inline]
    pub fn begin<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BlockEncoder<'a> {
        if let Some(lowest) = self.due.take() {
            integer::encode(out, 5, SIZE_UPDATE, lowest as usize);
            let size = self.table.size_max();
            if size != lowest {
                integer::encode(out, 5, SIZE_UPDATE, size as usize);
            }
        }
        BlockEncoder { encoder: self, out }
    }

    /// Gives back the memory of the table. Call it when the connection is idle. The next block empties the
    /// peer's table first, which costs a few bytes, and inserts its repeated fields again.
    pub fn release(&mut self) {
        if self.table.count() > 0 {
            let size = self.table.size_max();
            self.table.resize(0);
            self.table.resize(size);
            self.due = Some(0);
        }
        self.table.shrink();
    }

    /// The state. A block that leaves it unchanged is encoded to the same bytes if it is encoded again at once.
    pub(crate) const fn state(&self) -> EncoderState {
        EncoderState { newest: self.newest, recent_at: self.recent_at, is_due: self.due.is_some() }
    }

    /// Bytes of memory that the table holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.table.held_bytes()
    }

    /// Searches both tables for a field whose name has the hash `hash`.
    #[inline]
    fn find(&self, name: &[u8], value: &[u8], hash: u32) -> Found {
        let known = static_table::find(name, hash);
        let mut found = Found { name: known, field: None };
        if let Some(first) = known {
            found.field = static_table::find_value(first, value);
            if found.field.is_some() {
                return found;
            }
        }
        let Some(buckets) = self.table.prefix() else { return found };
        let mut number = read_bucket(buckets, hash);
        for _ in 0..PROBES_MAX {
            let index = usize::from(self.newest.wrapping_sub(number));
            let Some(entry) = self.table.get(index) else { break };
            if static_table::is_equal(entry.name, name) {
                found.name.get_or_insert(index + DYNAMIC_FIRST);
                if static_table::is_equal(entry.value, value) {
                    found.field = Some(index + DYNAMIC_FIRST);
                    break;
                }
            }
            number = entry.link;
        }
        found
    }

    fn insert(&mut self, name: &[u8], value: &[u8], hash: u32) {
        let next = self.newest.wrapping_add(1);
        let link = self.table.prefix().map_or(self.newest, |buckets| read_bucket(buckets, hash));
        if self.table.insert(name, value, link) {
            self.newest = next;
            if let Some(buckets) = self.table.prefix_mut() {
                let at = bucket_at(hash);
                buckets[at..at + 2].copy_from_slice(&next.to_le_bytes());
            }
        }
    }

    /// Whether a field that the table lacks is worth inserting: the same field was encoded recently, or its
    /// name, which would have no index otherwise.
    fn is_worth_inserting(&mut self, name: &[u8], value: &[u8], hash: u32, is_named: bool) -> bool {
        let size = name.len() + value.len() + FIELD_OVERHEAD_BYTES;
        if size > self.table.size_max() as usize / SHARE_MAX {
            return false;
        }
        let is_recent = self.note_recent(hash ^ hash_value(value));
        let is_name_recent = !is_named && self.note_recent(hash);
        is_recent || is_name_recent
    }

    /// Remembers a hash. Returns whether it is remembered already.
    fn note_recent(&mut self, hash: u32) -> bool {
        let short = (hash ^ hash >> 16) as u16;
        if self.recent.contains(&short) {
            return true;
        }
        self.recent[usize::from(self.recent_at) % RECENT_LENGTH] = short;
        self.recent_at = self.recent_at.wrapping_add(1);
        false
    }
}

/// A block that is being encoded.
#[derive(Debug)]
pub struct BlockEncoder<'a> {
    encoder: &'a mut Encoder,
    out: &'a mut Vec<u8>,
}

impl BlockEncoder<'_> {
    /// Appends a field. The name must be in lower case already.
    pub fn encode_field(&mut self, name: &[u8], value: &[u8], indexing: Indexing) {
        let hash = static_table::hash_ends(name);
        let found = self.encoder.find(name, value, hash);
        if indexing == Indexing::Never || is_sensitive(&found, value) {
            self.encode_literal(NEVER_INDEXED, 4, found.name, name, value);
        } else if let Some(index) = found.field {
            integer::encode(self.out, 7, INDEXED, index);
        } else if self.encoder.is_worth_inserting(name, value, hash, found.name.is_some()) {
            self.encode_literal(INSERTED, 6, found.name, name, value);
            self.encoder.insert(name, value, hash);
        } else {
            self.encode_literal(NOT_INDEXED, 4, found.name, name, value);
        }
    }

    /// Appends `:status` with `status`, which has three digits.
    #[inline]
    pub fn encode_status(&mut self, status: u16) {
        let index = match status {
            200 => const { static_table::index_of(":status") },
            204 => const { static_table::index_of(":status") + 1 },
            206 => const { static_table::index_of(":status") + 2 },
            304 => const { static_table::index_of(":status") + 3 },
            400 => const { static_table::index_of(":status") + 4 },
            404 => const { static_table::index_of(":status") + 5 },
            500 => const { static_table::index_of(":status") + 6 },
            _ => {
                let digits = [status / 100 % 10, status / 10 % 10, status % 10];
                let digits = digits.map(|digit| b'0' + digit as u8);
                return self.encode_field(b":status", &digits, Indexing::Auto);
            }
        };
        self.out.push(INDEXED | index as u8);
    }

    #[inline]
    fn encode_literal(
        &mut self,
        flags: u8,
        prefix_bits: u32,
        name_index: Option<usize>,
        name: &[u8],
        value: &[u8],
    ) {
        integer::encode(self.out, prefix_bits, flags, name_index.unwrap_or(0));
        if name_index.is_none() {
            encode_string(self.out, name);
        }
        encode_string(self.out, value);
    }
}

/// The first index of the dynamic table.
const DYNAMIC_FIRST: usize = static_table::LENGTH + 1;

/// Whether RFC 7541 section 7.1 advises against indexing a field. All names that matter are in the static
/// table.
#[inline]
const fn is_sensitive(found: &Found, value: &[u8]) -> bool {
    const AUTHORIZATION: usize = static_table::index_of("authorization");
    const PROXY_AUTHORIZATION: usize = static_table::index_of("proxy-authorization");
    const SET_COOKIE: usize = static_table::index_of("set-cookie");
    const COOKIE: usize = static_table::index_of("cookie");
    match found.name {
        Some(AUTHORIZATION | PROXY_AUTHORIZATION | SET_COOKIE) => true,
        Some(COOKIE) => value.len() < COOKIE_BYTES_MIN,
        _ => false,
    }
}

/// Appends a string, Huffman-coded if this makes it shorter.
#[inline]
fn encode_string(out: &mut Vec<u8>, string: &[u8]) {
    let coded_bytes = huffman::encoded_bytes(string);
    if coded_bytes < string.len() {
        integer::encode(out, 7, HUFFMAN, coded_bytes);
        huffman::encode(out, string);
    } else {
        integer::encode(out, 7, 0, string.len());
        out.extend_from_slice(string);
    }
}

/// The start of the bucket of a hash.
#[inline]
const fn bucket_at(hash: u32) -> usize {
    2 * (hash >> (u32::BITS - BUCKET_BITS)) as usize
}

#[inline]
const fn read_bucket(buckets: &[u8; BUCKETS_BYTES], hash: u32) -> u16 {
    let at = bucket_at(hash);
    u16::from_le_bytes([buckets[at], buckets[at + 1]])
}

/// A hash of a value: of its ends and its middle. Dates and identifiers differ there. It is not 0 for an empty
/// value, so that a field and its name have different hashes.
fn hash_value(value: &[u8]) -> u32 {
    const EMPTY: u32 = 0x9e37_79b9;
    let middle = value.get(value.len() / 2..).and_then(<[u8]>::first_chunk::<8>);
    let middle = middle.map_or(EMPTY, |middle| static_table::hash_ends(middle));
    static_table::hash_ends(value).rotate_left(16).wrapping_add(middle.rotate_left(5))
}
