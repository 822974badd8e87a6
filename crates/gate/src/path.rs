//! Normalises paths to one spelling, so that another spelling cannot bypass a route. RFC 3986 section 6.2.2.
//! In: a path as sent. Out: the same path, an equivalent one for matching, both readings of its dot segments,
//! or an error; and each way in which servers may read an ambiguous path.
//! Never: decodes `%2F`, `%5C`, `%3B` or merges slashes in the path that is matched first.
//! Invariant: an accepted path with dot segments contains nothing else that servers read differently.
//! Limits: work is linear in the length of the path. A reading is written only as far as a pattern can see
//! (`Reach`), so that twelve readings of a long path cost little more than one look at each of its bytes.
//!
//! The rule: a path is forwarded as it was received, so the server parses it again. Routes are reliable only
//! if the server cannot read the path as that of another route. A path is ambiguous if it contains any of
//! three things that servers treat differently: empty segments (some merge slashes), characters that some
//! take for a slash (`%2F`, `%5C`, a backslash), and parameters (some strip `;...`, before or after they
//! decode `%3B`). An ambiguous path with a dot segment is rejected, even if the dots appear only after
//! slashes are decoded and parameters stripped, because the effect of ".." depends on the order of these
//! steps. A path with both `%2F` and `%5C` is rejected, because some servers decode only one of them. Any
//! other ambiguous path is also looked up in each of the `READINGS`, and rejected if one of them matches an
//! earlier route. The most lenient reading alone would not suffice: `//a/b%2Fc` matches `/a/{id}` on servers
//! that merge slashes only if they do not decode `%2F`.

/// The result of normalising a path.
#[derive(Debug)]
pub enum Normalized<'s> {
    /// The path was in its canonical spelling already.
    Same,
    /// The canonical spelling, for matching. Only percent-encodings differed. The path is still forwarded as
    /// sent, so that a signature over it remains valid.
    Equivalent(&'s str),
    /// The path has dot segments. Both readings are for matching.
    Changed {
        /// The path with its dot segments resolved.
        resolved: &'s str,
        /// The path with its dot segments, as a server reads it that does not resolve them.
        literal: &'s str,
    },
    /// Servers read the path in different ways. All of them are for matching.
    Ambiguous(Readings<'s>),
    /// The path climbs above the root, is ambiguous and has dot segments, is ambiguous in too many ways, or
    /// has an encoded NUL. The text is for the client.
    Refused(&'static str),
}

/// How much of a path the patterns of a table can see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// More bytes than the longest literal part of a pattern has: a path that is longer than all of them, or
    /// a segment that is, differs from each of them no matter how it goes on.
    pub bytes: usize,
    /// The most segments of a pattern with a variable segment.
    pub segments: usize,
}

impl Reach {
    /// Paths are written completely.
    pub const UNLIMITED: Self = Self { bytes: usize::MAX, segments: usize::MAX };

    /// How many equal delimiters, or bytes of text, in sequence make a difference. Three at least: what is
    /// longer than ".." is no dot segment.
    fn run(self) -> usize {
        self.bytes.max(self.segments.saturating_add(2)).max(3)
    }
}

const ABOVE_ROOT: &str = "\"..\" in the path climbs above the root";
const AMBIGUOUS_DOTS: &str = "the path combines \".\" or \"..\" with an empty segment, an encoded slash, a backslash or a semicolon";
const BOTH_SLASHES: &str = "the path contains both an encoded slash and an encoded backslash";
const FORMED_ENCODING: &str =
    "the path contains a \"%\" that forms an encoding once the characters after it are decoded";
const ENCODED_NUL: &str = "the path contains an encoded NUL (%00), at which some servers end it";
const NOT_ASCII: &str = "the path contains a character that is not ASCII";

/// Normalises `path`: removes dot segments (RFC 3986 section 5.2.4), decodes percent-encoded characters that
/// are not delimiters (section 6.2.2.2; also `%40` as `@`), and writes the other encodings in upper case
/// (section 6.2.2.1). The result is in `scratch`, whose contents are overwritten. It is complete as far as
/// `reach`: patterns within that reach match it exactly if they match the complete one.
pub fn normalize_path<'s>(path: &str, reach: Reach, scratch: &'s mut Vec<u8>) -> Normalized<'s> {
    if is_plain(path.as_bytes()) {
        return Normalized::Same;
    }
    scratch.clear();
    let kinds = match write_tokens(path.as_bytes(), reach.run(), scratch) {
        Ok(kinds) => kinds,
        Err(text) => return Normalized::Refused(text),
    };
    let has = |kind: u8| kinds & kind != 0;
    if has(DOTS) && has(AMBIGUOUS) {
        return Normalized::Refused(AMBIGUOUS_DOTS);
    }
    if has(SLASHES) && has(BACKSLASHES) {
        return Normalized::Refused(BOTH_SLASHES);
    }
    if has(AMBIGUOUS) {
        return Normalized::Ambiguous(Readings::new(scratch, kinds, reach));
    }
    let end = scratch.len();
    if has(DOTS) && !resolve_dots(scratch) {
        return Normalized::Refused(ABOVE_ROOT);
    }
    // All tokens of a path that is not ambiguous are text.
    match core::str::from_utf8(scratch).map(|text| text.split_at(end)) {
        Ok((literal, resolved)) if has(DOTS) => Normalized::Changed { resolved, literal },
        Ok((normal, _)) if normal == path => Normalized::Same,
        Ok((normal, _)) => Normalized::Equivalent(normal),
        Err(_) => Normalized::Refused(NOT_ASCII),
    }
}

