//! The strict scanner for heads: finds the end of a head and names syntax faults.
//! In: the received part of a head. Out: the end of the head, or the first fault in byte order.
//! Never: reads a byte twice, over all calls, except to parse each line once it is complete.
//! Limits: `Rules`; a head is rejected at the byte that exceeds a limit.
//! Invariant: the tokenizer's fast path accepts a head exactly if the scanner accepts it.

use crate::message::FaultKind;
use crate::message::syntax::{is_text, is_token, is_token_char, trim_ows};
use core::str::from_utf8;
use memchr::memrchr;
use tidegate_base::limits::RESPONSE_FIELDS_MAX;

/// The kind of message, which determines the start line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Request,
    Response,
}

/// The rules and limits for one head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The kind of message.
    pub(super) role: Role,
    /// Bytes of a start line without its line end; a longer line gets 414.
    pub(super) line_bytes_max: usize,
    /// Bytes of a head including its empty line.
    pub(super) head_bytes_max: usize,
    /// Header fields; at most as many as the storage holds.
    pub(super) fields_max: usize,
    /// Empty lines before the start line.
    pub(super) empty_lines_max: usize,
    /// Whether a line may end with LF alone and a status may be above 599. Both have only one reading: RFC
    /// 9112 section 2.2 lets a recipient take LF for a line end, and RFC 9110 section 15 defines how to
    /// treat an unknown class. Only for responses.
    pub(super) is_lenient: bool,
}

/// The progress of scanning a head.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Scanner {
    /// Bytes scanned so far; at most `HeadLimits::head_bytes_max`.
    scanned: u32,
    /// Complete lines so far, including the start line, excluding empty lines before it.
    lines: u16,
    /// Harmless violations of the heads of the connection so far.
    glitches: u16,
}

impl Scanner {
    pub(super) const fn has_started(&self) -> bool {
        self.scanned > 0
    }

    /// Prepares for the next head of the connection.
    pub(super) const fn restart(&mut self) {
        (self.scanned, self.lines) = (0, 0);
    }

    /// Harmless violations so far.
    pub(super) const fn glitches(&self) -> u16 {
        self.glitches
    }

    /// Counts harmless violations.
    pub(super) const fn count_glitches(&mut self, count: u16) {
        self.glitches = self.glitches.saturating_add(count);
    }

    /// Scans the new part of `input`. Returns the length of the head once its empty line has been
    /// received.
    pub(super) fn scan(&mut self, input: &[u8], rules: &Rules) -> Result<Option<usize>, FaultKind> {
        let head_bytes_max = rules.head_bytes_max.min(u32::MAX as usize);
        let line_start = start_of(input, rules);
        let mut at = self.scanned as usize;
        let mut previous = at.checked_sub(1).and_then(|before| input.get(before)).copied();
        while at < head_bytes_max
            && let Some(&byte) = input.get(at)
        {
            if previous == Some(b'\r') && byte != b'\n' {
                return Err(FaultKind::BareCr);
            }
            match byte {
                b'\n' if previous != Some(b'\r') && !rules.is_lenient => {
                    return Err(FaultKind::BareLf);
                }
                b'\n' => {
                    let seen = input.get(..=at).unwrap_or_default();
                    if self.handle_line(seen, rules)? {
                        return Ok(Some(at + 1));
                    }
                }
                b'\r' => {}
                _ if !is_text(byte) => return Err(FaultKind::ControlByte),
                _ if self.lines == 0 && at.saturating_sub(line_start) >= rules.line_bytes_max => {
                    return Err(FaultKind::RequestLineTooLong);
                }
                _ => {}
            }
            previous = Some(byte);
            at += 1;
        }
        self.scanned = at as u32;
        if at >= head_bytes_max { Err(FaultKind::HeadTooLarge) } else { Ok(None) }
    }

    /// Checks the last line of `seen`, which is the input up to the LF of that line. Returns true if the
    /// line ends the head.
    fn handle_line(&mut self, seen: &[u8], rules: &Rules) -> Result<bool, FaultKind> {
        let line = without_line_end(seen);
        let start = memrchr(b'\n', line).map_or(0, |at| at + 1);
        let line = line.get(start..).unwrap_or_default();
        match (self.lines, line) {
            (0, []) if start_of(seen, rules) == seen.len() => return Ok(false),
            (0, []) => return Err(FaultKind::EmptyLine),
            (0, _) if rules.role == Role::Request => {
                RequestLine::parse(line)?;
            }
            (0, _) => {
                StatusLine::parse(line, rules)?;
            }
            (_, []) => return Ok(true),
            (lines, _) => {
                split_field_line(line)?;
                if usize::from(lines) > rules.fields_max {
                    return Err(FaultKind::TooManyFields);
                }
            }
        }
        self.lines += 1;
        Ok(false)
    }
}

const _: () = assert!(RESPONSE_FIELDS_MAX < u16::MAX as usize, "lines are counted in 16 bits");

/// The offset of the start line, after the empty lines that may precede it.
#[inline]
pub(super) fn start_of(input: &[u8], rules: &Rules) -> usize {
    let mut start = 0;
    for _ in 0..rules.empty_lines_max {
        start += match input.get(start..) {
            Some([b'\r', b'\n', ..]) => 2,
            Some([b'\n', ..]) if rules.is_lenient => 1,
            _ => break,
        };
    }
    start
}

