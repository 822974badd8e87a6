//! Decodes the frames of a connection (RFC 6455 sections 5 to 7).
//! In: received bytes, split anywhere. Out: pieces of messages and whole control frames as [`Event`]s that
//! borrow from the input, or a `Fault`.
//! Never: copies the data of a message, except a character of a text message that two pieces split; allocates, except
//! for a control frame whose payload arrives in several pieces.
//! Limits: those in [`Limits`]; they hold before any payload is read.
//! Invariant: how the input is split changes neither the messages nor the fault; each call consumes at least one
//! byte of a non-empty input.

use tidegate_base::limits::{
    WEBSOCKET_FRAGMENTS_MAX, WEBSOCKET_FRAME_BYTES_MAX, WEBSOCKET_INFLATE_RATIO_MAX,
    WEBSOCKET_MESSAGE_BYTES_MAX,
};

use super::close::Close;
use super::fault::{Fault, FaultKind};
use super::frame::{CONTROL_BYTES_MAX, FRAME_HEAD_BYTES_MAX, FrameHead, FrameRules, Opcode, Role};
use super::mask::{MaskKey, apply_mask};
use super::utf8::SplitChar;

/// The type of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// Any bytes.
    Binary,
}

/// The limits of the messages of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest payload of a data frame.
    pub frame_bytes_max: u32,
    /// The longest message, after decompression.
    pub message_bytes_max: u32,
    /// Maximum number of fragments of a message.
    pub fragments_max: u32,
    /// How many times larger than its compressed form a message may be, beyond
    /// `WEBSOCKET_INFLATE_FREE_BYTES`.
    pub inflate_ratio_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: WEBSOCKET_FRAME_BYTES_MAX,
            message_bytes_max: WEBSOCKET_MESSAGE_BYTES_MAX,
            fragments_max: WEBSOCKET_FRAGMENTS_MAX,
            inflate_ratio_max: WEBSOCKET_INFLATE_RATIO_MAX,
        }
    }
}

/// The result of one call of [`Decoder::decode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step<'b> {
    /// Bytes of the input that were consumed, including those of `event`.
    pub consumed: usize,
    /// Their content; `None` if they complete nothing. More may follow in the rest of the input.
    pub event: Option<Event<'b>>,
}

/// A message or control frame of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'b> {
    /// A piece of a message.
    Data(Data<'b>),
    /// A Ping; send a Pong with the same payload.
    Ping(&'b [u8]),
    /// A Pong.
    Pong(&'b [u8]),
    /// The Close frame. Unless this endpoint has sent one already, send one with the same code, then close
    /// the connection. The decoder ignores all further input.
    Close(Option<Close<'b>>),
}

/// A piece of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data<'b> {
    /// The type of the message.
    pub kind: Kind,
    /// Whether this piece is the first of its message.
    pub is_first: bool,
    /// Whether this piece is the last of its message. It may be empty.
    pub is_last: bool,
    /// The data.
    pub piece: Piece<'b>,
}

/// The data of a piece, unmasked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'b> {
    /// Text. A character that two pieces split is returned whole, in a separate piece.
    Text(&'b str),
    /// Binary data.
    Binary(&'b [u8]),
    /// Compressed data of a text or binary message. The text is not checked yet.
    Deflated(&'b [u8]),
}

impl<'b> Piece<'b> {
    /// The data, whatever its type.
    #[must_use]
    pub const fn bytes(&self) -> &'b [u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) | Self::Deflated(bytes) => bytes,
        }
    }
}

/// How far the closing handshake has progressed (RFC 6455 section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// Neither endpoint has sent a Close frame.
    No,
    /// This endpoint has sent one; messages may still arrive.
    Sent,
    /// The peer has sent one; this endpoint has yet to respond.
    Received,
    /// Both have sent one. A server closes the TCP connection at once, a client waits for the server to do so.
    Done,
    /// The connection failed.
    Failed,
}

/// The message in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    None,
    Text,
    Binary,
    DeflatedText,
    DeflatedBinary,
}

