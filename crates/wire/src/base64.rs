//! Base64 (RFC 4648) in both alphabets, with or without padding.
//! In: text. Out: bytes, or `None` if the text has another form. Never: ignores a character.

/// Decodes `text`.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let text = &text[..text.len() - padding];
    if padding > 2
        || text.len() % 4 == 1
        || (padding > 0 && !(text.len() + padding).is_multiple_of(4))
    {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for byte in group {
            bits = bits << 6 | u32::from(value(*byte)?);
        }
        bits <<= 6 * (4 - group.len() as u32);
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(out)
}

fn value(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_rfc_4648() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zg", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(decode(b"-_8"), decode(b"+/8="));
        for wrong in ["Z", "Zg=", "Zm9v=", "Zg===", "Z g=", "Zm9vY", "\u{e4}"] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
