//! Which bytes the names and values of fields may contain, for every version of HTTP.
//! In: a byte, or a value. Out: whether RFC 9110 allows it.
//! Never: differs between versions; a message that one version accepts can be forwarded in another.

/// tchar of RFC 9110 section 5.6.2.
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

/// Whether a byte is allowed in a field value (RFC 9110 section 5.5).
#[inline]
pub(crate) const fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// `bytes` without the spaces and tabs around it (OWS of RFC 9110 section 5.6.3).
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
