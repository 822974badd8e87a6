//! One spelling for each path, so that no route is dodged by another one. RFC 3986 section 6.2.2.
//! In: a path as sent. Out: the same, an equivalent one to match by, both readings of its dot segments,
//! or a refusal. Never: decodes `%2F` or anything else that is reserved, merges slashes.
//! Invariant: what is forwarded resolves, by RFC 3986, to what was matched.

/// What became of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalized<'s> {
    /// It was in its one spelling already.
    Same,
    /// Only percent-encodings differed: to be matched by, while the path is forwarded as sent (a
    /// signature over it holds).
    Equivalent(&'s str),
    /// It has dot segments: to be matched without them.
    Changed {
        /// Without dot segments.
        resolved: &'s str,
        /// With them, as a server sees it that leaves them alone.
        literal: &'s str,
    },
    /// It climbs above the root, or would for a server that takes `%2F`, `%5C` or `\` for a slash.
    Refused(&'static str),
}

const ABOVE_ROOT: &str = "the path's \"..\" climbs above its root";
const HIDDEN_DOTS: &str = "the path hides \"..\" behind an encoded slash or a backslash";

/// Normalises `path`: removes dot segments (RFC 3986 section 5.2.4), decodes percent-encoded
/// unreserved characters (section 6.2.2.2), writes the other encodings in upper case (6.2.2.1).
/// The result lies in `scratch`, whose content is replaced where there is one.
pub fn normalize_path<'s>(path: &str, scratch: &'s mut Vec<u8>) -> Normalized<'s> {
    if is_plain(path.as_bytes()) {
        return Normalized::Same;
    }
    scratch.clear();
    let mut changed = false;
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        let start = scratch.len();
        scratch.push(b'/');
        decode_unreserved(segment.as_bytes(), scratch);
        let last = segments.peek().is_none();
        match scratch.get(start + 1..).unwrap_or_default() {
            b"." => {
                changed = true;
                scratch.truncate(if last { start + 1 } else { start });
            }
            b".." => {
                changed = true;
                scratch.truncate(start);
                let Some(parent) = memchr::memrchr(b'/', scratch) else {
                    return Normalized::Refused(ABOVE_ROOT);
                };
                scratch.truncate(if last { parent + 1 } else { parent });
            }
            decoded if hides_dots(decoded) => return Normalized::Refused(HIDDEN_DOTS),
            _ => {}
        }
    }
    let end = scratch.len();
    if changed {
        decode_unreserved(path.as_bytes(), scratch);
    }
    match core::str::from_utf8(scratch).map(|text| text.split_at(end)) {
        Ok((resolved, literal)) if changed => Normalized::Changed { resolved, literal },
        Ok((normal, _)) if normal == path => Normalized::Same,
        Ok((normal, _)) => Normalized::Equivalent(normal),
        // Only ASCII is decoded, so what was text stays text.
        Err(_) => Normalized::Refused(HIDDEN_DOTS),
    }
}

/// The spelling of a configured pattern (or a part of one) that requests are matched in.
pub(crate) fn canonical_pattern(pattern: &str) -> String {
    let mut encoded = Vec::new();
    for &byte in pattern.as_bytes() {
        if byte.is_ascii_graphic() {
            encoded.push(byte);
        } else {
            encoded.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    let mut canonical = Vec::new();
    decode_unreserved(&encoded, &mut canonical);
    String::from_utf8(canonical).unwrap_or_else(|_| pattern.to_owned())
}

/// Whether a path is in its one spelling for sure: nothing encoded, no backslash, no segment that
/// begins with a dot.
fn is_plain(path: &[u8]) -> bool {
    let mut before = b'/';
    for &byte in path {
        if byte == b'%' || byte == b'\\' || (byte == b'.' && before == b'/') {
            return false;
        }
        before = byte;
    }
    true
}

fn decode_unreserved(encoded: &[u8], out: &mut Vec<u8>) {
    let mut rest = encoded;
    while let Some((&first, after)) = rest.split_first() {
        if let (b'%', [high, low, after @ ..]) = (first, after)
            && let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low))
        {
            let byte = high << 4 | low;
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                out.push(byte);
            } else {
                out.push(b'%');
                out.extend([high, low].map(upper_hex));
            }
            rest = after;
            continue;
        }
        if first == b'%' {
            // A stray percent sign stands for itself; written so, it cannot join what follows.
            out.extend_from_slice(b"%25");
        } else {
            out.push(first);
        }
        rest = after;
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn upper_hex(digit: u8) -> u8 {
    if digit < 10 { b'0' + digit } else { b'A' + digit - 10 }
}

/// Whether a decoded segment has `..` as a segment for those who also take `%2F`, `%5C` or `\` for a
/// slash. Encodings are in upper case here.
fn hides_dots(segment: &[u8]) -> bool {
    let mut rest = segment;
    let mut part_start = true;
    let mut part_is_dots = false;
    let mut split = false;
    loop {
        let (separator, after) = match rest {
            [b'%', b'2', b'F', after @ ..] | [b'%', b'5', b'C', after @ ..] => (true, after),
            [b'\\', after @ ..] => (true, after),
            [_, after @ ..] => (false, after),
            [] => return split && part_is_dots,
        };
        if separator {
            if part_is_dots {
                return true;
            }
            split = true;
            (part_start, part_is_dots) = (true, false);
        } else if part_start && rest.starts_with(b"..") {
            part_is_dots = true;
            part_start = false;
            rest = rest.get(2..).unwrap_or_default();
            continue;
        } else {
            (part_start, part_is_dots) = (false, false);
        }
        rest = after;
    }
}
