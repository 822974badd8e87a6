//! Decompresses messages (RFC 7692 section 7.2.2).
//! In: the compressed data of a message, whole or in pieces. Out: the message.
//! Never: produces more than the limits allow, even for a moment.
//! Limits: `message_bytes_max` and `inflate_ratio_max` of `Limits`, the latter beyond
//! `WEBSOCKET_INFLATE_FREE_BYTES`.
//! Invariant: how a message is split into pieces does not change the result. Only a message whose ratio varies
//! may reach the limit of the ratio in one split and not in another.

use core::fmt;

use tidegate_base::limits::{WEBSOCKET_INFLATE_FREE_BYTES, WEBSOCKET_SCRATCH_BYTES_MAX};
use zlib_rs::{Inflate, InflateFlush, Status};

use super::decoder::{Kind, Limits};
use super::extension::WINDOW_BITS_MAX;
use super::fault::FaultKind;
use super::utf8::SplitChar;

/// The bytes that the sender removed from the end of a message: the rest of an empty block without compression.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// `TAIL` and an empty final block. The stream ends after it exactly if the message was complete.
const FINAL_TAIL: [u8; 9] = [0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff];
/// The least space that the decompressor gets at a time.
const SPACE_BYTES_MIN: usize = 1024;
/// Maximum number of final blocks of one message. Each of them resets the stream, which costs more than reading it;
/// senders use at most one.
const FINAL_BLOCKS_MAX: u8 = 8;
/// Bits of the smallest window that the decompressor supports.
const INFLATE_BITS_MIN: u8 = 9;

/// A decompressor: of one connection whose peer keeps its context between messages, or shared by the connections
/// of a worker whose peers do not.
pub struct Inflater {
    stream: Inflate,
    /// Bits of the window.
    window_bits: u8,
    /// Whether the window survives the end of a message.
    keeps_context: bool,
    /// Whether the stream has ended with a final block and no byte has followed.
    has_ended: bool,
    /// Final blocks of the message so far; at most `FINAL_BLOCKS_MAX`.
    final_blocks: u8,
    /// The start of a character of the message whose rest is not inflated yet.
    split_char: SplitChar,
    /// Compressed bytes of the message so far.
    deflated_bytes: u64,
    /// The output of a shared inflater. All its bytes are initialized; it is not cleared between messages.
    scratch: Vec<u8>,
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater")
            .field("window_bits", &self.window_bits)
            .field("keeps_context", &self.keeps_context)
            .finish_non_exhaustive()
    }
}

impl Inflater {
    /// Creates the inflater of one connection, whose peer keeps its context and uses a window of `window_bits`.
    #[must_use]
    pub fn for_connection(window_bits: u8) -> Self {
        Self::new(window_bits.clamp(INFLATE_BITS_MIN, WINDOW_BITS_MAX), true)
    }

    /// Creates an inflater for all connections of a worker whose peers do not keep their context. It accepts
    /// every window.
    #[must_use]
    pub fn shared() -> Self {
        Self::new(WINDOW_BITS_MAX, false)
    }

    fn new(window_bits: u8, keeps_context: bool) -> Self {
        Self {
            stream: Inflate::new(false, window_bits),
            window_bits,
            keeps_context,
            has_ended: false,
            final_blocks: 0,
            split_char: SplitChar::EMPTY,
            deflated_bytes: 0,
            scratch: Vec::new(),
        }
    }

    /// Whether this inflater belongs to one connection.
    #[must_use]
    pub const fn keeps_context(&self) -> bool {
        self.keeps_context
    }

    /// Prepares for a new message.
    pub const fn begin_message(&mut self) {
        self.deflated_bytes = 0;
        self.final_blocks = 0;
        self.split_char = SplitChar::EMPTY;
    }

    /// Inflates a piece of a message and appends the result to `message`, which holds all of the message so far.
    /// Only for the inflater of one connection.
    ///
    /// # Errors
    /// Data that is invalid or too large, or text that is invalid in a piece that is not the last.
    pub fn inflate_piece(
        &mut self,
        deflated: &[u8],
        kind: Kind,
        is_last: bool,
        message: &mut Vec<u8>,
        limits: &Limits,
    ) -> Result<(), FaultKind> {
        let start = message.len();
        let mut filled = start;
        let mut result = self.run(deflated, message, &mut filled, limits);
        let is_empty = self.deflated_bytes == 0;
        if result.is_ok() && is_last && !is_empty && !self.has_ended {
            result = self.run(&TAIL, message, &mut filled, limits);
        }
        message.truncate(filled);
        result?;
        if kind == Kind::Text && !is_last {
            self.split_char.check_all(&message[start..])?;
        }
        Ok(())
    }

