//! Frames: the head that all have in common, the payloads of each type, and their encoding (RFC 9113
//! sections 4 and 6).
//! In: nine bytes; a whole payload. Out: `FrameHead`, parts of the payload; encoded frames.
//! Never: depends on the state of a stream or of the connection; `receive.rs` does that.
//! Invariant: the reserved bit of a stream id or an increment is ignored on receipt and sent as 0.

use super::bounds::FRAME_BYTES_MAX;
use super::fault::{ErrorCode, FaultKind};

/// The client's connection preface (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame head.
pub const FRAME_HEAD_BYTES: usize = 9;

/// DATA, HEADERS: no further frame of this side follows on the stream.
pub const END_STREAM: u8 = 0x1;
/// SETTINGS, PING: an acknowledgement.
pub const ACK: u8 = 0x1;
/// HEADERS, CONTINUATION: the header block ends with this frame.
pub const END_HEADERS: u8 = 0x4;
/// DATA, HEADERS: the payload begins with the length of the padding at its end.
pub const PADDED: u8 = 0x8;
/// HEADERS: the payload contains a priority by RFC 7540.
pub const PRIORITY: u8 = 0x20;

/// The type of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// Part of a body.
    Data,
    /// A head or trailers.
    Headers,
    /// A priority by RFC 7540; ignored.
    Priority,
    /// The end of a stream by an error.
    RstStream,
    /// Settings of the sender, or their acknowledgement.
    Settings,
    /// Server push; never accepted.
    PushPromise,
    /// A liveness check, or its acknowledgement.
    Ping,
    /// The sender closes the connection.
    GoAway,
    /// The sender enlarges a flow-control window.
    WindowUpdate,
    /// More of the header block that a HEADERS frame began.
    Continuation,
    /// A priority by RFC 9218.
    PriorityUpdate,
    /// Any other type; ignored.
    Unknown(u8),
}

impl FrameKind {
    /// The type with this number.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        match byte {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x2 => Self::Priority,
            0x3 => Self::RstStream,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            0x10 => Self::PriorityUpdate,
            other => Self::Unknown(other),
        }
    }

    /// The number of the type.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Data => 0x0,
            Self::Headers => 0x1,
            Self::Priority => 0x2,
            Self::RstStream => 0x3,
            Self::Settings => 0x4,
            Self::PushPromise => 0x5,
            Self::Ping => 0x6,
            Self::GoAway => 0x7,
            Self::WindowUpdate => 0x8,
            Self::Continuation => 0x9,
            Self::PriorityUpdate => 0x10,
            Self::Unknown(byte) => byte,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// Bytes of the payload, below 2^24.
    pub length: u32,
    /// The type.
    pub kind: FrameKind,
    /// The flags. Flags that the type does not define are ignored.
    pub flags: u8,
    /// The stream; 0 for the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Decodes a head.
    #[must_use]
    pub const fn decode(bytes: &[u8; FRAME_HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *bytes;
        Self {
            length: u32::from_be_bytes([0, a, b, c]),
            kind: FrameKind::from_byte(kind),
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        }
    }

    /// The bytes of the head.
    #[must_use]
    pub const fn encode(self) -> [u8; FRAME_HEAD_BYTES] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [a, b, c, self.kind.to_byte(), self.flags, s0, s1, s2, s3]
    }

    /// Whether a flag is set.
    #[must_use]
    pub const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Appends the head.
    pub(super) fn append(self, out: &mut Vec<u8>) {
        debug_assert!(self.length <= FRAME_BYTES_MAX || self.length < 1 << 24);
        out.extend_from_slice(&self.encode());
    }
}

/// The first four bytes of a payload as a number without its reserved bit.
#[must_use]
pub fn decode_u31(payload: &[u8]) -> u32 {
    decode_u32(payload) & 0x7fff_ffff
}

/// The first four bytes of a payload as a number; 0 if there are fewer.
#[must_use]
pub fn decode_u32(payload: &[u8]) -> u32 {
    match payload {
        [a, b, c, d, ..] => u32::from_be_bytes([*a, *b, *c, *d]),
        _ => 0,
    }
}

