//! Splits received bytes into frames, however they arrive.
//! In: pieces of the byte stream. Out: frame heads, whole payloads, and the data of DATA frames piece by
//! piece.
//! Never: copies the data of a DATA frame, or a payload that arrived whole; buffers a payload that the caller
//! skips.
//! Limits: buffers one payload, at most `FRAME_BYTES_MAX`; the caller checks the length before.
//! Invariant: each call consumes all of the input or returns something.

use super::fault::FaultKind;
use super::frame::{FRAME_HEAD_BYTES, FrameHead, FrameKind, PADDED};

/// How the payload of a frame is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// Whole: wait until it is complete.
    Whole,
    /// As data without padding, in pieces.
    Data,
    /// Not at all.
    Skipped,
}

/// A payload that is complete.
#[derive(Debug)]
pub(super) enum Payload<'a> {
    /// It arrived in one piece.
    Borrowed(&'a [u8]),
    /// It arrived in several pieces. Give the buffer back with `FrameReader::reuse`.
    Buffered(Vec<u8>),
}

impl Payload<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Buffered(bytes) => bytes,
        }
    }
}

/// Part of the data of a DATA frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DataPiece<'a> {
    /// The data; may be empty.
    pub(super) bytes: &'a [u8],
    /// The length of all data of the frame, in its first piece only.
    pub(super) frame_bytes: Option<u32>,
    /// The frame is complete, with its padding.
    pub(super) ends_frame: bool,
}

/// The part of a frame that is being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The head.
    Head,
    /// The payload, whole.
    Whole,
    /// The length of the padding of a DATA frame.
    PadLength,
    /// The data of a DATA frame.
    Data,
    /// The rest of the payload is discarded.
    Skipped,
}

/// Splits received bytes into frames.
#[derive(Debug)]
pub(super) struct FrameReader {
    /// The bytes of an incomplete frame head; the last complete head otherwise.
    head: [u8; FRAME_HEAD_BYTES],
    /// How many bytes of `head` were received. Less than all only in `Stage::Head`.
    head_bytes: u8,
    /// The next part to read.
    stage: Stage,
    /// Bytes of padding at the end of the current DATA frame.
    padding: u8,
    /// Bytes of the padding that were not read yet.
    padding_left: u8,
    /// No data of the current DATA frame was returned yet.
    is_first: bool,
    /// Bytes of the payload that were not read yet, without `padding`.
    remaining: u32,
    /// The received part of a payload that is read whole. Empty between frames.
    buffer: Vec<u8>,
}

impl FrameReader {
    pub(super) const fn new() -> Self {
        Self {
            head: [0; FRAME_HEAD_BYTES],
            head_bytes: 0,
            stage: Stage::Head,
            padding: 0,
            padding_left: 0,
            is_first: false,
            remaining: 0,
            buffer: Vec::new(),
        }
    }

    /// The head of the next frame, once it is complete. Call `begin` then. `None` if more bytes are needed,
    /// or if a payload is being read.
    pub(super) fn next_head(&mut self, input: &mut &[u8]) -> Option<FrameHead> {
        if self.stage != Stage::Head {
            return None;
        }
        let have = usize::from(self.head_bytes);
        let count = input.len().min(FRAME_HEAD_BYTES - have);
        let (taken, rest) = input.split_at_checked(count)?;
        self.head.get_mut(have..have + count)?.copy_from_slice(taken);
        *input = rest;
        self.head_bytes += count as u8;
        (usize::from(self.head_bytes) == FRAME_HEAD_BYTES).then(|| FrameHead::decode(&self.head))
    }

    /// The head of the current frame.
    pub(super) const fn current(&self) -> FrameHead {
        FrameHead::decode(&self.head)
    }

    /// Starts the payload of the frame whose head `next_head` returned.
    pub(super) fn begin(&mut self, head: FrameHead, reading: Reading) {
        self.remaining = head.length;
        self.padding = 0;
        self.padding_left = 0;
        self.is_first = true;
        self.stage = match reading {
            Reading::Whole => Stage::Whole,
            Reading::Data if head.has(PADDED) => Stage::PadLength,
            Reading::Data => Stage::Data,
            Reading::Skipped => Stage::Skipped,
        };
    }

    /// Discards the rest of the current payload.
    pub(super) fn skip_rest(&mut self) {
        if self.stage == Stage::Data {
            self.remaining += u32::from(self.padding_left);
            self.stage = Stage::Skipped;
        }
    }

    /// Bytes of the current or latest DATA frame that are not data: the padding and its length.
    pub(super) const fn padding_bytes(&self) -> usize {
        if self.current().has(PADDED) { 1 + self.padding as usize } else { 0 }
    }

    /// How the current payload is read; `None` between frames.
    pub(super) const fn reading(&self) -> Option<Reading> {
        match self.stage {
            Stage::Head => None,
            Stage::Whole => Some(Reading::Whole),
            Stage::PadLength | Stage::Data => Some(Reading::Data),
            Stage::Skipped => Some(Reading::Skipped),
        }
    }

    /// Whether a frame is incomplete: at the end of the input that is a truncated frame.
    pub(super) const fn is_inside_frame(&self) -> bool {
        self.head_bytes > 0
    }

    /// Whether the head of a frame of this kind is complete, but its payload is not.
    pub(super) fn is_inside_payload(&self, kind: FrameKind) -> bool {
        self.stage != Stage::Head && self.current().kind == kind
    }