// Tokens: the canonical path with one byte for each character that servers read differently. Other
// characters are their own tokens. These bytes occur in no ASCII text.
const ENCODED_SLASH: u8 = 0x80;
const ENCODED_BACKSLASH: u8 = 0x81;
const ENCODED_SEMICOLON: u8 = 0x82;

// What a path contains.
const SLASHES: u8 = 1;
const BACKSLASHES: u8 = 2;
const SEMICOLONS: u8 = 4;
const ENCODED_SEMICOLONS: u8 = 8;
const EMPTY_SEGMENTS: u8 = 16;
/// A segment that is "." or ".." in some reading.
const DOTS: u8 = 32;
const AMBIGUOUS: u8 = SLASHES | BACKSLASHES | SEMICOLONS | ENCODED_SEMICOLONS | EMPTY_SEGMENTS;

/// Writes the tokens of `path` and returns what it contains. Of more than `run` equal delimiters, or of more
/// text between two delimiters, only the start is written.
fn write_tokens(path: &[u8], run: usize, tokens: &mut Vec<u8>) -> Result<u8, &'static str> {
    let mut writer =
        TokenWriter { tokens, run, last: 0, repeated: 0, segment: Segment::Dots(0), kinds: 0 };
    let mut rest = path;
    while let [first, after @ ..] = rest {
        rest = match CLASSES[usize::from(*first)] {
            Class::Text => {
                let is_text = |&&byte: &&u8| matches!(CLASSES[usize::from(byte)], Class::Text);
                let length = rest.iter().take_while(is_text).count();
                let (text, after) = rest.split_at(length);
                writer.push_text(text);
                after
            }
            Class::Dot => {
                writer.push_dot();
                after
            }
            Class::Slash => {
                writer.push_delimiter(b'/');
                after
            }
            Class::Backslash => {
                writer.push_delimiter(b'\\');
                after
            }
            Class::Semicolon => {
                writer.push_delimiter(b';');
                after
            }
            Class::Percent => match decode_byte(rest) {
                Some((byte, decoded)) if decoded.len() + 3 == rest.len() => {
                    writer.push_encoded(byte)?;
                    decoded
                }
                _ if forms_encoding(after) => return Err(FORMED_ENCODING),
                // Written as `%25`, a stray percent sign cannot form an encoding with what follows it.
                _ => {
                    writer.push_text(b"%25");
                    after
                }
            },
            Class::Other => return Err(NOT_ASCII),
        };
    }
    writer.end_segment();
    Ok(writer.kinds)
}

/// Writes tokens and finds out what they contain.
struct TokenWriter<'t> {
    tokens: &'t mut Vec<u8>,
    /// How many equal delimiters, or bytes of text, are written in sequence.
    run: usize,
    /// The last delimiter; 0 after text.
    last: u8,
    /// How many of `last`, or bytes of text, have been written since something else was.
    repeated: usize,
    /// What the current segment is if everything that may be a slash is one, and parameters are stripped.
    segment: Segment,
    /// What has been found.
    kinds: u8,
}

/// The part of a segment before its parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Segment {
    /// Only dots, up to two.
    Dots(u8),
    /// Something else, or its parameters have begun.
    Other,
}