/// The header block fragment in the payload of HEADERS, without padding and priority (RFC 9113 section 6.2),
/// and the stream that the priority depends on.
///
/// # Errors
/// If padding or priority do not fit into the payload.
pub fn split_headers(head: FrameHead, payload: &[u8]) -> Result<(&[u8], Option<u32>), FaultKind> {
    let mut rest = payload;
    let mut padding = 0;
    if head.has(PADDED) {
        let (&length, after) = rest.split_first().ok_or(FaultKind::FrameLengthInvalid)?;
        padding = usize::from(length);
        rest = after;
    }
    let mut dependency = None;
    if head.has(PRIORITY) {
        let (priority, after) = rest.split_at_checked(5).ok_or(FaultKind::FrameLengthInvalid)?;
        dependency = Some(decode_u31(priority));
        rest = after;
    }
    let end = rest.len().checked_sub(padding).ok_or(FaultKind::PaddingInvalid)?;
    Ok((rest.get(..end).unwrap_or_default(), dependency))
}

/// Appends a RST_STREAM frame.
pub fn encode_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    FrameHead { length: 4, kind: FrameKind::RstStream, flags: 0, stream }.append(out);
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Appends a WINDOW_UPDATE frame; `stream` is 0 for the connection.
pub fn encode_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    debug_assert!(increment > 0, "an increment of 0 is an error");
    FrameHead { length: 4, kind: FrameKind::WindowUpdate, flags: 0, stream }.append(out);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends a PING frame.
pub fn encode_ping(out: &mut Vec<u8>, is_ack: bool, opaque: [u8; 8]) {
    let flags = if is_ack { ACK } else { 0 };
    FrameHead { length: 8, kind: FrameKind::Ping, flags, stream: 0 }.append(out);
    out.extend_from_slice(&opaque);
}

/// Appends a GOAWAY frame. `debug` is for the operator of the peer.
pub fn encode_goaway(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode, debug: &str) {
    let length = 8 + debug.len() as u32;
    FrameHead { length, kind: FrameKind::GoAway, flags: 0, stream: 0 }.append(out);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(debug.as_bytes());
}

/// Appends a SETTINGS frame with `entries`, each an identifier and a value.
pub fn encode_settings(out: &mut Vec<u8>, entries: &[(u16, u32)]) {
    let length = 6 * entries.len() as u32;
    FrameHead { length, kind: FrameKind::Settings, flags: 0, stream: 0 }.append(out);
    for (id, value) in entries {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of a SETTINGS frame.
pub fn encode_settings_ack(out: &mut Vec<u8>) {
    FrameHead { length: 0, kind: FrameKind::Settings, flags: ACK, stream: 0 }.append(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_heads_survive_encoding_and_the_reserved_bit_is_ignored() {
        for kind in 0..=u8::MAX {
            let bytes = [0x01, 0x02, 0x03, kind, 0x2d, 0xff, 0xff, 0xff, 0xfe];
            let head = FrameHead::decode(&bytes);
            assert_eq!((head.length, head.stream), (0x01_02_03, 0x7fff_fffe));
            assert_eq!(head.kind.to_byte(), kind);
            assert_eq!(FrameHead::decode(&head.encode()), head);
            assert_eq!(head.encode()[5], 0x7f);
        }
    }

    #[test]
    fn padding_and_priority_are_cut_off_a_headers_frame() {
        let frame = |flags, payload: &'static [u8]| {
            let head = FrameHead { length: 0, kind: FrameKind::Headers, flags, stream: 1 };
            split_headers(head, payload)
        };
        assert_eq!(frame(0, b"abc"), Ok((&b"abc"[..], None)));
        assert_eq!(frame(PADDED, b"\x02abc\0\0"), Ok((&b"abc"[..], None)));
        assert_eq!(frame(PADDED, b"\x03abc"), Ok((&b""[..], None)));
        assert_eq!(frame(PADDED, b"\x04abc"), Err(FaultKind::PaddingInvalid));
        assert_eq!(frame(PADDED, b""), Err(FaultKind::FrameLengthInvalid));
        assert_eq!(frame(PRIORITY, b"\x80\0\0\x07\x10abc"), Ok((&b"abc"[..], Some(7))));
        assert_eq!(frame(PRIORITY, b"\0\0\0\x07"), Err(FaultKind::FrameLengthInvalid));
        let both = frame(PADDED | PRIORITY, b"\x01\0\0\0\x07\x10abc\0");
        assert_eq!(both, Ok((&b"abc"[..], Some(7))));
    }
}
