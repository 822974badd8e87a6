//! Decodes bodies: of known length, chunked, or until the connection closes (RFC 9112 sections 6, 7).
//! In: the bytes after the head, piece by piece. Out: pieces of the body that borrow from the input.
//! Never: buffers body bytes; accepts malformed chunk framing.
//! Limits: 16 digits in a chunk size, `CHUNK_EXTENSION_BYTES_MAX` for each chunk,
//! `CHUNK_EXTENSION_EXCESS_BYTES_MAX` and `TRAILER_BYTES_MAX` for each body.
//! Invariant: until the body is done, each call consumes at least one byte of a non-empty input.

use super::trailer::TrailerSection;
use crate::message::length::LENGTH_MAX;
use crate::message::syntax::{is_text, is_token_char};
use crate::message::{BodyLength, Fault, FaultKind};
use tidegate_base::limits::{CHUNK_EXTENSION_BYTES_MAX, CHUNK_EXTENSION_EXCESS_BYTES_MAX};

/// The result of one call of [`BodyDecoder::decode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyStep<'b> {
    /// Bytes of the input that were consumed, including `data`.
    pub consumed: usize,
    /// Body bytes; may be empty.
    pub data: &'b [u8],
    /// Whether the body is complete. The rest of the input then belongs to the next message.
    pub done: bool,
}

/// Decodes one body.
#[derive(Debug)]
pub struct BodyDecoder {
    /// Bytes still missing from the body or from the current chunk. While a chunk size is being
    /// read: the value of its digits so far.
    remaining: u64,
    /// The trailer section; `None` until a trailer field begins.
    trailers: Option<Box<TrailerSection>>,
    /// Bytes of extensions in all chunks minus bytes of chunk data, never below 0; at most
    /// `CHUNK_EXTENSION_EXCESS_BYTES_MAX`.
    extension_excess: u32,
    /// Bytes of extensions in the current chunk; at most `CHUNK_EXTENSION_BYTES_MAX`.
    extension_bytes: u16,
    /// Digits read of the current chunk size; at most 16.
    size_digits: u8,
    /// Whether trailer fields are parsed but not returned.
    drops_trailers: bool,
    /// Whether blanks may follow a chunk size.
    accepts_blanks: bool,
    /// The part of the body that the next byte belongs to.
    phase: Phase,
}

const _: () = assert!(size_of::<BodyDecoder>() <= 32);
const _: () = assert!(CHUNK_EXTENSION_BYTES_MAX < u16::MAX as usize);

/// The part of a body that the next byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Done,
    Counted,
    UntilClose,
    SizeStart,
    Size,
    SizeSpace,
    ExtensionStart,
    ExtensionName,
    ExtensionNameSpace,
    ExtensionValueStart,
    ExtensionValue,
    ExtensionQuoted,
    ExtensionQuotedPair,
    ExtensionValueEnd,
    ExtensionValueSpace,
    SizeLf,
    ChunkData,
    ChunkCr,
    ChunkLf,
    TrailerStart,
    TrailerLine,
    TrailerLineLf,
    TrailerEndLf,
}

impl BodyDecoder {
    /// Creates a decoder for a body of this length.
    #[must_use]
    #[inline]
    pub const fn new(length: BodyLength) -> Self {
        let (phase, remaining) = match length {
            BodyLength::None | BodyLength::Length(0) => (Phase::Done, 0),
            BodyLength::Length(bytes) => (Phase::Counted, bytes),
            BodyLength::Streamed => (Phase::SizeStart, 0),
            BodyLength::UntilClose => (Phase::UntilClose, 0),
        };
        Self {
            remaining,
            trailers: None,
            extension_excess: 0,
            extension_bytes: 0,
            size_digits: 0,
            drops_trailers: false,
            accepts_blanks: false,
            phase,
        }
    }

    /// Sets whether trailer fields are parsed but dropped, as RFC 9110 section 6.5.1 allows.
    #[must_use]
    #[inline]
    pub const fn dropping_trailers(mut self, drops_trailers: bool) -> Self {
        self.drops_trailers = drops_trailers;
        self
    }

    /// Sets whether blanks may follow a chunk size, as some servers pad it. Such a size has only one reading.
    #[must_use]
    #[inline]
    pub const fn accepting_blanks(mut self, accepts_blanks: bool) -> Self {
        self.accepts_blanks = accepts_blanks;
        self
    }