impl TokenWriter<'_> {
    #[inline]
    fn push_text(&mut self, text: &[u8]) {
        self.segment = Segment::Other;
        self.write_text(text);
    }

    #[inline]
    fn push_dot(&mut self) {
        self.segment = match self.segment {
            Segment::Dots(count @ 0..=1) => Segment::Dots(count + 1),
            Segment::Dots(_) | Segment::Other => Segment::Other,
        };
        self.write_text(b".");
    }

    #[inline]
    fn write_text(&mut self, text: &[u8]) {
        if self.last != 0 {
            self.last = 0;
            self.repeated = 0;
        }
        let left = self.run.saturating_sub(self.repeated);
        match text {
            [byte] if left > 0 => self.tokens.push(*byte),
            _ => self.tokens.extend_from_slice(text.get(..left).unwrap_or(text)),
        }
        self.repeated = self.repeated.saturating_add(text.len());
    }

    #[inline]
    fn push_delimiter(&mut self, token: u8) {
        let is_repeated = self.last == token;
        self.kinds |= match token {
            b'/' if is_repeated => EMPTY_SEGMENTS,
            ENCODED_SLASH => SLASHES,
            ENCODED_BACKSLASH | b'\\' => BACKSLASHES,
            b';' => SEMICOLONS,
            ENCODED_SEMICOLON => ENCODED_SEMICOLONS,
            _ => 0,
        };
        self.end_segment();
        let begins_parameters = matches!(token, b';' | ENCODED_SEMICOLON);
        self.segment = if begins_parameters { Segment::Other } else { Segment::Dots(0) };
        self.repeated = if is_repeated { self.repeated.saturating_add(1) } else { 1 };
        self.last = token;
        if self.repeated <= self.run {
            self.tokens.push(token);
        }
    }

    /// Handles `byte`, which was percent-encoded.
    #[inline]
    fn push_encoded(&mut self, byte: u8) -> Result<(), &'static str> {
        match byte {
            0 => return Err(ENCODED_NUL),
            b'/' => self.push_delimiter(ENCODED_SLASH),
            b'\\' => self.push_delimiter(ENCODED_BACKSLASH),
            b';' => self.push_delimiter(ENCODED_SEMICOLON),
            b'.' => self.push_dot(),
            _ if decodes_to_itself(byte) => self.push_text(&[byte]),
            _ => self.push_text(&percent_encoded(byte)),
        }
        Ok(())
    }

    fn end_segment(&mut self) {
        if matches!(self.segment, Segment::Dots(1 | 2)) {
            self.kinds |= DOTS;
        }
    }
}

/// What a byte of a path is for `write_tokens`.
#[derive(Clone, Copy)]
enum Class {
    Text,
    Dot,
    Slash,
    Backslash,
    Semicolon,
    Percent,
    Other,
}

static CLASSES: [Class; 256] = {
    let mut classes = [Class::Text; 256];
    let mut byte = 0x80;
    while byte < 256 {
        classes[byte] = Class::Other;
        byte += 1;
    }
    classes[b'.' as usize] = Class::Dot;
    classes[b'/' as usize] = Class::Slash;
    classes[b'\\' as usize] = Class::Backslash;
    classes[b';' as usize] = Class::Semicolon;
    classes[b'%' as usize] = Class::Percent;
    classes
};

/// Appends to the canonical path in `text` the same path with its dot segments resolved. Returns false if a
/// ".." climbs above the root.
fn resolve_dots(text: &mut Vec<u8>) -> bool {
    let end = text.len();
    text.resize(2 * end + 1, 0);
    let (canonical, out) = text.split_at_mut(end);
    let mut length = 0;
    let first = usize::from(canonical.starts_with(b"/"));
    let mut start = first;
    for at in first..=end {
        if at < end && canonical[at] != b'/' {
            continue;
        }
        let is_last = at == end;
        match &canonical[start..at] {
            b"." => {}
            b".." if length == 0 => return false,
            b".." => {
                length -= 1;
                while out[length] != b'/' {
                    length -= 1;
                }
            }
            segment => {
                out[length] = b'/';
                for (place, &byte) in out[length + 1..].iter_mut().zip(segment) {
                    *place = byte;
                }
                length += 1 + segment.len();
                start = at + 1;
                continue;
            }
        }
        if is_last {
            out[length] = b'/';
            length += 1;
        }
        start = at + 1;
    }
    text.truncate(end + length);
    true
}

/// A way in which servers read an ambiguous path.
struct Reading {
    /// Reads `%2F`, `%5C` and a backslash as a slash, and `%3B` as a semicolon.
    decodes: bool,
    /// Which parameters it strips, and when.
    cuts: Cuts,
    /// Merges slashes. Merging them before anything else would leave empty segments, which useful patterns do
    /// not contain.
    merges: bool,
}

