//! Checks text that arrives in pieces (RFC 6455 section 8.1).
//! In: pieces of a text message. Out: the text of each piece as `str`, without a character that its end splits.
//! Never: delays a fault: a byte that no valid text could have here is reported with its piece.
//! Limits: holds at most three bytes of a split character.

use super::fault::FaultKind;

/// Texts below this length are checked by the standard library, whose call costs less.
const SIMD_BYTES_MIN: usize = 64;

/// `bytes` as text.
#[inline]
pub(super) fn text_of(bytes: &[u8]) -> Result<&str, FaultKind> {
    let text = if bytes.len() < SIMD_BYTES_MIN {
        core::str::from_utf8(bytes).ok()
    } else {
        simdutf8::basic::from_utf8(bytes).ok()
    };
    text.ok_or(FaultKind::TextInvalid)
}

/// The start of a character whose rest is in the next piece.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SplitChar {
    /// The bytes of the character so far, and after `complete` all of them.
    bytes: [u8; 4],
    /// How many of `bytes` wait for the rest; at most 3.
    length: u8,
}

impl SplitChar {
    /// A value without a character.
    pub(super) const EMPTY: Self = Self { bytes: [0; 4], length: 0 };

    /// Whether the text so far ends with a whole character.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How many bytes the character still lacks; 0 if there is none.
    pub(super) const fn missing(&self) -> usize {
        if self.length == 0 {
            return 0;
        }
        char_bytes(self.bytes[0]).saturating_sub(self.length as usize)
    }

    /// Adds at most `missing` bytes. Returns the character once it is complete.
    pub(super) fn complete(&mut self, more: &[u8]) -> Result<Option<&str>, FaultKind> {
        let mut length = usize::from(self.length);
        for (place, byte) in self.bytes[length..].iter_mut().zip(more) {
            *place = *byte;
            length += 1;
        }
        self.length = length as u8;
        match core::str::from_utf8(&self.bytes[..length]) {
            Ok(_) => {
                self.length = 0;
                Ok(core::str::from_utf8(&self.bytes[..length]).ok())
            }
            Err(error) if error.error_len().is_none() => Ok(None),
            Err(_) => Err(FaultKind::TextInvalid),
        }
    }

    /// Checks a piece that begins with a whole character, and keeps the character that its end splits.
    #[inline]
    pub(super) fn check<'b>(&mut self, piece: &'b [u8]) -> Result<&'b str, FaultKind> {
        let (whole, split) = piece.split_at(piece.len() - split_suffix(piece));
        if !split.is_empty() {
            let is_start = |error: core::str::Utf8Error| error.error_len().is_none();
            if !core::str::from_utf8(split).is_err_and(is_start) {
                return Err(FaultKind::TextInvalid);
            }
            self.bytes[..split.len()].copy_from_slice(split);
        }
        self.length = split.len() as u8;
        text_of(whole)
    }

    /// Checks a piece whose text is not needed; it may begin within a character.
    pub(super) fn check_all(&mut self, piece: &[u8]) -> Result<(), FaultKind> {
        if piece.is_empty() {
            // A piece of compressed data may add nothing to the text. The split character stays.
            return Ok(());
        }
        let (rest_of_char, piece) = piece.split_at(self.missing().min(piece.len()));
        if !rest_of_char.is_empty() && self.complete(rest_of_char)?.is_none() {
            return Ok(());
        }
        self.check(piece).map(|_| ())
    }
}

/// The length of the character that begins with `first`; 1 for bytes that begin no character.
const fn char_bytes(first: u8) -> usize {
    match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
        _ => 1,
    }
}

/// How many bytes at the end of `piece` may begin a character that the end splits.
#[inline]
fn split_suffix(piece: &[u8]) -> usize {
    if piece.last().is_none_or(u8::is_ascii) {
        return 0;
    }
    for (index, &byte) in piece.iter().rev().take(3).enumerate() {
        if char_bytes(byte) > index + 1 {
            return index + 1;
        }
        if !(0x80..0xc0).contains(&byte) {
            break;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index of the first byte that makes the text invalid, as the standard library finds it.
    fn first_invalid(bytes: &[u8]) -> Option<usize> {
        (1..=bytes.len()).find(|&end| {
            core::str::from_utf8(&bytes[..end]).is_err_and(|error| error.error_len().is_some())
        })
    }

    #[test]
    fn empty_piece_within_a_character_changes_nothing() {
        let mut split = SplitChar::EMPTY;
        for piece in [&b"a\xe2"[..], b"", b"\x82", b"", b"\xac", b"", b"b"] {
            assert_eq!(split.check_all(piece), Ok(()), "{piece:x?}");
        }
        assert_eq!(split.missing(), 0);
    }

    #[test]
    fn bytewise_check_reports_the_first_invalid_byte() {
        let lasts = [0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff];
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                for third in lasts {
                    let bytes = [b'a', first, second, third, 0x80, b'b'];
                    let mut split = SplitChar::EMPTY;
                    let found = bytes.iter().position(|&b| split.check_all(&[b]).is_err());
                    assert_eq!(found.map(|at| at + 1), first_invalid(&bytes), "{bytes:x?}");
                    let mut split = SplitChar::EMPTY;
                    let whole = split.check(&bytes[..4]).is_err();
                    assert_eq!(whole, first_invalid(&bytes[..4]).is_some(), "{bytes:x?}");
                }
            }
        }
    }
}
