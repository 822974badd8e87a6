//! Decodes header blocks.
//! In: one whole block. Out: its fields, delivered to a `FieldSink`, and a summary; or a `Fault`.
//! Never: stops in the middle of a block because the sink refuses a field; the table must stay in step.
//! Limits: `Limits` for delivered fields, `OVERRUN_FACTOR` times those for decoded fields.
//! Invariant: after a fault every later block gets the same fault.

use super::table::Table;
use super::{
    FIELD_OVERHEAD_BYTES, Fault, Field, HUFFMAN, INDEXED, INSERTED, NEVER_INDEXED, OVERRUN_FACTOR,
    SIZE_UPDATE, TABLE_BYTES_INITIAL, TABLE_BYTES_MAX, huffman, integer, static_table,
};
use core::ops::ControlFlow;

/// A larger scratch memory is given back after the block that needed it.
const SCRATCH_KEPT_BYTES: usize = 64 * 1024;

/// Bounds of one block. A block beyond them is decoded but not delivered any further; beyond
/// `OVERRUN_FACTOR` times these bounds it is a `Fault`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most fields, pseudo-headers included and `cookie` fields excluded.
    pub fields_max: usize,
    /// Most `cookie` fields. Clients split one cookie field into many crumbs (RFC 9113 section 8.2.3), which are joined later, so
    /// they have a separate bound.
    pub crumbs_max: usize,
    /// Most bytes of all fields: name, value and `FIELD_OVERHEAD_BYTES` of each. Announce this in
    /// SETTINGS_MAX_HEADER_LIST_SIZE.
    pub list_bytes_max: usize,
}

/// Receives the fields of a block.
pub trait FieldSink {
    /// Takes the next field; its slices are valid during the call. `Break` refuses this field and all later
    /// fields of the block. The decoder then continues without delivering fields, and reports `Undelivered::Refused`.
    fn take_field(&mut self, field: Field<'_>) -> ControlFlow<()>;

    /// As `take_field`, for a field whose name is in a table, with the note of this sink about it.
    #[inline]
    fn take_known(&mut self, field: Field<'_>, _known: Known) -> ControlFlow<()> {
        self.take_field(field)
    }

    /// The note that this sink gets when the field that it has just taken occurs again from the dynamic table; 0: no note.
    #[inline]
    fn note(&self) -> u16 {
        0
    }

    /// The note that this sink gets with the field at `index` of the static table (0 is the first field); 0: no note.
    #[inline]
    fn static_note(_index: usize) -> u16 {
        0
    }
}

/// The note of a sink about a field of a table, so that it need not examine the same bytes again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Known {
    /// The note of the sink about the entry; 0: it has taken no such field.
    pub note: u16,
    /// The value is that of the entry, too; otherwise only the name is.
    pub has_value: bool,
}

impl<F: FnMut(Field<'_>) -> ControlFlow<()>> FieldSink for F {
    #[inline]
    fn take_field(&mut self, field: Field<'_>) -> ControlFlow<()> {
        self(field)
    }
}

/// Why fields of a block were not delivered. The stream fails (431 for a request), and the connection continues.
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
    /// The state on which the meaning of the block depends.
    pub table_use: TableUse,
}

/// How a block depends on the dynamic table. Each use includes the ones before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum TableUse {
    /// Neither depends on the table nor changes it: the same bytes mean the same fields on each connection.
    #[default]
    Unused,
    /// Inserts fields into a table whose size is 0, which has no effect (RFC 7541 section 4.4): the same bytes mean the
    /// same fields wherever the size is 0. nginx sends such blocks.
    InsertsNothing,
    /// Depends on the table or changes it.
    Used,
}

/// Memory for strings while a block is decoded. One per worker is enough; nothing stays in it between calls.
#[derive(Default, Debug)]
pub struct Scratch {
    /// Memory for the strings of one field. It is used up to its length; its content means nothing between
    /// fields.
    bytes: Vec<u8>,
}

