//! Normalises paths to one canonical form (RFC 3986 section 6.2.2), so that another form of a path cannot bypass a route.
//! In: a path as sent. Out: the same path, an equivalent one for matching, both readings of its dot segments,
//! or an error; and each way in which servers may read an ambiguous path.
//! Never: decodes `%2F`, `%5C`, `%3B` or merges slashes in the path that is matched first.
//! Invariant: an accepted path with dot segments contains nothing else that servers read differently.
//! Limits: one pass over the path; a few operations for each byte. A part of the path that cannot affect
//! whether a pattern matches (`Reach`) is examined but not stored, so that the cost of a reading depends on the
//! length of the table's patterns, not on that of the path. A reading that equals a simpler one is not looked up.
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

mod followed;

use followed::{ALL, Followed, PLAIN_SEMICOLON, ReadingSet};

/// The result of normalising a path.
#[derive(Debug)]
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
        /// The path with its dot segments, as a server that does not resolve them reads it.
        literal: &'s str,
    },
    /// Servers read the path in different ways. All of them are for matching.
    Ambiguous(Readings<'s>),
    /// The path climbs above the root, is ambiguous and has dot segments, is ambiguous in too many ways, or
    /// has an encoded NUL. The text is for the client.
    Refused(&'static str),
}

/// How much of a path can affect whether a pattern of a table matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// More bytes than the longest literal part of a pattern has. A path or a segment with this many bytes differs
    /// from every literal part, however it continues.
    pub bytes: usize,
    /// Maximum number of segments of a pattern with a variable segment.
    pub segments: usize,
}

impl Reach {
    /// Whole paths.
    pub const UNLIMITED: Self = Self { bytes: usize::MAX, segments: usize::MAX };

    /// Maximum number of slashes of a path, or bytes of a segment, that can affect whether a pattern matches. At least
    /// three, because a segment longer than ".." is not a dot segment.
    fn run(self) -> usize {
        self.bytes.max(self.segments.saturating_add(2)).max(3)
    }
}

const ABOVE_ROOT: &str = "\"..\" in the path climbs above the root";
const AMBIGUOUS_DOTS: &str = "the path combines \".\" or \"..\" with an empty segment, an encoded slash, a backslash or a semicolon";
const BOTH_SLASHES: &str = "the path contains both an encoded slash and an encoded backslash";
const FORMED_ENCODING: &str =
    "the path contains a \"%\" that forms an encoding once the characters after it are decoded";
const ENCODED_NUL: &str = "the path contains an encoded NUL (%00), where some servers end the path";
const NOT_ASCII: &str = "the path contains a character that is not ASCII";

/// Normalises `path`: removes dot segments (RFC 3986 section 5.2.4), decodes percent-encoded characters that
/// are not delimiters (section 6.2.2.2; also `%40` as `@`), and writes the other encodings in upper case
/// (section 6.2.2.1). The result is in `scratch`, whose contents are overwritten. It may end
/// after `reach`: a pattern within that reach matches the result if and only if it matches the whole path.
pub fn normalize_path<'s>(path: &str, reach: Reach, scratch: &'s mut Vec<u8>) -> Normalized<'s> {
    if plain_length(path.as_bytes(), 0) == path.len() {
        return Normalized::Same;
    }
    // One byte of the path may become three tokens (`%` becomes `%25`). The three bytes of an encoded delimiter become
    // one token, which takes up to three bytes of a reading. So a reading, too, has up to three bytes for each byte.
    // Bytes of earlier calls in `scratch` are overwritten before they are read.
    let tokens_max = 3 * path.len();
    if scratch.len() < 2 * tokens_max + 1 {
        scratch.resize(2 * tokens_max + 1, 0);
    }
    let (tokens, out) = scratch.split_at_mut(tokens_max);
    let Written { length, kinds, readings } =
        match write_tokens(path.as_bytes(), reach.run(), tokens) {
            Ok(written) => written,
            Err(text) => return Normalized::Refused(text),
        };
    let has = |kind: u8| kinds & kind != 0;
    if has(DOTS) && has(AMBIGUOUS) {
        return Normalized::Refused(AMBIGUOUS_DOTS);
    }
    if has(SLASHES) && has(BACKSLASHES) {
        return Normalized::Refused(BOTH_SLASHES);
    }
    let tokens = tokens.get(..length).unwrap_or_default();
    if has(AMBIGUOUS) {
        return Normalized::Ambiguous(Readings { tokens, out, kinds, reach, left: readings });
    }
    let resolved = if has(DOTS) { resolve_dots(tokens, out) } else { Some(0) };
    let Some(resolved) = resolved.and_then(|length| out.get(..length)) else {
        return Normalized::Refused(ABOVE_ROOT);
    };
    // All tokens of a path that is not ambiguous are text.
    match (core::str::from_utf8(tokens), core::str::from_utf8(resolved)) {
        (Ok(literal), Ok(resolved)) if has(DOTS) => Normalized::Changed { resolved, literal },
        (Ok(normal), Ok(_)) if normal == path => Normalized::Same,
        (Ok(normal), Ok(_)) => Normalized::Equivalent(normal),
        _ => Normalized::Refused(NOT_ASCII),
    }
}