    /// Whether the body is complete.
    #[must_use]
    #[inline]
    pub const fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Decodes the next piece of the body from `input`. Call it again while there is input left and
    /// the body is not done.
    ///
    /// # Errors
    /// Malformed chunk framing. Data returned before the fault is valid, but the message is not.
    #[inline]
    pub fn decode<'b>(&mut self, input: &'b [u8]) -> Result<BodyStep<'b>, Fault> {
        match self.phase {
            Phase::Done => Ok(BodyStep { consumed: 0, data: &[], done: true }),
            Phase::Counted => {
                let (data, _) = self.take_data(input);
                if self.remaining == 0 {
                    self.phase = Phase::Done;
                }
                Ok(BodyStep { consumed: data.len(), data, done: self.is_done() })
            }
            Phase::UntilClose => Ok(BodyStep { consumed: input.len(), data: input, done: false }),
            _ => self.decode_chunked(input).map_err(Fault::from),
        }
    }

    /// Handles the end of the peer's bytes.
    ///
    /// # Errors
    /// `BodyTruncated` if the body is not complete (RFC 9112 section 8).
    pub const fn handle_end(&mut self) -> Result<(), Fault> {
        match self.phase {
            Phase::Done | Phase::UntilClose => {
                self.phase = Phase::Done;
                Ok(())
            }
            _ => Err(Fault { kind: FaultKind::BodyTruncated }),
        }
    }

    /// The trailer fields of a complete chunked body that may be forwarded, as lines `name: value`,
    /// each with its CRLF. Fields that are not allowed in trailers are left out (RFC 9110 section
    /// 6.5.1). Empty if the decoder drops trailers.
    #[must_use]
    pub fn trailers(&self) -> &[u8] {
        match &self.trailers {
            Some(section) if self.is_done() && !self.drops_trailers => section.lines(),
            _ => &[],
        }
    }

    fn decode_chunked<'b>(&mut self, input: &'b [u8]) -> Result<BodyStep<'b>, FaultKind> {
        let mut rest = input;
        while let [byte, after @ ..] = rest {
            if self.phase == Phase::ChunkData {
                let (data, after) = self.take_data(rest);
                let data_bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
                self.extension_excess = self.extension_excess.saturating_sub(data_bytes);
                rest = if self.remaining == 0 { self.skip_chunk_end(after) } else { after };
                let consumed = input.len() - rest.len();
                return Ok(BodyStep { consumed, data, done: self.is_done() });
            }
            self.phase = self.handle_frame_byte(*byte)?;
            rest = after;
            if self.is_done() {
                break;
            }
        }
        Ok(BodyStep { consumed: input.len() - rest.len(), data: &[], done: self.is_done() })
    }

    fn take_data<'b>(&mut self, input: &'b [u8]) -> (&'b [u8], &'b [u8]) {
        let length = usize::try_from(self.remaining).map_or(input.len(), |n| n.min(input.len()));
        self.remaining -= length as u64;
        input.split_at(length)
    }

    /// Called after the data of a chunk. Consumes its CRLF, and the last chunk if it follows at once, so
    /// that most bodies are done together with their last data. The next call handles everything else.
    fn skip_chunk_end<'b>(&mut self, rest: &'b [u8]) -> &'b [u8] {
        self.phase = Phase::ChunkCr;
        let Some(rest) = rest.strip_prefix(b"\r\n") else {
            return rest;
        };
        self.phase = Phase::SizeStart;
        let Some(rest) = rest.strip_prefix(b"0\r\n\r\n") else {
            return rest;
        };
        self.phase = Phase::Done;
        rest
    }

    /// Handles one byte that is not chunk data. Returns the phase of the byte after it.
    fn handle_frame_byte(&mut self, byte: u8) -> Result<Phase, FaultKind> {
        match (self.phase, byte) {
            (Phase::SizeStart | Phase::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.add_size_digit(byte)
            }
            (Phase::Size, b'\r') => Ok(Phase::SizeLf),
            (Phase::Size, b'\n') => Err(FaultKind::BareLf),
            (Phase::Size | Phase::SizeSpace, b';') => self.count_extension(Phase::ExtensionStart),
            (Phase::SizeSpace, b'\r') if self.accepts_blanks => Ok(Phase::SizeLf),
            // RFC 9112 section 7.1.1 allows whitespace only before a semicolon.
            (Phase::Size | Phase::SizeSpace, b' ' | b'\t') => {
                self.count_extension(Phase::SizeSpace)
            }
            (Phase::SizeStart | Phase::Size | Phase::SizeSpace, _) => {
                Err(FaultKind::ChunkSizeInvalid)
            }
            (Phase::SizeLf, b'\n') => Ok(self.begin_chunk()),
            (Phase::ChunkCr, b'\r') => Ok(Phase::ChunkLf),
            (Phase::ChunkLf, b'\n') => Ok(Phase::SizeStart),
            (Phase::ChunkCr | Phase::ChunkLf, _) => Err(FaultKind::ChunkEndMissing),
            (Phase::TrailerStart, b'\r') => Ok(Phase::TrailerEndLf),
            (Phase::TrailerEndLf, b'\n') => Ok(Phase::Done),
            (Phase::TrailerLine, b'\r') => Ok(Phase::TrailerLineLf),
            (Phase::TrailerLineLf, b'\n') => {
                self.trailer_section().end_line()?;
                Ok(Phase::TrailerStart)
            }
            (Phase::TrailerStart | Phase::TrailerLine, b'\n') => Err(FaultKind::BareLf),
            (Phase::TrailerStart | Phase::TrailerLine, _) => {
                self.trailer_section().push(byte)?;
                Ok(Phase::TrailerLine)
            }
            (Phase::SizeLf | Phase::TrailerLineLf | Phase::TrailerEndLf, _) => {
                Err(FaultKind::BareCr)
            }
            _ => {
                let next = self.extension_phase(byte)?;
                self.count_extension(next)
            }
        }
    }

    fn add_size_digit(&mut self, byte: u8) -> Result<Phase, FaultKind> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            _ => (byte | 0x20) - b'a' + 10,
        };
        self.size_digits += 1;
        if self.size_digits > 16 || self.remaining > LENGTH_MAX >> 4 {
            return Err(FaultKind::ChunkSizeTooLarge);
        }
        self.remaining = (self.remaining << 4) | u64::from(digit);
        Ok(Phase::Size)
    }

    fn begin_chunk(&mut self) -> Phase {
        self.size_digits = 0;
        self.extension_bytes = 0;
        if self.remaining == 0 { Phase::TrailerStart } else { Phase::ChunkData }
    }

    /// Handles a byte of chunk-ext (RFC 9112 section 7.1.1). Extensions are not interpreted here, but
    /// those that other implementations could read differently must be rejected.
    fn extension_phase(&self, byte: u8) -> Result<Phase, FaultKind> {
        match (self.phase, byte) {
            (_, b'\n') => Err(FaultKind::BareLf),
            (Phase::ExtensionQuotedPair, _) if is_text(byte) => Ok(Phase::ExtensionQuoted),
            (Phase::ExtensionQuoted, b'"') => Ok(Phase::ExtensionValueEnd),
            (Phase::ExtensionQuoted, b'\\') => Ok(Phase::ExtensionQuotedPair),
            (Phase::ExtensionQuoted, _) if is_text(byte) => Ok(Phase::ExtensionQuoted),
            (Phase::ExtensionName | Phase::ExtensionValue | Phase::ExtensionValueEnd, b'\r') => {
                Ok(Phase::SizeLf)
            }
            (_, _) if byte != b'\r' && !is_text(byte) => Err(FaultKind::ControlByte),
            (Phase::ExtensionStart | Phase::ExtensionValueStart, b' ' | b'\t') => Ok(self.phase),
            (Phase::ExtensionStart | Phase::ExtensionName, _) if is_token_char(byte) => {
                Ok(Phase::ExtensionName)
            }
            (Phase::ExtensionValueStart, b'"') => Ok(Phase::ExtensionQuoted),
            (Phase::ExtensionValueStart | Phase::ExtensionValue, _) if is_token_char(byte) => {
                Ok(Phase::ExtensionValue)
            }
            (Phase::ExtensionName | Phase::ExtensionNameSpace, b' ' | b'\t') => {
                Ok(Phase::ExtensionNameSpace)
            }
            (Phase::ExtensionName | Phase::ExtensionNameSpace, b'=') => {
                Ok(Phase::ExtensionValueStart)
            }
            (
                Phase::ExtensionValue | Phase::ExtensionValueEnd | Phase::ExtensionValueSpace,
                b' ' | b'\t',
            ) => Ok(Phase::ExtensionValueSpace),
            (
                Phase::ExtensionName
                | Phase::ExtensionNameSpace
                | Phase::ExtensionValue
                | Phase::ExtensionValueEnd
                | Phase::ExtensionValueSpace,
                b';',
            ) => Ok(Phase::ExtensionStart),
            _ => Err(FaultKind::ChunkExtensionInvalid),
        }
    }

    fn count_extension(&mut self, next: Phase) -> Result<Phase, FaultKind> {
        self.extension_bytes += 1;
        self.extension_excess += 1;
        let is_too_long = usize::from(self.extension_bytes) > CHUNK_EXTENSION_BYTES_MAX
            || self.extension_excess as usize > CHUNK_EXTENSION_EXCESS_BYTES_MAX;
        if is_too_long && next != Phase::SizeLf {
            return Err(FaultKind::ChunkExtensionTooLong);
        }
        Ok(next)
    }

    fn trailer_section(&mut self) -> &mut TrailerSection {
        self.trailers.get_or_insert_default()
    }
}