impl Scratch {
    /// Creates empty memory; it grows at the first use.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Bytes of memory that are held for the next block: at most `SCRATCH_KEPT_BYTES`.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// At least `length` bytes of memory.
    #[inline]
    fn room(&mut self, length: usize) -> &mut [u8] {
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        &mut self.bytes
    }
}

/// The decoder of one connection. It holds the dynamic table, and no memory until the peer inserts into it.
///
/// After a `Fault` the connection must end: the decoder is broken and returns that fault for every later
/// block.
#[derive(Debug)]
pub struct Decoder {
    /// The entries that the peer inserted.
    table: Table<0>,
    /// The limit in force: the most that a size update may set.
    limit: u32,
    /// The lowest limit since the last block. A block must begin with a size update to at most this size if
    /// the table may be larger (RFC 7541 section 4.2).
    lowest_limit: u32,
    /// The first fault; no block is decoded after it.
    broken: Option<Fault>,
}

const _: () = assert!(size_of::<Decoder>() <= 72, "one per connection");

impl Decoder {
    /// Creates a decoder with an empty table and the limit that applies before any SETTINGS
    /// (`TABLE_BYTES_INITIAL`).
    #[must_use]
    pub const fn new() -> Self {
        Self {
            table: Table::new(TABLE_BYTES_INITIAL),
            limit: TABLE_BYTES_INITIAL,
            lowest_limit: TABLE_BYTES_INITIAL,
            broken: None,
        }
    }

    /// Sets the limit of the dynamic table. Call it when the peer acknowledges the SETTINGS frame that
    /// announced `bytes` in SETTINGS_HEADER_TABLE_SIZE, not before: until then the peer may use the old limit.
    /// If the table is larger, the next block must begin with a size update. `bytes` is at most
    /// `TABLE_BYTES_MAX`.
    pub fn acknowledge_table_limit(&mut self, bytes: u32) {
        self.limit = bytes.min(TABLE_BYTES_MAX);
        self.lowest_limit = self.lowest_limit.min(self.limit);
    }

    /// Decodes one whole block and delivers its fields in order. The caller bounds the length of the block:
    /// `scratch` may grow to 8/5 of it and `TABLE_BYTES_MAX`.
    ///
    /// # Errors
    /// The connection must end. The decoder is broken from now on.
    pub fn decode(
        &mut self,
        block: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
        sink: &mut impl FieldSink,
    ) -> Result<Decoded, Fault> {
        if let Some(fault) = self.broken {
            return Err(fault);
        }
        let mut delivery = Delivery { limits, sink, decoded: Decoded::default() };
        let result = self.decode_block(block, scratch, &mut delivery);
        if scratch.bytes.len() > SCRATCH_KEPT_BYTES {
            *scratch = Scratch::new();
        }
        if let Err(fault) = result {
            *self = Self { broken: Some(fault), ..Self::new() };
            return Err(fault);
        }
        Ok(delivery.decoded)
    }

    /// Whether a block that was decoded elsewhere need not be decoded here. True if it is valid here, too, and means the
    /// same fields; the decoder then is as after the block.
    #[inline]
    pub fn may_skip(&mut self, table_use: TableUse) -> bool {
        let means_the_same = match table_use {
            TableUse::Unused => true,
            TableUse::InsertsNothing => self.table.size_max() == 0,
            TableUse::Used => false,
        };
        let is_valid = self.broken.is_none() && self.table.size_max() <= self.lowest_limit;
        let may = means_the_same && is_valid;
        if may {
            self.lowest_limit = self.limit;
        }
        may
    }

    /// Gives back the memory that the entries of the table do not use. Call it when the connection is idle.
    pub fn shrink(&mut self) {
        self.table.shrink();
    }

