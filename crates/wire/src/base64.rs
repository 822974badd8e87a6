//! Base64 (RFC 4648) in both alphabets, with or without padding; or in the only form that tokens may have.
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

/// Decodes text in the alphabet for URLs, without padding (RFC 7515 section 2). Each sequence of bytes has one such text:
/// bits after the last byte must be zero (RFC 4648 section 3.5).
#[must_use]
pub fn decode_canonical(text: &[u8]) -> Option<Vec<u8>> {
    if text.iter().any(|byte| matches!(byte, b'+' | b'/' | b'=')) {
        return None;
    }
    let unused = match text.len() % 4 {
        2 => 0b1111,
        3 => 0b11,
        _ => 0,
    };
    let last = text.last().map_or(Some(0), |byte| value(*byte))?;
    if last & unused != 0 { None } else { decode(text) }
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
    fn base64_matches_the_vectors_of_rfc_4648() {
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

    #[test]
    fn canonical_texts_have_no_other_spelling() {
        for (text, bytes) in
            [("", &b""[..]), ("Zg", b"f"), ("Zm8", b"fo"), ("Zm9v", b"foo"), ("-_8", b"\xfb\xff")]
        {
            assert_eq!(decode_canonical(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
        for wrong in ["Zg==", "Zm8=", "Zh", "Zm9", "+_8", "-/8", "Z", "Zm9vY", "Z g", "-_9"] {
            assert_eq!(decode_canonical(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
