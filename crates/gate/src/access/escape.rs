//! Escapes strings that a client sent, for the lines of the access log.
//! In: bytes. Out: the same bytes, without control characters, quotes or anything else that could end a field or a line.

/// Appends `bytes` as the content of a JSON string (RFC 8259 section 7). Bytes that are not UTF-8 become U+FFFD. Control
/// characters and the line separators of Unicode are escaped, so that a line stays one line in every program.
#[inline]
pub(super) fn json(out: &mut Vec<u8>, bytes: &[u8]) {
    if is_all_plain(bytes) {
        return out.extend_from_slice(bytes);
    }
    escaped_json(out, bytes);
}

/// Appends a string that needs an escape.
#[cold]
#[inline(never)]
fn escaped_json(out: &mut Vec<u8>, bytes: &[u8]) {
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\u{2028}' | '\u{2029}' => unicode_escape(out, c),
            _ if c.is_control() => unicode_escape(out, c),
            _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Bytes that are checked in one step: the size of a vector register of every x86-64 and ARMv8.
const STEP: usize = 16;

/// Whether no byte needs an escape in a JSON string. Checks whole steps or words; the last one overlaps the one before it.
#[inline]
fn is_all_plain(bytes: &[u8]) -> bool {
    if bytes.len() >= STEP {
        return is_long_plain(bytes);
    }
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let half = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
    // Most names, methods and targets: words, because a vector load of bytes that were just copied would stall.
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        is_plain_word(word(first)) && is_plain_word(word(last))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        is_plain_word(half(first) << 32 | half(last))
    } else {
        bytes.iter().all(|&byte| is_plain(byte))
    }
}

fn is_long_plain(bytes: &[u8]) -> bool {
    // No early exit within a step, so that the compiler compares all its bytes at once.
    let step = |bytes: &[u8; STEP]| bytes.iter().fold(true, |plain, &byte| plain & is_plain(byte));
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let last = bytes.last_chunk::<STEP>();
    steps.iter().all(step) && (rest.is_empty() || last.is_none_or(step))
}

/// `is_plain` of eight bytes. A sum sets the highest bit of a byte; only bytes that have it set already can carry into the next
/// one, and these are not plain.
#[inline]
const fn is_plain_word(word: u64) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES * 0x80;
    const fn differs(word: u64, from: u8) -> u64 {
        (word ^ (ONES * from as u64)).wrapping_add(ONES * 0x7f)
    }
    let is_printable = word.wrapping_add(ONES * (0x80 - 0x20)) & !word.wrapping_add(ONES) & !word;
    is_printable & differs(word, b'"') & differs(word, b'\\') & HIGH == HIGH
}

/// Whether a byte needs no escape in a JSON string.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// Appends `\uHHHH` for `c`, which is below U+10000.
fn unicode_escape(out: &mut Vec<u8>, c: char) {
    let code = u32::from(c);
    out.extend_from_slice(b"\\u");
    out.extend_from_slice(&hex((code >> 8) as u8));
    out.extend_from_slice(&hex(code as u8));
}

/// Appends `bytes` as HAProxy writes them: `#` and two hexadecimal digits for each byte that is not printable, and for
/// the quote and the `#`. `is_field`: also for the separators of captured fields.
pub(super) fn haproxy(out: &mut Vec<u8>, bytes: &[u8], is_field: bool) {
    for &byte in bytes {
        let escapes = match byte {
            b'"' | b'#' => true,
            b'{' | b'|' | b'}' => is_field,
            _ => !matches!(byte, b' '..=b'~'),
        };
        if escapes {
            out.push(b'#');
            out.extend_from_slice(&hex(byte));
        } else {
            out.push(byte);
        }
    }
}

fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json_of(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        json(&mut out, bytes);
        String::from_utf8(out).expect("the escaped text is UTF-8")
    }

    #[test]
    fn json_escapes_what_could_end_a_string_or_a_line() {
        for (text, escaped) in [
            ("/a?b=c", "/a?b=c"),
            ("a\"b\\c", "a\\\"b\\\\c"),
            ("a\r\nb\t\u{7f}\u{85}\u{2028}", "a\\u000D\\u000Ab\\u0009\\u007F\\u0085\\u2028"),
            ("\u{e9} \u{1f600}", "\u{e9} \u{1f600}"),
        ] {
            assert_eq!(json_of(text.as_bytes()), escaped);
        }
        assert_eq!(json_of(b"\xff/\xc3"), "\u{fffd}/\u{fffd}");
    }

    #[test]
    fn haproxy_escapes_quotes_controls_and_separators() {
        let escaped = |bytes: &[u8], is_field| {
            let mut out = Vec::new();
            haproxy(&mut out, bytes, is_field);
            String::from_utf8(out).expect("the escaped text is ASCII")
        };
        assert_eq!(escaped(b"/a\"#\n\x7f\xff{|}", false), "/a#22#23#0A#7F#FF{|}");
        assert_eq!(escaped(b"{a|b}", true), "#7Ba#7Cb#7D");
    }

    #[test]
    fn every_byte_that_needs_an_escape_is_found_at_every_place() {
        for length in 1..=3 * STEP + 1 {
            for at in 0..length {
                let mut bytes = vec![b'a'; length];
                assert!(is_all_plain(&bytes), "{length}");
                for byte in 0..=u8::MAX {
                    bytes[at] = byte;
                    assert_eq!(is_all_plain(&bytes), is_plain(byte), "{byte} at {at} of {length}");
                }
            }
        }
        assert!(is_all_plain(b""));
    }

    proptest! {
        #[test]
        fn escaped_text_has_no_control_character_and_no_bare_quote(bytes: Vec<u8>) {
            let text = json_of(&bytes);
            prop_assert!(!text.chars().any(char::is_control));
            let mut chars = text.chars();
            while let Some(c) = chars.next() {
                prop_assert!(c != '"');
                if c == '\\' {
                    let next = chars.next();
                    prop_assert!(matches!(next, Some('"' | '\\' | 'u')));
                }
            }
            let mut out = Vec::new();
            haproxy(&mut out, &bytes, true);
            prop_assert!(out.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'"'));
        }
    }
}