/// Decodes the frames of one peer.
#[derive(Debug)]
pub struct Decoder {
    /// The part of a frame that the next byte belongs to.
    phase: Phase,
    /// Bytes of payload in all frames of the message in progress, the current one included.
    message_bytes: u32,
    /// Frames of the message in progress.
    fragments: u32,
    /// The start of a character whose rest has not arrived.
    split_char: SplitChar,
    /// The message in progress.
    progress: Progress,
    /// The state of the closing handshake.
    closing: Closing,
    /// A set of `IS_CLIENT`, `ALLOWS_DEFLATE` and `HAS_PIECE`.
    flags: u8,
}

/// Flag: this endpoint is the client.
const IS_CLIENT: u8 = 1;
/// Flag: permessage-deflate was negotiated.
const ALLOWS_DEFLATE: u8 = 2;
/// Flag: a piece of the message in progress was returned.
const HAS_PIECE: u8 = 4;

const _: () = assert!(size_of::<Decoder>() <= 32);

/// The part of a frame that the next byte belongs to.
#[derive(Debug)]
enum Phase {
    /// The head; its first `length` bytes are known.
    Head { bytes: [u8; FRAME_HEAD_BYTES_MAX - 1], length: u8 },
    /// The payload of a data frame, of which `remaining` bytes are missing.
    Payload { is_final: bool, key: MaskKey, remaining: u64 },
    /// The payload of a control frame that arrives in several pieces.
    Control(Box<SplitControl>),
}

impl Phase {
    const START: Self = Self::Head { bytes: [0; FRAME_HEAD_BYTES_MAX - 1], length: 0 };
}

/// A control frame whose payload arrives in several pieces.
#[derive(Debug)]
struct SplitControl {
    opcode: Opcode,
    /// Bytes of the whole payload.
    length: u8,
    /// Bytes that have arrived.
    filled: u8,
    /// The key for the next byte.
    key: MaskKey,
    /// The payload so far, unmasked.
    bytes: [u8; CONTROL_BYTES_MAX],
}

impl Decoder {
    /// Creates the decoder of an endpoint with this role.
    #[must_use]
    pub const fn new(rules: FrameRules) -> Self {
        let mut flags = 0;
        if matches!(rules.role, Role::Client) {
            flags |= IS_CLIENT;
        }
        if rules.allows_deflate {
            flags |= ALLOWS_DEFLATE;
        }
        Self {
            phase: Phase::START,
            message_bytes: 0,
            fragments: 0,
            split_char: SplitChar::EMPTY,
            progress: Progress::None,
            closing: Closing::No,
            flags,
        }
    }

    /// The role and the extension that this decoder was created with.
    #[must_use]
    pub const fn rules(&self) -> FrameRules {
        FrameRules {
            role: if self.flags & IS_CLIENT == 0 { Role::Server } else { Role::Client },
            allows_deflate: self.flags & ALLOWS_DEFLATE != 0,
        }
    }

    /// How far the closing handshake has progressed.
    #[must_use]
    pub const fn closing(&self) -> Closing {
        self.closing
    }

    /// Records that this endpoint has sent its Close frame.
    pub const fn note_close_sent(&mut self) {
        self.closing = match self.closing {
            Closing::No => Closing::Sent,
            Closing::Received => Closing::Done,
            other => other,
        };
    }

    /// Makes the decoder ignore all further input, as after a fault. Call it if the caller itself fails the
    /// connection, and after a fault of `decode_message`.
    pub const fn fail(&mut self) {
        self.closing = Closing::Failed;
    }

    /// Whether a message is in progress: its first frame has begun, but not all of it was returned.
    #[must_use]
    pub fn is_in_message(&self) -> bool {
        self.progress != Progress::None
    }

