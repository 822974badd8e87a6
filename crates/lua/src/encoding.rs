//! Encodings of bytes as strings: base64 (RFC 4648), hexadecimal digits, percent-encoding (RFC 3986).
//! In: bytes. Out: strings, and the reverse. Never: accepts base64 with characters outside its alphabets.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const FOR_URLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64 with padding, or that for URLs without padding (RFC 4648 section 5).
pub(crate) fn base64(data: &[u8], is_for_urls: bool) -> Vec<u8> {
    let alphabet = if is_for_urls { FOR_URLS } else { STANDARD };
    let mut out = Vec::with_capacity(data.len().div_ceil(3) * 4);
    for group in data.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            if at <= group.len() {
                out.push(alphabet[(bits >> (18 - 6 * at) & 63) as usize]);
            } else if !is_for_urls {
                out.push(b'=');
            }
        }
    }
    out
}

/// Decodes a base64 string of either alphabet, with or without padding.
pub(crate) fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |at| at + 1);
    let (digits, padding) = text.split_at(end);
    if padding.len() > 2
        || (!padding.is_empty() && !text.len().is_multiple_of(4))
        || digits.len() % 4 == 1
    {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in digits {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    // Left-over bits must be zero: each value has one encoding.
    (bits & ((1 << count) - 1) == 0).then_some(out)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Hexadecimal digits in lower case.
pub(crate) fn hex(data: &[u8]) -> Vec<u8> {
    data.iter().flat_map(|b| [HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]).collect()
}

/// Decodes %XX, and `+` as a space if `plus_is_space`. Other characters are copied.
pub(crate) fn unescape(text: &[u8], plus_is_space: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let digit = |at: usize| text.get(at).and_then(|byte| (*byte as char).to_digit(16));
        match byte {
            b'%' => match (digit(at + 1), digit(at + 2)) {
                (Some(high), Some(low)) => {
                    out.push((high << 4 | low) as u8);
                    at += 2;
                }
                _ => out.push(byte),
            },
            b'+' if plus_is_space => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    out
}

/// Encodes all but unreserved characters as %XX (RFC 3986 section 2.3).
pub(crate) fn escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            let digits = [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            out.extend_from_slice(&digits.map(|digit| digit.to_ascii_uppercase()));
        }
    }
    out
}

/// The hash of `std::hash<std::string>` in the C++ library of GCC: MurmurHash64A.
pub(crate) fn murmur(data: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0xc70f_6907;
    let shift = |value: u64| value ^ value >> 47;
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let mut hash = SEED ^ (data.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = data.as_chunks::<8>();
    for bytes in words {
        let mixed = shift(u64::from_le_bytes(*bytes).wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
        hash = (hash ^ mixed).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        hash = (hash ^ word(rest)).wrapping_mul(FACTOR);
    }
    shift(shift(hash).wrapping_mul(FACTOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_test_vectors() {
        // RFC 4648 section 10.
        for (data, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(base64(data.as_bytes(), false), text.as_bytes());
            assert_eq!(from_base64(text.as_bytes()).as_deref(), Some(data.as_bytes()));
            let bare = text.trim_end_matches('=');
            assert_eq!(base64(data.as_bytes(), true), bare.as_bytes());
            assert_eq!(from_base64(bare.as_bytes()).as_deref(), Some(data.as_bytes()));
        }
        assert_eq!(base64(&[0xfb, 0xff], true), b"-_8");
        for wrong in ["Z", "Zg=", "Zg===", "Zh==", "Z g=", "Zm9v=", "=", "===="] {
            assert_eq!(from_base64(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn hashes_are_those_of_the_cxx_library() {
        // Printed by a program that was compiled with GCC.
        for (data, hash) in [
            ("", 0x553e_9390_1e46_2a6e),
            ("a", 0x454d_dee4_88c1_ed6b),
            ("hello", 0x2655_3298_fdbe_39c8),
            ("12345678", 0x8c5b_90a3_3a04_dca5),
            ("hello world, this is long", 0x20e1_5d1b_b480_5021),
        ] {
            assert_eq!(murmur(data.as_bytes()), hash, "{data}");
        }
    }

    #[test]
    fn percent_encoding_round_trips() {
        assert_eq!(escape("a b/ä~".as_bytes()), b"a%20b%2F%C3%A4~");
        assert_eq!(unescape(b"a%20b+%2f%zz%4", true), b"a b /%zz%4");
        assert_eq!(unescape(b"a+b", false), b"a+b");
        assert_eq!(hex(&[0, 0xab]), b"00ab");
    }
}
