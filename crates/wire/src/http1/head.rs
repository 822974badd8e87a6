//! The incremental decoder for heads, shared by both roles.
//! In: the bytes of a message from its first on; each call gets all of them. Out: a head and its length.
//! Never: parses a whole head more than twice, however the input is split. Never allocates, except for
//! heads with a minor version above 1.
//! Limits: `HeadLimits`, `ResponseLimits`.
//! Invariant: only the scanner names a syntax fault. A head that the tokenizer does not accept is passed to the scanner.

use super::request::validate_request;
use super::response::validate_response;
use super::scan::{
    RequestLine, Role, Rules, Scanner, StatusLine, is_status, start_of, without_line_end,
};
use crate::message::field::FieldTable;
use crate::message::{
    Fault, FaultKind, FieldName, FieldStorage, RequestHead, RequestKind, ResponseHead,
    ResponseStorage, TargetForm, Version,
};
use core::mem::MaybeUninit;
use httparse::{EMPTY_HEADER, Header, ParserConfig, Status};
use memchr::memchr;
use tidegate_base::limits::{
    EMPTY_LINES_MAX, HEAD_BYTES_MAX, HEADER_FIELDS_MAX, REQUEST_LINE_BYTES_MAX, RESPONSE_FIELDS_MAX,
};

/// The limits on the size of a request head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadLimits {
    /// Bytes of a request line without its CRLF; a longer line gets 414.
    pub request_line_bytes_max: usize,
    /// Bytes of a head including its empty line; a larger head gets 431. Callers never need to buffer
    /// more bytes than this for an incomplete head.
    pub head_bytes_max: usize,
    /// Header fields; more fields get 431. A value above `HEADER_FIELDS_MAX` has no effect.
    pub header_fields_max: usize,
}

impl HeadLimits {
    #[inline]
    pub(super) fn rules(&self) -> Rules {
        Rules {
            role: Role::Request,
            line_bytes_max: self.request_line_bytes_max,
            head_bytes_max: self.head_bytes_max,
            fields_max: self.header_fields_max.min(HEADER_FIELDS_MAX),
            empty_lines_max: EMPTY_LINES_MAX,
            is_lenient: false,
        }
    }
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            request_line_bytes_max: REQUEST_LINE_BYTES_MAX,
            head_bytes_max: HEAD_BYTES_MAX,
            header_fields_max: HEADER_FIELDS_MAX,
        }
    }
}

/// The limits on a response head, and how strictly it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseLimits {
    /// Bytes of a head including its empty line.
    pub head_bytes_max: usize,
    /// Header fields. A value above `RESPONSE_FIELDS_MAX` has no effect.
    pub header_fields_max: usize,
    /// Whether a response that deviates from the grammar is rejected even if it has only one reading. Without
    /// this, a head may have empty lines before it (up to `EMPTY_LINES_MAX`), lines that end with LF alone,
    /// a status from 600 to 999, and the same Content-Length more than once. Whatever could be read as two
    /// lengths is always rejected, and so are CR alone, control characters and folded lines.
    pub is_strict: bool,
}

impl ResponseLimits {
    #[inline]
    fn rules(&self) -> Rules {
        Rules {
            role: Role::Response,
            line_bytes_max: usize::MAX,
            head_bytes_max: self.head_bytes_max,
            fields_max: self.header_fields_max.min(RESPONSE_FIELDS_MAX),
            empty_lines_max: if self.is_strict { 0 } else { EMPTY_LINES_MAX },
            is_lenient: !self.is_strict,
        }
    }
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            head_bytes_max: HEAD_BYTES_MAX,
            header_fields_max: RESPONSE_FIELDS_MAX,
            is_strict: false,
        }
    }
}

/// Decodes heads one after the other. Remembers how far an incomplete head has been scanned.
#[derive(Clone, Copy, Default, Debug)]
pub struct HeadDecoder {
    /// The progress on an incomplete head; reset after each complete head.
    scanner: Scanner,
}

const _: () = assert!(size_of::<HeadDecoder>() <= 8);