// Tokens: the canonical path with one byte for each character that servers read differently. Other
// characters are their own tokens. These bytes occur in no ASCII text.
const ENCODED_SLASH: u8 = 0x80;
const ENCODED_BACKSLASH: u8 = 0x81;
const ENCODED_SEMICOLON: u8 = 0x82;

// What a path contains: bits of `kinds`.
const SLASHES: u8 = 1;
const BACKSLASHES: u8 = 2;
const SEMICOLONS: u8 = 4;
const ENCODED_SEMICOLONS: u8 = 8;
const EMPTY_SEGMENTS: u8 = 16;
/// A segment that is "." or ".." in some reading.
const DOTS: u8 = 32;
const AMBIGUOUS: u8 = SLASHES | BACKSLASHES | SEMICOLONS | ENCODED_SEMICOLONS | EMPTY_SEGMENTS;

/// The result of `write_tokens`.
struct Written {
    /// The number of tokens.
    length: usize,
    /// What the path contains.
    kinds: u8,
    /// The readings that may differ from all simpler ones.
    readings: ReadingSet,
}

/// Writes the tokens of `path`. `run` is the result of `Reach::run`; tokens beyond it may be left out.
fn write_tokens(path: &[u8], run: usize, tokens: &mut [u8]) -> Result<Written, &'static str> {
    let mut writer = TokenWriter::new(tokens, run);
    let mut rest = path;
    while let [first, after @ ..] = rest {
        rest = match CLASSES[usize::from(*first)] {
            Class::Text => {
                let length = writer.push_text(rest);
                rest.get(length..).unwrap_or_default()
            }
            Class::Slash => {
                writer.push_slash();
                let length = writer.push_whole_segments(after);
                after.get(length..).unwrap_or_default()
            }
            Class::Backslash => {
                writer.push_lenient_slash(b'\\', BACKSLASHES);
                after
            }
            Class::Semicolon => {
                writer.push_semicolon(b';', SEMICOLONS);
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
                    writer.write_text(b"%25".iter().copied());
                    after
                }
            },
            Class::Other => return Err(NOT_ASCII),
        };
    }
    writer.end_name();
    let readings = if writer.is_ambiguous { writer.followed.distinct_readings() } else { 1 };
    Ok(Written { length: writer.length, kinds: writer.kinds, readings })
}

/// Writes tokens, and finds out what they contain and which readings of them differ.
///
/// Of each part between delimiters, only the start that can affect whether a pattern matches is written, except
/// where many plain segments are copied at once. In an ambiguous path, whole parts are also left out: see `Followed`.
struct TokenWriter<'t> {
    /// The space for the tokens: three bytes for each byte of the path.
    tokens: &'t mut [u8],
    /// The number of tokens.
    length: usize,
    /// The result of `Reach::run`.
    run: usize,
    /// What the path contains so far.
    kinds: u8,
    /// The index of the first token of the current part, after its slash.
    part: usize,
    /// Whether the parameters of the part have begun, in the most lenient reading.
    in_parameters: bool,
    /// The number of slashes until the path became ambiguous.
    slashes: usize,
    /// Whether servers may read the path so far in different ways.
    is_ambiguous: bool,
    /// How servers read the tokens. Used only after the path has become ambiguous.
    followed: Followed,
}

impl<'t> TokenWriter<'t> {
    fn new(tokens: &'t mut [u8], run: usize) -> Self {
        Self {
            tokens,
            length: 0,
            run,
            kinds: 0,
            part: 0,
            in_parameters: false,
            slashes: 0,
            is_ambiguous: false,
            followed: Followed::new(0, 0, run, false),
        }
    }

