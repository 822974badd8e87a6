//! The compressed frames of a publication, which all connections that negotiated compression without a context share.
//! In: the form of a publication, bits of a window, a compressor. Out: the compressed frame.
//! Never: compresses a form twice for the same window in the process: a worker that needs a frame which another one is
//! making waits for it, because making it again would take as long.
//! Limits: messages below `COMPRESSION_BYTES_MIN` are not compressed.

use std::sync::OnceLock;

use tidegate_wire::websocket::{COMPRESSOR_BITS_MIN, WINDOW_BITS_MAX};

use crate::publication::Form;

/// Shorter messages are sent uncompressed: a compressed one would hardly be shorter, and takes time at both ends.
pub const COMPRESSION_BYTES_MIN: usize = 128;

/// How many bytes the kernel copies while one byte of a message is compressed.
pub const COMPRESSION_COST: usize = 16;

/// How many sizes of windows compressors have.
const WINDOWS: usize = (WINDOW_BITS_MAX - COMPRESSOR_BITS_MIN) as usize + 1;

/// A frame; `None` if compression does not shorten the message.
type Frame = OnceLock<Option<Box<[u8]>>>;

/// The compressed frames, by form and window.
#[derive(Debug, Default)]
pub struct DeflatedFrames {
    frames: [[Frame; WINDOWS]; Form::ALL],
}

impl DeflatedFrames {
    /// The frame of a form for connections with a window of these bits. `make` compresses the message if that was not done.
    pub(crate) fn get(
        &self,
        form: Form,
        window_bits: u8,
        make: impl FnOnce() -> Option<Box<[u8]>>,
    ) -> Option<&[u8]> {
        let at = window_bits.checked_sub(COMPRESSOR_BITS_MIN)?;
        let frame = self.frames[form as usize].get(usize::from(at))?;
        frame.get_or_init(make).as_deref()
    }

    /// The memory of the frames.
    pub(crate) fn cost_bytes(&self) -> usize {
        let made = self.frames.iter().flatten().filter_map(OnceLock::get).flatten();
        size_of::<Self>() + made.map(|frame| frame.len()).sum::<usize>()
    }
}