impl HeadDecoder {
    /// Decodes a request head from `input`, which must begin with the first byte of the message and
    /// contain all bytes received since. Returns `None` until the head is complete, then the head and
    /// its length in bytes. The decoder is then ready for the next message.
    ///
    /// # Errors
    /// The first fault found. Neither the decoder nor the connection may be used after it.
    #[inline]
    pub fn decode_request<'a, 'b: 'a>(
        &mut self,
        input: &'b [u8],
        limits: &HeadLimits,
        storage: &'a mut FieldStorage<'b>,
    ) -> Result<Option<(RequestHead<'a>, usize)>, Fault> {
        let FieldStorage { headers, ids, rare } = storage;
        let rules = limits.rules();
        let Some(candidate) = self.prepare(input, &rules)? else {
            return Ok(None);
        };
        let tokens = match Tokens::<RequestLine<'_>>::split(candidate.bytes, &rules, headers) {
            Some(tokens) => tokens,
            None => match self.finish(candidate, &rules)? {
                Some(head) => Tokens::split_rare(head, &rules, rare, RequestLine::parse)?,
                None => return Ok(None),
            },
        };
        let Tokens { line, headers, length } = tokens;
        let fields = FieldTable::new(headers, ids);
        let version = Version::from_minor(line.minor);
        let minor = line.minor;
        let head = validate_request(line.method, line.target, version, fields)?;
        self.scanner.restart();
        let is_plain = head.form == TargetForm::Origin && minor <= 1;
        if !is_plain || input.first() == Some(&b'\r') {
            self.scanner.count_glitches(glitches_of(input, &rules, minor, &head));
        }
        Ok(Some((head, length)))
    }

    /// Decodes a response head from `input`, like [`Self::decode_request`]. `request` is the kind of
    /// the request that the response belongs to.
    ///
    /// # Errors
    /// The first fault found. Neither the decoder nor the connection may be used after it.
    #[inline]
    pub fn decode_response<'a, 'b: 'a>(
        &mut self,
        input: &'b [u8],
        limits: &ResponseLimits,
        request: RequestKind,
        storage: &'a mut ResponseStorage<'b>,
    ) -> Result<Option<(ResponseHead<'a>, usize)>, Fault> {
        let FieldStorage { headers, ids, rare } = storage;
        let rules = limits.rules();
        let Some(candidate) = self.prepare(input, &rules)? else {
            return Ok(None);
        };
        let tokens = match Tokens::<StatusLine<'_>>::split(candidate.bytes, &rules, headers) {
            Some(tokens) => tokens,
            None => match self.finish(candidate, &rules)? {
                Some(head) => {
                    let parse_line = |line| StatusLine::parse(line, &rules);
                    Tokens::split_rare(head, &rules, rare, parse_line)?
                }
                None => return Ok(None),
            },
        };
        let Tokens { line, headers, length } = tokens;
        let fields = FieldTable::new(headers, ids);
        let version = Version::from_minor(line.minor);
        let head = validate_response(version, &line, fields, request, rules.is_lenient)?;
        self.scanner.restart();
        Ok(Some((head, length)))
    }

    /// How many harmless violations the requests of the connection have had: empty lines before a head, a minor
    /// version that does not exist, a target that names another host than the Host field. Each of them is accepted,
    /// because it has one reading; many of them show a faulty or hostile client.
    #[must_use]
    #[inline]
    pub const fn glitches(&self) -> u16 {
        self.scanner.glitches()
    }

    /// Whether part of an incomplete head has been scanned.
    #[must_use]
    pub const fn has_started(&self) -> bool {
        self.scanner.has_started()
    }

    /// Prepares bytes for the tokenizer. A head that arrives in parts is scanned to its end first, so
    /// that it is tokenized only once.
    #[inline]
    fn prepare<'b>(
        &mut self,
        input: &'b [u8],
        rules: &Rules,
    ) -> Result<Option<Candidate<'b>>, Fault> {
        if !self.has_started() {
            return Ok(Some(Candidate { bytes: input, is_scanned: false }));
        }
        Ok(self
            .finish(Candidate { bytes: input, is_scanned: false }, rules)?
            .map(|bytes| Candidate { bytes, is_scanned: true }))
    }

    /// Called if the tokenizer did not accept a head: finds out whether the head is incomplete or
    /// invalid. Returns a head that is neither, for `split_rare`.
    #[cold]
    fn finish<'b>(
        &mut self,
        candidate: Candidate<'b>,
        rules: &Rules,
    ) -> Result<Option<&'b [u8]>, Fault> {
        if candidate.is_scanned {
            return Ok(Some(candidate.bytes));
        }
        let end = self.scanner.scan(candidate.bytes, rules)?;
        Ok(end.and_then(|end| candidate.bytes.get(..end)))
    }
}

/// The harmless violations of a request head.
#[cold]
fn glitches_of(input: &[u8], rules: &Rules, minor: u8, head: &RequestHead<'_>) -> u16 {
    let empty_lines = start_of(input, rules) / 2;
    // Requests of HTTP/1.0 need no Host field (RFC 9112 section 3.2).
    let stated = head.find(FieldName::Host).map(without_default_port);
    let is_overridden = head.form == TargetForm::Absolute
        && head.host.zip(stated).is_some_and(|(own, stated)| {
            !without_default_port(own.as_bytes()).eq_ignore_ascii_case(stated)
        });
    empty_lines as u16 + u16::from(minor > 1) + u16::from(is_overridden)
}

/// A host without the port of http.
fn without_default_port(host: &[u8]) -> &[u8] {
    host.strip_suffix(b":80").unwrap_or(host)
}

/// Bytes to tokenize.
#[derive(Clone, Copy)]
struct Candidate<'b> {
    bytes: &'b [u8],
    /// The scanner has accepted `bytes`: they are exactly one complete head without syntax fault.
    is_scanned: bool,
}