    /// Writes the text that `rest` begins with, and returns its length.
    #[inline(always)]
    fn push_text(&mut self, rest: &[u8]) -> usize {
        let is_text = |byte: u8| matches!(CLASSES[usize::from(byte)], Class::Text);
        self.write_text(rest.iter().copied().take_while(|byte| is_text(*byte)))
    }

    /// Writes as much of `text` as can affect whether a pattern matches, and returns the length of `text`.
    #[inline(always)]
    fn write_text(&mut self, text: impl Iterator<Item = u8>) -> usize {
        if self.is_ambiguous {
            self.followed.add_text(ALL, self.length);
        }
        let length_max = self.length_max();
        let mut length = 0;
        let places = self.tokens.get_mut(self.length..).unwrap_or_default();
        for (place, byte) in places.iter_mut().zip(text) {
            *place = byte;
            length += 1;
        }
        self.length = (self.length + length).min(length_max);
        length
    }

    /// The length of the tokens after more text in this part.
    fn length_max(&self) -> usize {
        self.part.saturating_add(self.run).max(self.length)
    }

    #[inline(always)]
    fn push_slash(&mut self) {
        let is_repeated = self.last() == b'/';
        if is_repeated && self.is_ambiguous && self.followed.segment.changed == 0 {
            return;
        }
        self.end_name();
        if is_repeated {
            self.kinds |= EMPTY_SEGMENTS;
            self.follow();
        }
        if self.is_complete() {
            self.restart_part();
            return;
        }
        if self.is_ambiguous {
            self.length = self.followed.end_segment(self.length);
        } else {
            self.slashes += 1;
        }
        self.begin_part(b'/');
    }

    /// Handles the bytes after a slash that can be handled several segments at a time, and returns their number.
    #[inline(always)]
    fn push_whole_segments(&mut self, after: &[u8]) -> usize {
        if !self.is_ambiguous {
            self.push_plain(after)
        } else if self.is_complete() {
            self.skip_plain(after)
        } else if self.followed.drops_parameters() {
            self.followed.note(PLAIN_SEMICOLON);
            parameters_length(after)
        } else {
            0
        }
    }

    /// Writes plain and dot segments of a path that is not ambiguous so far.
    #[inline(always)]
    fn push_plain(&mut self, after: &[u8]) -> usize {
        let start = self.length;
        loop {
            let rest = after.get(self.length - start..).unwrap_or_default();
            let (length, last) = match rest {
                [b'.', b'/', ..] => (2, 0),
                [b'.', b'.', b'/', ..] => (3, 0),
                _ => {
                    let plain = rest.get(..plain_length(rest, b'/')).unwrap_or_default();
                    if plain.is_empty() || !plain.is_ascii() {
                        return self.length - start;
                    }
                    (plain.len(), plain.iter().rev().take_while(|byte| **byte != b'/').count())
                }
            };
            if rest.first() == Some(&b'.') {
                self.kinds |= DOTS;
            }
            copy_start(rest, self.tokens.get_mut(self.length..).unwrap_or_default(), length);
            self.length += length;
            self.part = self.length - last;
            if last > 0 {
                return self.length - start;
            }
        }
    }

    /// Skips plain segments that cannot affect whether a pattern matches.
    #[inline(always)]
    fn skip_plain(&mut self, after: &[u8]) -> usize {
        let length = plain_length(after, b'/');
        let plain = after.get(..length).unwrap_or_default();
        if !plain.is_ascii() {
            return 0;
        }
        // If the plain text has begun a segment, that segment cannot be a dot segment any more.
        self.in_parameters = plain.last().is_some_and(|byte| *byte != b'/');
        length
    }

    /// Handles a character that some servers take for a slash.
    #[inline(always)]
    fn push_lenient_slash(&mut self, token: u8, kind: u8) {
        self.kinds |= kind;
        if self.last() == token && self.followed.part.changed == 0 {
            return;
        }
        self.end_name();
        self.follow();
        if self.is_complete() {
            self.restart_part();
            return;
        }
        self.length = self.followed.end_part(self.length);
        self.begin_part(token);
    }

    /// Whether the rest of the path cannot affect any match. It is still examined, because it may contain a reason to
    /// refuse the path.
    #[inline(always)]
    fn is_complete(&self) -> bool {
        self.is_ambiguous && self.followed.open == 0
    }

    #[inline(always)]
    fn restart_part(&mut self) {
        self.length = self.part;
        self.in_parameters = false;
    }

