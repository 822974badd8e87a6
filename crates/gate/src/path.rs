//! One spelling for each path, so that no route is dodged by another one. RFC 3986 section 6.2.2.
//! In: a path as sent. Out: the same, an equivalent one to match by, both readings of its dot segments,
//! or a refusal; and each way in which servers may read what is odd in it.
//! Never: decodes `%2F`, `%5C`, `%3B` or merges slashes in what is matched first.
//! Invariant: a path with dot segments that is not refused has nothing else that servers read differently.

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
    /// It climbs above the root, hides dot segments that some servers would find, or has them beside
    /// something else that servers read differently.
    Refused(&'static str),
}

const ABOVE_ROOT: &str = "the path's \"..\" climbs above its root";
const HIDDEN_DOTS: &str =
    "the path hides \".\" or \"..\" behind an encoded slash, a backslash or a semicolon";
const DOTS_AND_ODD: &str = "the path has \".\" or \"..\" beside an empty segment, an encoded slash, a backslash or a semicolon";
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
            decoded if hides_dots(decoded) => return Normalized::Refused(HIDDEN_DOTS),
            _ => {}
        }
    }
    let end = scratch.len();
    if changed {
        // How slashes are merged or parameters cut decides which segment ".." takes away.
        if is_odd(path) {
            return Normalized::Refused(DOTS_AND_ODD);
        }
        decode_plain(path.as_bytes(), scratch);
    }
    match core::str::from_utf8(scratch).map(|text| text.split_at(end)) {
        Ok((resolved, literal)) if changed => Normalized::Changed { resolved, literal },
        Ok((normal, _)) if normal == path => Normalized::Same,
        Ok((normal, _)) => Normalized::Equivalent(normal),
        // Only ASCII is decoded, so what was text stays text.
        Err(_) => Normalized::Refused(HIDDEN_DOTS),
    }
}

/// A way in which some servers read a path. Each part is one that others leave out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    merges_slashes: bool,
    /// Takes `%2F`, `%5C` and a backslash for a slash, and `%3B` for a semicolon.
    decodes: bool,
    cuts: Cuts,
}

/// Whether parameters (`;...` up to the segment's end) are cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cuts {
    Nothing,
    BeforeDecoding,
    AfterDecoding,
}

/// All readings but the one that leaves everything as it is.
pub(crate) fn odd_readings() -> impl Iterator<Item = Reading> {
    [Cuts::Nothing, Cuts::BeforeDecoding, Cuts::AfterDecoding]
        .into_iter()
        .flat_map(|cuts| {
            [(false, false), (false, true), (true, false), (true, true)]
                .map(|(merges_slashes, decodes)| Reading { merges_slashes, decodes, cuts })
        })
        .skip(1)
}

/// The path, which has no dot segments, as `reading` has it, in the spelling of patterns. The result
/// replaces what `scratch` held.
pub(crate) fn read_as<'s>(
    path: &str,
    reading: Reading,
    scratch: &'s mut Vec<u8>,
) -> Option<&'s str> {
    scratch.clear();
    let mut rest = path.as_bytes();
    let mut is_parameter = false;
    while let Some((byte, after)) = decode_byte(rest) {
        let is_encoded = rest.len() - after.len() == 3;
        rest = after;
        let is_cut_first = is_parameter && is_encoded && reading.cuts == Cuts::BeforeDecoding;
        if is_slash(byte, is_encoded, reading) && !is_cut_first {
            is_parameter = false;
            if !(reading.merges_slashes && scratch.last() == Some(&b'/')) {
                scratch.push(b'/');
            }
        } else if is_parameter {
            continue;
        } else if byte == b';' && cuts_at(is_encoded, reading.cuts) {
            is_parameter = true;
        } else if is_encoded || byte == b'%' {
            push_encoded(byte, reading.decodes && byte == b';', scratch);
        } else {
            scratch.push(byte);
        }
    }
    core::str::from_utf8(scratch).ok()
}

fn is_slash(byte: u8, is_encoded: bool, reading: Reading) -> bool {
    (byte == b'/' && !is_encoded) || (reading.decodes && matches!(byte, b'/' | b'\\'))
}

fn cuts_at(is_encoded: bool, cuts: Cuts) -> bool {
    match cuts {
        Cuts::Nothing => false,
        Cuts::BeforeDecoding => !is_encoded,
        Cuts::AfterDecoding => true,
    }
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

/// Decodes what stands for itself in a segment, encoded or not.
fn decode_plain(encoded: &[u8], out: &mut Vec<u8>) {
    let mut rest = encoded;
    while let Some((byte, after)) = decode_byte(rest) {
        // A stray percent sign stands for itself; written as `%25`, it cannot join what follows.
        if rest.len() - after.len() == 3 || byte == b'%' {
            push_encoded(byte, false, out);
        } else {
            out.push(byte);
        }
        rest = after;
    }
}

/// Writes what came encoded: as itself where it can divide nothing, or where `decodes`; else encoded.
fn push_encoded(byte: u8, decodes: bool, out: &mut Vec<u8>) {
    let divides = matches!(byte, b'%' | b'/' | b'\\' | b';' | b'?' | b'#');
    if byte.is_ascii_graphic() && (decodes || !divides) {
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

/// Whether a decoded segment, which is no dot segment itself, is or holds one for those who also take
/// `%2F`, `%5C` or `\` for a slash, or cut parameters off (`..;x`). Encodings are in upper case here.
fn hides_dots(segment: &[u8]) -> bool {
    let mut rest = segment;
    loop {
        let part_bytes = separator_at(rest).map_or(rest.len(), |(at, _)| at);
        if matches!(without_parameters(&rest[..part_bytes]), b"." | b"..") {
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