/// The tokens of a head; `Line` is its start line.
struct Tokens<'a, Line> {
    line: Line,
    headers: &'a [Header<'a>],
    /// The length of the head in bytes.
    length: usize,
}

impl<'a> Tokens<'a, RequestLine<'a>> {
    /// Splits a head with the tokenizer. `None` if the head is incomplete or must be checked by the
    /// scanner.
    #[inline]
    fn split<'b: 'a>(
        input: &'b [u8],
        rules: &Rules,
        headers: &'a mut [MaybeUninit<Header<'b>>],
    ) -> Option<Self> {
        let headers = headers.get_mut(..rules.fields_max)?;
        let mut request = httparse::Request::new(&mut []);
        let parsed =
            ParserConfig::default().parse_request_with_uninit_headers(&mut request, input, headers);
        let Ok(Status::Complete(length)) = parsed else {
            return None;
        };
        let (method, target, minor) = (request.method?, request.path?, request.version?);
        let start = offset_of(input, method.as_bytes());
        let line_end = check_line_ends(input, length, request.headers)?;
        let is_accepted = start == start_of(input, rules)
            && length <= rules.head_bytes_max
            && line_end.wrapping_sub(start) <= rules.line_bytes_max
            && target.is_ascii();
        let line = RequestLine { method, target, minor };
        is_accepted.then_some(Self { line, headers: request.headers, length })
    }
}

impl<'a> Tokens<'a, StatusLine<'a>> {
    /// Splits a head with the tokenizer. `None` if the head is incomplete or must be checked by the
    /// scanner.
    #[inline]
    fn split<'b: 'a>(
        input: &'b [u8],
        rules: &Rules,
        headers: &'a mut [MaybeUninit<Header<'b>>],
    ) -> Option<Self> {
        let headers = headers.get_mut(..rules.fields_max)?;
        let mut response = httparse::Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            input,
            headers,
        );
        let Ok(Status::Complete(length)) = parsed else {
            return None;
        };
        let (minor, status) = (response.version?, response.code?);
        if !rules.is_lenient {
            check_line_ends(input, length, response.headers)?;
        }
        let is_accepted = input.get(start_of(input, rules)) == Some(&b'H')
            && length <= rules.head_bytes_max
            && is_status(status, rules);
        let line = StatusLine { minor, status, reason: response.reason.unwrap_or("") };
        is_accepted.then_some(Self { line, headers: response.headers, length })
    }
}

impl<'a, Line> Tokens<'a, Line> {
    /// Splits a head that the scanner has accepted but the tokenizer does not support.
    #[cold]
    fn split_rare<'b: 'a>(
        head: &'b [u8],
        rules: &Rules,
        rare: &'a mut Vec<Header<'b>>,
        parse_line: impl FnOnce(&'b [u8]) -> Result<Line, FaultKind>,
    ) -> Result<Self, FaultKind> {
        let (line, fields) = split_start_line(head, rules);
        let line = parse_line(line)?;
        let headers = split_rare_fields(fields, rules, rare)?;
        Ok(Self { line, headers, length: head.len() })
    }
}

/// Checks that every line ends with CRLF, since the tokenizer also accepts a bare LF. Returns the offset
/// of the start line's CRLF. Each field name follows a line end, so checking two bytes for each field is
/// enough.
#[inline]
fn check_line_ends(input: &[u8], length: usize, headers: &[Header<'_>]) -> Option<usize> {
    let mut line_end = length.checked_sub(4)?;
    if input.get(line_end..length)? != b"\r\n\r\n" {
        return None;
    }
    for header in headers.iter().rev() {
        let name = offset_of(input, header.name.as_bytes());
        line_end = name.checked_sub(2)?;
        if input.get(line_end..name)? != b"\r\n" {
            return None;
        }
    }
    Some(line_end)
}

/// The offset in `input` of `part`, which must be a part of it.
#[inline]
fn offset_of(input: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).wrapping_sub(input.as_ptr() as usize)
}

/// The start line without its line end, and the rest of the head.
fn split_start_line<'b>(head: &'b [u8], rules: &Rules) -> (&'b [u8], &'b [u8]) {
    let head = head.get(start_of(head, rules)..).unwrap_or_default();
    let end = memchr(b'\n', head).map_or(head.len(), |at| at + 1);
    let (line, rest) = head.split_at_checked(end).unwrap_or((head, b""));
    (without_line_end(line), rest)
}

/// Parses the fields of a head whose start line the tokenizer does not support.
fn split_rare_fields<'a, 'b: 'a>(
    fields: &'b [u8],
    rules: &Rules,
    rare: &'a mut Vec<Header<'b>>,
) -> Result<&'a [Header<'a>], FaultKind> {
    rare.resize(rules.fields_max, EMPTY_HEADER);
    match httparse::parse_headers(fields, rare) {
        Ok(Status::Complete((_, headers))) => Ok(headers),
        Ok(Status::Partial) | Err(_) => Err(FaultKind::FieldNameInvalid),
    }
}
