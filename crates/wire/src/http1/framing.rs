//! The only place that decides how long a body is and whether the connection persists.
//! In: the classified fields of a head, its version, the kind of the request. Out: `BodyLength`, persistence.
//! Source: RFC 9112 sections 6.1 to 6.3 and 9.3. If they leave a choice, the message is rejected.
//! Never: ignores one of two different statements about a length. A message with both Content-Length and
//! Transfer-Encoding is a fault, although RFC 9112 section 6.1 would let the latter take precedence.

use super::fault::FaultKind;
use super::field::{FieldName, FieldTable};
use super::method::{Method, Version};
use crate::field::{is_token_char, trim_ows};

/// How the end of a body is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// No body: the message ends with its head.
    None,
    /// Exactly this many bytes.
    Length(u64),
    /// Chunks, ended by a chunk of size 0 and a trailer section.
    Chunked,
    /// All bytes until the connection closes; responses only.
    UntilClose,
}

/// The facts about a request that decoding its response depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestKind {
    /// The method was HEAD.
    pub is_head: bool,
    /// The method was CONNECT.
    pub is_connect: bool,
    /// The request asked for an upgrade, so that a 101 is a valid response.
    pub upgrade_asked: bool,
}

impl RequestKind {
    /// The kind of a request with this method.
    #[must_use]
    pub const fn new(method: &Method<'_>, upgrade_asked: bool) -> Self {
        Self {
            is_head: matches!(method, Method::Head),
            is_connect: matches!(method, Method::Connect),
            upgrade_asked,
        }
    }
}

/// Lengths above this are rejected: many implementations store a length as a signed 64-bit number.
pub(super) const LENGTH_MAX: u64 = i64::MAX as u64;

/// The length of a request's body (RFC 9112 section 6.3).
#[inline]
pub(super) fn request_length(
    fields: &FieldTable<'_>,
    version: Version,
) -> Result<BodyLength, FaultKind> {
    // A server that reads "_" as "-" would see a different length than Tidegate.
    if fields.has(FieldName::FramingLookalike) {
        return Err(FaultKind::FramingFieldMisspelled);
    }
    if fields.has(FieldName::TransferEncoding) {
        check_transfer_encoding(fields, version)?;
        return Ok(BodyLength::Chunked);
    }
    Ok(content_length(fields, false)?.map_or(BodyLength::None, BodyLength::Length))
}

/// What the fields of a response state about its body, whether or not it has one.
#[inline]
pub(super) fn stated_length(
    fields: &FieldTable<'_>,
    version: Version,
    is_lenient: bool,
) -> Result<BodyLength, FaultKind> {
    if fields.has(FieldName::TransferEncoding) {
        check_transfer_encoding(fields, version)?;
        return Ok(BodyLength::Chunked);
    }
    let length = content_length(fields, is_lenient)?;
    Ok(length.map_or(BodyLength::UntilClose, BodyLength::Length))
}

/// The length of a response's body, and whether the connection can be reused after it: false if the
/// body ends with the connection, or if a response that cannot have a body states a length
/// (RFC 9112 section 6.3). `stated` is what its fields state.
#[inline]
pub(super) fn response_length(
    stated: BodyLength,
    status: u16,
    request: RequestKind,
) -> (BodyLength, bool) {
    if matches!(status, 100..=199 | 204) || (request.is_connect && matches!(status, 200..=299)) {
        // RFC 9112 section 6.1 forbids a length here; a server that states one may also send a body.
        let fits = matches!(stated, BodyLength::UntilClose | BodyLength::Length(0));
        return (BodyLength::None, fits);
    }
    if request.is_head || status == 304 {
        return (BodyLength::None, true);
    }
    (stated, stated != BodyLength::UntilClose)
}

/// The options in the Connection fields that Tidegate acts on (RFC 9110 section 7.6.1).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ConnectionOptions {
    /// `close` is listed.
    pub(super) close: bool,
    /// `keep-alive` is listed.
    pub(super) keep_alive: bool,
    /// `upgrade` is listed.
    pub(super) upgrade: bool,
}

