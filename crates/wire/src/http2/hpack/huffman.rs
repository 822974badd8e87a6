//! Huffman coding of strings (RFC 7541 section 5.2).
//! In: bytes. Out: their code appended, or decoded bytes in memory of the caller.
//! Never: accepts EOS within a string, or padding longer than 7 bits or other than ones.
//! Limits: `decoded_bytes_max` for the output.
//! Invariant: the decoder reads the input once; a step of it decodes up to two symbols with one lookup.

use super::huffman_code::{CODES, EOS, GROUPS, LENGTHS, LOOKUP, LOOKUP_BITS};

/// The decoder writes whole groups of symbols, so its output memory exceeds the output by this much.
const SLACK_BYTES: usize = 8;
/// Lookups between two refills of the accumulator, which then holds at least 56 bits.
const LOOKUPS_PER_REFILL: usize = 4;
const _: () = assert!(LOOKUPS_PER_REFILL * LOOKUP_BITS <= 56);
const _: () = assert!(2 * LOOKUPS_PER_REFILL <= SLACK_BYTES);

/// Memory that `decode` needs for `length` bytes of code: the shortest code has 5 bits.
#[inline]
pub(super) const fn decoded_bytes_max(length: usize) -> usize {
    length * 8 / 5 + SLACK_BYTES
}

/// The length of `bytes` when encoded.
#[inline]
pub(super) fn encoded_bytes(bytes: &[u8]) -> usize {
    let bits: usize = bytes.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the code of `bytes`.
#[inline]
pub(super) fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut bits = 0_u64;
    let mut count = 0;
    for &byte in bytes {
        let code = CODES[usize::from(byte)];
        bits = bits << code.length | u64::from(code.bits);
        count += code.length;
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    if count > 0 {
        let padded = (bits << 32 | u64::from(u32::MAX)) >> count;
        let last = (padded as u32).to_be_bytes();
        out.extend_from_slice(&last[..count.div_ceil(8) as usize]);
    }
}

/// Decodes `code` into `out`, which has at least `decoded_bytes_max` bytes, and returns the number of bytes.
/// Returns `None` if the code is invalid.
pub(super) fn decode(code: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut reader = Reader { code, at: 0, bits: 0, count: 0 };
    let mut length = 0;
    while reader.refill_whole() {
        let room = out.get_mut(length..)?.first_chunk_mut::<SLACK_BYTES>()?;
        length += reader.decode_group(room)?;
    }
    reader.decode_rest(out, length)
}

/// The unread bits of a code.
struct Reader<'a> {
    code: &'a [u8],
    /// The next byte of `code` that is not in `bits`, or only in its uncounted part.
    at: usize,
    /// The next bits, left-aligned. Bits after the first `count` are zero or equal to those that follow.
    bits: u64,
    /// How many of `bits` count.
    count: u32,
}

impl Reader<'_> {
    /// Fills up to at least 56 bits. Returns `false` if fewer than 8 bytes remain.
    #[inline]
    fn refill_whole(&mut self) -> bool {
        let Some(next) = self.code.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) else {
            return false;
        };
        self.bits |= u64::from_be_bytes(*next) >> self.count;
        self.at += ((63 - self.count) / 8) as usize;
        self.count |= 56;
        true
    }

    #[inline]
    const fn skip(&mut self, count: u32) {
        self.bits <<= count;
        self.count -= count;
    }

    /// Decodes at least one symbol and at most `SLACK_BYTES` from at least 56 bits.
    #[inline]
    fn decode_group(&mut self, room: &mut [u8; SLACK_BYTES]) -> Option<usize> {
        let mut length = 0;
        for _ in 0..LOOKUPS_PER_REFILL {
            let found = LOOKUP[(self.bits >> (64 - LOOKUP_BITS)) as usize];
            if found.count() == 0 {
                if length == 0 {
                    let (symbol, bits) = long_code(self.bits);
                    room[0] = u8::try_from(symbol).ok()?;
                    self.skip(bits);
                    length = 1;
                }
                break;
            }
            // The masks change nothing: they show that the positions are within the array.
            let [first, second] = found.symbols();
            room[length & (SLACK_BYTES - 1)] = first;
            room[(length + 1) & (SLACK_BYTES - 1)] = second;
            length += found.count();
            self.skip(found.bits());
        }
        Some(length)
    }

    /// Decodes the last bytes and checks the padding. Returns the length of the whole output.
    fn decode_rest(&mut self, out: &mut [u8], mut length: usize) -> Option<usize> {
        loop {
            while let Some(&byte) = self.code.get(self.at).filter(|_| self.count <= 56) {
                self.bits |= u64::from(byte) << (56 - self.count);
                self.count += 8;
                self.at += 1;
            }
            // Ones after the end: they begin no short code, and a code of ones alone is EOS.
            let ones = u64::MAX.checked_shr(self.count).unwrap_or(0);
            let padded = self.bits | ones;
            let found = LOOKUP[(padded >> (64 - LOOKUP_BITS)) as usize];
            let room = out.get_mut(length..)?.first_chunk_mut::<2>()?;
            if found.count() == 0 {
                let (symbol, bits) = long_code(padded);
                if bits > self.count {
                    break;
                }
                room[0] = u8::try_from(symbol).ok()?;
                length += 1;
                self.skip(bits);
            } else if found.bits() <= self.count {
                *room = found.symbols();
                length += found.count();
                self.skip(found.bits());
            } else if found.first_bits() <= self.count {
                room[0] = found.symbols()[0];
                length += 1;
                self.skip(found.first_bits());
            } else {
                break;
            }
        }
        let is_padding = self.count < 8 && self.bits.leading_ones() >= self.count;
        is_padding.then_some(length)
    }
}

