//! Names in DNS messages: labels with their lengths, and pointers to earlier names.
//! In: strings; bytes. Out: bytes; strings in lower case.
//! Never: follows a pointer that does not lead backwards.
//! Limits: `NAME_BYTES_MAX` of a name, 63 of a label.

/// Bytes of a name, without the dot at its end (RFC 1035 section 2.3.4).
pub const NAME_BYTES_MAX: usize = 253;
/// Bytes of a label.
const LABEL_BYTES_MAX: usize = 63;

/// Whether `text` is a name without the dot at its end: labels of letters, digits, '-' and '_'.
pub(super) fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label =
        |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(fits);
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label)
}

/// Appends a checked name.
pub(super) fn encode(name: &str, out: &mut Vec<u8>) {
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
}

/// Reads the name at `at` of a message. Returns it, and the place after it. A byte that no name consists of becomes '?', so
/// that the name equals none. `None` if it is malformed.
pub(super) fn decode(message: &[u8], at: usize) -> Option<(String, usize)> {
    let (mut name, mut place, mut end) = (String::new(), at, None);
    // Each pointer leads to a place before all places so far.
    let mut limit = at;
    loop {
        let length = usize::from(*message.get(place)?);
        match length & 0xc0 {
            0 if length == 0 => {
                return Some((name, end.unwrap_or(place + 1)));
            }
            0 => {
                let label = message.get(place + 1..place + 1 + length)?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.extend(label.iter().map(|byte| match byte {
                    b'-' | b'_' => char::from(*byte),
                    byte if byte.is_ascii_alphanumeric() => char::from(byte.to_ascii_lowercase()),
                    _ => '?',
                }));
                if name.len() > NAME_BYTES_MAX {
                    return None;
                }
                place += 1 + length;
            }
            0xc0 => {
                let target = (length & 0x3f) << 8 | usize::from(*message.get(place + 1)?);
                if target >= limit {
                    return None;
                }
                end = end.or(Some(place + 2));
                (place, limit) = (target, target);
            }
            _ => return None,
        }
    }
}
