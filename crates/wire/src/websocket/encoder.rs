//! Encodes frames (RFC 6455 sections 5 and 7).
//! In: messages, pieces of messages, control payloads; for clients a fresh unpredictable key for each frame.
//! Out: bytes appended to an output buffer; compressed frames for many connections.
//! Never: writes a frame that the decoder of the other role would reject, if the caller ends one message before it
//! begins the next.
//! Limits: control payloads have at most `CONTROL_BYTES_MAX` bytes.
//! Invariant: a message is encoded in the fewest bytes; an encoded message decodes to the same message.

use super::close::Close;
use super::decoder::Kind;
use super::deflate::Deflater;
use super::fault::FaultKind;
use super::frame::{CONTROL_BYTES_MAX, FRAME_HEAD_BYTES_MAX, FrameHead, Opcode};
use super::mask::{MaskKey, apply_mask};

/// A payload is longer than a control frame may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlTooLong;

/// A fragment of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// The type of the message.
    pub kind: Kind,
    /// Whether it is the first of its message.
    pub is_first: bool,
    /// Whether it is the last of its message.
    pub is_last: bool,
    /// Whether the message is compressed.
    pub is_deflated: bool,
}

impl Fragment {
    /// A message in one frame.
    #[must_use]
    pub const fn whole(kind: Kind) -> Self {
        Self { kind, is_first: true, is_last: true, is_deflated: false }
    }

    const fn head(self, length: usize, key: Option<MaskKey>) -> FrameHead {
        let opcode = match (self.is_first, self.kind) {
            (false, _) => Opcode::Continuation,
            (true, Kind::Text) => Opcode::Text,
            (true, Kind::Binary) => Opcode::Binary,
        };
        FrameHead {
            is_final: self.is_last,
            is_deflated: self.is_deflated && self.is_first,
            opcode,
            length: length as u64,
            key,
        }
    }
}

/// Appends a message in one frame. A server gives no key. Text must be valid UTF-8.
#[inline]
pub fn encode_message(out: &mut Vec<u8>, kind: Kind, data: &[u8], key: Option<MaskKey>) {
    encode_fragment(out, Fragment::whole(kind), data, key);
}

/// Appends one fragment of a message.
#[inline]
pub fn encode_fragment(out: &mut Vec<u8>, fragment: Fragment, data: &[u8], key: Option<MaskKey>) {
    encode_frame(out, &fragment.head(data.len(), key), data);
}

/// Appends a message in one frame, compressed if that makes it shorter or if the compressor keeps its context.
///
/// # Errors
/// `DeflateFailed`, a bug. Nothing was appended.
pub fn encode_deflated(
    out: &mut Vec<u8>,
    kind: Kind,
    data: &[u8],
    deflater: &mut Deflater,
    key: Option<MaskKey>,
) -> Result<(), FaultKind> {
    let keeps_context = deflater.keeps_context();
    let deflated = deflater.compress(data)?;
    if keeps_context || deflated.len() < data.len() {
        let fragment = Fragment { is_deflated: true, ..Fragment::whole(kind) };
        encode_fragment(out, fragment, deflated, key);
    } else {
        encode_message(out, kind, data, key);
    }
    Ok(())
}

/// Appends a Ping.
///
/// # Errors
/// If the payload is longer than `CONTROL_BYTES_MAX`.
pub fn encode_ping(
    out: &mut Vec<u8>,
    payload: &[u8],
    key: Option<MaskKey>,
) -> Result<(), ControlTooLong> {
    encode_control(out, Opcode::Ping, payload, key)
}

/// Appends a Pong. A response to a Ping has the same payload (section 5.5.3).
///
/// # Errors
/// As `encode_ping`; the payload of a received Ping always fits.
pub fn encode_pong(
    out: &mut Vec<u8>,
    payload: &[u8],
    key: Option<MaskKey>,
) -> Result<(), ControlTooLong> {
    encode_control(out, Opcode::Pong, payload, key)
}

/// Appends a Close frame. A reason that is too long is cut. No data may be sent after it.
pub fn encode_close(out: &mut Vec<u8>, close: Option<Close<'_>>, key: Option<MaskKey>) {
    let mut payload = [0; CONTROL_BYTES_MAX];
    let mut length = 0;
    if let Some(close) = close {
        let reason = close.short_reason().as_bytes();
        length = 2 + reason.len();
        payload[..2].copy_from_slice(&close.code.get().to_be_bytes());
        payload[2..length].copy_from_slice(reason);
    }
    let head = control_head(Opcode::Close, length, key);
    encode_frame(out, &head, &payload[..length]);
}

/// Appends the response to a Close frame: the same code, without the reason (section 5.5.1).
pub fn encode_close_reply(out: &mut Vec<u8>, received: Option<Close<'_>>, key: Option<MaskKey>) {
    encode_close(out, received.map(|close| Close::new(close.code)), key);
}

fn encode_control(
    out: &mut Vec<u8>,
    opcode: Opcode,
    payload: &[u8],
    key: Option<MaskKey>,
) -> Result<(), ControlTooLong> {
    if payload.len() > CONTROL_BYTES_MAX {
        return Err(ControlTooLong);
    }
    encode_frame(out, &control_head(opcode, payload.len(), key), payload);
    Ok(())
}

const fn control_head(opcode: Opcode, length: usize, key: Option<MaskKey>) -> FrameHead {
    FrameHead { is_final: true, is_deflated: false, opcode, length: length as u64, key }
}

#[inline]
fn encode_frame(out: &mut Vec<u8>, head: &FrameHead, payload: &[u8]) {
    head.encode(out);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(key) = head.key {
        apply_mask(&mut out[start..], key);
    }
}

/// A server's message as one compressed frame for many connections; `None` if compression does not shorten it. A shared
/// `deflater` is needed, whose window is `DeflateParameters::shared_window_bits` of each of the connections. If one of them
/// keeps its context, [`Deflater::forget`] must precede the next message of its own compressor.
///
/// # Errors
/// `DeflateFailed`, a bug.
pub fn deflated_frame(
    kind: Kind,
    data: &[u8],
    deflater: &mut Deflater,
) -> Result<Option<Box<[u8]>>, FaultKind> {
    debug_assert!(!deflater.keeps_context(), "the frame refers to messages of one connection");
    let deflated = deflater.compress(data)?;
    if deflated.len() >= data.len() {
        return Ok(None);
    }
    let mut frame = Vec::with_capacity(deflated.len() + FRAME_HEAD_BYTES_MAX);
    let fragment = Fragment { is_deflated: true, ..Fragment::whole(kind) };
    encode_fragment(&mut frame, fragment, deflated, None);
    Ok(Some(frame.into_boxed_slice()))
}