/// The symbol and the length of the code at the front of `bits`, a code longer than `LOOKUP_BITS`.
#[cold]
fn long_code(bits: u64) -> (u16, u32) {
    let front = (bits >> 32) as u32;
    let is_within = |length: &usize| u64::from(front) < GROUPS.ends[*length];
    let length = (LOOKUP_BITS + 1..GROUPS.ends.len()).find(is_within);
    let length = length.unwrap_or(GROUPS.ends.len() - 1);
    let within = front.wrapping_sub(GROUPS.first_codes[length]) >> (32 - length);
    let position = usize::from(GROUPS.positions[length]) + within as usize;
    (GROUPS.symbols.get(position).copied().unwrap_or(EOS), length as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, bytes);
        assert_eq!(out.len(), encoded_bytes(bytes));
        out
    }

    fn decoded(code: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0xaa; decoded_bytes_max(code.len())];
        let length = decode(code, &mut out)?;
        out.truncate(length);
        Some(out)
    }

    /// A decoder that reads bit by bit.
    struct Slow(BTreeMap<(u32, u32), u8>);

    impl Slow {
        fn new() -> Self {
            let keys = CODES.iter().map(|code| (code.length, code.bits));
            Self(keys.zip(0..=255).collect())
        }

        fn decoded(&self, code: &[u8]) -> Option<Vec<u8>> {
            let (mut out, mut bits, mut count) = (Vec::new(), 0, 0);
            for index in 0..8 * code.len() {
                bits = bits << 1 | u32::from(code[index / 8] >> (7 - index % 8) & 1);
                count += 1;
                if let Some(&symbol) = self.0.get(&(count, bits)) {
                    out.push(symbol);
                    (bits, count) = (0, 0);
                }
            }
            (count < 8 && bits == (1 << count) - 1).then_some(out)
        }
    }

    #[test]
    fn each_pair_of_symbols_survives_a_round_trip() {
        for first in 0..=255 {
            for second in 0..=255 {
                let bytes = [first, second];
                assert_eq!(decoded(&encoded(&bytes)).as_deref(), Some(&bytes[..]), "{bytes:?}");
            }
        }
    }

    #[test]
    fn each_length_survives_a_round_trip() {
        let text: Vec<u8> = (0..200_u8).map(|i| i.wrapping_mul(89) ^ i >> 3).collect();
        for start in 0..100 {
            for end in start..text.len() {
                assert_eq!(decoded(&encoded(&text[start..end])).unwrap(), &text[start..end]);
            }
        }
        assert_eq!(decoded(b""), Some(Vec::new()));
    }

    #[test]
    fn inputs_of_three_bytes_decode_as_bit_by_bit() {
        let slow = Slow::new();
        for bits in (0_u32..1 << 24).step_by(61) {
            let code = &bits.to_be_bytes()[1..];
            assert_eq!(decoded(code), slow.decoded(code), "{code:?}");
        }
    }

    #[test]
    fn each_input_of_two_bytes_decodes_as_bit_by_bit_after_a_long_string() {
        let (slow, start) = (Slow::new(), encoded(b"www.example.com"));
        for bits in 0..=u16::MAX {
            let code = [&start[..], &bits.to_be_bytes()].concat();
            assert_eq!(decoded(&code), slow.decoded(&code), "{code:?}");
        }
    }

    #[test]
    fn eos_and_wrong_padding_are_rejected() {
        assert_eq!(decoded(&[0b0001_1111]), Some(b"a".to_vec()), "a, then three ones");
        assert_eq!(decoded(&[0b0001_1110]), None, "a zero in the padding");
        assert_eq!(decoded(&[0b0001_1111, 0xff]), None, "padding of 11 bits");
        assert_eq!(decoded(&[0xff]), None, "padding of 8 bits");
        assert_eq!(decoded(&[0xff; 4]), None, "EOS");
        assert_eq!(decoded(&[0xff; 64]), None, "EOS in a long string");
    }
}