/// Which parameters a reading strips: what follows a semicolon, up to the end of the segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cuts {
    /// None.
    Nothing,
    /// Those after a plain semicolon, before anything is decoded.
    Plain,
    /// Those after a plain or encoded semicolon, before slashes are decoded.
    Decoded,
    /// Those after a plain or encoded semicolon, after slashes have been decoded.
    Last,
}

const READINGS: [Reading; 12] = {
    const fn reading(decodes: bool, cuts: Cuts, merges: bool) -> Reading {
        Reading { decodes, cuts, merges }
    }
    [
        reading(false, Cuts::Nothing, false),
        reading(false, Cuts::Nothing, true),
        reading(true, Cuts::Nothing, false),
        reading(true, Cuts::Nothing, true),
        reading(false, Cuts::Plain, false),
        reading(false, Cuts::Plain, true),
        reading(true, Cuts::Plain, false),
        reading(true, Cuts::Plain, true),
        reading(false, Cuts::Decoded, false),
        reading(false, Cuts::Decoded, true),
        reading(true, Cuts::Last, false),
        reading(true, Cuts::Last, true),
    ]
};

/// What a token is in one reading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Part of a segment.
    Text,
    /// Ends a segment.
    Slash,
    /// Begins parameters that are stripped.
    Semicolon,
}

impl Reading {
    /// Whether the reading may differ from all simpler ones for a path with `kinds`.
    const fn applies(&self, kinds: u8) -> bool {
        let encoded = SLASHES | BACKSLASHES | ENCODED_SEMICOLONS;
        let decodes = !self.decodes || kinds & encoded != 0;
        let cuts = match self.cuts {
            Cuts::Nothing => true,
            Cuts::Plain => kinds & SEMICOLONS != 0,
            Cuts::Decoded => kinds & ENCODED_SEMICOLONS != 0,
            Cuts::Last => kinds & (SEMICOLONS | ENCODED_SEMICOLONS) != 0,
        };
        let is_plain_merge = self.merges && !self.decodes && matches!(self.cuts, Cuts::Nothing);
        decodes && cuts && (!is_plain_merge || kinds & EMPTY_SEGMENTS != 0)
    }

    const fn role(&self, token: u8) -> Role {
        match token {
            b'/' => Role::Slash,
            b'\\' | ENCODED_SLASH | ENCODED_BACKSLASH if self.decodes => Role::Slash,
            b';' if !matches!(self.cuts, Cuts::Nothing) => Role::Semicolon,
            ENCODED_SEMICOLON if matches!(self.cuts, Cuts::Decoded | Cuts::Last) => Role::Semicolon,
            _ => Role::Text,
        }
    }

    /// The text of an encoded delimiter that is part of a segment.
    const fn text_of(&self, token: u8) -> &'static [u8] {
        match token {
            ENCODED_SLASH => b"%2F",
            ENCODED_BACKSLASH => b"%5C",
            ENCODED_SEMICOLON if self.decodes => b";",
            ENCODED_SEMICOLON => b"%3B",
            _ => b"",
        }
    }

    const fn roles(&self) -> [Role; 256] {
        let mut roles = [Role::Text; 256];
        let mut token = 0;
        while token < 256 {
            roles[token] = self.role(token as u8);
            token += 1;
        }
        roles
    }

    /// Writes the reading of `tokens` to `out`, which must have three bytes for each token, and returns its
    /// length. Of a segment, only the part within `reach` is written, and nothing of what follows the part of
    /// the path within `reach`.
    fn write(
        &self,
        tokens: &[u8],
        kinds: u8,
        roles: &[Role; 256],
        reach: Reach,
        out: &mut [u8],
    ) -> usize {
        let (mut at, mut length, mut segments, mut segment_bytes) = (0, 0, 0, 0);
        let role = |token: u8| roles[usize::from(token)];
        while let Some(&token) = tokens.get(at) {
            at += 1;
            match role(token) {
                Role::Slash => {
                    if self.merges && segment_bytes == 0 && length > 0 {
                        continue;
                    }
                    if segments > reach.segments && length >= reach.bytes {
                        break;
                    }
                    out[length] = b'/';
                    length += 1;
                    segments += 1;
                    segment_bytes = 0;
                }
                Role::Semicolon => {
                    // A branch, not a sum: the processor then looks ahead over thousands of empty parameters.
                    if tokens.get(at) != Some(&b'/') {
                        at += slash_in(&tokens[at..], matches!(self.cuts, Cuts::Last), kinds);
                    }
                }
                Role::Text if segment_bytes < reach.bytes => {
                    let code = [token];
                    let text = if token.is_ascii() { &code } else { self.text_of(token) };
                    for &byte in text {
                        out[length] = byte;
                        length += 1;
                    }
                    segment_bytes += text.len();
                }
                Role::Text if segments > reach.segments => break,
                // Parameters that are stripped before slashes are decoded may contain encoded ones.
                Role::Text if self.decodes && matches!(self.cuts, Cuts::Plain) => {
                    let stop = tokens[at..].iter().position(|&token| role(token) != Role::Text);
                    at = stop.map_or(tokens.len(), |stop| at + stop);
                }
                Role::Text => at += slash_in(&tokens[at..], self.decodes, kinds),
            }
        }
        length
    }
}

