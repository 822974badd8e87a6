//! The length of a body: the value of Content-Length, and which responses have a body (RFC 9110 section 8.6).
//! In: the classified fields of a head, the status, the kind of the request. Out: `BodyLength`.
//! Never: ignores one of two different statements about a length.

use super::fault::FaultKind;
use super::field::{FieldName, FieldTable};
use super::method::Method;

/// How the end of a body is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// No body: the message ends with its head.
    None,
    /// Exactly this many bytes. In HTTP/2, END_STREAM may still follow in an empty frame.
    Length(u64),
    /// The length is not known until the body ends, perhaps with a trailer section: the chunks of HTTP/1.1,
    /// or the DATA frames of HTTP/2 until END_STREAM.
    Streamed,
    /// All bytes until the connection closes; responses of HTTP/1 only.
    UntilClose,
}

/// The facts about a request that decoding its response depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestKind {
    /// The method was HEAD.
    pub is_head: bool,
    /// The method was CONNECT.
    pub is_connect: bool,
    /// The client requested an upgrade, so a 101 is a valid response.
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
pub(crate) const LENGTH_MAX: u64 = i64::MAX as u64;

/// The length of a response's body, and whether the connection can be reused after it: false if the body ends with the
/// connection, or if a response that cannot have a body has a length (RFC 9112 section 6.3). `stated` is the framing in its
/// fields.
#[inline]
pub(crate) fn response_length(
    stated: BodyLength,
    status: u16,
    request: RequestKind,
) -> (BodyLength, bool) {
    if matches!(status, 100..=199 | 204) || (request.is_connect && matches!(status, 200..=299)) {
        // RFC 9112 section 6.1 forbids a length here; a server that sends one may also send a body.
        let fits = matches!(stated, BodyLength::UntilClose | BodyLength::Length(0));
        return (BodyLength::None, fits);
    }
    if request.is_head || status == 304 {
        return (BodyLength::None, true);
    }
    (stated, stated != BodyLength::UntilClose)
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

/// The length of a message with several lengths. RFC 9112 section 6.3 allows recipients to accept
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