    /// Whether the last byte was the end of a frame and no message is in progress.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        let is_at_start = match &self.phase {
            Phase::Head { length, .. } => *length == 0,
            Phase::Payload { .. } => false,
            Phase::Control(control) => control.filled == control.length,
        };
        is_at_start && !self.is_in_message()
    }

    /// Frees the payload of a control frame that was returned already. Call it when a read was handled.
    pub fn release(&mut self) {
        if matches!(&self.phase, Phase::Control(control) if control.filled == control.length) {
            self.phase = Phase::START;
        }
    }

    /// Decodes the next piece from `input`, which is unmasked in place. Call it again while there is input left.
    ///
    /// # Errors
    /// A violation of the protocol, or a limit. The decoder then ignores all further input.
    #[inline]
    pub fn decode<'b>(
        &'b mut self,
        input: &'b mut [u8],
        limits: &Limits,
    ) -> Result<Step<'b>, Fault> {
        if matches!(self.closing, Closing::Received | Closing::Done | Closing::Failed) {
            return Ok(Step { consumed: input.len(), event: None });
        }
        self.release();
        let head_bytes = match self.read_head(input, limits) {
            Ok(Some(Begun::Data { head_bytes })) => head_bytes,
            Ok(Some(Begun::Control { head, head_bytes })) => {
                return self.take_control(&head, head_bytes, input);
            }
            Ok(None) => return Ok(Step { consumed: input.len(), event: None }),
            Err(kind) => return Err(self.fault(kind)),
        };
        match self.phase {
            Phase::Control(_) => self.resume_control(0, input),
            _ => self.take_data(input, head_bytes),
        }
    }

    /// Reads the head of the next frame and begins the frame, unless one has begun already. `None` if the head
    /// is incomplete.
    #[inline]
    fn read_head(&mut self, input: &[u8], limits: &Limits) -> Result<Option<Begun>, FaultKind> {
        let rules = self.rules();
        let Phase::Head { bytes, length } = &mut self.phase else {
            return Ok(Some(Begun::Data { head_bytes: 0 }));
        };
        let known = usize::from(*length);
        if known == 0 {
            check_place(input, self.progress)?;
        }
        let decoded = if known == 0 {
            FrameHead::decode(input, rules)?
        } else {
            let mut whole = [0; FRAME_HEAD_BYTES_MAX];
            whole[..known].copy_from_slice(&bytes[..known]);
            let added = input.len().min(FRAME_HEAD_BYTES_MAX - known);
            whole[known..known + added].copy_from_slice(&input[..added]);
            FrameHead::decode(&whole[..known + added], rules)?
        };
        let Some((head, head_bytes)) = decoded else {
            // An incomplete head is shorter than the longest head.
            for (place, byte) in bytes[known..].iter_mut().zip(input) {
                *place = *byte;
                *length += 1;
            }
            return Ok(None);
        };
        let head_bytes = head_bytes - known;
        self.begin_frame(&head, limits)?;
        if head.opcode.is_control() {
            return Ok(Some(Begun::Control { head, head_bytes }));
        }
        let key = head.key.unwrap_or_default();
        self.phase = Phase::Payload { is_final: head.is_final, key, remaining: head.length };
        Ok(Some(Begun::Data { head_bytes }))
    }

    /// Checks the length of a frame whose place was checked, and counts it.
    #[inline]
    fn begin_frame(&mut self, head: &FrameHead, limits: &Limits) -> Result<(), FaultKind> {
        let progress = match (head.opcode, self.progress) {
            (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => return Ok(()),
            (Opcode::Continuation, progress) => progress,
            (Opcode::Text, _) if head.is_deflated => Progress::DeflatedText,
            (Opcode::Text, _) => Progress::Text,
            (Opcode::Binary, _) if head.is_deflated => Progress::DeflatedBinary,
            (Opcode::Binary, _) => Progress::Binary,
        };
        if head.length > u64::from(limits.frame_bytes_max) {
            return Err(FaultKind::FrameTooLarge);
        }
        let is_deflated = matches!(progress, Progress::DeflatedText | Progress::DeflatedBinary);
        let bytes_max = if is_deflated {
            deflated_bytes_max(limits.message_bytes_max)
        } else {
            u64::from(limits.message_bytes_max)
        };
        let message_bytes = u64::from(self.message_bytes) + head.length;
        match u32::try_from(message_bytes) {
            Ok(bytes) if message_bytes <= bytes_max => self.message_bytes = bytes,
            _ => return Err(FaultKind::MessageTooLarge),
        }
        if self.fragments >= limits.fragments_max {
            return Err(FaultKind::TooManyFragments);
        }
        self.fragments += 1;
        self.progress = progress;
        Ok(())
    }

    /// Returns the control frame with this head if all its payload has arrived, and keeps its start otherwise.
    #[inline]
    fn take_control<'b>(
        &'b mut self,
        head: &FrameHead,
        head_bytes: usize,
        input: &'b mut [u8],
    ) -> Result<Step<'b>, Fault> {
        let length = head.length as usize;
        let key = head.key.unwrap_or_default();
        if input.len() - head_bytes < length {
            let (length, opcode) = (head.length as u8, head.opcode);
            let bytes = [0; CONTROL_BYTES_MAX];
            self.phase =
                Phase::Control(Box::new(SplitControl { opcode, length, filled: 0, key, bytes }));
            return self.resume_control(head_bytes, input);
        }
        self.phase = Phase::START;
        let payload = &mut input[head_bytes..head_bytes + length];
        apply_mask(payload, key);
        match control_event(head.opcode, payload, &mut self.closing) {
            Ok(event) => Ok(Step { consumed: head_bytes + length, event: Some(event) }),
            Err(kind) => Err(Fault { kind }),
        }
    }

    /// Adds payload to the control frame in progress, after `head_bytes` that are consumed too.
    fn resume_control<'b>(
        &'b mut self,
        head_bytes: usize,
        input: &'b [u8],
    ) -> Result<Step<'b>, Fault> {
        let Phase::Control(control) = &mut self.phase else {
            return Ok(Step { consumed: input.len(), event: None });
        };
        let (filled, length) = (usize::from(control.filled), usize::from(control.length));
        let payload = &input[head_bytes..];
        let added = payload.len().min(length - filled);
        let place = &mut control.bytes[filled..filled + added];
        place.copy_from_slice(&payload[..added]);
        control.key = apply_mask(place, control.key);
        control.filled += added as u8;
        let consumed = head_bytes + added;
        if filled + added < length {
            return Ok(Step { consumed, event: None });
        }
        match control_event(control.opcode, &control.bytes[..length], &mut self.closing) {
            Ok(event) => Ok(Step { consumed, event: Some(event) }),
            Err(kind) => Err(Fault { kind }),
        }
    }

    /// Returns the data of the current frame in `input`, after `head_bytes` that are consumed too.
    #[inline]
    fn take_data<'b>(
        &'b mut self,
        input: &'b mut [u8],
        head_bytes: usize,
    ) -> Result<Step<'b>, Fault> {
        let Phase::Payload { is_final, key, remaining } = &mut self.phase else {
            return Ok(Step { consumed: input.len(), event: None });
        };
        let is_final = *is_final;
        let payload = &mut input[head_bytes..];
        let mut length =
            usize::try_from(*remaining).map_or(payload.len(), |n| n.min(payload.len()));
        let missing = self.split_char.missing();
        if missing > 0 && length > missing {
            length = missing;
        }
        let payload = &mut payload[..length];
        if self.flags & IS_CLIENT == 0 {
            *key = apply_mask(payload, *key);
        }
        *remaining -= length as u64;
        let is_frame_end = *remaining == 0;
        let is_last = is_frame_end && is_final;
        if is_frame_end {
            self.phase = Phase::START;
        }
        let progress = self.progress;
        let is_first = self.flags & HAS_PIECE == 0;
        let consumed = head_bytes + length;
        if is_last {
            self.end_message();
        }
        let piece = match piece_of(progress, payload, missing > 0, is_last, &mut self.split_char) {
            Ok(piece) => piece,
            Err(kind) => {
                self.closing = Closing::Failed;
                return Err(Fault { kind });
            }
        };
        if piece.bytes().is_empty() && !is_last {
            return Ok(Step { consumed, event: None });
        }
        if !is_last {
            self.flags |= HAS_PIECE;
        }
        let kind = match progress {
            Progress::Text | Progress::DeflatedText => Kind::Text,
            _ => Kind::Binary,
        };
        let data = Data { kind, is_first, is_last, piece };
        Ok(Step { consumed, event: Some(Event::Data(data)) })
    }

    /// Prepares for the next message.
    #[inline]
    const fn end_message(&mut self) {
        self.progress = Progress::None;
        self.message_bytes = 0;
        self.fragments = 0;
        self.flags &= !HAS_PIECE;
    }

    const fn fault(&mut self, kind: FaultKind) -> Fault {
        self.closing = Closing::Failed;
        Fault { kind }
    }
}

