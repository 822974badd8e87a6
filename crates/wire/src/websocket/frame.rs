//! The head of a frame (RFC 6455 section 5.2).
//! In: the bytes of a frame from its first on. Out: [`FrameHead`] and its length, a request for more bytes,
//! or the fault; also encodes heads.
//! Never: accepts a length in a longer form than needed, a reserved opcode, or a bit without a meaning.
//! Limits: a head has at most `FRAME_HEAD_BYTES_MAX` bytes, a control frame `CONTROL_BYTES_MAX` of payload.
//! Invariant: a fault is reported at the first byte that shows it; an encoded head decodes to the same head.

use super::fault::FaultKind;
use super::mask::MaskKey;

/// Bytes of the longest head: two, a 64-bit length and a key.
pub const FRAME_HEAD_BYTES_MAX: usize = 14;
/// The longest payload of a control frame (section 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RSV2_AND_RSV3: u8 = 0x30;
const MASKED: u8 = 0x80;

/// The role of this endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Sends unmasked frames and receives masked frames.
    Server,
    /// Sends masked frames and receives unmasked frames.
    Client,
}

/// The type of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// A further fragment of a message.
    Continuation = 0,
    /// A text message, or its first fragment.
    Text = 1,
    /// A binary message, or its first fragment.
    Binary = 2,
    /// The sender closes.
    Close = 8,
    /// A request for a Pong.
    Ping = 9,
    /// The response to a Ping, or a sign of life.
    Pong = 10,
}

impl Opcode {
    const fn new(number: u8) -> Result<Self, FaultKind> {
        match number {
            0 => Ok(Self::Continuation),
            1 => Ok(Self::Text),
            2 => Ok(Self::Binary),
            8 => Ok(Self::Close),
            9 => Ok(Self::Ping),
            10 => Ok(Self::Pong),
            _ => Err(FaultKind::OpcodeReserved),
        }
    }

    /// Whether frames of this type are control frames.
    #[must_use]
    pub const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The rules for frame heads on one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRules {
    /// The role of the endpoint that receives the frame.
    pub role: Role,
    /// Whether permessage-deflate was negotiated.
    pub allows_deflate: bool,
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// Whether the frame ends its message.
    pub is_final: bool,
    /// Whether RSV1 is set: the message is compressed (RFC 7692 section 6).
    pub is_deflated: bool,
    /// The type.
    pub opcode: Opcode,
    /// Bytes of the payload; below 2⁶³.
    pub length: u64,
    /// The key of a masked payload.
    pub key: Option<MaskKey>,
}

impl FrameHead {
    /// Decodes the head at the start of `bytes` and returns it with its length, or `None` if it is incomplete.
    ///
    /// # Errors
    /// The first violation of section 5.2, 5.4 or 5.5 that is visible in the head alone.
    #[inline]
    pub fn decode(bytes: &[u8], rules: FrameRules) -> Result<Option<(Self, usize)>, FaultKind> {
        let &[first, ref rest @ ..] = bytes else { return Ok(None) };
        let opcode = check_first(first, rules)?;
        let &[second, ref rest @ ..] = rest else { return Ok(None) };
        let is_masked = second & MASKED != 0;
        check_second(second, opcode, rules.role)?;
        let (length, rest) = match second & !MASKED {
            126 => {
                let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
                (long_length(u16::from_be_bytes(*length).into(), 126)?, rest)
            }
            127 => {
                let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
                (long_length(u64::from_be_bytes(*length), 1 << 16)?, rest)
            }
            short => (u64::from(short), rest),
        };
        let (key, rest) = if is_masked {
            let Some((key, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (Some(*key), rest)
        } else {
            (None, rest)
        };
        let (is_final, is_deflated) = (first & FIN != 0, first & RSV1 != 0);
        let head = Self { is_final, is_deflated, opcode, length, key };
        Ok(Some((head, bytes.len() - rest.len())))
    }

    /// Appends the head to `out`.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let fin = if self.is_final { FIN } else { 0 };
        let rsv1 = if self.is_deflated { RSV1 } else { 0 };
        let masked = if self.key.is_some() { MASKED } else { 0 };
        let first = fin | rsv1 | self.opcode as u8;
        if self.length < 126 {
            out.extend_from_slice(&[first, masked | self.length as u8]);
        } else if let Ok(length) = u16::try_from(self.length) {
            let [high, low] = length.to_be_bytes();
            out.extend_from_slice(&[first, masked | 126, high, low]);
        } else {
            out.extend_from_slice(&[first, masked | 127]);
            out.extend_from_slice(&self.length.to_be_bytes());
        }
        if let Some(key) = &self.key {
            out.extend_from_slice(key);
        }
    }
}

/// Checks the first byte of a head.
#[inline]
fn check_first(first: u8, rules: FrameRules) -> Result<Opcode, FaultKind> {
    if first & RSV2_AND_RSV3 != 0 || first & RSV1 != 0 && !rules.allows_deflate {
        return Err(FaultKind::ReservedBit);
    }
    let opcode = Opcode::new(first & 0x0f)?;
    if first & RSV1 != 0 && (opcode.is_control() || opcode == Opcode::Continuation) {
        return Err(FaultKind::CompressionMisplaced);
    }
    if opcode.is_control() && first & FIN == 0 {
        return Err(FaultKind::ControlFragmented);
    }
    Ok(opcode)
}

/// Checks the second byte of a head.
#[inline]
fn check_second(second: u8, opcode: Opcode, role: Role) -> Result<(), FaultKind> {
    match (role, second & MASKED != 0) {
        (Role::Server, false) => Err(FaultKind::MaskMissing),
        (Role::Client, true) => Err(FaultKind::MaskUnexpected),
        _ if opcode.is_control() && usize::from(second & !MASKED) > CONTROL_BYTES_MAX => {
            Err(FaultKind::ControlTooLong)
        }
        _ => Ok(()),
    }
}

/// Checks a length in a form for lengths from `least` on.
#[inline]
const fn long_length(length: u64, least: u64) -> Result<u64, FaultKind> {
    if length < least {
        Err(FaultKind::LengthNotMinimal)
    } else if length >> 63 != 0 {
        Err(FaultKind::LengthInvalid)
    } else {
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_survives_encoding_and_every_prefix_is_incomplete() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, u64::from(u32::MAX), u64::MAX >> 1] {
            for key in [None, Some([1, 2, 3, 4])] {
                for (is_final, is_deflated) in [(true, true), (false, true), (true, false)] {
                    let role = if key.is_some() { Role::Server } else { Role::Client };
                    let rules = FrameRules { role, allows_deflate: true };
                    let opcode = Opcode::Binary;
                    let head = FrameHead { is_final, is_deflated, opcode, length, key };
                    let mut bytes = Vec::new();
                    head.encode(&mut bytes);
                    for cut in 0..bytes.len() {
                        assert_eq!(FrameHead::decode(&bytes[..cut], rules), Ok(None));
                    }
                    let decoded = FrameHead::decode(&bytes, rules);
                    assert_eq!(decoded, Ok(Some((head, bytes.len()))));
                    assert!(bytes.len() <= FRAME_HEAD_BYTES_MAX);
                }
            }
        }
    }
}
