//! One spelling for each path, so that no route is dodged by another one. RFC 3986 section 6.2.2.
//! In: a path as sent. Out: the same, an equivalent one to match by, both readings of its dot segments,
//! or a refusal; and each way in which servers may read what is odd in it.
//! Never: decodes `%2F`, `%5C`, `%3B` or merges slashes in what is matched first.
//! Invariant: a path with dot segments that is not refused has nothing else that servers read differently.
//!
//! The rule. A path goes on as it came, so the server behind reads it once more, and routes hold only if it
//! cannot find another route's path there. Three things in a path are odd, for servers differ about them:
//! empty segments (some merge slashes), what some take for a slash (`%2F`, `%5C`, a backslash), and parameters
//! (some cut `;...` off, before or after they decode `%3B`). An odd path with a dot segment in it is refused,
//! also where the dots show only once slashes are decoded and parameters cut, for what ".." takes away depends
//! on the order of all this. So is one with both `%2F` and `%5C`, of which some servers decode one alone. Any
//! other odd path is looked up in each of the `READINGS` too, and refused if one of them is an earlier
//! route's. The most lenient reading alone would not do: `//a/b%2Fc` is `/a/{id}` to those who merge slashes
//! only if they decode none.

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
    /// It climbs above the root, has dot segments beside something else that servers read differently, or more
    /// of that than can be read in a few ways.
    Refused(&'static str),
}

const ABOVE_ROOT: &str = "the path's \"..\" climbs above its root";
const DOTS_AND_ODD: &str = "the path has \".\" or \"..\" beside an empty segment, an encoded slash, a backslash or a semicolon";
const BOTH_SLASHES: &str = "the path has both an encoded slash and an encoded backslash in it";
const JOINED_PERCENT: &str =
    "the path has a \"%\" that turns into an encoding once what follows it is decoded";

/// Normalises `path`: removes dot segments (RFC 3986 section 5.2.4), decodes what is percent-encoded and
/// divides nothing (section 6.2.2.2, and `%40` as `@`), writes the other encodings in upper case (6.2.2.1).
/// The result lies in `scratch`, whose content is replaced where there is one.
pub fn normalize_path<'s>(path: &str, scratch: &'s mut Vec<u8>) -> Normalized<'s> {
    if is_plain(path.as_bytes()) {
        return Normalized::Same;
    }
    if joins_percent(path.as_bytes()) {
        return Normalized::Refused(JOINED_PERCENT);
    }
    if let Some(text) = refuses_odd(path, scratch) {
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
                let Some(parent) = memchr::memrchr(b'/', scratch) else {
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
        // Only ASCII is decoded, so what was text stays text.
        Err(_) => Normalized::Refused(DOTS_AND_ODD),
    }
}

/// Why an odd path is refused whatever the routes are.
fn refuses_odd(path: &str, scratch: &mut Vec<u8>) -> Option<&'static str> {
    if !is_odd(path) {
        return None;
    }
    spell(path, scratch);
    let has = |divider: &[u8]| memchr::memmem::find(scratch, divider).is_some();
    let has_both = has(b"%2F") && (has(b"%5C") || has(b"\\"));
    // This reading finds every dot segment that any other one finds, and those that are there for all.
    Step::Decode.apply(scratch, 0);
    Step::Cut.apply(scratch, 0);
    let mut segments = scratch.split(|&byte| byte == b'/');
    if segments.any(|segment| matches!(segment, b"." | b"..")) {
        return Some(DOTS_AND_ODD);
    }
    has_both.then_some(BOTH_SLASHES)
}

/// What some servers do to a path before they look at its segments.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Takes `%2F`, `%5C` and a backslash for a slash, `%3B` for a semicolon.
    Decode,
    /// Takes `%3B` for a semicolon.
    DecodeSemicolons,
    /// Cuts off parameters, `;...` up to the segment's end.
    Cut,
    /// Merges slashes.
    Merge,
}

/// The ways in which servers read an odd path, but the one that leaves it as it is: steps in order. Slashes
/// are merged last; merged earlier, they leave empty segments, which no pattern has that is meant.
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

/// An odd path without dot segments as servers may read it, in the spelling of patterns.
pub(crate) struct Readings<'s> {
    /// The path in one spelling, and a reading of it behind.
    scratch: &'s mut Vec<u8>,
    spelt_bytes: usize,
    left: core::slice::Iter<'static, &'static [Step]>,
}

impl<'s> Readings<'s> {
    /// The readings of `path`; what `scratch` held is lost.
    pub(crate) fn new(path: &str, scratch: &'s mut Vec<u8>) -> Self {
        spell(path, scratch);
        Self { spelt_bytes: scratch.len(), scratch, left: READINGS.iter() }
    }

    /// The next one that is like no other.
    pub(crate) fn next(&mut self) -> Option<&str> {
        let at = self.spelt_bytes;
        loop {
            let steps = self.left.next()?;
            self.scratch.truncate(at);
            self.scratch.extend_from_within(..);
            // Where a step has nothing to do, a shorter reading is the same.
            if steps.iter().all(|step| step.apply(self.scratch, at)) {
                break;
            }
        }
        core::str::from_utf8(&self.scratch[at..]).ok()
    }
}

impl Step {
    /// Whether it changed the path that begins at `start`.
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

/// Rewrites in place what begins at `start`. `step` gets what is left of it and says what stands for its
/// beginning, and for how many bytes. Whether anything changed.
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

/// Whether servers differ in how they read `path`: it has an empty segment, parameters, or something
/// that some take for a slash.
pub(crate) fn is_odd(path: &str) -> bool {
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
    decode_plain(&encoded, &mut canonical);
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

/// `path` in the spelling of patterns, in place of what `out` held.
fn spell(path: &str, out: &mut Vec<u8>) {
    out.clear();
    decode_plain(path.as_bytes(), out);
}

/// Decodes what stands for itself in a segment, encoded or not.
fn decode_plain(encoded: &[u8], out: &mut Vec<u8>) {
    let mut rest = encoded;
    while let Some((byte, after)) = decode_byte(rest) {
        // A stray percent sign stands for itself; written as `%25`, it cannot join what follows.
        if rest.len() - after.len() == 3 || byte == b'%' {
            push_encoded(byte, out);
        } else {
            out.push(byte);
        }
        rest = after;
    }
}

/// Writes what came encoded: as itself where it can divide nothing.
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