/// `line` without the LF or CRLF at its end.
pub(super) fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The three parts of a request line (RFC 9112 section 3).
pub(super) struct RequestLine<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    /// The minor version.
    pub(super) minor: u8,
}

impl<'a> RequestLine<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, FaultKind> {
        let mut words = line.split(|&byte| byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(FaultKind::RequestLineMalformed);
        };
        if method.is_empty() || target.is_empty() || version.is_empty() {
            return Err(FaultKind::RequestLineMalformed);
        }
        if !is_token(method) {
            return Err(FaultKind::MethodInvalid);
        }
        if !target.iter().all(u8::is_ascii_graphic) {
            return Err(FaultKind::TargetInvalid);
        }
        let minor = parse_version(version)?;
        Ok(Self {
            method: from_utf8(method).map_err(|_| FaultKind::MethodInvalid)?,
            target: from_utf8(target).map_err(|_| FaultKind::TargetInvalid)?,
            minor,
        })
    }
}

/// The three parts of a status line (RFC 9112 section 4).
pub(super) struct StatusLine<'a> {
    /// The minor version.
    pub(super) minor: u8,
    pub(super) status: u16,
    /// The reason phrase; empty if it is not ASCII.
    pub(super) reason: &'a str,
}

impl<'a> StatusLine<'a> {
    /// Parses a status line. The space before an empty reason phrase is optional: many servers omit
    /// it, and the line stays unambiguous. A reason phrase that is not ASCII is dropped.
    pub(super) fn parse(line: &'a [u8], rules: &Rules) -> Result<Self, FaultKind> {
        let Some((version, rest)) = line.split_at_checked(8) else {
            return Err(FaultKind::StatusLineMalformed);
        };
        let minor = parse_version(version)?;
        let (digits, reason) = match rest {
            [b' ', a, b, c] => ([*a, *b, *c], &b""[..]),
            [b' ', a, b, c, b' ', reason @ ..] => ([*a, *b, *c], reason),
            _ => return Err(FaultKind::StatusLineMalformed),
        };
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(FaultKind::StatusInvalid);
        }
        let status = digits.iter().fold(0, |sum, &digit| sum * 10 + u16::from(digit - b'0'));
        if !is_status(status, rules) {
            return Err(FaultKind::StatusInvalid);
        }
        let reason = if reason.is_ascii() { from_utf8(reason).unwrap_or("") } else { "" };
        Ok(Self { minor, status, reason })
    }
}

/// Whether a status is in one of the five classes (RFC 9110 section 15), or in none above them if `rules` are
/// lenient.
#[inline]
pub(super) const fn is_status(status: u16, rules: &Rules) -> bool {
    matches!(status, 100..=599) || (rules.is_lenient && matches!(status, 600..=999))
}

/// The minor version of `HTTP/1.x` (RFC 9112 section 2.3).
fn parse_version(version: &[u8]) -> Result<u8, FaultKind> {
    match version {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9'] => Ok(minor - b'0'),
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            Err(FaultKind::VersionUnsupported)
        }
        _ => Err(FaultKind::VersionInvalid),
    }
}

/// Splits a field line into name and value, without the whitespace around the value (RFC 9112
/// section 5). The caller has already rejected control characters.
pub(super) fn split_field_line(line: &[u8]) -> Result<(&[u8], &[u8]), FaultKind> {
    let end = line.iter().position(|&byte| !is_token_char(byte)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    match (name, rest) {
        ([], [b' ' | b'\t', ..]) => Err(FaultKind::ObsFold),
        ([], [b':', ..]) => Err(FaultKind::FieldNameEmpty),
        (_, [b':', value @ ..]) => Ok((name, trim_ows(value))),
        (_, [b' ' | b'\t', ..]) if trim_ows(rest).starts_with(b":") => {
            Err(FaultKind::SpaceBeforeColon)
        }
        _ => Err(FaultKind::FieldNameInvalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::HeadLimits;

    #[test]
    fn each_byte_is_scanned_once() {
        let head = b"\r\nGET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
        let rules = HeadLimits::default().rules();
        let mut scanner = Scanner::default();
        for end in 0..head.len() {
            let found = scanner.scan(&head[..end], &rules);
            assert_eq!(found, Ok(None));
            assert_eq!(scanner.scanned as usize, end, "all received bytes must have been scanned");
        }
        assert_eq!(scanner.scan(head, &rules), Ok(Some(head.len())));
        assert_eq!(scanner.lines, 3);
    }

    #[test]
    fn field_lines_are_split_into_name_and_value() {
        for (line, wanted) in [
            ("a: b", Ok(("a", "b"))),
            ("a:b \t", Ok(("a", "b"))),
            ("a:", Ok(("a", ""))),
            ("a: b: c", Ok(("a", "b: c"))),
            ("a : b", Err(FaultKind::SpaceBeforeColon)),
            ("a b: c", Err(FaultKind::FieldNameInvalid)),
            ("a", Err(FaultKind::FieldNameInvalid)),
            (": b", Err(FaultKind::FieldNameEmpty)),
            (" a: b", Err(FaultKind::ObsFold)),
            ("a(b): c", Err(FaultKind::FieldNameInvalid)),
        ] {
            let wanted = wanted.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            assert_eq!(split_field_line(line.as_bytes()), wanted, "{line}");
        }
    }
}