    /// Bytes of memory that the table holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.table.held_bytes()
    }

    fn decode_block<S: FieldSink>(
        &mut self,
        block: &[u8],
        scratch: &mut Scratch,
        delivery: &mut Delivery<'_, S>,
    ) -> Result<(), Fault> {
        let mut input = self.read_size_updates(block)?;
        if input.len() < block.len() {
            delivery.decoded.table_use = TableUse::Used;
        }
        while let Some(&first) = input.first() {
            match first {
                INDEXED..=0xff => {
                    let index = integer::decode(&mut input, 7)?;
                    let (name, value, note) = find::<S>(&self.table, index)?;
                    delivery.decoded.note_index(index);
                    let known = Known { note, has_value: true };
                    delivery.take(Field { name, value, is_sensitive: false }, known)?;
                }
                INSERTED..INDEXED => {
                    delivery.decoded.note_insertion(self.table.size_max());
                    self.read_inserted(&mut input, scratch, delivery)?;
                }
                SIZE_UPDATE..INSERTED => return Err(Fault::SizeUpdateMisplaced),
                _ => self.read_literal(&mut input, scratch, delivery)?,
            }
        }
        Ok(())
    }

    /// Applies the size updates at the beginning of a block and returns the fields after them.
    fn read_size_updates<'b>(&mut self, block: &'b [u8]) -> Result<&'b [u8], Fault> {
        let mut input = block;
        let mut is_required = self.table.size_max() > self.lowest_limit;
        while let Some(SIZE_UPDATE..INSERTED) = input.first() {
            let size = integer::decode(&mut input, 5)?;
            if size > self.limit {
                return Err(Fault::SizeUpdateTooLarge);
            }
            if is_required && size > self.lowest_limit {
                return Err(Fault::SizeUpdateMissing);
            }
            is_required = false;
            self.table.resize(size);
        }
        if is_required {
            return Err(Fault::SizeUpdateMissing);
        }
        self.lowest_limit = self.limit;
        Ok(input)
    }

    /// Delivers a literal field that is not inserted into the table.
    fn read_literal<S: FieldSink>(
        &self,
        input: &mut &[u8],
        scratch: &mut Scratch,
        delivery: &mut Delivery<'_, S>,
    ) -> Result<(), Fault> {
        let is_sensitive = input.first().is_some_and(|&first| first >= NEVER_INDEXED);
        let index = integer::decode(input, 4)?;
        delivery.decoded.note_index(index);
        let mut room = scratch.room(huffman::decoded_bytes_max(input.len()));
        let (name, note) = match index {
            0 => (read_string(input, &mut room)?, 0),
            _ => find::<S>(&self.table, index).map(|(name, _, note)| (name, note))?,
        };
        let value = read_string(input, &mut room)?;
        let known = Known { note, has_value: false };
        delivery.take(Field { name, value, is_sensitive }, known).map(drop)
    }

    /// Delivers a literal field and inserts it into the table.
    fn read_inserted<S: FieldSink>(
        &mut self,
        input: &mut &[u8],
        scratch: &mut Scratch,
        delivery: &mut Delivery<'_, S>,
    ) -> Result<(), Fault> {
        let index = integer::decode(input, 6)?;
        let strings_room = huffman::decoded_bytes_max(input.len());
        let (name, note, mut room) = if index == 0 {
            let mut room = scratch.room(strings_room);
            (read_string(input, &mut room)?, 0, room)
        } else {
            // The insertion may evict the entry that the name comes from, so the name is copied.
            let (known, _, note) = find::<S>(&self.table, index)?;
            let (copy, room) = scratch.room(known.len() + strings_room).split_at_mut(known.len());
            copy.copy_from_slice(known);
            (&*copy, note, room)
        };
        let value = read_string(input, &mut room)?;
        let known = Known { note, has_value: false };
        let note = delivery.take(Field { name, value, is_sensitive: false }, known)?;
        self.table.insert(name, value, note);
        Ok(())
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether an index is that of an entry of the dynamic table.
#[inline]
const fn is_dynamic(index: u32) -> bool {
    index as usize > static_table::LENGTH
}

/// The name and the value at `index` of both tables, and the sink's note about them.
#[inline]
fn find<S: FieldSink>(table: &Table<0>, index: u32) -> Result<(&[u8], &[u8], u16), Fault> {
    let index = (index as usize).checked_sub(1).ok_or(Fault::IndexInvalid)?;
    if let Some(&(name, value)) = static_table::ENTRIES.get(index) {
        return Ok((name, value, S::static_note(index)));
    }
    let entry = table.get(index - static_table::LENGTH).ok_or(Fault::IndexInvalid)?;
    Ok((entry.name, entry.value, entry.link))
}

/// Removes a string from the front of `input`. A Huffman-coded string is decoded into the front of `room`,
/// which is then no longer free.
#[inline]
fn read_string<'o, 'b: 'o, 'r: 'o>(
    input: &mut &'b [u8],
    room: &mut &'r mut [u8],
) -> Result<&'o [u8], Fault> {
    let is_huffman = input.first().is_some_and(|&first| first & HUFFMAN != 0);
    let length = integer::decode(input, 7)? as usize;
    let (string, rest) = input.split_at_checked(length).ok_or(Fault::Truncated)?;
    *input = rest;
    if !is_huffman {
        return Ok(string);
    }
    let length = huffman::decode(string, room).ok_or(Fault::HuffmanInvalid)?;
    let (decoded, free) = core::mem::take(room).split_at_mut(length);
    *room = free;
    Ok(decoded)
}

