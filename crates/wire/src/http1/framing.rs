//! The only place that decides how an HTTP/1 body is framed and whether the connection persists. The meaning of a length, and the
//! responses that have a body, are the same for every version: `message/length.rs`.
//! In: the classified fields of a head, its version. Out: `BodyLength`, persistence.
//! Source: RFC 9112 sections 6.1 to 6.3 and 9.3. If they leave a choice, the message is rejected.
//! Never: ignores one of two different statements about a length. A message with both Content-Length and
//! Transfer-Encoding is a fault, although RFC 9112 section 6.1 would let the latter take precedence.

use crate::message::field::FieldTable;
use crate::message::length::content_length;
use crate::message::syntax::{is_token, trim_ows};
use crate::message::{BodyLength, FaultKind, FieldName, Version};

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
        return Ok(BodyLength::Streamed);
    }
    Ok(content_length(fields, false)?.map_or(BodyLength::None, BodyLength::Length))
}

/// The framing of a response's body according to its fields, whether or not it has one.
#[inline]
pub(super) fn stated_length(
    fields: &FieldTable<'_>,
    version: Version,
    is_lenient: bool,
) -> Result<BodyLength, FaultKind> {
    if fields.has(FieldName::TransferEncoding) {
        check_transfer_encoding(fields, version)?;
        return Ok(BodyLength::Streamed);
    }
    let length = content_length(fields, is_lenient)?;
    Ok(length.map_or(BodyLength::UntilClose, BodyLength::Length))
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
        if !is_token(coding) {
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