    /// The delimiter that the tokens end with; 0 if they end with something else.
    #[inline(always)]
    fn last(&self) -> u8 {
        if self.part == self.length && self.length > 0 { self.tokens[self.length - 1] } else { 0 }
    }

    fn begin_part(&mut self, token: u8) {
        self.push(token);
        self.part = self.length;
        self.in_parameters = false;
    }

    #[inline(always)]
    fn push_semicolon(&mut self, token: u8, kind: u8) {
        self.end_name();
        self.in_parameters = true;
        self.kinds |= kind;
        self.follow();
        if self.is_complete() {
            return;
        }
        let is_first = self.followed.semicolons & kind == 0;
        if is_first {
            self.followed.add_semicolon(kind, self.length);
        }
        if is_first || self.length < self.length_max() {
            self.push(token);
        }
    }

    /// Handles `byte`, which was percent-encoded.
    #[inline(always)]
    fn push_encoded(&mut self, byte: u8) -> Result<(), &'static str> {
        match byte {
            0 => return Err(ENCODED_NUL),
            b'/' => self.push_lenient_slash(ENCODED_SLASH, SLASHES),
            b'\\' => self.push_lenient_slash(ENCODED_BACKSLASH, BACKSLASHES),
            b';' => self.push_semicolon(ENCODED_SEMICOLON, ENCODED_SEMICOLONS),
            _ if decodes_to_itself(byte) => {
                self.write_text([byte].into_iter());
            }
            _ => {
                self.write_text(percent_encoded(byte).into_iter());
            }
        }
        Ok(())
    }

    fn push(&mut self, token: u8) {
        if let Some(place) = self.tokens.get_mut(self.length) {
            *place = token;
            self.length += 1;
        }
    }

    #[inline(always)]
    fn end_name(&mut self) {
        if !self.in_parameters
            && matches!(self.tokens.get(self.part..self.length), Some(b"." | b".."))
        {
            self.kinds |= DOTS;
        }
    }

    /// Marks the path as ambiguous from the current part on.
    #[inline(always)]
    fn follow(&mut self) {
        if !self.is_ambiguous {
            self.is_ambiguous = true;
            let start = self.part.saturating_sub(1);
            self.followed = Followed::new(start, self.slashes, self.run, self.last() != 0);
        }
    }
}

/// How `write_tokens` treats a byte of a path.
#[derive(Clone, Copy)]
enum Class {
    Text,
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
    classes[b'/' as usize] = Class::Slash;
    classes[b'\\' as usize] = Class::Backslash;
    classes[b';' as usize] = Class::Semicolon;
    classes[b'%' as usize] = Class::Percent;
    classes
};

/// The length of the segments at the start of `path` that consist of parameters of a plain semicolon, without
/// encodings, each with the slash after it.
fn parameters_length(path: &[u8]) -> usize {
    let mut end = 0;
    while let [b';', parameters @ ..] = path.get(end..).unwrap_or_default() {
        let is_part =
            |byte: u8| matches!(CLASSES[usize::from(byte)], Class::Text | Class::Semicolon);
        match parameters.iter().position(|&byte| !is_part(byte)) {
            Some(length) if parameters.get(length) == Some(&b'/') => end += length + 2,
            _ => break,
        }
    }
    end
}

/// Copies the first `length` bytes, and perhaps some after them, which is faster for a few bytes.
#[inline(always)]
fn copy_start(from: &[u8], to: &mut [u8], length: usize) {
    const FEW: usize = 16;
    match (from.first_chunk::<FEW>(), to.first_chunk_mut::<FEW>()) {
        (Some(from), Some(to)) if length <= FEW => *to = *from,
        _ => {
            if let (Some(from), Some(to)) = (from.get(..length), to.get_mut(..length)) {
                to.copy_from_slice(from);
            }
        }
    }
}

