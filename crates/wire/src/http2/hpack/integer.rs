//! Integers with a prefix (RFC 7541 section 5.1).
//! In: the bytes at an integer, or a value. Out: the value and the remaining bytes, or appended bytes.
//! Limits: values up to 2^32 - 1, `CONTINUATION_BYTES_MAX` bytes after the prefix.

use super::Fault;

/// Most bytes after the prefix. Five hold every value; some encoders add bytes that contribute zero.
const CONTINUATION_BYTES_MAX: usize = 9;

/// Removes an integer from the front of `input`. Its first byte has `prefix_bits` (up to 7) of the value; the
/// other bits are ignored.
#[inline]
pub(super) fn decode(input: &mut &[u8], prefix_bits: u32) -> Result<u32, Fault> {
    let (&first, rest) = input.split_first().ok_or(Fault::Truncated)?;
    let full = (1_u8 << prefix_bits) - 1;
    *input = rest;
    match first & full {
        value if value < full => Ok(u32::from(value)),
        _ => decode_continuation(input, full),
    }
}

/// Removes the bytes after a full prefix.
fn decode_continuation(input: &mut &[u8], full: u8) -> Result<u32, Fault> {
    let mut value = u64::from(full);
    for (index, &byte) in input.iter().take(CONTINUATION_BYTES_MAX).enumerate() {
        value += u64::from(byte & 0x7f) << (7 * index);
        if value > u64::from(u32::MAX) {
            return Err(Fault::IntegerTooLarge);
        }
        if byte & 0x80 == 0 {
            *input = &input[index + 1..];
            return Ok(value as u32);
        }
    }
    let is_long = input.len() >= CONTINUATION_BYTES_MAX;
    Err(if is_long { Fault::IntegerTooLarge } else { Fault::Truncated })
}

// The last shift leaves room for seven bits, and the sum of all bytes cannot overflow.
const _: () = assert!(7 * (CONTINUATION_BYTES_MAX - 1) + 7 < 64);

/// Appends an integer; the bits above the prefix of its first byte are those of `flags`.
#[inline]
pub(super) fn encode(out: &mut Vec<u8>, prefix_bits: u32, flags: u8, value: usize) {
    let full = (1_usize << prefix_bits) - 1;
    if value < full {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | full as u8);
    let mut rest = value - full;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8], prefix_bits: u32) -> Result<(u32, usize), Fault> {
        let mut input = bytes;
        decode(&mut input, prefix_bits).map(|value| (value, bytes.len() - input.len()))
    }

    fn encoded(prefix_bits: u32, flags: u8, value: usize) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, prefix_bits, flags, value);
        out
    }

    /// RFC 7541 sections C.1.1 to C.1.3; 8 bits of prefix do not occur in HPACK, so C.1.3 uses 7.
    #[test]
    fn examples_of_the_rfc_pass() {
        assert_eq!(encoded(5, 0b1110_0000, 10), [0b1110_1010]);
        assert_eq!(decoded(&[0b1110_1010], 5), Ok((10, 1)));
        assert_eq!(encoded(5, 0, 1337), [0b0001_1111, 0b1001_1010, 0b0000_1010]);
        assert_eq!(decoded(&[0b1111_1111, 0b1001_1010, 0b0000_1010], 5), Ok((1337, 3)));
        assert_eq!(encoded(7, 0, 42), [42]);
        assert_eq!(decoded(&[0b1010_1010], 7), Ok((42, 1)));
    }

    #[test]
    fn every_length_survives_a_round_trip() {
        for prefix_bits in 4..=7 {
            for shift in 0..32 {
                for value in [(1_u32 << shift) - 1, 1 << shift, u32::MAX >> shift] {
                    let bytes = encoded(prefix_bits, 0, value as usize);
                    assert_eq!(decoded(&bytes, prefix_bits), Ok((value, bytes.len())));
                    for cut in 0..bytes.len() {
                        assert_eq!(decoded(&bytes[..cut], prefix_bits), Err(Fault::Truncated));
                    }
                }
            }
        }
    }

    #[test]
    fn zero_continuation_bytes_are_accepted_up_to_the_bound() {
        assert_eq!(decoded(&[0x7f, 0x80, 0x80, 0x80, 0x00], 7), Ok((127, 5)));
        let padded = |zeros| [&[0x7f][..], &vec![0x80; zeros], &[0x00]].concat();
        let most = CONTINUATION_BYTES_MAX - 1;
        assert_eq!(decoded(&padded(most), 7), Ok((127, most + 2)));
        assert_eq!(decoded(&padded(most + 1), 7), Err(Fault::IntegerTooLarge));
    }

    #[test]
    fn value_above_32_bits_is_rejected() {
        assert_eq!(decoded(&[0x7f, 0x80, 0xff, 0xff, 0xff, 0x0f], 7), Ok((u32::MAX, 6)));
        let above = [0x7f, 0x81, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(decoded(&above, 7), Err(Fault::IntegerTooLarge));
        assert_eq!(decoded(&[0xff; 40], 7), Err(Fault::IntegerTooLarge));
    }
}
