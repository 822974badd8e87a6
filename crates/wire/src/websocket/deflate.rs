//! Compresses messages (RFC 7692 section 7.2.1).
//! In: a message. Out: its compressed data, for one frame or for fragments.
//! Never: refers to data that the receiver's window does not contain.
//! Limits: the output of a message is bounded by its size; more than `WEBSOCKET_SCRATCH_BYTES_MAX` of output space
//! is not kept.
//! Invariant: the output of a shared compressor depends on the message alone.

use core::fmt;

use tidegate_base::limits::WEBSOCKET_SCRATCH_BYTES_MAX;
use zlib_rs::{Deflate, DeflateConfig, DeflateFlush};

use super::extension::{COMPRESSOR_BITS_MIN, WINDOW_BITS_MAX};
use super::fault::FaultKind;

/// The end of a flushed stream, which is not sent: the receiver adds it.
const TAIL: &[u8] = &[0, 0, 0xff, 0xff];
/// An empty message: the first byte of an empty block without compression (section 7.2.3.6).
const EMPTY_MESSAGE: &[u8] = &[0];

/// By how much the memory level of a compressor is less than the bits of its window, if the window is small.
const MEMORY_LEVEL_BEHIND: u8 = 6;

/// How hard a compressor tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// 1 (fastest) to 9 (smallest output).
    pub level: u8,
    /// 1 (least memory) to 9.
    pub memory_level: u8,
}

impl Effort {
    /// The effort for a window of these bits. A small window needs less memory for the history of the compressor.
    #[must_use]
    pub fn for_window(window_bits: u8) -> Self {
        let of_window = window_bits.saturating_sub(MEMORY_LEVEL_BEHIND);
        let usual = Self::default();
        Self { memory_level: usual.memory_level.min(of_window), ..usual }
    }
}

impl Default for Effort {
    /// Level 1 costs a fraction of the usual level 6, and short messages lose little.
    fn default() -> Self {
        Self { level: 1, memory_level: 8 }
    }
}

/// A compressor: of one connection that keeps its context between messages, or shared by the connections of a
/// worker that do not.
pub struct Deflater {
    stream: Deflate,
    /// Bits of the window.
    window_bits: u8,
    /// Whether messages may refer to messages before them.
    keeps_context: bool,
    /// Whether the stream has compressed anything since its last reset.
    is_used: bool,
    /// The output of the last message. All its bytes are initialized.
    scratch: Vec<u8>,
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater")
            .field("window_bits", &self.window_bits)
            .field("keeps_context", &self.keeps_context)
            .finish_non_exhaustive()
    }
}

impl Deflater {
    /// Creates the compressor of one connection that keeps its context. `None` if the window is too small for
    /// the compressor; messages are then sent uncompressed, which the extension allows.
    #[must_use]
    pub fn for_connection(window_bits: u8, effort: Effort) -> Option<Self> {
        Self::new(window_bits, true, effort)
    }

    /// Creates a compressor for all connections of a worker that do not keep their context, for messages for which their
    /// `DeflateParameters::shared_window_bits` is `window_bits`. `None` as for `for_connection`.
    #[must_use]
    pub fn shared(window_bits: u8, effort: Effort) -> Option<Self> {
        Self::new(window_bits, false, effort)
    }

    fn new(window_bits: u8, keeps_context: bool, effort: Effort) -> Option<Self> {
        if !(COMPRESSOR_BITS_MIN..=WINDOW_BITS_MAX).contains(&window_bits) {
            return None;
        }
        let config = DeflateConfig {
            level: i32::from(effort.level.clamp(1, 9)),
            window_bits: -i32::from(window_bits),
            mem_level: i32::from(effort.memory_level.clamp(1, 9)),
            ..DeflateConfig::default()
        };
        Some(Self {
            stream: Deflate::new_with_config(config),
            window_bits,
            keeps_context,
            is_used: false,
            scratch: Vec::new(),
        })
    }

    /// Bits of the window.
    #[must_use]
    pub const fn window_bits(&self) -> u8 {
        self.window_bits
    }

    /// Whether this compressor belongs to one connection. Every message that it compresses must be sent in that
    /// form, in order.
    #[must_use]
    pub const fn keeps_context(&self) -> bool {
        self.keeps_context
    }

    /// Forgets all messages before. Call it on the compressor of one connection after a message of another
    /// compressor was sent there, since the receiver's window now contains that message.
    pub fn forget(&mut self) {
        if core::mem::take(&mut self.is_used) {
            self.stream.reset();
        }
    }

    /// Compresses a message.
    ///
    /// # Errors
    /// `DeflateFailed`, a bug.
    pub fn compress(&mut self, message: &[u8]) -> Result<&[u8], FaultKind> {
        if message.is_empty() {
            return Ok(EMPTY_MESSAGE);
        }
        if !self.keeps_context {
            self.forget();
        }
        self.is_used = true;
        if self.scratch.len() > WEBSOCKET_SCRATCH_BYTES_MAX {
            self.scratch = Vec::new();
        }
        let length = self.run(message)?;
        let deflated = self.scratch.get(..length).and_then(|all| all.strip_suffix(TAIL));
        deflated.ok_or(FaultKind::DeflateFailed)
    }

    /// Compresses `message` into the scratch space. Returns the length of the output.
    fn run(&mut self, message: &[u8]) -> Result<usize, FaultKind> {
        let mut rest = message;
        let mut filled = 0;
        loop {
            if filled == self.scratch.len() {
                let space = rest.len() + rest.len() / 8 + 64;
                self.scratch.resize(filled + space, 0);
            }
            let (read_before, written_before) = (self.stream.total_in(), self.stream.total_out());
            self.stream
                .compress(rest, &mut self.scratch[filled..], DeflateFlush::SyncFlush)
                .map_err(|_| FaultKind::DeflateFailed)?;
            rest = &rest[(self.stream.total_in() - read_before) as usize..];
            filled += (self.stream.total_out() - written_before) as usize;
            if filled < self.scratch.len() {
                return if rest.is_empty() { Ok(filled) } else { Err(FaultKind::DeflateFailed) };
            }
        }
    }
}