/// Writes the `canonical` path with its dot segments resolved to `out`, which must have one byte more, and
/// returns its length; `None` if a ".." climbs above the root.
fn resolve_dots(canonical: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut rest = canonical.strip_prefix(b"/").unwrap_or(canonical);
    let mut length = 0;
    loop {
        let (dots, ends) = match rest {
            [b'.', b'.', b'/', ..] => (2, false),
            b".." => (2, true),
            [b'.', b'/', ..] => (1, false),
            b"." => (1, true),
            _ => (0, false),
        };
        if dots == 2 {
            length = out.get(..length)?.iter().rposition(|&byte| byte == b'/')?;
        }
        if dots > 0 {
            if ends {
                *out.get_mut(length)? = b'/';
                return Some(length + 1);
            }
            rest = rest.get(dots + 1..)?;
            continue;
        }
        *out.get_mut(length)? = b'/';
        // Whole segments: up to one that begins with a dot, or at least this one.
        let mut copied = plain_length(rest, b'/');
        if !rest.get(..copied)?.ends_with(b"/") {
            let left = rest.get(copied..)?;
            copied += memchr::memchr(b'/', left).unwrap_or(left.len());
        }
        copy_start(rest, out.get_mut(length + 1..)?, copied);
        length += 1 + copied;
        let after = rest.get(copied..)?;
        rest = match after {
            [] => return Some(length),
            [b'/', after @ ..] => after,
            _ => {
                length -= 1;
                after
            }
        };
    }
}

/// A way in which servers read an ambiguous path.
struct Reading {
    /// Reads `%2F`, `%5C` and a backslash as a slash, and `%3B` as a semicolon.
    decodes: bool,
    /// Which parameters it strips, and when.
    cuts: Cuts,
    /// Merges slashes, after all other steps. Merging them first would leave empty segments, which useful patterns do
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

/// The role of a token in one reading.
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

    /// Writes the reading of `tokens` to `out`, which must have three bytes for each byte of the path, and returns its
    /// length. Segments are cut after `reach`, and so is the path.
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
                    // A branch instead of a sum, so that the processor can speculate over thousands of empty parameters.
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
#[inline(always)]
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

/// The readings of an ambiguous path without dot segments, in the form of patterns.
#[derive(Debug)]
pub struct Readings<'s> {
    /// The tokens of the path.
    tokens: &'s [u8],
    /// Space for a reading.
    out: &'s mut [u8],
    /// What the path contains.
    kinds: u8,
    /// How much of a reading is written.
    reach: Reach,
    /// The readings that `next` has not returned yet.
    left: ReadingSet,
}

impl Readings<'_> {
    /// The next reading: first the canonical path unchanged, then each other reading that may differ from it.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its items")]
    pub fn next(&mut self) -> Option<&str> {
        let index = self.left.trailing_zeros() as usize;
        let (reading, roles) = (READINGS.get(index)?, ROLES.get(index)?);
        self.left &= self.left - 1;
        let length = reading.write(self.tokens, self.kinds, roles, self.reach, self.out);
        // All bytes are ASCII: text tokens are, and the tokens of encoded delimiters are written as ASCII.
        Some(core::str::from_utf8(&self.out[..length]).unwrap_or_default())
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

/// The canonical form of a configured pattern, or of a part of one.
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

/// The length of the start of `path` that is certainly in its canonical form and that all servers read in the same
/// way. `before` is the byte before `path`. In this start, nothing is encoded, and there is no backslash, no parameter, and no
/// segment that is empty or begins with a dot.
#[inline(never)]
fn plain_length(path: &[u8], mut before: u8) -> usize {
    for (at, &byte) in path.iter().enumerate() {
        let starts_segment = before == b'/';
        if matches!(byte, b'%' | b'\\' | b';') || (matches!(byte, b'.' | b'/') && starts_segment) {
            return at;
        }
        before = byte;
    }
    path.len()
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

/// Appends the canonical form of a pattern: decodes encoded characters that are not delimiters.
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

/// Whether the canonical form of an encoded `byte` is the byte itself.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn token_count(path: &str) -> usize {
        let mut tokens = vec![0; 3 * path.len()];
        let written = write_tokens(path.as_bytes(), 9, &mut tokens);
        written.map(|written| written.length).unwrap_or_default()
    }

    #[test]
    fn number_of_tokens_does_not_grow_with_an_ambiguous_path() {
        const PIECES: [&str; 5] = ["/", "%2F", ";", "%3B", "a"];
        for number in 0..PIECES.len().pow(4) {
            let digits = [1, 5, 25, 125].map(|place| number / place % PIECES.len());
            for pieces in 1..=digits.len() {
                let unit: String = digits[..pieces].iter().map(|digit| PIECES[*digit]).collect();
                let [few, many] =
                    [60, 120].map(|count| token_count(&format!("//{}", unit.repeat(count))));
                // The last part is written before it is known to be unneeded.
                assert!(many <= few + 3 * unit.len(), "{unit}: {few}, then {many}");
            }
        }
    }
}
