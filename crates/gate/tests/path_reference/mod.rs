//! A simple, slow normalisation of paths with the meaning of `tidegate_gate::path`, for comparison with it.
//! In: a path. Out: its canonical form, or an error; every reading of an ambiguous path as a whole.
//! Each step is a pass over the whole path, so that each can be compared with the rule that it implements.

/// The result of normalising a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalized<'s> {
    /// The path was in its canonical form already.
    Same,
    /// The canonical form, for matching. Only percent-encodings differed. The path is still forwarded as
    /// sent, so that a signature over it remains valid.
    Equivalent(&'s str),
    /// The path has dot segments. Both readings are for matching.
    Changed {
        /// The path with its dot segments resolved.
        resolved: &'s str,
        /// The path with its dot segments, as a server reads it that does not resolve them.
        literal: &'s str,
    },
    /// The path climbs above the root, is ambiguous and has dot segments, or is ambiguous in too many ways.
    /// The text is for the client.
    Refused(&'static str),
}

const ABOVE_ROOT: &str = "\"..\" in the path climbs above the root";
const AMBIGUOUS_DOTS: &str = "the path combines \".\" or \"..\" with an empty segment, an encoded slash, a backslash or a semicolon";
const BOTH_SLASHES: &str = "the path contains both an encoded slash and an encoded backslash";
const FORMED_ENCODING: &str =
    "the path contains a \"%\" that forms an encoding once the characters after it are decoded";

/// Normalises `path`: removes dot segments (RFC 3986 section 5.2.4), decodes percent-encoded characters that
/// are not delimiters (section 6.2.2.2; also `%40` as `@`), and writes the other encodings in upper case
/// (section 6.2.2.1). The result is in `scratch`, whose contents are overwritten.
pub fn normalize_path<'s>(path: &str, scratch: &'s mut Vec<u8>) -> Normalized<'s> {
    if is_plain(path.as_bytes()) {
        return Normalized::Same;
    }
    if has_encoded_nul(path.as_bytes()) {
        return Normalized::Refused("NUL");
    }
    if forms_encoding(path.as_bytes()) {
        return Normalized::Refused(FORMED_ENCODING);
    }
    if let Some(text) = refuse_ambiguous(path, scratch) {
        return Normalized::Refused(text);
    }
    scratch.clear();
    let mut changed = false;
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        let start = scratch.len();
        scratch.push(b'/');
        decode_plain(segment.as_bytes(), scratch);
        let last = segments.peek().is_none();
        match scratch.get(start + 1..).unwrap_or_default() {
            b"." => {
                changed = true;
                scratch.truncate(if last { start + 1 } else { start });
            }
            b".." => {
                changed = true;
                scratch.truncate(start);
                let Some(parent) = scratch.iter().rposition(|&byte| byte == b'/') else {
                    return Normalized::Refused(ABOVE_ROOT);
                };
                scratch.truncate(if last { parent + 1 } else { parent });
            }
            _ => {}
        }
    }
    let end = scratch.len();
    if changed {
        decode_plain(path.as_bytes(), scratch);
    }
    match core::str::from_utf8(scratch).map(|text| text.split_at(end)) {
        Ok((resolved, literal)) if changed => Normalized::Changed { resolved, literal },
        Ok((normal, _)) if normal == path => Normalized::Same,
        Ok((normal, _)) => Normalized::Equivalent(normal),
        // Only ASCII is decoded, so the result is valid UTF-8.
        Err(_) => Normalized::Refused(AMBIGUOUS_DOTS),
    }
}

/// The reason why an ambiguous path is rejected regardless of the routes, if there is one.
fn refuse_ambiguous(path: &str, scratch: &mut Vec<u8>) -> Option<&'static str> {
    if !is_ambiguous(path) {
        return None;
    }
    write_canonical(path, scratch);
    let has = |divider: &[u8]| scratch.windows(divider.len()).any(|part| part == divider);
    let has_both = has(b"%2F") && (has(b"%5C") || has(b"\\"));
    // This reading contains every dot segment that appears in any other reading.
    Step::Decode.apply(scratch, 0);
    Step::Cut.apply(scratch, 0);
    let mut segments = scratch.split(|&byte| byte == b'/');
    if segments.any(|segment| matches!(segment, b"." | b"..")) {
        return Some(AMBIGUOUS_DOTS);
    }
    has_both.then_some(BOTH_SLASHES)
}

/// A transformation that some servers apply to a path before they split it into segments.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Decodes `%2F`, `%5C` and a backslash to a slash, and `%3B` to a semicolon.
    Decode,
    /// Decodes `%3B` to a semicolon.
    DecodeSemicolons,
    /// Strips parameters: `;...` up to the end of the segment.
    Cut,
    /// Merges slashes.
    Merge,
}

/// The ways in which servers read an ambiguous path, as steps in order; reading it unchanged is not listed.
/// Slashes are merged last: merging them earlier leaves empty segments, which useful patterns do not contain.
const READINGS: [&[Step]; 11] = {
    use Step::{Cut, Decode, DecodeSemicolons, Merge};
    [
        &[Merge],
        &[Decode],
        &[Decode, Merge],
        &[Cut],
        &[Cut, Merge],
        &[Cut, Decode],
        &[Cut, Decode, Merge],
        &[DecodeSemicolons, Cut],
        &[DecodeSemicolons, Cut, Merge],
        &[Decode, Cut],
        &[Decode, Cut, Merge],
    ]
};

/// The readings of an ambiguous path without dot segments, in the form of patterns.
pub struct Readings<'s> {
    /// The canonical path, followed by the current reading of it.
    scratch: &'s mut Vec<u8>,
    /// The length of the canonical path.
    canonical_bytes: usize,
    /// The readings that are still to come.
    left: core::slice::Iter<'static, &'static [Step]>,
}

