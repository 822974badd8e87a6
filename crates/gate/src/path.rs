//! One spelling for each path, so that no route is dodged by another one. RFC 3986 section 6.2.2.
//! In: a path as sent. Out: the same, an equivalent one to match by, both readings of its dot segments,
//! or a refusal; and how the most lenient server would read it. Never: decodes `%2F` or anything else that
//! is reserved, or merges slashes, in what is matched or forwarded.
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
    /// It climbs above the root, or hides dot segments that some servers would find.
    Refused(&'static str),
}

const ABOVE_ROOT: &str = "the path's \"..\" climbs above its root";
const HIDDEN_DOTS: &str =
    "the path hides \"..\" behind an encoded slash, a backslash or a semicolon";
const JOINED_PERCENT: &str =
    "the path has a \"%\" that turns into an encoding once what follows it is decoded";

/// Normalises `path`: removes dot segments (RFC 3986 section 5.2.4), decodes percent-encoded
/// unreserved characters (section 6.2.2.2), writes the other encodings in upper case (6.2.2.1).
/// The result lies in `scratch`, whose content is replaced where there is one.
pub fn normalize_path<'s>(path: &str, scratch: &'s mut Vec<u8>) -> Normalized<'s> {
    if is_plain(path.as_bytes()) {
        return Normalized::Same;
    }
    if joins_percent(path.as_bytes()) {
        return Normalized::Refused(JOINED_PERCENT);
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

/// The path as the most lenient server reads it: decoded once, `\` for a slash, no parameters, no empty
/// segments, `..` at the root ignored; in the spelling of patterns. `None` where no server reads it in
/// another way than it is written. The result replaces what `scratch` held.
pub(crate) fn read_leniently<'s>(path: &str, scratch: &'s mut Vec<u8>) -> Option<&'s str> {
    if is_plain(path.as_bytes()) {
        return None;
    }
    scratch.clear();
    let mut rest = path.as_bytes();
    let mut is_parameter = false;
    while let Some((byte, after)) = decode_byte(rest) {
        rest = after;
        match byte {
            b'/' | b'\\' => {
                is_parameter = false;
                end_lenient_segment(scratch);
                if scratch.last() != Some(&b'/') {
                    scratch.push(b'/');
                }
            }
            _ if is_parameter => {}
            b';' => is_parameter = true,
            b'%' | 0..=b' ' | 0x7f.. => {
                scratch.push(b'%');
                scratch.extend([byte >> 4, byte & 15].map(upper_hex));
            }
            _ => scratch.push(byte),
        }
    }
    end_lenient_segment(scratch);
    core::str::from_utf8(scratch).ok()
}

/// Takes the last segment out where it is a dot segment, and for `..` the one before it; their slash stays.
fn end_lenient_segment(scratch: &mut Vec<u8>) {
    let start = memchr::memrchr(b'/', scratch).map_or(0, |slash| slash + 1);
    match &scratch[start..] {
        b"." => scratch.truncate(start),
        b".." => {
            let above = scratch[..start.saturating_sub(1)].iter().rposition(|&byte| byte == b'/');
            scratch.truncate(above.map_or(start, |slash| slash + 1));
        }
        _ => {}
    }
}

/// The first byte, decoded where it is encoded, and what follows it.
fn decode_byte(encoded: &[u8]) -> Option<(u8, &[u8])> {
    match encoded {
        [b'%', high, low, after @ ..] => match (hex_digit(*high), hex_digit(*low)) {
            (Some(high), Some(low)) => Some((high << 4 | low, after)),
            _ => Some((b'%', &encoded[1..])),
        },
        [first, after @ ..] => Some((*first, after)),
        [] => None,
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

/// Whether a path is in its one spelling for sure, which everybody reads in one way: nothing encoded, no
/// backslash, no parameters, no segment that is empty or begins with a dot.
fn is_plain(path: &[u8]) -> bool {
    let mut before = b'/';
    for (at, &byte) in path.iter().enumerate() {
        let starts_segment = before == b'/' && at > 0;
        if matches!(byte, b'%' | b'\\' | b';') || (matches!(byte, b'.' | b'/') && starts_segment) {
            return false;
        }
        before = byte;
    }
    true
}

/// Whether a percent sign that encodes nothing makes an encoding with what the encodings behind it stand
/// for (`%2%65` is `%2e` then): a server that decodes twice, or resolves `%2e%2e` itself, would obey it.
fn joins_percent(path: &[u8]) -> bool {
    let mut rest = path;
    while let Some((byte, after)) = decode_byte(rest) {
        let is_stray = byte == b'%' && after.len() + 1 == rest.len();
        if is_stray
            && let Some((high, second)) = decode_byte(after)
            && high.is_ascii_hexdigit()
            && decode_byte(second).is_some_and(|(low, _)| low.is_ascii_hexdigit())
        {
            return true;
        }
        rest = after;
    }
    false
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

/// Whether a decoded segment, which is not `..` itself, is or holds `..` for those who also take `%2F`,
/// `%5C` or `\` for a slash, or cut parameters off (`..;x`). Encodings are in upper case here.
fn hides_dots(segment: &[u8]) -> bool {
    let mut rest = segment;
    loop {
        let part_bytes = separator_at(rest).map_or(rest.len(), |(at, _)| at);
        if without_parameters(&rest[..part_bytes]) == b".." {
            return true;
        }
        let Some((at, bytes)) = separator_at(rest) else { return false };
        rest = &rest[at + bytes..];
    }
}

/// Where the first thing is that lenient servers take for a slash, and how many bytes it has.
fn separator_at(segment: &[u8]) -> Option<(usize, usize)> {
    let tail_at = |at: usize| &segment[at..];
    (0..segment.len()).find_map(|at| match tail_at(at) {
        [b'%', b'2', b'F', ..] | [b'%', b'5', b'C', ..] => Some((at, 3)),
        [b'\\', ..] => Some((at, 1)),
        _ => None,
    })
}

fn without_parameters(part: &[u8]) -> &[u8] {
    let is_start = |tail: &[u8]| tail.starts_with(b";") || tail.starts_with(b"%3B");
    let end = (0..part.len()).find(|&at| is_start(&part[at..]));
    &part[..end.unwrap_or(part.len())]
}
