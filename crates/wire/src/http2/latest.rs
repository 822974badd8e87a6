//! The latest header block, whose fields need not be decoded again if the same bytes follow.
//! In: header blocks, before and after they are decoded. Out: whether the decoded fields are those of the next block, too.
//! Never: keeps a block whose fields depend on the entries of a table, or that changes them: equal bytes may mean other
//! fields then, on this connection and on others that use the same scratch memory. The decoder of a connection decides
//! whether the block means the same there (`Decoder::may_skip`).
//! Limits: `LATEST_BYTES_MAX`.
//! Invariant: the fields in the scratch memory are those of the block that is kept.

use super::head::BlockKind;
use super::hpack;

/// Longer blocks are decoded each time.
const LATEST_BYTES_MAX: usize = 1024;

/// The latest block. Servers that use no table send the same bytes again and again, as do attackers.
#[derive(Debug)]
pub(super) struct LatestBlock {
    /// The block; empty if its fields must not be used again.
    bytes: Vec<u8>,
    /// Its meaning.
    kind: BlockKind,
    /// The limits that it keeps to.
    limits: hpack::Limits,
    /// The state on which its meaning depends.
    table_use: hpack::TableUse,
}

impl LatestBlock {
    pub(super) const fn new() -> Self {
        let limits = hpack::Limits { fields_max: 0, crumbs_max: 0, list_bytes_max: 0 };
        let table_use = hpack::TableUse::Unused;
        Self { bytes: Vec::new(), kind: BlockKind::Discarded, limits, table_use }
    }

    /// Whether the decoded fields are those of this block.
    #[inline]
    pub(super) fn is(&self, bytes: &[u8], kind: BlockKind, limits: &hpack::Limits) -> bool {
        !self.bytes.is_empty() && self.bytes == bytes && self.kind == kind && self.limits == *limits
    }

    /// The state on which the meaning of this block depends.
    #[inline]
    pub(super) const fn table_use(&self) -> hpack::TableUse {
        self.table_use
    }

    /// Another block is decoded now.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
    }

    /// A block was decoded.
    pub(super) fn keep(
        &mut self,
        bytes: &[u8],
        (kind, limits): (BlockKind, &hpack::Limits),
        decoded: &hpack::Decoded,
    ) {
        let is_whole = decoded.undelivered.is_none() && kind != BlockKind::Discarded;
        let may_repeat = decoded.table_use != hpack::TableUse::Used;
        if is_whole && may_repeat && bytes.len() <= LATEST_BYTES_MAX {
            self.bytes.extend_from_slice(bytes);
            self.kind = kind;
            self.limits = *limits;
            self.table_use = decoded.table_use;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: hpack::Limits =
        hpack::Limits { fields_max: 100, crumbs_max: 100, list_bytes_max: 10_000 };

    /// Keeps `block` as it is decoded. Returns whether its fields may be used again.
    fn is_kept(latest: &mut LatestBlock, block: &[u8]) -> bool {
        let mut decoder = hpack::Decoder::new();
        let mut scratch = hpack::Scratch::new();
        // An entry of the dynamic table, with the index 62.
        let mut sink = |_: hpack::Field<'_>| core::ops::ControlFlow::Continue(());
        assert!(decoder.decode(b"\x40\x01a\x01b", &LIMITS, &mut scratch, &mut sink).is_ok());
        latest.forget();
        let decoded = decoder.decode(block, &LIMITS, &mut scratch, &mut sink);
        let decoded = decoded.expect("the block is valid");
        latest.keep(block, (BlockKind::Response, &LIMITS), &decoded);
        latest.is(block, BlockKind::Response, &LIMITS)
    }

    #[test]
    fn only_blocks_without_the_dynamic_table_are_kept() {
        let mut latest = LatestBlock::new();
        let long = [&b"\x00\x01a\x7f\x81\x07"[..], &[b'x'; 1024]].concat();
        for (what, block, expected) in [
            ("entries of the static table", &b"\x88\x82"[..], true),
            ("literals", b"\x88\x00\x01a\x01b\x0f\x0d\x012\x10\x01c\x01d", true),
            ("an insertion", b"\x88\x40\x01a\x01c", false),
            ("an insertion with a name of the static table", b"\x88\x48\x03404", false),
            ("an entry of the dynamic table", b"\x88\xbe", false),
            ("a name of the dynamic table", b"\x88\x0f\x2f\x01c", false),
            ("a size update", b"\x20\x88", false),
            ("a long block", &long, false),
        ] {
            assert_eq!(is_kept(&mut latest, block), expected, "{what}");
        }
    }

    #[test]
    fn insertions_are_repeated_only_where_the_table_has_no_room() {
        let mut latest = LatestBlock::new();
        let mut scratch = hpack::Scratch::new();
        let mut sink = |_: hpack::Field<'_>| core::ops::ControlFlow::Continue(());
        let block = b"\x88\x40\x01a\x01c";
        let mut without_table = hpack::Decoder::new();
        // The first block states the size 0.
        let first = without_table.decode(b"\x20\x88", &LIMITS, &mut scratch, &mut sink);
        assert!(first.is_ok());
        let decoded = without_table.decode(block, &LIMITS, &mut scratch, &mut sink);
        let decoded = decoded.expect("the block is valid");
        latest.keep(block, (BlockKind::Response, &LIMITS), &decoded);
        assert!(latest.is(block, BlockKind::Response, &LIMITS));
        assert!(without_table.may_skip(latest.table_use()));
        assert!(!hpack::Decoder::new().may_skip(latest.table_use()), "it would insert the field");
    }

    #[test]
    fn fields_are_those_of_equal_blocks_of_the_same_kind_and_limits() {
        let mut latest = LatestBlock::new();
        let limits = latest.limits;
        assert!(!latest.is(b"", BlockKind::Discarded, &limits), "there is no block");
        assert!(is_kept(&mut latest, b"\x88"));
        let other = hpack::Limits { fields_max: 1, ..LIMITS };
        assert!(!latest.is(b"\x89", BlockKind::Response, &LIMITS));
        assert!(!latest.is(b"\x88", BlockKind::Trailers, &LIMITS));
        assert!(!latest.is(b"\x88", BlockKind::Response, &other));
        latest.forget();
        assert!(!latest.is(b"\x88", BlockKind::Response, &LIMITS));
    }
}