/// Counts the fields of a block and delivers them as long as they are within the limits.
struct Delivery<'s, S> {
    limits: &'s Limits,
    sink: &'s mut S,
    decoded: Decoded,
}

impl<S: FieldSink> Delivery<'_, S> {
    /// Delivers a field. Returns the sink's note about it; 0 if the sink has not taken it.
    #[inline]
    fn take(&mut self, field: Field<'_>, known: Known) -> Result<u16, Fault> {
        let decoded = &mut self.decoded;
        decoded.list_bytes += field.name.len() + field.value.len() + FIELD_OVERHEAD_BYTES;
        if field.name == b"cookie" {
            decoded.crumbs += 1;
        } else {
            decoded.fields += 1;
        }
        if decoded.undelivered.is_none() {
            decoded.undelivered = match decoded.excess_over(self.limits) {
                None if self.sink.take_known(field, known).is_break() => Some(Undelivered::Refused),
                excess => excess,
            };
        }
        match decoded.undelivered {
            Some(_) => decoded.check_overrun(self.limits).map(|()| 0),
            None => Ok(self.sink.note()),
        }
    }
}

impl Decoded {
    /// Notes the index of a field or of its name.
    #[inline]
    fn note_index(&mut self, index: u32) {
        if is_dynamic(index) {
            self.table_use = TableUse::Used;
        }
    }

    /// Notes an insertion into a table with the size `size_max`.
    #[inline]
    fn note_insertion(&mut self, size_max: u32) {
        let used = if size_max == 0 { TableUse::InsertsNothing } else { TableUse::Used };
        self.table_use = self.table_use.max(used);
    }

    /// The limit that the block exceeds.
    #[inline]
    const fn excess_over(&self, limits: &Limits) -> Option<Undelivered> {
        if self.fields > limits.fields_max {
            Some(Undelivered::TooManyFields)
        } else if self.crumbs > limits.crumbs_max {
            Some(Undelivered::TooManyCrumbs)
        } else if self.list_bytes > limits.list_bytes_max {
            Some(Undelivered::TooManyBytes)
        } else {
            None
        }
    }

    /// Fails if the block exceeds a limit so far that decoding it is pointless.
    fn check_overrun(&self, limits: &Limits) -> Result<(), Fault> {
        let fields_max = limits.fields_max.saturating_add(limits.crumbs_max);
        if self.fields + self.crumbs > fields_max.saturating_mul(OVERRUN_FACTOR) {
            Err(Fault::TooManyFields)
        } else if self.list_bytes > limits.list_bytes_max.saturating_mul(OVERRUN_FACTOR) {
            Err(Fault::TooManyBytes)
        } else {
            Ok(())
        }
    }
}