    /// Inflates a whole message. Only for a shared inflater.
    ///
    /// # Errors
    /// Data that is invalid, incomplete or too large.
    pub fn inflate_message(
        &mut self,
        deflated: &[u8],
        limits: &Limits,
    ) -> Result<&[u8], FaultKind> {
        if deflated.is_empty() {
            return Ok(&[]);
        }
        if self.scratch.capacity() > WEBSOCKET_SCRATCH_BYTES_MAX {
            self.scratch = Vec::new();
        }
        self.begin_message();
        self.restart();
        self.has_ended = false;
        let mut scratch = core::mem::take(&mut self.scratch);
        let mut filled = 0;
        let mut result = self.run(deflated, &mut scratch, &mut filled, limits);
        if result.is_ok() && !self.has_ended {
            result = self.run(&FINAL_TAIL, &mut scratch, &mut filled, limits);
            if result.is_ok() && !self.has_ended {
                result = Err(FaultKind::InflateInvalid);
            }
        }
        self.scratch = scratch;
        result.map(|()| &self.scratch[..filled])
    }

    /// Inflates `data` into `out` from `filled` on. The bytes of `out` after `filled` are free space.
    fn run(
        &mut self,
        mut data: &[u8],
        out: &mut Vec<u8>,
        filled: &mut usize,
        limits: &Limits,
    ) -> Result<(), FaultKind> {
        let start = *filled;
        loop {
            if *filled == out.len() {
                let space = SPACE_BYTES_MIN.max(*filled - start).max(data.len().saturating_mul(4));
                grow(out, space, limits);
            }
            let (read_before, written_before) = (self.stream.total_in(), self.stream.total_out());
            let space = &mut out[*filled..];
            let status = self
                .stream
                .decompress(data, space, InflateFlush::SyncFlush)
                .map_err(|_| FaultKind::InflateInvalid)?;
            let read = (self.stream.total_in() - read_before) as usize;
            let written = (self.stream.total_out() - written_before) as usize;
            data = &data[read..];
            *filled += written;
            self.deflated_bytes += read as u64;
            self.has_ended &= read == 0;
            self.check_size(*filled, limits)?;
            if status == Status::StreamEnd {
                self.final_blocks += 1;
                if self.final_blocks > FINAL_BLOCKS_MAX {
                    return Err(FaultKind::InflateInvalid);
                }
                self.restart();
                self.has_ended = true;
                if data.is_empty() {
                    return Ok(());
                }
            } else if *filled < out.len() {
                // There was space left, so all input was read and everything was written.
                return if data.is_empty() { Ok(()) } else { Err(FaultKind::InflateInvalid) };
            }
        }
    }

    /// Checks the size of the message so far.
    fn check_size(&self, message_bytes: usize, limits: &Limits) -> Result<(), FaultKind> {
        let message_bytes = message_bytes as u64;
        if message_bytes > u64::from(limits.message_bytes_max) {
            return Err(FaultKind::MessageTooLarge);
        }
        let allowed = self.deflated_bytes * u64::from(limits.inflate_ratio_max);
        if message_bytes > allowed.saturating_add(WEBSOCKET_INFLATE_FREE_BYTES) {
            return Err(FaultKind::InflateRatioTooHigh);
        }
        Ok(())
    }

    /// Starts a new stream. A sender that ends a stream with a final block starts with an empty window too.
    fn restart(&mut self) {
        if self.window_bits == WINDOW_BITS_MAX {
            self.stream.reset(false);
        } else {
            // `reset` supports the largest window only.
            self.stream = Inflate::new(false, self.window_bits);
        }
    }
}

/// Adds `space` bytes to `out`, but at most one byte beyond the limit, which shows that the message exceeds it.
fn grow(out: &mut Vec<u8>, space: usize, limits: &Limits) {
    let most = limits.message_bytes_max as usize + 1;
    let length = out.len().saturating_add(space).min(most).max(out.len() + 1);
    out.resize(length, 0);
}