impl<'s> Readings<'s> {
    /// Prepares the readings of `path`. The contents of `scratch` are overwritten.
    pub fn new(path: &str, scratch: &'s mut Vec<u8>) -> Self {
        write_canonical(path, scratch);
        Self { canonical_bytes: scratch.len(), scratch, left: READINGS.iter() }
    }

    /// The next reading that differs from the others.
    pub fn next(&mut self) -> Option<&str> {
        let at = self.canonical_bytes;
        loop {
            let steps = self.left.next()?;
            self.scratch.truncate(at);
            self.scratch.extend_from_within(..);
            // If a step changes nothing, a shorter reading gives the same result.
            if steps.iter().all(|step| step.apply(self.scratch, at)) {
                break;
            }
        }
        core::str::from_utf8(&self.scratch[at..]).ok()
    }
}

impl Step {
    /// Applies the step to the path that begins at `start`. Returns whether it changed anything.
    fn apply(self, path: &mut Vec<u8>, start: usize) -> bool {
        let (mut is_parameter, mut before) = (false, 0);
        match self {
            Self::Decode => rewrite(path, start, |rest| match rest {
                [b'%', b'2', b'F', ..] | [b'%', b'5', b'C', ..] => (Some(b'/'), 3),
                [b'%', b'3', b'B', ..] => (Some(b';'), 3),
                [byte, ..] if *byte == b'\\' => (Some(b'/'), 1),
                _ => (rest.first().copied(), 1),
            }),
            Self::DecodeSemicolons => rewrite(path, start, |rest| match rest {
                [b'%', b'3', b'B', ..] => (Some(b';'), 3),
                _ => (rest.first().copied(), 1),
            }),
            Self::Cut => rewrite(path, start, |rest| {
                let first = rest.first().copied();
                is_parameter = first == Some(b';') || (is_parameter && first != Some(b'/'));
                (first.filter(|_| !is_parameter), 1)
            }),
            Self::Merge => rewrite(path, start, |rest| {
                let first = rest.first().copied();
                let is_second = first == Some(b'/') && before == b'/';
                before = first.unwrap_or_default();
                (first.filter(|_| !is_second), 1)
            }),
        }
    }
}

/// Rewrites in place the bytes from `start` on. `step` receives the remaining bytes; it returns the byte to
/// write (if any) and how many bytes that replaces. Returns whether anything changed.
fn rewrite(
    path: &mut Vec<u8>,
    start: usize,
    mut step: impl FnMut(&[u8]) -> (Option<u8>, usize),
) -> bool {
    let (mut from, mut to, mut changed) = (start, start, false);
    while from < path.len() {
        let (byte, bytes) = step(&path[from..]);
        changed |= byte != Some(path[from]);
        if let Some(byte) = byte {
            path[to] = byte;
            to += 1;
        }
        from += bytes;
    }
    path.truncate(to);
    changed
}

/// Whether servers read `path` differently: it has an empty segment, parameters, or a character that some
/// take for a slash.
pub fn is_ambiguous(path: &str) -> bool {
    if is_plain(path.as_bytes()) {
        return false;
    }
    let mut rest = path.as_bytes();
    let mut before = 0;
    while let Some((byte, after)) = decode_byte(rest) {
        let is_encoded = rest.len() - after.len() == 3;
        if matches!(byte, b'\\' | b';') || (byte == b'/' && (is_encoded || before == b'/')) {
            return true;
        }
        before = byte;
        rest = after;
    }
    false
}

/// The first byte, decoded if it is percent-encoded, and the rest.
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

/// Whether a path is certainly in its canonical form and read in the same way by all servers: nothing is
/// encoded, and there is no backslash, no parameter, and no segment that is empty or begins with a dot.
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

/// Whether a stray percent sign forms an encoding with the characters that the encodings after it decode to
/// (`%2%65` becomes `%2e`). A server that decodes twice, or resolves `%2e%2e` itself, would interpret it.
fn forms_encoding(path: &[u8]) -> bool {
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

/// Writes `path` in the form of patterns to `out`, and overwrites its contents.
fn write_canonical(path: &str, out: &mut Vec<u8>) {
    out.clear();
    decode_plain(path.as_bytes(), out);
}

/// Appends the canonical form of a path or segment: decodes encoded characters that are not delimiters.
fn decode_plain(encoded: &[u8], out: &mut Vec<u8>) {
    let mut rest = encoded;
    while let Some((byte, after)) = decode_byte(rest) {
        // A stray percent sign is literal. Written as `%25`, it cannot form an encoding.
        if rest.len() - after.len() == 3 || byte == b'%' {
            push_encoded(byte, out);
        } else {
            out.push(byte);
        }
        rest = after;
    }
}

/// Appends a byte that was encoded: decoded if it is a graphic character and not a delimiter, else encoded.
fn push_encoded(byte: u8, out: &mut Vec<u8>) {
    if byte.is_ascii_graphic() && !matches!(byte, b'%' | b'/' | b'\\' | b';' | b'?' | b'#') {
        out.push(byte);
    } else {
        out.push(b'%');
        out.extend([byte >> 4, byte & 15].map(upper_hex));
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn upper_hex(digit: u8) -> u8 {
    if digit < 10 { b'0' + digit } else { b'A' + digit - 10 }
}

fn has_encoded_nul(path: &[u8]) -> bool {
    let mut rest = path;
    while let Some((byte, after)) = decode_byte(rest) {
        if byte == 0 && rest.len() - after.len() == 3 {
            return true;
        }
        rest = after;
    }
    false
}
