//! Why a header block is rejected.
//! Out: `Fault`s with the text for the log.
//! Invariant: every fault ends the connection.

/// Why a header block cannot be decoded. The dynamic table of the decoder no longer matches the peer's, so
/// every fault ends the *connection*, not only the stream (RFC 7541 section 2.2, RFC 9113 section 4.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// The block ends within a field.
    Truncated,
    /// An integer is above 2^32 - 1, or has more bytes than any integer needs.
    IntegerTooLarge,
    /// An index is 0 or beyond the dynamic table.
    IndexInvalid,
    /// A Huffman-coded string contains EOS, or its padding is longer than 7 bits or not all ones.
    HuffmanInvalid,
    /// A table size update is not at the beginning of the block.
    SizeUpdateMisplaced,
    /// A table size update exceeds the acknowledged limit.
    SizeUpdateTooLarge,
    /// The acknowledged limit was lowered and the block does not begin with a table size update.
    SizeUpdateMissing,
    /// The block has over `OVERRUN_FACTOR` times the allowed number of fields.
    TooManyFields,
    /// The decoded fields have over `OVERRUN_FACTOR` times the allowed number of bytes.
    TooManyBytes,
}

impl Fault {
    /// Whether the block is an attack on memory or CPU time rather than malformed: the connection ends with
    /// ENHANCE_YOUR_CALM instead of COMPRESSION_ERROR.
    #[must_use]
    pub const fn is_excess(self) -> bool {
        matches!(self, Self::TooManyFields | Self::TooManyBytes)
    }

    /// What is wrong, for the log.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Truncated => "the header block ends within a field",
            Self::IntegerTooLarge => "an integer in the header block is too large",
            Self::IndexInvalid => "the header block refers to a table entry that does not exist",
            Self::HuffmanInvalid => "invalid Huffman code in the header block",
            Self::SizeUpdateMisplaced => {
                "a table size update after the first field of a header block"
            }
            Self::SizeUpdateTooLarge => "a table size update exceeds SETTINGS_HEADER_TABLE_SIZE",
            Self::SizeUpdateMissing => {
                "no table size update after SETTINGS_HEADER_TABLE_SIZE was lowered"
            }
            Self::TooManyFields => "the header block has far too many fields",
            Self::TooManyBytes => "the header block decodes to far too many bytes",
        }
    }
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Fault {}
