//! HPACK (RFC 7541): header compression for HTTP/2.
//! In: one whole header block (HEADERS and its CONTINUATION frames, joined), or the fields of a block to
//! encode. Out: fields, one at a time, or the encoded block; or a `Fault`.
//! Never: panics on any input; allocates per field; decodes a block beyond its bounds; indexes a field that
//! must not be indexed (RFC 7541 section 7.1).
//! Limits: `TABLE_BYTES_MAX` for a dynamic table; `Limits` and `OVERRUN_FACTOR` for a block that is decoded.
//! Invariant: after each block both ends hold the same dynamic table; a decoder that cannot keep this promise
//! is broken and decodes nothing more.
//!
//! Every block must be decoded, in the order of arrival, even if its stream is gone: the tables of a
//! connection depend on all of its blocks. In the same way every block that was begun must be sent, in order.

mod decoder;
mod encoder;
mod fault;
pub(crate) mod fuzz;
mod huffman;
mod huffman_code;
mod integer;
pub(super) mod static_table;
mod table;

pub use decoder::{Decoded, Decoder, FieldSink, Known, Limits, Scratch, TableUse, Undelivered};
pub(crate) use encoder::EncoderState;
pub use encoder::{BlockEncoder, Encoder, Indexing};
pub use fault::Fault;

/// The table size that both ends assume until SETTINGS_HEADER_TABLE_SIZE changes it (RFC 9113 section
/// 6.5.2).
pub const TABLE_BYTES_INITIAL: u32 = 4096;
/// The largest dynamic table that this codec keeps, in either direction. Never announce a larger one in
/// SETTINGS_HEADER_TABLE_SIZE.
pub const TABLE_BYTES_MAX: u32 = 64 * 1024;
/// The size of a field in addition to its name and value, in a table (RFC 7541 section 4.1) and in a header list (RFC 9113
/// section 6.5.2).
pub const FIELD_OVERHEAD_BYTES: usize = 32;
/// A block may exceed its `Limits` by this factor before the decoder gives up. Up to there it decodes without
/// delivering, so that the connection survives one request that is too large.
pub const OVERRUN_FACTOR: usize = 4;

// The first byte of each representation is at least one of these values, and below the next one (RFC 7541
// section 6). The remaining bits begin an integer.
/// An index of a name and a value.
const INDEXED: u8 = 0x80;
/// A literal that is inserted into the dynamic table.
const INSERTED: u8 = 0x40;
/// A size update of the dynamic table.
const SIZE_UPDATE: u8 = 0x20;
/// A literal that must never be inserted.
const NEVER_INDEXED: u8 = 0x10;
/// A literal that is not inserted.
const NOT_INDEXED: u8 = 0x00;
/// The flag of a string that is Huffman-coded (RFC 7541 section 5.2).
const HUFFMAN: u8 = 0x80;

/// One header field of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<'a> {
    /// The name as received. HPACK allows any bytes here: the caller checks that it is a token in lower case.
    pub name: &'a [u8],
    /// The value as received. HPACK allows any bytes here.
    pub value: &'a [u8],
    /// The sender marked the field as never indexed (RFC 7541 section 6.2.3). A proxy that forwards it must
    /// encode it with [`Indexing::Never`].
    pub is_sensitive: bool,
}