impl ConnectionOptions {
    #[inline]
    pub(super) fn new(fields: &FieldTable<'_>) -> Self {
        let mut options = Self::default();
        for option in fields.elements(FieldName::Connection) {
            options.close |= option.eq_ignore_ascii_case(b"close");
            options.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            options.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
        options
    }

    /// Whether the connection persists after this message (RFC 9112 section 9.3).
    #[inline]
    pub(super) const fn is_persistent(self, version: Version) -> bool {
        !self.close && (self.keep_alive || matches!(version, Version::Http11))
    }
}

/// Accepts only a single `chunked`.
#[cold]
fn check_transfer_encoding(fields: &FieldTable<'_>, version: Version) -> Result<(), FaultKind> {
    if fields.has(FieldName::ContentLength) {
        return Err(FaultKind::ContentLengthWithTransferEncoding);
    }
    if version == Version::Http10 {
        return Err(FaultKind::TransferEncodingOnHttp10);
    }
    let (mut others, mut chunked) = (false, false);
    for element in fields.elements(FieldName::TransferEncoding) {
        let (coding, parameters) = match element.iter().position(|&byte| byte == b';') {
            Some(at) => element.split_at(at),
            None => (element, &b""[..]),
        };
        let coding = trim_ows(coding);
        if coding.is_empty() || !coding.iter().all(|&byte| is_token_char(byte)) {
            return Err(FaultKind::TransferEncodingInvalid);
        }
        let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
        // Chunked has no parameters (RFC 9112 section 7.1) and is applied once (section 6.1).
        if is_chunked && (chunked || !parameters.is_empty()) {
            return Err(FaultKind::TransferEncodingInvalid);
        }
        if chunked {
            return Err(FaultKind::TransferEncodingNotChunked);
        }
        chunked = is_chunked;
        others |= !is_chunked;
    }
    match (chunked, others) {
        (true, false) => Ok(()),
        (true, true) => Err(FaultKind::TransferEncodingUnsupported),
        (false, _) => Err(FaultKind::TransferEncodingNotChunked),
    }
}

/// The value of Content-Length. `is_lenient` accepts it more than once if the values are identical, as RFC
/// 9112 section 6.3 allows.
#[inline]
pub(crate) fn content_length(
    fields: &FieldTable<'_>,
    is_lenient: bool,
) -> Result<Option<u64>, FaultKind> {
    let Some(value) = fields.find(FieldName::ContentLength) else {
        return Ok(None);
    };
    if fields.is_repeated(FieldName::ContentLength) || value.contains(&b',') {
        return listed_content_length(fields, is_lenient);
    }
    decode_length(value).map(Some)
}

/// The length of a message that states it more than once. RFC 9112 section 6.3 allows recipients to accept
/// identical values. Requests with them are rejected, because no client has a reason to send them.
#[cold]
fn listed_content_length(
    fields: &FieldTable<'_>,
    is_lenient: bool,
) -> Result<Option<u64>, FaultKind> {
    let mut first = None;
    let mut is_identical = true;
    for element in fields.elements(FieldName::ContentLength) {
        let length = decode_length(element)?;
        let (first_element, first_length) = *first.get_or_insert((element, length));
        if first_length != length {
            return Err(FaultKind::ContentLengthsDiffer);
        }
        // `5` and `005` are equal to us, but not to a reader that compares them as text.
        is_identical &= first_element == element;
    }
    match first {
        Some((_, length)) if is_lenient && is_identical => Ok(Some(length)),
        _ => Err(FaultKind::ContentLengthRepeated),
    }
}

/// Decodes a length: only digits (RFC 9110 section 8.6), up to `LENGTH_MAX`.
fn decode_length(digits: &[u8]) -> Result<u64, FaultKind> {
    if digits.is_empty() {
        return Err(FaultKind::ContentLengthInvalid);
    }
    let mut length = 0_u64;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return Err(FaultKind::ContentLengthInvalid);
        }
        length = length
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(byte - b'0')))
            .filter(|&length| length <= LENGTH_MAX)
            .ok_or(FaultKind::ContentLengthInvalid)?;
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_plain_digits_below_two_to_the_63() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("42", Some(42)),
            ("007", Some(7)),
            ("9223372036854775807", Some(LENGTH_MAX)),
            ("9223372036854775808", None),
            ("18446744073709551616", None),
            ("99999999999999999999999999", None),
            ("", None),
            ("+1", None),
            ("-1", None),
            ("1 2", None),
            ("0x10", None),
            ("1_000", None),
            ("1.0", None),
            ("\u{664}", None),
        ] {
            assert_eq!(decode_length(text.as_bytes()).ok(), wanted, "{text}");
        }
    }
}