/// A frame whose head is complete.
enum Begun {
    /// A data frame, or the payload of any frame that began before.
    Data { head_bytes: usize },
    /// A control frame.
    Control { head: FrameHead, head_bytes: usize },
}

/// Checks whether a frame that begins like `input` may follow. This needs its first byte only, so the fault does
/// not wait for the rest of the head.
#[inline]
fn check_place(input: &[u8], progress: Progress) -> Result<(), FaultKind> {
    let Some(first) = input.first() else { return Ok(()) };
    match (first & 0x0f, progress) {
        (0, Progress::None) => Err(FaultKind::ContinuationUnexpected),
        (1 | 2, Progress::None) => Ok(()),
        (1 | 2, _) => Err(FaultKind::MessageInterrupted),
        _ => Ok(()),
    }
}

/// Maximum number of compressed bytes of a message. Data that does not compress grows by a few bytes for each block,
/// whose size the peer chooses.
const fn deflated_bytes_max(message_bytes_max: u32) -> u64 {
    let bytes = message_bytes_max as u64;
    bytes + bytes / 8 + 64
}

/// The data of one piece. `ends_char` states that it begins within a character.
#[inline]
fn piece_of<'b>(
    progress: Progress,
    payload: &'b [u8],
    ends_char: bool,
    is_last: bool,
    split_char: &'b mut SplitChar,
) -> Result<Piece<'b>, FaultKind> {
    if matches!(progress, Progress::DeflatedText | Progress::DeflatedBinary) {
        return Ok(Piece::Deflated(payload));
    }
    if progress != Progress::Text {
        return Ok(Piece::Binary(payload));
    }
    if ends_char {
        let text = split_char.complete(payload)?;
        return match text {
            None if is_last => Err(FaultKind::TextInvalid),
            text => Ok(Piece::Text(text.unwrap_or_default())),
        };
    }
    let text = split_char.check(payload)?;
    if is_last && !split_char.is_empty() {
        return Err(FaultKind::TextInvalid);
    }
    Ok(Piece::Text(text))
}

/// The event of a whole control frame.
#[inline]
fn control_event<'b>(
    opcode: Opcode,
    payload: &'b [u8],
    closing: &mut Closing,
) -> Result<Event<'b>, FaultKind> {
    match opcode {
        Opcode::Ping => return Ok(Event::Ping(payload)),
        Opcode::Pong => return Ok(Event::Pong(payload)),
        _ => {}
    }
    match Close::decode(payload) {
        Ok(close) => {
            *closing = if *closing == Closing::Sent { Closing::Done } else { Closing::Received };
            Ok(Event::Close(close))
        }
        Err(kind) => {
            *closing = Closing::Failed;
            Err(kind)
        }
    }
}