    /// The payload, once it is complete.
    pub(super) fn whole<'a>(&mut self, input: &mut &'a [u8]) -> Option<Payload<'a>> {
        let wanted = self.remaining as usize;
        if self.buffer.is_empty()
            && let Some((payload, rest)) = input.split_at_checked(wanted)
        {
            *input = rest;
            self.end_frame();
            return Some(Payload::Borrowed(payload));
        }
        let (taken, rest) = input.split_at(input.len().min(wanted));
        *input = rest;
        self.buffer.extend_from_slice(taken);
        self.remaining -= taken.len() as u32;
        if self.remaining > 0 {
            return None;
        }
        self.end_frame();
        Some(Payload::Buffered(core::mem::take(&mut self.buffer)))
    }

    /// The next data of a DATA frame, and whether the frame ends with it. `None` if more bytes are needed.
    pub(super) fn data<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<DataPiece<'a>>, FaultKind> {
        if self.stage == Stage::PadLength {
            // The frame has at least one byte: `receive.rs` checked that.
            let Some((&length, rest)) = input.split_first() else { return Ok(None) };
            *input = rest;
            self.padding = length;
            self.padding_left = length;
            self.remaining = self
                .remaining
                .checked_sub(1 + u32::from(length))
                .ok_or(FaultKind::PaddingInvalid)?;
            self.stage = Stage::Data;
        }
        let frame_bytes = self.is_first.then_some(self.remaining);
        let (bytes, rest) = input.split_at(input.len().min(self.remaining as usize));
        *input = rest;
        self.remaining -= bytes.len() as u32;
        if self.remaining == 0 {
            let count = input.len().min(usize::from(self.padding_left));
            *input = input.get(count..).unwrap_or_default();
            self.padding_left -= count as u8;
        }
        let ends_frame = self.remaining == 0 && self.padding_left == 0;
        if ends_frame {
            self.end_frame();
        } else if bytes.is_empty() {
            return Ok(None);
        }
        self.is_first = false;
        Ok(Some(DataPiece { bytes, frame_bytes, ends_frame }))
    }

    /// Discards a skipped payload. Returns true once it is complete.
    pub(super) fn skip(&mut self, input: &mut &[u8]) -> bool {
        let count = input.len().min(self.remaining as usize);
        *input = input.get(count..).unwrap_or_default();
        self.remaining -= count as u32;
        if self.remaining == 0 {
            self.end_frame();
        }
        self.remaining == 0
    }

    /// Takes back the buffer of a payload, to use it for the next one.
    pub(super) fn reuse(&mut self, payload: Payload<'_>) {
        if let Payload::Buffered(mut buffer) = payload {
            buffer.clear();
            self.buffer = buffer;
        }
    }

    /// Frees memory that is not in use.
    pub(super) fn shrink(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
    }

    /// Bytes of memory on the heap.
    pub(super) const fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    const fn end_frame(&mut self) {
        self.stage = Stage::Head;
        self.head_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::FrameKind;

    /// Reads all frames in pieces of `step` bytes: each whole payload, or the data of a DATA frame.
    fn read(bytes: &[u8], step: usize) -> Vec<(FrameKind, Vec<u8>)> {
        let mut reader = FrameReader::new();
        let mut frames = Vec::new();
        let mut data = Vec::new();
        for mut input in bytes.chunks(step) {
            loop {
                match reader.reading() {
                    None => match reader.next_head(&mut input) {
                        Some(head) => {
                            let is_data = head.kind == FrameKind::Data;
                            let reading = if is_data { Reading::Data } else { Reading::Whole };
                            reader.begin(head, reading);
                        }
                        None => break,
                    },
                    Some(Reading::Data) => match reader.data(&mut input).unwrap() {
                        Some(piece) => {
                            data.extend_from_slice(piece.bytes);
                            if piece.ends_frame {
                                frames.push((FrameKind::Data, core::mem::take(&mut data)));
                            }
                        }
                        None => break,
                    },
                    Some(_) => match reader.whole(&mut input) {
                        Some(payload) => {
                            let kind = reader.current().kind;
                            frames.push((kind, payload.bytes().to_vec()));
                            reader.reuse(payload);
                        }
                        None => break,
                    },
                }
            }
        }
        assert!(!reader.is_inside_frame());
        frames
    }

    #[test]
    fn frames_are_the_same_in_pieces_of_any_size() {
        let bytes = b"\0\0\x08\x06\0\0\0\0\0pingpong\0\0\x08\0\x08\0\0\0\x01\x04abc\0\0\0\0\
            \0\0\0\0\0\0\0\0\x01\0\0\x02\0\x08\0\0\0\x01\x01\0\0\0\0\x04\x01\0\0\0\0\0\0\x03\0\0\0\0\0\x01xyz";
        let whole = read(bytes, bytes.len());
        let wanted: [(FrameKind, &[u8]); 6] = [
            (FrameKind::Ping, b"pingpong"),
            (FrameKind::Data, b"abc"),
            (FrameKind::Data, b""),
            (FrameKind::Data, b""),
            (FrameKind::Settings, b""),
            (FrameKind::Data, b"xyz"),
        ];
        assert!(whole.iter().map(|(kind, bytes)| (*kind, &bytes[..])).eq(wanted));
        for step in 1..bytes.len() {
            assert_eq!(read(bytes, step), whole, "pieces of {step} bytes");
        }
    }

    #[test]
    fn padding_longer_than_the_frame_is_rejected() {
        let mut reader = FrameReader::new();
        let mut input = &b"\0\0\x02\0\x08\0\0\0\x01\x02a"[..];
        let head = reader.next_head(&mut input).unwrap();
        reader.begin(head, Reading::Data);
        assert_eq!(reader.data(&mut input), Err(FaultKind::PaddingInvalid));
    }
}
