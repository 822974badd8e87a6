//! The messages of `bench ws`: a pattern of a fixed size that begins with the number of the message.
//! In: the number of a message. Out: its frames; whether received bytes belong to its echo.
//! Never: takes the echo of another message of the connection for that of this one (up to one in 2^24).
//! Limits: `SIZE_MAX` bytes, `FRAGMENTS_MAX` frames.
//! Invariant: the frames of two messages differ only in the number, so a message is encoded by changing a few bytes.

use tidegate_wire::websocket::{
    Deflater, FaultKind, Fragment, Kind, MaskKey, encode_deflated, encode_fragment,
};

/// Largest message.
pub const SIZE_MAX: usize = 16 * 1024 * 1024;
/// Most frames of a message.
pub const FRAGMENTS_MAX: usize = 1000;
/// The key of all frames. It need not be random: it protects proxies from browsers. The server has to unmask all the same.
pub(super) const MASK: MaskKey = [0x5a, 0xa5, 0x3c, 0xc3];

/// Bytes of the number, if the message has as many.
const DIGITS: usize = 4;
/// The first of the 64 digits, which are printable characters, so that a text message stays valid UTF-8.
const DIGIT_ZERO: u8 = b'0';

/// The messages of a run.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// The type.
    kind: Kind,
    /// The data of message 0.
    data: Vec<u8>,
    /// The frames of the message that was encoded last.
    frames: Vec<u8>,
    /// The offset in `frames` at which the masked number begins.
    number_at: usize,
    /// How many bytes of the number the first frame has.
    digits: usize,
}

impl Message {
    /// Messages of `size` bytes in so many frames, of which each has at least one byte unless the message is empty.
    pub(super) fn new(kind: Kind, size: usize, fragments: usize) -> Self {
        let pattern = |index: usize| match kind {
            Kind::Text => b'a' + (index % 26) as u8,
            Kind::Binary => (index * 7 + 1) as u8,
        };
        let mut data: Vec<u8> = (0..size).map(pattern).collect();
        let fragments = fragments.clamp(1, size.max(1));
        let cut = |at: usize| size * at / fragments;
        let digits = cut(1).min(DIGITS);
        data[..digits].fill(DIGIT_ZERO);
        let mut frames = Vec::with_capacity(size + 16 * fragments);
        let mut number_at = 0;
        for at in 0..fragments {
            let (is_first, is_last) = (at == 0, at + 1 == fragments);
            let fragment = Fragment { kind, is_first, is_last, is_deflated: false };
            encode_fragment(&mut frames, fragment, &data[cut(at)..cut(at + 1)], Some(MASK));
            if is_first {
                number_at = frames.len() - cut(1);
            }
        }
        Self { kind, data, frames, number_at, digits }
    }

    /// The type.
    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of a message.
    pub(super) fn size(&self) -> usize {
        self.data.len()
    }

    /// The frames of message `number`.
    pub(super) fn frames(&mut self, number: u32) -> &[u8] {
        let digits = digits_of(number);
        for (at, mask) in MASK.iter().enumerate().take(self.digits) {
            self.frames[self.number_at + at] = digits[at] ^ mask;
        }
        &self.frames
    }

    /// Appends message `number`, compressed if that makes it shorter.
    ///
    /// # Errors
    /// A bug of the compressor.
    pub(super) fn encode_deflated(
        &mut self,
        number: u32,
        deflater: &mut Deflater,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultKind> {
        let digits = digits_of(number);
        self.data[..self.digits].copy_from_slice(&digits[..self.digits]);
        encode_deflated(out, self.kind, &self.data, deflater, Some(MASK))
    }

    /// Whether the echo of message `number` has `piece` at `offset`. The end of the piece must be within it.
    pub(super) fn matches(&self, number: u32, offset: usize, piece: &[u8]) -> bool {
        let Some(expected) = self.data.get(offset..offset + piece.len()) else { return false };
        let in_number = self.digits.saturating_sub(offset).min(piece.len());
        let digits = digits_of(number);
        piece[..in_number] == digits[offset.min(DIGITS)..][..in_number]
            && piece[in_number..] == expected[in_number..]
    }
}

/// The lowest 24 bits of a number.
fn digits_of(number: u32) -> [u8; DIGITS] {
    core::array::from_fn(|at| DIGIT_ZERO + (number >> (6 * at) & 63) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire::websocket::{Decoder, FrameRules, Incoming, Limits, Role};

    /// The messages that a server decodes from the frames.
    fn decode(frames: &[u8]) -> (Vec<u8>, Kind) {
        let mut decoder = Decoder::new(FrameRules { role: Role::Server, allows_deflate: false });
        let limits = Limits::default();
        let (mut input, mut buffer, mut used) = (frames.to_vec(), Vec::new(), 0);
        while used < input.len() {
            let step = decoder.decode_message(&mut input[used..], &limits, &mut buffer, None);
            let step = step.unwrap();
            used += step.consumed;
            if let Some(Incoming::Message(message)) = step.incoming {
                assert_eq!(used, frames.len(), "one message");
                return (message.bytes().to_vec(), message.kind());
            }
        }
        panic!("no message in {} bytes", frames.len());
    }

    #[test]
    fn echo_must_equal_the_message_that_the_server_received() {
        for kind in [Kind::Text, Kind::Binary] {
            for (size, fragments) in
                [(0, 1), (1, 1), (3, 1), (4, 4), (5, 2), (20, 3), (126, 1), (70_000, 5)]
            {
                let mut message = Message::new(kind, size, fragments);
                for number in [0, 1, 63, 64, 5000, 5001] {
                    let (data, decoded_kind) = decode(message.frames(number));
                    assert_eq!((data.len(), decoded_kind), (size, kind));
                    for middle in [0, size / 3, 2, size] {
                        let (first, last) = data.split_at(middle.min(size));
                        assert!(message.matches(number, 0, first), "{size} {number}");
                        assert!(message.matches(number, first.len(), last), "{size} {number}");
                    }
                }
            }
        }
    }

    #[test]
    fn echo_of_another_message_is_recognised() {
        let mut message = Message::new(Kind::Text, 20, 1);
        let (mut data, _) = decode(message.frames(7));
        assert!(!message.matches(8, 0, &data), "the next message");
        assert!(!message.matches(7 + (1 << 20), 0, &data), "a late message");
        assert!(!message.matches(7, 1, &data), "too long");
        data[19] ^= 1;
        assert!(message.matches(7, 0, &data[..19]) && !message.matches(7, 0, &data));
    }
}
