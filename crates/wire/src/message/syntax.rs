//! The characters of field names and values, the same for every version (RFC 9110 sections 5.5 and 5.6).
//! In: bytes of a name or a value. Out: whether they are allowed; a value without the whitespace around it.
//! Never: handles line ends or lengths; the codecs of the protocols do.

/// Whether `byte` is a tchar (RFC 9110 section 5.6.2).
#[inline]
pub(crate) const fn is_token_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// A byte of a token.
const TOKEN: u8 = 1;
/// A byte of a token in lower case.
const LOWER_TOKEN: u8 = 2;

/// The grammar elements that may contain each byte. One lookup costs less than the comparisons of `is_token_char`.
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        if is_token_char(byte) {
            classes[byte as usize] =
                if byte.is_ascii_uppercase() { TOKEN } else { TOKEN | LOWER_TOKEN };
        }
        byte += 1;
    }
    classes
};

/// Whether `bytes` are a token (RFC 9110 section 5.6.2).
#[inline]
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && are_all(bytes, TOKEN)
}

/// Whether `bytes` are a token without upper case: a field name of HTTP/2 (RFC 9113 section 8.2.1).
#[inline]
pub(crate) fn is_lower_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && are_all(bytes, LOWER_TOKEN)
}

#[inline]
fn are_all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().fold(class, |common, &byte| common & CLASSES[usize::from(byte)]) != 0
}

/// Whether all bytes are allowed in a field value. It examines all of them, so that the compiler can compare many at once.
#[inline]
pub(crate) fn are_text(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |are_text, &byte| are_text & is_text(byte))
}

/// Whether a byte is allowed in a field value (RFC 9110 section 5.5).
#[inline]
pub(crate) const fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// Removes spaces and tabs from both ends of `bytes` (OWS of RFC 9110 section 5.6.3).
pub(crate) const fn trim_ows(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ows_is_trimmed_at_both_ends_only() {
        for (given, wanted) in [(" \ta b\t ", "a b"), ("", ""), (" ", ""), ("a", "a")] {
            assert_eq!(trim_ows(given.as_bytes()), wanted.as_bytes());
        }
    }
}
