//! Finds where frames end in a stream of bytes that is relayed as it is.
//! In: the bytes of one direction, in any pieces. Out: whether a frame is in progress; how many bytes belong to it.
//! Never: examines a payload, or judges a frame: the endpoints judge it themselves.
//! Limits: one step for each frame, and up to ten for a head that arrives in pieces.
//! Invariant: how the bytes are split into pieces does not change where frames end.

use super::frame::Opcode;

/// Bytes of the longest head without a key: two, and a 64-bit length.
const HEAD_BYTES_MAX: usize = 10;
/// The lengths in the second byte that announce a longer field.
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;
const MASKED: u8 = 0x80;
const KEY_BYTES: u64 = 4;

/// Follows the frames of one direction of a relayed connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameWalker {
    /// Bytes of the frame after its head, with its key, that are still to come.
    left: u64,
    /// The part of a head that has arrived.
    head: [u8; HEAD_BYTES_MAX],
    /// Bytes of that part.
    held: u8,
    /// A Close frame has begun: no frame follows it (RFC 6455 section 5.5.1).
    has_closed: bool,
    /// The stream is not one of frames: a length is impossible.
    is_lost: bool,
}

const _: () = assert!(size_of::<FrameWalker>() <= 24);

impl FrameWalker {
    /// Takes bytes.
    #[inline]
    pub fn walk(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.step(&bytes[at..]);
        }
    }

    /// Takes bytes up to the end of the first frame that ends in them. Returns how many: all of them if none ends.
    pub fn walk_to_end(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            at += self.step(&bytes[at..]);
            if self.is_between_frames() {
                break;
            }
        }
        at
    }

    /// Whether the bytes so far end with a frame, so that a control frame may follow them. False for a stream that is not
    /// one of frames.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.left == 0 && self.held == 0 && !self.is_lost
    }

    /// Whether a Close frame has begun.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// Takes some of the bytes, which are not empty. Returns how many.
    #[inline]
    fn step(&mut self, bytes: &[u8]) -> usize {
        if self.left > 0 {
            let count =
                usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            self.left -= count as u64;
            return count;
        }
        match bytes {
            [first, second, ..]
                if self.held == 0 && second & !MASKED < LENGTH_16 && !self.is_lost =>
            {
                self.begin(*first, *second, u64::from(second & !MASKED));
                2
            }
            [next, ..] if !self.is_lost => self.hold(*next),
            _ => bytes.len(),
        }
    }

    /// Takes a byte of a head that is longer than two bytes, or arrives in pieces.
    fn hold(&mut self, byte: u8) -> usize {
        self.head[usize::from(self.held)] = byte;
        self.held += 1;
        let [first, second, length @ ..] = self.head;
        let length = match (self.held, second & !MASKED) {
            (0 | 1, _) => return 1,
            (4, LENGTH_16) => u64::from(u16::from_be_bytes([length[0], length[1]])),
            (10, LENGTH_64) => u64::from_be_bytes(length),
            (_, LENGTH_16 | LENGTH_64) => return 1,
            (_, short) => u64::from(short),
        };
        self.held = 0;
        // RFC 6455 section 5.2: the most significant bit must be 0.
        self.is_lost = length >> 63 != 0;
        self.begin(first, second, length & (u64::MAX >> 1));
        1
    }

    fn begin(&mut self, first: u8, second: u8, length: u64) {
        self.has_closed |= first & 0x0f == Opcode::Close as u8;
        self.left = length + if second & MASKED == 0 { 0 } else { KEY_BYTES };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Close, CloseCode, Kind, encode_close, encode_message, encode_ping};
    use super::*;

    /// Frames of every form of length, each with the place of its end.
    fn frames() -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for length in [0, 1, 125, 126, 300, 65_535, 65_536, 70_000] {
            for key in [None, Some([1, 2, 3, 4])] {
                encode_message(&mut bytes, Kind::Binary, &vec![0x88; length], key);
                ends.push(bytes.len());
                encode_ping(&mut bytes, b"ping", key).expect("it fits");
                ends.push(bytes.len());
            }
        }
        (bytes, ends)
    }

    #[test]
    fn ends_of_frames_are_found_in_any_pieces() {
        let (bytes, ends) = frames();
        for piece in [1, 2, 3, 7, 1000, bytes.len()] {
            let (mut walker, mut found, mut at) = (FrameWalker::default(), Vec::new(), 0);
            for piece in bytes.chunks(piece) {
                let mut rest = piece;
                while !rest.is_empty() {
                    let count = walker.walk_to_end(rest);
                    (at, rest) = (at + count, &rest[count..]);
                    if walker.is_between_frames() {
                        found.push(at);
                    }
                }
            }
            assert_eq!(found, ends, "pieces of {piece}");
            assert!(!walker.has_closed());
            let mut walker = FrameWalker::default();
            for (piece, end) in bytes.chunks(piece).zip((piece..).step_by(piece)) {
                walker.walk(piece);
                let is_end = ends.contains(&end.min(bytes.len()));
                assert_eq!(walker.is_between_frames(), is_end, "{end}");
            }
        }
    }

    #[test]
    fn close_frame_is_noticed() {
        let mut bytes = Vec::new();
        encode_message(&mut bytes, Kind::Text, b"\x88\x88", None);
        let mut walker = FrameWalker::default();
        walker.walk(&bytes);
        assert!(walker.is_between_frames() && !walker.has_closed());
        encode_close(&mut bytes, Some(Close::new(CloseCode::NORMAL)), None);
        walker.walk(&bytes[4..]);
        assert!(walker.is_between_frames() && walker.has_closed());
    }

    #[test]
    fn stream_that_is_not_one_of_frames_has_no_end() {
        let mut walker = FrameWalker::default();
        walker.walk(b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff");
        assert!(!walker.is_between_frames());
        walker.walk(&[0; 100]);
        assert!(!walker.is_between_frames());
        assert_eq!(walker.walk_to_end(&[0; 100]), 100);
        // The longest length that is possible.
        let mut walker = FrameWalker::default();
        walker.walk(b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!((walker.left, walker.walk_to_end(&[0; 100])), ((1 << 63) + 3, 100));
    }
}