/// The position of the first slash in `tokens`, or their number; `decoded` includes what decodes to one.
#[inline]
fn slash_in(tokens: &[u8], decoded: bool, kinds: u8) -> usize {
    // No path has both encoded slashes and backslashes.
    let found = match decoded {
        false => memchr::memchr(b'/', tokens),
        true if kinds & SLASHES != 0 => memchr::memchr2(b'/', ENCODED_SLASH, tokens),
        true => memchr::memchr3(b'/', ENCODED_BACKSLASH, b'\\', tokens),
    };
    found.unwrap_or(tokens.len())
}

static ROLES: [[Role; 256]; READINGS.len()] = {
    let mut roles = [[Role::Text; 256]; READINGS.len()];
    let mut index = 0;
    while index < READINGS.len() {
        roles[index] = READINGS[index].roles();
        index += 1;
    }
    roles
};

/// The readings of an ambiguous path without dot segments, in the spelling of patterns.
#[derive(Debug)]
pub struct Readings<'s> {
    /// The tokens, followed by space for a reading.
    scratch: &'s mut Vec<u8>,
    /// The number of tokens.
    token_count: usize,
    /// What the path contains.
    kinds: u8,
    /// How much of a reading is written.
    reach: Reach,
    /// The index of the next reading.
    next: usize,
}

impl<'s> Readings<'s> {
    fn new(scratch: &'s mut Vec<u8>, kinds: u8, reach: Reach) -> Self {
        let token_count = scratch.len();
        scratch.resize(4 * token_count, 0);
        Self { scratch, token_count, kinds, reach, next: 0 }
    }

    /// The next reading: first the canonical path unchanged, then each other reading that may differ from it.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its items")]
    pub fn next(&mut self) -> Option<&str> {
        let (reading, roles) = loop {
            let index = self.next;
            self.next += 1;
            let reading = READINGS.get(index)?;
            if reading.applies(self.kinds) {
                break (reading, &ROLES[index]);
            }
        };
        let (tokens, out) = self.scratch.split_at_mut(self.token_count);
        let length = reading.write(tokens, self.kinds, roles, self.reach, out);
        // Tokens are ASCII and codes, which are written as ASCII.
        Some(core::str::from_utf8(&out[..length]).unwrap_or_default())
    }
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

/// The canonical spelling of a configured pattern, or of a part of one.
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

/// Whether a path is certainly in its canonical spelling and read in the same way by all servers: nothing is
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

/// Whether a stray percent sign before `after` forms an encoding with the characters that the encodings after
/// it decode to (`%2%65` becomes `%2e`). A server that decodes twice, or resolves `%2e%2e` itself, would
/// interpret it.
fn forms_encoding(after: &[u8]) -> bool {
    decode_byte(after).is_some_and(|(high, second)| {
        high.is_ascii_hexdigit()
            && decode_byte(second).is_some_and(|(low, _)| low.is_ascii_hexdigit())
    })
}

/// Appends the canonical spelling of a pattern: decodes encoded characters that are not delimiters.
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
    if decodes_to_itself(byte) {
        out.push(byte);
    } else {
        out.extend(percent_encoded(byte));
    }
}

/// Whether the canonical spelling of an encoded `byte` is the byte itself.
const fn decodes_to_itself(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'%' | b'/' | b'\\' | b';' | b'?' | b'#')
}

const fn percent_encoded(byte: u8) -> [u8; 3] {
    [b'%', upper_hex(byte >> 4), upper_hex(byte & 15)]
}

/// The value of a hexadecimal digit.
const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

const fn upper_hex(digit: u8) -> u8 {
    if digit < 10 { b'0' + digit } else { b'A' + digit - 10 }
}
